//! Which executables a replay keeps: one for each way that a step goes, twins for arguments that
//! come again, and no more than it was told.

use std::sync::Arc;

use cuda_graph::cudarc::driver::CudaStream;
use cuda_graph::testing::with_failing_call;
use cuda_graph::{
    Buffer, ChildOp, CopyOp, Error, FillOp, Graph, HostOp, KernelOp, RawOp, Recorder, Replay,
    ReplayOptions, Result,
};

use super::{
    Counting, assert_balanced, assert_failure, call, failure, read, replay, replay_of, set, word,
};
use crate::fixture::{add, alone, context, store, stream, words};

/// Stores `value` to `to` so many times over.
fn stores(r: &mut dyn Recorder, to: &Buffer<u32>, value: u32, times: usize) -> Result<()> {
    (0..times).try_for_each(|_| r.record(store(to, value)).map(drop))
}

#[test]
fn each_way_that_a_step_goes_is_built_once() {
    let _alone = alone();
    let stream = stream();
    let mut replay = replay();
    let (to, flag) = (word(&stream, 0), word(&stream, 1));
    type Way<'a> = &'a dyn Fn(&mut dyn Recorder, u32) -> Result<()>;
    let ways: [Way<'_>; 7] = [
        &|r, value| stores(r, &to, value, 1),
        &|r, value| stores(r, &to, value, 2),
        &|r, value| {
            r.record(HostOp::new(|| {}))?;
            stores(r, &to, value, 1)
        },
        &|r, value| r.if_nonzero(&flag, |r| stores(r, &to, value, 1)),
        &|r, value| r.if_nonzero(&flag, |r| stores(r, &to, value, 2)),
        &|r, value| {
            r.if_else_nonzero(&flag, |r| stores(r, &to, value, 1), |_| Ok(()))?;
            Ok(())
        },
        &|r, value| r.parallel(&mut [&mut |r| stores(r, &to, value, 1), &mut |_| Ok(())]),
    ];
    for round in 0..4 {
        for (way, step) in ways.iter().enumerate() {
            let value = 100 * round + way as u32;
            let did = call(&mut replay, &stream, |r| step(r, value));
            assert_eq!(read(&stream, &to), value);
            assert_eq!(did.builds, u64::from(round == 0), "way {way}: {did:?}");
        }
    }
    assert_eq!((replay.executables(), replay.counters().builds), (7, 7));
    assert_balanced(&replay);
}

/// The difference comes last, so that most of the step was walked beside the wrong executable.
#[test]
fn ways_that_part_late_are_each_built_once() {
    let stream = stream();
    let mut replay = replay();
    let cells: Vec<_> = (0..20).map(|_| word(&stream, 0)).collect();
    let last = word(&stream, 0);
    for turn in 0..24u32 {
        let did = call(&mut replay, &stream, |r| {
            for cell in &cells {
                r.record(store(cell, turn))?;
            }
            match turn % 3 {
                0 => r.record(store(&last, turn)).map(drop),
                1 => r.record(CopyOp::new(&last, &cells[3])?).map(drop),
                _ => Ok(()),
            }
        });
        assert_eq!(did.builds, u64::from(turn < 3), "{turn}");
        assert!(cells.iter().all(|cell| read(&stream, cell) == turn));
        let expected = if turn % 3 == 2 { turn - 1 } else { turn };
        assert_eq!(read(&stream, &last), expected);
    }
    assert_eq!(replay.executables(), 3);
    assert_balanced(&replay);
}

#[test]
fn the_executable_that_was_not_used_for_longest_goes_first() {
    let stream = stream();
    let mut replay = replay_of(3);
    let to = word(&stream, 0);
    let mut value = 0;
    // Whether the way with so many stores is built when it is called.
    let script = [
        (1, true),
        (2, true),
        (3, true),
        (1, false),
        // The second goes.
        (4, true),
        (1, false),
        (3, false),
        (4, false),
        // The first goes.
        (2, true),
        (3, false),
        (4, false),
        (2, false),
        // The third goes.
        (1, true),
        (4, false),
        (2, false),
    ];
    for (at, (times, builds)) in script.into_iter().enumerate() {
        value += 1;
        let did = call(&mut replay, &stream, |r| stores(r, &to, value, times));
        assert_eq!(read(&stream, &to), value);
        assert_eq!(did.builds, u64::from(builds), "call {at}: {did:?}");
        assert!(replay.executables() <= 3);
        assert_balanced(&replay);
    }
    assert_eq!(replay.counters().evictions, 3);
}

