//! Random and hand-written programs against [webs](crate::jit::resolve::webs) and against blocks
//! whose rows are no groups: each thread leaves what a plain interpreter says.

use std::fmt::Write as _;
use std::time::{Duration, Instant};

use super::forms::{kernel, place, run};
use super::fuzz::{Random, run_cases, setting};
use crate::jit::harness;
use crate::jit::module::Form;

/// Cases of a plain `cargo test`, and of a whole run the part that is run here.
const DEFAULT_CASES: u64 = 12;
const SHARE: u64 = 10;

const FORMS: [Form; 3] = [Form::Vectors, Form::Rounds, Form::Fibers];

/// Shapes of blocks, most of whose rows are no groups.
const BLOCKS: [[u32; 3]; 18] = [
    [12, 12, 1],
    [20, 10, 1],
    [6, 6, 6],
    [10, 4, 2],
    [36, 2, 1],
    [9, 8, 1],
    [1, 64, 1],
    [3, 8, 5],
    [100, 2, 1],
    [250, 4, 1],
    [1000, 1, 1],
    [33, 3, 1],
    [12, 5, 1],
    [2, 2, 2],
    [7, 8, 1],
    [44, 3, 2],
    [32, 3, 1],
    [24, 2, 1],
];

/// What special registers and what is made of them holds.
const SPECIALS: [&str; 14] = [
    "%tid.x",
    "%tid.y",
    "%tid.z",
    "%laneid",
    "%warpid",
    "%lanemask_lt",
    "%lanemask_ge",
    "%lanemask_eq",
    "%ntid.x",
    "%ntid.y",
    "%r2",
    "%lanemask_le",
    "%lanemask_gt",
    "%ctaid.y",
];

fn special(name: &str, block: [u32; 3], linear: u32) -> u32 {
    let [x, y, z] = place(block, linear);
    let lane = linear % 32;
    let bit = 1u32 << lane;
    match name {
        "%tid.x" => x,
        "%tid.y" => y,
        "%tid.z" => z,
        "%ctaid.y" => 0,
        "%laneid" => lane,
        "%warpid" => linear / 32,
        "%lanemask_lt" => bit - 1,
        "%lanemask_le" => bit | (bit - 1),
        "%lanemask_gt" => !(bit | (bit - 1)),
        "%lanemask_ge" => !(bit - 1),
        "%lanemask_eq" => bit,
        "%ntid.x" => block[0],
        "%ntid.y" => block[1],
        _ => linear,
    }
}

