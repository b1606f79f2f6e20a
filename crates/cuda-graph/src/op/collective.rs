//! Collectives: what the ranks of a communicator do together.

use std::fmt;
use std::sync::Arc;

use cudarc::driver::CudaContext;
use cudarc::driver::sys::{CUgraph, CUgraphExec, CUgraphNode, CUstream};
use smallvec::SmallVec;

use super::access::Access;
use super::{KernelOp, Op, Shared, Tag, operation, shared};
use crate::collective::{
    Call, CollectiveKind, Communicator, EagerCall, Element, ElementType, Elements, Launch, Message,
    Part, Reduction,
};
use crate::memory::Region;
use crate::{Error, Owner, Result};

operation! {
    /// One rank's part in a collective of a [`Communicator`]: every rank does the same operation,
    /// with as many elements.
    ///
    /// A collective is over on a rank once that has its result; it waits for the other ranks where
    /// they have not come. What a graph holds of one communicator runs in the order in which it was
    /// recorded, also where it was recorded in branches side by side. A graph in which two could
    /// run at once makes no executable ([`Error::CollectivesAtOnce`]).
    ///
    /// `to` is written and `from` read. Both may be the same memory, where that is said; other
    /// overlaps are refused.
    ///
    /// The functions that make one fail with [`Error::SizeMismatch`] for memory of a wrong length,
    /// [`Error::Overlap`], [`Error::ForeignRank`] for memory of another context than the
    /// communicator's, [`Error::NoRank`] for a root or peer that is no rank, and with what the
    /// driver answers if it does not take the kernel.
    ///
    /// ```
    /// use cuda_graph::{Buffer, CollectiveOp, Communicator, Graph};
    ///
    /// let device = cuda_graph::device(0)?;
    /// let stream = device.context().new_stream()?;
    /// let ranks = Communicator::all(&[device.context().clone()], &Default::default())?;
    /// let all = Buffer::<u32>::zeroed(&stream, 4)?;
    /// let own = Buffer::from_host(&stream, &[1u32, 2, 3, 4])?;
    /// let gather = CollectiveOp::all_gather(&ranks[0], &all, &own)?;
    /// assert_eq!(gather.label_text(), Some("AllGather of 4 u32, rank 0 of 1"));
    ///
    /// let graph = Graph::new(device.context())?;
    /// graph.add(gather, ())?;
    /// graph.instantiate()?.launch(&stream)?;
    /// assert_eq!(all.to_host(&stream)?, [1, 2, 3, 4]);
    /// # Ok::<(), cuda_graph::Error>(())
    /// ```
    CollectiveOp(Collective)
}

#[derive(Clone)]
pub(super) struct Collective {
    communicator: Communicator,
    work: Work,
    form: Form,
}

/// How it is done.
#[derive(Clone)]
enum Form {
    /// By a kernel.
    Launch(KernelOp),
    /// By a stream alone.
    Eager(Arc<EagerCall>),
}

#[derive(Clone)]
enum Work {
    Together {
        call: Call,
        to: Region,
        from: Region,
    },
    Messages(SmallVec<[Letter; 2]>),
}

impl Work {
    /// Who keeps the memory.
    fn owners(&self) -> impl Iterator<Item = Owner> {
        let (pair, letters) = match self {
            Work::Together { to, from, .. } => ([Some(to), Some(from)], &[][..]),
            Work::Messages(letters) => ([None, None], &letters[..]),
        };
        let letters = letters.iter().map(|letter| &letter.region);
        let regions = pair.into_iter().flatten().chain(letters);
        regions.filter_map(|region| region.owner.clone())
    }
}

/// A message with its memory.
#[derive(Clone)]
struct Letter {
    is_sent: bool,
    peer: u32,
    element: ElementType,
    region: Region,
}

impl Letter {
    fn count(&self) -> u64 {
        (self.region.bytes() / self.element.bytes()) as u64
    }
}

/// A send or a receive of an [exchange](CollectiveOp::exchange).
#[derive(Clone)]
pub struct Transmission {
    letter: Letter,
    /// The context of the memory, by its handle.
    context: Option<usize>,
}

