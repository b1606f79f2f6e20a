//! Stream-ordered allocation and memory pools.

use std::ffi::c_void;
use std::ptr::{null, null_mut};

use crate::conformance::api::*;
use crate::conformance::case::{Case, Line, alone, case};
use crate::conformance::fixture::*;
use crate::conformance::structs::{Access, Location, PoolProperties};

const PINNED_ON_DEVICE: PoolProperties = PoolProperties {
    kind: 1,
    handle_types: 0,
    location: Location { kind: 1, id: 0 },
    win32_attributes: 0,
    max_size: 0,
    usage: 0,
    reserved: [0; 54],
};

unsafe fn new_pool() -> Handle {
    let mut pool = 0;
    cuMemPoolCreate(&mut pool, &PINNED_ON_DEVICE).must();
    pool
}

unsafe fn default_pool() -> Handle {
    let mut pool = 0;
    cuDeviceGetDefaultMemPool(&mut pool, 0).must();
    pool
}

/// Writes a pool's attributes down; sizes that follow the driver's granularity as zero or not.
unsafe fn attributes(line: &mut Line, when: &str, pool: Handle) {
    let mut text = String::new();
    for number in 1..=8u32 {
        let mut value = 0u64;
        let answer = cuMemPoolGetAttribute(pool, number, void(&mut value));
        let value = match number {
            1..=3 => value & 0xffff_ffff,
            5 | 6 => u64::from(value != 0),
            _ => value,
        };
        text += &if answer.code == 0 {
            format!("{value} ")
        } else {
            format!("E{} ", answer.code)
        };
    }
    line.value(when, text.trim_end());
}

