//! Communicators: what lets several devices work together on one step.
//!
//! A *communicator* is made of *ranks*, numbered from 0. Each rank has a device, and does the same
//! collectives in the same order as the others. A [`Communicator`] is one rank's end. What does the
//! work is its *engine*: the [plain](plain) one, of this library's own kernels.
//!
//! A communicator fails as a whole and for good: because ranks came with different operations,
//! because somebody aborts it, or because nothing gets on. Then all that was launched with it ends.

mod cluster;
mod kind;
mod memory;
mod nccl;
mod plain;
mod shared;
mod wait;

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use cudarc::driver::CudaContext;

pub use cluster::{Cluster, set_nccl_environment};
pub(crate) use kind::Call;
pub use kind::{CollectiveKind, Element, ElementType, Reduction};
pub use memory::{Elements, RawElements};
pub(crate) use nccl::{Captured, Eager as EagerCall};
pub(crate) use plain::exchange::Message;
pub(crate) use plain::{Launch, Part};
pub(crate) use shared::Shared;
pub(crate) use wait::{Waited, Waiting, wait_for_step};

use crate::error::CollectiveFailure;
use crate::memory::Region;
use crate::{Error, Owner, Result, driver};
use shared::Sharer;

/// What does the work of a communicator.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Engine {
    /// Kernels of this library, which meet in memory of the host. The ranks are of one process, and
    /// may share devices. It runs everywhere, also where there is no GPU.
    Plain,
    /// NVIDIA's NCCL, with the feature `nccl`: a GPU for each rank, of one machine in graphs. Ranks
    /// share a GPU if each is a process and `NCCL_MULTI_RANK_GPU_ENABLE=1` is set (NCCL from 2.30
    /// on). The library is looked for when the first communicator is made.
    Nccl,
}

/// How to make a communicator.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct CommunicatorOptions {
    /// How long work may wait without any collective getting on. Then the communicator fails.
    ///
    /// NCCL does not tell how far its collectives are. With it, only turns of loops count: give it
    /// longer than the longest work without one.
    pub timeout: Duration,
    /// The engine; the best that there is if none is asked for.
    pub engine: Option<Engine>,
}

impl Default for CommunicatorOptions {
    fn default() -> CommunicatorOptions {
        CommunicatorOptions {
            timeout: Duration::from_secs(30),
            engine: None,
        }
    }
}

impl CommunicatorOptions {
    /// The same with another timeout.
    pub fn timeout(mut self, timeout: Duration) -> Self {
        self.timeout = timeout;
        self
    }

    /// The same with an engine that is asked for.
    pub fn engine(mut self, engine: Engine) -> Self {
        self.engine = Some(engine);
        self
    }
}

/// One rank's end of a communicator. Clones are cheap, and operations keep it.
///
/// All ranks do the same collectives in the same order. Of one rank, they run one after the other:
/// recorders see to that within a graph, and the program with launches, by a stream or by events.
/// Where communicators have devices in common, the program launches their loops in the same order
/// on all of them: loops of one device take turns, and a loop that waits for its turn keeps the
/// other ranks' loops waiting in theirs.
///
/// Where ranks share a context of a GPU, the program loads its modules, and makes a first graph
/// with branches if it has any, before their first launch. The driver loads a module once nothing
/// runs in the context, and lets no launch in meanwhile: ranks that wait for each other would wait
/// for ever. The kernels of collectives are loaded when the communicator is made: in 3 s on an
/// H200, or 0.2 s once the driver has compiled them.
///
/// ```
/// use cuda_graph::{Buffer, CollectiveOp, Communicator, Graph, Reduction};
///
/// let device = cuda_graph::device(0)?;
/// // Two ranks that share a device; elsewhere each has its own.
/// let contexts = [device.context().clone(), device.context().clone()];
/// let ranks = Communicator::all(&contexts, &Default::default())?;
///
/// let (mut launched, mut sums) = (Vec::new(), Vec::new());
/// for rank in &ranks {
///     let stream = rank.context().new_stream()?;
///     let values = Buffer::from_host(&stream, &[1.5f64, rank.rank() as f64])?;
///     let graph = Graph::new(rank.context())?;
///     graph.add(CollectiveOp::all_reduce(rank, &values, &values, Reduction::Sum)?, ())?;
///     let mut exec = graph.instantiate()?;
///     exec.launch(&stream)?;
///     launched.push((exec, stream));
///     sums.push(values);
/// }
/// for ((rank, (_, stream)), sum) in ranks.iter().zip(&launched).zip(&sums) {
///     rank.wait(stream)?;
///     assert_eq!(sum.to_host(stream)?, [3.0, 1.0]);
/// }
/// # Ok::<(), cuda_graph::Error>(())
/// ```
#[derive(Clone)]
pub struct Communicator {
    end: Arc<End>,
}

