//! `mbarrier`, in all forms.

use super::forms;
use crate::grid::launch::FaultKind;
use crate::jit::harness::{self, module};
use crate::jit::module::Form;

/// One thread's results, word after word.
fn results(body: &str) -> Vec<u32> {
    forms::same(body, [1, 1, 1], 0).unwrap()
}

/// Leaves whether a test of the object at `%r4` succeeds.
fn test(at: &str, test: &str) -> String {
    format!("mbarrier.{test}; selp.u32 %r20, 1, 0, %p1; st.global.u32 [%rd1+{at}], %r20;")
}

/// As an H200 answered.
#[test]
fn phases_of_arrivals() {
    let parity = |at, parity| {
        test(
            at,
            &format!("test_wait.parity.shared.b64 %p1, [%r4], {parity}"),
        )
    };
    let state = |at, state| {
        test(
            at,
            &format!("test_wait.shared::cta.b64 %p1, [%r4], {state}"),
        )
    };
    let body = [
        "mov.u32 %r4, s; mbarrier.init.shared.b64 [%r4], 5;",
        &parity("4", 0),
        &parity("8", 1),
        "mbarrier.arrive.shared.b64 %rd4, [%r4];
        mbarrier.pending_count.b64 %r5, %rd4; st.global.u32 [%rd1+12], %r5;
        mbarrier.arrive.release.cta.shared::cta.b64 %rd5, [%r4], 3;
        mbarrier.pending_count.b64 %r5, %rd5; st.global.u32 [%rd1+16], %r5;
        mov.u32 %r19, 0; mbarrier.arrive.noComplete.shared.b64 _, [%r4], %r19;
        mbarrier.arrive.b64 %rd6, [s];
        mbarrier.pending_count.b64 %r5, %rd6; st.global.u32 [%rd1+20], %r5;",
        &state("24", "%rd4"),
        &state("28", "%rd6"),
        &parity("32", 0),
        &parity("36", 1),
        "mbarrier.arrive.relaxed.cluster.b64 %rd7, [s], 5;
        mbarrier.pending_count.b64 %r5, %rd7; st.global.u32 [%rd1+40], %r5;",
        &state("44", "%rd7"),
        &state("48", "%rd4"),
        &state("52", "%rd6"),
        &test(
            "56",
            "try_wait.parity.acquire.cta.shared::cta.b64 %p1, [%r4], 1, 100000",
        ),
        &test("60", "try_wait.relaxed.cluster.b64 %p1, [s], %rd4"),
        "mbarrier.inval.shared.b64 [%r4];",
    ];
    // A generic address of a shared variable is its offset plus a window's start.
    let body = body.concat().replace("[s]", "[%rd9]");
    let body = format!("mov.u64 %rd8, s; cvta.shared.u64 %rd9, %rd8; {body}");
    let got = results(&body);
    assert_eq!(got[1..16], [0, 1, 5, 4, 1, 1, 1, 1, 0, 5, 1, 0, 0, 1, 0]);
}

