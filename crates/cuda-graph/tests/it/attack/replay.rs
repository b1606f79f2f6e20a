//! Replays and parameters: what they hold, and whether what runs is what was asked for.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, mpsc};
use std::time::Duration;

use cuda_graph::cudarc::driver::{CudaStream, PushKernelArg};
use cuda_graph::testing::{settle, with_failing_call};
use cuda_graph::{
    Arguments, Buffer, ChildOp, CopyOp, Error, FillOp, Graph, HostOp, KernelArgument, KernelOp,
    LaunchAttribute, Owner, Param, PinnedBuffer, RawMemory, Recorder, Replay, Result,
};

use crate::door::Door;
use crate::fixture::{
    Watch, add, assert_soon, context, function, in_own_process, kernel, one, store, stream, words,
};

fn replay() -> Replay {
    Replay::new(&context()).unwrap()
}

#[track_caller]
fn read(stream: &Arc<CudaStream>, of: &Buffer<u32>) -> u32 {
    of.to_host(stream).unwrap()[0]
}

/// Stores what may be a parameter to what may be one.
#[track_caller]
fn put(to: impl KernelArgument, value: impl KernelArgument) -> KernelOp {
    // SAFETY: `store` writes one word, which every buffer here has.
    unsafe { KernelOp::new(kernel("store"), one(), (to, value)) }.unwrap()
}

/// A number is given to the driver alone; then memory of the same kernel changes.
#[test]
fn a_number_is_kept_when_memory_of_the_same_kernel_changes() {
    let stream = stream();
    let (a, b) = (words(&stream, &[0]), words(&stream, &[0]));
    let (to, value) = (
        Param::with_value("to", a.clone()),
        Param::with_value("value", 1u32),
    );
    let mut replay = replay();
    replay
        .call(&stream, |r| r.record(put(&to, &value)).map(drop))
        .unwrap();
    replay.run(&stream).unwrap();
    replay.bind(&value, 2).unwrap();
    replay.run(&stream).unwrap();
    assert_eq!(read(&stream, &a), 2);
    replay.bind(&to, b.clone()).unwrap();
    replay.run(&stream).unwrap();
    assert_eq!((read(&stream, &a), read(&stream, &b)), (2, 2));
}

/// An update that the driver refuses, of a step with foreign work.
#[test]
fn foreign_work_is_there_after_a_refused_update() {
    let stream = stream();
    let (a, b) = (words(&stream, &[0]), words(&stream, &[0]));
    for nth in 0.. {
        let value = Param::with_value("value", 1u32);
        let mut replay = replay();
        let step = |r: &mut dyn Recorder| -> Result<()> {
            // SAFETY: the word lives as long as the test.
            unsafe {
                r.foreign(|stream| {
                    let (function, to) = (function("store"), a.address());
                    let mut launch = stream.launch_builder(&function);
                    launch.arg(&to).arg(&5u32);
                    launch.launch(one())?;
                    Ok(())
                })
            }?;
            let (b, value) = (b.clone(), value.clone());
            r.record_with(move || FillOp::new(&b, value.get()?))
        };
        replay.call(&stream, step).unwrap();
        a.copy_from_host(&stream, &[0]).unwrap();
        value.set(2);
        let (ran, fired) = with_failing_call(nth, || replay.run(&stream));
        if ran.is_ok() {
            assert_eq!(
                (read(&stream, &a), read(&stream, &b)),
                (5, 2),
                "call {nth} failed"
            );
        }
        if !fired {
            break;
        }
    }
}

