//! Contexts: each device's primary one, created ones, and each thread's stack of current ones.
//!
//! Invariant: a context that was destroyed is never current to a function of ours: [`current`]
//! answers `CUDA_ERROR_CONTEXT_IS_DESTROYED`. The primary context keeps its handle from one life to
//! the next, and a thread where it is current finds the life that is on.

use std::cell::RefCell;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};

use parking_lot::Mutex;

use super::handle::{Found, Table};
use super::stream::Streams;
use super::{CUresult, Result, capture, device, failure, init};
use crate::abi::types::CUcontext;
use crate::grid::device_functions::heap;
use crate::memory::{Device, Reach};

/// All bits of `CUctx_flags`.
const FLAGS: u32 = 0xff;
/// The scheduling bits, of which at most one may be set.
const SCHED_MASK: u32 = 7;
/// `CU_CTX_MAP_HOST`: always on, and reported of the primary context.
const MAP_HOST: u32 = 8;

/// The live contexts.
static CONTEXTS: Table<Context> = Table::new(1);

/// The primary context of each device.
static PRIMARY: [Mutex<Primary>; Device::MOST] = [const {
    Mutex::new(Primary {
        handle: 0,
        retained: 0,
        flags: 0,
    })
}; Device::MOST];

struct Primary {
    /// The handle that each of its lives has; 0 before the first.
    handle: usize,
    retained: u32,
    flags: u32,
}

thread_local! {
    static STACK: RefCell<Vec<Entry>> = const { RefCell::new(Vec::new()) };
}

/// A context that is on a thread's stack, by handle; the object while it lived when it was last
/// looked at.
struct Entry {
    handle: usize,
    context: Option<Arc<Context>>,
}

/// A context.
pub(crate) struct Context {
    handle: usize,
    id: u64,
    device: Device,
    /// The contexts whose memory it enabled access to, by handle. Kernels of all contexts of its
    /// device reach that then: a device has one space of addresses.
    peers: Mutex<Vec<(usize, Device)>>,
    /// Who reaches the memory that is allocated in it.
    reach: Mutex<Reach>,
    primary: bool,
    flags: AtomicU32,
    destroyed: AtomicBool,
    /// `CUfunc_cache`: remembered, and of no effect.
    cache_config: AtomicU32,
    /// References beyond the first, by `cuCtxAttach`.
    attached: AtomicU32,
    /// What `cuCtxSetLimit` set.
    pub limits: Limits,
    /// The flags that small pinned allocations report, and write-combined ones.
    pub pinned_flags: [OnceLock<u32>; 2],
    /// Its streams.
    pub streams: Streams,
}

impl Context {
    fn new(handle: usize, device: Device, primary: bool, flags: u32) -> Self {
        static IDS: AtomicU64 = AtomicU64::new(1);
        Context {
            handle,
            id: IDS.fetch_add(1, Ordering::Relaxed),
            device,
            peers: Mutex::default(),
            reach: Mutex::new(Reach::of_context(device)),
            primary,
            flags: AtomicU32::new(if primary { flags | MAP_HOST } else { flags }),
            destroyed: AtomicBool::new(false),
            cache_config: AtomicU32::new(0),
            attached: AtomicU32::new(0),
            limits: Limits::default(),
            pinned_flags: Default::default(),
            streams: Streams::new(),
        }
    }

    /// Its handle.
    pub fn handle(&self) -> CUcontext {
        CUcontext(self.handle)
    }

    /// Its device.
    pub fn device(&self) -> Device {
        self.device
    }

    /// `cuCtxEnablePeerAccess`: kernels of its device reach the memory of another device's context.
    pub fn enable_peer(&self, peer: &Context) -> Result {
        if peer.device() == self.device() {
            return Err(CUresult::CUDA_ERROR_PEER_ACCESS_UNSUPPORTED);
        }
        capture::permit()?;
        {
            let mut peers = self.peers.lock();
            // Its end takes it out of the list only once.
            if peer.is_destroyed() {
                return Err(CUresult::CUDA_ERROR_CONTEXT_IS_DESTROYED);
            }
            if peers.contains(&peer.as_peer()) {
                return Err(CUresult::CUDA_ERROR_PEER_ACCESS_ALREADY_ENABLED);
            }
            peers.push(peer.as_peer());
        }
        super::memory::update_reach(peer);
        Ok(())
    }

    /// `cuCtxDisablePeerAccess`.
    pub fn disable_peer(&self, peer: &Context) -> Result {
        capture::permit()?;
        if !self.forget_peer(peer) {
            return Err(CUresult::CUDA_ERROR_PEER_ACCESS_NOT_ENABLED);
        }
        super::memory::update_reach(peer);
        Ok(())
    }

