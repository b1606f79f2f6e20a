//! Attacks on what tiles need: indices that are sums of a row and a column, shuffles in segments,
//! divisions by numbers in registers, and rows of shared memory that are only likely.

use std::fmt::Write;

use super::forms::{Differences, difference, kernel, run};
use super::fuzz::Sample;
use crate::jit::harness;
use crate::jit::module::Form;
use crate::jit::runtime::float::tests::Random;
use crate::memory::{self, Device, Kind};

const BLOCKS: [[u32; 3]; 5] = [[32, 1, 1], [64, 1, 1], [16, 4, 1], [33, 1, 1], [8, 4, 2]];

impl Differences {
    /// In vectors in groups of either width, and in rounds, as by fibers. Where several threads may
    /// fault, another may be named.
    fn try_up_to(&mut self, body: &str, blocks: &[[u32; 3]], n: u32, several: bool) {
        for block in blocks {
            let end = |form, more: &str| {
                let end = run(
                    &kernel(&format!("{more} {body}")),
                    form,
                    [1, 1, 1],
                    *block,
                    n,
                );
                match end {
                    Err((kind, block, _)) if several => Err((kind, block, None)),
                    end => end,
                }
            };
            let expected = end(Form::Fibers, "");
            self.runs += 1;
            self.faults += usize::from(expected.is_err());
            for (form, more) in [
                (Form::Rounds, ""),
                (Form::Vectors, ""),
                (Form::Vectors, "mov.u32 %r39, 1;"),
            ] {
                let got = end(form, more);
                if got != expected {
                    let what = difference(&got, &expected);
                    self.say(format!("{form:?} {block:?} n={n} {more} {what}\n{body}"));
                }
            }
        }
    }
}

fn pick<'a>(random: &mut Random, of: &[&'a str]) -> &'a str {
    of[random.next() as usize % of.len()]
}

/// How elements are accessed: their size in bytes, a load, and a store of where they are.
const ELEMENTS: [(u32, &str, &str); 9] = [
    (1, "ld.global.u8 %r7", "st.global.u8 AT, %r8"),
    (1, "ld.global.s8 %r7", "red.global.add.u32 [%rd1+12000], 1"),
    (2, "ld.global.u16 %r7", "st.global.u16 AT, %r8"),
    (4, "ld.global.u32 %r7", "st.global.u32 AT, %r8"),
    (4, "ld.global.f32 %f1", "st.global.u32 AT, %r8"),
    (8, "ld.global.u64 %rd11", "st.global.u64 AT, %rd9"),
    (
        8,
        "ld.global.v2.u32 {%r7, %r10}",
        "st.global.v2.u32 AT, {%r8, %r8}",
    ),
    (
        16,
        "ld.global.v4.u32 {%r7, %r10, %r11, %r12}",
        "st.global.v4.u32 AT, {%r8, %r8, %r8, %r8}",
    ),
    (8, "ld.global.f64 %rd11", "st.global.f64 AT, %rd9"),
];

