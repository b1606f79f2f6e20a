//! PTX front end: lexer, parser, syntax tree, printer and kernel signatures.
pub mod ast;
