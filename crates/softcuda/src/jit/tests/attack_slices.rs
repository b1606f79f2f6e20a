//! Attacks on runs of steps in slices, on groups whose numbers wrap, and on what groups are certain
//! of: random bodies, the same in all forms.

use std::fmt::Write as _;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use super::forms::{Outcome, difference, kernel, same};
use super::fuzz::{Random, run_cases, setting};
use crate::jit::harness::{self, buffer};
use crate::jit::module::{Form, Module};

/// Cases of a plain `cargo test`, and of a whole run the part that is run here.
const DEFAULT_CASES: u64 = 8;
const SHARE: u64 = 20;
/// Words of each buffer.
const WORDS: usize = 4096;
/// Registers of each kind.
const EACH: usize = 4;

const BLOCKS: [[u32; 3]; 10] = [
    [32, 1, 1],
    [64, 1, 1],
    [16, 3, 1],
    [24, 1, 1],
    [8, 1, 1],
    [20, 1, 1],
    [128, 1, 1],
    [32, 2, 2],
    [33, 1, 1],
    [8, 4, 1],
];

/// `%w` are words, `%e` floats, `%d` doubles, `%v` the bits of doubles, `%h` shorts, `%q`
/// predicates, all of which vary; `%u` words, `%c` a float and a double, `%o` predicates that are
/// the same in all threads; `%x` words that count up with the thread. `%rd10` is the thread's row
/// of four words in the second buffer, `%rd11` of two, `%rd12` of one, and `%r10` and `%r11` are
/// rows of eight and four in shared memory. Each is written once, so that it is known to count up.
const BEGIN: &str = "
    .reg .b32 %w<4>, %u<3>, %x<3>, %t<4>, %k, %y, %me; .reg .f32 %e<4>, %c0;
    .reg .f64 %d<4>, %c1; .reg .b64 %v<2>; .reg .b16 %h<4>; .reg .pred %q<4>, %o<2>, %more;
    mad.lo.u32 %y, %r33, %r32, %r30; mad.lo.u32 %me, %y, %r31, %r1;
    mul.wide.u32 %rd13, %me, 16; add.u64 %rd10, %rd13, %rd2;
    mul.wide.u32 %rd14, %me, 8; add.u64 %rd11, %rd14, %rd2;
    mul.wide.u32 %rd15, %me, 4; add.u64 %rd12, %rd15, %rd2;
    mov.u32 %r12, s; shl.b32 %r13, %me, 5; add.u32 %r10, %r13, %r12;
    shl.b32 %r14, %me, 4; add.u32 %r11, %r14, %r12;
    mul.lo.u32 %t0, %me, 40503; shr.u32 %t1, %t0, 3; mov.u32 %k, 0;
    st.shared.v4.u32 [%r10], {%me, %t0, %t0, %t1};
    st.shared.v4.u32 [%r10+16], {%t1, %me, %t0, %t1};\n";

/// What they hold at first.
const VALUES: &str = "
    mov.u32 %w0, %me; mul.lo.u32 %w1, %me, 40503; ld.global.u32 %w2, [%rd12+64];
    mov.u32 %w3, 5; mov.u32 %u0, %r3; mov.u32 %u1, 3; xor.b32 %u2, %r3, 0x55;
    mov.u32 %x0, %r1; mad.lo.u32 %x1, %r1, 3, %r3; sub.u32 %x2, 70, %r1;
    cvt.rn.f32.u32 %e0, %w0; mov.f32 %e1, 0f3FC00000; mov.b32 %e2, %w1; neg.f32 %e3, %e0;
    cvt.rn.f64.u32 %d0, %w1; mov.f64 %d1, 0d3FF8000000000000; neg.f64 %d2, %d0;
    add.f64 %d3, %d0, %d1; mov.b64 %v0, %d0; mov.b64 %v1, %d1;
    cvt.rn.f32.u32 %c0, %r3; cvt.f64.f32 %c1, %c0;
    cvt.u16.u32 %h0, %w1; cvt.u16.u32 %h1, %w0; mov.u16 %h2, 0x3c00; cvt.u16.u32 %h3, %w2;
    setp.gt.u32 %q0, %w1, 300000; setp.lt.u32 %q1, %w0, 9; setp.gt.f64 %q2, %d0, %d1;
    setp.ne.u32 %q3, %w3, 5; setp.eq.u32 %o0, %r3, 3; setp.ne.u32 %o1, %r3, 0;\n";

