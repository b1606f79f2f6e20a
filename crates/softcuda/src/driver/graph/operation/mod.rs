//! What nodes do: a value per kind, checked when it is made.
//!
//! An operation knows what the program said, so that it can be read back, and becomes [`Work`] when
//! a graph is instantiated. It is never changed, only replaced.

mod batch;
mod conditional;
mod copy;
mod event;
mod fill;
mod host;
mod kernel;

use std::sync::Arc;

pub(crate) use batch::BatchNode;
pub(crate) use conditional::{Choice, ConditionalNode, GraphCondition};
pub(crate) use copy::{CopyNode, memory_type};
pub(crate) use event::EventNode;
pub(crate) use fill::{FillNode, FillParams};
pub(crate) use host::HostNode;
pub(crate) use kernel::KernelNode;

use super::definition::Graph;
use super::memory::GraphMemory;
use super::plan::{Why, Work};
use super::update::Refusal;
use crate::driver::context::Context;
use crate::driver::{CUresult, Result};

/// `CUgraphNodeType`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u32)]
pub(crate) enum Kind {
    Kernel = 0,
    Copy = 1,
    Fill = 2,
    Host = 3,
    Child = 4,
    Empty = 5,
    EventWait = 6,
    EventRecord = 7,
    Alloc = 10,
    Free = 11,
    Batch = 12,
    Conditional = 13,
}

/// What a node does.
#[derive(Clone)]
pub(crate) enum Operation {
    /// Launches a kernel.
    Kernel(Arc<KernelNode>),
    /// Copies memory.
    Copy(Arc<CopyNode>),
    /// Fills memory.
    Fill(Arc<FillNode>),
    /// Calls a function of the program's.
    Host(HostNode),
    /// Runs a graph that the node owns.
    Child(Arc<Graph>),
    /// Nothing.
    Empty,
    /// Waits for an event.
    EventWait(EventNode),
    /// Records an event.
    EventRecord(EventNode),
    /// Takes memory.
    Alloc(Arc<GraphMemory>),
    /// Gives memory back.
    Free(Arc<GraphMemory>),
    /// Waits for values in memory, and writes some.
    Batch(Arc<BatchNode>),
    /// Runs graphs that the node owns as a condition says.
    Conditional(Arc<ConditionalNode>),
}

impl Operation {
    /// Its kind.
    pub fn kind(&self) -> Kind {
        match self {
            Operation::Kernel(_) => Kind::Kernel,
            Operation::Copy(_) => Kind::Copy,
            Operation::Fill(_) => Kind::Fill,
            Operation::Host(_) => Kind::Host,
            Operation::Child(_) => Kind::Child,
            Operation::Empty => Kind::Empty,
            Operation::EventWait(_) => Kind::EventWait,
            Operation::EventRecord(_) => Kind::EventRecord,
            Operation::Alloc(_) => Kind::Alloc,
            Operation::Free(_) => Kind::Free,
            Operation::Batch(_) => Kind::Batch,
            Operation::Conditional(_) => Kind::Conditional,
        }
    }

    /// The context it runs in, where it has one of its own.
    pub fn context(&self) -> Option<&Arc<Context>> {
        match self {
            Operation::Kernel(node) => Some(node.function().context()),
            Operation::Copy(node) => Some(node.context()),
            Operation::Fill(node) => Some(node.context()),
            Operation::Batch(node) => Some(node.context()),
            Operation::Conditional(node) => Some(node.context()),
            _ => None,
        }
    }

    /// Why an executable that kernels launch cannot have it.
    pub fn why_not_for_kernels(&self) -> Option<Why> {
        match self {
            Operation::Copy(node) => node.why_not_for_kernels(),
            Operation::Fill(node) if node.is_across() => Some(Why::SeveralContexts),
            Operation::Kernel(_) | Operation::Fill(_) | Operation::Child(_) => None,
            _ => Some(Why::NotForKernels),
        }
    }

    /// Why the body of a conditional node cannot have it: what kernels cannot launch it cannot run,
    /// but for other conditional nodes and those that do nothing.
    pub fn why_not_in_body(&self) -> Option<Why> {
        match self {
            Operation::Empty | Operation::Conditional(_) => None,
            other => other.why_not_for_kernels(),
        }
    }

    /// What the node's end ends with it.
    pub fn end(&self) {
        match self {
            Operation::Child(graph) => graph.dismantle(),
            Operation::Conditional(node) => node.end(),
            _ => {}
        }
    }

    /// What is done when the node runs.
    pub fn prepare(&self) -> Result<Work> {
        Ok(match self {
            Operation::Kernel(node) => Work::Kernel(node.prepare()?),
            Operation::Copy(node) => Work::Copy(node.clone()),
            Operation::Fill(node) => Work::Fill(node.prepare()?),
            Operation::Host(node) => Work::Host(*node),
            Operation::EventWait(node) => Work::Wait(node.event().clone()),
            Operation::EventRecord(node) => Work::Record(node.event().clone()),
            Operation::Batch(node) => Work::Batch(node.clone()),
            Operation::Free(memory) => Work::Free(memory.clone()),
            Operation::Conditional(node) => Work::Conditional(node.clone()),
            Operation::Child(_) | Operation::Empty | Operation::Alloc(_) => Work::Nothing,
        })
    }

    /// Whether a node of an executable may do `next` instead, without the executable being made
    /// again.
    pub fn check_update(&self, next: &Operation) -> std::result::Result<(), Refusal> {
        match (self, next) {
            (Operation::Kernel(node), Operation::Kernel(next)) => node.check_update(next),
            (Operation::Copy(node), Operation::Copy(next)) => node.check_update(next),
            (Operation::Fill(node), Operation::Fill(next)) => node.check_update(next),
            (Operation::Batch(node), Operation::Batch(next)) => node.check_update(next),
            (Operation::Conditional(node), Operation::Conditional(next)) => node.check_update(next),
            (Operation::EventWait(node), Operation::EventWait(next))
            | (Operation::EventRecord(node), Operation::EventRecord(next)) => {
                node.check_update(next)
            }
            (Operation::Host(_), Operation::Host(_))
            | (Operation::Child(_), Operation::Child(_))
            | (Operation::Empty, Operation::Empty)
            | (Operation::Alloc(_), Operation::Alloc(_))
            | (Operation::Free(_), Operation::Free(_)) => Ok(()),
            _ => Err(Refusal::KindChanged),
        }
    }

    /// The operation in the place of another in an executable, where it may be.
    pub fn following(self, before: &Operation) -> Operation {
        match (self, before) {
            (Operation::Copy(node), Operation::Copy(before)) => {
                Operation::Copy(node.following(before))
            }
            (Operation::Fill(node), Operation::Fill(before)) => {
                Operation::Fill(node.following(before))
            }
            (other, _) => other,
        }
    }
}

/// The error of asking a node for what another kind of node has.
pub(crate) const WRONG_KIND: CUresult = CUresult::CUDA_ERROR_INVALID_VALUE;
