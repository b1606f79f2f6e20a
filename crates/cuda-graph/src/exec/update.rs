//! Updates of executables: from a definition, and node by node.

use std::borrow::Borrow;
use std::sync::Arc;

use cudarc::driver::sys::{CUgraph, CUgraphNode, CUresult};

use super::table::Table;
use super::{Exec, Gone, skip};
use crate::error::{NodeKind, NodeName, UpdateFailure, Verdict};
use crate::graph::content::Content;
use crate::graph::diff::Compared;
use crate::graph::operation::Holds;
use crate::graph::state::{Hierarchy, State, lock_both};
use crate::graph::{AnyOp, ChildOp, Graph, Node, NodeId, Operation};
use crate::op::{KernelOp, Op, all_stay, stays_with};
use crate::{Error, Owner, Result, driver};

/// How an executable was updated from a graph.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub enum Updated {
    /// Every node took over what its counterpart does.
    InPlace,
    /// The graph was instantiated anew, because the driver could not do that.
    #[non_exhaustive]
    Instantiated {
        /// Why not.
        reason: UpdateFailure,
        /// The node of the graph at fault, where the driver names one.
        node: Option<Box<NodeName>>,
    },
}

impl Exec {
    /// Makes the executable do what `graph` says: in place, or where the driver cannot do that,
    /// because the topology is another one, say, by a new instantiation with the same options.
    ///
    /// Launches go on one after the other, also of what was instantiated before and after.
    ///
    /// # Errors
    ///
    /// As [`Graph::instantiate`]; [`Error::Update`] where this does not own the executable;
    /// [`Error::AlreadyCapturing`] where the stream of the last launch is captured and the graph
    /// must be instantiated. The executable is then what it was.
    pub fn update_from(&mut self, graph: &Graph) -> Result<Updated> {
        let (reason, node) = match self.update_in_place(graph) {
            Ok(()) => return Ok(Updated::InPlace),
            Err(Error::Update {
                reason, node, code, ..
            }) if self.owned && code == CUresult::CUDA_ERROR_GRAPH_EXEC_UPDATE_FAILURE => {
                (reason, node)
            }
            // A disabled node cannot be named any more.
            Err(Error::NodeGone { node }) if self.owned => {
                (UpdateFailure::TopologyChanged, Some(node))
            }
            Err(error) => return Err(error),
        };
        let options = self.options()?;
        let mut new = graph.instantiate_with(&options)?;
        new.behind = self.end_of_launches()?;
        drop(std::mem::replace(self, new));
        Ok(Updated::Instantiated { reason, node })
    }

