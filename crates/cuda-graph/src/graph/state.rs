//! What the library knows of a graph beyond what the driver does: which nodes there are, what they do and what is held for them.
//!
//! A graph and the graphs embedded in it are one [`Hierarchy`] behind one lock, because the driver does not lock graphs. Handles are
//! numbers into it that are never given out twice, so a handle of something destroyed is told apart from everything alive (L2). Every
//! [`Keeper`] keeps the graph; executables keep the hierarchy alone, to ask it whether a node is still there.

use std::collections::HashMap;
use std::hash::BuildHasherDefault;
use std::mem;
use std::ops::{Deref, DerefMut};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use cudarc::driver::CudaContext;
use cudarc::driver::sys::{CUgraph, CUgraphNode};
use smallvec::SmallVec;

use super::condition::Condition;
use super::name::NodeName;
use super::node::NodeId;
use crate::op::{AnyOp, KernelOp, NodeKind, Tag};
use crate::retain::{AddressHasher, Holdings};
use crate::{Error, Owner, Result, driver};

/// One atomic operation to take and none to give back, where the standard library's takes two: updates of nodes are to cost little beyond
/// the driver's call. Who finds it taken yields; threads that share a graph are few.
type Lock<T> = spin::mutex::SpinMutex<T, spin::Yield>;
type Guard<'a, T> = spin::mutex::SpinMutexGuard<'a, T, spin::Yield>;

/// A root graph with everything embedded in it.
pub(crate) struct Hierarchy {
    pub id: u64,
    pub context: Arc<CudaContext>,
    state: Lock<State>,
}

/// The graphs of a hierarchy; the first is the root.
#[derive(Default)]
pub(crate) struct State {
    pub bodies: SmallVec<[Body; 1]>,
    /// What is to be dropped once the lock is released, because dropping it runs foreign code.
    pub trash: Vec<Content>,
    /// What conditions of the root are told by: a number that the copy which takes its place does not have.
    pub conditions: u64,
    /// How often a copy took the root's place.
    pub restored: u32,
    /// How many executables were made of it.
    pub executables: u32,
    /// There is a copy that may take the root's place.
    pub backed_up: bool,
    /// Conditions of this library's own that no node looks at.
    pub spare: Vec<Condition>,
    /// The handles of the conditions of loops and branches that are not whole.
    pub half: Vec<u64>,
}

// SAFETY: raw handles of the driver, used under the hierarchy's lock alone.
unsafe impl Send for State {}

/// How many nodes a graph has room for at first.
const FIRST_NODES: usize = 8;

/// One graph.
pub(crate) struct Body {
    /// Null once it is gone.
    pub raw: CUgraph,
    /// The node that it is embedded in.
    pub parent: Option<(u32, u32)>,
    pub nodes: Vec<Slot>,
    by_raw: HashMap<usize, u32, BuildHasherDefault<AddressHasher>>,
    /// How many nodes `by_raw` knows: it is brought up to date when asked, so that adding a node does not pay for it.
    indexed: usize,
    /// What nodes may still use that belongs to none that is known.
    pub lingering: Vec<Owner>,
    /// Every edge leads from a node to one with a larger index, so that an edge doing so too closes no cycle.
    pub ascending: bool,
    /// It is a conditional node's, and captured into.
    pub captured: bool,
}

/// One node.
#[repr(C)]
pub(crate) struct Slot {
    // What updates look at comes first, in one cache line.
    /// Null once it is gone.
    pub raw: CUgraphNode,
    /// A launch without attributes.
    pub is_plain: bool,
    pub kind: NodeKind,
    /// How many executables there were when it was added. They do not have it, though the driver may give it the handle that a node had which
    /// they have.
    pub after: u32,
    /// The first graph inside it, once known.
    pub child: Option<u32>,
    /// How many there are; their numbers follow each other.
    pub children: u32,
    pub content: Content,
}

/// What is known of what a node does.
#[derive(Clone)]
pub(crate) enum Content {
    /// This library had it do so.
    Op(AnyOp),
    /// The driver is asked.
    Unread(Option<Box<Unread>>),
}

