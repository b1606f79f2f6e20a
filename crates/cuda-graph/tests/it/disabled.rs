//! Disabled fills: what is around them keeps its order, and they come back as what they are.

use cuda_graph::cudarc::driver::LaunchConfig;
use cuda_graph::cudarc::driver::result::memset_d8_async;
use cuda_graph::{
    Buffer, ChildOp, Error, Exec, FillOp, Graph, IfOp, InstantiateOptions, KernelOp, Node, NodeId,
    Operation, Optimize,
};

use crate::fixture::{add, alone, context, first_child, kernel, store, stream, words};

/// How many words `bump` adds 1 to, so that it takes its time.
const COUNT: u32 = 1 << 18;

/// A launch that takes long, and one that adds what it left to a sum.
struct Around {
    many: Buffer<u32>,
    sum: Buffer<u32>,
    filled: Buffer<u64>,
}

impl Around {
    fn new() -> Around {
        let stream = stream();
        Around {
            many: Buffer::zeroed(&stream, COUNT as usize).unwrap(),
            sum: words(&stream, &[0]),
            filled: Buffer::zeroed(&stream, 1 << 15).unwrap(),
        }
    }

    fn before(&self) -> KernelOp {
        let config = LaunchConfig::for_num_elems(COUNT);
        // SAFETY: `bump` adds 1 to so many words.
        unsafe { KernelOp::new(kernel("bump"), config, (&self.many, COUNT)) }.unwrap()
    }

    fn after(&self) -> KernelOp {
        let last = COUNT as usize - 1..COUNT as usize;
        add(&self.sum, &self.many.slice(last).unwrap())
    }

    /// A line of both, with `op` between them.
    fn line<O: Operation>(&self, op: O) -> (Graph, Node<O>) {
        let graph = Graph::new(&context()).unwrap();
        let before = graph.add(self.before(), ()).unwrap();
        let node = graph.add(op, before).unwrap();
        graph.add(self.after(), node).unwrap();
        (graph, node)
    }

    /// What is in `filled` after some launches, each of which came in order.
    #[track_caller]
    fn run(&self, exec: &mut Exec) -> Vec<u64> {
        let stream = stream();
        self.many
            .copy_from_host(&stream, &vec![0; COUNT as usize])
            .unwrap();
        self.sum.copy_from_host(&stream, &[0]).unwrap();
        self.filled
            .copy_from_host(&stream, &vec![0; 1 << 15])
            .unwrap();
        for _ in 0..20 {
            exec.launch(&stream).unwrap();
        }
        assert_eq!(self.sum.to_host(&stream).unwrap(), [210]);
        self.filled.to_host(&stream).unwrap()
    }

    /// The fill of `node`, enabled and disabled in turn.
    #[track_caller]
    fn switch(&self, exec: &mut Exec, node: impl Into<NodeId> + Copy) {
        let filled = self.run(exec);
        assert!(filled.iter().any(|value| *value != 0));
        for _ in 0..2 {
            exec.disable(node).unwrap();
            exec.disable(node).unwrap();
            assert!(!exec.is_enabled(node).unwrap());
            assert_eq!(self.run(exec), vec![0; 1 << 15]);
            exec.enable(node).unwrap();
            exec.enable(node).unwrap();
            assert!(exec.is_enabled(node).unwrap());
            assert_eq!(self.run(exec), filled);
        }
    }
}

/// A value whose bytes repeat 4 of them.
const WORDS: u64 = 0x0000_0102_0000_0102;

#[test]
fn what_is_around_a_disabled_fill_keeps_its_order() {
    let around = Around::new();
    let to = &around.filled;
    let (one, few) = (to.slice(1..2).unwrap(), to.slice(3..20).unwrap());
    let fills = [
        FillOp::by_kernel(to, 5).unwrap(),
        FillOp::new(&few, 5).unwrap(),
        FillOp::new(&one, WORDS).unwrap(),
        FillOp::new(&few, 0x0505_0505_0505_0505).unwrap(),
        FillOp::new(to, WORDS).unwrap(),
        FillOp::pattern(&one, 5u32).unwrap(),
        FillOp::pattern(&few, 5u16).unwrap(),
        FillOp::pattern(&few, 5u8).unwrap(),
        // Rows without gaps, with gaps, and of many KiB.
        FillOp::rows(to, WORDS, 16, 3, 128).unwrap(),
        FillOp::rows(to, WORDS, 1, 40, 8).unwrap(),
        FillOp::pattern_rows(to, 5u8, 16, 3, 16).unwrap(),
        FillOp::rows(to, WORDS, 8, 3, 128).unwrap(),
        FillOp::rows(to, WORDS, 1 << 12, 3, 1 << 15).unwrap(),
        FillOp::pattern_rows(to, 5u8, 16, 1, 64).unwrap(),
    ];
    for fill in fills {
        let (graph, node) = around.line(fill);
        around.switch(&mut graph.instantiate().unwrap(), node);
        let mut exec = graph.instantiate_with(&optimized()).unwrap();
        around.switch(&mut exec, node);
    }
}

fn optimized() -> InstantiateOptions {
    InstantiateOptions {
        optimize: Optimize::ALL,
        ..InstantiateOptions::default()
    }
}

fn fill(to: &Buffer<u64>, value: u32) -> FillOp {
    let few = to.slice(0..4).unwrap();
    FillOp::new(&few, u64::from(value) << 32 | u64::from(value)).unwrap()
}

/// What four values of `filled` are.
fn first(filled: &[u64]) -> u64 {
    assert!(filled[..4].iter().all(|value| *value == filled[0]));
    assert!(filled[4..].iter().all(|value| *value == 0));
    filled[0] & 0xffff_ffff
}

