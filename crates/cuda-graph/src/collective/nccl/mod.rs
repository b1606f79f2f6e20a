//! NCCL as the engine: what it launches is captured once, and becomes a kernel launch like any
//! other.
//!
//! A collective within a machine is one kernel, if NCCL's support for mixing graphs and streams is
//! off (`NCCL_GRAPH_MIXING_SUPPORT=0`; see [`set_nccl_environment`](crate::set_nccl_environment)).
//! So an operation captures NCCL's call into a graph of its own, and takes the kernel node in
//! there for what it launches: in graphs, in bodies, eagerly and again and again. The graph holds
//! what NCCL keeps for the launch, and goes with the last operation that uses it. NCCL destroys a
//! communicator only once all of them are gone. What is more than a kernel, as between machines,
//! runs eagerly alone.
//!
//! NCCL sees neither the timeout nor the loops of this library. So a rank has words in page-locked
//! memory, as the plain engine has: the stop word, at which loops end, and a count of the loops'
//! turns, by which waits tell that work gets on. A failure sets the stop word and aborts NCCL's
//! communicator, whose kernels look out for that. The abort itself returns only when no graph needs
//! the communicator any more; a thread of its own waits for that.

mod library;
mod parting;

use std::collections::HashMap;
use std::ffi::c_int;
use std::sync::mpsc::{RecvTimeoutError, channel};
use std::sync::{Arc, LazyLock, Mutex, MutexGuard, OnceLock, PoisonError, Weak};
use std::thread;
use std::time::{Duration, Instant};

use cudarc::driver::sys::{CUgraph, CUgraphNode, CUgraphNodeType, CUstream, CUstreamCaptureMode};
use cudarc::driver::{CudaContext, CudaStream, DevicePtr, LaunchConfig};

use super::kind::{Call, CollectiveKind};
use super::plain::exchange::Message;
use super::plain::{Launch, Part};
use super::{ElementType, Reduction};
use crate::driver::per_context::PerContext;
use crate::error::CollectiveFailure;
use crate::kernel::{Arguments, Kernel};
use crate::memory::{PinnedBuffer, Region};
use crate::retain::is_idle;
use crate::{Error, Result, driver};
use library::{Comm, Library, UniqueId};

/// Of so many ranks at most, all pairs are connected when the communicator is made.
const CONNECTED: u32 = 64;

/// One rank of NCCL's.
pub(super) struct Rank {
    library: &'static Library,
    rank: u32,
    context: Arc<CudaContext>,
    /// `None` once it was aborted.
    comm: Mutex<Option<Comm>>,
    /// Captures NCCL's calls; whoever does holds `comm`.
    stream: Arc<CudaStream>,
    /// The stop word, and the count of loops' turns.
    words: PinnedBuffer<u64>,
    failure: Mutex<Option<CollectiveFailure>>,
    /// The ranks of this process.
    peers: OnceLock<Vec<Weak<Rank>>>,
    /// What was captured and is still used.
    captured: Mutex<HashMap<Key, Weak<Captured>>>,
}

/// What a rank does, and where: the numbers of collectives or messages, and addresses.
type Key = Vec<u64>;

/// What NCCL launches for an operation: a graph of one kernel node.
pub(crate) struct Captured {
    _graph: Graph,
    node: usize,
    /// NCCL's communicator outlives what it launches.
    _rank: Arc<Rank>,
}

/// A collective that is not one kernel: graphs do not take it.
pub(crate) struct Eager {
    /// What NCCL would add to a graph: `CUgraphNodeType` of each node.
    pub kinds: Vec<u32>,
    /// Gives it to a stream.
    run: Box<dyn Fn(CUstream) -> Result<()> + Send + Sync>,
}

impl Eager {
    /// Gives it to a stream, which does it now.
    pub(crate) fn run(&self, stream: CUstream) -> Result<()> {
        (self.run)(stream)
    }

