//! A graph with everything embedded in it: a table of nodes for each, a hierarchy, a lock.
//!
//! The driver does not lock graphs, so a graph and the graphs inside of it are one [`Hierarchy`]
//! behind one lock. Handles are numbers into it that are never given out twice (L2).
//!
//! Views of it keep what the nodes use ([`Hierarchy::retain`]). An executable keeps the hierarchy
//! alone, because the driver names an executable's nodes by the nodes of the definition, which must
//! exist for that.

use std::collections::{BTreeMap, HashMap};
use std::hash::BuildHasherDefault;
use std::iter;
use std::mem::{self, ManuallyDrop};
use std::ops::{Deref, DerefMut, Range};
use std::ptr;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Weak};

use cudarc::driver::CudaContext;
use cudarc::driver::sys::{CUgraph, CUgraphNode};
use smallvec::SmallVec;

use super::NodeId;
use super::checkpoints::Checkpoints;
use super::condition::Condition;
use super::content::{Content, Contents};
use super::data_order::DataOrder;
use super::ends::Ends;
use super::graphs::Graphs;
use super::lock::{self, Guard, Lock};
use super::operation::{AnyOp, Holds, Operation};
use super::shape::{Version, Watched};
use crate::collective::Communicator;
use crate::error::{NodeKind, NodeName};
use crate::op::{Op, Tag};
use crate::retain::AddressHasher;
use crate::{Error, Owner, Result, driver};

/// A root graph with everything embedded in it.
pub(crate) struct Hierarchy {
    pub id: u64,
    pub context: Arc<CudaContext>,
    /// The driver's root is destroyed with it.
    owned: bool,
    /// How many views there are.
    views: AtomicUsize,
    /// How many executables are let go and still there.
    leaving: AtomicUsize,
    state: Lock<State>,
}

/// The graphs of a hierarchy. The first is the root.
pub(crate) struct State {
    pub bodies: Graphs<Body>,
    /// Values to drop after unlocking: their destructors may run user code.
    pub trash: Vec<Content>,
    /// How many executables were made.
    pub executables: u32,
    /// There may be conditional nodes.
    pub may_branch: bool,
    /// Other code has the driver's handles: nodes may do what is not seen here.
    pub is_lent: bool,
    /// Of each recording that has some.
    pub checkpoints: Vec<Checkpoints>,
    /// How many conditions were made.
    pub conditions: usize,
    /// Conditions of this library's own that no node uses.
    pub spare: Vec<Condition>,
    /// The shapes that executables know graphs by, the present ones among them.
    pub watched: SmallVec<[Watched; 1]>,
    /// Of the present shapes.
    pub version: Version,
    /// Is held by the executable that the driver lets allocate what the root's nodes allocate.
    pub claim: Weak<()>,
}

// SAFETY: raw handles of the driver, used under the hierarchy's lock alone.
unsafe impl Send for State {}

/// One graph.
#[derive(Default)]
pub(crate) struct Body {
    /// Null if it is gone, or not there yet.
    pub raw: CUgraph,
    /// The node that holds it.
    pub parent: Option<(u32, u32)>,
    /// The driver's handles of the nodes, by number. Null if the node is gone, or not there yet.
    pub handles: Vec<CUgraphNode>,
    pub contents: Contents,
    /// The numbers of the graphs inside of nodes, as far as they are known, by the node's number.
    pub inside: BTreeMap<u32, Range<u32>>,
    /// The numbers of the nodes by the driver's handle, completed when it is asked.
    numbers: HashMap<CUgraphNode, u32, BuildHasherDefault<AddressHasher>>,
    /// How many nodes are in `numbers`, or gone.
    numbered: usize,
    /// Owners that belong to no known node.
    pub lingering: Vec<Owner>,
    /// Every edge leads from a node to one with a larger number, and every node is known.
    pub ascending: bool,
    /// The conditional nodes that recorders put here which take turns, in their order (L16). The
    /// last ones may be gone.
    pub turns: Vec<u32>,
    /// The nodes with collectives that recorders put here, in their order, by communicator (L26).
    /// The last ones may be gone.
    pub collectives: Vec<(u64, u32)>,
    /// What the nodes read and write, while it is known (`add_after_data`).
    pub data: Option<Box<DataOrder>>,
    /// What an update pairs nodes by, besides their edges.
    pub ends: Ends,
    /// Some node is, or was, a collective, or allocates or frees memory. Most graphs have none, and
    /// are spared the search.
    pub has_uncommon: bool,
}

