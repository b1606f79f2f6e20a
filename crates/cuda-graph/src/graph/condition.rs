//! What conditional nodes look at.

use std::fmt;

use cudarc::driver::sys::CUgraphConditionalHandle;

use super::Graph;
use crate::kernel::{Arguments, KernelArgument};
use crate::{Result, driver};

/// A number that kernels set while a graph runs, and that one conditional node looks at. It is an argument of the kernels that set it, through
/// `cudaGraphSetConditional`.
///
/// Each launch has its own. One with a default is set to it when a launch begins; one without has whatever the launch before left.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct Condition {
    raw: CUgraphConditionalHandle,
    default: Option<u32>,
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
    fn add_to(&self, arguments: &mut Arguments) {
        arguments.value(&self.raw);
    }
}

impl KernelArgument for &Condition {
    fn add_to(&self, arguments: &mut Arguments) {
        arguments.value(&self.raw);
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
        let raw = driver::graph::create_condition(
            state.body(self.body_index())?.raw,
            self.context().cu_ctx(),
            default,
        )?;
        Ok(Condition {
            raw,
            default,
            serves_again: true,
        })
    }

    /// Gives back a condition that no node looks at and no kernel that can run sets, for the next one to be made.
    pub(crate) fn give_back(&self, condition: Condition) {
        self.hierarchy().lock().spare.push(condition);
    }
}
