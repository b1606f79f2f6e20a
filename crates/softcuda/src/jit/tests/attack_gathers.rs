//! Attacks on the one check of a group's gathers and scatters: random kernels do the same in
//! vectors, in rounds and as fibers, also where threads are outside.
//!
//! No thread reads or writes what another one writes: loads are of memory that stays, each store
//! has words of its own for each thread, and atomics add to counters that nobody reads.
//!
//! `SOFTCUDA_FUZZ_CASES` sets the number of cases, `SOFTCUDA_FUZZ_CASE` runs one case alone and
//! prints its kernel.

use std::fmt::Write as _;
use std::sync::atomic::{AtomicU32, Ordering};

use super::fuzz::{Random, Sample, run_cases, setting};
use crate::grid::launch::FaultKind;
use crate::jit::harness::{self, buffer};
use crate::jit::module::Form;

/// Cases of a plain `cargo test`.
const DEFAULT_CASES: u64 = 60;

const BLOCKS: [[u32; 3]; 10] = [
    [8, 1, 1],
    [24, 1, 1],
    [37, 1, 1],
    [64, 1, 1],
    [16, 4, 1],
    [5, 7, 1],
    [3, 11, 1],
    [12, 3, 1],
    [8, 2, 3],
    [33, 1, 1],
];

/// Bytes of the buffers. None is followed at once by another: the last granule is not full.
const OUT: i64 = 131_072 - 48;
const IN: i64 = 1024 - 36;
const MORE: i64 = 4096 - 40;

/// Of `out`: words of threads, memory that is only read, with room around it, counters, and from
/// there on what each store has for itself.
const READ: i64 = 1024;
const COUNTERS: i64 = 4096;
const STORES: i64 = 16_384;
/// Bytes of each store's own part.
const PART: i64 = 4096;

/// Of `more`: indices from 0 on, and numbers of 64 bits behind them.
const WIDE: i64 = 2048;

type Outcome = Result<Vec<u8>, (FaultKind, [u32; 3], Option<[u32; 3]>)>;

#[derive(Clone, Copy, PartialEq)]
enum What {
    Load,
    Store,
    Add,
}

struct Writer<'a> {
    random: &'a mut Random,
    text: String,
    names: usize,
    stores: i64,
    adds: i64,
    /// Numbers of 64 bits that the kernel loads.
    wide: Vec<i64>,
    waits: bool,
    /// How often the loop around is done.
    times: i64,
    /// Threads may be outside at all.
    wild: bool,
    /// How many accesses may be outside; more than one if an access may be, at one time or another.
    bad: u32,
}

