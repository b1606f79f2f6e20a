//! What processes share: memory, pools and events, by files in memory.
//!
//! A shared thing is a file without a name that holds pages, or an event's state, and behind them a
//! [`Label`](label::Label) that says what it is. A program hands a descriptor of it to another
//! process itself (`cuMemExportToShareableHandle`), or hands over the 64 bytes of an IPC handle,
//! which say where the other process finds the descriptor: both then must see the same `/proc`.
//!
//! Invariant: files that are mapped here cannot shrink, so every page of a mapping can be accessed,
//! whatever the other process does.

pub(crate) mod event;
pub(crate) mod label;
pub(crate) mod memory;
