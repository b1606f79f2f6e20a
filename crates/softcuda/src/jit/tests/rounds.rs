//! Kernels that run in rounds: what threads keep across a barrier, who may end when, and which
//! kernels run so at all.

use crate::grid::context::Mode;
use crate::grid::launch::{Fault, FaultKind};
use crate::jit::harness::{self, buffer, module};
use crate::jit::module::Form;

/// A kernel `k(.u64 out)`, where `%rd2` is the address of the thread's own word and `%r1` its
/// number.
fn kernel(body: &str) -> String {
    // Where local memory is declared, threads do not run in vectors.
    let own = match body.contains("own") {
        true => ".local .align 16 .b8 own[64];",
        false => "",
    };
    module(&format!(
        ".extern .func (.param .b32 status) vprintf (.param .b64 format, .param .b64 arguments);
        .func (.param .u32 to) twice(.param .u32 from)
        {{
            .reg .b32 %r<4>;
            .local .align 4 .b8 here[16];
            ld.param.u32 %r1, [from];
            st.local.u32 [here+8], %r1;
            ld.local.u32 %r2, [here+8];
            add.u32 %r2, %r2, %r1;
            st.param.u32 [to], %r2;
            ret;
        }}
        .func (.param .u64 to) place()
        {{
            .reg .b64 %rd<4>;
            .local .align 16 .b8 there[512];
            mov.u64 %rd1, there;
            cvta.local.u64 %rd2, %rd1;
            st.param.u64 [to], %rd2;
            ret;
        }}
        .func meets()
        {{
            bar.sync 0;
            ret;
        }}
        .func polls()
        {{
            .reg .b32 %r<2>;
            .shared .align 4 .b8 seen[4];
            ld.volatile.shared.u32 %r1, [seen];
            ret;
        }}
        .visible .entry k(.param .u64 out)
        {{
            .reg .pred %p<8>;
            .reg .b16 %h<8>;
            .reg .b32 %r<32>;
            .reg .f32 %f<8>;
            .reg .f64 %d<8>;
            .reg .b64 %rd<16>;
            .reg .b128 %q<4>;
            .shared .align 4 .b8 s[4096];
            {own}
            ld.param.u64 %rd1, [out];
            mov.u32 %r1, %tid.x;
            mov.u32 %r2, %tid.y; mov.u32 %r3, %ntid.x; mad.lo.u32 %r1, %r2, %r3, %r1;
            mov.u32 %r2, 0; mov.u32 %r3, 0;
            mul.wide.u32 %rd3, %r1, 4;
            add.s64 %rd2, %rd1, %rd3;
            {body}
            ret;
        }}"
    ))
}

fn mode(body: &str) -> Mode {
    let module = harness::load(&kernel(body));
    module.kernel("k").unwrap().compile().unwrap().mode
}

fn run<const N: usize>(body: &str, block: [u32; 3]) -> [u32; N] {
    assert_eq!(mode(body), Mode::Rounds);
    let mut data = [0u32; N];
    harness::run(
        &kernel(body),
        "k",
        [1; 3],
        block,
        &mut [buffer(&mut data)],
        &[],
    )
    .unwrap();
    data
}

#[test]
fn registers_of_every_type_are_kept() {
    let data: [u32; 96] = run(
        "setp.gt.u32 %p1, %r1, 40;
        cvt.u16.u32 %h1, %r1;
        cvt.rn.f32.u32 %f1, %r1;
        cvt.rn.f64.u32 %d1, %r1;
        cvt.u64.u32 %rd5, %r1;
        mov.b128 %q1, {%rd5, %rd5};
        bar.sync 0;
        mov.b128 {%rd6, %rd7}, %q1;
        cvt.u32.u64 %r2, %rd7;
        cvt.rzi.u32.f64 %r3, %d1;
        cvt.rzi.u32.f32 %r4, %f1;
        cvt.u32.u16 %r5, %h1;
        add.u32 %r6, %r2, %r3;
        add.u32 %r6, %r6, %r4;
        add.u32 %r6, %r6, %r5;
        @%p1 add.u32 %r6, %r6, 1000;
        st.global.u32 [%rd2], %r6;",
        [96, 1, 1],
    );
    for (thread, got) in (0..).zip(data) {
        assert_eq!(got, 4 * thread + if thread > 40 { 1000 } else { 0 });
    }
}

#[test]
fn a_guarded_write_keeps_the_old_value() {
    let data: [u32; 64] = run(
        "mov.u32 %r2, 5;
        setp.lt.u32 %p1, %r1, 32;
        bar.sync 0;
        @%p1 mov.u32 %r2, 7;
        bar.sync 0;
        st.global.u32 [%rd2], %r2;",
        [64, 1, 1],
    );
    for (thread, got) in data.into_iter().enumerate() {
        assert_eq!(got, if thread < 32 { 7 } else { 5 });
    }
}

