//! Random loops as compilers unroll them, in vectors and thread by thread: both leave the same
//! bytes, and the same fault.
//!
//! Each is two loops. Threads leave the first after as many turns as they come to by themselves,
//! most often the same in all, and the second goes on where the first ended: so what counts up from
//! thread to thread may no more do so.

use std::fmt::Write as _;
use std::sync::Arc;

use super::both::{Both, Left, left};
use super::{Random, run_cases, setting};
use crate::jit::harness::{self, buffer};
use crate::jit::module::Module;

/// Cases of a plain `cargo test`, and of a whole run the part that is run here.
const DEFAULT_CASES: u64 = 100;
const SHARE: u64 = 5;
/// Words of the buffer that all threads read, and of that which each writes.
const WORDS: usize = 2048;
const OWN: usize = 4;

struct Writer<'a> {
    random: &'a mut Random,
    text: String,
    names: usize,
    /// The block has whole warps.
    warps: bool,
    wild: bool,
}

impl Writer<'_> {
    fn line(&mut self, text: &str) {
        writeln!(self.text, "{text}").expect("text takes text");
    }

    fn pick<'a>(&mut self, list: &[&'a str]) -> &'a str {
        list[self.random.below(list.len())]
    }

    /// A loop in two parts, with registers of its own.
    fn unrolled(&mut self) {
        self.names += 1;
        let n = self.names;
        let before = std::mem::take(&mut self.text);
        self.two_parts(n);
        let mut text = std::mem::replace(&mut self.text, before);
        for register in ["%j", "%n", "%k", "%t", "%a", "%b", "%c", "%by"] {
            let own = format!("{register}{n}");
            let ends = |at: &str| at.starts_with([',', ';', ' ', ']', '+']);
            let parts: Vec<&str> = text.split(register).collect();
            let mut renamed = parts[0].to_owned();
            for part in &parts[1..] {
                renamed += if ends(part) { &own } else { register };
                renamed += part;
            }
            text = renamed;
        }
        self.text += &text;
    }

    fn two_parts(&mut self, n: usize) {
        // Half of them have to do with numbers of threads alone.
        let regular = self.random.below(2) == 0;
        let begins = match regular {
            true => self.pick(&[
                "mov.u32 %j, %me;",
                "mov.u32 %j, %lane;",
                "shl.b32 %j, %me, 1;",
                "sub.u32 %j, 140, %me;",
            ]),
            false => self.pick(&[
                "add.u32 %j, %lane, %row;",
                "add.u32 %j, %me, %row;",
                "sub.u32 %j, 300, %lane;",
                "mov.u32 %j, %row;",
                "and.b32 %j, %hash, 63;",
            ]),
        };
        self.line(begins);
        // Where the loop ends.
        let ends = match self.random.below(6) {
            _ if regular => format!("mov.u32 %n, {};", 60 + self.random.below(240)),
            0 => "mov.u32 %n, 260;".into(),
            1 => "add.u32 %n, %row, 90;".into(),
            2 => "and.b32 %n, %hash, 127; add.u32 %n, %n, 200;".into(),
            // Far outside.
            3 if self.wild => "mov.u32 %n, 0x10000000;".into(),
            _ => "add.u32 %n, %row, 150;".into(),
        };
        self.line(&ends);
        let unsigned = self.random.below(2) == 0;
        let sign = if unsigned { "u32" } else { "s32" };
        let around = self.random.below(4) == 0;
        if around {
            self.line(&format!("setp.ge.{sign} %p, %j, %n; @%p bra D{n};"));
        }
        let step = self.pick(&["1", "8", "32", "%step"]);
        let turns = self.pick(&[
            "mov.u32 %k, 2;",
            "sub.u32 %t, %n, %j; shr.u32 %k, %t, 3; and.b32 %k, %k, 3;",
            "sub.u32 %t, %n, %j; add.u32 %t, %t, 31; div.u32 %k, %t, 32; and.b32 %k, %k, 3;",
            "not.b32 %t, %j; add.u32 %t, %t, %n; div.u32 %k, %t, %step; and.b32 %k, %k, 3;",
            "not.b32 %t, %j; add.u32 %t, %t, %n; shr.u32 %k, %t, 4; and.b32 %k, %k, 3;",
            "sub.u32 %t, %n, %j; shr.s32 %k, %t, 5; and.b32 %k, %k, 3;",
            "sub.u32 %t, %n, %j; div.s32 %k, %t, %step; and.b32 %k, %k, 3;",
            "and.b32 %k, %hash, 3;",
            "shr.u32 %k, %me, 4; and.b32 %k, %k, 3;",
            "and.b32 %k, %row, 3;",
        ]);
        self.line(turns);
        self.line(&format!("setp.eq.u32 %p, %k, 0; @%p bra B{n};"));
        self.pointer("%a", unsigned);
        self.line(&format!("mul.wide.u32 %by, {step}, 4;"));
        self.line(&format!("A{n}:"));
        self.access("%a", "");
        self.line(&format!(
            "add.u32 %j, %j, {step}; add.u64 %a, %a, %by; sub.u32 %k, %k, 1;
            setp.ne.u32 %p, %k, 0; @%p bra A{n};
            B{n}:"
        ));
        let asks = match self.random.below(3) {
            0 => format!("setp.lt.u32 %p, %t, 96; @%p bra D{n};"),
            _ => format!("setp.ge.{sign} %p, %j, %n; @%p bra D{n};"),
        };
        self.line(&asks);
        self.pointer("%b", unsigned);
        if self.random.below(3) == 0 {
            self.line("add.u64 %q, %b, 64;");
        }
        self.line(&format!("mul.wide.u32 %c, {step}, 8; C{n}:"));
        for offset in ["", "+32", "+64"] {
            if offset.is_empty() || self.random.below(3) > 0 {
                self.access("%b", offset);
            }
        }
        self.line(&format!(
            "mad.lo.u32 %j, {step}, 2, %j; add.u64 %b, %b, %c;
            setp.lt.{sign} %p, %j, %n; @%p bra C{n};
            D{n}:"
        ));
        // What the loops leave.
        if self.random.below(2) == 0 {
            self.line("mad.lo.u32 %sum, %sum, 31, %j;");
        }
        if self.random.below(6) == 0 {
            // A pointer that nothing was written to is 0, wherever the buffer lies.
            self.line(
                "cvt.u32.u64 %t, %b; sub.u32 %t, %t, %low; setp.ne.u64 %p, %b, 0;
                selp.b32 %t, %t, 0, %p; xor.b32 %sum, %sum, %t;",
            );
        }
    }

    /// The address of an element.
    fn pointer(&mut self, to: &str, unsigned: bool) {
        let (sign, other) = if unsigned {
            ("u32", "u64")
        } else {
            ("s32", "s64")
        };
        let text = match self.random.below(4) {
            0 => format!("mad.wide.{sign} {to}, %j, 4, %all;"),
            1 => format!(
                "cvt.{other}.{sign} {to}, %j; shl.b64 {to}, {to}, 2; add.u64 {to}, {to}, %all;"
            ),
            _ => format!("mul.wide.{sign} {to}, %j, 4; add.u64 {to}, {to}, %all;"),
        };
        self.line(&text);
    }

    /// What is done with an element.
    fn access(&mut self, at: &str, offset: &str) {
        self.line(&format!("ld.global.u32 %v, [{at}{offset}];"));
        match self.random.below(5) {
            0 => self.line(
                "and.b32 %v, %v, 1023; mul.wide.u32 %q, %v, 4; add.u64 %q, %q, %all;
                ld.global.u32 %v, [%q];",
            ),
            1 => self.line("st.global.u32 [%own+4], %v;"),
            2 => self.line("setp.gt.u32 %p1, %v, 0x40000000; @%p1 xor.b32 %sum, %sum, 5;"),
            _ => {}
        }
        self.line("mad.lo.u32 %sum, %sum, 31, %v;");
        // The same in all threads, written where some may be by themselves.
        match self.random.below(4) {
            0 => self.line("add.u32 %u, %u, 1;"),
            1 => self.line("mad.lo.u32 %w, %step, 3, 5;"),
            _ => {}
        }
    }

    /// Something between loops.
    fn between(&mut self) {
        match self.random.below(6) {
            0 => self.line("bar.sync 0;"),
            1 if self.warps => self.line(
                "shfl.sync.down.b32 %t, %sum, 4, 31, -1; add.u32 %sum, %sum, %t;
                shfl.sync.bfly.b32 %t, %sum, 1, 31, -1; add.u32 %sum, %sum, %t;",
            ),
            2 => self.line("bar.sync 0; st.shared.u32 [%tile], %sum; bar.sync 0;"),
            3 => self.line("mad.lo.u32 %hash, %hash, 1103515245, 12345;"),
            _ => {}
        }
    }
}

