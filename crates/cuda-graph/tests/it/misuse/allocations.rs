//! The driver's rules about memory that graphs allocate.

use cuda_graph::{
    AllocOp, ChildOp, CopyOp, Error, FreeOp, Graph, InstantiateOptions, MemoryLocation, RawMemory,
};

use super::graph;
use crate::fixture::{allocated, context, stream, words};

#[test]
fn allocations_follow_the_drivers_rules() {
    let stream = stream();
    let graph = graph();
    let alloc = graph
        .add(AllocOp::new(MemoryLocation::Device(0), 64), ())
        .unwrap();
    let memory = allocated(&graph, alloc);
    let a = words(&stream, &[0; 16]);
    let from = words(&stream, &(0..16).collect::<Vec<_>>());
    let write = graph
        .add(CopyOp::new(&memory, &from).unwrap(), alloc)
        .unwrap();
    let read = graph.add(CopyOp::new(&a, &memory).unwrap(), write).unwrap();
    let free = graph.add(FreeOp::new(&memory), read).unwrap();
    assert_eq!(graph.op(free).unwrap().address(), memory.address());
    assert_eq!(graph.op(alloc).unwrap().bytes(), 64);
    assert!(matches!(graph.try_clone(), Err(Error::Call { .. })));
    assert!(matches!(
        self::graph().add(ChildOp::new(&graph), ()),
        Err(Error::Node { .. })
    ));
    let mut exec = graph.instantiate().unwrap();
    for _ in 0..3 {
        exec.launch(&stream).unwrap();
    }
    assert_eq!(a.to_host(&stream).unwrap(), (0..16).collect::<Vec<_>>());
    assert!(matches!(
        graph.instantiate(),
        Err(Error::Instantiate { .. })
    ));
    let pool = cuda_graph::GraphPool::of(&context());
    drop(exec);
    pool.trim().unwrap();
    let figures = pool.figures().unwrap();
    assert!(figures.used <= figures.used_high && figures.reserved <= figures.reserved_high);
    pool.reset_high().unwrap();
    // SAFETY: nothing is done with it: freeing what no graph allocated is refused.
    let stray = unsafe { RawMemory::device(a.address(), 64) };
    assert!(self::graph().add(FreeOp::new(&stray), ()).is_err());
}

/// A graph that allocates, and writes there.
fn allocating() -> (Graph, cuda_graph::Node<AllocOp>, RawMemory) {
    let graph = graph();
    let op = AllocOp::new(MemoryLocation::Device(0), 64);
    let alloc = graph.add(op, ()).unwrap();
    let memory = allocated(&graph, alloc);
    (graph, alloc, memory)
}

#[test]
fn a_graph_that_allocates_keeps_its_nodes_and_edges() {
    let stream = stream();
    let (graph, alloc, memory) = allocating();
    let from = words(&stream, &[1; 16]);
    let write = graph.add(CopyOp::new(&memory, &from).unwrap(), alloc);
    let write = write.unwrap();
    let free = graph.add(FreeOp::new(&memory), write).unwrap();
    assert!(matches!(graph.destroy(alloc), Err(Error::Node { .. })));
    assert!(matches!(graph.destroy(write), Err(Error::Node { .. })));
    assert!(matches!(
        graph.remove_edge(write, free),
        Err(Error::Call { .. })
    ));
    assert!(matches!(
        graph.predecessors(free).set(()),
        Err(Error::Call { .. })
    ));
    assert_eq!(graph.nodes().unwrap().len(), 3);
    assert_eq!(graph.edges().unwrap().len(), 2);
    let mut exec = graph.instantiate().unwrap();
    exec.launch(&stream).unwrap();
    stream.synchronize().unwrap();
}

#[test]
fn memory_is_freed_once() {
    let (graph, alloc, memory) = allocating();
    let free = graph.add(FreeOp::new(&memory), alloc).unwrap();
    assert!(matches!(
        graph.add(FreeOp::new(&memory), free),
        Err(Error::Node { .. })
    ));
    let other = super::graph();
    assert!(matches!(
        other.add(FreeOp::new(&memory), ()),
        Err(Error::Node { .. })
    ));
}

#[test]
fn memory_that_a_launch_left_is_freed_before_the_next_or_by_it() {
    let stream = stream();
    let (graph, ..) = allocating();
    let mut exec = graph.instantiate().unwrap();
    exec.launch(&stream).unwrap();
    assert!(
        matches!(exec.launch(&stream), Err(Error::Call { .. })),
        "nobody freed it"
    );
    stream.synchronize().unwrap();
    drop(exec);

    let (graph, _, memory) = allocating();
    let options = InstantiateOptions {
        auto_free: true,
        ..InstantiateOptions::default()
    };
    let mut exec = graph.instantiate_with(&options).unwrap();
    assert!(exec.options().unwrap().auto_free);
    for _ in 0..3 {
        exec.launch(&stream).unwrap();
    }
    stream.synchronize().unwrap();
    // Another graph may free what this one left.
    let other = super::graph();
    other.add(FreeOp::new(&memory), ()).unwrap();
    other.instantiate().unwrap().launch(&stream).unwrap();
    stream.synchronize().unwrap();
}

#[test]
fn places_that_are_none_are_refused() {
    for op in [
        AllocOp::new(MemoryLocation::Device(77), 64),
        AllocOp::new(MemoryLocation::Device(0), 64).peer(77),
        AllocOp::new(MemoryLocation::Device(0), 0),
    ] {
        let graph = graph();
        let said = format!("{op:?}");
        let Err(error) = graph.add(op.label("nowhere"), ()) else {
            panic!("{said} is made");
        };
        assert!(error.to_string().contains("nowhere"), "{error}");
        assert!(graph.nodes().unwrap().is_empty());
    }
}
