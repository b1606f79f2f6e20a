//! The recorder that walks a step beside an executable.
//!
//! While the step records what the executable's script says, only what differs is noted. When it
//! leaves the script, another executable of the same section is gone on with, or what was recorded
//! so far is kept as values. Nothing is changed or launched before a section is whole, so a step
//! that fails or panics leaves everything as it was.

use std::panic::Location;
use std::sync::Arc;

use cudarc::driver::{CudaContext, CudaStream};

use super::bound::Made;
use super::core::{Core, LastCall};
use super::script::{Captured, Driven, FlowItem, Traced, View};
use super::shape::Fit;
use crate::graph::state::check;
use crate::graph::{AnyOp, Checkpoints, Graph, NodeId, need_conditional};
use crate::op::{EmptyOp, Expectation, Expected, Op, Tag};
use crate::record::{Body, Checkpoint, Control, Flow, Foreign, Make, Recorder, Records};
use crate::{Error, Owner, Result};

/// After so many changes, and whenever there are eight times as many, other executables are looked
/// at: one of them may have been left with these arguments.
const FIRST_LOOK: usize = 4;

pub(super) struct Walk<'a> {
    core: &'a mut Core,
    stream: &'a Arc<CudaStream>,
    /// The section of the step, counted from 0.
    section: usize,
    /// The executable that is walked beside, by its place in the section. None while what is
    /// recorded is kept as values.
    beside: Option<usize>,
    /// How many of its items were walked.
    at: usize,
    /// The operation of the next item.
    expected: Expected,
    /// How many changes there are when other executables are looked at.
    next_look: usize,
    /// How many loops, branches and parallel parts are open.
    depth: usize,
    /// How many of those are loops or branches.
    in_bodies: usize,
    /// The host drove a part.
    driven: bool,
    /// How many parts around are driven by the host.
    driving: usize,
    /// How often something was recorded that only the host can do in a body.
    needs_host: u64,
    /// An open part is to be driven by the host.
    wants_host: bool,
    /// The device lacks what the step needs.
    pub unsupported: Option<Error>,
    /// Something was launched, or the host was in a section of its own.
    pub launched: bool,
    /// A section could not be run.
    is_lost: bool,
    /// How many parallel parts are open.
    in_branches: usize,
    /// The step stopped at this checkpoint: the rest is passed over.
    pub stopped: Option<Arc<str>>,
    /// The checkpoints of the last executable.
    pub checkpoints: Option<Checkpoints>,
    /// A checkpoint was recorded in this section, or before in the body.
    behind_checkpoint: bool,
}