#[test]
fn bounds_of_one_and_none_keep_the_one_in_use() {
    let stream = stream();
    for bound in [0, 1] {
        let mut replay = replay_of(bound);
        let to = word(&stream, 0);
        for turn in 0..6 {
            let times = turn as usize % 2 + 1;
            let did = call(&mut replay, &stream, |r| stores(r, &to, turn, times));
            assert_eq!(read(&stream, &to), turn);
            assert_eq!((did.builds, replay.executables()), (1, 1));
        }
        for turn in 0..6 {
            let did = call(&mut replay, &stream, |r| stores(r, &to, turn, 2));
            assert_eq!((did.builds, replay.executables()), (0, 1), "{turn}");
            assert_eq!(read(&stream, &to), turn);
        }
        assert_balanced(&replay);
    }
}

#[test]
fn executables_of_one_call_all_stay_though_they_are_too_many() {
    let stream = stream();
    let mut replay = replay_of(2);
    let to = word(&stream, 0);
    for turn in 0..3 {
        let did = call(&mut replay, &stream, |r| {
            for section in 1..=5 {
                stores(r, &to, 10 * turn + section, section as usize)?;
                let now = 10 * turn + section;
                r.outside(|stream| {
                    assert_eq!(read(stream, &to), now);
                    Ok(())
                })?;
            }
            Ok(())
        });
        assert_eq!(did.launches, 5);
        assert_eq!(replay.executables(), 5);
        assert_eq!(did.builds, if turn == 0 { 5 } else { 0 });
    }
    // The next that is built has them go.
    call(&mut replay, &stream, |r| stores(r, &to, 1, 9));
    assert_eq!(replay.executables(), 2);
    assert_balanced(&replay);
}

#[test]
fn memory_that_executables_hold_is_bounded_and_counted_once() {
    let stream = stream();
    let options = ReplayOptions {
        bytes: 3000,
        ..ReplayOptions::default()
    };
    let mut replay = Replay::with_options(&context(), options).unwrap();
    let buffers: Vec<_> = (0..4).map(|_| words(&stream, &[0; 256])).collect();
    let step = |r: &mut dyn Recorder, which: usize, times: usize| {
        stores(r, &buffers[which], 3, times)?;
        r.record(FillOp::new(&buffers[which].slice(1..)?, 4)?)
            .map(drop)
    };
    call(&mut replay, &stream, |r| step(r, 0, 1));
    assert_eq!(
        replay.bytes(),
        1024,
        "a buffer in two nodes, one of them of a part"
    );
    call(&mut replay, &stream, |r| step(r, 0, 2));
    assert_eq!(replay.bytes(), 1024, "a buffer in two executables");
    call(&mut replay, &stream, |r| step(r, 1, 3));
    assert_eq!((replay.bytes(), replay.executables()), (2048, 3));
    // A third buffer is too much: the two that used the first go.
    call(&mut replay, &stream, |r| step(r, 2, 4));
    assert_eq!((replay.bytes(), replay.executables()), (2048, 2));
    assert_eq!(replay.counters().evictions, 2);
    // An update counts too.
    call(&mut replay, &stream, |r| {
        stores(r, &buffers[3], 1, 2)?;
        stores(r, &buffers[2], 1, 2)?;
        r.record(FillOp::new(&buffers[1].slice(1..)?, 4)?).map(drop)
    });
    assert_eq!((replay.bytes(), replay.executables()), (3072, 1));
    // More than the bound: those of the last call stay.
    let large = words(&stream, &[0; 4096]);
    call(&mut replay, &stream, |r| stores(r, &large, 8, 1));
    assert_eq!((replay.bytes(), replay.executables()), (16384, 1));
    assert_eq!(read(&stream, &large), 8);
    assert_balanced(&replay);
}

