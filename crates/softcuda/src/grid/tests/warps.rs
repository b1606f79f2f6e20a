use std::sync::atomic::Ordering::Relaxed;

use super::super::context::{BlockContext, CONTINUE, EXITED, Status, ThreadContext};
use super::super::launch::FaultKind;
use super::super::poll::poll;
use super::super::warp::{Meeting, PREDICATE, meet, unmasked};
use super::{cell, cells, go, launch, run, status_of, tid};

const ALL: u32 = u32::MAX;

fn value(answer: u64) -> u32 {
    answer as u32
}

/// What `shfl` gives by the pseudo code of the PTX ISA, all lanes there.
fn shuffled(meeting: Meeting, lane: i32, b: i32, c: i32) -> (i32, bool) {
    let (bval, cval, segmask) = (b & 31, c & 31, c >> 8 & 31);
    let max = (lane & segmask) | (cval & !segmask);
    let min = lane & segmask;
    let (j, inside) = match meeting {
        Meeting::ShflUp => (lane - bval, lane - bval >= max),
        Meeting::ShflDown => (lane + bval, lane + bval <= max),
        Meeting::ShflBfly => (lane ^ bval, lane ^ bval <= max),
        _ => (min | (bval & !segmask), min | (bval & !segmask) <= max),
    };
    (if inside { j } else { lane }, inside)
}

extern "C" fn shuffles(thread: *mut ThreadContext, block: *mut BlockContext) -> Status {
    let lane = tid(thread) % 32;
    for meeting in [
        Meeting::ShflUp,
        Meeting::ShflDown,
        Meeting::ShflBfly,
        Meeting::ShflIdx,
    ] {
        for width in [2, 8, 32] {
            for b in [0, 1, 3, 16, 31, 33] {
                let clamp = if meeting == Meeting::ShflUp { 0 } else { 31 };
                let c = (32 - width) << 8 | clamp;
                let answer = meet(
                    thread,
                    block,
                    meeting as u32,
                    ALL,
                    u64::from(1000 + lane),
                    b,
                    c,
                );
                go!(status_of(answer));
                let (source, inside) = shuffled(meeting, lane as i32, b as i32, c as i32);
                assert_eq!(
                    value(answer),
                    1000 + source as u32,
                    "{meeting:?} {width} {b} in {lane}"
                );
                assert_eq!(answer & PREDICATE != 0, inside);
            }
        }
    }
    cell(block, 0).fetch_add(1, Relaxed);
    CONTINUE
}

#[test]
fn shuffles_follow_the_isa() {
    let cells = cells(1);
    run(launch(shuffles, 64), &cells).unwrap();
    assert_eq!(cells[0].load(Relaxed), 64);
}

extern "C" fn votes(thread: *mut ThreadContext, block: *mut BlockContext) -> Status {
    let lane = tid(thread);
    let ask =
        |meeting: Meeting, mask, value| meet(thread, block, meeting as u32, mask, value, 0, 0);
    let odd = u64::from(lane % 2);
    let mine = 0xff << (lane / 8 * 8);
    let answers = [
        ask(Meeting::VoteBallot, ALL, odd),
        ask(Meeting::VoteAny, mine, u64::from(lane == 9)),
        ask(Meeting::VoteAll, mine, u64::from(lane != 9)),
        ask(Meeting::VoteUni, mine, u64::from(lane >= 8)),
        ask(Meeting::VoteUni, ALL, odd),
        ask(Meeting::MatchAny, ALL, u64::from(lane % 4) << 40),
        ask(Meeting::MatchAll, mine, u64::from(lane / 8)),
        ask(Meeting::MatchAll, ALL, u64::from(lane / 8)),
        ask(Meeting::ReduxAdd, ALL, u64::from(lane)),
        ask(Meeting::ReduxMinS, ALL, u64::from((lane as i32 - 4) as u32)),
        ask(Meeting::ReduxMinU, ALL, u64::from((lane as i32 - 4) as u32)),
        ask(
            Meeting::ReduxMaxS,
            mine,
            u64::from((lane as i32 - 40) as u32),
        ),
        ask(Meeting::ReduxMaxU, ALL, u64::from((lane as i32 - 4) as u32)),
        ask(Meeting::ReduxXor, ALL, 1 << lane),
        ask(Meeting::ReduxAnd, ALL, u64::from(!(1u32 << lane))),
        ask(Meeting::ReduxOr, mine, 1 << lane),
        ask(Meeting::Elect, mine, 0),
    ];
    go!(answers
        .iter()
        .map(|&answer| status_of(answer))
        .max()
        .unwrap());
    let leader = lane / 8 * 8;
    let expected = [
        0xaaaa_aaaa,
        u64::from(lane / 8 == 1),
        u64::from(lane / 8 != 1),
        1,
        0,
        0x1111_1111 << (lane % 4),
        PREDICATE | u64::from(mine),
        0,
        496,
        u64::from(-4i32 as u32),
        0,
        u64::from((leader as i32 + 7 - 40) as u32),
        u64::from(u32::MAX),
        u64::from(u32::MAX),
        0,
        u64::from(mine),
        u64::from(leader) | if lane == leader { PREDICATE } else { 0 },
    ];
    assert_eq!(answers, expected, "in lane {lane}");
    cell(block, 0).fetch_add(1, Relaxed);
    CONTINUE
}

