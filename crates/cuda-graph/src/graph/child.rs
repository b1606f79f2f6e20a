//! Copies of graphs: clones, and graphs embedded in others.

use std::sync::Arc;

use cudarc::driver::sys::{CUgraphNode, CUgraphNodeType};

use super::snapshot::{Snapshot, mirror};
use super::state::{Body, Hierarchy, Keeper, Slot, State, lock_both, resolve};
use super::{After, Graph, Node, NodeId, NodeName, RawNodes, View};
use crate::op::{AnyOp, ChildOp};
use crate::{Error, Result, driver};

impl Graph {
    /// A copy, which holds what this graph's nodes hold.
    ///
    /// # Errors
    ///
    /// The driver does not copy graphs with allocation or conditional nodes.
    pub fn try_clone(&self) -> Result<Graph> {
        driver::bind(self.context())?;
        let state = self.hierarchy().lock();
        let known = Snapshot::of(&state, self.body_index())?;
        let raw = driver::graph::clone(state.body(self.body_index())?.raw)?;
        let hierarchy = Hierarchy::new(self.context().clone(), raw, false);
        let keeper = Arc::new(Keeper {
            hierarchy,
            owned: true,
        });
        mirror(&known, &mut keeper.hierarchy.lock(), 0);
        Ok(Graph::from_view(View { keeper, body: 0 }))
    }

    /// The copy in `clone`, a clone of this graph, of a node of this graph.
    ///
    /// # Errors
    ///
    /// [`Error::NotInClone`] when the node was destroyed there, or added here after cloning, or `clone` is no clone of this graph.
    pub fn find_in_clone<O>(&self, node: Node<O>, clone: &Graph) -> Result<Node<O>> {
        let (ours, theirs) = lock_both(self.hierarchy(), clone.hierarchy());
        let body = ours.body(self.body_index())?;
        let id = node.id();
        let raw = resolve(self.hierarchy().id, self.body_index(), body, id)?;
        let missing = || Error::NotInClone {
            node: Box::new(body.name(id.index)),
        };
        let Some(mut theirs) = theirs else {
            return Err(missing());
        };
        let target = theirs.body_mut(clone.body_index())?;
        let found = driver::graph::find_in_clone(raw, target.raw).map_err(|_| missing())?;
        let index = target.number(found)?;
        Ok(Node::new(NodeId {
            hierarchy: clone.hierarchy().id,
            body: clone.body_index(),
            index,
            kind: id.kind,
        }))
    }

    /// A view of the graph embedded in a node.
    pub fn child(&self, node: Node<ChildOp>) -> Result<Graph> {
        let mut state = self.hierarchy().lock();
        let body = state.body(self.body_index())?;
        resolve(self.hierarchy().id, self.body_index(), body, node.id())?;
        let body = state.child(self.body_index(), node.id().index)?;
        Ok(Graph::from_view(View {
            keeper: self.view.keeper.clone(),
            body,
        }))
    }

    /// Adds a node that runs a copy of a graph.
    pub(super) fn embed(&self, op: &ChildOp, after: After<'_>) -> Result<(NodeId, CUgraphNode)> {
        let (mut state, source) = lock_both(self.hierarchy(), op.graph.hierarchy());
        let from = source.as_deref().unwrap_or(&state);
        if source.is_none() && state.contains(op.graph.body, self.body_index()) {
            return Err(Error::SelfEmbed {
                location: op.location(),
            });
        }
        let known = Snapshot::of(from, op.graph.body)?;
        self.check_for_body(&state, &known)?;
        let inner = from.body(op.graph.body)?.raw;
        let executables = state.executables;
        let body = state.body_mut(self.body_index())?;
        let mut nodes = RawNodes::new();
        let after = self.resolve_all(body, after, &mut nodes)?;
        let mut params = driver::node::blank(CUgraphNodeType::CU_GRAPH_NODE_TYPE_GRAPH);
        params.__bindgen_anon_1.graph.graph = inner;
        let raw = driver::node::add(body.raw, after, &mut params)
            .map_err(|error| error.about(NodeName::of_op(&AnyOp::Child(op.clone())), "adding"))?;
        let index = body.push(Slot::new(raw, op.clone().into(), executables));
        state.mirror_child(&known, self.body_index(), index);
        Ok((self.id(&state, index), raw))
    }

    /// Refuses to embed in a body what no body may hold.
    fn check_for_body(&self, state: &State, embedded: &Snapshot) -> Result<()> {
        match embedded.not_for_bodies() {
            Some(other) if state.is_in_body(self.body_index()) => Err(Error::NotInBody {
                node: Box::new(NodeName::of_op(other)),
            }),
            _ => Ok(()),
        }
    }

    /// Has a node run a copy of another graph. Views of the old copy are gone.
    pub(super) fn embed_again(&self, id: NodeId, op: &ChildOp) -> Result<()> {
        let (mut state, source) = lock_both(self.hierarchy(), op.graph.hierarchy());
        let from = source.as_deref().unwrap_or(&state);
        if source.is_none() && state.contains(op.graph.body, self.body_index()) {
            return Err(Error::SelfEmbed {
                location: op.location(),
            });
        }
        let body = state.body(self.body_index())?;
        let raw = resolve(self.hierarchy().id, self.body_index(), body, id)?;
        if source.is_none()
            && let Some(own) = body.nodes[id.index as usize].child
            && state.contains(own, op.graph.body)
        {
            // It would go while it is copied.
            return Err(Error::InvalidOperation {
                why: format!(
                    "the {} cannot embed anew what is embedded in it: clone that first",
                    body.name(id.index)
                ),
            });
        }
        let known = Snapshot::of(from, op.graph.body)?;
        self.check_for_body(&state, &known)?;
        let inner = from.body(op.graph.body)?.raw;
        let body: &mut Body = state.body_mut(self.body_index())?;
        let mut params = driver::node::blank(CUgraphNodeType::CU_GRAPH_NODE_TYPE_GRAPH);
        params.__bindgen_anon_1.graph.graph = inner;
        driver::node::set(raw, &mut params)
            .map_err(|error| error.about(body.name(id.index), "updating"))?;
        let old = body.nodes[id.index as usize].set(op.clone().into());
        state.trash.push(old);
        state.forget_child(self.body_index(), id.index);
        state.mirror_child(&known, self.body_index(), id.index);
        Ok(())
    }
}
