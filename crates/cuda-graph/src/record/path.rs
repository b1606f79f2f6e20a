//! A cursor in a graph.

use std::fmt;
use std::panic::Location;
use std::rc::Rc;
use std::sync::Arc;

use cudarc::driver::{CudaContext, CudaStream};

use super::draft::{self, Draft, FlowPlan, Numbers};
use super::joined::Joined;
use super::{Body, Flow, Foreign, Recorder, Records, control_flow, foreign};
use crate::capture::{Block, CaptureMode, Session};
use crate::error::NodeKind;
use crate::graph::{AnyOp, ChildOp, Graph, Node, NodeId, NodeSet, Operation};
use crate::op::{HostOp, Op, RecordEventOp, Tag, WaitEventOp};
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
    /// The last conditional node that is surely over before the next node (L16).
    turn: Option<u32>,
    session: Option<Rc<Session>>,
    /// Where the recording began: it is abandoned with this path.
    _recording: Option<Recording>,
    /// Nothing was recorded yet, and the graph is new.
    is_fresh: bool,
    /// A foreign block that is all there is so far: the graph itself, unless more comes.
    whole: Option<(Graph, Tag)>,
    /// The capture of other code that it records into.
    pub(super) joined: Option<Joined>,
}

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
    Draft(Draft),
}

impl Path {
    fn at(place: Place, session: Option<Rc<Session>>) -> Path {
        Path {
            place,
            after: Numbers::new(),
            turn: None,
            session,
            _recording: None,
            is_fresh: false,
            whole: None,
            joined: None,
        }
    }

    fn beginning(place: Place, session: Option<Rc<Session>>) -> Path {
        Path {
            _recording: session.clone().map(Recording),
            ..Path::at(place, session)
        }
    }

    /// A path that starts at the beginning of `graph`.
    pub fn new(graph: &Graph) -> Path {
        Path::at(Place::Live(Graph::from_view(graph.view())), None)
    }

    /// A path that starts after `nodes` of `graph`.
    ///
    /// # Errors
    ///
    /// [`Error::ForeignNode`], [`Error::NodeGone`].
    pub fn after(graph: &Graph, nodes: impl NodeSet) -> Result<Path> {
        let mut path = Path::new(graph);
        path.go_on_after(nodes)?;
        Ok(path)
    }

    /// A path in a new graph that nobody else has, with the stream if one is given.
    pub(super) fn fresh(
        context: &Arc<CudaContext>,
        stream: Option<(&Arc<CudaStream>, CaptureMode)>,
        location: &'static Location<'static>,
    ) -> Result<Path> {
        let session = match stream {
            Some((stream, mode)) => Some(Session::begin(stream, mode, location)?),
            None => None,
        };
        let graph = Graph::new(context)?;
        if let Some(session) = &session {
            session.set_graph(Graph::from_view(graph.view()));
        }
        let mut path = Path::beginning(Place::Live(graph), session);
        path.is_fresh = true;
        Ok(path)
    }

    /// A path whose nodes go into `graph` when it is finished.
    pub(super) fn aside(
        graph: &Graph,
        after: impl NodeSet,
        stream: Option<(&Arc<CudaStream>, CaptureMode)>,
        location: &'static Location<'static>,
    ) -> Result<Path> {
        let draft = Draft::of(graph)?;
        let session = match stream {
            Some((stream, mode)) => Some(Session::begin(stream, mode, location)?),
            None => None,
        };
        let mut path = Path::beginning(Place::Draft(draft), session);
        path.go_on_after(after)?;
        Ok(path)
    }

    /// A path through a body.
    pub(super) fn inside(&self, draft: Draft) -> Path {
        Path::at(Place::Draft(draft), self.session.clone())
    }

    /// A branch of this path, beside others.
    pub(super) fn beside(&self) -> Option<Path> {
        let Place::Live(graph) = &self.place else {
            return None;
        };
        let graph = Graph::from_view(graph.view());
        Some(Path {
            after: self.after.clone(),
            turn: self.turn,
            ..Path::at(Place::Live(graph), self.session.clone())
        })
    }

