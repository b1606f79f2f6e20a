//! A CUDA driver in software: it runs CUDA driver programs, kernels included, on a machine with no
//! GPU.
//!
//! Layers, each a folder, depend downwards only:
//!
//! | layer | is |
//! |---|---|
//! | `abi` | each exported driver function: decode, call, encode, nothing else |
//! | `driver` | contexts, modules, streams, events, memory as Rust objects with the driver's rules |
//! | `engine` | the queues that work waits in and the threads that run it |
//! | `grid` | blocks, fibers, barriers, warps: a launch, run |
//! | `jit` | PTX to native code |
//! | `memory` | the arena: the one place that owns raw device memory |
#![warn(clippy::undocumented_unsafe_blocks)]

mod abi;
mod control_word;
mod driver;
mod engine;
mod grid;
mod install;
mod jit;
mod memory;

pub use install::{InstallError, install};
