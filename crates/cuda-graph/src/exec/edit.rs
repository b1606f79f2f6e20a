//! Updates of several nodes at once, for a replay.

use std::collections::HashMap;
use std::sync::Arc;

use cudarc::driver::CudaContext;
use cudarc::driver::sys::CUgraphExec;
use smallvec::SmallVec;

use super::Exec;
use super::table::Table;
use crate::error::NodeKind;
use crate::graph::state::State;
use crate::graph::{AnyOp, NodeId};
use crate::kernel::Arguments;
use crate::op::{KernelOp, Op};
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

/// A value that parameters of kernels get.
pub(crate) struct Patch<'a> {
    /// The nodes, and which of their uses of parameters it is.
    pub uses: &'a [(NodeId, u16)],
    /// What they have now, if it is known and the same for all.
    pub old: Option<&'a Arguments>,
    pub new: &'a Arguments,
}

impl Exec {
    /// Gives parameters of kernels new values, all or none of them. Returns how many nodes were
    /// set. `nodes` is room to work in.
    pub(crate) fn patch_each(
        &mut self,
        patches: &[Patch<'_>],
        nodes: &mut Vec<NodeId>,
    ) -> std::result::Result<u64, Refused> {
        let nothing_done = |error| Refused {
            error,
            restored: true,
        };
        driver::bind_some(self.context()).map_err(nothing_done)?;
        if self.optimized.is_some() {
            return self.patch_optimized(patches);
        }
        let Some((source, _)) = &self.source else {
            return Err(nothing_done(Error::UnknownSource));
        };
        let context = self.context.as_ref().unwrap_or(&source.context);
        // Nobody else has the definition of a replayed executable, so nobody waits.
        let state = source.look();
        let mut gone = SmallVec::<[Owner; 2]>::new();
        let mut let_go = |owner: Owner| {
            // Most nodes held the same.
            if !gone.iter().any(|other| Arc::ptr_eq(other, &owner)) {
                gone.push(owner);
            }
        };
        nodes.clear();
        let mut set = 0;
        let mut failed = None;
        let alone = patches.len() == 1;
        'all: for patch in patches {
            for (at, (node, used)) in patch.uses.iter().enumerate() {
                let next = patch.uses.get(at + 1);
                let is_again = next.is_some_and(|(next, _)| next == node);
                let Some(AnyOp::Kernel(op)) = self.table.edit(node) else {
                    continue;
                };
                let arguments = op.arguments_mut();
                if !arguments.patch((*used).into(), patch.new, &mut let_go) {
                    failed = Some(Error::SizeMismatch {
                        what: "a parameter's value",
                        wants: arguments.bytes_used((*used).into()),
                        got: patch.new.bytes_of_all(),
                    });
                    break 'all;
                }
                if !alone {
                    nodes.push(*node);
                } else if is_again {
                    // Several arguments of a kernel are set at once.
                } else if let Err(error) = set_kernel(context, self.raw, &state, *node, op) {
                    failed = Some(error);
                    break 'all;
                } else {
                    set += 1;
                }
            }
        }
        if !alone && failed.is_none() {
            nodes.sort_unstable_by_key(|node| (node.body, node.index));
            nodes.dedup();
            for node in &*nodes {
                let Some(AnyOp::Kernel(op)) = self.table.get(*node) else {
                    continue;
                };
                if let Err(error) = set_kernel(context, self.raw, &state, *node, op) {
                    failed = Some(error);
                    break;
                }
                set += 1;
            }
        }
        let Some(error) = failed else {
            drop(state);
            gone.into_iter().for_each(|owner| self.let_go(owner));
            return Ok(set);
        };
        // Back to what it was. Nodes that were not set yet are set too.
        let mut restored = true;
        for patch in patches {
            let Some(old) = patch.old else {
                restored = false;
                break;
            };
            for (node, used) in patch.uses {
                if let Some(AnyOp::Kernel(op)) = self.table.edit(node) {
                    op.arguments_mut().patch((*used).into(), old, drop);
                    restored &= set_kernel(context, self.raw, &state, *node, op).is_ok();
                }
            }
        }
        drop(state);
        // A launch in flight uses it, whatever the executable does from now on.
        gone.into_iter().for_each(|owner| self.let_go(owner));
        Err(Refused { error, restored })
    }