/// How an instruction takes a special register, or a register that is written from it; the last
/// puts it into `%r9`. And what that is.
type Taking = (&'static str, fn(u32) -> u32);
const TAKINGS: [Taking; 23] = [
    ("mov.u32 %r9, S;", |s| s),
    ("mov.b32 %r9, S; add.u32 %r9, %r9, 1;", |s| {
        s.wrapping_add(1)
    }),
    ("mad.lo.u32 %r9, V, 3, V;", |s| s.wrapping_mul(4)),
    ("mad.lo.u32 %r9, %r40, V, 5;", |s| {
        s.wrapping_mul(7).wrapping_add(5)
    }),
    ("setp.lt.u32 %p1, V, 5; selp.u32 %r9, 3, 4, %p1;", |s| {
        if s < 5 { 3 } else { 4 }
    }),
    ("setp.ne.s32 %p1, V, 2; @%p1 mov.u32 %r9, S;", |s| {
        if s == 2 { 0 } else { s }
    }),
    (
        "cvt.u64.u32 %rd9, S; shl.b64 %rd9, %rd9, 3; cvt.u32.u64 %r9, %rd9;",
        |s| s.wrapping_mul(8),
    ),
    (
        "cvt.s64.s32 %rd9, S; shr.u64 %rd9, %rd9, 4; cvt.u32.u64 %r9, %rd9;",
        |s| ((i64::from(s as i32) as u64) >> 4) as u32,
    ),
    ("mul.wide.u32 %rd9, V, 12; cvt.u32.u64 %r9, %rd9;", |s| {
        s.wrapping_mul(12)
    }),
    (
        "mad.wide.u32 %rd9, V, 12, %rd8; cvt.u32.u64 %r9, %rd9;",
        |s| s.wrapping_mul(12).wrapping_add(77),
    ),
    (
        "cvt.u16.u32 %h1, S; add.u16 %h1, %h1, 1; cvt.u32.u16 %r9, %h1;",
        |s| u32::from((s as u16).wrapping_add(1)),
    ),
    ("cvt.u16.u32 %h1, S; mul.wide.u16 %r9, %h1, 3;", |s| {
        u32::from(s as u16) * 3
    }),
    (
        "cvt.rn.f64.u32 %d1, V; add.f64 %d1, %d1, 0d3FF0000000000000; cvt.rzi.u32.f64 %r9, %d1;",
        |s| (f64::from(s) + 1.0) as u32,
    ),
    (
        "cvt.rn.f64.s32 %d1, V; neg.f64 %d1, %d1; cvt.rzi.s32.f64 %r9, %d1;",
        |s| (-f64::from(s as i32)) as i32 as u32,
    ),
    ("cvt.rn.f32.u32 %f1, V; cvt.rzi.u32.f32 %r9, %f1;", |s| {
        s as f32 as u32
    }),
    ("cvt.rn.f32.s32 %f1, V; mov.b32 %r9, %f1;", |s| {
        (s as i32 as f32).to_bits()
    }),
    (
        "cvt.rn.f16.u32 %h1, V; mov.b32 %r9, {%h1, %h1}; and.b32 %r9, %r9, 0;",
        |_| 0,
    ),
    ("shl.b32 %r9, V, 3; xor.b32 %r9, %r9, V;", |s| (s << 3) ^ s),
    ("min.u32 %r9, V, 7; max.s32 %r9, %r9, V;", |s| {
        (s.min(7) as i32).max(s as i32) as u32
    }),
    ("cvt.u8.u32 %h1, S; cvt.u32.u8 %r9, %h1;", |s| s & 255),
    (
        "mov.b64 %rd9, {V, V}; shr.u64 %rd9, %rd9, 16; cvt.u32.u64 %r9, %rd9;",
        |s| ((u64::from(s) << 32 | u64::from(s)) >> 16) as u32,
    ),
    (
        "div.u32 %r9, V, 3; rem.u32 %r8, V, 3; mad.lo.u32 %r9, %r9, 8, %r8;",
        |s| (s / 3).wrapping_mul(8).wrapping_add(s % 3),
    ),
    (
        "and.b32 %r9, V, 7; setp.eq.u32 %p1, %r9, 0; @%p1 add.u32 %r9, V, 100;",
        |s| match s & 7 {
            0 => s.wrapping_add(100),
            rest => rest,
        },
    ),
];

/// The other registers that the bodies here use.
const MORE: &str = ".reg .f64 %d<4>; .reg .b16 %h<4>; .reg .b32 %r40, %r41; mov.u32 %r40, 7;
    mov.u64 %rd8, 77;";

#[test]
fn specials_in_all_rows() {
    let mut wrong = String::new();
    for waits in ["", "bar.sync 0;", "bar.warp.sync -1;"] {
        let mut jobs = vec![];
        for name in SPECIALS {
            for (text, of) in TAKINGS {
                jobs.push((
                    name,
                    format!("mov.u32 %r41, {name}; {text}")
                        .replace('S', name)
                        .replace('V', "%r41"),
                    of,
                ));
            }
        }
        // All of one special register in one body.
        for part in jobs.chunks(TAKINGS.len()) {
            let mut body = String::from(MORE);
            body += "mov.u32 %r20, 0;";
            for (_, text, _) in part {
                let _ = writeln!(
                    body,
                    "mov.u32 %r9, 0; {waits} {text} mad.lo.u32 %r20, %r20, 31, %r9;"
                );
            }
            body += "mov.u32 %r9, %r20;";
            let source = kernel(&body);
            for form in FORMS {
                for block in BLOCKS {
                    let threads = block.iter().product::<u32>();
                    let got = run(&source, form, [1, 1, 1], block, 0).expect("it runs");
                    for linear in 0..threads {
                        let values = part
                            .iter()
                            .map(|(name, _, of)| of(special(name, block, linear)));
                        let expected =
                            values.fold(0u32, |sum, v| sum.wrapping_mul(31).wrapping_add(v));
                        if got[linear as usize] != expected {
                            let _ = writeln!(
                                wrong,
                                "{} {waits:?} {form:?} {block:?}: thread {linear}",
                                part[0].0
                            );
                            break;
                        }
                    }
                }
            }
        }
    }
    assert!(wrong.is_empty(), "{wrong}");
}

/// What follows from the lowest bits of a thread's number in the grid, or of the row's length.
#[test]
fn numbers_in_the_grid() {
    type Of = fn([u32; 3], u32, u32) -> u32;
    let bodies: [(&str, Of); 10] = [
        ("shr.u32 %r9, %r10, 4;", |_, index, _| index >> 4),
        ("shr.u32 %r9, %r10, 5;", |_, index, _| index >> 5),
        ("and.b32 %r9, %r10, 15;", |_, index, _| index & 15),
        ("and.b32 %r9, %r10, 31;", |_, index, _| index & 31),
        ("or.b32 %r9, %r10, 8;", |_, index, _| index | 8),
        (
            "add.u32 %r9, %r31, %r1; shr.u32 %r9, %r9, 3;",
            |block, _, x| (block[0] + x) >> 3,
        ),
        (
            "add.u32 %r9, %r31, %r1; shr.u32 %r9, %r9, 4;",
            |block, _, x| (block[0] + x) >> 4,
        ),
        (
            "add.u32 %r9, %r31, %r1; shr.u32 %r9, %r9, 5;",
            |block, _, x| (block[0] + x) >> 5,
        ),
        (
            "add.u32 %r9, %r31, %r1; and.b32 %r9, %r9, 31;",
            |block, _, x| (block[0] + x) & 31,
        ),
        (
            "add.u32 %r9, %r31, %r1; xor.b32 %r9, %r9, 7;",
            |block, _, x| (block[0] + x) ^ 7,
        ),
    ];
    let mut wrong = String::new();
    for (body, of) in bodies {
        for waits in ["", "bar.sync 0;"] {
            let index = "mad.lo.u32 %r10, %r34, %r31, %r1;";
            let source = kernel(&format!("{index} {waits} {body}"));
            for form in FORMS {
                let rows = [[40, 1, 1], [72, 2, 1], [104, 1, 1], [48, 1, 1]];
                for block in BLOCKS.into_iter().chain(rows) {
                    let threads = block.iter().product::<u32>();
                    let got = run(&source, form, [3, 1, 1], block, 0).expect("it runs");
                    let differs = (0..3 * threads).find(|at| {
                        let [x, ..] = place(block, at % threads);
                        let index = at / threads * block[0] + x;
                        got[*at as usize] != of(block, index, x)
                    });
                    if let Some(at) = differs {
                        let _ = writeln!(wrong, "{form:?} {block:?} {waits} thread {at}: {body}");
                    }
                }
            }
        }
    }
    assert!(wrong.is_empty(), "{wrong}");
}

/// A body of many blocks and of loops one behind the other is read soon.
#[test]
fn bodies_of_many_blocks() {
    let mut slow = String::new();
    for count in [100usize, 400, 1_600] {
        let mut body = String::from("mov.u32 %r10, %r2; mov.u32 %r11, 0;\n");
        for at in 0..count {
            let _ = writeln!(
                body,
                "mov.u32 %r12, %r10; setp.gt.u32 %p1, %r10, 50000; @%p1 bra N{at};
                A{at}: add.u32 %r10, %r10, 100; setp.lt.u32 %p1, %r10, %r3; @%p1 bra A{at};
                N{at}: add.u32 %r9, %r9, %r12;"
            );
        }
        let begin = Instant::now();
        drop(harness::load(&kernel(&body)));
        let took = begin.elapsed();
        println!("{count} loops: {took:?}");
        if took > Duration::from_secs(5) {
            let _ = writeln!(slow, "{count} loops: {took:?}");
        }
    }
    let most = if setting("SOFTCUDA_FUZZ_CASES").is_some() {
        60_000
    } else {
        8_000
    };
    for count in [2_000usize, 8_000, most] {
        let mut body = String::from("again: add.u32 %r9, %r9, 1;\n");
        for at in 0..count {
            let _ = writeln!(body, "setp.eq.u32 %p1, %r2, {at}; @%p1 bra end;");
        }
        body += "setp.lt.u32 %p1, %r9, 3; @%p1 bra again; end:";
        let begin = Instant::now();
        drop(harness::load(&kernel(&body)));
        let took = begin.elapsed();
        println!("{count} ways out: {took:?}");
        if took > Duration::from_secs(5) {
            let _ = writeln!(slow, "{count} ways out: {took:?}");
        }
    }
    assert!(slow.is_empty(), "{slow}");
}

const WORDS: usize = 6;
const LONGS: usize = 3;
const FUEL: i32 = 20;

/// Some bits of a register are not all zero, or are.
#[derive(Clone, Copy)]
struct If(usize, u32, bool);

#[derive(Clone, Copy)]
enum Do {
    /// `a * by + b + more`
    Mad(usize, usize, u32, usize, u32),
    /// A special register as an operand, times that and more.
    Special(usize, usize, u32, u32),
    Mov(usize, usize),
    Number(usize, u32),
    /// `{to, or} = long`
    Split([usize; 2], usize),
    /// `long = {a, b}`
    Pack(usize, [usize; 2]),
    /// `a * b`
    Wide(usize, usize, usize),
    AddLong(usize, usize, usize),
    Narrow(usize, usize),
    /// Two neighbouring words of the table.
    Loads([usize; 2], usize),
    /// The same in one long register, which is the address, too.
    LoadLong(usize),
    /// The low half is `a + b`, the upper that of `c`.
    Part(usize, usize, usize, usize),
    /// `%rd` is changed in a loop of a function.
    Call(usize, usize, usize),
    Read(usize),
    ReadLong(usize),
    // Where all go one way.
    Wait,
    WaitWarp,
    Shuffle(usize, usize, u32),
    Ballot(usize, usize, u32),
    /// Through shared memory, from the thread so many further.
    Exchange(usize, usize, u32),
}

#[derive(Clone, Copy)]
enum End {
    Falls,
    Goes(usize),
    If(If, usize),
    Leaves(If),
}

/// A step, and when it is done.
type Guarded = (Option<If>, Do);

struct Program {
    blocks: Vec<(Vec<Guarded>, End)>,
    /// All threads go one way: conditions are of the first two words and the first long one.
    together: bool,
}

/// Words that are the same in all threads, if they go together.
const SAME: usize = 3;

fn words_of_table() -> [u32; 64] {
    std::array::from_fn(|at| (at as u32).wrapping_mul(0x9e37_79b9))
}

impl Program {
    fn new(random: &mut Random, together: bool, calls: bool) -> Program {
        let count = 2 + random.below(9);
        let mut blocks = vec![];
        for at in 0..count {
            let mut steps = vec![];
            for _ in 0..random.below(6) {
                let word = |random: &mut Random| random.below(WORDS);
                let long = |random: &mut Random| random.below(LONGS);
                let mut to = word(random);
                let mut from = [word(random), word(random), word(random)];
                // Of what is the same, only what is the same.
                if together && to < SAME {
                    from = from.map(|at| at % SAME);
                }
                let [a, b, c] = from;
                let number = random.below(9) as u32;
                let step = match random.below(if together { 20 } else { 16 }) {
                    0..=3 => Do::Mad(
                        to,
                        if random.below(2) == 0 { to } else { a },
                        [1, 1, 3][random.below(3)],
                        b,
                        number,
                    ),
                    4 => {
                        if together {
                            to = SAME + to % (WORDS - SAME);
                        }
                        Do::Special(to, random.below(SPECIALS.len()), 1 + number, 2)
                    }
                    5 => Do::Mov(to, a),
                    6 => Do::Number(to, number),
                    7 => {
                        let mut or = word(random);
                        if or == to {
                            or = (to + 1) % WORDS;
                        }
                        // Longs are not the same.
                        match together && (to < SAME || or < SAME) {
                            true => Do::Mov(to, a),
                            false => Do::Split([to, or], long(random)),
                        }
                    }
                    8 => Do::Pack(long(random), [word(random), word(random)]),
                    9 => Do::Wide(long(random), word(random), word(random)),
                    10 => Do::AddLong(long(random), long(random), long(random)),
                    11 => match together && to < SAME {
                        true => Do::Number(to, number),
                        false => Do::Narrow(to, long(random)),
                    },
                    12 => {
                        let mut or = word(random);
                        if or == to {
                            or = (to + 1) % WORDS;
                        }
                        match together && (to < SAME || or < SAME) {
                            true => Do::Mov(to, a),
                            false => Do::Loads([to, or], word(random)),
                        }
                    }
                    13 => Do::LoadLong(long(random)),
                    14 if calls => Do::Call(to, a, b),
                    14 => Do::Part(to, a, b, c),
                    15 => match random.below(2) {
                        0 => Do::Read(word(random)),
                        _ => Do::ReadLong(long(random)),
                    },
                    16 => Do::Wait,
                    17 => Do::WaitWarp,
                    _ => {
                        to = SAME + to % (WORDS - SAME);
                        match random.below(3) {
                            0 => Do::Shuffle(to, word(random), [1, 2, 5, 16, 31][random.below(5)]),
                            1 => Do::Ballot(to, word(random), [1, 2, 6][random.below(3)]),
                            _ => Do::Exchange(to, word(random), 1 + number),
                        }
                    }
                };
                let unguarded = matches!(
                    step,
                    Do::Read(_)
                        | Do::ReadLong(_)
                        | Do::Wait
                        | Do::WaitWarp
                        | Do::Shuffle(..)
                        | Do::Ballot(..)
                        | Do::Exchange(..)
                );
                let to_same = match step {
                    Do::Mad(to, ..)
                    | Do::Mov(to, ..)
                    | Do::Number(to, ..)
                    | Do::Part(to, ..)
                    | Do::Call(to, ..) => to < SAME,
                    _ => false,
                };
                let guard = (random.below(4) == 0 && !unguarded)
                    .then(|| Program::condition(random, together && to_same));
                steps.push((guard, step));
            }
            let end = match random.below(9) {
                0 | 1 => End::Falls,
                2 => End::Goes(random.below(count)),
                3 if at > 0 => End::Leaves(Program::condition(random, together)),
                _ => End::If(Program::condition(random, together), random.below(count)),
            };
            blocks.push((steps, end));
        }
        Program { blocks, together }
    }

    fn condition(random: &mut Random, same: bool) -> If {
        let register = random.below(if same { SAME } else { WORDS });
        If(
            register,
            [1, 2, 3, 6, 8][random.below(5)],
            random.below(2) == 0,
        )
    }

    fn text(&self) -> String {
        let r = |at: usize| format!("%r{}", 10 + at);
        let q = |at: usize| format!("%rd{}", 10 + at);
        let mut text = String::from("mov.u32 %r20, FUEL; mov.u32 %r24, s;\n")
            .replace("FUEL", &FUEL.to_string());
        for at in 0..WORDS {
            text += &match self.together && at < SAME {
                true => format!("add.u32 {}, %r3, {at};\n", r(at)),
                false => format!("mad.lo.u32 {}, %r2, {}, {at};\n", r(at), at + 1),
            };
        }
        for at in 0..LONGS {
            let _ = writeln!(text, "mov.b64 {}, {{%r2, {}}};", q(at), r(at));
        }
        let asks = |If(register, mask, set): If| {
            let is = if set { "ne" } else { "eq" };
            format!(
                "and.b32 %r21, {}, {mask}; setp.{is}.u32 %p1, %r21, 0;\n",
                r(register)
            )
        };
        for (at, (steps, end)) in self.blocks.iter().enumerate() {
            let _ = writeln!(text, "B{at}:");
            for (number, (guard, step)) in steps.iter().enumerate() {
                let g = match guard {
                    None => "",
                    Some(condition) => {
                        text += &asks(*condition);
                        "@%p1 "
                    }
                };
                text += &match *step {
                    Do::Mad(to, a, by, b, more) => {
                        format!(
                            "add.u32 %r22, {}, {more}; {g}mad.lo.u32 {}, {}, {by}, %r22;\n",
                            r(b),
                            r(to),
                            r(a)
                        )
                    }
                    Do::Special(to, which, by, more) => {
                        format!(
                            "mov.u32 %r21, {}; {g}mad.lo.u32 {}, %r21, {by}, {more};\n",
                            SPECIALS[which],
                            r(to)
                        )
                    }
                    Do::Mov(to, from) => format!("{g}mov.u32 {}, {};\n", r(to), r(from)),
                    Do::Number(to, number) => format!("{g}mov.b32 {}, {number};\n", r(to)),
                    Do::Split([to, or], from) => {
                        format!("{g}mov.b64 {{{}, {}}}, {};\n", r(to), r(or), q(from))
                    }
                    Do::Pack(to, [a, b]) => {
                        format!("{g}mov.b64 {}, {{{}, {}}};\n", q(to), r(a), r(b))
                    }
                    Do::Wide(to, a, b) => {
                        format!("{g}mul.wide.u32 {}, {}, {};\n", q(to), r(a), r(b))
                    }
                    Do::AddLong(to, a, b) => format!("{g}add.u64 {}, {}, {};\n", q(to), q(a), q(b)),
                    Do::Narrow(to, from) => format!("{g}cvt.u32.u64 {}, {};\n", r(to), q(from)),
                    Do::Loads([to, or], from) => format!(
                        "and.b32 %r21, {}, 31; mul.wide.u32 %rd9, %r21, 8; add.u64 %rd9, %rd9, %rd2;
                        {g}ld.global.v2.u32 {{{}, {}}}, [%rd9];\n",
                        r(from), r(to), r(or)
                    ),
                    Do::LoadLong(to) => {
                        let to = q(to);
                        format!(
                            "{g}and.b64 {to}, {to}, 31; {g}mad.lo.u64 {to}, {to}, 8, %rd2;
                            {g}ld.global.u64 {to}, [{to}];\n"
                        )
                    }
                    Do::Part(to, a, b, c) => format!(
                        "{g}vadd.u32.u32.u32 {}.h0, {}, {}, {};\n",
                        r(to),
                        r(a),
                        r(b),
                        r(c)
                    ),
                    Do::Call(to, a, b) => {
                        format!("{g}call ({}), f, ({}, {});\n", r(to), r(a), r(b))
                    }
                    Do::Read(from) => format!("mad.lo.u32 %r9, %r9, 31, {};\n", r(from)),
                    Do::ReadLong(from) => format!(
                        "mov.b64 {{%r21, %r22}}, {}; xor.b32 %r21, %r21, %r22;
                        mad.lo.u32 %r9, %r9, 31, %r21;\n",
                        q(from)
                    ),
                    Do::Wait => "bar.sync 0;\n".into(),
                    Do::WaitWarp => "bar.warp.sync -1;\n".into(),
                    Do::Shuffle(to, from, by) => format!(
                        "shfl.sync.bfly.b32 %r23, {}, {by}, 31, -1; mov.u32 {}, %r23;\n",
                        r(from),
                        r(to)
                    ),
                    Do::Ballot(to, from, mask) => format!(
                        "and.b32 %r21, {}, {mask}; setp.ne.u32 %p3, %r21, 0;
                        vote.sync.ballot.b32 {}, %p3, -1;\n",
                        r(from),
                        r(to)
                    ),
                    Do::Exchange(to, from, by) => format!(
                        "mad.lo.u32 %r21, %r35, 4, %r24; st.shared.u32 [%r21], {};
                        bar.sync 0;
                        add.u32 %r21, %r35, {by}; rem.u32 %r21, %r21, %r36;
                        mad.lo.u32 %r21, %r21, 4, %r24; ld.shared.u32 {}, [%r21]; bar.sync 0;\n",
                        r(from),
                        r(to)
                    ),
                };
                let _ = number;
            }
            let back = |to: usize| {
                "sub.u32 %r20, %r20, 1; setp.gt.s32 %p2, %r20, 0;".repeat(usize::from(to <= at))
            };
            text += &match *end {
                End::Falls => String::new(),
                End::Goes(to) if to > at => format!("bra B{to};\n"),
                End::Goes(to) => format!("{} @%p2 bra B{to};\n", back(to)),
                End::If(condition, to) if to > at => {
                    format!("{} @%p1 bra B{to};\n", asks(condition))
                }
                End::If(condition, to) => format!(
                    "{} {} and.pred %p2, %p2, %p1; @%p2 bra B{to};\n",
                    asks(condition),
                    back(to)
                ),
                End::Leaves(condition) => format!("{} @%p1 bra LE;\n", asks(condition)),
            };
        }
        text += "LE:\n";
        for at in 0..WORDS {
            let _ = writeln!(text, "mad.lo.u32 %r9, %r9, 31, {};", r(at));
        }
        text
    }

    /// What threads leave that go together, or one alone.
    fn leave(&self, block: [u32; 3], which: std::ops::Range<u32>, n: u32) -> Vec<u32> {
        struct Thread {
            number: u32,
            r: [u32; WORDS],
            q: [u64; LONGS],
            sum: u32,
        }
        let table = words_of_table();
        let mut threads: Vec<Thread> = which
            .map(|number| {
                let r: [u32; WORDS] = std::array::from_fn(|at| match self.together && at < SAME {
                    true => n + at as u32,
                    false => number.wrapping_mul(at as u32 + 1) + at as u32,
                });
                let q = std::array::from_fn(|at| u64::from(number) | u64::from(r[at]) << 32);
                Thread {
                    number,
                    r,
                    q,
                    sum: 0,
                }
            })
            .collect();
        let holds =
            |r: &[u32; WORDS], If(register, mask, set): If| (r[register] & mask != 0) == set;
        let (mut at, mut fuel) = (0, FUEL);
        'flow: while let Some((steps, end)) = self.blocks.get(at) {
            for (guard, step) in steps {
                // What lanes see of each other.
                let before: Vec<[u32; WORDS]> = threads.iter().map(|thread| thread.r).collect();
                let count = threads.len();
                for (index, thread) in threads.iter_mut().enumerate() {
                    if guard.is_some_and(|condition| !holds(&thread.r, condition)) {
                        continue;
                    }
                    let Thread { number, r, q, sum } = thread;
                    match *step {
                        Do::Mad(to, a, by, b, more) => {
                            r[to] = r[a].wrapping_mul(by).wrapping_add(r[b]).wrapping_add(more);
                        }
                        Do::Special(to, which, by, more) => {
                            let value = special(SPECIALS[which], block, *number);
                            r[to] = value.wrapping_mul(by).wrapping_add(more);
                        }
                        Do::Mov(to, from) => r[to] = r[from],
                        Do::Number(to, number) => r[to] = number,
                        Do::Split([to, or], from) => {
                            (r[to], r[or]) = (q[from] as u32, (q[from] >> 32) as u32);
                        }
                        Do::Pack(to, [a, b]) => q[to] = u64::from(r[b]) << 32 | u64::from(r[a]),
                        Do::Wide(to, a, b) => q[to] = u64::from(r[a]) * u64::from(r[b]),
                        Do::AddLong(to, a, b) => q[to] = q[a].wrapping_add(q[b]),
                        Do::Narrow(to, from) => r[to] = q[from] as u32,
                        Do::Loads([to, or], from) => {
                            let from = (r[from] & 31) as usize;
                            (r[to], r[or]) = (table[2 * from], table[2 * from + 1]);
                        }
                        Do::LoadLong(to) => {
                            let from = (q[to] & 31) as usize;
                            let [low, high] = [0, 1].map(|half| u64::from(table[2 * from + half]));
                            q[to] = high << 32 | low;
                        }
                        Do::Part(to, a, b, c) => {
                            let low = r[a].wrapping_add(r[b]) & 0xffff;
                            r[to] = r[c] & 0xffff_0000 | low;
                        }
                        Do::Call(to, a, b) => {
                            let (mut x, y) = (r[a], r[b]);
                            for _ in 0..y & 7 {
                                x = x.wrapping_mul(3).wrapping_add(y);
                            }
                            r[to] = x;
                        }
                        Do::Read(from) => *sum = sum.wrapping_mul(31).wrapping_add(r[from]),
                        Do::ReadLong(from) => {
                            let value = (q[from] >> 32) as u32 ^ q[from] as u32;
                            *sum = sum.wrapping_mul(31).wrapping_add(value);
                        }
                        Do::Wait | Do::WaitWarp => {}
                        Do::Shuffle(to, from, by) => {
                            let other = index ^ by as usize;
                            // A lane that is not there gives what it has: not tried.
                            r[to] = before[if other < count { other } else { index }][from];
                        }
                        Do::Ballot(to, from, mask) => {
                            let first = index / 32 * 32;
                            let lanes = first..(first + 32).min(count);
                            r[to] = lanes
                                .filter(|lane| before[*lane][from] & mask != 0)
                                .fold(0, |all, lane| all | 1 << (lane - first));
                        }
                        Do::Exchange(to, from, by) => {
                            r[to] = before[(index + by as usize) % count][from];
                        }
                    }
                }
            }
            let first = threads[0].r;
            at = match *end {
                End::Falls => at + 1,
                End::Leaves(condition) if holds(&first, condition) => break 'flow,
                End::Leaves(_) => at + 1,
                End::Goes(to) | End::If(_, to) if to <= at => {
                    fuel -= 1;
                    let goes = match *end {
                        End::If(condition, _) => holds(&first, condition),
                        _ => true,
                    };
                    if goes && fuel > 0 { to } else { at + 1 }
                }
                End::Goes(to) => to,
                End::If(condition, to) if holds(&first, condition) => to,
                End::If(..) => at + 1,
            };
        }
        threads
            .iter()
            .map(|thread| {
                thread
                    .r
                    .iter()
                    .fold(thread.sum, |sum, r| sum.wrapping_mul(31).wrapping_add(*r))
            })
            .collect()
    }
}

