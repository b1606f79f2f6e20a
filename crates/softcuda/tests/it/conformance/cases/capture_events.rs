//! Events of a capture and around it.

use super::capture_setting::*;
use crate::capture::api::*;
use crate::conformance::api::*;
use crate::conformance::case::{Case, case};

pub const CASES: &[Case] = &[
    asked!("capture/event/query_captured", |it| cuEventQuery(
        it.captured
    )),
    asked!("capture/event/synchronize_captured", |it| {
        cuEventSynchronize(it.captured)
    }),
    asked!("capture/event/elapsed_captured", |it| cuEventElapsedTime(
        &mut 0.0,
        it.outside,
        it.captured
    )),
    asked!("capture/event/elapsed_never_recorded", |it| {
        cuEventElapsedTime(&mut 0.0, it.never, it.captured)
    }),
    asked!("capture/event/destroy_captured", |it| cuEventDestroy_v2(
        it.captured
    )),
    asked!("capture/event/record", |it| cuEventRecord(
        it.never, it.stream
    )),
    asked!(
        "capture/event/record_external",
        |it| cuEventRecordWithFlags(it.never, it.stream, EXTERNAL)
    ),
    asked!("capture/event/record_flags", |it| cuEventRecordWithFlags(
        it.never, it.stream, 2
    )),
    asked!("capture/event/record_captured_elsewhere", |it| {
        cuEventRecord(it.captured, it.other)
    }),
    asked!("capture/event/record_external_outside", |it| {
        cuEventRecordWithFlags(it.never, it.other, EXTERNAL)
    }),
    asked!("capture/event/wait_for_outside", |it| cuStreamWaitEvent(
        it.stream, it.outside, 0
    )),
    asked!("capture/event/wait_for_never_recorded", |it| {
        cuStreamWaitEvent(it.stream, it.never, 0)
    }),
    asked!("capture/event/wait_for_captured", |it| cuStreamWaitEvent(
        it.stream,
        it.captured,
        0
    )),
    asked!("capture/event/wait_flags", |it| cuStreamWaitEvent(
        it.stream, it.outside, 2
    )),
    asked!("capture/event/wait_external", |it| cuStreamWaitEvent(
        it.stream, it.outside, EXTERNAL
    )),
    asked!("capture/event/wait_external_never_recorded", |it| {
        cuStreamWaitEvent(it.stream, it.never, EXTERNAL)
    }),
    asked!("capture/event/wait_external_captured", |it| {
        cuStreamWaitEvent(it.stream, it.captured, EXTERNAL)
    }),
    asked!("capture/event/fork", |it| cuStreamWaitEvent(
        it.other,
        it.captured,
        0
    )),
    asked!("capture/event/fork_external", |it| cuStreamWaitEvent(
        it.other,
        it.captured,
        EXTERNAL
    )),
    asked!("capture/event/wait_external_outside", |it| {
        cuStreamWaitEvent(it.other, it.outside, EXTERNAL)
    }),
];
