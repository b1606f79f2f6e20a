//! The body of a function: its scopes, its storage, its instructions.

use std::borrow::Cow;
use std::collections::HashMap;

use ptx::ast::{self, Init, Operand, Pos, Space, Statement, Type, Variable};
use ptx::opcode::{self, Fact, Opcode};

use smallvec::SmallVec;

use super::behind_waits;
use super::compared_again;
use super::divisors;
use super::floats::Votes;
use super::fragments;
use super::isa;
use super::nans::{Decision, Nans};
use super::order;
use super::scope::{Named, Scopes};
use super::{MAX_CALL_AREA, MAX_FRAME, MAX_PARAMS, MAX_REFUSALS, Resolver, types};
use super::{unrolled, volatile, webs};
use crate::jit::decode::{Arg, Reader, RegId, Special, Symbol};
use crate::jit::layout::{self, Layout, align_up};
use crate::jit::lower;
use crate::jit::program::{
    Body, Instruction, Local, Param, Place, Signature, Step, Tables, Targets, Uses,
};

/// An instruction whose operands are resolved, before its family has read it.
pub(super) struct Pending<'a> {
    pub instruction: Cow<'a, ast::Instruction>,
    pub guard: Option<(RegId, bool)>,
    pub args: Vec<Arg>,
}

impl Pending<'static> {
    /// What the source does not have, on the way to what stands at `pos`: an opcode with modifiers,
    /// and operands.
    pub fn new(pos: Pos, guard: Option<(RegId, bool)>, text: &str, args: Vec<Arg>) -> Self {
        let mut words = text.split('.').map(str::to_owned);
        Pending {
            instruction: Cow::Owned(ast::Instruction {
                pos,
                guard: None,
                opcode: words.next().unwrap_or_default(),
                modifiers: words.collect(),
                operands: vec![],
            }),
            guard,
            args,
        }
    }
}

pub(super) enum PendingStep<'a> {
    Label(u32),
    Instruction(Pending<'a>),
}

/// The body being checked.
pub(super) struct Resolve<'r, 'a> {
    pub module: &'r mut Resolver,
    kernel: bool,
    pub scopes: Scopes,
    tables: Tables,
    uses: Uses,
    /// The size of a scalar of each array among the variables of the body.
    pub arrays: HashMap<Symbol, u32>,
    steps: Vec<PendingStep<'a>>,
    /// Size of the frame, in 64 bits so that it can be told when it is too large.
    frame: u64,
    /// Where the next `.param` variable goes in the area for calls, and how large that is.
    call_top: u64,
    call_area: u64,
}

/// Checks the body of `function` and puts it into the program.
pub(super) fn resolve(module: &mut Resolver, function: &ast::Function) {
    let Some(Symbol::Function(at)) = module.names.get(&function.name).copied() else {
        return; // its declaration was refused
    };
    if !module.defined.insert(at) {
        module.invalid(
            function.pos,
            format!("`{}` is defined twice", function.name),
        );
        return;
    }
    let refusals = module.refusals.len();
    let mut resolve = Resolve {
        module,
        kernel: function.kernel,
        scopes: Scopes::default(),
        tables: Tables::default(),
        uses: Uses::default(),
        arrays: HashMap::new(),
        steps: vec![],
        frame: 0,
        call_top: 0,
        call_area: 0,
    };
    resolve.scopes.push();
    let signature = resolve.module.program.functions[at as usize]
        .signature
        .clone();
    resolve.parameters(&function.returns, &signature.returns, true);
    resolve.parameters(&function.params, &signature.params, false);
    resolve.block(function.body.as_deref().unwrap_or_default());
    if resolve.frame > MAX_FRAME {
        resolve.module.invalid(
            function.pos,
            format!(
                "`{}`: a frame of {} bytes in local memory is too large",
                function.name, resolve.frame
            ),
        );
    }
    // The area lies in the native stack: bounded, so that a frame fits into what the grid leaves
    // below its limit.
    if resolve.call_area > MAX_CALL_AREA {
        resolve.module.invalid(
            function.pos,
            format!(
                "`{}`: .param variables of {} bytes are too large",
                function.name, resolve.call_area
            ),
        );
    }
    let Resolve {
        module,
        kernel,
        scopes,
        mut tables,
        mut uses,
        mut steps,
        frame,
        call_area,
        ..
    } = resolve;
    tables.frame = frame;
    tables.call_area = call_area;
    tables.registers = scopes.into_types();
    if kernel {
        volatile::drop_where_nobody_waits(&mut steps, &tables);
        unrolled::roll(&mut steps, &mut tables);
    }
    webs::split(&mut steps, &mut tables);
    if kernel {
        compared_again::compare(&mut steps, &mut tables);
    }
    let mut votes = Votes::default();
    let mut nans = Nans::default();
    for step in &steps {
        if let PendingStep::Instruction(pending) = step {
            votes.count(&pending.instruction, &pending.args);
            nans.count(&pending.instruction, &pending.args);
            tables.changes.count(&pending.instruction, &pending.args);
        }
    }
    tables.mentions = mentions(&tables, &steps);
    tables.floats = votes.decide(&tables.registers);
    let parameters: Vec<RegId> = tables
        .incoming
        .iter()
        .chain(&tables.outgoing)
        .map(|(id, _)| *id)
        .collect();
    let nans = nans.decide(&tables.registers, &tables.floats, &parameters);
    divisors::known(&mut steps, &tables);
    let mut steps = decode(module, &tables, &nans, steps);
    behind_waits::move_numbers(&mut steps);
    tables.lazy_nans = nans.lazy;
    tables.seen_nans = nans.seen;
    for list in [&mut uses.shared, &mut uses.functions, &mut uses.addresses] {
        list.sort_unstable();
        list.dedup();
    }
    let not_run = std::mem::take(&mut module.not_run);
    if module.refusals.len() == refusals {
        module.program.functions[at as usize].body = Some(Body {
            tables,
            steps,
            uses,
            not_run,
        });
    }
}

