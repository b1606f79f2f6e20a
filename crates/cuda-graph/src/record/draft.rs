//! What is recorded before it is put into a graph.
//!
//! A body of a loop or branch, and everything recorded into a graph that others can reach, is a
//! list of values until it is whole. Then all of it becomes nodes under one lock, or none of it. So
//! an error or a panic takes nothing with it, and nobody sees half a loop (invariant L14).
//!
//! A draft's nodes have their numbers from the beginning, so handles on them stay what they are:
//! the numbers of new graphs and of new nodes in a graph that is there are reserved.

use std::ops::Range;
use std::rc::Rc;
use std::sync::Arc;

use cudarc::driver::sys::CUgraphConditionalNodeType;
use smallvec::{SmallVec, smallvec};

use super::over::{Ids, Over};
use super::{Body, Control, Flow, Path};
use crate::collective::Communicator;
use crate::error::NodeKind;
use crate::graph::content::Content;
use crate::graph::operation::Holds;
use crate::graph::setter::{self, Setters};
use crate::graph::state::{self, Hierarchy, RawNodes, State, check};
use crate::graph::{
    AnyOp, Condition, Graph, IfElseOp, IfOp, Operation, Slot, SwitchOp, WhileOp, need_conditional,
};
use crate::memory::Region;
use crate::op::{Op, Tag};
use crate::{Error, Owner, Result, driver};

/// Nodes by their numbers in a graph.
pub(super) type Numbers = SmallVec<[u32; 4]>;

/// What was recorded for one graph.
pub(super) struct Draft {
    /// The graph that it goes into. A body's is not there yet.
    pub into: Graph,
    /// It is a body of a conditional node, or goes into one.
    pub in_body: bool,
    /// The number of the next node, in a graph that is not there yet. In one that is, others may
    /// add nodes meanwhile, and numbers are reserved.
    next: Option<u32>,
    nodes: Vec<Planned>,
    pub kept: Vec<Owner>,
}

/// A node to be, or a loop or branch, which is two.
struct Planned {
    numbers: Range<u32>,
    after: Numbers,
    /// What is surely over before it.
    over: Over,
    what: What,
}

enum What {
    Op(AnyOp),
    /// A graph that nobody else has.
    Graph(Graph, Tag),
    Flow(Rc<FlowPlan>),
}

/// A loop or branch that was recorded.
pub(super) struct FlowPlan {
    flow: Flow,
    setters: Setters,
    /// Where it is told that the step stopped, if it may stop inside.
    pub stopped: Option<Region>,
    /// Its number and name, if it is a checkpoint.
    pub checkpoint: Option<(u32, Arc<str>)>,
    /// The numbers of the bodies.
    numbers: Range<u32>,
    bodies: Vec<(Draft, Numbers)>,
    /// It takes turns with others.
    pub in_turn: bool,
}

impl What {
    /// The communicators that it has collectives of.
    fn communicators(&self) -> Ids {
        match self {
            What::Op(op) => communicators_of(op),
            What::Graph(graph, _) => {
                let state = graph.hierarchy().look();
                let communicators = state.communicators(graph.body_index());
                communicators.iter().map(Communicator::id).collect()
            }
            What::Flow(plan) => plan.communicators(),
        }
    }
}

/// The communicators that an operation has collectives of.
#[inline]
pub(super) fn communicators_of<O: Operation>(op: &O) -> Ids {
    if let Some(communicator) = op.of_communicator() {
        return smallvec![communicator.id()];
    }
    match op.holds() {
        Holds::Copy(child) => child.communicators().iter().map(Communicator::id).collect(),
        _ => Ids::new(),
    }
}

fn add_to(ids: &mut Ids, more: Ids) {
    let new = more.into_iter().filter(|id| !ids.contains(id));
    let new: Ids = new.collect();
    ids.extend(new);
}