/// What the driver does not tell of a node.
#[derive(Clone, Default)]
pub(crate) struct Unread {
    pub tag: Tag,
    /// What it uses.
    pub kept: Vec<Owner>,
}

impl Content {
    #[inline]
    pub(crate) fn of(op: AnyOp) -> Content {
        if let AnyOp::Kernel(_) = op {
            return Content::Op(op);
        }
        let kept = match &op {
            // Of an allocation the driver knows the address; an embedded graph is a graph of its own.
            AnyOp::Alloc(_) | AnyOp::Child(_) => Vec::new(),
            // What raw parameters point to may be gone; the driver knows all that lives on.
            AnyOp::Raw(op) => op.owners().to_vec(),
            _ => return Content::Op(op),
        };
        let tag = op.tag().clone();
        Content::Unread(Some(Box::new(Unread { tag, kept })))
    }

    pub(crate) fn op(&self) -> Option<&AnyOp> {
        match self {
            Content::Op(op) => Some(op),
            Content::Unread(_) => None,
        }
    }

    pub(crate) fn tag(&self) -> Option<&Tag> {
        match self {
            Content::Op(op) => Some(op.tag()),
            Content::Unread(unread) => unread.as_ref().map(|unread| &unread.tag),
        }
    }

    /// What the node uses.
    pub(crate) fn owners(&self) -> &[Owner] {
        match self {
            Content::Op(op) => op.owners(),
            Content::Unread(unread) => unread.as_ref().map_or(&[], |unread| &unread.kept),
        }
    }

    /// No more than what to call it.
    fn name_only(&self) -> Content {
        let kept = Vec::new();
        let named = self
            .tag()
            .cloned()
            .map(|tag| Box::new(Unread { tag, kept }));
        Content::Unread(named)
    }
}

impl Hierarchy {
    pub(crate) fn new(context: Arc<CudaContext>, root: CUgraph, ascending: bool) -> Arc<Hierarchy> {
        let id = next_number();
        let mut state = State {
            conditions: id,
            ..State::default()
        };
        state.bodies.push(Body::new(root, None, ascending));
        Arc::new(Hierarchy {
            id,
            context,
            state: Lock::new(state),
        })
    }

    /// For looking only: nothing gets into the trash.
    #[inline]
    pub(crate) fn look(&self) -> impl Deref<Target = State> + '_ {
        self.state.lock()
    }

    #[inline]
    pub(crate) fn lock(&self) -> Locked<'_> {
        Locked {
            state: Some(self.state.lock()),
        }
    }
}

/// One that nothing was told by before.
pub(super) fn next_number() -> u64 {
    static NEXT: AtomicU64 = AtomicU64::new(1);
    NEXT.fetch_add(1, Ordering::Relaxed)
}

/// Exclusive access. What was put into the trash is dropped after the lock is released.
pub(crate) struct Locked<'a> {
    state: Option<Guard<'a, State>>,
}

impl Deref for Locked<'_> {
    type Target = State;

    #[inline]
    fn deref(&self) -> &State {
        self.state.as_ref().expect("it is there until drop")
    }
}

impl DerefMut for Locked<'_> {
    #[inline]
    fn deref_mut(&mut self) -> &mut State {
        self.state.as_mut().expect("it is there until drop")
    }
}

impl Drop for Locked<'_> {
    #[inline]
    fn drop(&mut self) {
        if let Some(mut state) = self.state.take()
            && !state.trash.is_empty()
        {
            let trash = mem::take(&mut state.trash);
            drop(state);
            drop(trash);
        }
    }
}

/// Locks two hierarchies in the order of their numbers, so that two threads cannot wait for each other. `None` where they are one.
pub(crate) fn lock_both<'a>(
    first: &'a Hierarchy,
    second: &'a Hierarchy,
) -> (Locked<'a>, Option<Locked<'a>>) {
    match first.id.cmp(&second.id) {
        std::cmp::Ordering::Equal => (first.lock(), None),
        std::cmp::Ordering::Less => {
            let first = first.lock();
            let second = second.lock();
            (first, Some(second))
        }
        std::cmp::Ordering::Greater => {
            let second = second.lock();
            (first.lock(), Some(second))
        }
    }
}

