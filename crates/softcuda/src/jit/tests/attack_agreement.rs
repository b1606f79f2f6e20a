//! Comparisons that are made early, and decide behind waits: each thread leaves what is worked out
//! here, in groups of any width, in blocks of any shape.

use super::forms::{kernel, run_module};
use super::fuzz::{Random, run_cases, setting};
use crate::grid::launch::FaultKind;
use crate::jit::harness::load_as;
use crate::jit::module::Form;

/// Cases of a plain `cargo test`, and of a whole run the part that is run here.
const DEFAULT_CASES: u64 = 15;
const SHARE: u64 = 10;
const CONDITIONS: [&str; 6] = ["lt", "le", "gt", "ge", "eq", "ne"];
const WAITS: [&str; 3] = ["bar.sync 0;", "barrier.sync 1;", "bar.warp.sync -1;"];
const ROWS: [u32; 8] = [8, 20, 32, 33, 48, 64, 256, 1024];
const COMPUTES: [&str; 4] = ["add.u32", "mul.lo.s32", "and.b32", "sub.s32"];

/// A predicate, and whether it is negated.
type Guard = (usize, bool);

/// Numbers are in `%r10` and so on, predicates in `%p0` and so on.
enum Do {
    /// From a number and a word.
    Compute(usize, usize, usize, u32),
    /// Two numbers, or one and a word.
    Compare(usize, usize, bool, [Result<usize, u32>; 2]),
    Wait(usize),
    /// What is summed up goes into the thread's word of shared memory, so many bytes further.
    Store(u32, u32),
    /// Threads whose guard holds go past these.
    Past(Vec<Step>),
    Turns(u32, Vec<Step>),
}

type Step = (Option<Guard>, Do);

#[derive(Default)]
struct Thread {
    at: u32,
    numbers: [u32; 5],
    holds: [bool; 4],
    sum: u32,
    outside: bool,
}

/// What is added and compared with: a number near a power of two.
fn word(random: &mut Random) -> u32 {
    let near = random.below(3) as u32;
    (near + (1 << [0, 3, 5, 6, 10, 31][random.below(6)])).wrapping_sub(1)
}

fn guard(random: &mut Random) -> Guard {
    (random.below(4), random.below(2) == 0)
}

fn compare(random: &mut Random, to: usize) -> Step {
    // The first number is that of the launch.
    let mut with = [Ok(1 + random.below(4)), Ok(0)];
    match random.below(4) {
        0 => with[1] = Err(word(random)),
        1 => with.swap(0, 1),
        _ => {}
    }
    let guard = (random.below(8) == 0).then(|| guard(random));
    let compare = Do::Compare(to, random.below(6), random.below(2) == 0, with);
    (guard, compare)
}

fn compute(random: &mut Random, to: usize) -> Step {
    let guard = (random.below(8) == 0).then(|| guard(random));
    let (how, from) = (random.below(4), 1 + random.below(to.max(2) - 1));
    (guard, Do::Compute(to, how, from, word(random)))
}

/// Threads are together, or some of them have gone another way.
fn some(random: &mut Random, depth: usize, together: bool) -> Vec<Step> {
    let count = 1 + random.below(if depth == 0 { 8 } else { 3 });
    let step = |_| match random.below(14) {
        0..=3 if together => (None, Do::Wait(random.below(3))),
        4..=7 if depth < 3 => {
            let guard = Some(guard(random));
            (guard, Do::Past(some(random, depth + 1, false)))
        }
        8 if together && depth == 0 => {
            let mut steps = some(random, 1, true);
            steps.push((None, Do::Wait(0)));
            (None, Do::Turns(1 + random.below(3) as u32, steps))
        }
        9 => match random.below(4) {
            0 => compute(random, 1 + depth),
            at => compare(random, at),
        },
        10 => (None, Do::Store(3, 8192 - 4 * random.below(300) as u32)),
        _ => (None, Do::Store(random.below(50) as u32, 0)),
    };
    (0..count).map(step).collect()
}

