//! Random kernels of short branches and loops, guards by a thread's number, arrays that parameters
//! point to, and operations of warps and blocks between: all forms leave the same bytes, and the
//! same fault.
//!
//! At most one access of a kernel is outside, in at most one thread, so that all forms must tell
//! the same thread.

use std::fmt::Write as _;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use super::both::in_all_forms;
use super::{Random, run_cases, setting};
use crate::grid;
use crate::grid::launch::FaultKind;
use crate::jit::harness;
use crate::jit::module::Module;
use crate::memory::{self, Kind};

/// Cases of a plain `cargo test`, and of a whole run the part that is run here.
const DEFAULT_CASES: u64 = 60;
const SHARE: u64 = 5;
/// Registers of each type.
const EACH: usize = 5;
/// Bytes that all threads read, and where among them the parameter points to.
const BYTES: usize = 16 << 10;
const MIDDLE: usize = 1 << 10;
/// Words that each thread writes.
const OWN: usize = 8;
const BLOCKS: u32 = 2;
/// The shapes of blocks.
const SHAPES: [[u32; 3]; 16] = [
    [1, 1, 1],
    [7, 1, 1],
    [8, 1, 1],
    [9, 1, 1],
    [20, 1, 1],
    [24, 1, 1],
    [31, 1, 1],
    [32, 1, 1],
    [33, 1, 1],
    [64, 1, 1],
    [100, 1, 1],
    [128, 1, 1],
    [8, 3, 2],
    [16, 4, 1],
    [48, 2, 1],
    [4, 8, 2],
];

/// Which threads come to a statement together.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Together {
    Block,
    Warp,
    Alone,
}

struct Writer<'a> {
    random: &'a mut Random,
    text: String,
    names: usize,
    left: usize,
    shape: [u32; 3],
    /// An access is still to be outside.
    wild: bool,
    /// Threads retry until they have changed a word.
    spins: bool,
}

