use std::sync::atomic::Ordering::Relaxed;

use super::super::barrier::barrier_sync;
use super::super::context::{BlockContext, CONTINUE, Mode, Status, ThreadContext};
use super::super::fault;
use super::super::launch::FaultKind;
use super::super::poll::poll;
use super::super::warp::{Meeting, meet};
use super::{cell, cells, ctaid, go, launch, run, status_of, tid};

/// One thread faults while the others wait at a barrier, at a warp operation, or poll.
extern "C" fn one_faults(thread: *mut ThreadContext, block: *mut BlockContext) -> Status {
    go!(barrier_sync(thread, block, 0, 0));
    match tid(thread) {
        70 if ctaid(block) == 3 => fault(
            thread,
            block,
            FaultKind::IllegalAddress,
            Some((0x1234, 4)),
            "a wild pointer",
        ),
        0..32 => barrier_sync(thread, block, 1, 0),
        32..64 => status_of(meet(thread, block, Meeting::Sync as u32, u32::MAX, 0, 0, 0)),
        _ => loop {
            go!(poll(thread, block, 0));
            if ctaid(block) != 3 {
                return CONTINUE;
            }
        },
    }
}

#[test]
fn a_fault_ends_the_launch_and_is_told() {
    for grid in [4, 400] {
        let mut launch = launch(one_faults, 96);
        launch.grid = [grid, 1, 1];
        let fault = run(launch, &cells(1)).unwrap_err();
        assert_eq!(fault.kind, FaultKind::IllegalAddress);
        assert_eq!(fault.block, [3, 0, 0]);
        assert_eq!(fault.thread, Some([70, 0, 0]));
        assert_eq!(fault.access, Some((0x1234, 4)));
        assert_eq!(fault.detail, "a wild pointer");
    }
}

extern "C" fn loop_faults(thread: *mut ThreadContext, block: *mut BlockContext) -> Status {
    cell(block, 0).fetch_add(1, Relaxed);
    if ctaid(block) == 5 {
        return fault(thread, block, FaultKind::Misaligned, None, "");
    }
    CONTINUE
}

#[test]
fn blocks_after_a_fault_do_not_start() {
    let cells = cells(1);
    let mut launch = launch(loop_faults, 1);
    launch.code.mode = Mode::Loop;
    launch.grid = [1_000_000_000, 1, 1];
    assert_eq!(run(launch, &cells).unwrap_err().kind, FaultKind::Misaligned);
}

extern "C" fn silent(_: *mut ThreadContext, _: *mut BlockContext) -> Status {
    7
}

#[test]
fn a_status_without_a_fault_is_a_launch_failure() {
    for mode in [Mode::Loop, Mode::Fibers] {
        let mut launch = launch(silent, 4);
        launch.code.mode = mode;
        assert_eq!(
            run(launch, &cells(1)).unwrap_err().kind,
            FaultKind::LaunchFailure
        );
    }
}

#[test]
fn a_wait_in_a_loop_is_a_fault_not_a_crash() {
    for entry in [one_faults as super::KernelFn, waits_in_warp] {
        let mut launch = launch(entry, 4);
        launch.code.mode = Mode::Loop;
        assert!(run(launch, &cells(1)).is_err());
    }
}

extern "C" fn waits_in_warp(thread: *mut ThreadContext, block: *mut BlockContext) -> Status {
    status_of(meet(thread, block, Meeting::Sync as u32, u32::MAX, 0, 0, 0))
}

#[test]
fn too_many_threads() {
    assert_eq!(
        run(launch(silent, 1025), &cells(1)).unwrap_err().kind,
        FaultKind::LaunchFailure
    );
}

/// Workers that ran a faulted launch run the next as if nothing had been.
#[test]
fn workers_survive_faults() {
    for _ in 0..50 {
        let mut bad = launch(one_faults, 96);
        bad.grid = [8, 1, 1];
        run(bad, &cells(1)).unwrap_err();
        let mut good = launch(meets_once, 96);
        good.grid = [8, 1, 1];
        let cells = cells(1);
        run(good, &cells).unwrap();
        assert_eq!(cells[0].load(Relaxed), 8 * 96);
    }
}

extern "C" fn meets_once(thread: *mut ThreadContext, block: *mut BlockContext) -> Status {
    go!(barrier_sync(thread, block, 0, 0));
    go!(status_of(meet(
        thread,
        block,
        Meeting::Sync as u32,
        u32::MAX,
        0,
        0,
        0
    )));
    cell(block, 0).fetch_add(1, Relaxed);
    CONTINUE
}
