//! Memory operations of streams: a stream waits until a value in memory is as asked, or writes one.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::time::Duration;

use super::context::Context;
use super::graph::Operation as NodeOperation;
use super::graph::operation::BatchNode;
use super::memory::{self as owned, Made};
use super::stream::Stream;
use super::{CUresult, Result, capture, failure};
use crate::memory;

/// The most operations of a batch.
const MOST: usize = 256;
/// `CU_STREAM_WAIT_VALUE_FLUSH`: all writes are seen here anyway.
const FLUSH: u32 = 1 << 30;
/// How long a waiting stream sleeps at most between looks.
const NAP: Duration = Duration::from_micros(200);

/// `CUstreamBatchMemOpParams` of the operations that have an address.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct Parameters {
    /// `CUstreamBatchMemOpType`.
    pub operation: u32,
    /// Flags of operations that have no address.
    pub reserved: u32,
    /// Where.
    pub address: u64,
    /// What; 32-bit operations take the low half.
    pub value: u64,
    /// The operation's flags.
    pub flags: u32,
    /// Padding and room for the driver.
    pub rest: [u32; 5],
}

impl Parameters {
    /// An operation at an address.
    pub fn new(operation: u32, address: u64, value: u64, flags: u32) -> Parameters {
        Parameters {
            operation,
            reserved: 0,
            address,
            value,
            flags,
            rest: [0; 5],
        }
    }
}

/// `CUstreamBatchMemOpType`.
pub(crate) mod operation {
    pub const WAIT_VALUE_32: u32 = 1;
    pub const WRITE_VALUE_32: u32 = 2;
    pub const FLUSH_REMOTE_WRITES: u32 = 3;
    pub const WAIT_VALUE_64: u32 = 4;
    pub const WRITE_VALUE_64: u32 = 5;
    pub const BARRIER: u32 = 6;
}

/// When a wait ends.
#[derive(Clone, Copy)]
enum Until {
    AtLeast,
    Equal,
    AnyBit,
    NotAllBits,
}

/// A checked operation.
#[derive(Clone, Copy)]
enum Operation {
    Wait {
        place: Place,
        value: u64,
        until: Until,
    },
    Write {
        place: Place,
        value: u64,
    },
    Barrier,
}

/// An aligned word in memory.
#[derive(Clone, Copy)]
struct Place {
    address: u64,
    wide: bool,
}

impl Place {
    fn check(address: u64, wide: bool) -> Result<Place> {
        let place = Place { address, wide };
        match address.is_multiple_of(place.size()) {
            true => Ok(place),
            false => Err(CUresult::CUDA_ERROR_INVALID_VALUE),
        }
    }

    /// It is in memory that the kernels of a context reach, and that is neither managed nor a
    /// pool's nor a graph's: an H200 takes none of those.
    fn check_memory(self, context: &Context) -> Result {
        let made = owned::owner(self.address).map(|owned| owned.made);
        let taken = !matches!(
            made,
            Some(Made::Managed(_) | Made::Pooled(..) | Made::Graph(_))
        );
        let found = memory::find(self.address);
        let reached = found.is_some_and(|found| context.fills().reaches(&found));
        match taken && reached && self.is_live() {
            true => Ok(()),
            false => Err(CUresult::CUDA_ERROR_INVALID_VALUE),
        }
    }

    fn size(self) -> u64 {
        if self.wide { 8 } else { 4 }
    }

    fn is_live(self) -> bool {
        memory::begin_work();
        let allocation = memory::find(self.address);
        allocation.is_some_and(|it| it.size - (self.address - it.base) >= self.size())
    }

    /// The word that is there; `None` where memory is no longer.
    fn load(self) -> Option<u64> {
        if !self.is_live() {
            return None;
        }
        // SAFETY: aligned, and in a live allocation; device memory is shared, so it is only
        // accessed atomically here.
        Some(unsafe {
            match self.wide {
                true => AtomicU64::from_ptr(self.address as *mut u64).load(Ordering::Acquire),
                false => AtomicU32::from_ptr(self.address as *mut u32)
                    .load(Ordering::Acquire)
                    .into(),
            }
        })
    }

    fn store(self, value: u64) -> Option<()> {
        let _held = memory::hold();
        if !self.is_live() {
            return None;
        }
        // SAFETY: as in `load`.
        unsafe {
            match self.wide {
                true => {
                    AtomicU64::from_ptr(self.address as *mut u64).store(value, Ordering::Release)
                }
                false => AtomicU32::from_ptr(self.address as *mut u32)
                    .store(value as u32, Ordering::Release),
            }
        }
        Some(())
    }
}

impl Until {
    fn met(self, word: u64, value: u64, wide: bool) -> bool {
        let mask = if wide { u64::MAX } else { u32::MAX.into() };
        let value = value & mask;
        match self {
            // A cyclic comparison.
            Until::AtLeast if wide => word.wrapping_sub(value) as i64 >= 0,
            Until::AtLeast => (word as u32).wrapping_sub(value as u32) as i32 >= 0,
            Until::Equal => word == value,
            Until::AnyBit => word & value != 0,
            Until::NotAllBits => !(word | value) & mask != 0,
        }
    }
}

