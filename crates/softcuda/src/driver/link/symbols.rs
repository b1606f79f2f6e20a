//! What inputs of a linker define, declare and use, and where that does not fit together.

use std::collections::{HashMap, HashSet};

use ptx::ast::{Function, Item, Linkage, Module, Space, Type, Variable};

use super::merge::{linkage, tokens};
use crate::jit::lower::device_function;

/// What an input calls a symbol.
#[derive(Clone)]
struct Known {
    /// The input that named it first.
    input: String,
    /// What all inputs must agree on.
    kind: Kind,
    /// An input defines it, and no other may.
    defined: bool,
}

#[derive(Clone, PartialEq)]
enum Kind {
    /// Whether it is a kernel, and the shapes of returns and parameters.
    Function(bool, Vec<Shape>, Vec<Shape>),
    /// Its space, and its size in bytes where that is given.
    Variable(Space, Option<u64>),
}

/// The shape of a parameter: its type's size, whether that is floating, elements of a vector,
/// dimensions. An H200 tells `.f32` from `.b32`, but not `.u32`, and not alignments.
type Shape = (u32, bool, u32, Vec<Option<u64>>);

/// The symbols of the inputs so far.
#[derive(Clone, Default)]
pub(super) struct Symbols(HashMap<String, Known>);

fn shape(variable: &Variable) -> Shape {
    let floating = matches!(variable.ty, Type::F32 | Type::F64);
    (
        variable.ty.size(),
        floating,
        variable.vector,
        variable.dims.clone(),
    )
}

fn function(function: &Function) -> Kind {
    Kind::Function(
        function.kernel,
        function.returns.iter().map(shape).collect(),
        function.params.iter().map(shape).collect(),
    )
}

fn variable(variable: &Variable) -> Kind {
    let element = u64::from(variable.ty.size()) * u64::from(variable.vector.max(1));
    let size = variable
        .dims
        .iter()
        .try_fold(element, |size, dim| size.checked_mul((*dim)?));
    Kind::Variable(variable.space, size)
}

/// What the log says of two inputs that do not agree on a symbol, up to its name, and its word for
/// the first mention.
fn disagreement(first: &Kind, this: &Kind) -> Option<(&'static str, &'static str)> {
    match (first, this) {
        (Kind::Variable(space, _), Kind::Variable(other, _)) if space != other => {
            Some(("Memory space", "specified"))
        }
        (Kind::Variable(_, Some(size)), Kind::Variable(_, Some(other))) if size != other => {
            Some(("Size", "specified"))
        }
        (Kind::Variable(..), Kind::Variable(..)) => None,
        _ => (first != this).then_some(("Prototype", "defined")),
    }
}

impl Symbols {
    /// Takes the symbols of another input; the log's line where one does not fit to those before.
    pub fn add(&mut self, module: &Module, input: &str) -> Result<(), String> {
        let mut known = self.0.clone();
        for item in &module.items {
            let Some((name, linkage, defines)) = linkage(item) else {
                continue;
            };
            if linkage == Linkage::Internal {
                continue;
            }
            let this = Known {
                input: input.to_owned(),
                kind: match item {
                    Item::Function(item) => function(item),
                    Item::Variable(item) => variable(item),
                    _ => continue,
                },
                defined: defines && linkage == Linkage::Visible,
            };
            let Some(first) = known.get_mut(name) else {
                known.insert(name.to_owned(), this);
                continue;
            };
            if let Some((what, word)) = disagreement(&first.kind, &this.kind) {
                let other = match word == "defined" && this.defined && !first.defined {
                    true => input,
                    false => &first.input,
                };
                return Err(format!(
                    "error   : {what} doesn't match for '{name}' in '{input}', first {word} in '{other}'"
                ));
            }
            match (first.defined, this.defined) {
                (true, true) => {
                    return Err(format!(
                        "error   : Multiple definition of '{name}' in '{input}', first defined in '{}'",
                        first.input
                    ));
                }
                (false, true) => *first = this,
                _ => {}
            }
        }
        self.0 = known;
        Ok(())
    }
}

