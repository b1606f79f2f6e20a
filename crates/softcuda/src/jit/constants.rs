//! Numbers that a branch gives to a block are made on the way there.
//!
//! Cranelift makes a number once and keeps it. Where one of two ways gives a number to the block in
//! which they join, it then holds a register, or lies on the stack and is loaded: as if every guard
//! of an unrolled loop read its zero from memory. To make it anew costs less than any of that.

use cranelift_codegen::cursor::{Cursor, FuncCursor};
use cranelift_codegen::ir::{
    Block, BlockArg, BlockCall, Function, Inst, InstBuilder, InstructionData, Opcode,
};

/// Puts them there; whether there are new blocks.
pub(super) fn on_the_way(func: &mut Function) -> bool {
    let mut any = false;
    for block in func.layout.blocks().collect::<Vec<_>>() {
        let Some(branch) = func.layout.last_inst(block) else {
            continue;
        };
        let InstructionData::Brif { mut blocks, .. } = func.dfg.insts[branch] else {
            continue;
        };
        for call in &mut blocks {
            let mut args = call.args(&func.dfg.value_lists);
            let gives = args.any(|arg| number(func, arg).is_some());
            drop(args);
            if gives {
                *call = make(func, block, *call);
                any = true;
            }
        }
        if let InstructionData::Brif { blocks: to, .. } = &mut func.dfg.insts[branch] {
            *to = blocks;
        }
    }
    any
}

/// What makes a number of a float.
fn number(func: &Function, arg: BlockArg) -> Option<Inst> {
    let made = func.dfg.value_def(arg.as_value()?).inst()?;
    let opcode = func.dfg.insts[made].opcode();
    matches!(opcode, Opcode::F32const | Opcode::F64const).then_some(made)
}

/// A block on the way from one to where a call leads, which makes the numbers.
fn make(func: &mut Function, from: Block, call: BlockCall) -> BlockCall {
    let to = call.block(&func.dfg.value_lists);
    let on_the_way = func.dfg.make_block();
    func.layout.insert_block_after(on_the_way, from);
    if func.layout.is_cold(to) {
        func.layout.set_cold(on_the_way);
    }
    let args: Vec<BlockArg> = call.args(&func.dfg.value_lists).collect();
    let args: Vec<BlockArg> = args
        .into_iter()
        .map(|arg| match number(func, arg) {
            None => arg,
            Some(made) => {
                let anew = func.dfg.clone_inst(made);
                func.layout.append_inst(anew, on_the_way);
                func.dfg.first_result(anew).into()
            }
        })
        .collect();
    let mut cursor = FuncCursor::new(func).at_bottom(on_the_way);
    cursor.ins().jump(to, &args);
    BlockCall::new(on_the_way, [], &mut func.dfg.value_lists)
}

#[cfg(test)]
mod tests {
    use cranelift_codegen::ir::{AbiParam, types};
    use cranelift_codegen::settings::{self, Flags};
    use cranelift_frontend::{FunctionBuilder, FunctionBuilderContext};

    use super::*;

    /// A guard with a number on one of its ways, which leads to a cold block or not.
    fn guarded(cold: bool) -> Function {
        let mut func = Function::new();
        let params = [types::I32, types::F64].map(AbiParam::new);
        func.signature.params.extend(params);
        func.signature.returns.push(AbiParam::new(types::F64));
        let mut context = FunctionBuilderContext::new();
        let mut b = FunctionBuilder::new(&mut func, &mut context);
        let [begin, inside, join] = std::array::from_fn(|_| b.create_block());
        b.append_block_params_for_function_params(begin);
        let [sum, more] = [(); 2].map(|()| b.append_block_param(join, types::F64));
        b.switch_to_block(begin);
        let [asks, value] = [0, 1].map(|at| b.block_params(begin)[at]);
        let zero = b.ins().f64const(0.0);
        let args = [value.into(), zero.into()];
        b.ins().brif(asks, inside, &[], join, &args);
        b.switch_to_block(inside);
        let twice = b.ins().fadd(value, zero);
        b.ins().jump(join, &[twice.into(), value.into()]);
        b.switch_to_block(join);
        if cold {
            b.set_cold_block(join);
        }
        let sum = b.ins().fadd(sum, more);
        b.ins().return_(&[sum]);
        b.seal_all_blocks();
        b.finalize();
        func
    }

    #[test]
    fn a_way_makes_its_numbers() {
        for cold in [false, true] {
            let mut func = guarded(cold);
            let before = func.layout.blocks().count();
            assert!(on_the_way(&mut func));
            let flags = Flags::new(settings::builder());
            cranelift_codegen::verify_function(&func, &flags).expect("it is well formed");
            assert_eq!(func.layout.blocks().count(), before + 1);
            let new = func
                .layout
                .blocks()
                .nth(1)
                .expect("it lies behind the branch");
            assert_eq!(func.layout.is_cold(new), cold);
            let opcodes = func.layout.block_insts(new);
            let opcodes: Vec<Opcode> = opcodes.map(|at| func.dfg.insts[at].opcode()).collect();
            assert_eq!(opcodes, [Opcode::F64const, Opcode::Jump]);
            // There are no more.
            assert!(!on_the_way(&mut func));
        }
    }
}
