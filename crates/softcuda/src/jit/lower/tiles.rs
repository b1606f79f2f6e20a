//! Operations of a warp whose lanes name only some of them, all of which are known: where each
//! lane names a tile that it is in, and a warp consists of such, as in cooperative groups.
//!
//! ```text
//! mov.u32 %lane, %laneid; and.b32 %first, %lane, -16; shl.b32 %mask, 0xffff, %first;
//! shfl.sync.down.b32 %to|%p, %from, 8, 0x101f, %mask;
//! ```
//!
//! Once all lanes have come there, they do that together.

use ptx::ast::Immediate;

use super::Lower;
use crate::grid::warp::{self, Meeting};
use crate::jit::decode::{Arg, RegId, Special};
use crate::jit::program::{Body, Step};

/// How far the steps are followed that compute a mask.
const MOST_STEPS: usize = 6;

impl Lower<'_> {
    /// Whether the lanes of a warp name tiles that it consists of, and each takes something from
    /// its own alone, or nothing is taken.
    pub(super) fn is_in_tiles(&self, kind: u32, mask: &Arg, selectors: Option<&[Arg; 2]>) -> bool {
        let Arg::Reg(mask) = mask else {
            return false;
        };
        let number = |arg: &Arg| match arg {
            Arg::Imm(Immediate::Int { bits, .. }) => Some(*bits as u32),
            Arg::Reg(register) => match self.held_number(*register)?.1 {
                Immediate::Int { bits, .. } => Some(bits as u32),
                _ => None,
            },
            _ => None,
        };
        let is = |meeting: &Meeting| *meeting as u32 == kind;
        let taken = match selectors {
            None if is(&Meeting::Sync) => None,
            None => return false,
            Some([b, c]) => {
                use Meeting::*;
                let shuffles = [ShflUp, ShflDown, ShflBfly, ShflIdx];
                let shuffle = shuffles.into_iter().find(is);
                let (Some(shuffle), Some(b), Some(c)) = (shuffle, number(b), number(c)) else {
                    return false;
                };
                Some((shuffle, b, c))
            }
        };
        let Some(masks) = by_lane(self.body, *mask, MOST_STEPS) else {
            return false;
        };
        let masks = masks.map(|mask| mask as u32);
        (0..32).all(|lane| {
            let own = masks[lane];
            let mut tile = (0..32).filter(|other| own >> other & 1 != 0);
            let from = match taken {
                None => lane,
                Some((shuffle, b, c)) => {
                    let [own, b, c] = [lane as u32, b, c].map(u32::cast_signed);
                    match warp::source(shuffle, own, b, c) {
                        (from, true) => from as usize & 31,
                        (_, false) => lane,
                    }
                }
            };
            own >> lane & own >> from & 1 != 0 && tile.all(|other| masks[other] == own)
        })
    }
}

/// What a register holds in each lane, if that is computed from nothing but its number.
fn by_lane(body: &Body, register: RegId, most: usize) -> Option<[u64; 32]> {
    let most = most.checked_sub(1)?;
    let mut writers = body.steps.iter().filter_map(|step| match step {
        Step::Instruction(step) if step.writes.contains(&register) => Some(step),
        _ => None,
    });
    let writer = writers.next().filter(|_| writers.next().is_none())?;
    if writer.guard.is_some() || writer.writes.len() > 1 {
        return None;
    }
    let reads = writer.reads.iter();
    let reads: Option<Vec<(RegId, [u64; 32])>> = reads
        .map(|read| Some((*read, by_lane(body, *read, most)?)))
        .collect();
    let reads = reads?;
    let size = 8 * body.tables.registers[register.0 as usize].size().min(8);
    let mut values = [0; 32];
    for (lane, value) in values.iter_mut().enumerate() {
        let of = |arg: &Arg| match arg {
            Arg::Imm(Immediate::Int { bits, .. }) => Some(*bits),
            Arg::Special(Special::Laneid) => Some(lane as u64),
            Arg::Reg(register) => {
                let known = reads.iter().find(|(known, _)| known == register);
                known.map(|(_, values)| values[lane])
            }
            _ => None,
        };
        *value = writer.operation.evaluates(&of)? & u64::MAX >> (64 - size);
    }
    Some(values)
}
