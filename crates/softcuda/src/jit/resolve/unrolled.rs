//! Loops that a compiler has unrolled, as one again. `nvcc` makes two loops of
//! `for (i = threadIdx.x; i < n; i += 32)`: one for what is left when four turns are one, and then
//! one with four turns in each.
//!
//! ```text
//! turns = (n - 1 - i) / 32 + 1;
//! for (left = turns % 4; left != 0; left--, i += 32) ...        the short loop
//! if (turns >= 4) for (; i < n; i += 128) ... ... ... ...       the long one
//! ```
//!
//! Neighbouring threads part in the first as soon as one of them has a turn more, and all that
//! follows they do at places far from each other. In one loop they part at its end, if at all:
//!
//! ```text
//! if (it is the same)
//!     do ... while ((i += 32) < n);
//! else
//!     as it was
//! ```
//!
//! It is the same if a turn of the long loop is four of the short one, as
//! [`values`](super::values) tell, and if no index wraps where it is widened to an address, which
//! is looked at when the kernel runs.

use std::collections::{HashMap, HashSet};
use std::ops::Range;

use ptx::ast::{Pos, Type};

use super::body::{Pending, PendingStep, named};
use super::fragments::number;
use super::loops::{Flow, is_wide, rename, target};
use super::values::{Held, Made, Term, Turns, Values, Widening, integer};
use crate::jit::decode::{Arg, RegId, Symbol};
use crate::jit::program::Tables;

/// How many turns are one in the long loop.
const TURNS: u64 = 4;
/// What a counter goes up to at most.
const MOST: u64 = 0x7ff0_0000;
/// How far beyond it indices may be.
const MOST_MORE: i64 = 0xf_ffff;
/// How far a place may go in a turn.
const MOST_RATE: u64 = 1 << 40;
/// How many times the counter may be in an index.
const MOST_TIMES: u64 = 64;

#[cfg(test)]
thread_local! {
    /// Loops stay as they are, for tests that compare.
    pub(in crate::jit) static LEAVE: std::cell::Cell<bool> = const { std::cell::Cell::new(false) };
}

/// Makes one loop of two.
pub(super) fn roll(steps: &mut Vec<PendingStep<'_>>, tables: &mut Tables) {
    #[cfg(test)]
    if LEAVE.get() {
        return;
    }
    let loops = simple_loops(steps);
    if loops.len() < 2 {
        return;
    }
    let Some(flow) = Flow::of(steps, tables).filter(Flow::has_loops) else {
        return;
    };
    let search = Search {
        steps,
        tables,
        flow: &flow,
    };
    let pairs = loops.windows(2);
    let pairs = pairs.filter_map(|pair| search.pair(pair[0].clone(), pair[1].clone()));
    let pairs: Vec<Pair> = pairs.collect();
    // The last come first: those before them stay where they are.
    for pair in pairs.into_iter().rev() {
        let new = pair.emit(steps, tables);
        steps.splice(pair.at..pair.at, new);
        let mut counting = pair.counting;
        counting.sort_unstable();
        for at in counting.into_iter().rev() {
            steps.remove(at);
        }
    }
}

/// Loops of one block: from the label to the branch back to it.
fn simple_loops(steps: &[PendingStep<'_>]) -> Vec<Range<usize>> {
    let mut head = None;
    let mut loops = vec![];
    for (at, step) in steps.iter().enumerate() {
        match step {
            PendingStep::Label(label) => head = Some((at, *label)),
            PendingStep::Instruction(pending) if is_flow(pending) => {
                if let Some((begin, label)) = head.take()
                    && target(pending) == Some(label)
                {
                    loops.push(begin..at);
                }
            }
            PendingStep::Instruction(_) => {}
        }
    }
    loops
}

fn is_flow(pending: &Pending<'_>) -> bool {
    let flow = ["bra", "brx", "ret", "exit", "trap", "call"];
    flow.contains(&pending.instruction.opcode.as_str())
}

/// The number that an operand is, in 32 bits.
fn word(arg: &Arg) -> Option<u32> {
    integer(arg).map(|number| number as u32)
}

/// A loop: what is done before it, and a turn, without what counts and asks.
struct Part {
    before: Vec<usize>,
    turn: Vec<usize>,
}

impl Part {
    fn all(&self) -> impl Iterator<Item = usize> {
        self.before.iter().chain(&self.turn).copied()
    }
}

/// What the two loops look like.
struct Shape {
    /// The first step of the block before them, and the branch past the short one at its end.
    begins: usize,
    at: usize,
    short: Part,
    long: Part,
    /// How many turns are left for the short one.
    left: RegId,
    counter: RegId,
    limit: RegId,
    signed: bool,
    /// `limit - 1 - counter`
    distance: RegId,
    /// How far the counter goes in a turn.
    step: u64,
    /// The steps that tell what is left for the short one, and what they write.
    counting: [usize; 4],
    counted: [RegId; 4],
    /// Predicates that nothing else asks.
    asked: [RegId; 3],
    /// Where both end.
    over: u32,
    end: usize,
}

/// The two loops, as they are made one.
struct Pair {
    /// What is new comes before this step.
    at: usize,
    pos: Pos,
    /// The short one.
    turns: Part,
    counter: RegId,
    /// Registers that hold the same where the loops begin.
    counters: HashSet<RegId>,
    /// Those that the loops write and that get others in their place.
    written: HashSet<RegId>,
    limit: RegId,
    distance: RegId,
    signed: bool,
    /// The steps that are for the loops as they were alone.
    counting: [usize; 4],
    /// What must not wrap.
    widened: Vec<Whole>,
    over: u32,
    /// The counter is read there.
    is_read: bool,
}

/// What four turns end with.
struct End {
    sums: Held,
    loaded: HashSet<Term>,
    stores: Vec<Term>,
    /// How far the places go in a turn of the short loop.
    rates: HashMap<RegId, i64>,
}

/// A sum that is widened: the counter so many times, and what registers hold.
struct Whole {
    times: u64,
    rest: Vec<(Factor, u64)>,
    signed: bool,
    /// The least and the most that is added.
    more: [i64; 2],
}

enum Factor {
    Register(RegId),
    Product(RegId, RegId),
}

struct Search<'a, 'b> {
    steps: &'a [PendingStep<'b>],
    tables: &'a Tables,
    flow: &'a Flow,
}

