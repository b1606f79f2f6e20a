//! Loops repeat their bodies. Each kernel of a repetition returns at once when the loop is over.
//!
//! On an H200 a turn of a loop costs 4 µs beside its kernels. A body that is there several times
//! costs that once for all of them. Between two repetitions a *latch* notes whether the loop goes
//! on, because kernels of a repetition may write the flag while others have not yet run. The
//! kernels of all repetitions but the first look at the latch. The last repetition sets the
//! condition, as the body did.
//!
//! Kernels that are declared to do nothing where the loop's flag is 0 need no guard. If all of a
//! body are, there is no latch either.

use super::front::Unfit;
use super::plan::{After, Does, Front, Nodes, Place, Plan, Planned, Waits};
use super::{Given, Pass, PassReport};
use crate::graph::AnyOp;
use crate::graph::operation::{Holds, Operation};
use crate::graph::setter::{self, Latch, Setters};
use crate::op::Op;

/// What one turn of a loop costs an H200 beside its kernels, in µs; and what a latch costs.
const TURN: f64 = 4.0;
const LATCH: f64 = 0.6;

pub(super) fn run(plan: &mut Plan, given: &Given<'_>) -> PassReport {
    let mut report = PassReport::new(Pass::Loops);
    let has_loops = |node: &Planned| matches!(node.op, AnyOp::While(_));
    if given.unroll == 1 || !plan.graphs.iter().flatten().any(has_loops) {
        return report;
    }
    let Ok(setters) = setter::of(given.context) else {
        return report;
    };
    for graph in 0..plan.graphs.len() {
        for node in 0..plan.graphs[graph].len() {
            let node = &plan.graphs[graph][node];
            let (true, Some(&body)) = (has_loops(node), node.inside.first()) else {
                continue;
            };
            let name = node.name();
            match unrolled(plan, node, body, given, &setters) {
                Ok(Unrolled {
                    nodes,
                    copies,
                    one_flag,
                }) => {
                    plan.graphs[body as usize] = nodes;
                    let latches = if one_flag.is_none() { copies - 1 } else { 0 };
                    let turns = TURN + LATCH * latches as f64;
                    report.did("loops unrolled", 1, TURN - turns / copies as f64);
                    report.did("repetitions of bodies", copies, 0.0);
                    report.did("loops without guards", one_flag.iter().len(), 0.0);
                    plan.one_flag.extend(one_flag);
                }
                Err(why) => report.leave(|| name, why),
            }
        }
    }
    report
}

/// How often a body of so many kernels is there, once it is unrolled.
fn copies(kernels: usize) -> usize {
    match kernels {
        0..=6 => 16,
        7..=12 => 8,
        13..=40 => 4,
        _ => 2,
    }
}

/// The body of a loop, several times.
struct Unrolled {
    nodes: Nodes,
    copies: usize,
    /// The program's nodes that name one flag, if there are no guards.
    one_flag: Option<Vec<Place>>,
}

fn unrolled(
    plan: &Plan,
    node: &Planned,
    body: u32,
    given: &Given<'_>,
    setters: &Setters,
) -> Result<Unrolled, Unfit> {
    let Holds::Bodies(branching) = node.op.holds() else {
        return Err("it is no loop");
    };
    let nodes = &plan.graphs[body as usize];
    let condition = branching.condition.raw();
    if nodes.iter().any(|node| node.op.of_communicator().is_some()) {
        return Err("its body has collectives");
    }
    let setter = setter_of(plan, nodes, condition, setters)?;
    let mut kernels = 0;
    let one_flag = with_one_flag(nodes, setter, setters);
    for (at, node) in nodes.iter().enumerate() {
        if given.is_pinned(node) {
            return Err("an update broke what was made of it");
        }
        if node.after.iter().any(|after| after.node as usize == setter) {
            return Err("its body goes on once the condition is set");
        }
        if !node.after.iter().all(|after| after.is_plain()) {
            return Err("its body has edges that are no plain dependencies");
        }
        match &node.op {
            _ if at == setter => {}
            AnyOp::Empty(_) => {}
            AnyOp::Kernel(_) => {
                kernels += 1;
                if one_flag.is_none() {
                    node.can_be_guarded(given)?;
                }
            }
            AnyOp::Fill(_) | AnyOp::Copy(_) => {
                return Err("its body has a fill or a copy that is no kernel's");
            }
            _ => return Err("its body has other nodes than kernels"),
        }
    }
    if kernels == 0 {
        return Err("its body has no kernels");
    }
    let latch = match one_flag {
        Some(_) => None,
        None => Some(Latch {
            condition,
            active: given.word().ok_or("there is no memory for its latch")?,
            around: None,
            otherwise: None,
        }),
    };
    let copies = match given.unroll {
        0 => copies(kernels),
        count => count as usize,
    };
    Ok(Unrolled {
        nodes: repeated(nodes, setter, copies, latch, given, setters)?,
        copies,
        one_flag,
    })
}

