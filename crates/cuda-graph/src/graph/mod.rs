//! Definitions: graphs, their nodes, their edges.

pub(crate) mod checkpoints;
mod child;
mod child_op;
mod condition;
mod conditional;
pub(crate) mod content;
pub(crate) mod data_order;
pub(crate) mod diff;
mod edges;
mod ends;
pub(crate) mod graphs;
mod insert;
pub(crate) mod lock;
mod node;
pub(crate) mod operation;
mod raw;
pub(crate) mod setter;
pub(crate) mod shape;
pub(crate) mod state;
mod turns;

use std::cell::Cell;
use std::fmt;
use std::marker::PhantomData;
use std::sync::Arc;

use cudarc::driver::CudaContext;
use cudarc::driver::sys::{CUgraph, CUgraphNode};

pub use checkpoints::Checkpoints;
pub use child_op::ChildOp;
pub use condition::Condition;
pub(crate) use conditional::need as need_conditional;
pub use conditional::{Conditional, IfElseOp, IfOp, SwitchOp, WhileOp};
pub use edges::{Edge, EdgeData, Neighbours};
pub(crate) use insert::Slot;
pub use node::{Node, NodeId, NodeSet};
pub use operation::{AnyOp, Operation};

use crate::error::{NodeKind, NodeName};
use crate::memory::RawMemory;
use crate::op::{AllocOp, Op, stays_with};
use crate::{Error, Owner, Result, driver};
use content::Content;
use insert::content_of;
use state::{Body, Hierarchy, State, check};

/// A graph: a definition to inspect, edit and instantiate, or a view of one embedded in another.
///
/// Every node holds what its operation uses; nothing else need be kept alive. A view keeps the root
/// alive; when the node that it is embedded in is destroyed, it answers [`Error::GraphGone`].
///
/// ```
/// # use cuda_graph::{Buffer, CopyOp, FillOp, Graph};
/// let device = cuda_graph::device(0)?;
/// let stream = device.context().default_stream();
/// let (a, b) = (Buffer::<u32>::zeroed(&stream, 8)?, Buffer::<u32>::zeroed(&stream, 8)?);
///
/// let graph = Graph::new(device.context())?;
/// let fill = graph.add(FillOp::new(&a, 7u32)?.label("sevens"), ())?;
/// let copy = graph.add(CopyOp::new(&b, &a)?, fill)?;
/// assert_eq!(graph.predecessors(copy).list()?, [fill.id()]);
///
/// let mut exec = graph.instantiate()?;
/// exec.launch(&stream)?;
/// assert_eq!(b.to_host(&stream)?, [7; 8]);
/// # Ok::<(), cuda_graph::Error>(())
/// ```
///
/// It moves between threads, and is used by one at a time, because the driver does not lock graphs:
///
/// ```
/// fn sendable<T: Send>() {}
/// sendable::<cuda_graph::Graph>();
/// sendable::<cuda_graph::Exec>();
/// ```
/// ```compile_fail,E0277
/// fn shareable<T: Sync>() {}
/// shareable::<cuda_graph::Graph>();
/// ```
pub struct Graph {
    view: View,
    not_sync: PhantomData<Cell<()>>,
}

/// A graph of a hierarchy. What its nodes use is kept.
pub(crate) struct View {
    pub hierarchy: Arc<Hierarchy>,
    pub body: u32,
}

impl View {
    fn new(hierarchy: Arc<Hierarchy>, body: u32) -> View {
        hierarchy.retain();
        View { hierarchy, body }
    }

    /// Whether both are views of one graph.
    pub(crate) fn is_same(&self, other: &View) -> bool {
        Arc::ptr_eq(&self.hierarchy, &other.hierarchy) && self.body == other.body
    }
}

impl Clone for View {
    fn clone(&self) -> View {
        View::new(self.hierarchy.clone(), self.body)
    }
}

impl Drop for View {
    fn drop(&mut self) {
        self.hierarchy.release();
    }
}