impl<'b> Search<'_, 'b> {
    fn instruction(&self, at: usize) -> Option<&Pending<'b>> {
        match self.steps.get(at)? {
            PendingStep::Instruction(pending) => Some(pending),
            PendingStep::Label(_) => None,
        }
    }

    fn label(&self, at: usize) -> Option<u32> {
        match self.steps.get(at)? {
            PendingStep::Instruction(_) => None,
            PendingStep::Label(label) => Some(*label),
        }
    }

    fn is_wide(&self, register: RegId) -> bool {
        is_wide(self.tables.registers[register.0 as usize]) == Some(true)
    }

    fn reads(&self, at: usize) -> impl Iterator<Item = RegId> {
        let pending = self.instruction(at).into_iter();
        pending.flat_map(|pending| {
            let (writes, reads) = named(&pending.instruction, &pending.args);
            let guard = pending.guard.map(|(guard, _)| guard);
            // What a guard lets nobody write stays what it was.
            let stays = writes.into_iter().filter(move |_| guard.is_some());
            reads.into_iter().chain(guard).chain(stays)
        })
    }

    fn writes(&self, at: usize) -> impl Iterator<Item = RegId> {
        let pending = self.instruction(at).into_iter();
        pending.flat_map(|pending| named(&pending.instruction, &pending.args).0)
    }

    /// What the steps write.
    fn written(&self, steps: impl IntoIterator<Item = usize>) -> HashSet<RegId> {
        steps.into_iter().flat_map(|at| self.writes(at)).collect()
    }

    /// The branch before a step, behind nothing but instructions that go on; and its predicate.
    fn branch_before(&self, before: usize) -> Option<(usize, RegId)> {
        let all = (0..before).rev();
        let mut all = all.map_while(|at| Some((at, self.instruction(at)?)));
        let (at, _) = all.find(|(_, pending)| is_flow(pending))?;
        Some((at, self.goes_if(at)?))
    }

    /// The predicate of a branch that goes where that is true.
    fn goes_if(&self, at: usize) -> Option<RegId> {
        let pending = self.instruction(at)?;
        let (guard, not) = pending.guard?;
        (target(pending).is_some() && !not).then_some(guard)
    }

    /// The one step of these that writes a register, which no other one reads but `reader`.
    fn only_writer(&self, steps: Range<usize>, register: RegId, reader: usize) -> Option<usize> {
        let writes = |at: &usize| self.writes(*at).any(|written| written == register);
        let mut writers = steps.clone().filter(writes);
        let writer = writers.next().filter(|_| writers.next().is_none())?;
        let mut others = steps.filter(|at| ![writer, reader].contains(at));
        let is_read = others.any(|at| self.reads(at).any(|read| read == register));
        (!is_read).then_some(writer)
    }

    /// The operands of an instruction of this name, which has no guard and writes one register.
    fn operands<const N: usize>(&self, at: usize, name: &[&str], to: RegId) -> Option<&[Arg; N]> {
        let Pending {
            instruction,
            guard: None,
            args,
        } = self.instruction(at)?
        else {
            return None;
        };
        let words = [&instruction.opcode]
            .into_iter()
            .chain(&instruction.modifiers);
        let is_named = words.map(|word| word.as_str()).eq(name.iter().copied());
        let args = <&[Arg; N]>::try_from(&args[..]).ok()?;
        (is_named && args[0] == Arg::Reg(to)).then_some(args)
    }

    /// How many operands name a label.
    fn leads_to(&self, label: u32) -> usize {
        let named = Arg::Symbol(Symbol::Label(label), 0);
        let all = (0..self.steps.len()).filter_map(|at| self.instruction(at));
        all.filter(|pending| pending.args.contains(&named)).count()
    }

    fn pair(&self, short: Range<usize>, long: Range<usize>) -> Option<Pair> {
        let mut shape = self.shape(short, long)?;
        let (mut values, before) = self.before(&shape);
        let sums = self.sums(&shape)?;
        self.begin_as_they_are(&mut values, &before, &mut shape, &sums)?;
        let stays = |register: &RegId| *register == shape.counter || sums.contains(register);
        let parts = || shape.short.all().chain(shape.long.all());
        let mut written = self.written(parts());
        written.insert(shape.left);
        let mut counters = self.counters(&mut values, &before, &shape);
        counters.retain(|register| *register == shape.counter || !written.contains(register));
        // What the original loops ask and count with is theirs alone.
        let own: HashSet<RegId> = shape.counted.into_iter().chain(shape.asked).collect();
        let fixed = [shape.limit, shape.distance];
        let is_read = |register: RegId| self.flow.is_read_from(register, vec![shape.end]);
        let is_apart = self.keep_apart(&shape, &written, stays)
            && !fixed
                .iter()
                .any(|fixed| written.contains(fixed) || own.contains(fixed))
            && !parts().any(|at| self.reads(at).any(|register| own.contains(&register)))
            && !own.iter().any(|register| is_read(*register))
            && !written
                .iter()
                .any(|register| !stays(register) && is_read(*register));
        is_apart.then_some(())?;
        let values = self.prove(&shape, &counters, &sums)?;
        let widened = values.widened.iter();
        let widened = widened.map(|widening| self.whole(&values, widening, &written));
        let widened = widened.collect::<Option<Vec<_>>>()?;
        written.retain(|register| !sums.contains(register));
        Some(Pair {
            at: shape.at,
            pos: self.instruction(shape.at)?.instruction.pos,
            counter: shape.counter,
            counters,
            limit: shape.limit,
            distance: shape.distance,
            signed: shape.signed,
            counting: shape.counting,
            widened: widened.into_iter().flatten().collect(),
            over: shape.over,
            is_read: is_read(shape.counter),
            written,
            turns: shape.short,
        })
    }

    /// Whether two loops count and ask as it should be.
    fn shape(&self, short: Range<usize>, long: Range<usize>) -> Option<Shape> {
        let (at, none_left) = self.branch_before(short.start)?;
        let (passes_by, passes) = self.branch_before(long.start)?;
        let (middle, over) = (self.label(short.end + 1)?, self.label(long.end + 1)?);
        let leads = |at: usize| self.instruction(at).and_then(target);
        if leads(at) != Some(middle) || leads(passes_by) != Some(over) {
            return None;
        }
        let heads = [self.label(short.start)?, middle, self.label(long.start)?];
        if heads.into_iter().any(|label| self.leads_to(label) != 1) {
            return None;
        }
        let goes_on = |at: &usize| {
            self.instruction(*at)
                .is_some_and(|pending| !is_flow(pending))
        };
        let begins = at - (0..at).rev().take_while(goes_on).count();

        // What is left is computed for the short one alone, which is passed by where that is none.
        let asks = self.only_writer(begins..at, none_left, at)?;
        let [_, Arg::Reg(left), zero] = self.operands(asks, &["setp", "eq", "s32"], none_left)?
        else {
            return None;
        };
        let masks = self.only_writer(begins..at, *left, asks)?;
        let [_, Arg::Reg(turns), mask] = self.operands(masks, &["and", "b32"], *left)? else {
            return None;
        };
        let adds = self.only_writer(begins..at, *turns, masks)?;
        let [_, Arg::Reg(divided), one] = self.operands(adds, &["add", "s32"], *turns)? else {
            return None;
        };
        let divides = self.only_writer(begins..at, *divided, adds)?;
        let [_, Arg::Reg(whole), log] = self.operands(divides, &["shr", "u32"], *divided)? else {
            return None;
        };
        let log = word(log).filter(|log| (1..16).contains(log))?;
        let step = 1 << log;
        let counting = [divides, adds, masks, asks];
        let is_counted = [mask, one].map(word) == [Some(TURNS as u32 - 1), Some(1)]
            && counting.is_sorted()
            && (divides..at).all(|at| self.writes(at).all(|register| register != *whole));

        // It counts that down.
        let turn = short.start + 1..short.end;
        let goes = self.goes_if(short.end)?;
        let asks_short = self.only_writer(turn.clone(), goes, short.end)?;
        let [_, Arg::Reg(asked), none] = self.operands(asks_short, &["setp", "ne", "s32"], goes)?
        else {
            return None;
        };
        let counts = self.only_writer(turn.clone(), *left, asks_short)?;
        let [_, Arg::Reg(from), less] = self.operands(counts, &["add", "s32"], *left)? else {
            return None;
        };
        let is_down = [asked, from] == [left, left]
            && [zero, none, less].map(word) == [Some(0), Some(0), Some(u32::MAX)]
            && counts < asks_short;
        // The long one is passed by where there are not so many, and goes to the limit.
        let asks_first = short.end + 2;
        let [_, Arg::Reg(distance), least] =
            self.operands(asks_first, &["setp", "lt", "u32"], passes)?
        else {
            return None;
        };
        let goes_long = self.goes_if(long.end)?;
        let asks_long = self.only_writer(long.start + 1..long.end, goes_long, long.end)?;
        let signed = self
            .operands::<3>(asks_long, &["setp", "lt", "s32"], goes_long)
            .is_some();
        let ty = if signed { "s32" } else { "u32" };
        let [_, Arg::Reg(counter), Arg::Reg(limit)] =
            *self.operands(asks_long, &["setp", "lt", ty], goes_long)?
        else {
            return None;
        };
        // It asks when the counter has gone on.
        let mut behind = (asks_long + 1..long.end).flat_map(|at| self.writes(at));
        let is_so = is_down
            && is_counted
            && whole == distance
            && word(least) == Some(((TURNS - 1) * step) as u32)
            && passes_by == asks_first + 1
            && behind.all(|register| register != counter);
        is_so.then_some(())?;
        let part = |before: Range<usize>, turn: Range<usize>, but: &[usize]| Part {
            before: before.collect(),
            turn: turn.filter(|at| !but.contains(at)).collect(),
        };
        Some(Shape {
            begins,
            at,
            short: part(at + 1..short.start, turn, &[counts, asks_short]),
            long: part(
                passes_by + 1..long.start,
                long.start + 1..long.end,
                &[asks_long],
            ),
            left: *left,
            counter,
            limit,
            signed,
            distance: *distance,
            step,
            counting,
            counted: [*divided, *turns, *left, none_left],
            asked: [goes, goes_long, passes],
            over,
            end: long.end + 1,
        })
    }

    /// Does steps that do not store.
    fn do_all(&self, values: &mut Values, held: &mut Held, steps: &[usize]) -> Option<()> {
        let mut stores = vec![];
        self.do_turn(values, held, &mut stores, steps)?;
        stores.is_empty().then_some(())
    }

    fn do_turn(
        &self,
        values: &mut Values,
        held: &mut Held,
        stores: &mut Vec<Term>,
        steps: &[usize],
    ) -> Option<()> {
        let is_wide = |register| self.is_wide(register);
        let mut steps = steps.iter();
        steps.try_for_each(|at| values.does(held, stores, self.instruction(*at)?, is_wide))
    }

    /// What registers hold before the loops.
    fn before(&self, shape: &Shape) -> (Values, Held) {
        let (mut values, mut held) = (Values::default(), Held::new());
        let mut stores = vec![];
        for at in shape.begins..shape.at {
            if self
                .do_turn(&mut values, &mut held, &mut stores, &[at])
                .is_some()
            {
                continue;
            }
            // It may have written anything.
            for register in self.writes(at) {
                let any = Made::Leaf(format!("{register:?} of step {at}"));
                held.insert(register, values.term(any));
            }
            stores.push(values.term(Made::Leaf(format!("step {at}"))));
        }
        (values, held)
    }

    /// What goes from turn to turn besides the counter, and places that follow from that.
    fn sums(&self, shape: &Shape) -> Option<HashSet<RegId>> {
        let Shape { short, long, .. } = shape;
        let before = self.written(long.before.iter().copied());
        let mut carried = self.carried(&long.turn);
        carried.retain(|register| !before.contains(register));
        let of_short = self.written(short.turn.iter().copied());
        (carried.remove(&shape.counter) && carried.is_subset(&of_short)).then_some(carried)
    }

    /// What stays from loop to loop is before each what it was before both. Steps that write it are
    /// left out. The others are as good at any time: they neither load nor read a sum.
    fn begin_as_they_are(
        &self,
        values: &mut Values,
        before: &Held,
        shape: &mut Shape,
        sums: &HashSet<RegId>,
    ) -> Option<()> {
        let counter = shape.counter;
        let stays = |register: RegId| register == counter || sums.contains(&register);
        let mut held = before.clone();
        let mut kept = vec![];
        for at in std::mem::take(&mut shape.short.before) {
            let old = held.clone();
            self.do_all(values, &mut held, &[at])?;
            let written: Vec<RegId> = self.writes(at).collect();
            if !written.iter().any(|register| stays(*register)) {
                kept.push(at);
                continue;
            }
            for register in written {
                let is_same = values.held(&held, register) == values.held(&old, register);
                (stays(register) && is_same).then_some(())?;
            }
        }
        shape.short.before = kept;
        let long = self.written(shape.long.before.iter().copied());
        let mut all = shape.short.before.iter().chain(&shape.long.before);
        let is_timeless = |at: usize| {
            let pending = self.instruction(at);
            let words = pending.map(|pending| &*pending.instruction);
            let loads = words.is_some_and(|words| {
                let fixed = |word| word == "param" || word == "const";
                words.opcode == "ld" && !words.modifiers.iter().any(|word| fixed(word.as_str()))
            });
            !loads && !self.reads(at).any(|register| sums.contains(&register))
        };
        let is_so = all.all(|at| is_timeless(*at)) && !long.into_iter().any(stays);
        is_so.then_some(())
    }

    /// Registers that hold what the counter does before the loops.
    fn counters(&self, values: &mut Values, before: &Held, shape: &Shape) -> HashSet<RegId> {
        let starts = values.held(before, shape.counter);
        let steps = shape.short.before.iter().chain(&shape.long.before);
        let read = steps.flat_map(|at| self.reads(*at));
        let mut all: HashSet<RegId> = read.chain([shape.counter]).collect();
        all.retain(|register| values.held(before, *register) == starts);
        all
    }

    /// Neither loop reads what the other one writes, but for what stays.
    fn keep_apart(
        &self,
        shape: &Shape,
        written: &HashSet<RegId>,
        stays: impl Fn(&RegId) -> bool,
    ) -> bool {
        [&shape.short, &shape.long].into_iter().all(|part| {
            let mut own = HashSet::new();
            part.all().all(|at| {
                let of_others = |register: &RegId| {
                    written.contains(register) && !own.contains(register) && !stays(register)
                };
                let is_apart = !self.reads(at).any(|register| of_others(&register));
                own.extend(self.writes(at));
                is_apart
            })
        })
    }

    /// The terms, if a turn of the long loop is four of the short one.
    fn prove(
        &self,
        shape: &Shape,
        counters: &HashSet<RegId>,
        sums: &HashSet<RegId>,
    ) -> Option<Values> {
        let mut values = Values::by_turns(shape.step);
        let counter = values.term(Made::Counter);
        // The long one may begin behind turns of the short one. All that held what the counter did
        // has what it began with.
        let behind = values.after(counter, false, Turns::Before, shape.step);
        let mut end_of = |part: &Part, from: Term, turns: u64| {
            let mut held: Held = counters.iter().map(|other| (*other, counter)).collect();
            held.insert(shape.counter, from);
            self.do_all(&mut values, &mut held, &part.before)?;
            let before = self.written(part.before.iter().copied());
            held.retain(|register, _| before.contains(register));
            held.insert(shape.counter, from);
            self.end(&mut values, held, part, sums, turns)
        };
        let short = end_of(&shape.short, counter, TURNS)?;
        let long = end_of(&shape.long, behind, 1)?;
        let counts = |end: &End| end.rates.get(&shape.counter) == Some(&(shape.step as i64));
        let is_so = short.sums == long.sums
            && short.loaded == long.loaded
            && short.stores == long.stores
            && counts(&short)
            && counts(&long);
        is_so.then_some(values)
    }

    /// What four turns end with, so many of this loop, after any number of others.
    fn end(
        &self,
        values: &mut Values,
        mut held: Held,
        part: &Part,
        sums: &HashSet<RegId>,
        turns: u64,
    ) -> Option<End> {
        // A turn shows how far each place goes.
        let mut next = held.clone();
        self.do_turn(values, &mut next, &mut vec![], &part.turn)?;
        let mut rates = HashMap::new();
        let of_one = TURNS as i64 / turns as i64;
        for register in self.carried(&part.turn).difference(sums) {
            let is_wide = self.is_wide(*register);
            let first = *held.get(register)?;
            let rate = values.apart(next[register], first, is_wide)?;
            let exact = rate % of_one == 0 && rate.unsigned_abs() < MOST_RATE;
            exact.then_some(())?;
            let rate = rate / of_one;
            let mut now = values.after(first, is_wide, Turns::Done, rate as u64);
            if turns == 1 {
                now = values.after(now, is_wide, Turns::Before, rate.wrapping_neg() as u64);
            }
            held.insert(*register, now);
            rates.insert(*register, rate);
        }
        let first = held.clone();
        let mut stores = vec![];
        values.loaded.clear();
        for _ in 0..turns {
            self.do_turn(values, &mut held, &mut stores, &part.turn)?;
        }
        for (register, rate) in &rates {
            let went = values.apart(held[register], first[register], self.is_wide(*register));
            (went? == rate * TURNS as i64).then_some(())?;
        }
        held.retain(|register, _| sums.contains(register));
        Some(End {
            sums: held,
            loaded: std::mem::take(&mut values.loaded),
            stores,
            rates,
        })
    }

    /// Registers that a turn reads as the one before has left them.
    fn carried(&self, turn: &[usize]) -> HashSet<RegId> {
        let (mut first, mut done) = (HashSet::new(), HashSet::new());
        for at in turn {
            first.extend(self.reads(*at).filter(|read| !done.contains(read)));
            done.extend(self.writes(*at));
        }
        first.retain(|register| done.contains(register));
        first
    }

    /// What is widened, by registers. `None` where it cannot be told; nothing where it never wraps.
    fn whole(
        &self,
        values: &Values,
        widening: &Widening,
        written: &HashSet<RegId>,
    ) -> Option<Option<Whole>> {
        let sum = values.sum(widening.of, false);
        let times = values.times(&sum, Made::Counter);
        let [least, most] = widening.more;
        if times > MOST_TIMES || least < -MOST_MORE || most > MOST_MORE {
            return None;
        }
        let register = |term: &Term| match values.made(*term) {
            Made::Register(register) if !written.contains(register) => Some(*register),
            _ => None,
        };
        let others = sum.parts.iter();
        let others = others.filter(|(term, _)| *values.made(*term) != Made::Counter);
        let rest = others.map(|(term, by)| {
            let made = values.made(*term);
            let factors = made.by("mul.lo.s32 0").or(made.by("mul.lo.u32 0"));
            let factor = match factors {
                Some([a, b]) => Factor::Product(register(a)?, register(b)?),
                _ => Factor::Register(register(term)?),
            };
            Some((factor, *by))
        });
        let rest = rest.collect::<Option<Vec<_>>>()?;
        let never = times == 1 && rest.is_empty() && least >= 0;
        Some((!never).then_some(Whole {
            times,
            rest,
            signed: widening.signed,
            more: [least, most],
        }))
    }
}

