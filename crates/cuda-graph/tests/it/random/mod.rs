//! Random graphs, edited at random: they keep the nodes and edges that they are to have, run in an
//! order that their edges allow, and compute what they are to compute; so do their clones, and
//! executables that are updated in part, as a whole, and whose nodes are disabled and enabled
//! again.
//!
//! `CUDA_GRAPH_RANDOM=n` runs n times as many cases.

mod cells;
mod model;
mod script;

use std::collections::BTreeSet;
use std::sync::Arc;

use cuda_graph::cudarc::driver::CudaStream;
use cuda_graph::{Exec, Graph};
use proptest::prelude::*;
use proptest::sample::Index;

use crate::fixture::{context, stream};
use cells::Cells;
use model::{Model, Name};
use script::Step;

/// So many cases, or as many times more as is asked for.
pub fn cases(count: u32) -> ProptestConfig {
    let times = std::env::var("CUDA_GRAPH_RANDOM").map_or(1, |times| {
        times.parse().expect("CUDA_GRAPH_RANDOM is a number")
    });
    ProptestConfig {
        cases: count * times,
        max_shrink_iters: 500,
        failure_persistence: None,
        ..ProptestConfig::default()
    }
}

/// What runs graphs, and gives each run another word to find where nothing was written.
struct Runner {
    stream: Arc<CudaStream>,
    runs: u32,
}

impl Runner {
    fn run(&mut self, exec: &mut Exec, model: &Model, off: &BTreeSet<Name>) {
        self.runs += 1;
        let poison = 0x9e37_79b9_u32.wrapping_mul(self.runs);
        let stream = &self.stream;
        let launch = || {
            exec.launch(stream).expect("it launches");
            stream.synchronize().expect("it runs");
        };
        model.check_run(launch, off, poison);
    }
}

/// Every `step`th of the nodes that `choose` takes, from a random one on.
fn some(model: &Model, choose: impl Fn(&model::Known) -> bool, start: &Index) -> BTreeSet<Name> {
    let chosen = model.nodes.iter().filter(|(_, known)| choose(known));
    chosen
        .skip(start.index(3))
        .step_by(3)
        .map(|(name, _)| *name)
        .collect()
}

/// Builds a graph by `steps`, and does everything to it that leaves its nodes and edges as they
/// are.
fn live(steps: &[Step], start: &Index) {
    let cells = Cells::new();
    let mut runner = Runner {
        stream: stream(),
        runs: 0,
    };
    let none = BTreeSet::new();
    let mut graph = Graph::new(&context()).unwrap();
    let mut model = Model::new(&cells);
    // What later edits of a clone must not reach.
    let mut left: Option<(Graph, Model)> = None;
    for step in steps {
        match step {
            Step::Clone => {
                let clone = graph.try_clone().unwrap();
                let cloned = model.of_clone(&graph, &clone);
                left = Some((graph, model));
                (graph, model) = (clone, cloned);
            }
            Step::Run => {
                model.check_structure(&graph);
                model.check_nodes(&graph);
                runner.run(&mut graph.instantiate().unwrap(), &model, &none);
            }
            edit => model.edit(&graph, edit),
        }
    }
    model.check_structure(&graph);
    if let Some((graph, model)) = left {
        model.check_structure(&graph);
        runner.run(&mut graph.instantiate().unwrap(), &model, &none);
    }

    let mut exec = graph.instantiate().unwrap();
    runner.run(&mut exec, &model, &none);

    // The clone holds what it needs by itself.
    let clone = graph.try_clone().unwrap();
    let cloned = model.of_clone(&graph, &clone);
    cloned.check_structure(&clone);
    runner.run(&mut clone.instantiate().unwrap(), &cloned, &none);

    // Node by node: the executable changes, the definition does not.
    let mut updated = model.clone();
    for name in some(&model, |_| true, start) {
        let value = model.nodes[&name].value.wrapping_mul(3).wrapping_add(1);
        updated.replace_in(&mut exec, name, value).unwrap();
    }
    runner.run(&mut exec, &updated, &none);
    model.check_nodes(&graph);

    // As a whole, from an edited clone, which is then gone.
    let mut edited = cloned;
    for name in some(&model, |known| known.cell % 4 == 0, start) {
        let value = model.nodes[&name].value.wrapping_mul(5).wrapping_add(2);
        edited.replace(&clone, name, value).unwrap();
    }
    exec.update_from(&clone).unwrap();
    drop(clone);
    runner.run(&mut exec, &edited, &none);

    // Some pass their turn, then take it again.
    let off = some(&model, model::Known::can_be_disabled, start);
    for name in &off {
        exec.disable(model.nodes[name].node).unwrap();
    }
    runner.run(&mut exec, &edited, &off);
    for name in &off {
        assert!(!exec.is_enabled(model.nodes[name].node).unwrap());
        exec.enable(model.nodes[name].node).unwrap();
    }
    runner.run(&mut exec, &edited, &none);

    // Back to what the definition says, which nothing has reached.
    exec.update_from(&graph).unwrap();
    drop(graph);
    runner.run(&mut exec, &model, &none);
}

proptest! {
    #![proptest_config(cases(100))]

    /// Few nodes, many edits, which meet often.
    #[test]
    fn small_graphs_live(
        steps in prop::collection::vec(
            prop_oneof![
                20 => script::step(10),
                1 => Just(Step::Clone),
                1 => Just(Step::Run),
            ],
            0..90,
        ),
        start in any::<Index>(),
    ) {
        live(&steps, &start);
    }
}

proptest! {
    #![proptest_config(cases(4))]

    /// Up to 2,000 nodes.
    #[test]
    fn large_graphs_live(
        steps in prop::collection::vec(script::step(200), 1_500..2_100),
        start in any::<Index>(),
    ) {
        live(&steps, &start);
    }
}