/// A kernel that accesses elements at sums of two extended words. `%p6` holds where an access is
/// inside of the buffer, and in one thread anyway: unless all access theirs, no other faults. And a
/// kernel that finds a word other than 0 where an access could be in what another test has.
fn program(random: &mut Random, open: bool) -> (String, String) {
    let parts = [
        "mul.wide.u32 %rd12, %r1, 4; add.u64 %rd12, %rd12, %rd2; ld.global.u32 X, [%rd12];
        shr.u32 X, X, 28;",
        "mul.lo.u32 X, %r35, 0x9e3779b9; shr.u32 X, X, 28;",
        "mov.u32 X, %r1;",
        "mov.u32 X, %r35;",
        "mov.u32 X, %r3;",
        "mov.u32 X, %r30;",
        "and.b32 X, %r35, 7;",
        "shr.u32 X, %r35, 3;",
        "sub.s32 X, 9, %r1;",
        "mul.lo.u32 X, %r1, 2;",
        "min.s32 X, %r1, 11;",
        "min.u32 X, %r35, 20;",
        "sub.s32 X, %r1, 6; max.s32 X, X, 0;",
        "xor.b32 X, %r1, 1;",
        "rem.u32 X, %r35, 20;",
        "div.u32 X, %r35, 20;",
        "mov.u32 X, 3;",
    ];
    let (size, load, store) = ELEMENTS[random.next() as usize % ELEMENTS.len()];
    let scale = size << [0, 0, 0, 1][random.next() as usize % 4];
    let shift = scale.trailing_zeros();
    let far = [
        0u32,
        0,
        0,
        5,
        -7i32 as u32,
        0x7fff_fff8,
        0x8000_0000,
        0x7fff_ffe0,
        -4i32 as u32,
        0xffff_ffe8,
    ][random.next() as usize % 10];
    let stores = random.next().is_multiple_of(3);
    // What is stored is where indices are loaded from.
    let parts = if stores { &parts[1..] } else { &parts };
    let (a, b) = (pick(random, parts), pick(random, parts));
    let ext = ["cvt.s64.s32", "cvt.u64.u32"];
    let (wide, other_wide) = (pick(random, &ext), pick(random, &ext));
    let mut text = format!(
        "{} {} add.u32 %r4, %r4, {far}; sub.u32 %r5, %r5, {far};\n",
        a.replace('X', "%r4"),
        b.replace('X', "%r5")
    );
    let turns = random.next().is_multiple_of(4);
    if turns {
        text += "mov.u32 %r13, 0; and.b32 %r16, %r35, 3; more:\n";
    }
    let skips = random.next().is_multiple_of(3);
    if skips {
        text += pick(
            random,
            &[
                "setp.lt.u32 %p3, %r35, 5; @%p3 bra past;\n",
                "and.b32 %r18, %r35, 1; setp.eq.u32 %p3, %r18, 0; @%p3 bra past;\n",
                "setp.ne.u32 %p3, %r35, 3; @%p3 bra past;\n",
                "setp.lt.s32 %p3, %r4, 3; @%p3 bra past;\n",
            ],
        );
    }
    let both = pick(random, &["%rd5, %rd6", "%rd6, %rd5"]);
    let guard = pick(random, &["", "", "", "", "@%p7 "]);
    text += &match random.next() % 5 {
        0 => format!("{wide} %rd7, %r4; mov.u64 %rd6, 0; {guard}add.s64 %rd7, %rd7, %rd6;"),
        1 => format!("{wide} %rd7, %r4;"),
        _ => format!(
            "setp.lt.u32 %p7, %r1, 5; mov.u64 %rd7, 1;
            {wide} %rd5, %r4; {other_wide} %rd6, %r5; {guard}add.s64 %rd7, {both};"
        ),
    };
    let scaled = match shift {
        0 if random.next().is_multiple_of(2) => "mov.u64 %rd8, %rd7;".to_owned(),
        0 => "add.s64 %rd8, %rd2, %rd7;".to_owned(),
        _ => format!("shl.b64 %rd8, %rd7, {shift};"),
    };
    let is_address = shift == 0 && scaled.starts_with("add");
    text += &scaled;
    if !is_address {
        text += pick(
            random,
            &["add.s64 %rd8, %rd8, %rd2;", "add.s64 %rd8, %rd2, %rd8;"],
        );
    }
    let offset = i64::from(scale) * [0, 0, 0, 1, -1, 2, -3][random.next() as usize % 7];
    let wild = [0, 3, 7, 8, 15, 31, 99][random.next() as usize % 7];
    // What is overwritten between.
    let clobber = pick(
        random,
        &[
            "",
            "",
            "",
            "",
            "add.u32 %r4, %r4, 1;",
            "add.u32 %r5, %r5, 1;",
            "setp.eq.u32 %p8, %r1, 2; @%p8 add.u32 %r4, %r4, 1;",
            "mov.u32 %r5, %r4;",
        ],
    );
    let _ = write!(
        text,
        "\n{clobber} sub.s64 %rd9, %rd8, %rd2; add.s64 %rd9, %rd9, {offset}; cvt.u32.u64 %r8, %rd9;
        setp.lt.u64 %p6, %rd9, {}; setp.eq.u32 %p8, %r35, {wild}; or.pred %p6, %p6, %p8;
        mov.u32 %r7, 1; mov.u32 %r10, 2; mov.u64 %rd11, 3; mov.f32 %f1, 0f3f800000;\n",
        257 - size
    );
    let access = match stores {
        true => store.replace("AT", &format!("[%rd8+{offset}]")),
        false => format!("{load}, [%rd8+{offset}]"),
    };
    let access = match (open, random.next() % 2) {
        (true, _) => format!("{access};"),
        (_, 0) => format!("@%p6 {access};"),
        _ => format!("@!%p6 bra over;\n{access};\nover:"),
    };
    // Whether it may be what another test has allocated.
    let other = if open {
        ""
    } else {
        "not.pred %p8, %p6; or.pred %p10, %p10, %p8;"
    };
    let looks = format!(
        "add.s64 %rd13, %rd9, 192; setp.lt.u64 %p10, %rd13, 640;
        add.s64 %rd13, %rd9, 0x40000000; setp.gt.u64 %p11, %rd13, 0x80000000;
        or.pred %p10, %p10, %p11; {other} @!%p10 mov.u32 %r20, 1;"
    );
    let mut probe = format!("{text}{looks}");
    text += &access;
    let next = format!("{load}, [AT+{offset}]").replace("%r7", "%r14");
    let next = if open { next } else { format!("@%p6 {next}") };
    match (stores, random.next() % 4) {
        (false, 0) => {
            text += &format!(
                "mov.u32 %r14, 0; {}; add.u32 %r7, %r7, %r14;",
                next.replace("AT", "%rd8")
            );
        }
        // Its neighbour.
        (false, 1) => {
            let other = format!(
                "add.u32 %r17, %r4, 1; {wide} %rd14, %r17; {other_wide} %rd15, %r5;
                add.s64 %rd14, %rd14, %rd15; shl.b64 %rd14, %rd14, {shift};
                add.s64 %rd14, %rd14, %rd2; sub.s64 %rd9, %rd14, %rd2;
                add.s64 %rd9, %rd9, {offset}; setp.lt.u64 %p6, %rd9, {};",
                257 - size
            );
            text += &format!(
                "{other} mov.u32 %r14, 0; {}; add.u32 %r7, %r7, %r14;",
                next.replace("AT", "%rd14")
            );
            probe += &format!("{other} {looks}");
        }
        _ => {}
    }
    let mut more = |both: &str| {
        text += both;
        probe += both;
    };
    more(
        "\nmov.b32 %r15, %f1; xor.b32 %r7, %r7, %r15; cvt.u32.u64 %r15, %rd11;
        add.u32 %r7, %r7, %r15; add.u32 %r7, %r7, %r10; mad.lo.u32 %r9, %r9, 31, %r7;\n",
    );
    if skips {
        more("past:\n");
    }
    if turns {
        let next = pick(
            random,
            &[
                "add.u32 %r4, %r4, 1;",
                "add.u32 %r5, %r5, 1;",
                "add.u32 %r5, %r5, -1;",
                "add.u32 %r4, %r4, %r1;",
                "bar.sync 0;",
            ],
        );
        let limit = pick(random, &["3", "%r3", "%r16", "%r16"]);
        let limit = if next.starts_with("bar") { "3" } else { limit };
        more(&format!(
            "{next} add.u32 %r13, %r13, 1; setp.lt.u32 %p9, %r13, {limit}; @%p9 bra more;"
        ));
    }
    if random.next().is_multiple_of(3) {
        more("bar.sync 0; add.u32 %r9, %r9, %r4;");
    }
    (text, format!("mov.u32 %r20, 0; {probe} mov.u32 %r9, %r20;"))
}

