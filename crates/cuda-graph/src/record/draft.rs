//! What is recorded before it is put into a graph.
//!
//! A body of a loop or branch, and everything recorded into a graph that others can reach, is a
//! list of values until it is whole. Then all of it becomes nodes under one lock, or none of it. So
//! an error or a panic takes nothing with it, and nobody sees half a loop (invariant L14).
//!
//! A draft's nodes have their numbers from the beginning, so handles on them stay what they are:
//! the numbers of new graphs and of new nodes in a graph that is there are reserved.

use std::ops::Range;
use std::panic::Location;

use cudarc::driver::sys::CUgraphConditionalNodeType;
use smallvec::SmallVec;

use super::setter::Setter;
use super::{Body, Control, Flow, Path, setter};
use crate::error::NodeKind;
use crate::graph::content::Content;
use crate::graph::state::{Hierarchy, RawNodes, State, check};
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
    in_body: bool,
    /// The graph is there, and others may add to it meanwhile.
    is_there: bool,
    nodes: Vec<Planned>,
    /// The number of the next node, in a graph that is not there yet.
    next: u32,
    /// How many numbers were given out.
    numbered: u32,
    /// The conditional nodes of it that take turns, in their order.
    turns: Vec<u32>,
    kept: Vec<Owner>,
}

/// A node to be, or a loop or branch, which is two.
pub(super) struct Planned {
    /// None for the next.
    first: Option<u32>,
    after: Numbers,
    what: What,
}

enum What {
    Op(AnyOp),
    /// A graph that nobody else has.
    Graph(Graph, Tag),
    Flow(FlowPlan),
}

/// A loop or branch that was recorded.
pub(super) struct FlowPlan {
    control: Control,
    flag: Region,
    location: &'static Location<'static>,
    setter: Setter,
    /// The numbers of the bodies.
    numbers: Range<u32>,
    bodies: Vec<(Draft, Numbers)>,
    /// It takes turns with others.
    in_turn: bool,
}

impl Draft {
    /// A draft of what goes into `graph`, which is there.
    pub(super) fn of(graph: &Graph) -> Result<Draft> {
        let state = graph.hierarchy().look();
        state.body(graph.body_index())?;
        Ok(Draft {
            into: Graph::from_view(graph.view()),
            in_body: state.is_in_body(graph.body_index()),
            is_there: true,
            nodes: Vec::new(),
            next: 0,
            numbered: 0,
            turns: Vec::new(),
            kept: Vec::new(),
        })
    }

    fn of_body(into: Graph) -> Draft {
        Draft {
            into,
            in_body: true,
            is_there: false,
            nodes: Vec::new(),
            next: 0,
            numbered: 0,
            turns: Vec::new(),
            kept: Vec::new(),
        }
    }

    pub(super) fn is_in_body(&self) -> bool {
        self.in_body
    }

    pub(super) fn keep(&mut self, owner: Owner) {
        self.kept.push(owner);
    }

