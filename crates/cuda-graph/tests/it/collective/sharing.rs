//! Ranks that share a device: what one of them launches, makes or lets go waits for no other.

use std::collections::HashSet;
use std::sync::Arc;
use std::thread;
use std::time::Duration;

use cuda_graph::cudarc::driver::{CudaContext, CudaStream};
use cuda_graph::{
    Buffer, ChildOp, CollectiveOp, CopyOp, Eager, Exec, FillOp, Graph, PinnedBuffer, Recorder,
    Reduction, Replay, ReplayOptions, Result,
};

use super::{Rank, may_loop, ranks, ranks_on, ranks_with, sharing_pair};
use crate::fixture::{add, context, in_process, is_software, on_devices, words};

/// Longer than anything here takes.
const LONG: Duration = Duration::from_secs(20);

fn sum(rank: &Rank, memory: &Buffer<u32>) -> Result<CollectiveOp> {
    CollectiveOp::all_reduce(&rank.communicator, memory, memory, Reduction::Sum)
}

/// A rank's memory.
struct Own {
    left: Buffer<u32>,
    less: Buffer<u32>,
    one: Buffer<u32>,
    turns: Buffer<u32>,
    total: Buffer<u32>,
}

impl Own {
    fn of(rank: &Rank) -> Own {
        let word = |value| words(&rank.stream, &[value]);
        Own {
            left: word(0),
            less: word(u32::MAX),
            one: word(1),
            turns: word(0),
            total: word(rank.number() + 1),
        }
    }

    /// A loop of `turns` turns without collectives.
    fn turn(&self, turns: u32, r: &mut dyn Recorder) -> Result<()> {
        r.record(FillOp::new(&self.left, turns)?)?;
        r.while_nonzero(&self.left, |r| {
            r.record(add(&self.turns, &self.one))?;
            r.record(add(&self.left, &self.less)).map(drop)
        })
    }

    fn exec(&self, rank: &Rank) -> Exec {
        let (graph, ()) =
            Graph::record(rank.context(), |path| self.turn(3, path)).expect("it can be recorded");
        graph.instantiate().expect("it can be instantiated")
    }
}

/// While rank 0 waits for rank 1 inside a launch, its next collectives are made, of kinds that no
/// rank had before. A GPU's driver loads nothing then, and lets no launch in while it tries.
#[test]
fn collectives_are_made_while_a_rank_waits() {
    let ranks = sharing_pair();
    let memory = [0; 2].map(|_| Buffer::<i64>::zeroed(&ranks[0].stream, 3).expect("memory"));
    for (rank, memory) in ranks.iter().zip(&memory) {
        let part = |range: std::ops::Range<usize>| memory.slice(range).expect("it is inside");
        let mut eager = Eager::new(&rank.stream).expect("it can be made");
        for by in [Reduction::Product, Reduction::Average, Reduction::Min] {
            let (communicator, to, from) = (&rank.communicator, part(0..1), part(1..3));
            let op = CollectiveOp::reduce_scatter(communicator, &to, &from, by);
            let op = op.expect("it can be made");
            eager.record(op).expect("it can be launched");
        }
    }
    for rank in &ranks {
        rank.communicator.wait(&rank.stream).expect("all get on");
    }
}

/// Rank 0 launches two loops with a collective between them, and then rank 1 does. Were they to
/// take turns, rank 1's first loop would wait for rank 0's second, which waits for rank 1.
#[test]
fn loops_beside_collectives_take_no_turns() {
    if !is_software() {
        return;
    }
    // Executables that were there before the ranks take none either.
    let early = ranks(1).pop().expect("a rank");
    let owns = [Own::of(&early), Own::of(&early)];
    let mut first = owns.each_ref().map(|own| own.exec(&early));
    let ranks = sharing_pair();
    let mut second = owns.each_ref().map(|own| own.exec(&ranks[0]));
    for (at, rank) in ranks.iter().enumerate() {
        let mut meets = rank.exec([sum(rank, &owns[at].total).expect("it can be made")]);
        first[at].launch(&rank.stream).expect("it can be launched");
        meets.launch(&rank.stream).expect("it can be launched");
        second[at].launch(&rank.stream).expect("it can be launched");
    }
    for (own, rank) in owns.iter().zip(&ranks) {
        rank.communicator.wait(&rank.stream).expect("all get on");
        assert_eq!(own.turns.to_host(&rank.stream).expect("read"), [6]);
    }
    let totals = owns
        .each_ref()
        .map(|own| own.total.to_host(&ranks[0].stream));
    assert_eq!(
        totals.map(|it| it.expect("read")[0]),
        [2, 2],
        "each had 1 and the other's 1"
    );
}

