//! Memory that graphs allocate: where it lies, who reaches it, and what the pool says of it.

use cuda_graph::{
    AllocOp, CopyOp, Error, FillOp, FreeOp, Graph, GraphPool, MemoryLocation, NodeKind,
};

use crate::fixture::{allocated, context, stream, words};

fn graph() -> Graph {
    Graph::new(&context()).unwrap()
}

/// Allocates, fills, reads and frees memory at a place, and says whether the driver has such
/// memory.
fn lives(op: AllocOp) -> bool {
    let stream = stream();
    let to = words(&stream, &[0; 16]);
    let graph = graph();
    let (place, peers) = (op.location_of_memory(), op.peers().to_vec());
    let alloc = match graph.add(op.label("memory"), ()) {
        Ok(alloc) => alloc,
        Err(error) => {
            assert!(matches!(error, Error::Node { .. }), "{error}");
            assert!(error.to_string().contains("\"memory\""), "{error}");
            assert!(graph.nodes().unwrap().is_empty());
            return false;
        }
    };
    let read = graph.op(alloc).unwrap();
    assert_eq!(
        (read.location_of_memory(), read.peers()),
        (place, &peers[..])
    );
    let memory = allocated(&graph, alloc);
    assert_eq!(read.address().unwrap(), memory.address());
    assert_eq!((read.bytes(), memory.bytes()), (64, 64));
    let fill = graph
        .add(FillOp::pattern(&memory, 7u32).unwrap(), alloc)
        .unwrap();
    let copy = graph.add(CopyOp::new(&to, &memory).unwrap(), fill).unwrap();
    graph.add(FreeOp::new(&memory), copy).unwrap();
    let mut exec = graph.instantiate().unwrap();
    for _ in 0..2 {
        to.copy_from_host(&stream, &[0; 16]).unwrap();
        exec.launch(&stream).unwrap();
        assert_eq!(to.to_host(&stream).unwrap(), [7; 16], "{place:?}");
    }
    true
}

#[test]
fn device_memory_is_allocated() {
    assert!(lives(AllocOp::new(MemoryLocation::Device(0), 64)));
}

#[test]
fn device_memory_may_be_reached_by_named_devices() {
    let op = AllocOp::new(MemoryLocation::Device(0), 64).peer(0);
    assert!(lives(op));
}

#[test]
fn host_and_managed_memory_is_allocated_or_refused_by_name() {
    for place in [
        MemoryLocation::Host,
        MemoryLocation::HostNuma(0),
        MemoryLocation::Managed(0),
    ] {
        let there = lives(AllocOp::new(place, 64));
        println!("{place:?}: {}", if there { "there" } else { "refused" });
    }
}

#[test]
fn an_address_is_fixed_when_the_node_is_made() {
    let stream = stream();
    let graph = graph();
    let alloc = graph
        .add(AllocOp::new(MemoryLocation::Device(0), 256), ())
        .unwrap();
    let other = graph
        .add(AllocOp::new(MemoryLocation::Device(0), 256), ())
        .unwrap();
    let (memory, second) = (allocated(&graph, alloc), allocated(&graph, other));
    assert_ne!(memory.address(), second.address());
    let fill = graph
        .add(FillOp::pattern(&memory, 1u8).unwrap(), alloc)
        .unwrap();
    let free = graph.add(FreeOp::new(&memory), fill).unwrap();
    graph.add(FreeOp::new(&second), other).unwrap();
    let mut exec = graph.instantiate().unwrap();
    exec.launch(&stream).unwrap();
    exec.launch(&stream).unwrap();
    stream.synchronize().unwrap();
    assert_eq!(allocated(&graph, alloc).address(), memory.address());
    assert_eq!(graph.op(free).unwrap().address(), memory.address());
    let kinds: Vec<_> = graph
        .nodes()
        .unwrap()
        .iter()
        .map(|node| node.kind())
        .collect();
    assert_eq!(
        kinds
            .iter()
            .filter(|kind| **kind == NodeKind::Alloc)
            .count(),
        2
    );
    assert_eq!(
        kinds.iter().filter(|kind| **kind == NodeKind::Free).count(),
        2
    );
}

#[test]
fn the_pool_counts_what_graphs_hold() {
    const BYTES: usize = 3 << 20;
    let stream = stream();
    let pool = GraphPool::of(&context());
    let graph = graph();
    let alloc = graph
        .add(AllocOp::new(MemoryLocation::Device(0), BYTES), ())
        .unwrap();
    let memory = allocated(&graph, alloc);
    let mut exec = graph.instantiate().unwrap();
    exec.launch(&stream).unwrap();
    stream.synchronize().unwrap();
    let held = pool.figures().unwrap();
    assert!(held.used >= BYTES as u64, "{held:?}");
    assert!(
        held.used_high >= held.used && held.reserved >= held.used,
        "{held:?}"
    );
    assert!(held.reserved_high >= held.reserved, "{held:?}");
    let other = self::graph();
    other.add(FreeOp::new(&memory), ()).unwrap();
    other.instantiate().unwrap().launch(&stream).unwrap();
    stream.synchronize().unwrap();
    pool.trim().unwrap();
    pool.reset_high().unwrap();
    // Other tests use the pool too: of its figures only this much is sure.
    let after = pool.figures().unwrap();
    assert!(after.used_high >= after.used && after.reserved_high >= after.reserved);
}