/// One step on a set of buffers of its own: most of its nodes change with the set.
struct Sets {
    stream: Arc<CudaStream>,
    sets: Vec<[Buffer<u32>; 3]>,
    one: Buffer<u32>,
}

impl Sets {
    fn new(count: usize) -> Sets {
        let stream = stream();
        Sets {
            sets: (0..count)
                .map(|_| [0, 1, 2].map(|value| word(&stream, value)))
                .collect(),
            one: word(&stream, 1),
            stream,
        }
    }

    /// Each of the set's words becomes one more than the one before it.
    fn step(&self, r: &mut dyn Recorder, which: usize) -> Result<()> {
        let [a, b, c] = &self.sets[which];
        r.record(add(a, &self.one))?;
        for (to, from) in [(b, a), (c, b)] {
            r.record(CopyOp::new(to, from)?)?;
            r.record(add(to, &self.one))?;
        }
        Ok(())
    }

    /// Calls it, and returns how many nodes were set.
    #[track_caller]
    fn call(&self, replay: &mut Replay, which: usize) -> u64 {
        let before = read(&self.stream, &self.sets[which][0]);
        let did = call(replay, &self.stream, |r| self.step(r, which));
        let [a, b, c] = self.sets[which]
            .each_ref()
            .map(|word| read(&self.stream, word));
        assert_eq!([a, b, c], [before + 1, before + 2, before + 3]);
        did.updated
    }
}

#[test]
fn two_sets_of_arguments_by_turns_are_not_set_any_more() {
    let sets = Sets::new(2);
    let mut replay = replay();
    for turn in 0..6 {
        sets.call(&mut replay, turn % 2);
    }
    for turn in 0..20 {
        assert_eq!(sets.call(&mut replay, turn % 2), 0, "turn {turn}");
    }
    let counters = replay.counters();
    assert_eq!((counters.builds, counters.twins), (1, 1));
    assert_eq!(replay.executables(), 2);
    assert_balanced(&replay);
    // And not in another order either.
    for which in [0, 0, 1, 1, 1, 0] {
        assert_eq!(sets.call(&mut replay, which), 0);
    }
}

#[test]
fn three_sets_of_arguments_by_turns_are_not_set_any_more() {
    let sets = Sets::new(3);
    let mut replay = replay();
    for turn in 0..9 {
        sets.call(&mut replay, turn % 3);
    }
    for turn in 0..30 {
        assert_eq!(sets.call(&mut replay, turn % 3), 0, "turn {turn}");
    }
    assert_eq!((replay.counters().builds, replay.executables()), (1, 3));
    assert_balanced(&replay);
}

#[test]
fn sets_of_arguments_in_loops_get_twins_too() {
    let _alone = alone();
    let stream = stream();
    let counting = Counting::new(&stream);
    let mut replay = replay();
    let sets: Vec<_> = (0..2)
        .map(|_| (word(&stream, 0), word(&stream, 0)))
        .collect();
    for turn in 0..16 {
        let (left, turns) = &sets[turn % 2];
        set(&stream, left, 3);
        set(&stream, turns, 0);
        let did = call(&mut replay, &stream, |r| counting.count(r, left, turns));
        assert_eq!((read(&stream, left), read(&stream, turns)), (0, 3));
        assert!(turn < 6 || did.updated == 0, "turn {turn}: {did:?}");
    }
    assert_eq!((replay.counters().builds, replay.counters().twins), (1, 1));
}

#[test]
fn arguments_that_never_come_again_get_no_twins() {
    let sets = Sets::new(40);
    let mut replay = replay();
    for which in 0..40 {
        let updated = sets.call(&mut replay, which);
        assert_eq!(updated, if which == 0 { 0 } else { 5 });
    }
    assert_eq!((replay.counters().twins, replay.executables()), (0, 1));
    assert_eq!(replay.counters().updated, 39 * 5);
}

#[test]
fn more_sets_than_executables_are_right_nonetheless() {
    let sets = Sets::new(6);
    for bound in [1, 2, 3] {
        let mut replay = replay_of(bound);
        for turn in 0..40 {
            sets.call(&mut replay, turn * turn % 6);
            assert!(replay.executables() <= bound);
        }
        assert_eq!(
            replay.counters().builds,
            1,
            "of the one way that the step goes"
        );
        assert_balanced(&replay);
    }
}

