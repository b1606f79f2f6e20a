//! Lines of nodes that do not need each other's data run beside each other, and chains of kernels
//! that each fill the device run in fewer lanes.
//!
//! Fills and copies know their memory, and kernels may declare theirs
//! ([`KernelOp::reads`](crate::KernelOp::reads)). A line of such nodes is ordered anew, by data
//! alone. On an H200 two lanes of 16 small kernels take two thirds of the time of one line of 32,
//! and no lanes were slower than the line. A later update may bring other memory: then the order
//! must still be right, or the graph is planned anew.
//!
//! Kernels that fill the device gain nothing from more than two lanes, and each fork into more
//! costs 1 µs.

use std::collections::HashMap;

use smallvec::SmallVec;

use super::plan::{After, Does, Nodes, Place, Plan, Planned, Waits, sort, waited_for};
use super::programmatic::blocks;
use super::{Given, Pass, PassReport};
use crate::graph::AnyOp;
use crate::graph::data_order::DataOrder;
use crate::op::{Access, Op};

/// Shorter lines are left.
const LEAST: usize = 4;

/// What each step costs a line, and a fork into too many lanes, in µs.
const STEP: f64 = 0.5;
const FORK: f64 = 1.0;

/// From so many threads on, a kernel fills an H200 twice.
const FILLING: u64 = 2 * 132 * 2048;

/// Chains of kernels that fill the device are put in so many lanes.
const LANES: usize = 2;

/// A line that was ordered by data.
#[derive(Clone, PartialEq)]
pub(crate) struct Ordered {
    pub nodes: Vec<Place>,
    /// By the place in the line, which of it each one waits for.
    after: Vec<SmallVec<[u32; 2]>>,
}

impl Ordered {
    /// Whether the order is that by data if the nodes do what `now` says.
    pub(crate) fn is_right<'o>(&self, now: &dyn Fn(Place) -> Option<&'o AnyOp>) -> bool {
        let accesses = self.nodes.iter().map(|at| now(*at)?.accesses());
        let accesses: Option<Vec<_>> = accesses.collect();
        accesses.is_some_and(|accesses| by_data(&accesses) == self.after)
    }
}

/// Which of a line each of it waits for.
fn by_data(accesses: &[Vec<Access>]) -> Vec<SmallVec<[u32; 2]>> {
    let mut order = DataOrder::of_a_line();
    let each = (0..).zip(accesses);
    each.map(|(at, accesses)| order.next(at, accesses))
        .collect()
}

pub(super) fn run(plan: &mut Plan, given: &Given<'_>) -> PassReport {
    let mut report = PassReport::new(Pass::Order);
    for graph in 0..plan.graphs.len() {
        let nodes = &mut plan.graphs[graph];
        let ordered = lines(nodes, given, &mut report);
        narrow(nodes, &mut report);
        plan.ordered.extend(ordered);
    }
    report
}

