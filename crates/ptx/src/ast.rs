//! The syntax tree of a PTX module.
//!
//! The tree is generic in its instructions: an [`Instruction`] is an opcode, its dotted modifiers
//! and its operands, whatever the opcode. So every instruction of the ISA is a well-formed tree,
//! and giving it a meaning is the business of whoever compiles it.
//!
//! Two trees are equal when they say the same thing: a [`Pos`] never takes part in a comparison,
//! and neither does layout. Names keep their spelling, registers their `%`, directives lose their
//! dot.

/// Where a token starts in the source, counted from 1. All positions compare equal, so that trees
/// compare by what they say.
#[derive(Clone, Copy, Debug, Default, Eq)]
pub struct Pos {
    /// Line, from 1.
    pub line: u32,
    /// Column in bytes, from 1.
    pub column: u32,
}

impl PartialEq for Pos {
    fn eq(&self, _: &Pos) -> bool {
        true
    }
}

/// A name as written: `%r1`, `_Z3fooi`, `$L__BB0_2`, `WARP_SZ`.
pub type Ident = String;

/// A whole PTX file.
#[derive(Clone, Debug, PartialEq)]
pub struct Module {
    /// `.version major.minor`.
    pub version: (u32, u32),
    /// `.target`: the architecture first, then its options (`texmode_independent`, `debug`, ...).
    pub target: Vec<Ident>,
    /// `.address_size`: 32 or 64; 32 where the file does not say.
    pub address_size: u32,
    /// Everything else, in source order.
    pub items: Vec<Item>,
}

/// A thing at module level.
#[derive(Clone, Debug, PartialEq)]
pub enum Item {
    /// A variable in `.global`, `.const`, `.shared` or another state space, or an opaque `.texref`.
    Variable(Variable),
    /// A kernel or device function, declared or defined.
    Function(Function),
    /// `.alias name, aliasee;`
    Alias {
        /// Where it stands.
        pos: Pos,
        /// The new name.
        name: Ident,
        /// The function it stands for.
        aliasee: Ident,
    },
    /// `.pragma "text", ...;` at module level.
    Pragma(Vec<String>),
    /// `.file index "name" [, timestamp, size]`.
    File {
        /// The index that `.loc` uses.
        index: u32,
        /// The file's name.
        name: String,
        /// Timestamp and size where given.
        stamp: Option<(u64, u64)>,
    },
    /// `.section name { ... }`: debug data, line by line.
    Section {
        /// The section's name, with its dot.
        name: String,
        /// What stands in it.
        lines: Vec<SectionLine>,
    },
    /// A `.callprototype`, `.branchtargets`, `.calltargets` is a [`Statement`], as it only stands
    /// in a body. This item is a `.loc` or another directive that debug builds leave between
    /// functions.
    Loc(Loc),
}

/// A line of a debug section.
#[derive(Clone, Debug, PartialEq)]
pub enum SectionLine {
    /// `label:`
    Label(Ident),
    /// `.b8 1, 2`, `.b64 label+4`, `.b32 a-b`: the directive without its dot and its operands.
    Data {
        /// `b8`, `b16`, `b32` or `b64`.
        ty: Ident,
        /// The values.
        values: Vec<SectionValue>,
    },
}

/// A value in a debug section.
#[derive(Clone, Debug, PartialEq)]
pub enum SectionValue {
    /// A number.
    Int(i128),
    /// `symbol`, `symbol+4`.
    Symbol(Ident, i64),
    /// `a-b`: the distance of two labels.
    Difference(Ident, Ident),
}

/// How a symbol is linked.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Linkage {
    /// No linking directive.
    Internal,
    /// `.extern`
    Extern,
    /// `.visible`
    Visible,
    /// `.weak`
    Weak,
    /// `.common`
    Common,
}

/// A state space.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Space {
    /// `.reg`
    Reg,
    /// `.sreg`
    Sreg,
    /// `.const`, or `.const[bank]`
    Const,
    /// `.global`
    Global,
    /// `.local`
    Local,
    /// `.param`
    Param,
    /// `.shared`
    Shared,
    /// `.tex`
    Tex,
}

