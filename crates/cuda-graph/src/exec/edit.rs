//! Updates of several nodes at once, for a replay.

use super::Exec;
use super::table::Table;
use crate::graph::{AnyOp, NodeId};
use crate::op::Op;
use crate::{Error, Owner, Result, driver};

/// What a node of an executable is to do.
pub(crate) struct Edit {
    /// Whose place in a script the node is.
    pub item: u32,
    pub node: NodeId,
    pub op: AnyOp,
}

/// Why nodes were not set.
pub(crate) struct Refused {
    pub error: Error,
    /// Every node does what it did before. Otherwise the executable is of no more use.
    pub restored: bool,
}

impl Exec {
    /// What a node does now.
    #[inline]
    pub(crate) fn now(&self, node: NodeId) -> Option<&AnyOp> {
        self.table.get(node)
    }

    /// Has the driver set every node, or none. Until [`hold_each`](Exec::hold_each), the executable
    /// does not hold what they use.
    pub(crate) fn set_each(&mut self, edits: &[Edit]) -> std::result::Result<(), Refused> {
        let nothing_done = |error| Refused {
            error,
            restored: true,
        };
        driver::bind(&self.context).map_err(nothing_done)?;
        let Some((source, _)) = &self.source else {
            return Err(nothing_done(Error::UnknownSource));
        };
        // Nobody else has the definition of a replayed executable, so nobody waits.
        let state = source.look();
        for (done, edit) in edits.iter().enumerate() {
            let set = match state.handle_of(edit.node) {
                Some(raw) => edit.op.set_in(&self.context, self.raw, raw),
                None => Err(Error::GraphGone),
            };
            let Err(error) = set else { continue };
            let restored = edits[..done].iter().rev().all(|edit| {
                let old = self.table.get(edit.node).and_then(AnyOp::op);
                let raw = state.handle_of(edit.node);
                let restored = old
                    .zip(raw)
                    .map(|(old, raw)| old.set_in(&self.context, self.raw, raw));
                matches!(restored, Some(Ok(())))
            });
            let error = error.about(edit.op.name(edit.node.index), "updating");
            return Err(Refused { error, restored });
        }
        Ok(())
    }

    /// Holds what the nodes use that were [set](Exec::set_each).
    pub(crate) fn hold_each(&mut self, edits: impl Iterator<Item = Edit>) {
        for Edit { node, op, .. } in edits {
            let Some(content) = self.table.edit(node) else {
                continue;
            };
            let old = std::mem::replace(content, op);
            if !old.is_held_by(content.owners()) {
                self.retire((old, Table::default()), |gone, old| gone.node(node, old));
            }
        }
    }

    /// Drops `owner` once no launch uses it any more.
    pub(crate) fn let_go(&mut self, owner: Owner) {
        self.retire(owner, |gone, owner| {
            gone.others.push(owner);
            None
        });
    }

    /// Calls `visit` with everything that the nodes hold.
    pub(crate) fn each_owner(&self, visit: &mut dyn FnMut(&Owner)) {
        self.table.each_owner(visit);
    }

    /// Makes a node run `graph`, as [`update`](Exec::update) does.
    pub(crate) fn set_graph(&mut self, node: NodeId, graph: &crate::graph::ChildOp) -> Result<()> {
        self.update_child(node, graph)
    }

    /// How many nodes it has, with those of bodies and embedded graphs as far as they are known.
    pub(crate) fn node_count(&self) -> usize {
        self.table.node_count()
    }
}
