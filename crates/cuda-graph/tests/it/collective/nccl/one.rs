//! NCCL in one process.

use std::time::Duration;

use cuda_graph::{
    Buffer, Cluster, CollectiveOp, Communicator, CommunicatorOptions, Engine, Error, FillOp, Graph,
    Recorder, Replay, Transmission,
};

use super::{numbers, options, with_settings};

/// A rank that sends to itself does so by one kernel: in graphs, in loops of the device, updated,
/// replayed.
#[test]
fn one_kernel_goes_where_kernels_go() {
    if !with_settings("collective::nccl::one::one_kernel_goes_where_kernels_go") {
        return;
    }
    let device = cuda_graph::device(0).unwrap();
    let contexts = [device.context().clone()];
    let ranks = Communicator::all(&contexts, &options().engine(Engine::Nccl)).unwrap();
    let rank = &ranks[0];
    let stream = rank.context().new_stream().unwrap();
    let pass = |to: &Buffer<u32>, from: &Buffer<u32>| {
        let messages = [Transmission::send(from, 0), Transmission::recv(to, 0)];
        CollectiveOp::exchange(rank, messages).unwrap()
    };
    let (a, b, c) = (
        numbers(rank, 5, 4),
        numbers(rank, 0, 4),
        numbers(rank, 50, 4),
    );
    let graph = Graph::new(rank.context()).unwrap();
    let node = graph.add(pass(&b, &a), ()).unwrap();
    let mut exec = graph.instantiate().unwrap();
    exec.launch(&stream).unwrap();
    rank.wait(&stream).unwrap();
    assert_eq!(b.to_host(&stream).unwrap(), [5, 6, 7, 8]);
    exec.update(node, pass(&b, &c)).unwrap();
    assert_eq!(exec.op(node).unwrap().communicator().rank(), 0);
    exec.launch(&stream).unwrap();
    rank.wait(&stream).unwrap();
    assert_eq!(b.to_host(&stream).unwrap(), [50, 51, 52, 53]);
    assert!(
        graph
            .svg()
            .unwrap()
            .contains("Exchange of 1 sends and 1 receives")
    );

    // A loop that ends by what the message brings.
    let (flag, zero) = (numbers(rank, 1, 1), numbers(rank, 0, 1));
    let step = |r: &mut dyn Recorder| {
        r.record(FillOp::new(&flag, 1u32)?)?;
        r.do_while_nonzero(&flag, |turn| {
            turn.record(pass(&b, &a))?;
            turn.record(pass(&flag, &zero)).map(drop)
        })
    };
    let (graph, ()) = Graph::record(rank.context(), |path| step(path)).unwrap();
    let mut exec = graph.instantiate().unwrap();
    for _ in 0..3 {
        exec.launch(&stream).unwrap();
        rank.wait(&stream).unwrap();
        assert_eq!(b.to_host(&stream).unwrap(), [5, 6, 7, 8]);
    }
    let mut replay = Replay::new(rank.context()).unwrap();
    for from in [&a, &c, &a] {
        replay
            .call(&stream, |r| r.record(pass(&b, from)).map(drop))
            .unwrap();
        rank.wait(&stream).unwrap();
        assert_eq!(b.to_host(&stream).unwrap(), from.to_host(&stream).unwrap());
    }
    assert_eq!(replay.counters().builds, 1);

    // Aborted while graphs are there: launches do no harm, and everything goes.
    rank.abort();
    assert!(rank.check().is_err());
    assert!(CollectiveOp::send(rank, &a, 0).is_err());
    drop((exec, replay, graph));
    drop(ranks);
    assert_eq!(a.to_host(&stream).unwrap(), [5, 6, 7, 8]);
}

/// Communicators, graphs and executables go in every order.
#[test]
fn everything_goes_in_every_order() {
    if !with_settings("collective::nccl::one::everything_goes_in_every_order") {
        return;
    }
    let device = cuda_graph::device(0).unwrap();
    for order in [
        [0, 1, 2],
        [0, 2, 1],
        [1, 0, 2],
        [1, 2, 0],
        [2, 0, 1],
        [2, 1, 0],
    ] {
        let contexts = [device.context().clone()];
        let ranks = Communicator::all(&contexts, &options().engine(Engine::Nccl)).unwrap();
        let stream = ranks[0].context().new_stream().unwrap();
        let (a, b) = (numbers(&ranks[0], 5, 4), numbers(&ranks[0], 0, 4));
        let messages = [Transmission::send(&a, 0), Transmission::recv(&b, 0)];
        let op = CollectiveOp::exchange(&ranks[0], messages).unwrap();
        let graph = Graph::new(ranks[0].context()).unwrap();
        graph.add(op, ()).unwrap();
        let mut exec = graph.instantiate().unwrap();
        exec.launch(&stream).unwrap();
        let mut things: [Option<Box<dyn std::any::Any>>; 3] = [
            Some(Box::new(ranks)),
            Some(Box::new(graph)),
            Some(Box::new(exec)),
        ];
        for at in order {
            drop(things[at].take());
        }
        assert_eq!(b.to_host(&stream).unwrap(), [5, 6, 7, 8], "{order:?}");
    }
}

/// A rank that waits for others which never come is told.
#[test]
fn nobody_else_comes() {
    if !with_settings("collective::nccl::one::nobody_else_comes") {
        return;
    }
    let device = cuda_graph::device(0).unwrap();
    let cluster = Cluster::new(0, 3, 0, "127.0.0.1", 29_877).unwrap();
    let options = CommunicatorOptions::default().timeout(Duration::from_millis(500));
    let error = Communicator::join(device.context(), &cluster, &options).unwrap_err();
    assert!(
        error.to_string().contains("ranks [1, 2] did not come"),
        "{error}"
    );
}

/// What NCCL cannot do is told by name; without being asked for, the plain engine does it.
#[test]
fn without_it() {
    let device = cuda_graph::device(0).unwrap();
    let shared = vec![device.context().clone(); 2];
    let error = Communicator::all(&shared, &options().engine(Engine::Nccl)).unwrap_err();
    assert!(matches!(error, Error::NoCommunicator { .. }), "{error}");
    let plain = Communicator::all(&shared, &options()).unwrap();
    assert_eq!(plain[0].engine(), Engine::Plain);
    let cluster = Cluster::new(1, 2, 0, "127.0.0.1", 29_878).unwrap();
    let plain = options().engine(Engine::Plain);
    let error = Communicator::join(device.context(), &cluster, &plain).unwrap_err();
    assert!(error.to_string().contains("need NCCL"), "{error}");
    let alone = Cluster::new(0, 1, 0, "127.0.0.1", 29_879).unwrap();
    let alone = Communicator::join(device.context(), &alone, &options()).unwrap();
    assert_eq!((alone.size(), alone.engine()), (1, Engine::Plain));
}
