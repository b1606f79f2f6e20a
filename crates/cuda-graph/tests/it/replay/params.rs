//! Parameters of steps: what [`Replay::run`] sets, and what it leaves alone.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};

use cuda_graph::cudarc::driver::{CudaStream, DeviceRepr, LaunchConfig};
use cuda_graph::cudarc::nvrtc::Ptx;
use cuda_graph::testing::{settle, with_failing_call};
use cuda_graph::{
    AnyOp, Buffer, ChildOp, CopyOp, Counters, Eager, Error, FillOp, Graph, HostOp, Kernel,
    KernelOp, Owner, Param, PinnedBuffer, RawMemory, Recorder, Replay, ReplayOptions, Result,
};

use super::{
    Counting, Step, assert_failure, call, counted, failure, read, replay, replay_of, set, word,
};
use crate::door::Door;
use crate::fixture::{Watch, add, alone, assert_soon, context, kernel, one, store, stream, words};

/// Runs without walking, and returns what that counted.
#[track_caller]
fn run(replay: &mut Replay, stream: &Arc<CudaStream>) -> Counters {
    counted(replay, |replay| {
        replay.run(stream).expect("it runs");
    })
}

#[track_caller]
fn assert_not_called<T: std::fmt::Debug>(answer: Result<T>) {
    assert!(matches!(answer, Err(Error::NotCalled { .. })), "{answer:?}");
}

/// `store` with whatever its two arguments come from.
macro_rules! store_of {
    ($to:expr, $value:expr) => {
        // SAFETY: `store` writes one word, which each memory that the tests give has.
        unsafe { KernelOp::new(kernel("store"), one(), ($to, $value)) }
    };
}

fn store_param(to: &Buffer<u32>, value: &Param<u32>) -> Result<KernelOp> {
    store_of!(to, value)
}

/// Adds one word of a parameter to another word.
fn add_param(to: &Buffer<u32>, from: &Param<Buffer<u32>>) -> Result<KernelOp> {
    // SAFETY: `add` reads and writes one word of each.
    unsafe { KernelOp::new(kernel("add"), one(), (to, from)) }
}

fn grid(blocks: u32, shared_mem_bytes: u32) -> LaunchConfig {
    LaunchConfig {
        grid_dim: (blocks, 1, 1),
        shared_mem_bytes,
        ..one()
    }
}

/// Three words, and padding.
#[repr(C)]
#[derive(Clone, Copy)]
struct Wide {
    a: u64,
    b: u32,
    c: u64,
}

// SAFETY: it is plain data.
unsafe impl DeviceRepr for Wide {}

/// `wide(to, v)`: `*to = v.a + v.b + v.c`.
fn wide() -> Kernel {
    const PTX: &str = "
.version 7.0
.target sm_70
.address_size 64
.visible .entry wide(.param .u64 to, .param .align 8 .b8 v[24])
{
    .reg .b32 %b;
    .reg .b64 %p, %v, %w;
    ld.param.u64 %p, [to];
    ld.param.u64 %v, [v];
    ld.param.u32 %b, [v+8];
    cvt.u64.u32 %w, %b;
    add.u64 %v, %v, %w;
    ld.param.u64 %w, [v+16];
    add.u64 %v, %v, %w;
    cvt.u32.u64 %b, %v;
    st.global.u32 [%p], %b;
    ret;
}
";
    let module = context().load_module(Ptx::from_src(PTX)).unwrap();
    Kernel::new(&module.load_function("wide").unwrap()).unwrap()
}

#[test]
fn a_number_reaches_exactly_the_kernels_that_take_it() {
    let stream = stream();
    let mut replay = replay();
    let cells: Vec<_> = (0..6).map(|_| word(&stream, 0)).collect();
    let value = Param::with_value("value", 1u32);
    let step = |r: &mut dyn Recorder| {
        for (number, to) in (0..).zip(&cells) {
            match number % 2 {
                0 => r.record(store_param(to, &value)?)?,
                _ => r.record(store(to, number))?,
            };
        }
        Ok(())
    };
    call(&mut replay, &stream, step);
    for number in [7, 8, 9, 9, 100] {
        let changes = value.get().unwrap() != number;
        replay.bind(&value, number).unwrap();
        for to in &cells {
            set(&stream, to, 77);
        }
        let did = run(&mut replay, &stream);
        // A value that is the same may be set again.
        assert!(
            did.updated == 3 || (!changes && did.updated == 0),
            "{did:?}"
        );
        assert_eq!(
            (did.launches, did.hits, did.builds, did.compared),
            (1, 1, 0, 0)
        );
        let got: Vec<_> = cells.iter().map(|cell| read(&stream, cell)).collect();
        assert_eq!(got, [number, 1, number, 3, number, 5]);
        assert_eq!(run(&mut replay, &stream).updated, 0, "nothing changed");
    }
}

#[test]
fn a_structure_of_several_words_is_set_whole() {
    let stream = stream();
    let mut replay = replay();
    let (to, kernel) = (word(&stream, 0), wide());
    let value = Param::with_value("value", Wide { a: 1, b: 2, c: 3 });
    call(&mut replay, &stream, |r| {
        // SAFETY: `wide` writes one word.
        r.record(unsafe { KernelOp::new(&kernel, one(), (&to, &value)) }?)
            .map(drop)
    });
    assert_eq!(read(&stream, &to), 6);
    for number in 1..5 {
        let wide = Wide {
            a: 1000 * u64::from(number),
            b: 100 * number,
            c: u64::from(number),
        };
        replay.bind(&value, wide).unwrap();
        assert_eq!(run(&mut replay, &stream).updated, 1);
        assert_eq!(read(&stream, &to), 1101 * number);
    }
}

#[test]
fn a_buffer_or_a_slice_is_where_a_kernel_writes() {
    let stream = stream();
    let mut replay = replay();
    let cells = words(&stream, &[0; 8]);
    let slice = |at: usize| cells.slice(at..=at).unwrap();
    let to = Param::with_value("to", slice(0));
    call(&mut replay, &stream, |r| {
        r.record(store_of!(&to, 9u32)?).map(drop)
    });
    for at in [3, 5, 7] {
        replay.bind(&to, slice(at)).unwrap();
        assert_eq!(run(&mut replay, &stream).updated, 1);
    }
    assert_eq!(cells.to_host(&stream).unwrap(), [9, 0, 0, 9, 0, 9, 0, 9]);
}

#[test]
fn several_parameters_are_set_at_once_and_each_node_once() {
    let stream = stream();
    let mut replay = replay();
    let cells: Vec<_> = (0..4).map(|_| word(&stream, 0)).collect();
    let (to, value) = (
        Param::with_value("to", cells[0].clone()),
        Param::with_value("value", 1u32),
    );
    let last = word(&stream, 0);
    call(&mut replay, &stream, |r| {
        r.record(store_of!(&to, &value)?)?;
        r.record(store_param(&last, &value)?)?;
        r.record(store(&cells[3], 5)).map(drop)
    });
    replay.bind(&to, cells[1].clone()).unwrap();
    replay.bind(&value, 2).unwrap();
    assert_eq!(
        run(&mut replay, &stream).updated,
        2,
        "two nodes, two values"
    );
    let got: Vec<_> = cells.iter().map(|cell| read(&stream, cell)).collect();
    assert_eq!((got, read(&stream, &last)), (vec![1, 2, 0, 5], 2));
}

