//! The rarer operations, and what each kind of node keeps when it is updated.

use std::ffi::c_void;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use cuda_graph::cudarc::driver::sys::{CUgraphNodeParams, CUgraphNodeType};
use cuda_graph::cudarc::driver::{result, sys};
use cuda_graph::{
    AnyOp, BatchOp, ChildOp, CopyOp, FillOp, Graph, HostOp, KernelOp, MemoryOperation, NodeKind,
    PinnedBuffer, RawMemory, RawOp, RecordEventOp, WaitCondition,
};

use crate::fixture::{
    Watch, Watched, assert_soon, context, kernel, number_bytes, one, store, stream, words,
};
use crate::resource::Seen;

fn graph() -> Graph {
    Graph::new(&context()).unwrap()
}

/// Memory may be an argument by value too: it is kept as it is by reference, by the operation and
/// by those made of it.
#[test]
fn arguments_by_value_are_kept() {
    let stream = stream();
    let (device, pinned) = (
        words(&stream, &[0]),
        PinnedBuffer::from_slice(&context(), &[0u32]).unwrap(),
    );
    let seen = [device.owner(), pinned.owner()].map(|owner| Seen::of_owner(&owner));
    // SAFETY: the word is there as long as its owner.
    let raw = unsafe { RawMemory::device(device.address(), 4) }.owned_by(device.owner());
    let (reads, address) = (device.clone(), device.address());
    // SAFETY: `store` writes one word, which each has.
    let ops = unsafe {
        [
            KernelOp::new(kernel("store"), one(), (device, 3u32)),
            KernelOp::new(kernel("store"), one(), (pinned.clone(), 4u32)),
            KernelOp::new(kernel("store"), one(), (raw, 5u32)),
        ]
    }
    .map(Result::unwrap);
    assert_eq!(number_bytes(&ops[0], 0).unwrap(), address.to_ne_bytes());
    assert_eq!(ops[0].kernel(), kernel("store"));
    let graph = graph();
    let mut after = None;
    for op in ops.into_iter().map(KernelOp::cooperative) {
        assert_eq!(op.kernel().name(), "store");
        after = Some(graph.add(op, after).unwrap());
    }
    let mut exec = graph.instantiate().unwrap();
    exec.launch(&stream).unwrap();
    assert_eq!(reads.to_host(&stream).unwrap(), [5]);
    assert_eq!(pinned.to_vec(), [4]);
    drop((reads, pinned));
    for seen in &seen {
        seen.assert_alive("the graph is there");
    }
    drop((graph, exec));
    for seen in &seen {
        seen.assert_dropped("with the graph");
    }
}

#[test]
fn batches_write_and_wait() {
    let stream = stream();
    let graph = graph();
    // The driver takes no stream-ordered memory here: an H200 refuses the launch.
    // SAFETY: 16 bytes that stay until the end of the test, and that nothing else uses.
    let (address, flag, long) = unsafe {
        let address = result::malloc_sync(16).unwrap();
        result::memset_d8_async(address, 0, 16, stream.cu_stream()).unwrap();
        let part = |offset, bytes| RawMemory::device(address + offset, bytes);
        (address, part(0, 4), part(8, 8))
    };
    let write = BatchOp::new()
        .write32(&flag, 7)
        .unwrap()
        .write64(&long, 1 << 33)
        .unwrap();
    let write = graph.add(write, ()).unwrap();
    let wait = BatchOp::new()
        .wait32(&flag, 7, WaitCondition::Equal)
        .unwrap();
    graph.add(wait, write).unwrap();
    let operations = graph.op(write).unwrap().operations();
    assert_eq!(
        operations[0],
        MemoryOperation::Write32 { address, value: 7 }
    );
    // SAFETY: the graph outlives the handle, and one thread uses both.
    let seen = unsafe { Graph::from_raw_borrowed(graph.raw().unwrap(), &context()) };
    let AnyOp::Batch(read) = seen.any_op(seen.nodes().unwrap()[0]).unwrap() else {
        panic!("a batch is a batch");
    };
    assert_eq!(read.operations(), operations);
    graph.instantiate().unwrap().launch(&stream).unwrap();
    stream.synchronize().unwrap();
    let mut words = [9u32; 4];
    // SAFETY: as above; the launch has ended.
    unsafe {
        result::memcpy_dtoh_sync(&mut words, address).unwrap();
        result::free_sync(address).unwrap();
    }
    assert_eq!(words, [7, 0, 0, 2]);
}

