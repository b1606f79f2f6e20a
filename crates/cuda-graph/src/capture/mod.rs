//! Capture: what a stream is given becomes a graph.
//!
//! A capture records into a graph that exists before it begins ([`Graph`]), so ending never leaves a graph without an
//! owner. Typed operations are added to the graph like any others, after what the stream waits for, and the stream is
//! told to go on from there (invariant L8): one implementation serves both, and they are held. What other code gives
//! the stream the driver records; what that uses is held by [`Capture::keep`] or by nobody.
//!
//! A capture that is not ended is ended when it is dropped (L9): by a panic, an error or by leaving it. What may be
//! done when is in the types: a capture that is split is inside its [`Joint`] until every branch is joined, so that it
//! cannot be ended before. ARCHITECTURE.md has a table of what else cannot be done, and names the examples here by the
//! sentences above them.

mod body;
mod branch;
mod invalidated;
mod record;
mod run;
mod session;
mod status;
mod streams;

use std::fmt;
use std::marker::PhantomData;
use std::panic::Location;
use std::sync::Arc;

use cudarc::driver::CudaStream;
use cudarc::driver::sys::CUstreamCaptureMode;

pub(crate) use body::{Aside, begun_at};
pub use branch::{Joint, Parallel, Split};
pub use invalidated::CaptureInvalidated;
pub use run::Captured;
pub use status::{CaptureInfo, CaptureStatus};

use crate::Result;
use crate::graph::{Graph, InTurn, NodeSet};
use session::Session;
use streams::Lane;

