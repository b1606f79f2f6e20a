//! Loops in step that are harder than those in [`paces`](super::paces): random ones, among others.

use super::forms::{Outcome, kernel, run_module};
use super::fuzz::{Random, Sample, setting};
use crate::jit::harness;
use crate::jit::module::Form;

/// One of these.
fn one<'a>(random: &mut Random, of: &[&'a str]) -> &'a str {
    of[random.below(of.len())]
}

const WORDS: [&str; 7] = ["%r10", "%r11", "%r12", "%r13", "%r14", "%r15", "%r16"];
const WIDE: [&str; 2] = ["%rd10", "%rd11"];
const DOUBLE: [&str; 2] = ["%d1", "%d2"];
const FLOAT: [&str; 2] = ["%f1", "%f2"];
const SHORT: [&str; 2] = ["%h1", "%h2"];
const PREDICATES: [&str; 3] = ["%p5", "%p6", "%p7"];

/// What makes bodies.
struct Maker {
    random: Random,
    label: usize,
    /// What may be written.
    words: Vec<&'static str>,
    wide: Vec<&'static str>,
    double: Vec<&'static str>,
    float: Vec<&'static str>,
    short: Vec<&'static str>,
    predicates: Vec<&'static str>,
    in_loop: bool,
    /// The first of a thread's words: the same in all loops, or they would race.
    start: &'static str,
}

impl Maker {
    fn new(seed: u64) -> Maker {
        Maker {
            random: Random(seed),
            label: 0,
            words: vec![],
            wide: vec![],
            double: vec![],
            float: vec![],
            short: vec![],
            predicates: vec![],
            in_loop: false,
            start: "",
        }
    }

    /// All registers may be written.
    fn all(&mut self) {
        self.words = WORDS.to_vec();
        self.wide = WIDE.to_vec();
        self.double = DOUBLE.to_vec();
        self.float = FLOAT.to_vec();
        self.short = SHORT.to_vec();
        self.predicates = PREDICATES.to_vec();
    }

    /// Some registers may be written: the others stay as they are.
    fn some(&mut self) {
        for list in [
            &mut self.words,
            &mut self.wide,
            &mut self.double,
            &mut self.float,
            &mut self.short,
            &mut self.predicates,
        ] {
            let keep = self.random.below(list.len() + 1);
            while list.len() > keep {
                let at = self.random.below(list.len());
                list.remove(at);
            }
        }
        if self.words.is_empty() {
            self.words.push("%r10");
        }
    }

    fn fresh(&mut self) -> String {
        self.label += 1;
        format!("l{}", self.label)
    }

    /// A word that is read.
    fn word(&mut self) -> String {
        let r = &mut self.random;
        match r.below(10) {
            0 => "%r1".into(),
            1 => "%r3".into(),
            2 => format!("{}", r.below(40)),
            3 => "%r35".into(),
            4 if self.in_loop => "%r4".into(),
            5 => "%r7".into(),
            _ => one(r, &WORDS).into(),
        }
    }

    /// Most often none.
    fn guard(&mut self) -> String {
        match self.random.below(5) {
            0 => {
                let not = one(&mut self.random, &["", "!"]);
                format!("@{not}{} ", one(&mut self.random, &PREDICATES))
            }
            _ => String::new(),
        }
    }