impl Transmission {
    /// Sends all of `from` to rank `peer`.
    pub fn send<E: Elements>(from: &E, peer: u32) -> Transmission {
        Transmission::new(from, peer, true)
    }

    /// Receives all of `to` from rank `peer`.
    pub fn recv<E: Elements>(to: &E, peer: u32) -> Transmission {
        Transmission::new(to, peer, false)
    }

    fn new<E: Elements>(memory: &E, peer: u32, is_sent: bool) -> Transmission {
        Transmission {
            letter: Letter {
                is_sent,
                peer,
                element: E::Element::TYPE,
                region: memory.region(),
            },
            context: memory.context().map(|context| context.cu_ctx() as usize),
        }
    }
}

impl fmt::Debug for Transmission {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let letter = &self.letter;
        let (count, element, peer) = (letter.count(), letter.element, letter.peer);
        match letter.is_sent {
            true => write!(f, "send of {count} {element} to rank {peer}"),
            false => write!(f, "receive of {count} {element} from rank {peer}"),
        }
    }
}

/// What a constructor was given.
struct Given<'a, T: Elements, F: Elements> {
    communicator: &'a Communicator,
    to: &'a T,
    from: &'a F,
}

impl CollectiveOp {
    /// Every rank gets the reduction of the values of all ranks, element by element. `to` may be
    /// `from`.
    #[track_caller]
    pub fn all_reduce<T: Element>(
        communicator: &Communicator,
        to: &impl Elements<Element = T>,
        from: &impl Elements<Element = T>,
        reduction: Reduction,
    ) -> Result<CollectiveOp> {
        Given::new(communicator, to, from).make(CollectiveKind::AllReduce, Some(reduction), 0)
    }

    /// Every rank gets the values of rank `root`. The `from` of other ranks is not read. `to` may
    /// be `from`.
    #[track_caller]
    pub fn broadcast<T: Element>(
        communicator: &Communicator,
        to: &impl Elements<Element = T>,
        from: &impl Elements<Element = T>,
        root: u32,
    ) -> Result<CollectiveOp> {
        Given::new(communicator, to, from).make(CollectiveKind::Broadcast, None, root)
    }

    /// Rank `root` gets the reduction of the values of all ranks, element by element. The `to` of
    /// other ranks is not written. `to` may be `from`.
    #[track_caller]
    pub fn reduce<T: Element>(
        communicator: &Communicator,
        to: &impl Elements<Element = T>,
        from: &impl Elements<Element = T>,
        reduction: Reduction,
        root: u32,
    ) -> Result<CollectiveOp> {
        Given::new(communicator, to, from).make(CollectiveKind::Reduce, Some(reduction), root)
    }

    /// Every rank gets the values of all ranks, those of rank 0 first. `to` has room for all of
    /// them; `from` may be the rank's own part of it.
    #[track_caller]
    pub fn all_gather<T: Element>(
        communicator: &Communicator,
        to: &impl Elements<Element = T>,
        from: &impl Elements<Element = T>,
    ) -> Result<CollectiveOp> {
        Given::new(communicator, to, from).make(CollectiveKind::AllGather, None, 0)
    }

    /// Every rank gets its part of the reduction of the values of all ranks: rank 0 the first.
    /// `from` has a part for each rank; `to` may be the rank's own part of it.
    #[track_caller]
    pub fn reduce_scatter<T: Element>(
        communicator: &Communicator,
        to: &impl Elements<Element = T>,
        from: &impl Elements<Element = T>,
        reduction: Reduction,
    ) -> Result<CollectiveOp> {
        Given::new(communicator, to, from).make(CollectiveKind::ReduceScatter, Some(reduction), 0)
    }

    /// Sends all of `from` to rank `peer`, which receives as many elements. It may be over before
    /// they are received.
    #[track_caller]
    pub fn send(
        communicator: &Communicator,
        from: &impl Elements,
        peer: u32,
    ) -> Result<CollectiveOp> {
        CollectiveOp::exchange(communicator, [Transmission::send(&from, peer)])
    }

