//! How large the registers of a body may be, as numbers of 32 bits without a sign.
//!
//! A number of the thread in the grid is computed in `int`, and divided by the size of a warp. Then
//! nvcc adds 31 to those below zero, so that lanes of a warp would have several quotients. There
//! are none below zero, unless there are millions of blocks: groups are for those before.

use super::MOST_BLOCKS;
use crate::jit::decode::{Arg, RegId, Special};
use crate::jit::program::{Body, Step};
use ptx::ast::Immediate;

/// What is known of how large registers are.
pub(super) struct Zeros {
    /// By register, whether it is 0 in all threads.
    pub of: Vec<bool>,
    /// That is so in the first [`MOST_BLOCKS`] alone.
    pub in_first_blocks: bool,
    /// By register, the most that it is in any block, where that is known. It is below 2^31.
    pub most: Vec<Option<u32>>,
}

impl Zeros {
    pub fn of(body: &Body) -> Zeros {
        let of_blocks = |blocks| most(body, blocks);
        let (first, most) = (of_blocks(MOST_BLOCKS - 1), of_blocks(i32::MAX as u32));
        let zeros = |most: &[Option<u32>]| most.iter().map(|most| *most == Some(0)).collect();
        let (of, always): (Vec<bool>, Vec<bool>) = (zeros(&first), zeros(&most));
        let in_first_blocks = of != always;
        Zeros {
            of,
            in_first_blocks,
            most,
        }
    }
}

/// By register, the most that it is where `%ctaid.x` is not more than `blocks`.
fn most(body: &Body, blocks: u32) -> Vec<Option<u32>> {
    let count = body.tables.registers.len();
    let mut writes = vec![0; count];
    let steps = || {
        body.steps.iter().filter_map(|step| match step {
            Step::Instruction(step) => Some(step),
            Step::Label(_) => None,
        })
    };
    for RegId(register) in steps().flat_map(|step| step.writes.iter().copied()) {
        writes[register as usize] += 1;
    }
    let mut known: Vec<Option<u32>> = vec![None; count];
    // In source order. What is written later, or several times, is not known.
    for step in steps() {
        // Whether it has a sign does not matter then.
        let has_no_sign = |most: &u32| i32::try_from(*most).is_ok();
        let of = |arg: &Arg| match arg {
            Arg::Reg(register) => known[register.0 as usize],
            Arg::Special(special) => of_special(*special, blocks),
            Arg::Imm(Immediate::Int { bits, .. }) => u32::try_from(*bits).ok().filter(has_no_sign),
            _ => None,
        };
        let [RegId(written)] = step.writes[..] else {
            continue;
        };
        if writes[written as usize] == 1 {
            known[written as usize] = step.operation.most(&of).filter(has_no_sign);
        }
    }
    known
}

/// The most that a special register is, where `%ctaid.x` is not more than `blocks`.
fn of_special(special: Special, blocks: u32) -> Option<u32> {
    use Special::*;
    Some(match special {
        Tid(0..=1) => 1023,
        Tid(2) => 63,
        Ntid(0..=1) => 1024,
        Ntid(2) => 64,
        Ctaid(0) => blocks,
        Ctaid(1..=2) => 65_534,
        Nctaid(1..=2) => 65_535,
        Laneid | Warpid => 31,
        _ => return None,
    })
}
