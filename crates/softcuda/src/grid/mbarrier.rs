//! `mbarrier` objects: 64 bits of shared memory that count the arrivals and the bytes that a phase
//! waits for.
//!
//! | bits | are |
//! |---|---|
//! | 0 to 19 | arrivals that each phase expects |
//! | 20 to 39 | arrivals that the current phase still waits for |
//! | 40 to 60 | bytes that it waits for, signed |
//! | 63 | the lowest bit of its number |
//!
//! All threads that reach an object run on one thread of the host, so an operation on it is a load
//! and a store. A phase that no thread of the host can complete meanwhile is not worth looking at
//! again: a look that finds a phase incomplete gives up the thread's turn at its next poll.

use super::block::Block;
use super::context::{BlockContext, Status, ThreadContext};
use super::launch::FaultKind;
use super::running::fault;
use crate::jit::runtime::runtime;

/// The answer of an operation that ended in a fault: no object has all these bits.
pub(crate) const FAILED: u64 = u64::MAX;

/// The most arrivals of a phase, and bytes.
const MOST: u64 = (1 << 20) - 1;

/// An operation on an object: the number that compiled code passes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u32)]
pub(crate) enum Op {
    /// Begins the first phase, of so many arrivals.
    Init,
    /// The memory is no object any more.
    Invalidate,
    /// The phase waits for so many bytes more.
    Expect,
    /// So many bytes have come.
    Complete,
    /// So many arrivals, before them bytes to wait for.
    Arrive,
    /// The same of threads that arrive in no later phase.
    Drop,
}

impl Op {
    const ALL: [Op; 6] = [
        Op::Init,
        Op::Invalidate,
        Op::Expect,
        Op::Complete,
        Op::Arrive,
        Op::Drop,
    ];
}

/// An object's value.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Object {
    expected: u64,
    pending: u64,
    bytes: i64,
    phase: bool,
}

impl Object {
    fn of(bits: u64) -> Object {
        Object {
            expected: bits & MOST,
            pending: bits >> 20 & MOST,
            bytes: (bits << 3) as i64 >> 43,
            phase: bits >> 63 != 0,
        }
    }

    fn bits(self) -> u64 {
        let bytes = self.bytes as u64 & ((1 << 21) - 1);
        self.expected | self.pending << 20 | bytes << 40 | u64::from(self.phase) << 63
    }

    /// The arrivals that the phase waited for when a state was taken.
    pub fn pending(state: u64) -> u32 {
        Object::of(state).pending as u32
    }

    /// The object after an operation, or what is wrong with that.
    fn after(self, op: Op, count: u64, bytes: u64) -> Result<Object, &'static str> {
        let mut object = self;
        match op {
            Op::Init => {
                return Ok(Object {
                    expected: count & MOST,
                    pending: count & MOST,
                    bytes: 0,
                    phase: false,
                });
            }
            Op::Invalidate => return Ok(Object::of(0)),
            Op::Expect | Op::Arrive | Op::Drop => object.bytes += bytes as i64,
            Op::Complete => object.bytes -= bytes as i64,
        }
        if object.bytes.unsigned_abs() > MOST {
            return Err("an mbarrier of more than 1048575 bytes");
        }
        if matches!(op, Op::Arrive | Op::Drop) {
            object.pending = object
                .pending
                .checked_sub(count)
                .ok_or("an mbarrier has more arrivals than it expects")?;
            if op == Op::Drop {
                object.expected = object
                    .expected
                    .checked_sub(count)
                    .ok_or("an mbarrier loses more arrivals than it expects")?;
            }
        }
        if object.pending == 0 && object.bytes == 0 {
            object.pending = object.expected;
            object.phase = !object.phase;
        }
        Ok(object)
    }
}