impl fmt::Debug for View {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.body {
            0 => write!(f, "graph {}", self.hierarchy.id),
            body => write!(f, "graph {}.{body}", self.hierarchy.id),
        }
    }
}

impl Graph {
    /// An empty graph, whose operations run on the device of `context`.
    pub fn new(context: &Arc<CudaContext>) -> Result<Graph> {
        driver::choose()?;
        driver::bind_some(context)?;
        let raw = driver::graph::create()?;
        let hierarchy = Hierarchy::viewed(context.clone(), raw, true, true);
        Ok(Graph::from_view(View { hierarchy, body: 0 }))
    }

    /// A root for the driver's graph `raw`, which goes with it if it is `owned`.
    pub(crate) fn of_raw(context: &Arc<CudaContext>, raw: CUgraph, owned: bool) -> Graph {
        let hierarchy = Hierarchy::viewed(context.clone(), raw, owned, false);
        Graph::from_view(View { hierarchy, body: 0 })
    }

    pub(crate) fn from_view(view: View) -> Graph {
        Graph {
            view,
            not_sync: PhantomData,
        }
    }

    pub(crate) fn view(&self) -> View {
        self.view.clone()
    }

    pub(crate) fn hierarchy(&self) -> &Arc<Hierarchy> {
        &self.view.hierarchy
    }

    pub(crate) fn body_index(&self) -> u32 {
        self.view.body
    }

    /// The context whose device runs it.
    pub fn context(&self) -> &Arc<CudaContext> {
        &self.hierarchy().context
    }

