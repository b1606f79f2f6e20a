//! One step called from several places, with other arrays, counters and values each time.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, OnceLock};

use cuda_graph::cudarc::driver::sys::{self, CUevent_flags};
use cuda_graph::cudarc::driver::{CudaContext, CudaModule, CudaStream, DeviceRepr, LaunchConfig};
use cuda_graph::cudarc::nvrtc::Ptx;
use cuda_graph::{
    Buffer, ChildOp, CopyOp, Error, FillOp, Graph, HostOp, Kernel, KernelOp, PinnedBuffer,
    RawMemory, RecordEventOp, Recorder, Replay, Result,
};

use super::{
    Counting, assert_balanced, assert_failure, call, counted, eagerly, failure, read, replay, set,
    word,
};
use crate::fixture::{
    add, alone, assert_soon, context, in_process, kernel, one, store, stream, words,
};

/// `span(to, pair)`: `to[0..5]` become the grid, the block, the bytes of dynamic shared memory, and
/// the two numbers of the pair. `other_span` writes their sum to `to[5]`.
const PTX: &str = "
.version 7.0
.target sm_70
.address_size 64

.visible .entry span(.param .u64 to, .param .align 4 .b8 pair[8])
{
    .reg .b32 %v;
    .reg .b64 %p;
    ld.param.u64 %p, [to];
    mov.u32 %v, %nctaid.x;
    st.global.u32 [%p], %v;
    mov.u32 %v, %ntid.x;
    st.global.u32 [%p+4], %v;
    mov.u32 %v, %dynamic_smem_size;
    st.global.u32 [%p+8], %v;
    ld.param.u32 %v, [pair];
    st.global.u32 [%p+12], %v;
    ld.param.u32 %v, [pair+4];
    st.global.u32 [%p+16], %v;
    ret;
}

.visible .entry other_span(.param .u64 to, .param .align 4 .b8 pair[8])
{
    .reg .b32 %v, %w;
    .reg .b64 %p;
    ld.param.u64 %p, [to];
    ld.param.u32 %v, [pair];
    ld.param.u32 %w, [pair+4];
    add.u32 %v, %v, %w;
    st.global.u32 [%p+20], %v;
    ret;
}
";

fn own_kernel(name: &str) -> Kernel {
    static MODULE: OnceLock<Arc<CudaModule>> = OnceLock::new();
    let load = || context().load_module(Ptx::from_src(PTX)).unwrap();
    let function = MODULE.get_or_init(load).load_function(name).unwrap();
    Kernel::new(&function).unwrap()
}

/// A struct that a kernel takes by value.
#[derive(Clone, Copy, Debug)]
#[repr(C)]
struct Pair(u32, u32);

// SAFETY: two numbers of 32 bits, as the kernel has them.
unsafe impl DeviceRepr for Pair {}

/// Adds one to each of the first `n` words, by a grid that is just large enough.
fn bump(to: &Buffer<u32>, n: u32) -> KernelOp {
    let config = LaunchConfig {
        grid_dim: (n.div_ceil(32), 1, 1),
        block_dim: (32, 1, 1),
        shared_mem_bytes: 0,
    };
    // SAFETY: `bump` writes `n` words, and the callers' buffers have as many.
    unsafe { KernelOp::new(kernel("bump"), config, (to, n)) }.unwrap()
}

/// Two kernels and a copy: `to` becomes `from + 2`, and so does `from`.
fn two_and_a_copy(r: &mut dyn Recorder, to: &Buffer<u32>, from: &Buffer<u32>) -> Result<()> {
    let n = from.len() as u32;
    r.record(bump(from, n))?;
    r.record(bump(from, n))?;
    r.record(CopyOp::new(to, from)?).map(drop)
}

#[test]
fn other_arrays_after_the_first_call_are_those_worked_on() {
    let stream = stream();
    let mut replay = replay();
    let arrays: Vec<_> = (0..4).map(|_| words(&stream, &[0; 40])).collect();
    let results: Vec<_> = (0..4).map(|_| words(&stream, &[0; 40])).collect();
    let mut expected = [0; 4];
    for (turn, at) in [0, 1, 2, 3, 1, 1, 0].into_iter().enumerate() {
        let did = match turn % 2 {
            0 => call(&mut replay, &stream, |r| {
                two_and_a_copy(r, &results[at], &arrays[at])
            }),
            // Another place in the program.
            _ => call(&mut replay, &stream, |r| {
                let (to, from) = (&results[at], &arrays[at]);
                r.record(bump(from, 40))?;
                r.record(bump(from, 40))?;
                r.record(CopyOp::new(to, from)?).map(drop)
            }),
        };
        expected[at] += 2;
        for (which, expected) in expected.into_iter().enumerate() {
            assert_eq!(arrays[which].to_host(&stream).unwrap(), [expected; 40]);
            assert_eq!(results[which].to_host(&stream).unwrap(), [expected; 40]);
        }
        assert_eq!(did.builds, u64::from(turn == 0), "call {turn}");
        assert_eq!((did.launches, did.compared), (1, 3), "call {turn}");
        // The fourth call's arrays again, and the fifth's after them.
        let updates = if turn == 0 || turn == 5 { 0 } else { 3 };
        assert!(did.updated <= updates, "call {turn}: {did:?}");
    }
    assert_eq!(replay.nodes(), 3);
    assert_balanced(&replay);
}