/// A stream in capture.
///
/// `K` says what it is of the capture: its [`Root`], which is ended, or a [`Branch`], which is joined. `M` is the mode:
/// what other calls do meanwhile. Dropped before it was ended, it ends the capture, and the stream takes new work.
///
/// ```
/// use cuda_graph::{Buffer, Capture, CopyOp, FillOp};
///
/// let device = cuda_graph::device(0)?;
/// let stream = device.context().new_stream()?;
/// let (a, b) = (Buffer::<u32>::zeroed(&stream, 4)?, Buffer::<u32>::zeroed(&stream, 4)?);
/// stream.synchronize()?;
///
/// let mut capture = Capture::begin(&stream)?;
/// capture.record(FillOp::new(&a, 1u32)?)?;
/// let (joint, [mut left, mut right]) = capture.split()?;
/// left.record(CopyOp::new(&b.slice(..2)?, &a.slice(..2)?)?)?;
/// right.record(FillOp::new(&b.slice(2..)?, 2u32)?)?;
/// let capture = joint.join([left, right])?;
/// let graph = capture.end()?;
///
/// graph.instantiate()?.launch(&stream)?;
/// assert_eq!(b.to_host(&stream)?, [1, 1, 2, 2]);
/// # Ok::<(), cuda_graph::Error>(())
/// ```
///
/// What would be an error does not compile.
///
/// Ending it twice:
///
/// ```compile_fail,E0382
/// # fn f(capture: cuda_graph::Capture) -> cuda_graph::Result<()> {
/// capture.end()?;
/// capture.end()?;
/// # Ok(())
/// # }
/// ```
///
/// Using it after its end:
///
/// ```compile_fail,E0382
/// # fn f(mut capture: cuda_graph::Capture, op: cuda_graph::EmptyOp) -> cuda_graph::Result<()> {
/// capture.end()?;
/// capture.record(op)?;
/// # Ok(())
/// # }
/// ```
///
/// Splitting it after its end:
///
/// ```compile_fail,E0382
/// # fn f(capture: cuda_graph::Capture) -> cuda_graph::Result<()> {
/// capture.end()?;
/// let (joint, [left, right]) = capture.split()?;
/// # Ok(())
/// # }
/// ```
///
/// Using it after it was dropped:
///
/// ```compile_fail,E0382
/// # fn f(capture: cuda_graph::Capture) -> cuda_graph::Result<()> {
/// drop(capture);
/// capture.end()?;
/// # Ok(())
/// # }
/// ```
///
/// Instantiating what it records before its end:
///
/// ```compile_fail,E0599
/// # fn f(capture: cuda_graph::Capture) -> cuda_graph::Result<()> {
/// capture.instantiate()?;
/// # Ok(())
/// # }
/// ```
///
/// Updating an executable from it before its end:
///
/// ```compile_fail,E0308
/// # fn f(capture: cuda_graph::Capture, mut exec: cuda_graph::Exec) -> cuda_graph::Result<()> {
/// exec.update_from(&capture)?;
/// # Ok(())
/// # }
/// ```
///
/// Embedding what is not a graph, such as a capture that goes on:
///
/// ```compile_fail,E0308
/// # fn f(mut capture: cuda_graph::Capture, other: cuda_graph::Capture) -> cuda_graph::Result<()> {
/// capture.embed(&other)?;
/// # Ok(())
/// # }
/// ```
///
/// Ending it while it is split:
///
/// ```compile_fail,E0382
/// # fn f(capture: cuda_graph::Capture) -> cuda_graph::Result<()> {
/// let (joint, [left, right]) = capture.split()?;
/// capture.end()?;
/// # Ok(())
/// # }
/// ```
///
/// Recording while it is split:
///
/// ```compile_fail,E0382
/// # fn f(mut capture: cuda_graph::Capture, op: cuda_graph::EmptyOp) -> cuda_graph::Result<()> {
/// let (joint, [left, right]) = capture.split()?;
/// capture.record(op)?;
/// # Ok(())
/// # }
/// ```
///
/// Joining with a branch missing:
///
/// ```compile_fail,E0308
/// # fn f(capture: cuda_graph::Capture) -> cuda_graph::Result<()> {
/// let (joint, [left, right]) = capture.split()?;
/// joint.join([left])?;
/// # Ok(())
/// # }
/// ```
///
/// Joining twice:
///
/// ```compile_fail,E0382
/// # fn f(capture: cuda_graph::Capture) -> cuda_graph::Result<()> {
/// let (joint, [left, right]) = capture.split()?;
/// joint.join([left, right])?;
/// joint.join([left, right])?;
/// # Ok(())
/// # }
/// ```
///
/// Using a branch that was joined:
///
/// ```compile_fail,E0382
/// # fn f(capture: cuda_graph::Capture, op: cuda_graph::EmptyOp) -> cuda_graph::Result<()> {
/// let (joint, [left, mut right]) = capture.split()?;
/// joint.join([left, right])?;
/// right.record(op)?;
/// # Ok(())
/// # }
/// ```
///
/// Ending a branch:
///
/// ```compile_fail,E0599
/// # fn f(branch: cuda_graph::Capture<cuda_graph::Branch>) -> cuda_graph::Result<()> {
/// branch.end()?;
/// # Ok(())
/// # }
/// ```
///
/// Ending it inside of the closure that has it borrowed:
///
/// ```compile_fail,E0507
/// # fn f(stream: &std::sync::Arc<cuda_graph::cudarc::driver::CudaStream>) -> cuda_graph::Result<()> {
/// cuda_graph::Graph::capture(stream, |c| { c.end()?; Ok(()) })?;
/// # Ok(())
/// # }
/// ```
///
/// Taking it out of that closure:
///
/// ```compile_fail,E0521
/// # fn f(stream: &std::sync::Arc<cuda_graph::cudarc::driver::CudaStream>) -> cuda_graph::Result<()> {
/// let mut out = None;
/// cuda_graph::Graph::capture(stream, |c| { out = Some(c); Ok(()) })?;
/// # Ok(())
/// # }
/// ```
///
/// A branch on another thread:
///
/// ```compile_fail,E0277
/// fn sendable<T: Send>() {}
/// sendable::<cuda_graph::Capture<cuda_graph::Branch, cuda_graph::Relaxed>>();
/// ```
///
/// The joint of branches on another thread:
///
/// ```compile_fail,E0277
/// fn sendable<T: Send>() {}
/// sendable::<cuda_graph::Joint<cuda_graph::Root, cuda_graph::Relaxed, 2>>();
/// ```
///
/// Ending it on another thread, where its mode does not allow that:
///
/// ```compile_fail,E0277
/// fn sendable<T: Send>() {}
/// sendable::<cuda_graph::Capture>();
/// ```
/// ```
/// fn sendable<T: Send>() {}
/// sendable::<cuda_graph::Capture<cuda_graph::Root, cuda_graph::Relaxed>>();
/// ```
#[must_use = "a capture that is dropped is abandoned"]
pub struct Capture<K: Kind = Root, M: Mode = ThreadLocal> {
    session: Arc<Session>,
    lane: Lane,
    /// The number of the split that it comes from.
    split: u64,
    in_turn: InTurn,
    kind: PhantomData<K>,
    mode: PhantomData<M>,
}

