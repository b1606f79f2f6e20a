//! Collectives in loops and branches, by every recorder, and what is made of graphs that have some.

use std::thread;

use cuda_graph::{
    Buffer, CollectiveOp, CopyOp, Eager, Error, FillOp, Graph, InstantiateOptions, Optimize, Ranks,
    Recorder, Reduction, Replay, Result, Updated,
};

use super::{Rank, may_loop, ranks, sharing_pair};
use crate::fixture::{add, is_software};

const TURNS: u32 = 100;

/// What the loop of a rank works on.
struct Work {
    /// Turns left, on this rank.
    left: Buffer<u32>,
    /// Turns left on the rank that has most.
    go: Buffer<u32>,
    less: Buffer<u32>,
    /// Each turn it becomes the sum of all ranks' and 1.
    total: Buffer<u32>,
    one: Buffer<u32>,
    /// The totals of the last two turns.
    seen: Buffer<u32>,
}

impl Work {
    fn of(rank: &Rank) -> Work {
        let word = |value: u32| Buffer::from_host(&rank.stream, &[value]).expect("memory");
        Work {
            left: word(0),
            go: word(0),
            less: word(u32::MAX),
            total: word(0),
            one: word(1),
            seen: Buffer::zeroed(&rank.stream, 2).expect("memory"),
        }
    }

    /// Turns as many times as the rank with most says; each turn has several collectives, one of
    /// them in a branch.
    fn record(&self, rank: &Rank, r: &mut dyn Recorder) -> Result<()> {
        let communicator = &rank.communicator;
        let first = rank.number() == 0;
        r.record(FillOp::new(&self.left, if first { TURNS } else { 0 })?)?;
        r.record(FillOp::new(&self.total, rank.number())?)?;
        let most = || CollectiveOp::all_reduce(communicator, &self.go, &self.left, Reduction::Max);
        r.record(most()?)?;
        r.while_nonzero(&self.go, |r| {
            r.if_nonzero(&self.one, |r| {
                let (to, by) = (&self.total, Reduction::Sum);
                r.record(CollectiveOp::all_reduce(communicator, to, to, by)?)
                    .map(drop)
            })?;
            r.record(add(&self.total, &self.one))?;
            r.record(CopyOp::new(&self.seen.slice(1..)?, &self.total)?)?;
            if first {
                r.record(add(&self.left, &self.less))?;
            }
            r.record(most()?).map(drop)
        })
    }

    #[track_caller]
    fn check(&self, ranks: u32, rank: &Rank) {
        // At first each rank has its number; later all have the same.
        let mut total = (0..ranks).sum::<u32>() + 1;
        for _ in 1..TURNS {
            total = total.wrapping_mul(ranks).wrapping_add(1);
        }
        let got = self.total.to_host(&rank.stream).expect("it can be read");
        assert_eq!(got, [total], "rank {} of {ranks}", rank.number());
    }
}

#[test]
fn the_device_loops() {
    for count in [1, 2, 3].into_iter().filter(|count| may_loop(*count)) {
        let ranks = ranks(count);
        let work: Vec<Work> = ranks.iter().map(Work::of).collect();
        let communicators: Vec<_> = ranks.iter().map(|it| it.communicator.clone()).collect();
        let (mut together, _) = Ranks::record(&communicators, |communicator, path| {
            let number = communicator.rank() as usize;
            work[number].record(&ranks[number], path)
        })
        .expect("it can be recorded");
        for _ in 0..3 {
            together.launch().expect("they can be launched");
            together.wait().expect("all get on");
            for (rank, work) in ranks.iter().zip(&work) {
                work.check(count as u32, rank);
            }
        }
        // Several launches before anybody waits.
        for _ in 0..3 {
            together.launch().expect("they can be launched");
        }
        together.wait().expect("all get on");
    }
}

#[test]
fn eager_and_replay_do_the_same() {
    let count = if may_loop(2) { 2 } else { 1 };
    let ranks = ranks(count);
    thread::scope(|scope| {
        for rank in &ranks {
            scope.spawn(move || {
                let work = Work::of(rank);
                let mut eager = Eager::new(&rank.stream).expect("it can be made");
                work.record(rank, &mut eager).expect("it runs");
                work.check(count as u32, rank);
                let mut replay = Replay::new(rank.context()).expect("it can be made");
                for _ in 0..4 {
                    let called = replay.call(&rank.stream, |r| work.record(rank, r));
                    called.expect("it runs");
                    rank.communicator.wait(&rank.stream).expect("all get on");
                    work.check(count as u32, rank);
                }
                assert_eq!(replay.counters().builds, 1, "it is built once");
                // With another flag and other memory: the loop's last kernel is made again, and
                // still looks at the communicator.
                let other = Work::of(rank);
                let called = replay.call(&rank.stream, |r| other.record(rank, r));
                called.expect("it runs");
                rank.communicator.wait(&rank.stream).expect("all get on");
                other.check(count as u32, rank);
                assert_eq!(replay.counters().builds, 1, "it was updated");
            });
        }
    });
}

