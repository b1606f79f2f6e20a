//! Executables: plans with a handle, launched into streams.
//!
//! Invariants:
//! - an executable is a copy: nothing that happens to the definition reaches it;
//! - its launches run one after the other, in the order of the calls, whatever streams they are in;
//! - a launch owns what it runs, so updates and the executable's end do not reach it.

use std::sync::Arc;

use parking_lot::Mutex;

use super::definition::Graph;
use super::plan::{Plan, Run, Unplanned, Why};
use super::snapshot::Snapshot;
use crate::abi::types::{CUgraphExec, CUgraphNode};
use crate::driver::context::Context;
use crate::driver::handle::{Found, Table};
use crate::driver::stream::{GREATEST_PRIORITY, Stream};
use crate::driver::{CUresult, Result, context};
use crate::engine::{Failure, Marker, Step};

const INVALID: CUresult = CUresult::CUDA_ERROR_INVALID_VALUE;

static EXECUTABLES: Table<Executable> = Table::new(14);

/// `CUgraphInstantiate_flags`.
pub(crate) mod flag {
    pub const AUTO_FREE_ON_LAUNCH: u64 = 1;
    pub const UPLOAD: u64 = 2;
    pub const DEVICE_LAUNCH: u64 = 4;
    pub const USE_NODE_PRIORITY: u64 = 8;
}

/// An executable.
pub(crate) struct Executable {
    handle: usize,
    flags: u64,
    /// The definition as it was, for the order and the edges of its nodes.
    pub(super) shape: Snapshot,
    /// The slot of each node, sorted by the node's handle.
    index: Vec<(usize, u32)>,
    /// It is one of the executables of the graph that it was made of, whatever it is updated to.
    _counted: Arc<()>,
    pub(super) state: Mutex<State>,
}

/// What changes about an executable.
pub(super) struct State {
    /// What the next launch runs.
    pub plan: Arc<Plan>,
    /// The right to be, where it takes or frees memory of a graph, which can have one executable at
    /// a time.
    pub instance: Option<Arc<()>>,
    /// The end of the last launch.
    last: Option<Arc<Marker>>,
}

/// `cuGraphInstantiate`.
pub(crate) fn instantiate(
    graph: &Arc<Graph>,
    flags: u64,
) -> std::result::Result<CUgraphExec, Unplanned> {
    use flag::*;
    let known = AUTO_FREE_ON_LAUNCH | UPLOAD | DEVICE_LAUNCH | USE_NODE_PRIORITY;
    let both = AUTO_FREE_ON_LAUNCH | DEVICE_LAUNCH;
    if flags & !known != 0 || flags & both == both {
        return Err(INVALID.into());
    }
    // There must be one, whatever the nodes' are.
    context::current()?;
    if graph.is_child() {
        return Err(CUresult::CUDA_ERROR_NOT_SUPPORTED.into());
    }
    let mut shape = Snapshot::of(graph)?;
    // These come before the question whether there may be another executable.
    if graph.has_unused_condition()? {
        return Err(Unplanned::invalid(None, Why::UnusedCondition));
    }
    let for_kernels = flags & DEVICE_LAUNCH != 0;
    let not_for_kernels = || shape.first_not_for_kernels().filter(|_| for_kernels);
    if let Some((node, why)) = not_for_kernels().or_else(|| shape.first_not_in_body()) {
        return Err(Unplanned::invalid(Some(node), why));
    }
    shape.settle_memory();
    let (counted, instance) = (graph.count_executable()?, graph.take_instance(None)?);
    let plan = Plan::of(&shape)?;
    if for_kernels {
        plan.check_for_kernels()?;
    }
    // They are the plan's now, which an update replaces.
    shape.clear_references();
    let executable = EXECUTABLES.insert(|handle| Executable {
        handle,
        flags: flags & !UPLOAD,
        index: plan.index(),
        _counted: counted,
        shape,
        state: Mutex::new(State {
            plan: Arc::new(plan),
            instance,
            last: None,
        }),
    });
    Ok(CUgraphExec(executable.handle))
}

/// The live executable of a handle.
pub(crate) fn resolve(handle: CUgraphExec) -> Result<Arc<Executable>> {
    match EXECUTABLES.get(handle.0) {
        Found::Live(executable) => Ok(executable),
        // A real driver crashes on them.
        Found::Destroyed | Found::Unknown => Err(INVALID),
    }
}

/// `cuGraphExecDestroy`: launches in flight go on. With conditional nodes it waits for all work of
/// their contexts, as an H200 does, whether or not the executable is in flight; until then the
/// executable is there.
pub(crate) fn destroy(handle: CUgraphExec) -> Result {
    let executable = resolve(handle)?;
    for context in executable.contexts_of_conditions() {
        context.streams.synchronize();
    }
    match EXECUTABLES.remove(handle.0) {
        Found::Live(_) => Ok(()),
        // Another thread did it meanwhile.
        Found::Destroyed | Found::Unknown => Err(INVALID),
    }
}

impl Executable {
    /// Nodes run with their own priorities, which therefore cannot change.
    pub(super) fn uses_priorities(&self) -> bool {
        self.flags & flag::USE_NODE_PRIORITY != 0
    }

    /// `cuGraphExecGetFlags`, which on an H200 never tells of priorities or of the upload.
    pub fn flags(&self) -> u64 {
        self.flags & !(flag::USE_NODE_PRIORITY | flag::UPLOAD)
    }

    /// The slot of a node of the definition, which must live.
    pub(super) fn slot(&self, node: CUgraphNode) -> Result<usize> {
        super::definition::graph_of(node)?;
        let place = self.index.binary_search_by_key(&node.0, |entry| entry.0);
        Ok(self.index[place.map_err(|_| INVALID)?].1 as usize)
    }

    /// The contexts of its conditions. Nothing is locked any more when they are given.
    fn contexts_of_conditions(&self) -> Vec<Arc<Context>> {
        self.state.lock().plan.contexts_of_conditions()
    }

    /// `cuGraphUpload`: there is nowhere to bring it.
    pub fn upload(&self, stream: &Stream) -> Result {
        stream.context().check()
    }

    /// `cuGraphLaunch`.
    pub fn launch(&self, stream: &Stream) -> Result {
        stream.context().check()?;
        let mut state = self.state.lock();
        if let Some(last) = &state.last
            && !last.fired()
        {
            stream.wait(last.clone())?;
        }
        let plan = state.plan.clone();
        plan.check()?;
        if let Some(memory) = &plan.memory {
            memory.launch(self.flags & flag::AUTO_FREE_ON_LAUNCH != 0)?;
        }
        let calls = plan.calls();
        let lane = (stream.priority() - GREATEST_PRIORITY) as usize;
        // What processes share is waited for before the whole graph, and recorded after it.
        plan.waited_for()
            .try_for_each(|event| event.share_wait(stream))?;
        let (run, recorded) = Run::new(plan, lane);
        let work = Box::new(move || -> std::result::Result<(), Failure> { run.run() });
        stream.push(match calls {
            true => Step::Calling(work),
            false => Step::Device(work),
        })?;
        for (event, marker) in recorded {
            event.set_recorded(marker);
            event.share_record(stream)?;
        }
        state.last = Some(stream.record()?);
        Ok(())
    }
}
