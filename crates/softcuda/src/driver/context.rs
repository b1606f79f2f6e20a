//! Contexts: the primary one, created ones, and each thread's stack of current ones.
//!
//! Invariant: a context that was destroyed is never current to a function of ours: [`current`] answers
//! `CUDA_ERROR_CONTEXT_IS_DESTROYED`. The primary context keeps its handle from one life to the next, and a thread where
//! it is current finds the life that is on.

use std::cell::RefCell;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};

use parking_lot::Mutex;

use super::handle::{Found, Table};
use super::stream::Streams;
use super::{CUresult, Result, init};
use crate::abi::types::CUcontext;

/// All bits of `CUctx_flags`.
const FLAGS: u32 = 0xff;
/// The scheduling bits, of which at most one may be set.
const SCHED_MASK: u32 = 7;
/// `CU_CTX_MAP_HOST`: always on.
const MAP_HOST: u32 = 8;

/// The live contexts.
static CONTEXTS: Table<Context> = Table::new(1);

/// The primary context.
static PRIMARY: Mutex<Primary> = Mutex::new(Primary {
    handle: 0,
    retained: 0,
    flags: 0,
});

struct Primary {
    /// The handle that each of its lives has; 0 before the first.
    handle: usize,
    retained: u32,
    flags: u32,
}

thread_local! {
    static STACK: RefCell<Vec<Arc<Context>>> = const { RefCell::new(Vec::new()) };
}

/// A context.
pub(crate) struct Context {
    handle: usize,
    id: u64,
    primary: bool,
    flags: AtomicU32,
    destroyed: AtomicBool,
    /// `CUfunc_cache`: remembered, and of no effect.
    cache_config: AtomicU32,
    /// References beyond the first, by `cuCtxAttach`.
    attached: AtomicU32,
    /// What `cuCtxSetLimit` set.
    pub limits: Limits,
    /// Its streams.
    pub streams: Streams,
}

impl Context {
    fn new(handle: usize, primary: bool, flags: u32) -> Self {
        static IDS: AtomicU64 = AtomicU64::new(1);
        Context {
            handle,
            id: IDS.fetch_add(1, Ordering::Relaxed),
            primary,
            flags: AtomicU32::new(flags | MAP_HOST),
            destroyed: AtomicBool::new(false),
            cache_config: AtomicU32::new(0),
            attached: AtomicU32::new(0),
            limits: Limits::default(),
            streams: Streams::default(),
        }
    }

    /// Its handle.
    pub fn handle(&self) -> CUcontext {
        CUcontext(self.handle)
    }

    /// `cuCtxGetId`: unique among all contexts ever made.
    pub fn id(&self) -> u64 {
        self.id
    }

    /// It is a life of the primary context.
    pub fn is_primary(&self) -> bool {
        self.primary
    }

    /// `cuCtxGetFlags`.
    pub fn flags(&self) -> u32 {
        self.flags.load(Ordering::Relaxed)
    }