#[test]
fn arrays_from_several_places_make_one_executable() {
    let stream = stream();
    let mut replay = replay();
    // Kept, so that no address comes again.
    let array = |_| words(&stream, &[0; 9]);
    let arrays: Vec<_> = (0..10).map(|turn| (array(turn), array(turn))).collect();
    for turn in 0..10 {
        let (to, from) = &arrays[turn as usize];
        from.copy_from_host(&stream, &[turn; 9]).unwrap();
        let did = call(&mut replay, &stream, |r| two_and_a_copy(r, to, from));
        assert_eq!(to.to_host(&stream).unwrap(), [turn + 2; 9]);
        assert_eq!(did.updated, if turn == 0 { 0 } else { 3 });
    }
    assert_eq!(replay.executables(), 1);
    assert_eq!(replay.counters().hits, 9);
    assert_balanced(&replay);
}

#[test]
fn the_grid_follows_larger_and_smaller_arrays() {
    let stream = stream();
    let mut replay = replay();
    // Kept, so that no address comes again.
    let mut kept = Vec::new();
    for n in [4, 33, 3000, 1, 64, 3000, 31] {
        let (to, from) = (words(&stream, &vec![0; n]), words(&stream, &vec![5; n]));
        kept.push((to.clone(), from.clone()));
        call(&mut replay, &stream, |r| two_and_a_copy(r, &to, &from));
        assert_eq!(to.to_host(&stream).unwrap(), vec![7; n], "{n}");
        assert_eq!(from.to_host(&stream).unwrap(), vec![7; n], "{n}");
    }
    assert_eq!((replay.counters().builds, replay.executables()), (1, 1));
}

#[test]
fn counters_of_loops_are_swapped_without_another_executable() {
    let _alone = alone();
    let stream = stream();
    let counting = Counting::new(&stream);
    let mut replay = replay();
    let counters = [word(&stream, 0), word(&stream, 0), word(&stream, 0)];
    for (call_number, which) in [0, 1, 0, 1, 1, 2, 0, 2, 1].into_iter().enumerate() {
        let turns = word(&stream, 0);
        let (left, times) = (&counters[which], call_number as u32 % 4 + 1);
        set(&stream, left, times);
        let did = match which {
            0 => call(&mut replay, &stream, |r| counting.count(r, left, &turns)),
            1 => call(&mut replay, &stream, |r| {
                r.do_while_nonzero(left, |r| counting.turn(r, left, &turns))
            }),
            _ => call(&mut replay, &stream, |r| {
                r.do_while_nonzero(left, |r| {
                    r.record(add(&turns, &counting.one))?;
                    r.record(add(left, &counting.minus)).map(drop)
                })
            }),
        };
        assert_eq!(read(&stream, &turns), times, "call {call_number}");
        assert_eq!(read(&stream, left), 0, "call {call_number}");
        assert_eq!(did.builds, u64::from(call_number == 0), "{did:?}");
        assert_eq!((did.launches, did.host_driven), (1, 0));
    }
    assert_balanced(&replay);
}

/// Only the flag is another: the loop would end by the one before, or never.
#[test]
fn a_flag_alone_is_swapped() {
    let _alone = alone();
    let stream = stream();
    let counting = Counting::new(&stream);
    let mut replay = replay();
    let (never, counter) = (word(&stream, 0), word(&stream, 0));
    for controls in 0..2 {
        for (which, expected) in [(0, 1), (1, 4), (0, 1), (1, 4), (1, 4)] {
            set(&stream, &counter, 4);
            let turns = word(&stream, 0);
            let flag = [&never, &counter][which];
            let did = call(&mut replay, &stream, |r| {
                let body = |r: &mut dyn Recorder| counting.turn(r, &counter, &turns);
                match controls {
                    0 => r.do_while_nonzero(flag, body),
                    _ => r.while_nonzero(flag, body),
                }
            });
            let expected = if controls == 1 && which == 0 {
                0
            } else {
                expected
            };
            assert_eq!(read(&stream, &turns), expected, "{controls}, {which}");
            assert_eq!(did.launches, 1);
        }
    }
    assert_eq!(replay.counters().builds, 2, "one for each kind of loop");
}

