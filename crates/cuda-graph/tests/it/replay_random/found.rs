//! What random calls have found, one case each.

use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::sync::Arc;

use cuda_graph::cudarc::driver::{CudaStream, PushKernelArg};
use cuda_graph::{Body, Buffer, ChildOp, Eager, Error, Graph, HostOp, Recorder, Replay, Result};

use crate::control::kernels::{kernels, plus, put};
use crate::fixture::{alone, context, one, stream};

fn words(stream: &Arc<CudaStream>) -> [Buffer<i32>; 2] {
    let word = |value| Buffer::from_host(stream, &[value]).expect("it fits");
    [word(0), word(1)]
}

/// A graph that sets `to`, and then doubles it so many times.
fn doubling(to: &Buffer<i32>, value: i32, times: u32) -> Result<Graph> {
    let graph = Graph::new(&context())?;
    let mut last = graph.add(put(to, value), ())?;
    for _ in 0..times {
        last = graph.add(plus(to, to), last)?;
    }
    Ok(graph)
}

#[test]
fn embedded_graphs_are_updated_wherever_they_are() {
    let _alone = alone();
    let stream = stream();
    let [to, flag] = words(&stream);
    let mut replay = Replay::new(&context()).unwrap();
    for value in 0..5 {
        let graph = doubling(&to, value, 1).unwrap();
        replay
            .call(&stream, |r| {
                r.record(ChildOp::new(&graph))?;
                r.record(plus(&to, &to))?;
                r.if_nonzero(&flag, |r| {
                    let graph = doubling(&flag, value + 1, 0)?;
                    r.record(ChildOp::new(&graph)).map(drop)
                })
            })
            .unwrap();
        assert_eq!(to.to_host(&stream).unwrap(), [4 * value]);
        assert_eq!(flag.to_host(&stream).unwrap(), [value + 1]);
    }
    assert_eq!(replay.counters().builds, 1);
}

/// An embedded graph is copied when it is recorded.
#[test]
fn later_changes_of_a_graph_do_not_reach_what_was_recorded() {
    let stream = stream();
    let [to, _] = words(&stream);
    let mut replay = Replay::new(&context()).unwrap();
    for value in 0..3 {
        let step = |r: &mut dyn Recorder| {
            let graph = doubling(&to, value, 0)?;
            r.record(ChildOp::new(&graph))?;
            let nodes = graph.nodes()?;
            graph.add(put(&to, -1), nodes.as_slice()).map(drop)
        };
        replay.call(&stream, step).unwrap();
        assert_eq!(to.to_host(&stream).unwrap(), [value]);
    }
    assert_eq!(replay.counters().builds, 1);
}

#[test]
fn embedded_graphs_and_foreign_work_of_each_topology_are_built_once() {
    let stream = stream();
    let [to, one_more] = words(&stream);
    let function = &kernels().plus_function;
    let (to_address, from_address) = (to.address(), one_more.address());
    for is_foreign in [false, true] {
        let mut replay = Replay::new(&context()).unwrap();
        for call in 0..12 {
            let times = 1 + call % 3;
            replay
                .call(&stream, |r| {
                    r.record(put(&to, 0))?;
                    if !is_foreign {
                        r.record(ChildOp::new(&doubling(&to, call as i32, times)?))?;
                        return Ok(());
                    }
                    r.keep(to.owner())?;
                    r.keep(one_more.owner())?;
                    // SAFETY: both buffers are kept.
                    unsafe {
                        r.foreign(|stream| {
                            for _ in 0..times {
                                let mut launch = stream.launch_builder(function);
                                launch.arg(&to_address).arg(&from_address).launch(one())?;
                            }
                            Ok(())
                        })
                    }
                })
                .unwrap();
            let wanted = match is_foreign {
                true => times as i32,
                false => (call as i32) << times,
            };
            assert_eq!(to.to_host(&stream).unwrap(), [wanted]);
        }
        assert_eq!(replay.counters().builds, 3, "foreign: {is_foreign}");
    }
}