/// Keeps a graph. The last one gone destroys it, if it is ours.
pub(crate) struct Keeper {
    pub hierarchy: Arc<Hierarchy>,
    pub owned: bool,
}

impl Drop for Keeper {
    fn drop(&mut self) {
        let state = mem::take(&mut *self.hierarchy.lock());
        if self.owned
            && let Some(root) = state.bodies.first()
            && !root.raw.is_null()
            && let Err(error) = driver::graph::destroy(root.raw)
        {
            tracing::error!("a graph leaks: {error}");
        }
        // Operations go last, outside of the lock: dropping what they hold runs foreign code.
        driver::capture::undisturbed(|| drop(state));
    }
}

impl State {
    /// An executable is made: how many there were before.
    pub(crate) fn count_executable(&mut self) -> u32 {
        let before = self.executables;
        self.executables = before.saturating_add(1);
        before
    }

    #[inline]
    pub(crate) fn body(&self, body: u32) -> Result<&Body> {
        match self.bodies.get(body as usize) {
            Some(body) if !body.raw.is_null() => Ok(body),
            _ => Err(Error::GraphGone),
        }
    }

    #[inline]
    pub(crate) fn body_mut(&mut self, body: u32) -> Result<&mut Body> {
        match self.bodies.get_mut(body as usize) {
            Some(body) if !body.raw.is_null() => Ok(body),
            _ => Err(Error::GraphGone),
        }
    }

    pub(crate) fn push_body(&mut self, body: Body) -> u32 {
        let index = self.bodies.len() as u32;
        self.bodies.push(body);
        index
    }

    /// The node is gone: forget what it did, and everything embedded in it.
    pub(crate) fn forget(&mut self, body: u32, node: u32) {
        let mut gone = vec![(body, node)];
        while let Some((body, node)) = gone.pop() {
            let Some(body) = self.bodies.get_mut(body as usize) else {
                continue;
            };
            let slot = &mut body.nodes[node as usize];
            body.by_raw.remove(&(slot.raw as usize));
            slot.raw = std::ptr::null_mut();
            let branching = slot.content.op().and_then(AnyOp::branching);
            let condition = branching.map(|branching| branching.condition);
            let name = slot.content.name_only();
            self.trash.push(mem::replace(&mut slot.content, name));
            let inside = slot.inside();
            slot.child = None;
            if let Some(condition) = condition.filter(|condition| condition.serves_again) {
                self.give_back(condition);
            }
            for child in inside {
                self.forget_body(child, &mut gone);
            }
        }
    }

    fn forget_body(&mut self, body: u32, gone: &mut Vec<(u32, u32)>) {
        let dead = &mut self.bodies[body as usize];
        dead.raw = std::ptr::null_mut();
        let kept = mem::take(&mut dead.lingering);
        let tag = Tag::default();
        let lingering = Content::Unread(Some(Box::new(Unread { tag, kept })));
        self.trash.push(lingering);
        let alive = dead
            .nodes
            .iter()
            .enumerate()
            .filter(|(_, slot)| !slot.raw.is_null());
        gone.extend(alive.map(|(node, _)| (body, node as u32)));
    }

    /// The graph embedded in a node is another one now.
    pub(crate) fn forget_child(&mut self, body: u32, node: u32) {
        if let Some(child) = self.bodies[body as usize].nodes[node as usize].child.take() {
            let mut gone = Vec::new();
            self.forget_body(child, &mut gone);
            for (body, node) in gone {
                self.forget(body, node);
            }
        }
    }

    /// The graph embedded in node `node`, made known if it was not.
    pub(crate) fn child(&mut self, body: u32, node: u32) -> Result<u32> {
        let slot = &self.body(body)?.nodes[node as usize];
        if let Some(child) = slot.child {
            return Ok(child);
        }
        let raw = driver::node::child(slot.raw)?;
        let child = self.push_body(Body::new(raw, Some((body, node)), false));
        let slot = &mut self.bodies[body as usize].nodes[node as usize];
        (slot.child, slot.children) = (Some(child), 1);
        Ok(child)
    }