/// A closure embeds a graph that depends on a parameter.
#[test]
fn an_embedded_graph_made_of_a_parameter_changes_with_it() {
    let stream = stream();
    let a = words(&stream, &[0]);
    let value = Param::with_value("value", 1u32);
    let mut replay = replay();
    let step = |r: &mut dyn Recorder| -> Result<()> {
        let (a, value) = (a.clone(), value.clone());
        r.record_with(move || {
            let graph = Graph::new(&context())?;
            graph.add(FillOp::new(&a, value.get()?)?, ())?;
            Ok(ChildOp::new(&graph))
        })
    };
    replay.call(&stream, step).unwrap();
    assert_eq!(read(&stream, &a), 1);
    replay.bind(&value, 2).unwrap();
    replay.run(&stream).unwrap();
    assert_eq!(read(&stream, &a), 2);
}

/// A kernel of an embedded graph has a parameter as an argument.
#[test]
fn a_parameter_of_an_embedded_kernel() {
    let stream = stream();
    let a = words(&stream, &[0]);
    let value = Param::with_value("value", 1u32);
    let graph = Graph::new(&context()).unwrap();
    graph.add(put(&a, &value), ()).unwrap();
    let mut replay = replay();
    for round in 0..2 {
        replay
            .call(&stream, |r| r.record(ChildOp::new(&graph)).map(drop))
            .unwrap();
        for number in 0..3 {
            if replay.bind(&value, 10 * round + number).is_ok() {
                replay.run(&stream).unwrap();
                assert_eq!(read(&stream, &a), 10 * round + number);
            }
        }
    }
}

/// A closure looks at another parameter than before, and the closure behind it fails.
#[test]
fn what_a_closure_looks_at_is_known_after_another_failed() {
    let stream = stream();
    let (a, b) = (words(&stream, &[0]), words(&stream, &[0]));
    let which = Param::with_value("which", 0u32);
    let values = [
        Param::with_value("left", 10u32),
        Param::with_value("right", 20u32),
    ];
    let fails = Arc::new(AtomicBool::new(false));
    let mut replay = replay();
    let step = |r: &mut dyn Recorder| -> Result<()> {
        let (to, which_one, values) = (a.clone(), which.clone(), values.clone());
        r.record_with(move || FillOp::new(&to, values[which_one.get()? as usize].get()?))?;
        let (to, which, fails) = (b.clone(), which.clone(), fails.clone());
        r.record_with(move || match fails.load(Ordering::SeqCst) {
            true => Err(Error::other(std::io::Error::other("as meant"))),
            false => FillOp::new(&to, which.get()?),
        })
    };
    replay.call(&stream, step).unwrap();
    which.set(1);
    fails.store(true, Ordering::SeqCst);
    assert!(replay.run(&stream).is_err());
    fails.store(false, Ordering::SeqCst);
    replay.run(&stream).unwrap();
    assert_eq!((read(&stream, &a), read(&stream, &b)), (20, 1));
    values[1].set(21);
    replay.run(&stream).unwrap();
    assert_eq!(read(&stream, &a), 21);
}

/// A closure panics behind one that made something else.
#[test]
fn a_closure_that_panics_changes_nothing() {
    let stream = stream();
    let (a, b) = (words(&stream, &[0]), words(&stream, &[0]));
    let value = Param::with_value("value", 1u32);
    let mut replay = replay();
    let step = |r: &mut dyn Recorder| -> Result<()> {
        let (to, value_of_a) = (a.clone(), value.clone());
        r.record_with(move || FillOp::new(&to, value_of_a.get()?))?;
        let (to, value) = (b.clone(), value.clone());
        r.record_with(move || {
            assert!(value.get()? != 2, "as meant");
            FillOp::new(&to, value.get()?)
        })
    };
    replay.call(&stream, step).unwrap();
    value.set(2);
    catch_unwind(AssertUnwindSafe(|| replay.run(&stream).map(drop))).unwrap_err();
    value.set(1);
    replay.call(&stream, step).unwrap();
    assert_eq!((read(&stream, &a), read(&stream, &b)), (1, 1));
}

