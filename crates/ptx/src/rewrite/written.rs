//! Which variables a module may write.
//!
//! A variable that has an initial value and that nobody writes is the same in each module that has
//! a copy. Addresses are followed through registers: each register of a function holds the
//! addresses that any instruction may put there, whatever the order. Loads through an address are
//! harmless. Whatever else is done with it counts as writing: a store, an atomic operation, a copy,
//! a call, or to leave it in memory.

use std::collections::{HashMap, HashSet};

use super::tables;
use crate::ast::*;
use crate::opcode::{self, Fact};

/// The variables of `of` that may be written, each with who may write it: a function, or a variable
/// that holds its address.
pub(super) fn written(module: &Module, of: &HashSet<&str>) -> HashMap<Ident, Ident> {
    let mut written = HashMap::new();
    if of.is_empty() {
        return written;
    }
    let is_defined = |item: &Item, name: &str| matches!(item, Item::Function(function) if function.name == name && function.body.is_some());
    let mut readers = tables::READING.to_vec();
    readers.retain(|name| !module.items.iter().any(|item| is_defined(item, name)));
    for item in &module.items {
        match item {
            Item::Variable(variable) => held(variable, of, &mut written),
            Item::Function(function) => {
                let Some(body) = &function.body else { continue };
                let mut flow = Flow {
                    of,
                    readers: &readers,
                    function: &function.name,
                    holds: HashMap::new(),
                    is_settled: false,
                    passed: Vec::new(),
                    written: &mut written,
                };
                // Each round adds to what a register holds, of which there is no end in sight only
                // while the sets grow.
                while !flow.is_settled {
                    flow.is_settled = true;
                    flow.block(body);
                }
            }
            _ => {}
        }
    }
    written
}

/// Notes that `variable` holds the addresses that its initial value names.
fn held(variable: &Variable, of: &HashSet<&str>, written: &mut HashMap<Ident, Ident>) {
    let mut values: Vec<&Init> = variable.init.iter().collect();
    while let Some(value) = values.pop() {
        match value {
            Init::Address { symbol, .. } if of.contains(symbol.as_str()) => {
                written.insert(symbol.clone(), variable.name.clone());
            }
            Init::List(list) => values.extend(list),
            _ => {}
        }
    }
}

/// What goes where in one function.
struct Flow<'m> {
    of: &'m HashSet<&'m str>,
    /// Functions of the driver that read what their arguments point to, and do no more to it.
    readers: &'m [&'m str],
    function: &'m str,
    /// The variables whose addresses a register may hold.
    holds: HashMap<&'m str, HashSet<&'m str>>,
    /// Nothing was added in this round.
    is_settled: bool,
    /// For each open scope the `.param` variables declared there, and whether each is only passed
    /// to functions that read.
    passed: Vec<HashMap<&'m str, bool>>,
    written: &'m mut HashMap<Ident, Ident>,
}

impl<'m> Flow<'m> {
    fn block(&mut self, statements: &'m [Statement]) {
        self.passed.push(passed(statements, self.readers));
        for statement in statements {
            match statement {
                Statement::Instruction(instruction) => self.instruction(instruction),
                Statement::Block(inner) => self.block(inner),
                Statement::Variable(variable) => held(variable, self.of, self.written),
                _ => {}
            }
        }
        self.passed.pop();
    }

    fn instruction(&mut self, instruction: &'m Instruction) {
        let name = instruction.opcode.as_str();
        let operands = &instruction.operands[..];
        match name {
            // What is read holds no addresses: such variables are not asked about.
            "ld" | "ldu" | "prefetch" | "prefetchu" | "isspacep" | "setp" | "set" => {}
            _ if opcode::has(name, Fact::Computes) => {
                let Some((to, from)) = operands.split_first() else {
                    return;
                };
                let from = self.addresses(from);
                for register in names(to) {
                    let holds = self.holds.entry(register).or_default();
                    let before = holds.len();
                    holds.extend(&from);
                    self.is_settled &= holds.len() == before;
                }
            }
            "call" if calls_one_of(instruction, self.readers) => {}
            "st" if instruction.modifiers.iter().any(|m| m.starts_with("param"))
                && self.is_only_read(&operands[..operands.len().min(1)]) => {}
            _ => {
                for variable in self.addresses(operands) {
                    let by = self.function.to_owned();
                    self.written.entry(variable.to_owned()).or_insert(by);
                }
            }
        }
    }

