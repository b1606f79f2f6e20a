//! Hooks for this crate's own tests.

pub use crate::driver::{with_driver_version, with_failing_call, without_ordered_frees};
pub use crate::retain::settle;

/// Looks a driver function up, as its first call does.
pub fn find_function(name: &'static str) -> crate::Result<()> {
    crate::driver::find(&std::sync::atomic::AtomicBool::new(false), name)
}
