//! Registers of their own for what a register holds at different times. Compilers let a loop count
//! in a register that holds something else before it, if nobody needs that afterwards:
//!
//! ```text
//!     mov.u32 %r1, %tid.x;
//!     ...
//! $loop:
//!     add.s32 %r1, %r1, %r2;
//!     setp.lt.s32 %p1, %r1, %r3;
//!     @%p1 bra $loop;
//! ```
//!
//! Here the loop counts in a copy. So `%r1` is the number of the thread wherever it is read: it
//! counts up from thread to thread, and where threads wait, it is
//! [computed again](crate::jit::recompute) instead of kept.
//!
//! Each value that a register is given has a name, and so has what it holds where ways with
//! different values join: a φ of static single assignment. A web is what must share a register:
//! names that are joined. A value that is also read for itself is copied where a loop begins with
//! it, and so it is where it joins what such a loop has left. A number that is read for itself is
//! copied wherever it joins other values: `v = x < n ? in[x] : 0` often has a zero that serves as
//! an operand, too. Of one register, one name at a time is what it holds, so a copy overwrites
//! nothing that is read later.

use std::collections::HashMap;

use ptx::ast::Pos;

use super::body::{Pending, PendingStep};
use super::loops::{Flow, is_wide, rename};
use crate::jit::decode::{Arg, RegId};
use crate::jit::program::Tables;
use crate::jit::spmd::dominators;

/// The most blocks of a body in which registers are looked at, and registers times blocks.
const MOST_BLOCKS: usize = 1000;
const MOST: usize = 1 << 20;

/// Gives webs registers of their own.
pub(super) fn split(steps: &mut Vec<PendingStep<'_>>, tables: &mut Tables) {
    let Some(flow) = Flow::of(steps, tables) else {
        return;
    };
    let mut events: HashMap<RegId, Vec<Event>> = HashMap::new();
    for at in 0..steps.len() {
        for (register, event) in flow.events(at) {
            events.entry(register).or_default().push(event);
        }
    }
    let passed = tables.incoming.iter().chain(&tables.outgoing);
    passed.for_each(|(register, _)| _ = events.remove(register));
    events.retain(|register, events| {
        let is_integer = is_wide(tables.registers[register.0 as usize]).is_some();
        is_integer && events.iter().filter(|event| event.writes).count() > 1
    });
    if events.is_empty() {
        return;
    }
    let mut graph = Graph::of(&flow);
    let blocks = graph.first.len();
    if blocks > MOST_BLOCKS || blocks * tables.registers.len() > MOST {
        return;
    }
    graph.dominators = graph.find_dominators();
    let mut registers: Vec<RegId> = events.keys().copied().collect();
    registers.sort_unstable_by_key(|register| register.0);
    let mut copies = vec![];
    for register in registers {
        let ty = tables.registers[register.0 as usize];
        let events = &events[&register];
        let Some(webs) = Webs::of(&graph, events) else {
            continue;
        };
        let mut own: HashMap<usize, RegId> = HashMap::new();
        // What comes first stays where it is.
        own.insert(webs.first(events), register);
        let mut of = |web: usize| {
            *own.entry(web).or_insert_with(|| {
                tables.registers.push(ty);
                RegId(tables.registers.len() as u32 - 1)
            })
        };
        for (at, event) in events.iter().enumerate() {
            let (read, written) = webs.of_event(at, event);
            let (read, written) = (read.map(&mut of), written.map(&mut of));
            if let PendingStep::Instruction(pending) = &mut steps[event.step] {
                rename_in(pending, register, read, written);
            }
        }
        for (edge, to, from) in webs.copies(&graph) {
            copies.push((edge, is_wide(ty) == Some(true), of(to), of(from)));
        }
    }
    // The last come first: those before them stay where they are.
    copies.sort_by_key(|(at, ..)| std::cmp::Reverse(*at));
    for (at, wide, to, from) in copies {
        let pos = steps[at..].iter().find_map(|step| match step {
            PendingStep::Instruction(pending) => Some(pending.instruction.pos),
            PendingStep::Label(_) => None,
        });
        steps.insert(at, copy(pos.unwrap_or_default(), wide, to, from));
    }
}

