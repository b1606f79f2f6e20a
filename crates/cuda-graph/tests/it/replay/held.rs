//! What a replay holds goes when nothing can run it any more, seen by the drops of owners.

use std::any::Any;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Arc, Weak};

use cuda_graph::cudarc::driver::CudaStream;
use cuda_graph::testing::settle;
use cuda_graph::{
    Buffer, CopyOp, Graph, HostOp, KernelOp, Owner, RawMemory, Recorder, Replay, Result,
};

use super::{assert_failure, call, failure, read, replay, replay_of, word};
use crate::door::Door;
use crate::fixture::{Watch, alone, assert_soon, context, kernel, one, store, stream, words};

/// Owners that were given out, and which of them are there.
#[derive(Default)]
struct Given(Vec<Weak<dyn Any + Send + Sync>>);

impl Given {
    fn owner(&mut self) -> Owner {
        let owner: Owner = Arc::new(0u8);
        self.0.push(Arc::downgrade(&owner));
        owner
    }

    fn held(&self) -> usize {
        self.0
            .iter()
            .filter(|owner| owner.strong_count() > 0)
            .count()
    }

    fn is_held(&self, which: usize) -> bool {
        self.0[which].strong_count() > 0
    }

    #[track_caller]
    fn assert_soon_held(&self, count: usize, when: &str) {
        let otherwise = format!("{when}: {} are held, not {count}", self.held());
        assert_soon(|| self.held() == count, &otherwise);
    }
}

/// A kernel with an owner of its own.
fn owned(memory: &Buffer<u32>, value: u32, owner: Owner) -> KernelOp {
    // SAFETY: the tests keep the buffer for as long as anything runs.
    let to = unsafe { RawMemory::device(memory.address(), 4) }.owned_by(owner);
    // SAFETY: `store` writes one word.
    unsafe { KernelOp::new(kernel("store"), one(), (to, value)) }.unwrap()
}

/// A host function with a watch on it.
fn watched() -> (HostOp, Watch) {
    let (watch, watched) = Watch::new();
    let op = HostOp::new(move || {
        let _ = &watched;
    });
    (op, watch)
}

#[test]
fn what_an_update_replaced_goes_once_no_launch_uses_it() {
    let stream = stream();
    let door = Arc::new(Door::default());
    let mut replay = replay();
    let mut given = Given::default();
    let to = word(&stream, 0);
    let step = |r: &mut dyn Recorder, value: u32, owner: &Owner| {
        r.record(door.op())?;
        r.record(owned(&to, value, owner.clone())).map(drop)
    };
    let first = given.owner();
    door.close();
    call(&mut replay, &stream, |r| step(r, 1, &first));
    drop(first);
    door.until_someone_waits();
    let second = given.owner();
    call(&mut replay, &stream, |r| step(r, 2, &second));
    drop(second);
    let third = given.owner();
    call(&mut replay, &stream, |r| step(r, 3, &third));
    drop(third);
    std::thread::sleep(std::time::Duration::from_millis(10));
    assert_eq!(given.held(), 3, "three launches are in flight");
    door.open();
    stream.synchronize().unwrap();
    given.assert_soon_held(1, "all have run");
    assert!(given.is_held(2), "the executable has the last");
    assert_eq!(replay.executables(), 1);
    drop(replay);
    given.assert_soon_held(0, "the replay is gone");
    assert_eq!(read(&stream, &to), 3);
}

#[test]
fn a_replay_may_be_dropped_in_flight() {
    let stream = stream();
    let door = Arc::new(Door::default());
    let mut replay = replay();
    let to = word(&stream, 0);
    let mut given = Given::default();
    let (kept, keeps) = Watch::new();
    let keeps: Owner = Arc::new(keeps);
    door.close();
    let owner = given.owner();
    call(&mut replay, &stream, |r| {
        r.record(door.op())?;
        r.keep(keeps.clone())?;
        r.record(owned(&to, 7, owner.clone())).map(drop)
    });
    drop((owner, keeps));
    door.until_someone_waits();
    drop(replay);
    std::thread::sleep(std::time::Duration::from_millis(10));
    assert!(given.is_held(0) && !kept.is_dropped(), "the launch uses it");
    door.open();
    stream.synchronize().unwrap();
    assert_eq!(read(&stream, &to), 7);
    given.assert_soon_held(0, "the launch is over");
    assert_soon(|| kept.is_dropped(), "what was kept leaks");
}

