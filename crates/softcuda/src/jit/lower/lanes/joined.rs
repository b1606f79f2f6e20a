//! Loads of neighbouring words by steps of their own, as one load of a vector:
//!
//! ```text
//! ld.f32 x, [p]; ld.f32 y, [p+4]; ld.f32 z, [p+8]; ld.f32 w, [p+12]
//!                                                   as ld.v4.f32 {x, y, z, w}, [p]
//! ```
//!
//! Compilers write these where nothing tells that `p` is a multiple of 16. The first of them loads
//! for all: nothing between them writes memory, waits, or uses what they load.

use std::collections::HashMap;
use std::ops::Range;

use super::Kept;
use crate::jit::decode::{Arg, Flow, RegId};
use crate::jit::lower::{Lower, value_type};
use crate::jit::program::{Instruction, Step};
use crate::jit::spmd::Way;

/// How many steps are looked through for the others.
const FURTHEST: usize = 48;

/// By step, what it loads for itself and others, and how far the first of that is from what it
/// loads itself; nothing, if another does it.
pub(super) type Joined = HashMap<u32, Option<(Vec<Arg>, i64)>>;

/// A load that may be one of several.
struct Word {
    /// The group of accesses with which it is checked.
    group: u32,
    base: RegId,
    offset: i64,
    register: RegId,
    stride: i64,
}

impl Word {
    /// Whether one check is enough for both.
    fn is_like(&self, other: &Word) -> bool {
        (self.group, self.base) == (other.group, other.base)
    }
}

impl Lower<'_> {
    /// What the load that is lowered does for others too.
    pub(super) fn joined_loads(&mut self) -> Option<(Vec<Arg>, i64)> {
        let step = self.step;
        self.lanes().joined.get(&step)?.clone()
    }

    /// Another load has done what this step does.
    pub(super) fn is_loaded(&mut self, at: usize) -> bool {
        matches!(self.lanes().joined.get(&(at as u32)), Some(None))
    }

    /// Finds the loads to join among steps of a block, which are done one after the other.
    pub(super) fn join_loads(&mut self, steps: Range<usize>) -> Joined {
        let words = steps.filter_map(|at| Some((at, self.word_load(at)?)));
        let words: Vec<(usize, Word)> = words.collect();
        let mut joined = Joined::new();
        for (number, (at, first)) in words.iter().enumerate() {
            let others = words[number + 1..].iter();
            let others = others.take_while(|(other, _)| other - at <= FURTHEST);
            let is_free = |other: &&(usize, Word)| {
                other.1.is_like(first) && !joined.contains_key(&(other.0 as u32))
            };
            let others: Vec<_> = others.filter(is_free).collect();
            let count = first.stride / 4;
            if joined.contains_key(&(*at as u32)) || (others.len() as i64) < count - 1 {
                continue;
            }
            let others = self.done_at(*at, first, &others);
            let at_offset = |offset: i64| match offset == first.offset {
                true => Some((*at, first.register)),
                false => others
                    .iter()
                    .find(|(_, word)| word.offset == offset)
                    .map(|(at, word)| (*at, word.register)),
            };
            let all = (0..count).find_map(|before| {
                let low = first.offset - 4 * before;
                let words = (0..count).map(|word| at_offset(low + 4 * word));
                Some((low, words.collect::<Option<Vec<_>>>()?))
            });
            let Some((low, words)) = all else {
                continue;
            };
            joined.extend(words.iter().map(|(at, _)| (*at as u32, None)));
            let registers = words.into_iter().map(|(_, register)| Arg::Reg(register));
            let loads = (registers.collect(), low - first.offset);
            joined.insert(*at as u32, Some(loads));
        }
        joined
    }

    /// A load of a word of each thread, two or four of which make up what lies from one thread to
    /// the next.
    fn word_load(&mut self, at: usize) -> Option<Word> {
        let Step::Instruction(step) = &self.body.steps[at] else {
            return None;
        };
        if self.lanes().plan.ways[at] != Way::Row || step.guard.is_some() {
            return None;
        }
        let (plain, weak) = (
            step.operation.plain_access()?,
            step.operation.weak_access()?,
        );
        let [Arg::Reg(register)] = *weak.registers else {
            return None;
        };
        let bits = self.register_types[register.0 as usize].bits();
        // So it is not in the register of its address, which is no vector.
        let fits = !plain.write
            && value_type(weak.ty).bits() == 32
            && bits == 32
            && matches!(self.kept_of(register), Kept::Vectors(_));
        let stride = self.lanes().plan.class(plain.base).stride()?;
        (fits && matches!(stride, 8 | 16)).then_some(Word {
            group: *self.groups.of_step.get(&(at as u32))?,
            base: plain.base,
            offset: plain.offset,
            register,
            stride,
        })
    }

    /// Those of the `others` that may be done where the first is.
    fn done_at<'w>(
        &mut self,
        at: usize,
        first: &Word,
        others: &[&'w (usize, Word)],
    ) -> Vec<&'w (usize, Word)> {
        let body = self.body;
        let (mut found, mut used) = (vec![], vec![first.register]);
        let mut others = others.iter().peekable();
        for (at, step) in (at + 1..).zip(&body.steps[at + 1..]) {
            let (Some(next), Step::Instruction(step)) = (others.peek(), step) else {
                break;
            };
            if !self.leaves_memory(at, step) || step.writes.contains(&first.base) {
                break;
            }
            if next.0 == at && !used.contains(&next.1.register) {
                found.push(**next);
            }
            others.next_if(|next| next.0 == at);
            used.extend(step.reads.iter().chain(&step.writes));
            used.extend(step.guard.map(|(register, _)| register));
        }
        found
    }

    /// Whether memory is the same after a step, and all threads of a group go on together.
    fn leaves_memory(&mut self, at: usize, step: &Instruction) -> bool {
        let operation = &step.operation;
        let way = self.lanes().plan.ways[at];
        let free = operation.pure() || operation.loads() && !operation.polls();
        free && operation.flow() == Flow::Next
            && matches!(way, Way::Once | Way::Vector | Way::Row | Way::Each)
    }
}
