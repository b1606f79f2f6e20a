//! What a kernel does is the same in all forms: the bytes that it leaves, and its fault.

use crate::grid::launch::FaultKind;
use crate::jit::harness::{self, buffer};
use crate::jit::module::Form;

/// How a launch ends: with these words, or with a fault in a thread of a block.
pub(super) type Outcome = Result<Vec<u32>, (FaultKind, [u32; 3], Option<[u32; 3]>)>;

/// Words of each buffer.
const WORDS: usize = 4096;

/// A kernel `k(.u64 out, .u64 in, .u32 n)` with `%r1` a thread's number in its row, `%r2` its
/// number in the grid, `%r3` `n`, `%rd1` `out`, `%rd2` `in`, and `%rd3` the thread's word of `out`.
/// A thread leaves `%r9` there.
pub(super) fn kernel(body: &str) -> String {
    harness::module(&format!(
        ".visible .entry k(.param .u64 out, .param .u64 in, .param .u32 n)
        {{
            .reg .pred %p<16>;
            .reg .b32 %r<40>;
            .reg .b64 %rd<20>;
            .reg .f32 %f<8>;
            .shared .align 8 .b8 s[8192];
            ld.param.u64 %rd1, [out];
            ld.param.u64 %rd2, [in];
            ld.param.u32 %r3, [n];
            mov.u32 %r1, %tid.x;
            mov.u32 %r30, %tid.y; mov.u32 %r31, %ntid.x; mov.u32 %r32, %ntid.y;
            mov.u32 %r33, %tid.z; mov.u32 %r34, %ctaid.x;
            mad.lo.u32 %r35, %r33, %r32, %r30;
            mad.lo.u32 %r35, %r35, %r31, %r1;
            mul.lo.u32 %r36, %r31, %r32; mov.u32 %r37, %ntid.z; mul.lo.u32 %r36, %r36, %r37;
            mad.lo.u32 %r2, %r34, %r36, %r35;
            mul.wide.u32 %rd3, %r2, 4;
            add.u64 %rd3, %rd1, %rd3;
            mov.u32 %r9, 0;
            {body}
            st.global.u32 [%rd3], %r9;
            ret;
        }}"
    ))
}

pub(super) fn run(source: &str, form: Form, grid: [u32; 3], block: [u32; 3], n: u32) -> Outcome {
    let module = harness::load_as(source, form);
    let mut out = vec![0u32; WORDS];
    let mut more: Vec<u32> = (0..64u32).map(|at| at.wrapping_mul(0x9e37_79b9)).collect();
    let buffers: &mut [&mut [u8]] = &mut [buffer(&mut out), buffer(&mut more)];
    let result = harness::run_in(&module, "k", grid, block, 0, buffers, &[&n.to_le_bytes()]);
    match result {
        Ok(()) => Ok([out, more].concat()),
        Err(fault) => Err((fault.kind, fault.block, fault.thread)),
    }
}

/// What a body does, the same in all forms.
pub(super) fn same(body: &str, block: [u32; 3], n: u32) -> Outcome {
    let source = kernel(body);
    let [vectors, rounds, fibers] = [Form::Vectors, Form::Rounds, Form::Fibers]
        .map(|form| run(&source, form, [1, 1, 1], block, n));
    for (got, form) in [(&vectors, "vectors"), (&rounds, "rounds")] {
        if *got != fibers {
            if let (Ok(got), Ok(fibers)) = (got, &fibers) {
                let at = got
                    .iter()
                    .zip(fibers)
                    .position(|(a, b)| a != b)
                    .unwrap_or(0);
                panic!(
                    "{form} {block:?} n={n}: word {at}: {:x} for {:x}\n{body}",
                    got[at], fibers[at]
                );
            }
            panic!("{form} {block:?} n={n}: {got:x?} for {fibers:x?}\n{body}");
        }
    }
    fibers
}

/// The fault that a body ends in, the same in all forms.
fn fault(body: &str, block: [u32; 3], n: u32) -> (FaultKind, [u32; 3], Option<[u32; 3]>) {
    same(body, block, n).expect_err("an access is outside")
}

/// Threads count in steps so large that their sum wraps, some times within a group.
#[test]
fn agreement_of_large_strides() {
    for stride in [
        -1,
        3,
        0x1249_2492,
        0x3000_0000,
        0x4000_0000,
        -0x61c8_8647,
        i32::MIN,
    ] {
        for comparison in ["eq.u32", "lt.u32", "ge.u32", "le.s32", "gt.s32"] {
            let start = 0x7fff_fffd;
            let body = format!(
                "mad.lo.u32 %r4, %r1, {stride}, {start};
                setp.{comparison} %p1, %r4, %r3;
                @%p1 bra over;
                add.u32 %r9, %r9, 77;
                over:
                setp.{comparison} %p2, %r3, %r4;
                @!%p2 bra next;
                add.u32 %r9, %r9, 1000;
                next:"
            );
            let third = (stride as u32).wrapping_mul(2).wrapping_add(start);
            for n in [third, third.wrapping_add(1), 0x8000_0000] {
                same(&body, [16, 1, 1], n).unwrap();
            }
        }
    }
}