/// `f(x, y)`: so many turns as the low bits of `y` say, in the registers of the parameters.
const FUNCTION: &str = ".func (.reg .b32 %out) f(.reg .b32 %x, .reg .b32 %y)
    {
        .reg .pred %p; .reg .b32 %n;
        mov.u32 %out, %x; and.b32 %n, %y, 7; setp.eq.u32 %p, %n, 0; @%p bra end;
        mov.u32 %x, %out;
        again: mad.lo.u32 %out, %out, 3, %y; sub.u32 %n, %n, 1; setp.ne.u32 %p, %n, 0;
        @%p bra again;
        add.u32 %y, %x, %n; mov.u32 %x, %y; and.b32 %x, %x, 31;
        more: add.u32 %x, %x, 5; setp.lt.u32 %p, %x, 50; @%p bra more;
        end: ret;
    }
";

fn flow(random: &mut Random, together: bool, calls: bool) -> Result<(), String> {
    let program = Program::new(random, together, calls);
    let text = program.text();
    let mut source = kernel(&text);
    if calls {
        source = source.replace(".visible .entry", &format!("{FUNCTION}.visible .entry"));
    }
    let shapes = [(); 3].map(|()| BLOCKS[random.below(BLOCKS.len())]);
    for block in shapes {
        let threads: u32 = block.iter().product();
        let n = random.below(16) as u32;
        let expected: Vec<u32> = match together {
            true => program.leave(block, 0..threads, n),
            false => (0..threads)
                .flat_map(|at| program.leave(block, at..at + 1, n))
                .collect(),
        };
        for form in FORMS {
            let got = run(&source, form, [1, 1, 1], block, n)
                .map_err(|fault| format!("{form:?} {block:?} {fault:?}\n{text}"))?;
            if let Some(at) = (0..threads as usize).find(|at| got[*at] != expected[*at]) {
                return Err(format!(
                    "{form:?} {block:?} n={n}: thread {at} {:x} for {:x}\n{text}",
                    got[at], expected[at]
                ));
            }
        }
    }
    Ok(())
}

