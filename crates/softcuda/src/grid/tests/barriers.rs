use std::sync::atomic::Ordering::Relaxed;

use super::super::barrier::{barrier_arrive, barrier_red, barrier_sync};
use super::super::context::{BlockContext, CONTINUE, EXITED, Status, ThreadContext};
use super::super::launch::FaultKind;
use super::{cell, cells, ctaid, go, launch, least, run, tid};

const ROUNDS: u32 = 20;

/// Each round every thread adds one, and after the barrier all see everybody's.
extern "C" fn rounds(thread: *mut ThreadContext, block: *mut BlockContext) -> Status {
    // SAFETY: the grid gave the kernel this context.
    let threads = unsafe { (*block).threads };
    for round in 1..=ROUNDS {
        cell(block, ctaid(block)).fetch_add(1, Relaxed);
        go!(barrier_sync(thread, block, round % 16, 0));
        assert_eq!(cell(block, ctaid(block)).load(Relaxed), round * threads);
        go!(barrier_sync(thread, block, 0, 0));
    }
    CONTINUE
}

#[test]
fn all_threads_meet() {
    for threads in [1, 2, 31, 32, 33, 100, 1024] {
        let cells = cells(1);
        run(launch(rounds, threads), &cells).unwrap();
        assert_eq!(cells[0].load(Relaxed), ROUNDS * threads);
    }
}

#[test]
fn many_blocks_meet_each_for_itself() {
    let cells = cells(200);
    let mut launch = launch(rounds, 96);
    launch.grid = [200, 1, 1];
    run(launch, &cells).unwrap();
    assert!(cells.iter().all(|cell| cell.load(Relaxed) == ROUNDS * 96));
}

/// Odd threads leave; the others go on meeting.
extern "C" fn leavers(thread: *mut ThreadContext, block: *mut BlockContext) -> Status {
    if tid(thread) % 2 == 1 {
        if tid(thread).is_multiple_of(3) {
            go!(barrier_sync(thread, block, 0, 0));
        }
        return EXITED;
    }
    go!(barrier_sync(thread, block, 0, 0));
    go!(barrier_sync(thread, block, 0, 0));
    cell(block, 0).fetch_add(1, Relaxed);
    CONTINUE
}

#[test]
fn threads_that_ended_are_not_waited_for() {
    let cells = cells(1);
    run(launch(leavers, 200), &cells).unwrap();
    assert_eq!(cells[0].load(Relaxed), 100);
}

/// Warp 0 produces, warp 1 consumes, by `bar.arrive` and `bar.sync` with a count.
extern "C" fn producer(thread: *mut ThreadContext, block: *mut BlockContext) -> Status {
    for round in 1..=5 {
        if tid(thread) < 32 {
            cell(block, tid(thread)).store(round, Relaxed);
            go!(barrier_arrive(thread, block, 1, 64));
            go!(barrier_sync(thread, block, 2, 64));
        } else {
            go!(barrier_sync(thread, block, 1, 64));
            assert_eq!(cell(block, tid(thread) - 32).load(Relaxed), round);
            go!(barrier_arrive(thread, block, 2, 64));
        }
    }
    cell(block, 32).fetch_add(1, Relaxed);
    CONTINUE
}

#[test]
fn producers_and_consumers() {
    let cells = cells(33);
    run(launch(producer, 96 - 32), &cells).unwrap();
    assert_eq!(cells[32].load(Relaxed), 64);
}

/// A warp of which only some lanes are left counts as whole where there is a count.
extern "C" fn ragged(thread: *mut ThreadContext, block: *mut BlockContext) -> Status {
    if tid(thread) == 5 {
        return EXITED;
    }
    go!(barrier_sync(thread, block, 3, 64));
    cell(block, 0).fetch_add(1, Relaxed);
    CONTINUE
}

#[test]
fn a_count_counts_warps() {
    let cells = cells(1);
    run(launch(ragged, 48), &cells).unwrap();
    assert_eq!(cells[0].load(Relaxed), 47);
}

extern "C" fn reductions(thread: *mut ThreadContext, block: *mut BlockContext) -> Status {
    let tid = tid(thread);
    for round in 0..3u32 {
        let count = barrier_red(thread, block, 0, 0, u32::from(tid % 4 == round), 0);
        let all = barrier_red(thread, block, 0, 0, 1, 1);
        let not_all = barrier_red(thread, block, 0, 0, u32::from(tid != 7), 1);
        let any = barrier_red(thread, block, 0, 96, u32::from(tid == 7), 0);
        for answer in [count, all, not_all, any] {
            go!((answer >> 32) as Status);
        }
        assert_eq!((count, all, not_all, any), (24, 1, 0, 1));
    }
    cell(block, 0).fetch_add(1, Relaxed);
    CONTINUE
}

#[test]
fn barriers_reduce() {
    let cells = cells(1);
    run(launch(reductions, 96), &cells).unwrap();
    assert_eq!(cells[0].load(Relaxed), 96);
}

/// Half the block waits at one barrier, half at another.
extern "C" fn split(thread: *mut ThreadContext, block: *mut BlockContext) -> Status {
    barrier_sync(thread, block, tid(thread) % 2, 0)
}

#[test]
fn what_can_never_complete_is_a_fault() {
    let fault = run(launch(split, 64), &cells(1)).unwrap_err();
    assert_eq!(fault.kind, FaultKind::Deadlock);
    assert_eq!(&*fault.kernel, "by_hand");
    assert!(
        fault
            .detail
            .contains("32 wait at barrier 0; 32 wait at barrier 1"),
        "{}",
        fault.detail
    );
    run(launch(rounds, 64), &cells(1)).unwrap();
}

extern "C" fn no_such(thread: *mut ThreadContext, block: *mut BlockContext) -> Status {
    barrier_sync(thread, block, 16, 0)
}

#[test]
fn a_barrier_that_does_not_exist() {
    let fault = run(launch(no_such, 64), &cells(1)).unwrap_err();
    assert_eq!(fault.kind, FaultKind::Trap);
}

extern "C" fn odd_counts(thread: *mut ThreadContext, block: *mut BlockContext) -> Status {
    barrier_sync(thread, block, 0, u32::MAX - tid(thread))
}

#[test]
fn absurd_counts_are_deadlocks() {
    assert_eq!(
        run(launch(odd_counts, 64), &cells(1)).unwrap_err().kind,
        FaultKind::Deadlock
    );
}

extern "C" fn thousand(thread: *mut ThreadContext, block: *mut BlockContext) -> Status {
    for _ in 0..1000 {
        go!(barrier_sync(thread, block, 0, 0));
    }
    CONTINUE
}

/// Prints what a barrier costs: `cargo test -p softcuda --release -- --ignored --nocapture
/// barrier_cost`.
#[test]
#[ignore = "a measurement"]
fn barrier_cost() {
    for threads in [32, 256, 1024] {
        let launch = launch(thousand, threads);
        let time = least(20, || super::super::run(&launch).unwrap());
        let each = time.as_secs_f64() / 1e3 / f64::from(threads);
        println!(
            "{threads} threads: {:.1} ns for a thread at a barrier",
            each * 1e9
        );
    }
}