impl Writer<'_> {
    fn line(&mut self, text: &str) {
        writeln!(self.text, "{text}").expect("text takes text");
    }

    fn chance(&mut self, of: usize) -> bool {
        self.random.below(of) == 0
    }

    fn pick<T: Copy>(&mut self, list: &[T]) -> T {
        list[self.random.below(list.len())]
    }

    fn number(&mut self) -> i64 {
        let low = self.random.below(1 << 30) as i64;
        low << 34 ^ (self.random.below(1 << 30) as i64) << 12 ^ self.random.below(1 << 12) as i64
    }

    /// A number of 64 bits in a register, in one of several ways.
    fn constant(&mut self, to: &str, value: i64) {
        match self.random.below(6) {
            0 | 1 => self.line(&format!("mov.u64 {to}, {value};")),
            2 if self.wide.len() < 240 => {
                let at = WIDE + 8 * self.wide.len() as i64;
                self.wide.push(value);
                self.line(&format!("ld.global.u64 {to}, [%more+{at}];"));
            }
            3 => {
                // `%seven` is 7.
                let rest = value.wrapping_sub(7 * 1000);
                self.line(&format!(
                    "mul.wide.u32 {to}, %seven, 1000; add.u64 {to}, {to}, {rest};"
                ));
            }
            4 => {
                let half = self.number();
                self.line(&format!(
                    "selp.b64 {to}, {half}, {}, %odd; selp.b64 %t0, {half}, {}, %odd;
                    sub.u64 {to}, {to}, %t0; add.u64 {to}, {to}, {value};",
                    half + 1,
                    half + 1,
                ));
            }
            _ => self.line(&format!("add.u64 {to}, %zero, {value};")),
        }
    }

    /// The index of a thread: from `low` on, one of `count`; another one for each thread if it
    /// may be used to store.
    fn index(&mut self, to: &str, low: i64, count: i64, what: What) {
        let low = low as i32;
        match (what, self.random.below(5)) {
            (What::Store, 0) => self.line(&format!("mov.u32 {to}, %linear;")),
            (What::Store, _) => self.line(&format!("mov.u32 {to}, %mixed;")),
            (_, 0) => self.line(&format!(
                "mul.wide.u32 %t0, %mixed, 4; add.u64 %t0, %t0, %more;
                ld.global.u32 {to}, [%t0]; rem.u32 {to}, {to}, {count};"
            )),
            (_, 1) => self.line(&format!("rem.u32 {to}, %linear, {count};")),
            (_, 2) => self.line(&format!(
                "mad.lo.u32 {to}, %linear, 3, %turn; rem.u32 {to}, {to}, {count};"
            )),
            (_, 3) => self.line(&format!(
                "mad.lo.u32 {to}, %mixed, 7, %hash; rem.u32 {to}, {to}, {count};"
            )),
            _ => self.line(&format!("rem.u32 {to}, %mixed, {count};")),
        }
        if low != 0 {
            self.line(&format!("add.u32 {to}, {to}, {low};"));
        }
    }

    /// Something that changes nothing that is needed.
    fn other(&mut self) {
        self.names += 1;
        let n = self.names;
        let text = match self.random.below(12) {
            0 => "st.shared.u32 [%own], %hash; ld.shared.u32 %t, [%own]; add.u32 %hash, %t, 1;",
            1 => "atom.shared.add.u32 %t, [%own], 1;",
            2 => "setp.lt.u32 %p0, %mixed, %seven; @%p0 add.u32 %hash, %hash, 5;",
            3 => "cvt.rn.f32.u32 %f0, %mixed; sin.approx.f32 %f0, %f0; mov.b32 %t, %f0;",
            4 => "div.u32 %t, %hash, 7; add.u32 %hash, %hash, %t;",
            5 => "red.global.add.u32 [%out+4096], 1;",
            6 if self.waits => "bar.sync 0;",
            7 => "ld.global.u32 %t, [%in+16]; xor.b32 %hash, %hash, %t;",
            8 => {
                let text = format!(
                    "and.b32 %t, %mixed, 3; setp.eq.u32 %p0, %t, 2; @%p0 bra O{n};
                    mad.lo.u32 %hash, %hash, 3, 1; O{n}:"
                );
                return self.line(&text);
            }
            _ => "",
        };
        self.line(text);
    }

    /// An access, of all threads or some.
    fn access(&mut self) {
        self.names += 1;
        let n = self.names;
        let what = self.pick(&[
            What::Load,
            What::Load,
            What::Load,
            What::Load,
            What::Store,
            What::Add,
        ]);
        let size = match what {
            What::Add => self.pick(&[4i64, 4, 8]),
            _ => self.pick(&[1i64, 2, 4, 4, 4, 8, 16]),
        };
        let mut by = size * self.pick(&[1i64, 1, 1, 1, 2, 4, 3]);
        if self.wild && self.chance(24) {
            self.bad += 1 + u32::from(self.times > 1);
            by = self.pick(&[0, -size, size / 2, 1, 3 * size / 2]);
        }
        let signed = self.chance(2);
        // Where the elements are, and how many.
        let (array, start, length) = match what {
            What::Load => self.pick(&[
                ("%in", 0, IN),
                ("%in", 0, IN),
                ("%more", 0, MORE),
                ("%out", READ, COUNTERS - READ - 256),
            ]),
            What::Store => {
                let part = STORES + self.stores * PART;
                self.stores += 1;
                ("%out", part, PART)
            }
            What::Add => {
                self.adds += 1;
                ("%out", COUNTERS + self.adds * 1024 + 256, 512)
            }
        };
        let step = by.abs().max(1);
        let most = ((length - size) / step + 1).clamp(1, 64);
        let count = match what {
            // Other threads have the indices in between.
            What::Store if by < size => return,
            What::Store => 64,
            _ => match self.random.below(3) {
                0 => most,
                _ => 1 + self.random.below(most as usize) as i64,
            },
        };
        let room = length - ((count - 1) * step + size);
        if room < 0 {
            return;
        }
        let moves = self.wild && self.times > 1 && self.chance(3);
        let glides = self.times > 1 && !moves && room >= 64 * 3 && self.chance(3);
        let room = if glides { room - 64 * 3 } else { room };
        let place = match self.random.below(4) {
            0 => 0,
            1 => room / size * size,
            _ => self.random.below((room / size + 1) as usize) as i64 * size,
        };
        // A base that moves goes on from there, or down.
        let mut move_by = 0;
        if glides && what != What::Store {
            move_by = size * self.random.below((64 / size + 1) as usize) as i64;
        } else if moves {
            move_by = match what {
                // Each time has its own place.
                What::Store => 0,
                _ => {
                    self.bad += 2;
                    size * (self.random.below(9) as i64 - 4)
                }
            };
        }
        let mut first = start + place;
        if by < 0 {
            first += (count - 1) * step;
        }
        if self.wild && what != What::Store && self.chance(25) {
            self.bad += 1;
            first += self.pick(&[1, 2, size / 2, -1, 4]);
        }
        // Which index has the first.
        let low = match (signed, self.random.below(8)) {
            (true, 0) => -count,
            (true, 1) => -(count / 2),
            (true, 2) => i64::from(i32::MIN),
            (true, 3) => i64::from(i32::MAX) - count + 1,
            (false, 0) => i64::from(u32::MAX) - count + 1,
            (false, 1) => i64::from(i32::MAX) - count / 2,
            (false, 2) => self.random.below(1 << 20) as i64,
            (true, 4) => -(self.random.below(1 << 20) as i64),
            _ => 0,
        };
        let offset = match self.random.below(5) {
            0 => size * (self.random.below(9) as i64 - 4),
            1 => by * (self.random.below(5) as i64 - 2),
            _ => 0,
        };
        let index = format!("%i{n}");
        let (base, wide, address) = (format!("%b{n}"), format!("%w{n}"), format!("%a{n}"));
        self.index(&index, low, count, what);
        // One thread goes elsewhere, or a few do.
        if self.wild && self.chance(4) {
            self.bad += 1;
            let far = match what {
                What::Store | What::Add => {
                    self.pick(&[0x3fff_ffff, 0x7fff_ffff, -0x8000_0000, 0x4000_0000])
                }
                _ => {
                    let near = [low - 1, low + count, low + most, low + most + 1];
                    let far = [0x7fff_ffff, -0x8000_0000, -1, 0x1000_0000];
                    let list = if self.chance(2) { near } else { far };
                    self.pick(&list)
                }
            } as i32;
            let who = self.pick(&["%linear, %n", "%linear, 9", "%linear, %last", "%mixed, 3"]);
            self.line(&format!("setp.eq.u32 %p1, {who};"));
            if what != What::Load {
                // From there, so that no other thread's words are met.
                self.line(&format!("@%p1 xor.b32 {index}, {index}, {far};"));
            } else if self.chance(2) {
                self.line(&format!("@%p1 mov.u32 {index}, {far};"));
            } else {
                self.line(&format!("selp.b32 {index}, {far}, {index}, %p1;"));
            }
        }
        let sign = if signed { 's' } else { 'u' };
        let total = first
            .wrapping_sub(low.wrapping_mul(by))
            .wrapping_sub(offset);
        let shift = by.trailing_zeros();
        let power = by > 0 && by == 1 << shift;
        let form = if power { self.random.below(7) } else { 0 };
        let quotient = match self.random.below(4) {
            _ if by == 0 => 0,
            0 => 0,
            1 | 2 => total.wrapping_div(by),
            _ => self.number(),
        };
        let has_wide = matches!(form, 2..=4);
        let mut rest = total;
        let mut quotient32 = 0;
        if has_wide {
            match form {
                4 => {
                    quotient32 = match self.random.below(3) {
                        0 => self.number() as i32,
                        _ => total.wrapping_div(by) as i32,
                    };
                    rest = total.wrapping_sub(i64::from(quotient32).wrapping_mul(by));
                }
                _ => rest = total.wrapping_sub(quotient.wrapping_mul(by)),
            }
        }
        // The base.
        if rest == 0 && self.chance(2) {
            self.line(&format!("mov.u64 {base}, {array};"));
        } else if rest == 0 && !moves {
            self.line(&format!("add.u64 {base}, {array}, %zero;"));
        } else {
            self.constant(&base, rest);
            self.line(&format!("add.u64 {base}, {base}, {array};"));
        }
        let base_used = match rest {
            0 if move_by == 0 && !self.chance(3) => array.to_owned(),
            _ => base.clone(),
        };
        if what == What::Load && self.chance(5) && array != "%more" && count * step <= 512 {
            // Another array in each second group, or each second time.
            let other = if array == "%in" { "%out" } else { "%in" };
            let from = if array == "%in" { READ } else { 0 };
            let by_other = rest.wrapping_sub(first).wrapping_add(from + place % 256);
            let which = self.pick(&["%odd", "%oddturn", "%oddrow"]);
            self.line(&format!(
                "add.u64 %t1, {other}, {by_other}; selp.b64 {base}, %t1, {base}, {which};"
            ));
        }
        let base_used = if base_used == array && self.chance(2) {
            array.to_owned()
        } else {
            base.clone()
        };
        if what == What::Store && self.times > 1 {
            // The part of this time.
            self.line(&format!(
                "mul.wide.u32 %t1, %turn, {PART}; add.u64 {base}, {base}, %t1;"
            ));
            self.stores += self.times - 1;
        } else if move_by != 0 {
            self.line(&format!(
                "cvt.u64.u32 %t1, %turn; mul.lo.s64 %t1, %t1, {move_by};
                add.u64 {base}, {base}, %t1;"
            ));
        }
        let base_used = if what == What::Store {
            base.clone()
        } else {
            base_used
        };
        if self.chance(12) {
            self.line(&format!(
                "shr.u32 %t, %linear, 20; cvt.u64.u32 %t1, %t; add.u64 {base}, {base}, %t1;"
            ));
        }
        if has_wide && form != 4 {
            self.constant(&wide, quotient);
        }
        let (a, b) = if self.chance(2) {
            (base_used.clone(), address.clone())
        } else {
            (address.clone(), base_used.clone())
        };
        let sum = format!("add.{sign}64 {address}, {a}, {b};");
        let extend = format!("cvt.{sign}64.{sign}32 {address}, {index};");
        let text = match form {
            0 => format!("mul.wide.{sign}32 {address}, {index}, {by}; {sum}"),
            1 => format!("{extend} shl.b64 {address}, {address}, {shift}; {sum}"),
            2 => format!(
                "{extend} add.s64 {address}, {wide}, {address};
                shl.b64 {address}, {address}, {shift}; {sum}"
            ),
            3 => {
                let one = shift / 2;
                format!(
                    "{extend} add.u64 {address}, {address}, {wide};
                    shl.b64 {address}, {address}, {one};
                    shl.b64 {address}, {address}, {}; {sum}",
                    shift - one
                )
            }
            4 => format!(
                "add.u32 %j{n}, %none, {quotient32}; {extend} cvt.s64.s32 {wide}, %j{n};
                add.s64 {address}, {address}, {wide};
                shl.b64 {address}, {address}, {shift}; {sum}"
            ),
            5 => format!(
                "{extend} shl.b64 {address}, {address}, {shift}; {sum}
                add.s64 {address}, {address}, 0;"
            ),
            _ => {
                // The rest is added last.
                format!("{extend} shl.b64 {address}, {address}, {shift}; {sum}")
            }
        };
        self.line(&text);
        for _ in 0..self.random.below(3) {
            self.other();
        }
        match self.random.below(12) {
            0 => self.line(&format!("mov.u32 {index}, %hash;")),
            1 => self.line(&format!("mov.u64 {base}, 12345;")),
            2 => self.line(&format!("mov.u64 {wide}, %t1;")),
            _ => {}
        }
        let guard = match self.random.below(8) {
            0 => "@%some ",
            1 => "@!%some ",
            2 => "@%odd ",
            _ => "",
        };
        let around = self.chance(6);
        if around {
            let which = self.pick(&["%some", "%odd", "%oddturn"]);
            self.line(&format!("@{which} bra A{n};"));
        }
        let space = if self.chance(6) { "" } else { ".global" };
        let at = format!("[{address}+{offset}]");
        let text = match (what, size, self.random.below(2)) {
            (What::Load, 1, 0) => format!("{guard}ld{space}.u8 %t, {at};"),
            (What::Load, 1, _) => format!("{guard}ld{space}.s8 %t, {at};"),
            (What::Load, 2, 0) => format!("{guard}ld{space}.u16 %t, {at};"),
            (What::Load, 2, _) => format!("{guard}ld{space}.v2.u8 {{%h0, %h1}}, {at};"),
            (What::Load, 4, 0) => format!("{guard}ld{space}.u32 %t, {at};"),
            (What::Load, 4, _) => format!("{guard}ld{space}.f32 %f0, {at}; mov.b32 %t, %f0;"),
            (What::Load, 8, 0) => format!("{guard}ld{space}.u64 %t2, {at};"),
            (What::Load, 8, _) => format!("{guard}ld{space}.v2.u32 {{%t, %u}}, {at};"),
            (What::Load, _, 0) => format!("{guard}ld{space}.v4.u32 {{%t, %u, {index}, %y}}, {at};"),
            (What::Load, _, _) => format!("{guard}ld{space}.v2.u64 {{%t2, {address}}}, {at};"),
            (What::Store, 1, _) => format!("{guard}st{space}.u8 {at}, %hash;"),
            (What::Store, 2, _) => format!("{guard}st{space}.u16 {at}, %hash;"),
            (What::Store, 4, _) => format!("{guard}st{space}.u32 {at}, %hash;"),
            (What::Store, 8, _) => format!("{guard}st{space}.v2.u32 {at}, {{%hash, %mixed}};"),
            (What::Store, _, _) => {
                format!("{guard}st{space}.v4.u32 {at}, {{%hash, %mixed, %hash, %linear}};")
            }
            (What::Add, 4, 0) => format!("{guard}red{space}.add.u32 {at}, %mixed;"),
            (What::Add, 4, _) => format!("{guard}atom{space}.max.u32 %v, {at}, %mixed;"),
            (What::Add, _, _) => format!("{guard}red{space}.add.u64 {at}, 3;"),
        };
        self.line(&text);
        if what == What::Load {
            self.line(
                "cvt.u32.u64 %v, %t2; mad.lo.u32 %hash, %hash, 31, %t; xor.b32 %hash, %hash, %v;
                cvt.u32.u16 %v, %h0; mad.lo.u32 %hash, %hash, 3, %v; xor.b32 %hash, %hash, %u;",
            );
        }
        if around {
            self.line(&format!("A{n}:"));
        }
    }

    fn body(&mut self) {
        for _ in 0..1 + self.random.below(3) {
            self.names += 1;
            let n = self.names;
            let looped = self.chance(2);
            self.times = if looped { self.pick(&[2, 3, 3]) } else { 1 };
            let times = self.times;
            if looped {
                let count = match self.waits || self.chance(2) {
                    true => times.to_string(),
                    // Some leave sooner.
                    false => {
                        self.line(&format!(
                            "and.b32 %t, %mixed, 1; sub.u32 %c{n}, {times}, %t;"
                        ));
                        format!("%c{n}")
                    }
                };
                self.line(&format!(
                    "mov.u32 %turn, 0; L{n}: and.b32 %t, %turn, 1;
                    setp.eq.u32 %oddturn, %t, 1;"
                ));
                for _ in 0..1 + self.random.below(3) {
                    self.access();
                }
                self.line(&format!(
                    "add.u32 %turn, %turn, 1; setp.lt.u32 %p2, %turn, {count}; @%p2 bra L{n};"
                ));
            } else {
                for _ in 0..1 + self.random.below(3) {
                    self.access();
                }
            }
            if self.waits && self.chance(2) {
                self.line("bar.sync 0;");
            }
        }
    }
}