    /// Holds in `holdings` everything that graph `body` and those embedded in it use.
    pub(crate) fn hold(&self, body: u32, holdings: &mut Holdings) {
        let Some(body) = self.bodies.get(body as usize) else {
            return;
        };
        holdings.take(&body.lingering);
        for slot in &body.nodes {
            holdings.take(slot.content.owners());
            for child in slot.inside() {
                self.hold(child, holdings);
            }
        }
    }

    /// Puts in a conditional node of graph `body` with its bodies.
    pub(crate) fn push_conditional(
        &mut self,
        body: u32,
        mut slot: Slot,
        bodies: &[CUgraph],
    ) -> u32 {
        let index = self.bodies[body as usize].nodes.len() as u32;
        if let Some(branching) = slot.content.op().and_then(AnyOp::branching) {
            let looked_at = branching.condition;
            self.spare.retain(|spare| spare.raw() != looked_at.raw());
        }
        slot.child = Some(self.bodies.len() as u32);
        slot.children = bodies.len() as u32;
        for &raw in bodies {
            self.push_body(Body::new(raw, Some((body, index)), true));
        }
        let pushed = self.bodies[body as usize].push(slot);
        debug_assert_eq!(pushed, index);
        pushed
    }

    /// Node `node` of graph `body`, after the conditional nodes inside it, the innermost first.
    pub(crate) fn conditionals_at(&self, body: u32, node: u32) -> Vec<(u32, u32)> {
        let mut found = vec![(body, node)];
        let mut at = 0;
        while let Some(&(body, node)) = found.get(at) {
            for inside in self.bodies[body as usize].nodes[node as usize].inside() {
                let nodes = self.bodies[inside as usize].nodes.iter().enumerate();
                let conditional = nodes
                    .filter(|(_, slot)| slot.kind == NodeKind::Conditional && !slot.raw.is_null());
                found.extend(conditional.map(|(index, _)| (inside, index as u32)));
            }
            at += 1;
        }
        found.reverse();
        found
    }

    /// Whether there is a loop in graph `body`, or may be one.
    pub(crate) fn has_loops(&self, body: u32) -> bool {
        let Some(body) = self.bodies.get(body as usize) else {
            return false;
        };
        body.nodes.iter().any(|slot| {
            let own = slot.kind == NodeKind::Conditional
                && !slot.raw.is_null()
                && matches!(slot.content.op(), None | Some(AnyOp::While(_)));
            own || slot.inside().any(|inside| self.has_loops(inside))
        })
    }

    /// Whether graph `body` is a conditional node's, or inside one that is.
    pub(crate) fn is_in_body(&self, body: u32) -> bool {
        let mut at = self.bodies.get(body as usize);
        while let Some((parent, node)) = at.and_then(|body| body.parent) {
            let body = &self.bodies[parent as usize];
            if body.nodes[node as usize].kind == NodeKind::Conditional {
                return true;
            }
            at = Some(body);
        }
        false
    }

    /// Whether `ancestor` is `body` or contains it.
    pub(crate) fn contains(&self, ancestor: u32, body: u32) -> bool {
        let mut at = Some(body);
        while let Some(body) = at {
            if body == ancestor {
                return true;
            }
            at = self.bodies[body as usize].parent.map(|(parent, _)| parent);
        }
        false
    }
}

impl Slot {
    /// A node that does `op`, added after so many executables were made.
    #[inline]
    pub(crate) fn new(raw: CUgraphNode, op: AnyOp, after: u32) -> Slot {
        Slot {
            raw,
            after,
            is_plain: is_plain(&op),
            kind: op.kind(),
            child: None,
            children: 0,
            content: Content::of(op),
        }
    }

    /// The numbers of the graphs inside it, as far as known.
    pub(crate) fn inside(&self) -> std::ops::Range<u32> {
        self.child
            .map_or(0..0, |first| first..first + self.children)
    }

    /// A node that does whatever the driver says.
    pub(crate) fn unknown(raw: CUgraphNode, kind: NodeKind) -> Slot {
        Slot {
            raw,
            is_plain: false,
            kind,
            // It may be older than what is known of it.
            after: 0,
            child: None,
            children: 0,
            content: Content::Unread(None),
        }
    }