/// As an H200 answered.
#[test]
fn phases_of_bytes() {
    let parity = |at| test(at, "test_wait.parity.shared.b64 %p1, [%r4], 0");
    let body = [
        "mov.u32 %r4, s; mbarrier.init.shared.b64 [%r4], 2;
        mbarrier.expect_tx.relaxed.cta.shared::cta.b64 [%r4], 100;
        mbarrier.complete_tx.relaxed.cta.shared::cta.b64 [%r4], 40;
        mbarrier.arrive.shared.b64 %rd4, [%r4], 2;",
        &parity("4"),
        "mbarrier.complete_tx.shared::cta.b64 [%r4], 60;",
        &parity("8"),
        "mbarrier.expect_tx.relaxed.cluster.shared::cluster.b64 [%r4], 1048575;
        mbarrier.complete_tx.shared::cta.b64 [%r4], 1048575;
        mbarrier.complete_tx.shared::cta.b64 [%r4], 16;
        mbarrier.expect_tx.shared::cta.b64 [%r4], 16;
        mbarrier.arrive.expect_tx.release.cta.shared::cta.b64 %rd5, [%r4], 32;
        mbarrier.complete_tx.shared::cta.b64 [%r4], 32;",
        &parity("12"),
        "mbarrier.arrive.release.cluster.shared::cluster.b64 _, [%r4];",
        &parity("16"),
        // One of three drops out.
        "mbarrier.init.shared.b64 [%r4], 3;
        mbarrier.arrive_drop.shared.b64 %rd4, [%r4];
        mbarrier.arrive.shared.b64 %rd4, [%r4], 2;",
        &parity("20"),
        "mbarrier.arrive.shared.b64 %rd4, [%r4], 2;",
        &parity("24"),
        "mbarrier.arrive_drop.expect_tx.shared.b64 _, [%r4], 0;
        mov.u32 %r19, 0;
        mbarrier.arrive_drop.noComplete.release.cta.shared.b64 %rd4, [%r4], %r19;",
        // Copies arrive as they complete.
        "mbarrier.init.shared.b64 [%r4], 2;
        cp.async.ca.shared.global [%r4+64], [%rd2], 4;
        cp.async.mbarrier.arrive.shared.b64 [%r4];
        cp.async.mbarrier.arrive.noinc.shared::cta.b64 [%r4];",
        &parity("28"),
        "mbarrier.arrive.shared.b64 _, [%r4];",
        &parity("32"),
    ];
    let got = results(&body.concat());
    assert_eq!(got[1..9], [0, 1, 1, 0, 1, 0, 0, 1]);
}

/// All threads of a block meet, again and again, and read what others wrote before.
#[test]
fn threads_meet() {
    for wait in [
        "mbarrier.arrive.shared.b64 %rd6, [%r4];
        look: mbarrier.try_wait.shared.b64 %p2, [%r4], %rd6; @!%p2 bra look;",
        "and.b32 %r12, %r10, 1; mbarrier.arrive.shared.b64 _, [%r4];
        look: mbarrier.test_wait.parity.shared.b64 %p2, [%r4], %r12; @%p2 bra on; bra look; on:",
        // Only the first of each eight looks; the others wait for it.
        "and.b32 %r12, %r10, 1; mbarrier.arrive.shared.b64 _, [%r4];
        and.b32 %r13, %r1, 7; setp.ne.u32 %p3, %r13, 0; @%p3 bra on;
        look: mbarrier.try_wait.parity.shared.b64 %p2, [%r4], %r12; @!%p2 bra look;
        on: bar.sync 0;",
    ] {
        let body = format!(
            "mov.u32 %r4, s;
            setp.ne.u32 %p1, %r1, 0; @%p1 bra ready;
            mbarrier.init.shared.b64 [%r4], %r31;
            ready: bar.sync 0;
            mov.u32 %r10, 0;
            shl.b32 %r5, %r1, 2; add.u32 %r5, %r5, %r4;
            add.u32 %r6, %r1, 1; rem.u32 %r6, %r6, %r31; shl.b32 %r6, %r6, 2; add.u32 %r6, %r6, %r4;
            mov.u32 %r9, %r1;
            more:
            and.b32 %r14, %r10, 1; mul.lo.u32 %r14, %r14, 2048; add.u32 %r14, %r14, 64;
            add.u32 %r15, %r5, %r14; st.shared.u32 [%r15], %r9;
            {wait}
            add.u32 %r15, %r6, %r14; ld.shared.u32 %r9, [%r15];
            add.u32 %r10, %r10, 1; setp.lt.u32 %p4, %r10, 7; @%p4 bra more;"
        );
        for threads in [1u32, 8, 20, 32, 72, 256] {
            let got = forms::same(&body, [threads, 1, 1], 0).unwrap();
            for thread in 0..threads {
                assert_eq!(
                    got[thread as usize],
                    (thread + 7) % threads,
                    "{threads} {wait}"
                );
            }
        }
    }
}

