//! Memory of one device's pools in the streams, kernels and copies of the other.

use super::pool::{default_pool, pool_of, set};
use super::{enable, new_context_of, reads, synchronizes};
use crate::conformance::api::*;
use crate::conformance::case::{Case, Line, two_devices};
use crate::conformance::fixture::*;
use crate::conformance::sides::Side;
use crate::graphs::api::*;

/// A word of a pool, allocated in a side's stream and filled.
pub unsafe fn word_of(pool: Handle, side: &Side) -> u64 {
    let mut address = 0;
    side.enter();
    cuMemAllocFromPoolAsync(&mut address, 4, pool, side.stream).must();
    cuMemsetD32Async(address, 7, 1, side.stream).must();
    cuStreamSynchronize(side.stream).must();
    address
}

/// Writes down the device and the pool of an address.
unsafe fn of(line: &mut Line, what: &str, address: u64, pool: Handle) {
    let (mut device, mut found) = (-7, 0usize);
    line.gives(
        format!("{what}_device"),
        cuPointerGetAttribute(void(&mut device), 9, address),
        device,
    );
    line.gives(
        format!("{what}_pool"),
        cuPointerGetAttribute(void(&mut found), 17, address),
        found == pool,
    );
}

pub const CASES: &[Case] = &[
    two_devices!("peer/pool_use/alloc_in_its_stream", |line, zero, one| {
        // The stream says which device's pool it is.
        let mut address = 0;
        line.says_as("alloc", cuMemAllocAsync(&mut address, 64, one.stream));
        of(line, "it", address, default_pool(1));
        line.says_as("free", cuMemFreeAsync(address, one.stream));
        synchronizes(line, [zero, one]);
    }),
    two_devices!("peer/pool_use/alloc_from_its_pool", |line, zero, one| {
        let mut address = 0;
        line.says_as(
            "default",
            cuMemAllocFromPoolAsync(&mut address, 64, default_pool(1), zero.stream),
        );
        of(line, "default", address, default_pool(1));
        line.says_as("free_default", cuMemFreeAsync(address, zero.stream));
        let pool = pool_of(1);
        line.says_as(
            "made",
            cuMemAllocFromPoolAsync(&mut address, 64, pool, zero.stream),
        );
        of(line, "made", address, pool);
        line.says_as("fill", cuMemsetD32Async(address, 7, 1, zero.stream));
        line.says_as("free_made", cuMemFreeAsync(address, zero.stream));
        synchronizes(line, [zero, one]);
    }),
    two_devices!("peer/pool_use/free_in_its_stream", |line, zero, one| {
        let address = word_of(default_pool(0), zero);
        one.enter();
        line.says_as("free", cuMemFreeAsync(address, one.stream));
        line.says_as("free_twice", cuMemFreeAsync(address, zero.stream));
        let address = word_of(default_pool(0), zero);
        line.says_as("zero_current", cuMemFreeAsync(address, one.stream));
        let address = word_of(default_pool(0), zero);
        one.enter();
        line.says_as("null_stream", cuMemFreeAsync(address, 0));
        let address = word_of(default_pool(0), zero);
        one.enter();
        line.says_as("plain", cuMemFree_v2(address));
        synchronizes(line, [zero, one]);
    }),
    two_devices!("peer/pool_use/kernel_without_access", |line, zero, one| {
        let address = word_of(pool_of(0), zero);
        line.says_as("store", one.store(address, 5));
        synchronizes(line, [zero, one]);
        zero.enter();
        reads(line, "value", address);
    }),
    two_devices!(
        "peer/pool_use/kernel_with_peer_access_only",
        |line, zero, one| {
            let address = word_of(default_pool(0), zero);
            enable(one, zero);
            line.says_as("store", one.store(address, 5));
            synchronizes(line, [zero, one]);
        }
    ),
    two_devices!("peer/pool_use/kernel_with_access", |line, zero, one| {
        let pool = pool_of(0);
        let before = word_of(pool, zero);
        line.says_as("set", set(pool, 1, 3));
        let after = word_of(pool, zero);
        line.says_as("store_before", one.store(before, 5));
        line.says_as("store_after", one.store(after, 6));
        zero.enter();
        reads(line, "before", before);
        reads(line, "after", after);
    }),
    two_devices!(
        "peer/pool_use/kernel_after_revocation",
        |line, zero, one| {
            let pool = pool_of(0);
            line.says_as("set", set(pool, 1, 3));
            let address = word_of(pool, zero);
            line.says_as("store", one.store(address, 5));
            line.says_as("revoke", set(pool, 1, 0));
            line.says_as("store_after", one.store(address, 6));
            synchronizes(line, [zero, one]);
            zero.enter();
            reads(line, "value", address);
        }
    ),
    two_devices!(
        "peer/pool_use/another_context_of_the_device",
        |line, zero, one| {
            // Pools give access to devices, not to contexts.
            let address = word_of(pool_of(0), zero);
            new_context_of(0);
            let (store, stream) = (function(c"store"), stream());
            let (mut to, mut value) = (address, 5u32);
            let mut arguments = [void(&mut to), void(&mut value)];
            line.says_as("launch", launch(store, 1, 1, stream, &mut arguments));
            line.says_as("end", cuStreamSynchronize(stream));
            synchronizes(line, [zero, one]);
            reads(line, "value", address);
        }
    ),
    two_devices!("peer/pool_use/copies_without_access", |line, zero, one| {
        let address = word_of(pool_of(0), zero);
        one.enter();
        line.says_as("dtod", cuMemcpyDtoD_v2(one.word, address, 4));
        reads(line, "value", one.word);
        line.says_as(
            "peer",
            cuMemcpyPeer(one.word, one.context, address, zero.context, 4),
        );
        line.says_as(
            "async",
            cuMemcpyDtoDAsync_v2(address, one.word, 4, one.stream),
        );
        line.says_as("end", cuStreamSynchronize(one.stream));
        reads(line, "read", address);
        line.says_as("fill", cuMemsetD32_v2(address, 8, 1));
        line.says_as("fill_async", cuMemsetD32Async(address, 9, 1, one.stream));
        synchronizes(line, [zero, one]);
    }),
    two_devices!("peer/pool_use/copies_with_access", |line, zero, one| {
        let pool = pool_of(0);
        let address = word_of(pool, zero);
        set(pool, 1, 3).must();
        one.enter();
        line.says_as("dtod", cuMemcpyDtoD_v2(one.word, address, 4));
        line.says_as(
            "peer",
            cuMemcpyPeer(one.word, one.context, address, zero.context, 4),
        );
        reads(line, "value", one.word);
        line.says_as("fill", cuMemsetD32_v2(address, 8, 1));
        reads(line, "read", address);
        synchronizes(line, [zero, one]);
    }),
    two_devices!("peer/pool_use/attributes", |line, zero, one| {
        const ACCESS_FLAGS: u32 = 16;
        let pool = pool_of(0);
        let address = word_of(pool, zero);
        let (mut flags, mut context, mut pointer) = (77u32, 77usize, 0u64);
        for (what, wish) in [("without", 0), ("with", 3)] {
            set(pool, 1, wish).must();
            for (side, current) in [(zero, "zero"), (one, "one")] {
                side.enter();
                line.gives(
                    format!("{what}_{current}_flags"),
                    cuPointerGetAttribute(void(&mut flags), ACCESS_FLAGS, address),
                    flags,
                );
                line.gives(
                    format!("{what}_{current}_context"),
                    cuPointerGetAttribute(void(&mut context), 1, address),
                    context,
                );
                line.gives(
                    format!("{what}_{current}_pointer"),
                    cuPointerGetAttribute(void(&mut pointer), 3, address),
                    pointer == address,
                );
            }
        }
    }),
    two_devices!(
        "peer/pool_use/outlives_the_stream_s_context",
        |line, zero, one| {
            // Memory of the first device, allocated in a stream of the second device; that stream's
            // context ends.
            let made = new_context_of(1);
            let (its, pool, mut address) = (stream(), pool_of(0), 0);
            cuMemAllocFromPoolAsync(&mut address, 4, pool, its).must();
            cuStreamSynchronize(its).must();
            line.says_as("destroy", cuCtxDestroy_v2(made));
            zero.enter();
            of(line, "it", address, pool);
            line.says_as("fill", cuMemsetD32_v2(address, 7, 1));
            reads(line, "value", address);
            line.says_as("store", zero.store(address, 8));
            line.says_as("free", cuMemFreeAsync(address, zero.stream));
            synchronizes(line, [zero, one]);
        }
    ),
    two_devices!(
        "peer/pool_use/outlives_its_device_s_reset",
        |line, zero, one| {
            let pool = pool_of(1);
            let mut address = 0;
            cuMemAllocFromPoolAsync(&mut address, 4, pool, zero.stream).must();
            set(pool, 0, 3).must();
            line.says_as("reset", cuDevicePrimaryCtxReset_v2(1));
            of(line, "it", address, pool);
            line.says_as("fill", cuMemsetD32_v2(address, 8, 1));
            line.says_as("free", cuMemFreeAsync(address, zero.stream));
            line.says_as("end", cuStreamSynchronize(zero.stream));
            line.value("had_stream", one.stream != 0);
        }
    ),
    two_devices!("peer/pool_use/reuse_across_streams", |line, zero, one| {
        // What the other device's stream frees is there again once that was waited for.
        let pool = pool_of(0);
        let first = word_of(pool, zero);
        line.says_as("free", cuMemFreeAsync(first, one.stream));
        line.says_as("end", cuStreamSynchronize(one.stream));
        let second = word_of(pool, zero);
        line.value("same", first == second);
    }),
    two_devices!(
        "peer/pool_use/peer_copies_without_access",
        |line, zero, one| {
            // Which context's device must have access: the named, the stream's or the current one.
            let address = word_of(pool_of(0), zero);
            let (a, b) = (zero.context, one.context);
            for (side, current) in [(zero, "zero"), (one, "one")] {
                side.enter();
                for (what, to, from) in [
                    ("right", b, a),
                    ("swapped", a, b),
                    ("both_zero", a, a),
                    ("both_one", b, b),
                    ("null_from", b, 0),
                    ("null_both", 0, 0),
                ] {
                    line.says_as(
                        format!("{current}_{what}"),
                        cuMemcpyPeer(one.word, to, address, from, 4),
                    );
                }
                for (what, stream) in [("zero_stream", zero.stream), ("one_stream", one.stream)] {
                    line.says_as(
                        format!("{current}_{what}"),
                        cuMemcpyDtoDAsync_v2(one.word, address, 4, stream),
                    );
                }
            }
            synchronizes(line, [zero, one]);
        }
    ),
    two_devices!("peer/pool_use/nodes_without_access", |line, zero, one| {
        let address = word_of(pool_of(0), zero);
        one.enter();
        let graph = graph();
        let (copy, fill) = (line_copy(one.word, address, 4), word_fill(address, 9));
        for (what, context) in [("one", one.context), ("zero", zero.context)] {
            line.says_as(
                format!("copy_{what}"),
                cuGraphAddMemcpyNode(&mut 0, graph, NONE, 0, &copy, context),
            );
            line.says_as(
                format!("fill_{what}"),
                cuGraphAddMemsetNode(&mut 0, graph, NONE, 0, &fill, context),
            );
        }
        line.value("nodes", nodes(graph).len());
        super::super::graph_run::runs(line, "run", graph);
        synchronizes(line, [zero, one]);
    }),
    two_devices!("peer/pool_use/range", |line, zero, one| {
        let pool = pool_of(0);
        let address = word_of(pool, zero);
        one.enter();
        for (what, wish) in [("without", 0), ("with", 3)] {
            set(pool, 1, wish).must();
            let (mut base, mut size) = (0, 0);
            line.gives(
                what,
                cuMemGetAddressRange_v2(&mut base, &mut size, address),
                base == address,
            );
        }
    }),
];
