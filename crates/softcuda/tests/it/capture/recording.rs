//! Operations become nodes: they do not run when they are captured, and do in each launch.

use super::*;
use crate::conformance::structs::Copy2d;

/// Every kind of operation in a line, each using what the one before made.
#[test]
fn a_line_of_every_kind_runs_at_launches_alone() {
    alone(|| unsafe {
        context();
        let (stream, store) = (stream(), function(c"store"));
        let (a, b, ran) = (memory(64), memory(64), counter());
        let (host_in, host_out): (&mut [u32; 2], &mut [u32; 16]) =
            (Box::leak(Box::new([5, 6])), Box::leak(Box::new([0; 16])));
        fill_words(a, 0, 16);
        begin(stream, GLOBAL);
        launch_store(store, stream, a, 1).must();
        cuMemsetD32Async(a + 4, 2, 1, stream).must();
        cuMemsetD2D8Async(a + 8, 4, 3, 2, 2, stream).must();
        cuMemcpyHtoDAsync_v2(a + 16, host_in.as_ptr().cast(), 8, stream).must();
        cuStreamWriteValue32_v2(stream, a + 24, 7, 0).must();
        cuStreamWaitValue32_v2(stream, a + 24, 7, 1).must();
        cuLaunchHostFunc(stream, Some(add_one), pointer_to(ran)).must();
        let mut memory_of_graph = 0;
        cuMemAllocAsync(&mut memory_of_graph, 64, stream).must();
        cuMemcpyDtoDAsync_v2(memory_of_graph, a, 32, stream).must();
        let rows = Copy2d {
            src_x: 0,
            src_y: 0,
            src_kind: 2,
            src_host: std::ptr::null(),
            src_device: memory_of_graph,
            src_array: 0,
            src_pitch: 16,
            dst_x: 0,
            dst_y: 0,
            dst_kind: 2,
            dst_host: std::ptr::null_mut(),
            dst_device: b,
            dst_array: 0,
            dst_pitch: 32,
            width: 16,
            height: 2,
        };
        cuMemcpy2DAsync_v2(&rows, stream).must();
        cuMemFreeAsync(memory_of_graph, stream).must();
        cuMemcpyAsync(host_out.as_mut_ptr() as u64, b, 64, stream).must();
        let graph = end(stream);
        cuStreamSynchronize(stream).must();
        assert_eq!((word(a), ran.load(Ordering::SeqCst)), (0, 0), "nothing ran");
        assert_eq!(
            kinds(graph),
            [
                KERNEL, FILL, FILL, COPY, BATCH, BATCH, HOST, ALLOC, COPY, COPY, FREE, COPY
            ]
        );
        let line: Vec<_> = (0..11).map(|at| (at, at + 1)).collect();
        assert_eq!(edges(graph), line);
        let exec = instantiate(graph);
        for round in 1..=3 {
            host_in[0] = round * 100;
            cuGraphLaunch(exec, stream).must();
            cuStreamSynchronize(stream).must();
            assert_eq!(ran.load(Ordering::SeqCst), round);
            assert_eq!(host_out[..4], [1, 2, 0x0303, 0x0303]);
            assert_eq!(
                host_out[8..12],
                [round * 100, 6, 7, 0],
                "pageable memory is read by the launch"
            );
        }
    });
}

#[test]
fn operations_of_nothing_are_no_nodes() {
    alone(|| unsafe {
        context();
        let (stream, pointer, mut none) = (stream(), memory(8), 1);
        begin(stream, GLOBAL);
        cuMemsetD32Async(pointer, 2, 0, stream).must();
        cuMemcpyDtoDAsync_v2(pointer, pointer + 4, 0, stream).must();
        cuMemAllocAsync(&mut none, 0, stream).ignore();
        cuMemFreeAsync(0, stream).must();
        cuStreamWaitEvent(stream, event(), 0).must();
        cuEventRecord(event(), stream).must();
        assert_eq!(dependencies(stream), []);
        assert_eq!(nodes(end(stream)), []);
    });
}

/// What the program changes after the call does not reach the node.
#[test]
fn kernel_arguments_are_read_at_the_call() {
    alone(|| unsafe {
        context();
        let (stream, store, pointer) = (stream(), function(c"store"), memory(4));
        let (mut to, mut value) = (pointer, 5);
        begin(stream, GLOBAL);
        launch(store, 1, 1, stream, &mut [void(&mut to), void(&mut value)]).must();
        (to, value) = (0, 6);
        let graph = end(stream);
        run_once(graph, stream);
        assert_eq!((word(pointer), to, value), (5, 0, 6));
    });
}

/// Work that the stream was given before and after a capture runs as ever.
#[test]
fn work_around_a_capture_runs_in_order() {
    alone(|| unsafe {
        context();
        let (stream, pointer) = (stream(), memory(8));
        let gate = Gate::close(stream);
        cuMemsetD32Async(pointer, 1, 1, stream).must();
        begin(stream, RELAXED);
        cuMemsetD32Async(pointer + 4, 9, 1, stream).must();
        let graph = end(stream);
        cuMemcpyDtoDAsync_v2(pointer + 4, pointer, 4, stream).must();
        gate.open();
        cuStreamSynchronize(stream).must();
        assert_eq!((word(pointer), word(pointer + 4)), (1, 1));
        run_once(graph, stream);
        assert_eq!(word(pointer + 4), 9);
    });
}

#[test]
fn a_thousand_launches_are_a_thousand_nodes() {
    alone(|| unsafe {
        context();
        let (stream, count) = (stream(), function(c"empty"));
        begin(stream, THREAD_LOCAL);
        for _ in 0..1000 {
            launch(count, 1, 1, stream, &mut []).must();
        }
        let graph = end(stream);
        assert_eq!(kinds(graph), vec![KERNEL; 1000]);
        assert_eq!(edges(graph).len(), 999);
        run_once(graph, stream);
    });
}

/// Events of the program's that are nodes: recorded and waited for by launches.
#[test]
fn external_events_are_nodes() {
    alone(|| unsafe {
        context();
        let (stream, other, recorded, waited) = (stream(), stream(), event(), event());
        let gate = Gate::close(other);
        cuEventRecord(waited, other).must();
        begin(stream, RELAXED);
        cuStreamWaitEvent(stream, waited, EXTERNAL).must();
        cuEventRecordWithFlags(recorded, stream, EXTERNAL).must();
        let graph = end(stream);
        assert_eq!(kinds(graph), [EVENT_WAIT, EVENT_RECORD]);
        assert_eq!(cuEventQuery(recorded).code, 0, "not recorded yet");
        cuGraphLaunch(instantiate(graph), stream).must();
        assert_eq!(cuEventQuery(recorded).code, 600);
        gate.open();
        cuEventSynchronize(recorded).must();
        for (call, expected) in [
            (
                cuEventRecordWithFlags(recorded, stream, EXTERNAL),
                ILLEGAL_STATE,
            ),
            (cuStreamWaitEvent(stream, waited, EXTERNAL), ILLEGAL_STATE),
        ] {
            assert_eq!(call.code, expected, "outside of captures");
        }
    });
}
