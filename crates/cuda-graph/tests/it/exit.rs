//! Places where a program can be left, by an error or by a panic.

use std::cell::Cell;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};

use cuda_graph::{Error, Result};

/// Where a program is left.
pub struct Exit {
    at: u32,
    passed: Cell<u32>,
    how: How,
}

#[derive(Clone, Copy, Debug, PartialEq)]
pub enum How {
    Error,
    Panic,
}

impl Exit {
    pub fn new(at: u32, how: How) -> Exit {
        let passed = Cell::new(0);
        Exit { at, passed, how }
    }

    pub fn never() -> Exit {
        Exit::new(u32::MAX, How::Error)
    }

    /// A place where the program may be left.
    pub fn here(&self) -> Result<()> {
        let passed = self.passed.get();
        self.passed.set(passed + 1);
        match self.how {
            _ if passed != self.at => Ok(()),
            How::Error => Err(Error::other(std::io::Error::other("left"))),
            // As a panic, without its message.
            How::Panic => resume_unwind(Box::new("left")),
        }
    }

    /// How many such places there were.
    pub fn passed(&self) -> u32 {
        self.passed.get()
    }

    pub fn was_taken(&self) -> bool {
        self.passed() > self.at
    }

    /// Runs `program`; says whether it was left as this says, and not otherwise.
    #[track_caller]
    pub fn takes(&self, what: &str, program: impl FnOnce() -> Result<()>) -> bool {
        let result = catch_unwind(AssertUnwindSafe(program));
        match (self.was_taken(), self.how, result) {
            (false, _, Ok(Ok(()))) => false,
            (true, How::Error, Ok(Err(error))) if is_left(&error) => true,
            (true, How::Panic, Err(_)) => true,
            (taken, _, Ok(result)) => panic!("{what}: taken: {taken}, {result:?}"),
            (_, _, Err(panic)) => resume_unwind(panic),
        }
    }
}

pub fn is_left(error: &Error) -> bool {
    matches!(error, Error::Other(_)) && error.to_string() == "left"
}
