//! Random kernels in which threads wait for each other, run in vectors, in rounds and as
//! fibers: all do the same.
//!
//! The kernels have no races: threads share memory only between two barriers of all, and the lanes
//! of a branch or a loop agree on their mask first. Some deadlock, and then do so in all forms. In
//! some, threads spin: they take turns at a lock, or wait for the other block to start.

use std::fmt::Write as _;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use super::both::in_all_forms;
use super::{Random, run_cases, setting};
use crate::grid::context::Mode;
use crate::grid::launch::FaultKind;
use crate::jit::harness::{self, buffer};
use crate::jit::module::Module;

/// Cases of a plain `cargo test`, and of a whole run the part that is run here.
const DEFAULT_CASES: u64 = 60;
const SHARE: u64 = 10;

/// Registers with the values that threads work on.
const VALUES: usize = 6;

/// Registers that are the same in all threads of the block, as long as all write them.
const COUNTERS: usize = 3;

/// A kernel being written.
struct Writer<'a> {
    random: &'a mut Random,
    text: String,
    threads: u32,
    /// Threads of a row of the block.
    row: u32,
    /// Names that were given out.
    names: usize,
    /// Statements that are still to come, at most.
    left: usize,
    /// Threads may spin.
    spins: bool,
    /// Warps may come to different barriers at a time, so threads share no memory.
    mixes: bool,
    /// Some threads may have ended.
    ended: bool,
    /// In how many loops of all threads it is.
    loops: usize,
    /// A barrier that nothing has named yet.
    lone: usize,
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

    /// A predicate that differs from lane to lane, or from warp to warp.
    fn condition(&mut self, warps_alone: bool) -> String {
        let predicate = format!("%p{}", self.name());
        let (a, b) = (self.random.below(33), self.random.below(4));
        match (warps_alone, self.random.below(4)) {
            (true, 0..=1) => {
                let warps = self.threads.div_ceil(32) as usize;
                let bound = self.random.below(warps + 1);
                self.line(&format!("setp.lt.u32 {predicate}, %group, {bound};"));
            }
            (true, _) => {
                let count = 1 + self.random.below(COUNTERS - 1);
                self.line(&format!(
                    "add.u32 %t, %group, %c{count}; and.b32 %t, %t, {}; setp.eq.u32 {predicate}, %t, 1;",
                    [1, 3, 5][b % 3]
                ));
            }
            (_, 0) => self.line(&format!("setp.lt.u32 {predicate}, %spot, {a};")),
            (_, 1) => self.line(&format!(
                "and.b32 %t, %spot, {}; setp.ne.u32 {predicate}, %t, 0;",
                1 << b
            )),
            (_, 2) => {
                let bound = self.random.below(self.threads as usize + 2);
                self.line(&format!("setp.ge.u32 {predicate}, %me, {bound};"));
            }
            _ => {
                let value = self.value();
                self.line(&format!(
                    "and.b32 %t, {value}, 5; setp.gt.u32 {predicate}, %t, 1;"
                ));
            }
        }
        predicate
    }

    /// Of all threads of the block, if `together`.
    fn arithmetic(&mut self, together: bool) {
        let (to, a, b) = (self.value(), self.value(), self.value());
        let number = self.random.below(1000);
        let (count, other) = (self.random.below(COUNTERS), self.random.below(COUNTERS));
        // Values of 16 bits lie in words while they are kept.
        let (short, from) = (self.random.below(2), self.random.below(2));
        let kinds = if self.row < self.threads { 34 } else { 20 };
        let text = match self.random.below(kinds) {
            20.. => return self.in_columns(),
            17 => format!("cvt.u16.u32 %h{short}, {a};"),
            18 => format!("mad.lo.s16 %h{short}, %h{from}, %h{short}, {number};"),
            19 => format!("cvt.s32.s16 %t, %h{from}; add.u32 {to}, {to}, %t;"),
            10 => format!("mad.lo.u32 {to}, {to}, 31, %c{count};"),
            // The first is written wherever threads are, the others by all together.
            11 => format!("add.u32 %c0, %c{count}, {number};"),
            12 if together => {
                let count = 1 + number % (COUNTERS - 1);
                format!("mad.lo.u32 %c{count}, %c{other}, 3, {number};")
            }
            12 => format!("xor.b32 {to}, {to}, %c{count};"),
            0 => format!("add.u32 {to}, {a}, {b};"),
            1 => format!("xor.b32 {to}, {a}, {number};"),
            2 => format!("mad.lo.u32 {to}, {a}, {number}, {b};"),
            3 => format!("mov.u32 {to}, {number};"),
            4 => {
                let special = ["laneid", "warpid", "lanemask_lt", "tid.x"][self.random.below(4)];
                format!("mov.u32 %t, %{special}; add.u32 {to}, {a}, %t;")
            }
            // Who goes which way is no matter of a wait.
            5 => {
                let n = self.name();
                format!(
                    "and.b32 %t, {b}, 3; setp.lt.u32 %p{n}, %t, 2; @%p{n} bra I{n};
                    mad.lo.u32 {to}, {a}, 3, {number}; I{n}:"
                )
            }
            6 => {
                let n = self.name();
                format!(
                    "and.b32 %t, {b}, 3; I{n}: add.u32 {to}, {to}, {a}; sub.u32 %t, %t, 1;
                    setp.gt.s32 %p{n}, %t, 0; @%p{n} bra I{n};"
                )
            }
            // Wraps between some neighbours, who part for good.
            7 => {
                let n = self.name();
                format!(
                    "sub.u32 %x{n}, %me, {}; cvt.u64.u32 %y{n}, %x{n}; shr.u64 %z{n}, %y{n}, 7;
                    cvt.u32.u64 %t, %z{n}; add.u32 {to}, {a}, %t;",
                    number % 50
                )
            }
            // Along a table, in turns.
            13 => {
                let (n, bound) = (self.name(), self.random.below(TABLE + 1));
                let stride = [8, 32, 40, self.threads as usize][self.random.below(4)];
                let turn = match self.random.below(3) {
                    0 => format!(
                        "and.b32 %n{n}, {b}, %t; and.b32 %n{n}, %n{n}, 1; setp.eq.u32 %q, %n{n}, 0;
                        @%q bra I{n}; xor.b32 {to}, {to}, {number}; I{n}:"
                    ),
                    1 => format!("add.u32 %c0, %c0, {number};"),
                    _ => String::new(),
                };
                format!(
                    "mov.u32 %x{n}, %me; setp.ge.u32 %p{n}, %x{n}, {bound}; @%p{n} bra H{n};
                    G{n}: mul.wide.u32 %y{n}, %x{n}, 4; mov.u64 %z{n}, table;
                    add.u64 %y{n}, %y{n}, %z{n}; ld.global.u32 %t, [%y{n}];
                    mad.lo.u32 {to}, {to}, 31, %t; {turn}
                    add.u32 %x{n}, %x{n}, {stride}; setp.lt.u32 %p{n}, %x{n}, {bound};
                    @%p{n} bra G{n}; H{n}:"
                )
            }
            // At any place of it, as often as each likes.
            14 => {
                let n = self.name();
                format!(
                    "and.b32 %x{n}, {a}, 7; and.b32 %m{n}, {b}, 15;
                    setp.ge.u32 %p{n}, %x{n}, %m{n}; @%p{n} bra H{n};
                    G{n}: mad.lo.u32 %t, %x{n}, 5, {a}; and.b32 %t, %t, {};
                    mul.wide.u32 %y{n}, %t, 4; mov.u64 %z{n}, table; add.u64 %y{n}, %y{n}, %z{n};
                    ld.global.u32 %t, [%y{n}]; mad.lo.u32 {to}, {to}, 31, %t;
                    add.u32 %x{n}, %x{n}, 1; setp.lt.u32 %p{n}, %x{n}, %m{n};
                    @%p{n} bra G{n}; H{n}:",
                    TABLE - 1
                )
            }
            // By the number of a lane: what each takes, and who stores what all then read.
            15 | 16 => {
                let (n, than) = (self.name(), self.random.below(34) as i64 - 1);
                let compare = ["eq.u32", "ne.s32", "lt.u32", "le.s32", "gt.u32", "ge.s32"]
                    [self.random.below(6)];
                let not = ["", "!"][self.random.below(2)];
                let what = match self.random.below(6) {
                    4 => format!("@{not}%p{n} bra I{n}; mov.u32 {to}, {number}; I{n}:"),
                    5 => format!(
                        "@{not}%p{n} bra I{n}; mad.lo.u32 {to}, {a}, 3, %c{count};
                        st.shared.u32 [%own], {number}; bra H{n}; I{n}: mov.u32 {to}, %c{count};
                        H{n}: ld.shared.u32 %t, [%own]; add.u32 {to}, {to}, %t;"
                    ),
                    0 => format!("selp.u32 {to}, {a}, 0, %p{n};"),
                    1 => format!("selp.u32 {to}, 0, {a}, %p{n};"),
                    2 => format!("selp.u32 {to}, {a}, {b}, %p{n};"),
                    _ => format!(
                        "@{not}%p{n} bra I{n}; st.shared.u32 [%own], {a}; I{n}:
                        ld.shared.u32 %t, [%own]; mad.lo.u32 {to}, {to}, 31, %t;"
                    ),
                };
                format!("setp.{compare} %p{n}, %spot, {than}; {what}")
            }
            8 => format!("cvt.u64.u32 %wide, {a}; mad.wide.u32 %wide, {b}, {number}, %wide;"),
            _ => format!("shr.u64 %wide, %wide, 3; cvt.u32.u64 %t, %wide; add.u32 {to}, {a}, %t;"),
        };
        self.line(&text);
    }

    /// What hangs on the column of a thread, and on what all threads have in common.
    fn in_columns(&mut self) {
        let (to, a, n) = (self.value(), self.value(), self.name());
        let [factor, shift, low, high] = [1000, 12, 20, 64].map(|most| self.random.below(most));
        let more = match self.random.below(3) {
            0 => format!("%c{}", self.random.below(COUNTERS)),
            _ => self.random.below(50).to_string(),
        };
        let compare = ["lt.s32", "ge.u32", "eq.u32", "ne.s32"][self.random.below(4)];
        let tested = ["a", "b", "e"][self.random.below(3)];
        let than = ["3", "17", "%c1"][self.random.below(3)];
        let not = ["", "!"][self.random.below(2)];
        // Most are neighbours; in some rows, not all of them. What is added may be no more then.
        let table = ["%in", "%in", "%table"][self.random.below(3)];
        let wide = ["s32", "u32"][self.random.below(2)];
        let again = match self.random.below(3) {
            0 => format!("add.u32 %k{n}, %k{n}, 5;"),
            _ => String::new(),
        };
        let load = format!(
            "mov.u32 %k{n}, %tid.y; and.b32 %k{n}, %k{n}, 7; shl.b32 %k{n}, %k{n}, 3;
            add.s32 %f{n}, %e{n}, %k{n}; {again} mul.wide.{wide} %y{n}, %f{n}, 4;
            add.u64 %y{n}, %y{n}, {table}; ld.global.u32 %t, [%y{n}];
            mad.lo.u32 {to}, {to}, 31, %t;"
        );
        // Of the column and of what is the same in the row, or in the block.
        let than_row = ["%k", "%c0", "%c1"][self.random.below(3)].replace("%k", &format!("%k{n}"));
        let logic = match self.random.below(4) {
            0 => format!("or.pred %l{n}, %p{n}, %g{n};"),
            1 => format!("and.pred %l{n}, %g{n}, %p{n};"),
            2 => format!("not.pred %l{n}, %p{n}; or.pred %l{n}, %l{n}, %g{n};"),
            _ => format!("or.pred %g{n}, %g{n}, %p{n}; not.pred %l{n}, %g{n};"),
        };
        let logic = match self.random.below(4) {
            0 => format!("{logic} setp.ne.u32 %g{n}, %c0, 3; xor.pred %l{n}, %l{n}, %g{n};"),
            1 => format!("{logic} setp.ne.u32 %g{n}, %c0, 3;"),
            _ => logic,
        };
        let logic = format!(
            "mov.u32 %k{n}, %tid.y; and.b32 %k{n}, %k{n}, 1; setp.eq.u32 %g{n}, {than_row}, 1;
            {logic} @{not}%l{n} bra I{n}; mad.lo.u32 {to}, {a}, 3, %e{n}; I{n}:"
        );
        // What all have, of this place and of one before, and read where it is written again.
        let before = 1 + self.random.below(n);
        let count = self.random.below(COUNTERS);
        let common = format!(
            "mad.lo.u32 %s{n}, %c{count}, {factor}, {low}; shr.u32 %u{n}, %s{n}, 1;
            mad.lo.u32 {to}, {to}, 31, %u{n}; add.u32 %t, %u{before}, %e{n}; xor.b32 {to}, {to}, %t;"
        );
        let some = format!("@{not}%p{n} bra I{n};");
        let what = match self.random.below(12) {
            8 | 9 => logic,
            10 => common,
            11 => format!("{some} {common} I{n}:"),
            0 => format!("mad.lo.u32 {to}, {a}, 31, %e{n};"),
            1 => format!("selp.u32 %t, %b{n}, 7, %p{n}; xor.b32 {to}, {to}, %t;"),
            2 => format!("{some} mad.lo.u32 {to}, {a}, 3, %b{n}; I{n}:"),
            3 => format!(
                "{some} mad.lo.u32 {to}, {a}, 3, %e{n}; st.shared.u32 [%own], {a}; I{n}:
                ld.shared.u32 %t, [%own]; add.u32 {to}, {to}, %t;"
            ),
            4 => format!("@{not}%p{n} add.u32 {to}, {a}, %b{n};"),
            5 => load,
            6 => format!("{some} {load} I{n}:"),
            _ => format!(
                "and.b32 %t, %e{n}, 3; I{n}: add.u32 {to}, {to}, {a}; sub.u32 %t, %t, 1;
                setp.gt.s32 %q, %t, 0; @%q bra I{n};"
            ),
        };
        let compute = format!(
            "mov.u32 %x{n}, %tid.x;
            mad.lo.u32 %a{n}, %x{n}, {factor}, {more}; shr.u32 %b{n}, %a{n}, {shift};
            sub.s32 %m{n}, %x{n}, {low}; max.s32 %d{n}, %m{n}, 0; min.s32 %e{n}, %d{n}, {high};
            setp.{compare} %p{n}, %{tested}{n}, {than}; {what}"
        );
        self.line(&format!(
            ".reg .b32 %a{n}, %b{n}, %d{n}, %e{n}, %f{n}, %i{n}, %k{n}; .reg .pred %g{n}, %l{n};"
        ));
        match self.random.below(3) {
            // In a loop that each leaves when it likes.
            0 => self.line(&format!(
                "and.b32 %i{n}, {a}, 3; J{n}: {compute} sub.u32 %i{n}, %i{n}, 1;
                setp.gt.s32 %q, %i{n}, 0; @%q bra J{n};"
            )),
            _ => self.line(&compute),
        }
    }

    /// What tensor cores do for a warp. It works on the warp's own part of shared memory alone, so
    /// lanes come to it together if `memory`.
    fn matrix_operation(&mut self, memory: bool) {
        let list = |writer: &mut Self, count: usize| {
            let names: Vec<String> = (0..count).map(|_| writer.value()).collect();
            names.join(", ")
        };
        let [a, b, c, mixed] = [4, 2, 4, 4].map(|count| list(self, count));
        let first = self.random.below(VALUES - 3);
        let d = format!(
            "%v{first}, %v{}, %v{}, %v{}",
            first + 1,
            first + 2,
            first + 3
        );
        let (one, from, n) = (self.value(), self.value(), self.name());
        let trans = ["", ".trans"][self.random.below(2)];
        let store = format!(
            "st.shared.v4.b32 [%tile], {{{mixed}}}; st.shared.v4.b32 [%tile+512], {{{a}}};
            bar.warp.sync -1;"
        );
        let row = format!(
            "and.b32 %t, {from}, 63; shl.b32 %t, %t, 4; add.u32 %t, %t, %first; and.b32 %n{n}, {one}, 1;
            setp.ne.u32 %p{n}, %n{n}, 0;"
        );
        let kinds = if memory { 11 } else { 5 };
        // Rows whose addresses no lane brings all lie at the beginning of shared memory.
        let all = !self.ended && self.threads.is_multiple_of(32);
        let text = match self.random.below(kinds) {
            7 if !all => return,
            0 => format!(
                "mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 {{{d}}}, {{{a}}}, {{{b}}}, {{{c}}};"
            ),
            1 => format!(
                "mma.sync.aligned.m16n8k32.row.col.satfinite.s32.s8.u8.s32 {{{d}}}, {{{a}}}, {{{b}}},
                {{{c}}};"
            ),
            2 => format!(
                "mma.sp::ordered_metadata.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {{{d}}},
                {{{b}}}, {{{b}}}, {{{c}}}, {one}, 1;"
            ),
            3 => format!(
                "wmma.mma.sync.aligned.row.col.m8n8k32.s32.u4.s4.s32 {{%v{first}, %v{}}}, {{{one}}},
                {{{from}}}, {{{b}}};",
                first + 1
            ),
            4 => format!("movmatrix.sync.aligned.m8n8.trans.b16 {one}, {from};"),
            5 | 6 => format!(
                "{store} {row} ldmatrix.sync.aligned.m8n8.x4{trans}.shared.b16 {{{d}}}, [%t];
                bar.warp.sync -1;"
            ),
            7 => format!(
                "{store} {row} add.u32 %n{n}, %tile, 512;
                stmatrix.sync.aligned.m8n8.x2{trans}.shared.b16 [%n{n}], {{{b}}};
                bar.warp.sync -1; ld.shared.v2.u32 {{%v{first}, %v{}}}, [%t+8]; bar.warp.sync -1;",
                first + 1
            ),
            8 => format!(
                "{store} wmma.load.c.sync.aligned.row.m8n8k32.shared.s32 {{%v{first}, %v{}}}, [%first],
                9; bar.warp.sync -1;",
                first + 1
            ),
            9 => format!(
                "{store} {row} wgmma.mma_async.sync.aligned.m64n8k16.f32.f16.f16 {{{d}}}, {{{a}}},
                %matrix, %p{n}, 1, -1, {}; wgmma.wait_group.sync.aligned 0; bar.warp.sync -1;",
                self.random.below(2)
            ),
            _ => {
                let part = ["", ", %n", ", %p"][self.random.below(3)];
                let part = if part.is_empty() { String::new() } else { format!("{part}{n}") };
                format!(
                    "{store} {row} cp.async.ca.shared.global [%tile+4], [%at], 4{part};
                    cp.async.wait_all; bar.warp.sync -1; ld.shared.u32 {one}, [%t]; bar.warp.sync -1;"
                )
            }
        };
        self.line(&text);
    }

    /// All threads meet at an `mbarrier`, where a copy may be on its way to them. They leave it one
    /// by one, so the lanes of a warp meet again.
    fn phase(&mut self) {
        let (n, from) = (self.name(), self.value());
        let arrive = match self.random.below(3) {
            0 => "mbarrier.arrive.shared.b64 %y#, [meeting];",
            1 => {
                "mbarrier.arrive.expect_tx.shared.b64 %y#, [meeting], 16;
                mbarrier.complete_tx.relaxed.cta.shared::cta.b64 [meeting], 16;"
            }
            _ => {
                "mbarrier.expect_tx.relaxed.cta.shared::cta.b64 [meeting], 4;
                st.async.shared::cluster.mbarrier::complete_tx::bytes.u32 [%tile], %me, [meeting];
                mbarrier.arrive.shared.b64 %y#, [meeting];"
            }
        };
        let arrive = arrive.replace('#', &n.to_string());
        let look = ["test_wait", "try_wait"][self.random.below(2)];
        self.line(&format!(
            "{arrive} W{n}: mbarrier.{look}.shared.b64 %p{n}, [meeting], %y{n};
            @!%p{n} bra W{n}; mbarrier.pending_count.b64 %t, %y{n}; min.u32 %t, %t, 1;
            add.u32 {from}, {from}, %t; bar.warp.sync -1;"
        ));
    }

    /// An operation of the lanes in `mask`.
    fn warp_operation(&mut self, mask: &str) {
        let (to, from) = (self.value(), self.value());
        let selector = match self.random.below(3) {
            0 => self.value(),
            _ => self.random.below(34).to_string(),
        };
        let p = self.name();
        let odd = format!("and.b32 %t, {from}, 1; setp.ne.u32 %p{p}, %t, 0;");
        // Which lanes are there depends on who spins how long.
        let kinds = if self.spins { 12 } else { 14 };
        let text = match self.random.below(kinds) {
            0..=4 => {
                let mode = ["up", "down", "bfly", "idx"][self.random.below(4)];
                let clamp = match (mode, self.random.below(4)) {
                    ("up", 0) => "0x1800",
                    ("up", _) => "0",
                    (_, 0) => "0x181f",
                    _ => "31",
                };
                format!(
                    "shfl.sync.{mode}.b32 %t|%p{p}, {from}, {selector}, {clamp}, {mask};
                    @%p{p} add.u32 %t, %t, 77; mov.u32 {to}, %t;"
                )
            }
            5 => format!("{odd} vote.sync.ballot.b32 %t, %p{p}, {mask}; xor.b32 {to}, {to}, %t;"),
            6 => {
                let mode = ["all", "any", "uni"][self.random.below(3)];
                format!(
                    "{odd} vote.sync.{mode}.pred %p{p}, %p{p}, {mask}; selp.u32 {to}, {to}, 3, %p{p};"
                )
            }
            7 => format!("and.b32 %t, {from}, 3; match.any.sync.b32 {to}, %t, {mask};"),
            8 => format!(
                "and.b32 %t, {from}, 64; match.all.sync.b32 {to}|%p{p}, %t, {mask};
                @%p{p} add.u32 {to}, {to}, 1;"
            ),
            9 => {
                let op =
                    ["add.u32", "min.s32", "max.u32", "xor.b32", "or.b32"][self.random.below(5)];
                format!("redux.sync.{op} {to}, {from}, {mask};")
            }
            10 => format!("elect.sync {to}|%p{p}, {mask}; @%p{p} add.u32 {to}, {to}, 100;"),
            12 => format!("activemask.b32 %t; add.u32 {to}, {to}, %t;"),
            13 => format!("shfl.idx.b32 {to}, {from}, {selector}, 31;"),
            _ => format!("bar.warp.sync {mask};"),
        };
        self.line(&text);
    }

    /// What all threads of the block do together that have not ended.
    fn block_operation(&mut self) {
        let (to, from) = (self.value(), self.value());
        let id = self.random.below(4);
        let p = self.name();
        let whole = self.threads.next_multiple_of(32);
        if self.random.below(20) == 0 {
            // All go on, and the barrier waits for more.
            let twice = 2 * whole;
            self.line(&format!(
                "bar.arrive 12, {twice}; mad.lo.u32 {to}, {from}, 31, %c1; bar.arrive 12, {twice};"
            ));
            return;
        }
        let kinds = if self.mixes { 4 } else { 6 };
        let text = match self.random.below(kinds) {
            0 => format!("bar.sync {id};"),
            1 => format!("bar.sync {id}, {whole};"),
            2 => format!(
                "and.b32 %t, {from}, 1; setp.ne.u32 %p{p}, %t, 0;
                bar.red.popc.u32 %t, {id}, %p{p}; add.u32 {to}, {to}, %t;"
            ),
            3 => {
                let op = ["and", "or"][self.random.below(2)];
                format!(
                    "setp.gt.u32 %p{p}, {from}, 100; bar.red.{op}.pred %p{p}, {id}, %p{p};
                    selp.u32 {to}, {to}, 9, %p{p};"
                )
            }
            _ => {
                let (factor, more) = (self.random.below(7), self.random.below(50));
                format!(
                    "st.shared.u32 [%own], {from}; bar.sync {id};
                    mad.lo.u32 %t, %me, {factor}, {more}; rem.u32 %t, %t, {};
                    mad.lo.u32 %t, %t, 4, %base; ld.shared.u32 {to}, [%t]; bar.sync {id};",
                    self.threads
                )
            }
        };
        self.line(&text);
    }

    /// Some warps only arrive where the others wait.
    fn producers(&mut self, id: usize) {
        let condition = self.condition(true);
        let n = self.name();
        let whole = self.threads.next_multiple_of(32);
        let from = self.value();
        let to = self.value();
        self.line(&format!(
            "st.shared.u32 [%own], {from};
            @{condition} bra P{n};
            bar.sync {id}, {whole};
            bra Q{n};
            P{n}: bar.arrive {id}, {whole};
            Q{n}: bar.sync 0; ld.shared.u32 {to}, [%base]; bar.sync 0;"
        ));
    }

    /// A thread looks at memory again and again.
    fn spin(&mut self) {
        let (to, from, n) = (self.value(), self.value(), self.name());
        let text = match self.random.below(4) {
            // Threads take numbers, and turns by them.
            0 | 1 => format!(
                "atom.shared.add.u32 %x{n}, [%base+4000], 1;
                S{n}: ld.volatile.shared.u32 %t, [%base+4004]; setp.ne.u32 %p{n}, %t, %x{n};
                @%p{n} bra S{n};
                ld.global.u32 %t, [%count]; add.u32 %t, %t, 1; st.global.u32 [%count], %t;
                add.u32 %x{n}, %x{n}, 1; st.volatile.shared.u32 [%base+4004], %x{n};"
            ),
            // What is there already, some times.
            2 => format!(
                "and.b32 %x{n}, {from}, 7;
                S{n}: ld.volatile.shared.u32 %t, [%own]; add.u32 {to}, {to}, %t;
                sub.u32 %x{n}, %x{n}, 1; setp.gt.s32 %p{n}, %x{n}, 0; @%p{n} bra S{n};"
            ),
            _ => format!(
                "S{n}: ld.volatile.global.u32 %t, [%other]; setp.eq.u32 %p{n}, %t, 0;
                @%p{n} bra S{n}; add.u32 {to}, {to}, %t;"
            ),
        };
        self.line(&text);
    }

    /// Statements of lanes that agree on `mask`; of all threads of the block, if `together`.
    fn statements(&mut self, mask: &str, together: bool, depth: usize) {
        for _ in 0..1 + self.random.below(5) {
            if self.left == 0 {
                return;
            }
            self.left -= 1;
            if self.spins && self.random.below(6) == 0 {
                self.spin();
                continue;
            }
            match self.random.below(14) {
                0..=2 => self.arithmetic(together),
                3..=6 if mask == "-1" && self.random.below(3) == 0 => self.matrix_operation(true),
                3..=6 => self.warp_operation(mask),
                // In a loop, threads may have ended further on.
                7 if together
                    && !self.mixes
                    && !self.ended
                    && self.loops == 0
                    && self.random.below(3) == 0 =>
                {
                    self.phase()
                }
                7 | 8 if together => self.block_operation(),
                9 if together && !self.mixes && self.loops == 0 => {
                    // Where whole warps have ended, who completes the barrier is chance once
                    // threads come to it a second time.
                    match (self.ended, self.lone) {
                        (false, _) => {
                            let id = 4 + self.random.below(4);
                            self.producers(id);
                        }
                        (true, id @ ..16) => {
                            self.lone += 1;
                            self.producers(id);
                        }
                        (true, _) => self.block_operation(),
                    }
                }
                9 => self.branch_of_warps(mask, together, depth),
                10 | 11 if depth > 0 => self.branch(mask, depth),
                12 if depth > 0 => self.divergent_loop(mask, depth),
                13 if depth > 0 && together => {
                    let n = self.name();
                    let rounds = 1 + self.random.below(3);
                    self.line(&format!(".reg .u32 %i{n}; mov.u32 %i{n}, 0; L{n}:"));
                    self.loops += 1;
                    self.statements(mask, together, depth - 1);
                    self.loops -= 1;
                    self.line(&format!(
                        "add.u32 %i{n}, %i{n}, 1; setp.lt.u32 %q, %i{n}, {rounds}; @%q bra L{n};"
                    ));
                }
                13 if self.random.below(3) == 0 => {
                    let warps_alone = self.random.below(2) == 0;
                    let condition = self.condition(warps_alone);
                    self.line(&format!("@{condition} bra done;"));
                    self.ended = true;
                    if self.random.below(8) != 0 {
                        // Who is left agrees anew, and mostly leaves those that ended out.
                        return;
                    }
                }
                // What others may never come to, or not in time.
                _ if !together && self.random.below(12) == 0 => match self.random.below(3) {
                    0 => self.warp_operation("-1"),
                    1 => self.matrix_operation(false),
                    _ => self.line("bar.sync 9;"),
                },
                _ => self.arithmetic(together),
            }
        }
    }

    fn branch(&mut self, mask: &str, depth: usize) {
        let condition = self.condition(false);
        let n = self.name();
        self.line(&format!(
            "vote.sync.ballot.b32 %m{n}, {condition}, {mask};
            not.b32 %n{n}, %m{n}; and.b32 %n{n}, %n{n}, {mask};
            @!{condition} bra E{n};"
        ));
        self.statements(&format!("%m{n}"), false, depth - 1);
        self.line(&format!("bra F{n}; E{n}:"));
        if self.random.below(2) == 0 {
            self.statements(&format!("%n{n}"), false, depth - 1);
        }
        self.line(&format!("F{n}:"));
        match self.random.below(20) {
            // Lanes outside of the branch may never come.
            0 => self.line(&format!("bar.warp.sync %m{n};")),
            1..=9 => self.line(&format!("bar.warp.sync {mask};")),
            _ => {}
        }
    }

    /// Some warps do what others do not.
    fn branch_of_warps(&mut self, mask: &str, together: bool, depth: usize) {
        if depth == 0 {
            return;
        }
        let condition = self.condition(true);
        let (n, from) = (self.name(), self.value());
        self.line(&format!("@{condition} bra E{n};"));
        self.statements(mask, false, depth - 1);
        if together && self.mixes && self.random.below(2) == 0 {
            match self.random.below(3) {
                0 => self.line("bar.sync 0;"),
                1 => self.line("bar.sync 1;"),
                _ => self.line(&format!(
                    "setp.gt.u32 %q, {from}, 9; bar.red.popc.u32 %t, 0, %q; add.u32 {from}, {from}, %t;"
                )),
            }
        }
        self.line(&format!("bra F{n}; E{n}:"));
        if self.random.below(2) == 0 {
            self.statements(mask, false, depth - 1);
        }
        self.line(&format!("F{n}:"));
    }

    /// Each lane goes round as often as it likes.
    fn divergent_loop(&mut self, mask: &str, depth: usize) {
        let n = self.name();
        let value = match self.random.below(4) {
            0 => "%group".to_owned(),
            _ => self.value(),
        };
        self.line(&format!(
            "mov.u32 %m{n}, {mask}; and.b32 %n{n}, {value}, 3;
            L{n}:
            setp.ne.u32 %p{n}, %n{n}, 0;
            vote.sync.ballot.b32 %m{n}, %p{n}, %m{n};
            @!%p{n} bra E{n};
            sub.u32 %n{n}, %n{n}, 1;"
        ));
        self.statements(&format!("%m{n}"), false, depth - 1);
        self.line(&format!("bra L{n}; E{n}:"));
    }
}

