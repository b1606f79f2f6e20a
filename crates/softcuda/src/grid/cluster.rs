//! The blocks of a cluster, which one worker runs together: the barrier they share, and how they
//! reach each other's shared memory.
//!
//! An address in `.shared::cluster` is an offset in the block's own shared memory, or, for the
//! block of rank `r`, `(r + 1) << 24` and the offset there. A generic address is a host address in
//! any block's shared memory.

use std::cell::{Cell, RefCell};

use super::block::{Block, linear_of, suspend, thread_of};
use super::context::{BlockContext, CONTINUE, FAULTED, Status, ThreadContext};
use super::launch::FaultKind;
use super::running::fault;
use crate::jit::runtime::runtime;

/// The state that the blocks of a cluster share; without clusters each block has one to itself.
#[derive(Default)]
pub(super) struct Cluster {
    /// Threads that have not ended.
    live: Cell<u32>,
    /// Of those, how many have arrived at the barrier's current phase.
    arrived: Cell<u32>,
    phase: Cell<u32>,
    /// Who waits for the current phase to complete: the block, and the thread's number in it.
    waiting: RefCell<Vec<(*const Block, u32)>>,
    /// The blocks by rank; without clusters, or where blocks do not reach each other, the block
    /// that runs.
    blocks: RefCell<Vec<*const Block>>,
}

/// The bit where the rank begins in an address of a cluster's shared memory.
const RANK: u32 = 24;

impl Cluster {
    /// Begins anew, with this many threads.
    pub fn reset(&self, threads: u32) {
        self.live.set(threads);
        self.arrived.set(0);
        self.phase.set(0);
        self.waiting.borrow_mut().clear();
    }

    /// Its blocks, by rank. They stay where they are until it is given others.
    pub fn set_blocks(&self, blocks: impl Iterator<Item = *const Block>) {
        let mut list = self.blocks.borrow_mut();
        list.clear();
        list.extend(blocks);
    }

    /// It has more blocks than one.
    fn has_several(&self) -> bool {
        self.blocks.borrow().len() > 1
    }

    /// The blocks, with their ranks.
    fn blocks(&self) -> impl Iterator<Item = (usize, &Block)> {
        let blocks = self.blocks.borrow();
        (0..blocks.len()).filter_map(|rank| Some((rank, self.block(rank)?)))
    }

    /// The block of a rank.
    fn block(&self, rank: usize) -> Option<&Block> {
        let block = self.blocks.borrow().get(rank).copied()?;
        // SAFETY: `set_blocks` was given blocks that stay where they are while the cluster runs,
        // and that are only referred to by shared references meanwhile.
        Some(unsafe { &*block })
    }

    /// The shared memory that a host address is in: where it begins, its size, and the rank of its
    /// block.
    pub fn shared_at(&self, address: u64) -> Option<(u64, u64, usize)> {
        self.blocks().find_map(|(rank, block)| {
            let (base, size) = block.shared();
            (address.wrapping_sub(base) < size).then_some((base, size, rank))
        })
    }

    /// A host address is in the shared memory of one of its blocks.
    pub fn has_shared(&self, address: u64) -> bool {
        self.shared_at(address).is_some()
    }

    /// No access of its blocks to this range passes unasked.
    pub fn forget_range(&self, base: u64, size: u64) {
        if self.has_several() {
            self.blocks()
                .for_each(|(_, block)| block.forget_range(base, size));
        }
    }

    /// A thread has ended.
    pub fn exit(&self) {
        self.live.set(self.live.get() - 1);
        if self.arrived.get() != 0 {
            self.complete();
        }
    }

    /// A thread that had arrived at `phase` has ended.
    pub fn forget(&self, phase: u32) {
        if phase == self.phase.get() {
            self.arrived.set(self.arrived.get() - 1);
        }
    }

    /// How many threads wait for the barrier.
    pub fn waiting(&self) -> usize {
        self.waiting.borrow().len()
    }

    fn complete(&self) {
        if self.arrived.get() < self.live.get() {
            return;
        }
        self.arrived.set(0);
        self.phase.set(self.phase.get().wrapping_add(1));
        for (block, linear) in self.waiting.borrow_mut().drain(..) {
            // SAFETY: the block is of this cluster and waits for this; it stays where it is until
            // all its threads have ended.
            let block = unsafe { &*block };
            let warp = &block.warps()[linear as usize / 32];
            warp.ready.set(warp.ready.get() | 1 << (linear % 32));
        }
    }
}

