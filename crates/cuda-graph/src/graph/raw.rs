//! The way down: the driver's own handles, out and in.

use std::sync::Arc;

use cudarc::driver::CudaContext;
use cudarc::driver::sys::{CUgraph, CUgraphNode};

use super::content::Contents;
use super::{Graph, NodeId};
use crate::{Owner, Result, driver};

impl Graph {
    /// The driver's handle. It is good while the graph is; this library sees edges and nodes added
    /// with it, and does not see that a node is destroyed or changed with it.
    pub fn raw(&self) -> Result<CUgraph> {
        let mut state = self.hierarchy().lock();
        // Whoever has it may add what this library does not see.
        state.may_branch = true;
        state.is_lent = true;
        let body = state.body_mut(self.body_index())?;
        body.ascending = false;
        Ok(body.raw)
    }

    /// The driver's handle, for foreign code that clones, embeds or instantiates with it: what the
    /// nodes use now is held by whatever the driver makes of the graph from here on, and by its
    /// launches.
    ///
    /// This puts a CUDA user object on the graph, for good. Launches of an executable that has one
    /// cost the driver a microsecond more on an H200. What this library makes needs none.
    pub fn raw_with_owners(&self) -> Result<CUgraph> {
        driver::bind(self.context())?;
        let mut state = self.hierarchy().lock();
        state.is_lent = true;
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
        let mut state = self.hierarchy().lock();
        state.is_lent = true;
        Ok(self.find(&state, node.into())?.1)
    }

    /// Takes over a graph: it is destroyed when the last handle is gone. No pass changes it.
    ///
    /// # Safety
    ///
    /// `raw` is a graph of this context's device, no other owner destroys it, and nothing else uses
    /// it at the same time. What its nodes use lives while they can run.
    pub unsafe fn from_raw(raw: CUgraph, context: &Arc<CudaContext>) -> Graph {
        let graph = Graph::of_raw(context, raw, true);
        // Nor are its user objects seen here, which its launches hold.
        graph.hierarchy().lock().is_lent = true;
        graph
    }

    /// Works on a graph that something else owns and destroys. The handle holds what nodes use that
    /// are added or updated through it; [`raw_with_owners`](Graph::raw_with_owners) has the
    /// driver's graph hold it.
    ///
    /// # Safety
    ///
    /// As [`from_raw`](Graph::from_raw), except that the owner destroys it, after the last use of
    /// this handle, its views and executables' per-node updates. Once the handle is gone, the owner
    /// runs the graph only if what those nodes use is held by the driver's graph, or by the owner.
    pub unsafe fn from_raw_borrowed(raw: CUgraph, context: &Arc<CudaContext>) -> Graph {
        let graph = Graph::of_raw(context, raw, false);
        graph.hierarchy().lock().is_lent = true;
        graph
    }

    /// The node that the driver calls `raw`.
    ///
    /// # Safety
    ///
    /// `raw` is a node of this graph.
    pub unsafe fn node_from_raw(&self, raw: CUgraphNode) -> Result<NodeId> {
        self.node_of(&mut self.hierarchy().lock(), raw)
    }
}
