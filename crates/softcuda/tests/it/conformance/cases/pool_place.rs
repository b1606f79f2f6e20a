//! Pools of other places than the device: of the host's memory, and of managed memory.

use std::ptr::null_mut;

use crate::conformance::api::*;
use crate::conformance::case::{Case, Line, alone, case};
use crate::conformance::error_name;
use crate::conformance::fixture::*;
use crate::conformance::structs::{Access, Location, PoolProperties};

const PINNED: u32 = 1;
const MANAGED: u32 = 2;

const fn properties(kind: u32, location: u32, id: i32) -> PoolProperties {
    PoolProperties {
        kind,
        handle_types: 0,
        location: Location { kind: location, id },
        win32_attributes: 0,
        max_size: 0,
        usage: 0,
        reserved: [0; 54],
    }
}

fn name(answer: Answer) -> String {
    error_name(answer.code)
}

unsafe fn new_pool(kind: u32, location: u32) -> Handle {
    let mut pool = 0;
    cuMemPoolCreate(&mut pool, &properties(kind, location, 0)).must();
    pool
}

unsafe fn figures(pool: Handle) -> String {
    let values = (1..=8).map(|number| {
        let mut value = 0u64;
        cuMemPoolGetAttribute(pool, number, void(&mut value)).must();
        match number {
            5 | 6 => u64::from(value != 0),
            1..=3 => value & 0xffff_ffff,
            _ => value,
        }
        .to_string()
    });
    values.collect::<Vec<_>>().join(" ")
}

unsafe fn attributes(address: u64) -> String {
    let values = [1, 2, 3, 4, 6, 8, 9, 10, 11, 12, 13, 14, 15, 16, 17, 21].map(|number| {
        let mut value = 0u64;
        let answer = cuPointerGetAttribute(void(&mut value), number, address);
        match answer.code {
            0 if value == address => "self".to_string(),
            0 if number == 17 && value != 0 => "some".to_string(),
            0 => value.to_string(),
            _ => name(answer),
        }
    });
    values.join(" ")
}

unsafe fn access_of(pool: Handle) -> String {
    let texts = (0..=5).map(|kind| {
        let mut flags = 9;
        let answer = cuMemPoolGetAccess(&mut flags, pool, &mut Location { kind, id: 0 });
        match answer.code {
            0 => flags.to_string(),
            _ => name(answer),
        }
    });
    texts.collect::<Vec<_>>().join(" ")
}

/// What becomes of access: each location with each flag.
unsafe fn set_access(line: &mut Line, pool: Handle) {
    for kind in 0..=4 {
        let texts = [0, 1, 2, 3].map(|flags| {
            let location = Location { kind, id: 0 };
            name(cuMemPoolSetAccess(pool, &Access { location, flags }, 1))
        });
        line.value(format!("set_{kind}"), texts.join(" "));
    }
    let location = Location { kind: 1, id: 1000 };
    let elsewhere = Access { location, flags: 3 };
    line.says_as("set_elsewhere", cuMemPoolSetAccess(pool, &elsewhere, 1));
}

unsafe fn grant_device(pool: Handle, flags: u32) -> Answer {
    let location = Location { kind: 1, id: 0 };
    cuMemPoolSetAccess(pool, &Access { location, flags }, 1)
}

