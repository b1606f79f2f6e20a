//! Random kernels whose threads need nothing of each other, run in vectors and thread by thread:
//! both leave the same bytes, and the same fault.
//!
//! Values of all widths, predicates, guards, branches and loops that threads leave one by one, and
//! memory at addresses that are the same, side by side, apart, or anywhere; now and then outside.

use std::fmt::Write as _;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use super::both::{Both, Left, left};
use super::{Random, run_cases, setting};
use crate::jit::harness::{self, buffer};
use crate::jit::module::Module;

/// Cases of a plain `cargo test`, and of a whole run the part that is run here.
const DEFAULT_CASES: u64 = 100;
const SHARE: u64 = 5;
/// Registers of each type.
const EACH: usize = 4;
/// Words of the buffer that all threads read, and of that which each writes.
const WORDS: usize = 256;
const OWN: usize = 8;

struct Writer<'a> {
    random: &'a mut Random,
    text: String,
    names: usize,
    left: usize,
    /// Accesses may be outside.
    wild: bool,
}

impl Writer<'_> {
    fn line(&mut self, text: &str) {
        writeln!(self.text, "{text}").expect("text takes text");
    }

    fn name(&mut self) -> usize {
        self.names += 1;
        self.names
    }

    fn register(&mut self, kind: &str) -> String {
        format!("%{kind}{}", self.random.below(EACH))
    }

    fn pick<'a>(&mut self, list: &[&'a str]) -> &'a str {
        list[self.random.below(list.len())]
    }

    fn guard(&mut self) -> String {
        match self.random.below(4) {
            0 => format!("@{} ", self.register("p")),
            1 => format!("@!{} ", self.register("p")),
            _ => String::new(),
        }
    }

    fn words(&mut self) {
        let [to, a, b, c] = [(); 4].map(|()| self.register("r"));
        let number = [0, 1, 3, 4, 31, 33, 1000, -7][self.random.below(8)];
        let amount = self.random.below(35);
        let guard = self.guard();
        let op = self.pick(&[
            "add.s32",
            "sub.s32",
            "and.b32",
            "or.b32",
            "xor.b32",
            "min.s32",
            "max.u32",
            "mul.lo.s32",
            "mul.hi.u32",
            "min.u32",
            "max.s32",
            "div.u32",
            "rem.s32",
        ]);
        let shift = self.pick(&["shl.b32", "shr.u32", "shr.s32"]);
        let one = self.pick(&[
            "abs.s32", "neg.s32", "not.b32", "popc.b32", "clz.b32", "brev.b32",
        ]);
        let (from, bits) = (self.random.below(34), self.random.below(34));
        let selector = self.random.below(0x10000) & [0xffff, 0x7777][self.random.below(2)];
        let [sign, other] = [(); 2].map(|()| self.pick(&["s32", "u32"]));
        let text = match self.random.below(13) {
            12 => match self.random.below(2) {
                0 => format!("mad.hi.{sign} {to}, {a}, {b}, {c};"),
                _ => {
                    let way = self.pick(&["l.wrap", "r.wrap", "l.clamp", "r.clamp"]);
                    format!("shf.{way}.b32 {to}, {a}, {b}, {amount};")
                }
            },
            8 => format!("bfe.{sign} {to}, {a}, {from}, {bits};"),
            9 => format!("bfi.b32 {to}, {a}, {b}, {from}, {bits};"),
            10 => format!("prmt.b32 {to}, {a}, {b}, {selector};"),
            11 => match self.random.below(2) {
                0 => format!("dp4a.{sign}.{other} {to}, {a}, {b}, {c};"),
                _ => format!("dp2a.hi.{sign}.{other} {to}, {a}, {b}, {c};"),
            },
            0 => format!("{op} {to}, {a}, {number};"),
            1 | 2 => format!("{op} {to}, {a}, {b};"),
            3 => format!("mad.lo.s32 {to}, {a}, {number}, {b};"),
            4 => format!("{shift} {to}, {a}, {amount};"),
            5 => format!("{one} {to}, {a};"),
            6 => format!("selp.b32 {to}, {a}, {b}, {};", self.register("p")),
            _ => format!("lop3.b32 {to}, {a}, {b}, {c}, {};", self.random.below(256)),
        };
        self.line(&format!("{guard}{text}"));
    }

    fn floats(&mut self) {
        let (f, ty) = match self.random.below(3) {
            0 => ("d", "f64"),
            _ => ("f", "f32"),
        };
        let [to, a, b, c] = [(); 4].map(|()| self.register(f));
        let guard = self.guard();
        let op = self.pick(&["add", "sub", "mul", "min", "max", "div.rn"]);
        let flush = match (ty, self.random.below(4)) {
            ("f32", 0) => ".ftz",
            _ => "",
        };
        let text = match self.random.below(8) {
            7 => format!("copysign.{ty} {to}, {a}, {b};"),
            0..=2 => format!("{op}{flush}.{ty} {to}, {a}, {b};"),
            3 => format!("fma.rn{flush}.{ty} {to}, {a}, {b}, {c};"),
            4 => format!("neg.{ty} {to}, {a};"),
            5 => format!("selp.{ty} {to}, {a}, {b}, {};", self.register("p")),
            _ => format!("sqrt.rn.{ty} {to}, {a};"),
        };
        self.line(&format!("{guard}{text}"));
    }

    fn conversions(&mut self) {
        let guard = self.guard();
        let (r, f, d, q, h) = (
            self.register("r"),
            self.register("f"),
            self.register("d"),
            self.register("q"),
            self.register("h"),
        );
        let text = match self.random.below(13) {
            0 => format!("cvt.rn.f32.s32 {f}, {r};"),
            1 => format!("cvt.rn.f32.u32 {f}, {r};"),
            2 => format!("cvt.rzi.s32.f32 {r}, {f};"),
            3 => format!("cvt.f64.f32 {d}, {f};"),
            4 => format!("cvt.rn.f32.f64 {f}, {d};"),
            5 => format!("cvt.s64.s32 {q}, {r};"),
            6 => format!("cvt.u64.u32 {q}, {r};"),
            7 => format!("cvt.u32.u64 {r}, {q};"),
            8 => format!("cvt.u16.u32 {h}, {r};"),
            9 => format!("cvt.s32.s16 {r}, {h};"),
            10 => format!("mov.b32 {r}, {f};"),
            11 => format!("mov.b32 {f}, {r};"),
            _ => format!("cvt.rzi.s64.f64 {q}, {d};"),
        };
        self.line(&format!("{guard}{text}"));
    }

    /// Values of 16 bits, alone and in pairs, as integers and as floats.
    fn shorts(&mut self) {
        let guard = self.guard();
        let [to, a, b, c] = [(); 4].map(|()| self.register("h"));
        let [pair, x, y, z] = [(); 4].map(|()| self.register("r"));
        let f = self.register("f");
        let sign = self.pick(&["s16", "u16"]);
        let half = self.pick(&["f16", "bf16"]);
        let number = [0, 1, 5, 255, -1, -300, 0x7fff][self.random.below(7)];
        let op = self.pick(&["add", "sub", "mul.lo", "min", "max"]);
        let float = self.pick(&["add", "sub", "mul", "min", "max"]);
        let one = self.pick(&["neg", "abs"]);
        let logic = self.pick(&["and", "or", "xor"]);
        let amount = self.random.below(19);
        let (small, large) = (
            self.pick(&["u8", "s8", "u16", "s16"]),
            self.pick(&["u8", "s8", "u16", "s16", "u32", "s32"]),
        );
        let (of_small, of_large) = match large {
            "u32" | "s32" => (&a, &x),
            _ => (&a, &b),
        };
        let round = self.pick(&["rni", "rzi", "rmi", "rpi"]);
        let text = match self.random.below(26) {
            0 => format!("{op}.{sign} {to}, {a}, {b};"),
            1 => format!("{op}.{sign} {to}, {a}, {number};"),
            2 => format!("{one}.s16 {to}, {a};"),
            3 => format!("{logic}.b16 {to}, {a}, {b};"),
            4 => format!("not.b16 {to}, {a};"),
            5 => format!("shl.b16 {to}, {a}, {amount};"),
            6 => format!("shr.{sign} {to}, {a}, {amount};"),
            7 => format!("mad.lo.{sign} {to}, {a}, {b}, {c};"),
            8 => format!(
                "setp.{}.{sign} {}, {a}, {b};",
                self.pick(&["eq", "ne", "lt", "le", "gt", "ge"]),
                self.register("p")
            ),
            9 => format!("selp.b16 {to}, {a}, {b}, {};", self.register("p")),
            10 => format!("cvt.{small}.{large} {to}, {of_large};"),
            11 => format!("cvt.{large}.{small} {of_large}, {of_small};"),
            12 => format!("cvt.{small}.s32 {pair}, {x};"),
            13 => format!("mov.b32 {pair}, {{{a}, {b}}};"),
            14 if to != c => format!("mov.b32 {{{to}, {c}}}, {x};"),
            14 => format!("mov.b16 {to}, {a};"),
            15 => format!("{float}.{half} {to}, {a}, {b};"),
            16 => format!("{float}.{half}x2 {pair}, {x}, {y};"),
            17 => format!("fma.rn.{half} {to}, {a}, {b}, {c};"),
            18 => format!("fma.rn.relu.{half}x2 {pair}, {x}, {y}, {z};"),
            19 => format!("{one}.{half}x2 {pair}, {x};"),
            20 => format!("cvt.f32.{half} {f}, {a};"),
            21 => format!("cvt.rn.{half}.f32 {to}, {f};"),
            22 => format!("cvt.rn.{half}x2.f32 {pair}, {f}, {};", self.register("f")),
            23 => format!("cvt.rn.f32.{small} {f}, {a};"),
            24 => format!("cvt.{round}.{large}.f32 {of_large}, {f};"),
            _ => format!("cvt.{round}.{small}.{half} {to}, {a};"),
        };
        // To and from bytes, `.bf16` is converted in registers of 8 bits.
        let text = match text.ends_with("8.bf16") || text.contains("8.bf16 ") {
            true => format!("cvt.u16.u32 {to}, {x};"),
            false => text,
        };
        self.line(&format!("{guard}{text}"));
    }

    fn longs(&mut self) {
        let [to, a, b] = [(); 3].map(|()| self.register("q"));
        let r = self.register("r");
        let guard = self.guard();
        let text = match self.random.below(6) {
            0 => format!("add.s64 {to}, {a}, {b};"),
            1 => format!("mul.wide.s32 {to}, {r}, 12;"),
            2 => format!("mul.wide.u32 {to}, {r}, 7;"),
            3 => format!("shl.b64 {to}, {a}, 3;"),
            4 => format!("sub.s64 {to}, {a}, {b};"),
            _ => format!("mad.wide.u32 {to}, {r}, 3, {a};"),
        };
        self.line(&format!("{guard}{text}"));
    }

    fn predicates(&mut self) {
        let [p, q] = [(); 2].map(|()| self.register("p"));
        let cmp = self.pick(&["eq", "ne", "lt", "le", "gt", "ge"]);
        let unordered = self.pick(&["equ", "neu", "ltu", "num", "nan", "eq", "ne", "ge"]);
        let number = self.random.below(40);
        let text = match self.random.below(7) {
            0 => format!("setp.{cmp}.s32 {p}, {}, {number};", self.register("r")),
            1 => format!(
                "setp.{cmp}.u32 {p}, {}, {};",
                self.register("r"),
                self.register("r")
            ),
            2 => format!(
                "setp.{unordered}.f32 {p}, {}, {};",
                self.register("f"),
                self.register("f")
            ),
            3 => format!(
                "setp.{unordered}.f64 {p}, {}, {};",
                self.register("d"),
                self.register("d")
            ),
            4 => format!(
                "setp.{cmp}.s64 {p}, {}, {};",
                self.register("q"),
                self.register("q")
            ),
            5 => format!("and.pred {p}, {p}, {q};"),
            _ => format!("not.pred {p}, {q};"),
        };
        let guard = self.guard();
        self.line(&format!("{guard}{text}"));
    }

    /// An address in the words that all read: the same in all threads, side by side, apart, or
    /// anywhere.
    fn address(&mut self, bytes: usize) {
        let words = WORDS * 4 / bytes;
        let r = self.register("r");
        match self.random.below(4) {
            0 => {
                let word = self.random.below(words - 8);
                self.line(&format!("mov.u32 %t, {word};"));
            }
            1 => self.line(&format!(
                "rem.u32 %t, %x, {}; add.u32 %t, %t, 3;",
                words - 8
            )),
            2 => self.line("and.b32 %t, %x, 31; mul.lo.u32 %t, %t, 3; and.b32 %t, %t, 63;"),
            _ => self.line(&format!("and.b32 %t, {r}, {};", (words - 1) & 63)),
        }
        if self.random.below(3) == 0 {
            // Without what hides that it is side by side.
            self.line(
                "mov.u32 %t, %tid.x; and.b32 %t2, %t, 1; sub.u32 %t, %t, %t2; add.u32 %t, %t, %t2;",
            );
            let most = 32;
            self.line(&format!("min.u32 %t, %t, {most};"));
        }
        if self.wild && self.random.below(20) == 0 {
            let who = self.random.below(64);
            self.line(&format!(
                "setp.eq.u32 %pt, %x, {who}; @%pt add.u32 %t, %t, 0x100000;"
            ));
        }
        let from = self.pick(&["%all", "%all", "%own"]);
        match from {
            "%own" => self.line("mov.u64 %at, %own;"),
            _ => self.line(&format!(
                "mul.wide.u32 %at, %t, {bytes}; add.s64 %at, %all, %at;"
            )),
        }
    }

    fn memory(&mut self) {
        let (kind, ty, bytes) = [
            ("r", "u32", 4),
            ("f", "f32", 4),
            ("d", "f64", 8),
            ("q", "u64", 8),
            ("h", "u16", 2),
            ("h", "s16", 2),
            ("h", "u8", 1),
            ("h", "s8", 1),
            ("r", "s8", 1),
            ("r", "u8", 1),
            ("r", "s16", 2),
            ("r", "u16", 2),
        ][self.random.below(11)];
        let register = self.register(kind);
        let guard = self.guard();
        match self.random.below(5) {
            0 | 1 => {
                self.address(bytes);
                self.line(&format!("{guard}ld.global.{ty} {register}, [%at];"));
            }
            2 => {
                let offset = self.random.below(OWN * 4 / bytes) * bytes;
                self.line(&format!(
                    "{guard}st.global.{ty} [%own+{offset}], {register};"
                ));
            }
            3 => {
                let other = self.register("r");
                let register = self.register("r");
                self.line(&format!(
                    "{guard}ld.global.v2.u32 {{{register}, {other}}}, [%own+8];"
                ));
            }
            _ => {
                let register = self.register("f");
                let slot = self.random.below(2) * 4;
                self.line(&format!("{guard}st.shared.f32 [%tile+{slot}], {register};"));
                let other = self.register("f");
                self.line(&format!("ld.shared.f32 {other}, [%tile+{slot}];"));
            }
        }
    }

    /// Parts of words, kinds of handles.
    fn video(&mut self) {
        let guard = self.guard();
        let [to, a, b, c] = [(); 4].map(|()| self.register("r"));
        let sign = self.pick(&["s32", "u32"]);
        let [part, other] = [(); 2].map(|()| self.pick(&["", ".b0", ".b3", ".h0", ".h1"]));
        let op = self.pick(&["vadd", "vsub", "vmin", "vmax", "vabsdiff"]);
        let cmp = self.pick(&["eq", "lt", "ge"]);
        let text = match self.random.below(6) {
            0 => format!("{op}.{sign}.{sign}.s32 {to}, {a}{part}, {b}{other};"),
            1 => format!("{op}.s32.{sign}.u32.sat.add {to}, {a}{part}, {b}{other}, {c};"),
            2 => format!("vset.{sign}.u32.{cmp} {to}, {a}{part}, {b}{other};"),
            3 => format!("vmad.{sign}.{sign}.{sign} {to}, {a}{part}, {b}{other}, {c};"),
            4 => format!("v{}4.u32.u32.u32.add {to}, {a}, {b}, {c};", &op[1..]),
            _ => format!(
                "istypep.{} {}, {};",
                self.pick(&["texref", "samplerref", "surfref"]),
                self.register("p"),
                self.register("q")
            ),
        };
        self.line(&format!("{guard}{text}"));
    }

    /// Memory by asynchronous copies, in whole vectors, and by compare-and-swaps that are done
    /// again.
    fn memory_of_today(&mut self) {
        let guard = self.guard();
        match self.random.below(4) {
            0 | 1 => {
                let bytes = [4, 8][self.random.below(2)];
                self.address(bytes);
                let part = match self.random.below(3) {
                    0 => format!(", {}", self.random.below(bytes + 1)),
                    1 => format!(", {}", self.register("p")),
                    _ => String::new(),
                };
                self.line(&format!(
                    "{guard}cp.async.ca.shared.global [%tile], [%at], {bytes}{part};"
                ));
                let wait = match self.random.below(2) {
                    0 => "cp.async.wait_all;",
                    _ => "cp.async.commit_group; cp.async.wait_group 0;",
                };
                self.line(wait);
                let to = self.register("r");
                self.line(&format!("ld.shared.u32 {to}, [%tile];"));
            }
            2 => {
                let how = self.pick(&["relaxed.gpu", "acquire.sys", "relaxed.cta"]);
                let [to, other] = [(); 2].map(|()| self.register("q"));
                self.line(&format!(
                    "{guard}ld.{how}.global.b128 %z, [%own+16]; mov.b128 {{{to}, {other}}}, %z;"
                ));
            }
            _ => {
                let (n, word) = (self.name(), 16 + 4 * self.random.below(2));
                let what = self.pick(&["add.u32", "xor.b32", "max.s32"]);
                let by = self.register("r");
                self.line(&format!(
                    ".reg .pred %c{n}; ld.global.u32 %t, [%own+{word}]; retry{n}: mov.b32 %w, %t;
                    {what} %t2, %w, {by}; atom.global.cas.b32 %t, [%own+{word}], %w, %t2;
                    setp.ne.u32 %c{n}, %t, %w; @%c{n} bra retry{n};"
                ));
            }
        }
    }

    fn branch(&mut self, depth: usize) {
        let (n, p) = (self.name(), self.register("p"));
        match self.random.below(4) {
            0 => {
                self.line(&format!("@{p} bra over{n};"));
                self.block(depth + 1);
                self.line(&format!("over{n}:"));
            }
            1 => {
                self.line(&format!("@!{p} bra other{n};"));
                self.block(depth + 1);
                self.line(&format!("bra.uni met{n}; other{n}:"));
                self.block(depth + 1);
                self.line(&format!("met{n}:"));
            }
            2 => {
                // So many turns as a register says, or a number.
                let turns = match self.random.below(2) {
                    0 => format!("and.b32 %n{n}, {}, 3;", self.register("r")),
                    _ => format!("mov.u32 %n{n}, {};", self.random.below(4)),
                };
                self.line(&format!(
                    ".reg .b32 %n{n}; .reg .pred %e{n}; {turns} again{n}:"
                ));
                self.block(depth + 1);
                self.line(&format!(
                    "setp.eq.u32 %e{n}, %n{n}, 0; sub.u32 %n{n}, %n{n}, 1; @!%e{n} bra again{n};"
                ));
            }
            _ => self.line(&format!("@{p} bra end;")),
        }
    }

    fn block(&mut self, depth: usize) {
        for _ in 0..1 + self.random.below(6) {
            if self.left == 0 {
                return;
            }
            self.left -= 1;
            match self.random.below(22) {
                16 | 17 => self.memory_of_today(),
                18 => self.video(),
                19..=21 => self.shorts(),
                0..=3 => self.words(),
                4..=6 => self.floats(),
                7 => self.conversions(),
                8 => self.longs(),
                9 | 10 => self.predicates(),
                11..=13 => self.memory(),
                _ if depth < 4 => self.branch(depth),
                _ => self.words(),
            }
        }
    }
}

