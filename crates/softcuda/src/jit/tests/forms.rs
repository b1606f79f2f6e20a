//! What a kernel does is the same in all forms: the bytes that it leaves, and its fault.

use std::cell::RefCell;
use std::fmt::Write as _;
use std::sync::Arc;

use crate::grid::launch::FaultKind;
use crate::jit::harness::{self, buffer};
use crate::jit::module::{Form, Module};

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
    run_module(&loaded(source, form), grid, block, n)
}

/// A module; one of the last few that a test ran, which need not be compiled for each block anew.
fn loaded(source: &str, form: Form) -> Arc<Module> {
    const MOST: usize = 12;
    thread_local! {
        static LAST: RefCell<Vec<(String, Form, Arc<Module>)>> = const { RefCell::new(vec![]) };
    }
    LAST.with_borrow_mut(|last| {
        if let Some((_, _, module)) = last
            .iter()
            .find(|known| (&*known.0, known.1) == (source, form))
        {
            return module.clone();
        }
        let module = harness::load_as(source, form);
        if last.len() == MOST {
            last.remove(0);
        }
        last.push((source.to_owned(), form, module.clone()));
        module
    })
}

pub(super) fn run_module(module: &Arc<Module>, grid: [u32; 3], block: [u32; 3], n: u32) -> Outcome {
    let mut out = vec![0u32; WORDS];
    let mut more: Vec<u32> = (0..64u32).map(|at| at.wrapping_mul(0x9e37_79b9)).collect();
    let buffers: &mut [&mut [u8]] = &mut [buffer(&mut out), buffer(&mut more)];
    let result = harness::run_in(module, "k", grid, block, 0, buffers, &[&n.to_le_bytes()]);
    match result {
        Ok(()) => Ok([out, more].concat()),
        Err(fault) => Err((fault.kind, fault.block, fault.thread)),
    }
}

/// `%tid` of a thread of a block, by its number.
pub(super) fn place(block: [u32; 3], linear: u32) -> [u32; 3] {
    let [x, y, _] = block;
    [linear % x, linear / x % y, linear / x / y]
}

/// What forms say differently in many runs, not more than some of it.
#[derive(Default)]
pub(super) struct Differences {
    text: String,
    count: usize,
    pub runs: usize,
    pub faults: usize,
}

impl Differences {
    pub fn say(&mut self, what: String) {
        self.count += 1;
        if self.count <= 6 {
            let _ = writeln!(self.text, "---- {what}");
        }
    }

    pub fn none(self) {
        println!("{} runs, {} faults", self.runs, self.faults);
        assert_eq!(self.count, 0, "{}", self.text);
    }
}