impl Writer<'_> {
    fn line(&mut self, text: &str) {
        writeln!(self.text, "{text}").expect("text takes text");
    }

    fn name(&mut self) -> usize {
        self.names += 1;
        self.names
    }

    fn below(&mut self, end: usize) -> usize {
        self.random.below(end)
    }

    fn register(&mut self, kind: &str) -> String {
        format!("%{kind}{}", self.random.below(EACH))
    }

    fn pick<'a>(&mut self, list: &[&'a str]) -> &'a str {
        list[self.random.below(list.len())]
    }

    fn guard(&mut self) -> String {
        match self.below(12) {
            0 => format!("@{} ", self.register("p")),
            1 => format!("@!{} ", self.register("p")),
            _ => String::new(),
        }
    }

    fn threads(&self) -> u32 {
        self.shape.iter().product()
    }

    fn arithmetic(&mut self) {
        let [to, a, b] = [(); 3].map(|()| self.register("r"));
        let [f, g, h] = [(); 3].map(|()| self.register("f"));
        let [q, w] = [(); 2].map(|()| self.register("q"));
        let [p, s] = [(); 2].map(|()| self.register("p"));
        let guard = self.guard();
        let number = [0, 1, 3, 4, 31, 100, 0x7fff_fff0, -7][self.below(8)];
        let op = self.pick(&[
            "add.s32",
            "sub.s32",
            "and.b32",
            "xor.b32",
            "min.s32",
            "max.u32",
            "mul.lo.s32",
        ]);
        let compare = self.pick(&["eq", "ne", "lt", "le", "gt", "ge"]);
        let sign = self.pick(&["u32", "s32"]);
        let [i, j] = [(); 2].map(|()| self.register("h"));
        let half = self.pick(&["f16", "bf16"]);
        let text = match self.below(27) {
            20 => format!("cvt.u16.u32 {i}, {a};"),
            21 => format!("cvt.{sign}.s16 {to}, {i};"),
            22 => format!("mad.lo.s16 {i}, {j}, {i}, 77;"),
            23 => format!("add.{half} {i}, {i}, {j};"),
            24 => format!("cvt.rn.{half}.f32 {i}, {f};"),
            25 => format!("mov.b32 {to}, {{{i}, {j}}};"),
            26 => format!("setp.{compare}.s16 {p}, {i}, {j};"),
            0 | 1 => format!("{op} {to}, {a}, {b};"),
            2 | 3 => format!("{op} {to}, {a}, {number};"),
            4 => format!(
                "mov.u32 {to}, {};",
                self.pick(&["%x", "%me", "%n", "%block", "%u", "5"])
            ),
            5 => format!("selp.b32 {to}, {a}, {b}, {p};"),
            6 => format!("add.f32 {f}, {g}, {h};"),
            7 => format!("fma.rn.f32 {f}, {f}, {g}, {h};"),
            8 => format!("cvt.rn.f32.s32 {f}, {a};"),
            9 => format!("mul.wide.{sign} {q}, {a}, 12;"),
            10 => format!("add.s64 {q}, {q}, {w};"),
            11 => format!(
                "mul.wide.{sign} {q}, {}, 4;",
                self.pick(&["%x", "%w0", "%w1", "%me"])
            ),
            12 => format!("setp.{compare}.{sign} {p}, {a}, {b};"),
            13 => format!("setp.{compare}.{sign} {p}, {}, {number};", self.affine()),
            14 => format!("{}.pred {p}, {p}, {s};", self.pick(&["and", "or", "xor"])),
            15 => format!("setp.{compare}.s64 {p}, {q}, {w};"),
            16 => format!("ex2.approx.f32 {f}, {g};"),
            17 => format!("lg2.approx.f32 {f}, {g};"),
            18 => format!("mov.b32 {f}, {a};"),
            _ => format!("shr.u64 {q}, {w}, 7; cvt.u32.u64 {to}, {q};"),
        };
        self.line(&format!("{guard}{text}"));
    }

    /// A register that counts from thread to thread.
    fn affine(&mut self) -> &'static str {
        self.pick(&["%x", "%x", "%me", "%w0", "%w1", "%w2", "%down", "%far"])
    }

    /// The index of an element of `size` bytes that is inside, with `before` and `after` elements
    /// around; whether it may be below 0. What `ends` accesses just this element.
    fn index(&mut self, size: usize, ends: bool) -> (String, bool) {
        let n = self.name();
        let signed = self.below(2) == 0;
        let most = (BYTES - MIDDLE) / size;
        let less = match signed {
            true => self.below(MIDDLE / size - 20),
            false => 0,
        } as i64;
        let start = 8 - less;
        let to = format!("%x{n}");
        let more = self.below(60);
        let text = match self.below(9) {
            0 => format!("mov.u32 {to}, {};", start + more as i64),
            1 | 2 => format!("add.s32 {to}, %x, {};", start + more as i64),
            3 => format!("mad.lo.s32 {to}, %x, {}, {};", 2 + self.below(3), start),
            4 => format!("mad.lo.s32 {to}, %me, {}, {};", 1 + self.below(3), start),
            5 => format!("sub.s32 {to}, {}, %x;", start + 140),
            6 => format!(
                "rem.u32 {to}, %n, 50; add.s32 {to}, {to}, %x; add.s32 {to}, {to}, {start};"
            ),
            _ => {
                let from = self.register("r");
                format!("and.b32 {to}, {from}, 255; add.s32 {to}, {to}, {start};")
            }
        };
        self.line(&text);
        if self.wild && self.below(4) == 0 {
            self.wild = false;
            let who = self.below((self.threads() * BLOCKS) as usize);
            // Far below, and not near: there lies the memory of other cases.
            let far = [
                most as i64,
                -0x1000_0000,
                0x1000_0000,
                0x4000_0000,
                -0x8000_0000,
                most as i64 + 7,
            ][self.below(6)];
            // At the end of the array, the last of a block is outside.
            let text = match self.below(3) {
                0 if ends && self.shape[1] * self.shape[2] == 1 => format!(
                    "setp.eq.u32 %pt, %block, 1; selp.u32 %t, {}, {start}, %pt; add.s32 {to}, %x, %t;",
                    most as i64 - i64::from(self.threads()) + 1
                ),
                _ => format!("setp.eq.u32 %pt, %id, {who}; @%pt add.s32 {to}, {to}, {far};"),
            };
            self.line(&text);
        }
        (to, signed)
    }

    /// An access to the array that all read.
    fn load(&mut self) {
        let (kind, ty, size, count) = [
            ("r", "u32", 4, 1),
            ("r", "u32", 4, 1),
            ("f", "f32", 4, 1),
            ("q", "u64", 8, 1),
            ("r", "u8", 1, 1),
            ("r", "s16", 2, 1),
            ("r", "u32", 4, 2),
            ("r", "u32", 4, 4),
        ][self.below(8)];
        let ends = count == 1 && self.below(3) == 0;
        let (index, signed) = self.index(size, ends);
        let sign = if signed { "s32" } else { "u32" };
        let n = self.name();
        let scale = size * count;
        // A vector's element is a multiple of it from the start, and so may not be anywhere.
        let index = match count {
            1 => index,
            _ => {
                self.line(&format!("div.s32 %x{n}, {index}, {count};"));
                format!("%x{n}")
            }
        };
        let offset = [0, 0, 1, -1, 2, -3][self.below(6)] * scale as i64 * i64::from(!ends);
        let address = match self.below(3) {
            0 if scale.is_power_of_two() => {
                // A row and a column, each extended; what one has more, the other has less.
                let row = self.pick(&["%block", "%me", "%id", "0x3ffffffc", "-5"]);
                let wide = self.pick(&["cvt.s64.s32", "cvt.u64.u32"]);
                let wide = if row == "-5" { "cvt.s64.s32" } else { wide };
                let both = self.pick(&["%y{n}, %z{n}", "%z{n}, %y{n}"]);
                let limit = self.pick(&[
                    "min.s32 %i{n}, %i{n}, 0x7fffffff;",
                    "max.s32 %i{n}, %i{n}, -0x7fffff00;",
                    "",
                ]);
                let shift = scale.trailing_zeros();
                let text = format!(
                    "mov.u32 %j{{n}}, {row}; sub.s32 %i{{n}}, {index}, %j{{n}}; {limit}
                    cvt.s64.s32 %y{{n}}, %i{{n}}; {wide} %z{{n}}, %j{{n}};
                    add.s64 %z{{n}}, {both}; shl.b64 %z{{n}}, %z{{n}}, {shift};
                    add.s64 %z{{n}}, %all, %z{{n}};"
                );
                text.replace("{n}", &n.to_string())
            }
            _ => format!("mul.wide.{sign} %y{n}, {index}, {scale}; add.s64 %z{n}, %all, %y{n};"),
        };
        self.line(&address);
        let guard = self.guard();
        let text = match count {
            1 => {
                let to = self.register(kind);
                format!("ld.global.{ty} {to}, [%z{n}+{offset}];")
            }
            2 => format!("ld.global.v2.{ty} {{%r0, %r1}}, [%z{n}+{offset}];"),
            _ => format!("ld.global.v4.{ty} {{%r0, %r1, %r2, %r3}}, [%z{n}+{offset}];"),
        };
        self.line(&format!("{guard}{text}"));
    }

    /// Words at neighbouring indices.
    fn unrolled(&mut self) {
        let (index, signed) = self.index(4, false);
        let sign = if signed { "s32" } else { "u32" };
        for more in 0..2 + self.below(3) {
            let n = self.name();
            let to = self.register("r");
            let offset = [0, 0, 4, -4][self.below(4)];
            self.line(&format!(
                "add.s32 %x{n}, {index}, {more}; mul.wide.{sign} %y{n}, %x{n}, 4;
                add.s64 %z{n}, %all, %y{n}; ld.global.u32 {to}, [%z{n}+{offset}];"
            ));
        }
    }

    /// What a thread has for itself.
    fn own(&mut self) {
        let n = self.name();
        let guard = self.guard();
        let total = self.threads() * BLOCKS;
        let place = self.below(OWN - 1) as u32;
        let r = self.register("r");
        let access = match self.below(3) {
            0 => format!("ld.global.u32 {r}"),
            _ => format!("st.global.u32 {r}"),
        };
        let (what, register) = access.split_once(' ').expect("it has two words");
        let order = |address: &str| match what.starts_with("ld") {
            true => format!("{what} {register}, [{address}];"),
            false => format!("{what} [{address}], {register};"),
        };
        let text = match self.below(4) {
            0 => order(&format!("%own+{}", place * total * 4)),
            1 => {
                // One element further, and back.
                format!(
                    "add.u32 %x{n}, %id, {}; mul.wide.u32 %y{n}, %x{n}, 4; add.s64 %z{n}, %out, %y{n}; {guard}{}",
                    place * total + 1,
                    order(&format!("%z{n}+-4"))
                )
            }
            2 => format!(
                "mad.lo.s32 %x{n}, %block, {}, %me; add.s32 %x{n}, %x{n}, {};
                mul.wide.s32 %y{n}, %x{n}, 4; add.s64 %z{n}, %out, %y{n}; {guard}{}",
                self.threads(),
                place * total,
                order(&format!("%z{n}"))
            ),
            _ => {
                let f = self.register("f");
                format!("{guard}st.shared.f32 [%tile+4], {f}; ld.shared.f32 {f}, [%tile+4];")
            }
        };
        self.line(&text);
    }

    /// Threads change a word together, in no order.
    fn count(&mut self) {
        let r = self.register("r");
        let n = self.name();
        let text = match self.spins && self.below(2) == 0 {
            true => format!(
                "ld.global.u32 %x{n}, [%count];
                S{n}: add.u32 %t, %x{n}, {r}; atom.global.cas.b32 %t, [%count], %x{n}, %t;
                setp.ne.u32 %pt, %t, %x{n}; mov.u32 %x{n}, %t; @%pt bra S{n};"
            ),
            false => format!("red.global.add.u32 [%count], {r};"),
        };
        self.line(&text);
    }

    /// What the lanes of a warp do together.
    fn warp_operation(&mut self) {
        let [to, from] = [(); 2].map(|()| self.register("r"));
        let distance = self.below(33);
        let text = match self.below(10) {
            0..=2 => {
                let mode = self.pick(&["down", "up", "bfly", "idx"]);
                let segment = [0, 0, 0x10, 0x18, 0x1c, 0x1e, 0x0a][self.below(7)] << 8;
                let clamp = segment | if mode == "up" { 0 } else { 31 };
                format!("shfl.sync.{mode}.b32 {to}, {from}, {distance}, {clamp}, -1;")
            }
            3 => {
                // A sum over the warp, with something between.
                let mut text = String::new();
                for step in [16, 8, 4, 2, 1] {
                    let _ = write!(
                        text,
                        "shfl.sync.bfly.b32 %t, {to}, {step}, 31, -1; add.u32 {to}, {to}, %t;"
                    );
                    if self.below(3) == 0 {
                        text += &match self.below(4) {
                            0 => format!("st.shared.u32 [%tile+8], {to};"),
                            1 => format!("st.global.u32 [%own], {to};"),
                            2 => format!("setp.gt.s32 {}, {to}, {from};", self.register("p")),
                            _ => format!("@{} add.u32 {to}, {to}, 5;", self.register("p")),
                        };
                    }
                }
                text
            }
            4 => {
                let [q, w] = [(); 2].map(|()| self.register("q"));
                format!(
                    "mov.b64 {{%t, %t2}}, {w}; shfl.sync.down.b32 %t, %t, {distance}, 31, -1;
                    shfl.sync.down.b32 %t2, %t2, {distance}, 31, -1; mov.b64 %wide, {{%t, %t2}};
                    add.s64 {q}, {q}, %wide;"
                )
            }
            5 => format!("vote.sync.ballot.b32 {to}, {}, -1;", self.register("p")),
            6 => {
                let [p, s] = [(); 2].map(|()| self.register("p"));
                format!(
                    "vote.sync.{}.pred {p}, {s}, -1;",
                    self.pick(&["any", "all"])
                )
            }
            7 => {
                let lane = self.register("r");
                format!("shfl.sync.idx.b32 {to}|%pt, {from}, {lane}, 31, -1;")
            }
            8 => {
                // A float, which is no number where it was large, or in many.
                let (f, n) = (self.register("f"), self.name());
                let mode = self.pick(&["down", "bfly", "idx"]);
                let first = self.pick(&[
                    "sub.f32 %v{n}, %v{n}, %v{n};",
                    "fma.rn.f32 %v{n}, %v{n}, 0f00000000, 0f3f800000;",
                    "min.f32 %v{n}, %v{n}, 0f41200000;",
                ]);
                let then = self.pick(&[
                    "add.f32 %k{n}, %k{n}, %v{n};",
                    "max.f32 %k{n}, %k{n}, %v{n};",
                    "st.global.f32 [%own], %v{n};",
                    "",
                ]);
                let used = self.pick(&[
                    "st.global.f32 [%own], %k{n};",
                    "mov.b32 %t, %k{n}; xor.b32 {to}, {to}, %t;",
                    "xor.b32 {to}, {to}, %i{n};",
                ]);
                let text = format!(
                    "mul.f32 %v{{n}}, {f}, 0f7f800000; {first} mov.b32 %x{{n}}, %v{{n}};
                    shfl.sync.{mode}.b32 %i{{n}}, %x{{n}}, {distance}, 31, -1;
                    mov.b32 %k{{n}}, %i{{n}}; {then} {used}"
                );
                text.replace("{n}", &n.to_string()).replace("{to}", &to)
            }
            _ => "bar.warp.sync -1;".to_owned(),
        };
        self.line(&text);
    }

    fn block_operation(&mut self) {
        let [to, from] = [(); 2].map(|()| self.register("r"));
        let p = self.register("p");
        let threads = self.threads();
        let text = match self.below(4) {
            0 => "bar.sync 0;".to_owned(),
            1 => format!("bar.red.popc.u32 {to}, 1, {p};"),
            _ => format!(
                "st.shared.u32 [%tile], {from}; bar.sync 0;
                add.u32 %t, %me, {}; rem.u32 %t, %t, {threads}; mad.lo.u32 %t, %t, 16, %tiles;
                ld.shared.u32 {to}, [%t]; bar.sync 0;",
                1 + self.below(40)
            ),
        };
        self.line(&text);
    }

    /// A predicate that is the same for so many threads.
    fn condition(&mut self, together: Together) -> String {
        let n = self.name();
        let compare = self.pick(&["eq", "ne", "lt", "le", "gt", "ge"]);
        let sign = self.pick(&["u32", "s32"]);
        let text = match (together, self.below(6)) {
            (Together::Block, 0) => format!("setp.{compare}.{sign} %c{n}, %n, {};", self.below(40)),
            (Together::Block, 1) => format!("setp.{compare}.u32 %c{n}, %block, 1;"),
            (Together::Block, _) => {
                format!(
                    "ld.global.u32 %t, [%all+{}]; and.b32 %t, %t, 7; setp.{compare}.{sign} %c{n}, %t, 3;",
                    4 * self.below(60)
                )
            }
            (Together::Warp, 0) => {
                format!("shr.u32 %x{n}, %x, 20; setp.eq.u32 %c{n}, %x{n}, %block;")
            }
            (Together::Warp, _) => {
                format!(
                    "shr.u32 %x{n}, %me, 5; setp.{compare}.u32 %c{n}, %x{n}, {};",
                    self.below(4)
                )
            }
            (Together::Alone, 0) => return self.register("p"),
            (Together::Alone, 1) => {
                let r = self.register("r");
                format!("setp.{compare}.{sign} %c{n}, {r}, {};", self.below(300))
            }
            (Together::Alone, 2) => format!("setp.{compare}.{sign} %c{n}, %n, {};", self.affine()),
            (Together::Alone, 3) => {
                let stride = [2, 3, -1, 0x1000_0000, 0x3000_0000, -0x61c8_8647][self.below(6)];
                let start = [0, 5, 0x7fff_fffd, -4][self.below(4)];
                let other = match self.below(2) {
                    0 => format!("{}", (start as i64 + stride * self.below(8) as i64) as i32),
                    _ => "%n".to_owned(),
                };
                format!(
                    "mad.lo.s32 %x{n}, %x, {stride}, {start}; setp.{compare}.{sign} %c{n}, %x{n}, {other};"
                )
            }
            (Together::Alone, _) => {
                format!(
                    "setp.{compare}.{sign} %c{n}, {}, {};",
                    self.affine(),
                    self.below(40)
                )
            }
        };
        self.line(&text);
        format!("%c{n}")
    }

    fn branch(&mut self, together: Together, depth: usize) {
        let under = match (together, self.below(4)) {
            (Together::Block, 0) => Together::Block,
            (Together::Block | Together::Warp, 1) => Together::Warp,
            _ => Together::Alone,
        };
        let condition = self.condition(under);
        let n = self.name();
        // Operations of all between the comparison and the branch.
        if self.below(6) == 0 {
            match together {
                Together::Block => self.block_operation(),
                Together::Warp => self.warp_operation(),
                Together::Alone => self.arithmetic(),
            }
        }
        let not = self.pick(&["", "!"]);
        match self.below(8) {
            0..=2 => {
                self.line(&format!("@{not}{condition} bra over{n};"));
                self.statements(under, depth - 1);
                self.line(&format!("over{n}:"));
            }
            3 | 4 => {
                self.line(&format!("@{not}{condition} bra other{n};"));
                self.statements(under, depth - 1);
                self.line(&format!("bra.uni met{n}; other{n}:"));
                self.statements(under, depth - 1);
                self.line(&format!("met{n}:"));
            }
            5 => {
                // One more condition in each part.
                self.line(&format!("@{not}{condition} bra one{n};"));
                let second = self.condition(under);
                self.line(&format!("@{second} bra two{n};"));
                self.statements(under, depth - 1);
                self.line(&format!("bra.uni met{n}; one{n}:"));
                self.statements(under, depth - 1);
                self.line(&format!("bra.uni met{n}; two{n}:"));
                self.statements(under, depth - 1);
                self.line(&format!("met{n}:"));
            }
            6 => {
                // Two ways to the same part.
                self.line(&format!("@{not}{condition} bra both{n};"));
                let second = self.condition(under);
                self.line(&format!("@!{second} bra met{n}; both{n}:"));
                self.statements(under, depth - 1);
                self.line(&format!("met{n}:"));
            }
            _ => self.turns(under, depth),
        }
    }

    /// So many turns as these threads have in common.
    fn turns(&mut self, together: Together, depth: usize) {
        let n = self.name();
        let turns = match together {
            Together::Block => format!("mov.u32 %i{n}, {};", self.below(4)),
            Together::Warp => format!("shr.u32 %i{n}, %me, 5; and.b32 %i{n}, %i{n}, 3;"),
            Together::Alone => match self.below(4) {
                0 => format!("rem.u32 %i{n}, %me, {};", 2 + self.below(12)),
                _ => format!("and.b32 %i{n}, {}, 3;", self.register("r")),
            },
        };
        // One turn more where the number is looked at last.
        let last = self.below(2) == 0;
        self.line(&format!("{turns} again{n}:"));
        if !last {
            self.line(&format!(
                "setp.eq.u32 %c{n}, %i{n}, 0; @%c{n} bra out{n}; sub.u32 %i{n}, %i{n}, 1;"
            ));
        }
        self.part_of_turn(together, depth);
        match self.below(6) {
            0 | 1 => {
                let condition = self.condition(together);
                self.line(&format!("@{condition} bra out{n};"));
            }
            2 if !last => {
                // On with the next turn.
                let condition = self.condition(together);
                self.line(&format!("@{condition} bra again{n};"));
                self.part_of_turn(together, depth);
            }
            3 => {
                // On with the last part of the turn, or out.
                let [skip, leave] = [(); 2].map(|()| self.condition(together));
                self.line(&format!("@{skip} bra rest{n};"));
                self.part_of_turn(together, depth);
                self.line(&format!("@{leave} bra out{n}; rest{n}:"));
                self.part_of_turn(together, depth);
            }
            _ => {}
        }
        self.line(&match last {
            true => format!(
                "setp.eq.u32 %c{n}, %i{n}, 0; sub.u32 %i{n}, %i{n}, 1; @!%c{n} bra again{n}; out{n}:"
            ),
            false => format!("bra.uni again{n}; out{n}:"),
        });
    }

    /// What a turn does: anything, or little enough for masks.
    fn part_of_turn(&mut self, together: Together, depth: usize) {
        if self.below(3) == 0 {
            return self.statements(together, depth - 1);
        }
        for _ in 0..1 + self.below(3) {
            match self.below(8) {
                0 => self.load(),
                1 => self.own(),
                2 if depth > 1 => self.turns(Together::Alone, depth - 1),
                _ => self.arithmetic(),
            }
        }
    }

    fn statements(&mut self, together: Together, depth: usize) {
        for _ in 0..1 + self.below(5) {
            if self.left == 0 {
                return;
            }
            self.left -= 1;
            match self.below(20) {
                0..=3 => self.arithmetic(),
                4..=6 => self.load(),
                7 => self.unrolled(),
                8..=10 => self.own(),
                11 if self.below(3) == 0 => self.count(),
                11 if self.wild => {
                    self.wild = false;
                    let who = self.below((self.threads() * BLOCKS) as usize);
                    let what = self.pick(&[
                        "trap;",
                        "st.global.u32 [%far_away], %x;",
                        "st.global.u32 [%own+1], %x;",
                        "ld.global.v2.u32 {%r0, %r1}, [%count];",
                    ]);
                    self.line(&format!("setp.eq.u32 %pt, %id, {who}; @%pt {what}"));
                }
                12..=14 if together != Together::Alone => self.warp_operation(),
                15 if together == Together::Block => self.block_operation(),
                16 if self.below(6) == 0 => {
                    let who = match together {
                        Together::Block => Together::Warp,
                        other => other,
                    };
                    let condition = self.condition(who);
                    let how = self.pick(&["bra end", "exit", "ret"]);
                    self.line(&format!("@{condition} {how};"));
                }
                17 if depth > 0 => self.turns(Together::Alone, depth),
                _ if depth > 0 => self.branch(together, depth),
                _ => self.arithmetic(),
            }
        }
    }
}