/// A kernel for so many elements: one for each thread, or as many turns over the grid as it takes.
fn kernel(random: &mut Random, elements: u32, over_the_grid: bool) -> String {
    let wild = random.below(4) == 0;
    let left = 10 + random.below(60);
    let mut writer = Writer {
        random,
        text: String::new(),
        names: 0,
        left,
        wild,
    };
    while writer.left > 0 {
        writer.block(0);
    }
    let text = writer.text;
    let mut ends = String::new();
    for n in 0..EACH {
        let _ = writeln!(
            ends,
            "mad.lo.u32 %sum, %sum, 31, %r{n}; mov.b32 %t, %f{n}; mad.lo.u32 %sum, %sum, 31, %t;
            setp.nan.f64 %pt, %d{n}, %d{n}; @%pt mov.f64 %d{n}, 0d0000000000000000;
            mov.b64 {{%t, %t2}}, %d{n}; xor.b32 %sum, %sum, %t; mad.lo.u32 %sum, %sum, 31, %t2;
            mov.b64 {{%t, %t2}}, %q{n}; mad.lo.u32 %sum, %sum, 31, %t; xor.b32 %sum, %sum, %t2;
            selp.u32 %t, 5, 9, %p{n}; mad.lo.u32 %sum, %sum, 31, %t;
            cvt.u32.u16 %t, %h{n}; mad.lo.u32 %sum, %sum, 31, %t;"
        );
    }
    let (begin, again) = match over_the_grid {
        false => (String::new(), String::new()),
        true => (
            format!(
                "mov.u32 %b3, %nctaid.x; mul.lo.u32 %step, %b3, %b1;
                setp.ge.u32 %turn, %x, {elements}; @%turn bra none;
                again: mov.u32 %t, 0; mov.u32 %t2, %ntid.x; mov.u32 %w, %tid.x;
                mov.f32 %f3, 0f00000000; mov.f64 %d2, 0d0000000000000000; mov.f64 %d3, %d2;
                mov.u64 %q2, 0; mov.u64 %q3, 0; setp.eq.u32 %p3, %t, 1;
                mov.u16 %h0, 0; mov.u16 %h1, 0; mov.u16 %h2, 0; mov.u16 %h3, 0;"
            ),
            format!(
                "add.u32 %x, %x, %step; setp.lt.u32 %turn, %x, {elements}; @%turn bra again; none:"
            ),
        ),
    };
    // A block that has no shared memory goes on beside others.
    let (tile, store) = match over_the_grid && !text.contains("%tile") {
        true => ("", ""),
        false => (
            ".shared .align 8 .b8 tile[8192]; mov.u32 %tile, tile; mad.lo.u32 %tile, %b2, 8, %tile;",
            "st.shared.v2.u32 [%tile], {%x, %w};",
        ),
    };
    harness::module(&format!(
        ".visible .entry k(.param .u64 all, .param .u64 mine)
        {{
            .reg .b32 %r<{EACH}>, %t, %t2, %x, %sum, %tile, %w, %step, %b<4>;
            .reg .f32 %f<{EACH}>;
            .reg .f64 %d<{EACH}>;
            .reg .b64 %q<{EACH}>, %all, %own, %at, %mine;
            .reg .b16 %h<{EACH}>;
            .reg .b128 %z;
            .reg .pred %p<{EACH}>, %pt, %turn;
            ld.param.u64 %all, [all];
            ld.param.u64 %mine, [mine];
            mov.u32 %b0, %ctaid.x; mov.u32 %b1, %ntid.x; mov.u32 %b2, %tid.x;
            mad.lo.u32 %x, %b0, %b1, %b2; mov.u32 %w, %tid.x; mov.u32 %t2, %ntid.x;
            {tile}
            {begin}
            {store}
            mad.wide.u32 %own, %x, {}, %mine;
            mov.u32 %r0, %x; mul.lo.u32 %r1, %x, 40503; shr.u32 %r2, %r1, 7; mov.u32 %r3, 5;
            cvt.rn.f32.u32 %f0, %x; mov.f32 %f1, 0f3fc00000; mov.b32 %f2, %r1;
            cvt.rn.f64.u32 %d0, %x; mov.f64 %d1, 0d3ff8000000000000;
            cvt.u64.u32 %q0, %r1; mov.u64 %q1, 77;
            setp.gt.u32 %p0, %r2, 300; setp.lt.u32 %p1, %w, 9; setp.ne.u32 %p2, %t2, 0;
            {text}
            end:
            mov.u32 %sum, 0;
            {ends}
            st.global.u32 [%own+28], %sum;
            {again}
            ret;
        }}",
        OWN * 4
    ))
}