    /// Why graphs do not take it.
    pub(crate) fn refused(&self) -> Error {
        let kinds = self.kinds.clone();
        Error::NotOneKernel { kinds }
    }
}

struct Graph {
    raw: CUgraph,
    context: Arc<CudaContext>,
}

// SAFETY: the graph is not changed once it is made, and whoever reads it reads alone.
unsafe impl Send for Graph {}
// SAFETY: as above.
unsafe impl Sync for Graph {}

impl Drop for Graph {
    fn drop(&mut self) {
        let destroy = || driver::graph::destroy(self.raw);
        let destroyed =
            driver::bind(&self.context).and_then(|()| driver::capture::undisturbed(destroy));
        driver::log_leak("what NCCL launches", destroyed);
    }
}

impl Captured {
    /// The kernel node, which lives as long as this.
    pub(crate) fn node(&self) -> CUgraphNode {
        self.node as CUgraphNode
    }
}

/// Whether NCCL can serve ranks on these devices; if not, why.
pub(super) fn check(contexts: &[Arc<CudaContext>]) -> std::result::Result<(), String> {
    Library::find()?;
    if driver::choose().is_ok_and(|driver| driver == driver::Driver::Software) {
        return Err("the device is software, which runs no code of NCCL's".into());
    }
    let mut devices: Vec<i32> = contexts.iter().map(|context| context.cu_device()).collect();
    devices.sort_unstable();
    devices.dedup();
    match devices.len() == contexts.len() {
        true => Ok(()),
        false => Err(
            "ranks of one process share a device, where NCCL serves only ranks that are \
                      processes"
                .into(),
        ),
    }
}

/// A number that ranks find each other by: rank 0 makes it, and gives it to the others.
pub(super) fn unique_id() -> Result<[u8; 128]> {
    let mut id = UniqueId([0; 128]);
    // SAFETY: it writes the number.
    unsafe { library()?.ncclGetUniqueId(&mut id) }?;
    Ok(id.0)
}

fn library() -> Result<&'static Library> {
    Library::find().map_err(|why| Error::NoCommunicator { why: why.into() })
}

/// Makes the ranks of one process, on a thread each.
pub(super) fn all(contexts: &[Arc<CudaContext>], timeout: Duration) -> Result<Vec<Arc<Rank>>> {
    let id = unique_id()?;
    let size = contexts.len() as u32;
    let made: Vec<Result<Arc<Rank>>> = thread::scope(|scope| {
        let threads = (0..).zip(contexts).map(|(rank, context)| {
            scope.spawn(move || Rank::join(context, rank, size, id, timeout))
        });
        let threads: Vec<_> = threads.collect();
        let joined = threads.into_iter().map(|thread| thread.join());
        joined
            .map(|made| made.unwrap_or_else(|panic| std::panic::resume_unwind(panic)))
            .collect()
    });
    let ranks: Vec<Arc<Rank>> = made.into_iter().collect::<Result<_>>()?;
    for rank in &ranks {
        let peers = ranks.iter().map(Arc::downgrade).collect();
        rank.peers.get_or_init(|| peers);
    }
    Ok(ranks)
}

impl Rank {
    /// One of `size` ranks, which all join with the same number. Waits for them.
    pub(super) fn join(
        context: &Arc<CudaContext>,
        rank: u32,
        size: u32,
        id: [u8; 128],
        timeout: Duration,
    ) -> Result<Arc<Rank>> {
        let library = library()?;
        let fresh = start(library, context, (rank, size), id, timeout)?;
        let stream = context
            .new_stream()
            .map_err(Error::call("cuStreamCreate"))?;
        let words = PinnedBuffer::portable(context, 2)?;
        let joined = Arc::new(Rank {
            library,
            rank,
            context: context.clone(),
            comm: Mutex::new(Some(fresh.take())),
            stream,
            words,
            failure: Mutex::new(None),
            peers: OnceLock::new(),
            captured: Mutex::default(),
        });
        joined.connect(size, timeout)?;
        parting::heed_the_end();
        let mut live = live();
        live.retain(|rank| rank.strong_count() > 0);
        live.push(Arc::downgrade(&joined));
        Ok(joined)
    }

