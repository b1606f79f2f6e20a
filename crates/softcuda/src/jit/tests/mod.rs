//! The compiler as a whole: whole modules, loaded and run.

mod async_copies;
mod atomics;
mod basics;
mod blocks;
mod bulk_copies;
mod calls;
mod clusters;
mod compiling;
mod control;
mod corpus;
mod forms;
mod fuzz;
mod matrices;
mod matrix_misuse;
mod mbarriers;
mod memory;
mod misbehaviour;
mod refusals;
mod rounds;
mod special;
mod spins;
mod stacks;
mod tensor_maps;
mod variables;
mod vectors;
mod waits;