    /// Updates every node from its counterpart in `graph`, which must have the same topology.
    ///
    /// # Errors
    ///
    /// [`Error::Update`] says why, and names the node where the driver does; [`Error::SideBySide`];
    /// [`Error::NodeGone`] where the definition lost a memset node that is disabled here. The
    /// executable is then what it was. If the driver fails to disable a memset node again, the
    /// update is made, and that node is enabled.
    pub fn update_in_place(&mut self, graph: &Graph) -> Result<()> {
        driver::bind(self.context())?;
        self.check_skipped()?;
        let own = self.source.clone();
        let (mut theirs, mut ours) = match &own {
            Some((own, _)) => lock_both(graph.hierarchy(), own),
            None => (graph.hierarchy().lock(), None),
        };
        let raw = theirs.body(graph.body_index())?.raw;
        let at_once = self
            .options
            .as_ref()
            .is_some_and(|options| options.loops_at_once);
        let others = graph.checked(&mut theirs, at_once)?;
        let body = graph.body_index();
        let mut gone = None;
        let updated = match self.is_optimized() {
            true => {
                let compared = self.compare(graph, &mut theirs, ours.as_deref_mut());
                if let Ok(Compared { difference, .. }) = &compared
                    && let Verdict::Refused { reason, node } = difference.verdict().clone()
                {
                    let difference = Some(Arc::new(difference.clone()));
                    // After unlocking: dropping what operations hold may run user code.
                    drop((theirs, ours));
                    drop(compared);
                    return Err(Error::Update {
                        difference,
                        reason,
                        node,
                        code: CUresult::CUDA_ERROR_GRAPH_EXEC_UPDATE_FAILURE,
                    });
                }
                gone = compared.ok();
                let pairing = self.pairing_with(&mut theirs, ours.as_deref_mut(), body);
                self.update_all_optimized(&mut theirs, body, raw, pairing)
            }
            false => self.update_raw(&theirs, raw),
        };
        if let Err(mut error) = updated {
            let compared = self.compare(graph, &mut theirs, ours.as_deref_mut());
            if let (Error::Update { difference, .. }, Ok(compared)) = (&mut error, &compared) {
                *difference = Some(Arc::new(compared.difference.clone()));
            }
            // After unlocking: dropping what operations hold may run user code.
            drop((theirs, ours));
            drop((compared, gone));
            return Err(error);
        }
        let mut new = Table::of(&mut theirs, body);
        if let Some((_, root)) = own
            && (ours.is_some() || root != body)
        {
            new = Table::holding(new);
            let state = ours.as_deref_mut().unwrap_or(&mut theirs);
            if let (Some(shape), Ok(other)) = (self.shape(state), theirs.shape(body)) {
                new.pair(&self.table, &shape, &other, &theirs);
            } else {
                new.forget(&self.table);
            }
            self.is_replaced = true;
        }
        if self.optimized.as_ref().is_some_and(|made| made.has_read()) {
            new.hold(graph.hierarchy().clone());
        }
        let old = std::mem::replace(&mut self.table, new);
        (self.claim, self.others) = (theirs.claim(body), others);
        drop((ours, theirs));
        drop(gone);
        self.retire(old, Gone::all);
        self.skip_again(|_| true)
    }

    /// Has the driver update every node from a graph.
    pub(super) fn update_raw(&self, theirs: &State, raw: CUgraph) -> Result<()> {
        let (result, verdict) = driver::exec::update(self.raw, raw);
        result.map_err(|error| match error {
            Error::Call { code, .. } => Error::Update {
                difference: None,
                reason: match verdict.result {
                    0 | 1 => UpdateFailure::Driver,
                    2 => UpdateFailure::TopologyChanged,
                    3 => UpdateFailure::KindChanged,
                    4 => UpdateFailure::FunctionChanged,
                    5 => UpdateFailure::ParametersChanged,
                    6 => UpdateFailure::NotSupported,
                    7 => UpdateFailure::FunctionNotSupported,
                    8 => UpdateFailure::AttributesChanged,
                    other => UpdateFailure::Other(other),
                },
                node: theirs.name_of_raw(verdict.node),
                code,
            },
            error => error,
        })
    }

    /// Makes one node do `op` from the next launch on. The definition stays as it is.
    ///
    /// `node` is a node of the graph that the executable was made from, or of a graph inside of it.
    /// This works after the definition is gone too. What the node used before is let go as soon as
    /// no launch in flight uses it.
    ///
    /// # Errors
    ///
    /// [`Error::ForeignNode`]; [`Error::NotInExecutable`]; [`Error::NodeGone`] if the definition
    /// lost the node; [`Error::WrongKind`]; [`Error::AttributesFixed`] if the launch attributes are
    /// not those that the node has in the executable; [`Error::ConditionalFixed`];
    /// [`Error::Unowned`]; [`Error::ForeignCondition`]; [`Error::UnknownSource`]. Otherwise what the
    /// driver answers, with the node's name.
    #[inline]
    pub fn update<O: Operation>(&mut self, node: Node<O>, op: impl Borrow<O>) -> Result<()> {
        // The node is looked at where it lies: the compiler would copy it to the stack.
        let (op, id) = (op.borrow(), node.id_ref());
        if let Some(launch) = op.launch()
            && op.of_communicator().is_none()
            && (self.updates_at_once(id, launch)? || self.updates_plain(id, launch)?)
        {
            return Ok(());
        }
        self.update_by(id, op)
    }