    /// Has NCCL make all connections now, while all ranks are here: later each would wait for the
    /// other's first message.
    fn connect(&self, size: u32, timeout: Duration) -> Result<()> {
        driver::bind(&self.context)?;
        let words = self
            .stream
            .alloc_zeros::<u8>(2 * size as usize)
            .map_err(Error::call("cuMemAllocAsync"))?;
        let (start, _order) = words.device_ptr(&self.stream);
        let byte = number_of(ElementType::U8);
        let stream = self.stream.cu_stream();
        self.with(|library, comm| {
            // SAFETY: the memory has two bytes for each rank, and lives until the stream is done.
            unsafe {
                library.ncclAllReduce(start, start, 1, byte, 0, comm, stream)?;
                if size > CONNECTED {
                    return Ok(());
                }
                library.ncclGroupStart()?;
                let messages = (0..size).try_for_each(|peer| {
                    let (at, to) = (start + u64::from(peer), start + u64::from(size + peer));
                    library.ncclSend(at, 1, byte, peer as c_int, comm, stream)?;
                    library.ncclRecv(to, 1, byte, peer as c_int, comm, stream)
                });
                library.ncclGroupEnd().and(messages)
            }
        })?;
        let begun = Instant::now();
        while !driver::stream::is_over(stream)? {
            if begun.elapsed() >= timeout || self.failure().is_some() {
                let failure = CollectiveFailure::TimedOut {
                    rank: self.rank,
                    after: begun.elapsed(),
                    missing: Vec::new(),
                };
                self.fail(failure);
                let why = self.failure().map_or_else(String::new, |it| it.to_string());
                return Err(Error::NoCommunicator { why: why.into() });
            }
            thread::sleep(Duration::from_millis(1));
        }
        Ok(())
    }

    fn comm(&self) -> MutexGuard<'_, Option<Comm>> {
        self.comm.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Calls NCCL with the communicator, unless it was aborted.
    fn with<T>(&self, call: impl FnOnce(&Library, Comm) -> Result<T>) -> Result<T> {
        match *self.comm() {
            Some(comm) => call(self.library, comm),
            None => Err(Error::NoCommunicator {
                why: "it has failed: its `check` says why".into(),
            }),
        }
    }

    /// The word that is not 0 once it failed, and behind it the count of loops' turns.
    pub(super) fn stop_word(&self) -> Region {
        let whole = crate::Source::source(&self.words);
        Region { bytes: 4, ..whole }
    }

    /// Addresses that stand for the rank's turn.
    pub(super) fn place(&self) -> std::ops::Range<u64> {
        let start = self.words.address();
        start..start + 16
    }

    /// A number that changes as loops get on.
    pub(super) fn progress(&self) -> u64 {
        self.words.load(1)
    }

    /// Fails, unless it did, with all ranks of this process.
    pub(super) fn fail(&self, failure: CollectiveFailure) {
        self.stop(failure.clone());
        let peers = self.peers.get().into_iter().flatten();
        for peer in peers.filter_map(Weak::upgrade) {
            peer.stop(failure.clone());
        }
    }

    fn stop(&self, failure: CollectiveFailure) {
        let known = || self.failure.lock().unwrap_or_else(PoisonError::into_inner);
        known().get_or_insert(failure);
        self.words.store(0, 1);
        let Some(comm) = self.comm().take() else {
            return;
        };
        // SAFETY: the communicator was this rank's, and nobody else has it now.
        self.part_with(move |library| unsafe { library.ncclCommAbort(comm) });
    }

    fn part_with(&self, part: impl FnOnce(&Library) -> Result<()> + Send + 'static) {
        part_with(self.library, self.context.clone(), part);
    }

