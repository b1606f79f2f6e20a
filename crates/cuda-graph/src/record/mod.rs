//! Recorders: what takes the operations of a step, its loops and branches, and foreign work.
//!
//! A step is a function of `&mut dyn` [`Recorder`]. A [`Path`] is a cursor in a graph; with a
//! stream it is a capture, and takes foreign work too. [`Eager`] runs a step now, and [`Step`]
//! picks one.
//! Flags on the device decide loops and branches: in a graph the library's own kernel
//! ([`setter`](crate::graph::setter)) reads a flag and sets the condition of a conditional node,
//! and `Eager` reads the flag back. Conditions inside bodies are set anew each time they are
//! reached (L13).
//!
//! Bodies, and everything recorded into a graph that others can reach, are values first
//! ([`draft`]), and become nodes together when they are whole (L14).

mod draft;
mod eager;
mod guard;
mod joined;
mod over;
mod path;
mod read;
mod resumed;
mod run;

mod step;

use std::fmt;
use std::panic::Location;
use std::sync::Arc;

use cudarc::driver::{CudaContext, CudaStream};

pub use eager::Eager;
pub use guard::{Branch, Capture, Joint, Kind, Root, Split};
pub use path::{ForeignBlock, Path};
pub(crate) use read::read_flag;
pub(crate) use resumed::resume_after;
pub use run::Captured;
pub use step::Step;

use crate::graph::{AnyOp, Graph, Node, NodeId, Operation};
use crate::kernel::{AnyParam, Param};
use crate::memory::Region;
use crate::op::Tag;
use crate::{Buffer, Error, Owner, PinnedBuffer, RawMemory, Result, Source};

/// What takes a step: a [`Path`] or an [`Eager`].
///
/// ```
/// use cuda_graph::{Buffer, CopyOp, Eager, FillOp, Graph, Recorder, Result};
///
/// let device = cuda_graph::device(0)?;
/// let stream = device.context().new_stream()?;
/// let flag = Buffer::<u32>::zeroed(&stream, 1)?;
/// let (a, b) = (Buffer::<u32>::zeroed(&stream, 4)?, Buffer::<u32>::zeroed(&stream, 4)?);
///
/// // Fills and copies while the flag is set, and clears it: once, or not at all.
/// let step = |r: &mut dyn Recorder| -> Result<()> {
///     r.while_nonzero(&flag, |r| {
///         r.record(FillOp::new(&a, 7u32)?)?;
///         r.record(CopyOp::new(&b, &a)?)?;
///         r.record(FillOp::new(&flag, 0u32)?)?;
///         Ok(())
///     })
/// };
///
/// let (graph, ()) = Graph::record(device.context(), |path| step(path))?;
/// let mut exec = graph.instantiate()?;
/// exec.launch(&stream)?;
/// assert_eq!(b.to_host(&stream)?, [0; 4]);
/// flag.copy_from_host(&stream, &[1])?;
/// exec.launch(&stream)?;
/// assert_eq!(b.to_host(&stream)?, [7; 4]);
///
/// // The same step, run now.
/// step(&mut Eager::new(&stream)?)?;
/// # Ok::<(), cuda_graph::Error>(())
/// ```
///
/// Foreign work is unsafe, and there is no other way to record it:
///
/// ```compile_fail,E0624
/// fn record(r: &mut dyn cuda_graph::Recorder) -> cuda_graph::Result<()> {
///     r.put_foreign(std::panic::Location::caller(), &mut |_stream| Ok(()))
/// }
/// ```
#[expect(
    private_bounds,
    reason = "safe code must not reach the methods of `Records`"
)]
pub trait Recorder: Records {
    /// The context whose device runs the step.
    fn context(&self) -> &Arc<CudaContext>;

    /// Whether it takes foreign work.
    fn has_stream(&self) -> bool;

    /// Keeps `owner` alive for as long as what is recorded can run: for foreign work.
    fn keep(&mut self, owner: Owner) -> Result<()>;
}

/// Records a body, a branch or a whole step.
pub type Body<'a> = dyn FnMut(&mut dyn Recorder) -> Result<()> + 'a;

/// Does foreign work with a stream.
pub(crate) type Foreign<'a> = dyn FnMut(&Arc<CudaStream>) -> Result<()> + 'a;

/// Makes an operation of parameters.
pub(crate) type Make = dyn Fn() -> Result<AnyOp> + Send + Sync;