/// Steps, as they are made.
struct Maker<'a, 'b> {
    pos: Pos,
    tables: &'a mut Tables,
    made: Vec<PendingStep<'b>>,
}

impl<'b> Maker<'_, 'b> {
    fn register(&mut self, ty: Type) -> RegId {
        self.tables.registers.push(ty);
        RegId(self.tables.registers.len() as u32 - 1)
    }

    fn label(&mut self) -> u32 {
        self.tables.labels += 1;
        self.tables.labels - 1
    }

    fn here(&mut self, label: u32) {
        self.made.push(PendingStep::Label(label));
    }

    /// An instruction, as in PTX, and its operands.
    fn put(&mut self, name: &str, args: Vec<Arg>) {
        self.put_if(None, name, args);
    }

    fn put_if(&mut self, guard: Option<(RegId, bool)>, name: &str, args: Vec<Arg>) {
        let pending = Pending::new(self.pos, guard, name, args);
        self.made.push(PendingStep::Instruction(pending));
    }

    /// A new register with what the instruction gives.
    fn give(&mut self, ty: Type, name: &str, from: &[Arg]) -> RegId {
        let to = self.register(ty);
        let args = [&[Arg::Reg(to)], from].concat();
        self.put(name, args);
        to
    }

    fn go(&mut self, guard: Option<RegId>, label: u32) {
        let guard = guard.map(|guard| (guard, false));
        self.put_if(guard, "bra", vec![Arg::Symbol(Symbol::Label(label), 0)]);
    }

    /// A step once more, with other registers.
    fn copy(&mut self, step: &PendingStep<'b>, names: &HashMap<RegId, RegId>) {
        let PendingStep::Instruction(pending) = step else {
            return;
        };
        let other = |id| names.get(&id).copied().unwrap_or(id);
        let mut args = pending.args.clone();
        args.iter_mut().for_each(|arg| rename(arg, &other));
        self.made.push(PendingStep::Instruction(Pending {
            instruction: pending.instruction.clone(),
            guard: pending.guard.map(|(guard, not)| (other(guard), not)),
            args,
        }));
    }

    /// So much more, in 32 bits.
    fn plus(&mut self, to: Arg, more: i64) -> Arg {
        match more {
            0 => to,
            _ => {
                let more = number(u64::from(more as u32));
                Arg::Reg(self.give(Type::B32, "add.s32", &[to, more]))
            }
        }
    }

    /// So many times, in 32 bits.
    fn times(&mut self, of: Arg, times: u64) -> Arg {
        match times {
            1 => of,
            _ => Arg::Reg(self.give(Type::B32, "mul.lo.s32", &[of, number(times)])),
        }
    }

    fn sum(&mut self, of: &[(Factor, u64)]) -> Option<Arg> {
        let mut sum = None;
        for (factor, times) in of {
            let factor = match *factor {
                Factor::Register(register) => Arg::Reg(register),
                Factor::Product(a, b) => {
                    let factors = [a, b].map(Arg::Reg);
                    Arg::Reg(self.give(Type::B32, "mul.lo.s32", &factors))
                }
            };
            let part = self.times(factor, *times);
            sum = Some(match sum {
                None => part,
                Some(sum) => Arg::Reg(self.give(Type::B32, "add.s32", &[sum, part])),
            });
        }
        sum
    }
}