    /// Steps that do no more than write registers.
    fn simple(&mut self) -> String {
        let guard = self.guard();
        let (a, b) = (self.word(), self.word());
        let to = one(&mut self.random, &self.words);
        match self.random.below(16) {
            0 if !self.wide.is_empty() => {
                let to = one(&mut self.random, &self.wide);
                let from = one(&mut self.random, &WIDE);
                let r = one(&mut self.random, &WORDS);
                match self.random.below(3) {
                    0 => format!("{guard}mad.wide.u32 {to}, {r}, 77, {from};"),
                    1 => format!("{guard}add.u64 {to}, {from}, 0x123456789;"),
                    _ => format!("{guard}cvt.u64.u32 {to}, {r};"),
                }
            }
            1 if !self.double.is_empty() => {
                let to = one(&mut self.random, &self.double);
                let from = one(&mut self.random, &DOUBLE);
                let r = one(&mut self.random, &WORDS);
                match self.random.below(2) {
                    0 => format!("{guard}cvt.rn.f64.u32 {to}, {r};"),
                    _ => format!(
                        "{guard}add.rn.f64 {to}, {from}, {};",
                        one(&mut self.random, &DOUBLE)
                    ),
                }
            }
            2 if !self.float.is_empty() => {
                let to = one(&mut self.random, &self.float);
                let r = one(&mut self.random, &WORDS);
                match self.random.below(2) {
                    0 => format!("{guard}cvt.rn.f32.u32 {to}, {r};"),
                    _ => format!("{guard}add.rn.f32 {to}, %f1, %f2;"),
                }
            }
            3 if !self.short.is_empty() => {
                let to = one(&mut self.random, &self.short);
                let r = one(&mut self.random, &WORDS);
                match self.random.below(2) {
                    0 => format!("{guard}cvt.u16.u32 {to}, {r};"),
                    _ => format!("{guard}add.u16 {to}, %h1, %h2;"),
                }
            }
            4 | 5 if !self.predicates.is_empty() => {
                let to = one(&mut self.random, &self.predicates);
                let ask = one(&mut self.random, &["lt", "ge", "eq", "ne"]);
                let r = one(&mut self.random, &WORDS);
                match self.random.below(3) {
                    0 => format!("{guard}setp.{ask}.u32 {to}, {r}, {b};"),
                    1 => format!("and.b32 %r22, {r}, 1; {guard}setp.{ask}.u32 {to}, %r22, 1;"),
                    _ => format!(
                        "{guard}setp.{ask}.u32 {to}, %r1, {};",
                        self.random.below(40)
                    ),
                }
            }
            6 => {
                let from = one(&mut self.random, &WIDE);
                format!("shr.u64 %rd15, {from}, 9; {guard}cvt.u32.u64 {to}, %rd15;")
            }
            7 => format!(
                "{guard}cvt.u32.u16 {to}, {};",
                one(&mut self.random, &SHORT)
            ),
            8 => {
                let p = one(&mut self.random, &PREDICATES);
                let other = one(&mut self.random, &WORDS);
                format!("{guard}selp.u32 {to}, %r7, {other}, {p};")
            }
            9 => {
                // A look at what never changes, at a place of the thread's own.
                let r = one(&mut self.random, &WORDS);
                format!(
                    "and.b32 %r22, {r}, 63; mul.wide.u32 %rd15, %r22, 4;
                    add.u64 %rd15, %rd2, %rd15; {guard}ld.global.u32 {to}, [%rd15];"
                )
            }
            10 => format!("{guard}mov.u32 {to}, {a};"),
            11 => {
                let d = one(&mut self.random, &DOUBLE);
                format!(
                    "mov.b64 %rd15, {d}; shr.u64 %rd15, %rd15, 40; {guard}cvt.u32.u64 {to}, %rd15;"
                )
            }
            12 => format!(
                "{guard}ld.global.u32 {to}, [%rd2+{}];",
                4 * self.random.below(64)
            ),
            _ => {
                let op = one(
                    &mut self.random,
                    &["add.u32", "xor.b32", "sub.u32", "mul.lo.u32"],
                );
                let r = one(&mut self.random, &WORDS);
                format!("{guard}{op} {to}, {r}, {b};")
            }
        }
    }

