//! What went wrong once, or might: waits that must end, recorders that must agree, and devices
//! that loop by themselves.

use std::sync::Arc;
use std::thread;
use std::time::Duration;

use cuda_graph::cudarc::driver::CudaStream;
use cuda_graph::{
    Buffer, ChildOp, CollectiveOp, CopyOp, Eager, Error, FillOp, Graph, InstantiateOptions, Kernel,
    KernelOp, Module, Optimize, Ranks, Recorder, Reduction, Replay, Result, Transmission, WhileOp,
};

use super::{Rank, SHORT, assert_missing, failure, may_loop, ranks, ranks_on, ranks_with};
use crate::fixture::{PTX, assert_soon, context, in_own_process, is_software, on_devices, one};

fn sum(rank: &Rank, memory: &Buffer<u32>) -> CollectiveOp {
    let rank = &rank.communicator;
    CollectiveOp::all_reduce(rank, memory, memory, Reduction::Sum).expect("it can be made")
}

fn word(stream: &Arc<CudaStream>, value: u32) -> Buffer<u32> {
    Buffer::from_host(stream, &[value]).expect("memory")
}

/// One turn, with a collective in it.
fn one_turn(
    rank: &Rank,
    flag: &Buffer<u32>,
    own: &Buffer<u32>,
    r: &mut dyn Recorder,
) -> Result<()> {
    r.record(FillOp::new(flag, 1)?)?;
    r.while_nonzero(flag, |r| {
        r.record(sum(rank, own))?;
        r.record(FillOp::new(flag, 0)?).map(drop)
    })
}

#[test]
fn a_recorder_outlives_a_communicator_that_failed() {
    let old = ranks(1).pop().expect("a rank");
    let new = ranks_on(&[old.context().clone()], Duration::from_secs(60));
    let (flag, own) = (word(&old.stream, 0), word(&old.stream, 7));
    let mut eager = Eager::new(&old.stream).expect("it can be made");
    one_turn(&old, &flag, &own, &mut eager).expect("it runs");
    old.communicator.abort();
    failure(one_turn(&old, &flag, &own, &mut eager));
    one_turn(&new[0], &flag, &own, &mut eager).expect("the other communicator is whole");

    let again = ranks_on(&[old.context().clone()], Duration::from_secs(60));
    let mut replay = Replay::new(old.context()).expect("it can be made");
    let driven = |rank: &Rank, r: &mut dyn Recorder| {
        r.record(FillOp::new(&flag, 1)?)?;
        r.while_nonzero(&flag, |r| {
            r.record(sum(rank, &own))?;
            r.outside(|_| Ok(()))?;
            r.record(FillOp::new(&flag, 0)?).map(drop)
        })
    };
    for _ in 0..2 {
        let called = replay.call(&old.stream, |r| driven(&new[0], r));
        called.expect("it runs");
    }
    new[0].communicator.abort();
    failure(replay.call(&old.stream, |r| driven(&new[0], r)));
    failure(replay.call(&old.stream, |r| driven(&new[0], r)));
    for _ in 0..2 {
        let called = replay.call(&old.stream, |r| driven(&again[0], r));
        called.expect("the other communicator is whole");
    }
}

/// A rank that does not come, while a replay reads a flag behind a child graph with a collective.
#[test]
fn a_replay_knows_the_collectives_of_embedded_graphs() {
    let ranks = ranks_with(2, SHORT);
    let rank = &ranks[0];
    let (flag, own) = (word(&rank.stream, 1), word(&rank.stream, 7));
    let (inner, ()) = Graph::record(rank.context(), |path| {
        path.record(sum(rank, &own)).map(drop)
    })
    .expect("it can be recorded");
    let mut replay = Replay::new(rank.context()).expect("it can be made");
    let called = replay.call(&rank.stream, |r| {
        r.while_nonzero(&flag, |r| {
            r.record(ChildOp::new(&inner))?;
            r.outside(|_| Ok(()))
        })
    });
    assert_missing(&ranks, 1, &failure(called));
}

#[test]
fn what_a_step_came_to_is_not_waited_for_for_ever() {
    let ranks = ranks_with(2, SHORT);
    let rank = &ranks[0];
    let (flag, own) = (word(&rank.stream, 1), word(&rank.stream, 7));
    let mut replay = Replay::new(rank.context()).expect("it can be made");
    let step = |r: &mut dyn Recorder| {
        r.record(sum(rank, &own))?;
        r.checkpoint("here", &flag)?;
        r.record(FillOp::new(&own, 1)?).map(drop)
    };
    let outcome = replay.call(&rank.stream, step).expect("it is launched");
    assert_missing(&ranks, 1, &failure(outcome.stopped()));
    failure(replay.resume(&rank.stream, step));
}