fn kernel(body: &str) -> String {
    harness::module(&format!(
        ".visible .entry k(.param .u64 out, .param .u64 in, .param .u64 more, .param .u32 n,
            .param .u32 seven, .param .u64 zero)
        {{
            .reg .pred %p<4>, %odd, %oddturn, %oddrow, %some;
            .reg .b16 %h<2>;
            .reg .b32 %i<64>, %j<64>, %c<64>, %t, %u, %v, %turn, %hash, %linear, %mixed, %last;
            .reg .b32 %own, %y, %n, %seven, %none, %k<4>;
            .reg .b64 %a<64>, %b<64>, %w<64>, %t0, %t1, %t2, %out, %in, %more, %zero;
            .reg .f32 %f0;
            .shared .align 8 .b8 s[4096];
            ld.param.u64 %out, [out]; ld.param.u64 %in, [in]; ld.param.u64 %more, [more];
            ld.param.u64 %zero, [zero]; ld.param.u32 %n, [n]; ld.param.u32 %seven, [seven];
            cvt.u32.u64 %none, %zero;
            mov.u32 %k0, %tid.x; mov.u32 %k1, %tid.y; mov.u32 %k2, %tid.z;
            mov.u32 %k3, %ntid.y; mad.lo.u32 %linear, %k2, %k3, %k1;
            mov.u32 %k3, %ntid.x; mad.lo.u32 %linear, %linear, %k3, %k0;
            mov.u32 %last, %ntid.y; mul.lo.u32 %last, %last, %k3;
            mov.u32 %k3, %ntid.z; mul.lo.u32 %last, %last, %k3; sub.u32 %last, %last, 1;
            mul.lo.u32 %mixed, %linear, 5; add.u32 %mixed, %mixed, 3; and.b32 %mixed, %mixed, 63;
            shl.b32 %own, %linear, 2; mov.u32 %t, s; add.u32 %own, %own, %t;
            st.shared.u32 [%own], 0;
            shr.u32 %t, %k0, 3; and.b32 %t, %t, 1; setp.eq.u32 %odd, %t, 1;
            and.b32 %t, %k1, 1; setp.eq.u32 %oddrow, %t, 1; setp.eq.u32 %oddturn, %t, 5;
            and.b32 %t, %mixed, 4; setp.eq.u32 %some, %t, 0;
            mov.u32 %turn, 0; mov.u32 %hash, %mixed; mov.u32 %t, 0; mov.u32 %u, 0; mov.u64 %t2, 0;
            mov.u64 %t1, 0; mov.b16 %h0, 0; mov.b16 %h1, 0; mov.f32 %f0, 0f00000000;
            {body}
            mul.wide.u32 %t0, %linear, 4; add.u64 %t0, %t0, %out; st.global.u32 [%t0], %hash;
            ret;
        }}"
    ))
}