/// One warp fills stages, the others empty them.
#[test]
fn producers_and_consumers() {
    let body = "
        // Two stages: full at 0 and 8, empty at 16 and 24, words at 64 and 128.
        mov.u32 %r4, s;
        setp.ne.u32 %p1, %r1, 0; @%p1 bra ready;
        sub.u32 %r5, %r31, 32;
        mbarrier.init.shared.b64 [%r4], 1; mbarrier.init.shared.b64 [%r4+8], 1;
        mbarrier.init.shared.b64 [%r4+16], %r5; mbarrier.init.shared.b64 [%r4+24], %r5;
        ready: bar.sync 0;
        mov.u32 %r10, 0; mov.u32 %r9, 0;
        setp.ge.u32 %p2, %r1, 32; @%p2 bra consume;
        setp.ne.u32 %p3, %r1, 0; @%p3 bra done;
        produce:
        and.b32 %r11, %r10, 1; shl.b32 %r12, %r11, 3; add.u32 %r12, %r12, %r4;
        shr.u32 %r13, %r10, 1; and.b32 %r13, %r13, 1; xor.b32 %r14, %r13, 1;
        wait_empty: mbarrier.try_wait.parity.shared.b64 %p4, [%r12+16], %r14; @!%p4 bra wait_empty;
        shl.b32 %r15, %r11, 6; add.u32 %r15, %r15, %r4;
        mul.wide.u32 %rd4, %r10, 16; add.u64 %rd4, %rd4, %rd2;
        mbarrier.arrive.expect_tx.shared.b64 _, [%r12], 16;
        cp.async.cg.shared.global [%r15+64], [%rd4], 16;
        mbarrier.complete_tx.shared::cta.b64 [%r12], 16;
        add.u32 %r10, %r10, 1; setp.lt.u32 %p5, %r10, 16; @%p5 bra produce;
        bra done;
        consume:
        and.b32 %r11, %r10, 1; shl.b32 %r12, %r11, 3; add.u32 %r12, %r12, %r4;
        shr.u32 %r13, %r10, 1; and.b32 %r13, %r13, 1;
        wait_full: mbarrier.try_wait.parity.shared.b64 %p4, [%r12], %r13; @!%p4 bra wait_full;
        shl.b32 %r15, %r11, 6; add.u32 %r15, %r15, %r4;
        and.b32 %r16, %r1, 3; shl.b32 %r16, %r16, 2; add.u32 %r15, %r15, %r16;
        ld.shared.u32 %r17, [%r15+64]; mad.lo.u32 %r9, %r9, 31, %r17;
        mbarrier.arrive.shared.b64 _, [%r12+16];
        add.u32 %r10, %r10, 1; setp.lt.u32 %p5, %r10, 16; @%p5 bra consume;
        done:";
    for threads in [40u32, 64, 160] {
        let got = forms::same(body, [threads, 1, 1], 0).unwrap();
        for thread in 32..threads {
            let word = |at: u32| (4 * at + thread % 4).wrapping_mul(0x9e37_79b9);
            let wanted = (0..16).fold(0u32, |sum, at| sum.wrapping_mul(31).wrapping_add(word(at)));
            assert_eq!(got[thread as usize], wanted);
        }
    }
}

/// As an H200 answered.
#[test]
fn misuse_faults() {
    use FaultKind::{IllegalAddress, IllegalInstruction, LaunchFailure, Misaligned};
    for (body, fault) in [
        ("mbarrier.init.shared.b64 [%r4+4], 1;", Misaligned),
        ("mbarrier.arrive.shared.b64 _, [%r4+4];", Misaligned),
        (
            "mbarrier.init.shared.b64 [%r4], 0; mbarrier.arrive.shared.b64 _, [%r4];",
            LaunchFailure,
        ),
        (
            "mbarrier.init.shared.b64 [%r4], 2; mbarrier.arrive.shared.b64 _, [%r4], 3;",
            LaunchFailure,
        ),
        ("mbarrier.init.shared.b64 [%r4+0x40000], 2;", IllegalAddress),
        ("mbarrier.init.b64 [%rd1], 2;", IllegalInstruction),
        (
            "mbarrier.test_wait.parity.b64 %p1, [%rd1], 0;",
            IllegalInstruction,
        ),
        (
            "mbarrier.test_wait.parity.shared.b64 %p1, [%r4+2], 0;",
            Misaligned,
        ),
        ("cp.async.mbarrier.arrive.shared.b64 [%r4+4];", Misaligned),
    ] {
        let body = format!("mov.u32 %r4, s; {body}");
        let got = forms::same(&body, [8, 1, 1], 0).unwrap_err();
        assert_eq!(got.0, fault, "{body}");
    }
}

