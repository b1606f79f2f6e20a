//! The queues that work waits in and the threads that run it.
//!
//! A [`Queue`] is a stream's work: steps, run one after the other. It knows nothing of CUDA but the
//! error code that a step may answer. A [`Marker`] is a place in a queue that others can wait for;
//! a [`Domain`] is the queues of one context, with the rule that ties the legacy default stream to
//! the blocking ones. A step may be a whole [`Dag`](dag::Dag) of nodes, which several threads run.
//!
//! Invariants:
//! - a step runs after every step pushed before it into the same queue, and after every marker that
//!   a [`Step::Wait`] before it names;
//! - a marker can only be waited for once its signal is in a queue, so waits form no cycle and
//!   every queue gets on;
//! - once a context has failed, no device step and no host function of it runs any more; signals
//!   still fire and callbacks are still called, so nobody waits for ever.

pub(crate) mod dag;
pub(crate) mod domain;
pub(crate) mod host;
mod pool;
pub(crate) mod queue;

pub(crate) use domain::Domain;
pub(crate) use queue::{Inside, Marker, Queue, Role, Step};

/// Why a step failed: a code that means something to whoever made the step, and nothing here.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Failure(pub u32);

impl Failure {
    /// A device step panicked: `CUDA_ERROR_LAUNCH_FAILED`.
    const PANICKED: Failure = Failure(719);
}

/// Whether a context still runs work: the engine asks before each step and reports a step that
/// failed.
pub(crate) trait Fate: Send + Sync {
    /// The error that the context failed with.
    fn failure(&self) -> Option<Failure>;
    /// A step failed: the context is lost.
    fn fail(&self, error: Failure);
}

#[cfg(test)]
mod tests;
