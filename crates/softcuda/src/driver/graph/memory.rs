//! The memory of allocation nodes: its address is fixed when the node is made, and launches take it
//! and give it back.
//!
//! Here the memory itself is there as long as anybody knows it, so an address never means something
//! else; what launches change is who may use it, and the figures of the pool.
//!
//! Invariants:
//! - memory that a launch took and that its own graph does not free is the program's until it is
//!   given back;
//! - while it is, no launch takes it again.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::DerefMut;
use std::sync::{Arc, Weak};

use parking_lot::Mutex;

use crate::driver::context::Context;
use crate::driver::memory::{self as owned, Made};
use crate::driver::pool::Properties;
use crate::driver::virtual_memory::Access;
use crate::driver::{CUresult, Result, device};
use crate::memory::{self, Allocation, Device, Kind, Reach};

const INVALID: CUresult = CUresult::CUDA_ERROR_INVALID_VALUE;

/// What the pool takes from the device at a time, as its figures show.
const CHUNK: u64 = 32 << 20;

/// The memory of all allocation nodes that are, by address.
static MEMORY: Mutex<BTreeMap<u64, Weak<GraphMemory>>> = Mutex::new(BTreeMap::new());

/// The figures of each device's pool for graphs.
static FIGURES: [Mutex<Figures>; Device::MOST] = [const {
    Mutex::new(Figures {
        taken: 0,
        reserved: 0,
        used_high: 0,
        reserved_high: 0,
    })
}; Device::MOST];

/// What graphs use is what the pool has, as an H200 counts it: what launches gave back stays until
/// the pool is trimmed.
struct Figures {
    /// Bytes that launches took and nobody gave back.
    taken: u64,
    reserved: u64,
    used_high: u64,
    reserved_high: u64,
}

impl Figures {
    fn take(&mut self, size: u64) {
        self.taken += size;
        self.reserved = self.reserved.max(self.taken.next_multiple_of(CHUNK));
        self.used_high = self.used_high.max(self.reserved);
        self.reserved_high = self.reserved_high.max(self.reserved);
    }
}

/// `CUmemLocationType`.
mod location {
    pub const NONE: u32 = 0;
    pub const DEVICE: u32 = 1;
    pub const HOST: u32 = 2;
    pub const HOST_NUMA: u32 = 3;
}

/// The device that reaches the memory of a node; whoever does reads and writes it.
fn check_access(access: &Access) -> Result<Option<Device>> {
    let device = match access.location {
        location::DEVICE => Some(device::check(access.number)?),
        location::HOST => None,
        _ => return Err(INVALID),
    };
    match access.flags {
        3 => Ok(device),
        0 | 1 => Err(CUresult::CUDA_ERROR_NOT_SUPPORTED),
        _ => Err(INVALID),
    }
}

/// What an allocation node was made from.
#[derive(Clone)]
pub(crate) struct AllocParams {
    /// Where and what of kind.
    pub properties: Properties,
    /// Who reaches it.
    pub access: Box<[Access]>,
    /// Bytes.
    pub size: u64,
}

/// The memory of an allocation node.
pub(crate) struct GraphMemory {
    allocation: Allocation,
    params: AllocParams,
    context: Arc<Context>,
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    /// The graph with the allocation node; 0 before it has one.
    owner: usize,
    /// Graphs with a node that frees it.
    freed_in: BTreeSet<usize>,
    /// The graph with the allocation node was instantiated, and has none that frees it since.
    settled: bool,
    /// It is the program's: a launch took it and nobody gave it back.
    taken: bool,
}

impl Drop for GraphMemory {
    fn drop(&mut self) {
        MEMORY.lock().remove(&self.allocation.base);
        memory::free(self.allocation.base);
    }
}