#[test]
fn each_of_several_loops_has_its_own_counter() {
    let _alone = alone();
    let stream = stream();
    let counting = Counting::new(&stream);
    let mut replay = replay();
    let counters: Vec<_> = (0..6).map(|_| word(&stream, 0)).collect();
    let turns: Vec<_> = (0..3).map(|_| word(&stream, 0)).collect();
    let picks = [
        [0, 1, 2],
        [0, 1, 2],
        [3, 1, 2],
        [3, 4, 2],
        [3, 4, 5],
        [2, 0, 1],
        [0, 3, 5],
    ];
    for (number, pick) in picks.into_iter().enumerate() {
        let times = [number as u32 % 3 + 1, number as u32 % 2 + 2, 5];
        for which in 0..3 {
            set(&stream, &counters[pick[which]], times[which]);
            set(&stream, &turns[which], 0);
        }
        let step = |r: &mut dyn Recorder| {
            for which in 0..3 {
                counting.count(r, &counters[pick[which]], &turns[which])?;
            }
            Ok(())
        };
        let did = call(&mut replay, &stream, step);
        let got: Vec<_> = turns.iter().map(|turns| read(&stream, turns)).collect();
        assert_eq!(got, times, "call {number}");
        assert_eq!(did.builds, u64::from(number == 0), "call {number}");
    }
    // Two loops are another step.
    let two = |r: &mut dyn Recorder| {
        counting.count(r, &counters[0], &turns[0])?;
        counting.count(r, &counters[1], &turns[1])
    };
    for number in 0..3 {
        set(&stream, &counters[0], 2);
        set(&stream, &counters[1], 1);
        let did = call(&mut replay, &stream, two);
        assert_eq!(did.builds, u64::from(number == 0));
    }
    assert_eq!(replay.executables(), 2);
    assert_balanced(&replay);
}

#[test]
fn a_loop_in_a_loop_has_its_own_counter() {
    let _alone = alone();
    let stream = stream();
    let counting = Counting::new(&stream);
    let mut replay = replay();
    for number in 0..5 {
        let (outer, inner) = (word(&stream, number + 1), word(&stream, 0));
        let (turns, three) = (word(&stream, 0), word(&stream, 3));
        let did = call(&mut replay, &stream, |r| {
            r.while_nonzero(&outer, |r| {
                r.record(CopyOp::new(&inner, &three)?)?;
                counting.count(r, &inner, &turns)?;
                r.while_nonzero(&inner, |_| Err(failure())).unwrap_err();
                r.record(add(&outer, &counting.minus)).map(drop)
            })
        });
        assert_eq!(read(&stream, &turns), 3 * (number + 1));
        assert_eq!(did.builds, u64::from(number == 0), "call {number}: {did:?}");
    }
    assert_balanced(&replay);
}

/// Calls a step three times, in a context that others do not use.
fn calls_in(context: &Arc<CudaContext>, replay: &mut Replay) {
    let stream = context.new_stream().unwrap();
    for value in 0..3 {
        let (flag, from) = (word(&stream, 1), words(&stream, &[0; 5]));
        let to = words(&stream, &[9; 5]);
        let step = |r: &mut dyn Recorder| {
            r.while_nonzero(&flag, |r| {
                r.record(FillOp::new(&from, value)?)?;
                r.record(FillOp::new(&flag, 0)?).map(drop)
            })?;
            r.record(CopyOp::new(&to, &from)?).map(drop)
        };
        call(replay, &stream, step);
        assert_eq!(to.to_host(&stream).unwrap(), [value; 5]);
    }
    stream.synchronize().unwrap();
}

/// Whether the device's primary context is there.
fn has_context() -> bool {
    let (mut flags, mut active) = (0, 0);
    // SAFETY: both are written.
    let answer = unsafe { sys::cuDevicePrimaryCtxGetState(0, &mut flags, &mut active) };
    answer.result().unwrap();
    active != 0
}

#[test]
#[ignore = "run by the next test, in a process of its own"]
fn contexts_come_and_go() {
    cuda_graph::device(0).unwrap();
    let first = CudaContext::new(0).unwrap();
    let mut replay = Replay::new(&first).unwrap();
    calls_in(&first, &mut replay);
    assert_eq!((replay.executables(), replay.counters().builds), (1, 1));
    // Another handle of the context.
    drop(first);
    let second = CudaContext::new(0).unwrap();
    replay.reset(&second);
    assert_eq!((replay.executables(), replay.bytes()), (0, 0));
    assert_eq!(replay.nodes(), 0);
    calls_in(&second, &mut replay);
    assert_eq!((replay.executables(), replay.counters().builds), (1, 2));
    // Another life of it: neither the replay nor the library keeps the one that is over.
    drop((replay, second));
    assert_soon(|| !has_context(), "something keeps the context");
    let third = CudaContext::new(0).unwrap();
    let mut replay = Replay::new(&third).unwrap();
    calls_in(&third, &mut replay);
    assert_eq!((replay.executables(), replay.counters().builds), (1, 1));
}

#[test]
fn a_replay_goes_on_in_a_context_that_was_made_again() {
    in_process("replay::sites::contexts_come_and_go", &[]);
}

#[test]
fn what_is_reset_is_built_again() {
    let stream = stream();
    let mut replay = replay();
    let to = word(&stream, 0);
    for round in 1..4 {
        for value in 0..3 {
            call(&mut replay, &stream, |r| {
                r.record(store(&to, value)).map(drop)
            });
            assert_eq!(read(&stream, &to), value);
        }
        assert_eq!(replay.counters().builds, round);
        replay.reset(&context());
        assert_eq!((replay.executables(), replay.bytes()), (0, 0));
    }
}