/// A kernel `k(.u64 out)` for blocks with so many threads, so many of them in a row.
fn kernel(random: &mut Random, threads: u32, row: u32) -> String {
    let left = 3 + random.below(30);
    let spins = random.below(3) == 0;
    let mixes = !spins && random.below(3) == 0;
    let mut writer = Writer {
        random,
        text: String::new(),
        threads,
        row,
        names: 0,
        left,
        spins,
        mixes,
        ended: false,
        lone: 13,
        loops: 0,
    };
    while writer.left > 0 {
        writer.statements("-1", true, 3);
    }
    let Writer { text, names, .. } = writer;
    let names = names + 1;
    let counts = BLOCKS * threads * 4;
    let flags = counts + 4;
    let table: Vec<String> = table().iter().map(u32::to_string).collect();
    let table = table.join(", ");
    let me = match row < threads {
        true => format!("mov.u32 %me, %tid.x; mov.u32 %t, %tid.y; mad.lo.u32 %me, %t, {row}, %me;"),
        false => "mov.u32 %me, %tid.x;".to_owned(),
    };
    harness::module(&format!(
        ".global .align 4 .u32 table[{TABLE}] = {{{table}}};
        .visible .entry k(.param .u64 out, .param .u64 in)
        {{
            .reg .pred %p<{names}>, %q;
            .reg .b32 %m<{names}>, %n<{names}>, %v<{VALUES}>, %c<{COUNTERS}>;
            .reg .b32 %t, %me, %spot, %group, %gid, %own, %base;
            .reg .b64 %to, %at, %wide, %count, %other;
            .reg .b32 %x<{names}>;
            .reg .b32 %s<{names}>, %u<{names}>;
            .reg .b64 %y<{names}>, %z<{names}>, %in, %table;
            .reg .b32 %first, %tile; .reg .b64 %matrix;
            .reg .b16 %h<2>;
            .shared .align 16 .b8 nothing[128];
            .shared .align 8 .b64 meeting;
            .shared .align 128 .b8 tiles[8192];
            .shared .align 4 .b8 shared[4096];
            {me}
            and.b32 %spot, %me, 31;
            shr.u32 %group, %me, 5;
            mov.u32 %t, %ctaid.x;
            mad.lo.u32 %gid, %t, {threads}, %me;
            mov.u32 %base, shared;
            mov.u32 %t, tiles;
            mad.lo.u32 %first, %group, 1024, %t;
            mad.lo.u32 %tile, %spot, 16, %first;
            cvt.u64.u32 %matrix, %first; shr.u64 %matrix, %matrix, 4;
            or.b64 %matrix, %matrix, 0x800080000;
            mov.u64 %wide, 0;
            mov.u32 %own, nothing; add.u32 %t, %own, 128;
            none: st.shared.u64 [%own], %wide; add.u32 %own, %own, 8;
            setp.lt.u32 %q, %own, %t; @%q bra none;
            mov.u32 %own, %first; add.u32 %t, %first, 1024;
            clear: st.shared.u64 [%own], %wide; add.u32 %own, %own, 8;
            setp.lt.u32 %q, %own, %t; @%q bra clear;
            setp.ne.u32 %q, %me, 0; @%q bra begin;
            mbarrier.init.shared.b64 [meeting], {threads};
            begin:
            mov.u32 %t, %ctaid.x;
            mad.lo.u32 %own, %me, 4, %base;
            ld.param.u64 %to, [out]; ld.param.u64 %in, [in]; mov.u64 %table, table;
            mad.wide.u32 %at, %gid, 4, %to;
            mov.u64 %wide, 0;
            mov.u32 %c0, 0;
            mov.u32 %c1, %ctaid.x;
            mov.u32 %c2, 5;
            mov.u32 %v0, %gid;
            mul.lo.u32 %v1, %gid, 40503;
            shr.u32 %v2, %v1, 4;
            mov.u32 %v3, 0; cvt.u16.u32 %h0, %v1; cvt.s16.s32 %h1, %me;
            xor.b32 %v4, %v2, %me;
            mov.u32 %v5, %spot;
            mul.wide.u32 %count, %t, 8;
            add.u64 %count, %count, %to;
            add.u64 %count, %count, {counts};
            xor.b32 %t, %t, 1;
            mul.wide.u32 %other, %t, 8;
            add.u64 %other, %other, %to;
            add.u64 %other, %other, {flags};
            mov.u32 %t, 1;
            st.volatile.global.u32 [%count+4], %t;
            mov.u32 %t, 0;
            st.shared.u32 [%base+4000], %t;
            st.shared.u32 [%base+4004], %t;
            st.shared.u32 [%own], %me;
            bar.sync 0;
            {text}
            done:
            mad.lo.u32 %v0, %v0, 31, %v1;
            mad.lo.u32 %v0, %v0, 31, %v2;
            mad.lo.u32 %v0, %v0, 31, %v3;
            mad.lo.u32 %v0, %v0, 31, %v4;
            mad.lo.u32 %v0, %v0, 31, %v5;
            mad.lo.u32 %v0, %v0, 31, %c0;
            mad.lo.u32 %v0, %v0, 31, %c1;
            mad.lo.u32 %v0, %v0, 31, %c2;
            st.global.u32 [%at], %v0;
            ret;
        }}"
    ))
}