    /// The node once it is gone.
    pub(crate) fn gone(&self) -> Slot {
        Slot {
            raw: std::ptr::null_mut(),
            child: None,
            children: 0,
            content: self.content.name_only(),
            ..*self
        }
    }

    /// The node does `op` now. Comes back what was known of what it did.
    #[must_use]
    pub(crate) fn set(&mut self, op: AnyOp) -> Content {
        self.is_plain = is_plain(&op);
        mem::replace(&mut self.content, Content::of(op))
    }
}

fn is_plain(op: &AnyOp) -> bool {
    matches!(op, AnyOp::Kernel(op) if op.attributes().is_empty())
}

impl Body {
    pub(crate) fn new(raw: CUgraph, parent: Option<(u32, u32)>, ascending: bool) -> Body {
        Body {
            raw,
            parent,
            nodes: Vec::new(),
            by_raw: HashMap::default(),
            indexed: 0,
            lingering: Vec::new(),
            ascending,
            captured: false,
        }
    }

    /// The graph once it is gone.
    pub(crate) fn gone(&self) -> Body {
        let mut gone = Body::new(std::ptr::null_mut(), self.parent, false);
        gone.nodes.extend(self.nodes.iter().map(Slot::gone));
        gone
    }

    #[inline]
    pub(crate) fn push(&mut self, slot: Slot) -> u32 {
        let index = self.nodes.len() as u32;
        self.nodes.push(slot);
        index
    }

    /// Puts in a launch, written where it stays: a whole slot would be put together on the stack and copied from there.
    #[inline]
    pub(crate) fn push_kernel(&mut self, raw: CUgraphNode, op: KernelOp, after: u32) -> u32 {
        let index = self.nodes.len();
        if index == self.nodes.capacity() {
            self.nodes.reserve(FIRST_NODES);
        }
        self.nodes.spare_capacity_mut()[0].write(Slot {
            raw,
            is_plain: op.attributes().is_empty(),
            kind: NodeKind::Kernel,
            after,
            child: None,
            children: 0,
            content: Content::Op(AnyOp::Kernel(op)),
        });
        // SAFETY: there was room for one more, which was just written.
        unsafe { self.nodes.set_len(index + 1) };
        index as u32
    }

    /// The number of a node that the driver named; one unknown so far is taken in.
    pub(crate) fn number(&mut self, raw: CUgraphNode) -> Result<u32> {
        while let Some(slot) = self.nodes.get(self.indexed) {
            if !slot.raw.is_null() {
                self.by_raw.insert(slot.raw as usize, self.indexed as u32);
            }
            self.indexed += 1;
        }
        if let Some(&index) = self.by_raw.get(&(raw as usize)) {
            return Ok(index);
        }
        let kind = NodeKind::from_driver(driver::node::kind(raw)?);
        self.ascending = false;
        Ok(self.push(Slot::unknown(raw, kind)))
    }

    #[inline]
    pub(crate) fn slot(&self, node: u32) -> Option<&Slot> {
        self.nodes
            .get(node as usize)
            .filter(|slot| !slot.raw.is_null())
    }

    /// What to call node `node`.
    pub(crate) fn name(&self, node: u32) -> NodeName {
        match self.nodes.get(node as usize) {
            Some(slot) => NodeName::of_slot(node, slot),
            None => NodeName::unknown(node),
        }
    }
}

/// The driver's handle of a node of graph `body`, if it is one and is there.
#[inline]
pub(crate) fn resolve(
    hierarchy: u64,
    index: u32,
    body: &Body,
    node: NodeId,
) -> Result<CUgraphNode> {
    if node.hierarchy != hierarchy || node.body != index {
        return Err(Error::ForeignNode {
            node: node.index,
            kind: node.kind,
        });
    }
    match body.slot(node.index) {
        Some(slot) => Ok(slot.raw),
        None => Err(Error::NodeGone {
            node: Box::new(body.name(node.index)),
        }),
    }
}
