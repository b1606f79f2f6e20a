//! Graphs that passes put better to the driver: they do what they did.
//!
//! `CUDA_GRAPH_RANDOM=n` runs n times as many random graphs, programs and kernels,
//! `CUDA_GRAPH_SEED=n` those from n on.

mod attack;
mod attack_branches;
mod branches;
mod idle;
mod order;
mod passes;
mod random;
mod random_replay;
mod rewritten;
mod updates;
mod variants;

use cuda_graph::{Exec, Graph, InstantiateOptions, Optimize};

/// Instantiates with these passes.
#[track_caller]
pub fn optimized(graph: &Graph, optimize: impl Into<Optimize>) -> Exec {
    let options = InstantiateOptions {
        optimize: optimize.into(),
        ..InstantiateOptions::default()
    };
    graph.instantiate_with(&options).expect("it instantiates")
}

/// Every set of passes.
pub fn all_sets() -> Vec<Optimize> {
    let passes: Vec<_> = Optimize::ALL.passes().collect();
    let set = |bits: u32| {
        let chosen = passes
            .iter()
            .enumerate()
            .filter(|(at, _)| bits >> at & 1 == 1);
        chosen.fold(Optimize::NONE, |set, (_, pass)| set.with(*pass))
    };
    (0..1 << passes.len()).map(set).collect()
}