/// A closure makes kernels with other launch attributes, which no update gives to a node.
#[test]
fn launch_attributes_made_of_parameters_change() {
    let stream = stream();
    let a = words(&stream, &[0]);
    let cooperative = Param::with_value("cooperative", 0u32);
    let mut replay = replay();
    let step = |r: &mut dyn Recorder| -> Result<()> {
        let (a, cooperative) = (a.clone(), cooperative.clone());
        r.record_with(move || {
            let op = store(&a, 1);
            Ok(match cooperative.get()? {
                0 => op,
                _ => op.attribute(LaunchAttribute::Cooperative(true)),
            })
        })
    };
    replay.call(&stream, step).unwrap();
    cooperative.set(1);
    replay.run(&stream).unwrap();
    let counters = replay.counters();
    assert_eq!(counters.builds + counters.twins, 2, "{counters:?}");
}

/// Fills and copies that a closure makes become what no update can make of their nodes.
#[test]
fn closures_may_make_what_no_update_can() {
    let stream = stream();
    let a = words(&stream, &[0, 0, 0, 0]);
    let host = PinnedBuffer::<u32>::zeroed(&context(), 1).unwrap();
    let len = Param::with_value("len", 4u32);
    let kind = Param::with_value("kind", 0u32);
    let mut replay = replay();
    let step = |r: &mut dyn Recorder| -> Result<()> {
        let (to, n) = (a.clone(), len.clone());
        r.record_with(move || FillOp::new(&to.slice(..n.get()? as usize)?, 7u32))?;
        let (to, host, kind) = (a.clone(), host.clone(), kind.clone());
        r.record_with(move || -> Result<cuda_graph::AnyOp> {
            let to = to.slice(3..4)?;
            Ok(match kind.get()? {
                0 => FillOp::new(&to, 1u32)?.into(),
                1 => FillOp::by_kernel(&to, 2u32)?.into(),
                2 => CopyOp::new(&to, &host)?.into(),
                3 => put(&to, 3u32).into(),
                4 => HostOp::new(|| ()).into(),
                _ => cuda_graph::EmptyOp::new().into(),
            })
        })
    };
    replay.call(&stream, step).unwrap();
    for round in 0..40u32 {
        let (n, k) = (
            [4, 0, 2, 4, 1][round as usize % 5],
            (round * 7 + round / 6) % 6,
        );
        a.copy_from_host(&stream, &[9, 9, 9, 9]).unwrap();
        len.set(n);
        kind.set(k);
        replay
            .run(&stream)
            .unwrap_or_else(|error| panic!("{round}: {n}, {k}: {error}"));
        let mut expected = [9; 4];
        expected[..n as usize].fill(7);
        match k {
            0 => expected[3] = 1,
            1 => expected[3] = 2,
            2 => expected[3] = 0,
            3 => expected[3] = 3,
            _ => {}
        }
        assert_eq!(a.to_host(&stream).unwrap(), expected, "{round}: {n}, {k}");
    }
}

/// An executable that knows nothing of a parameter is found to do what a new value asks for.
#[test]
fn an_executable_taken_over_by_a_run_knows_its_parameters() {
    let stream = stream();
    let to: Vec<_> = (0..4).map(|_| words(&stream, &[0])).collect();
    let value = Param::with_value("value", 1u32);
    let made = |r: &mut dyn Recorder| -> Result<()> {
        for to in &to {
            let (to, value) = (to.clone(), value.clone());
            r.record_with(move || FillOp::new(&to, value.get()?))?;
        }
        Ok(())
    };
    let plain = |r: &mut dyn Recorder, value: u32| -> Result<()> {
        for to in &to {
            r.record(FillOp::new(to, value)?)?;
        }
        Ok(())
    };
    let mut replay = replay();
    replay.call(&stream, made).unwrap();
    // Arguments that come again get an executable of their own.
    for number in [2, 1, 2, 1, 2, 1] {
        value.set(number);
        replay.call(&stream, |r| plain(r, number)).unwrap();
    }
    assert_eq!(replay.executables(), 2);
    replay.call(&stream, made).unwrap();
    for number in [1, 2, 3, 1, 2, 4, 2, 1, 5] {
        let _ = replay.bind(&value, number);
        value.set(number);
        replay.run(&stream).unwrap();
        for to in &to {
            assert_eq!(read(&stream, to), number);
        }
    }
}

