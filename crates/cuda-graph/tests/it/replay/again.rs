//! Runs before which nothing changed: the executable is launched as it is.

use std::sync::Arc;
use std::thread;

use cuda_graph::cudarc::driver::CudaStream;
use cuda_graph::testing::with_failing_call;
use cuda_graph::{Buffer, Error, KernelOp, Param, Recorder, Replay, Result};

use super::{call, counted, read, replay, set, word};
use crate::fixture::{add, context, kernel, one, store, stream};

/// Adds the parameter's word to `sum`.
fn step(sum: &Buffer<u32>, value: &Param<Buffer<u32>>) -> impl Fn(&mut dyn Recorder) -> Result<()> {
    let (sum, value) = (sum.clone(), value.clone());
    move |r| {
        // SAFETY: `add` reads and writes one word of each.
        r.record(unsafe { KernelOp::new(kernel("add"), one(), (&sum, &value)) }?)?;
        Ok(())
    }
}

/// Runs it twice, so that the second run finds nothing that changed.
#[track_caller]
fn twice(replay: &mut Replay, stream: &Arc<CudaStream>) {
    replay.run(stream).expect("it runs");
    let did = counted(replay, |replay| {
        replay.run(stream).expect("it runs");
    });
    assert_eq!(
        (did.calls, did.hits, did.launches, did.updated),
        (1, 1, 1, 0)
    );
}

#[test]
fn each_run_counts_and_tells_its_nodes() {
    let stream = stream();
    let mut replay = replay();
    let (sum, one) = (word(&stream, 0), word(&stream, 1));
    let value = Param::with_value("value", one);
    call(&mut replay, &stream, step(&sum, &value));
    for _ in 0..5 {
        twice(&mut replay, &stream);
        assert_eq!(replay.nodes(), 1);
    }
    assert_eq!(read(&stream, &sum), 11);
    assert_eq!(
        (replay.counters().calls, replay.counters().launches),
        (11, 11)
    );
}

#[test]
fn a_value_from_anywhere_is_seen() {
    let stream = stream();
    let (mut replay, mut other) = (replay(), replay());
    let (sum, elsewhere) = (word(&stream, 0), word(&stream, 0));
    let words: Vec<_> = (0..4).map(|bit| word(&stream, 1 << bit)).collect();
    let value = Param::with_value("value", words[0].clone());
    call(&mut replay, &stream, step(&sum, &value));
    call(&mut other, &stream, step(&elsewhere, &value));
    twice(&mut replay, &stream);
    assert_eq!(read(&stream, &sum), 3);

    // By a clone in another thread, by another replay, and by this one.
    thread::scope(|scope| {
        let (value, word) = (value.clone(), words[1].clone());
        scope.spawn(move || value.set(word));
    });
    twice(&mut replay, &stream);
    assert_eq!(read(&stream, &sum), 3 + 2 * 2);
    other.bind(&value, words[2].clone()).unwrap();
    twice(&mut replay, &stream);
    assert_eq!(read(&stream, &sum), 7 + 2 * 4);
    replay.bind(&value, words[3].clone()).unwrap();
    twice(&mut replay, &stream);
    assert_eq!(read(&stream, &sum), 15 + 2 * 8);
}

#[test]
fn a_value_of_a_stranger_changes_nothing() {
    let stream = stream();
    let mut replay = replay();
    let sum = word(&stream, 0);
    let value = Param::with_value("value", word(&stream, 1));
    call(&mut replay, &stream, step(&sum, &value));
    twice(&mut replay, &stream);
    Param::new("stranger").set(5u32);
    twice(&mut replay, &stream);
    assert_eq!(read(&stream, &sum), 5);
}

#[test]
fn another_stream_and_calls_between_are_followed() {
    let streams = [stream(), stream()];
    let mut replay = replay();
    let (sum, other) = (word(&streams[0], 0), word(&streams[0], 0));
    let value = Param::with_value("value", word(&streams[0], 1));
    call(&mut replay, &streams[0], step(&sum, &value));
    for round in 0..3 {
        twice(&mut replay, &streams[0]);
        twice(&mut replay, &streams[1]);
        streams[1].synchronize().unwrap();
        assert_eq!(read(&streams[0], &sum), 1 + round * 5 + 4);
        // Another executable, and then the same one with another operand.
        call(&mut replay, &streams[0], |r| {
            r.record(store(&other, 10 + round))?;
            r.record(store(&other, 20 + round))?;
            Ok(())
        });
        set(&streams[0], &other, 0);
        twice(&mut replay, &streams[0]);
        assert_eq!((read(&streams[0], &other), replay.nodes()), (20 + round, 2));
        call(&mut replay, &streams[0], step(&sum, &value));
    }
    // The operands of the executable that stands are held by it alone.
    call(&mut replay, &streams[0], |r| {
        let from = word(&streams[0], 7);
        r.record(add(&sum, &from))?;
        Ok(())
    });
    set(&streams[0], &sum, 0);
    twice(&mut replay, &streams[0]);
    let _noise: Vec<_> = (0..8).map(|_| word(&streams[0], 99)).collect();
    twice(&mut replay, &streams[0]);
    assert_eq!(read(&streams[0], &sum), 4 * 7);
}