#[test]
fn the_carry_flag_is_kept() {
    let data: [u32; 32] = run(
        "sub.u32 %r2, 0, %r1;
        add.cc.u32 %r3, %r2, %r1;
        bar.sync 0;
        addc.u32 %r4, 10, 0;
        st.global.u32 [%rd2], %r4;",
        [32, 1, 1],
    );
    // -t + t carries for every t but 0.
    for (thread, got) in data.into_iter().enumerate() {
        assert_eq!(got, if thread == 0 { 10 } else { 11 });
    }
}

#[test]
fn local_memory_is_each_threads_own() {
    let data: [u32; 64] = run(
        "mov.u32 %r2, 0;
        st.local.u32 [own+12], %r1;
        again:
        bar.sync 0;
        ld.local.u32 %r3, [own+12];
        add.u32 %r3, %r3, 1;
        st.local.u32 [own+12], %r3;
        add.u32 %r2, %r2, 1;
        setp.lt.u32 %p1, %r2, 20;
        @%p1 bra again;
        bar.sync 0;
        ld.local.u32 %r4, [own+12];
        st.global.u32 [%rd2], %r4;",
        [64, 1, 1],
    );
    for (thread, got) in (0..).zip(data) {
        assert_eq!(got, thread + 20);
    }
}

#[test]
fn arguments_of_a_call_are_kept_and_callees_have_frames() {
    let data: [u32; 64] = run(
        "{
            .param .u32 from;
            .param .u32 to;
            st.param.u32 [from], %r1;
            bar.sync 0;
            call.uni (to), twice, (from);
            bar.sync 0;
            ld.param.u32 %r2, [to];
        }
        st.global.u32 [%rd2], %r2;",
        [64, 1, 1],
    );
    for (thread, got) in (0..).zip(data) {
        assert_eq!(got, 2 * thread);
    }
}

#[test]
fn threads_end_in_different_rounds() {
    // Thread t stays for t rounds; each round counts those that are left.
    let data: [u32; 40] = run(
        "mov.u32 %r2, 0;
        mov.u32 %r5, 0;
        again:
        setp.ge.u32 %p1, %r2, %r1;
        @%p1 bra done;
        add.u32 %r2, %r2, 1;
        setp.ne.u32 %p2, %r1, 99;
        bar.red.popc.u32 %r3, 0, %p2;
        add.u32 %r5, %r5, %r3;
        bra again;
        done:
        st.global.u32 [%rd2], %r5;",
        [40, 1, 1],
    );
    for (thread, got) in (0..).zip(data) {
        // In round n, threads above n are there.
        let expected: u32 = (0..thread).map(|round| 39 - round).sum();
        assert_eq!(got, expected, "thread {thread}");
    }
}

#[test]
fn threads_meet_at_different_instructions() {
    let data: [u32; 64] = run(
        "shl.b32 %r2, %r1, 2;
        mov.u32 %r3, s;
        add.u32 %r2, %r2, %r3;
        st.shared.u32 [%r2], %r1;
        setp.lt.u32 %p1, %r1, 20;
        @%p1 bra first;
        barrier.sync 0;
        bra both;
        first:
        bar.sync 0;
        both:
        sub.u32 %r4, 63, %r1;
        shl.b32 %r4, %r4, 2;
        add.u32 %r4, %r4, %r3;
        ld.shared.u32 %r5, [%r4];
        st.global.u32 [%rd2], %r5;",
        [64, 1, 1],
    );
    for (thread, got) in (0..).zip(data) {
        assert_eq!(got, 63 - thread);
    }
}

#[test]
fn barriers_reduce_over_those_that_bring_a_predicate() {
    let data: [u32; 48] = run(
        "setp.lt.u32 %p1, %r1, 10;
        setp.lt.u32 %p2, %r1, 100;
        bar.red.popc.u32 %r2, 0, %p1;
        bar.sync 0;
        bar.red.and.pred %p3, 0, %p1;
        bar.red.and.pred %p4, 0, %p2;
        bar.red.or.pred %p5, 0, %p1;
        bar.red.or.pred %p6, 0, !%p2;
        selp.u32 %r3, 100, 0, %p3;
        selp.u32 %r4, 200, 0, %p4;
        selp.u32 %r5, 400, 0, %p5;
        selp.u32 %r6, 800, 0, %p6;
        add.u32 %r2, %r2, %r3;
        add.u32 %r2, %r2, %r4;
        add.u32 %r2, %r2, %r5;
        add.u32 %r2, %r2, %r6;
        st.global.u32 [%rd2], %r2;",
        [48, 1, 1],
    );
    assert_eq!(data, [610; 48]);
}

