//! Waiting for an event.

use std::fmt;

use cudarc::driver::sys::{
    CUDA_EVENT_WAIT_NODE_PARAMS, CUgraphNode, CUgraphNodeParams, CUgraphNodeType,
};

use super::record_event::EventHandle;
use super::{Tag, tagged};
use crate::{Owner, Result, driver};

/// Waits for an event's last record when its node runs.
#[derive(Clone)]
pub struct WaitEventOp {
    event: EventHandle,
    pub(super) tag: Tag,
}

tagged!(WaitEventOp);

impl WaitEventOp {
    /// Waits for `event`.
    #[track_caller]
    pub fn new(event: impl Into<EventHandle>) -> WaitEventOp {
        WaitEventOp {
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
        let mut params = driver::node::blank(CUgraphNodeType::CU_GRAPH_NODE_TYPE_WAIT_EVENT);
        // SAFETY: plain data for which zero is a value of every field.
        let mut wait: CUDA_EVENT_WAIT_NODE_PARAMS = unsafe { std::mem::zeroed() };
        wait.event = self.event.raw();
        params.__bindgen_anon_1.eventWait = wait;
        call(&mut params)
    }

    pub(super) fn read(node: CUgraphNode) -> Result<WaitEventOp> {
        Ok(WaitEventOp {
            event: EventHandle::unowned(driver::node::awaited_event(node)?),
            tag: Tag::default(),
        })
    }
}

impl fmt::Debug for WaitEventOp {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "WaitEventOp for {:?} made at {:?}", self.event, self.tag)
    }
}
