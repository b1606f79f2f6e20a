//! The library's tests, on whatever device there is.

mod device;
mod fixture;
mod graph;
mod injection;
mod lifetimes;
mod misuse;
mod operations;
mod pictures;
mod random;
mod raw;
mod resource;
