//! Where compiled code goes when an access is not where its site's last one was, and when something
//! goes wrong.

use std::mem::offset_of;
use std::sync::OnceLock;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use super::runtime;
use crate::grid;
use crate::grid::context::{
    Asked, BlockContext, CONTINUE, Site, Status, THREAD_STRIDE, ThreadContext,
};
use crate::grid::launch::FaultKind;
use crate::memory::{self, Kind};

/// The layout of [`Site`], for code that reads it.
pub(crate) const SITE_SIZE: i32 = size_of::<Site>() as i32;
pub(crate) const SITE_BASE: i32 = offset_of!(Site, base) as i32;
pub(crate) const SITE_UNITS: i32 = offset_of!(Site, units) as i32;

/// The size of an [`Access`], for code that looks at an access's site.
pub(crate) const ACCESS_SIZE: i64 = size_of::<Access>() as i64;

/// Accesses that one check is of.
#[derive(Debug)]
pub(crate) struct Access {
    /// Where a range that passes is remembered, if addresses are the host's.
    pub site: u32,
    /// What addresses are.
    pub window: Window,
    /// Bytes of each: `1 << log2`.
    pub log2: u32,
    /// One of them writes.
    pub write: bool,
    /// It adds to an integer, and may do so [aside](crate::grid::sums).
    pub sum: bool,
    /// The distances of each thread's from the lowest, in the order in which they come.
    pub offsets: Vec<u64>,
    /// How many neighbouring threads make them.
    pub threads: u64,
    /// Bytes from one thread's to the next's.
    pub stride: u64,
    /// Where the offsets hold only as long as no index wraps.
    pub indices: Option<Indices>,
}

/// The accesses of a kernel, by number.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Accesses(*const Access);

// SAFETY: accesses are only read, and whoever has a kernel's code holds its module, and so them.
unsafe impl Send for Accesses {}
// SAFETY: as above.
unsafe impl Sync for Accesses {}

impl Accesses {
    /// Of code that has none.
    pub const NONE: Accesses = Accesses(std::ptr::null());

    /// These, which must stay where they are for as long as code uses them.
    pub fn of(accesses: &[Access]) -> Accesses {
        Accesses(accesses.as_ptr())
    }

    /// The one of a number.
    ///
    /// # Safety
    /// The accesses are still there, and there are more than `number`.
    unsafe fn get<'a>(self, number: u32) -> &'a Access {
        // SAFETY: the caller's promise.
        unsafe { &*self.0.add(number as usize) }
    }
}

/// The indices of accesses, which come before they are extended and multiplied.
#[derive(Debug)]
pub(crate) struct Indices {
    /// By access, how much more its index is than the first's.
    pub more: Vec<u32>,
    pub by: i64,
    pub signed: bool,
}

impl Indices {
    /// How much more each one's address is than the first's, whose index this is, where that is not
    /// its offset: some index wraps.
    fn wrapped(&self, first: u32, offsets: &[u64]) -> Option<Vec<u64>> {
        let wide = |index: u32| match self.signed {
            true => i64::from(index as i32),
            false => i64::from(index),
        };
        let less = |more: u32| {
            let distance = wide(first.wrapping_add(more)) - wide(first) - i64::from(more);
            distance.wrapping_mul(self.by) as u64
        };
        let pairs = offsets.iter().zip(&self.more);
        let wrapped: Vec<u64> = pairs
            .map(|(at, more)| at.wrapping_add(less(*more)))
            .collect();
        (wrapped != offsets).then_some(wrapped)
    }
}

/// What an address is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Window {
    /// A host address.
    Host,
    /// A host address outside of shared memory.
    Global,
    /// An offset in the block's shared memory.
    Shared,
    /// An offset in the thread's local memory.
    Local,
    /// An offset in the kernel's parameters.
    Params,
}

impl Window {
    /// Addresses are the host's.
    pub fn is_host(self) -> bool {
        matches!(self, Window::Host | Window::Global)
    }
}

impl Access {
    /// One access of `size` bytes.
    pub fn one(size: u32, write: bool) -> Access {
        Access {
            site: 0,
            window: Window::Host,
            log2: size.trailing_zeros(),
            write,
            sum: false,
            offsets: vec![0],
            threads: 1,
            stride: 0,
            indices: None,
        }
    }

