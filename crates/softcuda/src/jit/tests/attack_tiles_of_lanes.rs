//! Attacks on tiles of lanes, on volatile accesses to shared memory, and on divisions in rows.
//!
//! Random kernels are run in vectors, in rounds and as fibers. They have no races: lanes take
//! only from lanes of their own tile that there are, and tell each other something in shared memory
//! only across a wait. What volatile accesses do is compared with a kernel that has a `brx.idx`
//! that nobody comes to: there all accesses stay volatile.
//!
//! `SOFTCUDA_FUZZ_CASES` sets the number of cases of each test, `SOFTCUDA_FUZZ_CASE` runs one case
//! alone and prints its kernel.

use std::fmt::Write as _;

use super::forms::{Outcome, difference, kernel, run, same};
use super::fuzz::{Random, run_cases, setting};
use crate::jit::module::Form;

/// Cases of a plain `cargo test`.
const DEFAULT_CASES: u64 = 20;

const BLOCKS: [[u32; 3]; 14] = [
    [32, 1, 1],
    [64, 1, 1],
    [128, 1, 1],
    [8, 8, 1],
    [16, 4, 1],
    [20, 2, 1],
    [33, 1, 1],
    [40, 1, 1],
    [40, 3, 1],
    [4, 4, 4],
    [32, 2, 2],
    [5, 3, 3],
    [7, 1, 1],
    [96, 1, 1],
];

fn cases() -> u64 {
    setting("SOFTCUDA_FUZZ_CASES").unwrap_or(DEFAULT_CASES)
}

/// Runs a body in all forms, and in vectors of both widths. All tests share the device's memory:
/// what is outside of one's buffers may be in another's, so what differs is run again.
fn compare(body: &str, block: [u32; 3], n: u32, several: bool) -> Result<Outcome, String> {
    let mut end = compare_once(body, block, n, several);
    for _ in 0..2 {
        if end.is_ok() {
            break;
        }
        end = compare_once(body, block, n, several);
    }
    end
}

fn compare_once(body: &str, block: [u32; 3], n: u32, several: bool) -> Result<Outcome, String> {
    let end = |form, more: &str| {
        let source = kernel(&format!("{more} {body}"));
        match run(&source, form, [1, 1, 1], block, n) {
            Err((kind, block, _)) if several => Err((kind, block, None)),
            end => end,
        }
    };
    let expected = end(Form::Fibers, "");
    for (form, more) in [
        (Form::Rounds, ""),
        (Form::Vectors, ""),
        (Form::Vectors, "mov.u32 %r39, 1;"),
    ] {
        let got = end(form, more);
        if got != expected {
            let what = difference(&got, &expected);
            return Err(format!("{form:?} {block:?} n={n} {more} {what}\n{body}"));
        }
    }
    Ok(expected)
}

fn show(text: &str) {
    if setting("SOFTCUDA_FUZZ_CASE").is_some() {
        println!("{text}");
    }
}

/// A mask that is one number in all lanes, in a register: warps that are full, and others.
#[test]
fn masks_of_all_lanes_in_a_register() {
    for make in [
        "mov.u32 %r25, -1;",
        "mov.u32 %r24, -1; mov.u32 %r25, %r24;",
        "mov.u32 %r24, 0xffff; shl.b32 %r23, %r24, 16; or.b32 %r25, %r23, %r24;",
        "mov.u32 %r24, 0; not.b32 %r25, %r24;",
    ] {
        for part in [
            "",
            "setp.ge.u32 %p1, %r35, 32; @%p1 ret;",
            "setp.eq.u32 %p1, %r35, 5; @%p1 ret;",
            "and.b32 %r10, %r35, 1; setp.eq.u32 %p1, %r10, 1; @%p1 add.u32 %r4, %r4, 3;",
            "setp.ge.u32 %p1, %r35, %r3; @%p1 bra on;",
        ] {
            let mut body = format!("{make} mad.lo.u32 %r4, %r2, %r2, 5; {part}");
            for by in [1, 2, 4, 8, 16] {
                write!(
                    body,
                    "shfl.sync.up.b32 %r5|%p2, %r4, {by}, 0, %r25; @!%p2 mov.u32 %r5, 0;
                    add.u32 %r4, %r4, %r5;"
                )
                .expect("text takes text");
            }
            for end in ["", "bar.warp.sync %r25;", "bar.sync 0;"] {
                // A lane that has left brings nothing.
                let uses = part.contains("35, 5;");
                let result = if uses { "%r20" } else { "%r4" };
                let body = format!("{body} {end} on: mov.u32 %r9, {result};");
                for block in BLOCKS {
                    for n in [0, 32, 1000] {
                        _ = same(&body, block, n);
                    }
                }
            }
        }
    }
}

/// Numbers of lanes that are far, segments of one lane, and registers that are mask and value.
#[test]
fn selectors_and_masks() {
    for step in [
        "shfl.sync.down.b32 %r5|%p2, %r4, 40, 0x181f, %r25;",
        "shfl.sync.up.b32 %r5|%p2, %r4, 3, -1, %r25;",
        "shfl.sync.up.b32 %r5|%p2, %r25, 1, 0x1800, %r25;",
        "shfl.sync.up.b32 %r25|%p2, %r4, 1, 0x1800, %r25; mov.u32 %r5, %r25;",
        "shfl.sync.idx.b32 %r5|%p2, %r4, 32, 0x1800, %r25;",
        "setp.ge.u32 %p3, %r3, 5; @%p3 shfl.sync.up.b32 %r5|%p2, %r4, 1, 0x1800, %r25;",
    ] {
        for make in [
            "shl.b32 %r25, %r22, %r21;",
            "setp.lt.u32 %p1, %r3, 1000; @%p1 shl.b32 %r25, %r22, %r21;",
            "setp.ge.u32 %p1, %r3, 1000; @%p1 bra on; shl.b32 %r25, %r22, %r21; on:",
            ".reg .b64 %w<3>; mov.b64 %w1, 0xff; shl.b64 %w2, %w1, %r21; cvt.u32.u64 %r25, %w2;",
        ] {
            let body = format!(
                "mov.u32 %r20, %laneid; mad.lo.u32 %r4, %r2, 77, 5; and.b32 %r21, %r20, 24;
                mov.u32 %r22, 0xff; {make} {step} selp.u32 %r6, 1, 2, %p2;
                mad.lo.u32 %r9, %r5, 3, %r6;"
            );
            for block in BLOCKS {
                for n in [3, 5] {
                    same(&body, block, n).expect("nothing faults");
                }
            }
        }
    }
}

/// A kernel of tiles.
struct Tiles<'a> {
    random: &'a mut Random,
    text: String,
    /// The widths of tiles that there are masks of: `%m0` and so on.
    masks: Vec<u32>,
    names: usize,
    left: usize,
    /// The widest tiles that are whole or gone.
    widest: u32,
}

