//! Random kernels of few steps, most of whose accesses are rows, run in vectors and thread by
//! thread: groups of neighbours are wide there, and give up where their threads may not agree.

use std::fmt::Write as _;
use std::sync::Arc;

use super::both::{Both, Left, left};
use super::{Random, run_cases, setting};
use crate::jit::harness::{self, buffer};
use crate::jit::module::Module;

/// Cases of a plain `cargo test`, and of a whole run the part that is run here.
const DEFAULT_CASES: u64 = 150;
const SHARE: u64 = 3;
/// Registers for indices, and for addresses.
const INDICES: usize = 40;
/// Words that all threads read.
const WORDS: usize = 2048;
/// Rows of words that threads write, one of each for a thread's number.
const ROWS: usize = 4;
/// Rows behind them that each thread has two words of.
const PAIRS: usize = 2;
const BLOCKS: u32 = 3;
/// The most turns over the grid.
const TURNS: u32 = 3;

struct Writer<'a> {
    random: &'a mut Random,
    text: String,
    names: usize,
    indices: usize,
    /// Accesses may be outside.
    wild: bool,
}

impl Writer<'_> {
    fn line(&mut self, text: &str) {
        writeln!(self.text, "{text}").expect("text takes text");
    }

    fn pick<'a>(&mut self, list: &[&'a str]) -> &'a str {
        list[self.random.below(list.len())]
    }

    fn name(&mut self) -> usize {
        self.names += 1;
        self.names
    }

    /// The register of an index; each has its own, so that it counts up by one number.
    fn new_index(&mut self) -> String {
        self.indices += 1;
        self.last_index()
    }

    fn last_index(&self) -> String {
        format!("%i{}", self.indices % INDICES)
    }

    /// A number that mostly counts up from thread to thread.
    fn index(&mut self) -> String {
        let i = self.new_index();
        let base = self.pick(&["%x", "%x", "%x", "%col", "%j0", "%me"]);
        let more = self.random.below(40);
        let text = match self.random.below(6) {
            0 => format!("mad.lo.u32 {i}, {base}, 2, {more};"),
            1 => format!("sub.u32 {i}, 600, {base};"),
            2 => format!("shr.u32 {i}, {base}, {};", 1 + self.random.below(5)),
            3 => format!("add.u32 %t, {base}, %y; add.u32 {i}, %t, {more};"),
            _ => format!("add.u32 {i}, {base}, {more};"),
        };
        self.line(&text);
        if self.wild {
            return i;
        }
        // What is out of bounds does not count up where it is clamped.
        let inside = self.new_index();
        let clamps = self.random.below(3) == 0 || base == "%j0";
        let clamp = if clamps { "min.u32" } else { "rem.u32" };
        self.line(&format!("{clamp} {inside}, {i}, {};", WORDS - 8));
        inside
    }

    /// A number that counts up, and certainly is one of the words.
    fn inside(&mut self) -> String {
        let i = self.new_index();
        let base = self.pick(&["%col", "%col", "%lin", "%me"]);
        let more = self.random.below(200);
        self.line(&format!("add.u32 {i}, {base}, {more};"));
        i
    }

    /// The address of an element of so many bytes, of the words or from a register on.
    fn address(&mut self, index: &str, size: usize, from: &str) -> String {
        let widens = self.pick(&["mul.wide.u32", "mul.wide.s32"]);
        let at = index.replace("%i", "%at");
        let distance = index.replace("%i", "%by");
        self.line(&format!(
            "{widens} {distance}, {index}, {size}; add.u64 {at}, {distance}, {from};"
        ));
        at
    }

    fn load(&mut self) {
        let index = match self.random.below(3) {
            0 => self.index(),
            _ => self.inside(),
        };
        let guard = self.guard();
        let (size, load) = match self.random.below(9) {
            0 => (4, "ld.global.u32 %r1, [%at];"),
            1 => (8, "ld.global.nc.v2.f32 {%f1, %f2}, [%at];"),
            2 => (2, "ld.global.u16 %h, [%at]; cvt.u32.u16 %r1, %h;"),
            3 => (1, "ld.global.s8 %r1, [%at];"),
            4 => (4, "ld.global.u32 %r0, [%at+4];"),
            5 => (8, "ld.global.u64 %w, [%at]; cvt.u32.u64 %r1, %w;"),
            6 => (4, "ld.global.s16 %r1, [%at+2];"),
            _ => (4, "ld.global.f32 %f1, [%at];"),
        };
        let at = self.address(&index, size, "%all");
        self.line(&format!("{guard}{}", load.replace("%at", &at)));
    }

    /// A load from one of two arrays.
    fn chosen(&mut self) {
        self.predicate();
        self.line("add.u64 %q, %all, 64; selp.b64 %q, %q, %all, %p;");
        if self.random.below(2) == 0 {
            self.compute();
        }
        let index = self.inside();
        let at = self.address(&index, 4, "%q");
        if self.random.below(2) == 0 {
            self.predicate();
        }
        self.line(&format!("ld.global.f32 %f1, [{at}];"));
    }

    /// A predicate in `%p`, most often of numbers that count up.
    fn predicate(&mut self) {
        let cmp = self.pick(&["lt", "le", "gt", "ge", "eq", "ne"]);
        let sign = self.pick(&["u32", "s32"]);
        let a = self.pick(&["%x", "%x", "%col", "%j0", "%y", "%lin"]);
        let b = match self.random.below(4) {
            0 => "%n".to_owned(),
            1 => "%m".to_owned(),
            _ => format!(
                "{}",
                [0, 5, 8, 16, 24, 31, 32, 40, 64][self.random.below(9)]
            ),
        };
        match self.random.below(6) {
            0 => self.line("setp.gt.f32 %p, %f1, %f0;"),
            2 => {
                let by = self.pick(&["1", "3", "-1", "-4"]);
                let sign = sign.replace("32", "64");
                let more = self.random.below(50);
                self.line(&format!(
                    "mul.wide.s32 %w, {a}, {by}; add.s64 %w, %w, %wide; setp.{cmp}.{sign} %p, %w, {more};"
                ));
            }
            1 => self.line(&format!(
                "setp.lt.u32 %p2, %x, %n; setp.{cmp}.{sign} %p, {a}, {b}; and.pred %p, %p, %p2;"
            )),
            _ => self.line(&format!("setp.{cmp}.{sign} %p, {a}, {b};")),
        }
    }

    fn guard(&mut self) -> &'static str {
        match self.random.below(8) {
            0 => {
                self.predicate();
                "@%p "
            }
            1 => {
                self.predicate();
                "@!%p "
            }
            _ => "",
        }
    }

    fn compute(&mut self) {
        let guard = self.guard();
        let text = match self.random.below(15) {
            11 => "max.f32 %f1, %f0, 0f00000000;",
            12 => "min.f32 %f0, %f1, %f2;",
            13 => "fma.rn.f32 %f0, %f1, 0f7f800000, %f0;",
            0 => "add.f32 %f0, %f0, %f1;",
            1 => "mul.f32 %f2, %f1, %f0;",
            2 => "fma.rn.f32 %f0, %f1, %f2, %f0;",
            3 => "mad.lo.u32 %r0, %r0, 31, %r1;",
            4 => "xor.b32 %r1, %r1, %r0;",
            5 => "selp.f32 %f1, %f0, %f2, %p;",
            6 => "cvt.rn.f32.u32 %f1, %r1;",
            7 => "add.u32 %r0, %r0, %x;",
            8 => "cvt.u64.u32 %w, %x; shr.u64 %w, %w, 3; cvt.u32.u64 %r1, %w;",
            9 => "max.f32 %f0, %f0, %f1;",
            10 => "mul.wide.s32 %w, %big, 8; shr.u64 %w, %w, 30; cvt.u32.u64 %r1, %w;",
            _ => "mul.wide.u32 %w, %big, 4; shr.u64 %w, %w, 31; cvt.u32.u64 %r1, %w;",
        };
        match text.matches(';').count() {
            1 => self.line(&format!("{guard}{text}")),
            _ => self.line(text),
        }
    }

    /// Stores into a row of its own, and now and then loads from one.
    fn own(&mut self) {
        let guard = self.guard();
        let offset = self.random.below(ROWS - 1) * 4 * all() as usize;
        let pair = ROWS * 4 * all() as usize;
        let text = match self.random.below(7) {
            5 => format!("st.global.v2.f32 [%own8+{pair}], {{%f0, %f2}};"),
            6 => format!("st.global.f32 [%own+{offset}], %f2;"),
            0 => format!("ld.global.f32 %f1, [%own+{offset}];"),
            1 => format!("ld.global.u32 %r1, [%own+{offset}];"),
            2 => format!("st.global.f32 [%own+{offset}], %f0;"),
            3 => format!("st.global.u16 [%own+{offset}], %r0;").replace("%r0", "%h"),
            _ => format!("st.global.u32 [%own+{offset}], %r0;"),
        };
        self.line(&format!("{guard}{text}"));
    }

    fn statement(&mut self, depth: usize) {
        match self.random.below(12) {
            0 if depth < 2 && self.random.below(3) == 0 => self.long_loop(depth),
            0 if depth < 2 => self.uniform_loop(depth),
            1 if depth < 2 => self.counting_loop(depth),
            2 if depth < 2 => self.branch(depth),
            3 | 4 => self.own(),
            5..8 => self.load(),
            8 if self.random.below(2) == 0 => self.chosen(),
            _ => self.compute(),
        }
    }

    fn statements(&mut self, most: usize, depth: usize) {
        for _ in 0..1 + self.random.below(most) {
            self.statement(depth);
        }
    }

    fn uniform_loop(&mut self, depth: usize) {
        let n = self.name();
        self.line(&format!("mov.u32 %k{depth}, 0; again{n}:"));
        self.statements(3, depth + 1);
        self.line(&format!(
            "add.u32 %k{depth}, %k{depth}, 1; setp.lt.u32 %p, %k{depth}, %m; @%p bra again{n};"
        ));
    }

    /// The same with a count of 64 bits.
    fn long_loop(&mut self, depth: usize) {
        let n = self.name();
        let j = format!("%l{depth}");
        let most = self.pick(&["150", "64", "33"]);
        self.line(&format!("cvt.u64.u32 {j}, %col; again{n}:"));
        self.statements(3, depth + 1);
        self.line(&format!(
            "add.u64 {j}, {j}, 40; setp.lt.u64 %p, {j}, {most}; @%p bra again{n};"
        ));
    }

    /// `for (j = thread; j < n; j += threads)`
    fn counting_loop(&mut self, depth: usize) {
        let n = self.name();
        let j = format!("%j{depth}");
        let begin = self.pick(&["%col, 0", "%col, %m", "%lin, 0"]);
        let by = self.pick(&["%threads", "32", "48"]);
        let most = self.pick(&["%n", "%n", "100"]);
        self.line(&format!(
            "add.u32 {j}, {begin}; setp.ge.u32 %p, {j}, {most}; @%p bra past{n}; again{n}:"
        ));
        self.statements(3, depth + 1);
        self.line(&format!(
            "add.u32 {j}, {j}, {by}; setp.lt.u32 %p, {j}, {most}; @%p bra again{n}; past{n}:"
        ));
    }

    fn branch(&mut self, depth: usize) {
        let n = self.name();
        self.predicate();
        self.line(&format!("@%p bra past{n};"));
        self.statements(3, depth + 1);
        self.line(&format!("past{n}:"));
    }
}