    /// Steps, among them branches and loops in each other.
    fn steps(&mut self, most: usize, depth: usize) -> String {
        let count = self.random.below(most + 1);
        let mut text = String::new();
        for _ in 0..count {
            let step = match self.random.below(7) {
                0 if depth > 0 => {
                    let over = self.fresh();
                    let ask = self.ask();
                    let inner = self.steps(3, depth - 1);
                    format!("{ask} @%p2 bra {over}; {inner} {over}:")
                }
                1 if depth > 0 => {
                    let (over, other) = (self.fresh(), self.fresh());
                    let ask = self.ask();
                    let (one, two) = (self.steps(3, depth - 1), self.steps(3, depth - 1));
                    format!("{ask} @%p2 bra {other}; {one} bra {over}; {other}: {two} {over}:")
                }
                2 if depth > 0 => {
                    let more = self.fresh();
                    let some = ["%r28", "%r29"][depth.min(1)];
                    let counter = ["%r25", "%r26", "%r27"][depth.min(2)];
                    let inner = self.steps(2, depth - 1);
                    let end = match self.random.below(3) {
                        0 => "3".to_string(),
                        1 => some.to_string(),
                        _ => "%r19".to_string(),
                    };
                    let of = one(&mut self.random, &WORDS);
                    format!(
                        "mov.u32 {counter}, 0; and.b32 {some}, {of}, 3;
                        {more}: {inner} add.u32 {counter}, {counter}, 1;
                        setp.lt.u32 %p3, {counter}, {end}; @%p3 bra {more};"
                    )
                }
                _ => self.simple(),
            };
            text += &step;
            text += "\n";
        }
        text
    }

    /// What a branch goes by.
    fn ask(&mut self) -> String {
        let r = one(&mut self.random, &WORDS);
        let k = self.random.below(40);
        match self.random.below(8) {
            0 => format!("setp.lt.u32 %p2, %r1, {k};"),
            1 => format!("setp.ne.u32 %p2, %r1, {k};"),
            2 => format!("and.b32 %r22, {r}, 1; setp.eq.u32 %p2, %r22, 1;"),
            3 => format!("and.b32 %r22, {r}, 7; setp.eq.u32 %p2, %r22, 1;"),
            4 if self.in_loop => {
                let how = one(&mut self.random, &["lt", "ge", "eq", "ne", "gt"]);
                format!("setp.{how}.u32 %p2, %r4, %r3;")
            }
            5 => format!("setp.lt.u32 %p2, {k}, %r3;"),
            6 => format!("setp.lt.u32 %p2, {r}, %r35;"),
            _ => format!("setp.lt.s32 %p2, {r}, 0;"),
        }
    }

