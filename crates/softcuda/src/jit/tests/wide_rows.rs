//! Wide groups of a row, where no thread waits: where they give up, what groups of 8 take then, and
//! whom a fault names. Each body runs with some steps more, which decide in which groups it goes.

use super::forms::{Outcome, difference, kernel, run, run_module, same};
use super::fuzz::Sample;
use crate::grid::launch::FaultKind;
use crate::jit::harness::{self, buffer};
use crate::jit::module::Form;

const BLOCKS: [[u32; 3]; 8] = [
    [8, 1, 1],
    [24, 2, 1],
    [32, 1, 1],
    [40, 1, 1],
    [64, 1, 1],
    [96, 1, 1],
    [16, 4, 1],
    [48, 2, 1],
];

/// The thread's number in its block in `%r12`, which counts up, and its word of `out` in `%rd4`.
const BEGIN: &str = "mad.lo.u32 %r13, %r33, %r32, %r30; mad.lo.u32 %r12, %r13, %r31, %r1;
    mul.wide.u32 %rd4, %r12, 4; add.u64 %rd4, %rd1, %rd4;";

/// Bodies that do the same in other groups.
fn bodies(body: &str) -> impl Iterator<Item = String> {
    (0..4).map(move |more| format!("{BEGIN} {} {body}", "mov.u32 %r39, 1; ".repeat(more)))
}

/// What a body does in each block and for each `n`: the same in groups of any width, and in all
/// forms.
fn in_all(body: &str, blocks: &[[u32; 3]], ns: &[u32]) -> Vec<Vec<u32>> {
    let launches = || {
        blocks
            .iter()
            .flat_map(|block| ns.iter().map(|n| (*block, *n)))
    };
    let mut first: Option<Vec<Outcome>> = None;
    for body in bodies(body) {
        let source = kernel(&body);
        for form in [Form::Fibers, Form::Rounds, Form::Vectors] {
            let module = harness::load_as(&source, form);
            let ends = launches().map(|(block, n)| run_module(&module, [1, 1, 1], block, n));
            let ends: Vec<Outcome> = ends.collect();
            let first = first.get_or_insert_with(|| ends.clone());
            for ((end, expected), (block, n)) in ends.iter().zip(&*first).zip(launches()) {
                let what = || difference(end, expected);
                assert!(
                    end == expected,
                    "{form:?} {block:?} n={n}: {}\n{body}",
                    what()
                );
            }
        }
    }
    let ends = first.into_iter().flatten();
    ends.map(|end| end.expect("nothing faults")).collect()
}

/// A number of 32 bits wraps between two lanes on the way to one of 64: before anything is stored,
/// and behind a store.
#[test]
fn numbers_wrap_within_a_wide_group() {
    for lane in [0u32, 1, 7, 8, 9, 16, 24, 31, 32, 40] {
        let start = 0u32.wrapping_sub(lane);
        for store in ["", "st.global.u32 [%rd4+2048], %r1;"] {
            for widens in ["mul.wide.u32 %rd5, %r4, 4;", "mul.wide.s32 %rd5, %r4, 4;"] {
                let body = format!(
                    "cvt.rn.f32.u32 %f1, %r1; add.f32 %f1, %f1, 0f3f800000; {store}
                    add.u32 %r4, %r1, {start}; add.u32 %r5, %r1, 77; {widens}
                    shr.u64 %rd6, %rd5, 31; cvt.u32.u64 %r9, %rd6; cvt.rzi.u32.f32 %r11, %f1;
                    mad.lo.u32 %r9, %r9, 31, %r11; add.u32 %r9, %r9, %r5;
                    {store} add.f32 %f1, %f1, %f1; cvt.rzi.u32.f32 %r11, %f1;
                    mad.lo.u32 %r9, %r9, 31, %r11;"
                );
                in_all(&body, &BLOCKS, &[0]);
            }
        }
    }
}

/// Behind a store, groups go on with what a branch compares, which nothing else needs any more.
#[test]
fn what_is_compared_is_kept() {
    for test in [
        "setp.lt.u32 %p1, %r4, %r3; setp.lt.u32 %p2, %r5, %r6; and.pred %p1, %p1, %p2;",
        "setp.ge.s32 %p1, %r4, %r3; setp.ge.s32 %p2, %r6, %r5; or.pred %p1, %p1, %p2; not.pred %p1, %p1;",
        "setp.le.u32 %p1, %r4, %r3;",
        "cvt.u64.u32 %rd5, %r4; cvt.u64.u32 %rd6, %r3; setp.lt.s64 %p1, %rd5, %rd6;",
    ] {
        let body = format!(
            "add.u32 %r4, %r1, 3; add.u32 %r5, %r1, 4; mov.u32 %r6, 30;
            st.global.u32 [%rd4+2048], %r1; {test}
            @!%p1 bra past;
            cvt.rn.f32.u32 %f1, %r1; add.f32 %f1, %f1, 0f3f800000; cvt.rzi.u32.f32 %r9, %f1;
            st.global.f32 [%rd4+4096], %f1;
            past:
            add.u32 %r9, %r9, 5;"
        );
        in_all(
            &body,
            &BLOCKS,
            &[0, 3, 4, 8, 11, 12, 19, 20, 34, 35, 36, 50, 100],
        );
    }
}