    /// Updates a node by a plain launch, in the place of one with the same outline. Most updates
    /// are such, and there is little to ask then. Returns `false` for all others.
    ///
    /// With `AT_ONCE` it serves the most frequent ones alone: those of the root's nodes, by the
    /// thread that owns the definition's lock.
    #[inline(always)]
    fn updates_plainly<const AT_ONCE: bool>(&mut self, id: &NodeId, op: &KernelOp) -> Result<bool> {
        let Some((source, _)) = &self.source else {
            return Ok(false);
        };
        if AT_ONCE && id.body != 0 {
            return Ok(false);
        }
        if id.hierarchy != source.id || self.optimized.is_some() || self.context.is_some() {
            return Ok(false);
        }
        let Some(AnyOp::Kernel(now)) = self.table.own(id) else {
            return Ok(false);
        };
        let Some(alike) = op.alike(now) else {
            return Ok(false);
        };
        driver::bind_some(&source.context)?;
        let set = {
            let Some(state) = source.look_as::<AT_ONCE>() else {
                return Ok(false);
            };
            let Some(raw) = state.handle_of(id) else {
                return Ok(false);
            };
            alike.set_in(&source.context, self.raw, raw)
        };
        match set {
            Err(error) => return Err(self.update_failed(*id, error)),
            Ok(()) if !alike.assign() => self.replace_plain(*id, op),
            Ok(()) => {}
        }
        Ok(true)
    }

    /// As [`updates_plainly`](Exec::updates_plainly), once and not in each caller: a call costs
    /// nothing here.
    #[inline(never)]
    fn updates_at_once(&mut self, id: &NodeId, op: &KernelOp) -> Result<bool> {
        self.updates_plainly::<true>(id, op)
    }

    /// As [`updates_plainly`](Exec::updates_plainly), in bodies and other threads too.
    #[cold]
    #[inline(never)]
    fn updates_plain(&mut self, id: &NodeId, op: &KernelOp) -> Result<bool> {
        self.updates_plainly::<false>(id, op)
    }

    #[cold]
    #[inline(never)]
    fn update_failed(&self, id: NodeId, error: Error) -> Error {
        error.about(self.table.name(id), "updating")
    }

    /// Puts a launch in the place of another one that holds something else.
    #[cold]
    #[inline(never)]
    fn replace_plain(&mut self, id: NodeId, op: &KernelOp) {
        if let Some(now) = self.table.own(&id) {
            let old = std::mem::replace(now, AnyOp::Kernel(op.clone()));
            self.replaced(id, old, op.owners());
        }
    }

    /// Lets go of what a node did, and `now` does not hold too, once no launch uses it. No launch
    /// can come before that, so what is held now is held in time.
    #[inline]
    fn replaced(&mut self, id: NodeId, old: Content, now: &[Owner]) {
        if !old.is_held_by(now) {
            self.retire((old, Table::default()), |gone, old| gone.node(id, old));
        }
    }

    /// As [`update`](Exec::update), of any operation: it asks everything.
    #[inline(never)]
    fn update_by<O: Operation>(&mut self, id: &NodeId, op: &O) -> Result<()> {
        if let Holds::Copy(child) = op.holds() {
            return self.update_child(*id, child);
        }
        let Some((source, _)) = &self.source else {
            return Err(Error::UnknownSource);
        };
        let is_skipped = self.skips(*id);
        let Some(content) = self.table.edit(id).filter(|_| id.hierarchy == source.id) else {
            return Err(self.why_not_found(*id));
        };
        check(source, content, *id, op)?;
        if self.optimized.is_some() {
            return self.update_optimized(*id, op.clone().into_any());
        }
        let context = self.context.as_ref().unwrap_or(&source.context);
        driver::bind_some(context)?;
        let state = source.look();
        let Some(raw) = state.handle_of(id) else {
            drop(state);
            return Err(self.why_not_found(*id));
        };
        let mut set = op.set_in(context, self.raw, raw);
        if is_skipped && set.is_ok() {
            let skip = |does: &AnyOp| skip::set_enabled(context, self.raw, raw, Some(does), false);
            set = skip(&op.clone().into_any());
            if let (Err(_), Some(old)) = (&set, content.op()) {
                // It is skipped as before. If that fails too, nothing can be done.
                let _ = old.set_in(context, self.raw, raw).and_then(|()| skip(old));
            }
        }
        drop(state);
        if let Err(error) = set {
            return Err(error.about(content.name(id.index), "updating"));
        }
        if !op.assign_to_any(content) {
            let old = std::mem::replace(content, op.clone().into_any());
            self.replaced(*id, old, op.owners());
        }
        Ok(())
    }