    /// Receives all of `to` from rank `peer`, which sends as many elements.
    #[track_caller]
    pub fn recv(
        communicator: &Communicator,
        to: &impl Elements,
        peer: u32,
    ) -> Result<CollectiveOp> {
        CollectiveOp::exchange(communicator, [Transmission::recv(&to, peer)])
    }

    /// Does sends and receives that get on together, in whatever order: ranks that send to each
    /// other do not wait for each other. Messages from one rank to another are received in the
    /// order in which they were sent. A rank may send to itself.
    ///
    /// # Errors
    ///
    /// Also [`Error::OutOfRange`] for more than 64 messages.
    #[track_caller]
    pub fn exchange(
        communicator: &Communicator,
        messages: impl IntoIterator<Item = Transmission>,
    ) -> Result<CollectiveOp> {
        let mut letters = SmallVec::<[Letter; 2]>::new();
        for Transmission { letter, context } in messages {
            check_rank(communicator, "the peer of a message", letter.peer)?;
            check_context(communicator, "the memory of a message", context)?;
            letters.push(letter);
        }
        for (at, one) in letters.iter().enumerate() {
            for other in &letters[at + 1..] {
                let both_read = one.is_sent && other.is_sent;
                if !both_read && overlap(&one.region, &other.region) {
                    let what = "the messages of an exchange";
                    return Err(Error::Overlap { what });
                }
            }
        }
        let messages = letters.iter().map(|letter| Message {
            is_sent: letter.is_sent,
            peer: letter.peer,
            element: letter.element,
            count: letter.count(),
            region: &letter.region,
        });
        let messages: SmallVec<[Message<'_>; 2]> = messages.collect();
        let launch = communicator.launch_exchange(&messages)?;
        drop(messages);
        CollectiveOp::of(communicator, Work::Messages(letters), launch)
    }

    #[track_caller]
    fn of(communicator: &Communicator, work: Work, launch: Launch) -> Result<CollectiveOp> {
        let mut owners: SmallVec<[Owner; 2]> = SmallVec::new();
        let form = match launch {
            Launch::Own {
                kernel,
                config,
                arguments,
            } => {
                // SAFETY: the kernel reads and writes the memory of the operation, of which the
                // lengths were checked, and the engine's, all of which the arguments keep.
                Form::Launch(unsafe { KernelOp::new(&kernel, config, arguments) }?)
            }
            Launch::Captured(captured) => {
                let launch = KernelOp::read(captured.node())?;
                // What NCCL made of the memory goes first.
                owners.push(captured);
                owners.extend(work.owners());
                // SAFETY: what it uses is NCCL's, which `captured` keeps, and the operation's
                // memory.
                Form::Launch(unsafe { launch.assume_owned() })
            }
            Launch::Eager(call) => {
                owners.extend(work.owners());
                Form::Eager(call)
            }
        };
        let (rank, size) = (communicator.rank(), communicator.size());
        let mut tag = Tag::here();
        tag.label = Some(format!("{work}, rank {rank} of {size}").into());
        if let Form::Launch(launch) = &form {
            owners.extend(launch.owners().iter().cloned());
        }
        owners.push(communicator.owner());
        let collective = Collective {
            communicator: communicator.clone(),
            work,
            form,
        };
        Ok(CollectiveOp(Shared::new(collective, owners, tag)))
    }

    /// The communicator, by this rank's end.
    pub fn communicator(&self) -> &Communicator {
        &self.0.value.communicator
    }

    /// What it is.
    pub fn collective(&self) -> CollectiveKind {
        match &self.0.value.work {
            Work::Together { call, .. } => call.kind,
            Work::Messages(_) => CollectiveKind::Exchange,
        }
    }

    /// How values become one, if they do.
    pub fn reduction(&self) -> Option<Reduction> {
        match &self.0.value.work {
            Work::Together { call, .. } => call.reduction,
            Work::Messages(_) => None,
        }
    }

    /// The rank that is not as the others: where values come from, or go to.
    pub fn root(&self) -> Option<u32> {
        match &self.0.value.work {
            Work::Together { call, .. } => call.kind.has_root().then_some(call.root),
            Work::Messages(_) => None,
        }
    }

    /// The type of its elements. The messages of an exchange may differ: it is that of the first.
    pub fn element(&self) -> Option<ElementType> {
        match &self.0.value.work {
            Work::Together { call, .. } => Some(call.element),
            Work::Messages(letters) => letters.first().map(|letter| letter.element),
        }
    }

    /// Where it writes: a region for each receive of an exchange.
    pub fn to(&self) -> impl Iterator<Item = &Region> {
        self.regions(false)
    }

    /// Where it reads: a region for each send of an exchange.
    pub fn from(&self) -> impl Iterator<Item = &Region> {
        self.regions(true)
    }

    fn regions(&self, is_read: bool) -> impl Iterator<Item = &Region> {
        let (one, letters) = match &self.0.value.work {
            Work::Together { to, from, .. } => (Some(if is_read { from } else { to }), None),
            Work::Messages(letters) => (None, Some(letters)),
        };
        let letters = letters.into_iter().flatten();
        let letters = letters.filter(move |letter| letter.is_sent == is_read);
        one.into_iter().chain(letters.map(|letter| &letter.region))
    }

    /// The launch, for a graph of this context.
    fn launch_in(&self, context: &CudaContext) -> Result<&KernelOp> {
        self.check_context(context)?;
        match &self.0.value.form {
            Form::Launch(launch) => Ok(launch),
            Form::Eager(call) => Err(call.refused()),
        }
    }

    /// Refuses a graph or a stream of another context than the communicator's.
    pub(crate) fn check_context(&self, context: &CudaContext) -> Result<()> {
        let context = Some(context.cu_ctx() as usize);
        check_context(self.communicator(), "the graph or stream", context)
    }
}

impl<'a, T: Elements, F: Elements<Element = T::Element>> Given<'a, T, F> {
    fn new(communicator: &'a Communicator, to: &'a T, from: &'a F) -> Given<'a, T, F> {
        Given {
            communicator,
            to,
            from,
        }
    }

    #[track_caller]
    fn make(
        self,
        kind: CollectiveKind,
        reduction: Option<Reduction>,
        root: u32,
    ) -> Result<CollectiveOp> {
        let Given {
            communicator,
            to: given_to,
            from: given_from,
        } = self;
        let (to, from) = (given_to.region(), given_from.region());
        check_rank(communicator, "the root", root)?;
        for (what, context) in [
            ("the memory that is written", given_to.context()),
            ("the memory that is read", given_from.context()),
        ] {
            let context = context.map(|context| context.cu_ctx() as usize);
            check_context(communicator, what, context)?;
        }
        let size = communicator.size() as usize;
        // The side with a part for each rank, and the other.
        let (what, whole, part) = match kind {
            CollectiveKind::AllGather => ("the memory for the values of all ranks", &to, &from),
            CollectiveKind::ReduceScatter => ("the memory with a part for each rank", &from, &to),
            _ => ("the memory that is written", &to, &from),
        };
        let parts = match kind {
            CollectiveKind::AllGather | CollectiveKind::ReduceScatter => size,
            _ => 1,
        };
        let wants = part.bytes().saturating_mul(parts);
        if whole.bytes() != wants {
            let got = whole.bytes();
            return Err(Error::SizeMismatch { what, wants, got });
        }
        // In place, a part is this rank's own.
        let own = match parts {
            1 => whole.address(),
            _ => whole.address() + u64::from(communicator.rank()) * part.bytes() as u64,
        };
        if overlap(&to, &from) && part.address() != own {
            let what = "the memory that is written and the memory that is read";
            return Err(Error::Overlap { what });
        }
        let element = T::Element::TYPE;
        let call = Call {
            kind,
            element,
            reduction,
            root,
            count: (part.bytes() / element.bytes()) as u64,
        };
        let launch = communicator.launch(&Part {
            call,
            to: Some(&to),
            from: Some(&from),
        })?;
        CollectiveOp::of(communicator, Work::Together { call, to, from }, launch)
    }
}

fn check_rank(communicator: &Communicator, what: &'static str, rank: u32) -> Result<()> {
    let size = communicator.size();
    match rank < size {
        true => Ok(()),
        false => Err(Error::NoRank { what, rank, size }),
    }
}

fn check_context(
    communicator: &Communicator,
    what: &'static str,
    context: Option<usize>,
) -> Result<()> {
    let own = communicator.context().cu_ctx() as usize;
    match context.is_none_or(|context| context == own) {
        true => Ok(()),
        false => Err(Error::ForeignRank {
            what,
            rank: communicator.rank(),
        }),
    }
}

fn overlap(one: &Region, other: &Region) -> bool {
    let end = |region: &Region| region.address() + region.bytes() as u64;
    let is_empty = one.bytes() == 0 || other.bytes() == 0;
    !is_empty && one.address() < end(other) && other.address() < end(one)
}

impl fmt::Display for Work {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let letters = match self {
            Work::Together { call, .. } => return call.fmt(f),
            Work::Messages(letters) => letters,
        };
        match &letters[..] {
            [one] => {
                let (count, element, peer) = (one.count(), one.element, one.peer);
                match one.is_sent {
                    true => write!(f, "Send of {count} {element} to rank {peer}"),
                    false => write!(f, "Recv of {count} {element} from rank {peer}"),
                }
            }
            all => {
                let sends = all.iter().filter(|letter| letter.is_sent).count();
                let receives = all.len() - sends;
                write!(f, "Exchange of {sends} sends and {receives} receives")
            }
        }
    }
}

impl Op for CollectiveOp {
    shared!(Kernel);