pub(crate) type RawNodes = SmallVec<[CUgraphNode; 8]>;

impl Hierarchy {
    /// A hierarchy with one view, which the caller makes.
    #[inline]
    pub(crate) fn viewed(
        context: Arc<CudaContext>,
        root: CUgraph,
        owned: bool,
        ascending: bool,
    ) -> Arc<Hierarchy> {
        static NEXT: AtomicU64 = AtomicU64::new(1);
        let owner = lock::Owner::this();
        // In one expression, so that it is put together in one place.
        Arc::new(Hierarchy {
            id: NEXT.fetch_add(1, Ordering::Relaxed),
            context,
            owned,
            views: AtomicUsize::new(1),
            leaving: AtomicUsize::new(0),
            state: Lock::new(
                owner,
                State {
                    // The first nodes move no others.
                    bodies: Graphs::new(Body::of(root, None, ascending, 16)),
                    trash: Vec::new(),
                    executables: 0,
                    may_branch: !ascending,
                    is_lent: false,
                    checkpoints: Vec::new(),
                    conditions: 0,
                    spare: Vec::new(),
                    watched: SmallVec::new(),
                    version: Version::default(),
                    claim: Weak::new(),
                },
            ),
        })
    }

    /// Whether an executable is let go and still there.
    pub(crate) fn is_left(&self) -> bool {
        self.leaving.load(Ordering::Acquire) > 0
    }

    /// An executable is let go.
    pub(crate) fn leave(&self) {
        self.leaving.fetch_add(1, Ordering::Relaxed);
    }

    /// An executable that was let go is destroyed.
    pub(crate) fn has_left(&self) {
        self.leaving.fetch_sub(1, Ordering::Release);
    }

    /// One more view keeps what the nodes use.
    #[inline]
    pub(crate) fn retain(&self) {
        self.views.fetch_add(1, Ordering::Relaxed);
    }

    /// A view is gone. What the nodes use goes with the last; the graph itself goes with its last
    /// executable.
    pub(crate) fn release(&self) {
        if self.views.fetch_sub(1, Ordering::AcqRel) > 1 {
            return;
        }
        let mut state = self.lock();
        let mut gone = Vec::new();
        for Body {
            contents,
            lingering,
            ..
        } in state.bodies.iter_mut()
        {
            gone.push((mem::take(contents), mem::take(lingering)));
        }
        drop(state);
        // After unlocking: dropping what the operations hold runs user code.
        driver::capture::undisturbed(|| drop(gone));
    }

    /// Locks it to look only: nothing gets into the trash.
    #[inline]
    pub(crate) fn look(&self) -> impl Deref<Target = State> + '_ {
        self.state.lock()
    }

    /// As [`look`](Hierarchy::look). With `AT_ONCE` nothing if it is not this thread's lock, or
    /// another thread took it ever.
    #[inline(always)]
    pub(crate) fn look_as<const AT_ONCE: bool>(&self) -> Option<impl Deref<Target = State> + '_> {
        match AT_ONCE {
            true => self.state.lock_at_once(),
            false => Some(self.state.lock()),
        }
    }

    #[inline]
    pub(crate) fn lock(&self) -> Locked<'_> {
        Locked {
            state: ManuallyDrop::new(self.state.lock()),
        }
    }
}

impl Drop for Hierarchy {
    fn drop(&mut self) {
        let root = self.state.get_mut().bodies[0].raw;
        if self.owned
            && !root.is_null()
            && let Err(error) = driver::graph::destroy(root)
        {
            tracing::error!("a graph leaks: {error}");
        }
    }
}

