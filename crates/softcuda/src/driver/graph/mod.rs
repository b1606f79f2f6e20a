//! Graphs: definitions, executables made from them, and the objects of the program's that both keep
//! alive.
//!
//! | file | is |
//! |---|---|
//! | `definition` | a graph: its nodes and child graphs, made, cloned, destroyed |
//! | `edge` | dependencies between nodes, and their data |
//! | `operation` | what a node does: a file per kind, with its checks and what may become of it in an executable |
//! | `conditional` | condition handles, and nodes that run other graphs as these say |
//! | `attribute` | the attributes of kernel nodes |
//! | `snapshot` | a definition as it was at some moment, child graphs included |
//! | `plan` | a snapshot laid out to be run: one flat list of nodes, whatever graph they are in |
//! | `executable` | a plan with a handle: launches, uploads |
//! | `update` | new parameters for an executable, of one node or of all |
//! | `memory` | the memory of allocation nodes, and the pool it is counted in |
//! | `user_object` | what the program gave graphs to keep alive |
//! | `dot` | a definition as a picture |
//!
//! How a graph runs:
//!
//! 1. A definition has nodes by handle, each with an operation: what the program said, checked.
//! 2. Instantiation takes a snapshot, child graphs and bodies included, and lays it out as a plan.
//!    [`crate::engine::dag`] orders its slots and cuts them into segments of nodes that can only
//!    run one after the other. Each operation becomes work that is ready: a launch, checked and
//!    compiled, a copy, a fill.
//! 3. A launch is one step of its stream's queue and shares the plan; an update of the executable
//!    meanwhile changes a copy. The step's thread runs the segments. Where several are ready, other
//!    threads of the engine come in.
//! 4. A conditional node asks its condition and runs the level of a body never, once, or again and
//!    again, with what the first turn made ready. Kernels set conditions by number through a table
//!    of the plan's.
//! 5. What events mean in a launch is decided at the call: a record node's event becomes a marker
//!    inside the step, which fires at the latest when the step ends or is dropped.
//!
//! No graph is inside itself. A launch of nodes whose context was destroyed is an error of that
//! call.
//!
//! A node's operation is a value that is never changed, only replaced: definitions, executables and
//! launches in flight share it, and each keeps the one it had.
//!
//! Lock order: a graph's, then its child graphs', then tables'. An executable's lock comes before a
//! queue's.

pub(crate) mod attribute;
pub(crate) mod conditional;
pub(crate) mod definition;
pub(crate) mod dot;
pub(crate) mod edge;
pub(crate) mod executable;
pub(crate) mod memory;
pub(crate) mod operation;
pub(crate) mod plan;
mod snapshot;
pub(crate) mod update;
pub(crate) mod user_object;

pub(crate) use operation::{Kind, Operation};
