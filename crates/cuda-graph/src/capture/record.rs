//! What is recorded.

use std::any::Any;
use std::panic::Location;
use std::sync::Arc;

use cudarc::driver::CudaStream;
use smallvec::SmallVec;

use super::{Capture, Kind, Mode};
use crate::exec::Exec;
use crate::graph::{Graph, Node, NodeId, NodeSet};
use crate::op::{ChildOp, HostOp, Operation, RecordEventOp, WaitEventOp};
use crate::{Result, driver};

impl<K: Kind, M: Mode> Capture<K, M> {
    /// Records `op` after what the stream was given before. The graph holds what it uses.
    ///
    /// # Errors
    ///
    /// As [`Graph::add`], and what the driver says when the capture was invalidated meanwhile.
    pub fn record<O: Operation>(&mut self, op: O) -> Result<Node<O>> {
        if self.session.is_eager() {
            return Exec::run_alone(op, self.stream());
        }
        let node = self.session.insert(self.lane.stream(), op)?;
        Ok(Node::new(node))
    }

    /// Records a call of a closure on the host.
    #[track_caller]
    pub fn host<F: Fn() + Send + Sync + 'static>(&mut self, function: F) -> Result<Node<HostOp>> {
        let op = HostOp::new(function);
        self.record(op)
    }

    /// Records a copy of `graph` as one node.
    #[track_caller]
    pub fn embed(&mut self, graph: &Graph) -> Result<Node<ChildOp>> {
        let op = ChildOp::new(graph);
        self.record(op)
    }

    /// Records an event each time the graph gets here, for others to wait for outside of it.
    #[track_caller]
    pub fn record_event(
        &mut self,
        event: &Arc<cudarc::driver::CudaEvent>,
    ) -> Result<Node<RecordEventOp>> {
        let op = RecordEventOp::new(event);
        self.record(op)
    }

    /// Waits, each time the graph gets here, for an event that was recorded outside of it.
    #[track_caller]
    pub fn wait_event(
        &mut self,
        event: &Arc<cudarc::driver::CudaEvent>,
    ) -> Result<Node<WaitEventOp>> {
        let op = WaitEventOp::new(event);
        self.record(op)
    }

    /// Keeps `owner` alive for as long as the graph, what is made of it, or a launch needs it: for what other code
    /// recorded.
    pub fn keep<T: Any + Send + Sync>(&mut self, owner: Arc<T>) -> Result<()> {
        self.session.keep(owner);
        Ok(())
    }

    /// The stream in capture, for other code to launch into.
    ///
    /// What such code uses is not held by the graph: see [`keep`](Capture::keep).
    pub fn stream(&self) -> &Arc<CudaStream> {
        self.lane.stream()
    }

    /// What the next operation waits for.
    pub fn dependencies(&self) -> Result<Vec<NodeId>> {
        if self.session.is_eager() {
            return Ok(Vec::new());
        }
        let info = self.session.position(self.stream())?;
        self.session.graph().known(info.after)
    }

    /// Has the next operation wait for `nodes` alone, nodes of this capture or of the graph that it goes into.
    ///
    /// # Errors
    ///
    /// [`Error::ForeignNode`](crate::Error::ForeignNode), [`Error::NodeGone`](crate::Error::NodeGone),
    /// [`Error::DuplicateNode`](crate::Error::DuplicateNode).
    pub fn set_dependencies(&mut self, nodes: impl NodeSet) -> Result<()> {
        let mut ids = SmallVec::<[NodeId; 8]>::new();
        nodes.add_to(&mut ids);
        if self.session.is_eager() {
            // Everything that was given to the stream is waited for.
            return Ok(());
        }
        self.session.position(self.stream())?;
        let raw = self.session.graph().raw_nodes(&ids)?;
        driver::capture::set_dependencies(self.stream().cu_stream(), &raw)
    }

    /// Whether it still records: false once it was invalidated.
    pub fn is_active(&self) -> bool {
        self.session.position(self.stream()).is_ok()
    }

    /// Where the capture was begun.
    pub fn begun(&self) -> &'static Location<'static> {
        self.session.begun()
    }
}