fn compare(
    body: &str,
    wide: &[i64],
    launches: &[([u32; 3], u32)],
    whose: bool,
) -> Result<u32, String> {
    let source = kernel(body);
    if setting("SOFTCUDA_FUZZ_CASE").is_some() {
        println!("{source}");
    }
    let modules = [Form::Fibers, Form::Rounds, Form::Vectors]
        .map(|form| (form, harness::load_as(&source, form)));
    let mut faults = 0;
    for (block, n) in launches {
        let end = |at: usize| -> Outcome {
            let mixed = |at: usize| (at as u32).wrapping_mul(0x9e37_79b9).to_le_bytes()[3];
            let mut out: Vec<u8> = (0..OUT as usize).map(mixed).collect();
            let mut few: Vec<u8> = (7..IN as usize + 7).map(mixed).collect();
            let mut more: Vec<u8> = (99..MORE as usize + 99).map(mixed).collect();
            for (at, number) in wide.iter().enumerate() {
                let at = WIDE as usize + 8 * at;
                more[at..at + 8].copy_from_slice(&number.to_le_bytes());
            }
            let buffers: &mut [&mut [u8]] =
                &mut [buffer(&mut out), buffer(&mut few), buffer(&mut more)];
            let scalars: &[&[u8]] = &[&n.to_le_bytes(), &7u32.to_le_bytes(), &0u64.to_le_bytes()];
            let result = harness::run_in(&modules[at].1, "k", [1; 3], *block, 0, buffers, scalars);
            match result {
                Ok(()) => Ok([out, few, more].concat()),
                Err(_) if !whose => Err((FaultKind::IllegalAddress, [0; 3], None)),
                Err(fault) => Err((fault.kind, fault.block, fault.thread)),
            }
        };
        let expected = end(0);
        faults += u32::from(expected.is_err());
        for at in [1, 2] {
            let got = end(at);
            if got != expected && end(at) != end(0) {
                let what = match (&got, &expected) {
                    (Ok(got), Ok(expected)) => {
                        let at = got.iter().zip(expected).position(|(a, b)| a != b);
                        format!("byte {at:?}")
                    }
                    _ => format!(
                        "{:?} for {:?}",
                        got.clone().map(|_| ()),
                        expected.clone().map(|_| ())
                    ),
                };
                return Err(format!(
                    "{:?} {block:?} n={n} {what}\n{body}",
                    modules[at].0
                ));
            }
        }
    }
    Ok(faults)
}

