//! Ranks that are processes: what they do together, and what becomes of one when others go.

use std::time::{Duration, Instant};

use cuda_graph::{
    Buffer, CollectiveOp, Communicator, Eager, Error, FillOp, Graph, Recorder, Reduction, Replay,
    Transmission, Updated,
};

use super::{another, are_kernels, in_graphs, numbers, on, that_kills};

pub(super) fn every_kind_of(communicator: &Communicator) {
    let rank = communicator.rank();
    let stream = communicator.context().new_stream().unwrap();
    let run = |op: CollectiveOp| {
        let mut eager = Eager::new(&stream).unwrap();
        eager.record(op.clone()).unwrap();
        communicator.wait(&stream).unwrap();
        // In a graph as well, where it is one kernel.
        let graph = Graph::new(communicator.context()).unwrap();
        match graph.add(op, ()) {
            Ok(_) => {
                let mut exec = graph.instantiate().unwrap();
                for _ in 0..3 {
                    exec.launch(&stream).unwrap();
                    communicator.wait(&stream).unwrap();
                }
            }
            Err(error) => {
                let error = error.to_string();
                assert!(
                    !are_kernels() && error.contains("not by one kernel"),
                    "{error}"
                );
                println!("{error}");
            }
        }
    };
    let read = |buffer: &Buffer<u32>| buffer.to_host(&stream).unwrap();
    let own = numbers(communicator, 100 * rank, 4);
    let to = numbers(communicator, 0, 4);
    let wide = numbers(communicator, 0, 8);
    for (reduction, wants) in [
        (Reduction::Sum, [100, 102, 104, 106]),
        (Reduction::Max, [100, 101, 102, 103]),
        (Reduction::Min, [0, 1, 2, 3]),
        (Reduction::Product, [0, 101, 204, 309]),
    ] {
        run(CollectiveOp::all_reduce(communicator, &to, &own, reduction).unwrap());
        assert_eq!(read(&to), wants, "{reduction:?}");
    }
    run(CollectiveOp::broadcast(communicator, &to, &own, 1).unwrap());
    assert_eq!(read(&to), [100, 101, 102, 103]);
    run(CollectiveOp::reduce(communicator, &to, &own, Reduction::Sum, 1).unwrap());
    if rank == 1 {
        assert_eq!(read(&to), [100, 102, 104, 106]);
    }
    run(CollectiveOp::all_gather(communicator, &wide, &own).unwrap());
    assert_eq!(read(&wide), [0, 1, 2, 3, 100, 101, 102, 103]);
    run(CollectiveOp::reduce_scatter(communicator, &to, &wide, Reduction::Sum).unwrap());
    let half = if rank == 0 {
        [0, 2, 4, 6]
    } else {
        [200, 202, 204, 206]
    };
    assert_eq!(read(&to), half);
    let other = 1 - rank;
    let messages = [
        Transmission::send(&own, other),
        Transmission::recv(&to, other),
    ];
    run(CollectiveOp::exchange(communicator, messages).unwrap());
    assert_eq!(read(&to)[0], 100 * other);
    let nothing = Buffer::<u32>::zeroed(&stream, 0).unwrap();
    run(CollectiveOp::all_reduce(communicator, &nothing, &nothing, Reduction::Sum).unwrap());
    communicator.check().unwrap();
}

/// Two ranks do every kind, eagerly and in graphs.
#[test]
fn every_kind() {
    on(2, "every_kind");
}

/// What is left when a rank is gone: an error in time, and a device that works.
fn alone(communicator: &Communicator, within: Duration) {
    let stream = communicator.context().new_stream().unwrap();
    let own = numbers(communicator, 1, 1000);
    let sum = CollectiveOp::all_reduce(communicator, &own, &own, Reduction::Sum).unwrap();
    let begun = Instant::now();
    let mut eager = Eager::new(&stream).unwrap();
    let failed = eager.record(sum).map(drop);
    let failed = failed
        .and_then(|()| communicator.wait(&stream))
        .unwrap_err();
    println!("told after {:?}: {failed}", begun.elapsed());
    assert!(begun.elapsed() < within, "{:?}", begun.elapsed());
    assert!(communicator.check().is_err());
    let word = Buffer::<u32>::zeroed(&stream, 1).unwrap();
    let graph = Graph::new(communicator.context()).unwrap();
    graph.add(FillOp::new(&word, 7u32).unwrap(), ()).unwrap();
    graph.instantiate().unwrap().launch(&stream).unwrap();
    assert_eq!(word.to_host(&stream).unwrap(), [7]);
}

pub(super) fn leave(communicator: &Communicator) {
    if communicator.rank() == 1 {
        println!("leaving");
        std::process::exit(3);
    }
    alone(communicator, Duration::from_secs(25));
}

#[test]
fn leaves_early() {
    if let Some(wrote) = on(2, "leaves_early") {
        assert!(wrote[0].contains("told after"), "{wrote:?}");
        assert!(wrote[1].contains("leaving"), "{wrote:?}");
        println!("{}", wrote[0]);
    }
}

pub(super) fn never_launch(communicator: &Communicator) {
    match communicator.rank() {
        0 => alone(communicator, Duration::from_secs(10)),
        _ => std::thread::sleep(Duration::from_secs(12)),
    }
}

#[test]
fn never_launches() {
    if let Some(wrote) = on(2, "never_launches") {
        assert!(wrote[0].contains("nothing got on"), "{wrote:?}");
    }
}