fn copy(pos: Pos, wide: bool, to: RegId, from: RegId) -> PendingStep<'static> {
    let text = if wide { "mov.b64" } else { "mov.b32" };
    let args = vec![Arg::Reg(to), Arg::Reg(from)];
    PendingStep::Instruction(Pending::new(pos, None, text, args))
}

/// Puts other registers in the place of one that an instruction reads, and writes in its first
/// operand.
fn rename_in(
    pending: &mut Pending<'_>,
    register: RegId,
    read: Option<RegId>,
    written: Option<RegId>,
) {
    for (at, arg) in pending.args.iter_mut().enumerate() {
        let own = match at {
            0 => written.or(read),
            _ => read,
        };
        if let Some(own) = own {
            rename(arg, &|id| if id == register { own } else { id });
        }
    }
}

/// What a step does with a register.
#[derive(Clone, Copy)]
pub(super) struct Event {
    pub step: usize,
    pub reads: bool,
    pub writes: bool,
    /// What the register held before may be there still when it was written, or a part of it.
    pub keeps: bool,
    /// It writes a number.
    pub gives_number: bool,
}

/// How a block is come to from another.
#[derive(Clone, Copy)]
enum Edge {
    /// By the branch at this step.
    Branch(usize),
    Falls,
}

/// The runs of steps of a body.
struct Graph {
    /// Where each begins.
    first: Vec<usize>,
    block_of: Vec<usize>,
    before: Vec<Vec<(usize, Edge)>>,
    behind: Vec<Vec<usize>>,
    /// By block, see [`find_dominators`](Self::find_dominators), once they are found.
    dominators: Vec<Option<usize>>,
}

impl Graph {
    fn of(flow: &Flow) -> Graph {
        let mut begins = vec![false; flow.len() + 1];
        begins[0] = true;
        for at in 0..flow.len() {
            if let Some(to) = flow.branches(at) {
                begins[to] = true;
            }
            if flow.branches(at).is_some() || flow.may_leave(at) {
                begins[at + 1] = true;
            }
        }
        let first: Vec<usize> = (0..flow.len()).filter(|at| begins[*at]).collect();
        let mut block_of = vec![0; flow.len()];
        for (block, at) in first.iter().enumerate() {
            block_of[*at..].fill(block);
        }
        let count = first.len();
        let (mut before, mut behind) = (vec![vec![]; count], vec![vec![]; count]);
        for (block, behind) in behind.iter_mut().enumerate() {
            let last = first.get(block + 1).map_or(flow.len(), |next| *next) - 1;
            let falls = !flow.leaves(last) && block + 1 < count;
            let branches = flow.branches(last);
            let branches = branches.map(|to| (block_of[to], Edge::Branch(last)));
            for (to, edge) in branches
                .into_iter()
                .chain(falls.then_some((block + 1, Edge::Falls)))
            {
                before[to].push((block, edge));
                behind.push(to);
            }
        }
        Graph {
            first,
            block_of,
            before,
            behind,
            dominators: vec![],
        }
    }

    /// By block, its immediate dominator; the first block is its own.
    fn find_dominators(&self) -> Vec<Option<usize>> {
        let before = |edges: &Vec<(usize, Edge)>| edges.iter().map(|(from, _)| *from).collect();
        let before: Vec<Vec<usize>> = self.before.iter().map(before).collect();
        dominators(&before, 0)
    }

    /// Whether a block is on all ways to another one.
    fn dominates(&self, one: usize, other: usize) -> bool {
        let next = |block: &usize| self.dominators[*block].filter(|next| next != block);
        std::iter::successors(next(&other), next).any(|block| block == one)
    }

    /// Whether a block begins a loop: one that does not come before it leads to it.
    fn is_head(&self, block: usize) -> bool {
        self.before[block].iter().any(|(from, _)| *from >= block)
    }
}

