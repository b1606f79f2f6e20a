//! Lines that data does not order run beside each other, and stay right whatever is updated.

use std::sync::Arc;

use cuda_graph::cudarc::driver::CudaStream;
use cuda_graph::{Buffer, FillOp, Graph, KernelOp, Module, Node, Optimize, Pass, Report};

use super::optimized;
use crate::fixture::{context, one, stream, words};

/// `mix(to, from)`: `to` becomes 3 times what it was, and `from`.
const PTX: &str = "
.version 7.0
.target sm_70
.address_size 64
.visible .entry mix(.param .u64 to, .param .u64 from)
{
    .reg .b32 %v, %w;
    .reg .b64 %p, %q;
    ld.param.u64 %p, [to];
    ld.param.u64 %q, [from];
    ld.global.u32 %v, [%p];
    ld.global.u32 %w, [%q];
    mad.lo.u32 %v, %v, 3, %w;
    st.global.u32 [%p], %v;
    ret;
}
.visible .entry none() { ret; }
";

struct Scene {
    stream: Arc<CudaStream>,
    module: Module,
    cells: Vec<Buffer<u32>>,
}

impl Scene {
    fn new(cells: usize) -> Scene {
        let stream = stream();
        Scene {
            module: Module::load(&context(), PTX).expect("it is PTX"),
            cells: (0..cells).map(|_| words(&stream, &[1])).collect(),
            stream,
        }
    }

    fn mix(&self, to: usize, from: usize) -> KernelOp {
        let kernel = self.module.kernel("mix").expect("it is there");
        let (to, from) = (&self.cells[to], &self.cells[from]);
        // SAFETY: the kernel reads and writes a word each.
        let op = unsafe { KernelOp::new(&kernel, one(), (to, from)) };
        op.expect("they fit").reads(from).writes(to)
    }

    /// A line of `count` kernels, each on a pair of cells of its own lane.
    fn line(&self, count: usize) -> (Graph, Vec<Node<KernelOp>>) {
        let graph = Graph::new(&context()).expect("there is memory");
        let lanes = self.cells.len() / 2;
        let mut nodes = Vec::new();
        for at in 0..count {
            let lane = 2 * (at % lanes);
            let op = self.mix(lane + at / lanes % 2, lane + (1 + at / lanes) % 2);
            nodes.push(graph.add(op, nodes.last().copied()).expect("it is added"));
        }
        (graph, nodes)
    }

    /// What all cells are after a launch that finds them as they were.
    fn launched(&self, exec: &mut cuda_graph::Exec) -> Vec<u32> {
        for (at, cell) in (1..).zip(&self.cells) {
            cell.copy_from_host(&self.stream, &[at]).expect("it fits");
        }
        exec.launch(&self.stream).expect("it launches");
        let read = |cell: &Buffer<u32>| cell.to_host(&self.stream).expect("it can be read")[0];
        self.cells.iter().map(read).collect()
    }
}

fn did(report: &Report, what: &str) -> usize {
    report.pass(Pass::Order).expect("it ran").count(what)
}

#[test]
fn a_line_of_lanes_becomes_lanes() {
    let scene = Scene::new(8);
    let (graph, nodes) = scene.line(24);
    // What is known of nothing stays behind all of it.
    let kernel = scene.module.kernel("none").expect("it is there");
    // SAFETY: the kernel does nothing.
    let none = unsafe { KernelOp::new(&kernel, one(), ()) }.expect("it takes nothing");
    graph.add(none, nodes[23]).expect("it is added");
    let wants = scene.launched(&mut graph.instantiate().expect("it is sound"));
    for optimize in [Pass::Order.into(), Optimize::ALL] {
        let mut exec = optimized(&graph, optimize);
        let report = exec.report().expect("passes ran").clone();
        assert_eq!(did(&report, "nodes no longer in line"), 18, "{report}");
        // Four lanes of six, and the last node behind all of them.
        assert_eq!(report.edges, (24, 4 * 5 + 4));
        assert_eq!(scene.launched(&mut exec), wants);
    }
}

