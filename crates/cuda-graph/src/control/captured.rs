//! Steps recorded by a capture.

use std::sync::Arc;

use cudarc::driver::sys::CUgraphNode;
use cudarc::driver::{CudaContext, CudaStream};
use smallvec::SmallVec;

use super::conditional::{self, Builds};
use super::in_body::InBody;
use super::{Body, Eager, Flow, Path, Recorder, Records, control_flow};
use crate::capture::{Capture, Kind, Mode};
use crate::graph::{Graph, InTurn, NodeId};
use crate::op::AnyOp;
use crate::{Owner, Result};

impl<K: Kind, M: Mode> Capture<K, M> {
    control_flow!();
}

impl<K: Kind, M: Mode> Recorder for Capture<K, M> {
    fn context(&self) -> &Arc<CudaContext> {
        Capture::stream(self).context()
    }

    fn stream(&self) -> Option<&Arc<CudaStream>> {
        Some(Capture::stream(self))
    }

    fn keep(&mut self, owner: Owner) -> Result<()> {
        self.keep_owner(owner);
        Ok(())
    }
}

impl<K: Kind, M: Mode> Records for Capture<K, M> {
    fn put(&mut self, op: AnyOp) -> Result<Option<NodeId>> {
        Ok(Some(self.record(op)?.id()))
    }

    fn put_branches(&mut self, branches: &mut [&mut Body<'_>]) -> Result<()> {
        self.parallel(|parallel| {
            branches
                .iter_mut()
                .try_for_each(|branch| parallel.branch(|capture| branch(capture)))
        })
    }

    fn put_flow(&mut self, flow: &Flow<'_>, bodies: &mut [&mut Body<'_>]) -> Result<()> {
        if self.is_eager() {
            return Eager::new(Capture::stream(self))?.put_flow(flow, bodies);
        }
        conditional::record(self, flow, bodies)
    }
}

impl<K: Kind, M: Mode> Builds for Capture<K, M> {
    type Mark = SmallVec<[CUgraphNode; 8]>;

    fn graph(&self) -> Graph {
        self.target()
    }

    fn mark(&self) -> Result<Self::Mark> {
        self.position()
    }

    fn in_turn(&mut self) -> &mut InTurn {
        self.own_in_turn()
    }

    fn add(&mut self, op: AnyOp) -> Result<NodeId> {
        Ok(self.record(op)?.id())
    }

    fn take_back(&mut self, nodes: &[NodeId], mark: Self::Mark) -> Result<()> {
        self.go_back(nodes, &mark)
    }

    fn fill(&mut self, path: &mut Path, flow: &Flow<'_>, fill: &mut Body<'_>) -> Result<()> {
        InBody::fill(path, self.mode(), flow.location, fill)
    }
}
