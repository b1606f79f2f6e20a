//! The vector form of a kernel: [`WIDTH`] neighbouring threads run together, as long as all go the
//! same way.
//!
//! A [`Plan`] says of each register how its value differs between the threads of such a group, and
//! of each step how it is done for all of them:
//!
//! | class of a register | the group keeps |
//! |---|---|
//! | uniform | one value |
//! | affine | the first thread's value; each next one has a fixed amount more |
//! | varying | a value for each thread: vectors, or as many scalars |
//!
//! In vectors, values of 16 bits lie in words, whose upper halves are zero.
//!
//! Where threads do not agree at a branch over few steps, the group does these by masks, see
//! [`Masked`]; or, in a body that waits, one thread after the other does them, see [`Apart`]. At
//! other branches they part: each goes on by itself, in the compiled code of one thread, to where
//! the ways [join](Plan::join) again; there the group goes on. So a value that is written under a
//! branch is as uniform as what it is computed from. What threads write between parting and joining
//! varies where they join.
//!
//! Groups have no form for calls and local memory: threads [go one by one](alone) through blocks
//! with such.
//!
//! A body that waits or spins is divided into [`Regions`] from wait to wait: the groups of a block
//! run through one after the other, and the block goes on to the next. Short regions, and short
//! bodies in which no thread waits, have a second form for [`Wide`] groups; where lanes part by
//! their numbers in the warp, full warps go [straight](straight) through a region. Through some
//! loops over memory groups go in step, see [`Pace`]. What groups of one column of the block have
//! in common is computed once for each, see [`Column`].
//!
//! Where no thread waits, whole ranges of blocks go in step through a loop over the grid, see
//! [`Passes`].
//!
//! Lowering is in [`lower::lanes`](super::lower::lanes). A plan can be printed; `SOFTCUDA_DUMP`
//! writes it beside the code.

mod alone;
mod apart;
mod assumed;
mod classes;
mod columns;
mod control;
mod facts;
mod granted;
mod loops;
mod marks;
mod masks;
mod most;
mod next;
mod paces;
mod passes;
mod regions;
mod straight;
mod teams;
#[cfg(test)]
mod tests;
mod wide;

use std::collections::HashMap;
use std::fmt;

use super::analysis;
use super::decode::{Flow, RegId};
use super::liveness;
use super::program::{Body, Function, Instruction, Step};
use assumed::Assumed;
use classes::Group;
use control::Control;
use facts::Facts;
use most::Zeros;

pub(crate) use apart::Apart;
pub(crate) use classes::in_rows;
pub(crate) use columns::Column;
pub(in crate::jit) use control::{compared, dominators, post_dominators};
pub(crate) use granted::Granted;
pub(crate) use masks::{Loop, Masked, by_first};
pub(crate) use next::{Distance, streams_of_threads};
pub(crate) use paces::Pace;
pub(crate) use passes::Passes;
pub(crate) use regions::{Exit, Region, Regions, Target};
pub(crate) use wide::Wide;

/// Threads of a group.
pub(crate) const WIDTH: usize = 8;
/// In so many blocks of a row, the number of a thread in the grid has no sign.
const MOST_BLOCKS: u32 = 1 << MOST_BLOCKS_LOG2;
pub(crate) const MOST_BLOCKS_LOG2: u32 = 21;
/// Threads of the widest group, see [`Wide`].
pub(crate) const WIDEST: usize = 32;
/// The most steps of a body that is worth a second form.
const MOST_STEPS: usize = 4000;

/// The most steps of a body that is compiled twice, one time for what is [`Granted`].
const MOST_STEPS_IN_TWO: usize = 500;

/// Whether all forms are wanted wherever they can be: in tests, which choose by the number of steps
/// where there are several, unless `SOFTCUDA_FUZZ_PLANS` is `release`.
#[cfg(test)]
pub(in crate::jit) fn wants_all() -> bool {
    static RELEASE: std::sync::LazyLock<bool> = std::sync::LazyLock::new(|| {
        std::env::var("SOFTCUDA_FUZZ_PLANS").is_ok_and(|plans| plans == "release")
    });
    !*RELEASE
}

/// The best form is wanted.
#[cfg(not(test))]
pub(in crate::jit) const fn wants_all() -> bool {
    false
}