#[test]
fn votes_matches_and_reductions() {
    let cells = cells(1);
    run(launch(votes, 32), &cells).unwrap();
    assert_eq!(cells[0].load(Relaxed), 32);
}

/// The two halves meet at operations of the same kind and mask that stand in different places; a
/// quarter leaves early.
extern "C" fn diverged(thread: *mut ThreadContext, block: *mut BlockContext) -> Status {
    let lane = tid(thread);
    let ballot = if lane < 16 {
        for _ in 0..lane % 3 {
            go!(poll(thread, block, 0));
        }
        meet(thread, block, Meeting::VoteBallot as u32, ALL, 1, 0, 0)
    } else if lane < 24 {
        return EXITED;
    } else {
        meet(thread, block, Meeting::VoteBallot as u32, ALL, 1, 0, 0)
    };
    go!(status_of(ballot));
    cell(block, lane).store(value(ballot), Relaxed);
    CONTINUE
}

#[test]
fn diverged_lanes_meet_and_lanes_that_ended_are_not_waited_for() {
    let cells = cells(40);
    run(launch(diverged, 32), &cells).unwrap();
    for lane in (0..16).chain(24..32) {
        assert_eq!(cells[lane].load(Relaxed), 0xff00_ffff);
    }
}

/// Lanes that come to `activemask` by different ways agree on the mask and meet again with it.
extern "C" fn active(thread: *mut ThreadContext, block: *mut BlockContext) -> Status {
    let lane = tid(thread);
    if !lane.is_multiple_of(3) {
        for _ in 0..lane {
            go!(poll(thread, block, 0));
        }
        let mask = meet(
            thread,
            block,
            unmasked(Meeting::VoteBallot, 77),
            ALL,
            1,
            0,
            0,
        );
        go!(status_of(mask));
        let sum = meet(
            thread,
            block,
            Meeting::ReduxAdd as u32,
            value(mask),
            1,
            0,
            0,
        );
        go!(status_of(sum));
        assert_eq!(value(sum), value(mask).count_ones());
        assert_ne!(value(mask) & 1 << lane, 0);
        cell(block, 0).fetch_add(1, Relaxed);
    } else {
        go!(status_of(meet(
            thread,
            block,
            unmasked(Meeting::Sync, 78),
            ALL,
            0,
            0,
            0
        )));
    }
    cell(block, 1).fetch_add(1, Relaxed);
    CONTINUE
}

#[test]
fn activemask_gives_masks_to_meet_with() {
    let cells = cells(2);
    run(launch(active, 32), &cells).unwrap();
    assert_eq!(cells[0].load(Relaxed), 21);
    assert_eq!(cells[1].load(Relaxed), 32);
}

/// Lane 3 never comes; the others have no one to blame but the launch.
extern "C" fn missing(thread: *mut ThreadContext, block: *mut BlockContext) -> Status {
    let lane = tid(thread);
    let mask = if lane == 3 { 0b1100 } else { 0b1111 };
    status_of(meet(thread, block, Meeting::Sync as u32, mask, 0, 0, 0))
}

#[test]
fn masks_that_disagree_are_a_deadlock() {
    let fault = run(launch(missing, 4), &cells(1)).unwrap_err();
    assert_eq!(fault.kind, FaultKind::Deadlock);
    assert!(
        fault.detail.contains("wait in Sync with mask 0x0000000c"),
        "{}",
        fault.detail
    );
}

/// A lane outside its own mask goes on alone.
extern "C" fn outsider(thread: *mut ThreadContext, block: *mut BlockContext) -> Status {
    let answer = meet(
        thread,
        block,
        Meeting::ShflIdx as u32,
        0xff,
        u64::from(tid(thread)),
        0,
        31,
    );
    go!(status_of(answer));
    assert_eq!(value(answer), if tid(thread) < 8 { 0 } else { tid(thread) });
    CONTINUE
}

#[test]
fn lanes_outside_their_mask_do_not_hang() {
    run(launch(outsider, 32), &cells(1)).unwrap();
}