/// One value is plain, the other is held: they are set in different ways.
#[test]
fn two_parameters_of_a_kernel_change_in_turns() {
    let stream = stream();
    let mut replay = replay();
    let cells: Vec<_> = (0..3).map(|_| word(&stream, 0)).collect();
    let to = Param::with_value("to", cells[0].clone());
    let value = Param::with_value("value", 1u32);
    call(&mut replay, &stream, |r| {
        r.record(store_of!(&to, &value)?).map(drop)
    });
    let (mut at, mut number) = (0, 1);
    // A value may be the first that changes, or the second.
    for turn in [1, 0, 1, 1, 0, 0, 1, 0, 2, 0, 1, 2, 1, 0] {
        if turn != 1 {
            at = (at + 1) % 3;
            replay.bind(&to, cells[at].clone()).unwrap();
        }
        if turn != 0 {
            number += 1;
            replay.bind(&value, number).unwrap();
        }
        cells.iter().for_each(|cell| set(&stream, cell, 0));
        assert_eq!(run(&mut replay, &stream).updated, 1);
        let got: Vec<_> = cells.iter().map(|cell| read(&stream, cell)).collect();
        let mut wants = vec![0; 3];
        wants[at] = number;
        assert_eq!(got, wants, "turn {turn} with {number}");
    }
}

#[test]
fn a_parameter_twice_in_a_kernel_is_set_in_both_places_and_counts_once() {
    let stream = stream();
    let mut replay = replay();
    let cells: Vec<_> = (0..3).map(|at| word(&stream, at + 1)).collect();
    let both = Param::with_value("both", cells[0].clone());
    let twice = Param::with_value("twice", 1u32);
    let out = words(&stream, &[0; 4]);
    call(&mut replay, &stream, |r| {
        // SAFETY: `add` reads and writes one word of each.
        r.record(unsafe { KernelOp::new(kernel("add"), one(), (&both, &both)) }?)?;
        // SAFETY: `bump` writes as many words as it is told, at most one for each thread.
        r.record(unsafe { KernelOp::new(kernel("bump"), one(), (&out, &twice)) }?)
            .map(drop)
    });
    for cell in &cells[1..] {
        replay.bind(&both, cell.clone()).unwrap();
        assert_eq!(run(&mut replay, &stream).updated, 1);
    }
    let got: Vec<_> = cells.iter().map(|cell| read(&stream, cell)).collect();
    assert_eq!(got, [2, 4, 6]);
    replay.bind(&twice, 0).unwrap();
    run(&mut replay, &stream);
    assert_eq!(out.to_host(&stream).unwrap()[0], 3);
}

#[test]
fn a_plain_value_twice_in_a_kernel_counts_once() {
    let stream = stream();
    let mut replay = replay();
    let cells = words(&stream, &[0; 2]);
    let address = Param::with_value("address", cells.address());
    call(&mut replay, &stream, |r| {
        // SAFETY: `add` reads and writes one word, which the test keeps.
        r.record(unsafe { KernelOp::new(kernel("add"), one(), (&address, &address)) }?)
            .map(drop)
    });
    cells.copy_from_host(&stream, &[1, 1]).unwrap();
    replay.bind(&address, cells.address() + 4).unwrap();
    assert_eq!(run(&mut replay, &stream).updated, 1);
    assert_eq!(cells.to_host(&stream).unwrap(), [1, 2]);
}

#[test]
fn what_closures_make_of_parameters_changes_in_every_way() {
    let stream = stream();
    let mut replay = replay();
    let from = words(&stream, &[1, 2, 3, 4]);
    let other = words(&stream, &[5, 6, 7, 8]);
    let (copied, filled, bumped) = (
        words(&stream, &[0; 4]),
        words(&stream, &[0; 4]),
        words(&stream, &[0; 4]),
    );
    let told = Arc::new(AtomicU32::new(0));
    let (source, count) = (
        Param::with_value("source", from.clone()),
        Param::with_value("n", 4u32),
    );
    let (value, blocks, shared) = (
        Param::with_value("value", 1u32),
        Param::with_value("blocks", 1u32),
        Param::with_value("shared", 0u32),
    );
    let data = Param::with_value("data", 1u32);
    let step = |r: &mut dyn Recorder| {
        let (to, source, n) = (copied.clone(), source.clone(), count.clone());
        r.record_with(move || {
            let n = n.get()? as usize;
            CopyOp::new(to.slice(..n)?, source.get()?.slice(..n)?)
        })?;
        let (to, v) = (filled.clone(), value.clone());
        r.record_with(move || FillOp::new(&to, v.get()?))?;
        let (to, blocks, shared) = (bumped.clone(), blocks.clone(), shared.clone());
        r.record_with(move || {
            let config = grid(blocks.get()?, shared.get()?);
            // SAFETY: `bump` writes 4 words at most.
            unsafe { KernelOp::new(kernel("bump"), config, (&to, 4u32)) }
        })?;
        let (told, data) = (told.clone(), data.clone());
        r.record_with(move || {
            let (told, data) = (told.clone(), data.get()?);
            Ok(HostOp::new(move || told.store(data, Ordering::SeqCst)))
        })
    };
    call(&mut replay, &stream, step);
    let mut wants = [1, 0, 0, 0];
    assert_eq!(bumped.to_host(&stream).unwrap(), wants);
    assert_eq!(copied.to_host(&stream).unwrap(), [1, 2, 3, 4]);

    for round in 0..3u32 {
        let zero = |buffer: &Buffer<u32>| buffer.copy_from_host(&stream, &[0; 4]).unwrap();
        let (which, fresh) = match round % 2 {
            0 => (&other, [5, 6, 7, 8]),
            _ => (&from, [1, 2, 3, 4]),
        };
        replay.bind(&source, which.clone()).unwrap();
        zero(&copied);
        let did = run(&mut replay, &stream);
        assert_eq!((did.updated, did.builds), (1, 0), "an operand");
        let n = 1 + round as usize;
        let got = copied.to_host(&stream).unwrap();
        let mut expected = [0; 4];
        let before = if round == 0 { 4 } else { round as usize };
        expected[..before].copy_from_slice(&fresh[..before]);
        assert_eq!(got, expected);
        zero(&copied);
        replay.bind(&count, n as u32).unwrap();
        assert_eq!(run(&mut replay, &stream).updated, 1, "a size");
        expected = [0; 4];
        expected[..n].copy_from_slice(&fresh[..n]);
        assert_eq!(copied.to_host(&stream).unwrap(), expected);

        replay.bind(&value, 10 + round).unwrap();
        assert_eq!(run(&mut replay, &stream).updated, 1, "a fill's value");
        assert_eq!(filled.to_host(&stream).unwrap(), [10 + round; 4]);

        replay.bind(&blocks, 2 + round).unwrap();
        bumped.copy_from_host(&stream, &[0; 4]).unwrap();
        assert_eq!(run(&mut replay, &stream).updated, 1, "a grid");
        wants = [0; 4];
        wants[..2 + round as usize].fill(1);
        assert_eq!(bumped.to_host(&stream).unwrap(), wants);
        replay.bind(&shared, 64 + round).unwrap();
        assert_eq!(run(&mut replay, &stream).updated, 1, "shared memory");

        replay.bind(&data, 20 + round).unwrap();
        assert_eq!(
            run(&mut replay, &stream).updated,
            1,
            "a host function's data"
        );
        stream.synchronize().unwrap();
        assert_eq!(told.load(Ordering::SeqCst), 20 + round);
    }
    assert_eq!((replay.counters().builds, replay.counters().twins), (1, 0));
}