#[test]
fn a_thread_knows_where_it_is_after_a_barrier() {
    let data: [u32; 30] = run(
        "bar.sync 0;
        mov.u32 %r2, %tid.y;
        mov.u32 %r3, %tid.x;
        mov.u32 %r4, %laneid;
        mad.lo.u32 %r5, %r2, 100, %r3;
        mad.lo.u32 %r5, %r4, 10000, %r5;
        st.global.u32 [%rd2], %r5;",
        [5, 6, 1],
    );
    for (thread, got) in (0..).zip(data) {
        assert_eq!(got, thread * 10000 + thread / 5 * 100 + thread % 5);
    }
}

#[test]
fn a_register_that_nothing_has_written_is_zero_in_every_block() {
    let body = "setp.eq.u32 %p1, %r1, 3;
        @!%p1 bra skip;
        mov.u32 %r9, 77;
        skip:
        bar.sync 0;
        add.u32 %r10, %r9, %r10;
        red.global.add.u32 [%rd2], %r10;
        mov.u32 %r10, 5;";
    let mut data = [0u32; 8];
    let source = kernel(body);
    harness::run(
        &source,
        "k",
        [50, 1, 1],
        [8, 1, 1],
        &mut [buffer(&mut data)],
        &[],
    )
    .unwrap();
    assert_eq!(data, [0, 0, 0, 50 * 77, 0, 0, 0, 0]);
}

#[test]
fn a_fault_after_a_barrier_names_its_thread() {
    let body = "mov.u32 %r2, %ctaid.x;
        setp.eq.u32 %p1, %r2, 1;
        setp.eq.and.u32 %p3, %r1, 5, %p1;
        mov.u32 %r3, 0;
        again:
        bar.sync 0;
        add.u32 %r3, %r3, 1;
        setp.lt.u32 %p2, %r3, 100;
        @%p2 bra again;
        mov.u64 %rd4, 16;
        @%p3 st.global.u32 [%rd4], %r1;
        bar.sync 0;";
    assert_eq!(mode(body), Mode::Rounds);
    let mut data = [0u32; 8];
    let fault = harness::run(
        &kernel(body),
        "k",
        [2, 1, 1],
        [8, 1, 1],
        &mut [buffer(&mut data)],
        &[],
    )
    .unwrap_err();
    assert_eq!(fault.kind, FaultKind::IllegalAddress);
    assert_eq!((fault.block, fault.thread), ([1, 0, 0], Some([5, 0, 0])));
}

#[test]
fn who_runs_in_rounds() {
    for (body, expected) in [
        ("", Mode::Loop),
        ("bar.sync 0;", Mode::Rounds),
        ("barrier.sync.aligned 3; bar.sync 3;", Mode::Rounds),
        // Several barriers, and not for all threads.
        ("bar.sync 0; bar.sync 1;", Mode::Rounds),
        ("bar.sync 0, 32;", Mode::Rounds),
        ("bar.arrive 0, 32;", Mode::Rounds),
        ("bar.sync %r1;", Mode::Rounds),
        // Operations of a warp.
        ("bar.sync 0; bar.warp.sync -1;", Mode::Rounds),
        ("shfl.sync.idx.b32 %r2, %r1, 0, 31, -1;", Mode::Rounds),
        ("activemask.b32 %r2;", Mode::Rounds),
        // Of a cluster.
        (
            "barrier.cluster.arrive; bar.sync 0; barrier.cluster.wait;",
            Mode::Fibers,
        ),
        // In a function of its own.
        ("call meets, ();", Mode::Fibers),
        ("bar.sync 0; call meets, ();", Mode::Fibers),
        ("again: call polls, (); setp.eq.u32 %p1, %r1, 99; @%p1 bra again;", Mode::Fibers),
        // A wait for another thread's write, also where the loop is entered from above by falling
        // through.
        (
            "bar.sync 0; again: ld.volatile.global.u32 %r3, [%rd1]; setp.eq.u32 %p1, %r3, 0; @%p1 bra again;",
            Mode::Rounds,
        ),
        (
            "bar.sync 0; again: setp.eq.u32 %p2, %r1, 9; @%p2 bra done; look: ld.volatile.global.u32 %r3, [%rd1];
             setp.eq.u32 %p1, %r3, 0; @%p1 bra again; done:",
            Mode::Rounds,
        ),
    ] {
        assert_eq!(mode(body), expected, "{body}");
    }
}

