//! Kernels that fail. A failure is the process's, so each case is a process of its own.

use std::process::Command;

use super::*;
use crate::driver::{Driver, driver};

const CASE: &str = "SOFTCUDA_TEST_FAULT";
const ILLEGAL_ADDRESS: u32 = 700;
const NOT_READY: u32 = 600;
const INVALID_VALUE: u32 = 1;

/// Runs a case of [`child`]; gives what it wrote on standard error.
fn run(case: &str) -> String {
    let test = std::env::current_exe().expect("the test knows its own path");
    let mut command = Command::new(test);
    command
        .args([
            "execution::faults::child",
            "--exact",
            "--ignored",
            "--nocapture",
        ])
        .env(CASE, case);
    let output = command.output().expect("the test starts itself");
    let errors = String::from_utf8_lossy(&output.stderr).into_owned();
    let text = String::from_utf8_lossy(&output.stdout).into_owned() + &errors;
    assert!(
        output.status.success() && text.contains("1 passed"),
        "{text}"
    );
    errors
}

#[test]
#[ignore = "the other tests of this file run it, each in a process of its own"]
fn child() {
    unsafe {
        match std::env::var(CASE).as_deref() {
            Ok("submit") => submitting_does_not_look(),
            Ok("callback") => callbacks_are_told(),
            Ok("streams") => all_streams_end(),
            Ok("threads") => threads_meet_it(),
            Ok("unmapped") => unmapped_memory_is_nobody_s(),
            Ok("unmapped copy") => unmapped_before(|device, lost, stream| {
                cuMemcpyDtoDAsync_v2(device, lost, 4, stream).must();
            }),
            Ok("unmapped fill") => unmapped_before(|_, lost, stream| {
                cuMemsetD8Async(lost, 0, 4, stream).must();
            }),
            other => panic!("no case: {other:?}"),
        }
    }
}

/// Calls that put work into streams succeed until one has waited or asked, however long ago the
/// work failed.
unsafe fn submitting_does_not_look() {
    context();
    let (module, stream, pointer) = (module(), stream(), memory(64));
    let (store_kernel, done) = (function_of(module, c"store"), event());
    store(store_kernel, stream, 0x20, 1).must();
    if driver() == Driver::Software {
        std::thread::sleep(std::time::Duration::from_millis(100));
        store(store_kernel, stream, pointer, 1).must();
        cuEventRecord(done, stream).must();
        cuMemsetD8Async(pointer, 0, 64, stream).must();
    }
    assert_eq!(cuStreamSynchronize(stream).code, ILLEGAL_ADDRESS);
    for _ in 0..2 {
        assert_eq!(
            store(store_kernel, stream, pointer, 1).code,
            ILLEGAL_ADDRESS
        );
        assert_eq!(cuMemAlloc_v2(&mut 0, 64).code, ILLEGAL_ADDRESS);
        assert_eq!(cuCtxSynchronize().code, ILLEGAL_ADDRESS);
    }
}

#[test]
fn calls_that_submit_do_not_look_and_the_log_names_the_fault() {
    let errors = run("submit");
    if driver() == Driver::Software {
        let line = errors
            .lines()
            .find(|line| line.starts_with("softcuda: "))
            .expect("the fault is logged");
        for part in [
            "ILLEGAL_ADDRESS",
            "kernel store",
            "block (0, 0, 0)",
            "thread (0, 0, 0)",
            "4 bytes at 0x20",
        ] {
            assert!(line.contains(part), "{line}");
        }
    }
}

/// A callback is called after a failure, and is told; a host function is not called.
unsafe fn callbacks_are_told() {
    use std::sync::atomic::AtomicU32;
    static STATUS: AtomicU32 = AtomicU32::new(777);
    unsafe extern "C" fn callback(_: Handle, status: u32, _: *mut c_void) {
        STATUS.store(status, Ordering::SeqCst);
    }
    context();
    let (store_kernel, stream, ran) = (function(c"store"), stream(), counter());
    let gate = Gate::close(stream);
    store(store_kernel, stream, 0, 1).must();
    cuLaunchHostFunc(stream, Some(add_one), pointer_to(ran)).must();
    cuStreamAddCallback(stream, Some(callback), std::ptr::null_mut(), 0).must();
    gate.open();
    assert_eq!(cuStreamSynchronize(stream).code, ILLEGAL_ADDRESS);
    for _ in 0..200 {
        if STATUS.load(Ordering::SeqCst) != 777 {
            break;
        }
        std::thread::sleep(std::time::Duration::from_millis(10));
    }
    assert_eq!(
        (STATUS.load(Ordering::SeqCst), ran.load(Ordering::SeqCst)),
        (ILLEGAL_ADDRESS, 0)
    );
}

#[test]
fn a_callback_is_told_of_a_failure() {
    run("callback");
}