    /// It enabled access to the memory of a context.
    pub fn has_enabled(&self, peer: &Context) -> bool {
        self.peers.lock().contains(&peer.as_peer())
    }

    /// Takes a context off its list; false where it is not there.
    fn forget_peer(&self, peer: &Context) -> bool {
        let mut peers = self.peers.lock();
        let place = peers.iter().position(|other| *other == peer.as_peer());
        place.map(|place| peers.swap_remove(place)).is_some()
    }

    /// Who reaches the memory that is allocated in it.
    pub fn reach(&self) -> Reach {
        *self.reach.lock()
    }

    /// Looks anew who reaches its memory; answers it where that has changed. One at a time.
    pub fn find_reach(&self) -> Option<Reach> {
        let mut reach = Reach::of_context(self.device());
        for other in all() {
            if other.has_enabled(self) {
                reach = reach.with(other.device(), true, true);
            }
        }
        let mut known = self.reach.lock();
        let changed = *known != reach;
        *known = reach;
        changed.then_some(reach)
    }

    fn as_peer(&self) -> (usize, Device) {
        (self.handle, self.device())
    }

    /// `cuCtxGetId`: unique among all contexts ever made.
    pub fn id(&self) -> u64 {
        self.id
    }

    /// `cuCtxGetFlags`.
    pub fn flags(&self) -> u32 {
        self.flags.load(Ordering::Relaxed)
    }

    /// `cuCtxSetFlags`.
    pub fn set_flags(&self, flags: u32) -> Result {
        check_flags(flags)?;
        let always = if self.primary { MAP_HOST } else { 0 };
        self.flags.store(flags | always, Ordering::Relaxed);
        Ok(())
    }

    /// `cuCtxGetCacheConfig`.
    pub fn cache_config(&self) -> u32 {
        self.cache_config.load(Ordering::Relaxed)
    }

    /// `cuCtxSetCacheConfig`.
    pub fn set_cache_config(&self, config: u32) -> Result {
        if config > 3 {
            return Err(CUresult::CUDA_ERROR_INVALID_VALUE);
        }
        self.cache_config.store(config, Ordering::Relaxed);
        Ok(())
    }

    /// It was destroyed.
    pub fn is_destroyed(&self) -> bool {
        self.destroyed.load(Ordering::Acquire)
    }

    /// `cuCtxSetLimit`.
    pub fn set_limit(&self, limit: u32, value: u64) -> Result {
        self.limits.set(limit, value)?;
        if limit == Limits::MALLOC_HEAP_SIZE {
            heap::set_limit(self.device(), self.limits.get(limit)?);
        }
        Ok(())
    }

    /// The sticky error, or that the context was destroyed.
    pub fn check(&self) -> Result {
        if self.is_destroyed() {
            return Err(CUresult::CUDA_ERROR_CONTEXT_IS_DESTROYED);
        }
        failure::check()
    }

    /// As [`check`](Self::check), for calls that wait for work or ask how it goes.
    pub fn notice(&self) -> Result {
        if self.is_destroyed() {
            return Err(CUresult::CUDA_ERROR_CONTEXT_IS_DESTROYED);
        }
        failure::notice()
    }

    /// Keeps its device known: its handle means a destroyed context from now on.
    fn note_device(&self) {
        let mut destroyed = DESTROYED.lock();
        if self.device() != Device::FIRST && !destroyed.contains(&self.as_peer()) {
            destroyed.push(self.as_peer());
        }
    }

    /// Waits for its work and frees what belongs to it. Its handle no longer means it. What kernels
    /// allocated goes with the device's last context: its contexts share one heap.
    fn end(&self) {
        self.note_device();
        let _ = super::stream::synchronize_context(self);
        self.destroyed.store(true, Ordering::Release);
        super::stream::end_context(self);
        super::event::end_context(self);
        super::library::end_context(self);
        super::module::end_context(self);
        super::array::end_context(self);
        super::memory::end_context(self);
        for other in all() {
            other.forget_peer(self);
        }
        // Its device reaches others' memory no more, unless another context enabled that.
        let peers = std::mem::take(&mut *self.peers.lock());
        for (peer, _) in peers {
            if let Found::Live(peer) = CONTEXTS.get(peer) {
                super::memory::update_reach(&peer);
            }
        }
        if all().iter().all(|other| other.device() != self.device()) {
            heap::reset(self.device());
        }
    }
}