/// How many times the instructions of a body name each register.
fn mentions(tables: &Tables, steps: &[PendingStep<'_>]) -> Vec<u32> {
    fn count(arg: &Arg, mentions: &mut [u32]) {
        match arg {
            Arg::Reg(id) | Arg::Part(id, _) => mentions[id.0 as usize] += 1,
            Arg::Address(arg, _) | Arg::Not(arg) => count(arg, mentions),
            Arg::Pair(a, b) => [a, b].into_iter().for_each(|arg| count(arg, mentions)),
            Arg::Vector(args) | Arg::List(args) => args.iter().for_each(|arg| count(arg, mentions)),
            Arg::Imm(_) | Arg::Symbol(..) | Arg::Special(_) | Arg::SpecialVector(_) | Arg::Sink => {
            }
        }
    }
    let mut mentions = vec![0; tables.registers.len()];
    for (id, _) in &tables.outgoing {
        mentions[id.0 as usize] += 1;
    }
    for step in steps {
        if let PendingStep::Instruction(pending) = step {
            for arg in &pending.args {
                count(arg, &mut mentions);
            }
            if let Some((id, _)) = pending.guard {
                mentions[id.0 as usize] += 1;
            }
        }
    }
    mentions
}

/// Each family reads its instructions.
fn decode(
    module: &mut Resolver,
    tables: &Tables,
    nans: &Decision,
    steps: Vec<PendingStep<'_>>,
) -> Vec<Step> {
    let mut decoded = Vec::with_capacity(steps.len());
    for step in steps {
        let pending = match step {
            PendingStep::Label(label) => {
                decoded.push(Step::Label(label));
                continue;
            }
            PendingStep::Instruction(pending) => pending,
        };
        let instruction = &*pending.instruction;
        if let Some((register, ty)) = types::mismatch(instruction, &pending.args, &tables.registers)
        {
            let have = tables.registers[register.0 as usize].name();
            let (name, ty) = (&instruction.opcode, ty.name());
            let what = format!(
                "`{name}`: a register of type .{have} does not fit an instruction of type .{ty}"
            );
            module.invalid(instruction.pos, what);
            continue;
        }
        let in_brackets = |arg: &Arg| matches!(arg, Arg::Address(..));
        let takes_none = |opcode: &Opcode| !opcode.has(Fact::Addresses);
        if Opcode::of(&instruction.opcode).is_some_and(takes_none)
            && pending.args.iter().any(in_brackets)
        {
            let what = format!("`{}`: takes no address in brackets", instruction.opcode);
            module.invalid(instruction.pos, what);
            continue;
        }
        if let Some(what) = types::is_no_register(instruction, &pending.args) {
            let what = format!("`{}`: takes no {what}", instruction.opcode);
            module.invalid(instruction.pos, what);
            continue;
        }
        if types::has_narrow_address(instruction, &pending.args, &tables.registers) {
            let what = format!("`{}`: takes an address of 64 bits", instruction.opcode);
            module.invalid(instruction.pos, what);
            continue;
        }
        if types::is_elsewhere(instruction, &pending.args, &module.program.globals) {
            let what = format!("`{}`: {}", instruction.opcode, types::ELSEWHERE);
            module.invalid(instruction.pos, what);
            continue;
        }
        let (opcode, modifiers) = (&instruction.opcode, &instruction.modifiers);
        let functions = &module.program.functions;
        let pos = instruction.pos;
        let mut reader = Reader::new(pos, opcode, modifiers, &pending.args, tables, functions);
        let result = match lower::decoder(opcode) {
            Some(decode) => decode(&mut reader).or_else(|refusal| {
                // More refusals than are told are not worth the search.
                if module.refusals.len() >= MAX_REFUSALS {
                    return Err(refusal);
                }
                let found = order::read_in_any(opcode, modifiers, |words| {
                    let mut reader = reader.with(words);
                    decode(&mut reader).map_err(|_| reader.taken())
                });
                found.ok_or(refusal)
            }),
            None if isa::is_opcode(opcode) => Err(reader.not_run("the instruction".into())),
            None => Err(reader.invalid("is no instruction".into())),
        };
        match result {
            Ok(operation) => {
                let (writes, reads) = named(instruction, &pending.args);
                decoded.push(Step::Instruction(Instruction {
                    pos: instruction.pos,
                    guard: pending.guard,
                    writes,
                    reads,
                    specials: specials(&pending.args),
                    addresses: pending.args.iter().any(in_brackets),
                    in_call_area: pending.args.iter().any(|arg| in_call_area(arg, tables)),
                    reads_bits: nans.reads_bits(instruction, &pending.args),
                    operation,
                }));
            }
            Err(refusal) => module.refuse(refusal),
        }
    }
    decoded
}

/// Whether an operand is in the area for calls.
fn in_call_area(arg: &Arg, tables: &Tables) -> bool {
    match arg {
        Arg::Symbol(Symbol::Param(at), _) => {
            matches!(tables.params[*at as usize].place, Place::Call(_))
        }
        Arg::Address(base, _) => in_call_area(base, tables),
        Arg::List(args) => args.iter().any(|arg| in_call_area(arg, tables)),
        _ => false,
    }
}

/// The special registers that operands name.
fn specials(args: &[Arg]) -> SmallVec<[Special; 1]> {
    fn gather(arg: &Arg, into: &mut SmallVec<[Special; 1]>) {
        match arg {
            // Of the components the first differs most.
            Arg::SpecialVector(Special::Tid(_)) => into.push(Special::Tid(0)),
            Arg::Special(special) | Arg::SpecialVector(special) => into.push(*special),
            Arg::Address(arg, _) | Arg::Not(arg) => gather(arg, into),
            Arg::Pair(a, b) => {
                gather(a, into);
                gather(b, into);
            }
            Arg::Vector(args) | Arg::List(args) => args.iter().for_each(|arg| gather(arg, into)),
            Arg::Reg(_) | Arg::Part(..) | Arg::Imm(_) | Arg::Symbol(..) | Arg::Sink => {}
        }
    }
    let mut found = SmallVec::new();
    args.iter().for_each(|arg| gather(arg, &mut found));
    found
}

/// The registers that an instruction writes, which are those of its first operand unless it has no
/// destination, and those that it reads.
pub(super) fn named(
    instruction: &ast::Instruction,
    args: &[Arg],
) -> (SmallVec<[RegId; 2]>, SmallVec<[RegId; 4]>) {
    fn gather(arg: &Arg, into: &mut impl Extend<RegId>) {
        match arg {
            Arg::Reg(id) | Arg::Part(id, _) => into.extend([*id]),
            Arg::Address(arg, _) | Arg::Not(arg) => gather(arg, into),
            Arg::Vector(args) | Arg::List(args) => args.iter().for_each(|arg| gather(arg, into)),
            Arg::Pair(a, b) => {
                gather(a, into);
                gather(b, into);
            }
            Arg::Imm(_) | Arg::Symbol(..) | Arg::Special(_) | Arg::SpecialVector(_) | Arg::Sink => {
            }
        }
    }
    let has = |fact| opcode::has(&instruction.opcode, fact);
    let has_destination = match args.first() {
        // A barrier that reduces has a result.
        _ if has(Fact::ReadsFirst) => instruction
            .modifiers
            .iter()
            .any(|modifier| modifier == "red"),
        Some(Arg::List(_)) => instruction.opcode == "call" && args.len() > 1,
        Some(Arg::Reg(_) | Arg::Part(..) | Arg::Vector(_) | Arg::Pair(..)) => {
            instruction.opcode != "call"
        }
        _ => false,
    };
    let (mut writes, mut reads) = (SmallVec::new(), SmallVec::new());
    for (at, arg) in args.iter().enumerate() {
        if at == 0 && has_destination {
            gather(arg, &mut writes);
        }
        if at > 0 || !has_destination || has(Fact::UpdatesFirst) {
            gather(arg, &mut reads);
        }
    }
    (writes, reads)
}

impl<'a> Resolve<'_, 'a> {
    fn twice(&mut self, pos: Pos, name: &str) {
        self.module
            .invalid(pos, format!("`{name}` is declared twice in its scope"));
    }

    fn parameters(&mut self, variables: &[Variable], layout: &Layout, outgoing: bool) {
        for (variable, field) in variables.iter().zip(&layout.fields) {
            if variable.space == Space::Reg {
                if !self
                    .scopes
                    .declare_register(&variable.name, None, variable.ty, 1)
                {
                    self.twice(variable.pos, &variable.name);
                }
                if let Some(Named::Register(register)) = self.scopes.find(&variable.name) {
                    let id = self.scopes.element(register, 0);
                    let list = if outgoing {
                        &mut self.tables.outgoing
                    } else {
                        &mut self.tables.incoming
                    };
                    list.push((id, field.offset));
                }
                continue;
            }
            let place = match (self.kernel, outgoing) {
                (true, _) => Place::Kernel(field.offset),
                (false, true) => Place::Outgoing(field.offset),
                (false, false) => Place::Incoming(field.offset),
            };
            self.param(variable, place);
        }
    }

    fn param(&mut self, variable: &Variable, place: Place) {
        let symbol = Symbol::Param(self.tables.params.len() as u32);
        self.tables.params.push(Param {
            place,
            size: variable.size(),
            align: layout::alignment(variable),
            copy: None,
        });
        self.note_array(variable, symbol);
        if variable.name != "_" && !self.scopes.declare(&variable.name, symbol) {
            self.twice(variable.pos, &variable.name);
        }
    }

    /// Remembers the type of an array, for operands that are elements of it.
    fn note_array(&mut self, variable: &Variable, symbol: Symbol) {
        if !variable.dims.is_empty() {
            self.arrays.insert(symbol, variable.ty.size());
        }
    }

    /// A scope. Labels and targets can be named before they stand, so they are declared first.
    fn block(&mut self, statements: &'a [Statement]) {
        self.scopes.push();
        // Scopes side by side share the area for calls. Each starts aligned, so that parameters
        // declared in the order of the callee's lie just as it takes them.
        let call_top = self.call_top;
        self.call_top = align_up(call_top, 16);
        for statement in statements {
            let (pos, name, symbol) = match statement {
                Statement::Label(pos, name) => {
                    self.tables.labels += 1;
                    (pos, name, Symbol::Label(self.tables.labels - 1))
                }
                Statement::BranchTargets(pos, name, _) => {
                    (pos, name, self.target(Targets::Branch(vec![])))
                }
                Statement::CallTargets(pos, name, _) => {
                    (pos, name, self.target(Targets::Call(vec![])))
                }
                Statement::CallPrototype(pos, name, prototype) => {
                    let signature = Signature {
                        returns: Layout::of(&prototype.returns),
                        params: Layout::of(&prototype.params),
                    };
                    if signature.returns.size.max(signature.params.size) > MAX_PARAMS {
                        self.module.invalid(
                            *pos,
                            format!("`{name}`: more than {MAX_PARAMS} bytes of parameters"),
                        );
                    }
                    (pos, name, self.target(Targets::Prototype(signature)))
                }
                _ => continue,
            };
            if !self.scopes.declare(name, symbol) {
                self.twice(*pos, name);
            }
        }
        for statement in statements {
            self.statement(statement);
        }
        self.call_top = call_top;
        self.scopes.pop();
    }

    fn target(&mut self, targets: Targets) -> Symbol {
        self.tables.targets.push(targets);
        Symbol::Table(self.tables.targets.len() as u32 - 1)
    }

    fn statement(&mut self, statement: &'a Statement) {
        match statement {
            Statement::Label(_, name) => {
                if let Some(Named::Symbol(Symbol::Label(label))) = self.scopes.find(name) {
                    self.steps.push(PendingStep::Label(label));
                }
            }
            Statement::Variable(variable) => self.variable(variable),
            Statement::Instruction(instruction) => self.instruction(instruction),
            Statement::Block(statements) => self.block(statements),
            Statement::BranchTargets(pos, name, labels) => {
                let mut targets = vec![];
                for label in labels {
                    match self.scopes.find(label) {
                        Some(Named::Symbol(Symbol::Label(label))) => targets.push(label),
                        _ => self.module.invalid(*pos, format!("`{label}` is no label")),
                    }
                }
                if let Some(Named::Symbol(Symbol::Table(at))) = self.scopes.find(name) {
                    self.tables.targets[at as usize] = Targets::Branch(targets);
                }
            }
            Statement::CallTargets(pos, name, functions) => {
                let mut targets = vec![];
                for function in functions {
                    match self.module.names.get(function) {
                        Some(Symbol::Function(at)) => {
                            targets.push(*at);
                            self.uses.functions.push(*at);
                            self.uses.addresses.push(*at);
                        }
                        _ => self
                            .module
                            .invalid(*pos, format!("`{function}` is no function")),
                    }
                }
                if let Some(Named::Symbol(Symbol::Table(at))) = self.scopes.find(name) {
                    self.tables.targets[at as usize] = Targets::Call(targets);
                }
            }
            Statement::CallPrototype(..) | Statement::Loc(_) | Statement::Pragma(_) => {}
        }
    }

    fn variable(&mut self, variable: &Variable) {
        let name = &variable.name;
        match variable.space {
            Space::Reg => {
                if !matches!(variable.vector, 1 | 2 | 4) || !variable.dims.is_empty() {
                    self.module.invalid(
                        variable.pos,
                        format!("`{name}`: a register is a scalar or a vector of 2 or 4"),
                    );
                }
                if matches!(variable.ty, Type::Texref | Type::Samplerref | Type::Surfref) {
                    self.module.invalid(
                        variable.pos,
                        format!("`{name}`: a register cannot be .{}", variable.ty.name()),
                    );
                }
                if !self
                    .scopes
                    .declare_register(name, variable.range, variable.ty, variable.vector)
                {
                    self.twice(variable.pos, name);
                }
            }
            Space::Local => {
                self.module.check_alignment(variable);
                let offset = self.frame_space(variable.size(), layout::alignment(variable));
                let symbol = Symbol::Local(self.tables.locals.len() as u32);
                self.tables.locals.push(Local {
                    offset,
                    size: variable.size(),
                });
                self.note_array(variable, symbol);
                if variable.init.is_some() {
                    self.module.invalid(
                        variable.pos,
                        format!("`{name}`: a .local variable takes no initializer"),
                    );
                }
                if !self.scopes.declare(name, symbol) {
                    self.twice(variable.pos, name);
                }
            }
            Space::Param => {
                self.module.check_alignment(variable);
                let offset = align_up(self.call_top, layout::alignment(variable).min(16));
                self.call_top = offset.saturating_add(variable.size());
                self.call_area = self.call_area.max(self.call_top);
                self.param(variable, Place::Call(offset));
            }
            Space::Global | Space::Const | Space::Shared => {
                if let Some(symbol) = self.module.variable(variable)
                    && !self.scopes.declare(name, symbol)
                {
                    self.twice(variable.pos, name);
                }
                if matches!(variable.init, Some(Init::Address { .. })) {
                    self.module.invalid(
                        variable.pos,
                        format!("`{name}`: an address as initializer of a body's variable"),
                    );
                }
            }
            Space::Sreg | Space::Tex => {
                let space = variable.space.name();
                let what = format!("`{name}`: a variable in .{space} is not supported");
                self.module.unsupported(variable, what);
            }
        }
    }

    /// Takes room in the frame in local memory.
    fn frame_space(&mut self, size: u64, align: u64) -> u64 {
        let offset = align_up(self.frame, align);
        self.frame = offset.saturating_add(size);
        offset
    }

    fn instruction(&mut self, instruction: &'a ast::Instruction) {
        if instruction.opcode == "pragma" {
            return;
        }
        let since = opcode::since(&instruction.opcode, &isa::words(instruction));
        let name = [&instruction.opcode]
            .into_iter()
            .chain(&instruction.modifiers);
        let name: Vec<&str> = name.map(String::as_str).collect();
        if !self.module.has(instruction.pos, &name.join("."), since) {
            return;
        }
        let instruction = isa::spelt_out(instruction, self.module.program.version);
        let refusals = self.module.refusals.len();
        let guard = instruction.guard.as_ref().and_then(|guard| {
            let found = self.scopes.find(&guard.register);
            if let Some(Named::Register(register)) = found
                && self.scopes.declaration(register).ty == Type::Pred
            {
                return Some((self.scopes.element(register, 0), guard.negated));
            }
            let what = if found.is_some() {
                "is no predicate"
            } else {
                "is not declared"
            };
            self.module
                .invalid(instruction.pos, format!("`{}` {what}", guard.register));
            None
        });
        // A sum would be written to a register that nothing reads.
        if let Some(Operand::Offset(name, _)) = instruction.operands.first()
            && !opcode::has(&instruction.opcode, Fact::ReadsFirst)
        {
            let what = format!("`{name}`: a result goes to a register, without an offset");
            self.module.invalid(instruction.pos, what);
        }
        let args: Vec<Arg> = instruction
            .operands
            .iter()
            .map(|operand| self.operand(&instruction, operand))
            .collect();
        let call = instruction.opcode == "call";
        for arg in &args {
            self.note_uses(instruction.pos, arg, call);
        }
        if self.module.refusals.len() == refusals {
            if fragments::expand(self, &instruction, guard, &args) {
                return;
            }
            self.steps.push(PendingStep::Instruction(Pending {
                instruction,
                guard,
                args,
            }));
        } else if !isa::is_opcode(&instruction.opcode) {
            // The word itself is wrong, which says more than its operands do.
            let what = format!("`{}`: is no instruction", instruction.opcode);
            self.module.invalid(instruction.pos, what);
        }
    }

    /// Adds a step that the source does not have.
    pub fn step(&mut self, pos: Pos, guard: Option<(RegId, bool)>, text: &str, args: Vec<Arg>) {
        args.iter().for_each(|arg| self.note_uses(pos, arg, false));
        let pending = Pending::new(pos, guard, text, args);
        self.steps.push(PendingStep::Instruction(pending));
    }

    /// Remembers the symbols that an operand names.
    fn note_uses(&mut self, pos: Pos, arg: &Arg, call: bool) {
        match arg {
            Arg::Symbol(Symbol::Shared(at), _) => self.uses.shared.push(*at),
            Arg::Symbol(Symbol::Function(at), _) => {
                self.uses.functions.push(*at);
                if !call {
                    self.uses.addresses.push(*at);
                }
            }
            Arg::Symbol(Symbol::Param(at), _) if !call => {
                let param = self.tables.params[*at as usize];
                match param.place {
                    Place::Incoming(_) if param.copy.is_none() => {
                        let offset = self.frame_space(param.size, param.align);
                        self.tables.params[*at as usize].copy = Some(offset);
                    }
                    Place::Kernel(_) | Place::Incoming(_) => {}
                    Place::Outgoing(_) | Place::Call(_) => self.module.invalid(
                        pos,
                        "the address of a .param variable that is no parameter cannot be taken"
                            .into(),
                    ),
                }
            }
            Arg::Address(base, _) if matches!(**base, Arg::Symbol(Symbol::Param(_), _)) => {}
            Arg::Address(base, _) | Arg::Not(base) => self.note_uses(pos, base, call),
            Arg::Pair(a, b) => {
                self.note_uses(pos, a, call);
                self.note_uses(pos, b, call);
            }
            Arg::Vector(args) | Arg::List(args) => {
                for arg in args {
                    // A function among the arguments is an address, not a callee.
                    let function = matches!(arg, Arg::Symbol(Symbol::Function(_), _));
                    self.note_uses(pos, arg, call && !function);
                }
            }
            Arg::Symbol(..)
            | Arg::Reg(_)
            | Arg::Part(..)
            | Arg::Imm(_)
            | Arg::Special(_)
            | Arg::SpecialVector(_)
            | Arg::Sink => {}
        }
    }
}
