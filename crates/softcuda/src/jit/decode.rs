//! An instruction of the syntax tree becomes an [`Operation`]: every modifier understood, every
//! operand resolved.
//!
//! One family of instructions is one file in `lower/`: its `decode` reads modifiers and operands
//! and refuses what it does not run; its operation lowers itself. An operation that was decoded
//! always lowers.

use std::fmt;

use cranelift_codegen::ir::condcodes::IntCC;
use ptx::ast::{Immediate, Pos, Type};
use smallvec::SmallVec;

use super::lower::{Lower, PlainAccess, Term, WeakAccess};
use super::program::{Function, Tables};
use super::resolve::{isa, types};

/// A register of the function being compiled.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct RegId(pub u32);

/// A special register.
#[allow(missing_docs)] // the names are PTX's own
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Special {
    Tid(u8),
    Ntid(u8),
    Ctaid(u8),
    Nctaid(u8),
    Laneid,
    Warpid,
    Nwarpid,
    Smid,
    Nsmid,
    Gridid,
    LanemaskEq,
    LanemaskLe,
    LanemaskLt,
    LanemaskGe,
    LanemaskGt,
    Clock,
    ClockHi,
    Clock64,
    Globaltimer,
    GlobaltimerLo,
    GlobaltimerHi,
    DynamicSmemSize,
    TotalSmemSize,
    Envreg(u8),
    /// `%clusterid`, `%nclusterid`, `%cluster_ctaid`, `%cluster_nctaid`: which, and the component.
    Cluster(ClusterReg, u8),
    ClusterCtarank,
    ClusterNctarank,
    IsExplicitCluster,
    CurrentGraphExec,
    Pm(u8),
}

impl Special {
    /// Whether it is moved to a register of this type.
    pub fn is(self, ty: Type) -> bool {
        use Special::*;
        match (self, ty) {
            (_, Type::F32 | Type::F64) => false,
            (IsExplicitCluster, ty) => ty == Type::Pred,
            (_, Type::Pred) => false,
            (Clock64 | Globaltimer | CurrentGraphExec, ty) => ty.size() == 8,
            (Tid(_) | Ntid(_) | Ctaid(_) | Nctaid(_), ty) => matches!(ty.size(), 2 | 4),
            (Gridid, ty) => matches!(ty.size(), 2 | 4 | 8),
            (Pm(_), ty) => matches!(ty.size(), 4 | 8),
            (_, ty) => ty.size() == 4,
        }
    }
}

/// The cluster registers with components.
#[allow(missing_docs)] // the names are PTX's own
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum ClusterReg {
    Clusterid,
    Nclusterid,
    Ctaid,
    Nctaid,
}

/// A symbol that has an address or is a jump or call target: an index into a table of the
/// function's or module's.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Symbol {
    /// A module-level variable or a variable of a body in `.global` or `.const`.
    Global(u32),
    /// A `.shared` variable: its address is an offset in the block's shared memory.
    Shared(u32),
    /// A `.local` variable: its address is an offset in the thread's local memory.
    Local(u32),
    /// A parameter of the kernel or function, a return parameter, or a `.param` variable of a body.
    Param(u32),
    /// A function.
    Function(u32),
    /// A label of the body.
    Label(u32),
    /// A `.branchtargets`, `.calltargets` or `.callprototype` of the body.
    Table(u32),
}

/// A resolved operand.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Arg {
    /// A register.
    Reg(RegId),
    /// A number.
    Imm(Immediate),
    /// The address of a symbol, or the symbol itself where a target is wanted, plus an offset.
    Symbol(Symbol, i64),
    /// A special register.
    Special(Special),
    /// A special register with all its components (`%tid` as a vector).
    SpecialVector(Special),
    /// `[base+offset]`: a register, a symbol or a number.
    Address(Box<Arg>, i64),
    /// `{a, b}`
    Vector(Vec<Arg>),
    /// `a|b`
    Pair(Box<Arg>, Box<Arg>),
    /// `!p`
    Not(Box<Arg>),
    /// `%r1.b0`, `-%r1`: what a video instruction takes of a register.
    Part(RegId, Selector),
    /// `(a, b)`
    List(Vec<Arg>),
    /// `_`
    Sink,
}

