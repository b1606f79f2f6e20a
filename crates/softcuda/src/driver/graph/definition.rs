//! Graphs as the program defines them: nodes with operations, in a hierarchy of child graphs.
//!
//! Invariants:
//! - a graph that was destroyed has no nodes, and no handle in its hierarchy means anything any
//!   more;
//! - a child graph belongs to one node, and no graph is inside itself;
//! - handles of nodes rise, so the order of their handles is the order in which they were made.

use std::cmp::Reverse;
use std::collections::{BTreeMap, HashMap};
use std::sync::{Arc, OnceLock, Weak};

use parking_lot::Mutex;

use super::edge::{self, Edge, Edges};
use super::memory::GraphMemory;
use super::operation::{GraphCondition, Kind, Operation, WRONG_KIND};
use super::user_object::{self, References};
use crate::abi::types::{CUgraph, CUgraphNode, CUuserObject};
use crate::driver::handle::{Found, Table};
use crate::driver::{CUresult, Result};

const INVALID: CUresult = CUresult::CUDA_ERROR_INVALID_VALUE;

static GRAPHS: Table<Graph> = Table::new(12);
/// The graph of each node, by the node's handle.
static NODES: Table<Weak<Graph>> = Table::new(13);

/// A graph.
pub(crate) struct Graph {
    handle: usize,
    /// The graph with the node that it is the child graph of.
    parent: OnceLock<Weak<Graph>>,
    /// It is the body of a conditional node.
    body: OnceLock<()>,
    definition: Mutex<Definition>,
}

/// What is in a graph.
#[derive(Default)]
pub(crate) struct Definition {
    /// Its nodes by handle.
    pub nodes: BTreeMap<usize, Node>,
    /// What it keeps alive for the program.
    pub references: References,
    /// The node that each node of the graph it was cloned from became.
    clones: HashMap<usize, usize>,
    /// Conditions of nodes in it and in all graphs inside it, by number. A graph inside another has
    /// none of its own.
    pub conditions: BTreeMap<u64, Arc<GraphCondition>>,
    /// Nodes allocate or free memory, in child graphs as well. They stay: none of these nodes goes,
    /// and no child graph with one.
    has_memory_nodes: bool,
    /// The executable of a graph that can have only one at a time because of memory.
    instance: Weak<()>,
    /// What all executables made of it, and its clones, share.
    copies: Weak<()>,
    /// It is a clone, and shares this with the original's other copies.
    copy_of: Option<Arc<()>>,
    /// A capture adds nodes to it: it loses none, and there is no second capture to it.
    captured: bool,
    /// How often a node has become one without dependencies or without dependents.
    ends: u64,
    /// It was destroyed.
    gone: bool,
}

/// Who adds a node: the data of its edges is looked at more closely where the program says it
/// itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum By {
    /// The program.
    Program,
    /// A capture.
    Capture,
}

/// What becomes of nodes that allocate or free memory where a graph is copied.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum MemoryNodes {
    /// It is not copied then.
    Refused,
    /// The copy's have the same memory.
    Shared,
}

/// A node.
pub(crate) struct Node {
    /// What it does.
    pub operation: Operation,
    /// Edges from others.
    pub dependencies: Edges,
    /// Edges to others.
    pub dependents: Edges,
    /// Since when it has no dependencies, where it has none: lists begin with the newest, as an
    /// H200 has them.
    pub root_since: u64,
    /// Since when it has no dependents, where it has none.
    pub exit_since: u64,
}

impl Definition {
    /// The number of a node's becoming one without dependencies or without dependents.
    pub fn next_end(&mut self) -> u64 {
        self.ends += 1;
        self.ends
    }

    /// The graph or a child graph has nodes that allocate or free memory.
    pub fn has_memory_nodes(&self) -> bool {
        self.has_memory_nodes
    }

    /// What one more copy shares with the others.
    fn count_copy(&mut self) -> Arc<()> {
        self.copies.upgrade().unwrap_or_else(|| {
            let first = Arc::new(());
            self.copies = Arc::downgrade(&first);
            first
        })
    }

