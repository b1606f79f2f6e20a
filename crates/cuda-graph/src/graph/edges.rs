//! Edges.
//!
//! What the driver accepts and later fails on, a cycle, is refused here, and what it refuses is named (L2).

use std::collections::HashSet;

use cudarc::driver::sys::{CUgraphEdgeData, CUgraphNode};
use smallvec::SmallVec;

use super::state::{Body, State};
use super::{Graph, NodeId, NodeSet};
use crate::driver::graph::{PLAIN, RawEdge};
use crate::{Error, Result, driver};

/// What an edge waits for.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct EdgeData {
    /// Which point of the first node's run: 0 its end, 1 its trigger of dependents, 2 the start of all its blocks; 1 and 2 for kernels.
    pub from_port: u8,
    /// Reserved by the driver: 0.
    pub to_port: u8,
    /// The second kernel may start early and waits by itself.
    pub programmatic: bool,
}

impl EdgeData {
    /// A programmatic dependency: the second kernel starts when the first triggers it, and synchronizes by itself.
    pub fn programmatic() -> EdgeData {
        EdgeData {
            from_port: 1,
            to_port: 0,
            programmatic: true,
        }
    }

    fn to_driver(self) -> CUgraphEdgeData {
        CUgraphEdgeData {
            from_port: self.from_port,
            to_port: self.to_port,
            type_: u8::from(self.programmatic),
            ..PLAIN
        }
    }

