//! Updates of executables: from a definition, and node by node.

use std::borrow::Borrow;
use std::fmt;

use cudarc::driver::sys::CUgraphNode;

use super::Exec;
use crate::graph::snapshot::Snapshot;
use crate::graph::state::{Hierarchy, Locked, Slot, State, lock_both};
use crate::graph::{Graph, Node, NodeId};
use crate::op::{ChildOp, NodeKind, Operation};
use crate::retain::Holdings;
use crate::{Error, Result, driver};

/// Why an executable cannot be updated from a definition.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum UpdateFailure {
    /// The driver failed for a reason of its own.
    Driver,
    /// There are other nodes or edges.
    TopologyChanged,
    /// A node is of another kind.
    KindChanged,
    /// A kernel's function is another one where it may not be.
    FunctionChanged,
    /// A parameter that may not change did.
    ParametersChanged,
    /// Something about a node cannot be updated.
    NotSupported,
    /// A kernel's function changed in a way that cannot be updated.
    FunctionNotSupported,
    /// A launch attribute that may not change did.
    AttributesChanged,
    /// A reason that this library does not know.
    Other(u32),
}

impl fmt::Display for UpdateFailure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            UpdateFailure::Driver => "the driver failed",
            UpdateFailure::TopologyChanged => "the nodes or edges are others",
            UpdateFailure::KindChanged => "a node is of another kind",
            UpdateFailure::FunctionChanged => "a kernel's function changed",
            UpdateFailure::ParametersChanged => "a parameter changed that may not",
            UpdateFailure::NotSupported => "a node's change is not supported",
            UpdateFailure::FunctionNotSupported => {
                "a kernel's function changed in a way that is not supported"
            }
            UpdateFailure::AttributesChanged => "a launch attribute changed that may not",
            UpdateFailure::Other(reason) => return write!(f, "reason {reason}"),
        })
    }
}

impl Exec {
    /// Has every node do what its counterpart in `graph` does, a graph of the same topology. What per-node updates gave is let go once
    /// no launch in flight uses it.
    ///
    /// # Errors
    ///
    /// [`Error::Update`] says why, and names the node where the driver does. The executable is then what it was.
    pub fn update_from(&mut self, graph: &Graph) -> Result<()> {
        driver::bind(&self.context)?;
        let mut state = graph.hierarchy().lock();
        let raw = state.body(graph.body_index())?.raw;
        state.is_whole()?;
        let (result, verdict) = driver::exec::update(self.raw, raw);
        match result {
            Ok(()) => {
                let mut holdings = Holdings::default();
                state.hold(graph.body_index(), &mut holdings);
                drop(state);
                self.release(|exec| exec.holdings.replace(holdings));
                Ok(())
            }
            Err(Error::Call { source, .. }) => Err(Error::Update {
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
                node: graph.name_of_raw(&mut state, verdict.node),
                source,
            }),
            Err(error) => Err(error),
        }
    }

    /// Has one node do `op` from the next launch on; the definition stays as it is. `node` is one of the graph that the executable was made
    /// from, or of a graph embedded in it.
    ///
    /// The executable holds what the operation uses until it is dropped or updated from a definition.
    ///
    /// # Errors
    ///
    /// [`Error::AttributesFixed`] when the launch attributes are not those of the node in the definition; [`Error::GraphGone`] and
    /// [`Error::NodeGone`] when the definition or the node is gone; [`Error::ForeignNode`]; [`Error::NotInExecutable`]; else what the driver says, naming the node.
    #[inline]
    pub fn update<O: Operation>(&mut self, node: Node<O>, op: impl Borrow<O>) -> Result<()> {
        let op = op.borrow();
        if let Some(child) = op.child() {
            return self.update_child(node.id(), child);
        }
        let Some(source) = self.source.as_deref() else {
            return Err(Error::UnknownSource);
        };
        let id = node.id();
        let state = source.look();
        let slot = find(source, &state, self.made(), id)?;
        if op.kind() != id.kind {
            return Err(Error::WrongKind {
                is: id.kind,
                wanted: op.kind(),
            });
        }
        if op.condition_of().is_some_and(|of| of != state.conditions) {
            return Err(Error::ForeignCondition);
        }
        if let Some(attributes) = op.attributes()
            && !(slot.is_plain && attributes.is_empty())
        {
            check_attributes(&state, id, slot, attributes)?;
        }
        let result = driver::bound_if_wanted(&self.context, || {
            op.set_in(&self.context, self.raw, slot.raw)
        });
        match result {
            Ok(()) => {
                // No launch can come between, so held now is held in time.
                self.holdings.take(op.owners());
                Ok(())
            }
            Err(error) => {
                Err(error.about(state.bodies[id.body as usize].name(id.index), "updating"))
            }
        }
    }