/// The values of `cuCtxGetLimit`.
pub(crate) struct Limits([AtomicU64; Self::COUNT]);

impl Limits {
    const COUNT: usize = 10;
    /// `CU_LIMIT_STACK_SIZE`: bytes of local memory that a thread may use for frames.
    pub const STACK_SIZE: u32 = 0;
    /// `CU_LIMIT_PRINTF_FIFO_SIZE`.
    pub const PRINTF_FIFO_SIZE: u32 = 1;
    /// `CU_LIMIT_MALLOC_HEAP_SIZE`: bytes that kernels may allocate.
    pub const MALLOC_HEAP_SIZE: u32 = 2;
    const DEV_RUNTIME_SYNC_DEPTH: u32 = 3;
    const DEV_RUNTIME_PENDING_LAUNCH_COUNT: u32 = 4;
    const MAX_L2_FETCH_GRANULARITY: u32 = 5;
    const PERSISTING_L2_CACHE_SIZE: u32 = 6;
    const SHMEM_SIZE: u32 = 7;
    const CIG_ENABLED: u32 = 8;
    const CIG_SHMEM_FALLBACK_ENABLED: u32 = 9;

    /// A limit's value.
    pub fn get(&self, limit: u32) -> Result<u64> {
        match (limit, self.0.get(limit as usize)) {
            (Self::DEV_RUNTIME_SYNC_DEPTH | Self::CIG_SHMEM_FALLBACK_ENABLED, _) => {
                Err(CUresult::CUDA_ERROR_UNSUPPORTED_LIMIT)
            }
            (_, Some(value)) => Ok(value.load(Ordering::Relaxed)),
            (_, None) => Err(CUresult::CUDA_ERROR_INVALID_VALUE),
        }
    }

    /// Sets a limit; the device rounds some of them up, and has a least value of some.
    fn set(&self, limit: u32, value: u64) -> Result {
        const MOST_STACK: u64 = 512 << 10;
        let value = match limit {
            Self::DEV_RUNTIME_SYNC_DEPTH | Self::CIG_SHMEM_FALLBACK_ENABLED => {
                return Err(CUresult::CUDA_ERROR_UNSUPPORTED_LIMIT);
            }
            Self::SHMEM_SIZE | Self::CIG_ENABLED => {
                return Err(CUresult::CUDA_ERROR_NOT_PERMITTED);
            }
            Self::STACK_SIZE if value <= MOST_STACK => value.next_multiple_of(16),
            Self::PRINTF_FIFO_SIZE => value.max(512 << 10),
            Self::MALLOC_HEAP_SIZE => value.max(4 << 20),
            Self::MAX_L2_FETCH_GRANULARITY if value <= 128 => value,
            Self::PERSISTING_L2_CACHE_SIZE => value.min(device::PERSISTING_L2_MAX),
            Self::DEV_RUNTIME_PENDING_LAUNCH_COUNT => value,
            _ => return Err(CUresult::CUDA_ERROR_INVALID_VALUE),
        };
        self.0[limit as usize].store(value, Ordering::Relaxed);
        Ok(())
    }
}

impl Default for Limits {
    fn default() -> Self {
        let values = [1 << 10, 8_650_752, 8 << 20, 0, 2048, 64, 0, 227 << 10, 0, 0];
        Limits(values.map(AtomicU64::new))
    }
}

fn check_flags(flags: u32) -> Result {
    let sched = flags & SCHED_MASK;
    if flags & !FLAGS != 0 || !(sched == 0 || sched.is_power_of_two()) {
        return Err(CUresult::CUDA_ERROR_INVALID_VALUE);
    }
    Ok(())
}

/// Runs `f` on the thread's stack; nothing is current on a thread that is ending.
fn with_stack<R>(f: impl FnOnce(&mut Vec<Entry>) -> R) -> Result<R> {
    STACK
        .try_with(|stack| f(&mut stack.borrow_mut()))
        .map_err(|_| CUresult::CUDA_ERROR_DEINITIALIZED)
}

/// What is current to the calling thread.
pub(crate) enum Top {
    /// Nothing.
    Empty,
    /// A context that lives, with or without a sticky error.
    Live(Arc<Context>),
    /// A context that was destroyed.
    Destroyed(CUcontext),
}

/// What is current to the calling thread. The primary context may have begun another life since.
pub(crate) fn top() -> Result<Top> {
    with_stack(|stack| {
        let Some(entry) = stack.last_mut() else {
            return Top::Empty;
        };
        if entry
            .context
            .as_ref()
            .is_none_or(|context| context.is_destroyed())
        {
            entry.context = match CONTEXTS.get(entry.handle) {
                Found::Live(context) => Some(context),
                Found::Destroyed | Found::Unknown => None,
            };
        }
        match &entry.context {
            Some(context) => Top::Live(context.clone()),
            None => Top::Destroyed(CUcontext(entry.handle)),
        }
    })
}