#[test]
fn an_executable_that_is_evicted_lets_go_of_all() {
    let stream = stream();
    let door = Arc::new(Door::default());
    let mut replay = replay_of(1);
    let (op, watch) = watched();
    let (kept, keeps) = Watch::new();
    let keeps: Owner = Arc::new(keeps);
    door.close();
    call(&mut replay, &stream, |r| {
        r.record(door.op())?;
        r.keep(keeps.clone())?;
        r.record(op.clone()).map(drop)
    });
    drop((op, keeps));
    door.until_someone_waits();
    call(&mut replay, &stream, |r| {
        r.record(HostOp::new(|| {})).map(drop)
    });
    assert_eq!((replay.executables(), replay.counters().evictions), (1, 1));
    std::thread::sleep(std::time::Duration::from_millis(10));
    assert!(
        !watch.is_dropped() && !kept.is_dropped(),
        "a launch uses it"
    );
    door.open();
    stream.synchronize().unwrap();
    assert_soon(|| watch.is_dropped() && kept.is_dropped(), "an owner leaks");
}

#[test]
fn resetting_lets_go_of_all() {
    let stream = stream();
    let mut replay = replay();
    let (op, watch) = watched();
    call(&mut replay, &stream, |r| r.record(op.clone()).map(drop));
    drop(op);
    stream.synchronize().unwrap();
    assert!(!watch.is_dropped());
    replay.reset(&context());
    assert_soon(|| watch.is_dropped(), "an owner leaks");
}

#[test]
fn a_call_that_failed_lets_go_of_what_it_brought() {
    let stream = stream();
    let to = word(&stream, 0);
    let mut given = Given::default();
    let mut replay = replay();
    // First with nothing to go beside, then beside an executable, then beside another way.
    for round in 0..3 {
        for panics in [false, true] {
            for records in 1..5 {
                let before = given.held();
                let call = AssertUnwindSafe(|| {
                    replay.call(&stream, |r| {
                        for _ in 0..records {
                            r.record(owned(&to, 1000, given.owner()))?;
                            r.keep(given.owner())?;
                        }
                        match panics {
                            true => panic!("this panic is part of the test"),
                            false => Err(failure()),
                        }
                    })
                });
                match catch_unwind(call) {
                    Ok(answer) => assert_failure(answer),
                    Err(panicked) => drop(panicked),
                }
                assert_eq!(given.held(), before, "round {round}, {records} records");
            }
        }
        let executables = replay.executables();
        call(&mut replay, &stream, |r| {
            for _ in 0..=round {
                r.record(owned(&to, round + 2, given.owner()))?;
                r.keep(given.owner())?;
            }
            Ok(())
        });
        assert_eq!(replay.executables(), executables + 1);
    }
    assert_eq!(read(&stream, &to), 4);
    assert_eq!(given.held(), 2 * (1 + 2 + 3));
    drop(replay);
    given.assert_soon_held(0, "the replay is gone");
}

#[test]
fn a_body_that_failed_and_was_swallowed_lets_go_of_what_it_brought() {
    let _alone = alone();
    let stream = stream();
    let (to, flag) = (word(&stream, 0), word(&stream, 1));
    let mut given = Given::default();
    let mut replay = replay();
    for _ in 0..4 {
        call(&mut replay, &stream, |r| {
            r.record(store(&to, 3))?;
            let looped = r.if_nonzero(&flag, |r| {
                r.record(owned(&to, 1000, given.owner()))?;
                r.keep(given.owner())?;
                Err(failure())
            });
            assert_failure(looped);
            Ok(())
        });
        assert_eq!(read(&stream, &to), 3);
        assert_eq!(given.held(), 0);
    }
}