#[test]
fn nothing_is_filled_and_copied() {
    let _alone = alone();
    let stream = stream();
    let mut replay = replay();
    let flag = word(&stream, 1);
    for (number, n) in [0, 0, 7, 0, 7, 3, 0].into_iter().enumerate() {
        let (from, to) = (words(&stream, &vec![0; n]), words(&stream, &vec![0; n]));
        let inside = words(&stream, &vec![0; n]);
        set(&stream, &flag, 1);
        let step = |r: &mut dyn Recorder| {
            r.record(FillOp::new(&from, 4)?)?;
            r.record(CopyOp::new(&to, &from)?)?;
            r.while_nonzero(&flag, |r| {
                r.record(CopyOp::new(&inside, &from)?)?;
                r.record(FillOp::new(&flag, 0)?).map(drop)
            })
        };
        let did = call(&mut replay, &stream, step);
        assert_eq!(to.to_host(&stream).unwrap(), vec![4; n], "{number}");
        assert_eq!(inside.to_host(&stream).unwrap(), vec![4; n], "{number}");
        assert_eq!(read(&stream, &flag), 0);
        // One executable for nothing, one for something.
        assert_eq!(
            did.builds,
            u64::from(number == 0 || number == 2),
            "{number}"
        );
    }
    assert_eq!(replay.executables(), 2);
    assert_balanced(&replay);
}

#[test]
fn an_empty_grid_is_an_error_that_changes_nothing() {
    let stream = stream();
    let mut replay = replay();
    let to = words(&stream, &[0; 8]);
    // On the first call, and on a later one.
    for n in [0, 8, 0, 0, 8] {
        let before = (replay.executables(), replay.counters().builds);
        let answer = replay.call(&stream, |r| r.record(bump(&to, n)).map(drop));
        assert_eq!(answer.is_ok(), n > 0, "{answer:?}");
        if n == 0 {
            assert_eq!((replay.executables(), replay.counters().builds), before);
        }
    }
    assert_eq!(to.to_host(&stream).unwrap(), [2; 8]);
    assert_eq!((replay.counters().builds, replay.executables()), (1, 1));
}

#[test]
fn a_step_that_records_nothing_launches_nothing() {
    let stream = stream();
    let mut replay = replay();
    let to = word(&stream, 0);
    for number in 0..3 {
        let did = call(&mut replay, &stream, |_| Ok(()));
        assert_eq!((did.calls, did.launches, did.builds), (1, 0, 0));
        assert_eq!(replay.nodes(), 0);
        let did = call(&mut replay, &stream, |r| r.record(store(&to, 5)).map(drop));
        assert_eq!((did.launches, did.builds), (1, u64::from(number == 0)));
        assert_eq!(replay.nodes(), 1);
    }
    assert_eq!(read(&stream, &to), 5);
    assert_balanced(&replay);
}

#[test]
fn loops_and_branches_of_nothing_are_replayed() {
    let _alone = alone();
    let stream = stream();
    let mut replay = replay();
    let zeros = [word(&stream, 0), word(&stream, 0)];
    let to = word(&stream, 0);
    for number in 0..4 {
        let zero = &zeros[number % 2];
        let did = call(&mut replay, &stream, |r| {
            r.while_nonzero(zero, |_| Ok(()))?;
            r.if_else_nonzero(zero, |_| Ok(()), |r| r.record(store(&to, 8)).map(drop))?;
            r.parallel(&mut [])?;
            r.parallel(&mut [&mut |_| Ok(()), &mut |_| Ok(())])?;
            r.switch_on(zero, &mut [&mut |_| Ok(()), &mut |_| Ok(())])
        });
        assert_eq!(did.builds, u64::from(number == 0));
        assert_eq!(read(&stream, &to), 8);
    }
}

#[test]
fn memory_of_the_host_is_a_flag_an_argument_and_a_copys_side() {
    let _alone = alone();
    let stream = stream();
    let minus = word(&stream, u32::MAX);
    let mut replay = replay();
    for number in 0..5u32 {
        let times = number % 3 + 1;
        let flag = PinnedBuffer::from_slice(&context(), &[times]).unwrap();
        let pinned = PinnedBuffer::from_slice(&context(), &[0, number]).unwrap();
        let back = PinnedBuffer::<u32>::zeroed(&context(), 3).unwrap();
        let values = Arc::new(vec![number, 10, 20]);
        let (device, copied) = (words(&stream, &[0; 3]), words(&stream, &[0; 2]));
        let step = |r: &mut dyn Recorder| {
            r.record(CopyOp::new(&device, &values)?)?;
            r.do_while_nonzero(&flag, |r| {
                // SAFETY: `bump` adds to one word of memory that the device reaches.
                let op = unsafe { KernelOp::new(kernel("bump"), one(), (&pinned, 1u32)) }?;
                r.record(op)?;
                // SAFETY: `add` reads and writes a word of each.
                let op = unsafe { KernelOp::new(kernel("add"), one(), (&flag, &minus)) }?;
                r.record(op).map(drop)
            })?;
            r.record(CopyOp::new(&copied, &pinned)?)?;
            r.record(CopyOp::new(&back, &device)?).map(drop)
        };
        let did = call(&mut replay, &stream, step);
        // The values are held by the executable alone from here on.
        drop(values);
        stream.synchronize().unwrap();
        assert_eq!(pinned.to_vec(), [times, number], "call {number}");
        assert_eq!(back.to_vec(), [number, 10, 20], "call {number}");
        assert_eq!(copied.to_host(&stream).unwrap(), [times, number]);
        assert_eq!(flag.to_vec(), [0]);
        assert_eq!(did.builds, u64::from(number == 0), "call {number}");
    }
    assert_eq!(replay.executables(), 1);
}

