//! This library.

use std::ops::Range;

use cuda_graph::{Exec, Graph, KernelOp, Node};

use crate::{ONE_THREAD, Result, Shape, Way, Work, value};

pub struct Library;

fn op(work: &Work, node: usize, round: u32) -> Result<KernelOp> {
    let word = work.words.slice(node..node + 1)?;
    // SAFETY: `store` writes one word, which the slice has.
    Ok(unsafe { KernelOp::new(&work.kernel, ONE_THREAD, (&word, value(node, round))) }?)
}

impl Way for Library {
    const NAME: &str = "cuda-graph";
    type Graph = (Graph, Vec<Node<KernelOp>>);
    type Exec = Exec;
    type Updates = Vec<KernelOp>;

    fn build(work: &Work, shape: Shape) -> Result<Self::Graph> {
        let graph = Graph::new(work.stream.context())?;
        let mut nodes = Vec::new();
        for node in 0..shape.nodes {
            let op = op(work, node, 0)?;
            let before = shape.before(node).map(|before| nodes[before]);
            nodes.push(graph.add(op, before)?);
        }
        Ok((graph, nodes))
    }

    fn instantiate((graph, _): &mut Self::Graph) -> Result<Option<Exec>> {
        Ok(Some(graph.instantiate()?))
    }

    fn launch(work: &Work, _: &mut Self::Graph, exec: &mut Option<Exec>) -> Result<()> {
        let exec = exec.as_mut().ok_or("instantiated before")?;
        Ok(exec.launch(&work.stream)?)
    }

    fn updates(work: &Work, shape: Shape, round: u32) -> Result<Option<Vec<KernelOp>>> {
        let made: Result<_> = (0..shape.nodes).map(|node| op(work, node, round)).collect();
        made.map(Some)
    }

    fn update(
        (_, handles): &Self::Graph,
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
