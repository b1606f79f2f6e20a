//! The streams and recordings of one case, and each step on them.

use std::collections::{BTreeMap, HashSet};
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::sync::Arc;
use std::thread;

use cuda_graph::cudarc::driver::sys::{self, CUresult};
use cuda_graph::cudarc::driver::{CudaContext, CudaStream, result};
use cuda_graph::{Buffer, Capture, CaptureInfo, CaptureStatus, Error, Graph, NodeId, Path, Result};

use super::recorded::{Guards, Known, Nodes, Recording, Side, fits, whole};
use super::{Act, Leaving, Step};
use crate::capture::scene::{apart, launch_add, launch_store};
use crate::fixture::{add, store, words};

const STREAMS: usize = 3;
const CELLS: usize = 1024;

/// Everything that a node waits for, directly or not.
fn ancestors(graph: &Graph, node: NodeId) -> HashSet<NodeId> {
    let edges = graph.edges().expect("it is whole");
    let mut found = HashSet::new();
    let mut left = vec![node];
    while let Some(node) = left.pop() {
        let before = edges.iter().filter(|edge| edge.to == node);
        left.extend(
            before
                .map(|edge| edge.from)
                .filter(|from| found.insert(*from)),
        );
    }
    found
}

fn left() -> Error {
    Error::other(std::io::Error::other("left"))
}

/// What operations write, and which were given to streams that ran them.
struct Operations {
    /// Operation n writes word n.
    cells: Buffer<u32>,
    /// What runs at once writes here.
    at_once: Buffer<u32>,
    ran: Known,
    /// What each operation writes.
    values: Vec<u32>,
    /// Of those recorded as nodes of their own.
    nodes: BTreeMap<usize, Nodes>,
}

impl Operations {
    fn cell(&self, operation: usize) -> Buffer<u32> {
        let cells = self.cells.slice(operation..=operation);
        cells.expect("there are enough")
    }

    /// A new operation after one of `known`, or after none: what it is, and what it stores first.
    fn next(&mut self, known: &Known, after: usize) -> (usize, u32, Option<usize>) {
        let from = known.iter().nth(after).copied();
        let operation = self.values.len();
        let own = operation as u32 * 7 + 1;
        let added = from.map_or(0, |from| self.values[from]);
        self.values.push(own.wrapping_add(added));
        (operation, own, from)
    }

    fn record(&mut self, path: &mut Path, known: &mut Known, after: usize) -> Result<usize> {
        let (operation, own, from) = self.next(known, after);
        let cell = self.cell(operation);
        let first = path.record(store(&cell, own))?.id();
        let mut last = first;
        if let Some(from) = from {
            last = path.record(add(&cell, &self.cell(from)))?.id();
        }
        self.nodes.insert(operation, Nodes { first, last, from });
        known.insert(operation);
        Ok(operation)
    }

    fn launch(&mut self, stream: &Arc<CudaStream>, known: &Known, after: usize) -> Result<usize> {
        let (operation, own, from) = self.next(known, after);
        launch_store(stream, &self.cell(operation), own)?;
        if let Some(from) = from {
            launch_add(stream, &self.cell(operation), &self.cell(from))?;
        }
        Ok(operation)
    }

    /// Launches in a stream that may be captured or not.
    fn stray(&mut self, stream: &Arc<CudaStream>) -> Result<usize> {
        let (operation, own, _) = self.next(&Known::new(), 0);
        let word = self.at_once.slice(operation..=operation);
        launch_store(stream, &word.expect("there are enough"), own)?;
        Ok(operation)
    }

    /// Runs a graph and looks at what it computes.
    fn check(&self, graph: &Graph, has: &Known, stream: &Arc<CudaStream>) {
        let cells = &self.cells;
        cells.copy_from_host(stream, &[0; CELLS]).expect("it fits");
        for (operation, Nodes { first, last, from }) in &self.nodes {
            if has.contains(operation) {
                let before = ancestors(graph, *last);
                let after = from.and_then(|from| self.nodes.get(&from));
                assert!(first == last || before.contains(first), "{operation}");
                assert!(
                    after.is_none_or(|from| before.contains(&from.last)),
                    "{operation}"
                );
            }
        }
        let mut exec = graph.instantiate().expect("it is whole");
        exec.launch(stream).expect("it runs");
        let cells = cells.to_host(stream).expect("it runs");
        for &operation in has {
            assert_eq!(
                cells[operation], self.values[operation],
                "operation {operation}"
            );
        }
    }
}

