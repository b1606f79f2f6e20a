//! The compiler as a whole: whole modules, loaded and run.

mod atomics;
mod basics;
mod blocks;
mod calls;
mod compiling;
mod control;
mod corpus;
mod forms;
mod fuzz;
mod memory;
mod misbehaviour;
mod refusals;
mod rounds;
mod special;
mod spins;
mod variables;
mod vectors;
mod waits;