const VALUES: usize = 4;

impl Tiles<'_> {
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

    fn value(&mut self) -> String {
        format!("%v{}", self.random.below(VALUES))
    }

    /// Computes the mask of a lane's tile.
    fn mask(&mut self, width: u32) {
        let at = self.masks.len();
        self.masks.push(width);
        let ones = (1u64 << width) - 1;
        let not = width.wrapping_neg() as i32;
        let (m, a, b, c) = (
            format!("%m{at}"),
            format!("%ma{at}"),
            format!("%mb{at}"),
            format!("%mc{at}"),
        );
        let low = width - 1;
        let text = match (self.random.below(12), width) {
            (0, 32) => format!("mov.u32 {m}, -1;"),
            (1, 32) => format!("mov.u32 {a}, 0; not.b32 {m}, {a};"),
            (0 | 1, 16) => format!(
                "and.b32 {a}, %lane, 16; setp.eq.u32 %mp{at}, {a}, 0;
                selp.b32 {m}, 0xffff, 0xffff0000, %mp{at};"
            ),
            (2, 16) => format!(
                "and.b32 {a}, %lane, 16; setp.eq.u32 %mp{at}, {a}, 16; not.pred %mq{at}, %mp{at};
                selp.b32 {m}, 0xffff, 0xffff0000, %mq{at};"
            ),
            (3, 16) => format!(
                "and.b32 {a}, %lane, 16; setp.ne.u32 %mp{at}, {a}, 0;
                selp.b32 {b}, -1, 0, %mp{at}; xor.b32 {m}, {b}, 0xffff;"
            ),
            (_, 32) => format!("or.b32 {a}, %lane, -1; mov.b32 {m}, {a};"),
            (0, _) => format!(
                "and.b32 {a}, %lane, {low}; xor.b32 {b}, {a}, %lane; mov.u32 {c}, {ones};
                shl.b32 {m}, {c}, {b};"
            ),
            (1, _) => {
                format!("not.b32 {a}, {low}; and.b32 {b}, %lane, {a}; shl.b32 {m}, {ones}, {b};")
            }
            (2, _) => format!(
                "or.b32 {a}, %lane, {low}; xor.b32 {b}, {a}, {low}; mov.u32 {c}, {ones};
                shl.b32 {m}, {c}, {b};"
            ),
            (3, _) => format!(
                "and.b32 {a}, %lane, {not}; mov.u32 {b}, 0;
                bfi.b32 {c}, {ones}, {b}, 0, {width}; shl.b32 {m}, {c}, {a};"
            ),
            (4, _) => format!(
                "shr.u32 {a}, %lane, {0}; shl.b32 {b}, {a}, {0}; shl.b32 {m}, {ones}, {b};",
                width.trailing_zeros()
            ),
            (5, _) => format!("lop3.b32 {a}, %lane, {low}, 0, 0x30; shl.b32 {m}, {ones}, {a};"),
            // What may not be known: it is written twice.
            (6, _) => {
                format!("mov.u32 {m}, {ones}; and.b32 {a}, %lane, {not}; shl.b32 {m}, {m}, {a};")
            }
            (7, _) => format!(
                "setp.lt.u32 %mp{at}, %r3, 50; and.b32 {a}, %lane, {not};
                @%mp{at} bra ma{at}; shl.b32 {m}, {ones}, {a}; bra mb{at};
                ma{at}: shl.b32 {m}, {ones}, {a}; mb{at}:"
            ),
            // Known only in another block, or by a longer way.
            (8, _) => format!(
                "and.b32 {a}, %lane, {not}; bra mc{at}; mc{at}: shl.b32 {b}, {ones}, {a};
                mov.b32 {c}, {b}; mov.b32 {m}, {c};"
            ),
            (9, _) => format!(
                "and.b32 {a}, %lane, {not}; mov.u32 {b}, {ones}; shl.b32 {c}, {b}, {a};
                xor.b32 {m}, {c}, 0;"
            ),
            _ => format!("and.b32 {a}, %lane, {not}; mov.u32 {b}, {ones}; shl.b32 {m}, {b}, {a};"),
        };
        self.line(&text);
    }

    /// A mask of tiles that are not wider.
    fn some_mask(&mut self, most: u32) -> (String, u32) {
        let fits: Vec<usize> = (0..self.masks.len())
            .filter(|at| self.masks[*at] <= most)
            .collect();
        let at = fits[self.random.below(fits.len())];
        if most == 32 && self.random.below(6) == 0 {
            return ("-1".to_owned(), 32);
        }
        (format!("%m{at}"), self.masks[at])
    }

    /// A shuffle of a value, in tiles. What comes from a lane that there is not is 0.
    fn shuffle(&mut self, most: u32, guard: &str) {
        let (mask, width) = self.some_mask(most);
        let segment = (32 - width) << 8;
        let (from, to) = (self.value(), self.value());
        let name = self.name();
        let kind = self.pick(&["up", "down", "bfly", "idx"]);
        let by = self.random.below(width as usize) as u32;
        // Numbers, registers that hold one, the same in all lanes, and others.
        let selector = match (self.random.below(6), kind) {
            (0, _) => format!("%s{by}"),
            (1, _) => {
                self.line(&format!("and.b32 %b{name}, %r3, {};", width - 1));
                format!("%b{name}")
            }
            (2, "idx") => {
                self.line(&format!(
                    "mad.lo.u32 %b{name}, %lane, {}, {by}; and.b32 %b{name}, %b{name}, {};",
                    3 + 2 * by,
                    width - 1
                ));
                format!("%b{name}")
            }
            (2, "bfly") => {
                self.line(&format!("and.b32 %b{name}, {from}, {};", width - 1));
                format!("%b{name}")
            }
            _ => by.to_string(),
        };
        let clamp = match (kind, self.random.below(5)) {
            ("up", 0) => segment | self.random.below(width as usize) as u32,
            ("up", _) => segment,
            (_, 0) => segment | self.random.below(32) as u32,
            _ => segment | 31,
        };
        let clamp = match self.random.below(4) {
            0 => {
                self.line(&format!("mov.u32 %cl{name}, {clamp};"));
                format!("%cl{name}")
            }
            _ => clamp.to_string(),
        };
        let predicate = if self.random.below(3) == 0 {
            String::new()
        } else {
            format!("|%sp{name}")
        };
        let own = self.random.below(3) == 0;
        let result = if own { from.clone() } else { to.clone() };
        self.line(&format!(
            "{guard} shfl.sync.{kind}.b32 %t{name}{predicate}, {from}, {selector}, {clamp}, {mask};"
        ));
        // Where it comes from.
        let text = match kind {
            "up" => "mov.u32 %x, %r35;".to_owned(),
            "down" => format!("add.u32 %x, %r35, {selector};"),
            "bfly" => format!("xor.b32 %x, %r35, {selector};"),
            _ => format!(
                "and.b32 %x, %r35, {}; or.b32 %x, %x, {selector};",
                width.wrapping_neg() as i32
            ),
        };
        let inside =
            format!("{text} setp.lt.u32 %inside, %x, %r36; selp.b32 %y, %t{name}, 0, %inside;");
        self.line(&inside);
        if !predicate.is_empty() {
            self.line(&format!(
                "selp.u32 %z, 7, 9, %sp{name}; mad.lo.u32 %y, %y, 31, %z;"
            ));
        }
        let how = self.pick(&["add.u32", "xor.b32", "max.u32"]);
        self.line(&format!("{guard} {how} {result}, {to}, %y;"));
    }

    /// Two shuffles of a double.
    fn double(&mut self, most: u32) {
        let (mask, width) = self.some_mask(most);
        let segment = (32 - width) << 8;
        let mut by = width / 2;
        let turns = 1 + self.random.below(4);
        for _ in 0..turns {
            if by == 0 {
                return;
            }
            let name = self.name();
            self.line(&format!(
                "mov.b64 {{%lo{name}, %hi{name}}}, %d;
                shfl.sync.up.b32 %lo{name}|%sp{name}, %lo{name}, {by}, {segment}, {mask};
                shfl.sync.up.b32 %hi{name}|%sp{name}, %hi{name}, {by}, {segment}, {mask};
                mov.b64 %e, {{%lo{name}, %hi{name}}}; @!%sp{name} mov.f64 %e, 0d0000000000000000;
                add.f64 %d, %d, %e;"
            ));
            by /= 2;
        }
    }

    /// A sum of a tile, as cooperative groups have it.
    fn chain(&mut self, most: u32) {
        let (mask, width) = self.some_mask(most);
        let segment = (32 - width) << 8;
        let value = self.value();
        let kind = self.pick(&["up", "up", "bfly"]);
        let mut by = if kind == "up" { 1 } else { width / 2 };
        while by > 0 && by < width {
            let name = self.name();
            match kind {
                "up" => self.line(&format!(
                    "shfl.sync.up.b32 %t{name}|%sp{name}, {value}, {by}, {segment}, {mask};
                    @%sp{name} add.u32 {value}, {value}, %t{name};"
                )),
                _ => self.line(&format!(
                    "shfl.sync.bfly.b32 %t{name}, {value}, {by}, {}, {mask};
                    xor.b32 %x, %r35, {by}; setp.lt.u32 %inside, %x, %r36;
                    @%inside add.u32 {value}, {value}, %t{name};",
                    segment | 31
                )),
            }
            by = if kind == "up" { by * 2 } else { by / 2 };
        }
    }

    /// Lanes of a tile tell each other something.
    fn memory(&mut self, most: u32) {
        let (mask, width) = self.some_mask(most);
        let (value, to) = (self.value(), self.value());
        let volatile = self.pick(&["", ".volatile"]);
        let other = 1 + self.random.below(width.max(2) as usize - 1) as u32 % width.max(1);
        let other = if width == 1 { 0 } else { other };
        self.line(&format!(
            "st{volatile}.shared.u32 [%own], {value}; bar.warp.sync {mask};
            xor.b32 %x, %r35, {other}; setp.lt.u32 %inside, %x, %r36; selp.b32 %x, %x, %r35, %inside;
            shl.b32 %x, %x, 2; add.u32 %x, %x, %base; ld{volatile}.shared.u32 {to}, [%x];
            bar.warp.sync {mask};"
        ));
    }

    /// What is asked of a tile besides.
    fn other(&mut self, most: u32) {
        let (mask, _) = self.some_mask(most);
        let (from, to) = (self.value(), self.value());
        let text = match self.random.below(5) {
            0 => format!(
                "setp.gt.s32 %inside, {from}, 100; vote.sync.ballot.b32 %x, %inside, {mask};
                xor.b32 {to}, {to}, %x;"
            ),
            1 => format!("redux.sync.add.u32 %x, {from}, {mask}; xor.b32 {to}, {to}, %x;"),
            2 => format!(
                "and.b32 %x, {from}, 3; match.any.sync.b32 %y, %x, {mask}; add.u32 {to}, {to}, %y;"
            ),
            3 => format!(
                "setp.gt.s32 %inside, {from}, 100; vote.sync.any.pred %inside, %inside, {mask};
                @%inside add.u32 {to}, {to}, 3;"
            ),
            _ => format!("bar.warp.sync {mask};"),
        };
        self.line(&text);
    }

    fn arithmetic(&mut self) {
        let (to, a, b) = (self.value(), self.value(), self.value());
        let number = self.random.below(1000);
        let how = self.random.below(7);
        self.line(&match how {
            0 => format!("mad.lo.u32 {to}, {a}, 31, {b};"),
            1 => format!("add.u32 {to}, {a}, {number};"),
            2 => format!("xor.b32 {to}, {a}, %r35;"),
            3 => format!("setp.lt.u32 %inside, {a}, {b}; @%inside add.u32 {to}, {a}, {number};"),
            4 => format!("setp.lt.u32 %inside, {a}, %lane; selp.b32 {to}, {b}, {number}, %inside;"),
            5 => format!("cvt.rn.f64.u32 %e, {a}; add.f64 %d, %d, %e;"),
            _ => format!(
                "and.b32 %x, {a}, 63; mul.wide.u32 %rd10, %x, 4; add.u64 %rd10, %rd10, %rd2;
                ld.global.u32 %x, [%rd10]; add.u32 {to}, {b}, %x;"
            ),
        });
    }

    /// A predicate that is the same in each tile of the width.
    fn condition(&mut self, width: u32) -> String {
        let name = self.name();
        let number = self.random.below(4);
        self.line(&format!("shr.u32 %x, %r35, {};", width.trailing_zeros()));
        let text = match self.random.below(5) {
            0 => format!("setp.eq.u32 %q{name}, %x, {number};"),
            1 => format!(
                "and.b32 %x, %x, 1; setp.eq.u32 %q{name}, %x, {};",
                number & 1
            ),
            2 => format!("setp.lt.u32 %q{name}, %x, {number};"),
            3 => format!("setp.gt.u32 %q{name}, %r3, 40;"),
            _ => format!("add.u32 %x, %x, %r3; and.b32 %x, %x, 2; setp.eq.u32 %q{name}, %x, 0;"),
        };
        self.line(&text);
        format!("%q{name}")
    }

    /// Statements that lanes do whose tiles of this width are together. All of a block are, if
    /// `all`.
    fn statements(&mut self, most: u32, all: bool, depth: usize) {
        let count = 1 + self.random.below(6);
        for _ in 0..count {
            let most = most.min(self.widest);
            if self.left == 0 {
                return;
            }
            self.left -= 1;
            match self.random.below(20) {
                0..=4 => self.shuffle(most, ""),
                5 => {
                    let width = self.narrow(most);
                    let condition = self.condition(width);
                    let not = self.pick(&["", "!"]);
                    self.shuffle(width, &format!("@{not}{condition}"));
                }
                6 | 7 => self.chain(most),
                8 => self.double(most),
                9 | 10 => self.memory(most),
                11 => self.other(most),
                12 if all => self.line("barrier.sync 0;"),
                13 | 14 if depth < 3 => self.branch(most, all, depth),
                15 | 16 if depth < 3 => self.repeat(most, depth),
                17 if all && depth == 0 && self.random.below(3) == 0 => {
                    let width = self.narrow(most);
                    let condition = self.condition(width);
                    let how = self.pick(&["ret", "exit"]);
                    self.line(&format!("@{condition} {how};"));
                    self.widest = self.widest.min(width);
                }
                _ => self.arithmetic(),
            }
        }
    }

    fn narrow(&mut self, most: u32) -> u32 {
        let fits: Vec<u32> = self
            .masks
            .iter()
            .copied()
            .filter(|width| *width <= most)
            .collect();
        fits[self.random.below(fits.len())]
    }

    fn branch(&mut self, most: u32, all: bool, depth: usize) {
        let width = self.narrow(most);
        let condition = self.condition(width);
        let name = self.name();
        // Each way has as many barriers.
        let barriers = all && self.random.below(4) == 0;
        self.line(&format!("@{condition} bra l{name};"));
        self.statements(width, false, depth + 1);
        if barriers {
            self.line("barrier.sync 0;");
            self.statements(width, false, depth + 1);
        }
        self.line(&format!("bra m{name}; l{name}:"));
        if barriers {
            self.line("barrier.sync 0;");
        }
        if self.random.below(2) == 0 {
            self.statements(width, false, depth + 1);
        }
        self.line(&format!("m{name}:"));
    }

    fn repeat(&mut self, most: u32, depth: usize) {
        let width = self.narrow(most);
        let name = self.name();
        let times = self.random.below(3);
        self.line(&format!(
            "shr.u32 %n{name}, %r35, {};",
            width.trailing_zeros()
        ));
        match self.random.below(3) {
            0 => self.line(&format!("and.b32 %n{name}, %n{name}, 3;")),
            1 => self.line(&format!("mov.u32 %n{name}, {times};")),
            _ => self.line(&format!("and.b32 %n{name}, %r3, 3;")),
        }
        self.line(&format!("mov.u32 %i{name}, 0; l{name}:"));
        self.statements(width, false, depth + 1);
        self.line(&format!(
            "add.u32 %i{name}, %i{name}, 1; setp.le.u32 %q{name}, %i{name}, %n{name};
            @%q{name} bra l{name};"
        ));
    }

    fn write(random: &mut Random) -> String {
        let mut writer = Tiles {
            random,
            text: String::new(),
            masks: vec![],
            names: 0,
            left: 22,
            widest: 32,
        };
        writer.line("mov.u32 %lane, %laneid;");
        let count = 1 + writer.random.below(4);
        for _ in 0..count {
            let width = [1, 2, 4, 8, 16, 16, 8, 32][writer.random.below(8)];
            writer.mask(width);
        }
        for at in 0..VALUES {
            writer.line(&format!("mad.lo.u32 %v{at}, %r35, {}, {at};", 77 + 91 * at));
        }
        writer.line("cvt.rn.f64.u32 %d, %r35; shl.b32 %own, %r35, 2; mov.u32 %base, s; add.u32 %own, %own, %base;");
        for by in 0..32 {
            writer.line(&format!("mov.u32 %s{by}, {by};"));
        }
        // Only what masks are for is done together.
        writer.statements(32, true, 0);
        if writer.random.below(2) == 0 {
            writer.line("barrier.sync 0;");
        }
        writer.statements(32, true, 1);
        let text = writer.text;
        let masks = writer.masks;
        let names = writer.names + 1;
        let mut declared = format!(
            ".reg .b32 %lane, %x, %y, %z, %own, %base; .reg .b32 %v<{VALUES}>; .reg .b32 %s<32>;
            .reg .f64 %d, %e; .reg .pred %inside; .reg .b32 %b<{names}>; .reg .b32 %cl<{names}>;
            .reg .b32 %t<{names}>; .reg .b32 %lo<{names}>; .reg .b32 %hi<{names}>; .reg .b32 %n<{names}>;
            .reg .b32 %i<{names}>; .reg .pred %q<{names}>; .reg .pred %sp<{names}>;"
        );
        for (at, _) in masks.iter().enumerate() {
            write!(
                declared,
                ".reg .b32 %m{at}, %ma{at}, %mb{at}, %mc{at}; .reg .pred %mp{at}, %mq{at};"
            )
            .expect("text takes text");
        }
        format!(
            "{declared} {text} mov.b64 {{%x, %y}}, %d; xor.b32 %r9, %x, %y;
            mad.lo.u32 %r9, %r9, 31, %v0; mad.lo.u32 %r9, %r9, 31, %v1;
            mad.lo.u32 %r9, %r9, 31, %v2; mad.lo.u32 %r9, %r9, 31, %v3;"
        )
    }
}

