//! Operands: names become registers, symbols and special registers.

use ptx::ast::{self, AddressBase, Immediate, Index, Linkage, Operand, Pos, Type};
use ptx::opcode;

use super::body::Resolve;
use super::scope::Named;
use super::special;
use crate::jit::decode::{Arg, Refusal, RegId, Selector, Symbol};
use crate::jit::lower::is_video;

impl Resolve<'_, '_> {
    /// An operand; what is wrong with it is refused, and stands for nothing.
    pub(super) fn operand(&mut self, at: &ast::Instruction, operand: &Operand) -> Arg {
        match operand {
            Operand::Name(name) => self.name(at, name, 0),
            Operand::Offset(name, offset) => match self.name(at, name, *offset) {
                arg @ Arg::Symbol(..) => arg,
                Arg::Reg(id) => self.sum(at, name, id, *offset),
                Arg::Sink => Arg::Sink,
                _ => self.unfit(
                    at.pos,
                    format!("`{name}` is no variable that an offset can be added to"),
                ),
            },
            Operand::Element(name, index) => self.element(at, name, index),
            Operand::Member(name, component) => self.member(at, name, component),
            Operand::Immediate(immediate) => Arg::Imm(*immediate),
            Operand::Address(address) => self.address(at, address),
            Operand::Vector(operands) => {
                if operands
                    .iter()
                    .any(|part| matches!(part, Operand::Vector(_)))
                {
                    return self.unfit(at.pos, "a vector has no vectors in it".into());
                }
                Arg::Vector(self.operands(at, operands))
            }
            Operand::List(operands) => Arg::List(self.operands(at, operands)),
            Operand::Pair(a, b) => {
                let a = self.operand(at, a);
                Arg::Pair(Box::new(a), Box::new(self.operand(at, b)))
            }
            Operand::Not(operand) => match self.operand(at, operand) {
                Arg::Reg(id) if self.scopes.types()[id.0 as usize] == Type::Pred => {
                    Arg::Not(Box::new(Arg::Reg(id)))
                }
                Arg::Sink => Arg::Sink,
                _ => self.unfit(at.pos, "only a predicate can be negated with `!`".into()),
            },
            Operand::Negate(operand) => match self.operand(at, operand) {
                Arg::Imm(Immediate::Int { bits, .. }) => Arg::Imm(Immediate::Int {
                    bits: bits.wrapping_neg(),
                    signed: true,
                }),
                Arg::Imm(Immediate::F32(bits)) => Arg::Imm(Immediate::F32(bits ^ 1 << 31)),
                Arg::Imm(Immediate::F64(bits)) => Arg::Imm(Immediate::F64(bits ^ 1 << 63)),
                Arg::Reg(id) if at.opcode == "vmad" => Arg::Part(id, Selector::WHOLE.negated()),
                Arg::Part(id, selector) if at.opcode == "vmad" => Arg::Part(id, selector.negated()),
                Arg::Sink => Arg::Sink,
                _ => self.unfit(at.pos, "only a number can be negated".into()),
            },
            Operand::Sink => Arg::Sink,
        }
    }

    fn operands(&mut self, at: &ast::Instruction, operands: &[Operand]) -> Vec<Arg> {
        operands
            .iter()
            .map(|operand| self.operand(at, operand))
            .collect()
    }

    fn unfit(&mut self, pos: Pos, what: String) -> Arg {
        self.module.invalid(pos, what);
        Arg::Sink
    }