struct End {
    rank: u32,
    context: Arc<CudaContext>,
    ranks: Arc<Ranks>,
    engine: Working,
    /// If other ranks have the context too.
    _sharer: Option<Sharer>,
}

/// What the ranks of this process have in common.
struct Ranks {
    /// No other communicator has it.
    id: u64,
    size: u32,
    timeout: Duration,
    /// The contexts of the ranks here, by their handles.
    contexts: Vec<usize>,
}

impl Ranks {
    /// The ranks here that have a context.
    fn with(&self, context: &CudaContext) -> Vec<u32> {
        let all = (0..).zip(&self.contexts);
        all.filter(|(_, theirs)| **theirs == context.cu_ctx() as usize)
            .map(|(rank, _)| rank)
            .collect()
    }
}

/// An engine at work. What differs between engines is here.
#[derive(Clone)]
enum Working {
    Plain(Arc<plain::Group>),
    Nccl(Arc<nccl::Rank>),
}

impl Communicator {
    /// A communicator between ranks of this process: one for each context, in that order.
    ///
    /// # Errors
    ///
    /// [`Error::NoCommunicator`] when there are no ranks or too many; what the driver answers if
    /// there is no memory.
    pub fn all(
        contexts: &[Arc<CudaContext>],
        options: &CommunicatorOptions,
    ) -> Result<Vec<Communicator>> {
        driver::choose()?;
        if contexts.is_empty() {
            return Err(Error::NoCommunicator {
                why: "it has no ranks".into(),
            });
        }
        let engines = match choose(contexts, options.engine)? {
            Engine::Plain => {
                plain::check(contexts.len())?;
                let group = plain::Group::new(contexts)?;
                load_where_shared(contexts)?;
                vec![Working::Plain(group); contexts.len()]
            }
            Engine::Nccl => {
                let ranks = nccl::all(contexts, options.timeout)?;
                ranks.into_iter().map(Working::Nccl).collect()
            }
        };
        let ranks = Arc::new(Ranks {
            id: new_id(),
            size: contexts.len() as u32,
            timeout: options.timeout,
            contexts: contexts.iter().map(|it| it.cu_ctx() as usize).collect(),
        });
        let ends = (0..).zip(contexts).zip(engines);
        ends.map(|((rank, context), engine)| {
            let sharer = match ranks.with(context).len() {
                1 => None,
                _ => Sharer::of(context)?,
            };
            Ok(Communicator {
                end: Arc::new(End {
                    rank,
                    context: context.clone(),
                    ranks: ranks.clone(),
                    engine,
                    _sharer: sharer,
                }),
            })
        })
        .collect()
    }