impl Arg {
    /// The register that this names as a destination, maybe with a predicate beside it.
    pub fn target(&self) -> Option<RegId> {
        match self {
            Arg::Reg(id) => Some(*id),
            Arg::Pair(to, _) => to.target(),
            _ => None,
        }
    }
}

/// What a video instruction takes of a register: some of its bytes or halves, or its negation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Selector {
    /// The size of a part in bits: 8 or 16, or 32 for the whole register.
    pub bits: u8,
    /// The numbers of the parts, the lowest place first.
    parts: [u8; 4],
    count: u8,
    /// The register is negated: `-%r1`.
    pub negated: bool,
}

impl Selector {
    /// The whole register.
    pub const WHOLE: Selector = Selector {
        bits: 32,
        parts: [0; 4],
        count: 1,
        negated: false,
    };

    /// The selector of a name such as `b3`, `h10` or `b7654`.
    pub fn named(name: &str) -> Option<Selector> {
        let (bits, limit) = match name.as_bytes().first()? {
            b'b' => (8, b'8'),
            b'h' => (16, b'4'),
            _ => return None,
        };
        let digits = &name.as_bytes()[1..];
        let fits = (1..=32 / usize::from(bits)).contains(&digits.len());
        if !fits || !digits.iter().all(|digit| (b'0'..limit).contains(digit)) {
            return None;
        }
        let mut parts = [0; 4];
        for (part, digit) in parts.iter_mut().zip(digits.iter().rev()) {
            *part = digit - b'0';
        }
        Some(Selector {
            bits,
            parts,
            count: digits.len() as u8,
            negated: false,
        })
    }

    /// The numbers of the parts, the lowest place first.
    pub fn parts(&self) -> &[u8] {
        &self.parts[..usize::from(self.count)]
    }

    /// The same, negated.
    pub fn negated(self) -> Selector {
        Selector {
            negated: true,
            ..self
        }
    }
}

/// Why an instruction is not run.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Refusal {
    /// Where it stands; line 0 where it has no place.
    pub pos: Pos,
    /// What is wrong, naming the instruction.
    pub what: String,
    /// The PTX is wrong, rather than right and not run by us.
    pub invalid: bool,
}

/// A register of 64 bits and its halves.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Halves {
    pub whole: RegId,
    /// The low one first.
    pub parts: [RegId; 2],
    /// The whole is made of them, not they of it.
    pub joins: bool,
}

/// A place in memory, as an instruction names it.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct MemoryPlace<'a> {
    pub address: &'a Arg,
    /// It is in the block's shared memory, by its offset.
    pub shared: bool,
    /// In bytes.
    pub size: u32,
}

/// A compare-and-swap.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Swap<'a> {
    pub place: MemoryPlace<'a>,
    /// What was there.
    pub old: RegId,
    /// What must be there.
    pub expected: RegId,
}

/// How a value differs between the threads of a group.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Stride {
    /// So much more in each than in the one before, wrapping.
    pub step: i64,
    /// The lowest bits of the first thread's that are known to be 0.
    pub zeros: u32,
    /// The logarithm of the number of threads in the group, where the value differs between them.
    pub group: u32,
}

impl Stride {
    /// The same number in all.
    pub const fn number(bits: u64) -> Stride {
        Stride::same(bits.trailing_zeros())
    }

    /// The same in all, with so many lowest bits that are 0.
    pub const fn same(zeros: u32) -> Stride {
        Stride {
            step: 0,
            zeros,
            group: 0,
        }
    }

    /// Counts up from a multiple of the number of threads: its lowest bits are the thread's number
    /// in the group.
    pub fn counts(self) -> bool {
        self.step == 1 && self.zeros >= self.group
    }

    /// The same by a power of two: its bits from that one on are the thread's number.
    pub fn counts_by(self) -> bool {
        let by = self.step.count_ones() == 1 && self.step > 0;
        by && self.zeros >= self.group + self.shift()
    }

    /// How many bits lie below those that count.
    pub fn shift(self) -> u32 {
        self.step.trailing_zeros().min(63)
    }

    /// The first thread's value is 0.
    pub fn begins_at_zero(self) -> bool {
        self.zeros >= 64
    }

