//! Loops and branches through each recorder.

mod failure;
mod foreign;
mod holding;
pub mod kernels;
mod lost;
mod matrix;
mod misuse;
mod program;
mod random;
mod steps;
mod strays;
mod turns;
mod updates;

use std::sync::Arc;

use cuda_graph::cudarc::driver::CudaStream;
use cuda_graph::{Buffer, Eager, Error, Exec, Graph, Path, Recorder, Result};

pub use crate::fixture::alone;
use crate::fixture::{add, context, store, stream, words};

/// Ways to run a step.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Through {
    Path,
    Capture,
    /// Into a graph that exists, when the step is whole.
    Into,
    Eager,
}

/// The recorders that make graphs.
pub const BUILT: [Through; 3] = [Through::Path, Through::Capture, Through::Into];

pub const EVERY: [Through; 4] = [
    Through::Path,
    Through::Capture,
    Through::Into,
    Through::Eager,
];

/// Runs a step once.
pub fn run(
    through: Through,
    stream: &Arc<CudaStream>,
    mut step: impl FnMut(&mut dyn Recorder) -> Result<()>,
) -> Result<()> {
    match through {
        Through::Eager => step(&mut Eager::new(stream)?),
        _ => launch(
            &mut recorded(through, stream, step)?.0.instantiate()?,
            stream,
        ),
    }
}

/// The graph that a step makes, which must not be run eagerly.
pub fn recorded<T>(
    through: Through,
    stream: &Arc<CudaStream>,
    mut step: impl FnMut(&mut dyn Recorder) -> Result<T>,
) -> Result<(Graph, T)> {
    match through {
        Through::Path => {
            let graph = Graph::new(stream.context())?;
            let made = step(&mut Path::new(&graph))?;
            Ok((graph, made))
        }
        Through::Capture => Graph::capture(stream, |c| step(c)),
        Through::Into => {
            let graph = Graph::new(stream.context())?;
            let made = graph.capture_into(stream, (), |c| step(c))?;
            Ok((graph, made))
        }
        Through::Eager => panic!("it makes no graph"),
    }
}

/// Launches an executable and waits until it has run.
pub fn launch(exec: &mut Exec, stream: &Arc<CudaStream>) -> Result<()> {
    exec.launch(stream)?;
    Ok(stream.synchronize()?)
}

/// A word with this value.
fn word(stream: &Arc<CudaStream>, value: u32) -> Buffer<u32> {
    words(stream, &[value])
}

fn read(stream: &Arc<CudaStream>, of: &Buffer<u32>) -> u32 {
    of.to_host(stream).unwrap()[0]
}

#[test]
fn loops_go_on_while_the_flag_is_set() {
    let _alone = alone();
    let stream = stream();
    let (minus, one) = (word(&stream, u32::MAX), word(&stream, 1));
    for through in EVERY {
        for (times, at_least) in [(0, 0), (1, 0), (3, 0), (1000, 0), (1, 1), (4, 1)] {
            let (left, turns) = (word(&stream, times), word(&stream, 0));
            run(through, &stream, |r| {
                let body = |r: &mut dyn Recorder| {
                    r.record(add(&left, &minus))?;
                    r.record(add(&turns, &one))?;
                    Ok(())
                };
                match at_least {
                    0 => r.while_nonzero(&left, body),
                    _ => r.do_while_nonzero(&left, body),
                }
            })
            .unwrap();
            assert_eq!(
                read(&stream, &turns),
                times.max(at_least),
                "{through:?}, {times} times"
            );
        }
    }
}

#[test]
fn branches_are_taken_by_the_flag() {
    let _alone = alone();
    let stream = stream();
    for through in EVERY {
        for value in [0, 1, 2, 3, 200, u32::MAX] {
            let flag = word(&stream, value);
            let (a, b, c) = (word(&stream, 0), word(&stream, 0), word(&stream, 9));
            run(through, &stream, |r| {
                r.if_nonzero(&flag, |r| r.record(store(&a, 1)).map(drop))?;
                r.if_else_nonzero(
                    &flag,
                    |r| r.record(store(&b, 1)).map(drop),
                    |r| r.record(store(&b, 2)).map(drop),
                )?;
                r.switch_on(
                    &flag,
                    &mut [
                        &mut |r| r.record(store(&c, 0)).map(drop),
                        &mut |r| r.record(store(&c, 1)).map(drop),
                        &mut |r| r.record(store(&c, 2)).map(drop),
                    ],
                )
            })
            .unwrap();
            let got = [&a, &b, &c].map(|buffer| read(&stream, buffer));
            let one = u32::from(value != 0);
            let case = if value < 3 { value } else { 9 };
            assert_eq!(got, [one, 2 - one, case], "{through:?}, {value}");
        }
    }
}

#[test]
fn inner_loops_are_entered_anew() {
    let _alone = alone();
    let stream = stream();
    let (minus, one) = (word(&stream, u32::MAX), word(&stream, 1));
    for through in EVERY {
        let (outer, inner, turns) = (word(&stream, 5), word(&stream, 0), word(&stream, 0));
        run(through, &stream, |r| {
            r.while_nonzero(&outer, |r| {
                // As many inner turns as outer ones are left.
                r.record(store(&inner, 0))?;
                r.record(add(&inner, &outer))?;
                r.do_while_nonzero(&inner, |r| {
                    r.record(add(&inner, &minus))?;
                    r.record(add(&turns, &one)).map(drop)
                })?;
                r.record(add(&outer, &minus)).map(drop)
            })
        })
        .unwrap();
        assert_eq!(read(&stream, &turns), 15, "{through:?}");
    }
}

#[test]
fn a_body_that_fails_leaves_nothing_and_the_stream_usable() {
    let _alone = alone();
    let stream = stream();
    let (flag, a) = (word(&stream, 1), word(&stream, 0));
    let graph = Graph::new(&context()).unwrap();
    let mut path = Path::new(&graph);
    let failing = |r: &mut dyn Recorder| {
        r.record(store(&a, 1))?;
        Err(Error::other(std::io::Error::other("as meant")))
    };
    assert!(matches!(
        path.while_nonzero(&flag, failing),
        Err(Error::Other(_))
    ));
    assert!(graph.nodes().unwrap().is_empty());
    path.while_nonzero(&flag, |r| r.record(store(&flag, 0)).map(drop))
        .unwrap();
    graph.instantiate().unwrap().launch(&stream).unwrap();
    assert_eq!(read(&stream, &flag), 0);

    let captured = Graph::capture(&stream, |c| c.while_nonzero(&flag, failing));
    assert!(matches!(captured, Err(Error::Other(_))), "{captured:?}");
    stream.synchronize().unwrap();
    assert!(matches!(
        Eager::new(&stream)
            .unwrap()
            .do_while_nonzero(&flag, failing),
        Err(Error::Other(_))
    ));
}
