//! Bulk copies and reductions between global memory and the shared memory of a cluster.
//!
//! They are done where they are started, and then they complete: their bytes count at the
//! `mbarrier` that they name.

use super::block::Block;
use super::cluster::{at_rank, host_address, is_shared};
use super::context::{BlockContext, CONTINUE, Status, ThreadContext};
use super::launch::FaultKind;
use super::mbarrier::{self, Op};
use super::reduce::{self, Element, Reduction};
use super::running::fault;
use crate::jit::runtime::access::check_range;
use crate::jit::runtime::runtime;

/// What bulk copies are aligned to, and their sizes multiples of.
pub(super) const ALIGN: u64 = 16;

/// Where an end of a copy is: the number that compiled code passes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u32)]
pub(crate) enum Place {
    /// At a host address outside of shared memory.
    Global,
    /// At an offset in the block's shared memory.
    Block,
    /// At an address of the cluster's.
    Cluster,
    /// At any host address.
    Generic,
}

impl Place {
    pub fn of(number: u32) -> Place {
        match number {
            0 => Place::Global,
            1 => Place::Block,
            2 => Place::Cluster,
            _ => Place::Generic,
        }
    }
}

const IS_SHARED: &str = "an address of shared memory, where .global is named";

/// How a copy is told where it goes: fields of the number that compiled code passes.
pub(crate) mod how {
    /// Where the destination's [`Place`](super::Place) is.
    pub const TO: u32 = 0;
    /// Where the source's is.
    pub const FROM: u32 = 2;
    /// It completes at an `mbarrier`, which lies where the destination does.
    pub const COMPLETES: u32 = 1 << 4;
    /// It goes to all blocks of a mask.
    pub const MULTICAST: u32 = 1 << 5;
    /// It reduces.
    pub const REDUCES: u32 = 1 << 6;
    /// Where the [`Reduction`](super::Reduction) is.
    pub const REDUCTION: u32 = 8;
    /// Where the [`Element`](super::Element) is.
    pub const ELEMENT: u32 = 12;
}

/// The contexts of the thread that copies.
#[derive(Clone, Copy)]
pub(super) struct Who {
    pub thread: *mut ThreadContext,
    pub block: *mut BlockContext,
}

impl Who {
    pub fn fault(self, kind: FaultKind, access: (u64, u64), what: &str) -> Status {
        let access = Some((access.0, access.1.min(u64::from(u32::MAX)) as u32));
        fault(self.thread, self.block, kind, access, what)
    }

    /// The host address of an end of `length` bytes.
    pub fn end(
        self,
        place: Place,
        address: u64,
        align: u64,
        length: u64,
        write: bool,
    ) -> Result<*mut u8, Status> {
        match place {
            Place::Global if is_shared(self.block, address) => {
                Err(self.fault(FaultKind::IllegalAddress, (address, length), IS_SHARED))
            }
            Place::Global | Place::Generic => {
                check_range(self.thread, self.block, address, align, length, write)?;
                Ok(address as *mut u8)
            }
            Place::Block if address >> 24 != 0 => {
                Err(self.fault(FaultKind::IllegalAddress, (address, length), ""))
            }
            Place::Block | Place::Cluster => {
                host_address(self.thread, self.block, address, align, length)
            }
        }
    }

    /// So many bytes have come for the `mbarrier` at an address.
    pub fn complete(self, place: Place, object: u64, bytes: u64) -> Result<(), Status> {
        let object = self.end(place, object, 8, 8, true)?;
        let bytes = u32::try_from(bytes).unwrap_or(u32::MAX);
        mbarrier::operate(self.thread, self.block, object, Op::Complete, 0, bytes)?;
        Ok(())
    }

    /// The ranks in a mask of blocks; no mask is the own block, by its plain address.
    pub fn ranks(self, mask: Option<u32>) -> impl Iterator<Item = Option<u32>> {
        let one = mask.is_none().then_some(None);
        let mask = mask.unwrap_or(0) & 0xffff;
        let ranks = (0..16).filter(move |rank| mask >> rank & 1 != 0).map(Some);
        one.into_iter().chain(ranks)
    }
}

/// The same place in the block of a rank.
pub(super) fn in_block(address: u64, rank: Option<u32>) -> u64 {
    match rank {
        None => address,
        Some(rank) => at_rank(address, rank),
    }
}

/// A copy or reduction, of `size` bytes.
struct Bulk {
    how: u32,
    to: u64,
    from: u64,
    size: u64,
    object: u64,
    mask: u32,
}

impl Bulk {
    fn run(&self, who: Who) -> Result<(), Status> {
        let to_place = Place::of(self.how >> how::TO & 3);
        let from_place = Place::of(self.how >> how::FROM & 3);
        let multicast = self.how & how::MULTICAST != 0;
        // A size that is no multiple is undefined; an H200 goes on.
        let size = self.size / ALIGN * ALIGN;
        let from = who.end(from_place, self.from, ALIGN, size, false)?;
        for rank in who.ranks(multicast.then_some(self.mask)) {
            let to = who.end(to_place, in_block(self.to, rank), ALIGN, size, true)?;
            if self.how & how::REDUCES == 0 {
                // SAFETY: both ends were checked for `size` bytes. They may overlap.
                unsafe { std::ptr::copy(from, to, size as usize) };
            } else {
                let reduction = Reduction::of(self.how >> how::REDUCTION & 15);
                let element = Element::of(self.how >> how::ELEMENT & 15);
                for at in (0..size as usize).step_by(element.size()) {
                    // SAFETY: both ends were checked for `size` bytes, aligned to more than any
                    // element.
                    unsafe { reduce::reduce(reduction, element, to.add(at), from.add(at)) };
                }
            }
            if self.how & how::COMPLETES != 0 {
                who.complete(to_place, in_block(self.object, rank), size)?;
            }
        }
        let block = Block::of(who.block);
        block.events.set(block.events.get() + 1);
        Ok(())
    }
}

runtime! {
    /// `cp.async.bulk` and `cp.reduce.async.bulk`: see [`how`]. The answer is a status.
    BULK_COPY = fn bulk_copy(
        thread: *mut ThreadContext, block: *mut BlockContext, how: u32, to: u64, from: u64, size: u32, object: u64,
        mask: u32,
    ) -> u32 {
        let bulk = Bulk { how, to, from, size: size.into(), object, mask };
        bulk.run(Who { thread, block }).err().unwrap_or(CONTINUE)
    }

    /// `red.async` of one element at a host address that was checked. Then its bytes have come for
    /// the `mbarrier` at `object`, in a [`Place`]. The answer is a status.
    RED_ASYNC = fn red_async(
        thread: *mut ThreadContext, block: *mut BlockContext, to: *mut u8, value: u64, what: u32, place: u32,
        object: u64,
    ) -> u32 {
        let (reduction, element) = (Reduction::of(what & 15), Element::of(what >> 4));
        let bytes = value.to_le_bytes();
        // SAFETY: compiled code has checked `to` for an element, aligned.
        unsafe { reduce::reduce(reduction, element, to, bytes.as_ptr()) };
        let who = Who { thread, block };
        who.complete(Place::of(place), object, element.size() as u64).err().unwrap_or(CONTINUE)
    }

    /// So many bytes of `st.async` have come for the `mbarrier` at `object`. The answer is a
    /// status.
    BYTES_COME = fn bytes_come(
        thread: *mut ThreadContext, block: *mut BlockContext, place: u32, object: u64, bytes: u32,
    ) -> u32 {
        let who = Who { thread, block };
        who.complete(Place::of(place), object, bytes.into()).err().unwrap_or(CONTINUE)
    }
}
