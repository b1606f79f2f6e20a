//! The end of executables with conditional nodes: it waits for the work of their context. Graphs
//! that get conditions when they have executables already.

use std::sync::atomic::{AtomicBool, AtomicUsize};

use super::conditions::*;
use super::*;
use crate::capture::api::{cuStreamBeginCapture_v2, cuStreamEndCapture};

/// `CUDA_ERROR_NOT_PERMITTED`, `CUDA_ERROR_NOT_SUPPORTED`.
const NOT_PERMITTED: u32 = 800;
const NOT_SUPPORTED: u32 = 801;

/// Until a call that does not return is let go.
const PATIENCE: Duration = Duration::from_millis(100);

#[test]
fn with_conditional_nodes_it_waits_for_all_work_of_the_context() {
    unsafe {
        context();
        let at = memory(4);
        let plain = instantiate(graph_around_a_fill(&[], at));
        let all: [&[u32]; 5] = [&[IF], &[WHILE], &[SWITCH], &[WHILE, IF], &[IF, IF]];
        for kinds in all {
            // What is in flight: itself, something else, nothing but the host function.
            for in_flight in 0..3 {
                let (stream, exec) = (stream(), instantiate(graph_around_a_fill(kinds, at)));
                let gate = Gate::close(stream);
                match in_flight {
                    0 => cuGraphLaunch(exec, stream).must(),
                    1 => cuGraphLaunch(plain, stream).must(),
                    _ => {}
                }
                let (answer, waited) = while_held(gate, PATIENCE, || cuGraphExecDestroy(exec));
                answer.must();
                assert!(waited, "{kinds:?} {in_flight}");
                cuStreamQuery(stream).must();
            }
        }
    }
}

#[test]
fn what_waits_not() {
    unsafe {
        context();
        let at = memory(4);
        let definition = graph_around_a_fill(&[IF, WHILE], at);
        for call in 0..4 {
            let (stream, conditional) = (stream(), instantiate(definition));
            let plain = instantiate(graph_around_a_fill(&[], at));
            let (other, mut made) = (graph_around_a_fill(&[IF], at), 0);
            let gate = Gate::close(stream);
            cuGraphLaunch(plain, stream).must();
            cuGraphLaunch(conditional, stream).must();
            let (answer, waited) = while_held(gate, PATIENCE, || match call {
                0 => cuGraphExecDestroy(plain),
                1 => cuGraphDestroy(other),
                2 => cuGraphInstantiateWithFlags(&mut made, other, 0),
                _ => cuGraphLaunch(conditional, stream),
            });
            answer.must();
            assert!(!waited, "{call}");
            cuStreamSynchronize(stream).must();
            cuGraphExecDestroy(conditional).must();
        }
    }
}

#[test]
fn memory_is_freed_after_the_work_of_the_context() {
    unsafe {
        context();
        for pinned_memory in [false, true] {
            let (stream, device, host) = (stream(), memory(4), pinned(4));
            let gate = Gate::close(stream);
            let (answer, waited) = while_held(gate, PATIENCE, || match pinned_memory {
                false => cuMemFree_v2(device),
                true => cuMemFreeHost(host),
            });
            answer.must();
            assert!(waited, "pinned: {pinned_memory}");
        }
    }
}

/// A real driver does not promise any of this.
#[test]
fn while_it_waits_it_is_there_and_others_get_on() {
    if !is_software() {
        return;
    }
    unsafe {
        let context = context();
        let (stream, other, at) = (stream(), stream(), memory(4));
        let definition = graph_around_a_fill(&[IF], at);
        let exec = instantiate(definition);
        let gate = Gate::close(stream);
        cuGraphLaunch(exec, stream).must();
        let done = AtomicBool::new(false);
        std::thread::scope(|scope| {
            scope.spawn(|| {
                cuCtxSetCurrent(context).must();
                std::thread::sleep(Duration::from_millis(50));
                assert!(!done.load(Ordering::SeqCst));
                // Of the executable that is waited for, of its graph, and of all else.
                let mut info = UpdateInfo::default();
                cuGraphExecUpdate_v2(exec, definition, &mut info).must();
                cuGraphLaunch(exec, stream).must();
                add_empty(definition, &[]);
                let quick = instantiate(graph_around_a_fill(&[], memory(4)));
                cuGraphLaunch(quick, other).must();
                cuStreamSynchronize(other).must();
                cuGraphExecDestroy(quick).must();
                assert!(!done.load(Ordering::SeqCst));
                gate.open();
            });
            cuGraphExecDestroy(exec).must();
            done.store(true, Ordering::SeqCst);
        });
        cuStreamSynchronize(stream).must();
        assert_eq!(word(at), 5);
        assert_eq!(cuGraphExecDestroy(exec).code, INVALID_VALUE);
        assert_eq!(cuGraphLaunch(exec, stream).code, INVALID_VALUE);
    }
}

