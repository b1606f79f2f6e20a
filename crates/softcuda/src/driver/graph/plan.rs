//! A snapshot laid out to be run: every node of every child graph has a slot in one list. A child graph's node has the slot
//! where it begins, and its nodes follow; where it ends is a slot of its own.

use std::sync::Arc;

use super::memory::{GraphMemory, PlanMemory};
use super::operation::{BatchNode, CopyNode, FillNode, HostNode, Kind, Operation};
use super::snapshot::Snapshot;
use super::user_object::Reference;
use crate::driver::context::Context;
use crate::driver::event::Event;
use crate::driver::{CUresult, Result, failure, launch};
use crate::engine::dag::{Cycle, Dag, Nodes};
use crate::engine::{Failure, Inside, Marker, host};
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
}

/// What an executable runs. Launches in flight share it with the executable: who changes it changes a copy of its own.
#[derive(Clone)]
pub(super) struct Plan {
    dag: Arc<Dag>,
    /// By the numbers of `dag`.
    pub slots: Vec<Slot>,
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
    /// What it keeps alive for the program.
    pub references: Arc<[Reference]>,
}

/// A snapshot's slots and edges between them, by number.
#[derive(Default)]
pub(super) struct Layout {
    /// The node, operation of each slot.
    pub slots: Vec<(usize, Operation)>,
    /// From one slot to another.
    pub edges: Vec<(u32, u32)>,
}

impl Layout {
    /// Gives slots to all nodes of a graph and of its child graphs.
    pub fn of(snapshot: &Snapshot) -> Layout {
        let mut layout = Layout::default();
        layout.add(snapshot);
        layout
    }

    /// Gives the first and last slot of each member.
    fn add(&mut self, snapshot: &Snapshot) -> Vec<(u32, u32)> {
        let mut ends: Vec<(u32, u32)> = Vec::with_capacity(snapshot.members.len());
        for member in &snapshot.members {
            let first = self.slots.len() as u32;
            self.slots.push((member.handle, member.operation.clone()));
            let mut last = first;
            if let Some(inner) = &member.inner {
                let inside = self.add(inner);
                last = self.slots.len() as u32;
                self.slots.push((member.handle, Operation::Empty));
                if inside.is_empty() {
                    self.edges.push((first, last));
                }
                let entries = inner.members.iter().zip(&inside);
                let entries = entries.filter(|(member, _)| member.dependencies.is_empty());
                self.edges.extend(entries.map(|(_, ends)| (first, ends.0)));
                let exits = inner.exits().into_iter();
                self.edges
                    .extend(exits.map(|exit| (inside[exit as usize].1, last)));
            }
            ends.push((first, last));
        }
        for (member, &(first, _)) in snapshot.members.iter().zip(&ends) {
            let from = member.dependencies.iter();
            self.edges
                .extend(from.map(|&(from, _)| (ends[from as usize].1, first)));
        }
        ends
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
    /// The plan of a snapshot.
    pub fn of(snapshot: &Snapshot) -> std::result::Result<Plan, Unplanned> {
        let layout = Layout::of(snapshot);
        let count = layout.slots.len() as u32;
        let dag = Dag::new(count, &layout.edges).map_err(|Cycle(slot)| Unplanned {
            error: CUresult::CUDA_ERROR_INVALID_VALUE,
            node: Some(layout.slots[slot as usize].0),
            why: Why::Structure,
        })?;
        let mut slots = Vec::with_capacity(layout.slots.len());
        for (node, operation) in layout.slots {
            let work = operation.prepare().map_err(|error| Unplanned {
                error,
                node: Some(node),
                why: Why::Error,
            })?;
            slots.push(Slot {
                node,
                operation,
                work,
                enabled: true,
            });
        }
        let kind = |slot: u32| slots[slot as usize].operation.kind();
        let has_event = |kind| matches!(kind, Kind::EventRecord | Kind::EventWait);
        let events: Arc<[u32]> = match slots.iter().any(|it| has_event(it.operation.kind())) {
            true => dag.order().filter(|&slot| has_event(kind(slot))).collect(),
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
            references: snapshot.all_references().into(),
            dag: Arc::new(dag),
            slots,
            events,
        })
    }

    /// The operations of its slots have changed: so may have the memory that launches take.
    pub fn refresh_memory(&mut self) {
        if self.memory.is_some() {
            self.memory = memory_of(&self.slots);
        }
    }

    /// Fails where kernels could not launch it.
    pub fn check_for_kernels(&self, snapshot: &Snapshot) -> std::result::Result<(), Unplanned> {
        let wrong = |node: Option<usize>, why: Why| Unplanned {
            error: CUresult::CUDA_ERROR_INVALID_VALUE,
            node,
            why,
        };
        if let Some((node, why)) = snapshot.first_not_for_kernels() {
            return Err(wrong(Some(node), why));
        }
        if self.contexts.is_empty() {
            return Err(wrong(None, Why::Error));
        }
        let first = self.contexts[0].id();
        let other = self.slots.iter().find(|slot| {
            let context = slot.operation.context();
            context.is_some_and(|context| context.id() != first)
        });
        match other {
            None => Ok(()),
            Some(slot) => Err(wrong(Some(slot.node), Why::SeveralContexts)),
        }
    }

    /// Fails where a node's context was destroyed, and where memory operations are none that can be made there.
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
}

impl Run {
    /// A launch, which decides what events mean in it. It also gives what events are to be from then on: that takes effect
    /// once the launch is in a queue.
    pub fn new(plan: Arc<Plan>) -> (Run, Vec<Recorded>) {
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
        (Run { plan, marks }, recorded)
    }

    fn mark(&self, slot: u32) -> Option<&Mark> {
        let place = self.marks.binary_search_by_key(&slot, |mark| mark.0).ok()?;
        Some(&self.marks[place].1)
    }
}

impl Nodes for Run {
    fn dag(&self) -> &Dag {
        &self.plan.dag
    }

    fn perform(&self, number: u32) -> std::result::Result<(), Failure> {
        let slot = &self.plan.slots[number as usize];
        if !slot.enabled {
            return Ok(());
        }
        let done: Result = match &slot.work {
            Work::Nothing => Ok(()),
            Work::Kernel(it) => launch::run(it),
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
        done.map_err(|error| Failure(error.0))
    }

    fn given_up(&self) -> bool {
        failure::failed().is_some()
    }
}
