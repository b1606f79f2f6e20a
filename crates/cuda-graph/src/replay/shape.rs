//! An executable, with the script of the step that it runs.

use std::cell::RefCell;
use std::sync::Arc;

use cudarc::driver::CudaContext;
use smallvec::SmallVec;

use super::bound::Params;
use super::script::{Changes, Driven, FlowItem, Traced, View};
use crate::collective::Communicator;
use crate::error::NodeKind;
use crate::exec::{Edit, Exec, InstantiateOptions, Refused};
use crate::graph::operation::Holds;
use crate::graph::setter;
use crate::graph::state::State;
use crate::graph::{AnyOp, Checkpoints, ChildOp, Condition, NodeId, Operation};
use crate::op::Op;
use crate::record::{Body, Checkpoint, Control, Flow, Path, Recorder, Records};
use crate::{Error, Owner, Result};

/// An executable and what its items are.
pub(super) struct Shape {
    pub id: u64,
    pub exec: Exec,
    items: Vec<Item>,
    pub params: Params,
    /// It runs the rest of a step, behind a checkpoint.
    pub resumes: bool,
    /// Where the step may stop.
    pub checkpoints: Option<Checkpoints>,
    /// How many items may change.
    pub changeable: usize,
    /// The call that used it last.
    pub used: u64,
    /// The executable that the next call went on with at the same place.
    pub followed_by: u64,
    /// The loop, branch or parallel part behind it, if the host drives that.
    pub before: Option<Driven>,
}

/// One item of the script.
enum Item {
    Op(NodeId),
    /// With its topology.
    Captured(NodeId, u64),
    Flow(Box<PlacedFlow>),
    /// A loop or branch whose graph is not finished, with its conditional node.
    Unplaced(FlowItem, NodeId),
    /// A checkpoint whose graph is not finished, with the number of the body behind it.
    UnplacedCheckpoint(FlowItem, u32),
    Fork(usize),
    Next,
    End,
    Keep(Owner),
}

/// A loop or branch in the executable.
struct PlacedFlow {
    now: FlowItem,
    /// The kernel nodes that set its condition by its flag, and what each does.
    setters: SmallVec<[(NodeId, Sets); 2]>,
    condition: Condition,
    /// A loop's body has collectives of them.
    communicators: SmallVec<[Communicator; 1]>,
}

/// How a kernel sets a condition.
#[derive(Clone, Copy)]
enum Sets {
    /// By the flag.
    Entry,
    /// By the flag, at the end of a loop's body; and by whether the step stopped in it.
    Again { may_stop: bool },
    /// By whether the step stops at the checkpoint of this number.
    Checkpoint(u32),
}

/// How an item of a step goes with the item of a script at the same place.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Fit {
    Same,
    /// It may be that an update makes it the same.
    Changed,
    Other,
}

/// Why an executable was not changed.
pub(super) struct NotApplied {
    pub error: Error,
    /// It is what it was.
    pub restored: bool,
}

impl NotApplied {
    pub(super) fn as_it_was(error: Error) -> NotApplied {
        NotApplied {
            error,
            restored: true,
        }
    }
}

impl From<Refused> for NotApplied {
    fn from(refused: Refused) -> NotApplied {
        NotApplied {
            error: refused.error,
            restored: refused.restored,
        }
    }
}

impl Shape {
    /// How many items there are.
    #[inline]
    pub(super) fn len(&self) -> usize {
        self.items.len()
    }

    /// How `new` goes with item `at`.
    pub(super) fn fit(&self, at: usize, new: View<'_>) -> Fit {
        let same_or = |same: bool, otherwise: Fit| if same { Fit::Same } else { otherwise };
        match (self.items.get(at), new) {
            (Some(Item::Op(node)), View::Op(op)) => match self.exec.now(*node) {
                Some(now) if op.is_same_as(now) => Fit::Same,
                Some(now) if op.can_follow_on(now) => Fit::Changed,
                _ => Fit::Other,
            },
            (Some(Item::Captured(_, topology)), View::Captured(new)) => match *topology == new {
                true => Fit::Changed,
                false => Fit::Other,
            },
            (Some(Item::Flow(placed)), View::Flow(flow)) => {
                let now = &placed.now;
                match now.is_like(flow) {
                    true => {
                        let same = now.flag.is_same(&flow.flag) && now.has_param_of(flow);
                        same_or(same, Fit::Changed)
                    }
                    false => Fit::Other,
                }
            }
            (Some(Item::Fork(branches)), View::Fork(new)) => same_or(*branches == new, Fit::Other),
            (Some(Item::Keep(owner)), View::Keep(new)) => {
                same_or(Arc::ptr_eq(owner, new), Fit::Changed)
            }
            (Some(Item::Next), View::Next) | (Some(Item::End), View::End) | (None, View::Over) => {
                Fit::Same
            }
            _ => Fit::Other,
        }
    }

