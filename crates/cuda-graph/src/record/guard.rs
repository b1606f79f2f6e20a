//! A capture that code can hold which is no closure.

use std::fmt;
use std::marker::PhantomData;
use std::ops::{Deref, DerefMut};
use std::panic::Location;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use cudarc::driver::CudaStream;

use super::Path;
use crate::capture::CaptureMode;
use crate::graph::{Graph, NodeSet};
use crate::{Error, Result};

/// A [`Path`] with a stream, from [`begin`](Capture::begin) to [`end`](Capture::end).
///
/// `K` says what it is of the capture: its [`Root`], which is ended, or a [`Branch`], which is
/// joined. A root that is dropped before its end abandons the capture.
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
/// capture.record(cuda_graph::ChildOp::new(&other))?;
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
/// ```compile_fail,E0599
/// # fn f(stream: &std::sync::Arc<cuda_graph::cudarc::driver::CudaStream>) -> cuda_graph::Result<()> {
/// cuda_graph::Graph::capture(stream, |path| { path.end()?; Ok(()) })?;
/// # Ok(())
/// # }
/// ```
///
/// Taking it out of that closure:
///
/// ```compile_fail,E0521
/// # fn f(stream: &std::sync::Arc<cuda_graph::cudarc::driver::CudaStream>) -> cuda_graph::Result<()> {
/// let mut out = None;
/// cuda_graph::Graph::capture(stream, |path| { out = Some(path); Ok(()) })?;
/// # Ok(())
/// # }
/// ```
///
/// Recording while foreign work goes on:
///
/// ```compile_fail,E0499
/// # fn f(capture: &mut cuda_graph::Capture, op: cuda_graph::EmptyOp) -> cuda_graph::Result<()> {
/// let block = unsafe { capture.begin_foreign() }?;
/// capture.record(op)?;
/// block.end()?;
/// # Ok(())
/// # }
/// ```
///
/// Foreign work without vouching for it:
///
/// ```compile_fail,E0133
/// # fn f(capture: &mut cuda_graph::Capture) -> cuda_graph::Result<()> {
/// capture.foreign(|stream| Ok(()))?;
/// # Ok(())
/// # }
/// ```
///
/// Any of it on another thread:
///
/// ```compile_fail,E0277
/// fn sendable<T: Send>() {}
/// sendable::<cuda_graph::Capture>();
/// ```
/// ```compile_fail,E0277
/// fn sendable<T: Send>() {}
/// sendable::<cuda_graph::Capture<cuda_graph::Branch>>();
/// ```
/// ```compile_fail,E0277
/// fn sendable<T: Send>() {}
/// sendable::<cuda_graph::Joint<cuda_graph::Root, 2>>();
/// ```
#[must_use = "a capture that is dropped is abandoned"]
pub struct Capture<K: Kind = Root> {
    path: Path,
    /// The number of the split that it comes from.
    split: u64,
    kind: PhantomData<K>,
}

/// What a [`Capture`] is of its capture.
pub trait Kind: sealed::Sealed {}

/// What is begun and ended.
pub enum Root {}

/// What is split off and joined.
pub enum Branch {}

impl Kind for Root {}
impl Kind for Branch {}

mod sealed {
    pub trait Sealed {}
    impl Sealed for super::Root {}
    impl Sealed for super::Branch {}
}

impl Capture {
    /// Begins a recording with `stream`: see [`Graph::capture`].
    ///
    /// # Errors
    ///
    /// [`Error::AlreadyCapturing`]; what the driver answers about a stream that cannot be captured,
    /// such as the default stream.
    #[track_caller]
    pub fn begin(stream: &Arc<CudaStream>) -> Result<Capture> {
        Capture::begin_as(stream, CaptureMode::default())
    }

    /// As [`begin`](Capture::begin), with a mode for the foreign blocks.
    #[track_caller]
    pub fn begin_as(stream: &Arc<CudaStream>, mode: CaptureMode) -> Result<Capture> {
        let path = Path::fresh(stream.context(), Some((stream, mode)), Location::caller())?;
        Ok(Capture::of(path, 0))
    }

