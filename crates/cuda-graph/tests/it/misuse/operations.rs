//! Operations that mean nothing, or that the driver refuses.

use cuda_graph::cudarc::driver::LaunchConfig;
use cuda_graph::{
    AnyOp, BatchOp, Buffer, ChildOp, CopyOp, Driver, Error, FillOp, KernelOp, LaunchAttribute,
    PinnedBuffer, Pitched, RawOp, SignalSemaphoresOp, WaitSemaphoresOp,
};

use super::graph;
use crate::fixture::{context, kernel, one, store, stream, words};

#[test]
fn arguments_that_do_not_fit_name_kernel_argument_and_size() {
    let stream = stream();
    let a = words(&stream, &[0]);
    // SAFETY: the operations are refused.
    let (few, small) = unsafe {
        (
            KernelOp::new(kernel("store"), one(), (&a,)),
            KernelOp::new(kernel("store"), one(), (&a, 1u64)),
        )
    };
    let Err(Error::ArgumentCount {
        wants: 2, got: 1, ..
    }) = &few
    else {
        panic!("{few:?}");
    };
    assert_eq!(
        few.unwrap_err().to_string(),
        "kernel `store` takes 2 arguments and got 1"
    );
    assert_eq!(
        small.unwrap_err().to_string(),
        "argument 1 of kernel `store` takes 4 bytes and got 8"
    );
}

#[test]
fn operations_that_mean_nothing_are_not_made() {
    let stream = stream();
    let (a, b) = (words(&stream, &[0; 4]), words(&stream, &[0; 3]));
    assert!(matches!(
        CopyOp::new(&a, &b),
        Err(Error::SizeMismatch {
            wants: 16,
            got: 12,
            ..
        })
    ));
    assert!(matches!(
        CopyOp::rows(&a, 8, &a, 8, 9, 2),
        Err(Error::PitchTooSmall {
            width: 9,
            start: 0,
            pitch: 8
        })
    ));
    assert!(matches!(
        CopyOp::rows(&a, 8, &b, 8, 8, 2),
        Err(Error::OutOfRange { .. })
    ));
    assert!(matches!(
        CopyOp::rows(&a, usize::MAX, &a, 8, 8, 2),
        Err(Error::OutOfRange { .. })
    ));
    assert!(matches!(
        a.slice(3..5),
        Err(Error::OutOfRange {
            start: 3,
            end: 5,
            len: 4
        })
    ));
    #[expect(clippy::reversed_empty_ranges, reason = "that is the misuse")]
    let reversed = a.slice(3..2);
    assert!(matches!(reversed, Err(Error::OutOfRange { .. })));
    let bytes = Buffer::<u8>::zeroed(&stream, 7).unwrap();
    assert!(matches!(
        FillOp::pattern(&bytes, 1u32),
        Err(Error::NotWhole { bytes: 7, size: 4 })
    ));
    let odd = bytes.slice(1..5).unwrap();
    assert!(matches!(
        FillOp::pattern(&odd, 1u32),
        Err(Error::Misaligned { size: 4, .. })
    ));
    assert!(matches!(
        a.copy_from_host(&stream, &[1]),
        Err(Error::SizeMismatch { .. })
    ));
}

#[test]
fn a_node_keeps_its_kind() {
    let stream = stream();
    let a = words(&stream, &[0]);
    let graph = graph();
    let node = graph.add(AnyOp::from(store(&a, 1)), ()).unwrap();
    let fill = AnyOp::from(FillOp::new(&a, 1u32).unwrap());
    assert!(matches!(
        graph.update(node, fill.clone()),
        Err(Error::WrongKind { .. })
    ));
    assert!(node.id().typed::<FillOp>().is_none());
    let mut exec = graph.instantiate().unwrap();
    let child = AnyOp::from(ChildOp::new(&super::graph()));
    for other in [fill, child] {
        let answer = exec.update(node, other);
        assert!(matches!(answer, Err(Error::WrongKind { .. })), "{answer:?}");
    }
    let attributed = AnyOp::from(store(&a, 1).attribute(LaunchAttribute::Priority(-1)));
    assert!(matches!(
        exec.update(node, attributed),
        Err(Error::AttributesFixed { .. })
    ));
}

