//! Event record and wait nodes.
//!
//! A launch decides at the call what its events mean, as a stream does: a record node's event is
//! from then on what that node will reach, and a wait node waits for what its event was when the
//! launch came to it, in an order that the edges allow.

use std::sync::Arc;

use crate::driver::event::Event;

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
}
