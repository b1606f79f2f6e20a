//! The default streams while something is captured.

use std::ffi::c_void;
use std::ptr::null_mut;

use super::capture_setting::*;
use crate::capture::api::*;
use crate::conformance::api::*;
use crate::conformance::case::{Case, case};
use crate::conformance::fixture::*;
use crate::graphs::api::*;

pub const CASES: &[Case] = &[
    asked!("capture/default_stream/launch", |it| launch(
        it.empty,
        1,
        1,
        0,
        &mut []
    )),
    asked!("capture/default_stream/launch_by_handle", |it| launch(
        it.empty,
        1,
        1,
        LEGACY,
        &mut []
    )),
    asked!("capture/default_stream/wrong_launch", |it| launch(
        it.empty,
        0,
        1,
        0,
        &mut []
    )),
    asked!("capture/default_stream/synchronize", |it| {
        cuStreamSynchronize(0)
    }),
    asked!("capture/default_stream/query", |it| cuStreamQuery(0)),
    asked!("capture/default_stream/is_capturing", |it| {
        cuStreamIsCapturing(0, &mut 0)
    }),
    asked!("capture/default_stream/capture_info", |it| {
        cuStreamGetCaptureInfo(0, &mut 0, &mut 0)
    }),
    asked!("capture/default_stream/get_flags", |it| cuStreamGetFlags(
        0, &mut 0
    )),
    asked!("capture/default_stream/get_id", |it| cuStreamGetId(
        0, &mut 0
    )),
    asked!("capture/default_stream/get_context", |it| cuStreamGetCtx(
        0, &mut 0
    )),
    asked!(
        "capture/default_stream/begin",
        |it| cuStreamBeginCapture_v2(0, RELAXED)
    ),
    asked!("capture/default_stream/end", |it| cuStreamEndCapture(
        0, &mut 0
    )),
    asked!("capture/default_stream/record", |it| cuEventRecord(
        it.never, 0
    )),
    asked!("capture/default_stream/record_external", |it| {
        cuEventRecordWithFlags(it.never, 0, EXTERNAL)
    }),
    asked!("capture/default_stream/wait", |it| cuStreamWaitEvent(
        0, it.outside, 0
    )),
    asked!("capture/default_stream/wait_for_captured", |it| {
        cuStreamWaitEvent(0, it.captured, 0)
    }),
    asked!("capture/default_stream/copy_async", |it| {
        cuMemcpyDtoDAsync_v2(it.memory, it.memory + 64, 8, 0)
    }),
    asked!("capture/default_stream/copy_of_nothing", |it| {
        cuMemcpyDtoD_v2(it.memory, it.memory + 64, 0)
    }),
    asked!("capture/default_stream/alloc_async", |it| cuMemAllocAsync(
        &mut 0, 64, 0
    )),
    asked!("capture/default_stream/host_function", |it| {
        cuLaunchHostFunc(0, Some(nothing_done), null_mut())
    }),
    asked!("capture/default_stream/graph_launch", executable, |it| {
        cuGraphLaunch(it.thing as Handle, 0)
    }),
    asked!("capture/default_stream/per_thread_launch", |it| launch(
        it.empty,
        1,
        1,
        PER_THREAD,
        &mut []
    )),
    asked!("capture/default_stream/per_thread_copy", |it| {
        cuMemcpyHtoD_v2_ptds(it.memory, it.host as *const c_void, 8)
    }),
    asked!("capture/default_stream/per_thread_synchronize", |it| {
        cuStreamSynchronize(PER_THREAD)
    }),
];