/// The driver has no nodes that copy or fill nothing.
#[test]
fn a_copy_becomes_empty_and_whole_again() {
    let stream = stream();
    let mut replay = replay();
    let (to, from) = (words(&stream, &[0; 4]), words(&stream, &[1, 2, 3, 4]));
    let n = Param::with_value("n", 4u32);
    let step = |r: &mut dyn Recorder| {
        let (to, from, n) = (to.clone(), from.clone(), n.clone());
        r.record_with(move || {
            let n = n.get()? as usize;
            CopyOp::new(to.slice(..n)?, from.slice(..n)?)
        })
    };
    call(&mut replay, &stream, step);
    for count in [0, 2, 0, 0, 4, 1] {
        to.copy_from_host(&stream, &[0; 4]).unwrap();
        replay.bind(&n, count).unwrap();
        run(&mut replay, &stream);
        let mut wants = [0; 4];
        wants[..count as usize].copy_from_slice(&[1, 2, 3, 4][..count as usize]);
        assert_eq!(to.to_host(&stream).unwrap(), wants, "{count} words");
    }
    assert!(replay.counters().builds <= 2, "{:?}", replay.counters());
}

#[test]
fn a_closure_may_make_operations_of_several_kinds() {
    let stream = stream();
    let mut replay = replay();
    let (to, from) = (word(&stream, 0), word(&stream, 3));
    let kind = Param::with_value("kind", 0u32);
    let step = |r: &mut dyn Recorder| {
        let (to, from, kind) = (to.clone(), from.clone(), kind.clone());
        r.record(store(&from, 3))?;
        r.record_with(move || {
            Ok(match kind.get()? {
                0 => AnyOp::from(store(&to, 1)),
                1 => FillOp::new(&to, 2u32)?.into(),
                2 => CopyOp::new(&to, &from)?.into(),
                _ => cuda_graph::EmptyOp::new().into(),
            })
        })
    };
    call(&mut replay, &stream, step);
    for which in [1, 2, 3, 0, 2, 1, 3, 0] {
        set(&stream, &to, 0);
        replay.bind(&kind, which).unwrap();
        run(&mut replay, &stream);
        let wants = if which == 3 { 0 } else { which + 1 };
        assert_eq!(read(&stream, &to), wants, "kind {which}");
    }
    assert!(replay.counters().builds <= 4, "{:?}", replay.counters());
}

/// What the driver refuses to change makes another executable: closures are asked there too.
#[test]
fn an_update_that_the_driver_refuses_makes_another_executable() {
    let stream = stream();
    let mut replay = replay();
    let (to, device) = (word(&stream, 0), word(&stream, 5));
    let host = PinnedBuffer::from_slice(&context(), &[6u32]).unwrap();
    let is_host = Param::with_value("is_host", false);
    let value = Param::with_value("value", 1u32);
    let beside = word(&stream, 0);
    let step = |r: &mut dyn Recorder| {
        let (to, device, host) = (to.clone(), device.clone(), host.clone());
        let is_host = is_host.clone();
        r.record_with(move || match is_host.get()? {
            true => CopyOp::new(&to, &host),
            false => CopyOp::new(&to, &device),
        })?;
        r.record(store_param(&beside, &value)?).map(drop)
    };
    call(&mut replay, &stream, step);
    for number in 2..9 {
        replay.bind(&is_host, number % 2 == 0).unwrap();
        replay.bind(&value, number).unwrap();
        run(&mut replay, &stream);
        let wants = if number % 2 == 0 { 6 } else { 5 };
        assert_eq!(
            (read(&stream, &to), read(&stream, &beside)),
            (wants, number)
        );
        let number = number + 50;
        replay.bind(&value, number).unwrap();
        assert_eq!(run(&mut replay, &stream).updated, 1);
        assert_eq!(
            (read(&stream, &to), read(&stream, &beside)),
            (wants, number)
        );
    }
    assert!(replay.counters().builds <= 2, "{:?}", replay.counters());
}

/// As above, beside a part that was captured.
#[test]
fn a_refused_update_loses_nothing_of_the_step() {
    let stream = stream();
    let mut replay = replay();
    let (to, device, other) = (word(&stream, 0), word(&stream, 5), word(&stream, 0));
    let host = PinnedBuffer::from_slice(&context(), &[6u32]).unwrap();
    let is_host = Param::with_value("is_host", false);
    let graph = Graph::new(&context()).unwrap();
    graph.add(store(&other, 9), ()).unwrap();
    let step = |r: &mut dyn Recorder| {
        r.record(ChildOp::new(&graph))?;
        let (to, device, host) = (to.clone(), device.clone(), host.clone());
        let is_host = is_host.clone();
        r.record_with(move || match is_host.get()? {
            true => CopyOp::new(&to, &host),
            false => CopyOp::new(&to, &device),
        })
    };
    call(&mut replay, &stream, step);
    for number in 0..4 {
        set(&stream, &other, 0);
        replay.bind(&is_host, number % 2 == 0).unwrap();
        match replay.run(&stream) {
            Ok(_) => {}
            Err(Error::NotCalled { .. }) => drop(call(&mut replay, &stream, step)),
            Err(error) => panic!("{error}"),
        }
        let wants = if number % 2 == 0 { 6 } else { 5 };
        assert_eq!((read(&stream, &to), read(&stream, &other)), (wants, 9));
    }
}

#[test]
fn a_closure_may_choose_a_graph_to_embed() {
    let stream = stream();
    let mut replay = replay();
    let to = word(&stream, 0);
    let which = Param::with_value("which", 0u32);
    let graphs: Arc<[ChildOp]> = (1..4)
        .map(|value| {
            let graph = Graph::new(&context()).unwrap();
            graph.add(store(&to, value), ()).unwrap();
            ChildOp::new(&graph)
        })
        .collect();
    let step = |r: &mut dyn Recorder| {
        let (graphs, which) = (graphs.clone(), which.clone());
        r.record_with(move || Ok(graphs[which.get()? as usize].clone()))
    };
    call(&mut replay, &stream, step);
    assert_eq!(read(&stream, &to), 1);
    for at in [1, 2, 0, 1] {
        replay.bind(&which, at).unwrap();
        run(&mut replay, &stream);
        assert_eq!(read(&stream, &to), at + 1);
    }
}