/// The driver refuses the first value that a run gives, while the call is in flight.
#[test]
fn memory_in_flight_is_held_when_a_run_fails() {
    let stream = stream();
    for nth in 0.. {
        let door = Arc::new(Door::default());
        let (watch, watched) = Watch::new();
        let (memory, other) = (words(&stream, &[0]), words(&stream, &[0]));
        // SAFETY: the memory lives as long as the turn.
        let raw = |of: &Buffer<u32>| unsafe { RawMemory::device(of.address(), 4) };
        let to = Param::with_value("to", raw(&memory).owned_by(Arc::new(watched)));
        let mut replay = replay();
        let step = |r: &mut dyn Recorder| -> Result<()> {
            r.record(door.op())?;
            r.record(put(&to, 1u32))?;
            r.record(put(&to, 2u32)).map(drop)
        };
        door.close();
        replay.call(&stream, step).unwrap();
        door.until_someone_waits();
        to.set(raw(&other).owned_by(Arc::new(())));
        let (ran, fired) = with_failing_call(nth, || replay.run(&stream));
        assert!(
            !watch.is_dropped(),
            "the launch uses it; call {nth} failed: {ran:?}"
        );
        drop(replay);
        assert!(
            !watch.is_dropped(),
            "the launch uses it; call {nth} failed: {ran:?}"
        );
        door.open();
        stream.synchronize().unwrap();
        settle();
        assert_soon(|| watch.is_dropped(), "it is not let go");
        if !fired {
            break;
        }
    }
}

/// Memory that a kernel reaches by what its argument points to, kept by hand.
#[test]
fn what_arguments_keep_by_hand_is_held() {
    let stream = stream();
    let memory = words(&stream, &[0]);
    let door = Arc::new(Door::default());
    let mut replay = replay();
    let mut watches = Vec::new();
    door.close();
    for _ in 0..3 {
        let (watch, watched) = Watch::new();
        let mut arguments = Arguments::default();
        KernelArgument::add_to(&memory, &mut arguments);
        KernelArgument::add_to(1u32, &mut arguments);
        arguments.keep(Arc::new(watched));
        // SAFETY: `store` writes one word.
        let op = unsafe { KernelOp::new(kernel("store"), one(), arguments) }.unwrap();
        replay
            .call(&stream, |r| {
                r.record(door.op())?;
                r.record(op.clone()).map(drop)
            })
            .unwrap();
        drop(op);
        watches.push(watch);
    }
    let held: Vec<_> = watches.iter().map(|watch| !watch.is_dropped()).collect();
    door.open();
    assert_eq!(held, [true; 3]);
    stream.synchronize().unwrap();
}

/// One argument is owned on one call, the other on the next.
#[test]
fn each_owner_is_held_while_its_launch_is_in_flight() {
    let stream = stream();
    let (to, from) = (words(&stream, &[1]), words(&stream, &[2]));
    let door = Arc::new(Door::default());
    let mut replay = replay();
    door.close();
    let mut watches = Vec::new();
    for number in 0..2 {
        let (watch, watched) = Watch::new();
        // SAFETY: both buffers live as long as the test, which waits for all launches.
        let [a, b] = [&to, &from].map(|word| unsafe { RawMemory::device(word.address(), 4) });
        let (a, b) = match number {
            0 => (a.owned_by(Arc::new(watched)), b),
            _ => (a, b.owned_by(Arc::new(watched))),
        };
        // SAFETY: `add` reads and writes a word of each.
        let op = unsafe { KernelOp::new(kernel("add"), one(), (a, b)) }.unwrap();
        replay
            .call(&stream, |r| {
                r.record(door.op())?;
                r.record(op.clone()).map(drop)
            })
            .unwrap();
        drop(op);
        watches.push(watch);
    }
    let held: Vec<_> = watches.iter().map(|watch| !watch.is_dropped()).collect();
    door.open();
    stream.synchronize().unwrap();
    assert_eq!(held, [true; 2]);
}

