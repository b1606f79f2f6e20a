//! Definitions: graphs, their nodes, their edges.

mod backup;
mod child;
mod condition;
mod edges;
mod in_turn;
mod name;
mod node;
mod raw;
pub(crate) mod snapshot;
pub(crate) mod state;
mod transplant;

use std::cell::Cell;
use std::fmt;
use std::marker::PhantomData;
use std::sync::Arc;

use cudarc::driver::CudaContext;
use cudarc::driver::sys::CUgraphNode;
use smallvec::SmallVec;

pub(crate) use backup::Backup;
pub use condition::Condition;
pub use edges::{Edge, EdgeData, Neighbours};
pub(crate) use in_turn::InTurn;
pub use name::NodeName;
pub use node::{Node, NodeId, NodeSet};

use crate::memory::RawMemory;
use crate::op::{AllocOp, AnyOp, ChildOp, KernelOp, NodeKind, Operation};
use crate::{Error, Owner, Result, driver};
use state::{Body, Hierarchy, Keeper, Slot, State, resolve};

/// A graph: a definition to inspect, edit and instantiate, or a view of one that is embedded in another.
///
/// Every node holds what its operation uses; nothing else need be kept alive. A view keeps the root alive; when the node that it is
/// embedded in is destroyed, it answers [`Error::GraphGone`]. `Send`, not `Sync`: the driver does not lock graphs.
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
/// It moves between threads, and is used by one at a time:
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
#[repr(transparent)]
pub struct Graph {
    view: View,
    not_sync: PhantomData<Cell<()>>,
}

/// What a new node waits for.
#[derive(Clone, Copy)]
pub(crate) enum After<'a> {
    /// Nodes as the library's users name them, to be checked.
    Nodes(&'a [NodeId]),
    /// Nodes of the graph, each once, that the driver just named.
    Raw(&'a [CUgraphNode]),
}

type RawNodes = SmallVec<[CUgraphNode; 8]>;

/// A graph of a hierarchy, and what keeps it.
#[derive(Clone)]
pub(crate) struct View {
    pub keeper: Arc<Keeper>,
    pub body: u32,
}

impl View {
    /// The graph, for as long as the view is there. One on each of several threads would do: each call takes the hierarchy's lock.
    pub(crate) fn as_graph(&self) -> &Graph {
        // SAFETY: a `Graph` is a `View`, and nothing more but what the compiler is to think of it.
        unsafe { &*std::ptr::from_ref(self).cast() }
    }

    pub(crate) fn hierarchy(&self) -> &Arc<Hierarchy> {
        &self.keeper.hierarchy
    }
}

impl fmt::Debug for View {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "graph {}", self.hierarchy().id)?;
        if self.body != 0 {
            write!(f, ".{}", self.body)?;
        }
        Ok(())
    }
}

impl Graph {
    /// An empty graph, whose operations run on the device of `context`.
    pub fn new(context: &Arc<CudaContext>) -> Result<Graph> {
        driver::choose()?;
        driver::bind(context)?;
        let raw = driver::graph::create()?;
        Ok(Graph::root(context, raw, true, true))
    }

    fn root(
        context: &Arc<CudaContext>,
        raw: cudarc::driver::sys::CUgraph,
        owned: bool,
        ascending: bool,
    ) -> Graph {
        Graph::from_view(View {
            keeper: Arc::new(Keeper {
                hierarchy: Hierarchy::new(context.clone(), raw, ascending),
                owned,
            }),
            body: 0,
        })
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
        self.view.hierarchy()
    }

    pub(crate) fn body_index(&self) -> u32 {
        self.view.body
    }

    /// The context whose device runs it.
    pub fn context(&self) -> &Arc<CudaContext> {
        &self.hierarchy().context
    }

    fn id(&self, state: &State, index: u32) -> NodeId {
        NodeId {
            hierarchy: self.hierarchy().id,
            body: self.view.body,
            index,
            kind: state.bodies[self.view.body as usize].nodes[index as usize].kind,
        }
    }