    /// Goes on after all of `branches`.
    pub(super) fn join(&mut self, branches: impl IntoIterator<Item = Path>) {
        let mut ends = Numbers::new();
        for branch in branches {
            self.turn = self.turn.max(branch.turn);
            ends.extend(branch.after.iter().copied());
        }
        ends.sort_unstable();
        ends.dedup();
        self.after = ends;
    }

    pub(super) fn graph(&self) -> &Graph {
        match &self.place {
            Place::Live(graph) => graph,
            Place::Draft(draft) => &draft.into,
        }
    }

    pub(super) fn is_in_body(&self) -> bool {
        match &self.place {
            Place::Live(graph) => graph.is_in_body(),
            Place::Draft(draft) => draft.is_in_body(),
        }
    }

    pub(super) fn into_draft(self) -> Result<(Draft, Numbers)> {
        match self.place {
            Place::Draft(draft) => Ok((draft, self.after)),
            Place::Live(_) => Err(Error::RecordingOver),
        }
    }

    /// The nodes that the next operation waits for: those at the end of the path.
    pub fn ends(&mut self) -> Result<Vec<NodeId>> {
        self.settle()?;
        self.follow()?;
        let graph = self.graph();
        let state = graph.hierarchy().look();
        let kind = |node| match state.bodies.get(graph.body_index() as usize) {
            Some(body) => body.kind(node),
            None => NodeKind::Empty,
        };
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
        let mut after = Numbers::new();
        let mut failed = None;
        let state = graph.hierarchy().look();
        let body = state.bodies.get(graph.body_index() as usize);
        nodes.each(&mut |node| {
            let own = node.hierarchy == graph.hierarchy().id && node.body == graph.body_index();
            let is_there = match &self.place {
                // A draft's nodes have no handles yet.
                Place::Draft(draft) if draft.plans(node.index) => true,
                _ => body.is_some_and(|body| body.handle(node.index).is_some()),
            };
            let name = || {
                Box::new(match body {
                    Some(body) => body.name(node.index),
                    None => crate::error::NodeName::of_kind(node.kind, node.index),
                })
            };
            let error = if !own {
                Error::ForeignNode {
                    node: node.index,
                    kind: node.kind,
                }
            } else if !is_there {
                Error::NodeGone { node: name() }
            } else if after.contains(&node.index) {
                Error::DuplicateNode { node: name() }
            } else {
                return after.push(node.index);
            };
            failed.get_or_insert(error);
        });
        drop(state);
        if let Some(error) = failed {
            return Err(error);
        }
        self.after = after;
        self.turn = None;
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
        let kind = op.kind();
        let index = self.put_node(op)?;
        Ok(Node::new(self.graph().id_of(index, kind)))
    }

    #[inline]
    fn put_node<O: Operation>(&mut self, op: O) -> Result<u32> {
        if self.is_fresh {
            self.settle()?;
        }
        if let Some(session) = &self.session {
            session.check_before(&op)?;
        }
        if self.joined.is_some() {
            return self.put_joined(op);
        }
        let index = match &mut self.place {
            Place::Live(graph) => {
                let index = draft::insert(graph, op, &self.after)?;
                if let Some(session) = &self.session {
                    session.note_node(index);
                }
                index
            }
            Place::Draft(draft) => {
                let op = op.into_any();
                if let Some(session) = &self.session {
                    session.note(&op);
                }
                draft.add(op, &self.after)?
            }
        };
        self.after.clear();
        self.after.push(index);
        Ok(index)
    }

    #[cold]
    fn put_joined<O: Operation>(&mut self, op: O) -> Result<u32> {
        self.follow()?;
        let graph = Graph::from_view(self.graph().view());
        let index = match &self.joined {
            Some(joined) => joined.insert(&graph, op, &self.after)?,
            None => return Err(Error::NotCapturing),
        };
        self.after = Numbers::from_slice(&[index]);
        self.lead()?;
        Ok(index)
    }

