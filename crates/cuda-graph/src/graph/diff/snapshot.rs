//! A graph as it is compared: its shape, and what each node does.

use cudarc::driver::sys::{CUcontext, CUgraphEdgeData};
use smallvec::SmallVec;

use crate::Result;
use crate::error::{NodeKind, NodeName};
use crate::graph::content::Content;
use crate::graph::shape::Shape;
use crate::graph::state::{Hierarchy, State};
use crate::graph::{AnyOp, NodeId};
use crate::op::{KernelOp, Op};

/// A graph.
pub(crate) struct Snapshot {
    /// Its number in its hierarchy.
    pub body: u32,
    /// The context whose device runs it.
    pub context: CUcontext,
    /// Its nodes, in the driver's order.
    pub nodes: Vec<Member>,
    /// The nodes that no other waits for, by their places, as the driver begins with them.
    pub ends: Vec<u32>,
}

/// A node.
pub(crate) struct Member {
    pub id: NodeId,
    /// It does what the node of a definition does now. So does another one of the same node.
    pub is_defined: bool,
    /// What it does; without parameters if that is not known.
    pub does: AnyOp,
    /// The places of the nodes that it waits for.
    pub before: SmallVec<[(u32, CUgraphEdgeData); 2]>,
    /// The graphs inside of it.
    pub inside: Vec<Snapshot>,
}

impl Member {
    pub fn kind(&self) -> NodeKind {
        self.does.kind()
    }

    pub fn name(&self) -> NodeName {
        self.does.name(self.id.index)
    }

    /// Whether both are one node of a definition, whatever it does.
    pub fn is_same_node(&self, other: &Member) -> bool {
        self.is_defined && other.is_defined && self.id == other.id
    }

    /// Whether nothing is known of what it does.
    pub fn is_unknown(&self) -> bool {
        self.does.op().is_none() && self.kind() != NodeKind::Child
    }
}

impl Snapshot {
    /// Graph `body` of `state`, as it is now.
    pub fn of(hierarchy: &Hierarchy, state: &mut State, body: u32) -> Result<Snapshot> {
        let shape = state.shape(body)?;
        Ok(Snapshot::with(hierarchy, &shape, &mut |body, index| {
            state.does(body, index)
        }))
    }

    /// A graph of this shape, whose nodes do what `does` says of their graph and number.
    pub fn with(
        hierarchy: &Hierarchy,
        shape: &Shape,
        does: &mut dyn FnMut(u32, u32) -> AnyOp,
    ) -> Snapshot {
        let mut nodes = Vec::with_capacity(shape.places.len());
        for place in &shape.places {
            let does_now = does(shape.body, place.index);
            let inside = place.inside.iter();
            let inside = inside.map(|inside| Snapshot::with(hierarchy, inside, does));
            nodes.push(Member {
                is_defined: true,
                id: NodeId {
                    hierarchy: hierarchy.id,
                    body: shape.body,
                    index: place.index,
                    kind: does_now.kind(),
                },
                before: place.before.clone(),
                inside: inside.collect(),
                does: does_now,
            });
        }
        Snapshot {
            body: shape.body,
            context: hierarchy.context.cu_ctx(),
            nodes,
            ends: shape.ends.clone(),
        }
    }

    /// Calls `visit` with every node, at any depth.
    pub fn each(&mut self, visit: &mut dyn FnMut(&mut Member)) {
        for node in &mut self.nodes {
            visit(node);
            node.inside.iter_mut().for_each(|inside| inside.each(visit));
        }
    }

    /// Whether some node, at any depth, allocates or frees memory.
    pub fn has_memory_nodes(&self) -> bool {
        self.nodes.iter().any(|node| {
            matches!(node.kind(), NodeKind::Alloc | NodeKind::Free)
                || node.inside.iter().any(Snapshot::has_memory_nodes)
        })
    }
}

impl State {
    /// What a node does: as this library knows, or as the driver tells, or its kind alone.
    pub(crate) fn does(&self, body: u32, index: u32) -> AnyOp {
        let graph = self.bodies.get(body);
        let Some(content) = graph.and_then(|graph| graph.content(index)) else {
            return Content::unknown(NodeKind::Other(u32::MAX));
        };
        let raw = graph.and_then(|graph| graph.handle(index));
        let told = match (content.op(), content.kind(), raw) {
            (Some(op), ..) => return op.clone(),
            (_, NodeKind::Child, _) | (.., None) => None,
            (_, NodeKind::Kernel, Some(raw)) => KernelOp::read_in_part(raw).ok().map(AnyOp::from),
            (.., Some(raw)) => AnyOp::read(raw).ok(),
        };
        let Some(mut op) = told else {
            return content.name_only();
        };
        op.tag_mut().take_name_of(content.tag());
        op
    }
}
