//! User objects: something of the program's with a destructor, kept alive by references of the program's, of graphs, of
//! executables and of launches in flight.
//!
//! Invariants:
//! - the destructor runs once, when the last reference of whichever kind is gone, and never on a thread of the program's;
//! - a thread of its own runs all destructors, one after the other, and CUDA may not be called there.

use std::collections::BTreeMap;
use std::ffi::c_void;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::mpsc::{Sender, channel};
use std::sync::{Arc, OnceLock, Weak};

use parking_lot::Mutex;

use crate::abi::types::CUuserObject;
use crate::driver::handle::{Found, Table};
use crate::driver::host_function::{HostFn, UserData};
use crate::driver::{CUresult, Result};
use crate::engine::host::forbid_calls;

const INVALID: CUresult = CUresult::CUDA_ERROR_INVALID_VALUE;
/// `CU_USER_OBJECT_NO_DESTRUCTOR_SYNC`: the one flag, and required.
const NO_DESTRUCTOR_SYNC: u32 = 1;
/// `CU_GRAPH_USER_OBJECT_MOVE`.
const MOVE: u32 = 1;
/// The most references of one call.
const MOST: u32 = i32::MAX as u32;

static OBJECTS: Table<Entry> = Table::new(15);

/// What a handle means: the object as long as anybody keeps it, and the program's own references.
struct Entry {
    object: Weak<UserObject>,
    program: Mutex<Option<Reference>>,
}

/// A user object: whoever holds an `Arc` of it has a reference.
pub(crate) struct UserObject {
    handle: usize,
    destroy: HostFn,
    data: UserData,
}

/// References of one holder to one object.
#[derive(Clone)]
pub(crate) struct Reference {
    #[allow(dead_code, reason = "kept for its end")]
    object: Arc<UserObject>,
    count: u64,
}

/// The references that a graph has.
pub(crate) type References = BTreeMap<usize, Reference>;

impl Drop for UserObject {
    fn drop(&mut self) {
        OBJECTS.remove(self.handle);
        let (destroy, data) = (self.destroy, self.data);
        // SAFETY: the program said that the function may be called with this data when no reference is left; that is now.
        let call = move || unsafe { destroy(data.get()) };
        later(Box::new(call));
    }
}

type Call = Box<dyn FnOnce() + Send>;

/// Runs a destructor on their thread.
fn later(call: Call) {
    static CALLS: OnceLock<Option<Sender<Call>>> = OnceLock::new();
    let calls = CALLS.get_or_init(|| {
        let (sender, calls) = channel::<Call>();
        let run = move || {
            for call in calls {
                // A panic that reaches us has been reported by its hook.
                let _ = catch_unwind(AssertUnwindSafe(|| forbid_calls(call)));
            }
        };
        let thread = std::thread::Builder::new().name("softcuda-destroy".into());
        thread.spawn(run).ok().map(|_| sender)
    });
    match calls {
        Some(calls) => drop(calls.send(call)),
        None => tracing::error!("no thread for destructors of user objects: they are not called"),
    }
}

fn check_count(count: u32) -> Result<u64> {
    match count {
        1..=MOST => Ok(count.into()),
        _ => Err(INVALID),
    }
}

/// `cuUserObjectCreate`: the program has the first `count` references.
pub(crate) fn create(
    data: *mut c_void,
    destroy: Option<HostFn>,
    count: u32,
    flags: u32,
) -> Result<CUuserObject> {
    let count = check_count(count)?;
    let destroy = destroy.ok_or(INVALID)?;
    if flags != NO_DESTRUCTOR_SYNC {
        return Err(INVALID);
    }
    let handle = OBJECTS.reserve();
    let object = Arc::new(UserObject {
        handle,
        destroy,
        data: UserData(data),
    });
    let entry = Entry {
        object: Arc::downgrade(&object),
        program: Mutex::new(Some(Reference { object, count })),
    };
    OBJECTS.put(handle, Arc::new(entry));
    Ok(CUuserObject(handle))
}

fn entry(handle: CUuserObject) -> Result<Arc<Entry>> {
    match OBJECTS.get(handle.0) {
        Found::Live(entry) => Ok(entry),
        // A real driver crashes on them.
        Found::Destroyed | Found::Unknown => Err(INVALID),
    }
}

/// Adds references of a holder.
fn add(held: &mut Option<Reference>, object: Arc<UserObject>, count: u64) {
    held.get_or_insert(Reference { object, count: 0 }).count += count;
}

/// Takes references of a holder away; an error where it has not so many.
fn take(held: &mut Option<Reference>, count: u64) -> Result<Option<Reference>> {
    let reference = held.as_mut().ok_or(INVALID)?;
    reference.count = reference.count.checked_sub(count).ok_or(INVALID)?;
    // Dropped by the caller, when it has let go of its lock.
    Ok(held.take_if(|reference| reference.count == 0))
}

/// `cuUserObjectRetain`.
pub(crate) fn retain(handle: CUuserObject, count: u32) -> Result {
    let count = check_count(count)?;
    let entry = entry(handle)?;
    let object = entry.object.upgrade().ok_or(INVALID)?;
    add(&mut entry.program.lock(), object, count);
    Ok(())
}

/// `cuUserObjectRelease`.
pub(crate) fn release(handle: CUuserObject, count: u32) -> Result {
    let count = check_count(count)?;
    let entry = entry(handle)?;
    let gone = take(&mut entry.program.lock(), count)?;
    drop(gone);
    Ok(())
}

/// `cuGraphRetainUserObject`: gives a graph references, new ones or the program's.
pub(crate) fn retain_for(
    references: &mut References,
    handle: CUuserObject,
    count: u32,
    flags: u32,
) -> Result {
    let count = check_count(count)?;
    if flags & !MOVE != 0 {
        return Err(INVALID);
    }
    let entry = entry(handle)?;
    let object = entry.object.upgrade().ok_or(INVALID)?;
    if flags & MOVE != 0 {
        take(&mut entry.program.lock(), count)?;
    }
    let fresh = Reference { object, count: 0 };
    references.entry(handle.0).or_insert(fresh).count += count;
    Ok(())
}

/// `cuGraphReleaseUserObject`: takes references from a graph. The caller drops what is given when it has let go of locks.
pub(crate) fn release_from(
    references: &mut References,
    handle: CUuserObject,
    count: u32,
) -> Result<Option<Reference>> {
    let count = check_count(count)?;
    let reference = references.get_mut(&handle.0).ok_or(INVALID)?;
    reference.count = reference.count.checked_sub(count).ok_or(INVALID)?;
    Ok(match reference.count {
        0 => references.remove(&handle.0),
        _ => None,
    })
}