#[test]
fn tiles() {
    let tally = run_cases(cases(), |_, random, _| {
        let body = Tiles::write(random);
        show(&body);
        for _ in 0..4 {
            let block = BLOCKS[random.below(BLOCKS.len())];
            let n = random.below(100) as u32;
            if let Err(what) = compare(&body, block, n, false)? {
                return Err(format!("{block:?} n={n}: {what:?}\n{body}"));
            }
        }
        Ok(())
    });
    drop(tally);
}

/// Straight accesses of threads to their own 16 bytes, volatile or not, of all sizes, in loops and
/// outside; between barriers they read those of others.
struct Volatile<'a> {
    random: &'a mut Random,
    text: String,
    names: usize,
    left: usize,
}

impl Volatile<'_> {
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

    /// An access at an address.
    fn access(&mut self, at: &str, loads: bool) {
        let volatile = self.pick(&["", ".volatile", ".volatile"]);
        let space = self.pick(&[".shared", ".shared::cta", ".shared"]);
        let (a, b, c, d) = (
            self.random.below(4),
            self.random.below(4),
            self.random.below(4),
            self.random.below(4),
        );
        let word = 4 * self.random.below(4);
        let guard = self.pick(&["", "", "", "@%odd", "@!%odd"]);
        if loads || self.random.below(2) == 0 {
            let text = match self.random.below(8) {
                0 => {
                    let [a, b, c, d] = [a, (a + 1) % 4, (a + 2) % 4, (a + 3) % 4];
                    format!(
                        "{guard} ld{volatile}{space}.v4.u32 {{%v{a}, %v{b}, %v{c}, %v{d}}}, [{at}];"
                    )
                }
                1 => format!(
                    "{guard} ld{volatile}{space}.v2.u32 {{%v{a}, %v{}}}, [{at}+{}];",
                    (a + 1) % 4,
                    word & 8
                ),
                2 => format!("{guard} ld{volatile}{space}.u8 %v{a}, [{at}+{}];", word + b),
                3 => format!(
                    "{guard} ld{volatile}{space}.u64 %w, [{at}+{}]; cvt.u32.u64 %v{a}, %w;",
                    word & 8
                ),
                4 => format!(
                    "{guard} ld{volatile}{space}.s16 %v{a}, [{at}+{}];",
                    word + (b & 2)
                ),
                _ => format!(
                    "{guard} ld{volatile}{space}.u32 %x, [{at}+{word}]; xor.b32 %v{a}, %v{a}, %x;"
                ),
            };
            return self.line(&text);
        }
        let text = match self.random.below(8) {
            0 => format!(
                "{guard} st{volatile}{space}.v4.u32 [{at}], {{%v{a}, %v{b}, %v{c}, %v{d}}};"
            ),
            1 => format!(
                "{guard} st{volatile}{space}.v2.u32 [{at}+{}], {{%v{a}, %v{b}}};",
                word & 8
            ),
            2 => format!("{guard} st{volatile}{space}.u8 [{at}+{}], %v{a};", word + b),
            3 => format!(
                "cvt.u64.u32 %w, %v{a}; {guard} st{volatile}{space}.u64 [{at}+{}], %w;",
                word & 8
            ),
            4 => format!("{guard} red.shared.add.u32 [{at}+{word}], %v{a};"),
            _ => format!("{guard} st{volatile}{space}.u32 [{at}+{word}], %v{a};"),
        };
        self.line(&text);
    }

    fn statements(&mut self, depth: usize, all: bool) {
        for _ in 0..1 + self.random.below(7) {
            if self.left == 0 {
                return;
            }
            self.left -= 1;
            let name = self.name();
            match self.random.below(16) {
                0..=6 => self.access("%own", false),
                7 | 8 => {
                    let (a, b) = (self.random.below(4), self.random.below(4));
                    self.line(&format!("mad.lo.u32 %v{a}, %v{b}, 31, %r35;"));
                }
                // What others have, between two barriers.
                9 | 10 if all => {
                    let by = 1 + self.random.below(40);
                    self.line(&format!(
                        "bar.sync 0; add.u32 %x, %r35, {by}; rem.u32 %x, %x, %r36;
                        shl.b32 %x, %x, 4; add.u32 %other, %x, %base;"
                    ));
                    for _ in 0..1 + self.random.below(3) {
                        self.access("%other", true);
                    }
                    self.line("bar.sync 0;");
                }
                // A flag that others wait for, in another warp or in the same.
                11 if all => {
                    let at = self.random.below(40);
                    let (st, ld) = (
                        self.pick(&["st.volatile.shared.u32", "st.volatile.shared::cta.u32"]),
                        self.pick(&["ld.volatile.shared.u32", "ld.volatile.shared::cta.u32"]),
                    );
                    let before = self.pick(&["", "LD %x, [flag];", "LD %y, [flag+4];"]);
                    let after =
                        self.pick(&["LD %x, [flag];", "LD %x, [flag]; LD %y, [flag+4];", ""]);
                    let spin = self.pick(&[
                        "l1: LD %x, [flag]; setp.eq.u32 %p, %x, 0; @%p bra l1;",
                        "bra l1; l2: nanosleep.u32 20; l1: LD %x, [flag]; setp.eq.u32 %p, %x, 0; @%p bra l2;",
                        "l1: LD %x, [flag]; setp.ne.u32 %p, %x, 0; @%p bra l2; bra.uni l1; l2:",
                        "l1: bra l2; l3: bra l1; l2: LD %x, [flag]; setp.eq.u32 %p, %x, 0; @%p bra l3;",
                        "LD %x, [flag]; setp.ne.u32 %p, %x, 0; @%p bra l1; l2: LD %x, [flag]; setp.eq.u32 %p, %x, 0; @%p bra l2; l1:",
                        "call (%x), spins, ();",
                    ]);
                    let text = format!(
                        "bar.sync 0; setp.ne.u32 %p, %r35, 0; @%p bra l4; st.shared.u32 [flag], 0; st.shared.u32 [flag+4], 0;
                        l4: bar.sync 0; rem.u32 %x, {at}, %r36; setp.ne.u32 %p, %r35, %x; @%p bra l5;
                        ST [flag+4], 77; membar.cta; ST [flag], {name};
                        l5: {before} {spin} membar.cta; {after} LD %y, [flag+4];
                        mad.lo.u32 %v0, %x, 31, %v0; add.u32 %v1, %v1, %y; bar.sync 0;"
                    );
                    let mut text = text.replace("LD", ld).replace("ST", st);
                    // `%x` is the flag when all have seen it.
                    for label in 1..6 {
                        text = text.replace(&format!("l{label}"), &format!("f{name}_{label}"));
                    }
                    self.line(&text);
                }
                12 if depth < 2 => {
                    let times = self.random.below(4);
                    let into = self.random.below(3) == 0;
                    self.line(&format!("mov.u32 %i{name}, 0;"));
                    if into {
                        self.line(&format!("bra.uni k{name};"));
                    }
                    self.line(&format!("l{name}:"));
                    self.statements(depth + 1, all);
                    self.line(&format!("k{name}:"));
                    self.statements(depth + 1, all);
                    self.line(&format!(
                        "add.u32 %i{name}, %i{name}, 1; setp.le.u32 %q{name}, %i{name}, {times};
                        @%q{name} bra l{name};"
                    ));
                }
                13 if depth < 2 => {
                    let guard = self.pick(&["@%odd", "@!%odd"]);
                    self.line(&format!("{guard} bra l{name};"));
                    self.statements(depth + 1, false);
                    if self.random.below(2) == 0 {
                        self.line(&format!("bra k{name}; l{name}:"));
                        self.statements(depth + 1, false);
                        self.line(&format!("k{name}:"));
                    } else {
                        self.line(&format!("l{name}:"));
                    }
                }
                // A scope with a label of its own.
                14 => {
                    self.line("{ .reg .u32 %in; mov.u32 %in, 0; bra on; on:");
                    self.access("%own", false);
                    if self.random.below(2) == 0 {
                        self.line("add.u32 %in, %in, 1; setp.lt.u32 %p, %in, 3; @%p bra on;");
                    }
                    self.line("}");
                }
                _ => self.access("%own", false),
            }
        }
    }

    fn write(random: &mut Random) -> String {
        let mut writer = Volatile {
            random,
            text: String::new(),
            names: 0,
            left: 26,
        };
        let odd = writer.pick(&[
            "and.b32 %x, %r35, 1; setp.eq.u32 %odd, %x, 1;",
            "setp.lt.u32 %odd, %r35, %r3;",
            "and.b32 %x, %r35, 32; setp.ne.u32 %odd, %x, 0;",
            "and.b32 %x, %r35, 8; setp.ne.u32 %odd, %x, 0;",
        ]);
        writer.line(&format!(
            "shl.b32 %own, %r35, 4; mov.u32 %base, s; add.u32 %own, %own, %base; {odd}
            st.shared.v4.u32 [%own], {{%r35, %r35, %r35, %r35}};"
        ));
        for at in 0..4 {
            writer.line(&format!("mad.lo.u32 %v{at}, %r35, {}, {at};", 77 + 91 * at));
        }
        writer.statements(0, true);
        writer.statements(0, true);
        let (text, names) = (writer.text, writer.names + 1);
        format!(
            ".reg .b32 %own, %other, %base, %x, %y; .reg .b32 %v<4>; .reg .b64 %w; .reg .pred %odd, %p;
            .reg .b32 %i<{names}>; .reg .pred %q<{names}>;
            {text} bar.sync 0; ld.shared.v4.u32 {{%r20, %r21, %r22, %r23}}, [%own];
            mad.lo.u32 %r9, %v0, 31, %v1; mad.lo.u32 %r9, %r9, 31, %v2; mad.lo.u32 %r9, %r9, 31, %v3;
            mad.lo.u32 %r9, %r9, 31, %r20; mad.lo.u32 %r9, %r9, 31, %r21;
            mad.lo.u32 %r9, %r9, 31, %r22; mad.lo.u32 %r9, %r9, 31, %r23;"
        )
    }
}

