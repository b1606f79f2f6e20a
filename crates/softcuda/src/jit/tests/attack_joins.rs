//! Attacks on where threads of a group join again, and on where groups and turns part: what threads
//! write by themselves, but alike; what wide groups leave out; warps that split at branches.

use super::forms::{difference, kernel, run_module};
use super::fuzz::{Random, run_cases, setting};
use crate::jit::harness::load_as;
use crate::jit::module::Form;

/// Cases of a plain `cargo test`; of a whole run, the part that is run here.
const DEFAULT_CASES: u64 = 30;
const SHARE: u64 = 200;

/// Launches of a kernel do the same in all forms. Which of two faults is told is chance.
fn agree(source: &str, launches: &[([u32; 3], [u32; 3], u32)]) -> Result<usize, String> {
    let forms = [Form::Fibers, Form::Vectors].map(|form| load_as(source, form));
    let mut faults = 0;
    for (grid, block, n) in launches {
        let [fibers, vectors] = forms
            .each_ref()
            .map(|module| run_module(module, *grid, *block, *n));
        faults += usize::from(fibers.is_err());
        let alike = match (&vectors, &fibers) {
            (Err((one, ..)), Err((other, ..))) => one == other,
            (one, other) => one == other,
        };
        if !alike {
            let how = difference(&vectors, &fibers);
            return Err(format!("{grid:?} {block:?} n={n}: {how}\n{source}"));
        }
    }
    Ok(faults)
}

/// The same of a body in groups of 16 and of 32, in blocks of these sizes; how many faults there
/// are.
fn all_agree(body: &str, grids: &[u32], blocks: &[u32], numbers: &[u32]) -> usize {
    let mut launches = vec![];
    for grid in grids {
        for block in blocks {
            for n in numbers {
                launches.push(([*grid, 1, 1], [*block, 1, 1], *n));
            }
        }
    }
    let other = format!("mov.u32 %r39, 1; {body}");
    let [one, other] = [body, &other].map(kernel);
    let one = agree(&one, &launches).unwrap_or_else(|how| panic!("{how}"));
    one + agree(&other, &launches).unwrap_or_else(|how| panic!("{how}"))
}

/// A row of `5 n` columns, of which each thread reads one: `%r12` and `%r10` are from it.
const ROW: &str = "mul.lo.u32 %r4, %r3, 5; add.u32 %r5, %r1, 3; rem.u32 %r8, %r5, %r4;
    mul.wide.u32 %rd4, %r8, 4; add.u64 %rd5, %rd4, %rd1; ld.global.u32 %r10, [%rd5+8192];
    add.u32 %r12, %r8, %r10; st.global.u32 [%rd3+1024], %r12;";

/// Each thread by itself adds 5 to what it began with, not to what the one before has left.
#[test]
fn written_from_itself() {
    let body =
        format!("mov.u32 %r6, %r3; {ROW} add.u32 %r6, %r6, 5; end: mad.lo.u32 %r9, %r6, 7, %r1;");
    all_agree(&body, &[1], &[80, 160], &[4, 13, 14, 20]);
}

/// The same under a guard.
#[test]
fn written_from_itself_under_a_guard() {
    let body = format!(
        "mov.u32 %r6, %r3; setp.ne.u32 %p5, %r3, 77; {ROW} @%p5 add.u32 %r6, %r6, 5;
        end: mad.lo.u32 %r9, %r6, 7, %r1;"
    );
    all_agree(&body, &[1], &[80, 160], &[4, 13, 14, 20]);
}

/// The same with what counts up with the threads.
#[test]
fn written_from_itself_and_counting_up() {
    let body = format!(
        "mul.lo.u32 %r6, %r1, -3; setp.ne.u32 %p5, %r3, 77; {ROW} @%p5 add.u32 %r6, %r6, 5;
        end: mad.lo.u32 %r9, %r6, 7, %r1;"
    );
    all_agree(&body, &[1], &[80, 160], &[4, 13, 14, 20]);
}

