//! Names become indices, storage gets its place, and each instruction its
//! [`Operation`](super::decode::Operation).
//!
//! Everything a module says is checked here, for all its functions: what comes out always lowers.
//! Refusals are gathered, so that one log names several.

mod behind_waits;
mod body;
pub(super) mod changes;
mod compared_again;
mod divisors;
mod floats;
pub(super) mod fragments;
pub(super) mod isa;
mod loops;
pub(in crate::jit) mod nans;
mod operand;
mod order;
mod scope;
mod special;
mod tensor_map;
pub(super) mod types;
pub(super) mod unrolled;
mod values;
mod volatile;
mod webs;

use std::collections::{HashMap, HashSet};

use ptx::ast::{self, Item, Linkage, Pos, Space, Type, Variable};
use ptx::opcode::{self, Since, Target};

use super::decode::{Refusal, Symbol};
use super::layout::{self, Layout};
use super::lower;
use super::program::{Function, Global, MAX_FUNCTIONS, Program, Shared, Signature};

/// At most this many refusals are told of one module.
const MAX_REFUSALS: usize = 50;

/// The largest shared memory of a block that a module may declare, and the largest frame of a
/// function in local memory.
const MAX_SHARED: u64 = 228 << 10;
const MAX_FRAME: u64 = 512 << 10;
/// The largest area for arguments and results of calls.
const MAX_CALL_AREA: u64 = 8 << 10;
/// The largest block of parameters: what PTX allows a kernel, and a function.
const MAX_PARAMS: u64 = 32_764;

/// Checks a module.
///
/// # Errors
/// Everything found wrong or not run, up to [`MAX_REFUSALS`], in the order of the source for each
/// function.
pub(crate) fn resolve(module: &ast::Module) -> Result<(Program, Names), Vec<Refusal>> {
    let mut resolver = Resolver {
        program: Program {
            version: module.version,
            target: module.target.first().cloned().unwrap_or_default(),
            functions: vec![],
            globals: vec![],
            shared: vec![],
            address_taken: vec![],
            function_base: Program::new_function_base(),
        },
        target: Target::of(module),
        names: HashMap::new(),
        arrays: HashMap::new(),
        defined: HashSet::new(),
        refusals: vec![],
        not_run: vec![],
        unsupported: HashMap::new(),
    };
    for item in &module.items {
        resolver.declare(item);
    }
    for item in &module.items {
        if let Item::Alias { pos, name, aliasee } = item {
            resolver.alias(*pos, name, aliasee);
        }
    }
    for item in &module.items {
        if let Item::Function(function) = item
            && function.body.is_some()
        {
            body::resolve(&mut resolver, function);
        }
    }
    resolver.check_functions();
    if resolver.refusals.is_empty() {
        Ok((resolver.program, resolver.names))
    } else {
        resolver.refusals.truncate(MAX_REFUSALS);
        Err(resolver.refusals)
    }
}

/// What the names of a module mean.
pub(crate) type Names = HashMap<String, Symbol>;

/// The module being checked.
struct Resolver {
    program: Program,
    target: Option<Target>,
    names: Names,
    /// The size of a scalar of each array among the variables in `.global`, `.const` and `.shared`.
    arrays: HashMap<Symbol, u32>,
    /// Functions that have a body, also where it was refused.
    defined: HashSet<u32>,
    refusals: Vec<Refusal>,
    /// What is right in the body being checked, and not run.
    not_run: Vec<Refusal>,
    /// Variables that are right and not supported, and why: a body that names one is not run.
    unsupported: HashMap<String, String>,
}

impl Resolver {
    /// The shared memory that is reserved for the system's libraries.
    fn reserved_shared(&mut self) -> u32 {
        let shared = &mut self.program.shared;
        let known = shared.iter().position(|variable| variable.reserved);
        let at = known.unwrap_or_else(|| {
            shared.push(Shared {
                size: special::RESERVED_SHARED,
                align: 16,
                reserved: true,
                dynamic: false,
            });
            shared.len() - 1
        });
        at as u32
    }

