//! `ld` and `st`, and the hints to caches that have nothing to do here.
//!
//! Ordered loads (`.volatile`, `.relaxed`, `.acquire`, `.mmio`) are atomic ones, which the compiler
//! neither merges nor moves; on x86-64 they cost what plain ones do. Stores are never merged or
//! moved by the compiler. Ordered accesses of `.b128` are calls: Cranelift would make two of each.
//! Elements of vectors are accesses of their own, as PTX has it.

use cranelift_codegen::ir::{InstBuilder, MemFlags, Type as ValueType, Value, types};
use ptx::ast::{Space, Type};

use super::cluster::Reach;
use super::{Lower, PlainAccess, bulk, value_type};
use crate::grid::atomic;
use crate::jit::decode::{Arg, MemoryPlace, Operation, Reader, Refusal, Symbol, Takes};
use crate::jit::program::Place;

#[derive(Debug)]
struct Access {
    reach: Reach,
    ordered: bool,
    release: bool,
    /// `.nc`, or of constants: no thread writes there while the kernel runs.
    constant: bool,
    ty: Type,
    /// One, or the elements of a vector.
    registers: Vec<Arg>,
    address: Arg,
    /// The address is in a parameter of the kernel.
    parameter: bool,
}

/// A load or store that no other thread may look at meanwhile.
#[derive(Clone, Copy, Debug)]
pub(crate) struct WeakAccess<'a> {
    /// Of shared memory; otherwise of global memory.
    pub shared: bool,
    /// One, or the elements of a vector.
    pub registers: &'a [Arg],
    /// Of each.
    pub ty: Type,
}

#[derive(Debug)]
struct Load(Access);

#[derive(Debug)]
struct Store(Access);

#[derive(Debug)]
struct Hint;

/// `ld{.weak, .volatile, .relaxed.scope, .acquire.scope}{.ss}{caching}{.nc}{caching}{.vec}.type d,
/// [a]{, policy}`
pub(super) fn decode_load(reader: &mut Reader<'_>) -> Result<Box<dyn Operation>, Refusal> {
    let access = access(reader, false)?;
    Ok(Box::new(Load(access)))
}

/// `st{.weak, .volatile, .relaxed.scope, .release.scope}{.ss}{caching}{.vec}.type [a], b{, policy}`
pub(super) fn decode_store(reader: &mut Reader<'_>) -> Result<Box<dyn Operation>, Refusal> {
    if reader.peek() == Some("async") {
        return bulk::decode_store(reader);
    }
    let access = access(reader, true)?;
    Ok(Box::new(Store(access)))
}

/// `prefetch`, `prefetchu`, `applypriority`, `discard`
pub(super) fn decode_hint(reader: &mut Reader<'_>) -> Result<Box<dyn Operation>, Refusal> {
    reader.eat_any(&[("global", ()), ("local", ()), ("const", ()), ("param", ())]);
    while let Some(modifier) = reader.peek()
        && (cache_hint(modifier) || matches!(modifier, "L1" | "L2" | "tensormap"))
    {
        reader.eat(modifier);
    }
    reader.end()?;
    Ok(Box::new(Hint))
}