    /// A loop by `%r4`; `%rd9` is where its words are.
    fn in_step(&mut self, last: bool) -> String {
        let (again, past, none, inner) = (self.fresh(), self.fresh(), self.fresh(), self.fresh());
        self.all();
        let before = self.steps(6, 1);
        self.in_loop = true;
        self.some();
        let how = one(&mut self.random, &["ge", "lt", "gt", "ne", "eq", "le"]);
        let not = one(&mut self.random, &["", "!"]);
        let [a, b, c, d] = [4, 3, 4, 2].map(|most| {
            let depth = self.random.below(3);
            self.steps(most, depth)
        });
        let row = "mul.wide.u32 %rd5, %r4, 4; add.u64 %rd6, %rd9, %rd5;";
        let load = format!("{row} ld.global.u32 %r7, [%rd6]; ");
        let store = {
            let v = one(&mut self.random, &WORDS);
            format!("{row} add.u32 %r8, {v}, %r7; st.global.u32 [%rd6], %r8;")
        };
        let next = one(
            &mut self.random,
            &["add.u32 %r4, %r4, %r24;", "add.u32 %r4, %r4, %r31;"],
        );
        let dividing = format!("setp.{how}.u32 %p4, %r4, %r3; @{not}%p4 bra {past};");
        let start = self.start;
        let enter = match self.random.below(4) {
            0 => String::new(),
            1 => format!("setp.ge.u32 %p1, %r4, %r3; @%p1 bra {none};"),
            2 => {
                let ask = self.ask();
                let more = self.steps(2, 0);
                format!("{ask} @%p2 bra {again}; {more}")
            }
            _ => {
                let ask = self.ask();
                let more = self.steps(2, 0);
                format!(
                    "setp.ge.u32 %p1, %r4, %r3; @%p1 bra {none}; {load} {ask} @%p2 bra {again}; {more}"
                )
            }
        };
        let turn = match self.random.below(7) {
            0 => format!("{load} {a} {store} {next} {dividing} {b} {load} {past}: {c}"),
            1 => format!("{load} {a} {store} {dividing} {b} {store} {past}: {c} {next} {d}"),
            2 => format!(
                "{load} {a} {store} {next} {dividing} {b} {past}: {c}
                setp.{how}.u32 %p4, %r4, %r3; @%p4 bra {past}x; {d} {past}x:"
            ),
            // The dividing branch is where not all come to.
            3 => {
                let ask = self.ask();
                format!(
                    "{load} {a} {store} {next} {ask} @%p2 bra {past}; {dividing} {b} {past}: {c} {d}"
                )
            }
            // Or in a loop of its own.
            4 => format!(
                "{load} {a} {store} {next} mov.u32 %r21, 0; {inner}: {c} {dividing} {b}
                add.u32 %r21, %r21, 1; setp.lt.u32 %p10, %r21, 3; @%p10 bra {inner}; {past}: {d}"
            ),
            5 => format!(
                "{load} {a} {store} {next} {dividing} {b} bra {past}x; {past}: {c} {past}x: {d}"
            ),
            // Two ways to the dividing branch.
            _ => {
                let ask = self.ask();
                format!(
                    "{load} {ask} @%p2 bra {inner}; {a} {inner}: {next} {dividing} {b} {past}: {c} {load}"
                )
            }
        };
        self.in_loop = false;
        let compared = one(
            &mut self.random,
            &[
                "setp.lt.u32 %p1, %r4, %r3; @%p1 bra",
                "setp.lt.u32 %p1, %r4, %r3; @%p1 bra",
                "setp.ge.u32 %p1, %r4, %r3; @!%p1 bra",
                "setp.gt.u32 %p1, %r3, %r4; @%p1 bra",
            ],
        );
        self.all();
        let after = if last {
            String::new()
        } else {
            self.steps(2, 1)
        };
        format!("{before} {start} {enter} {again}: {turn} {compared} {again}; {none}: {after}")
    }

    /// A barrier, or a shuffle.
    fn wait(&mut self) -> String {
        let r = one(&mut self.random, &WORDS);
        let to = one(&mut self.random, &WORDS);
        match self.random.below(3) {
            0 => "bar.sync 0;".into(),
            1 => format!("st.shared.u32 [%r38], {r}; shfl.sync.idx.b32 {to}, {r}, 3, 31, -1;"),
            _ => format!(
                "st.shared.u32 [%r38], {r}; bar.sync 0; ld.shared.u32 {to}, [s+20]; bar.sync 0;"
            ),
        }
    }