/// A loop's flag goes from memory of the device to memory of the host and back.
#[test]
fn a_flag_may_move_between_device_and_host() {
    let _alone = alone();
    let stream = stream();
    let minus = word(&stream, u32::MAX);
    let mut replay = replay();
    let (device, turns) = (word(&stream, 0), word(&stream, 0));
    let pinned = PinnedBuffer::from_slice(&context(), &[0u32]).unwrap();
    let one_word = word(&stream, 1);
    for number in 0..4 {
        set(&stream, &device, 3);
        pinned.write(&[2]).unwrap();
        set(&stream, &turns, 0);
        let did = call(&mut replay, &stream, |r| {
            let mut body = |r: &mut dyn Recorder| {
                r.record(add(&turns, &one_word))?;
                let address = match number % 2 {
                    0 => device.address(),
                    _ => pinned.address(),
                };
                // SAFETY: both are one word, and outlive the launch.
                let flag = unsafe { RawMemory::device(address, 4) };
                // SAFETY: `add` reads and writes a word of each.
                let op = unsafe { KernelOp::new(kernel("add"), one(), (flag, &minus)) };
                r.record(op?).map(drop)
            };
            match number % 2 {
                0 => r.do_while_nonzero(&device, &mut body),
                _ => r.do_while_nonzero(&pinned, &mut body),
            }
        });
        stream.synchronize().unwrap();
        assert_eq!(read(&stream, &turns), 3 - number % 2);
        assert_eq!(did.builds, u64::from(number == 0));
    }
}

/// What a call would change, if it did not fail.
fn step_that_fails_at(
    r: &mut dyn Recorder,
    buffers: &[Buffer<u32>; 3],
    value: u32,
    fails_at: usize,
    how: fn() -> Result<()>,
) -> Result<()> {
    let [a, b, flag] = buffers;
    for at in 0..4 {
        if at == fails_at {
            how()?;
        }
        match at {
            0 => drop(r.record(store(a, value))?),
            1 => r.if_nonzero(flag, |r| {
                r.record(store(b, value))?;
                if fails_at == 10 {
                    how()?;
                }
                r.record(FillOp::new(flag, 0)?).map(drop)
            })?,
            2 => r.parallel(&mut [&mut |r| r.record(bump(b, 1)).map(drop), &mut |_| {
                if fails_at == 11 { how() } else { Ok(()) }
            }])?,
            _ => drop(r.record(CopyOp::new(a, b)?)?),
        }
    }
    Ok(())
}

#[test]
fn a_call_that_fails_or_panics_might_not_have_been() {
    let _alone = alone();
    let stream = stream();
    let ways: [fn() -> Result<()>; 2] = [
        || Err(failure()),
        || panic!("this panic is part of the test"),
    ];
    let new = || {
        [
            words(&stream, &[1, 1]),
            words(&stream, &[1, 1]),
            word(&stream, 1),
        ]
    };
    for how in ways {
        for fails_at in [0, 1, 2, 3, 10, 11] {
            let mut replay = replay();
            let fail = |replay: &mut Replay, buffers: &[Buffer<u32>; 3]| {
                let before = (replay.executables(), replay.bytes());
                let call = AssertUnwindSafe(|| {
                    replay.call(&stream, |r| {
                        step_that_fails_at(r, buffers, 77, fails_at, how)
                    })
                });
                match catch_unwind(call) {
                    Ok(answer) => assert_failure(answer),
                    Err(panicked) => drop(panicked),
                }
                assert_eq!((replay.executables(), replay.bytes()), before);
                for buffer in buffers {
                    let values = buffer.to_host(&stream).unwrap();
                    assert!(!values.contains(&77), "what failed ran: {values:?}");
                }
            };
            fail(&mut replay, &new());
            assert_eq!((replay.counters().launches, replay.executables()), (0, 0));
            let kept = new();
            for number in 0..4 {
                set(&stream, &kept[2], 1);
                let did = call(&mut replay, &stream, |r| {
                    step_that_fails_at(r, &kept, 5, 99, || Ok(()))
                });
                assert_eq!(did.builds, u64::from(number == 0), "{fails_at}");
                // The failed calls changed nothing that would have to be changed back.
                assert_eq!(did.updated, 0, "{fails_at}");
                assert_eq!(kept[0].to_host(&stream).unwrap(), [6, 1]);
                let others = new();
                fail(&mut replay, &others);
                fail(&mut replay, &others);
            }
            assert_balanced(&replay);
        }
    }
}

