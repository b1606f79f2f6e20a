//! A CUDA user object whose payload is an `Arc`, for graphs whose handles leave the library.

use std::any::Any;
use std::ffi::c_void;
use std::sync::Arc;

use cudarc::driver::sys::{CUgraph, CUuserObject};

use super::reaper;
use crate::{Result, driver};

/// A user object that holds a clone of an `Arc`, with one reference of ours until it is moved to a
/// graph. Dropped before, it gives that reference up, and with it the payload.
#[derive(Debug)]
pub(crate) struct UserObject {
    raw: CUuserObject,
}

impl UserObject {
    /// Makes one that holds `payload`.
    pub(crate) fn new<T: Any + Send + Sync>(payload: Arc<T>) -> Result<UserObject> {
        // The thread runs by now, so that a destructor need not start it.
        reaper::queue();
        let payload = Arc::into_raw(payload);
        match driver::graph::create_user_object(payload.cast_mut().cast(), destroy::<T>) {
            Ok(raw) => Ok(UserObject { raw }),
            Err(error) => {
                // SAFETY: the driver did not take the pointer, which `into_raw` made above.
                drop(unsafe { Arc::from_raw(payload) });
                Err(error)
            }
        }
    }

    /// Moves it to `graph`, which holds it from then on.
    pub(crate) fn give_to(self, graph: CUgraph) -> Result<()> {
        driver::graph::move_user_object(graph, self.raw)?;
        std::mem::forget(self);
        Ok(())
    }
}

impl Drop for UserObject {
    fn drop(&mut self) {
        driver::log_leak(
            "a user object",
            driver::graph::release_user_object(self.raw),
        );
    }
}

/// The driver's last reference is gone.
///
/// # Safety
///
/// `payload` came from `Arc::<T>::into_raw` and is given once.
unsafe extern "C" fn destroy<T: Any + Send + Sync>(payload: *mut c_void) {
    // SAFETY: by this function's contract, which `UserObject::new` keeps.
    let payload = unsafe { Arc::from_raw(payload.cast_const().cast::<T>()) };
    // A panic must not cross into the driver: boxing and sending have none but for lack of memory,
    // which aborts.
    reaper::run_after(None, || drop(payload));
}
