//! Where compiled code goes when an access is not where its site's last one was, and when something
//! goes wrong.

use std::mem::offset_of;
use std::sync::OnceLock;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use super::runtime;
use crate::grid;
use crate::grid::context::{BlockContext, CONTINUE, Site, Status, THREAD_STRIDE, ThreadContext};
use crate::grid::launch::FaultKind;
use crate::jit::spmd::WIDTH;
use crate::memory::{self, Kind};

/// The layout of [`Site`], for code that reads it.
pub(crate) const SITE_SIZE: i32 = size_of::<Site>() as i32;
pub(crate) const SITE_BASE: i32 = offset_of!(Site, base) as i32;
pub(crate) const SITE_UNITS: i32 = offset_of!(Site, units) as i32;

/// The kind of address of a group where it is no host address: an offset in shared or local memory.
pub(crate) const SHARED: u64 = 1 << 41;
pub(crate) const LOCAL: u64 = 1 << 42;
const WRITE: u64 = 1 << 40;
const SPAN: u32 = 43;

/// An access as [`RESOLVE`] takes it: which site, the logarithm of its size, whether it writes; of
/// a group, how many accesses the highest one is above the lowest.
pub(crate) fn pack(site: u32, log2: u32, write: bool, span: u32) -> u64 {
    let write = if write { WRITE } else { 0 };
    u64::from(site) | u64::from(log2) << 32 | write | u64::from(span) << SPAN
}

/// The accesses of a group of threads as [`RESOLVE_ROW`] takes them: how many each makes, and how
/// many bytes from one thread's to the next's.
pub(crate) fn pack_row(count: usize, stride: i64) -> u64 {
    count as u64 | (stride as u64) << 32
}

/// A range that an access may touch.
struct Range {
    base: u64,
    length: u64,
    /// Every thread that uses the site means the same by its addresses.
    common: bool,
}

