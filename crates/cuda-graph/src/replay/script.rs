//! What a step records, item by item.

use std::hash::{DefaultHasher, Hash, Hasher};
use std::iter::Peekable;
use std::panic::Location;
use std::sync::Arc;
use std::vec::IntoIter;

use crate::error::NodeKind;
use crate::exec::Edit;
use crate::graph::{AnyOp, ChildOp, Graph};
use crate::kernel::AnyParam;
use crate::memory::Region;
use crate::op::{CopyOp, KernelOp, Op, Tag};
use crate::record::Control;
use crate::{Owner, Result};

/// One item of a step, as a call of it records.
pub(super) enum Traced {
    Op(AnyOp),
    /// Foreign work that was captured, or an embedded graph.
    Captured(Captured),
    /// A loop or branch begins: its bodies follow. Or a checkpoint.
    Flow(FlowItem),
    /// A parallel part of so many branches begins.
    Fork(usize),
    /// The next body or branch begins.
    Next,
    /// A loop, branch or parallel part is over.
    End,
    /// Something is kept for foreign work.
    Keep(Owner),
}

/// A graph for a child node. Nobody else has it.
pub(super) struct Captured {
    pub graph: Graph,
    pub tag: Tag,
    /// What the driver does not change in a child node.
    pub topology: u64,
}

impl Captured {
    /// A copy of an embedded graph, which later changes of the graph do not reach.
    pub(super) fn of(child: &ChildOp) -> Result<Captured> {
        let copied = child.graph().try_clone();
        let copy = copied.map_err(|error| error.about(Op::name(child, None), "adding"))?;
        give_values_of_now(&copy)?;
        Captured::new(copy, child.tag().clone())
    }

    pub(super) fn new(graph: Graph, tag: Tag) -> Result<Captured> {
        let mut hasher = DefaultHasher::new();
        hash_topology(&graph, &mut hasher)?;
        Ok(Captured {
            topology: hasher.finish(),
            graph,
            tag,
        })
    }
}

/// Gives kernels of a graph the values that their parameters have now: the graph may have been made
/// when they had others.
fn give_values_of_now(graph: &Graph) -> Result<()> {
    for node in graph.nodes()? {
        match node.kind() {
            NodeKind::Kernel => {
                // A fill by a kernel is such a node, too, and has no parameters.
                if let Some(kernel) = node.typed::<KernelOp>()
                    && let AnyOp::Kernel(op) = graph.any_op(kernel)?
                    && let Some(now) = op.with_values_of_now()?
                {
                    graph.update(kernel, now)?;
                }
            }
            NodeKind::Child => {
                if let Some(child) = node.typed::<ChildOp>() {
                    give_values_of_now(&graph.child(child)?)?;
                }
            }
            _ => {}
        }
    }
    Ok(())
}

/// Hashes the kinds of nodes, the sides of copies, and the edges.
fn hash_topology(graph: &Graph, hasher: &mut DefaultHasher) -> Result<()> {
    let nodes = graph.nodes()?;
    nodes.len().hash(hasher);
    for node in &nodes {
        node.kind().hash(hasher);
        match node.kind() {
            NodeKind::Copy => {
                if let Some(copy) = node.typed::<CopyOp>() {
                    let copy = graph.op(copy)?;
                    (copy.to().space, copy.from().space).hash(hasher);
                }
            }
            NodeKind::Child => {
                if let Some(child) = node.typed::<ChildOp>() {
                    hash_topology(&graph.child(child)?, hasher)?;
                }
            }
            _ => {}
        }
    }
    let place = |node| nodes.iter().position(|other| *other == node);
    let edges = graph.edges()?.into_iter();
    let mut edges: Vec<_> = edges
        .map(|edge| (place(edge.from), place(edge.to)))
        .collect();
    edges.sort_unstable();
    edges.hash(hasher);
    Ok(())
}

#[derive(Clone)]
pub(super) struct FlowItem {
    pub control: Control,
    /// How many bodies follow: none behind a checkpoint.
    pub bodies: usize,
    /// A checkpoint's name.
    pub name: Option<Arc<str>>,
    pub flag: Region,
    /// The parameter that gave it.
    pub param: Option<Arc<dyn AnyParam>>,
    pub location: &'static Location<'static>,
}

impl FlowItem {
    /// Whether it is the same loop, branch or checkpoint, whatever its flag is.
    pub(super) fn is_like(&self, other: &FlowItem) -> bool {
        (self.control, self.bodies) == (other.control, other.bodies) && self.name == other.name
    }

    /// Whether both flags come from the same parameter, or from none.
    pub(super) fn has_param_of(&self, other: &FlowItem) -> bool {
        match (&self.param, &other.param) {
            (Some(param), Some(other)) => Arc::ptr_eq(param, other),
            (None, None) => true,
            _ => false,
        }
    }
}

/// A part of a step that the host drives.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Driven {
    /// A loop or branch that this source line records.
    Flow(&'static Location<'static>),
    /// So many parallel branches.
    Branches(usize),
}

