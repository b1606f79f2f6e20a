//! Operations to Cranelift's IR: the state of the function being compiled, and what every family
//! needs of it.
//!
//! | PTX type | value |
//! |---|---|
//! | `.pred` | `I8`, 0 or 1 |
//! | 8, 16, 32, 64 and 128 bit integer and untyped | `I8` to `I128` |
//! | `.f16`, `.bf16` | `I16`, its bits |
//! | `.f16x2`, `.bf16x2` | `I32`, its bits |
//! | `.f32`, `.f64` | `F32`, `F64` |

mod address;
mod arrays;
mod async_copy;
mod atomic;
mod barrier;
pub(crate) mod bit_functions;
pub(crate) mod bits;
mod bulk;
mod call;
mod cluster;
pub(crate) mod compare;
mod control;
pub(crate) mod convert;
pub(crate) mod convert_float;
mod division;
mod entry;
mod fence;
pub(crate) mod float;
mod float_angles;
pub(crate) mod float_approx;
pub(crate) mod float_compare;
mod float_directed;
pub(crate) mod float_modifiers;
mod float_powers;
pub(crate) mod float_sign;
#[cfg(test)]
mod float_tests;
pub(crate) mod float_value;
pub(crate) mod function;
mod groups;
pub(crate) mod half;
pub(crate) mod integer;
mod known;
pub(crate) mod lanes;
mod lop3;
mod matrix;
mod mbarrier;
mod memory;
mod mov;
mod policy;
mod reference;
mod rounds;
mod runs;
mod special;
mod stack;
mod steady;
mod tensor;
mod tiles;
mod video;
mod warp;
mod warpgroup;

use std::collections::HashMap;

use cranelift_codegen::ir::condcodes::IntCC;
use cranelift_codegen::ir::{self, BlockArg, InstBuilder, Value, types};
use cranelift_frontend::{FunctionBuilder, Variable};
use ptx::ast::{Immediate, Type};

use super::compile::Unit;
use super::decode::{Arg, Decode, Operation, Reader, Refusal, RegId, Special, Symbol};
use super::object::{Name, Outside};
use super::program::{Body, FUNCTION_STRIDE, Place};
use super::resolve::fragments::{IN_SHARED, ROWS};
use super::runtime::{self, RuntimeFn};
use crate::grid::context::Mode;
use crate::grid::launch::FaultKind;
use entry::Entry;
use function::Frame;
pub(crate) use groups::PlainAccess;
pub(crate) use memory::WeakAccess;
pub(crate) use runs::Term;
pub(crate) use video::is_video;

/// The decoder of an opcode's family; `None` for an opcode that is not run.
pub(crate) fn decoder(opcode: &str) -> Option<Decode> {
    Some(match opcode {
        "addc" | "subc" | "madc" | "mul24" | "mad24" | "sad" | "rem" => integer::decode,
        "and" | "or" | "xor" | "not" | "cnot" | "lop3" | "shl" | "shr" | "shf" | "popc" | "clz"
        | "bfind" | "brev" | "fns" | "bfe" | "bfi" | "szext" | "bmsk" | "prmt" | "dp4a"
        | "dp2a" => bits::decode,
        name if is_video(name) => video::decode,
        "add" | "sub" | "mul" | "mad" | "fma" | "div" | "min" | "max" | "abs" | "neg" => {
            arithmetic_by_type
        }
        "rcp" | "sqrt" => float::decode_division,
        "rsqrt" | "sin" | "cos" | "lg2" => float_approx::decode,
        "ex2" | "tanh" => approximate_by_type,
        "copysign" => float_sign::decode_copysign,
        "testp" => float_sign::decode_testp,
        "cvt" => convert::decode,
        "set" | "setp" | "selp" | "slct" => compare::decode,
        "ld" | "ldu" => memory::decode_load,
        "st" => memory::decode_store,
        "prefetch" | "prefetchu" | "applypriority" | "discard" => memory::decode_hint,
        "mov" => mov::decode,
        "cvta" => address::decode_cvta,
        "isspacep" => address::decode_isspacep,
        "istypep" => reference::decode,
        "bra" | "brx" | "ret" | "exit" | "trap" | "brkpt" | "nanosleep" | "griddepcontrol"
        | "setmaxnreg" => control::decode,
        "call" => call::decode,
        "alloca" | "stacksave" | "stackrestore" => stack::decode,
        "atom" | "red" => atomic::decode,
        "cp" => async_copy::decode,
        "createpolicy" => policy::decode,
        "mbarrier" => mbarrier::decode,
        "tensormap" => tensor::decode_replace,
        "mapa" | "getctarank" => cluster::decode,
        "bar" | "barrier" => barrier::decode,
        "membar" | "fence" => fence::decode,
        "shfl" | "vote" | "match" | "redux" | "activemask" | "elect" => warp::decode,
        "mma" | "wmma" | "movmatrix" | "ldmatrix" | "stmatrix" | ROWS => matrix::decode,
        IN_SHARED => cluster::decode_in_shared,
        "wgmma" => warpgroup::decode,
        _ => return None,
    })
}

