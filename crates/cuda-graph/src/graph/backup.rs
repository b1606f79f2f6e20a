//! A graph that something may destroy, saved.
//!
//! A capture into a graph destroys the graph when it fails; the driver sees to that. So that nothing is lost, a copy is
//! made before, and takes the graph's place: its handles, nodes included, are then those of the copy. Executables made
//! before cannot be updated node by node any more, because the driver knows their nodes by the old handles:
//! `State::restored` tells.

use std::mem;

use cudarc::driver::sys::CUgraph;

use super::state::{Body, Slot, State, next_number};
use super::{Graph, View};
use crate::{Error, Result, driver};

/// A copy of a graph, ready to take its place, with all that was known of the graph when it was made: what nodes were
/// given to do since, the copy's do not.
pub(crate) struct Backup {
    /// The graph, which takes no other capture while there is a backup.
    of: View,
    raw: CUgraph,
    /// The graphs of the hierarchy by their numbers, as they were but with the handles of the copy; none where one was
    /// gone.
    bodies: Vec<Option<Body>>,
}

// SAFETY: raw handles of the driver, used under the hierarchy's lock alone.
unsafe impl Send for Backup {}
// SAFETY: as above.
unsafe impl Sync for Backup {}

impl Drop for Backup {
    fn drop(&mut self) {
        if !self.raw.is_null()
            && let Err(error) = driver::graph::destroy(self.raw)
        {
            tracing::error!("the copy of a graph leaks: {error}");
        }
        self.of.hierarchy().lock().backed_up = false;
    }
}

impl Backup {
    /// Notes graph `number`, whose copy is `copy`, and what is embedded in it.
    fn note(&mut self, state: &State, number: u32, copy: CUgraph) -> Result<()> {
        let body = state.body(number)?;
        let mut saved = Body::new(copy, body.parent, body.ascending);
        saved.lingering = body.lingering.clone();
        for slot in &body.nodes {
            saved.nodes.push(if slot.raw.is_null() {
                slot.gone()
            } else {
                let raw = driver::graph::find_in_clone(slot.raw, copy)?;
                if let Some(child) = slot.child {
                    self.note(state, child, driver::node::child(raw)?)?;
                }
                Slot {
                    raw,
                    content: slot.content.clone(),
                    ..*slot
                }
            });
        }
        self.bodies[number as usize] = Some(saved);
        Ok(())
    }
}

impl Graph {
    /// Whether it is captured into, a body of a conditional node, from now on.
    ///
    /// # Errors
    ///
    /// [`Error::InvalidOperation`] when it was already, and is to be.
    pub(crate) fn set_captured(&self, captured: bool) -> Result<()> {
        let mut state = self.hierarchy().lock();
        let before = &mut state.body_mut(self.body_index())?.captured;
        if mem::replace(before, captured) && captured {
            return Err(captured_already());
        }
        Ok(())
    }

    /// A copy that can take this graph's place.
    ///
    /// # Errors
    ///
    /// [`Error::InvalidOperation`] for a graph that is embedded in another, or that something else owns; the driver's
    /// for one that it does not copy.
    pub(crate) fn back_up(&self) -> Result<Backup> {
        if self.body_index() != 0 {
            return Err(Error::InvalidOperation {
                why: "an embedded graph cannot be captured into, because a capture that fails destroys it: capture a graph and embed that"
                    .into(),
            });
        }
        if !self.view.keeper.owned {
            return Err(Error::InvalidOperation {
                why: "a borrowed graph cannot be captured into, because a capture that fails destroys it, and its owner would again"
                    .into(),
            });
        }
        let mut state = self.hierarchy().lock();
        state.body(0)?;
        if mem::replace(&mut state.backed_up, true) {
            return Err(captured_already());
        }
        drop(state);
        let mut backup = Backup {
            of: self.view(),
            raw: std::ptr::null_mut(),
            bodies: Vec::new(),
        };
        // Given back before the backup is dropped, which takes it, on an error.
        let state = self.hierarchy().lock();
        let copy = driver::graph::clone(state.body(0)?.raw)?;
        backup.raw = copy;
        backup.bodies = state.bodies.iter().map(|_| None).collect();
        backup.note(&state, 0, copy)?;
        drop(state);
        Ok(backup)
    }

    /// Has `backup` take the place of this graph, which the driver destroyed if it is `gone`. Nodes that are not in the
    /// backup are gone.
    pub(crate) fn restore(&self, mut backup: Backup, gone: bool) {
        let mut state = self.hierarchy().lock();
        let old = mem::take(&mut state.bodies);
        for (number, body) in old.iter().enumerate() {
            let saved = backup.bodies.get_mut(number).and_then(Option::take);
            let mut now =
                saved.unwrap_or_else(|| Body::new(std::ptr::null_mut(), body.parent, false));
            // Numbers that were given meanwhile are not given again.
            let new = &body.nodes[now.nodes.len()..];
            now.nodes.extend(new.iter().map(Slot::gone));
            state.bodies.push(now);
        }
        state.restored += 1;
        state.conditions = next_number();
        // There was none in what could be copied.
        state.spare.clear();
        state.half.clear();
        backup.raw = std::ptr::null_mut();
        // Null where something in it was destroyed under it: then it is not touched again.
        if !gone
            && !old[0].raw.is_null()
            && let Err(error) = driver::graph::destroy(old[0].raw)
        {
            tracing::error!("a graph leaks: {error}");
        }
        drop(state);
        // Outside of the lock: dropping what it holds runs foreign code.
        drop(old);
    }

    /// The driver destroyed this graph. Where that is not the root, the root cannot be destroyed any more, and leaks.
    pub(crate) fn forsake(&self) {
        let mut state = self.hierarchy().lock();
        if self.body_index() != 0 && !state.bodies[0].raw.is_null() {
            tracing::warn!(
                "graph {} leaks: a capture into a body of it failed, and the driver destroyed the body under its node",
                self.hierarchy().id
            );
        }
        let bodies = mem::take(&mut state.bodies);
        // Their numbers are not given again.
        state.bodies = bodies.iter().map(Body::gone).collect();
        drop(state);
        // Outside of the lock: dropping what it holds runs foreign code.
        drop(bodies);
    }
}

fn captured_already() -> Error {
    Error::InvalidOperation {
        why: "the graph is captured into already: end that capture first".into(),
    }
}
