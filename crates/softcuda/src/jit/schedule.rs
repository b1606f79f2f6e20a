//! Where an operation is done.
//!
//! Cranelift does a pure operation where its result is first needed. A sum over many loads, needed
//! when all are done, is then computed there, and all that was loaded waits for it: in registers as
//! far as there are any, the rest on the stack. Here operations go as far up as their operands
//! allow, if that ends the life of one of them: so no place has more values than before. They pass
//! branches that have but one way that is not cold.

use cranelift_codegen::dominator_tree::DominatorTree;
use cranelift_codegen::ir::{Block, Function, Inst, Opcode, Type, Value, ValueDef};

/// Moves operations on floats and vectors up to where an operand is needed for the last time.
pub(super) fn early(func: &mut Function, tree: &DominatorTree) {
    let uses = uses(func);
    for block in tree.cfg_rpo().copied() {
        for inst in func.layout.block_insts(block).collect::<Vec<_>>() {
            if moves(func, inst, &uses)
                && let Some(before) = earliest(func, tree, block, inst)
                && before != inst
            {
                func.layout.remove_inst(inst);
                func.layout.insert_inst(inst, before);
            }
        }
    }
}

/// Where an operation of this block may be done, at the earliest.
fn earliest(func: &Function, tree: &DominatorTree, block: Block, inst: Inst) -> Option<Inst> {
    // The definitions that an operation depends on follow each other in the tree.
    let mut last: Option<(Block, Option<Inst>)> = None;
    for value in func.dfg.inst_args(inst) {
        let new = match func.dfg.value_def(*value) {
            ValueDef::Result(by, _) => (func.layout.inst_block(by)?, Some(by)),
            ValueDef::Param(block, _) => (block, None),
            ValueDef::Union(..) => return None,
        };
        last = Some(match last {
            None => new,
            Some(last) if last.0 == new.0 => match (last.1, new.1) {
                (Some(a), Some(b)) if a != b && func.layout.pp_cmp(a, b).is_lt() => new,
                (None, _) => new,
                _ => last,
            },
            Some(last) if tree.block_dominates(last.0, new.0) => new,
            Some(last) => last,
        });
    }
    let (there, by) = last?;
    let mut at = block;
    while at != there {
        let above = tree.idom(at)?;
        let only = |to: Block| to == at || func.layout.is_cold(to);
        if func.layout.is_cold(at) || !func.block_successors(above).all(only) {
            return None;
        }
        at = above;
    }
    match by {
        Some(by) => func.layout.next_inst(by),
        None => func.layout.first_inst(there),
    }
}

/// How often each value is used.
fn uses(func: &Function) -> Vec<u32> {
    let mut uses = vec![0; func.dfg.num_values()];
    for block in func.layout.blocks() {
        for inst in func.layout.block_insts(block) {
            for value in func.dfg.inst_values(inst) {
                uses[value.as_u32() as usize] += 1;
            }
        }
    }
    uses
}

/// Whether an operation is one that moves.
fn moves(func: &Function, inst: Inst, uses: &[u32]) -> bool {
    let dfg = &func.dfg;
    let wide = |value: &Value| is_wide(dfg.value_type(*value));
    let ends = |value: &Value| wide(value) && uses[value.as_u32() as usize] == 1;
    is_pure(dfg.insts[inst].opcode())
        && matches!(dfg.inst_results(inst), [result] if wide(result))
        && dfg.inst_args(inst).iter().any(ends)
}

/// Whether values of this type are in the registers that there are few of.
fn is_wide(ty: Type) -> bool {
    ty.is_float() || ty.is_vector()
}

fn is_pure(opcode: Opcode) -> bool {
    !(opcode.is_terminator()
        || opcode.is_call()
        || opcode.can_load()
        || opcode.can_store()
        || opcode.can_trap()
        || opcode.other_side_effects())
}
