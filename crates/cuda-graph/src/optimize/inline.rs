//! Embedded graphs become part of the graph around them.
//!
//! A graph runs the same with them or without; but other passes see across their borders then, and
//! instantiating is three times as fast.

use smallvec::SmallVec;

use super::plan::{After, Does, Front, Nodes, Plan, Planned, Waits, push, rewired, sort};
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
        && !given.is_pinned(node)
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
    let mut count = 0;
    plan.graphs[number] = rewired(old, |new, at, node| {
        if !is_inlined(&node) || special[at] {
            return push(new, node);
        }
        count += 1;
        let inside = std::mem::take(&mut plan.graphs[node.inside[0] as usize]);
        splice(new, node.after, inside)
    });
    count
}

/// Puts the nodes of an embedded graph behind `before`. Returns what takes the place of all.
fn splice(new: &mut Nodes, mut before: Waits, inside: Nodes) -> Waits {
    sort(&mut before);
    let roots = inside.iter().filter(|node| node.after.is_empty()).count();
    // Where nothing is inside, whoever waited for that waits for all of them.
    let joins = inside.is_empty() || roots > 1 && before.len() > 1;
    if joins && before.len() * roots.max(1) > MANY {
        before = push(new, join(before));
    }
    let shift = new.len() as u32;
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
    let ends = (shift..).zip(&is_end).filter(|(_, is_end)| **is_end);
    let ends: Waits = ends.map(|(at, _)| After::plain(at)).collect();
    match ends.len() {
        0 => before,
        ends_of_one if ends_of_one <= MANY => ends,
        _ => push(new, join(ends)),
    }
}

/// An empty node.
fn join(after: Waits) -> Planned {
    Planned {
        op: AnyOp::from(EmptyOp::new()),
        does: Does::Same,
        front: Front::default(),
        of: SmallVec::new(),
        after,
        inside: SmallVec::new(),
    }
}
