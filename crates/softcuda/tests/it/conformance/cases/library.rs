//! Libraries and their kernels, which belong to no context.

use std::ffi::{CString, c_void};
use std::ptr::{null, null_mut};

use crate::conformance::api::*;
use crate::conformance::case::{Case, alone, case};
use crate::conformance::fixture::*;

unsafe fn load(library: *mut Handle, image: *const c_void) -> Answer {
    cuLibraryLoadData(
        library,
        image,
        null_mut(),
        null_mut(),
        0,
        null_mut(),
        null_mut(),
        0,
    )
}

unsafe fn kernel(library: Handle, name: &std::ffi::CStr) -> Handle {
    let mut kernel = 0;
    cuLibraryGetKernel(&mut kernel, library, name.as_ptr()).must();
    kernel
}

pub const CASES: &[Case] = &[
    alone!("library/kernel/parameters_without_context", |line| {
        cuInit(0).must();
        let (library, mut kernel, mut offset, mut size) = (library(), 0, 7, 7);
        line.says(cuLibraryGetKernel(&mut kernel, library, c"many".as_ptr()));
        let ask = cuKernelGetParamInfo;
        line.says_as("never", ask(kernel, 0, &mut offset, &mut size));
        line.value("gives", format!("{offset} {size}"));
        line.says_as("never_index", ask(kernel, 99, &mut offset, &mut size));
        line.says_as("never_null", ask(kernel, 0, null_mut(), &mut size));
        line.says_as("never_null_kernel", ask(0, 0, &mut offset, &mut size));
        line.says_as("function", cuKernelGetFunction(&mut 0, kernel));
        let mut context = 0;
        cuDevicePrimaryCtxRetain(&mut context, 0).must();
        line.says_as("not_current", ask(kernel, 0, &mut offset, &mut size));
        cuCtxSetCurrent(context).must();
        line.says_as("current", ask(kernel, 1, &mut offset, &mut size));
        line.value("gives", format!("{offset} {size}"));
        line.says_as("index", ask(kernel, 99, &mut offset, &mut size));
        line.says_as("null_kernel", ask(0, 0, &mut offset, &mut size));
        cuCtxSetCurrent(0).must();
        line.says_as("no_longer", ask(kernel, 0, &mut offset, &mut size));
    }),
    alone!("library/load/without_context", |line| {
        device();
        let (text, mut library) = (CString::new(KERNELS).expect("no zero byte inside"), 0);
        line.says(load(&mut library, text.as_ptr().cast()));
        let mut kernel = 0;
        line.says(cuLibraryGetKernel(&mut kernel, library, c"empty".as_ptr()));
        line.says(cuKernelGetFunction(&mut 0, kernel));
        line.says(cuLibraryGetModule(&mut 0, library));
        line.says(cuLibraryUnload(library));
    }),
    case!("library/load/wrong", |line| {
        context();
        let mut library = 0;
        line.says_as("null_out", load(null_mut(), c"x".as_ptr().cast()));
        line.says_as("null_image", load(&mut library, null()));
        line.says_as("empty", load(&mut library, c"".as_ptr().cast()));
        line.says_as("text", load(&mut library, c"hello".as_ptr().cast()));
        let wrong =
            c".version 7.0\n.target sm_80\n.address_size 64\n.visible .entry f() { nonsense; }\n";
        line.says_as("syntax", load(&mut library, wrong.as_ptr().cast()));
        line.says_as("unload_null", cuLibraryUnload(0));
    }),
    alone!("library/load/option", |line| {
        context();
        let (text, mut library) = (CString::new(KERNELS).expect("no zero byte inside"), 0);
        let (mut preserved, mut unknown, mut yes) = ([1u32], [9u32], [1 as *mut c_void]);
        let image = text.as_ptr().cast();
        let (none, values) = (null_mut(), yes.as_mut_ptr());
        let answer = cuLibraryLoadData(
            &mut library,
            image,
            none,
            null_mut(),
            0,
            preserved.as_mut_ptr(),
            values,
            1,
        );
        line.says_as("preserved", answer);
        let answer = cuLibraryLoadData(
            &mut library,
            image,
            none,
            null_mut(),
            0,
            unknown.as_mut_ptr(),
            values,
            1,
        );
        line.says_as("unknown", answer);
    }),
    case!("library/kernel", |line| {
        context();
        let (library, mut first, mut second, mut back) = (library(), 0, 0, 0);
        line.says(cuLibraryGetKernel(&mut first, library, c"many".as_ptr()));
        line.gives(
            "same",
            cuLibraryGetKernel(&mut second, library, c"many".as_ptr()),
            first == second,
        );
        line.gives(
            "library",
            cuKernelGetLibrary(&mut back, first),
            back == library,
        );
        line.says_as(
            "missing",
            cuLibraryGetKernel(&mut second, library, c"missing".as_ptr()),
        );
        line.says_as(
            "null_name",
            cuLibraryGetKernel(&mut second, library, null()),
        );
        line.says_as(
            "null_out",
            cuLibraryGetKernel(null_mut(), library, c"many".as_ptr()),
        );
        line.says_as(
            "null_library",
            cuLibraryGetKernel(&mut second, 0, c"many".as_ptr()),
        );
        let mut name = null();
        line.gives("name", cuKernelGetName(&mut name, first), text(name));
        line.says_as("name_null_out", cuKernelGetName(null_mut(), first));
        line.says_as("name_null_kernel", cuKernelGetName(&mut name, 0));
        let (mut count, mut kernels) = (0, [0; 32]);
        line.gives("count", cuLibraryGetKernelCount(&mut count, library), count);
        line.says(cuLibraryEnumerateKernels(kernels.as_mut_ptr(), 32, library));
        line.value(
            "listed",
            kernels.iter().filter(|&&kernel| kernel != 0).count(),
        );
        line.value("lists_it", kernels.contains(&first));
    }),
    case!("library/kernel/function", |line| {
        context();
        let library = library();
        let (kernel, mut first, mut second, mut module, mut of) =
            (kernel(library, c"empty"), 0, 0, 0, 0);
        line.says(cuKernelGetFunction(&mut first, kernel));
        line.gives(
            "same",
            cuKernelGetFunction(&mut second, kernel),
            first == second,
        );
        line.says(cuLibraryGetModule(&mut module, library));
        line.gives(
            "module_of_function",
            cuFuncGetModule(&mut of, first),
            of == module,
        );
        line.gives(
            "by_module",
            cuModuleGetFunction(&mut second, module, c"empty".as_ptr()),
            first == second,
        );
        line.says_as("launch", launch(first, 1, 1, 0, &mut []));
        line.says_as("launch_kernel_handle", launch(kernel, 1, 1, 0, &mut []));
        line.says_as("null_kernel", cuKernelGetFunction(&mut second, 0));
        line.says_as("null_out", cuKernelGetFunction(null_mut(), kernel));
        line.says_as("unload_module", cuModuleUnload(module));
        line.says(cuCtxSynchronize());
    }),
    case!("library/kernel/attributes", |line| {
        context();
        let (kernel, mut value) = (kernel(library(), c"static_shared"), -7);
        for number in [0, 1, 5, 6, 8, 9, 10, 14, 16, 99] {
            line.gives(
                number,
                cuKernelGetAttribute(&mut value, number, kernel, 0),
                value,
            );
        }
        line.says_as(
            "wrong_device",
            cuKernelGetAttribute(&mut value, 0, kernel, 1000),
        );
        line.says_as("null_out", cuKernelGetAttribute(null_mut(), 0, kernel, 0));
        line.says_as("set_shared", cuKernelSetAttribute(8, 65536, kernel, 0));
        line.gives(
            "shared",
            cuKernelGetAttribute(&mut value, 8, kernel, 0),
            value,
        );
        let mut function = 0;
        cuKernelGetFunction(&mut function, kernel).must();
        line.gives(
            "shared_of_function",
            cuFuncGetAttribute(&mut value, 8, function),
            value,
        );
        line.says_as("set_too_much", cuKernelSetAttribute(8, 1 << 20, kernel, 0));
        line.says_as("set_read_only", cuKernelSetAttribute(0, 64, kernel, 0));
        line.says_as("cache", cuKernelSetCacheConfig(kernel, 1, 0));
        line.says_as("cache_unknown", cuKernelSetCacheConfig(kernel, 9, 0));
    }),
    case!("library/kernel/parameters", |line| {
        context();
        let (kernel, mut offset, mut size) = (kernel(library(), c"many"), 77, 77);
        for index in 0..6 {
            line.gives(
                index,
                cuKernelGetParamInfo(kernel, index, &mut offset, &mut size),
                format!("{offset}+{size}"),
            );
        }
        line.says_as(
            "null_size",
            cuKernelGetParamInfo(kernel, 0, &mut offset, null_mut()),
        );
        line.says_as(
            "null_offset",
            cuKernelGetParamInfo(kernel, 0, null_mut(), &mut size),
        );
    }),
    case!("library/global", |line| {
        context();
        let (library, mut pointer, mut size, mut by_module, mut module) = (library(), 0, 0, 0, 0);
        line.gives(
            "counter",
            cuLibraryGetGlobal(&mut pointer, &mut size, library, c"counter".as_ptr()),
            size,
        );
        line.value("initial", word(pointer));
        cuLibraryGetModule(&mut module, library).must();
        cuModuleGetGlobal_v2(&mut by_module, &mut size, module, c"counter".as_ptr()).must();
        line.value("same_by_module", by_module == pointer);
        line.says_as(
            "missing",
            cuLibraryGetGlobal(&mut pointer, &mut size, library, c"missing".as_ptr()),
        );
        line.says_as(
            "neither",
            cuLibraryGetGlobal(null_mut(), null_mut(), library, c"counter".as_ptr()),
        );
        line.says_as(
            "null_name",
            cuLibraryGetGlobal(&mut pointer, &mut size, library, null()),
        );
        line.says_as(
            "managed",
            cuLibraryGetManaged(&mut pointer, &mut size, library, c"counter".as_ptr()),
        );
        line.says_as(
            "unified",
            cuLibraryGetUnifiedFunction(&mut null_mut(), library, c"descend".as_ptr()),
        );
    }),
    alone!("library/unload", |line| {
        context();
        let library = library();
        line.says_as("first", cuLibraryUnload(library));
        line.says_as("second", cuLibraryUnload(library));
    }),
    alone!("library/unload/then_kernel", |line| {
        context();
        let library = library();
        cuLibraryUnload(library).must();
        line.says(cuLibraryGetKernel(&mut 0, library, c"empty".as_ptr()));
    }),
];
