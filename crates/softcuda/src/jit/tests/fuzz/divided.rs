//! Random kernels whose threads divide their numbers into rows, in vectors and thread by thread:
//! both leave the same bytes, and the same fault.
//!
//! Most often neighbours are in one row. What they are divided by is a parameter, so that kernels
//! run with rows of all lengths, or a number; they may wrap, or have a sign.

use std::fmt::Write as _;
use std::ops::Range;
use std::sync::Arc;

use super::both::{Both, Left, left};
use super::{Random, run_cases, setting};
use crate::jit::harness::{self, buffer};
use crate::jit::module::Module;

/// Cases of a plain `cargo test`, and of a whole run the part that is run here.
const DEFAULT_CASES: u64 = 100;
const SHARE: u64 = 5;
/// Words of the buffer that all threads read, and of that which each writes.
const WORDS: usize = 8192;
const OWN: usize = 4;
/// What the parameters are that threads divide by.
const DIVISORS: &[u32] = &[
    1,
    2,
    3,
    7,
    8,
    15,
    16,
    17,
    20,
    24,
    31,
    32,
    33,
    57,
    64,
    100,
    128,
    200,
    0,
    0xffff_ffff,
    0xffff_ffe0,
    0x8000_0000,
];

struct Writer<'a> {
    random: &'a mut Random,
    text: String,
    /// The registers of the last number's quotients, and what was left.
    parts: Range<usize>,
    numbers: usize,
    labels: usize,
    /// Registers that are read in the end: `%e` and a number.
    kept: Vec<usize>,
    wild: bool,
}

