//! The streams, captures and guards of one case, and each step on them.

use std::collections::{BTreeMap, HashSet};
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::sync::Arc;
use std::thread;

use cuda_graph::cudarc::driver::sys::{self, CUresult};
use cuda_graph::cudarc::driver::{CudaContext, CudaFunction, CudaStream, PushKernelArg, result};
use cuda_graph::{
    Buffer, Capture, CaptureInfo, CaptureStatus, Error, Graph, Kind, Mode, NodeId, Result,
};

use super::held::{Guards, Held, Known, Line, Side, SideGuards, Told, fits, whole};
use super::{Leaving, Step};
use crate::capture::scene::apart;
use crate::fixture::{add, function, one, store, words};

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

pub(super) struct World {
    pub context: Arc<CudaContext>,
    pub lines: Vec<Line>,
    pub check: Arc<CudaStream>,
    pub store: CudaFunction,
    pub add: CudaFunction,
    /// Operation n writes word n.
    pub cells: Buffer<u32>,
    /// What runs at once writes here.
    pub at_once: Buffer<u32>,
    pub ran: Known,
    /// What each operation writes.
    pub values: Vec<u32>,
    /// For operations recorded by guards, the first node, the last, and the operation that they come after.
    pub nodes: BTreeMap<usize, (NodeId, NodeId, Option<usize>)>,
    pub captures: Vec<Told>,
    pub held: Vec<Held>,
    /// Streams of branches.
    pub branches: Vec<Arc<CudaStream>>,
    /// Captured into.
    pub base: Option<Graph>,
    pub base_has: Known,
}

impl World {
    pub(super) fn new() -> World {
        let context = apart();
        let stream = || context.new_stream().expect("a stream can be made");
        let check = stream();
        let lines = (0..STREAMS).map(|_| Line {
            stream: stream(),
            capture: None,
            known: Known::new(),
        });
        World {
            lines: lines.collect(),
            store: function("store"),
            add: function("add"),
            cells: words(&check, &[0; CELLS]),
            at_once: words(&check, &[0; CELLS]),
            ran: Known::new(),
            values: Vec::new(),
            nodes: BTreeMap::new(),
            captures: Vec::new(),
            held: Vec::new(),
            branches: Vec::new(),
            base: Some(Graph::new(&context).expect("a graph can be made")),
            base_has: Known::new(),
            check,
            context,
        }
    }

    pub(super) fn cell(&self, operation: usize) -> Buffer<u32> {
        self.cells
            .slice(operation..=operation)
            .expect("there are enough")
    }

    /// A new operation after one of `known`, or after none: what it is, and what it adds.
    pub(super) fn operation(&mut self, known: &Known, after: usize) -> (usize, u32, Option<usize>) {
        let from = known.iter().nth(after).copied();
        let operation = self.values.len();
        let own = operation as u32 * 7 + 1;
        let added = from.map_or(0, |from| self.values[from]);
        self.values.push(own.wrapping_add(added));
        (operation, own, from)
    }

    /// Records an operation by a guard.
    pub(super) fn record<K: Kind, M: Mode>(
        &mut self,
        guard: &mut Capture<K, M>,
        known: &mut Known,
        after: usize,
    ) -> Result<usize> {
        let (operation, own, from) = self.operation(known, after);
        let cell = self.cell(operation);
        let first = guard.record(store(&cell, own))?.id();
        let mut last = first;
        if let Some(from) = from {
            last = guard.record(add(&cell, &self.cell(from)))?.id();
        }
        self.nodes.insert(operation, (first, last, from));
        known.insert(operation);
        Ok(operation)
    }

    /// Gives a stream an operation as other code does.
    pub(super) fn launch(
        &mut self,
        stream: &CudaStream,
        known: &mut Known,
        after: usize,
        captured: bool,
    ) -> Result<usize> {
        let (operation, own, from) = match captured {
            true => self.operation(known, after),
            false => self.operation(&Known::new(), 0),
        };
        let to = match captured {
            true => self.cell(operation).address(),
            false => self.at_once.address() + 4 * operation as u64,
        };
        let mut launch = stream.launch_builder(&self.store);
        launch.arg(&to).arg(&own);
        // SAFETY: `store` writes one word, which the buffers have and outlive the graphs with.
        unsafe { launch.launch(one()) }?;
        if let Some(from) = from {
            let from = self.cell(from).address();
            let mut launch = stream.launch_builder(&self.add);
            launch.arg(&to).arg(&from);
            // SAFETY: `add` reads and writes one word of each, as above.
            unsafe { launch.launch(one()) }?;
        }
        known.insert(operation);
        Ok(operation)
    }

