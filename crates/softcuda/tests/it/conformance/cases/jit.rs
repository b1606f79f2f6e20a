//! The options of loading PTX, its logs, and the linker.

use std::ffi::{CString, c_void};
use std::ptr::{null, null_mut};

use crate::conformance::api::*;
use crate::conformance::case::{Case, alone, case};
use crate::conformance::fixture::*;

const WRONG: &str = ".version 7.0\n.target sm_80\n.address_size 64\n.visible .entry f()\n{\n    nonsense.u32 %r1;\n}\n";

const WALL_TIME: u32 = 2;
const INFO_LOG: u32 = 3;
const INFO_LOG_SIZE: u32 = 4;
const ERROR_LOG: u32 = 5;
const ERROR_LOG_SIZE: u32 = 6;

/// Loads with options, whose values come back changed.
unsafe fn load(image: &str, options: &mut [u32], values: &mut [*mut c_void]) -> Answer {
    let (image, mut module) = (CString::new(image).expect("no zero byte inside"), 0);
    let count = options.len() as u32;
    cuModuleLoadDataEx(
        &mut module,
        image.as_ptr().cast(),
        count,
        options.as_mut_ptr(),
        values.as_mut_ptr(),
    )
}

/// A log buffer's text up to its end, or all of it.
fn logged(buffer: &[u8]) -> String {
    let end = buffer
        .iter()
        .position(|&byte| byte == 0)
        .unwrap_or(buffer.len());
    String::from_utf8_lossy(&buffer[..end]).into_owned()
}

