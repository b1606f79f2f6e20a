//! What a replay keeps from call to call: executables by the section of the step that they run, and
//! what to do with them.

use std::any::Any;
use std::collections::HashSet;
use std::sync::atomic::AtomicU64;
use std::sync::{Arc, Weak};

use cudarc::driver::{CudaContext, CudaStream};
use smallvec::SmallVec;

use super::bound::Made;
use super::script::{Changes, Driven, Traced, View};
use super::shape::{Fit, NotApplied, Shape};
use super::standing::Standing;
use super::{Counters, ReplayOptions};
use crate::collective::{self, Communicator};
use crate::exec::Exec;
use crate::graph::{AnyOp, Checkpoints};
use crate::kernel::{AnyParam, digest_of, values_given};
use crate::memory::{Region, bytes_of_owner};
use crate::op::Op;
use crate::record::read_flag;
use crate::{Error, Result};

/// So many sets of arguments are remembered for a section.
const REMEMBERED: usize = 8;
/// So many changed items tell one set of arguments from another.
const SAMPLES: usize = 16;

/// One section of a step: what is recorded between two parts that the host runs.
#[derive(Default)]
struct Section {
    shapes: Vec<Shape>,
    /// The executable that ran last.
    last: u64,
    /// The part that the host drives behind it, where it holds nothing.
    empty_before: Option<Driven>,
    /// What tells sets of arguments that ran before.
    seen: Vec<Told>,
    /// The driver refused an update.
    refused: bool,
}

/// What tells a set of arguments from others.
struct Told {
    digest: u64,
    /// The library's own memory among them: another allocation may have the same address.
    memory: Vec<Weak<dyn Any + Send + Sync>>,
}

impl PartialEq for Told {
    fn eq(&self, other: &Told) -> bool {
        let same = |(one, other)| Weak::ptr_eq(one, other);
        self.digest == other.digest
            && self.memory.len() == other.memory.len()
            && self.memory.iter().zip(&other.memory).all(same)
    }
}

/// What the last call ran.
#[derive(Clone, Copy)]
pub(super) enum LastCall {
    Never,
    /// Nothing, or one executable, by its number.
    One(Option<u64>),
    /// Several executables, with sections for the host.
    InSections,
    /// It failed.
    NotWhole,
}

pub(super) struct Core {
    /// What the last run launched, if the next one launches it as it is where no parameter gets a
    /// value.
    standing: Option<Standing>,
    pub context: Arc<CudaContext>,
    pub options: ReplayOptions,
    pub counters: Counters,
    sections: SmallVec<[Section; 1]>,
    next_id: u64,
    /// What the step being walked changes about the executable that it is beside.
    pub changes: Changes,
    /// The operations of that step that closures make of parameters.
    pub made: Vec<Made>,
    /// What it has recorded, if it is beside none.
    pub script: Vec<Traced>,
    pub last_call: LastCall,
    /// The step goes on behind a checkpoint.
    pub resumes: bool,
    /// Counts calls, for outcomes to tell whether they are the last. None before there is one that
    /// asks.
    pub serial: Option<Arc<AtomicU64>>,
    /// Those that the step has collectives of.
    pub communicators: Vec<Communicator>,
    /// An executable was made or changed since the memory that all hold was counted.
    uncounted: bool,
}

impl Core {
    pub(super) fn new(context: Arc<CudaContext>, options: ReplayOptions) -> Core {
        Core {
            standing: None,
            context,
            options,
            counters: Counters::default(),
            sections: SmallVec::new(),
            next_id: 1,
            changes: Changes::default(),
            made: Vec::new(),
            last_call: LastCall::Never,
            resumes: false,
            serial: None,
            script: Vec::new(),
            communicators: Vec::new(),
            uncounted: false,
        }
    }

    /// The count of calls, for an outcome.
    pub(super) fn serial(&mut self) -> Arc<AtomicU64> {
        let calls = self.counters.calls;
        let new = || Arc::new(AtomicU64::new(calls));
        self.serial.get_or_insert_with(new).clone()
    }