/// The program's nodes of a body, if all of its kernels do nothing where the loop's flag is 0.
fn with_one_flag(body: &Nodes, setter: usize, setters: &Setters) -> Option<Vec<Place>> {
    let flag = setters.flag_of(&body[setter].op)?;
    let kernels = (body.iter()).filter(|node| matches!(node.op, AnyOp::Kernel(_)));
    let place = |node: &Planned| {
        let is_own = matches!(node.does, Does::Same) && node.front == Front::default();
        (is_own && setters.flag_of(&node.op) == Some(flag)).then(|| node.of.first().copied())?
    };
    kernels.map(place).collect()
}

/// The number of the node that sets the loop's condition, if nothing else does but what comes
/// before the loop.
fn setter_of(plan: &Plan, body: &Nodes, condition: u64, setters: &Setters) -> Result<usize, Unfit> {
    let mut found = None;
    for (at, node) in body
        .iter()
        .enumerate()
        .filter(|(_, node)| node.sets(condition))
    {
        if !setters.is_setter(&node.op) || !matches!(node.does, Does::Same) {
            return Err("a kernel of the program sets its condition");
        }
        if found.replace(at).is_some() {
            return Err("its condition is set twice");
        }
    }
    let found = found.ok_or("its body does not set its condition")?;
    let all = plan
        .graphs
        .iter()
        .flatten()
        .filter(|node| node.sets(condition));
    let is_library = |node: &Planned| setters.is_setter(&node.op);
    match all.clone().count() <= 2 && all.into_iter().all(is_library) {
        true => Ok(found),
        false => Err("its condition is set elsewhere too"),
    }
}

/// Puts a body so often one behind the other, with guards that look at what `latch` says, if there
/// is one.
fn repeated(
    body: &Nodes,
    setter: usize,
    copies: usize,
    latch: Option<Latch>,
    given: &Given<'_>,
    setters: &Setters,
) -> Result<Nodes, Unfit> {
    // With the nodes that the setter alone waits for.
    let mut is_end = vec![true; body.len()];
    let of_others = body.iter().enumerate().filter(|(at, _)| *at != setter);
    for after in of_others.flat_map(|(_, node)| &node.after) {
        is_end[after.node as usize] = false;
    }
    let mut nodes = Nodes::with_capacity((body.len() + 1) * copies);
    // What the next repetition waits for: the latch, or all that this one ends with.
    let mut before = Waits::new();
    for copy in 0..copies {
        // By the number in the body.
        let mut place = vec![0; body.len()];
        let mut ends = Waits::new();
        for (at, node) in body.iter().enumerate().filter(|(at, _)| *at != setter) {
            let mut node = node.clone();
            for after in &mut node.after {
                after.node = place[after.node as usize];
            }
            if node.after.is_empty() {
                node.after = before.clone();
            }
            if let (1.., Some(latch)) = (copy, latch) {
                node.guard(latch.active, given, setters)?;
            }
            place[at] = nodes.len() as u32;
            if is_end[at] {
                ends.push(After::plain(place[at]));
            }
            nodes.push(node);
        }
        before = ends;
        if copy + 1 < copies && latch.is_none() {
            continue;
        }
        let mut last = body[setter].clone();
        // Nothing of a repetition runs beside its latch.
        last.after = before;
        if let Some(latch) = latch.filter(|_| copy + 1 < copies) {
            let around = (copy > 0).then_some(latch.active);
            last.latch(Latch { around, ..latch }, setters)?;
        }
        before = Waits::from_slice(&[After::plain(nodes.len() as u32)]);
        nodes.push(last);
    }
    Ok(nodes)
}
