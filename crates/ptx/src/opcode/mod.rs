//! The opcodes of the PTX ISA, what is true of all instructions of an opcode, and [which targets
//! and versions](since()) have them, special registers and directives.

mod since;

pub use since::{Since, Target, Version, since};

/// What is true of the instructions of an opcode, whatever their modifiers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fact {
    /// The first operand is read even where it is a register; it is written otherwise.
    ReadsFirst,
    /// The first operand is read and written.
    UpdatesFirst,
    /// What is in the operands is handed on as it is.
    Moves,
    /// The first operand is made of the others, and holds an address only if one of them does.
    Computes,
    /// All operands are of the type that the instruction names, but where it names two or widens.
    Uniform,
    /// An operand may be an address in brackets.
    Addresses,
    /// A source may be a special register; others take them in vectors alone.
    Specials,
    /// A source may be a variable, which stands for its address; others take it with an offset
    /// alone.
    Variables,
    /// A register with an address of global or generic memory has 64 bits.
    WideAddresses,
    /// With floats, an arithmetic operation: a result that is no number has the one NaN that the
    /// ISA gives.
    Arithmetic,
}

/// An opcode: the first word of an instruction.
#[derive(Debug)]
pub struct Opcode {
    /// As the source has it.
    pub name: &'static str,
    facts: &'static [Fact],
}

impl Opcode {
    /// The opcode of this name; `None` for what is no instruction.
    pub fn of(name: &str) -> Option<&'static Opcode> {
        let found = ALL.binary_search_by(|opcode| opcode.name.cmp(name));
        found.ok().map(|at| &ALL[at])
    }

    /// Every opcode, by name.
    pub fn all() -> &'static [Opcode] {
        ALL
    }

    /// Whether this is true of its instructions.
    pub fn has(&self, fact: Fact) -> bool {
        self.facts.contains(&fact)
    }
}

/// Whether this is the name of an opcode with this fact.
pub fn has(name: &str, fact: Fact) -> bool {
    Opcode::of(name).is_some_and(|opcode| opcode.has(fact))
}

const fn opcode(name: &'static str, facts: &'static [Fact]) -> Opcode {
    Opcode { name, facts }
}

use Fact::{
    Addresses, Arithmetic, Computes, Moves, ReadsFirst, Specials, Uniform, UpdatesFirst, Variables,
    WideAddresses,
};

