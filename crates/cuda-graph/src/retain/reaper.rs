//! The thread that drops what the driver gave back.
//!
//! Dropping an owner may call CUDA, which a destructor that the driver runs must not. So destructors send and this thread drops.

use std::any::Any;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::OnceLock;
use std::sync::mpsc::{Sender, channel};
use std::thread;

type Payload = Box<dyn Any + Send>;

fn queue() -> Option<&'static Sender<Payload>> {
    static QUEUE: OnceLock<Option<Sender<Payload>>> = OnceLock::new();
    QUEUE
        .get_or_init(|| {
            let (send, receive) = channel::<Payload>();
            let spawned = thread::Builder::new()
                .name("cuda-graph-reaper".into())
                .spawn(move || {
                    for payload in receive {
                        if catch_unwind(AssertUnwindSafe(|| drop(payload))).is_err() {
                            tracing::error!(
                                "an owner that a graph held panicked when it was dropped"
                            );
                        }
                    }
                });
            match spawned {
                Ok(_) => Some(send),
                Err(error) => {
                    tracing::error!("no thread to drop what graphs held, so it is leaked: {error}");
                    None
                }
            }
        })
        .as_ref()
}

/// Starts the thread, so that a destructor need not.
pub(super) fn start() {
    queue();
}

/// Has `payload` dropped on the reaper's thread.
pub(super) fn drop_later(payload: Payload) {
    match queue() {
        // The thread receives until the process ends.
        Some(queue) => drop(queue.send(payload)),
        None => std::mem::forget(payload),
    }
}
