//! The kernel that sets conditions.
//!
//! It is PTX, which every driver compiles for its device, and is loaded once for a context. The
//! module goes with its context: graphs and executables keep that, so they need not keep the
//! module.

use std::sync::Arc;

use cudarc::driver::{CudaContext, LaunchConfig};

use crate::Result;
use crate::driver::per_context::PerContext;
use crate::graph::{AnyOp, Condition};
use crate::kernel::{Arguments, Kernel, KernelArgument};
use crate::memory::Region;
use crate::op::KernelOp;

/// `set_condition(condition, flag, reads)`: the condition becomes what the flag is, or 1 if `reads`
/// is 0.
const PTX: &str = "
.version 8.3
.target sm_70
.address_size 64

.extern .func cudaGraphSetConditional(.param .b64 handle, .param .b32 value);

.visible .entry set_condition(.param .u64 condition, .param .u64 flag, .param .u32 reads)
{
    .reg .pred %reads;
    .reg .b32 %value;
    .reg .b64 %handle, %from;
    ld.param.u64 %handle, [condition];
    ld.param.u64 %from, [flag];
    ld.param.u32 %value, [reads];
    setp.ne.u32 %reads, %value, 0;
    cvta.to.global.u64 %from, %from;
    mov.u32 %value, 1;
    @%reads ld.global.u32 %value, [%from];
    {
        .param .b64 a;
        .param .b32 b;
        st.param.b64 [a], %handle;
        st.param.b32 [b], %value;
        call.uni cudaGraphSetConditional, (a, b);
    }
    ret;
}
";

/// The kernel of `context`, loaded if it is not.
pub(crate) fn of(context: &Arc<CudaContext>) -> Result<Kernel> {
    static LOADED: PerContext<Arc<[Kernel]>> = PerContext::new();
    let loaded = LOADED.get(context, || Kernel::load(context, PTX, ["set_condition"]))?;
    Ok(loaded[0].clone())
}

/// Sets `condition` to what `flag`, which is one number, is, or to 1 without a flag. Pictures name
/// the operation for what it does to which condition.
pub(crate) fn set(kernel: &Kernel, condition: &Condition, flag: Option<&Region>) -> Result<AnyOp> {
    let mut arguments = Arguments::default();
    KernelArgument::add_to(condition, &mut arguments);
    arguments.value(&flag.map_or(0, Region::address));
    arguments.value(&u32::from(flag.is_some()));
    if let Some(owner) = flag.and_then(|flag| flag.owner.clone()) {
        arguments.keep(owner);
    }
    let one = LaunchConfig {
        grid_dim: (1, 1, 1),
        block_dim: (1, 1, 1),
        shared_mem_bytes: 0,
    };
    // SAFETY: the kernel reads one number from the flag's address, which the operation keeps, and
    // sets a condition of the graph that it becomes a node of.
    let op = unsafe { KernelOp::new(kernel, one, arguments) }?;
    let label = match flag {
        Some(flag) => format!("sets {:#x} by {:#x}", condition.raw(), flag.address()),
        None => format!("enters {:#x}", condition.raw()),
    };
    Ok(op.label(label).into())
}
