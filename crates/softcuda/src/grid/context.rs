//! What compiled code sees of the thread and the block it runs in: two C structures at fixed
//! offsets.
//!
//! Compiled code reads them through `offset_of!`, so a field may move freely; its type may not
//! change without the code in `jit::lower` that reads it.
//!
//! A block is run in one of the ways that [`Mode`] lists.

use std::ffi::c_void;
use std::sync::atomic::AtomicBool;

use super::warp::Tile;
use crate::jit::runtime::access::Accesses;

/// What a compiled function answers: 0 to go on, otherwise why the thread ends.
///
/// A function that gets a status other than [`CONTINUE`] from a call returns it to its own caller
/// at once, so a thread is unwound by returning, never by jumping.
pub(crate) type Status = u32;
/// Go on.
pub(crate) const CONTINUE: Status = 0;
/// The thread ended by `exit`.
pub(crate) const EXITED: Status = 1;
/// The thread ended by a fault, which has been recorded in the launch, or because another thread's
/// fault stops the launch.
pub(crate) const FAULTED: Status = 2;
/// In rounds: threads of the block poll, and none can go on before others have run. The kernel's
/// function is to be called again.
pub(crate) const SUSPENDED: Status = 3;

/// How the threads of a block are run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Mode {
    /// The compiled function runs all threads of a block one after the other, each to its end, with
    /// one [`ThreadContext`] that it rewrites for each.
    Loop,
    /// The compiled function runs all threads of a block, warp by warp, each thread up to a place
    /// where it waits for others, and later on from there. Each has its own [`ThreadContext`], and
    /// keeps in its warp's [`Tile`] what it needs after the wait.
    Rounds,
    /// The compiled function runs one thread; each has its own [`ThreadContext`] and stack.
    Fibers,
}

/// The range that an access site last touched: a check that passes costs no look-up.
///
/// An access of `size` bytes (a power of two, up to 32) at `address` is inside when `(address -
/// base).rotate_right(log2(size)) < units`: one comparison for below, above and misaligned, because
/// the low bits of a misaligned distance become its high bits.
#[repr(C)]
#[derive(Clone, Copy, Default)]
pub(crate) struct Site {
    /// First byte of the range, aligned to the access size.
    pub base: u64,
    /// How many accesses of this size fit in the range; 0 admits none.
    pub units: u64,
}

/// What a cold path asks for. In registers, this would cost the hot path moves.
#[repr(C)]
#[derive(Clone, Copy)]
pub(crate) struct Asked {
    /// The accesses to look up, by number in [`BlockContext::accesses`].
    pub access: u32,
    /// The lowest one's address.
    pub first: u64,
    /// The first one's index.
    pub index: u32,
}

impl Asked {
    /// Nothing yet.
    pub const NOTHING: Asked = Asked {
        access: 0,
        first: 0,
        index: 0,
    };
}

/// A thread, as compiled code sees it.
#[repr(C)]
pub(crate) struct ThreadContext {
    /// `%tid`.
    pub tid: [u32; 3],
    /// The thread's number in its block: x fastest.
    pub linear: u32,
    /// The thread's local memory: local addresses are offsets from here, generic ones host
    /// addresses in it.
    pub local_base: *mut u8,
    /// Its size in bytes.
    pub local_size: u64,
    /// Where the next function's local frame starts: an offset from `local_base`.
    pub local_top: u64,
    /// The lowest address that the native stack may reach: compiled functions compare with it on
    /// entry.
    pub stack_limit: u64,
    /// Polls (volatile and acquire loads, atomics, `nanosleep`) left before the thread lets others
    /// run; fiber mode only.
    pub polls: i32,
    /// What the last call out of a cold path answered: such calls leave all registers as they are,
    /// so they return nothing.
    pub status: u32,
    /// What the last cold path to an access asked for.
    pub asked: Asked,
    /// The fiber of this thread, for the runtime alone; null in loop mode.
    pub fiber: *mut c_void,
    /// The block it is in, for the runtime alone.
    pub block: *mut BlockContext,
}

/// How far apart the contexts of a block's threads lie.
pub(crate) const THREAD_STRIDE: usize = super::block::THREAD_STRIDE;

/// The lanes of a warp that go on together, in rounds.
#[repr(C)]
#[derive(Clone, Copy)]
pub(crate) struct Turn {
    /// The lanes. None: no turn has been given yet, or all threads of the block have ended.
    pub lanes: u32,
    /// The warp's number in its block.
    pub warp: u32,
    /// The context of its lane 0; those of the others follow, [`THREAD_STRIDE`] apart.
    pub threads: *mut ThreadContext,
    /// What its lanes keep.
    pub tile: *mut Tile,
    /// In a turn of all: the warps that go on together, from this one to before [`Self::end`].
    pub begin: u32,
    /// See [`Self::begin`].
    pub end: u32,
    /// In a turn of all: how many times warps did not all go the same way since they were together.
    /// Some after the others go to the next barrier then.
    pub split: u32,
    /// Where the warps before `begin` have come to, if there are any.
    pub comes: u32,
}

