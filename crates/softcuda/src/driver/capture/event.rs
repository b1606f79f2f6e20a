//! Events recorded in a capture, and streams that wait for them.

use std::sync::atomic::Ordering;

use super::{Member, ONGOING, fail, with};
use crate::driver::graph::edge::{Edge, Edges};
use crate::driver::stream::Stream;
use crate::driver::{CUresult, Result};

/// What an event is that was recorded in a capture: the dependencies of the stream at that moment.
#[derive(Clone)]
pub(crate) struct Captured {
    capture: u64,
    dependencies: Edges,
}

impl Captured {
    /// What an event becomes that a stream in a capture records.
    pub fn record(stream: &Stream) -> Result<Captured> {
        with(stream.seat(), |capture, place| {
            capture.check()?;
            let member = &capture.members[place];
            Ok(Captured {
                capture: member.seat.capture.load(Ordering::Relaxed),
                dependencies: member.dependencies.clone(),
            })
        })
    }

    /// The same event, of one node that a stream in the same capture has just recorded.
    pub(super) fn of_node(capture: u64, edge: Edge) -> Captured {
        Captured {
            capture,
            dependencies: Edges::from_elem(edge, 1),
        }
    }

    /// What asking for the event's work answers: in a capture there is none, and afterwards it is
    /// not known.
    pub fn asked(&self) -> CUresult {
        let ongoing = ONGOING.lock();
        match ongoing.get(&self.capture) {
            Some(capture) if !capture.invalid => CUresult::CUDA_ERROR_CAPTURED_EVENT,
            _ => CUresult::CUDA_ERROR_INVALID_VALUE,
        }
    }

    /// As [`asked`](Self::asked), by a call that would wait for it or depend on it: the capture is
    /// of no use any more.
    pub fn awaited(&self) -> CUresult {
        let answer = self.asked();
        if let Some(capture) = ONGOING.lock().get_mut(&self.capture) {
            capture.invalid = true;
        }
        answer
    }

    /// `cuStreamWaitEvent` of a stream, in a capture or not: it takes part in the event's from now
    /// on.
    pub fn join(&self, stream: &Stream) -> Result {
        const INVALID: CUresult = CUresult::CUDA_ERROR_INVALID_VALUE;
        let seat = stream.seat();
        let mut ongoing = ONGOING.lock();
        let own = seat.capture.load(Ordering::Relaxed);
        match ongoing.get_mut(&self.capture) {
            None => {}
            Some(capture) if capture.invalid => {}
            Some(capture) if stream.is_legacy() => {
                capture.invalid = true;
                return Err(CUresult::CUDA_ERROR_STREAM_CAPTURE_IMPLICIT);
            }
            Some(capture) if own == 0 => {
                let member = Member::new(seat.clone(), self.dependencies.clone());
                capture.members.push(member);
                seat.capture.store(self.capture, Ordering::Release);
                return Ok(());
            }
            Some(capture) if own == self.capture => {
                let mut members = capture.members.iter_mut();
                let member = members.find(|member| member.seat.stream == seat.stream);
                member.ok_or(INVALID)?.join(&self.dependencies);
                return Ok(());
            }
            Some(capture) => {
                capture.invalid = true;
                if let Some(other) = ongoing.get_mut(&own) {
                    other.invalid = true;
                }
                return Err(CUresult::CUDA_ERROR_STREAM_CAPTURE_MERGE);
            }
        }
        drop(ongoing);
        // Its capture is over.
        Err(fail(stream, INVALID))
    }

    /// The event's capture is neither over nor invalidated.
    pub fn is_live(&self) -> bool {
        self.asked() == CUresult::CUDA_ERROR_CAPTURED_EVENT
    }
}