#[test]
fn a_replayed_loop_with_another_flag_ends_with_its_communicator() {
    let ranks = ranks(1);
    let rank = &ranks[0];
    let own = Buffer::from_host(&rank.stream, &[1u32]).expect("memory");
    let flags = [0, 1].map(|value| Buffer::from_host(&rank.stream, &[value]).expect("memory"));
    let mut replay = Replay::new(rank.context()).expect("it can be made");
    for flag in &flags {
        let called = replay.call(&rank.stream, |r| {
            r.while_nonzero(flag, |r| {
                let sum = CollectiveOp::all_reduce(&rank.communicator, &own, &own, Reduction::Sum);
                r.record(sum?).map(drop)
            })
        });
        called.expect("it runs");
    }
    assert_eq!(replay.counters().builds, 1, "it was updated");
    rank.communicator.abort();
    rank.stream.synchronize().expect("it ends");
}

#[test]
fn passes_leave_collectives_as_they_are() {
    let count = if may_loop(2) { 2 } else { 1 };
    let ranks = ranks(count);
    let work: Vec<Work> = ranks.iter().map(Work::of).collect();
    let communicators: Vec<_> = ranks.iter().map(|it| it.communicator.clone()).collect();
    let options = InstantiateOptions {
        optimize: Optimize::ALL,
        ..Default::default()
    };
    let (mut together, _) = Ranks::record_with(&communicators, &options, |communicator, path| {
        let number = communicator.rank() as usize;
        let (rank, work) = (&ranks[number], &work[number]);
        work.record(rank, path)?;
        // What passes work on, around a collective.
        path.record(FillOp::new(&work.seen, 5)?)?;
        path.record(FillOp::new(&work.one, 1)?)?;
        let op = CollectiveOp::all_reduce(communicator, &work.seen, &work.seen, Reduction::Sum)?;
        let node = path.record(op)?;
        path.record(CopyOp::new(&work.left, &work.seen.slice(..1)?)?)?;
        Ok(node)
    })
    .expect("it can be recorded");
    for _ in 0..2 {
        together.launch().expect("they can be launched");
        together.wait().expect("all get on");
        for (rank, work) in ranks.iter().zip(&work) {
            work.check(count as u32, rank);
            assert_eq!(
                work.left.to_host(&rank.stream).expect("it can be read"),
                [5 * count as u32]
            );
        }
    }
}

#[test]
fn an_optimized_executable_is_updated() {
    let ranks = ranks(2);
    let memory: Vec<[Buffer<u32>; 2]> = ranks
        .iter()
        .map(|rank| [0, 1].map(|_| Buffer::from_host(&rank.stream, &[3; 7]).expect("memory")))
        .collect();
    let communicators: Vec<_> = ranks.iter().map(|it| it.communicator.clone()).collect();
    let options = InstantiateOptions {
        optimize: Optimize::ALL,
        ..Default::default()
    };
    let sum = |rank: &cuda_graph::Communicator, at: usize| {
        let memory = &memory[rank.rank() as usize][at];
        CollectiveOp::all_reduce(rank, memory, memory, Reduction::Sum)
    };
    let (mut together, nodes) = Ranks::record_with(&communicators, &options, |rank, path| {
        let node = path.record(sum(rank, 0)?)?;
        path.record(FillOp::new(&memory[rank.rank() as usize][0], 4)?)?;
        path.record(FillOp::new(&memory[rank.rank() as usize][0], 3)?)?;
        Ok(node)
    })
    .expect("it can be recorded");
    for (at, node) in nodes.iter().enumerate() {
        let op = sum(&communicators[at], 1).expect("it can be made");
        together
            .exec(at)
            .update(*node, op)
            .expect("it can be updated");
        assert!(together.exec(at).op(*node).is_ok());
    }
    together.launch().expect("they can be launched");
    together.wait().expect("all get on");
    for (at, rank) in ranks.iter().enumerate() {
        assert_eq!(
            memory[at][1].to_host(&rank.stream).expect("it can be read"),
            [6; 7]
        );
        assert_eq!(
            memory[at][0].to_host(&rank.stream).expect("it can be read"),
            [3; 7]
        );
    }
}

