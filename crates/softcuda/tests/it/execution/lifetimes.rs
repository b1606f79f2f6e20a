//! What is destroyed while work uses it, and what stays for the work's sake.

use std::sync::atomic::AtomicUsize;
use std::time::Duration;

use super::*;
use crate::driver::{Driver, driver};

/// Until a call that does not return is let go.
const PATIENCE: Duration = Duration::from_millis(200);

/// `CUDA_ERROR_INVALID_HANDLE`, `CUDA_ERROR_NOT_PERMITTED`.
const INVALID_HANDLE: u32 = 400;
const NOT_PERMITTED: u32 = 800;

#[test]
fn unloading_a_module_waits_for_its_launches_and_all_others() {
    unsafe {
        context();
        let (stream, pointer) = (stream(), memory(4));
        for of_the_module in [true, false] {
            let (module, other) = (module(), module());
            let launched = if of_the_module { module } else { other };
            let store_kernel = function_of(launched, c"store");
            let gate = Gate::close(stream);
            for value in 0..10 {
                store(store_kernel, stream, pointer, value).must();
            }
            let (answer, waited) = while_held(gate, PATIENCE, || cuModuleUnload(module));
            answer.must();
            assert!(waited);
            cuStreamSynchronize(stream).must();
            assert_eq!(word(pointer), 9);
            cuModuleUnload(other).must();
        }
    }
}

#[test]
fn unloading_a_library_waits_once_a_kernel_of_it_ran() {
    unsafe {
        context();
        let (stream, pointer) = (stream(), memory(4));
        for ran in [true, false] {
            let (library, mut kernel) = (library(), 0);
            cuLibraryGetKernel(&mut kernel, library, c"store".as_ptr()).must();
            if ran {
                // Before the gate closes: a driver loads a kernel at its first launch, and waits
                // for the device to do so.
                store(kernel, stream, pointer, 77).must();
                cuStreamSynchronize(stream).must();
            }
            let gate = Gate::close(stream);
            for value in (0..10).filter(|_| ran) {
                store(kernel, stream, pointer, value).must();
            }
            let (answer, waited) = while_held(gate, PATIENCE, || cuLibraryUnload(library));
            answer.must();
            assert_eq!(waited, ran);
            cuStreamSynchronize(stream).must();
            assert_eq!(word(pointer), 9);
        }
    }
}

/// Threads that unload one module at once, which no program may do: a real driver may crash.
#[test]
fn of_threads_that_unload_a_module_one_does() {
    if driver() != Driver::Software {
        return;
    }
    unsafe {
        let context = context();
        let (module, stream) = (module(), stream());
        let gate = Gate::close(stream);
        let threads: Vec<_> = (0..3)
            .map(|_| {
                std::thread::spawn(move || {
                    cuCtxSetCurrent(context).must();
                    cuModuleUnload(module).code
                })
            })
            .collect();
        std::thread::sleep(Duration::from_millis(50));
        // They wait with nothing locked, and the module is there.
        function_of(module, c"store");
        gate.open();
        let mut codes: Vec<u32> = threads.into_iter().map(|it| it.join().unwrap()).collect();
        codes.sort();
        assert_eq!(codes, [0, INVALID_HANDLE, INVALID_HANDLE]);
    }
}

#[test]
fn a_host_function_may_not_unload_a_module() {
    static MODULE: AtomicUsize = AtomicUsize::new(0);
    static CODE: AtomicU32 = AtomicU32::new(0);
    unsafe extern "C" fn unload(_: *mut c_void) {
        let answer = cuModuleUnload(MODULE.load(Ordering::SeqCst));
        CODE.store(answer.code, Ordering::SeqCst);
    }
    // The contract leaves it open whether a real driver refuses the call or waits for ever.
    if driver() != Driver::Software {
        return;
    }
    unsafe {
        context();
        let (module, stream) = (module(), stream());
        MODULE.store(module, Ordering::SeqCst);
        cuLaunchHostFunc(stream, Some(unload), std::ptr::null_mut()).must();
        cuStreamSynchronize(stream).must();
        assert_eq!(CODE.load(Ordering::SeqCst), NOT_PERMITTED);
        cuModuleUnload(module).must();
    }
}

#[test]
fn of_memory_that_of_a_pool_is_freed_at_once() {
    unsafe {
        context();
        let (held, idle, mut pooled, plain) = (stream(), stream(), 0, memory(64));
        cuMemAllocAsync(&mut pooled, 64, idle).must();
        cuStreamSynchronize(idle).must();
        for (at, waits) in [(pooled, false), (plain, true)] {
            let gate = Gate::close(held);
            let (answer, waited) = while_held(gate, PATIENCE, || cuMemFree_v2(at));
            answer.must();
            assert_eq!(waited, waits);
        }
    }
}

#[test]
fn streams_and_events_destroyed_with_work_pending_finish_it() {
    unsafe {
        context();
        let (module, first, second, seen, pointer) =
            (module(), stream(), stream(), counter(), memory(4));
        let store_kernel = function_of(module, c"store");
        let gate = Gate::close(first);
        let done = event();
        cuEventRecord(done, first).must();
        cuStreamWaitEvent(second, done, 0).must();
        cuLaunchHostFunc(second, Some(add_one), pointer_to(seen)).must();
        store(store_kernel, second, pointer, 5).must();
        cuEventDestroy_v2(done).must();
        cuStreamDestroy_v2(first).must();
        cuStreamDestroy_v2(second).must();
        assert_eq!(seen.load(Ordering::SeqCst), 0);
        gate.open();
        cuCtxSynchronize().must();
        assert_eq!((seen.load(Ordering::SeqCst), word(pointer)), (1, 5));
    }
}

#[test]
fn a_library_is_apart_in_each_context_and_unloads_from_all() {
    unsafe {
        let primary = context();
        let library = library();
        let mut kernel = 0;
        cuLibraryGetKernel(&mut kernel, library, c"count".as_ptr()).must();
        let total = || {
            let (mut pointer, mut size) = (0, 0);
            cuLibraryGetGlobal(&mut pointer, &mut size, library, c"counter".as_ptr()).must();
            pointer
        };
        let made = new_context();
        let there = total();
        launch(kernel, 2, 5, 0, &mut []).must();
        assert_eq!(word(there), 17);
        cuCtxSetCurrent(primary).must();
        let here = total();
        assert_eq!((here != there, word(here)), (true, 7));
        launch(kernel, 1, 1, 0, &mut []).must();
        assert_eq!(word(here), 8);
        let mut function = 0;
        cuKernelGetFunction(&mut function, kernel).must();
        cuCtxDestroy_v2(made).must();
        launch(function, 1, 1, 0, &mut []).must();
        assert_eq!(word(here), 9);
        cuLibraryUnload(library).must();
    }
}

#[test]
fn a_context_ends_after_its_work() {
    unsafe {
        let primary = context();
        let made = new_context();
        let (stream, seen) = (stream(), counter());
        let gate = Gate::close(stream);
        cuLaunchHostFunc(stream, Some(add_one), pointer_to(seen)).must();
        let opener = std::thread::spawn(move || {
            std::thread::sleep(std::time::Duration::from_millis(30));
            gate.open();
        });
        cuCtxDestroy_v2(made).must();
        opener.join().unwrap();
        cuCtxSetCurrent(primary).must();
        cuCtxSynchronize().must();
        assert_eq!(seen.load(Ordering::SeqCst), 1);
    }
}