/// A loop around what is assumed: no thread begins with the last count of the one before.
#[test]
fn counters_of_loops_around_the_step() {
    all_agree(
        "mul.lo.u32 %r4, %r3, 5; mov.u32 %r6, 0; mov.u32 %r12, 0; mov.u32 %r7, 0;
        more: add.u32 %r5, %r1, %r6; rem.u32 %r8, %r5, %r4; mul.wide.u32 %rd4, %r8, 4;
        add.u64 %rd5, %rd4, %rd1; ld.global.u32 %r10, [%rd5+8192]; add.u32 %r7, %r7, %r10;
        add.u32 %r12, %r12, %r8; add.u32 %r6, %r6, 1; setp.lt.u32 %p1, %r6, 4; @%p1 bra more;
        st.global.u32 [%rd3+1024], %r12; on: mad.lo.u32 %r9, %r6, 7, %r7;",
        &[1],
        &[80, 160],
        &[4, 13, 14, 20],
    );
}

/// A loop on the way to the join, also one that counts down to 0.
#[test]
fn counters_of_loops_on_the_way() {
    all_agree(
        "mul.lo.u32 %r4, %r3, 5; mov.u32 %r6, %r3; mov.u32 %r13, 0; add.u32 %r5, %r1, 3;
        rem.u32 %r8, %r5, %r4; mul.wide.u32 %rd4, %r8, 4;
        turn: add.u32 %r6, %r6, 2; add.u32 %r13, %r13, 1; setp.lt.u32 %p2, %r13, %r3; @%p2 bra turn;
        add.u64 %rd5, %rd4, %rd1; ld.global.u32 %r10, [%rd5+8192]; add.u32 %r12, %r8, %r10;
        st.global.u32 [%rd3+1024], %r12; end: mad.lo.u32 %r9, %r6, 7, %r13;",
        &[1],
        &[80, 160],
        &[4, 13, 14, 20],
    );
}

/// New values of all kinds on the way to the join, of one assumption or of two that cross.
#[test]
fn new_values_on_the_way() {
    let two = "mul.lo.u32 %r4, %r3, 5; add.u32 %r5, %r1, 3; rem.u32 %r8, %r5, %r4; NEW
        mul.wide.u32 %rd4, %r8, 4; add.u64 %rd5, %rd4, %rd1; ld.global.u32 %r10, [%rd5+8192];
        add.u32 %r21, %r1, %r4; sub.u32 %r21, %r21, 1; rem.u32 %r22, %r21, %r4;
        add.u32 %r12, %r8, %r10; st.global.u32 [%rd3+1024], %r12; one:
        mul.wide.u32 %rd6, %r22, 4; add.u64 %rd7, %rd6, %rd1; ld.global.u32 %r23, [%rd7+8192];
        add.u32 %r24, %r23, %r22; st.global.u32 [%rd3+2048], %r24; two:";
    let one = format!("{ROW} NEW end:");
    let guards = "setp.ne.u32 %p6, %r3, 13; @%p6 bra past; mov.u32 %r14, 9; past:";
    for (new, read) in [
        (
            "setp.ne.u32 %p6, %r3, 13; selp.u32 %r14, 4, 5, %p6; add.u32 %r15, %r1, %r14;",
            "@%p6 add.u32 %r9, %r9, %r14; mad.lo.u32 %r9, %r9, 7, %r15;",
        ),
        (
            "cvt.u64.u32 %rd10, %r1; shl.b64 %rd10, %rd10, 33; not.b32 %r16, %r1;",
            "shr.u64 %rd11, %rd10, 31; cvt.u32.u64 %r19, %rd11; mad.lo.u32 %r9, %r19, 7, %r16;",
        ),
        (
            "cvt.u16.u32 %h1, %r1; mul.lo.u16 %h1, %h1, 513; mul.lo.u32 %r17, %r1, 65536;",
            "cvt.u32.u16 %r19, %h1; mad.lo.u32 %r9, %r19, 7, %r17;",
        ),
        (
            "cvt.rn.f32.u32 %f1, %r3; mul.f32 %f1, %f1, %f1; mov.u32 %r14, %nctaid.x;",
            "cvt.rzi.u32.f32 %r19, %f1; mad.lo.u32 %r9, %r19, 7, %r14;",
        ),
        (
            "ld.global.u32 %r14, [%rd2+8]; mov.u32 %r15, %laneid;",
            "mad.lo.u32 %r9, %r14, 7, %r15;",
        ),
        (guards, "mad.lo.u32 %r9, %r14, 7, %r1;"),
        (
            "ld.param.u32 %r14, [n]; mul.lo.u32 %r15, %r14, %r1;",
            "mad.lo.u32 %r9, %r15, 7, %r14;",
        ),
    ] {
        for frame in [two, &one] {
            let body = format!(
                ".reg .b16 %h<4>; mov.u32 %r14, 1; {} {read}",
                frame.replace("NEW", new)
            );
            all_agree(&body, &[2], &[80, 104], &[4, 13, 14]);
        }
    }
}

