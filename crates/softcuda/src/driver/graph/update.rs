//! New parameters for an executable: of one node, of a child graph, of all nodes from another
//! definition.
//!
//! Invariant: an update is made as a whole or not at all, and reaches later launches only.

use std::sync::Arc;

use super::definition::Graph;
use super::executable::Executable;
use super::operation::{Kind, Operation};
use super::plan::{Held, Plan, Work};
use super::snapshot::{Member, Snapshot};
use crate::abi::types::CUgraphNode;
use crate::driver::{CUresult, Result};

const INVALID: CUresult = CUresult::CUDA_ERROR_INVALID_VALUE;

/// Why a node cannot do something else without the executable being made again:
/// `CUgraphExecUpdateResult`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u32)]
pub(crate) enum Refusal {
    /// Nothing but what the call's answer says.
    NotTried = 0,
    /// A node cannot be, as the call's answer says.
    Error = 1,
    /// Nodes or edges are not the same.
    TopologyChanged = 2,
    /// A node is of another kind.
    KindChanged = 3,
    /// Parameters differ in what cannot change.
    ParametersChanged = 5,
    /// Nodes of this kind differ in what cannot change.
    NotSupported = 6,
    /// Another function, that cannot take the first one's place.
    FunctionChanged = 7,
    /// Attributes differ in what cannot change.
    AttributesChanged = 8,
}

/// Why an update was not made.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Refused {
    /// What the call answers.
    pub error: CUresult,
    /// What is wrong.
    pub why: Refusal,
    /// The node of the new definition.
    pub node: Option<usize>,
    /// The node at the other end of an edge.
    pub from: Option<usize>,
}

impl Refused {
    fn at(why: Refusal, node: usize) -> Refused {
        Refused {
            error: CUresult::CUDA_ERROR_GRAPH_EXEC_UPDATE_FAILURE,
            why,
            node: Some(node),
            from: None,
        }
    }
}

impl From<CUresult> for Refused {
    fn from(error: CUresult) -> Self {
        Refused {
            error,
            why: Refusal::NotTried,
            node: None,
            from: None,
        }
    }
}

/// What changes about a graph of an executable and about all graphs inside it.
#[derive(Default)]
struct Changes {
    /// What slots are to do, in the order of the layout that the slots were given by.
    slots: Vec<Change>,
    /// What these graphs keep alive from now on.
    held: Vec<Held>,
}

/// What a slot is to do.
struct Change {
    slot: u32,
    /// The node of the new definition.
    node: usize,
    operation: Operation,
    work: Work,
}

/// The places of a new graph's members in the old one.
fn pair(old: &Snapshot, new: &Snapshot) -> std::result::Result<Vec<u32>, Refused> {
    const UNPAIRED: u32 = u32::MAX;
    let changed = |node: Option<u32>, from: Option<u32>| Refused {
        error: CUresult::CUDA_ERROR_GRAPH_EXEC_UPDATE_FAILURE,
        why: Refusal::TopologyChanged,
        node: node.map(|place| new.members[place as usize].handle),
        from: from.map(|place| new.members[place as usize].handle),
    };
    if old.members.len() != new.members.len() {
        return Err(changed(None, None));
    }
    let count = new.members.len();
    let (mut to_old, mut to_new) = (vec![UNPAIRED; count], vec![UNPAIRED; count]);
    let (old_exits, new_exits) = (old.exits(), new.exits());
    if old_exits.len() != new_exits.len() {
        return Err(changed(new_exits.get(old_exits.len()).copied(), None));
    }
    let mut pairs: Vec<(u32, u32)> = old_exits.into_iter().zip(new_exits).collect();
    for &(was, is) in &pairs {
        to_old[is as usize] = was;
        to_new[was as usize] = is;
    }
    let mut at = 0;
    while let Some(&(was, is)) = pairs.get(at) {
        at += 1;
        let (was, member) = (&old.members[was as usize], &new.members[is as usize]);
        if was.dependencies.len() != member.dependencies.len() {
            return Err(changed(Some(is), None));
        }
        if was.operation.kind() != member.operation.kind() {
            return Err(Refused::at(Refusal::KindChanged, member.handle));
        }
        for (&(was, was_data), &(from, data)) in was.dependencies.iter().zip(&member.dependencies) {
            let known = (to_new[was as usize], to_old[from as usize]);
            if was_data != data || known != (UNPAIRED, UNPAIRED) && known != (from, was) {
                return Err(changed(Some(is), Some(from)));
            }
            if known == (UNPAIRED, UNPAIRED) {
                to_new[was as usize] = from;
                to_old[from as usize] = was;
                pairs.push((was, from));
            }
        }
    }
    // What no exit leads back to is on a cycle.
    match to_old.iter().position(|&place| place == UNPAIRED) {
        None => Ok(to_old),
        Some(place) => Err(changed(Some(place as u32), None)),
    }
}