#[test]
fn what_a_loop_recorded_before_it_failed_is_not_there() {
    let _alone = alone();
    let stream = stream();
    let mut replay = replay();
    let (flag, a, b) = (word(&stream, 1), word(&stream, 0), word(&stream, 0));
    let step = |r: &mut dyn Recorder, fails: bool, value: u32| {
        r.record(store(&a, value))?;
        let looped = r.if_nonzero(&flag, |r| {
            r.record(store(&a, 1000))?;
            r.if_nonzero(&flag, |r| r.record(store(&b, 1000)).map(drop))?;
            r.record(add(&a, &flag))?;
            match fails {
                true => Err(failure()),
                false => Ok(()),
            }
        });
        assert_eq!(looped.is_err(), fails);
        r.record(store(&b, value)).map(drop)
    };
    // Whichever comes first, each is an executable.
    for (number, fails) in [true, true, false, true, false, true]
        .into_iter()
        .enumerate()
    {
        let value = number as u32;
        let did = call(&mut replay, &stream, |r| step(r, fails, value));
        let got = [read(&stream, &a), read(&stream, &b)];
        let expected = if fails { [value, value] } else { [1001, value] };
        assert_eq!(got, expected, "call {number}");
        assert_eq!(
            did.builds,
            u64::from(number == 0 || number == 2),
            "call {number}"
        );
        assert_eq!(replay.nodes() == 2, fails, "call {number}");
        let (graph, ()) = Graph::record(&context(), |r| step(r, fails, value)).unwrap();
        assert_eq!(graph.nodes().unwrap().len() == 2, fails);
    }
    assert_balanced(&replay);
}

/// A body that panicked and was caught leaves no half of a loop.
#[test]
fn a_panic_that_the_step_catches_in_a_body_fails_the_call() {
    let _alone = alone();
    let stream = stream();
    let mut replay = replay();
    let (flag, a) = (word(&stream, 1), word(&stream, 0));
    for number in 0..3 {
        let answer = replay.call(&stream, |r| {
            r.record(store(&a, 50))?;
            let body = AssertUnwindSafe(|| {
                r.if_nonzero(&flag, |r| {
                    r.record(store(&a, 60))?;
                    panic!("this panic is part of the test")
                })
            });
            let _ = catch_unwind(body);
            r.record(store(&a, 70)).map(drop)
        });
        assert!(matches!(answer, Err(Error::RecordingOver)), "{answer:?}");
        assert_eq!(read(&stream, &a), number, "nothing ran");
        let did = call(&mut replay, &stream, |r| {
            r.record(store(&a, number + 1)).map(drop)
        });
        assert_eq!(did.builds, u64::from(number == 0));
    }
}

/// Everything that a step is told.
#[derive(Clone, Debug)]
struct Told {
    scalar: u32,
    pair: (u32, u32),
    buffer: usize,
    grid: u32,
    block: u32,
    shared: u32,
    function: &'static str,
    fill: u32,
    fill_to: usize,
    fill_len: usize,
    copy_to: usize,
    copy_from: usize,
    copy_len: usize,
    rows: usize,
    host: usize,
    flag: usize,
    case: usize,
    inside: u32,
    embedded: u32,
}

const BASE: Told = Told {
    scalar: 1,
    pair: (2, 3),
    buffer: 0,
    grid: 2,
    block: 32,
    shared: 0,
    function: "span",
    fill: 7,
    fill_to: 3,
    fill_len: 4,
    copy_to: 5,
    copy_from: 6,
    copy_len: 2,
    rows: 2,
    host: 0,
    flag: 0,
    case: 0,
    inside: 11,
    embedded: 13,
};

/// Memory of steps, and what their host functions saw.
struct World {
    stream: Arc<CudaStream>,
    arrays: Vec<Buffer<u32>>,
    flags: [Buffer<u32>; 2],
    host: Vec<HostOp>,
    seen: Vec<Arc<AtomicU32>>,
}

impl World {
    fn new() -> World {
        let stream = stream();
        let seen: Vec<_> = (0..2).map(|_| Arc::new(AtomicU32::new(0))).collect();
        let host = seen.iter().map(|seen| {
            let seen = seen.clone();
            HostOp::new(move || {
                seen.fetch_add(1, Ordering::SeqCst);
            })
        });
        World {
            arrays: (0..16).map(|_| words(&stream, &[0; 8])).collect(),
            flags: [word(&stream, 1), word(&stream, 0)],
            host: host.collect(),
            seen,
            stream,
        }
    }