    /// Fails where nodes cannot go because a capture adds some.
    fn check_loss(&self) -> Result {
        match self.captured {
            false => Ok(()),
            true => Err(CUresult::CUDA_ERROR_ILLEGAL_STATE),
        }
    }
}

/// `cuGraphCreate`.
pub(crate) fn create() -> Result<CUgraph> {
    Ok(new_graph().handle())
}

/// A new, empty graph.
pub(crate) fn new_graph() -> Arc<Graph> {
    GRAPHS.insert(|handle| Graph {
        handle,
        parent: OnceLock::new(),
        body: OnceLock::new(),
        definition: Mutex::default(),
    })
}

/// The live graph of a handle.
pub(crate) fn resolve(handle: CUgraph) -> Result<Arc<Graph>> {
    match GRAPHS.get(handle.0) {
        Found::Live(graph) => Ok(graph),
        // A real driver crashes on them.
        Found::Destroyed | Found::Unknown => Err(INVALID),
    }
}

/// The graph of a live node.
pub(crate) fn graph_of(node: CUgraphNode) -> Result<Arc<Graph>> {
    match NODES.get(node.0) {
        Found::Live(graph) => graph.upgrade().ok_or(INVALID),
        Found::Destroyed | Found::Unknown => Err(INVALID),
    }
}

/// The operation of a live node.
pub(crate) fn operation_of(node: CUgraphNode) -> Result<Operation> {
    graph_of(node)?.operation(node)
}

/// `cuGraphDestroy`; a child graph goes with its node alone.
pub(crate) fn destroy(handle: CUgraph) -> Result {
    let graph = resolve(handle)?;
    if graph.parent.get().is_some() {
        return Err(INVALID);
    }
    graph.check_end()?;
    graph.dismantle();
    Ok(())
}

/// `cuGraphDestroyNode`.
pub(crate) fn destroy_node(handle: CUgraphNode) -> Result {
    let graph = graph_of(handle)?;
    let node = graph.edit(|definition| {
        definition.check_loss()?;
        if definition.has_memory_nodes() {
            return Err(CUresult::CUDA_ERROR_NOT_SUPPORTED);
        }
        let node = definition.nodes.remove(&handle.0).ok_or(INVALID)?;
        for edge in edge::in_order_of_removal(&node.dependencies) {
            edge::remove(definition, edge.node, handle.0);
        }
        for edge in edge::in_order_of_removal(&node.dependents) {
            edge::remove(definition, handle.0, edge.node);
        }
        Ok(node)
    })?;
    NODES.remove(handle.0);
    node.operation.end();
    Ok(())
}

/// `cuGraphNodeFindInClone`.
pub(crate) fn find_in_clone(original: CUgraphNode, clone: &Graph) -> Result<CUgraphNode> {
    clone.read(|definition| {
        let node = definition.clones.get(&original.0).copied();
        let live = node.filter(|node| definition.nodes.contains_key(node));
        live.map(CUgraphNode).ok_or(INVALID)
    })
}

/// `cuGraphAddNode` of a child graph: a copy of `child` goes into a new node.
pub(crate) fn add_child(
    graph: &Arc<Graph>,
    dependencies: &[Edge],
    child: &Arc<Graph>,
    memory: MemoryNodes,
) -> Result<CUgraphNode> {
    // A real driver crashes on a graph inside itself.
    if graph.is_inside(child) {
        return Err(INVALID);
    }
    if child.is_child() {
        return Err(CUresult::CUDA_ERROR_NOT_SUPPORTED);
    }
    graph.check_room_for(child)?;
    let copy = child.copy(memory)?;
    let added = copy
        .parent
        .set(Arc::downgrade(graph))
        .map_err(|_| INVALID)
        .and_then(|()| graph.add(By::Program, dependencies, Operation::Child(copy.clone())));
    added.inspect_err(|_| copy.dismantle())
}

