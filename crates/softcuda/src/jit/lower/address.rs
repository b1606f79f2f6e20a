//! Addresses: from operand to state space to host, checked; `cvta` and `isspacep`.
//!
//! | space | an address is | its generic address |
//! |---|---|---|
//! | global, const | a host address | the same |
//! | shared | an offset in the block's shared memory | `shared_base` + it |
//! | local | an offset in the thread's local memory | `local_base` + it |
//! | param of a kernel | an offset in the parameters | `params` + it |
//! | param of a function | of what [`Place`] says | none: where it is taken, the parameter is copied to local memory |

use std::mem::offset_of;

use cranelift_codegen::ir::condcodes::IntCC;
use cranelift_codegen::ir::{Block, InstBuilder, MemFlags, Value, types};
use ptx::ast::{Space, Type};

use super::Lower;
use super::cluster::Reach;
use super::entry::Entry;
use super::function::Frame;
use super::groups::PlainAccess;
use super::lanes::Form;
use crate::grid::context::{Asked, Mode, ThreadContext};
use crate::grid::launch::FaultKind;
use crate::jit::decode::{Arg, Operation, Reader, Refusal, RegId, Stride, Symbol};
use crate::jit::program::Place;
use crate::jit::runtime::access::{self, Access, Window};

impl Lower<'_> {
    /// The host address of a checked access of `size` bytes (a power of two, up to 32) at the
    /// operand's address in `space` (`None` is generic); leaves the function with a fault when it
    /// is not allowed. `write` also for atomics.
    pub fn checked_address(
        &mut self,
        address: &Arg,
        space: Option<Space>,
        size: u32,
        write: bool,
    ) -> Value {
        if let Arg::Address(base, offset) = address
            && let Arg::Symbol(symbol, more) = **base
        {
            return self.checked_symbol(symbol, offset.wrapping_add(more), size, write);
        }
        let number = self.runs.of_step.get(&self.step);
        // What is accessed together lies together.
        let is_first = number.is_none_or(|at| self.runs.runs[*at as usize].first == self.step)
            && self.group.is_none_or(|at| self.known_base(at).is_none());
        let address = self.checked_operand(address, space, size, write);
        if is_first {
            self.fetch_stream(address, write);
        }
        address
    }

    fn checked_operand(
        &mut self,
        address: &Arg,
        space: Option<Space>,
        size: u32,
        write: bool,
    ) -> Value {
        let ahead = self.lanes.as_ref().map(|lanes| &lanes.ahead);
        if let Some(address) = ahead.and_then(|ahead| ahead.get(&self.step)) {
            return *address;
        }
        if let Some(address) = self.address_in_run(address, space) {
            return address;
        }
        if let Some(group) = self.group {
            return self.grouped_address(group, address, space);
        }
        let value = self.address(address);
        let low = match address {
            Arg::Address(_, offset) => *offset,
            _ => 0,
        };
        self.check(value, low, space, Access::one(size, write), None)
    }

    /// An address in its space: base plus offset, in the width of the base, then extended.
    pub(super) fn address(&mut self, address: &Arg) -> Value {
        let (base, offset) = match address {
            Arg::Address(base, offset) => (&**base, *offset),
            base => (base, 0),
        };
        if let Arg::Reg(id) = base
            && self.register_types[id.0 as usize].bits() == 32
        {
            let base = self.read(base, Type::B32);
            let address = self.b.ins().iadd_imm(base, i64::from(offset as i32));
            return self.b.ins().uextend(types::I64, address);
        }
        let base = self.read(base, Type::B64);
        if offset == 0 {
            return base;
        }
        self.b.ins().iadd_imm(base, offset)
    }

    /// An access at a known place is checked here and now.
    fn checked_symbol(&mut self, symbol: Symbol, offset: i64, size: u32, write: bool) -> Value {
        let inside = |length: u64| {
            u64::try_from(offset).is_ok_and(|offset| {
                offset
                    .checked_add(u64::from(size))
                    .is_some_and(|end| end <= length)
            })
        };
        let aligned = |at: u64| {
            at.wrapping_add_signed(offset)
                .is_multiple_of(u64::from(size))
        };
        match symbol {
            Symbol::Global(at) => {
                let global = &self.unit.program.globals[at as usize];
                let (address, length, constant) = (global.address, global.size, global.constant);
                let value = self.symbol(symbol, offset);
                if inside(length) && aligned(address) && !(constant && write) {
                    return value;
                }
                self.check(value, 0, None, Access::one(size, write), None)
            }
            Symbol::Shared(at) => {
                let length = self.unit.program.shared[at as usize].size;
                let value = self.symbol(symbol, offset);
                if inside(length) && aligned(self.unit.shared.offset(at)) {
                    let base = self.entry(Entry::SharedBase);
                    return self.b.ins().iadd(base, value);
                }
                self.check(
                    value,
                    0,
                    Some(Space::Shared),
                    Access::one(size, write),
                    None,
                )
            }
            Symbol::Local(at) => {
                let local = self.body.tables.locals[at as usize];
                let value = self.symbol(symbol, offset);
                if inside(local.size) && aligned(local.offset) {
                    let base = self.entry(Entry::LocalBase);
                    return self.b.ins().iadd(base, value);
                }
                self.check(value, 0, Some(Space::Local), Access::one(size, write), None)
            }
            Symbol::Param(at) => {
                let param = self.body.tables.params[at as usize];
                if !inside(param.size) {
                    let zero = self.b.ins().iconst(types::I64, 0);
                    self.fault_at(FaultKind::IllegalAddress, zero, size);
                    return zero;
                }
                self.param_address(at, offset)
            }
            Symbol::Function(_) | Symbol::Label(_) | Symbol::Table(_) => {
                let value = self.symbol(symbol, offset);
                self.check(value, 0, None, Access::one(size, write), None)
            }
        }
    }

    /// The host address of a byte of a parameter.
    pub(super) fn param_address(&mut self, at: u32, offset: i64) -> Value {
        let param = self.body.tables.params[at as usize];
        match (param.place, param.copy, self.frame) {
            (Place::Kernel(at), ..) => {
                let params = self.entry(Entry::Params);
                self.b
                    .ins()
                    .iadd_imm(params, (at as i64).wrapping_add(offset))
            }
            (_, Some(copy), _) => {
                let base = self.entry(Entry::LocalBase);
                let at = self.frame_address(copy as i64, offset);
                self.b.ins().iadd(base, at)
            }
            (Place::Incoming(at), None, Frame::Device { params, .. }) => self
                .b
                .ins()
                .iadd_imm(params, (at as i64).wrapping_add(offset)),
            (Place::Outgoing(at), None, Frame::Device { returns, .. }) => self
                .b
                .ins()
                .iadd_imm(returns, (at as i64).wrapping_add(offset)),
            (Place::Call(at), ..) => {
                let (slot, offset) = (self.call_area, (at as i64).wrapping_add(offset));
                self.b.ins().stack_addr(types::I64, slot, offset as i32)
            }
            (Place::Incoming(_) | Place::Outgoing(_), None, _) => {
                unreachable!("only a device function has these")
            }
        }
    }

    /// The host address of accesses, the lowest of which is at `first`, once all are checked;
    /// leaves the function with the fault of one that is not allowed.
    /// `low` is its distance from the register that the operand names. Of accesses at indices,
    /// `index` is the first one's and the most that does not let the last wrap.
    fn check(
        &mut self,
        first: Value,
        low: i64,
        space: Option<Space>,
        mut access: Access,
        index: Option<(Value, IntCC, Value)>,
    ) -> Value {
        let log2 = access.log2 as u8;
        let by_one = self.lanes.as_ref().is_some_and(|lanes| lanes.by_one);
        if self.form() == Form::Once && self.many_contexts() && !by_one {
            // One access stands for a whole group's, but not all may do what the first may.
            access.threads = self.width() as u64;
        }
        let less = access.span() as u32;
        access.sum = self.sum;
        access.window = match (space, self.frame) {
            (Some(Space::Shared), _) => Window::Shared,
            (Some(Space::Local), _) | (Some(Space::Param), Frame::Device { .. }) => Window::Local,
            (Some(Space::Param), _) => Window::Params,
            (Some(Space::Global), _) => Window::Global,
            _ => Window::Host,
        };
        if index.is_none() && self.is_inside_shared(first, &access) {
            let base = self.entry(Entry::SharedBase);
            return self.b.ins().iadd(base, first);
        }
        let is_checked = self.lanes.as_ref().is_some_and(|lanes| lanes.checked);
        let retreat = self.lanes.as_ref().and_then(|lanes| lanes.retreat);
        let window = match access.window {
            Window::Host | Window::Global if is_checked => return first,
            Window::Host | Window::Global => None,
            Window::Shared => Some((Entry::SharedBase, Entry::SharedUnitsLess(log2, less))),
            Window::Local => Some((Entry::LocalBase, Entry::LocalUnitsLess(log2, less))),
            Window::Params => Some((Entry::Params, Entry::ParamUnits(log2))),
        };
        let next = self.fresh_block();
        let mut resolve = &access::RESOLVE;
        let base = match window {
            Some((base, units)) => {
                let (units, base) = (self.entry(units), self.entry(base));
                self.pass(first, log2, units, index, next);
                Some(base)
            }
            None => {
                let inside = self.inside_array(low, &access);
                if let Some(inside) = inside {
                    if let Some(retreat) = retreat {
                        self.b.ins().brif(inside, next, &[], retreat, &[]);
                        self.enter(next);
                        return first;
                    }
                    let other = self.cold_block();
                    self.b.ins().brif(inside, next, &[], other, &[]);
                    self.enter(other);
                }
                let site = self.lanes.as_ref().and_then(|lanes| lanes.site);
                access.site = site.unwrap_or_else(|| self.unit.site());
                if inside.is_some() && index.is_none() {
                    // Seldom elsewhere than in the array: the site is looked at out of line.
                    resolve = &access::RESOLVE_ELSEWHERE;
                } else {
                    let (units, base) = self.range_of(access.site);
                    let distance = self.b.ins().isub(first, base);
                    self.pass(distance, log2, units, index, next);
                }
                if index.is_none() && access.threads == 1 {
                    self.pass_own_local(first, log2, less, next);
                }
                None
            }
        };
        let access = self.unit.keep(access);
        let access = self.b.ins().iconst(types::I32, i64::from(access));
        let asked = offset_of!(ThreadContext, asked);
        self.set_thread_field(access, asked + offset_of!(Asked, access));
        self.set_thread_field(first, asked + offset_of!(Asked, first));
        if let Some((index, ..)) = index {
            self.set_thread_field(index, asked + offset_of!(Asked, index));
        }
        let thread = self.thread;
        match window {
            // What is outside of a window is nowhere else.
            Some(_) => self.last_call(resolve, &[thread]),
            // The site knows it from now on.
            None => self.cold_call(resolve, &[thread], retreat.unwrap_or(next)),
        }
        self.enter(next);
        match base {
            Some(base) => self.b.ins().iadd(base, first),
            None => first,
        }
    }

    /// Goes on to `next` where a distance in bytes is among the first `units` of its size, and the
    /// index, if there is one, is at most what it may be; otherwise the code goes on in a cold
    /// block.
    fn pass(
        &mut self,
        distance: Value,
        log2: u8,
        units: Value,
        index: Option<(Value, IntCC, Value)>,
        next: Block,
    ) {
        let distance = self.b.ins().rotr_imm(distance, i64::from(log2));
        let inside = self.b.ins().icmp(IntCC::UnsignedLessThan, distance, units);
        let cold = self.cold_block();
        if let Some((index, order, most)) = index {
            let fits = self.b.ins().icmp(order, index, most);
            let then = self.fresh_block();
            self.b.ins().brif(fits, then, &[], cold, &[]);
            self.enter(then);
        }
        self.b.ins().brif(inside, next, &[], cold, &[]);
        self.enter(cold);
    }

    /// Goes on to `next` where accesses at host addresses are in the thread's own local memory. No
    /// site remembers that: another thread, with other local memory, uses the same.
    fn pass_own_local(&mut self, first: Value, log2: u8, less: u32, next: Block) {
        if self.unit.mode == Mode::Loop || !self.unit.local {
            return;
        }
        // Not from the entry block, where it would cost a register.
        let base = self.thread_field(types::I64, offset_of!(ThreadContext, local_base));
        let distance = self.b.ins().isub(first, base);
        let units = self.entry(Entry::LocalUnitsLess(log2, less));
        self.pass(distance, log2, units, None, next);
    }

    /// The host address of an access that is checked together with others at other indices; `None`
    /// where it is not.
    fn address_in_run(&mut self, address: &Arg, space: Option<Space>) -> Option<Value> {
        let number = *self.runs.of_step.get(&self.step)? as usize;
        let run = &self.runs.runs[number];
        // Who comes here past the first has checked nothing.
        let (first, checked) = (run.first == self.step, self.runs_checked[number]);
        let has_index = run.since >= self.entered;
        if self.form() != Form::Thread || !has_index || !(first || checked) {
            return None;
        }
        if !first {
            return Some(self.address(address));
        }
        let (register, access) = (Arg::Reg(run.index), run.access());
        let (order, most) = match run.signed {
            true => (IntCC::SignedLessThanOrEqual, i32::MAX as u32),
            false => (IntCC::UnsignedLessThanOrEqual, u32::MAX),
        };
        let most = i64::from(most - run.more());
        let at = self.address(address);
        let low = match address {
            Arg::Address(_, offset) => *offset,
            _ => 0,
        };
        let index = self.read(&register, Type::B32);
        let most = self.b.ins().iconst(types::I32, most);
        self.check(at, low, space, access, Some((index, order, most)));
        self.runs_checked[number] = true;
        Some(at)
    }

    /// The host address of an access that is checked together with others.
    fn grouped_address(&mut self, number: u32, address: &Arg, space: Option<Space>) -> Value {
        let base = match *self.known_base(number) {
            Some(base) => base,
            None => {
                let base = self.group_base(number, address, space);
                *self.known_base(number) = Some(base);
                base
            }
        };
        let offset = match address {
            Arg::Address(_, offset) => *offset,
            _ => 0,
        };
        match offset - self.groups.groups[number as usize].low {
            0 => base,
            distance => self.b.ins().iadd_imm(base, distance),
        }
    }

    /// The host address of a group's lowest access, once that is checked, for the form being
    /// lowered.
    fn known_base(&mut self, number: u32) -> &mut Option<Value> {
        let lane = match self.form() {
            Form::Thread => return &mut self.group_bases[number as usize],
            Form::Lane(lane) => lane,
            Form::Once | Form::Vector { .. } => 0,
            Form::InTurn => unreachable!("threads check for themselves in turn"),
        };
        match &mut self.lanes {
            Some(lanes) => &mut lanes.bases[number as usize][lane],
            None => unreachable!("other forms are those of groups of threads"),
        }
    }

    /// The host address of the first of the accesses that a group of threads makes, `stride` bytes
    /// from one thread's to the next's.
    pub(super) fn row_address(
        &mut self,
        address: &Arg,
        space: Option<Space>,
        size: u32,
        write: bool,
        stride: i64,
    ) -> Value {
        let (base, offset) = match address {
            Arg::Address(base, offset) => (base, *offset),
            _ => unreachable!("a row has an address in brackets"),
        };
        let Some(number) = self.group else {
            let first = self.row_base(base, offset, Access::one(size, write), space, stride);
            self.fetch_next(first, write, stride);
            return first;
        };
        let low = self.groups.groups[number as usize].low;
        let first = match *self.known_base(number) {
            Some(first) => first,
            None => {
                let access = self.groups.groups[number as usize].access();
                let first = self.row_base(base, low, access, space, stride);
                *self.known_base(number) = Some(first);
                first
            }
        };
        let first = self.b.ins().iadd_imm(first, offset - low);
        if self.is_new_line(number, offset - low) {
            self.fetch_next(first, write, stride);
        }
        first
    }

    /// Checks accesses, the lowest of which is at `low` from a register, of every thread of a
    /// group.
    fn row_base(
        &mut self,
        base: &Arg,
        low: i64,
        access: Access,
        space: Option<Space>,
        stride: i64,
    ) -> Value {
        let first = self.address(&Arg::Address(Box::new(base.clone()), low));
        let access = Access {
            threads: self.width() as u64,
            stride: stride as u64,
            ..access
        };
        self.check(first, low, space, access, None)
    }

    /// Checks a group; the host address of its lowest access.
    fn group_base(&mut self, number: u32, address: &Arg, space: Option<Space>) -> Value {
        let group = &self.groups.groups[number as usize];
        let (low, access) = (group.low, group.access());
        let first = match address {
            Arg::Address(base, _) => self.address(&Arg::Address(base.clone(), low)),
            other => self.address(other),
        };
        self.check(first, low, space, access, None)
    }

    /// The host address of an access to shared memory, and whether it is inside, as are all others
    /// of a row that reaches so many bytes further.
    pub(super) fn shared_access(&mut self, first: Value, size: u32, more: u32) -> (Value, Value) {
        let log2 = size.trailing_zeros() as u8;
        let units = self.entry(Entry::SharedUnitsLess(log2, more >> log2));
        let base = self.entry(Entry::SharedBase);
        let distance = self.b.ins().rotr_imm(first, i64::from(log2));
        let inside = self.b.ins().icmp(IntCC::UnsignedLessThan, distance, units);
        (self.b.ins().iadd(base, first), inside)
    }

    /// Whether a group's accesses, the first of which is at a host address, are inside of an array;
    /// where none is known, of the range of a new site, which comes with it.
    pub(super) fn row_is_inside(
        &mut self,
        first: Value,
        access: PlainAccess,
        stride: i64,
    ) -> (Value, Option<u32>) {
        let row = Access {
            threads: self.width() as u64,
            stride: stride as u64,
            ..Access::one(access.size, access.write)
        };
        if let Some(inside) = self.inside_array(access.offset, &row) {
            return (inside, None);
        }
        let (inside, site) = self.row_in_range(first, access, stride);
        (inside, Some(site))
    }

    /// Whether such accesses are inside of the range of a new site, which comes with it: that of
    /// the last access that was checked by itself.
    pub(super) fn row_in_range(
        &mut self,
        first: Value,
        access: PlainAccess,
        stride: i64,
    ) -> (Value, u32) {
        let site = self.unit.site();
        let (units, base) = self.range_of(site);
        let log2 = access.size.trailing_zeros();
        let distance = self.b.ins().isub(first, base);
        let distance = self.b.ins().rotr_imm(distance, i64::from(log2));
        let more = (stride * (self.width() as i64 - 1)) >> log2;
        // No distance that is inside is so large that the last would wrap.
        let last = self.b.ins().iadd_imm(distance, more);
        let below = IntCC::UnsignedLessThan;
        let inside = [distance, last].map(|at| self.b.ins().icmp(below, at, units));
        (self.b.ins().band(inside[0], inside[1]), site)
    }

    /// How many accesses a site's range has room for, one after the other, and where it begins.
    pub(super) fn range_of(&mut self, site: u32) -> (Value, Value) {
        let at = site as i32 * access::SITE_SIZE;
        let sites = self.entry(Entry::Sites);
        let mut load = |offset| {
            let (ty, flags) = (types::I64, MemFlags::trusted());
            self.b.ins().load(ty, flags, sites, at + offset)
        };
        // The base last: the subtraction takes it from memory.
        (load(access::SITE_UNITS), load(access::SITE_BASE))
    }

    /// Where generic addresses of a space start.
    fn window(&mut self, space: Space) -> Option<Value> {
        match space {
            Space::Shared => Some(self.entry(Entry::SharedBase)),
            Space::Local => Some(self.entry(Entry::LocalBase)),
            Space::Param => Some(self.entry(Entry::Params)),
            _ => None,
        }
    }

    /// Whether a generic address is in a space's window, as a predicate.
    fn in_window(&mut self, address: Value, base: Entry, size: Entry) -> Value {
        let base = self.entry(base);
        let size = self.entry(size);
        let distance = self.b.ins().isub(address, base);
        self.b.ins().icmp(IntCC::UnsignedLessThan, distance, size)
    }

    fn in_space(&mut self, address: Value, space: Space) -> Value {
        match space {
            Space::Shared => self.in_window(address, Entry::SharedBase, Entry::SharedSize),
            Space::Local => self.in_window(address, Entry::LocalBase, Entry::LocalSize),
            Space::Param => self.in_window(address, Entry::Params, Entry::ParamsSize),
            Space::Const => {
                let found = self.call_value(&access::IS_CONSTANT, &[address]);
                self.b.ins().ireduce(types::I8, found)
            }
            _ => {
                let mut other = self.in_space(address, Space::Const);
                for space in [Space::Shared, Space::Local, Space::Param] {
                    let inside = self.in_space(address, space);
                    other = self.b.ins().bor(other, inside);
                }
                self.b.ins().bxor_imm(other, 1)
            }
        }
    }
}