    /// Of two operands of which an operation gives one.
    pub fn or(self, other: Stride) -> Option<Stride> {
        match (self.step, other.step) {
            (a, b) if a == b || b == 0 => Some(self),
            (0, _) => Some(other),
            _ => None,
        }
    }

    pub fn plus(self, other: Stride) -> Stride {
        Stride {
            step: self.step.wrapping_add(other.step),
            zeros: self.zeros.min(other.zeros),
            group: self.group.max(other.group),
        }
    }

    pub fn times(self, by: i64) -> Stride {
        Stride {
            step: self.step.wrapping_mul(by),
            zeros: self.zeros.saturating_add(by.trailing_zeros()).min(64),
            ..self
        }
    }

    /// In 32 bits.
    pub fn in_words(self) -> Stride {
        Stride {
            step: i64::from(self.step as i32),
            ..self
        }
    }
}

/// Whether this holds of two integers.
#[derive(Clone, Debug)]
pub(crate) struct Comparison<'a> {
    pub condition: IntCC,
    pub a: &'a Arg,
    pub b: &'a Arg,
    /// Their type: of 32 or 64 bits.
    pub ty: Type,
}

impl Comparison<'_> {
    /// They have 32 bits.
    pub fn of_words(&self) -> bool {
        self.ty.size() == 4
    }
}

/// What follows from predicates.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Logic<'a> {
    Both(&'a Arg, &'a Arg),
    Either(&'a Arg, &'a Arg),
    Not(&'a Arg),
}

/// A register of 32 bits is divided by what is the same in all threads.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Division {
    /// The register. The quotient only grows with it, or only shrinks, as long as it does not wrap.
    pub from: RegId,
    /// It has a sign.
    pub signed: bool,
    /// What it is divided by.
    pub by: Divisor,
    /// The result is what remains: it counts up with the register as long as the quotient stays the
    /// same. Otherwise it is the quotient.
    pub rest: bool,
}

/// What a register is divided by.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Divisor {
    /// A number.
    Number(u64),
    /// A register.
    Register(RegId),
}

/// A decoded instruction.
pub(crate) trait Operation: fmt::Debug + Send + Sync {
    /// Emits the operation at the builder's position. The guard has been dealt with; a terminator
    /// (`bra`, `ret`) leaves the builder in a fresh block.
    fn lower(&self, l: &mut Lower<'_>);

    /// The thread may have to wait for others here, so its kernel cannot run in loop mode.
    fn waits(&self) -> bool {
        false
    }

    /// A kernel can wait so in rounds: the grid knows the wait, and what threads bring to it.
    fn waits_in_rounds(&self) -> bool {
        false
    }

    /// The lanes of a warp do it together: the operation is a shuffle, a vote or their like.
    fn is_of_warp(&self) -> bool {
        false
    }

    /// It tells the lanes of the warp that are there, and is `activemask`.
    fn tells_who_is_there(&self) -> bool {
        false
    }

    /// The bytes behind its warp's tile that the operation uses of each lane.
    fn brings(&self) -> u32 {
        0
    }

    /// The operation writes this number, as written in a place of this type, and nothing else.
    fn number(&self) -> Option<(Type, Immediate)> {
        None
    }

    /// The operation looks at memory that another thread may write for it to see (a volatile or
    /// acquire load, an atomic whose result is used): in a loop, that waits.
    fn polls(&self) -> bool {
        false
    }

    /// The operation tests a phase of an `mbarrier`, and does nothing else.
    fn tests_mbarrier(&self) -> bool {
        false
    }

    /// The operation lets others run, and does nothing else.
    fn pauses(&self) -> bool {
        false
    }

    /// The operation takes or gives the carry flag.
    fn carry(&self) -> bool {
        false
    }

    /// The operation names local memory by addresses of its own.
    fn uses_local(&self) -> bool {
        false
    }

    /// The operation moves the top of local memory.
    fn uses_stack(&self) -> bool {
        false
    }

    /// The operation is a load or store at a register plus an offset, whose check may be made
    /// together with others'.
    fn plain_access(&self) -> Option<PlainAccess> {
        None
    }

    /// The operation is a load or store that no other thread may look at meanwhile, in a space that
    /// is the same for all threads of the block.
    fn weak_access(&self) -> Option<WeakAccess<'_>> {
        None
    }

