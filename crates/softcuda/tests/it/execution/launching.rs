//! The ways to launch.

use super::*;
use crate::conformance::structs::{LaunchAttribute, LaunchAttributeValue, LaunchConfig};

const PROGRAMMATIC_EVENT: u32 = 7;
const COMPLETION_EVENT: u32 = 12;

#[test]
fn the_deprecated_calls_prepare_a_launch_and_it_may_be_repeated() {
    unsafe {
        context();
        let (function, pointer, stream) = (function(c"store"), memory(4), stream());
        let mut address = pointer;
        cuFuncSetBlockShape(function, 1, 1, 1).must();
        cuFuncSetSharedSize(function, 0).must();
        cuParamSetSize(function, 12).must();
        cuParamSetv(function, 0, void(&mut address), 8).must();
        for value in [3, 4] {
            cuParamSeti(function, 8, value).must();
            cuLaunchGrid(function, 1, 1).must();
            assert_eq!(word(pointer), value);
        }
        cuParamSeti(function, 8, 5).must();
        cuLaunchGridAsync(function, 1, 1, stream).must();
        cuStreamSynchronize(stream).must();
        assert_eq!(word(pointer), 5);
        assert_eq!(cuFuncSetBlockShape(function, 0, 1, 1).code, 1);
    }
}

#[test]
fn a_launch_records_the_events_of_its_attributes() {
    unsafe {
        context();
        let (module, stream, flag) = (module(), stream(), pinned(64));
        flag.cast::<u32>().write_volatile(0);
        let mut argument = flag as u64;
        for (id, ends_with_the_kernel) in [(PROGRAMMATIC_EVENT, true), (COMPLETION_EVENT, false)] {
            flag.cast::<u32>().write_volatile(0);
            // Such events are not timed.
            let mut done = 0;
            cuEventCreate(&mut done, 2).must();
            let attributes = [LaunchAttribute {
                id,
                padding: 0,
                value: LaunchAttributeValue([done as u64, 0, 0, 0, 0, 0, 0, 0]),
            }];
            let config = LaunchConfig {
                grid: [1; 3],
                block: [1; 3],
                shared_bytes: 0,
                stream,
                attributes: attributes.as_ptr(),
                attribute_count: 1,
            };
            let mut arguments = [void(&mut argument)];
            let wait_for = function_of(module, c"wait_for");
            cuLaunchKernelEx(
                &config,
                wait_for,
                arguments.as_mut_ptr(),
                std::ptr::null_mut(),
            )
            .must();
            if ends_with_the_kernel {
                assert_eq!(cuEventQuery(done).code, 600);
            } else {
                cuEventSynchronize(done).must();
                assert_eq!(cuStreamQuery(stream).code, 600);
            }
            flag.cast::<u32>().write_volatile(1);
            cuEventSynchronize(done).must();
            cuStreamSynchronize(stream).must();
        }
    }
}

#[test]
fn a_library_kernels_settings_are_its_functions() {
    unsafe {
        context();
        let (library, mut kernel) = (library(), 0);
        cuLibraryGetKernel(&mut kernel, library, c"shared_at".as_ptr()).must();
        cuKernelSetAttribute(8, 100_000, kernel, 0).must();
        let mut offset = 99_996u32;
        let none = std::ptr::null_mut();
        let mut go = |function, shared| {
            let mut arguments = [void(&mut offset)];
            cuLaunchKernel(
                function,
                1,
                1,
                1,
                1,
                1,
                1,
                shared,
                0,
                arguments.as_mut_ptr(),
                none,
            )
        };
        go(kernel, 100_000).must();
        assert_eq!(go(kernel, 100_001).code, 1);
        cuCtxSynchronize().must();
        cuLibraryUnload(library).must();
        // A real driver crashes on it.
        if crate::driver::driver() == crate::driver::Driver::Software {
            assert_eq!(go(kernel, 0).code, 400);
        }
    }
}