/// With a table of labels that nobody goes to, no access becomes plain.
const TABLE: &str = "setp.eq.u32 %p15, %r3, 0x7fffffff; mov.u32 %r38, 0;
    ts: .branchtargets ta, tb; @%p15 brx.idx %r38, ts; ta: tb:";

/// A kernel with shared memory for flags, and a function that waits for one.
fn flagged(body: &str) -> String {
    let source = kernel(body);
    let at = source.find(".visible .entry").expect("there is a kernel");
    let (head, kernel) = source.split_at(at);
    format!(
        "{head} .shared .align 16 .b8 flag[16];
        .func (.reg .b32 %out) spins() {{ .reg .pred %p;
            again: ld.volatile.shared.u32 %out, [flag]; setp.eq.u32 %p, %out, 0; @%p bra again; ret;
        }}
        {}",
        kernel.replace(".align 8 .b8 s[8192]", ".align 16 .b8 s[8192]")
    )
}

#[test]
fn volatile_accesses() {
    run_cases(cases(), |_, random, _| {
        let body = Volatile::write(random);
        show(&flagged(&body));
        let plain = flagged(&body);
        let other = flagged(&format!("{TABLE} {body}"));
        let wide = flagged(&format!("mov.u32 %r39, 1; {body}"));
        for _ in 0..3 {
            let block = BLOCKS[random.below(BLOCKS.len())];
            let n = random.below(100) as u32;
            let expected = run(&other, Form::Fibers, [1; 3], block, n);
            for (form, source) in [
                (Form::Fibers, &plain),
                (Form::Rounds, &plain),
                (Form::Vectors, &plain),
                (Form::Vectors, &wide),
            ] {
                let got = run(source, form, [1; 3], block, n);
                if got != expected || got.is_err() {
                    let what = difference(&got, &expected);
                    return Err(format!("{form:?} {block:?} n={n} {what}\n{body}"));
                }
            }
        }
        Ok(())
    });
}