    fn describe(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (work, communicator) = (&self.0.value.work, self.communicator());
        write!(f, " `{work}` of {communicator:?}")
    }

    fn launch(&self) -> Option<&KernelOp> {
        match &self.0.value.form {
            Form::Launch(launch) => Some(launch),
            Form::Eager(_) => None,
        }
    }

    fn of_communicator(&self) -> Option<&Communicator> {
        Some(CollectiveOp::communicator(self))
    }

    /// With its place in the communicator, so that two of one rank keep their order.
    fn accesses(&self) -> Option<Vec<Access>> {
        let place = Access::of(CollectiveOp::communicator(self).place(), true);
        let read = self.from().filter_map(|region| Access::to(region, false));
        let written = self.to().filter_map(|region| Access::to(region, true));
        Some(place.into_iter().chain(read).chain(written).collect())
    }

    fn add_to(
        &self,
        context: &CudaContext,
        graph: CUgraph,
        after: &[CUgraphNode],
    ) -> Result<CUgraphNode> {
        self.launch_in(context)?.add_to(context, graph, after)
    }

    fn set(&self, context: &CudaContext, node: CUgraphNode, _: Option<&Self>) -> Result<()> {
        self.launch_in(context)?.set(context, node, None)
    }

    fn set_in(&self, context: &CudaContext, exec: CUgraphExec, node: CUgraphNode) -> Result<()> {
        self.launch_in(context)?.set_in(context, exec, node)
    }

    fn run(&self, stream: CUstream) -> Option<Result<()>> {
        match &self.0.value.form {
            Form::Launch(launch) => launch.run(stream),
            Form::Eager(call) => Some(call.run(stream)),
        }
    }

    fn is_same(&self, other: &Self) -> bool {
        let (one, other) = (&self.0.value, &other.0.value);
        let does_same = match (&one.form, &other.form) {
            (Form::Launch(one), Form::Launch(other)) => one.is_same(other),
            _ => false,
        };
        does_same && one.communicator.is_same_end(&other.communicator)
    }

    /// A node stays with its communicator.
    fn can_follow(&self, old: &Self) -> bool {
        CollectiveOp::communicator(self).is_same_end(CollectiveOp::communicator(old))
    }

    fn digest(&self) -> u64 {
        Op::launch(self).map_or(0, Op::digest)
    }

    /// No node of other code is known to be one.
    fn read(_: CUgraphNode) -> Result<CollectiveOp> {
        Err(Error::GraphGone)
    }
}