pub const CASES: &[Case] = &[
    case!("jit/no_options", |line| {
        context();
        let (image, mut module) = (CString::new(KERNELS).expect("no zero byte inside"), 0);
        let image = image.as_ptr().cast();
        line.says_as(
            "null_arrays",
            cuModuleLoadDataEx(&mut module, image, 0, null_mut(), null_mut()),
        );
        line.says_as(
            "null_options",
            cuModuleLoadDataEx(&mut module, image, 1, null_mut(), [null_mut()].as_mut_ptr()),
        );
        line.says_as(
            "null_values",
            cuModuleLoadDataEx(&mut module, image, 1, [0].as_mut_ptr(), null_mut()),
        );
        line.says_as(
            "null_image",
            cuModuleLoadDataEx(&mut module, null(), 0, null_mut(), null_mut()),
        );
    }),
    case!("jit/error_log", |line| {
        context();
        let mut buffer = [0xffu8; 4096];
        let mut values = [buffer.as_mut_ptr().cast(), 4096 as *mut c_void];
        line.says(load(WRONG, &mut [ERROR_LOG, ERROR_LOG_SIZE], &mut values));
        let log = logged(&buffer);
        line.value("not_empty", !log.is_empty());
        line.value("names_the_line", log.contains("line 6"));
        line.value("names_the_word", log.contains("nonsense"));
        line.value("says_ptxas", log.starts_with("ptxas"));
        let size = values[1] as usize;
        line.value(
            "size_is_length",
            format!("{}", size as i64 - log.len() as i64),
        );
    }),
    case!("jit/error_log/short", |line| {
        context();
        let mut buffer = [0xffu8; 64];
        let mut values = [buffer.as_mut_ptr().cast(), 16 as *mut c_void];
        line.says(load(WRONG, &mut [ERROR_LOG, ERROR_LOG_SIZE], &mut values));
        line.value("size", values[1] as usize);
        line.value("terminated_within", buffer[..16].contains(&0));
        line.value(
            "beyond_untouched",
            buffer[16..].iter().all(|&byte| byte == 0xff),
        );
    }),
    case!("jit/log/on_success", |line| {
        context();
        let (mut info, mut error) = ([0xffu8; 1024], [0xffu8; 1024]);
        let mut values = [
            info.as_mut_ptr().cast(),
            1024 as *mut c_void,
            error.as_mut_ptr().cast(),
            1024 as *mut c_void,
        ];
        line.says(load(
            KERNELS,
            &mut [INFO_LOG, INFO_LOG_SIZE, ERROR_LOG, ERROR_LOG_SIZE],
            &mut values,
        ));
        line.value("error_first_byte", error[0]);
        line.value("info_first_byte_is_zero", info[0] == 0);
        line.value("error_size", values[3] as usize);
        line.value("info_size", values[1] as usize);
    }),
    case!("jit/log/wrong", |line| {
        context();
        let mut buffer = [0u8; 64];
        let pointer = buffer.as_mut_ptr().cast();
        line.says_as(
            "size_first",
            load(
                KERNELS,
                &mut [ERROR_LOG_SIZE, ERROR_LOG],
                &mut [64 as *mut c_void, pointer],
            ),
        );
        line.says_as(
            "null_buffer",
            load(
                KERNELS,
                &mut [ERROR_LOG, ERROR_LOG_SIZE],
                &mut [null_mut(), 64 as *mut c_void],
            ),
        );
        line.says_as("no_size", load(KERNELS, &mut [ERROR_LOG], &mut [pointer]));
        line.says_as(
            "size_zero",
            load(
                KERNELS,
                &mut [ERROR_LOG, ERROR_LOG_SIZE],
                &mut [pointer, null_mut()],
            ),
        );
        line.says_as(
            "size_alone",
            load(KERNELS, &mut [ERROR_LOG_SIZE], &mut [64 as *mut c_void]),
        );
    }),
    case!("jit/options", |line| {
        context();
        let mut values = [null_mut()];
        line.says_as("wall_time", load(KERNELS, &mut [WALL_TIME], &mut values));
        let number = |value: usize| value as *mut c_void;
        for (option, value) in [
            (0, 32),
            (0, 0),
            (0, 1000),
            (1, 128),
            (7, 0),
            (7, 4),
            (7, 5),
            (8, 0),
            (9, 80),
            (9, 90),
            (9, 100),
            (9, 1),
            (10, 0),
            (10, 9),
            (11, 1),
            (12, 1),
            (13, 1),
            (14, 0),
            (14, 9),
            (15, 0),
            (16, 1),
            (20, 0),
            (21, 1),
            (22, 0),
            (30, 1),
            (31, 2),
            (32, 128),
            (33, 1),
            (34, 1),
            (35, 0),
            (99, 0),
        ] {
            line.says_as(
                format!("{option}_{value}"),
                load(KERNELS, &mut [option], &mut [number(value)]),
            );
        }
    }),
    case!("jit/link", |line| {
        context();
        let (mut state, mut cubin, mut size, mut module) = (0, null_mut(), 0, 0);
        line.says(cuLinkCreate_v2(0, null_mut(), null_mut(), &mut state));
        let text = CString::new(KERNELS).expect("no zero byte inside");
        let data = text.as_ptr().cast_mut().cast();
        let length = KERNELS.len() + 1;
        line.says(cuLinkAddData_v2(
            state,
            1,
            data,
            length,
            c"suite".as_ptr(),
            0,
            null_mut(),
            null_mut(),
        ));
        line.says(cuLinkComplete(state, &mut cubin, &mut size));
        line.value("gives", !cubin.is_null() && size > 0);
        line.says_as("load", cuModuleLoadData(&mut module, cubin));
        line.says(cuLinkDestroy(state));
        line.says_as(
            "function",
            cuModuleGetFunction(&mut 0, module, c"empty".as_ptr()),
        );
    }),
    alone!("jit/link/wrong", |line| {
        context();
        let (mut state, mut cubin, mut size) = (0, null_mut(), 0);
        line.says_as(
            "null_out",
            cuLinkCreate_v2(0, null_mut(), null_mut(), null_mut()),
        );
        cuLinkCreate_v2(0, null_mut(), null_mut(), &mut state).must();
        let text = CString::new(WRONG).expect("no zero byte inside");
        let data: *mut c_void = text.as_ptr().cast_mut().cast();
        let length = WRONG.len() + 1;
        line.says_as(
            "syntax",
            cuLinkAddData_v2(state, 1, data, length, null(), 0, null_mut(), null_mut()),
        );
        line.says_as(
            "kind",
            cuLinkAddData_v2(state, 99, data, length, null(), 0, null_mut(), null_mut()),
        );
        line.says_as(
            "null_data",
            cuLinkAddData_v2(state, 1, null_mut(), 4, null(), 0, null_mut(), null_mut()),
        );
        line.says_as(
            "complete_after_errors",
            cuLinkComplete(state, &mut cubin, &mut size),
        );
        line.says_as("destroy", cuLinkDestroy(state));
        line.says_as("destroy_null", cuLinkDestroy(0));
    }),
];