/// A call fails behind a section that changed and launched the executable of the call before.
#[test]
fn nothing_is_run_again_after_a_failed_call() {
    let stream = stream();
    let (a, b) = (words(&stream, &[0]), words(&stream, &[0]));
    let mut replay = replay();
    replay
        .call(&stream, |r| r.record(store(&a, 1)).map(drop))
        .unwrap();
    let failed = replay.call(&stream, |r| {
        r.record(store(&a, 2))?;
        r.outside(|_| Err(Error::other(std::io::Error::other("as meant"))))?;
        r.record(store(&b, 2)).map(drop)
    });
    assert!(failed.is_err());
    let ran = replay.run(&stream);
    assert!(matches!(ran, Err(Error::NotCalled { .. })), "{ran:?}");
    // A step that fails by itself, too.
    replay
        .call(&stream, |r| r.record(store(&a, 1)).map(drop))
        .unwrap();
    let failed = replay.call(&stream, |_| {
        Err(Error::other(std::io::Error::other("as meant")))
    });
    assert!(failed.is_err());
    let ran = replay.run(&stream);
    assert!(matches!(ran, Err(Error::NotCalled { .. })), "{ran:?}");
}

/// A value that looks at its own parameter as it becomes an argument.
#[test]
fn a_value_may_look_at_its_own_parameter() {
    #[derive(Clone)]
    struct Looks {
        param: Option<Param<Looks>>,
        value: u32,
    }
    impl KernelArgument for Looks {
        fn add_to(self, arguments: &mut Arguments) {
            if let Some(param) = &self.param {
                let _ = param.get();
            }
            self.value.add_to(arguments);
        }
    }
    let (done, is_done) = mpsc::channel();
    std::thread::spawn(move || {
        let stream = stream();
        let a = words(&stream, &[0]);
        let param = Param::new("looks");
        param.set(Looks {
            param: Some(param.clone()),
            value: 3,
        });
        replay()
            .call(&stream, |r| r.record(put(&a, &param)).map(drop))
            .unwrap();
        assert_eq!(read(&stream, &a), 3);
        param.set(Looks {
            param: None,
            value: 0,
        });
        done.send(()).unwrap();
    });
    let waited = is_done.recv_timeout(Duration::from_secs(10));
    assert!(waited.is_ok(), "it waits for itself");
}

/// A section cannot be run, and the step goes on as if nothing were.
#[test]
fn a_step_that_swallows_what_went_wrong_has_not_run() {
    let stream = stream();
    let (a, b) = (words(&stream, &[0]), words(&stream, &[0]));
    for nth in 0.. {
        let mut replay = replay();
        let step = |r: &mut dyn Recorder, value: u32| -> Result<()> {
            r.record(store(&a, value))?;
            let _ = r.outside(|_| Ok(()));
            r.record(store(&b, value)).map(drop)
        };
        replay.call(&stream, |r| step(r, 1)).unwrap();
        let (called, fired) = with_failing_call(nth, || replay.call(&stream, |r| step(r, 2)));
        if called.is_ok() {
            assert_eq!(
                (read(&stream, &a), read(&stream, &b)),
                (2, 2),
                "call {nth} failed"
            );
        }
        replay.call(&stream, |r| step(r, 3)).unwrap();
        assert_eq!(
            (read(&stream, &a), read(&stream, &b)),
            (3, 3),
            "call {nth} failed"
        );
        if !fired {
            break;
        }
    }
}

