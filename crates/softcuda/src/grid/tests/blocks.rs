use std::collections::HashSet;
use std::sync::atomic::AtomicU32;
use std::sync::atomic::Ordering::{Acquire, Relaxed, Release, SeqCst};

use super::super::barrier::barrier_sync;
use super::super::cluster::{cluster_arrive, cluster_wait};
use super::super::context::{BlockContext, CONTINUE, EXITED, Mode, Status, ThreadContext};
use super::super::poll::poll;
use super::{cell, cells, ctaid, go, launch, least, run, tid};

extern "C" fn nothing(_: *mut ThreadContext, _: *mut BlockContext) -> Status {
    CONTINUE
}

/// In loop mode: marks the block.
extern "C" fn mark(_: *mut ThreadContext, block: *mut BlockContext) -> Status {
    // SAFETY: the grid gave the kernel this context.
    let ([x, y, z], [nx, ny, _]) = unsafe { ((*block).ctaid, (*block).nctaid) };
    cell(block, x + nx * (y + ny * z)).fetch_add(1, Relaxed);
    EXITED
}

#[test]
fn every_block_runs_once() {
    for mode in [Mode::Loop, Mode::Fibers] {
        for grid in [[1, 1, 1], [7, 1, 1], [5, 6, 7], [3000, 1, 1]] {
            let count: u32 = grid.iter().product();
            let cells = cells(count as usize);
            let mut launch = launch(mark, 1);
            launch.code.mode = mode;
            launch.grid = grid;
            run(launch, &cells).unwrap();
            assert!(cells.iter().all(|cell| cell.load(Relaxed) == 1), "{grid:?}");
        }
    }
}

/// Fills its shared and local memory and its stack, and finds them as it left them.
extern "C" fn memories(thread: *mut ThreadContext, block: *mut BlockContext) -> Status {
    // SAFETY: the grid gave the kernel these contexts, whose memory is as large as they say; each
    // thread writes its own part.
    unsafe {
        let (local, size) = ((*thread).local_base, (*thread).local_size as usize);
        assert_eq!(
            (size, local.addr() % 16, (*block).shared_base.addr() % 128),
            (256, 0, 0)
        );
        let own = tid(thread) as u8;
        std::slice::from_raw_parts_mut(local, size).fill(own);
        let shared = (*block).shared_base.add(tid(thread) as usize);
        shared.write(own);
        let here = [own; 64];
        assert!((*thread).stack_limit < std::hint::black_box(&here).as_ptr() as u64);
        go!(barrier_sync(thread, block, 0, 0));
        assert!(
            std::slice::from_raw_parts(local, size)
                .iter()
                .all(|&byte| byte == own)
        );
        assert_eq!(*shared, own);
        assert_eq!(std::hint::black_box(here), [own; 64]);
        assert_eq!((*(*block).sites).units, 0);
    }
    CONTINUE
}

#[test]
fn threads_have_memory_of_their_own() {
    let mut launch = launch(memories, 1024);
    launch.grid = [9, 1, 1];
    run(launch, &cells(1)).unwrap();
}

/// Which native stacks threads ran on.
extern "C" fn where_am_i(_: *mut ThreadContext, block: *mut BlockContext) -> Status {
    let here = 0u8;
    let next = cell(block, 0).fetch_add(1, Relaxed);
    cell(block, 1 + next).store(
        (std::hint::black_box(&here) as *const u8 as u64 >> 12) as u32,
        Relaxed,
    );
    CONTINUE
}

#[test]
fn a_thread_that_does_not_wait_leaves_its_stack_to_the_next() {
    let cells = cells(1 + 1024);
    run(launch(where_am_i, 1024), &cells).unwrap();
    let stacks: HashSet<u32> = cells[1..].iter().map(|cell| cell.load(Relaxed)).collect();
    assert_eq!(stacks.len(), 1);
}

/// Waits for the next block: the last starts it all.
extern "C" fn backwards(thread: *mut ThreadContext, block: *mut BlockContext) -> Status {
    // SAFETY: the grid gave the kernel this context.
    let last = unsafe { (*block).nctaid[0] } - 1;
    let own = ctaid(block);
    if tid(thread) == 0 && own != last {
        while cell(block, own + 1).load(Acquire) == 0 {
            go!(poll(thread, block, 0));
        }
    }
    go!(barrier_sync(thread, block, 0, 0));
    cell(block, own).store(1, Release);
    CONTINUE
}

#[test]
fn blocks_that_poll_make_room_for_later_ones() {
    let cells = cells(40);
    let mut launch = launch(backwards, 64);
    launch.grid = [40, 1, 1];
    run(launch, &cells).unwrap();
    assert!(cells.iter().all(|cell| cell.load(Relaxed) == 1));
}

/// A thread spins on another thread of its block.
extern "C" fn spins(thread: *mut ThreadContext, block: *mut BlockContext) -> Status {
    if tid(thread) == 0 {
        while cell(block, 0).load(Acquire) == 0 {
            go!(poll(thread, block, 0));
        }
    } else if tid(thread) == 33 {
        cell(block, 0).store(1, Release);
    }
    CONTINUE
}

