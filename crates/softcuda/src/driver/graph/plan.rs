//! A snapshot laid out to be run: every node of every child graph and body has a slot in one list.
//! A child graph's node has the slot where it begins, and its nodes follow; where it ends is a slot
//! of its own. A conditional node has a slot, and those of its bodies follow.
//!
//! Slots that run as one are a *level*: those of the graph and its child graphs, and those of each
//! body and its child graphs. A level has edges, an order and segments of its own.

use std::sync::Arc;

use parking_lot::Mutex;

use super::memory::{GraphMemory, PlanMemory};
use super::operation::{
    BatchNode, Choice, ConditionalNode, CopyNode, FillNode, HostNode, Kind, Operation,
};
use super::snapshot::Snapshot;
use super::user_object::Reference;
use crate::driver::context::Context;
use crate::driver::event::Event;
use crate::driver::{CUresult, Result, failure, launch};
use crate::engine::dag::{self, Cycle, Dag, Nodes, Rounds};
use crate::engine::{Failure, Fate, Inside, Marker, host};
use crate::grid::device_functions::condition::{Condition, Conditions};
use crate::grid::launch::Launch;

/// What a slot does, ready to be done any number of times.
#[derive(Clone)]
pub(crate) enum Work {
    Nothing,
    Kernel(Arc<Launch>),
    Copy(Arc<CopyNode>),
    Fill(Arc<FillNode>),
    Host(HostNode),
    Record(Arc<Event>),
    Wait(Arc<Event>),
    Batch(Arc<BatchNode>),
    Free(Arc<GraphMemory>),
    Conditional(Arc<ConditionalNode>),
}

/// A node, in an executable.
#[derive(Clone)]
pub(super) struct Slot {
    /// The node of the definition.
    pub node: usize,
    /// What it does, as the program said.
    pub operation: Operation,
    /// And to do it.
    pub work: Work,
    /// It does it.
    pub enabled: bool,
    /// The level of its first body, where it is a conditional node's.
    bodies: u32,
    /// What such a node goes by, whatever it is updated to.
    condition: Option<Arc<Condition>>,
}

/// What one graph of an executable keeps alive for the program.
#[derive(Clone)]
pub(super) struct Held {
    /// The slot of the node that the graph is in, or nothing for the outermost graph.
    pub by: Option<u32>,
    _reference: Reference,
}

impl Held {
    /// What a graph keeps alive, without what graphs inside it do.
    pub fn by(by: Option<u32>, graph: &Snapshot) -> impl Iterator<Item = Held> {
        let references = graph.references.iter().cloned();
        references.map(move |reference| Held {
            by,
            _reference: reference,
        })
    }
}

/// Slots that run as one.
struct Level {
    dag: Dag,
    /// The slot of each number in `dag`, in order.
    slots: Box<[u32]>,
}

/// What an executable runs. Launches in flight share it with the executable: who changes it changes
/// a copy of its own.
#[derive(Clone)]
pub(super) struct Plan {
    /// The graph's, then those of bodies.
    levels: Arc<[Level]>,
    /// Of all levels.
    pub slots: Vec<Slot>,
    /// What conditional nodes go by, and what a launch sets of that when it begins.
    conditions: Option<Arc<PlanConditions>>,
    /// Slots that record or wait for events, in an order that edges allow.
    events: Arc<[u32]>,
    /// Slots of memory operations.
    batches: Arc<[u32]>,
    /// It calls functions of the program's.
    calls: bool,
    /// The contexts of nodes.
    contexts: Arc<[Arc<Context>]>,
    /// Memory that launches take and give back.
    pub memory: Option<Arc<PlanMemory>>,
    /// What it keeps alive for the program, in all its graphs.
    pub held: Arc<[Held]>,
}

/// A snapshot's slots, level by level.
#[derive(Default)]
struct Layout {
    slots: Vec<Place>,
    levels: Vec<Outline>,
    held: Vec<Held>,
}

/// A slot.
struct Place {
    node: usize,
    operation: Operation,
    bodies: u32,
}