    /// `cuCtxSetFlags`.
    pub fn set_flags(&self, flags: u32) -> Result {
        check_flags(flags)?;
        self.flags.store(flags | MAP_HOST, Ordering::Relaxed);
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

    /// Records the error of work that ran: from now on the context's functions answer it. The first one stays.
    pub fn fail(&self, error: CUresult) {
        self.streams.sticky().set(error);
    }

    /// The sticky error, or that the context was destroyed.
    pub fn check(&self) -> Result {
        if self.is_destroyed() {
            return Err(CUresult::CUDA_ERROR_CONTEXT_IS_DESTROYED);
        }
        match self.streams.sticky().get() {
            None => Ok(()),
            Some(error) => Err(error),
        }
    }

    /// Waits for its work and frees what belongs to it. Its handle no longer means it.
    fn end(&self) {
        let _ = super::stream::synchronize_context(self);
        self.destroyed.store(true, Ordering::Release);
        super::stream::end_context(self);
        super::event::end_context(self);
        super::library::end_context(self);
        super::module::end_context(self);
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
    const MAX_L2_FETCH_GRANULARITY: u32 = 5;
    const PERSISTING_L2_CACHE_SIZE: u32 = 6;
    const SHMEM_SIZE: u32 = 7;

    /// A limit's value.
    pub fn get(&self, limit: u32) -> Result<u64> {
        match self.0.get(limit as usize) {
            _ if limit == Self::DEV_RUNTIME_SYNC_DEPTH => {
                Err(CUresult::CUDA_ERROR_UNSUPPORTED_LIMIT)
            }
            Some(value) => Ok(value.load(Ordering::Relaxed)),
            None => Err(CUresult::CUDA_ERROR_INVALID_VALUE),
        }
    }

    /// Sets a limit; the device rounds some of them.
    pub fn set(&self, limit: u32, value: u64) -> Result {
        let value = match limit {
            Self::DEV_RUNTIME_SYNC_DEPTH => return Err(CUresult::CUDA_ERROR_UNSUPPORTED_LIMIT),
            Self::SHMEM_SIZE.. => return Err(CUresult::CUDA_ERROR_INVALID_VALUE),
            Self::STACK_SIZE if value > 512 << 10 => {
                return Err(CUresult::CUDA_ERROR_INVALID_VALUE);
            }
            Self::STACK_SIZE => value.next_multiple_of(16),
            Self::MAX_L2_FETCH_GRANULARITY if value > 128 => {
                return Err(CUresult::CUDA_ERROR_INVALID_VALUE);
            }
            Self::PERSISTING_L2_CACHE_SIZE => value.min(crate::driver::device::PERSISTING_L2_MAX),
            _ => value,
        };
        self.0[limit as usize].store(value, Ordering::Relaxed);
        Ok(())
    }
}

impl Default for Limits {
    fn default() -> Self {
        let values = [1 << 10, 1 << 20, 8 << 20, 0, 2048, 64, 0, 0, 0, 0];
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
fn with_stack<R>(f: impl FnOnce(&mut Vec<Arc<Context>>) -> R) -> Result<R> {
    STACK
        .try_with(|stack| f(&mut stack.borrow_mut()))
        .map_err(|_| CUresult::CUDA_ERROR_DEINITIALIZED)
}

/// The context that is current to the calling thread, destroyed or not.
pub(crate) fn top() -> Result<Option<Arc<Context>>> {
    with_stack(|stack| {
        let top = stack.last_mut()?;
        if top.is_destroyed()
            && top.primary
            && let Found::Live(next) = CONTEXTS.get(top.handle)
        {
            *top = next;
        }
        Some(top.clone())
    })
}

/// The context that is current to the calling thread and may be used: not destroyed, without a sticky error.
pub(crate) fn current() -> Result<Arc<Context>> {
    let context = usable()?;
    context.check()?;
    Ok(context)
}

/// As [`current`], with or without a sticky error.
pub(crate) fn usable() -> Result<Arc<Context>> {
    init::check()?;
    let context = top()?.ok_or(CUresult::CUDA_ERROR_INVALID_CONTEXT)?;
    match context.is_destroyed() {
        false => Ok(context),
        true => Err(CUresult::CUDA_ERROR_CONTEXT_IS_DESTROYED),
    }
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

/// `cuCtxCreate`: makes a context and makes it current.
pub(crate) fn create(flags: u32) -> Result<Arc<Context>> {
    super::stream::check_process()?;
    check_flags(flags)?;
    let context = CONTEXTS.insert(|handle| Context::new(handle, false, flags));
    with_stack(|stack| stack.push(context.clone()))?;
    Ok(context)
}

/// `cuCtxDestroy`: also takes it off the calling thread's stack when it is on top.
pub(crate) fn destroy(handle: CUcontext) -> Result {
    let context = resolve(handle)?;
    if context.primary {
        return Err(CUresult::CUDA_ERROR_INVALID_CONTEXT);
    }
    if let Found::Live(context) = CONTEXTS.remove(handle.0) {
        context.end();
    }
    with_stack(|stack| {
        if stack.last().is_some_and(|top| top.handle == handle.0) {
            stack.pop();
        }
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

/// `cuCtxPushCurrent`.
pub(crate) fn push(handle: CUcontext) -> Result {
    let context = resolve(handle)?;
    with_stack(|stack| stack.push(context))
}

/// `cuCtxPopCurrent`.
pub(crate) fn pop() -> Result<CUcontext> {
    let top = with_stack(Vec::pop)?.ok_or(CUresult::CUDA_ERROR_INVALID_CONTEXT)?;
    Ok(top.handle())
}

/// `cuCtxSetCurrent`: replaces the top of the stack; null takes it off.
pub(crate) fn set_current(handle: CUcontext) -> Result {
    let context = match handle.is_null() {
        true => None,
        false => Some(resolve(handle)?),
    };
    with_stack(|stack| {
        stack.pop();
        stack.extend(context);
    })
}

/// The primary context's life that is on, starting one if need be, for as long as it is not released.
pub(crate) fn primary_retain() -> Result<Arc<Context>> {
    super::stream::check_process()?;
    let mut primary = PRIMARY.lock();
    if primary.handle == 0 {
        primary.handle = CONTEXTS.reserve();
    }
    let context = match CONTEXTS.get(primary.handle) {
        Found::Live(context) => context,
        Found::Destroyed | Found::Unknown => {
            let context = Arc::new(Context::new(primary.handle, true, primary.flags));
            CONTEXTS.put(primary.handle, context.clone());
            context
        }
    };
    primary.retained += 1;
    Ok(context)
}

/// `cuDevicePrimaryCtxRelease`: the last one ends the context's life.
pub(crate) fn primary_release() -> Result {
    let mut primary = PRIMARY.lock();
    match primary.retained {
        0 => return Err(CUresult::CUDA_ERROR_INVALID_CONTEXT),
        retained => primary.retained = retained - 1,
    }
    if primary.retained == 0 {
        end_primary(&primary);
    }
    Ok(())
}

/// `cuDevicePrimaryCtxReset`: ends the context's life whoever holds it.
pub(crate) fn primary_reset() -> Result {
    let mut primary = PRIMARY.lock();
    end_primary(&primary);
    primary.retained = 0;
    primary.flags = 0;
    Ok(())
}

fn end_primary(primary: &Primary) {
    if let Found::Live(context) = CONTEXTS.remove(primary.handle) {
        context.end();
    }
}

/// `cuDevicePrimaryCtxSetFlags`: also of the life that is on.
pub(crate) fn primary_set_flags(flags: u32) -> Result {
    check_flags(flags)?;
    let mut primary = PRIMARY.lock();
    primary.flags = flags;
    match CONTEXTS.get(primary.handle) {
        Found::Live(context) => context.set_flags(flags),
        Found::Destroyed | Found::Unknown => Ok(()),
    }
}

/// `cuDevicePrimaryCtxGetState`: its flags, and whether it is active.
pub(crate) fn primary_state() -> (u32, bool) {
    let primary = PRIMARY.lock();
    match CONTEXTS.get(primary.handle) {
        Found::Live(context) => (context.flags() & !MAP_HOST | primary.flags, true),
        Found::Destroyed | Found::Unknown => (primary.flags, false),
    }
}
