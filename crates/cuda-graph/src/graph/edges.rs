//! Edges.
//!
//! What the driver accepts and later fails on, a cycle, is refused here, and what it refuses is
//! named (L2).

use std::collections::{HashMap, HashSet};
use std::hash::BuildHasherDefault;

use cudarc::driver::sys::{CUgraph, CUgraphEdgeData, CUgraphNode};

use super::state::{Body, State};
use super::{Graph, NodeId, NodeSet};
use crate::driver::graph::{PLAIN, RawEdge};
use crate::error::NodeName;
use crate::retain::AddressHasher;
use crate::{Error, Result, driver};

/// What an edge waits for.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct EdgeData {
    /// Which point of the first node's run: 0 its end; for kernels also 1, its trigger of
    /// dependents, and 2, the start of all its blocks.
    pub from_port: u8,
    /// Reserved by the driver: 0.
    pub to_port: u8,
    /// The second kernel may start early and waits by itself.
    pub programmatic: bool,
}

impl EdgeData {
    /// A programmatic dependency: the second kernel starts when the first triggers it, and
    /// synchronizes by itself.
    pub fn programmatic() -> EdgeData {
        EdgeData {
            from_port: 1,
            to_port: 0,
            programmatic: true,
        }
    }

    pub(crate) fn to_driver(self) -> CUgraphEdgeData {
        CUgraphEdgeData {
            from_port: self.from_port,
            to_port: self.to_port,
            type_: u8::from(self.programmatic),
            ..PLAIN
        }
    }

    pub(crate) fn from_driver(data: CUgraphEdgeData) -> EdgeData {
        EdgeData {
            from_port: data.from_port,
            to_port: data.to_port,
            programmatic: data.type_ == 1,
        }
    }
}

/// An edge: `to` waits for `from`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Edge {
    /// What is waited for.
    pub from: NodeId,
    /// What waits.
    pub to: NodeId,
    /// For what exactly.
    pub data: EdgeData,
}

impl Edge {
    fn plain(from: NodeId, to: NodeId) -> Edge {
        let data = EdgeData::default();
        Edge { from, to, data }
    }
}

/// An edge between nodes that are there, and the same with the driver's handles.
type Checked = (Edge, RawEdge);

impl Graph {
    /// Every edge.
    pub fn edges(&self) -> Result<Vec<Edge>> {
        let mut state = self.hierarchy().lock();
        let raw = driver::graph::edges(state.body(self.body_index())?.raw)?;
        self.named(&mut state, raw)
    }

    fn named(&self, state: &mut State, edges: Vec<RawEdge>) -> Result<Vec<Edge>> {
        let named = |edge: RawEdge| {
            Ok(Edge {
                from: self.node_of(state, edge.from)?,
                to: self.node_of(state, edge.to)?,
                data: EdgeData::from_driver(edge.data),
            })
        };
        edges.into_iter().map(named).collect()
    }

    /// Has `to` wait for `from`.
    ///
    /// # Errors
    ///
    /// [`Error::SelfEdge`], [`Error::DuplicateEdge`], [`Error::Cycle`], [`Error::ForeignNode`],
    /// [`Error::NodeGone`].
    pub fn add_edge(&self, from: impl Into<NodeId>, to: impl Into<NodeId>) -> Result<()> {
        self.add_edges([Edge::plain(from.into(), to.into())])
    }

    /// Adds edges, all or none, in one call of the driver.
    ///
    /// # Errors
    ///
    /// As [`add_edge`](Graph::add_edge).
    pub fn add_edges(&self, edges: impl IntoIterator<Item = Edge>) -> Result<()> {
        // Before the lock: the iterator is the caller's code, which may ask this graph.
        let edges: Vec<Edge> = edges.into_iter().collect();
        driver::bind(self.context())?;
        let mut state = self.hierarchy().lock();
        let checked = self.check(&state, edges)?;
        self.connect(&mut state, &checked)
    }

    /// Removes the edge from `from` to `to`.
    ///
    /// # Errors
    ///
    /// [`Error::NoEdge`] when there is none.
    pub fn remove_edge(&self, from: impl Into<NodeId>, to: impl Into<NodeId>) -> Result<()> {
        self.remove_edges([(from.into(), to.into())])
    }

