//! Turns, with kernels that do by hand what compiled code does in rounds.

use std::sync::atomic::Ordering::Relaxed;

use super::super::context::{BlockContext, CONTINUE, Mode, Status, ThreadContext};
use super::super::launch::{FaultKind, Launch};
use super::super::rounds::{BarrierKind, ENDED, START, Wait, turn};
use super::super::warp::{Meeting, Tile};
use super::{cell, cells, launch, run};
use crate::grid::context::KernelFn;

/// A wait of this kind, with the same operands for all lanes.
const fn wait(kind: u32, mask: u32, b: u32) -> Wait {
    Wait {
        kind,
        mask: Some(mask),
        b: Some(b),
        c: Some(31),
        tiles: None,
    }
}

/// Runs a block: `go_on` gets a thread's number, its lane and where it stands, and says where it
/// stands then.
fn in_rounds(
    block: *mut BlockContext,
    waits: &[Wait],
    mut go_on: impl FnMut(u32, usize, u32, &Tile) -> u32,
) -> Status {
    loop {
        match turn(block, waits.as_ptr()) {
            CONTINUE => {}
            status => return status,
        }
        // SAFETY: the grid gave the kernel this context, and in it the turn's tile.
        let (turn, tile) = unsafe {
            let turn = (*block).turn;
            (turn, turn.tile.as_ref())
        };
        let Some(tile) = tile else {
            return CONTINUE;
        };
        for lane in (0..32).filter(|lane| turn.lanes >> lane & 1 != 0) {
            let stands = tile.stands[lane].get();
            assert_ne!(stands, ENDED);
            let stands = go_on(turn.warp * 32 + lane as u32, lane, stands, tile);
            tile.stands[lane].set(stands);
        }
    }
}

fn launch_rounds(entry: KernelFn, threads: u32) -> Launch {
    let mut launch = launch(entry, threads);
    launch.code.mode = Mode::Rounds;
    launch
}

/// Two shuffles, a barrier, the end; notes when each thread does what.
extern "C" fn order(_: *mut ThreadContext, block: *mut BlockContext) -> Status {
    let waits = [
        wait(Meeting::ShflIdx as u32, u32::MAX, 7),
        wait(Meeting::ShflBfly as u32, u32::MAX, 1),
        wait(BarrierKind::Sync as u32, 0, 0),
    ];
    let mut now = 0;
    in_rounds(block, &waits, |thread, lane, stands, tile| {
        cell(block, 4 * thread + stands).store(now, Relaxed);
        now += 1;
        match stands {
            START => tile.values[lane].set(thread),
            1 => {
                let first = thread - lane as u32;
                assert_eq!(tile.results[lane].get(), first + 7);
                tile.values[lane].set(thread);
            }
            2 => assert_eq!(tile.results[lane].get(), thread ^ 1),
            _ => return ENDED,
        }
        stands + 1
    })
}

#[test]
fn a_warp_goes_on_alone_and_the_first_is_first_after_a_barrier() {
    let cells = cells(4 * 96);
    run(launch_rounds(order, 96), &cells).unwrap();
    for (at, cell) in (0..).zip(&cells) {
        let (thread, stands) = (at / 4, at % 4);
        let (warp, lane) = (thread / 32, thread % 32);
        let expected = match stands {
            3 => 3 * 96 + thread,
            _ => (3 * warp + stands) * 32 + lane,
        };
        assert_eq!(
            cell.load(Relaxed),
            expected,
            "thread {thread} from {stands}"
        );
    }
}

/// Warp 0 arrives twice where warps 1 and 2 wait in turn.
extern "C" fn handed_over(_: *mut ThreadContext, block: *mut BlockContext) -> Status {
    let waits = [
        wait(BarrierKind::Arrive as u32, 64, 1),
        wait(BarrierKind::Arrive as u32, 64, 2),
        wait(BarrierKind::Sync as u32, 64, 1),
        wait(BarrierKind::Sync as u32, 64, 2),
    ];
    in_rounds(block, &waits, |thread, _, stands, _| match stands {
        START if thread < 32 => 1,
        START => 2 + thread / 32,
        1 => 2,
        _ => {
            cell(block, 0).fetch_add(1, Relaxed);
            ENDED
        }
    })
}

#[test]
fn who_arrives_goes_on_at_once() {
    let cells = cells(1);
    run(launch_rounds(handed_over, 96), &cells).unwrap();
    assert_eq!(cells[0].load(Relaxed), 96);
}

/// Lanes say for themselves which barrier they wait at and with how many: the count is of whole
/// warps, and 31 lanes and one that has ended are one.
extern "C" fn counted(_: *mut ThreadContext, block: *mut BlockContext) -> Status {
    let waits = [Wait {
        mask: None,
        b: None,
        ..wait(BarrierKind::Reduce as u32, 0, 0)
    }];
    in_rounds(block, &waits, |thread, lane, stands, tile| {
        match (stands, thread) {
            (START, 40) => return ENDED,
            (START, _) => {
                tile.b[lane].set(9);
                tile.masks[lane].set(33);
                tile.values[lane].set(u32::from(thread < 5));
                return 1;
            }
            _ => {}
        }
        assert_eq!(tile.results[lane].get(), 5);
        assert_eq!(tile.predicates.get() >> lane & 1, 0);
        cell(block, 0).fetch_add(1, Relaxed);
        ENDED
    })
}

#[test]
fn counts_and_results_of_barriers() {
    let cells = cells(1);
    run(launch_rounds(counted, 64), &cells).unwrap();
    assert_eq!(cells[0].load(Relaxed), 63);
}

/// Odd threads wait at another barrier than even ones.
extern "C" fn apart(_: *mut ThreadContext, block: *mut BlockContext) -> Status {
    let waits = [
        wait(BarrierKind::Sync as u32, 0, 0),
        wait(BarrierKind::Sync as u32, 0, 1),
    ];
    in_rounds(block, &waits, |thread, _, _, _| 1 + thread % 2)
}

#[test]
fn what_can_never_complete_is_a_fault() {
    let mut launch = launch_rounds(apart, 64);
    launch.grid = [3, 1, 1];
    let fault = run(launch, &cells(1)).unwrap_err();
    assert_eq!(fault.kind, FaultKind::Deadlock);
    assert_eq!(
        fault.detail,
        "0 of 64 threads have ended; 32 wait at barrier 0; 32 wait at barrier 1"
    );
    run(launch_rounds(handed_over, 96), &cells(1)).unwrap();
}
