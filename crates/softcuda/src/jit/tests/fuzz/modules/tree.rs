//! Damage to a syntax tree: what comes out prints as PTX whose grammar is right, and whose meaning
//! may be anything.

use std::collections::HashMap;

use ptx::ast::{
    AddressBase, Function, FunctionDirective, Guard, Ident, Init, Instruction, Item, Module,
    Operand, Pos, Space, Statement, Type, Variable,
};

use super::Random;
use super::forms;
use super::pieces::*;
use super::seeds::{self, Seeds};

/// One to six changes, most of them to a body.
pub fn damage(random: &mut Random, module: &mut Module, seeds: &Seeds) {
    for _ in 0..[1, 1, 2, 2, 3, 6][random.below(6)] {
        if random.below(8) == 0 {
            change_items(random, module);
        }
        if random.below(12) == 0 {
            change_a_variable(random, module);
        }
        let symbols: Vec<(Ident, bool)> = module
            .items
            .iter()
            .filter_map(|item| match item {
                Item::Variable(variable) => Some((variable.name.clone(), false)),
                Item::Function(function) => Some((function.name.clone(), true)),
                _ => None,
            })
            .collect();
        let bodies: Vec<usize> = (0..module.items.len())
            .filter(|at| matches!(&module.items[*at], Item::Function(function) if function.body.is_some()))
            .collect();
        if bodies.is_empty() {
            continue;
        }
        if let Item::Function(function) = &mut module.items[bodies[random.below(bodies.len())]] {
            if random.below(12) == 0 {
                change_function(random, function);
            }
            let names = names(function, &symbols);
            for _ in 0..1 + random.below(3) {
                change_body(random, function, &names, seeds);
            }
        }
    }
}

fn names(function: &Function, symbols: &[(Ident, bool)]) -> Names {
    let body = function.body.as_deref().unwrap_or_default();
    let mut registers = HashMap::new();
    seeds::registers(body, &mut registers);
    let mut registers: Vec<(Ident, Type)> = registers.into_iter().collect();
    registers.sort_by(|a, b| a.0.cmp(&b.0));
    let mut names = Names {
        registers,
        labels: vec![],
        tables: vec![],
        symbols: symbols.iter().map(|(name, _)| name.clone()).collect(),
        functions: symbols
            .iter()
            .filter(|(_, function)| *function)
            .map(|(name, _)| name.clone())
            .collect(),
    };
    let params = function.params.iter().chain(&function.returns);
    names
        .symbols
        .extend(params.map(|variable| variable.name.clone()));
    collect(body, &mut names);
    names
}

fn collect(body: &[Statement], names: &mut Names) {
    for statement in body {
        match statement {
            Statement::Label(_, name) => names.labels.push(name.clone()),
            Statement::BranchTargets(_, name, _)
            | Statement::CallTargets(_, name, _)
            | Statement::CallPrototype(_, name, _) => names.tables.push(name.clone()),
            Statement::Variable(variable) if variable.space != Space::Reg => {
                names.symbols.push(variable.name.clone());
            }
            Statement::Block(inner) => collect(inner, names),
            _ => {}
        }
    }
}

/// Items of the module go, come twice, change places; its header changes.
fn change_items(random: &mut Random, module: &mut Module) {
    let count = module.items.len();
    if count == 0 {
        return;
    }
    let (a, b) = (random.below(count), random.below(count));
    match random.below(8) {
        0 => drop(module.items.remove(a)),
        1 => {
            let item = module.items[a].clone();
            module.items.insert(b, item);
        }
        2 | 3 => module.items.swap(a, b),
        4 => {
            module.version = one_of(
                random,
                &[(6, 0), (8, 8), (9, 0), (9, 9), (0, 0), (4294967295, 1)],
            )
        }
        5 => {
            module.target = vec![
                one_of(
                    random,
                    &["sm_90", "sm_52", "sm_90a", "sm_100", "sm_", "compute_80"],
                )
                .into(),
            ];
        }
        6 => {
            let Item::Function(function) = &module.items[a] else {
                return;
            };
            let alias = Item::Alias {
                pos: Pos::default(),
                name: one_of(random, &["other", "calls", "structure"]).into(),
                aliasee: function.name.clone(),
            };
            module.items.insert(b, alias);
        }
        _ => {
            // A second declaration, or the first, without its body.
            if let Item::Function(function) = &module.items[a] {
                let declaration = Function {
                    body: None,
                    linkage: one_of(random, LINKAGES),
                    ..function.clone()
                };
                module.items.insert(b, Item::Function(declaration));
            }
        }
    }
}