/// Exclusive access.
pub(crate) struct Locked<'a> {
    /// Dropped in `drop`, and not used after.
    state: ManuallyDrop<Guard<'a, State>>,
}

impl Deref for Locked<'_> {
    type Target = State;

    #[inline]
    fn deref(&self) -> &State {
        &self.state
    }
}

impl DerefMut for Locked<'_> {
    #[inline]
    fn deref_mut(&mut self) -> &mut State {
        &mut self.state
    }
}

impl Drop for Locked<'_> {
    #[inline]
    fn drop(&mut self) {
        if !self.state.trash.is_empty() {
            return self.unlock_and_clear();
        }
        // SAFETY: this runs once, and the guard is not used any more.
        unsafe { ManuallyDrop::drop(&mut self.state) };
    }
}

impl Locked<'_> {
    /// Drops the trash once the lock is released.
    #[cold]
    fn unlock_and_clear(&mut self) {
        let trash = mem::take(&mut self.state.trash);
        // SAFETY: `drop` calls this alone, and does not use the guard any more.
        unsafe { ManuallyDrop::drop(&mut self.state) };
        drop(trash);
    }
}

/// Locks two hierarchies in the order of their numbers, so that two threads cannot wait for each
/// other. The second is `None` if they are one.
pub(crate) fn lock_both<'a>(
    first: &'a Hierarchy,
    second: &'a Hierarchy,
) -> (Locked<'a>, Option<Locked<'a>>) {
    if first.id <= second.id {
        let locked = first.lock();
        (locked, (first.id < second.id).then(|| second.lock()))
    } else {
        let second = second.lock();
        (first.lock(), Some(second))
    }
}

impl State {
    #[inline]
    pub(crate) fn body(&self, body: u32) -> Result<&Body> {
        match self.bodies.get(body) {
            Some(body) if !body.raw.is_null() => Ok(body),
            _ => Err(Error::GraphGone),
        }
    }

    #[inline]
    pub(crate) fn body_mut(&mut self, body: u32) -> Result<&mut Body> {
        match self.bodies.get_mut(body) {
            Some(body) if !body.raw.is_null() => Ok(body),
            _ => Err(Error::GraphGone),
        }
    }

    /// Numbers for so many graphs that are not there yet.
    pub(crate) fn reserve(&mut self, count: u32) -> Range<u32> {
        let first = self.bodies.len();
        for _ in 0..count {
            self.bodies.push(Body::new(ptr::null_mut(), None, true));
        }
        first..first + count
    }

    /// Destroys a node, and forgets what it did and everything embedded in it.
    pub(crate) fn destroy(&mut self, body: u32, node: u32) -> Result<()> {
        let graph = self.body(body)?;
        let Some(handle) = graph.handle(node) else {
            return Ok(());
        };
        // Nodes that it waited for lose an edge. If the driver does not say which, none is noted.
        let before = driver::graph::predecessors(handle).unwrap_or_default();
        self.about_to_change();
        let graph = self.body_mut(body)?;
        driver::node::destroy(handle)
            .map_err(|error| error.about(graph.name(node), "destroying"))?;
        // In the driver's order: it puts the last in the place of the first, time and again.
        let (first, rest) = before.split_at(before.len().min(1));
        for &(from, _) in first.iter().chain(rest.iter().rev()) {
            graph.loses_an_edge(from);
        }
        graph.handles[node as usize] = ptr::null_mut();
        graph.numbers.remove(&handle);
        let content = &graph.contents[node as usize];
        let (name, spare) = (content.name_only(), spare(content));
        self.spare.extend(spare);
        self.replace(body, node, name);
        Ok(())
    }

    /// A node does something else now. What it did, and the graphs inside of it, are gone.
    pub(super) fn replace(&mut self, body: u32, node: u32, content: Content) {
        let graph = &mut self.bodies[body];
        graph.data = None;
        graph.note(&content);
        let place = &mut graph.contents.edit()[node as usize];
        self.trash.push(mem::replace(place, content));
        self.forget_child(body, node);
    }

