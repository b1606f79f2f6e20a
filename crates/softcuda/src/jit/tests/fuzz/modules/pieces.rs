//! What damaged syntax trees are made of: names that are there, values at the edges, operands,
//! single instructions.

use ptx::ast::{
    Address, AddressBase, Ident, Immediate, Index, Instruction, Linkage, Operand, Pos, Space, Type,
};

use super::Random;
use super::seeds::Seeds;

/// Numbers where something may break.
pub const EDGES: &[u64] = &[
    0,
    1,
    2,
    3,
    7,
    8,
    15,
    16,
    31,
    32,
    33,
    63,
    64,
    127,
    128,
    255,
    256,
    0x7FFF,
    0x8000,
    0xFFFF,
    0x7FFF_FFFF,
    0x8000_0000,
    0xFFFF_FFFF,
    0x1_0000_0000,
    i64::MAX as u64,
    i64::MIN as u64,
    u64::MAX,
    u64::MAX - 7,
];

pub const TYPES: &[Type] = &[
    Type::Pred,
    Type::B8,
    Type::B16,
    Type::B32,
    Type::B64,
    Type::B128,
    Type::U8,
    Type::U16,
    Type::U32,
    Type::U64,
    Type::S8,
    Type::S16,
    Type::S32,
    Type::S64,
    Type::F16,
    Type::F16x2,
    Type::F32,
    Type::F64,
    Type::Bf16,
    Type::Bf16x2,
    Type::Tf32,
    Type::E4m3x2,
    Type::U16x2,
    Type::S16x2,
    Type::F32x2,
    Type::Texref,
];

pub const SPACES: &[Space] = &[
    Space::Reg,
    Space::Sreg,
    Space::Const,
    Space::Global,
    Space::Local,
    Space::Param,
    Space::Shared,
    Space::Tex,
];

pub const LINKAGES: &[Linkage] = &[
    Linkage::Internal,
    Linkage::Extern,
    Linkage::Visible,
    Linkage::Weak,
    Linkage::Common,
];

/// Special registers, components of them, and what is none.
pub const SPECIAL: &[&str] = &[
    "%tid",
    "%ntid",
    "%ctaid",
    "%nctaid",
    "%laneid",
    "%warpid",
    "%smid",
    "%gridid",
    "%clock",
    "%clock64",
    "%clock_hi",
    "%globaltimer",
    "%lanemask_eq",
    "%lanemask_ge",
    "%dynamic_smem_size",
    "%total_smem_size",
    "%envreg1",
    "%envreg31",
    "%clusterid",
    "%cluster_ctarank",
    "%is_explicit_cluster",
    "%pm0",
    "%nowhere",
    "WARP_SZ",
    "_",
];

pub fn one_of<T: Copy>(random: &mut Random, list: &[T]) -> T {
    list[random.below(list.len())]
}

/// What a body can name.
pub struct Names {
    pub registers: Vec<(Ident, Type)>,
    pub labels: Vec<Ident>,
    pub tables: Vec<Ident>,
    /// Variables, parameters and functions.
    pub symbols: Vec<Ident>,
    pub functions: Vec<Ident>,
}

/// A register of this type, or of its size, or the form's own.
pub fn like(random: &mut Random, ty: Type, names: &Names) -> Ident {
    let fit: Vec<&Ident> = names
        .registers
        .iter()
        .filter(|(_, have)| *have == ty || (have.size() == ty.size() && *have != Type::Pred))
        .map(|(name, _)| name)
        .collect();
    if fit.is_empty() || random.below(20) == 0 {
        let prefix = match ty {
            Type::Pred => "%zp",
            Type::F32 => "%zf",
            Type::F64 => "%zd",
            _ => match ty.size() {
                1 | 2 => "%zh",
                4 => "%zr",
                16 => "%zz",
                _ => "%zq",
            },
        };
        return format!("{prefix}{}", random.below(2));
    }
    fit[random.below(fit.len())].clone()
}

pub fn register(random: &mut Random, names: &Names) -> Ident {
    match names.registers.is_empty() {
        true => "%zr0".into(),
        false => names.registers[random.below(names.registers.len())]
            .0
            .clone(),
    }
}

pub fn symbol(random: &mut Random, names: &Names) -> Ident {
    match names.symbols.is_empty() || random.below(40) == 0 {
        true => "nothing".into(),
        false => names.symbols[random.below(names.symbols.len())].clone(),
    }
}

