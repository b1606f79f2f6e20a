//! Kernels of one thread, and a wide one that does as little, as operations.

use std::sync::Arc;

use cuda_graph::cudarc::driver::{CudaContext, LaunchConfig};
use cuda_graph::{Buffer, Kernel, KernelOp, Module, Result};

pub const HEADER: &str = ".version 8.0\n.target sm_70\n.address_size 64\n\n";

/// The blocks of the wide kernel, the multiprocessors of an H200, and the threads of one.
const BLOCKS: usize = 132;
const THREADS: usize = 256;

pub fn launch(blocks: usize, threads: usize) -> LaunchConfig {
    LaunchConfig {
        grid_dim: (blocks as u32, 1, 1),
        block_dim: (threads as u32, 1, 1),
        shared_mem_bytes: 0,
    }
}

/// The kernels of `tiny.ptx`, loaded.
pub struct Tiny {
    step: Kernel,
    gather: Kernel,
    count_down: Kernel,
    wide: Kernel,
}

impl Tiny {
    pub fn load(context: &Arc<CudaContext>) -> Result<Tiny> {
        let module = Module::load(context, [HEADER, include_str!("tiny.ptx")].concat())?;
        Ok(Tiny {
            step: module.kernel("step")?,
            gather: module.kernel("gather")?,
            count_down: module.kernel("count_down")?,
            wide: module.kernel("wide")?,
        })
    }

    /// The first word of `to` becomes 5 times itself + `number`.
    #[track_caller]
    pub fn step(&self, to: &Buffer<u32>, number: u32) -> Result<KernelOp> {
        assert!(!to.is_empty());
        // SAFETY: these are the kernel's parameters; its thread has one word.
        unsafe { KernelOp::new(&self.step, launch(1, 1), (to, number)) }
    }

    /// The first word of `to` becomes 5 times itself + that of `from`, which is counted up.
    #[track_caller]
    pub fn gather(&self, to: &Buffer<u32>, from: &Buffer<u32>) -> Result<KernelOp> {
        assert!(!to.is_empty() && !from.is_empty());
        // SAFETY: these are the kernel's parameters; its thread has one word of each.
        unsafe { KernelOp::new(&self.gather, launch(1, 1), (to, from)) }
    }

    /// A flag is counted down, and turns are counted up.
    #[track_caller]
    pub fn count_down(&self, flag: &Buffer<u32>, turns: &Buffer<u32>) -> Result<KernelOp> {
        assert!(!flag.is_empty() && !turns.is_empty());
        // SAFETY: these are the kernel's parameters; its thread has one word of each.
        unsafe { KernelOp::new(&self.count_down, launch(1, 1), (flag, turns)) }
    }

    /// Each word becomes 5 times itself + `number`; each block has as many of them. Words that are
    /// left over stay.
    #[track_caller]
    pub fn wide(&self, data: &Buffer<u32>, number: u32) -> Result<KernelOp> {
        let part = data.len() / BLOCKS;
        assert!(part <= THREADS, "a thread has a word");
        let arguments = (data, part as u32, number);
        // SAFETY: these are the kernel's parameters; the blocks' parts are within the buffer.
        unsafe { KernelOp::new(&self.wide, launch(BLOCKS, THREADS), arguments) }
    }
}