    /// It does nothing but write registers, and what it writes depends on its operands alone.
    fn pure(&self) -> bool {
        false
    }

    /// It loads a parameter of the kernel.
    fn loads_parameter(&self) -> bool {
        false
    }

    /// It loads 64 bits of a parameter of the kernel: its number, and where in it they lie.
    fn loads_pointer(&self) -> Option<(u32, i64)> {
        None
    }

    /// What it writes is another register of 64 bits, as it is.
    fn copies(&self) -> Option<RegId> {
        None
    }

    /// The predicate, and which of two registers of 64 bits it writes where that is true, and where
    /// it is not.
    fn chooses(&self) -> Option<(RegId, [RegId; 2])> {
        None
    }

    /// It loads what other threads do not write for it to see: threads that load at one address
    /// may share one load.
    fn loads(&self) -> bool {
        false
    }

    /// It takes more instructions than most.
    fn is_long(&self) -> bool {
        false
    }

    /// [`lower`](Self::lower) works on vectors of its types as it does on scalars.
    fn vectorizes(&self) -> bool {
        false
    }

    /// [`lower`](Self::lower) works on vectors where some of its registers have 16 bits, each in a
    /// word whose upper half is zero.
    fn vectorizes_short(&self) -> bool {
        false
    }

    /// How its result differs between neighbouring threads, where its operands differ as `of` says;
    /// `None` where that is not by the same distance from each to the next.
    fn stride(&self, _of: &dyn Fn(&Arg) -> Option<Stride>) -> Option<Stride> {
        None
    }

    /// The same of an operation that most often gives the one operand or the other in all of some
    /// neighbouring threads, such as a minimum: as what it gives differs then.
    fn likely_stride(&self, of: &dyn Fn(&Arg) -> Option<Stride>) -> Option<Stride> {
        self.stride(of)
    }

    /// The integers that it multiplies, and perhaps adds to, without losing what is above them.
    fn factors(&self) -> Option<[&Arg; 2]> {
        None
    }

    /// The register and the number of whose product it gives the upper of two words: it is divided
    /// by 2^32 over that number.
    fn high_product(&self) -> Option<(RegId, u32)> {
        None
    }

    /// What it divides: a register of 32 bits, by what is the same in all threads.
    fn division(&self) -> Option<Division> {
        None
    }

    /// The most that it gives, as a number of 32 bits without a sign, where its operands are at
    /// most what `of` says, which is below 2^31, and nothing wraps. `None` where that is not known.
    fn most(&self, _of: &dyn Fn(&Arg) -> Option<u32>) -> Option<u32> {
        None
    }

    /// What it computes, for accesses at neighbouring indices.
    fn term(&self) -> Option<Term<'_>> {
        None
    }

    /// It only reads memory: no thread ever sees that it was done.
    fn only_loads(&self) -> bool {
        false
    }

    /// It loads what no thread writes while the kernel runs.
    fn loads_constant(&self) -> bool {
        false
    }

    /// It is a store that no other thread may look at meanwhile.
    fn stores_weakly(&self) -> bool {
        false
    }

    /// It adds to a number in memory, and gives what was there.
    fn counts(&self) -> bool {
        false
    }

    /// No thread learns from it what its thread has done before, but those of its block that wait
    /// for each other.
    fn tells_nobody(&self) -> bool {
        self.pure()
    }

    /// It adds a float of this type to one in memory that blocks share, and does nothing else.
    fn adds_floats(&self) -> Option<Type> {
        None
    }

    /// It is a compare-and-swap, of what it names.
    fn swap(&self) -> Option<Swap<'_>> {
        None
    }

    /// It loads all of a register from where a [`swap`](Self::swap) may be.
    fn loads_place(&self) -> Option<MemoryPlace<'_>> {
        None
    }

    /// What it writes is another register of so many bytes, which are no float, as it is.
    fn moves(&self) -> Option<(RegId, u32)> {
        None
    }

    /// It does no more than to write whether two registers, of so many bytes, have the same bits;
    /// `false`: whether not.
    fn equality(&self) -> Option<(bool, RegId, RegId, u32)> {
        None
    }

    /// It does no more than to write whether this holds of two integers of 32 or 64 bits.
    fn comparison(&self) -> Option<Comparison<'_>> {
        None
    }

    /// It does no more than to write this of predicates.
    fn logic(&self) -> Option<Logic<'_>> {
        None
    }

    /// The bits that it writes to its one register, where it is known how they follow from those of
    /// its operands, and `of` knows these.
    fn evaluates(&self, _of: &dyn Fn(&Arg) -> Option<u64>) -> Option<u64> {
        None
    }

    /// It joins two registers of 32 bits to one of 64, or splits it into two.
    fn halves(&self) -> Option<Halves> {
        None
    }

    /// It extends a register of 32 bits to 64, by its sign or not, before all else: its
    /// [`stride`](Self::stride) holds only where no thread's value wraps on the way.
    fn widens(&self) -> Option<(RegId, bool)> {
        None
    }

    /// Lowers a load or store of a group whose addresses are `stride` bytes apart.
    fn lower_row(&self, _l: &mut Lower<'_>, _stride: i64) {
        unreachable!("only what has a plain access is done in rows")
    }

    /// It may reach the shared memory of other blocks of the cluster.
    fn reaches(&self) -> bool {
        false
    }

    /// It ends the thread with a fault.
    fn faults(&self) -> bool {
        false
    }

    /// Where control goes from here.
    fn flow(&self) -> Flow {
        Flow::Next
    }

    /// What it calls.
    fn callee(&self) -> Callee {
        Callee::None
    }
}

