//! Attacks on blocks whose threads make no whole number of groups, and wait for each other: random
//! kernels and hand-written ones do the same in vectors, in rounds and as fibers.
//!
//! The kernels have no races. Threads tell each other something in shared memory only across a
//! barrier that all of them come to as often, though not always at one place; or they tell each
//! other nothing there, and then come to barriers as they like.
//!
//! `SOFTCUDA_FUZZ_CASES` sets the number of cases of each test, `SOFTCUDA_FUZZ_CASE` runs one case
//! alone and prints its kernel.

use std::fmt::Write as _;

use super::forms::{difference, kernel, place, run_module, same};
use super::fuzz::{Random, run_cases, setting};
use crate::grid::launch::FaultKind;
use crate::jit::harness;
use crate::jit::module::Form;

/// Cases of a plain `cargo test`.
const DEFAULT_CASES: u64 = 30;

const BLOCKS: [[u32; 3]; 18] = [
    [9, 1, 1],
    [15, 1, 1],
    [33, 1, 1],
    [36, 1, 1],
    [39, 1, 1],
    [65, 1, 1],
    [100, 1, 1],
    [10, 10, 1],
    [6, 6, 1],
    [18, 18, 1],
    [7, 5, 1],
    [5, 5, 3],
    [3, 3, 1],
    [12, 3, 1],
    [1, 9, 1],
    [1001, 1, 1],
    [33, 31, 1],
    [3, 11, 1],
];

const VALUES: usize = 5;
const PREDICATES: usize = 3;

fn cases() -> u64 {
    setting("SOFTCUDA_FUZZ_CASES").unwrap_or(DEFAULT_CASES)
}

/// Who comes to a statement.
#[derive(Clone, PartialEq)]
enum Who {
    /// All threads of the block that have not ended.
    Block,
    /// The same of some warps.
    Warps,
    /// The lanes in a mask.
    Lanes(String),
}

impl Who {
    fn mask(&self) -> &str {
        match self {
            Who::Lanes(mask) => mask,
            _ => "-1",
        }
    }
}

struct Writer<'a> {
    random: &'a mut Random,
    text: String,
    names: usize,
    left: usize,
    /// Threads come to barriers as they like, and share no memory.
    mixes: bool,
}

