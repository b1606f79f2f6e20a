//! Random control flow against loops that [count in registers of their
//! own](crate::jit::resolve::webs): each thread leaves what a plain interpreter says.

use std::collections::HashMap;

use super::forms::{kernel, run};
use super::fuzz::{Random, run_cases, setting};
use crate::jit::module::Form;

/// Cases of a plain `cargo test`, and of a whole run the part that is run here.
const DEFAULT_CASES: u64 = 40;
const SHARE: u64 = 10;
/// Registers that the program uses: `%r10` and so on.
const REGISTERS: usize = 6;

/// Where a condition looks: some bits of a register are not all zero, or are.
#[derive(Clone, Copy)]
struct If(usize, u32, bool);

#[derive(Clone, Copy)]
enum Do {
    /// `a * by + b + more`
    Mad(usize, usize, u32, usize, u32),
    /// The number of the thread, times that and more.
    Tid(usize, u32, u32),
    Mov(usize, usize),
    /// Two registers at once: `{to, or} = {a, b}`.
    Both([usize; 2], [usize; 2]),
    /// It goes into what the thread leaves.
    Read(usize),
    Wait,
    Label(usize),
    /// Backward branches only as long as a thread has fuel.
    Go(usize, bool),
    End,
}

#[derive(Default)]
struct Program {
    steps: Vec<(Option<If>, Do)>,
    labels: usize,
    defined: [bool; REGISTERS],
    /// Heads and ends of the loops around.
    around: Vec<(usize, usize)>,
}

impl Program {
    fn label(&mut self) -> usize {
        self.labels += 1;
        self.labels
    }

    fn put(&mut self, step: Do) {
        self.steps.push((None, step));
    }

    fn condition(&self, random: &mut Random) -> If {
        let all: Vec<usize> = (0..REGISTERS).filter(|at| self.defined[*at]).collect();
        let register = all[random.below(all.len())];
        If(
            register,
            [1, 2, 3, 6, 8][random.below(5)],
            random.below(2) == 0,
        )
    }

    fn items(&mut self, random: &mut Random, depth: usize) {
        for _ in 0..2 + random.below(6) {
            self.item(random, depth);
        }
    }

    fn item(&mut self, random: &mut Random, depth: usize) {
        let pick = |random: &mut Random, this: &Self| loop {
            let at = random.below(REGISTERS);
            if this.defined[at] {
                return at;
            }
        };
        let to = random.below(REGISTERS);
        match random.below(16) {
            0 | 1 if !self.defined[to] => {
                self.put(Do::Tid(
                    to,
                    1 + random.below(5) as u32,
                    random.below(50) as u32,
                ));
                self.defined[to] = true;
            }
            2..=4 if self.defined[to] && depth > 0 => {
                let (a, b) = (pick(random, self), pick(random, self));
                let guard = (random.below(4) == 0).then(|| self.condition(random));
                let a = if random.below(2) == 0 { to } else { a };
                let step = Do::Mad(to, a, [1, 1, 3][random.below(3)], b, random.below(9) as u32);
                self.steps.push((guard, step));
            }
            5 if depth > 0 => {
                let or = random.below(REGISTERS);
                if or != to && self.defined[to] && self.defined[or] {
                    let from = [pick(random, self), pick(random, self)];
                    let guard = (random.below(4) == 0).then(|| self.condition(random));
                    self.steps.push((guard, Do::Both([to, or], from)));
                }
            }
            6 if !self.defined[to] => {
                let from = pick(random, self);
                self.put(Do::Mov(to, from));
                self.defined[to] = true;
            }
            7..=9 => {
                let from = pick(random, self);
                self.put(Do::Read(from));
            }
            10 if depth < 3 => {
                let past = self.label();
                let condition = self.condition(random);
                self.steps.push((Some(condition), Do::Go(past, false)));
                let defined = self.defined;
                self.items(random, depth);
                self.defined = defined;
                self.put(Do::Label(past));
            }
            11 | 12 if depth < 3 => self.a_loop(random, depth),
            13 if !self.around.is_empty() => {
                let (head, end) = self.around[random.below(self.around.len())];
                let condition = self.condition(random);
                let back = random.below(2) == 0;
                let step = Do::Go(if back { head } else { end }, back);
                self.steps.push((Some(condition), step));
            }
            14 if random.below(6) == 0 => {
                let condition = self.condition(random);
                self.steps.push((Some(condition), Do::End));
            }
            _ => {}
        }
    }

    fn a_loop(&mut self, random: &mut Random, depth: usize) {
        let (head, end, middle) = (self.label(), self.label(), self.label());
        let enters = random.below(6) == 0;
        if enters {
            let condition = self.condition(random);
            self.steps.push((Some(condition), Do::Go(middle, false)));
        }
        self.put(Do::Label(head));
        let defined = self.defined;
        self.around.push((head, end));
        self.items(random, depth + 1);
        if enters {
            self.defined = defined;
            self.put(Do::Label(middle));
            self.items(random, depth + 1);
        }
        let condition = (random.below(2) == 0).then(|| self.condition(random));
        self.steps.push((condition, Do::Go(head, true)));
        self.around.pop();
        self.defined = defined;
        self.put(Do::Label(end));
    }