pub const CASES: &[Case] = &[
    case!("pool/alloc", |line| {
        context();
        let (stream, mut pointer) = (stream(), 7);
        line.says_as("zero_bytes", cuMemAllocAsync(&mut pointer, 0, stream));
        line.value("zero_gives", if pointer == 0 { "null" } else { "other" });
        line.says_as("null", cuMemAllocAsync(null_mut(), 64, stream));
        line.says_as("too_much", cuMemAllocAsync(&mut pointer, 1 << 44, stream));
        line.says_as(
            "all_ones",
            cuMemAllocAsync(&mut pointer, usize::MAX, stream),
        );
        line.says_as("right", cuMemAllocAsync(&mut pointer, 100, stream));
        line.value("alignment_512", pointer.is_multiple_of(512));
        line.says_as("fill", cuMemsetD8Async(pointer, 1, 100, stream));
        line.says_as("free", cuMemFreeAsync(pointer, stream));
        line.says_as("free_null", cuMemFreeAsync(0, stream));
        line.says_as("free_wild", cuMemFreeAsync(WILD, stream));
        line.says(cuStreamSynchronize(stream));
    }),
    case!("pool/streams", |line| {
        context();
        let mut pointer = 0;
        for (what, stream) in [("null", 0), ("legacy", LEGACY), ("per_thread", PER_THREAD)] {
            line.says_as(
                format!("{what}_alloc"),
                cuMemAllocAsync(&mut pointer, 64, stream),
            );
            line.says_as(format!("{what}_free"), cuMemFreeAsync(pointer, stream));
        }
        line.says(cuCtxSynchronize());
    }),
    alone!("pool/free_mixed", |line| {
        context();
        let (stream, mut pointer) = (stream(), 0);
        line.says_as("async_of_plain", cuMemFreeAsync(memory(64), stream));
        line.says_as("async_of_pinned", cuMemFreeAsync(pinned(64) as u64, stream));
        line.says_as("async_of_managed", cuMemFreeAsync(managed(64), stream));
        cuMemAllocAsync(&mut pointer, 64, stream).must();
        line.says_as("plain_of_async", cuMemFree_v2(pointer));
        line.says_as("plain_twice", cuMemFree_v2(pointer));
        cuMemAllocAsync(&mut pointer, 64, stream).must();
        line.says_as("interior", cuMemFreeAsync(pointer + 8, stream));
        line.says_as("async", cuMemFreeAsync(pointer, stream));
        line.says_as("async_twice", cuMemFreeAsync(pointer, stream));
        line.says(cuStreamSynchronize(stream));
    }),
    alone!("pool/double_free_before_it_ran", |line| {
        context();
        let (stream, mut pointer) = (stream(), 0);
        cuMemAllocAsync(&mut pointer, 64, stream).must();
        let gate = Gate::close(stream);
        line.says_as("first", cuMemFreeAsync(pointer, stream));
        line.says_as("second", cuMemFreeAsync(pointer, stream));
        line.says_as("plain", cuMemFree_v2(pointer));
        gate.open();
        line.says(cuStreamSynchronize(stream));
    }),
    case!("pool/free_on_another_stream", |line| {
        context();
        let (first, second, mut pointer) = (stream(), stream(), 0);
        cuMemAllocAsync(&mut pointer, 64, first).must();
        cuStreamSynchronize(first).must();
        line.says(cuMemFreeAsync(pointer, second));
        line.says(cuStreamSynchronize(second));
    }),
    case!("pool/reuse_in_order", |line| {
        context();
        let (stream, mut first, mut second) = (stream(), 0, 0);
        cuMemAllocAsync(&mut first, 1 << 20, stream).must();
        cuMemFreeAsync(first, stream).must();
        line.says(cuMemAllocAsync(&mut second, 1 << 20, stream));
        line.value("same", first == second);
    }),
    case!("pool/of_device", |line| {
        context();
        let (mut pool, mut default) = (0, 0);
        line.says(cuDeviceGetDefaultMemPool(&mut default, 0));
        line.gives(
            "is_default",
            cuDeviceGetMemPool(&mut pool, 0),
            pool == default,
        );
        line.says_as("wrong_device", cuDeviceGetDefaultMemPool(&mut pool, 1000));
        line.says_as("null", cuDeviceGetDefaultMemPool(null_mut(), 0));
        line.says_as("get_null", cuDeviceGetMemPool(null_mut(), 0));
        line.says_as("destroy_default", cuMemPoolDestroy(default));
        line.says_as("destroy_null", cuMemPoolDestroy(0));
        line.says_as("set_null", cuDeviceSetMemPool(0, 0));
    }),
    alone!("pool/set_for_device", |line| {
        context();
        let (made, mut pool, mut pointer, mut of) = (new_pool(), 0, 0, 0usize);
        line.says(cuDeviceSetMemPool(0, made));
        line.gives("is_made", cuDeviceGetMemPool(&mut pool, 0), pool == made);
        cuMemAllocAsync(&mut pointer, 64, 0).must();
        line.gives(
            "allocates_there",
            cuPointerGetAttribute(void(&mut of), 17, pointer),
            of == made,
        );
        line.says_as("wrong_device", cuDeviceSetMemPool(1000, made));
        cuMemFreeAsync(pointer, 0).must();
        line.says(cuMemPoolDestroy(made));
        line.gives(
            "back_to_default",
            cuDeviceGetMemPool(&mut pool, 0),
            pool == default_pool(),
        );
    }),
    alone!("pool/attributes", |line| {
        context();
        attributes(line, "default", default_pool());
        let (pool, stream, mut pointer) = (new_pool(), stream(), 0);
        attributes(line, "made", pool);
        cuMemAllocFromPoolAsync(&mut pointer, 1000, pool, stream).must();
        cuStreamSynchronize(stream).must();
        attributes(line, "allocated", pool);
        cuMemFreeAsync(pointer, stream).must();
        cuStreamSynchronize(stream).must();
        attributes(line, "freed", pool);
        let mut zero = 0u64;
        line.says_as(
            "reset_used_high",
            cuMemPoolSetAttribute(pool, 8, void(&mut zero)),
        );
        line.says_as(
            "reset_reserved_high",
            cuMemPoolSetAttribute(pool, 6, void(&mut zero)),
        );
        attributes(line, "reset", pool);
        let mut threshold = u64::MAX;
        line.says_as(
            "keep_all",
            cuMemPoolSetAttribute(pool, 4, void(&mut threshold)),
        );
        cuMemAllocFromPoolAsync(&mut pointer, 1000, pool, stream).must();
        cuMemFreeAsync(pointer, stream).must();
        cuStreamSynchronize(stream).must();
        attributes(line, "kept", pool);
        line.says(cuMemPoolTrimTo(pool, 0));
        attributes(line, "trimmed", pool);
    }),
    case!("pool/attributes/wrong", |line| {
        context();
        let (pool, mut value) = (new_pool(), 5u64);
        line.says_as(
            "get_unknown",
            cuMemPoolGetAttribute(pool, 99, void(&mut value)),
        );
        line.says_as("get_zero", cuMemPoolGetAttribute(pool, 0, void(&mut value)));
        line.says_as("get_null", cuMemPoolGetAttribute(pool, 1, null_mut()));
        line.says_as(
            "get_null_pool",
            cuMemPoolGetAttribute(0, 1, void(&mut value)),
        );
        line.says_as(
            "set_used_high_nonzero",
            cuMemPoolSetAttribute(pool, 8, void(&mut value)),
        );
        line.says_as(
            "set_current",
            cuMemPoolSetAttribute(pool, 7, void(&mut value)),
        );
        line.says_as(
            "set_unknown",
            cuMemPoolSetAttribute(pool, 99, void(&mut value)),
        );
        line.says_as("set_null", cuMemPoolSetAttribute(pool, 4, null_mut()));
        line.says_as(
            "set_reuse_five",
            cuMemPoolSetAttribute(pool, 1, void(&mut value)),
        );
        line.says_as("trim_null", cuMemPoolTrimTo(0, 0));
        let mut off = 0u32;
        line.says_as(
            "set_reuse_off",
            cuMemPoolSetAttribute(pool, 2, void(&mut off)),
        );
        attributes(line, "after", pool);
    }),
    case!("pool/create/wrong", |line| {
        context();
        let mut pool = 0;
        line.says_as("null_out", cuMemPoolCreate(null_mut(), &PINNED_ON_DEVICE));
        line.says_as("null_in", cuMemPoolCreate(&mut pool, null()));
        let base = PINNED_ON_DEVICE;
        let wrong = [
            ("kind_zero", PoolProperties { kind: 0, ..base }),
            ("kind_unknown", PoolProperties { kind: 7, ..base }),
            (
                "location_none",
                PoolProperties {
                    location: Location { kind: 0, id: 0 },
                    ..base
                },
            ),
            (
                "location_unknown",
                PoolProperties {
                    location: Location { kind: 99, id: 0 },
                    ..base
                },
            ),
            (
                "device_wrong",
                PoolProperties {
                    location: Location { kind: 1, id: 1000 },
                    ..base
                },
            ),
            (
                "handles_posix",
                PoolProperties {
                    handle_types: 1,
                    ..base
                },
            ),
            (
                "handles_win32",
                PoolProperties {
                    handle_types: 2,
                    ..base
                },
            ),
            (
                "handles_unknown",
                PoolProperties {
                    handle_types: 0x100,
                    ..base
                },
            ),
            (
                "usage_unknown",
                PoolProperties {
                    usage: 0x80,
                    ..base
                },
            ),
        ];
        for (what, properties) in wrong {
            line.says_as(what, cuMemPoolCreate(&mut pool, &properties));
        }
    }),
    case!("pool/max_size", |line| {
        context();
        let (mut pool, mut first, mut second, stream) = (0, 0, 0, stream());
        let properties = PoolProperties {
            max_size: 64 << 20,
            ..PINNED_ON_DEVICE
        };
        line.says(cuMemPoolCreate(&mut pool, &properties));
        line.says_as(
            "over",
            cuMemAllocFromPoolAsync(&mut first, 512 << 20, pool, stream),
        );
        line.says_as(
            "within",
            cuMemAllocFromPoolAsync(&mut second, 1 << 20, pool, stream),
        );
    }),
    case!("pool/access", |line| {
        context();
        let (pool, mut flags) = (new_pool(), 77);
        let mut here = Location { kind: 1, id: 0 };
        line.gives(
            "own_device",
            cuMemPoolGetAccess(&mut flags, pool, &mut here),
            flags,
        );
        let access = |id, flags| Access {
            location: Location { kind: 1, id },
            flags,
        };
        line.says_as("set_read_write", cuMemPoolSetAccess(pool, &access(0, 3), 1));
        line.says_as("set_read", cuMemPoolSetAccess(pool, &access(0, 1), 1));
        line.says_as("set_none", cuMemPoolSetAccess(pool, &access(0, 0), 1));
        line.says_as("set_unknown", cuMemPoolSetAccess(pool, &access(0, 9), 1));
        line.says_as(
            "set_wrong_device",
            cuMemPoolSetAccess(pool, &access(1000, 3), 1),
        );
        line.says_as("set_nothing", cuMemPoolSetAccess(pool, &access(0, 3), 0));
        line.says_as("set_null", cuMemPoolSetAccess(pool, null(), 1));
        line.says_as("get_null", cuMemPoolGetAccess(null_mut(), pool, &mut here));
        here.id = 1000;
        line.says_as(
            "get_wrong_device",
            cuMemPoolGetAccess(&mut flags, pool, &mut here),
        );
    }),
    alone!("pool/destroyed", |line| {
        context();
        let (pool, mut pointer, stream) = (new_pool(), 0, stream());
        cuMemAllocFromPoolAsync(&mut pointer, 64, pool, stream).must();
        line.says_as("destroy_with_allocation", cuMemPoolDestroy(pool));
        line.says_as("allocation_usable", cuMemsetD8Async(pointer, 1, 64, stream));
        line.says_as("free_after", cuMemFreeAsync(pointer, stream));
        line.says(cuStreamSynchronize(stream));
    }),
    case!("pool/from_pool/wrong", |line| {
        context();
        let (pool, mut pointer) = (new_pool(), 7);
        line.says_as("null_pool", cuMemAllocFromPoolAsync(&mut pointer, 64, 0, 0));
        line.says_as(
            "zero_bytes",
            cuMemAllocFromPoolAsync(&mut pointer, 0, pool, 0),
        );
        line.says_as("null_out", cuMemAllocFromPoolAsync(null_mut(), 64, pool, 0));
        let mut descriptor = 0i32;
        let out = (&mut descriptor as *mut i32).cast::<c_void>();
        line.says_as(
            "export_unexportable",
            cuMemPoolExportToShareableHandle(out, pool, 1, 0),
        );
    }),
    case!("pool/range", |line| {
        context();
        let (mut pointer, mut base, mut size) = (0, 0, 0);
        cuMemAllocAsync(&mut pointer, 1000, 0).must();
        line.gives(
            "range",
            cuMemGetAddressRange_v2(&mut base, &mut size, pointer + 10),
            base == pointer,
        );
        line.value("size", size);
    }),
];
