//! The kernel that sets conditions.
//!
//! It is PTX, which every driver compiles for its device, and is loaded once for a context. The
//! module goes with its context: graphs and executables keep that, so they need not keep the
//! module.

use std::sync::Arc;

use cudarc::driver::{CudaContext, LaunchConfig};
use smallvec::SmallVec;

use super::{AnyOp, Condition};
use crate::collective::Communicator;
use crate::driver::per_context::PerContext;
use crate::kernel::{Arguments, Kernel, KernelArgument};
use crate::memory::Region;
use crate::op::{KernelOp, Op};
use crate::{Error, Result};

/// `set_condition(condition, flag, reads, stopped)`: the condition becomes what the flag is, or 1
/// if `reads` is 0. Where there is `stopped`, and it is not 0, the condition becomes 0.
///
/// `set_or_leave(condition, flag, reads, stopped, count, failed)`: as `set_condition`, but where
/// one of the first `count` words that `failed` names is not 0, the condition becomes 0. The word 8
/// bytes behind each counts turns, so that who waits sees that work gets on.
///
/// `checkpoint(condition, stopped, flag, number)`: if `stopped` is 0 and the flag is not, `stopped`
/// becomes the number. The condition becomes 1 if `stopped` is 0, and else 0.
///
/// `latch(flag, reads, stopped, active, around, otherwise)`: `active` becomes 1 where
/// `set_condition` sets its condition, and else 0. Where there is `around`, and it is 0, `active`
/// becomes 0. Where there is `otherwise`, it becomes what `active` does not, but for that.
///
/// `latch_checkpoint(active, stopped, flag, number, around)`: `active` becomes what `checkpoint`
/// makes of its condition. Where there is `around`, and it is 0, `active` becomes 0, and nothing
/// stops.
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