impl Writer<'_> {
    fn line(&mut self, text: &str) {
        writeln!(self.text, "{text}").expect("text takes text");
    }

    fn name(&mut self) -> usize {
        self.names += 1;
        self.names
    }

    fn value(&mut self) -> String {
        format!("%v{}", self.random.below(VALUES))
    }

    fn pick<'t>(&mut self, list: &[&'t str]) -> &'t str {
        list[self.random.below(list.len())]
    }

    fn arithmetic(&mut self) {
        let (to, a, b) = (self.value(), self.value(), self.value());
        let (n, number) = (self.name(), self.random.below(1000));
        let p = self.random.below(PREDICATES);
        let special = self.pick(&[
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
            "%ctaid.x",
        ]);
        let text = match self.random.below(22) {
            0 => format!("mad.lo.u32 {to}, {a}, {number}, {b};"),
            1 => format!("xor.b32 {to}, {a}, {b};"),
            2 => format!("mov.u32 %t, {special}; mad.lo.u32 {to}, {to}, 31, %t;"),
            3 => format!("mov.u32 {to}, {special};"),
            4 => format!("mad.wide.u32 %w0, {a}, {number}, %w1;"),
            5 => format!("xor.b64 %w1, %w0, %w1; cvt.u32.u64 {to}, %w1;"),
            6 => format!("cvt.u16.u32 %h0, {a}; add.u16 %h1, %h0, %h1;"),
            7 => format!("cvt.u32.u16 %t, %h1; add.u32 {to}, {a}, %t;"),
            8 => format!("and.b32 %t, {a}, 6; setp.gt.u32 %q{p}, %t, 1;"),
            9 => format!("selp.u32 {to}, {a}, {b}, %q{p};"),
            10 => format!("@%q{p} add.u32 {to}, {a}, {number};"),
            11 => format!("cvt.rn.f64.u32 %d0, {a}; fma.rn.f64 %d1, %d1, 0d3FE0000000000000, %d0;"),
            12 => format!("mov.b64 {{%t, {to}}}, %d1; xor.b32 {to}, {to}, %t;"),
            13 => format!("cvt.rn.f32.u32 %g0, {a}; mov.b32 {to}, %g0;"),
            14 => format!(
                "and.b32 %t, {b}, 3; setp.lt.u32 %p{n}, %t, 2; @%p{n} bra I{n};
                mad.lo.u32 {to}, {a}, 3, {number}; I{n}:"
            ),
            15 => format!(
                "and.b32 %t, {b}, 3; I{n}: add.u32 {to}, {to}, {a}; sub.u32 %t, %t, 1;
                setp.gt.s32 %p{n}, %t, 0; @%p{n} bra I{n};"
            ),
            16 => format!("add.u32 %c0, %c0, {number};"),
            17 => format!("mad.lo.u32 {to}, {to}, 31, %c0;"),
            18 => format!(
                "and.b32 %t, {a}, 63; mul.wide.u32 %a0, %t, 4; add.u64 %a0, %a0, %rd2;
                ld.global.u32 %t, [%a0]; add.u32 {to}, {to}, %t;"
            ),
            19 => format!("st.global.u32 [%rd3], {a}; ld.global.u32 {to}, [%rd3];"),
            20 => format!(
                "atom.global.add.u32 %t, [%rd3], {a}; xor.b32 {to}, {to}, %t;
                red.global.add.u32 [%rd1+16380], 1;"
            ),
            _ => "mov.b128 %x0, {%w0, %w1}; mov.b128 {%w1, %w0}, %x0;".to_owned(),
        };
        self.line(&text);
    }

    /// Threads of the block give their neighbours a number.
    fn exchange(&mut self) {
        let (to, from, n) = (self.value(), self.value(), self.name());
        let by = [1, 3, 8, 31, 32, 40][self.random.below(6)];
        let barrier = |writer: &mut Self| match writer.random.below(9) {
            0 => "bar.sync 3;".to_owned(),
            1 => "mov.u32 %b, 2; bar.sync %b;".to_owned(),
            2 => {
                let what = writer.pick(&["popc.u32", "popc.u32", "and.pred", "or.pred"]);
                let p = writer.random.below(PREDICATES);
                match what {
                    "popc.u32" => {
                        format!("bar.red.popc.u32 %t, 0, %q{p}; mad.lo.u32 {to}, {to}, 3, %t;")
                    }
                    _ => format!(
                        "bar.red.{what} %p{n}, 0, %q{p}; selp.u32 %t, 5, 9, %p{n};
                        mad.lo.u32 {to}, {to}, 3, %t;"
                    ),
                }
            }
            3 => "bar.sync 4, %all;".to_owned(),
            _ => "bar.sync 0;".to_owned(),
        };
        let first = barrier(self);
        let second = barrier(self);
        let second = if second.contains("popc") || second.contains("pred") {
            "bar.sync 0;".to_owned()
        } else {
            second
        };
        let load = match self.random.below(4) {
            0 => "ld.volatile.shared.u32 %u, [%t];",
            _ => "ld.shared.u32 %u, [%t];",
        };
        self.line(&format!(
            "st.shared.u32 [%own], {from}; {first}
            add.u32 %t, %r35, {by}; rem.u32 %t, %t, %r36; mad.lo.u32 %t, %t, 4, %base; {load}
            {second} mad.lo.u32 {to}, {to}, 7, %u;"
        ));
    }

    /// A barrier whose first warps only arrive.
    fn arrives(&mut self) {
        let (to, from, n) = (self.value(), self.value(), self.name());
        let bound = self.random.below(3);
        self.line(&format!(
            "st.shared.u32 [%own], {from}; bar.sync 0;
            setp.lt.u32 %p{n}, %group, {bound}; @%p{n} bra A{n};
            bar.sync 5, %all;
            ld.shared.u32 %u, [%base]; add.u32 {to}, {to}, %u; bra B{n};
            A{n}: st.shared.u32 [%own], {from}; bar.arrive 5, %all;
            B{n}: bar.sync 0;"
        ));
    }

    fn bare_barrier(&mut self) {
        let p = self.random.below(PREDICATES);
        let to = self.value();
        match self.random.below(6) {
            0..=2 => self.line("bar.sync 0;"),
            3 => self.line("bar.sync 1;"),
            4 => self.line(&format!(
                "bar.red.popc.u32 %t, 0, %q{p}; add.u32 {to}, {to}, %t;"
            )),
            // Each warp has one of its own.
            _ => {
                let n = self.name();
                self.line(&format!(
                    "setp.gt.u32 %p{n}, %group, 9; @%p{n} bra W{n}; add.u32 %b, %group, 6;
                    bar.sync %b, 32; W{n}:"
                ));
            }
        }
    }

    fn warp_operation(&mut self, who: &Who) {
        let mask = who.mask().to_owned();
        let (to, from, n) = (self.value(), self.value(), self.name());
        let p = self.random.below(PREDICATES);
        let by = match self.random.below(4) {
            0 => self.value(),
            _ => self.random.below(33).to_string(),
        };
        let text = match self.random.below(14) {
            0..=2 => {
                let mode = self.pick(&["up", "down", "bfly", "idx"]);
                let c = match mode {
                    "up" => self.pick(&["0", "0x1800", "0x1c00"]),
                    _ => self.pick(&["31", "0x181f", "0x1c1f"]),
                };
                format!(
                    "shfl.sync.{mode}.b32 %u|%p{n}, {from}, {by}, {c}, {mask};
                    selp.u32 %t, 3, 5, %p{n}; mad.lo.u32 {to}, {to}, %t, %u;"
                )
            }
            3 => format!("vote.sync.ballot.b32 %u, %q{p}, {mask}; xor.b32 {to}, {to}, %u;"),
            4 => {
                let kind = self.pick(&["all", "any", "uni"]);
                format!(
                    "vote.sync.{kind}.pred %p{n}, %q{p}, {mask}; selp.u32 %t, 3, 5, %p{n};
                    mad.lo.u32 {to}, {to}, %t, 1;"
                )
            }
            5 => format!(
                "and.b32 %t, {from}, 3; match.any.sync.b32 %u, %t, {mask}; xor.b32 {to}, {to}, %u;"
            ),
            6 => format!("match.any.sync.b64 %u, %w0, {mask}; xor.b32 {to}, {to}, %u;"),
            7 => format!(
                "match.all.sync.b32 %u|%p{n}, {from}, {mask}; selp.u32 %t, 3, 5, %p{n};
                mad.lo.u32 {to}, {to}, %t, %u;"
            ),
            8 | 9 => {
                let kind = self.pick(&["add.u32", "min.u32", "max.s32", "xor.b32", "and.b32"]);
                format!("redux.sync.{kind} %u, {from}, {mask}; add.u32 {to}, {to}, %u;")
            }
            10 => format!("elect.sync %u|%p{n}, {mask}; @%p{n} add.u32 {to}, {to}, %u;"),
            // Partial masks that each half or part of the warp says for itself.
            11 if *who == Who::Block || *who == Who::Warps => format!(
                "mov.u32 %m{n}, 0xff; and.b32 %t, %spot, 24; shl.b32 %m{n}, %m{n}, %t;
                shfl.sync.bfly.b32 %u, {from}, 1, 31, %m{n}; add.u32 {to}, {to}, %u;"
            ),
            12 if *who == Who::Block || *who == Who::Warps => format!(
                "and.b32 %t, %spot, 1; mov.u32 %m{n}, 0x55555555; shl.b32 %m{n}, %m{n}, %t;
                redux.sync.add.u32 %u, {from}, %m{n}; add.u32 {to}, {to}, %u;"
            ),
            _ => format!("bar.warp.sync {mask};"),
        };
        self.line(&text);
    }

    /// The predicate of a condition that differs from thread to thread.
    fn condition(&mut self) -> String {
        let (n, value) = (self.name(), self.value());
        let number = self.random.below(40);
        let compare = self.pick(&["lt.u32", "ge.u32", "eq.u32", "ne.u32"]);
        let text = match self.random.below(7) {
            0 => format!("setp.{compare} %p{n}, %r35, {number};"),
            1 => format!("setp.{compare} %p{n}, %r35, %rest;"),
            2 => format!("setp.{compare} %p{n}, %r1, {};", number % 12),
            3 => format!("setp.{compare} %p{n}, %spot, {number};"),
            4 => format!("sub.u32 %t, %r36, 1; setp.{compare} %p{n}, %r35, %t;"),
            5 => format!("setp.{compare} %p{n}, %r35, %r3;"),
            _ => format!("and.b32 %t, {value}, 3; setp.{compare} %p{n}, %t, 1;"),
        };
        self.line(&text);
        format!("%p{n}")
    }

    fn branch(&mut self, who: &Who, depth: usize) {
        let kind = self.random.below(5);
        let n = self.name();
        let inner = match (kind, who) {
            // By what is the same in all threads.
            (0, _) => {
                let bound = self.random.below(3);
                self.line(&format!(
                    "and.b32 %t, %r3, 3; setp.eq.u32 %p{n}, %t, {bound};"
                ));
                self.line(&format!("@%p{n} bra E{n};"));
                [who.clone(), who.clone()]
            }
            (1 | 2, Who::Block | Who::Warps) => {
                let bound = self.random.below(4);
                let compare = self.pick(&["lt.u32", "ge.u32", "eq.u32"]);
                self.line(&format!(
                    "setp.{compare} %p{n}, %group, {bound}; @%p{n} bra E{n};"
                ));
                [Who::Warps, Who::Warps]
            }
            _ => {
                let condition = self.condition();
                let mask = who.mask().to_owned();
                self.line(&format!(
                    "vote.sync.ballot.b32 %m{n}, {condition}, {mask}; not.b32 %n{n}, %m{n};
                    and.b32 %n{n}, %n{n}, {mask}; @{condition} bra E{n};"
                ));
                // What does not exist is in no mask that all lanes have in common.
                [Who::Lanes(format!("%n{n}")), Who::Lanes(format!("%m{n}"))]
            }
        };
        let twin = *who == Who::Block && !self.mixes && self.random.below(2) == 0;
        let [first, second] = inner;
        for (at, side) in [first, second].iter().enumerate() {
            self.statements(side, depth - 1);
            if twin {
                self.exchange();
                self.statements(side, depth - 1);
            }
            if at == 0 {
                self.line(&format!("bra F{n}; E{n}:"));
            }
        }
        self.line(&format!("F{n}:"));
        if self.random.below(2) == 0 {
            let mask = who.mask().to_owned();
            self.line(&format!("bar.warp.sync {mask};"));
        }
    }

    fn repeat(&mut self, who: &Who, depth: usize) {
        let n = self.name();
        match (self.random.below(4), who) {
            (0 | 1, _) => {
                let count = self.random.below(3) + 1;
                self.line(&format!("mov.u32 %n{n}, {count};"));
                self.line(&format!("L{n}: sub.u32 %n{n}, %n{n}, 1;"));
                self.statements(who, depth - 1);
                self.line(&format!("setp.ne.u32 %p{n}, %n{n}, 0; @%p{n} bra L{n};"));
            }
            (2, Who::Block | Who::Warps) => {
                self.line(&format!(
                    "and.b32 %n{n}, %group, 1; add.u32 %n{n}, %n{n}, 1;"
                ));
                self.line(&format!("L{n}: sub.u32 %n{n}, %n{n}, 1;"));
                self.statements(&Who::Warps, depth - 1);
                self.line(&format!("setp.ne.u32 %p{n}, %n{n}, 0; @%p{n} bra L{n};"));
            }
            _ => {
                let mask = who.mask().to_owned();
                let value = self.value();
                let count = match self.random.below(3) {
                    0 => format!("setp.ge.u32 %p{n}, %r35, %rest; selp.u32 %n{n}, 2, 1, %p{n};"),
                    1 => format!("setp.ge.u32 %p{n}, %r35, %rest; selp.u32 %n{n}, 1, 2, %p{n};"),
                    _ => format!("and.b32 %n{n}, {value}, 3;"),
                };
                self.line(&format!(
                    "{count} mov.u32 %m{n}, {mask};
                    L{n}: setp.ne.u32 %p{n}, %n{n}, 0;
                    vote.sync.ballot.b32 %m{n}, %p{n}, %m{n}; @!%p{n} bra E{n};
                    sub.u32 %n{n}, %n{n}, 1;"
                ));
                self.statements(&Who::Lanes(format!("%m{n}")), depth - 1);
                self.line(&format!("bra L{n}; E{n}:"));
            }
        }
    }

    fn statements(&mut self, who: &Who, depth: usize) {
        for _ in 0..1 + self.random.below(3) {
            if self.left == 0 {
                return;
            }
            self.left -= 1;
            match self.random.below(13) {
                0..=4 => self.arithmetic(),
                5 | 6 if *who == Who::Block && !self.mixes => self.exchange(),
                7 if *who == Who::Block && !self.mixes => self.arrives(),
                5 | 6 if self.mixes => self.bare_barrier(),
                8 | 9 if depth > 0 => self.branch(who, depth),
                10 if depth > 0 => self.repeat(who, depth),
                11 if *who == Who::Block && self.random.below(4) == 0 => {
                    let condition = self.condition();
                    self.line(&format!("@{condition} bra done;"));
                }
                _ => self.warp_operation(who),
            }
        }
    }

    /// Threads go round as often as each likes, past barriers, and end.
    fn tail(&mut self) {
        let (value, n) = (self.value(), self.name());
        let count = match self.random.below(4) {
            0 => format!("setp.ge.u32 %p{n}, %r35, %rest; selp.u32 %n{n}, 3, 1, %p{n};"),
            1 => format!("setp.ge.u32 %p{n}, %r35, %rest; selp.u32 %n{n}, 1, 3, %p{n};"),
            2 => format!("add.u32 %n{n}, %group, 1; min.u32 %n{n}, %n{n}, 4;"),
            _ => format!("and.b32 %n{n}, {value}, 3; add.u32 %n{n}, %n{n}, 1;"),
        };
        self.line(&format!("{count} T{n}:"));
        if self.mixes {
            self.bare_barrier();
        } else {
            self.exchange();
        }
        self.arithmetic();
        self.line(&format!(
            "sub.u32 %n{n}, %n{n}, 1; setp.ne.u32 %p{n}, %n{n}, 0; @%p{n} bra T{n};"
        ));
    }
}