    /// Has one node run what another graph does now.
    fn update_child(&mut self, id: NodeId, op: &ChildOp) -> Result<()> {
        driver::bind(&self.context)?;
        let source = self.source.as_deref().ok_or(Error::UnknownSource)?;
        let (state, other) = lock_both(source, op.graph.hierarchy());
        let raw = find(source, &state, self.made(), id)?.raw;
        if id.kind != NodeKind::Child {
            return Err(Error::WrongKind {
                is: id.kind,
                wanted: NodeKind::Child,
            });
        }
        let from: &Locked<'_> = other.as_ref().unwrap_or(&state);
        let inner = from.body(op.graph.body)?.raw;
        let known = Snapshot::of(from, op.graph.body)?;
        driver::exec::set_child(self.raw, raw, inner).map_err(|error| {
            error.about(state.bodies[id.body as usize].name(id.index), "updating")
        })?;
        known.each_owner(&mut |owner| self.holdings.take(std::slice::from_ref(owner)));
        Ok(())
    }

    /// When it was made: how often its source was restored before, and how many executables there were.
    #[inline]
    fn made(&self) -> (u32, u32) {
        (self.restored, self.before)
    }

    pub(super) fn on_node<R>(
        &self,
        id: NodeId,
        action: &'static str,
        call: impl FnOnce(CUgraphNode) -> Result<R>,
    ) -> Result<R> {
        driver::bind(&self.context)?;
        let source = self.source.as_deref().ok_or(Error::UnknownSource)?;
        let state = source.lock();
        let raw = find(source, &state, self.made(), id)?.raw;
        let result = match id.kind {
            // The driver would say no more than that a value is invalid.
            NodeKind::Conditional => Err(Error::InvalidOperation {
                why: "a conditional node is always enabled: set its condition so that no body runs, or disable what its bodies hold".into(),
            }),
            _ => call(raw),
        };
        result.map_err(|error| error.about(state.bodies[id.body as usize].name(id.index), action))
    }
}

/// What is known of a node at any depth of the executable's definition.
#[inline]
fn find<'a>(
    source: &Hierarchy,
    state: &'a State,
    made: (u32, u32),
    id: NodeId,
) -> Result<&'a Slot> {
    // When the root is gone, no body is known.
    if id.hierarchy == source.id
        && state.restored == made.0
        && let Some(body) = state.bodies.get(id.body as usize)
        && let Some(slot) = body.nodes.get(id.index as usize)
        && !slot.raw.is_null()
        && !body.raw.is_null()
        && slot.after <= made.1
    {
        return Ok(slot);
    }
    Err(why_not_found(source, state, made, id))
}

#[cold]
fn why_not_found(source: &Hierarchy, state: &State, made: (u32, u32), id: NodeId) -> Error {
    if id.hierarchy == source.id && state.restored != made.0 {
        return Error::UnknownSource;
    }
    // Asked first: when the root is gone, every node is, and of nodes no longer known a name says nothing.
    let found = state.body(0).and_then(|_| {
        if id.hierarchy != source.id {
            return Err(Error::ForeignNode {
                node: id.index,
                kind: id.kind,
            });
        }
        let body = state.body(id.body)?;
        crate::graph::state::resolve(source.id, id.body, body, id)?;
        Err::<(), _>(Error::NotInExecutable {
            node: Box::new(body.name(id.index)),
        })
    });
    found.err().unwrap_or(Error::GraphGone)
}

fn check_attributes(
    state: &State,
    id: NodeId,
    slot: &Slot,
    attributes: &[crate::op::LaunchAttribute],
) -> Result<()> {
    debug_assert_eq!(id.kind, NodeKind::Kernel);
    let fixed = match slot.content.op() {
        Some(crate::op::AnyOp::Kernel(op)) => op.attributes(),
        // Of a node that this library did not make, the driver decides.
        _ => return Ok(()),
    };
    if fixed == attributes {
        return Ok(());
    }
    Err(Error::AttributesFixed {
        node: Box::new(state.body(id.body)?.name(id.index)),
    })
}
