//! Nodes that launches skip.
//!
//! The driver disables most of them. But on an H200 (driver for CUDA 13.0) a disabled memset node
//! of a few KiB without gaps loses order: what comes after it does not wait for what came before,
//! and some launches fail, with plain driver calls too. So a disabled memset node fills memory of
//! this library's own instead ([`FillOp::stand_in`]), and the driver knows it as enabled.
//!
//! What a node is to do when it is enabled again, the executable's table says. Of nodes of other
//! code the table does not know it: that is read from the definition as long as nothing else was
//! put there, and kept here. Where it cannot be told, or the driver takes no stand-in because the
//! memory is another context's, the driver disables such a node too.

use std::sync::Arc;

use cudarc::driver::CudaContext;
use cudarc::driver::sys::{CUgraphExec, CUgraphNode};

use super::Exec;
use crate::error::NodeKind;
use crate::graph::{AnyOp, NodeId};
use crate::op::{FillOp, Op};
use crate::{Result, driver};

/// A memset node that is disabled.
pub(super) struct Skipped {
    node: NodeId,
    /// What other code had it do.
    does: Option<AnyOp>,
}

/// Enables or disables a node of an executable. `does` is what the node does when it is enabled, if
/// it is a memset node and that is known. Where that fails, the node is what it was.
pub(super) fn set_enabled(
    context: &Arc<CudaContext>,
    exec: CUgraphExec,
    handle: CUgraphNode,
    does: Option<&AnyOp>,
    enabled: bool,
) -> Result<()> {
    let fill = match does {
        Some(AnyOp::Fill(fill)) => Some(fill.clone()),
        Some(AnyOp::Raw(op)) => op.params().and_then(FillOp::of_params),
        _ => None,
    };
    let stand_in = fill.map(|fill| fill.stand_in(context)).transpose()?;
    let (Some(does), Some(stand_in)) = (does, stand_in.flatten()) else {
        return driver::exec::set_enabled(exec, handle, enabled);
    };
    if enabled {
        // The driver may have disabled it.
        driver::exec::set_enabled(exec, handle, true)?;
        return does.set_in(context, exec, handle);
    }
    match stand_in.set_in(context, exec, handle) {
        // Where the driver disabled it before, it may stay so.
        Ok(()) => driver::exec::set_enabled(exec, handle, true).or(Ok(())),
        // What lies in another context has no stand-in here.
        Err(_) => driver::exec::set_enabled(exec, handle, false),
    }
}

impl Exec {
    /// Returns whether the node is enabled. A disabled node is skipped.
    pub fn is_enabled(&self, node: impl Into<NodeId>) -> Result<bool> {
        let id = node.into();
        self.on_node(id, "asking about", |raw| match self.is_optimized() {
            true => self.is_enabled_optimized(id),
            false => Ok(driver::exec::is_enabled(self.raw, raw)? && !self.skips(id)),
        })
    }

    /// Enables a kernel, copy or fill node.
    ///
    /// # Errors
    ///
    /// As [`update`](Exec::update).
    pub fn enable(&mut self, node: impl Into<NodeId>) -> Result<()> {
        self.set_enabled(node.into(), "enabling", true)
    }

    /// Disables a kernel, copy or fill node: launches skip it from now on.
    ///
    /// A disabled memset node still costs what a memset of one value costs: it fills memory of this
    /// library's own. On an H200 with the driver for CUDA 13.0, kernels behind a memset node that
    /// the driver disabled do not wait for those before it, and some launches fail. Where an update
    /// from another graph put there what other code recorded, the driver does disable it.
    ///
    /// # Errors
    ///
    /// As [`update`](Exec::update).
    pub fn disable(&mut self, node: impl Into<NodeId>) -> Result<()> {
        self.set_enabled(node.into(), "disabling", false)
    }

    fn set_enabled(&mut self, id: NodeId, action: &'static str, enabled: bool) -> Result<()> {
        if self.is_optimized() {
            self.on_node(id, action, |_| Ok(()))?;
            let set = self.enable_optimized(id, enabled);
            return set.map_err(|error| error.about(self.table.name(id), action));
        }
        let (context, exec) = (self.context(), self.raw);
        if id.kind != NodeKind::Fill {
            return self.on_node(id, action, |raw| {
                driver::exec::set_enabled(exec, raw, enabled)
            });
        }
        let read = self.does_by_others(id);
        let does = self.table.get(id).and_then(AnyOp::op).or(read.as_ref());
        self.on_node(id, action, |raw| {
            set_enabled(context, exec, raw, does, enabled)
        })?;
        self.skipped.retain(|skipped| skipped.node != id);
        if !enabled {
            self.skipped.push(Skipped {
                node: id,
                does: read,
            });
        }
        Ok(())
    }

    pub(super) fn skips(&self, id: NodeId) -> bool {
        self.skipped.iter().any(|skipped| skipped.node == id)
    }

    /// What a memset node of other code does when it is enabled, if that can be told.
    fn does_by_others(&self, id: NodeId) -> Option<AnyOp> {
        let is_unknown = |content: Option<&AnyOp>| content.is_some_and(|it| it.op().is_none());
        if !is_unknown(self.table.get(id)) {
            return None;
        }
        if let Some(skipped) = self.skipped.iter().find(|skipped| skipped.node == id) {
            return skipped.does.clone();
        }
        let (source, _) = self.source.as_ref()?;
        let state = source.look();
        // What was put there since is known in the definition.
        let content = state.bodies.get(id.body)?.content(id.index);
        if self.is_replaced || !is_unknown(content) {
            return None;
        }
        FillOp::read(state.handle_of(&id)?).ok().map(AnyOp::Fill)
    }

    /// Refuses if nodes that are skipped cannot be named any more: an update of everything would
    /// have them do something.
    pub(super) fn check_skipped(&self) -> Result<()> {
        let mut skipped = self.skipped.iter();
        skipped.try_for_each(|skipped| self.on_node(skipped.node, "updating", |_| Ok(())))
    }

    /// Has memset nodes be skipped that were, after the driver set those that `was_set` says. One
    /// for which that fails is enabled.
    pub(super) fn skip_again(&mut self, was_set: impl Fn(NodeId) -> bool) -> Result<()> {
        if self.is_optimized() {
            return self.skip_again_optimized();
        }
        let (set, left): (Vec<_>, _) = std::mem::take(&mut self.skipped)
            .into_iter()
            .partition(|skipped| was_set(skipped.node));
        self.skipped = left;
        let skipped = set
            .into_iter()
            .map(|skipped| self.set_enabled(skipped.node, "disabling", false));
        skipped.fold(Ok(()), Result::and)
    }
}
