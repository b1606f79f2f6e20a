//! Disabled nodes of an executable that passes put better.

use std::collections::HashSet;
use std::sync::Arc;

use cudarc::driver::CudaContext;
use cudarc::driver::sys::{CUgraphExec, CUgraphNode, CUresult};

use super::{NotSet, Optimized, Pins, place};
use crate::error::NodeKind;
use crate::exec::{Exec, skip};
use crate::graph::{AnyOp, NodeId};
use crate::op::{FillOp, Op};
use crate::optimize::plan::{Does, Place, Planned};
use crate::{Error, Result, driver};

impl Optimized {
    /// Disables nodes of the new executable `exec`, which do what was planned.
    pub(super) fn disable_in(&self, context: &Arc<CudaContext>, exec: CUgraphExec) -> Result<()> {
        let mut alone = self.disabled.iter().filter(|at| !self.is_joined(**at));
        alone.try_for_each(|at| self.enable_in(context, exec, *at, None, false))
    }

    /// The copies of these graphs of the program's do something else from now on.
    pub(in crate::exec) fn forget_copies_of(&mut self, graphs: &[u32]) {
        self.replaced.extend(graphs);
    }

    /// What a memset node of a copy does, if that is what the driver copied.
    fn copied_fill(&self, place: Place, handle: CUgraphNode) -> Result<Option<AnyOp>> {
        let is_memset = NodeKind::from_driver(driver::node::kind(handle)?) == NodeKind::Fill;
        match is_memset && !self.replaced.contains(&place.0) {
            true => FillOp::read(handle).map(|fill| Some(AnyOp::Fill(fill))),
            false => Ok(None),
        }
    }

    /// What a node was planned to do, if that is to fill memory. Only what was read is known once
    /// the plan is released.
    fn planned_fill(&self, place: Place) -> Option<&AnyOp> {
        let mut nodes = self.base.graphs.iter().flatten();
        let node = nodes.find(|node| node.of.first() == Some(&place))?;
        node.op.op().filter(|op| op.kind() == NodeKind::Fill)
    }

    /// Enables or disables what stands for a node alone, which does `does` if that is known.
    pub(super) fn enable_in(
        &self,
        context: &Arc<CudaContext>,
        exec: CUgraphExec,
        place: Place,
        does: Option<&AnyOp>,
        enabled: bool,
    ) -> Result<()> {
        let does = does.or_else(|| self.planned_fill(place));
        for (planned, handle) in self.handles(place) {
            let read = match planned {
                None if does.is_none() => self.copied_fill(place, handle)?,
                _ => None,
            };
            // A pass may have made a kernel of it. What is copied stays what it is.
            let is_memset =
                planned.is_none_or(|at| self.planned_at(at).op.kind() == NodeKind::Fill);
            let does = does.or(read.as_ref()).filter(|_| is_memset);
            skip::set_enabled(context, exec, handle, does, enabled)?;
        }
        Ok(())
    }

    /// Whether a node can be disabled where it is. No order may lead through a disabled memset node
    /// that the program did not put there.
    fn can_be_disabled(&self, place: Place) -> bool {
        let is_needed = |node: &Planned| {
            let is_transfer = matches!(node.op.kind(), NodeKind::Fill | NodeKind::Copy);
            matches!(node.does, Does::Latch(_)) || matches!(node.does, Does::Same) && is_transfer
        };
        let mut one_flag = self.plan.one_flag.iter().flatten();
        !self.standing(place).any(is_needed)
            && !one_flag.any(|of| *of == place)
            && !self.plan.programmatic().contains(&place)
    }
}

impl Exec {
    /// Disables memset nodes again that were, after the driver set several. One for which that
    /// fails is enabled.
    pub(in crate::exec) fn skip_again_optimized(&mut self) -> Result<()> {
        let Some(optimized) = &self.optimized else {
            return Ok(());
        };
        let (mut done, mut failed) = (Ok(()), vec![]);
        let alone = optimized.disabled.iter();
        let alone = alone.filter(|at| !optimized.is_joined(**at));
        for (at, does) in alone.map(|at| (*at, self.known(*at))) {
            if does.is_some_and(|does| does.kind() != NodeKind::Fill) {
                continue;
            }
            let set = optimized.enable_in(self.context(), self.raw, at, does, false);
            if set.is_err() {
                failed.push(at);
            }
            done = done.and(set);
        }
        if let Some(optimized) = &mut self.optimized {
            optimized.disabled.retain(|at| !failed.contains(at));
        }
        done
    }

    /// Enables or disables what stands for a node.
    pub(in crate::exec) fn enable_optimized(&mut self, id: NodeId, enabled: bool) -> Result<()> {
        let has_passes = self.has_passes();
        let Some(optimized) = &mut self.optimized else {
            return Err(Error::UnknownSource);
        };
        let handles = optimized.handles(place(id));
        if handles.is_empty() {
            return Err(Error::Call {
                call: "cuGraphNodeSetEnabled",
                code: CUresult::CUDA_ERROR_INVALID_VALUE,
            });
        }
        let at = place(id);
        let is_joined = optimized.is_joined(at);
        let change = |disabled: &mut HashSet<Place>, enabled| match enabled {
            true => disabled.remove(&at),
            false => disabled.insert(at),
        };
        // Without passes the nodes and edges are the program's own. What an update has put in the
        // place of other code's work since would be lost.
        let is_assumed = !enabled && has_passes && !optimized.can_be_disabled(at);
        let changed = change(&mut optimized.disabled, enabled);
        let Some(optimized) = &self.optimized else {
            return Err(Error::UnknownSource);
        };
        let done = match is_joined {
            _ if is_assumed => Err(NotSet::Assumed),
            true => optimized.set(self.context(), self.raw, at, &|at| self.known(at)),
            false => {
                let set_all = |enabled| {
                    optimized.enable_in(self.context(), self.raw, at, self.known(at), enabled)
                };
                let done = set_all(enabled);
                if done.is_err() && changed {
                    // What stands for the node does as one what it did.
                    let _ = set_all(!enabled);
                }
                done.map_err(NotSet::Error)
            }
        };
        let done = match done {
            Err(NotSet::Assumed) => self.plan_anew(Pins::More(&[at]), &[]),
            Err(NotSet::Error(error)) => Err(error),
            Ok(()) => Ok(()),
        };
        if let Some(optimized) = &mut self.optimized
            && changed
            && done.is_err()
        {
            change(&mut optimized.disabled, !enabled);
        }
        done
    }

    /// Asks whether what stands for a node is enabled.
    pub(in crate::exec) fn is_enabled_optimized(&self, id: NodeId) -> Result<bool> {
        let optimized = self.optimized.as_ref().ok_or(Error::UnknownSource)?;
        if optimized.is_joined(place(id)) {
            return Ok(!optimized.disabled.contains(&place(id)));
        }
        let Some((_, handle)) = optimized.handles(place(id)).first().copied() else {
            return Err(Error::Call {
                call: "cuGraphNodeGetEnabled",
                code: CUresult::CUDA_ERROR_INVALID_VALUE,
            });
        };
        let is_enabled = driver::exec::is_enabled(self.raw, handle)?;
        Ok(is_enabled && !optimized.disabled.contains(&place(id)))
    }
}