fn change_a_variable(random: &mut Random, module: &mut Module) {
    let mut variables: Vec<&mut Variable> = vec![];
    for item in &mut module.items {
        match item {
            Item::Variable(variable) => variables.push(variable),
            Item::Function(function) => {
                variables.extend(function.params.iter_mut().chain(&mut function.returns));
                if let Some(body) = &mut function.body {
                    declared(body, &mut variables);
                }
            }
            _ => {}
        }
    }
    if variables.is_empty() {
        return;
    }
    let at = random.below(variables.len());
    let other = variables[random.below(variables.len())].clone();
    change_variable(random, variables[at], &other);
}

fn declared<'a>(body: &'a mut [Statement], found: &mut Vec<&'a mut Variable>) {
    for statement in body {
        match statement {
            Statement::Variable(variable) => found.push(variable),
            Statement::Block(inner) => declared(inner, found),
            _ => {}
        }
    }
}

fn change_variable(random: &mut Random, variable: &mut Variable, other: &Variable) {
    match random.below(10) {
        0 => variable.ty = one_of(random, TYPES),
        1 => {
            variable.align = one_of(
                random,
                &[
                    None,
                    Some(0),
                    Some(1),
                    Some(2),
                    Some(3),
                    Some(4),
                    Some(8),
                    Some(16),
                    Some(128),
                    Some(1 << 20),
                    Some(1 << 21),
                    Some(1 << 31),
                    Some(u32::MAX),
                ],
            );
        }
        2 => {
            if variable.dims.is_empty() {
                variable.dims.push(None);
            }
            let at = random.below(variable.dims.len());
            variable.dims[at] = match random.below(3) {
                0 => Some(one_of(random, EDGES)),
                1 => Some(random.below(5000) as u64),
                _ => one_of(
                    random,
                    &[
                        None,
                        Some(1 << 20),
                        Some(1 << 34),
                        Some(1 << 40),
                        Some(3 << 61),
                    ],
                ),
            };
        }
        3 => variable.dims.insert(0, Some(one_of(random, EDGES))),
        4 => variable.vector = one_of(random, &[1, 2, 4, 8]),
        5 => variable.space = one_of(random, SPACES),
        6 => variable.linkage = one_of(random, LINKAGES),
        7 => {
            variable.range = one_of(
                random,
                &[None, Some(0), Some(1), Some(2), Some(1000), Some(u32::MAX)],
            );
        }
        8 => variable.name = other.name.clone(),
        _ => {
            variable.init = match random.below(5) {
                0 => None,
                1 => other.init.clone(),
                2 => Some(Init::Value(immediate(random))),
                3 => Some(Init::Address {
                    pos: Pos::default(),
                    symbol: other.name.clone(),
                    offset: one_of(random, EDGES) as i64,
                    generic: random.below(2) == 0,
                    mask: one_of(
                        random,
                        &[None, Some(0), Some(0xFF), Some(0xFF00), Some(u64::MAX)],
                    ),
                }),
                _ => Some(Init::List(
                    (0..random.below(6))
                        .map(|n| match n {
                            3 => Init::List(vec![Init::Value(immediate(random))]),
                            _ => Init::Value(immediate(random)),
                        })
                        .collect(),
                )),
            };
        }
    }
}

fn change_function(random: &mut Random, function: &mut Function) {
    match random.below(8) {
        0 => function.kernel = !function.kernel,
        1 => function.linkage = one_of(random, LINKAGES),
        2 => function.body = None,
        3 => {
            let name = one_of(
                random,
                &[
                    "maxntid",
                    "reqntid",
                    "minnctapersm",
                    "maxnreg",
                    "reqnctapercluster",
                    "maxclusterrank",
                    "noreturn",
                ],
            );
            let numbers = match name {
                "noreturn" => vec![],
                _ => (0..1 + random.below(3))
                    .map(|_| one_of(random, EDGES) as u32)
                    .collect(),
            };
            function
                .directives
                .push(FunctionDirective::Numbers(name.into(), numbers));
        }
        4 if !function.params.is_empty() => {
            let at = random.below(function.params.len());
            function.params.remove(at);
        }
        5 if !function.params.is_empty() => {
            let mut param = function.params[random.below(function.params.len())].clone();
            if random.below(4) != 0 {
                param.name = format!("{}_{}", param.name, random.below(100));
            }
            let at = random.below(function.params.len() + 1);
            function.params.insert(at, param);
        }
        6 => std::mem::swap(&mut function.params, &mut function.returns),
        _ => {
            function.name = one_of(
                random,
                &["vprintf", "malloc", "calls", "apply_one", "__assertfail"],
            )
            .into()
        }
    }
}

/// The body or a block in it.
fn some_block<'a>(random: &mut Random, body: &'a mut Vec<Statement>) -> &'a mut Vec<Statement> {
    let blocks: Vec<usize> = (0..body.len())
        .filter(|at| matches!(body[*at], Statement::Block(_)))
        .collect();
    if blocks.is_empty() || random.below(2) == 0 {
        return body;
    }
    match &mut body[blocks[random.below(blocks.len())]] {
        Statement::Block(inner) => some_block(random, inner),
        _ => unreachable!("blocks were looked for"),
    }
}