/// Decodes an opcode that integers, singles, doubles and halves share, by its type.
fn arithmetic_by_type(r: &mut Reader<'_>) -> Result<Box<dyn Operation>, Refusal> {
    match r.last_type() {
        Some(Type::F32 | Type::F64) => match r.opcode {
            "add" | "sub" | "mul" | "mad" | "fma" => float::decode_arithmetic(r),
            "div" => float::decode_division(r),
            "min" | "max" => float_sign::decode_extremum(r),
            _ => float_sign::decode_sign(r),
        },
        Some(Type::F16 | Type::Bf16 | Type::F16x2 | Type::Bf16x2) => half::decode(r),
        Some(Type::F32x2) => Err(r.invalid("packed singles is of sm_100".into())),
        _ => integer::decode(r),
    }
}

/// Decodes an approximate function of singles and halves.
fn approximate_by_type(r: &mut Reader<'_>) -> Result<Box<dyn Operation>, Refusal> {
    match r.last_type() {
        Some(Type::F16 | Type::Bf16 | Type::F16x2 | Type::Bf16x2) => half::decode(r),
        _ => float_approx::decode(r),
    }
}

/// A function that the device brings, called as any other: `(thread, block, returns, params) ->
/// Status`.
pub(crate) fn device_function(name: &str) -> Option<&'static RuntimeFn> {
    crate::grid::device_functions::device_function(name)
}

/// The type of the value that carries a PTX type.
pub(crate) fn value_type(ty: Type) -> ir::Type {
    use Type::*;
    match ty {
        Pred | B8 | U8 | S8 | E4m3 | E5m2 => types::I8,
        B16 | U16 | S16 | F16 | Bf16 | E4m3x2 | E5m2x2 => types::I16,
        B32 | U32 | S32 | F16x2 | Bf16x2 | Tf32 | U16x2 | S16x2 => types::I32,
        B64 | U64 | S64 | F32x2 | Texref | Samplerref | Surfref => types::I64,
        B128 => types::I128,
        F32 => types::F32,
        F64 => types::F64,
    }
}

/// A signed integer type: its values are sign-extended.
pub(crate) fn is_signed(ty: Type) -> bool {
    matches!(ty, Type::S8 | Type::S16 | Type::S32 | Type::S64)
}

