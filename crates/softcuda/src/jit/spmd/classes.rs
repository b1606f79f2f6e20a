//! How the registers of a body differ between the threads of a group, and so how its steps are
//! done.

use std::collections::HashMap;

use cranelift_codegen::ir::condcodes::IntCC;
use ptx::ast::{Immediate, Space, Type};

use super::assumed::{self, Assumed, Kind};
use super::control::Control;
use super::facts::Facts;
use super::{Class, Regions, Rows, Same, Way, alone, wants_all};
use crate::jit::decode::{Arg, Divisor, Flow, RegId, Special, Stride};
use crate::jit::program::{Body, Instruction, Step};

/// How far apart neighbours' accesses may be for one check.
const FURTHEST: i64 = 256;

/// The threads that make a group.
#[derive(Clone, Copy, Debug)]
pub(super) struct Group {
    /// How many, a power of two.
    pub width: usize,
    /// Of which blocks.
    pub rows: Rows,
}

impl Group {
    /// The logarithm of their number.
    fn log2(self) -> u32 {
        self.width.ilog2()
    }

    /// Whether a number of groups makes up a row.
    fn make_rows(self) -> bool {
        matches!(self.rows, Rows::Any | Rows::OfWarps)
    }

    /// How a special register differs.
    fn special(self, special: Special) -> Class {
        use Special::*;
        match special {
            Tid(_) if self.rows.goes_across() => Class::Varying,
            // A group begins anywhere in a warp.
            Laneid | Warpid if self.rows == Rows::WithRest => Class::Varying,
            Tid(0) | Laneid => Class::Affine(1),
            LanemaskEq | LanemaskLe | LanemaskLt | LanemaskGe | LanemaskGt | Clock | ClockHi
            | Clock64 | Globaltimer | GlobaltimerLo | GlobaltimerHi => Class::Varying,
            _ => Class::Uniform,
        }
    }
}

/// What is known of the registers.
pub(super) struct Known {
    pub classes: Vec<Class>,
    /// By register, the lowest bits of the first thread's value that are 0.
    zeros: Vec<u32>,
    pub group: Group,
    /// By register, whether it is kept in vectors where it varies.
    pub vectors: Vec<bool>,
    /// By step, what is assumed of it.
    assumed: HashMap<usize, Kind>,
}

/// The class of each register in groups of threads. `is_zero` tells, by register, whether it is 0
/// in all threads.
pub(super) fn of(
    body: &Body,
    control: &Control,
    live: &[Vec<RegId>],
    group: Group,
    is_zero: &[bool],
) -> Known {
    let known = begun(body, live, group);
    settled(body, control, live, is_zero, known, |_| true)
}

/// The same where groups go on together as long as what is assumed holds.
pub(super) fn assuming(
    body: &Body,
    control: &Control,
    live: &[Vec<RegId>],
    is_zero: &[bool],
    (group, assumed): (Group, &Assumed),
) -> Known {
    let begun = || {
        let mut known = begun(body, live, group);
        let steps = assumed.steps.iter();
        known.assumed = steps
            .map(|(at, assumption)| (*at, assumption.kind))
            .collect();
        known
    };
    let known = settled(body, control, live, is_zero, begun(), |_| true);
    let mut apart = vec![];
    for at in assumed.steps.keys() {
        apart.extend(assumed.written_apart(body, control, live, &known.classes, *at));
    }
    apart.retain(|(register, differs)| *differs && known.class(*register) != Class::Varying);
    if apart.is_empty() {
        return known;
    }
    let mut known = begun();
    for (register, _) in apart {
        known.classes[register.0 as usize] = Class::Varying;
    }
    settled(body, control, live, is_zero, known, |_| true)
}

/// The same where the threads of a group never part.
pub(super) fn alike(
    body: &Body,
    control: &Control,
    live: &[Vec<RegId>],
    group: Group,
    is_zero: &[bool],
) -> Known {
    let known = begun(body, live, group);
    settled(body, control, live, is_zero, known, |_| false)
}