    /// Whether it is one that lowering makes, for a kernel with so many sites.
    pub fn is_sound(&self, sites: u32) -> bool {
        let indices = self.indices.as_ref();
        (!self.window.is_host() || self.site < sites)
            && self.log2 < 6
            && self.threads > 0
            && indices.is_none_or(|indices| indices.more.len() == self.offsets.len())
    }

    /// How many accesses the highest one is above the lowest.
    pub fn span(&self) -> u64 {
        let highest = self.offsets.iter().max().copied().unwrap_or(0);
        (highest + self.stride * (self.threads - 1)) >> self.log2
    }
}

/// A range that an access may touch.
struct Range {
    base: u64,
    length: u64,
    /// Every thread that uses the site means the same by its addresses.
    common: bool,
}

/// Faults if an address that is named global is one of shared memory.
fn check_global(
    thread: *mut ThreadContext,
    block: *mut BlockContext,
    address: u64,
    size: u64,
) -> Result<(), Status> {
    match grid::cluster::is_shared(block, address) {
        true => Err(fault_at(
            thread,
            block,
            FaultKind::InvalidAddressSpace,
            address,
            size,
        )),
        false => Ok(()),
    }
}

/// Looks up what an access at a host address touches, and faults unless it is allowed.
fn look_up(
    thread: *mut ThreadContext,
    block: *mut BlockContext,
    address: u64,
    size: u64,
    access: &Access,
) -> Result<Range, Status> {
    if access.window == Window::Global {
        check_global(thread, block, address, size)?;
    }
    look_up_range(thread, block, address, [size; 2], access.write, access.sum)
}

/// The same, of `wanted` bytes whose first is aligned to `size`. `sum`: see [`Access::sum`].
fn look_up_range(
    thread: *mut ThreadContext,
    block: *mut BlockContext,
    address: u64,
    [size, wanted]: [u64; 2],
    write: bool,
    sum: bool,
) -> Result<Range, Status> {
    // SAFETY: compiled code hands on the contexts that it was given, and nothing else uses them
    // meanwhile.
    let (thread_ref, block_ref) = unsafe { (&*thread, &*block) };
    let local = (thread_ref.local_base as u64, thread_ref.local_size);
    let shared = (block_ref.shared_base as u64, block_ref.shared_size);
    let params = (block_ref.params as u64, block_ref.params_size);
    let within = |(base, length): (u64, u64)| address.wrapping_sub(base) < length;
    let ((base, length), common) = if within(shared) {
        (shared, true)
    } else if within(local) {
        // Where threads have contexts of their own, another with other local memory uses the same
        // site.
        (local, !grid::has_contexts(block))
    } else if within(params) && !write {
        (params, true)
    } else if let Some((base, size)) =
        grid::cluster::shared_of_others(thread, block, address, wanted)?
    {
        ((base, size), true)
    } else {
        match memory::find(address) {
            Some(found) if grid::device(block).reaches(&found, write) => {
                grid::sums::touch(block, &found, sum.then_some(size));
                ((found.base, found.size), true)
            }
            // A device looks at the alignment first.
            _ if !address.is_multiple_of(size) => {
                return Err(fault_at(
                    thread,
                    block,
                    FaultKind::Misaligned,
                    address,
                    size,
                ));
            }
            _ => {
                let kind = match grid::cluster::is_nowhere(address) {
                    // As the device answers.
                    true => FaultKind::LaunchFailure,
                    false => FaultKind::IllegalAddress,
                };
                return Err(fault_at(thread, block, kind, address, size));
            }
        }
    };
    // Windows that are not in the arena start where the host put them: alignment counts from their
    // start.
    let in_memory = memory::is_in_arena(base) || memory::find(base).is_some();
    let skip = if in_memory {
        base.wrapping_neg() % size
    } else {
        0
    };
    let distance = address.wrapping_sub(base.wrapping_add(skip));
    if !distance.is_multiple_of(size) {
        return Err(fault_at(
            thread,
            block,
            FaultKind::Misaligned,
            address,
            size,
        ));
    }
    if (address - base).saturating_add(wanted) > length {
        return Err(fault_at(
            thread,
            block,
            FaultKind::IllegalAddress,
            address,
            wanted,
        ));
    }
    Ok(Range {
        base: base.wrapping_add(skip),
        length: length.saturating_sub(skip),
        common,
    })
}

/// Checks the source of `cp.async`, of `length` bytes, whose first is aligned to `align` bytes.
pub(super) fn check_source(
    thread: *mut ThreadContext,
    block: *mut BlockContext,
    address: u64,
    align: u64,
    length: u64,
) -> Result<(), Status> {
    check_global(thread, block, address, length)?;
    check_range(thread, block, address, align, length, false)
}