/// `cuGraphAddNode` of a child graph that becomes the node's own.
pub(crate) fn move_child(
    graph: &Arc<Graph>,
    dependencies: &[Edge],
    child: &Arc<Graph>,
) -> Result<CUgraphNode> {
    /// So that no two graphs become each other's child.
    static MOVES: Mutex<()> = Mutex::new(());
    let _moves = MOVES.lock();
    child.check_conditions()?;
    if child.is_child() {
        return Err(CUresult::CUDA_ERROR_NOT_SUPPORTED);
    }
    if graph.is_inside(child) {
        return Err(INVALID);
    }
    graph.check_room_for(child)?;
    // A right to have an executable does not move.
    if child.read(|definition| Ok(definition.instance.strong_count() > 0))? {
        return Err(CUresult::CUDA_ERROR_NOT_SUPPORTED);
    }
    let node = graph.add(By::Program, dependencies, Operation::Child(child.clone()))?;
    let _ = child.parent.set(Arc::downgrade(graph));
    Ok(node)
}

/// `cuGraphNodeSetParams` of a child graph's node: it gets a copy of another graph. Told to own
/// that graph itself, it is left with one that is gone, as an H200 has it; `child` stays what it
/// was.
pub(crate) fn replace_child(node: CUgraphNode, child: &Arc<Graph>, moved: bool) -> Result {
    let graph = graph_of(node)?;
    if graph.is_inside(child) {
        return Err(INVALID);
    }
    if !matches!(graph.operation(node)?, Operation::Child(_)) {
        return Err(WRONG_KIND);
    }
    let copy = child.copy(MemoryNodes::Refused)?;
    let _ = copy.parent.set(Arc::downgrade(&graph));
    let mut old = None;
    let replaced = graph.replace(node, |was| match was {
        Operation::Child(was) => {
            if was.read(|definition| Ok(definition.has_memory_nodes()))? {
                return Err(CUresult::CUDA_ERROR_NOT_SUPPORTED);
            }
            old = Some(was.clone());
            Ok(Operation::Child(copy.clone()))
        }
        _ => Err(WRONG_KIND),
    });
    if moved || replaced.is_err() {
        copy.dismantle();
    }
    if let Some(old) = old {
        old.dismantle();
    }
    replaced
}

/// `cuGraphAddMemAllocNode`. A capture is not refused: an H200 takes what it records.
pub(crate) fn add_alloc(
    by: By,
    graph: &Arc<Graph>,
    dependencies: &[Edge],
    memory: &Arc<GraphMemory>,
) -> Result<CUgraphNode> {
    memory.set_owner(graph.handle);
    graph.add(by, dependencies, Operation::Alloc(memory.clone()))
}

/// `cuGraphAddMemFreeNode`.
pub(crate) fn add_free(
    by: By,
    graph: &Arc<Graph>,
    dependencies: &[Edge],
    address: u64,
) -> Result<CUgraphNode> {
    let memory = graph.edit(|definition| {
        if by == By::Program {
            edge::check_sources(definition, dependencies, Some(Kind::Free))?;
            graph.check_memory_nodes()?;
            // On an H200 it counts as one with memory nodes from here on, whatever the address.
            definition.has_memory_nodes = true;
        }
        let memory = GraphMemory::at(address).and_then(|memory| {
            memory.set_freed_in(graph.handle)?;
            Ok(memory)
        });
        memory.inspect_err(|_| edge::add_and_remove(definition, dependencies))
    })?;
    let added = graph.add(by, dependencies, Operation::Free(memory.clone()));
    added.inspect_err(|_| memory.unset_freed_in(graph.handle))
}

impl Graph {
    /// Its handle.
    pub fn handle(&self) -> CUgraph {
        CUgraph(self.handle)
    }

    /// It is the child graph of a node.
    pub fn is_child(&self) -> bool {
        self.parent.get().is_some()
    }

    /// Fails where no memory nodes may be added: child graphs get none, bodies do.
    fn check_memory_nodes(&self) -> Result {
        match self.is_child() && self.body.get().is_none() {
            true => Err(CUresult::CUDA_ERROR_NOT_SUPPORTED),
            false => Ok(()),
        }
    }