    fn body(&mut self) -> String {
        let mut text = String::from(
            ".reg .f64 %d<4>; .reg .b16 %h<4>;
            mov.u32 %r24, %r31; mov.u32 %r7, 5; mov.u32 %r19, 2;
            mul.wide.u32 %rd9, %r34, 2400; add.u64 %rd9, %rd9, %rd1; add.u64 %rd9, %rd9, 8192;
            mov.u32 %r38, s; shl.b32 %r23, %r35, 2; add.u32 %r38, %r38, %r23;
            add.u32 %r23, %r1, 0;\n",
        );
        self.start = one(
            &mut self.random,
            &[
                "mov.u32 %r4, %r1;",
                "mov.u32 %r4, %r23;",
                "add.u32 %r4, %r1, 3;",
            ],
        );
        self.all();
        text += &self.steps(5, 1);
        if self.random.below(2) == 0 {
            text += &self.wait();
        }
        let outer = self.random.below(4) == 0;
        if outer {
            text += "mov.u32 %r20, 0; outer:\n";
        }
        let loops = [1, 1, 1, 1, 2, 3][self.random.below(6)];
        for number in 0..loops {
            text += &self.in_step(number + 1 == loops && !outer);
            if self.random.below(3) == 0 {
                text += &self.wait();
            }
        }
        if outer {
            if self.random.below(2) == 0 {
                text += &self.wait();
            }
            text += "add.u32 %r20, %r20, 1; setp.lt.u32 %p12, %r20, 3; @%p12 bra outer;\n";
        }
        text += "bar.sync 0;\n";
        let live = self.random.below(4);
        for r in WORDS {
            if live > 0 || self.random.below(3) == 0 {
                text += &format!("mad.lo.u32 %r9, %r9, 31, {r};\n");
            }
        }
        for r in WIDE {
            text += &format!(
                "shr.u64 %rd15, {r}, 13; cvt.u32.u64 %r8, %rd15; mad.lo.u32 %r9, %r9, 31, %r8; cvt.u32.u64 %r8, {r}; add.u32 %r9, %r9, %r8;\n"
            );
        }
        if live > 1 {
            for r in DOUBLE {
                text += &format!(
                    "mov.b64 %rd15, {r}; shr.u64 %rd15, %rd15, 33; cvt.u32.u64 %r8, %rd15; mad.lo.u32 %r9, %r9, 31, %r8;\n"
                );
            }
            text += "mov.b32 %r8, %f1; mad.lo.u32 %r9, %r9, 31, %r8; mov.b32 %r8, %f2; mad.lo.u32 %r9, %r9, 31, %r8;\n";
        }
        if live > 2 {
            for r in SHORT {
                text += &format!("cvt.u32.u16 %r8, {r}; mad.lo.u32 %r9, %r9, 31, %r8;\n");
            }
            for p in PREDICATES {
                text += &format!("selp.u32 %r8, 3, 1, {p}; mad.lo.u32 %r9, %r9, 31, %r8;\n");
            }
        }
        text
    }
}

const BLOCKS: [[u32; 3]; 7] = [
    [8, 1, 1],
    [24, 1, 1],
    [21, 1, 1],
    [33, 1, 1],
    [40, 1, 1],
    [96, 1, 1],
    [75, 1, 1],
];

/// Loops of all kinds, with all that differs from thread to thread.
#[test]
fn random_loops() {
    for seed in 1..=setting("SOFTCUDA_FUZZ_CASES").map_or(5, |cases| cases / 100) {
        let mut maker = Maker::new(seed);
        let body = maker.body();
        let fibers = harness::load_as(&kernel(&body), Form::Fibers);
        let numbers = [0, 1, 7, 8, 20, 50, 97, 200, 333];
        let cases = BLOCKS.iter().flat_map(|block| numbers.map(|n| (*block, n)));
        let cases: Vec<_> = cases
            .map(|(block, n)| {
                let grid = [1 + (block[0] / 8 + n) % 3, 1, 1];
                (grid, block, n, run_module(&fibers, grid, block, n))
            })
            .collect();
        for more in 0..8 {
            if more > 0 && maker.random.below(2) == 0 {
                continue;
            }
            let padded = format!("{}{body}", "mov.u32 %r39, 1;".repeat(more));
            let vectors = harness::load_as(&kernel(&padded), Form::Vectors);
            for (grid, block, n, end) in &cases {
                let got = run_module(&vectors, *grid, *block, *n);
                assert!(
                    got == *end,
                    "seed {seed} {more} {grid:?} {block:?} n={n}\n{body}"
                );
            }
        }
    }
}

/// What a body does in vectors, in any way that loops may be in step, is what it does in fibers.
fn holds(body: &str, grid: [u32; 3], blocks: &[[u32; 3]], numbers: &[u32]) {
    let fibers = harness::load_as(&kernel(body), Form::Fibers);
    let padded = (0..8).map(|more| format!("{}{body}", "mov.u32 %r39, 1;".repeat(more)));
    let vectors: Vec<_> = padded
        .map(|body| harness::load_as(&kernel(&body), Form::Vectors))
        .collect();
    for block in blocks {
        for n in numbers {
            let expected = run_module(&fibers, grid, *block, *n);
            for (more, vectors) in vectors.iter().enumerate() {
                let got = run_module(vectors, grid, *block, *n);
                let kind = |end: &Outcome| end.as_ref().err().map(|fault| fault.0);
                let same = match expected {
                    Ok(_) => got == expected,
                    // Whoever comes first is named.
                    Err(_) => kind(&got) == kind(&expected),
                };
                assert!(same, "{more} {grid:?} {block:?} n={n}\n{body}");
            }
        }
    }
}