.visible .entry set_or_leave(.param .u64 condition, .param .u64 flag, .param .u32 reads,
    .param .u64 stopped, .param .u32 count, .param .align 8 .b8 failed[64])
{
    .reg .pred %reads, %p;
    .reg .b32 %value, %word, %count;
    .reg .b64 %handle, %at, %list;
    ld.param.u64 %handle, [condition];
    ld.param.u64 %at, [flag];
    ld.param.u32 %value, [reads];
    ld.param.u32 %count, [count];
    setp.ne.u32 %reads, %value, 0;
    cvta.to.global.u64 %at, %at;
    mov.u32 %value, 1;
    @%reads ld.global.u32 %value, [%at];
    ld.param.u64 %at, [stopped];
    setp.ne.u64 %p, %at, 0;
    cvta.to.global.u64 %at, %at;
    mov.u32 %word, 0;
    @%p ld.global.u32 %word, [%at];
    setp.ne.u32 %p, %word, 0;
    selp.u32 %value, 0, %value, %p;
    mov.u64 %list, failed;
NEXT:
    setp.eq.u32 %p, %count, 0;
    @%p bra SET;
    ld.param.u64 %at, [%list];
    cvta.to.global.u64 %at, %at;
    ld.volatile.global.u32 %word, [%at];
    setp.ne.u32 %p, %word, 0;
    selp.u32 %value, 0, %value, %p;
    ld.volatile.global.u32 %word, [%at+8];
    add.u32 %word, %word, 1;
    st.volatile.global.u32 [%at+8], %word;
    add.u64 %list, %list, 8;
    sub.u32 %count, %count, 1;
    bra NEXT;
SET:
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

.visible .entry latch(.param .u64 flag, .param .u32 reads, .param .u64 stopped,
    .param .u64 active, .param .u64 around, .param .u64 otherwise)
{
    .reg .pred %is, %other, %there;
    .reg .b32 %word;
    .reg .b64 %at;
    ld.param.u32 %word, [reads];
    setp.ne.u32 %there, %word, 0;
    ld.param.u64 %at, [flag];
    cvta.to.global.u64 %at, %at;
    mov.u32 %word, 1;
    @%there ld.global.u32 %word, [%at];
    setp.ne.u32 %is, %word, 0;
    ld.param.u64 %at, [stopped];
    setp.ne.u64 %there, %at, 0;
    cvta.to.global.u64 %at, %at;
    mov.u32 %word, 0;
    @%there ld.global.u32 %word, [%at];
    setp.eq.and.u32 %is, %word, 0, %is;
    ld.param.u64 %at, [around];
    setp.ne.u64 %there, %at, 0;
    cvta.to.global.u64 %at, %at;
    mov.u32 %word, 1;
    @%there ld.global.u32 %word, [%at];
    not.pred %other, %is;
    setp.ne.and.u32 %other, %word, 0, %other;
    setp.ne.and.u32 %is, %word, 0, %is;
    selp.u32 %word, 1, 0, %is;
    ld.param.u64 %at, [active];
    cvta.to.global.u64 %at, %at;
    st.global.u32 [%at], %word;
    selp.u32 %word, 1, 0, %other;
    ld.param.u64 %at, [otherwise];
    setp.ne.u64 %there, %at, 0;
    cvta.to.global.u64 %at, %at;
    @%there st.global.u32 [%at], %word;
    ret;
}

.visible .entry latch_checkpoint(.param .u64 active, .param .u64 stopped, .param .u64 flag,
    .param .u32 number, .param .u64 around)
{
    .reg .pred %p, %q, %there;
    .reg .b32 %word, %flag, %number, %around, %value;
    .reg .b64 %active, %stopped, %at;
    ld.param.u64 %active, [active];
    ld.param.u64 %stopped, [stopped];
    ld.param.u32 %number, [number];
    cvta.to.global.u64 %active, %active;
    cvta.to.global.u64 %stopped, %stopped;
    ld.param.u64 %at, [flag];
    cvta.to.global.u64 %at, %at;
    ld.global.u32 %word, [%stopped];
    ld.global.u32 %flag, [%at];
    ld.param.u64 %at, [around];
    setp.ne.u64 %there, %at, 0;
    cvta.to.global.u64 %at, %at;
    mov.u32 %around, 1;
    @%there ld.global.u32 %around, [%at];
    setp.eq.u32 %p, %word, 0;
    setp.ne.and.u32 %p, %around, 0, %p;
    setp.ne.and.u32 %q, %flag, 0, %p;
    @%q st.global.u32 [%stopped], %number;
    selp.u32 %value, 1, 0, %p;
    @%q mov.u32 %value, 0;
    st.global.u32 [%active], %value;
    ret;
}
";

/// Where a kernel says on the device what became of a condition.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Latch {
    /// The handle of the condition.
    pub condition: u64,
    /// The address of a word that becomes 1 if it is set, and else 0.
    pub active: u64,
    /// The address of a word. Where that is 0, so do both others become.
    pub around: Option<u64>,
    /// The address of a word that becomes 0 if it is set, and else 1.
    pub otherwise: Option<u64>,
}

/// The kernels of a context.
#[derive(Clone)]
pub(crate) struct Setters(Arc<[Kernel]>);

/// The kernels of `context`, loaded if they are not.
pub(crate) fn of(context: &Arc<CudaContext>) -> Result<Setters> {
    static LOADED: PerContext<Arc<[Kernel]>> = PerContext::new();
    let names = [
        "set_condition",
        "checkpoint",
        "latch",
        "latch_checkpoint",
        "set_or_leave",
    ];
    let loaded = LOADED.get(context, || Kernel::load(context, PTX, names))?;
    Ok(Setters(loaded))
}

