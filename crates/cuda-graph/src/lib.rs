//! CUDA graphs for Rust: safe, fast and pleasant, on any GPU and on a machine with none.
//!
//! A [`Graph`] is built from operations, which are values: [`KernelOp`], [`CopyOp`], [`FillOp`], [`HostOp`] and others. Each node holds
//! what its operation uses. A graph is instantiated into an [`Exec`], which is launched, and updated without being built again.
//!
//! ```
//! use cuda_graph::{Buffer, CopyOp, FillOp, Graph};
//!
//! let device = cuda_graph::device(0)?;
//! let stream = device.context().default_stream();
//! let (from, to) = (Buffer::<u32>::zeroed(&stream, 4)?, Buffer::<u32>::zeroed(&stream, 4)?);
//!
//! let graph = Graph::new(device.context())?;
//! let fill = graph.add(FillOp::new(&from, 5u32)?, ())?;
//! graph.add(CopyOp::new(&to, &from)?, fill)?;
//!
//! let mut exec = graph.instantiate()?;
//! exec.launch(&stream)?;
//! assert_eq!(to.to_host(&stream)?, [5; 4]);
//!
//! exec.update(fill, FillOp::new(&from, 6u32)?)?;
//! exec.launch(&stream)?;
//! assert_eq!(to.to_host(&stream)?, [6; 4]);
//! # Ok::<(), cuda_graph::Error>(())
//! ```
//!
//! Code that gives its work to a stream becomes a graph by [`Graph::capture`]. A step with loops and branches on the device is written once, against
//! [`Recorder`], and becomes a graph ([`Path`]), a part of a capture ([`Capture`]), or runs at once ([`Eager`]).
#![warn(missing_docs)]

mod capture;
mod control;
mod device;
mod driver;
mod error;
mod exec;
mod graph;
mod inspect;
mod kernel;
mod memory;
mod op;
mod per_context;
mod pool;
mod retain;
#[doc(hidden)]
pub mod testing;

pub use bytemuck;
pub use capture::{
    Branch, Capture, CaptureInfo, CaptureInvalidated, CaptureStatus, Captured, Global, Joint, Kind,
    Mode, Parallel, Relaxed, Root, Split, ThreadLocal,
};
pub use control::{Body, Eager, Flag, Path, Recorder, Step};
pub use cudarc;
pub use device::{Device, device};
pub use driver::Driver;
pub use error::{Error, InstantiateFailure, Result};
pub use exec::{Exec, InstantiateOptions, UpdateFailure};
pub use graph::{Condition, Edge, EdgeData, Graph, Neighbours, Node, NodeId, NodeName, NodeSet};
pub use inspect::DriverDot;
pub use kernel::{Arguments, AsKernel, Kernel, KernelArgument, KernelArguments, Parameter};
pub use memory::{Buffer, PinnedBuffer, RawMemory, Region, Source, Space, Target};
pub use op::{
    AllocOp, AnyOp, BatchOp, ChildOp, Conditional, CopyOp, EmptyOp, EventHandle, FillOp, FillValue,
    FreeOp, HostOp, IfElseOp, IfOp, KernelOp, LaunchAttribute, MemoryLocation, MemoryOperation,
    NodeKind, Operation, Pitched, RawAttribute, RawOp, RecordEventOp, SignalSemaphoresOp, SwitchOp,
    WaitCondition, WaitEventOp, WaitSemaphoresOp, WhileOp,
};
pub use pool::{GraphPool, PoolFigures};
pub use retain::Owner;

/// The program in the project's README.
#[cfg(doctest)]
#[doc = include_str!("../../../README.md")]
struct Readme;