/// What a kernel leaves behind in rounds, which is also what it does as fibers.
fn both<const N: usize>(body: &str, block: [u32; 3]) -> Result<[u32; N], Fault> {
    let [vectors, rounds, fibers] = [Form::Vectors, Form::Rounds, Form::Fibers].map(|form| {
        let module = harness::load_as(&kernel(body), form);
        let mode = module.kernel("k").unwrap().compile().unwrap().mode;
        assert_eq!(mode == Mode::Fibers, form == Form::Fibers);
        let mut data = [0u32; N];
        harness::run_in(
            &module,
            "k",
            [1; 3],
            block,
            0,
            &mut [buffer(&mut data)],
            &[],
        )
        .map(|()| data)
    });
    for other in [&vectors, &rounds] {
        match (other, &fibers) {
            (Ok(other), Ok(fibers)) => assert_eq!(other, fibers),
            (Err(other), Err(fibers)) => {
                assert_eq!(
                    (other.kind, other.block, other.thread, &other.detail),
                    (fibers.kind, fibers.block, fibers.thread, &fibers.detail)
                );
            }
            _ => panic!("{other:?} in vectors or rounds, {fibers:?} as fibers"),
        }
    }
    rounds
}

#[test]
fn halves_of_a_warp_shuffle_apart() {
    let data: [u32; 64] = both(
        "and.b32 %r2, %r1, 31;
        setp.lt.u32 %p1, %r2, 16;
        @%p1 bra low;
        shfl.sync.up.b32 %r3|%p2, %r1, 1, 0x1000, 0xffff0000;
        @!%p2 mov.u32 %r3, 1000;
        bra met;
        low:
        shfl.sync.down.b32 %r3, %r1, 3, 15, 0xffff;
        add.u32 %r3, %r3, 500;
        met:
        bar.warp.sync -1;
        st.global.u32 [%rd2], %r3;",
        [64, 1, 1],
    )
    .unwrap();
    for (thread, got) in (0..).zip(data) {
        let expected = match thread % 32 {
            0..13 => thread + 3 + 500,
            13..16 => thread + 500,
            16 => 1000,
            _ => thread - 1,
        };
        assert_eq!(got, expected, "thread {thread}");
    }
}

#[test]
fn a_loop_of_all_lanes_sums_by_shuffles() {
    let data: [u32; 96] = both(
        "mov.u32 %r2, 16;
        mov.u32 %r3, %r1;
        again:
        shfl.sync.bfly.b32 %r4, %r3, %r2, 31, -1;
        add.u32 %r3, %r3, %r4;
        shr.u32 %r2, %r2, 1;
        setp.ne.u32 %p1, %r2, 0;
        @%p1 bra again;
        st.global.u32 [%rd2], %r3;",
        [96, 1, 1],
    )
    .unwrap();
    for (thread, got) in (0..).zip(data) {
        assert_eq!(got, 496 + thread / 32 * 1024);
    }
}

#[test]
fn lanes_leave_a_loop_of_shuffles_at_different_times() {
    // Lane n goes round n times; those that are left agree on who they are.
    let data: [u32; 40] = both(
        "and.b32 %r2, %r1, 31;
        mov.u32 %r3, -1;
        mov.u32 %r4, 0;
        mov.u32 %r5, 0;
        again:
        setp.lt.u32 %p1, %r4, %r2;
        vote.sync.ballot.b32 %r3, %p1, %r3;
        @!%p1 bra done;
        redux.sync.add.u32 %r6, %r2, %r3;
        add.u32 %r5, %r5, %r6;
        add.u32 %r4, %r4, 1;
        bra again;
        done:
        st.global.u32 [%rd2], %r5;",
        [40, 1, 1],
    )
    .unwrap();
    for (thread, got) in (0..40).zip(data) {
        let (lane, lanes) = (thread % 32, if thread < 32 { 32 } else { 8 });
        let round = |n: u32| (n + 1..lanes).sum::<u32>();
        assert_eq!(got, (0..lane).map(round).sum::<u32>(), "thread {thread}");
    }
}

#[test]
fn lanes_that_ended_are_not_waited_for() {
    let data: [u32; 64] = both(
        "and.b32 %r2, %r1, 1;
        setp.eq.u32 %p1, %r2, 1;
        @%p1 exit;
        vote.sync.ballot.b32 %r3, !%p1, -1;
        bar.sync 0;
        shfl.sync.down.b32 %r4, %r1, 1, 31, -1;
        shfl.sync.down.b32 %r5, %r1, 2, 31, -1;
        add.u32 %r4, %r4, %r5;
        add.u32 %r4, %r4, %r3;
        st.global.u32 [%rd2], %r4;",
        [64, 1, 1],
    )
    .unwrap();
    for (thread, got) in (0..64u32).zip(data) {
        let expected = match thread % 32 {
            lane if lane % 2 == 1 => 0,
            30 => 0x5555_5555 + 2 * thread,
            _ => 0x5555_5555 + 2 * thread + 2,
        };
        assert_eq!(got, expected, "thread {thread}");
    }
}