fn cases() -> u64 {
    setting("SOFTCUDA_FUZZ_CASES").map_or(DEFAULT_CASES, |cases| cases / SHARE)
}

#[test]
fn random_graphs() {
    run_cases(cases(), |_, random, _| flow(random, false, false));
}

#[test]
fn random_graphs_with_calls() {
    run_cases(cases(), |_, random, _| {
        flow(random, random.0 % 2 == 0, true)
    });
}

#[test]
fn random_graphs_that_wait() {
    run_cases(cases(), |_, random, _| flow(random, true, false));
}

/// One thread of the block reads outside.
#[test]
fn faults_of_each_thread() {
    let bodies = [
        "setp.eq.u32 %p1, %r2, %r3; @%p1 ld.global.u32 %r9, [%r39];",
        "setp.eq.u32 %p1, %r2, %r3; @!%p1 bra past; ld.global.u32 %r9, [%r39]; past:",
        "setp.eq.u32 %p1, %r2, %r3; selp.b64 %rd9, 77, %rd3, %p1; ld.global.u32 %r9, [%rd9];",
        "again: add.u32 %r10, %r10, 1; setp.eq.u32 %p1, %r2, %r3; selp.b64 %rd9, 64, %rd3, %p1;
        ld.global.u32 %r9, [%rd9]; setp.lt.u32 %p1, %r10, 5; @%p1 bra again;",
        "mov.u32 %r10, %tid.y; sub.u32 %r11, %r2, %r3; setp.eq.u32 %p2, %r11, 0; @%p2 trap;
        add.u32 %r9, %r10, 4;",
    ];
    let mut wrong = String::new();
    for body in bodies {
        let body = format!("mov.u64 %rd7, 64; {}", body.replace("%r39", "%rd7"));
        for waits in ["", "bar.sync 0;", "bar.warp.sync -1;"] {
            let source = kernel(&format!("mov.u32 %r10, 0; {waits} {body} {waits}"));
            for form in FORMS {
                for block in BLOCKS {
                    let threads: u32 = block.iter().product();
                    let step = if threads > 150 { 7 } else { 1 };
                    for at in (0..threads).step_by(step) {
                        let end = run(&source, form, [2, 1, 1], block, at);
                        let place = Some(place(block, at));
                        match end {
                            Err((_, [0, 0, 0], thread)) if thread == place => {}
                            end => {
                                let end = end.map(|_| ());
                                let _ = writeln!(
                                    wrong,
                                    "{form:?} {block:?} {at}: {end:?} {waits}\n{body}"
                                );
                                break;
                            }
                        }
                    }
                }
            }
        }
    }
    assert!(wrong.is_empty(), "{wrong}");
}

