//! A kernel in a line starts before the one before it has ended, and waits for its end by itself.
//!
//! A programmatic edge without a trigger lets the second kernel be put on the device while the first
//! one's last blocks run; `griddepcontrol.wait`, before anything else, waits for the end of the
//! first and for what it wrote. On an H200 that spares 0.2 µs a kernel. Kernels of many blocks gain
//! nothing.

use super::front::fits;
use super::plan::{Does, Front, Plan, Planned};
use super::{Given, Pass, PassReport};
use crate::graph::{AnyOp, EdgeData};
use crate::op::{LaunchAttribute, Op};

/// What it spares a kernel, in µs.
const GAIN: f64 = 0.2;

/// Kernels of more blocks are left.
const MOST_BLOCKS: u64 = 264;

pub(super) fn run(plan: &mut Plan, given: &Given<'_>) -> PassReport {
    let mut report = PassReport::new(Pass::Programmatic);
    let mut count = 0;
    for graph in &mut plan.graphs {
        let mut waited_for = vec![0u32; graph.len()];
        for after in graph.iter().flat_map(|node| &node.after) {
            waited_for[after.node as usize] += 1;
        }
        for at in 0..graph.len() {
            let [after] = graph[at].after[..] else {
                continue;
            };
            let before = after.node as usize;
            let in_line = after.is_plain() && waited_for[before] == 1;
            if !in_line || !takes_part(&graph[before], given) || !takes_part(&graph[at], given) {
                continue;
            }
            let node = &graph[at];
            let front = Front {
                wait: true,
                ..node.front
            };
            let AnyOp::Kernel(launch) = &node.op else {
                continue;
            };
            let Some(op) = front_of(launch, node, given, front, &mut report) else {
                continue;
            };
            let node = &mut graph[at];
            node.front = front;
            node.op = op;
            node.after[0].data = EdgeData::programmatic();
            count += 1;
        }
    }
    report.did("kernels start early", count, GAIN);
    report
}

/// Whether a node may be at an end of a programmatic edge.
fn takes_part(node: &Planned, given: &Given<'_>) -> bool {
    let AnyOp::Kernel(op) = &node.op else {
        return false;
    };
    let (x, y, z) = op.grid();
    let blocks = u64::from(x) * u64::from(y) * u64::from(z);
    let is_plain = |attribute: &LaunchAttribute| matches!(attribute, LaunchAttribute::Priority(_));
    let is_left = |place| given.pinned.contains(place) || given.disabled.contains(place);
    blocks <= MOST_BLOCKS
        && !matches!(node.does, Does::Copies(_))
        && op.attributes().iter().all(is_plain)
        && !node.of.iter().any(is_left)
}

/// What the node does with something more in front.
fn front_of(
    launch: &crate::op::KernelOp,
    node: &Planned,
    given: &Given<'_>,
    front: Front,
    report: &mut PassReport,
) -> Option<AnyOp> {
    // What it does without anything in front.
    let plain = match node.front.guard {
        Some(_) => launch.without_variant()?,
        None => launch.clone(),
    };
    let plain = AnyOp::Kernel(plain);
    if let Err(why) = fits(&plain, given.context, front) {
        let name = || node.op.name(node.of.first().map(|place| place.1));
        report.leave(name, why);
        return None;
    }
    super::front::in_front(plain, given.context, front)
        .ok()?
        .ok()
}
