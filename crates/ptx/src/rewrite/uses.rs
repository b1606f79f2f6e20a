//! What each item of a module uses, and whether a second module may have it.

use std::collections::{HashMap, HashSet};

use super::refusal::{NotCopied, Refusal};
use super::tables;
use super::written::{callee, names, written};
use crate::ast::*;
use crate::opcode::Opcode;

/// What is known of an item.
#[derive(Default)]
pub(super) struct Uses {
    /// The items that it names, by number.
    pub items: Vec<usize>,
    /// Why no other module may have it; of a variable, with the name of no function yet.
    pub refusal: Option<Refusal>,
}

/// What is known of each item of a module.
pub(super) fn uses(module: &Module, by_name: &HashMap<Ident, Vec<usize>>) -> Vec<Uses> {
    let constants: HashSet<&str> = module
        .items
        .iter()
        .filter_map(|item| match item {
            Item::Variable(variable) if not_copied(variable).is_none() => Some(&*variable.name),
            _ => None,
        })
        .collect();
    let written = written(module, &constants);
    let of = |item: &Item| match item {
        Item::Function(function) => of_function(module, by_name, function),
        Item::Variable(variable) => of_variable(variable, written.get(&variable.name)),
        Item::Alias { aliasee, .. } => Uses {
            items: by_name.get(aliasee).cloned().unwrap_or_default(),
            refusal: None,
        },
        _ => Uses::default(),
    };
    module.items.iter().map(of).collect()
}

/// Why a second module may not have a copy of the variable, as far as its declaration tells.
fn not_copied(variable: &Variable) -> Option<NotCopied> {
    match variable.space {
        // Each block has its own.
        Space::Shared if variable.init.is_none() && variable.attributes.is_empty() => None,
        Space::Const | Space::Global | Space::Shared => {
            if variable.linkage != Linkage::Internal {
                Some(NotCopied::Linked)
            } else if !variable.attributes.is_empty() {
                Some(NotCopied::Attribute)
            } else {
                match &variable.init {
                    None => Some(NotCopied::NoValue),
                    Some(init) => has_address(init).then_some(NotCopied::Addresses),
                }
            }
        }
        Space::Reg | Space::Sreg | Space::Local | Space::Param | Space::Tex => {
            Some(NotCopied::Space)
        }
    }
}

fn has_address(init: &Init) -> bool {
    match init {
        Init::Value(_) => false,
        Init::Address { .. } => true,
        Init::List(list) => list.iter().any(has_address),
    }
}

fn is_reference(variable: &Variable) -> bool {
    matches!(variable.ty, Type::Texref | Type::Samplerref | Type::Surfref)
        || variable.space == Space::Tex
}

fn of_variable(variable: &Variable, by: Option<&Ident>) -> Uses {
    let (function, pos) = (Ident::new(), variable.pos);
    let why = not_copied(variable).or_else(|| Some(NotCopied::Written { by: by?.clone() }));
    let name = variable.name.clone();
    let refusal = if is_reference(variable) {
        Some(Refusal::Reference {
            function,
            name,
            pos,
        })
    } else {
        why.map(|why| Refusal::Variable {
            function,
            variable: name,
            pos,
            why,
        })
    };
    Uses {
        items: Vec::new(),
        refusal,
    }
}

fn of_function(module: &Module, by_name: &HashMap<Ident, Vec<usize>>, function: &Function) -> Uses {
    let mut reader = Reader {
        module,
        by_name,
        function,
        local: HashSet::new(),
        uses: Uses::default(),
    };
    reader.head();
    if let Some(body) = &function.body {
        reader
            .local
            .extend(function.params.iter().map(|param| &*param.name));
        reader
            .local
            .extend(function.returns.iter().map(|param| &*param.name));
        declared(body, &mut reader.local);
        reader.block(body);
    }
    reader.uses.items.sort_unstable();
    reader.uses.items.dedup();
    reader.uses
}

/// The variables and registers that are declared in a body, in any scope.
fn declared<'m>(statements: &'m [Statement], found: &mut HashSet<&'m str>) {
    for statement in statements {
        match statement {
            Statement::Variable(variable) => {
                found.insert(&variable.name);
            }
            Statement::Block(inner) => declared(inner, found),
            _ => {}
        }
    }
}

/// Reads a function.
struct Reader<'m> {
    module: &'m Module,
    by_name: &'m HashMap<Ident, Vec<usize>>,
    function: &'m Function,
    /// What the function declares.
    local: HashSet<&'m str>,
    uses: Uses,
}

impl<'m> Reader<'m> {
    /// Notes the first reason against the function.
    fn refuse(&mut self, refusal: impl FnOnce(Ident) -> Refusal) {
        if self.uses.refusal.is_none() {
            self.uses.refusal = Some(refusal(self.function.name.clone()));
        }
    }

