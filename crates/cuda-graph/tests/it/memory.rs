//! Memory: values and bytes, what is lent, and what captures and running work mean for it.

use std::any::Any;
use std::sync::{Arc, mpsc};
use std::time::Duration;

use bytemuck::{AnyBitPattern, NoUninit};
use cuda_graph::cudarc::driver::CudaSlice;
use cuda_graph::testing::{settle, without_ordered_frees};
use cuda_graph::{
    AnyOp, Buffer, Capture, CopyOp, Eager, Error, FillOp, Flag, Graph, HostOp, NodeKind, Operation,
    Path, PinnedBuffer, RawMemory, Recorder, Result,
};
use half::{bf16, f16};

use crate::door::Door;
use crate::fixture::{
    Watch, alone, assert_soon, context, function, in_process, one, store, stream, words,
};

fn graph() -> Graph {
    Graph::new(&context()).unwrap()
}

#[derive(Clone, Copy, Debug, PartialEq, AnyBitPattern, NoUninit)]
#[repr(C)]
struct Particle {
    at: [f32; 3],
    mass: f32,
    id: u64,
}

/// Fills the middle of a buffer with `value`, by a node of `kind`, and at once.
#[track_caller]
fn fills<T: NoUninit + AnyBitPattern + PartialEq + std::fmt::Debug>(value: T, kind: NodeKind) {
    let stream = stream();
    let buffer = Buffer::<T>::zeroed(&stream, 1000).unwrap();
    let part = buffer.slice(1..998).unwrap();
    let mut wanted = vec![T::zeroed(); 1000];
    wanted[1..998].fill(value);
    let graph = graph();
    let node = graph.add(FillOp::new(&part, value).unwrap(), ()).unwrap();
    assert_eq!(node.id().kind(), kind, "{value:?}");
    let op = graph.op(node).unwrap();
    assert_eq!(op.value(), bytemuck::bytes_of(&value));
    assert_eq!((op.size(), op.to().address()), ((997, 1), part.address()));
    assert_eq!(op.to().bytes(), part.bytes());
    assert!(op.to().is_owned());
    graph.instantiate().unwrap().launch(&stream).unwrap();
    assert_eq!(buffer.to_host(&stream).unwrap(), wanted, "{value:?}");

    let all = FillOp::new(&buffer, T::zeroed()).unwrap();
    let mut eager = Eager::new(&stream).unwrap();
    eager.record(all.clone()).unwrap();
    eager.record(FillOp::new(&part, value).unwrap()).unwrap();
    assert_eq!(buffer.to_host(&stream).unwrap(), wanted, "{value:?}");
}

#[test]
fn fills_take_values_of_the_elements_type() {
    use NodeKind::{Fill, Kernel};
    fills(0xabu8, Fill);
    fills(-2i16, Fill);
    fills(f16::from_f32(1.5), Fill);
    fills(bf16::from_f32(-1.5), Fill);
    fills(1.5f32, Fill);
    fills(0x0102_0304u32, Fill);
    fills(5u64, Kernel);
    fills(-1i64, Fill);
    fills(0x0000_0007_0000_0007u64, Fill);
    fills(1.5f64, Kernel);
    fills(0f64, Fill);
    fills([1u8, 2, 3], Kernel);
    fills([7u8; 3], Fill);
    fills([1u16, 2, 3], Kernel);
    fills([1f32, 2.0, 3.0, 4.0], Kernel);
    fills([1.5f32; 4], Fill);
    fills(
        [f16::from_f32(1.0), f16::from_f32(2.0), f16::from_f32(3.0)],
        Kernel,
    );
    fills(0x0102_0304_0506_0708_090a_0b0c_0d0e_0f10u128, Kernel);
    let mut bytes = [0u8; 255];
    (0..).zip(&mut bytes).for_each(|(i, byte)| *byte = i);
    fills(bytes, Kernel);
    let particle = Particle {
        at: [1.0, 2.0, 3.0],
        mass: 4.0,
        id: 5,
    };
    fills(particle, Kernel);
    let large = Buffer::<[u8; 257]>::zeroed(&stream(), 1).unwrap();
    let mut value = [0; 257];
    assert!(FillOp::new(&large, value).is_ok());
    value[0] = 1;
    assert!(matches!(
        FillOp::new(&large, value),
        Err(Error::FillValueSize { bytes: 257 })
    ));
}

/// More values than threads.
#[test]
fn large_fills_by_kernels_are_whole() {
    let stream = stream();
    let buffer = Buffer::<[u16; 3]>::zeroed(&stream, 400_000).unwrap();
    let graph = graph();
    graph
        .add(FillOp::new(&buffer, [1, 2, 3]).unwrap(), ())
        .unwrap();
    graph.instantiate().unwrap().launch(&stream).unwrap();
    let values = buffer.to_host(&stream).unwrap();
    assert!(values.iter().all(|value| *value == [1, 2, 3]));
}