/// Numbers divided into parts, which are where a thread loads; one of the threads far away.
fn divided(random: &mut Random) -> String {
    let mut text = String::new();
    let mut line = |more: &str| writeln!(text, "{more}").expect("text takes text");
    let from = [
        "mov.u32 %n0, %r35;",
        "mov.u32 %n0, %r2;",
        "add.u32 %n0, %r35, %r3;",
        "sub.u32 %n0, %r35, 20;",
        "add.u32 %n0, %r35, 0x7fffffe4;",
        "add.u32 %n0, %r35, 0xffffffe4;",
        "mad.lo.u32 %n0, %r35, 3, %r3;",
        "mad.lo.u32 %n0, %r35, 4, 7;",
        "sub.u32 %n0, %r3, %r35;",
        "mul.lo.u32 %n0, %r35, 0x08000000;",
        "mad.lo.u32 %n0, %r30, 7, %r1;",
        "mov.u32 %n0, %r1;",
    ];
    line(from[random.below(from.len())]);
    let divisors = [
        "%r3",
        "%r3",
        "%d1",
        "%d2",
        "%d3",
        "%d4",
        "7",
        "8",
        "9",
        "32",
        "1",
        "0",
        "-1",
        "0x80000000",
        "%r31",
    ];
    line("shr.u32 %d1, %r3, 2; add.u32 %d2, %r3, 1; neg.s32 %d3, %r3; mul.lo.u32 %d4, %r3, 5;");
    let count = 1 + random.below(4);
    let mut last = "%n0".to_owned();
    let mut parts = vec![];
    for at in 0..count {
        let ty = ["u32", "s32"][random.below(2)];
        let by = divisors[random.below(divisors.len())];
        line(&match random.below(4) {
            0 => format!("div.{ty} %q{at}, {last}, {by}; rem.{ty} %e{at}, {last}, {by};"),
            1 => format!("rem.{ty} %e{at}, {last}, {by}; div.{ty} %q{at}, {last}, {by};"),
            2 => format!(
                "div.{ty} %q{at}, {last}, {by}; mul.lo.u32 %e{at}, %q{at}, {by}; sub.u32 %e{at}, {last}, %e{at};"
            ),
            // Into the register that is divided, or that divides.
            _ => format!(
                "mov.u32 %q{at}, {last}; mov.u32 %e{at}, {by}; rem.{ty} %e{at}, %q{at}, %e{at};
                div.{ty} %q{at}, %q{at}, {by};"
            ),
        });
        parts.extend([format!("%q{at}"), format!("%e{at}")]);
        last = parts[parts.len() - 1 - random.below(2)].clone();
        if random.below(4) == 0 {
            line(&format!("add.u32 {last}, {last}, {};", random.below(40)));
        }
    }
    line("mov.u32 %n1, 0;");
    for _ in 0..1 + random.below(3) {
        let [a, b] = [0, 1].map(|_| &parts[random.below(parts.len())]);
        let times = ["1", "3", "16", "%r3", "%d2"][random.below(5)];
        // What is near is loaded; one thread, or none, goes wherever its number says.
        let guard = random.below(3);
        line(&format!(
            "mad.lo.u32 %x, {a}, {times}, {b}; setp.lt.u32 %p1, %x, 3000;"
        ));
        match guard {
            0 => line(&format!(
                "setp.eq.u32 %p2, %r35, {}; or.pred %p1, %p1, %p2;",
                random.below(70)
            )),
            1 => line("setp.eq.u32 %p2, %r35, %r3; or.pred %p1, %p1, %p2;"),
            _ => {}
        }
        line("mul.wide.u32 %rd10, %x, 4; add.u64 %rd10, %rd10, %rd1;");
        line(
            [
                "@%p1 ld.global.u32 %y, [%rd10]; add.u32 %n1, %n1, %x;",
                "@!%p1 bra SKIP; ld.global.u32 %y, [%rd10]; mad.lo.u32 %n1, %n1, 7, %x; SKIP:",
                "@%p1 ld.global.u32 %y, [%rd10+4]; add.u32 %n1, %n1, %x;",
            ][random.below(3)],
        );
    }
    for (at, part) in parts.iter().enumerate() {
        line(&format!("mad.lo.u32 %n1, %n1, {}, {part};", 31 + 2 * at));
    }
    line("mov.u32 %r9, %n1;");
    let mut labels = 0;
    while text.contains("SKIP") {
        text = text.replacen("SKIP;", &format!("s{labels};"), 1).replacen(
            "SKIP:",
            &format!("s{labels}:"),
            1,
        );
        labels += 1;
    }
    // Once, or in a loop over all rows.
    let text = match random.below(3) {
        0 => format!(
            "mov.u32 %i, 0; again: {text} xor.b32 %sum, %sum, %r9; mad.lo.u32 %sum, %sum, 3, %i;
            add.u32 %r35, %r35, %r31; add.u32 %r1, %r1, %r31; add.u32 %r2, %r2, 64;
            add.u32 %i, %i, 1; setp.lt.u32 %p3, %i, 5; @%p3 bra again; mov.u32 %r9, %sum;"
        ),
        1 => format!("setp.gt.u32 %p4, %r35, 60; @%p4 bra none; {text} none:"),
        _ => text,
    };
    format!(
        ".reg .b32 %n<2>; .reg .b32 %q<5>; .reg .b32 %e<5>; .reg .b32 %x, %y, %i, %sum; .reg .b32 %d<5>;
        mov.u32 %sum, 0; {text}"
    )
}