impl GraphMemory {
    /// Memory for a new allocation node.
    pub fn new(params: AllocParams, context: Arc<Context>) -> Result<Arc<GraphMemory>> {
        const PINNED: u32 = 1;
        const MANAGED: u32 = 2;
        const NOT_SUPPORTED: CUresult = CUresult::CUDA_ERROR_NOT_SUPPORTED;
        let (location, number) = params.properties.location;
        let kind = match (params.properties.kind, location) {
            (PINNED, location::DEVICE) => Kind::Device,
            (MANAGED, location::DEVICE) => Kind::Managed,
            // Pools have such memory, graphs do not.
            (PINNED, location::HOST | location::HOST_NUMA)
            | (MANAGED, location::NONE | location::HOST | location::HOST_NUMA) => {
                return Err(NOT_SUPPORTED);
            }
            _ => return Err(INVALID),
        };
        let device = device::check(number).map_err(|_| INVALID)?;
        if params.size == 0 {
            return Err(INVALID);
        }
        if params.properties.handle_types != 0 {
            return Err(NOT_SUPPORTED);
        }
        let mut reach = Reach::NOBODY.with(device, true, true);
        for access in &params.access {
            if let Some(device) = check_access(access)? {
                reach = reach.with(device, true, true);
            }
        }
        let allocation = memory::alloc(device, params.size, 1, kind)?;
        if kind == Kind::Device {
            memory::change(allocation.base, kind, reach);
        }
        let made = Arc::new(GraphMemory {
            allocation,
            params,
            context,
            state: Mutex::default(),
        });
        let address = allocation.base;
        MEMORY.lock().insert(address, Arc::downgrade(&made));
        Ok(made)
    }

    /// The memory of an allocation node that begins at an address.
    pub fn at(address: u64) -> Result<Arc<GraphMemory>> {
        let memory = MEMORY.lock().get(&address).and_then(Weak::upgrade);
        memory.ok_or(INVALID)
    }

    /// What it was made from.
    pub fn params(&self) -> &AllocParams {
        &self.params
    }

    /// Its address.
    pub fn address(&self) -> u64 {
        self.allocation.base
    }

    /// Its node is in this graph.
    pub fn set_owner(&self, graph: usize) {
        self.state.lock().owner = graph;
    }

    /// A node of this graph is to free it: its own graph does or others do, and each once.
    pub fn set_freed_in(&self, graph: usize) -> Result {
        let mut state = self.state.lock();
        let own = state.freed_in.contains(&state.owner);
        let others = !own && !state.freed_in.is_empty();
        let late = graph == state.owner && (others || state.settled);
        let wrong = own || late || state.freed_in.contains(&graph);
        match wrong {
            true => Err(INVALID),
            false => {
                state.freed_in.insert(graph);
                Ok(())
            }
        }
    }

    /// An executable has it, or was to have it: if its own graph does not free it by now, it never
    /// will, as an H200 has it.
    pub fn settle(&self) {
        self.state.lock().settled = true;
    }

    /// The node that was to free it is not.
    pub fn unset_freed_in(&self, graph: usize) {
        self.state.lock().freed_in.remove(&graph);
    }

    /// A launch takes it; `kept` says that its graph does not free it.
    fn take(self: &Arc<Self>, kept: bool) {
        self.figures().take(self.allocation.size);
        self.state.lock().taken = kept;
        if kept {
            let made = Made::Graph(self.clone());
            owned::own(self.allocation, made, self.context.clone());
        }
    }

    /// The figures of its device.
    fn figures(&self) -> impl DerefMut<Target = Figures> {
        FIGURES[self.allocation.device.index()].lock()
    }

    fn is_taken(&self) -> bool {
        self.state.lock().taken
    }

    /// It is not the program's any more: the caller has taken it out of the program's hands, or a
    /// launch does.
    pub fn give_back(&self) {
        let taken = std::mem::take(&mut self.state.lock().taken);
        if taken {
            self.free();
        }
    }

    /// Counts it as free. Graphs in a launch may free the same memory, which one of them takes.
    pub fn free(&self) {
        let mut figures = self.figures();
        figures.taken = figures.taken.saturating_sub(self.allocation.size);
    }

