//! The order of work.

use super::*;

#[test]
fn a_launch_takes_its_arguments_values_at_once() {
    unsafe {
        context();
        let (store_kernel, stream, pointer) = (function(c"store"), stream(), memory(4));
        let gate = Gate::close(stream);
        let (mut address, mut value) = (pointer, 11u32);
        launch(
            store_kernel,
            1,
            1,
            stream,
            &mut [void(&mut address), void(&mut value)],
        )
        .must();
        (address, value) = (16, 99);
        assert_eq!((address, value), (16, 99));
        gate.open();
        cuStreamSynchronize(stream).must();
        assert_eq!(word(pointer), 11);
    }
}

#[test]
fn streams_of_two_contexts_wait_for_each_others_events() {
    unsafe {
        context();
        let (there, event, pointer, load) = (stream(), event(), memory(8), function(c"load"));
        let made = new_context();
        let here = stream();
        let gate = Gate::close(here);
        let their_event = crate::conformance::fixture::event();
        cuEventRecord(their_event, here).must();
        cuStreamWaitEvent(there, their_event, 0).must();
        cuCtxPopCurrent_v2(&mut 0).must();
        let seen = counter();
        cuLaunchHostFunc(there, Some(add_one), pointer_to(seen)).must();
        let (mut to, mut from) = (pointer + 4, pointer);
        launch(load, 1, 1, there, &mut [void(&mut to), void(&mut from)]).must();
        cuEventRecord(event, there).must();
        std::thread::sleep(std::time::Duration::from_millis(20));
        assert_eq!(seen.load(Ordering::SeqCst), 0, "it waits");
        assert_eq!(cuEventQuery(event).code, 600);
        gate.open();
        cuEventSynchronize(event).must();
        assert_eq!(seen.load(Ordering::SeqCst), 1);
        cuCtxDestroy_v2(made).must();
    }
}

#[test]
fn a_chain_through_many_streams_keeps_its_order() {
    unsafe {
        context();
        let (module, pointer) = (module(), memory(4));
        let (store_kernel, streams) = (function_of(module, c"store"), [0; 6].map(|_| stream()));
        for round in 0..200u32 {
            let stream = streams[(round as usize * 5 + 1) % streams.len()];
            let next = streams[(round as usize * 5 + 6) % streams.len()];
            store(store_kernel, stream, pointer, round).must();
            let done = event();
            cuEventRecord(done, stream).must();
            cuStreamWaitEvent(next, done, 0).must();
            cuEventDestroy_v2(done).must();
        }
        cuCtxSynchronize().must();
        assert_eq!(word(pointer), 199);
    }
}

#[test]
fn threads_work_in_their_own_default_streams() {
    unsafe {
        context();
        let module = module();
        let (count, total) = (function_of(module, c"count"), global(module, c"counter"));
        let threads: Vec<_> = (0..8)
            .map(|_| {
                std::thread::spawn(move || {
                    context();
                    for round in 0..100 {
                        launch(count, 3, 32, PER_THREAD, &mut []).must();
                        if round % 10 == 0 {
                            cuStreamSynchronize(PER_THREAD).must();
                        }
                    }
                })
            })
            .collect();
        for thread in threads {
            thread.join().unwrap();
        }
        // The threads are gone with work in their streams; the context waits for it.
        cuCtxSynchronize().must();
        assert_eq!(word(total), 7 + 8 * 100 * 3 * 32);
    }
}

#[test]
fn many_threads_share_a_stream() {
    unsafe {
        context();
        let (module, stream, seen) = (module(), stream(), counter());
        let (count, total) = (function_of(module, c"count"), global(module, c"counter"));
        let threads: Vec<_> = (0..6)
            .map(|_| {
                std::thread::spawn(move || {
                    context();
                    for _ in 0..100 {
                        launch(count, 1, 1, stream, &mut []).must();
                        cuLaunchHostFunc(stream, Some(add_one), pointer_to(seen)).must();
                        cuStreamSynchronize(stream).must();
                    }
                })
            })
            .collect();
        for thread in threads {
            thread.join().unwrap();
        }
        assert_eq!((word(total), seen.load(Ordering::SeqCst)), (7 + 600, 600));
    }
}

#[test]
fn a_kernel_may_wait_for_another_streams_write() {
    unsafe {
        context();
        let (module, first, second, flag) = (module(), stream(), stream(), pinned(64));
        flag.cast::<u32>().write_volatile(0);
        let mut argument = flag as u64;
        launch(
            function_of(module, c"wait_for"),
            1,
            1,
            first,
            &mut [void(&mut argument)],
        )
        .must();
        assert_eq!(cuStreamQuery(first).code, 600);
        cuStreamWriteValue32_v2(second, flag as u64, 1, 0).must();
        cuStreamSynchronize(first).must();
    }
}

#[test]
fn kernels_of_two_streams_run_at_the_same_time() {
    unsafe {
        context();
        let (module, first, second, flags) = (module(), stream(), stream(), pinned(64));
        flags.cast::<[u32; 2]>().write_volatile([0, 0]);
        let (wait_for, store_kernel) = (
            function_of(module, c"wait_for"),
            function_of(module, c"store"),
        );
        let (mut ping, mut pong) = (flags as u64, flags as u64 + 4);
        launch(wait_for, 1, 1, first, &mut [void(&mut ping)]).must();
        store(store_kernel, first, pong, 1).must();
        store(store_kernel, second, ping, 1).must();
        launch(wait_for, 1, 1, second, &mut [void(&mut pong)]).must();
        cuStreamSynchronize(second).must();
        cuStreamSynchronize(first).must();
    }
}

/// Prints what the raw calls cost; a bound so wide that only a lost wake-up breaks it.
#[test]
fn an_empty_launch_is_quick() {
    unsafe {
        context();
        let text =
            ".version 7.0\n.target sm_80\n.address_size 64\n.visible .entry nothing() { ret; }";
        let (empty, stream) = (function_of(module_of(text), c"nothing"), stream());
        launch(empty, 1, 1, stream, &mut []).must();
        cuStreamSynchronize(stream).must();
        let mut best = std::time::Duration::MAX;
        for _ in 0..20 {
            let start = std::time::Instant::now();
            for _ in 0..100 {
                launch(empty, 1, 1, stream, &mut []).must();
                cuStreamSynchronize(stream).must();
            }
            best = best.min(start.elapsed() / 100);
        }
        println!("an empty launch and its synchronization: {best:?}");
        assert!(best < std::time::Duration::from_millis(2));
    }
}
