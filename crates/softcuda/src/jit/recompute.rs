//! Registers that a thread that waits need not keep: what they hold is cheaper to compute again.
//!
//! One step writes such a register, no path to a reader goes past that step, and what it computes
//! depends on the kernel's parameters, numbers, special registers that do not change, and other
//! such registers.

use super::decode::{RegId, Special, Stride};
use super::program::{Body, Instruction, Step};

/// For each register, the step that computes it again, if that may be.
pub(super) fn recomputed(body: &Body, live_at_start: &[RegId]) -> Vec<Option<usize>> {
    let count = body.tables.registers.len();
    let mut writer: Vec<Option<usize>> = vec![None; count];
    let mut once = vec![true; count];
    for (at, step) in body.steps.iter().enumerate() {
        let Step::Instruction(instruction) = step else {
            continue;
        };
        for register in &instruction.writes {
            let known = &mut writer[register.0 as usize];
            once[register.0 as usize] &= known.is_none();
            *known = Some(at);
        }
    }
    for register in live_at_start {
        once[register.0 as usize] = false;
    }
    let mut found = vec![None; count];
    // In source order: most are written before they are read there, too.
    for (at, step) in body.steps.iter().enumerate() {
        let Step::Instruction(instruction) = step else {
            continue;
        };
        let [register] = instruction.writes[..] else {
            continue;
        };
        let known = |register: &RegId| found[register.0 as usize].is_some();
        if once[register.0 as usize]
            && writer[register.0 as usize] == Some(at)
            && is_cheap(instruction)
            && instruction.reads.iter().all(known)
        {
            found[register.0 as usize] = Some(at);
        }
    }
    found
}

/// The step computes a number, a parameter, a special register, or a sum, multiple or comparison of
/// such.
fn is_cheap(instruction: &Instruction) -> bool {
    use Special::*;
    let operation = &instruction.operation;
    let stays = |special: &Special| {
        matches!(
            special,
            Tid(_) | Ntid(_) | Ctaid(_) | Nctaid(_) | Laneid | Warpid
        )
    };
    instruction.guard.is_none()
        && (operation.loads_parameter()
            || operation.number().is_some()
            || operation.comparison().is_some_and(|of| of.of_words())
            || operation.pure()
                && !operation.carry()
                && operation.stride(&|_| Some(Stride::number(0))).is_some())
        && instruction.specials.iter().all(stays)
}

/// The steps that compute these registers again, in source order.
pub(super) fn steps(body: &Body, recomputed: &[Option<usize>], of: &[RegId]) -> Vec<usize> {
    let mut steps = vec![];
    let mut work: Vec<RegId> = of.to_vec();
    while let Some(register) = work.pop() {
        let Some(at) = recomputed[register.0 as usize] else {
            continue;
        };
        if !steps.contains(&at) {
            steps.push(at);
            if let Step::Instruction(instruction) = &body.steps[at] {
                work.extend(&instruction.reads);
            }
        }
    }
    steps.sort_unstable();
    steps
}