unsafe extern "C" fn count(data: *mut c_void) {
    // SAFETY: the test gives a counter.
    unsafe { &*data.cast::<AtomicU32>() }.fetch_add(1, Ordering::SeqCst);
}

#[test]
fn host_functions_are_replaced_and_panics_end_there() {
    let stream = stream();
    let counter = Arc::new(AtomicU32::new(0));
    let graph = graph();
    // SAFETY: `count` takes the counter, which the owner keeps.
    let op = unsafe {
        HostOp::raw(
            count,
            Arc::as_ptr(&counter).cast_mut().cast(),
            Some(counter.clone()),
        )
    };
    let node = graph.add(op, ()).unwrap();
    let mut exec = graph.instantiate().unwrap();
    exec.launch(&stream).unwrap();
    stream.synchronize().unwrap();
    assert_eq!(counter.load(Ordering::SeqCst), 1);
    let other = counter.clone();
    let closure = HostOp::new(move || {
        other.fetch_add(10, Ordering::SeqCst);
        panic!("this panic is part of the test");
    });
    exec.update(node, &closure).unwrap();
    exec.launch(&stream).unwrap();
    stream.synchronize().unwrap();
    assert_eq!(counter.load(Ordering::SeqCst), 11);
    graph.update(node, closure).unwrap();
    exec.update_from(&graph).unwrap();
    exec.launch(&stream).unwrap();
    stream.synchronize().unwrap();
    assert_eq!(counter.load(Ordering::SeqCst), 21);
}

#[test]
fn copies_fills_events_and_children_are_updated_in_executables() {
    let stream = stream();
    let (a, b, c) = (
        words(&stream, &[1, 2]),
        words(&stream, &[0; 2]),
        words(&stream, &[5, 6]),
    );
    let d = words(&stream, &[0]);
    let graph = graph();
    let copy = graph.add(CopyOp::new(&b, &a).unwrap(), ()).unwrap();
    let fill = graph.add(FillOp::new(&d, 1u32).unwrap(), copy).unwrap();
    let (first, second) = (
        Arc::new(context().new_event(None).unwrap()),
        Arc::new(context().new_event(None).unwrap()),
    );
    let event = graph.add(RecordEventOp::new(&first), fill).unwrap();
    let e = words(&stream, &[0]);
    let inner = self::graph();
    inner.add(store(&e, 1), ()).unwrap();
    let child = graph.add(ChildOp::new(&inner), event).unwrap();
    let mut exec = graph.instantiate().unwrap();
    exec.update(copy, CopyOp::new(&b, &c).unwrap()).unwrap();
    exec.update(fill, FillOp::new(&d, 9u32).unwrap()).unwrap();
    exec.update(event, RecordEventOp::new(&second)).unwrap();
    let other = self::graph();
    other.add(store(&e, 2), ()).unwrap();
    exec.update(child, ChildOp::new(&other)).unwrap();
    drop((other, inner));
    exec.launch(&stream).unwrap();
    second.synchronize().unwrap();
    assert_eq!(b.to_host(&stream).unwrap(), [5, 6]);
    assert_eq!(d.to_host(&stream).unwrap(), [9]);
    assert_eq!(e.to_host(&stream).unwrap(), [2]);
}