/// Looks up what an access touches, and faults unless it is allowed.
fn look_up(
    thread: *mut ThreadContext,
    block: *mut BlockContext,
    address: u64,
    size: u64,
    write: bool,
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
        // In fiber mode another thread, with other local memory, uses the same site.
        (local, thread_ref.fiber.is_null())
    } else if within(params) && !write {
        (params, true)
    } else {
        match memory::find(address) {
            Some(found) if !(write && found.kind == Kind::Constant) => {
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
                return Err(fault_at(
                    thread,
                    block,
                    FaultKind::IllegalAddress,
                    address,
                    size,
                ));
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
    if address - base + size > length {
        return Err(fault_at(
            thread,
            block,
            FaultKind::IllegalAddress,
            address,
            size,
        ));
    }
    Ok(Range {
        base: base.wrapping_add(skip),
        length: length.saturating_sub(skip),
        common,
    })
}

/// Notes in a site that accesses to a range pass, the last `span` of them excepted.
fn remember(block: *mut BlockContext, access: u64, range: &Range, log2: u32, span: u64) {
    if !range.common {
        return;
    }
    // SAFETY: the contexts are those of the running block, and the site's number is below the
    // kernel's count of sites, of which the grid gives as many.
    unsafe {
        *(*block).sites.add(access as u32 as usize) = Site {
            base: range.base,
            units: (range.length >> log2).saturating_sub(span),
        };
    }
}

runtime! {
    /// Looks up what an access touches: `CONTINUE` when it is allowed, and the site remembers
    /// where; otherwise a fault.
    RESOLVE = fn resolve(thread: *mut ThreadContext, block: *mut BlockContext, address: u64, access: u64) -> u32 {
        let log2 = (access >> 32) as u32 & 0xff;
        match look_up(thread, block, address, 1 << log2, access & WRITE != 0) {
            Ok(range) => {
                remember(block, access, &range, log2, 0);
                CONTINUE
            }
            Err(status) => status,
        }
    }

    /// The same for accesses that are checked together; `first` is the lowest one's address or
    /// offset, and the distances of all from there are in `offsets`, in the order in which they
    /// come.
    RESOLVE_GROUP = fn resolve_group(
        thread: *mut ThreadContext, block: *mut BlockContext, first: u64, access: u64, offsets: *const u64, count: u64,
    ) -> u32 {
        let log2 = (access >> 32) as u32 & 0xff;
        let (size, write, span) = (1u64 << log2, access & WRITE != 0, access >> SPAN);
        // SAFETY: lowering made the numbers, which live as long as the code that calls this.
        let offsets = unsafe { std::slice::from_raw_parts(offsets, count as usize) };
        if access & (SHARED | LOCAL) != 0 {
            // SAFETY: compiled code hands on the contexts that it was given, and nothing else uses
            // them meanwhile.
            let length = unsafe { if access & SHARED != 0 { (*block).shared_size } else { (*thread).local_size } };
            for offset in offsets {
                let at = first.wrapping_add(*offset);
                if !at.is_multiple_of(size) || at >= length || length - at < size {
                    return outside(thread, block, at, size as u32);
                }
            }
            return CONTINUE;
        }
        for offset in offsets {
            let range = match look_up(thread, block, first.wrapping_add(*offset), size, write) {
                Ok(range) => range,
                Err(status) => return status,
            };
            let from = first.wrapping_sub(range.base);
            if from < range.length && (span << log2) + size <= range.length - from {
                // All are inside this one range.
                remember(block, access, &range, log2, span);
                return CONTINUE;
            }
        }
        CONTINUE
    }

    /// The same for a group of threads, each of which accesses what [`pack_row`] says; `thread` is
    /// the first one's. A fault is that of the first thread that makes one.
    RESOLVE_ROW = fn resolve_row(
        thread: *mut ThreadContext, block: *mut BlockContext, first: u64, access: u64, offsets: *const u64, row: u64,
    ) -> u32 {
        let log2 = (access >> 32) as u32 & 0xff;
        let (size, write, span) = (1u64 << log2, access & WRITE != 0, access >> SPAN);
        let (count, stride) = (row as u32 as usize, row >> 32);
        // SAFETY: lowering made the numbers, which live as long as the code that calls this.
        let offsets = unsafe { std::slice::from_raw_parts(offsets, count) };
        // SAFETY: compiled code hands on the contexts that it was given, and nothing else uses them
        // meanwhile.
        let shared = unsafe { (*block).shared_size };
        // Otherwise one context stands for each thread in turn.
        let own_contexts = grid::has_contexts(block);
        let mut thread = thread;
        for lane in 0..WIDTH as u64 {
            for offset in offsets {
                let at = first.wrapping_add(*offset).wrapping_add(lane * stride);
                let status = if access & SHARED != 0 {
                    match !at.is_multiple_of(size) || at >= shared || shared - at < size {
                        true => Some(outside(thread, block, at, size as u32)),
                        false => None,
                    }
                } else {
                    match look_up(thread, block, at, size, write) {
                        Ok(range) => {
                            let from = first.wrapping_sub(range.base);
                            if from < range.length && (span << log2) + size <= range.length - from {
                                // All are inside this one range.
                                remember(block, access, &range, log2, span);
                                return CONTINUE;
                            }
                            None
                        }
                        Err(status) => Some(status),
                    }
                };
                if let Some(status) = status {
                    return status;
                }
            }
            if lane + 1 == WIDTH as u64 {
                break;
            }
            // SAFETY: as above; where threads have contexts of their own, the group's lie
            // THREAD_STRIDE apart.
            unsafe {
                if own_contexts {
                    thread = thread.byte_add(THREAD_STRIDE);
                } else {
                    (*thread).tid[0] += 1;
                    (*thread).linear += 1;
                }
            }
        }
        CONTINUE
    }

    /// An access outside shared or local memory or the parameters, or misaligned there; the address
    /// is the offset.
    OUTSIDE = fn outside(thread: *mut ThreadContext, block: *mut BlockContext, offset: u64, size: u32) -> u32 {
        let kind = if offset.is_multiple_of(u64::from(size)) { FaultKind::IllegalAddress } else { FaultKind::Misaligned };
        fault_at(thread, block, kind, offset, u64::from(size))
    }

    /// Records a fault; `kind` is a [`FaultKind`].
    FAULT = fn fault(thread: *mut ThreadContext, block: *mut BlockContext, kind: u32, address: u64, size: u32) -> u32 {
        let known = [
            FaultKind::IllegalAddress,
            FaultKind::Misaligned,
            FaultKind::InvalidAddressSpace,
            FaultKind::InvalidPc,
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