/// Blocks that poll for the one before: one thread does, and wide groups leave that out.
#[test]
fn one_thread_polls_for_the_block_before() {
    for who in ["0", "31", "%r3"] {
        let body = format!(
            "mul.wide.u32 %rd4, %r34, 4; add.u64 %rd5, %rd1, %rd4; mov.u32 %r22, s;
            shl.b32 %r21, %r1, 2; add.u32 %r23, %r22, %r21; st.shared.u32 [%r23], %r2; bar.sync 0;
            ld.shared.u32 %r24, [%r23]; mad.lo.u32 %r24, %r24, 5, %r1; st.shared.u32 [%r23], %r24;
            setp.ne.u32 %p1, %r1, {who}; @%p1 bra on; setp.eq.u32 %p2, %r34, 0; @%p2 bra on;
            spin: ld.volatile.global.u32 %r25, [%rd5+14000]; setp.eq.u32 %p2, %r25, 0;
            @%p2 bra spin; on: bar.sync 0; mul.wide.u32 %rd6, %r36, 4; sub.s64 %rd6, %rd3, %rd6;
            setp.eq.u32 %p3, %r34, 0; @%p3 bra first; ld.volatile.global.u32 %r26, [%rd6];
            add.u32 %r24, %r24, %r26; first: st.volatile.global.u32 [%rd3], %r24; membar.gl;
            bar.sync 0; mov.u32 %r9, %r24; ld.shared.u32 %r27, [%r23]; add.u32 %r9, %r9, %r27;
            st.volatile.global.u32 [%rd3], %r9; membar.gl; bar.sync 0;
            setp.ne.u32 %p1, %r1, {who}; @%p1 bra over;
            st.volatile.global.u32 [%rd5+14004], 1; over:"
        );
        assert_eq!(all_agree(&body, &[2, 9], &[32, 64, 96, 40], &[5, 31]), 0);
    }
}

