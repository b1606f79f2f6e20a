//! Recording an event.

use std::fmt;
use std::sync::Arc;

use cudarc::driver::CudaEvent;
use cudarc::driver::sys::{
    CUDA_EVENT_RECORD_NODE_PARAMS, CUevent, CUgraphNode, CUgraphNodeParams, CUgraphNodeType,
};

use super::{Tag, tagged};
use crate::{Owner, Result, driver};

/// An event, kept alive or read from a node.
#[derive(Clone)]
pub struct EventHandle {
    raw: CUevent,
    pub(super) owner: Option<Owner>,
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

    pub(super) fn unowned(raw: CUevent) -> EventHandle {
        EventHandle { raw, owner: None }
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

/// Records an event when its node runs.
#[derive(Clone)]
pub struct RecordEventOp {
    event: EventHandle,
    pub(super) tag: Tag,
}

tagged!(RecordEventOp);

impl RecordEventOp {
    /// Records `event`.
    #[track_caller]
    pub fn new(event: impl Into<EventHandle>) -> RecordEventOp {
        RecordEventOp {
            event: event.into(),
            tag: Tag::here(),
        }
    }

    /// The event.
    pub fn event(&self) -> &EventHandle {
        &self.event
    }

    pub(super) fn owners(&self) -> &[Owner] {
        self.event.owner.as_slice()
    }

    pub(super) fn with_params<R>(&self, call: impl FnOnce(&mut CUgraphNodeParams) -> R) -> R {
        let mut params = driver::node::blank(CUgraphNodeType::CU_GRAPH_NODE_TYPE_EVENT_RECORD);
        // SAFETY: plain data for which zero is a value of every field.
        let mut record: CUDA_EVENT_RECORD_NODE_PARAMS = unsafe { std::mem::zeroed() };
        record.event = self.event.raw;
        params.__bindgen_anon_1.eventRecord = record;
        call(&mut params)
    }

    pub(super) fn read(node: CUgraphNode) -> Result<RecordEventOp> {
        Ok(RecordEventOp {
            event: EventHandle::unowned(driver::node::recorded_event(node)?),
            tag: Tag::default(),
        })
    }
}

impl fmt::Debug for RecordEventOp {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "RecordEventOp of {:?} made at {:?}",
            self.event, self.tag
        )
    }
}