/// Rows of a length that is a parameter, divided once to three times; every thread loads what the
/// parts say.
fn rows(random: &mut Random) -> String {
    let from = [
        "mov.u32 %n0, %r35;",
        "mov.u32 %n0, %r1;",
        "add.u32 %n0, %r1, 5;",
        "add.u32 %n0, %r1, %r20;",
        "add.u32 %n0, %r1, %r20; sub.u32 %n0, %n0, 9;",
        "sub.u32 %n0, 200, %r1;",
        "sub.u32 %n0, %r20, %r1;",
        "mad.lo.u32 %n0, %r1, -2, 300;",
        "mad.lo.u32 %n0, %r1, 3, 1;",
        "shl.b32 %n0, %r1, 2;",
        "add.u32 %n0, %r1, 0x7fffffe4;",
        "add.u32 %n0, %r1, 0xffffffe9;",
        "mad.lo.u32 %n0, %r34, %r31, %r1;",
    ][random.below(13)];
    let mut text = format!(
        "shr.u32 %r20, %r3, 2; mul.lo.u32 %r21, %r20, %r20; add.u32 %r22, %r20, 16; sub.u32 %r23, %r20, 40; {from}"
    );
    let mut last = "%n0".to_owned();
    let mut parts = vec![];
    let mut divisors = vec![
        "%r3", "%r3", "%r20", "%r22", "%r31", "%r21", "%r23", "20", "64",
    ];
    for at in 0..1 + random.below(3) {
        let by = divisors.remove(random.below(divisors.len()));
        let ty = ["u32", "s32"][random.below(2)];
        let text_of = match random.below(4) {
            0 => format!("rem.{ty} %e{at}, {last}, {by}; mov.u32 %q{at}, 0;"),
            1 => format!("div.{ty} %q{at}, {last}, {by}; mov.u32 %e{at}, 0;"),
            2 => format!("div.{ty} %q{at}, {last}, {by}; rem.{ty} %e{at}, {last}, {by};"),
            _ => format!(
                "div.{ty} %q{at}, {last}, {by}; mul.lo.u32 %e{at}, %q{at}, {by};
                sub.u32 %e{at}, {last}, %e{at};"
            ),
        };
        write!(text, "{text_of}").expect("text takes text");
        parts.push((format!("%q{at}"), format!("%e{at}")));
        last = if random.below(3) == 0 {
            format!("%e{at}")
        } else {
            format!("%q{at}")
        };
    }
    let (q, e) = parts[random.below(parts.len())].clone();
    let times = ["0", "1", "%r3", "%r20", "64"][random.below(5)];
    write!(text, "mad.lo.u32 %x, {q}, {times}, {e};").expect("text takes text");
    let wide = ["mul.wide.u32", "mul.wide.s32"][random.below(2)];
    let far = match random.below(3) {
        0 => "",
        1 => "setp.gt.u32 %p1, %x, 1500; @%p1 bra far;",
        _ => "setp.lt.s32 %p1, %x, 0; @%p1 bra far; setp.gt.s32 %p2, %x, 1500; @%p2 bra far;",
    };
    write!(
        text,
        "{far} {wide} %rd10, %x, 4; add.u64 %rd10, %rd10, %rd1; ld.global.u32 %y, [%rd10+8192];
        add.u32 %x, %x, %y; far:"
    )
    .expect("text takes text");
    for (q, e) in &parts {
        write!(
            text,
            "mad.lo.u32 %x, %x, 31, {q}; mad.lo.u32 %x, %x, 31, {e};"
        )
        .expect("text takes text");
    }
    let text = match random.below(3) {
        0 => format!(
            "mov.u32 %i, 0; again: {} xor.b32 %sum, %sum, %x; mad.lo.u32 %sum, %sum, 3, %i;
            add.u32 %r1, %r1, %r31; add.u32 %i, %i, 1; setp.lt.u32 %p3, %i, 5; @%p3 bra again;
            mov.u32 %x, %sum;",
            text
        ),
        1 => format!("{text} bar.sync 0;"),
        _ => text,
    };
    format!(
        ".reg .b32 %n<2>; .reg .b32 %q<5>; .reg .b32 %e<5>; .reg .b32 %x, %y, %i, %sum;
        mov.u32 %sum, 0; {text} mov.u32 %r9, %x;"
    )
}

