//! Foreign work in steps that are replayed: captured on each call, and set on its node.

use std::sync::Arc;

use cuda_graph::cudarc::driver::result::memset_d8_async;
use cuda_graph::cudarc::driver::{CudaStream, LaunchConfig, PushKernelArg};
use cuda_graph::{Buffer, CaptureInfo, CaptureStatus, Error, Recorder, Replay, Result};

use super::{assert_balanced, assert_failure, call, eagerly, failure, read, replay, set, word};
use crate::fixture::{Watch, add, alone, context, function, one, store, stream, words};

/// Fills a word's bytes by a call of the driver's.
fn memset(stream: &Arc<CudaStream>, to: &Buffer<u32>, byte: u8) -> Result<()> {
    // SAFETY: the word is kept by the steps.
    unsafe { memset_d8_async(to.address(), byte, 4, stream.cu_stream()) }?;
    Ok(())
}

/// Stores by a launch of cudarc's.
fn launch_store(stream: &Arc<CudaStream>, to: &Buffer<u32>, value: u32) -> Result<()> {
    let (store, address) = (function("store"), to.address());
    let mut launch = stream.launch_builder(&store);
    launch.arg(&address).arg(&value);
    // SAFETY: `store` writes one word, which the steps keep.
    unsafe { launch.launch(one()) }?;
    Ok(())
}

/// Foreign work on `to`: so many nodes.
fn work(r: &mut dyn Recorder, to: &Buffer<u32>, byte: u8, nodes: usize) -> Result<()> {
    r.keep(to.owner())?;
    // SAFETY: the buffer is kept.
    unsafe {
        r.foreign(|stream| {
            for _ in 1..nodes {
                launch_store(stream, to, 5)?;
            }
            memset(stream, to, byte)
        })
    }
}

fn bytes(byte: u8) -> u32 {
    u32::from_ne_bytes([byte; 4])
}

#[test]
fn foreign_work_is_set_anew_on_each_call() {
    let stream = stream();
    let mut replay = replay();
    for number in 0..10u8 {
        let (to, sum) = (word(&stream, 0), word(&stream, 1));
        let did = call(&mut replay, &stream, |r| {
            work(r, &to, number, 3)?;
            r.record(add(&sum, &to)).map(drop)
        });
        assert_eq!(read(&stream, &to), bytes(number));
        assert_eq!(read(&stream, &sum), bytes(number) + 1);
        assert_eq!(did.builds, u64::from(number == 0), "call {number}");
        // The work, what is kept for it, and the sum.
        assert_eq!(did.updated, if number == 0 { 0 } else { 3 });
        assert_eq!(did.launches, 1);
    }
    assert_eq!(replay.executables(), 1);
    assert_balanced(&replay);
}

#[test]
fn foreign_work_alone_is_a_step() {
    let stream = stream();
    let mut replay = replay();
    let to = word(&stream, 0);
    for number in 0..6u8 {
        let did = call(&mut replay, &stream, |r| work(r, &to, number, 1));
        assert_eq!(read(&stream, &to), bytes(number));
        assert_eq!(did.builds, u64::from(number == 0), "call {number}");
    }
    assert_eq!(replay.executables(), 1);
}

#[test]
fn foreign_work_of_another_topology_is_another_executable() {
    let stream = stream();
    let mut replay = replay();
    let to = word(&stream, 0);
    for round in 0..4u8 {
        for nodes in [1, 2, 3] {
            let byte = 10 * round + nodes as u8;
            call(&mut replay, &stream, |r| {
                work(r, &to, byte, nodes)?;
                r.record(add(&to, &to)).map(drop)
            });
            assert_eq!(read(&stream, &to), bytes(byte).wrapping_mul(2));
        }
    }
    assert_balanced(&replay);
}

#[test]
fn each_topology_of_foreign_work_is_built_once() {
    let stream = stream();
    let mut replay = replay();
    let to = word(&stream, 0);
    for round in 0..4u8 {
        for nodes in [1, 2, 3] {
            let did = call(&mut replay, &stream, |r| {
                work(r, &to, round, nodes)?;
                r.record(add(&to, &to)).map(drop)
            });
            assert_eq!(
                did.builds,
                u64::from(round == 0),
                "round {round}, {nodes} nodes"
            );
        }
    }
    assert_eq!(replay.executables(), 3);
}

