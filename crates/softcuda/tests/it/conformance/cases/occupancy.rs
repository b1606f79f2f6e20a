//! Occupancy, of kernels whose registers do not limit it.

use std::ptr::null_mut;

use crate::conformance::api::*;
use crate::conformance::case::{Case, case};
use crate::conformance::fixture::*;
use crate::conformance::structs::{LaunchAttribute, LaunchAttributeValue, LaunchConfig};

fn clusters_of(size: u32, attributes: &mut Vec<LaunchAttribute>) -> LaunchConfig {
    let value = LaunchAttributeValue([u64::from(size) | 1 << 32, 1, 0, 0, 0, 0, 0, 0]);
    attributes.push(LaunchAttribute {
        id: 4,
        padding: 0,
        value,
    });
    LaunchConfig {
        grid: [size * 4, 1, 1],
        block: [128, 1, 1],
        shared_bytes: 0,
        stream: 0,
        attributes: attributes.as_ptr(),
        attribute_count: attributes.len() as u32,
    }
}

unsafe extern "C" fn sixteen_per_thread(threads: i32) -> usize {
    threads as usize * 16
}

pub const CASES: &[Case] = &[
    case!("occupancy/blocks", |line| {
        context();
        let (function, mut blocks) = (function(c"empty"), -7);
        for threads in [1, 31, 32, 33, 64, 96, 128, 192, 256, 512, 768, 1024] {
            let answer =
                cuOccupancyMaxActiveBlocksPerMultiprocessor(&mut blocks, function, threads, 0);
            line.gives(threads, answer, blocks);
        }
    }),
    case!("occupancy/blocks/shared", |line| {
        context();
        let (function, mut blocks) = (function(c"empty"), -7);
        for shared in [1, 1024, 4096, 10_000, 16384, 49152, 49153] {
            let answer =
                cuOccupancyMaxActiveBlocksPerMultiprocessor(&mut blocks, function, 128, shared);
            line.gives(shared, answer, blocks);
        }
        cuFuncSetAttribute(function, 8, 232_448).must();
        for shared in [49153, 65536, 100_000, 232_448, 232_449] {
            let answer =
                cuOccupancyMaxActiveBlocksPerMultiprocessor(&mut blocks, function, 128, shared);
            line.gives(format!("raised_{shared}"), answer, blocks);
        }
        let function = self::function(c"static_shared");
        for shared in [0, 1024, 48128, 48129] {
            let answer =
                cuOccupancyMaxActiveBlocksPerMultiprocessor(&mut blocks, function, 128, shared);
            line.gives(format!("static_{shared}"), answer, blocks);
        }
    }),
    case!("occupancy/blocks/wrong", |line| {
        context();
        let (function, mut blocks) = (function(c"empty"), -7);
        for threads in [0, -1, 1025, 2048] {
            let answer =
                cuOccupancyMaxActiveBlocksPerMultiprocessor(&mut blocks, function, threads, 0);
            line.gives(threads, answer, blocks);
        }
        line.says_as(
            "null_out",
            cuOccupancyMaxActiveBlocksPerMultiprocessor(null_mut(), function, 128, 0),
        );
        line.says_as(
            "null_function",
            cuOccupancyMaxActiveBlocksPerMultiprocessor(&mut blocks, 0, 128, 0),
        );
        for flags in [0, 1, 2] {
            let answer = cuOccupancyMaxActiveBlocksPerMultiprocessorWithFlags(
                &mut blocks,
                function,
                128,
                1024,
                flags,
            );
            line.gives(format!("flags_{flags}"), answer, blocks);
        }
        let bounded = self::function(c"at_most_128");
        line.gives(
            "bounded",
            cuOccupancyMaxActiveBlocksPerMultiprocessor(&mut blocks, bounded, 256, 0),
            blocks,
        );
    }),
    case!("occupancy/block_size", |line| {
        context();
        let (function, mut grid, mut block) = (function(c"empty"), 0, 0);
        for limit in [0, 100, 256, 1024, 5000] {
            let answer =
                cuOccupancyMaxPotentialBlockSize(&mut grid, &mut block, function, None, 0, limit);
            line.gives(format!("limit_{limit}"), answer, block);
        }
        let answer = cuOccupancyMaxPotentialBlockSize(
            &mut grid,
            &mut block,
            function,
            Some(sixteen_per_thread),
            0,
            0,
        );
        line.gives("by_function", answer, block);
        let answer =
            cuOccupancyMaxPotentialBlockSize(&mut grid, &mut block, function, None, 40_000, 0);
        line.gives("shared", answer, block);
        let answer =
            cuOccupancyMaxPotentialBlockSize(&mut grid, &mut block, function, None, 1 << 20, 0);
        line.gives("shared_too_large", answer, block);
        let bounded = self::function(c"at_most_128");
        let answer = cuOccupancyMaxPotentialBlockSize(&mut grid, &mut block, bounded, None, 0, 0);
        line.gives("bounded", answer, block);
        line.says_as(
            "null_grid",
            cuOccupancyMaxPotentialBlockSize(null_mut(), &mut block, function, None, 0, 0),
        );
        line.says_as(
            "null_block",
            cuOccupancyMaxPotentialBlockSize(&mut grid, null_mut(), function, None, 0, 0),
        );
        line.says_as(
            "null_function",
            cuOccupancyMaxPotentialBlockSize(&mut grid, &mut block, 0, None, 0, 0),
        );
        line.says_as(
            "limit_negative",
            cuOccupancyMaxPotentialBlockSize(&mut grid, &mut block, function, None, 0, -1),
        );
    }),
    case!("occupancy/shared_left", |line| {
        context();
        let (function, mut bytes) = (function(c"empty"), 0);
        for (blocks, threads) in [
            (1, 128),
            (2, 128),
            (4, 128),
            (8, 256),
            (16, 128),
            (32, 64),
            (33, 64),
            (0, 128),
            (1, 1025),
        ] {
            let answer =
                cuOccupancyAvailableDynamicSMemPerBlock(&mut bytes, function, blocks, threads);
            line.gives(format!("{blocks}x{threads}"), answer, bytes);
        }
        line.says_as(
            "null_out",
            cuOccupancyAvailableDynamicSMemPerBlock(null_mut(), function, 1, 128),
        );
        let answer = cuOccupancyAvailableDynamicSMemPerBlock(
            &mut bytes,
            self::function(c"static_shared"),
            1,
            128,
        );
        line.gives("static", answer, bytes);
    }),
    case!("occupancy/clusters", |line| {
        context();
        let (function, mut count) = (function(c"empty"), -7);
        for size in [1, 2, 8, 16] {
            let mut attributes = Vec::new();
            let config = clusters_of(size, &mut attributes);
            let answer = cuOccupancyMaxActiveClusters(&mut count, function, &config);
            // How many fit depends on how many multiprocessors the device has.
            line.gives(size, answer, count > 0);
        }
        let config = clusters_of(1, &mut Vec::with_capacity(1));
        let plain = LaunchConfig {
            attributes: std::ptr::null(),
            attribute_count: 0,
            ..config
        };
        line.says_as(
            "no_cluster",
            cuOccupancyMaxActiveClusters(&mut count, function, &plain),
        );
        line.gives(
            "largest",
            cuOccupancyMaxPotentialClusterSize(&mut count, function, &plain),
            count,
        );
        cuFuncSetAttribute(function, 14, 1).must();
        line.gives(
            "largest_allowed",
            cuOccupancyMaxPotentialClusterSize(&mut count, function, &plain),
            count,
        );
        line.says_as(
            "null_out",
            cuOccupancyMaxActiveClusters(null_mut(), function, &plain),
        );
        line.says_as(
            "null_config",
            cuOccupancyMaxActiveClusters(&mut count, function, std::ptr::null()),
        );
    }),
];