fn body(random: &mut Random) -> String {
    let mixes = random.below(4) == 0;
    let left = 3 + random.below(24);
    let mut writer = Writer {
        random,
        text: String::new(),
        names: 0,
        left,
        mixes,
    };
    while writer.left > 0 {
        writer.statements(&Who::Block, 3);
    }
    if writer.random.below(2) == 0 {
        writer.tail();
    }
    let Writer { text, names, .. } = writer;
    let names = names + 1;
    let mut end = String::new();
    for at in 0..VALUES {
        let _ = write!(end, "mad.lo.u32 %r9, %r9, 31, %v{at};");
    }
    for at in 0..PREDICATES {
        let _ = write!(
            end,
            "selp.u32 %t, 1, 2, %q{at}; mad.lo.u32 %r9, %r9, 3, %t;"
        );
    }
    // Names of the predicates here hide those around.
    format!(
        "{{ .reg .pred %p<{names}>, %q<{PREDICATES}>; .reg .b32 %m<{names}>, %n<{names}>;
        .reg .b32 %v<{VALUES}>, %t, %u, %b, %c0, %group, %spot, %own, %base, %rest, %all;
        .reg .b64 %w<2>, %a0; .reg .b16 %h<2>; .reg .f64 %d<2>; .reg .f32 %g0; .reg .b128 %x0;
        shr.u32 %group, %r35, 5; and.b32 %spot, %r35, 31; mov.u32 %base, s;
        mad.lo.u32 %own, %r35, 4, %base; and.b32 %rest, %r36, -8; add.u32 %all, %r36, 31;
        and.b32 %all, %all, -32; mov.u32 %c0, %r3;
        mov.u32 %v0, %r2; mul.lo.u32 %v1, %r2, 40503; shr.u32 %v2, %v1, 4; mov.u32 %v3, %r35;
        xor.b32 %v4, %v2, %r1; cvt.u64.u32 %w0, %v1; mov.u64 %w1, 5; cvt.u16.u32 %h0, %v2;
        mov.u16 %h1, 3; mov.f64 %d0, 0d3ff0000000000000; mov.f64 %d1, %d0;
        setp.ge.u32 %q0, %r35, %rest; and.b32 %t, %v2, 1; setp.ne.u32 %q1, %t, 0;
        setp.lt.u32 %q2, %spot, 5; st.shared.u32 [%own], %r35; bar.sync 0;
        {text}
        done: {end} }}"
    )
}