/// A level: its slots, and edges between them by their places in it.
#[derive(Default)]
struct Outline {
    slots: Vec<u32>,
    edges: Vec<(u32, u32)>,
}

impl Layout {
    /// Gives slots to all nodes of a graph and of what is inside it.
    fn of(snapshot: &Snapshot) -> Layout {
        let mut layout = Layout::default();
        layout.levels.push(Outline::default());
        layout.add(snapshot, 0, None);
        layout
    }

    /// A new slot; gives its place in its level.
    fn place(&mut self, level: usize, node: usize, operation: Operation) -> u32 {
        let slot = self.slots.len() as u32;
        self.slots.push(Place {
            node,
            operation,
            bodies: 0,
        });
        let level = &mut self.levels[level];
        level.slots.push(slot);
        level.slots.len() as u32 - 1
    }

    /// Gives the first and last place of each member. `node` is the slot of the node that the
    /// graph is in.
    fn add(&mut self, snapshot: &Snapshot, level: usize, node: Option<u32>) -> Vec<(u32, u32)> {
        self.held.extend(Held::by(node, snapshot));
        let mut ends: Vec<(u32, u32)> = Vec::with_capacity(snapshot.members.len());
        for member in &snapshot.members {
            let slot = self.slots.len();
            let first = self.place(level, member.handle, member.operation.clone());
            let mut last = first;
            match (&member.operation, &member.inner[..]) {
                (Operation::Child(_), [inner]) => {
                    let inside = self.add(inner, level, Some(slot as u32));
                    last = self.place(level, member.handle, Operation::Empty);
                    let edges = &mut self.levels[level].edges;
                    if inside.is_empty() {
                        edges.push((first, last));
                    }
                    let entries = inner.members.iter().zip(&inside);
                    let entries = entries.filter(|(member, _)| member.dependencies.is_empty());
                    edges.extend(entries.map(|(_, ends)| (first, ends.0)));
                    let exits = inner.exits().into_iter();
                    edges.extend(exits.map(|exit| (inside[exit as usize].1, last)));
                }
                (_, bodies) => {
                    let below = self.levels.len();
                    self.slots[slot].bodies = below as u32;
                    let outlines = bodies.iter().map(|_| Outline::default());
                    self.levels.extend(outlines);
                    for (body, level) in bodies.iter().zip(below..) {
                        self.add(body, level, Some(slot as u32));
                    }
                }
            }
            ends.push((first, last));
        }
        let edges = &mut self.levels[level].edges;
        for (member, &(first, _)) in snapshot.members.iter().zip(&ends) {
            let from = member.dependencies.iter();
            edges.extend(from.map(|&(from, _)| (ends[from as usize].1, first)));
        }
        ends
    }
}

/// What the conditional nodes of a plan go by.
struct PlanConditions {
    /// What kernels can set: each by the number that it had when the executable was made, and by
    /// that of the condition in its place in the graph that the executable was updated from.
    all: Conditions,
    /// What is set at the beginning of a launch, and to what.
    defaults: Box<[(Arc<Condition>, u32)]>,
}

impl PlanConditions {
    /// Of conditional nodes among slots.
    fn of(slots: &[Slot]) -> Option<Arc<PlanConditions>> {
        let (mut own, mut updated, mut defaults) = (Vec::new(), Vec::new(), Vec::new());
        for slot in slots {
            if let (Operation::Conditional(node), Some(value)) = (&slot.operation, &slot.condition)
            {
                own.push((value.number(), value.clone()));
                updated.push((node.condition().value.number(), value.clone()));
                let default = node.condition().default();
                defaults.extend(default.map(|default| (value.clone(), default)));
            }
        }
        own.extend(updated);
        (!own.is_empty()).then(|| {
            Arc::new(PlanConditions {
                all: Conditions::new(own),
                defaults: defaults.into(),
            })
        })
    }
}

/// The memory that slots take and give back.
fn memory_of(slots: &[Slot]) -> Option<Arc<PlanMemory>> {
    let (mut takes, mut frees) = (Vec::new(), Vec::new());
    for slot in slots {
        match &slot.operation {
            Operation::Alloc(memory) => takes.push(memory.clone()),
            Operation::Free(memory) => frees.push(memory.clone()),
            _ => {}
        }
    }
    let any = !takes.is_empty() || !frees.is_empty();
    any.then(|| Arc::new(PlanMemory::new(takes, frees)))
}