    fn name(&mut self, at: &ast::Instruction, name: &str, offset: i64) -> Arg {
        if name == "_" {
            return Arg::Sink;
        }
        match self.scopes.find(name) {
            Some(Named::Register(register)) => match self.scopes.declaration(register).vector {
                1 => Arg::Reg(self.scopes.element(register, 0)),
                n => Arg::Vector(
                    (0..n)
                        .map(|element| Arg::Reg(self.scopes.element(register, element)))
                        .collect(),
                ),
            },
            Some(Named::Symbol(symbol)) => Arg::Symbol(symbol, offset),
            None => {
                if name.starts_with('%') {
                    self.module.has(at.pos, name, opcode::since(name, &[]));
                }
                if let Some(special) = special::named(name) {
                    return special;
                }
                if let Some(offset) = special::reserved_shared(name) {
                    let reserved = self.module.reserved_shared();
                    return Arg::Symbol(Symbol::Shared(reserved), offset);
                }
                if let Some(what) = self.module.unsupported.get(name).cloned() {
                    let (pos, invalid) = (at.pos, false);
                    self.module.refuse(Refusal { pos, what, invalid });
                    return Arg::Sink;
                }
                let Some(symbol) = self.module.names.get(name).copied() else {
                    return self.unfit(at.pos, format!("`{name}` is not declared"));
                };
                self.check_extern(at.pos, symbol);
                Arg::Symbol(symbol, offset)
            }
        }
    }

    /// A register and a number, which are added in a step before the instruction.
    fn sum(&mut self, at: &ast::Instruction, name: &str, register: RegId, number: i64) -> Arg {
        let declared = self.scopes.types()[register.0 as usize];
        let ty = match declared {
            Type::B32 | Type::U32 | Type::S32 => Type::U32,
            Type::B64 | Type::U64 | Type::S64 => Type::U64,
            _ => {
                let what = format!("`{name}` is no variable that an offset can be added to");
                return self.unfit(at.pos, what);
            }
        };
        let sum = Arg::Reg(self.scopes.fresh(declared));
        let number = Arg::Imm(Immediate::Int {
            bits: number as u64,
            signed: true,
        });
        let args = vec![sum.clone(), Arg::Reg(register), number];
        self.step(at.pos, None, &format!("add.{}", ty.name()), args);
        sum
    }

    /// An element of an array: for a load or store the place to access, otherwise its address. An
    /// index in a register is multiplied in steps before the instruction.
    fn element(&mut self, at: &ast::Instruction, name: &str, index: &Index) -> Arg {
        let array = match self.name(at, name, 0) {
            Arg::Symbol(symbol, _) => symbol,
            Arg::Sink => return Arg::Sink,
            _ => return self.unfit(at.pos, format!("`{name}` is no array")),
        };
        let of_module = || self.module.arrays.get(&array);
        let Some(size) = self.arrays.get(&array).or_else(of_module).copied() else {
            return self.unfit(at.pos, format!("`{name}` is no array"));
        };
        let offset = index.offset.wrapping_mul(i64::from(size));
        let accesses = matches!(at.opcode.as_str(), "ld" | "ldu" | "st");
        if !accesses && !matches!(at.opcode.as_str(), "mov" | "cvta") {
            let what = format!("`{}` takes no element of an array", at.opcode);
            return self.unfit(at.pos, what);
        }
        let Some(register) = &index.register else {
            return match accesses {
                true => Arg::Address(Box::new(Arg::Symbol(array, 0)), offset),
                false => Arg::Symbol(array, offset),
            };
        };
        let Arg::Reg(number) = self.name(at, register, 0) else {
            return self.unfit(at.pos, format!("`{register}` is no register for an index"));
        };
        let mut types = at.modifiers.iter().filter_map(|name| Type::from_name(name));
        let ty = match types.next_back() {
            Some(ty) if !accesses && ty.size() == 4 => Type::U32,
            _ => Type::U64,
        };
        let multiply = match (ty, self.scopes.types()[number.0 as usize]) {
            (Type::U32, Type::B32 | Type::U32 | Type::S32) => "mad.lo.u32",
            (_, Type::B32 | Type::U32) => "mad.wide.u32",
            (_, Type::S32) => "mad.wide.s32",
            (Type::U64, Type::B64 | Type::U64 | Type::S64) => "mad.lo.u64",
            _ => {
                let what = format!("`{register}` has no type of an index here");
                return self.unfit(at.pos, what);
            }
        };
        let base = Arg::Reg(self.scopes.fresh(ty));
        let scalar = Arg::Imm(Immediate::Int {
            bits: u64::from(size),
            signed: false,
        });
        let start = match accesses {
            true => Arg::Symbol(array, 0),
            false => Arg::Symbol(array, offset),
        };
        let to = format!("mov.{}", ty.name());
        self.step(at.pos, None, &to, vec![base.clone(), start]);
        let place = Arg::Reg(self.scopes.fresh(ty));
        let args = vec![place.clone(), Arg::Reg(number), scalar, base];
        self.step(at.pos, None, multiply, args);
        match accesses {
            true => Arg::Address(Box::new(place), offset),
            false => place,
        }
    }