#[test]
fn foreign_work_that_does_nothing_is_not_there() {
    let stream = stream();
    let mut replay = replay();
    let to = word(&stream, 0);
    for number in 0..6u32 {
        let with = number % 2 == 1;
        let did = call(&mut replay, &stream, |r| {
            r.record(store(&to, number))?;
            // SAFETY: the buffer outlives the launch.
            unsafe {
                r.foreign(|stream| match with {
                    true => memset(stream, &to, 1),
                    false => Ok(()),
                })
            }
        });
        assert_eq!(read(&stream, &to), if with { bytes(1) } else { number });
        assert_eq!(did.builds, u64::from(number < 2));
        assert_eq!(replay.nodes() > 1, with);
    }
}

#[test]
fn foreign_work_runs_in_bodies_and_branches() {
    let _alone = alone();
    let stream = stream();
    let mut replay = replay();
    let minus = word(&stream, u32::MAX);
    for number in 1..6u8 {
        let flag = word(&stream, u32::from(number));
        let cells: Vec<_> = (0..4).map(|_| word(&stream, 0)).collect();
        let step = |r: &mut dyn Recorder| {
            r.while_nonzero(&flag, |r| {
                work(r, &cells[0], number, 2)?;
                r.record(add(&cells[1], &cells[0]))?;
                r.if_nonzero(&flag, |r| work(r, &cells[2], number, 1))?;
                r.record(add(&flag, &minus)).map(drop)
            })?;
            r.parallel(&mut [&mut |r| work(r, &cells[0], number + 1, 1), &mut |r| {
                work(r, &cells[3], number + 2, 2)
            }])?;
            r.record(add(&cells[3], &cells[0])).map(drop)
        };
        let did = call(&mut replay, &stream, step);
        assert_eq!(did.builds, u64::from(number == 1), "call {number}");
        let got: Vec<_> = cells.iter().map(|cell| read(&stream, cell)).collect();
        for cell in &cells {
            set(&stream, cell, 0);
        }
        set(&stream, &flag, u32::from(number));
        eagerly(&stream, step);
        let eager: Vec<_> = cells.iter().map(|cell| read(&stream, cell)).collect();
        assert_eq!(got, eager);
        assert_eq!(got[1], bytes(number).wrapping_mul(u32::from(number)));
    }
    assert_eq!(
        (replay.executables(), replay.counters().host_driven),
        (1, 0)
    );
    assert_balanced(&replay);
}

#[test]
fn an_error_of_foreign_work_is_the_steps_own() {
    let stream = stream();
    let mut replay = replay();
    let to = word(&stream, 0);
    for number in 0..4u32 {
        // Returned, and swallowed.
        let answer = replay.call(&stream, |r| {
            r.record(store(&to, 1000))?;
            // SAFETY: the work fails.
            unsafe {
                r.foreign(|stream| {
                    memset(stream, &to, 9)?;
                    Err::<(), _>(failure())
                })
            }
        });
        assert_failure(answer);
        assert_eq!(read(&stream, &to), if number == 0 { 0 } else { number + 9 });
        let did = call(&mut replay, &stream, |r| {
            r.record(store(&to, number + 10))?;
            // SAFETY: the work fails.
            let failed = unsafe {
                r.foreign(|stream| {
                    memset(stream, &to, 9)?;
                    Err::<(), _>(failure())
                })
            };
            assert_failure(failed);
            Ok(())
        });
        assert_eq!(
            read(&stream, &to),
            number + 10,
            "nothing of the block is recorded"
        );
        assert_eq!((did.builds, replay.nodes()), (u64::from(number == 0), 1));
        // The stream is captured no more.
        assert_eq!(
            CaptureInfo::of(&stream).unwrap().status,
            CaptureStatus::None
        );
    }
}

#[test]
fn a_value_comes_out_of_foreign_work() {
    let stream = stream();
    let mut replay = replay();
    let to = word(&stream, 0);
    for number in 0..3u8 {
        let mut got = None;
        call(&mut replay, &stream, |r| {
            // SAFETY: the buffer outlives the launch.
            let value = unsafe { r.foreign(|stream| memset(stream, &to, number).map(|()| number)) };
            got = Some(value?);
            Ok(())
        });
        assert_eq!(got, Some(number));
    }
}