    /// Prepares for a walk.
    pub(super) fn begin(&mut self) {
        self.stand_down();
        // Until the step is whole.
        self.last_call = LastCall::NotWhole;
        // Of a run in which a closure panicked, or of a section that failed.
        self.changes.clear();
        self.script.clear();
        self.made.clear();
        for shape in self
            .sections
            .iter_mut()
            .flat_map(|section| &mut section.shapes)
        {
            shape.catch_up();
        }
    }

    /// The executable that section `section` is expected to run.
    pub(super) fn expected(&mut self, section: usize) -> Option<usize> {
        if self.sections.len() <= section {
            self.sections.resize_with(section + 1, Section::default);
        }
        let section = &self.sections[section];
        let find = |id: u64| section.shapes.iter().position(|shape| shape.id == id);
        let last = find(section.last)?;
        find(section.shapes[last].followed_by).or(Some(last))
    }

    #[inline]
    pub(super) fn shape(&self, section: usize, shape: usize) -> &Shape {
        &self.sections[section].shapes[shape]
    }

    /// Notes that item `at` of an executable's script becomes `new`.
    pub(super) fn note(&mut self, section: usize, shape: usize, at: usize, new: Traced) {
        self.sections[section].shapes[shape].note(&mut self.changes, at, new);
    }

