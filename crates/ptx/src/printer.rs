//! The syntax tree back to PTX.
//!
//! What is printed parses to the same tree, for every tree that the parser can make. To keep that
//! true, numbers are printed so that their type survives: floating-point ones by their bits,
//! unsigned ones with `U`. What is added to a symbol or a register is printed `+-8` where it is
//! negative, the one spelling that NVIDIA's assembler takes.

use std::fmt::{self, Display, Formatter, Result, Write};

use crate::ast::*;

impl Display for Module {
    fn fmt(&self, f: &mut Formatter<'_>) -> Result {
        writeln!(f, ".version {}.{}", self.version.0, self.version.1)?;
        writeln!(f, ".target {}", list(&self.target))?;
        writeln!(f, ".address_size {}", self.address_size)?;
        self.items
            .iter()
            .try_for_each(|item| writeln!(f, "\n{item}"))
    }
}

impl Display for Item {
    fn fmt(&self, f: &mut Formatter<'_>) -> Result {
        match self {
            Item::Variable(variable) => write!(f, "{variable};"),
            Item::Function(function) => function.fmt(f),
            Item::Alias { name, aliasee, .. } => write!(f, ".alias {name}, {aliasee};"),
            Item::Pragma(texts) => pragma(f, texts),
            Item::File { index, name, stamp } => {
                write!(f, ".file {index} \"{name}\"")?;
                match stamp {
                    Some((time, size)) => write!(f, ", {time}, {size}"),
                    None => Ok(()),
                }
            }
            Item::Section { name, lines } => {
                writeln!(f, ".section {name}\n{{")?;
                lines.iter().try_for_each(|line| writeln!(f, "{line}"))?;
                f.write_char('}')
            }
            Item::Loc(loc) => loc.fmt(f),
        }
    }
}

impl Display for SectionLine {
    fn fmt(&self, f: &mut Formatter<'_>) -> Result {
        match self {
            SectionLine::Label(name) => write!(f, "{name}:"),
            SectionLine::Data { ty, values } => write!(f, ".{ty} {}", list(values)),
        }
    }
}

impl Display for SectionValue {
    fn fmt(&self, f: &mut Formatter<'_>) -> Result {
        match self {
            SectionValue::Int(value) => integer(f, *value),
            SectionValue::Symbol(name, 0) => f.write_str(name),
            SectionValue::Symbol(name, offset) => write!(f, "{name}+{offset}"),
            SectionValue::Difference(to, from) => write!(f, "{to}-{from}"),
        }
    }
}

impl Display for Linkage {
    /// The directive and a space, or nothing.
    fn fmt(&self, f: &mut Formatter<'_>) -> Result {
        f.write_str(match self {
            Linkage::Internal => "",
            Linkage::Extern => ".extern ",
            Linkage::Visible => ".visible ",
            Linkage::Weak => ".weak ",
            Linkage::Common => ".common ",
        })
    }
}

impl Display for Variable {
    /// The declaration, without the `;` that ends it as a statement.
    fn fmt(&self, f: &mut Formatter<'_>) -> Result {
        write!(f, "{}.{}", self.linkage, self.space.name())?;
        if let Some(bank) = self.bank {
            write!(f, "[{bank}]")?;
        }
        attributes(f, &self.attributes)?;
        if let Some(align) = self.align {
            write!(f, " .align {align}")?;
        }
        if self.vector != 1 {
            write!(f, " .v{}", self.vector)?;
        }
        write!(f, " .{}", self.ty.name())?;
        if let Some(ptr) = self.ptr {
            f.write_str(" .ptr")?;
            if let Some(space) = ptr.space {
                write!(f, " .{}", space.name())?;
            }
            if let Some(align) = ptr.align {
                write!(f, " .align {align}")?;
            }
        }
        write!(f, " {}", self.name)?;
        if let Some(range) = self.range {
            write!(f, "<{range}>")?;
        }
        for dim in &self.dims {
            match dim {
                Some(length) => write!(f, "[{length}]")?,
                None => f.write_str("[]")?,
            }
        }
        match &self.init {
            Some(init) => write!(f, " = {init}"),
            None => Ok(()),
        }
    }
}

/// ` .attribute(...)`, or nothing.
fn attributes(f: &mut Formatter<'_>, attributes: &[Attribute]) -> Result {
    if attributes.is_empty() {
        return Ok(());
    }
    write!(f, " .attribute({})", list(attributes))
}

