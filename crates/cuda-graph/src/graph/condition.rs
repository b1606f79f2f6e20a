//! What conditional nodes look at.

use std::fmt;

use cudarc::driver::sys::CUgraphConditionalHandle;

use super::Graph;
use super::state::{Hierarchy, State};
use crate::kernel::{Arguments, KernelArgument};
use crate::{Result, driver};

/// A number that one conditional node looks at. Kernels that have it as an argument set it while
/// the graph runs, through `cudaGraphSetConditional`.
///
/// Each launch has its own. One with a default is set to it when a launch begins; one without has
/// whatever the launch before left.
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

    /// The same under another one's handle.
    pub(crate) fn with_handle_of(self, other: &Condition) -> Condition {
        Condition {
            raw: other.raw,
            of: other.of,
            ..self
        }
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
        arguments.condition(self.raw, self.of);
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
    /// A graph with a condition that no node uses cannot be instantiated.
    pub fn condition(&self, default: Option<u32>) -> Result<Condition> {
        driver::need(12_030, "a condition")?;
        driver::bind(self.context())?;
        let mut state = self.hierarchy().lock();
        state.body(self.body_index())?;
        let condition = state.condition(self.hierarchy(), default)?;
        // The caller may use it in kernels: it never serves another node.
        Ok(Condition {
            serves_again: false,
            ..condition
        })
    }
}

impl State {
    /// A condition of this library's own: one that is left over, or a new one.
    pub(crate) fn condition(
        &mut self,
        hierarchy: &Hierarchy,
        default: Option<u32>,
    ) -> Result<Condition> {
        let spare = self.spare.iter().position(|spare| spare.default == default);
        if let Some(at) = spare {
            return Ok(self.spare.swap_remove(at));
        }
        // A condition of the root: any node of the hierarchy may use it, and a body may go before
        // the condition serves again.
        let context = hierarchy.context.cu_ctx();
        let raw = driver::graph::create_condition(self.body(0)?.raw, context, default)?;
        self.conditions += 1;
        Ok(Condition {
            raw,
            default,
            of: hierarchy.id,
            serves_again: true,
        })
    }
}