/// The function being compiled.
pub(crate) struct Lower<'a> {
    /// Cranelift's builder, in the block where the next operation goes.
    pub b: FunctionBuilder<'a>,
    /// The `ThreadContext` pointer.
    pub thread: Value,
    /// The `BlockContext` pointer.
    pub block: Value,
    /// The carry flag `CC.CF`, once an instruction has used it.
    pub carry: Option<Variable>,
    /// The instruction being lowered sees the bits of a NaN.
    reads_bits: bool,
    /// What is checked is the address of a [sum](crate::grid::sums).
    sum: bool,
    unit: &'a mut Unit,
    body: &'a Body,
    frame: Frame,
    registers: Vec<Option<Variable>>,
    register_types: Vec<ir::Type>,
    labels: Vec<ir::Block>,
    /// Where the parameters that are [`Place::Call`] lie.
    call_area: ir::StackSlot,
    /// Where calls gather their parameters and returns, when those do not lie together.
    call_blocks: [Option<ir::StackSlot>; 2],
    /// Takes a status other than `CONTINUE`, and ends the thread.
    leave: ir::Block,
    /// Of a kernel that runs its block in rounds.
    rounds: Option<rounds::Rounds>,
    /// Of a kernel that has a vector form.
    lanes: Option<lanes::Lanes>,
    entry: entry::Entries,
    groups: groups::Groups,
    /// The group of the access being lowered.
    group: Option<u32>,
    runs: runs::Runs,
    /// The step being lowered.
    step: u32,
    /// By step of a loop, how far from what a thread accesses something is fetched, in bytes.
    streams: HashMap<u32, i64>,
    /// The steps where threads wait at `mbarrier`s alone.
    mbarrier_waits: Vec<u32>,
    /// For each run of accesses, whether it is checked.
    runs_checked: Vec<bool>,
    /// The last step where threads that parted from their group may come in: what is not live there
    /// they do not have.
    entered: u32,
    steady: steady::Steady,
    /// For each group, the host address of its lowest access, once that is checked.
    group_bases: Vec<Option<Value>>,
    imports: HashMap<Name, ir::FuncRef>,
    /// Addresses outside of the code, with what is added to them.
    outside: HashMap<(Outside, i64), ir::GlobalValue>,
}

