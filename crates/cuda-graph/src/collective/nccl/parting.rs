//! Letting NCCL's communicators go, on threads of their own: that may wait for graphs, or for other
//! ranks.
//!
//! A program that ends while NCCL destroys a communicator crashes: its libraries go first. So the
//! end of the program waits for the threads here, for a while, and none begins after that. One of
//! them ends what ranks are still in: the driver would wait for their kernels for ever.

use std::ffi::c_int;
use std::sync::{Condvar, Mutex, MutexGuard, Once, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use crate::retain::contain;

/// How long the end of the program waits.
const PATIENCE: Duration = Duration::from_secs(5);

struct Threads {
    running: usize,
    /// The program ends: what is still there stays.
    ends: bool,
}

static THREADS: Mutex<Threads> = Mutex::new(Threads {
    running: 0,
    ends: false,
});
static CHANGED: Condvar = Condvar::new();

fn threads() -> MutexGuard<'static, Threads> {
    THREADS.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Has the end of the program call [`wait`], once.
pub(super) fn heed_the_end() {
    unsafe extern "C" {
        fn atexit(call: extern "C" fn()) -> c_int;
    }
    static REGISTERED: Once = Once::new();
    // After NCCL and the driver were loaded, so that it is called before theirs.
    // SAFETY: the function is there for as long as the program, and does not unwind.
    REGISTERED.call_once(|| _ = unsafe { atexit(wait) });
}

/// Runs `part` on a thread, unless the program ends.
pub(super) fn begin(part: impl FnOnce() + Send + 'static) {
    let mut all = threads();
    if all.ends {
        return;
    }
    all.running += 1;
    drop(all);
    /// Also after a panic, and if there is no thread.
    struct Over;
    impl Drop for Over {
        fn drop(&mut self) {
            threads().running -= 1;
            CHANGED.notify_all();
        }
    }
    let over = Over;
    let spawned = thread::Builder::new().spawn(move || {
        let _over = over;
        part();
    });
    if let Err(error) = spawned {
        tracing::error!("no thread to let a communicator of NCCL's go, so it is leaked: {error}");
    }
}

/// Waits until no thread runs, at most for [`PATIENCE`]. No other begins afterwards.
extern "C" fn wait() {
    // On a thread: another may wait for other ranks inside NCCL, and hold what this needs. A panic
    // would end the program as a crash.
    contain("the end of the program", || begin(super::end_what_waits));
    let end = Instant::now() + PATIENCE;
    let mut all = threads();
    while all.running > 0 {
        let left = end.saturating_duration_since(Instant::now());
        if left.is_zero() {
            break;
        }
        let waited = CHANGED.wait_timeout(all, left);
        (all, _) = waited.unwrap_or_else(PoisonError::into_inner);
    }
    all.ends = true;
}
