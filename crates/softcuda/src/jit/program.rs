//! A checked module: names are indices, instructions are [`Operation`]s. Made by
//! [`resolve`](super::resolve), read by lowering.

use std::sync::atomic::{AtomicU64, Ordering};

use ptx::ast::{FunctionDirective, Init, Linkage, Pos, Type};
use smallvec::SmallVec;

use super::decode::{Operation, Refusal, RegId, Special};
use super::layout::Layout;
use super::resolve::changes::Changes;

/// A checked module.
#[derive(Debug)]
pub(crate) struct Program {
    /// `.version`.
    pub version: (u32, u32),
    /// `.target`, the architecture.
    pub target: String,
    /// By [`Symbol::Function`](super::decode::Symbol::Function).
    pub functions: Vec<Function>,
    /// Variables in `.global` and `.const`, by [`Symbol::Global`](super::decode::Symbol::Global).
    pub globals: Vec<Global>,
    /// Variables in `.shared`, by [`Symbol::Shared`](super::decode::Symbol::Shared).
    pub shared: Vec<Shared>,
    /// The functions whose address is taken, by a body or an initializer.
    pub address_taken: Vec<u32>,
    /// Where the addresses of its functions start: numbers of this module alone, which are no
    /// addresses of memory.
    pub function_base: u64,
}

/// How far apart the addresses of functions are.
pub(crate) const FUNCTION_STRIDE: u64 = 16;
/// The most functions in a module.
pub(crate) const MAX_FUNCTIONS: usize = 1 << 20;

impl Program {
    /// A range of function addresses that no other module has.
    pub fn new_function_base() -> u64 {
        static NEXT: AtomicU64 = AtomicU64::new(1);
        // Beyond what any host address can be.
        1 << 62 | NEXT.fetch_add(1, Ordering::Relaxed) << 24
    }

    /// The address of a function.
    pub fn function_address(&self, at: u32) -> u64 {
        self.function_base + FUNCTION_STRIDE * u64::from(at)
    }
}

/// A variable in `.global` or `.const`.
#[derive(Debug)]
pub(crate) struct Global {
    /// Its name; of a body's variable, too.
    pub name: String,
    /// Where it was declared.
    pub pos: Pos,
    /// How it is linked.
    pub linkage: Linkage,
    /// `.const`; otherwise `.global`.
    pub constant: bool,
    /// `.attribute(.managed)`.
    pub managed: bool,
    /// The type of an element.
    pub ty: Type,
    /// Elements of a vector; 1 for a scalar.
    pub vector: u32,
    /// Dimensions with an open one filled in.
    pub dims: Vec<u64>,
    /// In bytes.
    pub size: u64,
    /// In bytes.
    pub align: u64,
    /// Its initializer.
    pub init: Option<Init>,
    /// The address, once it is allocated.
    pub address: u64,
}

/// A variable in `.shared`.
#[derive(Debug)]
pub(crate) struct Shared {
    /// In bytes.
    pub size: u64,
    /// In bytes.
    pub align: u64,
    /// What `%reserved_smem_offset_begin` names: no variable of the kernel's.
    pub reserved: bool,
    /// `.extern` and without size: it starts where dynamic shared memory does.
    pub dynamic: bool,
}

/// A kernel or device function.
#[derive(Debug)]
pub(crate) struct Function {
    /// Its name.
    pub name: String,
    /// A kernel.
    pub kernel: bool,
    /// How it is linked.
    pub linkage: Linkage,
    /// What it returns and takes.
    pub signature: Signature,
    /// Its directives.
    pub directives: Vec<FunctionDirective>,
    /// Its body; `None` for what is only declared.
    pub body: Option<Body>,
}

/// What a function returns and takes, as blocks of bytes.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Signature {
    /// Return parameters.
    pub returns: Layout,
    /// Parameters.
    pub params: Layout,
}

/// The body of a function.
#[derive(Debug)]
pub(crate) struct Body {
    /// Names and storage.
    pub tables: Tables,
    /// What it does, in source order.
    pub steps: Vec<Step>,
    /// Symbols whose addresses or places the body names.
    pub uses: Uses,
    /// Instructions that are right and not run, which `steps` lacks: nothing that reaches this body
    /// is compiled.
    pub not_run: Vec<Refusal>,
}

