//! Attacks on comparisons that are made again behind waits, and on warps that have nothing to do at
//! a kernel's start: random ways through waits, of all threads together and of each by itself.
//!
//! A kernel that also has a branch by a table makes no comparison again. So that is what all forms
//! are compared with.

use std::fmt::Write as _;
use std::sync::atomic::{AtomicUsize, Ordering};

use super::forms::{difference, run_module};
use super::fuzz::{Random, run_cases, setting};
use crate::jit::harness::{load_as, module};
use crate::jit::module::{Form, Module};

/// Cases of a plain `cargo test`, and of a whole run the part that is run here.
const DEFAULT_CASES: u64 = 15;
const SHARE: u64 = 100;
const CONDITIONS: [&str; 6] = ["lt", "le", "gt", "ge", "eq", "ne"];
const BLOCKS: [[u32; 3]; 16] = [
    [40, 2, 1],
    [8, 3, 1],
    [33, 1, 1],
    [32, 1, 1],
    [64, 1, 1],
    [96, 2, 1],
    [256, 1, 1],
    [16, 4, 1],
    [5, 3, 2],
    [128, 1, 1],
    [64, 2, 2],
    [24, 1, 1],
    [32, 3, 1],
    [100, 1, 1],
    [512, 1, 1],
    [1, 1, 1],
];
const NUMBERS: [u32; 14] = [
    0,
    1,
    5,
    8,
    31,
    32,
    33,
    64,
    96,
    97,
    200,
    1000,
    0x7fff_ffff,
    0xffff_fff0,
];

/// Registers: `%r10` to `%r17` are each thread's own numbers, `%r20` to `%r25` are the same in all
/// threads; of both, the first are written once. So are `%p0` to `%p5`, and `%p8` to `%p10`, which
/// are the same in all threads; `%p6` and `%p7` are written anywhere.
struct Writer<'a> {
    random: &'a mut Random,
    text: String,
    names: usize,
    /// Registers that are yet to be written once.
    own: Vec<usize>,
    same: Vec<usize>,
    predicates: Vec<usize>,
    same_predicates: Vec<usize>,
    /// Registers that have been written somewhere.
    known: Vec<usize>,
    known_same: Vec<usize>,
    known_predicates: Vec<usize>,
    known_same_predicates: Vec<usize>,
    /// Threads may end before the others.
    ends: bool,
    /// Shared memory holds numbers.
    shared: bool,
    /// One thread may go outside.
    fault: Option<String>,
    /// All registers are written, without guards, by all threads.
    plain: bool,
}