    /// In registers of 32 bits, or of 64, of which only the lower halves tell.
    fn text(&self, bits: u32) -> String {
        let wide = bits == 64;
        let of = |at: usize| format!("%r{}{}", if wide { "d" } else { "" }, 10 + at);
        let (temp, number) = if wide {
            ("%rd8", "%rd7")
        } else {
            ("%r22", "%r2")
        };
        // Where the lower half of a register is found.
        let low = |at: usize| match wide {
            true => (format!("cvt.u32.u64 %r23, {};", of(at)), "%r23".to_owned()),
            false => (String::new(), of(at)),
        };
        let mut text = String::from("mov.u32 %r20, 14; cvt.u64.u32 %rd7, %r2;\n");
        for (condition, step) in &self.steps {
            let mut guard = "";
            if let Some(If(register, mask, set)) = condition {
                let is = if *set { "ne" } else { "eq" };
                let (gets, low) = low(*register);
                text +=
                    &format!("{gets} and.b32 %r21, {low}, {mask}; setp.{is}.u32 %p1, %r21, 0;\n");
                guard = "@%p1 ";
            }
            text += &match *step {
                Do::Mad(to, a, by, b, more) => {
                    let (to, a, b) = (of(to), of(a), of(b));
                    let adds = match by {
                        1 => format!("add.u{bits} {to}, {a}, {temp};"),
                        by => format!("mad.lo.u{bits} {to}, {a}, {by}, {temp};"),
                    };
                    format!("add.u{bits} {temp}, {b}, {more}; {guard}{adds}\n")
                }
                Do::Tid(to, by, more) => {
                    format!("mad.lo.u{bits} {}, {number}, {by}, {more};\n", of(to))
                }
                Do::Mov(to, from) => format!("mov.u{bits} {}, {};\n", of(to), of(from)),
                Do::Both([to, or], [a, b]) if wide => format!(
                    "mov.b64 %rd5, {}; mov.b64 %rd6, {}; {guard}mov.b64 {}, %rd5; {guard}mov.b64 {}, %rd6;\n",
                    of(a),
                    of(b),
                    of(to),
                    of(or)
                ),
                Do::Both([to, or], [a, b]) => format!(
                    "mov.b64 %rd9, {{{}, {}}}; {guard}mov.b64 {{{}, {}}}, %rd9;\n",
                    of(a),
                    of(b),
                    of(to),
                    of(or)
                ),
                Do::Read(from) => {
                    let (gets, low) = low(from);
                    format!("{gets} mad.lo.u32 %r9, %r9, 31, {low};\n")
                }
                Do::Wait => "bar.warp.sync -1; bar.sync 0;\n".into(),
                Do::Label(label) => format!("L{label}:\n"),
                Do::Go(label, false) => format!("{guard}bra L{label};\n"),
                Do::Go(label, true) => {
                    let both = if guard.is_empty() {
                        ""
                    } else {
                        "and.pred %p2, %p2, %p1; "
                    };
                    format!(
                        "sub.u32 %r20, %r20, 1; setp.gt.s32 %p2, %r20, 0; {both}@%p2 bra L{label};\n"
                    )
                }
                Do::End => format!("{guard}bra L0;\n"),
            };
        }
        text + "L0:\n"
    }

    /// What a thread leaves.
    fn leaves(&self, tid: u32) -> u32 {
        let labels: HashMap<usize, usize> = self
            .steps
            .iter()
            .enumerate()
            .filter_map(|(at, (_, step))| match step {
                Do::Label(label) => Some((*label, at)),
                _ => None,
            })
            .collect();
        let (mut r, mut fuel, mut sum, mut at) = ([0u32; REGISTERS], 14i32, 0u32, 0);
        while let Some((condition, step)) = self.steps.get(at) {
            at += 1;
            let goes =
                condition.is_none_or(|If(register, mask, set)| (r[register] & mask != 0) == set);
            if let Do::Go(label, true) = step {
                fuel -= 1;
                if goes && fuel > 0 {
                    at = labels[label];
                }
                continue;
            }
            if !goes {
                continue;
            }
            match *step {
                Do::Mad(to, a, by, b, more) => {
                    r[to] = r[a].wrapping_mul(by).wrapping_add(r[b]).wrapping_add(more)
                }
                Do::Tid(to, by, more) => r[to] = tid * by + more,
                Do::Mov(to, from) => r[to] = r[from],
                Do::Both([to, or], [a, b]) => (r[to], r[or]) = (r[a], r[b]),
                Do::Read(from) => sum = sum.wrapping_mul(31).wrapping_add(r[from]),
                Do::Wait | Do::Label(_) => {}
                Do::Go(label, _) => at = labels[&label],
                Do::End => break,
            }
        }
        sum
    }
}

#[test]
fn random_flow() {
    let cases = setting("SOFTCUDA_FUZZ_CASES").map_or(DEFAULT_CASES, |cases| cases / SHARE);
    run_cases(cases, |case, random, _| {
        let mut program = Program::default();
        program.put(Do::Tid(0, 1, 1));
        program.defined[0] = true;
        for _ in 0..4 {
            program.items(random, 0);
            if case % 2 == 0 {
                program.put(Do::Wait);
            }
        }
        if program.steps.iter().any(|step| matches!(step.1, Do::End)) {
            program.steps.retain(|step| !matches!(step.1, Do::Wait));
        }
        let text = program.text(if case % 4 == 1 { 64 } else { 32 });
        let source = kernel(&text);
        for form in [Form::Vectors, Form::Rounds, Form::Fibers] {
            for block in [[33, 1, 1], [16, 4, 1], [12, 4, 1]] {
                let got = run(&source, form, [1, 1, 1], block, 40)
                    .map_err(|fault| format!("{form:?} {fault:?}\n{text}"))?;
                for tid in 0..block.iter().product() {
                    let (got, expected) = (got[tid as usize], program.leaves(tid));
                    if got != expected {
                        return Err(format!(
                            "{form:?} {block:?}: thread {tid} {got:x} for {expected:x}\n{text}"
                        ));
                    }
                }
            }
        }
        Ok(())
    });
}