/// A fundamental or opaque type.
#[allow(missing_docs)] // the names are PTX's own
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Type {
    Pred,
    B8,
    B16,
    B32,
    B64,
    B128,
    U8,
    U16,
    U32,
    U64,
    S8,
    S16,
    S32,
    S64,
    F16,
    F16x2,
    F32,
    F64,
    Bf16,
    Bf16x2,
    Tf32,
    E4m3,
    E5m2,
    E4m3x2,
    E5m2x2,
    U16x2,
    S16x2,
    F32x2,
    Texref,
    Samplerref,
    Surfref,
}

/// A declared variable, parameter or range of registers: `.shared .align 4 .v4 .f32 name[16] =
/// {...}`.
#[derive(Clone, Debug, PartialEq)]
pub struct Variable {
    /// Where its name stands.
    pub pos: Pos,
    /// Linking directive.
    pub linkage: Linkage,
    /// State space.
    pub space: Space,
    /// `.const[bank]`, where given.
    pub bank: Option<u32>,
    /// `.align`, where given, in bytes.
    pub align: Option<u32>,
    /// `.v2`, `.v4` or `.v8`: the number of elements; 1 for a scalar.
    pub vector: u32,
    /// Element type.
    pub ty: Type,
    /// `.ptr [.space] [.align n]` of a kernel parameter.
    pub ptr: Option<PtrAttribute>,
    /// `.attribute(.managed, .unified(a, b))`, as written, without the dots.
    pub attributes: Vec<Attribute>,
    /// The name; for a range of registers `%r<9>` the prefix `%r`.
    pub name: Ident,
    /// The count of a register range `%r<9>`, that is `%r0` to `%r8`.
    pub range: Option<u32>,
    /// Array dimensions, outermost first; `None` is `[]`.
    pub dims: Vec<Option<u64>>,
    /// Initializer, where given.
    pub init: Option<Init>,
}

/// `.ptr .space .align n`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PtrAttribute {
    /// The space pointed to; generic where absent.
    pub space: Option<Space>,
    /// The alignment of what is pointed to, in bytes.
    pub align: Option<u32>,
}

/// One attribute of `.attribute(...)`.
#[derive(Clone, Debug, PartialEq)]
pub struct Attribute {
    /// `managed`, `unified`, ...
    pub name: Ident,
    /// Its arguments.
    pub args: Vec<i128>,
}

/// An initializer.
#[derive(Clone, Debug, PartialEq)]
pub enum Init {
    /// A number.
    Value(Immediate),
    /// `symbol`, `symbol+8`, `generic(symbol)+8`, `0xFF(symbol)`: an address.
    Address {
        /// Where it stands.
        pos: Pos,
        /// The symbol.
        symbol: Ident,
        /// Added to it, in bytes.
        offset: i64,
        /// Through `generic(...)`.
        generic: bool,
        /// `mask(symbol)`: the byte of the address that is taken.
        mask: Option<u64>,
    },
    /// `{ a, b, { c, d } }`
    List(Vec<Init>),
}

/// A kernel or a device function.
#[derive(Clone, Debug, PartialEq)]
pub struct Function {
    /// Where its name stands.
    pub pos: Pos,
    /// Linking directive.
    pub linkage: Linkage,
    /// `.entry`, otherwise `.func`.
    pub kernel: bool,
    /// Attributes of a `.func`.
    pub attributes: Vec<Attribute>,
    /// Name.
    pub name: Ident,
    /// What it returns; PTX calls them return parameters.
    pub returns: Vec<Variable>,
    /// Parameters.
    pub params: Vec<Variable>,
    /// `.maxntid 256, 1, 1`, `.noreturn`, `.pragma "nounroll";` and the like, in order.
    pub directives: Vec<FunctionDirective>,
    /// The body; `None` for a declaration.
    pub body: Option<Vec<Statement>>,
}

/// A performance or other directive of a function.
#[derive(Clone, Debug, PartialEq)]
pub enum FunctionDirective {
    /// `.maxntid`, `.reqntid`, `.minnctapersm`, `.maxnctapersm`, `.maxnreg`, `.noreturn`,
    /// `.reqnctapercluster`, `.maxclusterrank`, `.explicitcluster`, `.blocksareclusters`,
    /// `.abi_preserve`, ...: name without the dot, and numbers.
    Numbers(Ident, Vec<u32>),
    /// `.pragma "text", ...;`
    Pragma(Vec<String>),
}

