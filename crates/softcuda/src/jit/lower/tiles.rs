//! Operations of a warp whose lanes name only some of them, all of which are known: where each
//! lane names a tile that it is in, and a warp consists of such, as in cooperative groups.
//!
//! ```text
//! mov.u32 %lane, %laneid; and.b32 %first, %lane, -16; shl.b32 %mask, 0xffff, %first;
//! shfl.sync.down.b32 %to|%p, %from, 8, 0x101f, %mask;
//! ```
//!
//! Once all lanes have come there, they do that together.

use ptx::ast::{Immediate, Type};

use crate::grid::rounds::Tiles;
use crate::jit::decode::{Arg, RegId, Special};
use crate::jit::program::{Body, Instruction, Step};

/// How far the steps are followed that compute a mask.
const MOST_STEPS: usize = 6;
/// The most warps of a row of threads.
const MOST_WARPS: u64 = 32;

/// The tiles that the lanes of a warp name by a mask.
pub(super) fn named_by(body: &Body, mask: RegId) -> Option<Tiles> {
    // Where all lanes are together now, all were when the mask was computed.
    if only_writer(body, mask).is_some_and(|writer| writer.operation.tells_who_is_there()) {
        return Some(Tiles::WARP);
    }
    let mut of_rows = false;
    let masks = by_lane(body, mask, 0, MOST_STEPS, &mut of_rows)?;
    let size = masks[0].trailing_ones();
    let tiles = Tiles { size, of_rows };
    let named =
        size.is_power_of_two() && (0..32).all(|lane| masks[lane] == tiles.mask(lane).into());
    let mut others = 1..if of_rows { MOST_WARPS } else { 1 };
    let same = others.all(|warp| by_lane(body, mask, warp, MOST_STEPS, &mut true) == Some(masks));
    (named && same).then_some(tiles)
}

/// The instruction that alone writes a register, and nothing else, in all threads that come to it.
fn only_writer(body: &Body, register: RegId) -> Option<&Instruction> {
    let mut writers = body.steps.iter().filter_map(|step| match step {
        Step::Instruction(step) if step.writes.contains(&register) => Some(step),
        _ => None,
    });
    let writer = writers.next().filter(|_| writers.next().is_none())?;
    (writer.guard.is_none() && writer.writes.len() == 1).then_some(writer)
}

/// What a register holds in each lane of a warp of a row, if that is computed from nothing but its
/// number, or that in the row.
fn by_lane(
    body: &Body,
    register: RegId,
    warp: u64,
    most: usize,
    of_rows: &mut bool,
) -> Option<[u64; 32]> {
    let most = most.checked_sub(1)?;
    let writer = only_writer(body, register)?;
    let mut reads = vec![];
    for read in &writer.reads {
        reads.push((*read, by_lane(body, *read, warp, most, of_rows)?));
    }
    *of_rows |= writer.specials.contains(&Special::Tid(0));
    let bits = match body.tables.registers[register.0 as usize] {
        Type::Pred => 1,
        ty => 8 * ty.size().min(8),
    };
    let mut values = [0; 32];
    for (lane, value) in (0..).zip(&mut values) {
        let of = |arg: &Arg| match arg {
            Arg::Imm(Immediate::Int { bits, .. }) => Some(*bits),
            Arg::Special(Special::Laneid) => Some(lane),
            Arg::Special(Special::Tid(0)) => Some(32 * warp + lane),
            Arg::Reg(register) => {
                let known = reads.iter().find(|(known, _)| known == register);
                known.map(|(_, values)| values[lane as usize])
            }
            _ => None,
        };
        *value = writer.operation.evaluates(&of)? & u64::MAX >> (64 - bits);
    }
    Some(values)
}
