//! Branches of few small kernels go: their kernels are guarded instead.
//!
//! On an H200 a conditional node costs 5 µs beside its kernels, taken or not. Here the kernel that
//! sets its condition becomes a *latch*, which notes in memory whether the branch is taken, and the
//! kernels of its body return at once where that says no. In the body of a loop the kernels can be
//! repeated then. What is behind a checkpoint is such a body, too.

use std::collections::HashMap;

use super::front::Unfit;
use super::plan::{Does, Nodes, Plan, Planned};
use super::programmatic::blocks;
use super::{Given, Pass, PassReport, inline};
use crate::graph::AnyOp;
use crate::graph::operation::{Holds, Operation};
use crate::graph::setter::{self, Latch, Setters};

/// What a conditional node costs an H200 beside its kernels, in µs, and what a kernel costs that
/// returns at once.
const NODE: f64 = 5.0;
const GUARDED: f64 = 0.6;

/// Branches of more kernels stay.
const MOST_KERNELS: usize = 8;

/// Kernels of more blocks take long to return.
const MOST_BLOCKS: u64 = 264;

pub(super) fn run(plan: &mut Plan, given: &Given<'_>) -> PassReport {
    let mut report = PassReport::new(Pass::Branches);
    if !plan.graphs.iter().flatten().any(is_branch) {
        return report;
    }
    let Ok(setters) = setter::of(given.context) else {
        return report;
    };
    // How many kernels set each condition.
    let mut set = HashMap::new();
    for node in plan.graphs.iter().flatten() {
        if let AnyOp::Kernel(op) = &node.op {
            for condition in op.arguments().conditions() {
                *set.entry(condition).or_insert(0) += 1;
            }
        }
    }
    let (mut gone, mut kernels) = (0, 0);
    // What is inside comes later in the list, and is done first.
    for graph in (0..plan.graphs.len()).rev() {
        let nodes = &plan.graphs[graph];
        // Those with edges that are no plain dependencies.
        let mut is_special = vec![false; nodes.len()];
        for (at, node) in nodes.iter().enumerate() {
            for after in node.after.iter().filter(|after| !after.is_plain()) {
                (is_special[at], is_special[after.node as usize]) = (true, true);
            }
        }
        let mut guard = |at: usize, is_special: bool| {
            let node = &plan.graphs[graph][at];
            if !is_branch(node) {
                return false;
            }
            let name = node.name();
            let guarded = match is_special {
                true => Err("it has edges that are no plain dependencies"),
                false => guarded(plan, graph, at, given, &setters, &set),
            };
            match guarded {
                Ok(count) => kernels += count,
                Err(why) => report.leave(|| name, why),
            }
            guarded.is_ok()
        };
        let nodes = is_special.into_iter().enumerate();
        let is_guarded: Vec<_> = nodes.map(|(at, special)| guard(at, special)).collect();
        if is_guarded.contains(&true) {
            let mut at = is_guarded.into_iter();
            gone += inline::graph(plan, graph, &mut |_| at.next().unwrap_or(false));
        }
    }
    report.did("branches guarded", gone, NODE);
    report.gain -= GUARDED * kernels as f64;
    report
}

fn is_branch(node: &Planned) -> bool {
    matches!(node.op, AnyOp::If(_) | AnyOp::IfElse(_))
}

/// Guards the bodies of a branch, and makes them one. Returns how many kernels they have.
fn guarded(
    plan: &mut Plan,
    graph: usize,
    at: usize,
    given: &Given<'_>,
    setters: &Setters,
    set: &HashMap<u64, u32>,
) -> Result<usize, Unfit> {
    let node = &plan.graphs[graph][at];
    let (setter, condition) = setter_of(&plan.graphs[graph], node, given, set)?;
    let inside = node.inside.clone();
    let mut kernels = 0;
    for node in inside.iter().flat_map(|body| &plan.graphs[*body as usize]) {
        if given.is_pinned(node) {
            return Err("an update broke what was made of it");
        }
        if !node.after.iter().all(|after| after.is_plain()) {
            return Err("its body has edges that are no plain dependencies");
        }
        match &node.op {
            AnyOp::Empty(_) => {}
            AnyOp::Kernel(_) if blocks(node) > MOST_BLOCKS => {
                return Err("its body has a kernel of many blocks");
            }
            AnyOp::Kernel(_) => {
                kernels += 1;
                node.can_be_guarded(given)?;
            }
            _ => return Err("its body has other nodes than kernels"),
        }
    }
    if kernels > MOST_KERNELS {
        return Err("its body has many kernels");
    }
    let word = || given.word().ok_or("there is no memory for its latch");
    let latch = Latch {
        condition,
        active: word()?,
        around: None,
        otherwise: match inside.len() {
            1 => None,
            _ => Some(word()?),
        },
    };
    let mut latched = plan.graphs[graph][setter].clone();
    latched.latch(latch, setters)?;
    let mut joined = Nodes::new();
    for (&body, word) in inside.iter().zip([Some(latch.active), latch.otherwise]) {
        let first = joined.len() as u32;
        for node in &plan.graphs[body as usize] {
            let mut node = node.clone();
            if let Some(word) = word {
                node.guard(word, given, setters)?;
            }
            for after in &mut node.after {
                after.node += first;
            }
            joined.push(node);
        }
    }
    plan.graphs[graph][setter] = latched;
    for &body in &inside {
        plan.graphs[body as usize].clear();
    }
    plan.graphs[inside[0] as usize] = joined;
    Ok(kernels)
}

/// The number of the node that sets the condition of a branch, which is right before it, if nothing
/// else does; and the condition.
fn setter_of(
    nodes: &Nodes,
    branch: &Planned,
    given: &Given<'_>,
    set: &HashMap<u64, u32>,
) -> Result<(usize, u64), Unfit> {
    let Holds::Bodies(branching) = branch.op.holds() else {
        return Err("it is no branch");
    };
    let condition = branching.condition.raw();
    let mut before = branch.after.iter().map(|after| after.node as usize);
    let found = before.find(|at| nodes[*at].sets(condition));
    let found = found.ok_or("its condition is not set right before it")?;
    if set.get(&condition) != Some(&1) {
        return Err("its condition is set twice");
    }
    if given.is_pinned(branch) || given.is_pinned_or_disabled(&nodes[found]) {
        return Err("an update broke what was made of it");
    }
    match nodes[found].does {
        Does::Same => Ok((found, condition)),
        _ => Err("a kernel of the program sets its condition"),
    }
}