    pub(super) fn status(&self, line: usize) -> CaptureStatus {
        CaptureInfo::of(&self.lines[line].stream)
            .expect("any stream can be asked")
            .status
    }

    /// Runs a graph in another thread, where this one's captures forbid nothing, and looks at what it computes.
    pub(super) fn check(&self, graph: Graph, has: &Known) -> Graph {
        let World {
            cells: all,
            check: stream,
            values,
            nodes,
            ..
        } = self;
        let run = move || {
            let graph = graph;
            all.copy_from_host(stream, &[0; CELLS]).expect("it fits");
            for (operation, (first, last, from)) in nodes {
                if has.contains(operation) {
                    let before = ancestors(&graph, *last);
                    let after = from.and_then(|from| nodes.get(&from));
                    assert!(first == last || before.contains(first), "{operation}");
                    assert!(
                        after.is_none_or(|(_, from, _)| before.contains(from)),
                        "{operation}"
                    );
                }
            }
            let mut exec = graph.instantiate().expect("it is whole");
            exec.launch(stream).expect("it runs");
            let cells = all.to_host(stream).expect("it runs");
            for &operation in has {
                assert_eq!(cells[operation], values[operation], "operation {operation}");
            }
            graph
        };
        thread::scope(|scope| scope.spawn(run).join()).unwrap_or_else(|panic| resume_unwind(panic))
    }

    /// A capture into the graph that was there before is over.
    pub(super) fn check_base(&mut self) {
        let base = self.base.take().expect("it is here between steps");
        self.base = Some(self.check(base, &self.base_has));
    }

    pub(super) fn is_over(&mut self, capture: usize) {
        self.captures[capture].over = true;
        for line in self
            .lines
            .iter_mut()
            .filter(|line| line.capture == Some(capture))
        {
            line.capture = None;
            line.known.clear();
        }
    }

    /// The driver's view of each stream is the model's.
    pub(super) fn compare(&self) {
        for (index, line) in self.lines.iter().enumerate() {
            let captured = self.status(index) != CaptureStatus::None;
            assert_eq!(captured, line.capture.is_some(), "stream {index}");
        }
    }

    pub(super) fn begin(&mut self, stream: usize, into: bool) {
        if self.held.len() >= 5 {
            return;
        }
        let line = &self.lines[stream];
        let busy = line.capture.is_some();
        let taken = into
            && self
                .held
                .iter()
                .any(|held| self.captures[held.capture].into);
        let begun = match (&self.base, into) {
            (Some(base), true) => Capture::begin_into(&line.stream, base, ()),
            _ => Capture::begin(&line.stream),
        };
        match begun {
            Ok(guard) => {
                assert!(!busy && !taken, "it was begun twice");
                let capture = self.captures.len();
                self.captures.push(Told {
                    origin: stream,
                    recorded: Known::new(),
                    into,
                    over: false,
                });
                self.held.push(Held {
                    capture,
                    guards: Guards::Whole(guard),
                });
                self.lines[stream].capture = Some(capture);
                self.lines[stream].known.clear();
            }
            Err(error) => {
                assert!(busy || taken, "{error:?}");
                assert!(
                    !busy || matches!(error, Error::AlreadyCapturing { .. }),
                    "{error:?}"
                );
                fits(&error);
            }
        }
    }

    /// Does something with a branch that is not split.
    pub(super) fn in_branch(
        &mut self,
        capture: usize,
        lane: usize,
        act: impl FnOnce(&mut World, &mut Side, bool) -> Option<usize>,
    ) {
        let Some(mut held) = self.take(capture) else {
            return;
        };
        let over = self.captures[held.capture].over;
        if let Guards::Split(_, sides) = &mut held.guards {
            let leaf = sides[lane % 2].leaf(lane / 2);
            if let Some(operation) = act(self, leaf, over) {
                self.captures[held.capture].recorded.insert(operation);
            }
        }
        self.held.push(held);
    }