#[test]
fn a_refused_launch_counts_as_a_call_and_the_next_runs() {
    let stream = stream();
    let mut replay = replay();
    let sum = word(&stream, 0);
    let value = Param::with_value("value", word(&stream, 1));
    call(&mut replay, &stream, step(&sum, &value));
    twice(&mut replay, &stream);
    let before = replay.counters();
    let (refused, _) = with_failing_call(0, || replay.run(&stream));
    let refused = refused.unwrap_err();
    assert!(matches!(refused, Error::Call { .. }), "{refused}");
    let after = replay.counters();
    assert_eq!(
        (after.calls, after.launches),
        (before.calls + 1, before.launches)
    );
    twice(&mut replay, &stream);
    assert_eq!(read(&stream, &sum), 5);
}

/// Adds `values[0]` to each of the sums, and stores it and `values[1]`.
fn three(cells: &[Buffer<u32>; 3], values: &[Param<u32>; 2], r: &mut dyn Recorder) -> Result<()> {
    for (cell, value) in cells.iter().zip([0, 1, 0]) {
        // SAFETY: `store` writes one word.
        r.record(unsafe { KernelOp::new(kernel("store"), one(), (cell, &values[value])) }?)?;
    }
    Ok(())
}

#[test]
fn numbers_change_in_any_order() {
    let stream = stream();
    let mut replay = replay();
    let cells = [word(&stream, 0), word(&stream, 0), word(&stream, 0)];
    let values = [Param::with_value("a", 0), Param::with_value("b", 0)];
    let step = |r: &mut dyn Recorder| three(&cells, &values, r);
    call(&mut replay, &stream, step);
    let mut wants = [0, 0];
    let mut seed = 7u32;
    for round in 1..400 {
        seed = seed.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
        let act = seed >> 24;
        for (bit, value) in values.iter().enumerate() {
            // The first mostly, by itself.
            if act >> (bit * 3) & 7 < [6, 1][bit] {
                wants[bit] = round;
                match act >> 6 & 1 {
                    0 => replay.bind(value, round).unwrap(),
                    _ => drop(value.set(round)),
                }
            }
        }
        cells.iter().for_each(|cell| set(&stream, cell, 9999));
        match seed >> 16 & 15 {
            0 => drop(call(&mut replay, &stream, step)),
            _ => drop(replay.run(&stream).unwrap()),
        }
        let got: Vec<_> = cells.iter().map(|cell| read(&stream, cell)).collect();
        assert_eq!(got, [wants[0], wants[1], wants[0]], "round {round}");
    }
    assert_eq!(replay.counters().builds + replay.counters().twins, 1);
}

#[test]
fn whatever_the_driver_refuses_the_next_run_is_right() {
    let stream = stream();
    let cells = [word(&stream, 0), word(&stream, 0), word(&stream, 0)];
    let values = [Param::with_value("a", 1u32), Param::with_value("b", 2)];
    for nth in 0..8 {
        let mut replay = replay();
        values[0].set(1);
        call(&mut replay, &stream, |r| three(&cells, &values, r));
        for value in [3, 4] {
            replay.bind(&values[0], value).unwrap();
            replay.run(&stream).unwrap();
        }
        cells.iter().for_each(|cell| set(&stream, cell, 9999));
        replay.bind(&values[0], 5).unwrap();
        stream.synchronize().unwrap();
        let (answer, fired) = with_failing_call(nth, || replay.run(&stream).map(drop));
        assert_eq!(answer.is_err(), fired, "call {nth}");
        let got: Vec<_> = cells.iter().map(|cell| read(&stream, cell)).collect();
        match fired {
            true => assert_eq!(got, [9999; 3], "call {nth}: something ran"),
            false => assert_eq!(got, [5, 2, 5]),
        }
        replay.run(&stream).unwrap();
        let got: Vec<_> = cells.iter().map(|cell| read(&stream, cell)).collect();
        assert_eq!(got, [5, 2, 5], "after call {nth} failed");
        // Two kernels and the launch.
        assert_eq!(fired, nth < 3, "call {nth}");
    }
}

#[test]
fn values_set_by_many_threads_are_all_seen_in_the_end() {
    let stream = stream();
    let mut replay = replay();
    let cells = [word(&stream, 0), word(&stream, 0), word(&stream, 0)];
    let values = [Param::with_value("a", 0u32), Param::with_value("b", 0)];
    call(&mut replay, &stream, |r| three(&cells, &values, r));
    for round in 1..20 {
        thread::scope(|scope| {
            for (which, value) in values.iter().enumerate() {
                scope.spawn(move || {
                    for number in 0..=40 * (1 + which as u32) {
                        value.set(round * 1000 + number);
                    }
                });
            }
            for _ in 0..40 {
                replay.run(&stream).unwrap();
            }
        });
        replay.run(&stream).unwrap();
        let got: Vec<_> = cells.iter().map(|cell| read(&stream, cell)).collect();
        let (a, b) = (round * 1000 + 40, round * 1000 + 80);
        assert_eq!(got, [a, b, a], "round {round}");
    }
}

#[test]
fn after_a_reset_there_is_nothing_to_run() {
    let stream = stream();
    let mut replay = replay();
    let sum = word(&stream, 0);
    let value = Param::with_value("value", word(&stream, 1));
    call(&mut replay, &stream, step(&sum, &value));
    twice(&mut replay, &stream);
    replay.reset(&context());
    let refused = replay.run(&stream).unwrap_err();
    assert!(matches!(refused, Error::NotCalled { .. }), "{refused}");
}
