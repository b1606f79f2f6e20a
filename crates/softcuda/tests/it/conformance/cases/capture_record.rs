//! What a captured stream makes of each call.

use std::ffi::c_void;
use std::ptr::{null, null_mut};

use super::capture_setting::*;
use crate::capture::api::*;
use crate::conformance::api::*;
use crate::conformance::case::{Case, case};
use crate::conformance::fixture::*;
use crate::conformance::structs::{Copy3d, LaunchAttributeValue, Location};
use crate::graphs::api::*;

/// A launch of a kernel that takes some, without any.
unsafe fn launch_without_parameters(it: &Setting) -> Answer {
    let none = null_mut();
    cuLaunchKernel(it.store, 1, 1, 1, 1, 1, 1, 0, it.stream, none, null_mut())
}

unsafe fn cooperative(it: &Setting, blocks: u32) -> Answer {
    cuLaunchCooperativeKernel(it.empty, blocks, 1, 1, 1024, 1, 1, 0, it.stream, null_mut())
}

unsafe fn instantiate_with_upload(it: &Setting) -> Answer {
    const UPLOAD: u64 = 2;
    let mut params = InstantiateParams {
        flags: UPLOAD,
        upload: it.stream,
        ..InstantiateParams::default()
    };
    cuGraphInstantiateWithParams(&mut 0, it.thing as Handle, &mut params)
}

fn slices(it: &Setting) -> Copy3d {
    Copy3d {
        src_kind: 2,
        src_device: it.memory,
        src_pitch: 16,
        src_height: 2,
        dst_kind: 2,
        dst_device: it.memory + 128,
        dst_pitch: 16,
        dst_height: 2,
        width: 16,
        height: 2,
        depth: 2,
        // SAFETY: all its parts may be zero.
        ..unsafe { std::mem::zeroed() }
    }
}