fn programs(seed: u64, count: u64, open: bool) {
    let mut differences = Differences::default();
    let mut random = Random(seed);
    for _ in 0..count {
        let (body, probe) = program(&mut random, open);
        let n = [0, 2, 5, 40, u32::MAX][random.next() as usize % 5]
            .min(if body.contains("more:") { 5 } else { u32::MAX });
        let block = BLOCKS[random.next() as usize % BLOCKS.len()];
        for block in [[32, 1, 1], block] {
            let probed = run(&kernel(&probe), Form::Fibers, [1, 1, 1], block, n);
            let words = probed.expect("it accesses nothing");
            if words[..256].iter().all(|word| *word == 0) {
                differences.try_up_to(&body, &[block], n, open);
            }
        }
    }
    differences.none();
}

/// Accesses at sums of extended words, of which one thread's may be outside.
#[test]
fn sums_of_words_and_one_thread_outside() {
    programs(1, 120, false);
}

/// The same, where all threads access what is theirs, inside or not.
#[test]
fn sums_of_words_by_all_threads() {
    programs(2, 120, true);
}

/// Shuffles by any numbers, in segments of any kind.
#[test]
fn shuffles_by_any_numbers() {
    let mut differences = Differences::default();
    let mut random = Random(3);
    for _ in 0..12 {
        let mut body =
            "mad.lo.u32 %r4, %r2, 0x01010101, 7; mov.u32 %r5, %r4; mov.u32 %r9, 0;\n".to_owned();
        for number in 0..24 {
            let kind = pick(&mut random, &["up", "down", "bfly", "idx"]);
            let b = [
                1,
                2,
                4,
                8,
                16,
                random.next() as u32 % 32,
                random.next() as u32,
            ];
            let b = b[random.next() as usize % 7];
            let segment = [0x1c, 0x18, 0x10, 0x1e, 0, random.next() as u32 % 32];
            let clamp = [0, 31, 3, 7, random.next() as u32 % 32];
            let more = [0, 0, 0xffff_e0e0][random.next() as usize % 3];
            let c =
                segment[random.next() as usize % 6] << 8 | clamp[random.next() as usize % 5] | more;
            let (to, from) = if number % 2 == 0 { (6, 5) } else { (5, 6) };
            let text = match random.next() % 3 {
                0 => format!("shfl.sync.{kind}.b32 %r{to}, %r{from}, {b}, {c}, -1;"),
                1 => format!(
                    "shfl.sync.{kind}.b32 %r{to}|%p1, %r{from}, {b}, {c}, -1;
                    @%p1 add.u32 %r9, %r9, {number};"
                ),
                _ => format!(
                    "mov.u32 %r{}, {b}; mov.u32 %r{}, {c};
                    shfl.sync.{kind}.b32 %r{to}|%p2, %r{from}, %r{}, %r{}, -1;
                    @!%p2 xor.b32 %r{to}, %r{to}, %r35;",
                    10 + number % 10,
                    20 + number % 10,
                    10 + number % 10,
                    20 + number % 10
                ),
            };
            let _ = write!(body, "{text} mad.lo.u32 %r9, %r9, 7, %r{to}; ");
            if random.next().is_multiple_of(3) {
                let _ = writeln!(body, "add.u32 %r{to}, %r{to}, %r9;");
            }
        }
        differences.try_up_to(
            &body,
            &[[32, 1, 1], [64, 1, 1], [16, 4, 1], [8, 4, 2]],
            0,
            false,
        );
    }
    differences.none();
}

