//! A cursor in a graph.

use std::cell::{OnceCell, RefCell};
use std::fmt;
use std::mem;
use std::panic::Location;
use std::rc::Rc;
use std::sync::Arc;
use std::thread;

use cudarc::driver::{CudaContext, CudaStream};
use smallvec::smallvec;

use super::draft::{self, Draft, FlowPlan, Numbers};
use super::joined::Joined;
use super::over::Over;
use super::{Body, Checkpoint, Control, Flag, Flow, Foreign, Recorder, Records, checked, recorded};
use crate::capture::{Block, CaptureMode, Session};
use crate::error::{NodeKind, NodeName};
use crate::graph::{AnyOp, Checkpoints, Graph, Node, NodeId, NodeSet, Operation, checkpoints};
use crate::memory::{Buffer, Region};
use crate::op::{FillOp, Op, Tag};
use crate::{Error, Owner, Result, driver};

/// A way through a graph: each operation recorded is a node that waits for the one before.
///
/// [`Graph::record`] and [`Graph::capture`] give one to a closure, and [`Capture`](super::Capture)
/// is one that code can hold which is no closure. [`Path::new`] starts one in a graph that exists:
/// there each operation is a node at once, and a loop or branch becomes nodes when it is whole.
///
/// ```
/// # use cuda_graph::{Buffer, CopyOp, FillOp, Graph, Path};
/// # let device = cuda_graph::device(0)?;
/// # let stream = device.context().default_stream();
/// # let (a, b) = (Buffer::<u32>::zeroed(&stream, 8)?, Buffer::<u32>::zeroed(&stream, 8)?);
/// let graph = Graph::new(device.context())?;
/// let mut path = Path::new(&graph);
/// let fill = path.record(FillOp::new(&a, 7u32)?)?;
/// let copy = path.record(CopyOp::new(&b, &a)?)?;
/// assert_eq!(graph.predecessors(copy).list()?, [fill.id()]);
/// # Ok::<(), cuda_graph::Error>(())
/// ```
///
/// It stays on its thread: what it records with a stream, that thread captures.
///
/// ```compile_fail,E0277
/// fn sendable<T: Send>() {}
/// sendable::<cuda_graph::Path>();
/// ```
pub struct Path {
    place: Place,
    /// The nodes that the next one waits for.
    after: Numbers,
    /// What is surely over before the next node.
    over: Over,
    session: Option<Rc<Session>>,
    /// Where the recording began: it is abandoned with this path.
    _recording: Option<Recording>,
    /// Nothing was recorded yet, and the graph is new.
    is_fresh: bool,
    /// A foreign block that is all there is so far: the graph itself, unless more comes.
    whole: Option<(Graph, Tag)>,
    /// What comes behind a checkpoint goes into a body until this one ends.
    gate: Option<Box<Gate>>,
    /// The checkpoints of the recording, once somebody asks. None where there can be none.
    stops: Option<OnceCell<SharedStops>>,
    /// It is the recording's outermost path.
    is_outermost: bool,
    /// The capture of other code that it records into.
    pub(super) joined: Option<Box<Joined>>,
}

/// The rest of a body or step, behind a checkpoint.
struct Gate {
    plan: FlowPlan,
    /// Where the path was before.
    place: Place,
    after: Numbers,
    over: Over,
}

/// The checkpoints of a recording, which its paths share.
type SharedStops = Rc<RefCell<Stops>>;

#[derive(Default)]
struct Stops {
    names: Vec<Arc<str>>,
    /// The word that says where the step stopped, once there is one.
    word: Option<(Buffer<u32>, Region)>,
    /// A launch sets the word to 0 before it comes to a checkpoint.
    is_reset: bool,
    /// A loop is recorded again behind the rest of its turn, with the checkpoints in it.
    repeats: bool,
}

/// The stream of a recording, to hold, and the mode of its foreign blocks.
pub(crate) type Held<'a> = (&'a Arc<CudaStream>, CaptureMode);

/// Abandons a recording that did not end. Branches and bodies share the session only.
struct Recording(Rc<Session>);

impl Drop for Recording {
    fn drop(&mut self) {
        self.0.give_up();
    }
}

