//! Event record and wait nodes.
//!
//! A launch decides at the call what its events mean, as a stream does: a record node's event is
//! from then on what that node will reach, and a wait node waits for what its event was when the
//! launch came to it, in an order that the edges allow.

use std::sync::Arc;

use crate::driver::event::Event;
use crate::driver::graph::update::Refusal;

/// A node with an event.
#[derive(Clone)]
pub(crate) struct EventNode(Arc<Event>);

impl EventNode {
    /// Of an event.
    pub fn new(event: Arc<Event>) -> EventNode {
        EventNode(event)
    }

    /// The event.
    pub fn event(&self) -> &Arc<Event> {
        &self.0
    }

    /// Another event may take its place, of the same context.
    pub fn check_update(&self, next: &EventNode) -> Result<(), Refusal> {
        match self.0.context().id() == next.0.context().id() {
            true => Ok(()),
            false => Err(Refusal::ParametersChanged),
        }
    }
}
