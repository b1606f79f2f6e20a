//! What processes share, end to end: the test starts itself again as the other process.
//!
//! On a GPU or in software alike.

#![allow(
    unsafe_op_in_unsafe_fn,
    clippy::undocumented_unsafe_blocks,
    reason = "raw driver calls with right arguments, whose memory outlives the work; each test says what it does"
)]

mod events;
mod memory;
pub(crate) mod peer;

use peer::Role;

use crate::conformance;

/// What a process that a test starts does, by the test's own name for it.
fn roles() -> Vec<(&'static str, Role)> {
    [events::ROLES, memory::ROLES, conformance::ROLES].concat()
}

#[test]
#[ignore = "tests start it as another process"]
fn peer_process() {
    peer::play(&roles());
}
