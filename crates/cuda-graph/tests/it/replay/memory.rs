//! Steps whose copies go from one kind of memory to another, which nodes of executables do not.

use cuda_graph::cudarc::driver::result;
use cuda_graph::{
    CopyOp, FillOp, InstantiateOptions, Optimize, RawMemory, Recorder, Replay, ReplayOptions,
    Result,
};

use super::{read, word};
use crate::fixture::{alone, context, stream};

#[test]
fn copies_move_between_pools_and_other_memory() {
    let _alone = alone();
    let (context, stream) = (context(), stream());
    context.bind_to_thread().expect("it is there");
    // SAFETY: it is freed when nothing uses it any more.
    let address = unsafe { result::malloc_sync(4) }.expect("there is memory");
    // SAFETY: as above.
    let plain = unsafe { RawMemory::device(address, 4) };
    let (pooled, out, flag) = (word(&stream, 5), word(&stream, 0), word(&stream, 1));
    let fill = |recorder: &mut dyn Recorder, value: u32, into_plain: bool| match into_plain {
        true => recorder.record(FillOp::pattern(&plain, value)?).map(drop),
        false => recorder.record(FillOp::pattern(&pooled, value)?).map(drop),
    };
    let copy = |recorder: &mut dyn Recorder, from_plain: bool| match from_plain {
        true => recorder.record(CopyOp::new(&out, &plain)?).map(drop),
        false => recorder.record(CopyOp::new(&out, &pooled)?).map(drop),
    };
    let step = |recorder: &mut dyn Recorder, turn: u32, in_body: bool| -> Result<()> {
        let is_plain = turn % 3 == 1;
        fill(recorder, turn, is_plain)?;
        match in_body {
            true => recorder.if_nonzero(&flag, |body| copy(body, is_plain)),
            false => copy(recorder, is_plain),
        }
    };
    for in_body in [false, true] {
        for optimize in [Optimize::NONE, Optimize::ALL] {
            let options = ReplayOptions {
                instantiate: InstantiateOptions {
                    optimize,
                    ..InstantiateOptions::default()
                },
                ..ReplayOptions::default()
            };
            let mut replay = Replay::with_options(&context, options).expect("there is a driver");
            for turn in 0..20 {
                replay
                    .call(&stream, |recorder| step(recorder, turn, in_body))
                    .expect("each kind of memory has an executable of its own, or a kernel");
                assert_eq!(read(&stream, &out), turn, "{in_body}");
            }
            let counters = replay.counters();
            assert!(counters.builds <= 4, "{counters:?}");
        }
    }
    stream.synchronize().expect("it runs");
    // SAFETY: all replays are gone, and what they launched has run.
    unsafe { result::free_sync(address) }.expect("it is there");
}