    /// The driver's handles of the nodes, put into `raw` where they are not told; [`Error::DuplicateNode`] when one is there twice.
    #[inline]
    fn resolve_all<'a>(
        &self,
        body: &Body,
        nodes: After<'a>,
        raw: &'a mut RawNodes,
    ) -> Result<&'a [CUgraphNode]> {
        let nodes = match nodes {
            After::Nodes(nodes) => nodes,
            After::Raw(nodes) => return Ok(nodes),
        };
        for &node in nodes {
            raw.push(resolve(self.hierarchy().id, self.view.body, body, node)?);
        }
        match twice(raw) {
            Some(i) => Err(Error::DuplicateNode {
                node: Box::new(body.name(nodes[i].index)),
            }),
            None => Ok(raw),
        }
    }

    /// Adds a node that does `op` after the nodes `after`.
    ///
    /// The node and what holds its operation's resources appear together or not at all.
    ///
    /// # Errors
    ///
    /// [`Error::ForeignNode`], [`Error::NodeGone`] and [`Error::DuplicateNode`] about `after`; [`Error::SelfEmbed`] for a child that is
    /// this graph or contains it; else what the driver says, naming the operation.
    pub fn add<O: Operation>(&self, op: O, after: impl NodeSet) -> Result<Node<O>> {
        let mut nodes = SmallVec::<[NodeId; 8]>::new();
        after.add_to(&mut nodes);
        let (id, _) = self.insert(op, After::Nodes(&nodes))?;
        Ok(Node::new(id))
    }

    /// Adds a node; gives its number and the driver's handle.
    #[inline]
    pub(crate) fn insert<O: Operation>(
        &self,
        op: O,
        after: After<'_>,
    ) -> Result<(NodeId, CUgraphNode)> {
        match op.into_kernel() {
            Ok(op) => {
                let (index, raw) = self.insert_kernel(op, after)?;
                let id = NodeId {
                    hierarchy: self.hierarchy().id,
                    body: self.view.body,
                    index,
                    kind: NodeKind::Kernel,
                };
                Ok((id, raw))
            }
            Err(op) => self.insert_other(op.into_any(), after),
        }
    }

    /// Adds what is no launch.
    fn insert_other(&self, op: AnyOp, after: After<'_>) -> Result<(NodeId, CUgraphNode)> {
        driver::bind(self.context())?;
        if let AnyOp::Child(child) = &op {
            return self.embed(child, after);
        }
        let mut state = self.hierarchy().lock();
        self.check_op(&state, &op)?;
        let executables = state.executables;
        let body = state.body_mut(self.view.body)?;
        let mut nodes = RawNodes::new();
        let after = self.resolve_all(body, after, &mut nodes)?;
        let failed = |error: Error| error.about(NodeName::of_op(&op), "adding");
        let (index, raw) = if let Some(branching) = op.branching() {
            let (raw, bodies) = branching
                .add_to(self.context(), body.raw, after)
                .map_err(failed)?;
            let slot = Slot::new(raw, op, executables);
            (state.push_conditional(self.view.body, slot, &bodies), raw)
        } else {
            let raw = op.add_to(self.context(), body.raw, after).map_err(failed)?;
            (body.push(Slot::new(raw, op, executables)), raw)
        };
        Ok((self.id(&state, index), raw))
    }

    /// Adds a launch: on its own, because there are most of them.
    fn insert_kernel(&self, op: KernelOp, after: After<'_>) -> Result<(u32, CUgraphNode)> {
        driver::bind_some(self.context())?;
        let mut state = self.hierarchy().lock();
        check_condition(&state, op.arguments().condition_of())?;
        let executables = state.executables;
        let body = state.body_mut(self.view.body)?;
        let mut nodes = RawNodes::new();
        let after = self.resolve_all(body, after, &mut nodes)?;
        match op.add_to(body.raw, after, self.context()) {
            Ok(raw) => Ok((body.push_kernel(raw, op, executables), raw)),
            Err(error) => {
                // The operation goes last, outside of the lock: dropping what it holds runs foreign code.
                drop(state);
                Err(error.about(NodeName::of_op(&op.into()), "adding"))
            }
        }
    }

    /// Refuses what looks at, or sets, conditions of another graph, and what bodies may not hold in one.
    fn check_op(&self, state: &State, op: &AnyOp) -> Result<()> {
        check_condition(state, op.condition_of())?;
        if state.is_in_body(self.view.body) && !op.fits_in_body() {
            return Err(Error::NotInBody {
                node: Box::new(NodeName::of_op(op)),
            });
        }
        Ok(())
    }

    /// Has a node do `op` from now on. Executables made before, and their launches, go on as they are.
    ///
    /// # Errors
    ///
    /// [`Error::WrongKind`] when the node is of another kind; else as [`add`](Graph::add). On an error the node does what it did.
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
        let mut state = self.hierarchy().lock();
        self.check_op(&state, &op)?;
        let body = state.body_mut(self.view.body)?;
        let raw = resolve(self.hierarchy().id, self.view.body, body, id)?;
        let slot = &mut body.nodes[id.index as usize];
        if let Err(error) = op.set(self.context(), raw, slot.content.op()) {
            // Some of it may have been set. Unless all is as before, the new version is held too.
            let restored = match slot.content.op() {
                Some(old) => old.set(self.context(), raw, Some(&op)).is_ok(),
                None => !matches!(op, AnyOp::Kernel(_)),
            };
            if !restored {
                body.lingering.extend_from_slice(op.owners());
            }
            let name = body.name(id.index);
            return Err(error.about(name, "updating"));
        }
        let old = slot.set(op);
        state.trash.push(old);
        // Given by the driver's own parameters, another graph is embedded now.
        state.forget_child(self.view.body, id.index);
        Ok(())
    }

    /// Views of the graphs inside a node.
    pub(crate) fn views(&self, id: NodeId) -> Result<Vec<Graph>> {
        let mut state = self.hierarchy().lock();
        let body = state.body(self.view.body)?;
        resolve(self.hierarchy().id, self.view.body, body, id)?;
        if id.kind == NodeKind::Child {
            state.child(self.view.body, id.index)?;
        }
        let slot = &state.body(self.view.body)?.nodes[id.index as usize];
        let view = |body| {
            Graph::from_view(View {
                keeper: self.view.keeper.clone(),
                body,
            })
        };
        Ok(slot.inside().map(view).collect())
    }

    /// What a node does. For a node that this library did not make, it is read from the driver, and its pointers are not owned.
    pub fn op<O: Operation>(&self, node: Node<O>) -> Result<O> {
        let op = self.any_op(node.id())?;
        let is = op.kind();
        let name = NodeName::of_op(&op);
        O::from_any(op).ok_or_else(|| match is {
            // Of one kind, and four types.
            NodeKind::Conditional => Error::InvalidOperation {
                why: format!("the {name} branches in another way than is asked for"),
            },
            is => Error::WrongKind {
                is,
                wanted: node.id().kind,
            },
        })
    }

    /// What a node of any kind does.
    pub fn any_op(&self, node: impl Into<NodeId>) -> Result<AnyOp> {
        let id = node.into();
        let mut state = self.hierarchy().lock();
        let body = state.body(self.view.body)?;
        let raw = resolve(self.hierarchy().id, self.view.body, body, id)?;
        let slot = &body.nodes[id.index as usize];
        if let Some(op) = slot.content.op() {
            return Ok(op.clone());
        }
        let tag = slot.content.tag().cloned().unwrap_or_default();
        if slot.kind == NodeKind::Child {
            let body = state.child(self.view.body, id.index)?;
            let view = View {
                keeper: self.view.keeper.clone(),
                body,
            };
            return Ok(ChildOp::of(view, tag).into());
        }
        let mut op = AnyOp::read(slot.kind, raw)?;
        *op.tag_mut() = tag;
        Ok(op)
    }

    /// The memory that an allocation node allocates. It lies there from when the node has run to when it is freed.
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
    /// Other than freed, the memory is used only while it lies there: it holds nothing, and once the graph and its executables are gone,
    /// the address may be another allocation's.
    pub unsafe fn allocation(&self, node: Node<AllocOp>) -> Result<RawMemory> {
        let op = self.op(node)?;
        // SAFETY: by this function's contract.
        unsafe { op.memory() }.ok_or_else(|| Error::NodeGone {
            node: Box::new(self.name(node)),
        })
    }

    /// What errors call a node.
    pub fn name(&self, node: impl Into<NodeId>) -> NodeName {
        let id = node.into();
        let state = self.hierarchy().lock();
        match state.bodies.get(id.body as usize) {
            Some(body) if id.hierarchy == self.hierarchy().id => body.name(id.index),
            _ => NodeName {
                kind: id.kind,
                index: Some(id.index),
                kernel: None,
                label: None,
                location: None,
            },
        }
    }

    /// Destroys a node, with its edges and what is embedded in it. Executables made before, and their launches, go on as they are.
    pub fn destroy(&self, node: impl Into<NodeId>) -> Result<()> {
        let id = node.into();
        driver::bind(self.context())?;
        let mut state = self.hierarchy().lock();
        let body = state.body_mut(self.view.body)?;
        resolve(self.hierarchy().id, self.view.body, body, id)?;
        // Conditional nodes inside go one by one, so that the driver surely has their conditions back.
        for (body, index) in state.conditionals_at(self.view.body, id.index) {
            let graph = &state.bodies[body as usize];
            driver::node::destroy(graph.nodes[index as usize].raw)
                .map_err(|error| error.about(graph.name(index), "destroying"))?;
            state.forget(body, index);
        }
        Ok(())
    }

    /// Whether it has no node.
    pub(crate) fn is_empty(&self) -> Result<bool> {
        let state = self.hierarchy().look();
        driver::graph::is_empty(state.body(self.view.body)?.raw)
    }

    /// Every node.
    pub fn nodes(&self) -> Result<Vec<NodeId>> {
        let mut state = self.hierarchy().lock();
        let raw = driver::graph::nodes(state.body(self.view.body)?.raw)?;
        self.numbers(&mut state, raw)
    }

    /// The nodes that wait for none.
    pub fn roots(&self) -> Result<Vec<NodeId>> {
        let mut state = self.hierarchy().lock();
        let raw = driver::graph::roots(state.body(self.view.body)?.raw)?;
        self.numbers(&mut state, raw)
    }

    /// What errors call the node that the driver names, if it names one of this graph or one embedded in it that is known.
    pub(crate) fn name_of_raw(&self, state: &mut State, raw: CUgraphNode) -> Option<Box<NodeName>> {
        if raw.is_null() {
            return None;
        }
        let known = state.bodies.iter().find_map(|body| {
            let index = body.nodes.iter().position(|slot| slot.raw == raw)?;
            Some(body.name(index as u32))
        });
        known.map(Box::new)
    }

    fn numbers(
        &self,
        state: &mut State,
        raw: impl IntoIterator<Item = CUgraphNode>,
    ) -> Result<Vec<NodeId>> {
        raw.into_iter()
            .map(|raw| {
                let index = state.body_mut(self.view.body)?.number(raw)?;
                Ok(self.id(state, index))
            })
            .collect()
    }

    /// Holds `owner` for as long as the graph, and what is made of it from now on, can run.
    ///
    /// It is for what the library cannot know of: work that foreign code put into the graph.
    pub fn keep(&self, owner: Owner) -> Result<()> {
        let mut state = self.hierarchy().lock();
        state.body_mut(self.view.body)?.lingering.push(owner);
        Ok(())
    }

    /// The nodes that the driver calls so.
    pub(crate) fn known(&self, raw: impl IntoIterator<Item = CUgraphNode>) -> Result<Vec<NodeId>> {
        let mut state = self.hierarchy().lock();
        self.numbers(&mut state, raw)
    }

    /// The driver's handles of `nodes`, each named once.
    pub(crate) fn raw_nodes(&self, nodes: &[NodeId]) -> Result<RawNodes> {
        let state = self.hierarchy().lock();
        let mut raw = RawNodes::new();
        self.resolve_all(state.body(self.view.body)?, After::Nodes(nodes), &mut raw)?;
        Ok(raw)
    }

    /// What errors call node number `index`.
    pub(crate) fn name_of(&self, index: u32) -> NodeName {
        let state = self.hierarchy().lock();
        match state.bodies.get(self.view.body as usize) {
            Some(body) => body.name(index),
            None => NodeName::unknown(index),
        }
    }

    /// Whether it is a body of a conditional node, or inside one.
    pub(crate) fn is_in_body(&self) -> bool {
        self.hierarchy().look().is_in_body(self.view.body)
    }

    /// Whether it is gone.
    pub(crate) fn is_gone(&self) -> bool {
        self.hierarchy().look().body(self.view.body).is_err()
    }

    /// Whether a node is one of this graph and still there.
    pub fn contains(&self, node: impl Into<NodeId>) -> bool {
        let id = node.into();
        let state = self.hierarchy().lock();
        state
            .body(self.view.body)
            .is_ok_and(|body| resolve(self.hierarchy().id, self.view.body, body, id).is_ok())
    }
}

impl fmt::Debug for Graph {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let state = self.hierarchy().lock();
        match state.body(self.view.body) {
            Ok(body) => {
                let nodes = body.nodes.iter().filter(|slot| !slot.raw.is_null()).count();
                write!(f, "{:?} of {nodes} nodes", self.view)
            }
            Err(_) => write!(f, "{:?}, gone", self.view),
        }
    }
}

/// Refuses what looks at, or sets, conditions of another graph, or of one that a copy took the place of.
#[inline]
fn check_condition(state: &State, of: Option<u64>) -> Result<()> {
    match of {
        Some(of) if of != state.conditions => Err(Error::ForeignCondition),
        _ => Ok(()),
    }
}

/// The place of the first that is there for the second time.
#[inline]
fn twice(nodes: &[CUgraphNode]) -> Option<usize> {
    match nodes.len() {
        0 | 1 => None,
        2..=16 => (1..nodes.len()).find(|&i| nodes[..i].contains(&nodes[i])),
        many => {
            let mut seen = std::collections::HashSet::with_capacity(many);
            nodes.iter().position(|node| !seen.insert(*node as usize))
        }
    }
}
