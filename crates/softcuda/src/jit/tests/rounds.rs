//! Kernels that run in rounds: what threads keep across a barrier, who may end when, and which
//! kernels run so at all.

use crate::grid::context::Mode;
use crate::grid::launch::FaultKind;
use crate::jit::harness::{self, buffer, module};

/// A kernel `k(.u64 out)`, where `%rd2` is the address of the thread's own word and `%r1` its
/// number.
fn kernel(body: &str) -> String {
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
        .func meets()
        {{
            bar.sync 0;
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
            .local .align 4 .b8 own[64];
            ld.param.u64 %rd1, [out];
            mov.u32 %r1, %tid.x;
            mad.lo.u32 %r1, %tid.y, %ntid.x, %r1;
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
        // A wait for another thread's write, also where the loop is entered from above by falling
        // through.
        (
            "bar.sync 0; again: ld.volatile.global.u32 %r3, [%rd1]; setp.eq.u32 %p1, %r3, 0; @%p1 bra again;",
            Mode::Fibers,
        ),
        (
            "bar.sync 0; again: setp.eq.u32 %p2, %r1, 9; @%p2 bra done; look: ld.volatile.global.u32 %r3, [%rd1];
             setp.eq.u32 %p1, %r3, 0; @%p1 bra again; done:",
            Mode::Fibers,
        ),
    ] {
        assert_eq!(mode(body), expected, "{body}");
    }
}