/// The blocks that code is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Rows {
    /// All. Where a number of groups makes up a row, threads run in groups.
    Any,
    /// Those whose rows are whole warps.
    OfWarps,
    /// Those in whose rows no number of groups is: threads run in groups, and the rest of a row one
    /// by one.
    WithRest,
    /// Such whose threads make up groups: a group may begin in one row and end in another.
    Across,
    /// Those of one row, of threads that wait for each other: the last ones, which make no group,
    /// follow one by one from wait to wait.
    RowAndRest,
    /// The same of several rows, which groups go across.
    AcrossAndRest,
}

impl Rows {
    /// What code is best for a block, if threads of the kernel wait for each other, or not.
    pub fn of(block: [u32; 3], waits: bool) -> Rows {
        let [row, others @ ..] = block.map(|count| count as usize);
        let threads = others.into_iter().fold(row, usize::wrapping_mul);
        match waits {
            _ if row.is_multiple_of(WIDEST) => Rows::OfWarps,
            _ if row.is_multiple_of(WIDTH) => Rows::Any,
            false if row > WIDTH => Rows::WithRest,
            true if threads.is_multiple_of(WIDTH) => Rows::Across,
            true if threads > WIDTH && threads == row => Rows::RowAndRest,
            true if threads > WIDTH => Rows::AcrossAndRest,
            _ => Rows::Any,
        }
    }

    /// Whether a group may begin in one row and end in another, so that no thread's number follows
    /// from that of the one before.
    pub fn goes_across(self) -> bool {
        matches!(self, Rows::Across | Rows::AcrossAndRest)
    }

    /// Whether some threads make no group, though they wait for the others.
    pub fn has_rest(self) -> bool {
        matches!(self, Rows::RowAndRest | Rows::AcrossAndRest)
    }
}

/// How a register's value differs between the threads of a group.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Class {
    /// Nothing is written to it.
    Unset,
    /// The same in all.
    Uniform,
    /// So much more in each than in the one before; wrapping, never 0.
    Affine(i64),
    /// Any.
    Varying,
}

impl Class {
    /// From one thread to the next, where it is known.
    pub fn stride(self) -> Option<i64> {
        match self {
            Class::Unset | Class::Uniform => Some(0),
            Class::Affine(stride) => Some(stride),
            Class::Varying => None,
        }
    }

    /// What a value is that differs so.
    fn of_stride(stride: Option<i64>) -> Class {
        match stride {
            Some(0) => Class::Uniform,
            Some(stride) => Class::Affine(stride),
            None => Class::Varying,
        }
    }

    /// What is never written is the same in all.
    fn join_unset(self) -> Class {
        match self {
            Class::Unset => Class::Uniform,
            class => class,
        }
    }

    /// Either of two.
    fn join(self, other: Class) -> Class {
        match (self, other) {
            (Class::Unset, other) | (other, Class::Unset) => other,
            (a, b) if a == b => a,
            _ => Class::Varying,
        }
    }
}

/// How a step is done for a group.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Way {
    /// Once, for the first thread: the others' outcome follows from its.
    Once,
    /// Once, where no thread's narrow value wraps on the way to the wide one; otherwise each thread
    /// goes on by itself from here.
    Widen {
        /// The narrow register.
        from: RegId,
        /// It is extended by its sign.
        signed: bool,
    },
    /// Once, where the narrow values count up by so much from thread to thread and none wraps;
    /// otherwise each thread goes on by itself from here, as [`Plan::assumed_join`] says.
    Assume { from: RegId, signed: bool, by: i64 },
    /// Once, where the first and the last thread divide alike, and so do those between; otherwise
    /// as above.
    Same(Same),
    /// By vectors.
    Vector,
    /// An access to memory at one distance after the other, checked together.
    Row,
    /// Thread after thread.
    Each,
    /// A jump or an end; whether threads may part is a matter of the guard.
    Control,
    /// The threads wait for others.
    Wait,
}

/// A step that divides what counts up, in one row for all threads of a group.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Same {
    /// The register that is divided.
    pub from: RegId,
    /// It has a sign.
    pub signed: bool,
    /// It counts up by so much from thread to thread, and never wraps.
    pub by: i64,
    /// The results count up by so much: 0 of quotients that are the same.
    pub gives: i64,
}