/// A kernel `k(.u64 out, .u64 all, .u32 n)`.
fn kernel(random: &mut Random, shape: [u32; 3]) -> String {
    let wild = random.below(4) == 0;
    let spins = random.below(5) == 0;
    // Without operations of all, a kernel is not run in rounds.
    let together = match random.below(3) {
        0 => Together::Alone,
        _ => Together::Block,
    };
    let left = 5 + random.below(40);
    let mut writer = Writer {
        random,
        text: String::new(),
        names: 0,
        left,
        shape,
        wild,
        spins,
    };
    while writer.left > 0 {
        writer.statements(together, 3);
    }
    let Writer { text, names, .. } = writer;
    let names = names + 1;
    let threads: u32 = shape.iter().product();
    let total = threads * BLOCKS;
    let mut ends = String::new();
    for n in 0..EACH {
        let _ = writeln!(
            ends,
            "mad.lo.u32 %sum, %sum, 31, %r{n}; mov.b32 %t, %f{n}; mad.lo.u32 %sum, %sum, 31, %t;
            mov.b64 {{%t, %t2}}, %q{n}; mad.lo.u32 %sum, %sum, 31, %t; xor.b32 %sum, %sum, %t2;
            selp.u32 %t, 5, 9, %p{n}; mad.lo.u32 %sum, %sum, 31, %t;
            cvt.u32.u16 %t, %h{n}; mad.lo.u32 %sum, %sum, 31, %t;"
        );
    }
    harness::module(&format!(
        ".visible .entry k(.param .u64 out, .param .u64 all, .param .u32 n)
        {{
            .reg .b32 %r<{EACH}>, %t, %t2, %x, %me, %id, %n, %u, %block, %sum, %tile, %tiles;
            .reg .b32 %w<3>, %down, %far, %x<{names}>, %i<{names}>, %j<{names}>;
            .reg .f32 %f<{EACH}>, %v<{names}>, %k<{names}>;
            .reg .b64 %q<{EACH}>, %out, %all, %own, %count, %wide, %far_away, %y<{names}>, %z<{names}>;
            .reg .pred %p<{EACH}>, %pt, %c<{names}>;
            .reg .b16 %h<{EACH}>;
            .shared .align 16 .b8 tile[2048];
            ld.param.u64 %out, [out]; ld.param.u64 %all, [all]; ld.param.u32 %n, [n];
            mov.u32 %x, %tid.x; mov.u32 %block, %ctaid.x;
            mov.u32 %t, %tid.z; mov.u32 %t2, %tid.y; mad.lo.u32 %t, %t, {}, %t2;
            mad.lo.u32 %me, %t, {}, %x;
            mad.lo.u32 %id, %block, {threads}, %me;
            mul.wide.u32 %own, %id, 4; add.s64 %own, %out, %own;
            add.s64 %count, %out, {};
            mov.u32 %tiles, tile; mad.lo.u32 %tile, %me, 16, %tiles;
            st.shared.v4.u32 [%tile], {{%me, %x, %n, %me}};
            add.u32 %w0, %x, 0xfffffffd; add.u32 %w1, %x, 0x7ffffffb; shl.b32 %w2, %x, 1;
            sub.u32 %down, 9, %x; mul.lo.u32 %far, %x, 0x9e3779b1;
            mul.lo.u32 %u, %n, 77; mov.u64 %far_away, 64;
            mov.u32 %r0, %id; mul.lo.u32 %r1, %id, 40503; shr.u32 %r2, %r1, 3; mov.u32 %r3, 5;
            mov.u32 %r4, %x; cvt.rn.f32.u32 %f0, %x; mov.f32 %f1, 0f3fc00000; mov.f32 %f2, 0f40000000;
            cvt.u16.u32 %h0, %x; cvt.u16.u32 %h1, %r1; mov.u16 %h2, 0x3c00;
            mov.u64 %q0, 77; cvt.u64.u32 %q1, %r1; mov.u64 %q2, %q1;
            setp.gt.u32 %p0, %r2, 300; setp.lt.u32 %p1, %x, 9; setp.ne.u32 %p2, %n, 0;
            {text}
            end:
            mov.u32 %sum, 0;
            {ends}
            st.global.u32 [%own+{}], %sum;
            ret;
        }}",
        shape[1],
        shape[0],
        OWN as u32 * total * 4,
        (OWN as u32 - 1) * total * 4,
    ))
}

