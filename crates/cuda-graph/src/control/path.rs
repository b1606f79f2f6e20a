//! A cursor in a graph.

use std::fmt;
use std::sync::Arc;

use cudarc::driver::{CudaContext, CudaStream};
use smallvec::SmallVec;

use super::conditional::{self, Builds};
use super::{Body, Flow, Recorder, Records, branches, control_flow};
use crate::graph::{After, Graph, InTurn, Node, NodeId, NodeSet};
use crate::op::{AnyOp, Operation};
use crate::{Owner, Result};

/// A way through a graph: each operation recorded is a node that waits for the one before.
///
/// It may go through a graph that has other nodes, start from some of them, and go on where another one ended.
///
/// ```
/// # use cuda_graph::{Buffer, CopyOp, FillOp, Graph, Path};
/// # let device = cuda_graph::device(0)?;
/// # let stream = device.context().default_stream();
/// # let (a, b) = (Buffer::<u32>::zeroed(&stream, 8)?, Buffer::<u32>::zeroed(&stream, 8)?);
/// let graph = Graph::new(device.context())?;
/// let mut path = Path::new(&graph);
/// let fill = path.record(FillOp::new(&a, 7u32)?)?;
/// let copy = path.record(CopyOp::new(&b, &a)?)?;
/// assert_eq!(graph.predecessors(copy).list()?, [fill.id()]);
/// # Ok::<(), cuda_graph::Error>(())
/// ```
pub struct Path {
    graph: Graph,
    after: SmallVec<[NodeId; 4]>,
    in_turn: InTurn,
}

impl Path {
    /// A path that starts at the beginning of `graph`.
    pub fn new(graph: &Graph) -> Path {
        Path {
            graph: Graph::from_view(graph.view()),
            after: SmallVec::new(),
            in_turn: InTurn::default(),
        }
    }

    /// A path that starts after `nodes` of `graph`.
    pub fn after(graph: &Graph, nodes: impl NodeSet) -> Path {
        let mut path = Path::new(graph);
        path.go_on_after(nodes);
        path
    }

    /// The graph.
    pub fn graph(&self) -> &Graph {
        &self.graph
    }

    /// The nodes that the next operation waits for: those at the end of the path.
    pub fn ends(&self) -> &[NodeId] {
        &self.after
    }

    /// Has the next operation wait for `nodes` alone. Those of another graph are refused when it is recorded.
    pub fn go_on_after(&mut self, nodes: impl NodeSet) {
        let mut ids = SmallVec::new();
        nodes.add_to(&mut ids);
        self.after = ids.into_iter().collect();
    }

    /// Adds a node that does `op` after the ones at the end of the path.
    ///
    /// # Errors
    ///
    /// As [`Graph::add`].
    pub fn record<O: Operation>(&mut self, op: O) -> Result<Node<O>> {
        self.add(op.into_any()).map(Node::new)
    }

    control_flow!();
    branches!();

    /// Has each branch be recorded by `record` from here on, and goes on after all of them.
    pub(super) fn branch_out(
        &mut self,
        branches: &mut [&mut Body<'_>],
        mut record: impl FnMut(&mut Path, &mut Body<'_>) -> Result<()>,
    ) -> Result<()> {
        let start = self.after.clone();
        let mut ends: SmallVec<[NodeId; 4]> = SmallVec::new();
        let mut in_turn = InTurn::default();
        let recorded = branches.iter_mut().try_for_each(|branch| {
            let mut side = Side {
                path: Path::after(&self.graph, start.as_slice()),
                start: &start,
                ends: &mut ends,
                after: &mut self.after,
            };
            let recorded = record(&mut side.path, branch);
            recorded.and(in_turn.chain(&self.graph, side.path.in_turn))
        });
        self.in_turn.append(in_turn);
        recorded
    }

    /// Goes on with a copy of every node of `graph`.
    pub(super) fn transplant(&mut self, graph: &Graph) -> Result<()> {
        let ends = self.graph.transplant(graph, &self.after)?;
        if !ends.is_empty() {
            self.after = ends;
        }
        Ok(())
    }
}

impl Recorder for Path {
    fn context(&self) -> &Arc<CudaContext> {
        self.graph.context()
    }

    fn stream(&self) -> Option<&Arc<CudaStream>> {
        None
    }

    fn keep(&mut self, owner: Owner) -> Result<()> {
        self.graph.keep(owner)
    }
}

impl Records for Path {
    fn put(&mut self, op: AnyOp) -> Result<Option<NodeId>> {
        self.add(op).map(Some)
    }

    fn put_branches(&mut self, branches: &mut [&mut Body<'_>]) -> Result<()> {
        self.branch_out(branches, |path, branch| branch(path))
    }

    fn put_flow(&mut self, flow: &Flow<'_>, bodies: &mut [&mut Body<'_>]) -> Result<()> {
        conditional::record(self, flow, bodies)
    }
}

/// A branch that is recorded. What it recorded is waited for, whatever becomes of the rest: of an error, or a panic.
struct Side<'a> {
    path: Path,
    /// Where all branches start, and a branch of nothing ends.
    start: &'a [NodeId],
    /// Where the branches before end.
    ends: &'a mut SmallVec<[NodeId; 4]>,
    after: &'a mut SmallVec<[NodeId; 4]>,
}

impl Drop for Side<'_> {
    fn drop(&mut self) {
        if self.path.after.as_slice() != self.start {
            self.ends.append(&mut self.path.after);
            *self.after = self.ends.clone();
        }
    }
}

impl Builds for Path {
    type Mark = SmallVec<[NodeId; 4]>;

    fn graph(&self) -> Graph {
        Graph::from_view(self.graph.view())
    }

    fn mark(&self) -> Result<Self::Mark> {
        Ok(self.after.clone())
    }

    fn in_turn(&mut self) -> &mut InTurn {
        &mut self.in_turn
    }

    fn add(&mut self, op: AnyOp) -> Result<NodeId> {
        let (node, _) = self.graph.insert(op, After::Nodes(&self.after))?;
        self.after.clear();
        self.after.push(node);
        Ok(node)
    }

    fn take_back(&mut self, nodes: &[NodeId], mark: Self::Mark) -> Result<()> {
        self.after = mark;
        let destroyed = nodes.iter().rev().map(|&node| self.graph.destroy(node));
        // All of them, whatever becomes of one.
        destroyed.fold(Ok(()), Result::and)
    }

    fn fill(&mut self, path: &mut Path, _: &Flow<'_>, fill: &mut Body<'_>) -> Result<()> {
        fill(path)
    }
}

impl fmt::Debug for Path {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "Path in {:?} that goes on after {:?}",
            self.graph, self.after
        )
    }
}
