//! A loaded module as the driver and the grid see it.

use crate::grid::context::KernelFn;

/// A kernel in native code.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Compiled {
    /// Its code; lives as long as the module.
    pub entry: KernelFn,
    /// Each thread is a fiber; otherwise `entry` runs a whole block.
    pub fibers: bool,
    /// How many entries [`BlockContext::sites`](crate::grid::context::BlockContext::sites) must have.
    pub sites: u32,
}
