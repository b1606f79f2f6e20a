//! Drivers that lack conditional nodes: the same calls run eagerly, with the same results.

use std::sync::Arc;

use cuda_graph::cudarc::driver::CudaStream;
use cuda_graph::testing::with_driver_version;
use cuda_graph::{Buffer, Error, Recorder, Replay, Result};

use super::{Counting, assert_failure, call, failure, read, replay, set, word};
use crate::fixture::{Watch, add, alone, assert_soon, context, store, stream};

/// A driver without conditional nodes, and one without cases.
const OLD: i32 = 12_020;
const OLDER_THAN_CASES: i32 = 12_040;

/// Operations that are made before the driver is said to be old: making them asks it.
struct Scene {
    stream: Arc<CudaStream>,
    counting: Counting,
    left: Buffer<u32>,
    turns: Buffer<u32>,
}

impl Scene {
    fn new() -> Scene {
        let stream = stream();
        let scene = Scene {
            counting: Counting::new(&stream),
            left: word(&stream, 0),
            turns: word(&stream, 0),
            stream,
        };
        // A kernel's parameters are asked for once, by calls that old drivers lack.
        let _ = scene.turn();
        scene
    }

    fn turn(&self) -> [cuda_graph::KernelOp; 2] {
        [
            add(&self.turns, &self.counting.one),
            add(&self.left, &self.counting.minus),
        ]
    }

    fn prepare(&self, times: u32) {
        set(&self.stream, &self.left, times);
        set(&self.stream, &self.turns, 0);
    }
}

fn is_unsupported(error: Option<&Error>) -> bool {
    let mut error = error;
    while let Some(Error::Node { error: inner, .. }) = error {
        error = Some(inner);
    }
    matches!(error, Some(Error::Unsupported { .. }))
}

#[test]
fn a_step_with_a_loop_runs_eagerly_where_no_graph_can() {
    let _alone = alone();
    let scene = Scene::new();
    let ops = scene.turn();
    let mut replay = replay();
    assert!(replay.why_eager().is_none());
    for (number, times) in [3, 0, 5].into_iter().enumerate() {
        scene.prepare(times);
        let did = with_driver_version(OLD, || {
            call(&mut replay, &scene.stream, |r| {
                r.while_nonzero(&scene.left, |r| {
                    ops.iter().try_for_each(|op| r.record(op.clone()).map(drop))
                })
            })
        });
        assert_eq!(read(&scene.stream, &scene.turns), times);
        assert_eq!((did.eager, did.launches, did.builds), (1, 0, 0), "{number}");
        assert!(
            is_unsupported(replay.why_eager()),
            "{:?}",
            replay.why_eager()
        );
    }
    assert_eq!((replay.executables(), replay.counters().eager), (0, 3));
    // A new start is with graphs again.
    replay.reset(&context());
    assert!(replay.why_eager().is_none());
    scene.prepare(4);
    let did = call(&mut replay, &scene.stream, |r| {
        r.while_nonzero(&scene.left, |r| {
            ops.iter().try_for_each(|op| r.record(op.clone()).map(drop))
        })
    });
    assert_eq!((did.eager, did.builds), (0, 1));
    assert_eq!(read(&scene.stream, &scene.turns), 4);
}

#[test]
fn a_step_without_what_is_lacking_is_a_graph() {
    let _alone = alone();
    let scene = Scene::new();
    let ops = scene.turn();
    let mut straight = replay();
    let mut looped = replay();
    for number in 0..3 {
        let plain = |r: &mut dyn Recorder| {
            let (one, other) = (&ops[0], &ops[1]);
            r.parallel(&mut [&mut |r| r.record(one.clone()).map(drop), &mut |r| {
                r.record(other.clone()).map(drop)
            }])
        };
        scene.prepare(9);
        let did = with_driver_version(OLD, || call(&mut straight, &scene.stream, plain));
        assert_eq!((did.eager, did.builds), (0, u64::from(number == 0)));
        assert_eq!(read(&scene.stream, &scene.left), 8);
        // A driver that has loops, though no cases.
        scene.prepare(3);
        let did = with_driver_version(OLDER_THAN_CASES, || {
            call(&mut looped, &scene.stream, |r| {
                r.while_nonzero(&scene.left, |r| {
                    ops.iter().try_for_each(|op| r.record(op.clone()).map(drop))
                })
            })
        });
        assert_eq!((did.eager, did.builds), (0, u64::from(number == 0)));
        assert_eq!(read(&scene.stream, &scene.turns), 3);
    }
    assert!(straight.why_eager().is_none() && looped.why_eager().is_none());
}