/// What nobody can complete ends the launch, wherever the wait stands and however it is written.
#[test]
fn waits_that_nobody_ends() {
    let init = "mov.u32 %r4, s; setp.ne.u32 %p1, %r1, 0; @%p1 bra ready;
        mbarrier.init.shared.b64 [%r4], 41; mbarrier.init.shared.b64 [%r4+8], 40;
        ready: bar.sync 0; mov.u32 %r10, 0;";
    for wait in [
        "mbarrier.arrive.shared.b64 %rd6, [%r4];
        look: mbarrier.try_wait.shared.b64 %p2, [%r4], %rd6; @!%p2 bra look;",
        "look: mbarrier.test_wait.parity.shared.b64 %p2, [%r4], 0; @%p2 bra on; bra look; on:",
        "look: mbarrier.try_wait.parity.shared.b64 %p2, [%r4], 0;
        selp.b32 %r20, 1, 0, %p2; setp.eq.s32 %p3, %r20, 0; @%p3 bra look;",
        "look: mbarrier.try_wait.parity.shared.b64 %p2, [%r4], 0;
        selp.b32 %r20, 0, 1, %p2; setp.ne.u32 %p3, %r20, 0; not.pred %p4, %p3; @%p3 bra look;",
        // What each turn writes anew.
        "look: mov.u32 %r20, 10000000; mbarrier.try_wait.parity.shared.b64 %p2, [%r4], 0, %r20;
        @!%p2 bra look;",
        "look: mov.u32 %r20, 0; mbarrier.try_wait.parity.shared.b64 %p2, [%r4], %r20; @!%p2 bra look;",
        "look: mov.u32 %r20, s; mbarrier.try_wait.parity.shared.b64 %p2, [%r20], 0; @!%p2 bra look;",
        // Other ways from the predicate to the branch.
        "look: mbarrier.try_wait.parity.shared.b64 %p2, [%r4], 0; not.pred %p3, %p2; @%p3 bra look;",
        "look: mbarrier.try_wait.parity.shared.b64 %p2, [%r4], 0; selp.b32 %r20, 1, 0, %p2;
        and.b32 %r21, %r20, 1; setp.eq.b32 %p3, %r21, 0; @%p3 bra look;",
        // Two in turn, and a count of the turns.
        "look: mbarrier.try_wait.parity.shared.b64 %p2, [%r4], 0; @%p2 bra on;
        mbarrier.try_wait.parity.shared.b64 %p2, [%r4+8], 0; add.u32 %r9, %r9, 1; @!%p2 bra look; on:",
        // With pauses between the tests.
        "look: mbarrier.try_wait.parity.shared.b64 %p2, [%r4], 0; @%p2 bra on;
        nanosleep.u32 20; bra look; on:",
        "mov.u32 %r20, 40; bra look; pause: nanosleep.u32 %r20; nanosleep.u32 2;
        look: mbarrier.test_wait.parity.shared.b64 %p2, [%r4], 0; @!%p2 bra pause;",
        // In a loop that does more, from its third turn on.
        "more: and.b32 %r11, %r10, 1; mbarrier.arrive.shared.b64 _, [%r4+8];
        setp.gt.u32 %p3, %r10, 2; @%p3 bra look;
        full: mbarrier.try_wait.parity.shared.b64 %p2, [%r4+8], %r11; @!%p2 bra full;
        add.u32 %r10, %r10, 1; st.global.u32 [%rd3], %r10; bra more;
        look: mbarrier.try_wait.parity.shared.b64 %p2, [%r4], 0; @!%p2 bra look; bra more;",
        // Some wait at a barrier, some in their warp, some have ended.
        "setp.eq.u32 %p3, %r1, 3; @%p3 bra done; setp.eq.u32 %p3, %r1, 4; @%p3 bra barrier;
        setp.eq.u32 %p3, %r1, 5; @%p3 bra warp;
        look: mbarrier.try_wait.parity.shared.b64 %p2, [%r4], 0; @!%p2 bra look;
        barrier: bar.sync 0; warp: bar.warp.sync -1; done:",
    ] {
        let body = format!("{init} {wait}");
        let got = forms::same(&body, [40, 1, 1], 0).expect_err(wait);
        assert_eq!(got.0, FaultKind::Deadlock, "{wait}");
    }
}