    /// Fails where `child` can be no child graph in it because of memory nodes.
    fn check_room_for(&self, child: &Graph) -> Result {
        match child.read(|child| Ok(child.has_memory_nodes()))? {
            true => self.check_memory_nodes(),
            false => Ok(()),
        }
    }

    /// It becomes the body of a node of `graph`.
    pub fn set_body_of(&self, graph: &Arc<Graph>) {
        let _ = self.parent.set(Arc::downgrade(graph));
        let _ = self.body.set(());
    }

    /// It is a body of a conditional node, or inside one.
    pub fn is_in_body(self: &Arc<Self>) -> bool {
        self.line().any(|graph| graph.body.get().is_some())
    }

    /// The graph that it is in which is in no other.
    pub fn root(self: &Arc<Self>) -> Arc<Graph> {
        self.line().last().unwrap_or_else(|| self.clone())
    }

    /// It, the graph that it is in, and so on.
    fn line(self: &Arc<Self>) -> impl Iterator<Item = Arc<Graph>> {
        std::iter::successors(Some(self.clone()), |graph| {
            graph.parent.get().and_then(Weak::upgrade)
        })
    }

    /// Fails where it cannot go because a capture adds nodes to it or to a graph inside it. One in
    /// there that is gone is in nobody's way: a capture that failed has ended its graph, and left
    /// the node that it is the graph of.
    fn check_end(&self) -> Result {
        let definition = self.definition.lock();
        definition.check_loss()?;
        let mut nodes = definition.nodes.values();
        nodes.try_for_each(|node| match &node.operation {
            Operation::Child(child) => child.check_end(),
            Operation::Conditional(node) => {
                let mut bodies = node.bodies().iter();
                bodies.try_for_each(|body| body.check_end())
            }
            _ => Ok(()),
        })
    }

    /// What another executable of it shares with its other copies. With conditions there must be
    /// none; those that were made before it had conditions count.
    pub fn count_executable(&self) -> Result<Arc<()>> {
        self.edit(|definition| {
            let is_alone = definition.copies.strong_count() == 0;
            match is_alone || definition.conditions.is_empty() {
                true => Ok(definition.count_copy()),
                false => Err(CUresult::CUDA_ERROR_NOT_SUPPORTED),
            }
        })
    }

    /// The right to have an executable, where a graph with memory nodes has it once at a time.
    /// `own` is what the asking executable has.
    pub fn take_instance(&self, own: Option<&Arc<()>>) -> Result<Option<Arc<()>>> {
        self.edit(|definition| {
            if !definition.has_memory_nodes() {
                return Ok(None);
            }
            match (definition.instance.upgrade(), own) {
                (None, _) => {}
                (Some(taken), Some(own)) if Arc::ptr_eq(&taken, own) => return Ok(Some(taken)),
                _ => return Err(CUresult::CUDA_ERROR_NOT_SUPPORTED),
            }
            let instance = Arc::new(());
            definition.instance = Arc::downgrade(&instance);
            Ok(Some(instance))
        })
    }

    /// Reads the definition.
    pub fn read<R>(&self, f: impl FnOnce(&Definition) -> Result<R>) -> Result<R> {
        let definition = self.definition.lock();
        match definition.gone {
            true => Err(INVALID),
            false => f(&definition),
        }
    }

    /// Changes the definition.
    pub fn edit<R>(&self, f: impl FnOnce(&mut Definition) -> Result<R>) -> Result<R> {
        let mut definition = self.definition.lock();
        match definition.gone {
            true => Err(INVALID),
            false => f(&mut definition),
        }
    }

    /// A capture to it begins, after some of its nodes: an H200 has these be no exits for a moment.
    pub fn begin_capture(&self, after: &[Edge]) -> Result {
        self.edit(|definition| {
            // A real driver crashes on a second one.
            definition.check_loss()?;
            definition.captured = true;
            edge::become_exits(definition, after.iter());
            Ok(())
        })
    }