#[test]
fn fills_in_children_and_bodies_are_disabled() {
    let _alone = alone();
    let around = Around::new();
    let fill = fill(&around.filled, 5);
    let inner = Graph::new(&context()).unwrap();
    inner.add(fill.clone(), ()).unwrap();
    let (graph, child) = around.line(ChildOp::new(&inner));
    let within = graph.child(child).unwrap().nodes().unwrap()[0];
    around.switch(&mut graph.instantiate().unwrap(), within);
    around.switch(&mut graph.instantiate_with(&optimized()).unwrap(), within);

    let graph = Graph::new(&context()).unwrap();
    let condition = graph.condition(Some(1)).unwrap();
    let branch = graph.add(IfOp::new(&condition), ()).unwrap();
    let body = graph.body(branch).unwrap();
    let before = body.add(around.before(), ()).unwrap();
    let within = body.add(fill, before).unwrap();
    body.add(around.after(), within).unwrap();
    for options in [InstantiateOptions::default(), optimized()] {
        let mut exec = graph.instantiate_with(&options).unwrap();
        around.switch(&mut exec, within);
    }
}

#[test]
fn an_update_of_a_disabled_fill_shows_when_it_is_enabled() {
    let around = Around::new();
    let fill = |value| fill(&around.filled, value);
    for options in [InstantiateOptions::default(), optimized()] {
        let (graph, node) = around.line(fill(1));
        let mut exec = graph.instantiate_with(&options).unwrap();
        exec.disable(node).unwrap();
        exec.update(node, fill(2)).unwrap();
        assert!(!exec.is_enabled(node).unwrap());
        assert_eq!(first(&around.run(&mut exec)), 0);
        // One of several rows cannot take the place of one row.
        let rows = FillOp::rows(&around.filled, WORDS, 2, 2, 64).unwrap();
        exec.update(node, &rows).unwrap_err();
        assert_eq!(first(&around.run(&mut exec)), 0);
        exec.enable(node).unwrap();
        assert_eq!(first(&around.run(&mut exec)), 2);

        // From the definition, from another one, and from one with another topology.
        exec.disable(node).unwrap();
        graph.update(node, fill(3)).unwrap();
        exec.update_in_place(&graph).unwrap();
        assert!(!exec.is_enabled(node).unwrap());
        assert_eq!(first(&around.run(&mut exec)), 0);
        exec.enable(node).unwrap();
        assert_eq!(first(&around.run(&mut exec)), 3);
        exec.disable(node).unwrap();
        let (other, others) = around.line(fill(4));
        exec.update_in_place(&other).unwrap();
        assert_eq!(first(&around.run(&mut exec)), 0);
        exec.enable(node).unwrap();
        assert_eq!(first(&around.run(&mut exec)), 4);
        exec.disable(node).unwrap();
        other.add(store(&around.sum, 210), others).unwrap();
        exec.update_in_place(&other).unwrap_err();
        assert_eq!(first(&around.run(&mut exec)), 0);
        assert!(!exec.is_enabled(node).unwrap());
    }
}

#[test]
fn no_update_of_all_enables_what_the_definition_lost() {
    let around = Around::new();
    let (graph, node) = around.line(fill(&around.filled, 1));
    let (other, _) = around.line(fill(&around.filled, 2));
    let mut exec = graph.instantiate().unwrap();
    exec.disable(node).unwrap();
    graph.destroy(node).unwrap();
    let updated = exec.update_in_place(&other);
    assert!(
        matches!(updated, Err(Error::NodeGone { .. })),
        "{updated:?}"
    );
    assert_eq!(first(&around.run(&mut exec)), 0);
}

/// A fill by other code, between what is around it. Gives the graph that it is in too.
fn by_others(around: &Around, byte: u8) -> (Graph, Graph, Node<FillOp>) {
    let stream = stream();
    let (graph, ()) = Graph::capture(&stream, |path| {
        path.record(around.before())?;
        let to = around.filled.address();
        // SAFETY: so many bytes are there, which live as long as the graph.
        unsafe { path.foreign(|stream| Ok(memset_d8_async(to, byte, 32, stream.cu_stream())?)) }?;
        path.record(around.after())?;
        Ok(())
    })
    .unwrap();
    let inner = first_child(&graph);
    let node = inner.nodes().unwrap()[0].typed().unwrap();
    (graph, inner, node)
}

#[test]
fn what_other_code_fills_is_disabled() {
    let around = Around::new();
    let value = |byte: u8| u64::from(u32::from_ne_bytes([byte; 4]));
    let (graph, inner, node) = by_others(&around, 1);
    let mut exec = graph.instantiate().unwrap();
    around.switch(&mut exec, node);
    // The executable does what it did, whatever becomes of the definition.
    exec.disable(node).unwrap();
    inner.update(node, fill(&around.filled, 7)).unwrap();
    assert_eq!(first(&around.run(&mut exec)), 0);
    exec.enable(node).unwrap();
    assert_eq!(first(&around.run(&mut exec)), value(1));
    exec.disable(node).unwrap();
    exec.update(node, fill(&around.filled, 9)).unwrap();
    assert_eq!(first(&around.run(&mut exec)), 0);
    exec.enable(node).unwrap();
    assert_eq!(first(&around.run(&mut exec)), 9);
    // Another definition's.
    exec.disable(node).unwrap();
    let (other, ..) = by_others(&around, 3);
    exec.update_in_place(&other).unwrap();
    assert!(!exec.is_enabled(node).unwrap());
    exec.enable(node).unwrap();
    assert_eq!(first(&around.run(&mut exec)), value(3));
}
