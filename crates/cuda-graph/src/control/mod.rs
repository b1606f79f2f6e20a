//! Loops and branches, and the recorders that take a step with them.
//!
//! A step is a function of `&mut dyn` [`Recorder`]. [`Path`] builds a graph of it, [`Capture`](crate::Capture) records it
//! into a stream's graph, [`Eager`] runs it at once; [`Step`] picks one. What it decides by lies in flags on the device:
//! in a graph the library's own kernel ([`setter`]) reads a flag and sets the condition of a conditional node, and `Eager`
//! reads the flag back. Conditions of loops and branches inside bodies are set anew each time they are come to
//! (invariant L13), and half a loop is not run (L14).

mod captured;
mod conditional;
mod eager;
mod in_body;
mod path;
mod setter;
mod step;

use std::fmt;
use std::sync::Arc;

use cudarc::driver::{CudaContext, CudaStream};

pub use eager::Eager;
pub use path::Path;
pub use step::Step;

use crate::graph::Node;
use crate::op::Operation;
use crate::{Buffer, Owner, PinnedBuffer, RawMemory, Result, Source};

/// What takes the operations of a step, and its loops and branches: [`Path`], [`Capture`](crate::Capture) or [`Eager`].
///
/// ```
/// use cuda_graph::{Buffer, CopyOp, Eager, FillOp, Graph, Path, Recorder, Result};
///
/// let device = cuda_graph::device(0)?;
/// let stream = device.context().new_stream()?;
/// let flag = Buffer::<u32>::zeroed(&stream, 1)?;
/// let (a, b) = (Buffer::<u32>::zeroed(&stream, 4)?, Buffer::<u32>::zeroed(&stream, 4)?);
/// stream.synchronize()?;
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
/// let graph = Graph::new(device.context())?;
/// step(&mut Path::new(&graph))?;
/// let mut exec = graph.instantiate()?;
/// exec.launch(&stream)?;
/// assert_eq!(b.to_host(&stream)?, [0; 4]);
/// flag.copy_from_host(&stream, &[1])?;
/// exec.launch(&stream)?;
/// assert_eq!(b.to_host(&stream)?, [7; 4]);
///
/// let (captured, ()) = Graph::capture(&stream, |c| step(c))?;
/// captured.instantiate()?.launch(&stream)?;
///
/// step(&mut Eager::new(&stream)?)?;
/// # Ok::<(), cuda_graph::Error>(())
/// ```
pub trait Recorder: Records {
    /// The context whose device runs the step.
    fn context(&self) -> &Arc<CudaContext>;

    /// The stream that other code may give its work to, where there is one: not in a [`Path`].
    ///
    /// In a loop or branch of a capture it is another stream than around it, in a capture of its own. What other code forks
    /// from it is joined there before the next operation is recorded; a stream that it forked to from the outermost
    /// capture stays with that.
    fn stream(&self) -> Option<&Arc<CudaStream>>;

    /// Keeps `owner` alive for as long as what is recorded can run: for what other code recorded.
    fn keep(&mut self, owner: Owner) -> Result<()>;
}

/// Records a body, a branch or a whole step.
pub type Body<'a> = dyn FnMut(&mut dyn Recorder) -> Result<()> + 'a;

/// A number of 32 bits that loops and branches look at: a [`Buffer`] of one `u32` or `i32`, lent by
/// cudarc or not, a slice of one, a [`PinnedBuffer`] of one, or [`RawMemory`] of 4 bytes.
///
/// It may be what kernels have as an argument: the memory need not be a flag's alone.
pub trait Flag: Source + sealed::Sealed {}

mod sealed {
    pub trait Sealed {}
}

macro_rules! flags {
    ($($memory:ty),+) => {$(
        impl Flag for $memory {}
        impl sealed::Sealed for $memory {}
    )+};
}

flags!(
    Buffer<u32>,
    Buffer<i32>,
    PinnedBuffer<u32>,
    PinnedBuffer<i32>,
    RawMemory
);

pub(crate) mod records {
    use std::panic::Location;

    use super::{Body, Flag};
    use crate::graph::NodeId;
    use crate::memory::Region;
    use crate::op::AnyOp;
    use crate::{Error, Result};

    /// What a loop or branch does with its flag.
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    pub enum Control {
        While,
        DoWhile,
        If,
        IfElse,
        Switch,
    }