/// What bodies may do without: one of so many does.
const KINDS: [(&[&str], usize); 9] = [
    (&["%w3", "%e3", "%d3", "%h3", "%q3"], 2),
    (&["%w2", "%e2", "%d2", "%h2", "%q2"], 3),
    (&["%w"], 5),
    (&["%e"], 2),
    (&["%d", "%v"], 2),
    (&["%h", "16"], 2),
    (&["%q"], 4),
    (
        &[
            "div", "rem", "set.", "sat", "mul24", "brev", "clz", "{%t", "cvt", "mov.b64", ".v2.u16",
        ],
        2,
    ),
    (&["@"], 3),
];

struct Writer<'a> {
    random: &'a mut Random,
    text: String,
    waits: bool,
    /// Threads are apart: nothing is written that is the same in all.
    apart: bool,
    /// What no step is to contain.
    banned: Vec<&'static str>,
    names: usize,
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

    fn one(&mut self, kind: &str) -> String {
        let most = match kind {
            "u" | "x" => 3,
            "v" | "o" => 2,
            _ => EACH,
        };
        format!("%{kind}{}", self.below(most))
    }

    fn guard(&mut self) -> String {
        match self.below(9) {
            0 => format!("@{} ", self.one("q")),
            1 => format!("@!{} ", self.one("q")),
            2 if self.below(2) == 0 => format!("@{} ", self.one("o")),
            _ => String::new(),
        }
    }

    fn word(&mut self) -> String {
        match self.below(10) {
            0..=5 => self.one("w"),
            6 | 7 => self.one("u"),
            8 => self.one("x"),
            _ => self.pick(&["0", "1", "-7", "0x80000000", "31"]).to_owned(),
        }
    }

    fn predicate(&mut self) -> String {
        match self.below(5) {
            0 => self.one("o"),
            _ => self.one("q"),
        }
    }

    fn words(&mut self) {
        let (to, guard, a) = (self.one("w"), self.guard(), self.one("w"));
        let [b, c] = [(); 2].map(|()| self.word());
        let two = self.pick(&[
            "add.u32",
            "sub.s32",
            "and.b32",
            "or.b32",
            "xor.b32",
            "min.s32",
            "max.u32",
            "mul.lo.u32",
            "mul.hi.s32",
            "mul.hi.u32",
            "add.sat.s32",
            "mul24.lo.s32",
            "div.u32",
            "rem.s32",
            "shl.b32",
            "shr.s32",
            "set.lt.u32.s32",
            "add.f16x2",
            "mul.bf16x2",
            "add.s16x2",
        ]);
        let one = self.pick(&[
            "abs.s32", "neg.s32", "not.b32", "popc.b32", "clz.b32", "brev.b32",
        ]);
        let (from, bits) = (self.below(34), self.below(34));
        let text = match self.below(12) {
            0..=3 => format!("{two} {to}, {a}, {b};"),
            4 => format!("mad.lo.s32 {to}, {a}, {b}, {c};"),
            5 => format!("{one} {to}, {a};"),
            6 => format!("lop3.b32 {to}, {a}, {b}, {c}, {};", self.below(256)),
            7 => format!("selp.b32 {to}, {a}, {b}, {};", self.predicate()),
            8 => format!("prmt.b32 {to}, {a}, {b}, {};", self.below(0x10000)),
            9 => format!("bfe.s32 {to}, {a}, {from}, {bits};"),
            10 => format!("shf.l.wrap.b32 {to}, {a}, {b}, {from};"),
            _ => format!("slct.b32.s32 {to}, {a}, {b}, {c};"),
        };
        self.line(&format!("{guard}{text}"));
    }

    /// Sums with a carry from one step to the next.
    fn carry(&mut self) {
        let [a, b, c] = [(); 3].map(|()| self.one("w"));
        let [d, e] = [(); 2].map(|()| self.word());
        let kinds = if self.apart { 3 } else { 4 };
        let text = match self.below(kinds) {
            0 => format!(
                "add.cc.u32 {a}, {b}, {d}; addc.cc.u32 {b}, {c}, {e}; addc.u32 {c}, {c}, 0;"
            ),
            1 => format!("sub.cc.u32 {a}, {b}, {d}; subc.u32 {b}, {c}, {e};"),
            2 => format!("mad.lo.cc.u32 {a}, {b}, {d}, {c}; madc.hi.u32 {b}, {b}, {d}, {e};"),
            _ => "add.cc.u32 %u0, %u0, %u2; addc.u32 %u2, %u2, 7;".to_owned(),
        };
        self.line(&text);
    }

    fn floats(&mut self) {
        let (kind, ty, same) = [
            ("e", "f32", "%c0"),
            ("d", "f64", "%c1"),
            ("d", "f64", "%c1"),
        ][self.below(3)];
        let guard = self.guard();
        let [to, a, b, mut c] = [(); 4].map(|()| self.one(kind));
        if self.below(4) == 0 {
            c = same.to_owned();
        }
        let op = self.pick(&["add", "sub", "mul", "min", "max", "add.rz"]);
        let op = if ty == "f64" && op == "add.rz" {
            "mul"
        } else {
            op
        };
        let text = match self.below(8) {
            0..=2 => format!("{op}.{ty} {to}, {a}, {c};"),
            3 | 4 => format!("fma.rn.{ty} {to}, {a}, {b}, {c};"),
            5 => format!("neg.{ty} {to}, {a};"),
            6 => format!("selp.{ty} {to}, {a}, {c}, {};", self.predicate()),
            _ => format!("abs.{ty} {to}, {a};"),
        };
        self.line(&format!("{guard}{text}"));
    }

    fn shorts(&mut self) {
        let guard = self.guard();
        let [to, a, b, c] = [(); 4].map(|()| self.one("h"));
        let (w, e) = (self.one("w"), self.one("e"));
        let op = self.pick(&[
            "add.s16",
            "sub.u16",
            "mul.lo.u16",
            "min.s16",
            "max.u16",
            "xor.b16",
            "add.f16",
            "mul.f16",
            "max.bf16",
            "shr.u16",
            "shr.s16",
            "div.s16",
            "mul.hi.s16",
        ]);
        let op = if op.starts_with("shr") {
            format!("{op} {to}, {a}, 3;")
        } else {
            format!("{op} {to}, {a}, {b};")
        };
        let text = match self.below(12) {
            0..=2 => op,
            3 => format!("mad.lo.s16 {to}, {a}, {b}, {c};"),
            4 => format!("cvt.u16.u32 {to}, {w};"),
            5 => format!("cvt.s32.s16 {w}, {a};"),
            6 => format!("mov.b32 {w}, {{{a}, {b}}};"),
            7 if to != b => format!("mov.b32 {{{to}, {b}}}, {w};"),
            8 => format!("cvt.f32.f16 {e}, {a};"),
            9 => format!("cvt.rn.f16.f32 {to}, {e};"),
            10 => format!("selp.b16 {to}, {a}, {b}, {};", self.predicate()),
            _ => format!("setp.lt.s16 {}, {a}, {b};", self.one("q")),
        };
        self.line(&format!("{guard}{text}"));
    }

    fn widths(&mut self) {
        let guard = self.guard();
        let (w, e, d, v) = (self.one("w"), self.one("e"), self.one("d"), self.one("v"));
        let text = match self.below(11) {
            0 => format!("cvt.f64.f32 {d}, {e};"),
            1 => format!("cvt.rn.f32.f64 {e}, {d};"),
            2 => format!("cvt.rn.f64.s32 {d}, {w};"),
            3 => format!("cvt.rzi.u32.f64 {w}, {d};"),
            4 => format!("mov.b64 {{{w}, %t0}}, {d}; xor.b32 {w}, {w}, %t0;"),
            5 => format!("mov.b64 {d}, {{{w}, {w}}};"),
            6 => format!("mov.b64 {v}, {d};"),
            7 => format!("mov.b64 {d}, {v};"),
            8 => format!("mov.b32 {w}, {e};"),
            9 => format!("mov.b32 {e}, {w};"),
            _ => format!("cvt.rn.f32.u32 {e}, {w};"),
        };
        self.line(&format!("{guard}{text}"));
    }

    fn predicates(&mut self) {
        let guard = self.guard();
        let [p, q] = [(); 2].map(|()| self.one("q"));
        let r = self.predicate();
        let cmp = self.pick(&["eq", "ne", "lt", "le", "gt", "ge"]);
        let with = self.pick(&["", ".and", ".or", ".xor"]);
        let (ty, a, b) = match self.below(6) {
            0 | 1 => ("f64", self.one("d"), self.one("d")),
            2 => ("f32", self.one("e"), "%c0".to_owned()),
            3 => ("f64", self.one("d"), "%c1".to_owned()),
            4 => ("s32", self.one("w"), self.word()),
            _ => ("u32", self.word(), self.one("w")),
        };
        let to = match p != q && self.below(3) == 0 {
            true => format!("{p}|{q}"),
            false => p.clone(),
        };
        let not = self.pick(&["", "!"]);
        let text = match (self.below(6), with) {
            (0, _) => format!("and.pred {p}, {q}, {r};"),
            (1, _) => format!("xor.pred {p}, {q}, {r};"),
            (2, _) => format!("not.pred {p}, {r};"),
            (_, "") => format!("setp.{cmp}.{ty} {to}, {a}, {b};"),
            _ => format!("setp.{cmp}{with}.{ty} {to}, {a}, {b}, {not}{r};"),
        };
        self.line(&format!("{guard}{text}"));
    }

    /// What is done once for a group.
    fn once(&mut self) {
        let [to, a, b] = [(); 3].map(|()| self.one("u"));
        let (x, o) = (self.one("x"), self.one("o"));
        let text = match self.below(10) {
            0 | 1 => format!("add.u32 {to}, {a}, {b};"),
            2 => format!("mad.lo.u32 {to}, {a}, 5, {b};"),
            3 => format!("xor.b32 {to}, {a}, 9;"),
            4 => format!("add.u32 {x}, {x}, {a};"),
            5 => "mad.lo.u32 %x1, %r1, 3, %u1;".to_owned(),
            6 => format!("setp.lt.u32 {o}, {a}, {b};"),
            7 => format!("selp.u32 {to}, {a}, {b}, {o};"),
            8 => format!("mov.u32 {to}, {a};"),
            _ => "add.f64 %c1, %c1, 0d3FE0000000000000; mul.f32 %c0, %c0, 0fBF000000;".to_owned(),
        };
        self.line(&text);
    }

    fn different<const N: usize>(&mut self, kind: &str) -> [String; N] {
        let first = self.below(EACH);
        let by = [1, 3][self.below(2)];
        std::array::from_fn(|at| format!("%{kind}{}", (first + by * at) % EACH))
    }

    /// Loads of rows, some values of which nobody takes, and of what is the same in all threads.
    fn loads(&mut self) {
        let [w, w1, w2, w3] = self.different("w");
        let [e, e1, e2, e3] = self.different("e");
        let [d, d1] = self.different("d");
        let [h, h1] = self.different("h");
        let (u, v) = (self.one("u"), self.one("v"));
        let shared = self.pick(&["%r10", "%r11"]);
        let shared = if self.waits { shared } else { "%r10" };
        let (space, base, row) = match self.below(4) {
            0 | 1 => ("shared", shared, 16),
            2 => ("global", "%rd10", 16),
            _ => ("global", "%rd11", 8),
        };
        let guard = self.guard();
        let (four, two) = (self.pick(&["0", "64"]), 8 * self.below(2));
        let (four, two) = match base {
            "%r10" => (self.pick(&["0", "16"]), two),
            _ => (four, two),
        };
        let kind = self.below(if self.apart { 15 } else { 18 });
        let guard = if kind < 15 { guard } else { String::new() };
        let text = match kind {
            0 | 1 if row == 16 => {
                format!("ld.{space}.v4.u32 {{{w}, {w1}, {w2}, {w3}}}, [{base}+{four}];")
            }
            2 if row == 16 => {
                format!("ld.{space}.v4.f32 {{{e}, {e1}, {e2}, {e3}}}, [{base}+{four}];")
            }
            3 if row == 16 => format!("ld.{space}.v2.f64 {{{d}, {d1}}}, [{base}+{four}];"),
            4 if row == 16 => format!("ld.{space}.v4.u32 {{%v0, _, %v1, _}}, [{base}+{four}];"),
            5 => format!("ld.{space}.v2.u32 {{{w}, {w1}}}, [{base}+{two}];"),
            6 => format!("ld.{space}.f64 {d}, [{base}+{two}];"),
            7 => format!("ld.{space}.v2.u16 {{{h}, {h1}}}, [{base}+{two}];"),
            8 => format!("ld.{space}.v2.u32 {{_, {w1}}}, [{base}+{two}];"),
            9 => format!("ld.{space}.v4.u16 {{{w}, _, {w1}, _}}, [{base}+{two}];"),
            10 => format!("ld.{space}.v2.u32 {{{v}, _}}, [{base}+{two}];"),
            11 => format!("ld.global.v2.u16 {{{w}, _}}, [%rd12+{two}];"),
            12 => format!("ld.global.v4.u8 {{_, {w}, _, _}}, [%rd12+{two}];"),
            13 => format!("ld.global.f32 {e}, [%rd12+{two}];"),
            17 => format!("ld.global.u32 {u}, [%rd2+{}];", 4 * self.below(64)),
            15 => format!(
                "ld.global.v4.u32 {{%u0, %u1, _, {w}}}, [%rd2+{}];",
                16 * self.below(16)
            ),
            16 => format!(
                "ld.global.v2.f64 {{%c1, {d}}}, [%rd2+{}];",
                16 * self.below(16)
            ),
            _ => format!("ld.global.u32 {w}, [%rd12+{two}];"),
        };
        self.line(&format!("{guard}{text}"));
    }

    /// Addresses of numbers that may wrap in a group.
    fn wide(&mut self) {
        let x = self.one("x");
        let (sign, add) = (
            self.pick(&["u32", "s32"]),
            self.pick(&["0", "0x7fffffe0", "-20", "-40", "0x80000010"]),
        );
        let by = self.pick(&[
            "1",
            "-1",
            "4",
            "0x10000001",
            "0x80000000",
            "-0x4000000",
            "0x8000000",
        ]);
        let (n, w) = (self.names, self.one("w"));
        self.names += 1;
        let from = match self.below(2) {
            0 => format!("mad.lo.u32 %n{n}, %r1, {by}, {add};"),
            _ => format!("add.u32 %n{n}, {x}, {add};"),
        };
        self.line(&format!(
            ".reg .b32 %n{n}; .reg .b64 %l{n}, %m{n}; {from} mul.wide.{sign} %l{n}, %n{n}, 4;
            add.u64 %m{n}, %l{n}, 12; cvt.u32.u64 %t2, %m{n}; shr.u64 %rd16, %m{n}, 32;
            cvt.u32.u64 %t3, %rd16; xor.b32 {w}, {w}, %t2; mad.lo.u32 {w}, {w}, 31, %t3;"
        ));
    }

    /// A branch on comparisons combined.
    fn branch(&mut self) {
        let n = self.names;
        self.names += 1;
        let mut told = vec!["%o0".to_owned(), "%q0".to_owned()];
        self.line(&format!(".reg .pred %b{n}_<6>;"));
        for at in 0..2 + self.below(3) {
            let cmp = self.pick(&["eq", "ne", "lt", "le", "gt", "ge"]);
            let sign = self.pick(&["u32", "s32"]);
            let (x, mut b) = (self.one("x"), self.one("u"));
            if self.below(2) == 0 {
                b = self
                    .pick(&["0", "8", "15", "16", "-3", "40", "0x7fffffff", "0x80000000"])
                    .to_owned();
            }
            let to = format!("%b{n}_{at}");
            self.line(&format!("setp.{cmp}.{sign} {to}, {x}, {b};"));
            told.push(to);
        }
        told.swap_remove(self.below(2));
        for _ in 0..1 + self.below(3) {
            let op = self.pick(&["and", "or", "and", "or", "xor", "not"]);
            let [a, b] = [(); 2].map(|()| told[self.below(told.len())].clone());
            let to = format!("%b{n}_{}", self.below(6));
            match op {
                "not" => self.line(&format!("not.pred {to}, {a};")),
                _ => self.line(&format!("{op}.pred {to}, {a}, {b};")),
            }
            if !told.contains(&to) {
                told.push(to.clone());
            }
            if self.below(4) == 0 {
                self.once();
            }
            let last = told.len() - 1;
            let at = told.iter().position(|known| *known == to).unwrap_or(last);
            told.swap(at, last);
        }
        let not = self.pick(&["", "!"]);
        let guard = told.pop().unwrap_or_default();
        self.line(&format!("@{not}{guard} bra past{n};"));
        self.apart = true;
        for _ in 0..1 + self.below(3) {
            self.step();
        }
        self.apart = false;
        self.line(&format!("past{n}:"));
    }

    fn step(&mut self) {
        for _ in 0..40 {
            let before = self.text.len();
            self.any_step();
            let step = &self.text[before..];
            if !self.banned.iter().any(|word| step.contains(word)) {
                return;
            }
            self.text.truncate(before);
        }
    }

    fn any_step(&mut self) {
        match self.below(26) {
            0..=5 => self.words(),
            6..=9 => self.floats(),
            10..=12 => self.shorts(),
            13 => self.widths(),
            14..=16 => self.predicates(),
            17..=19 if !self.apart => self.once(),
            17..=19 => self.words(),
            20..=23 => self.loads(),
            24 => self.carry(),
            _ => {
                let (w, d) = (self.one("w"), self.one("d"));
                let text = match self.below(4) {
                    0 => format!("st.shared.u32 [%r10+4], {w};"),
                    1 => format!("st.shared.f64 [%r10+8], {d};"),
                    2 => format!("st.shared.v2.u32 [%r10+16], {{{w}, {w}}};"),
                    _ => format!("st.shared.f64 [%r10+24], {d};"),
                };
                // Rows of four are others' rows of eight.
                if !self.waits {
                    self.line(&text);
                }
            }
        }
    }

    fn body(&mut self) -> String {
        // Little is held through waits: groups may be wide.
        let anew = self.waits && self.below(2) == 0;
        let loops = self.below(3) > 0;
        if self.waits {
            self.line("bar.sync 0;");
        }
        if loops {
            self.line("again:");
        }
        let (runs, most) = (1 + self.below(4), 4 << self.below(4));
        for run in 0..runs {
            if anew {
                let sum = self.sum();
                self.line(&format!("{sum} bar.sync 0; {VALUES}"));
            }
            for _ in 0..3 + self.below(most) {
                self.step();
            }
            match self.below(8) {
                0 | 1 if self.waits => self.line("bar.sync 0;"),
                2 => self.line(&format!("between{run}:")),
                3 => self.wide(),
                4 | 5 => self.branch(),
                6 if self.below(6) == 0 => {
                    let far = 16384 - 16 * (1 + self.below(40));
                    self.line(&format!(
                        "ld.global.v4.u32 {{%w0, %w1, %w2, %w3}}, [%rd10+{far}];"
                    ));
                }
                _ => {}
            }
        }
        if loops {
            let turns = 1 + self.below(4);
            self.line(&format!(
                "add.u32 %k, %k, 1; setp.lt.u32 %more, %k, {turns}; @%more bra again;"
            ));
        }
        let all = format!("{BEGIN}{VALUES}{}", self.text);
        all + &self.sum()
    }

    /// Adds all that registers hold to what the thread leaves.
    fn sum(&self) -> String {
        let mut all = String::new();
        let put = "mad.lo.u32 %r9, %r9, 31,";
        for n in 0..EACH {
            for (kind, most, how) in [
                ("%w", EACH, "mov.u32 %t0, {};"),
                ("%e", EACH, "mov.b32 %t0, {};"),
                ("%h", EACH, "cvt.u32.u16 %t0, {};"),
                ("%q", EACH, "selp.u32 %t0, 5, 9, {};"),
                ("%o", 2, "selp.u32 %t0, 5, 9, {};"),
                ("%u", 3, "mov.u32 %t0, {};"),
                ("%x", 3, "mov.u32 %t0, {};"),
                (
                    "%d",
                    EACH,
                    "setp.nan.f64 %more, {}, {}; @%more mov.f64 {}, 0d0000000000000000;
                    mov.b64 {%t0, %t1}, {}; xor.b32 %r9, %r9, %t1;",
                ),
            ] {
                let register = format!("{kind}{n}");
                if n < most && !self.banned.iter().any(|word| register.contains(word)) {
                    let _ = writeln!(all, "{} {put} %t0;", how.replace("{}", &register));
                }
            }
        }
        all
    }
}

