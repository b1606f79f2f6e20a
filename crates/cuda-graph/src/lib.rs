//! CUDA graphs for Rust: safe, fast and pleasant, on any GPU and on a machine with none.
//!
//! A [`Graph`] is built from operations, which are values: [`KernelOp`], [`CopyOp`], [`FillOp`],
//! [`HostOp`] and others. Each node holds what its operation uses. A graph is instantiated into an
//! [`Exec`], which is launched, and updated without being built again.
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
//! A step with operations, loops and branches is written once, against [`Recorder`]. A [`Path`]
//! records it into a graph ([`Graph::record`]), and [`Eager`] runs it at once.
//!
//! Several devices work on one step as the ranks of a [`Communicator`]: a [`CollectiveOp`] is what
//! they do together, and [`Ranks`] launches all of them.
//!
//! Code that only knows streams is recorded in a foreign block ([`Path::foreign`]) of a
//! [`Graph::capture`]. The caller vouches for what such work uses, so the block is `unsafe`.
//!
//! The [`guide`] goes from a stream program to a loop that the device runs, one idea at a time.
#![warn(missing_docs)]

mod capture;
mod collective;
mod device;
mod driver;
mod error;
mod exec;
mod graph;
pub mod guide;
mod inspect;
mod kernel;
mod memory;
mod op;
mod optimize;
mod peer;
mod pool;
mod ranks;
mod record;
mod replay;
mod retain;
#[doc(hidden)]
pub mod testing;

pub use bytemuck;
pub use capture::{CaptureInfo, CaptureMode, CaptureStatus};
pub use collective::{
    Cluster, CollectiveKind, Communicator, CommunicatorOptions, Element, ElementType, Elements,
    Engine, RawElements, Reduction, set_nccl_environment,
};
pub use cudarc;
pub use device::{Device, device};
pub use driver::Driver;
pub use error::{
    CaptureInvalidated, Change, ChangedParameter, CollectiveFailure, Difference, Error,
    InstantiateFailure, NodeKind, NodeName, NodeParameter, Result, StrayWork, UpdateFailure,
    Verdict, Within,
};
pub use exec::{Exec, InstantiateOptions, Updated};
pub use graph::{
    AnyOp, Checkpoints, ChildOp, Condition, Conditional, Edge, EdgeData, Graph, IfElseOp, IfOp,
    Neighbours, Node, NodeId, NodeSet, Operation, SwitchOp, WhileOp,
};
pub use inspect::DriverDot;
pub use kernel::{
    Arguments, AsKernel, Kernel, KernelArgument, KernelArguments, Module, Param, Parameter,
};
pub use memory::{Buffer, PinnedBuffer, RawMemory, Region, Source, Space, Target};
pub use op::{
    AllocOp, BatchOp, CollectiveOp, CopyOp, EmptyOp, FillOp, FreeOp, HostOp, KernelOp,
    LaunchAttribute, MemoryLocation, MemoryOperation, Pitched, RawAttribute, RawOp, RecordEventOp,
    SignalSemaphoresOp, Transmission, WaitCondition, WaitEventOp, WaitSemaphoresOp,
};
pub use optimize::{Left, Optimize, Pass, PassReport, Report};
pub use peer::{can_access_peer, enable_peer_access};
pub use pool::{GraphPool, PoolFigures};
pub use ranks::Ranks;
pub use record::{
    Body, Branch, Capture, Captured, Eager, Flag, ForeignBlock, Joint, Kind, Path, Recorder, Root,
    Split, Step,
};
pub use replay::{Counters, Outcome, Replay, ReplayOptions};
pub use retain::Owner;

/// The program in the project's README.
#[cfg(doctest)]
#[doc = include_str!("../../../README.md")]
struct Readme;