impl state::Body {
    /// Adds the collectives before a node that has some of the communicators `ids` to what it waits
    /// for. `over` is before it anyway, and so is what it waits for.
    fn extend_in_line(&mut self, waits: &[u32], ids: &[u64], over: &Over, after: &mut RawNodes) {
        for &id in ids {
            if let Some(last) = self.last_in_line(id)
                && over.collective(id) != Some(last)
                && !waits.contains(&last)
                && let Some(last) = self.handle(last).filter(|last| !after.contains(last))
            {
                after.push(last);
            }
        }
    }

    /// A node has collectives of the communicators `ids`.
    fn put_in_line(&mut self, ids: &[u64], node: u32) {
        self.collectives.extend(ids.iter().map(|id| (*id, node)));
    }
}

/// Adds an operation with collectives to a graph that is there, behind those before it.
#[cold]
pub(super) fn insert_in_line<O: Operation>(
    graph: &Graph,
    op: O,
    after: &[u32],
    ids: &[u64],
    over: &Over,
) -> Result<u32> {
    // A graph is used by one thread at a time, so the line stays what it is here.
    let mut line = RawNodes::new();
    let index = graph.body_index();
    let mut state = graph.hierarchy().lock();
    let body = state.body_mut(index)?;
    body.extend_in_line(after, ids, over, &mut line);
    drop(state);
    let node = graph.insert(op, |body, raw| {
        resolve(body, after, raw)?;
        line.retain(|node| !raw.contains(node));
        raw.extend_from_slice(&line);
        Ok(())
    })?;
    graph
        .hierarchy()
        .lock()
        .body_mut(index)?
        .put_in_line(ids, node);
    Ok(node)
}

impl Draft {
    /// A draft of what goes into `graph`, which is there.
    pub(super) fn of(graph: &Graph) -> Result<Draft> {
        let state = graph.hierarchy().look();
        state.body(graph.body_index())?;
        let in_body = state.is_in_body(graph.body_index());
        Ok(Draft::new(Graph::from_view(graph.view()), in_body, None))
    }

    fn new(into: Graph, in_body: bool, next: Option<u32>) -> Draft {
        Draft {
            into,
            in_body,
            next,
            nodes: Vec::new(),
            kept: Vec::new(),
        }
    }

    /// Numbers for so many nodes.
    fn number(&mut self, count: u32, kind: NodeKind) -> Result<u32> {
        if let Some(next) = &mut self.next {
            *next += count;
            return Ok(*next - count);
        }
        let mut state = self.into.hierarchy().lock();
        let body = state.body_mut(self.into.body_index())?;
        let first = body.len();
        for _ in 0..count {
            body.push(std::ptr::null_mut(), Content::unknown(kind));
        }
        Ok(first)
    }

    /// Whether a node has this number when the draft is put into the graph.
    pub(super) fn plans(&self, index: u32) -> bool {
        // The numbers ascend.
        let is_before = |planned: &Planned| planned.numbers.end <= index;
        let at = self.nodes.partition_point(is_before);
        let planned = self.nodes.get(at);
        planned.is_some_and(|planned| planned.numbers.contains(&index))
    }

    fn plan(
        &mut self,
        (after, over): (&[u32], &Over),
        count: u32,
        kind: NodeKind,
        what: What,
    ) -> Result<u32> {
        let first = self.number(count, kind)?;
        self.nodes.push(Planned {
            numbers: first..first + count,
            after: after.into(),
            over: over.clone(),
            what,
        });
        Ok(first + count - 1)
    }

    /// Plans a node that does `op`.
    pub(super) fn add(&mut self, op: AnyOp, after: &[u32], over: &Over) -> Result<u32> {
        check(self.into.hierarchy().id, &op, || self.in_body)?;
        if let AnyOp::Child(child) = &op {
            let copy = self.into.copy_to_embed(child)?;
            return self.embed(copy, child.tag().clone(), after, over);
        }
        self.plan((after, over), 1, Op::kind(&op), What::Op(op))
    }

    /// Plans a node that runs `graph`.
    pub(super) fn embed(
        &mut self,
        graph: Graph,
        tag: Tag,
        after: &[u32],
        over: &Over,
    ) -> Result<u32> {
        if self.in_body {
            graph.hierarchy().lock().check_for_body(0)?;
        }
        let what = What::Graph(graph, tag);
        self.plan((after, over), 1, NodeKind::Child, what)
    }