/// Checks a copy's range of `length` bytes at a host address, whose first is aligned to `align`
/// bytes: it is in one allocation or window.
pub(crate) fn check_range(
    thread: *mut ThreadContext,
    block: *mut BlockContext,
    address: u64,
    align: u64,
    length: u64,
    write: bool,
) -> Result<(), Status> {
    look_up_range(thread, block, address, [align, length], write, false).map(|_| ())
}

/// Checks an access at an offset in a window of `length` bytes.
pub(super) fn check_window(
    thread: *mut ThreadContext,
    block: *mut BlockContext,
    window: Window,
    length: u64,
    (at, size): (u64, u64),
) -> Result<(), Status> {
    let aligned = at.is_multiple_of(size);
    if aligned && at < length && length - at >= size {
        return Ok(());
    }
    let kind = match window {
        Window::Shared => grid::cluster::fault_of(at, size),
        _ if aligned => FaultKind::IllegalAddress,
        _ => FaultKind::Misaligned,
    };
    Err(fault_at(thread, block, kind, at, size))
}

/// The context of the next thread in a group.
///
/// # Safety
/// The contexts are those that compiled code was given, nothing else uses them meanwhile, and the
/// group has another thread.
pub(super) unsafe fn next_thread(
    thread: *mut ThreadContext,
    block: *mut BlockContext,
) -> *mut ThreadContext {
    // SAFETY: the caller's promise. Where threads have contexts of their own, the group's lie
    // THREAD_STRIDE apart. Otherwise one context stands for each thread in turn.
    unsafe {
        if grid::has_contexts(block) {
            return thread.byte_add(THREAD_STRIDE);
        }
        (*thread).tid[0] += 1;
    }
    thread
}

/// Notes in the site that accesses to a range pass, the last `span` of them excepted.
fn remember(block: *mut BlockContext, access: &Access, range: &Range, span: u64) {
    if !range.common {
        return;
    }
    // SAFETY: the contexts are those of the running block, and the site's number is below the
    // kernel's count of sites, of which the grid gives as many.
    unsafe {
        *(*block).sites.add(access.site as usize) = Site {
            base: range.base,
            units: (range.length >> access.log2).saturating_sub(span),
        };
    }
}