/// How a group runs a body.
#[derive(Debug)]
pub(crate) struct Plan {
    /// By register.
    pub classes: Vec<Class>,
    /// By register, whether it is kept in vectors where it varies.
    pub vectors: Vec<bool>,
    /// By step. Labels are done once.
    pub ways: Vec<Way>,
    /// Runs of steps.
    pub control: Control,
    /// By block, the registers that are live where it begins.
    pub live: Vec<Vec<RegId>>,
    /// By block, what is done by masks if threads do not agree at its end.
    pub masked: Vec<Option<Masked>>,
    /// Of a body that waits or spins.
    pub regions: Option<Regions>,
    teams: teams::Teams,
    /// By register that varies, how much more each thread's value is most likely.
    likely: Vec<Option<i64>>,
    pub wide: Option<Wide>,
    /// The blocks where groups go on for a wide one.
    entered: Vec<usize>,
    /// By register, the lanes of a warp in which it is true, where these are known.
    pub lanes: Vec<Option<u32>>,
    /// By region, the steps that full warps go straight through, and which lanes do them.
    pub straight: Vec<Option<Vec<(usize, u32)>>>,
    /// Loops of such a body that groups go through in step.
    pub paces: Vec<Pace>,
    /// By region, see [`columns`].
    pub columns: Vec<Option<Column>>,
    /// Of a body without regions: a loop that blocks go through in step.
    pub passes: Option<Passes>,
    /// By block of a body with regions, what threads do one after the other from its end on.
    pub apart: Vec<Option<Apart>>,
    /// By block, whether threads that come there go on by themselves.
    alone: Vec<bool>,
    /// By block of such a body, whether groups never come to it but by masks.
    unreached: Vec<bool>,
    assumed: Assumed,
    /// By block, see [`Assumed::rewritten`].
    rewritten: Vec<Vec<RegId>>,
    /// It holds in the first blocks of a row of the grid alone, so many as `1 << MOST_BLOCKS_LOG2`.
    pub in_first_blocks: bool,
    /// By register, see [`Plan::most`].
    most: Vec<Option<u32>>,
    /// By step, see [`next`].
    ahead: HashMap<usize, Distance>,
}

impl Plan {
    /// The most that a register of 32 bits is, in any thread; it is below 2^31. `None` where that
    /// is not known.
    pub fn most(&self, register: RegId) -> Option<u32> {
        self.most[register.0 as usize]
    }

    /// The plan of a kernel for some blocks; `None` where the vector form cannot be, or would be no
    /// faster. It takes something for [granted](Granted) of launches where the bool lets it.
    pub fn of(function: &Function, body: &Body, how: (Rows, bool)) -> Option<Plan> {
        Plan::with_cuts(function, body, how, &[])
    }

