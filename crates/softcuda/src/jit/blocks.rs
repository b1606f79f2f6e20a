//! Blocks that follow each other are one, and branches pass by those that only go on to others.
//!
//! What lowers an operation ends in a block of its own where it branched. Each block costs the
//! register allocator what is live there. And Cranelift computes a value where it is first needed:
//! where that is behind both ways of a branch, it does so twice.

use cranelift_codegen::entity::SecondaryMap;
use cranelift_codegen::ir::{Block, BlockCall, Function, InstructionData, Opcode, Value};
use smallvec::SmallVec;

/// Values that a block is given.
pub(super) type Values = SmallVec<[Value; 16]>;

/// Joins blocks. Nothing that cannot be reached may be left in the function.
pub(super) fn join(func: &mut Function) {
    let mut entries: SecondaryMap<Block, u32> = SecondaryMap::new();
    for block in func.layout.blocks() {
        for to in func.block_successors(block) {
            entries[to] += 1;
        }
    }
    let mut at = func.layout.entry_block();
    while let Some(block) = at {
        while let Some(call) = follows(func, block, &entries) {
            append(func, block, call);
        }
        at = func.layout.next_block(block);
    }
    for block in func.layout.blocks().collect::<Vec<_>>() {
        pass_by(func, block, &entries);
    }
}

/// How a block is entered from the end of this one alone, which leads nowhere else.
fn follows(func: &Function, block: Block, entries: &SecondaryMap<Block, u32>) -> Option<BlockCall> {
    let last = func.layout.last_inst(block)?;
    let InstructionData::Jump { destination, .. } = func.dfg.insts[last] else {
        return None;
    };
    let next = destination.block(&func.dfg.value_lists);
    // Coldness is a block's as a whole.
    let alike = func.layout.is_cold(next) == func.layout.is_cold(block);
    (next != block && entries[next] == 1 && alike).then_some(destination)
}

/// Replaces the jump at the end of a block by the block that it leads to.
fn append(func: &mut Function, block: Block, call: BlockCall) {
    take_params(func, call);
    let next = call.block(&func.dfg.value_lists);
    let jump = func.layout.last_inst(block).expect("it is filled");
    func.layout.remove_inst(jump);
    while let Some(inst) = func.layout.first_inst(next) {
        func.layout.remove_inst(inst);
        func.layout.append_inst(inst, block);
    }
    func.layout.remove_block(next);
}

/// The parameters of a block that nobody else calls are what they are given.
fn take_params(func: &mut Function, call: BlockCall) {
    let (given, block) = (given(func, call), call.block(&func.dfg.value_lists));
    let params = func.dfg.detach_block_params(block);
    let params: Values = params.as_slice(&func.dfg.value_lists).into();
    for (param, given) in params.into_iter().zip(given) {
        func.dfg.change_to_alias(param, given);
    }
}

/// What a block is given.
pub(super) fn given(func: &Function, call: BlockCall) -> Values {
    let args = call.args(&func.dfg.value_lists);
    let values = args.map(|arg| arg.as_value().expect("no call is a branch here"));
    values
        .map(|value| func.dfg.resolve_aliases(value))
        .collect()
}

/// Lets the ways of the branch at the end of a block lead to where the blocks go on that they lead
/// to, if those do nothing else, and if nothing is computed in vain then.
fn pass_by(func: &mut Function, block: Block, entries: &SecondaryMap<Block, u32>) {
    let Some(branch) = func.layout.last_inst(block) else {
        return;
    };
    let InstructionData::Brif { blocks: ways, .. } = func.dfg.insts[branch] else {
        return;
    };
    let goes_on = |way: BlockCall| {
        let block = way.block(&func.dfg.value_lists);
        let only = func.layout.first_inst(block)?;
        let InstructionData::Jump { destination, .. } = func.dfg.insts[only] else {
            return None;
        };
        let passed = entries[block] == 1 && !func.layout.is_cold(block);
        passed.then(|| (destination, given(func, destination)))
    };
    let next = ways.map(goes_on);
    for (n, way) in ways.into_iter().enumerate() {
        let (Some((call, values)), other) = (&next[n], &next[1 - n]) else {
            continue;
        };
        let needed = |value: &Value| {
            let there = other
                .as_ref()
                .is_some_and(|(_, values)| values.contains(value));
            there || is_cheap(func, *value)
        };
        if !values.iter().all(needed) {
            continue;
        }
        take_params(func, way);
        let dfg = &mut func.dfg;
        dfg.insts[branch].branch_destination_mut(&mut dfg.jump_tables, &mut dfg.exception_tables)
            [n] = *call;
        let block = way.block(&func.dfg.value_lists);
        let jump = func.layout.last_inst(block).expect("it is filled");
        func.layout.remove_inst(jump);
        func.layout.remove_block(block);
    }
}

/// The value is there, or computing it counts for nothing.
fn is_cheap(func: &Function, value: Value) -> bool {
    use Opcode::{F32const, F64const, Iadd, Iconst, Isub, StackAddr, Vconst};
    let Some(by) = func.dfg.value_def(value).inst() else {
        return true;
    };
    match func.dfg.insts[by].opcode() {
        Iconst | F32const | F64const | Vconst | StackAddr => true,
        Iadd | Isub => !func.dfg.value_type(value).is_vector(),
        opcode => opcode.can_load() || opcode.is_call(),
    }
}