impl Changes {
    /// What makes the slots of `old` do what `new` does. `node` is the slot of the node that `old`
    /// is in, and `now` what slots do now.
    fn between(
        old: &Snapshot,
        new: &Snapshot,
        node: Option<u32>,
        now: &dyn Fn(u32) -> Operation,
    ) -> std::result::Result<Changes, Refused> {
        let mut changes = Changes::default();
        changes.add(old, new, node, node.map_or(0, |slot| slot + 1), now)?;
        Ok(changes)
    }

    fn add(
        &mut self,
        old: &Snapshot,
        new: &Snapshot,
        node: Option<u32>,
        first: u32,
        now: &dyn Fn(u32) -> Operation,
    ) -> std::result::Result<(), Refused> {
        self.held.extend(Held::by(node, new));
        let to_old = pair(old, new)?;
        let slots = first_slots(old, first);
        for (member, &was) in new.members.iter().zip(&to_old) {
            let slot = slots[was as usize];
            let refused = |why| Refused::at(why, member.handle);
            let before = now(slot);
            before.check_update(&member.operation).map_err(refused)?;
            let work = member.operation.prepare().map_err(|error| Refused {
                error,
                why: Refusal::Error,
                node: Some(member.handle),
                from: None,
            })?;
            // A child graph's node goes on with the graph that it has.
            if !matches!(member.operation, Operation::Child(_)) {
                self.slots.push(Change {
                    slot,
                    node: member.handle,
                    operation: member.operation.clone().following(&before),
                    work,
                });
            }
            let mut first = slot + 1;
            for (old, new) in old.members[was as usize].inner.iter().zip(&member.inner) {
                self.add(old, new, Some(slot), first, now)?;
                first += slots_of(old);
            }
        }
        Ok(())
    }
}

/// The first slot of each member, where the first member's is `first`: as a plan's layout gives
/// them.
fn first_slots(snapshot: &Snapshot, first: u32) -> Vec<u32> {
    let mut next = first;
    let slot = |member: &Member| {
        let slot = next;
        next += slots_of_member(member);
        slot
    };
    snapshot.members.iter().map(slot).collect()
}

/// How many slots a graph has.
fn slots_of(snapshot: &Snapshot) -> u32 {
    snapshot.members.iter().map(slots_of_member).sum()
}

/// How many slots a node has, with what is inside it.
fn slots_of_member(member: &Member) -> u32 {
    let own = match member.operation {
        Operation::Child(_) => 2,
        _ => 1,
    };
    own + member.inner.iter().map(slots_of).sum::<u32>()
}

/// Kinds of nodes that can be disabled.
fn can_be_disabled(kind: Kind) -> bool {
    matches!(kind, Kind::Kernel | Kind::Copy | Kind::Fill)
}

impl Executable {
    /// Gives a node another operation of its kind, made from the one it has.
    pub fn set_operation(
        &self,
        node: CUgraphNode,
        make: impl FnOnce(&Operation) -> Result<Operation>,
    ) -> Result {
        let number = self.slot(node)?;
        let mut state = self.state.lock();
        let slot = &state.plan.slots[number];
        let next = make(&slot.operation)?;
        slot.operation.check_update(&next).map_err(|_| INVALID)?;
        let next = next.following(&slot.operation);
        let work = next.prepare()?;
        let slot = &mut Arc::make_mut(&mut state.plan).slots[number];
        let old = (
            std::mem::replace(&mut slot.operation, next),
            std::mem::replace(&mut slot.work, work),
        );
        drop(state);
        drop(old);
        Ok(())
    }