/// The most communicators that a loop's body has collectives of.
const MOST_COMMUNICATORS: usize = 8;

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

    /// Sets `condition` at the end of a loop's body with collectives of `communicators`: as
    /// [`set`](Setters::set), but to 0 if one of them failed. Their collectives do nothing then, so
    /// the flag might never change.
    pub(crate) fn again(
        &self,
        condition: &Condition,
        flag: &Region,
        stopped: Option<&Region>,
        communicators: &[Communicator],
    ) -> Result<AnyOp> {
        let count = communicators.len();
        if count == 0 {
            return self.set(condition, Some(flag), stopped);
        }
        if count > MOST_COMMUNICATORS {
            let most = MOST_COMMUNICATORS;
            return Err(Error::ManyCommunicators { count, most });
        }
        let words = communicators.iter().map(Communicator::stop_word);
        let words: SmallVec<[Region; MOST_COMMUNICATORS]> = words.collect();
        let mut addresses = [0; MOST_COMMUNICATORS];
        for (address, word) in addresses.iter_mut().zip(&words) {
            *address = word.address();
        }
        let mut arguments = Arguments::default();
        KernelArgument::add_to(condition, &mut arguments);
        arguments.value(&flag.address());
        arguments.value(&1u32);
        arguments.value(&stopped.map_or(0, Region::address));
        arguments.value(&(count as u32));
        arguments.words_of(&addresses);
        let regions = [Some(flag), stopped].into_iter().flatten().chain(&words);
        regions
            .filter_map(|region| region.owner.clone())
            .for_each(|owner| arguments.keep(owner));
        // SAFETY: the kernel reads one number from each address, which the operation keeps, and
        // sets a condition of the graph that it becomes a node of.
        let op = unsafe { KernelOp::new(&self.0[4], ONE, arguments) }?;
        let label = format!("sets {:#x} by {:#x}", condition.raw(), flag.address());
        Ok(op.label(label).into())
    }

    /// Whether `op` sets a condition by a flag, or always, and does nothing else.
    pub(crate) fn is_setter(&self, op: &AnyOp) -> bool {
        matches!(op, AnyOp::Kernel(op) if op.kernel() == self.0[0])
    }

    /// The address of the flag that says whether a loop goes on, of a kernel in its body: of one
    /// that is declared to do nothing where that is 0, and of one that sets the loop's condition by
    /// it alone.
    pub(crate) fn flag_of(&self, op: &AnyOp) -> Option<u64> {
        let AnyOp::Kernel(launch) = op else {
            return None;
        };
        match launch.arguments().words() {
            [_, flag, reads, stopped] if self.is_setter(op) => {
                (*reads as u32 != 0 && *stopped == 0).then_some(*flag)
            }
            _ => launch.idle_flag(),
        }
    }

    /// Has `latch` say what becomes of a condition, instead of `op`, which sets it or is such an
    /// operation itself. It holds what `op` holds. None if `op` is neither.
    pub(crate) fn latch(&self, op: &AnyOp, latch: Latch) -> Option<Result<KernelOp>> {
        let AnyOp::Kernel(launch) = op else {
            return None;
        };
        let kernel = self
            .0
            .iter()
            .position(|kernel| *kernel == launch.kernel())?;
        let mut arguments = Arguments::default();
        let (around, otherwise) = (latch.around.unwrap_or(0), latch.otherwise.unwrap_or(0));
        let (number, label) = match (kernel, launch.arguments().words()) {
            (0, [_, flag, reads, stopped]) | (2, [flag, reads, stopped, ..]) => {
                arguments.value(flag);
                arguments.value(&(*reads as u32));
                arguments.value(stopped);
                arguments.value(&latch.active);
                arguments.value(&around);
                arguments.value(&otherwise);
                (2, format!("latches {flag:#x}"))
            }
            // Nothing runs where it stops, and not where it does not.
            (1 | 3, [_, stopped, flag, number, ..]) if otherwise == 0 => {
                arguments.value(&latch.active);
                arguments.value(stopped);
                arguments.value(flag);
                arguments.value(&(*number as u32));
                arguments.value(&around);
                let label = op.tag().label.as_deref();
                (3, label.unwrap_or("checkpoint").into())
            }
            _ => return None,
        };
        for owner in op.owners() {
            arguments.keep(owner.clone());
        }
        // SAFETY: the kernels read numbers, which the operation keeps, and write those, and words
        // of the caller's.
        let made = unsafe { KernelOp::new(&self.0[number], ONE, arguments) };
        Some(made.map(|made| made.label(label)))
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