impl Display for Attribute {
    fn fmt(&self, f: &mut Formatter<'_>) -> Result {
        write!(f, ".{}", self.name)?;
        for (i, arg) in self.args.iter().enumerate() {
            f.write_str(if i == 0 { "(" } else { ", " })?;
            integer(f, *arg)?;
        }
        f.write_str(if self.args.is_empty() { "" } else { ")" })
    }
}

impl Display for Init {
    fn fmt(&self, f: &mut Formatter<'_>) -> Result {
        match self {
            Init::Value(value) => value.fmt(f),
            Init::Address {
                symbol,
                offset,
                generic,
                mask,
                ..
            } => {
                if let Some(mask) = mask {
                    write!(f, "0x{mask:X}(")?;
                }
                match generic {
                    true => write!(f, "generic({symbol})")?,
                    false => f.write_str(symbol)?,
                }
                if *offset != 0 {
                    write!(f, "+{offset}")?;
                }
                f.write_str(if mask.is_some() { ")" } else { "" })
            }
            Init::List(values) => write!(f, "{{{}}}", list(values)),
        }
    }
}

impl Display for Function {
    fn fmt(&self, f: &mut Formatter<'_>) -> Result {
        write!(
            f,
            "{}{}",
            self.linkage,
            if self.kernel { ".entry" } else { ".func" }
        )?;
        attributes(f, &self.attributes)?;
        if !self.returns.is_empty() {
            write!(f, " ({})", list(&self.returns))?;
        }
        write!(f, " {}(", self.name)?;
        for (i, param) in self.params.iter().enumerate() {
            write!(f, "{}\n\t{param}", if i == 0 { "" } else { "," })?;
        }
        f.write_str(if self.params.is_empty() { ")" } else { "\n)" })?;
        for directive in &self.directives {
            write!(f, "\n{directive}")?;
        }
        match &self.body {
            Some(body) => {
                f.write_str("\n")?;
                block(f, body, 0)
            }
            None => f.write_str(";"),
        }
    }
}

impl Display for FunctionDirective {
    fn fmt(&self, f: &mut Formatter<'_>) -> Result {
        match self {
            FunctionDirective::Numbers(name, numbers) if numbers.is_empty() => write!(f, ".{name}"),
            FunctionDirective::Numbers(name, numbers) => write!(f, ".{name} {}", list(numbers)),
            FunctionDirective::Pragma(texts) => pragma(f, texts),
        }
    }
}

impl Display for Loc {
    fn fmt(&self, f: &mut Formatter<'_>) -> Result {
        write!(f, ".loc {} {} {}", self.file, self.line, self.column)?;
        let Some(InlinedAt {
            function,
            offset,
            at,
        }) = &self.inlined
        else {
            return Ok(());
        };
        write!(f, ", function_name {function}")?;
        if *offset != 0 {
            write!(f, "+{offset}")?;
        }
        write!(f, ", inlined_at {} {} {}", at.0, at.1, at.2)
    }
}

impl Display for Statement {
    fn fmt(&self, f: &mut Formatter<'_>) -> Result {
        statement(f, self, 0)
    }
}

/// A statement `depth` scopes deep, without the indentation of its first line.
fn statement(f: &mut Formatter<'_>, statement: &Statement, depth: usize) -> Result {
    match statement {
        Statement::Label(_, name) => write!(f, "{name}:"),
        Statement::Variable(variable) => write!(f, "{variable};"),
        Statement::Instruction(instruction) => instruction.fmt(f),
        Statement::Block(statements) => block(f, statements, depth),
        Statement::BranchTargets(_, name, targets) => {
            write!(f, "{name}: .branchtargets {};", list(targets))
        }
        Statement::CallTargets(_, name, targets) => {
            write!(f, "{name}: .calltargets {};", list(targets))
        }
        Statement::CallPrototype(_, name, prototype) => {
            write!(f, "{name}: .callprototype {prototype};")
        }
        Statement::Loc(loc) => loc.fmt(f),
        Statement::Pragma(texts) => pragma(f, texts),
    }
}

fn block(f: &mut Formatter<'_>, statements: &[Statement], depth: usize) -> Result {
    f.write_str("{\n")?;
    for inner in statements {
        // Labels stand out to the left.
        let tabs = if matches!(inner, Statement::Label(..)) {
            depth
        } else {
            depth + 1
        };
        indent(f, tabs)?;
        statement(f, inner, depth + 1)?;
        f.write_char('\n')?;
    }
    indent(f, depth)?;
    f.write_char('}')
}