/// A fill of rows cannot become another: the driver refuses that.
#[test]
fn what_the_driver_refuses_to_update_is_another_executable() {
    let stream = stream();
    let mut replay = replay();
    let planes = [words(&stream, &[0; 16]), words(&stream, &[0; 16])];
    let cells: Vec<_> = (0..8).map(|_| word(&stream, 0)).collect();
    for turn in 0..12u32 {
        let plane = &planes[turn as usize % 2];
        let rows = turn as usize % 2 + 2;
        plane.copy_from_host(&stream, &[0; 16]).unwrap();
        call(&mut replay, &stream, |r| {
            for cell in &cells {
                r.record(store(cell, turn))?;
            }
            let op = FillOp::rows(plane, turn, 2, rows, 16)?;
            r.record(op).map(drop)
        });
        for (at, value) in plane.to_host(&stream).unwrap().into_iter().enumerate() {
            let filled = at % 4 < 2 && at / 4 < rows;
            assert_eq!(
                value,
                if filled { turn } else { 0 },
                "turn {turn}, word {at}"
            );
        }
        assert!(cells.iter().all(|cell| read(&stream, cell) == turn));
        assert_balanced(&replay);
    }
}

#[test]
fn embedded_graphs_are_set_anew() {
    let stream = stream();
    let mut replay = replay();
    let cells = [word(&stream, 0), word(&stream, 0)];
    for turn in 0..8u32 {
        let cell = &cells[turn as usize % 2];
        let (inner, ()) = Graph::record(&context(), |r| {
            r.record(store(cell, turn))?;
            r.record(add(cell, cell)).map(drop)
        })
        .unwrap();
        let did = call(&mut replay, &stream, |r| {
            r.record(ChildOp::new(&inner))?;
            r.record(add(cell, cell)).map(drop)
        });
        assert_eq!(read(&stream, cell), 4 * turn);
        assert_eq!(did.builds, u64::from(turn == 0));
    }
}

/// What a step holds while each call of the driver fails in turn.
struct Refused {
    stream: Arc<CudaStream>,
    sets: Vec<[Buffer<u32>; 3]>,
    /// What adds to a set's words. Making an operation asks the driver, too.
    ops: Vec<[KernelOp; 3]>,
}

impl Refused {
    fn new() -> Refused {
        let stream = stream();
        let counting = Counting::new(&stream);
        let new = |_| [0, 0, 0].map(|value| word(&stream, value));
        let sets: Vec<_> = (0..3).map(new).collect();
        let ops = sets.iter().map(|[to, left, turns]| {
            let one = &counting.one;
            [add(to, one), add(left, &counting.minus), add(turns, one)]
        });
        Refused {
            ops: ops.collect(),
            sets,
            stream,
        }
    }

    fn step(&self, r: &mut dyn Recorder, which: usize, value: u32) -> Result<()> {
        let [to, left, _] = &self.sets[which];
        let [raise, lower, turn] = &self.ops[which];
        r.record(FillOp::new(to, value)?)?;
        r.do_while_nonzero(left, |r| {
            r.record(turn.clone())?;
            r.record(lower.clone()).map(drop)
        })?;
        r.record(HostOp::new(|| {}))?;
        r.parallel(&mut [&mut |r| r.record(raise.clone()).map(drop), &mut |r| {
            r.record(turn.clone()).map(drop)
        }])
    }

    fn prepare(&self, which: usize) {
        set(&self.stream, &self.sets[which][1], 3);
        set(&self.stream, &self.sets[which][2], 0);
        self.stream.synchronize().unwrap();
    }

    /// A call that works, and what it leaves.
    #[track_caller]
    fn works(&self, replay: &mut Replay, which: usize, value: u32, case: &str) {
        self.prepare(which);
        let answer = replay.call(&self.stream, |r| self.step(r, which, value));
        answer.unwrap_or_else(|error| panic!("{case}: {error}"));
        let got = self.sets[which]
            .each_ref()
            .map(|word| read(&self.stream, word));
        assert_eq!(got, [value + 1, 0, 4], "{case}");
    }
}