#[test]
fn a_rank_is_given_once() {
    let ranks = ranks_with(2, SHORT);
    let twice = [ranks[0].communicator.clone(), ranks[0].communicator.clone()];
    let made = Ranks::record(&twice, |rank, path| {
        let own = word(&ranks[0].stream, rank.rank());
        path.record(sum(&ranks[0], &own)).map(drop)
    });
    assert!(
        made.is_err(),
        "two launches of one rank would meet each other"
    );
}

#[test]
fn a_node_stays_with_its_rank() {
    let all = ranks_on(&vec![context(); 2], SHORT);
    let own = word(&all[0].stream, 1);
    let (graph, node) = Graph::record(all[0].context(), |path| path.record(sum(&all[0], &own)))
        .expect("it can be recorded");
    let mut exec = graph.instantiate().expect("an executable");
    let other = exec.update(node, sum(&all[1], &own));
    assert!(matches!(other, Err(Error::CommunicatorFixed { .. })));
    let other = graph.update(node, sum(&all[1], &own));
    assert!(matches!(other, Err(Error::CommunicatorFixed { .. })));
}

/// A loop was made for the communicators inside: with another one it would not end.
#[test]
fn an_embedded_graph_stays_with_its_communicators() {
    let (old, new) = (
        ranks(1).pop().expect("a rank"),
        ranks(1).pop().expect("a rank"),
    );
    let (flag, own) = (word(&old.stream, 1), word(&old.stream, 1));
    let inner = |rank: &Rank| {
        let recorded = Graph::record(rank.context(), |path| {
            path.record(sum(rank, &own)).map(drop)
        });
        recorded.expect("it can be recorded").0
    };
    let (graph, ()) = Graph::record(old.context(), |path| {
        path.while_nonzero(&flag, |r| r.record(ChildOp::new(&inner(&old))).map(drop))
    })
    .expect("it can be recorded");
    let nodes = graph.nodes().expect("they are known");
    let turns = nodes
        .into_iter()
        .find_map(|it| it.typed::<WhileOp>())
        .expect("a loop");
    let body = graph.body(turns).expect("it has one");
    let inside = body.nodes().expect("they are known");
    let child = inside
        .into_iter()
        .find_map(|it| it.typed::<ChildOp>())
        .expect("a child");
    let updated = body.update(child, ChildOp::new(&inner(&new)));
    assert!(
        matches!(updated, Err(Error::CommunicatorFixed { .. })),
        "{updated:?}"
    );
    body.update(child, ChildOp::new(&inner(&old)))
        .expect("it is the same one's");
}

#[test]
fn a_graph_has_one_rank_of_a_communicator() {
    let all = ranks_on(&vec![context(); 2], SHORT);
    let own = [0, 1].map(|at: usize| word(&all[at].stream, 1));
    let (graph, ()) = Graph::record(all[0].context(), |path| {
        path.record(sum(&all[0], &own[0]))?;
        path.record(sum(&all[1], &own[1])).map(drop)
    })
    .expect("it can be recorded");
    assert!(
        graph.instantiate().is_err(),
        "the first would wait for the second, which waits"
    );
}

#[test]
fn times_out_at_once_or_never() {
    for timeout in [Duration::ZERO, Duration::MAX] {
        let ranks = ranks_with(2, timeout);
        let own = word(&ranks[0].stream, 7);
        let mut exec = ranks[0].exec([sum(&ranks[0], &own)]);
        exec.launch(&ranks[0].stream).expect("it can be launched");
        thread::scope(|scope| {
            // Several wait at once.
            for _ in 0..3 {
                scope.spawn(|| failure(ranks[0].communicator.wait(&ranks[0].stream)));
            }
            if timeout == Duration::MAX {
                thread::sleep(Duration::from_millis(50));
                ranks[1].communicator.abort();
            }
        });
    }
}