/// What a [`Capture`] is of its capture.
pub trait Kind: sealed::Sealed {
    #[doc(hidden)]
    const ENDS: bool;
}

/// What is begun and ended.
pub enum Root {}

/// What is split off and joined. It stays on its thread, because the driver does not lock the graph.
pub struct Branch(PhantomData<*const ()>);

impl Kind for Root {
    const ENDS: bool = true;
}

impl Kind for Branch {
    const ENDS: bool = false;
}

/// What calls that a capture may not contain do meanwhile: `cuMemAlloc`, for one.
pub trait Mode: sealed::Sealed {
    /// The driver's name of it.
    const DRIVER: CUstreamCaptureMode;
}

/// Such calls of this thread invalidate the capture, those of other threads are none of its business. It is ended on
/// the thread that began it.
pub struct ThreadLocal(PhantomData<*const ()>);

/// Such calls of any thread invalidate the capture. It is ended on the thread that began it.
pub struct Global(PhantomData<*const ()>);

/// No call invalidates the capture for being such. It may be ended on any thread.
pub enum Relaxed {}

impl Mode for ThreadLocal {
    const DRIVER: CUstreamCaptureMode = CUstreamCaptureMode::CU_STREAM_CAPTURE_MODE_THREAD_LOCAL;
}

impl Mode for Global {
    const DRIVER: CUstreamCaptureMode = CUstreamCaptureMode::CU_STREAM_CAPTURE_MODE_GLOBAL;
}

impl Mode for Relaxed {
    const DRIVER: CUstreamCaptureMode = CUstreamCaptureMode::CU_STREAM_CAPTURE_MODE_RELAXED;
}

mod sealed {
    pub trait Sealed {}
    impl Sealed for super::Root {}
    impl Sealed for super::Branch {}
    impl Sealed for super::ThreadLocal {}
    impl Sealed for super::Global {}
    impl Sealed for super::Relaxed {}
}

impl Graph {
    /// Makes a graph of what `record` gives to `stream`, in the mode [`ThreadLocal`].
    ///
    /// `CudaSlice`s bring events of their own along, in a context that tracks them
    /// ([`CudaContext::is_managing_stream_synchronization`]), and streams wait for those: no capture survives that.
    /// [`CudaContext::disable_event_tracking`] switches it off.
    ///
    /// Operations recorded through `c` are held by the graph, as those of explicit graphs are. So that the graph can be
    /// launched, what other code gives the stream meanwhile must stay alive by other means, such as [`Capture::keep`]:
    /// this holds for safe functions of cudarc too, which know nothing of the capture.
    ///
    /// ```
    /// use cuda_graph::{Buffer, CopyOp, FillOp, Graph};
    ///
    /// let device = cuda_graph::device(0)?;
    /// let stream = device.context().new_stream()?;
    /// let (a, b) = (Buffer::<u32>::zeroed(&stream, 4)?, Buffer::<u32>::zeroed(&stream, 4)?);
    /// stream.synchronize()?;
    ///
    /// let (graph, fill) = Graph::capture(&stream, |c| {
    ///     let fill = c.record(FillOp::new(&a, 3u32)?)?;
    ///     c.record(CopyOp::new(&b, &a)?)?;
    ///     Ok(fill)
    /// })?;
    /// let mut exec = graph.instantiate()?;
    /// exec.update(fill, FillOp::new(&a, 4u32)?)?;
    /// exec.launch(&stream)?;
    /// assert_eq!(b.to_host(&stream)?, [4; 4]);
    /// # Ok::<(), cuda_graph::Error>(())
    /// ```
    ///
    /// # Errors
    ///
    /// Whatever `record` returns, unless the capture was invalidated:
    /// [`Error::CaptureInvalidated`](crate::Error::CaptureInvalidated) then says where, by what and what to do.
    /// [`Error::AlreadyCapturing`](crate::Error::AlreadyCapturing). In any case, a panic of `record` included, the
    /// stream takes new work afterwards.
    ///
    /// [`CudaContext::is_managing_stream_synchronization`]: cudarc::driver::CudaContext::is_managing_stream_synchronization
    /// [`CudaContext::disable_event_tracking`]: cudarc::driver::CudaContext::disable_event_tracking
    #[track_caller]
    pub fn capture<T>(
        stream: &Arc<CudaStream>,
        record: impl FnOnce(&mut Capture) -> Result<T>,
    ) -> Result<(Graph, T)> {
        Capture::<Root, ThreadLocal>::begin_here(stream, Location::caller())?.through(record)
    }

