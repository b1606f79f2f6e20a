//! What fails ends, says why, and leaves the device usable.

use std::thread;
use std::time::{Duration, Instant};

use cuda_graph::{
    Buffer, CollectiveFailure, CollectiveOp, Eager, Error, Exec, FillOp, Graph, KernelOp, Ranks,
    Recorder, Reduction, Result,
};

use super::{Rank, SHORT, assert_missing, failure, may_loop, plain_pair, ranks, ranks_with};
use crate::fixture::{in_process, kernel, one, store};

fn sum(rank: &Rank, memory: &Buffer<u32>) -> CollectiveOp {
    let rank = &rank.communicator;
    CollectiveOp::all_reduce(rank, memory, memory, Reduction::Sum).expect("it can be made")
}

fn memory(rank: &Rank, count: usize) -> Buffer<u32> {
    let memory = Buffer::zeroed(&rank.stream, count).expect("memory");
    rank.stream.synchronize().expect("it is there");
    memory
}

/// The device runs other work.
#[track_caller]
fn assert_usable(rank: &Rank) {
    let word = memory(rank, 1);
    let mut exec = {
        let graph = Graph::new(rank.context()).expect("a graph");
        graph.add(store(&word, 7), ()).expect("a node");
        graph.instantiate().expect("an executable")
    };
    exec.launch(&rank.stream).expect("it can be launched");
    assert_eq!(word.to_host(&rank.stream).expect("it can be read"), [7]);
}

#[test]
fn a_rank_that_never_comes_is_named() {
    let ranks = ranks_with(3, SHORT);
    let memory: Vec<_> = ranks.iter().map(|rank| memory(rank, 100)).collect();
    let mut execs: Vec<Exec> = Vec::new();
    for (rank, memory) in ranks.iter().zip(&memory) {
        execs.push(rank.exec([sum(rank, memory)]));
    }
    for at in [0, 2] {
        execs[at]
            .launch(&ranks[at].stream)
            .expect("it can be launched");
    }
    let start = Instant::now();
    let text = failure(ranks[0].communicator.wait(&ranks[0].stream));
    assert!(start.elapsed() >= SHORT, "it waited");
    assert_missing(&ranks, 1, &text);
    // The other rank's wait ends with the same.
    let text = failure(ranks[2].communicator.wait(&ranks[2].stream));
    assert_missing(&ranks, 1, &text);
    // Too late, the third does nothing, and harms nobody.
    execs[1]
        .launch(&ranks[1].stream)
        .expect("it can be launched");
    failure(ranks[1].communicator.wait(&ranks[1].stream));
    ranks.iter().for_each(assert_usable);
}

#[test]
fn an_abort_ends_what_waits() {
    let ranks = ranks(2);
    let own = memory(&ranks[0], 100_000);
    let mut exec = ranks[0].exec([sum(&ranks[0], &own), sum(&ranks[0], &own)]);
    exec.launch(&ranks[0].stream).expect("it can be launched");
    thread::sleep(Duration::from_millis(20));
    ranks[0].communicator.check().expect("it waits");
    ranks[1].communicator.abort();
    let failed = ranks[0].communicator.wait(&ranks[0].stream);
    let Err(Error::Communicator {
        rank: 0,
        size: 2,
        failure,
    }) = failed
    else {
        panic!("it was aborted: {failed:?}");
    };
    assert_eq!(failure.to_string(), "rank 1 aborted");
    assert!(matches!(
        *failure,
        CollectiveFailure::Aborted { rank: 1, .. }
    ));
    // What is launched later ends at once.
    exec.launch(&ranks[0].stream).expect("it can be launched");
    ranks[0].stream.synchronize().expect("it ends");
    let refused =
        Eager::new(&ranks[0].stream).and_then(|mut eager| eager.record(sum(&ranks[0], &own)));
    assert!(matches!(refused, Err(Error::Communicator { .. })));
    assert_usable(&ranks[0]);
}