    /// Whether the module's target and version have what is there since then; refused if not.
    fn has(&mut self, pos: Pos, name: &str, since: Since) -> bool {
        let too_old = isa::too_old(since, self.target, self.program.version);
        let has = too_old.is_none();
        if let Some(what) = too_old {
            self.invalid(pos, format!("`{name}`: {what}"));
        }
        has
    }

    fn invalid(&mut self, pos: Pos, what: String) {
        self.refuse(Refusal {
            pos,
            what,
            invalid: true,
        });
    }

    fn refuse(&mut self, refusal: Refusal) {
        let list = match refusal.invalid {
            true => &mut self.refusals,
            false => &mut self.not_run,
        };
        if list.len() < MAX_REFUSALS {
            list.push(refusal);
        }
    }

    /// A variable that is not supported: bodies that name it are not run.
    fn unsupported(&mut self, variable: &Variable, what: String) {
        self.unsupported.insert(variable.name.clone(), what);
    }

    /// First pass: what the module declares.
    fn declare(&mut self, item: &Item) {
        match item {
            Item::Variable(variable) => self.declare_variable(variable),
            Item::Function(function) => self.declare_function(function),
            Item::Alias { .. }
            | Item::Pragma(_)
            | Item::File { .. }
            | Item::Section { .. }
            | Item::Loc(_) => {}
        }
    }

    fn declare_variable(&mut self, variable: &Variable) {
        // A second declaration of the same variable is right where one of the two is `.extern` or
        // both are `.common` or `.weak`.
        if let Some(symbol) = self.names.get(&variable.name).copied() {
            let Symbol::Global(at) = symbol else {
                self.invalid(
                    variable.pos,
                    format!("`{}` is declared twice", variable.name),
                );
                return;
            };
            let first = self.program.globals[at as usize].linkage;
            match (first, variable.linkage) {
                (_, Linkage::Extern) => {}
                (Linkage::Extern, _) => {
                    if let Some(global) = self.global(variable) {
                        self.program.globals[at as usize] = global;
                    }
                }
                (Linkage::Common | Linkage::Weak, Linkage::Common | Linkage::Weak) => {}
                _ => self.invalid(
                    variable.pos,
                    format!("`{}` is declared twice", variable.name),
                ),
            }
            return;
        }
        if let Some(symbol) = self.variable(variable) {
            self.names.insert(variable.name.clone(), symbol);
        }
    }

    /// Gives a variable of the module's spaces its place; refuses one of another space.
    fn variable(&mut self, variable: &Variable) -> Option<Symbol> {
        let symbol = self.place(variable)?;
        if !variable.dims.is_empty() {
            self.arrays.insert(symbol, variable.ty.size());
        }
        Some(symbol)
    }

    fn place(&mut self, variable: &Variable) -> Option<Symbol> {
        match variable.space {
            Space::Global | Space::Const => {
                let global = self.global(variable)?;
                self.program.globals.push(global);
                Some(Symbol::Global(self.program.globals.len() as u32 - 1))
            }
            Space::Shared => {
                self.check_alignment(variable);
                if variable.init.is_some() {
                    self.invalid(
                        variable.pos,
                        format!(
                            "`{}`: a .shared variable takes no initializer",
                            variable.name
                        ),
                    );
                }
                let dynamic = variable.linkage == Linkage::Extern;
                if !dynamic && variable.size() > MAX_SHARED {
                    self.invalid(
                        variable.pos,
                        format!(
                            "`{}`: {} bytes of shared memory are too many",
                            variable.name,
                            variable.size()
                        ),
                    );
                    return None;
                }
                self.program.shared.push(Shared {
                    size: if dynamic { 0 } else { variable.size() },
                    align: layout::alignment(variable),
                    reserved: false,
                    dynamic,
                });
                Some(Symbol::Shared(self.program.shared.len() as u32 - 1))
            }
            space => {
                let what = format!(
                    "`{}`: a variable of the module in .{} is not supported",
                    variable.name,
                    space.name()
                );
                self.unsupported(variable, what);
                None
            }
        }
    }