impl Writer<'_> {
    fn line(&mut self, text: &str) {
        writeln!(self.text, "{text}").expect("text takes text");
    }

    fn one_in(&mut self, count: usize) -> bool {
        self.random.below(count) == 0
    }

    fn pick<T: Copy>(&mut self, list: &[T]) -> T {
        list[self.random.below(list.len())]
    }

    fn name(&mut self) -> usize {
        self.names += 1;
        self.names
    }

    fn word(&mut self) -> String {
        let near = self.pick(&[0u32, 1, 5, 8, 16, 31, 32, 40, 64, 100, 0x7fff_ffff]);
        near.wrapping_add(self.random.below(3) as u32)
            .wrapping_sub(1)
            .to_string()
    }

    /// A number that a thread has.
    fn value(&mut self) -> String {
        match self.random.below(10) {
            0..=2 => "%r1".to_owned(),
            3 => "%r3".to_owned(),
            4 => format!("%r{}", 10 + self.random.below(8)),
            5 => self.same_value(),
            _ if self.known.is_empty() => "%r1".to_owned(),
            _ => {
                let known = self.known.clone();
                format!("%r{}", self.pick(&known))
            }
        }
    }

    fn same_value(&mut self) -> String {
        match self.random.below(8) {
            0 | 1 => "%r3".to_owned(),
            2 => self.word(),
            3 => format!("%r{}", 20 + self.random.below(6)),
            _ if self.known_same.is_empty() => "%r3".to_owned(),
            _ => {
                let known = self.known_same.clone();
                format!("%r{}", self.pick(&known))
            }
        }
    }

    /// A number that is in a register.
    fn register(&mut self) -> String {
        loop {
            let value = self.value();
            if value.starts_with('%') {
                return value;
            }
        }
    }

    fn guard(&mut self) -> String {
        let not = if self.one_in(3) { "!" } else { "" };
        let known = self.known_predicates.clone();
        let of = match self.random.below(8) {
            0 => self.random.below(8),
            1 => 8 + self.random.below(3),
            _ if known.is_empty() => self.random.below(8),
            _ => self.pick(&known),
        };
        format!("@{not}%p{of} ")
    }

    fn same_guard(&mut self) -> String {
        let not = if self.one_in(3) { "!" } else { "" };
        let known = self.known_same_predicates.clone();
        let of = match known.is_empty() || self.one_in(6) {
            true => 8 + self.random.below(3),
            false => self.pick(&known),
        };
        format!("@{not}%p{of} ")
    }

    fn perhaps_guard(&mut self, of: usize) -> String {
        match !self.plain && self.one_in(of) {
            true => self.guard(),
            false => String::new(),
        }
    }

    /// A register for a new number: one that is written once, most often.
    fn target(&mut self) -> String {
        if !self.own.is_empty() && (self.plain || !self.one_in(4)) {
            let at = self.random.below(self.own.len());
            let own = self.own.swap_remove(at);
            self.known.push(own);
            return format!("%r{own}");
        }
        let any = 15 + self.random.below(3);
        self.known.push(any);
        format!("%r{any}")
    }

    fn compute(&mut self) {
        let guard = self.perhaps_guard(10);
        let (a, b) = (self.register(), self.value());
        let to = self.target();
        let how = self.pick(&[
            "add.u32",
            "add.s32",
            "mul.lo.s32",
            "sub.s32",
            "xor.b32",
            "mov",
            "mad",
            "shl",
        ]);
        let text = match how {
            "mov" => format!("{guard}mov.u32 {to}, {a};"),
            "mad" => format!("{guard}mad.lo.s32 {to}, {a}, {b}, {a};"),
            "shl" => format!("{guard}shl.b32 {to}, {a}, {};", self.random.below(4)),
            how => format!("{guard}{how} {to}, {a}, {b};"),
        };
        self.line(&text);
    }

    /// All threads load the same.
    fn load(&mut self, to: String) {
        let guard = self.perhaps_guard(12);
        let at = 4 * self.random.below(8);
        let place = match self.random.below(3) {
            0 if self.shared => format!("ld.shared.u32 {to}, [s+{}]", 4096 + at),
            1 => format!("ld.const.u32 {to}, [c+{at}]"),
            _ => format!("ld.global.u32 {to}, [g+{at}]"),
        };
        self.line(&format!("{guard}{place};"));
    }

    fn compare(&mut self) {
        let (condition, ty) = (self.pick(&CONDITIONS), self.pick(&["u32", "s32"]));
        let (a, b) = match self.one_in(3) {
            true => (self.register(), self.value()),
            false => {
                let (one, other) = (self.register(), self.same_value());
                match other.starts_with('%') && self.one_in(3) {
                    true => (other, one),
                    false => (one, other),
                }
            }
        };
        let guard = self.perhaps_guard(10);
        let to = match !self.predicates.is_empty() && (self.plain || !self.one_in(4)) {
            true => {
                let at = self.random.below(self.predicates.len());
                self.predicates.swap_remove(at)
            }
            false => 6 + self.random.below(2),
        };
        self.known_predicates.push(to);
        let text = match self.random.below(16) {
            0 => {
                let other = if to == 7 { 6 } else { 7 };
                format!("{guard}setp.{condition}.{ty} %p{to}|%p{other}, {a}, {b};")
            }
            1 => format!("{guard}setp.{condition}.and.{ty} %p{to}, {a}, {b}, %p6;"),
            _ => format!("{guard}setp.{condition}.{ty} %p{to}, {a}, {b};"),
        };
        self.line(&text);
    }

    /// What is the same in all threads, where all are together.
    fn same(&mut self) {
        let to = match !self.same.is_empty() && (self.plain || !self.one_in(4)) {
            true => {
                let at = self.random.below(self.same.len());
                self.same.swap_remove(at)
            }
            false => 23 + self.random.below(3),
        };
        let (a, b) = (self.same_value(), self.same_value());
        match self.random.below(4) {
            0 if self.shared => {
                let at = 4096 + 4 * self.random.below(8);
                self.line(&format!("ld.shared.u32 %r{to}, [s+{at}];"));
            }
            1 => {
                let at = 4 * self.random.below(8);
                self.line(&format!("ld.const.u32 %r{to}, [c+{at}];"));
            }
            2 => self.line(&format!("mov.u32 %r{to}, {a};")),
            _ => {
                let how = self.pick(&["add.u32", "mul.lo.s32", "sub.s32", "and.b32"]);
                self.line(&format!("mov.u32 %r38, {a}; {how} %r{to}, %r38, {b};"));
            }
        }
        self.known_same.push(to);
    }

    fn compare_same(&mut self) {
        let Some(to) = self.same_predicates.pop() else {
            return;
        };
        let (condition, ty) = (self.pick(&CONDITIONS), self.pick(&["u32", "s32"]));
        let (a, b) = loop {
            let (a, b) = (self.same_value(), self.same_value());
            if a.starts_with('%') {
                break (a, b);
            }
        };
        self.line(&format!("setp.{condition}.{ty} %p{to}, {a}, {b};"));
        self.known_same_predicates.push(to);
    }

    /// The number of the thread in its block, in `%r35`, and its word of shared memory.
    fn place(&mut self) {
        self.line(
            "mov.u32 %r33, %tid.z; mov.u32 %r34, %ntid.y; mov.u32 %r35, %tid.y;
            mad.lo.u32 %r35, %r33, %r34, %r35; mov.u32 %r34, %ntid.x; mov.u32 %r33, %tid.x;
            mad.lo.u32 %r35, %r35, %r34, %r33; shl.b32 %r36, %r35, 2; mov.u32 %r34, s;
            add.u32 %r36, %r36, %r34;",
        );
    }

    fn show(&mut self) {
        let value = self.value();
        let guard = self.perhaps_guard(3);
        self.line(&format!(
            "{guard}mad.lo.u32 %r9, %r9, 33, {value}; add.u32 %r9, %r9, 7;"
        ));
    }

    /// A step of each thread by itself.
    fn step(&mut self, depth: usize, out: &str) {
        match self.random.below(20) {
            0..=2 => self.compute(),
            3 => {
                let to = self.target();
                self.load(to);
            }
            4..=6 => self.compare(),
            7..=8 if self.shared => {
                self.place();
                self.line(
                    "ld.shared.u32 %r33, [%r36]; mad.lo.u32 %r9, %r9, 5, %r33;
                    st.shared.u32 [%r36], %r9;",
                );
            }
            9 => {
                let (to, a, b) = (self.target(), self.register(), self.value());
                let of = self.random.below(8);
                self.line(&format!("selp.u32 {to}, {a}, {b}, %p{of};"));
            }
            10 if self.ends => {
                let guard = self.guard();
                let end = self.pick(&["ret;", "exit;", "bra end;"]);
                self.line(&format!("{guard}{end}"));
            }
            11 if self.fault.is_some() => {
                let fault = self.fault.take().unwrap_or_default();
                self.line(&fault);
            }
            12 => {
                let guard = self.guard();
                self.line(&format!("{guard}bra {out};"));
            }
            13..=15 if depth < 3 => {
                let (guard, name) = (self.guard(), self.name());
                self.line(&format!("{guard}bra L{name};"));
                self.steps(depth + 1, out);
                if self.one_in(3) {
                    self.line(&format!("bra M{name}; L{name}:"));
                    self.steps(depth + 1, out);
                    self.line(&format!("M{name}:"));
                } else {
                    self.line(&format!("L{name}:"));
                }
            }
            _ => self.show(),
        }
    }

    fn steps(&mut self, depth: usize, out: &str) {
        let count = 1 + self.random.below(if depth == 0 { 6 } else { 3 });
        (0..count).for_each(|_| self.step(depth, out));
    }

    /// Where threads go by themselves, and come together again.
    fn apart(&mut self) {
        let out = self.name();
        let out = format!("O{out}");
        if self.one_in(3) {
            // From anywhere to anywhere, until this is 0.
            let (name, count) = (self.name(), 2 + self.random.below(4));
            let most = 2 + self.random.below(12);
            self.line(&format!("mov.u32 %r31, {most};"));
            for block in 0..count {
                self.line(&format!("B{name}_{block}:"));
                self.line(&format!(
                    "add.s32 %r31, %r31, -1; setp.lt.s32 %p15, %r31, 0; @%p15 bra {out};"
                ));
                self.steps(2, &out);
                for _ in 0..1 + self.random.below(2) {
                    let (guard, to) = (self.perhaps_guard(1), self.random.below(count));
                    self.line(&format!("{guard}bra B{name}_{to};"));
                }
            }
        } else {
            self.steps(0, &out);
        }
        self.line(&format!("{out}:"));
    }

    fn wait(&mut self) {
        let barrier = self.ends || self.one_in(2);
        match self.random.below(if barrier { 4 } else { 12 }) {
            0..=2 => self.line("bar.sync 0;"),
            3 => {
                let of = self.random.below(11);
                self.line(&format!(
                    "bar.red.popc.u32 %r32, 0, %p{of}; mad.lo.u32 %r9, %r9, 3, %r32;"
                ));
            }
            4 | 5 => self.line("bar.warp.sync -1;"),
            6 | 7 => {
                let (how, value) = (self.pick(&["up", "down", "bfly", "idx"]), self.register());
                let (to, last) = (self.target(), if how == "up" { 0 } else { 31 });
                let by = self.pick(&["1", "2", "16", "%r3"]);
                let both = if self.one_in(2) { "|%p6" } else { "" };
                self.line(&format!(
                    "shfl.sync.{how}.b32 {to}{both}, {value}, {by}, {last}, -1;"
                ));
            }
            8 => {
                let of = self.random.below(11);
                let kind = self.pick(&["any", "all", "uni"]);
                self.line(&format!("vote.sync.{kind}.pred %p7, %p{of}, -1;"));
            }
            9 => {
                let (of, to) = (self.random.below(11), self.target());
                self.line(&format!("vote.sync.ballot.b32 {to}, %p{of}, -1;"));
            }
            10 => {
                let (a, b, to) = (self.register(), self.register(), self.target());
                self.line(&format!(
                    "and.b32 %r32, {a}, 3; and.b32 %r33, {b}, 5; mov.b64 %rd5, {{%r32, %r33}};
                    match.any.sync.b64 {to}, %rd5, -1;
                    match.any.sync.b32 %r32, %r33, -1; mad.lo.u32 %r9, %r9, 3, %r32;"
                ));
            }
            _ => {
                let (a, to) = (self.register(), self.target());
                self.line(&format!(
                    "and.b32 %r32, {a}, 3; match.all.sync.b32 {to}|%p7, %r32, -1;"
                ));
            }
        }
    }

    /// All registers that no thread has written yet get a number.
    fn fill(&mut self) {
        self.plain = true;
        self.line(
            "mov.u32 %r9, 0; mov.u32 %r15, 5; mov.u32 %r16, %laneid; mov.u32 %r17, %r3;
            mov.u32 %r23, 40; mov.u32 %r24, %r3; mov.u32 %r25, 2;
            setp.lt.u32 %p6, %r1, 33; setp.ne.u32 %p7, %r1, %r3;",
        );
        while !self.own.is_empty() {
            match self.one_in(2) {
                true => self.compute(),
                false => {
                    let to = self.target();
                    self.load(to);
                }
            }
        }
        while !self.same.is_empty() {
            self.same();
        }
        while !self.predicates.is_empty() {
            self.compare();
        }
        while !self.same_predicates.is_empty() {
            self.compare_same();
        }
        self.plain = false;
    }

    /// What threads do at the start that leave nothing in registers.
    fn first(&mut self, depth: usize) {
        for _ in 0..1 + self.random.below(2) {
            match self.random.below(4) {
                0 if depth < 2 => {
                    let (guard, name) = (self.guard(), self.name());
                    self.line(&format!("{guard}bra L{name};"));
                    self.first(depth + 1);
                    self.line(&format!("L{name}:"));
                }
                1 if self.fault.is_some() => {
                    let fault = self.fault.take().unwrap_or_default();
                    self.line(&fault);
                }
                _ => {
                    let value = self.pick(&["%r1", "%r3", "7"]);
                    self.place();
                    self.line(&format!(
                        "and.b32 %r33, %r35, 63; mul.wide.u32 %rd6, %r33, 4;
                        ld.param.u64 %rd7, [in]; add.u64 %rd6, %rd6, %rd7;
                        mad.lo.u32 %r33, %r35, 3, {value};
                        atom.global.add.u32 %r33, [%rd6], %r33;"
                    ));
                }
            }
        }
    }

    /// The first steps, which most often end in a branch past all others.
    fn start(&mut self, fills: bool) {
        let mut first = ["mov.u32 %r1, %tid.x;", "ld.param.u32 %r3, [n];"];
        if self.one_in(2) {
            first.swap(0, 1);
        }
        if self.one_in(6) {
            first[0] = "mov.u32 %r1, %laneid; ld.param.u32 %r3, [n];";
        }
        first.iter().for_each(|text| self.line(text));
        if self.one_in(3) {
            self.line("ld.param.u64 %rd1, [out];");
        }
        self.plain = fills;
        match self.random.below(6) {
            0 => self.compute(),
            1 => self.same(),
            2 => {
                let to = self.target();
                self.line(&format!(
                    "mov.u32 %r33, %ctaid.x; mov.u32 %r34, %ntid.x;
                    mad.lo.s32 {to}, %r33, %r34, %r1;"
                ));
            }
            3 => (0..2).for_each(|_| self.compute()),
            _ => {}
        }
        if !self.one_in(5) {
            self.compare();
            if self.one_in(3) {
                self.compare();
            }
            self.plain = false;
            let guard = self.guard();
            let (past, name) = (self.random.below(8), self.name());
            match past {
                0 if self.ends => self.line(&format!("{guard}bra end;")),
                1 if self.ends => self.line(&format!("{guard}ret;")),
                _ => {
                    self.line(&format!("{guard}bra L{name};"));
                    match fills {
                        true => self.first(0),
                        false => self.steps(1, &format!("L{name}")),
                    }
                    self.line(&format!("L{name}:"));
                }
            }
        }
        self.plain = false;
    }
}

