//! What passes cost when a graph is instantiated.

use std::time::Instant;

use cuda_graph::{FillOp, Graph, InstantiateOptions, NodeId, Optimize, Result};

use crate::case::Setting;
use crate::measure::median;

/// How many nodes the graphs have.
const NODES: [usize; 4] = [100, 1_000, 10_000, 100_000];

/// Of so many nodes, one is a fill.
const FILL_EVERY: usize = 10;

/// About how many nodes are instantiated for one figure.
const MOST: usize = 300_000;

/// A line of one-thread kernels and fills. Every second node waits for the two before the last one,
/// too, which is redundant.
fn define(setting: &Setting, count: usize) -> Result<Graph> {
    let mut memory = setting.memory();
    let (cell, other) = (memory.zeros(1)?, memory.zeros(1)?);
    let kernel = setting.tiny.step(&cell, 1)?;
    let fill = FillOp::new(&other, 1u32)?;
    let graph = Graph::new(setting.stream.context())?;
    let mut nodes: Vec<NodeId> = Vec::with_capacity(count);
    for at in 0..count {
        let waits_for = if at % 2 == 0 { 1 } else { 3 };
        let before = &nodes[at.saturating_sub(waits_for)..];
        nodes.push(match at % FILL_EVERY {
            0 => graph.add(fill.clone(), before)?.id(),
            _ => graph.add(kernel.clone(), before)?.id(),
        });
    }
    Ok(graph)
}

/// µs to instantiate.
fn time(graph: &Graph, optimize: Optimize) -> Result<f64> {
    let options = InstantiateOptions {
        optimize,
        ..InstantiateOptions::default()
    };
    let start = Instant::now();
    let exec = graph.instantiate_with(&options)?;
    let time = start.elapsed();
    drop(exec);
    Ok(time.as_secs_f64() * 1e6)
}

pub fn print(setting: &Setting, optimize: Optimize, repeats: usize) -> Result<()> {
    println!("lines of kernels and fills, with redundant edges; µs a node to instantiate");
    println!("a pass: what it alone adds, with the second definition where it changes anything\n");
    let passes: Vec<_> = optimize.passes().collect();
    let mut columns = vec!["none".into(), "passes".into(), "ratio".into()];
    columns.extend(passes.iter().map(|pass| format!("{pass:?}")));
    print!("{:>10}", "nodes");
    columns.iter().for_each(|column| print!("{column:>14}"));
    println!("{:>14}", "repeats");

    let each = passes.iter().map(|pass| Optimize::from(*pass));
    let ways: Vec<Optimize> = [Optimize::NONE, optimize].into_iter().chain(each).collect();
    for nodes in NODES {
        let graph = define(setting, nodes)?;
        let mut times = vec![Vec::new(); ways.len()];
        let repeats = repeats.min(MOST / nodes).max(3);
        for way in &ways {
            time(&graph, *way)?;
        }
        for repeat in 0..repeats {
            for turn in 0..ways.len() {
                let way = (repeat + turn) % ways.len();
                times[way].push(time(&graph, ways[way])?);
            }
        }
        let per_node: Vec<f64> = times.iter().map(|of| median(of) / nodes as f64).collect();
        let (none, all) = (per_node[0], per_node[1]);
        print!("{nodes:>10}{none:>14.3}{all:>14.3}{:>14.3}", all / none);
        per_node[2..]
            .iter()
            .for_each(|one| print!("{:>14.3}", one - none));
        println!("{repeats:>14}");
    }
    Ok(())
}