/// What a kernel does where the second buffer holds floats and other words.
fn outcome(module: &Arc<Module>, block: [u32; 3], n: u32) -> Outcome {
    let mut out = vec![0u32; WORDS];
    let word = |at: u32| match at % 4 {
        0 | 1 => ((at * 37 % 200) as f32).to_bits(),
        _ => at.wrapping_mul(0x9e37_79b9),
    };
    let mut all: Vec<u32> = (0..WORDS as u32).map(word).collect();
    let buffers: &mut [&mut [u8]] = &mut [buffer(&mut out), buffer(&mut all)];
    match harness::run_in(
        module,
        "k",
        [1, 1, 1],
        block,
        0,
        buffers,
        &[&n.to_le_bytes()],
    ) {
        Ok(()) => Ok(out),
        Err(fault) => Err((fault.kind, fault.block, fault.thread)),
    }
}

/// Without what tells of other rows than one.
fn in_one_row(source: &str) -> String {
    source.replace("%tid.y", "0").replace("%tid.z", "0")
}

#[test]
fn random_bodies_do_the_same() {
    let cases = setting("SOFTCUDA_FUZZ_CASES").map_or(DEFAULT_CASES, |cases| cases / SHARE);
    let alone = setting("SOFTCUDA_FUZZ_CASE").is_some();
    let (runs, faults) = (AtomicU64::new(0), AtomicU64::new(0));
    run_cases(cases, |_, random, _| {
        let waits = random.below(2) == 0;
        let one_row = random.below(2) == 0;
        let mut banned = vec![];
        for (some, chance) in KINDS {
            if random.below(chance) == 0 {
                banned.extend(some);
            }
        }
        if random.below(10) != 0 {
            // There is no vector form with it.
            banned.push(".cc");
        }
        let mut writer = Writer {
            banned,
            random,
            text: String::new(),
            waits,
            apart: false,
            names: 0,
        };
        let body = writer.body();
        if alone {
            println!("{body}");
        }
        let load = |form, more: usize| {
            let source = kernel(&format!("{}{body}", "mov.u32 %r39, 7;\n".repeat(more)));
            let source = if one_row { in_one_row(&source) } else { source };
            harness::load_as(&source, form)
        };
        let [fibers, rounds] = [Form::Fibers, Form::Rounds].map(|form| load(form, 0));
        // In slices or not, by the number of steps.
        let vectors = [0, 1, 2].map(|more| load(Form::Vectors, more));
        for _ in 0..3 {
            let block = BLOCKS[random.below(BLOCKS.len())];
            if one_row && block[1] * block[2] > 1 {
                continue;
            }
            let n = [0, 3, 40, 0x7fff_fffe][random.below(4)];
            let expected = outcome(&rounds, block, n);
            runs.fetch_add(1, Ordering::Relaxed);
            faults.fetch_add(u64::from(expected.is_err()), Ordering::Relaxed);
            // After a wait, fibers go on in another order.
            let blamed = |end: Outcome| end.map_err(|(kind, block, _)| (kind, block));
            let same = |module: &Arc<Module>| {
                let (got, expected) = (outcome(module, block, n), outcome(&rounds, block, n));
                match Arc::ptr_eq(module, &fibers) {
                    true => blamed(got) == blamed(expected),
                    false => got == expected,
                }
            };
            for (at, module) in [&fibers].into_iter().chain(&vectors).enumerate() {
                // A damaged kernel of another test may have written here meanwhile.
                if same(module) || same(module) {
                    continue;
                }
                let what = difference(&outcome(module, block, n), &expected);
                return Err(format!("form {at}, {block:?} n={n}: {what}\n{body}"));
            }
        }
        Ok(())
    });
    let (runs, faults) = (runs.into_inner(), faults.into_inner());
    println!("{cases} bodies, {runs} launches, of which {faults} fault");
    assert!(alone || faults < 1 + runs / 2, "{faults} fault");
}