    /// As [`capture`](Graph::capture), in a mode of choice.
    #[track_caller]
    pub fn capture_as<M: Mode, T>(
        stream: &Arc<CudaStream>,
        record: impl FnOnce(&mut Capture<Root, M>) -> Result<T>,
    ) -> Result<(Graph, T)> {
        Capture::<Root, M>::begin_here(stream, Location::caller())?.through(record)
    }

    /// Adds what `record` gives to `stream` to this graph, after the nodes `after`.
    ///
    /// # Errors
    ///
    /// As [`capture`](Graph::capture); when there is one, the graph has the nodes that it had. Of a body of a conditional node
    /// there can be no copy to fall back on: when a capture into one is invalidated, the whole graph is gone
    /// ([`Error::GraphGone`](crate::Error::GraphGone)).
    /// [`Error::InvalidOperation`](crate::Error::InvalidOperation) for a graph that would not survive a failure: an
    /// embedded or a borrowed one. What the driver says of one that it does not clone, because it allocates.
    #[track_caller]
    pub fn capture_into<T>(
        &self,
        stream: &Arc<CudaStream>,
        after: impl NodeSet,
        record: impl FnOnce(&mut Capture) -> Result<T>,
    ) -> Result<T> {
        let session = Session::begin(
            stream,
            Some((self, &after)),
            ThreadLocal::DRIVER,
            Location::caller(),
        )?;
        let (_, value) = Capture::<Root, ThreadLocal>::of(session).through(record)?;
        Ok(value)
    }
}

impl Capture {
    /// Begins to capture `stream`, in the mode [`ThreadLocal`].
    ///
    /// # Errors
    ///
    /// [`Error::AlreadyCapturing`](crate::Error::AlreadyCapturing); the driver's own for a stream that cannot be
    /// captured, as the default stream.
    #[track_caller]
    pub fn begin(stream: &Arc<CudaStream>) -> Result<Capture> {
        Capture::begin_here(stream, Location::caller())
    }

    /// Begins to add what `stream` is given to `graph`, after the nodes `after`.
    #[track_caller]
    pub fn begin_into(
        stream: &Arc<CudaStream>,
        graph: &Graph,
        after: impl NodeSet,
    ) -> Result<Capture> {
        let into = Some((graph, &after as &dyn NodeSet));
        let session = Session::begin(stream, into, ThreadLocal::DRIVER, Location::caller())?;
        Ok(Capture::of(session))
    }
}

impl<M: Mode> Capture<Root, M> {
    /// As [`begin`](Capture::begin), in a mode of choice.
    #[track_caller]
    pub fn begin_as(stream: &Arc<CudaStream>) -> Result<Self> {
        Capture::begin_here(stream, Location::caller())
    }

    fn begin_here(stream: &Arc<CudaStream>, location: &'static Location<'static>) -> Result<Self> {
        Ok(Capture::of(Session::begin(
            stream,
            None,
            M::DRIVER,
            location,
        )?))
    }

    fn of(session: Session) -> Self {
        let lane = Lane::of(session.origin().clone());
        Capture {
            session: Arc::new(session),
            lane,
            split: 0,
            in_turn: InTurn::default(),
            kind: PhantomData,
            mode: PhantomData,
        }
    }

    fn through<T>(mut self, record: impl FnOnce(&mut Self) -> Result<T>) -> Result<(Graph, T)> {
        match record(&mut self) {
            Ok(value) => Ok((self.end()?, value)),
            Err(error) => Err(self.session.abandon(Some(error))),
        }
    }

    /// Ends the capture. The graph is an ordinary one: to inspect, extend, embed, instantiate, update from.
    ///
    /// # Errors
    ///
    /// [`Error::CaptureInvalidated`](crate::Error::CaptureInvalidated).
    pub fn end(self) -> Result<Graph> {
        self.session.end()
    }
}

impl<K: Kind, M: Mode> Drop for Capture<K, M> {
    fn drop(&mut self) {
        if K::ENDS && self.session.is_open() {
            let reason = self.session.abandon(None);
            tracing::debug!("{self:?} was abandoned: {reason}");
        }
    }
}

impl<K: Kind, M: Mode> fmt::Debug for Capture<K, M> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "Capture of stream {:p} begun at {}",
            self.lane.stream().cu_stream(),
            self.session.begun()
        )
    }
}