pub(super) struct World {
    pub context: Arc<CudaContext>,
    pub streams: Vec<Arc<CudaStream>>,
    check: Arc<CudaStream>,
    operations: Operations,
    recordings: Vec<Recording>,
    /// Recorded into.
    base: Graph,
    base_has: Known,
}

fn status(stream: &CudaStream) -> CaptureStatus {
    let info = CaptureInfo::of(stream).expect("any stream can be asked");
    info.status
}

/// The capture that a stream takes part in, or 0.
fn id(stream: &CudaStream) -> u64 {
    CaptureInfo::of(stream).expect("any stream can be asked").id
}

/// What calls answer that captures may forbid.
fn may_fail(result: std::result::Result<(), cuda_graph::cudarc::driver::DriverError>) {
    if let Err(error) = result {
        fits(&error.into());
    }
}

impl World {
    pub(super) fn new() -> World {
        let context = apart();
        let stream = || context.new_stream().expect("a stream can be made");
        let check = stream();
        World {
            streams: (0..STREAMS).map(|_| stream()).collect(),
            operations: Operations {
                cells: words(&check, &[0; CELLS]),
                at_once: words(&check, &[0; CELLS]),
                ran: Known::new(),
                values: Vec::new(),
                nodes: BTreeMap::new(),
            },
            recordings: Vec::new(),
            base: Graph::new(&context).expect("a graph can be made"),
            base_has: Known::new(),
            check,
            context,
        }
    }

    /// The graph that was there before is what was recorded into it.
    pub(super) fn check_base(&mut self) {
        self.operations
            .check(&self.base, &self.base_has, &self.check);
    }

    /// What was given to streams that run did run.
    pub(super) fn check_ran(&self) {
        let ran = self.operations.at_once.to_host(&self.check);
        let ran = ran.expect("it is there");
        for &operation in &self.operations.ran {
            let value = self.operations.values[operation];
            assert_eq!(ran[operation], value, "operation {operation}");
        }
    }

    /// A stream is captured if a recording holds it; others may take part.
    pub(super) fn compare(&self) {
        for recording in &self.recordings {
            let captured = status(&self.streams[recording.stream]) != CaptureStatus::None;
            assert!(captured || recording.spoilt, "it is not held");
        }
        if self.recordings.is_empty() {
            for stream in &self.streams {
                assert_eq!(status(stream), CaptureStatus::None);
            }
        }
    }

    fn take(&mut self, which: usize) -> Option<Recording> {
        let count = self.recordings.len();
        (count > 0).then(|| self.recordings.swap_remove(which % count))
    }

    pub(super) fn end_all(&mut self) {
        while let Some(recording) = self.recordings.pop() {
            self.leave(recording);
        }
    }

    /// Drops a recording.
    fn leave(&mut self, recording: Recording) {
        let into = recording.into;
        drop(recording);
        if into {
            self.check_base();
        }
    }

    /// Whether nothing spoilt it.
    fn is_intact(&self, recording: &Recording) -> bool {
        let stream = &self.streams[recording.stream];
        !recording.spoilt && status(stream) == CaptureStatus::Active
    }

