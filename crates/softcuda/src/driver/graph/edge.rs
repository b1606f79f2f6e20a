//! Dependencies between nodes of a graph.
//!
//! Invariant: an edge is in the dependencies of the node it leads to and in the dependents of the
//! one it comes from, with the same data, and both are nodes of the same graph.

use std::collections::HashSet;

use smallvec::SmallVec;

use super::definition::{Definition, Graph, Node};
use super::operation::Kind;
use crate::abi::types::CUgraphNode;
use crate::driver::{CUresult, Result};

const INVALID: CUresult = CUresult::CUDA_ERROR_INVALID_VALUE;

/// `CU_GRAPH_DEPENDENCY_TYPE_PROGRAMMATIC`.
const PROGRAMMATIC: u8 = 1;
/// `CU_GRAPH_KERNEL_NODE_PORT_LAUNCH_ORDER`, the last of a kernel's ports.
const LAUNCH_ORDER: u8 = 2;
/// So many dependencies are looked through for duplicates pair by pair.
const FEW: usize = 16;

/// `CUgraphEdgeData`.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct EdgeData {
    /// When the dependency is met, in the node it comes from.
    pub from_port: u8,
    /// What depends, in the node it leads to.
    pub to_port: u8,
    /// `CUgraphDependencyType`.
    pub kind: u8,
    /// Zero.
    pub reserved: [u8; 5],
}

/// An edge, seen from one of its nodes.
#[derive(Clone, Copy)]
pub(crate) struct Edge {
    /// The other node.
    pub node: usize,
    /// Its data.
    pub data: EdgeData,
}

/// Edges of a node.
pub(crate) type Edges = SmallVec<[Edge; 2]>;

impl EdgeData {
    /// It is an ordinary dependency.
    pub fn is_default(&self) -> bool {
        *self == EdgeData::default()
    }

    /// It may be between nodes of these kinds; `None` is any kind.
    fn check(&self, from: Kind, to: Option<Kind>) -> Result {
        let kernels = from == Kind::Kernel && to.is_none_or(|to| to == Kind::Kernel);
        let right = match (self.kind, self.from_port) {
            (0, 0) => true,
            (0, LAUNCH_ORDER) => from == Kind::Kernel,
            (PROGRAMMATIC, 1..=LAUNCH_ORDER) => kernels,
            _ => false,
        };
        match right && self.to_port == 0 && self.reserved == [0; 5] {
            true => Ok(()),
            false => Err(INVALID),
        }
    }

    /// An edge from a node of this kind may have it.
    pub fn check_source(&self, from: Kind) -> Result {
        self.check(from, None)
    }
}

/// Checks the nodes that a new one of a kind is to depend on; of any kind where a capture adds it.
pub(super) fn check_sources(
    definition: &Definition,
    dependencies: &[Edge],
    to: Option<Kind>,
) -> Result {
    dependencies.iter().try_for_each(|edge| {
        let from = definition.nodes.get(&edge.node).ok_or(INVALID)?;
        edge.data.check(from.operation.kind(), to)
    })
}

/// The place of the first dependency that is on the same node as one before it.
fn first_duplicate(dependencies: &[Edge]) -> Option<usize> {
    let mut places = 0..dependencies.len();
    if dependencies.len() <= FEW {
        return places.find(|&at| {
            let mut before = dependencies[..at].iter();
            before.any(|edge| edge.node == dependencies[at].node)
        });
    }
    let mut seen = HashSet::new();
    places.find(|&at| !seen.insert(dependencies[at].node))
}

/// Fails where a new node would depend on another twice. An H200 has added the edges up to there
/// by then, and removes them as with a node that is destroyed.
pub(super) fn check_distinct(definition: &mut Definition, dependencies: &[Edge]) -> Result {
    let Some(added) = first_duplicate(dependencies) else {
        return Ok(());
    };
    become_exits(definition, in_order_of_removal(&dependencies[..added]));
    Err(INVALID)
}

/// A new node fails after an H200 has added its edges, which it removes.
pub(super) fn add_and_remove(definition: &mut Definition, dependencies: &[Edge]) {
    if check_distinct(definition, dependencies).is_ok() {
        become_exits(definition, in_order_of_removal(dependencies));
    }
}

/// What these edges come from was no exit for a moment, unless it goes on to be none.
pub(super) fn become_exits<'a>(definition: &mut Definition, edges: impl Iterator<Item = &'a Edge>) {
    for edge in edges {
        let since = definition.next_end();
        if let Some(from) = definition.nodes.get_mut(&edge.node) {
            from.exit_since = since;
        }
    }
}