    pub(super) fn take(&mut self, capture: usize) -> Option<Held> {
        match self.held.len() {
            0 => None,
            count => Some(self.held.remove(capture % count)),
        }
    }

    pub(super) fn step(&mut self, step: &Step) {
        match *step {
            Step::Begin { stream, into } => self.begin(stream % STREAMS, into),
            Step::Record {
                capture,
                lane,
                after,
            } => self.recording(capture, lane, after),
            Step::Launch { stream, after } => {
                let line = stream % STREAMS;
                let (stream, capture) = (self.lines[line].stream.clone(), self.lines[line].capture);
                let mut known = std::mem::take(&mut self.lines[line].known);
                let intact = self.status(line) != CaptureStatus::Invalidated;
                let launched = self.launch(&stream, &mut known, after, capture.is_some());
                self.lines[line].known = known;
                match (launched, capture) {
                    (Ok(operation), Some(capture)) => {
                        self.captures[capture].recorded.insert(operation);
                    }
                    (Ok(operation), None) => {
                        self.lines[line].known.clear();
                        self.ran.insert(operation);
                    }
                    (Err(error), _) => {
                        assert!(!intact, "{error:?}");
                        fits(&error);
                    }
                }
            }
            Step::LaunchInBranch {
                capture,
                lane,
                after,
            } => {
                self.in_branch(capture, lane, |world, side, over| {
                    let SideGuards::Whole(branch) = &side.guards else {
                        return None;
                    };
                    if over || !branch.is_active() {
                        return None;
                    }
                    let stream = branch.stream().clone();
                    let launched = world.launch(&stream, &mut side.known, after, true);
                    Some(launched.expect("the branch is intact"))
                });
            }
            Step::Order { first, then } => self.order(first % STREAMS, then % STREAMS),
            Step::Split { capture, lane } => self.split(capture, lane),
            Step::Join { capture } => self.join(capture),
            Step::End { capture } => self.end(capture),
            Step::Drop { capture, panicking } => {
                let Some(held) = self.take(capture) else {
                    return;
                };
                let capture = held.capture;
                let left = catch_unwind(AssertUnwindSafe(|| {
                    let _held = held;
                    if panicking {
                        resume_unwind(Box::new("left"));
                    }
                }));
                assert_eq!(left.is_err(), panicking);
                self.was_left(capture);
            }
            Step::DropBranch { capture, lane } => {
                self.in_branch(capture, lane, |_, side, _| {
                    side.guards = SideGuards::Gone;
                    None
                });
            }
            Step::Closure { stream, leaving } => self.closure(stream % STREAMS, leaving),
            Step::Synchronize { stream, elsewhere } => {
                let stream = self.lines[stream % STREAMS].stream.clone();
                let wait = move || stream.synchronize();
                let waited = match elsewhere {
                    true => thread::spawn(wait).join().expect("it does not panic"),
                    false => wait(),
                };
                if let Err(error) = waited {
                    fits(&error.into());
                }
            }
            Step::Query { stream } => {
                // SAFETY: the stream is alive.
                let answer =
                    unsafe { sys::cuStreamQuery(self.lines[stream % STREAMS].stream.cu_stream()) };
                let fine =
                    [CUresult::CUDA_SUCCESS, CUresult::CUDA_ERROR_NOT_READY].contains(&answer);
                assert!(fine || (900..=908).contains(&(answer as u32)), "{answer:?}");
            }
            Step::Allocate { elsewhere } => {
                let context = self.context.clone();
                let allocate = move || {
                    context.bind_to_thread()?;
                    // SAFETY: it is freed at once.
                    unsafe { result::free_sync(result::malloc_sync(64)?) }
                };
                let allocated = match elsewhere {
                    true => thread::spawn(allocate).join().expect("it does not panic"),
                    false => allocate(),
                };
                assert!(!elsewhere || allocated.is_ok(), "{allocated:?}");
                if let Err(error) = allocated {
                    fits(&error.into());
                }
            }
            Step::EndRaw { stream } => {
                let line = stream % STREAMS;
                let mut graph = std::ptr::null_mut();
                // SAFETY: the stream is alive. The graph is left to nobody.
                let answer = unsafe {
                    sys::cuStreamEndCapture(self.lines[line].stream.cu_stream(), &mut graph)
                };
                if let Some(capture) = self.lines[line].capture
                    && self.captures[capture].origin == line
                {
                    self.is_over(capture);
                } else {
                    assert_ne!(answer, CUresult::CUDA_SUCCESS);
                }
            }
        }
    }