/// What is known where the threads of a group go on together, or give the group up, but for those
/// that part by what is known of their lanes. `parted` is what is known of groups of any kind.
pub(super) fn together(
    facts: Facts<'_>,
    parted: &Known,
    lanes: &[Option<u32>],
    regions: &Regions,
) -> Known {
    let Facts {
        body,
        control,
        live,
        zeros,
        ways,
        ..
    } = facts;
    let mut known = begun(body, live, parted.group);
    // They have never parted.
    let same = ways.iter().enumerate().filter_map(|(at, way)| match way {
        Way::Same(same) => Some((at, Kind::Same(*same))),
        _ => None,
    });
    known.assumed = same.collect();
    let begins = known.classes.clone();
    let parting = parting(facts, parted);
    for register in regions.regions.iter().flat_map(|region| &region.live) {
        let at = register.0 as usize;
        known.classes[at] = match is_word(body, *register) {
            true => at_heads(facts, parted, regions, &parting, *register).join(begins[at]),
            false => parted.classes[at],
        };
        known.zeros[at] = parted.zeros[at];
    }
    let by_lanes = |guard: RegId| lanes[guard.0 as usize].is_some();
    settled(body, control, live, zeros, known, by_lanes)
}

/// By block, whether threads of a group may come to it that have parted from others.
fn parting(facts: Facts<'_>, known: &Known) -> Vec<bool> {
    let control = facts.control;
    let mut parting = vec![false; control.first.len()];
    for block in 0..parting.len() {
        let parts = |(_, step): (usize, &Instruction)| {
            step.operation.flow() != Flow::Next && guard(&known.classes, step) == Class::Varying
        };
        if facts.steps(block).any(parts) {
            for between in control.between(block) {
                parting[between] = true;
            }
        }
    }
    parting
}

/// The class of a register where regions begin: of what they write for others. What a region writes
/// for itself, as it counts through a loop, is not there.
fn at_heads(
    facts: Facts<'_>,
    known: &Known,
    regions: &Regions,
    parting: &[bool],
    register: RegId,
) -> Class {
    let mut class = Class::Unset;
    for (block, region) in regions.of.iter().enumerate() {
        let Some(region) = region.map(|region| &regions.regions[region]) else {
            continue;
        };
        if !region.stores.contains(&register) {
            continue;
        }
        for (_, step) in facts.steps(block) {
            if step.writes.contains(&register) {
                let varies = parting[block] || guard(&known.classes, step) == Class::Varying;
                class = class.join(match varies {
                    true => Class::Varying,
                    false => value(known, None, step),
                });
            }
        }
    }
    class
}

/// The register holds an integer of 32 bits.
fn is_word(body: &Body, register: RegId) -> bool {
    is_integer(body, register) && body.tables.registers[register.0 as usize].size() == 4
}

/// What is known before any step.
fn begun(body: &Body, live: &[Vec<RegId>], group: Group) -> Known {
    let count = body.tables.registers.len();
    let mut known = Known {
        classes: vec![Class::Unset; count],
        // Until a step says otherwise.
        zeros: vec![64; count],
        group,
        vectors: vectors(body),
        assumed: HashMap::new(),
    };
    // What is read before it is written is zero in all threads.
    for register in live.first().into_iter().flatten() {
        known.classes[register.0 as usize] = Class::Uniform;
    }
    known
}

/// What is known after all steps, where threads part at branches whose guards `parts` names.
fn settled(
    body: &Body,
    control: &Control,
    live: &[Vec<RegId>],
    is_zero: &[bool],
    mut known: Known,
    parts: impl Fn(RegId) -> bool,
) -> Known {
    for register in alone::written(body) {
        known.classes[register.0 as usize] = Class::Varying;
    }
    let mut parted = vec![false; control.graph.successors.len()];
    loop {
        let before = (known.classes.clone(), known.zeros.clone());
        for (at, step) in body.steps.iter().enumerate() {
            let Step::Instruction(instruction) = step else {
                continue;
            };
            let guard = guard(&known.classes, instruction);
            if instruction.operation.flow() != Flow::Next {
                let by = instruction.guard.map(|(register, _)| register);
                if guard == Class::Varying && by.is_some_and(&parts) {
                    let block = control.graph.block_of[at];
                    if !std::mem::replace(&mut parted[block], true) {
                        part(body, control, live, block, &mut known.classes);
                    }
                }
                continue;
            }
            let stride = instruction.operation.stride(&|arg| known.stride(arg));
            let zeros = stride.map_or(0, |stride| stride.zeros);
            let value = match guard {
                Class::Varying => Class::Varying,
                Class::Unset => Class::Unset,
                _ => value(&known, Some(at), instruction),
            };
            for register in &instruction.writes {
                // Distances are those of integers.
                let value = match value {
                    Class::Affine(_) if !is_integer(body, *register) => Class::Varying,
                    value => value,
                };
                let class = &mut known.classes[register.0 as usize];
                *class = class.join(value);
                if value != Class::Unset && !is_zero[register.0 as usize] {
                    let known = &mut known.zeros[register.0 as usize];
                    *known = zeros.min(*known);
                }
            }
        }
        if (&known.classes, &known.zeros) != (&before.0, &before.1) {
            continue;
        }
        if !known.classes.contains(&Class::Unset) {
            return known;
        }
        // Nothing that runs writes these.
        for class in &mut known.classes {
            *class = class.join_unset();
        }
    }
}

