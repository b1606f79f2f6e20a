//! What is wrong with a source, and where.

use std::fmt;

use crate::ast::Pos;

/// At most this many errors are told of one source; the parser stops at the last.
pub(crate) const MAX_ERRORS: usize = 50;

/// One error: at a place, the token found and what would have been right there.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("line {}, column {}: expected {expected}, found {found}", pos.line, pos.column)]
pub struct Error {
    /// Where the token found starts. Positions compare equal, see [`Pos`]; compare their fields.
    pub pos: Pos,
    /// The token found: its text in backticks, or a description of it (`the end of the file`).
    pub found: String,
    /// What was expected in its place, in words.
    pub expected: String,
}

/// The errors of a source, in the order of the text: at least one, at most fifty.
///
/// Shown, each is a line of its own, as a JIT log wants them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Errors(Vec<Error>);

impl Errors {
    pub(crate) fn new(errors: Vec<Error>) -> Errors {
        debug_assert!(!errors.is_empty());
        Errors(errors)
    }

    /// The errors as a slice.
    pub fn as_slice(&self) -> &[Error] {
        &self.0
    }

    /// The errors one by one.
    pub fn iter(&self) -> std::slice::Iter<'_, Error> {
        self.0.iter()
    }
}

impl std::error::Error for Errors {}

impl fmt::Display for Errors {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (i, error) in self.0.iter().enumerate() {
            if i > 0 {
                f.write_str("\n")?;
            }
            error.fmt(f)?;
        }
        if self.0.len() == MAX_ERRORS {
            f.write_str("\ntoo many errors, the rest of the source was not read")?;
        }
        Ok(())
    }
}

impl IntoIterator for Errors {
    type Item = Error;
    type IntoIter = std::vec::IntoIter<Error>;

    fn into_iter(self) -> Self::IntoIter {
        self.0.into_iter()
    }
}

impl<'a> IntoIterator for &'a Errors {
    type Item = &'a Error;
    type IntoIter = std::slice::Iter<'a, Error>;

    fn into_iter(self) -> Self::IntoIter {
        self.0.iter()
    }
}