/// Where control goes from an operation. Under a guard that does not hold, it goes to the next.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Flow {
    /// To the next.
    Next,
    /// To a label.
    Jump(u32),
    /// To a label of this `.branchtargets`.
    Table(u32),
    /// Nowhere: the function or the thread ends.
    Leave,
}

/// What an operation calls.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Callee {
    /// Nothing.
    None,
    /// A function of the device.
    Device,
    /// A function of the module.
    Function(u32),
    /// Any function of the module whose address is taken.
    Indirect,
}

/// Reads an instruction's modifiers in order and its operands by place.
pub(crate) struct Reader<'a> {
    /// Where the instruction stands.
    pub pos: Pos,
    /// The opcode.
    pub opcode: &'a str,
    /// Those read already and those to come.
    pub modifiers: &'a [String],
    next: usize,
    /// Resolved operands, destinations first.
    pub args: &'a [Arg],
    /// The type of each register, by [`RegId`].
    pub registers: &'a [Type],
    /// Names and storage of the body.
    pub tables: &'a Tables,
    /// The module's functions, by [`Symbol::Function`], without their bodies where those are still
    /// to come.
    pub functions: &'a [Function],
}

impl<'a> Reader<'a> {
    /// A reader of an instruction whose operands are resolved.
    pub fn new(
        pos: Pos,
        opcode: &'a str,
        modifiers: &'a [String],
        args: &'a [Arg],
        tables: &'a Tables,
        functions: &'a [Function],
    ) -> Self {
        Reader {
            pos,
            opcode,
            modifiers,
            next: 0,
            args,
            registers: &tables.registers,
            tables,
            functions,
        }
    }

    /// A reader of the same instruction with these modifiers.
    pub fn with<'b>(&'b self, modifiers: &'b [String]) -> Reader<'b> {
        Reader {
            modifiers,
            next: 0,
            ..*self
        }
    }

    /// How many modifiers were read.
    pub fn taken(&self) -> usize {
        self.next
    }