    fn global(&mut self, variable: &Variable) -> Option<Global> {
        self.check_alignment(variable);
        if matches!(variable.ty, Type::Texref | Type::Samplerref | Type::Surfref) {
            let (name, ty) = (&variable.name, variable.ty.name());
            self.unsupported(variable, format!("`{name}`: .{ty} is not supported"));
            return None;
        }
        if variable.ty == Type::Pred {
            self.invalid(
                variable.pos,
                format!("`{}`: a variable cannot be .pred", variable.name),
            );
            return None;
        }
        let mut dims: Vec<u64> = variable.dims.iter().map(|dim| dim.unwrap_or(0)).collect();
        if let (Some(None), Some(init)) = (variable.dims.first(), &variable.init) {
            dims[0] = open_dimension(init, &dims[1..], variable.vector);
        }
        let size = dims.iter().fold(
            u64::from(variable.ty.size()) * u64::from(variable.vector),
            |size, dim| size.saturating_mul(*dim),
        );
        Some(Global {
            name: variable.name.clone(),
            pos: variable.pos,
            linkage: variable.linkage,
            constant: variable.space == Space::Const,
            managed: variable
                .attributes
                .iter()
                .any(|attribute| attribute.name == "managed"),
            ty: variable.ty,
            vector: variable.vector,
            dims,
            size,
            align: layout::alignment(variable),
            init: variable.init.clone(),
            address: 0,
        })
    }

    fn check_alignment(&mut self, variable: &Variable) {
        if let Some(align) = variable.align
            && (!align.is_power_of_two() || align > 1 << 20)
        {
            self.invalid(
                variable.pos,
                format!(
                    "`{}`: alignment {align} is not a power of two",
                    variable.name
                ),
            );
        }
    }

    /// Sizes of blocks and numbers of registers are not 0, and a block has one size.
    fn check_directives(&mut self, function: &ast::Function) {
        let mut sizes = vec![];
        for directive in &function.directives {
            let ast::FunctionDirective::Numbers(name, numbers) = directive else {
                continue;
            };
            let written = format!(".{name}");
            self.has(function.pos, &written, opcode::since(&written, &[]));
            if matches!(name.as_str(), "maxntid" | "reqntid") {
                sizes.push(name);
            } else if !matches!(name.as_str(), "minnctapersm" | "maxnreg") {
                continue;
            }
            if numbers.contains(&0) {
                let what = format!("`{}`: .{name} takes no 0", function.name);
                self.invalid(function.pos, what);
            }
        }
        if sizes.iter().any(|name| *name != sizes[0]) {
            let what = format!("`{}` has .maxntid and .reqntid", function.name);
            self.invalid(function.pos, what);
        }
    }

    fn declare_function(&mut self, function: &ast::Function) {
        self.check_directives(function);
        let signature = Signature {
            returns: Layout::of(&function.returns),
            params: Layout::of(&function.params),
        };
        for variable in function.returns.iter().chain(&function.params) {
            self.check_alignment(variable);
        }
        if signature.returns.size > MAX_PARAMS || signature.params.size > MAX_PARAMS {
            self.invalid(
                function.pos,
                format!(
                    "`{}`: its parameters take more than {MAX_PARAMS} bytes",
                    function.name
                ),
            );
            return;
        }
        let declared = Function {
            name: function.name.clone(),
            kernel: function.kernel,
            linkage: function.linkage,
            signature,
            directives: function.directives.clone(),
            body: None,
        };
        match self.names.get(&function.name) {
            None => {
                self.program.functions.push(declared);
                let at = self.program.functions.len() as u32 - 1;
                self.names
                    .insert(function.name.clone(), Symbol::Function(at));
            }
            Some(Symbol::Function(at)) => {
                let first = &mut self.program.functions[*at as usize];
                if first.kernel != declared.kernel || first.signature != declared.signature {
                    self.invalid(
                        function.pos,
                        format!("`{}` is declared twice, and differently", function.name),
                    );
                } else if first.linkage == Linkage::Extern || function.body.is_some() {
                    *first = declared;
                }
            }
            Some(_) => self.invalid(
                function.pos,
                format!("`{}` is declared twice", function.name),
            ),
        }
    }