/// A load of a row, some values of which nobody takes: it does not fill vectors one by one.
#[test]
fn values_that_nobody_takes() {
    let loads = [
        ("ld.shared.v2.u16 {%r5, _}, [%r4];", 4),
        ("ld.shared.v4.u8 {%r5, _, _, _}, [%r4];", 4),
        ("ld.shared.v2.u16 {_, %r5}, [%r4];", 4),
        ("ld.shared.v4.u16 {%r5, _, %r6, _}, [%r4];", 8),
        ("ld.shared.v2.u32 {%rd5, _}, [%r4];", 8),
        ("ld.shared.v4.u32 {%rd5, _, %rd6, _}, [%r4];", 16),
    ];
    let mut others = vec![];
    for (load, bytes) in loads {
        // The store ends a run.
        let (changed, taken) = match load.contains("%rd5") {
            false => ("add.u32 %r5, %r5, 1;", "mov.u32 %r9, %r5;"),
            true => (
                "neg.f64 %rd5, %rd5;",
                "mov.b64 {%r5, %r6}, %rd5; xor.b32 %r9, %r5, %r6;",
            ),
        };
        let body = format!(
            "mad.lo.u32 %r20, %r30, %r31, %r1; mov.u32 %r8, s; mad.lo.u32 %r4, %r20, {bytes}, %r8;
            mul.lo.u32 %r7, %r20, 0x01030507; st.shared.u32 [%r4], %r7; {load} {changed}
            st.global.u32 [%rd3], %r1; {taken}"
        );
        for more in 0..3 {
            let body = format!("{}{body}", "mov.u32 %r39, 7;\n".repeat(more));
            let run = || same(&body, [32, 1, 1], 3).unwrap();
            if catch_unwind(AssertUnwindSafe(run)).is_err() {
                others.push(load);
            }
        }
    }
    assert!(others.is_empty(), "{others:#?}");
}