/// The log's lines of what inputs use, or keep a place for, and none defines.
pub(super) fn undefined(inputs: &[(String, Module)]) -> Vec<String> {
    let mut defined: HashSet<&str> = HashSet::new();
    for item in inputs.iter().flat_map(|(_, module)| &module.items) {
        match item {
            Item::Alias { name, .. } => _ = defined.insert(name),
            item => match linkage(item) {
                Some((name, linkage, true)) if linkage != Linkage::Internal => {
                    defined.insert(name);
                }
                _ => {}
            },
        }
    }
    let mut lines = Vec::new();
    for (input, module) in inputs {
        let (declared, others): (Vec<&Item>, Vec<&Item>) = module
            .items
            .iter()
            .partition(|item| matches!(linkage(item), Some((_, Linkage::Extern, false))));
        let texts: Vec<String> = others.iter().map(|item| item.to_string()).collect();
        let used: HashSet<&str> = texts.iter().flat_map(|text| tokens(text)).collect();
        for item in declared {
            let Some((name, ..)) = linkage(item) else {
                continue;
            };
            let missing = match item {
                Item::Function(_) => used.contains(name) && device_function(name).is_none(),
                // Shared memory of dynamic size is declared so, and is no other input's.
                Item::Variable(variable) => variable.space != Space::Shared,
                _ => false,
            };
            if missing && !defined.contains(name) {
                let line = format!("error   : Undefined reference to '{name}' in '{input}'");
                if !lines.contains(&line) {
                    lines.push(line);
                }
            }
        }
    }
    lines
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

    const USER: &str = ".extern .func (.param .b32 r) twice(.param .b32 x);
        .extern .func unused();
        .extern .func (.param .b32 r) vprintf(.param .b64 f, .param .b64 a);
        .extern .shared .align 16 .b8 dynamic[];
        .extern .global .u32 state;
        .visible .entry k() { .param .b32 r; .param .b64 a; .reg .b32 %x; .reg .b64 %y;
            call (r), twice, (%x); call (r), vprintf, (a, a); mov.u64 %y, dynamic; ret; }";

    #[test]
    fn what_is_missing_is_told_by_name() {
        let user = || ("user".to_owned(), parse(USER));
        let library = parse(
            ".visible .func (.param .b32 r) twice(.param .b32 x) { ret; } .visible .global .u32 state;",
        );
        assert_eq!(
            undefined(&[user()]),
            [
                "error   : Undefined reference to 'twice' in 'user'",
                "error   : Undefined reference to 'state' in 'user'"
            ]
        );
        assert!(undefined(&[user(), ("library".to_owned(), library)]).is_empty());
    }

    #[test]
    fn what_does_not_fit_is_told_once_it_is_added() {
        let definition = ".visible .func (.param .b32 r) twice(.param .b32 x) { ret; }";
        let mut symbols = Symbols::default();
        symbols.add(&parse(USER), "user").unwrap();
        symbols.add(&parse(definition), "first").unwrap();
        assert_eq!(
            symbols.add(&parse(definition), "second").unwrap_err(),
            "error   : Multiple definition of 'twice' in 'second', first defined in 'first'"
        );
        assert_eq!(
            symbols
                .add(&parse(&definition.replacen("b32", "b64", 1)), "third")
                .unwrap_err(),
            "error   : Prototype doesn't match for 'twice' in 'third', first defined in 'first'"
        );
        let state = |text: &str| symbols.clone().add(&parse(text), "state").unwrap_err();
        assert_eq!(
            state(".visible .global .u64 state;"),
            "error   : Size doesn't match for 'state' in 'state', first specified in 'user'"
        );
        assert_eq!(
            state(".visible .const .u32 state;"),
            "error   : Memory space doesn't match for 'state' in 'state', first specified in 'user'"
        );
        symbols
            .add(&parse(".extern .global .align 4 .b8 state[];"), "open")
            .unwrap();
        let weak = definition.replace(".visible", ".weak");
        symbols.add(&parse(&weak), "weak").unwrap();
        let own = definition.replace(".visible", "");
        symbols.add(&parse(&own), "own").unwrap();
    }
}