const ROWS: [[u32; 3]; 3] = [[8, 1, 1], [21, 1, 1], [75, 1, 1]];
const NUMBERS: [u32; 4] = [1, 20, 97, 333];

/// A loop that loads ahead where `ask` says so; `before`, `turn` and `ahead` are done where they
/// are named after.
fn ahead(before: &str, turn: &str, ask: &str, ahead: &str) -> String {
    format!(
        ".reg .f64 %d<4>; mul.wide.u32 %rd9, %r34, 2400; add.u64 %rd9, %rd9, %rd1;
        mov.u32 %r4, %r1; mul.wide.u32 %rd5, %r4, 4; add.u64 %rd6, %rd9, %rd5; mov.u32 %r6, 7;
        {before}
        setp.ge.u32 %p1, %r4, %r3; @%p1 bra none;
        ld.global.u32 %r6, [%rd6+8192];
        again:
        mul.wide.u32 %rd5, %r4, 4; add.u64 %rd6, %rd9, %rd5;
        mad.lo.u32 %r10, %r6, 3, %r4; st.global.u32 [%rd6+8192], %r10;
        add.u32 %r9, %r9, %r10;
        {turn}
        add.u32 %r4, %r4, %r31; {ask} %p2, %r4, %r3; @%p2 bra past;
        {ahead}
        mul.wide.u32 %rd5, %r4, 4; add.u64 %rd7, %rd9, %rd5;
        ld.global.u32 %r6, [%rd7+8192]; xor.b32 %r6, %r6, %r4;
        past:
        setp.lt.u32 %p1, %r4, %r3; @%p1 bra again;
        none: bar.sync 0;"
    )
}

/// What the loop leaves as it is: of all sizes, written by some threads alone, or by a shuffle.
#[test]
fn kept_once() {
    let mut sample = Sample::one_in(4);
    let wide = "mul.wide.u32 %rd12, %r1, 0x12345; cvt.rn.f64.u32 %d1, %r1;
        and.b32 %r12, %r1, 3; setp.eq.u32 %p5, %r12, 1; @%p5 add.u64 %rd12, %rd12, 0x7123456789;
        @!%p5 add.rn.f64 %d1, %d1, %d1; mov.u32 %r15, 9; @%p5 bra some; mad.lo.u32 %r15, %r1, %r1, 4;
        some: st.shared.u32 [s+8188], %r31; shfl.sync.idx.b32 %r16, %r15, 3, 31, -1;";
    let zero = "and.b32 %r12, %r1, 5; setp.eq.u32 %p5, %r12, 1; @%p5 mov.u32 %r15, 40;
        @%p5 cvt.u64.u32 %rd12, %r1; @!%p5 cvt.rn.f64.u32 %d1, %r1;";
    let uses = "mov.b64 %rd8, %d1; xor.b64 %rd8, %rd8, %rd12; shr.u64 %rd8, %rd8, 7;
        cvt.u32.u64 %r20, %rd8; add.u32 %r9, %r9, %r20; selp.u32 %r20, %r15, %r16, %p5;
        mad.lo.u32 %r9, %r9, 3, %r20;";
    let inner = "and.b32 %r21, %r6, 3; mov.u32 %r22, 0;
        more: add.u32 %r22, %r22, 1; mad.lo.u32 %r9, %r9, 3, %r15;
        setp.lt.u32 %p6, %r22, %r21; @%p6 bra more;";
    let guarded = "and.b32 %r21, %r6, 7; setp.eq.u32 %p6, %r21, 1; @%p6 add.u32 %r15, %r15, 1;";
    for before in [wide, zero] {
        for turn in [uses, inner, guarded] {
            for ask in ["setp.ge.u32", "setp.gt.u32", "setp.lt.u32", "setp.ne.u32"] {
                if !sample.takes() {
                    continue;
                }
                let body = format!("{} {uses}", ahead(before, turn, ask, uses));
                holds(&body, [3, 1, 1], &ROWS, &NUMBERS);
            }
        }
    }
}

