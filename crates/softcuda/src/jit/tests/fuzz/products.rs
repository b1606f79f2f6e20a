//! Random kernels with more sums of products than there are vector registers, in vectors and thread
//! by thread: both leave the same bytes. Sums may be needed early, be factors of others, or begin
//! late; what is multiplied comes from memory, or is computed on the way.

use std::fmt::Write as _;
use std::sync::Arc;

use super::both::{Both, Left, left};
use super::{Random, run_cases, setting};
use crate::jit::harness::{self, buffer};
use crate::jit::module::Module;

/// Cases of a plain `cargo test`, and of a whole run the part that is run here.
const DEFAULT_CASES: u64 = 60;
const SHARE: u64 = 5;
/// Words of the buffer that all threads read, and of that which each writes.
const WORDS: usize = 1024;
const OWN: usize = 8;

struct Writer<'a> {
    random: &'a mut Random,
    text: String,
    ty: &'static str,
    bytes: usize,
    /// Registers: `%s` are sums, `%a` factors.
    sums: usize,
    factors: usize,
    words: usize,
}

impl Writer<'_> {
    fn line(&mut self, text: &str) {
        writeln!(self.text, "{text}").expect("text takes text");
    }

    fn sum(&mut self) -> usize {
        self.random.below(self.sums)
    }

    fn factor(&mut self) -> usize {
        self.random.below(self.factors)
    }

    /// Loads a factor: one for all threads, or one for each.
    fn load(&mut self, to: usize) {
        let (ty, bytes) = (self.ty, self.bytes);
        self.words += 1;
        let at = self.words * bytes;
        let from = match self.random.below(3) {
            0 => "%all",
            _ => "%mine",
        };
        self.line(&format!("ld.global.{ty} %a{to}, [{from}+{at}];"));
    }

    /// Products of rows and columns, or of any two factors.
    fn products(&mut self, turns: usize) {
        let ty = self.ty;
        let columns = 1 + self.random.below(5);
        let in_tiles = self.random.below(4) != 0;
        for turn in 0..turns {
            for sum in 0..self.sums {
                if self.random.below(24) == 0 {
                    continue; // not all are of one length
                }
                let (a, b) = match in_tiles {
                    true => (
                        (turn * 7 + sum / columns) % self.factors,
                        (turn * 5 + sum % columns + self.factors / 2) % self.factors,
                    ),
                    false => (self.factor(), self.factor()),
                };
                self.line(&format!("fma.rn.{ty} %s{sum}, %a{a}, %a{b}, %s{sum};"));
                if self.random.below(40) == 0 {
                    self.other();
                }
            }
            if self.random.below(3) == 0 {
                let to = self.factor();
                self.load(to);
            }
        }
    }

    /// What comes in between.
    fn other(&mut self) {
        let ty = self.ty;
        let (sum, other, factor) = (self.sum(), self.sum(), self.factor());
        let again = self.factor();
        let text = match self.random.below(7) {
            0 => format!("mul.{ty} %a{factor}, %s{sum}, %a{again};"),
            1 => format!("add.{ty} %s{sum}, %s{sum}, %s{other};"),
            2 => format!("fma.rn.{ty} %s{sum}, %s{other}, %a{factor}, %s{sum};"),
            3 => format!("fma.rn.{ty} %s{sum}, %a{factor}, %a{again}, %s{other};"),
            4 => format!("st.global.{ty} [%own+8], %s{sum};"),
            5 => format!("mov.{ty} %s{sum}, %a{factor};"),
            _ => format!("neg.{ty} %a{factor}, %a{again};"),
        };
        self.line(&text);
    }
}

fn kernel(random: &mut Random) -> String {
    let is_double = random.below(4) == 0;
    let (ty, bytes) = if is_double { ("f64", 8) } else { ("f32", 4) };
    let sums = 3 + random.below(24);
    let factors = 4 + random.below(12);
    let mut writer = Writer {
        random,
        text: String::new(),
        ty,
        bytes,
        sums,
        factors,
        words: 0,
    };
    for sum in 0..sums {
        writer.line(&format!("mov.{ty} %s{sum}, %zero;"));
    }
    for factor in 0..factors {
        writer.load(factor);
    }
    let in_loop = writer.random.below(2) == 0;
    if in_loop {
        writer.line("mov.u32 %k, 0; again:");
    }
    let turns = 2 + writer.random.below(8);
    writer.products(turns);
    if in_loop {
        writer.line("add.u32 %k, %k, 1; setp.lt.u32 %p, %k, 3; @%p bra again;");
    }
    if writer.random.below(2) == 0 {
        writer.line("bar.sync 0;");
    }
    for sum in 0..sums {
        writer.line(&format!(
            "mov.b{} %bits, %s{sum}; mad.lo.u{} %hash, %hash, 31, %bits;",
            8 * bytes,
            8 * bytes
        ));
    }
    let text = writer.text;
    let bits = 8 * bytes;
    harness::module(&format!(
        ".visible .entry k(.param .u64 all, .param .u64 mine)
        {{
            .reg .{ty} %s<32>, %a<32>, %zero; .reg .b{bits} %bits, %hash; .reg .b32 %me, %k;
            .reg .b64 %all, %mine, %own; .reg .pred %p;
            ld.param.u64 %all, [all]; ld.param.u64 %own, [mine];
            mov.u32 %me, %tid.x; mov.u{bits} %hash, 0; mov.b{bits} %zero, %hash;
            mad.wide.u32 %own, %me, {}, %own; mad.wide.u32 %mine, %me, {bytes}, %all;
            {text}
            st.global.b{bits} [%own], %hash;
            ret;
        }}",
        OWN * 4
    ))
}

/// What a launch leaves behind. Some numbers are not finite.
fn outcome(module: &Arc<Module>, threads: u32, small: bool) -> Left {
    let number = |n: u32| match small {
        true => ((n.wrapping_mul(0x9e37_79b9) >> 28) as f32 - 7.5).to_bits(),
        false => n.wrapping_mul(0x9e37_79b9),
    };
    let mut all: Vec<u32> = (0..WORDS as u32).map(number).collect();
    let mut own = vec![0u32; threads as usize * OWN];
    let buffers: &mut [&mut [u8]] = &mut [buffer(&mut all), buffer(&mut own)];
    let result = harness::run_in(module, "k", [1; 3], [threads, 1, 1], 0, buffers, &[]);
    left(result, own)
}

#[test]
fn sums_of_products_are_the_same_in_tiles() {
    let cases = setting("SOFTCUDA_FUZZ_CASES").map_or(DEFAULT_CASES, |cases| cases / SHARE);
    run_cases(cases, |_, random, _| {
        let both = Both::of(kernel(random));
        for threads in [8, 32, 40, 64] {
            for small in [true, false] {
                let what = format!("{threads} threads, small numbers: {small}");
                both.do_the_same(what, |module| outcome(module, threads, small))?;
            }
        }
        Ok(())
    });
}