/// The handle of the context that is current to the calling thread, destroyed or not, or null.
pub(crate) fn top_handle() -> Result<CUcontext> {
    Ok(match top()? {
        Top::Empty => CUcontext::NULL,
        Top::Live(context) => context.handle(),
        Top::Destroyed(handle) => handle,
    })
}

/// The device of what is current to the calling thread, destroyed or not.
pub(crate) fn top_device() -> Result<Option<Device>> {
    Ok(match top()? {
        Top::Empty => None,
        Top::Live(context) => Some(context.device()),
        Top::Destroyed(handle) => Some(device_of_destroyed(handle)),
    })
}

/// The context that is current to the calling thread and may be used: not destroyed, without a
/// sticky error.
pub(crate) fn current() -> Result<Arc<Context>> {
    let context = usable()?;
    context.check()?;
    Ok(context)
}

/// As [`current`], with or without a sticky error.
pub(crate) fn usable() -> Result<Arc<Context>> {
    init::check()?;
    match top()? {
        Top::Empty => Err(CUresult::CUDA_ERROR_INVALID_CONTEXT),
        Top::Live(context) => Ok(context),
        Top::Destroyed(_) => Err(CUresult::CUDA_ERROR_CONTEXT_IS_DESTROYED),
    }
}

/// What a function asks that needs no context, but none that failed or was destroyed.
pub(crate) fn check_if_any() -> Result {
    match top()? {
        Top::Empty => Ok(()),
        Top::Live(context) => context.check(),
        Top::Destroyed(_) => Err(CUresult::CUDA_ERROR_CONTEXT_IS_DESTROYED),
    }
}

/// A context is current to the calling thread, and lives.
pub(crate) fn lives_here() -> bool {
    matches!(top(), Ok(Top::Live(_)))
}

/// The live context of a handle.
pub(crate) fn resolve(handle: CUcontext) -> Result<Arc<Context>> {
    match CONTEXTS.get(handle.0) {
        Found::Live(context) => Ok(context),
        Found::Destroyed => Err(CUresult::CUDA_ERROR_CONTEXT_IS_DESTROYED),
        Found::Unknown => Err(CUresult::CUDA_ERROR_INVALID_CONTEXT),
    }
}

/// The live context of a handle; null is the current one.
pub(crate) fn resolve_or_current(handle: CUcontext) -> Result<Arc<Context>> {
    match handle.is_null() {
        true => usable(),
        false => resolve(handle),
    }
}

/// All live contexts.
pub(crate) fn all() -> Vec<Arc<Context>> {
    CONTEXTS.all()
}

/// `cuCtxCreate`: makes a context of a device and makes it current.
pub(crate) fn create(device: Device, flags: u32) -> Result<Arc<Context>> {
    failure::check()?;
    check_flags(flags)?;
    let context = CONTEXTS.insert(|handle| Context::new(handle, device, false, flags));
    with_stack(|stack| {
        stack.push(Entry {
            handle: context.handle,
            context: Some(context.clone()),
        })
    })?;
    Ok(context)
}

/// `cuCtxDestroy`: also takes it off the calling thread's stack when it is on top.
pub(crate) fn destroy(handle: CUcontext) -> Result {
    if handle.is_null() {
        return Err(CUresult::CUDA_ERROR_INVALID_VALUE);
    }
    if resolve(handle)?.primary {
        return Err(CUresult::CUDA_ERROR_INVALID_CONTEXT);
    }
    if let Found::Live(context) = CONTEXTS.remove(handle.0) {
        context.end();
    }
    with_stack(|stack| {
        stack.pop_if(|top| top.handle == handle.0);
    })
}

/// `cuCtxAttach`.
pub(crate) fn attach() -> Result<Arc<Context>> {
    let context = usable()?;
    context.attached.fetch_add(1, Ordering::Relaxed);
    Ok(context)
}

/// `cuCtxDetach`: destroys the context, which must be current, when no reference is left.
pub(crate) fn detach(handle: CUcontext) -> Result {
    let context = usable()?;
    if context.handle != handle.0 {
        return Err(CUresult::CUDA_ERROR_INVALID_CONTEXT);
    }
    let less = |attached: u32| attached.checked_sub(1);
    match context
        .attached
        .fetch_update(Ordering::Relaxed, Ordering::Relaxed, less)
    {
        Ok(_) => Ok(()),
        Err(_) => destroy(handle),
    }
}