#[test]
fn what_a_step_keeps_is_kept_for_as_long_as_it_runs() {
    let stream = stream();
    let door = Arc::new(Door::default());
    let mut replay = replay();
    let mut given = Given::default();
    door.close();
    for number in 0..3 {
        let owner = given.owner();
        let did = call(&mut replay, &stream, |r| {
            r.record(door.op())?;
            r.keep(owner.clone())
        });
        assert_eq!(did.builds, u64::from(number == 0));
    }
    door.until_someone_waits();
    std::thread::sleep(std::time::Duration::from_millis(10));
    assert_eq!(given.held(), 3);
    door.open();
    stream.synchronize().unwrap();
    given.assert_soon_held(1, "the last call's is kept by the executable");
    assert!(given.is_held(2));
    // The same again is neither a change nor another owner.
    let same = given.owner();
    for number in 0..3 {
        let did = call(&mut replay, &stream, |r| {
            r.record(door.op())?;
            r.keep(same.clone())
        });
        assert!(number == 0 || did.updated <= 1, "{did:?}");
    }
    drop(same);
    stream.synchronize().unwrap();
    given.assert_soon_held(1, "the last");
}

/// The flag of a loop is held by the loop, and goes when another takes its place.
#[test]
fn flags_are_held_while_they_are_read() {
    let _alone = alone();
    let stream = stream();
    let mut replay = replay();
    let memory: Vec<_> = (0..3).map(|_| word(&stream, 1)).collect();
    let mut given = Given::default();
    for (number, word) in memory.iter().enumerate() {
        // SAFETY: the memory lives as long as the test, which waits for all launches.
        let flag = unsafe { RawMemory::device(word.address(), 4) }.owned_by(given.owner());
        let did = call(&mut replay, &stream, |r| {
            r.while_nonzero(&flag, |r| r.record(store(word, 0)).map(drop))
        });
        drop(flag);
        stream.synchronize().unwrap();
        assert_eq!(read(&stream, word), 0);
        assert_eq!(did.builds, u64::from(number == 0));
        given.assert_soon_held(1, "the last call's flag");
        assert!(given.is_held(number));
    }
    drop(replay);
    given.assert_soon_held(0, "the replay is gone");
}

/// A graph of the call's own is embedded: what it uses goes with the next.
#[test]
fn embedded_graphs_let_go_of_what_they_used() {
    let stream = stream();
    let mut replay = replay();
    let to = word(&stream, 0);
    let mut given = Given::default();
    for value in 0..5 {
        let (inner, ()) = Graph::record(&context(), |r| {
            r.record(owned(&to, value, given.owner())).map(drop)
        })
        .unwrap();
        call(&mut replay, &stream, |r| {
            r.record(cuda_graph::ChildOp::new(&inner)).map(drop)
        });
        drop(inner);
        assert_eq!(read(&stream, &to), value);
        given.assert_soon_held(1, "the last call's graph");
    }
    drop(replay);
    given.assert_soon_held(0, "the replay is gone");
}

#[test]
fn memory_held_does_not_grow_over_a_thousand_calls() {
    let _alone = alone();
    settle();
    let stream = stream();
    let flag = word(&stream, 0);
    let mut replay = replay_of(3);
    let mut given = Given::default();
    let mut most = 0;
    for number in 0..1000u32 {
        let (from, to) = (words(&stream, &[number; 16]), words(&stream, &[0; 16]));
        call(&mut replay, &stream, |r| {
            r.record(owned(&from, number + 1, given.owner()))?;
            r.keep(given.owner())?;
            r.record(CopyOp::new(&to, &from)?)?;
            r.if_nonzero(&flag, |r| r.record(store(&from, 0)).map(drop))?;
            // Another way now and then.
            match number % 50 {
                0 => r.record(store(&to, number + 1)).map(drop),
                _ => Ok(()),
            }
        });
        assert_eq!(read(&stream, &to), number + 1);
        most = most.max(replay.bytes());
        if number % 100 == 99 {
            // Two of each executable.
            let otherwise = format!("{} are held after {number} calls", given.held());
            assert_soon(|| given.held() <= 2 * 3, &otherwise);
        }
    }
    assert!(replay.executables() <= 3);
    // Two arrays for each executable, and the flag.
    assert!(most <= 3 * 128 + 4, "{most} bytes");
    assert_eq!(replay.counters().twins, 0);
    drop(replay);
    given.assert_soon_held(0, "the replay is gone");
}

/// A pool gives addresses out again: that the same address comes again does not mean that the same
/// arguments do.
#[test]
fn fresh_buffers_on_each_call_do_not_gather() {
    let stream = stream();
    let mut replay = replay();
    for number in 0..200u32 {
        let (from, to) = (words(&stream, &[number; 16]), words(&stream, &[0; 16]));
        call(&mut replay, &stream, |r| {
            r.record(store(&from, 5))?;
            r.record(CopyOp::new(&to, &from)?).map(drop)
        });
        assert_eq!(read(&stream, &to), 5);
    }
    assert_eq!(replay.counters().builds, 1);
    let (executables, bytes) = (replay.executables(), replay.bytes());
    assert!(
        executables <= 4,
        "{executables} executables hold {bytes} bytes"
    );
}

