//! Fills and copies as kernels of the library's own: the same bytes as the operations that they
//! stand for, which are compared with what the host computes, and nothing else.
//!
//! `CUDA_GRAPH_RANDOM=n` runs n times as many.

use std::sync::Arc;

use cuda_graph::bytemuck::NoUninit;
use cuda_graph::cudarc::driver::{CudaSlice, CudaStream, result, sys};
use cuda_graph::testing::{lowered, slots};
use cuda_graph::{
    AnyOp, Buffer, CopyOp, FillOp, Graph, NodeKind, Path, PinnedBuffer, Pitched, RawMemory, Source,
};
use proptest::prelude::*;

use crate::fixture::{Watch, alone, assert_soon, context, store, stream, words};
use crate::random::cases;

/// The bytes of each memory of a world, and of the part that an operation of several has.
const BYTES: usize = 64 << 10;
const LANE: usize = 8 << 10;

/// Where an operation reads or writes.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Memory {
    Device,
    Pinned,
}

/// What an operation does, in a part of each memory.
#[derive(Clone, Debug)]
struct Act {
    to: Memory,
    from: From,
    /// The first bytes, there and where it reads.
    starts: (usize, usize),
    size: (usize, usize, usize),
    /// What lies between rows and between planes: bytes and rows.
    gaps: [(usize, usize); 2],
}

#[derive(Clone, Debug)]
enum From {
    /// As many bytes, beginning with this one; of a value that is no memset's if so marked.
    Value(usize, u8, bool),
    Memory(Memory),
}

/// Memory that operations read, memory that they write, and what the latter should be.
struct World {
    stream: Arc<CudaStream>,
    device: Arc<CudaSlice<u8>>,
    device_source: Buffer<u8>,
    pinned: PinnedBuffer<u8>,
    pinned_source: PinnedBuffer<u8>,
}

fn noise(count: usize, seed: usize) -> Vec<u8> {
    let byte = |i: usize| (i.wrapping_mul(2_654_435_761).wrapping_add(seed) >> 7) as u8;
    (0..count).map(byte).collect()
}

impl World {
    fn new() -> World {
        let stream = stream();
        let pinned = |seed| PinnedBuffer::from_slice(&context(), &noise(BYTES, seed)).unwrap();
        let device = stream.clone_htod(&noise(BYTES, 1)).unwrap();
        stream.synchronize().unwrap();
        World {
            device: Arc::new(device),
            device_source: Buffer::from_host(&stream, &noise(BYTES, 2)).unwrap(),
            pinned: pinned(3),
            pinned_source: pinned(4),
            stream,
        }
    }

    /// What is in the memories that are written.
    fn bytes(&self) -> [Vec<u8>; 2] {
        let device = self.stream.clone_dtoh(&*self.device).unwrap();
        self.stream.synchronize().unwrap();
        [device, self.pinned.to_vec()]
    }

    /// Runs operations side by side.
    fn run(&self, ops: impl IntoIterator<Item = AnyOp>) {
        let graph = Graph::new(&context()).unwrap();
        for op in ops {
            graph.add(op, ()).unwrap();
        }
        graph.instantiate().unwrap().launch(&self.stream).unwrap();
    }

    fn region(&self, memory: Memory, writes: bool, start: usize, bytes: usize) -> RawMemory {
        let (whole, owner) = match (memory, writes) {
            (Memory::Device, true) => {
                let buffer = Buffer::from(&self.device);
                (buffer.source(), buffer.owner())
            }
            (Memory::Device, false) => (self.device_source.source(), self.device_source.owner()),
            (Memory::Pinned, true) => (self.pinned.source(), self.pinned.owner()),
            (Memory::Pinned, false) => (self.pinned_source.source(), self.pinned_source.owner()),
        };
        let address = whole.address() + start as u64;
        // SAFETY: a part of memory that the owner keeps.
        let part = unsafe {
            match memory {
                Memory::Device => RawMemory::device(address, bytes),
                Memory::Pinned => RawMemory::host(address as *mut u8, bytes),
            }
        };
        part.owned_by(owner)
    }
}