    /// This graph in `state`, and the driver's handle of a node, if that is one of this graph's.
    fn find<'s>(&self, state: &'s State, node: NodeId) -> Result<(&'s Body, CUgraphNode)> {
        let body = state.body(self.view.body)?;
        let raw = body.resolve(self.hierarchy().id, self.view.body, node)?;
        Ok((body, raw))
    }

    /// The node that the driver calls `raw`.
    fn node_of(&self, state: &mut State, raw: CUgraphNode) -> Result<NodeId> {
        let body = state.body_mut(self.view.body)?;
        let index = body.number(raw)?;
        Ok(self.id_of(index, body.kind(index)))
    }

    #[inline]
    pub(crate) fn id_of(&self, index: u32, kind: NodeKind) -> NodeId {
        NodeId {
            hierarchy: self.hierarchy().id,
            body: self.view.body,
            index,
            kind,
        }
    }

    /// Adds a node that does `op` after the nodes `after`.
    ///
    /// The node and the hold on what its operation uses appear together or not at all.
    ///
    /// # Errors
    ///
    /// About `after`: [`Error::ForeignNode`], [`Error::NodeGone`] and [`Error::DuplicateNode`].
    /// About `op`: [`Error::SelfEmbed`] for a child that is this graph or contains it,
    /// [`Error::Unowned`], [`Error::ForeignCondition`], [`Error::NotInBody`]. Otherwise what the
    /// driver answers, with the operation's name.
    // Inlined, because the node would be written in pieces and read back at once, which stalls.
    #[inline(always)]
    pub fn add<O: Operation>(&self, op: O, after: impl NodeSet) -> Result<Node<O>> {
        let kind = op.kind();
        let index = self.insert(op, self.resolve_all(&after))?;
        Ok(Node::new(self.id_of(index, kind)))
    }

    /// Makes a node do `op` from now on. Executables made before, and their launches, stay as they
    /// are.
    ///
    /// # Errors
    ///
    /// [`Error::WrongKind`] if the node is of another kind, [`Error::ConditionalFixed`]. Otherwise
    /// as [`add`](Graph::add). After an error the node does what it did.
    pub fn update<O: Operation>(&self, node: Node<O>, op: O) -> Result<()> {
        let op = op.into_any();
        let id = node.id();
        if op.kind() != id.kind {
            return Err(Error::WrongKind {
                is: id.kind,
                wanted: op.kind(),
            });
        }
        driver::bind(self.context())?;
        if let AnyOp::Child(child) = &op {
            return self.embed_again(id, child);
        }
        // On an error, `op` goes after unlocking: dropping what it holds runs user code.
        let mut state = self.hierarchy().lock();
        check(self.hierarchy().id, &op, || {
            state.is_in_body(self.view.body)
        })?;
        let (body, raw) = self.find(&state, id)?;
        let old = body.content(id.index).and_then(Content::op);
        if let Some(old) = old
            && !stays_with(&op, old)
        {
            let node = Box::new(body.name(id.index));
            return Err(Error::CommunicatorFixed { node });
        }
        if let Err(error) = op.set(self.context(), raw, old) {
            // Some of it may have been set. Unless all is as before, the new version is held too.
            let restored = match old {
                Some(old) => old.set(self.context(), raw, Some(&op)).is_ok(),
                None => op.kind() != NodeKind::Kernel,
            };
            let error = error.about(body.name(id.index), "updating");
            if !restored {
                let lingering = &mut state.body_mut(self.view.body)?.lingering;
                lingering.extend_from_slice(op.owners());
            }
            return Err(error);
        }
        state.replace(self.view.body, id.index, content_of(op, raw));
        Ok(())
    }

    /// Views of the graphs inside a node.
    pub(crate) fn views(&self, id: NodeId) -> Result<Vec<Graph>> {
        let mut state = self.hierarchy().lock();
        self.find(&state, id)?;
        if id.kind == NodeKind::Child {
            state.child(self.view.body, id.index)?;
        }
        let inside = state.body(self.view.body)?.inside(id.index);
        Ok(inside.map(|body| self.view_of(body)).collect())
    }

    /// What a node does.
    ///
    /// For a node that other code made, or that was added from raw parameters, it is read from the
    /// driver. Nobody holds what such an operation uses, so it describes the node and cannot be
    /// added again ([`Error::Unowned`]), unless the caller takes responsibility with the unsafe
    /// `assume_owned`.
    pub fn op<O: Operation>(&self, node: Node<O>) -> Result<O> {
        let op = self.any_op(node.id())?;
        let (is, wanted) = (op.kind(), node.id().kind);
        O::from_any(op).ok_or_else(|| match is == wanted {
            // Conditional nodes are of one kind, and four types.
            true => Error::WrongBranching {
                node: Box::new(self.name(node)),
            },
            false => Error::WrongKind { is, wanted },
        })
    }

    /// What a node of any kind does, as [`op`](Graph::op) tells.
    pub fn any_op(&self, node: impl Into<NodeId>) -> Result<AnyOp> {
        let id = node.into();
        let mut state = self.hierarchy().lock();
        let (body, raw) = self.find(&state, id)?;
        let content = body.content(id.index).ok_or(Error::GraphGone)?;
        if let Some(op) = content.op() {
            return Ok(op.clone());
        }
        let tag = content.tag().clone();
        if body.kind(id.index) == NodeKind::Child {
            let child = state.child(self.view.body, id.index)?;
            return Ok(ChildOp::of(self.view_of(child).view(), tag).into());
        }
        let mut op = AnyOp::read(raw)?;
        op.tag_mut().take_name_of(&tag);
        Ok(op)
    }

    /// The memory that an allocation node allocates. It lies there from when the node has run to
    /// when it is freed.
    ///
    /// ```
    /// # use cuda_graph::{AllocOp, Buffer, CopyOp, FillOp, FreeOp, Graph, MemoryLocation};
    /// # let device = cuda_graph::device(0)?;
    /// # let stream = device.context().default_stream();
    /// let result = Buffer::<u32>::zeroed(&stream, 4)?;
    /// let graph = Graph::new(device.context())?;
    /// let alloc = graph.add(AllocOp::new(MemoryLocation::Device(0), 16), ())?;
    /// // SAFETY: what uses the memory runs after `alloc` and before the node that frees it.
    /// let memory = unsafe { graph.allocation(alloc) }?;
    /// let fill = graph.add(FillOp::pattern(&memory, 7u32)?, alloc)?;
    /// let copy = graph.add(CopyOp::new(&result, &memory)?, fill)?;
    /// graph.add(FreeOp::new(&memory), copy)?;
    /// graph.instantiate()?.launch(&stream)?;
    /// assert_eq!(result.to_host(&stream)?, [7; 4]);
    /// # Ok::<(), cuda_graph::Error>(())
    /// ```
    ///
    /// # Safety
    ///
    /// Other than freed, the memory is used only while it lies there: it holds nothing, and once
    /// the graph and its executables are gone, the address may be another allocation's.
    pub unsafe fn allocation(&self, node: Node<AllocOp>) -> Result<RawMemory> {
        let mut op = self.op(node)?;
        if op.address().is_none() {
            // It could not be asked for when the node was made.
            op = AllocOp::read(self.find(&self.hierarchy().look(), node.id())?.1)?;
        }
        // SAFETY: by this function's contract.
        unsafe { op.memory() }.ok_or_else(|| Error::NodeGone {
            node: Box::new(self.name(node)),
        })
    }

    /// What errors call a node.
    pub fn name(&self, node: impl Into<NodeId>) -> NodeName {
        let id = node.into();
        let state = self.hierarchy().lock();
        let body = state.bodies.get(id.body);
        let body = body.filter(|_| id.hierarchy == self.hierarchy().id);
        match body.and_then(|body| body.content(id.index)) {
            Some(content) => content.name(id.index),
            None => NodeName::of_kind(id.kind, id.index),
        }
    }

    /// Destroys a node, with its edges and what is embedded in it. Executables made before run it
    /// on, and no longer update it.
    pub fn destroy(&self, node: impl Into<NodeId>) -> Result<()> {
        let id = node.into();
        driver::bind(self.context())?;
        let mut state = self.hierarchy().lock();
        self.find(&state, id)?;
        // Conditional nodes inside go one by one, so that the driver has their conditions back.
        for (body, index) in state.conditionals_at(self.view.body, id.index) {
            state.destroy(body, index)?;
        }
        Ok(())
    }

    /// Every node.
    pub fn nodes(&self) -> Result<Vec<NodeId>> {
        self.list(driver::graph::nodes)
    }

    /// The nodes that wait for none.
    pub fn roots(&self) -> Result<Vec<NodeId>> {
        self.list(driver::graph::roots)
    }

    fn list(&self, list: fn(CUgraph) -> Result<Vec<CUgraphNode>>) -> Result<Vec<NodeId>> {
        let mut state = self.hierarchy().lock();
        let raw = list(state.body(self.view.body)?.raw)?.into_iter();
        raw.map(|raw| self.node_of(&mut state, raw)).collect()
    }

    /// Holds `owner` for as long as the graph, and what is made of it from now on, can run.
    ///
    /// It is for what the library cannot know of: work that foreign code put into the graph.
    pub fn keep(&self, owner: Owner) -> Result<()> {
        let mut state = self.hierarchy().lock();
        state.body_mut(self.view.body)?.lingering.push(owner);
        Ok(())
    }

    /// Whether it is a body of a conditional node, or inside one.
    pub(crate) fn is_in_body(&self) -> bool {
        self.hierarchy().look().is_in_body(self.view.body)
    }

    /// Whether a node is one of this graph and still there.
    pub fn contains(&self, node: impl Into<NodeId>) -> bool {
        self.find(&self.hierarchy().look(), node.into()).is_ok()
    }
}

impl fmt::Debug for Graph {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let state = self.hierarchy().lock();
        match state.body(self.view.body) {
            Ok(body) => {
                let nodes = body.handles.iter().filter(|raw| !raw.is_null()).count();
                write!(f, "{:?} of {nodes} nodes", self.view)
            }
            Err(_) => write!(f, "{:?}, gone", self.view),
        }
    }
}
