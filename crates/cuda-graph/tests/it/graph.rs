//! Definitions built, run, updated and read back.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use cuda_graph::{
    AnyOp, Buffer, ChildOp, CopyOp, EmptyOp, FillOp, Graph, HostOp, KernelOp, NodeKind,
    PinnedBuffer, Pitched, RecordEventOp, WaitEventOp,
};

use crate::fixture::{add, context, kernel, number_bytes, one, store, stream, words};

#[test]
fn a_line_of_every_common_operation_runs() {
    let stream = stream();
    let (a, b) = (words(&stream, &[0; 4]), words(&stream, &[0; 4]));
    let pinned = PinnedBuffer::<u32>::zeroed(&context(), 4).unwrap();
    let calls = Arc::new(AtomicU32::new(0));
    let counter = calls.clone();

    let graph = Graph::new(&context()).unwrap();
    let fill = graph.add(FillOp::new(&a, 7u32).unwrap(), ()).unwrap();
    let write = graph.add(store(&a, 5), fill).unwrap();
    let copy = graph.add(CopyOp::new(&b, &a).unwrap(), write).unwrap();
    let sum = graph.add(add(&b, &a), copy).unwrap();
    let read = graph.add(CopyOp::new(&pinned, &b).unwrap(), sum).unwrap();
    let join = graph.add(EmptyOp::new(), (sum, read)).unwrap();
    let host = HostOp::new(move || {
        counter.fetch_add(1, Ordering::SeqCst);
    });
    graph.add(host, join).unwrap();

    let mut exec = graph.instantiate().unwrap();
    exec.upload(&stream).unwrap();
    for round in 1..=3 {
        exec.launch(&stream).unwrap();
        stream.synchronize().unwrap();
        assert_eq!(pinned.to_vec(), [10, 7, 7, 7]);
        assert_eq!(calls.load(Ordering::SeqCst), round);
    }
}

#[test]
fn an_executable_is_updated_node_by_node_and_as_a_whole() {
    let stream = stream();
    let (a, b) = (words(&stream, &[0]), words(&stream, &[0]));
    let graph = Graph::new(&context()).unwrap();
    let node = graph.add(store(&a, 1), ()).unwrap();
    let mut exec = graph.instantiate().unwrap();

    exec.update(node, store(&b, 2)).unwrap();
    exec.launch(&stream).unwrap();
    assert_eq!(
        (a.to_host(&stream).unwrap(), b.to_host(&stream).unwrap()),
        (vec![0], vec![2])
    );
    assert!(
        format!("{:?}", graph.op(node).unwrap()).contains("0x1"),
        "the definition is what it was"
    );

    graph.update(node, store(&a, 3)).unwrap();
    exec.update_from(&graph).unwrap();
    exec.launch(&stream).unwrap();
    assert_eq!(
        (a.to_host(&stream).unwrap(), b.to_host(&stream).unwrap()),
        (vec![3], vec![2])
    );

    exec.disable(node).unwrap();
    assert!(!exec.is_enabled(node).unwrap());
    a.copy_from_host(&stream, &[9]).unwrap();
    exec.launch(&stream).unwrap();
    assert_eq!(a.to_host(&stream).unwrap(), [9]);
    exec.enable(node).unwrap();
    assert!(exec.is_enabled(node).unwrap());
    exec.launch(&stream).unwrap();
    assert_eq!(a.to_host(&stream).unwrap(), [3]);
}

#[test]
fn copies_have_rows_and_planes_and_any_side() {
    let stream = stream();
    let from = words(&stream, &(0..64).collect::<Vec<_>>());
    let to = words(&stream, &[0; 64]);
    let graph = Graph::new(&context()).unwrap();
    // 2 words of each of 3 rows of 4 words, into rows of 8 words.
    let rows = graph
        .add(CopyOp::rows(&to, 32, &from, 16, 8, 3).unwrap(), ())
        .unwrap();
    assert_eq!(graph.op(rows).unwrap().size(), (8, 3, 1));
    // 1 word of 2 rows of 2 planes of 4 rows of 4 words, from word 1 of row 1 of plane 1.
    let from_rows = Pitched {
        pitch: 16,
        rows: 4,
        origin: (4, 1, 1),
    };
    let to_rows = Pitched {
        pitch: 4,
        rows: 2,
        origin: (0, 0, 0),
    };
    let part = to.slice(40..44).unwrap();
    graph
        .add(
            CopyOp::volume(&part, to_rows, &from, from_rows, (4, 2, 2)).unwrap(),
            (),
        )
        .unwrap();
    let host = Arc::new(vec![100u32, 101]);
    let end = to.slice(62..).unwrap();
    graph.add(CopyOp::new(&end, &host).unwrap(), ()).unwrap();
    drop(host);
    let mut exec = graph.instantiate().unwrap();
    exec.launch(&stream).unwrap();
    let mut wanted = [0u32; 64];
    for row in 0..3 {
        wanted[row * 8] = row as u32 * 4;
        wanted[row * 8 + 1] = row as u32 * 4 + 1;
    }
    wanted[40..44].copy_from_slice(&[21, 25, 37, 41]);
    wanted[62..].copy_from_slice(&[100, 101]);
    assert_eq!(to.to_host(&stream).unwrap(), wanted);
}

