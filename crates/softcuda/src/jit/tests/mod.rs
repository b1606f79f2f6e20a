//! The compiler as a whole: whole modules, loaded and run.

mod basics;
mod corpus;