/// Why there is no plan.
pub(crate) struct Unplanned {
    /// What the call answers.
    pub error: CUresult,
    /// A node that is why.
    pub node: Option<usize>,
    /// What is wrong.
    pub why: Why,
}

/// What is wrong with a graph: `CUgraphInstantiateResult`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u32)]
pub(crate) enum Why {
    /// What the call's answer says.
    Error = 1,
    /// Its structure.
    Structure = 2,
    /// A node that an executable which kernels launch cannot have.
    NotForKernels = 3,
    /// Nodes of several contexts, in such an executable; copies of pageable memory count as such.
    SeveralContexts = 4,
    /// No node uses a condition.
    UnusedCondition = 5,
}

impl Unplanned {
    /// The graph is wrong, because of a node or as a whole.
    pub fn invalid(node: Option<usize>, why: Why) -> Unplanned {
        Unplanned {
            error: CUresult::CUDA_ERROR_INVALID_VALUE,
            node,
            why,
        }
    }
}

impl From<CUresult> for Unplanned {
    fn from(error: CUresult) -> Self {
        Unplanned {
            error,
            node: None,
            why: Why::Error,
        }
    }
}

impl Plan {
    /// The plan of a snapshot whose bodies hold what they may.
    pub fn of(snapshot: &Snapshot) -> std::result::Result<Plan, Unplanned> {
        let layout = Layout::of(snapshot);
        let mut levels = Vec::with_capacity(layout.levels.len());
        for outline in layout.levels {
            let count = outline.slots.len() as u32;
            let dag = Dag::new(count, &outline.edges).map_err(|Cycle(place)| {
                let slot = outline.slots[place as usize];
                Unplanned::invalid(Some(layout.slots[slot as usize].node), Why::Structure)
            })?;
            levels.push(Level {
                dag,
                slots: outline.slots.into(),
            });
        }
        let mut slots = Vec::with_capacity(layout.slots.len());
        for place in layout.slots {
            let Place {
                node,
                operation,
                bodies,
            } = place;
            let work = operation.prepare().map_err(|error| Unplanned {
                error,
                node: Some(node),
                why: Why::Error,
            })?;
            let condition = match &operation {
                Operation::Conditional(node) => Some(node.condition().value.clone()),
                _ => None,
            };
            slots.push(Slot {
                node,
                operation,
                work,
                enabled: true,
                bodies,
                condition,
            });
        }
        let kind = |slot: u32| slots[slot as usize].operation.kind();
        let has_event = |kind| matches!(kind, Kind::EventRecord | Kind::EventWait);
        let events: Arc<[u32]> = match slots.iter().any(|it| has_event(it.operation.kind())) {
            // None of them is in a body.
            true => {
                let Level { dag, slots } = &levels[0];
                let order = dag.order().map(|place| slots[place as usize]);
                order.filter(|&slot| has_event(kind(slot))).collect()
            }
            false => Arc::default(),
        };
        let mut contexts: Vec<Arc<Context>> = Vec::new();
        for context in slots.iter().filter_map(|slot| slot.operation.context()) {
            if contexts.iter().all(|known| known.id() != context.id()) {
                contexts.push(context.clone());
            }
        }
        let batches = (0..slots.len() as u32).filter(|&slot| kind(slot) == Kind::Batch);
        Ok(Plan {
            batches: batches.collect(),
            contexts: contexts.into(),
            memory: memory_of(&slots),
            calls: slots.iter().any(|slot| slot.operation.kind() == Kind::Host),
            held: layout.held.into(),
            levels: levels.into(),
            conditions: PlanConditions::of(&slots),
            slots,
            events,
        })
    }

    /// The operations of its slots have changed: so may have the memory that launches take, and the
    /// conditions.
    pub fn refresh(&mut self) {
        if self.conditions.is_some() {
            self.conditions = PlanConditions::of(&self.slots);
        }
        if self.memory.is_some() {
            self.memory = memory_of(&self.slots);
        }
    }

