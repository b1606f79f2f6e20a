//! What the tree holds of what was written.

use ptx::ast::*;

fn items(source: &str) -> Vec<Item> {
    let source = format!(".version 8.0\n.target sm_90\n.address_size 64\n{source}");
    ptx::parse(&source)
        .unwrap_or_else(|errors| panic!("{errors}\nin\n{source}"))
        .items
}

fn body(source: &str) -> Vec<Statement> {
    match items(&format!(".entry k() {{\n{source}\n}}")).pop() {
        Some(Item::Function(function)) => function.body.expect("a body"),
        other => panic!("{other:?}"),
    }
}

fn instruction(source: &str) -> Instruction {
    match body(source).pop() {
        Some(Statement::Instruction(instruction)) => instruction,
        other => panic!("{other:?}"),
    }
}

fn variable(source: &str) -> Variable {
    match items(source).pop() {
        Some(Item::Variable(variable)) => variable,
        other => panic!("{other:?}"),
    }
}

fn name(name: &str) -> Operand {
    Operand::Name(name.to_owned())
}

fn int(value: i64) -> Operand {
    Operand::Immediate(Immediate::Int {
        bits: value as u64,
        signed: true,
    })
}

fn address(base: &str, offset: i64, rest: Vec<Operand>) -> Operand {
    Operand::Address(Address {
        base: AddressBase::Name(base.to_owned()),
        offset,
        rest,
    })
}

#[test]
fn the_header() {
    let module = ptx::parse(".version 8.10\n.target sm_90a, debug // c\n").expect("a module");
    assert_eq!(module.version, (8, 10));
    assert_eq!(module.target, ["sm_90a", "debug"]);
    assert_eq!(module.address_size, 32);
    assert_eq!(module.items, []);
}

#[test]
fn instructions() {
    let it = instruction("@!%p1 ld.global.L1::no_allocate.v2.b32 {%r1, _}, [%rd1+-8];");
    assert_eq!(
        it.guard,
        Some(Guard {
            negated: true,
            register: "%p1".into()
        })
    );
    assert_eq!(it.opcode, "ld");
    assert_eq!(it.modifiers, ["global", "L1::no_allocate", "v2", "b32"]);
    assert_eq!(
        it.operands,
        [
            Operand::Vector(vec![name("%r1"), Operand::Sink]),
            address("%rd1", -8, vec![])
        ]
    );
    assert_eq!((it.pos.line, it.pos.column), (5, 7));
}

#[test]
fn operands() {
    let operands = |text: &str| instruction(&format!("op {text};")).operands;
    assert_eq!(
        operands("%tid.x, %r1"),
        [Operand::Member("%tid".into(), "x".into()), name("%r1")]
    );
    assert_eq!(
        operands("a+8, a+-8, a+-8+4, a+4<<1, a+(8-4)"),
        [8, -8, -4, 8, 4].map(|n| Operand::Offset("a".into(), n))
    );
    let element = |register: Option<&str>, offset| {
        let register = register.map(str::to_owned);
        Operand::Element("a".into(), Index { register, offset })
    };
    assert_eq!(
        operands("a[1], a[2+4], a[-1], a[%r1], a[%r1+1]"),
        [
            element(None, 1),
            element(None, 6),
            element(None, -1),
            element(Some("%r1"), 0),
            element(Some("%r1"), 1)
        ]
    );
    assert_eq!(
        operands("[a], [a+8], [a+-8], [a+-8+2*4], [a+16-8]"),
        [0, 8, -8, 0, 8].map(|n| address("a", n, vec![]))
    );
    assert_eq!(
        operands("[16]"),
        [Operand::Address(Address {
            base: AddressBase::Immediate(16),
            offset: 0,
            rest: vec![]
        })]
    );
    assert_eq!(
        operands("%p|%q, _|%q, !%p"),
        [
            Operand::Pair(Box::new(name("%p")), Box::new(name("%q"))),
            Operand::Pair(Box::new(Operand::Sink), Box::new(name("%q"))),
            Operand::Not(Box::new(name("%p"))),
        ]
    );
    assert_eq!(
        operands("[map, {%r1, 2}], -%r1, -5"),
        [
            address("map", 0, vec![Operand::Vector(vec![name("%r1"), int(2)])]),
            Operand::Negate(Box::new(name("%r1"))),
            int(-5),
        ]
    );
    assert_eq!(
        operands("WARP_SZ, -WARP_SZ, WARP_SZ-1, -WARP_SZ*2"),
        [
            name("WARP_SZ"),
            Operand::Negate(Box::new(name("WARP_SZ"))),
            int(31),
            int(-64)
        ]
    );
    assert_eq!(operands("(1+2)*3, 1|2"), [int(9), int(3)]);
}

#[test]
fn calls() {
    let call = instruction("call.uni (r0, _), f, (a, 5), proto;");
    assert_eq!(
        call.operands,
        [
            Operand::List(vec![name("r0"), Operand::Sink]),
            name("f"),
            Operand::List(vec![name("a"), int(5)]),
            name("proto")
        ]
    );
    assert_eq!(instruction("call f;").operands, [name("f")]);
    assert_eq!(
        instruction("call f, ();").operands,
        [name("f"), Operand::List(vec![])]
    );
}

#[test]
fn declared_names_are_statements_of_their_own() {
    let [
        Statement::Variable(first),
        Statement::Variable(second),
        Statement::Variable(third),
    ] = &body(".local .align 8 .b8 a[4], b<3>, c[2][3] = {1};")[..]
    else {
        panic!("three variables")
    };
    assert_eq!(
        (first.name.as_str(), first.align, first.dims.as_slice()),
        ("a", Some(8), &[Some(4)][..])
    );
    assert_eq!(
        (second.name.as_str(), second.range, second.dims.len()),
        ("b", Some(3), 0)
    );
    assert_eq!((third.dims.len(), third.init.is_some()), (2, true));
    assert_eq!((third.pos.line, third.pos.column), (5, 33));
}