#[test]
fn a_step_with_cases_runs_eagerly_where_there_are_only_loops() {
    let _alone = alone();
    let scene = Scene::new();
    let mut replay = replay();
    let stores: Vec<_> = (0..3)
        .map(|value| store(&scene.turns, 10 + value))
        .collect();
    for value in [0, 1, 2, 3] {
        scene.prepare(value);
        let did = with_driver_version(OLDER_THAN_CASES, || {
            call(&mut replay, &scene.stream, |r| {
                r.switch_on(
                    &scene.left,
                    &mut [
                        &mut |r| r.record(stores[0].clone()).map(drop),
                        &mut |r| r.record(stores[1].clone()).map(drop),
                        &mut |r| r.record(stores[2].clone()).map(drop),
                    ],
                )
            })
        });
        let expected = if value < 3 { 10 + value } else { 0 };
        assert_eq!(read(&scene.stream, &scene.turns), expected);
        assert_eq!(did.eager, 1);
    }
    assert!(is_unsupported(replay.why_eager()));
}

/// What needs a graph comes late, inside of other things, or is swallowed.
#[test]
fn what_is_lacking_is_found_wherever_it_is() {
    let _alone = alone();
    let scene = Scene::new();
    let [turn, take] = scene.turn();
    type Way<'a> = &'a dyn Fn(&mut dyn Recorder) -> Result<()>;
    let steps: [Way<'_>; 3] = [
        &|r| {
            r.record(turn.clone())?;
            r.parallel(&mut [&mut |r| r.record(turn.clone()).map(drop), &mut |r| {
                r.while_nonzero(&scene.left, |r| {
                    r.record(turn.clone())?;
                    r.record(take.clone()).map(drop)
                })
            }])
        },
        &|r| {
            r.record(turn.clone())?;
            let looped = r.do_while_nonzero(&scene.left, |r| {
                r.record(take.clone())?;
                r.record(turn.clone()).map(drop)
            });
            // The step does not say what went wrong.
            let _ = looped;
            r.record(turn.clone()).map(drop)
        },
        &|r| {
            r.record(turn.clone())?;
            r.record(turn.clone())?;
            r.while_nonzero(&scene.left, |r| {
                r.record(take.clone())?;
                r.if_nonzero(&scene.left, |r| r.record(turn.clone()).map(drop))?;
                r.record(turn.clone()).map(drop)
            })
        },
    ];
    for (which, step) in steps.iter().enumerate() {
        let mut replay = replay();
        for number in 0..3 {
            scene.prepare(2);
            let did = with_driver_version(OLD, || call(&mut replay, &scene.stream, step));
            let got = read(&scene.stream, &scene.turns);
            scene.prepare(2);
            super::eagerly(&scene.stream, step);
            assert_eq!(got, read(&scene.stream, &scene.turns), "step {which}");
            assert_eq!(
                (did.eager, did.launches),
                (1, 0),
                "step {which}, call {number}"
            );
        }
    }
}