/// Where nodes go.
enum Place {
    /// To a graph that is there, at once.
    Live(Graph),
    Draft(Box<Draft>),
}

impl Place {
    fn graph(&self) -> &Graph {
        match self {
            Place::Live(graph) => graph,
            Place::Draft(draft) => &draft.into,
        }
    }
}

impl Path {
    #[inline(always)]
    fn at(place: Place, session: Option<Rc<Session>>) -> Path {
        Path {
            place,
            after: Numbers::new(),
            over: Over::default(),
            session,
            _recording: None,
            is_fresh: false,
            whole: None,
            gate: None,
            stops: None,
            is_outermost: false,
            joined: None,
        }
    }

    /// A path that a recording begins with.
    #[inline(always)]
    #[track_caller]
    fn begin(place: Place, stream: Option<Held<'_>>) -> Result<Path> {
        let location = Location::caller();
        let begin = |(stream, mode)| {
            let graph = Graph::from_view(place.graph().view());
            Session::begin(graph, stream, mode, location)
        };
        let session = stream.map(begin).transpose()?;
        Ok(Path {
            _recording: session.clone().map(Recording),
            stops: Some(OnceCell::new()),
            is_outermost: true,
            ..Path::at(place, session)
        })
    }

    /// A path that starts at the beginning of `graph`.
    pub fn new(graph: &Graph) -> Path {
        Path::at(Place::Live(Graph::from_view(graph.view())), None)
    }

    /// A path in a new graph that nobody else has, with the stream if one is given.
    #[track_caller]
    pub(crate) fn fresh(context: &Arc<CudaContext>, stream: Option<Held<'_>>) -> Result<Path> {
        let mut path = Path::begin(Place::Live(Graph::new(context)?), stream)?;
        path.is_fresh = true;
        Ok(path)
    }

    /// A path whose nodes go into `graph` when it is finished.
    #[track_caller]
    pub(super) fn aside(
        graph: &Graph,
        after: impl NodeSet,
        stream: Option<Held<'_>>,
    ) -> Result<Path> {
        let mut path = Path::begin(Place::Draft(Box::new(Draft::of(graph)?)), stream)?;
        path.go_on_after(after)?;
        Ok(path)
    }

    /// A path through a body.
    pub(super) fn inside(&self, draft: Draft) -> Path {
        Path {
            stops: self.stops().cloned().map(OnceCell::from),
            ..Path::at(Place::Draft(Box::new(draft)), self.session.clone())
        }
    }

    /// Branches of this path, unless its nodes go elsewhere first.
    pub(super) fn branches<const N: usize>(&self) -> Option<[Path; N]> {
        let Place::Live(graph) = &self.place else {
            return None;
        };
        Some(std::array::from_fn(|_| Path {
            after: self.after.clone(),
            over: self.over.clone(),
            session: self.session.clone(),
            ..Path::new(graph)
        }))
    }

    /// Goes on after all of `branches`, if there are any.
    pub(super) fn join<const N: usize>(&mut self, branches: [Path; N]) {
        let mut ends = Numbers::new();
        for branch in branches {
            self.over.join(&branch.over);
            ends.extend(branch.after);
        }
        if N > 0 {
            self.go_on_from(ends);
        }
    }

    /// Goes on after the ends of branches.
    fn go_on_from(&mut self, mut ends: Numbers) {
        ends.sort_unstable();
        ends.dedup();
        self.after = ends;
    }

    pub(super) fn graph(&self) -> &Graph {
        self.place.graph()
    }

    pub(super) fn is_in_body(&self) -> bool {
        match &self.place {
            Place::Live(graph) => graph.is_in_body(),
            Place::Draft(draft) => draft.in_body,
        }
    }

    pub(super) fn into_draft(mut self) -> Result<(Draft, Numbers)> {
        self.close_gate()?;
        match self.place {
            Place::Draft(draft) => Ok((*draft, self.after)),
            Place::Live(_) => Err(Error::RecordingOver),
        }
    }

