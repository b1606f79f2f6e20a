//! `cuIpcGetMemHandle` and what opens its handles.
//!
//! The first handle of an allocation moves its pages into a file of their own. Who opened it keeps
//! the pages when they are freed.

use std::collections::HashMap;
use std::collections::hash_map::Entry;

use parking_lot::Mutex;

use super::label::{self, Handle, Id, Label, What};
use crate::abi::types::CUdeviceptr;
use crate::driver::memory::{self as owned, Made};
use crate::driver::{CUresult, Result, context, stream};
use crate::memory::{self, Allocation, Kind, PAGE, PageFile};

const INVALID: CUresult = CUresult::CUDA_ERROR_INVALID_VALUE;

/// What the program has handles of, by address.
static SHARED: Mutex<Option<HashMap<u64, (PageFile, Label)>>> = Mutex::new(None);
/// What the program opened.
static OPENED: Mutex<Option<HashMap<Id, Opened>>> = Mutex::new(None);

/// An allocation of another process.
struct Opened {
    allocation: Allocation,
    /// How often it was opened and not closed.
    times: u64,
}

/// `cuIpcGetMemHandle`, by an address in an allocation of `cuMemAlloc`.
pub(crate) fn handle_of(address: u64) -> Result<[u8; 64]> {
    let mut shared = SHARED.lock();
    let shared = shared.get_or_insert_default();
    let owned = owned::owner(address).ok_or(INVALID)?;
    if !matches!(owned.made, Made::Plain) {
        return Err(INVALID);
    }
    let allocation = owned.allocation;
    if let Entry::Vacant(place) = shared.entry(allocation.base) {
        let (_, size) = memory::pages_of(&allocation);
        let label = Label {
            what: What::Allocation,
            id: label::new_id()?,
            size,
            location: (1, allocation.device.number()),
        };
        let file = label.create()?;
        memory::share(&allocation, &file)?;
        place.insert((file, label));
    }
    let (file, label) = &shared[&allocation.base];
    // Where it begins in its first page, and how large it is.
    let number = (allocation.size << 12) | (allocation.base % PAGE);
    Ok(Handle::new(file, label, number).encode())
}

/// Frees an allocation of `cuMemAlloc`; answers what it was.
pub(crate) fn free(base: u64) -> Option<Allocation> {
    let file = SHARED
        .lock()
        .as_mut()
        .and_then(|shared| shared.remove(&base));
    match file {
        None => memory::free(base),
        Some(_) => {
            let allocation = memory::find(base)?;
            memory::free_shared(&allocation);
            Some(allocation)
        }
    }
}

/// `cuIpcOpenMemHandle`: what is opened already has the same address again.
pub(crate) fn open(handle: &[u8; 64], flags: u32) -> Result<CUdeviceptr> {
    /// `CU_IPC_MEM_LAZY_ENABLE_PEER_ACCESS`, which must be there; an H200 does not look at others.
    const LAZY: u32 = 1;
    let context = context::current()?;
    let handle = Handle::decode(handle, What::Allocation).ok_or(INVALID)?;
    if flags & LAZY == 0 {
        return Err(INVALID);
    }
    if handle.is_own() {
        return Err(CUresult::CUDA_ERROR_INVALID_CONTEXT);
    }
    let mut opened = OPENED.lock();
    let opened = opened.get_or_insert_default();
    if let Some(opened) = opened.get_mut(&handle.id) {
        opened.times += 1;
        return Ok(opened.allocation.base);
    }
    let (file, label) = handle.open().ok_or(INVALID)?;
    let (within, size) = (handle.number % PAGE, handle.number >> 12);
    if size == 0 || (within + size).next_multiple_of(PAGE) != label.size {
        return Err(INVALID);
    }
    let allocation = memory::alloc_file(context.device(), &file, 0, within, size, Kind::Device)?;
    opened.insert(
        handle.id,
        Opened {
            allocation,
            times: 1,
        },
    );
    Ok(owned::own(allocation, Made::Opened(handle.id), context))
}

/// `cuIpcCloseMemHandle`: waits for the work that may use the memory when it was opened once.
pub(crate) fn close(address: CUdeviceptr) -> Result {
    context::current()?;
    let owned = owned::owner(address).filter(|owned| owned.allocation.base == address);
    let Some((Made::Opened(id), owned)) = owned.map(|owned| (owned.made.clone(), owned)) else {
        return Err(INVALID);
    };
    let last = {
        let mut all = OPENED.lock();
        let all = all.as_mut().ok_or(INVALID)?;
        let opened = all.get_mut(&id).ok_or(INVALID)?;
        opened.times = opened.times.saturating_sub(1);
        // Taken out at once: who opens it from now on maps it anew.
        match opened.times {
            0 => all.remove(&id),
            _ => None,
        }
    };
    let Some(last) = last else {
        return Ok(());
    };
    owned::disown(address, |entry| matches!(entry.made, Made::Opened(_)));
    let waited = stream::synchronize_context(&owned.context);
    memory::free_file(&last.allocation);
    waited
}

/// Lets go of what was opened and is in the program's hands no more.
pub(crate) fn release(id: Id) -> Option<Allocation> {
    let opened = OPENED
        .lock()
        .as_mut()
        .and_then(|opened| opened.remove(&id))?;
    memory::free_file(&opened.allocation);
    Some(opened.allocation)
}
