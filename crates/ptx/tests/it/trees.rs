//! Random syntax trees, each one that the parser can make.

use proptest::collection::vec;
use proptest::option;
use proptest::prelude::*;
use ptx::ast::*;

fn pos() -> Pos {
    Pos::default()
}

/// Names as PTX takes them, keywords of its own among them; `WARP_SZ` is a number rather than a
/// name.
fn name() -> impl Strategy<Value = Ident> {
    prop_oneof![
        3 => "[a-zA-Z][a-zA-Z0-9_$]{0,8}",
        3 => "%[a-z]{1,3}[0-9]{0,3}",
        1 => "[_$%][a-zA-Z0-9_$]{1,8}",
        1 => prop::sample::select(vec!["generic", "mov", "call", "e1", "x0f", "_0", "function_name"])
            .prop_map(str::to_owned),
    ]
    .prop_filter("a number", |name| name != "WARP_SZ")
}

fn opcode() -> impl Strategy<Value = Ident> {
    prop_oneof![2 => "[a-z]{1,6}[0-9]?", 1 => Just("call".to_owned())]
}

fn modifier() -> impl Strategy<Value = Ident> {
    prop_oneof![
        4 => "[a-zA-Z][a-zA-Z0-9_]{0,6}",
        1 => "[0-9]{1,3}[a-zA-Z]{0,2}",
        1 => "[a-zA-Z0-9_]{1,5}(::[a-zA-Z0-9_]{1,5}){1,2}",
        1 => prop::sample::select(vec!["weak", "entry", "const[3]", "1d", "m16n8k16", "128B"]).prop_map(str::to_owned),
    ]
}

fn string() -> impl Strategy<Value = String> {
    prop_oneof![r"[ -!#-~é]{0,12}", Just("nounroll".to_owned())]
}

fn interesting() -> impl Strategy<Value = u64> {
    prop_oneof![
        any::<u64>(),
        0u64..20,
        prop::sample::select(vec![
            0,
            1,
            i64::MAX as u64,
            i64::MIN as u64,
            i64::MIN as u64 + 1,
            u64::MAX
        ]),
    ]
}

fn offset() -> impl Strategy<Value = i64> {
    interesting().prop_map(|bits| bits as i64)
}

/// What fits in 64 bits, with or without sign.
fn integer() -> impl Strategy<Value = i128> {
    prop_oneof![
        interesting().prop_map(i128::from),
        offset().prop_map(i128::from)
    ]
}

fn immediate() -> impl Strategy<Value = Immediate> {
    prop_oneof![
        (interesting(), any::<bool>()).prop_map(|(bits, signed)| Immediate::Int { bits, signed }),
        any::<u32>().prop_map(Immediate::F32),
        any::<u64>().prop_map(Immediate::F64),
    ]
}

fn named() -> impl Strategy<Value = Operand> {
    prop_oneof![
        3 => name().prop_map(Operand::Name),
        1 => (name(), "[a-z][a-z0-9]{0,3}|[0-9][a-z]").prop_map(|(name, component)| Operand::Member(name, component)),
    ]
}

/// An operand other than the list of a call, which only stands at the top.
fn operand() -> impl Strategy<Value = Operand> {
    let leaf = prop_oneof![
        3 => named(),
        1 => (name(), offset()).prop_map(|(name, offset)| Operand::Offset(name, offset)),
        1 => (name(), proptest::option::of(name()), offset())
            .prop_map(|(name, register, offset)| Operand::Element(name, Index { register, offset })),
        2 => immediate().prop_map(Operand::Immediate),
        1 => named().prop_map(|operand| Operand::Not(Box::new(operand))),
        1 => named().prop_map(|operand| Operand::Negate(Box::new(operand))),
        1 => Just(Operand::Sink),
        1 => Just(Operand::Name("WARP_SZ".to_owned())),
        1 => Just(Operand::Negate(Box::new(Operand::Name("WARP_SZ".to_owned())))),
    ];
    leaf.prop_recursive(4, 12, 4, |inner| {
        prop_oneof![
            2 => vec(inner.clone(), 1..4).prop_map(Operand::Vector),
            2 => (base(), vec(inner.clone(), 0..3)).prop_map(|((base, offset), rest)| {
                Operand::Address(Address { base, offset, rest })
            }),
            1 => (pairable(inner), prop_oneof![named(), Just(Operand::Sink)])
                .prop_map(|(first, second)| Operand::Pair(Box::new(first), Box::new(second))),
        ]
    })
}

/// The parser adds an offset to a number, so only a name has one.
fn base() -> impl Strategy<Value = (AddressBase, i64)> {
    prop_oneof![
        (name(), offset()).prop_map(|(name, offset)| (AddressBase::Name(name), offset)),
        interesting().prop_map(|bits| (AddressBase::Immediate(bits), 0)),
    ]
}