    /// Why it failed, if it did.
    pub(super) fn failure(&self) -> Option<CollectiveFailure> {
        let known = || {
            self.failure
                .lock()
                .unwrap_or_else(PoisonError::into_inner)
                .clone()
        };
        if let Some(failure) = known() {
            return Some(failure);
        }
        // SAFETY: the lock holds the communicator.
        let why = (*self.comm()).and_then(|comm| unsafe { self.library.failure(comm) })?;
        self.fail(CollectiveFailure::PeerLost {
            rank: self.rank,
            why: why.into(),
        });
        known()
    }

    /// The launch of a collective.
    pub(super) fn collective(self: &Arc<Self>, part: &Part<'_>) -> Result<Launch> {
        let Call {
            kind,
            element,
            reduction,
            root,
            count,
        } = part.call;
        let address = |region: Option<&Region>| region.map_or(0, Region::address);
        let (from, to) = (address(part.from), address(part.to));
        let key = vec![part.call.code(), u64::from(root), count, from, to];
        let (length, element) = (count as usize, number_of(element));
        let (by, root) = (reduction.map_or(0, number_by), root as c_int);
        self.capture(key, move |library, comm, stream| {
            // SAFETY: the memory has as many elements, and the operation holds it.
            unsafe {
                match kind {
                    CollectiveKind::AllReduce => {
                        library.ncclAllReduce(from, to, length, element, by, comm, stream)
                    }
                    CollectiveKind::Broadcast => {
                        library.ncclBroadcast(from, to, length, element, root, comm, stream)
                    }
                    CollectiveKind::Reduce => {
                        library.ncclReduce(from, to, length, element, by, root, comm, stream)
                    }
                    CollectiveKind::AllGather => {
                        library.ncclAllGather(from, to, length, element, comm, stream)
                    }
                    CollectiveKind::ReduceScatter => {
                        library.ncclReduceScatter(from, to, length, element, by, comm, stream)
                    }
                    CollectiveKind::Exchange => unreachable!("messages come by `exchange`"),
                }
            }
        })
    }

    /// The launch of messages.
    pub(super) fn exchange(self: &Arc<Self>, messages: &[Message<'_>]) -> Result<Launch> {
        let words = |message: &Message<'_>| {
            let is_sent = u64::from(message.is_sent);
            let element = u64::from(number_of(message.element));
            let (peer, count) = (u64::from(message.peer), message.count);
            [is_sent, element, peer, count, message.region.address()]
        };
        let key: Key = messages.iter().flat_map(words).collect();
        let messages = key.clone();
        self.capture(key, move |library, comm, stream| {
            // SAFETY: nothing is asked of it.
            unsafe { library.ncclGroupStart() }?;
            let given = messages.chunks_exact(5).try_for_each(|message| {
                let &[is_sent, element, peer, count, address] = message else {
                    unreachable!("a message is five numbers");
                };
                let (element, peer, count) = (element as u32, peer as c_int, count as usize);
                // SAFETY: the memory has as many elements, and the operation holds it.
                unsafe {
                    match is_sent {
                        0 => library.ncclRecv(address, count, element, peer, comm, stream),
                        _ => library.ncclSend(address, count, element, peer, comm, stream),
                    }
                }
            });
            // SAFETY: as above. A group that began must end.
            unsafe { library.ncclGroupEnd() }.and(given)
        })
    }