impl<'a> Walk<'a> {
    pub(super) fn new(core: &'a mut Core, stream: &'a Arc<CudaStream>) -> Walk<'a> {
        let mut walk = Walk {
            core,
            stream,
            section: 0,
            beside: None,
            at: 0,
            expected: Expected::nothing(),
            next_look: FIRST_LOOK,
            depth: 0,
            in_bodies: 0,
            driven: false,
            driving: 0,
            needs_host: 0,
            wants_host: false,
            unsupported: None,
            launched: false,
            is_lost: false,
            in_branches: 0,
            stopped: None,
            checkpoints: None,
            behind_checkpoint: false,
        };
        walk.core.begin();
        walk.begin_section();
        walk
    }

    /// The step is over.
    pub(super) fn finish(&mut self) -> Result<()> {
        if let Some(error) = self.unsupported.take() {
            return Err(error);
        }
        self.flush(None, true)?;
        self.core.last_call = match (self.section, self.driven) {
            (1, false) => self.core.first_section(),
            _ => LastCall::InSections,
        };
        Ok(())
    }

    fn begin_section(&mut self) {
        self.beside = self.core.expected(self.section);
        self.at = 0;
        self.next_look = FIRST_LOOK;
        self.behind_checkpoint = false;
        self.expect();
    }

    /// How many items were recorded in this section.
    fn recorded(&self) -> usize {
        match self.beside {
            Some(_) => self.at,
            None => self.core.script.len(),
        }
    }

    /// Expects what the script says next.
    #[inline]
    fn expect(&mut self) {
        let next = self.beside.and_then(|beside| {
            let (_, op) = self.core.shape(self.section, beside).op(self.at)?;
            Some(expectation(op))
        });
        let next = next.unwrap_or(Expectation::Nothing);
        // SAFETY: executables are changed and dropped by `flush` alone, which expects nothing.
        unsafe { self.expected.set(next) };
    }

    /// Forgets the items from `start` on.
    fn back_to(&mut self, start: usize) {
        match self.beside {
            Some(_) => {
                self.at = start;
                self.core.changes.truncate(start);
            }
            None => self.core.script.truncate(start),
        }
        let made = &mut self.core.made;
        made.truncate(made.partition_point(|made| (made.item as usize) < start));
        self.expect();
    }

    /// Records an item.
    fn add(&mut self, new: Traced) -> Result<()> {
        while let Some(beside) = self.beside {
            let shape = self.core.shape(self.section, beside);
            match shape.fit(self.at, new.view()) {
                Fit::Same => {}
                Fit::Changed => self.core.note(self.section, beside, self.at, new),
                Fit::Other => {
                    self.turn_aside(new.view());
                    continue;
                }
            }
            self.at += 1;
            if self.core.changes.len() >= self.next_look {
                self.look_around();
            }
            self.expect();
            return Ok(());
        }
        self.expect();
        self.core.script.push(new);
        Ok(())
    }

    /// The step goes another way than the script: goes on with another executable, or without one.
    #[cold]
    fn turn_aside(&mut self, new: View<'_>) {
        let Some(beside) = self.beside else { return };
        let found = self.core.closest(self.section, beside, self.at, new);
        if found.is_none() {
            let shape = self.core.shape(self.section, beside);
            tracing::debug!(
                item = self.at,
                was = shape.view(self.at).name(),
                is = new.name(),
                "a step goes another way than before"
            );
        }
        self.core.take_out(self.section, beside, self.at);
        self.beside = found;
        if let Some(found) = found {
            self.core.put_in(self.section, found);
        }
    }

    /// Goes on with another executable if that differs in fewer items.
    #[cold]
    fn look_around(&mut self) {
        self.next_look = self.core.changes.len().saturating_mul(8);
        let Some(beside) = self.beside else { return };
        if let Some(found) = self.core.closer(self.section, beside, self.at) {
            self.core.take_out(self.section, beside, self.at);
            self.core.put_in(self.section, found);
            self.beside = Some(found);
        }
    }

    /// The section is whole: finds or makes its executable, and launches it.
    /// After an error there, what the step goes on with has nothing to go on from.
    fn flush(&mut self, before: Option<Driven>, is_last: bool) -> Result<()> {
        if self.is_lost {
            return Err(Error::RecordingOver);
        }
        let flushed = self.flush_section(before, is_last);
        if flushed.is_err() {
            self.is_lost = true;
            self.beside = None;
            self.core.begin();
        }
        flushed
    }

    fn flush_section(&mut self, before: Option<Driven>, is_last: bool) -> Result<()> {
        if self.depth > 0 {
            // A panic left a body and was caught.
            return Err(Error::RecordingOver);
        }
        // SAFETY: nothing is expected.
        unsafe { self.expected.set(Expectation::Nothing) };
        if let Some(beside) = self.beside
            && self.at < self.core.shape(self.section, beside).len()
        {
            self.turn_aside(View::Over);
        }
        let used = match self.beside {
            Some(beside) => Some(self.core.settle(self.section, beside, self.stream)?),
            None if self.core.script.is_empty() => None,
            None => Some(self.core.settle_script(self.section, self.stream)?),
        };
        self.checkpoints = None;
        if let Some(used) = used {
            self.launched = true;
            self.core.take_made(self.section, used);
            self.core.launch(self.section, used, self.stream)?;
            let checkpoints = &self.core.shape(self.section, used).checkpoints;
            if checkpoints.is_some() {
                self.checkpoints = checkpoints.clone();
            }
        }
        // Otherwise it is told when it is asked.
        if !is_last && let Some(checkpoints) = self.checkpoints.take() {
            self.stopped = self.core.stopped(&checkpoints, self.stream)?;
        }
        self.core.note_use(self.section, used, before);
        self.section += 1;
        self.begin_section();
        Ok(())
    }

    /// Whether the host drove this part when the step came here before.
    fn is_driven(&self, part: Driven) -> bool {
        self.core
            .is_driven(self.section, self.beside, self.at, part)
    }

    /// Runs parallel branches one after the other, because no graph holds them.
    fn drive_branches(&mut self, branches: &mut [&mut Body<'_>]) -> Result<()> {
        self.drive(Driven::Branches(branches.len()), |walk| {
            walk.in_branches += 1;
            let ran = branches.iter_mut().try_for_each(|branch| branch(walk));
            walk.in_branches -= 1;
            ran.map(|()| true)
        })
    }

    /// Runs a part that no graph holds. `run` says whether it called any of its closures.
    fn drive(&mut self, part: Driven, run: impl FnOnce(&mut Self) -> Result<bool>) -> Result<()> {
        let (before, needed) = (self.section, self.needs_host);
        self.flush(Some(part), false)?;
        self.core.counters.host_driven += 1;
        self.driven = true;
        self.driving += 1;
        let ran = run(self);
        self.driving -= 1;
        if ran? && self.needs_host == needed {
            self.core.drive_no_more(before);
        }
        Ok(())
    }

    /// Runs a loop or branch that no graph holds.
    fn drive_flow(&mut self, flow: &Flow, bodies: &mut [&mut Body<'_>]) -> Result<()> {
        self.drive(Driven::Flow(flow.location), |walk| {
            walk.run_flow(flow, bodies)
        })
    }

    /// As [`Eager`](crate::Eager) does. Returns whether a body ran.
    fn run_flow(&mut self, flow: &Flow, bodies: &mut [&mut Body<'_>]) -> Result<bool> {
        let first = self.section;
        let (mut last, mut ran) = (first, false);
        let mut run = |walk: &mut Self, body: &mut Body<'_>| {
            // Each iteration goes on with the executables of the one before.
            walk.section = first;
            walk.begin_section();
            ran = true;
            body(walk)?;
            walk.flush(None, false)?;
            last = last.max(walk.section);
            Ok::<(), Error>(())
        };
        let flag = &flow.flag;
        match flow.control {
            // The section before stopped at a checkpoint.
            _ if self.stopped.is_some() => {}
            Control::While => {
                while self.stopped.is_none() && self.core.read(flag, self.stream)? != 0 {
                    run(self, bodies[0])?;
                }
            }
            Control::DoWhile => loop {
                run(self, bodies[0])?;
                if self.stopped.is_some() || self.core.read(flag, self.stream)? == 0 {
                    break;
                }
            },
            Control::Checkpoint | Control::Unstopped => return Err(Error::CheckpointHere),
            Control::If | Control::IfElse | Control::Switch => {
                let flag = self.core.read(flag, self.stream)?;
                let case = match flow.control {
                    Control::Switch => flag as usize,
                    _ => usize::from(flag == 0),
                };
                if let Some(body) = bodies.get_mut(case) {
                    run(self, body)?;
                }
            }
        }
        self.section = last;
        self.begin_section();
        Ok(ran)
    }

    /// Records bodies or branches, with what separates them.
    fn each_body(&mut self, bodies: &mut [&mut Body<'_>]) -> Result<()> {
        let count = bodies.len();
        for (index, body) in bodies.iter_mut().enumerate() {
            let recorded = body(self);
            if recorded.is_err() || self.wants_host {
                return recorded;
            }
            if index + 1 < count {
                self.add(Traced::Next)?;
            }
        }
        self.add(Traced::End)
    }

    /// Refuses what a node of a graph cannot be.
    fn check(&self, op: &AnyOp) -> Result<()> {
        if op.condition_of().is_some() {
            return Err(Error::ConditionOutsideGraph);
        }
        check(0, op, || self.in_bodies > 0 || self.behind_checkpoint)
    }

    fn put_new(&mut self, op: AnyOp) -> Result<()> {
        if let Err(error) = self.check(&op) {
            // The host drives what no body holds.
            self.wants_host |= self.in_bodies > 0 && matches!(error, Error::NotInBody { .. });
            return Err(error);
        }
        if self.driving > 0 && !op.fits_in_body() {
            self.needs_host += 1;
        }
        let AnyOp::Child(child) = &op else {
            return self.add(Traced::Op(op));
        };
        let captured = Captured::of(child)?;
        if self.in_bodies > 0 || self.behind_checkpoint {
            captured.graph.hierarchy().lock().check_for_body(0)?;
        }
        self.add_captured(captured)
    }

    fn add_captured(&mut self, captured: Captured) -> Result<()> {
        let communicators = captured.graph.hierarchy().look().communicators(0);
        communicators
            .iter()
            .for_each(|it| self.core.takes_part_in(it));
        self.add(Traced::Captured(captured))
    }
}

impl Drop for Walk<'_> {
    fn drop(&mut self) {
        // Of a step that failed.
        self.core.changes.clear();
        self.core.script.clear();
        self.core.made.clear();
        self.core.resumes = false;
    }
}

impl Recorder for Walk<'_> {
    fn context(&self) -> &Arc<CudaContext> {
        self.stream.context()
    }

    fn has_stream(&self) -> bool {
        true
    }

    fn keep(&mut self, owner: Owner) -> Result<()> {
        if self.stopped.is_some() {
            return Ok(());
        }
        self.add(Traced::Keep(owner))
    }
}