#[test]
fn pictures_say_what_it_is() {
    let ranks = ranks(2);
    let memory = Buffer::<f32>::zeroed(&ranks[1].stream, 12).expect("memory");
    let (graph, ()) = Graph::record(ranks[1].context(), |path| {
        let rank = &ranks[1].communicator;
        path.record(CollectiveOp::all_reduce(
            rank,
            &memory,
            &memory,
            Reduction::Average,
        )?)
        .map(drop)
    })
    .expect("it can be recorded");
    for picture in [graph.dot(), graph.svg()] {
        let picture = picture.expect("it can be drawn");
        let text = "AllReduce of 12 f32 by average, rank 1 of 2";
        assert!(picture.contains(text), "{picture}");
    }
}

#[test]
fn a_recording_that_fails_or_panics_leaves_nothing() {
    let ranks = ranks(3);
    let communicators: Vec<_> = ranks.iter().map(|it| it.communicator.clone()).collect();
    let failed = Ranks::record(&communicators, |rank, _| match rank.rank() {
        1 => Err(Error::EmptySwitch),
        _ => Ok(()),
    });
    assert!(matches!(failed, Err(Error::EmptySwitch)));
    let panicked = std::panic::catch_unwind(|| {
        Ranks::record(&communicators, |rank, _| match rank.rank() {
            2 => panic!("on purpose"),
            _ => Ok(()),
        })
    });
    assert!(panicked.is_err());
    communicators[0].check().expect("nothing was launched");
}

/// A GPU's driver fails on loops of several launches at once, and their ranks cannot take turns.
#[test]
fn loops_of_ranks_that_share_a_gpu_are_refused() {
    let ranks = sharing_pair();
    let work = Work::of(&ranks[1]);
    let (graph, ()) = Graph::record(ranks[1].context(), |path| work.record(&ranks[1], path))
        .expect("it can be recorded");
    match graph.instantiate() {
        Ok(_) => assert!(is_software(), "it would fail when it is launched"),
        Err(Error::LoopsShareDevice { ranks }) => {
            assert!(!is_software());
            assert_eq!(ranks, [0, 1]);
        }
        Err(error) => panic!("{error}"),
    }
}

/// Dropped while they run, ranks leave nothing behind that others wait for.
#[test]
fn ranks_are_dropped_while_they_run() {
    let ranks = ranks(3);
    let communicators: Vec<_> = ranks.iter().map(|it| it.communicator.clone()).collect();
    let memory: Vec<Buffer<u32>> = ranks
        .iter()
        .map(|rank| Buffer::from_host(&rank.stream, &[1; 30_000]).expect("memory"))
        .collect();
    let (mut together, _) = Ranks::record(&communicators, |rank, path| {
        let memory = &memory[rank.rank() as usize];
        for _ in 0..5 {
            path.record(CollectiveOp::all_reduce(
                rank,
                memory,
                memory,
                Reduction::Max,
            )?)?;
        }
        Ok(())
    })
    .expect("it can be recorded");
    let streams: Vec<_> = (0..3).map(|at| together.stream(at).clone()).collect();
    together.launch().expect("they can be launched");
    drop(together);
    drop(communicators);
    for (rank, stream) in ranks.iter().zip(&streams) {
        rank.communicator.wait(stream).expect("all get on");
    }
    drop(ranks);
    cuda_graph::testing::settle();
    for (memory, stream) in memory.iter().zip(&streams) {
        assert_eq!(memory.to_host(stream).expect("it can be read"), [1; 30_000]);
    }
}

/// An executable whose loop took turns goes over to ranks that share its device, which cannot.
#[test]
fn an_update_to_ranks_that_share_a_device() {
    let alone = ranks(1);
    let shared = sharing_pair();
    let graph = |rank: &Rank| {
        let word = |value: u32| Buffer::from_host(&rank.stream, &[value]).expect("memory");
        let (go, none) = (word(1), word(0));
        let (graph, ()) = Graph::record(rank.context(), |path| {
            path.while_nonzero(&go, |r| {
                let (communicator, by) = (&rank.communicator, Reduction::Sum);
                let sum = CollectiveOp::all_reduce(communicator, &go, &none, by)?;
                r.record(sum).map(drop)
            })
        })
        .expect("it can be recorded");
        (graph, go)
    };
    let mut execs = Vec::new();
    let mut flags = Vec::new();
    for rank in &shared {
        let (first, _) = graph(&alone[0]);
        let mut exec = first.instantiate().expect("it can be instantiated");
        let (other, go) = graph(rank);
        match exec.update_from(&other) {
            Ok(updated) => assert_eq!(updated, Updated::InPlace),
            Err(error) => {
                assert!(matches!(error, Error::LoopsShareDevice { .. }), "{error}");
                assert!(!is_software());
                return;
            }
        }
        execs.push(exec);
        flags.push(go);
    }
    super::run(&shared, &mut execs);
    for (rank, go) in shared.iter().zip(&flags) {
        assert_eq!(go.to_host(&rank.stream).expect("it can be read"), [0]);
    }
}