/// What a `|` can follow: after a number it is an operator.
fn pairable(operand: impl Strategy<Value = Operand>) -> impl Strategy<Value = Operand> {
    let plain = prop_oneof![named(), Just(Operand::Sink)];
    (operand, plain).prop_map(|(operand, plain)| match operand {
        Operand::Vector(_) | Operand::Address(_) | Operand::Not(_) => operand,
        _ => plain,
    })
}

fn instruction() -> impl Strategy<Value = Instruction> {
    let guard = option::weighted(0.2, (any::<bool>(), name()))
        .prop_map(|guard| guard.map(|(negated, register)| Guard { negated, register }));
    let list = vec(operand(), 0..3).prop_map(Operand::List);
    let operands = vec(prop_oneof![3 => operand(), 1 => list], 0..5);
    (guard, opcode(), vec(modifier(), 0..4), operands).prop_map(
        |(guard, opcode, mut modifiers, mut operands)| {
            if opcode != "call" {
                operands.retain(|operand| !matches!(operand, Operand::List(_)));
            }
            // A bank is told from an address by the modifier after it.
            if modifiers
                .last()
                .is_some_and(|last| last.starts_with("const["))
            {
                modifiers.push("f32".to_owned());
            }
            Instruction {
                pos: pos(),
                guard,
                opcode,
                modifiers,
                operands,
            }
        },
    )
}

fn init() -> impl Strategy<Value = Init> {
    let address = (
        name(),
        offset(),
        any::<bool>(),
        option::weighted(0.3, interesting()),
    )
        .prop_map(|(symbol, offset, generic, mask)| Init::Address {
            pos: pos(),
            symbol,
            offset,
            generic,
            mask,
        });
    prop_oneof![immediate().prop_map(Init::Value), address]
        .prop_recursive(3, 12, 4, |inner| vec(inner, 0..4).prop_map(Init::List))
}

fn space() -> impl Strategy<Value = Space> {
    use Space::*;
    prop::sample::select(vec![Reg, Sreg, Const, Global, Local, Param, Shared, Tex])
}

fn ty() -> impl Strategy<Value = Type> {
    use Type::*;
    prop::sample::select(vec![
        Pred, B8, B16, B32, B64, B128, U8, U16, U32, U64, S8, S16, S32, S64, F16, F16x2, F32, F64,
        Bf16, Bf16x2, Tf32, E4m3, E5m2, E4m3x2, E5m2x2, U16x2, S16x2, F32x2, Texref, Samplerref,
        Surfref,
    ])
}

fn align() -> impl Strategy<Value = Option<u32>> {
    option::weighted(0.3, (0u32..32).prop_map(|shift| 1 << shift))
}

fn linkage() -> impl Strategy<Value = Linkage> {
    use Linkage::*;
    prop::sample::select(vec![Internal, Extern, Visible, Weak, Common])
}

fn attributes() -> impl Strategy<Value = Vec<Attribute>> {
    let attribute =
        ("[a-z]{1,8}", vec(integer(), 0..3)).prop_map(|(name, args)| Attribute { name, args });
    prop_oneof![4 => Just(vec![]), 1 => vec(attribute, 1..3)]
}

fn variable(
    linkage: impl Strategy<Value = Linkage>,
    init: impl Strategy<Value = Option<Init>>,
) -> impl Strategy<Value = Variable> {
    let shape = (
        space(),
        option::of(0u32..11),
        align(),
        prop::sample::select(vec![1, 2, 4, 8]),
        ty(),
    );
    let ptr = option::weighted(0.2, (option::of(space()), align()))
        .prop_map(|ptr| ptr.map(|(space, align)| PtrAttribute { space, align }));
    let name = prop_oneof![8 => name(), 1 => Just("_".to_owned()), 1 => Just("WARP_SZ".to_owned())];
    let counts = (
        option::weighted(0.2, any::<u32>()),
        vec(option::of(interesting()), 0..3),
    );
    (linkage, shape, ptr, attributes(), name, counts, init).prop_map(
        |(
            linkage,
            (space, bank, align, vector, ty),
            ptr,
            attributes,
            name,
            (range, dims),
            init,
        )| {
            let bank = bank.filter(|_| space == Space::Const);
            Variable {
                pos: pos(),
                linkage,
                space,
                bank,
                align,
                vector,
                ty,
                ptr,
                attributes,
                name,
                range,
                dims,
                init,
            }
        },
    )
}

fn local() -> impl Strategy<Value = Variable> {
    variable(Just(Linkage::Internal), option::weighted(0.2, init()))
}

fn params() -> impl Strategy<Value = Vec<Variable>> {
    vec(variable(Just(Linkage::Internal), Just(None)), 0..3)
}