/// The host and the device use an allocation of a pool.
unsafe fn uses(line: &mut Line, pool: Handle) {
    let (stream, mut address, mut other) = (stream(), 0, 0);
    line.value("fresh", figures(pool));
    line.says_as(
        "alloc",
        cuMemAllocFromPoolAsync(&mut address, 100_000, pool, stream),
    );
    line.says_as(
        "alloc_small",
        cuMemAllocFromPoolAsync(&mut other, 5000, pool, stream),
    );
    line.says_as("end", cuStreamSynchronize(stream));
    line.value("figures", figures(pool));
    line.value("attributes", attributes(address));
    line.says_as("fill", cuMemsetD32Async(address, 5, 25_000, stream));
    line.says_as("end", cuStreamSynchronize(stream));
    line.says_as("grant", grant_device(pool, 3));
    line.value("attributes", attributes(address));
    line.says_as("fill", cuMemsetD32Async(address, 6, 25_000, stream));
    line.says_as("end", cuStreamSynchronize(stream));
    let words = address as *mut u32;
    line.value("host_reads", words.add(24_999).read_volatile());
    words.write_volatile(7);
    let (function, mut value) = (function(c"store"), 8u32);
    line.says_as(
        "launch",
        launch(
            function,
            1,
            1,
            stream,
            &mut [void(&mut address), void(&mut value)],
        ),
    );
    line.says_as("end", cuStreamSynchronize(stream));
    line.value("host_sees", words.read_volatile());
    let (mut base, mut size, mut flags, mut pointer) = (0, 0, 0, 0);
    line.says_as(
        "range",
        cuMemGetAddressRange_v2(&mut base, &mut size, address + 10),
    );
    line.value("is", format!("{} {size}", base == address));
    line.says_as("host_flags", cuMemHostGetFlags(&mut flags, address as _));
    line.says_as(
        "device_pointer",
        cuMemHostGetDevicePointer_v2(&mut pointer, address as _, 0),
    );
    let device = Location { kind: 1, id: 0 };
    line.says_as("advise", cuMemAdvise_v2(address, 100_000, 1, device));
    line.says_as(
        "prefetch",
        cuMemPrefetchAsync_v2(address, 100_000, device, 0, stream),
    );
    let told = (1..=8).map(|attribute| {
        let mut value = 9i32;
        let answer = cuMemRangeGetAttribute(void(&mut value), 4, attribute, address, 100_000);
        match answer.code {
            0 => value.to_string(),
            _ => name(answer),
        }
    });
    line.value("range_attributes", told.collect::<Vec<_>>().join(" "));
    line.says_as("attach", cuStreamAttachMemAsync(stream, address, 0, 4));
    line.says_as("free_host", cuMemFreeHost(address as _));
    line.says_as("withdraw", grant_device(pool, 0));
    line.says_as("free_async", cuMemFreeAsync(address, stream));
    line.says_as("end", cuStreamSynchronize(stream));
    line.value("figures", figures(pool));
    line.says_as("free_small", cuMemFreeAsync(other, stream));
    line.says_as("end", cuStreamSynchronize(stream));
    line.says_as("trim", cuMemPoolTrimTo(pool, 0));
    line.value("figures", figures(pool));
}

/// Copies from and to the memory of a pool, by each function.
unsafe fn copies(line: &mut Line, pool: Handle) {
    let (stream, mut here, there) = (stream(), 0, memory(64));
    let mut value = [3u32; 16];
    cuMemAllocFromPoolAsync(&mut here, 64, pool, stream).must();
    cuStreamSynchronize(stream).must();
    line.says_as("from_host", cuMemcpyHtoD_v2(here, void(&mut value), 64));
    line.says_as("to_host", cuMemcpyDtoH_v2(void(&mut value), here, 64));
    line.says_as("from_device", cuMemcpyDtoD_v2(here, there, 64));
    line.says_as("to_device", cuMemcpyDtoD_v2(there, here, 64));
    line.says_as("as_host_from", cuMemcpyHtoD_v2(there, here as _, 64));
    line.says_as("as_host_to", cuMemcpyDtoH_v2(here as _, there, 64));
    line.says_as("any_from", cuMemcpy(there, here, 64));
    line.says_as("any_to", cuMemcpy(here, there, 64));
    line.says_as("any_async", cuMemcpyAsync(there, here, 64, stream));
    line.says_as(
        "to_host_async",
        cuMemcpyDtoHAsync_v2(void(&mut value), here, 64, stream),
    );
    line.says_as("fill", cuMemsetD8_v2(here, 1, 64));
    line.says_as("end", cuCtxSynchronize());
}

unsafe fn answers(line: &mut Line, kind: u32) {
    for location in 0..=5 {
        for id in [0, -1, 1, 7] {
            let at = || Location { kind: location, id };
            let (mut made, mut default, mut current, mut set) = (0, 0, 0, 0);
            let answers = [
                cuMemPoolCreate(&mut made, &properties(kind, location, id)),
                cuMemGetDefaultMemPool(&mut default, &mut at(), kind),
                cuMemGetMemPool(&mut current, &mut at(), kind),
            ];
            let mut text = answers.map(name).join(" ");
            if answers[0].code == 0 && answers[1].code == 0 {
                text += &format!(" {}", default == current);
                text += &format!(" {}", name(cuMemSetMemPool(&at(), kind, made)));
                let answer = cuMemGetMemPool(&mut set, &mut at(), kind);
                text += &format!(" {} {}", name(answer), set == made);
                text += &format!(" {}", name(cuMemPoolDestroy(default)));
                text += &format!(" {}", name(cuMemPoolDestroy(made)));
                let answer = cuMemGetMemPool(&mut set, &mut at(), kind);
                text += &format!(" {} {}", name(answer), set == default);
            }
            line.value(format!("{location}_{id}"), text);
        }
    }
}