/// What forms say of bodies in all shapes of blocks.
fn same_in_all_shapes(bodies: &[&str]) {
    let mut wrong = String::new();
    let rows = [[40, 1, 1], [72, 2, 1], [104, 1, 1], [48, 1, 1]];
    for body in bodies {
        let shapes = BLOCKS.into_iter().chain(rows);
        let differs = |block: &[u32; 3]| {
            let source = kernel(body);
            let [vectors, rounds, fibers] =
                FORMS.map(|form| run(&source, form, [3, 1, 1], *block, 9));
            vectors != fibers || rounds != fibers
        };
        let differing: Vec<[u32; 3]> = shapes.filter(differs).collect();
        if !differing.is_empty() {
            let _ = writeln!(wrong, "{differing:?}: {body}");
        }
    }
    assert!(wrong.is_empty(), "{wrong}");
}

/// A wide group without waits that begins where no number of such groups does.
#[test]
fn wide_groups_in_rows_that_they_do_not_fill() {
    same_in_all_shapes(&[
        "add.u32 %r10, %r31, %r1; shr.u32 %r11, %r10, 5; and.b32 %r12, %r11, 63;
        mul.wide.u32 %rd9, %r12, 4; add.u64 %rd9, %rd9, %rd2; ld.global.u32 %r12, [%rd9];
        ld.global.u32 %r13, [%rd3]; mad.lo.u32 %r9, %r12, %r13, %r11;",
        "add.u32 %r10, %r31, %r1; and.b32 %r11, %r10, 15; mul.wide.u32 %rd9, %r11, 4;
        add.u64 %rd9, %rd9, %rd2; ld.global.u32 %r12, [%rd9]; add.u32 %r9, %r12, %r11;",
        "mad.lo.u32 %r10, %r34, %r31, %r1; shr.u32 %r11, %r10, 5; and.b32 %r12, %r11, 63;
        mul.wide.u32 %rd9, %r12, 4; add.u64 %rd9, %rd9, %rd2; ld.global.u32 %r12, [%rd9];
        ld.global.u32 %r13, [%rd3]; mad.lo.u32 %r9, %r12, %r13, %r11;",
    ]);
}

