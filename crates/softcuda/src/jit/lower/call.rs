//! `call`: a function of the module, of the device, or one behind a pointer.
//!
//! The caller hands over one block of bytes for the results and one for the parameters, each laid
//! out as the callee's signature says; a `.param` variable that is a whole block is handed over
//! itself.

use cranelift_codegen::ir::condcodes::IntCC;
use cranelift_codegen::ir::{InstBuilder, MemFlags, Value, types};
use ptx::ast::{Linkage, Type};

use super::{Lower, device_function, value_type};
use crate::grid::device_functions::declared_right;
use crate::grid::launch::FaultKind;
use crate::jit::code;
use crate::jit::decode::{Arg, Callee, Operation, Reader, Refusal, Symbol};
use crate::jit::layout::Layout;
use crate::jit::object::{Name, Outside};
use crate::jit::program::{FUNCTION_STRIDE, Place, Signature, Targets};
use crate::jit::runtime::RuntimeFn;

#[derive(Debug)]
struct Call {
    target: Target,
    signature: Signature,
    returns: Vec<Arg>,
    params: Vec<Arg>,
}

enum Target {
    Function(u32),
    Device(&'static RuntimeFn),
    Pointer(Arg),
}

impl std::fmt::Debug for Target {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Target::Function(at) => write!(f, "function {at}"),
            Target::Device(function) => f.write_str(function.name),
            Target::Pointer(arg) => write!(f, "{arg:?}"),
        }
    }
}

pub(super) fn decode(reader: &mut Reader<'_>) -> Result<Box<dyn Operation>, Refusal> {
    reader.eat("uni");
    reader.end()?;
    let mut args = reader.args;
    let returns = match args {
        [Arg::List(list), rest @ ..] => {
            args = rest;
            list.clone()
        }
        _ => vec![],
    };
    let [callee, rest @ ..] = args else {
        return Err(reader.invalid("names no function".into()));
    };
    args = rest;
    let params = match args {
        [Arg::List(list), rest @ ..] => {
            args = rest;
            list.clone()
        }
        _ => vec![],
    };
    let (target, signature) = match callee {
        Arg::Symbol(Symbol::Function(at), 0) => {
            let function = &reader.functions[*at as usize];
            if function.kernel {
                return Err(reader.invalid(format!("`{}` is a kernel", function.name)));
            }
            let target = match device_function(&function.name) {
                Some(device) if function.linkage == Linkage::Extern => {
                    let sizes = |layout: &Layout| -> Vec<u64> {
                        layout.fields.iter().map(|field| field.size).collect()
                    };
                    let (returns, params) = (
                        sizes(&function.signature.returns),
                        sizes(&function.signature.params),
                    );
                    if !declared_right(&function.name, &returns, &params) {
                        let what = format!("`{}` is not declared as it is", function.name);
                        return Err(reader.invalid(what));
                    }
                    Target::Device(device)
                }
                _ => Target::Function(*at),
            };
            (target, function.signature.clone())
        }
        Arg::Reg(_) => {
            let signature = match args {
                [Arg::Symbol(Symbol::Table(at), 0)] => match &reader.tables.targets[*at as usize] {
                    Targets::Prototype(signature) => signature.clone(),
                    Targets::Call(functions) => match functions.first() {
                        Some(first) => reader.functions[*first as usize].signature.clone(),
                        None => return Err(reader.invalid("has no targets".into())),
                    },
                    Targets::Branch(_) => {
                        return Err(reader.invalid("takes a prototype or targets".into()));
                    }
                },
                _ => return Err(reader.invalid("takes a prototype or targets".into())),
            };
            (Target::Pointer(callee.clone()), signature)
        }
        _ => return Err(reader.invalid("calls what is no function".into())),
    };
    for (list, layout, what, out) in [
        (&returns, &signature.returns, "results", true),
        (&params, &signature.params, "parameters", false),
    ] {
        if list.len() != layout.fields.len() {
            return Err(reader.invalid(format!(
                "{} {what} are given, and the function has {}",
                list.len(),
                layout.fields.len()
            )));
        }
        if layout.narrow {
            let what = format!("no call passes predicates or integers of 8 or 16 bits as {what}");
            return Err(reader.invalid(what));
        }
        for (arg, field) in list.iter().zip(&layout.fields) {
            let fits = match arg {
                Arg::Symbol(Symbol::Param(at), 0) => {
                    let param = reader.tables.params[*at as usize];
                    param.size == field.size && (!out || !matches!(param.place, Place::Kernel(_)))
                }
                Arg::Reg(id) => {
                    scalar(field.size).is_some() && reader.registers[id.0 as usize] != Type::Pred
                }
                Arg::Imm(_) | Arg::Symbol(..) => !out && scalar(field.size).is_some(),
                Arg::Sink => out,
                _ => false,
            };
            if !fits {
                return Err(reader.invalid(format!("the {what} are not those of the function")));
            }
        }
    }
    Ok(Box::new(Call {
        target,
        signature,
        returns,
        params,
    }))
}

/// The type of a register that is passed as a parameter of this size.
fn scalar(size: u64) -> Option<Type> {
    Some(match size {
        1 => Type::B8,
        2 => Type::B16,
        4 => Type::B32,
        8 => Type::B64,
        16 => Type::B128,
        _ => return None,
    })
}