impl Act {
    /// The bytes of a value that is filled.
    fn value(&self) -> Vec<u8> {
        match self.from {
            From::Value(1, first, _) => vec![first],
            From::Value(bytes, first, false) => vec![first; bytes],
            From::Value(bytes, first, true) => {
                (0..bytes).map(|i| first.wrapping_add(i as u8)).collect()
            }
            From::Memory(_) => Vec::new(),
        }
    }

    /// Bytes in a row.
    fn width(&self) -> usize {
        match self.from {
            From::Value(bytes, ..) => self.size.0 * bytes,
            From::Memory(_) => self.size.0,
        }
    }

    fn rows(&self, side: usize) -> Pitched {
        Pitched {
            pitch: self.width() + self.gaps[side].0,
            rows: self.size.1 + self.gaps[side].1,
            origin: (0, 0, 0),
        }
    }

    /// The bytes from the first to the last on a side.
    fn span(&self, side: usize) -> usize {
        let (_, height, depth) = self.size;
        if self.width() * height * depth == 0 {
            return 0;
        }
        let Pitched { pitch, rows, .. } = self.rows(side);
        pitch * (rows * (depth - 1) + height - 1) + self.width()
    }

    /// Whether it lies within a part of the memory that has `most` bytes.
    fn fits(&self, most: usize) -> bool {
        self.starts.0 + self.span(0) <= most && self.starts.1 + self.span(1) <= most
    }

    /// The operation, on the part from `lane` on.
    fn op(&self, world: &World, lane: usize) -> AnyOp {
        let start = lane + self.starts.0;
        let (width, height, depth) = self.size;
        let from = match self.from {
            From::Memory(from) => from,
            From::Value(bytes, ..) => {
                let value = self.value();
                // Memory of the host takes patterns alone.
                return match bytes {
                    1 => self.pattern::<1>(world, start),
                    2 => self.pattern::<2>(world, start),
                    4 => self.pattern::<4>(world, start),
                    3 => fill::<3>(world, start, &value, (width, height), self.rows(0).pitch),
                    8 => fill::<8>(world, start, &value, (width, height), self.rows(0).pitch),
                    12 => fill::<12>(world, start, &value, (width, height), self.rows(0).pitch),
                    16 => fill::<16>(world, start, &value, (width, height), self.rows(0).pitch),
                    40 => fill::<40>(world, start, &value, (width, height), self.rows(0).pitch),
                    256 => fill::<256>(world, start, &value, (width, height), self.rows(0).pitch),
                    _ => unreachable!("no other sizes are made"),
                };
            }
        };
        let to = world.region(self.to, true, start, self.span(0));
        let from = world.region(from, false, lane + self.starts.1, self.span(1));
        let size = (width, height, depth);
        let op = CopyOp::volume(to, self.rows(0), from, self.rows(1), size);
        op.unwrap().into()
    }

    fn pattern<const N: usize>(&self, world: &World, start: usize) -> AnyOp
    where
        [u8; N]: NoUninit,
    {
        let value: [u8; N] = self.value().try_into().unwrap();
        let to = world.region(self.to, true, start, self.span(0));
        let (width, height, _) = self.size;
        let op = FillOp::pattern_rows(to, value, width, height, self.rows(0).pitch);
        op.unwrap().into()
    }

