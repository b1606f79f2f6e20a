//! What loops and branches refuse, and when.

use std::ffi::c_void;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use cuda_graph::cudarc::driver::{CudaEvent, CudaStream, sys};
use cuda_graph::{
    AllocOp, AnyOp, BatchOp, Buffer, ChildOp, CopyOp, Eager, Error, Graph, HostOp, IfOp,
    MemoryLocation, NodeKind, Path, RawMemory, RecordEventOp, Recorder, Result, WaitEventOp,
};

use super::kernels::{kernels, nearer, put};
use super::program::Memory;
use super::{BUILT, EVERY, alone, launch, run};
use crate::fixture::{context, stream, words};

type Form = fn(&mut dyn Recorder, &Buffer<i32>) -> Result<()>;

const FORMS: [Form; 5] = [
    |r, flag| r.while_nonzero(flag, |_| Ok(())),
    |r, flag| r.do_while_nonzero(flag, |_| Ok(())),
    |r, flag| r.if_nonzero(flag, |_| Ok(())),
    |r, flag| r.if_else_nonzero(flag, |_| Ok(()), |_| Ok(())),
    |r, flag| r.switch_on(flag, &mut [&mut |_| Ok(())]),
];

#[test]
fn a_flag_is_one_number() {
    let _alone = alone();
    let stream = stream();
    let memory = Memory::new(&stream, 3);
    for through in EVERY {
        for form in FORMS {
            run(through, &stream, |r| {
                for bytes in [0, 8] {
                    let flag = memory.all.slice(..bytes / 4).unwrap();
                    let Err(Error::SizeMismatch { what, wants, got }) = form(r, &flag) else {
                        panic!("{through:?}: a flag of {bytes} bytes");
                    };
                    assert_eq!((wants, got), (4, bytes), "{what}");
                }
                // Nothing is left of them, and it goes on.
                r.record(put(memory.cell(2), 7)).map(drop)
            })
            .unwrap();
            assert_eq!(memory.read(&stream), [0, 0, 7], "{through:?}");
            memory.write(&stream, &[0; 3]);
        }
    }
}

#[test]
fn a_switch_has_a_case() {
    let _alone = alone();
    let stream = stream();
    let memory = Memory::new(&stream, 1);
    for through in EVERY {
        run(through, &stream, |r| {
            let refused = r.switch_on(memory.cell(0), &mut []);
            assert!(
                matches!(refused, Err(Error::EmptySwitch)),
                "{through:?}: {refused:?}"
            );
            r.record(put(memory.cell(0), 7)).map(drop)
        })
        .unwrap();
        assert_eq!(memory.read(&stream), [7], "{through:?}");
        memory.write(&stream, &[0]);
    }
}

/// What no body of a graph may hold.
fn refused(stream: &Arc<CudaStream>) -> Vec<AnyOp> {
    let event = Arc::new(context().new_event(None).unwrap());
    event.record(stream).unwrap();
    let word = words(stream, &[0]);
    // SAFETY: the owner is the buffer's.
    let raw = unsafe { RawMemory::device(word.address(), 4) }.owned_by(word.owner());
    let calls = Graph::new(&context()).unwrap();
    calls.add(HostOp::new(|| {}), ()).unwrap();
    let outer = Graph::new(&context()).unwrap();
    outer.add(ChildOp::new(&calls), ()).unwrap();
    vec![
        HostOp::new(|| {}).label("a call").into(),
        RecordEventOp::new(&event).into(),
        WaitEventOp::new(&event).into(),
        AllocOp::new(MemoryLocation::Device(0), 16).into(),
        BatchOp::new().write32(&raw, 7).unwrap().into(),
        ChildOp::new(&calls).into(),
        ChildOp::new(&outer).into(),
    ]
}

