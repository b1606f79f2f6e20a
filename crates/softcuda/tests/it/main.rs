//! The integration tests of `softcuda`, in one binary that also travels to a GPU machine: it needs
//! nothing there but the driver.

mod cache;
mod capture;
mod conformance;
mod devices;
mod driver;
mod execution;
mod graphs;
mod install;
mod interprocess;
mod kernels;
mod misbehaving;
mod numbers;