/// Rank 0 ends without a wait for its launch, which the other never meets.
pub(super) fn end_with_a_launch(communicator: &Communicator) {
    if communicator.rank() == 1 {
        return std::thread::sleep(Duration::from_secs(6));
    }
    let stream = communicator.context().new_stream().unwrap();
    let own = numbers(communicator, 1, 1000);
    let graph = Graph::new(communicator.context()).unwrap();
    let sum = CollectiveOp::all_reduce(communicator, &own, &own, Reduction::Sum).unwrap();
    graph.add(sum, ()).unwrap();
    graph.instantiate().unwrap().launch(&stream).unwrap();
    // An end that hangs is told.
    std::thread::spawn(|| {
        std::thread::sleep(Duration::from_secs(30));
        println!("the process does not end");
        std::process::abort();
    });
}

#[test]
fn ends_with_a_launch() {
    in_graphs(2, "ends_with_a_launch");
}

/// Another communicator, whose ranks are turned round, is another shape of a step: nodes keep theirs.
pub(super) fn change(first: &Communicator) {
    let rank = first.rank();
    let stream = first.context().new_stream().unwrap();
    let turned = another(first, 1, 1 - rank, 2);
    let own = numbers(first, 10 * rank, 2);
    let both = numbers(first, 0, 4);
    let gather =
        |communicator: &Communicator| CollectiveOp::all_gather(communicator, &both, &own).unwrap();
    let check = |communicator: &Communicator, what: &str| {
        communicator.wait(&stream).unwrap();
        let got = both.to_host(&stream).unwrap();
        let wants = match communicator.rank() == rank {
            true => [0, 1, 10, 11],
            false => [10, 11, 0, 1],
        };
        assert_eq!(got, wants, "{what}, rank {rank}");
    };
    let graph = Graph::new(first.context()).unwrap();
    let node = graph.add(gather(first), ()).unwrap();
    let mut exec = graph.instantiate().unwrap();
    exec.launch(&stream).unwrap();
    check(first, "as it was made");
    let fixed = |error: Error| assert!(matches!(error, Error::CommunicatorFixed { .. }), "{error}");
    fixed(exec.update(node, gather(&turned)).unwrap_err());
    fixed(graph.update(node, gather(&turned)).unwrap_err());
    let other = Graph::new(first.context()).unwrap();
    other.add(gather(&turned), ()).unwrap();
    exec.launch(&stream).unwrap();
    check(first, "still as it was made");
    // All of it goes over at once.
    for (graph, communicator) in [(&other, &turned), (&graph, first), (&other, &turned)] {
        assert_eq!(exec.update_from(graph).unwrap(), Updated::InPlace);
        exec.launch(&stream).unwrap();
        check(communicator, "updated as a whole");
    }
    let mut replay = Replay::new(first.context()).unwrap();
    for communicator in [first, &turned, first, &turned] {
        let step = |r: &mut dyn Recorder| r.record(gather(communicator)).map(drop);
        replay.call(&stream, |r| step(r)).unwrap();
        check(communicator, "replayed");
        let mut eager = Eager::new(&stream).unwrap();
        step(&mut eager).unwrap();
        check(communicator, "eagerly");
    }
    assert_eq!((replay.counters().builds, replay.executables()), (2, 2));
    // The executable keeps it.
    drop((turned, graph, other, replay));
    exec.launch(&stream).unwrap();
    stream.synchronize().unwrap();
    assert_eq!(both.to_host(&stream).unwrap(), [10, 11, 0, 1]);
}

#[test]
fn other_communicators() {
    in_graphs(2, "other_communicators");
}

/// Threads with a communicator each, at once.
pub(super) fn run_threads(first: &Communicator) {
    let threads = [1u32, 2].map(|turn| {
        let communicator = another(first, turn as u16, first.rank(), 2);
        std::thread::spawn(move || {
            let stream = communicator.context().new_stream().unwrap();
            let own = numbers(&communicator, turn, 100);
            let sum = CollectiveOp::all_reduce(&communicator, &own, &own, Reduction::Sum).unwrap();
            let (graph, ()) = Graph::record(communicator.context(), |path| {
                (0..2).try_for_each(|_| path.record(sum.clone()).map(drop))
            })
            .unwrap();
            let mut exec = graph.instantiate().unwrap();
            let mut eager = Eager::new(&stream).unwrap();
            for _ in 0..10 {
                exec.launch(&stream).unwrap();
                eager.record(sum.clone()).unwrap();
            }
            communicator.wait(&stream).unwrap();
            // Thirty times as much as all together.
            let wants: Vec<u32> = (turn..turn + 100).map(|it| it << 30).collect();
            assert_eq!(own.to_host(&stream).unwrap(), wants);
        })
    });
    for thread in threads {
        thread.join().unwrap();
    }
}

#[test]
fn many_threads() {
    in_graphs(2, "many_threads");
}

/// One of three dies; the others are told, make a communicator of their own, and go on.
pub(super) fn go_on(first: &Communicator) {
    if first.rank() == 2 {
        println!("leaving");
        std::process::exit(3);
    }
    alone(first, Duration::from_secs(10));
    let two = another(first, 3, first.rank(), 2);
    every_kind_of(&two);
}

#[test]
fn goes_on_without() {
    if let Some(wrote) = that_kills(3, "goes_on_without") {
        assert!(wrote[..2].iter().all(|text| text.contains("told after")));
    }
}

/// The random programs of threads, with a process for each rank.
pub(super) fn run_programs(communicator: &Communicator) {
    crate::collective::random::run_as(communicator);
}

#[test]
fn random_programs() {
    in_graphs(2, "random_programs");
}