/// Divisions by numbers in registers give what those by registers give that hold anything.
#[test]
fn numbers_in_registers_divide_as_parameters_do() {
    let mut sample = Sample::one_in(4);
    let load =
        "mad.lo.u32 %r4, %r1, 0x08421085, %r30; and.b32 %r6, %r1, 1; setp.eq.u32 %p1, %r6, 0;
        @%p1 xor.b32 %r4, %r1, -1; setp.eq.u32 %p1, %r1, 0; @%p1 mov.u32 %r4, 0x80000000;";
    for number in [
        0u32,
        1,
        2,
        3,
        7,
        16,
        31,
        32,
        64,
        0x4000_0000,
        0x7fff_ffff,
        0x8000_0000,
        0x8000_0001,
        0xffff_fffe,
        0xffff_ffff,
    ] {
        for kind in ["div.u32", "rem.u32", "div.s32", "rem.s32"] {
            for guard in ["", "@%p2 ", "@!%p2 "] {
                if !sample.takes() {
                    continue;
                }
                let body = |by: &str| {
                    format!(
                        "{load} setp.lt.u32 %p2, %r35, 19; mov.u32 %r7, 5; {by}
                        {guard}{kind} %r7, %r4, %r5; mov.u32 %r9, %r7; {kind} %r4, %r4, %r5;
                        mad.lo.u32 %r9, %r9, 31, %r4;"
                    )
                };
                let expected = run(
                    &kernel(&body("mov.u32 %r5, %r3;")),
                    Form::Fibers,
                    [1, 1, 1],
                    [40, 1, 1],
                    number,
                );
                let spellings = [
                    format!("mov.u32 %r5, {number};"),
                    format!("mov.s32 %r5, {};", number.cast_signed()),
                    format!("mov.b32 %r5, {number:#x};"),
                ];
                for by in spellings {
                    for form in [Form::Vectors, Form::Rounds, Form::Fibers] {
                        let source = kernel(&body(&by));
                        let got = run(&source, form, [1, 1, 1], [40, 1, 1], number);
                        assert_eq!(got, expected, "{form:?} {kind} {by}");
                    }
                }
            }
        }
    }
}

