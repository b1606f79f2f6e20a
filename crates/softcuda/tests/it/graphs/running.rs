//! What a launch does, and when.

use super::*;

#[test]
fn host_nodes_run_in_the_order_of_the_edges() {
    unsafe {
        context();
        let (graph, stream, log) = (graph(), stream(), log());
        // 7 before all, 1 to 4 beside each other, 5 after them; made in another order.
        let middle: Vec<_> = (1..5)
            .map(|number| add_note(graph, &[], log, number))
            .collect();
        let last = add_note(graph, &middle, log, 5);
        let first = add_note(graph, &[], log, 7);
        for &node in &middle {
            add_edge(graph, first, node).must();
        }
        let exec = instantiate(graph);
        for _ in 0..50 {
            run(exec, stream);
            let mut seen = std::mem::take(&mut *log.lock().unwrap());
            assert_eq!((seen.len(), seen[0], seen[5]), (6, 7, 5), "{seen:?}");
            seen.sort();
            assert_eq!(seen, [1, 2, 3, 4, 5, 7]);
        }
        assert_ne!(last, 0);
    }
}

#[test]
fn a_line_of_every_kind_runs_in_order() {
    unsafe {
        let context = context();
        let (graph, stream, pointer) = (graph(), stream(), memory(16));
        let store = function(c"store");
        let mut host = [0u32; 4];
        let fill = add_fill(graph, &[], pointer, 7);
        let store_node = add_store(graph, &[fill], store, pointer + 4, 9);
        let inner = super::api::graph();
        let inner_fill = add_fill(inner, &[], pointer + 8, 11);
        add_fill(inner, &[inner_fill], pointer + 12, 13);
        let child = add_child(graph, &[store_node], inner);
        let empty = add_empty(graph, &[child]);
        let mut copy: crate::conformance::structs::Copy3d = std::mem::zeroed();
        (copy.src_kind, copy.src_device) = (2, pointer);
        (copy.dst_kind, copy.dst_host) = (1, host.as_mut_ptr().cast());
        (copy.width, copy.height, copy.depth) = (16, 1, 1);
        let mut node = 0;
        cuGraphAddMemcpyNode(&mut node, graph, &empty, 1, &copy, context).must();
        let exec = instantiate(graph);
        run(exec, stream);
        assert_eq!(host, [7, 9, 11, 13]);
        // A graph of no nodes, and of an empty child graph, runs as well.
        let hollow = super::api::graph();
        run(instantiate(hollow), stream);
        let around = super::api::graph();
        add_child(around, &[], hollow);
        run(instantiate(around), stream);
    }
}

#[test]
fn branches_run_beside_each_other() {
    unsafe {
        context();
        // More branches than there are processors, each of which waits for all.
        const BRANCHES: u32 = 12;
        unsafe extern "C" fn meet(counter: *mut c_void) {
            let counter = &*counter.cast::<AtomicU32>();
            counter.fetch_add(1, Ordering::SeqCst);
            let start = Instant::now();
            while counter.load(Ordering::SeqCst) < BRANCHES {
                if start.elapsed() > Duration::from_secs(20) {
                    return;
                }
                std::thread::sleep(Duration::from_micros(50));
            }
        }
        if !super::is_software() {
            // Host nodes of a real driver share a thread.
            return;
        }
        let (graph, stream, met) = (graph(), stream(), counter());
        for _ in 0..BRANCHES {
            add_host(graph, &[], Some(meet), pointer_to(met));
        }
        let start = Instant::now();
        run(instantiate(graph), stream);
        assert!(start.elapsed() < Duration::from_secs(10));
        assert_eq!(met.load(Ordering::SeqCst), BRANCHES);
    }
}

#[test]
fn kernels_of_two_branches_wait_for_each_other() {
    unsafe {
        context();
        let module = module();
        let (wait, store) = (
            function_of(module, c"wait_for"),
            function_of(module, c"store"),
        );
        let (graph, stream, flag) = (graph(), stream(), memory(4));
        fill_words(flag, 0, 1);
        let mut address = flag;
        add_kernel(graph, &[], wait, &mut [void(&mut address)]);
        let first = add_fill(graph, &[], memory(4), 1);
        add_store(graph, &[first], store, flag, 1);
        run(instantiate(graph), stream);
    }
}

#[test]
fn launches_of_one_executable_run_one_after_the_other_in_any_streams() {
    unsafe {
        context();
        let (graph, log) = (graph(), log());
        let first = add_note(graph, &[], log, 1);
        let parallel = [
            add_note(graph, &[first], log, 2),
            add_note(graph, &[first], log, 2),
        ];
        add_note(graph, &parallel, log, 3);
        let exec = instantiate(graph);
        let streams = [stream(), stream(), stream()];
        let gate = Gate::close(streams[0]);
        for round in 0..30 {
            cuGraphLaunch(exec, streams[round % 3]).must();
        }
        std::thread::sleep(Duration::from_millis(20));
        assert!(log.lock().unwrap().is_empty(), "the first launch waits");
        gate.open();
        cuCtxSynchronize().must();
        let seen = log.lock().unwrap().clone();
        assert_eq!(seen, [1, 2, 2, 3].repeat(30));
    }
}

