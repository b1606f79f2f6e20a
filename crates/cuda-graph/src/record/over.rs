//! What is surely over where a path is.
//!
//! Some nodes of a graph must run one after the other: conditional nodes that take turns (L16), and
//! the collectives of a communicator (L26). Where branches record several, each waits for the one
//! before, unless that is before it anyway. A path knows the last of each sort that is.

use smallvec::SmallVec;

/// Communicators, by what no other has.
pub(super) type Ids = SmallVec<[u64; 1]>;

/// The last nodes of each sort that are over, by their numbers. Later nodes have larger ones.
#[derive(Clone, Default)]
pub(super) struct Over {
    /// Of the conditional nodes that take turns.
    pub turn: Option<u32>,
    /// Of each communicator's collectives.
    collectives: SmallVec<[(u64, u32); 1]>,
}

impl Over {
    /// The last collective of a communicator.
    pub(super) fn collective(&self, id: u64) -> Option<u32> {
        let known = self.collectives.iter().find(|(of, _)| *of == id);
        known.map(|(_, node)| *node)
    }

    /// A node with collectives of a communicator is over.
    pub(super) fn add(&mut self, id: u64, node: u32) {
        match self.collectives.iter_mut().find(|(of, _)| *of == id) {
            Some((_, last)) => *last = node.max(*last),
            None => self.collectives.push((id, node)),
        }
    }

    /// What is over where another path ends is over too.
    pub(super) fn join(&mut self, other: &Over) {
        self.turn = self.turn.max(other.turn);
        for (id, node) in &other.collectives {
            self.add(*id, *node);
        }
    }
}
