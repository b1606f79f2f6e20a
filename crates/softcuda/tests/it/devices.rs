//! Several devices of one process: whose memory is whose, who reaches it, how they fail.
//!
//! On a machine with two GPUs or more, or in software alike: there each case is a process of its
//! own, with `SOFTCUDA_DEVICES=3`. On a machine with one GPU they say that they did not run.

#![allow(
    unsafe_op_in_unsafe_fn,
    clippy::undocumented_unsafe_blocks,
    reason = "raw driver calls with right arguments, whose memory outlives the work; each test says what it does"
)]

use std::collections::BTreeSet;
use std::ffi::{CStr, CString, c_char};
use std::process::Command;

use crate::capture::api::cuMemcpyPeerAsync;
use crate::conformance::api::*;
use crate::conformance::fixture::*;
use crate::conformance::sides::*;
use crate::conformance::structs::*;
use crate::driver::{Driver, driver};
use crate::graphs::api::*;

const CASE: &str = "SOFTCUDA_TEST_DEVICES";
/// Which way `every_access_is_checked` looks at, in a process that looks at one.
const WAY: &str = "SOFTCUDA_TEST_DEVICES_WAY";

const INVALID_VALUE: u32 = 1;
const INVALID_DEVICE: u32 = 101;
const ILLEGAL_ADDRESS: u32 = 700;
const ALREADY_ENABLED: u32 = 704;
const NOT_ENABLED: u32 = 705;

