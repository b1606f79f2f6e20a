//! The engine without NCCL: ranks of one process, whose kernels meet in memory of the host.
//!
//! What ranks give each other goes through *staging* memory: page-locked memory of the host that
//! every device of the process reaches at one address. So no device need reach another's memory,
//! which not all machines allow, and ranks may share a device. It costs the way through the host
//! twice: NCCL is the engine for speed.
//!
//! **Meeting.** Each rank launches a kernel with the same number of blocks. Block b of a rank meets
//! block b of the others alone: they have a part of the elements, and slots of their own. No block
//! waits for another of its own grid. A block goes in *steps*. It writes a chunk of its values to
//! its slot, counts its own arrivals up by one, waits until all others have counted as far, and
//! reads their slots. The next step uses its other slot. A rank comes to step s + 2 only after all
//! have arrived at s + 1, and they did that after reading step s, so two slots are enough. The
//! counters go on from launch to launch.
//!
//! **Agreeing.** With each chunk lies what the rank does, in two numbers ([`Call`]). A block that
//! finds other numbers than its own writes down both, and stops the communicator: it sets the *stop
//! word*. Every wait looks at that word, so once it is set all kernels of the communicator end.
//!
//! **Messages.** Each ordered pair of ranks has a mailbox: two slots and two counters, of what was
//! sent and what was taken ([`exchange`]).
//!
//! The memory is an owner of every operation, so it lives as long as a launch that uses it.

pub(super) mod exchange;
pub(super) mod kernels;

use std::sync::{Arc, Mutex, PoisonError};

use cudarc::driver::{CudaContext, LaunchConfig};

use super::kind::{Call, CollectiveKind};
use super::{Captured, EagerCall, ElementType, Reduction};
use crate::error::CollectiveFailure;
use crate::kernel::{Arguments, Kernel};
use crate::memory::{PinnedBuffer, Region};
use crate::{Error, Result};

/// The most ranks of a communicator.
pub(super) const MOST_RANKS: usize = 32;
/// The most blocks of a collective, and threads of each.
const BLOCKS: usize = 8;
const THREADS: u32 = 256;
/// The bytes of a slot of a collective.
const SLOT: usize = 16 << 10;
/// The values of a block are a multiple of so many, but for the last block's.
const GRAIN: u64 = 64;

/// Word 0 is the stop word, and word 1 counts turns of loops. Then come the ranks' records, of so
/// many words each.
const RECORD: usize = 16;
/// The words at the beginning of a block's place: its counter, and from word 2 the numbers of both
/// slots.
const HEADER: usize = 16;
/// The words at the beginning of a mailbox: what was sent, from word 2 the numbers of both slots,
/// and at word 16 what was taken.
const BOX: usize = 32;
const TAKEN: usize = 16;

/// Where everything lies, in words of 8 bytes.
struct Layout {
    ranks: usize,
    headers: usize,
    boxes: usize,
    slots: usize,
    letters: usize,
    /// The bytes of a mailbox's slot.
    letter: usize,
    words: usize,
}

impl Layout {
    fn of(ranks: usize) -> Layout {
        let letter = if ranks <= 8 { 16 << 10 } else { 4 << 10 };
        let headers = RECORD * (ranks + 1);
        let boxes = headers + ranks * BLOCKS * HEADER;
        let slots = (boxes + ranks * ranks * BOX).next_multiple_of(32);
        let letters = slots + ranks * BLOCKS * 2 * SLOT / 8;
        Layout {
            ranks,
            headers,
            boxes,
            slots,
            letters,
            letter,
            words: letters + ranks * ranks * 2 * letter / 8,
        }
    }

    fn record(rank: u32) -> usize {
        RECORD * (1 + rank as usize)
    }

    fn header(&self, rank: usize, block: usize) -> usize {
        self.headers + (rank * BLOCKS + block) * HEADER
    }
}

/// The ranks of a communicator.
pub(super) struct Group {
    memory: PinnedBuffer<u64>,
    layout: Layout,
    /// Why it failed, once the host knows.
    failure: Mutex<Option<CollectiveFailure>>,
}

impl Group {
    /// Of a rank for each of `contexts`.
    pub(super) fn new(contexts: &[Arc<CudaContext>]) -> Result<Arc<Group>> {
        let layout = Layout::of(contexts.len());
        Ok(Arc::new(Group {
            memory: PinnedBuffer::portable(&contexts[0], layout.words)?,
            layout,
            failure: Mutex::new(None),
        }))
    }

    fn address(&self, word: usize) -> u64 {
        self.memory.address() + 8 * word as u64
    }

    /// The word that is not 0 once the communicator failed.
    pub(super) fn stop_word(&self) -> Region {
        let whole = crate::Source::source(&self.memory);
        Region { bytes: 4, ..whole }
    }

    /// Where a rank's kernels meet the others'.
    pub(super) fn place_of(&self, rank: u32) -> std::ops::Range<u64> {
        let first = self.address(self.layout.header(rank as usize, 0));
        first..first + (8 * BLOCKS * HEADER) as u64
    }

    /// Stops it, unless it failed before.
    pub(super) fn fail(&self, failure: CollectiveFailure) {
        // What a kernel found comes first.
        if self.failure().is_some() {
            return;
        }
        let mut known = self.failure.lock().unwrap_or_else(PoisonError::into_inner);
        known.get_or_insert(failure);
        self.memory.store(0, 1);
    }