    /// The nodes that the next operation waits for: those at the end of the path.
    pub fn ends(&mut self) -> Result<Vec<NodeId>> {
        self.settle()?;
        self.follow()?;
        let graph = self.graph();
        let state = graph.hierarchy().look();
        let body = state.bodies.get(graph.body_index());
        let kind = |node| body.map_or(NodeKind::Empty, |body| body.kind(node));
        let ends = self.after.iter();
        Ok(ends.map(|&node| graph.id_of(node, kind(node))).collect())
    }

    /// Makes the next operation wait for `nodes` alone.
    ///
    /// # Errors
    ///
    /// [`Error::ForeignNode`], [`Error::NodeGone`], [`Error::DuplicateNode`].
    pub fn go_on_after(&mut self, nodes: impl NodeSet) -> Result<()> {
        self.settle()?;
        let graph = self.graph();
        let (hierarchy, index) = (graph.hierarchy().id, graph.body_index());
        let (mut after, mut failed) = (Numbers::new(), None);
        let state = graph.hierarchy().look();
        let body = state.bodies.get(index).ok_or(Error::GraphGone)?;
        nodes.each(&mut |node| {
            // A draft's nodes have no handles yet.
            let planned = (node.hierarchy, node.body) == (hierarchy, index)
                && matches!(&self.place, Place::Draft(draft) if draft.plans(node.index));
            let error = match body.resolve(hierarchy, index, node) {
                Err(error) if !planned => error,
                _ if after.contains(&node.index) => Error::DuplicateNode {
                    node: Box::new(body.name(node.index)),
                },
                _ => return after.push(node.index),
            };
            failed.get_or_insert(error);
        });
        drop(state);
        if let Some(error) = failed {
            return Err(error);
        }
        self.after = after;
        self.over = Over::default();
        self.lead()
    }

    /// Records `op` after what was recorded before.
    ///
    /// # Errors
    ///
    /// As [`Graph::add`]; [`Error::StrayWork`] if work reached the stream of the recording outside
    /// of a foreign block.
    #[inline]
    pub fn record<O: Operation>(&mut self, op: O) -> Result<Node<O>> {
        if self.whole.is_some() {
            self.settle()?;
        }
        self.is_fresh = false;
        if let Some(session) = &self.session {
            session.check_before(&op)?;
        }
        let kind = op.kind();
        let ids = draft::communicators_of(&op);
        let index = match &mut self.place {
            _ if self.joined.is_some() => self.put_joined(op)?,
            Place::Live(graph) => {
                let index = match ids.is_empty() {
                    true => draft::insert(graph, op, &self.after)?,
                    false => draft::insert_in_line(graph, op, &self.after, &ids, &self.over)?,
                };
                if let Some(session) = &self.session {
                    session.note_node(index);
                }
                index
            }
            Place::Draft(draft) => {
                let op = op.into_any();
                if let Some(session) = &self.session {
                    session.note(op.name(None));
                }
                draft.add(op, &self.after, &self.over)?
            }
        };
        ids.iter().for_each(|id| self.over.add(*id, index));
        self.after = smallvec![index];
        Ok(Node::new(self.graph().id_of(index, kind)))
    }

    #[cold]
    fn put_joined<O: Operation>(&mut self, op: O) -> Result<u32> {
        self.follow()?;
        let joined = self.joined.as_ref().ok_or(Error::NotCapturing)?;
        let index = joined.insert(self.place.graph(), op, &self.after)?;
        joined.set_position(self.place.graph(), &[index])?;
        Ok(index)
    }

    /// Goes on where the capture of other code is.
    fn follow(&mut self) -> Result<()> {
        let Some(joined) = &mut self.joined else {
            return Ok(());
        };
        let after = joined.position(self.place.graph())?;
        if after != self.after {
            self.after = after;
            self.over = Over::default();
        }
        Ok(())
    }

    /// Has the capture of other code go on where this is.
    fn lead(&self) -> Result<()> {
        match &self.joined {
            Some(joined) => joined.set_position(self.graph(), &self.after),
            None => Ok(()),
        }
    }

    recorded!();

