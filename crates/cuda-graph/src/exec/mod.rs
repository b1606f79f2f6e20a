//! Executable graphs: launched, and updated without being built again.

mod diff;
mod edit;
mod instantiate;
mod optimized;
mod others;
mod ready;
mod skip;
mod table;
mod turns;
mod update;

use std::cell::Cell;
use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::fmt;
use std::hash::BuildHasherDefault;
use std::marker::PhantomData;
use std::sync::Arc;

use cudarc::driver::sys::CUgraphExec;
use cudarc::driver::{CudaContext, CudaStream};

pub(crate) use edit::{Edit, Patch, Refused};
pub use instantiate::InstantiateOptions;
pub(crate) use ready::Ready;
pub use update::Updated;

use crate::driver::begun::refuse_captured;
use crate::driver::event::Event;
use crate::graph::content::Content;
use crate::graph::shape::Version;
use crate::graph::state::{Hierarchy, State};
use crate::graph::{Graph, NodeId, Operation};
use crate::optimize::Report;
use crate::retain::{AddressHasher, Batch, Fence, when_idle};
use crate::{Owner, Result, driver};
use optimized::Optimized;
use others::Others;
use skip::Skipped;
use table::Table;
use turns::Turns;

/// An executable graph.
///
/// It holds what its nodes use, and so does every launch in flight. So the definition may be
/// dropped, and so may the executable while it runs. It keeps the stream that it was last launched
/// in. Launching is `&mut`: the driver wants launches of one executable one after the other.
///
/// Dropping one that has conditional nodes waits until its context has run everything launched in
/// it. Other calls in that context wait meanwhile, as they do where memory is freed. While launches
/// are in flight that other ranks of the process meet, that is put off.
pub struct Exec {
    raw: CUgraphExec,
    owned: bool,
    /// The context that it was made in. `None`: its definition's, which short updates ask for.
    context: Option<Arc<CudaContext>>,
    /// The hierarchy of its definition, and the number of the graph in it. The driver names the
    /// nodes by those of the definition, so that stays until this is gone.
    source: Option<(Arc<Hierarchy>, u32)>,
    /// What its nodes do now.
    table: Table,
    /// Its last launch. Launches of one executable run one after the other, so when this one is
    /// over, all are.
    last: Launched,
    /// The next launch waits for this event: it is behind the launches of the executable that this
    /// one replaced.
    behind: Option<Arc<Event>>,
    /// What goes with the last launch.
    retired: Option<Batch<Gone>>,
    /// How it was made, if this library made it.
    options: Option<InstantiateOptions>,
    /// Whether it has conditional nodes: to destroy it waits until the context has run everything.
    branches: bool,
    /// What its launches heed of others in the context, if anything.
    others: Option<Arc<Others>>,
    /// What stands for the nodes, if passes made another graph of the definition.
    optimized: Option<Box<Optimized>>,
    report: Option<Box<Report>>,
    /// By which its definition tells the nodes and edges that it had when this was made.
    version: Option<Version>,
    /// An update from another definition replaced what nodes of other code do.
    is_replaced: bool,
    /// Memset nodes that are disabled, if nothing stands for the nodes.
    skipped: Vec<Skipped>,
    /// Its right to allocate what the graph allocates that it was made, or updated, from last.
    claim: Option<Arc<()>>,
    not_sync: PhantomData<Cell<()>>,
}

/// What updates replaced since the last launch, which may use it. What they put there since and
/// replaced again, no launch uses.
#[derive(Default)]
struct Gone {
    /// By node, what it did in that launch, and what was inside of it.
    nodes: HashMap<u64, (Content, Table), BuildHasherDefault<AddressHasher>>,
    /// What all others did.
    rest: Option<Table>,
    /// What belongs to no node.
    others: Vec<Owner>,
}

impl Gone {
    /// Takes what a node did. Gives it back if that was not in the last launch.
    fn node(&mut self, id: NodeId, old: (Content, Table)) -> Option<(Content, Table)> {
        let number = u64::from(id.body) << 32 | u64::from(id.index);
        match self.nodes.entry(number) {
            Entry::Vacant(place) if self.rest.is_none() => {
                place.insert(old);
                None
            }
            _ => Some(old),
        }
    }