#[test]
fn random_gathers() {
    let cases = setting("SOFTCUDA_FUZZ_CASES").unwrap_or(DEFAULT_CASES);
    let (runs, faults) = (AtomicU32::new(0), AtomicU32::new(0));
    run_cases(cases, |_, random, _| {
        let (waits, wild) = (random.below(4) == 0, random.below(2) == 0);
        let mut writer = Writer {
            random,
            text: String::new(),
            names: 0,
            stores: 0,
            adds: 0,
            wide: vec![],
            waits,
            times: 1,
            wild,
            bad: 0,
        };
        writer.body();
        let (text, wide, whose) = (writer.text, writer.wide, !waits && writer.bad < 2);
        let launches: Vec<_> = (0..4)
            .map(|_| {
                let n = random.below(80) as u32;
                (BLOCKS[random.below(BLOCKS.len())], n)
            })
            .collect();
        let ends = compare(&text, &wide, &launches, whose)?;
        runs.fetch_add(launches.len() as u32, Ordering::Relaxed);
        faults.fetch_add(ends, Ordering::Relaxed);
        Ok(())
    });
    println!("{runs:?} launches, {faults:?} faults");
}

/// Elements that all lie at one place, or go down: an index tells little of them.
#[test]
fn elements_of_no_size() {
    for by in [0i64, -4, -1, 1 << 31, 3] {
        for slice in ["%in", "%b0"] {
            let body = format!(
                "add.u64 %b0, %in, 64; mul.wide.u32 %t0, %mixed, 4; add.u64 %t0, %t0, %more;
                ld.global.u32 %i0, [%t0]; and.b32 %i0, %i0, 15;
                mul.wide.s32 %a0, %i0, {by}; add.u64 %a0, {slice}, %a0;
                ld.global.u8 %t, [%a0]; add.u32 %hash, %hash, %t;"
            );
            compare(&body, &[], &[([64, 1, 1], 0), ([37, 1, 1], 0)], true).expect("no difference");
        }
    }
}