pub fn label(random: &mut Random, names: &Names) -> Ident {
    match names.labels.is_empty() || random.below(40) == 0 {
        true => format!("label{}", random.below(20)),
        false => names.labels[random.below(names.labels.len())].clone(),
    }
}

pub fn plain(text: &str, operands: Vec<Operand>) -> Instruction {
    let mut words = text.split('.').map(str::to_owned);
    Instruction {
        pos: Pos::default(),
        guard: None,
        opcode: words.next().unwrap_or_default(),
        modifiers: words.collect(),
        operands,
    }
}

/// A jump, or a call of a function without arguments.
pub fn jump(random: &mut Random, names: &Names) -> Instruction {
    match random.below(6) {
        0 if !names.functions.is_empty() => {
            let function = names.functions[random.below(names.functions.len())].clone();
            plain("call", vec![Operand::Name(function)])
        }
        1 => plain(one_of(random, &["ret", "exit", "trap", "ret.uni"]), vec![]),
        _ => plain(
            one_of(random, &["bra", "bra.uni"]),
            vec![Operand::Name(label(random, names))],
        ),
    }
}

pub fn modifier(random: &mut Random, opcode: &str, seeds: &Seeds) -> Ident {
    let own = seeds.modifiers.get(opcode);
    match own {
        Some(own) if !own.is_empty() && random.below(5) != 0 => {
            own[random.below(own.len())].clone()
        }
        _ => {
            let all: Vec<&Vec<Ident>> = seeds
                .modifiers
                .values()
                .filter(|list| !list.is_empty())
                .collect();
            let list = all[random.below(all.len())];
            list[random.below(list.len())].clone()
        }
    }
}

pub fn immediate(random: &mut Random) -> Immediate {
    match random.below(6) {
        0 => Immediate::F32(one_of(
            random,
            &[
                0,
                1 << 31,
                1,
                0x3F80_0000,
                0x7F80_0000,
                0xFF80_0000,
                0x7FC0_0000,
                0x7F80_0001,
                0x7F7F_FFFF,
            ],
        )),
        1 => Immediate::F64(one_of(
            random,
            &[
                0,
                1 << 63,
                1,
                0x3FF0_0000_0000_0000,
                0x7FF0_0000_0000_0000,
                0x7FF8_0000_0000_0000,
                0x7FEF_FFFF_FFFF_FFFF,
            ],
        )),
        _ => {
            let bits = match random.below(3) {
                0 => random.next() >> random.below(64),
                _ => one_of(random, EDGES),
            };
            Immediate::Int {
                bits,
                signed: bits >> 63 == 0 || random.below(2) == 0,
            }
        }
    }
}

/// An operand of any kind, mostly a register.
pub fn operand(random: &mut Random, names: &Names) -> Operand {
    match random.below(16) {
        0 => Operand::Immediate(immediate(random)),
        1 => Operand::Name(symbol(random, names)),
        2 => Operand::Name(one_of(random, SPECIAL).into()),
        3 => Operand::Member(
            one_of(random, SPECIAL).into(),
            one_of(random, &["x", "y", "z", "w", "r", "q"]).into(),
        ),
        4 => Operand::Name(label(random, names)),
        5 if !names.tables.is_empty() => {
            Operand::Name(names.tables[random.below(names.tables.len())].clone())
        }
        6 => Operand::Address(Address {
            base: match random.below(3) {
                0 => AddressBase::Name(symbol(random, names)),
                1 => AddressBase::Immediate(one_of(random, EDGES)),
                _ => AddressBase::Name(register(random, names)),
            },
            offset: match random.below(2) {
                0 => 0,
                _ => one_of(random, EDGES) as i64,
            },
            rest: vec![],
        }),
        7 => Operand::Vector(
            (0..1 + random.below(4))
                .map(|_| Operand::Name(register(random, names)))
                .collect(),
        ),
        8 => Operand::Offset(symbol(random, names), one_of(random, EDGES) as i64),
        9 => Operand::Element(
            symbol(random, names),
            Index {
                register: (random.below(2) == 0).then(|| register(random, names)),
                offset: one_of(random, EDGES) as i64,
            },
        ),
        _ => Operand::Name(register(random, names)),
    }
}
