//! Embedded graphs become part of the graph around them.
//!
//! A graph runs the same with them or without; but other passes see across their borders then, and
//! instantiating is three times as fast.

use smallvec::SmallVec;

use super::plan::{After, Does, Front, Nodes, Plan, Planned};
use super::{Given, Pass, PassReport};
use crate::error::NodeKind;
use crate::graph::AnyOp;
use crate::op::EmptyOp;

/// From so many edges on, an empty node joins the ends of an embedded graph, or its beginnings.
const MANY: usize = 8;

pub(super) fn run(plan: &mut Plan, given: &Given<'_>) -> PassReport {
    let mut report = PassReport::new(Pass::Inline);
    let mut count = 0;
    // What is inside comes later in the list, and is done first.
    for number in (0..plan.graphs.len()).rev() {
        if plan.graphs[number]
            .iter()
            .any(|node| is_inlined(node, given))
        {
            count += graph(plan, number, &mut |node| is_inlined(node, given));
        }
        for node in &plan.graphs[number] {
            if matches!(node.does, Does::Copies(_)) {
                report.leave(|| node.name(), "other code put work into it");
            }
        }
    }
    report.did("embedded graphs inlined", count, 0.1);
    report
}

fn is_inlined(node: &Planned, given: &Given<'_>) -> bool {
    node.op.kind() == NodeKind::Child
        && matches!(node.does, Does::Same)
        && node.after.iter().all(|after| after.is_plain())
        && !node.of.iter().any(|place| given.pinned.contains(place))
}

/// Puts the first graph inside of nodes of graph `number` in their places. Returns how many.
pub(super) fn graph(
    plan: &mut Plan,
    number: usize,
    is_inlined: &mut dyn FnMut(&Planned) -> bool,
) -> usize {
    let old = std::mem::take(&mut plan.graphs[number]);
    let mut special = vec![false; old.len()];
    for node in &old {
        let after = node.after.iter().filter(|after| !after.is_plain());
        after.for_each(|after| special[after.node as usize] = true);
    }
    let mut new = Nodes::with_capacity(old.len());
    // By the number of each node: what those wait for that waited for it.
    let mut ends: Vec<SmallVec<[u32; 1]>> = Vec::with_capacity(old.len());
    let mut count = 0;
    for (at, mut node) in old.into_iter().enumerate() {
        let mut after = SmallVec::<[After; 2]>::new();
        for edge in &node.after {
            for &end in &ends[edge.node as usize] {
                let edge = After { node: end, ..*edge };
                if !after.contains(&edge) {
                    after.push(edge);
                }
            }
        }
        node.after = after;
        if !is_inlined(&node) || special[at] {
            ends.push(SmallVec::from_slice(&[new.len() as u32]));
            new.push(node);
            continue;
        }
        count += 1;
        let inside = std::mem::take(&mut plan.graphs[node.inside[0] as usize]);
        ends.push(splice(&mut new, &node.after, inside));
    }
    plan.graphs[number] = new;
    count
}

/// Puts the nodes of an embedded graph behind `before`. Returns those at its end.
fn splice(new: &mut Nodes, before: &[After], inside: Nodes) -> SmallVec<[u32; 1]> {
    let first = new.len() as u32;
    let roots = inside.iter().filter(|node| node.after.is_empty()).count();
    let mut before = SmallVec::<[After; 2]>::from_slice(before);
    let mut shift = first;
    if before.len() > 1 && roots > 1 && before.len() * roots > MANY {
        new.push(join(before));
        before = SmallVec::from_slice(&[After::plain(first)]);
        shift += 1;
    }
    let mut is_end = vec![true; inside.len()];
    for mut node in inside {
        for after in &mut node.after {
            is_end[after.node as usize] = false;
            after.node += shift;
        }
        if node.after.is_empty() {
            node.after = before.clone();
        }
        new.push(node);
    }
    let ends = is_end.iter().enumerate().filter(|(_, is_end)| **is_end);
    let ends: SmallVec<[u32; 1]> = ends.map(|(at, _)| at as u32 + shift).collect();
    match ends.len() {
        // Of nothing: those behind it wait for what it waited for.
        0 => before.iter().map(|after| after.node).collect(),
        ends_of_one if ends_of_one <= MANY => ends,
        _ => {
            let after = ends.iter().map(|end| After::plain(*end)).collect();
            new.push(join(after));
            SmallVec::from_slice(&[new.len() as u32 - 1])
        }
    }
}

/// An empty node.
fn join(after: SmallVec<[After; 2]>) -> Planned {
    Planned {
        op: AnyOp::from(EmptyOp::new()),
        does: Does::Same,
        front: Front::default(),
        of: SmallVec::new(),
        after,
        inside: SmallVec::new(),
    }
}