    /// What it does to the bytes of what it writes.
    fn model(&self, memories: &mut [Vec<u8>; 2], lane: usize) {
        let to = &mut memories[self.to as usize];
        let value = self.value();
        let source = match self.from {
            From::Memory(Memory::Device) => noise(BYTES, 2),
            From::Memory(Memory::Pinned) => noise(BYTES, 4),
            From::Value(..) => Vec::new(),
        };
        let at = |side: usize, byte: usize, row: usize, plane: usize| {
            let rows = self.rows(side);
            byte + rows.pitch * (row + rows.rows * plane)
        };
        for plane in 0..self.size.2 {
            for row in 0..self.size.1 {
                for byte in 0..self.width() {
                    let new = match self.from {
                        From::Value(bytes, ..) => value[byte % bytes],
                        From::Memory(_) => source[lane + self.starts.1 + at(1, byte, row, plane)],
                    };
                    to[lane + self.starts.0 + at(0, byte, row, plane)] = new;
                }
            }
        }
    }
}

/// A fill of device memory with a value of whatever size.
fn fill<const N: usize>(
    world: &World,
    start: usize,
    value: &[u8],
    (width, height): (usize, usize),
    pitch: usize,
) -> AnyOp
where
    [u8; N]: NoUninit,
{
    let value: [u8; N] = value.try_into().unwrap();
    // Of whole values.
    let count = match width * height {
        0 => 0,
        _ => (pitch * (height - 1) + width * N).div_ceil(N),
    };
    let bytes = world.device.slice(start..start + count * N);
    // SAFETY: any bytes are a value; the owner holds the memory.
    let buffer = unsafe {
        let values = bytes.transmute::<[u8; N]>(count).unwrap();
        Buffer::lent(&values, Arc::new(world.device.clone()))
    };
    FillOp::rows(&buffer, value, width, height, pitch)
        .unwrap()
        .into()
}

fn act(most: usize) -> impl Strategy<Value = Act> {
    let memory = || prop_oneof![Just(Memory::Device), Just(Memory::Pinned)];
    let value = (
        prop::sample::select(vec![1usize, 2, 3, 4, 8, 12, 16, 40, 256]),
        any::<u8>(),
        any::<bool>(),
    );
    let from = prop_oneof![
        value.prop_map(|(bytes, first, differs)| From::Value(bytes, first, differs)),
        memory().prop_map(From::Memory),
    ];
    // Multiples of a word more often than not.
    let number = |most: usize| {
        (0..=most, prop::sample::select(vec![1usize, 1, 4, 8, 16]))
            .prop_map(|(number, word)| number / word * word)
    };
    let dimension = || prop_oneof![4 => Just(1usize), 3 => 2usize..9, 1 => Just(0usize)];
    let size = prop_oneof![
        3 => (number(48), dimension(), dimension()),
        2 => (number(most / 2), Just(1usize), Just(1usize)),
    ];
    let gap = || (number(64), 0usize..3);
    let whole = (
        memory(),
        from,
        (number(64), number(64)),
        size,
        [gap(), gap()],
    );
    whole
        .prop_map(|(to, from, starts, size, gaps)| {
            let mut act = Act {
                to,
                from,
                starts,
                size,
                gaps,
            };
            match act.from {
                From::Value(bytes, ..) => {
                    act.size.2 = 1;
                    if !matches!(bytes, 1 | 2 | 4) {
                        act.to = Memory::Device;
                    } else {
                        // A pattern lies at a multiple of its size.
                        act.starts.0 = act.starts.0 / bytes * bytes;
                        act.gaps[0].0 = act.gaps[0].0 / bytes * bytes;
                    }
                }
                From::Memory(Memory::Pinned) => act.to = Memory::Device,
                From::Memory(Memory::Device) => {}
            }
            act
        })
        .prop_filter("it lies in its part", move |act| act.fits(most - 300))
}

fn lower(ops: &[AnyOp], is_enabled: impl Fn(usize) -> bool) -> AnyOp {
    let op = lowered(&context(), ops, is_enabled, true);
    op.expect("it can be lowered")
        .expect("the kernel loads")
        .into()
}

