//! The integration tests of the PTX front end, one module per promise.

mod corpus;
mod damage;
mod errors;
mod expressions;
mod fuzz;
mod limits;
mod rewriting;
mod roundtrip;
mod signatures;
mod syntax;
mod trees;