    /// Captures what `call` gives a stream, unless that was done and is still used.
    fn capture(
        self: &Arc<Self>,
        key: Key,
        call: impl Fn(&Library, Comm, CUstream) -> Result<()> + Send + Sync + 'static,
    ) -> Result<Launch> {
        let mut known = self.captured.lock().unwrap_or_else(PoisonError::into_inner);
        known.retain(|_, captured| captured.strong_count() > 0);
        if let Some(captured) = known.get(&key).and_then(Weak::upgrade) {
            return Ok(Launch::Captured(captured));
        }
        let graph = self.with(|library, comm| self.record(|stream| call(library, comm, stream)))?;
        let nodes = driver::graph::nodes(graph.raw)?;
        let kinds = nodes.iter().map(|&node| driver::node::kind(node));
        let kinds = kinds.collect::<Result<Vec<u32>>>()?;
        const KERNEL: u32 = CUgraphNodeType::CU_GRAPH_NODE_TYPE_KERNEL as u32;
        match (&nodes[..], &kinds[..]) {
            ([], _) => nothing(&self.context),
            (&[node], &[KERNEL]) => {
                let captured = Arc::new(Captured {
                    _graph: graph,
                    node: node as usize,
                    _rank: self.clone(),
                });
                known.insert(key, Arc::downgrade(&captured));
                Ok(Launch::Captured(captured))
            }
            _ => {
                let rank = self.clone();
                Ok(Launch::Eager(Arc::new(Eager {
                    kinds,
                    run: Box::new(move |stream| {
                        rank.with(|library, comm| call(library, comm, stream))
                    }),
                })))
            }
        }
    }

    /// Records what `work` gives this rank's stream into a graph of its own.
    fn record(&self, work: impl FnOnce(CUstream) -> Result<()>) -> Result<Graph> {
        driver::bind(&self.context)?;
        let stream = self.stream.cu_stream();
        let graph = Graph {
            raw: driver::graph::create()?,
            context: self.context.clone(),
        };
        let mode = CUstreamCaptureMode::CU_STREAM_CAPTURE_MODE_RELAXED;
        driver::capture::begin(stream, graph.raw, &[], mode)?;
        let worked = work(stream);
        let ended = driver::capture::end(stream);
        worked?;
        ended?;
        Ok(graph)
    }
}

/// Lets NCCL's communicator go, on a thread of its own: that may wait for graphs, or for other
/// ranks.
fn part_with(
    library: &'static Library,
    context: Arc<CudaContext>,
    part: impl FnOnce(&Library) -> Result<()> + Send + 'static,
) {
    parting::begin(move || {
        let gone = driver::bind(&context).and_then(|()| part(library));
        driver::log_leak("a communicator of NCCL's", gone);
    });
}

/// All ranks that are there.
fn live() -> MutexGuard<'static, Vec<Weak<Rank>>> {
    static LIVE: Mutex<Vec<Weak<Rank>>> = Mutex::new(Vec::new());
    LIVE.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Aborts the ranks whose launches wait for others, which the driver would wait for: the program
/// ends, and those of this process are launched by nobody any more. Other processes' may still
/// come, for a while.
fn end_what_waits() {
    const LAST: Duration = Duration::from_secs(3);
    let ranks: Vec<Arc<Rank>> = live().iter().filter_map(Weak::upgrade).collect();
    let aborted = |rank: &Rank| rank.fail(CollectiveFailure::Aborted { rank: rank.rank });
    let (is_over, over) = channel();
    let mut running = Vec::new();
    for (number, rank) in ranks.iter().enumerate() {
        if !is_idle(&rank.context) {
            aborted(rank);
            continue;
        }
        let (context, is_over) = (rank.context.clone(), is_over.clone());
        // Not waited for: it may take for ever.
        let waits = thread::Builder::new().spawn(move || {
            let _ = driver::capture::undisturbed(|| context.synchronize());
            let _ = is_over.send(number);
        });
        if waits.is_ok() {
            running.push(number);
        }
    }
    let end = Instant::now() + LAST;
    while !running.is_empty() {
        let left = end.saturating_duration_since(Instant::now());
        match over.recv_timeout(left) {
            Ok(number) => running.retain(|other| *other != number),
            Err(_) => break,
        }
    }
    running
        .into_iter()
        .for_each(|number| aborted(&ranks[number]));
    // What a rank lets go would begin another thread.
    std::mem::forget(ranks);
}

