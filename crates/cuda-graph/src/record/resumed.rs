//! Going on behind a checkpoint.

use std::panic::Location;
use std::sync::Arc;

use cudarc::driver::CudaContext;

use super::{Body, Checkpoint, Control, Flow, Foreign, Recorder, Records};
use crate::graph::{AnyOp, Graph, NodeId};
use crate::op::Tag;
use crate::{Error, Owner, Result};

/// Passes over what comes before a checkpoint, and records the rest.
///
/// In a loop around the checkpoint, the rest of the turn is recorded first, and then the loop: it
/// looks at its flag as it would have. Of a branch, the rest is recorded.
struct Resumed<'a> {
    inner: &'a mut dyn Recorder,
    name: &'a str,
    /// The checkpoint was found: what comes now is recorded.
    found: bool,
}

impl dyn Recorder + '_ {
    /// Records what `step` records behind its checkpoint `name`: as a step that stopped there goes
    /// on.
    ///
    /// Closures of loops around the checkpoint are called twice, for the rest of the turn and for
    /// the turns that follow. Sections for the host before the checkpoint are passed over.
    ///
    /// ```
    /// use cuda_graph::{Buffer, Eager, FillOp, Recorder, Result};
    ///
    /// let device = cuda_graph::device(0)?;
    /// let stream = device.context().new_stream()?;
    /// let (a, b) = (Buffer::<u32>::zeroed(&stream, 1)?, Buffer::<u32>::zeroed(&stream, 1)?);
    /// let pause = Buffer::from_host(&stream, &[1u32])?;
    /// let step = |r: &mut dyn Recorder| -> Result<()> {
    ///     r.record(FillOp::new(&a, 1)?)?;
    ///     r.checkpoint("between", &pause)?;
    ///     r.record(FillOp::new(&b, 1)?)?;
    ///     Ok(())
    /// };
    ///
    /// let mut eager = Eager::new(&stream)?;
    /// step(&mut eager)?;
    /// let stopped = eager.take_stopped().expect("the flag is set");
    /// assert_eq!((a.to_host(&stream)?, b.to_host(&stream)?), (vec![1], vec![0]));
    ///
    /// let recorder: &mut dyn Recorder = &mut eager;
    /// recorder.resume_after(&stopped, step)?;
    /// assert_eq!(b.to_host(&stream)?, [1]);
    /// # Ok::<(), cuda_graph::Error>(())
    /// ```
    ///
    /// # Errors
    ///
    /// What `step` returns; [`Error::UnknownCheckpoint`] if it has none of that name.
    pub fn resume_after(
        &mut self,
        name: &str,
        mut step: impl FnMut(&mut dyn Recorder) -> Result<()>,
    ) -> Result<()> {
        resume_after(self, name, &mut step)
    }
}

pub(crate) fn resume_after(
    inner: &mut dyn Recorder,
    name: &str,
    step: &mut Body<'_>,
) -> Result<()> {
    inner.begin_resume();
    let mut resumed = Resumed {
        inner,
        name,
        found: false,
    };
    step(&mut resumed)?;
    match resumed.found {
        true => Ok(()),
        false => Err(Error::UnknownCheckpoint { name: name.into() }),
    }
}

impl Recorder for Resumed<'_> {
    fn context(&self) -> &Arc<CudaContext> {
        self.inner.context()
    }

    fn has_stream(&self) -> bool {
        self.inner.has_stream()
    }

    fn keep(&mut self, owner: Owner) -> Result<()> {
        match self.found {
            true => self.inner.keep(owner),
            false => Ok(()),
        }
    }
}

impl Records for Resumed<'_> {
    fn put(&mut self, op: AnyOp) -> Result<Option<NodeId>> {
        match self.found {
            true => self.inner.put(op),
            false => Ok(None),
        }
    }

    fn put_made(&mut self, make: Arc<super::Make>) -> Result<()> {
        match self.found {
            true => self.inner.put_made(make),
            false => Ok(()),
        }
    }

    fn put_checkpoint(&mut self, checkpoint: Checkpoint) -> Result<Option<u32>> {
        if self.found {
            return self.inner.put_checkpoint(checkpoint);
        }
        self.found = *checkpoint.name == *self.name;
        Ok(None)
    }

    fn put_branches(&mut self, branches: &mut [&mut Body<'_>]) -> Result<()> {
        // There are no checkpoints in branches.
        match self.found {
            true => self.inner.put_branches(branches),
            false => Ok(()),
        }
    }

    fn put_flow(&mut self, flow: Flow, bodies: &mut [&mut Body<'_>]) -> Result<Option<NodeId>> {
        if self.found {
            return self.inner.put_flow(flow, bodies);
        }
        for body in bodies.iter_mut() {
            body(self)?;
            if !self.found {
                continue;
            }
            if !flow.control.is_loop() {
                return Ok(None);
            }
            // Behind its first turn, a do-while loop looks at its flag before each turn too.
            let again = Flow {
                control: Control::While,
                ..flow
            };
            return self.inner.put_flow(again, bodies);
        }
        Ok(None)
    }

    fn put_foreign(
        &mut self,
        location: &'static Location<'static>,
        work: &mut Foreign<'_>,
    ) -> Result<()> {
        match self.found {
            true => self.inner.put_foreign(location, work),
            false => self.inner.skip_foreign(location, work),
        }
    }

    fn skip_foreign(
        &mut self,
        location: &'static Location<'static>,
        work: &mut Foreign<'_>,
    ) -> Result<()> {
        self.inner.skip_foreign(location, work)
    }

    fn put_captured(&mut self, graph: Graph, tag: Tag) -> Result<Option<NodeId>> {
        match self.found {
            true => self.inner.put_captured(graph, tag),
            false => Ok(None),
        }
    }

    fn put_outside(&mut self, work: &mut Foreign<'_>) -> Result<()> {
        match self.found {
            true => self.inner.put_outside(work),
            false => Ok(()),
        }
    }
}
