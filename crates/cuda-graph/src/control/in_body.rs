//! Bodies of loops and branches that are captured.
//!
//! Operations are added to the body as by a path. A stream of the pool is there for other code, in a capture of its own
//! into a graph of its own: what it was given is taken over into the body before anything else is added there. It is not
//! captured into the body itself, because the driver destroys the graph of a capture that fails, and an H200's crashes on
//! the node whose body is gone.

use std::panic::Location;
use std::sync::Arc;

use cudarc::driver::sys::CUstreamCaptureMode;
use cudarc::driver::{CudaContext, CudaStream};
use smallvec::SmallVec;

use super::conditional::{self, Builds};
use super::{Body, Flow, Path, Recorder, Records};
use crate::capture::Aside;
use crate::graph::{Graph, InTurn, NodeId};
use crate::op::AnyOp;
use crate::{Error, Owner, Result};

pub(super) struct InBody<'a> {
    path: &'a mut Path,
    aside: Aside,
    /// Why what other code recorded cannot be taken over.
    failed: Option<Error>,
}

impl InBody<'_> {
    /// Has `fill` be recorded from where `path` is, for a loop or branch that is recorded at `location`.
    pub(super) fn fill(
        path: &mut Path,
        mode: CUstreamCaptureMode,
        location: &'static Location<'static>,
        fill: &mut Body<'_>,
    ) -> Result<()> {
        let mut recorder = InBody {
            aside: Aside::begin(path.graph().context(), mode, location)?,
            path,
            failed: None,
        };
        let filled = fill(&mut recorder);
        let InBody {
            path,
            aside,
            failed,
        } = recorder;
        // The first error is the cause of the others.
        if let Some(error) = failed.or(filled.err()) {
            return Err(aside.abandon(error));
        }
        match aside.end()? {
            Some(graph) => path.transplant(&graph),
            None => Ok(()),
        }
    }

    /// Takes over what other code recorded since the last time.
    fn take_over(&mut self) -> Result<()> {
        if let Some(error) = &self.failed {
            return Err(error.clone());
        }
        let taken = match self.aside.take() {
            Ok(None) => Ok(()),
            Ok(Some(graph)) => self.path.transplant(&graph),
            Err(error) => Err(error),
        };
        taken.inspect_err(|error| self.failed = Some(error.clone()))
    }
}

impl Recorder for InBody<'_> {
    fn context(&self) -> &Arc<CudaContext> {
        self.path.context()
    }

    fn stream(&self) -> Option<&Arc<CudaStream>> {
        Some(self.aside.stream())
    }

    fn keep(&mut self, owner: Owner) -> Result<()> {
        self.path.keep(owner)
    }
}

impl Records for InBody<'_> {
    fn put(&mut self, op: AnyOp) -> Result<Option<NodeId>> {
        self.add(op).map(Some)
    }

    fn put_branches(&mut self, branches: &mut [&mut Body<'_>]) -> Result<()> {
        self.take_over()?;
        let (mode, location) = (self.aside.mode(), self.aside.begun());
        self.path.branch_out(branches, |path, branch| {
            InBody::fill(path, mode, location, branch)
        })
    }

    fn put_flow(&mut self, flow: &Flow<'_>, bodies: &mut [&mut Body<'_>]) -> Result<()> {
        // Before its place is marked.
        self.take_over()?;
        conditional::record(self, flow, bodies)
    }
}

impl Builds for InBody<'_> {
    type Mark = SmallVec<[NodeId; 4]>;

    fn graph(&self) -> Graph {
        Builds::graph(&*self.path)
    }

    fn mark(&self) -> Result<Self::Mark> {
        self.path.mark()
    }

    fn in_turn(&mut self) -> &mut InTurn {
        self.path.in_turn()
    }

    fn add(&mut self, op: AnyOp) -> Result<NodeId> {
        self.take_over()?;
        let node = self.path.add(op)?;
        self.aside.note(self.path.graph(), node);
        Ok(node)
    }

    fn take_back(&mut self, nodes: &[NodeId], mark: Self::Mark) -> Result<()> {
        self.path.take_back(nodes, mark)
    }

    fn fill(&mut self, path: &mut Path, flow: &Flow<'_>, fill: &mut Body<'_>) -> Result<()> {
        InBody::fill(path, self.aside.mode(), flow.location, fill)
    }
}