    /// Whether what is stored to these addresses is passed to functions that only read.
    fn is_only_read(&self, to: &[Operand]) -> bool {
        let [
            Operand::Address(Address {
                base: AddressBase::Name(param),
                ..
            }),
        ] = to
        else {
            return false;
        };
        let scopes = self.passed.iter().rev();
        let mut found = scopes.filter_map(|scope| scope.get(param.as_str()));
        found.next().is_some_and(|is_only_read| *is_only_read)
    }

    /// The variables whose addresses these operands may be.
    fn addresses(&self, operands: &'m [Operand]) -> HashSet<&'m str> {
        let mut found = HashSet::new();
        for name in operands.iter().flat_map(names) {
            found.extend(self.of.get(name));
            found.extend(self.holds.get(name).into_iter().flatten());
        }
        found
    }
}

/// The `.param` variables that are declared in a scope, and whether each is stored to and given to
/// `readers`, and nothing else is done with it.
fn passed<'m>(statements: &'m [Statement], readers: &[&str]) -> HashMap<&'m str, bool> {
    let mut passed: HashMap<&str, bool> = statements
        .iter()
        .filter_map(|statement| match statement {
            Statement::Variable(variable) if variable.space == Space::Param => {
                Some((variable.name.as_str(), true))
            }
            _ => None,
        })
        .collect();
    if !passed.is_empty() {
        instructions(statements, &mut |instruction| {
            let operands = match instruction.opcode.as_str() {
                "st" => instruction.operands.get(1..).unwrap_or(&[]),
                "call" if calls_one_of(instruction, readers) => &[],
                _ => &instruction.operands[..],
            };
            for name in operands.iter().flat_map(names) {
                passed.entry(name).and_modify(|is_read| *is_read = false);
            }
        });
    }
    passed
}

fn instructions<'m>(statements: &'m [Statement], each: &mut impl FnMut(&'m Instruction)) {
    for statement in statements {
        match statement {
            Statement::Instruction(instruction) => each(instruction),
            Statement::Block(inner) => instructions(inner, each),
            _ => {}
        }
    }
}

/// Whether the call is of one of these functions.
fn calls_one_of(call: &Instruction, functions: &[&str]) -> bool {
    matches!(callee(call), Some(Operand::Name(name)) if functions.contains(&name.as_str()))
}

/// What a call calls: the first operand that is no list.
pub(super) fn callee(call: &Instruction) -> Option<&Operand> {
    let mut operands = call.operands.iter();
    operands.find(|operand| !matches!(operand, Operand::List(_)))
}

/// The names in an operand.
pub(super) fn names(operand: &Operand) -> Vec<&str> {
    let mut found = Vec::new();
    let mut left = vec![operand];
    while let Some(operand) = left.pop() {
        match operand {
            Operand::Name(name) | Operand::Member(name, _) | Operand::Offset(name, _) => {
                found.push(name.as_str());
            }
            Operand::Element(name, index) => {
                found.push(name.as_str());
                found.extend(index.register.as_deref());
            }
            Operand::Address(address) => {
                if let AddressBase::Name(name) = &address.base {
                    found.push(name);
                }
                left.extend(&address.rest);
            }
            Operand::Vector(list) | Operand::List(list) => left.extend(list),
            Operand::Pair(first, second) => left.extend([&**first, &**second]),
            Operand::Not(operand) | Operand::Negate(operand) => left.push(operand),
            Operand::Immediate(_) | Operand::Sink => {}
        }
    }
    found
}
