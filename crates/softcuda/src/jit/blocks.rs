//! Blocks that follow each other are one.
//!
//! What lowers an operation ends in a block of its own where it branched. Each block costs the
//! register allocator what is live there, so those that are entered from one place, which leads
//! nowhere else, go.

use cranelift_codegen::entity::SecondaryMap;
use cranelift_codegen::ir::{Block, Function, InstructionData, Value};

/// Puts a block that one jump leads to behind what jumps there. Nothing that cannot be reached may
/// be left in the function.
pub(super) fn join(func: &mut Function) {
    let mut entries: SecondaryMap<Block, u32> = SecondaryMap::new();
    for block in func.layout.blocks() {
        for to in func.block_successors(block) {
            entries[to] += 1;
        }
    }
    let mut at = func.layout.entry_block();
    while let Some(block) = at {
        while let Some(next) = follows(func, block, &entries) {
            append(func, block, next);
        }
        at = func.layout.next_block(block);
    }
}

/// The block that is entered from the end of this one alone, which leads nowhere else.
fn follows(func: &Function, block: Block, entries: &SecondaryMap<Block, u32>) -> Option<Block> {
    let last = func.layout.last_inst(block)?;
    let InstructionData::Jump { destination, .. } = func.dfg.insts[last] else {
        return None;
    };
    let next = destination.block(&func.dfg.value_lists);
    // Coldness is a block's as a whole.
    let alike = func.layout.is_cold(next) == func.layout.is_cold(block);
    (next != block && entries[next] == 1 && alike).then_some(next)
}

/// Replaces the jump at the end of a block by the block that it leads to.
fn append(func: &mut Function, block: Block, next: Block) {
    let jump = func.layout.last_inst(block).expect("it is filled");
    let dfg = &mut func.dfg;
    let [call] = dfg.insts[jump].branch_destination(&dfg.jump_tables, &dfg.exception_tables) else {
        unreachable!("a jump has one destination");
    };
    let given: Vec<Value> = call
        .args(&dfg.value_lists)
        .map(|arg| arg.as_value().expect("no call is a branch here"))
        .collect();
    let params = dfg.detach_block_params(next);
    for (param, given) in params.as_slice(&dfg.value_lists).to_vec().into_iter().zip(given) {
        dfg.change_to_alias(param, given);
    }
    func.layout.remove_inst(jump);
    while let Some(inst) = func.layout.first_inst(next) {
        func.layout.remove_inst(inst);
        func.layout.append_inst(inst, block);
    }
    func.layout.remove_block(next);
}
