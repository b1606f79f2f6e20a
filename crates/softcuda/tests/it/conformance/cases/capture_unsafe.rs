//! Calls that are not about the captured stream: which of them captures forbid, and to whom.

use std::ffi::c_void;
use std::ptr::null_mut;

use super::capture_setting::*;
use crate::capture::api::*;
use crate::conformance::api::*;
use crate::conformance::case::{Case, case};
use crate::conformance::fixture::*;
use crate::conformance::structs::*;
use crate::graphs::api::*;

static ONE: u32 = 1;

const ARRAY: ArrayDescriptor = ArrayDescriptor {
    width: 16,
    height: 0,
    format: 0x20,
    channels: 1,
};

unsafe fn array() -> u64 {
    let mut array = 0;
    cuArrayCreate_v2(&mut array, &ARRAY).must();
    array as u64
}

/// The pool that the device allocates from.
unsafe fn device_pool() -> u64 {
    let mut pool = 0;
    cuDeviceGetMemPool(&mut pool, 0).must();
    pool as u64
}

unsafe fn kernel() -> u64 {
    let mut kernel = 0;
    cuLibraryGetKernel(&mut kernel, library(), c"empty".as_ptr()).must();
    kernel as u64
}

/// A page of the program's own.
fn page() -> u64 {
    let pages: &'static mut [u8] = Box::leak(Box::new([0; 8192]));
    (pages.as_mut_ptr() as u64).next_multiple_of(4096)
}

unsafe fn registered_page() -> u64 {
    let page = page();
    cuMemHostRegister_v2(page as *mut c_void, 4096, 0).must();
    page
}

/// The text of the suite's kernels, for the driver.
fn source() -> u64 {
    let text = std::ffi::CString::new(KERNELS).expect("PTX has no zero byte");
    text.into_raw() as u64
}