    /// Takes what all nodes did. Gives it back if they did something else in the last launch.
    fn all(&mut self, old: Table) -> Option<Table> {
        match self.rest {
            None => {
                self.rest = Some(old);
                None
            }
            Some(_) => Some(old),
        }
    }
}

/// How to tell when the last launch is over.
enum Launched {
    Never,
    /// When everything is that this stream was given so far.
    In(Arc<CudaStream>),
    /// When this event of this context has passed.
    Before(Arc<CudaContext>, Arc<Event>),
    /// It cannot be told.
    Unknown,
}

/// The other name of the null stream.
const LEGACY: usize = 1;

// SAFETY: any thread may use the handle, one at a time; `&mut` and the lack of `Sync` see to that.
unsafe impl Send for Exec {}

impl Exec {
    /// Launches it in the order of `stream`. A further launch waits for this one. So do launches of
    /// other executables in the context if both have loops ([`InstantiateOptions::loops_at_once`]).
    #[inline]
    pub fn launch(&mut self, stream: &Arc<CudaStream>) -> Result<()> {
        match self.others.clone() {
            None => self.launch_now(stream),
            Some(others) => others.launch(stream, || self.launch_now(stream)),
        }
    }

    #[inline]
    fn launch_now(&mut self, stream: &Arc<CudaStream>) -> Result<()> {
        let stream_handle = stream.cu_stream();
        // The null stream is the current context's; any other stream names its own.
        if stream_handle as usize <= LEGACY {
            driver::bind(stream.context())?;
        } else if stream_handle as usize == driver::stream::PER_THREAD {
            return self.launch_in_own(stream);
        }
        driver::bind_some(stream.context())?;
        if self.behind.is_some() {
            self.wait_behind(stream)?;
        }
        driver::exec::launch(self.raw, stream_handle)?;
        if self.behind.is_some() {
            self.behind = None;
        }
        if self.retired.is_some() {
            self.retired = None;
        }
        match &self.last {
            Launched::In(last) if Arc::ptr_eq(last, stream) => {}
            _ => self.last = Launched::In(stream.clone()),
        }
        Ok(())
    }

    /// The stream of its last launch, if another launch there is a call of the driver and nothing
    /// else. That holds until it is updated or launched elsewhere.
    pub(crate) fn stands_in(&self) -> Option<&Arc<CudaStream>> {
        let Launched::In(stream) = &self.last else {
            return None;
        };
        let is_named = stream.cu_stream() as usize > driver::stream::PER_THREAD;
        let is_alone = self.others.is_none() && self.behind.is_none() && self.retired.is_none();
        (is_named && is_alone).then_some(stream)
    }

    /// Launches it in the calling thread's own stream. Another thread cannot record an event there
    /// later, so one is recorded now.
    #[cold]
    fn launch_in_own(&mut self, stream: &Arc<CudaStream>) -> Result<()> {
        driver::bind(stream.context())?;
        let event = Event::new()?;
        self.wait_behind(stream)?;
        driver::exec::launch(self.raw, stream.cu_stream())?;
        (self.behind, self.retired) = (None, None);
        // Dropped last: a stream that goes with it makes its own context the thread's.
        let _before = std::mem::replace(&mut self.last, Launched::Unknown);
        self.last = match event.record(stream.cu_stream()) {
            Ok(()) => Launched::Before(stream.context().clone(), Arc::new(event)),
            // It cannot be told later when it is over, so it is to be over now.
            Err(_) => {
                driver::stream::synchronize(stream.cu_stream())?;
                Launched::Never
            }
        };
        Ok(())
    }

    /// Has `stream` wait for the launches of the executable that this one replaced.
    #[cold]
    fn wait_behind(&self, stream: &CudaStream) -> Result<()> {
        if let Some(event) = &self.behind {
            driver::run::wait(event.raw(), stream.cu_stream())?;
        }
        Ok(())
    }

