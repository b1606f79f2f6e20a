//! What random calls have found, one case each.

use std::sync::Arc;

use cuda_graph::cudarc::driver::{CudaStream, PushKernelArg};
use cuda_graph::{Buffer, ChildOp, Graph, Recorder, Replay, Result};

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