#[test]
fn a_destroyed_executable_finishes_what_it_was_launched_for() {
    unsafe {
        context();
        let (graph, stream, pointer) = (graph(), stream(), memory(4));
        let module = module();
        add_store(graph, &[], function_of(module, c"store"), pointer, 42);
        let exec = instantiate(graph);
        let gate = Gate::close(stream);
        cuGraphLaunch(exec, stream).must();
        cuGraphExecDestroy(exec).must();
        cuGraphDestroy(graph).must();
        gate.open();
        cuStreamSynchronize(stream).must();
        assert_eq!(word(pointer), 42);
        if super::is_software() {
            assert_eq!(cuGraphLaunch(exec, stream).code, INVALID_VALUE);
            assert_eq!(cuGraphExecDestroy(exec).code, INVALID_VALUE);
        }
    }
}

#[test]
fn ten_thousand_nodes_are_quick() {
    unsafe {
        context();
        const NODES: usize = 10_000;
        let (store, stream, pointer) = (function(c"store"), stream(), memory(4));
        let start = Instant::now();
        for lanes in [1, 4, NODES] {
            let graph = graph();
            let mut ends = vec![0; lanes];
            for node in 0..NODES {
                let end = &mut ends[node % lanes];
                let on: &[Handle] = if *end == 0 { &[] } else { &[*end] };
                *end = add_store(graph, on, store, pointer, node as u32);
            }
            let exec = instantiate(graph);
            run(exec, stream);
            if lanes == 1 {
                assert_eq!(word(pointer), NODES as u32 - 1);
            }
            cuGraphExecDestroy(exec).must();
            for node in nodes(graph) {
                cuGraphDestroyNode(node).must();
            }
            cuGraphDestroy(graph).must();
        }
        // A node that all others lead to, and one that leads to all.
        let graph = graph();
        let hub = add_empty(graph, &[]);
        let spokes: Vec<_> = (0..NODES).map(|_| add_empty(graph, &[hub])).collect();
        let last = add_empty(graph, &spokes);
        assert_eq!(edge_count(graph), 2 * NODES);
        run(instantiate(graph), stream);
        cuGraphDestroyNode(last).must();
        cuGraphDestroyNode(hub).must();
        assert_eq!(edge_count(graph), 0);
        // Seconds on a busy machine without optimization; a quadratic step takes minutes.
        assert!(
            start.elapsed() < Duration::from_secs(20),
            "{:?}",
            start.elapsed()
        );
    }
}

#[test]
fn events_of_nodes_are_as_a_stream_s() {
    unsafe {
        context();
        let (before, inside, seen) = (event(), event(), counter());
        let (outer, stream) = (stream(), super::super::conformance::fixture::stream());
        // Waits for work of another stream, records, and is waited for by that stream.
        let graph = graph();
        let (mut wait, mut record) = (0, 0);
        cuGraphAddEventWaitNode(&mut wait, graph, NONE, 0, before).must();
        let count = add_host(graph, &[wait], Some(add_one), pointer_to(seen));
        cuGraphAddEventRecordNode(&mut record, graph, &count, 1, inside).must();
        let exec = instantiate(graph);
        for round in 1..20 {
            let gate = Gate::close(outer);
            cuEventRecord(before, outer).must();
            cuGraphLaunch(exec, stream).must();
            cuStreamWaitEvent(outer, inside, 0).must();
            assert_eq!(
                cuEventQuery(inside).code,
                600,
                "it is what the launch will reach"
            );
            assert_eq!(seen.load(Ordering::SeqCst), round - 1);
            gate.open();
            cuEventSynchronize(inside).must();
            assert_eq!(seen.load(Ordering::SeqCst), round);
            cuStreamSynchronize(outer).must();
            cuEventQuery(inside).must();
        }
    }
}

#[test]
fn a_host_node_may_not_call_the_driver() {
    unsafe {
        context();
        unsafe extern "C" fn call(answer: *mut c_void) {
            let mut count = 0;
            let code = cuDeviceGetCount(&mut count).code;
            (*answer.cast::<AtomicU32>()).store(code, Ordering::SeqCst);
        }
        let (graph, stream, answer) = (graph(), stream(), counter());
        add_host(graph, &[], Some(call), pointer_to(answer));
        run(instantiate(graph), stream);
        assert_eq!(answer.load(Ordering::SeqCst), 800);
    }
}