#[test]
fn a_replaced_buffer_goes_once_no_launch_uses_it() {
    let stream = stream();
    let mut replay = replay();
    let door = Arc::new(Door::default());
    let target = word(&stream, 0);
    let raw = |watched: Option<Owner>| {
        // SAFETY: the test keeps the buffer for as long as anything runs.
        let raw = unsafe { RawMemory::device(target.address(), 4) };
        match watched {
            Some(owner) => raw.owned_by(owner),
            None => raw,
        }
    };
    let owned = || {
        let (watch, watched) = Watch::new();
        (watch, raw(Some(Arc::new(watched))))
    };
    let (first, memory) = owned();
    let to = Param::with_value("to", memory);
    call(&mut replay, &stream, |r| {
        r.record(door.op())?;
        r.record(store_of!(&to, 4u32)?).map(drop)
    });
    stream.synchronize().unwrap();
    door.close();
    run(&mut replay, &stream);
    door.until_someone_waits();
    let (second, memory) = owned();
    replay.bind(&to, memory).unwrap();
    assert!(!first.is_dropped(), "the executable has it");
    run(&mut replay, &stream);
    std::thread::sleep(std::time::Duration::from_millis(10));
    assert!(!first.is_dropped(), "a launch in flight uses it");
    // Without an owner, and with one again.
    replay.bind(&to, raw(None)).unwrap();
    run(&mut replay, &stream);
    assert!(!second.is_dropped(), "a launch in flight uses it");
    let (third, memory) = owned();
    replay.bind(&to, memory).unwrap();
    run(&mut replay, &stream);
    door.open();
    stream.synchronize().unwrap();
    settle();
    assert_soon(|| first.is_dropped(), "nothing uses the first");
    assert_soon(|| second.is_dropped(), "nothing uses the second");
    assert!(!third.is_dropped());
    drop(to);
    assert!(!third.is_dropped(), "the executable has it");
    drop(replay);
    assert_soon(|| third.is_dropped(), "nothing uses the third");
    assert_eq!(read(&stream, &target), 4);
}

#[test]
fn a_buffer_of_a_closure_goes_with_what_it_made() {
    let stream = stream();
    let mut replay = replay();
    let to = word(&stream, 0);
    let watched = |value: u32| {
        let memory = word(&stream, value);
        let (watch, watched) = Watch::new();
        let owner: Owner = Arc::new((memory.clone(), watched));
        // SAFETY: the owner holds the buffer.
        let raw = unsafe { RawMemory::device(memory.address(), 4) }.owned_by(owner);
        (watch, raw)
    };
    let (first, memory) = watched(1);
    let from = Param::with_value("from", memory);
    call(&mut replay, &stream, |r| {
        let (to, from) = (to.clone(), from.clone());
        r.record_with(move || CopyOp::new(&to, &from.get()?))
    });
    let (second, memory) = watched(2);
    replay.bind(&from, memory).unwrap();
    run(&mut replay, &stream);
    stream.synchronize().unwrap();
    assert_soon(|| first.is_dropped(), "nothing uses the first");
    assert!(!second.is_dropped());
    assert_eq!(read(&stream, &to), 2);
}

/// Each kind of part, with a parameter inside, and as the flag.
#[test]
fn parameters_in_bodies_branches_and_parallel_parts() {
    let _alone = alone();
    let stream = stream();
    let mut replay = replay();
    let counting = Counting::new(&stream);
    let cells: Vec<_> = (0..6).map(|_| word(&stream, 0)).collect();
    let left = [word(&stream, 0), word(&stream, 0)];
    let (value, flag, case) = (
        Param::with_value("value", 1u32),
        Param::with_value("flag", left[0].clone()),
        word(&stream, 1),
    );
    let step = |r: &mut dyn Recorder| {
        r.while_nonzero(&flag, |r| {
            r.record(store_param(&cells[0], &value)?)?;
            r.record(add_param_to(&flag, &counting.minus)?).map(drop)
        })?;
        r.if_else_nonzero(
            &case,
            |r| r.record(store_param(&cells[1], &value)?).map(drop),
            |_| Ok(()),
        )?;
        r.switch_on(
            &case,
            &mut [&mut |_| Ok(()), &mut |r| {
                r.record(store_param(&cells[2], &value)?).map(drop)
            }],
        )?;
        r.parallel(&mut [
            &mut |r| r.record(store_param(&cells[3], &value)?).map(drop),
            &mut |r| {
                let (to, value) = (cells[4].clone(), value.clone());
                r.record_with(move || FillOp::new(&to, value.get()?))
            },
        ])
    };
    /// Adds to the word that a parameter is.
    fn add_param_to(to: &Param<Buffer<u32>>, from: &Buffer<u32>) -> Result<KernelOp> {
        // SAFETY: `add` reads and writes one word of each.
        unsafe { KernelOp::new(kernel("add"), one(), (to, from)) }
    }
    let all = || {
        cells
            .iter()
            .map(|cell| read(&stream, cell))
            .collect::<Vec<_>>()
    };
    set(&stream, &left[0], 2);
    call(&mut replay, &stream, step);
    assert_eq!(all(), [1, 1, 1, 1, 1, 0]);
    for number in 2..6 {
        cells.iter().for_each(|cell| set(&stream, cell, 0));
        set(&stream, &left[0], 0);
        set(&stream, &left[1], 3);
        replay.bind(&value, number).unwrap();
        let did = run(&mut replay, &stream);
        assert_eq!((did.updated, did.builds), (5, 0));
        let first = if number > 2 { number } else { 0 };
        assert_eq!(all(), [first, number, number, number, number, 0]);
        // The flag: the loop's, whose entry and end look at it, and the kernel's.
        let which = (number % 2) as usize;
        replay.bind(&flag, left[1 - which].clone()).unwrap();
        replay.bind(&flag, left[1].clone()).unwrap();
        set(&stream, &left[1], 3);
        set(&stream, &cells[0], 0);
        run(&mut replay, &stream);
        assert_eq!(
            (read(&stream, &cells[0]), read(&stream, &left[1])),
            (number, 0)
        );
    }
    assert_eq!((replay.counters().builds, replay.counters().twins), (1, 0));
}

#[test]
fn flags_of_all_parts_are_parameters() {
    let _alone = alone();
    let stream = stream();
    let mut replay = replay();
    let counting = Counting::new(&stream);
    let flags: Vec<_> = (0..3).map(|value| word(&stream, value)).collect();
    let cells: Vec<_> = (0..5).map(|_| word(&stream, 0)).collect();
    let flag = Param::with_value("flag", flags[0].clone());
    let until = Param::with_value("until", flags[0].clone());
    let step = |r: &mut dyn Recorder| {
        r.if_nonzero(&flag, |r| r.record(add(&cells[0], &counting.one)).map(drop))?;
        r.if_else_nonzero(
            &flag,
            |_| Ok(()),
            |r| r.record(add(&cells[1], &counting.one)).map(drop),
        )?;
        r.switch_on(
            &flag,
            &mut [&mut |_| Ok(()), &mut |_| Ok(()), &mut |r| {
                r.record(add(&cells[2], &counting.one)).map(drop)
            }],
        )?;
        r.do_while_nonzero(&until, |r| {
            r.record(add(&cells[3], &counting.one)).map(drop)
        })?;
        r.checkpoint("pause", &flag)?;
        r.record(add(&cells[4], &counting.one)).map(drop)
    };
    let outcome = replay.call(&stream, step).unwrap();
    assert_eq!(outcome.stopped().unwrap(), None);
    let mut wants = [0, 1, 0, 1, 1];
    for at in [1, 2, 0, 2, 1] {
        replay.bind(&flag, flags[at].clone()).unwrap();
        let before = replay.counters();
        let outcome = replay.run(&stream).unwrap();
        assert_eq!(outcome.stopped().unwrap().is_some(), at > 0);
        // The four parts whose flag it is.
        assert_eq!(replay.counters().updated - before.updated, 4);
        wants[0] += u32::from(at > 0);
        wants[1] += u32::from(at == 0);
        wants[2] += u32::from(at == 2);
        wants[3] += 1;
        wants[4] += u32::from(at == 0);
        let got: Vec<_> = cells.iter().map(|cell| read(&stream, cell)).collect();
        assert_eq!(got, wants, "flag {at}");
    }
    let wide = words(&stream, &[0, 0]);
    let answer = replay.bind(&flag, wide);
    assert!(
        matches!(answer, Err(Error::SizeMismatch { .. })),
        "{answer:?}"
    );
    assert_eq!(flag.get().unwrap().address(), flags[1].address());
    assert_eq!(replay.counters().builds, 1);
}