    /// A variable that is declared here and defined nowhere cannot be used. Functions are looked at
    /// when all are known.
    fn check_extern(&mut self, pos: Pos, symbol: Symbol) {
        if let Symbol::Global(at) = symbol {
            let global = &self.module.program.globals[at as usize];
            if global.linkage == Linkage::Extern {
                let what = format!("Unresolved extern variable '{}'", global.name);
                self.module.invalid(pos, what);
            }
        }
    }

    fn member(&mut self, at: &ast::Instruction, name: &str, component: &str) -> Arg {
        if is_video(&at.opcode)
            && let Some(selector) = Selector::named(component)
        {
            return match self.name(at, name, 0) {
                Arg::Reg(id) => Arg::Part(id, selector),
                Arg::Sink => Arg::Sink,
                _ => self.unfit(at.pos, format!("`{name}` is no register with parts")),
            };
        }
        let element = match component {
            "x" | "r" => 0,
            "y" | "g" => 1,
            "z" | "b" => 2,
            "w" | "a" => 3,
            _ => return self.unfit(at.pos, format!("`{name}` has no component .{component}")),
        };
        match self.scopes.find(name) {
            Some(Named::Register(register))
                if self.scopes.declaration(register).vector > 1
                    && u32::from(element) < self.scopes.declaration(register).vector =>
            {
                Arg::Reg(self.scopes.element(register, u32::from(element)))
            }
            None => match special::component(name, element) {
                Some(special) => {
                    self.module.has(at.pos, name, opcode::since(name, &[]));
                    special
                }
                None => self.unfit(at.pos, format!("`{name}.{component}` is not declared")),
            },
            Some(_) => self.unfit(at.pos, format!("`{name}` has no component .{component}")),
        }
    }

    fn address(&mut self, at: &ast::Instruction, address: &ast::Address) -> Arg {
        let base = match &address.base {
            AddressBase::Immediate(_)
                if at.opcode != "fence" && !at.modifiers.iter().any(|word| word == "local") =>
            {
                let what = format!("`{}`: a number is an address in .local alone", at.opcode);
                self.unfit(at.pos, what)
            }
            AddressBase::Immediate(bits) => Arg::Imm(Immediate::Int {
                bits: *bits,
                signed: false,
            }),
            AddressBase::Name(name) => match self.name(at, name, 0) {
                Arg::Reg(id)
                    if !matches!(
                        self.scopes.types()[id.0 as usize],
                        Type::B32 | Type::U32 | Type::S32 | Type::B64 | Type::U64 | Type::S64
                    ) =>
                {
                    self.unfit(at.pos, format!("`{name}` has no type of an address"))
                }
                arg @ (Arg::Reg(_) | Arg::Symbol(..) | Arg::Sink) => arg,
                _ => self.unfit(at.pos, format!("`{name}` is no base of an address")),
            },
        };
        let place = Arg::Address(Box::new(base), address.offset);
        if address.rest.is_empty() {
            return place;
        }
        let mut parts = vec![place];
        parts.extend(self.operands(at, &address.rest));
        Arg::List(parts)
    }
}