    /// The node of item `at` and what it does now, if it is an operation's.
    #[inline]
    pub(super) fn op(&self, at: usize) -> Option<(NodeId, &AnyOp)> {
        match self.items.get(at)? {
            Item::Op(node) => Some((*node, self.exec.now(*node)?)),
            _ => None,
        }
    }

    /// The loop or branch that item `at` is.
    pub(super) fn flow(&self, at: usize) -> Option<&FlowItem> {
        match self.items.get(at)? {
            Item::Flow(placed) => Some(&placed.now),
            _ => None,
        }
    }

    /// Calls `visit` with every loop and branch.
    pub(super) fn each_flow(&self, visit: &mut dyn FnMut(u32, &FlowItem)) {
        for (index, item) in (0..).zip(&self.items) {
            if let Item::Flow(placed) = item {
                visit(index, &placed.now);
            }
        }
    }

    /// Item `at` as it is now. What is captured is not known.
    pub(super) fn view(&self, at: usize) -> View<'_> {
        match self.items.get(at) {
            Some(Item::Op(node)) => self.exec.now(*node).map_or(View::Over, View::Op),
            Some(Item::Captured(_, topology)) => View::Captured(*topology),
            Some(Item::Flow(placed)) => View::Flow(&placed.now),
            Some(Item::Fork(branches)) => View::Fork(*branches),
            Some(Item::Next) => View::Next,
            Some(Item::End) => View::End,
            Some(Item::Keep(owner)) => View::Keep(owner),
            Some(Item::Unplaced(flow, _) | Item::UnplacedCheckpoint(flow, _)) => View::Flow(flow),
            None => View::Over,
        }
    }

    /// Item `at`, to be recorded again. What is captured cannot be.
    pub(super) fn traced(&self, at: usize) -> Option<Traced> {
        Some(match self.view(at) {
            View::Op(op) => Traced::Op(op.clone()),
            View::Flow(flow) => Traced::Flow(flow.clone()),
            View::Fork(branches) => Traced::Fork(branches),
            View::Next => Traced::Next,
            View::End => Traced::End,
            View::Keep(owner) => Traced::Keep(owner.clone()),
            View::Captured(_) | View::Over => return None,
        })
    }

    /// Whether all items can be recorded again, as they are or as they change.
    pub(super) fn is_traceable(&self, changes: &Changes) -> bool {
        let is_known = |(at, item): (usize, &Item)| {
            !matches!(item, Item::Captured(..)) || changes.get(at).is_some()
        };
        self.items.iter().enumerate().all(is_known)
    }

    /// Notes that item `at` becomes `new`, which [fits](Shape::fit) with a change.
    pub(super) fn note(&self, changes: &mut Changes, at: usize, new: Traced) {
        let item = at as u32;
        match (new, self.items.get(at)) {
            (Traced::Op(op), Some(Item::Op(node))) => changes.ops.push(Edit {
                item,
                node: *node,
                op,
            }),
            (Traced::Flow(flow), _) => changes.flows.push((item, flow)),
            (Traced::Captured(captured), _) => changes.captured.push((item, captured)),
            (Traced::Keep(owner), _) => changes.kept.push((item, owner)),
            _ => {}
        }
    }

    /// Makes the changes, all or none. They stay in `changes` if they are not made.
    pub(super) fn apply(&mut self, changes: &mut Changes) -> std::result::Result<(), NotApplied> {
        // Behind the operations: those that set conditions.
        let count = changes.ops.len();
        for (item, flow) in &changes.flows {
            let Some(Item::Flow(placed)) = self.items.get(*item as usize) else {
                continue;
            };
            let setters = placed.setters.iter();
            let stopped = self.checkpoints.as_ref().map(Checkpoints::word);
            let edits = setters.map(|&(node, sets)| {
                let (condition, flag) = (&placed.condition, &flow.flag);
                let kernels = setter::of(self.exec.context())?;
                let op = match (sets, &stopped, &flow.name) {
                    (Sets::Checkpoint(number), Some(stopped), Some(name)) => {
                        kernels.checkpoint(condition, stopped, flag, number, name)
                    }
                    (Sets::Again { may_stop }, stopped, _) => {
                        let stopped = stopped.as_ref().filter(|_| may_stop);
                        kernels.again(condition, flag, stopped, &placed.communicators)
                    }
                    _ => kernels.set(condition, Some(flag), None),
                };
                Ok(Edit {
                    item: *item,
                    node,
                    op: located(op?, flow),
                })
            });
            match edits.collect::<Result<SmallVec<[Edit; 2]>>>() {
                Ok(edits) => changes.ops.extend(edits),
                Err(error) => {
                    changes.ops.truncate(count);
                    return Err(NotApplied::as_it_was(error));
                }
            }
        }
        if let Err(refused) = self.exec.set_each(&changes.ops) {
            changes.ops.truncate(count);
            return Err(refused.into());
        }
        for (item, captured) in &changes.captured {
            let Some(Item::Captured(node, _)) = self.items.get(*item as usize) else {
                continue;
            };
            let mut op = ChildOp::new(&captured.graph);
            *op.tag_mut() = captured.tag.clone();
            if let Err(error) = self.exec.set_graph(*node, &op) {
                changes.ops.truncate(count);
                // The other nodes do something else by now.
                let restored = false;
                return Err(NotApplied { error, restored });
            }
        }
        let uses = |op: &AnyOp| {
            op.launch()
                .is_some_and(|op| !op.arguments().used().is_empty())
        };
        let has_uses = |edit: &Edit| uses(&edit.op) || self.exec.now(edit.node).is_some_and(uses);
        if changes.captured.len() + changes.flows.len() > 0 || changes.ops.iter().any(has_uses) {
            self.params.forget();
        }
        self.exec.hold_each(&mut changes.ops);
        for (item, flow) in changes.flows.drain(..) {
            if let Some(Item::Flow(placed)) = self.items.get_mut(item as usize) {
                placed.now = flow;
            }
        }
        for (item, owner) in changes.kept.drain(..) {
            if let Some(Item::Keep(kept)) = self.items.get_mut(item as usize) {
                self.exec.let_go(std::mem::replace(kept, owner));
            }
        }
        changes.captured.clear();
        Ok(())
    }

    /// Calls `visit` with everything that it holds.
    pub(super) fn each_owner(&self, visit: &mut dyn FnMut(&Owner)) {
        self.exec.each_owner(visit);
        for item in &self.items {
            match item {
                Item::Keep(owner) => visit(owner),
                Item::Flow(placed) => placed.now.flag.owner.iter().for_each(&mut *visit),
                _ => {}
            }
        }
    }

    /// Builds and instantiates what `script` says.
    pub(super) fn build(
        id: u64,
        context: &Arc<CudaContext>,
        script: &mut Vec<Traced>,
        options: &InstantiateOptions,
        resumes: bool,
    ) -> Result<Shape> {
        let mut path = Path::fresh(context, None)?;
        if resumes {
            path.begin_resume();
        }
        let mut items = Vec::with_capacity(script.len());
        record(&mut path, &mut script.drain(..), &mut items)?;
        let (graph, ()) = path.finish(Ok(()))?;
        let state = graph.hierarchy().look();
        let mut number = 0;
        for at in 0..items.len() {
            let placed = match &items[at] {
                Item::Unplaced(flow, node) => {
                    let may_stop = holds_checkpoint(&items[at + 1..]);
                    PlacedFlow::find(&state, flow.clone(), *node, may_stop)?
                }
                Item::UnplacedCheckpoint(flow, body) => {
                    number += 1;
                    let hierarchy = graph.hierarchy().id;
                    PlacedFlow::find_checkpoint(&state, flow.clone(), hierarchy, *body, number)?
                }
                _ => continue,
            };
            items[at] = Item::Flow(Box::new(placed));
        }
        drop(state);
        let changes = |item: &&Item| !matches!(item, Item::Fork(_) | Item::Next | Item::End);
        Ok(Shape {
            id,
            exec: graph.instantiate_with(options)?,
            changeable: items.iter().filter(changes).count(),
            items,
            used: 0,
            followed_by: id,
            before: None,
            params: Params::default(),
            resumes,
            checkpoints: graph.checkpoints().pop(),
        })
    }
}