#[test]
fn parameters_reach_into_embedded_graphs() {
    let stream = stream();
    let mut replay = replay();
    let (to, beside) = (word(&stream, 0), word(&stream, 0));
    let value = Param::with_value("value", 1u32);
    let (graph, _) = Graph::record(&context(), |path| {
        path.record(store(&beside, 7))?;
        path.record(store_param(&to, &value)?)
    })
    .unwrap();
    let step = |r: &mut dyn Recorder| r.record(ChildOp::new(&graph)).map(drop);
    call(&mut replay, &stream, step);
    for number in 2..5 {
        replay.bind(&value, number).unwrap();
        assert_eq!(run(&mut replay, &stream).updated, 1);
        assert_eq!(read(&stream, &to), number);
    }
}

/// The graph was recorded when the parameter had another value.
#[test]
fn a_call_embeds_graphs_with_the_values_that_are_bound() {
    let stream = stream();
    let mut replay = replay();
    let to = word(&stream, 0);
    let value = Param::with_value("value", 1u32);
    let (graph, _) =
        Graph::record(&context(), |path| path.record(store_param(&to, &value)?)).unwrap();
    let step = |r: &mut dyn Recorder| r.record(ChildOp::new(&graph)).map(drop);
    replay.bind(&value, 2).unwrap();
    call(&mut replay, &stream, step);
    assert_eq!(read(&stream, &to), 2, "bound before the first call");
    replay.bind(&value, 3).unwrap();
    run(&mut replay, &stream);
    assert_eq!(read(&stream, &to), 3);
    call(&mut replay, &stream, step);
    assert_eq!(read(&stream, &to), 3, "a call after a run");
    replay.bind(&value, 4).unwrap();
    call(&mut replay, &stream, step);
    assert_eq!(read(&stream, &to), 4, "a call with another value");
    assert_eq!(replay.counters().builds, 1);
}

#[test]
fn replays_and_eager_steps_share_a_parameter() {
    let stream = stream();
    let mut replays = [replay(), replay()];
    let cells: Vec<_> = (0..3).map(|_| word(&stream, 0)).collect();
    let value = Param::with_value("value", 1u32);
    for (replay, to) in replays.iter_mut().zip(&cells) {
        call(replay, &stream, |r| {
            r.record(store_param(to, &value)?).map(drop)
        });
    }
    for number in 2..6 {
        replays[number as usize % 2].bind(&value, number).unwrap();
        let mut eager = Eager::new(&stream).unwrap();
        eager
            .record(store_param(&cells[2], &value).unwrap())
            .unwrap();
        for replay in &mut replays {
            assert_eq!(run(replay, &stream).updated, 1);
        }
        let got: Vec<_> = cells.iter().map(|cell| read(&stream, cell)).collect();
        assert_eq!(got, [number; 3]);
    }
}

#[test]
fn calls_and_runs_alternate_and_nothing_is_stale() {
    let stream = stream();
    let mut replay = replay();
    let cells: Vec<_> = (0..3).map(|_| word(&stream, 0)).collect();
    let value = Param::with_value("value", 0u32);
    let plain = AtomicU32::new(0);
    let step = |r: &mut dyn Recorder| {
        r.record(store_param(&cells[0], &value)?)?;
        r.record(store(&cells[1], plain.load(Ordering::Relaxed)))?;
        let (to, value) = (cells[2].clone(), value.clone());
        r.record_with(move || FillOp::new(&to, value.get()?))
    };
    call(&mut replay, &stream, step);
    let (mut number, mut seen) = (0, 0);
    // 0 binds and runs, 1 binds and calls, 2 runs, 3 calls with another plain value.
    for act in [0, 3, 0, 0, 1, 2, 3, 2, 1, 0, 1, 1, 3, 3, 0, 2, 1, 0] {
        if act < 2 {
            number += 1;
            replay.bind(&value, number).unwrap();
        }
        if act == 3 {
            plain.fetch_add(1, Ordering::Relaxed);
        }
        cells.iter().for_each(|cell| set(&stream, cell, 99));
        let did = match act {
            0 | 2 => run(&mut replay, &stream),
            _ => call(&mut replay, &stream, step),
        };
        if act % 2 == 1 {
            seen = plain.load(Ordering::Relaxed);
        }
        let updated = [2, 2, 0, 1][act as usize];
        assert_eq!(
            (did.updated, did.builds, did.twins),
            (updated, 0, 0),
            "act {act}"
        );
        let got: Vec<_> = cells.iter().map(|cell| read(&stream, cell)).collect();
        assert_eq!(got, [number, seen, number], "act {act}");
    }
    assert_eq!(replay.counters().builds, 1);
}

#[test]
fn a_run_repeats_the_last_call_whatever_its_shape() {
    let stream = stream();
    let mut replay = replay();
    let cells: Vec<_> = (0..2).map(|_| word(&stream, 0)).collect();
    let value = Param::with_value("value", 1u32);
    let shape = |which: usize| {
        let (cells, value) = (&cells, &value);
        move |r: &mut dyn Recorder| {
            for _ in 0..=which {
                r.record(store_param(&cells[which], value)?)?;
            }
            Ok(())
        }
    };
    for (number, which) in (2..).zip([0, 1, 0, 0, 1, 1]) {
        call(&mut replay, &stream, shape(which));
        cells.iter().for_each(|cell| set(&stream, cell, 0));
        replay.bind(&value, number).unwrap();
        assert_eq!(run(&mut replay, &stream).updated, 1 + which as u64);
        let mut wants = [0, 0];
        wants[which] = number;
        assert_eq!([read(&stream, &cells[0]), read(&stream, &cells[1])], wants);
    }
    assert_eq!(replay.counters().builds, 2);
}

