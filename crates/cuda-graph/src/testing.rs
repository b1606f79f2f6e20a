//! Hooks for this crate's own tests.

use std::sync::Arc;

use cudarc::driver::CudaContext;

pub use crate::driver::{with_driver_version, with_failing_call, without_ordered_frees};
use crate::op::lowered;
pub use crate::retain::settle;
use crate::{AnyOp, KernelOp};

/// The kernel with a guard or a wait in front, of a module of `context`, or why there is none.
pub fn variant(
    kernel: &crate::Kernel,
    context: &std::sync::Arc<cudarc::driver::CudaContext>,
    guard: bool,
    wait: bool,
) -> crate::Result<Result<crate::Kernel, String>> {
    let wanted = crate::kernel::Variant {
        guard,
        wait,
        ..Default::default()
    };
    let variant = kernel.variant(context, wanted)?;
    Ok(variant.map_err(|refusal| refusal.to_string()))
}

/// Looks a driver function up, as its first call does.
pub fn find_function(name: &'static str) -> crate::Result<()> {
    crate::driver::find(&std::sync::atomic::AtomicBool::new(false), name)
}

/// One launch of this library's own that does what `ops` do, of which some are disabled.
pub fn lowered(
    context: &Arc<CudaContext>,
    ops: &[AnyOp],
    is_enabled: impl Fn(usize) -> bool,
    is_any_size: bool,
) -> Option<crate::Result<KernelOp>> {
    let sizes = match is_any_size {
        true => lowered::Sizes::All,
        false => lowered::Sizes::Worthwhile,
    };
    let ops: Vec<&AnyOp> = ops.iter().collect();
    lowered::lower(context, &ops, is_enabled, sizes)
}

/// How many slots of a launch `op` takes, of how many.
pub fn slots(op: &AnyOp) -> Option<(usize, usize)> {
    lowered::slots(op).map(|slots| (slots, lowered::MOST_SLOTS))
}

/// The texts of the kernels of collectives: each kind of each element, by each reduction.
pub fn collective_kernels() -> Vec<String> {
    crate::collective::texts()
}

/// Whether one of two operations writes what the other reads or writes, or may do so.
pub fn conflicts(one: &AnyOp, other: &AnyOp) -> bool {
    crate::op::conflicts(one, other)
}