proptest! {
    #![proptest_config(cases(150))]

    /// An operation, and the launch that stands for it, write the bytes that they should, and no
    /// others.
    #[test]
    fn one_is_the_same(act in act(BYTES / 2)) {
        let mut expected = World::new().bytes();
        act.model(&mut expected, 0);
        // The driver takes no copy of nothing.
        if act.span(0) > 0 {
            let world = World::new();
            world.run([act.op(&world, 0)]);
            prop_assert!(world.bytes() == expected, "the operation itself");
        }
        let world = World::new();
        let launch = lower(&[act.op(&world, 0)], |_| true);
        prop_assert_eq!(launch.kind(), NodeKind::Kernel);
        world.run([launch]);
        prop_assert!(world.bytes() == expected, "its launch");
    }

    /// Several become one launch, in which some may be disabled.
    #[test]
    fn several_are_the_same(
        acts in prop::collection::vec((act(LANE), prop::bool::weighted(0.8)), 1..8),
    ) {
        let mut expected = World::new().bytes();
        let world = World::new();
        let mut ops = Vec::new();
        for (lane, (act, is_enabled)) in acts.iter().enumerate() {
            if *is_enabled {
                act.model(&mut expected, lane * LANE);
            }
            ops.push(act.op(&world, lane * LANE));
        }
        let taken: usize = ops.iter().map(|op| slots(op).unwrap().0).sum();
        let (_, most) = slots(&ops[0]).unwrap();
        prop_assert!(taken <= most);
        world.run([lower(&ops, |index| acts[index].1)]);
        prop_assert!(world.bytes() == expected);
    }
}

fn graph() -> Graph {
    Graph::new(&context()).unwrap()
}

fn is_lowered(op: impl Into<AnyOp>) -> bool {
    lowered(&context(), &[op.into()], |_| true, false).is_some()
}