    /// Plans a loop or branch. Returns the number of its conditional node.
    pub(super) fn flow(&mut self, plan: &Rc<FlowPlan>, after: &[u32], over: &Over) -> Result<u32> {
        // The kernel that sets the condition, and the conditional node.
        let count = match plan.is_entered_by_launch(self.in_body) {
            true => 1,
            false => 2,
        };
        let what = What::Flow(plan.clone());
        self.plan((after, over), count, NodeKind::Conditional, what)
    }

    /// Where it is, to come [back](Draft::go_back) to.
    pub(super) fn mark(&self) -> (usize, Option<u32>) {
        (self.nodes.len(), self.next)
    }

    /// Forgets the nodes behind the mark.
    pub(super) fn go_back(&mut self, (count, next): (usize, Option<u32>)) {
        self.nodes.truncate(count);
        self.next = next;
    }

    /// Puts everything into the graph, or nothing.
    pub(super) fn commit(self) -> Result<()> {
        driver::bind(self.into.context())?;
        let (hierarchy, index) = (self.into.hierarchy(), self.into.body_index());
        let mut state = hierarchy.lock();
        state.put_planned(hierarchy, index, &self.nodes)?;
        state.body_mut(index)?.lingering.extend(self.kept);
        Ok(())
    }
}

impl FlowPlan {
    /// A loop or branch of a graph of `path`'s hierarchy, whose bodies are not recorded yet.
    pub(super) fn new(path: &Path, flow: Flow, bodies: u32) -> Result<FlowPlan> {
        // Asked first: an old driver does not load the kernels.
        need_conditional(flow.control.kind(), bodies)?;
        let graph = path.graph();
        let setters = setter::of(graph.context())?;
        // Never given back: nodes of bodies that come to nothing may have left handles behind (L2).
        let numbers = graph.hierarchy().lock().reserve(bodies);
        Ok(FlowPlan {
            in_turn: flow.control.is_loop(),
            flow,
            setters,
            stopped: None,
            checkpoint: None,
            numbers,
            bodies: Vec::with_capacity(bodies as usize),
        })
    }

    /// The number of the next body, and an empty draft of it.
    pub(super) fn next_body(&self, path: &Path) -> (u32, Draft) {
        let number = self.numbers.start + self.bodies.len() as u32;
        (
            number,
            Draft::new(path.graph().view_of(number), true, Some(0)),
        )
    }

    /// Adds a body that was recorded, and the nodes at its end.
    pub(super) fn push_body(&mut self, draft: Draft, ends: Numbers) {
        let holds_flow = |planned: &Planned| matches!(planned.what, What::Flow(_));
        self.in_turn |= draft.nodes.iter().any(holds_flow);
        self.bodies.push((draft, ends));
    }

    /// Takes back the body that was added last.
    pub(super) fn pop_body(&mut self) -> Option<(Draft, Numbers)> {
        self.bodies.pop()
    }

    /// Whether it does nothing: what comes behind a part with checkpoints is empty.
    pub(super) fn is_empty_rest(&self) -> bool {
        let is_empty =
            |(draft, _): &(Draft, Numbers)| draft.nodes.is_empty() && draft.kept.is_empty();
        self.flow.control == Control::Unstopped && self.bodies.iter().all(is_empty)
    }