impl Lower<'_> {
    /// The operand as a value of type `ty` (see the table above). A register wider than `ty` gives
    /// its low bits; the bits of a register of another type of the same width are taken as they
    /// are.
    pub fn read(&mut self, arg: &Arg, ty: Type) -> Value {
        let want = value_type(ty);
        match arg {
            Arg::Reg(id) if self.in_vectors() => self.read_vector(*id, ty),
            Arg::Reg(id) => {
                let value = self.held(*id);
                if ty == Type::Pred && self.b.func.dfg.value_type(value) != types::I8 {
                    let bits = self.as_int(value);
                    return self.b.ins().icmp_imm(IntCC::NotEqual, bits, 0);
                }
                let value = match self.is_short(*id) {
                    true => self.fit(value, types::I16, false),
                    false => value,
                };
                self.fit(value, want, is_signed(ty))
            }
            Arg::Imm(immediate) => {
                let value = self.immediate(*immediate, ty);
                self.spread(value)
            }
            Arg::Symbol(symbol, offset) => {
                let address = self.symbol(*symbol, *offset);
                let address = self.fit(address, want, false);
                self.spread(address)
            }
            Arg::Special(Special::Tid(n @ 0..3)) if self.in_vectors() && self.goes_across() => {
                self.lane_tids(*n)
            }
            Arg::Special(special) => {
                let value = self.special(*special);
                let value = self.fit(value, want, false);
                self.special_in_vectors(value, *special == Special::Tid(0))
            }
            Arg::Address(..) => {
                let address = self.address(arg);
                self.fit(address, want, false)
            }
            Arg::Not(arg) => {
                let value = self.read(arg, Type::Pred);
                let value = self.not(value);
                match self.in_vectors() {
                    true => value,
                    false => self.fit(value, want, false),
                }
            }
            Arg::SpecialVector(_)
            | Arg::Part(..)
            | Arg::Vector(_)
            | Arg::Pair(..)
            | Arg::List(_)
            | Arg::Sink => {
                let zero = self.zero(want);
                self.spread(zero)
            }
        }
    }

    /// What a register holds, with the NaN that the device gives where that can be seen.
    fn held(&mut self, id: RegId) -> Value {
        let value = match (self.form(), self.held_number(id)) {
            (lanes::Form::Thread, Some((ty, number))) => {
                let value = self.immediate(number, ty);
                self.fit_register(value, id, is_signed(ty))
            }
            (lanes::Form::Thread, None) => {
                let variable = self.variable(id);
                self.b.use_var(variable)
            }
            _ => self.held_in_group(id),
        };
        match self.reads_bits && self.body.tables.lazy_nans[id.0 as usize] {
            true => float_value::canonical_f32(self, value),
            false => value,
        }
    }

    /// Puts a value of type `ty` into a destination. A wider register gets it sign-extended where
    /// `ty` is signed, otherwise zero-extended. [`Arg::Sink`] drops it.
    pub fn write(&mut self, arg: &Arg, ty: Type, value: Value) {
        if let Arg::Reg(id) = arg {
            let value = match self.in_vectors() {
                true => value,
                false => self.fit_register(value, *id, is_signed(ty)),
            };
            self.put(*id, value);
        }
    }

    /// Puts a value of the register's own type into it.
    fn put(&mut self, id: RegId, value: Value) {
        match self.form() {
            lanes::Form::Thread => {
                let variable = self.variable(id);
                self.b.def_var(variable, value);
            }
            _ => self.put_in_group(id, value),
        }
    }

    /// The type of the value that a register holds: `F32` and `F64` also for an untyped register
    /// that floats mostly go through. Reading and writing it as this type costs nothing.
    pub fn held_type(&self, arg: &Arg) -> Option<ir::Type> {
        match arg {
            Arg::Reg(id) => Some(self.register_types[id.0 as usize]),
            _ => None,
        }
    }

    /// Calls a runtime function.
    pub fn call(&mut self, function: &'static RuntimeFn, args: &[Value]) -> Option<Value> {
        if args.contains(&self.thread) {
            self.sync();
        }
        let function = self.runtime(function);
        let call = self.b.ins().call(function, args);
        self.b.inst_results(call).first().copied()
    }

    /// Calls a runtime function that has a result.
    pub fn call_value(&mut self, function: &'static RuntimeFn, args: &[Value]) -> Value {
        self.call(function, args)
            .expect("the caller names a function with a result")
    }

    /// Calls a runtime function with a status, whose first argument is the thread, where that
    /// rarely happens: the call costs the code around it no registers. Goes on in `next`, or leaves
    /// the function.
    pub fn cold_call(&mut self, function: &'static RuntimeFn, args: &[Value], next: ir::Block) {
        let status = self.cold_status(function, args);
        let leave = self.leave;
        self.b
            .ins()
            .brif(status, leave, &[BlockArg::Value(status)], next, &[]);
    }

    /// The same, where the status is never to go on: nothing that is held outlives the call.
    pub fn last_call(&mut self, function: &'static RuntimeFn, args: &[Value]) {
        let status = self.cold_status(function, args);
        let leave = self.leave;
        self.b.ins().jump(leave, &[BlockArg::Value(status)]);
    }

    fn cold_status(&mut self, function: &'static RuntimeFn, args: &[Value]) -> Value {
        self.sync();
        let function = self.unit.cold(function);
        let function = self.import(function);
        self.b.ins().call(function, args);
        let offset = std::mem::offset_of!(crate::grid::context::ThreadContext, status);
        self.thread_field(types::I32, offset)
    }

    /// Leaves the function with `status` unless it is `CONTINUE`.
    pub fn check_status(&mut self, status: Value) {
        let next = self.fresh_block();
        let leave = self.leave;
        self.b
            .ins()
            .brif(status, leave, &[BlockArg::Value(status)], next, &[]);
        self.enter(next);
    }

    /// Ends the thread with a fault; what is lowered next is not reached.
    pub fn fault(&mut self, kind: FaultKind) {
        let zero = self.b.ins().iconst(types::I64, 0);
        self.fault_at(kind, zero, 0);
    }

    /// The same, for an access.
    pub fn fault_at(&mut self, kind: FaultKind, address: Value, size: u32) {
        let kind = self.b.ins().iconst(types::I32, kind as i64);
        let size = self.b.ins().iconst(types::I32, i64::from(size));
        let (thread, block) = (self.thread, self.block);
        let status = self.call_value(
            &super::runtime::access::FAULT,
            &[thread, block, kind, address, size],
        );
        self.leave_with(status);
    }

    /// Ends the thread with a status other than `CONTINUE`; what is lowered next is not reached.
    pub fn leave_with(&mut self, status: Value) {
        let leave = self.leave;
        self.b.ins().jump(leave, &[BlockArg::Value(status)]);
        let next = self.fresh_block();
        self.enter(next);
    }

    /// The kernel runs its threads as fibers.
    pub fn fibers(&self) -> bool {
        self.unit.mode == Mode::Fibers
    }

    /// A block that the caller will jump to, all of it before it is [entered](Self::enter). It
    /// rarely runs where the builder's does.
    pub fn fresh_block(&mut self) -> ir::Block {
        let here = self.b.current_block();
        let seldom = here.is_some_and(|here| self.b.func.layout.is_cold(here));
        let block = self.b.create_block();
        if seldom {
            self.b.set_cold_block(block);
        }
        block
    }

    /// The same, for what rarely runs.
    pub fn cold_block(&mut self) -> ir::Block {
        let block = self.b.create_block();
        self.b.set_cold_block(block);
        block
    }

    /// Goes on in a block whose jumps are all made.
    pub fn enter(&mut self, block: ir::Block) {
        self.b.switch_to_block(block);
        self.b.seal_block(block);
    }

    /// A value's bits in another type: bits as they are between float and integer, then cut or
    /// extended.
    pub fn fit(&mut self, value: Value, want: ir::Type, signed: bool) -> Value {
        let have = self.b.func.dfg.value_type(value);
        if have == want {
            return value;
        }
        let value = self.as_int(value);
        let have = self.b.func.dfg.value_type(value);
        let bits = ir::Type::int(want.bits() as u16).expect("values are of 8 to 128 bits");
        let value = if have.bits() > bits.bits() {
            self.b.ins().ireduce(bits, value)
        } else if have.bits() == bits.bits() {
            value
        } else if signed {
            self.b.ins().sextend(bits, value)
        } else {
            self.b.ins().uextend(bits, value)
        };
        if want.is_float() {
            self.b.ins().bitcast(want, ir::MemFlags::new(), value)
        } else {
            value
        }
    }

    /// A value as a register holds it.
    pub fn fit_register(&mut self, value: Value, id: RegId, signed: bool) -> Value {
        let want = self.register_types[id.0 as usize];
        match self.is_short(id) {
            true => {
                let value = self.fit(value, types::I16, signed);
                self.fit(value, want, false)
            }
            false => self.fit(value, want, signed),
        }
    }

    /// The register has 16 bits. It holds them in a word whose upper half is zero, so that a group
    /// has them in vectors beside other words.
    pub fn is_short(&self, id: RegId) -> bool {
        value_type(self.body.tables.registers[id.0 as usize]) == types::I16
    }

    /// The bits of a float as an integer; an integer as it is.
    fn as_int(&mut self, value: Value) -> Value {
        let have = self.b.func.dfg.value_type(value);
        if have.is_int() {
            return value;
        }
        let bits = ir::Type::int(have.bits() as u16).expect("floats have 32 or 64 bits");
        self.b.ins().bitcast(bits, ir::MemFlags::new(), value)
    }

    /// Zero of a type.
    pub fn zero(&mut self, ty: ir::Type) -> Value {
        match ty {
            types::F32 => self.b.ins().f32const(0.0),
            types::F64 => self.b.ins().f64const(0.0),
            types::I128 => {
                let zero = self.b.ins().iconst(types::I64, 0);
                self.b.ins().uextend(types::I128, zero)
            }
            ty => self.b.ins().iconst(ty, 0),
        }
    }

    /// A number as PTX takes it in a place of type `ty`.
    fn immediate(&mut self, immediate: Immediate, ty: Type) -> Value {
        // A float literal in an untyped place of half its size is rounded; elsewhere it gives its
        // bits.
        let want = value_type(ty);
        match want {
            types::F32 => self.b.ins().f32const(match immediate {
                Immediate::Int { bits, signed } => number(bits, signed) as f32,
                Immediate::F32(bits) => f32::from_bits(bits),
                Immediate::F64(bits) => f64::from_bits(bits) as f32,
            }),
            types::F64 => self.b.ins().f64const(match immediate {
                Immediate::Int { bits, signed } => number(bits, signed),
                Immediate::F32(bits) => f64::from(f32::from_bits(bits)),
                Immediate::F64(bits) => f64::from_bits(bits),
            }),
            _ => {
                let bits = match immediate {
                    Immediate::Int { bits, .. } => bits,
                    Immediate::F32(bits) => u64::from(bits),
                    Immediate::F64(bits) if want == types::I32 => {
                        u64::from((f64::from_bits(bits) as f32).to_bits())
                    }
                    Immediate::F64(bits) => bits,
                };
                if ty == Type::Pred {
                    return self.b.ins().iconst(types::I8, i64::from(bits != 0));
                }
                if want == types::I128 {
                    let low = self.b.ins().iconst(types::I64, bits as i64);
                    return self.b.ins().uextend(types::I128, low);
                }
                let shift = 64 - want.bits();
                // Cranelift wants constants without bits beyond their type.
                let bits = bits << shift >> shift;
                self.b.ins().iconst(want, bits as i64)
            }
        }
    }

    fn variable(&mut self, id: RegId) -> Variable {
        let at = id.0 as usize;
        if let Some(variable) = self.registers[at] {
            return variable;
        }
        let variable = self.b.declare_var(self.register_types[at]);
        self.registers[at] = Some(variable);
        variable
    }

    fn import(&mut self, function: Name) -> ir::FuncRef {
        if let Some(reference) = self.imports.get(&function) {
            return *reference;
        }
        let reference = self.unit.import(function, self.b.func);
        self.imports.insert(function, reference);
        reference
    }

    fn runtime(&mut self, function: &'static RuntimeFn) -> ir::FuncRef {
        let number = runtime::number(function);
        self.import(Name::Outside(Outside::Runtime(number)))
    }

    /// An address outside of the code, filled in when it is loaded, with `offset` added to it.
    fn outside(&mut self, of: Outside, offset: i64) -> Value {
        let known = self.outside.get(&(of, offset)).copied();
        let global = known.unwrap_or_else(|| {
            let function = &mut *self.b.func;
            let external = Name::Outside(of).external();
            let external = function.declare_imported_user_function(external);
            function.create_global_value(ir::GlobalValueData::Symbol {
                name: ir::ExternalName::user(external),
                offset: offset.into(),
                colocated: false,
                tls: false,
            })
        });
        self.outside.insert((of, offset), global);
        self.b.ins().symbol_value(types::I64, global)
    }

    /// The address of a symbol, in the state space that it is in.
    fn symbol(&mut self, symbol: Symbol, offset: i64) -> Value {
        let address = match symbol {
            Symbol::Global(at) => return self.outside(Outside::Global(at), offset),
            Symbol::Shared(at) => self.unit.shared.offset(at),
            Symbol::Local(at) => {
                let local = self.body.tables.locals[at as usize];
                return self.frame_address(local.offset as i64, offset);
            }
            Symbol::Param(at) => {
                let param = self.body.tables.params[at as usize];
                match (param.place, param.copy) {
                    (Place::Kernel(at), _) => at,
                    (_, Some(copy)) => return self.frame_address(copy as i64, offset),
                    _ => 0,
                }
            }
            Symbol::Function(at) => {
                let from_first = FUNCTION_STRIDE * u64::from(at);
                let offset = offset.wrapping_add_unsigned(from_first);
                return self.outside(Outside::Functions, offset);
            }
            Symbol::Label(_) | Symbol::Table(_) => 0,
        };
        self.b
            .ins()
            .iconst(types::I64, address.wrapping_add_signed(offset) as i64)
    }

    /// The local address of what lies at an offset in the function's frame.
    fn frame_address(&mut self, at: i64, offset: i64) -> Value {
        let frame = self.entry(Entry::Frame);
        self.b.ins().iadd_imm(frame, at.wrapping_add(offset))
    }
}

/// An integer literal's value.
fn number(bits: u64, signed: bool) -> f64 {
    if signed {
        bits as i64 as f64
    } else {
        bits as f64
    }
}