/// What a region leaves out is behind a branch to a loop's head, ends, waits, traps, or has the way
/// on, while the other side never ends.
#[test]
fn sides_that_are_left_out() {
    let red = "red.global.add.u32 [%rd1+14000], %r24;";
    let sides = [
        format!("@%p1 bra on; {red} mov.u32 %r27, 5; st.global.u32 [%rd3], %r24; ret; on:"),
        format!("@%p1 bra on; {red} exit; on:"),
        format!("@%p1 bra on; {red} mov.u32 %r27, 5; bar.sync 0; on:"),
        format!("@%p1 bra on; {red} trap; on:"),
        format!("@%p1 bra on; {red} ld.global.u32 %r27, [%rd2+0x20000000]; on:"),
        format!("@!%p1 bra on; mad.lo.u32 %r24, %r24, 3, 1; bra out; on: {red} out:"),
        format!("@%p1 bra on; {red} @%p2 bra on; {red} mov.u32 %r27, 9; on:"),
        format!(
            "@%p1 bra on; {red} mov.u32 %r27, 9; on: @%p2 bra out; {red} add.u32 %r24, %r24, %r27;
            out:"
        ),
        format!(
            "mov.u32 %r25, 0; more: add.u32 %r25, %r25, 1; mad.lo.u32 %r24, %r24, 3, %r25;
            st.shared.u32 [%r23], %r24; setp.ge.u32 %p3, %r25, 4; @%p3 bra out; @%p1 bra more; {red}
            add.u32 %r27, %r27, %r25; bra more; out:"
        ),
        format!(
            "more: mad.lo.u32 %r24, %r24, 3, 1; @%p1 bra on; {red} add.u32 %r27, %r27, 1;
            setp.lt.u32 %p3, %r27, 11; @%p3 bra more; on:"
        ),
        // The store is behind a branch that is left out; those that did not go there read it.
        "@%p1 bra on; atom.global.add.u32 %r26, [%rd3], %r24; add.u32 %r27, %r27, %r26;
            st.shared.u32 [%r23], %r27; on: ld.shared.u32 %r26, [%r23]; add.u32 %r24, %r24, %r26;"
            .to_owned(),
        format!("@%p1 bra on; {red} vote.sync.ballot.b32 %r27, %p2, -1; on:"),
    ];
    let who = [
        "setp.ne.u32 %p1, %r1, 0;",
        "setp.ne.u32 %p1, %r1, 31;",
        "setp.lt.u32 %p1, %r1, %r3;",
        "setp.ge.u32 %p1, %r1, %r3;",
        "shr.u32 %r20, %r1, 5; setp.eq.u32 %p1, %r20, 1;",
    ];
    for who in who {
        for side in &sides {
            let body = format!(
                "mov.u32 %r27, 7; mov.u32 %r22, s; shl.b32 %r21, %r1, 2;
                add.u32 %r23, %r22, %r21; st.shared.u32 [%r23], %r2; setp.gt.u32 %p2, %r1, 33;
                bar.sync 0; ld.shared.u32 %r24, [%r23]; mad.lo.u32 %r24, %r24, 5, %r1; {who} {side}
                mad.lo.u32 %r24, %r24, 3, %r27; bar.sync 0; st.shared.u32 [%r23], %r24; bar.sync 0;
                ld.shared.u32 %r9, [%r23]; mad.lo.u32 %r9, %r9, 31, %r27;"
            );
            all_agree(&body, &[1, 3], &[32, 64, 40], &[0, 31, 40, 200]);
        }
    }
}

/// Writes kernels whose blocks wait, with regions that have what is left out, and warps that split.
struct Writer<'a> {
    random: &'a mut Random,
    text: String,
    labels: usize,
    /// All lanes of a warp are here, and all warps.
    together: [bool; 2],
    /// Some have ended.
    ended: bool,
    wild: bool,
}

