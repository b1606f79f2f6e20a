//! Putting nodes into a graph.

use std::collections::HashSet;
use std::mem;
use std::ops::Range;

use cudarc::driver::sys::{CUgraph, CUgraphNode, CUgraphNodeParams, CUgraphNodeType};

use super::content::Content;
use super::graphs::Graphs;
use super::operation::{AnyOp, Holds, Operation};
use super::state::{Body, Hierarchy, RawNodes, State, check};
use super::{Graph, NodeId, NodeSet};
use crate::error::NodeKind;
use crate::op::{AllocOp, Op, Tag};
use crate::{Error, Result, driver};

/// Where a new node goes.
#[derive(Clone, Copy)]
pub(crate) enum Slot {
    /// Behind all others.
    New,
    /// To a number that was given out before.
    Reserved(u32),
}

impl Graph {
    /// Adds a node after the nodes that `after` gives. Returns its number.
    // Not inlined, because `add` is inlined wherever it is called.
    #[inline(never)]
    pub(crate) fn insert<O: Operation>(
        &self,
        op: O,
        after: impl FnOnce(&Body, &mut RawNodes) -> Result<()>,
    ) -> Result<u32> {
        if let Holds::Copy(child) = op.holds() {
            let copy = self.copy_to_embed(child)?;
            return self.adopt(&copy, op.tag().clone(), after);
        }
        driver::bind_some(self.context())?;
        let hierarchy = &**self.hierarchy();
        let mut state = hierarchy.lock();
        let mut nodes = RawNodes::new();
        // On an error, `op` goes after unlocking: dropping what it holds runs user code.
        after(state.body(self.body_index())?, &mut nodes)?;
        check(hierarchy.id, &op, || state.is_in_body(self.body_index()))?;
        state.insert(hierarchy, self.body_index(), op, &nodes, Slot::New, None)
    }

    /// Adds a node that runs `graph`, which nobody else has, after the nodes that `after` gives.
    pub(crate) fn adopt(
        &self,
        graph: &Graph,
        tag: Tag,
        after: impl FnOnce(&Body, &mut RawNodes) -> Result<()>,
    ) -> Result<u32> {
        driver::bind(self.context())?;
        let mut state = self.hierarchy().lock();
        let mut nodes = RawNodes::new();
        after(state.body(self.body_index())?, &mut nodes)?;
        state.adopt(self.body_index(), graph, tag, &nodes, Slot::New)
    }

    /// The driver's handles of `nodes`, each named once.
    #[inline]
    pub(crate) fn resolve_all<'a>(
        &'a self,
        set: &'a impl NodeSet,
    ) -> impl FnOnce(&Body, &mut RawNodes) -> Result<()> + 'a {
        let (id, index) = (self.hierarchy().id, self.body_index());
        move |body, nodes| {
            let mut failed = None;
            set.each(&mut |node: NodeId| match body.resolve(id, index, node) {
                Ok(raw) => nodes.push(raw),
                Err(error) => {
                    failed.get_or_insert(error);
                }
            });
            failed.map_or(Ok(()), Err)?;
            let Some(twice) = named_twice(nodes) else {
                return Ok(());
            };
            let index = body.handles.iter().position(|handle| *handle == twice);
            Err(Error::DuplicateNode {
                node: Box::new(body.name(index.unwrap_or(0) as u32)),
            })
        }
    }
}

#[inline]
fn named_twice(nodes: &[CUgraphNode]) -> Option<CUgraphNode> {
    // A table finds duplicates among many sooner than a search.
    if nodes.len() > 16 {
        let mut seen = HashSet::with_capacity(nodes.len());
        return nodes.iter().copied().find(|node| !seen.insert(*node));
    }
    let mut earlier = nodes.iter().enumerate();
    let twice = earlier.find(|(at, node)| nodes[..*at].contains(node));
    twice.map(|(_, node)| *node)
}

impl State {
    /// Adds a node that was [checked](check) to a graph that is there. The bodies of a
    /// conditional node get the numbers `bodies`, if some were reserved for them.
    #[inline]
    pub(crate) fn insert<O: Operation>(
        &mut self,
        hierarchy: &Hierarchy,
        body: u32,
        op: O,
        after: &[CUgraphNode],
        slot: Slot,
        bodies: Option<Range<u32>>,
    ) -> Result<u32> {
        self.about_to_change();
        let raw = self.bodies[body].raw;
        let added = match op.holds() {
            Holds::Bodies(branching) => branching.add_to(&hierarchy.context, raw, after),
            _ => op
                .add_to(&hierarchy.context, raw, after)
                .map(|node| (node, Vec::new())),
        };
        let (node, inside) = match added {
            Ok(added) => added,
            Err(error) => {
                let error = error.about(op.name(None), "adding");
                self.trash.push(op.into_any());
                return Err(error);
            }
        };
        let index = self.put(body, node, content_of(op, node), slot);
        if !inside.is_empty() {
            self.put_bodies(body, index, &inside, bodies);
        }
        Ok(index)
    }