/// A comparison before a wait decides behind it, where what was compared is no more.
#[test]
fn comparison_before_a_wait() {
    let waits = [
        "bar.sync 0;",
        "bar.warp.sync -1;",
        "shfl.sync.down.b32 %r7, %r5, 1, 31, -1;",
    ];
    for (wait, block) in waits.into_iter().zip([[24, 1, 1], [33, 1, 1], [16, 4, 1]]) {
        for compared in [
            "mad.lo.u32 %r4, %r1, 3, 5; mul.lo.u32 %r5, %r3, 3; xor.b32 %r5, %r5, 1;",
            "mov.u32 %r4, %r1; ld.global.u32 %r5, [%rd2+40]; and.b32 %r5, %r5, 1;
            add.u32 %r5, %r5, %r3;",
        ] {
            for n in [0, 3, 8, 11, 40] {
                let body = format!(
                    "{compared} setp.lt.u32 %p1, %r4, %r5; {wait}
                    @%p1 bra over; add.u32 %r9, %r9, 77; over:"
                );
                same(&body, block, n).unwrap();
            }
        }
    }
}

/// A register holds no pointer where threads go past the step that writes it.
#[test]
fn a_pointer_that_is_not_loaded() {
    for how in [
        "@%p1 bra on; ld.param.u64 %rd5, [in]; on:",
        "@%p1 bra on; ld.param.u64 %rd4, [in]; cvta.to.global.u64 %rd5, %rd4; on:",
        "ld.param.u64 %rd4, [in]; @%p1 bra on; mov.u64 %rd5, %rd4; on:",
    ] {
        for access in [
            "ld.global.u32 %r9, [%rd7];",
            "red.global.add.u32 [%rd7], 1;",
            "@%p2 st.global.u32 [%rd7+-4], %r3;",
        ] {
            let body = format!(
                "setp.eq.u32 %p1, %r3, 5; setp.eq.u32 %p2, %r1, 3; {how}
                add.u32 %r4, %r1, 1; mul.wide.u32 %rd6, %r4, 4; add.s64 %rd7, %rd5, %rd6; {access}"
            );
            same(&body, [16, 1, 1], 4).unwrap();
            let (kind, ..) = fault(&body, [16, 1, 1], 5);
            assert_eq!(kind, FaultKind::IllegalAddress, "{body}");
        }
    }
}

/// Threads of two blocks write to each other in turns, one thread of each in code of its own.
#[test]
fn blocks_wait_for_each_other() {
    let body = "
        mov.u32 %r10, 0; add.s64 %rd2, %rd1, 12000;
        mul.wide.u32 %rd5, %r34, 4; add.s64 %rd5, %rd2, %rd5;
        xor.b32 %r11, %r34, 1; mul.wide.u32 %rd6, %r11, 4; add.s64 %rd6, %rd2, %rd6;
        setp.ne.u32 %p2, %r1, 3;
        more:
        add.u32 %r10, %r10, 1;
        @%p2 bra wait;
        st.release.gpu.global.u32 [%rd5+200], %r10;
        look:
        nanosleep.u32 20;
        ld.acquire.gpu.global.u32 %r12, [%rd6+200];
        setp.lt.u32 %p3, %r12, %r10; @%p3 bra look;
        add.u32 %r9, %r9, 1;
        wait:
        shfl.sync.idx.b32 %r13, %r9, 3, 31, -1;
        @%p2 add.u32 %r9, %r9, %r13;
        bar.sync 0;
        setp.lt.u32 %p4, %r10, 30; @%p4 bra more;";
    for block in [[8, 1, 1], [20, 1, 1], [64, 1, 1], [16, 4, 1]] {
        let source = kernel(body);
        let outcomes = [Form::Vectors, Form::Rounds, Form::Fibers]
            .map(|form| run(&source, form, [2, 1, 1], block, 0).unwrap());
        assert_eq!(outcomes[0], outcomes[2]);
        assert_eq!(outcomes[1], outcomes[2]);
    }
}

/// Parameters cannot be written, so that what was looked up of them for a launch holds.
#[test]
fn parameters_stay() {
    for write in ["st.u64 [%rd5], %rd1;", "red.add.u64 [%rd5], 8;"] {
        let body = format!("mov.b64 %rd5, in; cvta.param.u64 %rd5, %rd5; {write}");
        let (kind, ..) = fault(&body, [1, 1, 1], 0);
        assert_eq!(kind, FaultKind::IllegalAddress);
    }
}