    /// Begins foreign work that is no closure: see [`foreign`](Path::foreign). The recording goes
    /// on when the block [ends](ForeignBlock::end).
    ///
    /// # Safety
    ///
    /// As [`foreign`](Path::foreign).
    #[track_caller]
    pub unsafe fn begin_foreign(&mut self) -> Result<ForeignBlock<'_>> {
        self.begin_block(Location::caller())
    }

    fn begin_block(&mut self, location: &'static Location<'static>) -> Result<ForeignBlock<'_>> {
        if self.whole.is_some() {
            self.settle()?;
        }
        let session = self.session.as_ref().ok_or(Error::NoStream)?;
        Ok(ForeignBlock {
            block: session.begin_block()?,
            path: self,
            location,
        })
    }

    /// Goes on behind a node that runs `graph`.
    fn adopt(&mut self, graph: &Graph, tag: Tag) -> Result<()> {
        let location = tag.location;
        let index = match &mut self.place {
            Place::Live(into) => {
                let after = &self.after;
                let added = into.adopt(graph, tag, |body, raw| draft::resolve(body, after, raw));
                added.map_err(|error| match holds_conditional(graph) {
                    true => Error::ForeignConditional,
                    false => error,
                })?
            }
            Place::Draft(_) if holds_conditional(graph) => return Err(Error::ForeignConditional),
            Place::Draft(draft) => {
                let graph = Graph::from_view(graph.view());
                draft.embed(graph, tag, &self.after, &self.over)?
            }
        };
        self.after = smallvec![index];
        if let Some(session) = &self.session {
            match &self.place {
                Place::Live(_) => session.note_node(index),
                Place::Draft(_) => session.note(name_of_block(location)),
            }
        }
        Ok(())
    }

    /// A foreign block that is not all there is becomes a node.
    #[cold]
    fn settle(&mut self) -> Result<()> {
        if let Some((graph, tag)) = self.whole.take()
            && let Err(error) = self.adopt(&graph, tag.clone())
        {
            // It is still all there is.
            self.whole = Some((graph, tag));
            return Err(error);
        }
        self.is_fresh = false;
        Ok(())
    }

    /// The checkpoints of the recording, if there can be some.
    fn stops(&self) -> Option<&SharedStops> {
        let stops = self.stops.as_ref()?;
        Some(stops.get_or_init(Rc::default))
    }

    /// Records a loop or branch, and returns its node. Before it there are so many checkpoints.
    fn put_flow_here(
        &mut self,
        flow: Flow,
        bodies: &mut [&mut Body<'_>],
        before: usize,
    ) -> Result<NodeId> {
        let location = flow.location;
        let mut plan = FlowPlan::record(self, flow, bodies)?;
        if let Some(session) = &self.session {
            session.check()?;
        }
        self.follow()?;
        let may_stop = self.checkpoints() > before;
        let mut rest = None;
        if may_stop {
            let control = Control::Unstopped;
            let flag = self.stopped()?;
            plan.stopped = Some(flag.clone());
            rest = Some(self.make_gate(Flow {
                control,
                flag,
                param: None,
                location,
            })?);
        }
        // Where another body is open, closing it may fail, and then this was not recorded either.
        let start = match &self.place {
            Place::Draft(draft) if may_stop => {
                Some((draft.mark(), self.after.clone(), self.over.clone()))
            }
            _ => None,
        };
        let node = self.put_plan(&Rc::new(plan))?;
        self.lead()?;
        let node = self.graph().id_of(node, NodeKind::Conditional);
        if let Some(rest) = rest
            && let Err(error) = self.open_gate(rest)
        {
            if let (Place::Draft(draft), Some((mark, after, over))) = (&mut self.place, start) {
                draft.go_back(mark);
                (self.after, self.over) = (after, over);
            }
            return Err(error);
        }
        Ok(node)
    }

    /// How many checkpoints there are in the recording.
    fn checkpoints(&self) -> usize {
        let stops = self.stops.as_ref().and_then(OnceCell::get);
        stops.map_or(0, |stops| stops.borrow().names.len())
    }

    /// Where it is told that the step stopped.
    fn stopped(&self) -> Result<Region> {
        let stops = self.stops().ok_or(Error::CheckpointHere)?;
        let mut stops = stops.borrow_mut();
        let word = match stops.word.take() {
            Some(word) => word,
            None => checkpoints::word(self.graph().context())?,
        };
        Ok(stops.word.insert(word).1.clone())
    }

    /// Has each launch go on at first.
    fn reset_stopped(&mut self) -> Result<()> {
        let Some(stops) = self.stops().cloned().filter(|_| self.is_outermost) else {
            return Ok(());
        };
        if !stops.borrow().is_reset {
            self.stopped()?;
            let word = stops.borrow().word.as_ref().map(|(word, _)| word.clone());
            if let Some(word) = word {
                self.record(FillOp::new(&word, 0u32)?.label("goes on"))?;
            }
            stops.borrow_mut().is_reset = true;
        }
        Ok(())
    }

    /// A body for what comes next, up to the end of the path, to be [opened](Path::open_gate).
    fn make_gate(&mut self, flow: Flow) -> Result<FlowPlan> {
        self.settle()?;
        self.reset_stopped()?;
        FlowPlan::new(self, flow, 1)
    }

    /// What comes next goes into a body of its own, up to the end of the path. Returns the number
    /// of the body. After an error the path is where it was.
    fn open_gate(&mut self, plan: FlowPlan) -> Result<u32> {
        self.close_gate()?;
        let (number, draft) = plan.next_body(self);
        self.enter_gate(plan, draft, Numbers::new(), Over::default());
        Ok(number)
    }

    /// Goes on in a body of `plan`.
    fn enter_gate(&mut self, plan: FlowPlan, draft: Draft, after: Numbers, over: Over) {
        self.gate = Some(Box::new(Gate {
            plan,
            place: mem::replace(&mut self.place, Place::Draft(Box::new(draft))),
            after: mem::replace(&mut self.after, after),
            over: mem::replace(&mut self.over, over),
        }));
    }

    /// The body behind a checkpoint is whole. After an error it is open as before.
    fn close_gate(&mut self) -> Result<()> {
        let Some(gate) = self.gate.take() else {
            return Ok(());
        };
        let mut plan = gate.plan;
        let inner = mem::replace(&mut self.place, gate.place);
        let ends = mem::replace(&mut self.after, gate.after);
        let over = mem::replace(&mut self.over, gate.over);
        let Place::Draft(draft) = inner else {
            return Err(Error::RecordingOver);
        };
        plan.in_turn |= self.is_in_body();
        plan.push_body(*draft, ends);
        if plan.is_empty_rest() {
            return Ok(());
        }
        let plan = Rc::new(plan);
        let put = self.put_plan(&plan);
        if put.is_err()
            && let Some(mut plan) = Rc::into_inner(plan)
            && let Some((draft, ends)) = plan.pop_body()
        {
            self.enter_gate(plan, draft, ends, over);
        }
        put.map(drop)
    }

    /// Puts a loop or branch that was recorded behind what came before. Returns its node.
    fn put_plan(&mut self, plan: &Rc<FlowPlan>) -> Result<u32> {
        let (in_turn, ids) = (plan.in_turn, plan.communicators());
        let node = match &mut self.place {
            Place::Live(graph) => draft::put_flow(graph, plan, &self.after, &self.over)?,
            Place::Draft(draft) => draft.flow(plan, &self.after, &self.over)?,
        };
        self.after = smallvec![node];
        if in_turn {
            self.over.turn = Some(node);
        }
        ids.iter().for_each(|id| self.over.add(*id, node));
        Ok(node)
    }

    /// Ends the recording, which came to `recorded`, and gives what it is. An error is what went
    /// wrong first.
    pub(crate) fn finish<T>(mut self, recorded: Result<T>) -> Result<(Graph, T)> {
        let recorded = recorded.and_then(|value| self.close_gate().map(|()| value));
        let value = match &self.session {
            Some(session) => session.end(recorded)?,
            None => recorded?,
        };
        if let Some((whole, _)) = self.whole {
            let graph = self.place.graph();
            let kept = mem::take(&mut graph.hierarchy().lock().body_mut(0)?.lingering);
            whole.hierarchy().lock().body_mut(0)?.lingering.extend(kept);
            return Ok((whole, value));
        }
        let graph = match self.place {
            Place::Live(graph) => graph,
            Place::Draft(draft) => {
                let graph = Graph::from_view(draft.into.view());
                draft.commit()?;
                graph
            }
        };
        if let Some(stops) = self.stops.and_then(OnceCell::into_inner) {
            let Stops { names, word, .. } = stops.take();
            if let Some((word, _)) = word.filter(|_| !names.is_empty()) {
                let checkpoints = Checkpoints::new(word, names);
                graph.hierarchy().lock().checkpoints.push(checkpoints);
            }
        }
        Ok((graph, value))
    }
}