/// A slice moves once its memory is known: to the array's start and end, past them, and to where
/// its elements lie beside those of the array.
#[test]
fn slices_that_move() {
    let mut sample = Sample::one_in(8);
    for size in [1i64, 2, 4, 8, 16] {
        let load = match size {
            1 => "ld.global.u8 %t,",
            2 => "ld.global.u16 %t,",
            4 => "ld.global.u32 %t,",
            8 => "ld.global.v2.u32 {%t, %u},",
            _ => "ld.global.v4.u32 {%t, %u, %v, %y},",
        };
        for (by, offset) in [(size, 0), (2 * size, 0), (size, -size), (2 * size, size)] {
            // From 256 on, what keeps all eight elements inside.
            let least = -256 - offset;
            let most = (IN - 256 - offset - 7 * by - size) / size * size;
            let moves = [
                (least, true),
                (least - size, false),
                (least - by, false),
                (most, true),
                (most + size, false),
                (most + by, false),
                (size, true),
                (1, size == 1),
                (size / 2, size == 1),
                (i64::MIN, false),
                (i64::MAX - 255, false),
                (-(1 << 40), false),
            ];
            for (by_turn, inside) in moves {
                let shift = by.trailing_zeros();
                let slice = format!(
                    "mul.lo.s64 %t1, %t1, {by_turn}; add.u64 %b0, %in, 256;
                    add.u64 %b0, %b0, %t1; mul.wide.SIGN32 %a0, %i0, {by};
                    add.u64 %a0, %b0, %a0;"
                );
                let elements = format!(
                    "mul.lo.s64 %t1, %t1, {}; add.u64 %w0, %t1, {};
                    cvt.SIGN64.SIGN32 %a0, %i0; add.u64 %a0, %w0, %a0;
                    shl.b64 %a0, %a0, {shift}; add.u64 %a0, BASE, %a0;",
                    by_turn >> shift,
                    256 >> shift,
                );
                let is_whole = by_turn % by == 0;
                let mut ways = vec![slice];
                if is_whole {
                    // Of the array itself, and of a slice of it.
                    ways.push(elements.replace("BASE", "%in"));
                    ways.push(format!(
                        "add.u64 %b0, %in, {size}; add.u64 %b0, %b0, %zero; {}",
                        elements.replace("BASE", "%b0")
                    ));
                }
                for (at, way) in ways.iter().enumerate() {
                    for sign in ["s", "u"] {
                        if !sample.takes() {
                            continue;
                        }
                        let way = way.replace("SIGN", sign);
                        let less = if at == 2 { size } else { 0 };
                        let body = format!(
                            "L0: and.b32 %i0, %mixed, 7; cvt.u64.u32 %t1, %turn; {way}
                            {load} [%a0+{}]; xor.b32 %hash, %hash, %t; xor.b32 %hash, %hash, %u;
                            add.u32 %turn, %turn, 1; setp.lt.u32 %p2, %turn, 2; @%p2 bra L0;",
                            offset - less
                        );
                        let launches = [([64, 1, 1], 0), ([16, 4, 1], 0), ([37, 1, 1], 0)];
                        let faults = compare(&body, &[], &launches, true);
                        let expected = if inside { 0 } else { 3 };
                        assert_eq!(
                            faults,
                            Ok(expected),
                            "{size} {by} {offset} {by_turn}\n{body}"
                        );
                    }
                }
            }
        }
    }
}