impl Drop for Shape {
    fn drop(&mut self) {
        for item in self.items.drain(..) {
            if let Item::Keep(owner) = item {
                self.exec.let_go(owner);
            }
        }
    }
}

impl PlacedFlow {
    /// Finds the kernels around a conditional node, and inside of it, that read its flag.
    fn find(state: &State, now: FlowItem, node: NodeId, may_stop: bool) -> Result<PlacedFlow> {
        let body = state.body(node.body)?;
        let Some(Holds::Bodies(branching)) = body.content(node.index).map(Operation::holds) else {
            return Err(Error::GraphGone);
        };
        let kernel = |body, index| NodeId {
            body,
            index,
            kind: NodeKind::Kernel,
            ..node
        };
        let (mut setters, mut communicators) = (SmallVec::new(), SmallVec::new());
        // A do-while loop is entered without a look at its flag.
        if now.control != Control::DoWhile {
            setters.push((kernel(node.body, node.index - 1), Sets::Entry));
        }
        if now.control.is_loop() {
            let inside = body.inside(node.index).start;
            let last = kernel(inside, state.body(inside)?.len() - 1);
            setters.push((last, Sets::Again { may_stop }));
            communicators = state.communicators(inside);
        }
        Ok(PlacedFlow {
            now,
            setters,
            condition: branching.condition,
            communicators,
        })
    }