/// Upper halves of products with numbers, of words that differ.
#[test]
fn upper_halves_of_products_with_any_number() {
    let mut differences = Differences::default();
    for number in [
        0u32,
        1,
        2,
        0x7fff_ffff,
        0x8000_0000,
        0x8000_0001,
        0xffff_ffff,
        0xcccc_cccd,
        0x1000,
        77,
    ] {
        let body = format!(
            "mad.lo.u32 %r4, %r1, 0x08421085, %r30; xor.b32 %r4, %r4, %r3; mov.u32 %r8, {number};
            mul.hi.u32 %r5, %r4, {number}; mul.hi.s32 %r6, %r4, {number}; mul.hi.u32 %r7, %r8, %r4;
            shr.s32 %r10, %r6, 3; shr.u32 %r11, %r5, 4; mul.wide.u32 %rd5, %r4, {number};
            mad.hi.s32 %r13, %r4, {number}, %r10; mul.hi.u32 %r15, {number}, %r4;
            shr.u64 %rd5, %rd5, 32; cvt.u32.u64 %r12, %rd5;
            mad.lo.u32 %r9, %r5, 3, %r6; mad.lo.u32 %r9, %r9, 5, %r7; add.u32 %r9, %r9, %r15;
            mad.lo.u32 %r9, %r9, 7, %r10; mad.lo.u32 %r9, %r9, 11, %r11;
            mad.lo.u32 %r9, %r9, 13, %r12; mad.lo.u32 %r9, %r9, 17, %r13;"
        );
        for n in [0, u32::MAX, 0x8000_0000] {
            differences.try_up_to(&body, &[[32, 1, 1], [40, 1, 1]], n, false);
        }
    }
    differences.none();
}

