//! Whose memory an operation may name.
//!
//! Memory is either a context's, which the contexts of other devices reach once they enabled
//! access, or it is given to devices one by one, as a pool's is. The host's and managed memory is
//! everybody's. An operation takes, as two H200s of one host do:
//!
//! | operation | a context's memory | memory given to devices |
//! |---|---|---|
//! | copy | any | what its device was given |
//! | fill, memory operation | what its context enabled access to | the same |
//!
//! The context of an operation is that of its stream; a copy between contexts names one for each
//! end. A fill node that a program adds does with any context's memory, as a copy does; one that a
//! capture recorded does not. Kernels reach more: access that one context enabled, kernels of all
//! contexts of its device have.

use std::sync::Arc;

use super::context::Context;
use super::memory::{Made, Owned, owner};
use crate::memory::{self, Allocation, Device, Kind, Reach};

/// Who looks for memory.
#[derive(Clone, Copy)]
pub(crate) enum Reacher<'a> {
    /// Work whose memory was looked at before.
    Anybody,
    /// The fills of a context.
    Fills(&'a Context),
    /// The copies of a device.
    Copies(Device),
}

impl Reacher<'_> {
    /// Whether it may name an allocation.
    pub fn reaches(self, allocation: &Allocation) -> bool {
        match self {
            Reacher::Anybody => true,
            // No device's: callers refuse it themselves, each with its own answer.
            Reacher::Fills(_) if allocation.kind == Kind::HostOnly => true,
            Reacher::Fills(context) => context.reaches(allocation),
            Reacher::Copies(device) => allocation.reach.lets_copy(device),
        }
    }
}

impl Context {
    /// Its fills, as those who look for memory.
    pub fn fills(&self) -> Reacher<'_> {
        Reacher::Fills(self)
    }

    /// Its kernels reach an allocation, and by no other context's access.
    fn reaches(&self, allocation: &Allocation) -> bool {
        if !self.device().reaches(allocation, false) {
            return false;
        }
        if allocation.device == self.device() || !allocation.reach.is_of_context() {
            return true;
        }
        owner(allocation.base).is_some_and(|owned| self.has_enabled(&owned.context))
    }
}

/// What a node of a graph works on, seen from the node's context: a node of an executable may take
/// over only what is alike.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Memory {
    /// The context reaches it: its own, the host's, managed memory. For a fill also what was given
    /// to its device.
    Reached,
    /// Of a pool, or mapped, on a device, and given to some.
    Given(Device, Reach),
    /// Allocated by a graph, on a device, and given to some.
    Graph(Device, Reach),
    /// Another context's, by number; of a module where there is none.
    Others(Device, Option<u64>),
}

/// Which part of a node names memory.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Part {
    /// Where a copy writes.
    Target,
    /// Where a copy reads.
    Source,
    /// Where a fill writes.
    Fill,
}

/// What the parts of a node work on, seen from the context with which the node came into its graph,
/// or into the executable.
#[derive(Clone)]
pub(crate) struct Homes<const PARTS: usize> {
    places: [(u64, Part); PARTS],
    context: Arc<Context>,
    /// Of each place, the device, and what the memory is: looked up once, as it may be freed.
    found: [(Option<Device>, Memory); PARTS],
}

impl<const PARTS: usize> Homes<PARTS> {
    /// Of these addresses.
    pub fn of(places: [(u64, Part); PARTS], context: &Arc<Context>) -> Homes<PARTS> {
        Homes {
            places,
            context: context.clone(),
            found: places.map(|(address, part)| Memory::at(address, part, context)),
        }
    }

    /// The devices whose memory it is; of the host's and of managed memory there is none.
    pub fn devices(&self) -> impl Iterator<Item = Device> {
        self.found.iter().filter_map(|(device, _)| *device)
    }

    /// Whether a node of an executable may take over what another works on.
    pub fn may_move(&self, to: &Homes<PARTS>) -> bool {
        let seen = to.following(self);
        let mut pairs = self.found.iter().zip(&seen.as_ref().unwrap_or(to).found);
        pairs.all(|((_, from), (_, to))| from == to)
    }

    /// The same, seen from where another is; `None` if it is already.
    pub fn following(&self, before: &Homes<PARTS>) -> Option<Homes<PARTS>> {
        let is_same = self.context.id() == before.context.id();
        (!is_same).then(|| Homes::of(self.places, &before.context))
    }
}

impl Memory {
    /// Of an address, for a node of a context; and the device's, where it is one's.
    fn at(address: u64, part: Part, context: &Context) -> (Option<Device>, Memory) {
        let of_device =
            |found: &Allocation| matches!(found.kind, Kind::Device | Kind::Global | Kind::Constant);
        match memory::find(address).filter(of_device) {
            None => (None, Memory::Reached),
            Some(found) => {
                let memory = Memory::of(&found, owner(address).as_ref(), part, context);
                (Some(found.device), memory)
            }
        }
    }

    fn of(found: &Allocation, owned: Option<&Owned>, part: Part, context: &Context) -> Memory {
        let device = found.device;
        let given = match owned.map(|it| &it.made) {
            Some(Made::Graph(_)) => Some(Memory::Graph(device, found.reach)),
            Some(Made::Pooled(..)) => Some(Memory::Given(device, found.reach)),
            _ if !found.reach.is_of_context() => Some(Memory::Given(device, found.reach)),
            _ => None,
        };
        if let Some(given) = given {
            return match part {
                Part::Fill => Memory::Reached,
                Part::Target | Part::Source => given,
            };
        }
        let reached = match owned.map(|it| &it.context) {
            Some(owner) if owner.id() == context.id() => true,
            Some(owner) if owner.device() == context.device() => part == Part::Target,
            Some(owner) => part != Part::Fill && context.has_enabled(owner),
            None => device == context.device(),
        };
        match reached {
            true => Memory::Reached,
            false => Memory::Others(device, owned.map(|it| it.context.id())),
        }
    }
}
