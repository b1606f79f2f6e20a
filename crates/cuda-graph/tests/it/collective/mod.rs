//! Collectives between ranks of this process, which share one device unless there are several.

mod alone;
mod attack;
mod failing;
mod kinds;
mod loops;
mod messages;
mod nccl;
mod order;
mod random;
mod sharing;

use std::sync::Arc;
use std::time::Duration;

use cuda_graph::cudarc::driver::{CudaContext, CudaStream};
use cuda_graph::{CollectiveOp, Communicator, CommunicatorOptions, Error, Exec, Graph};

use crate::fixture::{context, is_software};

/// A rank of a test.
pub struct Rank {
    pub communicator: Communicator,
    pub stream: Arc<CudaStream>,
}

impl Rank {
    pub fn number(&self) -> u32 {
        self.communicator.rank()
    }

    pub fn context(&self) -> &Arc<CudaContext> {
        self.communicator.context()
    }

    /// An executable that does `ops`, one after the other.
    #[track_caller]
    pub fn exec(&self, ops: impl IntoIterator<Item = CollectiveOp>) -> Exec {
        let (graph, ()) = Graph::record(self.context(), |path| {
            ops.into_iter().try_for_each(|op| path.record(op).map(drop))
        })
        .expect("it can be recorded");
        graph.instantiate().expect("it can be instantiated")
    }
}

/// Whether so many ranks that share the device may loop at once: a GPU's driver fails on that.
pub fn may_loop(ranks: usize) -> bool {
    ranks == 1 || is_software()
}

/// So long nothing gets on where nothing should.
pub const SHORT: Duration = Duration::from_millis(300);

/// `count` ranks that share the device, each with a stream of its own.
#[track_caller]
pub fn ranks(count: usize) -> Vec<Rank> {
    ranks_with(count, Duration::from_secs(60))
}

#[track_caller]
pub fn ranks_with(count: usize, timeout: Duration) -> Vec<Rank> {
    ranks_on(&vec![context(); count], timeout)
}

/// A rank for each context.
#[track_caller]
pub fn ranks_on(contexts: &[Arc<CudaContext>], timeout: Duration) -> Vec<Rank> {
    let options = CommunicatorOptions::default().timeout(timeout);
    let communicators = Communicator::all(contexts, &options).expect("they can be made");
    let rank = |communicator: Communicator| Rank {
        stream: communicator.context().new_stream().expect("a stream"),
        communicator,
    };
    communicators.into_iter().map(rank).collect()
}

/// Launches an executable of each rank, and waits for all.
#[track_caller]
pub fn run(ranks: &[Rank], execs: &mut [Exec]) {
    for (rank, exec) in ranks.iter().zip(execs) {
        exec.launch(&rank.stream).expect("it can be launched");
    }
    for rank in ranks {
        rank.communicator.wait(&rank.stream).expect("all get on");
    }
}

/// The error's text, of a communicator that failed.
#[track_caller]
pub fn failure<T>(result: Result<T, Error>) -> String {
    match result {
        Err(error @ Error::Communicator { .. }) => error.to_string(),
        Err(error) => panic!("another error: {error}"),
        Ok(_) => panic!("the communicator should have failed"),
    }
}
