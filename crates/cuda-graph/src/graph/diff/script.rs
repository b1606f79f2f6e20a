//! Which nodes of two graphs are the same to people, where an update cannot pair them.
//!
//! Nodes are the same that have one label, or that are of one kind, made at one source line, and
//! launch one kernel. Both graphs are read in the order of their nodes, and what is the same is
//! matched in that order.

use std::collections::HashMap;
use std::panic::Location;

use super::snapshot::{Member, Snapshot};
use crate::error::NodeKind;
use crate::op::Op;

/// What a node is known by.
#[derive(PartialEq, Eq, Hash)]
enum Key<'a> {
    Label(&'a str),
    Made {
        kind: NodeKind,
        at: Option<&'static Location<'static>>,
        function: Option<usize>,
    },
}

impl Key<'_> {
    fn of(member: &Member) -> Key<'_> {
        let tag = member.does.tag();
        match &tag.label {
            Some(label) => Key::Label(label),
            None => Key::Made {
                kind: member.kind(),
                at: tag.location,
                function: member.does.launch().map(|op| op.kernel().raw() as usize),
            },
        }
    }
}

/// By the place of each new node, the place of the old one that is the same.
pub(super) fn matched(old: &Snapshot, new: &Snapshot) -> Vec<Option<u32>> {
    let old_keys: Vec<Key<'_>> = old.nodes.iter().map(Key::of).collect();
    let new_keys: Vec<Key<'_>> = new.nodes.iter().map(Key::of).collect();
    let mut to_old = vec![None; new_keys.len()];
    let shorter = old_keys.len().min(new_keys.len());
    let same = |&at: &usize| old_keys[at] == new_keys[at];
    let first = (0..shorter).take_while(same).count();
    let (old_len, new_len) = (old_keys.len(), new_keys.len());
    let same_back = |&at: &usize| old_keys[old_len - 1 - at] == new_keys[new_len - 1 - at];
    let last = (0..shorter - first).take_while(same_back).count();
    for (was, place) in (0..).zip(&mut to_old[..first]) {
        *place = Some(was);
    }
    for back in 1..=last {
        to_old[new_len - back] = Some((old_len - back) as u32);
    }
    // In between, the first of a key is the first of that key, and so on, as far as the order of
    // both is the same.
    let mut left: HashMap<&Key<'_>, Vec<usize>> = HashMap::new();
    for place in (first..old_len - last).rev() {
        left.entry(&old_keys[place]).or_default().push(place);
    }
    let mut candidates = Vec::new();
    for (place, key) in new_keys.iter().enumerate().take(new_len - last).skip(first) {
        if let Some(was) = left.get_mut(key).and_then(Vec::pop) {
            candidates.push((place, was));
        }
    }
    for (place, was) in longest_ascent(&candidates) {
        to_old[place] = Some(was as u32);
    }
    to_old
}

/// A longest selection of `pairs`, which ascend by the first, that ascends by the second too.
fn longest_ascent(pairs: &[(usize, usize)]) -> Vec<(usize, usize)> {
    // By length, the pair that ends the selection of that length which ends lowest.
    let mut ends: Vec<usize> = Vec::new();
    let mut previous = vec![None; pairs.len()];
    for (at, &(_, second)) in pairs.iter().enumerate() {
        let length = ends.partition_point(|&end| pairs[end].1 < second);
        previous[at] = length.checked_sub(1).map(|shorter| ends[shorter]);
        if length < ends.len() {
            ends[length] = at;
        } else {
            ends.push(at);
        }
    }
    let mut at = ends.last().copied();
    let mut selection = Vec::with_capacity(ends.len());
    while let Some(pair) = at {
        selection.push(pairs[pair]);
        at = previous[pair];
    }
    selection.reverse();
    selection
}

#[cfg(test)]
mod tests {
    use super::longest_ascent;

    #[test]
    fn the_longest_ascent_is_found() {
        let pairs = |seconds: &[usize]| -> Vec<_> { seconds.iter().copied().enumerate().collect() };
        let seconds = |pairs: Vec<(usize, usize)>| -> Vec<usize> {
            pairs.into_iter().map(|(_, second)| second).collect()
        };
        assert_eq!(seconds(longest_ascent(&pairs(&[]))), []);
        assert_eq!(seconds(longest_ascent(&pairs(&[3, 0, 1, 4, 2]))), [0, 1, 2]);
        assert_eq!(seconds(longest_ascent(&pairs(&[2, 1, 0]))), [0]);
    }
}