/// A state space of an address, with what may follow its name.
pub(super) fn space(reader: &mut Reader<'_>) -> Option<Space> {
    const SPACES: &[(&str, Space)] = &[
        ("global", Space::Global),
        ("const", Space::Const),
        ("shared", Space::Shared),
        ("shared::cta", Space::Shared),
        ("local", Space::Local),
        ("param", Space::Param),
        ("param::entry", Space::Param),
        ("param::func", Space::Param),
    ];
    reader.eat_any(SPACES)
}

/// A state space, which must be named.
fn named_space(reader: &mut Reader<'_>) -> Result<Reach, Refusal> {
    match Reach::of(reader) {
        Reach::Own(None) => Err(reader.unknown_modifier()),
        reach => Ok(reach),
    }
}

#[derive(Debug)]
struct Cvta {
    to: bool,
    /// A space that is named.
    reach: Reach,
    ty: Type,
    args: [Arg; 2],
}

/// `cvta.space.u64`, `cvta.to.space.u64`
pub(super) fn decode_cvta(reader: &mut Reader<'_>) -> Result<Box<dyn Operation>, Refusal> {
    let to = reader.eat("to");
    let reach = named_space(reader)?;
    let ty = reader.ty_of(&[Type::U32, Type::U64])?;
    let args = reader.finish()?;
    Ok(Box::new(Cvta {
        to,
        reach,
        ty,
        args,
    }))
}