/// `.loc file line column [, function_name label [+ n], inlined_at file line column]`.
#[derive(Clone, Debug, PartialEq)]
pub struct Loc {
    /// Index of a `.file`.
    pub file: u32,
    /// Source line.
    pub line: u32,
    /// Source column.
    pub column: u32,
    /// `function_name label+offset, inlined_at file line column`.
    pub inlined: Option<InlinedAt>,
}

/// The inlining part of a [`Loc`].
#[derive(Clone, Debug, PartialEq)]
pub struct InlinedAt {
    /// Label in the debug string section.
    pub function: Ident,
    /// Added to it.
    pub offset: i64,
    /// File, line and column of the place inlined at.
    pub at: (u32, u32, u32),
}

/// A thing in a body.
#[derive(Clone, Debug, PartialEq)]
pub enum Statement {
    /// `name:`
    Label(Pos, Ident),
    /// A declaration; one statement for each declared name.
    Variable(Variable),
    /// An instruction.
    Instruction(Instruction),
    /// `{ ... }`: a scope.
    Block(Vec<Statement>),
    /// `name: .branchtargets a, b;`
    BranchTargets(Pos, Ident, Vec<Ident>),
    /// `name: .calltargets f, g;`
    CallTargets(Pos, Ident, Vec<Ident>),
    /// `name: .callprototype (ret) _ (params) [.noreturn];`
    CallPrototype(Pos, Ident, Prototype),
    /// `.loc`
    Loc(Loc),
    /// `.pragma "nounroll";`
    Pragma(Vec<String>),
}

/// The signature of an indirect call.
#[derive(Clone, Debug, PartialEq)]
pub struct Prototype {
    /// What is returned.
    pub returns: Vec<Variable>,
    /// Parameters; their names are often `_`.
    pub params: Vec<Variable>,
    /// `.noreturn`, `.abi_preserve n`, ...
    pub directives: Vec<FunctionDirective>,
}

/// The guard of an instruction: `@%p`, `@!%p`.
#[derive(Clone, Debug, PartialEq)]
pub struct Guard {
    /// `@!`
    pub negated: bool,
    /// The predicate register.
    pub register: Ident,
}

/// An instruction: `@%p1 mad.lo.s32 %r1, %r2, %r3, 4;`
#[derive(Clone, Debug, PartialEq)]
pub struct Instruction {
    /// Where its opcode stands.
    pub pos: Pos,
    /// Guard, where given.
    pub guard: Option<Guard>,
    /// The opcode: `mad`, `cp`, `bra`.
    pub opcode: Ident,
    /// What follows it, without the dots, in order: `["lo", "s32"]`, `["L2::128B", "b32"]`.
    pub modifiers: Vec<Ident>,
    /// Operands in source order, destinations first. A `call` has: the list of returns (if given),
    /// the callee, the list of arguments (if given), the prototype or target list (if given).
    pub operands: Vec<Operand>,
}

/// An operand.
#[derive(Clone, Debug, PartialEq)]
pub enum Operand {
    /// A register, a variable, a function, a label, a named constant: `%r1`, `foo`, `$L1`,
    /// `WARP_SZ`, `%laneid`.
    Name(Ident),
    /// `%tid.x`, `%v.y`: a component, without its dot.
    Member(Ident, Ident),
    /// `foo+8`, `%r1+8`: outside brackets, as in `mov.u64 %rd1, foo+8`.
    Offset(Ident, i64),
    /// `a[3]`, `a[%r1+3]`: an element of an array variable.
    Element(Ident, Index),
    /// A number.
    Immediate(Immediate),
    /// `[base+offset]`, and `[base, {…}]` of texture and tensor instructions.
    Address(Address),
    /// `{a, b, _, d}`
    Vector(Vec<Operand>),
    /// `a|b`: a destination and the predicate (or second predicate) beside it.
    Pair(Box<Operand>, Box<Operand>),
    /// `!%p`
    Not(Box<Operand>),
    /// `-%r1`, as `-WARP_SZ` or a negated register; a negative number is an immediate.
    Negate(Box<Operand>),
    /// `(a, b)`: returns or arguments of a call.
    List(Vec<Operand>),
    /// `_`: a destination that is not wanted.
    Sink,
}