#[test]
fn a_thread_may_spin_on_another_of_its_block() {
    run(launch(spins, 64), &cells(1)).unwrap();
}

/// A barrier over the whole grid, as cooperative groups make it.
fn grid_sync(
    thread: *mut ThreadContext,
    block: *mut BlockContext,
    counter: &AtomicU32,
    round: u32,
) -> Status {
    // SAFETY: the grid gave the kernel this context.
    let blocks = unsafe { (*block).nctaid[0] };
    go!(barrier_sync(thread, block, 0, 0));
    if tid(thread) == 0 {
        counter.fetch_add(1, SeqCst);
        while counter.load(Acquire) < round * blocks {
            go!(poll(thread, block, 0));
        }
    }
    barrier_sync(thread, block, 0, 0)
}

extern "C" fn cooperates(thread: *mut ThreadContext, block: *mut BlockContext) -> Status {
    // SAFETY: the grid gave the kernel this context.
    let (blocks, threads) = unsafe { ((*block).nctaid[0], (*block).threads) };
    for round in 1..=4 {
        cell(block, 1).fetch_add(1, Relaxed);
        go!(grid_sync(thread, block, cell(block, 0), 2 * round - 1));
        assert_eq!(cell(block, 1).load(Relaxed), round * blocks * threads);
        go!(grid_sync(thread, block, cell(block, 0), 2 * round));
    }
    CONTINUE
}

#[test]
fn cooperative_grids_meet() {
    for (blocks, threads) in [(1, 32), (2, 1), (16, 256), (200, 32), (1000, 2), (40, 1024)] {
        let cells = cells(2);
        let mut launch = launch(cooperates, threads);
        launch.grid = [blocks, 1, 1];
        launch.cooperative = true;
        run(launch, &cells).unwrap();
        assert_eq!(cells[1].load(Relaxed), 4 * blocks * threads);
    }
}

/// Blocks of a cluster meet; the last thread of each leaves early, and one arrives and does
/// something else meanwhile.
extern "C" fn clusters(thread: *mut ThreadContext, block: *mut BlockContext) -> Status {
    // SAFETY: the grid gave the kernel this context.
    let ([x, y, _], threads, nx) =
        unsafe { ((*block).ctaid, (*block).threads, (*block).nctaid[0]) };
    if tid(thread) == threads - 1 {
        return EXITED;
    }
    let cluster = x / 2 + y * nx / 2;
    for round in 1..=5 {
        cell(block, cluster).fetch_add(1, Relaxed);
        go!(cluster_arrive(thread, block));
        if tid(thread) == 0 {
            go!(poll(thread, block, 0));
        }
        go!(cluster_wait(thread, block));
        assert_eq!(
            cell(block, cluster).load(Relaxed),
            round * 2 * (threads - 1)
        );
        go!(cluster_arrive(thread, block));
        go!(cluster_wait(thread, block));
    }
    CONTINUE
}

#[test]
fn clusters_meet() {
    let cells = cells(12);
    let mut launch = launch(clusters, 33);
    launch.grid = [8, 3, 1];
    launch.cluster = [2, 1, 1];
    run(launch, &cells).unwrap();
    assert!(cells.iter().all(|cell| cell.load(Relaxed) == 5 * 2 * 32));
}

#[test]
fn launches_may_run_at_the_same_time() {
    std::thread::scope(|scope| {
        for _ in 0..4 {
            scope.spawn(|| {
                for _ in 0..5 {
                    let cells = cells(2);
                    let mut launch = launch(cooperates, 32);
                    launch.grid = [20, 1, 1];
                    launch.cooperative = true;
                    run(launch, &cells).unwrap();
                }
            });
        }
    });
}

/// Deep enough for the kernel that asks for it, whatever thread it runs on.
extern "C" fn deep(thread: *mut ThreadContext, block: *mut BlockContext) -> Status {
    let here = 0u8;
    // SAFETY: the grid gave the kernel this context.
    let room = std::hint::black_box(&here) as *const u8 as u64 - unsafe { (*thread).stack_limit };
    cell(block, 0).store((room >> 10) as u32, Relaxed);
    CONTINUE
}

#[test]
fn a_loop_may_ask_for_a_deep_stack() {
    for mode in [Mode::Loop, Mode::Fibers] {
        let cells = cells(1);
        let mut launch = launch(deep, 1);
        launch.code.mode = mode;
        launch.stack = 64 << 20;
        run(launch, &cells).unwrap();
        assert!(cells[0].load(Relaxed) >= 63 << 10);
    }
}

/// Prints what launches cost: `cargo test -p softcuda --release -- --ignored --nocapture
/// launch_cost`.
#[test]
#[ignore = "a measurement"]
fn launch_cost() {
    for (blocks, threads, mode) in [
        (1, 1, Mode::Loop),
        (1, 256, Mode::Fibers),
        (16, 16, Mode::Loop),
        (1000, 256, Mode::Loop),
        (100, 256, Mode::Fibers),
    ] {
        let mut launch = launch(nothing, threads);
        launch.grid = [blocks, 1, 1];
        launch.code.mode = mode;
        let time = least(300, || super::super::run(&launch).unwrap());
        println!("{blocks} x {threads}, {mode:?}: {time:?}");
    }
}