    /// An event behind its launches, if there were some.
    fn end_of_launches(&self) -> Result<Option<Arc<Event>>> {
        match &self.last {
            Launched::In(stream) => {
                driver::bind(stream.context())?;
                // An event there would be one of the capture, and behind nothing.
                refuse_captured(stream)?;
                let event = Event::new()?;
                event.record(stream.cu_stream())?;
                Ok(Some(Arc::new(event)))
            }
            Launched::Before(_, event) => Ok(Some(event.clone())),
            Launched::Never | Launched::Unknown => Ok(self.behind.clone()),
        }
    }

    /// Runs `op` in the order of `stream`, as the only node of a graph that is gone when this
    /// returns.
    pub(crate) fn run_alone<O: Operation>(op: O, stream: &Arc<CudaStream>) -> Result<()> {
        let graph = Graph::new(stream.context())?;
        graph.add(op, ())?;
        graph.instantiate()?.launch(stream)
    }

    /// Drops `gone` once no launch uses it any more.
    fn retire<T: Send + 'static>(&mut self, gone: T, add: impl FnOnce(&mut Gone, T) -> Option<T>) {
        let fence = match &self.last {
            Launched::Never => return drop(gone),
            Launched::In(stream) if self.retired.is_none() => Fence::behind(stream.clone()),
            Launched::Before(context, event) if self.retired.is_none() => {
                Fence::of(context.clone(), event.clone())
            }
            Launched::Unknown => {
                tracing::error!("what a launch may still use leaks: its end cannot be told");
                return std::mem::forget(gone);
            }
            _ => {
                if let Some(batch) = &self.retired {
                    batch.add(gone, add);
                }
                return;
            }
        };
        self.retired = Some(Batch::after(fence, gone, add));
    }

    /// Brings it to the device in the order of `stream`, so that the first launch need not.
    pub fn upload(&mut self, stream: &CudaStream) -> Result<()> {
        driver::bind(stream.context())?;
        driver::exec::upload(self.raw, stream.cu_stream())
    }

    /// The context that it was made in.
    #[inline]
    pub fn context(&self) -> &Arc<CudaContext> {
        let definition = || self.source.as_ref().map(|(source, _)| &source.context);
        let context = self.context.as_ref().or_else(definition);
        context.expect("what has no context of its own has a definition")
    }

    /// The options that it was made with, but for the upload. The driver does not tell all of them:
    /// for a raw handle, `node_priority` and `loops_at_once` are false.
    pub fn options(&self) -> Result<InstantiateOptions> {
        match &self.options {
            Some(options) => Ok(options.clone()),
            None => driver::exec::flags(self.raw).map(InstantiateOptions::from_flags),
        }
    }

    /// The driver's handle, good while this is.
    ///
    /// What its nodes use is held until this is dropped and the last [`launch`](Exec::launch) is
    /// over. This library does not know of launches made with the handle.
    pub fn raw(&self) -> CUgraphExec {
        self.raw
    }

    /// Takes over an executable: it is destroyed when this is dropped. With the graph that it was
    /// made from, its nodes can be updated.
    ///
    /// # Safety
    ///
    /// `raw` is an executable of this context's device, made from `source` if that is given. No
    /// other owner destroys it, and nothing else launches or updates it at the same time. What its
    /// nodes use lives while they can run.
    pub unsafe fn from_raw(
        raw: CUgraphExec,
        context: &Arc<CudaContext>,
        source: Option<&Graph>,
    ) -> Exec {
        let Some(source) = source else {
            return Exec::alone(raw, context);
        };
        let mut state = source.hierarchy().lock();
        let has_loops = state.has_loops(source.body_index());
        // Without an event there are no turns to take; nothing else can be said here.
        let turns = has_loops.then(|| Turns::of(context).ok()).flatten();
        let communicators = state.communicators(source.body_index());
        let meeting = source.meeting(&communicators).ok().flatten();
        let others = Others::of(turns, meeting);
        let mut exec = Exec::of(raw, source, &mut state, others, None);
        exec.context = Some(context.clone());
        exec
    }

    /// Of a graph, in its context.
    #[inline(always)]
    fn of(
        raw: CUgraphExec,
        source: &Graph,
        state: &mut State,
        others: Option<Arc<Others>>,
        options: Option<&InstantiateOptions>,
    ) -> Exec {
        let body = source.body_index();
        state.executables = state.executables.saturating_add(1);
        Exec {
            raw,
            owned: true,
            context: None,
            source: Some((source.hierarchy().clone(), body)),
            table: Table::of(state, body),
            last: Launched::Never,
            behind: None,
            retired: None,
            options: options.map(InstantiateOptions::kept),
            branches: state.may_branch,
            others,
            optimized: None,
            report: None,
            version: Some(state.watch(body)),
            is_replaced: false,
            skipped: Vec::new(),
            claim: state.claim(body),
            not_sync: PhantomData,
        }
    }

    /// Of a definition that is not known.
    fn alone(raw: CUgraphExec, context: &Arc<CudaContext>) -> Exec {
        Exec {
            raw,
            owned: true,
            context: Some(context.clone()),
            source: None,
            table: Table::default(),
            last: Launched::Never,
            behind: None,
            retired: None,
            options: None,
            branches: false,
            others: None,
            optimized: None,
            report: None,
            version: None,
            is_replaced: false,
            skipped: Vec::new(),
            claim: None,
            not_sync: PhantomData,
        }
    }

    /// Works on an executable that something else owns and destroys.
    ///
    /// # Safety
    ///
    /// As [`from_raw`](Exec::from_raw), except that the owner destroys it, after this is dropped.
    /// Only this value holds what updates through it gave: afterwards the owner launches the
    /// executable only if that lives otherwise.
    pub unsafe fn from_raw_borrowed(
        raw: CUgraphExec,
        context: &Arc<CudaContext>,
        source: Option<&Graph>,
    ) -> Exec {
        // SAFETY: by this function's contract.
        let mut exec = unsafe { Exec::from_raw(raw, context, source) };
        exec.owned = false;
        exec
    }
}