pub const CASES: &[Case] = &[
    asked!("capture/unsafe/mem_alloc", |it| cuMemAlloc_v2(&mut 0, 64)),
    asked!("capture/unsafe/mem_alloc_of_nothing", |it| cuMemAlloc_v2(
        &mut 0, 0
    )),
    asked!("capture/unsafe/mem_alloc_null", |it| cuMemAlloc_v2(
        null_mut(),
        64
    )),
    asked!("capture/unsafe/mem_free", || memory(64), |it| cuMemFree_v2(
        it.thing
    )),
    asked!("capture/unsafe/mem_free_null", |it| cuMemFree_v2(0)),
    asked!("capture/unsafe/mem_free_bogus", |it| cuMemFree_v2(WILD)),
    asked!("capture/unsafe/mem_alloc_pitch", |it| cuMemAllocPitch_v2(
        &mut 0, &mut 0, 64, 4, 4
    )),
    asked!("capture/unsafe/mem_alloc_host", |it| cuMemAllocHost_v2(
        &mut null_mut(),
        64
    )),
    asked!("capture/unsafe/mem_host_alloc", |it| cuMemHostAlloc(
        &mut null_mut(),
        64,
        0
    )),
    asked!("capture/unsafe/mem_free_host", || pinned(64) as u64, |it| {
        cuMemFreeHost(it.thing as *mut c_void)
    }),
    asked!("capture/unsafe/mem_alloc_managed", |it| cuMemAllocManaged(
        &mut 0, 64, 1
    )),
    asked!("capture/unsafe/mem_get_info", |it| cuMemGetInfo_v2(
        &mut 0, &mut 0
    )),
    asked!("capture/unsafe/mem_get_address_range", |it| {
        cuMemGetAddressRange_v2(&mut 0, &mut 0, it.memory)
    }),
    asked!(
        "capture/unsafe/mem_host_get_flags",
        || pinned(64) as u64,
        |it| cuMemHostGetFlags(&mut 0, it.thing as *mut c_void)
    ),
    asked!("capture/unsafe/mem_advise", || managed(4096), |it| {
        cuMemAdvise(it.thing, 4096, 1, 0)
    }),
    asked!("capture/unsafe/pointer_get_attribute", |it| {
        cuPointerGetAttribute(void(&mut 0u64), 2, it.memory)
    }),
    asked!("capture/unsafe/pointer_set_attribute", |it| {
        cuPointerSetAttribute((&raw const ONE).cast(), 6, it.memory)
    }),
    asked!("capture/unsafe/pool_create", |it| cuMemPoolCreate(
        &mut 0,
        &pool_properties()
    )),
    asked!("capture/unsafe/pool_destroy", pool, |it| cuMemPoolDestroy(
        it.thing as Handle
    )),
    asked!("capture/unsafe/pool_trim", pool, |it| cuMemPoolTrimTo(
        it.thing as Handle,
        0
    )),
    asked!("capture/unsafe/pool_get_attribute", pool, |it| {
        cuMemPoolGetAttribute(it.thing as Handle, 4, void(&mut 0u64))
    }),
    asked!("capture/unsafe/pool_set_attribute", pool, |it| {
        cuMemPoolSetAttribute(it.thing as Handle, 4, void(&mut 0u64))
    }),
    asked!("capture/unsafe/device_get_pool", |it| cuDeviceGetMemPool(
        &mut 0, 0
    )),
    asked!("capture/unsafe/graph_memory_trim", |it| {
        cuDeviceGraphMemTrim(0)
    }),
    asked!("capture/unsafe/graph_memory_attribute", |it| {
        cuDeviceGetGraphMemAttribute(0, 0, &mut 0)
    }),
    asked!("capture/unsafe/module_unload", || module() as u64, |it| {
        cuModuleUnload(it.thing as Handle)
    }),
    asked!(
        "capture/unsafe/module_get_function",
        || module() as u64,
        |it| cuModuleGetFunction(&mut 0, it.thing as Handle, c"empty".as_ptr())
    ),
    asked!("capture/unsafe/library_unload", || library() as u64, |it| {
        cuLibraryUnload(it.thing as Handle)
    }),
    asked!(
        "capture/unsafe/library_get_kernel",
        || library() as u64,
        |it| cuLibraryGetKernel(&mut 0, it.thing as Handle, c"empty".as_ptr())
    ),
    asked!(
        "capture/unsafe/func_get_attribute",
        |it| cuFuncGetAttribute(&mut 0, 0, it.store)
    ),
    asked!(
        "capture/unsafe/func_set_attribute",
        |it| cuFuncSetAttribute(it.store, 8, 1024)
    ),
    asked!("capture/unsafe/ctx_synchronize", |it| cuCtxSynchronize()),
    asked!("capture/unsafe/ctx_set_limit", |it| cuCtxSetLimit(0, 1024)),
    asked!("capture/unsafe/ctx_get_limit", |it| cuCtxGetLimit(
        &mut 0, 0
    )),
    asked!("capture/unsafe/ctx_set_cache_config", |it| {
        cuCtxSetCacheConfig(0)
    }),
    asked!("capture/unsafe/ctx_set_shared_config", |it| {
        cuCtxSetSharedMemConfig(1)
    }),
    asked!("capture/unsafe/ctx_set_flags", |it| cuCtxSetFlags(0)),
    asked!("capture/unsafe/ctx_record_event", |it| cuCtxRecordEvent(
        it.context, it.never
    )),
    asked!("capture/unsafe/ctx_wait_event", |it| cuCtxWaitEvent(
        it.context, it.outside
    )),
    asked!("capture/unsafe/stream_create", |it| cuStreamCreate(
        &mut 0, 0
    )),
    asked!("capture/unsafe/stream_destroy", |it| cuStreamDestroy_v2(
        it.other
    )),
    asked!("capture/unsafe/stream_synchronize", |it| {
        cuStreamSynchronize(it.other)
    }),
    asked!("capture/unsafe/stream_query", |it| cuStreamQuery(it.other)),
    asked!("capture/unsafe/stream_get_flags", |it| cuStreamGetFlags(
        it.other, &mut 0
    )),
    asked!("capture/unsafe/event_create", |it| cuEventCreate(&mut 0, 0)),
    asked!("capture/unsafe/event_destroy", |it| cuEventDestroy_v2(
        it.never
    )),
    asked!("capture/unsafe/event_query", |it| cuEventQuery(it.outside)),
    asked!("capture/unsafe/event_query_never_recorded", |it| {
        cuEventQuery(it.never)
    }),
    asked!("capture/unsafe/event_synchronize", |it| cuEventSynchronize(
        it.outside
    )),
    asked!("capture/unsafe/event_elapsed", |it| cuEventElapsedTime(
        &mut 0.0, it.outside, it.outside
    )),
    asked!("capture/unsafe/event_record", |it| cuEventRecord(
        it.never, it.other
    )),
    asked!("capture/unsafe/graph_create", |it| cuGraphCreate(&mut 0, 0)),
    asked!("capture/unsafe/graph_destroy", || graph() as u64, |it| {
        cuGraphDestroy(it.thing as Handle)
    }),
    asked!(
        "capture/unsafe/graph_instantiate",
        || graph() as u64,
        |it| cuGraphInstantiateWithFlags(&mut 0, it.thing as Handle, 0)
    ),
    asked!("capture/unsafe/graph_exec_destroy", executable, |it| {
        cuGraphExecDestroy(it.thing as Handle)
    }),
    asked!("capture/unsafe/graph_launch", executable, |it| {
        cuGraphLaunch(it.thing as Handle, it.other)
    }),
    asked!("capture/unsafe/graph_upload", executable, |it| {
        cuGraphUpload(it.thing as Handle, it.other)
    }),
    asked!("capture/unsafe/array_create", |it| cuArrayCreate_v2(
        &mut 0, &ARRAY
    )),
    asked!("capture/unsafe/array_destroy", array, |it| cuArrayDestroy(
        it.thing as Handle
    )),
    asked!("capture/unsafe/alloc_async", |it| cuMemAllocAsync(
        &mut 0, 64, it.other
    )),
    asked!("capture/unsafe/free_async_null", |it| cuMemFreeAsync(
        0, it.other
    )),
    asked!("capture/unsafe/launch", |it| launch(
        it.empty,
        1,
        1,
        it.other,
        &mut []
    )),
    asked!("capture/unsafe/copy_async", |it| cuMemcpyDtoDAsync_v2(
        it.memory,
        it.memory + 64,
        8,
        it.other
    )),
    asked!("capture/unsafe/copy", |it| cuMemcpyDtoD_v2(
        it.memory,
        it.memory + 64,
        8
    )),
    asked!("capture/unsafe/copy_from_host", |it| cuMemcpyHtoD_v2(
        it.memory,
        it.host as *const c_void,
        8
    )),
    asked!("capture/unsafe/fill", |it| cuMemsetD32_v2(it.memory, 1, 4)),
    asked!("capture/unsafe/prefetch", || managed(4096), |it| {
        cuMemPrefetchAsync(it.thing, 4096, 0, it.other)
    }),
    asked!("capture/unsafe/attach", || managed(4096), |it| {
        cuStreamAttachMemAsync(it.other, it.thing, 0, 1)
    }),
    asked!("capture/unsafe/callback", |it| cuStreamAddCallback(
        it.other,
        Some(callback),
        null_mut(),
        0
    )),
    asked!("capture/unsafe/host_function", |it| cuLaunchHostFunc(
        it.other,
        Some(nothing_done),
        null_mut()
    )),
    asked!("capture/unsafe/profiler_start", |it| cuProfilerStart()),
    asked!("capture/unsafe/address_reserve", |it| cuMemAddressReserve(
        &mut 0,
        2 << 20,
        0,
        0,
        0
    )),
    asked!("capture/unsafe/mem_set_pool", device_pool, |it| {
        cuMemSetMemPool(&Location { kind: 1, id: 0 }, 1, it.thing as Handle)
    }),
    asked!("capture/unsafe/device_set_pool", device_pool, |it| {
        cuDeviceSetMemPool(0, it.thing as Handle)
    }),
    asked!("capture/unsafe/pool_set_access", pool, |it| {
        cuMemPoolSetAccess(
            it.thing as Handle,
            &Access {
                location: Location { kind: 1, id: 0 },
                flags: 3,
            },
            1,
        )
    }),
    asked!("capture/unsafe/pool_get_access", pool, |it| {
        cuMemPoolGetAccess(&mut 0, it.thing as Handle, &mut Location { kind: 1, id: 0 })
    }),
    asked!("capture/unsafe/ctx_enable_peer_access", |it| {
        cuCtxEnablePeerAccess(it.context, 0)
    }),
    asked!("capture/unsafe/link_create", |it| cuLinkCreate_v2(
        0,
        null_mut(),
        null_mut(),
        &mut 0
    )),
    asked!(
        "capture/unsafe/graph_add_alloc_node",
        || graph() as u64,
        |it| cuGraphAddMemAllocNode(&mut 0, it.thing as Handle, NONE, 0, &mut alloc_params(64))
    ),
    asked!("capture/unsafe/graph_clone", || graph() as u64, |it| {
        cuGraphClone(&mut 0, it.thing as Handle)
    }),
    asked!("capture/unsafe/graph_exec_get_flags", executable, |it| {
        cuGraphExecGetFlags(it.thing as Handle, &mut 0)
    }),
    asked!("capture/unsafe/graph_exec_update", executable, |it| {
        cuGraphExecUpdate_v2(it.thing as Handle, graph(), &mut UpdateInfo::default())
    }),
    asked!("capture/unsafe/discard", || managed(4096), |it| {
        cuMemDiscardBatchAsync(&it.thing, &4096, 1, 0, it.other)
    }),
    asked!("capture/unsafe/copy_rows", |it| cuMemcpy2D_v2(&rows(it))),
    asked!("capture/unsafe/copy_batch", |it| copy_batch(it, it.other)),
    asked!("capture/unsafe/kernel_get_function", kernel, |it| {
        cuKernelGetFunction(&mut 0, it.thing as Handle)
    }),
    asked!("capture/unsafe/mem_host_register", page, |it| {
        cuMemHostRegister_v2(it.thing as *mut c_void, 4096, 0)
    }),
    asked!(
        "capture/unsafe/mem_host_unregister",
        registered_page,
        |it| cuMemHostUnregister(it.thing as *mut c_void)
    ),
    asked!("capture/unsafe/profiler_stop", |it| cuProfilerStop()),
    asked!("capture/unsafe/module_load", source, |it| cuModuleLoadData(
        &mut 0,
        it.thing as *const c_void
    )),
    asked!("capture/unsafe/begin_on_other", |it| {
        let answer = cuStreamBeginCapture_v2(it.other, RELAXED);
        cuStreamEndCapture(it.other, &mut 0).must();
        answer
    }),
];