/// The number in the warp where a row begins anywhere in one.
#[test]
fn lanes_where_rows_are_no_warps() {
    same_in_all_shapes(&[
        "mov.u32 %r10, %laneid; mul.wide.u32 %rd9, %r10, 4; add.u64 %rd9, %rd2, %rd9;
        ld.global.u32 %r9, [%rd9];",
        "mov.u32 %r10, %warpid; setp.eq.u32 %p1, %r10, 1; @%p1 bra one; mov.u32 %r9, 5; bra end;
        one: mov.u32 %r9, 6; end:",
        "mov.u32 %r10, %laneid; setp.eq.u32 %p1, %r10, 0; @!%p1 bra end;
        red.global.add.u32 [%rd1+12000], 1; end:",
    ]);
}

/// Groups across rows: numbers of rows decide, shuffle, vote, and go through shared memory.
#[test]
fn groups_across_rows() {
    let tile = "mov.u32 %r10, s; rem.u32 %r11, %r35, 2000; mad.lo.u32 %r11, %r11, 4, %r10;";
    let copies = format!(
        "{tile} cp.async.ca.shared.global [%r11], [%rd2], 4; cp.async.wait_all; bar.sync 0;
        ld.shared.u32 %r9, [%r11]; add.u32 %r9, %r9, %r30; bar.sync 0;"
    );
    same_in_all_shapes(&[
        &copies,
        "mov.u32 %r10, %laneid; and.b32 %r11, %r10, 24; mov.u32 %r12, 255;
        shl.b32 %r12, %r12, %r11; shfl.sync.bfly.b32 %r9, %r2, 3, 31, %r12;",
        "setp.lt.u32 %p1, %r30, 3; @!%p1 bra past; add.u32 %r9, %r1, 7; past: bar.sync 0;
        mad.lo.u32 %r9, %r30, 100, %r9;",
        "setp.lt.u32 %p1, %r1, 3; vote.sync.ballot.b32 %r9, %p1, -1; mad.lo.u32 %r9, %r9, 3, %r30;",
        "setp.eq.u32 %p1, %r1, 0; @%p1 bra end; bar.warp.sync -1; mov.u32 %r9, %r30; end:",
        "setp.ge.u32 %p1, %r30, 2; @%p1 exit; bar.sync 0; add.u32 %r9, %r30, %r1; bar.sync 0;",
        "mov.u32 %r10, 0; bar.sync 0; loop: add.u32 %r9, %r9, %r30; bar.sync 0;
        mad.lo.u32 %r9, %r1, 3, %r9; add.u32 %r10, %r10, 1; setp.lt.u32 %p1, %r10, 4;
        @%p1 bra loop;",
        "mov.u32 %r10, 0; loop: add.u32 %r9, %r9, %r30; add.u32 %r10, %r10, 1;
        setp.lt.u32 %p1, %r10, %r1; @%p1 bra loop; bar.sync 0;",
        "bar.sync 0; mov.u32 %r10, %tid.z; setp.ne.u32 %p1, %r10, 0;
        bar.red.popc.u32 %r9, 0, %p1;",
        "bar.sync 0; mov.u32 %r10, %tid.y; match.any.sync.b32 %r9, %r10, -1;",
        "mov.u32 %r10, %tid.y; redux.sync.add.u32 %r9, %r10, -1; mad.lo.u32 %r9, %r9, 3, %r1;",
        "mov.u32 %r10, %tid.y; shfl.sync.idx.b32 %r9, %r10, %r1, 31, -1;
        mad.lo.u32 %r9, %r9, 3, %r1;",
        "bar.sync 0; mov.v4.u32 {%r10, %r11, %r12, %r13}, %tid; mad.lo.u32 %r9, %r12, 100, %r11;
        mad.lo.u32 %r9, %r9, 1000, %r10; bar.sync 0;",
    ]);
}

