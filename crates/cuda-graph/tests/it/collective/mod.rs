//! Collectives between ranks of this process: each has a device of its own where there are as many,
//! and NCCL does the work where it is found, unless `CUDA_GRAPH_TEST_PLAIN` is set. Otherwise ranks
//! share devices.

mod alone;
mod attack;
mod failing;
mod kinds;
mod loops;
mod messages;
mod nccl;
mod order;
mod random;
mod second_attack;
mod sharing;

use std::sync::Arc;
use std::time::Duration;

use cuda_graph::cudarc::driver::{CudaContext, CudaStream};
use cuda_graph::{CollectiveOp, Communicator, CommunicatorOptions, Engine, Error, Exec, Graph};

use crate::fixture::{context, contexts, is_software};

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

/// Whether so many ranks may loop at once: a GPU's driver fails on that where they share a device.
pub fn may_loop(ranks: usize) -> bool {
    ranks <= contexts().len() || is_software()
}

/// So long nothing gets on where nothing should.
pub const SHORT: Duration = Duration::from_millis(300);

/// NCCL's ranks find each other within the timeout, too.
const NCCL_BEGINS: Duration = Duration::from_secs(8);

/// `count` ranks on the devices in turn, each with a stream of its own.
#[track_caller]
pub fn ranks(count: usize) -> Vec<Rank> {
    ranks_with(count, Duration::from_secs(60))
}

#[track_caller]
pub fn ranks_with(count: usize, timeout: Duration) -> Vec<Rank> {
    let theirs = in_turn(count);
    if (2..=contexts().len()).contains(&count) && !is_software() && !is_plain() {
        let ranks = ranks_on(&theirs, timeout.max(NCCL_BEGINS));
        if ranks[0].communicator.engine() == Engine::Nccl {
            return ranks;
        }
    }
    ranks_on(&theirs, timeout)
}

/// Two ranks that share the first device.
#[track_caller]
pub fn sharing_pair() -> Vec<Rank> {
    ranks_on(&vec![context(); 2], Duration::from_secs(60))
}

/// Two ranks of the engine that tells what ranks come with.
#[track_caller]
pub fn plain_pair() -> Vec<Rank> {
    let options = CommunicatorOptions::default().engine(Engine::Plain);
    ranks_by(&in_turn(2), &options)
}

/// The contexts of the devices in turn.
fn in_turn(count: usize) -> Vec<Arc<CudaContext>> {
    contexts().iter().cycle().take(count).cloned().collect()
}

fn is_plain() -> bool {
    std::env::var_os("CUDA_GRAPH_TEST_PLAIN").is_some()
}

/// A rank for each context.
#[track_caller]
pub fn ranks_on(contexts: &[Arc<CudaContext>], timeout: Duration) -> Vec<Rank> {
    let mut options = CommunicatorOptions::default().timeout(timeout);
    options.engine = is_plain().then_some(Engine::Plain);
    ranks_by(contexts, &options)
}

#[track_caller]
fn ranks_by(contexts: &[Arc<CudaContext>], options: &CommunicatorOptions) -> Vec<Rank> {
    let communicators = Communicator::all(contexts, options).expect("they can be made");
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

/// Whether the text names the rank that did not come. NCCL does not tell which that is.
#[track_caller]
pub fn assert_missing(ranks: &[Rank], missing: u32, text: &str) {
    let told = match ranks[0].communicator.engine() {
        Engine::Nccl => "nothing got on".to_owned(),
        _ => format!("rank {missing} did not come"),
    };
    assert!(text.contains(&told), "{text}");
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