    /// This process's rank of a communicator whose ranks are processes, as `torchrun`, `mpirun` or
    /// `srun` started them ([`Cluster::from_environment`]). Waits until all have come.
    ///
    /// A communicator of one rank is made here alone, and needs no NCCL.
    ///
    /// # Errors
    ///
    /// [`Error::NoCommunicator`] if there is no NCCL, or others do not come within the timeout;
    /// [`Error::Nccl`].
    pub fn join(
        context: &Arc<CudaContext>,
        cluster: &Cluster,
        options: &CommunicatorOptions,
    ) -> Result<Communicator> {
        let (rank, size) = (cluster.rank(), cluster.size());
        if size == 1 {
            let alone = Communicator::all(std::slice::from_ref(context), options)?;
            return Ok(alone.into_iter().next().expect("it has one rank"));
        }
        driver::choose()?;
        let refused = |why: String| Error::NoCommunicator {
            why: format!("{size} processes need NCCL: {why}").into(),
        };
        if options.engine == Some(Engine::Plain) {
            return Err(refused("the plain engine serves one process".into()));
        }
        nccl::check(std::slice::from_ref(context)).map_err(refused)?;
        let id = cluster.meet(options.timeout, nccl::unique_id)?;
        let joined = nccl::Rank::join(context, rank, size, id, options.timeout)?;
        Ok(Communicator {
            end: Arc::new(End {
                rank,
                context: context.clone(),
                ranks: Arc::new(Ranks {
                    id: new_id(),
                    size,
                    timeout: options.timeout,
                    contexts: vec![context.cu_ctx() as usize],
                }),
                engine: Working::Nccl(joined),
                _sharer: None,
            }),
        })
    }

    /// Its number, from 0.
    pub fn rank(&self) -> u32 {
        self.end.rank
    }

    /// How many ranks there are.
    pub fn size(&self) -> u32 {
        self.end.ranks.size
    }

    /// The context of its device.
    pub fn context(&self) -> &Arc<CudaContext> {
        &self.end.context
    }

    /// What does the work.
    pub fn engine(&self) -> Engine {
        match &self.end.engine {
            Working::Plain(_) => Engine::Plain,
            Working::Nccl(_) => Engine::Nccl,
        }
    }

    /// How long work may wait without any collective getting on.
    pub fn timeout(&self) -> Duration {
        self.end.ranks.timeout
    }

    /// Ends all that was launched with the communicator, of all ranks. What collectives write is
    /// open then. Loops that a recorder made around collectives end too, after the turn they are
    /// in. Later launches do nothing, and the devices stay usable.
    pub fn abort(&self) {
        self.fail(CollectiveFailure::Aborted { rank: self.rank() });
    }

    /// What went wrong, if something did.
    ///
    /// # Errors
    ///
    /// [`Error::Communicator`].
    pub fn check(&self) -> Result<()> {
        let failure = match &self.end.engine {
            Working::Plain(group) => group.failure(),
            Working::Nccl(rank) => rank.failure(),
        };
        match failure {
            None => Ok(()),
            Some(failure) => Err(Error::Communicator {
                rank: self.rank(),
                size: self.size(),
                failure: Box::new(failure),
            }),
        }
    }

    /// Whether both are ends of one communicator.
    pub fn is_of_same(&self, other: &Communicator) -> bool {
        self.id() == other.id()
    }

    /// Whether both are the same rank's ends of one communicator.
    pub(crate) fn is_same_end(&self, other: &Communicator) -> bool {
        self.is_of_same(other) && self.rank() == other.rank()
    }

    /// The communicator fails, unless it has failed.
    pub(crate) fn fail(&self, failure: CollectiveFailure) {
        match &self.end.engine {
            Working::Plain(group) => group.fail(failure),
            Working::Nccl(rank) => rank.fail(failure),
        }
    }

    /// What no other communicator has.
    pub(crate) fn id(&self) -> u64 {
        self.end.ranks.id
    }

    /// The word that is not 0 once it failed. It lies where every device reaches it.
    pub(crate) fn stop_word(&self) -> Region {
        match &self.end.engine {
            Working::Plain(group) => group.stop_word(),
            Working::Nccl(rank) => rank.stop_word(),
        }
    }

    /// Addresses that stand for this rank's turn in the communicator: its collectives write them.
    pub(crate) fn place(&self) -> std::ops::Range<u64> {
        match &self.end.engine {
            Working::Plain(group) => group.place_of(self.rank()),
            Working::Nccl(rank) => rank.place(),
        }
    }