/// A look at an item.
#[derive(Clone, Copy)]
pub(super) enum View<'a> {
    Op(&'a AnyOp),
    /// By its topology.
    Captured(u64),
    Flow(&'a FlowItem),
    Fork(usize),
    Next,
    End,
    Keep(&'a Owner),
    /// The step is over.
    Over,
}

impl Traced {
    pub(super) fn view(&self) -> View<'_> {
        match self {
            Traced::Op(op) => View::Op(op),
            Traced::Captured(captured) => View::Captured(captured.topology),
            Traced::Flow(flow) => View::Flow(flow),
            Traced::Fork(branches) => View::Fork(*branches),
            Traced::Next => View::Next,
            Traced::End => View::End,
            Traced::Keep(owner) => View::Keep(owner),
        }
    }
}

impl View<'_> {
    /// What the log calls it.
    pub(super) fn name(self) -> String {
        match self {
            View::Op(op) => format!("{op:?}"),
            View::Captured(_) => "foreign work or an embedded graph".into(),
            View::Flow(flow) => format!("{:?} at {}", flow.control, flow.location),
            View::Fork(branches) => format!("a parallel part of {branches}"),
            View::Next => "the next body or branch".into(),
            View::End => "the end of a loop, branch or parallel part".into(),
            View::Keep(_) => "something kept".into(),
            View::Over => "the end of the step".into(),
        }
    }
}

/// What a call changes about the executable that it goes on with. Each list ascends by the number
/// of the item.
#[derive(Default)]
pub(super) struct Changes {
    pub ops: Vec<Edit>,
    pub flows: Vec<(u32, FlowItem)>,
    pub captured: Vec<(u32, Captured)>,
    pub kept: Vec<(u32, Owner)>,
    /// Items that no update makes what they are to be.
    pub others: Vec<(u32, Traced)>,
}

impl Changes {
    /// How many there are.
    #[inline]
    pub(super) fn len(&self) -> usize {
        let lists = self.ops.len() + self.flows.len() + self.captured.len();
        lists + self.kept.len() + self.others.len()
    }

    pub(super) fn clear(&mut self) {
        self.ops.clear();
        self.flows.clear();
        self.captured.clear();
        self.kept.clear();
        self.others.clear();
    }

    /// Forgets those from item `start` on.
    pub(super) fn truncate(&mut self, start: usize) {
        let before = |item: u32| (item as usize) < start;
        self.ops
            .truncate(self.ops.partition_point(|edit| before(edit.item)));
        let flows = self.flows.partition_point(|(item, _)| before(*item));
        self.flows.truncate(flows);
        let captured = self.captured.partition_point(|(item, _)| before(*item));
        self.captured.truncate(captured);
        let kept = self.kept.partition_point(|(item, _)| before(*item));
        self.kept.truncate(kept);
        let others = self.others.partition_point(|(item, _)| before(*item));
        self.others.truncate(others);
    }

    /// What item `at` becomes, if it changes.
    pub(super) fn get(&self, at: usize) -> Option<View<'_>> {
        let at = at as u32;
        if let Ok(found) = self.ops.binary_search_by_key(&at, |edit| edit.item) {
            return Some(View::Op(&self.ops[found].op));
        }
        if let Ok(found) = self.flows.binary_search_by_key(&at, |(item, _)| *item) {
            return Some(View::Flow(&self.flows[found].1));
        }
        if let Ok(found) = self.captured.binary_search_by_key(&at, |(item, _)| *item) {
            return Some(View::Captured(self.captured[found].1.topology));
        }
        if let Ok(found) = self.kept.binary_search_by_key(&at, |(item, _)| *item) {
            return Some(View::Keep(&self.kept[found].1));
        }
        let found = self.others.binary_search_by_key(&at, |(item, _)| *item);
        Some(self.others[found.ok()?].1.view())
    }

    /// Gives the items out, in their order.
    pub(super) fn into_items(self) -> Items {
        Items {
            ops: self.ops.into_iter().peekable(),
            flows: self.flows.into_iter().peekable(),
            captured: self.captured.into_iter().peekable(),
            kept: self.kept.into_iter().peekable(),
            others: self.others.into_iter().peekable(),
        }
    }
}

/// Changed items in their order.
pub(super) struct Items {
    ops: Peekable<IntoIter<Edit>>,
    flows: Peekable<IntoIter<(u32, FlowItem)>>,
    captured: Peekable<IntoIter<(u32, Captured)>>,
    kept: Peekable<IntoIter<(u32, Owner)>>,
    others: Peekable<IntoIter<(u32, Traced)>>,
}

impl Items {
    /// What item `at` becomes, if it changes. It is asked for in order.
    pub(super) fn take(&mut self, at: usize) -> Option<Traced> {
        let at = at as u32;
        if let Some(edit) = self.ops.next_if(|edit| edit.item == at) {
            return Some(Traced::Op(edit.op));
        }
        if let Some((_, flow)) = self.flows.next_if(|(item, _)| *item == at) {
            return Some(Traced::Flow(flow));
        }
        if let Some((_, captured)) = self.captured.next_if(|(item, _)| *item == at) {
            return Some(Traced::Captured(captured));
        }
        if let Some((_, owner)) = self.kept.next_if(|(item, _)| *item == at) {
            return Some(Traced::Keep(owner));
        }
        let (_, other) = self.others.next_if(|(item, _)| *item == at)?;
        Some(other)
    }
}