#[test]
fn a_run_needs_a_call_that_worked() {
    let stream = stream();
    let mut replay = replay();
    let to = word(&stream, 0);
    let value = Param::with_value("value", 1u32);
    let step = |r: &mut dyn Recorder| r.record(store_param(&to, &value)?).map(drop);
    assert_not_called(replay.run(&stream));
    call(&mut replay, &stream, step);
    run(&mut replay, &stream);
    // A section for the host.
    call(&mut replay, &stream, |r| {
        step(r)?;
        r.outside(|_| Ok(()))?;
        step(r)
    });
    assert_not_called(replay.run(&stream));
    call(&mut replay, &stream, step);
    run(&mut replay, &stream);
    // A failed step.
    assert_failure(replay.call(&stream, |r| {
        step(r)?;
        Err(failure())
    }));
    assert_not_called(replay.run(&stream));
    call(&mut replay, &stream, step);
    let panics = catch_unwind(AssertUnwindSafe(|| {
        replay.call(&stream, |_| panic!("as meant"))
    }));
    assert!(panics.is_err());
    assert_not_called(replay.run(&stream));
    call(&mut replay, &stream, step);
    replay.bind(&value, 3).unwrap();
    run(&mut replay, &stream);
    assert_eq!(read(&stream, &to), 3);
    replay.reset(&context());
    assert_not_called(replay.run(&stream));
    call(&mut replay, &stream, step);
    replay.bind(&value, 4).unwrap();
    run(&mut replay, &stream);
    assert_eq!(read(&stream, &to), 4);
    // A step that records nothing.
    call(&mut replay, &stream, |_| Ok(()));
    assert_eq!(run(&mut replay, &stream).launches, 0);
}

#[test]
fn parameters_are_set_anew_after_an_eviction() {
    let stream = stream();
    let mut replay = replay_of(1);
    let (to, other) = (word(&stream, 0), word(&stream, 0));
    let value = Param::with_value("value", 1u32);
    let step = |r: &mut dyn Recorder| r.record(store_param(&to, &value)?).map(drop);
    let another = |r: &mut dyn Recorder| {
        r.record(store(&other, 1))?;
        r.record(store(&other, 2)).map(drop)
    };
    for number in 2..5 {
        call(&mut replay, &stream, step);
        replay.bind(&value, number).unwrap();
        run(&mut replay, &stream);
        assert_eq!(read(&stream, &to), number);
        call(&mut replay, &stream, another);
        assert_eq!(replay.executables(), 1);
        let answer = replay.bind(&value, number + 50);
        assert!(
            matches!(answer, Err(Error::UnusedParam { .. })),
            "{answer:?}"
        );
        assert_eq!(value.get().unwrap(), number);
    }
}

#[test]
fn a_parameter_without_a_value_fails_the_call_by_its_name() {
    let stream = stream();
    let mut replay = replay();
    let to = word(&stream, 0);
    let (value, memory) = (
        Param::<u32>::new("value"),
        Param::<Buffer<u32>>::new("memory"),
    );
    #[track_caller]
    fn assert_unbound<T: std::fmt::Debug>(answer: Result<T>, of: &str) {
        let error = answer.unwrap_err();
        assert!(
            matches!(&error, Error::Unbound { name } if &**name == of),
            "{error:?}"
        );
        assert!(error.to_string().contains(of), "{error}");
    }
    assert_unbound(value.get(), "value");
    let steps: [Step<'_>; 4] = [
        &|r| r.record(store_param(&to, &value)?).map(drop),
        &|r| {
            let (to, value) = (to.clone(), value.clone());
            r.record_with(move || FillOp::new(&to, value.get()?))
        },
        &|r| r.while_nonzero(&memory, |_| Ok(())),
        &|r| r.checkpoint("stop", &memory),
    ];
    for (number, step) in steps.into_iter().enumerate() {
        let of = if number < 2 { "value" } else { "memory" };
        assert_unbound(replay.call(&stream, step), of);
        assert_unbound(step(&mut Eager::new(&stream).unwrap()), of);
        assert_unbound(Graph::record(&context(), |path| step(path)), of);
        assert_not_called(replay.run(&stream));
    }
    assert_eq!(replay.counters().launches, 0);
    replay.bind(&value, 3).unwrap();
    call(&mut replay, &stream, steps[0]);
    assert_eq!(read(&stream, &to), 3);
    let unused = Param::<u32>::new("unused");
    let answer = replay.bind(&unused, 1);
    assert!(
        matches!(&answer, Err(Error::UnusedParam { name }) if &**name == "unused"),
        "{answer:?}"
    );
    assert_unbound(unused.get(), "unused");
}

#[test]
fn a_value_that_does_not_fit_is_refused_when_it_is_bound() {
    let stream = stream();
    let mut replay = replay();
    let (to, from) = (words(&stream, &[0; 4]), words(&stream, &[1, 2, 3, 4]));
    let (n, mode) = (
        Param::with_value("n", 1u32),
        Param::with_value("mode", 0u32),
    );
    let step = |r: &mut dyn Recorder| {
        let (whole, from, n) = (to.clone(), from.clone(), n.clone());
        r.record_with(move || {
            let n = n.get()? as usize;
            CopyOp::new(whole.slice(..n)?, from.slice(..n)?)
        })?;
        let (to, mode) = (to.clone(), mode.clone());
        r.record_with(move || match mode.get()? {
            7 => Err(failure()),
            8 => panic!("as meant"),
            mode => FillOp::new(&to.slice(3..)?, mode),
        })
    };
    call(&mut replay, &stream, step);
    for round in 0..3u32 {
        let answer = replay.bind(&n, 5);
        assert!(answer.is_err());
        assert_eq!(n.get().unwrap(), 1 + round % 2);
        assert_failure(replay.bind(&mode, 7));
        assert_eq!(mode.get().unwrap(), round);
        let panics = catch_unwind(AssertUnwindSafe(|| replay.bind(&mode, 8)));
        assert!(panics.is_err());
        assert_eq!(mode.get().unwrap(), round, "a check that panics has failed");
        assert_eq!(run(&mut replay, &stream).launches, 1);
        // What was not bound is found out when it is run.
        let launches = replay.counters().launches;
        let old = mode.set(7).unwrap();
        assert_failure(replay.run(&stream));
        mode.set(8);
        let panics = catch_unwind(AssertUnwindSafe(|| replay.run(&stream).map(drop)));
        assert!(panics.is_err());
        assert_eq!(replay.counters().launches, launches);
        mode.set(old);
        run(&mut replay, &stream);
        replay.bind(&n, 1 + (round + 1) % 2).unwrap();
        replay.bind(&mode, round + 1).unwrap();
        to.copy_from_host(&stream, &[0; 4]).unwrap();
        if round == 1 {
            call(&mut replay, &stream, step);
        } else {
            assert_eq!(run(&mut replay, &stream).updated, 2);
        }
        let second = [2, 0][round as usize % 2];
        assert_eq!(to.to_host(&stream).unwrap(), [1, second, 0, round + 1]);
    }
    assert_eq!(replay.counters().builds, 1);
}