fn meant() -> Error {
    Error::other(std::io::Error::other("as meant"))
}

/// A branch that fails keeps what it recorded, as it does in an eager step.
#[test]
fn branches_that_fail_unnoticed_leave_what_eager_ones_leave() {
    let stream = stream();
    let run = |call: &mut dyn FnMut(&mut Body<'_>) -> Result<()>| {
        let [a, b] = words(&stream);
        let mut left = Vec::new();
        for fails in [true, false, true, true, false] {
            call(&mut |r| {
                let failed = r.parallel(&mut [
                    &mut |r| {
                        r.record(plus(&a, &a))?;
                        r.record(put(&a, 3))?;
                        if fails { Err(meant()) } else { Ok(()) }
                    },
                    &mut |r| r.record(plus(&b, &b)).map(drop),
                ]);
                assert_eq!(failed.is_err(), fails);
                r.record(plus(&b, &a)).map(drop)
            })
            .unwrap();
            left.push([a.to_host(&stream).unwrap(), b.to_host(&stream).unwrap()]);
        }
        left
    };
    let mut replay = Replay::new(&context()).unwrap();
    let replayed = run(&mut |step| replay.call(&stream, step).map(|_| ()));
    let eager = run(&mut |step| step(&mut Eager::new(&stream)?));
    assert_eq!(replayed, eager);
    assert_eq!(replay.counters().builds, 2);
}

/// A step that catches a panic of a body fails, and the next call is none the wiser.
#[test]
fn a_panic_that_a_step_catches_fails_its_call() {
    let _alone = alone();
    let stream = stream();
    let [a, flag] = words(&stream);
    let mut replay = Replay::new(&context()).unwrap();
    for call in 1..6 {
        let panics = call % 2 == 0;
        let called = replay.call(&stream, |r| {
            r.record(put(&a, call))?;
            let caught = catch_unwind(AssertUnwindSafe(|| {
                r.if_nonzero(&flag, |r| {
                    r.record(plus(&a, &a))?;
                    if panics {
                        resume_unwind(Box::new("as meant"));
                    }
                    Ok(())
                })
            }));
            assert_eq!(caught.is_err(), panics);
            r.record(plus(&a, &flag)).map(drop)
        });
        let last = if panics { call - 1 } else { call };
        assert_eq!(called.is_err(), panics, "{called:?}");
        assert_eq!(a.to_host(&stream).unwrap(), [2 * last + 1]);
    }
    assert_eq!(replay.counters().builds, 1);
}

#[test]
fn bodies_that_the_host_drives_may_hold_what_bodies_in_graphs_may_not() {
    let _alone = alone();
    let stream = stream();
    let [a, flag] = words(&stream);
    let mut replay = Replay::new(&context()).unwrap();
    let step = |r: &mut dyn Recorder| {
        r.if_nonzero(&flag, |r| {
            r.record(HostOp::new(|| {}))?;
            r.outside(|stream| a.copy_from_host(stream, &[7]))
        })
    };
    step(&mut Eager::new(&stream).unwrap()).unwrap();
    replay.call(&stream, step).unwrap();
}

#[test]
fn loops_without_sections_for_the_host_are_held_by_graphs_again() {
    let _alone = alone();
    let stream = stream();
    let [a, flag] = words(&stream);
    let mut replay = Replay::new(&context()).unwrap();
    for has_section in [true, false, false, false] {
        replay
            .call(&stream, |r| {
                r.if_nonzero(&flag, |r| {
                    if has_section {
                        r.outside(|_| Ok(()))?;
                    }
                    r.record(plus(&a, &flag)).map(drop)
                })
            })
            .unwrap();
    }
    assert_eq!(a.to_host(&stream).unwrap(), [4]);
    // That of the call behind may be driven before it is known.
    assert!(
        replay.counters().host_driven <= 2,
        "{:?}",
        replay.counters()
    );
}
