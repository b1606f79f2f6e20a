//! Whose memory an operation may name.
//!
//! Memory is either a context's, which the contexts of other devices reach once they enabled
//! access, or it is given to devices one by one, as a pool's is. The host's and managed memory is
//! everybody's. An operation takes, as two H100s of one host do:
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

use super::context::Context;
use super::memory::{Made, owner};
use crate::memory::{self, Allocation, Device, Kind};

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

/// Whose memory a node of a graph works on: an executable's node stays with that.
#[derive(Clone, Copy)]
pub(crate) struct Home {
    device: Device,
    /// The context that allocated it, by number, where it is one's.
    context: Option<u64>,
}

impl Home {
    /// Of a device's memory; `None` of the host's and of managed memory.
    pub fn of(address: u64) -> Option<Home> {
        let found = memory::find(address)?;
        if !matches!(found.kind, Kind::Device | Kind::Global | Kind::Constant) {
            return None;
        }
        let owned = owner(address);
        let owned = owned.filter(|it| !matches!(it.made, Made::Pooled(..) | Made::Graph(_)));
        Some(Home {
            device: found.device,
            context: owned.map(|it| it.context.id()),
        })
    }

    /// The device.
    pub fn device(self) -> Device {
        self.device
    }
}

/// Whether a node may go from one memory to another.
pub(crate) fn may_move(from: Option<Home>, to: Option<Home>) -> bool {
    let (Some(from), Some(to)) = (from, to) else {
        return true;
    };
    let contexts = from.context.zip(to.context);
    from.device == to.device && contexts.is_none_or(|(from, to)| from == to)
}