#[test]
fn variables() {
    let it = variable(
        ".visible .const[3] .attribute(.managed, .unified(1, -2)) .align 16 .v4 .f32 q[];",
    );
    assert_eq!(
        (it.linkage, it.space, it.bank),
        (Linkage::Visible, Space::Const, Some(3))
    );
    assert_eq!(
        (it.align, it.vector, it.ty, it.dims),
        (Some(16), 4, Type::F32, vec![None])
    );
    assert_eq!(
        it.attributes[1],
        Attribute {
            name: "unified".into(),
            args: vec![1, -2]
        }
    );
    let Some(Init::List(list)) =
        variable(".global .u64 a[] = {f, generic(f)+8, 0xFF00(generic(f)+-4), {1}};").init
    else {
        panic!("a list")
    };
    let at = |offset, generic, mask| Init::Address {
        pos: Pos::default(),
        symbol: "f".into(),
        offset,
        generic,
        mask,
    };
    let one = Init::List(vec![Init::Value(Immediate::Int {
        bits: 1,
        signed: true,
    })]);
    assert_eq!(
        list,
        [
            at(0, false, None),
            at(8, true, None),
            at(-4, true, Some(0xFF00)),
            one
        ]
    );
}

#[test]
fn functions() {
    let items = items(
        ".visible .entry k(.param .u64 .ptr .global .align 16 p) .maxntid 8, 4 .noreturn .pragma \"x\"; { ret; }
        .extern .func (.reg .b32 r) f(.param .b8 a[3]);
        .entry bare { }",
    );
    let [Item::Function(k), Item::Function(f), Item::Function(bare)] = &items[..] else {
        panic!("{items:?}")
    };
    assert!(k.kernel && k.linkage == Linkage::Visible);
    assert_eq!(
        k.params[0].ptr,
        Some(PtrAttribute {
            space: Some(Space::Global),
            align: Some(16)
        })
    );
    assert_eq!(
        k.directives,
        [
            FunctionDirective::Numbers("maxntid".into(), vec![8, 4]),
            FunctionDirective::Numbers("noreturn".into(), vec![]),
            FunctionDirective::Pragma(vec!["x".into()])
        ]
    );
    assert!(!f.kernel && f.body.is_none() && f.returns[0].space == Space::Reg);
    assert!(bare.params.is_empty() && bare.body.as_ref().is_some_and(Vec::is_empty));
}

#[test]
fn labels_and_what_they_name() {
    let statements = body(
        "$L: a: t: .branchtargets x, y; c: .calltargets f; p: .callprototype (.param .b32 _) _ ();",
    );
    let [
        Statement::Label(_, first),
        Statement::Label(_, _),
        Statement::BranchTargets(_, t, targets),
        Statement::CallTargets(_, _, callees),
        Statement::CallPrototype(_, _, prototype),
    ] = &statements[..]
    else {
        panic!("{statements:?}")
    };
    assert_eq!((first.as_str(), t.as_str(), callees.len()), ("$L", "t", 1));
    assert_eq!(targets, &["x", "y"]);
    assert_eq!(
        (prototype.returns[0].name.as_str(), prototype.params.len()),
        ("_", 0)
    );
}

#[test]
fn debug_data() {
    let items = items(
        ".file 3 \"a.cu\", 5, 6
        .loc 1 2 3, function_name $s+4, inlined_at 1 8 9
        .section .debug_x { a: .b8 1, 0x10 .b32 .debug_y, a+4 .b64 b-a }",
    );
    let inlined = InlinedAt {
        function: "$s".into(),
        offset: 4,
        at: (1, 8, 9),
    };
    let data = |ty: &str, values| SectionLine::Data {
        ty: ty.into(),
        values,
    };
    assert_eq!(
        items,
        [
            Item::File {
                index: 3,
                name: "a.cu".into(),
                stamp: Some((5, 6))
            },
            Item::Loc(Loc {
                file: 1,
                line: 2,
                column: 3,
                inlined: Some(inlined)
            }),
            Item::Section {
                name: ".debug_x".into(),
                lines: vec![
                    SectionLine::Label("a".into()),
                    data("b8", vec![SectionValue::Int(1), SectionValue::Int(16)]),
                    data(
                        "b32",
                        vec![
                            SectionValue::Symbol(".debug_y".into(), 0),
                            SectionValue::Symbol("a".into(), 4)
                        ]
                    ),
                    data(
                        "b64",
                        vec![SectionValue::Difference("b".into(), "a".into())]
                    ),
                ]
            }
        ]
    );
}

#[test]
fn comments_and_lines_of_a_preprocessor_are_nothing() {
    assert_eq!(
        instruction("add /* , */ a // ;\n # 1 \"x\"\n, b;").operands,
        [name("a"), name("b")]
    );
    assert_eq!(body("/* { */ ret; /**/ // }\n/***/").len(), 1);
    // A sign of a comment within a string is text.
    assert_eq!(
        items(".pragma \"//\", \"/*\";"),
        [Item::Pragma(vec!["//".into(), "/*".into()])]
    );
}

/// What a module names twice, and types that do not fit, are for others to judge.
#[test]
fn any_instruction_is_a_tree() {
    let it = instruction("frobnicate.8x3.L9::z.b32x17_p3 [a, {1, [b]}]|q, {{1}}, -x.y;");
    assert_eq!(it.modifiers, ["8x3", "L9::z", "b32x17_p3"]);
    assert_eq!(it.operands.len(), 3);
}