    /// Goes on where the capture of other code is.
    fn follow(&mut self) -> Result<()> {
        if let Some(joined) = &mut self.joined {
            let graph = match &self.place {
                Place::Live(graph) => graph,
                Place::Draft(draft) => &draft.into,
            };
            let after = joined.position(graph)?;
            if after != self.after {
                self.after = after;
                self.turn = None;
            }
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

    /// Records a call of a closure on the host.
    #[track_caller]
    pub fn host<F: Fn() + Send + Sync + 'static>(&mut self, function: F) -> Result<Node<HostOp>> {
        let op = HostOp::new(function);
        self.record(op)
    }

    /// Records a copy of `graph` as one node.
    #[track_caller]
    pub fn embed(&mut self, graph: &Graph) -> Result<Node<ChildOp>> {
        let op = ChildOp::new(graph);
        self.record(op)
    }

    /// Records an event each time the graph gets here, for others to wait for outside of it.
    #[track_caller]
    pub fn record_event(
        &mut self,
        event: &Arc<cudarc::driver::CudaEvent>,
    ) -> Result<Node<RecordEventOp>> {
        let op = RecordEventOp::new(event);
        self.record(op)
    }

    /// Waits, each time the graph gets here, for an event that was recorded outside of it.
    #[track_caller]
    pub fn wait_event(
        &mut self,
        event: &Arc<cudarc::driver::CudaEvent>,
    ) -> Result<Node<WaitEventOp>> {
        let op = WaitEventOp::new(event);
        self.record(op)
    }

    control_flow!();
    foreign!();

    /// Begins foreign work that is no closure: see [`foreign`](Path::foreign). The recording goes on
    /// when the block [ends](ForeignBlock::end).
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
            block: Some(session.begin_block()?),
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
                let added = into.adopt(graph, tag, |body, nodes| {
                    nodes.extend(after.iter().filter_map(|&node| body.handle(node)));
                    Ok(())
                });
                added.map_err(|error| match holds_conditional(graph) {
                    true => Error::ForeignConditional,
                    false => error,
                })?
            }
            Place::Draft(draft) => {
                if holds_conditional(graph) {
                    return Err(Error::ForeignConditional);
                }
                draft.embed(Graph::from_view(graph.view()), tag, &self.after)?
            }
        };
        self.after.clear();
        self.after.push(index);
        if let Some(session) = &self.session {
            match &self.place {
                Place::Live(_) => session.note_node(index),
                Place::Draft(_) => session.note_block(location),
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

    /// Ends the recording, and gives what it is.
    pub(super) fn finish(mut self) -> Result<Graph> {
        if let Some(session) = &self.session {
            session.end()?;
        }
        let whole = self.whole.take();
        match self.place {
            Place::Live(graph) => match whole {
                Some((whole, _)) => {
                    let mut state = graph.hierarchy().lock();
                    let kept = std::mem::take(&mut state.body_mut(0)?.lingering);
                    drop(state);
                    whole.hierarchy().lock().body_mut(0)?.lingering.extend(kept);
                    Ok(whole)
                }
                None => Ok(graph),
            },
            Place::Draft(draft) => {
                let graph = Graph::from_view(draft.into.view());
                draft.commit()?;
                Ok(graph)
            }
        }
    }

    /// Ends the recording because of an error. Returns what went wrong first.
    pub(super) fn fail(self, error: Error) -> Error {
        match &self.session {
            Some(session) => session.abandon(error),
            None => error,
        }
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
                draft.keep(owner);
                Ok(())
            }
        }
    }
}

impl Records for Path {
    fn put(&mut self, op: AnyOp) -> Result<Option<NodeId>> {
        let kind = Op::kind(&op);
        let index = self.put_node(op)?;
        Ok(Some(self.graph().id_of(index, kind)))
    }

