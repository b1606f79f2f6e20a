//! Waiting for work with collectives: until it is over, or the communicator failed.
//!
//! A wait of the driver would not end where a rank never comes. So the stream is asked again and
//! again, and so is the communicator.

use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant};

use cudarc::driver::CudaStream;

use super::Communicator;
use crate::driver::begun::refuse_captured;
use crate::error::CollectiveFailure;
use crate::{Error, Result, driver};

/// So often a stream is asked without a pause: short work is over by then.
const SPINS: u32 = 200;
const SOONEST: Duration = Duration::from_micros(20);
const LATEST: Duration = Duration::from_millis(2);

/// How far a wait has come.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Waited {
    Over,
    NotYet,
}

/// A wait for what a stream was given, with the communicators that it was given work with.
pub(crate) struct Waiting {
    /// What was got on with when last something was, and when that was.
    progress: u64,
    since: Instant,
    asked: u32,
    pause: Duration,
}

impl Waiting {
    pub(crate) fn new() -> Waiting {
        Waiting {
            progress: 0,
            since: Instant::now(),
            asked: 0,
            pause: SOONEST,
        }
    }

    /// Looks once. Where nothing has got on for too long, the communicators fail.
    pub(crate) fn look(
        &mut self,
        stream: &CudaStream,
        communicators: &[Communicator],
    ) -> Result<Waited> {
        driver::bind(stream.context())?;
        let is_over = driver::capture::undisturbed(|| driver::stream::is_over(stream.cu_stream()));
        match is_over {
            Ok(true) => return Ok(Waited::Over),
            Ok(false) => {}
            Err(error) => {
                // Nothing of the context runs any more, and others may wait for it.
                for communicator in communicators {
                    communicator.fail(CollectiveFailure::RankFailed {
                        rank: communicator.rank(),
                        why: error.to_string().into(),
                    });
                }
                return Err(error);
            }
        }
        let progress = communicators.iter().map(Communicator::progress);
        let progress = progress.fold(0, u64::wrapping_add);
        if progress != self.progress {
            (self.progress, self.since) = (progress, Instant::now());
        }
        let waited = self.since.elapsed();
        for communicator in communicators {
            if waited >= communicator.timeout() {
                communicator.fail(CollectiveFailure::TimedOut {
                    rank: communicator.rank(),
                    after: waited,
                    missing: communicator.missing(),
                });
            }
        }
        Ok(Waited::NotYet)
    }

    /// Rests for a while, longer each time.
    pub(crate) fn rest(&mut self) {
        self.asked = self.asked.saturating_add(1);
        match self.asked < SPINS {
            true => thread::yield_now(),
            false => {
                thread::sleep(self.pause);
                self.pause = (self.pause * 2).min(LATEST);
            }
        }
    }
}

/// How long what was launched may take to end after a failure. It waits for nobody any more.
const GRACE: Duration = Duration::from_secs(30);

impl Communicator {
    /// Waits until all is over that `stream` was given.
    ///
    /// # Errors
    ///
    /// [`Error::Communicator`] if the communicator failed, or fails now because nothing got on for
    /// its [timeout](Communicator::timeout). What was launched is over then too. What the driver
    /// answers; [`Error::AlreadyCapturing`] for a captured stream.
    pub fn wait(&self, stream: &Arc<CudaStream>) -> Result<()> {
        wait(stream, std::slice::from_ref(self))
    }
}

/// Waits as [`wait`] for a recorder, which knows its `communicators`. Those that failed are told of
/// once, and with those that nobody else has no more work comes: it forgets both.
pub(crate) fn wait_for_step(
    stream: &CudaStream,
    communicators: &mut Vec<Communicator>,
) -> Result<()> {
    if communicators.is_empty() {
        return driver::stream::synchronize(stream.cu_stream());
    }
    // The driver would wait for ever for ranks that do not come.
    let waited = wait(stream, communicators);
    communicators.retain(|it| it.check().is_ok() && Arc::strong_count(&it.end) > 1);
    waited
}

/// Waits until all is over that `stream` was given, which some communicators take part in.
fn wait(stream: &CudaStream, communicators: &[Communicator]) -> Result<()> {
    refuse_captured(stream)?;
    let mut waiting = Waiting::new();
    let mut failed: Option<(Error, Instant)> = None;
    loop {
        let waited = match waiting.look(stream, communicators) {
            Ok(waited) => waited,
            Err(error) => return Err(failed.map_or(error, |(error, _)| error)),
        };
        if failed.is_none() {
            let error = communicators.iter().find_map(|it| it.check().err());
            failed = error.map(|error| (error, Instant::now()));
        }
        match (waited, failed) {
            (Waited::Over, None) => return Ok(()),
            (Waited::Over, Some((error, _))) => return Err(error),
            (Waited::NotYet, Some((error, since))) if since.elapsed() > GRACE => return Err(error),
            (Waited::NotYet, kept) => failed = kept,
        }
        waiting.rest();
    }
}
