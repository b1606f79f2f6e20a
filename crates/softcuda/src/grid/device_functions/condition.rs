//! `cudaGraphSetConditional`: conditions, the values that conditional nodes of graphs go by.
//!
//! A kernel reaches the conditions of the graph whose launch it is part of, each by one number or
//! several. Those of other graphs it sets without effect. Out of reach are those of another device,
//! and all of them in a launch of no such graph: so an H200 has it.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};

use super::param;
use crate::grid::block::Block;
use crate::grid::context::{BlockContext, CONTINUE, ThreadContext};
use crate::grid::launch::FaultKind;
use crate::grid::running::{fault, view};
use crate::jit::runtime::runtime;
use crate::memory::Device;

/// A value that kernels set.
#[derive(Debug)]
pub(crate) struct Condition {
    number: u64,
    device: Device,
    value: AtomicU32,
}

impl Condition {
    /// A new one of a device, whose value is zero. No number is given out twice.
    pub fn new(device: Device) -> Arc<Condition> {
        static NEXT: AtomicU64 = AtomicU64::new(1);
        Arc::new(Condition {
            number: NEXT.fetch_add(1, Ordering::Relaxed),
            device,
            value: AtomicU32::new(0),
        })
    }

    /// What kernels know it by.
    pub fn number(&self) -> u64 {
        self.number
    }

    /// Its value.
    pub fn get(&self) -> u32 {
        self.value.load(Ordering::Acquire)
    }

    /// Gives it a value.
    pub fn set(&self, value: u32) {
        self.value.store(value, Ordering::Release);
    }
}

/// The conditions of a graph, sorted by the numbers that its kernels know them by.
#[derive(Debug)]
pub(crate) struct Conditions(Box<[(u64, Arc<Condition>)]>);

impl Conditions {
    /// Those of these numbers; the first of a number counts.
    pub fn new(mut all: Vec<(u64, Arc<Condition>)>) -> Conditions {
        all.sort_by_key(|entry| entry.0);
        all.dedup_by_key(|entry| entry.0);
        Conditions(all.into())
    }

    /// Sets what a number means to a kernel of a device; false where that is out of its reach.
    fn set(&self, number: u64, value: u32, device: Device) -> bool {
        let Ok(place) = self.0.binary_search_by_key(&number, |entry| entry.0) else {
            return true;
        };
        let (_, condition) = &self.0[place];
        let reached = condition.device == device;
        if reached {
            condition.set(value);
        }
        reached
    }
}

runtime! {
    /// `cudaGraphSetConditional(handle, value)`.
    GRAPH_SET_CONDITIONAL = fn graph_set_conditional(
        thread: *mut ThreadContext, block: *mut BlockContext, _returns: *mut u8, params: *const u8,
    ) -> u32 {
        let (handle, value): (u64, u32) = (param(params, 0), param(params, 8));
        let why = match Block::of(block).running().conditions {
            Some(conditions) if conditions.set(handle, value, view(block).device) => return CONTINUE,
            Some(_) => "by a kernel of another device",
            None => "in no launch of a graph with conditions",
        };
        let detail = format!("condition {handle:#x} is set {why}");
        fault(thread, block, FaultKind::IllegalAddress, None, detail)
    }
}