/// What no thread comes to may be such that threads would not agree on it.
#[test]
fn code_behind_the_end() {
    for dead in [
        "mul.wide.u32 %rd5, %r12, 4; add.u64 %rd5, %rd5, %rd1; st.global.u32 [%rd5], %r1;",
        "st.global.u32 [%rd4], %r1; mul.wide.s32 %rd5, %r1, 8; st.global.u64 [%rd4], %rd5;",
        "st.global.u32 [%rd4], %r1; setp.lt.u32 %p1, %r1, %r3; @%p1 bra there; mov.u32 %r9, 5; there:",
    ] {
        let body = format!(
            "cvt.rn.f32.u32 %f1, %r1; add.f32 %f1, %f1, 0f3f800000; st.global.f32 [%rd4+2048], %f1;
            bra past; {dead} past:"
        );
        in_all(&body, &BLOCKS, &[0, 5]);
    }
}

/// Accesses leave their memory from each lane on: the fault names that lane.
#[test]
fn each_lane_of_a_wide_row_faults_by_itself() {
    for block in [[32, 1, 1], [64, 1, 1], [16, 2, 1]] {
        for inside in 0..block[0] {
            for access in ["ld.global.f32 %f2", "st.global.f32"] {
                let access = match access.starts_with("ld") {
                    true => format!("{access}, [%rd5+{}];", 256 - 4 * inside),
                    false => format!("{access} [%rd5+{}], %f1;", 256 - 4 * inside),
                };
                let body = format!(
                    "cvt.rn.f32.u32 %f1, %r1; add.f32 %f1, %f1, 0f3f800000;
                    mul.wide.u32 %rd5, %r1, 4; add.u64 %rd5, %rd5, %rd2;
                    add.f32 %f1, %f1, %f1; {access} add.f32 %f1, %f1, %f2;
                    cvt.rzi.u32.f32 %r9, %f1;"
                );
                for body in bodies(&body) {
                    for form in [Form::Vectors, Form::Rounds] {
                        let end = run(&kernel(&body), form, [1, 1, 1], block, 0);
                        let (kind, _, thread) = end.expect_err("a lane is outside");
                        assert_eq!(kind, FaultKind::IllegalAddress, "{form:?} {body}");
                        assert_eq!(thread, Some([inside, 0, 0]), "{form:?} {body}");
                    }
                }
            }
        }
    }
}

/// Threads leave a loop that stores one after the other, by a count of 32 or of 64 bits.
#[test]
fn threads_leave_a_loop_that_stores() {
    for (begin, again) in [
        (
            "mov.u32 %r4, %r1;",
            "add.u32 %r4, %r4, 5; setp.lt.u32 %p1, %r4, %r3;",
        ),
        (
            "cvt.u64.u32 %rd7, %r1; cvt.u64.u32 %rd8, %r3;",
            "add.u64 %rd7, %rd7, 5; setp.lt.u64 %p1, %rd7, %rd8;",
        ),
    ] {
        let body = format!(
            "{begin} mov.u32 %r10, 3; cvt.rn.f32.u32 %f1, %r1;
            again:
            ld.global.u32 %r7, [%rd4+4096]; mad.lo.u32 %r7, %r7, 7, %r10;
            st.global.u32 [%rd4+4096], %r7;
            add.f32 %f1, %f1, 0f3f800000; mad.lo.u32 %r10, %r10, 3, %r1;
            {again} @%p1 bra again;
            cvt.rzi.u32.f32 %r11, %f1; mad.lo.u32 %r9, %r10, 31, %r11;"
        );
        in_all(
            &body,
            &BLOCKS,
            &[0, 1, 7, 8, 9, 16, 20, 31, 32, 33, 64, 97, 130],
        );
    }
}

/// What counts up wraps within a group, or is compared with the last number there is.
#[test]
fn long_counts_that_wrap() {
    let mut sample = Sample::one_in(8);
    for start in [
        0i64,
        -1,
        -8,
        -20,
        -32,
        i64::MAX - 40,
        i64::MAX - 7,
        i64::MIN,
        u32::MAX as i64 - 9,
    ] {
        for by in [1i64, 3, -1, -2, 1 << 58, -(1 << 60), i64::MAX] {
            for (sign, limit) in [
                ("u64", 20i64),
                ("s64", 20),
                ("u64", -5),
                ("s64", i64::MIN + 9),
            ] {
                for cmp in ["lt", "le", "gt", "ge", "eq", "ne"] {
                    if !sample.takes() {
                        continue;
                    }
                    let body = format!(
                        "cvt.u64.u32 %rd5, %r1; mul.lo.s64 %rd5, %rd5, {by};
                        add.s64 %rd5, %rd5, {start}; setp.{cmp}.{sign} %p1, %rd5, {limit};
                        @%p1 bra past; cvt.rn.f32.u32 %f1, %r1; st.global.f32 [%rd4+2048], %f1;
                        mov.u32 %r9, 7; past:"
                    );
                    same(&format!("{BEGIN} {body}"), [64, 1, 1], 0).expect("nothing faults");
                }
            }
        }
    }
}