/// A replay that begins anew in a context that is there: loops of others take turns all the same.
/// Alone in its process: elsewhere ranks may share the device, and then no loops take turns.
#[test]
fn launches_with_loops_take_turns_across_a_reset() {
    if !in_own_process("attack::replay::launches_with_loops_take_turns_across_a_reset") {
        return;
    }
    let (one, two) = (stream(), stream());
    let (a, flag) = (words(&one, &[0]), words(&one, &[0]));
    let door = Arc::new(Door::default());
    let looped = |door: Option<&Arc<Door>>| {
        let recorded = Graph::record(&context(), |path| {
            if let Some(door) = door {
                path.record(door.op())?;
            }
            path.while_nonzero(&flag, |r| r.record(store(&flag, 0)).map(drop))?;
            path.record(store(&a, 1)).map(drop)
        });
        recorded.unwrap().0.instantiate().unwrap()
    };
    let mut first = looped(Some(&door));
    door.close();
    first.launch(&one).unwrap();
    door.until_someone_waits();
    replay().reset(&context());
    // Dropping it would wait for the door.
    let mut second = looped(None);
    second.launch(&two).unwrap();
    std::thread::sleep(Duration::from_millis(50));
    let event = two.record_event(None).unwrap();
    let is_over = event.is_complete();
    door.open();
    assert!(!is_over, "loops run at once");
}

/// The launch behind what an executable replaced fails, and another stream launches it.
#[test]
fn launches_wait_for_the_replaced_executable_after_a_failed_launch() {
    let context = context();
    let (one, two, three) = (stream(), stream(), stream());
    let a = words(&one, &[0]);
    for nth in 0.. {
        let door = Arc::new(Door::default());
        let first = Graph::new(&context).unwrap();
        let waits = first.add(door.op(), ()).unwrap();
        first.add(store(&a, 1), waits).unwrap();
        let second = Graph::new(&context).unwrap();
        second.add(store(&a, 2), ()).unwrap();
        let mut exec = first.instantiate().unwrap();
        door.close();
        exec.launch(&one).unwrap();
        door.until_someone_waits();
        exec.update_from(&second).unwrap();
        let (launched, fired) = with_failing_call(nth, || exec.launch(&two));
        if launched.is_err() {
            exec.launch(&three).unwrap();
        }
        std::thread::sleep(Duration::from_millis(5));
        door.open();
        for stream in [&one, &two, &three] {
            stream.synchronize().unwrap();
        }
        assert_eq!(read(&one, &a), 2, "call {nth} failed");
        if !fired {
            break;
        }
    }
}

/// The stream of the last launch is captured while an executable is replaced.
#[test]
fn an_executable_is_replaced_while_its_stream_is_captured() {
    let context = context();
    let (one, two) = (stream(), stream());
    let (a, b) = (words(&one, &[0]), words(&one, &[0]));
    let first = Graph::new(&context).unwrap();
    let before = first.add(store(&a, 1), ()).unwrap();
    first.add(store(&a, 2), before).unwrap();
    let second = Graph::new(&context).unwrap();
    second.add(store(&b, 3), ()).unwrap();
    let mut exec = first.instantiate().unwrap();
    exec.launch(&one).unwrap();
    let mut updated = None;
    let captured = Graph::capture(&one, |path| {
        path.record(store(&a, 5))?;
        updated = Some(exec.update_from(&second));
        path.record(store(&a, 6)).map(drop)
    });
    assert!(captured.is_ok(), "{captured:?} after {updated:?}");
    let is_updated = updated.is_some_and(|updated| updated.is_ok());
    exec.launch(&two).unwrap();
    let found = (read(&two, &a), read(&two, &b));
    assert_eq!(found, (2, if is_updated { 3 } else { 0 }));
    // Later it can be replaced.
    exec.update_from(&second).unwrap();
    exec.launch(&two).unwrap();
    assert_eq!(read(&two, &b), 3);
}