    /// The graphs embedded in a node are gone: forgets them with all that is inside of them. Their
    /// numbers stay, and where they were (L2).
    fn forget_child(&mut self, body: u32, node: u32) {
        let inside = self.bodies[body].inside.remove(&node);
        let mut gone: Vec<u32> = inside.into_iter().flatten().collect();
        while let Some(number) = gone.pop() {
            let place = &mut self.bodies[number];
            let nothing = Body::new(ptr::null_mut(), place.parent, false);
            let dead = mem::replace(place, nothing);
            gone.extend(dead.all_inside());
            self.spare.extend(dead.contents.iter().filter_map(spare));
            let mut kept = dead.lingering;
            kept.push(Arc::new(dead.contents));
            let kept = Content::other(NodeKind::Empty, Tag::default(), kept);
            self.trash.push(kept);
        }
    }

    /// The graph embedded in node `node`.
    pub(crate) fn child(&mut self, body: u32, node: u32) -> Result<u32> {
        let parent = self.body(body)?;
        if let Some(inside) = parent.inside.get(&node) {
            return Ok(inside.start);
        }
        let raw = driver::node::child(parent.handles[node as usize])?;
        let child = self.bodies.len();
        self.bodies.push(Body::new(raw, Some((body, node)), false));
        let parent = &mut self.bodies[body];
        parent.inside.insert(node, child..child + 1);
        Ok(child)
    }

    /// Calls `visit` with graph `body` and every graph inside of it.
    pub(crate) fn each_body(&self, body: u32, visit: &mut dyn FnMut(u32, &Body)) {
        if let Some(graph) = self.bodies.get(body) {
            visit(body, graph);
            graph
                .all_inside()
                .for_each(|inside| self.each_body(inside, visit));
        }
    }

    /// Node `node` of graph `body` and the conditional nodes inside of it, the innermost first.
    pub(crate) fn conditionals_at(&self, body: u32, node: u32) -> Vec<(u32, u32)> {
        let mut found = vec![(body, node)];
        let mut at = 0;
        while let Some(&(body, node)) = found.get(at) {
            for inside in self.bodies[body].inside(node) {
                let conditionals = self.bodies[inside].conditionals();
                found.extend(conditionals.map(|index| (inside, index)));
            }
            at += 1;
        }
        found.reverse();
        found
    }

    /// Whether there is a loop in graph `body`, or may be one.
    pub(crate) fn has_loops(&self, body: u32) -> bool {
        let mut found = false;
        self.each_body(body, &mut |_, graph| {
            found |= graph.conditionals().any(|node| graph.may_loop(node));
        });
        found
    }

    /// Whether some graph has [uncommon](Body::has_uncommon) nodes.
    #[inline]
    pub(crate) fn has_uncommon(&self) -> bool {
        self.bodies[0].has_uncommon || self.bodies.len() > 1 && self.has_uncommon_inside()
    }

    // Not inlined: most graphs have none inside.
    #[inline(never)]
    fn has_uncommon_inside(&self) -> bool {
        self.bodies.iter().any(|body| body.has_uncommon)
    }

    /// The communicators, each once, that have collectives in graph `body` or inside of it; one of
    /// which it has several ranks, by each.
    pub(crate) fn communicators(&self, body: u32) -> SmallVec<[Communicator; 1]> {
        let mut found = SmallVec::<[Communicator; 1]>::new();
        self.each_body(body, &mut |_, graph| {
            if !graph.has_uncommon {
                return;
            }
            for (index, content) in (0..).zip(&*graph.contents) {
                if let Some(communicator) = content.of_communicator()
                    && graph.handle(index).is_some()
                    && !found.iter().any(|known| known.is_same_end(communicator))
                {
                    found.push(communicator.clone());
                }
            }
        });
        found
    }