impl Pair {
    /// The one loop, and the place where both are as they were.
    fn emit<'b>(&self, steps: &[PendingStep<'b>], tables: &mut Tables) -> Vec<PendingStep<'b>> {
        let mut maker = Maker {
            pos: self.pos,
            tables,
            made: vec![],
        };
        let was = maker.label();
        self.go_if_not_same(&mut maker, was);

        // What they write, but for what stays, they write to registers of their own.
        let mut own: HashMap<RegId, RegId> = HashMap::new();
        let mut written: Vec<RegId> = self.written.iter().copied().collect();
        written.sort_unstable_by_key(|register| register.0);
        for register in written {
            let ty = maker.tables.registers[register.0 as usize];
            own.insert(register, maker.register(ty));
        }
        let mut before = own.clone();
        before.extend(
            self.counters
                .iter()
                .map(|register| (*register, own[&self.counter])),
        );
        let counter = Arg::Reg(own[&self.counter]);
        maker.put("mov.b32", vec![counter.clone(), Arg::Reg(self.counter)]);
        // All that holds what the counter does is where it begins.
        self.turns
            .before
            .iter()
            .for_each(|at| maker.copy(&steps[*at], &before));
        let again = maker.label();
        maker.here(again);
        self.turns
            .turn
            .iter()
            .for_each(|at| maker.copy(&steps[*at], &own));
        let less = if self.signed {
            "setp.lt.s32"
        } else {
            "setp.lt.u32"
        };
        let more = maker.give(Type::Pred, less, &[counter.clone(), Arg::Reg(self.limit)]);
        maker.go(Some(more), again);
        if self.is_read {
            maker.put("mov.b32", vec![Arg::Reg(self.counter), counter]);
        }
        maker.go(None, self.over);
        maker.here(was);
        let same = HashMap::new();
        self.counting
            .iter()
            .for_each(|at| maker.copy(&steps[*at], &same));
        maker.made
    }

    /// Goes to a label unless one loop does the same.
    fn go_if_not_same(&self, maker: &mut Maker<'_, '_>, label: u32) {
        let (counter, limit) = (Arg::Reg(self.counter), Arg::Reg(self.limit));
        let mut not = maker.give(Type::Pred, "setp.gt.u32", &[limit.clone(), number(MOST)]);
        let mut or = |maker: &mut Maker<'_, '_>, name: &str, of: [Arg; 2]| {
            let other = maker.give(Type::Pred, name, &of);
            not = maker.give(Type::Pred, "or.pred", &[Arg::Reg(not), Arg::Reg(other)]);
        };
        or(maker, "setp.ge.u32", [counter.clone(), limit.clone()]);
        let far = maker.give(Type::B32, "sub.s32", &[limit.clone(), counter.clone()]);
        let last = maker.plus(Arg::Reg(far), -1);
        or(maker, "setp.ne.s32", [last, Arg::Reg(self.distance)]);
        for whole in &self.widened {
            // What it is at first and at last is as far apart when it is widened.
            let rest = maker.sum(&whole.rest);
            let widen = if whole.signed {
                "cvt.s64.s32"
            } else {
                "cvt.u64.u32"
            };
            let [least, most] = whole.more;
            let ends = [(&counter, least), (&limit, most)].map(|(end, more)| {
                let times = maker.times(end.clone(), whole.times);
                let end = match &rest {
                    None => times,
                    Some(rest) => {
                        let sum = maker.give(Type::B32, "add.s32", &[times, rest.clone()]);
                        Arg::Reg(sum)
                    }
                };
                let end = maker.plus(end, more);
                Arg::Reg(maker.give(Type::B64, widen, &[end]))
            });
            let [first, last] = ends;
            let apart = maker.give(Type::B64, "sub.s64", &[last, first]);
            let wide = maker.give(Type::B64, "cvt.u64.u32", &[Arg::Reg(far)]);
            let times = number(whole.times);
            let wide = maker.give(Type::B64, "mul.lo.s64", &[Arg::Reg(wide), times]);
            let more = number((most - least) as u64);
            let wide = maker.give(Type::B64, "add.s64", &[Arg::Reg(wide), more]);
            or(maker, "setp.ne.s64", [Arg::Reg(apart), Arg::Reg(wide)]);
        }
        maker.go(Some(not), label);
    }
}

