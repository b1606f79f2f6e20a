//! Running a step now.

use std::fmt;
use std::panic::Location;
use std::sync::Arc;

use cudarc::driver::{CudaContext, CudaStream};

use super::{
    Body, Checkpoint, Control, Flag, Flow, Foreign, Recorder, Records, checked, read_flag, recorded,
};
use crate::collective::Communicator;
use crate::driver::begun::refuse_captured;
use crate::exec::Exec;
use crate::graph::{AnyOp, ChildOp, Graph, NodeId, Operation};
use crate::memory::Region;
use crate::op::{Op, Tag};
use crate::retain::{Fence, Meeting, drop_after};
use crate::{Error, Owner, Result, driver};

/// So many operations are held before a fence is made for them.
const MOST_HELD: usize = 256;

/// Runs what it is given in the order of a stream, now. The host decides loops and branches: it
/// waits for the stream and reads the flag back each time.
///
/// What an operation uses is held until it has run. Branches of a parallel part run one after the
/// other.
pub struct Eager {
    pub(super) stream: Arc<CudaStream>,
    /// The operations that may still run, and flags that are read.
    held: Vec<Owner>,
    /// What foreign work may use.
    kept: Vec<Owner>,
    /// The checkpoint at which the step stopped: the rest is passed over.
    stopped: Option<Arc<str>>,
    /// How many parallel parts are open.
    in_branches: usize,
    /// Those whose collectives it ran.
    communicators: Vec<Communicator>,
    /// Whom its collectives meet in this process, if they met anybody yet.
    meeting: Option<Meeting>,
}

impl Eager {
    /// Runs steps in `stream`.
    ///
    /// # Errors
    ///
    /// [`Error::AlreadyCapturing`] while the stream is captured; [`Error::PerThreadStream`].
    pub fn new(stream: &Arc<CudaStream>) -> Result<Eager> {
        if stream.cu_stream() as usize == driver::stream::PER_THREAD {
            return Err(Error::PerThreadStream);
        }
        driver::choose()?;
        refuse_captured(stream)?;
        Ok(Eager {
            stream: stream.clone(),
            held: Vec::new(),
            kept: Vec::new(),
            stopped: None,
            in_branches: 0,
            communicators: Vec::new(),
            meeting: None,
        })
    }

    /// Runs `op`.
    ///
    /// # Errors
    ///
    /// What the driver answers, with the operation's name; [`Error::ConditionOutsideGraph`];
    /// [`Error::Unowned`].
    pub fn record<O: Operation>(&mut self, op: O) -> Result<()> {
        self.run(op.into_any())
    }

    recorded!();

    /// The checkpoint at which the last step stopped, if it did. It passes over everything until
    /// this is asked.
    pub fn take_stopped(&mut self) -> Option<Arc<str>> {
        self.stopped.take()
    }

    fn run(&mut self, op: AnyOp) -> Result<()> {
        refuse_captured(&self.stream)?;
        if op.tag().unowned {
            return Err(Error::Unowned {
                node: Box::new(op.name(None)),
            });
        }
        if self.stopped.is_some() {
            return Ok(());
        }
        if op.condition_of().is_some() {
            return Err(Error::ConditionOutsideGraph);
        }
        if let AnyOp::Collective(collective) = &op {
            collective.check_context(self.stream.context())?;
            self.takes_part_in(collective.communicator())?;
        } else if let AnyOp::Child(child) = &op {
            for communicator in child.communicators() {
                self.takes_part_in(&communicator)?;
            }
        }
        if self.held.len() >= MOST_HELD {
            let held = std::mem::take(&mut self.held);
            self.drop_behind(held);
        }
        // Held before it is given away: if that fails half-way, it may run all the same.
        self.held.push(Arc::new(op.clone()));
        let run = || Ok(op.run(self.stream.cu_stream()));
        let ran = match (&self.meeting, &op) {
            (Some(meeting), AnyOp::Collective(_)) => meeting.launch(&self.stream, run),
            _ => run(),
        };
        if let Some(done) = ran? {
            return done.map_err(|error| error.about(op.name(None), "running"));
        }
        // A graph of one node takes what streams do not.
        Exec::run_alone(op, &self.stream)
    }

    /// Collectives of a communicator are to run.
    fn takes_part_in(&mut self, communicator: &Communicator) -> Result<()> {
        communicator.check()?;
        if self.meeting.is_none() && communicator.meets_here() {
            self.meeting = Some(Meeting::new(self.stream.context())?);
        }
        if !self
            .communicators
            .iter()
            .any(|known| known.is_of_same(communicator))
        {
            self.communicators.push(communicator.clone());
        }
        Ok(())
    }

