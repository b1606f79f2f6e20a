//! CUDA user objects, for graphs whose handles leave the library.

use std::ffi::c_void;

use cudarc::driver::sys::CUgraph;

use super::reaper;
use crate::{Result, driver};

/// Has `graph`, and what the driver makes of it from here on, hold `payload`.
pub(crate) fn hold<T: Send + Sync + 'static>(graph: CUgraph, payload: T) -> Result<()> {
    // The thread runs by now, so that a destructor need not start it.
    reaper::queue();
    let payload = Box::into_raw(Box::new(payload));
    let made = driver::graph::create_user_object(payload.cast(), destroy::<T>);
    let object = made.inspect_err(|_| {
        // SAFETY: the driver did not take the pointer, which `into_raw` made above.
        drop(unsafe { Box::from_raw(payload) });
    })?;
    driver::graph::move_user_object(graph, object).inspect_err(|_| {
        // With the only reference goes the payload.
        let released = driver::graph::release_user_object(object);
        driver::log_leak("a user object", released);
    })
}

/// The driver's last reference is gone.
///
/// # Safety
///
/// `payload` came from `Box::<T>::into_raw` and is given once.
unsafe extern "C" fn destroy<T: Send + 'static>(payload: *mut c_void) {
    // SAFETY: by this function's contract, which `hold` keeps.
    let payload = unsafe { Box::from_raw(payload.cast::<T>()) };
    // A panic must not cross into the driver: boxing and sending have none but for lack of memory,
    // which aborts.
    reaper::run_after(None, || drop(payload));
}