    fn disown(&self) {
        owned::disown(
            self.allocation.base,
            |owned| matches!(&owned.made, Made::Graph(memory) if std::ptr::eq(&**memory, self)),
        );
        self.give_back();
    }
}

/// The memory that a plan takes and gives back.
pub(super) struct PlanMemory {
    /// Memory that it takes, and whether it keeps it.
    takes: Vec<(Arc<GraphMemory>, bool)>,
    /// Memory of other graphs that it frees.
    frees: Vec<Arc<GraphMemory>>,
    /// Addresses of memory that it takes and frees.
    own: BTreeSet<u64>,
}

impl PlanMemory {
    /// Of the allocation and free nodes of a plan.
    pub fn new(takes: Vec<Arc<GraphMemory>>, frees: Vec<Arc<GraphMemory>>) -> PlanMemory {
        let freed: BTreeSet<u64> = frees.iter().map(|memory| memory.address()).collect();
        let taken: BTreeSet<u64> = takes.iter().map(|memory| memory.address()).collect();
        let kept = |memory: &Arc<GraphMemory>| !freed.contains(&memory.address());
        PlanMemory {
            own: taken.intersection(&freed).copied().collect(),
            frees: frees
                .into_iter()
                .filter(|memory| !taken.contains(&memory.address()))
                .collect(),
            takes: takes
                .into_iter()
                .map(|memory| (memory.clone(), kept(&memory)))
                .collect(),
        }
    }

    /// A launch begins. What an earlier one took and nobody gave back is given back, or is an
    /// error.
    pub fn launch(&self, auto_free: bool) -> Result {
        let taken = |memory: &Arc<GraphMemory>| memory.is_taken();
        if !auto_free && self.takes.iter().any(|(memory, _)| taken(memory)) {
            return Err(INVALID);
        }
        if !self.frees.iter().all(taken) {
            return Err(INVALID);
        }
        for (memory, kept) in &self.takes {
            memory.disown();
            memory.take(*kept);
        }
        self.frees.iter().for_each(|memory| memory.disown());
        Ok(())
    }

    /// The graph frees what it takes itself: counted when the free node runs.
    pub fn is_own(&self, memory: &GraphMemory) -> bool {
        self.own.contains(&memory.address())
    }
}

/// Fails for memory of an allocation node that is not the program's: no call outside graphs reaches
/// it.
pub(crate) fn check_reach(address: u64) -> Result {
    let memory = MEMORY.lock();
    let found = memory.range(..=address).next_back();
    let found = found.and_then(|(_, memory)| memory.upgrade());
    // Its end may take the lock.
    drop(memory);
    match found {
        Some(memory) if memory.allocation.contains(address) && !memory.is_taken() => Err(INVALID),
        _ => Ok(()),
    }
}

/// `cuDeviceGetGraphMemAttribute`.
pub(crate) fn attribute(device: Device, number: u32) -> Result<u64> {
    let figures = FIGURES[device.index()].lock();
    match number {
        0 => Ok(figures.reserved),
        1 => Ok(figures.used_high),
        2 => Ok(figures.reserved),
        3 => Ok(figures.reserved_high),
        _ => Err(INVALID),
    }
}

/// `cuDeviceSetGraphMemAttribute`: high marks can be set to zero alone, which means to what is now.
pub(crate) fn set_attribute(device: Device, number: u32, value: u64) -> Result {
    let mut figures = FIGURES[device.index()].lock();
    match (number, value) {
        (1, 0) => figures.used_high = figures.reserved,
        (3, 0) => figures.reserved_high = figures.reserved,
        _ => return Err(INVALID),
    }
    Ok(())
}

/// `cuDeviceGraphMemTrim`.
pub(crate) fn trim(device: Device) {
    let mut figures = FIGURES[device.index()].lock();
    figures.reserved = figures.taken.next_multiple_of(CHUNK);
}