/// Does an operation on the object at a host address that has been checked. Answers what the object
/// was before.
pub(crate) fn operate(
    thread: *mut ThreadContext,
    context: *mut BlockContext,
    address: *mut u8,
    op: Op,
    count: u32,
    bytes: u32,
) -> Result<u64, Status> {
    let block = Block::of(context);
    let address = address.cast::<u64>();
    if !block.cluster().has_shared(address as u64) {
        let access = Some((address as u64, 8));
        let kind = FaultKind::IllegalInstruction;
        return Err(fault(
            thread,
            context,
            kind,
            access,
            "an mbarrier outside of shared memory",
        ));
    }
    block.events.set(block.events.get() + 1);
    // SAFETY: the address was checked for 8 bytes, aligned, of shared memory, which no other thread
    // of the host uses.
    let before = unsafe { address.read_volatile() };
    let before = Object::of(before);
    match before.after(op, count.into(), bytes.into()) {
        Ok(object) => {
            // SAFETY: as above.
            unsafe { address.write_volatile(object.bits()) };
            // Whatever the memory held, these are no bits but an object's.
            Ok(before.bits())
        }
        Err(what) => {
            let access = Some((address as u64, 8));
            Err(fault(
                thread,
                context,
                FaultKind::LaunchFailure,
                access,
                what,
            ))
        }
    }
}

runtime! {
    /// An operation on an object: `op` is an [`Op`]. The answer is the object before, or
    /// [`FAILED`].
    MBARRIER = fn mbarrier(
        thread: *mut ThreadContext, block: *mut BlockContext, address: *mut u8, op: u32, count: u32, bytes: u32,
    ) -> u64 {
        let op = Op::ALL.get(op as usize).copied().unwrap_or(Op::Invalidate);
        operate(thread, block, address, op, count, bytes).unwrap_or(FAILED)
    }

    /// Whether the phase of `state` is complete: 1 or 0.
    MBARRIER_TEST = fn mbarrier_test(
        thread: *mut ThreadContext, context: *mut BlockContext, address: *const u8, state: u64,
    ) -> u32 {
        let block = Block::of(context);
        if !block.cluster().has_shared(address as u64) {
            let access = Some((address as u64, 8));
            let kind = FaultKind::IllegalInstruction;
            fault(thread, context, kind, access, "an mbarrier outside of shared memory");
            return TEST_FAILED;
        }
        // SAFETY: as in `operate`.
        let now = unsafe { address.cast::<u64>().read_volatile() };
        let complete = Object::of(now).phase != Object::of(state).phase;
        if complete {
            // The thread gets on, wherever to.
            block.events.set(block.events.get() + 1);
        } else {
            // SAFETY: compiled code passes on the contexts that the grid gave it, and no reference
            // to them exists meanwhile.
            unsafe {
                (*thread).polls = 0;
                (*context).polls = 0;
            }
        }
        complete.into()
    }

    /// `mbarrier.pending_count`
    PENDING_COUNT = fn pending_count(state: u64) -> u32 {
        Object::pending(state)
    }
}

/// The answer of a test that ended in a fault.
pub(crate) const TEST_FAILED: u32 = 2;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn phases_wait_for_arrivals_and_bytes() {
        let new = Object::of(0).after(Op::Init, 3, 0).unwrap();
        assert_eq!(Object::of(new.bits()), new);
        assert_eq!(Object::pending(new.bits()), 3);
        let object = new.after(Op::Arrive, 2, 100).unwrap();
        let object = object.after(Op::Complete, 0, 160).unwrap();
        assert_eq!(Object::of(object.bits()), object);
        assert_eq!(
            (object.pending, object.bytes, object.phase),
            (1, -60, false)
        );
        let object = object.after(Op::Drop, 1, 0).unwrap();
        assert_eq!(
            (object.pending, object.bytes, object.phase),
            (0, -60, false)
        );
        let object = object.after(Op::Expect, 0, 60).unwrap();
        assert_eq!((object.pending, object.bytes, object.phase), (2, 0, true));
        assert!(object.after(Op::Arrive, 3, 0).is_err());
        assert!(object.after(Op::Expect, 0, 1 << 20).is_err());
        assert!(object.after(Op::Complete, 0, 1 << 20).is_err());
        let most = object.after(Op::Expect, 0, MOST).unwrap();
        assert_eq!(Object::of(most.bits()), most);
        assert_eq!(most.after(Op::Invalidate, 0, 0), Ok(Object::of(0)));
        assert!(Object::of(0).after(Op::Arrive, 1, 0).is_err());
    }
}
