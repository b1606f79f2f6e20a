//! The ranks of this process together: their executables, launched and waited for as one.

use std::fmt;
use std::panic::resume_unwind;
use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant};

use cudarc::driver::CudaStream;
use smallvec::SmallVec;

use crate::collective::{Communicator, Waited, Waiting};
use crate::driver::begun::refuse_captured;
use crate::error::CollectiveFailure;
use crate::exec::{Exec, InstantiateOptions};
use crate::graph::Graph;
use crate::record::Path;
use crate::{Error, Result};

/// The ranks of a communicator that are in this process: a graph, an executable and a stream each.
/// Where each rank is a process of its own, it is one of them.
///
/// All ranks do the same collectives in the same order. Loops and branches with collectives inside
/// are decided by a flag that is the same on all ranks, as one that comes of an all-reduce is:
/// otherwise a rank leaves while others wait for it, and the communicator fails.
///
/// ```
/// use cuda_graph::{Buffer, CollectiveOp, Communicator, Ranks, Reduction};
///
/// let device = cuda_graph::device(0)?;
/// let contexts = [device.context().clone(), device.context().clone()];
/// let communicators = Communicator::all(&contexts, &Default::default())?;
/// let sums: Vec<_> = (communicators.iter())
///     .map(|rank| {
///         let stream = rank.context().new_stream()?;
///         Buffer::from_host(&stream, &[rank.rank() + 1])
///     })
///     .collect::<cuda_graph::Result<_>>()?;
///
/// let (mut ranks, _) = Ranks::record(&communicators, |rank, path| {
///     let sum = &sums[rank.rank() as usize];
///     path.record(CollectiveOp::all_reduce(rank, sum, sum, Reduction::Sum)?)
/// })?;
/// for _ in 0..3 {
///     ranks.launch()?;
/// }
/// ranks.wait()?;
/// assert_eq!(sums[1].to_host(ranks.stream(1))?, [3 * 2 * 2]);
/// # Ok::<(), cuda_graph::Error>(())
/// ```
pub struct Ranks {
    members: Vec<Member>,
}

struct Member {
    communicator: Communicator,
    /// It, and all others that the graph has collectives of.
    communicators: SmallVec<[Communicator; 1]>,
    graph: Graph,
    exec: Exec,
    stream: Arc<CudaStream>,
    waiting: Waiting,
    is_over: bool,
}

/// How long launches may take to end after a failure. They wait for nobody any more.
const GRACE: Duration = Duration::from_secs(30);

impl Ranks {
    /// Records a step for each of `communicators`, on a thread each, and makes executables. Returns
    /// what the recordings returned too, in the order of `communicators`.
    ///
    /// Each recording has a stream of its own, so it takes [foreign](Path::foreign) work.
    ///
    /// # Errors
    ///
    /// What `record` returns, of the first rank that fails; as [`Graph::instantiate`];
    /// [`Error::NoCommunicator`] for a rank that is given twice. Nothing is left then.
    pub fn record<T: Send>(
        communicators: &[Communicator],
        record: impl Fn(&Communicator, &mut Path) -> Result<T> + Sync,
    ) -> Result<(Ranks, Vec<T>)> {
        Ranks::record_with(communicators, &InstantiateOptions::default(), record)
    }

    /// As [`record`](Ranks::record), with options for the executables.
    pub fn record_with<T: Send>(
        communicators: &[Communicator],
        options: &InstantiateOptions,
        record: impl Fn(&Communicator, &mut Path) -> Result<T> + Sync,
    ) -> Result<(Ranks, Vec<T>)> {
        check_once(communicators.iter())?;
        let record = |communicator: &Communicator| {
            let context = communicator.context();
            let stream = context
                .new_stream()
                .map_err(Error::call("cuStreamCreate"))?;
            let (graph, value) = Graph::capture(&stream, |path| record(communicator, path))?;
            Ok((stream, graph, value))
        };
        let recorded: Vec<thread::Result<Result<_>>> = thread::scope(|scope| {
            let threads = communicators.iter().map(|communicator| {
                let record = &record;
                scope.spawn(move || record(communicator))
            });
            let threads: Vec<_> = threads.collect();
            threads.into_iter().map(|thread| thread.join()).collect()
        });
        let (mut members, mut values) = (Vec::new(), Vec::new());
        for (communicator, recorded) in communicators.iter().zip(recorded) {
            let (stream, graph, value) = recorded.unwrap_or_else(|panic| resume_unwind(panic))?;
            members.push(Member::new(communicator, graph, stream, options)?);
            values.push(value);
        }
        Ok((Ranks { members }, values))
    }

    /// The ranks of graphs that are there: each with its communicator, and the stream that it is to
    /// be launched in.
    ///
    /// # Errors
    ///
    /// As [`Graph::instantiate`]; [`Error::NoCommunicator`] for a rank that is given twice.
    pub fn new(
        ranks: impl IntoIterator<Item = (Communicator, Graph, Arc<CudaStream>)>,
        options: &InstantiateOptions,
    ) -> Result<Ranks> {
        let member =
            |(communicator, graph, stream)| Member::new(&communicator, graph, stream, options);
        let members: Vec<Member> = ranks.into_iter().map(member).collect::<Result<_>>()?;
        check_once(members.iter().map(|member| &member.communicator))?;
        Ok(Ranks { members })
    }