const BLOCKS: u32 = 3;

/// What a launch leaves behind.
fn outcome(module: &Arc<Module>, threads: u32, elements: u32) -> Left {
    let mut all: Vec<u32> = (0..WORDS as u32)
        .map(|n| n.wrapping_mul(0x9e37_79b9))
        .collect();
    let mut own = vec![0u32; elements as usize * OWN];
    let buffers: &mut [&mut [u8]] = &mut [buffer(&mut all), buffer(&mut own)];
    let (grid, block) = ([BLOCKS, 1, 1], [threads, 1, 1]);
    let result = harness::run_in(module, "k", grid, block, 0, buffers, &[]);
    left(result, own)
}

#[test]
fn kernels_do_the_same_in_vectors() {
    let cases = setting("SOFTCUDA_FUZZ_CASES").map_or(DEFAULT_CASES, |cases| cases / SHARE);
    let alone = setting("SOFTCUDA_FUZZ_CASE").is_some();
    let faults = AtomicU64::new(0);
    run_cases(cases, |_, random, _| {
        let threads = [1, 4, 8, 20, 24, 32, 33, 64, 104][random.below(9)];
        let (all, over_the_grid) = (BLOCKS * threads, random.below(3) == 0);
        let elements = match over_the_grid {
            true => 2 * all + random.below(all as usize * 2) as u32,
            false => all,
        };
        let both = Both::of(kernel(random, elements, over_the_grid));
        let what = format!("{threads} threads");
        let fault = both.do_the_same(what, |module| outcome(module, threads, elements))?;
        faults.fetch_add(u64::from(fault), Ordering::Relaxed);
        Ok(())
    });
    let faults = faults.into_inner();
    println!("{cases} kernels in both forms, of which {faults} fault");
    assert!(alone || faults < cases / 2, "{faults} fault");
}
