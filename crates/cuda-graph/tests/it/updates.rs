//! What each kind of node does after its operation was replaced: in the definition, which reaches
//! no executable, and in an executable, which reaches no definition.

use std::ffi::c_void;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use cuda_graph::cudarc::driver::{CudaEvent, CudaStream, LaunchConfig};
use cuda_graph::{
    AnyOp, Buffer, ChildOp, CopyOp, Exec, FillOp, Graph, HostOp, KernelOp, PinnedBuffer,
    RecordEventOp, WaitEventOp,
};

use crate::door::Door;
use crate::fixture::{add, context, kernel, store, stream, words};

fn graph() -> Graph {
    Graph::new(&context()).unwrap()
}

/// An operation and what takes its place, each seen by the words that it writes.
struct Case {
    name: &'static str,
    old: AnyOp,
    new: AnyOp,
    old_words: [u32; 4],
    new_words: [u32; 4],
}

/// Where the operations of the cases write, and what they read.
struct Place {
    stream: Arc<CudaStream>,
    to: Buffer<u32>,
    /// Written by host functions in place of `to`.
    called: Arc<AtomicU32>,
}

impl Place {
    fn new() -> Place {
        let stream = stream();
        let to = words(&stream, &[0; 4]);
        Place {
            stream,
            to,
            called: Arc::new(AtomicU32::new(0)),
        }
    }

    /// What a launch writes.
    fn run(&self, exec: &mut Exec) -> [u32; 4] {
        self.to.copy_from_host(&self.stream, &[0; 4]).unwrap();
        self.called.store(0, Ordering::SeqCst);
        exec.launch(&self.stream).unwrap();
        self.stream.synchronize().unwrap();
        let words = self.to.to_host(&self.stream).unwrap();
        match self.called.load(Ordering::SeqCst) {
            0 => words.try_into().unwrap(),
            called => [called; 4],
        }
    }

    fn part(&self, range: std::ops::Range<usize>) -> Buffer<u32> {
        self.to.slice(range).unwrap()
    }

    fn bump(&self, blocks: u32, threads: u32, n: u32) -> KernelOp {
        let config = LaunchConfig {
            grid_dim: (blocks, 1, 1),
            block_dim: (threads, 1, 1),
            shared_mem_bytes: 0,
        };
        // SAFETY: `bump` writes `n` words at most.
        unsafe { KernelOp::new(kernel("bump"), config, (&self.to, n)) }.unwrap()
    }

    fn call(&self, value: u32) -> HostOp {
        let called = self.called.clone();
        HostOp::new(move || called.store(value, Ordering::SeqCst))
    }

    fn raw_call(&self, function: unsafe extern "C" fn(*mut c_void)) -> HostOp {
        let data = Arc::as_ptr(&self.called).cast_mut().cast();
        // SAFETY: both functions take a counter, which the owner keeps.
        unsafe { HostOp::raw(function, data, Some(self.called.clone())) }
    }

    fn child(&self, value: u32) -> ChildOp {
        let inner = graph();
        let first = inner.add(store(&self.to, value), ()).unwrap();
        inner.add(store(&self.part(1..2), value), first).unwrap();
        ChildOp::new(&inner)
    }