#[test]
fn a_lane_outside_its_mask_goes_on_alone() {
    let data: [u32; 32] = both(
        "shfl.sync.idx.b32 %r2|%p1, %r1, 3, 31, 0xff;
        selp.u32 %r3, 100, 0, %p1;
        add.u32 %r2, %r2, %r3;
        st.global.u32 [%rd2], %r2;",
        [32, 1, 1],
    )
    .unwrap();
    for (thread, got) in (0..).zip(data) {
        assert_eq!(got, 100 + if thread < 8 { 3 } else { thread });
    }
}

#[test]
fn a_guarded_shuffle_writes_where_its_guard_holds() {
    let data: [u32; 32] = both(
        "setp.lt.u32 %p1, %r1, 8;
        mov.u32 %r2, 7;
        @%p1 shfl.sync.bfly.b32 %r2, %r1, 1, 31, 0xff;
        st.global.u32 [%rd2], %r2;",
        [32, 1, 1],
    )
    .unwrap();
    for (thread, got) in (0..).zip(data) {
        assert_eq!(got, if thread < 8 { thread ^ 1 } else { 7 });
    }
}

#[test]
fn producers_and_consumers_meet_at_named_barriers() {
    // Two warps fill, two warps drain; each item is handed over at one barrier and given back at
    // another.
    let data: [u32; 128] = both(
        "mov.u32 %r2, 0;
        mov.u32 %r7, 0;
        shl.b32 %r3, %r1, 2;
        and.b32 %r3, %r3, 255;
        mov.u32 %r4, s;
        add.u32 %r3, %r3, %r4;
        setp.lt.u32 %p1, %r1, 64;
        @!%p1 bar.arrive 2, 128;
        again:
        @!%p1 bra drain;
        bar.sync 2, 128;
        mad.lo.u32 %r5, %r1, 3, %r2;
        st.shared.u32 [%r3], %r5;
        bar.arrive 1, 128;
        bra next;
        drain:
        bar.sync 1, 128;
        ld.shared.u32 %r6, [%r3];
        add.u32 %r7, %r7, %r6;
        setp.eq.u32 %p3, %r2, 9;
        @!%p3 bar.arrive 2, 128;
        next:
        add.u32 %r2, %r2, 1;
        setp.lt.u32 %p2, %r2, 10;
        @%p2 bra again;
        st.global.u32 [%rd2], %r7;",
        [128, 1, 1],
    )
    .unwrap();
    for (thread, got) in (0..).zip(data) {
        assert_eq!(
            got,
            if thread < 64 {
                0
            } else {
                (thread - 64) * 30 + 45
            }
        );
    }
}

#[test]
fn a_block_sums_by_shuffles_and_a_barrier() {
    let data: [u32; 200] = both(
        "mov.u32 %r2, %r1;
        shfl.sync.down.b32 %r3|%p1, %r2, 16, 31, -1;
        @%p1 add.u32 %r2, %r2, %r3;
        shfl.sync.down.b32 %r3|%p1, %r2, 8, 31, -1;
        @%p1 add.u32 %r2, %r2, %r3;
        shfl.sync.down.b32 %r3|%p1, %r2, 4, 31, -1;
        @%p1 add.u32 %r2, %r2, %r3;
        shfl.sync.down.b32 %r3|%p1, %r2, 2, 31, -1;
        @%p1 add.u32 %r2, %r2, %r3;
        shfl.sync.down.b32 %r3|%p1, %r2, 1, 31, -1;
        @%p1 add.u32 %r2, %r2, %r3;
        shr.u32 %r4, %r1, 5;
        and.b32 %r5, %r1, 31;
        setp.eq.u32 %p2, %r5, 0;
        mov.u32 %r6, s;
        mad.lo.u32 %r7, %r4, 4, %r6;
        @%p2 st.shared.u32 [%r7], %r2;
        bar.sync 0;
        setp.ge.u32 %p3, %r1, 32;
        @%p3 bra both;
        mad.lo.u32 %r7, %r5, 4, %r6;
        mov.u32 %r2, 0;
        setp.lt.u32 %p4, %r5, 6;
        @%p4 ld.shared.u32 %r2, [%r7];
        redux.sync.add.u32 %r2, %r2, -1;
        @%p2 st.shared.u32 [%r6], %r2;
        both:
        bar.sync 1;
        ld.shared.u32 %r8, [%r6];
        st.global.u32 [%rd2], %r8;",
        [200, 1, 1],
    )
    .unwrap();
    assert_eq!(data, [(0..192).sum::<u32>(); 200]);
}

#[test]
fn registers_that_change_places_between_waits() {
    let data: [u32; 32] = both(
        "mov.u32 %r2, %r1;
        mul.lo.u32 %r3, %r1, %r1;
        mov.u32 %r6, 0;
        again:
        bar.sync 0;
        mov.u32 %r4, %r2;
        mov.u32 %r2, %r3;
        mov.u32 %r3, %r4;
        bar.warp.sync -1;
        add.u32 %r6, %r6, 1;
        setp.lt.u32 %p1, %r6, 5;
        @%p1 bra again;
        mad.lo.u32 %r5, %r2, 100, %r3;
        st.global.u32 [%rd2], %r5;",
        [32, 1, 1],
    )
    .unwrap();
    for (thread, got) in (0..).zip(data) {
        assert_eq!(got, thread * thread * 100 + thread);
    }
}

