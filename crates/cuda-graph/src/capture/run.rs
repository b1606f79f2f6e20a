//! A step that is captured, or run where it cannot be.

use std::panic::Location;
use std::sync::Arc;

use cudarc::driver::CudaStream;

use super::session::Session;
use super::{Capture, Root, ThreadLocal};
use crate::graph::Graph;
use crate::{Error, Result, driver};

/// What became of a step.
#[derive(Debug)]
pub enum Captured<T> {
    /// It was recorded, and has not run.
    Graph(Graph, T),
    /// It could not be recorded, for the reason given, and was given to the stream to run.
    Ran(T, Error),
}

impl Graph {
    /// Makes a graph of what `record` gives to `stream`; where the capture is invalidated, or the stream cannot be
    /// captured, `record` is called again and what it gives runs at once, so that the step is not lost.
    ///
    /// The closure is thus called once or twice, and its effects on the host happen as often. What it records through
    /// `c` then runs in the order of the stream, branches one after the other; the nodes that come back are of graphs
    /// that are gone.
    ///
    /// # Errors
    ///
    /// What `record` returns for reasons of its own; [`Error::AlreadyCapturing`], because running would then record all
    /// the same.
    #[track_caller]
    pub fn capture_or_run<T>(
        stream: &Arc<CudaStream>,
        mut record: impl FnMut(&mut Capture) -> Result<T>,
    ) -> Result<Captured<T>> {
        let location = Location::caller();
        let captured = Capture::<Root, ThreadLocal>::begin_here(stream, location)
            .and_then(|capture| capture.through(&mut record));
        let reason = match captured {
            Ok((graph, value)) => return Ok(Captured::Graph(graph, value)),
            Err(error @ Error::CaptureInvalidated(_)) => error,
            Err(error) if driver::capture::code(&error).is_some() || error.is_unsupported() => {
                error
            }
            Err(error) => return Err(error),
        };
        let mut eager = Capture::<Root, ThreadLocal>::of(Session::eager(stream, location)?);
        let value = record(&mut eager)?;
        Ok(Captured::Ran(value, reason))
    }
}
