//! The nodes of one graph, put into another.

use std::collections::HashMap;

use smallvec::SmallVec;

use super::{After, EdgeData, Graph, Node, NodeId};
use crate::op::{AnyOp, NodeKind};
use crate::{Error, Result, driver};

impl Graph {
    /// Adds what `from` does, node by node, after the nodes `after`; gives the nodes that nothing waits for. They are
    /// read from the driver: what they use is held by nobody.
    ///
    /// # Errors
    ///
    /// As [`add`](Graph::add); [`Error::InvalidOperation`] for a conditional node. What was added before stays.
    pub(crate) fn transplant(
        &self,
        from: &Graph,
        after: &[NodeId],
    ) -> Result<SmallVec<[NodeId; 4]>> {
        let nodes = from.nodes()?;
        let mut into: HashMap<NodeId, Vec<(NodeId, EdgeData)>> = HashMap::new();
        let mut out: HashMap<NodeId, Vec<NodeId>> = HashMap::new();
        for edge in from.edges()? {
            into.entry(edge.to)
                .or_default()
                .push((edge.from, edge.data));
            out.entry(edge.from).or_default().push(edge.to);
        }
        let mut left: HashMap<NodeId, usize> = nodes
            .iter()
            .map(|node| (*node, into.get(node).map_or(0, Vec::len)))
            .collect();
        let mut ready: Vec<NodeId> = nodes.into_iter().filter(|node| left[node] == 0).collect();
        let mut copies: HashMap<NodeId, NodeId> = HashMap::new();
        let mut ends = SmallVec::new();
        while let Some(node) = ready.pop() {
            let (mut plain, mut other) = (SmallVec::<[NodeId; 4]>::new(), Vec::new());
            for (before, data) in into.get(&node).into_iter().flatten() {
                match *data == EdgeData::default() {
                    true => plain.push(copies[before]),
                    false => other.push((copies[before], *data)),
                }
            }
            if plain.is_empty() && other.is_empty() {
                plain.extend_from_slice(after);
            }
            let copy = self.transplant_node(from, node, &plain)?;
            for (before, data) in other {
                self.predecessors(Node::<AnyOp>::new(copy))
                    .add_with(before, data)?;
            }
            copies.insert(node, copy);
            match out.get(&node) {
                None => ends.push(copy),
                Some(next) => ready.extend(next.iter().filter(|to| {
                    let waits = left.get_mut(*to).expect("an edge leads to a node");
                    *waits -= 1;
                    *waits == 0
                })),
            }
        }
        Ok(ends)
    }

    fn transplant_node(&self, from: &Graph, node: NodeId, after: &[NodeId]) -> Result<NodeId> {
        if node.kind() == NodeKind::Conditional {
            return Err(Error::InvalidOperation {
                why: "a conditional node cannot be taken over from a capture: record it through this library".into(),
            });
        }
        let op = from.any_op(node)?;
        let (copy, raw) = self.insert(op, After::Nodes(after))?;
        if node.kind() == NodeKind::Kernel {
            // Those that are not read back too.
            driver::node::copy_attributes(raw, from.raw_nodes(&[node])?[0])?;
        }
        Ok(copy)
    }
}
