//! Executables of loops and branches that recorders made: nodes in bodies updated, disabled and
//! enabled, and all of it from another graph.

use std::sync::Arc;

use cuda_graph::cudarc::driver::CudaStream;
use cuda_graph::{
    Buffer, CopyOp, Error, Exec, FillOp, Graph, KernelOp, Node, Path, Recorder, Result,
    UpdateFailure, WhileOp,
};

use super::kernels::{kernels, nearer, plus, put};
use super::{BUILT, Through, alone, launch, recorded};
use crate::fixture::stream;

/// What a step works on: a count of turns, a flag, two numbers that are added up, and what is
/// copied.
struct Cells {
    all: Buffer<i32>,
    turns: Buffer<i32>,
    flag: Buffer<i32>,
    sum: Buffer<i32>,
    one: Buffer<i32>,
    copied: Buffer<i32>,
    filled: Buffer<i32>,
}

impl Cells {
    fn new(stream: &Arc<CudaStream>) -> Cells {
        let all = Buffer::from_host(stream, &[0; 6]).unwrap();
        let part = |at: usize| all.slice(at..at + 1).unwrap();
        Cells {
            turns: part(0),
            flag: part(1),
            sum: part(2),
            one: part(3),
            copied: part(4),
            filled: part(5),
            all,
        }
    }

    /// Runs it for three turns with the flag set; gives the sum, what was copied and what was
    /// filled.
    fn run(&self, exec: &mut Exec, stream: &Arc<CudaStream>) -> [i32; 3] {
        let start = [3, 1, 0, 1, 0, 0];
        self.all.copy_from_host(stream, &start).unwrap();
        launch(exec, stream).unwrap();
        let end = self.all.to_host(stream).unwrap();
        [end[2], end[4], end[5]]
    }
}

/// The nodes in bodies.
#[derive(Default)]
struct Nodes {
    plus: Option<Node<KernelOp>>,
    copy: Option<Node<CopyOp>>,
    fill: Option<Node<FillOp>>,
    deep: Option<Node<KernelOp>>,
}

/// Adds 1 in each turn of a loop, and does the rest in branches inside.
fn step(r: &mut dyn Recorder, cells: &Cells, value: i32) -> Result<Nodes> {
    let mut nodes = Nodes::default();
    r.while_nonzero(&cells.turns, |r| {
        nodes.plus = r.record(plus(&cells.sum, &cells.one))?;
        r.if_nonzero(&cells.flag, |r| {
            nodes.copy = r.record(CopyOp::new(&cells.copied, &cells.one)?)?;
            r.switch_on(
                &cells.flag,
                &mut [&mut |_| Ok(()), &mut |r| {
                    nodes.fill = r.record(FillOp::new(&cells.filled, value)?)?;
                    nodes.deep = r.record(plus(&cells.filled, &cells.one))?;
                    Ok(())
                }],
            )
        })?;
        r.record(nearer(&cells.turns)).map(drop)
    })?;
    Ok(nodes)
}

fn build(through: Through, stream: &Arc<CudaStream>, cells: &Cells, value: i32) -> (Graph, Nodes) {
    kernels();
    recorded(through, stream, |r| step(r, cells, value)).unwrap()
}