impl Exec {
    /// Destroys the driver's executable, if this owns it. What that uses goes afterwards.
    fn destroy(&mut self) {
        // The driver looks at the definition too: on an H200 it crashes where another thread edits
        // that meanwhile.
        let mut definition = self.source.as_ref().map(|(source, _)| source.lock());
        if let (Some(state), Some((_, root))) = (&mut definition, &self.source)
            && let Some(version) = self.version.take()
        {
            state.unwatch(version, *root);
        }
        if std::mem::take(&mut self.owned) {
            let destroyed = driver::capture::undisturbed(|| driver::exec::destroy(self.raw));
            driver::log_leak("an executable", destroyed);
            self.claim = None;
        }
    }
}

impl Drop for Exec {
    fn drop(&mut self) {
        if self.owned && self.branches {
            let context = self.context().clone();
            let husk = Exec::alone(std::ptr::null_mut(), &context);
            let mut exec = std::mem::replace(self, husk);
            self.owned = false;
            let source = exec.source.as_ref().map(|(source, _)| source.clone());
            source.iter().for_each(|source| source.leave());
            let destroy = move || {
                exec.destroy();
                source.iter().for_each(|source| source.has_left());
                Box::new(exec) as _
            };
            return when_idle(context, Box::new(destroy));
        }
        self.destroy();
        driver::capture::undisturbed(|| {
            let words = self.take_words();
            drop(self.optimized.take());
            words.into_iter().for_each(|words| self.let_go(words));
            let table = std::mem::take(&mut self.table);
            self.retire(table, Gone::all);
        });
    }
}

impl fmt::Debug for Exec {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Exec {:p}", self.raw)?;
        if let Some((source, _)) = &self.source {
            write!(f, " of graph {}", source.id)?;
        }
        write!(f, ", holding what {} nodes use", self.table.len())
    }
}
