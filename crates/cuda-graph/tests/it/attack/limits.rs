//! Where things begin and end: null addresses, the largest sizes, branches that go back to the
//! beginning.

use cuda_graph::{Capture, CopyOp, EmptyOp, Error, Graph, KernelOp, Pitched, RawMemory, Recorder};

use crate::fixture::{context, stream, words};

/// A flag at a null address is read like any other, and so a fault: it does not say "yes".
#[test]
fn a_null_flag_is_read() {
    // SAFETY: nothing here runs.
    let null = unsafe { RawMemory::device(0, 4) };
    let record = |flag: &dyn Fn(&mut dyn Recorder) -> cuda_graph::Result<()>| {
        let (graph, ()) = Graph::record(&context(), |path| flag(path)).unwrap();
        let first = graph.nodes().unwrap()[0];
        let op = graph.op(first.typed::<KernelOp>().unwrap()).unwrap();
        op.arguments().get(2).unwrap().iter().any(|byte| *byte != 0)
    };
    let flag = words(&stream(), &[1]);
    assert!(record(&|r| r.if_nonzero(&null, |_| Ok(()))));
    assert!(record(&|r| r.if_nonzero(&flag, |_| Ok(()))));
}

#[test]
fn branches_that_go_back_to_the_beginning_are_joined_there() {
    let mut capture = Capture::begin(&stream()).unwrap();
    capture.record(EmptyOp::new()).unwrap();
    let (joint, [mut branch]) = capture.split::<1>().unwrap();
    branch.go_on_after(()).unwrap();
    let mut capture = joint.join([branch]).unwrap();
    assert_eq!(capture.ends().unwrap(), []);
    let last = capture.record(EmptyOp::new()).unwrap();
    let graph = capture.end().unwrap();
    assert_eq!(graph.predecessors(last).list().unwrap(), []);
}

/// The driver takes no such plane, also where there is only one of them.
#[test]
fn a_plane_of_too_many_bytes_is_refused() {
    let stream = stream();
    let (a, b) = (words(&stream, &[1, 2, 3, 4]), words(&stream, &[0; 4]));
    for (pitch, rows) in [(8, usize::MAX), (8, 1 << 61), (usize::MAX / 2, 3)] {
        let (lie, plain) = (
            Pitched {
                pitch,
                rows,
                ..Pitched::default()
            },
            Pitched::rows(8),
        );
        let to = CopyOp::volume(&b, lie, &a, plain, (8, 1, 1));
        let from = CopyOp::volume(&b, plain, &a, lie, (8, 1, 1));
        for copy in [to, from] {
            assert!(
                matches!(copy, Err(Error::OutOfRange { .. })),
                "{pitch}, {rows}: {copy:?}"
            );
        }
    }
}