/// By register that varies, how much more each thread's value most likely is than that of the one
/// before, where all that is written to it says so.
pub(super) fn likely(body: &Body, known: &Known) -> Vec<Option<i64>> {
    let mut likely: Vec<Likely> = known
        .classes
        .iter()
        .map(|class| class.stride().map_or(Likely::Unset, Likely::By))
        .collect();
    loop {
        let before = likely.clone();
        for step in &body.steps {
            let Step::Instruction(step) = step else {
                continue;
            };
            let mut unset = false;
            for register in &step.reads {
                unset |= likely[register.0 as usize] == Likely::Unset;
            }
            let of = |arg: &Arg| match arg {
                Arg::Reg(register) => match likely[register.0 as usize] {
                    Likely::By(step) => Some(Stride {
                        step,
                        ..Stride::same(0)
                    }),
                    _ => None,
                },
                // Neighbours are mostly in one row.
                Arg::Special(Special::Tid(n)) if known.group.rows.goes_across() => Some(Stride {
                    step: i64::from(*n == 0),
                    ..Stride::same(0)
                }),
                arg => known.stride(arg),
            };
            let of_register = |register: RegId| likely[register.0 as usize];
            let now = divided(step, known, &of_register).unwrap_or_else(|| {
                let stride = step.operation.likely_stride(&of);
                stride.map_or(Likely::No, |stride| Likely::By(stride.step))
            });
            for register in &step.writes {
                if known.classes[register.0 as usize] != Class::Varying || unset {
                    continue;
                }
                let old = &mut likely[register.0 as usize];
                *old = match *old {
                    Likely::Unset => now,
                    old if old == now => old,
                    _ => Likely::No,
                };
            }
        }
        if likely == before {
            break;
        }
    }
    let varies = |class: &Class| *class == Class::Varying;
    let all = likely.into_iter().zip(&known.classes);
    all.map(|(likely, class)| match likely {
        Likely::By(by) if varies(class) => Some(by),
        _ => None,
    })
    .collect()
}

/// Whether all that a step writes most likely counts up over the threads, by [`likely`].
pub(super) fn writes_count_up(step: &Instruction, likely: &[Option<i64>]) -> bool {
    let counts = |register: &RegId| likely[register.0 as usize].is_some();
    !step.writes.is_empty() && step.writes.iter().all(counts)
}

/// How a value most likely differs from thread to thread.
#[derive(Clone, Copy, PartialEq)]
enum Likely {
    Unset,
    By(i64),
    /// It grows by one about each time that so many threads have passed.
    Slow(u64),
    No,
}

/// How what is divided most likely differs: neighbours are in one row, and their columns count up.
/// A compiler multiplies instead where it knows the divisor, and shifts.
fn divided(step: &Instruction, known: &Known, of: &dyn Fn(RegId) -> Likely) -> Option<Likely> {
    let counts = |register: RegId| match of(register) {
        Likely::By(by) => (1..=assumed::FURTHEST).contains(&by).then_some(by),
        _ => None,
    };
    if let Some((from, by)) = step.operation.high_product() {
        counts(from)?;
        return (1u64 << 32).checked_div(by.into()).map(Likely::Slow);
    }
    let division = step.operation.division()?;
    if let (Likely::Slow(before), Divisor::Number(by)) = (of(division.from), division.by) {
        return (before.saturating_mul(by) >= assumed::LEAST).then_some(Likely::By(0));
    }
    let is_same = match division.by {
        Divisor::Number(_) => true,
        Divisor::Register(by) => known.class(by) == Class::Uniform,
    };
    let by = counts(division.from).filter(|_| is_same && assumed::is_coarse(division))?;
    Some(Likely::By(if division.rest { by } else { 0 }))
}