#[test]
fn fills_have_rows_and_values_of_one_two_and_four_bytes() {
    let stream = stream();
    let buffer = Buffer::<u8>::zeroed(&stream, 64).unwrap();
    let graph = Graph::new(&context()).unwrap();
    let part = |from: usize, to: usize| buffer.slice(from..to).unwrap();
    graph
        .add(FillOp::pattern(part(0, 3), 0xabu8).unwrap(), ())
        .unwrap();
    graph
        .add(FillOp::pattern(part(4, 8), -2i16).unwrap(), ())
        .unwrap();
    graph
        .add(FillOp::pattern(part(8, 16), 1.0f32).unwrap(), ())
        .unwrap();
    graph
        .add(FillOp::rows(&part(16, 64), 7u8, 3, 4, 12).unwrap(), ())
        .unwrap();
    graph.instantiate().unwrap().launch(&stream).unwrap();
    let mut wanted = vec![0u8; 64];
    wanted[..3].fill(0xab);
    wanted[4..8].copy_from_slice(&[0xfe, 0xff, 0xfe, 0xff]);
    wanted[8..12].copy_from_slice(&1f32.to_le_bytes());
    wanted[12..16].copy_from_slice(&1f32.to_le_bytes());
    for row in 0..4 {
        wanted[16 + row * 12..][..3].fill(7);
    }
    assert_eq!(buffer.to_host(&stream).unwrap(), wanted);
}

#[test]
fn operations_read_back_are_those_given() {
    let stream = stream();
    let a = words(&stream, &[0; 4]);
    let event = Arc::new(context().new_event(None).unwrap());
    let graph = Graph::new(&context()).unwrap();
    let k = graph.add(store(&a, 5).label("five"), ()).unwrap();
    let e = graph.add(RecordEventOp::new(&event), k).unwrap();
    let w = graph.add(WaitEventOp::new(&event), e).unwrap();
    let f = graph.add(FillOp::new(&a, 3u32).unwrap(), w).unwrap();

    let op = graph.op(k).unwrap();
    assert_eq!(op.label_text(), Some("five"));
    assert!(op.location().unwrap().file().ends_with("graph.rs"));
    assert_eq!(op.kernel().name(), "store");
    assert_eq!(number_bytes(&op, 1).unwrap(), 5u32.to_le_bytes());
    assert_eq!(graph.op(e).unwrap().event(), event.cu_event());
    assert_eq!(graph.op(w).unwrap().event(), graph.op(e).unwrap().event());
    assert_eq!(graph.op(f).unwrap().value(), 3u32.to_le_bytes());
    assert_eq!(
        graph.name(k).to_string().split(" (").next(),
        Some("kernel node 0 `store` \"five\"")
    );

    // The same, seen by someone who did not make them.
    // SAFETY: the graph outlives the handle, and nothing else uses it meanwhile.
    let other = unsafe { Graph::from_raw_borrowed(graph.raw().unwrap(), &context()) };
    let nodes = other.nodes().unwrap();
    assert_eq!(nodes.len(), 4);
    let kinds: Vec<NodeKind> = nodes.iter().map(|node| node.kind()).collect();
    assert_eq!(
        kinds,
        [
            NodeKind::Kernel,
            NodeKind::RecordEvent,
            NodeKind::WaitEvent,
            NodeKind::Fill
        ]
    );
    let op = other.op(nodes[0].typed::<KernelOp>().unwrap()).unwrap();
    assert_eq!(op.kernel().name(), "store");
    assert_eq!(number_bytes(&op, 1).unwrap(), 5u32.to_le_bytes());
    assert_eq!(number_bytes(&op, 0).unwrap(), a.address().to_le_bytes());
    assert_eq!(op.location(), None);
    let AnyOp::Fill(op) = other.any_op(nodes[3]).unwrap() else {
        panic!("a fill is a fill");
    };
    assert_eq!((op.value(), op.size()), (&3u32.to_le_bytes()[..], (4, 1)));
    assert!(!op.to().is_owned());
}

