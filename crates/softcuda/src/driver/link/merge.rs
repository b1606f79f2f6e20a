//! Several parsed texts become one.

use std::collections::{HashMap, HashSet};

use ptx::ast::{Instruction, Item, Linkage, Module, Space, Statement};
use ptx::opcode::Target;

use crate::driver::code;

/// The module with something in the place of all that it leaves to others to define, so that it can
/// be checked alone.
pub(super) fn closed(module: &Module) -> Module {
    let mut module = module.clone();
    let defined: HashSet<String> = module
        .items
        .iter()
        .filter_map(linkage)
        .filter(|&(.., defines)| defines)
        .map(|(name, ..)| name.to_owned())
        .collect();
    for item in &mut module.items {
        match item {
            Item::Function(function)
                if function.body.is_none() && !defined.contains(&function.name) =>
            {
                function.linkage = Linkage::Visible;
                function.body = Some(vec![Statement::Instruction(Instruction {
                    pos: function.pos,
                    guard: None,
                    opcode: "trap".to_owned(),
                    modifiers: Vec::new(),
                    operands: Vec::new(),
                })]);
            }
            Item::Variable(variable)
                if variable.linkage == Linkage::Extern
                    && matches!(variable.space, Space::Global | Space::Const) =>
            {
                variable.linkage = Linkage::Visible;
                variable
                    .dims
                    .iter_mut()
                    .for_each(|dim| *dim = dim.or(Some(1)));
            }
            _ => {}
        }
    }
    module
}

/// How an item is linked, for items that have names.
pub(super) fn linkage(item: &Item) -> Option<(&str, Linkage, bool)> {
    match item {
        Item::Variable(variable) => Some((
            &variable.name,
            variable.linkage,
            variable.linkage != Linkage::Extern,
        )),
        Item::Function(function) => {
            Some((&function.name, function.linkage, function.body.is_some()))
        }
        _ => None,
    }
}

/// One module of several: the newest version and target, each symbol once.
pub(super) fn merge(modules: &[&Module]) -> Module {
    let version = modules.iter().map(|module| module.version).max();
    let newest = modules.iter().max_by_key(|module| Target::of(module));
    let mut merged = Module {
        version: version.unwrap_or((8, 0)),
        target: newest.map_or_else(
            || vec![format!("sm_{}", code::capability())],
            |module| module.target.clone(),
        ),
        address_size: 64,
        items: Vec::new(),
    };
    let defined: HashSet<&str> = modules
        .iter()
        .flat_map(|module| &module.items)
        .filter_map(linkage)
        .filter(|&(_, linkage, defines)| defines && linkage != Linkage::Internal)
        .map(|(name, ..)| name)
        .collect();
    // One of these takes the place of all weak ones of its name.
    let strong: HashSet<&str> = modules
        .iter()
        .flat_map(|module| &module.items)
        .filter_map(linkage)
        .filter(|&(_, linkage, defines)| defines && linkage == Linkage::Visible)
        .map(|(name, ..)| name)
        .collect();
    let mut taken: HashSet<String> = HashSet::new();
    for &module in modules {
        let mut module = module.clone();
        let own: HashSet<String> = module
            .items
            .iter()
            .filter_map(linkage)
            .filter(|&(_, linkage, _)| linkage == Linkage::Internal)
            .map(|(name, ..)| name.to_owned())
            .collect();
        let renamed: HashMap<String, String> = own
            .iter()
            .filter(|name| taken.contains(*name) || defined.contains(name.as_str()))
            .map(|name| {
                let mut number = 1;
                while taken.contains(&format!("{name}${number}")) {
                    number += 1;
                }
                (name.clone(), format!("{name}${number}"))
            })
            .collect();
        if !renamed.is_empty() {
            module = renamed_module(&module, &renamed);
        }
        for item in module.items {
            let keep = match linkage(&item) {
                // Debug data and file tables of several texts do not fit together.
                None => matches!(item, Item::Alias { .. }),
                Some((name, Linkage::Extern, _)) => {
                    !defined.contains(name) && taken.insert(name.to_owned())
                }
                Some((name, Linkage::Weak | Linkage::Common, true)) => {
                    !strong.contains(name) && taken.insert(name.to_owned())
                }
                Some((name, _, true)) => {
                    taken.insert(name.to_owned());
                    true
                }
                // A declaration ahead of its definition in the same text.
                Some((_, Linkage::Internal, false)) => true,
                Some((name, _, false)) => !taken.contains(name),
            };
            if keep {
                merged.items.push(item);
            }
        }
    }
    merged
}