    /// Numbers for so many nodes.
    fn number(&mut self, count: u32, kind: NodeKind) -> Result<u32> {
        self.numbered += count;
        if !self.is_there {
            self.next += count;
            return Ok(self.next - count);
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
        // The nodes have their numbers in order, two of them at most each.
        let next = |planned: &Planned| planned.first.is_some_and(|first| first <= index);
        let behind = self.nodes.partition_point(next);
        let last = behind.checked_sub(1).map(|at| &self.nodes[at]);
        last.is_some_and(|planned| {
            let count = match &planned.what {
                What::Flow(flow) => flow.nodes(self.in_body),
                _ => 1,
            };
            planned.first.is_some_and(|first| index < first + count)
        })
    }

    fn plan(&mut self, after: &[u32], count: u32, kind: NodeKind, what: What) -> Result<u32> {
        let first = self.number(count, kind)?;
        self.nodes.push(Planned {
            first: Some(first),
            after: after.into(),
            what,
        });
        Ok(first + count - 1)
    }

    /// Plans a node that does `op`.
    pub(super) fn add(&mut self, op: AnyOp, after: &[u32]) -> Result<u32> {
        check(self.into.hierarchy().id, &op, || self.in_body)?;
        let kind = Op::kind(&op);
        let what = match op {
            AnyOp::Child(child) => {
                let copy = self.into.copy_to_embed(&child)?;
                return self.embed(copy, child.tag().clone(), after);
            }
            op => What::Op(op),
        };
        self.plan(after, 1, kind, what)
    }

    /// Plans a node that runs `graph`.
    pub(super) fn embed(&mut self, graph: Graph, tag: Tag, after: &[u32]) -> Result<u32> {
        if self.in_body {
            graph.hierarchy().lock().check_for_body(0)?;
        }
        self.plan(after, 1, NodeKind::Child, What::Graph(graph, tag))
    }

    /// Plans a loop or branch. `turn` is the last one that is surely over before it.
    pub(super) fn flow(
        &mut self,
        flow: FlowPlan,
        after: &[u32],
        turn: Option<u32>,
    ) -> Result<(u32, bool)> {
        let mut after = Numbers::from(after);
        let in_turn = flow.in_turn;
        // What is in the graph is waited for when this goes there: others may add to it until then.
        wait_for_turn(&mut after, in_turn, turn, self.turns.last().copied());
        let count = flow.nodes(self.in_body);
        let node = self.plan(&after, count, NodeKind::Conditional, What::Flow(flow))?;
        if in_turn {
            self.turns.push(node);
        }
        Ok((node, in_turn))
    }

    /// Puts everything into the graph, or nothing.
    pub(super) fn commit(mut self) -> Result<()> {
        let hierarchy = self.into.hierarchy();
        driver::bind(self.into.context())?;
        let mut state = hierarchy.lock();
        let last = state.body_mut(self.into.body_index())?.last_turn();
        let in_turn =
            |planned: &&mut Planned| matches!(&planned.what, What::Flow(flow) if flow.in_turn);
        if let Some(first) = self.nodes.iter_mut().find(in_turn) {
            wait_for_turn(&mut first.after, true, None, last);
            if last > first.first {
                state.body_mut(self.into.body_index())?.ascending = false;
            }
        }
        state.put_planned(hierarchy, self.into.body_index(), &self.nodes)?;
        let body = state.body_mut(self.into.body_index())?;
        // The driver pairs nodes in the order in which they were added: others came in between.
        let first = self.nodes.iter().find_map(|planned| planned.first);
        if first.is_some_and(|first| first + self.numbered < body.len()) {
            body.ascending = false;
        }
        body.turns.extend_from_slice(&self.turns);
        state.keep_all(&self);
        Ok(())
    }
}

/// Adds `last`, the last conditional node that takes turns, unless `before` says that it is over.
fn wait_for_turn(after: &mut Numbers, in_turn: bool, before: Option<u32>, last: Option<u32>) {
    if let Some(last) = last.filter(|last| in_turn && before != Some(*last))
        && !after.contains(&last)
    {
        after.push(last);
    }
}

impl FlowPlan {
    /// Records a loop or branch for a graph of `root`'s hierarchy.
    pub(super) fn record(
        path: &Path,
        flow: &Flow<'_>,
        bodies: &mut [&mut Body<'_>],
    ) -> Result<FlowPlan> {
        let flag = flow.check(bodies)?;
        let count = bodies.len() as u32;
        // Asked first: an old driver does not load the kernels.
        need_conditional(flow.control.kind(), count)?;
        let graph = path.graph();
        let setter = setter::of(graph.context())?;
        // Never given back: nodes of bodies that come to nothing may have left handles behind (L2).
        let numbers = graph.hierarchy().lock().reserve(count);
        let mut plan = FlowPlan {
            control: flow.control,
            flag,
            location: flow.location,
            setter,
            numbers: numbers.clone(),
            bodies: Vec::with_capacity(bodies.len()),
            in_turn: flow.control.is_loop() || path.is_in_body(),
        };
        for (number, record) in numbers.zip(bodies) {
            let draft = Draft::of_body(graph.view_of(number));
            let mut inner = path.inside(draft);
            record(&mut inner)?;
            let (draft, ends) = inner.into_draft()?;
            let holds_flow = |planned: &Planned| matches!(planned.what, What::Flow(_));
            plan.in_turn |= draft.nodes.iter().any(holds_flow);
            plan.bodies.push((draft, ends));
        }
        Ok(plan)
    }

    /// How many nodes it is, in a body or elsewhere.
    fn nodes(&self, in_body: bool) -> u32 {
        match self.is_entered_by_launch(in_body) {
            true => 1,
            false => 2,
        }
    }

    /// Outside of bodies the launch itself enters a do-while loop. Inside, that would hold for the
    /// first time only.
    fn is_entered_by_launch(&self, in_body: bool) -> bool {
        self.control == Control::DoWhile && !in_body
    }

    fn located(&self, mut op: AnyOp) -> AnyOp {
        op.tag_mut().location = Some(self.location);
        op
    }
}

/// Puts a loop or branch into a graph that is there. Returns the number of its conditional node.
pub(super) fn put_flow(
    graph: &Graph,
    flow: FlowPlan,
    after: &[u32],
    turn: Option<u32>,
) -> Result<(u32, bool)> {
    driver::bind(graph.context())?;
    let hierarchy = graph.hierarchy();
    let mut planned = Planned {
        first: None,
        after: after.into(),
        what: What::Flow(flow),
    };
    let mut state = hierarchy.lock();
    let index = graph.body_index();
    let What::Flow(flow) = &planned.what else {
        unreachable!("it was just made")
    };
    let in_turn = flow.in_turn;
    let last = state.body_mut(index)?.last_turn();
    wait_for_turn(&mut planned.after, in_turn, turn, last);
    state.put_planned(hierarchy, index, std::slice::from_ref(&planned))?;
    let body = state.body_mut(index)?;
    let node = body.len() - 1;
    if in_turn {
        body.turns.push(node);
    }
    if let What::Flow(flow) = &planned.what {
        for (draft, _) in &flow.bodies {
            state.keep_all(draft);
        }
    }
    // What is left of the plan goes after unlocking.
    drop(state);
    Ok((node, in_turn))
}

impl State {
    /// Keeps what a draft, and the drafts in it, were given to keep.
    fn keep_all(&mut self, draft: &Draft) {
        let body = &mut self.bodies[draft.into.body_index() as usize];
        body.lingering.extend_from_slice(&draft.kept);
        for planned in &draft.nodes {
            if let What::Flow(flow) = &planned.what {
                for (draft, _) in &flow.bodies {
                    self.keep_all(draft);
                }
            }
        }
    }

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
        let after = self.handles(body, &planned.after)?;
        // In a graph that was not there, numbers follow each other by themselves.
        let is_new = self.body(body)?.len() <= planned.first.unwrap_or(u32::MAX);
        let slot = |offset: u32| match planned.first {
            Some(first) if !is_new => Slot::Reserved(first + offset),
            _ => Slot::New,
        };
        match &planned.what {
            What::Op(op) => {
                done.push(self.insert(hierarchy, body, op.clone(), &after, slot(0), None)?);
            }
            What::Graph(graph, tag) => {
                done.push(self.adopt(body, graph, tag.clone(), &after, slot(0))?);
            }
            What::Flow(flow) => {
                let in_body = self.is_in_body(body);
                let by_launch = flow.is_entered_by_launch(in_body);
                let condition = self.condition(hierarchy, by_launch.then_some(1))?;
                let made = self.put_flow(hierarchy, body, flow, &condition, after, slot, done);
                made.inspect_err(|_| self.spare.push(condition))?;
                self.fill(hierarchy, flow, &condition)?;
            }
        }
        Ok(())
    }

