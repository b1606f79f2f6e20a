//! User objects.

use std::ffi::c_void;
use std::ptr::null_mut;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use crate::conformance::api::*;
use crate::conformance::case::{Case, Line, alone, case};
use crate::conformance::error_name;
use crate::conformance::fixture::*;
use crate::graphs::api::*;

/// Adds one to the counter it is given.
unsafe extern "C" fn add_one(counter: *mut c_void) {
    (*counter.cast::<AtomicU32>()).fetch_add(1, Ordering::SeqCst);
}

/// Writes down what a driver call answers it, a number more.
unsafe extern "C" fn asks(answer: *mut c_void) {
    let code = cuMemAlloc_v2(&mut 0, 4).code;
    (*answer.cast::<AtomicU32>()).store(code + 1, Ordering::SeqCst);
}

fn counter() -> &'static AtomicU32 {
    Box::leak(Box::new(AtomicU32::new(0)))
}

fn data(counter: &'static AtomicU32) -> *mut c_void {
    std::ptr::from_ref(counter).cast_mut().cast()
}

/// An object with `count` references of the program's.
pub(super) unsafe fn object(count: u32) -> (Handle, &'static AtomicU32) {
    let (mut object, gone) = (0, counter());
    cuUserObjectCreate(&mut object, data(gone), Some(add_one), count, 1).must();
    (object, gone)
}

/// Waits until the counter counts, or for a while.
fn settle(counter: &AtomicU32) -> u32 {
    for _ in 0..200 {
        if counter.load(Ordering::SeqCst) != 0 {
            break;
        }
        std::thread::sleep(Duration::from_millis(2));
    }
    counter.load(Ordering::SeqCst)
}

/// Writes down whether the destructor ran.
pub(super) fn destroyed(line: &mut Line, what: &str, gone: &AtomicU32) {
    line.value(what, settle(gone));
}

/// `CU_GRAPH_USER_OBJECT_MOVE`, and `CU_GRAPH_CHILD_GRAPH_OWNERSHIP_MOVE`.
pub(super) const MOVE: u32 = 1;