type Make = fn(&Rank, &Buffer<u32>) -> Result<CollectiveOp>;

#[test]
fn different_operations_are_told_with_both() {
    let make: [(&str, Make); 5] = [
        ("AllReduce of 8 u32 by sum", |rank, it| {
            CollectiveOp::all_reduce(&rank.communicator, it, it, Reduction::Sum)
        }),
        ("AllReduce of 8 u32 by max", |rank, it| {
            CollectiveOp::all_reduce(&rank.communicator, it, it, Reduction::Max)
        }),
        ("AllReduce of 4 u32 by sum", |rank, it| {
            let it = it.slice(..4)?;
            CollectiveOp::all_reduce(&rank.communicator, &it, &it, Reduction::Sum)
        }),
        ("Broadcast of 8 u32 from rank 0", |rank, it| {
            CollectiveOp::broadcast(&rank.communicator, it, it, 0)
        }),
        ("Broadcast of 8 u32 from rank 1", |rank, it| {
            CollectiveOp::broadcast(&rank.communicator, it, it, 1)
        }),
    ];
    for (one, make_one) in &make {
        for (other, make_other) in make.iter().filter(|(other, _)| other != one) {
            let ranks = plain_pair();
            let memory: Vec<_> = ranks.iter().map(|rank| memory(rank, 8)).collect();
            let ops = [
                make_one(&ranks[0], &memory[0]),
                make_other(&ranks[1], &memory[1]),
            ];
            let mut execs = Vec::new();
            for (rank, op) in ranks.iter().zip(ops) {
                execs.push(rank.exec([op.expect("it can be made")]));
            }
            for (rank, exec) in ranks.iter().zip(&mut execs) {
                exec.launch(&rank.stream).expect("it can be launched");
            }
            let text = failure(ranks[0].communicator.wait(&ranks[0].stream));
            assert!(
                text.contains(one) && text.contains(other),
                "{one}, {other}: {text}"
            );
            let place = |text: &str, of: &str| text.find(of).expect("it is there");
            let ordered =
                text.contains("rank 0 came with") == (place(&text, one) < place(&text, other));
            assert!(ordered, "each is said of its own rank: {text}");
            failure(ranks[1].communicator.wait(&ranks[1].stream));
        }
    }
}

/// A loop whose flag nobody clears.
fn endless(rank: &Rank, flag: &Buffer<u32>, own: &Buffer<u32>, r: &mut dyn Recorder) -> Result<()> {
    r.while_nonzero(flag, |r| {
        r.if_nonzero(flag, |r| r.record(sum(rank, own)).map(drop))
    })
}

#[test]
fn a_loop_on_the_device_ends_when_the_communicator_failed() {
    let ranks = ranks(if may_loop(2) { 2 } else { 1 });
    let mut launched = Vec::new();
    for rank in &ranks {
        let flag = Buffer::from_host(&rank.stream, &[1u32]).expect("memory");
        let own = memory(rank, 10);
        let (graph, ()) = Graph::record(rank.context(), |path| endless(rank, &flag, &own, path))
            .expect("it can be recorded");
        let mut exec = graph.instantiate().expect("an executable");
        exec.launch(&rank.stream).expect("it can be launched");
        launched.push(exec);
    }
    thread::sleep(Duration::from_millis(50));
    ranks[0].communicator.check().expect("they go on");
    ranks[0].communicator.abort();
    for rank in &ranks {
        assert!(failure(rank.communicator.wait(&rank.stream)).contains("rank 0 aborted"));
        assert_usable(rank);
    }
    // Launched again, the loop takes a turn and ends.
    launched[0]
        .launch(&ranks[0].stream)
        .expect("it can be launched");
    ranks[0].stream.synchronize().expect("it ends");
}

