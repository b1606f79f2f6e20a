//! Barriers and warp operations that cannot complete, and threads that leave where others wait.

use super::*;

pub fn cases() -> Vec<Case> {
    let wait = |name: &str, answer, body: &str| {
        case(format!("wait/{name}"), answer, kernel("", body)).grid(2, 64)
    };
    vec![
        wait(
            "different_barriers",
            LAUNCH_FAILED,
            "setp.lt.u32 %p1, %t, 32; @%p1 bra $one; bar.sync 1; bra $end; $one: bar.sync 2; $end:",
        ),
        wait("more_than_there_are", LAUNCH_FAILED, "bar.sync 1, 96;"),
        wait(
            "half_arrive",
            LAUNCH_FAILED,
            "setp.lt.u32 %p1, %t, 32; @%p1 bar.arrive 3, 96; @!%p1 bar.sync 3, 96;",
        ),
        wait(
            "a_producer_that_never_comes",
            LAUNCH_FAILED,
            "setp.ge.u32 %p1, %t, 32; @%p1 ret; bar.sync 5, 64;",
        ),
        // What PTX leaves open: an end is all that is asked for.
        wait("count_is_no_multiple", SUCCESS, "mov.u32 %r1, 33; bar.sync 1, %r1;"),
        wait("count_of_nothing", SUCCESS, "mov.u32 %r1, 0; bar.sync 1, %r1;"),
        wait("mask_without_itself", SUCCESS, "mov.u32 %r1, 0; bar.warp.sync %r1;"),
        wait("no_such_barrier", LAUNCH_FAILED, "mov.u32 %r1, 99; bar.sync %r1;"),
        wait("negative_barrier", LAUNCH_FAILED, "mov.u32 %r1, -1; bar.sync %r1, 64;"),
        // Threads that have ended are not waited for.
        wait(
            "others_have_left",
            SUCCESS,
            "setp.ge.u32 %p1, %t, 40; @%p1 exit; bar.sync 0; st.global.u32 [%a], 9;",
        )
        .result(9),
        wait(
            "one_is_left",
            SUCCESS,
            "setp.ne.u32 %p1, %t, 0; @%p1 exit; bar.sync 0; bar.sync 0; st.global.u32 [%a], 9;",
        )
        .result(9),
        wait(
            "exit_in_a_loop_with_barriers",
            SUCCESS,
            "mov.u32 %r1, 0; $more: bar.sync 0; setp.eq.u32 %p1, %r1, %t; @%p1 exit; add.u32 %r1, %r1, 1; bra $more;",
        ),
        wait(
            "warp_lane_at_a_barrier",
            LAUNCH_FAILED,
            "setp.eq.u32 %p1, %t, 3; @%p1 bra $apart; bar.warp.sync -1; bar.sync 0; bra $end; $apart: bar.sync 0; $end:",
        ),
        wait(
            "shuffle_without_a_lane",
            LAUNCH_FAILED,
            "setp.eq.u32 %p1, %t, 3; @%p1 bra $apart; shfl.sync.idx.b32 %r1, %t, 0, 31, -1; bar.sync 0; bra $end;
             $apart: bar.sync 0; $end:",
        ),
        wait(
            "vote_and_shuffle",
            LAUNCH_FAILED,
            "setp.eq.u32 %p1, %t, 3; @%p1 bra $apart; vote.sync.ballot.b32 %r1, %p1, -1; bra $end;
             $apart: shfl.sync.idx.b32 %r1, %t, 0, 31, -1; $end:",
        ),
        wait(
            "barrier_in_divergent_recursion",
            SUCCESS,
            "mov.u32 %r1, 0; $more: setp.gt.u32 %p1, %r1, %t; @%p1 exit; add.u32 %r1, %r1, 1; bar.warp.sync 0; bra $more;",
        ),
        wait(
            "fault_while_others_wait",
            ILLEGAL_ADDRESS,
            "setp.eq.u32 %p1, %t, 63; @%p1 st.global.u32 [%b], 1; bar.sync 0;",
        )
        .grid(100, 64),
        wait(
            "full_block",
            LAUNCH_FAILED,
            "setp.eq.u32 %p1, %t, 1000; @%p1 bra $apart; bar.sync 0; bra $end; $apart: bar.sync 1; $end:",
        )
        .grid(8, 1024),
        // Polling for what a faulting thread would have written.
        case(
            "wait/polls_for_a_fault",
            ILLEGAL_ADDRESS,
            kernel(
                "",
                "setp.eq.u32 %p1, %t, 31; @%p1 st.global.u32 [%b], 1;
                 $more: ld.volatile.global.u32 %r1, [%a]; setp.eq.u32 %p2, %r1, 0; @%p2 bra $more;",
            ),
        )
        .grid(4, 64),
        case(
            "wait/cooperative_fault",
            ILLEGAL_ADDRESS,
            kernel(
                "",
                "mov.u32 %r2, %ctaid.x; setp.eq.u32 %p1, %r2, 3; @%p1 st.global.u32 [%b], 1;
                 red.global.add.u32 [%a], 1;
                 $more: ld.acquire.gpu.global.u32 %r1, [%a]; setp.lt.u32 %p2, %r1, 256; @%p2 bra $more;",
            ),
        )
        .grid(8, 32)
        .cooperative(),
        case(
            "wait/cooperative_trap",
            LAUNCH_FAILED,
            kernel(
                "",
                "mov.u32 %r2, %ctaid.x; setp.eq.u32 %p1, %r2, 0; @%p1 trap; red.global.add.u32 [%a], 1;
                 $more: nanosleep.u32 100; ld.volatile.global.u32 %r1, [%a]; setp.lt.u32 %p2, %r1, 256; @%p2 bra $more;",
            ),
        )
        .grid(8, 32)
        .cooperative(),
    ]
}