/// The index of an [`Operand::Element`]. It counts scalars of the variable's type, also where the
/// array is one of vectors or has several dimensions.
#[derive(Clone, Debug, PartialEq)]
pub struct Index {
    /// The register, where there is one.
    pub register: Option<Ident>,
    /// Added to it.
    pub offset: i64,
}

/// An address in brackets.
#[derive(Clone, Debug, PartialEq)]
pub struct Address {
    /// What the address starts from.
    pub base: AddressBase,
    /// Added to it, in bytes.
    pub offset: i64,
    /// What follows a comma in the brackets (coordinates of textures and tensors).
    pub rest: Vec<Operand>,
}

/// The base of an address.
#[derive(Clone, Debug, PartialEq)]
pub enum AddressBase {
    /// A register or a variable.
    Name(Ident),
    /// A number: `[16]`. Its sign is in the bits.
    Immediate(u64),
}

/// A number as PTX gives it. Constant expressions are folded by the parser.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Immediate {
    /// An integer of 64 bits, and whether it is of signed type (`.s64`, as PTX's constant rules
    /// give it).
    Int {
        /// The bits.
        bits: u64,
        /// Signed; otherwise `.u64`.
        signed: bool,
    },
    /// `0f3F800000`: the bits of a single.
    F32(u32),
    /// `0d3FF0000000000000`, or a decimal literal: the bits of a double.
    F64(u64),
}

macro_rules! names {
    ($type:ident: $($variant:ident = $name:literal),* $(,)?) => {
        impl $type {
            /// Its name in PTX, without the dot.
            pub fn name(self) -> &'static str {
                match self { $($type::$variant => $name),* }
            }

            /// The one of this name, without the dot.
            pub fn from_name(name: &str) -> Option<$type> {
                Some(match name { $($name => $type::$variant,)* _ => return None })
            }
        }
    };
}

names!(Space: Reg = "reg", Sreg = "sreg", Const = "const", Global = "global", Local = "local", Param = "param",
    Shared = "shared", Tex = "tex");

names!(Type: Pred = "pred", B8 = "b8", B16 = "b16", B32 = "b32", B64 = "b64", B128 = "b128", U8 = "u8", U16 = "u16",
    U32 = "u32", U64 = "u64", S8 = "s8", S16 = "s16", S32 = "s32", S64 = "s64", F16 = "f16", F16x2 = "f16x2",
    F32 = "f32", F64 = "f64", Bf16 = "bf16", Bf16x2 = "bf16x2", Tf32 = "tf32", E4m3 = "e4m3", E5m2 = "e5m2",
    E4m3x2 = "e4m3x2", E5m2x2 = "e5m2x2", U16x2 = "u16x2", S16x2 = "s16x2", F32x2 = "f32x2", Texref = "texref",
    Samplerref = "samplerref", Surfref = "surfref");

impl Type {
    /// Its size in bytes; a predicate takes one, an opaque reference eight.
    pub fn size(self) -> u32 {
        use Type::*;
        match self {
            Pred | B8 | U8 | S8 | E4m3 | E5m2 => 1,
            B16 | U16 | S16 | F16 | Bf16 | E4m3x2 | E5m2x2 => 2,
            B32 | U32 | S32 | F32 | F16x2 | Bf16x2 | Tf32 | U16x2 | S16x2 => 4,
            B64 | U64 | S64 | F64 | F32x2 | Texref | Samplerref | Surfref => 8,
            B128 => 16,
        }
    }
}

impl Variable {
    /// The size of the whole variable in bytes; an open first dimension counts as 0 elements, and a
    /// size beyond 64 bits saturates.
    pub fn size(&self) -> u64 {
        self.dims.iter().fold(
            u64::from(self.ty.size()) * u64::from(self.vector),
            |size, dim| size.saturating_mul(dim.unwrap_or(0)),
        )
    }

    /// Its alignment in bytes: `.align`, or the size of its vector or scalar.
    pub fn alignment(&self) -> u32 {
        self.align
            .unwrap_or_else(|| self.ty.size().saturating_mul(self.vector))
    }
}
