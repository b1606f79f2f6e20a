//! Why a capture came to nothing, and what to do about it.

use std::panic::Location;

use cudarc::driver::sys::CUresult;

use super::{Error, NodeName, or_nothing};

/// A capture that was invalidated: the driver ended it without a graph.
#[derive(Clone, Debug, thiserror::Error)]
#[error(
    "the capture of stream {stream:#x} begun at {begun} was invalidated: {answer:?}{}\
     \n  recorded last: {}\n  usual cause: {}\n  what to do: {}",
    or_nothing("\n  call: ", .call, ""),
    the(.last, "nothing through this library"),
    self.cause(),
    self.remedy()
)]
#[non_exhaustive]
pub struct CaptureInvalidated {
    /// The driver's handle of the stream that it was begun on.
    pub stream: usize,
    /// Where it was begun.
    pub begun: &'static Location<'static>,
    /// The operation that was recorded last through this library.
    pub last: Option<NodeName>,
    /// The call that did it, where it went through this library, or its answer came to it: through
    /// the closure's result, or because cudarc kept it.
    pub call: Option<Error>,
    /// What the driver answered when the capture was ended.
    pub answer: CUresult,
    /// cudarc tracks the use of its slices by events, in more than one stream.
    pub(crate) tracked: bool,
}

impl CaptureInvalidated {
    /// The driver's answer that says most: that to the call that did it, or else that to the end of
    /// the capture.
    pub fn code(&self) -> CUresult {
        let of_call = self.call.as_ref().and_then(Error::capture_code);
        // That the capture was invalid says nothing of why.
        of_call
            .filter(|&code| code != CUresult::CUDA_ERROR_STREAM_CAPTURE_INVALIDATED)
            .unwrap_or(self.answer)
    }

    /// What usually causes this.
    pub fn cause(&self) -> &'static str {
        self.explanation().0
    }

    /// How to avoid it.
    pub fn remedy(&self) -> String {
        self.explanation().1
    }

    fn explanation(&self) -> (&'static str, String) {
        use CUresult as R;
        let (cause, remedy) = match self.code() {
            R::CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED => (
                "something was called that cannot be recorded: synchronizing or querying a stream in capture or its \
                 context, launching an executable graph into it, or allocating memory in a mode that forbids it",
                "do that before or after the capture; embed a graph instead of launching its executable; allocate \
                 memory first and free it later, or use the mode `Relaxed`",
            ),
            R::CUDA_ERROR_STREAM_CAPTURE_INVALIDATED => (
                "a call in between was not allowed in a capture, and its own answer was not seen: a synchronization, \
                 a query, an allocation, the unloading of a module",
                "check the answer of every call made while capturing, and hand errors through the closure",
            ),
            R::CUDA_ERROR_STREAM_CAPTURE_MERGE => (
                "an event recorded in one capture was waited for in another",
                "record both parts into one capture, or end the first and wait for a launch of its graph",
            ),
            R::CUDA_ERROR_ILLEGAL_STATE => (
                "other code ended the capture",
                "leave the end to this library",
            ),
            R::CUDA_ERROR_STREAM_CAPTURE_UNMATCHED => (
                "the capture was ended on another stream than the one it was begun on, or had ended before",
                "end it once, where it was begun",
            ),
            R::CUDA_ERROR_STREAM_CAPTURE_UNJOINED => (
                "a stream that was pulled into the capture by waiting for one of its events was not waited for in turn",
                "record an event in each such stream at its end, and have the first stream wait for it",
            ),
            R::CUDA_ERROR_STREAM_CAPTURE_ISOLATION => (
                "a stream in capture waited for an event that was recorded outside of it",
                "wait for such work before the capture, or use an external event wait: `WaitEventOp`",
            ),
            R::CUDA_ERROR_STREAM_CAPTURE_IMPLICIT => (
                "the default stream was used, which waits for the stream in capture by itself",
                "use streams that do not synchronize with the default stream, as `CudaContext::new_stream` makes them",
            ),
            R::CUDA_ERROR_CAPTURED_EVENT => (
                "an event that was recorded in a capture was queried or synchronized",
                "use another event for work that is not recorded",
            ),
            R::CUDA_ERROR_STREAM_CAPTURE_WRONG_THREAD => (
                "the capture was ended on another thread than it was begun on",
                "end it on its own thread, or use the mode `Relaxed`",
            ),
            _ => ("the driver failed", "see its answer"),
        };
        let mut text = remedy.to_owned();
        let by_events = matches!(
            self.code(),
            R::CUDA_ERROR_STREAM_CAPTURE_INVALIDATED
                | R::CUDA_ERROR_STREAM_CAPTURE_ISOLATION
                | R::CUDA_ERROR_STREAM_CAPTURE_MERGE
                | R::CUDA_ERROR_CAPTURED_EVENT
        );
        if self.tracked && by_events {
            text.push_str(
                ". cudarc waits for events of its slices here, which is forbidden in captures: call the unsafe \
                 `CudaContext::disable_event_tracking` before, and order what uses a slice in several streams yourself",
            );
        }
        (cause, text)
    }
}

/// Work that reached a recording's stream outside of a foreign block. It was neither run nor
/// recorded.
#[derive(Clone, Debug, thiserror::Error)]
#[error(
    "work reached stream {stream:#x} outside of a foreign block of the recording begun at {begun}\
     \n  found: {}\n  after: {}{}\
     \n  what to do: record it as an operation, or launch it inside of `foreign`",
    Vec::from_iter(.found.iter().map(|node| format!("the {node}"))).join(", "),
    the(.after, "the beginning"),
    or_nothing("\n  before: the ", .before, "")
)]
#[non_exhaustive]
pub struct StrayWork {
    /// The driver's handle of the stream.
    pub stream: usize,
    /// Where the recording was begun.
    pub begun: &'static Location<'static>,
    /// The nodes that the work would have been.
    pub found: Vec<NodeName>,
    /// The operation that was recorded last before the work was found.
    pub after: Option<NodeName>,
    /// The operation that was about to be recorded, where the work was found at once.
    pub before: Option<NodeName>,
}

/// Names a node, or says what there is instead.
fn the(node: &Option<NodeName>, otherwise: &str) -> String {
    let name = node.as_ref().map(|node| format!("the {node}"));
    name.unwrap_or_else(|| otherwise.to_owned())
}