/// Numbers that wrap in a thread of a group, or in none, by strides of all sizes.
#[test]
fn numbers_that_wrap() {
    let strides = [
        1u32,
        3,
        0x0800_0000,
        0x0842_1085,
        0x1249_2493,
        0x2000_0000,
        0x7fff_ffff,
    ];
    let strides = strides
        .map(|stride| [stride, stride.wrapping_neg()])
        .concat();
    for stride in strides.into_iter().chain([0x8000_0000]) {
        for wait in ["", "bar.sync 0;"] {
            let mut body = format!(
                ".reg .b32 %n<2>; .reg .b64 %l<8>; mad.lo.u32 %n0, %r1, {stride}, %r3; {wait}
                add.u32 %n1, %n0, 0x7fffffff;"
            );
            let forms = ["mul.wide.u32", "mul.wide.s32", "cvt.u64.u32", "cvt.s64.s32"];
            for (at, form) in forms.into_iter().enumerate() {
                let by = if form.starts_with("mul") { ", 4" } else { "" };
                let _ = write!(
                    body,
                    "{form} %l{at}, %n{}{by}; add.u64 %rd5, %l{at}, 5; cvt.u32.u64 %r4, %rd5;
                    shr.u64 %rd5, %rd5, 32; cvt.u32.u64 %r5, %rd5; {wait}
                    mad.lo.u32 %r9, %r9, 31, %r4; mad.lo.u32 %r9, %r9, 31, %r5;\n",
                    at % 2
                );
            }
            let [vectors, rounds] = [Form::Vectors, Form::Rounds]
                .map(|form| harness::load_as(&in_one_row(&kernel(&body)), form));
            for limit in [0u32, 1, 0x7fff_ffff, 0x8000_0000, 0xffff_ffff] {
                for thread in [0u32, 1, 6, 7, 8, 15, 16, 30, 31, 32] {
                    let n = limit.wrapping_sub(stride.wrapping_mul(thread));
                    for block in [[32, 1, 1], [64, 1, 1]] {
                        let ends = [&vectors, &rounds].map(|form| outcome(form, block, n));
                        assert!(ends[0] == ends[1], "{block:?} n={n:#x}\n{body}");
                    }
                }
            }
        }
    }
}