    /// As [`update`](Exec::update), of an executable of another graph than the definition.
    #[cold]
    fn update_optimized(&mut self, id: NodeId, op: AnyOp) -> Result<()> {
        driver::bind_some(self.context())?;
        let is_there = |(source, _): &(Arc<Hierarchy>, u32)| source.look().handle_of(&id).is_some();
        if !self.source.as_ref().is_some_and(is_there) {
            return Err(self.why_not_found(id));
        }
        if id.kind == NodeKind::Conditional {
            let name = self.table.name(id);
            let node = Box::new(name.clone());
            return Err(Error::ConditionalFixed { node }.about(name, "updating"));
        }
        self.set_optimized(&[(id, &op)], &|exec, id, _| exec.table.name(id))
            .map_err(|(error, _)| error)?;
        let Some(content) = self.table.edit(&id) else {
            return Ok(());
        };
        let old = std::mem::replace(content, op.clone());
        self.note_optimized();
        self.replaced(id, old, op.owners());
        Ok(())
    }

    /// Makes one node run what another graph does now.
    pub(super) fn update_child(&mut self, id: NodeId, op: &ChildOp) -> Result<()> {
        driver::bind(self.context())?;
        let source = self.find(id)?.0.clone();
        if id.kind != NodeKind::Child {
            return Err(Error::WrongKind {
                is: id.kind,
                wanted: NodeKind::Child,
            });
        }
        let mut stand = None;
        if self.is_optimized() {
            self.without_passes()?;
            stand = Some(self.stand_of(id)?);
        }
        let view = op.view();
        let (mut state, other) = lock_both(&source, &view.hierarchy);
        let Some(raw) = state.handle_of(&id) else {
            drop((state, other));
            return Err(self.why_not_found(id));
        };
        // The graph inside gets a number now, so that its nodes have places in the table.
        let inside = state.child(id.body, id.index)?;
        let had = state.communicators(inside);
        let mut other = other;
        let from: &mut State = match &mut other {
            Some(other) => other,
            None => &mut state,
        };
        let has = from.communicators(view.body);
        if !all_stay(&has, &had) {
            let node = Box::new(self.table.name(id));
            return Err(Error::CommunicatorFixed { node });
        }
        op.graph().check_collectives(from)?;
        let inner = from.body(view.body)?.raw;
        let held = Table::of(from, view.body);
        driver::exec::set_child(self.raw, stand.unwrap_or(raw), inner)
            .map_err(|error| error.about(self.table.name(id), "updating"))?;
        // Among them those of a graph that was embedded there before, and that the definition lost.
        let old = self
            .table
            .take_if(|number| state.is_inside(number, (id.body, id.index)));
        let shape = self.shape(&mut state);
        let from: &mut State = match &mut other {
            Some(other) => other,
            None => &mut state,
        };
        let shape = shape.as_ref().and_then(|shape| shape.find(inside));
        if let (Some(shape), Ok(other)) = (shape, from.shape(view.body)) {
            self.table.pair(&old, shape, &other, from);
        } else {
            self.table.forget(&old);
        }
        self.is_replaced = true;
        let numbers = 0..state.bodies.len();
        let within: Vec<u32> = numbers
            .filter(|number| state.is_inside(*number, (id.body, id.index)))
            .collect();
        drop(state);
        drop(other);
        // The driver pairs the nodes: what the whole graph uses is held at its node.
        let content = Content::other(NodeKind::Child, op.tag().clone(), vec![held.into_owner()]);
        if let Some(place) = self.table.edit(&id) {
            let replaced = std::mem::replace(place, content);
            self.retire((replaced, old), |gone, old| gone.node(id, old));
        }
        if let Some(optimized) = &mut self.optimized {
            optimized.forget_copies_of(&within);
        }
        self.skip_again(|node| within.contains(&node.body))
    }