    /// Adds the setter and the conditional node.
    #[expect(clippy::too_many_arguments, reason = "one call from one place")]
    fn put_flow(
        &mut self,
        hierarchy: &Hierarchy,
        body: u32,
        flow: &FlowPlan,
        condition: &Condition,
        mut after: RawNodes,
        slot: impl Fn(u32) -> Slot,
        done: &mut Vec<u32>,
    ) -> Result<()> {
        let in_body = self.is_in_body(body);
        let mut offset = 0;
        if !flow.is_entered_by_launch(in_body) {
            let op = match flow.control {
                Control::DoWhile => flow.setter.enter(condition)?,
                _ => flow.setter.set(condition, &flow.flag)?,
            };
            let setter = self.insert(hierarchy, body, flow.located(op), &after, slot(0), None)?;
            done.push(setter);
            after = self.handles(body, &[setter])?;
            offset = 1;
        }
        let count = flow.bodies.len() as u32;
        let op = flow.located(match flow.control {
            Control::While | Control::DoWhile => WhileOp::new(condition).into(),
            Control::If => IfOp::new(condition).into(),
            Control::IfElse => IfElseOp::new(condition).into(),
            Control::Switch => SwitchOp::new(condition, count).into(),
        });
        let numbers = Some(flow.numbers.clone());
        done.push(self.insert(hierarchy, body, op, &after, slot(offset), numbers)?);
        Ok(())
    }

    /// Fills the bodies of a conditional node.
    fn fill(
        &mut self,
        hierarchy: &Hierarchy,
        flow: &FlowPlan,
        condition: &Condition,
    ) -> Result<()> {
        for (draft, ends) in &flow.bodies {
            let number = draft.into.body_index();
            for planned in &draft.nodes {
                self.put_one(hierarchy, number, planned, &mut Vec::new())?;
            }
            self.body_mut(number)?.turns.extend_from_slice(&draft.turns);
            if flow.control.is_loop() {
                let again = flow.located(flow.setter.set(condition, &flow.flag)?);
                let after = self.handles(number, ends)?;
                self.insert(hierarchy, number, again, &after, Slot::New, None)?;
            }
        }
        Ok(())
    }

    /// The driver's handles of nodes.
    pub(super) fn handles(&self, body: u32, nodes: &[u32]) -> Result<RawNodes> {
        let graph = self.body(body)?;
        let handle = |&node: &u32| {
            graph.handle(node).ok_or_else(|| Error::NodeGone {
                node: Box::new(graph.name(node)),
            })
        };
        nodes.iter().map(handle).collect()
    }
}

impl Control {
    fn is_loop(self) -> bool {
        matches!(self, Control::While | Control::DoWhile)
    }

    fn kind(self) -> CUgraphConditionalNodeType {
        use CUgraphConditionalNodeType as T;
        match self {
            Control::While | Control::DoWhile => T::CU_GRAPH_COND_TYPE_WHILE,
            Control::If | Control::IfElse => T::CU_GRAPH_COND_TYPE_IF,
            Control::Switch => T::CU_GRAPH_COND_TYPE_SWITCH,
        }
    }
}

/// Adds an operation to a graph that is there.
#[inline]
pub(super) fn insert<O: Operation>(graph: &Graph, op: O, after: &[u32]) -> Result<u32> {
    graph.insert(op, |body, nodes| {
        for &node in after {
            nodes.push(body.handle(node).ok_or_else(|| Error::NodeGone {
                node: Box::new(body.name(node)),
            })?);
        }
        Ok(())
    })
}
