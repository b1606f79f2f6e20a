//! Running a step at once.

use std::fmt;
use std::sync::Arc;

use cudarc::driver::{CudaContext, CudaStream};

use super::{Body, Control, Flow, Recorder, Records, branches, control_flow};
use crate::capture::begun_at;
use crate::exec::Exec;
use crate::graph::NodeId;
use crate::memory::Region;
use crate::op::{AnyOp, Operation};
use crate::retain::{Fence, Holdings, drop_after};
use crate::{Error, Owner, PinnedBuffer, Result, driver};

/// [`Error::AlreadyCapturing`] for a stream that would not run what it is given, but record it.
fn refuse_captured(stream: &CudaStream) -> Result<()> {
    match driver::capture::is_captured(stream.cu_stream())? {
        false => Ok(()),
        true => Err(Error::AlreadyCapturing {
            begun: begun_at(stream),
        }),
    }
}

/// So many owners are held before a fence is made for them; most steps use the same few again and again.
const MOST_HELD: usize = 256;

/// Runs what it is given in the order of a stream, at once; loops and branches are decided on the host, which waits for
/// the stream and reads the flag back each time.
///
/// What an operation uses is held until it has run. Branches of a parallel part run one after the other.
pub struct Eager {
    stream: Arc<CudaStream>,
    /// Where flags are read to.
    word: PinnedBuffer<u32>,
    /// What runs may use this.
    held: Holdings,
    /// What other code may use.
    kept: Holdings,
}

impl Eager {
    /// Runs steps in `stream`.
    ///
    /// # Errors
    ///
    /// [`Error::AlreadyCapturing`] while the stream is captured; [`Error::InvalidOperation`] for a thread's own default
    /// stream; the driver's when there is no memory to read flags to.
    pub fn new(stream: &Arc<CudaStream>) -> Result<Eager> {
        if stream.cu_stream() as usize == driver::stream::PER_THREAD {
            return Err(Error::InvalidOperation {
                why: "a thread's own default stream is another one in each thread that uses it: give a recorder a stream that is not"
                    .into(),
            });
        }
        driver::choose()?;
        driver::bind(stream.context())?;
        refuse_captured(stream)?;
        Ok(Eager {
            stream: stream.clone(),
            word: PinnedBuffer::zeroed(stream.context(), 1)?,
            held: Holdings::default(),
            kept: Holdings::default(),
        })
    }

    /// Runs `op`.
    ///
    /// # Errors
    ///
    /// What the driver says, naming the operation.
    pub fn record<O: Operation>(&mut self, op: O) -> Result<()> {
        self.run(&op.into_any())
    }

    control_flow!();
    branches!();

    pub(super) fn own_stream(&self) -> &Arc<CudaStream> {
        &self.stream
    }

    fn run(&mut self, op: &AnyOp) -> Result<()> {
        driver::bind(self.stream.context())?;
        refuse_captured(&self.stream)?;
        if op.condition_of().is_some() {
            return Err(Error::InvalidOperation {
                why: "a kernel that sets a condition runs in the graph of the condition alone"
                    .into(),
            });
        }
        if self.held.len() > MOST_HELD {
            self.release();
        }
        // Before it is given away: where that fails half-way, it may run all the same.
        self.held.take(op.owners());
        if let Some(done) = op.run(self.stream.cu_stream()) {
            return done.map_err(|error| error.about(crate::graph::NodeName::of_op(op), "running"));
        }
        // What streams do not take, a graph of one node does.
        Exec::run_alone(op.clone(), &self.stream).map(drop)
    }

    /// Has what is held go once everything has run that was given so far.
    fn release(&mut self) {
        let held = std::mem::take(&mut self.held);
        if !held.is_empty() {
            drop_after(Fence::behind(self.stream.clone()), held);
        }
    }

    /// A step is over: what it kept goes once everything has run that was given so far.
    pub(super) fn end_step(&mut self) {
        let kept = std::mem::take(&mut self.kept);
        if !kept.is_empty() {
            drop_after(Fence::behind(self.stream.clone()), kept);
        }
    }

    /// What a flag is once everything before has run.
    fn read(&mut self, flag: &Region) -> Result<u32> {
        driver::bind(self.stream.context())?;
        refuse_captured(&self.stream)?;
        self.held.take(flag.owner.as_slice());
        driver::run::read_word(self.word.address(), flag.address(), self.stream.cu_stream())?;
        driver::stream::synchronize(self.stream.cu_stream())?;
        // Nothing runs any more.
        drop(std::mem::take(&mut self.held));
        Ok(self.word.to_vec()[0])
    }
}

impl Recorder for Eager {
    fn context(&self) -> &Arc<CudaContext> {
        self.stream.context()
    }

    fn stream(&self) -> Option<&Arc<CudaStream>> {
        Some(&self.stream)
    }

    fn keep(&mut self, owner: Owner) -> Result<()> {
        self.kept.take(&[owner]);
        Ok(())
    }
}

impl Records for Eager {
    fn put(&mut self, op: AnyOp) -> Result<Option<NodeId>> {
        self.run(&op)?;
        Ok(None)
    }

    fn put_branches(&mut self, branches: &mut [&mut Body<'_>]) -> Result<()> {
        branches.iter_mut().try_for_each(|branch| branch(self))
    }

    fn put_flow(&mut self, flow: &Flow<'_>, bodies: &mut [&mut Body<'_>]) -> Result<()> {
        let flag = flow.check(bodies)?;
        match (flow.control, bodies) {
            (Control::While, [body, ..]) => {
                while self.read(&flag)? != 0 {
                    body(self)?;
                }
                Ok(())
            }
            (Control::DoWhile, [body, ..]) => loop {
                body(self)?;
                if self.read(&flag)? == 0 {
                    return Ok(());
                }
            },
            (Control::Switch, cases) => match cases.get_mut(self.read(&flag)? as usize) {
                Some(case) => case(self),
                None => Ok(()),
            },
            (Control::If | Control::IfElse, bodies) => {
                let taken = usize::from(self.read(&flag)? == 0);
                match bodies.get_mut(taken) {
                    Some(body) => body(self),
                    None => Ok(()),
                }
            }
            (Control::While | Control::DoWhile, []) => Ok(()),
        }
    }
}

impl Drop for Eager {
    fn drop(&mut self) {
        // Freeing pinned memory waits for the device, so it is left to when there is nothing to wait for.
        self.held.take(&[self.word.owner()]);
        let held = (
            std::mem::take(&mut self.held),
            std::mem::take(&mut self.kept),
        );
        drop_after(Fence::behind(self.stream.clone()), held);
    }
}

impl fmt::Debug for Eager {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Eager in stream {:p}", self.stream.cu_stream())
    }
}
