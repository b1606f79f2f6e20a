//! Where parameters, shared variables and frames lie.

use ptx::ast::{Type, Variable};

/// Rounds up to a multiple of a power of two.
pub(crate) fn align_up(value: u64, align: u64) -> u64 {
    value.saturating_add(align - 1) & !(align - 1)
}

/// Parameters, one after the other, each aligned.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Layout {
    /// Where each lies.
    pub fields: Vec<Field>,
    /// Size of the whole: the end of the last.
    pub size: u64,
    /// A scalar among them is a predicate or an integer of 8 or 16 bits, which no call passes.
    pub narrow: bool,
}

/// Where a parameter lies.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Field {
    /// In bytes.
    pub offset: u64,
    /// In bytes.
    pub size: u64,
    /// In bytes.
    pub align: u64,
}

impl Layout {
    /// The layout of these parameters.
    pub fn of(variables: &[Variable]) -> Layout {
        let mut layout = Layout::default();
        for variable in variables {
            layout.push(variable.size(), alignment(variable));
            layout.narrow |= variable.dims.is_empty()
                && matches!(
                    variable.ty,
                    Type::Pred | Type::U8 | Type::U16 | Type::S8 | Type::S16
                );
        }
        layout
    }

    /// Adds a field at the end.
    pub fn push(&mut self, size: u64, align: u64) -> Field {
        let offset = align_up(self.size, align);
        self.size = offset.saturating_add(size);
        let field = Field {
            offset,
            size,
            align,
        };
        self.fields.push(field);
        field
    }
}

/// A variable's alignment: a power of two, or 1 where the source gives none such (which is refused
/// elsewhere).
pub(crate) fn alignment(variable: &Variable) -> u64 {
    let align = u64::from(variable.alignment());
    if align.is_power_of_two() { align } else { 1 }
}