fn change_body(random: &mut Random, function: &mut Function, names: &Names, seeds: &Seeds) {
    let Some(whole) = &mut function.body else {
        return;
    };
    if random.below(10) < 3 {
        let inserted = inserted(random, names, seeds);
        declare(whole);
        let body = some_block(random, whole);
        let at = random.below(body.len() + 1);
        body.splice(at..at, inserted);
        return;
    }
    let body = some_block(random, whole);
    if body.is_empty() {
        return;
    }
    let (at, other) = (random.below(body.len()), random.below(body.len()));
    match random.below(24) {
        0 => drop(body.remove(at)),
        1 => {
            let statement = body[at].clone();
            body.insert(other, statement);
        }
        2 => body.swap(at, other),
        3 => {
            // A scope around some statements, or many around one.
            let end = body.len().min(at + 1 + random.below(8));
            let mut inner: Vec<Statement> = body.drain(at..end).collect();
            for _ in 0..one_of(random, &[1, 1, 1, 2, 40, 126]) {
                inner = vec![Statement::Block(inner)];
            }
            body.splice(at..at, inner);
        }
        4 => {
            if let Statement::Block(inner) = &body[at] {
                let inner = inner.clone();
                body.splice(at..=at, inner);
            }
        }
        5 => body.insert(at, Statement::Label(Pos::default(), label(random, names))),
        6 => body.insert(at, Statement::Instruction(jump(random, names))),
        7 => {
            let labels = (0..random.below(5)).map(|_| label(random, names)).collect();
            let name = format!("table{}", random.below(50));
            body.insert(
                at,
                Statement::Instruction(plain(
                    "brx.idx",
                    vec![operand(random, names), Operand::Name(name.clone())],
                )),
            );
            body.insert(at, Statement::BranchTargets(Pos::default(), name, labels));
        }
        8 => body.truncate(at),
        _ => {
            // Most statements that are not instructions are left alone.
            let instructions: Vec<usize> = (0..body.len())
                .filter(|at| matches!(body[*at], Statement::Instruction(_)))
                .collect();
            if instructions.is_empty() {
                return;
            }
            if let Statement::Instruction(instruction) =
                &mut body[instructions[random.below(instructions.len())]]
            {
                change_instruction(random, instruction, names, seeds);
            }
        }
    }
}

fn change_instruction(
    random: &mut Random,
    instruction: &mut Instruction,
    names: &Names,
    seeds: &Seeds,
) {
    let operands = instruction.operands.len();
    let modifiers = instruction.modifiers.len();
    match random.below(16) {
        0 if operands > 0 => instruction
            .operands
            .swap(random.below(operands), random.below(operands)),
        1 | 2 if operands > 0 => {
            let at = random.below(operands);
            instruction.operands[at] = operand(random, names);
        }
        3 if operands > 0 => {
            let at = random.below(operands);
            instruction.operands[at] = Operand::Immediate(immediate(random));
        }
        // Inside vectors, lists and addresses too.
        4 | 5 if operands > 0 => {
            let at = random.below(operands);
            let chance = 1 + random.below(3);
            seeds::walk(&mut instruction.operands[at], &mut |inner| {
                if random.below(chance) == 0 {
                    change_operand(random, inner, names);
                }
            });
        }
        6 | 7 if modifiers > 0 => {
            let at = random.below(modifiers);
            instruction.modifiers[at] = modifier(random, &instruction.opcode, seeds);
        }
        8 if modifiers > 0 => {
            let at = random.below(modifiers);
            instruction.modifiers[at] = one_of(random, TYPES).name().into();
        }
        9 => {
            let at = random.below(modifiers + 1);
            let modifier = modifier(random, &instruction.opcode, seeds);
            instruction.modifiers.insert(at, modifier);
        }
        10 if modifiers > 0 => drop(instruction.modifiers.remove(random.below(modifiers))),
        11 => {
            // Another opcode, of those that take as many operands.
            let (from, _) = &seeds.instructions[random.below(seeds.instructions.len())];
            if from.operands.len() == operands || random.below(4) == 0 {
                instruction.opcode = from.opcode.clone();
                if random.below(2) == 0 {
                    instruction.modifiers = from.modifiers.clone();
                }
            }
        }
        12 if operands > 0 => {
            let at = random.below(operands);
            match random.below(3) {
                0 => drop(instruction.operands.remove(at)),
                1 => {
                    let copy = instruction.operands[at].clone();
                    instruction.operands.push(copy);
                }
                _ => instruction.operands.insert(at, operand(random, names)),
            }
        }
        13 | 14 => {
            instruction.guard = match (&instruction.guard, random.below(4)) {
                (Some(_), 0) => None,
                (Some(guard), 1) => Some(Guard {
                    negated: !guard.negated,
                    register: guard.register.clone(),
                }),
                _ => {
                    let predicates: Vec<&Ident> = names
                        .registers
                        .iter()
                        .filter(|(_, ty)| *ty == Type::Pred)
                        .map(|(name, _)| name)
                        .collect();
                    let register = match predicates.is_empty() || random.below(10) == 0 {
                        true => register(random, names),
                        false => predicates[random.below(predicates.len())].clone(),
                    };
                    Some(Guard {
                        negated: random.below(2) == 0,
                        register,
                    })
                }
            };
        }
        _ => {}
    }
}