    /// The same, where blocks begin at these steps besides.
    fn with_cuts(
        function: &Function,
        body: &Body,
        (rows, grants): (Rows, bool),
        cuts: &[usize],
    ) -> Option<Plan> {
        if !function.kernel || !eligible(body) {
            return None;
        }
        let places = analysis::waits_in_rounds(body);
        let control = Control::of(body, |at| Assumed::may_be(body, at));
        if alone::blocks(body, &control)?.contains(&true) && !places.is_empty() {
            return None;
        }
        let live = liveness::live_in(body, &control.graph)?;
        let zeros = Zeros::of(body);
        let group = |width| Group { width, rows };
        let known = classes::of(body, &control, &live, group(WIDTH), &zeros.of);
        let parted = classes::alike(body, &control, &live, group(WIDTH), &zeros.of);
        let both = [&known, &parted];
        let grants = grants && places.is_empty() && body.steps.len() <= MOST_STEPS_IN_TWO;
        let assumed = Assumed::of(body, &control, &live, &zeros.of, both, &places, grants);
        let known = match assumed.steps.is_empty() {
            true => known,
            false => {
                let how = (known.group, &assumed);
                classes::assuming(body, &control, &live, &zeros.of, how)
            }
        };
        let ways = classes::ways(body, &known)?;
        let likely = classes::likely(body, &known);
        let alike = (!places.is_empty())
            .then(|| classes::alike(body, &control, &live, group(WIDEST), &zeros.of));
        // Those of wide groups, which go on together.
        let widens = |at: usize| match (&ways[at], &body.steps[at], &alike) {
            (Way::Widen { .. } | Way::Assume { .. } | Way::Same(_), ..) => true,
            _ if assumed.joins_at(at) || cuts.contains(&at) => true,
            (_, Step::Instruction(step), Some(alike)) => {
                let from = step.operation.widens().map(|(from, _)| from);
                let class = |from: RegId| alike.classes[from.0 as usize];
                from.is_some_and(|from| matches!(class(from), Class::Affine(_)))
            }
            _ => false,
        };
        let control = Control::of(body, widens);
        let alone = alone::blocks(body, &control)?;
        let live = liveness::live_in(body, &control.graph)?;
        debug_assert!(ways.iter().enumerate().all(|(at, way)| {
            let is_assumed = matches!(way, Way::Assume { .. } | Way::Same(_));
            let apart = assumed.written_apart(body, &control, &live, &known.classes, at);
            let mut apart = apart.into_iter().filter(|(_, differs)| *differs);
            !is_assumed || apart.all(|(register, _)| known.class(register) == Class::Varying)
        }));
        let teams = teams::Teams::of(body, &control, &known);
        let facts = Facts {
            body,
            control: &control,
            rows,
            classes: &known.classes,
            zeros: &zeros.of,
            ways: &ways,
            live: &live,
            assumed: &assumed,
        };
        let (mut regions, mut apart, mut unreached) = (None, vec![], vec![]);
        let (mut wide, mut paces) = (None, vec![]);
        let mut lanes = vec![];
        let (mut straight, mut columns) = (vec![], vec![]);
        if !places.is_empty() {
            let all = Regions::of(body, &control, &live, &places)?;
            let judge = apart::Judge {
                facts,
                regions: &all,
                teams: &teams,
                likely: &likely,
                alike: &parted.classes,
            };
            apart = judge.all();
            unreached = judge.unreached(&apart);
            let warps = classes::of(body, &control, &live, group(WIDEST), &zeros.of);
            lanes = classes::lanes(body, &live, &warps);
            let narrow = wide::Narrow {
                facts,
                regions: &all,
                apart: &apart,
                lanes: &lanes,
                waits: true,
            };
            // A number of wide groups makes up no row of a block that has a rest, nor do columns.
            wide = match rows.has_rest() {
                false => Wide::of(&narrow, &warps),
                true => None,
            };
            let steps = |region| straight::straight(facts, &all, &lanes, region);
            straight = (0..all.regions.len()).map(steps).collect();
            let judge = paces::Judge {
                facts,
                regions: &all,
                wide: wide.as_ref(),
            };
            paces = judge.all();
            if let Some(wide) = &mut wide {
                wide.leave_out(&all, &paces);
                // Where wide groups give up, groups seldom part.
                for (block, apart) in apart.iter_mut().enumerate() {
                    let is_wide = all.of[block].is_some_and(|region| wide.regions[region]);
                    let seldom = apart.as_ref().is_some_and(|apart| !apart.always);
                    if is_wide && seldom && !wants_all() {
                        *apart = None;
                    }
                }
            }
            let judge = columns::Judge {
                facts,
                regions: &all,
                teams: &teams,
                wide: wide.as_ref().map_or(&ways, |wide| &wide.ways),
            };
            columns = match rows.has_rest() {
                false => judge.all(),
                true => vec![None; all.regions.len()],
            };
            regions = Some(all);
        } else if !alone.contains(&true)
            && let Some((found, more)) = Wide::without_waits(facts)
        {
            if !more.is_empty() && cuts.is_empty() {
                return Plan::with_cuts(function, body, (rows, grants), &more);
            }
            wide = more.is_empty().then_some(found);
        }
        let judge = masks::Judge {
            facts,
            regions: regions.as_ref(),
        };
        let masked = judge.all();
        let passes = match regions {
            None if assumed.steps.is_empty() && !alone.contains(&true) => Passes::of(facts),
            _ => None,
        };
        for (apart, masked) in apart.iter_mut().zip(&masked) {
            // Masks are for those that do not agree.
            if masked.is_some() && apart.as_ref().is_some_and(|apart| !apart.always) {
                *apart = None;
            }
        }
        let ahead = next::of(facts, passes.as_ref());
        let rewritten = assumed.rewritten(body, &control, &live, &known.classes);
        let entered = wide.iter().flat_map(Wide::inside).collect();
        let plan = Plan {
            alone,
            entered,
            wide,
            lanes,
            straight,
            columns,
            apart,
            unreached,
            in_first_blocks: zeros.in_first_blocks,
            most: zeros.most,
            ahead,
            paces,
            passes,
            likely,
            masked,
            teams,
            assumed,
            rewritten,
            classes: known.classes,
            vectors: known.vectors,
            ways,
            control,
            live,
            regions,
        };
        // Tests want all that can be.
        if wants_all() || plan.pays(body) {
            return Some(plan);
        }
        let assumes = plan.ways.iter().any(|way| matches!(way, Way::Same(_)));
        (grants && assumes).then(|| Plan::with_cuts(function, body, (rows, false), cuts))?
    }