    pub(super) fn step(&mut self, step: &Step) {
        if self.operations.values.len() + 10 > CELLS {
            return;
        }
        match step {
            Step::Begin { stream, into } => self.begin(stream % STREAMS, *into),
            Step::Record {
                capture,
                lane,
                after,
            } => self.record(*capture, *lane, *after),
            Step::Block {
                capture,
                lane,
                acts,
                leaving,
            } => self.block(*capture, *lane, acts, *leaving),
            Step::Split { capture, lane } => self.split(*capture, *lane),
            Step::Join { capture } => self.join(*capture),
            Step::End { capture } => self.end(*capture),
            Step::Drop { capture, panicking } => {
                let Some(recording) = self.take(*capture) else {
                    return;
                };
                let left = catch_unwind(AssertUnwindSafe(|| {
                    let recording = recording;
                    if *panicking {
                        resume_unwind(Box::new("left"));
                    }
                    self.leave(recording);
                }));
                assert_eq!(left.is_err(), *panicking);
            }
            Step::DropBranch { capture, lane } => {
                let Some(mut recording) = self.take(*capture) else {
                    return;
                };
                if let Guards::Split(_, sides) = &mut recording.guards {
                    *sides[lane % 2].leaf(lane / 2) = Side::Gone;
                }
                self.recordings.push(recording);
            }
            Step::Closure {
                stream,
                acts,
                leaving,
            } => self.closure(stream % STREAMS, acts, *leaving),
            Step::Act(act) => self.act(act),
        }
    }

    fn begin(&mut self, stream: usize, into: bool) {
        if self.recordings.len() >= 5 {
            return;
        }
        let busy = status(&self.streams[stream]) != CaptureStatus::None;
        let begun = match into {
            true => Capture::begin_into(&self.streams[stream], &self.base, ()),
            false => Capture::begin(&self.streams[stream]),
        };
        match begun {
            Ok(guard) => {
                assert!(!busy, "it was begun twice");
                self.recordings.push(Recording {
                    stream,
                    into,
                    recorded: Known::new(),
                    guards: Guards::Whole(Box::new(guard), Known::new()),
                    spoilt: false,
                });
            }
            Err(error) => {
                assert!(busy, "{error:?}");
                assert!(matches!(error, Error::AlreadyCapturing { .. }), "{error:?}");
            }
        }
    }

    fn record(&mut self, which: usize, lane: usize, after: usize) {
        let Some(mut recording) = self.take(which) else {
            return;
        };
        let intact = self.is_intact(&recording);
        if let Some((path, known)) = recording.guards.lane(lane) {
            match self.operations.record(path, known, after) {
                Ok(operation) => {
                    recording.recorded.insert(operation);
                }
                Err(error) => {
                    assert!(!intact, "{error:?}");
                    fits(&error);
                }
            }
        }
        self.recordings.push(recording);
    }

    /// What other code does outside of blocks. What it gives to a stream that is held is stray.
    fn act(&mut self, act: &Act) {
        let stream = |index: &usize| self.streams[index % STREAMS].clone();
        match act {
            Act::Launch { stream: index, .. } => {
                let stream = stream(index);
                match (status(&stream), self.operations.stray(&stream)) {
                    (CaptureStatus::None, launched) => {
                        self.operations.ran.insert(launched.expect("it runs"));
                    }
                    (CaptureStatus::Active, launched) => {
                        launched.expect("it is recorded");
                        self.is_reached(&stream);
                    }
                    (CaptureStatus::Invalidated, launched) => {
                        fits(&launched.expect_err("it is invalid"));
                    }
                }
            }
            Act::EndRaw { stream: index } => {
                let stream = stream(index);
                end_raw(&stream);
                for recording in &mut self.recordings {
                    recording.spoilt |= recording.stream == index % STREAMS;
                }
            }
            other => disturb(&self.context, &|index| stream(&index), other),
        }
    }

    /// Work reached the recording whose capture this stream takes part in.
    fn is_reached(&mut self, stream: &CudaStream) {
        for recording in &mut self.recordings {
            recording.spoilt |= id(&self.streams[recording.stream]) == id(stream);
        }
    }

