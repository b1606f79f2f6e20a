//! The names of a body: scopes inside scopes, where an inner name hides an outer one.

use std::collections::HashMap;

use ptx::ast::Type;

use crate::jit::decode::{RegId, Symbol};

/// What a name of a body means.
#[derive(Clone, Copy, Debug)]
pub(super) enum Named {
    /// A register, or a vector of them.
    Register(Register),
    /// Anything with an index.
    Symbol(Symbol),
}

/// A declared register: one of a range has its number.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) struct Register {
    /// The declaration.
    pub declaration: u32,
    /// Which of a range.
    pub number: u32,
}

/// A `.reg` declaration.
#[derive(Clone, Copy, Debug)]
pub(super) struct Declaration {
    /// Element type.
    pub ty: Type,
    /// Elements.
    pub vector: u32,
}

/// The names of a body, innermost scope last.
#[derive(Default)]
pub(super) struct Scopes {
    scopes: Vec<Scope>,
    declarations: Vec<Declaration>,
    registers: HashMap<(Register, u32), RegId>,
    types: Vec<Type>,
}

#[derive(Default)]
struct Scope {
    names: HashMap<String, Named>,
    /// Prefix of a range: its declaration and count.
    ranges: HashMap<String, (u32, u32)>,
}

impl Scopes {
    /// Enters a scope.
    pub fn push(&mut self) {
        self.scopes.push(Scope::default());
    }

    /// Leaves the innermost scope.
    pub fn pop(&mut self) {
        self.scopes.pop();
    }

    /// Declares a name in the innermost scope; false where it is there already.
    #[must_use]
    pub fn declare(&mut self, name: &str, symbol: Symbol) -> bool {
        self.insert(name, Named::Symbol(symbol))
    }

    /// Declares a register, or a range of `count`, in the innermost scope; false where the name is
    /// there already.
    #[must_use]
    pub fn declare_register(
        &mut self,
        name: &str,
        count: Option<u32>,
        ty: Type,
        vector: u32,
    ) -> bool {
        let declaration = self.declarations.len() as u32;
        self.declarations.push(Declaration { ty, vector });
        match count {
            None => self.insert(
                name,
                Named::Register(Register {
                    declaration,
                    number: 0,
                }),
            ),
            Some(count) => {
                let scope = self.scopes.last_mut().expect("a body has a scope");
                scope
                    .ranges
                    .insert(name.to_owned(), (declaration, count))
                    .is_none()
            }
        }
    }

    fn insert(&mut self, name: &str, named: Named) -> bool {
        let scope = self.scopes.last_mut().expect("a body has a scope");
        scope.names.insert(name.to_owned(), named).is_none()
    }

    /// What a name means here.
    pub fn find(&self, name: &str) -> Option<Named> {
        let digits = name.bytes().rev().take_while(u8::is_ascii_digit).count();
        for scope in self.scopes.iter().rev() {
            if let Some(named) = scope.names.get(name) {
                return Some(*named);
            }
            if scope.ranges.is_empty() {
                continue;
            }
            // `%r12` may be 12 of `%r` or 2 of `%r1`, but never 012.
            for split in name.len() - digits.min(10)..name.len() {
                let (prefix, number) = name.split_at(split);
                if number.len() > 1 && number.starts_with('0') {
                    continue;
                }
                if let (Some((declaration, count)), Ok(number)) =
                    (scope.ranges.get(prefix), number.parse::<u32>())
                    && number < *count
                {
                    return Some(Named::Register(Register {
                        declaration: *declaration,
                        number,
                    }));
                }
            }
        }
        None
    }

    /// How a register was declared.
    pub fn declaration(&self, register: Register) -> Declaration {
        self.declarations[register.declaration as usize]
    }

    /// An element of a register, which is numbered on first use.
    pub fn element(&mut self, register: Register, element: u32) -> RegId {
        let next = RegId(self.types.len() as u32);
        let ty = self.declaration(register).ty;
        *self
            .registers
            .entry((register, element))
            .or_insert_with(|| {
                self.types.push(ty);
                next
            })
    }

    /// A register that the source does not have.
    pub fn fresh(&mut self, ty: Type) -> RegId {
        self.types.push(ty);
        RegId(self.types.len() as u32 - 1)
    }

    /// The types of the registers used so far.
    pub fn types(&self) -> &[Type] {
        &self.types
    }

    /// The types of all registers used.
    pub fn into_types(self) -> Vec<Type> {
        self.types
    }
}