    /// The class of a register.
    pub fn class(&self, register: RegId) -> Class {
        self.classes[register.0 as usize]
    }

    /// How much more each thread's value is than that of the one before, most likely, of a register
    /// that varies.
    pub fn likely_stride(&self, register: RegId) -> Option<i64> {
        self.likely[register.0 as usize]
    }

    /// The block where threads that part at the end of this one meet again.
    pub fn join(&self, block: usize) -> Option<usize> {
        self.control.joins[block]
    }

    /// How far from what a step accesses one most likely does soon, if that is to be fetched ahead.
    pub fn ahead(&self, at: usize) -> Option<Distance> {
        self.ahead.get(&at).copied()
    }

    /// What is taken for granted of launches; `None` where the plan is for all.
    pub fn granted(&self) -> Option<&Granted> {
        let granted = &self.assumed.granted;
        (!granted.divisors.is_empty()).then_some(granted)
    }

    /// The block where threads meet again for which what is assumed of a step is not so.
    pub fn assumed_join(&self, at: usize) -> Option<usize> {
        let join = self.assumed.steps.get(&at)?.join?;
        Some(self.control.block_at(join))
    }

    /// Whether threads that join at a block may have written a register by themselves of which the
    /// group has one value.
    pub fn is_rewritten(&self, block: usize, register: RegId) -> bool {
        self.rewritten[block].contains(&register)
    }

    /// The step from which groups come to another without a way past, or into, what is between.
    pub fn straight_to(&self, at: usize, body: &Body) -> usize {
        let control = &self.control;
        let mut block = control.graph.block_of[at];
        while block > 0 && self.falls_in(block, body) {
            block -= 1;
        }
        control.first[block]
    }

    /// Whether groups come to a block from the one before alone, all of whose threads do.
    fn falls_in(&self, block: usize, body: &Body) -> bool {
        let (control, before) = (&self.control, block - 1);
        let mut others = control.graph.successors.iter().enumerate();
        let last = control.steps(body, before).last();
        self.regions.is_none()
            && last.is_some_and(|(_, step)| step.operation.flow() == Flow::Next)
            && others.all(|(from, to)| from == before || !to.contains(&block))
            && !self.is_alone(before)
            && !self.entered.contains(&block)
            && !self.assumed.joins_at(control.first[block])
    }

    /// The heads of regions, and what is live there.
    pub fn heads(&self) -> impl Iterator<Item = (usize, &[RegId])> {
        let regions = self.regions.iter().flat_map(|all| &all.regions);
        regions.map(|region| (region.head, &self.live[region.head][..]))
    }

    /// What is live where a branch decides: what lies in the tile for either way.
    pub fn live_at_branches(&self) -> impl Iterator<Item = &[RegId]> {
        let regions = self.regions.iter().flat_map(|all| &all.regions);
        regions.filter_map(|region| match region.exit {
            Exit::Branch { block, .. } => Some(&self.live[block][..]),
            Exit::To(_) => None,
        })
    }

    /// What is live where wide groups may give up.
    pub fn live_at_resumes(&self) -> impl Iterator<Item = &[RegId]> {
        let resumes = self.wide.iter().flat_map(|wide| &wide.resumes);
        resumes.map(|resume| &resume.live[..])
    }

    /// What is live where groups go through a loop again.
    pub fn live_at_paces(&self) -> impl Iterator<Item = &[RegId]> {
        let heads = self.paces.iter().map(|pace| pace.head);
        heads.map(|head| &self.live[head][..])
    }

    /// Whether groups never come to a block but by masks: there is no code for all their threads.
    pub fn is_unreached(&self, block: usize) -> bool {
        self.unreached.get(block) == Some(&true)
    }

    /// Whether the threads of a group that come to a block go on by themselves.
    pub fn is_alone(&self, block: usize) -> bool {
        self.alone[block]
    }

    /// Whether there is such a block.
    pub fn has_alone(&self) -> bool {
        self.alone.contains(&true)
    }

    /// Whether groups may come to a block by masks.
    pub fn is_by_masks(&self, block: usize) -> bool {
        let mut masked = self.masked.iter().flatten();
        masked.any(|masked| masked.blocks.contains(&block))
    }

