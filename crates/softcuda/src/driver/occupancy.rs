//! How many blocks of a kernel fit on a multiprocessor of compute capability 9.0, by the rules of
//! the CUDA occupancy calculator. Nothing here limits what runs: it is what programs tune
//! themselves by.

/// Threads of a warp.
const WARP: u32 = 32;
/// The most threads of a block.
pub(crate) const BLOCK_THREADS: u32 = 1024;
/// Warps that a multiprocessor holds.
const WARPS: u32 = 64;
/// Blocks that a multiprocessor holds.
const BLOCKS: u32 = 32;
/// 32-bit registers of a multiprocessor, in four parts that serve a quarter of the warps each.
const REGISTERS: u32 = 65536;
const PARTS: u32 = 4;
/// Registers are given to a warp in units of this many.
const REGISTER_UNIT: u32 = 256;
/// The most registers of a thread.
const THREAD_REGISTERS: u32 = 255;
/// Bytes of shared memory of a multiprocessor.
const SHARED: u64 = 228 << 10;
/// Shared memory is given to a block in units of this many bytes.
const SHARED_UNIT: u64 = 128;
/// Bytes of shared memory that the system takes of each block.
const SHARED_RESERVED: u64 = 1 << 10;
/// The most bytes of shared memory of a block that has asked for more than the default.
pub(crate) const BLOCK_SHARED: u64 = 227 << 10;

/// What a block of a kernel needs.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Needs {
    /// Registers of a thread.
    pub registers: u32,
    /// Bytes of static shared memory.
    pub static_shared: u64,
    /// The most dynamic shared memory it may be launched with.
    pub max_dynamic_shared: u64,
    /// The most threads it may be launched with.
    pub max_threads: u32,
}

impl Needs {
    /// Blocks of `threads` threads, be they more than it may be launched with, with so much dynamic
    /// shared memory that fit on a multiprocessor at once.
    pub fn blocks(&self, threads: u32, dynamic_shared: u64) -> u32 {
        if threads == 0 || threads > BLOCK_THREADS {
            return 0;
        }
        let by_warps = WARPS / warps(threads);
        by_warps
            .min(BLOCKS)
            .min(self.by_registers(threads))
            .min(self.by_shared(dynamic_shared))
    }

    fn by_registers(&self, threads: u32) -> u32 {
        if self.registers > THREAD_REGISTERS {
            return 0;
        }
        let warp = (self.registers * WARP).next_multiple_of(REGISTER_UNIT);
        if warp == 0 {
            return u32::MAX;
        }
        if warp * warps(threads).next_multiple_of(PARTS) > REGISTERS {
            return 0;
        }
        REGISTERS / PARTS / warp * PARTS / warps(threads)
    }

    fn by_shared(&self, dynamic: u64) -> u32 {
        let Some(wanted) = self.static_shared.checked_add(dynamic) else {
            return 0;
        };
        if dynamic > self.max_dynamic_shared || wanted > BLOCK_SHARED {
            return 0;
        }
        (SHARED / (wanted + SHARED_RESERVED).next_multiple_of(SHARED_UNIT)) as u32
    }

    /// The block size with which the most threads fit on a multiprocessor, and how many such blocks
    /// do; the largest such size, up to `limit` where that is not 0. `shared` gives a block size's
    /// dynamic shared memory.
    pub fn best_block(&self, limit: u32, mut shared: impl FnMut(u32) -> u64) -> (u32, u32) {
        let most = self.max_threads.min(BLOCK_THREADS);
        let most = if limit == 0 { most } else { most.min(limit) };
        let (mut best, mut best_blocks) = (0, 0);
        let mut aligned = most.next_multiple_of(WARP);
        while aligned > 0 {
            let threads = aligned.min(most);
            let blocks = self.blocks(threads, shared(threads));
            if threads * blocks > best * best_blocks {
                (best, best_blocks) = (threads, blocks);
            }
            if best * best_blocks == WARPS * WARP {
                break;
            }
            aligned -= WARP;
        }
        (best, best_blocks)
    }

    /// The dynamic shared memory that each of `blocks` blocks of `threads` threads can have when
    /// they share a multiprocessor; `None` where they do not fit at all.
    pub fn shared_left(&self, blocks: u32, threads: u32) -> Option<u64> {
        if blocks == 0 || self.blocks(threads, 0) < blocks {
            return None;
        }
        let each = (SHARED / u64::from(blocks) / SHARED_UNIT * SHARED_UNIT).min(BLOCK_SHARED);
        Some(
            each.saturating_sub(self.static_shared)
                .min(self.max_dynamic_shared),
        )
    }
}

fn warps(threads: u32) -> u32 {
    threads.div_ceil(WARP)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn needs(registers: u32, static_shared: u64) -> Needs {
        Needs {
            registers,
            static_shared,
            max_dynamic_shared: (48 << 10) - static_shared,
            max_threads: 1024,
        }
    }

    #[test]
    fn each_limit_binds() {
        assert_eq!(needs(16, 0).blocks(32, 0), 32, "blocks");
        assert_eq!(needs(16, 0).blocks(256, 0), 8, "warps");
        assert_eq!(needs(64, 0).blocks(256, 0), 4, "registers");
        assert_eq!(needs(255, 0).blocks(512, 0), 0, "registers of one block");
        assert_eq!(needs(16, 0).blocks(32, 48 << 10), 4, "shared memory");
        assert_eq!(
            needs(16, 0).blocks(32, (48 << 10) + 1),
            0,
            "more than the function may have"
        );
        assert_eq!(needs(16, 0).blocks(1025, 0), 0, "threads");
        let bounded = Needs {
            max_threads: 128,
            ..needs(16, 0)
        };
        assert_eq!(bounded.blocks(256, 0), 8, "its own bound does not count");
        assert_eq!(
            bounded.best_block(0, |_| 0).0,
            128,
            "but for the best block"
        );
    }

    #[test]
    fn the_best_block_is_the_largest_of_those_that_fill_it() {
        assert_eq!(needs(16, 0).best_block(0, |_| 0), (1024, 2));
        assert_eq!(needs(16, 0).best_block(100, |_| 0), (64, 32));
        assert_eq!(needs(40, 0).best_block(0, |_| 0).0, 768);
        assert_eq!(
            needs(16, 0).best_block(0, |threads| u64::from(threads) * 200),
            (224, 5)
        );
    }

    #[test]
    fn shared_memory_is_divided() {
        // As an H200 answers.
        for (blocks, threads, left) in [
            (1, 128, 49152),
            (4, 128, 49152),
            (8, 256, 29184),
            (32, 64, 7296),
        ] {
            assert_eq!(needs(16, 0).shared_left(blocks, threads), Some(left));
        }
        let wide = Needs {
            max_dynamic_shared: BLOCK_SHARED,
            ..needs(16, 0)
        };
        assert_eq!(wide.shared_left(1, 128), Some(227 << 10));
        assert_eq!(wide.shared_left(2, 128), Some(114 << 10));
        assert_eq!(wide.shared_left(17, 128), None);
    }
}