/// Numbers of threads, in all turns.
fn all() -> u32 {
    BLOCKS * 256 * TURNS
}

fn kernel(random: &mut Random) -> String {
    let wild = random.below(6) == 0;
    let mut writer = Writer {
        random,
        text: String::new(),
        names: 0,
        indices: 0,
        wild,
    };
    match writer.random.below(5) {
        0 => {}
        1 => writer.line("setp.ge.s32 %p, %x, %n; @%p bra end;"),
        2 => writer.line(
            "setp.lt.u32 %p, %x, %n; setp.lt.u32 %p2, %y, %m; and.pred %p, %p, %p2; @!%p bra end;",
        ),
        3 => writer.line(
            "setp.ge.s32 %p, %x, %n; setp.ge.s32 %p2, %y, %m; or.pred %p, %p, %p2; @%p bra end;",
        ),
        _ => writer.line("setp.ge.u32 %p, %x, %n; @%p bra end;"),
    }
    let over_the_grid = writer.random.below(3) == 0;
    if over_the_grid {
        writer.line(
            "mov.u32 %t, 0; turn: add.u32 %me, %x, %y; mad.lo.u32 %t, %y, 256, %x;
            mul.wide.u32 %own, %t, 4; add.u64 %own8, %own, %own;
            add.u64 %own, %own, %mine; add.u64 %own8, %own8, %mine;",
        );
        writer.line("mov.f32 %f0, 0f3f800000; mov.f32 %f1, %f0; mov.f32 %f2, %f0;");
        writer.line("mov.u32 %r0, %x; mov.u32 %r1, 3; mov.u32 %j0, %x; mov.u32 %j1, 7;");
    }
    writer.statements(7, 0);
    // Whether there is a form is a matter of the number of steps.
    for _ in 0..writer.random.below(8) {
        writer.line("add.u32 %r0, %r0, 1;");
    }
    let last = (ROWS - 1) * 4 * all() as usize;
    writer.line(&format!(
        "mov.b32 %t, %f0; mad.lo.u32 %r0, %r0, 31, %t; st.global.u32 [%own+{last}], %r0;"
    ));
    if over_the_grid {
        writer.line("add.u32 %x, %x, %step; setp.lt.u32 %p, %x, %n; @%p bra turn;");
    }
    let text = writer.text;
    harness::module(&format!(
        ".visible .entry k(.param .u64 all, .param .u64 mine, .param .u32 n, .param .u32 m,
            .param .u32 big)
        {{
            .reg .b32 %r<2>, %x, %y, %i<{INDICES}>, %j<2>, %k<2>, %n, %m, %t, %col, %lin, %me, %big;
            .reg .b32 %threads, %blocks, %block, %step, %rows;
            .reg .b64 %all, %mine, %own, %own8, %at<{INDICES}>, %by<{INDICES}>, %q, %w, %l<2>, %wide;
            .reg .f32 %f<3>;
            .reg .b16 %h;
            .reg .pred %p, %p2;
            ld.param.u64 %all, [all]; ld.param.u64 %mine, [mine];
            ld.param.u32 %n, [n]; ld.param.u32 %m, [m]; ld.param.u32 %big, [big];
            mov.u32 %col, %tid.x; mov.u32 %threads, %ntid.x; mov.u32 %block, %ctaid.x;
            mov.u32 %blocks, %nctaid.x; mul.lo.u32 %step, %threads, %blocks;
            mov.u32 %y, %tid.y; mov.u32 %rows, %ntid.y;
            mad.lo.u32 %x, %block, %threads, %col;
            mad.lo.u32 %lin, %y, %threads, %col;
            cvt.s64.s32 %wide, %big; mul.lo.s64 %wide, %wide, 3000000000;
            add.u32 %big, %big, %x;
            add.u32 %me, %x, %y;
            mad.lo.u32 %t, %block, %rows, %y; mad.lo.u32 %t, %t, %threads, %col;
            mul.wide.u32 %own, %t, 4; add.u64 %own8, %own, %own;
            add.u64 %own, %own, %mine; add.u64 %own8, %own8, %mine;
            mov.f32 %f0, 0f3f800000; mov.f32 %f1, %f0; mov.f32 %f2, %f0;
            mov.u32 %r0, %x; mov.u32 %r1, 3; mov.u32 %j0, %x; mov.u32 %j1, 7;
            {text}
            end:
            ret;
        }}"
    ))
}