    /// Finds the kernel before the conditional node whose body is `body`.
    fn find_checkpoint(
        state: &State,
        now: FlowItem,
        hierarchy: u64,
        body: u32,
        number: u32,
    ) -> Result<PlacedFlow> {
        let (graph, node) = state.body(body)?.parent.ok_or(Error::GraphGone)?;
        let content = state.body(graph)?.content(node);
        let Some(Holds::Bodies(branching)) = content.map(Operation::holds) else {
            return Err(Error::GraphGone);
        };
        let setter = NodeId {
            hierarchy,
            body: graph,
            index: node - 1,
            kind: NodeKind::Kernel,
        };
        Ok(PlacedFlow {
            now,
            setters: SmallVec::from_slice(&[(setter, Sets::Checkpoint(number))]),
            condition: branching.condition,
            communicators: SmallVec::new(),
        })
    }
}

/// Whether there is a checkpoint among the items up to the end of the part that they are in.
fn holds_checkpoint(items: &[Item]) -> bool {
    let mut open = 1;
    for item in items {
        match item {
            Item::UnplacedCheckpoint(..) => return true,
            Item::Unplaced(..) | Item::Fork(_) => open += 1,
            Item::End => open -= 1,
            _ => {}
        }
        if open == 0 {
            return false;
        }
    }
    false
}

fn located(mut op: AnyOp, flow: &FlowItem) -> AnyOp {
    op.tag_mut().location = Some(flow.location);
    op
}

/// Records items up to the end of the script, of a body or of a branch.
fn record(
    r: &mut dyn Recorder,
    script: &mut dyn Iterator<Item = Traced>,
    items: &mut Vec<Item>,
) -> Result<()> {
    let missing = || Error::RecordingOver;
    loop {
        let item = match script.next() {
            None => return Ok(()),
            Some(Traced::Next) => {
                items.push(Item::Next);
                return Ok(());
            }
            Some(Traced::End) => {
                items.push(Item::End);
                return Ok(());
            }
            Some(Traced::Op(op)) => Item::Op(r.put(op)?.ok_or_else(missing)?),
            Some(Traced::Captured(captured)) => {
                let topology = captured.topology;
                let node = r.put_captured(captured.graph, captured.tag)?;
                Item::Captured(node.ok_or_else(missing)?, topology)
            }
            Some(Traced::Keep(owner)) => Item::Keep(owner),
            Some(Traced::Fork(branches)) => {
                items.push(Item::Fork(branches));
                with_bodies(branches, script, items, |bodies| r.put_branches(bodies))?;
                continue;
            }
            Some(Traced::Flow(now)) if now.control == Control::Checkpoint => {
                let body = r.put_checkpoint(Checkpoint {
                    name: now.name.clone().unwrap_or_default(),
                    flag: now.flag.clone(),
                    param: now.param.clone(),
                    location: now.location,
                })?;
                Item::UnplacedCheckpoint(now, body.ok_or_else(missing)?)
            }
            Some(Traced::Flow(now)) => {
                let at = items.len();
                // Its place; what it is comes below.
                items.push(Item::Next);
                let flow = Flow {
                    control: now.control,
                    flag: now.flag.clone(),
                    param: now.param.clone(),
                    location: now.location,
                };
                let node =
                    with_bodies(now.bodies, script, items, |bodies| r.put_flow(flow, bodies))?;
                items[at] = Item::Unplaced(now, node.ok_or_else(missing)?);
                continue;
            }
        };
        items.push(item);
    }
}

/// Calls `put` with bodies that record the items which follow.
fn with_bodies<R>(
    count: usize,
    script: &mut dyn Iterator<Item = Traced>,
    items: &mut Vec<Item>,
    put: impl FnOnce(&mut [&mut Body<'_>]) -> Result<R>,
) -> Result<R> {
    // The bodies are recorded one after the other.
    let shared = RefCell::new((script, items));
    let body = |r: &mut dyn Recorder| {
        let (script, items) = &mut *shared.borrow_mut();
        record(r, *script, items)
    };
    let mut bodies = vec![body; count];
    let mut bodies: Vec<&mut Body<'_>> = bodies.iter_mut().map(|body| body as _).collect();
    put(&mut bodies)
}
