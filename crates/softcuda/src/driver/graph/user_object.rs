//! User objects: something of the program's with a destructor, kept alive by references of the
//! program's, of graphs, of executables and of launches in flight.
//!
//! Invariants:
//! - an object has one count of references, whoever holds them: who gives back more than it had
//!   gives back another's, as an H200 has it;
//! - the destructor runs once, when the count comes to nothing, and never on a thread of the
//!   program's;
//! - a thread of its own runs all destructors, one after the other, and CUDA may not be called
//!   there.

use std::collections::BTreeMap;
use std::ffi::c_void;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicI64, Ordering};
use std::sync::mpsc::{Sender, channel};
use std::sync::{Arc, OnceLock};

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
/// The most references of one call but the first.
const MOST: u32 = i32::MAX as u32;

static OBJECTS: Table<UserObject> = Table::new(15);

/// A user object.
pub(crate) struct UserObject {
    handle: usize,
    /// References of all holders. Below nothing where more were given back than there were.
    count: AtomicI64,
    destroy: HostFn,
    data: UserData,
}

/// References of a graph, an executable or a launch to one object, given back with it.
pub(crate) struct Reference {
    object: Arc<UserObject>,
    count: u64,
}

/// The references that a graph has.
pub(crate) type References = BTreeMap<usize, Reference>;

impl UserObject {
    fn add(&self, count: u64) {
        self.count.fetch_add(count as i64, Ordering::Relaxed);
    }

    fn take(&self, count: u64) {
        let count = count as i64;
        let last = count > 0 && self.count.fetch_sub(count, Ordering::AcqRel) == count;
        // Its handle goes once, and the destructor with it.
        if last && matches!(OBJECTS.remove(self.handle), Found::Live(_)) {
            let (destroy, data) = (self.destroy, self.data);
            // SAFETY: the program said that the function may be called with this data when no
            // reference is left; that is now.
            let call = move || unsafe { destroy(data.get()) };
            later(Box::new(call));
        }
    }
}

impl Clone for Reference {
    fn clone(&self) -> Self {
        self.object.add(self.count);
        Reference {
            object: self.object.clone(),
            count: self.count,
        }
    }
}

impl Drop for Reference {
    fn drop(&mut self) {
        self.object.take(self.count);
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
    let destroy = destroy.ok_or(INVALID)?;
    if count == 0 || flags != NO_DESTRUCTOR_SYNC {
        return Err(INVALID);
    }
    let object = OBJECTS.insert(|handle| UserObject {
        handle,
        count: AtomicI64::new(count.into()),
        destroy,
        data: UserData(data),
    });
    Ok(CUuserObject(object.handle))
}

fn resolve(handle: CUuserObject) -> Result<Arc<UserObject>> {
    // A real driver crashes on others, or takes them for what was there.
    OBJECTS.get(handle.0).or(INVALID)
}

/// `cuUserObjectRetain`.
pub(crate) fn retain(handle: CUuserObject, count: u32) -> Result {
    let count = check_count(count)?;
    resolve(handle)?.add(count);
    Ok(())
}

/// `cuUserObjectRelease`.
pub(crate) fn release(handle: CUuserObject, count: u32) -> Result {
    let count = check_count(count)?;
    resolve(handle)?.take(count);
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
    let object = resolve(handle)?;
    if flags & MOVE == 0 {
        object.add(count);
    }
    let fresh = Reference { object, count: 0 };
    references.entry(handle.0).or_insert(fresh).count += count;
    Ok(())
}

/// `cuGraphReleaseUserObject`: takes references from a graph, and the rest from others. The caller
/// drops what is given when it has let go of locks.
pub(crate) fn release_from(
    references: &mut References,
    handle: CUuserObject,
    count: u32,
) -> Result<Reference> {
    let count = check_count(count)?;
    let object = resolve(handle)?;
    if let Some(held) = references.get_mut(&handle.0) {
        held.count = held.count.saturating_sub(count);
        if held.count == 0 {
            references.remove(&handle.0);
        }
    }
    Ok(Reference { object, count })
}