#[test]
fn what_is_computed_anew_is_what_it_was() {
    // Nothing of %r2 to %r6 needs to be kept, and %r7 must be: one way round it is not written.
    let data: [u32; 64] = both(
        "mov.u32 %r2, 1000;
        mov.u32 %r3, %ntid.x;
        shl.b32 %r4, %r1, 3;
        add.u32 %r5, %r4, %r2;
        setp.lt.u32 %p1, %r1, 10;
        @%p1 bra over;
        mov.u32 %r7, 5;
        over:
        bar.sync 0;
        mov.u32 %r8, 0;
        again:
        mov.u32 %r6, 3;
        bar.sync 0;
        add.u32 %r8, %r8, %r6;
        setp.lt.u32 %p2, %r8, 9;
        @%p2 bra again;
        add.u32 %r9, %r5, %r3;
        add.u32 %r9, %r9, %r7;
        add.u32 %r9, %r9, %r8;
        st.global.u32 [%rd2], %r9;",
        [64, 1, 1],
    )
    .unwrap();
    for (thread, got) in (0..).zip(data) {
        let kept = if thread < 10 { 0 } else { 5 };
        assert_eq!(got, 8 * thread + 1000 + 64 + kept + 9);
    }
}

#[test]
fn threads_that_wait_for_ever_are_the_same_deadlock() {
    for (body, detail) in [
        (
            "setp.lt.u32 %p1, %r1, 16;
            @%p1 bar.sync 1, 64;
            @!%p1 bar.sync 2, 64;",
            "0 of 64 threads have ended; 16 wait at barrier 1; 48 wait at barrier 2",
        ),
        (
            "setp.lt.u32 %p1, %r1, 40;
            @%p1 bra skip;
            bar.warp.sync -1;
            skip:
            bar.sync 0;",
            "0 of 64 threads have ended; 40 wait at barrier 0; \
             in warp 1 lanes 0xffffff00 wait in Sync with mask 0xffffffff",
        ),
        (
            "setp.lt.u32 %p1, %r1, 3;
            @%p1 exit;
            setp.eq.u32 %p1, %r1, 7;
            selp.b32 %r2, 0xff, 0xf0, %p1;
            redux.sync.add.u32 %r3, %r1, %r2;
            bar.sync 4, 96;",
            "3 of 64 threads have ended; 57 wait at barrier 4; \
             in warp 0 lanes 0x00000070 wait in ReduxAdd with mask 0x000000f0, \
             lanes 0x00000080 wait in ReduxAdd with mask 0x000000ff",
        ),
    ] {
        let fault = both::<64>(body, [64, 1, 1]).unwrap_err();
        assert_eq!((fault.kind, &*fault.detail), (FaultKind::Deadlock, detail));
    }
}

#[test]
fn a_barrier_that_does_not_exist_is_one_threads_fault() {
    let body = "setp.eq.u32 %p1, %r1, 37; selp.u32 %r2, 16, 3, %p1; bar.sync %r2;";
    let fault = both::<64>(body, [64, 1, 1]).unwrap_err();
    assert_eq!(fault.kind, FaultKind::Trap);
    assert_eq!(fault.thread, Some([37, 0, 0]));
}

#[test]
fn blocks_of_rounds_follow_each_other_whatever_was_left_behind() {
    // Every block leaves arrivals at a barrier behind, and lanes with results.
    let body = "bar.arrive 5, 128;
        vote.sync.ballot.b32 %r2, %p7, -1;
        bar.red.popc.u32 %r3, 0, !%p7;
        add.u32 %r3, %r3, %r2;
        red.global.add.u32 [%rd2], %r3;";
    let mut data = [0u32; 64];
    harness::run(
        &kernel(body),
        "k",
        [30, 1, 1],
        [64, 1, 1],
        &mut [buffer(&mut data)],
        &[],
    )
    .unwrap();
    assert_eq!(data, [30 * 64; 64]);
}

#[test]
fn a_warp_that_is_not_full_decides() {
    let data: [u32; 24] = both(
        "setp.ge.u32 %p1, %r1, 14;
        vote.sync.ballot.b32 %r3, %p1, -1;
        @!%p1 bra other;
        add.u32 %r4, %r1, 5;
        redux.sync.xor.b32 %r4, %r4, %r3;
        bra met;
        other:
        mov.u32 %r4, 7;
        met:
        st.global.u32 [%rd2], %r4;",
        [24, 1, 1],
    )
    .unwrap();
    for (thread, got) in (0..24).zip(data) {
        assert_eq!(
            got,
            if thread < 14 {
                7
            } else {
                (19..29).fold(0, |a, b| a ^ b)
            }
        );
    }
}

