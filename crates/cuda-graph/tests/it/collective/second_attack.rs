//! What a second search for faults led to: programs that end early, aborts that come at any time,
//! and ranks that come with too much.

use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Duration;

use cuda_graph::{
    Buffer, CollectiveFailure, CollectiveOp, Communicator, CommunicatorOptions, Engine, Error,
    Reduction, Transmission,
};

use super::{Rank, SHORT, in_turn, ranks, ranks_with, run};
use crate::fixture::{in_own_process, is_software};

fn sum(rank: &Rank, memory: &Buffer<u32>) -> CollectiveOp {
    let rank = &rank.communicator;
    CollectiveOp::all_reduce(rank, memory, memory, Reduction::Sum).expect("it can be made")
}

fn memory(rank: &Rank, count: usize) -> Buffer<u32> {
    Buffer::from_host(&rank.stream, &vec![rank.number() + 1; count]).expect("memory")
}

#[test]
fn without_ranks_there_is_no_communicator() {
    for engine in [None, Some(Engine::Plain), Some(Engine::Nccl)] {
        let mut options = CommunicatorOptions::default();
        options.engine = engine;
        let made = Communicator::all(&[], &options);
        assert!(
            matches!(made, Err(Error::NoCommunicator { .. })),
            "{made:?}"
        );
    }
}

/// Every engine takes as many messages.
#[test]
fn an_exchange_has_64_messages_at_most() {
    let ranks = ranks(2);
    let mut execs = Vec::new();
    let mut parts = Vec::new();
    for rank in &ranks {
        let (from, to) = (memory(rank, 32), memory(rank, 32));
        let part = |memory: &Buffer<u32>, at| memory.slice(at..at + 1).expect("a part");
        let peer = 1 - rank.number();
        let mut messages: Vec<Transmission> = Vec::new();
        for at in 0..32 {
            messages.push(Transmission::send(&part(&from, at), peer));
            messages.push(Transmission::recv(&part(&to, at), peer));
        }
        let more = messages.iter().cloned();
        let more = more.chain([Transmission::send(&part(&from, 0), peer)]);
        let more = CollectiveOp::exchange(&rank.communicator, more);
        assert!(matches!(
            more,
            Err(Error::OutOfRange {
                end: 65,
                len: 64,
                ..
            })
        ));
        let op = CollectiveOp::exchange(&rank.communicator, messages).expect("64 messages");
        execs.push(rank.exec([op]));
        parts.push((from, to));
    }
    run(&ranks, &mut execs);
    for (rank, (_, to)) in ranks.iter().zip(&parts) {
        let got = to.to_host(&rank.stream).expect("it can be read");
        assert_eq!(got, [2 - rank.number(); 32]);
    }
}

/// Ranks launch, wait and drop, each on its thread, when an abort comes. All end, and are told of
/// that alone.
#[test]
fn an_abort_comes_at_any_time() {
    for turn in 0..if is_software() { 24 } else { 4 } {
        let ranks = ranks(2);
        let begun = AtomicBool::new(false);
        thread::scope(|scope| {
            for rank in &ranks {
                let begun = &begun;
                scope.spawn(move || {
                    let own = memory(rank, 1000);
                    let error = loop {
                        // After an abort, NCCL makes no operations.
                        let made = CollectiveOp::all_reduce(
                            &rank.communicator,
                            &own,
                            &own,
                            Reduction::Sum,
                        );
                        let Ok(op) = made else {
                            break rank.communicator.check().expect_err("it was aborted");
                        };
                        let mut exec = rank.exec([op.clone(), op]);
                        exec.launch(&rank.stream).expect("it can be launched");
                        begun.store(true, Ordering::Relaxed);
                        if turn % 2 == 0 {
                            drop(exec);
                        }
                        if let Err(error) = rank.communicator.wait(&rank.stream) {
                            break error;
                        }
                    };
                    let Error::Communicator { failure, .. } = error else {
                        panic!("another error: {error}");
                    };
                    assert!(
                        matches!(*failure, CollectiveFailure::Aborted { .. }),
                        "{failure}"
                    );
                });
            }
            while !begun.load(Ordering::Relaxed) {
                thread::yield_now();
            }
            thread::sleep(Duration::from_micros(300 * turn));
            // Several do, and more than once.
            for rank in ranks.iter().chain(&ranks) {
                scope.spawn(|| rank.communicator.abort());
            }
        });
    }
    let all = ranks(2);
    let memory: Vec<_> = all.iter().map(|rank| memory(rank, 8)).collect();
    let execs = all.iter().zip(&memory);
    let mut execs: Vec<_> = execs.map(|(rank, it)| rank.exec([sum(rank, it)])).collect();
    run(&all, &mut execs);
    assert_eq!(memory[0].to_host(&all[0].stream).expect("it"), [3; 8]);
}