/// Edges in the order in which an H200 removes them all: the last takes the place of the first,
/// time and again.
pub(super) fn in_order_of_removal(edges: &[Edge]) -> impl Iterator<Item = &Edge> {
    let (first, rest) = edges.split_at(edges.len().min(1));
    first.iter().chain(rest.iter().rev())
}

/// Takes an edge out of a list: the last comes in its place, as on an H200.
fn take(edges: &mut Edges, node: usize) {
    if let Some(place) = find(edges, node) {
        edges.swap_remove(place);
    }
}

fn find(edges: &Edges, node: usize) -> Option<usize> {
    edges.iter().position(|edge| edge.node == node)
}

/// The two nodes of an edge that is or may be.
fn ends(definition: &Definition, from: usize, to: usize) -> Result<(&Node, &Node)> {
    let node = |handle| definition.nodes.get(&handle).ok_or(INVALID);
    Ok((node(from)?, node(to)?))
}

fn exists(definition: &Definition, from: usize, to: usize) -> Result<bool> {
    let (source, target) = ends(definition, from, to)?;
    // The shorter list, so that neither a node with many dependents nor one with many dependencies
    // costs much.
    Ok(match source.dependents.len() < target.dependencies.len() {
        true => find(&source.dependents, to).is_some(),
        false => find(&target.dependencies, from).is_some(),
    })
}

fn insert(definition: &mut Definition, from: usize, to: usize, data: EdgeData) -> Result {
    let (source, target) = ends(definition, from, to)?;
    data.check(source.operation.kind(), Some(target.operation.kind()))?;
    if from == to || exists(definition, from, to)? {
        return Err(INVALID);
    }
    if let Some(source) = definition.nodes.get_mut(&from) {
        source.dependents.push(Edge { node: to, data });
    }
    if let Some(target) = definition.nodes.get_mut(&to) {
        target.dependencies.push(Edge { node: from, data });
    }
    Ok(())
}

/// Removes an edge, also where one of its nodes is gone already.
pub(super) fn remove(definition: &mut Definition, from: usize, to: usize) {
    let mut take_from = |handle: usize, other: usize, dependents: bool| {
        let now = definition.next_end();
        if let Some(node) = definition.nodes.get_mut(&handle) {
            let (edges, since) = match dependents {
                true => (&mut node.dependents, &mut node.exit_since),
                false => (&mut node.dependencies, &mut node.root_since),
            };
            *since = now;
            take(edges, other);
        }
    };
    take_from(from, to, true);
    take_from(to, from, false);
}

/// A pair of nodes and the data of the edge between them.
pub(crate) type Pair = (CUgraphNode, CUgraphNode, EdgeData);

impl Graph {
    /// `cuGraphAddDependencies`: none where one cannot be; where one is there already, those before
    /// it. So an H200 does.
    pub fn add_dependencies(&self, pairs: &[Pair]) -> Result {
        self.edit(|definition| {
            for &(from, to, data) in pairs {
                let (source, target) = ends(definition, from.0, to.0)?;
                data.check(source.operation.kind(), Some(target.operation.kind()))?;
                if from.0 == to.0 {
                    return Err(INVALID);
                }
            }
            pairs
                .iter()
                .try_for_each(|&(from, to, data)| insert(definition, from.0, to.0, data))
        })
    }

    /// `cuGraphRemoveDependencies`: none where one cannot be, and otherwise those before the first
    /// that is not there, whatever their data. So an H200 does.
    pub fn remove_dependencies(&self, pairs: &[Pair]) -> Result {
        self.edit(|definition| {
            if pairs.is_empty() {
                return Ok(());
            }
            if definition.has_memory_nodes() {
                return Err(CUresult::CUDA_ERROR_NOT_SUPPORTED);
            }
            for &(from, to, _) in pairs {
                ends(definition, from.0, to.0)?;
                if from.0 == to.0 {
                    return Err(INVALID);
                }
            }
            for &(from, to, _) in pairs {
                if !exists(definition, from.0, to.0)? {
                    return Err(INVALID);
                }
                remove(definition, from.0, to.0);
            }
            Ok(())
        })
    }

    /// `cuGraphGetEdges`, in the order of the nodes they come from.
    pub fn edges(&self) -> Result<Vec<Pair>> {
        self.read(|definition| {
            let all = definition.nodes.iter().flat_map(|(&from, node)| {
                let edges = node.dependents.iter();
                edges.map(move |edge| (CUgraphNode(from), CUgraphNode(edge.node), edge.data))
            });
            Ok(all.collect())
        })
    }
}
