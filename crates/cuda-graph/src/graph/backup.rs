//! A graph that something may destroy, saved.
//!
//! A capture into a graph destroys the graph when it fails; the driver sees to that. So that nothing is lost, a copy is made before, and takes
//! the graph's place: its handles, nodes included, are then those of the copy. Executables made before cannot be updated node by node any
//! more, because the driver knows their nodes by the old handles: `State::restored` tells.

use std::collections::HashSet;
use std::mem;

use cudarc::driver::sys::{CUgraph, CUgraphNode};

use super::Graph;
use super::state::State;
use crate::{Error, Result, driver};

/// A copy of a graph, ready to take its place.
pub(crate) struct Backup {
    raw: CUgraph,
    /// The copies of the graphs of the hierarchy, by their numbers.
    bodies: Vec<(u32, CUgraph)>,
    /// The copies of the nodes: the graph's number, the node's, the handle.
    nodes: Vec<(u32, u32, CUgraphNode)>,
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
    }
}

impl Backup {
    /// Notes what is the copy of what in graph `body`, whose copy is `copy`.
    fn note(&mut self, state: &State, body: u32, copy: CUgraph) -> Result<()> {
        self.bodies.push((body, copy));
        for (index, slot) in state.body(body)?.nodes.iter().enumerate() {
            if slot.raw.is_null() {
                continue;
            }
            let node = driver::graph::find_in_clone(slot.raw, copy)?;
            self.nodes.push((body, index as u32, node));
            if let Some(child) = slot.child {
                self.note(state, child, driver::node::child(node)?)?;
            }
        }
        Ok(())
    }
}

impl Graph {
    /// A copy that can take this graph's place.
    ///
    /// # Errors
    ///
    /// [`Error::InvalidOperation`] for a graph that is embedded in another, or that something else owns; the driver's for one that it does not copy.
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
        let state = self.hierarchy().lock();
        let mut backup = Backup {
            raw: driver::graph::clone(state.body(0)?.raw)?,
            bodies: Vec::new(),
            nodes: Vec::new(),
        };
        let copy = backup.raw;
        backup.note(&state, 0, copy)?;
        Ok(backup)
    }

    /// Has `backup` take the place of this graph, which the driver destroyed if it is `gone`. Nodes that are not in the backup are gone.
    pub(crate) fn restore(&self, mut backup: Backup, gone: bool) {
        let mut state = self.hierarchy().lock();
        let old = state.bodies[0].raw;
        let saved: HashSet<(u32, u32)> = backup.nodes.iter().map(|(b, n, _)| (*b, *n)).collect();
        let mut others = Vec::new();
        for body in 0..state.bodies.len() as u32 {
            for (index, slot) in state.bodies[body as usize].nodes.iter().enumerate() {
                let index = index as u32;
                if !slot.raw.is_null() && !saved.contains(&(body, index)) {
                    others.push((body, index));
                }
            }
        }
        for (body, node) in others {
            state.forget(body, node);
        }
        // Graphs looked into since the copy was made are not found again by their numbers.
        for body in 1..state.bodies.len() as u32 {
            let unsaved = !backup.bodies.iter().any(|(saved, _)| *saved == body);
            if let Some((parent, node)) = state.bodies[body as usize].parent
                && unsaved
                && !state.bodies[body as usize].raw.is_null()
            {
                state.forget_child(parent, node);
            }
        }
        for &(body, raw) in &backup.bodies {
            state.bodies[body as usize].raw = raw;
        }
        for &(body, node, raw) in &backup.nodes {
            state.bodies[body as usize].nodes[node as usize].raw = raw;
        }
        for body in &mut state.bodies {
            body.index_anew();
        }
        state.restored += 1;
        backup.raw = std::ptr::null_mut();
        if !gone && let Err(error) = driver::graph::destroy(old) {
            tracing::error!("a graph leaks: {error}");
        }
    }

    /// The driver destroyed this graph, which is a root.
    pub(crate) fn forsake(&self) {
        let mut state = self.hierarchy().lock();
        let bodies = mem::take(&mut state.bodies);
        drop(state);
        // Outside of the lock: dropping what it holds runs foreign code.
        drop(bodies);
    }
}