/// The module with names replaced wherever they stand. Local names that happen to be the same
/// change with them, which changes no meaning; opcodes and directives stand next to a dot, and
/// stay.
fn renamed_module(module: &Module, names: &HashMap<String, String>) -> Module {
    let text = module.to_string();
    let mut result = String::with_capacity(text.len());
    let mut after = text.as_str();
    for token in tokens(&text) {
        after = &after[token.len()..];
        let beside_dot = result.ends_with('.') || after.starts_with('.');
        match names.get(token) {
            Some(name) if !beside_dot => result.push_str(name),
            _ => result.push_str(token),
        }
    }
    ptx::parse(&result).expect("a printed module with other names parses")
}

/// The words, strings and other characters of a printed module, in order and without a gap.
pub(super) fn tokens(text: &str) -> impl Iterator<Item = &str> {
    let part_of_name = |c: char| c.is_ascii_alphanumeric() || matches!(c, '_' | '$' | '%');
    let mut rest = text;
    std::iter::from_fn(move || {
        let first = rest.chars().next()?;
        let length = if first == '"' {
            rest[1..].find('"').map_or(rest.len(), |end| end + 2)
        } else if part_of_name(first) {
            rest.find(|c| !part_of_name(c)).unwrap_or(rest.len())
        } else {
            first.len_utf8()
        };
        let (token, after) = rest.split_at(length);
        rest = after;
        Some(token)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(body: &str) -> Module {
        ptx::parse(&format!(
            ".version 8.0\n.target sm_90\n.address_size 64\n{body}"
        ))
        .unwrap()
    }

    #[test]
    fn definitions_take_the_place_of_declarations() {
        let user = parse(
            ".extern .func (.param .b32 r) twice(.param .b32 x);
             .extern .global .align 4 .u32 shared_count;
             .visible .entry k() { .reg .b32 %r<2>; ld.global.u32 %r1, [shared_count]; ret; }",
        );
        let library = parse(
            ".visible .global .align 4 .u32 shared_count = 7;
             .visible .func (.param .b32 r) twice(.param .b32 x) { ret; }",
        );
        for modules in [[user.clone(), library.clone()], [library, user]] {
            let merged = merge(&[&modules[0], &modules[1]]);
            assert_eq!(merged.items.len(), 3);
            assert!(
                merged
                    .items
                    .iter()
                    .all(|item| linkage(item).unwrap().1 == Linkage::Visible)
            );
            assert_eq!(ptx::parse(&merged.to_string()).unwrap(), merged);
        }
    }

    #[test]
    fn internal_names_stay_apart_and_weak_ones_come_once() {
        let one = parse(
            ".global .u32 state; .weak .func w() { ret; } .func add() { ret; }
             .visible .entry one() { .reg .b32 %r<2>; add.s32 %r1, %r1, 1; st.global.u32 [state], 1; call add; ret; }",
        );
        let two = parse(
            ".global .u32 state; .weak .func w() { ret; } .func add() { ret; }
             .visible .entry two() { .reg .b32 %r<2>; add.s32 %r1, %r1, 1; st.global.u32 [state], 2; call add; ret; }",
        );
        let text = merge(&[&one, &two]).to_string();
        assert!(
            text.contains("[state]") && text.contains("[state$1]"),
            "{text}"
        );
        assert!(
            text.contains("call add;") && text.contains("call add$1;"),
            "{text}"
        );
        assert_eq!(text.matches("add.s32").count(), 2);
        assert_eq!(text.matches(".func w").count(), 1);
    }
}