    fn step(&self, r: &mut dyn Recorder, told: &Told) -> Result<()> {
        let at = |array: usize| &self.arrays[array];
        r.record(store(at(10), told.scalar))?;
        let config = LaunchConfig {
            grid_dim: (told.grid, 1, 1),
            block_dim: (told.block, 1, 1),
            shared_mem_bytes: told.shared,
        };
        let pair = Pair(told.pair.0, told.pair.1);
        let arguments = (at(told.buffer), pair);
        // SAFETY: both kernels write into the 8 words.
        r.record(unsafe { KernelOp::new(own_kernel(told.function), config, arguments) }?)?;
        let to = at(told.fill_to).slice(..told.fill_len)?;
        r.record(FillOp::new(&to, told.fill)?)?;
        r.record(FillOp::by_kernel(
            &at(9).slice(..told.fill_len)?,
            told.fill,
        )?)?;
        r.record(CopyOp::new(
            &at(told.copy_to).slice(..told.copy_len)?,
            &at(told.copy_from).slice(..told.copy_len)?,
        )?)?;
        r.record(CopyOp::rows(at(8), 8, at(7), 8, 4, told.rows)?)?;
        r.record(self.host[told.host].clone())?;
        r.if_nonzero(&self.flags[told.flag], |r| {
            r.record(store(at(11), told.inside))?;
            r.switch_on(
                &self.flags[told.case],
                &mut [&mut |r| r.record(store(at(12), 21)).map(drop), &mut |r| {
                    r.record(store(at(12), 22)).map(drop)
                }],
            )
        })?;
        r.parallel(&mut [
            &mut |r| r.record(store(at(13), told.scalar)).map(drop),
            &mut |r| r.record(store(at(14), told.inside)).map(drop),
        ])?;
        let (inner, ()) = Graph::record(r.context(), |r| {
            r.record(store(at(15), told.embedded)).map(drop)
        })?;
        r.record(ChildOp::new(&inner)).map(drop)
    }

    /// Every word after `run`, which starts from the same each time.
    fn after(&self, run: impl FnOnce()) -> Vec<u32> {
        for (number, array) in self.arrays.iter().enumerate() {
            let values: Vec<_> = (0..8).map(|at| 1000 + 10 * number as u32 + at).collect();
            array.copy_from_host(&self.stream, &values).unwrap();
        }
        self.seen
            .iter()
            .for_each(|seen| seen.store(0, Ordering::SeqCst));
        run();
        self.stream.synchronize().unwrap();
        let words = self.arrays.iter();
        let mut words: Vec<_> = words
            .flat_map(|array| array.to_host(&self.stream).unwrap())
            .collect();
        words.extend(self.seen.iter().map(|seen| seen.load(Ordering::SeqCst)));
        words
    }
}