/// A kernel, and the same with a branch by a table that nobody comes to.
fn kernels(random: &mut Random) -> [String; 3] {
    let mut writer = Writer {
        ends: random.below(3) == 0,
        fault: None,
        random,
        text: String::new(),
        names: 0,
        own: (10..15).collect(),
        same: (20..23).collect(),
        predicates: (0..6).collect(),
        same_predicates: (8..11).collect(),
        known: vec![],
        known_same: vec![],
        known_predicates: vec![],
        known_same_predicates: vec![],
        shared: false,
        plain: false,
    };
    if writer.one_in(3) {
        let who = writer.pick(&[0, 1, 7, 31, 32, 39, 64, 95]);
        writer.fault = Some(format!(
            "mov.u32 %r33, %tid.x; setp.ne.u32 %p14, %r33, {who}; mov.u32 %r33, %tid.y;
            setp.ne.or.u32 %p14, %r33, 0, %p14; mov.u32 %r33, %tid.z;
            setp.ne.or.u32 %p14, %r33, 0, %p14; mov.u32 %r36, s;
            @!%p14 st.shared.u32 [%r36+0x100000], 1;"
        ));
    }
    let with_table = writer.one_in(16);
    // What nobody wrote is 0.
    let fills = writer.one_in(2);
    let from_zero = !fills && writer.one_in(2);
    if from_zero {
        writer.line("T0:");
    }
    writer.start(fills);
    // Shared memory gets its numbers, from all threads the same.
    if !writer.one_in(4) {
        match fills {
            true => writer.line("bar.sync 0;"),
            false => writer.wait(),
        }
        writer.place();
        writer.line("st.shared.u32 [%r36], %r35; bar.sync 0;");
        for at in 0..8 {
            let word = writer.word();
            writer.line(&format!("st.shared.u32 [s+{}], {word};", 4096 + 4 * at));
        }
        writer.line("bar.sync 0;");
        writer.shared = true;
    }
    if fills {
        writer.fill();
    }
    if !from_zero {
        writer.line("mov.u32 %r30, 0;");
    }
    let count = 3 + writer.random.below(6);
    for at in 0..count {
        if !from_zero || at > 0 {
            writer.line(&format!("T{at}:"));
        }
        (0..writer.random.below(3)).for_each(|_| writer.same());
        if writer.one_in(2) {
            writer.compare_same();
        }
        if !writer.one_in(4) {
            writer.apart();
        }
        if !writer.one_in(3) {
            writer.wait();
        }
        if writer.shared && writer.one_in(4) {
            let (word, value) = (4096 + 4 * writer.random.below(8), writer.same_value());
            let who = match writer.one_in(2) {
                true => "setp.eq.u32 %p13, %r35, 5; @%p13 ",
                false => "",
            };
            writer.line("bar.sync 0;");
            writer.place();
            writer.line(&format!(
                "{who}st.shared.u32 [s+{word}], {value}; bar.sync 0;"
            ));
        }
        if writer.one_in(2) {
            let guard = match writer.one_in(8) {
                true => String::new(),
                false => writer.same_guard(),
            };
            let to = writer.random.below(count + 1);
            writer.line("add.s32 %r30, %r30, 1; setp.gt.s32 %p12, %r30, 12; @%p12 bra show;");
            match with_table && writer.one_in(3) {
                true => {
                    let (name, other) = (writer.name(), writer.random.below(count));
                    let value = writer.same_value();
                    writer.line(&format!(
                        "mov.u32 %r38, {value}; and.b32 %r38, %r38, 1;
                        W{name}: .branchtargets T{to}, T{other}; brx.idx %r38, W{name};"
                    ));
                }
                false => writer.line(&format!("{guard}bra T{to};")),
            }
        }
    }
    writer.line(&format!("T{count}: show:"));
    for register in (10..18).chain(20..26) {
        if writer.one_in(8) {
            writer.line(&format!("mad.lo.u32 %r9, %r9, 13, %r{register};"));
        }
    }
    for predicate in 0..11 {
        if writer.one_in(8) {
            writer.line(&format!("@%p{predicate} add.u32 %r9, %r9, 0x10000;"));
        }
    }
    if writer.one_in(3) {
        let fault = writer.fault.take().unwrap_or_default();
        writer.line(&fault);
    }
    writer.line("end:");
    let text = writer.text;
    let other = format!("mov.u32 %r39, 1; {text}");
    let table = "ret; table: .branchtargets end; brx.idx %r3, table;";
    let of_table = whole(&text).replace("ret;\n        }", &format!("{table}\n        }}"));
    [whole(&text), whole(&other), of_table]
}

