//! Operations of a full warp in compiled code, or of [tiles](super::super::tiles) that it consists
//! of: shuffles by a number, in segments too, votes, and reductions of integers.
//! What the lanes bring lies in the warp's tile, and so do the results.

use std::mem::offset_of;

use cranelift_codegen::ir::condcodes::IntCC;
use cranelift_codegen::ir::{InstBuilder, MemFlags, Value, types};

use crate::grid::rounds::{Tiles, Wait};
use crate::grid::warp::{self, Meeting, Tile};
use crate::jit::lower::Lower;

/// Vectors of the words of a warp's lanes.
pub(super) const VECTORS: usize = 8;

/// An operation that compiled code does, if all lanes of a full warp take part.
#[derive(Clone, Copy, Debug)]
pub(super) enum Known {
    /// A shuffle, by these numbers.
    Shuffle(Shuffle),
    Vote(Meeting, Tiles),
    /// `redux`.
    Reduction(Meeting, Tiles),
}

/// A shuffle whose second and third operands are these in all lanes.
#[derive(Clone, Copy, Debug)]
pub(super) struct Shuffle {
    meeting: Meeting,
    b: u32,
    c: u32,
}

impl Known {
    pub fn of(wait: &Wait) -> Option<Known> {
        use Meeting::*;
        let tiles = match wait.mask {
            Some(u32::MAX) => Tiles::WARP,
            _ => wait.tiles?,
        };
        let kind = warp::plainly(wait.kind);
        let is = |meeting: Meeting| kind == meeting as u32;
        if let Some(vote) = [VoteAll, VoteAny, VoteUni, VoteBallot]
            .into_iter()
            .find(|m| is(*m))
        {
            return Some(Known::Vote(vote, tiles));
        }
        let reductions = [
            ReduxAdd, ReduxMinU, ReduxMaxU, ReduxMinS, ReduxMaxS, ReduxAnd, ReduxOr, ReduxXor,
        ];
        if let Some(reduction) = reductions.into_iter().find(|m| is(*m)) {
            return Some(Known::Reduction(reduction, tiles));
        }
        let meeting = [ShflUp, ShflDown, ShflBfly, ShflIdx]
            .into_iter()
            .find(|m| is(*m))?;
        let (b, c) = (wait.b?, wait.c?);
        let shuffle = Shuffle { meeting, b, c };
        let inside = |lane: usize| tiles.mask(lane) >> shuffle.source(lane).0 & 1 != 0;
        ((0..VECTORS).all(|vector| shuffle.takes_from_two(vector)) && (0..32).all(inside))
            .then_some(Known::Shuffle(shuffle))
    }
}

impl Shuffle {
    /// The lane that a lane takes from, and whether that is in its segment; if not, it is itself.
    fn source(self, lane: usize) -> (usize, bool) {
        let [own, b, c] = [lane as u32, self.b, self.c].map(u32::cast_signed);
        match warp::source(self.meeting, own, b, c) {
            (from, true) => (from as usize & 31, true),
            (_, false) => (lane, false),
        }
    }

    /// The lanes that a vector of lanes takes from.
    fn sources(self, vector: usize) -> [usize; 4] {
        std::array::from_fn(|lane| self.source(4 * vector + lane).0)
    }

    /// Whether what a vector of lanes takes lies in two vectors, or in one.
    fn takes_from_two(self, vector: usize) -> bool {
        let from = self.sources(vector).map(|lane| lane / 4);
        let mut others = from.into_iter().filter(|vector| *vector != from[0]);
        let other = others.next();
        others.all(|vector| Some(vector) == other)
    }
}

