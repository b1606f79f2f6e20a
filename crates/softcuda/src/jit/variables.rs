//! The variables of a module: allocated when it is loaded, initialized, freed with it.

use ptx::ast::{Immediate, Init, Type};

use super::decode::{Refusal, Symbol};
use super::program::{Global, Program};
use super::resolve::Names;
use crate::memory::{self, Device, Kind};

/// What all variables in `.const` of a module may take.
const MAX_CONSTANT: u64 = 64 << 10;

/// Why variables could not be made.
#[derive(Debug)]
pub(crate) enum VariableError {
    /// An initializer does not fit its variable, or there is too much constant memory.
    Refused(Refusal),
    /// There is no memory.
    OutOfMemory,
}

/// The memory of a module's variables.
#[derive(Debug, Default)]
pub(crate) struct Variables {
    allocations: Vec<u64>,
    /// Bytes in `.const`.
    pub constant: u64,
}

impl Drop for Variables {
    fn drop(&mut self) {
        for base in &self.allocations {
            memory::free(*base);
        }
    }
}

/// Allocates and initializes the variables of a module, and notes their addresses in it.
pub(crate) fn allocate(
    program: &mut Program,
    names: &Names,
    device: Device,
) -> Result<Variables, VariableError> {
    let mut variables = Variables::default();
    for global in &mut program.globals {
        if global.constant {
            variables.constant = variables.constant.saturating_add(global.size);
        }
        if variables.constant > MAX_CONSTANT {
            return Err(refused(
                global,
                format!(
                    "`{}`: more than {MAX_CONSTANT} bytes of constant memory",
                    global.name
                ),
            ));
        }
        let kind = match (global.constant, global.managed) {
            (true, _) => Kind::Constant,
            (false, true) => Kind::Managed,
            (false, false) => Kind::Global,
        };
        let allocation = memory::alloc(
            device,
            global.size,
            global.align.max(memory::ALIGNMENT),
            kind,
        )
        .map_err(|_| VariableError::OutOfMemory)?;
        variables.allocations.push(allocation.base);
        memory::clear(&allocation);
        global.address = allocation.base;
    }
    for global in &program.globals {
        let image = Image {
            program,
            names,
            global,
        };
        if let Some(init) = &global.init {
            image.value(init, &global.dims, 0)?;
        }
    }
    Ok(variables)
}

fn refused(global: &Global, what: String) -> VariableError {
    VariableError::Refused(Refusal {
        pos: global.pos,
        what,
        invalid: true,
    })
}

/// Writes what an initializer says into its variable, which is zero before.
struct Image<'a> {
    program: &'a Program,
    names: &'a Names,
    global: &'a Global,
}

impl Image<'_> {
    /// Puts a value, or a list of them for these dimensions, at an offset.
    fn value(&self, init: &Init, dims: &[u64], at: u64) -> Result<(), VariableError> {
        let items = match init {
            Init::List(items) => items,
            scalar => return self.scalar(scalar, at),
        };
        let element = u64::from(self.global.ty.size());
        let vector = u64::from(self.global.vector);
        let (count, inner) = match dims {
            [count, inner @ ..] => (*count, inner),
            // The elements of a vector.
            [] => (vector, dims),
        };
        // Lists inside are rows, numbers are elements that fill rows in order.
        let nested = items.iter().any(|item| matches!(item, Init::List(_)));
        let (step, count) = if dims.is_empty() || !nested {
            let all = dims
                .iter()
                .fold(vector, |all, dim| all.saturating_mul(*dim));
            (element, all)
        } else {
            let row = inner
                .iter()
                .fold(vector, |row, dim| row.saturating_mul(*dim));
            (row.saturating_mul(element), count)
        };
        if items.len() as u64 > count {
            return Err(refused(
                self.global,
                format!(
                    "`{}`: its initializer has too many values",
                    self.global.name
                ),
            ));
        }
        for (n, item) in (0..).zip(items) {
            let at = at + step * n;
            match item {
                Init::List(_) => self.value(item, inner, at)?,
                scalar => self.scalar(scalar, at)?,
            }
        }
        Ok(())
    }

    fn scalar(&self, init: &Init, at: u64) -> Result<(), VariableError> {
        let ty = self.global.ty;
        let bits = match init {
            Init::Value(immediate) => number(*immediate, ty),
            Init::Address {
                symbol,
                offset,
                mask,
                ..
            } => {
                let address = match self.names.get(symbol) {
                    Some(Symbol::Global(at)) => self.program.globals[*at as usize].address,
                    Some(Symbol::Function(at)) => self.program.function_address(*at),
                    _ => return Err(refused(self.global, format!("`{symbol}` has no address"))),
                };
                let address = address.wrapping_add_signed(*offset);
                match mask {
                    // `0xFF00(symbol)` is the byte of the address under the mask.
                    Some(mask) if *mask != 0 => (address & mask) >> mask.trailing_zeros(),
                    _ if ty.size() < 8 => {
                        return Err(refused(
                            self.global,
                            format!(
                                "`{}`: an address does not fit in .{}",
                                self.global.name,
                                ty.name()
                            ),
                        ));
                    }
                    _ => address,
                }
            }
            Init::List(_) => unreachable!("a list is no scalar"),
        };
        let size = u64::from(ty.size());
        if at + size > self.global.size {
            return Err(refused(
                self.global,
                format!(
                    "`{}`: its initializer has too many values",
                    self.global.name
                ),
            ));
        }
        let bytes = u128::from(bits).to_le_bytes();
        // SAFETY: the allocation has the variable's `size` bytes, these are among them, and nobody
        // else knows it yet.
        unsafe { memory::access::write(self.global.address + at, &bytes[..size as usize]) };
        Ok(())
    }
}

/// The bits of a number in a variable of this type.
fn number(immediate: Immediate, ty: Type) -> u64 {
    match (ty, immediate) {
        (Type::F64, Immediate::F32(bits)) => f64::from(f32::from_bits(bits)).to_bits(),
        (Type::F64, Immediate::Int { bits, signed: true }) => (bits as i64 as f64).to_bits(),
        (Type::F64, Immediate::Int { bits, .. }) => (bits as f64).to_bits(),
        (Type::F32, Immediate::F64(bits)) => u64::from((f64::from_bits(bits) as f32).to_bits()),
        (Type::F32, Immediate::Int { bits, signed: true }) => {
            u64::from((bits as i64 as f32).to_bits())
        }
        (Type::F32, Immediate::Int { bits, .. }) => u64::from((bits as f32).to_bits()),
        (_, Immediate::F32(bits)) => u64::from(bits),
        (_, Immediate::Int { bits, .. } | Immediate::F64(bits)) => bits,
    }
}