/// Rows of matrices at addresses in no order: each lane takes what it would load by itself.
#[test]
fn rows_of_matrices() {
    for (count, turned) in [
        (1, false),
        (2, false),
        (4, false),
        (1, true),
        (2, true),
        (4, true),
    ] {
        for (offset, address) in [
            (0, "%r5"),
            (32, "%r5"),
            (-64, "%r5"),
            (16, "%rd5"),
            (0, "%rd6"),
        ] {
            let registers: Vec<String> = (0..count).map(|at| format!("%m{at}")).collect();
            let trans = if turned { ".trans" } else { "" };
            let space = if address == "%rd6" { "" } else { ".shared" };
            let mut body = format!(
                ".reg .b32 %m<4>; .reg .b16 %h<2>; mov.u32 %r4, s; mov.u32 %r5, %r1; mov.u32 %r6, 0;
                fill: mad.lo.u32 %r7, %r5, 0x9e3779b1, 7; shl.b32 %r8, %r5, 2;
                add.u32 %r8, %r8, %r4;
                st.shared.u32 [%r8], %r7; add.u32 %r5, %r5, %r31; setp.lt.u32 %p1, %r5, 2048;
                @%p1 bra fill; bar.sync 0; mad.lo.u32 %r5, %r1, 0x9e3779b1, %r3;
                shr.u32 %r5, %r5, 20;
                and.b32 %r5, %r5, 0x1f0; add.u32 %r5, %r5, {}; add.u32 %r5, %r5, %r4;
                cvt.u64.u32 %rd5, %r5; cvta.shared.u64 %rd6, %rd5; and.b32 %r6, %r1, 31;
                ldmatrix.sync.aligned.m8n8.x{count}{trans}{space}.b16 {{{}}},
                    [{address}+{offset}];\n",
                128 - offset,
                registers.join(", "),
            );
            for (at, register) in registers.iter().enumerate() {
                let lanes = match turned {
                    false => vec![(
                        "shr.u32 %r7, %r6, 2;",
                        0,
                        "and.b32 %r8, %r6, 3; shl.b32 %r8, %r8, 2;",
                    )],
                    true => vec![
                        (
                            "and.b32 %r7, %r6, 3; shl.b32 %r7, %r7, 1;",
                            0,
                            "shr.u32 %r8, %r6, 2; shl.b32 %r8, %r8, 1;",
                        ),
                        (
                            "and.b32 %r7, %r6, 3; shl.b32 %r7, %r7, 1;",
                            1,
                            "shr.u32 %r8, %r6, 2; shl.b32 %r8, %r8, 1;",
                        ),
                    ],
                };
                for (row, more, part) in lanes {
                    let load = match turned {
                        false => "ld.shared.u32 %r10, [%r8];".to_owned(),
                        true => format!("ld.shared.u16 %h{more}, [%r8];"),
                    };
                    let _ = writeln!(
                        body,
                        "{row} add.u32 %r7, %r7, {}; shfl.sync.idx.b32 %r7, %r5, %r7, 31, -1;
                        {part} add.u32 %r8, %r8, %r7; add.u32 %r8, %r8, {offset}; {load}",
                        8 * at + more,
                    );
                }
                if turned {
                    body += "mov.b32 %r10, {%h0, %h1};";
                }
                let _ = writeln!(
                    body,
                    "xor.b32 %r10, %r10, {register}; or.b32 %r9, %r9, %r10;"
                );
            }
            for block in [[32, 1, 1], [96, 1, 1]] {
                let words = same(&body, block, 77).unwrap();
                assert!(
                    words[..96].iter().all(|word| *word == 0),
                    "{:x?}\n{body}",
                    &words[..32]
                );
            }
        }
    }
}