/// The first operation changes and the second panics: the first is not noted twice.
#[test]
fn a_panic_between_two_closures_leaves_nothing_behind() {
    let stream = stream();
    let mut replay = replay();
    let cells: Vec<_> = (0..3).map(|_| word(&stream, 0)).collect();
    let value = Param::with_value("value", 0u32);
    let step = |r: &mut dyn Recorder| {
        for to in &cells {
            let (to, value, is_last) = (to.clone(), value.clone(), to.address());
            let last = cells[2].address();
            r.record_with(move || {
                let value = value.get()?;
                assert!(value < 100 || is_last != last, "as meant");
                FillOp::new(&to, value)
            })?;
        }
        Ok(())
    };
    call(&mut replay, &stream, step);
    let launches = replay.counters().launches;
    for value_now in [100, 101] {
        value.set(value_now);
        let panics = catch_unwind(AssertUnwindSafe(|| replay.run(&stream).map(drop)));
        assert!(panics.is_err());
    }
    assert_eq!(replay.counters().launches, launches);
    value.set(5);
    // A call first: it finds nothing of the runs that panicked.
    assert_eq!(call(&mut replay, &stream, step).updated, 3);
    let got: Vec<_> = cells.iter().map(|cell| read(&stream, cell)).collect();
    assert_eq!(got, [5; 3]);
    value.set(100);
    assert!(catch_unwind(AssertUnwindSafe(|| replay.run(&stream).map(drop))).is_err());
    value.set(6);
    assert_eq!(run(&mut replay, &stream).updated, 3);
    let got: Vec<_> = cells.iter().map(|cell| read(&stream, cell)).collect();
    assert_eq!(got, [6; 3]);
}

#[test]
fn closures_may_look_at_other_parameters_than_before() {
    let stream = stream();
    let mut replay = replay();
    let cells: Vec<_> = (0..2).map(|_| word(&stream, 0)).collect();
    let which = Param::with_value("which", 0u32);
    let values = [Param::with_value("a", 10u32), Param::with_value("b", 20u32)];
    let fails = Param::with_value("fails", false);
    let step = |r: &mut dyn Recorder| {
        let (to, which, values) = (cells[0].clone(), which.clone(), values.clone());
        r.record_with(move || FillOp::new(&to, values[which.get()? as usize].get()?))?;
        let (to, fails) = (cells[1].clone(), fails.clone());
        r.record_with(move || match fails.get()? {
            true => Err(failure()),
            false => FillOp::new(&to, 1u32),
        })
    };
    call(&mut replay, &stream, step);
    let mut number = 100;
    for round in 0..4 {
        let (now, other) = (1 - round % 2, round % 2);
        // Every second time the run fails first.
        which.set(now as u32);
        if round > 1 {
            fails.set(true);
            assert_failure(replay.run(&stream));
            fails.set(false);
        }
        assert_eq!(run(&mut replay, &stream).updated, 1);
        assert_eq!(read(&stream, &cells[0]), values[now].get().unwrap());
        number += 1;
        replay.bind(&values[now], number).unwrap();
        assert_eq!(run(&mut replay, &stream).updated, 1, "round {round}");
        assert_eq!(read(&stream, &cells[0]), number);
        // Nothing looks at the other one now.
        values[other].set(number + 50);
        assert_eq!(run(&mut replay, &stream).updated, 0);
        assert_eq!(read(&stream, &cells[0]), number);
    }
}

/// What a run changes in every way, on a driver that fails.
struct Refused {
    stream: Arc<CudaStream>,
    cells: Vec<Buffer<u32>>,
    flags: [Buffer<u32>; 2],
    value: Param<u32>,
    to: Param<Buffer<u32>>,
    flag: Param<Buffer<u32>>,
}

impl Refused {
    fn new() -> Refused {
        let stream = stream();
        let cells: Vec<_> = (0..6).map(|_| word(&stream, 0)).collect();
        let flags = [word(&stream, 0), word(&stream, 1)];
        Refused {
            value: Param::with_value("value", 0),
            to: Param::with_value("to", cells[0].clone()),
            flag: Param::with_value("flag", flags[0].clone()),
            cells,
            flags,
            stream,
        }
    }

    fn step(&self, r: &mut dyn Recorder) -> Result<()> {
        r.record(store_of!(&self.to, &self.value)?)?;
        r.record(store_param(&self.cells[2], &self.value)?)?;
        let (to, value) = (self.cells[3].clone(), self.value.clone());
        r.record_with(move || FillOp::new(&to, value.get()?))?;
        r.if_else_nonzero(
            &self.flag,
            |r| {
                r.record(store_param(&self.cells[4], &self.value)?)
                    .map(drop)
            },
            |r| {
                r.record(store_param(&self.cells[5], &self.value)?)
                    .map(drop)
            },
        )
    }

    /// Changes some of the parameters. Returns what a run then leaves in the cells.
    fn change(&self, which: u32, number: u32) {
        if which & 1 != 0 {
            self.value.set(number);
        }
        let at = (number % 2) as usize;
        if which & 2 != 0 {
            self.to.set(self.cells[at].clone());
        }
        if which & 4 != 0 {
            self.flag.set(self.flags[at].clone());
        }
    }

    fn clear(&self) {
        for cell in &self.cells {
            set(&self.stream, cell, 9999);
        }
    }

    fn read(&self) -> Vec<u32> {
        let read = |cell| read(&self.stream, cell);
        self.cells.iter().map(read).collect()
    }

    fn wants(&self) -> Vec<u32> {
        let value = self.value.get().unwrap();
        let mut wants = vec![9999; 6];
        let to = self.to.get().unwrap().address();
        wants[usize::from(to == self.cells[1].address())] = value;
        wants[2] = value;
        wants[3] = value;
        let is_set = self.flag.get().unwrap().address() == self.flags[1].address();
        wants[if is_set { 4 } else { 5 }] = value;
        wants
    }
}

#[test]
fn whatever_call_of_a_run_the_driver_refuses_the_next_is_right() {
    let _alone = alone();
    let refused = Refused::new();
    for which in 1..8 {
        // Whether it is known what the nodes have.
        for is_known in [false, true] {
            for nth in 0.. {
                let case = format!("{which} changes, {is_known}, call {nth} fails");
                let mut replay = replay();
                refused.change(7, 10);
                call(&mut replay, &refused.stream, |r| refused.step(r));
                if is_known {
                    refused.change(1, 11);
                    run(&mut replay, &refused.stream);
                    refused.change(7, 12);
                    run(&mut replay, &refused.stream);
                }
                refused.clear();
                refused.stream.synchronize().unwrap();
                let before = replay.counters().launches;
                refused.change(which, 21);
                let (answer, fired) =
                    with_failing_call(nth, || replay.run(&refused.stream).map(drop));
                let got = refused.read();
                match &answer {
                    Ok(()) => assert_eq!(got, refused.wants(), "{case}"),
                    Err(_) => assert_eq!(got, [9999; 6], "{case}: something ran"),
                }
                let launches = replay.counters().launches - before;
                assert_eq!(launches, u64::from(answer.is_ok()), "{case}");
                for (number, by_run) in (30..).zip([nth % 2 == 0, true, false, true]) {
                    if number > 30 {
                        refused.change(number % 8, number);
                    }
                    refused.clear();
                    let again = match by_run {
                        true => replay.run(&refused.stream).map(drop),
                        false => replay.call(&refused.stream, |r| refused.step(r)).map(drop),
                    };
                    match again {
                        Ok(()) => {}
                        // The executable could not be restored.
                        Err(Error::NotCalled { .. }) if answer.is_err() && number == 30 => {
                            call(&mut replay, &refused.stream, |r| refused.step(r));
                        }
                        Err(error) => panic!("{case}, then {number}: {error}"),
                    }
                    assert_eq!(refused.read(), refused.wants(), "{case}, then {number}");
                }
                if !fired {
                    break;
                }
                assert!(nth < 200, "the calls have no end");
            }
        }
    }
}