/// Destroyed contexts of devices but the first, by handle.
static DESTROYED: Mutex<Vec<(usize, Device)>> = Mutex::new(Vec::new());

fn device_of_destroyed(handle: CUcontext) -> Device {
    let destroyed = DESTROYED.lock();
    let found = destroyed.iter().find(|(other, _)| *other == handle.0);
    found.map_or(Device::FIRST, |&(_, device)| device)
}

/// An entry for the stack: a context that was destroyed can be made current, one that never was
/// cannot.
fn entry(handle: CUcontext) -> Result<Entry> {
    let context = match CONTEXTS.get(handle.0) {
        Found::Live(context) => Some(context),
        Found::Destroyed => None,
        Found::Unknown => return Err(CUresult::CUDA_ERROR_INVALID_CONTEXT),
    };
    Ok(Entry {
        handle: handle.0,
        context,
    })
}

/// `cuCtxPushCurrent`.
pub(crate) fn push(handle: CUcontext) -> Result {
    if handle.is_null() {
        return Err(CUresult::CUDA_ERROR_INVALID_VALUE);
    }
    let entry = entry(handle)?;
    with_stack(|stack| stack.push(entry))
}

/// `cuCtxPopCurrent`.
pub(crate) fn pop() -> Result<CUcontext> {
    let top = with_stack(Vec::pop)?.ok_or(CUresult::CUDA_ERROR_INVALID_CONTEXT)?;
    Ok(CUcontext(top.handle))
}

/// `cuCtxSetCurrent`: replaces the top of the stack; null takes it off.
pub(crate) fn set_current(handle: CUcontext) -> Result {
    let entry = match handle.is_null() {
        true => None,
        false => Some(entry(handle)?),
    };
    with_stack(|stack| {
        stack.pop();
        stack.extend(entry);
    })
}

/// The primary context's life that is on, starting one if need be, for as long as it is not
/// released.
pub(crate) fn primary_retain(device: Device) -> Result<Arc<Context>> {
    let mut primary = PRIMARY[device.index()].lock();
    if primary.handle == 0 {
        primary.handle = CONTEXTS.reserve();
    }
    let context = match CONTEXTS.get(primary.handle) {
        Found::Live(context) => context,
        Found::Destroyed | Found::Unknown => {
            failure::check()?;
            let context = Arc::new(Context::new(primary.handle, device, true, primary.flags));
            CONTEXTS.put(primary.handle, context.clone());
            context
        }
    };
    primary.retained += 1;
    Ok(context)
}

/// `cuDevicePrimaryCtxRelease`: the last one ends the context's life.
pub(crate) fn primary_release(device: Device) -> Result {
    let mut primary = PRIMARY[device.index()].lock();
    match primary.retained {
        0 => return Err(CUresult::CUDA_ERROR_INVALID_CONTEXT),
        retained => primary.retained = retained - 1,
    }
    if primary.retained == 0 {
        end_primary(&primary);
        primary.flags = 0;
    }
    Ok(())
}

/// `cuDevicePrimaryCtxReset`: ends the context's life whoever holds it.
pub(crate) fn primary_reset(device: Device) -> Result {
    let mut primary = PRIMARY[device.index()].lock();
    end_primary(&primary);
    primary.retained = 0;
    primary.flags = 0;
    Ok(())
}

fn end_primary(primary: &Primary) {
    if let Found::Live(context) = CONTEXTS.remove(primary.handle) {
        context.end();
        heap::reset(context.device());
    }
}

/// `cuDevicePrimaryCtxSetFlags`: also of the life that is on.
pub(crate) fn primary_set_flags(device: Device, flags: u32) -> Result {
    if flags & MAP_HOST != 0 {
        return Err(CUresult::CUDA_ERROR_INVALID_VALUE);
    }
    check_flags(flags)?;
    let mut primary = PRIMARY[device.index()].lock();
    primary.flags = flags;
    match CONTEXTS.get(primary.handle) {
        Found::Live(context) => context.set_flags(flags),
        Found::Destroyed | Found::Unknown => Ok(()),
    }
}

/// `cuDevicePrimaryCtxGetState`: its flags, and whether it is active.
pub(crate) fn primary_state(device: Device) -> (u32, bool) {
    let primary = PRIMARY[device.index()].lock();
    let active = matches!(CONTEXTS.get(primary.handle), Found::Live(_));
    (primary.flags, active)
}
