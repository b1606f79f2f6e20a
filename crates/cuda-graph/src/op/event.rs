//! Recording events, and waiting for them.

use std::fmt;
use std::sync::Arc;

use cudarc::driver::sys::{
    CUDA_EVENT_RECORD_NODE_PARAMS, CUDA_EVENT_WAIT_NODE_PARAMS, CUevent, CUgraphNode,
    CUgraphNodeParams, CUgraphNodeType, CUstream,
};
use cudarc::driver::{CudaContext, CudaEvent};

use super::{Op, Tag, labelled, shared_tag};
use crate::error::NodeKind;
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

#[derive(Clone)]
struct Inner {
    event: EventHandle,
    tag: Tag,
}

macro_rules! event_operations {
    ($($(#[$doc:meta])* $op:ident: $what:literal, $params:ident, $node:ident, $kind:ident, $member:ident,
       $read:path, $run:path;)+) => {$(
        $(#[$doc])*
        #[derive(Clone)]
        pub struct $op {
            inner: Arc<Inner>,
        }

        labelled!($op);

        impl $op {
            #[doc = $what]
            #[track_caller]
            pub fn new(event: impl Into<EventHandle>) -> $op {
                $op::of(event.into(), Tag::here())
            }

            fn of(event: EventHandle, tag: Tag) -> $op {
                $op {
                    inner: Arc::new(Inner { event, tag }),
                }
            }

            /// The event.
            pub fn event(&self) -> &EventHandle {
                &self.inner.event
            }
        }

        impl Op for $op {
            shared_tag!(inner);

            fn kind(&self) -> NodeKind {
                NodeKind::$kind
            }

            fn owners(&self) -> &[Owner] {
                self.inner.event.owner.as_slice()
            }

            fn with_params<R>(
                &self,
                _: &CudaContext,
                call: impl FnOnce(&mut CUgraphNodeParams) -> R,
            ) -> Result<R> {
                let mut params = driver::node::blank(CUgraphNodeType::$node);
                // SAFETY: plain data for which zero is a value of every field.
                let mut event: $params = unsafe { std::mem::zeroed() };
                event.event = self.inner.event.raw;
                params.__bindgen_anon_1.$member = event;
                Ok(call(&mut params))
            }

            fn run(&self, stream: CUstream) -> Option<Result<()>> {
                Some($run(self.inner.event.raw, stream))
            }

            fn read(node: CUgraphNode) -> Result<$op> {
                let raw = $read(node)?;
                Ok($op::of(EventHandle { raw, owner: None }, Tag::read()))
            }
        }

        impl fmt::Debug for $op {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                let Inner { event, tag } = &*self.inner;
                write!(f, "{} of {event:?} made at {tag:?}", stringify!($op))
            }
        }
    )+};
}

event_operations! {
    /// Records an event when its node runs.
    RecordEventOp: "Records `event`.", CUDA_EVENT_RECORD_NODE_PARAMS, CU_GRAPH_NODE_TYPE_EVENT_RECORD,
        RecordEvent, eventRecord, driver::node::recorded_event, driver::run::record;
    /// Waits for an event's last record when its node runs.
    WaitEventOp: "Waits for `event`.", CUDA_EVENT_WAIT_NODE_PARAMS, CU_GRAPH_NODE_TYPE_WAIT_EVENT,
        WaitEvent, eventWait, driver::node::awaited_event, driver::run::wait;
}