/// A number of 32 bits that loops and branches look at: a [`Buffer`] of one `u32` or `i32`, lent by
/// cudarc or not, a slice of one, a [`PinnedBuffer`] of one, [`RawMemory`] of 4 bytes, or a
/// [`Param`] of one of them.
///
/// It may be what kernels have as an argument: the memory need not be a flag's alone.
pub trait Flag: flag::Sealed {}

mod flag {
    use std::sync::Arc;

    use crate::Result;
    use crate::kernel::AnyParam;
    use crate::memory::Region;

    pub trait Sealed {
        /// Its memory.
        fn region(&self) -> Result<Region>;

        /// The parameter that it is.
        fn param(&self) -> Option<Arc<dyn AnyParam>> {
            None
        }
    }
}

macro_rules! flags {
    ($($memory:ty),+) => {$(
        impl Flag for $memory {}
        impl flag::Sealed for $memory {
            fn region(&self) -> Result<Region> {
                Ok(self.source())
            }
        }

        impl Flag for Param<$memory> {}
        impl flag::Sealed for Param<$memory> {
            fn region(&self) -> Result<Region> {
                Ok(self.get()?.source())
            }

            fn param(&self) -> Option<Arc<dyn AnyParam>> {
                Some(self.any())
            }
        }
    )+};
}

mod sealed {
    pub trait Sealed {}
}

flags! { Buffer<u32>, Buffer<i32>, PinnedBuffer<u32>, PinnedBuffer<i32>, RawMemory }

/// What a loop or branch does with its flag.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Control {
    While,
    DoWhile,
    If,
    IfElse,
    Switch,
    /// The rest of a body or step behind a checkpoint, unless the step stops there.
    Checkpoint,
    /// The rest of a body or step behind a part with checkpoints, unless the step stopped there.
    Unstopped,
}

/// A loop or branch to record.
pub struct Flow {
    pub control: Control,
    /// The flag's memory.
    pub flag: Region,
    /// The parameter that gave it.
    pub param: Option<Arc<dyn AnyParam>>,
    /// The source line that records it.
    pub location: &'static Location<'static>,
}

impl Flow {
    #[track_caller]
    pub fn here(control: Control, flag: &dyn Flag) -> Result<Flow> {
        Ok(Flow {
            control,
            param: flag.param(),
            flag: checked(flag.region()?)?,
            location: Location::caller(),
        })
    }
}

/// A checkpoint to record.
pub struct Checkpoint {
    pub name: Arc<str>,
    /// The flag's memory.
    pub flag: Region,
    /// The parameter that gave it.
    pub param: Option<Arc<dyn AnyParam>>,
    /// The source line that records it.
    pub location: &'static Location<'static>,
}

/// The memory of a flag, which is one number.
pub(crate) fn checked(flag: Region) -> Result<Region> {
    match flag.bytes() {
        4 => Ok(flag),
        got => Err(Error::SizeMismatch {
            what: "a flag, which is one number",
            wants: 4,
            got,
        }),
    }
}

/// What a recorder does. Only this crate's recorders implement it.
pub(crate) trait Records {
    /// Records or runs an operation. Returns its node, if it has one.
    fn put(&mut self, op: AnyOp) -> Result<Option<NodeId>>;

    /// Records or runs the operation that `make` makes of parameters.
    fn put_made(&mut self, make: Arc<Make>) -> Result<()> {
        self.put(make()?).map(drop)
    }

    /// Records a checkpoint, or stops at it. Returns the number of the graph that the rest goes
    /// into, if it goes into one.
    fn put_checkpoint(&mut self, checkpoint: Checkpoint) -> Result<Option<u32>>;

    /// A loop around a checkpoint is recorded again behind the rest of its turn, with the
    /// checkpoints in it.
    fn begin_resume(&mut self) {}

    /// Does foreign work without recording or running it, for what it does on the host.
    fn skip_foreign(
        &mut self,
        location: &'static Location<'static>,
        work: &mut Foreign<'_>,
    ) -> Result<()>;