/// What a launch leaves behind.
fn outcome(module: &Arc<Module>, block: [u32; 3], params: [u32; 3]) -> Left {
    let words = (0..WORDS as u32).map(|n| n.wrapping_mul(0x9e37_79b9) >> 3);
    let mut words: Vec<u32> = words.collect();
    let mut own = vec![0u32; all() as usize * (ROWS + PAIRS)];
    let buffers: &mut [&mut [u8]] = &mut [buffer(&mut words), buffer(&mut own)];
    let params = params.map(u32::to_le_bytes);
    let scalars = params.each_ref().map(|bytes| &bytes[..]);
    let result = harness::run_in(module, "k", [BLOCKS, 1, 1], block, 0, buffers, &scalars);
    left(result, own)
}

#[test]
fn rows_do_the_same_in_wide_groups() {
    let cases = setting("SOFTCUDA_FUZZ_CASES").map_or(DEFAULT_CASES, |cases| cases / SHARE);
    run_cases(cases, |_, random, _| {
        let both = Both::of(kernel(random));
        for _ in 0..3 {
            let block = [
                [8, 1, 1],
                [24, 2, 1],
                [32, 1, 1],
                [40, 1, 1],
                [64, 1, 1],
                [32, 3, 1],
                [16, 4, 1],
                [104, 1, 1],
                [128, 1, 1],
                [12, 1, 1],
            ][random.below(10)];
            let across = BLOCKS * block[0];
            let most = [across, 2 * across + 5, 3 * across, across / 2];
            let n = most[random.below(4)].saturating_sub(random.below(40) as u32);
            let bigs = [0, 0x7fff_ffd0, 0xffff_ffe1, 0xffff_ff00];
            let params = [n.min(256), random.below(6) as u32, bigs[random.below(4)]];
            let what = format!("{block:?} with {params:?}");
            both.do_the_same(what, |module| outcome(module, block, params))?;
        }
        Ok(())
    });
}