/// What errors call foreign work that is no node yet.
fn name_of_block(location: Option<&'static Location<'static>>) -> NodeName {
    NodeName {
        location,
        ..NodeName::of_kind(NodeKind::Child, None)
    }
}

/// Whether the driver says that there is a conditional node in `graph`, or inside of it.
fn holds_conditional(graph: &Graph) -> bool {
    let Ok(nodes) = graph.nodes() else {
        return false;
    };
    nodes.into_iter().any(|node| match node.kind() {
        NodeKind::Conditional => true,
        NodeKind::Child => graph
            .views(node)
            .is_ok_and(|inside| inside.iter().any(holds_conditional)),
        _ => false,
    })
}

impl Recorder for Path {
    fn context(&self) -> &Arc<CudaContext> {
        self.graph().context()
    }

    fn has_stream(&self) -> bool {
        self.session.is_some() || self.joined.is_some()
    }

    fn keep(&mut self, owner: Owner) -> Result<()> {
        match &mut self.place {
            Place::Live(graph) => graph.keep(owner),
            Place::Draft(draft) => {
                draft.kept.push(owner);
                Ok(())
            }
        }
    }
}

impl Records for Path {
    fn put(&mut self, op: AnyOp) -> Result<Option<NodeId>> {
        Ok(Some(self.record(op)?.id()))
    }