impl Known {
    pub fn class(&self, register: RegId) -> Class {
        self.classes[register.0 as usize]
    }

    /// Groups are warps.
    fn is_warp(&self) -> bool {
        self.group.width == u32::BITS as usize
    }

    /// The word that a lane of a warp has, where that follows from its number.
    fn of_lane(&self, arg: &Arg) -> Option<impl Fn(u32) -> u32> {
        let (first, step) = match arg {
            Arg::Imm(Immediate::Int { bits, .. }) => (*bits as u32, 0),
            arg => {
                let stride = self.stride(arg).filter(|stride| stride.begins_at_zero())?;
                (0, stride.step as u32)
            }
        };
        Some(move |lane| step.wrapping_mul(lane).wrapping_add(first))
    }

    /// How what a step gives differs, if what is assumed of it holds.
    fn assumed_stride(&self, at: usize, instruction: &Instruction) -> Option<Stride> {
        let step = match *self.assumed.get(&at)? {
            Kind::CountsUp(by) => by,
            Kind::Same(Same { from, gives, .. }) => {
                let same = |register: &RegId| {
                    let class = self.classes[register.0 as usize];
                    *register == from || class.stride() == Some(0)
                };
                let all = instruction.reads.iter().all(same);
                return all.then(|| Stride {
                    step: gives,
                    ..Stride::same(0)
                });
            }
        };
        let (from, _) = instruction.operation.widens()?;
        instruction.operation.stride(&|arg| match arg {
            Arg::Reg(register) if *register == from => Some(Stride {
                step,
                zeros: 0,
                group: self.group.log2(),
            }),
            arg => self.stride(arg),
        })
    }

    /// How an operand differs.
    fn stride(&self, arg: &Arg) -> Option<Stride> {
        match arg {
            Arg::Reg(id) => Some(Stride {
                step: self.classes[id.0 as usize].stride()?,
                zeros: self.zeros[id.0 as usize],
                group: self.group.log2(),
            }),
            Arg::Special(register) => Some(Stride {
                step: self.group.special(*register).stride()?,
                // There are groups where they make up the rows of a block.
                zeros: match register {
                    Special::Laneid if self.is_warp() => 64,
                    Special::Ntid(0) if !self.group.make_rows() => 0,
                    Special::Tid(0) | Special::Laneid | Special::Ntid(0) => self.group.log2(),
                    _ => 0,
                },
                group: self.group.log2(),
            }),
            Arg::Imm(Immediate::Int { bits, .. }) => Some(Stride::number(*bits)),
            Arg::Imm(_) | Arg::Symbol(..) => Some(Stride::same(0)),
            _ => None,
        }
    }
}

/// By register, the lanes of a warp in which it is true: of comparisons of what is known of a lane
/// by its number. `known` is of groups that are warps.
pub(super) fn lanes(body: &Body, live: &[Vec<RegId>], known: &Known) -> Vec<Option<u32>> {
    let count = body.tables.registers.len();
    let mut lanes = vec![None; count];
    let mut writes = vec![0; count];
    for register in live.first().into_iter().flatten() {
        writes[register.0 as usize] += 1;
    }
    for step in &body.steps {
        let Step::Instruction(step) = step else {
            continue;
        };
        for register in &step.writes {
            writes[register.0 as usize] += 1;
        }
        if let (Some(comparison), [register], None) =
            (step.operation.comparison(), &step.writes[..], step.guard)
            && known.is_warp()
            && comparison.of_words()
            && let (Some(a), Some(b)) = (known.of_lane(comparison.a), known.of_lane(comparison.b))
        {
            let holds = |lane: u32| holds(comparison.condition, a(lane), b(lane));
            let bits = (0..u32::BITS).filter(|lane| holds(*lane));
            lanes[register.0 as usize] = Some(bits.fold(0, |bits, lane| bits | 1 << lane));
        }
    }
    for (lanes, writes) in lanes.iter_mut().zip(writes) {
        lanes.take_if(|_| writes > 1);
    }
    lanes
}