/// Where the index, or what is added to it, is another by the time of the access, that tells
/// nothing of the address.
#[test]
fn registers_that_change_hide_nothing() {
    let wide = "add.u64 %w0, %zero, FAR; cvt.u64.u32 %a0, %i0; add.u64 %a0, %a0, %w0;
        shl.b64 %a0, %a0, 2; add.u64 %a0, %in, %a0;";
    let slice = "add.u64 %b0, %in, FAR; mul.wide.u32 %a0, %i0, 4; add.u64 %a0, %b0, %a0;";
    let two = "cvt.u32.u64 %j0, FAR; cvt.u64.u32 %w0, %j0; cvt.u64.u32 %a0, %i0;
        add.u64 %a0, %a0, %w0; shl.b64 %a0, %a0, 2; add.u64 %a0, %in, %a0;";
    for (address, far, change) in [
        (wide, 248, "mov.u64 %w0, 0;"),
        (wide, 248, "add.u64 %w0, %zero, 16;"),
        (slice, 992, "mov.u64 %b0, %in;"),
        (slice, 992, "add.u64 %b0, %in, 16;"),
        (two, 248, "mov.u32 %j0, 0;"),
        (two, 248, "add.u32 %j0, %none, 16;"),
        (wide, 0, "mov.u32 %i0, %mixed;"),
        (slice, 0, "mov.u32 %i0, %mixed;"),
    ] {
        // The last two have indices that are too large. What is just behind `in` is nobody's.
        let body = format!(
            "L0: and.b32 %i0, %mixed, 3; setp.eq.u32 %p1, %turn, 1; @%p1 add.u32 %i0, %i0, {};
            selp.b64 %t1, {far}, 0, %p1; {} {change}
            ld.global.u32 %t, [%a0]; xor.b32 %hash, %hash, %t;
            add.u32 %turn, %turn, 1; setp.lt.u32 %p2, %turn, 2; @%p2 bra L0;",
            if far == 0 { 248 } else { 0 },
            address.replace("FAR", "%t1"),
        );
        let faults = compare(&body, &[], &[([64, 1, 1], 0), ([16, 4, 1], 0)], true);
        assert_eq!(faults, Ok(2), "{body}");
    }
}

