//! Reductions of elements in memory, each atomic, as bulk copies and `red.async` do them.

use std::sync::atomic::Ordering::{AcqRel, Acquire};
use std::sync::atomic::{AtomicU16, AtomicU32, AtomicU64};

use super::atomic::{self, HalfOp};

/// What is computed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u32)]
pub(crate) enum Reduction {
    Add,
    Min,
    Max,
    Inc,
    Dec,
    And,
    Or,
    Xor,
}

/// Of what.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u32)]
pub(crate) enum Element {
    /// `.u32`, `.b32`
    U32,
    S32,
    /// `.u64`, `.b64`
    U64,
    S64,
    F16,
    Bf16,
    /// Subnormals are zeros.
    F32,
    F64,
    /// Subnormals are kept.
    WholeF32,
}

impl Reduction {
    /// The one of a number that compiled code passes.
    pub fn of(number: u32) -> Reduction {
        use Reduction::*;
        *[Add, Min, Max, Inc, Dec, And, Or, Xor]
            .get(number as usize)
            .unwrap_or(&Add)
    }

    /// Whether PTX has it for this type.
    pub fn takes(self, element: Element) -> bool {
        use Element::*;
        match self {
            Reduction::Add => element != S64,
            Reduction::Min | Reduction::Max => !matches!(element, F32 | F64 | WholeF32),
            Reduction::Inc | Reduction::Dec => element == U32,
            Reduction::And | Reduction::Or | Reduction::Xor => matches!(element, U32 | U64),
        }
    }

    fn u32(self, old: u32, value: u32) -> u32 {
        match self {
            Reduction::Add => old.wrapping_add(value),
            Reduction::Min => old.min(value),
            Reduction::Max => old.max(value),
            Reduction::Inc if old >= value => 0,
            Reduction::Inc => old + 1,
            Reduction::Dec if old == 0 || old > value => value,
            Reduction::Dec => old - 1,
            Reduction::And => old & value,
            Reduction::Or => old | value,
            Reduction::Xor => old ^ value,
        }
    }

    fn u64(self, old: u64, value: u64) -> u64 {
        match self {
            Reduction::Add | Reduction::Inc | Reduction::Dec => old.wrapping_add(value),
            Reduction::Min => old.min(value),
            Reduction::Max => old.max(value),
            Reduction::And => old & value,
            Reduction::Or => old | value,
            Reduction::Xor => old ^ value,
        }
    }

    fn half(self) -> u32 {
        match self {
            Reduction::Min => HalfOp::Min as u32,
            Reduction::Max => HalfOp::Max as u32,
            _ => HalfOp::Add as u32,
        }
    }
}

impl Element {
    /// The one of a number that compiled code passes.
    pub fn of(number: u32) -> Element {
        use Element::*;
        *[U32, S32, U64, S64, F16, Bf16, F32, F64, WholeF32]
            .get(number as usize)
            .unwrap_or(&U32)
    }

    /// In bytes.
    pub fn size(self) -> usize {
        match self {
            Element::F16 | Element::Bf16 => 2,
            Element::U32 | Element::S32 | Element::F32 | Element::WholeF32 => 4,
            Element::U64 | Element::S64 | Element::F64 => 8,
        }
    }
}

/// Reduces the element at `to` by the one at `from`.
///
/// # Safety
/// Both are mapped, `to` is writable and aligned to the element, and no Rust reference covers it.
pub(super) unsafe fn reduce(reduction: Reduction, element: Element, to: *mut u8, from: *const u8) {
    match element {
        Element::F16 | Element::Bf16 => {
            // SAFETY: the caller's promise.
            let (cell, value) = unsafe {
                (
                    AtomicU16::from_ptr(to.cast()),
                    from.cast::<u16>().read_unaligned(),
                )
            };
            let brain = if element == Element::Bf16 {
                atomic::BF16
            } else {
                0
            };
            let op = reduction.half() | brain;
            let _ = cell.fetch_update(AcqRel, Acquire, |old| Some(atomic::half_op(op, old, value)));
        }
        Element::U32 | Element::S32 | Element::F32 | Element::WholeF32 => {
            // SAFETY: the caller's promise.
            let (cell, value) = unsafe {
                (
                    AtomicU32::from_ptr(to.cast()),
                    from.cast::<u32>().read_unaligned(),
                )
            };
            let signed = |old: u32, value: u32| match reduction {
                Reduction::Min => (old as i32).min(value as i32) as u32,
                Reduction::Max => (old as i32).max(value as i32) as u32,
                other => other.u32(old, value),
            };
            let single = |old, value, sum: fn(f32, f32) -> u32| {
                sum(f32::from_bits(old), f32::from_bits(value))
            };
            let _ = cell.fetch_update(AcqRel, Acquire, |old| {
                Some(match element {
                    Element::F32 => single(old, value, atomic::flushed_sum),
                    Element::WholeF32 => single(old, value, atomic::whole_sum),
                    Element::S32 => signed(old, value),
                    _ => reduction.u32(old, value),
                })
            });
        }
        Element::U64 | Element::S64 | Element::F64 => {
            // SAFETY: the caller's promise.
            let (cell, value) = unsafe {
                (
                    AtomicU64::from_ptr(to.cast()),
                    from.cast::<u64>().read_unaligned(),
                )
            };
            let signed = |old: u64, value: u64| match reduction {
                Reduction::Min => (old as i64).min(value as i64) as u64,
                Reduction::Max => (old as i64).max(value as i64) as u64,
                other => other.u64(old, value),
            };
            let double = |old, value| (f64::from_bits(old) + f64::from_bits(value)).to_bits();
            let _ = cell.fetch_update(AcqRel, Acquire, |old| {
                Some(match element {
                    Element::F64 => double(old, value),
                    Element::S64 => signed(old, value),
                    _ => reduction.u64(old, value),
                })
            });
        }
    }
}