    /// The ranks that have this one's context, if there are others.
    pub(crate) fn sharing(&self) -> Vec<u32> {
        let sharing = self.end.ranks.with(&self.end.context);
        match sharing.len() {
            1 => Vec::new(),
            _ => sharing,
        }
    }

    /// Whether other ranks of this process wait for this one's launches.
    pub(crate) fn meets_here(&self) -> bool {
        self.end.ranks.contexts.len() > 1
    }

    /// The launch of this rank's part in a collective.
    pub(crate) fn launch(&self, part: &Part<'_>) -> Result<Launch> {
        match &self.end.engine {
            Working::Plain(group) => plain::launch(group, self.context(), self.rank(), part),
            Working::Nccl(rank) => rank.collective(part),
        }
    }

    /// The launch of this rank's messages.
    pub(crate) fn launch_exchange(&self, messages: &[Message<'_>]) -> Result<Launch> {
        const MOST: usize = plain::exchange::MOST;
        if messages.len() > MOST {
            return Err(Error::OutOfRange {
                start: 0,
                end: messages.len(),
                len: MOST,
            });
        }
        match &self.end.engine {
            Working::Plain(group) => {
                plain::exchange::launch(group, self.context(), self.rank(), messages)
            }
            Working::Nccl(rank) => rank.exchange(messages),
        }
    }

    /// A number that changes as collectives get on.
    fn progress(&self) -> u64 {
        match &self.end.engine {
            Working::Plain(group) => group.progress(),
            Working::Nccl(rank) => rank.progress(),
        }
    }

    /// The ranks that others wait for, as far as it can be told.
    fn missing(&self) -> Vec<u32> {
        match &self.end.engine {
            Working::Plain(group) => group.missing(),
            // NCCL does not tell.
            Working::Nccl(_) => Vec::new(),
        }
    }

    /// What keeps it.
    pub(crate) fn owner(&self) -> Owner {
        self.end.clone()
    }
}

/// A number that no communicator had before.
fn new_id() -> u64 {
    static NEXT: AtomicU64 = AtomicU64::new(1);
    NEXT.fetch_add(1, Ordering::Relaxed)
}

/// The engine for ranks of one process: NCCL where it can be, unless one is asked for.
fn choose(contexts: &[Arc<CudaContext>], asked: Option<Engine>) -> Result<Engine> {
    if asked == Some(Engine::Plain) || asked.is_none() && contexts.len() == 1 {
        return Ok(Engine::Plain);
    }
    match (nccl::check(contexts), asked) {
        (Ok(()), _) => Ok(Engine::Nccl),
        (Err(why), Some(_)) => Err(Error::NoCommunicator { why: why.into() }),
        (Err(why), None) => {
            tracing::info!(
                ranks = contexts.len(),
                "the plain engine does the collectives: {why}"
            );
            Ok(Engine::Plain)
        }
    }
}

/// Loads the plain engine's kernels into contexts that ranks share, before any rank waits for
/// another. Software loads modules whatever runs.
fn load_where_shared(contexts: &[Arc<CudaContext>]) -> Result<()> {
    if driver::choose()? == crate::Driver::Software {
        return Ok(());
    }
    let of = |context: &CudaContext| context.cu_ctx();
    let mut shared = contexts.iter().enumerate().filter(|(at, context)| {
        let mut before = contexts[..*at].iter();
        before.any(|before| of(before) == of(context))
    });
    shared.try_for_each(|(_, context)| plain::kernels::load_all(context))
}

/// The texts of the plain engine's kernels.
pub(crate) fn texts() -> Vec<String> {
    let all = plain::kernels::all().into_iter();
    all.map(plain::kernels::ptx).collect()
}

impl fmt::Debug for Communicator {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (rank, size, engine) = (self.rank(), self.size(), self.engine());
        write!(f, "rank {rank} of {size}, {engine:?} engine")
    }
}