impl Operation for Hint {
    fn lower(&self, _: &mut Lower<'_>) {}
}

fn cache_hint(modifier: &str) -> bool {
    matches!(
        modifier,
        "ca" | "cg" | "cs" | "lu" | "cv" | "wb" | "wt" | "nc" | "unified"
    ) || modifier.starts_with("L1::")
        || modifier.starts_with("L2::")
        || modifier.starts_with("level::")
}

fn access(reader: &mut Reader<'_>, store: bool) -> Result<Access, Refusal> {
    const SCOPES: &[(&str, ())] = &[("cta", ()), ("cluster", ()), ("gpu", ()), ("sys", ())];
    let volatile = reader.eat("volatile");
    let mut ordered = reader.eat("mmio") || volatile;
    let mut release = false;
    let takes_scope = if reader.eat("relaxed") || (!store && reader.eat("acquire")) {
        ordered = true;
        true
    } else if store && reader.eat("release") {
        release = true;
        true
    } else {
        if !ordered {
            reader.eat("weak");
        }
        false
    };
    if reader.eat_any(SCOPES).is_some() != takes_scope {
        return Err(reader.invalid("a memory order and a scope go together".into()));
    }
    let reach = Reach::of(reader);
    let space = reach.space();
    // What no other thread sees, or writes, is in no order; from 9.1 on `.local` may be volatile.
    let own = match space {
        Some(Space::Const | Space::Param) => true,
        Some(Space::Local) => !volatile,
        _ => false,
    };
    let weak = !ordered && !release;
    if own && !weak {
        return Err(reader.invalid("takes no memory order in this state space".into()));
    }
    let mut constant = space == Some(Space::Const);
    while let Some(modifier) = reader.peek()
        && cache_hint(modifier)
    {
        let fits = match modifier {
            "nc" => weak && space == Some(Space::Global),
            "ca" | "cg" | "cs" | "lu" | "cv" | "wb" | "wt" => weak,
            "L2::64B" | "L2::128B" | "L2::256B" => true,
            _ => !volatile,
        };
        if !fits {
            return Err(reader.invalid(format!("modifier .{modifier} is not allowed here")));
        }
        constant |= modifier == "nc";
        reader.eat(modifier);
    }
    let vector = reader.eat_any(&[("v2", 2), ("v4", 4), ("v8", 8)]);
    let ty = reader.ty()?;
    reader.end()?;
    if ty == Type::Pred {
        return Err(reader.invalid("there is no memory of predicates".into()));
    }
    if !matches!(ty.name().as_bytes(), [b'b' | b'u' | b's', b'0'..=b'9', ..])
        && !matches!(ty, Type::F32 | Type::F64)
    {
        return Err(reader.invalid(format!("does not know type .{}", ty.name())));
    }
    // The cache policy is a hint, too.
    let (register, address) = match (reader.args, store) {
        ([register, address] | [register, address, _], false)
        | ([address, register] | [address, register, _], true) => (register, address),
        _ => return Err(reader.invalid("takes a register and an address".into())),
    };
    let registers = match (register, vector) {
        (Arg::Vector(registers), Some(n)) if registers.len() == n => registers.clone(),
        (Arg::Vector(registers), None) if registers.len() == 1 => registers.clone(),
        (Arg::Vector(_), _) | (_, Some(_)) => {
            return Err(
                reader.invalid("the vector has not as many elements as the instruction".into())
            );
        }
        (register, None) => vec![register.clone()],
    };
    match register {
        Arg::Symbol(..) if store => {}
        register if store => reader.check(&[(register, Takes::Stored(ty))])?,
        register => reader.check(&[(register, Takes::Loaded(ty))])?,
    }
    let size = u64::from(ty.size()) * registers.len() as u64;
    if !matches!(size, 1 | 2 | 4 | 8 | 16 | 32) {
        return Err(reader.invalid(format!("cannot access {size} bytes")));
    }
    if !matches!(address, Arg::Address(..)) {
        return Err(reader.invalid("takes an address in brackets".into()));
    }
    check_param(reader, address, space, size, store)?;
    if store && space == Some(Space::Const) {
        return Err(reader.invalid("constant memory cannot be written".into()));
    }
    Ok(Access {
        reach,
        ordered,
        release,
        constant,
        ty,
        registers,
        address: address.clone(),
        parameter: matches!(address, Arg::Address(base, _)
            if matches!(**base, Arg::Symbol(Symbol::Param(at), _)
                if matches!(reader.tables.params[at as usize].place, Place::Kernel(_)))),
    })
}

/// A parameter that is named is accessed within its bounds, and a kernel's is not written.
fn check_param(
    reader: &Reader<'_>,
    address: &Arg,
    space: Option<Space>,
    size: u64,
    store: bool,
) -> Result<(), Refusal> {
    let Arg::Address(base, offset) = address else {
        return Ok(());
    };
    let Arg::Symbol(Symbol::Param(at), more) = **base else {
        if store && space == Some(Space::Param) {
            return Err(reader.invalid("only a named parameter can be written".into()));
        }
        return Ok(());
    };
    let param = reader.tables.params[at as usize];
    if store && matches!(param.place, Place::Kernel(_)) {
        return Err(reader.invalid("a kernel's parameter cannot be written".into()));
    }
    let offset = offset.wrapping_add(more);
    let fits = u64::try_from(offset).is_ok_and(|offset| offset.saturating_add(size) <= param.size);
    if !fits {
        return Err(reader.invalid(format!(
            "{size} bytes at {offset} are outside the parameter"
        )));
    }
    Ok(())
}

impl Access {
    fn size(&self) -> u32 {
        self.ty.size() * self.registers.len() as u32
    }

    /// For the check of several accesses in one.
    fn plain(&self, write: bool) -> Option<PlainAccess> {
        let Arg::Address(base, offset) = &self.address else {
            return None;
        };
        match **base {
            Arg::Reg(base) if !self.ordered => {
                let space = match self.reach {
                    Reach::Own(Some(Space::Param)) | Reach::Cluster => return None,
                    Reach::Own(space) => space,
                };
                Some(PlainAccess {
                    base,
                    offset: *offset,
                    space,
                    size: self.size(),
                    write,
                })
            }
            _ => None,
        }
    }