    /// Fails where kernels could not launch it, though they could each of its nodes.
    pub fn check_for_kernels(&self) -> std::result::Result<(), Unplanned> {
        if self.contexts.is_empty() {
            return Err(Unplanned::invalid(None, Why::Error));
        }
        let first = self.contexts[0].id();
        let other = self.slots.iter().find(|slot| {
            let context = slot.operation.context();
            context.is_some_and(|context| context.id() != first)
        });
        match other {
            None => Ok(()),
            Some(slot) => Err(Unplanned::invalid(Some(slot.node), Why::SeveralContexts)),
        }
    }

    /// Fails where a node's context was destroyed, and where memory operations are none that can be
    /// made there.
    pub fn check(&self) -> Result {
        self.contexts
            .iter()
            .try_for_each(|context| context.check())?;
        self.batches
            .iter()
            .try_for_each(|&slot| match &self.slots[slot as usize].work {
                Work::Batch(node) => node.check_memory(),
                _ => Ok(()),
            })
    }

    /// The contexts of its conditions: none where it has no conditional nodes.
    pub fn contexts_of_conditions(&self) -> Vec<Arc<Context>> {
        let mut contexts: Vec<Arc<Context>> = Vec::new();
        let conditional = self.slots.iter().filter(|slot| slot.condition.is_some());
        for context in conditional.filter_map(|slot| slot.operation.context()) {
            if contexts.iter().all(|known| known.id() != context.id()) {
                contexts.push(context.clone());
            }
        }
        contexts
    }

    /// The events that its nodes wait for.
    pub fn waited_for(&self) -> impl Iterator<Item = &Arc<Event>> {
        let events = self.events.iter();
        events.filter_map(|&slot| match &self.slots[slot as usize].work {
            Work::Wait(event) => Some(event),
            _ => None,
        })
    }

    /// It calls functions of the program's.
    pub fn calls(&self) -> bool {
        self.calls
    }

    /// The slot of each node, sorted by the node's handle.
    pub fn index(&self) -> Vec<(usize, u32)> {
        let mut index: Vec<(usize, u32)> = (self.slots.iter().zip(0..))
            .map(|(slot, number)| (slot.node, number))
            .collect();
        index.sort_unstable();
        // A child graph's node has two: the first is its own.
        index.dedup_by_key(|entry| entry.0);
        index
    }
}

/// An event, and what it is to be.
pub(super) type Recorded = (Arc<Event>, Arc<Marker>);

/// What a slot with an event does in one launch.
enum Mark {
    Record(Inside),
    Wait(Vec<Arc<Marker>>),
}

/// A launch of a plan.
pub(super) struct Run {
    plan: Arc<Plan>,
    /// For each slot with an event, in the order of their numbers.
    marks: Vec<(u32, Mark)>,
    /// For each level, what it takes to run it again; levels are numbered as the plan's. Each is
    /// run by one thread at a time: the one that performs its conditional node.
    rounds: Box<[Mutex<Option<Rounds<Part>>>]>,
    lane: usize,
}

impl Run {
    /// A launch, which decides what events mean in it. It also gives what events are to be from
    /// then on: that takes effect once the launch is in a queue.
    pub fn new(plan: Arc<Plan>, lane: usize) -> (Run, Vec<Recorded>) {
        let mut marks = Vec::with_capacity(plan.events.len());
        let mut recorded: Vec<Recorded> = Vec::new();
        for &number in plan.events.iter() {
            match &plan.slots[number as usize].work {
                Work::Record(event) => {
                    let inside = Marker::inside();
                    recorded.push((event.clone(), inside.marker().clone()));
                    marks.push((number, Mark::Record(inside)));
                }
                Work::Wait(event) => {
                    let here = recorded.iter().rev();
                    let mut here = here.filter(|(other, _)| Arc::ptr_eq(other, event));
                    let wanted = match here.next() {
                        Some((_, marker)) => vec![marker.clone()],
                        None => event.recorded(),
                    };
                    marks.push((number, Mark::Wait(wanted)));
                }
                _ => {}
            }
        }
        marks.sort_unstable_by_key(|mark| mark.0);
        let rounds = plan.levels.iter().skip(1).map(|_| Mutex::new(None));
        let run = Run {
            rounds: rounds.collect(),
            plan,
            marks,
            lane,
        };
        (run, recorded)
    }