/// Threads come to the dividing branch in some turns, go away from it by themselves, or end.
#[test]
fn around_the_dividing_branch() {
    let mut sample = Sample::one_in(4);
    let before = "mul.lo.u32 %r15, %r1, %r1; ld.global.u32 %r16, [%rd2+12];";
    for turn in [
        "",
        "and.b32 %r21, %r6, 1; setp.eq.u32 %p6, %r21, 1; @%p6 bra odd; mad.lo.u32 %r9, %r9, 5, %r15;
        odd:",
        "and.b32 %r21, %r6, 1; setp.eq.u32 %p6, %r21, 1; @%p6 add.u32 %r4, %r4, %r31; @%p6 bra past;",
        "setp.eq.u32 %p6, %r4, 40; @%p6 ret;",
        "setp.gt.u32 %p6, %r4, 90; @%p6 exit;",
        "setp.eq.u32 %p6, %r4, 45; @%p6 trap;",
        // No test has memory there.
        "setp.eq.u32 %p6, %r4, 45; mov.u64 %rd13, 64; @%p6 ld.global.u32 %r21, [%rd13];",
    ] {
        for ahead_of in [
            "",
            "shl.b32 %r21, %r6, 30; setp.lt.s32 %p7, %r21, 0; @%p7 bra past;",
            "setp.eq.u32 %p7, %r1, 5; @%p7 bra past; add.u32 %r9, %r9, %r16;",
        ] {
            for ask in ["setp.ge.u32", "setp.lt.u32", "setp.eq.u32"] {
                if !sample.takes() {
                    continue;
                }
                let body = format!(
                    "{} mad.lo.u32 %r9, %r9, 3, %r15; add.u32 %r9, %r9, %r16;",
                    ahead(before, turn, ask, ahead_of)
                );
                holds(&body, [2, 1, 1], &ROWS, &[0, 20, 97]);
            }
        }
    }
}

/// Blocks of some rows, whose threads only load, and by numbers that wrap where they are widened.
#[test]
fn rows_of_a_block() {
    let turns = |start: &str, wide: &str| {
        format!(
            "mul.lo.u32 %r15, %r30, %r30; mov.u32 %r6, 7; ld.global.u32 %r16, [%rd2+12];
            setp.eq.u32 %p5, %r1, 3; @%p5 add.u32 %r15, %r15, %r16;
            {start} setp.ge.u32 %p1, %r4, %r3; @%p1 bra none;
            again:
            mad.lo.u32 %r9, %r9, 31, %r6; add.u32 %r9, %r9, %r15;
            @%p5 xor.b32 %r9, %r9, %r16;
            add.u32 %r4, %r4, %r31; setp.ge.u32 %p2, %r4, %r3; @%p2 bra past;
            {wide} add.u64 %rd7, %rd2, %rd5; ld.global.u32 %r6, [%rd7];
            past:
            setp.lt.u32 %p1, %r4, %r3; @%p1 bra again;
            none: bar.sync 0; mad.lo.u32 %r9, %r9, 3, %r15;"
        )
    };
    let plain = turns("mov.u32 %r4, %r1;", "mul.wide.u32 %rd5, %r4, 4;");
    let wraps = turns(
        "add.u32 %r4, %r1, 3;",
        "mad.lo.u32 %r20, %r4, 4, 0xffffff80; add.u32 %r20, %r20, 128;
        cvt.u64.u32 %rd5, %r20;",
    );
    for body in [plain, wraps] {
        let blocks = [[16, 3, 1], [12, 2, 1], [8, 2, 2], [20, 2, 1], [16, 1, 1]];
        holds(&body, [2, 1, 1], &blocks, &[0, 1, 7, 17, 40, 64]);
    }
}
