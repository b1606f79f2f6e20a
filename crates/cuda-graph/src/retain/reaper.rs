//! The thread that drops what must not be dropped where it was let go: on a thread where CUDA is
//! forbidden, while a launch uses it, or while launches wait for each other.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::sync::{Arc, OnceLock};
use std::thread;
use std::time::Duration;

use cudarc::driver::CudaContext;

use super::fence::Fence;
use super::meeting::{Work, is_idle, when_idle};
use crate::driver;

/// What to do, and when.
pub(super) struct Message {
    work: Box<dyn FnOnce() + Send>,
    when: When,
}

enum When {
    Now,
    Passed(Fence),
    /// No launch is in flight there that others wait for.
    Idle(Arc<CudaContext>),
}

impl When {
    fn has_come(&mut self) -> bool {
        match self {
            When::Now => true,
            When::Passed(fence) => fence.has_passed(),
            When::Idle(context) => is_idle(context),
        }
    }
}

/// How often fences are looked at: soon at first, then less and less.
const SOONEST: Duration = Duration::from_micros(50);
const LATEST: Duration = Duration::from_millis(4);

/// Where the thread gets messages from. The first call starts it.
pub(super) fn queue() -> Option<&'static Sender<Message>> {
    static QUEUE: OnceLock<Option<Sender<Message>>> = OnceLock::new();
    QUEUE
        .get_or_init(|| {
            let (send, receive) = channel();
            let spawned = thread::Builder::new()
                .name("cuda-graph-reaper".into())
                // Asking for an event must not disturb what other threads capture.
                .spawn(move || driver::capture::undisturbed(|| reap(&receive)));
            if let Err(error) = &spawned {
                tracing::error!("no thread to drop what graphs held, so it is leaked: {error}");
            }
            spawned.ok().map(|_| send)
        })
        .as_ref()
}

fn reap(messages: &Receiver<Message>) {
    let mut waiting: Vec<Message> = Vec::new();
    let mut pause = SOONEST;
    loop {
        let idle = waiting.is_empty();
        match messages.recv_timeout(if idle { Duration::MAX } else { pause }) {
            Ok(message) => waiting.push(message),
            Err(RecvTimeoutError::Timeout) => {}
            // The sender lives in a static.
            Err(RecvTimeoutError::Disconnected) => return,
        }
        let has_come = |message: &mut Message| message.when.has_come();
        let over: Vec<Message> = waiting.extract_if(.., has_come).collect();
        pause = if over.is_empty() {
            (pause * 2).min(LATEST)
        } else {
            SOONEST
        };
        for Message { work, when } in over {
            let what = "an owner that a graph held panicked when it was dropped";
            contain(what, || {
                work();
                drop(when);
            });
            PENDING.fetch_sub(1, Ordering::Release);
        }
    }
}

/// Runs `body`. A panic ends here, and is logged as `what`: for code that nothing may unwind out
/// of.
pub(crate) fn contain(what: &str, body: impl FnOnce()) {
    let Err(panic) = catch_unwind(AssertUnwindSafe(body)) else {
        return;
    };
    // What a panic carries may panic in turn when it is dropped, and so may what the program logs
    // with.
    let end = |body: &mut dyn FnMut()| {
        let _ = catch_unwind(AssertUnwindSafe(body)).map_err(std::mem::forget);
    };
    let mut panic = Some(panic);
    end(&mut || drop(panic.take()));
    end(&mut || tracing::error!("{what}"));
}

/// Has `payload` dropped once `fence` has passed.
pub(crate) fn drop_after(fence: Fence, payload: impl Send + 'static) {
    run_after(Some(fence), move || drop(payload));
}

/// How many things are not dropped yet.
static PENDING: AtomicUsize = AtomicUsize::new(0);

/// Waits until everything that was given to the thread so far, and since, is dropped.
pub fn settle() {
    while PENDING.load(Ordering::Acquire) > 0 {
        thread::sleep(SOONEST);
    }
}

/// Runs `work` on the reaper's thread, once the fence has passed if there is one.
pub(crate) fn run_after(after: Option<Fence>, work: impl FnOnce() + Send + 'static) {
    run(after.map_or(When::Now, When::Passed), Box::new(work));
}

/// Does what waits for `context` once that [is idle](when_idle), on the reaper's thread.
pub(super) fn run_when_idle(context: Arc<CudaContext>, work: Work) {
    let when = When::Idle(context.clone());
    run(when, Box::new(move || when_idle(context, work)));
}

fn run(when: When, work: Box<dyn FnOnce() + Send>) {
    PENDING.fetch_add(1, Ordering::Relaxed);
    match queue() {
        // The thread receives until the process ends. Without it nothing could be dropped in time.
        Some(queue) => {
            let _ = queue.send(Message { work, when }).map_err(std::mem::forget);
        }
        None => {
            PENDING.fetch_sub(1, Ordering::Relaxed);
            std::mem::forget((work, when));
        }
    }
}