    /// The nodes around graph `body`, the innermost first: each by its graph and its number there.
    fn around(&self, body: u32) -> impl Iterator<Item = (u32, u32)> + '_ {
        let parent = |body: u32| self.bodies.get(body)?.parent;
        iter::successors(parent(body), move |(body, _)| parent(*body))
    }

    /// Whether graph `body` is a conditional node's, or inside one that is.
    pub(crate) fn is_in_body(&self, body: u32) -> bool {
        let kind = |(body, node): (u32, u32)| self.bodies[body].kind(node);
        self.around(body)
            .any(|node| kind(node) == NodeKind::Conditional)
    }

    /// Whether graph `body` is, or was, inside of a node, at any depth.
    pub(crate) fn is_inside(&self, body: u32, node: (u32, u32)) -> bool {
        self.around(body).any(|around| around == node)
    }

    /// Whether `ancestor` is `body` or contains it.
    pub(crate) fn contains(&self, ancestor: u32, body: u32) -> bool {
        ancestor == body || self.around(body).any(|(around, _)| around == ancestor)
    }

    /// What errors call the node that the driver calls `raw`, if it is known.
    pub(crate) fn name_of_raw(&self, raw: CUgraphNode) -> Option<Box<NodeName>> {
        let mut bodies = self.bodies.iter().filter(|_| !raw.is_null());
        bodies.find_map(|body| {
            let index = body.handles.iter().position(|handle| *handle == raw)?;
            Some(Box::new(body.name(index as u32)))
        })
    }
}

/// The condition that serves again once the node that does this is gone.
fn spare(content: &Content) -> Option<Condition> {
    match content.holds() {
        Holds::Bodies(branching) => Some(branching.condition).filter(|it| it.serves_again),
        _ => None,
    }
}

/// Refuses an operation that a node of hierarchy `id` cannot be, in a body or elsewhere.
#[inline]
pub(crate) fn check<O: Operation>(
    id: u64,
    op: &O,
    is_in_body: impl FnOnce() -> bool,
) -> Result<()> {
    let node = || Box::new(op.name(None));
    if op.tag().unowned {
        return Err(Error::Unowned { node: node() });
    }
    if op.condition_of().is_some_and(|of| of != id) {
        return Err(Error::ForeignCondition);
    }
    if !op.fits_in_body() && is_in_body() {
        return Err(Error::NotInBody { node: node() });
    }
    Ok(())
}

impl Body {
    pub(crate) fn new(raw: CUgraph, parent: Option<(u32, u32)>, ascending: bool) -> Body {
        Body::of(raw, parent, ascending, 0)
    }

    /// With room for so many nodes.
    #[inline(always)]
    fn of(raw: CUgraph, parent: Option<(u32, u32)>, ascending: bool, room: usize) -> Body {
        Body {
            raw,
            parent,
            handles: Vec::with_capacity(room),
            contents: Vec::with_capacity(room).into(),
            inside: BTreeMap::new(),
            numbers: HashMap::default(),
            numbered: 0,
            lingering: Vec::new(),
            ascending,
            turns: Vec::new(),
            collectives: Vec::new(),
            data: None,
            ends: Ends::default(),
            has_uncommon: false,
        }
    }

    /// How many numbers were given to nodes.
    #[inline]
    pub(crate) fn len(&self) -> u32 {
        self.handles.len() as u32
    }

    #[inline]
    pub(crate) fn push(&mut self, raw: CUgraphNode, content: Content) -> u32 {
        let index = self.len();
        self.note(&content);
        self.handles.push(raw);
        self.contents.edit().push(content);
        index
    }

    /// A node is about to do this.
    #[inline(always)]
    fn note(&mut self, content: &Content) {
        self.has_uncommon |= match content {
            AnyOp::Collective(_) | AnyOp::Alloc(_) | AnyOp::Free(_) => true,
            AnyOp::Raw(op) => matches!(op.kind(), NodeKind::Alloc | NodeKind::Free),
            _ => false,
        };
    }

    /// A number that was given out before gets its node.
    pub(crate) fn take_place(&mut self, index: u32, raw: CUgraphNode, content: Content) -> u32 {
        self.handles[index as usize] = raw;
        self.data = None;
        self.note(&content);
        self.contents.edit()[index as usize] = content;
        // The driver has it behind nodes with larger numbers.
        if index + 1 != self.len() {
            self.ascending = false;
            self.ends.make(index, self.len());
        }
        if (index as usize) < self.numbered {
            self.numbers.insert(raw, index);
        }
        index
    }