/// How one outcome differs from another: in a word, or in the end.
pub(super) fn difference(got: &Outcome, expected: &Outcome) -> String {
    match (got, expected) {
        (Ok(got), Ok(expected)) => {
            let at = got.iter().zip(expected).position(|(a, b)| a != b);
            format!("word {at:?}")
        }
        (got, expected) => {
            let short = |end: &Outcome| end.clone().map(|_| ());
            format!("{:x?} for {:x?}", short(got), short(expected))
        }
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

/// Some threads access a row of shared memory, and others do not: all of the row may be inside or
/// not, and what lies there may be no number.
#[test]
fn rows_that_some_threads_access() {
    for (block, ty) in [
        ([48, 1, 1], "f32"),
        ([20, 2, 1], "f32"),
        ([32, 1, 1], "u32"),
    ] {
        let threads = block[0] * block[1];
        for n in [0, 1, 5, 8, 13, 31] {
            // The last accesses reach to the end of shared memory, or past it.
            for far in [0, 4 * threads + 4, 8192 - 4 * n, 8192 - 4 * n + 4] {
                let value = if ty == "f32" { "%f" } else { "%r2" };
                let body = format!(
                    "mov.u32 %r4, s; shl.b32 %r5, %r35, 2; add.u32 %r5, %r5, %r4;
                    mov.u32 %r9, %r5; add.u32 %r8, %r4, 8192; mov.u32 %r6, 0;
                    clear: st.shared.u32 [%r9], %r6; add.u32 %r9, %r9, {};
                    setp.lt.u32 %p1, %r9, %r8; @%p1 bra clear; bar.sync 0;
                    mul.lo.u32 %r6, %r35, 0x12345678; or.b32 %r6, %r6, 0x7f800000;
                    st.shared.u32 [%r5], %r6; mov.b32 %f3, %r6; mov.u32 %r23, %r6;
                    bar.sync 0;
                    setp.ge.u32 %p1, %r35, %r3; @%p1 bra past;
                    ld.shared.{ty} {value}1, [%r5]; ld.shared.{ty} {value}3, [%r5+{far}];
                    add.{ty} {value}2, {value}1, {value}3;
                    st.shared.{ty} [%r5], {value}2;
                    past: bar.sync 0;
                    mov.b32 %r8, %f3; xor.b32 %r8, %r8, %r23;
                    ld.shared.u32 %r9, [%r5]; mad.lo.u32 %r9, %r9, 31, %r8;",
                    4 * threads
                );
                let outside = n > 0 && far + 4 * n > 8192;
                assert_eq!(same(&body, block, n).is_err(), outside && n <= threads);
            }
        }
    }
}

/// Threads agree on what they compare from the first that is left to the block's last, or only to
/// the end of their warp or row; or their numbers wrap on the way.
#[test]
fn who_has_nothing_to_do() {
    let compared = [
        "setp.ge.u32 %p1, %r1, %r20;",
        "setp.lt.u32 %p1, %r20, %r1;",
        "setp.ne.u32 %p1, %r1, %r20;",
        "mov.u32 %r6, %laneid; setp.ge.u32 %p1, %r6, %r20;",
        "sub.u32 %r6, 70, %r1; setp.lt.s32 %p1, %r6, %r20;",
        "sub.u32 %r6, 70, %r1; setp.gt.u32 %p1, %r6, %r20;",
        "add.u32 %r6, %r1, 0xffffffdd; setp.ge.u32 %p1, %r6, %r20;",
        "mul.lo.u32 %r6, %r1, 0x01000001; setp.ge.u32 %p1, %r6, %r20;",
        "mul.lo.u32 %r6, %r1, 0x00100001; setp.ge.s32 %p1, %r6, %r20;",
        "mul.lo.u32 %r6, %r1, 0x00200001; setp.le.s32 %p1, %r20, %r6;",
    ];
    let blocks = [
        [32, 1, 1],
        [128, 1, 1],
        [72, 1, 1],
        [64, 3, 1],
        [96, 1, 2],
        [33, 1, 1],
    ];
    for compared in compared {
        for branch in ["@%p1 bra past;", "@!%p1 bra past;"] {
            let body = format!(
                "mov.u32 %r4, s; shl.b32 %r5, %r35, 2; add.u32 %r5, %r5, %r4;
                st.shared.u32 [%r5], %r35; mov.u32 %r20, %r3;
                again: bar.sync 0;
                {compared} {branch}
                ld.shared.u32 %r7, [%r5]; mad.lo.u32 %r7, %r7, 5, %r20; st.shared.u32 [%r5], %r7;
                past: bar.sync 0;
                shr.u32 %r20, %r20, 1; setp.ne.u32 %p2, %r20, 0; @%p2 bra again;
                bar.sync 0; ld.shared.u32 %r9, [%r5];"
            );
            for block in blocks {
                for n in [1, 40, 64, 0x4000_0003] {
                    same(&body, block, n).unwrap();
                }
            }
        }
    }
}

/// A load and a store at one address are done once, by a thread that comes to them.
#[test]
fn some_access_one_place() {
    let one = "setp.ne.u32 %p1, %r1, %r3;";
    let more = "setp.lt.u32 %p1, %r1, %r3;";
    let far = 1 << 40;
    for (wait, skip, place) in [
        ("bar.sync 0;", one, 0x2000u64),
        ("bar.sync 0;", more, 0x2000),
        ("", more, 0x2000),
        ("bar.sync 0;", one, far),
        ("", one, far),
    ] {
        let body = format!(
            "mov.u32 %r9, 5; st.shared.u32 [s+4], 99; {wait}
            {skip} add.u64 %rd4, %rd1, {place};
            @%p1 bra past;
            ld.shared.u32 %r10, [s+4]; ld.global.u32 %r9, [%rd2+8];
            st.global.u32 [%rd4], %r10;
            past: add.u32 %r9, %r9, 1;"
        );
        for block in [[32, 1, 1], [40, 1, 1], [8, 1, 1]] {
            for n in [0, 3, 7, 8, 30, 100] {
                let outcome = same(&body, block, n);
                let outcome = outcome.map(|words| words[0x800]);
                let expected = match (n < block[0], place == far) {
                    (true, true) => Err((FaultKind::IllegalAddress, [0; 3], Some([n, 0, 0]))),
                    (true, false) => Ok(99),
                    (false, _) => Ok(0),
                };
                assert_eq!(outcome, expected, "{block:?} n={n} {body}");
            }
        }
    }
}

/// An index that is negative, and far above the lowest if it is not: what is added to the address
/// does not bring it back.
#[test]
fn a_negative_index_below_all_others() {
    for (wide, faults) in [("mul.wide.s32", true), ("mul.wide.u32", false)] {
        for (less, first) in [
            (0x8000_0000_u32, 0x8000_0000_u32),
            (0x7fff_fff8, 0x7fff_fffc),
        ] {
            let body = format!(
                "add.u32 %r4, %r1, {first}; {wide} %rd5, %r4, 1; add.s64 %rd6, %rd2, %rd5;
                ld.global.u8 %r9, [%rd6+-{less}];"
            );
            for body in [body.clone(), format!("{body} bar.sync 0;")] {
                let end = same(&body, [32, 1, 1], 64);
                assert_eq!(end.is_err(), faults, "{wide} {less:x} {end:x?}");
            }
        }
    }
}

/// Threads of a group gather at indices that they have loaded: words, doubles, bytes, and pairs, in
/// front of the element and behind it, all inside or some outside.
#[test]
fn indices_from_memory() {
    for (load, by, offset) in [
        ("ld.global.u32 %r9", 4, 0),
        ("ld.global.u8 %r9", 1, 3),
        ("ld.global.s16 %r9", 2, 2),
        ("ld.global.v2.u32 {%r9, %r10}", 8, 0),
        ("ld.global.u32 %r9", 8, 4),
        ("ld.global.u32 %r9", 4, -8),
        ("ld.global.u32 %r9", 4, 12),
        ("ld.global.b64 %rd9", 8, 8),
    ] {
        for more in [2u32, 0, 100, 0xffff_fff0] {
            let body = format!(
                "and.b32 %r4, %r35, 63; mul.wide.u32 %rd5, %r4, 4; add.u64 %rd6, %rd2, %rd5;
                ld.global.u32 %r5, [%rd6]; shr.u32 %r5, %r5, 28; add.u32 %r5, %r5, {more};
                mov.u64 %rd9, 3; mov.u32 %r10, 5;
                mul.wide.u32 %rd7, %r5, {by}; add.u64 %rd8, %rd7, %rd2;
                {load}, [%rd8+{offset}];
                cvt.u32.u64 %r11, %rd9; shr.u64 %rd9, %rd9, 32; cvt.u32.u64 %r12, %rd9;
                add.u32 %r9, %r9, %r10; add.u32 %r9, %r9, %r11; xor.b32 %r9, %r9, %r12;"
            );
            for body in [
                body.clone(),
                format!("{body} bar.sync 0; add.u32 %r9, %r9, %r5;"),
            ] {
                for block in [[8, 1, 1], [37, 1, 1], [16, 4, 1]] {
                    _ = same(&body, block, 64);
                }
            }
        }
    }
}
