//! Recording events, and waiting for them.

use std::fmt;
use std::sync::Arc;

use cudarc::driver::sys::{CUevent, CUgraphNode, CUgraphNodeParams, CUgraphNodeType, CUstream};
use cudarc::driver::{CudaContext, CudaEvent};

use super::{Op, Shared, Tag, labelled, shared};
use crate::{Owner, Result, driver};

/// An event, kept alive or read from a node.
#[derive(Clone)]
pub struct EventHandle {
    raw: CUevent,
    owner: Option<Owner>,
}

// SAFETY: an event handle may be used from any thread.
unsafe impl Send for EventHandle {}
// SAFETY: as above.
unsafe impl Sync for EventHandle {}

impl EventHandle {
    /// The driver's handle.
    pub fn raw(&self) -> CUevent {
        self.raw
    }
}

impl From<&Arc<CudaEvent>> for EventHandle {
    fn from(event: &Arc<CudaEvent>) -> EventHandle {
        EventHandle {
            raw: event.cu_event(),
            owner: Some(event.clone()),
        }
    }
}

impl fmt::Debug for EventHandle {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "event {:p}", self.raw)
    }
}

macro_rules! event_operations {
    ($($(#[$doc:meta])* $op:ident: $what:literal, $kind:ident, $node:ident, $member:ident,
       $read:path, $run:path;)+) => {$(
        $(#[$doc])*
        #[derive(Clone)]
        pub struct $op(Arc<Shared<EventHandle>>);

        labelled!($op);

        impl $op {
            #[doc = $what]
            #[track_caller]
            pub fn new(event: impl Into<EventHandle>) -> $op {
                let event = event.into();
                let owner = event.owner.clone();
                $op(Shared::new(event, owner, Tag::here()))
            }

            /// The event.
            pub fn event(&self) -> &EventHandle {
                &self.0.value
            }
        }

        impl Op for $op {
            shared!($kind);

            fn describe(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                write!(f, " of {:?}", self.event())
            }

            fn node_params(&self, _: &CudaContext) -> Result<CUgraphNodeParams> {
                let mut params = driver::node::blank(CUgraphNodeType::$node);
                params.__bindgen_anon_1.$member.event = self.event().raw;
                Ok(params)
            }

            fn run(&self, stream: CUstream) -> Option<Result<()>> {
                Some($run(self.event().raw, stream))
            }

            fn read(node: CUgraphNode) -> Result<$op> {
                let raw = $read(node)?;
                let event = EventHandle { raw, owner: None };
                Ok($op(Shared::new(event, None, Tag::read())))
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