/// A kernel that leaves `%r9` of each thread.
fn whole(body: &str) -> String {
    module(&format!(
        ".const .align 4 .u32 c[8] = {{0, 1, 31, 32, 33, 64, 100, 4294967295}};
        .global .align 4 .u32 g[8] = {{3, 5, 8, 16, 32, 40, 96, 2147483648}};
        .visible .entry k(.param .u64 out, .param .u64 in, .param .u32 n)
        {{
            .reg .pred %p<16>; .reg .b32 %r<40>; .reg .b64 %rd<20>;
            .shared .align 8 .b8 s[8192];
            {body}
            ld.param.u64 %rd1, [out]; mov.u32 %r33, %tid.z; mov.u32 %r34, %ntid.y;
            mov.u32 %r35, %tid.y; mad.lo.u32 %r35, %r33, %r34, %r35; mov.u32 %r34, %ntid.x;
            mov.u32 %r33, %tid.x; mad.lo.u32 %r35, %r35, %r34, %r33; mov.u32 %r33, %ntid.y;
            mul.lo.u32 %r34, %r34, %r33; mov.u32 %r33, %ntid.z; mul.lo.u32 %r34, %r34, %r33;
            mov.u32 %r33, %ctaid.x; mad.lo.u32 %r35, %r33, %r34, %r35;
            mul.wide.u32 %rd3, %r35, 4; add.u64 %rd3, %rd1, %rd3;
            add.u32 %r9, %r9, 0x5555; st.global.u32 [%rd3], %r9;
            ret;
        }}"
    ))
}