    pub(super) fn recording(&mut self, capture: usize, lane: usize, after: usize) {
        let Some(mut held) = self.take(capture) else {
            return;
        };
        let (capture, over) = (held.capture, self.captures[held.capture].over);
        let origin = self.captures[capture].origin;
        let recorded = match &mut held.guards {
            Guards::Whole(guard) => {
                let intact = !over && guard.is_active();
                let mut known = match over {
                    true => Known::new(),
                    false => self.lines[origin].known.clone(),
                };
                let recorded = self.record(guard, &mut known, after);
                if !over {
                    self.lines[origin].known = known;
                }
                Some((recorded, intact))
            }
            Guards::Split(_, sides) => {
                let Side { known, guards } = sides[lane % 2].leaf(lane / 2);
                match guards {
                    SideGuards::Whole(branch) => {
                        let intact = !over && branch.is_active();
                        Some((self.record(branch, known, after), intact))
                    }
                    _ => None,
                }
            }
        };
        match recorded {
            Some((Ok(operation), intact)) => {
                assert!(intact, "it recorded what is over");
                self.captures[capture].recorded.insert(operation);
            }
            Some((Err(error), intact)) => {
                assert!(!intact, "{error:?}");
                fits(&error);
            }
            None => {}
        }
        self.held.push(held);
    }

    /// Has a stream wait for another, by an event.
    pub(super) fn order(&mut self, first: usize, then: usize) {
        let (from, to) = (&self.lines[first], &self.lines[then]);
        let event = self.context.new_event(None).expect("an event can be made");
        let ordered = event
            .record(&from.stream)
            .and_then(|()| to.stream.wait(&event));
        let (capture, known) = (from.capture, from.known.clone());
        match ordered {
            Ok(()) if capture.is_some() => {
                assert!(
                    to.capture.is_none() || to.capture == capture,
                    "two captures met"
                );
                self.lines[then].capture = capture;
                self.lines[then].known.extend(known);
            }
            Ok(()) => assert!(to.capture.is_none(), "a capture waits for what is outside"),
            Err(error) => fits(&error.into()),
        }
    }

    pub(super) fn split(&mut self, capture: usize, lane: usize) {
        let Some(held) = self.take(capture) else {
            return;
        };
        let Held { capture, guards } = held;
        match guards {
            Guards::Whole(guard) => match guard.split() {
                Ok((joint, branches)) => {
                    self.branches
                        .extend(branches.iter().map(|branch| branch.stream().clone()));
                    let known = &self.lines[self.captures[capture].origin].known;
                    let guards = Guards::Split(joint, Side::of(branches, known));
                    self.held.push(Held { capture, guards });
                }
                Err(error) => {
                    fits(&error);
                    self.was_left(capture);
                }
            },
            Guards::Split(joint, mut sides) => {
                let leaf = sides[lane % 2].leaf(lane / 2);
                if let SideGuards::Whole(branch) =
                    std::mem::replace(&mut leaf.guards, SideGuards::Gone)
                {
                    match branch.split() {
                        Ok((joint, branches)) => {
                            self.branches
                                .extend(branches.iter().map(|branch| branch.stream().clone()));
                            leaf.guards = SideGuards::Split(joint, Side::of(branches, &leaf.known));
                        }
                        Err(error) => fits(&error),
                    }
                }
                self.held.push(Held {
                    capture,
                    guards: Guards::Split(joint, sides),
                });
            }
        }
    }

