//! Hooks for this crate's own tests.

pub use crate::driver::{with_driver_version, with_failing_call, without_ordered_frees};
pub use crate::retain::settle;

/// The kernel with a guard or a wait in front, of a module of `context`, or why there is none.
pub fn variant(
    kernel: &crate::Kernel,
    context: &std::sync::Arc<cudarc::driver::CudaContext>,
    guard: bool,
    wait: bool,
) -> crate::Result<Result<crate::Kernel, String>> {
    let variant = kernel.variant(context, crate::kernel::Variant { guard, wait })?;
    Ok(variant.map_err(|refusal| refusal.to_string()))
}

/// Looks a driver function up, as its first call does.
pub fn find_function(name: &'static str) -> crate::Result<()> {
    crate::driver::find(&std::sync::atomic::AtomicBool::new(false), name)
}