/// What a comparison of two words says.
fn holds(condition: IntCC, a: u32, b: u32) -> bool {
    use IntCC::*;
    let (signed_a, signed_b) = (a as i32, b as i32);
    match condition {
        Equal => a == b,
        NotEqual => a != b,
        UnsignedLessThan => a < b,
        UnsignedLessThanOrEqual => a <= b,
        UnsignedGreaterThan => a > b,
        UnsignedGreaterThanOrEqual => a >= b,
        SignedLessThan => signed_a < signed_b,
        SignedLessThanOrEqual => signed_a <= signed_b,
        SignedGreaterThan => signed_a > signed_b,
        SignedGreaterThanOrEqual => signed_a >= signed_b,
    }
}

/// Threads may part at the end of a block: what they write before they join varies there.
fn part(body: &Body, control: &Control, live: &[Vec<RegId>], block: usize, classes: &mut [Class]) {
    let Some(join) = control.joins[block] else {
        // They end apart.
        return;
    };
    for between in control.between(block) {
        let steps = (control.first[between]..body.steps.len())
            .take_while(|at| control.graph.block_of[*at] == between);
        for at in steps {
            let Step::Instruction(instruction) = &body.steps[at] else {
                continue;
            };
            for register in &instruction.writes {
                if live[join].contains(register) {
                    classes[register.0 as usize] = Class::Varying;
                }
            }
        }
    }
}

fn guard(classes: &[Class], instruction: &Instruction) -> Class {
    match instruction.guard {
        Some((register, _)) => classes[register.0 as usize],
        None => Class::Uniform,
    }
}

/// The register holds an integer of 32 or 64 bits.
fn is_integer(body: &Body, register: RegId) -> bool {
    let at = register.0 as usize;
    let ty = body.tables.registers[at];
    let value = super::super::lower::value_type(ty);
    !body.tables.floats[at] && ty != Type::Pred && value.is_int() && matches!(value.bits(), 32 | 64)
}

/// Whether a special register is the same in all threads of a block.
pub(super) fn of_block(register: Special) -> bool {
    use Special::*;
    matches!(
        register,
        Ntid(_) | Ctaid(_) | Nctaid(_) | Smid | Nsmid | Gridid
    )
}

/// All operands are the same in all threads.
fn is_uniform(known: &Known, instruction: &Instruction) -> bool {
    let Known { classes, group, .. } = known;
    let registers = instruction.reads.iter();
    let mut specials = instruction.specials.iter();
    registers
        .map(|register| classes[register.0 as usize])
        .all(|class| class.stride() == Some(0))
        && specials.all(|register| group.special(*register) == Class::Uniform)
}

/// How what an instruction writes differs, where its guard does not. Of what is assumed of a step,
/// only who asks for that step is told.
fn value(known: &Known, at: Option<usize>, instruction: &Instruction) -> Class {
    let (operation, classes) = (&instruction.operation, &known.classes);
    // What is not known yet comes in another turn.
    let unset = |register: &RegId| classes[register.0 as usize] == Class::Unset;
    if instruction.reads.iter().any(unset) {
        return Class::Unset;
    }
    if is_uniform(known, instruction) {
        return match operation.pure() || operation.loads() {
            true => Class::Uniform,
            false => Class::Varying,
        };
    }
    let stride = operation.stride(&|arg| known.stride(arg));
    let stride = stride.or_else(|| known.assumed_stride(at?, instruction));
    Class::of_stride(stride.map(|stride| stride.step))
}

/// How each step is done; `None` where threads may part at a wait.
pub(super) fn ways(body: &Body, known: &Known) -> Option<Vec<Way>> {
    let classes = &known.classes;
    let ways = body.steps.iter().enumerate();
    let ways = ways.map(|(at, step)| match step {
        Step::Label(_) => Some(Way::Once),
        Step::Instruction(instruction) if instruction.operation.waits() => {
            (guard(classes, instruction) != Class::Varying).then_some(Way::Wait)
        }
        Step::Instruction(instruction) => Some(way(body, known, at, instruction)),
    });
    ways.collect()
}