/// Indices that 32 bits just hold, and then do not, or a slice that moves by one element then.
#[test]
fn indices_that_32_bits_just_hold() {
    let count = IN / 4;
    for (sign, first, place) in [
        ("s", i64::from(i32::MAX) - 3, 0),
        ("s", i64::from(i32::MIN), count - 4),
        ("s", i64::from(i32::MIN), 0),
        ("s", i64::from(i32::MAX) - 3, count - 4),
        ("u", i64::from(u32::MAX) - 3, 0),
        ("u", i64::from(u32::MAX) - 3, count - 4),
        ("u", 0, 0),
        ("u", 0, count - 4),
        ("u", i64::from(i32::MAX) - 1, 0),
    ] {
        // How much more the index and the elements before it are the second time.
        for (more, by) in [(0, 0), (4, 0), (-4, 0), (0, 1), (0, -1), (4, -4), (-4, 4)] {
            for of_array in [true, false] {
                let start = place - first;
                let address = match of_array {
                    true => format!(
                        "mul.lo.s64 %t1, %t1, {by}; add.u64 %w0, %t1, {start};
                        cvt.{sign}64.{sign}32 %a0, %i0; add.u64 %a0, %a0, %w0;
                        shl.b64 %a0, %a0, 2; add.u64 %a0, %a0, %in;"
                    ),
                    false => format!(
                        "mul.lo.s64 %t1, %t1, {}; add.u64 %b0, %t1, {}; add.u64 %b0, %b0, %in;
                        mul.wide.{sign}32 %a0, %i0, 4; add.u64 %a0, %b0, %a0;",
                        4 * by,
                        4 * start
                    ),
                };
                let body = format!(
                    "L0: and.b32 %i0, %mixed, 3; add.u32 %i0, %i0, {};
                    mad.lo.u32 %i0, %turn, {more}, %i0; cvt.u64.u32 %t1, %turn; {address}
                    ld.global.u32 %t, [%a0]; xor.b32 %hash, %hash, %t;
                    add.u32 %turn, %turn, 1; setp.lt.u32 %p2, %turn, 2; @%p2 bra L0;",
                    first as i32
                );
                let index = |at: i64| match sign {
                    "s" => i64::from((first + more + at) as i32),
                    _ => i64::from((first + more + at) as u32),
                };
                let inside = |at: i64| (0..count).contains(&(index(at) + start + by));
                let expected = if (0..4).all(inside) { 0 } else { 2 };
                let faults = compare(&body, &[], &[([64, 1, 1], 0), ([16, 4, 1], 0)], true);
                assert_eq!(
                    faults,
                    Ok(expected),
                    "{sign} {first} {place} {more} {by}\n{body}"
                );
            }
        }
    }
}

/// The second time, all threads are outside, where a wrong sum would be inside.
#[test]
fn sums_that_are_outside() {
    let mut bodies = vec![];
    let slice = |sign: &str, base: i64, index: i32| {
        format!(
            "mul.lo.s64 %t1, %t1, {base}; add.u64 %b0, %in, %t1; mad.lo.u32 %i0, %turn, {index}, %i0;
            cvt.{sign}64.{sign}32 %a0, %i0; add.u64 %a0, %b0, %a0; ld.global.u8 %t, [%a0];"
        )
    };
    let elements = |sign: &str, more: i64, index: i32, shift: u32| {
        format!(
            "mul.lo.s64 %w0, %t1, {more}; mad.lo.u32 %i0, %turn, {index}, %i0;
            cvt.{sign}64.{sign}32 %a0, %i0; add.u64 %a0, %w0, %a0; shl.b64 %a0, %a0, {shift};
            add.u64 %a0, %in, %a0; ld.global.u8 %t, [%a0];"
        )
    };
    // Half of all addresses away.
    for sign in ["s", "u"] {
        for more in [
            i64::MIN,
            i64::MIN + 8,
            i64::MIN + 255,
            i64::MAX,
            i64::MAX - 255,
        ] {
            for index in [0, i32::MAX - 3, i32::MIN, -4, 4] {
                bodies.push(slice(sign, more, index));
                bodies.push(elements(sign, more, index, 0));
            }
        }
    }
    // Twice what is added, or none of it, would do.
    bodies.push(elements("u", 120, 128, 2));
    bodies.push(elements("s", 120, 128, 2));
    bodies.push(elements("s", -8, -4, 2));
    bodies.push(elements("s", -8, 4, 2));
    // An index that is added too, with another sign.
    for (sign, base) in [("s", -4 * ((1i64 << 32) - 16)), ("u", 64)] {
        bodies.push(format!(
            "mul.lo.s64 %t2, %t1, {base}; add.u64 %b0, %in, %t2; mul.lo.u32 %j0, %turn, -16;
            cvt.{sign}64.{sign}32 %w0, %j0; cvt.u64.u32 %a0, %i0; add.u64 %a0, %w0, %a0;
            shl.b64 %a0, %a0, 2; add.u64 %a0, %b0, %a0; ld.global.u32 %t, [%a0];"
        ));
    }
    for body in bodies {
        let body = format!(
            "L0: and.b32 %i0, %mixed, 3; cvt.u64.u32 %t1, %turn; {body}
            xor.b32 %hash, %hash, %t; add.u32 %turn, %turn, 1; setp.lt.u32 %p2, %turn, 2;
            @%p2 bra L0;"
        );
        let faults = compare(&body, &[], &[([64, 1, 1], 0), ([16, 4, 1], 0)], true);
        assert_eq!(faults, Ok(2), "{body}");
    }
}