/// Where an index wraps between neighbours, they go on one by one, and so do all threads of the
/// block from then on: to a wait, to a loop, or to a branch.
#[test]
fn groups_that_part_for_good_still_meet_the_others() {
    let bodies = [
        "shfl.sync.bfly.b32 %r4, %r3, 1, 31, -1; add.u32 %r3, %r3, %r4;",
        "mov.u32 %r5, 0; again: add.u32 %r5, %r5, 1; shfl.sync.bfly.b32 %r4, %r3, 1, 31, -1;
        add.u32 %r3, %r3, %r4; setp.lt.u32 %p1, %r5, 3; @%p1 bra again; add.u32 %r3, %r3, %r5;",
        "setp.lt.u32 %p1, %r1, 32; @%p1 bra skip; shfl.sync.bfly.b32 %r4, %r3, 1, 31, -1;
        add.u32 %r3, %r3, %r4; skip: add.u32 %r3, %r3, 1;",
        "setp.ge.u32 %p1, %r1, 32; @%p1 bra go; bra skip; go:
        shfl.sync.bfly.b32 %r4, %r3, 1, 31, -1; mov.u32 %r3, %r4; skip: add.u32 %r3, %r3, 1;",
    ];
    for body in bodies {
        let data: [u32; 64] = both(
            &format!(
                ".reg .b64 %wide, %high; .shared .align 4 .b8 tile[256];
                sub.u32 %r2, %r1, 35;
                cvt.u64.u32 %wide, %r2;
                shr.u64 %high, %wide, 7;
                cvt.u32.u64 %r3, %high;
                add.u32 %r3, %r3, %r1;
                {body}
                shl.b32 %r5, %r1, 2;
                mov.u32 %r6, tile;
                add.u32 %r6, %r6, %r5;
                st.shared.u32 [%r6], %r3;
                bar.sync 0;
                xor.b32 %r5, %r5, 128;
                mov.u32 %r6, tile;
                add.u32 %r6, %r6, %r5;
                ld.shared.u32 %r4, [%r6];
                mad.lo.u32 %r3, %r3, 7, %r4;
                st.global.u32 [%rd2], %r3;"
            ),
            [64, 1, 1],
        )
        .unwrap();
        let first = |thread: u32| (thread.wrapping_sub(35) >> 7).wrapping_add(thread);
        if body == bodies[0] {
            let sum = |thread: u32| first(thread).wrapping_add(first(thread ^ 1));
            for (thread, got) in (0..64).zip(data) {
                let expected = sum(thread).wrapping_mul(7).wrapping_add(sum(thread ^ 32));
                assert_eq!(got, expected, "thread {thread}");
            }
        }
    }
}

/// A thread's local memory is nobody else's, though all lie side by side: who reaches for another's
/// by a generic address faults, also where the other has just been at the same instruction.
#[test]
fn local_memory_is_nobody_elses() {
    let access = |access: &str, first: &str, other: &str| {
        let fault = both::<64>(
            &format!(
                "mov.u64 %rd4, own;
                cvta.local.u64 %rd5, %rd4;
                mov.u64 %rd6, s;
                setp.eq.u32 %p1, %r1, {first};
                @%p1 st.shared.u64 [%rd6], %rd5;
                bar.sync 0;
                ld.shared.u64 %rd7, [%rd6];
                setp.eq.u32 %p2, %r1, {other};
                mov.u32 %r2, 0;
                mov.u64 %rd8, %rd5;
                again:
                {access}
                bar.sync 0;
                @%p2 mov.u64 %rd8, %rd7;
                add.u32 %r2, %r2, 1;
                setp.lt.u32 %p3, %r2, 2;
                @%p3 bra again;
                st.global.u32 [%rd2], %r3;"
            ),
            [64, 1, 1],
        );
        let fault = fault.expect_err(access);
        assert_eq!(fault.kind, FaultKind::IllegalAddress, "{access}");
        let thread = other.parse().unwrap();
        assert_eq!(fault.thread, Some([thread, 0, 0]), "{access}");
    };
    for (first, other) in [
        ("0", "1"),
        ("4", "5"),
        ("31", "32"),
        ("40", "41"),
        ("2", "63"),
    ] {
        access("ld.u32 %r3, [%rd8];", first, other);
        access("st.u32 [%rd8+8], %r1;", first, other);
        access("ld.v4.u32 {%r3, %r4, %r5, %r6}, [%rd8+16];", first, other);
        access("st.v2.u64 [%rd8], {%rd8, %rd8};", first, other);
        access(
            "ld.u32 %r3, [%rd8]; ld.u32 %r4, [%rd8+4]; ld.u32 %r5, [%rd8+60];",
            first,
            other,
        );
        access("ld.volatile.u32 %r3, [%rd8];", first, other);
        access("atom.add.u32 %r3, [%rd8], 1;", first, other);
        // Each in its own way, but no further than the next thread's.
        access(
            "@!%p2 bra own_way; ld.u8 %r3, [%rd8]; own_way: ld.u32 %r3, [%rd8];",
            first,
            other,
        );
    }
}