    /// The modifier to be read next.
    pub fn peek(&self) -> Option<&'a str> {
        self.modifiers.get(self.next).map(String::as_str)
    }

    /// Takes the next modifier, which was peeked at.
    pub fn skip(&mut self) {
        self.next += 1;
    }

    /// The modifier to be read next is the last.
    pub fn is_last(&self) -> bool {
        self.next + 1 == self.modifiers.len()
    }

    /// The last type among the modifiers.
    pub fn last_type(&self) -> Option<Type> {
        self.modifiers
            .iter()
            .rev()
            .find_map(|name| Type::from_name(name))
    }

    /// Takes the next modifier if it is this one.
    pub fn eat(&mut self, name: &str) -> bool {
        let found = self.peek() == Some(name);
        self.next += usize::from(found);
        found
    }

    /// Takes the next modifier if it is one of these, and gives its value.
    pub fn eat_any<T: Copy>(&mut self, names: &[(&str, T)]) -> Option<T> {
        let (_, value) = names.iter().find(|(name, _)| self.peek() == Some(name))?;
        self.next += 1;
        Some(*value)
    }

    /// Takes the next modifier, which must be one of these.
    pub fn expect_any<T: Copy>(&mut self, names: &[(&str, T)]) -> Result<T, Refusal> {
        match self.eat_any(names) {
            Some(value) => Ok(value),
            None => Err(self.unknown_modifier()),
        }
    }

    /// Takes the next modifier, which must be a type.
    pub fn ty(&mut self) -> Result<Type, Refusal> {
        match self.peek().and_then(Type::from_name) {
            Some(ty) => {
                self.next += 1;
                Ok(ty)
            }
            None => Err(self.unknown_modifier()),
        }
    }

    /// Takes the next modifier, which must be one of these types.
    pub fn ty_of(&mut self, types: &[Type]) -> Result<Type, Refusal> {
        match self
            .peek()
            .and_then(Type::from_name)
            .filter(|ty| types.contains(ty))
        {
            Some(ty) => {
                self.next += 1;
                Ok(ty)
            }
            None => Err(self.unknown_modifier()),
        }
    }

    /// Each operand must be what the instruction takes there. In a vector with a register of no
    /// type, all of the same size will do, as they do for the driver's compiler.
    pub fn check(&self, operands: &[(&Arg, Takes)]) -> Result<(), Refusal> {
        for (arg, takes) in operands {
            let ty = takes.ty();
            let register = |arg: &Arg| match arg {
                Arg::Reg(id) => Some(self.registers[id.0 as usize]),
                _ => None,
            };
            let fits = |arg: &Arg| match (arg, takes) {
                (Arg::Reg(id), Takes::Loaded(_) | Takes::Stored(_)) => {
                    types::holds(self.registers[id.0 as usize], ty)
                }
                (Arg::Reg(id), _) => types::fits(self.registers[id.0 as usize], ty),
                (Arg::Not(inner), Takes::Fitting(_)) => match &**inner {
                    Arg::Reg(id) => types::fits(self.registers[id.0 as usize], ty),
                    _ => true,
                },
                (_, Takes::Fitting(_)) => true,
                (Arg::Sink, Takes::ToOrNothing(_)) => true,
                (Arg::Not(_), Takes::From(Type::Pred)) => true,
                (Arg::Imm(Immediate::Int { .. }), Takes::From(Type::Pred)) => true,
                (Arg::Imm(number), Takes::From(_) | Takes::Stored(_)) => is_number(*number, ty),
                _ => false,
            };
            let right = match arg {
                Arg::Vector(list) if matches!(takes, Takes::Loaded(_)) => {
                    self.holds(list, ty, false)
                }
                Arg::Vector(list) if matches!(takes, Takes::Stored(_)) => {
                    self.holds(list, ty, true)
                }
                Arg::Vector(list) => {
                    let untyped = list.iter().filter_map(register).any(is_untyped);
                    let same_size = |arg: &Arg| match register(arg) {
                        Some(register) => register.size() == ty.size(),
                        None => !matches!(arg, Arg::Vector(_)),
                    };
                    let fits = |arg: &Arg| fits(arg) || untyped && same_size(arg);
                    list.iter().all(fits)
                }
                arg => fits(arg),
            };
            if !right {
                let or = match takes {
                    Takes::To(_) | Takes::Register(_) | Takes::Fitting(_) => "",
                    Takes::Loaded(_) => " or a wider one",
                    Takes::Stored(_) => " or a wider one, or a number",
                    Takes::ToOrNothing(_) => ", or _",
                    Takes::From(_) => ", or a number",
                };
                let what = format!("takes a register of type .{}{or}", ty.name());
                return Err(self.invalid(what));
            }
        }
        Ok(())
    }

    /// Whether values of this type are loaded into or stored from a vector. Its registers have one
    /// size, and with one of no type among them all will do, as they do for the driver's compiler.
    fn holds(&self, list: &[Arg], ty: Type, stored: bool) -> bool {
        let other = |arg: &Arg| match arg {
            Arg::Reg(_) => true,
            Arg::Sink => !stored,
            Arg::Imm(_) | Arg::Special(_) => stored,
            _ => false,
        };
        let registers: SmallVec<[Type; 8]> = list
            .iter()
            .filter_map(|arg| match arg {
                Arg::Reg(id) => Some(self.registers[id.0 as usize]),
                _ => None,
            })
            .collect();
        let all = |fits: &dyn Fn(Type) -> bool| registers.iter().all(|register| fits(*register));
        let size = registers.first().map_or(ty.size(), |first| first.size());
        list.iter().all(other)
            && size >= ty.size()
            && all(&|register| register.size() == size && register != Type::Pred)
            && (registers.iter().copied().any(is_untyped)
                || all(&|register| types::holds(register, ty))
                || size == ty.size() && all(&is_integer))
    }

    /// All modifiers must have been read and there must be `N` operands.
    pub fn finish<const N: usize>(&self) -> Result<[Arg; N], Refusal> {
        self.end()?;
        <[Arg; N]>::try_from(self.args.to_vec())
            .map_err(|args| self.invalid(format!("takes {N} operands, not {}", args.len())))
    }

    /// All modifiers must have been read.
    pub fn end(&self) -> Result<(), Refusal> {
        match self.peek() {
            None => Ok(()),
            Some(_) => Err(self.unknown_modifier()),
        }
    }

    /// The refusal of the modifier to be read next, or of its absence.
    pub fn unknown_modifier(&self) -> Refusal {
        match self.peek() {
            Some(name) if isa::is_modifier(self.opcode, name) => {
                self.not_run(format!("modifier .{name}"))
            }
            Some(name) => self.invalid(format!("modifier .{name} is not known here")),
            None => self.invalid("a modifier is missing".into()),
        }
    }

    /// Right in PTX, but not run by softcuda.
    pub fn not_run(&self, what: String) -> Refusal {
        Refusal {
            pos: self.pos,
            what: format!("`{}`: {what} is not supported", self.text()),
            invalid: false,
        }
    }

    /// Wrong in PTX.
    pub fn invalid(&self, what: String) -> Refusal {
        Refusal {
            pos: self.pos,
            what: format!("`{}`: {what}", self.text()),
            invalid: true,
        }
    }

    /// The opcode with its modifiers.
    pub fn text(&self) -> String {
        let mut text = self.opcode.to_owned();
        for modifier in self.modifiers {
            text.push('.');
            text.push_str(modifier);
        }
        text
    }
}