/// Orders lines by data.
fn lines(nodes: &mut Nodes, given: &Given<'_>, report: &mut PassReport) -> Vec<Ordered> {
    let counts = waited_for(nodes);
    let mut next = vec![None; nodes.len()];
    // Nodes that something waits for in another way than for their end.
    let mut is_special = vec![false; nodes.len()];
    for (at, node) in nodes.iter().enumerate() {
        match node.after[..] {
            [after] if after.is_plain() && counts[after.node as usize] == 1 => {
                next[after.node as usize] = Some(at);
            }
            _ => {}
        }
        for after in node.after.iter().filter(|after| !after.is_plain()) {
            (is_special[at], is_special[after.node as usize]) = (true, true);
        }
    }
    let known: Vec<Option<Vec<Access>>> = nodes
        .iter()
        .zip(&is_special)
        .map(|(node, is_special)| accesses(node, given).filter(|_| !is_special))
        .collect();
    let mut is_inner = vec![false; nodes.len()];
    let mut all = Vec::new();
    // What takes the place of the end of a line.
    let mut ends: HashMap<u32, Waits> = HashMap::new();
    for first in 0..nodes.len() {
        if known[first].is_none() || is_inner[first] {
            continue;
        }
        let mut line = vec![first];
        while let Some(at) = next[line[line.len() - 1]].filter(|at| known[*at].is_some()) {
            is_inner[at] = true;
            line.push(at);
        }
        if line.len() < LEAST {
            continue;
        }
        let accesses: Vec<_> = line.iter().filter_map(|at| known[*at].clone()).collect();
        let after = by_data(&accesses);
        let mut depth = vec![1; line.len()];
        let mut is_end = vec![true; line.len()];
        for (at, after) in after.iter().enumerate() {
            for &before in after {
                depth[at] = depth[at].max(depth[before as usize] + 1);
                is_end[before as usize] = false;
            }
        }
        let deepest = depth.iter().copied().max().unwrap_or(0);
        let (begins, over) = (after.iter().filter(|after| after.is_empty()), is_end.iter());
        let last = line[line.len() - 1];
        let edges = begins.count() * nodes[first].after.len()
            + over.filter(|is_end| **is_end).count() * counts[last] as usize;
        if 4 * deepest > 3 * line.len() || edges > 4 * line.len() {
            continue;
        }
        let before = nodes[first].after.clone();
        for (at, after) in after.iter().enumerate() {
            let waits = after
                .iter()
                .map(|at| After::plain(line[*at as usize] as u32));
            nodes[line[at]].after = match after.is_empty() {
                true => before.clone(),
                false => waits.collect(),
            };
        }
        let over = line.iter().zip(&is_end).filter(|(_, is_end)| **is_end);
        let over = over.map(|(at, _)| After::plain(*at as u32)).collect();
        ends.insert(last as u32, over);
        report.did("nodes no longer in line", line.len() - deepest, STEP);
        all.push(Ordered {
            nodes: line.iter().map(|at| nodes[*at].of[0]).collect(),
            after,
        });
    }
    if !ends.is_empty() {
        for node in nodes.iter_mut() {
            if !node
                .after
                .iter()
                .any(|after| ends.contains_key(&after.node))
            {
                continue;
            }
            let waits = node
                .after
                .iter()
                .flat_map(|after| match ends.get(&after.node) {
                    Some(over) => over.clone(),
                    None => Waits::from_slice(&[*after]),
                });
            node.after = waits.collect();
            sort(&mut node.after);
        }
    }
    all
}

/// What a node touches, if that is known and it may be put in another order.
fn accesses(node: &Planned, given: &Given<'_>) -> Option<Vec<Access>> {
    match node.op {
        AnyOp::Kernel(_) | AnyOp::Fill(_) | AnyOp::Copy(_)
            if node.of.len() == 1
                && !given.is_pinned_or_disabled(node)
                && matches!(node.does, Does::Same) =>
        {
            node.op.accesses()
        }
        _ => None,
    }
}

/// Puts chains of kernels that fill the device in fewer lanes, where they begin together.
fn narrow(nodes: &mut Nodes, report: &mut PassReport) {
    let fills = |node: &Planned| {
        let AnyOp::Kernel(op) = &node.op else {
            return false;
        };
        let (x, y, z) = op.block();
        let threads = u64::from(x) * u64::from(y) * u64::from(z);
        matches!(node.does, Does::Same) && blocks(node).saturating_mul(threads) >= FILLING
    };
    if nodes.iter().filter(|node| fills(node)).count() <= LANES {
        return;
    }
    let counts = waited_for(nodes);
    let mut next = vec![None; nodes.len()];
    for (at, node) in nodes.iter().enumerate() {
        match node.after[..] {
            [after] if counts[after.node as usize] == 1 => next[after.node as usize] = Some(at),
            _ => {}
        }
    }
    // By what they wait for, the beginnings of chains that only such kernels are in.
    let mut forks: HashMap<Vec<u32>, Vec<(usize, usize)>> = HashMap::new();
    for (at, node) in nodes.iter().enumerate() {
        let is_inner = matches!(node.after[..], [after] if counts[after.node as usize] == 1);
        if is_inner || !node.after.iter().all(|after| after.is_plain()) {
            continue;
        }
        let (mut last, mut all_fill) = (at, fills(node));
        while let Some(at) = next[last].filter(|_| all_fill) {
            (last, all_fill) = (at, fills(&nodes[at]));
        }
        if all_fill {
            let before = node.after.iter().map(|after| after.node).collect();
            forks.entry(before).or_default().push((at, last));
        }
    }
    for chains in forks
        .into_values()
        .filter(|chains| chains.len() > 2 * LANES)
    {
        let mut narrowed = 0;
        for (lane, &(first, _)) in chains.iter().enumerate().skip(LANES) {
            let (_, before) = chains[lane - LANES];
            // Every node is behind those that it waits for.
            if before < first {
                nodes[first].after = Waits::from_slice(&[After::plain(before as u32)]);
                narrowed += 1;
            }
        }
        report.did("chains put in line", narrowed, 0.0);
        report.gain += if narrowed > 0 { FORK } else { 0.0 };
    }
}