    fn cases(&self) -> Vec<Case> {
        let to = &self.to;
        let from = words(&self.stream, &[1, 2, 3, 4]);
        let other = words(&self.stream, &[5, 6, 7, 8]);
        let pinned = PinnedBuffer::from_slice(&context(), &[9u32, 10, 11, 12]).unwrap();
        let next = PinnedBuffer::from_slice(&context(), &[13u32, 14, 15, 16]).unwrap();
        let part = |buffer: &Buffer<u32>, range| buffer.slice(range).unwrap();
        let copy = |to: &Buffer<u32>, from: &Buffer<u32>| CopyOp::new(to, from).unwrap();
        let fill = |to: &Buffer<u32>, value: u32| FillOp::new(to, value).unwrap();
        let case = |name, old: AnyOp, old_words, new: AnyOp, new_words| Case {
            name,
            old,
            new,
            old_words,
            new_words,
        };
        vec![
            case(
                "a kernel's value",
                store(to, 1).into(),
                [1, 0, 0, 0],
                store(to, 2).into(),
                [2, 0, 0, 0],
            ),
            case(
                "a kernel's buffer",
                store(to, 1).into(),
                [1, 0, 0, 0],
                store(&self.part(2..3), 1).into(),
                [0, 0, 1, 0],
            ),
            case(
                "a kernel's grid",
                self.bump(1, 2, 4).into(),
                [1, 1, 0, 0],
                self.bump(2, 2, 4).into(),
                [1, 1, 1, 1],
            ),
            case(
                "a kernel's block",
                self.bump(1, 1, 4).into(),
                [1, 0, 0, 0],
                self.bump(1, 3, 4).into(),
                [1, 1, 1, 0],
            ),
            case(
                "a kernel's function",
                store(to, 3).into(),
                [3, 0, 0, 0],
                add(to, &other).into(),
                [5, 0, 0, 0],
            ),
            case(
                "a fill's value",
                fill(to, 1).into(),
                [1; 4],
                fill(to, 2).into(),
                [2; 4],
            ),
            case(
                "a fill's place",
                fill(&self.part(0..2), 1).into(),
                [1, 1, 0, 0],
                fill(&self.part(2..4), 1).into(),
                [0, 0, 1, 1],
            ),
            case(
                "a fill's size",
                fill(&self.part(0..1), 1).into(),
                [1, 0, 0, 0],
                fill(&self.part(0..3), 1).into(),
                [1, 1, 1, 0],
            ),
            case(
                "a copy's source",
                copy(to, &from).into(),
                [1, 2, 3, 4],
                copy(to, &other).into(),
                [5, 6, 7, 8],
            ),
            case(
                "a copy's target",
                copy(&self.part(0..2), &part(&from, 0..2)).into(),
                [1, 2, 0, 0],
                copy(&self.part(2..4), &part(&from, 0..2)).into(),
                [0, 0, 1, 2],
            ),
            case(
                "a copy's size",
                copy(&self.part(0..1), &part(&from, 0..1)).into(),
                [1, 0, 0, 0],
                copy(&self.part(0..3), &part(&from, 0..3)).into(),
                [1, 2, 3, 0],
            ),
            case(
                "a copy's pinned source",
                CopyOp::new(to, &pinned).unwrap().into(),
                [9, 10, 11, 12],
                CopyOp::new(to, &next).unwrap().into(),
                [13, 14, 15, 16],
            ),
            case(
                "a closure",
                self.call(1).into(),
                [1; 4],
                self.call(2).into(),
                [2; 4],
            ),
            case(
                "a C function",
                self.raw_call(one).into(),
                [1; 4],
                self.raw_call(two).into(),
                [2; 4],
            ),
            case(
                "a C function for a closure",
                self.call(3).into(),
                [3; 4],
                self.raw_call(two).into(),
                [2; 4],
            ),
        ]
    }
}

unsafe extern "C" fn one(data: *mut c_void) {
    // SAFETY: the test gives a counter.
    unsafe { &*data.cast::<AtomicU32>() }.store(1, Ordering::SeqCst);
}

unsafe extern "C" fn two(data: *mut c_void) {
    // SAFETY: the test gives a counter.
    unsafe { &*data.cast::<AtomicU32>() }.store(2, Ordering::SeqCst);
}

#[test]
fn in_a_definition_it_counts_for_later_executables() {
    let place = Place::new();
    for case in place.cases() {
        let graph = graph();
        let node = graph.add(case.old.clone(), ()).unwrap();
        let mut before = graph.instantiate().unwrap();
        let clone = graph.try_clone().unwrap();
        graph.update(node, case.new.clone()).unwrap();
        let mut after = graph.instantiate().unwrap();
        let read = graph.op(node).unwrap();
        assert_eq!(
            format!("{read:?}"),
            format!("{:?}", case.new),
            "{}",
            case.name
        );
        assert_eq!(place.run(&mut before), case.old_words, "{}", case.name);
        assert_eq!(place.run(&mut after), case.new_words, "{}", case.name);
        let mut cloned = clone.instantiate().unwrap();
        assert_eq!(place.run(&mut cloned), case.old_words, "{}", case.name);
        // The executable follows when it is told to, and back.
        before.update_from(&graph).unwrap();
        assert_eq!(place.run(&mut before), case.new_words, "{}", case.name);
        before.update_from(&clone).unwrap();
        assert_eq!(place.run(&mut before), case.old_words, "{}", case.name);
    }
}

#[test]
fn in_an_executable_it_counts_there_alone() {
    let place = Place::new();
    for case in place.cases() {
        let graph = graph();
        let node = graph.add(case.old.clone(), ()).unwrap();
        let mut exec = graph.instantiate().unwrap();
        let mut other = graph.instantiate().unwrap();
        exec.update(node, &case.new).unwrap();
        assert_eq!(place.run(&mut exec), case.new_words, "{}", case.name);
        assert_eq!(place.run(&mut other), case.old_words, "{}", case.name);
        let read = graph.op(node).unwrap();
        assert_eq!(
            format!("{read:?}"),
            format!("{:?}", case.old),
            "{}",
            case.name
        );
        let mut fresh = graph.instantiate().unwrap();
        assert_eq!(place.run(&mut fresh), case.old_words, "{}", case.name);
        exec.update(node, &case.old).unwrap();
        assert_eq!(place.run(&mut exec), case.old_words, "{}", case.name);
    }
}

