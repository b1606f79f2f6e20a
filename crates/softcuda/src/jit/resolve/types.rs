//! Type checking of the instructions whose operands are all of the instruction's type.
//!
//! | register | fits an instruction of |
//! |---|---|
//! | `.pred` | `.pred` |
//! | `.bN` | any type of N bits |
//! | `.uN`, `.sN` | `.bN`, `.uN`, `.sN` |
//! | a float | the same float, `.bN` |
//!
//! Loads, stores, conversions and moves take more than that, and look at their operands themselves.

use ptx::ast::{Instruction, Operand, Type};
use ptx::opcode::{self, Fact};

use crate::jit::decode::{Arg, RegId, Symbol};
use crate::jit::program::Global;

/// The register that does not fit, and the type that it should.
pub(super) fn mismatch(
    instruction: &Instruction,
    args: &[Arg],
    registers: &[Type],
) -> Option<(RegId, Type)> {
    let has = |name: &str| {
        instruction
            .modifiers
            .iter()
            .any(|modifier| modifier == name)
    };
    let uniform = opcode::has(&instruction.opcode, Fact::Uniform) && !has("wide");
    // Some instructions of mixed precision name two types.
    let mut types = instruction
        .modifiers
        .iter()
        .filter_map(|name| Type::from_name(name));
    let (Some(ty), None, true) = (types.next(), types.next(), uniform) else {
        return None;
    };
    args.iter().find_map(|arg| match arg {
        Arg::Reg(id) if !fits(registers[id.0 as usize], ty) => Some((*id, ty)),
        _ => None,
    })
}

/// What stands where the instruction takes a register or number.
pub(super) fn is_no_register(instruction: &Instruction, args: &[Arg]) -> Option<&'static str> {
    let has = |fact| opcode::has(&instruction.opcode, fact);
    let name = |at: usize| match instruction.operands.get(at) {
        Some(Operand::Name(name)) => Some(name.as_str()),
        _ => None,
    };
    let is_special = |at: usize| name(at).is_some_and(|name| name.starts_with('%'));
    args.iter().enumerate().find_map(|(at, arg)| match arg {
        Arg::Symbol(..) if is_special(at) => (!has(Fact::Specials)).then_some("special register"),
        Arg::Special(_) | Arg::SpecialVector(_) if !has(Fact::Specials) => Some("special register"),
        Arg::SpecialVector(_) if instruction.opcode != "mov" => Some("vector"),
        Arg::Symbol(
            Symbol::Global(_) | Symbol::Shared(_) | Symbol::Local(_) | Symbol::Param(_),
            _,
        ) if !has(Fact::Variables) && name(at).is_some() => Some("variable"),
        _ => None,
    })
}

/// Whether a register of 32 bits stands for an address where one of 64 bits must.
pub(super) fn has_narrow_address(
    instruction: &Instruction,
    args: &[Arg],
    registers: &[Type],
) -> bool {
    let narrow = |word: &String| {
        let space = word.split("::").next().unwrap_or_default();
        matches!(
            space,
            "shared" | "local" | "const" | "param" | "async" | "tensormap"
        )
    };
    if !opcode::has(&instruction.opcode, Fact::WideAddresses)
        || instruction.modifiers.iter().any(narrow)
    {
        return false;
    }
    args.iter().any(|arg| match arg {
        Arg::Address(base, _) => {
            matches!(**base, Arg::Reg(id) if registers[id.0 as usize].size() == 4)
        }
        _ => false,
    })
}

/// What is wrong where [`is_elsewhere`].
pub(super) const ELSEWHERE: &str = "the variable is in another state space";

/// Whether brackets name a variable that lies in another state space than the instruction's; where
/// it names none, in one that generic addresses do not reach. Copies name a space for each address,
/// and their third one may be a barrier. Some take a variable's address without brackets.
pub(super) fn is_elsewhere(instruction: &Instruction, args: &[Arg], globals: &[Global]) -> bool {
    let opcode = instruction.opcode.as_str();
    // What a fence names is no access.
    if opcode == "fence" {
        return false;
    }
    let words = instruction.modifiers.iter();
    let first = words.filter_map(|word| word.split(['[', ':']).next());
    let known = |word: &&str| matches!(*word, "global" | "const" | "shared" | "local" | "param");
    let spaces: Vec<&str> = first.filter(known).collect();
    let space = |number: usize| match spaces[..] {
        [] if matches!(opcode, "mbarrier" | "mapa" | "getctarank") => Some("shared"),
        [] if opcode == "prefetchu" => Some("global"),
        [_, _] if number > 1 => Some("shared"),
        _ => spaces.get(number).or(spaces.last()).copied(),
    };
    let is_address = match opcode {
        "cvta" => !spaces.is_empty() && instruction.modifiers[0] != "to",
        "mapa" | "getctarank" => true,
        _ => false,
    };
    let addresses = args.iter().filter_map(|arg| match arg {
        Arg::Address(base, _) => Some(&**base),
        Arg::Symbol(..) if is_address => Some(arg),
        // A tensor's map, and where in the tensor.
        Arg::List(parts) => match parts.first()? {
            Arg::Address(map, _) => Some(&**map),
            _ => None,
        },
        _ => None,
    });
    addresses.enumerate().any(|(number, base)| {
        let Arg::Symbol(symbol, _) = base else {
            return false;
        };
        let of = match symbol {
            Symbol::Global(at) if globals[*at as usize].constant => "const",
            Symbol::Global(_) => "global",
            Symbol::Shared(_) => "shared",
            Symbol::Local(_) => "local",
            Symbol::Param(_) => "param",
            Symbol::Function(_) | Symbol::Label(_) | Symbol::Table(_) => return false,
        };
        match space(number) {
            Some(space) => space != of,
            None => matches!(of, "const" | "param"),
        }
    })
}

fn integer(ty: Type) -> bool {
    use Type::*;
    matches!(ty, U8 | U16 | U32 | U64 | S8 | S16 | S32 | S64)
}

fn untyped(ty: Type) -> bool {
    use Type::*;
    matches!(ty, B8 | B16 | B32 | B64 | B128)
}

fn packed(ty: Type) -> bool {
    use Type::*;
    matches!(ty, F16x2 | Bf16x2 | U16x2 | S16x2 | F32x2)
}

/// Whether a value of this type is loaded into or stored from such a register, which may be wider.
pub(in crate::jit) fn holds(register: Type, ty: Type) -> bool {
    let of_kind = untyped(ty)
        || untyped(register)
        || register == ty
        || integer(ty) && (integer(register) || packed(register));
    register != Type::Pred && register.size() >= ty.size() && of_kind
}

/// Whether a register of one type is right where another is taken.
pub(in crate::jit) fn fits(register: Type, ty: Type) -> bool {
    use Type::Pred;
    if register == Pred || ty == Pred {
        return register == ty;
    }
    register.size() == ty.size()
        && (register == ty
            || untyped(register)
            || untyped(ty)
            || (integer(register) && integer(ty))
            // Packed pairs live in integer registers as well.
            || (packed(ty) && integer(register)))
}
