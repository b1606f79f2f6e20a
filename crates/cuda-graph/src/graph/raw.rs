//! The way down: the driver's own handles, out and in.

use std::sync::Arc;

use cudarc::driver::CudaContext;
use cudarc::driver::sys::{CUgraph, CUgraphNode, CUgraphNodeParams};

use super::content::Contents;
use super::{Graph, Node, NodeId, NodeSet};
use crate::op::RawOp;
use crate::{Owner, Result, driver};

impl Graph {
    /// The driver's handle. It is good while the graph is; edges and nodes added with it are seen by this library.
    ///
    /// A node destroyed with it, or whose operation is changed with it, is beyond what this library knows.
    pub fn raw(&self) -> Result<CUgraph> {
        let mut state = self.hierarchy().lock();
        // Whoever has it may add what this library does not see.
        state.may_branch = true;
        let body = state.body_mut(self.body_index())?;
        body.ascending = false;
        Ok(body.raw)
    }

    /// The driver's handle, for foreign code that clones, embeds or instantiates with it: what the nodes use now is held by whatever the
    /// driver makes of the graph from here on, and by its launches.
    ///
    /// This puts a CUDA user object on the graph, for good. Launches of an executable that has one cost the driver more: a microsecond on
    /// an H200. What this library makes needs none.
    pub fn raw_with_owners(&self) -> Result<CUgraph> {
        driver::bind(self.context())?;
        let state = self.hierarchy().lock();
        let raw = state.body(self.body_index())?.raw;
        let mut held: Vec<(Contents, Vec<Owner>)> = Vec::new();
        state.each_body(self.body_index(), &mut |_, body| {
            held.push((body.contents.clone(), body.lingering.clone()));
        });
        crate::retain::hold(raw, held)?;
        Ok(raw)
    }

    /// The driver's handle of a node, good while the node is.
    pub fn raw_node(&self, node: impl Into<NodeId>) -> Result<CUgraphNode> {
        let state = self.hierarchy().lock();
        let body = state.body(self.body_index())?;
        body.resolve(self.hierarchy().id, self.body_index(), node.into())
    }

    /// Takes over a graph: it is destroyed when the last handle is gone.
    ///
    /// # Safety
    ///
    /// `raw` is a graph of this context's device, no other owner destroys it, and nothing else uses it at the same time. What its nodes use
    /// lives while they can run.
    pub unsafe fn from_raw(raw: CUgraph, context: &Arc<CudaContext>) -> Graph {
        Graph::root(context, raw, true, false)
    }

    /// Works on a graph that something else owns and destroys. What nodes that are added or updated through the handle use is held by the
    /// handle; [`raw_with_owners`](Graph::raw_with_owners) has the driver's graph hold it.
    ///
    /// # Safety
    ///
    /// As [`from_raw`](Graph::from_raw), except that the owner destroys it, after the last use of this handle, its views and executables'
    /// per-node updates. When the handle is gone, what those nodes use need not live any more: then the owner runs the graph only if it has
    /// the driver's graph hold it, or keeps it itself.
    pub unsafe fn from_raw_borrowed(raw: CUgraph, context: &Arc<CudaContext>) -> Graph {
        Graph::root(context, raw, false, false)
    }

    /// The node that the driver calls `raw`.
    ///
    /// # Safety
    ///
    /// `raw` is a node of this graph.
    pub unsafe fn node_from_raw(&self, raw: CUgraphNode) -> Result<NodeId> {
        let mut state = self.hierarchy().lock();
        let index = state.body_mut(self.body_index())?.number(raw)?;
        Ok(self.id(&state, index))
    }

    /// Adds a node from the driver's own parameters, and keeps `owners` for as long as it can run.
    ///
    /// # Safety
    ///
    /// As [`RawOp::new`].
    #[track_caller]
    pub unsafe fn add_raw(
        &self,
        params: CUgraphNodeParams,
        after: impl NodeSet,
        owners: impl IntoIterator<Item = Owner>,
    ) -> Result<Node<RawOp>> {
        // SAFETY: by this function's contract.
        let op = unsafe { RawOp::new(params, owners) };
        self.add(op, after)
    }
}