    /// As [`patch_each`](Exec::patch_each), of an executable of another graph than the definition.
    #[cold]
    fn patch_optimized(&mut self, patches: &[Patch<'_>]) -> std::result::Result<u64, Refused> {
        let mut ops: Vec<(NodeId, AnyOp)> = Vec::new();
        let mut places = HashMap::new();
        for patch in patches {
            for (node, used) in patch.uses {
                let at = *places.entry(*node).or_insert_with(|| {
                    ops.extend(self.table.get(*node).map(|op| (*node, op.clone())));
                    ops.len() - 1
                });
                let Some((_, AnyOp::Kernel(op))) = ops.get_mut(at) else {
                    continue;
                };
                let arguments = op.arguments_mut();
                if !arguments.patch((*used).into(), patch.new, drop) {
                    return Err(Refused {
                        error: Error::SizeMismatch {
                            what: "a parameter's value",
                            wants: arguments.bytes_used((*used).into()),
                            got: patch.new.bytes_of_all(),
                        },
                        restored: true,
                    });
                }
            }
        }
        let set = ops.len() as u64;
        let mut edits: Vec<Edit> = ops
            .into_iter()
            .map(|(node, op)| Edit { item: 0, node, op })
            .collect();
        self.set_each(&edits)?;
        self.hold_each(&mut edits);
        Ok(set)
    }

    /// Notes that kernels have the value of a parameter which the driver was given.
    pub(crate) fn note_patch(&mut self, uses: &[(NodeId, u16)], value: &Arguments) {
        for (node, used) in uses {
            if let Some(AnyOp::Kernel(op)) = self.table.edit(node) {
                op.arguments_mut().patch((*used).into(), value, drop);
            }
        }
    }

    /// Calls `visit` with every kernel node whose arguments came from parameters.
    pub(crate) fn each_use(&self, visit: &mut dyn FnMut(NodeId, &KernelOp)) {
        let Some((source, _)) = &self.source else {
            return;
        };
        self.table.each(&mut |body, index, content| {
            if let AnyOp::Kernel(op) = content
                && !op.arguments().used().is_empty()
            {
                let node = NodeId {
                    hierarchy: source.id,
                    body,
                    index,
                    kind: NodeKind::Kernel,
                };
                visit(node, op);
            }
        });
    }

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
        driver::bind(self.context()).map_err(nothing_done)?;
        if self.optimized.is_some() {
            let edits: Vec<_> = edits.iter().map(|edit| (edit.node, &edit.op)).collect();
            let set = self.set_optimized(&edits, &|_, id, op| op.name(id.index));
            return set.map_err(|(error, restored)| Refused { error, restored });
        }
        let Some((source, _)) = &self.source else {
            return Err(nothing_done(Error::UnknownSource));
        };
        // Nobody else has the definition of a replayed executable, so nobody waits.
        let state = source.look();
        for (done, edit) in edits.iter().enumerate() {
            let set = match state.handle_of(&edit.node) {
                Some(raw) => edit.op.set_in(self.context(), self.raw, raw),
                None => Err(Error::GraphGone),
            };
            let Err(error) = set else { continue };
            let restored = edits[..done].iter().rev().all(|edit| {
                let old = self.table.get(edit.node).and_then(AnyOp::op);
                let raw = state.handle_of(&edit.node);
                let restored = old
                    .zip(raw)
                    .map(|(old, raw)| old.set_in(self.context(), self.raw, raw));
                matches!(restored, Some(Ok(())))
            });
            let error = error.about(edit.op.name(edit.node.index), "updating");
            return Err(Refused { error, restored });
        }
        Ok(())
    }

    /// Holds what the nodes use that were [set](Exec::set_each).
    pub(crate) fn hold_each(&mut self, edits: &mut Vec<Edit>) {
        // All of them first: what goes may panic.
        for edit in edits.iter_mut() {
            if let Some(content) = self.table.edit(&edit.node) {
                std::mem::swap(content, &mut edit.op);
            }
        }
        self.note_optimized();
        for Edit { node, op: old, .. } in edits.drain(..) {
            let now = self.table.get(node);
            if !now.is_some_and(|now| old.is_held_by(now.owners())) {
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

#[inline]
fn set_kernel(
    context: &CudaContext,
    exec: CUgraphExec,
    state: &State,
    node: NodeId,
    op: &KernelOp,
) -> Result<()> {
    match state.handle_of(&node) {
        Some(raw) => op.set_in(context, exec, raw),
        None => Err(Error::GraphGone),
    }
}