/// What a kernel cannot do, or does worse, or does otherwise, stays what it is.
#[test]
fn the_rest_is_refused() {
    let (stream, context) = (stream(), context());
    let device = Buffer::<u8>::zeroed(&stream, 3 << 20).unwrap();
    let other = Buffer::<u8>::zeroed(&stream, 3 << 20).unwrap();
    let pinned = PinnedBuffer::<u8>::zeroed(&context, 1 << 20).unwrap();
    let to = |bytes| device.slice(..bytes).unwrap();
    let from = |bytes| other.slice(..bytes).unwrap();
    let host = |start: usize, bytes| {
        // SAFETY: a part of memory that the owner keeps.
        unsafe { RawMemory::host((pinned.address() as usize + start) as *mut u8, bytes) }
            .owned_by(pinned.owner())
    };

    // Sizes.
    for (bytes, is_small) in [(1 << 20, true), ((1 << 20) + 1, false)] {
        assert_eq!(is_lowered(FillOp::new(&to(bytes), 1).unwrap()), is_small);
        assert_eq!(
            is_lowered(CopyOp::new(to(bytes), from(bytes)).unwrap()),
            is_small
        );
    }
    for (bytes, is_small) in [(64 << 10, true), ((64 << 10) + 1, false)] {
        assert_eq!(
            is_lowered(CopyOp::new(to(bytes), host(0, bytes)).unwrap()),
            is_small
        );
        let copy = CopyOp::new(host(0, bytes), to(bytes)).unwrap();
        assert_eq!(is_lowered(copy.clone()), is_small);
        assert!(lowered(&context, &[copy.into()], |_| true, true).is_some());
    }

    // Places.
    let pageable = Arc::new(vec![1u8; 64]);
    assert!(!is_lowered(CopyOp::new(to(64), &pageable).unwrap()));
    assert!(!is_lowered(CopyOp::new(host(0, 64), host(64, 64)).unwrap()));
    // SAFETY: nothing runs.
    let (unknown, beyond, wrong) = unsafe {
        (
            RawMemory::device(64, 64),
            RawMemory::device(pinned.address() + (1 << 20) - 32, 64),
            RawMemory::device(pinned.address(), 64),
        )
    };
    for memory in [&unknown, &beyond, &wrong] {
        assert!(
            !is_lowered(CopyOp::new(to(64), memory).unwrap()),
            "{memory:?}"
        );
        assert!(
            !is_lowered(FillOp::pattern(memory, 1u8).unwrap()),
            "{memory:?}"
        );
    }
    // SAFETY: as above; it is freed below, where nothing uses it.
    let managed = unsafe {
        let flags = sys::CUmemAttach_flags::CU_MEM_ATTACH_GLOBAL;
        let address = result::malloc_managed(64, flags).unwrap();
        (
            RawMemory::managed(address, 64),
            RawMemory::device(address, 64),
        )
    };
    for memory in [&managed.0, &managed.1] {
        assert!(
            !is_lowered(CopyOp::new(to(64), memory).unwrap()),
            "{memory:?}"
        );
    }
    // SAFETY: as above.
    unsafe { result::free_sync(managed.0.address()) }.unwrap();

    // Overlap, and other operations.
    let part = |start| device.slice(start..start + 64).unwrap();
    assert!(!is_lowered(CopyOp::new(part(0), part(63)).unwrap()));
    assert!(is_lowered(CopyOp::new(part(0), part(64)).unwrap()));
    assert!(!is_lowered(store(&words(&stream, &[0]), 1)));
    assert!(lowered(&context, &[], |_| true, false).is_none());
    assert!(slots(&store(&words(&stream, &[0]), 1).into()).is_none());

    // What is read of a node of other code.
    let graph = graph();
    graph.add(FillOp::new(&to(64), 1).unwrap(), ()).unwrap();
    // SAFETY: the graph outlives the handle, and one thread uses both.
    let seen = unsafe { Graph::from_raw_borrowed(graph.raw().unwrap(), &context) };
    assert!(!is_lowered(seen.any_op(seen.nodes().unwrap()[0]).unwrap()));

    // As many as there is room for.
    let fills: Vec<AnyOp> = (0..57)
        .map(|i| {
            FillOp::new(&device.slice(i..i + 1).unwrap(), i as u8)
                .unwrap()
                .into()
        })
        .collect();
    assert_eq!(slots(&fills[0]), Some((1, 56)));
    assert!(lowered(&context, &fills, |_| true, false).is_none());
    let all = lower(&fills[..56], |_| true);
    let graph = self::graph();
    graph.add(all, ()).unwrap();
    graph.instantiate().unwrap().launch(&stream).unwrap();
    let bytes: Vec<u8> = (0..56).collect();
    assert_eq!(
        device.slice(..57).unwrap().to_host(&stream).unwrap(),
        [&bytes[..], &[0]].concat()
    );
}

/// Page-locked memory of the program's own.
#[test]
fn registered_memory_is_reached() {
    let stream = stream();
    let mut values = vec![5u64; 1024];
    let start = values.as_mut_ptr();
    // SAFETY: the vector stays until it is unregistered.
    unsafe { sys::cuMemHostRegister_v2(start.cast(), 8192, 0) }
        .result()
        .unwrap();
    let device = Buffer::<u64>::zeroed(&stream, 1024).unwrap();
    // SAFETY: as above; nothing borrows it while the launch runs.
    let (whole, beyond) = unsafe { (RawMemory::host(start, 8192), RawMemory::host(start, 8193)) };
    let graph = graph();
    graph
        .add(
            lower(&[CopyOp::new(&device, whole).unwrap().into()], |_| true),
            (),
        )
        .unwrap();
    graph.instantiate().unwrap().launch(&stream).unwrap();
    assert_eq!(device.to_host(&stream).unwrap(), vec![5; 1024]);
    assert!(!is_lowered(FillOp::pattern(beyond, 1u8).unwrap()));
    // SAFETY: it was registered.
    unsafe { sys::cuMemHostUnregister(start.cast()) }
        .result()
        .unwrap();
}

