//! PTX front end: lexer, parser, syntax tree, printer and kernel signatures.
pub mod ast;
mod error;
mod lexer;
mod parser;

pub use error::{Error, Errors};
pub use parser::{parse, parse_bytes};