const BLOCKS: u32 = 2;
/// Words of a table that threads read.
const TABLE: usize = 128;

fn table() -> Vec<u32> {
    let words = 0..TABLE as u32;
    words.map(|at| at.wrapping_mul(0x9e37_79b9)).collect()
}

/// What a launch leaves behind, and how it ends.
fn outcome(
    module: &Arc<Module>,
    threads: u32,
    row: u32,
) -> (Vec<u32>, Option<(FaultKind, [u32; 3])>) {
    // For each thread a word; for each block, how often its lock was taken, and that it started.
    let mut data = vec![0u32; (BLOCKS * (threads + 2)) as usize];
    let (grid, block) = ([BLOCKS, 1, 1], [row, threads / row, 1]);
    let mut table = table();
    let buffers: &mut [&mut [u8]] = &mut [buffer(&mut data), buffer(&mut table)];
    let result = harness::run_in(module, "k", grid, block, 0, buffers, &[]);
    match result {
        Ok(()) => (data, None),
        // How far others came before is chance.
        Err(fault) => (vec![], Some((fault.kind, fault.thread.unwrap_or_default()))),
    }
}

#[test]
fn kernels_do_the_same_in_both_forms() {
    let cases = setting("SOFTCUDA_FUZZ_CASES").map_or(DEFAULT_CASES, |cases| cases / SHARE);
    let alone = setting("SOFTCUDA_FUZZ_CASE").is_some();
    let deadlocks = AtomicU64::new(0);
    run_cases(cases, |_, random, _| {
        let threads = [
            1, 20, 24, 32, 33, 36, 64, 90, 96, 100, 104, 128, 192, 250, 256,
        ];
        let threads = threads[random.below(threads.len())];
        let rows = [1, 1, 2, 3, 4, 6, 8, 10][random.below(8)];
        let row = if threads % rows == 0 {
            threads / rows
        } else {
            threads
        };
        let source = kernel(random, threads, row);
        if alone {
            println!("{source}");
        }
        let [vectors, rounds, fibers] = in_all_forms(&source);
        for (module, mode) in [
            (&vectors, Mode::Rounds),
            (&rounds, Mode::Rounds),
            (&fibers, Mode::Fibers),
        ] {
            let kernel = module.kernel("k").ok_or("it is not there")?;
            let compiled = kernel.compile().map_err(|error| error.to_string())?;
            assert_eq!(compiled.mode, mode);
        }
        let expected = outcome(&fibers, threads, row);
        if let Some((kind, _)) = expected.1 {
            assert_eq!(kind, FaultKind::Deadlock);
            deadlocks.fetch_add(1, Ordering::Relaxed);
        }
        for (module, form) in [(&vectors, "vectors"), (&rounds, "rounds")] {
            // A damaged kernel of another test may have written here meanwhile: what is wrong comes
            // again.
            if outcome(module, threads, row) != expected {
                let (got, expected) = (
                    outcome(module, threads, row),
                    outcome(&fibers, threads, row),
                );
                if got == expected {
                    continue;
                }
                return Err(format!(
                    "{threads} threads in rows of {row} do something else in {form}: {got:x?}, not {expected:x?}\n\
                    {source}"
                ));
            }
        }
        Ok(())
    });
    let deadlocks = deadlocks.into_inner();
    println!("{cases} kernels in all forms, of which {deadlocks} deadlock");
    assert!(alone || deadlocks < cases / 2, "{deadlocks} deadlock");
}
