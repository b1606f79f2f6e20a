//! Where an operation is done.
//!
//! Cranelift does a pure operation where its result is first needed. A sum over many loads, needed
//! when all are done, is then computed there, and all that was loaded waits for it: in registers as
//! far as there are any, the rest on the stack. Here operations go as far up as their operands
//! allow, if that ends the life of one of them: so no place has more values than before. They pass
//! branches that have but one way that is not cold.

use std::collections::HashSet;

use cranelift_codegen::dominator_tree::DominatorTree;
use cranelift_codegen::entity::packed_option::ReservedValue;
use cranelift_codegen::ir::{Block, Function, Inst, Opcode, Type, Value, ValueDef};

/// Moves operations on floats and vectors up to where an operand is needed for the last time, but
/// for those that `stay`.
pub(super) fn early(func: &mut Function, tree: &DominatorTree, stay: &HashSet<Inst>) {
    let uses = Uses::of(func);
    for block in tree.cfg_rpo().copied() {
        for inst in func.layout.block_insts(block).collect::<Vec<_>>() {
            if moves(func, inst)
                && !stay.contains(&inst)
                && let Some((there, before)) = earliest(func, tree, block, inst)
                && before != inst
                && ends(func, tree, inst, there, &uses)
            {
                func.layout.remove_inst(inst);
                func.layout.insert_inst(inst, before);
            }
        }
    }
}

/// Where an operation of this block may be done, at the earliest.
fn earliest(
    func: &Function,
    tree: &DominatorTree,
    block: Block,
    inst: Inst,
) -> Option<(Block, Inst)> {
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
    let before = match by {
        Some(by) => func.layout.next_inst(by),
        None => func.layout.first_inst(there),
    };
    Some((there, before?))
}

/// Where each value that is wide is used: operations, and their blocks.
struct Uses {
    /// Where the value's begin, in all.
    first: Vec<u32>,
    all: Vec<(Inst, Block)>,
}

impl Uses {
    fn of(func: &Function) -> Uses {
        let mut first = vec![0; func.dfg.num_values() + 1];
        each_use(func, |value, _, _| first[value + 1] += 1);
        let mut sum = 0;
        for first in &mut first {
            sum += *first;
            *first = sum;
        }
        let mut next = first.clone();
        let mut all = vec![(Inst::reserved_value(), Block::reserved_value()); sum as usize];
        each_use(func, |value, inst, block| {
            all[next[value] as usize] = (inst, block);
            next[value] += 1;
        });
        Uses { first, all }
    }

    fn get(&self, value: Value) -> &[(Inst, Block)] {
        let at = value.as_u32() as usize;
        &self.all[self.first[at] as usize..self.first[at + 1] as usize]
    }
}

fn each_use(func: &Function, mut used: impl FnMut(usize, Inst, Block)) {
    for block in func.layout.blocks() {
        for inst in func.layout.block_insts(block) {
            for value in func.dfg.inst_values(inst) {
                if is_wide(func.dfg.value_type(value)) {
                    used(value.as_u32() as usize, inst, block);
                }
            }
        }
    }
}

/// Whether an operation may move.
fn moves(func: &Function, inst: Inst) -> bool {
    let wide = |value: &Value| is_wide(func.dfg.value_type(*value));
    is_pure(func.dfg.insts[inst].opcode())
        && matches!(func.dfg.inst_results(inst), [result] if wide(result))
        && func.dfg.inst_args(inst).iter().any(wide)
}

/// Whether an operand is not needed after this operation, where it is done in this block: all other
/// uses are in cold blocks that come from further up.
fn ends(func: &Function, tree: &DominatorTree, inst: Inst, there: Block, uses: &Uses) -> bool {
    let elsewhere = |(by, block): &(Inst, Block)| {
        *by == inst || func.layout.is_cold(*block) && !tree.block_dominates(there, *block)
    };
    let last = |value: &Value| {
        is_wide(func.dfg.value_type(*value)) && uses.get(*value).iter().all(elsewhere)
    };
    // Shuffles turn several vectors into as many: together they end the life of those.
    let shuffles = func.dfg.insts[inst].opcode() == Opcode::Shuffle;
    shuffles || func.dfg.inst_args(inst).iter().any(last)
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

#[cfg(test)]
pub(super) mod tests {
    use cranelift_codegen::flowgraph::ControlFlowGraph;
    use cranelift_codegen::ir::{AbiParam, InstBuilder, MemFlags, types};
    use cranelift_frontend::{FunctionBuilder, FunctionBuilderContext};

    use super::*;

    /// A function of an address.
    pub(in crate::jit) fn function(body: impl FnOnce(&mut FunctionBuilder<'_>, Value)) -> Function {
        let mut func = Function::new();
        func.signature.params.push(AbiParam::new(types::I64));
        let mut context = FunctionBuilderContext::new();
        let mut b = FunctionBuilder::new(&mut func, &mut context);
        let begin = b.create_block();
        b.append_block_params_for_function_params(begin);
        b.switch_to_block(begin);
        let from = b.block_params(begin)[0];
        body(&mut b, from);
        b.ins().return_(&[]);
        b.seal_all_blocks();
        b.finalize();
        func
    }

    /// Two sums of three numbers each that are loaded in three blocks with a cold way beside them;
    /// all is added in the last.
    fn sums(cold: bool) -> Function {
        function(|b, from| sums_of(b, from, cold))
    }

    fn sums_of(b: &mut FunctionBuilder<'_>, from: Value, cold: bool) {
        let mut loaded = vec![];
        for at in 0..3 {
            let (next, other) = (b.create_block(), b.create_block());
            if cold {
                b.set_cold_block(other);
            }
            for sum in 0..2 {
                let at = 4 * (2 * at + sum);
                loaded.push(b.ins().load(types::F32, MemFlags::trusted(), from, at));
            }
            b.ins().brif(from, next, &[], other, &[]);
            b.switch_to_block(other);
            b.ins().jump(next, &[]);
            b.switch_to_block(next);
        }
        for sum in 0..2 {
            let two = b.ins().fadd(loaded[sum], loaded[sum + 2]);
            let all = b.ins().fadd(two, loaded[sum + 4]);
            let at = 32 + 4 * sum as i32;
            b.ins().store(MemFlags::trusted(), all, from, at);
        }
    }

    /// What the operations are, block after block.
    pub(in crate::jit) fn opcodes(func: &Function) -> Vec<Vec<Opcode>> {
        let opcodes = |block: Block| {
            let inside = func.layout.block_insts(block);
            inside.map(|inst| func.dfg.insts[inst].opcode()).collect()
        };
        func.layout.blocks().map(opcodes).collect()
    }

    fn scheduled(mut func: Function) -> Vec<Vec<Opcode>> {
        let tree = DominatorTree::with_function(&func, &ControlFlowGraph::with_function(&func));
        early(&mut func, &tree, &HashSet::new());
        opcodes(&func)
    }

    #[test]
    fn sums_go_to_where_their_numbers_are() {
        use Opcode::{Brif, Fadd, Jump, Load, Return, Store};
        let blocks = scheduled(sums(true));
        let expected = [
            vec![Load, Load, Brif],
            vec![Jump],
            vec![Load, Fadd, Load, Fadd, Brif],
            vec![Jump],
            vec![Load, Fadd, Load, Fadd, Brif],
            vec![Jump],
            vec![Store, Store, Return],
        ];
        assert_eq!(blocks, expected);
    }

    /// Where a way that is taken as often does not need them, they stay.
    #[test]
    fn nothing_passes_a_branch_of_two_ways() {
        assert_eq!(scheduled(sums(false)), opcodes(&sums(false)));
    }
}