/// Threads that go past all that is done before the first wait have zeros behind it in what nobody
/// wrote.
#[test]
fn what_nobody_wrote_is_zero() {
    let makes = [
        "mul.lo.u32 %r7, %r1, %r1;",
        "add.u32 %r7, %r1, 100;",
        "ld.param.u32 %r7, [n];",
    ];
    let pasts = [
        "bar.sync 0; mov.u32 %r9, %r7;",
        "bar.sync 0; @%p2 add.u32 %r9, %r7, 1;",
        "shfl.sync.idx.b32 %r9, %r7, 1, 31, -1;",
    ];
    for make in makes {
        for past in pasts {
            let source = whole(&format!(
                "ld.param.u32 %r3, [n]; mov.u32 %r1, %tid.x; setp.ge.u32 %p1, %r1, %r3;
                @%p1 bra past; {make} setp.ne.u32 %p2, %r1, 3; past: {past}"
            ));
            let [fibers, vectors] =
                [Form::Fibers, Form::Vectors].map(|form| load_as(&source, form));
            for block in BLOCKS {
                for n in [0, 1, 31, 32, 64] {
                    let [expected, got] =
                        [&fibers, &vectors].map(|module| run_module(module, [2, 1, 1], block, n));
                    let how = difference(&got, &expected);
                    assert!(got == expected, "{block:?} n={n}: {how}\n{source}");
                }
            }
        }
    }
}