impl Operation {
    fn check(parameters: &Parameters) -> Result<Operation> {
        let Parameters {
            operation,
            reserved,
            address,
            value,
            flags,
            ..
        } = *parameters;
        match operation {
            operation::WAIT_VALUE_32 | operation::WAIT_VALUE_64 => {
                let until = match flags & !FLUSH {
                    0 => Until::AtLeast,
                    1 => Until::Equal,
                    2 => Until::AnyBit,
                    3 => Until::NotAllBits,
                    _ => return Err(CUresult::CUDA_ERROR_INVALID_VALUE),
                };
                let place = Place::check(address, operation == operation::WAIT_VALUE_64)?;
                Ok(Operation::Wait {
                    place,
                    value,
                    until,
                })
            }
            operation::WRITE_VALUE_32 | operation::WRITE_VALUE_64 if flags == 0 => {
                let place = Place::check(address, operation == operation::WRITE_VALUE_64)?;
                Ok(Operation::Write { place, value })
            }
            operation::BARRIER if reserved <= 1 => Ok(Operation::Barrier),
            operation::FLUSH_REMOTE_WRITES if reserved == 0 => Ok(Operation::Barrier),
            _ => Err(CUresult::CUDA_ERROR_INVALID_VALUE),
        }
    }

    fn check_memory(self, context: &Context) -> Result {
        match self {
            Operation::Barrier => Ok(()),
            Operation::Wait { place, .. } | Operation::Write { place, .. } => {
                place.check_memory(context)
            }
        }
    }

    fn run(self) -> Result {
        match self {
            Operation::Barrier => Ok(()),
            Operation::Write { place, value } => place
                .store(value)
                .ok_or(CUresult::CUDA_ERROR_ILLEGAL_ADDRESS),
            Operation::Wait {
                place,
                value,
                until,
            } => {
                let mut looks = 0u32;
                loop {
                    let word = place.load().ok_or(CUresult::CUDA_ERROR_ILLEGAL_ADDRESS)?;
                    if until.met(word, value, place.wide) || failure::failed().is_some() {
                        return Ok(());
                    }
                    looks = looks.saturating_add(1);
                    match looks {
                        ..100 => std::hint::spin_loop(),
                        100..200 => std::thread::yield_now(),
                        _ => std::thread::sleep(
                            NAP.min(Duration::from_micros(u64::from(looks - 200))),
                        ),
                    }
                }
            }
        }
    }
}

/// Operations that were checked, to be run in order any number of times.
#[derive(Clone)]
pub(crate) struct Batch(Box<[Operation]>);

impl Batch {
    /// All operations, or none where one is wrong whatever memory there is.
    pub fn check(operations: &[Parameters]) -> Result<Batch> {
        if operations.len() > MOST {
            return Err(CUresult::CUDA_ERROR_INVALID_VALUE);
        }
        let operations = operations.iter();
        let checked: Result<_> = operations.map(Operation::check).collect();
        checked.map(Batch)
    }

    /// Fails where an address is none that operations of a context may have.
    pub fn check_memory(&self, context: &Context) -> Result {
        self.0
            .iter()
            .try_for_each(|operation| operation.check_memory(context))
    }

    /// Runs them, on the calling thread, until the process fails.
    pub fn execute(&self) -> Result {
        self.0.iter().try_for_each(|operation| operation.run())
    }
}

/// `cuStreamBatchMemOp`: all operations in order, or none where one is wrong; in a capture they
/// become a node.
pub(crate) fn submit(stream: &Stream, operations: &[Parameters]) -> Result {
    if stream.is_capturing() {
        let node = BatchNode::new(stream.context().clone(), operations.to_vec(), 0)?;
        return capture::record(stream, NodeOperation::Batch(Arc::new(node)));
    }
    let batch = Batch::check(operations)?;
    batch.check_memory(stream.context())?;
    stream.submit(move || batch.execute())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn waits_end_as_their_flags_say() {
        assert!(Until::AtLeast.met(5, 5, false) && !Until::AtLeast.met(4, 5, false));
        assert!(
            Until::AtLeast.met(2, u64::from(u32::MAX - 1), false),
            "32 bits wrap around"
        );
        assert!(
            !Until::AtLeast.met(2, u64::from(u32::MAX - 1), true),
            "64 bits do not yet"
        );
        assert!(
            Until::Equal.met(7, 0x1_0000_0007, false),
            "the high half does not count"
        );
        assert!(Until::AnyBit.met(6, 2, false) && !Until::AnyBit.met(6, 1, false));
        assert!(!Until::NotAllBits.met(u64::from(u32::MAX) ^ 1, 1, false));
        assert!(Until::NotAllBits.met(u64::from(u32::MAX) ^ 1, 1, true));
    }
}