struct Held(#[expect(dead_code, reason = "its drop is what counts")] Watched);

#[test]
fn raw_parameters_make_nodes_like_the_rest() {
    let stream = stream();
    let a = words(&stream, &[0; 2]);
    // SAFETY: plain data for which zero is a value; the kind is written before it is read.
    let mut params: CUgraphNodeParams = unsafe {
        let mut params = std::mem::MaybeUninit::<CUgraphNodeParams>::zeroed();
        (*params.as_mut_ptr()).type_ = CUgraphNodeType::CU_GRAPH_NODE_TYPE_MEMSET;
        params.assume_init()
    };
    params.__bindgen_anon_1.memset.dst = a.address();
    params.__bindgen_anon_1.memset.value = 6;
    params.__bindgen_anon_1.memset.elementSize = 4;
    params.__bindgen_anon_1.memset.width = 2;
    params.__bindgen_anon_1.memset.height = 1;
    params.__bindgen_anon_1.memset.ctx = context().cu_ctx();
    let (watch, watched) = Watch::new();
    let graph = graph();
    // SAFETY: the parameters are those of a fill of the buffer, which outlives the graph.
    let op = unsafe { RawOp::new(params, [Arc::new(Held(watched)) as cuda_graph::Owner]) };
    let node = graph.add(op, ()).unwrap();
    assert_eq!(node.id().kind(), NodeKind::Fill);
    let fill = node.id().typed::<FillOp>().unwrap();
    assert_eq!(graph.op(fill).unwrap().value(), 6u32.to_le_bytes());
    let mut exec = graph.instantiate().unwrap();
    exec.launch(&stream).unwrap();
    assert_eq!(a.to_host(&stream).unwrap(), [6, 6]);
    exec.update(fill, FillOp::new(&a, 8u32).unwrap()).unwrap();
    exec.launch(&stream).unwrap();
    assert_eq!(a.to_host(&stream).unwrap(), [8, 8]);
    assert!(!watch.is_dropped());
    graph.destroy(node).unwrap();
    // The executable does something else since its update.
    assert_soon(|| watch.is_dropped(), "the owner leaks");
}

#[test]
fn pinned_memory_is_a_source_and_a_target() {
    let stream = stream();
    let a = words(&stream, &[0; 3]);
    let from = PinnedBuffer::from_slice(&context(), &[1u32, 2, 3]).unwrap();
    let to = PinnedBuffer::<u32>::zeroed(&context(), 3).unwrap();
    let graph = graph();
    let up = graph.add(CopyOp::new(&a, &from).unwrap(), ()).unwrap();
    graph.add(CopyOp::new(&to, &a).unwrap(), up).unwrap();
    let mut exec = graph.instantiate().unwrap();
    exec.launch(&stream).unwrap();
    stream.synchronize().unwrap();
    assert_eq!(to.to_vec(), [1, 2, 3]);
    from.write(&[4, 5, 6]).unwrap();
    exec.launch(&stream).unwrap();
    stream.synchronize().unwrap();
    assert_eq!(to.to_vec(), [4, 5, 6]);
}

#[test]
fn launches_from_a_thread_that_never_called_the_driver() {
    let stream = stream();
    let a = words(&stream, &[0]);
    let graph = graph();
    graph.add(store(&a, 3), ()).unwrap();
    let mut exec = graph.instantiate().unwrap();
    std::thread::scope(|scope| {
        scope.spawn(|| exec.launch(&stream).unwrap());
    });
    assert_eq!(a.to_host(&stream).unwrap(), [3]);
    // Where the null stream is meant, the context must be right.
    let null = context().default_stream();
    std::thread::scope(|scope| {
        scope.spawn(move || exec.launch(&null).unwrap());
    });
    context().default_stream().synchronize().unwrap();
}

#[test]
fn host_functions_may_not_call_the_driver() {
    let stream = stream();
    let answer = Arc::new(AtomicU32::new(0));
    let told = answer.clone();
    let graph = graph();
    let ask = HostOp::new(move || {
        let mut stream = std::ptr::null_mut();
        // SAFETY: the place for the answer is there.
        let status = unsafe { sys::cuStreamCreate(&mut stream, 0) };
        told.store(status as u32, Ordering::SeqCst);
    });
    graph.add(ask, ()).unwrap();
    graph.instantiate().unwrap().launch(&stream).unwrap();
    stream.synchronize().unwrap();
    let refused = sys::CUresult::CUDA_ERROR_NOT_PERMITTED as u32;
    assert_eq!(answer.load(Ordering::SeqCst), refused);
}