/// How a launch ends: what a fault is and where.
type End = Option<(FaultKind, [u32; 3], Option<[u32; 3]>)>;

/// What a launch leaves behind, and how it ends.
fn outcome(module: &Arc<Module>, shape: [u32; 3], n: u32) -> (Vec<u32>, End) {
    let words = shape.iter().product::<u32>() as usize * BLOCKS as usize * OWN + 1;
    let out =
        memory::alloc(memory::Device::FIRST, 4 * words as u64, 1, Kind::Device).expect("memory");
    let all = memory::alloc(memory::Device::FIRST, BYTES as u64, 1, Kind::Device).expect("memory");
    let filled: Vec<u32> = (0..BYTES as u32 / 4)
        .map(|n| n.wrapping_mul(0x9e37_79b9) >> (n % 9))
        .collect();
    // SAFETY: the allocations have as many bytes, and nobody else knows them.
    unsafe {
        std::ptr::write_bytes(out.base as *mut u8, 0, 4 * words);
        std::ptr::copy_nonoverlapping(filled.as_ptr().cast::<u8>(), all.base as *mut u8, BYTES);
    }
    let kernel = module.kernel("k").expect("it is there");
    let middle = all.base + MIDDLE as u64;
    let values: [&[u8]; 3] = [
        &out.base.to_le_bytes(),
        &middle.to_le_bytes(),
        &n.to_le_bytes(),
    ];
    let result = grid::run(&harness::launch(
        module,
        kernel,
        [BLOCKS, 1, 1],
        shape,
        0,
        &values,
    ));
    let mut left = vec![0u32; words];
    // SAFETY: as above, and the launch is over.
    unsafe {
        std::ptr::copy_nonoverlapping(out.base as *const u8, left.as_mut_ptr().cast(), 4 * words);
    }
    memory::free(out.base);
    memory::free(all.base);
    match result {
        Ok(()) => (left, None),
        // Whom a deadlock is told of, and how far others came, is chance.
        Err(fault) if fault.kind == FaultKind::Deadlock => {
            (vec![], Some((fault.kind, [0; 3], None)))
        }
        Err(fault) => (vec![], Some((fault.kind, fault.block, fault.thread))),
    }
}