/// Blocks go in step through a loop over the grid, whose last turn has some of their threads.
#[test]
fn turns_over_the_grid() {
    for compares in [
        "add.u32 %x, %x, %step; setp.lt.u32 %p, %x, %n; @%p bra again;",
        "add.u32 %x, %x, %step; cvt.u64.u32 %w, %x; setp.lt.u64 %p, %w, %long; @%p bra again;",
        "add.u64 %l, %l, %more; cvt.u32.u64 %x, %l; setp.lt.u64 %p, %l, %long; @%p bra again;",
    ] {
        let source = harness::module(&format!(
            ".visible .entry k(.param .u64 out, .param .u32 n)
            {{
                .reg .b32 %x, %y, %rows, %n, %t, %threads, %blocks, %step; .reg .b64 %out, %at, %l, %w;
                .reg .b64 %more, %long; .reg .f32 %f; .reg .pred %p;
                ld.param.u64 %out, [out]; ld.param.u32 %n, [n]; cvt.u64.u32 %long, %n;
                mov.u32 %threads, %ntid.x; mov.u32 %rows, %ntid.y; mov.u32 %blocks, %nctaid.x;
                mov.u32 %t, %ctaid.x; mov.u32 %y, %tid.y; mad.lo.u32 %t, %t, %rows, %y;
                mul.lo.u32 %rows, %rows, %blocks; mul.lo.u32 %step, %threads, %rows;
                mul.wide.u32 %more, %threads, %rows;
                mul.lo.u32 %t, %t, %threads; mov.u32 %x, %tid.x; add.u32 %x, %x, %t;
                cvt.u64.u32 %l, %x;
                setp.ge.u32 %p, %x, %n; @%p bra none;
                again:
                mul.wide.u32 %at, %x, 4; add.u64 %at, %at, %out; ld.global.f32 %f, [%at];
                fma.rn.f32 %f, %f, 0f40000000, 0f3f800000; st.global.f32 [%at], %f;
                {compares}
                none: ret;
            }}"
        ));
        let module = harness::load(&source);
        for block in [
            [8, 1, 1],
            [24, 1, 1],
            [32, 1, 1],
            [64, 1, 1],
            [96, 1, 1],
            [100, 1, 1],
            [16, 4, 1],
            [48, 2, 1],
            [32, 3, 1],
        ] {
            for n in [0, 1, 31, 64, 129, 500, 777, 1000] {
                for blocks in [1, 3, 40] {
                    let mut data: Vec<f32> = (0..1024).map(|at| at as f32).collect();
                    let buffers: &mut [&mut [u8]] = &mut [buffer(&mut data)];
                    let grid = [blocks, 1, 1];
                    let n_bytes = (n as u32).to_le_bytes();
                    harness::run_in(&module, "k", grid, block, 0, buffers, &[&n_bytes])
                        .expect("nothing faults");
                    for (at, value) in data.iter().enumerate() {
                        let once = if at < n {
                            2.0 * at as f32 + 1.0
                        } else {
                            at as f32
                        };
                        assert_eq!(
                            *value, once,
                            "{at} of {n}, {blocks} x {block:?}: {compares}"
                        );
                    }
                }
            }
        }
    }
}

/// Whoever sees the bits of a NaN sees those that the device gives, whatever lane has one, and
/// however many floats a thread stores at once.
#[test]
fn rows_store_the_nan_of_the_device() {
    for store in [
        "st.global.f32 [%rd4], %f1;",
        "st.global.v2.f32 [%rd5], {%f1, %f2};",
        "st.global.v4.f32 [%rd6], {%f1, %f2, %f1, %f3};",
    ] {
        for lane in [0, 3, 4, 9, 15, 16, 27, 31, 32, 63, 99] {
            let body = format!(
                "cvt.rn.f32.u32 %f4, %r1; sub.f32 %f4, %f4, 0f{:08x};
                mul.f32 %f1, %f4, 0f7f800000; fma.rn.f32 %f2, %f1, 0f00000000, %f4;
                sub.f32 %f3, %f1, %f1; mul.wide.u32 %rd5, %r12, 8; add.u64 %rd5, %rd1, %rd5;
                mul.wide.u32 %rd6, %r12, 16; add.u64 %rd6, %rd1, %rd6;
                {store} mov.u32 %r9, 1; add.u64 %rd3, %rd3, 8192;",
                (lane as f32).to_bits()
            );
            let blocks = [[32, 1, 1], [64, 1, 1], [16, 4, 1], [24, 1, 1]];
            for (out, block) in in_all(&body, &blocks, &[0]).iter().zip(blocks) {
                let nans = out[..1024]
                    .iter()
                    .filter(|bits| f32::from_bits(**bits).is_nan());
                let nans: Vec<u32> = nans.copied().collect();
                assert!(
                    nans.iter().all(|bits| *bits == 0x7fff_ffff),
                    "{nans:x?}\n{body}"
                );
                let some = store.contains("v2") || lane < block[0];
                assert!(!some || !nans.is_empty(), "{body}");
            }
        }
    }
}
