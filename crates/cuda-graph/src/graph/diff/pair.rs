//! Which nodes of two graphs an update pairs, as the driver does.
//!
//! It begins with the nodes that no other waits for, one with the other in their order, and goes on
//! from each pair to what its nodes wait for. So it was measured on an H200.

use cudarc::driver::sys::CUgraphEdgeData;

use super::snapshot::Snapshot;
use crate::error::{NodeKind, UpdateFailure};
use crate::graph::shape::Shape;

/// The nodes of a graph, by their places.
trait Nodes {
    fn count(&self) -> usize;

    /// Those that no other waits for, as the driver begins with them.
    fn ends(&self) -> &[u32];

    fn before(&self, place: u32) -> &[(u32, CUgraphEdgeData)];

    /// The kind of a node, if it counts.
    fn kind(&self, place: u32) -> Option<NodeKind>;
}

impl Nodes for Snapshot {
    fn count(&self) -> usize {
        self.nodes.len()
    }

    fn ends(&self) -> &[u32] {
        &self.ends
    }

    fn before(&self, place: u32) -> &[(u32, CUgraphEdgeData)] {
        &self.nodes[place as usize].before
    }

    fn kind(&self, place: u32) -> Option<NodeKind> {
        Some(self.nodes[place as usize].kind())
    }
}

impl Nodes for Shape {
    fn count(&self) -> usize {
        self.places.len()
    }

    fn ends(&self) -> &[u32] {
        &self.ends
    }

    fn before(&self, place: u32) -> &[(u32, CUgraphEdgeData)] {
        &self.places[place as usize].before
    }

    fn kind(&self, _: u32) -> Option<NodeKind> {
        None
    }
}

/// Takes the numbers of two graphs, and those of their nodes in pairs.
type Visit<'a> = &'a mut dyn FnMut(u32, u32, &[(u32, u32)]);

/// Calls `visit` with the numbers of two graphs, of which the driver has updated one from the
/// other, and with the numbers of their nodes in pairs; then with those of the graphs inside.
pub(crate) fn counterparts(old: &Shape, new: &Shape, visit: Visit<'_>) {
    let to_old = paired(old, new, &mut None).unwrap_or_default();
    let places = || {
        to_old
            .iter()
            .map(|&was| &old.places[was as usize])
            .zip(&new.places)
    };
    let pairs: Vec<_> = places().map(|(was, is)| (was.index, is.index)).collect();
    visit(old.body, new.body, &pairs);
    for (was, is) in places() {
        for (was, is) in was.inside.iter().zip(&is.inside) {
            counterparts(was, is, visit);
        }
    }
}

/// Why two graphs are not updated one from the other, and the place of the new graph's node that
/// the driver names.
pub(super) type Refusal = (UpdateFailure, Option<u32>);

/// How the nodes of two graphs are paired.
pub(super) struct Pairing {
    /// The first reason for the driver not to.
    pub refusal: Option<Refusal>,
    /// By the place of each new node, the place of its old one, if all are paired. The kinds of
    /// nodes may differ.
    pub to_old: Option<Vec<u32>>,
}

const NONE: u32 = u32::MAX;

impl Pairing {
    pub fn of(old: &Snapshot, new: &Snapshot) -> Pairing {
        let mut refusal = None;
        let to_old = paired(old, new, &mut refusal);
        Pairing { refusal, to_old }
    }
}

fn paired<N: Nodes>(old: &N, new: &N, refusal: &mut Option<Refusal>) -> Option<Vec<u32>> {
    let mut other_topology = |node: Option<u32>| {
        refusal.get_or_insert((UpdateFailure::TopologyChanged, node));
    };
    let count = new.count();
    if old.count() != count {
        other_topology(None);
        return None;
    }
    if old.ends().len() != new.ends().len() {
        other_topology(new.ends().get(old.ends().len()).copied());
        return None;
    }
    let (mut to_old, mut to_new) = (vec![NONE; count], vec![NONE; count]);
    let ends = old.ends().iter().copied().zip(new.ends().iter().copied());
    let mut pairs: Vec<(u32, u32)> = ends.collect();
    for &(was, is) in &pairs {
        to_old[is as usize] = was;
        to_new[was as usize] = is;
    }
    let mut at = 0;
    while let Some(&(was, is)) = pairs.get(at) {
        at += 1;
        let topology = UpdateFailure::TopologyChanged;
        let (before, now_before) = (old.before(was), new.before(is));
        if before.len() != now_before.len() {
            refusal.get_or_insert((topology, Some(is)));
            return None;
        }
        if old.kind(was) != new.kind(is) {
            refusal.get_or_insert((UpdateFailure::KindChanged, Some(is)));
        }
        for (&(was, was_data), &(from, data)) in before.iter().zip(now_before) {
            let known = (to_new[was as usize], to_old[from as usize]);
            let is_first = known == (NONE, NONE);
            if was_data != data || !is_first && known != (from, was) {
                refusal.get_or_insert((topology, Some(is)));
                return None;
            }
            if is_first {
                to_new[was as usize] = from;
                to_old[from as usize] = was;
                pairs.push((was, from));
            }
        }
    }
    // What no end leads back to is on a cycle.
    if let Some(place) = to_old.iter().position(|&place| place == NONE) {
        refusal.get_or_insert((UpdateFailure::TopologyChanged, Some(place as u32)));
        return None;
    }
    Some(to_old)
}
