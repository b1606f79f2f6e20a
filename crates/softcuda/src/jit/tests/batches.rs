//! Floats that the threads of a group add to memory with one call: each as if it did so by itself,
//! one after the other.

use super::forms::same;

/// What `%r3` is.
const N: u32 = 40;

/// `%f1` is a number with all bits of a fraction, which differs from thread to thread, and `%rd6`
/// the address of a word of `out` that some threads have in common: `%r12` is its number.
fn adding(place: &str, add: &str) -> String {
    format!(
        ".reg .f64 %fd1; mul.lo.u32 %r10, %r2, 2654435761; shr.u32 %r10, %r10, 9; or.b32 %r10, %r10, 1056964608;
        mov.b32 %f1, %r10; cvt.f64.f32 %fd1, %f1; mul.f64 %fd1, %fd1, 0d3FF5555555555555;
        {place}
        mul.wide.u32 %rd6, %r12, 8; add.u64 %rd6, %rd1, %rd6;
        mul.wide.u32 %rd8, %r12, 4; add.u64 %rd8, %rd1, %rd8;
        {add}"
    )
}

/// Where threads add: all to one place, to a few in turn, neighbours to one, each to its own.
const PLACES: [&str; 5] = [
    "mov.u32 %r12, 600;",
    "and.b32 %r12, %r2, 3; add.u32 %r12, %r12, 600;",
    "shr.u32 %r12, %r2, 2; add.u32 %r12, %r12, 600;",
    "mul.lo.u32 %r12, %r2, 7; shr.u32 %r12, %r12, 5; add.u32 %r12, %r12, 600;",
    "add.u32 %r12, %r2, 600;",
];

const BLOCKS: [[u32; 3]; 5] = [[1, 1, 1], [8, 1, 1], [64, 1, 1], [33, 2, 1], [16, 4, 1]];

#[test]
fn in_the_order_of_threads() {
    for place in PLACES {
        for add in [
            "red.global.add.f32 [%rd6], %f1;",
            "atom.global.add.f32 %f2, [%rd6], %f1;",
            "red.global.add.f64 [%rd6], %fd1;",
            "red.add.f32 [%rd6+4], %f1; red.add.f64 [%rd6+4096], %fd1;",
            "red.global.add.f32 [%rd8+8], %f1; red.global.add.f64 [%rd6+4104], %fd1;",
        ] {
            for block in BLOCKS {
                same(&adding(place, add), block, N).expect("nothing faults");
            }
        }
    }
}

#[test]
fn of_some_threads() {
    for place in PLACES {
        for condition in [
            "setp.lt.u32 %p1, %r1, 5;",
            "and.b32 %r13, %r2, 5; setp.ne.u32 %p1, %r13, 1;",
            "setp.lt.u32 %p1, %r2, %r3;",
            "setp.lt.u32 %p1, %r2, 0;",
        ] {
            for way in [
                "@%p1 red.global.add.f32 [%rd6], %f1;",
                "@!%p1 bra past; red.global.add.f32 [%rd6], %f1; add.u32 %r9, %r9, 1; past:",
                "@!%p1 bra past; red.global.add.f64 [%rd6], %fd1; past:",
            ] {
                for block in BLOCKS {
                    let body = format!("{condition} {}", adding(place, way));
                    same(&body, block, N).expect("nothing faults");
                }
            }
        }
    }
}

/// Sums that are subnormal are zero after each addition, and none is a number once one was none.
#[test]
fn each_sum_by_itself() {
    for bits in [
        "0x00800000",
        "0x80800001",
        "0x7f800000",
        "0xff800000",
        "0x7f7fffff",
        "1",
    ] {
        let add = format!(
            "mov.b32 %f1, {bits}; and.b32 %r13, %r2, 3; setp.eq.u32 %p1, %r13, 1;
            @%p1 mov.b32 %f1, 0x80000001; setp.eq.u32 %p1, %r13, 2; @%p1 neg.f32 %f1, %f1;
            red.global.add.f32 [%rd6], %f1; red.global.add.f32 [%rd8+4096], %f1;"
        );
        for place in PLACES {
            same(&adding(place, &add), [64, 1, 1], N).expect("nothing faults");
        }
    }
}

/// An address without a space may be one of shared memory, where subnormals stay.
#[test]
fn in_shared_memory_too() {
    let add = "mov.u32 %r14, s; cvt.u64.u32 %rd7, %r14; cvta.shared.u64 %rd7, %rd7;
        st.shared.u32 [s], 0; bar.sync 0; and.b32 %r13, %r2, 4; setp.eq.u32 %p1, %r13, 4;
        @%p1 mov.u64 %rd6, %rd7; mov.b32 %f1, 3; red.add.f32 [%rd6], %f1;
        bar.sync 0; ld.shared.u32 %r9, [s];";
    for place in PLACES {
        same(&adding(place, add), [8, 1, 1], N).expect("nothing faults");
    }
}

/// A fault is that of the first thread that adds where it may not.
#[test]
fn who_may_not() {
    for (thread, wrong) in [(0, "1"), (5, "3"), (31, "1 << 40"), (37, "2")] {
        for guard in ["", "@%p2 "] {
            let add = format!(
                "setp.ge.u32 %p1, %r2, {thread}; setp.ne.u32 %p2, %r2, 3;
                @%p1 add.u64 %rd6, %rd6, {wrong}; {guard}red.global.add.f32 [%rd6], %f1;"
            );
            let body = adding(PLACES[4], &add);
            let (_, _, who) = same(&body, [64, 1, 1], N).expect_err("it faults");
            assert_eq!(who, Some([thread, 0, 0]), "{add}");
        }
    }
}
