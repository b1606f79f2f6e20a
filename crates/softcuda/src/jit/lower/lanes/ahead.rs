//! Checks ahead: where threads of a group go one after the other, and can do all anew by themselves
//! ([`Lanes::retreat`](super::Lanes)), accesses to arrays at indices near each other have one check
//! before the first of them, even if some of them are not made.
//!
//! ```text
//! a[i], b[i], and if i + 1 < n: a[i + 1], b[i + 1]      once: i + 1 is inside of a and of b
//! ```
//!
//! Along the rows of a sparse matrix, only the last row goes back to the long way.

use std::collections::HashMap;

use cranelift_codegen::ir::condcodes::IntCC;
use cranelift_codegen::ir::{Block, InstBuilder, types};
use ptx::ast::Type;

use crate::jit::decode::{Arg, RegId};
use crate::jit::lower::Lower;
use crate::jit::lower::runs::counts_up;
use crate::jit::program::{Body, Instruction, Step};
use crate::jit::runtime::access::Access;
use crate::jit::spmd::Apart;

/// How far ahead a check may look, in elements: an access that is further may not be meant to be
/// made where the first is.
const FURTHEST: u32 = 15;
/// The most blocks that are looked through.
const MOST_BLOCKS: usize = 256;

/// A value of 32 bits: what a register holds where a block was begun last, and so much more.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
struct Index {
    block: usize,
    register: RegId,
    more: u32,
}

/// Accesses that are checked where a block begins.
#[derive(Debug)]
pub(super) struct Ahead {
    pub block: usize,
    /// Where threads go if not all are inside.
    retreat: Block,
    /// What their indices are counted from.
    index: RegId,
    /// Their steps, and how much more their indices are.
    accesses: Vec<(u32, u32)>,
}

/// What is known of registers, by block.
struct Known {
    /// From where a block is entered; none where that is not told.
    from: HashMap<usize, Vec<usize>>,
    /// What registers hold where a block begins, once somebody has asked.
    begun: HashMap<(usize, RegId), Index>,
    /// What its steps write: nothing that is known, or an index.
    written: HashMap<(usize, RegId), Option<Index>>,
}

impl Known {
    /// What a register holds where a block begins.
    fn begins(&mut self, block: usize, register: RegId) -> Index {
        if let Some(begun) = self.begun.get(&(block, register)) {
            return *begun;
        }
        let from = self.from.get(&block).cloned().unwrap_or_default();
        let mut ends = from.into_iter().map(|from| self.ends(from, register));
        let first = ends.next().flatten();
        let same = first.filter(|first| ends.all(|other| other == Some(*first)));
        let begun = same.unwrap_or(Index {
            block,
            register,
            more: 0,
        });
        self.begun.insert((block, register), begun);
        begun
    }

    /// What it holds at the end, as far as the block's steps are known.
    fn ends(&mut self, block: usize, register: RegId) -> Option<Index> {
        match self.written.get(&(block, register)) {
            Some(written) => *written,
            None => Some(self.begins(block, register)),
        }
    }

    /// A step of a block, after those before it.
    fn step(&mut self, block: usize, step: &Instruction, body: &Body) {
        let index = counts_up(step, body).and_then(|(from, by)| {
            let index = self.ends(block, from)?;
            let more = index.more.wrapping_add(by);
            Some(Index { more, ..index })
        });
        for register in &step.writes {
            self.written.insert((block, *register), index);
        }
    }
}