impl Operation for Call {
    fn lower(&self, l: &mut Lower<'_>) {
        let params = l.call_block(0, &self.signature.params, &self.params);
        if !l.lies_so(&self.signature.params, &self.params) {
            for (arg, field) in self.params.iter().zip(&self.signature.params.fields) {
                match arg {
                    Arg::Symbol(Symbol::Param(at), _) => {
                        let from = l.param_address(*at, 0);
                        let to = l.b.ins().iadd_imm(params, field.offset as i64);
                        l.copy(to, from, field.size, field.align);
                    }
                    arg => {
                        let ty = scalar(field.size).unwrap_or(Type::B64);
                        let value = l.read(arg, ty);
                        l.b.ins()
                            .store(MemFlags::trusted(), value, params, field.offset as i32);
                    }
                }
            }
        }
        let returns = l.call_block(1, &self.signature.returns, &self.returns);
        l.sync_for_call();
        let status = match &self.target {
            Target::Device(function) => {
                let (thread, block) = (l.thread, l.block);
                l.call_value(function, &[thread, block, returns, params])
            }
            Target::Function(at) => {
                let function = l.import(Name::Function(*at));
                let args = [l.thread, l.block, returns, params];
                let call = l.b.ins().call(function, &args);
                l.b.inst_results(call)[0]
            }
            Target::Pointer(pointer) => l.call_pointer(pointer, &self.signature, returns, params),
        };
        l.check_status(status);
        if !l.lies_so(&self.signature.returns, &self.returns) {
            for (arg, field) in self.returns.iter().zip(&self.signature.returns.fields) {
                match arg {
                    Arg::Symbol(Symbol::Param(at), _) => {
                        let to = l.param_address(*at, 0);
                        let from = l.b.ins().iadd_imm(returns, field.offset as i64);
                        l.copy(to, from, field.size, field.align);
                    }
                    arg => {
                        let ty = scalar(field.size).unwrap_or(Type::B64);
                        let offset = field.offset as i32;
                        let value =
                            l.b.ins()
                                .load(value_type(ty), MemFlags::trusted(), returns, offset);
                        l.write(arg, ty, value);
                    }
                }
            }
        }
    }

    fn callee(&self) -> Callee {
        match &self.target {
            Target::Function(at) => Callee::Function(*at),
            Target::Device(_) => Callee::Device,
            Target::Pointer(_) => Callee::Indirect,
        }
    }
}

impl Lower<'_> {
    /// The arguments are `.param` variables of the body that lie as the block is laid out, so they
    /// are the block.
    fn lies_so(&self, layout: &Layout, args: &[Arg]) -> bool {
        let mut start = None;
        args.iter().zip(&layout.fields).all(|(arg, field)| {
            let Arg::Symbol(Symbol::Param(at), _) = arg else {
                return false;
            };
            let Place::Call(at) = self.body.tables.params[*at as usize].place else {
                return false;
            };
            at.checked_sub(field.offset)
                .is_some_and(|at| *start.get_or_insert(at) == at)
        })
    }

    /// The address of the block that these arguments are handed over in: the parameters (0) or the
    /// returns (1).
    fn call_block(&mut self, which: usize, layout: &Layout, args: &[Arg]) -> Value {
        match args {
            [] => self.b.ins().iconst(types::I64, 0),
            [Arg::Symbol(Symbol::Param(at), _), ..] if self.lies_so(layout, args) => {
                self.param_address(*at, 0)
            }
            _ => {
                let size = layout.size.max(1) as u32;
                let slot = match self.call_blocks[which] {
                    Some(slot) => slot,
                    None => super::function::slot(&mut self.b, 0),
                };
                self.call_blocks[which] = Some(slot);
                let data = &mut self.b.func.sized_stack_slots[slot];
                data.size = data.size.max(size);
                self.b.ins().stack_addr(types::I64, slot, 0)
            }
        }
    }

    /// A function's address is a number that only the module's table turns into code: any other
    /// number is a fault.
    fn call_pointer(
        &mut self,
        pointer: &Arg,
        signature: &Signature,
        returns: Value,
        params: Value,
    ) -> Value {
        let pointer = self.read(pointer, Type::B64);
        let length = self.unit.table();
        let base = self.outside(Outside::Functions, 0);
        let index = self.b.ins().isub(pointer, base);
        let index = self
            .b
            .ins()
            .rotr_imm(index, i64::from(FUNCTION_STRIDE.trailing_zeros()));
        let known = self
            .b
            .ins()
            .icmp_imm(IntCC::UnsignedLessThan, index, length as i64);
        let wild = self.cold_block();
        let found = self.fresh_block();
        let call = self.fresh_block();
        self.b.ins().brif(known, found, &[], wild, &[]);
        self.enter(found);
        let at = self
            .b
            .ins()
            .imul_imm(index, size_of::<code::Target>() as i64);
        let table = self.outside(Outside::Table, 0);
        let at = self.b.ins().iadd(table, at);
        let code = self.b.ins().load(
            types::I64,
            MemFlags::trusted(),
            at,
            std::mem::offset_of!(code::Target, code) as i32,
        );
        let blocks = self.b.ins().load(
            types::I64,
            MemFlags::trusted(),
            at,
            std::mem::offset_of!(code::Target, blocks) as i32,
        );
        let wanted = self
            .b
            .ins()
            .iconst(types::I64, code::Target::blocks(signature) as i64);
        let same = self.b.ins().icmp(IntCC::Equal, blocks, wanted);
        self.b.ins().brif(same, call, &[], wild, &[]);
        self.enter(wild);
        let kind = FaultKind::InvalidPc;
        self.fault_at(kind, pointer, 0);
        self.b.ins().jump(call, &[]);
        self.enter(call);
        let signature = self.unit.device_signature();
        let signature = self.b.import_signature(signature);
        let args = [self.thread, self.block, returns, params];
        let call = self.b.ins().call_indirect(signature, code, &args);
        self.b.inst_results(call)[0]
    }
}