/// The null stream cannot be captured, so a step that asked for it would fail.
#[test]
fn a_step_without_foreign_work_captures_nothing() {
    let _alone = alone();
    let null = context().default_stream();
    let mut replay = replay();
    let (to, flag) = (word(&null, 0), word(&null, 0));
    for number in 0..5 {
        let to = if number % 2 == 0 { &to } else { &flag };
        call(&mut replay, &null, |r| {
            r.record(store(&flag, 1))?;
            r.while_nonzero(&flag, |r| r.record(store(&flag, 0)).map(drop))?;
            r.record(store(to, number)).map(drop)
        });
        assert_eq!(read(&null, to), number);
    }
    assert_eq!(replay.counters().builds, 1);
    let refused = replay.call(&null, |r| work(r, &to, 3, 1));
    assert!(refused.is_err(), "the null stream was captured");
    // And the step that does without goes on.
    call(&mut replay, &null, |r| {
        r.record(store(&flag, 1))?;
        r.while_nonzero(&flag, |r| r.record(store(&flag, 0)).map(drop))?;
        r.record(store(&to, 30)).map(drop)
    });
    assert_eq!((read(&null, &to), replay.counters().builds), (30, 1));
}

#[test]
fn a_stream_that_is_captured_runs_no_call() {
    let stream = stream();
    let mut replay = replay();
    let to = word(&stream, 0);
    for number in 0..3 {
        call(&mut replay, &stream, |r| {
            r.record(store(&to, number)).map(drop)
        });
        stream.synchronize().unwrap();
        let capture = cuda_graph::Capture::begin(&stream).unwrap();
        let refused = replay.call(&stream, |r| work(r, &to, 3, 1));
        assert!(refused.is_err());
        drop(capture);
        assert_eq!(read(&stream, &to), number);
    }
}

#[test]
fn what_is_kept_for_foreign_work_goes_with_it() {
    let stream = stream();
    let mut replay = replay();
    let to = word(&stream, 0);
    let mut before: Option<Watch> = None;
    for number in 0..5u8 {
        let (watch, watched) = Watch::new();
        let watched: cuda_graph::Owner = Arc::new(watched);
        call(&mut replay, &stream, |r| {
            r.keep(watched.clone())?;
            work(r, &to, number, 2)
        });
        drop(watched);
        stream.synchronize().unwrap();
        assert!(!watch.is_dropped(), "the executable has it");
        if let Some(before) = before.replace(watch) {
            crate::fixture::assert_soon(|| before.is_dropped(), "an owner leaks");
        }
    }
}

/// Some nodes of the foreign work change, among many nodes that do not.
#[test]
fn foreign_work_among_other_nodes_is_all_that_is_set() {
    let stream = stream();
    let mut replay: Replay = replay();
    let cells: Vec<_> = (0..10).map(|_| word(&stream, 0)).collect();
    let wide = words(&stream, &[0; 256]);
    for number in 0..6u8 {
        let did = call(&mut replay, &stream, |r| {
            for (value, cell) in cells.iter().enumerate() {
                r.record(store(cell, value as u32))?;
            }
            // SAFETY: the arrays outlive the launch.
            unsafe {
                r.foreign(|stream| {
                    let (bump, address, n) = (function("bump"), wide.address(), 256u32);
                    let mut launch = stream.launch_builder(&bump);
                    launch.arg(&address).arg(&n);
                    launch.launch(LaunchConfig::for_num_elems(n))?;
                    memset(stream, &cells[9], number)
                })
            }?;
            r.record(add(&cells[9], &cells[1])).map(drop)
        });
        assert_eq!(did.builds, u64::from(number == 0));
        assert_eq!(did.updated, u64::from(number > 0));
        assert_eq!(did.compared, 11);
        assert_eq!(wide.to_host(&stream).unwrap(), [u32::from(number) + 1; 256]);
        assert_eq!(read(&stream, &cells[9]), bytes(number) + 1);
    }
    let refused = replay.call(&stream, |_| Err(Error::RecordingOver));
    assert!(matches!(refused, Err(Error::RecordingOver)));
}