#[test]
fn a_loop_of_an_eager_step_ends_with_the_error() {
    let ranks = ranks_with(2, SHORT);
    let all = &ranks;
    thread::scope(|scope| {
        for rank in all {
            scope.spawn(move || {
                let flag = Buffer::from_host(&rank.stream, &[1u32]).expect("memory");
                let own = memory(rank, 10);
                let mut eager = Eager::new(&rank.stream).expect("it can be made");
                let mut turns = 0;
                let ran = eager.while_nonzero(&flag, |r| {
                    turns += 1;
                    // One rank leaves the loop, and the other waits for it.
                    let leaves = turns == 5 && rank.number() == 1;
                    r.record(FillOp::new(&flag, u32::from(!leaves))?)?;
                    r.record(sum(rank, &own)).map(drop)
                });
                match rank.number() {
                    1 => ran.expect("it left"),
                    _ => {
                        let text = failure(ran);
                        assert_missing(all, 1, &text);
                    }
                }
            });
        }
    });
    ranks.iter().for_each(assert_usable);
}

/// A loop that looks at communicators looks at all of them.
#[test]
fn a_loop_ends_when_one_of_several_communicators_failed() {
    let (first, second) = (ranks(1), ranks(1));
    let flag = Buffer::from_host(&first[0].stream, &[1u32]).expect("memory");
    let own = memory(&first[0], 4);
    let (graph, ()) = Graph::record(first[0].context(), |path| {
        path.while_nonzero(&flag, |r| {
            r.record(sum(&first[0], &own))?;
            r.record(sum(&second[0], &own)).map(drop)
        })
    })
    .expect("it can be recorded");
    let mut exec = graph.instantiate().expect("an executable");
    exec.launch(&first[0].stream).expect("it can be launched");
    thread::sleep(Duration::from_millis(20));
    second[0].communicator.abort();
    first[0]
        .communicator
        .wait(&first[0].stream)
        .expect("it ended, and did not fail");
    failure(second[0].communicator.check());
}

#[test]
fn ranks_that_take_other_turns_end_with_an_error() {
    let ranks = ranks_with(2, SHORT);
    let communicators: Vec<_> = ranks.iter().map(|rank| rank.communicator.clone()).collect();
    let (mut together, _) = Ranks::record(&communicators, |communicator, path| {
        let rank = &ranks[communicator.rank() as usize];
        let own = memory(rank, 3);
        path.record(sum(rank, &own))?;
        // Rank 1 does one more.
        match communicator.rank() {
            1 => path.record(sum(rank, &own)).map(drop),
            _ => Ok(()),
        }
    })
    .expect("it can be recorded");
    together.launch().expect("they can be launched");
    let text = failure(together.wait());
    assert_missing(&ranks, 0, &text);
    assert!(text.contains("the same turns"), "{text}");
    assert_missing(&ranks, 0, &failure(together.launch()));
    drop(together);
    ranks.iter().for_each(assert_usable);
}

#[test]
#[ignore = "run by the next test, in a process of its own"]
fn a_rank_writes_where_it_may_not() {
    let ranks = ranks(2);
    let communicators: Vec<_> = ranks.iter().map(|rank| rank.communicator.clone()).collect();
    let (mut together, _) = Ranks::record(&communicators, |communicator, path| {
        let rank = &ranks[communicator.rank() as usize];
        let own = memory(rank, 3);
        if communicator.rank() == 0 {
            let nowhere: u64 = 0x10;
            // SAFETY: the kernel writes where it may not, and the context fails, as it is to.
            path.record(unsafe { KernelOp::new(kernel("store"), one(), (nowhere, 1u32)) }?)?;
        }
        path.record(sum(rank, &own)).map(drop)
    })
    .expect("it can be recorded");
    together.launch().expect("they can be launched");
    let text = failure(together.wait());
    assert!(
        text.contains("failed: ") && text.contains("ILLEGAL_ADDRESS"),
        "{text}"
    );
    // What was not freed in the failed context goes with the process.
    std::mem::forget((together, ranks));
}

#[test]
fn a_rank_whose_device_failed_is_named() {
    in_process("collective::failing::a_rank_writes_where_it_may_not", &[]);
}
