//! `cuGetProcAddress`: which symbols a version has.

use std::ffi::{CStr, c_void};
use std::ptr::null_mut;

use crate::conformance::api::*;
use crate::conformance::case::{Case, Line, case};
use crate::driver;

unsafe fn look_up(name: &CStr, version: i32, flags: u64) -> (Answer, *mut c_void, u32) {
    let (mut address, mut status) = (7 as *mut c_void, 77);
    let answer = cuGetProcAddress_v2(name.as_ptr(), &mut address, version, flags, &mut status);
    (answer, address, status)
}

unsafe fn found(line: &mut Line, what: &str, name: &CStr, version: i32, flags: u64) {
    let (answer, address, status) = look_up(name, version, flags);
    let is = if address.is_null() {
        "null"
    } else if address as usize == 7 {
        "untouched"
    } else {
        "found"
    };
    line.gives(what, answer, format!("{is}/{status}"));
    if answer.code != 0 {
        line.value("and", format!("{is}/{status}"));
    }
}

pub const CASES: &[Case] = &[
    case!("entry_point/newer", |line| {
        cuInit(0).must();
        for name in [
            c"cuDevSmResourceSplit",
            c"cuGraphGetId",
            c"cuKernelGetParamCount",
            c"cuStreamGetDevResource",
            c"cuLogicalEndpointCreate",
            c"cuMemGetLocationInfo",
            c"cuTensorMapSetAllocationClass",
            c"cuEventCreateFromEGLSync",
            c"cuVDPAUGetDevice",
            c"cuVDPAUCtxCreate",
            c"cuGraphicsVDPAURegisterVideoSurface",
        ] {
            let name_text = name.to_string_lossy();
            found(line, &name_text, name, 13000, 0);
            found(line, &format!("{name_text}_per_thread"), name, 13000, 2);
        }
    }),
    case!("entry_point/first_form", |line| {
        cuInit(0).must();
        for (name, version) in [
            (c"cuMemAlloc", 13000),
            (c"cuMemAlloc", 1000),
            (c"cuNoSuchFunction", 13000),
            (c"cuDevSmResourceSplit", 13000),
            (c"cuMemAlloc", 13010),
        ] {
            let mut address = 7 as *mut c_void;
            let answer = cuGetProcAddress(name.as_ptr(), &mut address, version, 0);
            let what = format!("{}_{version}", name.to_string_lossy());
            line.says_as(what, answer);
            line.value(
                "gives",
                match address as usize {
                    0 => "null",
                    7 => "untouched",
                    _ => "found",
                },
            );
        }
    }),
    case!("entry_point/versions", |line| {
        cuInit(0).must();
        for version in [-1, 0, 1000, 2000, 3020, 12000, 12080, 13000, 13010, 99000] {
            found(line, &format!("alloc_{version}"), c"cuMemAlloc", version, 0);
        }
        found(line, "pool_11010", c"cuMemAllocAsync", 11010, 0);
        found(line, "pool_11020", c"cuMemAllocAsync", 11020, 0);
        found(line, "launch_ex_11050", c"cuLaunchKernelEx", 11050, 0);
        found(line, "launch_ex_11060", c"cuLaunchKernelEx", 11060, 0);
        found(line, "parameters_12030", c"cuFuncGetParamInfo", 12030, 0);
        found(line, "parameters_12040", c"cuFuncGetParamInfo", 12040, 0);
        found(
            line,
            "conditional_12030",
            c"cuGraphConditionalHandleCreate",
            12030,
            0,
        );
    }),
    case!("entry_point/names", |line| {
        cuInit(0).must();
        found(line, "missing", c"cuNoSuchFunction", 13000, 0);
        found(line, "empty", c"", 13000, 0);
        found(line, "suffixed", c"cuMemAlloc_v2", 13000, 0);
        found(line, "not_suffixed", c"cuInit", 13000, 0);
        found(line, "itself", c"cuGetProcAddress", 13000, 0);
        found(line, "runtime", c"cudaMalloc", 13000, 0);
        found(line, "case_matters", c"cuinit", 13000, 0);
    }),
    case!("entry_point/wrong", |line| {
        cuInit(0).must();
        let (mut address, mut status) = (null_mut(), 77);
        let name = c"cuInit".as_ptr();
        line.says_as(
            "null_name",
            cuGetProcAddress_v2(std::ptr::null(), &mut address, 12000, 0, &mut status),
        );
        line.says_as(
            "null_out",
            cuGetProcAddress_v2(name, null_mut(), 12000, 0, &mut status),
        );
        line.says_as(
            "null_status",
            cuGetProcAddress_v2(name, &mut address, 12000, 0, null_mut()),
        );
        for flags in [1, 2, 3, 4, u64::MAX] {
            found(line, &format!("flags_{flags:#x}"), c"cuInit", 12000, flags);
        }
    }),
    case!("entry_point/which", |line| {
        cuInit(0).must();
        for (name, version, exported) in [
            (c"cuMemAlloc", 12000, "cuMemAlloc_v2"),
            (c"cuMemAlloc", 2000, "cuMemAlloc"),
            (c"cuCtxCreate", 12000, "cuCtxCreate_v3"),
            (c"cuCtxCreate", 11000, "cuCtxCreate_v2"),
            (
                c"cuStreamGetCaptureInfo",
                12030,
                "cuStreamGetCaptureInfo_v3",
            ),
            (c"cuEventElapsedTime", 12000, "cuEventElapsedTime"),
            (c"cuEventElapsedTime", 12080, "cuEventElapsedTime_v2"),
            (c"cuDeviceGetUuid", 12000, "cuDeviceGetUuid_v2"),
            (c"cuMemPrefetchAsync", 13000, "cuMemPrefetchAsync_v2"),
            (c"cuGetProcAddress", 12000, "cuGetProcAddress_v2"),
        ] {
            let (answer, address, _) = look_up(name, version, 0);
            let what = format!("{}_{version}", name.to_string_lossy());
            line.gives(what, answer, address as usize == driver::symbol(exported));
        }
        let per_thread = look_up(c"cuStreamQuery", 12000, 2).1 as usize;
        line.value(
            "per_thread",
            per_thread == driver::symbol("cuStreamQuery_ptsz"),
        );
        line.value(
            "per_thread_differs",
            per_thread != look_up(c"cuStreamQuery", 12000, 0).1 as usize,
        );
        let per_thread = look_up(c"cuMemcpyDtoD", 12000, 2).1 as usize;
        line.value(
            "per_thread_copy",
            per_thread == driver::symbol("cuMemcpyDtoD_v2_ptds"),
        );
        line.value(
            "legacy",
            look_up(c"cuStreamQuery", 12000, 1).1 as usize == driver::symbol("cuStreamQuery"),
        );
    }),
    case!("entry_point/export_table", |line| {
        cuInit(0).must();
        let mut table = std::ptr::null();
        line.says_as("unknown", cuGetExportTable(&mut table, &[0x11; 16]));
        line.says_as("null_out", cuGetExportTable(null_mut(), &[0x11; 16]));
    }),
];