    /// Whether groups go in step through a loop of a region.
    pub fn is_in_step(&self, region: usize) -> bool {
        self.paces.iter().any(|pace| pace.region == region)
    }

    /// Whether enough is done for all threads together.
    fn pays(&self, body: &Body) -> bool {
        let (mut together, mut each) = (0, 0);
        for (at, (step, way)) in body.steps.iter().zip(&self.ways).enumerate() {
            let is_alone = self.alone[self.control.graph.block_of[at]];
            if let (Step::Instruction(step), way, false) = (step, way, is_alone) {
                match way {
                    Way::Each if self.counts_likely(step) => together += 1,
                    // One call adds what all add.
                    Way::Each if step.operation.adds_floats().is_some() => together += 4,
                    Way::Each => each += 1,
                    Way::Vector | Way::Row => together += 1,
                    // Its operands and what is kept go in vectors, and the grid is asked once.
                    Way::Wait => together += 4,
                    Way::Once
                    | Way::Widen { .. }
                    | Way::Assume { .. }
                    | Way::Same(_)
                    | Way::Control => {}
                }
            }
        }
        together > 0 && together >= each
    }

    /// Whether what a step writes, or where it accesses memory, most likely counts up over the
    /// threads.
    fn counts_likely(&self, step: &Instruction) -> bool {
        match step.operation.plain_access() {
            Some(access) => self.likely_stride(access.base).is_some(),
            None => classes::writes_count_up(step, &self.likely),
        }
    }
}

/// What the vector form does not do: tables of jumps, the carry flag, most of local memory.
fn eligible(body: &Body) -> bool {
    body.steps.len() <= MOST_STEPS
        && alone::may_be(body)
        && body.steps.iter().all(|step| {
            let Step::Instruction(instruction) = step else {
                return true;
            };
            let operation = &instruction.operation;
            !operation.uses_stack()
                && !operation.carry()
                && (!operation.waits() || operation.waits_in_rounds())
                && !matches!(operation.flow(), Flow::Table(_))
        })
}

impl fmt::Display for Plan {
    /// The classes of registers and the ways of steps, a line for each.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (at, class) in self.classes.iter().enumerate() {
            writeln!(f, "register {at}: {class:?}")?;
        }
        for (at, way) in self.ways.iter().enumerate() {
            writeln!(
                f,
                "step {at}: block {} {way:?}",
                self.control.graph.block_of[at]
            )?;
        }
        if let Some(granted) = self.granted() {
            writeln!(f, "{granted:?}")?;
        }
        for (at, _) in self.alone.iter().enumerate().filter(|(_, alone)| **alone) {
            writeln!(f, "block {at}: one by one")?;
        }
        for (at, masked) in self.masked.iter().enumerate() {
            if let Some(Masked {
                blocks,
                loops,
                join,
                ..
            }) = masked
            {
                writeln!(
                    f,
                    "block {at}: by masks {blocks:?} to {join}, loops {loops:?}"
                )?;
            }
        }
        for (at, apart) in self.apart.iter().enumerate() {
            if let Some(apart) = apart {
                let Apart { blocks, join, .. } = apart;
                let when = if apart.always { "" } else { "else " };
                writeln!(f, "block {at}: {when}one by one {blocks:?} to {join}")?;
            }
        }
        for (at, region) in self.regions.iter().flat_map(|all| &all.regions).enumerate() {
            writeln!(
                f,
                "region {at}: from block {}, then {:?}",
                region.head, region.exit
            )?;
        }
        for (region, steps) in self.straight.iter().enumerate() {
            for (at, lanes) in steps
                .iter()
                .flatten()
                .filter(|(_, lanes)| *lanes != straight::ALL)
            {
                writeln!(f, "region {region}: step {at} by lanes {lanes:#010x}")?;
            }
        }
        for (region, column) in self.columns.iter().enumerate() {
            if let Some(Column { steps, .. }) = column {
                writeln!(f, "region {region}: once for each column {steps:?}")?;
            }
        }
        if let Some(Passes { head, branch, .. }) = &self.passes {
            writeln!(f, "block {head}: a pass for each turn, from block {branch}")?;
        }
        for Pace { head, branch, .. } in &self.paces {
            writeln!(f, "block {head}: in step, again from block {branch}")?;
        }
        if let Some(wide) = &self.wide {
            write!(f, "{wide}")?;
        }
        Ok(())
    }
}
