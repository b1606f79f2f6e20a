//! `cuOccupancy*`.

use super::launch::LaunchConfig;
use super::types::CUfunction;
use super::{In, Out, export};
use crate::driver::{CUresult, Result, device, function};

/// `CUoccupancyB2DSize`: a block's dynamic shared memory by its size.
pub type BlockToShared = unsafe extern "C" fn(i32) -> usize;

fn active_blocks(
    count: Out<i32>,
    handle: CUfunction,
    threads: i32,
    shared: usize,
    flags: u32,
) -> Result {
    count.some()?;
    if flags > 1 {
        return Err(CUresult::CUDA_ERROR_INVALID_VALUE);
    }
    let function = function::resolve(handle)?;
    let threads = u32::try_from(threads).ok().filter(|&threads| threads > 0);
    let threads = threads.ok_or(CUresult::CUDA_ERROR_INVALID_VALUE)?;
    count.set(function.needs().blocks(threads, shared as u64) as i32)
}

fn best_block(
    grid: Out<i32>,
    block: Out<i32>,
    handle: CUfunction,
    by_block: Option<BlockToShared>,
    shared: usize,
    limit: i32,
    flags: u32,
) -> Result {
    grid.some()?;
    block.some()?;
    let limit = u32::try_from(limit).map_err(|_| CUresult::CUDA_ERROR_INVALID_VALUE)?;
    if flags > 1 {
        return Err(CUresult::CUDA_ERROR_INVALID_VALUE);
    }
    let function = function::resolve(handle)?;
    let (threads, blocks) = function
        .needs()
        .best_block(limit, |threads| match by_block {
            // SAFETY: the caller passes a function that may be called with any block size.
            Some(by_block) => unsafe { by_block(threads as i32) as u64 },
            None => shared as u64,
        });
    grid.set((blocks * device::multiprocessors()) as i32)?;
    block.set(threads as i32)
}

export! {
    /// Blocks of a kernel that fit on a multiprocessor.
    fn cuOccupancyMaxActiveBlocksPerMultiprocessor(
        count: Out<i32>, handle: CUfunction, threads: i32, shared: usize,
    ) {
        active_blocks(count, handle, threads, shared, 0)
    }

    /// Blocks of a kernel that fit on a multiprocessor.
    fn cuOccupancyMaxActiveBlocksPerMultiprocessorWithFlags(
        count: Out<i32>, handle: CUfunction, threads: i32, shared: usize, flags: u32,
    ) {
        active_blocks(count, handle, threads, shared, flags)
    }

    /// The block size with which a kernel fills a multiprocessor best, and the blocks that fill the
    /// device.
    fn cuOccupancyMaxPotentialBlockSize(
        grid: Out<i32>, block: Out<i32>, handle: CUfunction, by_block: Option<BlockToShared>, shared: usize,
        limit: i32,
    ) {
        best_block(grid, block, handle, by_block, shared, limit, 0)
    }

    /// The block size with which a kernel fills a multiprocessor best, and the blocks that fill the
    /// device.
    fn cuOccupancyMaxPotentialBlockSizeWithFlags(
        grid: Out<i32>, block: Out<i32>, handle: CUfunction, by_block: Option<BlockToShared>, shared: usize,
        limit: i32, flags: u32,
    ) {
        best_block(grid, block, handle, by_block, shared, limit, flags)
    }

    /// The dynamic shared memory that blocks can have when so many share a multiprocessor.
    fn cuOccupancyAvailableDynamicSMemPerBlock(size: Out<usize>, handle: CUfunction, blocks: i32, threads: i32) {
        size.some()?;
        let function = function::resolve(handle)?;
        let (Ok(blocks), Ok(threads)) = (u32::try_from(blocks), u32::try_from(threads)) else {
            return Err(CUresult::CUDA_ERROR_INVALID_VALUE);
        };
        let left = function.needs().shared_left(blocks, threads).ok_or(CUresult::CUDA_ERROR_INVALID_VALUE)?;
        size.set(left as usize)
    }

    /// The most blocks of a cluster.
    fn cuOccupancyMaxPotentialClusterSize(size: Out<i32>, handle: CUfunction, config: In<LaunchConfig>) {
        size.some()?;
        config.get()?.decode()?;
        size.set(function::resolve(handle)?.settings().max_cluster() as i32)
    }

    /// Clusters that fit on the device.
    fn cuOccupancyMaxActiveClusters(count: Out<i32>, handle: CUfunction, config: In<LaunchConfig>) {
        count.some()?;
        let config = config.get()?.decode()?;
        let function = function::resolve(handle)?;
        let set = function.settings().cluster();
        let cluster = config.cluster.or(set).unwrap_or([1; 3]);
        let size: u64 = cluster.iter().map(|&blocks| u64::from(blocks)).product();
        if size == 0 || size > u64::from(function.settings().max_cluster()) {
            return Err(CUresult::CUDA_ERROR_INVALID_CLUSTER_SIZE);
        }
        let threads = config.block.iter().product();
        let each = function.needs().blocks(threads, config.dynamic_shared.into());
        count.set((u64::from(each) * u64::from(device::multiprocessors()) / size) as i32)
    }
}
