//! What conditional nodes look at.

use std::fmt;

use cudarc::driver::sys::CUgraphConditionalHandle;

use super::Graph;
use super::state::State;
use crate::kernel::{Arguments, KernelArgument};
use crate::{Error, Result, driver};

/// A number that kernels set while a graph runs, and that one conditional node looks at. It is an argument of the kernels that set it, through
/// `cudaGraphSetConditional`.
///
/// Each launch has its own. One with a default is set to it when a launch begins; one without has whatever the launch before left.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct Condition {
    raw: CUgraphConditionalHandle,
    default: Option<u32>,
    /// What conditions of the graph that it is of, with all that is embedded there, are told by.
    pub(crate) of: u64,
    /// Nobody but this library has it: it serves another node once its own is gone.
    pub(crate) serves_again: bool,
}

impl Condition {
    /// The driver's handle.
    pub fn raw(&self) -> CUgraphConditionalHandle {
        self.raw
    }

    /// What it is when a launch begins.
    pub fn default_value(&self) -> Option<u32> {
        self.default
    }
}

impl fmt::Debug for Condition {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "condition {:#x}", self.raw)?;
        match self.default {
            Some(value) => write!(f, ", {value} at first"),
            None => Ok(()),
        }
    }
}

impl KernelArgument for Condition {
    fn add_to(self, arguments: &mut Arguments) {
        arguments.value(&self.raw);
        arguments.sets_condition_of(self.of);
    }
}

impl KernelArgument for &Condition {
    fn add_to(self, arguments: &mut Arguments) {
        (*self).add_to(arguments);
    }
}

impl Graph {
    /// A condition for one conditional node of this graph.
    ///
    /// A graph with a condition that no node looks at cannot be instantiated.
    pub fn condition(&self, default: Option<u32>) -> Result<Condition> {
        Ok(Condition {
            serves_again: false,
            ..self.own_condition(default)?
        })
    }

    /// A condition that stays within this library.
    pub(crate) fn own_condition(&self, default: Option<u32>) -> Result<Condition> {
        driver::need(12_030, "a condition")?;
        driver::bind(self.context())?;
        let mut state = self.hierarchy().lock();
        state.body(self.body_index())?;
        let spare = state
            .spare
            .iter()
            .position(|spare| spare.default == default);
        if let Some(at) = spare {
            return Ok(state.spare.swap_remove(at));
        }
        // Of the root, as any node of the hierarchy may look at it: a body may go before it serves again.
        let raw =
            driver::graph::create_condition(state.body(0)?.raw, self.context().cu_ctx(), default)?;
        Ok(Condition {
            raw,
            default,
            of: state.conditions,
            serves_again: true,
        })
    }

    /// Gives back a condition that no node looks at and no kernel that can run sets: there is no half by it any more, and
    /// it serves the next one to be made.
    pub(crate) fn give_back(&self, condition: Condition) {
        self.hierarchy().lock().give_back(condition);
    }

    /// The loop or branch by `condition` is not whole.
    pub(crate) fn begin_half(&self, condition: Condition) {
        self.hierarchy().lock().half.push(condition.raw);
    }

    /// The loop or branch by `condition` is whole.
    pub(crate) fn end_half(&self, condition: Condition) {
        self.hierarchy().lock().end_half(condition);
    }
}

impl State {
    fn end_half(&mut self, condition: Condition) {
        self.half.retain(|&half| half != condition.raw);
    }

    /// As [`Graph::give_back`].
    pub(super) fn give_back(&mut self, condition: Condition) {
        self.end_half(condition);
        self.spare.push(condition);
    }

    /// Refuses to make an executable of half a loop or branch.
    pub(crate) fn is_whole(&self) -> Result<()> {
        match self.half.as_slice() {
            [] => Ok(()),
            _ => Err(Error::InvalidOperation {
                why: "half a loop or branch is in the graph: it is being recorded, or failed and could not be taken back"
                    .into(),
            }),
        }
    }
}