type Changed = (&'static str, fn(&mut Told), u64);

/// One thing that a step is told differently, and how many nodes that changes.
const CHANGES: [Changed; 19] = [
    ("a scalar", |told| told.scalar = 100, 2),
    ("a struct's first field", |told| told.pair.0 = 100, 1),
    ("a struct's last field", |told| told.pair.1 = 100, 1),
    ("a buffer", |told| told.buffer = 1, 1),
    ("a grid", |told| told.grid = 3, 1),
    ("a block", |told| told.block = 64, 1),
    ("shared memory", |told| told.shared = 64, 1),
    ("a function", |told| told.function = "other_span", 1),
    ("a fill's value", |told| told.fill = 8, 2),
    ("a fill's region", |told| told.fill_to = 4, 1),
    ("a fill's size", |told| told.fill_len = 5, 2),
    ("a copy's end", |told| told.copy_to = 4, 1),
    ("a copy's start", |told| told.copy_from = 2, 1),
    ("a copy's size", |told| told.copy_len = 3, 1),
    ("a host function", |told| told.host = 1, 1),
    ("a flag", |told| told.flag = 1, 1),
    ("a flag in a body", |told| told.case = 1, 1),
    ("a body", |told| told.inside = 100, 2),
    ("an embedded graph", |told| told.embedded = 100, 0),
];

#[test]
fn no_result_is_stale_whatever_one_thing_changes() {
    let _alone = alone();
    let world = World::new();
    let mut replay = replay();
    let run = |replay: &mut Replay, told: &Told| {
        let mut did = None;
        let words = world.after(|| {
            did = Some(call(replay, &world.stream, |r| world.step(r, told)));
        });
        let eager = world.after(|| eagerly(&world.stream, |r| world.step(r, told)));
        assert_eq!(words, eager, "{told:?}");
        (did.unwrap(), words)
    };
    let (did, base) = run(&mut replay, &BASE);
    assert_eq!(did.builds, 1);
    // The embedded graph is set each time: whether it is the same cannot be told.
    let (did, again) = run(&mut replay, &BASE);
    assert_eq!((did.builds, did.updated), (0, 1));
    assert_eq!(again, base);
    for (what, change, nodes) in CHANGES {
        let mut told = BASE;
        change(&mut told);
        let (did, words) = run(&mut replay, &told);
        assert_ne!(words, base, "{what} changes something");
        assert_eq!((did.builds, did.updated), (0, nodes + 1), "{what}: {did:?}");
        let (did, words) = run(&mut replay, &BASE);
        assert_eq!(words, base, "{what}, changed back");
        assert_eq!((did.builds, did.updated), (0, nodes + 1), "{what}: {did:?}");
    }
    // Rows in a plane: a driver may want another executable, and no more than one.
    let mut told = BASE;
    told.rows = 3;
    for _ in 0..3 {
        assert_ne!(run(&mut replay, &told).1, base);
        assert_eq!(run(&mut replay, &BASE).1, base);
    }
    assert!(replay.executables() <= 2);
    assert_balanced(&replay);
}

#[test]
fn the_event_that_a_call_names_is_recorded() {
    let stream = stream();
    let mut replay = replay();
    let flags = Some(CUevent_flags::CU_EVENT_DEFAULT);
    let start = stream.record_event(flags).unwrap();
    let to = word(&stream, 0);
    for number in 0..3 {
        let event = Arc::new(context().new_event(flags).unwrap());
        start.elapsed_ms(&event).unwrap_err();
        let did = call(&mut replay, &stream, |r| {
            r.record(store(&to, number))?;
            r.record(RecordEventOp::new(&event)).map(drop)
        });
        stream.synchronize().unwrap();
        start.elapsed_ms(&event).unwrap();
        assert_eq!(did.builds, u64::from(number == 0));
        assert_eq!(did.updated, if number == 0 { 0 } else { 2 });
    }
}

#[test]
fn a_copys_sides_make_the_executable() {
    let stream = stream();
    let mut replay = replay();
    let device = word(&stream, 1);
    let other = word(&stream, 2);
    let pinned = PinnedBuffer::from_slice(&context(), &[3u32]).unwrap();
    for number in 0..6 {
        let value = number + 10;
        set(&stream, &other, value);
        let did = call(&mut replay, &stream, |r| {
            let op = match number % 3 {
                0 => CopyOp::new(&device, &other)?,
                1 => CopyOp::new(&pinned, &other)?,
                _ => CopyOp::new(&device, &pinned)?,
            };
            r.record(op).map(drop)
        });
        stream.synchronize().unwrap();
        match number % 3 {
            0 => assert_eq!(read(&stream, &device), value),
            1 => assert_eq!(pinned.to_vec(), [value]),
            _ => assert_eq!(read(&stream, &device), value - 1),
        }
        assert_eq!(did.builds, u64::from(number < 3));
    }
    assert_eq!(replay.executables(), 3);
}

/// The same addresses, in memory that was freed and allocated again.
#[test]
fn values_of_the_host_are_read_when_a_call_runs() {
    let stream = stream();
    let mut replay = replay();
    let to = words(&stream, &[0; 64]);
    for value in 0..50u32 {
        let values = Arc::new(vec![value; 64]);
        call(&mut replay, &stream, |r| {
            r.record(CopyOp::new(&to, &values)?).map(drop)
        });
        drop(values);
        assert_eq!(to.to_host(&stream).unwrap(), [value; 64]);
    }
    assert_eq!(replay.counters().builds, 1);
}

#[test]
fn each_stream_has_its_turn() {
    let streams = [stream(), stream(), context().default_stream()];
    let mut replay = replay();
    let to = word(&streams[0], 0);
    streams[0].synchronize().unwrap();
    for number in 0..12 {
        let stream = &streams[number % 3];
        let did = call(&mut replay, stream, |r| r.record(bump(&to, 1)).map(drop));
        assert_eq!(did.updated, 0);
        assert_eq!(did.builds, u64::from(number == 0));
    }
    streams
        .iter()
        .for_each(|stream| stream.synchronize().unwrap());
    assert_eq!(
        read(&streams[0], &to),
        12,
        "launches of an executable take turns"
    );
}

#[test]
fn a_step_is_called_once() {
    let stream = stream();
    let mut replay = replay();
    let to = word(&stream, 0);
    for number in 0..4 {
        let mut times = 0;
        let did = call(&mut replay, &stream, |r| {
            times += 1;
            r.record(store(&to, number)).map(drop)
        });
        assert_eq!((times, did.calls), (1, 1));
    }
    let did = counted(&mut replay, |replay| {
        assert_failure(replay.call(&stream, |_| Err(failure())));
    });
    assert_eq!((did.calls, did.launches), (1, 0), "those that failed count");
}

#[test]
fn a_kernel_loaded_again_is_another_function() {
    let stream = stream();
    let mut replay = replay();
    let to = word(&stream, 0);
    for value in 0..4 {
        let module = crate::fixture::load();
        let kernel = Kernel::new(&module.load_function("store").unwrap()).unwrap();
        // SAFETY: `store` writes one word.
        let op = unsafe { KernelOp::new(kernel, one(), (&to, value)) }.unwrap();
        // What the executable holds keeps it loaded.
        drop(module);
        let did = call(&mut replay, &stream, |r| r.record(op.clone()).map(drop));
        assert_eq!(read(&stream, &to), value);
        assert_eq!(did.builds, u64::from(value == 0));
    }
}