    fn block(&mut self, which: usize, lane: usize, acts: &[Act], leaving: Leaving) {
        let Some(mut recording) = self.take(which) else {
            return;
        };
        let intact = self.is_intact(&recording);
        // Streams that other recordings hold: what happens to them there is stray.
        let held: HashSet<usize> = self.recordings.iter().map(|other| other.stream).collect();
        if let Some((path, known)) = recording.guards.lane(lane) {
            let mut block = Block {
                origin: recording.stream,
                id: 0,
                streams: &self.streams,
                held: &held,
                context: &self.context,
                operations: &mut self.operations,
                known: known.clone(),
                launched: Known::new(),
                reached: HashSet::new(),
                ended: HashSet::new(),
            };
            let result = catch_unwind(AssertUnwindSafe(|| block.run(path, acts, leaving)));
            let Block {
                launched,
                reached,
                ended,
                ..
            } = block;
            match result {
                Ok(Ok(true)) => {
                    assert!(intact, "it recorded what is over");
                    known.extend(&launched);
                    recording.recorded.extend(&launched);
                }
                Ok(Ok(false)) => assert!(intact),
                Ok(Err(error)) => {
                    fits(&error);
                    match error {
                        Error::Other(_) => assert_eq!(leaving, Leaving::WithAnError),
                        Error::StrayWork(_) | Error::RecordingOver => assert!(!intact, "{error:?}"),
                        _ => {}
                    }
                }
                Err(panic) => is_left(panic, leaving),
            }
            for other in &mut self.recordings {
                other.spoilt |= reached.contains(&other.stream) || ended.contains(&other.stream);
            }
            // If other code ended the block, the stream may have got into another capture since.
            let own = id(&self.streams[recording.stream]);
            let mut others = self.recordings.iter().map(|other| other.stream);
            let is_others = |at: usize| at != recording.stream && id(&self.streams[at]) == own;
            let is_lost = own == 0 || others.any(is_others);
            recording.spoilt |= !intact || ended.contains(&recording.stream) && is_lost;
        }
        self.recordings.push(recording);
    }

    fn split(&mut self, which: usize, lane: usize) {
        let Some(mut recording) = self.take(which) else {
            return;
        };
        recording.guards = match recording.guards {
            Guards::Whole(guard, known) => match guard.split() {
                Ok((joint, branches)) => {
                    Guards::Split(Box::new(joint), Side::both(branches, &known))
                }
                Err(error) => {
                    assert!(recording.into, "{error:?}");
                    assert!(matches!(error, Error::SplitAside), "{error:?}");
                    return self.check_base();
                }
            },
            Guards::Split(joint, mut sides) => {
                let leaf = sides[lane % 2].leaf(lane / 2);
                if let Side::Whole(branch, known) = std::mem::replace(leaf, Side::Gone) {
                    let (joint, branches) = branch.split().expect("it is in its own graph");
                    *leaf = Side::Split(Box::new(joint), Side::both(branches, &known));
                }
                Guards::Split(joint, sides)
            }
        };
        self.recordings.push(recording);
    }

    fn join(&mut self, which: usize) {
        let Some(mut recording) = self.take(which) else {
            return;
        };
        recording.guards = match recording.guards {
            Guards::Split(joint, mut sides) => {
                let split = |side: &&mut Side| matches!(side, Side::Split(..));
                if let Some(side) = sides.iter_mut().find(split) {
                    side.join();
                    Guards::Split(joint, sides)
                } else if let Some((branches, known)) = whole(*sides) {
                    let guard = joint.join(branches).expect("they are its own");
                    Guards::Whole(Box::new(guard), known)
                } else {
                    // A branch is gone, and the recording goes with the joint.
                    return;
                }
            }
            whole => whole,
        };
        self.recordings.push(recording);
    }

    fn end(&mut self, which: usize) {
        let Some(recording) = self.take(which) else {
            return;
        };
        let intact = self.is_intact(&recording);
        let Guards::Whole(guard, _) = recording.guards else {
            return self.recordings.push(recording);
        };
        match guard.end() {
            Ok(graph) => {
                assert!(intact, "it ended well");
                if recording.into {
                    self.base_has.extend(recording.recorded);
                } else {
                    let operations = &self.operations;
                    operations.check(&graph, &recording.recorded, &self.check);
                }
            }
            Err(error) => {
                assert!(!intact, "{error}");
                fits(&error);
                assert!(
                    matches!(
                        error,
                        Error::CaptureInvalidated(_)
                            | Error::StrayWork(_)
                            | Error::RecordingOver
                            | Error::AlreadyCapturing { .. }
                    ),
                    "{error:?}"
                );
            }
        }
        if recording.into {
            self.check_base();
        }
    }