impl Writer<'_> {
    fn line(&mut self, text: &str) {
        writeln!(self.text, "{text}").expect("text takes text");
    }

    fn pick<'a>(&mut self, list: &[&'a str]) -> &'a str {
        list[self.random.below(list.len())]
    }

    /// What is divided first.
    fn number(&mut self) {
        let number = self.pick(&[
            "mov.u32 {}, %x;",
            "add.u32 {}, %x, %start;",
            "add.u32 {}, %x, 5;",
            "add.u32 {}, %x, %d0;",
            "mov.u32 {}, %me;",
            "mad.lo.u32 {}, %x, 2, 1;",
            "sub.u32 {}, %x, 40;",
            "shl.b32 {}, %x, 2;",
            "sub.u32 {}, %start, %x;",
            "add.u32 {}, %x, 0x7fffffe0;",
            "add.u32 {}, %x, %d0; sub.u32 {}, {}, 1;",
            "add.u32 {}, %x, 1;",
        ]);
        self.numbers += 1;
        let to = format!("%n{}", self.numbers);
        self.line(&number.replace("{}", &to));
    }

    /// Divides the last number, by rows and in them.
    fn divide(&mut self) {
        let sign = self.pick(&["u32", "s32"]);
        let by = self.pick(&["%d0", "%d1", "%d2", "%dd", "%warp", "20", "64", "3"]);
        let part = self.parts.end;
        self.parts.end += 1;
        let (q, r, n) = (
            format!("%q{part}"),
            format!("%r{part}"),
            format!("%n{}", self.numbers),
        );
        let text = match self.random.below(7) {
            0 => format!("div.{sign} {q}, {n}, {by}; rem.{sign} {r}, {n}, {by};"),
            1 => format!("rem.{sign} {r}, {n}, {by}; sub.u32 {q}, {n}, {r};"),
            2 => format!("shr.{sign} {q}, {n}, 5; and.b32 {r}, {n}, 31;"),
            // As compilers divide numbers with a sign by 32.
            3 => format!(
                "shr.s32 %s{part}, {n}, 31; shr.u32 %t{part}, %s{part}, 27;
                add.s32 %u{part}, {n}, %t{part}; shr.s32 {q}, %u{part}, 5;
                and.b32 %y{part}, %u{part}, -32; sub.s32 {r}, {n}, %y{part};"
            ),
            // As they divide by a number: 20.
            4 => format!(
                "mul.hi.{sign} %s{part}, {n}, {}; shr.{sign} {q}, %s{part}, {};
                mul.lo.u32 {r}, {q}, 20; sub.u32 {r}, {n}, {r};",
                if sign == "u32" {
                    "0xcccccccd"
                } else {
                    "0x66666667"
                },
                if sign == "u32" { 4 } else { 3 },
            ),
            _ => format!(
                "div.{sign} {q}, {n}, {by}; mul.lo.u32 {r}, {q}, {by}; sub.u32 {r}, {n}, {r};"
            ),
        };
        self.line(&text);
        // The next to be divided.
        self.numbers += 1;
        let next = if self.random.below(2) == 0 { &r } else { &q };
        self.line(&format!("mov.u32 %n{}, {next};", self.numbers));
    }

    fn part(&mut self) -> String {
        let part = self.parts.start + self.random.below(self.parts.len());
        let which = self.pick(&["%q", "%r"]);
        format!("{which}{part}")
    }

    /// Loads an element of the buffer that all read: of row and column, or of any two parts.
    fn access(&mut self) {
        self.labels += 1;
        let n = self.labels;
        if self.random.below(3) == 0 {
            // What counts up or is the same in all threads, written where some may be alone.
            let text = self.pick(&[
                "add.u32 %e, %x, 7;",
                "mad.lo.u32 %e, %x, 2, 9;",
                "shl.b32 %e, %step, 1;",
                "sub.u32 %e, %step, %me;",
            ]);
            self.line(&text.replace("%e", &format!("%e{n}")));
            self.kept.push(n);
        }
        if self.random.below(4) == 0 {
            self.line("add.u32 %z, %z, 5;");
        }
        let (row, column) = match self.random.below(3) {
            0 => (self.part(), self.part()),
            _ => {
                let part = self.parts.start + self.random.below(self.parts.len());
                (format!("%q{part}"), format!("%r{part}"))
            }
        };
        self.line(&format!(
            "and.b32 %i{n}, {row}, 15; mad.lo.u32 %i{n}, %i{n}, 256, {column};"
        ));
        if self.random.below(3) == 0 {
            self.line(&format!("add.u32 %i{n}, %i{n}, 257;"));
        }
        // What is left may be any number, but mostly it is small.
        self.line(&format!("setp.gt.u32 %p, %i{n}, 8000; @%p bra far{n};"));
        let address = self.pick(&[
            "mul.wide.u32 %a, %i, 4; add.u64 %a, %a, %all;",
            "mad.wide.s32 %a, %i, 4, %all;",
            "cvt.s64.s32 %a, %i; shl.b64 %b, %a, 2; add.u64 %a, %b, %all;",
        ]);
        let [a, b, i] = ["%a", "%b", "%i"].map(|register| format!("{register}{n}"));
        let address = address.replace("%all", "ALL").replace("%a", &a);
        self.line(
            &address
                .replace("%b", &b)
                .replace("%i", &i)
                .replace("ALL", "%all"),
        );
        self.line(&format!("ld.global.u32 %v{n}, [{a}];"));
        let mut value = format!("%v{n}");
        match self.random.below(6) {
            // An index that is the same in a row.
            0 => {
                let row = self.part();
                self.line(&format!(
                    "and.b32 %k{n}, {row}, 1023; mul.wide.u32 %c{n}, %k{n}, 4;
                    add.u64 %c{n}, %c{n}, %all; ld.global.u32 %w{n}, [%c{n}];"
                ));
                value = format!("%w{n}");
            }
            1 => {
                self.line(&format!(
                    "and.b32 %k{n}, %v{n}, 1023; mul.wide.u32 %c{n}, %k{n}, 4;
                    add.u64 %c{n}, %c{n}, %all; ld.global.u32 %w{n}, [%c{n}];"
                ));
                value = format!("%w{n}");
            }
            2 => self.line(&format!("st.global.u32 [%own+4], {value};")),
            _ => {}
        }
        self.line(&format!("mad.lo.u32 %sum, %sum, 31, {value};"));
        // The same in all threads, written where some may be by themselves.
        match self.random.below(4) {
            0 => self.line("add.u32 %u, %u, 1;"),
            1 => self.line("mad.lo.u32 %w, %start, 3, 5;"),
            _ => {}
        }
        match self.wild {
            false => self.line(&format!("far{n}:")),
            true => self.line(&format!(
                "bra on{n}; far{n}: ld.global.u32 %sum, [%all+0x20000000]; on{n}:"
            )),
        }
    }

    /// Some way that is taken at the ends of rows, or not at all.
    fn edge(&mut self) {
        self.labels += 1;
        let (n, part) = (self.labels, self.part());
        let asks = self.pick(&["eq", "ne", "lt", "ge"]);
        let what = self.pick(&["0", "3", "%d0", "15"]);
        self.line(&format!(
            "setp.{asks}.s32 %p, {part}, {what}; @%p bra over{n};"
        ));
        self.access();
        self.line(&format!("over{n}:"));
    }

    fn turn(&mut self) {
        self.parts.start = self.parts.end;
        self.number();
        for _ in 0..1 + self.random.below(3) {
            self.divide();
        }
        for _ in 0..1 + self.random.below(4) {
            match self.random.below(4) {
                0 => self.edge(),
                _ => self.access(),
            }
        }
        if self.random.below(3) == 0 {
            let part = self.part();
            self.line(&format!("mad.lo.u32 %sum, %sum, 31, {part};"));
        }
    }
}

