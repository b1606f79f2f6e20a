//! In which order the driver takes the nodes that no other waits for.
//!
//! A whole-graph update pairs the nodes of two graphs from their ends on: first the nodes that none
//! waits for. On an H200 the one that became such a node last comes first. A node is one when it is
//! made, and becomes one anew when it loses an edge to another. The driver does not tell when that
//! was, so it is noted here.

use std::collections::BTreeMap;

/// A moment in the making of a graph: how many nodes were numbered, and the number of the event
/// among those that were noted. A node that gets a new number is made at `(number + 1, 0)`.
type Moment = (u32, u64);

/// What happened to a graph that the numbers of its nodes do not tell.
#[derive(Clone, Default)]
pub(crate) struct Ends {
    /// When nodes were made that had a number before.
    made: BTreeMap<u32, Moment>,
    /// When nodes lost an edge to another last.
    lost: BTreeMap<u32, Moment>,
    events: u64,
}

impl Ends {
    fn now(&mut self, numbered: u32) -> Moment {
        self.events += 1;
        (numbered, self.events)
    }

    /// A node was made that had its number before others got theirs.
    pub(super) fn make(&mut self, node: u32, numbered: u32) {
        let now = self.now(numbered);
        self.made.insert(node, now);
    }

    /// A node lost an edge to another.
    pub(super) fn lose(&mut self, node: u32, numbered: u32) {
        let now = self.now(numbered);
        self.lost.insert(node, now);
    }

    /// Whether it is as the numbers of the nodes tell.
    pub(super) fn is_plain(&self) -> bool {
        self.lost.is_empty() && self.made.is_empty()
    }

    fn made_at(&self, node: u32) -> Moment {
        self.made.get(&node).copied().unwrap_or((node + 1, 0))
    }

    /// For each node, in the driver's order of nodes, a number that is the larger the later it
    /// became one that none waits for, if it is one.
    pub(super) fn ranks(&self, nodes: &[u32]) -> Vec<(u32, u64)> {
        let places = || 1..=nodes.len() as u32;
        if self.lost.is_empty() {
            return places().map(|place| (place, 0)).collect();
        }
        // By the moment that nodes were made, the last place among those made until then.
        let moments = nodes.iter().zip(places());
        let mut made: Vec<(Moment, u32)> = moments
            .map(|(&node, place)| (self.made_at(node), place))
            .collect();
        made.sort_unstable();
        let mut last = 0;
        for (_, place) in &mut made {
            last = last.max(*place);
            *place = last;
        }
        let rank = |(node, place): (&u32, u32)| match self.lost.get(node) {
            None => (place, 0),
            Some(moment) => {
                let until = made.partition_point(|(other, _)| other <= moment);
                let place = until.checked_sub(1).map_or(0, |at| made[at].1);
                (place, moment.1)
            }
        };
        nodes.iter().zip(places()).map(rank).collect()
    }

    /// What it is in a copy of the graph, whose nodes are called as `copied` says. `nodes` are the
    /// nodes of the graph in the driver's order.
    pub(super) fn of_copy(&self, nodes: &[u32], copied: &BTreeMap<u32, u32>) -> Ends {
        let numbered = copied.len() as u32;
        let ranks = self.ranks(nodes);
        let mut events: Vec<((u32, u64), u32, bool)> = Vec::new();
        for ((place, &node), rank) in (1..).zip(nodes).zip(ranks) {
            let Some(&copy) = copied.get(&node) else {
                continue;
            };
            events.push(((place, 0), copy, false));
            if self.lost.contains_key(&node) {
                events.push((rank, copy, true));
            }
        }
        events.sort_unstable();
        let mut ends = Ends::default();
        for (_, copy, is_lost) in events {
            match is_lost {
                true => ends.lose(copy, numbered),
                false => ends.make(copy, numbered),
            }
        }
        ends
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_last_to_become_an_end_has_the_largest_rank() {
        let mut ends = Ends::default();
        let order = |ends: &Ends, nodes: &[u32]| {
            let mut ranked: Vec<_> = ends.ranks(nodes).into_iter().zip(nodes.to_vec()).collect();
            ranked.sort_unstable();
            ranked.into_iter().map(|(_, node)| node).collect::<Vec<_>>()
        };
        assert_eq!(order(&ends, &[0, 1, 2]), [0, 1, 2]);
        ends.lose(0, 3);
        assert_eq!(order(&ends, &[0, 1, 2]), [1, 2, 0]);
        assert_eq!(order(&ends, &[0, 1, 2, 3]), [1, 2, 0, 3]);
        ends.lose(1, 4);
        assert_eq!(order(&ends, &[0, 1, 2, 3]), [2, 0, 3, 1]);
        // Number 2 was reserved and is made last.
        ends.make(2, 4);
        assert_eq!(order(&ends, &[0, 1, 3, 2]), [0, 3, 1, 2]);
        let copied = [(0, 0), (1, 1), (2, 2), (3, 3)].into_iter().collect();
        let copy = ends.of_copy(&[0, 1, 3, 2], &copied);
        assert_eq!(order(&copy, &[0, 1, 3, 2]), [0, 3, 1, 2]);
        let mut copy = copy;
        copy.lose(0, 5);
        assert_eq!(order(&copy, &[0, 1, 3, 2, 4]), [3, 1, 2, 4, 0]);
    }
}