#[test]
fn random_ways_through_waits() {
    let cases = setting("SOFTCUDA_FUZZ_CASES").map_or(DEFAULT_CASES, |cases| cases / SHARE);
    let counts = [const { AtomicUsize::new(0) }; 3];
    run_cases(cases, |_, random, _| {
        let [one, other, table] = kernels(random);
        if setting("SOFTCUDA_FUZZ_CASE").is_some() {
            println!("{one}");
        }
        let expects = load_as(&table, Form::Fibers);
        let last = [Form::Rounds, Form::Fibers][random.below(2)];
        let forms = [(&one, Form::Vectors), (&other, Form::Vectors), (&one, last)];
        let modules = forms.map(|(source, form)| load_as(source, form));
        let steps = |module: &Module| {
            let body = module.program().functions[0].body.as_ref();
            body.map_or(0, |body| body.steps.len())
        };
        if steps(&modules[0]) >= steps(&expects) {
            counts[2].fetch_add(1, Ordering::Relaxed);
        }
        for _ in 0..6 {
            let block = BLOCKS[random.below(BLOCKS.len())];
            let n = NUMBERS[random.below(NUMBERS.len())];
            let expected = run_module(&expects, [2, 1, 1], block, n);
            let all = |of: usize| counts[of].fetch_add(1, Ordering::Relaxed);
            all(0);
            if expected.is_err() {
                all(1);
            }
            for (form, module) in modules.iter().enumerate() {
                let got = run_module(module, [2, 1, 1], block, n);
                // Which block's is told is chance.
                let alike = match (&got, &expected) {
                    (Err((kind, _, thread)), Err((other, _, expected))) => {
                        (kind, thread) == (other, expected)
                    }
                    (got, expected) => got == expected,
                };
                if !alike {
                    let how = difference(&got, &expected);
                    return Err(format!("form {form}, {block:?} n={n}: {how}\n{one}"));
                }
            }
        }
        Ok(())
    });
    let [runs, faults, again] = counts.map(AtomicUsize::into_inner);
    println!("{runs} launches, {faults} faults, {again} kernels compare again");
}