#[test]
fn regions_that_do_not_fit_are_refused() {
    let stream = stream();
    let a = words(&stream, &[0; 16]);
    let rows = |pitch, rows, origin| Pitched {
        pitch,
        rows,
        origin,
    };
    let whole = rows(16, 2, (0, 0, 0));
    assert!(CopyOp::volume(&a, whole, &a, whole, (16, 2, 2)).is_ok());
    assert!(matches!(
        CopyOp::volume(&a, whole, &a, whole, (16, 3, 2)),
        Err(Error::PlaneTooSmall {
            height: 3,
            start: 0,
            rows: 2
        })
    ));
    for origin in [(4, 0, 0), (0, 1, 0), (0, 0, 1), (usize::MAX, 0, 0)] {
        assert!(
            CopyOp::volume(&a, rows(16, 2, origin), &a, whole, (16, 2, 2)).is_err(),
            "{origin:?}"
        );
    }
    // To the driver a pitch of 0, or planes of 0 rows, lie close together, which leads out of a
    // region of one row.
    let row = a.slice(..4).unwrap();
    let apart = rows(16, 1, (0, 0, 0));
    for (there, size) in [
        (rows(0, 1, (0, 0, 0)), (16, 1, 2)),
        (rows(0, 4, (0, 0, 1)), (16, 1, 1)),
        (rows(0, 4, (0, 5, 0)), (16, 1, 1)),
        (rows(16, 0, (0, 0, 1)), (16, 1, 1)),
        (rows(16, 0, (0, 0, 0)), (16, 1, 2)),
    ] {
        let refused = CopyOp::volume(&row, there, &a, apart, size);
        assert!(refused.is_err(), "{there:?} {size:?} to");
        let refused = CopyOp::volume(&a, apart, &row, there, size);
        assert!(refused.is_err(), "{there:?} {size:?} from");
    }
    let nothing = CopyOp::volume(&a, whole, &a, whole, (usize::MAX, usize::MAX, 0)).unwrap();
    assert_eq!(nothing.bytes(), 0);
    assert!(matches!(
        FillOp::rows(&a, 1u32, 4, 5, 16),
        Err(Error::OutOfRange { .. })
    ));
    assert!(matches!(
        FillOp::rows(&a, 1u32, 5, 2, 16),
        Err(Error::PitchTooSmall { width: 20, .. })
    ));
    let small = Buffer::<u8>::zeroed(&stream, 4).unwrap();
    assert!(BatchOp::new().write32(&small, 1).is_ok());
    assert!(matches!(
        BatchOp::new().write64(&small, 1),
        Err(Error::OutOfRange { .. })
    ));
    let pinned = PinnedBuffer::<u32>::zeroed(&context(), 3).unwrap();
    assert!(matches!(
        pinned.write(&[1, 2]),
        Err(Error::SizeMismatch { .. })
    ));
}

#[test]
fn what_the_driver_refuses_is_named() {
    let stream = stream();
    let a = words(&stream, &[0]);
    let graph = graph();
    let nothing = LaunchConfig {
        block_dim: (0, 1, 1),
        ..one()
    };
    // SAFETY: `store` writes one word.
    let op = unsafe { KernelOp::new(kernel("store"), nothing, (&a, 1u32)) }.unwrap();
    let Err(error) = graph.add(op.label("no threads"), ()) else {
        panic!("a block has threads");
    };
    let text = error.to_string();
    for part in ["adding", "`store`", "\"no threads\"", "operations.rs"] {
        assert!(text.contains(part), "{part} is missing in {text}");
    }
    let Error::Node { error, .. } = error else {
        panic!("it is about a node");
    };
    assert!(matches!(*error, Error::Call { .. }), "{error}");
    assert!(graph.nodes().unwrap().is_empty());
}

#[test]
fn raw_operations_read_back_have_no_parameters_to_give() {
    let stream = stream();
    let a = words(&stream, &[0]);
    let graph = graph();
    let node = graph.add(store(&a, 1), ()).unwrap();
    let raw = node.id().typed::<RawOp>().unwrap();
    let op = graph.op(raw).unwrap();
    assert!(op.params().is_none());
    let refused = |error: Error| matches!(error, Error::Unowned { .. });
    assert!(refused(graph.add(op.clone(), ()).unwrap_err()));
    assert!(refused(graph.update(raw, op.clone()).unwrap_err()));
    let mut exec = graph.instantiate().unwrap();
    assert!(refused(exec.update(raw, op).unwrap_err()));
    exec.launch(&stream).unwrap();
    assert_eq!(a.to_host(&stream).unwrap(), [1]);
}

#[test]
fn semaphores_that_are_none_are_refused() {
    if cuda_graph::device(0).unwrap().driver() != Driver::Software {
        println!(
            "skipped: a GPU's semaphores come from another API, and its driver trusts their handles"
        );
        return;
    }
    let graph = graph();
    // SAFETY: no semaphore is used: the driver refuses a null handle.
    let (signal, wait) = unsafe {
        let none = std::ptr::null_mut();
        (
            SignalSemaphoresOp::new([(none, std::mem::zeroed())], None),
            WaitSemaphoresOp::new([(none, std::mem::zeroed())], None),
        )
    };
    assert_eq!((signal.semaphores().len(), wait.params().len()), (1, 1));
    for op in [AnyOp::from(signal), AnyOp::from(wait)] {
        let kind = op.kind();
        let Err(Error::Node { node, error, .. }) = graph.add(op, ()) else {
            panic!("there is no such semaphore");
        };
        assert_eq!(node.kind, kind);
        assert!(matches!(*error, Error::Call { .. }), "{error}");
    }
    assert!(graph.nodes().unwrap().is_empty());
}

#[test]
fn functions_that_the_driver_lacks_are_unsupported() {
    let Err(Error::Unsupported { what, needs, have }) =
        cuda_graph::testing::find_function("cuGraphThatNobodyHas")
    else {
        panic!("no driver has it");
    };
    assert_eq!(what, "cuGraphThatNobodyHas");
    assert!(
        needs.contains("driver") && have.contains("CUDA"),
        "{needs}, {have}"
    );
    cuda_graph::testing::find_function("cuGraphCreate").unwrap();
}

/// However large: a size that does not fit in a word is not taken for what is left of it.
#[test]
fn sizes_that_overflow_are_refused() {
    let many = (1usize << 62) + 1;
    assert!(matches!(
        Buffer::<u32>::zeroed(&stream(), many),
        Err(Error::SizeMismatch { .. })
    ));
    assert!(matches!(
        PinnedBuffer::<u32>::zeroed(&context(), many),
        Err(Error::SizeMismatch { .. })
    ));
}
