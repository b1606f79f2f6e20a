//! Condition handles, and conditional nodes with their bodies.
//!
//! Invariants:
//! - a condition belongs to a graph that is in no other, and is used by nodes anywhere inside it,
//!   by one at a time;
//! - a graph with conditions is neither cloned nor embedded, nor is one inside it, and it has one
//!   executable at a time, those from before it had conditions included; so a condition is used by
//!   one launch at a time.

use std::sync::Arc;

use super::definition::{By, Graph, new_graph};
use super::edge::Edge;
use super::operation::{Choice, ConditionalNode, GraphCondition, Operation};
use crate::abi::types::CUgraphNode;
use crate::driver::context::Context;
use crate::driver::{CUresult, Result};

const INVALID: CUresult = CUresult::CUDA_ERROR_INVALID_VALUE;

/// `cuGraphConditionalHandleCreate`: its number. `default` is what each launch begins with, where
/// it is set.
pub(crate) fn create(
    graph: &Arc<Graph>,
    context: Arc<Context>,
    default: Option<u32>,
) -> Result<u64> {
    let condition = Arc::new(GraphCondition::new(context, default));
    let number = condition.value.number();
    graph.root().edit(|definition| {
        definition.conditions.insert(number, condition);
        Ok(number)
    })
}

/// `cuGraphAddNode` of a conditional node; what it is made of is in its operation.
pub(crate) fn add(
    graph: &Arc<Graph>,
    dependencies: &[Edge],
    number: u64,
    choice: Choice,
    bodies: u32,
    context: &Context,
) -> Result<(CUgraphNode, Arc<ConditionalNode>)> {
    let condition = graph.root().read(|definition| {
        let known = definition.conditions.get(&number);
        known.cloned().ok_or(INVALID)
    })?;
    // Before the condition is taken: it is given back by the node's end alone.
    let bodies = (0..bodies).map(|_| {
        let body = new_graph();
        body.set_body_of(graph);
        body
    });
    let node = Arc::new(ConditionalNode::new(condition, choice, bodies.collect()));
    let added = match node.context().id() == context.id() {
        true => node.condition().take(),
        false => Err(INVALID),
    };
    if let Err(error) = added {
        node.bodies().iter().for_each(|body| body.dismantle());
        return Err(error);
    }
    let added = graph.add(
        By::Program,
        dependencies,
        Operation::Conditional(node.clone()),
    );
    match added {
        Ok(handle) => Ok((handle, node)),
        Err(error) => {
            node.end();
            Err(error)
        }
    }
}

impl Graph {
    /// A condition that no node uses.
    pub fn has_unused_condition(&self) -> Result<bool> {
        self.read(|definition| {
            let mut conditions = definition.conditions.values();
            Ok(conditions.any(|condition| !condition.is_used()))
        })
    }

    /// Fails where it can be neither cloned nor embedded because of conditions.
    pub fn check_conditions(self: &Arc<Self>) -> Result {
        let root = self.root();
        let has_conditions = root.read(|definition| Ok(!definition.conditions.is_empty()))?;
        match has_conditions || self.is_in_body() {
            true => Err(CUresult::CUDA_ERROR_NOT_SUPPORTED),
            false => Ok(()),
        }
    }
}
