//! The compiler as a whole: whole modules, loaded and run.

mod atomics;
mod basics;
mod corpus;
mod fuzz;
mod waits;
