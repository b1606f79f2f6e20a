//! Kernels that go wrong while their threads wait for each other: each ends in its fault, and the
//! next launch runs.

use crate::grid::launch::FaultKind;
use crate::jit::harness::{self, buffer, module};

/// Each thread calls itself `depth` times, and meets the others at the bottom.
fn recursion() -> String {
    module(
        ".func dive(.param .b32 left)
        {
            .reg .pred %p1;
            .reg .b32 %r<4>;
            .local .align 8 .b8 frame[64];
            ld.param.b32 %r1, [left];
            st.local.b32 [frame], %r1;
            setp.eq.u32 %p1, %r1, 0;
            @%p1 bra bottom;
            sub.u32 %r2, %r1, 1;
            {
                .param .b32 next;
                st.param.b32 [next], %r2;
                call dive, (next);
            }
            ld.local.b32 %r3, [frame];
            setp.ne.u32 %p1, %r3, %r1;
            @%p1 trap;
            ret;
            bottom:
            bar.sync 0;
            ret;
        }
        .visible .entry k(.param .u64 out, .param .u32 depth)
        {
            .reg .b32 %r<4>;
            .reg .b64 %rd<4>;
            ld.param.u64 %rd1, [out];
            ld.param.u32 %r1, [depth];
            {
                .param .b32 next;
                st.param.b32 [next], %r1;
                call dive, (next);
            }
            red.global.add.u32 [%rd1], 1;
            ret;
        }",
    )
}

#[test]
fn threads_that_recurse_too_deep_end_in_a_fault() {
    for (depth, ends_well) in [(10u32, true), (100, true), (1_000_000, false), (20, true)] {
        let mut data = [0u32];
        let result = harness::run(
            &recursion(),
            "k",
            [3, 1, 1],
            [96, 1, 1],
            &mut [buffer(&mut data)],
            &[&depth.to_le_bytes()],
        );
        match ends_well {
            true => assert_eq!((result.unwrap(), data), ((), [3 * 96])),
            false => assert_eq!(result.unwrap_err().kind, FaultKind::StackOverflow),
        }
    }
}

/// While most threads wait, deep in calls, one does what is given.
fn while_others_wait(line: &str) -> FaultKind {
    let source = module(&format!(
        ".func wait() {{ bar.sync 0; ret; }}
        .visible .entry k(.param .u64 out)
        {{
            .reg .pred %p<4>;
            .reg .b32 %r<8>;
            .reg .b64 %rd<4>;
            .shared .align 4 .b8 s[64];
            ld.param.u64 %rd1, [out];
            mov.u32 %r1, %tid.x;
            mov.u32 %r2, s;
            setp.eq.u32 %p1, %r1, 77;
            @%p1 bra bad;
            call wait;
            ret;
            bad:
            {line}
            ret;
        }}"
    ));
    let mut data = [0u32; 2];
    let fault = harness::run(
        &source,
        "k",
        [20, 1, 1],
        [128, 1, 1],
        &mut [buffer(&mut data)],
        &[],
    )
    .unwrap_err();
    assert!(fault.thread.is_none_or(|thread| thread == [77, 0, 0]));
    fault.kind
}

#[test]
fn one_thread_goes_wrong_while_others_wait() {
    for (line, kind) in [
        ("trap;", FaultKind::Trap),
        (
            "mov.u64 %rd2, 8; st.global.u32 [%rd2], 1;",
            FaultKind::IllegalAddress,
        ),
        ("st.shared.u32 [%r2+4096], 1;", FaultKind::IllegalAddress),
        ("st.shared.u32 [%r2+1], 1;", FaultKind::Misaligned),
        (
            "again: st.shared.u32 [%r2], %r1; add.u32 %r2, %r2, 4; bra again;",
            FaultKind::IllegalAddress,
        ),
        ("mov.u32 %r1, 99; bar.sync %r1;", FaultKind::Trap),
        ("bar.sync 5;", FaultKind::Deadlock),
        ("bar.warp.sync -1;", FaultKind::Deadlock),
        (
            "shfl.sync.idx.b32 %r3, %r1, 0, 31, -1;",
            FaultKind::Deadlock,
        ),
        (
            "barrier.cluster.arrive; barrier.cluster.wait;",
            FaultKind::Deadlock,
        ),
        ("barrier.cluster.wait;", FaultKind::Trap),
    ] {
        assert_eq!(while_others_wait(line), kind, "{line}");
    }
}