pub const CASES: &[Case] = &[
    asked!("capture/stream/synchronize", |it| cuStreamSynchronize(
        it.stream
    )),
    asked!("capture/stream/query", |it| cuStreamQuery(it.stream)),
    asked!("capture/stream/launch", |it| launch(
        it.empty,
        1,
        1,
        it.stream,
        &mut []
    )),
    asked!("capture/stream/launch_of_nothing", |it| launch(
        it.empty,
        0,
        1,
        it.stream,
        &mut []
    )),
    asked!("capture/stream/launch_without_parameters", |it| {
        launch_without_parameters(it)
    }),
    asked!("capture/stream/launch_null_function", |it| launch(
        0,
        1,
        1,
        it.stream,
        &mut []
    )),
    asked!("capture/stream/cooperative", |it| cooperative(it, 1)),
    asked!("capture/stream/cooperative_too_large", |it| cooperative(
        it,
        1 << 20
    )),
    asked!("capture/stream/copy", |it| cuMemcpyDtoDAsync_v2(
        it.memory,
        it.memory + 64,
        8,
        it.stream
    )),
    asked!("capture/stream/copy_of_nothing", |it| cuMemcpyDtoDAsync_v2(
        it.memory,
        it.memory + 64,
        0,
        it.stream
    )),
    asked!("capture/stream/copy_wild", |it| cuMemcpyDtoDAsync_v2(
        WILD, it.memory, 8, it.stream
    )),
    asked!("capture/stream/copy_from_host", |it| cuMemcpyHtoDAsync_v2(
        it.memory,
        it.host as *const c_void,
        8,
        it.stream
    )),
    asked!("capture/stream/copy_to_host", |it| cuMemcpyDtoHAsync_v2(
        it.host as *mut c_void,
        it.memory,
        8,
        it.stream
    )),
    asked!("capture/stream/copy_unified", |it| cuMemcpyAsync(
        it.memory,
        it.host as u64,
        8,
        it.stream
    )),
    asked!("capture/stream/copy_peer", |it| cuMemcpyPeerAsync(
        it.memory,
        it.context,
        it.memory + 64,
        it.context,
        8,
        it.stream
    )),
    asked!("capture/stream/fill_8", |it| cuMemsetD8Async(
        it.memory, 1, 7, it.stream
    )),
    asked!("capture/stream/fill_16", |it| cuMemsetD16Async(
        it.memory, 1, 7, it.stream
    )),
    asked!("capture/stream/fill_rows", |it| cuMemsetD2D32Async(
        it.memory, 64, 1, 3, 2, it.stream
    )),
    asked!("capture/stream/fill_of_nothing", |it| cuMemsetD32Async(
        it.memory, 1, 0, it.stream
    )),
    asked!("capture/stream/fill_wild", |it| cuMemsetD32Async(
        WILD, 1, 4, it.stream
    )),
    asked!("capture/stream/fill_unaligned", |it| cuMemsetD32Async(
        it.memory + 1,
        1,
        4,
        it.stream
    )),
    asked!("capture/stream/fill_pitch_too_small", |it| {
        cuMemsetD2D32Async(it.memory, 4, 1, 3, 2, it.stream)
    }),
    asked!("capture/stream/fill_too_long", |it| cuMemsetD8Async(
        it.memory,
        1,
        1 << 40,
        it.stream
    )),
    asked!("capture/stream/host_function", |it| cuLaunchHostFunc(
        it.stream,
        Some(nothing_done),
        null_mut()
    )),
    asked!("capture/stream/host_function_null", |it| cuLaunchHostFunc(
        it.stream,
        None,
        null_mut()
    )),
    asked!("capture/stream/callback", |it| cuStreamAddCallback(
        it.stream,
        Some(callback),
        null_mut(),
        0
    )),
    asked!("capture/stream/alloc", |it| cuMemAllocAsync(
        &mut 0, 64, it.stream
    )),
    asked!("capture/stream/alloc_of_nothing", |it| cuMemAllocAsync(
        &mut 0, 0, it.stream
    )),
    asked!("capture/stream/alloc_null", |it| cuMemAllocAsync(
        null_mut(),
        64,
        it.stream
    )),
    asked!("capture/stream/alloc_from_pool", pool, |it| {
        cuMemAllocFromPoolAsync(&mut 0, 64, it.thing as Handle, it.stream)
    }),
    asked!("capture/stream/alloc_too_large", |it| cuMemAllocAsync(
        &mut 0,
        1 << 50,
        it.stream
    )),
    asked!("capture/stream/free_plain", |it| cuMemFreeAsync(
        it.memory, it.stream
    )),
    asked!("capture/stream/free_null", |it| cuMemFreeAsync(
        0, it.stream
    )),
    asked!("capture/stream/free_wild", |it| cuMemFreeAsync(
        WILD, it.stream
    )),
    asked!("capture/stream/write_32", |it| cuStreamWriteValue32_v2(
        it.stream, it.memory, 7, 0
    )),
    asked!("capture/stream/wait_32", |it| cuStreamWaitValue32_v2(
        it.stream, it.memory, 7, 0
    )),
    asked!("capture/stream/write_64", |it| cuStreamWriteValue64_v2(
        it.stream, it.memory, 7, 0
    )),
    asked!("capture/stream/write_wild", |it| cuStreamWriteValue32_v2(
        it.stream, WILD, 7, 0
    )),
    asked!("capture/stream/write_32_old", |it| cuStreamWriteValue32(
        it.stream, it.memory, 7, 0
    )),
    asked!("capture/stream/batch_of_nothing", |it| {
        cuStreamBatchMemOp_v2(it.stream, 0, null_mut(), 0)
    }),
    asked!("capture/stream/batch_flags", |it| cuStreamBatchMemOp_v2(
        it.stream,
        0,
        null_mut(),
        1
    )),
    asked!("capture/stream/graph_launch", executable, |it| {
        cuGraphLaunch(it.thing as Handle, it.stream)
    }),
    asked!("capture/stream/graph_upload", executable, |it| {
        cuGraphUpload(it.thing as Handle, it.stream)
    }),
    asked!("capture/stream/attach", || managed(4096), |it| {
        cuStreamAttachMemAsync(it.stream, it.thing, 0, 1)
    }),
    asked!("capture/stream/prefetch", || managed(4096), |it| {
        cuMemPrefetchAsync(it.thing, 4096, 0, it.stream)
    }),
    asked!("capture/stream/begin", |it| cuStreamBeginCapture_v2(
        it.stream, RELAXED
    )),
    asked!("capture/stream/end_null_out", |it| cuStreamEndCapture(
        it.stream,
        null_mut()
    )),
    asked!("capture/stream/end_other", |it| cuStreamEndCapture(
        it.other, &mut 0
    )),
    asked!("capture/stream/get_flags", |it| cuStreamGetFlags(
        it.stream, &mut 0
    )),
    asked!("capture/stream/get_id", |it| cuStreamGetId(
        it.stream, &mut 0
    )),
    asked!("capture/stream/get_priority", |it| cuStreamGetPriority(
        it.stream, &mut 0
    )),
    asked!("capture/stream/get_context", |it| cuStreamGetCtx(
        it.stream, &mut 0
    )),
    asked!("capture/stream/get_device", |it| cuStreamGetDevice(
        it.stream, &mut 0
    )),
    asked!("capture/stream/get_attribute", |it| cuStreamGetAttribute(
        it.stream,
        1,
        &mut LaunchAttributeValue([0; 8])
    )),
    asked!("capture/stream/copy_attributes", |it| {
        cuStreamCopyAttributes(it.stream, it.other)
    }),
    asked!(
        "capture/stream/is_capturing_null",
        |it| cuStreamIsCapturing(it.stream, null_mut())
    ),
    asked!("capture/stream/update_nothing", |it| {
        cuStreamUpdateCaptureDependencies_v2(it.stream, null(), null(), 0, 0)
    }),
    asked!("capture/stream/update_other", |it| {
        cuStreamUpdateCaptureDependencies_v2(it.other, null(), null(), 0, 0)
    }),
    asked!("capture/stream/copy_rows", |it| cuMemcpy2DAsync_v2(
        &rows(it),
        it.stream
    )),
    asked!("capture/stream/copy_slices", |it| cuMemcpy3DAsync_v2(
        &slices(it),
        it.stream
    )),
    asked!("capture/stream/copy_slices_peer", |it| cuMemcpy3DPeerAsync(
        &slices(it),
        it.stream
    )),
    asked!("capture/stream/copy_batch", |it| copy_batch(it, it.stream)),
    asked!(
        "capture/stream/prefetch_to_location",
        || managed(4096),
        |it| cuMemPrefetchAsync_v2(it.thing, 4096, Location { kind: 1, id: 0 }, 0, it.stream)
    ),
    asked!("capture/stream/prefetch_batch", || managed(4096), |it| {
        cuMemPrefetchBatchAsync(
            &it.thing,
            &4096,
            1,
            &Location { kind: 1, id: 0 },
            &0,
            1,
            0,
            it.stream,
        )
    }),
    asked!("capture/stream/discard_batch", || managed(4096), |it| {
        cuMemDiscardBatchAsync(&it.thing, &4096, 1, 0, it.stream)
    }),
    asked!("capture/stream/wait_32_old", |it| cuStreamWaitValue32(
        it.stream, it.memory, 7, 0
    )),
    asked!("capture/stream/batch_old", |it| cuStreamBatchMemOp(
        it.stream,
        0,
        null_mut(),
        0
    )),
    asked!("capture/stream/wait_flags", |it| cuStreamWaitValue32_v2(
        it.stream, it.memory, 7, 9
    )),
    asked!("capture/stream/write_flags", |it| cuStreamWriteValue32_v2(
        it.stream, it.memory, 7, 4
    )),
    asked!("capture/stream/write_unaligned", |it| {
        cuStreamWriteValue32_v2(it.stream, it.memory + 1, 7, 0)
    }),
    asked!(
        "capture/stream/instantiate_with_upload",
        || graph() as u64,
        |it| instantiate_with_upload(it)
    ),
    asked!(
        "capture/stream/get_green_context",
        |it| cuStreamGetGreenCtx(it.stream, &mut 0)
    ),
    asked!("capture/stream/set_attribute", |it| cuStreamSetAttribute(
        it.stream,
        8,
        &LaunchAttributeValue([0; 8])
    )),
    asked!("capture/stream/fill_wild_rows", |it| cuMemsetD2D8Async(
        WILD, 8, 1, 4, 4, it.stream
    )),
    asked!("capture/stream/copy_host_to_host", |it| cuMemcpyAsync(
        it.host as u64,
        it.host as u64 + 64,
        8,
        it.stream
    )),
    asked!("capture/stream/copy_null_host", |it| cuMemcpyHtoDAsync_v2(
        it.memory,
        null(),
        8,
        it.stream
    )),
];