fn text(steps: &[Step], names: &mut usize) -> String {
    let mut all = String::new();
    for (guard, step) in steps {
        *names += 1;
        let name = *names;
        if let Some((p, not)) = guard {
            all += &format!("@{}%p{p} ", if *not { "!" } else { "" });
        }
        all += &match step {
            Do::Compute(to, how, from, word) => {
                format!("{} %r1{to}, %r1{from}, {word};\n", COMPUTES[*how])
            }
            Do::Compare(to, condition, signed, with) => {
                let [a, b] = with.map(|of| match of {
                    Ok(number) => format!("%r1{number}"),
                    Err(word) => word.to_string(),
                });
                let (condition, ty) = (CONDITIONS[*condition], if *signed { "s32" } else { "u32" });
                format!("setp.{condition}.{ty} %p{to}, {a}, {b};\n")
            }
            Do::Wait(kind) => format!("{}\n", WAITS[*kind]),
            Do::Store(by, far) => format!(
                "mad.lo.u32 %r9, %r9, 5, {by}; st.shared.u32 [%r5+{far}], %r9;
                ld.shared.u32 %r6, [%r5+{far}]; add.u32 %r9, %r9, %r6;\n"
            ),
            Do::Past(steps) => format!("bra L{name};\n{}L{name}:\n", text(steps, names)),
            Do::Turns(count, steps) => format!(
                "mov.u32 %r20, {count}; L{name}:\n{} sub.u32 %r20, %r20, 1;
                setp.ne.u32 %p9, %r20, 0; @%p9 bra L{name};\n",
                text(steps, names)
            ),
        };
    }
    all
}

impl Thread {
    fn run(&mut self, steps: &[Step]) {
        for (guard, step) in steps {
            let holds = guard.is_none_or(|(p, not)| self.holds[p] != not);
            match step {
                Do::Past(steps) if !holds => self.run(steps),
                _ if !holds => {}
                Do::Past(_) | Do::Wait(_) => {}
                Do::Compute(to, how, from, word) => {
                    let from = self.numbers[*from];
                    let (sum, product) = (from.wrapping_add(*word), from.wrapping_mul(*word));
                    self.numbers[*to] = [sum, product, from & word, from.wrapping_sub(*word)][*how];
                }
                Do::Compare(to, condition, signed, with) => {
                    let [a, b] = with.map(|of| of.map_or_else(|word| word, |at| self.numbers[at]));
                    // Those with a sign come first then.
                    let [a, b] = [a, b].map(|word| word ^ (u32::from(*signed) << 31));
                    self.holds[*to] = [a < b, a <= b, a > b, a >= b, a == b, a != b][*condition];
                }
                Do::Store(by, far) => {
                    self.outside |= 4 * self.at + far >= 8192;
                    self.sum = self.sum.wrapping_mul(5).wrapping_add(*by).wrapping_mul(2);
                }
                Do::Turns(count, steps) => (0..*count).for_each(|_| self.run(steps)),
            }
        }
    }
}

#[test]
fn random_comparisons() {
    let cases = setting("SOFTCUDA_FUZZ_CASES").map_or(DEFAULT_CASES, |cases| cases / SHARE);
    run_cases(cases, |_, random, _| {
        let mut steps: Vec<Step> = (2..5).map(|to| compute(random, to)).collect();
        steps.extend((0..4).map(|to| compare(random, to)));
        (0..3).for_each(|_| steps.extend(some(random, 0, true)));
        let (first, of) = [("tid.x", u32::MAX), ("laneid", 31)][random.below(2)];
        let body = format!(
            "mov.u32 %r10, %r3; mov.u32 %r11, %{first}; mov.u32 %r4, s; shl.b32 %r5, %r35, 2;
            add.u32 %r5, %r5, %r4; {}",
            text(&steps, &mut 0)
        );
        let [one, other] = [&body, &format!("mov.u32 %r39, 1; {body}")].map(|body| kernel(body));
        let forms = [
            (&one, Form::Vectors),
            (&other, Form::Vectors),
            (&one, Form::Rounds),
        ];
        let modules = forms.map(|(source, form)| load_as(source, form));
        for _ in 0..8 {
            let row = ROWS[random.below(8)];
            let (rows, n) = (
                1 + random.below(3.min(1024 / row as usize)) as u32,
                word(random),
            );
            let threads = (0..row * rows).map(|at| {
                let x = if of == 31 { at & of } else { at % row };
                let numbers = [n, x, 0, 0, 0];
                let mut thread = Thread {
                    at,
                    numbers,
                    ..Thread::default()
                };
                thread.run(&steps);
                thread
            });
            let threads: Vec<Thread> = threads.collect();
            let faults = threads.iter().any(|thread| thread.outside);
            for (form, module) in modules.iter().enumerate() {
                let alike = match run_module(module, [1, 1, 1], [row, rows, 1], n) {
                    Ok(words) => !faults && threads.iter().zip(words).all(|(of, at)| of.sum == at),
                    Err((kind, ..)) => faults && kind == FaultKind::IllegalAddress,
                };
                if !alike {
                    return Err(format!("{form} {row} {rows} n={n} {faults}\n{body}"));
                }
            }
        }
        Ok(())
    });
}