#[test]
fn rows_are_filled_with_values_of_any_width() {
    let stream = stream();
    let buffer = Buffer::<u64>::zeroed(&stream, 20).unwrap();
    let graph = graph();
    let wide = FillOp::rows(&buffer.slice(1..).unwrap(), 5, 2, 3, 40).unwrap();
    graph.add(wide, ()).unwrap();
    graph.instantiate().unwrap().launch(&stream).unwrap();
    let mut wanted = [0; 20];
    for at in [1, 2, 6, 7, 11, 12] {
        wanted[at] = 5;
    }
    assert_eq!(buffer.to_host(&stream).unwrap(), wanted);
    for (width, height, pitch) in [(21, 1, 0), (4, 6, 32), (4, 2, 24), (usize::MAX, 1, 0)] {
        assert!(FillOp::rows(&buffer, 5, width, height, pitch).is_err());
        assert!(FillOp::rows(&buffer, 0, width, height, pitch).is_err());
    }
}

/// A node keeps its kind. One that is a kernel's from the start takes any value.
#[test]
fn fills_are_updated_within_their_kind() {
    let stream = stream();
    let buffer = Buffer::<f64>::zeroed(&stream, 3).unwrap();
    let graph = graph();
    let memset = graph.add(FillOp::new(&buffer, 0.0).unwrap(), ()).unwrap();
    let kernel = graph
        .add(
            FillOp::by_kernel(&buffer, 0.0).unwrap().label("mine"),
            memset,
        )
        .unwrap();
    assert_eq!(graph.any_op(kernel).unwrap().label_text(), Some("mine"));
    let mut exec = graph.instantiate().unwrap();
    let wide = || FillOp::new(&buffer, 1.5).unwrap();
    assert!(matches!(
        exec.update(memset, wide()),
        Err(Error::WrongKind {
            is: NodeKind::Fill,
            wanted: NodeKind::Kernel
        })
    ));
    assert!(matches!(
        graph.update(memset, wide()),
        Err(Error::WrongKind { .. })
    ));
    exec.update(kernel, wide()).unwrap();
    exec.launch(&stream).unwrap();
    assert_eq!(buffer.to_host(&stream).unwrap(), [1.5; 3]);
    exec.update(kernel, FillOp::by_kernel(&buffer, -0.0).unwrap())
        .unwrap();
    exec.launch(&stream).unwrap();
    assert_eq!(buffer.to_host(&stream).unwrap(), [0.0; 3]);
    graph.update(kernel, wide()).unwrap();
    assert_eq!(graph.op(kernel).unwrap().value(), 1.5f64.to_le_bytes());
    let any = graph.add(AnyOp::Fill(wide()), ()).unwrap();
    assert_eq!(any.id().kind(), NodeKind::Kernel);
    let Some(read) = FillOp::from_any(wide().into()) else {
        panic!("a fill is a fill");
    };
    assert_eq!(read.to().bytes(), 24);
    assert!(FillOp::from_any(store(&words(&stream, &[0]), 1).into()).is_none());
}

/// Loops and branches hold fills of either kind, and graphs hold what the kernels fill.
#[test]
fn fills_by_kernels_hold_their_memory_and_go_into_bodies() {
    let _alone = alone();
    let stream = stream();
    let buffer = Buffer::<u64>::zeroed(&stream, 3).unwrap();
    let flag = words(&stream, &[1]);
    let mut filled = Buffer::<u64>::zeroed(&stream, 3).unwrap();
    let graph = graph();
    let node = graph.add(FillOp::new(&filled, 5).unwrap(), ()).unwrap();
    let weak = Arc::downgrade(&filled.owner());
    filled = buffer.clone();
    assert!(weak.strong_count() > 0);
    graph.destroy(node).unwrap();
    settle();
    assert_soon(|| weak.strong_count() == 0, "it goes with its node");
    Path::new(&graph)
        .if_nonzero(&flag, |r| r.record(FillOp::new(&filled, 5)?).map(drop))
        .unwrap();
    graph.instantiate().unwrap().launch(&stream).unwrap();
    assert_eq!(buffer.to_host(&stream).unwrap(), [5; 3]);
}