/// Threads that destroy one executable at once: a real driver crashes.
#[test]
fn of_threads_that_destroy_it_one_does() {
    if !is_software() {
        return;
    }
    unsafe {
        let context = context();
        let (stream, at) = (stream(), memory(4));
        let exec = instantiate(graph_around_a_fill(&[IF], at));
        let gate = Gate::close(stream);
        let threads: Vec<_> = (0..3)
            .map(|_| {
                std::thread::spawn(move || {
                    cuCtxSetCurrent(context).must();
                    cuGraphExecDestroy(exec).code
                })
            })
            .collect();
        std::thread::sleep(Duration::from_millis(50));
        gate.open();
        let mut codes: Vec<u32> = threads.into_iter().map(|it| it.join().unwrap()).collect();
        codes.sort();
        assert_eq!(codes, [0, INVALID_VALUE, INVALID_VALUE]);
    }
}

#[test]
fn a_capture_that_allows_it_goes_on() {
    unsafe {
        context();
        let (held, captured, at) = (stream(), stream(), memory(4));
        let exec = instantiate(graph_around_a_fill(&[IF], at));
        let gate = Gate::close(held);
        // Relaxed.
        cuStreamBeginCapture_v2(captured, 2).must();
        cuMemsetD32Async(at, 1, 1, captured).must();
        let (answer, waited) = while_held(gate, PATIENCE, || cuGraphExecDestroy(exec));
        answer.must();
        assert!(waited);
        cuMemsetD32Async(at, 2, 1, captured).must();
        let mut ended = 0;
        cuStreamEndCapture(captured, &mut ended).must();
        assert_eq!(nodes(ended).len(), 2);
    }
}

#[test]
fn a_host_function_is_told_that_it_may_not() {
    static EXEC: AtomicUsize = AtomicUsize::new(0);
    static CODE: AtomicU32 = AtomicU32::new(0);
    unsafe extern "C" fn destroy(_: *mut c_void) {
        let answer = cuGraphExecDestroy(EXEC.load(Ordering::SeqCst));
        CODE.store(answer.code, Ordering::SeqCst);
    }
    unsafe {
        context();
        let (stream, at) = (stream(), memory(4));
        let exec = instantiate(graph_around_a_fill(&[IF], at));
        EXEC.store(exec, Ordering::SeqCst);
        cuLaunchHostFunc(stream, Some(destroy), std::ptr::null_mut()).must();
        cuStreamSynchronize(stream).must();
        assert_eq!(CODE.load(Ordering::SeqCst), NOT_PERMITTED);
        run(exec, stream);
        cuGraphExecDestroy(exec).must();
    }
}

#[test]
fn executables_from_before_the_conditions_count() {
    unsafe {
        context();
        let (stream, at, graph) = (stream(), memory(4), graph());
        add_fill(graph, &[], at, 4);
        let earlier = [instantiate(graph), instantiate(graph)];
        let (_, body) = add_single(graph, &nodes(graph), condition(graph, 1), IF);
        add_fill(body, &[], at, 5);
        let again = || cuGraphInstantiateWithFlags(&mut 0, graph, 0).code;
        assert_eq!(again(), NOT_SUPPORTED);
        for exec in earlier {
            run(exec, stream);
            assert_eq!(word(at), 4);
            assert_eq!(again(), NOT_SUPPORTED);
            cuGraphExecDestroy(exec).must();
        }
        let exec = instantiate(graph);
        run(exec, stream);
        assert_eq!(word(at), 5);
        assert_eq!(again(), NOT_SUPPORTED);
        cuGraphExecDestroy(exec).must();
        instantiate(graph);
    }
}