/// An address in `.shared::cluster`, taken apart: the block's rank unless it is the own block, and
/// the offset.
fn parts(address: u64) -> (Option<usize>, u64) {
    let rank = (address >> RANK).checked_sub(1);
    match rank {
        None => (None, address),
        Some(rank) => (Some(rank as usize), address & ((1 << RANK) - 1)),
    }
}

/// An address in `.shared::cluster` names another block than the own.
pub(crate) fn is_of_another(address: u64) -> bool {
    matches!(parts(address), (Some(0..16), _))
}

/// What is wrong with an access to shared memory that the block does not have.
pub(crate) fn fault_of(address: u64, size: u64) -> FaultKind {
    if !address.is_multiple_of(size) {
        FaultKind::Misaligned
    } else if is_of_another(address) {
        // The device tells who reaches for another block without saying so.
        FaultKind::IllegalInstruction
    } else {
        FaultKind::IllegalAddress
    }
}

/// The generic addresses of blocks that are not there: no addresses of memory.
const NOWHERE: u64 = 0x7fff << 48;

/// A generic address is one that `mapa` gave for a block that is not there.
pub(crate) fn is_nowhere(address: u64) -> bool {
    address & 0xffff << 48 == NOWHERE
}

/// The same place in the shared memory of the block of another rank.
pub(crate) fn at_rank(address: u64, rank: u32) -> u64 {
    // Where an address has 32 bits, no rank wraps to one that is there.
    (u64::from(rank.min(0xfe)) + 1) << RANK | parts(address).1
}

/// The host address of `length` bytes at an address in `.shared::cluster`, the first of which must
/// be aligned to `align`, or the fault.
pub(crate) fn host_address(
    thread: *mut ThreadContext,
    context: *mut BlockContext,
    address: u64,
    align: u64,
    length: u64,
) -> Result<*mut u8, Status> {
    let own = Block::of(context);
    let (rank, offset) = parts(address);
    let access = Some((address, length.min(u64::from(u32::MAX)) as u32));
    let block = match rank {
        None => own,
        Some(rank) => match own.cluster().block(rank) {
            Some(block) => block,
            None if rank == own.rank() as usize => own,
            None => {
                let what = format!("no block of the cluster has the rank {rank}");
                return Err(fault(thread, context, ABSENT, access, what));
            }
        },
    };
    if !offset.is_multiple_of(align) {
        return Err(fault(thread, context, FaultKind::Misaligned, access, ""));
    }
    let (base, size) = block.shared();
    if offset > size || size - offset < length {
        return Err(fault(
            thread,
            context,
            FaultKind::IllegalAddress,
            access,
            "",
        ));
    }
    if block.has_ended() {
        return Err(fault(thread, context, ABSENT, access, ENDED));
    }
    Ok((base + offset) as *mut u8)
}

/// The fault of who reaches for a block that is not there.
const ABSENT: FaultKind = FaultKind::LaunchFailure;

const ENDED: &str = "the block of the cluster that it reaches has ended";

/// The shared memory of another block of the cluster that a host address is in, or the fault.
pub(crate) fn shared_of_others(
    thread: *mut ThreadContext,
    context: *mut BlockContext,
    address: u64,
    length: u64,
) -> Result<Option<(u64, u64)>, Status> {
    let cluster = Block::of(context).cluster();
    let Some((base, size, rank)) = cluster.shared_at(address) else {
        return Ok(None);
    };
    if cluster.block(rank).is_some_and(Block::has_ended) {
        let access = Some((address, length.min(u64::from(u32::MAX)) as u32));
        return Err(fault(thread, context, ABSENT, access, ENDED));
    }
    Ok(Some((base, size)))
}

/// Whether a host address is in the shared memory of a block of the cluster.
pub(crate) fn is_shared(block: *mut BlockContext, address: u64) -> bool {
    let own = Block::of(block);
    let (base, size) = own.shared();
    let cluster = own.cluster();
    // Most often there is but one block.
    address.wrapping_sub(base) < size || cluster.has_several() && cluster.has_shared(address)
}