/// What a replay does in one call: of a shape that most calls do not have, with sections for the
/// host, loops with and without collectives, and graphs inside of them.
fn step(rank: &Rank, own: &Own, inner: &Graph, call: u32, r: &mut dyn Recorder) -> Result<()> {
    for _ in 0..call % 5 {
        r.record(add(&own.turns, &own.one))?;
    }
    own.turn(2, r)?;
    if call.is_multiple_of(3) {
        r.outside(|_| Ok(()))?;
    }
    r.record(FillOp::new(&own.left, 1 + call % 2)?)?;
    r.while_nonzero(&own.left, |r| {
        r.record(ChildOp::new(inner))?;
        if call % 4 == 1 {
            r.outside(|_| Ok(()))?;
        }
        r.record(sum(rank, &own.total)?)?;
        r.record(add(&own.left, &own.less)).map(drop)
    })?;
    own.turn(1, r)?;
    r.record(sum(rank, &own.total)?).map(drop)
}

/// Ranks on threads of their own, whose replays let executables with loops go at every other call.
/// The driver destroys such an executable only when nothing runs in the context: were the calling
/// thread to wait for that, it could not launch what another rank waits for.
#[test]
fn replays_of_ranks_that_share_a_device() {
    if !may_loop(2) {
        return;
    }
    let calls = 24;
    for size in [2, 3].into_iter().filter(|size| may_loop(*size)) {
        let all = ranks_with(size, LONG);
        let results: Vec<(u32, u32)> = thread::scope(|scope| {
            let work = all.iter().map(|rank| {
                scope.spawn(move || {
                    let results = [false, true].map(|eager| {
                        let own = Own::of(rank);
                        let (inner, ()) = Graph::record(rank.context(), |path| {
                            path.record(add(&own.turns, &own.one))?;
                            path.record(sum(rank, &own.total)?).map(drop)
                        })
                        .expect("it can be recorded");
                        let options = ReplayOptions {
                            executables: 2,
                            ..ReplayOptions::default()
                        };
                        let mut replay =
                            Replay::with_options(rank.context(), options).expect("it can be made");
                        let mut at_once = Eager::new(&rank.stream).expect("it can be made");
                        for call in 0..calls {
                            let done = match eager {
                                true => step(rank, &own, &inner, call, &mut at_once),
                                false => replay
                                    .call(&rank.stream, |r| step(rank, &own, &inner, call, r))
                                    .map(drop),
                            };
                            done.unwrap_or_else(|error| panic!("call {call}: {error}"));
                        }
                        rank.communicator.wait(&rank.stream).expect("all get on");
                        let read = |memory: &Buffer<u32>| {
                            memory.to_host(&rank.stream).expect("it can be read")[0]
                        };
                        (read(&own.turns), read(&own.total))
                    });
                    assert_eq!(results[0], results[1], "another result than at once");
                    results[0]
                })
            });
            let work: Vec<_> = work.collect();
            work.into_iter()
                .map(|it| it.join().expect("no panic"))
                .collect()
        });
        let totals: HashSet<u32> = results.iter().map(|it| it.1).collect();
        assert_eq!(totals.len(), 1, "ranks have different sums");
    }
}

/// Reads flags by ever new handles of a context that is there.
#[test]
#[ignore = "run by the next test, in a process of its own"]
fn handles_come_and_go() {
    let _stays = context();
    for _ in 0..50 {
        let context = CudaContext::new(0).expect("it is there");
        let stream: Arc<CudaStream> = context.new_stream().expect("a stream");
        let flag = words(&stream, &[1]);
        let mut eager = Eager::new(&stream).expect("it can be made");
        eager
            .while_nonzero(&flag, |r| r.record(FillOp::new(&flag, 0)?).map(drop))
            .expect("it runs");
    }
}

/// Words of pinned memory serve all handles of a context.
#[test]
fn words_for_flags_outlive_handles() {
    if !is_software() {
        return;
    }
    let log = in_process(
        "collective::sharing::handles_come_and_go",
        &[("SOFTCUDA_LOG", "trace"), ("CUDA_GRAPH_DRIVER", "software")],
    );
    let allocations = log
        .lines()
        .filter(|line| line.contains("cuMemHostAlloc"))
        .count();
    assert_eq!(allocations, 1, "a word for each handle");
}