    fn put_branches(&mut self, branches: &mut [&mut Body<'_>]) -> Result<()> {
        self.settle()?;
        self.follow()?;
        let mut fork = Fork {
            // Branches of a joined capture start where it is; it goes on after all of them.
            joined: self.joined.take(),
            // A step does not stop in one of several branches.
            stops: self.stops.take(),
            start: (self.after.clone(), self.over.clone()),
            ends: Numbers::new(),
            over: self.over.clone(),
            path: self,
        };
        let recorded = branches.iter_mut().try_for_each(|branch| {
            let recorded = branch(fork.path);
            fork.next();
            recorded
        });
        drop(fork);
        self.lead()?;
        recorded
    }

    fn put_flow(&mut self, flow: Flow, bodies: &mut [&mut Body<'_>]) -> Result<Option<NodeId>> {
        self.settle()?;
        if let Some(session) = &self.session {
            session.check()?;
        }
        let before = self.checkpoints();
        let mut names = NamesUpTo(self.stops().cloned(), before);
        let node = self.put_flow_here(flow, bodies, before)?;
        names.0 = None;
        Ok(Some(node))
    }

    fn put_checkpoint(&mut self, checkpoint: Checkpoint) -> Result<Option<u32>> {
        let stops = self.stops().cloned().ok_or(Error::CheckpointHere)?;
        let (name, repeats) = (checkpoint.name, stops.borrow().repeats);
        if stops.borrow().names.contains(&name) && !repeats {
            let name = (*name).into();
            return Err(Error::DuplicateCheckpoint { name });
        }
        let stopped = self.stopped()?;
        let number = stops.borrow().names.len() as u32 + 1;
        let mut rest = self.make_gate(Flow {
            control: Control::Checkpoint,
            flag: checkpoint.flag,
            param: None,
            location: checkpoint.location,
        })?;
        rest.stopped = Some(stopped);
        rest.checkpoint = Some((number, name.clone()));
        let body = self.open_gate(rest)?;
        stops.borrow_mut().names.push(name);
        Ok(Some(body))
    }

    fn begin_resume(&mut self) {
        if let Some(stops) = self.stops() {
            stops.borrow_mut().repeats = true;
        }
    }

    fn skip_foreign(
        &mut self,
        location: &'static Location<'static>,
        work: &mut Foreign<'_>,
    ) -> Result<()> {
        if self.joined.is_some() {
            return Err(Error::CheckpointHere);
        }
        let block = self.begin_block(location)?;
        driver::bind(block.stream().context())?;
        // Dropped before its end, the block records nothing.
        work(block.stream())
    }

    fn put_foreign(
        &mut self,
        location: &'static Location<'static>,
        work: &mut Foreign<'_>,
    ) -> Result<()> {
        if let Some(joined) = &self.joined {
            driver::bind(joined.stream.context())?;
            return work(&joined.stream);
        }
        let block = self.begin_block(location)?;
        driver::bind(block.stream().context())?;
        let worked = work(block.stream());
        block.finish(worked)
    }

    fn put_captured(&mut self, graph: Graph, tag: Tag) -> Result<Option<NodeId>> {
        self.settle()?;
        self.adopt(&graph, tag)?;
        let node = self.after.last().copied();
        Ok(node.map(|node| self.graph().id_of(node, NodeKind::Child)))
    }

    fn put_outside(&mut self, _: &mut Foreign<'_>) -> Result<()> {
        Err(Error::OutsideGraph)
    }
}

/// Takes the names of checkpoints back but for the first ones, if what has the others is not
/// recorded.
struct NamesUpTo(Option<SharedStops>, usize);

impl Drop for NamesUpTo {
    fn drop(&mut self) {
        if let Some(stops) = &self.0 {
            stops.borrow_mut().names.truncate(self.1);
        }
    }
}

/// The branches of a parallel part. However it is left, the path goes on after all that they
/// recorded.
struct Fork<'a> {
    path: &'a mut Path,
    joined: Option<Box<Joined>>,
    stops: Option<OnceCell<SharedStops>>,
    /// Where all branches start, and an empty one ends.
    start: (Numbers, Over),
    ends: Numbers,
    over: Over,
}

impl Fork<'_> {
    /// A branch is over: the next starts where it did.
    fn next(&mut self) {
        let path = &mut *self.path;
        // A foreign block that is a branch of its own is not all there is.
        if let Err(error) = path.settle() {
            tracing::debug!("foreign work of a branch is not recorded: {error}");
        }
        if path.after != self.start.0 {
            self.ends.extend_from_slice(&path.after);
        }
        self.over.join(&path.over);
        path.after = self.start.0.clone();
        path.over = self.start.1.clone();
    }
}