#[cfg(test)]
mod tests {
    use super::LEAVE;
    use crate::jit::harness;

    /// What `nvcc` makes of
    /// `for (int i = lane; i < n; i += 32) sum += a[row * n + i] * x[i];`.
    const LOOPS: &str = "
        mov.u32 %r1, %tid.x; mov.u32 %r2, %ctaid.x; ld.param.u32 %r3, [n];
        ld.param.u64 %rd1, [a]; ld.param.u64 %rd2, [x]; mov.f32 %f1, 0f00000000;
        setp.ge.s32 %p1, %r1, %r3; @%p1 bra OVER;
        not.b32 %r4, %r1; add.s32 %r5, %r4, %r3; shr.u32 %r6, %r5, 5; add.s32 %r7, %r6, 1;
        and.b32 %r8, %r7, 3; setp.eq.s32 %p2, %r8, 0; mov.u32 %r9, %r1; @%p2 bra MIDDLE;
        mul.wide.u32 %rd3, %r1, 4; add.s64 %rd4, %rd2, %rd3;
        mad.lo.s32 %r10, %r3, %r2, %r1; mul.wide.s32 %rd5, %r10, 4; add.s64 %rd6, %rd1, %rd5;
        mov.u32 %r9, %r1;
    SHORT:
        ld.global.nc.f32 %f2, [%rd4]; ld.global.nc.f32 %f3, [%rd6]; fma.rn.f32 %f1, %f3, %f2, %f1;
        add.s32 %r9, %r9, 32; add.s64 %rd4, %rd4, 128; add.s64 %rd6, %rd6, 128;
        add.s32 %r8, %r8, -1; setp.ne.s32 %p3, %r8, 0; @%p3 bra SHORT;
    MIDDLE:
        setp.lt.u32 %p4, %r5, 96; @%p4 bra OVER;
        mad.lo.s32 %r11, %r3, %r2, %r9; mul.wide.s32 %rd7, %r11, 4; add.s64 %rd8, %rd1, %rd7;
        mul.wide.u32 %rd9, %r9, 4; add.s64 %rd10, %rd2, %rd9; add.s64 %rd11, %rd10, 256;
    LONG:
        ld.global.nc.f32 %f4, [%rd11+-256]; ld.global.nc.f32 %f5, [%rd8];
        fma.rn.f32 %f6, %f5, %f4, %f1;
        ld.global.nc.f32 %f7, [%rd11+-128]; ld.global.nc.f32 %f8, [%rd8+128];
        fma.rn.f32 %f9, %f8, %f7, %f6;
        ld.global.nc.f32 %f10, [%rd11]; ld.global.nc.f32 %f11, [%rd8+256];
        fma.rn.f32 %f12, %f11, %f10, %f9;
        ld.global.nc.f32 %f13, [%rd11+128]; ld.global.nc.f32 %f14, [%rd8+384];
        fma.rn.f32 %f1, %f14, %f13, %f12;
        add.s64 %rd8, %rd8, 512; add.s64 %rd11, %rd11, 512; add.s32 %r9, %r9, 128;
        setp.lt.s32 %p5, %r9, %r3; @%p5 bra LONG;
    OVER:
        mul.wide.u32 %rd12, %r1, 4; add.s64 %rd12, %rd2, %rd12; st.global.f32 [%rd12], %f1;";