runtime! {
    /// Looks up what the accesses touch that the thread [asks](Asked) for: `CONTINUE` when all are
    /// allowed, and the site remembers where; otherwise the fault of the first that is not. Of
    /// several threads' accesses `thread` is the first one.
    RESOLVE = fn resolve(thread: *mut ThreadContext) -> u32 {
        // SAFETY: compiled code hands on the context that it was given, and nothing else uses it
        // and its block's meanwhile.
        let (asked, block, local) = unsafe { ((*thread).asked, (*thread).block, (*thread).local_size) };
        let Asked { first, index, .. } = asked;
        // SAFETY: as of the thread; the number is one that lowering gave, and the accesses live as
        // long as the code that calls this.
        let access = unsafe { (*block).accesses.get(asked.access) };
        // SAFETY: as of the thread.
        let (shared, params) = unsafe { ((*block).shared_size, (*block).params_size) };
        let window = match access.window {
            Window::Host | Window::Global => None,
            Window::Shared => Some(shared),
            Window::Local => Some(local),
            Window::Params => Some(params),
        };
        let (size, span) = (1u64 << access.log2, access.span());
        let indices = access.indices.as_ref();
        let wrapped = indices.and_then(|indices| indices.wrapped(index, &access.offsets));
        let mut thread = thread;
        for lane in 0..access.threads {
            for offset in wrapped.as_ref().unwrap_or(&access.offsets) {
                let at = first.wrapping_add(*offset).wrapping_add(lane * access.stride);
                if let Some(length) = window {
                    if let Err(status) = check_window(thread, block, access.window, length, (at, size)) {
                        return status;
                    }
                    continue;
                }
                let range = match look_up(thread, block, at, size, access) {
                    Ok(range) => range,
                    Err(status) => return status,
                };
                let from = first.wrapping_sub(range.base);
                let all = from < range.length && (span << access.log2) + size <= range.length - from;
                if all && wrapped.is_none() && (range.common || access.threads == 1) {
                    // All are inside this one range, which is each thread's.
                    remember(block, access, &range, span);
                    return CONTINUE;
                }
            }
            if lane + 1 == access.threads {
                break;
            }
            // SAFETY: as above; the group has another thread.
            thread = unsafe { next_thread(thread, block) };
        }
        // No site knows what they touch.
        grid::sums::give_up(block);
        // Compiled code does not go on from what is outside of a window.
        debug_assert!(window.is_none(), "some access is outside: {access:?}");
        CONTINUE
    }

    /// The same, of host addresses without indices. Its stub looks at the site first.
    RESOLVE_ELSEWHERE = fn resolve_elsewhere(thread: *mut ThreadContext) -> u32 {
        resolve(thread)
    }

    /// Records a fault; `kind` is a [`FaultKind`].
    FAULT = fn fault(thread: *mut ThreadContext, block: *mut BlockContext, kind: u32, address: u64, size: u32) -> u32 {
        let known = [
            FaultKind::IllegalAddress,
            FaultKind::Misaligned,
            FaultKind::InvalidAddressSpace,
            FaultKind::InvalidPc,
            FaultKind::Trap,
            FaultKind::IllegalInstruction,
            FaultKind::Assert,
            FaultKind::StackOverflow,
            FaultKind::Deadlock,
        ];
        let kind = known
            .into_iter()
            .find(|known| *known as u32 == kind)
            .unwrap_or(FaultKind::LaunchFailure);
        let access = (size > 0).then_some((address, size));
        let detail = match kind {
            FaultKind::InvalidPc => format!("no function or label is at {address:#x}"),
            _ => String::new(),
        };
        grid::fault(thread, block, kind, access, detail)
    }

    /// Whether a generic address is in constant memory: 1 or 0.
    IS_CONSTANT = fn is_constant(address: u64) -> u32 {
        u32::from(memory::find(address).is_some_and(|found| found.kind == Kind::Constant))
    }

    /// Copies bytes between blocks of parameters.
    COPY = fn copy(to: *mut u8, from: *const u8, size: u64) {
        // SAFETY: lowering names two blocks of parameters or returns, each of at least this size;
        // they may be the same.
        unsafe { std::ptr::copy(from, to, size as usize) };
    }

    /// `%clock64`: a counter of about a cycle.
    CLOCK = fn clock() -> u64 {
        #[cfg(target_arch = "x86_64")]
        // SAFETY: the instruction is part of x86-64 and reads a counter.
        let clock = unsafe { std::arch::x86_64::_rdtsc() };
        #[cfg(not(target_arch = "x86_64"))]
        let clock = since_start().as_nanos() as u64;
        clock
    }

    /// `%globaltimer`: nanoseconds since 1970 that never go back.
    GLOBALTIMER = fn globaltimer() -> u64 {
        static START: OnceLock<Duration> = OnceLock::new();
        let start = START.get_or_init(|| {
            let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
            now.saturating_sub(since_start())
        });
        (*start + since_start()).as_nanos() as u64
    }
}

fn since_start() -> Duration {
    static START: OnceLock<Instant> = OnceLock::new();
    START.get_or_init(Instant::now).elapsed()
}

fn fault_at(
    thread: *mut ThreadContext,
    block: *mut BlockContext,
    kind: FaultKind,
    address: u64,
    size: u64,
) -> Status {
    grid::fault(thread, block, kind, Some((address, size as u32)), "")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn indices_that_wrap_are_told_from_those_that_do_not() {
        let indices = |signed| Indices {
            more: vec![0, 1, 2],
            by: 4,
            signed,
        };
        let back = |n: u64| n.wrapping_sub(4 << 32);
        // The second access is two bytes further than its index says.
        let offsets = [0, 6, 8];
        let unsigned = |first| indices(false).wrapped(first, &offsets);
        assert_eq!(unsigned(u32::MAX - 2), None);
        assert_eq!(unsigned(u32::MAX - 1), Some(vec![0, 6, back(8)]));
        assert_eq!(unsigned(u32::MAX), Some(vec![0, back(6), back(8)]));
        assert_eq!(unsigned(i32::MAX as u32), None);
        let signed = |first| indices(true).wrapped(first, &offsets);
        assert_eq!(signed(u32::MAX), None);
        assert_eq!(signed(i32::MAX as u32 - 2), None);
        assert_eq!(signed(i32::MAX as u32 - 1), Some(vec![0, 6, back(8)]));
        assert_eq!(signed(i32::MAX as u32), Some(vec![0, back(6), back(8)]));
    }
}