fn way(body: &Body, known: &Known, at: usize, instruction: &Instruction) -> Way {
    let (operation, classes) = (&instruction.operation, &known.classes);
    if operation.flow() != Flow::Next {
        return Way::Control;
    }
    let guarded = guard(classes, instruction) == Class::Varying;
    let access = operation.plain_access();
    if !guarded {
        let uniform = is_uniform(known, instruction);
        if uniform && (operation.pure() || operation.loads() || access.is_some_and(|a| a.write)) {
            return Way::Once;
        }
        let affine = |register: &RegId| classes[register.0 as usize].stride().is_some();
        if !instruction.writes.is_empty()
            && instruction.writes.iter().all(affine)
            && operation.stride(&|arg| known.stride(arg)).is_some()
        {
            return match operation.widens() {
                Some((from, signed)) if classes[from.0 as usize].stride() != Some(0) => {
                    Way::Widen { from, signed }
                }
                _ => Way::Once,
            };
        }
        if let Some(kind) = known.assumed.get(&at)
            && instruction.writes.iter().all(affine)
        {
            match *kind {
                Kind::CountsUp(by) => {
                    if let Some((from, signed)) = operation.widens() {
                        return Way::Assume { from, signed, by };
                    }
                }
                Kind::Same(same) => return Way::Same(same),
            }
        }
        if let Some(access) = access
            && let Class::Affine(stride) = classes[access.base.0 as usize]
            && in_rows(stride, access.size)
            && !matches!(access.space, Some(Space::Local | Space::Param))
        {
            return Way::Row;
        }
    }
    let vectors = |register: &RegId| known.vectors[register.0 as usize];
    let mut registers = instruction.reads.iter().chain(&instruction.writes);
    // Predicates go with values of any width.
    let mut widths = registers
        .clone()
        .map(|register| body.tables.registers[register.0 as usize])
        .filter(|ty| *ty != Type::Pred)
        .map(|ty| ty.size());
    // Those of 16 bits are words, too.
    let is_word = |size: u32| matches!(size, 2 | 4);
    let has_short = widths.clone().any(|size| size == 2);
    let first = widths.next();
    let one_width = match has_short {
        true => operation.vectorizes_short() && first.is_some_and(is_word) && widths.all(is_word),
        false => operation.vectorizes() && widths.all(|width| Some(width) == first),
    };
    let has_doubles = first == Some(8);
    let special = |register: &Special| {
        matches!(known.group.special(*register), Class::Uniform)
            || matches!(register, Special::Tid(0..3))
                && !(known.group.rows.goes_across() && has_doubles)
    };
    match one_width
        && !instruction.addresses
        && registers.all(vectors)
        && instruction.specials.iter().all(special)
    {
        true => Way::Vector,
        false => Way::Each,
    }
}

/// Accesses of so many bytes that are so far apart may be checked together.
pub(crate) fn in_rows(stride: i64, size: u32) -> bool {
    (1..=FURTHEST).contains(&stride) && stride % i64::from(size) == 0
}

/// By register, whether it is kept in vectors where it varies. One of 16 bits is where no more is
/// done with it thread by thread than in vectors.
fn vectors(body: &Body) -> Vec<bool> {
    let tables = &body.tables;
    let value = |at: usize| super::super::lower::value_type(tables.registers[at]);
    let is_short = |at: usize| value(at).bits() == 16;
    let mut vectors: Vec<bool> = (0..tables.registers.len())
        .map(|at| match tables.registers[at] {
            Type::Pred | Type::F32 | Type::F64 => true,
            Type::B64 => tables.floats[at],
            _ => matches!(value(at).bits(), 16 | 32),
        })
        .collect();
    // Tests want both.
    if wants_all() && !body.steps.len().is_multiple_of(4) {
        return vectors;
    }
    loop {
        let mut gain = vec![0i32; vectors.len()];
        for step in &body.steps {
            let Step::Instruction(step) = step else {
                continue;
            };
            let operation = &step.operation;
            if operation.flow() != Flow::Next || operation.plain_access().is_some() {
                continue;
            }
            let registers = || step.reads.iter().chain(&step.writes);
            let all = registers().all(|register| vectors[register.0 as usize]);
            let by = match operation.vectorizes_short() && all {
                true => 1,
                false => -1,
            };
            for register in registers() {
                gain[register.0 as usize] += by;
            }
        }
        let before = vectors.clone();
        for (at, kept) in vectors.iter_mut().enumerate() {
            *kept &= !is_short(at) || gain[at] >= 0;
        }
        if vectors == before {
            return vectors;
        }
    }
}