    /// What bodies and initializers name must be there.
    fn check_functions(&mut self) {
        if self.program.functions.len() > MAX_FUNCTIONS {
            let pos = Pos { line: 1, column: 1 };
            self.invalid(pos, format!("more than {MAX_FUNCTIONS} functions"));
        }
        let mut taken = vec![];
        let mut named = vec![];
        for function in &self.program.functions {
            if let Some(body) = &function.body {
                taken.extend(&body.uses.addresses);
                named.extend(&body.uses.functions);
            }
        }
        for at in 0..self.program.globals.len() {
            let global = &self.program.globals[at];
            let pos = global.pos;
            let mut symbols = vec![];
            if let Some(init) = &global.init {
                symbols_of(init, &mut symbols);
            }
            for symbol in symbols {
                match self.names.get(&symbol) {
                    Some(Symbol::Function(at)) => {
                        taken.push(*at);
                        named.push(*at);
                    }
                    Some(Symbol::Global(_)) => {}
                    Some(_) => self.invalid(
                        pos,
                        format!("`{symbol}` has no address that an initializer can hold"),
                    ),
                    None => self.invalid(pos, format!("`{symbol}` is not declared")),
                }
            }
        }
        for list in [&mut taken, &mut named] {
            list.sort_unstable();
            list.dedup();
        }
        let missing = named.into_iter().find(|at| {
            let function = &self.program.functions[*at as usize];
            let brought = function.linkage == Linkage::Extern
                && lower::device_function(&function.name).is_some();
            !brought && !self.defined.contains(at)
        });
        // The driver looks for functions once all lines are right, and names the first that is
        // missing, without a place.
        if let Some(at) = missing
            && self.refusals.is_empty()
        {
            let name = &self.program.functions[at as usize].name;
            let what = format!("Unresolved extern function '{name}'");
            self.invalid(Pos::default(), what);
        }
        self.program.address_taken = taken;
    }

    fn alias(&mut self, pos: Pos, name: &str, aliasee: &str) {
        let Some(symbol @ Symbol::Function(_)) = self.names.get(aliasee).copied() else {
            self.invalid(
                pos,
                format!("`{aliasee}`, which `{name}` stands for, is no function"),
            );
            return;
        };
        // The alias itself is usually declared before, as a function without a body.
        if let Some(Symbol::Function(at)) = self.names.get(name)
            && self.program.functions[*at as usize].body.is_some()
        {
            self.invalid(pos, format!("`{name}` is declared twice"));
        } else {
            self.names.insert(name.to_owned(), symbol);
        }
    }
}

/// The symbols whose addresses an initializer holds.
fn symbols_of(init: &ast::Init, symbols: &mut Vec<String>) {
    match init {
        ast::Init::Value(_) => {}
        ast::Init::Address { symbol, .. } => symbols.push(symbol.clone()),
        ast::Init::List(items) => items.iter().for_each(|item| symbols_of(item, symbols)),
    }
}

/// How many elements an open first dimension has: nested lists count as rows, plain numbers fill
/// rows.
fn open_dimension(init: &ast::Init, inner: &[u64], vector: u32) -> u64 {
    let ast::Init::List(items) = init else {
        return 1;
    };
    if items.iter().any(|item| matches!(item, ast::Init::List(_))) {
        return items.len() as u64;
    }
    let row = inner
        .iter()
        .fold(u64::from(vector), |row, dim| row.saturating_mul(*dim));
    (items.len() as u64).div_ceil(row.max(1))
}