/// Launches of several shapes one after the other, in all forms.
fn compare(text: &str, launches: &[([u32; 3], u32, u32)]) -> Result<(u32, u32), String> {
    let source = kernel(text);
    if setting("SOFTCUDA_FUZZ_CASE").is_some() {
        println!("{source}");
    }
    let modules = [Form::Fibers, Form::Rounds, Form::Vectors]
        .map(|form| (form, harness::load_as(&source, form)));
    let mut faults = 0;
    for (block, blocks, n) in launches {
        let end = |at: usize| {
            let end = run_module(&modules[at].1, [*blocks, 1, 1], *block, *n);
            // Which block comes first is chance.
            end.map_err(|(kind, at, thread)| match blocks {
                1 => (kind, at, thread),
                _ => (kind, [0; 3], None),
            })
        };
        let expected = end(0);
        faults += u32::from(expected.is_err());
        for at in [1, 2] {
            let got = end(at);
            if got != expected && end(at) != end(0) {
                let form = modules[at].0;
                let what = difference(&got, &expected);
                return Err(format!("{form:?} {block:?} x{blocks} n={n} {what}\n{text}"));
            }
        }
    }
    Ok((launches.len() as u32, faults))
}

#[test]
fn random_kernels() {
    let count = std::sync::atomic::AtomicU32::new(0);
    let faults = std::sync::atomic::AtomicU32::new(0);
    run_cases(cases(), |_, random, _| {
        let text = body(random);
        let launches: Vec<_> = (0..3)
            .map(|_| {
                let block = BLOCKS[random.below(BLOCKS.len())];
                let blocks = if block.iter().product::<u32>() < 500 {
                    3
                } else {
                    1
                };
                let blocks = 1 + random.below(blocks) as u32;
                (block, blocks, random.below(70) as u32)
            })
            .collect();
        let (runs, ends) = compare(&text, &launches)?;
        count.fetch_add(runs, std::sync::atomic::Ordering::Relaxed);
        faults.fetch_add(ends, std::sync::atomic::Ordering::Relaxed);
        Ok(())
    });
    println!("{count:?} launches, {faults:?} faults");
}