#[test]
fn kernels_with_short_branches_do_the_same() {
    let cases = setting("SOFTCUDA_FUZZ_CASES").map_or(DEFAULT_CASES, |cases| cases / SHARE);
    let alone = setting("SOFTCUDA_FUZZ_CASE").is_some();
    let (faults, deadlocks) = (AtomicU64::new(0), AtomicU64::new(0));
    run_cases(cases, |_, random, _| {
        let shape = SHAPES[random.below(SHAPES.len())];
        let source = kernel(random, shape);
        if alone {
            println!("{source}");
        }
        let [vectors, rounds, fibers] = in_all_forms(&source);
        for n in [random.below(40) as u32, 0x7fff_fffe] {
            let expected = outcome(&fibers, shape, n);
            if let Some((kind, ..)) = expected.1 {
                let counter = if kind == FaultKind::Deadlock {
                    &deadlocks
                } else {
                    &faults
                };
                counter.fetch_add(1, Ordering::Relaxed);
            }
            for (module, form) in [(&vectors, "vectors"), (&rounds, "rounds")] {
                let mut got = outcome(module, shape, n);
                let mut expected = expected.clone();
                if got != expected {
                    // A damaged kernel of another test may have written here meanwhile: what is
                    // wrong comes again.
                    (got, expected) = (outcome(module, shape, n), outcome(&fibers, shape, n));
                }
                if got != expected {
                    let at = got.0.iter().zip(&expected.0).position(|(a, b)| a != b);
                    return Err(format!(
                        "{shape:?} threads, n = {n}: something else in {form}: word {at:?}, {:?} \
                        for {:?}\n{source}",
                        got.1, expected.1
                    ));
                }
            }
        }
        Ok(())
    });
    let (faults, deadlocks) = (faults.into_inner(), deadlocks.into_inner());
    println!(
        "{cases} kernels in all forms, of whose launches {faults} fault, {deadlocks} deadlock"
    );
    assert!(alone || deadlocks <= cases / 2, "{deadlocks} deadlock");
}
