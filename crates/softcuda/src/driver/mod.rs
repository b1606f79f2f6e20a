//! Contexts, modules, streams, events and memory as Rust objects with the driver's rules.