fn function_directives() -> impl Strategy<Value = Vec<FunctionDirective>> {
    let names = vec![
        "maxntid",
        "reqntid",
        "minnctapersm",
        "maxnreg",
        "noreturn",
        "explicitcluster",
        "abi_preserve",
    ];
    let numbers = (prop::sample::select(names), vec(any::<u32>(), 0..4))
        .prop_map(|(name, numbers)| FunctionDirective::Numbers(name.to_owned(), numbers));
    vec(
        prop_oneof![3 => numbers, 1 => vec(string(), 1..3).prop_map(FunctionDirective::Pragma)],
        0..3,
    )
}

fn loc() -> impl Strategy<Value = Loc> {
    let inlined =
        (name(), 0..=i64::MAX, any::<(u32, u32, u32)>()).prop_map(|(function, offset, at)| {
            InlinedAt {
                function,
                offset,
                at,
            }
        });
    (any::<(u32, u32, u32)>(), option::weighted(0.3, inlined)).prop_map(
        |((file, line, column), inlined)| Loc {
            file,
            line,
            column,
            inlined,
        },
    )
}

fn statement() -> impl Strategy<Value = Statement> {
    let prototype =
        (params(), params(), function_directives()).prop_map(|(returns, params, directives)| {
            Prototype {
                returns,
                params,
                directives,
            }
        });
    let leaf = prop_oneof![
        6 => instruction().prop_map(Statement::Instruction),
        2 => name().prop_map(|name| Statement::Label(pos(), name)),
        3 => local().prop_map(Statement::Variable),
        1 => (name(), vec(name(), 1..4)).prop_map(|(name, targets)| Statement::BranchTargets(pos(), name, targets)),
        1 => (name(), vec(name(), 1..4)).prop_map(|(name, targets)| Statement::CallTargets(pos(), name, targets)),
        1 => (name(), prototype).prop_map(|(name, prototype)| Statement::CallPrototype(pos(), name, prototype)),
        1 => loc().prop_map(Statement::Loc),
        1 => vec(string(), 1..3).prop_map(Statement::Pragma),
    ];
    leaf.prop_recursive(3, 12, 4, |inner| {
        vec(inner, 0..4).prop_map(Statement::Block)
    })
}

fn function() -> impl Strategy<Value = Function> {
    let head = (linkage(), any::<bool>(), attributes(), name());
    (
        head,
        params(),
        params(),
        function_directives(),
        option::weighted(0.8, vec(statement(), 0..8)),
    )
        .prop_map(
            |((linkage, kernel, attributes, name), returns, params, directives, body)| {
                let returns = if kernel { vec![] } else { returns };
                Function {
                    pos: pos(),
                    linkage,
                    kernel,
                    attributes,
                    name,
                    returns,
                    params,
                    directives,
                    body,
                }
            },
        )
}

fn section() -> impl Strategy<Value = Item> {
    let symbol = || prop_oneof![name(), r"\.[a-z_]{1,8}"];
    let value = prop_oneof![
        3 => integer().prop_map(SectionValue::Int),
        1 => (symbol(), 0..=i64::MAX).prop_map(|(symbol, offset)| SectionValue::Symbol(symbol, offset)),
        1 => (symbol(), symbol()).prop_map(|(to, from)| SectionValue::Difference(to, from)),
    ];
    let line = prop_oneof![
        name().prop_map(SectionLine::Label),
        (
            prop::sample::select(vec!["b8", "b16", "b32", "b64"]),
            vec(value, 1..4)
        )
            .prop_map(|(ty, values)| SectionLine::Data {
                ty: ty.to_owned(),
                values
            }),
    ];
    (r"\.[a-z_]{1,8}", vec(line, 0..6)).prop_map(|(name, lines)| Item::Section { name, lines })
}

fn item() -> impl Strategy<Value = Item> {
    prop_oneof![
        6 => function().prop_map(Item::Function),
        4 => variable(linkage(), option::of(init())).prop_map(Item::Variable),
        1 => (name(), name()).prop_map(|(name, aliasee)| Item::Alias { pos: pos(), name, aliasee }),
        1 => vec(string(), 1..3).prop_map(Item::Pragma),
        1 => (any::<u32>(), string(), option::of(any::<(u64, u64)>()))
            .prop_map(|(index, name, stamp)| Item::File { index, name, stamp }),
        1 => section(),
        1 => loc().prop_map(Item::Loc),
    ]
}

/// A whole module.
pub fn module() -> impl Strategy<Value = Module> {
    let target = vec(
        prop::sample::select(vec!["sm_70", "sm_90a", "debug", "texmode_unified"]),
        1..3,
    )
    .prop_map(|target| target.into_iter().map(str::to_owned).collect());
    (
        any::<(u32, u32)>(),
        target,
        prop::sample::select(vec![32, 64]),
        vec(item(), 0..5),
    )
        .prop_map(|(version, target, address_size, items)| Module {
            version,
            target,
            address_size,
            items,
        })
}