/// What differs of some bodies in the shapes of blocks, for some `n` and numbers of blocks.
fn same_in_all_shapes(bodies: &[String], numbers: &[u32]) {
    let mut wrong = String::new();
    for body in bodies {
        let small = |block: &[u32; 3]| block.iter().product::<u32>() <= 325;
        let mut launches = vec![];
        for (at, block) in BLOCKS.into_iter().enumerate() {
            for n in numbers {
                let blocks = if small(&block) { 1 + at as u32 % 3 } else { 1 };
                launches.push((block, blocks, *n));
            }
        }
        if let Err(what) = compare(body, &launches) {
            let _ = writeln!(wrong, "---- {what}");
        }
    }
    assert!(wrong.is_empty(), "{wrong}");
}

/// One thread faults, whichever: in a group or not, before, between and after waits.
#[test]
fn a_fault_of_each_thread() {
    let fault = [
        "@%p1 ld.global.u32 %r8, [%rd7];",
        "@!%p1 bra past#; st.global.u32 [%rd7], %r8; past#:",
        "selp.b64 %rd9, 64, %rd3, %p1; ld.global.u32 %r8, [%rd9];",
        "@%p1 trap;",
        "selp.b32 %r8, 17, 3, %p1; bar.sync %r8;",
        "selp.b32 %r8, 9000, 0, %p1; add.u32 %r8, %r8, %r20; st.shared.u32 [%r8], %r8;",
    ];
    let around = [
        "F1 bar.sync 0; F2",
        "bar.sync 0; F1 bar.sync 0;",
        "bar.sync 0; bar.warp.sync -1; F1",
        "again: bar.sync 0; add.u32 %r10, %r10, 1; setp.eq.u32 %p3, %r10, 2;
        and.pred %p1, %p2, %p3; F1 setp.lt.u32 %p3, %r10, 4; @%p3 bra again;",
        "shfl.sync.bfly.b32 %r8, %r2, 1, 31, -1; F1 vote.sync.ballot.b32 %r9, %p1, -1;",
        "@%p1 bra one; bar.sync 0; bar.sync 0; bra end; one: bar.sync 0; F1 bar.sync 0; end:",
    ];
    let mut wrong = String::new();
    for fault in fault {
        for around in around {
            let at = |n: &str| fault.replace('#', n);
            let both = around.contains("F2");
            let body = format!(
                "mov.u64 %rd7, 64; mov.u32 %r10, 0; mov.u32 %r20, s; mov.u32 %r8, 0;
                setp.eq.u32 %p2, %r35, %r3; mov.pred %p1, %p2; {}",
                around
                    .replace("F1", &at("1"))
                    .replace("F2", if both { "@%p1 trap;" } else { "" })
            );
            let source = kernel(&body);
            for form in [Form::Vectors, Form::Rounds] {
                let module = harness::load_as(&source, form);
                for block in [[9, 1, 1], [33, 1, 1], [39, 1, 1], [7, 5, 1], [3, 3, 1]] {
                    let threads: u32 = block.iter().product();
                    for n in 0..=threads {
                        let place = Some(place(block, n));
                        let ok = match run_module(&module, [1, 1, 1], block, n) {
                            Ok(_) => n == threads,
                            Err((_, [0, 0, 0], thread)) => n < threads && thread == place,
                            _ => false,
                        };
                        if !ok {
                            let _ = writeln!(wrong, "{form:?} {block:?} n={n}\n{body}");
                            break;
                        }
                    }
                }
            }
        }
    }
    assert!(wrong.is_empty(), "{wrong}");
}