    fn weak(&self) -> Option<WeakAccess<'_>> {
        let shared = match self.reach {
            Reach::Own(Some(Space::Shared)) => true,
            Reach::Own(Some(Space::Global)) => false,
            _ => return None,
        };
        let weak = !self.ordered && !self.release;
        weak.then_some(WeakAccess {
            shared,
            registers: &self.registers,
            ty: self.ty,
        })
    }

    /// Threads that run at the same time may access it.
    fn is_shared_widely(&self) -> bool {
        matches!(self.reach.space(), None | Some(Space::Global))
    }

    fn is_param(&self) -> bool {
        matches!(&self.address, Arg::Address(base, _) if matches!(**base, Arg::Symbol(Symbol::Param(_), _)))
    }

    /// The type to access memory by: the register's own, where that saves a move between register
    /// files.
    fn held(&self, l: &Lower<'_>, register: &Arg) -> ValueType {
        let ty = value_type(self.ty);
        match l.held_type(register) {
            Some(held) if held.bits() == ty.bits() => held,
            _ => ty,
        }
    }
}

impl Operation for Load {
    fn lower(&self, l: &mut Lower<'_>) {
        let access = &self.0;
        if access.ordered {
            l.poll();
        }
        let address = l.reached_address(&access.address, access.reach, access.size(), false);
        let kernel_param =
            access.is_param() && !matches!(l.frame, super::function::Frame::Device { .. });
        let flags = if kernel_param && l.names_kernel_param(&access.address) {
            MemFlags::trusted().with_readonly().with_can_move()
        } else {
            MemFlags::trusted()
        };
        // All are loaded before any is written: the address may be in one of them.
        let values: Vec<Value> = access
            .registers
            .iter()
            .enumerate()
            .map(|(n, register)| {
                let held = access.held(l, register);
                let offset = n as i32 * access.ty.size() as i32;
                if access.ordered && held == types::I128 && access.is_shared_widely() {
                    let address = l.b.ins().iadd_imm(address, i64::from(offset));
                    l.load_wide(address)
                } else if access.ordered && held != types::I128 {
                    let address = l.b.ins().iadd_imm(address, i64::from(offset));
                    let bits = ValueType::int(held.bits() as u16).expect("8 to 64 bits");
                    let value = l.b.ins().atomic_load(bits, flags, address);
                    l.fit(value, held, false)
                } else {
                    l.b.ins().load(held, flags, address, offset)
                }
            })
            .collect();
        for (register, value) in access.registers.iter().zip(values) {
            l.write(register, access.ty, value);
        }
    }

    fn polls(&self) -> bool {
        self.0.ordered
    }

    fn uses_local(&self) -> bool {
        self.0.reach == Reach::Own(Some(Space::Local))
    }

    fn reaches(&self) -> bool {
        self.0.reach == Reach::Cluster
    }

    fn only_loads(&self) -> bool {
        true
    }

    fn tells_nobody(&self) -> bool {
        !self.0.ordered
    }

    fn loads_constant(&self) -> bool {
        self.0.constant || self.loads_parameter()
    }

    fn loads_place(&self) -> Option<MemoryPlace<'_>> {
        let space = match self.0.reach {
            Reach::Own(space @ (None | Some(Space::Global | Space::Shared))) => space,
            _ => return None,
        };
        let float = matches!(self.0.ty, Type::F32 | Type::F64);
        let whole = self.0.registers.len() == 1 && !float;
        (whole && !self.0.constant).then_some(MemoryPlace {
            address: &self.0.address,
            shared: space == Some(Space::Shared),
            size: self.0.ty.size(),
        })
    }

    fn loads_parameter(&self) -> bool {
        self.0.parameter && !self.0.ordered
    }

    fn loads_pointer(&self) -> Option<(u32, i64)> {
        let Arg::Address(base, offset) = &self.0.address else {
            return None;
        };
        let Arg::Symbol(Symbol::Param(at), more) = **base else {
            return None;
        };
        let is_one = self.loads_parameter() && self.0.registers.len() == 1 && self.0.ty.size() == 8;
        is_one.then_some((at, offset.checked_add(more)?))
    }

    fn loads(&self) -> bool {
        !self.0.ordered && self.0.reach != Reach::Own(Some(Space::Local))
    }

    fn lower_row(&self, l: &mut Lower<'_>, stride: i64) {
        let access = &self.0;
        let (address, space) = (&access.address, access.reach.space());
        let from =
            l.once_for_slices(|l| l.row_address(address, space, access.size(), false, stride));
        l.load_rows(&access.registers, access.ty, from, stride);
    }

    fn plain_access(&self) -> Option<PlainAccess> {
        self.0.plain(false)
    }

    fn weak_access(&self) -> Option<WeakAccess<'_>> {
        self.0.weak()
    }
}