#[test]
fn an_update_that_needs_another_order_gets_it() {
    let scene = Scene::new(8);
    let (graph, nodes) = scene.line(24);
    let mut plain = graph.instantiate().expect("it is sound");
    let mut exec = optimized(&graph, Optimize::ALL);
    // As before: the same memory, or memory that nothing else touches.
    plain.update(nodes[5], scene.mix(3, 2)).expect("it may be");
    exec.update(nodes[5], scene.mix(3, 2)).expect("it may be");
    assert_eq!(exec.report().expect("passes ran").fallbacks, 0);
    assert_eq!(scene.launched(&mut exec), scene.launched(&mut plain));
    // It reads what another lane writes.
    for (at, (to, from)) in [(9, (2, 4)), (10, (5, 0)), (3, (7, 1)), (0, (6, 7))] {
        plain
            .update(nodes[at], scene.mix(to, from))
            .expect("it may be");
        exec.update(nodes[at], scene.mix(to, from))
            .expect("it may be");
        assert_eq!(
            scene.launched(&mut exec),
            scene.launched(&mut plain),
            "{at}"
        );
    }
    assert!(exec.report().expect("passes ran").fallbacks > 0);
}

#[test]
fn an_undeclared_kernel_may_touch_everything() {
    let scene = Scene::new(8);
    let (graph, nodes) = scene.line(24);
    let kernel = scene.module.kernel("mix").expect("it is there");
    // SAFETY: the kernel reads and writes a word each.
    let silent = unsafe { KernelOp::new(&kernel, one(), (&scene.cells[0], &scene.cells[7])) };
    let silent = silent.expect("they fit");
    let mut exec = optimized(&graph, Optimize::ALL);
    exec.update(nodes[12], &silent).expect("it may be");
    assert_eq!(exec.report().expect("passes ran").fallbacks, 1);
    let mut plain = graph.instantiate().expect("it is sound");
    plain.update(nodes[12], &silent).expect("it may be");
    assert_eq!(scene.launched(&mut exec), scene.launched(&mut plain));
}

#[test]
fn a_true_line_stays() {
    let scene = Scene::new(2);
    let (graph, _) = scene.line(24);
    let exec = optimized(&graph, Pass::Order);
    assert!(!exec.report().expect("passes ran").has_changed());
}

#[test]
fn a_line_of_fills_becomes_one_kernel() {
    let scene = Scene::new(8);
    let graph = Graph::new(&context()).expect("there is memory");
    let mut last: Option<Node<FillOp>> = None;
    for (at, cell) in (10u32..).zip(&scene.cells) {
        let fill = FillOp::new(cell, at).expect("it fits");
        last = Some(graph.add(fill, last).expect("it is added"));
    }
    let mut exec = optimized(&graph, Optimize::ALL);
    assert_eq!(exec.report().expect("passes ran").nodes, (8, 1));
    assert_eq!(scene.launched(&mut exec), (10..18).collect::<Vec<u32>>());
}

#[test]
fn kernels_that_fill_the_device_run_in_two_lanes() {
    let scene = Scene::new(2);
    let graph = Graph::new(&context()).expect("there is memory");
    let mut config = one();
    (config.grid_dim, config.block_dim) = ((528, 1, 1), (1024, 1, 1));
    let kernel = scene.module.kernel("none").expect("it is there");
    // SAFETY: the kernel does nothing.
    let none = unsafe { KernelOp::new(&kernel, config, ()) }.expect("it takes nothing");
    let first = graph.add(none.clone(), ()).expect("it is added");
    let mut ends = Vec::new();
    for _ in 0..6 {
        let next = graph.add(none.clone(), first).expect("it is added");
        ends.push(graph.add(none.clone(), next).expect("it is added"));
    }
    graph.add(none, &ends).expect("it is added");
    let mut exec = optimized(&graph, Pass::Order);
    let report = exec.report().expect("passes ran").clone();
    assert_eq!(did(&report, "chains put in line"), 4, "{report}");
    exec.launch(&scene.stream).expect("it launches");
    scene.stream.synchronize().expect("it runs");
    // The edges that are implied then, another pass removes.
    let exec = optimized(&graph, Optimize::from(Pass::Order).with(Pass::Edges));
    assert_eq!(exec.report().expect("passes ran").nodes, (14, 14));
}