fn indent(f: &mut Formatter<'_>, tabs: usize) -> Result {
    (0..tabs).try_for_each(|_| f.write_char('\t'))
}

impl Display for Prototype {
    fn fmt(&self, f: &mut Formatter<'_>) -> Result {
        write!(f, "({}) _ ({})", list(&self.returns), list(&self.params))?;
        self.directives
            .iter()
            .try_for_each(|directive| write!(f, " {directive}"))
    }
}

impl Display for Instruction {
    /// The whole statement, guard and `;` included.
    fn fmt(&self, f: &mut Formatter<'_>) -> Result {
        if let Some(Guard { negated, register }) = &self.guard {
            write!(f, "@{}{register} ", if *negated { "!" } else { "" })?;
        }
        f.write_str(&self.opcode)?;
        self.modifiers
            .iter()
            .try_for_each(|modifier| write!(f, ".{modifier}"))?;
        match self.operands.as_slice() {
            [] => f.write_str(";"),
            operands => write!(f, " {};", list(operands)),
        }
    }
}

impl Display for Operand {
    fn fmt(&self, f: &mut Formatter<'_>) -> Result {
        match self {
            Operand::Name(name) => f.write_str(name),
            Operand::Member(name, component) => write!(f, "{name}.{component}"),
            Operand::Offset(name, offset) => write!(f, "{name}+{offset}"),
            Operand::Element(name, index) => write!(f, "{name}[{index}]"),
            Operand::Immediate(value) => value.fmt(f),
            Operand::Address(address) => address.fmt(f),
            Operand::Vector(elements) => write!(f, "{{{}}}", list(elements)),
            Operand::Pair(first, second) => write!(f, "{first}|{second}"),
            Operand::Not(operand) => write!(f, "!{operand}"),
            Operand::Negate(operand) => write!(f, "-{operand}"),
            Operand::List(operands) => write!(f, "({})", list(operands)),
            Operand::Sink => f.write_str("_"),
        }
    }
}

impl Display for Index {
    fn fmt(&self, f: &mut Formatter<'_>) -> Result {
        match (&self.register, self.offset) {
            (None, offset) => write!(f, "{offset}"),
            (Some(register), 0) => f.write_str(register),
            (Some(register), offset) => write!(f, "{register}+{offset}"),
        }
    }
}

impl Display for Address {
    fn fmt(&self, f: &mut Formatter<'_>) -> Result {
        match &self.base {
            AddressBase::Name(name) => write!(f, "[{name}")?,
            AddressBase::Immediate(bits) => write!(f, "[{bits}")?,
        }
        if self.offset != 0 {
            write!(f, "+{}", self.offset)?;
        }
        for operand in &self.rest {
            write!(f, ", {operand}")?;
        }
        f.write_str("]")
    }
}

impl Display for Immediate {
    fn fmt(&self, f: &mut Formatter<'_>) -> Result {
        match *self {
            Immediate::Int { bits, signed: true } => integer(f, i128::from(bits as i64)),
            Immediate::Int {
                bits,
                signed: false,
            } => write!(f, "{bits}U"),
            Immediate::F32(bits) => write!(f, "0f{bits:08X}"),
            Immediate::F64(bits) => write!(f, "0d{bits:016X}"),
        }
    }
}

/// An integer of PTX's 64 bits, signed or not.
fn integer(f: &mut Formatter<'_>, value: i128) -> Result {
    if value == i128::from(i64::MIN) {
        // Its magnitude alone would read as unsigned.
        return write!(f, "{}-1", value + 1);
    }
    write!(f, "{value}")
}

fn pragma(f: &mut Formatter<'_>, texts: &[String]) -> Result {
    f.write_str(".pragma ")?;
    for (i, text) in texts.iter().enumerate() {
        write!(f, "{}\"{text}\"", if i == 0 { "" } else { ", " })?;
    }
    f.write_str(";")
}

/// The elements with `, ` between them.
fn list<T: Display>(elements: &[T]) -> impl Display + '_ {
    fmt::from_fn(move |f| {
        for (i, element) in elements.iter().enumerate() {
            if i > 0 {
                f.write_str(", ")?;
            }
            element.fmt(f)?;
        }
        Ok(())
    })
}
