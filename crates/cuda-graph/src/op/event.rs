//! Recording events, and waiting for them.

use std::fmt;
use std::sync::Arc;

use cudarc::driver::sys::{CUevent, CUgraphNode, CUgraphNodeParams, CUgraphNodeType, CUstream};
use cudarc::driver::{CudaContext, CudaEvent};

use super::{Op, Shared, Tag, operation, shared};
use crate::{Owner, Result, driver};

#[derive(Clone)]
struct Event(CUevent);

// SAFETY: an event's handle may be used from any thread.
unsafe impl Send for Event {}
// SAFETY: as above.
unsafe impl Sync for Event {}

macro_rules! event_operations {
    ($($(#[$doc:meta])* $op:ident: $what:literal, $kind:ident, $node:ident, $member:ident,
       $read:path, $run:path;)+) => {$(
        operation! {
            $(#[$doc])*
            $op(Event)
        }

        impl $op {
            #[doc = $what]
            #[track_caller]
            pub fn new(event: &Arc<CudaEvent>) -> $op {
                let owner: Owner = event.clone();
                $op(Shared::new(Event(event.cu_event()), [owner], Tag::here()))
            }

            /// The driver's handle of the event.
            pub fn event(&self) -> CUevent {
                self.0.value.0
            }
        }

        impl Op for $op {
            shared!($kind);

            fn describe(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                write!(f, " of event {:p}", self.event())
            }

            fn node_params(&self, _: &CudaContext) -> Result<CUgraphNodeParams> {
                let mut params = driver::node::blank(CUgraphNodeType::$node);
                params.__bindgen_anon_1.$member.event = self.event();
                Ok(params)
            }

            fn is_same(&self, other: &Self) -> bool {
                self.event() == other.event()
            }

            fn run(&self, stream: CUstream) -> Option<Result<()>> {
                Some($run(self.event(), stream))
            }

            fn read(node: CUgraphNode) -> Result<$op> {
                Ok($op(Shared::new(Event($read(node)?), None, Tag::read())))
            }
        }
    )+};
}

event_operations! {
    /// Records an event when its node runs.
    RecordEventOp: "Records `event`.", RecordEvent, CU_GRAPH_NODE_TYPE_EVENT_RECORD, eventRecord,
        driver::node::recorded_event, driver::run::record;
    /// Waits for an event's last record when its node runs.
    WaitEventOp: "Waits for `event`.", WaitEvent, CU_GRAPH_NODE_TYPE_WAIT_EVENT, eventWait,
        driver::node::awaited_event, driver::run::wait;
}