#[test]
fn communicators_take_any_order_side_by_side() {
    let first = ranks(2);
    let contexts: Vec<_> = first.iter().map(|rank| rank.context().clone()).collect();
    let second = ranks_on(&contexts, Duration::from_secs(20));
    let all: Vec<_> = first.iter().map(|it| it.communicator.clone()).collect();
    let memory: Vec<[Buffer<u32>; 2]> = first
        .iter()
        .map(|rank| [1, 2].map(|value| word(&rank.stream, value)))
        .collect();
    for optimize in [Optimize::NONE, Optimize::ALL] {
        let options = InstantiateOptions {
            optimize,
            ..Default::default()
        };
        let (mut together, _) = Ranks::record_with(&all, &options, |rank, path| {
            let at = rank.rank() as usize;
            let (a, b) = (
                sum(&first[at], &memory[at][0]),
                sum(&second[at], &memory[at][1]),
            );
            let (mut one, mut other) = if at == 0 {
                (Some(a), Some(b))
            } else {
                (Some(b), Some(a))
            };
            path.parallel(&mut [
                &mut |r| r.record(one.take().expect("once")).map(drop),
                &mut |r| r.record(other.take().expect("once")).map(drop),
            ])
        })
        .expect("it can be recorded");
        for _ in 0..5 {
            together.launch().expect("it can be launched");
            together.wait().expect("all get on");
        }
    }
    for (rank, memory) in first.iter().zip(&memory) {
        assert_eq!(memory[0].to_host(&rank.stream).expect("read"), [1 << 10]);
        assert_eq!(memory[1].to_host(&rank.stream).expect("read"), [2 << 10]);
    }
}

/// Nested loops, branches and a switch, which all ranks decide alike, with all sorts of
/// collectives.
struct Nested {
    outer: Buffer<u32>,
    inner: Buffer<u32>,
    less: Buffer<u32>,
    case: Buffer<u32>,
    ring: Buffer<u32>,
    total: Buffer<u32>,
    pause: Buffer<u32>,
    add: Kernel,
}

impl Nested {
    fn of(rank: &Rank) -> Nested {
        let word = |value| word(&rank.stream, value);
        Nested {
            outer: word(0),
            inner: word(0),
            less: word(u32::MAX),
            case: word(0),
            ring: Buffer::from_host(&rank.stream, &[rank.number() + 1; 2]).expect("memory"),
            total: word(0),
            pause: word(0),
            add: Module::load(rank.context(), PTX)
                .and_then(|it| it.kernel("add"))
                .expect("a kernel"),
        }
    }

    /// A turn of a loop less.
    fn count(&self, left: &Buffer<u32>) -> Result<KernelOp> {
        // SAFETY: the kernel adds the second word to the first.
        unsafe { KernelOp::new(&self.add, one(), (left, &self.less)) }
    }

    /// Where `pauses`, the step stops in each turn of the outer loop but the last ones.
    fn record(&self, rank: &Rank, pauses: bool, r: &mut dyn Recorder) -> Result<()> {
        let (communicator, size) = (&rank.communicator, rank.communicator.size());
        let next = (rank.number() + 1) % size;
        let last = (rank.number() + size - 1) % size;
        r.record(FillOp::new(&self.total, rank.number() + 1)?)?;
        r.record(FillOp::new(&self.outer, 4)?)?;
        r.record(FillOp::new(&self.case, 0)?)?;
        r.while_nonzero(&self.outer, |r| {
            r.record(CopyOp::new(&self.inner, &self.outer)?)?;
            r.do_while_nonzero(&self.inner, |r| {
                r.record(sum(rank, &self.total))?;
                r.record(self.count(&self.inner)?)?;
                // Agree on what is the same anyway.
                let (it, by) = (&self.inner, Reduction::Max);
                r.record(CollectiveOp::all_reduce(communicator, it, it, by)?)?;
                r.if_nonzero(&self.inner, |r| {
                    r.record(CollectiveOp::exchange(
                        communicator,
                        [
                            Transmission::send(&self.ring.slice(..1)?, next),
                            Transmission::recv(&self.ring.slice(1..)?, last),
                        ],
                    )?)?;
                    r.record(CopyOp::new(&self.ring.slice(..1)?, &self.ring.slice(1..)?)?)?;
                    Ok(())
                })
            })?;
            r.switch_on(
                &self.case,
                &mut [
                    &mut |r: &mut dyn Recorder| {
                        r.record(sum(rank, &self.total))?;
                        r.record(FillOp::new(&self.case, 1)?).map(drop)
                    },
                    &mut |r: &mut dyn Recorder| {
                        let root = size - 1;
                        let (to, from) = (&self.total, self.ring.slice(..1)?);
                        r.record(CollectiveOp::broadcast(communicator, to, &from, root)?)?;
                        r.record(FillOp::new(&self.case, 7)?).map(drop)
                    },
                ],
            )?;
            r.record(self.count(&self.outer)?)?;
            if pauses {
                r.record(CopyOp::new(&self.pause, &self.outer)?)?;
                r.checkpoint("turn", &self.pause)?;
                r.record(sum(rank, &self.total))?;
            }
            Ok(())
        })
    }