    /// Runs it, on this thread and others.
    pub fn run(self) -> std::result::Result<(), Failure> {
        for (condition, default) in self.plan.conditions.iter().flat_map(|it| &it.defaults) {
            condition.set(*default);
        }
        let run = Arc::new(self);
        let lane = run.lane;
        let done = dag::run(
            &Arc::new(Part {
                run: run.clone(),
                level: 0,
            }),
            lane,
        );
        // They have the run.
        for rounds in &run.rounds {
            rounds.lock().take();
        }
        done
    }

    fn mark(&self, slot: u32) -> Option<&Mark> {
        let place = self.marks.binary_search_by_key(&slot, |mark| mark.0).ok()?;
        Some(&self.marks[place].1)
    }
}

/// A level of a run.
struct Part {
    run: Arc<Run>,
    level: u32,
}

impl Nodes for Part {
    fn dag(&self) -> &Dag {
        &self.run.plan.levels[self.level as usize].dag
    }

    fn perform(&self, place: u32) -> std::result::Result<(), Failure> {
        let level = &self.run.plan.levels[self.level as usize];
        self.run.perform(level.slots[place as usize])
    }

    fn given_up(&self) -> bool {
        given_up()
    }
}

/// Something failed, in this launch or beside it.
fn given_up() -> bool {
    failure::failed().is_some()
}

impl Run {
    /// Runs the bodies of a conditional node as its condition says.
    fn choose(
        self: &Arc<Self>,
        node: &ConditionalNode,
        slot: &Slot,
    ) -> std::result::Result<(), Failure> {
        let (choice, Some(condition)) = (node.choice(), &slot.condition) else {
            return Ok(());
        };
        let Some(body) = choice.body(condition.get(), node.bodies().len()) else {
            return Ok(());
        };
        let level = slot.bodies + body as u32;
        let kept = &self.rounds[level as usize - 1];
        let mut rounds = kept.lock().take().unwrap_or_else(|| {
            let part = Part {
                run: self.clone(),
                level,
            };
            Rounds::new(Arc::new(part), self.lane)
        });
        let mut done = rounds.run();
        while choice == Choice::While && done.is_ok() && condition.get() != 0 && !given_up() {
            done = rounds.run();
        }
        *kept.lock() = Some(rounds);
        done
    }

    fn perform(self: &Arc<Self>, number: u32) -> std::result::Result<(), Failure> {
        let slot = &self.plan.slots[number as usize];
        if !slot.enabled {
            return Ok(());
        }
        let done: Result = match &slot.work {
            Work::Nothing => Ok(()),
            Work::Kernel(it) => {
                let conditions = self.plan.conditions.as_ref();
                launch::run_in_graph(it, conditions.map(|it| &it.all))
            }
            Work::Copy(node) => node.execute(),
            Work::Fill(node) => node.execute(),
            Work::Batch(node) => node.execute(),
            Work::Free(memory) => {
                let own = self.plan.memory.as_ref();
                if own.is_some_and(|plan| plan.is_own(memory)) {
                    memory.free();
                }
                Ok(())
            }
            Work::Conditional(node) => return self.choose(node, slot),
            Work::Host(node) => {
                host::forbid_calls(|| node.call());
                Ok(())
            }
            Work::Record(_) | Work::Wait(_) => {
                match self.mark(number) {
                    Some(Mark::Record(inside)) => inside.fire(),
                    Some(Mark::Wait(markers)) => markers.iter().for_each(|it| it.synchronize()),
                    None => {}
                }
                Ok(())
            }
        };
        done.map_err(|error| {
            let failure = Failure(error.0);
            // At once: other nodes may wait until something failed.
            failure::OfProcess.fail(failure);
            failure
        })
    }
}