    /// What a node does now.
    ///
    /// # Errors
    ///
    /// [`Error::UnknownOperation`] if other code made the node, or an update from another graph
    /// replaced what was known. Otherwise as [`update`](Exec::update).
    pub fn op<O: Operation>(&self, node: Node<O>) -> Result<O> {
        let id = node.id();
        let (_, content) = self.find(id)?;
        let name = || Box::new(content.name(id.index));
        let op = content
            .op()
            .ok_or_else(|| Error::UnknownOperation { node: name() })?;
        O::from_any(op.clone()).ok_or_else(|| Error::WrongBranching { node: name() })
    }

    pub(super) fn on_node<R>(
        &self,
        id: NodeId,
        action: &'static str,
        call: impl FnOnce(CUgraphNode) -> Result<R>,
    ) -> Result<R> {
        driver::bind(self.context())?;
        let (source, content) = self.find(id)?;
        let name = || content.name(id.index);
        if id.kind == NodeKind::Conditional {
            let node = Box::new(name());
            return Err(Error::ConditionalFixed { node }.about(name(), action));
        }
        let state = source.look();
        let Some(raw) = state.handle_of(&id) else {
            drop(state);
            return Err(self.why_not_found(id));
        };
        call(raw).map_err(|error| error.about(name(), action))
    }

    /// The definition, and what the node does now.
    fn find(&self, id: NodeId) -> Result<(&Arc<Hierarchy>, &Content)> {
        let (source, _) = self.source.as_ref().ok_or(Error::UnknownSource)?;
        let content = self.table.get(id).filter(|_| id.hierarchy == source.id);
        Ok((source, content.ok_or_else(|| self.why_not_found(id))?))
    }

    #[cold]
    fn why_not_found(&self, id: NodeId) -> Error {
        match &self.source {
            None => Error::UnknownSource,
            Some((source, _)) if source.id != id.hierarchy => Error::ForeignNode {
                node: id.index,
                kind: id.kind,
            },
            Some((source, _)) => {
                let state = source.look();
                let body = state.bodies.get(id.body);
                match (self.table.get(id), body) {
                    (Some(_), Some(body)) if body.raw.is_null() => Error::GraphGone,
                    (Some(now), _) => Error::NodeGone {
                        node: Box::new(now.name(id.index)),
                    },
                    (None, Some(body)) => Error::NotInExecutable {
                        node: Box::new(body.name(id.index)),
                    },
                    (None, None) => Error::GraphGone,
                }
            }
        }
    }
}

/// Refuses what the node cannot do. Plain launches can take each other's place.
fn check<O: Operation>(source: &Hierarchy, now: &Content, id: NodeId, op: &O) -> Result<()> {
    let name = || Box::new(now.name(id.index));
    if op.kind() != id.kind {
        return Err(Error::WrongKind {
            is: id.kind,
            wanted: op.kind(),
        });
    }
    if op.tag().unowned {
        return Err(Error::Unowned { node: name() });
    }
    if op.condition_of().is_some_and(|of| of != source.id) {
        return Err(Error::ForeignCondition);
    }
    if !stays_with(op, now) {
        return Err(Error::CommunicatorFixed { node: name() });
    }
    // The driver decides about nodes that this library did not make.
    if matches!(now, AnyOp::Kernel(_) | AnyOp::Fill(_))
        && !(op.attributes().is_empty() && now.attributes().is_empty())
        && op.attributes() != now.attributes()
    {
        return Err(Error::AttributesFixed { node: name() });
    }
    Ok(())
}

impl State {
    /// The driver's handle of a node of this hierarchy, if it is there.
    #[inline]
    pub(super) fn handle_of(&self, id: &NodeId) -> Option<CUgraphNode> {
        // A graph that is gone has no nodes.
        self.bodies.get(id.body)?.handle(id.index)
    }
}