    pub(super) fn join(&mut self, capture: usize) {
        let Some(Held { capture, guards }) = self.take(capture) else {
            return;
        };
        let Guards::Split(joint, mut sides) = guards else {
            return self.held.push(Held { capture, guards });
        };
        if let Some(side) = sides
            .iter_mut()
            .find(|side| matches!(side.guards, SideGuards::Split(..)))
        {
            side.join();
            return self.held.push(Held {
                capture,
                guards: Guards::Split(joint, sides),
            });
        }
        let (branches, known) = whole(*sides);
        let Some(branches) = branches else {
            drop(joint);
            return self.was_left(capture);
        };
        match joint.join(branches) {
            Ok(guard) => {
                assert!(!self.captures[capture].over, "it joined what is over");
                let origin = self.captures[capture].origin;
                self.lines[origin].known.extend(known);
                self.held.push(Held {
                    capture,
                    guards: Guards::Whole(guard),
                });
            }
            Err(error) => {
                fits(&error);
                self.was_left(capture);
            }
        }
    }

    pub(super) fn end(&mut self, capture: usize) {
        let Some(Held { capture, guards }) = self.take(capture) else {
            return;
        };
        let Guards::Whole(guard) = guards else {
            return self.held.push(Held { capture, guards });
        };
        let told = &self.captures[capture];
        let (origin, into) = (told.origin, told.into);
        let joined = told.recorded.is_subset(&self.lines[origin].known);
        let intact = !told.over && self.status(origin) == CaptureStatus::Active && joined;
        let recorded = told.recorded.clone();
        let ended = guard.end();
        let over = self.captures[capture].over;
        if !over {
            self.is_over(capture);
        }
        match ended {
            Ok(graph) => {
                assert!(intact, "it ended well");
                if into {
                    self.base_has.extend(recorded);
                    drop(graph);
                    self.check_base();
                } else {
                    drop(self.check(graph, &recorded));
                }
            }
            Err(error) => {
                assert!(!intact, "{error}");
                assert!(matches!(error, Error::CaptureInvalidated(_)), "{error:?}");
                fits(&error);
                if into {
                    self.check_base();
                }
            }
        }
    }

    /// The guards of a capture are gone.
    pub(super) fn was_left(&mut self, capture: usize) {
        if !self.captures[capture].over {
            self.is_over(capture);
        }
        if self.captures[capture].into {
            self.check_base();
        }
    }

    /// A whole capture by closures.
    pub(super) fn closure(&mut self, line: usize, leaving: Leaving) {
        let stream = self.lines[line].stream.clone();
        let busy = self.lines[line].capture.is_some();
        let mut recorded = Known::new();
        let run = || {
            Graph::capture(&stream, |c| {
                recorded.insert(self.record(c, &mut Known::new(), 0)?);
                c.parallel(|p| {
                    p.branch(|c| {
                        self.branches.push(c.stream().clone());
                        recorded.insert(self.record(c, &mut recorded.clone(), 0)?);
                        match leaving {
                            Leaving::Well => Ok(()),
                            Leaving::WithAnError => {
                                Err(Error::other(std::io::Error::other("left")))
                            }
                            Leaving::WithAPanic => resume_unwind(Box::new("left")),
                            Leaving::Spoilt => Ok(c.stream().synchronize()?),
                        }
                    })
                })?;
                let known = recorded.clone();
                recorded.insert(self.record(c, &mut known.clone(), known.len() - 1)?);
                Ok(())
            })
        };
        let done = catch_unwind(AssertUnwindSafe(run));
        match done {
            Err(_) => assert!(matches!(leaving, Leaving::WithAPanic) && !busy),
            Ok(Err(error)) if busy => assert!(matches!(error, Error::AlreadyCapturing { .. })),
            Ok(Ok((graph, ()))) => {
                assert!(matches!(leaving, Leaving::Well));
                drop(self.check(graph, &recorded));
            }
            Ok(Err(error)) => {
                fits(&error);
                match leaving {
                    Leaving::WithAnError => assert!(matches!(error, Error::Other(_)), "{error:?}"),
                    _ => assert!(
                        matches!(
                            (leaving, &error),
                            (Leaving::Spoilt, Error::CaptureInvalidated(_))
                        ),
                        "{error:?}"
                    ),
                }
            }
        }
    }
}