    /// Adds a node that runs `graph`, the root of a hierarchy that nobody else has.
    pub(crate) fn adopt(
        &mut self,
        body: u32,
        graph: &Graph,
        tag: Tag,
        after: &[CUgraphNode],
        slot: Slot,
    ) -> Result<u32> {
        self.about_to_change();
        let mut other = graph.hierarchy().lock();
        let content = Content::other(NodeKind::Child, tag, Vec::new());
        let mut params = self.child_params(body, &mut other)?;
        let moved = driver::node::has_moving();
        if moved {
            driver::node::make_moving(&mut params);
        }
        let node = driver::node::add(self.body(body)?.raw, after, &mut params)
            .map_err(|error| error.about(content.name(None), "adding"))?;
        let index = self.put(body, node, content, slot);
        if moved {
            self.take_in(body, index, &mut other);
        } else {
            self.mirror_child(&other, 0, body, index);
        }
        Ok(index)
    }

    /// The parameters of a node of graph `body` that runs the root of `other`.
    pub(super) fn child_params(&self, body: u32, other: &mut State) -> Result<CUgraphNodeParams> {
        if self.is_in_body(body) {
            other.check_for_body(0)?;
        }
        let mut params = driver::node::blank(CUgraphNodeType::CU_GRAPH_NODE_TYPE_GRAPH);
        params.__bindgen_anon_1.graph.graph = other.body(0)?.raw;
        Ok(params)
    }

    /// Takes over the graphs of `other`, whose root the driver has moved into a node.
    fn take_in(&mut self, body: u32, node: u32, other: &mut State) {
        self.may_branch |= other.may_branch;
        self.conditions += other.conditions;
        let first = self.bodies.len();
        // What is left of it holds nothing.
        let nothing = Graphs::new(Body::default());
        for mut graph in mem::replace(&mut other.bodies, nothing).into_values() {
            graph.parent = Some(match graph.parent {
                Some((parent, node)) => (parent + first, node),
                None => (body, node),
            });
            for numbers in graph.inside.values_mut() {
                *numbers = numbers.start + first..numbers.end + first;
            }
            self.bodies.push(graph);
        }
        let parent = &mut self.bodies[body];
        parent.inside.insert(node, first..first + 1);
    }

    #[inline]
    fn put(&mut self, body: u32, node: CUgraphNode, content: Content, slot: Slot) -> u32 {
        let body = &mut self.bodies[body];
        match slot {
            Slot::New => body.push(node, content),
            Slot::Reserved(index) => body.take_place(index, node, content),
        }
    }

    fn put_bodies(
        &mut self,
        body: u32,
        node: u32,
        inside: &[CUgraph],
        reserved: Option<Range<u32>>,
    ) {
        self.may_branch = true;
        let numbers = reserved.unwrap_or_else(|| self.reserve(inside.len() as u32));
        for (number, &raw) in numbers.clone().zip(inside) {
            let inside = &mut self.bodies[number];
            inside.raw = raw;
            inside.parent = Some((body, node));
        }
        let graph = &mut self.bodies[body];
        graph.inside.insert(node, numbers);
        // A spare condition that a node uses is spare no more.
        if let Some(Holds::Bodies(branching)) = graph.content(node).map(AnyOp::holds) {
            let used = branching.condition.raw();
            self.spare.retain(|spare| spare.raw() != used);
        }
    }

    /// Refuses a graph that no body may embed.
    pub(crate) fn check_for_body(&mut self, body: u32) -> Result<()> {
        for raw in driver::graph::nodes(self.body(body)?.raw)? {
            let graph = self.body_mut(body)?;
            let index = graph.number(raw)?;
            let kind = graph.kind(index);
            let fits = match (kind, graph.content(index).and_then(Content::op)) {
                (_, Some(op)) => op.fits_in_body(),
                (NodeKind::Copy, None) => AnyOp::read(raw)?.fits_in_body(),
                (NodeKind::Conditional, None) => false,
                (kind, None) => kind.fits_in_body(),
            };
            if !fits {
                let node = Box::new(graph.name(index));
                return Err(Error::NotInBody { node });
            }
            if kind == NodeKind::Child {
                let child = self.child(body, index)?;
                self.check_for_body(child)?;
            }
        }
        Ok(())
    }
}

/// What is kept of an operation that became a node.
#[inline]
pub(super) fn content_of<O: Operation>(op: O, node: CUgraphNode) -> Content {
    match op.into_any() {
        op @ AnyOp::Kernel(_) => op,
        // The driver chose the address.
        AnyOp::Alloc(op) => match AllocOp::read(node).ok().and_then(|read| read.address()) {
            Some(address) => op.at(address).into(),
            None => op.into(),
        },
        // What raw parameters point to may be gone, so only the driver knows them.
        AnyOp::Raw(op) => Content::other(op.kind(), op.tag().clone(), op.owners().to_vec()),
        op => op,
    }
}
