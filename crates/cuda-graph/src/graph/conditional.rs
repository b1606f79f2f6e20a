//! Nodes that run other graphs, their bodies, as often as a condition says.

use std::fmt;

use cudarc::driver::CudaContext;
use cudarc::driver::sys::{
    CUDA_CONDITIONAL_NODE_PARAMS, CUgraph, CUgraphConditionalNodeType, CUgraphNode,
    CUgraphNodeParams, CUgraphNodeType,
};

use super::operation::{AnyOp, Operation};
use super::{Condition, Graph, Node};
use crate::op::{Op, Shared, Tag, operation, shared};
use crate::{Error, Result, driver};

/// An operation whose node has bodies.
pub trait Conditional: Operation {
    /// What decides.
    fn condition(&self) -> &Condition;

    /// How many bodies there are.
    fn bodies(&self) -> u32;
}

/// What the four have in common.
#[derive(Clone)]
pub struct Branching {
    pub(crate) condition: Condition,
    pub(crate) bodies: u32,
    kind: CUgraphConditionalNodeType,
}

impl Branching {
    /// Adds the node. Returns its bodies too.
    pub(super) fn add_to(
        &self,
        context: &CudaContext,
        graph: CUgraph,
        after: &[CUgraphNode],
    ) -> Result<(CUgraphNode, Vec<CUgraph>)> {
        need(self.kind, self.bodies)?;
        let mut params = driver::node::blank(CUgraphNodeType::CU_GRAPH_NODE_TYPE_CONDITIONAL);
        params.__bindgen_anon_1.conditional = CUDA_CONDITIONAL_NODE_PARAMS {
            handle: self.condition.raw(),
            type_: self.kind,
            size: self.bodies,
            phGraph_out: std::ptr::null_mut(),
            ctx: context.cu_ctx(),
        };
        let node = driver::node::add(graph, after, &mut params)?;
        // SAFETY: the driver has filled in an array of as many graphs as there are bodies, which
        // lives as long as the node.
        let bodies = unsafe {
            let first = params.__bindgen_anon_1.conditional.phGraph_out;
            std::slice::from_raw_parts(first, self.bodies as usize).to_vec()
        };
        Ok((node, bodies))
    }
}

impl Branching {
    /// Whether both branch in the same way, over as many bodies.
    pub(super) fn branches_as(&self, other: &Branching) -> bool {
        (self.kind, self.bodies) == (other.kind, other.bodies)
    }

    /// How it branches, in words.
    pub(super) fn text(&self) -> String {
        use CUgraphConditionalNodeType as T;
        match (self.kind, self.bodies) {
            (T::CU_GRAPH_COND_TYPE_IF, 1) => "if".into(),
            (T::CU_GRAPH_COND_TYPE_IF, _) => "if/else".into(),
            (T::CU_GRAPH_COND_TYPE_WHILE, _) => "while".into(),
            (_, bodies) => format!("switch of {bodies}"),
        }
    }
}

/// Refuses a node where the driver is too old for it.
pub(crate) fn need(kind: CUgraphConditionalNodeType, bodies: u32) -> Result<()> {
    use CUgraphConditionalNodeType as T;
    match (kind, bodies) {
        (T::CU_GRAPH_COND_TYPE_SWITCH, _) => driver::need(12_080, "a switch node"),
        (T::CU_GRAPH_COND_TYPE_IF, 2) => driver::need(12_080, "an else body"),
        _ => driver::need(12_030, "a conditional node"),
    }
}

macro_rules! conditionals {
    ($($(#[$doc:meta])* $op:ident($($bodies:ident)?) = $kind:ident, $count:expr;)+) => {$(
        operation! {
            $(#[$doc])*
            $op(Branching)
        }

        impl $op {
            /// The operation of a node that looks at `condition`.
            #[track_caller]
            pub fn new(condition: &Condition $(, $bodies: u32)?) -> $op {
                let branching = Branching {
                    condition: *condition,
                    bodies: $count,
                    kind: CUgraphConditionalNodeType::$kind,
                };
                $op(Shared::new(branching, None, Tag::here()))
            }

            pub(super) fn branching(&self) -> &Branching {
                &self.0.value
            }

            fn set_condition(&mut self, condition: Condition) {
                std::sync::Arc::make_mut(&mut self.0).value.condition = condition;
            }
        }

        impl Op for $op {
            shared!(Conditional);

            fn describe(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                let (condition, bodies) = (self.condition(), self.bodies());
                write!(f, " of {condition:?} with {bodies} bodies")
            }

            fn condition_of(&self) -> Option<u64> {
                Some(self.0.value.condition.of)
            }

            fn node_params(&self, _: &CudaContext) -> Result<CUgraphNodeParams> {
                let node = Box::new(self.name(None));
                Err(Error::ConditionalFixed { node })
            }

            fn read(_: CUgraphNode) -> Result<$op> {
                Err(Error::GraphGone)
            }
        }

        impl Conditional for $op {
            fn condition(&self) -> &Condition {
                &self.0.value.condition
            }

            fn bodies(&self) -> u32 {
                self.0.value.bodies
            }
        }
    )+};
}

conditionals! {
    /// Runs its body if the condition is not zero.
    IfOp() = CU_GRAPH_COND_TYPE_IF, 1;
    /// Runs its first body if the condition is not zero, else its second.
    IfElseOp() = CU_GRAPH_COND_TYPE_IF, 2;
    /// Runs the body whose number the condition is, counted from 0; none if there are not as many.
    SwitchOp(bodies) = CU_GRAPH_COND_TYPE_SWITCH, bodies;
    /// Runs its body again and again while the condition is not zero; not at all if it is zero at
    /// first.
    WhileOp() = CU_GRAPH_COND_TYPE_WHILE, 1;
}

impl AnyOp {
    /// Makes a conditional operation look at another condition.
    pub(crate) fn set_condition(&mut self, condition: Condition) {
        match self {
            AnyOp::If(op) => op.set_condition(condition),
            AnyOp::IfElse(op) => op.set_condition(condition),
            AnyOp::Switch(op) => op.set_condition(condition),
            AnyOp::While(op) => op.set_condition(condition),
            _ => {}
        }
    }
}

impl Graph {
    /// Views of the bodies of a node, in the order of their numbers. They are filled as graphs are,
    /// and run by the node alone.
    ///
    /// Have edges put the conditional nodes of a body one after the other, and loops everywhere: on
    /// an H200, the driver for CUDA 13.0 does not end some launches where they run at once, and
    /// fails others. [`parallel`](crate::Recorder) sees to it.
    pub fn bodies<O: Conditional>(&self, node: Node<O>) -> Result<Vec<Graph>> {
        self.views(node.id())
    }

    /// The first body of a node, which for [`IfOp`] and [`WhileOp`] is the only one.
    pub fn body<O: Conditional>(&self, node: Node<O>) -> Result<Graph> {
        let first = self.bodies(node)?.into_iter().next();
        first.ok_or_else(|| Error::NoBody {
            node: Box::new(self.name(node)),
        })
    }
}