    /// Item `at` of the step that is walked beside an executable.
    fn walked(&self, section: usize, beside: usize, at: usize) -> View<'_> {
        let changed = self.changes.get(at);
        changed.unwrap_or_else(|| self.shape(section, beside).view(at))
    }

    /// How many items of `shape` would change, if the step's items so far go with it.
    fn changes_of<'v>(
        shape: &Shape,
        count: usize,
        item: impl Fn(usize) -> View<'v>,
        most: usize,
    ) -> Option<usize> {
        let mut changed = 0;
        for at in 0..count {
            match shape.fit(at, item(at)) {
                Fit::Same => {}
                Fit::Changed if changed < most => changed += 1,
                _ => return None,
            }
        }
        Some(changed)
    }

    /// The executable other than `beside` that the step's items so far, and `next`, change least,
    /// if it changes fewer than `most` of them.
    fn best(
        &self,
        section: usize,
        beside: usize,
        at: usize,
        next: Option<View<'_>>,
        most: usize,
    ) -> Option<usize> {
        let mut best = None;
        let mut most = most;
        for (index, shape) in self.sections[section].shapes.iter().enumerate() {
            if index == beside || next.is_some_and(|next| shape.fit(at, next) == Fit::Other) {
                continue;
            }
            let item = |at| self.walked(section, beside, at);
            let changed = Core::changes_of(shape, at, item, most);
            if let Some(changed) = changed.filter(|changed| *changed < most) {
                most = changed;
                best = Some(index);
            }
        }
        best
    }

    /// Another executable that the step may go on with, though it goes another way than `beside`.
    pub(super) fn closest(
        &self,
        section: usize,
        beside: usize,
        at: usize,
        next: View<'_>,
    ) -> Option<usize> {
        self.best(section, beside, at, Some(next), usize::MAX)
    }

    /// Another executable that the step's items so far change much less than `beside`.
    pub(super) fn closer(&self, section: usize, beside: usize, at: usize) -> Option<usize> {
        self.best(section, beside, at, None, self.changes.len().div_ceil(2))
    }

    /// Turns the step's items so far into values.
    pub(super) fn take_out(&mut self, section: usize, beside: usize, at: usize) {
        let mut changes = std::mem::take(&mut self.changes).into_items();
        let shape = &self.sections[section].shapes[beside];
        for at in 0..at {
            let item = changes.take(at).or_else(|| shape.traced(at));
            self.script.extend(item);
        }
    }

    /// Notes what the values change about an executable that they go with.
    pub(super) fn put_in(&mut self, section: usize, shape: usize) {
        let shape = &self.sections[section].shapes[shape];
        for (at, item) in self.script.drain(..).enumerate() {
            if shape.fit(at, item.view()) != Fit::Same {
                shape.note(&mut self.changes, at, item);
            }
        }
    }

    /// Makes the executable that a whole section was walked beside do what the section says, or
    /// finds or makes a better one. Returns that.
    pub(super) fn settle(
        &mut self,
        section: usize,
        mut beside: usize,
        stream: &Arc<CudaStream>,
    ) -> Result<usize> {
        let whole = self.shape(section, beside).len();
        let mostly = self.changes.len() * 2 > self.shape(section, beside).changeable;
        let is_other = !self.changes.others.is_empty();
        let may_go = mostly || self.sections[section].refused && self.changes.len() > 0;
        if is_other || may_go && self.is_traceable(section, beside) {
            let over = Some(View::Over);
            let most = match is_other {
                true => usize::MAX,
                false => self.changes.len(),
            };
            self.need_traceable(section, beside)?;
            if let Some(found) = self.best(section, beside, whole, over, most) {
                self.take_out(section, beside, whole);
                self.put_in(section, found);
                beside = found;
            } else if is_other {
                self.take_out(section, beside, whole);
                return self.build_new(section, stream);
            } else if mostly && self.is_repeated(section, beside) {
                self.take_out(section, beside, whole);
                let twin = self.build(section, stream)?;
                self.counters.twins += 1;
                return Ok(twin);
            }
        }
        let updated = self.changes.len();
        if updated == 0 {
            self.counters.hits += 1;
            return Ok(beside);
        }
        self.uncounted = true;
        match self.sections[section].shapes[beside].apply(&mut self.changes) {
            Ok(()) => {
                self.counters.hits += 1;
                self.counters.updated += updated as u64;
                Ok(beside)
            }
            Err(NotApplied { error, restored }) => {
                tracing::debug!("an executable cannot be updated, another is made: {error}");
                self.sections[section].refused = true;
                let traceable = self.need_traceable(section, beside);
                if traceable.is_ok() {
                    self.take_out(section, beside, whole);
                }
                if !restored {
                    self.sections[section].shapes.remove(beside);
                }
                traceable?;
                self.build_new(section, stream)
            }
        }
    }

    fn is_traceable(&self, section: usize, beside: usize) -> bool {
        self.shape(section, beside).is_traceable(&self.changes)
    }

    /// Refuses to make another executable of what only a call of the step can record.
    fn need_traceable(&self, section: usize, beside: usize) -> Result<()> {
        match self.is_traceable(section, beside) {
            true => Ok(()),
            false => Err(Error::NotCalled {
                why: "another executable is needed, and only a call embeds graphs and foreign work",
            }),
        }
    }

    /// As [`settle`](Core::settle), for a section that was walked beside no executable.
    pub(super) fn settle_script(
        &mut self,
        section: usize,
        stream: &Arc<CudaStream>,
    ) -> Result<usize> {
        let (mut best, mut most) = (None, usize::MAX);
        let count = self.script.len();
        for (index, shape) in self.sections[section].shapes.iter().enumerate() {
            let changed = match shape.fit(count, View::Over) {
                Fit::Same => Core::changes_of(shape, count, |at| self.script[at].view(), most),
                _ => None,
            };
            if let Some(changed) = changed.filter(|changed| *changed < most) {
                (best, most) = (Some(index), changed);
            }
        }
        if let Some(found) = best {
            self.put_in(section, found);
            return self.settle(section, found, stream);
        }
        self.build_new(section, stream)
    }

    /// Makes an executable because the step recorded something new.
    fn build_new(&mut self, section: usize, stream: &Arc<CudaStream>) -> Result<usize> {
        let built = self.build(section, stream)?;
        self.counters.builds += 1;
        Ok(built)
    }

    /// Whether these arguments ran before: then they may again, and an executable of their own
    /// spares the updates.
    fn is_repeated(&mut self, section: usize, beside: usize) -> bool {
        let has_room = self.executables() < self.options.executables;
        let Section { shapes, seen, .. } = &mut self.sections[section];
        let (shape, edits) = (&shapes[beside], &self.changes.ops);
        if !has_room || edits.len() * 2 <= shape.changeable {
            return false;
        }
        let sampled = edits.iter().step_by(edits.len().div_ceil(SAMPLES));
        let tell = |ops: &mut dyn Iterator<Item = (u32, &AnyOp)>| {
            let items = ops.map(|(item, op)| (u64::from(item), op.digest(), op));
            // Where nothing tells arguments apart, they do not count as the same.
            let known: Vec<_> = items.filter(|(_, digest, _)| *digest != 0).collect();
            let numbers = known.iter().flat_map(|(item, digest, _)| [*item, *digest]);
            let owners = known.iter().flat_map(|(.., op)| op.owners());
            let told = Told {
                digest: digest_of(numbers),
                memory: owners
                    .filter(|owner| bytes_of_owner(owner) > 0)
                    .map(Arc::downgrade)
                    .collect(),
            };
            (known.len() * 2 > SAMPLES.min(edits.len())).then_some(told)
        };
        let now = |node| shape.exec.now(node);
        let old = tell(
            &mut sampled
                .clone()
                .filter_map(|edit| Some((edit.item, now(edit.node)?))),
        );
        let new = tell(&mut sampled.clone().map(|edit| (edit.item, &edit.op)));
        let repeated = new.as_ref().is_some_and(|new| seen.contains(new));
        for told in [old, new].into_iter().flatten() {
            if !seen.contains(&told) {
                // Memory at these addresses was freed and allocated again.
                seen.retain(|other| other.digest != told.digest);
                seen.push(told);
            }
        }
        let forgotten = seen.len().saturating_sub(REMEMBERED);
        seen.drain(..forgotten);
        repeated
    }

    /// Makes an executable of what was recorded.
    fn build(&mut self, section: usize, stream: &Arc<CudaStream>) -> Result<usize> {
        let instantiate = &self.options.instantiate;
        let (id, resumes) = (self.next_id, self.resumes);
        let mut shape = Shape::build(id, &self.context, &mut self.script, instantiate, resumes)?;
        shape.exec.upload(stream)?;
        self.next_id += 1;
        self.uncounted = true;
        while self.executables() >= self.options.executables && self.evict_one() {}
        let shapes = &mut self.sections[section].shapes;
        shapes.push(shape);
        Ok(shapes.len() - 1)
    }

    /// Drops the executable that was not used for longest. Those of this call stay.
    fn evict_one(&mut self) -> bool {
        let calls = self.counters.calls;
        let shapes = |section: &Section| {
            let used = section.shapes.iter().map(|shape| shape.used);
            used.enumerate().min_by_key(|(_, used)| *used)
        };
        let oldest = self.sections.iter().enumerate();
        let oldest = oldest.filter_map(|(at, section)| Some((at, shapes(section)?)));
        let oldest = oldest.min_by_key(|(_, (_, used))| *used);
        let Some((section, (shape, _))) = oldest.filter(|(_, (_, used))| *used < calls) else {
            return false;
        };
        drop(self.sections[section].shapes.remove(shape));
        self.counters.evictions += 1;
        true
    }

    /// Keeps to the bound on memory.
    pub(super) fn trim(&mut self) {
        if self.uncounted && self.options.bytes < u64::MAX {
            while self.bytes() > self.options.bytes && self.evict_one() {}
            self.uncounted = false;
        }
    }

    pub(super) fn launch(
        &mut self,
        section: usize,
        shape: usize,
        stream: &Arc<CudaStream>,
    ) -> Result<()> {
        self.sections[section].shapes[shape].exec.launch(stream)?;
        self.counters.launches += 1;
        Ok(())
    }

    /// Notes which executable a section ran, if it holds anything, and the part behind it, if the
    /// host drives one.
    pub(super) fn note_use(
        &mut self,
        section: usize,
        shape: Option<usize>,
        before: Option<Driven>,
    ) {
        let call = self.counters.calls;
        let section = &mut self.sections[section];
        let Some(shape) = shape else {
            section.empty_before = before;
            return;
        };
        let id = section.shapes[shape].id;
        if let Some(last) = section
            .shapes
            .iter_mut()
            .find(|shape| shape.id == section.last)
        {
            last.followed_by = id;
        }
        section.last = id;
        let shape = &mut section.shapes[shape];
        shape.used = call;
        shape.before = before;
    }

    /// The part behind a section turned out to need the host no more.
    pub(super) fn drive_no_more(&mut self, section: usize) {
        let section = &mut self.sections[section];
        section.empty_before = None;
        let last = section.last;
        if let Some(shape) = section.shapes.iter_mut().find(|shape| shape.id == last) {
            shape.before = None;
        }
    }

    /// Whether the host drove this part when it came here before.
    pub(super) fn is_driven(
        &self,
        section: usize,
        beside: Option<usize>,
        at: usize,
        part: Driven,
    ) -> bool {
        let section = &self.sections[section];
        if at == 0 && self.script.is_empty() && section.empty_before == Some(part) {
            return true;
        }
        beside.is_some_and(|beside| {
            let shape = &section.shapes[beside];
            shape.before == Some(part) && at == shape.len()
        })
    }

    /// A flag once everything before has run.
    pub(super) fn read(&mut self, flag: &Region, stream: &Arc<CudaStream>) -> Result<u32> {
        read_flag(flag, stream, &mut self.communicators)
    }

    /// Where a section stopped, once everything before has run.
    pub(super) fn stopped(
        &mut self,
        checkpoints: &Checkpoints,
        stream: &Arc<CudaStream>,
    ) -> Result<Option<Arc<str>>> {
        collective::wait_for_step(stream, &mut self.communicators)?;
        checkpoints.stopped(stream)
    }

    /// The step has a collective of a communicator.
    pub(super) fn takes_part_in(&mut self, communicator: &Communicator) {
        if !self
            .communicators
            .iter()
            .any(|known| known.is_of_same(communicator))
        {
            self.communicators.push(communicator.clone());
        }
    }

    /// How many executables there are.
    pub(super) fn executables(&self) -> usize {
        self.sections
            .iter()
            .map(|section| section.shapes.len())
            .sum()
    }

    /// The executables of the last call.
    pub(super) fn last_execs(&self) -> impl Iterator<Item = &Exec> {
        self.sections.iter().filter_map(|section| {
            let mut shapes = section.shapes.iter();
            let shape = shapes.find(|shape| shape.id == section.last)?;
            let stands = |standing: &Standing| standing.is_of(shape.exec.raw());
            let ran =
                shape.used == self.counters.calls || self.standing.as_ref().is_some_and(stands);
            ran.then_some(&shape.exec)
        })
    }

    /// The bytes of memory that the executables hold, each allocation counted once.
    pub(super) fn bytes(&self) -> u64 {
        let mut counted = HashSet::new();
        let mut bytes = 0;
        for shape in self.sections.iter().flat_map(|section| &section.shapes) {
            shape.each_owner(&mut |owner| {
                if counted.insert(Arc::as_ptr(owner).cast::<()>()) {
                    bytes += bytes_of_owner(owner);
                }
            });
        }
        bytes
    }

    /// What the first section ran, of a call that had no other.
    pub(super) fn first_section(&self) -> LastCall {
        let section = &self.sections[0];
        let ran = section.shapes.iter().find(|shape| shape.id == section.last);
        LastCall::One(
            ran.filter(|shape| shape.used == self.counters.calls)
                .map(|shape| shape.id),
        )
    }

    /// Gives an executable the closures of the step that it runs.
    pub(super) fn take_made(&mut self, section: usize, shape: usize) {
        let shape = &mut self.sections[section].shapes[shape];
        if !(shape.params.made.is_empty() && self.made.is_empty()) {
            shape.params.made.clear();
            std::mem::swap(&mut shape.params.made, &mut self.made);
            shape.params.forget();
        }
    }

    /// Checks the value of a parameter against what the executables that ran last do with it.
    pub(super) fn check_param(&mut self, param: &dyn AnyParam) -> Result<()> {
        if self
            .standing
            .as_ref()
            .is_some_and(|now| now.is_changing(param))
        {
            return Ok(());
        }
        self.stand_down();
        let mut used = self.executables() == 0;
        for section in &mut self.sections {
            for shape in &mut section.shapes {
                // Steps that another call ran say nothing about values to come.
                let checks = shape.id == section.last;
                used |= shape.check_param(param, checks)?;
            }
        }
        match used {
            true => Ok(()),
            false => Err(Error::UnusedParam {
                name: param.name().into(),
            }),
        }
    }

    /// Runs what the last run ran, if little has changed.
    #[inline]
    pub(super) fn run_again(&mut self, stream: &Arc<CudaStream>) -> Option<Result<()>> {
        let ran = self.standing.as_mut()?.run(stream, &mut self.counters)?;
        Some(ran.map_err(|NotApplied { error, restored }| {
            if !restored && let Some(standing) = self.standing.take() {
                let is_other = |shape: &Shape| !standing.is_of(shape.exec.raw());
                self.sections[0].shapes.retain(is_other);
            }
            error
        }))
    }

    /// Notes that an executable may be run again with no more than another value of a parameter,
    /// if it may.
    fn stand(&mut self, shape: usize, values: u64, changed: Option<usize>) {
        let shape = &mut self.sections[0].shapes[shape];
        let is_watched = shape.checkpoints.is_some() || self.serial.is_some();
        let stream = shape.exec.stands_in().filter(|_| !is_watched);
        self.standing = stream.map(Arc::as_ptr).map(|stream| {
            let changing = changed.and_then(|place| shape.changing(place));
            Standing::new(shape.exec.raw(), stream, values, changing)
        });
    }

    /// Executables may change from here on.
    fn stand_down(&mut self) {
        let Some(standing) = self.standing.take() else {
            return;
        };
        let mut shapes = self.sections[0].shapes.iter_mut();
        if let Some(shape) = shapes.find(|shape| standing.is_of(shape.exec.raw()))
            && let Some(changing) = standing.into_changing()
        {
            shape.take_back(changing);
        }
    }

    /// Runs what the last call ran, with the values that parameters have now.
    pub(super) fn run(&mut self, stream: &Arc<CudaStream>) -> Result<Option<Checkpoints>> {
        self.stand_down();
        let values = values_given();
        let not_called = |why| Err(Error::NotCalled { why });
        let id = match self.last_call {
            LastCall::One(Some(id)) => id,
            LastCall::One(None) => return Ok(None),
            LastCall::Never => return not_called("it never was"),
            LastCall::InSections => return not_called("it has sections for the host"),
            LastCall::NotWhole => return not_called("its last call failed"),
        };
        let find = |section: &Section| section.shapes.iter().position(|shape| shape.id == id);
        let Some(mut at) = find(&self.sections[0]) else {
            return not_called("its executable was dropped");
        };
        let stale = self.sections[0].shapes[at].stale();
        if !stale.is_patched {
            at = self.run_made(at, stream)?;
        } else {
            self.counters.hits += 1;
        }
        let mut changed = None;
        if stale.params > 0 {
            self.uncounted = true;
            let shape = &mut self.sections[0].shapes[at];
            let is_one = stale.params == 1 && stale.is_patched && stale.is_known;
            changed = is_one.then_some(stale.first);
            let patched = match is_one {
                true => shape.patch_param(stale),
                false => shape.patch_params(),
            };
            match patched {
                Ok(set) => self.counters.updated += set,
                Err(NotApplied { error, restored }) => {
                    if !restored {
                        self.sections[0].shapes.remove(at);
                    }
                    return Err(error);
                }
            }
        }
        let calls = self.counters.calls;
        let shape = &mut self.sections[0].shapes[at];
        shape.used = calls;
        let id = shape.id;
        self.sections[0].last = id;
        self.last_call = LastCall::One(Some(id));
        let checkpoints = self.sections[0].shapes[at].checkpoints.clone();
        self.launch(0, at, stream)?;
        self.stand(at, values, changed);
        Ok(checkpoints)
    }

    /// Has an executable, or another one, do what closures make of parameters and read the flags
    /// that parameters are. Returns which.
    #[cold]
    fn run_made(&mut self, at: usize, stream: &Arc<CudaStream>) -> Result<usize> {
        // Of a run in which a closure panicked.
        self.changes.clear();
        let shape = &mut self.sections[0].shapes[at];
        let id = shape.id;
        if let Err(error) = shape.note_params(&mut self.changes) {
            self.changes.clear();
            return Err(error);
        }
        let mut made = shape.params.made.clone();
        made.iter_mut().for_each(Made::commit);
        self.resumes = shape.resumes;
        let settled = self.settle(0, at, stream);
        self.resumes = false;
        match &settled {
            Ok(at) => {
                let shape = &mut self.sections[0].shapes[*at];
                shape.params.made = made;
                if shape.id != id {
                    shape.params.forget();
                }
            }
            Err(_) => {
                self.changes.clear();
                self.script.clear();
            }
        }
        settled
    }

    /// Forgets everything, for another context.
    pub(super) fn reset(&mut self, context: &Arc<CudaContext>) {
        self.standing = None;
        self.changes.clear();
        self.script.clear();
        self.sections.clear();
        self.made.clear();
        self.last_call = LastCall::Never;
        self.context = context.clone();
    }
}
