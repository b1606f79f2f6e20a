//! Attacks on threads that go on one after the other within the code of their group: on retreats,
//! and on checks ahead of where arrays are accessed: random bodies, the same in all forms.

use std::fmt::Write as _;
use std::sync::atomic::{AtomicU64, Ordering};

use super::apart::{in_any_way, loaded, may_part};
use super::forms::{difference, kernel, run_module};
use super::fuzz::{Random, run_cases, setting};
use crate::jit::harness;
use crate::jit::module::Form;

/// Cases of a plain `cargo test`, and of a whole run the part that is run here.
const DEFAULT_CASES: u64 = 12;
const SHARE: u64 = 20;

const BLOCKS: [[u32; 3]; 8] = [
    [8, 1, 1],
    [32, 1, 1],
    [33, 1, 1],
    [16, 4, 1],
    [40, 2, 1],
    [64, 1, 1],
    [20, 1, 1],
    [96, 1, 1],
];

/// What lies behind the words that threads leave in the first buffer is filled.
const FILL: &str = "
    .reg .b16 %h<4>; mov.u32 %r26, %r35;
    fill: mul.lo.u32 %r28, %r26, 0x9e3779b1; mul.wide.u32 %rd5, %r26, 4; add.u64 %rd5, %rd1, %rd5;
    st.global.u32 [%rd5+4096], %r28; add.u32 %r26, %r26, %r36;
    setp.lt.u32 %p1, %r26, 3072; @%p1 bra fill;
    mov.u32 %r26, s; mad.lo.u32 %r26, %r35, 4, %r26; st.shared.u32 [%r26], %r35;
    mov.u64 %rd9, 7; mov.u16 %h1, 3; bar.sync 0;\n";

/// Registers of indices. `%r6` counts a loop, `%r22` is of one access.
const INDICES: [&str; 5] = ["%r6", "%r14", "%r17", "%r18", "%r19"];

/// One element of each of two arrays, at an index.
fn both(index: &str) -> String {
    format!(
        "mul.wide.u32 %rd6, {index}, 4; add.u64 %rd7, %rd2, %rd6; ld.global.u32 %r15, [%rd7];
        mul.wide.u32 %rd6, {index}, 4; add.u64 %rd8, %rd6, %rd1; ld.global.u32 %r16, [%rd8+8192];
        mad.lo.u32 %r10, %r10, 31, %r15; add.u32 %r10, %r10, %r16;"
    )
}

/// The branch is in the loop that it leaves: threads come from it past the head.
#[test]
fn a_branch_in_its_own_loop() {
    let at = both("%r6");
    for turn in [
        format!(
            "head: setp.ge.u32 %p1, %r6, %r7; @%p1 bra none; {at} add.u32 %r6, %r6, 1; bra head;
            none:"
        ),
        format!(
            "head: add.u32 %r14, %r6, 1; setp.ge.u32 %p1, %r6, %r7; @%p1 bra none; {at}
            add.u32 %r6, %r14, 0; bra head; none:"
        ),
        format!(
            "head: setp.ge.u32 %p1, %r6, %r7; @!%p1 bra on; bra none; on: {at}
            add.u32 %r6, %r6, 1; bra head; none:"
        ),
        format!(
            "head: setp.ge.u32 %p1, %r6, %r7; @%p1 bra odd; {at} bra next;
            odd: {at} add.u32 %r6, %r6, 1;
            next: add.u32 %r6, %r6, 1; setp.lt.u32 %p2, %r6, 9; @%p2 bra head;"
        ),
    ] {
        // What is done under a guard is not done by masks.
        let turn = turn.replacen("head:", "head: @%p3 add.u32 %r20, %r20, 1;", 1);
        let turn = format!("setp.gt.u32 %p3, %r6, 3; {turn}");
        for body in [loaded(&turn), may_part(&turn)] {
            for (block, n) in [
                ([8, 1, 1], 0),
                ([33, 1, 1], 0),
                ([32, 1, 1], 3),
                ([16, 4, 1], 0),
            ] {
                _ = in_any_way(&body, block, n);
            }
        }
    }
}

struct Writer<'a> {
    random: &'a mut Random,
    text: String,
    names: usize,
    /// By register, what its value is at most.
    most: [u32; 5],
    /// What it is at most where a loop begins.
    begins: u32,
    /// The register that most rows begin at.
    base: usize,
    /// A thread accesses what is outside.
    faults: bool,
    stores: bool,
}