pub const CASES: &[Case] = &[
    case!("graph/object/create", |line| {
        context();
        let (mut object, gone) = (0, counter());
        let right = data(gone);
        line.says_as(
            "right",
            cuUserObjectCreate(&mut object, right, Some(add_one), 1, 1),
        );
        line.says_as(
            "out",
            cuUserObjectCreate(null_mut(), right, Some(add_one), 1, 1),
        );
        line.says_as(
            "data",
            cuUserObjectCreate(&mut object, null_mut(), Some(add_one), 1, 1),
        );
        line.says_as(
            "destroy",
            cuUserObjectCreate(&mut object, right, None, 1, 1),
        );
        for flags in [0, 2, 3] {
            let answer = cuUserObjectCreate(&mut object, right, Some(add_one), 1, flags);
            line.says_as(format!("flags_{flags}"), answer);
        }
        for count in [0, i32::MAX as u32, 1 << 31, u32::MAX] {
            let answer = cuUserObjectCreate(&mut object, right, Some(add_one), count, 1);
            line.says_as(format!("count_{count:#x}"), answer);
        }
    }),
    case!("graph/object/create_without_context", |line| {
        device();
        let (mut object, gone) = (0, counter());
        line.says(cuUserObjectCreate(
            &mut object,
            data(gone),
            Some(add_one),
            1,
            1,
        ));
        line.says(cuUserObjectRelease(object, 1));
        destroyed(line, "destroyed", gone);
    }),
    case!("graph/object/counts", |line| {
        context();
        let (object, gone) = object(2);
        line.says_as("retain", cuUserObjectRetain(object, 3));
        line.says_as("retain_0", cuUserObjectRetain(object, 0));
        line.says_as("retain_many", cuUserObjectRetain(object, 1 << 31));
        line.says_as("release_0", cuUserObjectRelease(object, 0));
        line.says_as("release_many", cuUserObjectRelease(object, 1 << 31));
        line.says_as("release", cuUserObjectRelease(object, 4));
        destroyed(line, "early", gone);
        line.says_as("last", cuUserObjectRelease(object, 1));
        destroyed(line, "destroyed", gone);
    }),
    alone!("graph/object/released_too_often", |line| {
        context();
        let (object, gone) = object(2);
        line.says(cuUserObjectRelease(object, 3));
        destroyed(line, "destroyed", gone);
    }),
    case!("graph/object/released", |line| {
        context();
        let (object, gone) = object(1);
        line.says_as("last", cuUserObjectRelease(object, 1));
        destroyed(line, "destroyed", gone);
    }),
    case!("graph/object/null", |line| {
        context();
        let (graph, (object, _)) = (graph(), object(1));
        line.says_as("retain", cuUserObjectRetain(0, 1));
        line.says_as("release", cuUserObjectRelease(0, 1));
        line.says_as("graph_retain", cuGraphRetainUserObject(graph, 0, 1, 0));
        line.says_as("retain_graph", cuGraphRetainUserObject(0, object, 1, 0));
        line.says_as("graph_release", cuGraphReleaseUserObject(graph, 0, 1));
        line.says_as("release_graph", cuGraphReleaseUserObject(0, object, 1));
    }),
    case!("graph/object/graph", |line| {
        context();
        let (graph, (object, gone)) = (graph(), object(1));
        line.says(cuGraphRetainUserObject(graph, object, 2, 0));
        line.says(cuUserObjectRelease(object, 1));
        destroyed(line, "early", gone);
        line.says(cuGraphReleaseUserObject(graph, object, 1));
        line.says_as("last", cuGraphReleaseUserObject(graph, object, 1));
        destroyed(line, "destroyed", gone);
    }),
    case!("graph/object/moved", |line| {
        context();
        let (graph, (object, gone)) = (graph(), object(1));
        line.says(cuGraphRetainUserObject(graph, object, 1, MOVE));
        line.says(cuGraphDestroy(graph));
        destroyed(line, "destroyed", gone);
    }),
    alone!("graph/object/moved_more_than_owned", |line| {
        context();
        let (graph, (object, gone)) = (graph(), object(1));
        line.says(cuGraphRetainUserObject(graph, object, 2, MOVE));
        line.says(cuGraphDestroy(graph));
        destroyed(line, "destroyed", gone);
    }),
    case!("graph/object/graph_wrong", |line| {
        context();
        let (graph, (object, _)) = (graph(), object(9));
        for flags in [2, 3, u32::MAX] {
            let answer = cuGraphRetainUserObject(graph, object, 1, flags);
            line.says_as(format!("flags_{flags:#x}"), answer);
        }
        line.says_as("none", cuGraphRetainUserObject(graph, object, 0, 0));
        line.says_as("many", cuGraphRetainUserObject(graph, object, 1 << 31, 0));
        line.says_as(
            "release_foreign",
            cuGraphReleaseUserObject(graph, object, 1),
        );
        cuGraphRetainUserObject(graph, object, 1, 0).must();
        line.says_as("release_none", cuGraphReleaseUserObject(graph, object, 0));
        line.says_as("release_many", cuGraphReleaseUserObject(graph, object, 2));
        line.says_as("release", cuGraphReleaseUserObject(graph, object, 1));
    }),
    alone!("graph/object/released_by_another_graph", |line| {
        context();
        let (graph, (object, gone)) = (graph(), object(2));
        line.says_as("foreign", cuGraphReleaseUserObject(graph, object, 1));
        line.says_as("one", cuUserObjectRelease(object, 1));
        destroyed(line, "destroyed", gone);
    }),
    alone!("graph/object/graph_releases_too_many", |line| {
        context();
        let (graph, (object, gone)) = (graph(), object(2));
        cuGraphRetainUserObject(graph, object, 1, 0).must();
        line.says(cuGraphReleaseUserObject(graph, object, 2));
        line.says_as("one", cuUserObjectRelease(object, 1));
        destroyed(line, "destroyed", gone);
    }),
    case!("graph/object/clone_and_executable", |line| {
        context();
        let (graph, (object, gone), mut clone) = (graph(), object(1), 0);
        cuGraphRetainUserObject(graph, object, 1, MOVE).must();
        cuGraphClone(&mut clone, graph).must();
        line.says_as("graph", cuGraphDestroy(graph));
        let exec = instantiate(clone);
        line.says_as("clone", cuGraphDestroy(clone));
        destroyed(line, "early", gone);
        line.says(cuGraphExecDestroy(exec));
        destroyed(line, "destroyed", gone);
    }),
    case!("graph/object/embedded", |line| {
        context();
        let (parent, child, (object, gone)) = (graph(), graph(), object(1));
        cuGraphRetainUserObject(child, object, 1, MOVE).must();
        let node = add_child(parent, &[], child);
        line.says_as("child", cuGraphDestroy(child));
        destroyed(line, "early", gone);
        line.says(cuGraphDestroyNode(node));
        destroyed(line, "destroyed", gone);
    }),
    case!("graph/object/calls_cuda", |line| {
        context();
        let (mut object, answer) = (0, counter());
        cuUserObjectCreate(&mut object, data(answer), Some(asks), 1, 1).must();
        line.says(cuUserObjectRelease(object, 1));
        line.value("inside", error_name(settle(answer).wrapping_sub(1)));
    }),
];