#[test]
fn nodes_in_bodies_are_updated_and_switched() {
    let _alone = alone();
    let stream = stream();
    for through in BUILT {
        let cells = Cells::new(&stream);
        let (graph, nodes) = build(through, &stream, &cells, 40);
        let [plus_node, deep] = [nodes.plus, nodes.deep].map(Option::unwrap);
        let (copy, fill) = (nodes.copy.unwrap(), nodes.fill.unwrap());
        let mut exec = graph.instantiate().unwrap();
        let run = |exec: &mut Exec| cells.run(exec, &stream);
        assert_eq!(run(&mut exec), [3, 1, 41], "{through:?}");

        exec.update(plus_node, plus(&cells.sum, &cells.turns))
            .unwrap();
        exec.update(fill, FillOp::new(&cells.filled, 50).unwrap())
            .unwrap();
        assert_eq!(run(&mut exec), [6, 1, 51], "{through:?}");
        let from = CopyOp::new(&cells.copied, &cells.sum).unwrap();
        exec.update(copy, from).unwrap();
        exec.update(deep, put(&cells.filled, -1)).unwrap();
        assert_eq!(run(&mut exec), [6, 6, -1], "{through:?}");

        for node in [plus_node.id(), copy.id(), fill.id(), deep.id()] {
            assert!(exec.is_enabled(node).unwrap());
            exec.disable(node).unwrap();
            assert!(!exec.is_enabled(node).unwrap());
        }
        assert_eq!(run(&mut exec), [0, 0, 0], "{through:?}");
        for node in [copy.id(), fill.id()] {
            exec.enable(node).unwrap();
        }
        assert_eq!(run(&mut exec), [0, 0, 50], "{through:?}");

        // What the definition says has not changed, and comes back with all of it.
        exec.enable(plus_node).unwrap();
        exec.enable(deep).unwrap();
        exec.update_in_place(&graph).unwrap();
        assert_eq!(run(&mut exec), [3, 1, 41], "{through:?}");
        body_with(&graph, fill)
            .unwrap()
            .update(fill, FillOp::new(&cells.filled, 60).unwrap())
            .unwrap();
        assert_eq!(run(&mut exec), [3, 1, 41], "{through:?}");
        exec.update_in_place(&graph).unwrap();
        assert_eq!(run(&mut exec), [3, 1, 61], "{through:?}");
    }
}

/// The body, at any depth, that has a node.
fn body_with(graph: &Graph, node: Node<FillOp>) -> Option<Graph> {
    let nodes = graph.nodes().unwrap().into_iter();
    nodes
        .filter_map(|node| node.typed::<WhileOp>())
        .flat_map(|node| graph.bodies(node).unwrap())
        .find_map(|body| match body.contains(node) {
            true => Some(body),
            false => body_with(&body, node),
        })
}

#[test]
fn an_executable_is_updated_from_a_graph_of_the_same_step() {
    let _alone = alone();
    let stream = stream();
    for from in BUILT {
        for to in BUILT {
            let (first, second) = (Cells::new(&stream), Cells::new(&stream));
            let (graph, _) = build(from, &stream, &first, 40);
            let mut exec = graph.instantiate().unwrap();
            assert_eq!(first.run(&mut exec, &stream), [3, 1, 41]);
            let (other, _) = build(to, &stream, &second, 70);
            for _ in 0..2 {
                exec.update_in_place(&other)
                    .unwrap_or_else(|error| panic!("{from:?} from {to:?}: {error}"));
                assert_eq!(second.run(&mut exec, &stream), [3, 1, 71]);
                // There and back.
                exec.update_in_place(&graph).unwrap();
                assert_eq!(first.run(&mut exec, &stream), [3, 1, 41]);
            }
            exec.update_in_place(&other).unwrap();
            drop((graph, other));
            assert_eq!(second.run(&mut exec, &stream), [3, 1, 71]);
        }
    }
}

#[test]
fn another_step_is_refused_and_the_executable_goes_on() {
    let _alone = alone();
    let stream = stream();
    let cells = Cells::new(&stream);
    let flag = &cells.flag;
    let body = |r: &mut dyn Recorder| r.record(put(&cells.sum, 5)).map(drop);
    type Record<'a> = &'a dyn Fn(&mut Path) -> Result<()>;
    let steps: [Record<'_>; 5] = [
        &|path| path.if_nonzero(flag, body),
        &|path| path.if_else_nonzero(flag, body, |_| Ok(())),
        &|path| path.switch_on(flag, &mut [&mut |_| Ok(()), &mut |r| body(r)]),
        &|path| {
            path.if_nonzero(flag, |r| {
                body(r)?;
                body(r)
            })
        },
        &|path| path.if_nonzero(flag, |r| r.if_nonzero(flag, body)),
    ];
    let graphs = steps.map(|step| {
        let graph = Graph::new(stream.context()).unwrap();
        step(&mut Path::new(&graph)).unwrap();
        graph
    });
    let (first, others) = graphs.split_first().unwrap();
    let mut exec = first.instantiate().unwrap();
    for (at, other) in others.iter().enumerate() {
        let Err(Error::Update { reason, .. }) = exec.update_in_place(other) else {
            panic!("step {at} is another one");
        };
        assert_ne!(reason, UpdateFailure::Driver, "step {at}");
        assert_eq!(cells.run(&mut exec, &stream), [5, 0, 0]);
    }
}
