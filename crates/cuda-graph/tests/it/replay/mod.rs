//! Steps that a [`Replay`] calls again and again: what they compute, and what that costs.
//!
//! Results are compared with those of an [`Eager`], and counters with what a call may cost. Loops
//! of other tests may not run beside these ([`alone`](crate::fixture::alone)).

mod again;
mod cache;
mod checkpoints;
mod eager;
mod foreign;
mod held;
mod memory;
mod outside;
mod params;
mod sites;

use std::sync::Arc;

use cuda_graph::cudarc::driver::CudaStream;
use cuda_graph::{Buffer, Counters, Eager, Error, Recorder, Replay, ReplayOptions, Result};

use crate::fixture::{add, context, words};

/// A step of a table.
type Step<'a> = &'a dyn Fn(&mut dyn Recorder) -> Result<()>;

/// A replay in the context of all tests.
fn replay() -> Replay {
    Replay::new(&context()).expect("there is a driver")
}

/// A replay that keeps so many executables.
fn replay_of(executables: usize) -> Replay {
    let options = ReplayOptions {
        executables,
        ..ReplayOptions::default()
    };
    Replay::with_options(&context(), options).expect("there is a driver")
}

/// A word with this value.
fn word(stream: &Arc<CudaStream>, value: u32) -> Buffer<u32> {
    words(stream, &[value])
}

#[track_caller]
fn read(stream: &Arc<CudaStream>, of: &Buffer<u32>) -> u32 {
    of.to_host(stream).expect("it can be read")[0]
}

fn set(stream: &Arc<CudaStream>, word: &Buffer<u32>, value: u32) {
    word.copy_from_host(stream, &[value])
        .expect("it can be written");
}

/// What a call, or several, counted.
#[track_caller]
fn counted(replay: &mut Replay, calls: impl FnOnce(&mut Replay)) -> Counters {
    let before = replay.counters();
    calls(replay);
    let mut now = replay.counters();
    now.calls -= before.calls;
    now.launches -= before.launches;
    now.builds -= before.builds;
    now.twins -= before.twins;
    now.hits -= before.hits;
    now.evictions -= before.evictions;
    now.compared -= before.compared;
    now.updated -= before.updated;
    now.host_driven -= before.host_driven;
    now.eager -= before.eager;
    now
}

/// Calls a step, and returns what the call counted.
#[track_caller]
fn call(
    replay: &mut Replay,
    stream: &Arc<CudaStream>,
    step: impl FnMut(&mut dyn Recorder) -> Result<()>,
) -> Counters {
    counted(replay, |replay| {
        replay.call(stream, step).expect("the step runs");
    })
}

/// Runs a step once, now.
#[track_caller]
fn eagerly(stream: &Arc<CudaStream>, mut step: impl FnMut(&mut dyn Recorder) -> Result<()>) {
    let mut eager = Eager::new(stream).expect("the stream runs steps");
    step(&mut eager).expect("the step runs");
}

/// An error of a step's own.
fn failure() -> Error {
    Error::other(std::io::Error::other("as meant"))
}

#[track_caller]
fn assert_failure<T: std::fmt::Debug>(answer: Result<T>) {
    assert!(matches!(answer, Err(Error::Other(_))), "{answer:?}");
}

/// The words that count: `minus` takes one away, `one` adds it.
struct Counting {
    minus: Buffer<u32>,
    one: Buffer<u32>,
}

impl Counting {
    fn new(stream: &Arc<CudaStream>) -> Counting {
        Counting {
            minus: word(stream, u32::MAX),
            one: word(stream, 1),
        }
    }

    /// Adds one to `turns` until `left`, which is the flag, is 0: at least once.
    fn count(&self, r: &mut dyn Recorder, left: &Buffer<u32>, turns: &Buffer<u32>) -> Result<()> {
        r.do_while_nonzero(left, |r| self.turn(r, left, turns))
    }

    /// One turn of such a loop.
    fn turn(&self, r: &mut dyn Recorder, left: &Buffer<u32>, turns: &Buffer<u32>) -> Result<()> {
        r.record(add(turns, &self.one))?;
        r.record(add(left, &self.minus)).map(drop)
    }
}

/// Whether executables, as counted, are those that were made and not dropped.
#[track_caller]
fn assert_balanced(replay: &Replay) {
    let counters = replay.counters();
    let kept = counters.builds + counters.twins - counters.evictions;
    assert_eq!(replay.executables() as u64, kept, "{counters:?}");
    let launched = counters.builds + counters.twins + counters.hits;
    assert_eq!(counters.launches, launched, "{counters:?}");
}