/// What is added to neighbouring numbers, from any word on: below, in and behind 16 bytes.
#[test]
fn sums_of_rows() {
    let mut bodies = vec![];
    for (ty, size, one) in [("f32", 4, "0f3f800000"), ("f64", 8, "0d3ff0000000000000")] {
        for first in [0, 1, 2, 3] {
            for waits in ["", "bar.sync 0;"] {
                // Those of other blocks are beside.
                bodies.push(format!(
                    "{waits} add.u32 %r10, %r30, %r1; add.u32 %r10, %r10, {first};
                    rem.u32 %r10, %r10, 400; mul.wide.u32 %rd9, %r10, {size};
                    add.u64 %rd9, %rd9, %rd1; add.u64 %rd9, %rd9, 12288;
                    red.global.add.{ty} [%rd9], {one}; {waits}"
                ));
            }
        }
        // Some threads, and neighbours that change places.
        bodies.push(format!(
            "xor.b32 %r10, %r1, 1; and.b32 %r11, %r1, 5; setp.eq.u32 %p1, %r11, 4;
            rem.u32 %r10, %r10, 400; mul.wide.u32 %rd9, %r10, {size}; add.u64 %rd9, %rd9, %rd1;
            add.u64 %rd9, %rd9, 12288; @!%p1 red.global.add.{ty} [%rd9], {one};"
        ));
    }
    let bodies: Vec<&str> = bodies.iter().map(|body| &**body).collect();
    same_in_all_shapes(&bodies);
}