    fn head(&mut self) {
        let pos = self.function.pos;
        for directive in &self.function.directives {
            if let FunctionDirective::Numbers(what, _) = directive
                && tables::is_cluster_directive(what)
            {
                let what = format!(".{what}");
                self.refuse(|function| Refusal::Cluster {
                    function,
                    what,
                    pos,
                });
            }
        }
        let declared = self.function.params.iter().chain(&self.function.returns);
        for variable in declared.filter(|variable| is_reference(variable)) {
            let (name, pos) = (variable.name.clone(), variable.pos);
            self.refuse(|function| Refusal::Reference {
                function,
                name,
                pos,
            });
        }
    }

    fn block(&mut self, statements: &'m [Statement]) {
        for statement in statements {
            match statement {
                Statement::Instruction(instruction) => self.instruction(instruction),
                Statement::Block(inner) => self.block(inner),
                Statement::Variable(variable) => self.variable(variable),
                // A call by a list of targets or a prototype is found at the call.
                Statement::Label(..)
                | Statement::BranchTargets(..)
                | Statement::CallTargets(..)
                | Statement::CallPrototype(..)
                | Statement::Loc(_)
                | Statement::Pragma(_) => {}
            }
        }
    }

    /// A variable of the function's own.
    fn variable(&mut self, variable: &Variable) {
        let own = [Space::Reg, Space::Local, Space::Param, Space::Shared];
        let is_plain = own.contains(&variable.space)
            && variable.init.is_none()
            && variable.attributes.is_empty()
            && matches!(variable.linkage, Linkage::Internal)
            && !is_reference(variable);
        if !is_plain {
            let (what, pos) = (
                format!(".{} {}", variable.space.name(), variable.name),
                variable.pos,
            );
            self.refuse(|function| Refusal::NotUnderstood {
                function,
                what,
                pos,
            });
        }
    }

    fn instruction(&mut self, instruction: &'m Instruction) {
        let pos = instruction.pos;
        let (opcode, modifiers) = (&*instruction.opcode, &instruction.modifiers[..]);
        if opcode == "griddepcontrol" {
            self.refuse(|function| Refusal::GridDependency { function, pos });
        } else if tables::is_cluster_instruction(opcode, modifiers) {
            let what = [opcode]
                .into_iter()
                .chain(modifiers.iter().map(String::as_str));
            let what = what.collect::<Vec<_>>().join(".");
            self.refuse(|function| Refusal::Cluster {
                function,
                what,
                pos,
            });
        } else if Opcode::of(opcode).is_none() {
            let what = opcode.to_owned();
            self.refuse(|function| Refusal::NotUnderstood {
                function,
                what,
                pos,
            });
        }
        let mut called = None;
        if opcode == "call" {
            called = callee(instruction);
            self.call(called, pos);
        }
        for operand in &instruction.operands {
            let is_called = called.is_some_and(|called| std::ptr::eq(called, operand));
            for name in names(operand) {
                self.name(name, is_called, pos);
            }
        }
    }

    fn call(&mut self, callee: Option<&'m Operand>, pos: Pos) {
        let Some(Operand::Name(callee)) = callee else {
            return self.refuse(|function| Refusal::IndirectCall { function, pos });
        };
        let items = self.by_name.get(callee).map_or(&[][..], Vec::as_slice);
        let items = || items.iter().map(|&item| &self.module.items[item]);
        let is_declared =
            items().any(|item| matches!(item, Item::Function(_) | Item::Alias { .. }));
        let is_defined = items().any(|item| match item {
            Item::Function(function) => function.body.is_some() && !function.kernel,
            Item::Alias { .. } => true,
            _ => false,
        });
        let what = callee.clone();
        if tables::is_grid_function(callee) {
            self.refuse(|function| Refusal::GridSync {
                function,
                what,
                pos,
            });
        } else if !is_declared || self.local.contains(&**callee) {
            self.refuse(|function| Refusal::IndirectCall { function, pos });
        } else if !is_defined && !tables::is_system(callee) {
            self.refuse(|function| Refusal::ForeignCall {
                function,
                callee: what,
                pos,
            });
        }
    }

    /// A name in an operand.
    fn name(&mut self, name: &str, is_called: bool, pos: Pos) {
        let what = name.to_owned();
        if tables::is_grid_register(name) {
            return self.refuse(|function| Refusal::GridSync {
                function,
                what,
                pos,
            });
        }
        if tables::is_cluster_register(name) {
            return self.refuse(|function| Refusal::Cluster {
                function,
                what,
                pos,
            });
        }
        // A name that the function declares itself is taken for the module's too: too much is kept
        // or refused then, and never too little.
        let Some(items) = self.by_name.get(name) else {
            return;
        };
        let is_function = |item: &Item| matches!(item, Item::Function(_) | Item::Alias { .. });
        if !is_called
            && items
                .iter()
                .any(|&item| is_function(&self.module.items[item]))
        {
            return self.refuse(|function| Refusal::FunctionAddress {
                function,
                of: what,
                pos,
            });
        }
        self.uses.items.extend(items);
    }
}