#[test]
fn what_no_body_holds_is_refused_at_once() {
    let _alone = alone();
    let stream = stream();
    let memory = Memory::new(&stream, 3);
    let ops = refused(&stream);
    for through in BUILT {
        for op in &ops {
            // Refused where it is recorded: the body goes on without it, at any depth.
            run(through, &stream, |r| {
                r.if_else_nonzero(
                    memory.cell(0),
                    |_| Ok(()),
                    |r| {
                        r.do_while_nonzero(memory.cell(1), |r| {
                            r.record(put(memory.cell(2), 1))?;
                            let answer = r.record(op.clone());
                            assert!(
                                matches!(answer, Err(Error::NotInBody { .. })),
                                "{through:?}: {op:?}: {answer:?}"
                            );
                            r.record(put(memory.cell(2), 2)).map(drop)
                        })
                    },
                )
            })
            .unwrap();
            assert_eq!(memory.read(&stream), [0, 0, 2], "{through:?}: {op:?}");
            memory.write(&stream, &[0; 3]);
            // Handed through, it is the answer to the whole.
            let answer = run(through, &stream, |r| {
                r.while_nonzero(memory.cell(0), |r| r.record(op.clone()).map(drop))
            });
            let Err(Error::NotInBody { node }) = answer else {
                panic!("{through:?}: {op:?}: {answer:?}");
            };
            assert!(
                node.kind == op.kind() || op.kind() == NodeKind::Child,
                "{node}"
            );
        }
    }
}

#[test]
fn eagerly_loops_call_the_host() {
    let _alone = alone();
    let stream = stream();
    let memory = Memory::new(&stream, 1);
    memory.write(&stream, &[3]);
    let calls = Arc::new(AtomicU32::new(0));
    let event = Arc::new(context().new_event(None).unwrap());
    let mut eager = Eager::new(&stream).unwrap();
    eager
        .while_nonzero(memory.cell(0), |r| {
            let counted = calls.clone();
            r.record(HostOp::new(move || {
                counted.fetch_add(1, Ordering::Relaxed);
            }))?;
            r.record(RecordEventOp::new(&event))?;
            r.record(nearer(memory.cell(0))).map(drop)
        })
        .unwrap();
    stream.synchronize().unwrap();
    assert_eq!(calls.load(Ordering::Relaxed), 3);
    event.synchronize().unwrap();
}

#[test]
fn eagerly_a_captured_stream_is_refused() {
    let stream = stream();
    let line = line!() + 1;
    Graph::capture(&stream, |_| {
        let Err(Error::AlreadyCapturing { begun: Some(begun) }) = Eager::new(&stream) else {
            panic!("the stream is captured");
        };
        assert_eq!((begun.file(), begun.line()), (file!(), line));
        Ok(())
    })
    .unwrap();
    Eager::new(&stream).unwrap();
}

unsafe extern "C" fn nothing(_: *mut c_void) {}

type ForeignCall = fn(sys::CUstream, sys::CUevent) -> sys::CUresult;

/// Calls of the driver's own that record what no body holds.
const FOREIGN: [(NodeKind, ForeignCall); 3] = [
    (NodeKind::Host, |stream, _| {
        // SAFETY: the function does nothing.
        unsafe { sys::cuLaunchHostFunc(stream, Some(nothing), std::ptr::null_mut()) }
    }),
    (NodeKind::RecordEvent, |stream, event| {
        let external = sys::CUevent_record_flags::CU_EVENT_RECORD_EXTERNAL as u32;
        // SAFETY: the event is alive.
        unsafe { sys::cuEventRecordWithFlags(event, stream, external) }
    }),
    (NodeKind::WaitEvent, |stream, event| {
        let external = sys::CUevent_wait_flags::CU_EVENT_WAIT_EXTERNAL as u32;
        // SAFETY: the event is alive.
        unsafe { sys::cuStreamWaitEvent(stream, event, external) }
    }),
];

fn made(call: ForeignCall, stream: &Arc<CudaStream>, event: &CudaEvent) -> Result<()> {
    Ok(call(stream.cu_stream(), event.cu_event()).result()?)
}