    /// Records a loop or branch for a graph of `path`'s hierarchy.
    pub(super) fn record(
        path: &Path,
        flow: Flow,
        bodies: &mut [&mut Body<'_>],
    ) -> Result<FlowPlan> {
        let mut plan = FlowPlan::new(path, flow, bodies.len() as u32)?;
        plan.in_turn |= path.is_in_body();
        for record in bodies {
            let mut inner = path.inside(plan.next_body(path).1);
            record(&mut inner)?;
            let (draft, ends) = inner.into_draft()?;
            plan.push_body(draft, ends);
        }
        Ok(plan)
    }

    /// Outside of bodies the launch itself enters a do-while loop. Inside, that would hold for the
    /// first time only.
    fn is_entered_by_launch(&self, in_body: bool) -> bool {
        self.flow.control == Control::DoWhile && !in_body
    }

    /// What sets the condition before the conditional node.
    fn entry(&self, condition: &Condition) -> Result<AnyOp> {
        let (flag, stopped) = (&self.flow.flag, self.stopped.as_ref());
        match (self.flow.control, stopped, &self.checkpoint) {
            (Control::Checkpoint, Some(stopped), Some((number, name))) => {
                let setters = &self.setters;
                setters.checkpoint(condition, stopped, flag, *number, name)
            }
            (Control::Unstopped, ..) => self.setters.set(condition, None, Some(flag)),
            (Control::DoWhile, ..) => self.setters.set(condition, None, None),
            _ => self.setters.set(condition, Some(flag), None),
        }
    }

    /// What sets a loop's condition at the end of its body.
    fn again(&self, condition: &Condition, communicators: &[Communicator]) -> Result<AnyOp> {
        let (flag, stopped) = (&self.flow.flag, self.stopped.as_ref());
        self.setters.again(condition, flag, stopped, communicators)
    }

    /// The communicators that its bodies have collectives of.
    pub(super) fn communicators(&self) -> Ids {
        let mut ids = Ids::new();
        let nodes = self.bodies.iter().flat_map(|(draft, _)| &draft.nodes);
        nodes.for_each(|planned| add_to(&mut ids, planned.what.communicators()));
        ids
    }

    fn located(&self, mut op: AnyOp) -> AnyOp {
        op.tag_mut().location = Some(self.flow.location);
        op
    }
}

/// Puts a loop or branch into a graph that is there. Returns the number of its conditional node.
pub(super) fn put_flow(
    graph: &Graph,
    plan: &Rc<FlowPlan>,
    after: &[u32],
    over: &Over,
) -> Result<u32> {
    driver::bind(graph.context())?;
    // What is left of it goes after unlocking.
    let mut draft = Draft::of(graph)?;
    let (hierarchy, index) = (graph.hierarchy(), graph.body_index());
    let mut state = hierarchy.lock();
    draft.next = Some(state.body(index)?.len());
    let node = draft.flow(plan, after, over)?;
    state.put_planned(hierarchy, index, &draft.nodes)?;
    Ok(node)
}

impl State {
    /// Puts nodes into graph `body`, all or none.
    fn put_planned(&mut self, hierarchy: &Hierarchy, body: u32, nodes: &[Planned]) -> Result<()> {
        let mut done = Vec::new();
        let put = nodes
            .iter()
            .try_for_each(|planned| self.put_one(hierarchy, body, planned, &mut done));
        let Err(error) = put else {
            return Ok(());
        };
        for node in done.into_iter().rev() {
            for (body, node) in self.conditionals_at(body, node) {
                if let Err(error) = self.destroy(body, node) {
                    tracing::error!("a node of a failed recording stays in its graph: {error}");
                }
            }
        }
        Err(error)
    }