    /// A node lost an edge to another.
    pub(crate) fn loses_an_edge(&mut self, from: CUgraphNode) {
        if let Ok(index) = self.number(from) {
            self.ends.lose(index, self.len());
        }
    }

    /// The number of a node that the driver named. One that is unknown so far gets one.
    pub(crate) fn number(&mut self, raw: CUgraphNode) -> Result<u32> {
        let new = (self.numbered as u32..).zip(&self.handles[self.numbered..]);
        let there = new.filter(|(_, handle)| !handle.is_null());
        self.numbers
            .extend(there.map(|(index, handle)| (*handle, index)));
        self.numbered = self.handles.len();
        if let Some(&index) = self.numbers.get(&raw) {
            return Ok(index);
        }
        let kind = NodeKind::from_driver(driver::node::kind(raw)?);
        self.ascending = false;
        Ok(self.push(raw, Content::unknown(kind)))
    }

    /// The driver's handle of a node, if it is there.
    #[inline]
    pub(crate) fn handle(&self, node: u32) -> Option<CUgraphNode> {
        let handle = self.handles.get(node as usize).copied()?;
        (!handle.is_null()).then_some(handle)
    }

    #[inline]
    pub(crate) fn content(&self, node: u32) -> Option<&Content> {
        self.contents.get(node as usize)
    }

    /// The graphs inside of a node.
    pub(crate) fn inside(&self, node: u32) -> Range<u32> {
        self.inside.get(&node).cloned().unwrap_or_default()
    }

    pub(crate) fn all_inside(&self) -> impl Iterator<Item = u32> + '_ {
        self.inside.values().cloned().flatten()
    }

    pub(crate) fn kind(&self, node: u32) -> NodeKind {
        let content = self.content(node);
        content.map_or(NodeKind::Other(u32::MAX), Content::kind)
    }

    /// What errors call a node.
    pub(crate) fn name(&self, node: u32) -> NodeName {
        match self.content(node) {
            Some(content) => content.name(node),
            None => NodeName::of_kind(NodeKind::Other(u32::MAX), node),
        }
    }

    /// The numbers of the conditional nodes.
    pub(crate) fn conditionals(&self) -> impl Iterator<Item = u32> + '_ {
        let kinds = self.contents.iter().map(AnyOp::kind);
        let conditionals = (0..)
            .zip(kinds)
            .filter(|(_, kind)| *kind == NodeKind::Conditional);
        conditionals
            .map(|(index, _)| index)
            .filter(|index| self.handle(*index).is_some())
    }

    /// The last conditional node that recorders put here which takes turns.
    pub(crate) fn last_turn(&mut self) -> Option<u32> {
        while self
            .turns
            .last()
            .is_some_and(|last| self.handle(*last).is_none())
        {
            self.turns.pop();
        }
        self.turns.last().copied()
    }

    /// The last node with collectives of a communicator that recorders put here.
    pub(crate) fn last_in_line(&self, id: u64) -> Option<u32> {
        let of_it = self.collectives.iter().rev().filter(|(of, _)| *of == id);
        let mut nodes = of_it.map(|(_, node)| *node);
        nodes.find(|node| self.handle(*node).is_some())
    }

    /// Whether a conditional node is a loop, or may be one.
    pub(crate) fn may_loop(&self, node: u32) -> bool {
        let op = self.content(node).and_then(Content::op);
        matches!(op, None | Some(AnyOp::While(_)))
    }

    /// The driver's handle of a node, if it belongs to this graph, whose number is `index`, and is
    /// there.
    #[inline]
    pub(crate) fn resolve(&self, hierarchy: u64, index: u32, node: NodeId) -> Result<CUgraphNode> {
        if node.hierarchy != hierarchy || node.body != index {
            return Err(Error::ForeignNode {
                node: node.index,
                kind: node.kind,
            });
        }
        self.handle(node.index).ok_or_else(|| Error::NodeGone {
            node: Box::new(self.name(node.index)),
        })
    }
}