/// Some threads never come to a barrier of a number that others wait at.
#[test]
fn deadlocks() {
    let body = "setp.ge.u32 %p1, %r35, %r3; @%p1 bra one; bar.sync 1, 64; bar.sync 0; bra end;
        one: bar.sync 0; end: mov.u32 %r9, 5;";
    for block in [[9, 1, 1], [33, 1, 1], [39, 1, 1], [7, 5, 1], [65, 1, 1]] {
        let threads: u32 = block.iter().product();
        for n in 0..=threads {
            let end = same(body, block, n);
            if let Err((kind, ..)) = end {
                assert_eq!(kind, FaultKind::Deadlock, "{block:?} {n}");
            }
        }
    }
}

/// Loops of the groups or of the others are longer; what is the same in a block at one time is not.
#[test]
fn loops_of_other_lengths() {
    let mut bodies = vec![];
    let who = [
        "setp.ge.u32 %p1, %r35, %r20;",
        "setp.lt.u32 %p1, %r35, %r20;",
        "sub.u32 %r21, %r36, 1; setp.eq.u32 %p1, %r35, %r21;",
        "setp.eq.u32 %p1, %r35, %r3;",
    ];
    let waits = [
        "bar.sync 0;",
        "bar.warp.sync -1;",
        "vote.sync.ballot.b32 %r8, %p1, -1; xor.b32 %r9, %r9, %r8;",
        "bar.red.popc.u32 %r8, 0, %p1; add.u32 %r9, %r9, %r8;",
    ];
    for who in who {
        for wait in waits {
            for turns in ["1, 3", "3, 1", "0, 2", "2, 0"] {
                // At the head, at the end, and both; some go past the wait in one turn.
                for text in [
                    "L: W add.u32 %r9, %r9, %r10; add.u32 %r10, %r10, 1; ASK @%p2 bra L;",
                    "L: ASK @!%p2 bra E; W mad.lo.u32 %r9, %r9, 3, %r10; add.u32 %r10, %r10, 1;
                    bra L; E:",
                    "L: add.u32 %r10, %r10, 1; setp.eq.u32 %p3, %r10, 2; and.pred %p3, %p3, %p1;
                    @%p3 bra L; W mad.lo.u32 %r9, %r9, 3, %r10; ASK @%p2 bra L;",
                    "L: W mad.lo.u32 %r9, %r9, 3, %r10; M: add.u32 %r10, %r10, 1; W
                    mad.lo.u32 %r9, %r9, 5, %r10; ASK @%p2 bra M; and.b32 %r22, %r10, 1;
                    setp.eq.u32 %p3, %r22, 0; @%p3 bra L;",
                ] {
                    let text = text
                        .replace("W ", &format!("{wait} "))
                        .replace("W\n", &format!("{wait}\n"))
                        .replace("ASK", "setp.lt.u32 %p2, %r10, %r11;");
                    bodies.push(format!(
                        "and.b32 %r20, %r36, -8; mov.u32 %r10, 0; {who}
                        selp.u32 %r11, {turns}, %p1; {text} {wait} add.u32 %r9, %r9, %r10;"
                    ));
                }
            }
        }
    }
    let step = if setting("SOFTCUDA_FUZZ_CASES").is_some() {
        1
    } else {
        7
    };
    let bodies: Vec<String> = bodies.into_iter().step_by(step).collect();
    same_in_all_shapes(&bodies, &[0, 8, 32]);
}