/// Owners that panic as they go, of a step that changes several nodes.
#[test]
fn owners_that_panic_leave_no_node_behind() {
    struct Panics(bool);
    impl Drop for Panics {
        fn drop(&mut self) {
            if self.0 && !std::thread::panicking() {
                panic!("as meant");
            }
        }
    }
    let stream = stream();
    let (a, b) = (words(&stream, &[0]), words(&stream, &[0]));
    let step = |r: &mut dyn Recorder, value: u32, panics: bool| -> Result<()> {
        for to in [&a, &b] {
            // SAFETY: the buffers live as long as the test.
            let to = unsafe { RawMemory::device(to.address(), 4) };
            let owner: Owner = Arc::new(Panics(panics));
            r.record(put(to.owned_by(owner), value))?;
        }
        Ok(())
    };
    for nth in 0.. {
        let mut replay = replay();
        let called = catch_unwind(AssertUnwindSafe(|| {
            with_failing_call(nth, || replay.call(&stream, |r| step(r, 1, true)).map(drop))
        }));
        let fired = !matches!(called, Ok((_, false)));
        // Of an executable that was never launched, what an update replaces goes at once.
        let second = catch_unwind(AssertUnwindSafe(|| {
            replay.call(&stream, |r| step(r, 2, false)).map(drop)
        }));
        let third = catch_unwind(AssertUnwindSafe(|| {
            replay.call(&stream, |r| step(r, 1, false)).map(drop)
        }));
        if third.is_err() {
            replay.call(&stream, |r| step(r, 1, false)).unwrap();
        }
        let found = (read(&stream, &a), read(&stream, &b));
        assert_eq!(found, (1, 1), "call {nth} failed: {called:?}, {second:?}");
        if !fired {
            break;
        }
    }
}

/// A step panics, and then an owner that it brought.
#[test]
fn a_failed_step_whose_owners_panic() {
    struct Panics;
    impl Drop for Panics {
        fn drop(&mut self) {
            if !std::thread::panicking() {
                panic!("as meant");
            }
        }
    }
    let stream = stream();
    let (a, b) = (words(&stream, &[0]), words(&stream, &[0]));
    let mut replay = replay();
    let step = |r: &mut dyn Recorder, value: u32| -> Result<()> {
        r.record(store(&a, value))?;
        r.record(FillOp::new(&b, value)?).map(drop)
    };
    for known in [false, true] {
        let failed = catch_unwind(AssertUnwindSafe(|| {
            replay.call(&stream, |r| {
                // SAFETY: the buffer lives as long as the test.
                let to = unsafe { RawMemory::device(a.address(), 4) };
                r.record(put(to.owned_by(Arc::new(Panics)), 7u32))?;
                r.record(FillOp::new(&b, 7u32)?)?;
                Err(Error::other(std::io::Error::other("as meant")))
            })
        }));
        assert!(!matches!(failed, Ok(Ok(_))), "known: {known}");
        a.copy_from_host(&stream, &[0]).unwrap();
        b.copy_from_host(&stream, &[0]).unwrap();
        replay.call(&stream, |r| step(r, 1)).unwrap();
        assert_eq!(
            (read(&stream, &a), read(&stream, &b)),
            (1, 1),
            "known: {known}"
        );
    }
}