    /// Whether the loops of a kernel become one: that has labels of its own.
    fn is_rolled(loops: &str) -> bool {
        let labels = |leave: bool| {
            LEAVE.set(leave);
            let module = harness::load(&harness::module(&format!(
                ".visible .entry k(.param .u64 a, .param .u64 x, .param .u32 n) {{
                    .reg .b32 %r<12>; .reg .b64 %rd<13>; .reg .f32 %f<15>; .reg .pred %p<6>;
                    {loops} ret;
                }}"
            )));
            LEAVE.set(false);
            let body = module.program().functions[0].body.as_ref();
            body.expect("it has a body").tables.labels
        };
        labels(false) > labels(true)
    }

    #[test]
    fn loops_that_are_one_become_one() {
        assert!(is_rolled(LOOPS));
        let unsigned = LOOPS.replace("setp.lt.s32 %p5", "setp.lt.u32 %p5");
        assert!(is_rolled(&unsigned));
    }

    #[test]
    fn others_stay() {
        for (what, instead) in [
            // A turn of the long loop is something else.
            ("[%rd8+256]", "[%rd8+260]"),
            ("%f12, %f11, %f10, %f9", "%f12, %f10, %f11, %f9"),
            ("%f9, %f8, %f7, %f6", "%f9, %f8, %f7, %f1"),
            ("fma.rn.f32 %f12", "fma.rz.f32 %f12"),
            (
                "ld.global.nc.f32 %f10, [%rd11];",
                "ld.volatile.global.f32 %f10, [%rd11];",
            ),
            // It goes on elsewhere.
            ("add.s64 %rd8, %rd8, 512", "add.s64 %rd8, %rd8, 516"),
            ("add.s32 %r9, %r9, 128", "add.s32 %r9, %r9, 64"),
            ("add.s64 %rd6, %rd6, 128", "add.s64 %rd6, %rd6, 132"),
            // It begins elsewhere, or with another sum.
            ("add.s64 %rd11, %rd10, 256", "add.s64 %rd11, %rd10, 260"),
            ("%r11, %r3, %r2, %r9", "%r11, %r3, %r2, %r1"),
            ("LONG:", "mov.f32 %f1, 0f3f800000; LONG:"),
            ("SHORT:", "mov.f32 %f1, 0f3f800000; SHORT:"),
            ("SHORT:", "add.s32 %r9, %r1, 1; SHORT:"),
            // Turns are counted otherwise.
            ("shr.u32 %r6, %r5, 5", "shr.u32 %r6, %r5, 4"),
            ("add.s32 %r7, %r6, 1", "add.s32 %r7, %r6, 2"),
            ("and.b32 %r8, %r7, 3", "and.b32 %r8, %r7, 7"),
            ("setp.lt.u32 %p4, %r5, 96", "setp.lt.u32 %p4, %r5, 64"),
            ("add.s32 %r8, %r8, -1", "add.s32 %r8, %r8, -2"),
            (
                "add.s64 %rd8, %rd1, %rd7",
                "ld.global.u64 %rd8, [%rd1]; add.s64 %rd8, %rd8, %rd7",
            ),
            ("@%p5 bra LONG", "@!%p5 bra LONG"),
            // What is counted is needed elsewhere, or somebody comes from elsewhere.
            ("OVER:", "OVER: mov.u32 %r1, %r8;"),
            ("OVER:", "OVER: mov.b64 %rd2, %rd11;"),
            ("OVER:", "OVER: @%p1 bra LONG;"),
            ("MIDDLE:", "MIDDLE: add.s32 %r5, %r5, 0;"),
        ] {
            assert!(LOOPS.contains(what), "{what}");
            assert!(!is_rolled(&LOOPS.replacen(what, instead, 1)), "{instead}");
        }
    }
}