    fn put_branches(&mut self, branches: &mut [&mut Body<'_>]) -> Result<()> {
        self.settle()?;
        self.follow()?;
        // Branches of a joined capture start where it is; it goes on after all of them.
        let joined = self.joined.take();
        let start = (self.after.clone(), self.turn);
        let mut fork = Fork {
            ends: Numbers::new(),
            turn: self.turn,
            start: &start,
            path: self,
        };
        let recorded = branches.iter_mut().try_for_each(|branch| {
            let recorded = branch(fork.path);
            fork.next();
            recorded
        });
        drop(fork);
        self.joined = joined;
        self.lead()?;
        recorded
    }

    fn put_flow(&mut self, flow: &Flow<'_>, bodies: &mut [&mut Body<'_>]) -> Result<()> {
        self.settle()?;
        if let Some(session) = &self.session {
            session.check()?;
        }
        let plan = FlowPlan::record(self, flow, bodies)?;
        if let Some(session) = &self.session {
            session.check()?;
        }
        self.follow()?;
        let (node, in_turn) = match &mut self.place {
            Place::Live(graph) => draft::put_flow(graph, plan, &self.after, self.turn)?,
            Place::Draft(draft) => draft.flow(plan, &self.after, self.turn)?,
        };
        self.after.clear();
        self.after.push(node);
        if in_turn {
            self.turn = Some(node);
        }
        self.lead()
    }

    fn put_foreign(
        &mut self,
        location: &'static Location<'static>,
        work: &mut Foreign<'_>,
    ) -> Result<()> {
        if let Some(joined) = &self.joined {
            let stream = joined.stream().clone();
            driver::bind(stream.context())?;
            return work(&stream);
        }
        let block = self.begin_block(location)?;
        driver::bind(block.stream().context())?;
        let stream = block.stream().clone();
        match work(&stream) {
            Ok(()) => block.end(),
            Err(error) => Err(block.abandon(error)),
        }
    }
}

/// The branches of a parallel part. However it is left, the path goes on after all that they
/// recorded.
struct Fork<'a> {
    path: &'a mut Path,
    /// Where all branches start, and an empty one ends.
    start: &'a (Numbers, Option<u32>),
    ends: Numbers,
    turn: Option<u32>,
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
            self.ends.extend(path.after.iter().copied());
        }
        self.turn = self.turn.max(path.turn);
        path.after = self.start.0.clone();
        path.turn = self.start.1;
    }
}

impl Drop for Fork<'_> {
    fn drop(&mut self) {
        self.next();
        if !self.ends.is_empty() {
            self.ends.sort_unstable();
            self.ends.dedup();
            self.path.after = std::mem::take(&mut self.ends);
        }
        self.path.turn = self.turn;
    }
}

/// Foreign work in progress: the stream records it until the block ends.
///
/// Dropped before its end, it records nothing, and the recording goes on as before it.
#[must_use = "a block that is dropped records nothing"]
pub struct ForeignBlock<'a> {
    path: &'a mut Path,
    block: Option<Block>,
    location: &'static Location<'static>,
}

impl ForeignBlock<'_> {
    /// The stream to give work to.
    pub fn stream(&self) -> &Arc<CudaStream> {
        match (&self.block, &self.path.session) {
            (Some(block), _) => block.stream(),
            (None, Some(session)) => session.stream(),
            (None, None) => unreachable!("a block has a stream"),
        }
    }

    /// Ends the block: the recording goes on behind its work.
    ///
    /// # Errors
    ///
    /// [`Error::CaptureInvalidated`], [`Error::NotInBody`], [`Error::ForeignConditional`].
    pub fn end(mut self) -> Result<()> {
        let Some(block) = self.block.take() else {
            return Err(Error::RecordingOver);
        };
        let raw = block.end()?;
        let path = &mut *self.path;
        let graph = Graph::of_raw(path.graph().context(), raw, true);
        if driver::graph::is_empty(raw)? {
            return Ok(());
        }
        let tag = Tag {
            location: Some(self.location),
            ..Tag::default()
        };
        if path.is_fresh {
            if let Some(session) = &path.session {
                session.note_block(tag.location);
            }
            path.whole = Some((graph, tag));
            return Ok(());
        }
        path.adopt(&graph, tag)
    }

    fn abandon(mut self, error: Error) -> Error {
        match self.block.take() {
            Some(block) => block.abandon(error),
            None => error,
        }
    }
}

impl fmt::Debug for Path {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "Path in {:?} that goes on after {:?}",
            self.graph(),
            self.after
        )
    }
}