impl Writer<'_> {
    fn pick<'t>(&mut self, of: &[&'t str]) -> &'t str {
        of[self.random.below(of.len())]
    }

    fn line(&mut self, line: &str) {
        let mut line = line.to_owned();
        for name in ["%A", "%B", "%C"] {
            let register = format!("%v{}", self.random.below(6));
            line = line.replace(name, &register);
        }
        line = line.replace("#", &self.random.below(9).to_string());
        self.text.push_str(&line);
        self.text.push('\n');
    }

    /// Says in `%z` and a number who goes by a branch; whether whole warps do.
    fn guard(&mut self, n: usize) -> bool {
        let told = [
            "setp.ne.u32 %zN, %t, 0;",
            "setp.ne.u32 %zN, %t, 31;",
            "setp.ge.u32 %zN, %t, 9;",
            "setp.lt.u32 %zN, %t, %n;",
            "setp.gt.u32 %zN, %t, %n; setp.lt.u32 %q, %t, 3; or.pred %zN, %zN, %q;",
            "sub.u32 %x, %all, 1; setp.ne.u32 %zN, %t, %x;",
            "setp.ne.u32 %zN, %t, %n; setp.ne.u32 %q, %t, 5; and.pred %zN, %zN, %q;",
        ];
        let by_warp = [
            "setp.ne.u32 %zN, %w, 0;",
            "and.b32 %x, %w, 1; setp.eq.u32 %zN, %x, 0;",
            "setp.lt.u32 %zN, %w, %n;",
            "add.u32 %x, %w, %k; and.b32 %x, %x, 1; setp.eq.u32 %zN, %x, 1;",
            "setp.lt.u32 %zN, %n, 20;",
            "setp.lt.u32 %zN, %t, 32;",
        ];
        let any = [
            "and.b32 %x, %A, 7; setp.eq.u32 %zN, %x, 3;",
            "setp.lt.u32 %zN, %l, 13;",
            "setp.lt.u32 %zN, %A, %B;",
        ];
        let (guard, whole) = match self.random.below(7) {
            0..3 => (self.pick(&told), false),
            3..6 => (self.pick(&by_warp), true),
            _ => (self.pick(&any), false),
        };
        self.line(&guard.replace("%zN", &format!("%z{n}")));
        whole
    }

    fn step(&mut self) {
        let texts = [
            "mad.lo.u32 %A, %B, 3, %C;",
            "xor.b32 %A, %B, %t;",
            "add.u32 %A, %B, %n;",
            "ld.shared.u32 %A, [%own];",
            "ld.shared.u32 %A, [%own]; mad.lo.u32 %A, %A, 5, %B;",
            "st.shared.u32 [%own], %A;",
            "and.b32 %x, %t, 63; mad.wide.u32 %d, %x, 4, %in; ld.global.u32 %A, [%d];",
            "mov.u32 %A, #;",
            "add.u32 %k, %k, 0;",
            "st.global.u32 [%mine], %A;",
        ];
        let few = [
            "red.global.add.u32 [%out+14000], %A;",
            "red.shared.add.u32 [%own], %A;",
            "atom.global.add.u32 %A, [%mine], %B;",
            "atom.shared.add.u32 %A, [%own], #;",
            "ld.volatile.global.u32 %x, [%in+8]; add.u32 %A, %x, %B;",
            "ld.volatile.shared.u32 %A, [%own];",
            "membar.gl;",
            "membar.cta;",
        ];
        let of_warps = [
            "shfl.sync.bfly.b32 %A, %B, 1, 31, -1;",
            "shfl.sync.idx.b32 %A, %B, 0, 31, -1;",
            "setp.lt.u32 %q, %A, %B; vote.sync.ballot.b32 %x, %q, -1; add.u32 %C, %C, %x;",
            "bar.warp.sync -1;",
        ];
        let text = match self.random.below(10) {
            0..6 => self.pick(&texts),
            6..9 => self.pick(&few),
            _ if self.together[0] => self.pick(&of_warps),
            _ => "add.u32 %A, %A, %l;",
        };
        self.line(text);
    }

    fn steps(&mut self, depth: usize) {
        for _ in 0..1 + self.random.below(4) {
            match self.random.below(if depth > 2 { 3 } else { 8 }) {
                0..4 => self.step(),
                4..7 => self.branch(depth),
                _ => self.turns(depth),
            }
        }
    }

    /// A branch over something, or to one of two things.
    fn branch(&mut self, depth: usize) {
        self.labels += 1;
        let n = self.labels;
        let whole = self.guard(n);
        let not = self.pick(&["", "!"]);
        self.line(&format!("@{not}%z{n} bra over{n};"));
        let before = self.together;
        self.together = [before[0] && whole, false];
        self.steps(depth + 1);
        match self.random.below(16) {
            0 if before[0] && whole && !self.ended => self.line("bar.sync 0;"),
            1 if self.wild && (whole || self.random.below(3) == 0) => {
                self.line("st.global.u32 [%mine], %v1; ret;");
                self.ended = true;
            }
            2 if self.wild && self.random.below(3) == 0 => self.line("trap;"),
            3 if self.wild && !whole && !self.ended => self.line("bar.sync 0;"),
            _ => {}
        }
        if self.random.below(3) == 0 {
            self.line(&format!("bra out{n};"));
            self.text.push_str(&format!("over{n}:\n"));
            self.steps(depth + 1);
            self.text.push_str(&format!("out{n}:\n"));
        } else {
            self.text.push_str(&format!("over{n}:\n"));
        }
        self.together = before;
    }

    /// A few turns of a loop, the same number for all or not.
    fn turns(&mut self, depth: usize) {
        self.labels += 1;
        let n = self.labels;
        let (count, alike) = match self.random.below(3) {
            0 => (format!("and.b32 %i{n}, %t, 3;"), false),
            1 => (format!("and.b32 %i{n}, %w, 1;"), true),
            _ => (format!("mov.u32 %i{n}, 2;"), true),
        };
        let before = self.together;
        self.together = [before[0] && alike, false];
        self.line(&count);
        self.text.push_str(&format!("more{n}:\n"));
        self.steps(depth + 1);
        self.line(&format!(
            "setp.ne.u32 %q, %i{n}, 0; sub.u32 %i{n}, %i{n}, 1;"
        ));
        self.line(&format!("@%q bra more{n};"));
        self.together = before;
    }
}