/// What a register holds: what it has at the beginning, [`BEGIN`]; what the event of this number,
/// counted from 1, writes; or, from [`Webs::joins`] on, what is joined where a block begins.
type Name = usize;
const BEGIN: Name = 0;

/// The webs of a register.
struct Webs {
    /// By name, one of the same web.
    parents: Vec<Name>,
    /// By event, what the register holds before it.
    before: Vec<Name>,
    /// What is copied where a block begins, and by block what the register holds at its end.
    cuts: Vec<(Name, usize)>,
    ends: Vec<Option<Name>>,
    /// The name of what is joined at the first block.
    joins: Name,
}

impl Webs {
    /// `None` where one register is enough.
    fn of(graph: &Graph, events: &[Event]) -> Option<Webs> {
        let blocks = graph.first.len();
        let joins = 1 + events.len();
        let mut of_block: Vec<Vec<usize>> = vec![vec![]; blocks];
        for (number, event) in events.iter().enumerate() {
            of_block[graph.block_of[event.step]].push(number);
        }
        let lives = lives(graph, events, &of_block);
        let last = |block: usize| {
            let mut written = of_block[block].iter().rev();
            written
                .find(|number| events[**number].writes)
                .map(|number| number + 1)
        };
        let mut begins: Vec<Option<Name>> = vec![None; blocks];
        let mut ends: Vec<Option<Name>> = (0..blocks).map(last).collect();
        loop {
            let mut changes = false;
            for block in 0..blocks {
                if begins[block] == Some(joins + block) {
                    continue;
                }
                let came = graph.before[block].iter().map(|(from, _)| ends[*from]);
                let mut came = came.chain((block == 0).then_some(Some(BEGIN))).flatten();
                let first = came.next();
                let now = match came.any(|other| Some(other) != first) {
                    true => Some(joins + block),
                    false => first,
                };
                changes |= now != begins[block];
                begins[block] = now;
                ends[block] = last(block).or(now);
            }
            if !changes {
                break;
            }
        }
        let mut webs = Webs {
            parents: (0..joins + blocks).collect(),
            before: vec![BEGIN; events.len()],
            cuts: vec![],
            ends,
            joins,
        };
        let mut read = vec![false; joins + blocks];
        for block in 0..blocks {
            let Some(mut name) = begins[block] else {
                continue; // nothing comes here
            };
            for number in &of_block[block] {
                let event = &events[*number];
                webs.before[*number] = name;
                read[name] |= event.reads;
                if event.writes {
                    if event.keeps {
                        webs.join(name, number + 1);
                    }
                    name = number + 1;
                }
            }
        }
        let comes_from = |name: Name| match name {
            BEGIN => None,
            name if name < joins => Some(graph.block_of[events[name - 1].step]),
            name => Some(name - joins),
        };
        let is_for_itself = |name: Name, block: usize| {
            let from = comes_from(name);
            read[name] && from.is_none_or(|from| graph.dominates(from, block))
        };
        let joined = |block: &usize| begins[*block] == Some(joins + block) && lives[*block];
        let (heads, mut others): (Vec<usize>, Vec<usize>) = (0..blocks)
            .filter(joined)
            .partition(|block| graph.is_head(*block));
        for block in heads {
            for name in webs.came(graph, block) {
                match is_for_itself(name, block) {
                    true => webs.cuts.push((name, block)),
                    false => webs.join(name, joins + block),
                }
            }
        }
        let is_number = |name: Name| match name {
            name if (1..joins).contains(&name) => events[name - 1].gives_number,
            _ => false,
        };
        // Numbers, and what a loop that has a copy leaves, where it joins what was copied.
        loop {
            let count = others.len();
            others.retain(|block| {
                let came = webs.came(graph, *block);
                let copied = came.iter().copied().filter(|name| {
                    let is_cut = |other: Name| webs.is_cut(*name, other);
                    let begins = is_cut(joins + block) || came.iter().any(|other| is_cut(*other));
                    is_for_itself(*name, *block) && (is_number(*name) || begins)
                });
                let copied: Vec<Name> = copied.collect();
                if copied.is_empty() {
                    return true;
                }
                for name in came {
                    match copied.contains(&name) {
                        true => webs.cuts.push((name, *block)),
                        false => webs.join(name, joins + block),
                    }
                }
                false
            });
            if others.len() == count {
                break;
            }
        }
        for block in others {
            for name in webs.came(graph, block) {
                webs.join(name, joins + block);
            }
        }
        let mut cuts = std::mem::take(&mut webs.cuts);
        cuts.retain(|(name, block)| webs.web(*name) != webs.web(joins + block));
        webs.cuts = cuts;
        (!webs.cuts.is_empty()).then_some(webs)
    }

