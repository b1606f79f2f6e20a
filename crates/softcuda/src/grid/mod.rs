//! A launch, run: blocks, fibers, barriers, warps.

pub(crate) mod context;
pub(crate) mod launch;
