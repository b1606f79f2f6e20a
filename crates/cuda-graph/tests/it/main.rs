//! The library's tests, on whatever device there is.

mod allocations;
mod arguments;
mod attributes;
mod capture;
mod conditions;
mod control;
mod device;
mod devices;
mod door;
mod executables;
mod exit;
mod fixture;
mod graph;
mod injection;
mod lifetimes;
mod map;
mod memory;
mod misuse;
mod operations;
mod pictures;
mod random;
mod raw;
mod resource;
mod solve;
mod sound;
mod updates;