    /// A capture to it ends.
    pub fn end_capture(&self) -> Result {
        self.edit(|definition| {
            definition.captured = false;
            Ok(())
        })
    }

    /// A node has edges to others; also true of one that is not there.
    pub fn has_dependents(&self, node: usize) -> bool {
        let definition = self.definition.lock();
        let node = definition.nodes.get(&node);
        node.is_none_or(|node| !node.dependents.is_empty())
    }

    /// It is `other` or somewhere inside it.
    pub fn is_inside(self: &Arc<Self>, other: &Arc<Graph>) -> bool {
        self.line().any(|graph| Arc::ptr_eq(&graph, other))
    }

    /// `cuGraphAddNode`.
    pub fn add(
        self: &Arc<Self>,
        by: By,
        dependencies: &[Edge],
        operation: Operation,
    ) -> Result<CUgraphNode> {
        self.edit(|definition| {
            let to = (by == By::Program).then(|| operation.kind());
            edge::check_sources(definition, dependencies, to)?;
            if to == Some(Kind::Alloc) {
                self.check_memory_nodes()?;
            }
            // On an H200 also where the node then fails.
            definition.has_memory_nodes |= match &operation {
                Operation::Child(child) => child.read(|child| Ok(child.has_memory_nodes()))?,
                Operation::Alloc(_) | Operation::Free(_) => true,
                _ => false,
            };
            edge::check_distinct(definition, dependencies)?;
            let handle = NODES.reserve();
            let since = definition.next_end();
            for &Edge { node, data } in dependencies {
                if let Some(from) = definition.nodes.get_mut(&node) {
                    from.dependents.push(Edge { node: handle, data });
                }
            }
            let node = Node {
                operation,
                dependencies: dependencies.into(),
                dependents: Edges::new(),
                root_since: since,
                exit_since: since,
            };
            definition.nodes.insert(handle, node);
            NODES.put(handle, Arc::new(Arc::downgrade(self)));
            Ok(CUgraphNode(handle))
        })
    }

    /// What a node does.
    pub fn operation(&self, node: CUgraphNode) -> Result<Operation> {
        self.read(|definition| {
            let node = definition.nodes.get(&node.0).ok_or(INVALID)?;
            Ok(node.operation.clone())
        })
    }

    /// Gives a node another operation of the same kind.
    pub fn replace(
        &self,
        node: CUgraphNode,
        by: impl FnOnce(&Operation) -> Result<Operation>,
    ) -> Result {
        let old = self.edit(|definition| {
            let node = definition.nodes.get_mut(&node.0).ok_or(INVALID)?;
            let new = by(&node.operation)?;
            Ok(std::mem::replace(&mut node.operation, new))
        })?;
        drop(old);
        Ok(())
    }

    /// `cuGraphGetNodes`, in the order in which they were made.
    pub fn nodes(&self) -> Result<Vec<CUgraphNode>> {
        self.read(|definition| Ok(definition.nodes.keys().copied().map(CUgraphNode).collect()))
    }

    /// `cuGraphGetRootNodes`, the newest first.
    pub fn roots(&self) -> Result<Vec<CUgraphNode>> {
        self.read(|definition| {
            let roots = definition
                .nodes
                .iter()
                .filter(|(_, node)| node.dependencies.is_empty());
            let mut roots: Vec<(u64, CUgraphNode)> = roots
                .map(|(&handle, node)| (node.root_since, CUgraphNode(handle)))
                .collect();
            roots.sort_unstable_by_key(|root| Reverse(root.0));
            Ok(roots.into_iter().map(|root| root.1).collect())
        })
    }

    /// `cuGraphNodeGetDependencies`.
    pub fn dependencies(&self, node: CUgraphNode) -> Result<Edges> {
        self.read(|definition| {
            let node = definition.nodes.get(&node.0).ok_or(INVALID)?;
            Ok(node.dependencies.clone())
        })
    }