    fn from_driver(data: CUgraphEdgeData) -> EdgeData {
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

/// An edge by numbers and by the driver's handles.
#[derive(Clone, Copy)]
struct Checked {
    from: u32,
    to: u32,
    raw: RawEdge,
}

impl Graph {
    /// Every edge.
    pub fn edges(&self) -> Result<Vec<Edge>> {
        let mut state = self.hierarchy().lock();
        let raw = driver::graph::edges(state.body(self.body_index())?.raw)?;
        raw.into_iter()
            .map(|edge| {
                let body = state.body_mut(self.body_index())?;
                let (from, to) = (body.number(edge.from)?, body.number(edge.to)?);
                Ok(Edge {
                    from: self.id(&state, from),
                    to: self.id(&state, to),
                    data: EdgeData::from_driver(edge.data),
                })
            })
            .collect()
    }

    /// Has `to` wait for `from`.
    ///
    /// # Errors
    ///
    /// [`Error::SelfEdge`], [`Error::DuplicateEdge`], [`Error::Cycle`], [`Error::ForeignNode`], [`Error::NodeGone`].
    pub fn add_edge(&self, from: impl Into<NodeId>, to: impl Into<NodeId>) -> Result<()> {
        self.add_edges([Edge {
            from: from.into(),
            to: to.into(),
            data: EdgeData::default(),
        }])
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

    /// Removes edges, all or none, in one call of the driver. An edge that is given twice counts once.
    ///
    /// # Errors
    ///
    /// As [`remove_edge`](Graph::remove_edge).
    pub fn remove_edges(&self, edges: impl IntoIterator<Item = (NodeId, NodeId)>) -> Result<()> {
        let edge = |(from, to)| Edge {
            from,
            to,
            data: EdgeData::default(),
        };
        let mut edges: Vec<Edge> = edges.into_iter().map(edge).collect();
        let mut seen = HashSet::new();
        edges.retain(|edge| seen.insert((edge.from, edge.to)));
        driver::bind(self.context())?;
        let state = self.hierarchy().lock();
        let mut checked = self.check(&state, edges)?;
        let body = state.body(self.body_index())?;
        // The driver wants the data that the edge has.
        for edge in &mut checked {
            let there = driver::graph::predecessors(edge.raw.to)?;
            match there.iter().find(|(from, _)| *from == edge.raw.from) {
                Some((_, data)) => edge.raw.data = *data,
                None => {
                    return Err(Error::NoEdge {
                        from: Box::new(body.name(edge.from)),
                        to: Box::new(body.name(edge.to)),
                    });
                }
            }
        }
        let raw: Vec<RawEdge> = checked.iter().map(|edge| edge.raw).collect();
        disconnect(body, &raw)
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
            graph: self,
            node: node.into(),
            before: false,
        }
    }

    /// The edges with the driver's handles; none is from a node to itself, and none is there twice.
    fn check(&self, state: &State, edges: impl IntoIterator<Item = Edge>) -> Result<Vec<Checked>> {
        let body = state.body(self.body_index())?;
        let mut seen = HashSet::new();
        let mut checked = Vec::new();
        for edge in edges {
            let from = body.resolve(self.hierarchy().id, self.body_index(), edge.from)?;
            let to = body.resolve(self.hierarchy().id, self.body_index(), edge.to)?;
            let name = |node: NodeId| Box::new(body.name(node.index));
            if from == to {
                return Err(Error::SelfEdge {
                    node: name(edge.to),
                });
            }
            if !seen.insert((edge.from.index, edge.to.index)) {
                return Err(Error::DuplicateEdge {
                    from: name(edge.from),
                    to: name(edge.to),
                });
            }
            checked.push(Checked {
                from: edge.from.index,
                to: edge.to.index,
                raw: RawEdge {
                    from,
                    to,
                    data: edge.data.to_driver(),
                },
            });
        }
        Ok(checked)
    }

    /// Adds checked edges unless one is there already or they close a cycle.
    fn connect(&self, state: &mut State, edges: &[Checked]) -> Result<()> {
        if edges.is_empty() {
            return Ok(());
        }
        let body = state.body_mut(self.body_index())?;
        let mut last: Option<(CUgraphNode, Vec<(CUgraphNode, CUgraphEdgeData)>)> = None;
        for edge in edges {
            let there = match &last {
                Some((to, there)) if *to == edge.raw.to => there,
                _ => {
                    &last
                        .insert((edge.raw.to, driver::graph::predecessors(edge.raw.to)?))
                        .1
                }
            };
            if there.iter().any(|(from, _)| *from == edge.raw.from) {
                return Err(Error::DuplicateEdge {
                    from: Box::new(body.name(edge.from)),
                    to: Box::new(body.name(edge.to)),
                });
            }
        }
        let ascending = edges.iter().all(|edge| edge.from < edge.to);
        if !(ascending && body.ascending) {
            acyclic(body, edges)?;
        }
        let from: Vec<CUgraphNode> = edges.iter().map(|edge| edge.raw.from).collect();
        let to: Vec<CUgraphNode> = edges.iter().map(|edge| edge.raw.to).collect();
        let data: Vec<CUgraphEdgeData> = edges.iter().map(|edge| edge.raw.data).collect();
        driver::graph::add_edges(body.raw, &from, &to, &data)
            .map_err(|error| error.about(body.name(edges[0].to), "adding edges to"))?;
        body.ascending &= ascending;
        Ok(())
    }
}

fn disconnect(body: &Body, edges: &[RawEdge]) -> Result<()> {
    if edges.is_empty() {
        return Ok(());
    }
    let from: Vec<CUgraphNode> = edges.iter().map(|edge| edge.from).collect();
    let to: Vec<CUgraphNode> = edges.iter().map(|edge| edge.to).collect();
    let data: Vec<CUgraphEdgeData> = edges.iter().map(|edge| edge.data).collect();
    driver::graph::remove_edges(body.raw, &from, &to, &data)
}

/// Whether the graph with these edges has no cycle. Those it has already close none, so a cycle goes through a new one.
fn acyclic(body: &mut Body, new: &[Checked]) -> Result<()> {
    let mut after: Vec<SmallVec<[u32; 4]>> = Vec::new();
    let mut connect = |from: u32, to: u32| {
        let size = from.max(to) as usize + 1;
        if after.len() < size {
            after.resize(size, SmallVec::new());
        }
        after[from as usize].push(to);
    };
    for edge in driver::graph::edges(body.raw)? {
        connect(body.number(edge.from)?, body.number(edge.to)?);
    }
    for edge in new {
        connect(edge.from, edge.to);
    }
    for edge in new {
        if reaches(&after, edge.to, edge.from) {
            return Err(Error::Cycle {
                from: Box::new(body.name(edge.from)),
                to: Box::new(body.name(edge.to)),
            });
        }
    }
    Ok(())
}

fn reaches(after: &[SmallVec<[u32; 4]>], from: u32, to: u32) -> bool {
    let mut seen = vec![false; after.len()];
    let mut next = vec![from];
    while let Some(node) = next.pop() {
        if node == to {
            return true;
        }
        if std::mem::replace(&mut seen[node as usize], true) {
            continue;
        }
        next.extend(after[node as usize].iter().copied());
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
    fn edge(&self, other: NodeId, data: EdgeData) -> Edge {
        let (from, to) = if self.before {
            (other, self.node)
        } else {
            (self.node, other)
        };
        Edge { from, to, data }
    }

    fn raw(&self, state: &State) -> Result<Vec<(CUgraphNode, CUgraphEdgeData)>> {
        let graph = self.graph;
        let body = state.body(graph.body_index())?;
        let raw = body.resolve(graph.hierarchy().id, graph.body_index(), self.node)?;
        if self.before {
            driver::graph::predecessors(raw)
        } else {
            driver::graph::successors(raw)
        }
    }

    /// The edges.
    pub fn edges(&self) -> Result<Vec<Edge>> {
        let mut state = self.graph.hierarchy().lock();
        let raw = self.raw(&state)?;
        raw.into_iter()
            .map(|(node, data)| {
                let index = state.body_mut(self.graph.body_index())?.number(node)?;
                Ok(self.edge(self.graph.id(&state, index), EdgeData::from_driver(data)))
            })
            .collect()
    }

    /// The nodes.
    pub fn list(&self) -> Result<Vec<NodeId>> {
        let side = |edge: Edge| if self.before { edge.from } else { edge.to };
        Ok(self.edges()?.into_iter().map(side).collect())
    }

    /// How many there are.
    pub fn len(&self) -> Result<usize> {
        Ok(self.raw(&self.graph.hierarchy().lock())?.len())
    }

    /// Whether there is none.
    pub fn is_empty(&self) -> Result<bool> {
        Ok(self.len()? == 0)
    }

    /// Whether `node` is one.
    pub fn contains(&self, node: impl Into<NodeId>) -> Result<bool> {
        let node = node.into();
        Ok(self.list()?.contains(&node))
    }

    /// Adds nodes, all or none, in one call of the driver.
    ///
    /// # Errors
    ///
    /// As [`Graph::add_edge`].
    pub fn add(&self, nodes: impl NodeSet) -> Result<()> {
        self.add_with(nodes, EdgeData::default())
    }

    /// Adds nodes with edges that carry `data`.
    ///
    /// # Errors
    ///
    /// As [`Graph::add_edge`].
    pub fn add_with(&self, nodes: impl NodeSet, data: EdgeData) -> Result<()> {
        let mut list = Vec::new();
        nodes.each(&mut |node| list.push(node));
        self.graph
            .add_edges(list.into_iter().map(|node| self.edge(node, data)))
    }

    /// Removes nodes, all or none, in one call of the driver. A node that is given twice counts once.
    ///
    /// # Errors
    ///
    /// As [`Graph::remove_edge`].
    pub fn remove(&self, nodes: impl NodeSet) -> Result<()> {
        let mut list = Vec::new();
        nodes.each(&mut |node| list.push(node));
        self.graph.remove_edges(list.into_iter().map(|node| {
            let edge = self.edge(node, EdgeData::default());
            (edge.from, edge.to)
        }))
    }

    /// Makes these the nodes: one call of the driver removes edges, one adds them, each only where there are some. Edges that stay keep
    /// their data. On an error, the edges are what they were.
    ///
    /// # Errors
    ///
    /// As [`Graph::add_edge`].
    pub fn set(&self, nodes: impl NodeSet) -> Result<()> {
        let graph = self.graph;
        let mut list = Vec::new();
        nodes.each(&mut |node| list.push(node));
        driver::bind(graph.context())?;
        let mut state = graph.hierarchy().lock();
        let there = self.raw(&state)?;
        let wanted = graph.check(
            &state,
            list.into_iter()
                .map(|node| self.edge(node, EdgeData::default())),
        )?;
        let other = |edge: &Checked| {
            if self.before {
                edge.raw.from
            } else {
                edge.raw.to
            }
        };
        let body = state.body(graph.body_index())?;
        let this = body.resolve(graph.hierarchy().id, graph.body_index(), self.node)?;
        let gone: Vec<RawEdge> = there
            .iter()
            .filter(|(node, _)| wanted.iter().all(|edge| other(edge) != *node))
            .map(|&(node, data)| {
                let (from, to) = if self.before {
                    (node, this)
                } else {
                    (this, node)
                };
                RawEdge { from, to, data }
            })
            .collect();
        let new: Vec<Checked> = wanted
            .into_iter()
            .filter(|edge| there.iter().all(|(node, _)| other(edge) != *node))
            .collect();
        disconnect(body, &gone)?;
        if let Err(error) = graph.connect(&mut state, &new) {
            let from: Vec<CUgraphNode> = gone.iter().map(|edge| edge.from).collect();
            let to: Vec<CUgraphNode> = gone.iter().map(|edge| edge.to).collect();
            let data: Vec<CUgraphEdgeData> = gone.iter().map(|edge| edge.data).collect();
            if !gone.is_empty() {
                driver::graph::add_edges(state.body(graph.body_index())?.raw, &from, &to, &data)?;
            }
            return Err(error);
        }
        Ok(())
    }

    /// Removes all of them.
    pub fn clear(&self) -> Result<()> {
        self.set(())
    }
}
