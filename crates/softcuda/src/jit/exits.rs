//! The order of the two ways of a branch, for Cranelift's sake.
//!
//! Cranelift moves what stays the same out of a loop, and puts other pure operations where they are
//! first used. It walks the dominator tree, and forgets about a loop at the first block that is not
//! in it, also where blocks of the loop follow. Then what was computed before the loop is computed
//! in each turn. Of a branch's two ways it takes the second first, so those that lead out of a loop
//! are put first here.

use cranelift_codegen::cursor::{Cursor, FuncCursor};
use cranelift_codegen::ir::condcodes::{CondCode, IntCC};
use cranelift_codegen::ir::{InstBuilder, InstructionData, Opcode, Value};
use cranelift_codegen::loop_analysis::LoopAnalysis;
use cranelift_codegen::settings::Flags;
use cranelift_codegen::{CodegenResult, Context};

/// Puts ways out of loops before those that stay. What cannot be reached goes: Cranelift's analysis
/// of loops may not end where such code leads into two of them.
pub(super) fn first(context: &mut Context, flags: &Flags) -> CodegenResult<()> {
    context.compute_cfg();
    context.compute_domtree();
    let mut blocks = context.func.layout.blocks();
    if blocks.any(|block| !context.domtree.is_reachable(block)) {
        context.eliminate_unreachable_code(flags)?;
        context.compute_domtree();
    }
    let mut loops = LoopAnalysis::new();
    loops.compute(&context.func, &context.cfg, &context.domtree);
    let func = &mut context.func;
    for block in func.layout.blocks().collect::<Vec<_>>() {
        let (Some(inside), Some(branch)) =
            (loops.innermost_loop(block), func.layout.last_inst(block))
        else {
            continue;
        };
        let InstructionData::Brif {
            arg,
            blocks: [then, other],
            ..
        } = func.dfg.insts[branch]
        else {
            continue;
        };
        let stays = |call: cranelift_codegen::ir::BlockCall| {
            loops.is_in_loop(call.block(&func.dfg.value_lists), inside)
        };
        if !stays(then) || stays(other) {
            continue;
        }
        let not = complement(&mut FuncCursor::new(func).at_inst(branch), arg);
        func.dfg.insts[branch] = InstructionData::Brif {
            opcode: Opcode::Brif,
            arg: not,
            blocks: [other, then],
        };
    }
    // Their orders are those of before.
    context.cfg.clear();
    context.domtree.clear();
    Ok(())
}

/// What is not zero where a value is.
fn complement(cursor: &mut FuncCursor<'_>, value: Value) -> Value {
    let definition = cursor.func.dfg.value_def(value).inst();
    match definition.map(|inst| cursor.func.dfg.insts[inst]) {
        Some(InstructionData::IntCompare { cond, args, .. }) => {
            cursor.ins().icmp(cond.complement(), args[0], args[1])
        }
        Some(InstructionData::FloatCompare { cond, args, .. }) => {
            cursor.ins().fcmp(cond.complement(), args[0], args[1])
        }
        _ => cursor.ins().icmp_imm(IntCC::Equal, value, 0),
    }
}

#[cfg(test)]
mod tests {
    use cranelift_codegen::ir::{AbiParam, Function, types};
    use cranelift_codegen::settings;
    use cranelift_frontend::{FunctionBuilder, FunctionBuilderContext};

    use super::*;

    fn put_first(func: Function) -> Function {
        let mut context = Context::for_function(func);
        first(&mut context, &Flags::new(settings::builder())).expect("it is well formed");
        context.func
    }

    /// A loop with a way out in its middle comes to have it first, on the opposite condition.
    #[test]
    fn a_way_out_comes_first() {
        let mut func = Function::new();
        func.signature.params.push(AbiParam::new(types::I32));
        let mut context = FunctionBuilderContext::new();
        let mut b = FunctionBuilder::new(&mut func, &mut context);
        let [begin, head, rest, out] = std::array::from_fn(|_| b.create_block());
        b.append_block_params_for_function_params(begin);
        b.switch_to_block(begin);
        let value = b.block_params(begin)[0];
        b.ins().jump(head, &[]);
        b.switch_to_block(head);
        let seven = b.ins().iconst(types::I32, 7);
        let less = b.ins().icmp(IntCC::SignedLessThan, value, seven);
        b.ins().brif(less, rest, &[], out, &[]);
        b.switch_to_block(rest);
        b.ins().brif(value, out, &[], head, &[]);
        b.switch_to_block(out);
        b.ins().return_(&[]);
        b.seal_all_blocks();
        b.finalize();

        let func = put_first(func);
        let ways = |block| {
            let branch = func.layout.last_inst(block).expect("it is filled");
            let InstructionData::Brif { arg, blocks, .. } = func.dfg.insts[branch] else {
                panic!("it ends with a branch");
            };
            let blocks = blocks.map(|call| call.block(&func.dfg.value_lists));
            (arg, blocks)
        };
        let (not, to) = ways(head);
        assert_eq!(to, [out, rest]);
        let compares = func.dfg.value_def(not).inst().expect("it is computed");
        let cond = func.dfg.insts[compares].cond_code();
        assert_eq!(cond, Some(IntCC::SignedGreaterThanOrEqual));
        // It was so.
        assert_eq!(ways(rest), (value, [out, head]));
    }

    /// Code that cannot be reached leads into two loops.
    #[test]
    fn what_cannot_be_reached_leads_nowhere() {
        let mut func = Function::new();
        func.signature.params.push(AbiParam::new(types::I32));
        let mut context = FunctionBuilderContext::new();
        let mut b = FunctionBuilder::new(&mut func, &mut context);
        let [begin, outer, inner, lost] = std::array::from_fn(|_| b.create_block());
        b.append_block_params_for_function_params(begin);
        b.switch_to_block(begin);
        let value = b.block_params(begin)[0];
        b.ins().jump(outer, &[]);
        b.switch_to_block(outer);
        b.ins().brif(value, outer, &[], inner, &[]);
        b.switch_to_block(inner);
        b.ins().brif(value, outer, &[], inner, &[]);
        b.switch_to_block(lost);
        b.ins().brif(value, outer, &[], inner, &[]);
        b.seal_all_blocks();
        b.finalize();
        let func = put_first(func);
        assert!(!func.layout.is_block_inserted(lost));
    }
}
