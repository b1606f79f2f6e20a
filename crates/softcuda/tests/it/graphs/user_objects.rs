//! When the program's objects are let go of: never early, never late.

use super::*;

/// An object whose destructor adds one to the counter.
unsafe fn object(count: u32) -> (Handle, &'static AtomicU32) {
    let (mut object, gone) = (0, counter());
    cuUserObjectCreate(&mut object, pointer_to(gone), Some(add_one), count, 1).must();
    (object, gone)
}

/// A graph that has the only reference of an object.
pub(super) unsafe fn owning_graph() -> (Handle, &'static AtomicU32) {
    let (graph, (object, gone)) = (graph(), object(1));
    cuGraphRetainUserObject(graph, object, 1, 1).must();
    (graph, gone)
}

/// It is still there after a while.
pub(super) fn lives(gone: &AtomicU32) -> bool {
    std::thread::sleep(Duration::from_millis(10));
    gone.load(Ordering::SeqCst) == 0
}

/// It went, once.
pub(super) fn went(gone: &AtomicU32) -> bool {
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

/// Updates a child graph's node of an executable, by either of the two functions.
unsafe fn set_child(exec: Handle, node: Handle, child: Handle, generic: bool) -> Answer {
    match generic {
        false => cuGraphExecChildGraphNodeSetParams(exec, node, child),
        true => cuGraphExecNodeSetParams(exec, node, &mut node_params(4, &[child as u64, 0])),
    }
}

#[test]
fn an_executable_takes_over_what_a_child_is_updated_from() {
    unsafe {
        context();
        for generic in [false, true] {
            let (parent, stream) = (graph(), stream());
            let ((old, old_gone), (new, new_gone)) = (owning_graph(), owning_graph());
            let ((beside, beside_gone), (failing, failing_gone)) = (owning_graph(), owning_graph());
            for child in [old, new, beside] {
                add_empty(child, &[]);
            }
            let (node, _) = (add_child(parent, &[], old), add_child(parent, &[], beside));
            let exec = instantiate(parent);
            cuGraphDestroy(old).must();
            cuGraphDestroy(beside).must();
            let gate = Gate::close(stream);
            cuGraphLaunch(exec, stream).must();
            assert_ne!(set_child(exec, node, failing, generic).code, 0);
            cuGraphDestroy(failing).must();
            assert!(went(failing_gone), "an update that fails takes nothing");
            set_child(exec, node, new, generic).must();
            cuGraphDestroy(new).must();
            cuGraphDestroy(parent).must();
            assert!(
                lives(new_gone) && lives(beside_gone),
                "the executable has them"
            );
            assert!(lives(old_gone), "the launch has it");
            gate.open();
            cuStreamSynchronize(stream).must();
            assert!(went(old_gone));
            run(exec, stream);
            assert!(lives(new_gone) && lives(beside_gone));
            cuGraphExecDestroy(exec).must();
            assert!(went(new_gone) && went(beside_gone));
        }
    }
}

#[test]
fn grandchildren_are_taken_over_each_from_its_graph() {
    unsafe {
        context();
        // A child with one object, and in it a grandchild with another.
        let nested = || {
            let ((child, child_gone), (inner, inner_gone)) = (owning_graph(), owning_graph());
            add_empty(inner, &[]);
            add_child(child, &[], inner);
            cuGraphDestroy(inner).must();
            (child, child_gone, inner_gone)
        };
        let ((first, first_gone, first_inner), (second, second_gone, second_inner)) =
            (nested(), nested());
        let (last, last_gone) = owning_graph();
        add_empty(last, &[]);
        let (parent, mut own) = (graph(), 0);
        let node = add_child(parent, &[], first);
        cuGraphDestroy(first).must();
        cuGraphChildGraphNodeGetGraph(node, &mut own).must();
        let inner = nodes(own)[0];
        let exec = instantiate(parent);
        set_child(exec, node, second, false).must();
        cuGraphDestroy(second).must();
        assert!(
            lives(first_gone) && lives(first_inner),
            "the definition has them"
        );
        assert!(lives(second_gone) && lives(second_inner));
        set_child(exec, inner, last, true).must();
        cuGraphDestroy(last).must();
        assert!(went(second_inner) && lives(second_gone) && lives(last_gone));
        cuGraphDestroy(parent).must();
        assert!(went(first_gone) && went(first_inner));
        assert!(lives(second_gone) && lives(last_gone));
        cuGraphExecDestroy(exec).must();
        assert!(went(second_gone) && went(last_gone));
    }
}