    /// A whole recording by a closure: an operation, branches with a block in one, an operation.
    fn closure(&mut self, origin: usize, acts: &[Act], leaving: Leaving) {
        let stream = self.streams[origin].clone();
        let busy = status(&stream) != CaptureStatus::None;
        let held: HashSet<usize> = self.recordings.iter().map(|other| other.stream).collect();
        let mut reached: HashSet<usize> = HashSet::new();
        let mut ended = reached.clone();
        let mut recorded = Known::new();
        let World {
            context,
            streams,
            operations,
            ..
        } = self;
        let run = || {
            Graph::capture(&stream, |path| {
                operations.record(path, &mut recorded, 0)?;
                let mut block = Block {
                    origin,
                    id: 0,
                    streams,
                    held: &held,
                    context,
                    operations: &mut *operations,
                    known: recorded.clone(),
                    launched: Known::new(),
                    reached: HashSet::new(),
                    ended: HashSet::new(),
                };
                let result = catch_unwind(AssertUnwindSafe(|| block.run(path, acts, leaving)));
                reached.extend(&block.reached);
                ended.extend(&block.ended);
                let launched = std::mem::take(&mut block.launched);
                match result {
                    Ok(Ok(true)) => recorded.extend(launched),
                    Ok(Ok(false)) => {}
                    // An error may be swallowed: the recording goes on as before the block.
                    Ok(Err(Error::CaptureInvalidated(_))) => {}
                    Ok(Err(error)) => return Err(error),
                    Err(panic) => resume_unwind(panic),
                }
                let count = recorded.len();
                operations.record(path, &mut recorded, count - 1)?;
                Ok(())
            })
        };
        match catch_unwind(AssertUnwindSafe(run)) {
            Err(panic) => {
                is_left(panic, leaving);
                assert!(!busy);
            }
            Ok(Err(error)) if busy => {
                assert!(matches!(error, Error::AlreadyCapturing { .. }), "{error:?}");
            }
            Ok(Ok((graph, ()))) => {
                self.operations.check(&graph, &recorded, &self.check);
            }
            Ok(Err(error)) => {
                fits(&error);
                let is_left = leaving == Leaving::WithAnError && matches!(error, Error::Other(_));
                // Then the stream may have got into another capture.
                assert!(is_left || ended.contains(&origin), "{error:?}");
            }
        }
        for other in &mut self.recordings {
            other.spoilt |= reached.contains(&other.stream) || ended.contains(&other.stream);
        }
    }
}

/// A foreign block in progress.
struct Block<'a> {
    origin: usize,
    /// The block's capture.
    id: u64,
    streams: &'a [Arc<CudaStream>],
    held: &'a HashSet<usize>,
    context: &'a Arc<CudaContext>,
    operations: &'a mut Operations,
    known: Known,
    /// In the block's own stream.
    launched: Known,
    /// Streams of other recordings that were given work, and whose captures other code ended.
    reached: HashSet<usize>,
    ended: HashSet<usize>,
}

