//! Copies of graphs: clones, and graphs embedded in others.

use std::collections::BTreeMap;
use std::sync::Arc;

use super::child_op::ChildOp;
use super::content::Content;
use super::state::{State, lock_both};
use super::{Graph, Node, NodeId, View};
use crate::error::NodeKind;
use crate::op::{Op, all_stay};
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
        let raw = driver::graph::clone(state.body(self.body_index())?.raw)?;
        let copy = Graph::of_raw(self.context(), raw, true);
        let mut known = copy.hierarchy().lock();
        known.mirror(&state, self.body_index(), 0);
        drop(known);
        Ok(copy)
    }

    /// The copy in `clone`, a clone of this graph, of a node of this graph.
    ///
    /// # Errors
    ///
    /// [`Error::NotInClone`] if the node was destroyed there, or added here after cloning, or
    /// `clone` is no clone of this graph.
    pub fn find_in_clone<O>(&self, node: Node<O>, clone: &Graph) -> Result<Node<O>> {
        let (ours, theirs) = lock_both(self.hierarchy(), clone.hierarchy());
        let (body, raw) = self.find(&ours, node.id())?;
        let missing = || Error::NotInClone {
            node: Box::new(body.name(node.id().index)),
        };
        let mut theirs = theirs.ok_or_else(missing)?;
        let target = theirs.body(clone.body_index())?.raw;
        let found = driver::graph::find_in_clone(raw, target).map_err(|_| missing())?;
        Ok(Node::new(clone.node_of(&mut theirs, found)?))
    }

    /// A view of the graph embedded in a node.
    pub fn child(&self, node: Node<ChildOp>) -> Result<Graph> {
        let mut state = self.hierarchy().lock();
        self.find(&state, node.id())?;
        let body = state.child(self.body_index(), node.id().index)?;
        Ok(self.view_of(body))
    }

    /// A view of graph `body` of this hierarchy.
    pub(crate) fn view_of(&self, body: u32) -> Graph {
        Graph::from_view(View::new(self.hierarchy().clone(), body))
    }

    /// A copy of the graph that `op` embeds here, for a node that nobody else has.
    pub(crate) fn copy_to_embed(&self, op: &ChildOp) -> Result<Graph> {
        let source = op.graph();
        let own = Arc::ptr_eq(source.hierarchy(), self.hierarchy());
        let (outer, inner) = (source.body_index(), self.body_index());
        if own && self.hierarchy().look().contains(outer, inner) {
            let location = op.location();
            return Err(Error::SelfEmbed { location });
        }
        source.try_clone().map_err(|error| match error {
            Error::GraphGone => error,
            error => error.about(op.name(None), "adding"),
        })
    }

    /// Makes a node run a copy of another graph. Views of the old copy are gone.
    pub(super) fn embed_again(&self, id: NodeId, op: &ChildOp) -> Result<()> {
        let copy = self.copy_to_embed(op)?;
        let index = self.body_index();
        let mut other = copy.hierarchy().lock();
        let mut state = self.hierarchy().lock();
        let (_, raw) = self.find(&state, id)?;
        if let Ok(inside) = state.child(index, id.index)
            && !all_stay(&other.communicators(0), &state.communicators(inside))
        {
            let node = Box::new(state.body(index)?.name(id.index));
            return Err(Error::CommunicatorFixed { node });
        }
        let mut params = state.child_params(index, &mut other)?;
        state.about_to_change();
        let body = state.body(index)?;
        driver::node::set(raw, &mut params)
            .map_err(|error| error.about(body.name(id.index), "updating"))?;
        let content = Content::other(NodeKind::Child, op.tag().clone(), Vec::new());
        state.replace(index, id.index, content);
        state.mirror_child(&other, 0, index, id.index);
        Ok(())
    }
}

impl State {
    /// Gives the graph embedded in node `node` of graph `body`, a copy of graph `of` of `from`,
    /// what is known of that.
    pub(super) fn mirror_child(&mut self, from: &State, of: u32, body: u32, node: u32) {
        match self.child(body, node) {
            Ok(child) => self.mirror(from, of, child),
            // The copy cannot be looked into. What its nodes use is held all the same.
            Err(_) => self.hold_all(from, of, body),
        }
    }

    /// Graph `body` holds what graph `of` of `from`, and everything inside of it, uses.
    fn hold_all(&mut self, from: &State, of: u32, body: u32) {
        let lingering = &mut self.bodies[body].lingering;
        from.each_body(of, &mut |_, graph| {
            let owners = graph.contents.iter().flat_map(Op::owners);
            lingering.extend(owners.chain(&graph.lingering).cloned());
        });
    }

    /// Gives graph `to`, the driver's copy of graph `of` of `from`, what is known of that.
    ///
    /// Nodes that the driver cannot match are read from it later. Until it is gone, the copy holds
    /// what they use.
    pub(super) fn mirror(&mut self, from: &State, of: u32, to: u32) {
        let source = &from.bodies[of];
        let raw = self.bodies[to].raw;
        let mut complete = true;
        let mut copied = BTreeMap::new();
        for (node, content) in (0..).zip(&*source.contents) {
            let Some(handle) = source.handle(node) else {
                continue;
            };
            let inside = source.inside(node);
            if let Ok(copy) = driver::graph::find_in_clone(handle, raw) {
                let index = self.bodies[to].push(copy, content.clone());
                copied.insert(node, index);
                if !inside.is_empty() {
                    self.mirror_child(from, inside.start, to, index);
                }
            } else {
                complete = false;
                let lingering = &mut self.bodies[to].lingering;
                lingering.extend_from_slice(content.owners());
                inside.for_each(|inside| self.hold_all(from, inside, to));
            }
        }
        let body = &mut self.bodies[to];
        body.lingering.extend_from_slice(&source.lingering);
        body.ascending = complete && source.ascending;
        if !source.ends.is_plain() {
            body.ends = source.ends.of_copy(&source.order(), &copied);
        }
    }
}