/// One thread alone is in a column, or in a row, that is outside of a buffer: it is named.
#[test]
fn one_thread_is_outside() {
    for ty in ["u32", "s32"] {
        for (what, more) in [("rem", ""), ("div", ""), ("rem", "bar.sync 0;")] {
            for length in [33u32, 64, 65, 100, 128, 200] {
                let last = if what == "rem" { length - 1 } else { 1 };
                let body = format!(
                    "and.b32 %r20, %r3, 0xfff; shr.u32 %r21, %r3, 12; {more} add.u32 %r22, %r1, %r20;
                    {what}.{ty} %r23, %r22, %r21; mul.wide.u32 %rd4, %r23, 4; add.u64 %rd4, %rd1, %rd4;
                    ld.global.u32 %r24, [%rd4+{}]; mad.lo.u32 %r9, %r23, 31, %r24;",
                    16384 - 4 * last
                );
                for threads in [8u32, 20, 32, 64, 128] {
                    if threads > length {
                        continue;
                    }
                    let mut shifts = vec![0, 1, 7, 8, length - 1, length - 5, length - threads];
                    shifts.extend([1, 2, 8, 9].map(|by| length.saturating_sub(by)));
                    if what == "div" {
                        // The last thread alone is in the next row.
                        shifts = vec![length - threads + 1, length - threads];
                    }
                    for shift in shifts {
                        let end = same(&body, [threads, 1, 1], length << 12 | shift);
                        let outside = |of: &u32| match what {
                            "rem" => (of + shift) % length == last,
                            _ => (of + shift) / length == last,
                        };
                        let expected = (0..threads).find(outside);
                        let named = end.err().map(|(_, _, thread)| thread.map(|of| of[0]));
                        assert_eq!(named, expected.map(Some), "{shift} of {length}\n{body}");
                    }
                }
            }
        }
    }
}