/// What an instruction takes as an operand.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Takes {
    /// A register of this type, which is written.
    To(Type),
    /// The same, or `_`.
    ToOrNothing(Type),
    /// A register of this type, or a number.
    From(Type),
    /// A register of this type, which is read.
    Register(Type),
    /// A register that a value of this type is loaded into.
    Loaded(Type),
    /// A register or number that a value of this type is stored from.
    Stored(Type),
    /// A register of this type, or what is no register.
    Fitting(Type),
}

fn is_untyped(ty: Type) -> bool {
    matches!(ty, Type::B8 | Type::B16 | Type::B32 | Type::B64)
}

fn is_integer(ty: Type) -> bool {
    use Type::*;
    matches!(ty, U8 | U16 | U32 | U64 | S8 | S16 | S32 | S64 | Pred)
}

/// Whether a number is right where this type is taken. Untyped operands take floats of their size.
fn is_number(number: Immediate, ty: Type) -> bool {
    match (number, ty) {
        (Immediate::Int { .. }, ty) => !matches!(ty, Type::F32 | Type::F64),
        (Immediate::F32(_), Type::B8 | Type::B16 | Type::B64) => false,
        (Immediate::F64(_), Type::B8 | Type::B16 | Type::B32) => false,
        (_, ty) => !is_integer(ty),
    }
}

impl Takes {
    fn ty(self) -> Type {
        match self {
            Takes::To(ty) | Takes::ToOrNothing(ty) | Takes::From(ty) => ty,
            Takes::Loaded(ty) | Takes::Stored(ty) => ty,
            Takes::Register(ty) | Takes::Fitting(ty) => ty,
        }
    }
}

/// How the instructions of a family are decoded.
pub(crate) type Decode = fn(&mut Reader<'_>) -> Result<Box<dyn Operation>, Refusal>;