fn kernel(random: &mut Random) -> String {
    let wild = random.below(8) == 0;
    let mut writer = Writer {
        random,
        text: String::new(),
        parts: 0..0,
        numbers: 0,
        labels: 0,
        kept: vec![],
        wild,
    };
    if writer.random.below(3) == 0 {
        writer.line("mov.u32 %k, 0; again:");
        writer.turn();
        writer.line(
            "add.u32 %x, %x, %step; add.u32 %k, %k, 1; setp.lt.u32 %p, %k, 3; @%p bra again;",
        );
    } else {
        for _ in 0..1 + writer.random.below(2) {
            writer.turn();
        }
    }
    // Whether there is another form is a matter of the number of steps.
    for _ in 0..writer.random.below(8) {
        writer.line("add.u32 %sum, %sum, 1;");
    }
    writer.line("mad.lo.u32 %sum, %sum, 31, %u; mad.lo.u32 %sum, %sum, 31, %w;");
    writer.line("mad.lo.u32 %sum, %sum, 31, %z;");
    for n in std::mem::take(&mut writer.kept) {
        writer.line(&format!(
            "and.b32 %j{n}, %e{n}, 8191; mul.wide.u32 %f{n}, %e{n}, 4; add.u64 %g{n}, %f{n}, %all;
            setp.eq.u32 %p, %j{n}, %e{n}; @!%p bra none{n}; ld.global.u32 %j{n}, [%g{n}]; none{n}:
            mad.lo.u32 %sum, %sum, 31, %j{n}; mad.lo.u32 %sum, %sum, 31, %e{n};"
        ));
    }
    let text = writer.text;
    harness::module(&format!(
        ".visible .entry k(.param .u64 all, .param .u64 mine, .param .u32 start, .param .u32 d0,
            .param .u32 d1)
        {{
            .reg .b32 %q<8>, %r<8>, %s<8>, %t<8>, %u<8>, %y<8>, %n<12>, %i<32>, %k<32>, %v<32>, %w<32>;
            .reg .b32 %k, %sum, %me, %step, %block, %x, %start, %u, %w;
            .reg .b32 %d0, %d1, %d2, %dd, %warp;
            .reg .b32 %e<32>, %j<32>, %z;
            .reg .b64 %f<32>, %g<32>, %all, %mine, %own, %a<32>, %b<32>, %c<32>;
            .reg .pred %p;
            ld.param.u64 %all, [all];
            ld.param.u64 %mine, [mine];
            ld.param.u32 %start, [start]; ld.param.u32 %d0, [d0]; ld.param.u32 %d1, [d1];
            mul.lo.u32 %d2, %d0, %d1; shr.u32 %dd, %d0, 1; mov.u32 %warp, WARP_SZ;
            mov.u32 %me, %tid.x; mov.u32 %step, %ntid.x; mov.u32 %block, %ctaid.x;
            mad.lo.u32 %x, %block, %step, %me;
            mad.wide.u32 %own, %x, {}, %mine;
            mov.u32 %sum, 0; mov.u32 %z, 0; mov.u32 %u, 0; mov.u32 %w, 0;
            {text}
            st.global.u32 [%own], %sum;
            ret;
        }}",
        OWN * 4
    ))
}

const BLOCKS: u32 = 3;

/// What a launch leaves behind.
fn outcome(module: &Arc<Module>, threads: u32, params: [u32; 3]) -> Left {
    let mut all: Vec<u32> = (0..WORDS as u32)
        .map(|n| n.wrapping_mul(0x9e37_79b9))
        .collect();
    let mut own = vec![0u32; (BLOCKS * threads) as usize * OWN];
    let buffers: &mut [&mut [u8]] = &mut [buffer(&mut all), buffer(&mut own)];
    let params = params.map(u32::to_le_bytes);
    let scalars = params.each_ref().map(|bytes| &bytes[..]);
    let (grid, block) = ([BLOCKS, 1, 1], [threads, 1, 1]);
    let result = harness::run_in(module, "k", grid, block, 0, buffers, &scalars);
    left(result, own)
}

#[test]
fn divided_numbers_do_the_same_in_vectors() {
    let cases = setting("SOFTCUDA_FUZZ_CASES").map_or(DEFAULT_CASES, |cases| cases / SHARE);
    run_cases(cases, |_, random, _| {
        let both = Both::of(kernel(random));
        for _ in 0..3 {
            let threads = [8, 20, 32, 40, 64, 96, 128][random.below(7)];
            let starts = [0, 3, 32, 0x7fff_fff0, 0xffff_ffe9];
            let divisor = |random: &mut Random| DIVISORS[random.below(DIVISORS.len())];
            let params = [
                starts[random.below(starts.len())],
                divisor(random),
                divisor(random),
            ];
            let what = format!("{threads} threads with {params:?}");
            both.do_the_same(what, |module| outcome(module, threads, params))?;
        }
        Ok(())
    });
}