    /// `cuGraphExecChildGraphNodeSetParams`: the child graph's nodes do what `child`'s do. From
    /// now on the executable keeps alive what `child` does, and lets go of what the node's graph,
    /// or the one before `child`, did.
    pub fn set_child(&self, node: CUgraphNode, child: &Arc<Graph>) -> Result {
        // Whatever the node is.
        if child.read(|child| Ok(child.has_memory_nodes()))? {
            return Err(CUresult::CUDA_ERROR_GRAPH_EXEC_UPDATE_FAILURE);
        }
        let number = self.slot(node)? as u32;
        let new = Snapshot::of(child)?;
        let old = find_inner(&self.shape, node.0).ok_or(INVALID)?;
        let mut state = self.state.lock();
        let now = |slot: u32| state.plan.slots[slot as usize].operation.clone();
        let changes = Changes::between(old, &new, Some(number), &now);
        let changes = changes.map_err(|refused| refused.error)?;
        let graphs = number..=number + slots_of(old);
        let is_inside = |held: &Held| held.by.is_some_and(|slot| graphs.contains(&slot));
        let let_go = changes.apply(&mut state.plan, is_inside);
        drop(state);
        drop(let_go);
        Ok(())
    }

    /// `cuGraphExecUpdate`: all nodes do what a graph's do, and the executable keeps alive what
    /// that graph does.
    pub fn update(&self, graph: &Arc<Graph>) -> std::result::Result<(), Refused> {
        if graph.is_child() {
            return Err(INVALID.into());
        }
        let new = Snapshot::of(graph)?;
        let mut state = self.state.lock();
        // Conditions stay those of the graph that the executable was made of.
        let instance = graph.take_instance(state.instance.as_ref())?;
        let now = |slot: u32| state.plan.slots[slot as usize].operation.clone();
        let changes = Changes::between(&self.shape, &new, None, &now)?;
        new.settle_memory();
        if self.uses_priorities() {
            changes.check_priorities(&now)?;
        }
        let let_go = changes.apply(&mut state.plan, |_| true);
        state.instance = instance;
        drop(state);
        drop(let_go);
        Ok(())
    }

    /// `cuGraphNodeSetEnabled`.
    pub fn set_enabled(&self, node: CUgraphNode, enabled: bool) -> Result {
        let number = self.slot(node)?;
        let mut state = self.state.lock();
        if !can_be_disabled(state.plan.slots[number].operation.kind()) {
            return Err(INVALID);
        }
        Arc::make_mut(&mut state.plan).slots[number].enabled = enabled;
        Ok(())
    }

    /// `cuGraphNodeGetEnabled`.
    pub fn enabled(&self, node: CUgraphNode) -> Result<bool> {
        let number = self.slot(node)?;
        let state = self.state.lock();
        let slot = &state.plan.slots[number];
        match can_be_disabled(slot.operation.kind()) {
            true => Ok(slot.enabled),
            false => Err(INVALID),
        }
    }
}

impl Changes {
    /// Makes the changes. `replaced` says what the changed graphs kept alive until now. The caller
    /// drops what is given after unlocking.
    fn apply(self, plan: &mut Arc<Plan>, replaced: impl Fn(&Held) -> bool) -> Arc<[Held]> {
        let plan = Arc::make_mut(plan);
        let kept = plan.held.iter().filter(|held| !replaced(held));
        let held = kept.cloned().chain(self.held).collect();
        let old = std::mem::replace(&mut plan.held, held);
        for change in self.slots {
            let slot = &mut plan.slots[change.slot as usize];
            (slot.operation, slot.work) = (change.operation, change.work);
        }
        plan.refresh();
        old
    }

    /// Fails where a kernel's priority changes.
    fn check_priorities(&self, now: &dyn Fn(u32) -> Operation) -> std::result::Result<(), Refused> {
        for change in &self.slots {
            if let (Operation::Kernel(old), Operation::Kernel(new)) =
                (now(change.slot), &change.operation)
                && old.attributes().priority() != new.attributes().priority()
            {
                return Err(Refused::at(Refusal::AttributesChanged, change.node));
            }
        }
        Ok(())
    }
}

/// The child graph of a node, wherever it is.
fn find_inner(snapshot: &Snapshot, node: usize) -> Option<&Snapshot> {
    snapshot
        .members
        .iter()
        .find_map(|member| match (member.handle == node, &member.operation) {
            (true, Operation::Child(_)) => member.inner.first(),
            (true, _) => None,
            (false, _) => member
                .inner
                .iter()
                .find_map(|inner| find_inner(inner, node)),
        })
}
