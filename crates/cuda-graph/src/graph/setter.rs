//! The kernel that sets conditions.
//!
//! It is PTX, which every driver compiles for its device, and is loaded once for a context. The
//! module goes with its context: graphs and executables keep that, so they need not keep the
//! module.

use std::sync::Arc;

use cudarc::driver::{CudaContext, LaunchConfig};

use super::{AnyOp, Condition};
use crate::Result;
use crate::driver::per_context::PerContext;
use crate::kernel::{Arguments, Kernel, KernelArgument};
use crate::memory::Region;
use crate::op::{KernelOp, Op};

/// `set_condition(condition, flag, reads, stopped)`: the condition becomes what the flag is, or 1
/// if `reads` is 0. Where there is `stopped`, and it is not 0, the condition becomes 0.
///
/// `checkpoint(condition, stopped, flag, number)`: if `stopped` is 0 and the flag is not, `stopped`
/// becomes the number. The condition becomes 1 if `stopped` is 0, and else 0.
///
/// `latch(flag, active)`: `active` becomes 1 if the flag is not 0, and else 0.
const PTX: &str = "
.version 8.3
.target sm_70
.address_size 64

.extern .func cudaGraphSetConditional(.param .b64 handle, .param .b32 value);

.visible .entry set_condition(.param .u64 condition, .param .u64 flag, .param .u32 reads,
    .param .u64 stopped)
{
    .reg .pred %reads, %stops;
    .reg .b32 %value, %word;
    .reg .b64 %handle, %from, %stopped;
    ld.param.u64 %handle, [condition];
    ld.param.u64 %from, [flag];
    ld.param.u32 %value, [reads];
    setp.ne.u32 %reads, %value, 0;
    cvta.to.global.u64 %from, %from;
    mov.u32 %value, 1;
    @%reads ld.global.u32 %value, [%from];
    ld.param.u64 %stopped, [stopped];
    setp.ne.u64 %stops, %stopped, 0;
    cvta.to.global.u64 %stopped, %stopped;
    mov.u32 %word, 0;
    @%stops ld.global.u32 %word, [%stopped];
    setp.ne.u32 %stops, %word, 0;
    selp.u32 %value, 0, %value, %stops;
    {
        .param .b64 a;
        .param .b32 b;
        st.param.b64 [a], %handle;
        st.param.b32 [b], %value;
        call.uni cudaGraphSetConditional, (a, b);
    }
    ret;
}

.visible .entry checkpoint(.param .u64 condition, .param .u64 stopped, .param .u64 flag,
    .param .u32 number)
{
    .reg .pred %p, %q;
    .reg .b32 %word, %flag, %number, %value;
    .reg .b64 %handle, %stopped, %from;
    ld.param.u64 %handle, [condition];
    ld.param.u64 %stopped, [stopped];
    ld.param.u64 %from, [flag];
    ld.param.u32 %number, [number];
    cvta.to.global.u64 %stopped, %stopped;
    cvta.to.global.u64 %from, %from;
    ld.global.u32 %word, [%stopped];
    ld.global.u32 %flag, [%from];
    setp.eq.u32 %p, %word, 0;
    setp.ne.and.u32 %q, %flag, 0, %p;
    selp.u32 %word, %number, %word, %q;
    @%q st.global.u32 [%stopped], %word;
    setp.eq.u32 %p, %word, 0;
    selp.u32 %value, 1, 0, %p;
    {
        .param .b64 a;
        .param .b32 b;
        st.param.b64 [a], %handle;
        st.param.b32 [b], %value;
        call.uni cudaGraphSetConditional, (a, b);
    }
    ret;
}

.visible .entry latch(.param .u64 flag, .param .u64 active)
{
    .reg .pred %p;
    .reg .b32 %value;
    .reg .b64 %from, %to;
    ld.param.u64 %from, [flag];
    ld.param.u64 %to, [active];
    cvta.to.global.u64 %from, %from;
    cvta.to.global.u64 %to, %to;
    ld.global.u32 %value, [%from];
    setp.ne.u32 %p, %value, 0;
    selp.u32 %value, 1, 0, %p;
    st.global.u32 [%to], %value;
    ret;
}
";

/// The kernels of a context.
#[derive(Clone)]
pub(crate) struct Setters(Arc<[Kernel]>);