impl Lower<'_> {
    /// Does an operation of the full warp.
    pub(super) fn meet_here(&mut self, known: Known) {
        let (flags, tile) = (MemFlags::trusted(), self.rounds_tile());
        let at = |offset: usize, vector: usize| (offset + 16 * vector) as i32;
        let values: [Value; VECTORS] = std::array::from_fn(|vector| {
            let offset = at(offset_of!(Tile, values), vector);
            self.b.ins().load(types::I32X4, flags, tile, offset)
        });
        let (results, predicates) = self.meet(known, &values);
        for (vector, result) in results.into_iter().enumerate() {
            let offset = at(offset_of!(Tile, results), vector);
            self.b.ins().store(flags, result, tile, offset);
        }
        if let Known::Shuffle(..) = known {
            let predicates = self
                .b
                .ins()
                .iconst(types::I32, i64::from(predicates as i32));
            let offset = offset_of!(Tile, predicates) as i32;
            self.b.ins().store(flags, predicates, tile, offset);
        }
    }

    /// What the lanes of a full warp take, and their predicates, from what they bring.
    pub(super) fn meet(
        &mut self,
        known: Known,
        values: &[Value; VECTORS],
    ) -> ([Value; VECTORS], u32) {
        match known {
            Known::Shuffle(shuffle) => {
                let results =
                    std::array::from_fn(|vector| self.pick(values, shuffle.sources(vector)));
                let inside = (0..32).filter(|lane| shuffle.source(*lane).1);
                (results, inside.fold(0u32, |all, lane| all | 1 << lane))
            }
            Known::Vote(vote, Tiles::WARP) => {
                let result = self.vote(values, vote);
                let result = self.b.ins().splat(types::I32X4, result);
                ([result; VECTORS], 0)
            }
            Known::Vote(vote, tiles) => (self.vote_in_tiles(values, vote, tiles), 0),
            Known::Reduction(reduction, tiles) => (self.reduce(values, reduction, tiles), 0),
        }
    }

    /// A vector of the words of these lanes, which lie in one or two vectors.
    fn pick(&mut self, values: &[Value; VECTORS], lanes: [usize; 4]) -> Value {
        let first = lanes[0] / 4;
        if lanes == [0, 1, 2, 3].map(|lane| 4 * first + lane) {
            return values[first];
        }
        let other = lanes
            .iter()
            .map(|lane| lane / 4)
            .find(|vector| *vector != first);
        let other = other.unwrap_or(first);
        let bytes = lanes.iter().flat_map(|lane| {
            let half = if lane / 4 == first { 0 } else { 16 };
            (0..4).map(move |byte| (half + lane % 4 * 4 + byte) as u8)
        });
        let bytes: Vec<u8> = bytes.collect();
        let bytes = self.b.func.dfg.immediates.push(bytes.into());
        let [a, b] = [first, other].map(|vector| self.as_vector(values[vector], types::I8X16));
        let picked = self.b.ins().shuffle(a, b, bytes);
        self.as_vector(picked, types::I32X4)
    }

    /// The words of all lanes of a tile as one, in each of them.
    fn reduce(
        &mut self,
        values: &[Value; VECTORS],
        reduction: Meeting,
        tiles: Tiles,
    ) -> [Value; VECTORS] {
        let both = |l: &mut Self, a: Value, b: Value| match reduction {
            Meeting::ReduxMinU => l.b.ins().umin(a, b),
            Meeting::ReduxMaxU => l.b.ins().umax(a, b),
            Meeting::ReduxMinS => l.b.ins().smin(a, b),
            Meeting::ReduxMaxS => l.b.ins().smax(a, b),
            Meeting::ReduxAnd => l.b.ins().band(a, b),
            Meeting::ReduxOr => l.b.ins().bor(a, b),
            Meeting::ReduxXor => l.b.ins().bxor(a, b),
            _ => l.b.ins().iadd(a, b),
        };
        // Words of other lanes of a vector.
        let inside: &[[u8; 4]] = match tiles.size {
            1 => &[],
            2 => &[[1, 0, 3, 2]],
            _ => &[[2, 3, 0, 1], [1, 0, 3, 2]],
        };
        let vectors = (tiles.size as usize / 4).max(1);
        let mut results = *values;
        for results in results.chunks_mut(vectors) {
            let mut left = results.to_vec();
            while let [a, b, ..] = left[..] {
                left.drain(..2);
                left.push(both(self, a, b));
            }
            let all = inside.iter().fold(left[0], |all, words| {
                let other = self.shuffled(all, all, *words);
                let other = self.as_vector(other, types::I32X4);
                both(self, all, other)
            });
            results.fill(all);
        }
        results
    }

    /// What each lane takes from a vote of its tile.
    fn vote_in_tiles(
        &mut self,
        values: &[Value; VECTORS],
        vote: Meeting,
        tiles: Tiles,
    ) -> [Value; VECTORS] {
        let ballot = self.vote(values, Meeting::VoteBallot);
        let ballot = self.b.ins().splat(types::I32X4, ballot);
        let [none, one] = [0, 1].map(|word| self.constant_words([word; 4]));
        std::array::from_fn(|vector| {
            let masks = std::array::from_fn(|lane| tiles.mask(4 * vector + lane) as i32);
            let masks = self.constant_words(masks);
            let ballot = self.b.ins().band(ballot, masks);
            let all = self.b.ins().icmp(IntCC::Equal, ballot, masks);
            let result = match vote {
                Meeting::VoteAll => all,
                Meeting::VoteAny => self.b.ins().icmp(IntCC::NotEqual, ballot, none),
                Meeting::VoteUni => {
                    let none = self.b.ins().icmp(IntCC::Equal, ballot, none);
                    self.b.ins().bor(all, none)
                }
                _ => return ballot,
            };
            self.b.ins().band(result, one)
        })
    }

    fn vote(&mut self, values: &[Value; VECTORS], vote: Meeting) -> Value {
        let zero = self.b.ins().iconst(types::I32, 0);
        let zeros = self.b.ins().splat(types::I32X4, zero);
        let mut ballot = zero;
        for (vector, value) in values.iter().enumerate() {
            let voted = self.b.ins().icmp(IntCC::NotEqual, *value, zeros);
            let bits = self.b.ins().vhigh_bits(types::I32, voted);
            let bits = self.b.ins().ishl_imm(bits, 4 * vector as i64);
            ballot = self.b.ins().bor(ballot, bits);
        }
        let all = self.b.ins().icmp_imm(IntCC::Equal, ballot, -1);
        let none = self.b.ins().icmp_imm(IntCC::Equal, ballot, 0);
        let result = match vote {
            Meeting::VoteAll => all,
            Meeting::VoteAny => self.b.ins().bxor_imm(none, 1),
            Meeting::VoteUni => self.b.ins().bor(all, none),
            _ => return ballot,
        };
        self.b.ins().uextend(types::I32, result)
    }
}