impl Records for Walk<'_> {
    fn put(&mut self, op: AnyOp) -> Result<Option<NodeId>> {
        if self.stopped.is_some() {
            return Ok(None);
        }
        self.core.counters.compared += 1;
        if let AnyOp::Collective(collective) = &op {
            self.core.takes_part_in(collective.communicator());
        }
        let op = match &op {
            // It may have been made when its parameters had other values.
            AnyOp::Kernel(kernel) if !kernel.arguments().used().is_empty() => {
                kernel.with_values_of_now()?.map_or(op, AnyOp::Kernel)
            }
            _ => op,
        };
        if self.expected.is(expectation(&op)) {
            if self.driving > 0 && !op.fits_in_body() {
                self.needs_host += 1;
            }
            self.at += 1;
            self.expect();
            return Ok(None);
        }
        if let Some(beside) = self.beside
            && let Some((_, now)) = self.core.shape(self.section, beside).op(self.at)
            && op.is_same_as(now)
        {
            if self.driving > 0 && !op.fits_in_body() {
                self.needs_host += 1;
            }
            self.at += 1;
            self.expect();
            return Ok(None);
        }
        self.put_new(or_nothing(op))?;
        Ok(None)
    }

    fn put_made(&mut self, make: Arc<Make>) -> Result<()> {
        if self.stopped.is_some() {
            return Ok(());
        }
        let (made, op) = Made::new(self.recorded(), make)?;
        self.core.made.push(made);
        self.put(op)
            .map(drop)
            .inspect_err(|_| drop(self.core.made.pop()))
    }

    fn put_branches(&mut self, branches: &mut [&mut Body<'_>]) -> Result<()> {
        if branches.is_empty() || self.stopped.is_some() {
            return Ok(());
        }
        let part = Driven::Branches(branches.len());
        if self.depth == 0 && self.is_driven(part) {
            return self.drive_branches(branches);
        }
        let start = self.recorded();
        self.add(Traced::Fork(branches.len()))?;
        self.depth += 1;
        self.in_branches += 1;
        let mut recorded = Ok(());
        let count = branches.len();
        for (index, branch) in branches.iter_mut().enumerate() {
            if recorded.is_ok() && !self.wants_host {
                recorded = branch(self);
            }
            // What the branches before recorded is waited for all the same.
            if index + 1 < count {
                self.add(Traced::Next)?;
            }
        }
        self.add(Traced::End)?;
        self.depth -= 1;
        self.in_branches -= 1;
        if !self.wants_host {
            return recorded;
        }
        if self.depth > 0 {
            return recorded.and(Err(Error::OutsideGraph));
        }
        self.wants_host = false;
        self.back_to(start);
        self.drive_branches(branches)
    }

    fn put_flow(&mut self, flow: Flow, bodies: &mut [&mut Body<'_>]) -> Result<Option<NodeId>> {
        if self.stopped.is_some() {
            return Ok(None);
        }
        if self.depth == 0 && self.is_driven(Driven::Flow(flow.location)) {
            self.drive_flow(&flow, bodies)?;
            return Ok(None);
        }
        if let Err(error) = need_conditional(flow.control.kind(), bodies.len() as u32) {
            if !self.launched {
                // The whole step runs eagerly.
                self.unsupported = Some(error.clone());
                return Err(error);
            }
            if self.depth > 0 {
                self.wants_host = true;
                return Err(error);
            }
            self.drive_flow(&flow, bodies)?;
            return Ok(None);
        }
        let start = self.recorded();
        self.add(Traced::Flow(FlowItem {
            control: flow.control,
            bodies: bodies.len(),
            name: None,
            flag: flow.flag.clone(),
            param: flow.param.clone(),
            location: flow.location,
        }))?;
        let behind = self.behind_checkpoint;
        self.depth += 1;
        self.in_bodies += 1;
        let recorded = self.each_body(bodies);
        self.depth -= 1;
        self.in_bodies -= 1;
        if self.wants_host {
            if self.depth > 0 {
                return recorded.and(Err(Error::OutsideGraph));
            }
            self.wants_host = false;
            self.back_to(start);
            self.drive_flow(&flow, bodies)?;
            return Ok(None);
        }
        if recorded.is_err() {
            // Nothing of it is recorded.
            self.back_to(start);
            self.behind_checkpoint = behind;
        }
        recorded.map(|()| None)
    }

    fn put_checkpoint(&mut self, checkpoint: Checkpoint) -> Result<Option<u32>> {
        if self.in_branches > 0 {
            return Err(Error::CheckpointHere);
        }
        if self.stopped.is_some() {
            return Ok(None);
        }
        if let Err(error) = need_conditional(Control::Checkpoint.kind(), 1) {
            if !self.launched {
                self.unsupported = Some(error.clone());
                return Err(error);
            }
            // Parts around, if there are any, are driven by the host, as this is.
            self.needs_host += 1;
            self.driven = true;
            self.flush(None, false)?;
            if self.stopped.is_none() && self.core.read(&checkpoint.flag, self.stream)? != 0 {
                self.stopped = Some(checkpoint.name);
            }
            return Ok(None);
        }
        // What comes next goes into a body.
        self.behind_checkpoint = true;
        self.add(Traced::Flow(FlowItem {
            control: Control::Checkpoint,
            bodies: 0,
            name: Some(checkpoint.name),
            flag: checkpoint.flag,
            param: checkpoint.param,
            location: checkpoint.location,
        }))?;
        Ok(None)
    }

    fn begin_resume(&mut self) {
        self.core.resumes = true;
    }

    fn skip_foreign(
        &mut self,
        location: &'static Location<'static>,
        work: &mut Foreign<'_>,
    ) -> Result<()> {
        Graph::capture(self.stream, |path| path.put_foreign(location, work)).map(drop)
    }

    fn put_foreign(
        &mut self,
        location: &'static Location<'static>,
        work: &mut Foreign<'_>,
    ) -> Result<()> {
        let (graph, ()) = Graph::capture(self.stream, |path| path.put_foreign(location, work))?;
        if self.stopped.is_some() || graph.nodes()?.is_empty() {
            return Ok(());
        }
        if self.in_bodies > 0 || self.behind_checkpoint {
            graph.hierarchy().lock().check_for_body(0)?;
        }
        let tag = Tag::at(location);
        self.add_captured(Captured::new(graph, tag)?)
    }

    fn put_captured(&mut self, graph: Graph, tag: Tag) -> Result<Option<NodeId>> {
        if self.stopped.is_none() {
            self.add_captured(Captured::new(graph, tag)?)?;
        }
        Ok(None)
    }

    fn put_outside(&mut self, work: &mut Foreign<'_>) -> Result<()> {
        if self.depth > 0 {
            self.wants_host = true;
            return Err(Error::OutsideGraph);
        }
        self.needs_host += 1;
        self.flush(None, false)?;
        self.launched = true;
        match self.stopped.is_some() {
            true => Ok(()),
            false => work(self.stream),
        }
    }
}

/// The operation, or one that does nothing: the driver refuses nodes that copy or fill nothing.
pub(super) fn or_nothing(op: AnyOp) -> AnyOp {
    if !is_nothing(&op) {
        return op;
    }
    let mut empty = EmptyOp::new();
    *empty.tag_mut() = op.tag().clone();
    empty.into()
}

/// Whether an operation copies or fills nothing.
fn is_nothing(op: &AnyOp) -> bool {
    match op {
        AnyOp::Copy(copy) => copy.bytes() == 0,
        AnyOp::Fill(fill) => fill.size().0 == 0 || fill.size().1 == 0,
        _ => false,
    }
}

/// What is to be expected where `op` was recorded before.
#[inline]
fn expectation(op: &AnyOp) -> Expectation<'_> {
    match op {
        AnyOp::Kernel(op) => Expectation::Kernel(op),
        AnyOp::Copy(op) => Expectation::Copy(op),
        AnyOp::Fill(op) => Expectation::Fill(op),
        _ => Expectation::Nothing,
    }
}