/// What waits for the context when it goes goes later, where ranks have launched and others have
/// not: on whatever thread, it would let no other launch in.
#[test]
fn what_goes_between_the_launches_of_ranks() {
    let pinned = |rank: &Rank| -> Exec {
        let memory = PinnedBuffer::<u32>::zeroed(rank.context(), 4).expect("there is memory");
        let (graph, ()) = Graph::record(rank.context(), |path| {
            path.record(CopyOp::new(words(&rank.stream, &[1; 4]), &memory)?)
                .map(drop)
        })
        .expect("it can be recorded");
        graph.instantiate().expect("it can be instantiated")
    };
    let branching = |rank: &Rank| {
        let flag = words(&rank.stream, &[0]);
        let (graph, ()) = Graph::record(rank.context(), |path| {
            path.if_nonzero(&flag, |path| path.record(FillOp::new(&flag, 0)?).map(drop))
        })
        .expect("it can be recorded");
        graph.instantiate().expect("it can be instantiated")
    };
    type Make<'a> = &'a dyn Fn(&Rank) -> Box<dyn FnOnce()>;
    let cases: [(&str, Make<'_>); 5] = [
        ("pinned memory", &|rank| {
            let memory = PinnedBuffer::<u32>::zeroed(rank.context(), 4).expect("there is memory");
            Box::new(move || drop(memory))
        }),
        ("what an executable held", &|rank| {
            let mut exec = pinned(rank);
            exec.launch(&rank.stream).expect("it can be launched");
            Box::new(move || drop(exec))
        }),
        ("an executable with a branch", &|rank| {
            let exec = branching(rank);
            Box::new(move || drop(exec))
        }),
        ("a communicator", &|_| {
            let others = ranks(2);
            Box::new(move || drop(others))
        }),
        ("one after its collectives", &|_| {
            let others = ranks(2);
            let memory = others
                .iter()
                .map(|rank| words(&rank.stream, &[1]))
                .collect::<Vec<_>>();
            let mut execs = Vec::new();
            for (rank, memory) in others.iter().zip(&memory) {
                let mut exec = rank.exec([sum(rank, memory).expect("it can be made")]);
                exec.launch(&rank.stream).expect("it can be launched");
                execs.push(exec);
            }
            for rank in &others {
                rank.communicator.wait(&rank.stream).expect("all get on");
            }
            Box::new(move || drop((execs, others)))
        }),
    ];
    // Also what goes with the context that has not launched yet.
    let ways = [(false, 0), (true, 0), (false, 1)];
    for (at_once, of) in ways {
        for (what, make) in &cases {
            let ranks = ranks_with(2, LONG);
            let memory = [0, 1].map(|at: usize| words(&ranks[at].stream, &[at as u32 + 1]));
            let gone = make(&ranks[of]);
            let mut execs = Vec::new();
            let mut eager: Vec<Eager> = (ranks.iter())
                .map(|rank| Eager::new(&rank.stream).expect("it can be made"))
                .collect();
            let mut launch = |at: usize| {
                let op = sum(&ranks[at], &memory[at]).expect("it can be made");
                if at_once {
                    return eager[at].record(op).expect("it can be run");
                }
                let mut exec = ranks[at].exec([op]);
                exec.launch(&ranks[at].stream).expect("it can be launched");
                execs.push(exec);
            };
            launch(0);
            gone();
            // The reaper comes to it.
            thread::sleep(Duration::from_millis(30));
            launch(1);
            for (rank, memory) in ranks.iter().zip(&memory) {
                let waited = rank.communicator.wait(&rank.stream);
                waited.unwrap_or_else(|error| panic!("{what}: {error}"));
                assert_eq!(memory.to_host(&rank.stream).expect("read"), [3], "{what}");
            }
        }
    }
    cuda_graph::testing::settle();
}

/// A graph that has one executable at a time has another one once what its rank launched is over,
/// also where the first was let go while it ran. Ranks that share a device could wait for ever: one
/// of them for the launch of the other, which waits for that launch to be over.
#[test]
fn one_executable_after_the_other() {
    let name = "collective::sharing::one_executable_after_the_other";
    on_devices(2..=2, name, |contexts| {
        let ranks = ranks_on(contexts, LONG);
        thread::scope(|scope| {
            for rank in &ranks {
                scope.spawn(move || launch_one_after_the_other(rank));
            }
        });
    });
}

fn launch_one_after_the_other(rank: &Rank) {
    let memory = words(&rank.stream, &[1]);
    let flag = words(&rank.stream, &[0]);
    let (graph, ()) = Graph::record(rank.context(), |path| {
        path.record(sum(rank, &memory)?)?;
        path.if_nonzero(&flag, |path| path.record(FillOp::new(&flag, 0)?).map(drop))
    })
    .expect("it can be recorded");
    for turn in 0..20 {
        let mut exec = graph.instantiate().expect("the one before has gone");
        if rank.number() == turn % 2 {
            thread::sleep(Duration::from_millis(2));
        }
        exec.launch(&rank.stream).expect("it can be launched");
    }
    let waited = rank.communicator.wait(&rank.stream);
    waited.expect("all get on");
    assert_eq!(memory.to_host(&rank.stream).expect("read"), [1 << 20]);
}