#[test]
fn any_thread_may_call() {
    fn is_send<T: Send>(it: T) -> T {
        it
    }
    let _alone = alone();
    let stream = stream();
    let to = word(&stream, 0);
    let mut replay = is_send(replay());
    for number in 0..8 {
        let (there, cell) = (stream.clone(), to.clone());
        let thread = std::thread::spawn(move || {
            let did = call(&mut replay, &there, |r| {
                r.record(store(&cell, number))?;
                r.if_nonzero(&cell, |r| r.record(store(&cell, number + 100)).map(drop))
            });
            assert_eq!(did.builds, u64::from(number == 0));
            replay
        });
        replay = thread.join().unwrap();
        let expected = if number == 0 { 0 } else { number + 100 };
        assert_eq!(read(&stream, &to), expected);
    }
    assert_eq!((replay.counters().calls, replay.executables()), (8, 1));
    // Dropped elsewhere too.
    std::thread::spawn(move || drop(replay)).join().unwrap();
}

#[test]
fn replays_of_several_threads_do_not_meet() {
    let threads = (0..4).map(|thread: u32| {
        std::thread::spawn(move || {
            let stream = stream();
            let to = [word(&stream, 0), word(&stream, 0)];
            let mut replay = replay();
            for number in 0..100 {
                let to = &to[number as usize % 2];
                let value = thread * 1000 + number;
                call(&mut replay, &stream, |r| {
                    r.record(store(to, value)).map(drop)
                });
                assert_eq!(read(&stream, to), value);
            }
            assert_eq!(replay.counters().builds, 1);
        })
    });
    let threads: Vec<_> = threads.collect();
    threads
        .into_iter()
        .for_each(|thread| thread.join().unwrap());
}

/// An owner may use the replay's stream, and other graphs, as it goes.
#[test]
fn owners_may_call_the_driver_as_they_go() {
    struct Launches(Arc<CudaStream>, Buffer<u32>);
    impl Drop for Launches {
        fn drop(&mut self) {
            let mut replay = Replay::new(&context()).unwrap();
            let called = replay.call(&self.0, |r| r.record(store(&self.1, 5)).map(drop));
            called.unwrap();
        }
    }
    let stream = stream();
    let (to, seen) = (word(&stream, 0), word(&stream, 0));
    let mut replay = replay();
    for value in 0..3 {
        seen.copy_from_host(&stream, &[0]).unwrap();
        let owner: Owner = Arc::new(Launches(crate::fixture::stream(), seen.clone()));
        let step = |r: &mut dyn Recorder| -> Result<()> {
            r.record(owned(&to, value, owner.clone())).map(drop)
        };
        call(&mut replay, &stream, step);
        drop(owner);
        assert_eq!(read(&stream, &to), value);
        if value > 0 {
            assert_soon(|| read(&stream, &seen) == 5, "it was not dropped");
        }
    }
    replay.reset(&context());
}

/// One argument is owned on one call, the other on the next: by address they are the same.
#[test]
fn what_is_owned_is_held_whichever_argument_it_is() {
    let stream = stream();
    let (to, from) = (word(&stream, 1), word(&stream, 2));
    let mut given = Given::default();
    let mut replay = replay();
    for number in 0..4 {
        let owner = given.owner();
        // SAFETY: both buffers live as long as the test, which waits for all launches.
        let [a, b] = [&to, &from].map(|word| unsafe { RawMemory::device(word.address(), 4) });
        let (a, b) = match number % 2 {
            0 => (a.owned_by(owner), b),
            _ => (a, b.owned_by(owner)),
        };
        // SAFETY: `add` reads and writes a word of each.
        let op = unsafe { KernelOp::new(kernel("add"), one(), (a, b)) }.unwrap();
        call(&mut replay, &stream, |r| r.record(op.clone()).map(drop));
        drop(op);
        stream.synchronize().unwrap();
        assert!(given.held() >= 1, "an owner of the memory is held");
    }
    assert_eq!(read(&stream, &to), 9);
}
