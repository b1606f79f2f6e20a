//! Before and at initialization.

use std::ptr::null_mut;

use crate::conformance::api::*;
use crate::conformance::case::{Case, alone, case};
use crate::conformance::fixture::*;
use crate::graphs::api::cuGraphCreate;

pub const CASES: &[Case] = &[
    alone!("init/flags", |line| {
        line.says_as("one", cuInit(1));
        line.says_as("all_ones", cuInit(u32::MAX));
        line.says_as("zero", cuInit(0));
        line.says_as("again", cuInit(0));
        line.says_as("one_after", cuInit(1));
    }),
    alone!("init/fork", |line| {
        let (mut context, mut pointer) = (context(), memory(16));
        let (mut number, mut name, mut handle) = (-1, std::ptr::null(), 0);
        let mut status = 0;
        let child = libc::fork();
        if child == 0 {
            line.says(cuDriverGetVersion(&mut number));
            line.says(cuGetErrorName(1, &mut name));
            line.says(cuDeviceGetCount(&mut number));
            line.says_as("null", cuDeviceGetCount(null_mut()));
            line.says_as("current", cuCtxGetCurrent(&mut context));
            line.says(cuCtxSetCurrent(context));
            line.says(cuMemFree_v2(pointer));
            line.says(cuMemAlloc_v2(&mut pointer, 16));
            line.says(cuStreamCreate(&mut handle, 0));
            line.says(cuStreamQuery(0));
            line.says(cuEventCreate(&mut handle, 0));
            line.says(cuGraphCreate(&mut handle, 0));
            line.says(cuModuleLoadData(&mut handle, null_mut()));
            line.says(cuInit(0));
            line.says_as("after", cuDeviceGetCount(&mut number));
            libc::_exit(0);
        }
        libc::waitpid(child, &mut status, 0);
        line.value("ended", status);
        line.says_as("parent", cuCtxSynchronize());
        line.says_as("parents", cuMemFree_v2(pointer));
    }),
    alone!("init/fork/before", |line| {
        let (mut number, mut status) = (-1, 0);
        line.says(cuDriverGetVersion(&mut number));
        let child = libc::fork();
        if child == 0 {
            line.says(cuInit(0));
            line.says(cuDeviceGetCount(&mut number));
            libc::_exit(0);
        }
        libc::waitpid(child, &mut status, 0);
        line.value("ended", status);
        line.says_as("parent", cuInit(0));
    }),
    alone!("init/before/device", |line| {
        let (mut number, mut size) = (-1, 0);
        line.says(cuDeviceGetCount(&mut number));
        line.says(cuDeviceGet(&mut number, 0));
        line.says(cuDeviceGetAttribute(&mut number, 10, 0));
        line.says(cuDeviceTotalMem_v2(&mut size, 0));
        line.says_as("null_before_init", cuDeviceGetCount(null_mut()));
        line.value("written", number);
    }),
    alone!("init/before/context", |line| {
        let mut context = 7;
        line.says(cuCtxGetCurrent(&mut context));
        line.value("current", context);
        line.says(cuCtxSetCurrent(0));
        line.says(cuCtxSynchronize());
        line.says(cuCtxCreate_v2(&mut context, 0, 0));
        line.says(cuDevicePrimaryCtxRetain(&mut context, 0));
        line.says(cuDevicePrimaryCtxRelease_v2(0));
        line.says(cuCtxPopCurrent_v2(&mut context));
    }),
    alone!("init/before/memory", |line| {
        let (mut pointer, mut host) = (0, null_mut());
        line.says(cuMemAlloc_v2(&mut pointer, 16));
        line.says(cuMemFree_v2(0));
        line.says(cuMemAllocHost_v2(&mut host, 16));
        line.says(cuMemsetD8_v2(0, 0, 0));
        line.says(cuMemcpyDtoD_v2(0, 0, 0));
        line.says(cuMemGetInfo_v2(null_mut(), null_mut()));
    }),
    alone!("init/before/stream", |line| {
        let mut handle = 0;
        line.says(cuStreamCreate(&mut handle, 0));
        line.says(cuStreamQuery(0));
        line.says(cuStreamSynchronize(0));
        line.says(cuEventCreate(&mut handle, 0));
        line.says(cuEventDestroy_v2(0));
        line.says(cuModuleLoadData(&mut handle, null_mut()));
        line.says(cuLaunchKernel(
            0,
            1,
            1,
            1,
            1,
            1,
            1,
            0,
            0,
            null_mut(),
            null_mut(),
        ));
    }),
    alone!("init/before/allowed", |line| {
        let (mut version, mut name, mut address, mut status) = (0, std::ptr::null(), null_mut(), 9);
        line.gives("version", cuDriverGetVersion(&mut version), version);
        line.says(cuGetErrorName(1, &mut name));
        line.says(cuGetErrorString(1, &mut name));
        line.says(cuGetProcAddress_v2(
            c"cuInit".as_ptr(),
            &mut address,
            12000,
            0,
            &mut status,
        ));
        line.value("status", status);
        line.value("found", !address.is_null());
    }),
    case!("init/version", |line| {
        let mut version = 0;
        line.gives("before", cuDriverGetVersion(&mut version), version);
        line.says_as("null", cuDriverGetVersion(null_mut()));
    }),
    case!("init/without_context", |line| {
        device();
        let (mut pointer, mut host, mut handle, mut number) = (0, null_mut(), 0, 0);
        line.says(cuMemAlloc_v2(&mut pointer, 16));
        line.says_as("alloc_zero", cuMemAlloc_v2(&mut pointer, 0));
        line.says_as("alloc_null", cuMemAlloc_v2(null_mut(), 16));
        line.says(cuMemFree_v2(0));
        line.says_as("free_wild", cuMemFree_v2(WILD));
        line.says(cuMemAllocHost_v2(&mut host, 16));
        line.says(cuMemHostAlloc(&mut host, 16, 0));
        line.says(cuMemAllocManaged(&mut pointer, 16, 1));
        line.says(cuStreamCreate(&mut handle, 0));
        line.says(cuStreamSynchronize(0));
        line.says(cuStreamQuery(0));
        line.says(cuEventCreate(&mut handle, 0));
        line.says(cuCtxSynchronize());
        line.says(cuCtxGetDevice(&mut number));
        line.says(cuMemsetD8_v2(WILD, 0, 1));
        line.says(cuMemcpyDtoD_v2(WILD, WILD, 1));
        line.says_as("copy_nothing", cuMemcpyDtoD_v2(WILD, WILD, 0));
        line.says(cuModuleLoadData(&mut handle, c"".as_ptr().cast()));
        line.says(cuMemGetInfo_v2(&mut 0, &mut 0));
        line.says(cuMemAllocAsync(&mut pointer, 16, 0));
        line.says(cuLaunchKernel(
            0,
            1,
            1,
            1,
            1,
            1,
            1,
            0,
            0,
            null_mut(),
            null_mut(),
        ));
        line.says(cuMemHostGetFlags(&mut 0, null_mut()));
        line.says(cuPointerGetAttribute(void(&mut number), 2, WILD));
    }),
];