/// What a rank sends beyond what the other takes does not come to lie behind that.
#[test]
fn what_is_too_long_stays_out_of_other_memory() {
    type Make = fn(&Rank, &Buffer<u32>) -> cuda_graph::Result<CollectiveOp>;
    let make: [Make; 4] = [
        |rank, it| CollectiveOp::broadcast(&rank.communicator, it, it, 0),
        |rank, it| CollectiveOp::all_reduce(&rank.communicator, it, it, Reduction::Sum),
        |rank, it| {
            let part = it.len() / 2;
            let own =
                it.slice(part * rank.number() as usize..part * (rank.number() as usize + 1))?;
            CollectiveOp::all_gather(&rank.communicator, it, &own)
        },
        |rank, it| match rank.number() {
            0 => CollectiveOp::send(&rank.communicator, it, 1),
            _ => CollectiveOp::recv(&rank.communicator, it, 0),
        },
    ];
    const LONG: usize = 1 << 18;
    const SHORTER: usize = 1 << 10;
    for make in make {
        let ranks = ranks_with(2, SHORT);
        let memory: Vec<_> = ranks.iter().map(|rank| memory(rank, LONG)).collect();
        let taken = memory[1].slice(..SHORTER).expect("a part");
        let mut execs = Vec::new();
        for (rank, memory) in ranks.iter().zip([&memory[0], &taken]) {
            execs.push(rank.exec([make(rank, memory).expect("it can be made")]));
        }
        for (rank, exec) in ranks.iter().zip(&mut execs) {
            exec.launch(&rank.stream).expect("it can be launched");
        }
        // NCCL need not tell, if nobody waits.
        for rank in &ranks {
            let _ = rank.communicator.wait(&rank.stream);
        }
        let all = memory[1].to_host(&ranks[1].stream).expect("it can be read");
        let other = all[SHORTER..].iter().position(|it| *it != 2);
        assert_eq!(other, None, "{:?}", execs[1]);
    }
}

/// Who does not wait at all for the other ranks gets a communicator that works, or an error, and
/// leaves nothing behind that others could meet.
#[test]
fn giving_up_at_once_leaves_nothing() {
    if !in_own_process("collective::second_attack::giving_up_at_once_leaves_nothing") {
        return;
    }
    let contexts = in_turn(2);
    for _ in 0..3 {
        let options = CommunicatorOptions::default().timeout(Duration::ZERO);
        match Communicator::all(&contexts, &options) {
            Ok(made) => assert_eq!(made.len(), 2),
            Err(Error::NoCommunicator { .. }) => {}
            Err(error) => panic!("another error: {error}"),
        }
    }
    let all = ranks(2);
    let memory: Vec<_> = all.iter().map(|rank| memory(rank, 8)).collect();
    let execs = all.iter().zip(&memory);
    let mut execs: Vec<_> = execs.map(|(rank, it)| rank.exec([sum(rank, it)])).collect();
    run(&all, &mut execs);
    assert_eq!(memory[1].to_host(&all[1].stream).expect("it"), [3; 8]);
}

/// The thread of a rank ends the program, while another's waits and a third has launched.
#[test]
fn a_rank_s_thread_ends_the_program() {
    if !in_own_process("collective::second_attack::a_rank_s_thread_ends_the_program") {
        return;
    }
    let ranks = ranks(2);
    // A second communicator, of which a launch is on its way too.
    let others = self::ranks(2);
    let launch = |rank: &Rank| {
        let mut exec = rank.exec([sum(rank, &memory(rank, 1000))]);
        exec.launch(&rank.stream).expect("it can be launched");
    };
    launch(&others[1]);
    thread::scope(|scope| {
        scope.spawn(|| {
            launch(&ranks[0]);
            ranks[0].communicator.wait(&ranks[0].stream)
        });
        scope.spawn(|| {
            thread::sleep(Duration::from_millis(100));
            // As the harness would, which is not asked any more.
            println!("1 passed");
            std::process::exit(0);
        });
    });
}