    fn read(&self, rank: &Rank) -> (Vec<u32>, Vec<u32>) {
        rank.communicator.wait(&rank.stream).expect("all get on");
        let read = |it: &Buffer<u32>| it.to_host(&rank.stream).expect("it can be read");
        (read(&self.total), read(&self.ring))
    }
}

/// What a rank has in the end.
type Ended = (Vec<u32>, Vec<u32>);

/// Does the step on a thread for each rank.
fn on_threads(ranks: &[Rank], how: &(dyn Fn(&Rank, &Nested) + Sync)) -> Vec<Ended> {
    thread::scope(|scope| {
        let run = |rank| {
            let nested = Nested::of(rank);
            how(rank, &nested);
            nested.read(rank)
        };
        let ranks: Vec<_> = ranks
            .iter()
            .map(|rank| scope.spawn(move || run(rank)))
            .collect();
        let ended = ranks.into_iter().map(|rank| rank.join().expect("it ended"));
        ended.collect()
    })
}

/// What an executable for each rank comes to.
fn launched(ranks: &[Rank], optimize: Optimize) -> Vec<Ended> {
    let all: Vec<_> = ranks.iter().map(|rank| rank.communicator.clone()).collect();
    let nested: Vec<_> = ranks.iter().map(Nested::of).collect();
    let options = InstantiateOptions {
        optimize,
        ..Default::default()
    };
    let (mut together, _) = Ranks::record_with(&all, &options, |rank, path| {
        let at = rank.rank() as usize;
        nested[at].record(&ranks[at], false, path)
    })
    .expect("it can be recorded");
    together.launch().expect("they can be launched");
    together.wait().expect("all get on");
    let both = nested.iter().zip(ranks);
    both.map(|(nested, rank)| nested.read(rank)).collect()
}

/// Whoever records the step, and whoever decides about its loops.
fn recorders_agree(ranks: &[Rank]) {
    let eagerly = |pauses| {
        on_threads(ranks, &|rank, nested| {
            let mut eager = Eager::new(&rank.stream).expect("it can be made");
            let step = |r: &mut dyn Recorder| nested.record(rank, pauses, r);
            step(&mut eager).expect("it runs");
            while let Some(name) = eager.take_stopped() {
                let recorder: &mut dyn Recorder = &mut eager;
                recorder.resume_after(&name, step).expect("it goes on");
            }
        })
    };
    let replayed = |pauses| {
        on_threads(ranks, &|rank, nested| {
            let mut replay = Replay::new(rank.context()).expect("it can be made");
            let step = |r: &mut dyn Recorder| nested.record(rank, pauses, r);
            for _ in 0..2 {
                let own = [rank.number() + 1; 2];
                nested
                    .ring
                    .copy_from_host(&rank.stream, &own)
                    .expect("it fits");
                let mut outcome = replay.call(&rank.stream, step).expect("it runs");
                while outcome.stopped().expect("it is known").is_some() {
                    outcome = replay.resume(&rank.stream, step).expect("it goes on");
                }
            }
        })
    };
    for pauses in [false, true] {
        let eager = eagerly(pauses);
        assert!(
            eager.iter().all(|it| it.0 == eager[0].0),
            "all have the same total"
        );
        assert_eq!(replayed(pauses), eager, "replayed, pauses: {pauses}");
        if !pauses {
            assert_eq!(launched(ranks, Optimize::NONE), eager, "launched");
            assert_eq!(launched(ranks, Optimize::ALL), eager, "launched, optimized");
            assert_eq!(
                launched(ranks, Optimize::ALL.unroll(4)),
                eager,
                "launched, unrolled"
            );
        }
    }
}

#[test]
fn recorders_agree_about_nested_loops() {
    for count in [1, 2, 3].into_iter().filter(|count| may_loop(*count)) {
        recorders_agree(&ranks(count));
    }
}