    /// Records branches side by side.
    fn put_branches(&mut self, branches: &mut [&mut Body<'_>]) -> Result<()>;

    /// Records a loop or branch. Returns its conditional node, if it has one.
    fn put_flow(&mut self, flow: Flow, bodies: &mut [&mut Body<'_>]) -> Result<Option<NodeId>>;

    /// Records or runs foreign work. The caller vouches for it.
    fn put_foreign(
        &mut self,
        location: &'static Location<'static>,
        work: &mut Foreign<'_>,
    ) -> Result<()>;

    /// Records foreign work that was captured before. `graph` is nobody else's.
    fn put_captured(&mut self, graph: Graph, tag: Tag) -> Result<Option<NodeId>>;

    /// Runs `work` now, behind what was recorded before.
    fn put_outside(&mut self, work: &mut Foreign<'_>) -> Result<()>;
}

/// Gives a recorder its loops and branches, and foreign work.
macro_rules! recorded {
    () => {
        /// Records `body` to run again and again while `flag` is not zero, and not at all if it is
        /// zero at first.
        ///
        /// # Errors
        ///
        /// What `body` returns; [`Error::SizeMismatch`] unless the flag is one number;
        /// [`Error::Unsupported`] where the driver has no such node; [`Error::NotInBody`] for
        /// operations that a body in a graph may not hold. After an error nothing of the loop is
        /// recorded.
        #[track_caller]
        pub fn while_nonzero(
            &mut self,
            flag: &dyn Flag,
            mut body: impl FnMut(&mut dyn Recorder) -> Result<()>,
        ) -> Result<()> {
            self.put_flow(Flow::here(Control::While, flag)?, &mut [&mut body])
                .map(drop)
        }

        /// Records `body` to run once, and again and again while `flag` is not zero. The errors are
        /// those of `while_nonzero`.
        #[track_caller]
        pub fn do_while_nonzero(
            &mut self,
            flag: &dyn Flag,
            mut body: impl FnMut(&mut dyn Recorder) -> Result<()>,
        ) -> Result<()> {
            self.put_flow(Flow::here(Control::DoWhile, flag)?, &mut [&mut body])
                .map(drop)
        }

        /// Records `body` to run if `flag` is not zero. The errors are those of `while_nonzero`.
        #[track_caller]
        pub fn if_nonzero(
            &mut self,
            flag: &dyn Flag,
            mut body: impl FnMut(&mut dyn Recorder) -> Result<()>,
        ) -> Result<()> {
            self.put_flow(Flow::here(Control::If, flag)?, &mut [&mut body])
                .map(drop)
        }

        /// Records `then` to run if `flag` is not zero, and `otherwise` if it is. The errors are
        /// those of `while_nonzero`.
        #[track_caller]
        pub fn if_else_nonzero(
            &mut self,
            flag: &dyn Flag,
            mut then: impl FnMut(&mut dyn Recorder) -> Result<()>,
            mut otherwise: impl FnMut(&mut dyn Recorder) -> Result<()>,
        ) -> Result<()> {
            let flow = Flow::here(Control::IfElse, flag)?;
            self.put_flow(flow, &mut [&mut then, &mut otherwise])
                .map(drop)
        }

        /// Records cases. The case runs whose number the flag is, counted from 0; none if there are
        /// not as many.
        ///
        /// # Errors
        ///
        /// As `while_nonzero`; [`Error::EmptySwitch`].
        #[track_caller]
        pub fn switch_on(&mut self, flag: &dyn Flag, cases: &mut [&mut Body<'_>]) -> Result<()> {
            let flow = Flow::here(Control::Switch, flag)?;
            match cases.is_empty() {
                true => Err(Error::EmptySwitch),
                false => self.put_flow(flow, cases).map(drop),
            }
        }

        /// Records branches that start here and may run side by side. What is recorded afterwards
        /// waits for all of them.
        ///
        /// Conditional nodes of several branches wait for each other, because drivers fail on them
        /// at once: on an H200 the driver for CUDA 13.0 ends such launches in LAUNCH_FAILED, or
        /// never. Outside of bodies, branches on the device that hold no loop and no other branch
        /// run side by side.
        ///
        /// # Errors
        ///
        /// What a branch returns. What the branches recorded before is waited for all the same.
        pub fn parallel(&mut self, branches: &mut [&mut Body<'_>]) -> Result<()> {
            self.put_branches(branches)
        }

        /// Records what `work` gives to the stream: launches of other crates, cuBLAS, anything that
        /// can be captured.
        ///
        /// A graph takes it as one child node behind what was recorded before. In a graph the
        /// stream is captured only until `work` returns, also if the recording goes into a loop or
        /// branch; an [`Eager`](crate::Eager) runs the work. Work that reaches the stream outside
        /// of such a block fails the recording ([`Error::StrayWork`]).
        ///
        /// # Errors
        ///
        /// What `work` returns, unless the capture was invalidated: [`Error::CaptureInvalidated`]
        /// says by what. Nothing of the block is recorded then, and the recording goes on as before
        /// it. [`Error::NoStream`] on a recorder without one; [`Error::NotInBody`];
        /// [`Error::ForeignConditional`].
        ///
        /// # Safety
        ///
        /// Whenever the graph runs, all that the work uses is valid: memory, functions, events,
        /// data of host functions. Nothing but what [`keep`](Recorder::keep) is given is kept
        /// alive. That holds for safe functions of cudarc too, which know nothing of the capture.
        #[track_caller]
        pub unsafe fn foreign<T>(
            &mut self,
            work: impl FnOnce(&Arc<CudaStream>) -> Result<T>,
        ) -> Result<T> {
            let location = Location::caller();
            let (mut work, mut value) = (Some(work), None);
            self.put_foreign(location, &mut |stream| {
                let work = work.take().ok_or(Error::RecordingOver)?;
                value = Some(work(stream)?);
                Ok(())
            })?;
            value.ok_or(Error::RecordingOver)
        }

        /// Records the operation that `make` makes of the values of [`Param`](crate::Param)s. A
        /// [`Replay`](crate::Replay) calls `make` again when one of them has another value.
        ///
        /// # Errors
        ///
        /// What `make` returns; as `record`.
        pub fn record_with<O: Operation>(
            &mut self,
            make: impl Fn() -> Result<O> + Send + Sync + 'static,
        ) -> Result<()> {
            self.put_made(Arc::new(move || Ok(make()?.into_any())))
        }

        /// Records a point at which the step stops if `flag` is not zero when it is reached: the
        /// device passes over the rest of the step, of the loops and branches around, and of their
        /// further turns.
        ///
        /// Who launches the step is told where it stopped, and can go on behind that point, with
        /// everything as it was: [`Replay::resume`](crate::Replay::resume), and for other recorders
        /// [`resume_after`](trait.Recorder.html#method.resume_after). A step names each checkpoint
        /// differently.
        ///
        /// What is recorded behind a checkpoint, up to the end of the body or step around, goes
        /// into a body of a conditional node.
        ///
        /// # Errors
        ///
        /// [`Error::DuplicateCheckpoint`]; [`Error::CheckpointHere`] in branches of a parallel
        /// part, in a path that is not recorded in a closure, and in a joined capture;
        /// [`Error::SizeMismatch`] unless the flag is one number; [`Error::Unsupported`] where the
        /// driver has no conditional nodes.
        #[track_caller]
        pub fn checkpoint(&mut self, name: impl Into<Arc<str>>, flag: &dyn Flag) -> Result<()> {
            self.put_checkpoint(Checkpoint {
                name: name.into(),
                param: flag.param(),
                flag: checked(flag.region()?)?,
                location: Location::caller(),
            })
            .map(drop)
        }

        /// Runs `work` on the host once the device has been given what was recorded before, and
        /// goes on behind it: for code that no graph holds, such as a library that allocates, or a
        /// decision of the host.
        ///
        /// An [`Eager`](crate::Eager) just calls `work`. A [`Replay`](crate::Replay) launches what
        /// was recorded before, calls `work`, and goes on with another executable. Inside of a
        /// loop, a branch or a parallel part, that part is then driven by the host: it reads flags
        /// back, and calls the closures of bodies again.
        ///
        /// # Errors
        ///
        /// What `work` returns; [`Error::OutsideGraph`] on recorders that build one graph.
        pub fn outside(
            &mut self,
            mut work: impl FnMut(&Arc<CudaStream>) -> Result<()>,
        ) -> Result<()> {
            self.put_outside(&mut work)
        }
    };
}
use recorded;

impl dyn Recorder + '_ {
    /// Records `op` after what was recorded before. A recorder that builds a graph gives its node,
    /// to update it by.
    ///
    /// # Errors
    ///
    /// As [`Graph::add`](crate::Graph::add).
    pub fn record<O: Operation>(&mut self, op: O) -> Result<Option<Node<O>>> {
        Ok(self.put(op.into_any())?.map(Node::new))
    }

    recorded!();
}

impl fmt::Debug for dyn Recorder + '_ {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self.has_stream() {
            true => "recorder with a stream",
            false => "recorder",
        })
    }
}