const ALL: &[Opcode] = &[
    opcode("abs", &[Uniform, Arithmetic]),
    opcode("activemask", &[]),
    opcode("add", &[Computes, Uniform, Arithmetic]),
    opcode("addc", &[Computes, Uniform]),
    opcode("alloca", &[]),
    opcode("and", &[Computes, Uniform]),
    opcode("applypriority", &[ReadsFirst, WideAddresses, Addresses]),
    opcode("atom", &[WideAddresses, Addresses]),
    opcode("bar", &[ReadsFirst]),
    opcode("barrier", &[ReadsFirst]),
    opcode("bfe", &[Computes]),
    opcode("bfi", &[Computes]),
    opcode("bfind", &[]),
    opcode("bmsk", &[]),
    opcode("bra", &[]),
    opcode("brev", &[]),
    opcode("brkpt", &[]),
    opcode("brx", &[ReadsFirst]),
    opcode("call", &[Moves, Variables]),
    opcode("clusterlaunchcontrol", &[Addresses]),
    opcode("clz", &[]),
    opcode("cnot", &[]),
    opcode("copysign", &[Uniform]),
    opcode("cos", &[Uniform, Arithmetic]),
    opcode("cp", &[Addresses]),
    opcode("createpolicy", &[Addresses]),
    opcode("cvt", &[Computes, Specials]),
    opcode("cvta", &[Computes, Variables]),
    opcode("discard", &[ReadsFirst, WideAddresses, Addresses]),
    opcode("div", &[Uniform, Arithmetic]),
    opcode("dp2a", &[]),
    opcode("dp4a", &[]),
    opcode("elect", &[]),
    opcode("ex2", &[Uniform, Arithmetic]),
    opcode("exit", &[]),
    opcode("fence", &[Addresses]),
    opcode("fma", &[Uniform, Arithmetic]),
    opcode("fns", &[]),
    opcode("getctarank", &[Variables]),
    opcode("griddepcontrol", &[]),
    opcode("isspacep", &[]),
    opcode("istypep", &[Addresses]),
    opcode("ld", &[Moves, WideAddresses, Addresses]),
    opcode("ldmatrix", &[Addresses]),
    opcode("ldu", &[Moves, WideAddresses, Addresses]),
    opcode("lg2", &[Uniform, Arithmetic]),
    opcode("lop3", &[Computes]),
    opcode("mad", &[Computes, Uniform, Arithmetic]),
    opcode("mad24", &[Computes]),
    opcode("madc", &[Computes]),
    opcode("mapa", &[Variables]),
    opcode("match", &[]),
    opcode("max", &[Computes, Uniform, Arithmetic]),
    opcode("mbarrier", &[WideAddresses, Addresses]),
    opcode("membar", &[]),
    opcode("min", &[Computes, Uniform, Arithmetic]),
    opcode("mma", &[]),
    opcode("mov", &[Moves, Computes, Specials, Variables]),
    opcode("movmatrix", &[]),
    opcode("mul", &[Computes, Uniform, Arithmetic]),
    opcode("mul24", &[Computes]),
    opcode("multimem", &[Addresses]),
    opcode("nanosleep", &[ReadsFirst]),
    opcode("neg", &[Uniform, Arithmetic]),
    opcode("not", &[Computes, Uniform]),
    opcode("or", &[Computes, Uniform]),
    opcode("pmevent", &[]),
    opcode("popc", &[]),
    opcode("prefetch", &[ReadsFirst, WideAddresses, Addresses]),
    opcode("prefetchu", &[ReadsFirst, WideAddresses, Addresses]),
    opcode("prmt", &[Computes]),
    opcode("rcp", &[Uniform, Arithmetic]),
    opcode("red", &[ReadsFirst, WideAddresses, Addresses]),
    opcode("redux", &[]),
    opcode("rem", &[Uniform]),
    opcode("ret", &[]),
    opcode("rsqrt", &[Uniform, Arithmetic]),
    opcode("sad", &[Computes, Uniform]),
    opcode("selp", &[Moves, Computes]),
    opcode("set", &[]),
    opcode("setmaxnreg", &[ReadsFirst]),
    opcode("setp", &[]),
    opcode("shf", &[Computes]),
    opcode("shfl", &[Moves]),
    opcode("shl", &[Computes]),
    opcode("shr", &[Computes]),
    opcode("sin", &[Uniform, Arithmetic]),
    opcode("slct", &[Computes]),
    opcode("sqrt", &[Uniform, Arithmetic]),
    opcode("st", &[ReadsFirst, Moves, WideAddresses, Addresses]),
    opcode("stackrestore", &[ReadsFirst]),
    opcode("stacksave", &[]),
    opcode("stmatrix", &[Addresses]),
    opcode("sub", &[Computes, Uniform, Arithmetic]),
    opcode("subc", &[Computes, Uniform]),
    opcode("suld", &[Addresses]),
    opcode("suq", &[Addresses]),
    opcode("sured", &[Addresses]),
    opcode("sust", &[Addresses]),
    opcode("szext", &[Computes]),
    opcode("tanh", &[Arithmetic]),
    opcode("tcgen05", &[Addresses]),
    opcode("tensormap", &[Addresses]),
    opcode("testp", &[]),
    opcode("tex", &[Addresses]),
    opcode("tld4", &[Addresses]),
    opcode("trap", &[]),
    opcode("txq", &[Addresses]),
    opcode("vabsdiff", &[]),
    opcode("vabsdiff2", &[]),
    opcode("vabsdiff4", &[]),
    opcode("vadd", &[]),
    opcode("vadd2", &[]),
    opcode("vadd4", &[]),
    opcode("vavrg2", &[]),
    opcode("vavrg4", &[]),
    opcode("vmad", &[]),
    opcode("vmax", &[]),
    opcode("vmax2", &[]),
    opcode("vmax4", &[]),
    opcode("vmin", &[]),
    opcode("vmin2", &[]),
    opcode("vmin4", &[]),
    opcode("vote", &[]),
    opcode("vset", &[]),
    opcode("vset2", &[]),
    opcode("vset4", &[]),
    opcode("vshl", &[]),
    opcode("vshr", &[]),
    opcode("vsub", &[]),
    opcode("vsub2", &[]),
    opcode("vsub4", &[]),
    opcode("wgmma", &[UpdatesFirst]),
    opcode("wmma", &[Addresses]),
    opcode("xor", &[Computes, Uniform]),
];

const fn is_before(first: &str, second: &str) -> bool {
    let (first, second) = (first.as_bytes(), second.as_bytes());
    let mut at = 0;
    while at < first.len() && at < second.len() && first[at] == second[at] {
        at += 1;
    }
    at < second.len() && (at == first.len() || first[at] < second[at])
}

// Names are found by halves.
const _: () = {
    let mut at = 1;
    while at < ALL.len() {
        assert!(is_before(ALL[at - 1].name, ALL[at].name));
        at += 1;
    }
};
