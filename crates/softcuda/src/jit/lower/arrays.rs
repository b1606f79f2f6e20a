//! Checks of accesses to arrays, at indices of 32 bits. How many indices are inside of an array
//! that a parameter points to [is known](crate::jit::runtime::arrays). Of another, such as a slice
//! whose start is computed in 64 bits, a site knows what memory a group has accessed last.

use cranelift_codegen::ir::condcodes::IntCC;
use cranelift_codegen::ir::{InstBuilder, MemFlags, Value, types};
use cranelift_frontend::Variable;
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

/// Which indices are inside of memory.
struct Inside {
    first: Value,
    /// The one behind the last.
    end: Value,
    /// Not 0 if none is, because elements lie beside those that may be accessed.
    beside: Option<Value>,
}

/// The logarithm of a power of two.
fn log2_of(number: i64) -> Option<u32> {
    let number = u64::try_from(number).ok()?;
    number.is_power_of_two().then(|| number.ilog2())
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
        let Kept::Vectors(indices) = self.kept_of(element.index) else {
            return None;
        };
        let Elements { less, count } = self.elements(low, access)?;
        let less = (less != 0).then(|| self.b.ins().iconst(types::I32, less));
        Some(self.any_beyond(&indices, less, count))
    }

    /// The same where something is added to the indices that the group has once, or nothing is
    /// known of the array but that the group has one. Then a site, which is answered too, knows
    /// the memory that was accessed last.
    pub(super) fn any_outside_of(
        &mut self,
        low: i64,
        access: &Access,
    ) -> Option<(Value, Option<u32>)> {
        let element = self.element_of_sum()?;
        let Kept::Vectors(indices) = self.kept_of(element.index) else {
            return None;
        };
        let plus = element.plus.map(|(plus, _)| plus);
        let once = [Some(element.array), plus, element.wide];
        if !once.into_iter().flatten().all(|it| self.is_of_group(it)) {
            return None;
        }
        let more = match (element.plus, element.wide) {
            (Some((plus, signed)), _) => {
                let plus = self.read(&Arg::Reg(plus), Type::B32);
                Some(self.extended_index(plus, signed))
            }
            (None, Some(wide)) => Some(self.read(&Arg::Reg(wide), Type::B64)),
            (None, None) => None,
        };
        let (inside, site) = match self.elements_of(element, low, access) {
            Some(Elements { less, count }) => {
                let less = self.b.ins().iconst(types::I64, less);
                let first = more.map_or(less, |more| self.b.ins().isub(less, more));
                let count = self.b.ins().uextend(types::I64, count);
                let (end, beside) = (self.b.ins().iadd(first, count), None);
                (Inside { first, end, beside }, None)
            }
            None => {
                let log2 = log2_of(element.by).filter(|log2| *log2 >= access.log2)?;
                let array = self.read(&Arg::Reg(element.array), Type::B64);
                let mut at = self.b.ins().iadd_imm(array, low);
                if let Some(more) = more {
                    let more = self.b.ins().ishl_imm(more, i64::from(log2));
                    at = self.b.ins().iadd(at, more);
                }
                let site = self.unit.site();
                (self.inside_range(at, log2, access.log2, site), Some(site))
            }
        };
        let (first, count) = self.in_words(inside, element.signed);
        Some((self.any_beyond(&indices, Some(first), count), site))
    }

    /// Which elements of `1 << log2` bytes lie in what `site` knows, as far as `1 << access` bytes
    /// of each are accessed: of index 0 those at an address.
    fn inside_range(&mut self, at: Value, log2: u32, access: u32, site: u32) -> Inside {
        let size = 1i64 << access;
        let (units, base) = self.range_of(site);
        let distance = self.b.ins().isub(at, base);
        let elements = self.b.ins().sshr_imm(distance, i64::from(log2));
        let first = self.b.ins().ineg(elements);
        let bytes = self.b.ins().ishl_imm(units, i64::from(access));
        let to_end = self.b.ins().isub(bytes, distance);
        let to_last = self.b.ins().iadd_imm(to_end, -size);
        let last = self.b.ins().sshr_imm(to_last, i64::from(log2));
        let end = self.b.ins().iadd_imm(last, 1);
        let beside = (size > 1).then(|| self.b.ins().band_imm(distance, size - 1));
        Inside { first, end, beside }
    }

    /// Of the indices that are inside those that 32 bits can tell: the first, and how many. Where a
    /// sum has wrapped, the end comes before the first, and none is inside.
    fn in_words(&mut self, inside: Inside, signed: bool) -> (Value, Value) {
        let Inside { first, end, beside } = inside;
        let (least, most) = match signed {
            true => (i64::from(i32::MIN), i64::from(i32::MAX)),
            false => (0, i64::from(u32::MAX)),
        };
        let [least, most, none] = [least, most, 0].map(|it| self.b.ins().iconst(types::I64, it));
        let [first, end] = [first, end].map(|it| {
            let it = self.b.ins().smax(it, least);
            self.b.ins().smin(it, most)
        });
        let count = self.b.ins().isub(end, first);
        let mut count = self.b.ins().smax(count, none);
        if let Some(beside) = beside {
            count = self.b.ins().select(beside, none, count);
        }
        let [first, count] = [first, count].map(|it| self.b.ins().ireduce(types::I32, it));
        (first, count)
    }

    /// Whether some index is below the first one, or not among the next `count`.
    fn any_beyond(&mut self, indices: &[Variable], first: Option<Value>, count: Value) -> Value {
        let first = first.map(|first| self.b.ins().splat(types::I32X4, first));
        let mut largest = None;
        for variable in indices {
            let index = self.b.use_var(*variable);
            let mut index = self.as_vector(index, types::I32X4);
            if let Some(first) = first {
                index = self.b.ins().isub(index, first);
            }
            largest = Some(match largest {
                None => index,
                Some(other) => self.b.ins().umax(other, index),
            });
        }
        let count = self.b.ins().splat(types::I32X4, count);
        let order = IntCC::UnsignedGreaterThanOrEqual;
        let largest = largest.expect("a group has indices");
        let outside = self.b.ins().icmp(order, largest, count);
        self.b.ins().vany_true(outside)
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

    /// The element that this step's access is relative to, if nothing of 64 bits is added to its
    /// index.
    pub(super) fn array_element(&self) -> Option<Element> {
        self.element_of_sum()
            .filter(|element| element.wide.is_none())
    }

    /// The element that this step's access is relative to. Where its index is a sum, threads of a
    /// group have more in common of what is added than of the index itself.
    fn element_of_sum(&self) -> Option<Element> {
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
        self.elements_of(self.array_element()?, low, access)
    }

    fn elements_of(&mut self, element: Element, low: i64, access: &Access) -> Option<Elements> {
        if matches!(self.frame, Frame::Device { .. }) {
            return None;
        }
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
