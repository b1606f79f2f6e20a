//! A kernel in a line starts before the one before it has ended, and waits for its end by itself.
//!
//! A programmatic edge without a trigger lets the second kernel be put on the device while the
//! first one's last blocks run; `griddepcontrol.wait`, before anything else, waits for the end of
//! the first and for what it wrote. On an H200 that spares 0.2 µs a kernel. Kernels of many blocks
//! gain nothing.
//!
//! Where both kernels have few blocks the first one triggers the second at once, which spares more.
//! Blocks that wait take room from those that work: kernels of more blocks lose by it. Every kernel
//! that may begin early waits before anything else, and so is over only after all before it are.

use super::front::{fitted, has_plain_attributes};
use super::plan::{Does, Front, Nodes, Plan, Planned, waited_for};
use super::{Given, Pass, PassReport};
use crate::graph::{AnyOp, EdgeData};

/// What it spares a kernel, in µs, and a kernel whose predecessor lets it begin at once.
const GAIN: f64 = 0.2;
const EARLY_GAIN: f64 = 0.15;

/// Kernels of more blocks are left.
const MOST_BLOCKS: u64 = 264;

/// Between kernels of at most so many blocks each, the second one begins with the first.
const FEW_BLOCKS: u64 = 64;

pub(super) fn run(plan: &mut Plan, given: &Given<'_>) -> PassReport {
    let mut report = PassReport::new(Pass::Programmatic);
    for graph in &mut plan.graphs {
        in_graph(graph, given, &mut report);
    }
    report
}

fn in_graph(graph: &mut Nodes, given: &Given<'_>, report: &mut PassReport) {
    let waited_for = waited_for(graph);
    let mut fronts: Vec<Front> = graph.iter().map(|node| node.front).collect();
    for (at, node) in graph.iter().enumerate() {
        let [after] = node.after[..] else { continue };
        let before = after.node as usize;
        let in_line = after.is_plain() && waited_for[before] == 1;
        let takes_part = |node| takes_part(node, given);
        if in_line && takes_part(&graph[before]) && takes_part(node) {
            fronts[at].wait = true;
            fronts[before].trigger = blocks(node).max(blocks(&graph[before])) <= FEW_BLOCKS;
        }
    }
    let (mut waiting, mut early) = (0, 0);
    for (node, front) in graph.iter_mut().zip(fronts) {
        if front == node.front {
            continue;
        }
        let Some(op) = without_front(node) else {
            continue;
        };
        match fitted(op, given.context, front) {
            Ok(op) => (node.front, node.op) = (front, op),
            Err(why) => report.leave(|| node.name(), why),
        }
        if node.front.wait {
            node.after[0].data = EdgeData::programmatic();
            waiting += 1;
        }
        early += usize::from(node.front.trigger);
    }
    report.did("kernels start early", waiting, GAIN);
    report.did(
        "kernels let the next one start with them",
        early,
        EARLY_GAIN,
    );
}

/// How many blocks a kernel has.
pub(super) fn blocks(node: &Planned) -> u64 {
    let AnyOp::Kernel(op) = &node.op else {
        return u64::MAX;
    };
    let (x, y, z) = op.grid();
    u64::from(x) * u64::from(y) * u64::from(z)
}

/// Whether a node may be at an end of a programmatic edge.
fn takes_part(node: &Planned, given: &Given<'_>) -> bool {
    let AnyOp::Kernel(op) = &node.op else {
        return false;
    };
    blocks(node) <= MOST_BLOCKS
        && !matches!(node.does, Does::Copies(_))
        && has_plain_attributes(op)
        && !given.is_pinned_or_disabled(node)
}

/// What a kernel node does without a guard in front.
fn without_front(node: &Planned) -> Option<AnyOp> {
    match (&node.op, node.front.guard) {
        (AnyOp::Kernel(launch), Some(_)) => launch.without_variant().map(AnyOp::Kernel),
        (op, _) => Some(op.clone()),
    }
}