impl Turn {
    /// No turn has been given yet.
    pub const NONE: Turn = Turn {
        lanes: 0,
        warp: 0,
        threads: std::ptr::null_mut(),
        tile: std::ptr::null_mut(),
        begin: 0,
        end: 0,
        split: 0,
        comes: 0,
    };
}

/// An array that threads only add integers to, and what has been added to it but is not in it yet:
/// see [`sums`](super::sums).
#[repr(C)]
#[derive(Clone, Copy)]
pub(crate) struct Sums {
    /// The array's first byte.
    pub base: u64,
    /// Its size in bytes; 0: all is added in place.
    pub size: u64,
    /// As many bytes, to which the worker's threads add instead.
    pub aside: *mut u64,
}

impl Sums {
    /// All is added in place.
    pub const NONE: Sums = Sums {
        base: 0,
        size: 0,
        aside: std::ptr::null_mut(),
    };
}

/// Three vectors of singles.
#[repr(C, align(16))]
#[derive(Clone, Copy, Default)]
pub(crate) struct Floats(pub [[f32; 4]; 3]);

/// A block, as compiled code sees it.
#[repr(C)]
pub(crate) struct BlockContext {
    /// `%ctaid`.
    pub ctaid: [u32; 3],
    /// `%ntid`.
    pub ntid: [u32; 3],
    /// `%nctaid`.
    pub nctaid: [u32; 3],
    /// `%nclusterid` would be `nctaid / cluster`; this is the cluster's size in blocks, 1 without
    /// clusters.
    pub cluster: [u32; 3],
    /// Threads in the block.
    pub threads: u32,
    /// `%smid`: the worker that runs the block.
    pub smid: u32,
    /// `%nsmid`.
    pub nsmid: u32,
    /// `%dynamic_smem_size`.
    pub dynamic_shared: u32,
    /// `%gridid`.
    pub gridid: u64,
    /// The kernel's parameters, laid out as its signature says.
    pub params: *const u8,
    /// Size of the parameters in bytes.
    pub params_size: u64,
    /// The block's shared memory: shared addresses are offsets from here, generic ones host
    /// addresses in it. Static variables come first, dynamic shared memory after them.
    pub shared_base: *mut u8,
    /// Its size in bytes, static and dynamic: also `%total_smem_size`.
    pub shared_size: u64,
    /// One entry for each access site of the kernel and the functions it can reach.
    pub sites: *mut Site,
    /// What the kernel's code looks up by number, for the runtime alone.
    pub accesses: Accesses,
    /// For each array of the kernel, how many indices are inside.
    pub arrays: *const u32,
    /// What threads add to a copy of.
    pub sums: Sums,
    /// `%envreg1` and `%envreg2`: high and low half of the address of the cooperative grid's
    /// workspace; 0 without.
    pub workspace: u64,
    /// In rounds: whose turn it is.
    pub turn: Turn,
    /// In rounds: polls that the turn has left before its lanes let others run.
    pub polls: i32,
    /// In rounds: not 0 where the block goes on that was [`SUSPENDED`].
    pub resumes: u32,
    /// In rounds: which lanes may stand elsewhere than where they start, by a number as
    /// [`MOVED`](super::rounds::MOVED).
    pub start: u32,
    /// In rounds: the first warp's tile; the others follow, a [`Tile::stride`] apart.
    pub tiles: *mut Tile,
    /// Where blocks go through a loop in [step](crate::jit::spmd::Passes): how many turns of it lie
    /// behind.
    pub pass: u64,
    /// There: behind the first pass, not 0 for each group of [`WIDTH`](crate::jit::spmd::WIDTH)
    /// threads that is in the loop, by the number of its first thread. Null elsewhere.
    pub again: *mut u8,
    /// There: not 0 once a group is to go through the loop again.
    pub goes: u32,
    /// Numbers that a cold path computes with, and its result in the first one's place.
    pub floats: Floats,
    /// Not 0 once the launch has been stopped.
    pub stop: *const AtomicBool,
    /// The launch and the block's own state, for the runtime alone.
    pub runtime: *mut c_void,
}

/// A compiled kernel: runs the whole block or, in fiber mode, one thread. Ends with [`EXITED`] or
/// [`CONTINUE`] when it ended well, or with [`SUSPENDED`].
pub(crate) type KernelFn = unsafe extern "C" fn(*mut ThreadContext, *mut BlockContext) -> Status;

/// A compiled device function: thread, block, where the return parameters go, where the parameters
/// are (each laid out one after the other as in a kernel's signature).
#[cfg_attr(
    not(test),
    allow(dead_code, reason = "compiled code alone calls through it")
)]
pub(crate) type DeviceFn =
    unsafe extern "C" fn(*mut ThreadContext, *mut BlockContext, *mut u8, *const u8) -> Status;