/// Locks, flags and `mbarrier`s in such blocks, copies, local memory, the carry flag, calls, and
/// sums of all threads.
#[test]
fn what_else_waits() {
    let own = "mov.u32 %r20, s; mad.lo.u32 %r21, %r35, 4, %r20;";
    let bodies = [
        // A lock.
        format!(
            "{own} setp.eq.u32 %p1, %r35, 0; @%p1 st.shared.u32 [s+8000], 0;
            @%p1 st.shared.u32 [s+8004], 0; bar.sync 0;
            L: atom.shared.cas.b32 %r10, [s+8000], 0, 1; setp.ne.u32 %p1, %r10, 0; @%p1 bra L;
            ld.volatile.shared.u32 %r10, [s+8004]; add.u32 %r10, %r10, %r35;
            st.volatile.shared.u32 [s+8004], %r10; membar.cta;
            st.volatile.shared.u32 [s+8000], 0; bar.sync 0; ld.shared.u32 %r9, [s+8004];"
        ),
        // Each waits for the one behind it, or before it.
        format!(
            "{own} st.shared.u32 [%r21], 0; bar.sync 0; sub.u32 %r10, %r36, 1;
            setp.eq.u32 %p1, %r35, %r10; mov.u32 %r11, 7; @%p1 bra go;
            L: ld.volatile.shared.u32 %r11, [%r21+4]; setp.eq.u32 %p1, %r11, 0; @%p1 bra L;
            go: add.u32 %r11, %r11, 1; st.volatile.shared.u32 [%r21], %r11; mov.u32 %r9, %r11;
            bar.sync 0;"
        ),
        format!(
            "{own} st.shared.u32 [%r21], 0; bar.sync 0; setp.eq.u32 %p1, %r35, 0; mov.u32 %r11, 7;
            @%p1 bra go;
            L: ld.volatile.shared.u32 %r11, [%r21+-4]; setp.eq.u32 %p1, %r11, 0; @%p1 bra L;
            go: add.u32 %r11, %r11, 1; st.volatile.shared.u32 [%r21], %r11; bar.warp.sync -1;
            mov.u32 %r9, %r11; bar.sync 0;"
        ),
        // The first thread waits in a loop with a wait of its warp for the last.
        format!(
            "{own} st.shared.u32 [s+8000], 0; bar.sync 0; sub.u32 %r10, %r36, 1;
            setp.eq.u32 %p1, %r35, %r10; @%p1 st.volatile.shared.u32 [s+8000], 5;
            L: ld.volatile.shared.u32 %r9, [s+8000]; setp.eq.u32 %p2, %r9, 0;
            vote.sync.any.pred %p3, %p2, -1; @%p3 bra L; bar.sync 0;"
        ),
        // An mbarrier.
        format!(
            "{own} setp.ne.u32 %p1, %r35, 0; @%p1 bra on; mbarrier.init.shared.b64 [s+8000], %r36;
            on: bar.sync 0; st.shared.u32 [%r21], %r2; mbarrier.arrive.shared.b64 %rd9, [s+8000];
            L: mbarrier.try_wait.shared.b64 %p1, [s+8000], %rd9; @!%p1 bra L;
            add.u32 %r10, %r35, 9; rem.u32 %r10, %r10, %r36; mad.lo.u32 %r10, %r10, 4, %r20;
            ld.shared.u32 %r9, [%r10]; bar.sync 0;"
        ),
        // Copies.
        format!(
            "{own} and.b32 %r10, %r35, 63; mul.wide.u32 %rd9, %r10, 4; add.u64 %rd9, %rd9, %rd2;
            cp.async.ca.shared.global [%r21], [%rd9], 4; cp.async.commit_group;
            cp.async.wait_group 0; bar.sync 0; add.u32 %r10, %r35, 9; rem.u32 %r10, %r10, %r36;
            mad.lo.u32 %r10, %r10, 4, %r20; ld.shared.u32 %r9, [%r10]; bar.sync 0;
            ld.shared.u32 %r10, [%r21]; add.u32 %r9, %r9, %r10;"
        ),
        // Local memory and the carry flag.
        ".local .align 8 .b8 d[64]; mov.u32 %r20, d; and.b32 %r21, %r35, 15;
        mad.lo.u32 %r21, %r21, 4, %r20; st.local.u32 [%r21], %r2; bar.sync 0;
        mul.lo.u32 %r10, %r2, 0x9e3779b9; add.cc.u32 %r11, %r10, %r10; bar.sync 0;
        addc.u32 %r12, %r2, 0; ld.local.u32 %r9, [%r21]; mad.lo.u32 %r9, %r12, 31, %r9;"
            .to_owned(),
        // Seldom.
        ".local .align 8 .b8 d[64]; mov.u32 %r20, d; and.b32 %r21, %r35, 15;
        mad.lo.u32 %r21, %r21, 4, %r20; mov.u32 %r10, 0; bar.sync 0;
        L: setp.eq.u32 %p1, %r35, %r3; @!%p1 bra past; st.local.u32 [%r21], %r2;
        ld.local.u32 %r9, [%r21]; past: bar.sync 0; add.u32 %r9, %r9, %r10;
        add.u32 %r10, %r10, 1; setp.lt.u32 %p1, %r10, 3; @%p1 bra L;"
            .to_owned(),
        // Sums.
        format!(
            "{own} setp.eq.u32 %p1, %r35, 0; @%p1 st.shared.u32 [s+8000], 0; bar.sync 0;
            red.shared.add.u32 [s+8000], %r35; red.global.add.u32 [%rd1+16000], %r35;
            atom.global.max.u32 %r10, [%rd1+16004], %r2; bar.sync 0; ld.shared.u32 %r9, [s+8000];"
        ),
        // All of a warp but the last lanes have ended.
        "and.b32 %r20, %r36, -8; setp.lt.u32 %p1, %r35, %r20; @%p1 bra end;
        vote.sync.ballot.b32 %r9, %p1, -1; redux.sync.add.u32 %r10, %r35, -1; bar.sync 0;
        mad.lo.u32 %r9, %r10, 3, %r9; shfl.sync.bfly.b32 %r11, %r9, 1, 31, -1;
        add.u32 %r9, %r9, %r11; end:"
            .to_owned(),
        "and.b32 %r20, %r36, -8; setp.ge.u32 %p1, %r35, %r20; @%p1 bra end;
        vote.sync.ballot.b32 %r9, %p1, -1; redux.sync.add.u32 %r10, %r35, -1; bar.sync 0;
        mad.lo.u32 %r9, %r10, 3, %r9; shfl.sync.bfly.b32 %r11, %r9, 1, 31, -1;
        add.u32 %r9, %r9, %r11; bar.red.popc.u32 %r11, 0, %p1; end:"
            .to_owned(),
        // Some arrive, others wait.
        format!(
            "{own} add.u32 %r10, %r36, 31; and.b32 %r10, %r10, -32; shr.u32 %r11, %r35, 5;
            setp.eq.u32 %p1, %r11, 0; @!%p1 bra waits; st.shared.u32 [%r21], 77;
            bar.arrive 1, %r10; bra on; waits: bar.sync 1, %r10; ld.shared.u32 %r9, [%r20]; on:
            bar.sync 0;"
        ),
        // What the first wait of the kernel is, and what follows at once.
        "bar.sync 0; bar.sync 0; bar.warp.sync -1; bar.sync 1; mov.u32 %r9, %r2;".to_owned(),
        // Matrices of warps that lack lanes.
        "mov.b32 %r10, %r2; mov.b32 %r11, 5; bar.sync 0;
        mma.sync.aligned.m16n8k32.row.col.satfinite.s32.s8.u8.s32 {%r12, %r13, %r14, %r15},
        {%r10, %r11, %r10, %r11}, {%r11, %r10}, {%r10, %r10, %r11, %r11}; bar.sync 0;
        add.u32 %r9, %r12, %r13; xor.b32 %r9, %r9, %r14;
        movmatrix.sync.aligned.m8n8.trans.b16 %r16, %r9; add.u32 %r9, %r16, %r15;"
            .to_owned(),
    ];
    same_in_all_shapes(&bodies, &[0, 8, 32]);
}