    /// Why it failed, if it did.
    pub(super) fn failure(&self) -> Option<CollectiveFailure> {
        if self.memory.load(0) == 0 {
            return None;
        }
        let mut known = self.failure.lock().unwrap_or_else(PoisonError::into_inner);
        if known.is_none() {
            *known = (0..self.layout.ranks as u32).find_map(|rank| self.recorded(rank));
        }
        known.clone()
    }

    /// What a kernel of a rank found.
    fn recorded(&self, rank: u32) -> Option<CollectiveFailure> {
        let record = Layout::record(rank);
        let word = |at: usize| self.memory.load(record + at);
        if word(0) >> 32 == 0 {
            return None;
        }
        let say = |code, count| match Call::decode(code, count) {
            Some(call) => call.to_string().into(),
            None => "something unknown".into(),
        };
        Some(CollectiveFailure::Mismatch {
            rank,
            does: say(word(2), word(3)),
            peer: word(1) as u32,
            peer_does: say(word(4), word(5)),
        })
    }

    /// A number that changes as collectives get on.
    pub(super) fn progress(&self) -> u64 {
        let ranks = self.layout.ranks;
        let arrivals = (0..ranks * BLOCKS).map(|place| self.layout.headers + place * HEADER);
        let boxes = (0..ranks * ranks).map(|pair| self.layout.boxes + pair * BOX);
        let words = arrivals.chain(boxes.flat_map(|at| [at, at + TAKEN]));
        let words = words.chain([1]);
        words.fold(0, |sum, word| sum.wrapping_add(self.memory.load(word)))
    }

    /// The ranks that others wait for, as far as it can be told.
    pub(super) fn missing(&self) -> Vec<u32> {
        let ranks = self.layout.ranks;
        let arrived = |rank, block| self.memory.load(self.layout.header(rank, block));
        let mut missing: Vec<u32> = Vec::new();
        for block in 0..BLOCKS {
            let most = (0..ranks).map(|rank| arrived(rank, block)).max();
            let behind = (0..ranks).filter(|&rank| Some(arrived(rank, block)) < most);
            missing.extend(behind.map(|rank| rank as u32));
        }
        // Who has not taken what was sent, and who has not sent, cannot be told from who need not.
        missing.sort_unstable();
        missing.dedup();
        missing
    }

    /// What keeps the memory.
    fn keep(&self, arguments: &mut Arguments) {
        arguments.keep(self.memory.owner());
    }
}

/// What an operation launches.
pub(crate) enum Launch {
    /// A kernel of this library.
    Own {
        kernel: Kernel,
        config: LaunchConfig,
        arguments: Arguments,
    },
    /// A kernel of NCCL's.
    Captured(Arc<Captured>),
    /// What only a stream takes.
    Eager(Arc<EagerCall>),
}

/// What one rank does in a collective.
pub(crate) struct Part<'a> {
    pub call: Call,
    pub to: Option<&'a Region>,
    pub from: Option<&'a Region>,
}

/// The launch of a rank's part in a collective.
pub(super) fn launch(
    group: &Group,
    context: &Arc<CudaContext>,
    rank: u32,
    part: &Part<'_>,
) -> Result<Launch> {
    let Call {
        kind,
        element,
        reduction,
        root,
        count,
    } = part.call;
    let (layout, bytes) = (&group.layout, element.bytes() as u64);
    let size = layout.ranks as u64;
    // Of a slot's values, each other rank takes its own.
    let shares = match kind {
        CollectiveKind::ReduceScatter => size,
        _ => 1,
    };
    let step = SLOT as u64 / bytes / shares;
    let blocks = count.div_ceil(step).clamp(1, BLOCKS as u64);
    let slice = count.div_ceil(blocks).next_multiple_of(GRAIN);
    let mut arguments = Arguments::default();
    let address = |region: Option<&Region>| region.map_or(0, Region::address);
    for word in [
        group.address(0),
        group.address(Layout::record(rank)),
        group.address(layout.headers),
        group.address(layout.slots),
        address(part.to),
        address(part.from),
        count,
        slice,
        step,
        part.call.code(),
    ] {
        arguments.value(&word);
    }
    for word in [rank, size as u32, root] {
        arguments.value(&word);
    }
    let owners = [part.to, part.from].into_iter().flatten();
    owners
        .filter_map(|region| region.owner.clone())
        .for_each(|owner| arguments.keep(owner));
    group.keep(&mut arguments);
    Ok(Launch::Own {
        kernel: kernels::of(context, kind, element, reduction)?,
        config: LaunchConfig {
            grid_dim: (blocks as u32, 1, 1),
            block_dim: (THREADS, 1, 1),
            shared_mem_bytes: 0,
        },
        arguments,
    })
}

/// Refuses ranks that the engine cannot serve.
pub(super) fn check(ranks: usize) -> Result<()> {
    match ranks {
        1..=MOST_RANKS => Ok(()),
        _ => Err(Error::NoCommunicator {
            why: format!("{ranks} ranks: the plain engine takes 1 to {MOST_RANKS}").into(),
        }),
    }
}

/// What kernels are told apart by.
pub(super) type Wanted = (CollectiveKind, ElementType, Option<Reduction>);