impl Operation for Store {
    fn stores_weakly(&self) -> bool {
        !self.0.ordered && !self.0.release
    }

    fn tells_nobody(&self) -> bool {
        self.stores_weakly()
    }

    fn lower(&self, l: &mut Lower<'_>) {
        let access = &self.0;
        let values: Vec<Value> = access
            .registers
            .iter()
            .map(|register| {
                let held = access.held(l, register);
                if l.held_type(register) == Some(held) && held != value_type(access.ty) {
                    l.read_held(register)
                } else {
                    l.read(register, access.ty)
                }
            })
            .collect();
        let address = l.reached_address(&access.address, access.reach, access.size(), true);
        for (n, value) in values.into_iter().enumerate() {
            let offset = n as i32 * access.ty.size() as i32;
            let wide = l.b.func.dfg.value_type(value) == types::I128;
            if wide && (access.ordered || access.release) && access.is_shared_widely() {
                let address = l.b.ins().iadd_imm(address, i64::from(offset));
                let (low, high) = l.b.ins().isplit(value);
                l.call(&atomic::STORE_B128, &[address, low, high]);
            } else if access.release && !cfg!(target_arch = "x86_64") {
                let address = l.b.ins().iadd_imm(address, i64::from(offset));
                let ty = l.b.func.dfg.value_type(value);
                let bits = l.fit(
                    value,
                    ValueType::int(ty.bits() as u16).expect("8 to 64 bits"),
                    false,
                );
                l.b.ins().atomic_store(MemFlags::trusted(), bits, address);
            } else {
                // On x86-64 every store is a release.
                l.b.ins().store(MemFlags::trusted(), value, address, offset);
            }
        }
    }

    fn uses_local(&self) -> bool {
        self.0.reach == Reach::Own(Some(Space::Local))
    }

    fn reaches(&self) -> bool {
        self.0.reach == Reach::Cluster
    }

    fn lower_row(&self, l: &mut Lower<'_>, stride: i64) {
        let access = &self.0;
        let (address, space) = (&access.address, access.reach.space());
        let to = l.row_address(address, space, access.size(), true, stride);
        l.store_rows(&access.registers, access.ty, to, stride);
    }

    fn plain_access(&self) -> Option<PlainAccess> {
        self.0.plain(true)
    }

    fn weak_access(&self) -> Option<WeakAccess<'_>> {
        self.0.weak()
    }
}

impl Lower<'_> {
    /// An ordered load of 128 bits.
    fn load_wide(&mut self, address: Value) -> Value {
        let slot = super::function::slot(&mut self.b, 16);
        let to = self.b.ins().stack_addr(types::I64, slot, 0);
        self.call(&atomic::LOAD_B128, &[address, to]);
        let low = self.b.ins().stack_load(types::I64, slot, 0);
        let high = self.b.ins().stack_load(types::I64, slot, 8);
        self.b.ins().iconcat(low, high)
    }

    /// A register's value as it is held.
    fn read_held(&mut self, register: &Arg) -> Value {
        match register {
            Arg::Reg(id) => self.held(*id),
            other => self.read(other, Type::B64),
        }
    }

    /// The address is in a named parameter of the kernel.
    fn names_kernel_param(&self, address: &Arg) -> bool {
        let Arg::Address(base, _) = address else {
            return false;
        };
        let Arg::Symbol(Symbol::Param(at), _) = **base else {
            return false;
        };
        matches!(self.body.tables.params[at as usize].place, Place::Kernel(_))
    }

    /// Copies bytes from host address to host address; both are aligned to `align`.
    pub(super) fn copy(&mut self, to: Value, from: Value, size: u64, align: u64) {
        const INLINE: u64 = 64;
        if size > INLINE {
            let size = self.b.ins().iconst(types::I64, size as i64);
            self.call(&crate::jit::runtime::access::COPY, &[to, from, size]);
            return;
        }
        let mut at = 0;
        while at < size {
            let step = [8, 4, 2, 1]
                .into_iter()
                .find(|step| *step <= align.max(1) && at + step <= size)
                .unwrap_or(1);
            let ty = ValueType::int(step as u16 * 8).expect("8 to 64 bits");
            let value = self.b.ins().load(ty, MemFlags::trusted(), from, at as i32);
            self.b
                .ins()
                .store(MemFlags::trusted(), value, to, at as i32);
            at += step;
        }
    }
}