/// Who comes to a barrier before another, and is seen to have passed it.
#[test]
fn nobody_passes_a_barrier_early() {
    let mut bodies = vec![];
    // Two barriers, a warp operation in front of each, and what a neighbour has written meanwhile.
    let way = |operation: &str, number: u32| {
        format!(
            "{operation} bar.sync 0; ld.shared.u32 %r9, [%r10]; {operation} bar.sync 0;
            st.shared.u32 [%r21], {number}; bar.sync 0; ld.shared.u32 %r11, [%r10];
            mad.lo.u32 %r9, %r9, 100, %r11;"
        )
    };
    for who in [
        "setp.ge.u32 %p1, %r35, %r22;",
        "setp.lt.u32 %p1, %r35, %r22;",
        "sub.u32 %r23, %r36, 1; setp.eq.u32 %p1, %r35, %r23;",
        "setp.eq.u32 %p1, %r35, %r3;",
        "setp.ge.u32 %p1, %r35, 32;",
    ] {
        for operation in [
            "",
            "vote.sync.ballot.b32 %r12, %p1, %r13;",
            "bar.warp.sync %r13;",
        ] {
            let (falls, taken) = (way(operation, 2), way(operation, 3));
            bodies.push(format!(
                "mov.u32 %r20, s; mad.lo.u32 %r21, %r35, 4, %r20; and.b32 %r22, %r36, -8;
                st.shared.u32 [%r21], 1; add.u32 %r10, %r35, 8; rem.u32 %r10, %r10, %r36;
                mad.lo.u32 %r10, %r10, 4, %r20; {who} vote.sync.ballot.b32 %r13, %p1, -1;
                @!%p1 not.b32 %r13, %r13; @%p1 bra one; {falls} bra end; one: {taken}
                end: bar.sync 0;"
            ));
        }
    }
    same_in_all_shapes(&bodies, &[0, 8, 32]);
}

/// Each warp comes to a barrier of 32 threads by itself. Who has no group comes there before the
/// groups of its warp, and counts for no other warp that has its turn first.
#[test]
fn a_barrier_of_one_warp() {
    let stuck = "setp.lt.u32 %p1, %r35, 32; @%p1 bra one; bar.sync 2, 32; mov.u32 %r9, 1; bra end;
        one: bar.sync 2, 32; mov.u32 %r9, 2; end: bar.sync 0;";
    // The last thread reads what the others of its warp have written before.
    let early = "mov.u32 %r20, s; mad.lo.u32 %r21, %r35, 4, %r20; st.shared.u32 [%r21], 0;
        bar.sync 0; setp.lt.u32 %p1, %r35, 32; @%p1 bra one; setp.eq.u32 %p2, %r35, 40;
        @%p2 bra past; bar.warp.sync 0xff; st.shared.u32 [%r21], 7; past: bar.sync 2, 32;
        ld.shared.u32 %r9, [s+128]; bra end; one: bar.sync 2, 32; end:";
    let mut wrong = String::new();
    for (body, blocks) in [
        (stuck, &[[41, 1, 1], [44, 1, 1], [9, 5, 1]][..]),
        (early, &[[41, 1, 1]]),
    ] {
        for block in blocks {
            if let Err(what) = compare(body, &[(*block, 1, 0)]) {
                let _ = writeln!(wrong, "---- {what}");
            }
        }
    }
    assert!(wrong.is_empty(), "{wrong}");
}
