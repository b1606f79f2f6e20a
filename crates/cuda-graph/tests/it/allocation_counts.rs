//! Calls that are warm allocate nothing: the test binary's allocator counts, by thread.

use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;

use cuda_graph::{
    Buffer, CollectiveOp, Communicator, CopyOp, FillOp, KernelOp, Param, Ranks, Recorder,
    Reduction, Replay, Result,
};

use crate::fixture::{function, kernel, one, stream, words};

struct Counting;

thread_local! {
    static COUNT: Cell<u64> = const { Cell::new(0) };
}

// SAFETY: the system's allocator does the work.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        COUNT.set(COUNT.get() + 1);
        // SAFETY: by the caller.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, memory: *mut u8, layout: Layout) {
        // SAFETY: by the caller.
        unsafe { System.dealloc(memory, layout) }
    }

    unsafe fn realloc(&self, memory: *mut u8, layout: Layout, size: usize) -> *mut u8 {
        COUNT.set(COUNT.get() + 1);
        // SAFETY: by the caller.
        unsafe { System.realloc(memory, layout, size) }
    }
}

#[global_allocator]
static COUNTING: Counting = Counting;

/// How often this thread allocates in `run`.
fn allocations(run: impl FnOnce()) -> u64 {
    let before = COUNT.get();
    run();
    COUNT.get() - before
}

#[test]
fn what_allocates_is_counted() {
    assert_eq!(allocations(|| drop(std::hint::black_box(Box::new(1)))), 1);
    assert_eq!(allocations(|| ()), 0);
}

#[test]
fn a_call_that_changes_nothing_allocates_nothing() {
    let stream = stream();
    let (a, b) = (words(&stream, &[0; 8]), words(&stream, &[0; 8]));
    let (store, bump) = (kernel("store"), function("bump"));
    let mut replay = Replay::new(stream.context()).unwrap();
    let step = |r: &mut dyn Recorder| -> Result<()> {
        for value in 0..20 {
            // SAFETY: `store` writes one word.
            r.record(unsafe { KernelOp::new(&store, one(), (&a, value)) }?)?;
            // SAFETY: `bump` adds to as many words as it is told.
            r.record(unsafe { KernelOp::new(&bump, one(), (&a, 1u32)) }?)?;
        }
        r.record(FillOp::new(&b, 7)?)?;
        r.record(CopyOp::new(&b, &a)?)?;
        r.parallel(
            &mut [&mut |r| r.record(FillOp::new(&a, 1)?).map(drop), &mut |r| {
                r.record(FillOp::new(&b, 2)?).map(drop)
            }],
        )
    };
    for _ in 0..3 {
        replay.call(&stream, step).unwrap();
    }
    for _ in 0..10 {
        let count = allocations(|| drop(replay.call(&stream, step).unwrap()));
        assert_eq!(count, 0);
    }
    assert_eq!(
        (replay.counters().builds, replay.counters().updated),
        (1, 0)
    );
    assert_eq!(b.to_host(&stream).unwrap(), [2; 8]);
}

#[test]
fn a_call_that_goes_between_known_arguments_allocates_nothing() {
    let stream = stream();
    let buffers = [words(&stream, &[0; 8]), words(&stream, &[0; 8])];
    let store = kernel("store");
    let mut replay = Replay::new(stream.context()).unwrap();
    let step = |r: &mut dyn Recorder, to: &Buffer<u32>| -> Result<()> {
        for value in 0..20 {
            // SAFETY: `store` writes one word.
            r.record(unsafe { KernelOp::new(&store, one(), (to, value)) }?)?;
        }
        Ok(())
    };
    for number in 0..8 {
        replay
            .call(&stream, |r| step(r, &buffers[number % 2]))
            .unwrap();
    }
    let updated = replay.counters().updated;
    for number in 0..10 {
        let call = || {
            drop(
                replay
                    .call(&stream, |r| step(r, &buffers[number % 2]))
                    .unwrap(),
            )
        };
        assert_eq!(allocations(call), 0);
    }
    assert_eq!(replay.counters().updated, updated);
}

#[test]
fn binding_and_running_allocates_nothing() {
    let stream = stream();
    let buffer = words(&stream, &[0; 8]);
    let store = kernel("store");
    let value = Param::with_value("value", 0u32);
    let mut replay = Replay::new(stream.context()).unwrap();
    replay
        .call(&stream, |r| {
            for _ in 0..20 {
                // SAFETY: `store` writes one word.
                r.record(unsafe { KernelOp::new(&store, one(), (&buffer, &value)) }?)?;
            }
            Ok(())
        })
        .unwrap();
    for number in 0..3 {
        replay.bind(&value, number).unwrap();
        replay.run(&stream).unwrap();
    }
    for number in 0..10 {
        let call = || {
            replay.bind(&value, number).unwrap();
            drop(replay.run(&stream).unwrap());
        };
        assert_eq!(allocations(call), 0);
        assert_eq!(buffer.to_host(&stream).unwrap()[0], number);
    }
}

#[test]
fn launches_of_ranks_allocate_nothing() {
    let stream = stream();
    let contexts = vec![stream.context().clone(); 2];
    let communicators = Communicator::all(&contexts, &Default::default()).unwrap();
    let memory = [words(&stream, &[1; 8]), words(&stream, &[1; 8])];
    let (mut ranks, _) = Ranks::record(&communicators, |rank, path| {
        let memory = &memory[rank.rank() as usize];
        path.record(CollectiveOp::all_reduce(
            rank,
            memory,
            memory,
            Reduction::Max,
        )?)
    })
    .unwrap();
    ranks.launch().unwrap();
    ranks.wait().unwrap();
    assert_eq!(allocations(|| ranks.launch().unwrap()), 0);
    ranks.wait().unwrap();
}