impl Lower<'_> {
    /// The accesses that are checked ahead, of threads that go apart at the end of `branch`.
    pub(super) fn look_ahead(
        &mut self,
        apart: &Apart,
        branch: usize,
        retreat: Block,
    ) -> Vec<Ahead> {
        if apart.blocks.len() > MOST_BLOCKS {
            return vec![];
        }
        let body = self.body;
        let control = &self.lanes().plan.control;
        let (of, starts) = (control.graph.block_of.clone(), control.first.clone());
        let successors = &control.graph.successors;
        let mut from: HashMap<usize, Vec<usize>> = HashMap::new();
        for block in &apart.blocks {
            let leads = |from: &usize| successors[*from].contains(block);
            let before: Vec<usize> = (0..successors.len()).filter(leads).collect();
            // Not from the branch, at whose end threads begin, nor in a loop.
            let is_known =
                |from: &usize| from < block && *from != branch && apart.blocks.contains(from);
            if before.iter().all(is_known) {
                from.insert(*block, before);
            }
        }
        let mut known = Known {
            from,
            begun: HashMap::new(),
            written: HashMap::new(),
        };
        let mut all: Vec<Ahead> = vec![];
        for block in &apart.blocks {
            for at in (starts[*block]..of.len()).take_while(|at| of[*at] == *block) {
                let Step::Instruction(step) = &body.steps[at] else {
                    continue;
                };
                if let Some(index) = self.single_element(at as u32, step)
                    && let Some(index) = known.ends(*block, index)
                    && index.more <= FURTHEST
                {
                    let is_it = |ahead: &&mut Ahead| {
                        (ahead.block, ahead.index) == (index.block, index.register)
                    };
                    let access = (at as u32, index.more);
                    match all.iter_mut().find(is_it) {
                        Some(ahead) => ahead.accesses.push(access),
                        None => all.push(Ahead {
                            block: index.block,
                            retreat,
                            index: index.register,
                            accesses: vec![access],
                        }),
                    }
                }
                known.step(*block, step, body);
            }
        }
        all.retain(|ahead| ahead.accesses.len() > 1);
        all
    }

    /// The index of a step that loads one element of an array by itself.
    fn single_element(&self, at: u32, step: &Instruction) -> Option<RegId> {
        let access = step.operation.plain_access()?;
        let alone = !self.groups.of_step.contains_key(&at) && !self.runs.of_step.contains_key(&at);
        let element = self.runs.elements.get(&at)?;
        let index = element.index;
        (access.is_host()
            && alone
            && element.plus.is_none()
            && element.wide.is_none()
            && !access.write
            && self.register_types[index.0 as usize] == types::I32)
            .then_some(index)
    }

    /// The builder is where a block of one thread begins: checks what is accessed relative to a
    /// register there, or retreats. The steps need no checks of their own.
    pub(super) fn check_ahead(&mut self, ahead: &Ahead) {
        let (step, body) = (self.step, self.body);
        let index = self.read(&Arg::Reg(ahead.index), Type::B32);
        let index = self.b.ins().uextend(types::I64, index);
        let (mut checked, mut limit, mut furthest) = (vec![], None, 0);
        for (at, more) in &ahead.accesses {
            let Step::Instruction(instruction) = &body.steps[*at as usize] else {
                continue;
            };
            let Some(access) = instruction.operation.plain_access() else {
                continue;
            };
            self.step = *at;
            let one = Access::one(access.size, false);
            let Some((array, by, count)) = self.array_from(access.offset, &one) else {
                continue;
            };
            limit = Some(match limit {
                None => count,
                Some(limit) => self.b.ins().umin(limit, count),
            });
            furthest = furthest.max(*more);
            let at_index = match by.trailing_zeros() {
                log2 if by == 1 << log2 => self.b.ins().ishl_imm(index, i64::from(log2)),
                _ => self.b.ins().imul_imm(index, by),
            };
            let first = self.b.ins().iadd(array, at_index);
            let distance = i64::from(*more)
                .wrapping_mul(by)
                .wrapping_add(access.offset);
            checked.push((*at, self.b.ins().iadd_imm(first, distance)));
        }
        self.step = step;
        let Some(limit) = limit.filter(|_| checked.len() > 1) else {
            return;
        };
        let more = self.b.ins().iconst(types::I32, i64::from(furthest));
        let limit = self.b.ins().umax(limit, more);
        let limit = self.b.ins().isub(limit, more);
        let limit = self.b.ins().uextend(types::I64, limit);
        let inside = self.b.ins().icmp(IntCC::UnsignedLessThan, index, limit);
        let next = self.fresh_block();
        self.b.ins().brif(inside, next, &[], ahead.retreat, &[]);
        self.enter(next);
        self.lanes().ahead.extend(checked);
    }
}