impl Writer<'_> {
    fn below(&mut self, most: usize) -> usize {
        self.random.below(most)
    }

    fn pick<'a>(&mut self, list: &[&'a str]) -> &'a str {
        list[self.below(list.len())]
    }

    fn line(&mut self, text: &str) {
        writeln!(self.text, "{text}").expect("text takes text");
    }

    fn name(&mut self) -> String {
        self.names += 1;
        format!("at{}", self.names)
    }

    fn predicate(&mut self) -> String {
        format!("%p{}", 2 + self.below(4))
    }

    fn compare(&mut self) -> String {
        let to = self.predicate();
        let (a, b) = (INDICES[self.below(5)], INDICES[self.below(5)]);
        let text = match self.below(4) {
            0 => format!("setp.lt.u32 {to}, {a}, {b};"),
            1 => format!("and.b32 %r24, %r10, 3; setp.eq.u32 {to}, %r24, 1;"),
            2 => format!("setp.gt.u32 {to}, {a}, %r7;"),
            _ => format!("and.b32 %r24, {a}, 1; setp.ne.u32 {to}, %r24, 0;"),
        };
        self.line(&text);
        to
    }

    /// An index from another.
    fn index(&mut self) {
        let (to, from) = (1 + self.below(4), self.below(5));
        let more = [0, 1, 1, 2, 3, 7, 15, 16][self.below(8)];
        let (name, source) = (INDICES[to], INDICES[from]);
        let guard = match self.below(5) {
            0 => format!("@{} ", self.predicate()),
            _ => String::new(),
        };
        let sum = self.most[from] + more;
        let (text, most) = match self.below(8) {
            0..=4 if sum < 64 => (format!("add.u32 {name}, {source}, {more};"), sum),
            5 if sum < 64 => (format!("add.s32 {name}, {more}, {source};"), sum),
            6 => (format!("mov.u32 {name}, {source};"), self.most[from]),
            _ => (format!("and.b32 {name}, {source}, 15;"), 15),
        };
        self.line(&format!("{guard}{text}"));
        let before = if guard.is_empty() { 0 } else { self.most[to] };
        self.most[to] = most.max(before);
    }

    fn load(&mut self) {
        let number = self.below(5);
        let (mut index, mut most) = (INDICES[number], self.most[number]);
        let mut guard = match self.below(6) {
            0 => format!("@{} ", self.predicate()),
            1 => format!("@!{} ", self.predicate()),
            _ => String::new(),
        };
        let mut wide = self.pick(&["mul.wide.u32", "mul.wide.s32", "mul.wide.u32"]);
        let (ty, size, take) = [
            ("u32 %r15", 4, "mad.lo.u32 %r10, %r10, 31, %r15;"),
            (
                "u32 %r15",
                4,
                "xor.b32 %r10, %r10, %r15; add.u32 %r10, %r10, 5;",
            ),
            ("u32 %r15", 4, "mad.lo.u32 %r10, %r10, 31, %r15;"),
            ("u8 %r15", 1, "mad.lo.u32 %r10, %r10, 31, %r15;"),
            ("s16 %r15", 2, "mad.lo.u32 %r10, %r10, 31, %r15;"),
            ("u16 %h2", 2, "mad.lo.u16 %h1, %h1, 31, %h2;"),
            ("u64 %rd15", 8, "mad.lo.u64 %rd9, %rd9, 31, %rd15;"),
            (
                "v2.u32 {%r15, %r16}",
                8,
                "mad.lo.u32 %r10, %r15, 31, %r10; add.u32 %r10, %r10, %r16;",
            ),
            (
                "v4.u32 {%r15, %r16, _, %r24}",
                16,
                "mad.lo.u32 %r10, %r24, 31, %r10; xor.b32 %r10, %r10, %r16;",
            ),
            (
                "v2.u64 {%rd15, %rd16}",
                16,
                "mad.lo.u64 %rd9, %rd9, %rd16, %rd15;",
            ),
        ][self.below(10)];
        let by = size << [0, 0, 0, 1][self.below(4)];
        // Where the array ends at the buffer's end, or in front of it.
        let mut offset = [4096, 8192, 16384 - 64 * by][self.below(3)];
        let mut array = "%rd1";
        if by * most as i32 + size <= 256 && self.below(2) == 0 {
            (array, offset) = ("%rd2", 0);
        }
        if self.below(4) == 0 && most + 3 < 64 {
            offset += size * [0, 1, 2][self.below(3)];
        }
        match self.below(9) {
            0 => {
                // Below what it is told by, and the offset brings it back, as its sign extends it.
                self.line(&format!("add.u32 %r22, {index}, -5;"));
                (index, wide) = ("%r22", "mul.wide.s32");
                offset += 5 * by;
            }
            1 if offset % by == 0 && most < 60 => {
                self.line(&format!("add.u32 %r22, {index}, 2;"));
                index = "%r22";
                offset -= by * [1, 2][self.below(2)];
            }
            2 => {
                let less = 1 + self.below(9);
                self.line(&format!("add.u32 %r22, {index}, -{less};"));
                self.line("setp.lt.u32 %p6, %r22, 64;");
                (index, guard) = ("%r22", "@%p6 ".to_owned());
                most = most.max(63);
                if array == "%rd2" && by * 64 > 256 {
                    (array, offset) = ("%rd1", 4096);
                }
            }
            3 if self.faults => {
                self.line(&format!("add.u32 %r22, {index}, %r23;"));
                index = "%r22";
            }
            _ => {}
        }
        let end = if array == "%rd2" { 256 } else { 16384 };
        if by * most as i32 + offset + size > end {
            return;
        }
        // The index may be gone when its element is accessed.
        let lost = match self.below(12) {
            0 if index == "%r22" => "mov.u32 %r22, 70;",
            1 => "nextlabel:",
            _ => "",
        };
        let lost = lost.replace("nextlabel", &self.name());
        let sum = match self.below(2) {
            0 => format!("add.s64 %rd7, {array}, %rd6;"),
            _ => format!("add.u64 %rd7, %rd6, {array};"),
        };
        let space = self.pick(&[".global", ".global", ".global.nc", ""]);
        self.line(&format!("{wide} %rd6, {index}, {by}; {lost} {sum}"));
        self.line(&format!("{guard}ld{space}.{ty}, [%rd7+{offset}]; {take}"));
    }

    /// Accesses to arrays behind an index, as in a row whose loop is unrolled: inside of all of
    /// them if they are made.
    fn row(&mut self) {
        let (one, other, past) = (self.name(), self.name(), self.name());
        let from = match self.below(3) {
            0 => self.below(5),
            _ => self.base,
        };
        let index = INDICES[from];
        let [more, further] = [(); 2].map(|()| self.below(16));
        match self.below(5) {
            0 => {
                let predicate = self.predicate();
                let further = if self.below(2) == 0 { more } else { further };
                self.line(&format!(
                    "@{predicate} bra {one}; add.u32 %r22, {index}, {more}; bra {other};
                    {one}: add.u32 %r22, {index}, {further}; {other}:"
                ));
            }
            1 => self.line(&format!(
                "add.u32 %r21, {index}, {more}; add.u32 %r22, %r21, {further};"
            )),
            2 => {
                let predicate = self.predicate();
                self.line(&format!(
                    "add.u32 %r22, {index}, {more}; @{predicate} add.u32 %r22, %r22, {further};"
                ));
            }
            3 => self.line(&format!("mov.u32 %r22, {index};")),
            _ => self.line(&format!("add.u32 %r22, {index}, {more};")),
        }
        // One thread's index is further than others'.
        let last = if self.faults { 200 } else { 63 };
        self.line(&format!("setp.gt.u32 %p6, %r22, {last}; @%p6 bra {past};"));
        let guard = match self.below(6) {
            0 => format!("@{} ", self.predicate()),
            _ => String::new(),
        };
        for (ty, size, array, offset, take) in [
            (
                "u8 %r15",
                1,
                "%rd1",
                4099,
                "mad.lo.u32 %r10, %r10, 31, %r15;",
            ),
            ("u32 %r15", 4, "%rd2", 0, "mad.lo.u32 %r10, %r10, 31, %r15;"),
            (
                "u32 %r15",
                4,
                "%rd1",
                16384 - 256,
                "mad.lo.u32 %r10, %r10, 31, %r15;",
            ),
            (
                "u64 %rd15",
                8,
                "%rd1",
                16384 - 512,
                "mad.lo.u64 %rd9, %rd9, 31, %rd15;",
            ),
        ] {
            if self.below(3) > 0 {
                let wide = self.pick(&["mul.wide.u32", "mul.wide.s32"]);
                self.line(&format!(
                    "{wide} %rd6, %r22, {size}; add.s64 %rd7, {array}, %rd6;
                    {guard}ld.global.{ty}, [%rd7+{offset}]; {take}"
                ));
            }
        }
        self.line(&format!("{past}:"));
    }

    fn statements(&mut self, count: usize, depth: usize) {
        for _ in 0..count {
            match self.below(12) {
                0..=2 => self.load(),
                3..=5 => self.row(),
                6 | 7 => self.index(),
                8 => _ = self.compare(),
                9 | 10 if depth > 0 => self.branch(depth - 1),
                11 if depth > 0 => self.inner(depth - 1),
                11 if self.stores => self.line("st.shared.u32 [%r26], %r10;"),
                _ => self.line("add.u32 %r20, %r20, %r10;"),
            }
        }
    }

    fn branch(&mut self, depth: usize) {
        let (predicate, other, both) = (self.compare(), self.name(), self.name());
        let before = self.most;
        let count = 1 + self.below(4);
        self.line(&format!("@{predicate} bra {other};"));
        self.statements(count, depth);
        let one = std::mem::replace(&mut self.most, before);
        match self.below(2) {
            0 => {
                self.line(&format!("bra {both}; {other}:"));
                self.statements(count, depth);
                self.line(&format!("{both}:"));
            }
            _ => self.line(&format!("{other}:")),
        }
        for (most, one) in self.most.iter_mut().zip(one) {
            *most = one.max(*most);
        }
    }

    /// Indices are not above what loops begin with.
    fn limit(&mut self) {
        let begins = self.begins;
        for (at, index) in INDICES.iter().enumerate().skip(1) {
            if self.most[at] > begins {
                self.line(&format!("min.u32 {index}, {index}, {begins};"));
            }
            self.most[at] = begins;
        }
    }

    fn inner(&mut self, depth: usize) {
        let (again, count) = (self.name(), 1 + self.below(3));
        let turns = 1 + self.below(3);
        self.limit();
        let counter = ["%r12", "%r13"][depth.min(1)];
        self.line(&format!("mov.u32 {counter}, 0; {again}:"));
        self.statements(count, depth);
        self.limit();
        self.line(&format!(
            "add.u32 {counter}, {counter}, 1; setp.lt.u32 %p7, {counter}, {turns};
            @%p7 bra {again};"
        ));
    }

    /// What threads do from a branch to where they join.
    fn apart(&mut self) {
        let (again, none, other) = (self.name(), self.name(), self.name());
        let first = self.begins - 20;
        self.base = self.below(5);
        self.line(&format!(
            "and.b32 %r6, %r5, 7; add.u32 %r6, %r6, {first}; shr.u32 %r7, %r5, 28;
            add.u32 %r7, %r7, {first};"
        ));
        if self.faults && self.below(2) == 0 {
            self.line("add.u32 %r6, %r6, %r23; add.u32 %r7, %r7, %r23;");
        }
        self.most[0] = self.begins;
        let count = 1 + self.below(6);
        let by = [1, 1, 2, 4][self.below(4)];
        match self.below(5) {
            0 | 1 => {
                self.limit();
                self.line(&format!(
                    "setp.ge.u32 %p1, %r6, %r7; @%p1 bra {none}; {again}:"
                ));
                self.statements(count, 2);
                self.limit();
                self.line(&format!(
                    "add.u32 %r6, %r6, {by}; setp.lt.u32 %p1, %r6, %r7; @%p1 bra {again}; {none}:"
                ));
            }
            2 => {
                self.limit();
                self.line(&format!("{again}:"));
                if self.below(2) == 0 {
                    self.statements(2, 0);
                }
                self.line("@%p2 add.u32 %r20, %r20, 1;");
                self.line(&format!("setp.ge.u32 %p1, %r6, %r7; @%p1 bra {none};"));
                self.statements(count, 1);
                self.limit();
                self.line(&format!("add.u32 %r6, %r6, {by}; bra {again}; {none}:"));
            }
            _ => {
                let guard = self.pick(&["@%p1", "@!%p1"]);
                let before = self.most;
                self.line(&format!("setp.ge.u32 %p1, %r6, %r7; {guard} bra {other};"));
                self.statements(count, 2);
                let one = std::mem::replace(&mut self.most, before);
                if self.below(2) == 0 {
                    self.line(&format!("bra {none}; {other}:"));
                    self.statements(count, 2);
                    self.line(&format!("{none}:"));
                } else {
                    self.line(&format!("{other}:"));
                }
                for (most, one) in self.most.iter_mut().zip(one) {
                    *most = one.max(*most);
                }
            }
        }
    }

    fn body(&mut self) -> String {
        self.line("mov.u32 %r14, 1; mov.u32 %r17, %r6; and.b32 %r18, %r35, 7; mov.u32 %r19, 3;");
        self.line("setp.gt.u32 %p2, %r6, 3; setp.lt.u32 %p3, %r7, 9; setp.eq.u32 %p4, %r6, 5;");
        self.line("setp.ne.u32 %p5, %r3, 0; setp.ne.u32 %p6, %r6, 0;");
        if self.faults {
            let outside = [
                "64",
                "5000",
                "0x7fffff00",
                "0x80000000",
                "0xffffffb0",
                "43",
                "50",
                "55",
            ];
            let (thread, outside) = (self.below(33), self.pick(&outside));
            self.line(&format!(
                "setp.eq.u32 %p1, %r35, {thread}; selp.u32 %r23, {outside}, 0, %p1;"
            ));
        }
        let loops = self.below(3) == 0;
        if loops {
            self.line("mov.u32 %r27, 0; outer:");
            self.limit();
        }
        for _ in 0..1 + self.below(3) {
            self.apart();
            let wait = self.pick(&[
                "",
                "",
                "bar.sync 0;",
                "shfl.sync.bfly.b32 %r28, %r10, 1, 31, -1; mov.u32 %r28, 0;",
            ]);
            self.line(wait);
        }
        if loops {
            self.limit();
            self.line("add.u32 %r27, %r27, 1; setp.lt.u32 %p8, %r27, 3; @%p8 bra outer;");
        }
        for at in 2..7 {
            self.line(&format!(
                "selp.u32 %r24, 5, 9, %p{at}; mad.lo.u32 %r10, %r10, 31, %r24;"
            ));
        }
        for index in INDICES {
            self.line(&format!("mad.lo.u32 %r10, %r10, 31, {index};"));
        }
        self.line("cvt.u32.u16 %r24, %h1; add.u32 %r10, %r10, %r24; cvt.u32.u64 %r24, %rd9;");
        self.line("xor.b32 %r10, %r10, %r24;");
        std::mem::take(&mut self.text)
    }
}

