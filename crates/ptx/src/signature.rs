//! Where the parameters of a function lie in its `.param` space.
//!
//! Parameters follow one another in order, each at the next multiple of its alignment: the one it
//! declares, or its natural one, the size of its scalar or vector. A kernel's arguments are packed
//! just so by whoever launches it.

use crate::ast::{Function, Type, Variable};

/// The layout of a function's parameters and of what it returns.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Signature {
    /// Parameters in order.
    pub params: Vec<Parameter>,
    /// What is returned, laid out by itself from offset 0.
    pub returns: Vec<Parameter>,
    /// Bytes from the first parameter to the end of the last.
    pub size: u64,
    /// The strictest alignment of the parameters; 1 where there are none.
    pub align: u32,
}

/// A parameter and its place.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Parameter {
    /// Its name.
    pub name: String,
    /// Bytes from the start of the parameters.
    pub offset: u64,
    /// Its size in bytes; 0 for an array of open length.
    pub size: u64,
    /// Its alignment in bytes.
    pub align: u32,
    /// The type of its elements.
    pub ty: Type,
}

impl Signature {
    /// The layout of a function's parameters. Sizes that 64 bits do not hold saturate.
    pub fn of(function: &Function) -> Signature {
        let (params, size) = lay_out(&function.params);
        let (returns, _) = lay_out(&function.returns);
        let align = params.iter().map(|param| param.align).max().unwrap_or(1);
        Signature {
            params,
            returns,
            size,
            align,
        }
    }
}

impl Function {
    /// Where its parameters lie.
    pub fn signature(&self) -> Signature {
        Signature::of(self)
    }
}

fn lay_out(variables: &[Variable]) -> (Vec<Parameter>, u64) {
    let mut end = 0u64;
    let mut params = Vec::with_capacity(variables.len());
    for variable in variables {
        let align = variable.alignment().max(1);
        let size = variable.size();
        let offset = end
            .checked_next_multiple_of(u64::from(align))
            .unwrap_or(u64::MAX);
        end = offset.saturating_add(size);
        params.push(Parameter {
            name: variable.name.clone(),
            offset,
            size,
            align,
            ty: variable.ty,
        });
    }
    (params, end)
}
