//! Contexts, modules, streams, events and memory as Rust objects with the driver's rules.

pub(crate) mod array;
pub(crate) mod capture;
pub(crate) mod code;
pub(crate) mod context;
pub(crate) mod copy;
pub(crate) mod device;
pub(crate) mod error;
pub(crate) mod event;
pub(crate) mod failure;
pub(crate) mod fill;
pub(crate) mod function;
pub(crate) mod graph;
pub(crate) mod handle;
pub(crate) mod host_function;
pub(crate) mod image;
pub(crate) mod init;
pub(crate) mod interprocess;
pub(crate) mod jit_options;
pub(crate) mod launch;
pub(crate) mod library;
pub(crate) mod link;
pub(crate) mod managed;
pub(crate) mod memory;
pub(crate) mod memory_operation;
pub(crate) mod module;
pub(crate) mod occupancy;
pub(crate) mod pointer;
pub(crate) mod pool;
pub(crate) mod reach;
pub(crate) mod stream;
pub(crate) mod tensor_map;
pub(crate) mod virtual_memory;

pub use error::CUresult;
pub(crate) use error::Result;