    /// Whether it runs steps in `stream`.
    pub(crate) fn runs_in(&self, stream: &Arc<CudaStream>) -> bool {
        Arc::ptr_eq(&self.stream, stream)
    }

    /// A step is over: what it kept goes once everything has run that was given so far.
    pub(crate) fn end_step(&mut self) {
        let kept = std::mem::take(&mut self.kept);
        self.drop_behind(kept);
    }

    /// Drops `owners` once everything has run that was given so far.
    fn drop_behind(&self, owners: Vec<Owner>) {
        if !owners.is_empty() {
            drop_after(Fence::behind(self.stream.clone()), owners);
        }
    }

    /// The flag once everything before has run.
    fn read(&mut self, flag: &Region) -> Result<u32> {
        self.held.extend(flag.owner.clone());
        let value = read_flag(flag, &self.stream, &mut self.communicators)?;
        // Nothing runs any more.
        self.held.clear();
        Ok(value)
    }
}

impl Recorder for Eager {
    fn context(&self) -> &Arc<CudaContext> {
        self.stream.context()
    }

    fn has_stream(&self) -> bool {
        true
    }

    fn keep(&mut self, owner: Owner) -> Result<()> {
        self.kept.push(owner);
        Ok(())
    }
}

impl Records for Eager {
    fn put(&mut self, op: AnyOp) -> Result<Option<NodeId>> {
        self.run(op)?;
        Ok(None)
    }

    fn put_branches(&mut self, branches: &mut [&mut Body<'_>]) -> Result<()> {
        /// A part that is open, until it is left in whatever way.
        struct Open<'a>(&'a mut Eager);
        impl Drop for Open<'_> {
            fn drop(&mut self) {
                self.0.in_branches -= 1;
            }
        }
        self.in_branches += 1;
        let open = Open(self);
        branches.iter_mut().try_for_each(|branch| branch(open.0))
    }

    fn put_flow(&mut self, flow: Flow, bodies: &mut [&mut Body<'_>]) -> Result<Option<NodeId>> {
        if self.stopped.is_some() {
            return Ok(None);
        }
        let case = match flow.control {
            Control::While => {
                while self.stopped.is_none() && self.read(&flow.flag)? != 0 {
                    bodies[0](self)?;
                }
                return Ok(None);
            }
            Control::DoWhile => loop {
                bodies[0](self)?;
                if self.stopped.is_some() || self.read(&flow.flag)? == 0 {
                    return Ok(None);
                }
            },
            Control::If | Control::IfElse => usize::from(self.read(&flow.flag)? == 0),
            // What a path makes of checkpoints.
            Control::Checkpoint | Control::Unstopped => return Err(Error::CheckpointHere),
            Control::Switch => self.read(&flow.flag)? as usize,
        };
        if let Some(body) = bodies.get_mut(case) {
            body(self)?;
        }
        Ok(None)
    }

    fn put_foreign(
        &mut self,
        location: &'static Location<'static>,
        work: &mut Foreign<'_>,
    ) -> Result<()> {
        refuse_captured(&self.stream)?;
        match self.stopped.is_some() {
            true => self.skip_foreign(location, work),
            false => work(&self.stream),
        }
    }

    fn skip_foreign(
        &mut self,
        location: &'static Location<'static>,
        work: &mut Foreign<'_>,
    ) -> Result<()> {
        Graph::capture(&self.stream, |path| path.put_foreign(location, work)).map(drop)
    }

    fn put_checkpoint(&mut self, checkpoint: Checkpoint) -> Result<Option<u32>> {
        if self.in_branches > 0 {
            return Err(Error::CheckpointHere);
        }
        if self.stopped.is_none() && self.read(&checkpoint.flag)? != 0 {
            self.stopped = Some(checkpoint.name);
        }
        Ok(None)
    }

    fn put_captured(&mut self, graph: Graph, tag: Tag) -> Result<Option<NodeId>> {
        let mut op = ChildOp::new(&graph);
        *op.tag_mut() = tag;
        self.put(op.into())
    }

    fn put_outside(&mut self, work: &mut Foreign<'_>) -> Result<()> {
        refuse_captured(&self.stream)?;
        match self.stopped.is_some() {
            true => Ok(()),
            false => work(&self.stream),
        }
    }
}

impl Drop for Eager {
    fn drop(&mut self) {
        self.kept.append(&mut self.held);
        self.end_step();
    }
}

impl fmt::Debug for Eager {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Eager in stream {:p}", self.stream.cu_stream())
    }
}
