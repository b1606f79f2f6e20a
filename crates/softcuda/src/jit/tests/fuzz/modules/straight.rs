//! Modules that end by themselves, and those that do the same each time.
//!
//! A kernel that loops for ever would hang, as on a device. So jumps back are taken out, and calls
//! of what was defined before too.

use std::collections::{HashMap, HashSet};

use ptx::ast::{AddressBase, Ident, Item, Module, Operand, Space, Statement};

/// Takes out what can go back: jumps to labels that stand before, and calls of functions that are
/// not defined later.
pub fn straighten(module: &mut Module) {
    let order: HashMap<Ident, usize> = module
        .items
        .iter()
        .enumerate()
        .filter_map(|(at, item)| match item {
            Item::Function(function) => Some((function.name.clone(), at)),
            _ => None,
        })
        .collect();
    for (at, item) in module.items.iter_mut().enumerate() {
        if let Item::Function(function) = item
            && let Some(body) = &mut function.body
        {
            let earlier: HashSet<Ident> = order
                .iter()
                .filter(|(_, defined)| **defined <= at)
                .map(|(name, _)| name.clone())
                .collect();
            forward(body, &mut HashSet::new(), &earlier);
        }
    }
}

fn forward(body: &mut Vec<Statement>, passed: &mut HashSet<Ident>, earlier: &HashSet<Ident>) {
    body.retain_mut(|statement| match statement {
        Statement::Label(_, name) => {
            // A name may be declared again in another scope: then no jump to it is safe.
            passed.insert(name.clone());
            true
        }
        Statement::Block(inner) => {
            forward(inner, passed, earlier);
            true
        }
        Statement::BranchTargets(_, _, labels) => {
            labels.retain(|label| !passed.contains(label));
            !labels.is_empty()
        }
        Statement::Instruction(instruction) => {
            let names = |operand: &Operand, set: &HashSet<Ident>| matches!(operand, Operand::Name(name) if set.contains(name));
            match instruction.opcode.as_str() {
                "bra" => !instruction.operands.iter().any(|operand| names(operand, passed)),
                // What is behind a pointer may be anything.
                "call" => {
                    let direct = !instruction.operands.iter().any(
                        |operand| matches!(operand, Operand::Name(name) if name.starts_with('%')),
                    );
                    direct && !instruction.operands.iter().any(|operand| names(operand, earlier))
                }
                "brx" => false,
                "nanosleep" => false,
                _ => true,
            }
        }
        _ => true,
    });
}

/// Whether a function loads from `.param` variables of its own. Where the call that writes them was
/// taken away, what is there differs from one frame to another.
pub fn loads_results(module: &Module) -> bool {
    module.items.iter().any(|item| match item {
        Item::Function(function) => {
            body_loads(function.body.as_deref().unwrap_or(&[]), &mut Vec::new())
        }
        _ => false,
    })
}

fn body_loads(body: &[Statement], declared: &mut Vec<Ident>) -> bool {
    body.iter().any(|statement| match statement {
        Statement::Variable(variable) if variable.space == Space::Param => {
            declared.push(variable.name.clone());
            false
        }
        Statement::Block(inner) => body_loads(inner, declared),
        Statement::Instruction(instruction) => {
            let is_own = |operand: &Operand| match operand {
                Operand::Address(address) => match &address.base {
                    AddressBase::Name(name) => declared.contains(name),
                    AddressBase::Immediate(_) => false,
                },
                _ => false,
            };
            instruction.opcode == "ld" && instruction.operands.iter().any(is_own)
        }
        _ => false,
    })
}