/// Lent memory is used in place, held by graphs, and freed by its last owner.
#[test]
fn what_cudarc_owns_is_lent() {
    let stream = stream();
    let memory = Arc::new(stream.clone_htod(&[1u32, 2, 3, 4]).unwrap());
    let other = Arc::new(stream.clone_htod(&[0u32; 2]).unwrap());
    let weak = Arc::downgrade(&memory);
    let graph = graph();
    {
        let lent = Buffer::from(&memory);
        let part = lent.slice(1..3).unwrap();
        let to = Buffer::from(other.clone());
        let copy = graph.add(CopyOp::new(&to, &part).unwrap(), ()).unwrap();
        // SAFETY: `bump` adds 1 to so many words.
        let bump = unsafe { cuda_graph::KernelOp::new(function("store"), one(), (&part, 9u32)) };
        graph.add(bump.unwrap(), copy).unwrap();
    }
    let mut exec = graph.instantiate().unwrap();
    exec.launch(&stream).unwrap();
    assert_eq!(stream.clone_dtoh(&*other).unwrap(), [2, 3]);
    assert_eq!(stream.clone_dtoh(&*memory).unwrap(), [1, 9, 3, 4]);
    drop(memory);
    exec.launch(&stream).unwrap();
    assert_eq!(stream.clone_dtoh(&*other).unwrap(), [9, 3]);
    assert!(weak.strong_count() > 0);
    drop((exec, graph));
    settle();
    assert_soon(|| weak.strong_count() == 0, "it goes with the graph");
}