    /// Removes edges, all or none, in one call of the driver. An edge that is given twice counts
    /// once.
    ///
    /// # Errors
    ///
    /// As [`remove_edge`](Graph::remove_edge).
    pub fn remove_edges(&self, edges: impl IntoIterator<Item = (NodeId, NodeId)>) -> Result<()> {
        let mut edges: Vec<_> = edges.into_iter().collect();
        let mut seen = HashSet::new();
        edges.retain(|edge| seen.insert(*edge));
        driver::bind(self.context())?;
        let mut state = self.hierarchy().lock();
        let edges = edges.into_iter().map(|(from, to)| Edge::plain(from, to));
        state.body_mut(self.body_index())?.data = None;
        let body = state.body(self.body_index())?;
        // The driver wants the data that the edge has.
        let there = |(edge, raw): Checked| {
            let there = driver::graph::predecessors(raw.to)?;
            let data = there.iter().find(|(from, _)| *from == raw.from);
            let missing = || {
                let (from, to) = ends(body, edge);
                Error::NoEdge { from, to }
            };
            let &(_, data) = data.ok_or_else(missing)?;
            Ok(RawEdge { data, ..raw })
        };
        let checked = self.check(&state, edges)?;
        let raw: Vec<RawEdge> = checked.into_iter().map(there).collect::<Result<_>>()?;
        state.remove(self.body_index(), &raw)
    }

    /// What a node waits for.
    pub fn predecessors(&self, node: impl Into<NodeId>) -> Neighbours<'_> {
        Neighbours {
            graph: self,
            node: node.into(),
            before: true,
        }
    }

    /// What waits for a node.
    pub fn successors(&self, node: impl Into<NodeId>) -> Neighbours<'_> {
        Neighbours {
            before: false,
            ..self.predecessors(node)
        }
    }

    /// The edges with the driver's handles; none is from a node to itself, none is there twice.
    fn check(&self, state: &State, edges: impl IntoIterator<Item = Edge>) -> Result<Vec<Checked>> {
        let mut seen = HashSet::new();
        let check = |edge: Edge| {
            let (body, from) = self.find(state, edge.from)?;
            let (_, to) = self.find(state, edge.to)?;
            if from == to {
                let node = Box::new(body.name(edge.to.index));
                return Err(Error::SelfEdge { node });
            }
            if !seen.insert((from, to)) {
                let (from, to) = ends(body, edge);
                return Err(Error::DuplicateEdge { from, to });
            }
            let data = edge.data.to_driver();
            Ok((edge, RawEdge { from, to, data }))
        };
        state.body(self.body_index())?;
        edges.into_iter().map(check).collect()
    }

    /// Adds checked edges unless one is there already or they close a cycle.
    fn connect(&self, state: &mut State, edges: &[Checked]) -> Result<()> {
        let Some(&(first, _)) = edges.first() else {
            return Ok(());
        };
        let body = state.body_mut(self.body_index())?;
        for of_one in edges.chunk_by(|(_, one), (_, next)| one.to == next.to) {
            let there = driver::graph::predecessors(of_one[0].1.to)?;
            let is_there = |(_, raw): &&Checked| there.iter().any(|(from, _)| *from == raw.from);
            if let Some(&(edge, _)) = of_one.iter().find(is_there) {
                let (from, to) = ends(body, edge);
                return Err(Error::DuplicateEdge { from, to });
            }
        }
        let ascends = |(edge, _): &Checked| edge.from.index < edge.to.index;
        let ascending = edges.iter().all(ascends) && body.ascending;
        if !ascending {
            acyclic(body, edges)?;
        }
        let raw: Vec<RawEdge> = edges.iter().map(|(_, raw)| *raw).collect();
        state.about_to_change();
        let body = state.body_mut(self.body_index())?;
        change(driver::graph::add_edges, body.raw, &raw)
            .map_err(|error| error.about(body.name(first.to.index), "adding edges to"))?;
        body.ascending = ascending;
        Ok(())
    }
}

impl State {
    /// Removes edges of graph `body`.
    fn remove(&mut self, body: u32, edges: &[RawEdge]) -> Result<()> {
        self.about_to_change();
        let body = self.body_mut(body)?;
        change(driver::graph::remove_edges, body.raw, edges)?;
        for edge in edges {
            body.loses_an_edge(edge.from);
        }
        Ok(())
    }
}

/// What errors call the nodes of an edge.
fn ends(body: &Body, edge: Edge) -> (Box<NodeName>, Box<NodeName>) {
    let name = |node: NodeId| Box::new(body.name(node.index));
    (name(edge.from), name(edge.to))
}

/// A driver call on edges, which takes them in columns.
type Call = fn(CUgraph, &[CUgraphNode], &[CUgraphNode], &[CUgraphEdgeData]) -> Result<()>;

/// Has the driver add or remove edges, if there are some.
fn change(call: Call, graph: CUgraph, edges: &[RawEdge]) -> Result<()> {
    if edges.is_empty() {
        return Ok(());
    }
    let columns = edges.iter().map(|edge| (edge.from, edge.to, edge.data));
    let (from, to, data): (Vec<_>, Vec<_>, Vec<_>) = columns.collect();
    call(graph, &from, &to, &data)
}

/// The nodes right after each node.
type After = HashMap<CUgraphNode, Vec<CUgraphNode>, BuildHasherDefault<AddressHasher>>;