/// Rows of shared memory that are only likely: their addresses wrap, begin below it, or end behind
/// it, in one thread or in several.
#[test]
fn likely_rows_at_the_ends_of_shared_memory() {
    let mut sample = Sample::one_in(8);
    let mut differences = Differences::default();
    let accesses = [
        (4i32, "st.shared.u32 [A], %r35; bar.sync 0; ld.shared.u32 %r9, [A];"),
        (4, "st.shared.u32 [A], %r35; ld.shared.u32 %r9, [A]; "),
        (1, "st.shared.u8 [A], %r35; bar.sync 0; ld.shared.s8 %r9, [A];"),
        (2, "st.shared.u16 [A], %r35; bar.sync 0; ld.shared.s16 %r9, [A];"),
        (8, "st.shared.v2.u32 [A], {%r35, %r1}; bar.sync 0; ld.shared.v2.u32 {%r9, %r8}, [A];"),
        (8, "st.shared.u64 [A], %rd3; bar.sync 0; ld.shared.u64 %rd5, [A]; sub.u64 %rd5, %rd5, %rd1;
            cvt.u32.u64 %r9, %rd5;"),
        (8, "st.shared.u32 [A], %r35; st.shared.u32 [A+4], %r1; bar.sync 0;
            ld.shared.u32 %r9, [A]; ld.shared.u32 %r8, [A+4]; mad.lo.u32 %r9, %r8, 99, %r9;"),
        (16, "st.shared.v4.u32 [A], {%r35, %r1, %r2, %r35}; bar.sync 0;
            ld.shared.v4.u32 {%r9, %r8, %r7, %r10}, [A]; mad.lo.u32 %r9, %r8, 99, %r9;"),
    ];
    for divides in [
        "rem.u32 %r5, %r4, 80; div.u32 %r6, %r4, 80;",
        "add.u32 %r11, %r3, 80; rem.s32 %r5, %r4, %r11; div.s32 %r6, %r4, %r11;",
        "mul.hi.u32 %r12, %r4, 0xcccccccd; shr.u32 %r6, %r12, 6; mul.lo.u32 %r12, %r6, 80;
        sub.u32 %r5, %r4, %r12;",
    ] {
        for (size, access) in accesses {
            for (start, threads) in [(0i32, 40), (16, 64), (70, 32), (160, 32)] {
                // By how much the last thread's access, or the first one's, is outside.
                let last = size * (start + threads - 1);
                for (place, offset) in [
                    (0, 0),
                    (-64, 64),
                    (64, -64),
                    (8192 - last, 0),
                    (8192 - size - last, 0),
                    (-size * start, 0),
                    (-size * (start + 1), 0),
                    (-4096 - size * start, 4096),
                    (2, 0),
                ] {
                    if !sample.takes() {
                        continue;
                    }
                    let at = format!("%r7+{offset}");
                    let second = format!("%r7+{}", offset + 4);
                    let access = access.replace("A+4", &second).replace('A', &at);
                    let body = format!(
                        "add.u32 %r4, %r35, {start}; {divides} mov.u32 %r8, s;
                        mad.lo.u32 %r7, %r6, {}, %r8; mad.lo.u32 %r7, %r5, {size}, %r7;
                        add.s32 %r7, %r7, {place}; {access}",
                        size * 80
                    );
                    let block = [threads as u32, 1, 1];
                    // One thread alone is outside.
                    let one = place == 8192 - last || place == -size * (start + 1);
                    differences.try_up_to(&body, &[block], 0, !one);
                }
            }
        }
    }
    differences.none();
}

/// What says whose value a shuffle takes may be the bits of a number that is none.
#[test]
fn shuffles_by_what_is_no_number() {
    let none = "mov.f32 %f1, 0f7f800000; mov.f32 %f2, 0fff800000; cvt.rn.f32.u32 %f3, %r3;
        add.f32 %f1, %f1, %f3; add.f32 %f4, %f1, %f2;";
    for (bits, by) in [
        ("mov.b32 %r6, %f4;", "%r6"),
        ("add.f32 %r6, %f1, %f2;", "%r6"),
    ] {
        for shuffle in [
            format!("shfl.sync.down.b32 %r5|%p1, 5, {by}, 31, -1;"),
            format!("shfl.sync.up.b32 %r5|%p1, %r35, {by}, 0, -1;"),
            format!("shfl.sync.idx.b32 %r5|%p1, %r35, {by}, 31, -1;"),
            format!("shfl.sync.idx.b32 %r5|%p1, %f4, {by}, 31, -1;"),
            format!("shfl.sync.bfly.b32 %r5|%p1, {by}, {by}, 31, -1;"),
            format!("shfl.sync.bfly.b32 %r5|%p1, {by}, 3, {by}, -1;"),
            format!("shfl.sync.down.b32 %r5|%p1, 5, 1, {by}, -1;"),
        ] {
            let body = |bits: &str| {
                format!("{none} {bits} {shuffle} mov.u32 %r9, %r5; @%p1 add.u32 %r9, %r9, 1000;")
            };
            let expected = body("mov.u32 %r6, 0x7fffffff; mov.b32 %f4, 0x7fffffff;");
            let run = |body: &str, form| run(&kernel(body), form, [1, 1, 1], [32, 1, 1], 1);
            let expected = run(&expected, Form::Fibers);
            for form in [Form::Vectors, Form::Rounds, Form::Fibers] {
                let got = run(&body(bits), form);
                let what = difference(&got, &expected);
                assert_eq!(got, expected, "{form:?} {bits} {shuffle} {what}");
            }
        }
    }
}

/// A pointer into the middle of an allocation, or to nothing: elements before it are there too.
#[test]
fn rows_and_columns_from_the_middle() {
    let size = 256;
    let memory = memory::alloc(Device::FIRST, size, 1, Kind::Device).expect("memory");
    for (bits, scale) in [("u8", 1), ("u16", 2), ("u32", 4), ("u64", 8)] {
        for wide in ["cvt.s64.s32", "cvt.u64.u32"] {
            for [row, start, wild] in [[0, 0, 0], [-3, 0, 0], [7, -9, 1], [i32::MAX, 3, 2]] {
                for (place, from) in [(64, 64), (0, 0), (256 - 32 * scale, 0)] {
                    let source = harness::module(&format!(
                        ".visible .entry k(.param .u64 out, .param .u64 p)
                        {{
                            .reg .pred %p<4>; .reg .b32 %r<12>; .reg .b64 %rd<12>;
                            ld.param.u64 %rd1, [out]; ld.param.u64 %rd2, [p];
                            mov.u32 %r1, %tid.x; mul.wide.u32 %rd3, %r1, 8;
                            add.s64 %rd3, %rd3, %rd1; min.s32 %r2, %r1, 20;
                            add.s32 %r2, %r2, {start}; mov.u32 %r3, %ctaid.x;
                            add.s32 %r3, %r3, {row}; sub.s32 %r2, %r2, {row};
                            add.s32 %r2, %r2, {row}; sub.s32 %r2, %r2, %r3; add.s32 %r2, %r2, 4;
                            cvt.s64.s32 %rd4, %r2; {wide} %rd5, %r3; add.s64 %rd4, %rd4, %rd5;
                            shl.b64 %rd4, %rd4, {}; add.s64 %rd4, %rd2, %rd4;
                            setp.eq.u32 %p1, %r1, {wild}; @%p1 sub.s64 %rd4, %rd4, {from};
                            ld.global.{bits} %rd6, [%rd4];
                            ld.global.{bits} %rd7, [%rd4+-{scale}];
                            mad.lo.u64 %rd6, %rd7, 31, %rd6; st.global.u64 [%rd3], %rd6;
                            ret;
                        }}",
                        [0, 0, 1, 0, 2, 0, 0, 0, 3][scale as usize]
                    ));
                    for pointer in [memory.base + place as u64, 0] {
                        let end = |form| {
                            let mut out = [0u64; 32];
                            let module = harness::load_as(&source, form);
                            let result = harness::run_in(
                                &module,
                                "k",
                                [1, 1, 1],
                                [32, 1, 1],
                                0,
                                &mut [harness::buffer(&mut out)],
                                &[&pointer.to_le_bytes()],
                            );
                            result.map(|()| out).map_err(|fault| fault.kind)
                        };
                        let expected = end(Form::Fibers);
                        assert_eq!(end(Form::Vectors), expected, "{pointer:x} {source}");
                        assert_eq!(end(Form::Rounds), expected, "{pointer:x} {source}");
                    }
                }
            }
        }
    }
    memory::free(memory.base);
}

/// An index is the lower word of a register of 64 bits, which holds a double besides.
#[test]
fn lower_words_are_indices() {
    let mut differences = Differences::default();
    for number in [
        "cvt.u64.u32 %rd4, %r1; or.b64 %rd4, %rd4, 0x1500000000;",
        "cvt.rn.f64.u32 %rd4, %r1; add.f64 %rd4, %rd4, 0d4330000000000000;",
        "min.u32 %r4, %r1, 9; mov.b64 %rd4, {%r4, %r1};",
        "mov.b64 %rd4, {%r1, %r3}; add.f64 %rd15, %rd4, %rd4;",
    ] {
        for wide in ["cvt.s64.s32", "cvt.u64.u32"] {
            for (rest, scale) in [
                ("", 0),
                ("", 2),
                ("cvt.s64.s32 %rd6, %r3; add.s64 %rd5, %rd5, %rd6;", 2),
                ("cvt.u64.u32 %rd6, %r30; add.s64 %rd5, %rd6, %rd5;", 0),
            ] {
                let ty = if scale == 0 { "u8" } else { "u32" };
                let body = format!(
                    "{number} {wide} %rd5, %rd4; {rest} shl.b64 %rd5, %rd5, {scale};
                    add.s64 %rd5, %rd2, %rd5; ld.global.{ty} %r9, [%rd5];"
                );
                differences.try_up_to(&body, &BLOCKS[..3], 3, false);
                let waits = format!("{body} bar.sync 0; add.u32 %r9, %r9, %r1;");
                differences.try_up_to(&waits, &BLOCKS[..3], 3, false);
            }
        }
    }
    differences.none();
}
