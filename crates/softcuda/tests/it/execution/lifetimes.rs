//! What is destroyed while work uses it, and what stays for the work's sake.

use super::*;

#[test]
fn a_module_unloaded_in_flight_still_runs_its_launches() {
    unsafe {
        context();
        let (module, stream, pointer) = (module(), stream(), memory(4));
        let store_kernel = function_of(module, c"store");
        let gate = Gate::close(stream);
        for value in 0..10 {
            store(store_kernel, stream, pointer, value).must();
        }
        // A real driver waits for the device here, so the gate must open without us.
        let opener = std::thread::spawn(move || {
            std::thread::sleep(std::time::Duration::from_millis(30));
            gate.open();
        });
        cuModuleUnload(module).must();
        opener.join().unwrap();
        cuStreamSynchronize(stream).must();
        assert_eq!(word(pointer), 9);
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