    /// What the register may hold where others come to a block.
    fn came(&self, graph: &Graph, block: usize) -> Vec<Name> {
        let came = graph.before[block].iter();
        let came = came.filter_map(|(from, _)| self.ends[*from]);
        let mut came: Vec<Name> = came.chain((block == 0).then_some(BEGIN)).collect();
        came.sort_unstable();
        came.dedup();
        came.retain(|name| *name != self.joins + block);
        came
    }

    fn web(&self, mut name: Name) -> Name {
        while self.parents[name] != name {
            name = self.parents[name];
        }
        name
    }

    fn join(&mut self, a: Name, b: Name) {
        let (a, b) = (self.web(a), self.web(b));
        self.parents[a.max(b)] = a.min(b);
    }

    /// Whether what the second web holds is a copy of what the first does, or begins with one.
    fn is_cut(&self, from: Name, to: Name) -> bool {
        let is = |(name, block): &(Name, usize)| {
            self.web(*name) == self.web(from) && self.web(self.joins + block) == self.web(to)
        };
        self.cuts.iter().any(is)
    }

    /// The web of what comes first.
    fn first(&self, events: &[Event]) -> Name {
        match events.first() {
            Some(event) if event.reads || event.keeps => self.web(self.before[0]),
            _ => self.web(1),
        }
    }

    /// The webs that an event reads and writes.
    fn of_event(&self, number: usize, event: &Event) -> (Option<Name>, Option<Name>) {
        let reads = event.reads.then(|| self.web(self.before[number]));
        let writes = event.writes.then(|| self.web(number + 1));
        (reads, writes)
    }

    /// Before which steps copies are made: to one web from another.
    fn copies(&self, graph: &Graph) -> Vec<(usize, Name, Name)> {
        let mut copies = vec![];
        for (name, block) in &self.cuts {
            let (to, from) = (self.web(self.joins + block), self.web(*name));
            for (before, edge) in &graph.before[*block] {
                if self.ends[*before] == Some(*name) {
                    let at = match edge {
                        Edge::Branch(at) => *at,
                        Edge::Falls => graph.first[*block],
                    };
                    copies.push((at, to, from));
                }
            }
        }
        copies
    }
}

/// By block, whether what a register holds where it begins may be read.
fn lives(graph: &Graph, events: &[Event], of_block: &[Vec<usize>]) -> Vec<bool> {
    let first = |numbers: &Vec<usize>| {
        let event = numbers.first().map(|number| &events[*number])?;
        Some(event.reads || event.keeps)
    };
    let own: Vec<Option<bool>> = of_block.iter().map(first).collect();
    let mut lives: Vec<bool> = own.iter().map(|own| *own == Some(true)).collect();
    loop {
        let mut changes = false;
        for block in (0..own.len()).rev() {
            let passes = own[block].is_none() && graph.behind[block].iter().any(|to| lives[*to]);
            changes |= passes && !std::mem::replace(&mut lives[block], true);
        }
        if !changes {
            return lives;
        }
    }
}

#[cfg(test)]
mod tests {
    use crate::jit::harness;
    use crate::jit::program::Step;
    use crate::jit::recompute::recomputed;