#[test]
fn random_bodies_do_the_same() {
    let cases = setting("SOFTCUDA_FUZZ_CASES").map_or(DEFAULT_CASES, |cases| cases / SHARE);
    let alone = setting("SOFTCUDA_FUZZ_CASE").is_some();
    let (runs, faults) = (AtomicU64::new(0), AtomicU64::new(0));
    run_cases(cases, |_, random, _| {
        let [parts, ends, faulty, stores, more] = [3, 2, 3, 6, 4].map(|of| random.below(of));
        let begins = if ends == 0 || faulty == 0 { 20 } else { 60 };
        let mut writer = Writer {
            random,
            text: String::new(),
            names: 0,
            most: [7; 5],
            begins,
            base: 0,
            faults: faulty == 0,
            stores: stores == 0,
        };
        let body = writer.body();
        let body = if parts == 0 {
            loaded(&body)
        } else {
            may_part(&body)
        };
        let load = |form, more: usize| {
            let more = "mov.u32 %r39, 7;\n".repeat(more);
            harness::load_as(&kernel(&format!("{more}{FILL}{body}")), form)
        };
        if alone {
            println!("{body}");
        }
        let rounds = load(Form::Rounds, 0);
        let vectors = [more, more + 4].map(|more| load(Form::Vectors, more));
        for _ in 0..3 {
            let block = BLOCKS[random.below(BLOCKS.len())];
            let n = [0, 0, 3][random.below(3)];
            let expected = run_module(&rounds, [2, 1, 1], block, n);
            runs.fetch_add(1, Ordering::Relaxed);
            faults.fetch_add(u64::from(expected.is_err()), Ordering::Relaxed);
            if expected.is_err() && faulty != 0 {
                return Err(format!("{block:?} {:?}: it faults\n{body}", expected.err()));
            }
            for module in &vectors {
                let got = run_module(module, [2, 1, 1], block, n);
                // Blocks fault in any order.
                let is_same = match (&got, &expected) {
                    (Err((a, _, at)), Err((b, _, by))) => (a, at) == (b, by),
                    (got, expected) => got == expected,
                };
                if is_same {
                    continue;
                }
                let what = difference(&got, &expected);
                return Err(format!("more {more} {block:?} n={n}: {what}\n{body}"));
            }
        }
        Ok(())
    });
    let (runs, faults) = (runs.into_inner(), faults.into_inner());
    println!("{cases} bodies, {runs} launches, of which {faults} fault");
}