/// Operations made in a step stay what they were, and those of the executable too.
#[test]
fn operations_made_in_a_step_are_the_programs_own() {
    let stream = stream();
    let (a, b) = (words(&stream, &[0]), words(&stream, &[0]));
    let (mut outer, mut inner) = (replay(), replay());
    let mut kept = Vec::new();
    for turn in 0..6u32 {
        let value = turn / 2 + 1;
        let called = catch_unwind(AssertUnwindSafe(|| {
            outer.call(&stream, |r| {
                for to in [&a, &b] {
                    let op = store(to, value);
                    inner.call(&stream, |r| {
                        r.record(op.clone())?;
                        r.record(store(&b, 9)).map(drop)
                    })?;
                    // Labelled, it is another one.
                    let labelled = op.clone().label("labelled").cooperative();
                    assert!(op.attributes().is_empty());
                    kept.push((op.clone(), labelled));
                    r.record(op)?;
                }
                assert!(turn != 3, "as meant");
                Ok(())
            })
        }));
        assert_eq!(called.is_err(), turn == 3);
        if turn != 3 {
            assert_eq!((read(&stream, &a), read(&stream, &b)), (value, value));
        }
    }
    drop((outer, inner));
    let graph = Graph::new(&context()).unwrap();
    let mut last = graph.add(store(&a, 0), ()).unwrap();
    for (op, labelled) in kept {
        assert!(op.attributes().is_empty() && labelled.attributes().len() == 1);
        last = graph.add(op, last).unwrap();
    }
    graph.instantiate().unwrap().launch(&stream).unwrap();
    assert_eq!((read(&stream, &a), read(&stream, &b)), (3, 3));
}

/// Whatever driver call fails in a run or call, what runs next is what the parameters say.
#[test]
fn values_are_right_after_a_failure_at_each_call() {
    let stream = stream();
    let out: Vec<_> = (0..5).map(|_| words(&stream, &[0])).collect();
    let (x, y) = (words(&stream, &[0]), words(&stream, &[0]));
    for second in [false, true] {
        for prepare in 0..4 {
            for nth in 0.. {
                let to = Param::with_value("to", x.clone());
                let value = Param::with_value("value", 1u32);
                let made = Param::with_value("made", 1u32);
                let mut replay = replay();
                let step = |r: &mut dyn Recorder| -> Result<()> {
                    r.record(put(&to, &value))?;
                    r.record(put(&out[0], &value))?;
                    r.record(add(&out[1], &x))?;
                    let (out, made) = (out[2].clone(), made.clone());
                    r.record_with(move || FillOp::new(&out, made.get()?))?;
                    Ok(())
                };
                let check = |when: &str, to: &Buffer<u32>, value: u32, made: u32| {
                    let found = (
                        read(&stream, to),
                        read(&stream, &out[0]),
                        read(&stream, &out[2]),
                    );
                    assert_eq!(found, (value, value, made), "{when}: {prepare}, {nth}");
                };
                replay.call(&stream, step).unwrap();
                if prepare > 0 {
                    replay.run(&stream).unwrap();
                }
                if prepare > 1 {
                    value.set(2);
                    replay.run(&stream).unwrap();
                }
                value.set(3);
                if prepare != 2 {
                    to.set(y.clone());
                }
                if prepare == 3 {
                    made.set(5);
                }
                let (ran, fired) = with_failing_call(nth, || match second {
                    true => replay.call(&stream, step).map(drop),
                    false => replay.run(&stream).map(drop),
                });
                let at = if prepare == 2 { &x } else { &y };
                let is_made = if prepare == 3 { 5 } else { 1 };
                if ran.is_ok() {
                    check("at once", at, 3, is_made);
                }
                match nth % 3 {
                    0 => {
                        // With what there was before.
                        value.set(2);
                        to.set(x.clone());
                        made.set(1);
                        match replay.run(&stream) {
                            Ok(_) => check("back", &x, 2, 1),
                            Err(Error::NotCalled { .. }) => {}
                            Err(error) => panic!("{error}"),
                        }
                        replay.call(&stream, step).unwrap();
                        check("back, called", &x, 2, 1);
                    }
                    1 => {
                        replay.call(&stream, step).unwrap();
                        check("called", at, 3, is_made);
                        replay.run(&stream).unwrap();
                        check("called and run", at, 3, is_made);
                    }
                    _ => match replay.run(&stream) {
                        Ok(_) => check("run", at, 3, is_made),
                        Err(Error::NotCalled { .. }) => {}
                        Err(error) => panic!("{error}"),
                    },
                }
                if !fired {
                    break;
                }
            }
        }
    }
}