/// Many threads use and drop ranks, graphs and launches in any order, and nothing is left.
///
/// On GPUs one thread after the other does, with a device for each rank: making and freeing things
/// waits for what runs on the device, which waits for ranks that are not made yet.
#[test]
fn dropped_in_any_order() {
    if !may_loop(2) {
        return;
    }
    let owners = thread::scope(|scope| {
        let run = |seed: usize| {
            let all = ranks(2);
            let owner = Arc::new(());
            let mut kept: Vec<Box<dyn std::any::Any>> = Vec::new();
            let weak = Arc::downgrade(&owner);
            for rank in &all {
                let own = word(&rank.stream, 1);
                let (graph, ()) = Graph::record(rank.context(), |path| {
                    path.keep(owner.clone())?;
                    path.record(sum(rank, &own))?;
                    path.record(sum(rank, &own)).map(drop)
                })
                .expect("it can be recorded");
                let mut exec = graph.instantiate().expect("an executable");
                exec.launch(&rank.stream).expect("it can be launched");
                let clone = graph.try_clone().expect("a copy");
                kept.extend([
                    Box::new(graph) as Box<dyn std::any::Any>,
                    Box::new(clone),
                    Box::new(exec),
                    Box::new(own),
                ]);
            }
            kept.extend(
                all.into_iter()
                    .map(|rank| Box::new(rank) as Box<dyn std::any::Any>),
            );
            let mut at = seed;
            while !kept.is_empty() {
                at = (at * 31 + 7) % 1009;
                let gone = kept.swap_remove(at % kept.len());
                drop(gone);
            }
            weak
        };
        let begin = |seed| scope.spawn(move || run(seed));
        let end = |it: thread::ScopedJoinHandle<'_, _>| it.join().expect("it ended");
        match is_software() {
            true => {
                let threads: Vec<_> = (0..8).map(begin).collect();
                threads.into_iter().map(end).collect::<Vec<_>>()
            }
            false => (0..8).map(begin).map(end).collect(),
        }
    });
    assert_soon(
        || owners.iter().all(|it| it.strong_count() == 0),
        "something is left",
    );
}

/// Nobody waits for a rank that waits for another, and the program ends.
#[test]
fn a_program_ends_while_a_rank_waits() {
    if !in_own_process("collective::attack::a_program_ends_while_a_rank_waits") {
        return;
    }
    let ranks = ranks(2);
    let own = word(&ranks[0].stream, 1);
    let mut exec = ranks[0].exec([sum(&ranks[0], &own)]);
    exec.launch(&ranks[0].stream).expect("it can be launched");
}

/// More communicators than a loop looks at are refused, and leave nothing behind.
#[test]
fn a_loop_with_many_communicators() {
    let all: Vec<Rank> = (0..9).map(|_| ranks(1).pop().expect("a rank")).collect();
    let (flag, inner, own) = (
        word(&all[0].stream, 1),
        word(&all[0].stream, 1),
        word(&all[0].stream, 1),
    );
    let step = |count: usize, r: &mut dyn Recorder| {
        r.while_nonzero(&flag, |r| {
            all[..4]
                .iter()
                .try_for_each(|rank| r.record(sum(rank, &own)).map(drop))?;
            r.while_nonzero(&inner, |r| {
                all[4..count]
                    .iter()
                    .try_for_each(|rank| r.record(sum(rank, &own)).map(drop))?;
                r.record(FillOp::new(&inner, 0)?).map(drop)
            })?;
            r.record(FillOp::new(&flag, 0)?).map(drop)
        })
    };
    let refused = Graph::record(all[0].context(), |path| step(9, path));
    assert!(matches!(
        refused,
        Err(Error::ManyCommunicators { count: 9, .. })
    ));
    let (graph, ()) = Graph::record(all[0].context(), |path| step(8, path)).expect("recorded");
    let mut exec = graph.instantiate().expect("an executable");
    exec.launch(&all[0].stream).expect("it can be launched");
    all[0].communicator.wait(&all[0].stream).expect("it ends");
    assert_eq!(flag.to_host(&all[0].stream).expect("read"), [0]);
}

#[test]
fn recorders_agree_between_devices() {
    on_devices(
        2..=3,
        "collective::attack::recorders_agree_between_devices",
        |contexts| {
            recorders_agree(&ranks_on(contexts, Duration::from_secs(60)));
        },
    );
}

/// Ranks of several devices, of which some share one.
#[test]
fn several_ranks_a_device() {
    on_devices(
        2..=3,
        "collective::attack::several_ranks_a_device",
        |contexts| {
            let contexts: Vec<_> = contexts.iter().chain(contexts).cloned().collect();
            if may_loop(contexts.len()) {
                recorders_agree(&ranks_on(&contexts, Duration::from_secs(60)));
            }
        },
    );
}
