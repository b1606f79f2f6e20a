//! Regions that a full warp goes straight through, although its lanes part: where they do, they go
//! by their numbers in the warp, as in
//!
//! ```text
//! if (threadIdx.x % 32 == 31) sums[threadIdx.x / 32] = value;
//! ```
//!
//! So of each step it is known which lanes do it. That holds where whole warps make up the rows of
//! the block.

use super::facts::Facts;
use super::{Class, Exit, Regions, Way};
use crate::jit::decode::{Flow, RegId};
use crate::jit::program::{Instruction, Step};

/// All lanes.
pub(super) const ALL: u32 = u32::MAX;

/// The steps of a region in the order in which they are done, with the lanes that do them; `None`
/// if that is not known, or some lanes do what is not done for them alone. `lanes` are those of
/// each register in which it is true.
pub(super) fn straight(
    facts: Facts<'_>,
    regions: &Regions,
    lanes: &[Option<u32>],
    region: usize,
) -> Option<Vec<(usize, u32)>> {
    let control = facts.control;
    if let Exit::Branch { .. } = regions.regions[region].exit {
        return None;
    }
    let mut coming = vec![0; control.first.len()];
    coming[regions.regions[region].head] = ALL;
    let mut steps = vec![];
    for block in (0..coming.len()).filter(|block| regions.of[*block] == Some(region)) {
        let here = coming[block];
        let mut falls = here;
        for (at, step) in facts.steps(block) {
            if let Flow::Next = step.operation.flow() {
                if here != ALL && !for_some(facts, (at, step)) {
                    return None;
                }
                steps.push((at, here));
                continue;
            }
            let Flow::Jump(_) = step.operation.flow() else {
                return None;
            };
            let taking = match step.guard {
                None => ALL,
                Some((guard, negated)) => {
                    let holds = lanes[guard.0 as usize]?;
                    if negated { !holds } else { holds }
                }
            };
            let successors = &control.graph.successors[block];
            let taken = successors.iter().copied().find(|to| *to != block + 1);
            if let Some(taken) = taken
                && regions.stays(block, taken)
            {
                if taken <= block {
                    return None;
                }
                coming[taken] |= here & taking;
            }
            falls = match taken {
                Some(_) => here & !taking,
                None => here,
            };
        }
        if let Some(next) = coming.get_mut(block + 1)
            && regions.stays(block, block + 1)
        {
            *next |= falls;
        }
    }
    // What some write once, for all lanes, no others may read.
    let reads = |block: usize, here: u32, register: &RegId| {
        coming[block] & !here != 0 && facts.live[block].contains(register)
    };
    let crosses = |(at, here): &(usize, u32)| {
        let Step::Instruction(step) = &facts.body.steps[*at] else {
            return false;
        };
        let block = control.graph.block_of[*at];
        let mut later = (block + 1..coming.len()).filter(|to| regions.of[*to] == Some(region));
        *here != ALL && later.any(|to| step.writes.iter().any(|write| reads(to, *here, write)))
    };
    (!steps.iter().any(crosses)).then_some(steps)
}

/// Whether some lanes of a group may do a step without the others: it leaves nothing to them.
fn for_some(facts: Facts<'_>, (at, step): (usize, &Instruction)) -> bool {
    let (operation, way) = (&step.operation, facts.ways[at]);
    // What they write varies where they join the others, unless nobody reads it there.
    let inside = |register: &RegId| facts.class(*register) != Class::Varying;
    let once = way == Way::Once && operation.pure() && step.writes.iter().all(inside);
    let stores = step.writes.is_empty()
        && operation.weak_access().is_some()
        && matches!(way, Way::Once | Way::Each | Way::Row);
    step.guard.is_none() && (once || stores)
}