impl Drop for Rank {
    fn drop(&mut self) {
        // Of a rank that lost others, this aborts.
        let _ = self.failure();
        if let Some(comm) = self.comm().take() {
            // SAFETY: the communicator was this rank's, and nobody uses it any more.
            self.part_with(move |library| unsafe { library.ncclCommDestroy(comm) });
        }
    }
}

/// The launch of a collective that NCCL does nothing for: of no elements, or no messages.
fn nothing(context: &Arc<CudaContext>) -> Result<Launch> {
    const TEXT: &str = ".version 6.0\n.target sm_52\n.address_size 64\n\
                        .visible .entry cuda_graph_nothing() { ret; }\n";
    static LOADED: LazyLock<PerContext<Kernel>> = LazyLock::new(PerContext::new);
    let load = || Ok(Kernel::load(context, TEXT, ["cuda_graph_nothing"])?[0].clone());
    Ok(Launch::Own {
        kernel: LOADED.get(context, load)?,
        config: LaunchConfig {
            grid_dim: (1, 1, 1),
            block_dim: (1, 1, 1),
            shared_mem_bytes: 0,
        },
        arguments: Arguments::default(),
    })
}

/// A communicator of NCCL's that no rank has yet. It is aborted if none takes it: one that is made
/// too late, or for a rank that could not be made.
struct Fresh {
    library: &'static Library,
    context: Arc<CudaContext>,
    comm: Option<Comm>,
}

impl Fresh {
    fn take(mut self) -> Comm {
        self.comm.take().expect("it is taken once")
    }
}

impl Drop for Fresh {
    fn drop(&mut self) {
        let Some(comm) = self.comm.take() else {
            return;
        };
        parting::heed_the_end();
        let context = self.context.clone();
        // SAFETY: nobody else has the communicator.
        part_with(self.library, context, move |library| unsafe {
            library.ncclCommAbort(comm)
        });
    }
}

/// Makes NCCL's communicator, on a thread that is left behind if other ranks do not come.
fn start(
    library: &'static Library,
    context: &Arc<CudaContext>,
    (rank, size): (u32, u32),
    id: [u8; 128],
    timeout: Duration,
) -> Result<Fresh> {
    let (done, made) = channel();
    let context = context.clone();
    thread::spawn(move || {
        let mut comm = Comm::NONE;
        let (size, rank) = (size as c_int, rank as c_int);
        let made = driver::bind(&context).and_then(|()| {
            // SAFETY: the context is current, and the place takes the handle.
            unsafe { library.ncclCommInitRank(&mut comm, size, UniqueId(id), rank) }
        });
        let fresh = made.map(|()| Fresh {
            library,
            context,
            comm: Some(comm),
        });
        // Nobody waits any more if it took too long.
        let _ = done.send(fresh);
    });
    match made.recv_timeout(timeout) {
        Ok(made) => made,
        Err(RecvTimeoutError::Timeout) => Err(Error::NoCommunicator {
            why: format!(
                "rank {rank} waited {timeout:?} for the other {} ranks",
                size - 1
            )
            .into(),
        }),
        Err(RecvTimeoutError::Disconnected) => Err(Error::NoCommunicator {
            why: "NCCL panicked".into(),
        }),
    }
}

/// `ncclDataType_t`.
fn number_of(element: ElementType) -> u32 {
    match element {
        ElementType::I8 => 0,
        ElementType::U8 => 1,
        ElementType::I32 => 2,
        ElementType::U32 => 3,
        ElementType::I64 => 4,
        ElementType::U64 => 5,
        ElementType::F16 => 6,
        ElementType::F32 => 7,
        ElementType::F64 => 8,
        ElementType::Bf16 => 9,
    }
}

/// `ncclRedOp_t`.
fn number_by(reduction: Reduction) -> u32 {
    match reduction {
        Reduction::Sum => 0,
        Reduction::Product => 1,
        Reduction::Max => 2,
        Reduction::Min => 3,
        Reduction::Average => 4,
    }
}
