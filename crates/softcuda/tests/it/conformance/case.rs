//! A case, and the line it writes.

use std::fmt::Display;
use std::io::Write;

use super::api::Answer;
use super::error_name;

/// One question to the driver.
pub struct Case {
    /// Its name in the record: a path from the topic down.
    pub name: &'static str,
    /// Whether it runs in a process of its own, because it needs an untouched driver or leaves a
    /// broken one.
    pub alone: bool,
    /// How many devices it needs. The software driver has exactly so many for it; a real machine
    /// with fewer leaves it out.
    pub devices: usize,
    /// Asks it. Runs on a fresh thread, with no context current.
    pub ask: unsafe fn(&mut Line),
}

/// A case that leaves the process fit for the next one.
macro_rules! case {
    ($name:literal, |$line:ident| $body:block) => {{
        unsafe fn ask($line: &mut $crate::conformance::case::Line) {
            $body
        }
        $crate::conformance::case::Case {
            name: $name,
            alone: false,
            devices: 1,
            ask,
        }
    }};
}

/// A case with a process to itself.
macro_rules! alone {
    ($name:literal, |$line:ident| $body:block) => {{
        unsafe fn ask($line: &mut $crate::conformance::case::Line) {
            $body
        }
        $crate::conformance::case::Case {
            name: $name,
            alone: true,
            devices: 1,
            ask,
        }
    }};
}

/// A case of two devices, with a process to itself: what contexts may do to each other outlives the
/// calls that allow it. It begins with what the first two devices have, the first one's context
/// current; with a line alone, it begins with an untouched driver.
macro_rules! two_devices {
    ($name:literal, |$line:ident, $zero:ident, $one:ident| $body:block) => {
        $crate::conformance::case::two_devices!($name, |$line| {
            let [$zero, $one] = &$crate::conformance::sides::sides();
            $zero.enter();
            $body
        })
    };
    ($name:literal, |$line:ident| $body:block) => {{
        unsafe fn ask($line: &mut $crate::conformance::case::Line) {
            $body
        }
        $crate::conformance::case::Case {
            name: $name,
            alone: true,
            devices: 2,
            ask,
        }
    }};
}

pub(super) use {alone, case, two_devices};

/// What a case writes down. Each item goes to the parent process at once, so that a crash loses
/// nothing before it.
pub struct Line {
    name: &'static str,
}

impl Line {
    pub fn new(name: &'static str) -> Line {
        Line { name }
    }

    /// The case's name.
    pub fn name(&self) -> &'static str {
        self.name
    }

    /// Writes down what a call answered, and gives back whether it succeeded.
    pub fn says(&mut self, answer: Answer) -> bool {
        self.value(answer.function, error_name(answer.code));
        answer.code == 0
    }

    /// The same under a name of the case's own, where one function is called several times.
    pub fn says_as(&mut self, what: impl Display, answer: Answer) -> bool {
        self.value(what, error_name(answer.code));
        answer.code == 0
    }

    /// Writes down a number or another fact.
    pub fn value(&mut self, what: impl Display, value: impl Display) {
        self.send(ITEM, &format!("{what}={value}"));
    }

    /// Writes down the answer, and the value the call gave when it succeeded.
    pub fn gives(&mut self, what: impl Display, answer: Answer, value: impl Display) {
        match answer.code {
            0 => self.value(what, value),
            code => self.value(what, error_name(code)),
        }
    }

    /// Says that the case is over.
    pub fn end(&mut self) {
        self.send(END, "");
    }

    fn send(&mut self, kind: &str, text: &str) {
        // A line of its own, whatever a kernel or the test harness printed before it.
        let message = format!("\n{kind}{}\t{}\n", self.name, text.escape_debug());
        let mut out = std::io::stdout().lock();
        out.write_all(message.as_bytes())
            .and_then(|()| out.flush())
            .expect("the parent process reads the answers");
    }
}

/// What a message from a child process begins with: an item of a case's line.
pub const ITEM: &str = "@item ";
/// The end of a case.
pub const END: &str = "@end ";