impl Drop for Fork<'_> {
    fn drop(&mut self) {
        self.next();
        if !self.ends.is_empty() {
            self.path.go_on_from(mem::take(&mut self.ends));
        }
        self.path.over = mem::take(&mut self.over);
        self.path.stops = self.stops.take();
        self.path.joined = self.joined.take();
        if thread::panicking()
            && let Err(error) = self.path.lead()
        {
            tracing::error!("a capture does not go on behind what it recorded: {error}");
        }
    }
}

/// Foreign work in progress: the stream records it until the block ends.
///
/// Dropped before its end, it records nothing, and the recording goes on as before it.
#[must_use = "a block that is dropped records nothing"]
pub struct ForeignBlock<'a> {
    path: &'a mut Path,
    block: Block,
    location: &'static Location<'static>,
}

impl ForeignBlock<'_> {
    /// The stream to give work to.
    pub fn stream(&self) -> &Arc<CudaStream> {
        self.block.stream()
    }

    /// Ends the block: the recording goes on behind its work.
    ///
    /// # Errors
    ///
    /// [`Error::CaptureInvalidated`], [`Error::NotInBody`], [`Error::ForeignConditional`].
    pub fn end(self) -> Result<()> {
        self.finish(Ok(()))
    }

    fn finish(self, worked: Result<()>) -> Result<()> {
        let path = self.path;
        let raw = self.block.end(worked)?;
        let graph = Graph::of_raw(path.graph().context(), raw, true);
        if driver::graph::is_empty(raw)? {
            return Ok(());
        }
        let tag = Tag::at(self.location);
        if !path.is_fresh {
            return path.adopt(&graph, tag);
        }
        if let Some(session) = &path.session {
            session.note(name_of_block(tag.location));
        }
        path.whole = Some((graph, tag));
        Ok(())
    }
}

impl fmt::Debug for Path {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (graph, after) = (self.graph(), &self.after);
        write!(f, "Path in {graph:?} that goes on after {after:?}")
    }
}