fn change_operand(random: &mut Random, inner: &mut Operand, names: &Names) {
    match inner {
        Operand::Address(address) => match random.below(4) {
            0 => address.offset = one_of(random, EDGES) as i64,
            1 => address.base = AddressBase::Immediate(one_of(random, EDGES)),
            2 => address.base = AddressBase::Name(symbol(random, names)),
            _ => address.base = AddressBase::Name(register(random, names)),
        },
        Operand::Vector(list) | Operand::List(list) => match (list.len(), random.below(3)) {
            (0, _) | (_, 0) => list.push(operand(random, names)),
            (count, 1) => drop(list.remove(random.below(count))),
            (count, _) => list.swap(random.below(count), random.below(count)),
        },
        Operand::Immediate(number) => *number = immediate(random),
        _ => {
            let old = std::mem::replace(inner, Operand::Sink);
            *inner = match random.below(12) {
                0 => Operand::Not(Box::new(old)),
                1 => Operand::Vector(vec![old, operand(random, names)]),
                2 => Operand::Pair(Box::new(old), Box::new(operand(random, names))),
                3 => Operand::List(vec![old]),
                4 => Operand::Sink,
                _ => operand(random, names),
            };
        }
    }
}

/// An instruction of the pool, with registers and symbols of this body put in the place of its own.
fn inserted(random: &mut Random, names: &Names, seeds: &Seeds) -> Vec<Statement> {
    (0..1 + random.below(4))
        .map(|_| {
            let (from, types) = &seeds.instructions[random.below(seeds.instructions.len())];
            let mut instruction = from.clone();
            let keep = random.below(3) == 0;
            for operand in &mut instruction.operands {
                seeds::walk(operand, &mut |operand| {
                    rebind(random, operand, types, names, keep);
                });
            }
            if let Some(guard) = &mut instruction.guard {
                guard.register = like(random, Type::Pred, names);
            }
            Statement::Instruction(instruction)
        })
        .collect()
}

fn rebind(
    random: &mut Random,
    operand: &mut Operand,
    types: &HashMap<Ident, Type>,
    names: &Names,
    keep: bool,
) {
    let rename = |random: &mut Random, name: &mut Ident| {
        // A form's own registers are declared wherever it is inserted.
        if name.starts_with("%z") {
            if !keep && random.below(3) == 0 {
                let ty = form_type(name);
                *name = like(random, ty, names);
            }
        } else if let Some(ty) = types.get(name) {
            *name = like(random, *ty, names);
        } else if !name.starts_with('%') && name != "_" {
            *name = match names.labels.is_empty() || random.below(2) == 0 {
                true => symbol(random, names),
                false => label(random, names),
            };
        }
    };
    match operand {
        Operand::Name(name) => rename(random, name),
        Operand::Member(name, _) if types.contains_key(name) => {
            let name = name.clone();
            *operand = Operand::Name(like(random, types[&name], names));
        }
        Operand::Offset(name, _) | Operand::Element(name, _) => *name = symbol(random, names),
        Operand::Address(address) => {
            if let AddressBase::Name(name) = &mut address.base {
                rename(random, name);
            }
        }
        _ => {}
    }
}

fn form_type(name: &str) -> Type {
    match name.as_bytes().get(2) {
        Some(b'p') => Type::Pred,
        Some(b'h') => Type::B16,
        Some(b'r') => Type::B32,
        Some(b'z') => Type::B128,
        Some(b'f') => Type::F32,
        Some(b'd') => Type::F64,
        _ => Type::B64,
    }
}

/// The registers of the forms, declared once.
fn declare(body: &mut Vec<Statement>) {
    let known = |statement: &Statement| matches!(statement, Statement::Variable(variable) if variable.name == "%zp");
    if body.iter().any(known) {
        return;
    }
    let source = format!(
        ".version 8.8 .target sm_90a .entry k() {{ {} }}",
        forms::DECLARATIONS
    );
    let module = ptx::parse(&source).expect("the declarations are right");
    if let Some(Item::Function(function)) = module.items.into_iter().next() {
        body.splice(0..0, function.body.unwrap_or_default());
    }
}