    /// `cuGraphNodeGetDependentNodes`.
    pub fn dependents(&self, node: CUgraphNode) -> Result<Edges> {
        self.read(|definition| {
            let node = definition.nodes.get(&node.0).ok_or(INVALID)?;
            Ok(node.dependents.clone())
        })
    }

    /// `cuGraphRetainUserObject`.
    pub fn retain(&self, object: CUuserObject, count: u32, flags: u32) -> Result {
        self.edit(|definition| {
            user_object::retain_for(&mut definition.references, object, count, flags)
        })
    }

    /// `cuGraphReleaseUserObject`.
    pub fn release(&self, object: CUuserObject, count: u32) -> Result {
        let gone = self.edit(|definition| {
            user_object::release_from(&mut definition.references, object, count)
        })?;
        drop(gone);
        Ok(())
    }

    /// `cuGraphClone`: a graph of its own, with copies of all child graphs.
    pub fn copy(self: &Arc<Self>, memory: MemoryNodes) -> Result<Arc<Graph>> {
        self.check_conditions()?;
        self.copy_unchecked(memory)
    }

    /// The same of a graph in one that has been checked.
    fn copy_unchecked(self: &Arc<Self>, memory: MemoryNodes) -> Result<Arc<Graph>> {
        let copy = new_graph();
        let filled = self.edit(|definition| {
            copy.fill_from(definition, memory)?;
            copy.definition.lock().copy_of = Some(definition.count_copy());
            Ok(())
        });
        match filled {
            Ok(()) => Ok(copy),
            Err(error) => {
                copy.dismantle();
                Err(error)
            }
        }
    }

    /// Fills an empty graph with copies of another's nodes, as if they were made one after the
    /// other, each with its dependencies; which of them have no dependents is said in the
    /// original's order.
    fn fill_from(self: &Arc<Self>, from: &Definition, memory: MemoryNodes) -> Result {
        if from.has_memory_nodes() && memory == MemoryNodes::Refused {
            return Err(CUresult::CUDA_ERROR_NOT_SUPPORTED);
        }
        let mut own = self.definition.lock();
        own.has_memory_nodes = from.has_memory_nodes;
        own.references = from.references.clone();
        own.ends = from.ends;
        own.clones = from
            .nodes
            .keys()
            .map(|&node| (node, NODES.reserve()))
            .collect();
        for (handle, node) in &from.nodes {
            let operation = match &node.operation {
                Operation::Child(child) => {
                    let copy = child.copy_unchecked(memory)?;
                    let _ = copy.parent.set(Arc::downgrade(self));
                    Operation::Child(copy)
                }
                // With conditions that are another graph's.
                Operation::Conditional(_) => return Err(CUresult::CUDA_ERROR_NOT_SUPPORTED),
                other => other.clone(),
            };
            let translated = |edges: &Edges| -> Edges {
                let other = |edge: &Edge| Edge {
                    node: own.clones[&edge.node],
                    data: edge.data,
                };
                edges.iter().map(other).collect()
            };
            let (dependencies, mut dependents) =
                (translated(&node.dependencies), translated(&node.dependents));
            dependents.sort_unstable_by_key(|edge| edge.node);
            let copy = Node {
                operation,
                dependencies,
                dependents,
                root_since: own.next_end(),
                exit_since: node.exit_since,
            };
            let handle = own.clones[handle];
            own.nodes.insert(handle, copy);
            NODES.put(handle, Arc::new(Arc::downgrade(self)));
        }
        Ok(())
    }

    /// The graph ends: its handle, its nodes' and all child graphs' mean nothing any more.
    pub(crate) fn dismantle(&self) {
        let ended = {
            let mut definition = self.definition.lock();
            GRAPHS.remove(self.handle);
            for &node in definition.nodes.keys() {
                NODES.remove(node);
            }
            let gone = Definition {
                gone: true,
                ..Definition::default()
            };
            std::mem::replace(&mut *definition, gone)
        };
        for node in ended.nodes.values() {
            node.operation.end();
        }
    }
}
