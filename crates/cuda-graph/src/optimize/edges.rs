//! Edges that others imply go, and empty nodes that only pass an order on.
//!
//! On an H200 a kernel that waits for 8 nodes costs three times one that waits for the last of
//! them. Nodes are put into lines, as few as come by themselves, and each node knows how far it is
//! surely behind some lines. So the cost is linear, and where there are more lines than a node can
//! know, edges stay that could go.

use smallvec::SmallVec;

use super::plan::{Does, Nodes, Plan, Planned, push, rewired, sort};
use super::{Given, Pass, PassReport};
use crate::graph::AnyOp;

/// How many lines a node knows of.
const KNOWN: usize = 24;

/// What an edge too many costs a launch on an H200, in µs.
const COST: f64 = 0.15;

pub(super) fn run(plan: &mut Plan, given: &Given<'_>) -> PassReport {
    let mut report = PassReport::new(Pass::Edges);
    let (mut nodes, mut edges) = (0, 0);
    for graph in &mut plan.graphs {
        nodes += without_empty(graph, given);
        edges += reduce(graph, given);
    }
    report.did("empty nodes removed", nodes, 0.01);
    report.did("edges removed", edges, COST);
    report
}

/// How far a node is behind a line.
#[derive(Clone, Copy)]
struct Behind {
    line: u32,
    place: u32,
}

/// Removes edges that others imply. Returns how many.
///
/// A disabled node implies nothing of what it waits for: on an H200 the order through a disabled
/// memset node is not kept.
fn reduce(graph: &mut Nodes, given: &Given<'_>) -> usize {
    let mut removed = 0;
    // By node: its line and its place there.
    let mut own: Vec<Behind> = Vec::with_capacity(graph.len());
    // By line: its last node.
    let mut last: Vec<u32> = Vec::new();
    // By node: what it and its own line are behind, in one list.
    let mut known: Vec<Behind> = Vec::new();
    let mut ranges: Vec<(u32, u32)> = Vec::with_capacity(graph.len());
    // By line: how many of its first nodes the others imply. Empty between nodes.
    let mut implied: Vec<Option<u32>> = Vec::new();
    let mut touched: Vec<u32> = Vec::new();
    for (at, node) in (0..).zip(graph.iter_mut()) {
        if node.after.len() > 1 {
            let before = node.after.len();
            implied.resize(last.len(), None);
            for after in node.after.iter().filter(|after| after.is_plain()) {
                let (start, end) = ranges[after.node as usize];
                // Its own place first: those before it on its line are implied.
                let list = known[start as usize..end as usize].iter().enumerate();
                for (number, behind) in list {
                    let places = behind.place + u32::from(number > 0);
                    let implied = &mut implied[behind.line as usize];
                    *implied = Some(implied.unwrap_or(0).max(places));
                    touched.push(behind.line);
                }
            }
            node.after.retain(|after| {
                let Behind { line, place } = own[after.node as usize];
                let is_implied = implied[line as usize].is_some_and(|places| place < places);
                !(after.is_plain() && is_implied)
            });
            for line in touched.drain(..) {
                implied[line as usize] = None;
            }
            removed += before - node.after.len();
        }
        // It goes on with the line of a node that it waits for, if that is the line's end.
        let plain = || node.after.iter().filter(|after| after.is_plain());
        let is_off = node.of.iter().any(|place| given.disabled.contains(place));
        let continued = plain()
            .filter(|_| !is_off)
            .find(|after| last[own[after.node as usize].line as usize] == after.node);
        let this = match continued {
            Some(after) => {
                let Behind { line, place } = own[after.node as usize];
                Behind {
                    line,
                    place: place + 1,
                }
            }
            None => Behind {
                line: last.len() as u32,
                place: 0,
            },
        };
        match last.get_mut(this.line as usize) {
            Some(last) => *last = at,
            None => last.push(at),
        }
        own.push(this);
        let mut list = SmallVec::<[Behind; KNOWN]>::new();
        list.push(this);
        for after in plain().filter(|_| !is_off) {
            let (start, end) = ranges[after.node as usize];
            for behind in &known[start as usize..end as usize] {
                let known = list.iter().position(|known| known.line == behind.line);
                match known {
                    Some(at) => list[at].place = list[at].place.max(behind.place),
                    None if list.len() < KNOWN => list.push(*behind),
                    None => {}
                }
            }
        }
        ranges.push((known.len() as u32, (known.len() + list.len()) as u32));
        known.extend_from_slice(&list);
    }
    removed
}

/// Removes empty nodes where that takes no more edges than there were. Returns how many.
fn without_empty(graph: &mut Nodes, given: &Given<'_>) -> usize {
    let is_empty = |node: &Planned| {
        matches!(node.op, AnyOp::Empty(_))
            && matches!(node.does, Does::Same)
            && node.after.iter().all(|after| after.is_plain())
            && !given.is_pinned(node)
    };
    let is_empty: Vec<bool> = graph.iter().map(is_empty).collect();
    if !is_empty.contains(&true) {
        return 0;
    }
    let mut waited_for = vec![0usize; graph.len()];
    for after in graph.iter().flat_map(|node| &node.after) {
        // A special edge needs its node.
        let weight = if after.is_plain() { 1 } else { usize::MAX / 2 };
        let count = &mut waited_for[after.node as usize];
        *count = count.saturating_add(weight);
    }
    let mut removed = 0;
    *graph = rewired(std::mem::take(graph), |new, at, mut node| {
        // The last node stays: a graph of none is another one.
        if !is_empty[at] || removed + 1 == is_empty.len() {
            return push(new, node);
        }
        let waiting = waited_for[at];
        if waiting > 1 {
            sort(&mut node.after);
            let before = node.after.len();
            if before.saturating_mul(waiting) > before.saturating_add(waiting) {
                return push(new, node);
            }
        }
        removed += 1;
        node.after
    });
    removed
}
