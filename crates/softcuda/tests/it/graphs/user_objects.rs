//! When the program's objects are let go of: never early, never late.

use super::*;

/// An object whose destructor adds one to the counter.
unsafe fn object(count: u32) -> (Handle, &'static AtomicU32) {
    let (mut object, gone) = (0, counter());
    cuUserObjectCreate(&mut object, pointer_to(gone), Some(add_one), count, 1).must();
    (object, gone)
}

/// A graph that has the only reference of an object.
unsafe fn owning_graph() -> (Handle, &'static AtomicU32) {
    let (graph, (object, gone)) = (graph(), object(1));
    cuGraphRetainUserObject(graph, object, 1, 1).must();
    (graph, gone)
}

/// It is still there after a while.
fn lives(gone: &AtomicU32) -> bool {
    std::thread::sleep(Duration::from_millis(10));
    gone.load(Ordering::SeqCst) == 0
}

/// It went, once.
fn went(gone: &AtomicU32) -> bool {
    comes_to(gone, 1) && {
        std::thread::sleep(Duration::from_millis(10));
        gone.load(Ordering::SeqCst) == 1
    }
}

#[test]
fn the_program_s_references_count() {
    unsafe {
        context();
        let (object, gone) = object(2);
        cuUserObjectRetain(object, 3).must();
        cuUserObjectRelease(object, 4).must();
        assert!(lives(gone));
        cuUserObjectRelease(object, 1).must();
        assert!(went(gone));
    }
}

#[test]
fn a_graph_keeps_it_until_it_is_destroyed_or_lets_go() {
    unsafe {
        context();
        let (graph, gone) = owning_graph();
        assert!(lives(gone));
        cuGraphDestroy(graph).must();
        assert!(went(gone));

        let (graph, (object, gone)) = (super::api::graph(), object(1));
        cuGraphRetainUserObject(graph, object, 2, 0).must();
        cuUserObjectRelease(object, 1).must();
        cuGraphReleaseUserObject(graph, object, 1).must();
        assert!(lives(gone));
        cuGraphReleaseUserObject(graph, object, 1).must();
        assert!(went(gone));
    }
}

#[test]
fn a_clone_and_a_parent_keep_it() {
    unsafe {
        context();
        let (graph, gone) = owning_graph();
        let (mut clone, parent) = (0, super::api::graph());
        cuGraphClone(&mut clone, graph).must();
        let node = add_child(parent, &[], clone);
        cuGraphDestroy(graph).must();
        cuGraphDestroy(clone).must();
        assert!(lives(gone));
        cuGraphDestroyNode(node).must();
        assert!(went(gone));
    }
}

#[test]
fn an_executable_and_its_launches_keep_it() {
    unsafe {
        context();
        let (inner, gone) = owning_graph();
        let (parent, stream) = (graph(), stream());
        add_child(parent, &[], inner);
        let exec = instantiate(parent);
        cuGraphDestroy(inner).must();
        cuGraphDestroy(parent).must();
        assert!(lives(gone));
        let gate = Gate::close(stream);
        cuGraphLaunch(exec, stream).must();
        cuGraphExecDestroy(exec).must();
        assert!(lives(gone));
        gate.open();
        cuStreamSynchronize(stream).must();
        assert!(went(gone));
    }
}

#[test]
fn an_executable_takes_over_what_it_is_updated_from() {
    unsafe {
        context();
        let ((old, old_gone), (new, new_gone), stream) = (owning_graph(), owning_graph(), stream());
        add_empty(old, &[]);
        add_empty(new, &[]);
        let exec = instantiate(old);
        cuGraphDestroy(old).must();
        let gate = Gate::close(stream);
        cuGraphLaunch(exec, stream).must();
        let mut info = UpdateInfo::default();
        cuGraphExecUpdate_v2(exec, new, &mut info).must();
        cuGraphDestroy(new).must();
        assert!(lives(old_gone), "the launch has it");
        gate.open();
        cuStreamSynchronize(stream).must();
        assert!(went(old_gone) && lives(new_gone));
        cuGraphExecDestroy(exec).must();
        assert!(went(new_gone));
    }
}

#[test]
fn a_failed_update_keeps_what_was_there() {
    unsafe {
        context();
        let ((old, old_gone), (new, new_gone)) = (owning_graph(), owning_graph());
        add_empty(old, &[]);
        let exec = instantiate(old);
        cuGraphDestroy(old).must();
        let mut info = UpdateInfo::default();
        assert_eq!(cuGraphExecUpdate_v2(exec, new, &mut info).code, 910);
        cuGraphDestroy(new).must();
        assert!(went(new_gone) && lives(old_gone));
        cuGraphExecDestroy(exec).must();
        assert!(went(old_gone));
    }
}

#[test]
fn destructors_run_where_cuda_may_not_be_called() {
    unsafe {
        context();
        unsafe extern "C" fn call(answer: *mut c_void) {
            let mut graph = 0;
            let code = cuGraphCreate(&mut graph, 0).code;
            (*answer.cast::<AtomicU32>()).store(code, Ordering::SeqCst);
        }
        let (mut object, answer) = (0, counter());
        cuUserObjectCreate(&mut object, pointer_to(answer), Some(call), 1, 1).must();
        cuUserObjectRelease(object, 1).must();
        assert!(comes_to(answer, 800));
    }
}
