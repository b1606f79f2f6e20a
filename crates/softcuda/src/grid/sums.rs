//! Sums aside: where threads of a kernel only add integers to a small array, a worker adds to a
//! copy of its own, and to the array once, when it has run its blocks. Otherwise the workers take
//! the same few cache lines from each other, over and over.
//!
//! Nobody may notice:
//!
//! - The kernel tells no thread of another block how far one has come: it has no fences, no ordered
//!   accesses, no atomics whose results are read, and calls nothing. So only the threads of a block
//!   may look at what they have added, and they run on one worker. Lowering says of a kernel's sums
//!   that they [may be put aside](crate::jit::runtime::access::Access::sum) if that is so.
//! - Accesses find their allocation before they touch it, once from each
//!   [site](super::context::Site). The first sum puts its array aside, unless some site knows it.
//!   Any other access to the array, or a sum of another size, puts all in place before it goes on,
//!   and from then on all is added in place. So does a check of accesses to several allocations
//!   at once: no site remembers these.
//! - Arrays whose length is known beforehand have no sites: none may be in the allocation.
//! - Only device memory that a program has allocated is put aside: the host may look at other
//!   memory, and variables of a module are accessed without a site.

use std::cell::{Cell, RefCell};
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};

use super::block::Block;
use super::context::{BlockContext, Site, Sums};
use super::running::volume;
use crate::memory::{self, Allocation, Kind};

/// The largest array, in bytes: larger ones are seldom fought for, and take long to put in place.
const LARGEST: u64 = 64 << 10;

#[cfg(test)]
thread_local! {
    /// How often this thread of the host has begun to put sums aside, and given it up.
    pub(crate) static TURNS: Cell<[u32; 2]> = const { Cell::new([0; 2]) };
}

#[cfg(test)]
fn count_turn(which: usize) {
    let mut turns = TURNS.get();
    turns[which] += 1;
    TURNS.set(turns);
}

/// What the threads of a worker have added aside.
#[derive(Default)]
pub(super) struct Aside {
    state: Cell<State>,
    /// The copy. Nothing but zeros where all is in place.
    words: RefCell<Vec<u64>>,
}

/// Whether sums are put aside.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum State {
    /// Not in this launch, or not any more.
    #[default]
    Never,
    /// Not yet decided.
    Undecided,
    /// No sum may be, as blocks run now.
    NotNow,
    /// Sums of so many bytes.
    Of(u64),
}

impl Aside {
    /// A launch begins.
    pub fn forbid(&self) {
        self.state.set(State::NotNow);
    }

    /// A block of the launch runs to its end before the next begins.
    pub fn allow(&self) {
        if self.state.get() == State::NotNow {
            self.state.set(State::Undecided);
        }
    }
}

impl Block {
    /// Adds what has been added aside to the array.
    pub(super) fn put_in_place(&self) {
        let State::Of(bytes) = self.aside.state.get() else {
            return;
        };
        let sums = self.sums();
        let mut words = self.aside.words.borrow_mut();
        let words = (sums.base..).step_by(8).zip(words.iter_mut());
        for (at, word) in words.filter(|(_, word)| **word != 0) {
            let word = std::mem::take(word);
            let all = word.to_ne_bytes();
            let (halves, _) = all.as_chunks::<4>();
            // SAFETY: only what is inside of the array has been added to, at its alignment. The
            // array is there as long as the launch, which has not ended.
            unsafe {
                if bytes == 8 {
                    AtomicU64::from_ptr(at as *mut u64).fetch_add(word, Ordering::Relaxed);
                    continue;
                }
                for (at, half) in [at, at + 4].into_iter().zip(halves) {
                    let half = u32::from_ne_bytes(*half);
                    if half != 0 {
                        AtomicU32::from_ptr(at as *mut u32).fetch_add(half, Ordering::Relaxed);
                    }
                }
            }
        }
    }

    /// All is added in place from now on.
    fn give_up(&self) {
        #[cfg(test)]
        if let State::Of(_) = self.aside.state.get() {
            count_turn(1);
        }
        self.put_in_place();
        self.set_sums(Sums::NONE);
        self.aside.state.set(State::Never);
    }

    /// Puts sums of so many bytes in an allocation aside from now on, if that may be.
    fn put_aside(&self, found: &Allocation, bytes: u64) {
        let launch = self.running().launch;
        let threads = volume(launch.grid).saturating_mul(volume(launch.block));
        let pays = cfg!(test) || threads >= found.size / bytes;
        let own = found.kind == Kind::Device && found.device == launch.device;
        if found.size > LARGEST || !found.base.is_multiple_of(8) || !pays || !own {
            return;
        }
        let within = found.base..found.end();
        // SAFETY: the launch holds its kernel's module.
        let in_arrays = unsafe { launch.code.arrays.any_in(&launch.params, within) };
        let known = |site: &Site| {
            let knows = memory::find(site.base).filter(|_| site.units > 0);
            knows.is_some_and(|knows| knows.id == found.id)
        };
        if in_arrays || self.sites().iter().any(known) {
            return;
        }
        let mut words = self.aside.words.borrow_mut();
        words.resize(found.size.div_ceil(8) as usize, 0);
        self.set_sums(Sums {
            base: found.base,
            size: found.size,
            aside: words.as_mut_ptr(),
        });
        self.aside.state.set(State::Of(bytes));
        #[cfg(test)]
        count_turn(0);
    }
}

/// Threads are about to access several allocations by one check, which no site remembers: they may
/// come back to any of them without another.
pub(crate) fn give_up(block: *mut BlockContext) {
    Block::of(block).give_up();
}

/// A thread is about to access an allocation, from a site that does not know it: adds to an integer
/// of so many bytes there, or does anything else.
pub(crate) fn touch(block: *mut BlockContext, found: &Allocation, sum: Option<u64>) {
    let block = Block::of(block);
    match (block.aside.state.get(), sum) {
        (State::Undecided, Some(bytes)) => block.put_aside(found, bytes),
        (State::Of(bytes), sum) => {
            let sums = block.sums();
            let apart = found.end() <= sums.base || sums.base + sums.size <= found.base;
            if !apart && sum != Some(bytes) {
                block.give_up();
            }
        }
        _ => {}
    }
}