impl Operation for Cvta {
    fn pure(&self) -> bool {
        true
    }

    fn uses_local(&self) -> bool {
        self.reach == Reach::Own(Some(Space::Local))
    }

    fn reaches(&self) -> bool {
        self.reach == Reach::Cluster
    }

    fn copies(&self) -> Option<RegId> {
        match (&self.args[1], self.reach, self.ty) {
            (Arg::Reg(from), Reach::Own(Some(Space::Global)), Type::U64) => Some(*from),
            _ => None,
        }
    }

    fn stride(&self, of: &dyn Fn(&Arg) -> Option<Stride>) -> Option<Stride> {
        let stride = of(&self.args[1])?;
        let own = self.reach != Reach::Cluster;
        (self.ty == Type::U64 && own).then_some(Stride { zeros: 0, ..stride })
    }

    fn lower(&self, l: &mut Lower<'_>) {
        let value = l.read(&self.args[1], Type::U64);
        let window = match self.reach {
            Reach::Own(Some(space)) => l.window(space),
            _ => None,
        };
        let value = match (window, self.to) {
            (None, to) if self.reach == Reach::Cluster => l.convert_cluster_address(value, !to),
            (None, _) => value,
            (Some(base), false) => l.b.ins().iadd(value, base),
            (Some(base), true) => l.b.ins().isub(value, base),
        };
        let value = l.fit(value, super::value_type(self.ty), false);
        l.write(&self.args[0], self.ty, value);
    }
}

#[derive(Debug)]
struct IsSpace {
    /// A space that is named.
    reach: Reach,
    args: [Arg; 2],
}

/// `isspacep.space p, a`
pub(super) fn decode_isspacep(reader: &mut Reader<'_>) -> Result<Box<dyn Operation>, Refusal> {
    let reach = named_space(reader)?;
    let args = reader.finish()?;
    Ok(Box::new(IsSpace { reach, args }))
}

impl Operation for IsSpace {
    fn pure(&self) -> bool {
        true
    }

    fn reaches(&self) -> bool {
        self.reach == Reach::Cluster
    }

    fn lower(&self, l: &mut Lower<'_>) {
        let address = l.read(&self.args[1], Type::U64);
        let found = match self.reach {
            Reach::Own(Some(space)) => l.in_space(address, space),
            _ => l.in_cluster(address),
        };
        l.write(&self.args[0], Type::Pred, found);
    }
}
