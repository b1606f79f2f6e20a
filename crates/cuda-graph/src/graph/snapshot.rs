//! What is known of a graph, given to a copy that the driver made of it: a clone, or a graph embedded in another.

use cudarc::driver::sys::CUgraphNode;

use super::state::{Content, Slot, State};
use crate::op::{AnyOp, NodeKind};
use crate::{Owner, Result, driver};

impl State {
    /// Has the graph embedded in node `node` of graph `body` know what `from`, which it is a copy of, knows.
    pub(crate) fn mirror_child(&mut self, from: &Snapshot, body: u32, node: u32) {
        match self.child(body, node) {
            Ok(child) => mirror(from, self, child),
            // The copy cannot be looked into; what its nodes use is held all the same.
            Err(_) => {
                if let Content::Unread(unread) =
                    &mut self.bodies[body as usize].nodes[node as usize].content
                {
                    let kept = &mut unread.get_or_insert_default().kept;
                    from.each_owner(&mut |owner| kept.push(owner.clone()));
                }
            }
        }
    }
}

/// Has `to`, a copy that the driver made of `from`, know what `from` knows.
///
/// What the driver cannot match is left to be read from it; the copy holds it until it is gone.
pub(crate) fn mirror(from: &Snapshot, state: &mut State, to: u32) {
    let raw = state.bodies[to as usize].raw;
    let after = state.executables;
    let mut complete = true;
    for node in &from.nodes {
        let Ok(copy) = driver::graph::find_in_clone(node.original, raw) else {
            complete = false;
            node.each_owner(&mut |owner| {
                state.bodies[to as usize].lingering.push(owner.clone());
            });
            continue;
        };
        let index = state.bodies[to as usize].push(Slot {
            raw: copy,
            after,
            is_plain: node.is_plain,
            kind: node.kind,
            child: None,
            children: 0,
            content: node.content.clone(),
        });
        if let [child] = node.children.as_slice() {
            state.mirror_child(child, to, index);
        }
    }
    let lingering = &mut state.bodies[to as usize].lingering;
    lingering.extend_from_slice(&from.lingering);
    state.bodies[to as usize].ascending = complete && from.ascending;
}

/// What is known of a graph, taken to be given to a copy.
pub(crate) struct Snapshot {
    ascending: bool,
    nodes: Vec<Known>,
    lingering: Vec<Owner>,
}

struct Known {
    original: CUgraphNode,
    is_plain: bool,
    kind: NodeKind,
    content: Content,
    children: Vec<Snapshot>,
}

impl Snapshot {
    pub(crate) fn of(state: &State, body: u32) -> Result<Snapshot> {
        let body = state.body(body)?;
        let mut nodes = Vec::with_capacity(body.nodes.len());
        for slot in body.nodes.iter().filter(|slot| !slot.raw.is_null()) {
            let children = slot.inside().map(|child| Snapshot::of(state, child));
            nodes.push(Known {
                original: slot.raw,
                is_plain: slot.is_plain,
                kind: slot.kind,
                content: slot.content.clone(),
                children: children.collect::<Result<_>>()?,
            });
        }
        Ok(Snapshot {
            ascending: body.ascending,
            nodes,
            lingering: body.lingering.clone(),
        })
    }

    /// An operation in it that no body of a conditional node may hold.
    pub(crate) fn not_for_bodies(&self) -> Option<&AnyOp> {
        self.nodes.iter().find_map(|node| {
            let own = node.content.op().filter(|op| !op.fits_in_body());
            own.or_else(|| node.children.iter().find_map(Snapshot::not_for_bodies))
        })
    }

    /// Everything that its nodes use, at any depth.
    pub(crate) fn each_owner(&self, visit: &mut dyn FnMut(&Owner)) {
        self.lingering.iter().for_each(&mut *visit);
        for known in &self.nodes {
            known.each_owner(visit);
        }
    }
}

impl Known {
    fn each_owner(&self, visit: &mut dyn FnMut(&Owner)) {
        self.content.owners().iter().for_each(&mut *visit);
        for child in &self.children {
            child.each_owner(visit);
        }
    }
}