#[test]
fn an_executable_runs_another_child() {
    let place = Place::new();
    let graph = graph();
    let node = graph.add(place.child(1), ()).unwrap();
    let mut exec = graph.instantiate().unwrap();
    exec.update(node, place.child(2)).unwrap();
    assert_eq!(place.run(&mut exec), [2, 2, 0, 0]);
    let mut fresh = graph.instantiate().unwrap();
    assert_eq!(place.run(&mut fresh), [1, 1, 0, 0]);
    exec.update_from(&graph).unwrap();
    assert_eq!(place.run(&mut exec), [1, 1, 0, 0]);
}

fn event() -> Arc<CudaEvent> {
    Arc::new(context().new_event(None).unwrap())
}

/// A graph that waits at a door and then records an event.
fn recording(door: &Arc<Door>, event: &Arc<CudaEvent>) -> (Graph, cuda_graph::Node<RecordEventOp>) {
    let graph = graph();
    let first = graph.add(door.op(), ()).unwrap();
    let node = graph.add(RecordEventOp::new(event), first).unwrap();
    (graph, node)
}

/// Whether a launch records `pending` and leaves `done` alone.
fn records(exec: &mut Exec, door: &Door, pending: &CudaEvent, done: &CudaEvent) -> bool {
    let stream = stream();
    door.close();
    exec.launch(&stream).unwrap();
    door.until_someone_waits();
    let told = (pending.is_complete(), done.is_complete());
    door.open();
    stream.synchronize().unwrap();
    told == (false, true)
}

#[test]
fn another_event_is_recorded() {
    let door = Arc::new(Door::default());
    let (old, new) = (event(), event());
    let (graph, node) = recording(&door, &old);
    let mut exec = graph.instantiate().unwrap();
    assert!(records(&mut exec, &door, &old, &new));
    exec.update(node, RecordEventOp::new(&new)).unwrap();
    assert!(records(&mut exec, &door, &new, &old));
    let mut other = graph.instantiate().unwrap();
    assert!(records(&mut other, &door, &old, &new));
    graph.update(node, RecordEventOp::new(&new)).unwrap();
    assert!(records(&mut other, &door, &old, &new));
    other.update_from(&graph).unwrap();
    assert!(records(&mut other, &door, &new, &old));
}

#[test]
fn another_event_is_waited_for() {
    let (old, new) = (event(), event());
    let graph = graph();
    let node = graph.add(WaitEventOp::new(&old), ()).unwrap();
    // Whether a launch waits for an event that a launch of another graph has not recorded yet.
    let waits = |exec: &mut Exec, event: &Arc<CudaEvent>| {
        let door = Arc::new(Door::default());
        let mut producer = recording(&door, event).0.instantiate().unwrap();
        let (first, second) = (stream(), stream());
        door.close();
        producer.launch(&first).unwrap();
        door.until_someone_waits();
        exec.launch(&second).unwrap();
        let over = second.record_event(None).unwrap();
        std::thread::sleep(std::time::Duration::from_millis(20));
        let early = over.is_complete();
        door.open();
        first.synchronize().unwrap();
        second.synchronize().unwrap();
        assert!(over.is_complete());
        !early
    };
    let mut exec = graph.instantiate().unwrap();
    assert!(waits(&mut exec, &old) && !waits(&mut exec, &new));
    exec.update(node, WaitEventOp::new(&new)).unwrap();
    assert!(waits(&mut exec, &new) && !waits(&mut exec, &old));
    graph.update(node, WaitEventOp::new(&new)).unwrap();
    let mut other = graph.instantiate().unwrap();
    assert!(waits(&mut other, &new) && !waits(&mut other, &old));
}

#[test]
fn one_executable_serves_many_calls_with_other_buffers_and_sizes() {
    let stream = stream();
    let graph = graph();
    let bump = |to: &Buffer<u32>| {
        let n = to.len() as u32;
        let config = LaunchConfig {
            grid_dim: (n.div_ceil(32), 1, 1),
            block_dim: (32, 1, 1),
            shared_mem_bytes: 0,
        };
        // SAFETY: `bump` writes `n` words.
        unsafe { KernelOp::new(kernel("bump"), config, (to, n)) }.unwrap()
    };
    let small = words(&stream, &[0; 3]);
    let first = graph.add(bump(&small), ()).unwrap();
    let second = graph.add(bump(&small), first).unwrap();
    let mut exec = graph.instantiate().unwrap();
    for round in 0..50u32 {
        let len = 1 + (round as usize * 37) % 500;
        let to = words(&stream, &vec![round; len]);
        exec.update(first, bump(&to)).unwrap();
        exec.update(second, bump(&to)).unwrap();
        exec.launch(&stream).unwrap();
        assert_eq!(to.to_host(&stream).unwrap(), vec![round + 2; len]);
    }
    assert_eq!(small.to_host(&stream).unwrap(), [0; 3]);
}
