//! Nodes that fail. A failure is the process's, so each case is a process of its own.

use std::process::Command;

use super::*;

const CASE: &str = "SOFTCUDA_TEST_GRAPH_FAULT";
const ILLEGAL_ADDRESS: u32 = 700;

fn run_case(case: &str) {
    let test = std::env::current_exe().expect("the test knows its own path");
    let arguments = [
        "graphs::failing::child",
        "--exact",
        "--ignored",
        "--nocapture",
    ];
    let mut command = Command::new(test);
    command.args(arguments).env(CASE, case);
    let output = command.output().expect("the test starts itself");
    let text = String::from_utf8_lossy(&output.stdout).into_owned()
        + &String::from_utf8_lossy(&output.stderr);
    assert!(
        output.status.success() && text.contains("1 passed"),
        "{text}"
    );
}

#[test]
#[ignore = "the other tests of this file run it, each in a process of its own"]
fn child() {
    unsafe {
        match std::env::var(CASE).as_deref() {
            Ok("middle") => a_node_in_the_middle(),
            Ok("freed") => memory_that_is_gone(),
            other => panic!("no case: {other:?}"),
        }
    }
}

/// What comes after a node that failed does not run; everybody who waits gets the error, and all is
/// let go of.
unsafe fn a_node_in_the_middle() {
    context();
    let (before, after, beside) = (counter(), counter(), counter());
    let (store, stream, other, record) = (function(c"store"), stream(), super::stream(), event());
    let (graph, gone) = (graph(), counter());
    let mut object = 0;
    cuUserObjectCreate(&mut object, pointer_to(gone), Some(add_one), 1, 1).must();
    cuGraphRetainUserObject(graph, object, 1, 1).must();
    let first = add_host(graph, &[], Some(add_one), pointer_to(before));
    let bad = add_store(graph, &[first], store, 0x20, 1);
    let last = add_host(graph, &[bad], Some(add_one), pointer_to(after));
    let mut node = 0;
    cuGraphAddEventRecordNode(&mut node, graph, &last, 1, record).must();
    let branch = add_empty(graph, &[]);
    add_host(graph, &[branch], Some(add_one), pointer_to(beside));
    let exec = instantiate(graph);
    let gate = Gate::close(stream);
    cuGraphLaunch(exec, stream).must();
    cuGraphLaunch(exec, other).must();
    cuStreamWaitEvent(other, record, 0).must();
    gate.open();
    assert_eq!(cuStreamSynchronize(stream).code, ILLEGAL_ADDRESS);
    assert_eq!(cuStreamSynchronize(other).code, ILLEGAL_ADDRESS);
    assert_eq!(cuEventSynchronize(record).code, ILLEGAL_ADDRESS);
    assert_eq!(cuGraphLaunch(exec, stream).code, ILLEGAL_ADDRESS);
    assert_eq!(before.load(Ordering::SeqCst), 1);
    assert_eq!(after.load(Ordering::SeqCst), 0);
    assert!(beside.load(Ordering::SeqCst) <= 1);
    assert_eq!(
        gone.load(Ordering::SeqCst),
        0,
        "graph and executable keep it"
    );
}

#[test]
fn a_node_that_fails_ends_the_launch() {
    run_case("middle");
}

/// A copy of memory that was freed since the graph was made.
unsafe fn memory_that_is_gone() {
    context();
    let (graph, stream, pointer) = (graph(), stream(), memory(64));
    add_fill(graph, &[], pointer, 1);
    let exec = instantiate(graph);
    run(exec, stream);
    cuMemFree_v2(pointer).must();
    cuGraphLaunch(exec, stream).must();
    assert_eq!(cuStreamSynchronize(stream).code, ILLEGAL_ADDRESS);
}

#[test]
fn freed_memory_is_an_illegal_address() {
    // What a device does depends on what else is mapped there.
    if is_software() {
        run_case("freed");
    }
}