fn kernel(random: &mut Random, warps: bool) -> String {
    let wild = random.below(8) == 0;
    let mut writer = Writer {
        random,
        text: String::new(),
        names: 0,
        warps,
        wild,
    };
    for _ in 0..1 + writer.random.below(3) {
        writer.unrolled();
        writer.between();
    }
    // Whether there is another form is a matter of the number of steps.
    for _ in 0..writer.random.below(8) {
        writer.line("add.u32 %sum, %sum, 1;");
    }
    writer.line("mad.lo.u32 %sum, %sum, 31, %u; mad.lo.u32 %sum, %sum, 31, %w;");
    let text = writer.text;
    harness::module(&format!(
        ".visible .entry k(.param .u64 all, .param .u64 mine)
        {{
            .reg .b32 %j<4>, %n<4>, %k<4>, %t<4>, %t, %v, %sum, %me, %lane, %row, %hash, %step, %x, %low, %tile, %u, %w;
            .reg .b64 %all, %own, %a<4>, %b<4>, %c<4>, %by<4>, %q;
            .reg .pred %p, %p1;
            .shared .align 4 .b8 tile[4096];
            ld.param.u64 %all, [all];
            ld.param.u64 %own, [mine];
            mov.u32 %me, %tid.x; mov.u32 %step, %ntid.x; mov.u32 %x, %ctaid.x;
            mad.lo.u32 %x, %x, %step, %me;
            mad.wide.u32 %own, %x, {}, %own;
            mov.u32 %tile, tile; mad.lo.u32 %tile, %me, 4, %tile;
            and.b32 %lane, %me, 31; shr.u32 %t, %x, 5;
            mul.wide.u32 %q, %t, 4; add.u64 %q, %q, %all; ld.global.u32 %row, [%q];
            and.b32 %row, %row, 63;
            mul.lo.u32 %hash, %x, 0x9e3779b9; shr.u32 %hash, %hash, 9;
            cvt.u32.u64 %low, %all; mov.u32 %sum, 0; mov.u32 %u, 0; mov.u32 %w, 0;
            {text}
            st.global.u32 [%own], %sum;
            ret;
        }}",
        OWN * 4
    ))
}

const BLOCKS: u32 = 2;

/// What a launch leaves behind.
fn outcome(module: &Arc<Module>, threads: u32) -> Left {
    let mut all: Vec<u32> = (0..WORDS as u32)
        .map(|n| n.wrapping_mul(0x9e37_79b9))
        .collect();
    let mut own = vec![0u32; (BLOCKS * threads) as usize * OWN];
    let buffers: &mut [&mut [u8]] = &mut [buffer(&mut all), buffer(&mut own)];
    let (grid, block) = ([BLOCKS, 1, 1], [threads, 1, 1]);
    let result = harness::run_in(module, "k", grid, block, 0, buffers, &[]);
    left(result, own)
}

#[test]
fn unrolled_loops_do_the_same_in_vectors() {
    let cases = setting("SOFTCUDA_FUZZ_CASES").map_or(DEFAULT_CASES, |cases| cases / SHARE);
    run_cases(cases, |_, random, _| {
        let threads = [8, 20, 32, 40, 64, 96, 128][random.below(7)];
        let both = Both::of(kernel(random, threads % 32 == 0));
        let what = format!("{threads} threads");
        both.do_the_same(what, |module| outcome(module, threads))?;
        Ok(())
    });
}
