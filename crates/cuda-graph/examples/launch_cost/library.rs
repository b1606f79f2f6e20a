//! This library.

use std::ops::Range;

use cuda_graph::{Exec, Graph, KernelOp, Node};

use crate::{ONE_THREAD, Result, Shape, Way, Work, value};

fn op(work: &Work, node: usize, round: u32) -> Result<KernelOp> {
    let word = work.words.slice(node..node + 1)?;
    // SAFETY: `store` writes one word, which the slice has.
    Ok(unsafe { KernelOp::new(&work.kernel, ONE_THREAD, (word, value(node, round))) }?)
}

pub fn ops(work: &Work, shape: Shape, round: u32) -> Result<Vec<KernelOp>> {
    (0..shape.nodes).map(|node| op(work, node, round)).collect()
}

type Built = (Graph, Vec<Node<KernelOp>>);

fn build(work: &Work, shape: Shape, ops: impl Iterator<Item = Result<KernelOp>>) -> Result<Built> {
    let graph = Graph::new(work.stream.context())?;
    let mut nodes: Vec<Node<KernelOp>> = Vec::new();
    for (node, op) in ops.enumerate() {
        let before = shape.before(node).map(|before| nodes[before]);
        nodes.push(graph.add(op?, before)?);
    }
    Ok((graph, nodes))
}

macro_rules! way {
    ($way:ty, $name:literal, $prepared:ty, $prepare:expr, $ops:expr) => {
        impl Way for $way {
            const NAME: &str = $name;
            type Graph = Built;
            type Exec = Exec;
            type Prepared = $prepared;
            type Updates = Vec<KernelOp>;

            fn prepare(work: &Work, shape: Shape) -> Result<$prepared> {
                $prepare(work, shape)
            }

            fn build(work: &Work, shape: Shape, prepared: $prepared) -> Result<Built> {
                build(work, shape, $ops(work, shape, prepared))
            }

            fn instantiate((graph, _): &mut Built) -> Result<Option<Exec>> {
                Ok(Some(graph.instantiate()?))
            }

            fn launch(work: &Work, _: &mut Built, exec: &mut Option<Exec>) -> Result<()> {
                let exec = exec.as_mut().ok_or("instantiated before")?;
                Ok(exec.launch(&work.stream)?)
            }

            fn updates(work: &Work, shape: Shape, round: u32) -> Result<Option<Vec<KernelOp>>> {
                ops(work, shape, round).map(Some)
            }

            fn update(
                (_, handles): &Built,
                exec: &mut Option<Exec>,
                updates: &Vec<KernelOp>,
                nodes: Range<usize>,
            ) -> Result<()> {
                let exec = exec.as_mut().ok_or("instantiated before")?;
                for node in nodes {
                    exec.update(handles[node], &updates[node])?;
                }
                Ok(())
            }
        }
    };
}

/// Operations are made as they are added.
pub struct Library;

way!(
    Library,
    "cuda-graph",
    (),
    |_, _| Ok(()),
    |work, shape: Shape, ()| { (0..shape.nodes).map(move |node| op(work, node, 0)) }
);

/// Operations are made before.
pub struct Prepared;

way!(
    Prepared,
    "… ops made",
    Vec<KernelOp>,
    |work, shape| ops(work, shape, 0),
    |_, _, ops: Vec<KernelOp>| ops.into_iter().map(Ok)
);
