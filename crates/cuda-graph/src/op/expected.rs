//! The operation that is expected next on a thread.
//!
//! A replay walks a step beside an executable, so it knows which operation the step made at the same
//! place before. Most are made again as they were: then making one is a comparison and a reference
//! count, and nothing is allocated.

use std::cell::Cell;
use std::marker::PhantomData;
use std::mem::ManuallyDrop;
use std::sync::Arc;

use super::copy::Copy as Copied;
use super::fill::Fill;
use super::kernel::Launch;
use super::{CopyOp, FillOp, KernelOp, Shared, Tag};

/// The operation that a thread expects. It lives while it is here.
#[derive(Clone, Copy, PartialEq)]
enum Next {
    Nothing,
    Kernel(*const Launch),
    Copy(*const Shared<Copied>),
    Fill(*const Shared<Fill>),
}

thread_local! {
    static NEXT: Cell<Next> = const { Cell::new(Next::Nothing) };
}

/// Has a thread expect an operation, until this is dropped.
pub(crate) struct Expected {
    next: Next,
    /// It is of its thread.
    not_send: PhantomData<*const ()>,
}

/// An operation to expect.
pub(crate) enum Expectation<'a> {
    Nothing,
    Kernel(&'a KernelOp),
    Copy(&'a CopyOp),
    Fill(&'a FillOp),
}

impl Expected {
    pub(crate) const fn nothing() -> Expected {
        Expected {
            next: Next::Nothing,
            not_send: PhantomData,
        }
    }

    /// Expects another operation from now on.
    ///
    /// # Safety
    ///
    /// The operation lives until something else is expected here, or this is dropped.
    #[inline]
    pub(crate) unsafe fn set(&mut self, op: Expectation<'_>) {
        self.next = match op {
            Expectation::Nothing => Next::Nothing,
            Expectation::Kernel(op) => Next::Kernel(op.address()),
            Expectation::Copy(op) => Next::Copy(Arc::as_ptr(op.shared())),
            Expectation::Fill(op) => Next::Fill(Arc::as_ptr(op.shared())),
        };
        NEXT.set(self.next);
    }

    /// Whether `op` is what is expected.
    #[inline]
    pub(crate) fn is(&self, op: Expectation<'_>) -> bool {
        match (self.next, op) {
            (Next::Kernel(next), Expectation::Kernel(op)) => next == op.address(),
            (Next::Copy(next), Expectation::Copy(op)) => next == Arc::as_ptr(op.shared()),
            (Next::Fill(next), Expectation::Fill(op)) => next == Arc::as_ptr(op.shared()),
            _ => false,
        }
    }
}

impl Drop for Expected {
    fn drop(&mut self) {
        NEXT.set(Next::Nothing);
    }
}

/// The kernel launch that is expected.
#[inline(always)]
pub(super) fn kernel() -> Option<*const Launch> {
    match NEXT.get() {
        Next::Kernel(launch) => Some(launch),
        _ => None,
    }
}

/// One more clone of the expected operation, if its parameters and tag are the same.
///
/// # Safety
///
/// The pointer is expected, so it is an `Arc`'s that lives.
#[inline]
unsafe fn same<T>(
    shared: *const Shared<T>,
    tag: &Tag,
    is_same: impl FnOnce(&T) -> bool,
) -> Option<Arc<Shared<T>>> {
    // SAFETY: by the caller.
    let shared = ManuallyDrop::new(unsafe { Arc::from_raw(shared) });
    let same = shared.tag.is_plain_as(tag) && is_same(&shared.value);
    same.then(|| Arc::clone(&shared))
}

/// The expected copy, if it has these parameters.
#[inline]
pub(super) fn copy(made: &Copied, tag: &Tag) -> Option<CopyOp> {
    let Next::Copy(next) = NEXT.get() else {
        return None;
    };
    // SAFETY: it lives while it is there, by the contract of `Expected::set`.
    unsafe { same(next, tag, |copy| copy.is_same(made)) }.map(CopyOp::from_shared)
}

/// The expected fill, if it has these parameters.
#[inline]
pub(super) fn fill(made: &Fill, tag: &Tag) -> Option<FillOp> {
    let Next::Fill(next) = NEXT.get() else {
        return None;
    };
    // SAFETY: it lives while it is there, by the contract of `Expected::set`.
    unsafe { same(next, tag, |fill| fill.is_same(made)) }.map(FillOp::from_shared)
}