/// The same where the wait stands in a function that is called.
#[test]
fn calls_that_nobody_ends() {
    let source = module(
        ".func wait(.param .b32 at)
        {
            .reg .pred %p<2>; .reg .b32 %r<2>;
            ld.param.u32 %r1, [at];
            look: mbarrier.try_wait.parity.shared.b64 %p1, [%r1], 0;
            @%p1 bra on; nanosleep.u32 20; bra look;
            on: ret;
        }
        .visible .entry k()
        {
            .reg .pred %p<2>; .reg .b32 %r<4>;
            .shared .align 8 .b64 s;
            mov.u32 %r1, s; mov.u32 %r2, %tid.x; setp.ne.u32 %p1, %r2, 0; @%p1 bra ready;
            mbarrier.init.shared.b64 [%r1], 41;
            ready: bar.sync 0; mbarrier.arrive.shared.b64 _, [%r1];
            .param .b32 at; st.param.b32 [at], %r1; call wait, (at);
            ret;
        }",
    );
    let fault = harness::run(&source, "k", [1; 3], [40, 1, 1], &mut [], &[]).unwrap_err();
    assert_eq!(fault.kind, FaultKind::Deadlock, "{fault:?}");
    assert!(fault.detail.contains("40 wait at an mbarrier"), "{fault:?}");
}

/// A later block starts beside one that waits for it, whatever that does meanwhile.
#[test]
fn who_waits_for_a_later_block() {
    let source = forms::kernel(
        "mov.u32 %r4, s; setp.ne.u32 %p1, %r34, 0; @%p1 bra later;
        mbarrier.init.shared.b64 [%r4], 1; mbarrier.arrive.shared.b64 _, [%r4];
        look: mbarrier.test_wait.parity.shared.b64 %p2, [%r4], 0; bar.warp.sync 1;
        ld.acquire.gpu.u32 %r9, [%rd1+400]; setp.eq.u32 %p3, %r9, 0; @%p3 bra look; bra done;
        later: mov.u32 %r9, 7; st.release.gpu.u32 [%rd1+400], %r9; done:",
    );
    for form in [Form::Vectors, Form::Rounds, Form::Fibers] {
        let got = forms::run(&source, form, [2, 1, 1], [1, 1, 1], 0).unwrap();
        assert_eq!(got[..2], [7; 2], "{form:?}");
    }
}

