//! A capture that code can hold which is no closure.

use std::fmt;
use std::marker::PhantomData;
use std::ops::{Deref, DerefMut};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use cudarc::driver::CudaStream;

use super::{Path, sealed};
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
/// What would be an error does not compile:
///
/// ```compile_fail,E0382
/// # fn f(capture: cuda_graph::Capture) {
/// // Ending it twice.
/// capture.end();
/// capture.end();
/// # }
/// ```
/// ```compile_fail,E0382
/// # fn f(mut capture: cuda_graph::Capture, op: cuda_graph::EmptyOp) {
/// // Using it after its end.
/// capture.end();
/// capture.record(op);
/// # }
/// ```
/// ```compile_fail,E0599
/// # fn f(capture: cuda_graph::Capture) {
/// // Instantiating what it records before its end.
/// capture.instantiate();
/// # }
/// ```
/// ```compile_fail,E0308
/// # fn f(capture: cuda_graph::Capture, mut exec: cuda_graph::Exec) {
/// // Updating an executable from it before its end.
/// exec.update_from(&capture);
/// # }
/// ```
/// ```compile_fail,E0308
/// # fn f(other: cuda_graph::Capture) {
/// // Embedding what is not a graph, such as a capture that goes on.
/// cuda_graph::ChildOp::new(&other);
/// # }
/// ```
/// ```compile_fail,E0382
/// # fn f(capture: cuda_graph::Capture) {
/// // Ending it while it is split.
/// let split = capture.split::<2>();
/// capture.end();
/// # }
/// ```
/// ```compile_fail,E0308
/// # use cuda_graph::{Branch, Capture, Joint, Root};
/// # fn f(joint: Joint<Root, 2>, left: Capture<Branch>) {
/// // Joining with a branch missing.
/// joint.join([left]);
/// # }
/// ```
/// ```compile_fail,E0382
/// # use cuda_graph::{Branch, Capture, EmptyOp, Joint, Root};
/// # fn f(joint: Joint<Root, 1>, mut left: Capture<Branch>, op: EmptyOp) {
/// // Using a branch that was joined.
/// joint.join([left]);
/// left.record(op);
/// # }
/// ```
/// ```compile_fail,E0599
/// # fn f(branch: cuda_graph::Capture<cuda_graph::Branch>) {
/// // Ending a branch.
/// branch.end();
/// # }
/// ```
/// ```compile_fail,E0599
/// # fn f(stream: &std::sync::Arc<cuda_graph::cudarc::driver::CudaStream>) {
/// // Ending it inside of the closure that has it borrowed.
/// cuda_graph::Graph::capture(stream, |path| { path.end()?; Ok(()) });
/// # }
/// ```
/// ```compile_fail,E0521
/// # fn f(stream: &std::sync::Arc<cuda_graph::cudarc::driver::CudaStream>) {
/// // Taking it out of that closure.
/// let mut out = None;
/// cuda_graph::Graph::capture(stream, |path| { out = Some(path); Ok(()) });
/// # }
/// ```
/// ```compile_fail,E0499
/// # fn f(capture: &mut cuda_graph::Capture, op: cuda_graph::EmptyOp) -> cuda_graph::Result<()> {
/// // Recording while foreign work goes on.
/// let block = unsafe { capture.begin_foreign() }?;
/// capture.record(op)?;
/// block.end()
/// # }
/// ```
/// ```compile_fail,E0133
/// # fn f(capture: &mut cuda_graph::Capture) {
/// // Foreign work without vouching for it.
/// capture.foreign(|stream| Ok(()));
/// # }
/// ```
///
/// It stays on its thread:
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
impl sealed::Sealed for Root {}
impl sealed::Sealed for Branch {}

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
        let path = Path::fresh(stream.context(), Some((stream, mode)))?;
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
        let path = Path::aside(graph, after, stream)?;
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
        let branches = self.path.branches().ok_or(Error::SplitAside)?;
        let branches = branches.map(|path| Capture::of(path, split));
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
        self.parent.path.join(branches.map(|branch| branch.path));
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
