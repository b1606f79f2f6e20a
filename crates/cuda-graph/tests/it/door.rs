//! A host operation that can be made to wait, so that a launch is in flight for as long as a test
//! needs.

use std::sync::{Arc, Condvar, Mutex};
use std::time::Duration;

use cuda_graph::HostOp;

/// Open until it is closed. Whoever runs into it closed waits.
#[derive(Default)]
pub struct Door {
    state: Mutex<State>,
    changed: Condvar,
}

#[derive(Default)]
struct State {
    closed: bool,
    waiting: u32,
}

const LONG: Duration = Duration::from_secs(20);

impl Door {
    /// An operation that passes through.
    pub fn op(self: &Arc<Door>) -> HostOp {
        let door = self.clone();
        HostOp::new(move || {
            let mut state = door.state.lock().expect("no holder panics");
            state.waiting += 1;
            door.changed.notify_all();
            // A test that fails elsewhere must not wait here for good.
            let closed = |state: &mut State| state.closed;
            let waited = door.changed.wait_timeout_while(state, LONG, closed);
            waited.expect("no holder panics").0.waiting -= 1;
        })
    }

    pub fn close(&self) {
        self.state.lock().expect("no holder panics").closed = true;
    }

    pub fn open(&self) {
        self.state.lock().expect("no holder panics").closed = false;
        self.changed.notify_all();
    }

    /// Waits until a launch stands before the closed door.
    #[track_caller]
    pub fn until_someone_waits(&self) {
        let state = self.state.lock().expect("no holder panics");
        let nobody = |state: &mut State| state.waiting == 0;
        let waited = self.changed.wait_timeout_while(state, LONG, nobody);
        assert!(
            !waited.expect("no holder panics").1.timed_out(),
            "the launch never started"
        );
    }
}