    /// How many registers a kernel has that begins with the number of the thread in `%r1`, and
    /// whether that is computed again where threads wait.
    fn kernel(body: &str) -> (usize, bool) {
        let module = harness::load(&harness::module(&format!(
            ".visible .entry k(.param .u32 n) {{
                .reg .b32 %r<4>; .reg .pred %p<2>;
                mov.u32 %r1, %tid.x; ld.param.u32 %r2, [n];
                {body}
                ret;
            }}"
        )));
        let body = module.program().functions[0].body.as_ref();
        let body = body.expect("it has a body");
        let again = recomputed(body, &[]);
        let first = body.steps.iter().find_map(|step| match step {
            Step::Instruction(step) => step.writes.first(),
            Step::Label(_) => None,
        });
        let first = first.expect("it writes the thread's number first");
        let registers = body.tables.registers.len();
        (registers, again[first.0 as usize].is_some())
    }

    const NEXT: &str = "add.u32 %r1, %r1, 32; setp.lt.u32 %p1, %r1, %r2;";

    #[test]
    fn a_loop_has_a_register_of_its_own() {
        for (body, own) in [
            ("mov.u32 %r3, %r1; again: NEXT @%p1 bra again;", 1),
            (
                "mov.u32 %r3, %r1; again: NEXT @!%p1 bra out; bra again; out:",
                1,
            ),
            // Nothing but the loop reads it.
            ("mov.u32 %r3, %r2; again: NEXT @%p1 bra again;", 0),
            // It is read when the loop is over, at its end or in the middle.
            (
                "mov.u32 %r3, %r1; again: NEXT @%p1 bra again; mov.u32 %r3, %r1;",
                1,
            ),
            (
                "mov.u32 %r3, %r1; again: @%p1 bra out; NEXT @%p1 bra again; bra end;
              out: mov.u32 %r3, %r1; end:",
                1,
            ),
            // What the loop leaves joins what was there before, and another loop goes on.
            (
                "mov.u32 %r3, %r1; @%p1 bra next; again: NEXT @%p1 bra again;
              next: @%p1 bra end; more: NEXT @%p1 bra more; end:",
                1,
            ),
            // The loop is come to from elsewhere, or not entered from before it.
            (
                "mov.u32 %r3, %r1; @%p1 bra again; mov.u32 %r3, 1; again: NEXT @%p1 bra again;",
                1,
            ),
            (
                "mov.u32 %r3, %r1; @%p1 bra into; again: NEXT into: @%p1 bra again;",
                1,
            ),
            (
                "mov.u32 %r3, %r1; bra in; again: NEXT @%p1 bra again; bra out;
                in: bra again; out:",
                1,
            ),
            // A loop around it comes back to it, and what it wrote is still there.
            (
                "around: mov.u32 %r3, %r1; again: NEXT @%p1 bra again; setp.lt.u32 %p1, %r3, %r2;
              @%p1 bra around;",
                0,
            ),
            // It is written again elsewhere.
            (
                "mov.u32 %r3, %r1; again: NEXT @%p1 bra again; mov.u32 %r1, 5; mov.u32 %r3, %r1;",
                2,
            ),
            // Some threads may keep what it was.
            (
                "mov.u32 %r3, %r1; @%p1 mov.u32 %r1, 5; again: NEXT @%p1 bra again;",
                0,
            ),
        ] {
            let body = body.replace("NEXT", NEXT);
            let (registers, again) = kernel(&body);
            // `%r0` and `%p0` are not named.
            assert_eq!((registers, again), (4 + own, own > 0), "{body}");
        }
    }

    #[test]
    fn a_number_stays_one_where_others_join_it() {
        for (number, own) in [("7", 1), ("%r2", 0)] {
            let (registers, _) = kernel(&format!(
                "mov.u32 %r3, {number}; mov.u32 %r0, %r3; @%p1 bra out; mov.u32 %r3, %r2;
                out: add.u32 %r0, %r0, %r3;"
            ));
            assert_eq!(registers, 5 + own, "{number}");
        }
    }
}