runtime! {
    /// The host address of an access of `size` bytes in `.shared::cluster`; 0 where it is a fault.
    CLUSTER_ACCESS = fn cluster_access(
        thread: *mut ThreadContext, block: *mut BlockContext, address: u64, size: u32,
    ) -> u64 {
        let size = u64::from(size);
        host_address(thread, block, address, size, size).map_or(0, |host| host as u64)
    }

    /// `mapa`, of an address in `.shared::cluster`, or generic if `generic` is not 0.
    MAPA = fn mapa(block: *mut BlockContext, address: u64, rank: u32, generic: u32) -> u64 {
        let own = Block::of(block);
        if generic == 0 {
            return match own.rank() == rank {
                true => parts(address).1,
                false => at_rank(address, rank),
            };
        }
        let cluster = own.cluster();
        match (cluster.shared_at(address), cluster.block(rank as usize)) {
            (Some((base, ..)), Some(target)) => target.shared().0 + (address - base),
            _ => NOWHERE | at_rank(address, rank),
        }
    }

    /// `getctarank`, as [`MAPA`].
    GETCTARANK = fn getctarank(context: *mut BlockContext, address: u64, generic: u32) -> u32 {
        let block = Block::of(context);
        let rank = match generic {
            0 => parts(address).0,
            _ => block.cluster().shared_at(address).map(|(.., rank)| rank),
        };
        rank.map_or_else(|| block.rank(), |rank| rank as u32)
    }

    /// `cvta`, from `.shared::cluster` to generic.
    CLUSTER_TO_GENERIC = fn cluster_to_generic(context: *mut BlockContext, address: u64) -> u64 {
        let own = Block::of(context);
        let (rank, offset) = parts(address);
        match rank.map_or(Some(own), |rank| own.cluster().block(rank)) {
            Some(block) => block.shared().0.wrapping_add(offset),
            None => address,
        }
    }

    /// `cvta.to`, from generic to `.shared::cluster`.
    GENERIC_TO_CLUSTER = fn generic_to_cluster(context: *mut BlockContext, address: u64) -> u64 {
        let own = Block::of(context);
        let distance = address.wrapping_sub(own.shared().0);
        match own.cluster().shared_at(address) {
            Some((base, _, rank)) if distance != address - base => at_rank(address - base, rank as u32),
            _ => distance,
        }
    }

    /// Whether a generic address is in `.shared::cluster`: 1 or 0.
    IS_IN_CLUSTER = fn is_in_cluster(context: *mut BlockContext, address: u64) -> u32 {
        Block::of(context).cluster().has_shared(address).into()
    }

    /// `barrier.cluster.arrive`. The answer is a status.
    CLUSTER_ARRIVE = fn cluster_arrive(thread: *mut ThreadContext, block: *mut BlockContext) -> u32 {
        let owner = Block::of(block);
        let Some(fiber) = thread_of(thread) else {
            let what = "a cluster barrier in code that was compiled not to wait";
            return fault(thread, block, FaultKind::LaunchFailure, None, what);
        };
        if owner.running().stopped() {
            return FAULTED;
        }
        if fiber.cluster_phase.get().is_some() {
            let what = "barrier.cluster.arrive twice without a wait between";
            return fault(thread, block, FaultKind::Trap, None, what);
        }
        owner.events.set(owner.events.get() + 1);
        let cluster = owner.cluster();
        fiber.cluster_phase.set(Some(cluster.phase.get()));
        cluster.arrived.set(cluster.arrived.get() + 1);
        cluster.complete();
        CONTINUE
    }

    /// `barrier.cluster.wait`. The answer is a status.
    CLUSTER_WAIT = fn cluster_wait(thread: *mut ThreadContext, block: *mut BlockContext) -> u32 {
        let owner = Block::of(block);
        let Some(fiber) = thread_of(thread) else {
            let what = "a cluster barrier in code that was compiled not to wait";
            return fault(thread, block, FaultKind::LaunchFailure, None, what);
        };
        if owner.running().stopped() {
            return FAULTED;
        }
        let Some(phase) = fiber.cluster_phase.take() else {
            let what = "barrier.cluster.wait without an arrive";
            return fault(thread, block, FaultKind::Trap, None, what);
        };
        owner.events.set(owner.events.get() + 1);
        let cluster = owner.cluster();
        if phase != cluster.phase.get() {
            return CONTINUE;
        }
        cluster.waiting.borrow_mut().push((owner, linear_of(thread)));
        suspend(owner, fiber)
    }
}