/// A part of what lives inside something else is held by its owner, and nothing of it is freed.
#[test]
fn what_lives_in_something_else_is_lent() {
    struct Storage(CudaSlice<f32>, #[expect(dead_code)] crate::fixture::Watched);
    let stream = stream();
    let (watch, watched) = Watch::new();
    let storage = Arc::new(Storage(stream.clone_htod(&[0f32; 4]).unwrap(), watched));
    // SAFETY: the owner keeps the storage.
    let lent = unsafe { Buffer::lent(&storage.0.slice(2..), storage.clone()) };
    let graph = graph();
    graph.add(FillOp::new(&lent, 1.5).unwrap(), ()).unwrap();
    drop(lent);
    graph.instantiate().unwrap().launch(&stream).unwrap();
    assert_eq!(stream.clone_dtoh(&storage.0).unwrap(), [0.0, 0.0, 1.5, 1.5]);
    drop(storage);
    assert!(!watch.is_dropped());
    drop(graph);
    settle();
    assert_soon(|| watch.is_dropped(), "it goes with the graph");
}

/// What cudarc tracks of memory is neither waited for nor recorded in a capture.
#[test]
fn lending_in_a_capture_leaves_it_valid() {
    // cudarc tracks memory from the second stream on.
    let (_other, stream) = (stream(), stream());
    let lent = Arc::new(stream.clone_htod(&[1u32; 4]).unwrap());
    let given = stream.clone_htod(&[1u32; 4]).unwrap();
    let gone = Arc::new(stream.clone_htod(&[1u32; 4]).unwrap());
    let (graph, ()) = Graph::capture(&stream, |c| {
        drop(Buffer::from(gone));
        c.record(FillOp::new(&Buffer::from(&lent), 2)?)?;
        c.record(FillOp::new(&Buffer::from(given), 3)?).map(drop)
    })
    .unwrap();
    assert_eq!(graph.nodes().unwrap().len(), 2);
    graph.instantiate().unwrap().launch(&stream).unwrap();
    assert_eq!(stream.clone_dtoh(&*lent).unwrap(), [2; 4]);
}

/// Takes one word that is 1, sees the branch taken, and that it is not when the word is 0.
fn branches_on(flag: &dyn Flag, clear: impl FnOnce()) {
    let stream = stream();
    let to = words(&stream, &[0]);
    let step = |r: &mut dyn Recorder| -> Result<()> {
        r.if_nonzero(flag, |r| r.record(FillOp::new(&to, 7)?).map(drop))
    };
    let graph = graph();
    step(&mut Path::new(&graph)).unwrap();
    let mut exec = graph.instantiate().unwrap();
    let mut runs = |wanted: u32| {
        to.copy_from_host(&stream, &[0]).unwrap();
        exec.launch(&stream).unwrap();
        assert_eq!(to.to_host(&stream).unwrap(), [wanted]);
        to.copy_from_host(&stream, &[0]).unwrap();
        step(&mut Eager::new(&stream).unwrap()).unwrap();
        assert_eq!(to.to_host(&stream).unwrap(), [wanted]);
    };
    runs(7);
    clear();
    runs(0);
}

#[test]
fn any_word_is_a_flag() {
    let _alone = alone();
    let stream = stream();
    let several = words(&stream, &[0, 1, 0]);
    let part = several.slice(1..2).unwrap();
    branches_on(&part, || part.copy_from_host(&stream, &[0]).unwrap());
    let lent = Buffer::from(Arc::new(stream.clone_htod(&[1i32]).unwrap()));
    branches_on(&lent, || lent.copy_from_host(&stream, &[0]).unwrap());
    let pinned = PinnedBuffer::from_slice(&context(), &[1u32]).unwrap();
    branches_on(&pinned, || pinned.write(&[0]).unwrap());
    let pinned = PinnedBuffer::from_slice(&context(), &[1i32]).unwrap();
    branches_on(&pinned, || pinned.write(&[0]).unwrap());
    let memory = words(&stream, &[1]);
    // SAFETY: the owner keeps the word.
    let raw = unsafe { RawMemory::device(memory.address(), 4) }.owned_by(memory.owner());
    branches_on(&raw, || memory.copy_from_host(&stream, &[0]).unwrap());
    assert!(matches!(
        Path::new(&graph()).if_nonzero(&several, |_| Ok(())),
        Err(Error::SizeMismatch { .. })
    ));
}

/// Memory that there would not be until the graph is launched is refused, and the capture goes on.
#[test]
fn buffers_are_not_made_or_read_in_a_capture() {
    let stream = stream();
    let buffer = words(&stream, &[1; 4]);
    let mut capture = Capture::begin(&stream).unwrap();
    for answer in [
        Buffer::<u32>::zeroed(&stream, 4).map(drop),
        Buffer::from_host(&stream, &[1u32; 4]).map(drop),
        buffer.copy_from_host(&stream, &[2; 4]),
        buffer.to_host(&stream).map(drop),
    ] {
        assert!(
            matches!(answer, Err(Error::AlreadyCapturing { begun: Some(_) })),
            "{answer:?}"
        );
    }
    // Memory of the host is no stream's.
    drop(PinnedBuffer::<u32>::zeroed(&context(), 4).unwrap());
    capture.record(FillOp::new(&buffer, 3).unwrap()).unwrap();
    let graph = capture.end().unwrap();
    assert_eq!(graph.nodes().unwrap().len(), 1);
    assert_eq!(buffer.to_host(&stream).unwrap(), [1; 4]);
}

/// Where freeing waits for the device, nobody waits for whoever frees: neither the thread that
/// drops a buffer, nor one that begins a capture meanwhile.
#[test]
fn a_buffer_that_is_dropped_waits_for_nothing() {
    let (busy, free) = (stream(), stream());
    let door = Arc::new(Door::default());
    door.close();
    let buffer = words(&busy, &[0]);
    let graph = graph();
    graph.add(door.op(), ()).unwrap();
    graph.instantiate().unwrap().launch(&busy).unwrap();
    let weak = Arc::downgrade(&buffer.owner());
    let (send, done) = mpsc::channel();
    let dropper = std::thread::spawn(move || {
        without_ordered_frees(|| drop(buffer));
        send.send(()).unwrap();
    });
    std::thread::sleep(Duration::from_millis(50));
    let (send, begun) = mpsc::channel();
    let capturer = std::thread::spawn(move || {
        Capture::begin(&free).unwrap().end().unwrap();
        send.send(()).unwrap();
    });
    let wait = Duration::from_secs(5);
    let answers = (done.recv_timeout(wait), begun.recv_timeout(wait));
    door.open();
    dropper.join().unwrap();
    capturer.join().unwrap();
    assert_eq!(answers, (Ok(()), Ok(())));
    assert_eq!(weak.strong_count(), 0);
    busy.synchronize().unwrap();
    settle();
}

/// A panic's payload that panics in turn when it is dropped, again and again.
struct Worse(u32);

impl Drop for Worse {
    fn drop(&mut self) {
        if self.0 > 0 {
            std::panic::panic_any(Worse(self.0 - 1));
        }
    }
}

#[test]
#[ignore = "run by the next, in a process of its own"]
fn a_host_function_panics_with_what_panics() {
    let stream = stream();
    let to = words(&stream, &[0]);
    let graph = graph();
    let host = graph
        .add(HostOp::new(|| std::panic::panic_any(Worse(3))), ())
        .unwrap();
    graph.add(store(&to, 7), host).unwrap();
    graph.instantiate().unwrap().launch(&stream).unwrap();
    assert_eq!(to.to_host(&stream).unwrap(), [7]);
    // An owner that panics so on the reaper's thread.
    let watched: Arc<dyn Any + Send + Sync> = Arc::new(Worse(3));
    // SAFETY: nothing runs it.
    let op = FillOp::pattern(
        unsafe { RawMemory::device(to.address(), 4) }.owned_by(watched),
        1u32,
    );
    let node = graph.add(op.unwrap(), ()).unwrap();
    let mut exec = graph.instantiate().unwrap();
    exec.launch(&stream).unwrap();
    let _ = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| graph.destroy(node)));
    drop(exec);
    settle();
}

#[test]
fn a_panic_that_panics_when_dropped_ends_in_its_host_function() {
    in_process("memory::a_host_function_panics_with_what_panics", &[]);
}