#[test]
fn what_other_code_records_into_a_body_is_refused_at_the_end_of_its_block() {
    let _alone = alone();
    let stream = stream();
    let memory = Memory::new(&stream, 2);
    let event = context().new_event(None).unwrap();
    event.record(&stream).unwrap();
    for (kind, call) in FOREIGN {
        for deep in [false, true] {
            let what = format!("{kind}, deep: {deep}");
            let (graph, ()) = Graph::capture(&stream, |c| {
                let first = c.record(put(memory.cell(1), 7))?;
                let mut body = |r: &mut dyn Recorder| {
                    r.record(put(memory.cell(1), 8))?;
                    // SAFETY: nothing of it is recorded.
                    unsafe { r.foreign(|stream| made(call, stream, &event)) }
                };
                let answer = match deep {
                    false => c.if_nonzero(memory.cell(0), body),
                    true => c.if_nonzero(memory.cell(0), |r| {
                        r.while_nonzero(memory.cell(0), &mut body)
                    }),
                };
                let Err(Error::NotInBody { node }) = answer else {
                    panic!("{what}: {answer:?}");
                };
                assert_eq!(node.kind, kind, "{what}");
                // The capture goes on as if it had not been.
                assert_eq!(c.ends()?, [first.id()], "{what}");
                Ok(())
            })
            .unwrap();
            assert_eq!(graph.nodes().unwrap().len(), 1, "{what}");
            stream.synchronize().unwrap();
        }
    }
}

#[test]
fn a_body_captured_into_by_hand_keeps_what_it_had() {
    let _alone = alone();
    let stream = stream();
    let memory = Memory::new(&stream, 1);
    kernels();
    for (kind, call) in FOREIGN {
        let event = context().new_event(None).unwrap();
        event.record(&stream).unwrap();
        let graph = Graph::new(&context()).unwrap();
        let condition = graph.condition(Some(1)).unwrap();
        let node = graph.add(IfOp::new(&condition), ()).unwrap();
        let body = graph.body(node).unwrap();
        let first = body.add(put(memory.cell(0), 3), ()).unwrap();
        let answer = body.capture_into(&stream, first, |c| {
            c.record(put(memory.cell(0), 4))?;
            // SAFETY: nothing of it is recorded.
            unsafe { c.foreign(|stream| made(call, stream, &event)) }
        });
        assert!(
            matches!(&answer, Err(Error::NotInBody { node }) if node.kind == kind),
            "{kind}: {answer:?}"
        );
        assert_eq!(body.nodes().unwrap(), [first.id()], "{kind}");
        launch(&mut graph.instantiate().unwrap(), &stream).unwrap();
        assert_eq!(memory.read(&stream), [3], "{kind}");
    }
}

/// Of host memory, a device copies in a body what is page-locked.
#[test]
fn pageable_memory_is_not_copied_in_a_body() {
    let stream = stream();
    let to = words(&stream, &[0]);
    let graph = Graph::new(&context()).unwrap();
    let condition = graph.condition(Some(1)).unwrap();
    let node = graph.add(IfOp::new(&condition), ()).unwrap();
    let mut path = Path::new(&graph.body(node).unwrap());
    let pageable = CopyOp::new(&to, Arc::new(vec![7u32])).unwrap();
    let answer = path.record(pageable);
    assert!(matches!(answer, Err(Error::NotInBody { .. })), "{answer:?}");
    let pinned = cuda_graph::PinnedBuffer::from_slice(&context(), &[8u32]).unwrap();
    path.record(CopyOp::new(&to, &pinned).unwrap()).unwrap();
    graph.instantiate().unwrap().launch(&stream).unwrap();
    assert_eq!(to.to_host(&stream).unwrap(), [8]);
}

#[test]
fn pageable_memory_that_other_code_copies_is_refused_at_the_end_of_its_block() {
    let _alone = alone();
    let stream = stream();
    let memory = Memory::new(&stream, 1);
    let pageable = [7i32];
    let copies = |stream: &Arc<CudaStream>| {
        let (to, from) = (memory.cell(0).address(), pageable.as_ptr().cast());
        // SAFETY: both sides have one word, and what is recorded never runs.
        Ok(unsafe { sys::cuMemcpyHtoDAsync_v2(to, from, 4, stream.cu_stream()) }.result()?)
    };
    let (captured, ()) = Graph::capture(&stream, |c| {
        // SAFETY: nothing of it is recorded.
        let answer = c.if_nonzero(memory.cell(0), |r| unsafe { r.foreign(copies) });
        assert!(
            matches!(&answer, Err(Error::NotInBody { node }) if node.kind == NodeKind::Copy),
            "{answer:?}"
        );
        Ok(())
    })
    .unwrap();
    assert_eq!(captured.nodes().unwrap().len(), 0);
}