impl Block<'_> {
    /// Says whether what was launched was recorded.
    fn run(&mut self, path: &mut Path, acts: &[Act], leaving: Leaving) -> Result<bool> {
        let Leaving::ByGuard { ended } = leaving else {
            // SAFETY: the buffers outlive the graphs.
            return unsafe {
                path.foreign(|stream| {
                    assert_eq!(stream.cu_stream(), self.streams[self.origin].cu_stream());
                    self.work(acts);
                    match leaving {
                        Leaving::WithAnError => Err(left()),
                        Leaving::WithAPanic => resume_unwind(Box::new("left")),
                        _ => Ok(true),
                    }
                })
            };
        };
        // SAFETY: the buffers outlive the graphs.
        let block = unsafe { path.begin_foreign() }?;
        self.work(acts);
        match ended {
            true => block.end().map(|()| true),
            false => {
                drop(block);
                Ok(false)
            }
        }
    }

    fn work(&mut self, acts: &[Act]) {
        let origin = self.origin;
        self.id = id(&self.streams[origin]);
        let index = |number: usize| (number + origin) % STREAMS;
        for act in acts {
            match act {
                Act::Launch { stream, after } => self.launch(index(*stream), *after),
                Act::EndRaw { stream } => {
                    let stream = index(*stream);
                    end_raw(&self.streams[stream]);
                    self.ended.insert(stream);
                }
                Act::Order { first, then } => {
                    let (first, then) = (index(*first), index(*then));
                    order(self.context, &self.streams[first], &self.streams[then]);
                }
                act => disturb(self.context, &|at| self.streams[index(at)].clone(), act),
            }
        }
    }

    fn launch(&mut self, index: usize, after: usize) {
        let stream = &self.streams[index];
        let before = status(stream);
        // A fork's place among the others is not modelled: it comes after nothing.
        let own = index == self.origin && id(stream) == self.id;
        let launched = match own {
            true => self.operations.launch(stream, &self.known, after),
            false => self.operations.stray(stream),
        };
        match (launched, before) {
            (Ok(operation), CaptureStatus::None) => {
                self.operations.ran.insert(operation);
            }
            (Ok(operation), _) if own => {
                self.known.insert(operation);
                self.launched.insert(operation);
            }
            (Ok(_), _) => self.is_reached(index),
            (Err(error), before) => {
                assert_eq!(before, CaptureStatus::Invalidated, "{error:?}");
                fits(&error);
            }
        }
    }

    /// Work reached the recording that holds the capture which this stream takes part in, if it is
    /// not the block's.
    fn is_reached(&mut self, index: usize) {
        let reached = id(&self.streams[index]);
        let held = self
            .held
            .iter()
            .filter(|held| id(&self.streams[**held]) == reached);
        self.reached.extend(held);
    }
}

/// A panic that is part of the case, and no assertion's.
fn is_left(panic: Box<dyn std::any::Any + Send>, leaving: Leaving) {
    if panic.downcast_ref::<&str>() != Some(&"left") {
        resume_unwind(panic);
    }
    assert_eq!(leaving, Leaving::WithAPanic);
}

/// Has a stream wait for another, by an event.
fn order(context: &Arc<CudaContext>, first: &CudaStream, then: &CudaStream) {
    let event = context.new_event(None).expect("an event can be made");
    may_fail(event.record(first).and_then(|()| then.wait(&event)));
}

fn end_raw(stream: &CudaStream) {
    let mut graph = std::ptr::null_mut();
    // SAFETY: the stream is alive. The graph is left to nobody.
    let answer = unsafe { sys::cuStreamEndCapture(stream.cu_stream(), &mut graph) };
    let fits = (900..=908).contains(&(answer as u32))
        || [
            CUresult::CUDA_SUCCESS,
            CUresult::CUDA_ERROR_ILLEGAL_STATE,
            CUresult::CUDA_ERROR_INVALID_VALUE,
        ]
        .contains(&answer);
    assert!(fits, "{answer:?}");
}

/// What gives no work to a stream, and may invalidate captures.
fn disturb(context: &Arc<CudaContext>, stream: &dyn Fn(usize) -> Arc<CudaStream>, act: &Act) {
    match act {
        Act::Order { first, then } => order(context, &stream(*first), &stream(*then)),
        Act::Synchronize {
            stream: index,
            elsewhere,
        } => {
            let stream = stream(*index);
            let wait = move || stream.synchronize();
            may_fail(match elsewhere {
                true => thread::spawn(wait).join().expect("it does not panic"),
                false => wait(),
            });
        }
        Act::Query { stream: index } => {
            // SAFETY: the stream is alive.
            let answer = unsafe { sys::cuStreamQuery(stream(*index).cu_stream()) };
            let fine = [CUresult::CUDA_SUCCESS, CUresult::CUDA_ERROR_NOT_READY].contains(&answer);
            assert!(fine || (900..=908).contains(&(answer as u32)), "{answer:?}");
        }
        Act::Allocate { elsewhere } => {
            let context = context.clone();
            let allocate = move || {
                context.bind_to_thread()?;
                // SAFETY: it is freed at once.
                unsafe { result::free_sync(result::malloc_sync(64)?) }
            };
            match elsewhere {
                true => {
                    let allocated = thread::spawn(allocate).join().expect("it does not panic");
                    assert!(allocated.is_ok(), "{allocated:?}");
                }
                false => may_fail(allocate()),
            }
        }
        Act::Launch { .. } | Act::EndRaw { .. } => unreachable!("done by the caller"),
    }
}