    /// Puts one node, or the nodes of one loop or branch, into graph `body`, and their numbers into
    /// `done`.
    fn put_one(
        &mut self,
        hierarchy: &Hierarchy,
        body: u32,
        planned: &Planned,
        done: &mut Vec<u32>,
    ) -> Result<()> {
        let graph = self.body_mut(body)?;
        // In a graph that was not there, numbers follow each other by themselves.
        let is_new = graph.len() <= planned.numbers.start;
        let slot = |offset: u32| match is_new {
            true => Slot::New,
            false => Slot::Reserved(planned.numbers.start + offset),
        };
        let ids = planned.what.communicators();
        let mut after = handles(graph, &planned.after)?;
        graph.extend_in_line(&planned.after, &ids, &planned.over, &mut after);
        let plan = match &planned.what {
            What::Op(op) => {
                let node = self.insert(hierarchy, body, op.clone(), &after, slot(0), None)?;
                done.push(node);
                self.body_mut(body)?.put_in_line(&ids, node);
                return Ok(());
            }
            What::Graph(graph, tag) => {
                let node = self.adopt(body, graph, tag.clone(), &after, slot(0))?;
                done.push(node);
                self.body_mut(body)?.put_in_line(&ids, node);
                return Ok(());
            }
            What::Flow(plan) => plan,
        };
        // Others may have put a conditional node there since this one was planned.
        let over = planned.over.turn;
        if plan.in_turn
            && let Some(last) = graph.last_turn().filter(|last| over != Some(*last))
            && let Some(last) = graph.handle(last).filter(|last| !after.contains(last))
        {
            after.push(last);
        }
        let by_launch = plan.is_entered_by_launch(self.is_in_body(body));
        let condition = self.condition(hierarchy, by_launch.then_some(1))?;
        // Until a node uses it.
        self.spare.push(condition);
        if !by_launch {
            let op = plan.located(plan.entry(&condition)?);
            let setter = self.insert(hierarchy, body, op, &after, slot(0), None)?;
            done.push(setter);
            after = handles(self.body(body)?, &[setter])?;
        }
        let op = plan.located(match plan.flow.control {
            Control::While | Control::DoWhile => WhileOp::new(&condition).into(),
            Control::If | Control::Checkpoint | Control::Unstopped => IfOp::new(&condition).into(),
            Control::IfElse => IfElseOp::new(&condition).into(),
            Control::Switch => SwitchOp::new(&condition, plan.bodies.len() as u32).into(),
        });
        let (slot, numbers) = (slot(u32::from(!by_launch)), Some(plan.numbers.clone()));
        let node = self.insert(hierarchy, body, op, &after, slot, numbers)?;
        done.push(node);
        let graph = self.body_mut(body)?;
        graph.put_in_line(&ids, node);
        if plan.in_turn {
            graph.turns.push(node);
        }
        for (draft, ends) in &plan.bodies {
            let number = draft.into.body_index();
            for planned in &draft.nodes {
                self.put_one(hierarchy, number, planned, &mut Vec::new())?;
            }
            let inside = self.body_mut(number)?;
            inside.lingering.extend_from_slice(&draft.kept);
            if plan.flow.control.is_loop() {
                let after = handles(inside, ends)?;
                let again = plan.again(&condition, &self.communicators(number))?;
                let again = plan.located(again);
                self.insert(hierarchy, number, again, &after, Slot::New, None)?;
            }
        }
        Ok(())
    }
}

impl Control {
    pub(crate) fn is_loop(self) -> bool {
        matches!(self, Control::While | Control::DoWhile)
    }

    pub(crate) fn kind(self) -> CUgraphConditionalNodeType {
        use CUgraphConditionalNodeType as T;
        match self {
            Control::While | Control::DoWhile => T::CU_GRAPH_COND_TYPE_WHILE,
            Control::If | Control::IfElse | Control::Checkpoint | Control::Unstopped => {
                T::CU_GRAPH_COND_TYPE_IF
            }
            Control::Switch => T::CU_GRAPH_COND_TYPE_SWITCH,
        }
    }
}

/// Puts the driver's handles of nodes of `graph` into `raw`.
#[inline]
pub(super) fn resolve(graph: &state::Body, nodes: &[u32], raw: &mut RawNodes) -> Result<()> {
    for &node in nodes {
        raw.push(graph.handle(node).ok_or_else(|| Error::NodeGone {
            node: Box::new(graph.name(node)),
        })?);
    }
    Ok(())
}

/// The driver's handles of nodes of `graph`.
pub(super) fn handles(graph: &state::Body, nodes: &[u32]) -> Result<RawNodes> {
    let mut raw = RawNodes::new();
    resolve(graph, nodes, &mut raw)?;
    Ok(raw)
}

/// Adds an operation to a graph that is there.
#[inline]
pub(super) fn insert<O: Operation>(graph: &Graph, op: O, after: &[u32]) -> Result<u32> {
    graph.insert(op, |body, raw| resolve(body, after, raw))
}