#[test]
fn a_replay_goes_on_in_another_thread() {
    let stream = stream();
    let mut replay = replay();
    let to = word(&stream, 0);
    let value = Param::with_value("value", 1u32);
    call(&mut replay, &stream, |r| {
        r.record(store_param(&to, &value)?).map(drop)
    });
    replay.bind(&value, 2).unwrap();
    run(&mut replay, &stream);
    let (theirs, their_value) = (stream.clone(), value.clone());
    let mut replay = std::thread::spawn(move || {
        for number in 3..6 {
            replay.bind(&their_value, number).unwrap();
            replay.run(&theirs).unwrap();
        }
        replay
    })
    .join()
    .unwrap();
    assert_eq!(read(&stream, &to), 5);
    replay.bind(&value, 6).unwrap();
    assert_eq!(run(&mut replay, &stream).updated, 1);
    assert_eq!(read(&stream, &to), 6);
}

#[test]
fn a_value_that_another_thread_sets_is_never_torn_and_never_lost() {
    let stream = stream();
    let mut replay = replay();
    let (to, made) = (word(&stream, 0), word(&stream, 0));
    let wide = wide();
    let make = |number: u32| Wide {
        a: u64::from(number) * 3,
        b: number * 5,
        c: u64::from(number) * 2,
    };
    let value = Param::with_value("value", make(0));
    let plain = Param::with_value("plain", 0u32);
    let slow = Arc::new(AtomicBool::new(false));
    let step = |r: &mut dyn Recorder| {
        // SAFETY: `wide` writes one word.
        r.record(unsafe { KernelOp::new(&wide, one(), (&to, &value)) }?)?;
        let (made, plain, slow) = (made.clone(), plain.clone(), slow.clone());
        r.record_with(move || {
            let value = plain.get()?;
            if slow.load(Ordering::Relaxed) {
                std::thread::yield_now();
            }
            FillOp::new(&made, value)
        })
    };
    call(&mut replay, &stream, step);
    slow.store(true, Ordering::Relaxed);
    for round in 0..10u32 {
        let (value, plain) = (value.clone(), plain.clone());
        let setter = std::thread::spawn(move || {
            for number in 0..200 {
                value.set(make(number + round));
                plain.set(number + round);
                std::thread::yield_now();
            }
        });
        let mut turn = 0;
        while !setter.is_finished() {
            match turn % 7 {
                6 => drop(replay.call(&stream, step).unwrap()),
                _ => drop(replay.run(&stream).unwrap()),
            }
            let got = read(&stream, &to);
            assert_eq!(got % 10, 0, "a torn value");
            turn += 1;
        }
        setter.join().unwrap();
        run(&mut replay, &stream);
        let last = 199 + round;
        assert_eq!(
            (read(&stream, &to), read(&stream, &made)),
            (10 * last, last)
        );
    }
    assert_eq!(replay.counters().builds, 1);
}

/// A value is set while the closure that looks at it makes its operation.
#[test]
fn a_value_set_while_a_run_makes_operations_is_used_by_the_next() {
    let stream = stream();
    let mut replay = replay();
    let to = word(&stream, 0);
    let value = Param::with_value("value", 1u32);
    let interferes = Arc::new(AtomicBool::new(false));
    call(&mut replay, &stream, |r| {
        let (to, value, interferes) = (to.clone(), value.clone(), interferes.clone());
        r.record_with(move || {
            let now = value.get()?;
            if interferes.swap(false, Ordering::Relaxed) {
                value.set(now + 1);
            }
            FillOp::new(&to, now)
        })
    });
    value.set(10);
    interferes.store(true, Ordering::Relaxed);
    run(&mut replay, &stream);
    assert_eq!(read(&stream, &to), 10);
    run(&mut replay, &stream);
    assert_eq!(read(&stream, &to), 11);
}

/// Executables of earlier shapes do not say what a value may be.
#[test]
fn values_are_checked_against_the_last_call() {
    let stream = stream();
    let mut replay = replay();
    let small = [words(&stream, &[0; 2]), words(&stream, &[1; 2])];
    let large = [words(&stream, &[0; 4]), words(&stream, &[1; 4])];
    let n = Param::with_value("n", 2u32);
    let step = |r: &mut dyn Recorder, [to, from]: &[Buffer<u32>; 2], extra: usize| {
        for _ in 0..extra {
            r.record(store(to, 0))?;
        }
        let (to, from, n) = (to.clone(), from.clone(), n.clone());
        r.record_with(move || {
            let n = n.get()? as usize;
            CopyOp::new(to.slice(..n)?, from.slice(..n)?)
        })
    };
    call(&mut replay, &stream, |r| step(r, &small, 0));
    call(&mut replay, &stream, |r| step(r, &large, 1));
    replay.bind(&n, 4).unwrap();
    run(&mut replay, &stream);
    assert_eq!(large[0].to_host(&stream).unwrap(), [1; 4]);
}

#[test]
fn buffers_that_are_bound_keep_to_the_bound_on_memory() {
    let stream = stream();
    let options = ReplayOptions {
        bytes: 4096,
        ..ReplayOptions::default()
    };
    let mut replay = Replay::with_options(&context(), options).unwrap();
    let to = Param::with_value("to", words(&stream, &[0; 16]));
    let other = words(&stream, &[0; 16]);
    call(&mut replay, &stream, |r| {
        r.record(store(&other, 1))?;
        r.record(store(&other, 2)).map(drop)
    });
    call(&mut replay, &stream, |r| {
        r.record(store_of!(&to, 3u32)?).map(drop)
    });
    assert_eq!(replay.executables(), 2);
    replay.bind(&to, words(&stream, &[0; 1024])).unwrap();
    run(&mut replay, &stream);
    assert_eq!(replay.executables(), 1, "{} bytes", replay.bytes());
    run(&mut replay, &stream);
}

#[test]
fn a_kernel_reads_the_buffer_that_is_bound() {
    let stream = stream();
    let mut replay = replay();
    let to = word(&stream, 0);
    let from = Param::with_value("from", word(&stream, 1));
    call(&mut replay, &stream, |r| {
        r.record(add_param(&to, &from)?).map(drop)
    });
    for number in [10, 100] {
        replay.bind(&from, word(&stream, number)).unwrap();
        assert_eq!(run(&mut replay, &stream).updated, 1);
    }
    assert_eq!(read(&stream, &to), 111);
}

/// An operation that was made before its parameter got another value.
#[test]
fn a_call_sees_bound_values_in_operations_that_were_made_before() {
    let stream = stream();
    let mut replay = replay();
    let to = word(&stream, 0);
    let value = Param::with_value("value", 1u32);
    let op = store_param(&to, &value).unwrap();
    let step = |r: &mut dyn Recorder| r.record(op.clone()).map(drop);
    call(&mut replay, &stream, step);
    replay.bind(&value, 2).unwrap();
    run(&mut replay, &stream);
    assert_eq!(read(&stream, &to), 2);
    call(&mut replay, &stream, step);
    assert_eq!(read(&stream, &to), 2);
}