    /// Begins a recording that goes into `graph`, after the nodes `after`, when it ends.
    ///
    /// # Errors
    ///
    /// As [`begin`](Capture::begin); [`Error::ForeignNode`] and others about `after`.
    #[track_caller]
    pub fn begin_into(
        stream: &Arc<CudaStream>,
        graph: &Graph,
        after: impl NodeSet,
    ) -> Result<Capture> {
        let stream = Some((stream, CaptureMode::default()));
        let path = Path::aside(graph, after, stream, Location::caller())?;
        Ok(Capture::of(path, 0))
    }

    /// Ends the recording. The graph is an ordinary one: to inspect, extend, embed, instantiate,
    /// update from.
    ///
    /// # Errors
    ///
    /// [`Error::StrayWork`], [`Error::CaptureInvalidated`].
    pub fn end(self) -> Result<Graph> {
        self.path.finish(Ok(())).map(|(graph, ())| graph)
    }
}

impl<K: Kind> Capture<K> {
    fn of(path: Path, split: u64) -> Capture<K> {
        Capture {
            path,
            split,
            kind: PhantomData,
        }
    }

    /// Splits it into `N` branches, which start here and are joined by the [`Joint`].
    ///
    /// # Errors
    ///
    /// [`Error::SplitAside`] for a recording that goes into a graph that exists: record branches
    /// with [`parallel`](Path::parallel) there.
    pub fn split<const N: usize>(mut self) -> Result<Split<K, N>> {
        static NEXT: AtomicU64 = AtomicU64::new(1);
        let split = NEXT.fetch_add(1, Ordering::Relaxed);
        // A foreign block that is all there is becomes a node.
        self.path.ends()?;
        let mut branches = Vec::with_capacity(N);
        for _ in 0..N {
            let path = self.path.beside().ok_or(Error::SplitAside)?;
            branches.push(Capture::of(path, split));
        }
        let mut branches = branches.into_iter();
        let branches = std::array::from_fn(|_| {
            let branch = branches.next();
            branch.expect("there are as many as branches")
        });
        let parent = self;
        Ok((Joint { parent, split }, branches))
    }
}

/// A place where a capture was split into `N` branches. It holds the capture until they are joined.
///
/// Dropped, it abandons the capture.
#[must_use = "a capture whose branches are not joined is abandoned"]
pub struct Joint<K: Kind, const N: usize> {
    parent: Capture<K>,
    split: u64,
}

/// A place where a capture was split, and the branches.
pub type Split<K, const N: usize> = (Joint<K, N>, [Capture<Branch>; N]);

impl<K: Kind, const N: usize> Joint<K, N> {
    /// Joins the branches: what the capture records next waits for all of them.
    ///
    /// # Errors
    ///
    /// [`Error::ForeignBranch`] for a branch of another split. The capture is abandoned then.
    pub fn join(mut self, branches: [Capture<Branch>; N]) -> Result<Capture<K>> {
        let parent = self.parent.path.graph().view();
        let is_foreign = |branch: &Capture<Branch>| {
            // What a branch derefs to may have been exchanged for another path.
            let view = branch.path.graph().view();
            branch.split != self.split || !view.is_same(&parent)
        };
        if branches.iter().any(is_foreign) {
            return Err(Error::ForeignBranch);
        }
        if N > 0 {
            self.parent
                .path
                .join(branches.into_iter().map(|branch| branch.path));
        }
        Ok(self.parent)
    }
}

impl<K: Kind> Deref for Capture<K> {
    type Target = Path;

    fn deref(&self) -> &Path {
        &self.path
    }
}

impl<K: Kind> DerefMut for Capture<K> {
    fn deref_mut(&mut self) -> &mut Path {
        &mut self.path
    }
}

impl<K: Kind> fmt::Debug for Capture<K> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Capture: {:?}", self.path)
    }
}