#[cfg(test)]
mod tests {
    use cranelift_codegen::ir::{AbiParam, InstBuilder, types};
    use cranelift_codegen::settings::{self, Flags};
    use cranelift_codegen::verify_function;
    use cranelift_frontend::{FunctionBuilder, FunctionBuilderContext};

    use super::*;
    use crate::jit::schedule::tests::opcodes;

    /// A function of a word and a float that gives a float, joined; what its blocks do.
    fn joined(build: impl FnOnce(&mut FunctionBuilder<'_>, [Value; 2])) -> Vec<Vec<Opcode>> {
        let mut func = Function::new();
        for ty in [types::I32, types::F32] {
            func.signature.params.push(AbiParam::new(ty));
        }
        func.signature.returns.push(AbiParam::new(types::F32));
        let mut context = FunctionBuilderContext::new();
        let mut b = FunctionBuilder::new(&mut func, &mut context);
        let begin = b.create_block();
        b.append_block_params_for_function_params(begin);
        b.switch_to_block(begin);
        let params = [0, 1].map(|n| b.block_params(begin)[n]);
        build(&mut b, params);
        b.seal_all_blocks();
        b.finalize();
        join(&mut func);
        let flags = Flags::new(settings::builder());
        verify_function(&func, &flags).expect("it is well formed");
        opcodes(&func)
    }

    use Opcode::{Brif, Fadd, Fmul, Jump, Return};

    #[test]
    fn what_follows_is_appended_with_what_it_is_given() {
        let blocks = joined(|b, [_, x]| {
            let [second, third] = [0, 1].map(|_| b.create_block());
            let given = b.append_block_param(second, types::F32);
            let again = b.append_block_param(third, types::F32);
            let twice = b.ins().fadd(x, x);
            b.ins().jump(second, &[twice.into()]);
            b.switch_to_block(second);
            let product = b.ins().fmul(given, x);
            b.ins().jump(third, &[product.into()]);
            b.switch_to_block(third);
            let sum = b.ins().fadd(again, given);
            b.ins().return_(&[sum]);
        });
        assert_eq!(blocks, [[Fadd, Fmul, Fadd, Return]]);
    }

    #[test]
    fn others_lead_there_or_it_is_cold_or_a_loop() {
        let blocks = joined(|b, [number, x]| {
            let [cold, before, head] = [0, 1, 2].map(|_| b.create_block());
            b.set_cold_block(cold);
            b.ins().brif(number, before, &[], head, &[]);
            b.switch_to_block(before);
            b.ins().fadd(x, x);
            b.ins().jump(cold, &[]);
            b.switch_to_block(cold);
            b.ins().return_(&[x]);
            b.switch_to_block(head);
            b.ins().jump(head, &[]);
        });
        let expected = [vec![Brif], vec![Fadd, Jump], vec![Return], vec![Jump]];
        assert_eq!(blocks, expected);
    }

    /// A loop whose turns and whose end are given a product, and more.
    fn turns(more: Opcode) -> Vec<Vec<Opcode>> {
        joined(|b, [number, x]| {
            let [head, again, over, end] = [0, 1, 2, 3].map(|_| b.create_block());
            let turn = b.append_block_param(head, types::F32);
            let count = b.append_block_param(head, types::I32);
            let left = b.append_block_param(again, types::I32);
            let result = b.append_block_param(end, types::F32);
            let args = [x.into(), number.into()];
            b.ins().brif(number, head, &args, end, &[x.into()]);
            b.switch_to_block(head);
            let product = b.ins().fmul(turn, x);
            let less = b.ins().iadd_imm(count, -1);
            b.ins().brif(count, again, &[less.into()], over, &[]);
            b.switch_to_block(again);
            b.ins().jump(head, &[product.into(), left.into()]);
            b.switch_to_block(over);
            let given = match more {
                Fadd => b.ins().fadd(product, product),
                _ => product,
            };
            b.ins().jump(end, &[given.into()]);
            b.switch_to_block(end);
            b.ins().return_(&[result]);
        })
    }

    #[test]
    fn branches_pass_by_what_only_goes_on() {
        let Some([_, head, end]) = turns(Jump).try_into().ok().map(|it: [Vec<_>; 3]| it) else {
            panic!("there are other blocks");
        };
        assert!(matches!(head[..], [Fmul, .., Brif]));
        assert_eq!(end, [Return]);
        // What follows the loop computes something.
        assert_eq!(turns(Fadd).len(), 5);
    }

    #[test]
    fn what_one_way_alone_needs_is_not_computed_for_both() {
        let blocks = joined(|b, [number, x]| {
            let [one, other, end] = [0, 1, 2].map(|_| b.create_block());
            let given = b.append_block_param(one, types::F32);
            let result = b.append_block_param(end, types::F32);
            let product = b.ins().fmul(x, x);
            b.ins().brif(number, one, &[x.into()], other, &[]);
            b.switch_to_block(one);
            b.ins().jump(end, &[given.into()]);
            b.switch_to_block(other);
            b.ins().jump(end, &[product.into()]);
            b.switch_to_block(end);
            b.ins().return_(&[result]);
        });
        assert_eq!(blocks, [vec![Fmul, Brif], vec![Jump], vec![Return]]);
    }
}