#[test]
fn edges_are_edited_as_sets() {
    let graph = Graph::new(&context()).unwrap();
    let n: Vec<_> = (0..6)
        .map(|_| graph.add(EmptyOp::new(), ()).unwrap())
        .collect();
    graph.predecessors(n[5]).add([n[0], n[1], n[2]]).unwrap();
    assert_eq!(graph.predecessors(n[5]).list().unwrap().len(), 3);
    graph.predecessors(n[5]).set((n[1], n[3])).unwrap();
    let mut list = graph.predecessors(n[5]).list().unwrap();
    list.sort_by_key(|node| node.index());
    assert_eq!(list, [n[1].id(), n[3].id()]);
    assert!(graph.successors(n[3]).list().unwrap().contains(&n[5].id()));
    graph.successors(n[0]).set([n[4], n[5]]).unwrap();
    assert_eq!(graph.edges().unwrap().len(), 4);
    graph.predecessors(n[5]).remove(n[1]).unwrap();
    graph.predecessors(n[5]).set(()).unwrap();
    assert!(graph.predecessors(n[5]).list().unwrap().is_empty());
    let edges = graph.edges().unwrap();
    assert_eq!(edges.len(), 1);
    assert_eq!((edges[0].from, edges[0].to), (n[0].id(), n[4].id()));
    assert_eq!(graph.roots().unwrap().len(), 5);
    graph.destroy(n[4]).unwrap();
    assert!(graph.edges().unwrap().is_empty());
    assert_eq!(graph.nodes().unwrap().len(), 5);
}

#[test]
fn clones_are_graphs_of_their_own() {
    let stream = stream();
    let a = words(&stream, &[0]);
    let graph = Graph::new(&context()).unwrap();
    let first = graph.add(store(&a, 1).label("first"), ()).unwrap();
    let second = graph.add(store(&a, 2), first).unwrap();
    let clone = graph.try_clone().unwrap();
    let copy = graph.find_in_clone(second, &clone).unwrap();
    clone.update(copy, store(&a, 3)).unwrap();
    let label = clone
        .op(graph.find_in_clone(first, &clone).unwrap())
        .unwrap();
    assert_eq!(label.label_text(), Some("first"));
    graph.instantiate().unwrap().launch(&stream).unwrap();
    assert_eq!(a.to_host(&stream).unwrap(), [2]);
    clone.instantiate().unwrap().launch(&stream).unwrap();
    assert_eq!(a.to_host(&stream).unwrap(), [3]);
    clone.destroy(copy).unwrap();
    assert!(graph.find_in_clone(second, &clone).is_err());
    assert_eq!(graph.nodes().unwrap().len(), 2);
}

#[test]
fn children_are_views_that_keep_the_root() {
    let stream = stream();
    let a = words(&stream, &[0; 2]);
    let inner = Graph::new(&context()).unwrap();
    inner.add(store(&a, 1).label("inner"), ()).unwrap();
    let outer = Graph::new(&context()).unwrap();
    let node = outer.add(ChildOp::new(&inner), ()).unwrap();
    let view = outer.child(node).unwrap();
    let nodes = view.nodes().unwrap();
    assert_eq!(nodes.len(), 1);
    let store_node = nodes[0].typed::<KernelOp>().unwrap();

    let mut exec = outer.instantiate().unwrap();
    exec.update(store_node, store(&a, 5)).unwrap();
    exec.launch(&stream).unwrap();
    assert_eq!(a.to_host(&stream).unwrap(), [5, 0]);

    let second = a.slice(1..).unwrap();
    view.update(store_node, store(&second, 8)).unwrap();
    view.add(store(&a, 4), store_node).unwrap();
    assert_eq!(
        inner.nodes().unwrap().len(),
        1,
        "the original is not the copy"
    );
    outer.instantiate().unwrap().launch(&stream).unwrap();
    assert_eq!(a.to_host(&stream).unwrap(), [4, 8]);

    drop(outer);
    assert_eq!(view.nodes().unwrap().len(), 2, "the view keeps the root");
}

#[test]
fn arguments_of_every_shape_arrive() {
    let stream = stream();
    let a = words(&stream, &[0]);
    let mixed = kernel("mixed");
    let sizes: Vec<usize> = mixed.parameters().iter().map(|p| p.size).collect();
    assert_eq!(sizes, [8, 1, 8, 12, 2]);
    // SAFETY: `mixed` writes one word.
    let op =
        unsafe { KernelOp::new(&mixed, one(), (&a, 200u8, 1.5f64, [1u8; 12], 1000u16)) }.unwrap();
    let graph = Graph::new(&context()).unwrap();
    graph.add(op, ()).unwrap();
    graph.instantiate().unwrap().launch(&stream).unwrap();
    assert_eq!(a.to_host(&stream).unwrap(), [1200]);
}