/// The kernels of `context`, loaded if they are not.
pub(crate) fn of(context: &Arc<CudaContext>) -> Result<Setters> {
    static LOADED: PerContext<Arc<[Kernel]>> = PerContext::new();
    let names = ["set_condition", "checkpoint", "latch"];
    let loaded = LOADED.get(context, || Kernel::load(context, PTX, names))?;
    Ok(Setters(loaded))
}

const ONE: LaunchConfig = LaunchConfig {
    grid_dim: (1, 1, 1),
    block_dim: (1, 1, 1),
    shared_mem_bytes: 0,
};

impl Setters {
    /// Sets `condition` to what `flag`, which is one number, is, or to 1 without a flag; to 0 if
    /// `stopped` is not. Pictures name the operation for what it does to which condition.
    pub(crate) fn set(
        &self,
        condition: &Condition,
        flag: Option<&Region>,
        stopped: Option<&Region>,
    ) -> Result<AnyOp> {
        let mut arguments = Arguments::default();
        KernelArgument::add_to(condition, &mut arguments);
        arguments.value(&flag.map_or(0, Region::address));
        arguments.value(&u32::from(flag.is_some()));
        arguments.value(&stopped.map_or(0, Region::address));
        for region in [flag, stopped].into_iter().flatten() {
            region
                .owner
                .iter()
                .for_each(|owner| arguments.keep(owner.clone()));
        }
        // SAFETY: the kernel reads one number from each address, which the operation keeps, and
        // sets a condition of the graph that it becomes a node of.
        let op = unsafe { KernelOp::new(&self.0[0], ONE, arguments) }?;
        let label = match flag {
            Some(flag) => format!("sets {:#x} by {:#x}", condition.raw(), flag.address()),
            None => format!("enters {:#x}", condition.raw()),
        };
        Ok(op.label(label).into())
    }

    /// Whether `op` sets a condition, and does nothing else.
    pub(crate) fn is_setter(&self, op: &AnyOp) -> bool {
        matches!(op, AnyOp::Kernel(op) if op.kernel() == self.0[0])
    }

    /// The address of the flag by which `op` sets a condition, if it does that and nothing else.
    pub(crate) fn flag_of(&self, op: &AnyOp) -> Option<u64> {
        let AnyOp::Kernel(op) = op else { return None };
        match op.arguments().words() {
            [_, flag, reads, stopped] if op.kernel() == self.0[0] => {
                (*reads as u32 != 0 && *stopped == 0).then_some(*flag)
            }
            _ => None,
        }
    }

    /// Makes the word at `active` say whether the flag by which `setter` sets a condition is set.
    /// It holds what `setter` holds. None if `setter` sets no condition by a flag alone.
    pub(crate) fn latch(&self, setter: &AnyOp, active: u64) -> Option<Result<KernelOp>> {
        let flag = self.flag_of(setter)?;
        let mut arguments = Arguments::default();
        arguments.value(&flag);
        arguments.value(&active);
        for owner in setter.owners() {
            arguments.keep(owner.clone());
        }
        // SAFETY: the kernel reads one number, which the operation keeps, and writes one of the
        // caller's.
        let op = unsafe { KernelOp::new(&self.0[2], ONE, arguments) };
        Some(op.map(|op| op.label(format!("latches {flag:#x}"))))
    }

    /// Stops at checkpoint `number` if `flag` is set, and sets `condition` to whether the step goes
    /// on.
    pub(crate) fn checkpoint(
        &self,
        condition: &Condition,
        stopped: &Region,
        flag: &Region,
        number: u32,
        name: &str,
    ) -> Result<AnyOp> {
        let mut arguments = Arguments::default();
        KernelArgument::add_to(condition, &mut arguments);
        arguments.value(&stopped.address());
        arguments.value(&flag.address());
        arguments.value(&number);
        for region in [stopped, flag] {
            region
                .owner
                .iter()
                .for_each(|owner| arguments.keep(owner.clone()));
        }
        // SAFETY: the kernel reads one number from each address, and writes the first, which the
        // operation keeps; it sets a condition of the graph that it becomes a node of.
        let op = unsafe { KernelOp::new(&self.0[1], ONE, arguments) }?;
        Ok(op.label(format!("checkpoint {name}")).into())
    }
}