macro_rules! cases {
    ($($(#[$doc:meta])* $name:ident)+) => {
        $(
            $(#[$doc])*
            #[test]
            fn $name() {
                run(stringify!($name));
            }
        )+

        #[test]
        #[ignore = "the other tests of this file run it, each in a process of its own"]
        fn child() {
            let case = std::env::var(CASE).unwrap_or_default();
            unsafe {
                if count() < 2 {
                    println!("there is one device: {case} is left out");
                    return;
                }
                match &*case {
                    $(stringify!($name) => case::$name(),)+
                    other => panic!("no case: {other:?}"),
                }
            }
        }
    };
}

cases! {
    /// Each has its own number, place and identity, and is found by them.
    each_is_known_by_itself
    /// Each has a primary context, and all that is made in a context is of its device.
    contexts_are_of_devices
    /// What is allocated takes from its own device's memory.
    memory_is_counted_apart
    /// Every pair of devices can reach each other; no device is its own peer.
    who_can_be_a_peer
    /// A kernel reaches another device's memory while access is enabled.
    kernels_reach_peers_that_were_enabled
    /// Without access a kernel fails, and all contexts of the process with it.
    a_failure_is_every_device_s
    /// Copies need no access.
    copies_go_everywhere
    /// A pool's memory is reached by those whom the pool gave access, not by peers.
    pools_say_who_reaches_them
    /// Mapped memory is reached by the devices that the mapping gave access.
    mappings_say_who_reaches_them
    /// Streams of one device wait for events of another.
    events_order_devices
    /// One graph has nodes of two devices, in the order of its edges.
    a_graph_spans_devices
    /// Modules of two contexts have variables of their own.
    variables_are_apart
    /// Memory of an allocation node is of its device.
    memory_nodes_are_of_devices
    /// What kernels allocate is of their device, in number and in life.
    heaps_are_of_devices
    /// A library's kernel runs in the context of the stream that it is launched in.
    kernels_go_with_their_stream
    /// What is set for a library's kernel is set for a device.
    settings_are_of_devices
    /// What the driver says of an address depends on who asks.
    addresses_are_as_the_context_sees_them
    /// Whatever way a kernel takes to memory that it has no access to, it fails.
    every_access_is_checked
    /// Memory is given back where it was taken, whoever frees it and how.
    all_memory_is_given_back
    /// After a failure calls of every device answer its error, and none waits for ever.
    nobody_waits_after_a_failure
    /// So it is after a node failed in a launch in another device's stream.
    a_node_fails_every_device
    /// A context that is destroyed is no peer any more.
    peers_that_end_are_forgotten
}

/// Runs a case in a process of its own.
fn run(case: &str) {
    run_with(case, &[]);
}

/// The same with more in its environment.
fn run_with(case: &str, more: &[(&str, &str)]) {
    let test = std::env::current_exe().expect("the test knows its own path");
    let output = Command::new(test)
        .args(["devices::child", "--exact", "--ignored", "--nocapture"])
        .env(CASE, case)
        .env("SOFTCUDA_DEVICES", "3")
        .envs(more.iter().copied())
        .output()
        .expect("the test starts itself");
    let text = String::from_utf8_lossy(&output.stdout).into_owned()
        + &String::from_utf8_lossy(&output.stderr);
    assert!(
        output.status.success() && text.contains("1 passed"),
        "{text}"
    );
    if text.contains("is left out") {
        assert_eq!(driver(), Driver::Gpu, "{text}");
        println!("{case} did not run: there is one device");
    }
}

unsafe fn count() -> i32 {
    cuInit(0).must();
    let mut count = 0;
    cuDeviceGetCount(&mut count).must();
    count
}

/// The device of an address.
unsafe fn ordinal(address: u64) -> i32 {
    const ORDINAL: u32 = 9;
    let mut ordinal = -1;
    cuPointerGetAttribute(void(&mut ordinal), ORDINAL, address).must();
    ordinal
}

/// Free bytes of a side's device.
unsafe fn free(side: &Side) -> usize {
    side.enter();
    let (mut free, mut total) = (0, 0);
    cuMemGetInfo_v2(&mut free, &mut total).must();
    assert!(free <= total);
    free
}

/// A function of a module of its own, in the current context: `body` has the parameter in `%p`.
unsafe fn written(before: &str, body: &str) -> Handle {
    let text = format!(
        ".version 8.4
.target sm_90
.address_size 64
{before}
.visible .entry run(.param .u64 run_0)
{{
    .reg .pred %t;
    .reg .b32 %r<8>;
    .reg .b64 %p, %d<8>;
    .shared .align 128 .b8 own[128];
    .shared .align 8 .b64 bar;
    ld.param.u64 %p, [run_0];
    {body}
    ret;
}}"
    );
    function_of(module_of(&text), c"run")
}

mod case {
    use super::*;

    pub unsafe fn heaps_are_of_devices() {
        const HEAP_SIZE: u32 = 2;
        const BLOCK: usize = 1 << 20;
        let sides = sides();
        let before = [free(&sides[0]), free(&sides[1])];
        let allocate = |side: &Side, size: usize| {
            side.enter();
            let run = written(
                ".extern .func (.param .b64 r) malloc(.param .b64 size);",
                &format!(
                    "{{ .param .b64 size; .param .b64 r; mov.u64 %d1, {size};
                    st.param.b64 [size], %d1; call.uni (r), malloc, (size);
                    ld.param.b64 %d2, [r]; }}
                    st.global.u64 [%p], %d2;"
                ),
            );
            let mut result = memory(8);
            launch(run, 1, 1, side.stream, &mut [void(&mut result)]).must();
            cuStreamSynchronize(side.stream).must();
            let mut address = 0u64;
            cuMemcpyDtoH_v2(void(&mut address), result, 8).must();
            cuMemFree_v2(result).must();
            address
        };
        let own = allocate(&sides[0], BLOCK);
        let other = allocate(&sides[1], BLOCK);
        assert!(own != 0 && other != 0);
        if driver() != Driver::Gpu {
            assert!(before[0] - free(&sides[0]) >= BLOCK);
            assert!(before[1] - free(&sides[1]) >= BLOCK);
        }
        // A smaller heap of one device is none of the other.
        assert_ne!(allocate(&sides[0], 6 << 20), 0);
        sides[1].enter();
        cuDevicePrimaryCtxReset_v2(1).must();
        sides[0].store(own, 5).must();
        let again = Side::new(1);
        let (mut ours, mut theirs) = (0, 0);
        cuCtxSetLimit(HEAP_SIZE, 64 << 20).must();
        cuCtxGetLimit(&mut theirs, HEAP_SIZE).must();
        sides[0].enter();
        cuCtxGetLimit(&mut ours, HEAP_SIZE).must();
        assert!(ours < theirs);
        assert_eq!(allocate(&sides[0], 32 << 20), 0);
        assert_ne!(allocate(&again, 32 << 20), 0);
    }

    pub unsafe fn kernels_go_with_their_stream() {
        let sides = sides();
        let library = library();
        let mut kernel = 0;
        cuLibraryGetKernel(&mut kernel, library, c"store".as_ptr()).must();
        for (current, side) in [(&sides[0], &sides[1]), (&sides[1], &sides[0])] {
            current.enter();
            let (mut address, mut value) = (side.word, 33u32);
            let mut arguments = [void(&mut address), void(&mut value)];
            launch(kernel, 1, 1, side.stream, &mut arguments).must();
            cuStreamSynchronize(side.stream).must();
            assert_eq!(side.read(side.word), 33);
        }
    }

    pub unsafe fn settings_are_of_devices() {
        const MAX_DYNAMIC_SHARED: u32 = 8;
        let sides = sides();
        let library = library();
        let mut kernel = 0;
        cuLibraryGetKernel(&mut kernel, library, c"store".as_ptr()).must();
        let most = |device: i32| {
            let mut value = 0;
            cuKernelGetAttribute(&mut value, MAX_DYNAMIC_SHARED, kernel, device).must();
            value
        };
        let before = most(0);
        cuKernelSetAttribute(MAX_DYNAMIC_SHARED, 100 << 10, kernel, 1).must();
        assert_eq!((most(0), most(1)), (before, 100 << 10));
        for side in &sides {
            side.enter();
            let (mut function, mut value) = (0, 0);
            cuKernelGetFunction(&mut function, kernel).must();
            cuFuncGetAttribute(&mut value, MAX_DYNAMIC_SHARED, function).must();
            assert_eq!(value, most(side.device));
        }
    }

    pub unsafe fn addresses_are_as_the_context_sees_them() {
        const CONTEXT: u32 = 1;
        const DEVICE_POINTER: u32 = 3;
        const ACCESS_FLAGS: u32 = 16;
        let sides = sides();
        let [zero, one] = &sides;
        let (mut address, mut size, mut found) = (0, 0, 0u64);
        one.enter();
        cuModuleGetGlobal_v2(&mut address, &mut size, one.module, c"counter".as_ptr()).must();
        for side in &sides {
            side.enter();
            for address in [address, one.word] {
                cuPointerGetAttribute(void(&mut found), CONTEXT, address).must();
                assert_eq!(found as Handle, one.context);
            }
        }
        zero.enter();
        let pointer =
            |found: &mut u64| cuPointerGetAttribute(void(found), DEVICE_POINTER, one.word);
        assert_eq!(pointer(&mut found).code, INVALID_VALUE);
        let may = || {
            let mut flags = 9u32;
            cuPointerGetAttribute(void(&mut flags), ACCESS_FLAGS, one.word).must();
            flags
        };
        // What the flags say is what the memory's own device may do.
        assert_eq!(may(), READ_WRITE);
        cuCtxEnablePeerAccess(one.context, 0).must();
        pointer(&mut found).must();
        assert_eq!((found, may()), (one.word, READ_WRITE));
        one.enter();
        pointer(&mut found).must();
        assert_eq!(found, one.word);
    }

    pub unsafe fn every_access_is_checked() {
        const WAYS: [&str; 14] = [
            "ld.global.u32 %r1, [%p]; st.shared.u32 [own], %r1;",
            "ld.u32 %r1, [%p]; st.shared.u32 [own], %r1;",
            "ld.global.v4.u32 {%r1, %r2, %r3, %r4}, [%p]; st.shared.u32 [own], %r1;",
            "ld.global.nc.u32 %r1, [%p]; st.shared.u32 [own], %r1;",
            "st.global.v2.u32 [%p], {1, 2};",
            "mov.u32 %r1, %tid.x; mul.wide.u32 %d1, %r1, 4; add.u64 %d1, %p, %d1; st.global.u32 [%d1], %r1;",
            "atom.global.add.u32 %r1, [%p], 1;",
            "atom.cas.b64 %d1, [%p], 1, 2;",
            "red.global.add.u32 [%p], 1;",
            "mov.u32 %r1, own; cp.async.ca.shared.global [%r1], [%p], 4; cp.async.wait_all;",
            "mov.u32 %r1, own; cp.async.cg.shared.global [%r1], [%p], 16; cp.async.wait_all; bar.sync 0;",
            "mov.u32 %r1, own; cp.async.bulk.global.shared::cta.bulk_group [%p], [%r1], 16;
                cp.async.bulk.commit_group; cp.async.bulk.wait_group 0;",
            "mov.u32 %r1, own; cp.reduce.async.bulk.global.shared::cta.bulk_group.add.u32 [%p], [%r1], 16;
                cp.async.bulk.commit_group; cp.async.bulk.wait_group 0;",
            "mov.u32 %r1, own; mov.u32 %r2, bar; mbarrier.init.shared.b64 [%r2], 1;
                mbarrier.arrive.expect_tx.shared.b64 %d1, [%r2], 16;
                cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%r1], [%p], 16, [%r2];
                again: mbarrier.try_wait.parity.shared.b64 %t, [%r2], 0; @!%t bra again;",
        ];
        // Nothing works after a failure: each way has a process of its own.
        let Ok(number) = std::env::var(WAY) else {
            for number in 0..WAYS.len() {
                run_with("every_access_is_checked", &[(WAY, &number.to_string())]);
            }
            return;
        };
        let way = WAYS[number.parse::<usize>().expect("it is the number of a way")];
        Side::new(0);
        let mut words = memory(1024);
        let side = Side::new(1);
        let mut own = memory(1024);
        let run = written("", way);
        launch(run, 1, 1, side.stream, &mut [void(&mut own)]).must();
        cuStreamSynchronize(side.stream).must();
        launch(run, 1, 1, side.stream, &mut [void(&mut words)]).must();
        let ended = cuStreamSynchronize(side.stream);
        assert_eq!(ended.code, ILLEGAL_ADDRESS, "{way}");
    }

    pub unsafe fn all_memory_is_given_back() {
        const SIZE: usize = 2 << 20;
        let sides = sides();
        let [zero, one] = &sides;
        let before = [free(zero), free(one)];
        for round in 0..3 {
            let by = &sides[round % 2];
            // From a pool of the other device, in this one's stream.
            one.enter();
            let mut pool = 0;
            let properties = PoolProperties {
                kind: 1,
                handle_types: if round == 2 { 1 } else { 0 },
                location: location(1),
                win32_attributes: 0,
                max_size: 0,
                usage: 0,
                reserved: [0; 54],
            };
            cuMemPoolCreate(&mut pool, &properties).must();
            let mut addresses = [0; 3];
            for address in &mut addresses {
                cuMemAllocFromPoolAsync(address, SIZE, pool, zero.stream).must();
                assert_eq!(ordinal(*address), 1);
            }
            by.enter();
            cuMemFreeAsync(addresses[0], one.stream).must();
            cuMemFreeAsync(addresses[1], zero.stream).must();
            cuMemFree_v2(addresses[2]).must();
            for side in &sides {
                cuStreamSynchronize(side.stream).must();
            }
            cuMemPoolDestroy(pool).must();
            // Arrays, modules, plain memory, of a context that ends.
            let mut made = 0;
            cuCtxCreate_v2(&mut made, 0, 1).must();
            let left = memory(SIZE);
            fill_words(left, 1, 4);
            module();
            let descriptor = ArrayDescriptor {
                width: 64,
                height: 64,
                format: 32,
                channels: 1,
            };
            cuArrayCreate_v2(&mut 0, &descriptor).must();
            by.enter();
            cuCtxDestroy_v2(made).must();
            // Physical memory.
            let properties = physical(1);
            let (mut handle, mut address) = (0, 0);
            cuMemCreate(&mut handle, SIZE, &properties, 0).must();
            cuMemAddressReserve(&mut address, SIZE, 0, 0, 0).must();
            cuMemMap(address, SIZE, 0, handle, 0).must();
            cuMemSetAccess(address, SIZE, &access(by.device), 1).must();
            cuMemRelease(handle).must();
            cuMemUnmap(address, SIZE).must();
            cuMemAddressFree(address, SIZE).must();
            if driver() != Driver::Gpu {
                assert_eq!([free(zero), free(one)], before, "round {round}");
            }
        }
    }

    pub unsafe fn nobody_waits_after_a_failure() {
        let sides = sides();
        let [failing, other] = &sides;
        other.enter();
        let mine = event();
        cuEventRecord(mine, other.stream).must();
        failing.enter();
        let done = event();
        let gate = Gate::close(failing.stream);
        let store = function_of(failing.module, c"store");
        let (mut address, mut value) = (other.word, 1u32);
        let mut arguments = [void(&mut address), void(&mut value)];
        launch(store, 1, 1, failing.stream, &mut arguments).must();
        cuEventRecord(done, failing.stream).must();
        other.enter();
        cuStreamWaitEvent(other.stream, done, 0).must();
        gate.open();
        let ended = cuStreamSynchronize(other.stream);
        assert_eq!(ended.code, ILLEGAL_ADDRESS);
        for side in [other, failing] {
            side.enter();
            for event in [done, mine] {
                assert_eq!(cuEventSynchronize(event).code, ILLEGAL_ADDRESS);
                assert_eq!(cuEventQuery(event).code, ILLEGAL_ADDRESS);
            }
            for stream in [other.stream, failing.stream] {
                assert_eq!(cuStreamSynchronize(stream).code, ILLEGAL_ADDRESS);
                assert_eq!(cuStreamQuery(stream).code, ILLEGAL_ADDRESS);
            }
            assert_eq!(cuCtxSynchronize().code, ILLEGAL_ADDRESS);
            // There is nothing to wait for before memory goes.
            assert_eq!(cuMemFree_v2(side.word).code, ILLEGAL_ADDRESS);
            assert_eq!(cuModuleUnload(side.module).code, ILLEGAL_ADDRESS);
        }
        cuDevicePrimaryCtxReset_v2(failing.device).must();
        cuDevicePrimaryCtxReset_v2(other.device).must();
    }

    pub unsafe fn a_node_fails_every_device() {
        let sides: Vec<Side> = (0..count().min(3))
            .map(|device| Side::new(device))
            .collect();
        let graph = graph();
        let [zero, one] = [&sides[0], &sides[1]];
        one.enter();
        let wrong = function_of(one.module, c"store");
        add_store(graph, &[], wrong, zero.word, 1);
        zero.enter();
        let exec = instantiate(graph);
        cuGraphLaunch(exec, zero.stream).must();
        assert_eq!(cuStreamSynchronize(zero.stream).code, ILLEGAL_ADDRESS);
        for side in &sides {
            side.enter();
            assert_eq!(cuCtxSynchronize().code, ILLEGAL_ADDRESS);
        }
    }

    pub unsafe fn peers_that_end_are_forgotten() {
        let zero = Side::new(0);
        let mut made = 0;
        cuCtxCreate_v2(&mut made, 0, 1).must();
        let word = memory(4);
        zero.enter();
        cuCtxEnablePeerAccess(made, 0).must();
        zero.store(word, 4).must();
        cuCtxDestroy_v2(made).must();
        assert_ne!(cuCtxDisablePeerAccess(made).code, 0);
        let one = Side::new(1);
        zero.enter();
        cuCtxEnablePeerAccess(one.context, 0).must();
        one.enter();
        cuDevicePrimaryCtxReset_v2(1).must();
        let again = Side::new(1);
        zero.enter();
        assert_eq!(cuCtxDisablePeerAccess(again.context).code, NOT_ENABLED);
        assert_eq!(again.read(again.word), 11);
        assert_eq!(zero.store(again.word, 4).code, ILLEGAL_ADDRESS);
    }

    pub unsafe fn each_is_known_by_itself() {
        let count = count();
        let mut seen = BTreeSet::new();
        for ordinal in 0..count {
            let (mut device, mut uuid, mut place) = (-1, [0; 16], [0 as c_char; 32]);
            cuDeviceGet(&mut device, ordinal).must();
            assert_eq!(device, ordinal);
            cuDeviceGetUuid_v2(&mut uuid, device).must();
            cuDeviceGetPCIBusId(place.as_mut_ptr(), 32, device).must();
            let place = CStr::from_ptr(place.as_ptr()).to_owned();
            let mut found = -1;
            cuDeviceGetByPCIBusId(&mut found, place.as_ptr()).must();
            assert_eq!(found, device);
            let (mut bus, mut name) = (0, [0 as c_char; 64]);
            cuDeviceGetAttribute(&mut bus, 33, device).must();
            cuDeviceGetName(name.as_mut_ptr(), 64, device).must();
            let written = format!(":{bus:02X}:");
            assert!(place.to_string_lossy().to_uppercase().contains(&written));
            assert!(seen.insert((uuid, place)));
        }
        let mut device = -1;
        for wrong in [-1, count, i32::MAX] {
            assert_eq!(cuDeviceGet(&mut device, wrong).code, INVALID_DEVICE);
            assert_eq!(cuDevicePrimaryCtxRetain(&mut 0, wrong).code, INVALID_DEVICE);
        }
        let nowhere = CString::new("0000:FF:1F.0").unwrap();
        assert_eq!(
            cuDeviceGetByPCIBusId(&mut device, nowhere.as_ptr()).code,
            INVALID_DEVICE
        );
    }

    pub unsafe fn contexts_are_of_devices() {
        let sides = sides();
        assert_ne!(sides[0].context, sides[1].context);
        for side in &sides {
            side.enter();
            let mut device = -1;
            cuCtxGetDevice(&mut device).must();
            assert_eq!(device, side.device);
            cuStreamGetDevice(side.stream, &mut device).must();
            assert_eq!(device, side.device);
            assert_eq!(ordinal(side.word), side.device);
            let mut made = 0;
            cuCtxCreate_v2(&mut made, 0, side.device).must();
            cuCtxGetDevice(&mut device).must();
            assert_eq!(device, side.device);
            assert_eq!(ordinal(memory(4)), side.device);
            cuCtxDestroy_v2(made).must();
        }
        // Another device's primary context is not this one's.
        let (mut flags, mut active) = (0, 0);
        cuDevicePrimaryCtxRelease_v2(0).must();
        cuDevicePrimaryCtxGetState(0, &mut flags, &mut active).must();
        assert_eq!(active, 0);
        cuDevicePrimaryCtxGetState(1, &mut flags, &mut active).must();
        assert_eq!(active, 1);
        assert_eq!(sides[1].read(sides[1].word), 11);
    }

    pub unsafe fn memory_is_counted_apart() {
        const SIZE: usize = 32 << 20;
        let sides = sides();
        let free = |side: &Side| {
            side.enter();
            let (mut free, mut total) = (0, 0);
            cuMemGetInfo_v2(&mut free, &mut total).must();
            assert!(free <= total);
            free
        };
        let before = [free(&sides[0]), free(&sides[1])];
        sides[1].enter();
        let address = memory(SIZE);
        let after = [free(&sides[0]), free(&sides[1])];
        assert!(before[1] - after[1] >= SIZE, "{before:?} {after:?}");
        assert!(before[0] - after[0] < SIZE, "{before:?} {after:?}");
        // Whoever frees it, it is given back where it was taken.
        sides[0].enter();
        cuMemFree_v2(address).must();
        assert!(free(&sides[1]) >= before[1]);
    }

    pub unsafe fn who_can_be_a_peer() {
        let sides = sides();
        let count = count();
        let mut can = -1;
        for own in 0..count {
            for peer in 0..count {
                cuDeviceCanAccessPeer(&mut can, own, peer).must();
                assert_eq!(can, i32::from(own != peer), "{own} {peer}");
            }
            assert_eq!(
                cuDeviceCanAccessPeer(&mut can, own, count).code,
                INVALID_DEVICE
            );
        }
        const ACCESS: u32 = 2;
        cuDeviceGetP2PAttribute(&mut can, ACCESS, 0, 1).must();
        assert_eq!(can, 1);
        assert_eq!(
            cuDeviceGetP2PAttribute(&mut can, ACCESS, 1, 1).code,
            INVALID_DEVICE
        );
        sides[0].enter();
        assert_eq!(cuCtxDisablePeerAccess(sides[1].context).code, NOT_ENABLED);
        cuCtxEnablePeerAccess(sides[1].context, 0).must();
        assert_eq!(
            cuCtxEnablePeerAccess(sides[1].context, 0).code,
            ALREADY_ENABLED
        );
        assert_eq!(
            cuCtxEnablePeerAccess(sides[1].context, 1).code,
            INVALID_VALUE
        );
        // Of this context alone, and in this direction.
        sides[1].enter();
        assert_eq!(cuCtxDisablePeerAccess(sides[0].context).code, NOT_ENABLED);
        sides[0].enter();
        cuCtxDisablePeerAccess(sides[1].context).must();
        cuCtxEnablePeerAccess(sides[1].context, 0).must();
    }

    pub unsafe fn kernels_reach_peers_that_were_enabled() {
        let sides = sides();
        for (own, peer) in [(&sides[0], &sides[1]), (&sides[1], &sides[0])] {
            own.enter();
            cuCtxEnablePeerAccess(peer.context, 0).must();
            own.store(peer.word, 77).must();
            assert_eq!(peer.read(peer.word), 77);
            // Memory that is allocated afterwards, too.
            peer.enter();
            let later = memory(4);
            own.store(later, 78).must();
            assert_eq!(own.read(later), 78);
        }
        // Memory of the host is everybody's.
        sides[0].enter();
        let host = pinned(4).cast::<u32>();
        let shared = managed(4);
        sides[1].store(host as u64, 5).must();
        assert_eq!(host.read_volatile(), 5);
        sides[1].store(shared, 6).must();
        assert_eq!(sides[0].read(shared), 6);
        // Once access ends, a kernel that goes there fails.
        sides[0].enter();
        cuCtxDisablePeerAccess(sides[1].context).must();
        assert_eq!(sides[0].store(sides[1].word, 1).code, ILLEGAL_ADDRESS);
    }

    pub unsafe fn a_failure_is_every_device_s() {
        let sides = sides();
        let [failing, other] = &sides;
        let mut made = 0;
        cuCtxCreate_v2(&mut made, 0, other.device).must();
        assert_eq!(failing.store(other.word, 1).code, ILLEGAL_ADDRESS);
        for context in [failing.context, other.context, made] {
            cuCtxSetCurrent(context).must();
            assert_eq!(cuCtxSynchronize().code, ILLEGAL_ADDRESS);
            assert_eq!(cuMemAlloc_v2(&mut 0, 4).code, ILLEGAL_ADDRESS);
            let from = other.word;
            assert_eq!(
                cuMemcpyDtoH_v2(void(&mut 0u32), from, 4).code,
                ILLEGAL_ADDRESS
            );
        }
        for device in 0..count() {
            let created = cuCtxCreate_v2(&mut 0, 0, device);
            assert_eq!(created.code, ILLEGAL_ADDRESS);
        }
        // Primary contexts that are there are given out, but no new ones.
        for side in &sides {
            cuDevicePrimaryCtxRetain(&mut 0, side.device).must();
        }
        // Contexts that failed can still be ended.
        cuCtxDestroy_v2(made).must();
        cuDevicePrimaryCtxReset_v2(failing.device).must();
        let retained = cuDevicePrimaryCtxRetain(&mut 0, failing.device);
        assert_eq!(retained.code, ILLEGAL_ADDRESS);
        other.enter();
        assert_eq!(cuCtxSynchronize().code, ILLEGAL_ADDRESS);
    }

    pub unsafe fn copies_go_everywhere() {
        let [zero, one] = sides();
        zero.enter();
        cuMemcpyDtoD_v2(one.word, zero.word, 4).must();
        assert_eq!(one.read(one.word), 10);
        zero.store(zero.word, 30).must();
        one.enter();
        cuMemcpyPeer(one.word, one.context, zero.word, zero.context, 4).must();
        assert_eq!(one.read(one.word), 30);
        one.store(one.word, 31).must();
        cuMemcpyPeerAsync(
            zero.word,
            zero.context,
            one.word,
            one.context,
            4,
            one.stream,
        )
        .must();
        cuStreamSynchronize(one.stream).must();
        assert_eq!(zero.read(zero.word), 31);
        one.enter();
        cuMemcpyDtoDAsync_v2(one.word, zero.word, 4, one.stream).must();
        cuStreamSynchronize(one.stream).must();
        // The host reads and writes either's memory, whichever context is current. A fill needs
        // access, or a stream of the memory's own device.
        assert_eq!(zero.read(one.word), 31);
        zero.enter();
        let mut value = 43u32;
        cuMemcpyHtoD_v2(one.word, void(&mut value), 4).must();
        assert_eq!(one.read(one.word), 43);
        zero.enter();
        assert_eq!(cuMemsetD32_v2(one.word, 44, 1).code, INVALID_VALUE);
        cuMemsetD32Async(one.word, 45, 1, one.stream).must();
        cuStreamSynchronize(one.stream).must();
        assert_eq!(one.read(one.word), 45);
        zero.enter();
        cuCtxEnablePeerAccess(one.context, 0).must();
        fill_words(one.word, 46, 1);
        assert_eq!(one.read(one.word), 46);
    }

    pub unsafe fn pools_say_who_reaches_them() {
        let sides = sides();
        let [zero, one] = &sides;
        let (mut pools, mut address) = ([0; 2], 0);
        for side in &sides {
            let pool = &mut pools[side.device as usize];
            cuDeviceGetDefaultMemPool(pool, side.device).must();
            side.enter();
            cuMemAllocAsync(&mut address, 4, side.stream).must();
            assert_eq!(ordinal(address), side.device);
        }
        assert_ne!(pools[0], pools[1]);
        let may = |pool: Handle, device: i32| {
            let mut flags = 0;
            cuMemPoolGetAccess(&mut flags, pool, &mut location(device)).must();
            flags
        };
        assert_eq!(may(pools[0], 0), READ_WRITE);
        assert_eq!(may(pools[0], 1), 0);
        cuMemPoolSetAccess(pools[0], &access(1), 1).must();
        assert_eq!(may(pools[0], 1), READ_WRITE);
        zero.enter();
        cuMemAllocAsync(&mut address, 4, zero.stream).must();
        cuStreamSynchronize(zero.stream).must();
        one.store(address, 50).must();
        assert_eq!(zero.read(address), 50);
        assert_eq!(
            cuDeviceSetMemPool(1, pools[0]).code,
            INVALID_VALUE,
            "the pool is another device's"
        );
        // Access that is taken away, of memory that is there; peer access is no access to pools.
        one.enter();
        cuCtxEnablePeerAccess(zero.context, 0).must();
        let none = Access {
            flags: 0,
            ..access(1)
        };
        cuMemPoolSetAccess(pools[0], &none, 1).must();
        assert_eq!(may(pools[0], 1), 0);
        // Copies need access to pools, but for those that name the memory's context.
        assert_eq!(cuMemcpyDtoD_v2(one.word, address, 4).code, INVALID_VALUE);
        cuMemcpyPeer(one.word, one.context, address, zero.context, 4).must();
        assert_eq!(one.read(one.word), 50);
        assert_eq!(one.store(address, 51).code, ILLEGAL_ADDRESS);
    }

    pub unsafe fn mappings_say_who_reaches_them() {
        const SIZE: usize = 2 << 20;
        let sides = sides();
        let [zero, one] = &sides;
        zero.enter();
        let properties = physical(1);
        let (mut handle, mut address) = (0, 0);
        cuMemCreate(&mut handle, SIZE, &properties, 0).must();
        cuMemAddressReserve(&mut address, SIZE, 0, 0, 0).must();
        cuMemMap(address, SIZE, 0, handle, 0).must();
        let wishes = [access(0), access(1)];
        cuMemSetAccess(address, SIZE, wishes.as_ptr(), 2).must();
        zero.store(address, 60).must();
        one.store(address + 4, 61).must();
        assert_eq!((zero.read(address), zero.read(address + 4)), (60, 61));
        // Who was never named does not reach it, though its peer does.
        let none = Access {
            flags: 0,
            ..access(0)
        };
        cuMemSetAccess(address, SIZE, &none, 1).must();
        one.store(address, 62).must();
        assert_eq!(one.read(address), 62);
        assert_eq!(zero.store(address, 63).code, ILLEGAL_ADDRESS);
    }

    pub unsafe fn events_order_devices() {
        let sides = sides();
        let [zero, one] = &sides;
        zero.enter();
        let done = event();
        let gate = Gate::close(zero.stream);
        let store = function_of(zero.module, c"store");
        let (mut address, mut value) = (zero.word, 70u32);
        let mut arguments = [void(&mut address), void(&mut value)];
        launch(store, 1, 1, zero.stream, &mut arguments).must();
        cuEventRecord(done, zero.stream).must();
        one.enter();
        cuStreamWaitEvent(one.stream, done, 0).must();
        cuMemcpyDtoDAsync_v2(one.word, zero.word, 4, one.stream).must();
        gate.open();
        cuStreamSynchronize(one.stream).must();
        assert_eq!(one.read(one.word), 70);
        // An event is recorded in streams of its own device.
        one.enter();
        assert_ne!(cuEventRecord(done, one.stream).code, 0);
    }

    pub unsafe fn a_graph_spans_devices() {
        let sides = sides();
        let [zero, one] = &sides;
        let graph = graph();
        // A store on each device, a copy from one to the other, and a store behind it on the first.
        zero.enter();
        let first = add_store(
            graph,
            &[],
            function_of(zero.module, c"store"),
            zero.word,
            80,
        );
        let copy = add_copy(graph, &[first], &line_copy(one.word, zero.word, 4));
        one.enter();
        let store = function_of(one.module, c"store");
        let beside = memory(4);
        let second = add_store(graph, &[], store, beside, 81);
        zero.enter();
        let last = add_store(
            graph,
            &[copy, second],
            function_of(zero.module, c"store"),
            zero.word,
            82,
        );
        assert_ne!(last, 0);
        let exec = instantiate(graph);
        for side in &sides {
            side.enter();
            cuGraphLaunch(exec, side.stream).must();
            cuStreamSynchronize(side.stream).must();
            assert_eq!(one.read(one.word), 80);
            assert_eq!(one.read(beside), 81);
            assert_eq!(zero.read(zero.word), 82);
            one.enter();
            fill_words(one.word, 0, 1);
            fill_words(beside, 0, 1);
        }
    }

    pub unsafe fn memory_nodes_are_of_devices() {
        let sides = sides();
        let [zero, one] = &sides;
        const USED: u32 = 0;
        let used = |device: i32| {
            let mut used = 0u64;
            cuDeviceGetGraphMemAttribute(device, USED, &mut used).must();
            used
        };
        one.enter();
        let graph = graph();
        let mut params = alloc_params(4);
        params.properties[3] = 1;
        let wish = access(0);
        (params.access, params.access_count) = (std::ptr::from_ref(&wish) as usize, 1);
        let mut node = 0;
        cuGraphAddMemAllocNode(&mut node, graph, NONE, 0, &mut params).must();
        let exec = instantiate(graph);
        cuGraphLaunch(exec, one.stream).must();
        cuStreamSynchronize(one.stream).must();
        assert_eq!(ordinal(params.address), 1);
        assert!(used(1) > 0);
        assert_eq!(used(0), 0);
        one.store(params.address, 90).must();
        zero.store(params.address, 91).must();
        assert_eq!(one.read(params.address), 91);
        params.properties[3] = count() as u32;
        assert_eq!(
            cuGraphAddMemAllocNode(&mut node, graph, NONE, 0, &mut params).code,
            INVALID_VALUE
        );
    }

    pub unsafe fn variables_are_apart() {
        let sides = sides();
        let mut places = BTreeSet::new();
        for side in &sides {
            side.enter();
            let (mut address, mut size) = (0, 0);
            cuModuleGetGlobal_v2(&mut address, &mut size, side.module, c"counter".as_ptr()).must();
            assert_eq!(ordinal(address), side.device);
            let count = function_of(side.module, c"count");
            for _ in 0..=side.device {
                launch(count, 1, 1, side.stream, &mut []).must();
            }
            cuStreamSynchronize(side.stream).must();
            assert_eq!(word(address), 7 + side.device as u32 + 1);
            places.insert(address);
        }
        assert_eq!(places.len(), 2);
        // A library's kernel is each context's own as well.
        let library = library();
        let mut kernel = 0;
        cuLibraryGetKernel(&mut kernel, library, c"store".as_ptr()).must();
        for side in sides.iter().rev() {
            side.enter();
            let (mut address, mut value) = (side.word, 90 + side.device as u32);
            let mut arguments = [void(&mut address), void(&mut value)];
            launch(kernel, 1, 1, side.stream, &mut arguments).must();
            cuStreamSynchronize(side.stream).must();
            assert_eq!(word(side.word), 90 + side.device as u32);
            let (mut address, mut size) = (0, 0);
            cuLibraryGetGlobal(&mut address, &mut size, library, c"counter".as_ptr()).must();
            assert_eq!(ordinal(address), side.device);
        }
    }
}