    /// A loop or branch to record.
    pub struct Flow<'a> {
        pub control: Control,
        pub flag: &'a dyn Flag,
        /// Where the code is that records it.
        pub location: &'static Location<'static>,
    }

    impl<'a> Flow<'a> {
        #[track_caller]
        pub fn here(control: Control, flag: &'a dyn Flag) -> Flow<'a> {
            Flow {
                control,
                flag,
                location: Location::caller(),
            }
        }

        /// Where its flag lies.
        pub(in crate::control) fn check(&self, bodies: &[&mut Body<'_>]) -> Result<Region> {
            let region = self.flag.source();
            if region.bytes() != size_of::<u32>() {
                return Err(Error::SizeMismatch {
                    what: "a flag, which is one number",
                    wants: size_of::<u32>(),
                    got: region.bytes(),
                });
            }
            if bodies.is_empty() {
                return Err(Error::InvalidOperation {
                    why: "a switch without a case".into(),
                });
            }
            Ok(region)
        }
    }

    /// What a recorder does; nobody but this crate's are any.
    pub trait Records {
        /// Records or runs an operation; gives its node, if it has one.
        fn put(&mut self, op: AnyOp) -> Result<Option<NodeId>>;

        /// Records branches side by side.
        fn put_branches(&mut self, branches: &mut [&mut Body<'_>]) -> Result<()>;

        /// Records a loop or branch.
        fn put_flow(&mut self, flow: &Flow<'_>, bodies: &mut [&mut Body<'_>]) -> Result<()>;
    }
}
pub(crate) use records::{Control, Flow, Records};

/// Gives a recorder its loops and branches.
macro_rules! control_flow {
    () => {
        /// Records `body` to run again and again while `flag` is not zero; not at all if it is zero at first.
        ///
        /// # Errors
        ///
        /// What `body` returns; [`Error::SizeMismatch`](crate::Error::SizeMismatch) unless the flag is one number;
        /// [`Error::Unsupported`](crate::Error::Unsupported) where the driver has no such node;
        /// [`Error::NotInBody`](crate::Error::NotInBody) for operations that a body in a graph may not hold. Of what fails
        /// no node stays; a graph that was to have it cannot be instantiated unless another loop or branch is recorded
        /// in its stead, because a condition is left over: in a capture, only after its end.
        #[track_caller]
        pub fn while_nonzero(
            &mut self,
            flag: &dyn $crate::control::Flag,
            mut body: impl FnMut(&mut dyn $crate::control::Recorder) -> $crate::Result<()>,
        ) -> $crate::Result<()> {
            let flow = $crate::control::Flow::here($crate::control::Control::While, flag);
            $crate::control::Records::put_flow(self, &flow, &mut [&mut body])
        }

        /// Records `body` to run once, and again and again while `flag` is not zero.
        ///
        /// # Errors
        ///
        /// As `while_nonzero`.
        #[track_caller]
        pub fn do_while_nonzero(
            &mut self,
            flag: &dyn $crate::control::Flag,
            mut body: impl FnMut(&mut dyn $crate::control::Recorder) -> $crate::Result<()>,
        ) -> $crate::Result<()> {
            let flow = $crate::control::Flow::here($crate::control::Control::DoWhile, flag);
            $crate::control::Records::put_flow(self, &flow, &mut [&mut body])
        }

        /// Records `body` to run if `flag` is not zero.
        ///
        /// # Errors
        ///
        /// As `while_nonzero`.
        #[track_caller]
        pub fn if_nonzero(
            &mut self,
            flag: &dyn $crate::control::Flag,
            mut body: impl FnMut(&mut dyn $crate::control::Recorder) -> $crate::Result<()>,
        ) -> $crate::Result<()> {
            let flow = $crate::control::Flow::here($crate::control::Control::If, flag);
            $crate::control::Records::put_flow(self, &flow, &mut [&mut body])
        }

        /// Records `then` to run if `flag` is not zero, and `otherwise` if it is.
        ///
        /// # Errors
        ///
        /// As `while_nonzero`.
        #[track_caller]
        pub fn if_else_nonzero(
            &mut self,
            flag: &dyn $crate::control::Flag,
            mut then: impl FnMut(&mut dyn $crate::control::Recorder) -> $crate::Result<()>,
            mut otherwise: impl FnMut(&mut dyn $crate::control::Recorder) -> $crate::Result<()>,
        ) -> $crate::Result<()> {
            let flow = $crate::control::Flow::here($crate::control::Control::IfElse, flag);
            $crate::control::Records::put_flow(self, &flow, &mut [&mut then, &mut otherwise])
        }

        /// Records cases, of which the one runs whose number `flag` is, counted from 0; none if there are not as many.
        ///
        /// # Errors
        ///
        /// As `while_nonzero`; [`Error::InvalidOperation`](crate::Error::InvalidOperation)
        /// without a case.
        #[track_caller]
        pub fn switch_on(
            &mut self,
            flag: &dyn $crate::control::Flag,
            cases: &mut [&mut $crate::control::Body<'_>],
        ) -> $crate::Result<()> {
            let flow = $crate::control::Flow::here($crate::control::Control::Switch, flag);
            $crate::control::Records::put_flow(self, &flow, cases)
        }
    };
}
pub(crate) use control_flow;

/// Gives a recorder its branches that run side by side.
macro_rules! branches {
    () => {
        /// Records branches that start from here and may run side by side; what is recorded afterwards waits for all of
        /// them.
        ///
        /// Of conditional nodes in several of them one waits for the other, as at once they end in LAUNCH_FAILED, or not at
        /// all, on an H200 with the driver for CUDA 13.0. Outside of all bodies, those that neither loop nor have others
        /// inside run side by side. Nodes added by hand are left as they are.
        ///
        /// # Errors
        ///
        /// What a branch returns.
        pub fn parallel(
            &mut self,
            branches: &mut [&mut $crate::control::Body<'_>],
        ) -> $crate::Result<()> {
            $crate::control::Records::put_branches(self, branches)
        }
    };
}
pub(crate) use branches;

impl dyn Recorder + '_ {
    /// Records `op` after what was recorded before. A recorder that builds a graph gives its node, to update it by.
    ///
    /// # Errors
    ///
    /// As [`Graph::add`](crate::Graph::add).
    pub fn record<O: Operation>(&mut self, op: O) -> Result<Option<Node<O>>> {
        Ok(self.put(op.into_any())?.map(Node::new))
    }

    control_flow!();
    branches!();
}

impl fmt::Debug for dyn Recorder + '_ {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.stream() {
            Some(stream) => write!(f, "recorder of stream {:p}", stream.cu_stream()),
            None => f.write_str("recorder of a graph"),
        }
    }
}