/// Work in other streams, of other contexts too, ends when one fails; nobody hangs.
unsafe fn all_streams_end() {
    context();
    let (module, streams, pointer) = (module(), [0; 4].map(|_| stream()), memory(64));
    let store_kernel = function_of(module, c"store");
    let events: Vec<Handle> = streams.iter().map(|_| event()).collect();
    let gate = Gate::close(streams[0]);
    cuEventRecord(events[0], streams[0]).must();
    for (&stream, &done) in streams[1..].iter().zip(&events[1..]) {
        cuStreamWaitEvent(stream, events[0], 0).must();
        for value in 0..20 {
            store(store_kernel, stream, pointer, value).must();
        }
        cuEventRecord(done, stream).must();
        assert_eq!(cuEventQuery(done).code, NOT_READY);
    }
    store(store_kernel, streams[0], 1 << 20, 1).must();
    gate.open();
    for (stream, done) in streams.into_iter().zip(events) {
        cuStreamSynchronize(stream).ignore();
        cuEventSynchronize(done).ignore();
    }
    assert_eq!(cuCtxSynchronize().code, ILLEGAL_ADDRESS);
}

#[test]
fn a_failure_leaves_no_stream_hanging() {
    run("streams");
}

/// Many threads launch and synchronize while one kernel fails: each meets the error, and none
/// anything else.
unsafe fn threads_meet_it() {
    context();
    let (module, pointer) = (module(), memory(64));
    let store_kernel = function_of(module, c"store");
    // A thread that comes after the failure gets no stream.
    let ready = &*Box::leak(Box::new(std::sync::Barrier::new(8)));
    let threads: Vec<_> = (0..8u64)
        .map(|thread| {
            std::thread::spawn(move || {
                context();
                let stream = stream();
                ready.wait();
                for round in 0..10_000u64 {
                    let address = if thread == 3 && round == 50 {
                        8
                    } else {
                        pointer
                    };
                    let answers = [
                        store(store_kernel, stream, address, 1),
                        cuStreamSynchronize(stream),
                    ];
                    if let Some(failed) = answers.iter().find(|answer| answer.code != 0) {
                        return failed.code;
                    }
                }
                0
            })
        })
        .collect();
    for thread in threads {
        assert_eq!(thread.join().unwrap(), ILLEGAL_ADDRESS);
    }
}

#[test]
fn threads_all_meet_a_failure() {
    run("threads");
}

/// Four pages, of which more than the second is registered.
unsafe fn registered() -> *mut c_void {
    let (permits, flags) = (
        libc::PROT_READ | libc::PROT_WRITE,
        libc::MAP_PRIVATE | libc::MAP_ANONYMOUS,
    );
    let at = libc::mmap(std::ptr::null_mut(), 4 * 4096, permits, flags, -1, 0);
    assert_ne!(at, libc::MAP_FAILED);
    cuMemHostRegister_v2(at.byte_add(4096), 4100, 0).must();
    at
}

/// Work that a stream comes to after its memory was unmapped fails.
unsafe fn unmapped_before(work: impl Fn(u64, u64, Handle)) {
    context();
    let (stream, device, pages) = (stream(), memory(64), registered());
    let gate = Gate::close(stream);
    work(device, pages as u64 + 4096, stream);
    assert_eq!(libc::munmap(pages, 4 * 4096), 0);
    gate.open();
    assert_eq!(cuStreamSynchronize(stream).code, ILLEGAL_ADDRESS);
}

/// Registered memory that the program unmaps is not reached any more. A device still has its
/// pages, but its driver crashes on a copy from there.
unsafe fn unmapped_memory_is_nobody_s() {
    context();
    let (store_kernel, stream, device) = (function(c"store"), stream(), memory(64));
    let (partly, kept) = (registered(), registered());
    let [lost, here] = [partly, kept].map(|at| at.byte_add(4096));
    store(store_kernel, stream, lost as u64, 5).must();
    cuStreamSynchronize(stream).must();
    assert_eq!(*lost.cast::<u32>(), 5);
    assert_eq!(libc::munmap(partly.byte_add(8192), 4096), 0);
    for _ in 0..2 {
        let copied = [
            cuMemcpyDtoH_v2(lost, device, 4),
            cuMemcpyHtoD_v2(device, lost, 4),
            cuMemcpyDtoDAsync_v2(device, lost as u64, 4, stream),
            cuMemsetD8Async(lost as u64, 0, 4, stream),
        ];
        assert_eq!(copied.map(|answer| answer.code), [INVALID_VALUE; 4]);
    }
    assert_eq!(
        cuStreamWriteValue32_v2(stream, lost as u64, 1, 0).code,
        INVALID_VALUE
    );
    store(store_kernel, stream, here as u64, 6).must();
    cuStreamSynchronize(stream).must();
    assert_eq!(*here.cast::<u32>(), 6);
    // Nor when something else is mapped there.
    let again = libc::mmap(
        partly.byte_add(8192),
        4096,
        libc::PROT_READ | libc::PROT_WRITE,
        libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_FIXED,
        -1,
        0,
    );
    assert_ne!(again, libc::MAP_FAILED);
    store(store_kernel, stream, lost as u64, 7).must();
    assert_eq!(cuStreamSynchronize(stream).code, ILLEGAL_ADDRESS);
    assert_eq!(*lost.cast::<u32>(), 5);
    for at in [lost, here] {
        assert_eq!(cuMemHostUnregister(at).code, ILLEGAL_ADDRESS);
    }
}

#[test]
fn memory_unmapped_while_registered_is_nobody_s() {
    if driver() == Driver::Software {
        for case in ["unmapped", "unmapped copy", "unmapped fill"] {
            run(case);
        }
    }
}