/// A wait that does something else meanwhile may end by itself.
#[test]
fn waits_that_end_by_themselves() {
    for wait in [
        // After so many tries.
        "look: mbarrier.try_wait.parity.shared.b64 %p2, [%r4], 0;
        add.u32 %r9, %r9, 1; setp.eq.u32 %p3, %r9, 1000; @%p3 bra done; @!%p2 bra look; done:",
        // By what it wrote last time.
        "mov.u32 %r12, 0;
        look: mbarrier.try_wait.parity.shared.b64 %p2, [%r4], %r12; @%p2 bra done;
        add.u32 %r9, %r9, 500; setp.lt.u32 %p3, %r9, 1000; selp.b32 %r12, 0, 1, %p3; bra look; done:",
        // At a place that moves on.
        "mbarrier.init.shared.b64 [%r4+800], 1; mbarrier.arrive.shared.b64 _, [%r4+800];
        mov.u32 %r12, %r4; mov.u32 %r13, 99;
        fill: add.u32 %r12, %r12, 8; mbarrier.init.shared.b64 [%r12], 2; sub.u32 %r13, %r13, 1;
        setp.ne.u32 %p3, %r13, 0; @%p3 bra fill; mov.u32 %r12, %r4;
        look: mbarrier.test_wait.parity.shared.b64 %p2, [%r12], 0; add.u32 %r12, %r12, 8;
        @!%p2 bra look; sub.u32 %r9, %r12, %r4; add.u32 %r9, %r9, 192;",
        // Where one tests, and stores meanwhile.
        "look: mbarrier.test_wait.parity.shared.b64 %p2, [%r4], 0; @%p2 bra done;
        ld.shared.u32 %r9, [%r4+16]; add.u32 %r12, %r9, 1; st.shared.u32 [%r4+16], %r12;
        setp.lt.u32 %p3, %r9, 1000; @%p3 bra look; mov.u32 %r9, 1000; done:",
    ] {
        let body = format!("mov.u32 %r4, s; mbarrier.init.shared.b64 [%r4], 2; {wait}");
        let got = forms::same(&body, [1, 1, 1], 0).expect(wait);
        assert_eq!(got[0], 1000, "{wait}");
    }
}

#[test]
fn wrong_forms_are_refused() {
    for (line, what) in [
        (
            "mbarrier.init.global.b64 [%rd1], 1;",
            "does not work on that state space",
        ),
        (
            "mbarrier.init.shared::cluster.b64 [%r4], 1;",
            "does not work on that state space",
        ),
        ("mbarrier.init.shared.b64 [%r4];", "has not the operands"),
        ("mbarrier.init.shared.b32 [%r4], 1;", "modifier .b32"),
        (
            "mbarrier.init.shared.b64 %r4, 1;",
            "takes an address in brackets",
        ),
        ("mbarrier.arrive.shared.b64 [%r4];", "has not the operands"),
        (
            "mbarrier.arrive.shared::cluster.b64 %rd4, [%r4];",
            "has no result",
        ),
        (
            "mbarrier.arrive.expect_tx.shared.b64 %rd4, [%r4];",
            "has not the operands",
        ),
        (
            "mbarrier.arrive.noComplete.shared.b64 %rd4, [%r4];",
            "has not the operands",
        ),
        (
            "mbarrier.arrive.acquire.cta.shared.b64 %rd4, [%r4];",
            "modifier .acquire",
        ),
        (
            "mbarrier.arrive.release.gpu.shared.b64 %rd4, [%r4];",
            "modifier .gpu",
        ),
        (
            "mbarrier.test_wait.shared.b64 %p1, [%r4], %rd4, 5;",
            "has not the operands",
        ),
        (
            "mbarrier.wait.shared.b64 %p1, [%r4], %rd4;",
            "modifier .wait",
        ),
        ("mbarrier.pending_count.b64 %r5;", "takes 2 operands"),
    ] {
        let refusal = harness::complaint(&forms::kernel(line));
        assert!(refusal.contains(what), "{line}: {refusal}");
    }
}

/// Shared memory holds whatever was there before, -1 too.
#[test]
fn memory_becomes_a_barrier_whatever_it_held() {
    let body = "mov.u32 %r4, s; mov.u64 %rd4, -1;
        st.shared.u64 [%r4], %rd4; mbarrier.init.shared.b64 [%r4], 1;
        mbarrier.arrive.shared.b64 %rd5, [%r4];
        mbarrier.test_wait.shared.b64 %p1, [%r4], %rd5;
        selp.u32 %r20, 1, 0, %p1; st.global.u32 [%rd1+4], %r20;
        st.shared.u64 [%r4+8], %rd4; mbarrier.inval.shared.b64 [%r4+8];";
    assert_eq!(results(body)[1], 1);
}