#[test]
fn executables_from_before_do_not_hinder() {
    let _alone = alone();
    let scene = Scene::new();
    let ops = scene.turn();
    let mut replay = replay();
    let looped = |r: &mut dyn Recorder| {
        r.record(ops[0].clone())?;
        r.while_nonzero(&scene.left, |r| {
            ops.iter().try_for_each(|op| r.record(op.clone()).map(drop))
        })
    };
    with_driver_version(OLD, || {
        call(&mut replay, &scene.stream, |r| {
            r.record(ops[0].clone()).map(drop)
        });
        for _ in 0..2 {
            scene.prepare(3);
            call(&mut replay, &scene.stream, looped);
            assert_eq!(read(&scene.stream, &scene.turns), 4);
        }
    });
    assert_eq!(
        (replay.counters().eager, replay.counters().launches),
        (2, 1)
    );
}

/// What was launched before a section for the host cannot be run again from the start.
#[test]
fn a_loop_behind_a_section_for_the_host_runs_where_no_graph_has_loops() {
    let _alone = alone();
    let scene = Scene::new();
    let ops = scene.turn();
    let mut replay = replay();
    for _ in 0..3 {
        scene.prepare(3);
        let called = with_driver_version(OLD, || {
            replay.call(&scene.stream, |r| {
                r.record(ops[0].clone())?;
                r.outside(|_| Ok(()))?;
                r.while_nonzero(&scene.left, |r| {
                    ops.iter().try_for_each(|op| r.record(op.clone()).map(drop))
                })?;
                r.record(ops[0].clone()).map(drop)
            })
        });
        called.unwrap();
        assert_eq!(read(&scene.stream, &scene.turns), 5);
    }
}

#[test]
fn eager_calls_are_called_in_any_stream() {
    let _alone = alone();
    let scene = Scene::new();
    let ops = scene.turn();
    let mut replay = replay();
    for _ in 0..2 {
        for stream in [scene.stream.clone(), stream(), context().default_stream()] {
            scene.prepare(2);
            scene.stream.synchronize().unwrap();
            with_driver_version(OLD, || {
                call(&mut replay, &stream, |r| {
                    r.while_nonzero(&scene.left, |r| {
                        ops.iter().try_for_each(|op| r.record(op.clone()).map(drop))
                    })
                })
            });
            stream.synchronize().unwrap();
            assert_eq!(read(&scene.stream, &scene.turns), 2);
        }
    }
}

#[test]
fn sections_for_the_host_run_in_eager_calls_too() {
    let _alone = alone();
    let scene = Scene::new();
    let ops = scene.turn();
    let mut replay = replay();
    for _ in 0..3 {
        scene.prepare(3);
        let mut seen = Vec::new();
        with_driver_version(OLD, || {
            call(&mut replay, &scene.stream, |r| {
                r.while_nonzero(&scene.left, |r| {
                    r.outside(|stream| {
                        seen.push(read(stream, &scene.left));
                        Ok(())
                    })?;
                    ops.iter().try_for_each(|op| r.record(op.clone()).map(drop))
                })
            })
        });
        assert_eq!(seen, [3, 2, 1]);
    }
}

#[test]
fn an_error_of_an_eager_call_is_the_steps_own() {
    let _alone = alone();
    let scene = Scene::new();
    let ops = scene.turn();
    let mut replay = replay();
    let (kept, keeps) = Watch::new();
    let keeps: cuda_graph::Owner = Arc::new(keeps);
    with_driver_version(OLD, || {
        for fails in [true, false, true, false] {
            scene.prepare(2);
            let answer = replay.call(&scene.stream, |r| {
                r.keep(keeps.clone())?;
                r.while_nonzero(&scene.left, |r| {
                    r.record(ops[0].clone())?;
                    if fails {
                        return Err(failure());
                    }
                    r.record(ops[1].clone()).map(drop)
                })
            });
            match fails {
                true => assert_failure(answer.map(drop)),
                false => drop(answer.unwrap()),
            }
            assert_eq!(read(&scene.stream, &scene.turns), 2 - u32::from(fails));
        }
    });
    drop(keeps);
    scene.stream.synchronize().unwrap();
    assert_soon(|| kept.is_dropped(), "what was kept leaks");
    let _: Replay = replay;
}