/// A random kernel, with buffers as [`kernel`] has them.
fn written(random: &mut Random) -> String {
    let wild = random.below(3) == 0;
    let mut writer = Writer {
        random,
        text: String::new(),
        labels: 0,
        together: [true; 2],
        ended: false,
        wild,
    };
    for region in 0..2 + writer.random.below(3) {
        writer.line(&format!("mov.u32 %k, {region};"));
        writer.line("ld.shared.u32 %A, [%own]; mad.lo.u32 %A, %A, 5, %t;");
        writer.steps(0);
        let wait = [
            "bar.sync 0;",
            "bar.sync 0;",
            "membar.gl; bar.sync 0;",
            "bar.sync 3, %all;",
        ];
        let wait = match writer.ended {
            true => "bar.sync 0;",
            false => writer.pick(&wait),
        };
        writer.line(wait);
    }
    let text = writer.text;
    let body = format!(
        ".reg .b32 %v<6>, %i<99>, %t, %w, %l, %x, %k, %n, %all, %own; .reg .pred %q, %z<99>;
        .reg .b64 %d, %in, %out, %mine; mov.u32 %n, %r3; mov.u32 %t, %r1; mov.u32 %all, %r36;
        mov.u64 %in, %rd2; mov.u64 %out, %rd1; mov.u64 %mine, %rd3; shr.u32 %w, %t, 5;
        and.b32 %l, %t, 31; mov.u32 %k, s; shl.b32 %own, %t, 2; add.u32 %own, %own, %k;
        st.shared.u32 [%own], %r2; mov.u32 %v0, 1; mov.u32 %v1, %t; mov.u32 %v2, %r2;
        mov.u32 %v3, %n; mul.lo.u32 %v4, %t, 77; mov.u32 %v5, %r34; bar.sync 0;
        {text}
        mov.u32 %r9, %v0; mad.lo.u32 %r9, %r9, 31, %v1; mad.lo.u32 %r9, %r9, 31, %v2;
        mad.lo.u32 %r9, %r9, 31, %v3; mad.lo.u32 %r9, %r9, 31, %v4; mad.lo.u32 %r9, %r9, 31, %v5;
        ld.shared.u32 %x, [%own]; mad.lo.u32 %r9, %r9, 31, %x;"
    );
    kernel(&body)
}

#[test]
fn random_regions_and_splits() {
    let cases = setting("SOFTCUDA_FUZZ_CASES").map_or(DEFAULT_CASES, |cases| cases / SHARE);
    run_cases(cases, |_, random, _| {
        let source = written(random);
        if setting("SOFTCUDA_FUZZ_CASE").is_some() {
            println!("{source}");
        }
        let blocks = [
            [32, 1, 1],
            [64, 1, 1],
            [96, 1, 1],
            [128, 1, 1],
            [48, 1, 1],
            [72, 1, 1],
            [40, 1, 1],
            [33, 1, 1],
            [256, 1, 1],
            [60, 1, 1],
        ];
        let mut launches = vec![];
        for _ in 0..3 {
            let grid = [1 + random.below(9) as u32, 1, 1];
            let block = blocks[random.below(blocks.len())];
            launches.push((
                grid,
                block,
                [0, 1, 2, 8, 17, 31, 33, 40, 64, 100][random.below(10)],
            ));
        }
        agree(&source, &launches).map(|_| ())
    });
}
