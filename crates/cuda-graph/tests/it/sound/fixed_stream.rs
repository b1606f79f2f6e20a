//! The example `fixed_stream`: its step is compiled into this binary too, so that it runs on every
//! device that the others run on.

#[path = "../../../examples/fixed_stream.rs"]
mod example;

use cuda_graph::testing::settle;
use cuda_graph::{Eager, Error, Graph, Path};

use crate::fixture::{alone, context};
use example::{Job, LEN};

#[test]
fn code_with_a_stream_of_its_own_runs_in_a_loop_in_a_branch() {
    let _alone = alone();
    let job = Job::new(&context()).unwrap();
    let (graph, ()) = Graph::capture(&job.stream, |path| job.step(path)).unwrap();
    let mut exec = graph.instantiate().unwrap();
    drop(graph);
    for (go, turns) in [(true, 5), (true, 0), (false, 5), (true, 1)] {
        job.start(go, turns).unwrap();
        job.step(&mut Eager::new(&job.stream).unwrap()).unwrap();
        let wanted = job.result().unwrap();
        let made = if go { turns } else { 0 };
        let by = 0.5f32.powi(made as i32);
        let last = (LEN - 1) as f32;
        assert_eq!(wanted.0, made);
        assert_eq!(wanted.1[LEN - 1], if made > 0 { last * by } else { 0.0 });
        job.start(go, turns).unwrap();
        exec.launch(&job.stream).unwrap();
        assert_eq!(job.result().unwrap(), wanted, "{go}, {turns}");
    }
    // What the launches of the scaler use is kept when the job is gone.
    job.start(true, 3).unwrap();
    let stream = job.stream.clone();
    drop(job);
    exec.launch(&stream).unwrap();
    stream.synchronize().unwrap();
    drop(exec);
    settle();
    stream.synchronize().unwrap();
}

/// A recorder without a stream says that it has none; and nothing of the step stays.
#[test]
fn a_recorder_without_a_stream_refuses_it() {
    let job = Job::new(&context()).unwrap();
    let graph = Graph::new(&context()).unwrap();
    let refused = job.step(&mut Path::new(&graph));
    assert!(matches!(refused, Err(Error::NoStream)), "{refused:?}");
    assert!(graph.nodes().unwrap().is_empty());
}
