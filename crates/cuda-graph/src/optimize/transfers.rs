//! Fills and small copies become kernels of this library's own, several beside each other one.
//!
//! On an H200 a memset node among kernels costs 0.5 to 0.8 µs to submit, a small copy of pinned
//! memory 1.4 to 1.6, and a kernel 0.01. Those that wait for the same nodes do not depend on each
//! other, so one launch can do them all.

use std::collections::HashMap;

use smallvec::SmallVec;

use super::plan::{Does, Nodes, Plan, Planned, Waits, push, rewired};
use super::{Given, Pass, PassReport};
use crate::error::NodeKind;
use crate::graph::AnyOp;
use crate::memory::Space;
use crate::op::lowered::{MOST_SLOTS, Sizes, lower, slots};

/// What a launch is spared on an H200, in µs, by one fill or copy that is a kernel instead, and by
/// one that is done by a kernel which is there anyway.
const FILL: f64 = 1.1;
const COPY_ON_DEVICE: f64 = 0.25;
const COPY_OF_HOST: f64 = 1.7;
const MERGED: f64 = 0.6;

pub(super) fn run(plan: &mut Plan, given: &Given<'_>) -> PassReport {
    let mut report = PassReport::new(Pass::Transfers);
    for graph in &mut plan.graphs {
        let candidates: Vec<u32> = (0..)
            .zip(&*graph)
            .filter(|(_, node)| is_candidate(node, given))
            .map(|(index, _)| index)
            .collect();
        if !candidates.is_empty() {
            graph_of(graph, &candidates, given, &mut report);
        }
    }
    report
}

fn is_candidate(node: &Planned, given: &Given<'_>) -> bool {
    matches!(node.op, AnyOp::Fill(_) | AnyOp::Copy(_))
        && matches!(node.does, Does::Same)
        && node.of.len() == 1
        && node.after.iter().all(|after| after.is_plain())
        && !given.pinned.contains(&node.of[0])
        && !given.disabled.contains(&node.of[0])
}

fn graph_of(graph: &mut Nodes, candidates: &[u32], given: &Given<'_>, report: &mut PassReport) {
    // By what they wait for, in the order of the first.
    let mut groups: Vec<SmallVec<[u32; 1]>> = Vec::new();
    let mut by_after: HashMap<Vec<u32>, (usize, usize)> = HashMap::new();
    let mut special = vec![false; graph.len()];
    for after in graph.iter().flat_map(|node| &node.after) {
        special[after.node as usize] |= !after.is_plain();
    }
    for &at in candidates.iter().filter(|at| !special[**at as usize]) {
        let node = &graph[at as usize];
        if lower(given.context, &[&node.op], |_| true, Sizes::Worthwhile).is_none() {
            report.leave(|| node.name(), "its memory or its size is not a kernel's");
            continue;
        }
        let room = slots(&node.op).unwrap_or(MOST_SLOTS);
        let key: Vec<u32> = node.after.iter().map(|after| after.node).collect();
        match by_after.get_mut(&key) {
            Some((group, used)) if *used + room <= MOST_SLOTS => {
                groups[*group].push(at);
                *used += room;
            }
            _ => {
                by_after.insert(key, (groups.len(), room));
                groups.push(SmallVec::from_slice(&[at]));
            }
        }
    }
    // By node: the node that does what it did.
    let mut instead: Vec<u32> = (0..graph.len() as u32).collect();
    let (mut merged, mut removed) = (0, 0);
    for group in groups {
        let ops: Vec<&AnyOp> = group.iter().map(|at| &graph[*at as usize].op).collect();
        let is_kernel = ops[0].kind() == NodeKind::Kernel;
        if group.len() == 1 && is_kernel {
            continue;
        }
        let Some(Ok(launch)) = lower(given.context, &ops, |_| true, Sizes::Worthwhile) else {
            continue;
        };
        let (mut fills, mut device, mut host) = (0, 0, 0);
        for op in ops.iter().filter(|op| op.kind() != NodeKind::Kernel) {
            let is_host = |space: Space| space == Space::Host;
            match op {
                AnyOp::Copy(op) if is_host(op.from().space()) || is_host(op.to().space()) => {
                    host += 1;
                }
                AnyOp::Copy(_) => device += 1,
                _ => fills += 1,
            }
        }
        report.did("fills made kernels", fills, FILL);
        report.did("copies on the device made kernels", device, COPY_ON_DEVICE);
        report.did("copies of pinned memory made kernels", host, COPY_OF_HOST);
        merged += group.len() - 1;
        let first = group[0];
        for &at in &group[1..] {
            instead[at as usize] = first;
            let of = std::mem::take(&mut graph[at as usize].of);
            graph[first as usize].of.extend(of);
            removed += 1;
        }
        let node = &mut graph[first as usize];
        node.op = AnyOp::Kernel(launch);
        node.does = Does::Transfers;
    }
    report.did(
        "of them beside another one, and done by the same kernel",
        merged,
        MERGED,
    );
    if removed > 0 {
        // By the number of each node: what takes its place. Each comes behind the one that does.
        let mut places: Vec<Waits> = Vec::with_capacity(graph.len());
        *graph = rewired(std::mem::take(graph), |new, at, node| {
            let place = match instead[at] as usize {
                own if own == at => push(new, node),
                other => places[other].clone(),
            };
            places.push(place.clone());
            place
        });
    }
}