/// The same where threads compute the address, and find a neighbour's memory below or above theirs.
#[test]
fn local_memory_ends_where_it_ends() {
    // What the harness gives each thread, and what lies between them.
    let distances = [
        -4,
        -64,
        -128,
        -16384,
        -16448,
        16384,
        16400,
        16448,
        1 << 31,
        -(1i64 << 32),
    ];
    for distance in distances {
        for (access, local) in [
            ("ld.u32 %r3, [%rd9];", false),
            ("st.v4.u32 [%rd9], {%r1, %r1, %r1, %r1};", false),
            ("ld.local.u32 %r3, [%rd9];", true),
            ("st.local.v2.u64 [%rd9], {%rd4, %rd4};", true),
            ("ld.local.u32 %r3, [%r9];", true),
            ("st.local.u32 [%r9], %r3;", true),
        ] {
            // 32 bits do not reach further.
            if access.contains("r9")
                && !access.contains("rd9")
                && distance.unsigned_abs() >> 31 != 0
            {
                continue;
            }
            let base = if local { "%rd4" } else { "%rd5" };
            let result = both::<64>(
                &format!(
                    "mov.u64 %rd4, own;
                    cvta.local.u64 %rd5, %rd4;
                    mov.u32 %r2, 0;
                    mov.u64 %rd9, {base};
                    cvt.u32.u64 %r9, %rd9;
                    setp.eq.u32 %p2, %r1, 33;
                    again:
                    {access}
                    bar.sync 0;
                    @%p2 add.s64 %rd9, %rd9, {distance};
                    cvt.u32.u64 %r9, %rd9;
                    add.u32 %r2, %r2, 1;
                    setp.lt.u32 %p3, %r2, 2;
                    @%p3 bra again;
                    st.global.u32 [%rd2], %r3;"
                ),
                [64, 1, 1],
            );
            // Vectors are not aligned there.
            let misaligned = access.contains(".v") && distance == -4;
            let kind = match misaligned {
                true => FaultKind::Misaligned,
                false => FaultKind::IllegalAddress,
            };
            let fault = result.expect_err(access);
            assert_eq!(
                (fault.kind, fault.thread),
                (kind, Some([33, 0, 0])),
                "{access} {distance}"
            );
        }
    }
}

/// Neighbours that go on together, from one thread's local memory on: the first that is not that
/// thread ends it, and the thread alone may.
#[test]
fn a_row_in_one_threads_local_memory_is_not_its_neighbours() {
    for (owner, stride) in [(0, 4), (0, 0), (3, 0), (7, 0), (3, -4), (17, 4)] {
        for access in [
            "st.u32 [%rd7], %r1;",
            "ld.u32 %r3, [%rd7]; st.global.u32 [%rd2], %r3;",
        ] {
            for alone in [false, true] {
                let body = format!(
                    "mov.u64 %rd6, s;
                    setp.ne.u32 %p1, %r1, {owner};
                    @%p1 bra others;
                    {{
                        .param .u64 to;
                        call (to), place, ();
                        ld.param.u64 %rd5, [to];
                    }}
                    st.shared.u64 [%rd6], %rd5;
                    others:
                    bar.sync 0;
                    ld.shared.u64 %rd7, [%rd6];
                    sub.u32 %r4, %r1, {owner};
                    mul.wide.s32 %rd8, %r4, {stride};
                    add.u64 %rd7, %rd7, %rd8;
                    {} bra over;
                    {access}
                    over:",
                    if alone {
                        "@%p1"
                    } else {
                        "setp.eq.u32 %p2, %r1, 99; @%p2"
                    }
                );
                for form in [Form::Vectors, Form::Rounds, Form::Fibers] {
                    let module = harness::load_as(&kernel(&body), form);
                    let mut data = [0u32; 64];
                    let buffers = &mut [buffer(&mut data)];
                    let result = harness::run_in(&module, "k", [1; 3], [64, 1, 1], 0, buffers, &[]);
                    match result {
                        Ok(()) => assert!(alone, "{form:?} {owner} {stride} {access}"),
                        Err(fault) => {
                            assert!(!alone, "{form:?} {owner} {stride} {access}: {fault:?}");
                            assert_eq!(fault.kind, FaultKind::IllegalAddress);
                            assert_ne!(fault.thread, Some([owner, 0, 0]));
                        }
                    }
                }
            }
        }
    }
}
