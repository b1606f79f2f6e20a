//! Checks of accesses to [arrays](crate::jit::runtime::arrays) that parameters point to.

use cranelift_codegen::ir::condcodes::IntCC;
use cranelift_codegen::ir::{InstBuilder, MemFlags, Value, types};
use ptx::ast::Type;

use super::Lower;
use super::entry::Entry;
use super::function::Frame;
use super::lanes::{Form, Kept};
use super::runs::Element;
use crate::jit::decode::Arg;
use crate::jit::runtime::access::Access;
use crate::jit::runtime::arrays::{self, Array};

/// Accesses to elements of an array.
struct Elements {
    /// By how many elements the lowest access is below the one that the index names.
    less: i64,
    /// Indices below this are inside, less that.
    count: Value,
}

impl Lower<'_> {
    /// Whether the accesses of this step are inside of the array that they are made to; `None`
    /// where that is not known of any array. The lowest is `low` bytes from the register that is
    /// its base.
    pub(super) fn inside_array(&mut self, low: i64, access: &Access) -> Option<Value> {
        let element = self.array_element()?;
        let has_one = |l: &mut Self, register| matches!(l.kept_of(register), Kept::One(_));
        if self.form() == Form::Once && !element.indices().all(|register| has_one(self, register)) {
            return None;
        }
        let Elements { less, count } = self.elements(low, access)?;
        let index = self.read(&Arg::Reg(element.index), Type::B32);
        let index = self.whole_index(element, index);
        let index = match less {
            0 => index,
            less => self.b.ins().iadd_imm(index, -less),
        };
        let count = self.b.ins().uextend(types::I64, count);
        Some(self.b.ins().icmp(IntCC::UnsignedLessThan, index, count))
    }

    /// Whether the access of some thread of a group is not, where their indices are in vectors.
    pub(super) fn any_outside_array(&mut self, low: i64, access: &Access) -> Option<Value> {
        let element = self.array_element()?;
        if element.plus.is_some() {
            return None;
        }
        let Kept::Vectors(variables) = self.kept_of(element.index) else {
            return None;
        };
        let Elements { less, count } = self.elements(low, access)?;
        let mut largest = None;
        for variable in variables {
            let index = self.b.use_var(variable);
            let mut index = self.as_vector(index, types::I32X4);
            if less != 0 {
                let less = self.b.ins().iconst(types::I32, less);
                let less = self.b.ins().splat(types::I32X4, less);
                index = self.b.ins().isub(index, less);
            }
            largest = Some(match largest {
                None => index,
                Some(other) => self.b.ins().umax(other, index),
            });
        }
        let count = self.b.ins().splat(types::I32X4, count);
        let order = IntCC::UnsignedGreaterThanOrEqual;
        let outside = self.b.ins().icmp(order, largest?, count);
        Some(self.b.ins().vany_true(outside))
    }

    /// The element with index 0 that the step's accesses are relative to, how far it is from each
    /// to the next, and how many indices are inside; `None` where no array is known.
    pub(super) fn array_from(&mut self, low: i64, access: &Access) -> Option<(Value, i64, Value)> {
        let Elements { less, count } = self.elements_at(low, access)?;
        let element = self.array_element()?;
        let param = *self.steady.pointers.get(&element.array)?;
        let array = self.array(param);
        (less == 0 && element.plus.is_none()).then_some((array, element.by, count))
    }

    /// Where the element lies that this step's accesses are relative to, if this is its index.
    pub(super) fn element_at(&mut self, index: Value) -> Option<Value> {
        let element = self.array_element()?;
        let param = *self.steady.pointers.get(&element.array)?;
        let array = self.array(param);
        let index = self.whole_index(element, index);
        let by = element.by;
        let distance = match by.trailing_zeros() {
            log2 if by == 1 << log2 => self.b.ins().ishl_imm(index, i64::from(log2)),
            _ => self.b.ins().imul_imm(index, by),
        };
        Some(self.b.ins().iadd(array, distance))
    }

    /// The array that a parameter points to.
    fn array(&mut self, param: u32) -> Value {
        let params = self.entry(Entry::Params);
        let flags = MemFlags::trusted().with_readonly().with_can_move();
        self.b.ins().load(types::I64, flags, params, param as i32)
    }

    /// The element that this step's access is relative to. Where its index is a sum, threads of a
    /// group have more in common of what is added than of the index itself.
    pub(super) fn array_element(&self) -> Option<Element> {
        let element = *self.runs.elements.get(&self.step)?;
        match element.plus {
            Some((plus, signed)) if self.is_of_group(element.index) && !self.is_of_group(plus) => {
                Some(Element {
                    index: plus,
                    signed,
                    plus: Some((element.index, element.signed)),
                    ..element
                })
            }
            _ => Some(element),
        }
    }

    /// An element's index, with what is added to it.
    fn whole_index(&mut self, element: Element, index: Value) -> Value {
        let index = self.extended_index(index, element.signed);
        let Some((plus, signed)) = element.plus else {
            return index;
        };
        let plus = self.read(&Arg::Reg(plus), Type::B32);
        let plus = self.extended_index(plus, signed);
        self.b.ins().iadd(index, plus)
    }

    /// As addresses have it: no more instructions are needed for them then.
    fn extended_index(&mut self, index: Value, signed: bool) -> Value {
        match signed {
            true => self.b.ins().sextend(types::I64, index),
            false => self.b.ins().uextend(types::I64, index),
        }
    }

    /// What the indices of this step's accesses compare with; `None` where no array is known, or
    /// nothing holds the index.
    fn elements(&mut self, low: i64, access: &Access) -> Option<Elements> {
        let since = self.array_element()?.since;
        if self.form() == Form::Thread && since < self.entered {
            return None;
        }
        self.elements_at(low, access)
    }

    fn elements_at(&mut self, low: i64, access: &Access) -> Option<Elements> {
        if matches!(self.frame, Frame::Device { .. }) {
            return None;
        }
        let element = self.array_element()?;
        let param = *self.steady.pointers.get(&element.array)?;
        let size = 1u64 << access.log2;
        let by = u64::try_from(element.by)
            .ok()
            .filter(|by| *by > 0 && by.is_multiple_of(size))?;
        // An index less where the lowest access is below the element.
        let (low, less) = match u64::try_from(low) {
            Ok(low) => (low, 0),
            Err(_) if low.unsigned_abs().is_multiple_of(by) => (0, low.unsigned_abs() / by),
            Err(_) => return None,
        };
        let farthest = access.offsets.iter().max()? + access.stride * (access.threads - 1);
        let array = Array {
            param,
            low,
            length: farthest + size,
            by,
            log2: access.log2,
            write: access.write,
        };
        if less >= arrays::MOST {
            return None; // an index that is inside could be negative, where its sign extends it
        }
        let number = self.unit.array(array)?;
        Some(Elements {
            less: less as i64,
            count: self.entry(Entry::ArrayCount(number)),
        })
    }
}