/// The launch is called what the first operation is, and holds what all of them hold.
#[test]
fn a_launch_keeps_names_and_memory() {
    let stream = stream();
    let owners = [Watch::new(), Watch::new()].map(|(watch, watched)| (watch, Arc::new(watched)));
    let buffer = Buffer::<u32>::zeroed(&stream, 2).unwrap();
    let [first, second] = [0, 1].map(|index| {
        // SAFETY: a word of the buffer.
        let word = unsafe { RawMemory::device(buffer.address() + 4 * index as u64, 4) };
        let word = word.owned_by(owners[index].1.clone());
        FillOp::pattern(word, 7u32).unwrap()
    });
    let first = first.label("mine");
    let location = first.location();
    let launch = lower(&[first.into(), second.into()], |index| index == 1);
    assert_eq!(launch.label_text(), Some("mine"));
    assert_eq!(launch.location(), location);
    let watches = owners.map(|(watch, _)| watch);
    let graph = graph();
    graph.add(launch, ()).unwrap();
    let mut exec = graph.instantiate().unwrap();
    drop(graph);
    exec.launch(&stream).unwrap();
    assert_eq!(buffer.to_host(&stream).unwrap(), [0, 7]);
    assert!(watches.iter().all(|watch| !watch.is_dropped()));
    drop(exec);
    cuda_graph::testing::settle();
    assert_soon(
        || watches.iter().all(Watch::is_dropped),
        "they go with the executable",
    );
}

/// A node of an executable takes what stands for other operations, more bytes, or fewer enabled.
#[test]
fn nodes_take_other_launches() {
    let stream = stream();
    let device = Buffer::<u8>::zeroed(&stream, 1 << 18).unwrap();
    let from = PinnedBuffer::from_slice(&context(), &noise(1 << 18, 1)).unwrap();
    let part = |start, end| device.slice(start..end).unwrap();
    let fill = |value| AnyOp::from(FillOp::new(&part(0, 100), value).unwrap());
    let graph = graph();
    let node = graph.add(lower(&[fill(1)], |_| true), ()).unwrap();
    let mut exec = graph.instantiate().unwrap();
    exec.launch(&stream).unwrap();
    assert_eq!(part(0, 101).to_host(&stream).unwrap()[99..], [1, 0]);
    exec.update(node, lower(&[fill(2)], |_| false)).unwrap();
    exec.launch(&stream).unwrap();
    assert_eq!(part(0, 101).to_host(&stream).unwrap()[99..], [1, 0]);
    let copy = CopyOp::new(&device, &from).unwrap().into();
    exec.update(node, lower(&[copy], |_| true)).unwrap();
    exec.launch(&stream).unwrap();
    assert_eq!(device.to_host(&stream).unwrap(), from.to_vec());
    let many = (0..20).map(|i| FillOp::new(&part(i, i + 1), 9).unwrap().into());
    exec.update(node, lower(&many.collect::<Vec<_>>(), |index| index < 10))
        .unwrap();
    exec.launch(&stream).unwrap();
    let first = part(0, 20).to_host(&stream).unwrap();
    assert_eq!(first[..10], [9; 10]);
    assert_eq!(first[10..], from.to_vec()[10..20]);
}

#[test]
fn launches_go_into_bodies() {
    let _alone = alone();
    let stream = stream();
    let (flag, device) = (words(&stream, &[1]), words(&stream, &[0; 4]));
    let from = PinnedBuffer::from_slice(&context(), &[1u32, 2, 3, 4]).unwrap();
    let graph = graph();
    Path::new(&graph)
        .if_nonzero(&flag, |r| {
            let copy = CopyOp::new(&device, &from)?;
            r.record(lower(&[copy.into()], |_| true)).map(drop)
        })
        .unwrap();
    graph.instantiate().unwrap().launch(&stream).unwrap();
    assert_eq!(device.to_host(&stream).unwrap(), [1, 2, 3, 4]);
}
