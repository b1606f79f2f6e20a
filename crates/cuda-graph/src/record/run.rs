//! Recording a step in a closure, or running it where it cannot be recorded.

use std::sync::Arc;

use cudarc::driver::{CudaContext, CudaStream};

use super::{Eager, Path, Recorder};
use crate::capture::CaptureMode;
use crate::graph::{Graph, NodeSet};
use crate::{Error, Result};

/// What became of a step.
#[derive(Debug)]
pub enum Captured<T> {
    /// It was recorded, and has not run.
    Graph(Graph, T),
    /// It could not be recorded, for this reason, and was given to the stream to run.
    Ran(T, Error),
}

fn through<T>(mut path: Path, record: impl FnOnce(&mut Path) -> Result<T>) -> Result<(Graph, T)> {
    let recorded = record(&mut path);
    path.finish(recorded)
}

impl Graph {
    /// Makes a graph of what `record` records: operations, loops and branches.
    ///
    /// ```
    /// use cuda_graph::{Buffer, CopyOp, FillOp, Graph};
    ///
    /// let device = cuda_graph::device(0)?;
    /// let stream = device.context().new_stream()?;
    /// let (a, b) = (Buffer::<u32>::zeroed(&stream, 4)?, Buffer::<u32>::zeroed(&stream, 4)?);
    ///
    /// let (graph, fill) = Graph::record(device.context(), |path| {
    ///     let fill = path.record(FillOp::new(&a, 3u32)?)?;
    ///     path.record(CopyOp::new(&b, &a)?)?;
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
    /// Whatever `record` returns.
    #[track_caller]
    pub fn record<T>(
        context: &Arc<CudaContext>,
        record: impl FnOnce(&mut Path) -> Result<T>,
    ) -> Result<(Graph, T)> {
        through(Path::fresh(context, None)?, record)
    }

    /// Adds what `record` records to this graph, after the nodes `after`: all of it, or nothing if
    /// there is an error.
    ///
    /// # Errors
    ///
    /// Whatever `record` returns; [`Error::ForeignNode`] and others about `after`.
    #[track_caller]
    pub fn record_into<T>(
        &self,
        after: impl NodeSet,
        record: impl FnOnce(&mut Path) -> Result<T>,
    ) -> Result<T> {
        through(Path::aside(self, after, None)?, record).map(|(_, value)| value)
    }

    /// Makes a graph of what `record` records, with foreign work of `stream`.
    ///
    /// Code that only knows streams, such as cuBLAS or another crate, records inside of
    /// [`Path::foreign`]. The stream is captured only there. In between it is held, so that work
    /// that reaches it by mistake is found, and fails the recording.
    ///
    /// ```
    /// use cuda_graph::{Buffer, CopyOp, FillOp, Graph};
    ///
    /// let device = cuda_graph::device(0)?;
    /// let stream = device.context().new_stream()?;
    /// let (a, b) = (Buffer::<u32>::zeroed(&stream, 4)?, Buffer::<u32>::zeroed(&stream, 4)?);
    /// stream.synchronize()?;
    ///
    /// let (graph, ()) = Graph::capture(&stream, |path| {
    ///     path.record(FillOp::new(&a, 3u32)?)?;
    ///     // What other crates launch into the stream here is recorded.
    ///     // SAFETY: the work uses nothing that could go.
    ///     unsafe { path.foreign(|stream| Ok(())) }?;
    ///     path.record(CopyOp::new(&b, &a)?).map(drop)
    /// })?;
    /// graph.instantiate()?.launch(&stream)?;
    /// assert_eq!(b.to_host(&stream)?, [3; 4]);
    /// # Ok::<(), cuda_graph::Error>(())
    /// ```
    ///
    /// `CudaSlice`s bring events of their own along, in a context that tracks them
    /// ([`CudaContext::is_managing_stream_synchronization`]), and streams wait for those. No capture
    /// survives that. [`CudaContext::disable_event_tracking`] switches it off.
    ///
    /// No other thread may give `stream` work meanwhile. NVIDIA's driver does not lock a capture: a
    /// fill from one thread while another begins and ends captures of the same stream crashes
    /// driver 580 within seconds, in a C program without this library. What gets through is found
    /// as stray work.
    ///
    /// # Errors
    ///
    /// Whatever `record` returns; [`Error::StrayWork`]; [`Error::CaptureInvalidated`] says where, by
    /// what and what to do; [`Error::AlreadyCapturing`]; what the driver answers about a stream that
    /// cannot be captured. In any case, a panic of `record` included, the stream takes new work
    /// afterwards.
    #[track_caller]
    pub fn capture<T>(
        stream: &Arc<CudaStream>,
        record: impl FnOnce(&mut Path) -> Result<T>,
    ) -> Result<(Graph, T)> {
        Graph::capture_as(stream, CaptureMode::default(), record)
    }

    /// As [`capture`](Graph::capture), with a mode for the foreign blocks.
    #[track_caller]
    pub fn capture_as<T>(
        stream: &Arc<CudaStream>,
        mode: CaptureMode,
        record: impl FnOnce(&mut Path) -> Result<T>,
    ) -> Result<(Graph, T)> {
        through(Path::fresh(stream.context(), Some((stream, mode)))?, record)
    }

    /// As [`record_into`](Graph::record_into), with foreign work of `stream`.
    #[track_caller]
    pub fn capture_into<T>(
        &self,
        stream: &Arc<CudaStream>,
        after: impl NodeSet,
        record: impl FnOnce(&mut Path) -> Result<T>,
    ) -> Result<T> {
        let stream = Some((stream, CaptureMode::default()));
        let path = Path::aside(self, after, stream)?;
        through(path, record).map(|(_, value)| value)
    }

    /// Makes a graph of what `record` records. Where that cannot be recorded, because a foreign
    /// block was invalidated, the stream cannot be captured, or the driver is too old, `record` is
    /// called again and runs now.
    ///
    /// So `record` is called once or twice, and what it does on the host happens as often.
    ///
    /// # Errors
    ///
    /// What `record` returns for reasons of its own; [`Error::AlreadyCapturing`].
    #[track_caller]
    pub fn capture_or_run<T>(
        stream: &Arc<CudaStream>,
        mut record: impl FnMut(&mut dyn Recorder) -> Result<T>,
    ) -> Result<Captured<T>> {
        let reason = match Graph::capture(stream, |path| record(path)) {
            Ok((graph, value)) => return Ok(Captured::Graph(graph, value)),
            Err(error @ Error::CaptureInvalidated(_)) => error,
            Err(error) if error.capture_code().is_some() || error.is_unsupported() => error,
            Err(error) => return Err(error),
        };
        let value = record(&mut Eager::new(stream)?)?;
        Ok(Captured::Ran(value, reason))
    }
}