/// Calls of a replay before the one in which something fails: each by its set of arguments.
const BEFORE: [&[usize]; 5] = [&[], &[0], &[1], &[0, 1], &[0, 1, 0, 1, 2]];

#[test]
fn whatever_call_the_driver_refuses_the_next_works() {
    let _alone = alone();
    let refused = Refused::new();
    for before in BEFORE {
        for nth in 0.. {
            let case = format!("after {before:?}, where call {nth} of the driver fails");
            let mut replay = replay();
            for (at, which) in before.iter().enumerate() {
                refused.works(&mut replay, *which, at as u32, &case);
            }
            refused.prepare(0);
            let (answer, fired) = with_failing_call(nth, || {
                replay
                    .call(&refused.stream, |r| refused.step(r, 0, 90))
                    .map(drop)
            });
            refused.stream.synchronize().unwrap();
            let got = refused.sets[0]
                .each_ref()
                .map(|word| read(&refused.stream, word));
            match &answer {
                Ok(()) => assert_eq!(got, [91, 0, 4], "{case}"),
                Err(_) => assert_eq!(got[1..], [3, 0], "{case}: something ran"),
            }
            let launches = before.len() as u64 + u64::from(answer.is_ok());
            assert_eq!(replay.counters().launches, launches, "{case}");
            for (at, which) in [0, 1, 0, 2, 0].into_iter().enumerate() {
                refused.works(&mut replay, which, 50 + at as u32, &case);
            }
            assert!(replay.executables() <= 4, "{case}");
            if !fired {
                assert!(nth > 0 && answer.is_ok(), "{case}");
                break;
            }
            assert!(nth < 300, "the calls have no end");
        }
    }
}

/// An executable is counted when it is there.
#[test]
fn an_executable_that_could_not_be_made_is_not_counted() {
    let stream = stream();
    let to = word(&stream, 0);
    // Making an operation asks the driver, too.
    let op = store(&to, 1);
    for nth in 0.. {
        let mut replay = replay();
        let step = |r: &mut dyn Recorder| r.record(op.clone()).map(drop);
        let (answer, fired) = with_failing_call(nth, || replay.call(&stream, step).map(drop));
        let counters = replay.counters();
        let made = replay.executables() as u64;
        assert_eq!(counters.builds, made, "call {nth} failed: {answer:?}");
        if !fired {
            break;
        }
        assert!(nth < 100, "the calls have no end");
    }
}

/// What is asked for is checked as a graph would.
#[test]
fn what_no_graph_takes_is_refused_on_each_call() {
    let stream = stream();
    let mut replay = replay();
    let to = word(&stream, 0);
    let flag = word(&stream, 1);
    for number in 0..3 {
        // The host drives what no body holds.
        let answer = replay.call(&stream, |r| {
            r.if_nonzero(&flag, |r| r.record(HostOp::new(|| {})).map(drop))
        });
        answer.unwrap();
        assert_eq!(replay.counters().host_driven, number + 1);
        let other = replay.call(&stream, |r| r.switch_on(&flag, &mut []));
        assert!(matches!(other, Err(Error::EmptySwitch)), "{other:?}");
        let wide = words(&stream, &[1, 2]);
        let other = replay.call(&stream, |r| r.while_nonzero(&wide, |_| Ok(())));
        assert!(
            matches!(other, Err(Error::SizeMismatch { .. })),
            "{other:?}"
        );
        let graph = Graph::new(&context()).unwrap();
        let node = graph.add(store(&to, 9), ()).unwrap();
        let read_back = graph.op(node.id().typed::<RawOp>().unwrap()).unwrap();
        let other = replay.call(&stream, |r| r.record(read_back.clone()).map(drop));
        assert!(matches!(other, Err(Error::Unowned { .. })), "{other:?}");
        assert_eq!(replay.counters().launches, 2 * number + 1);
        let did = call(&mut replay, &stream, |r| r.record(store(&to, 2)).map(drop));
        assert_eq!(did.builds, u64::from(number == 0));
    }
    assert_failure(replay.call(&stream, |_| Err(failure())));
}