    /// Launches all of them, each in its stream. It returns at once.
    ///
    /// # Errors
    ///
    /// [`Error::Communicator`] if the communicator has failed: then nothing is launched. If one of
    /// the launches fails, so does the communicator, so that those of other ranks end.
    pub fn launch(&mut self) -> Result<()> {
        for member in &self.members {
            member.check()?;
        }
        for member in &mut self.members {
            (member.waiting, member.is_over) = (Waiting::new(), false);
            if let Err(error) = member.exec.launch(&member.stream) {
                member.fail(&error);
                return Err(error);
            }
        }
        Ok(())
    }

    /// Waits until all that was launched is over, on all ranks.
    ///
    /// # Errors
    ///
    /// [`Error::Communicator`] names a rank and the cause: ranks came with different operations,
    /// somebody aborted, a rank's device failed, or no collective got on for the communicator's
    /// [timeout](Communicator::timeout). What was launched is over then too, and the devices stay
    /// usable, unless a kernel failed.
    pub fn wait(&mut self) -> Result<()> {
        for member in &mut self.members {
            refuse_captured(&member.stream)?;
            (member.waiting, member.is_over) = (Waiting::new(), false);
        }
        let mut failed: Option<(Error, Instant)> = None;
        loop {
            let mut are_over = true;
            for member in &mut self.members {
                are_over &= member.look();
            }
            if failed.is_none() {
                let errors = self.members.iter().find_map(|member| member.check().err());
                failed = errors.map(|error| (error, Instant::now()));
            }
            let is_late = |since: &Instant| since.elapsed() > GRACE;
            match failed {
                None if are_over => return Ok(()),
                Some((error, since)) if are_over || is_late(&since) => return Err(error),
                kept => failed = kept,
            }
            match self.members.first_mut() {
                Some(first) => first.waiting.rest(),
                None => return Ok(()),
            }
        }
    }

    /// Ends what was launched with the communicators, of all ranks.
    pub fn abort(&self) {
        self.members
            .iter()
            .for_each(|member| member.communicator.abort());
    }

    /// How many ranks are in this process.
    pub fn len(&self) -> usize {
        self.members.len()
    }

    /// Whether there is none.
    pub fn is_empty(&self) -> bool {
        self.members.is_empty()
    }

    /// The communicator of rank number `index` of this process, counted from 0 as they were given.
    ///
    /// # Panics
    ///
    /// If there are not as many, as the functions below do.
    pub fn communicator(&self, index: usize) -> &Communicator {
        &self.members[index].communicator
    }

    /// The executable of a rank, to update its nodes. An update that changes a collective is made
    /// on all ranks.
    pub fn exec(&mut self, index: usize) -> &mut Exec {
        &mut self.members[index].exec
    }

    /// The graph of a rank, to look at, and to draw.
    pub fn graph(&self, index: usize) -> &Graph {
        &self.members[index].graph
    }

    /// The stream that a rank is launched in.
    pub fn stream(&self, index: usize) -> &Arc<CudaStream> {
        &self.members[index].stream
    }
}

/// Refuses a rank that is there twice: two launches of it would run at once.
fn check_once<'a>(communicators: impl Iterator<Item = &'a Communicator> + Clone) -> Result<()> {
    for (at, communicator) in communicators.clone().enumerate() {
        let mut before = communicators.clone().take(at);
        if before.any(|other| other.is_same_end(communicator)) {
            let why = format!("rank {} was given twice", communicator.rank()).into();
            return Err(Error::NoCommunicator { why });
        }
    }
    Ok(())
}

impl Member {
    fn new(
        communicator: &Communicator,
        graph: Graph,
        stream: Arc<CudaStream>,
        options: &InstantiateOptions,
    ) -> Result<Member> {
        let mut communicators = graph.hierarchy().look().communicators(graph.body_index());
        if !communicators
            .iter()
            .any(|known| known.is_of_same(communicator))
        {
            communicators.push(communicator.clone());
        }
        Ok(Member {
            communicator: communicator.clone(),
            communicators,
            exec: graph.instantiate_with(options)?,
            graph,
            stream,
            waiting: Waiting::new(),
            is_over: true,
        })
    }

    fn check(&self) -> Result<()> {
        self.communicators.iter().try_for_each(Communicator::check)
    }

    /// Others must not wait for this rank any more.
    fn fail(&self, error: &Error) {
        for communicator in &self.communicators {
            communicator.fail(CollectiveFailure::RankFailed {
                rank: communicator.rank(),
                why: error.to_string().into(),
            });
        }
    }

    /// Looks whether it is over. A device that failed is.
    fn look(&mut self) -> bool {
        if !self.is_over {
            let waited = self.waiting.look(&self.stream, &self.communicators);
            self.is_over = !matches!(waited, Ok(Waited::NotYet));
        }
        self.is_over
    }
}

impl fmt::Debug for Ranks {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let ranks = self.members.iter().map(|member| &member.communicator);
        f.write_str("Ranks ")?;
        f.debug_list().entries(ranks).finish()
    }
}