/// Refuses edges that close a cycle. Those that are there close none, so a cycle has a new one.
fn acyclic(body: &Body, new: &[Checked]) -> Result<()> {
    let mut after = After::default();
    let there = driver::graph::edges(body.raw)?;
    for edge in there.iter().chain(new.iter().map(|(_, raw)| raw)) {
        after.entry(edge.from).or_default().push(edge.to);
    }
    let closes = |(_, raw): &&Checked| reaches(&after, raw.to, raw.from);
    if let Some(&(edge, _)) = new.iter().find(closes) {
        let (from, to) = ends(body, edge);
        return Err(Error::Cycle { from, to });
    }
    Ok(())
}

fn reaches(after: &After, from: CUgraphNode, to: CUgraphNode) -> bool {
    let mut seen = HashSet::<_, BuildHasherDefault<AddressHasher>>::default();
    let mut next = vec![from];
    while let Some(node) = next.pop() {
        if node == to {
            return true;
        }
        if seen.insert(node) {
            next.extend(after.get(&node).into_iter().flatten());
        }
    }
    false
}

/// The nodes on one side of a node, as a set: what it waits for, or what waits for it.
#[derive(Debug)]
pub struct Neighbours<'g> {
    graph: &'g Graph,
    node: NodeId,
    /// Those that it waits for.
    before: bool,
}

impl Neighbours<'_> {
    /// The edges to or from `nodes`.
    fn plain(&self, nodes: impl NodeSet) -> Vec<Edge> {
        let mut edges = Vec::new();
        nodes.each(&mut |other| {
            let (from, to) = self.in_order(other, self.node);
            edges.push(Edge::plain(from, to));
        });
        edges
    }

    /// Which of the two waits for which.
    fn in_order<T>(&self, other: T, this: T) -> (T, T) {
        match self.before {
            true => (other, this),
            false => (this, other),
        }
    }

    fn raw(&self, state: &State) -> Result<Vec<RawEdge>> {
        let (_, this) = self.graph.find(state, self.node)?;
        let others = match self.before {
            true => driver::graph::predecessors(this)?,
            false => driver::graph::successors(this)?,
        };
        let edges = others.into_iter().map(|(other, data)| {
            let (from, to) = self.in_order(other, this);
            RawEdge { from, to, data }
        });
        Ok(edges.collect())
    }

    /// The edges.
    pub fn edges(&self) -> Result<Vec<Edge>> {
        let mut state = self.graph.hierarchy().lock();
        let raw = self.raw(&state)?;
        self.graph.named(&mut state, raw)
    }

    /// The nodes.
    pub fn list(&self) -> Result<Vec<NodeId>> {
        let side = |edge: Edge| if self.before { edge.from } else { edge.to };
        Ok(self.edges()?.into_iter().map(side).collect())
    }

    /// Adds nodes, all or none, in one call of the driver. [`Graph::add_edges`] adds edges that
    /// carry [`EdgeData`].
    ///
    /// # Errors
    ///
    /// As [`Graph::add_edge`].
    pub fn add(&self, nodes: impl NodeSet) -> Result<()> {
        self.graph.add_edges(self.plain(nodes))
    }

    /// Removes nodes, all or none, in one call of the driver. A node that is given twice counts
    /// once.
    ///
    /// # Errors
    ///
    /// As [`Graph::remove_edge`].
    pub fn remove(&self, nodes: impl NodeSet) -> Result<()> {
        let edges = self.plain(nodes).into_iter();
        self.graph
            .remove_edges(edges.map(|edge| (edge.from, edge.to)))
    }

    /// Makes these the nodes, `()` for none: one call of the driver removes edges, one adds them,
    /// each only where there are some. Edges that stay keep their data. On an error, the edges are
    /// what they were.
    ///
    /// # Errors
    ///
    /// As [`Graph::add_edge`].
    pub fn set(&self, nodes: impl NodeSet) -> Result<()> {
        let graph = self.graph;
        let wanted = self.plain(nodes);
        driver::bind(graph.context())?;
        let mut state = graph.hierarchy().lock();
        let mut gone = self.raw(&state)?;
        let mut new = graph.check(&state, wanted)?;
        let ends = |edge: &RawEdge| (edge.from, edge.to);
        let there: HashSet<_> = gone.iter().map(ends).collect();
        let wanted: HashSet<_> = new.iter().map(|(_, raw)| ends(raw)).collect();
        gone.retain(|edge| !wanted.contains(&ends(edge)));
        new.retain(|(_, raw)| !there.contains(&ends(raw)));
        let body = state.body_mut(graph.body_index())?;
        body.data = None;
        let raw = body.raw;
        state.remove(graph.body_index(), &gone)?;
        graph.connect(&mut state, &new).or_else(|error| {
            change(driver::graph::add_edges, raw, &gone)?;
            Err(error)
        })
    }
}
