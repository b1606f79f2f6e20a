//! Nodes that launches skip.
//!
//! The driver disables most of them. But on an H200 (driver for CUDA 13.0) a disabled memset node
//! of a few KiB without gaps loses order: what comes after it does not wait for what came before,
//! and some launches fail, with plain driver calls too. So a disabled memset node fills memory of
//! this library's own instead ([`FillOp::stand_in`]), and the driver knows it as enabled.
//!
//! What a node is to do when it is enabled again, the executable's table says. Of nodes of other
//! code the table does not know it: that is read from the definition as long as nothing else was
//! put there, and kept here. Where it cannot be told, the driver disables such a node too.

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
/// it is a memset node and that is known.
pub(super) fn set_enabled(
    context: &Arc<CudaContext>,
    exec: CUgraphExec,
    handle: CUgraphNode,
    does: Option<&AnyOp>,
    enabled: bool,
) -> Result<()> {
    let stand_in = match does {
        Some(AnyOp::Fill(fill)) => fill.stand_in(context)?,
        Some(AnyOp::Raw(op)) => match op.params().and_then(FillOp::of_params) {
            Some(fill) => fill.stand_in(context)?,
            None => None,
        },
        _ => None,
    };
    if let (Some(does), Some(stand_in)) = (does, stand_in) {
        // What it does may have been unknown when it was disabled.
        driver::exec::set_enabled(exec, handle, true)?;
        return match enabled {
            true => does.set_in(context, exec, handle),
            false => stand_in.set_in(context, exec, handle),
        };
    }
    driver::exec::set_enabled(exec, handle, enabled)
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

    /// Has nodes be skipped that were, after the driver set several.
    pub(super) fn skip_again(&mut self) -> Result<()> {
        let nodes: Vec<NodeId> = self.skipped.drain(..).map(|skipped| skipped.node).collect();
        for &node in &nodes {
            let does = self.does_by_others(node);
            self.skipped.push(Skipped { node, does });
        }
        let skipped = nodes.into_iter().map(|node| self.skip(node));
        skipped.fold(Ok(()), Result::and)
    }

    /// Has a node be skipped, if it was, after the driver set it. Where that fails, it is enabled.
    #[cold]
    pub(super) fn skip(&mut self, id: NodeId) -> Result<()> {
        let Some(skipped) = self.skipped.iter().find(|skipped| skipped.node == id) else {
            return Ok(());
        };
        let does = self.table.get(id).and_then(AnyOp::op);
        let does = does.or(skipped.does.as_ref());
        let done = self.on_node(id, "disabling", |raw| {
            set_enabled(self.context(), self.raw, raw, does, false)
        });
        if done.is_err() {
            self.skipped.retain(|skipped| skipped.node != id);
        }
        done
    }
}