/// Names and storage of a body.
#[derive(Debug, Default)]
pub(crate) struct Tables {
    /// The type of each register that is used, by [`RegId`].
    pub registers: Vec<Type>,
    /// For each register, whether it is kept in a float register.
    pub floats: Vec<bool>,
    /// For each register, whether it may hold a NaN with any bits: who reads its bits puts them
    /// right.
    pub lazy_nans: Vec<bool>,
    /// For each register, whether anything but arithmetic reads it.
    pub seen_nans: Vec<bool>,
    /// For each register, how many times the instructions name it: what is named once is written
    /// and never read.
    pub mentions: Vec<u32>,
    /// The ways that numbers in memory go.
    pub changes: Changes,
    /// By [`Symbol::Param`](super::decode::Symbol::Param).
    pub params: Vec<Param>,
    /// Variables in `.local`, by [`Symbol::Local`](super::decode::Symbol::Local): offsets in the
    /// frame.
    pub locals: Vec<Local>,
    /// Size of the frame in local memory.
    pub frame: u64,
    /// Size of the area for arguments and results of calls.
    pub call_area: u64,
    /// How many labels there are, by [`Symbol::Label`](super::decode::Symbol::Label).
    pub labels: u32,
    /// By [`Symbol::Table`](super::decode::Symbol::Table).
    pub targets: Vec<Targets>,
    /// The registers that are parameters, and where they lie in the block of parameters.
    pub incoming: Vec<(RegId, u64)>,
    /// The registers that are return parameters, and where they lie in the block of returns.
    pub outgoing: Vec<(RegId, u64)>,
}

/// A variable in `.local`.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Local {
    /// Where it lies in the frame.
    pub offset: u64,
    /// In bytes.
    pub size: u64,
}

/// A parameter or a `.param` variable of a body.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Param {
    /// Where it is.
    pub place: Place,
    /// In bytes.
    pub size: u64,
    /// In bytes.
    pub align: u64,
    /// A device function takes its address: the frame holds a copy, at this offset, and that is the
    /// parameter then.
    pub copy: Option<u64>,
}

/// Where a parameter is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Place {
    /// In the kernel's parameters, at this offset.
    Kernel(u64),
    /// In a device function's parameters, at this offset.
    Incoming(u64),
    /// In a device function's returns, at this offset.
    Outgoing(u64),
    /// In the native stack frame, at this offset of the area for calls: an argument or a result of
    /// one.
    Call(u64),
}

/// A directive of a body that an instruction refers to.
#[derive(Clone, Debug)]
pub(crate) enum Targets {
    /// `.branchtargets`: labels.
    Branch(Vec<u32>),
    /// `.calltargets`: functions.
    Call(Vec<u32>),
    /// `.callprototype`
    Prototype(Signature),
}

/// A step of a body.
#[derive(Debug)]
pub(crate) enum Step {
    /// Here is this label.
    Label(u32),
    /// Does something.
    Instruction(Instruction),
}

/// A checked instruction.
#[derive(Debug)]
pub(crate) struct Instruction {
    /// Where it stands.
    pub pos: Pos,
    /// Done only where this register is true; false, where the flag is set.
    pub guard: Option<(RegId, bool)>,
    /// The registers that it writes.
    pub writes: SmallVec<[RegId; 2]>,
    /// The registers that it reads besides its guard, or more.
    pub reads: SmallVec<[RegId; 4]>,
    /// The special registers that it reads.
    pub specials: SmallVec<[Special; 1]>,
    /// One of its operands is an address in brackets.
    pub addresses: bool,
    /// One of its operands is in the area for calls: an argument or a result of one.
    pub in_call_area: bool,
    /// It sees the bits of a NaN in its operands.
    pub reads_bits: bool,
    /// What it does.
    pub operation: Box<dyn Operation>,
}

impl Instruction {
    /// Whether it reads or writes a register, or is guarded by it.
    pub fn touches(&self, register: RegId) -> bool {
        let guard = self.guard.map(|(guard, _)| guard);
        let mut touched = self.reads.iter().chain(&self.writes).chain(&guard);
        touched.any(|touched| *touched == register)
    }
}

/// Symbols that a body names.
#[derive(Clone, Debug, Default)]
pub(crate) struct Uses {
    /// `.shared` variables.
    pub shared: Vec<u32>,
    /// Functions that it calls or takes the address of.
    pub functions: Vec<u32>,
    /// Functions whose address it takes.
    pub addresses: Vec<u32>,
}