/// What decides how often threads go round, or where they go: rows that count down and up.
#[test]
fn quotients_that_decide() {
    let loops = "mov.u32 %r7, 0; more: mad.lo.u32 %r9, %r9, 3, %r1; add.u32 %r7, %r7, 1;
        setp.gt.u32 %p2, %r7, 40; @%p2 bra past; setp.le.u32 %p1, %r7, %r5; @%p1 bra more; past:";
    let branch = "setp.gt.u32 %p1, %r5, 2; @%p1 bra on; ld.global.u32 %r9, [%rd2+8];
        mad.lo.u32 %r9, %r9, 3, %r1; on:";
    for ty in ["u32", "s32"] {
        for from in [
            "not.b32 %r4, %r1; add.u32 %r4, %r4, 90;",
            "not.b32 %r4, %r1; add.u32 %r4, %r4, %r3;",
            "sub.u32 %r4, 20, %r1;",
            "mad.lo.u32 %r4, %r1, -2, 200;",
            "add.u32 %r4, %r1, 7;",
        ] {
            for by in ["add.u32 %r20, %r3, 11;", "mov.u32 %r20, %r31;"] {
                for what in ["div", "rem"] {
                    for uses in [loops, branch] {
                        let body = format!("{from} {by} {what}.{ty} %r5, %r4, %r20; {uses}");
                        for block in [[64, 1, 1], [40, 1, 1]] {
                            for n in [0, 5, 50] {
                                same(&body, block, n).expect("nothing faults");
                            }
                        }
                    }
                }
            }
        }
    }
}

#[test]
fn rows_of_parameters() {
    run_cases(2 * cases(), |_, random, _| {
        let body = rows(random);
        show(&body);
        for _ in 0..12 {
            let block = [[32, 1, 1], [64, 1, 1], [40, 2, 1], [128, 1, 1]][random.below(4)];
            let n = match random.below(8) {
                0 => [0, 1, u32::MAX, 0x8000_0000, 0x7fff_ffff, 31, 33, 8][random.below(8)],
                _ => random.below(300) as u32,
            };
            _ = compare(&body, block, n, true)?;
        }
        Ok(())
    });
}

#[test]
fn divisions_as_addresses() {
    let faults = std::sync::atomic::AtomicU64::new(0);
    let runs = std::sync::atomic::AtomicU64::new(0);
    run_cases(cases(), |_, random, _| {
        let body = divided(random);
        show(&body);
        for _ in 0..6 {
            let block = BLOCKS[random.below(BLOCKS.len())];
            let n = match random.below(4) {
                0 => [0, 1, u32::MAX, 0x8000_0000, 0x7fff_ffff, 31, 33, 8][random.below(8)],
                _ => random.below(80) as u32,
            };
            // A second access of one thread may fault before another's: only that it does is told.
            let end = compare(&body, block, n, true)?;
            runs.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
            faults.fetch_add(
                u64::from(end.is_err()),
                std::sync::atomic::Ordering::Relaxed,
            );
            if body.matches("ld.global").count() == 1
                && !body.contains("again:")
                && body.contains("or.pred")
            {
                _ = compare(&body, block, n, false)?;
            }
        }
        Ok(())
    });
    println!("{runs:?} runs, {faults:?} faults");
}

/// `match.any` of groups of lanes, as counted here.
#[test]
fn matches_of_some_lanes() {
    run_cases(cases(), |_, random, _| {
        let wide = random.below(2) == 0;
        let mask = match random.below(3) {
            0 => u32::MAX,
            1 => random.below(1 << 32) as u32,
            _ => 1 << random.below(32),
        };
        let modulus = 1 + random.below(9) as u32;
        let values: Vec<u64> = (0..32u64)
            .map(|lane| match wide {
                false => lane * 7 % u64::from(modulus),
                true => (lane * 7 % u64::from(modulus)) << 32 | (lane & 1),
            })
            .collect();
        let ty = if wide { "b64" } else { "b32" };
        let value = if wide { "%rd11" } else { "%r11" };
        let body = format!(
            "mov.u32 %r20, %laneid; shr.u32 %r21, {mask}, %r20; and.b32 %r21, %r21, 1;
            setp.ne.u32 %p1, %r21, 1; mul.lo.u32 %r10, %r20, 7; rem.u32 %r11, %r10, {modulus};
            and.b32 %r12, %r20, 1; mov.b64 %rd11, {{%r12, %r11}}; mov.u32 %r25, {mask};
            match.any.sync.b64 %r9, %rd11, -1; mov.u32 %r9, 0;
            @%p1 bra on; match.any.sync.{ty} %r9, {value}, {};
            on:",
            if random.below(2) == 0 {
                "%r25".to_owned()
            } else {
                mask.to_string()
            }
        );
        let words = compare(&body, [32, 1, 1], 5, false)?.map_err(|fault| format!("{fault:?}"))?;
        for lane in 0..32 {
            let inside = mask >> lane & 1 != 0;
            let same =
                (0..32).filter(|other| mask >> other & 1 != 0 && values[*other] == values[lane]);
            let expected = same.fold(0u32, |all, other| all | 1 << other) * u32::from(inside);
            if words[lane] != expected {
                return Err(format!(
                    "lane {lane}: {:x} for {expected:x}\n{body}",
                    words[lane]
                ));
            }
        }
        Ok(())
    });
}