pub const CASES: &[Case] = &[
    alone!("pool/place/pinned", |line| {
        context();
        answers(line, PINNED);
    }),
    alone!("pool/place/managed", |line| {
        context();
        answers(line, MANAGED);
    }),
    alone!("pool/place/other_kinds", |line| {
        context();
        for kind in [0, 3, 99] {
            answers(line, kind);
        }
    }),
    case!("pool/place/properties", |line| {
        context();
        for (kind, location) in [
            (1, 1),
            (1, 2),
            (1, 3),
            (2, 0),
            (2, 1),
            (2, 2),
            (2, 3),
            (2, 4),
        ] {
            let plain = properties(kind, location, 0);
            let made = [
                PoolProperties {
                    handle_types: 1,
                    ..plain
                },
                PoolProperties {
                    max_size: 64 << 20,
                    ..plain
                },
                PoolProperties { usage: 1, ..plain },
            ];
            let texts = made.map(|properties| name(cuMemPoolCreate(&mut 0, &properties)));
            line.value(format!("{kind}_{location}"), texts.join(" "));
        }
    }),
    case!("pool/place/wrong", |line| {
        context();
        let (mut pool, mut at) = (0, Location { kind: 1, id: 0 });
        line.says_as("null_out", cuMemGetDefaultMemPool(null_mut(), &mut at, 1));
        line.says_as(
            "null_location",
            cuMemGetDefaultMemPool(&mut pool, null_mut(), 1),
        );
        line.says_as("get_null_out", cuMemGetMemPool(null_mut(), &mut at, 1));
        let (host, managed) = (new_pool(PINNED, 2), new_pool(MANAGED, 1));
        line.says_as("host_for_device", cuMemSetMemPool(&at, 1, host));
        line.says_as("managed_for_device", cuMemSetMemPool(&at, 1, managed));
        line.says_as("managed_as_managed", cuMemSetMemPool(&at, 2, managed));
        line.says_as("no_pool", cuMemSetMemPool(&at, 1, 0));
        line.says_as("device_host", cuDeviceSetMemPool(0, host));
        line.says_as("device_managed", cuDeviceSetMemPool(0, managed));
        let (mut default, mut of_place) = (0, 0);
        cuDeviceGetDefaultMemPool(&mut default, 0).must();
        line.gives(
            "the_device_s",
            cuMemGetDefaultMemPool(&mut of_place, &mut at, 1),
            default == of_place,
        );
        cuMemSetMemPool(&at, 2, {
            cuMemGetDefaultMemPool(&mut of_place, &mut at, 2).must();
            of_place
        })
        .must();
    }),
    case!("pool/place/access_of_device", |line| {
        context();
        let pool = new_pool(PINNED, 1);
        line.value("access", access_of(pool));
        set_access(line, pool);
        line.value("access", access_of(pool));
    }),
    case!("pool/place/access_of_host", |line| {
        context();
        for location in [2, 3] {
            let pool = new_pool(PINNED, location);
            line.value("access", access_of(pool));
            set_access(line, pool);
            line.value("access", access_of(pool));
        }
    }),
    case!("pool/place/access_of_managed", |line| {
        context();
        for location in [0, 1, 2] {
            let pool = new_pool(MANAGED, location);
            line.value("access", access_of(pool));
            set_access(line, pool);
            line.value("access", access_of(pool));
        }
    }),
    case!("pool/place/use_of_host", |line| {
        context();
        uses(line, new_pool(PINNED, 2));
    }),
    case!("pool/place/use_of_host_node", |line| {
        context();
        uses(line, new_pool(PINNED, 3));
    }),
    case!("pool/place/use_of_managed", |line| {
        context();
        for location in [0, 1, 2, 3, 4] {
            uses(line, new_pool(MANAGED, location));
        }
    }),
    alone!("pool/place/kernel_without_access", |line| {
        context();
        let (pool, stream, mut address) = (new_pool(PINNED, 2), stream(), 0);
        cuMemAllocFromPoolAsync(&mut address, 64, pool, stream).must();
        cuStreamSynchronize(stream).must();
        let (function, mut value) = (function(c"store"), 8u32);
        line.says_as(
            "launch",
            launch(
                function,
                1,
                1,
                stream,
                &mut [void(&mut address), void(&mut value)],
            ),
        );
        line.says(cuStreamSynchronize(stream));
    }),
    case!("pool/place/copies_of_host", |line| {
        context();
        let pool = new_pool(PINNED, 2);
        copies(line, pool);
        line.says_as("grant", grant_device(pool, 3));
        copies(line, pool);
    }),
    case!("pool/place/copies_of_managed", |line| {
        context();
        copies(line, new_pool(MANAGED, 0));
    }),
];
