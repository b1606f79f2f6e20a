//! What an update from a definition would change.

use std::sync::Arc;

use super::Exec;
use crate::error::Difference;
use crate::graph::Graph;
use crate::graph::NodeId;
use crate::graph::diff::{Compared, Snapshot, Terms};
use crate::graph::shape::Shape;
use crate::graph::state::{State, lock_both};
use crate::{Error, Result, driver};

impl Exec {
    /// What is different about `new`, and whether [`update_in_place`](Exec::update_in_place) takes
    /// it, as [`Graph::diff`] tells. Nothing is updated.
    ///
    /// `new` is compared with what the nodes of this executable do now, by the edges that its
    /// definition had when this was made: later edits of the definition count as little as they do
    /// for the driver. Nodes of other code are read from the definition, unless an update replaced
    /// what they do; then that is not known.
    ///
    /// # Errors
    ///
    /// [`Error::UnknownSource`]; [`Error::GraphGone`]. Otherwise as [`Graph::diff`].
    pub fn diff(&self, new: &Graph) -> Result<Difference> {
        driver::bind(self.context())?;
        let (own, _) = self.source.as_ref().ok_or(Error::UnknownSource)?;
        let (mut theirs, mut ours) = lock_both(new.hierarchy(), own);
        let compared = self.compare(new, &mut theirs, ours.as_deref_mut());
        // After unlocking: dropping what operations hold may run user code.
        drop((theirs, ours));
        Ok(compared?.difference)
    }

    /// The shape that its definition, of which `state` is, had when this was made.
    pub(super) fn shape(&self, state: &mut State) -> Option<Arc<Shape>> {
        let (_, root) = self.source.as_ref()?;
        state.shape_at(self.version?, *root)
    }

    /// Compares with `new`, whose hierarchy is locked. `ours` is this executable's definition, if
    /// that is another hierarchy.
    pub(super) fn compare(
        &self,
        new: &Graph,
        theirs: &mut State,
        ours: Option<&mut State>,
    ) -> Result<Compared> {
        let (own, _) = self.source.as_ref().ok_or(Error::UnknownSource)?;
        let state: &mut State = match ours {
            Some(ours) => ours,
            None => theirs,
        };
        let shape = self.shape(state).ok_or(Error::GraphGone)?;
        let mut old = Snapshot::with(own, &shape, &mut |body, index| {
            let place = NodeId {
                hierarchy: own.id,
                body,
                index,
                kind: crate::NodeKind::Empty,
            };
            let content = self.table.get(place);
            if let Some(op) = content.and_then(|content| content.op()) {
                return op.clone();
            }
            // What is not known here is what the definition says, as long as both say nothing.
            let defined = state.bodies.get(body);
            let defined = defined.and_then(|graph| graph.content(index));
            match (content, defined) {
                (_, Some(defined)) if defined.op().is_none() && !self.is_replaced => {
                    state.does(body, index)
                }
                (Some(content), _) | (None, Some(content)) => content.name_only(),
                (None, None) => state.does(body, index),
            }
        });
        old.each(&mut |node| {
            let defined = state.bodies.get(node.id.body);
            let defined = defined.and_then(|graph| graph.content(node.id.index));
            let content = self.table.get(node.id);
            node.is_defined = !self.is_replaced
                && content.is_none_or(|content| content.op().is_none())
                && defined.is_some_and(|content| content.op().is_none());
        });
        let claim = theirs.claim.upgrade();
        let own_claim = self.claim.as_ref();
        let options = self.options().unwrap_or_default();
        let terms = Terms {
            node_priority: options.node_priority,
            loops_at_once: options.loops_at_once,
            is_claimed: claim
                .is_some_and(|claim| own_claim.is_none_or(|own| !Arc::ptr_eq(own, &claim))),
        };
        new.compared_with(&old, theirs, &terms)
    }
}
