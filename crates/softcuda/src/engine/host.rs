//! The mark of a thread that runs a host function, a callback or a user object's destructor: the
//! driver may not be called there, and what it does to the control word is undone.

use std::cell::Cell;

use crate::control_word::DefaultAfter;

thread_local! {
    static DEPTH: Cell<u32> = const { Cell::new(0) };
}

/// Runs `f` with the driver's functions forbidden to this thread.
pub(crate) fn forbid_calls<R>(f: impl FnOnce() -> R) -> R {
    /// Lifts the ban also when `f` unwinds.
    struct Lift;
    impl Drop for Lift {
        fn drop(&mut self) {
            DEPTH.set(DEPTH.get() - 1);
        }
    }
    DEPTH.set(DEPTH.get() + 1);
    let _lift = Lift;
    let _word = DefaultAfter;
    f()
}

/// The calling thread runs a host function: driver calls answer NOT_PERMITTED.
pub(crate) fn calls_forbidden() -> bool {
    // A thread whose locals are gone is ending, and runs no host function.
    DEPTH.try_with(Cell::get).unwrap_or(0) > 0
}
