//! Arguments of kernels: of every size and alignment, few and many, through copies of their
//! operation.

use std::alloc::{Layout, alloc_zeroed, dealloc};
use std::ffi::c_void;
use std::ptr;
use std::sync::{Arc, Barrier};

use cuda_graph::cudarc::driver::{DeviceRepr, sys};
use cuda_graph::cudarc::nvrtc::Ptx;
use cuda_graph::testing::with_driver_version;
use cuda_graph::{Arguments, Buffer, Error, Graph, Kernel, KernelOp, LaunchAttribute};

use crate::fixture::{PTX, context, kernel, number_bytes, one, stream, words};
use crate::resource::Seen;

/// `spread(to, a, b, c, d, e, f, g, h)`: the arguments after the first, as words of eight bytes.
const SPREAD: &str = "
.version 7.0
.target sm_70
.address_size 64

.visible .entry spread(
    .param .u64 to, .param .u8 a, .param .u16 b, .param .u32 c, .param .u64 d,
    .param .align 16 .b8 e[32], .param .u8 f, .param .align 4 .b8 g[12], .param .u64 h)
{
    .reg .b64 %p, %v;
    .reg .b32 %w;
    ld.param.u64 %p, [to];
    ld.param.u8 %v, [a];
    st.global.u64 [%p], %v;
    ld.param.u16 %v, [b];
    st.global.u64 [%p+8], %v;
    ld.param.u32 %v, [c];
    st.global.u64 [%p+16], %v;
    ld.param.u64 %v, [d];
    st.global.u64 [%p+24], %v;
    ld.param.u64 %v, [e];
    st.global.u64 [%p+32], %v;
    ld.param.u64 %v, [e+8];
    st.global.u64 [%p+40], %v;
    ld.param.u64 %v, [e+16];
    st.global.u64 [%p+48], %v;
    ld.param.u64 %v, [e+24];
    st.global.u64 [%p+56], %v;
    ld.param.u8 %v, [f];
    st.global.u64 [%p+64], %v;
    ld.param.u32 %v, [g];
    st.global.u64 [%p+72], %v;
    ld.param.u32 %v, [g+4];
    st.global.u64 [%p+80], %v;
    ld.param.u32 %v, [g+8];
    st.global.u64 [%p+88], %v;
    ld.param.u64 %v, [h];
    st.global.u64 [%p+96], %v;
    ret;
}";

#[derive(Clone, Copy)]
#[repr(C, align(16))]
struct Wide([u64; 4]);

// SAFETY: four words, as the kernel has them.
unsafe impl DeviceRepr for Wide {}

#[derive(Clone, Copy)]
#[repr(C)]
struct Odd([u32; 3]);

// SAFETY: three words, as the kernel has them.
unsafe impl DeviceRepr for Odd {}

const WORDS: [u64; 13] = [
    0xa1,
    0xb2b2,
    0xc3c3_c3c3,
    0xd4,
    5,
    6,
    7,
    8,
    0xf6,
    21,
    22,
    23,
    0x99,
];

fn spread(to: &Buffer<u64>, last: u64) -> KernelOp {
    let module = context().load_module(Ptx::from_src(SPREAD)).unwrap();
    let kernel = Kernel::new(&module.load_function("spread").unwrap()).unwrap();
    let arguments = (
        to,
        0xa1u8,
        0xb2b2u16,
        0xc3c3_c3c3u32,
        0xd4u64,
        Wide([5, 6, 7, 8]),
        0xf6u8,
        Odd([21, 22, 23]),
        last,
    );
    // SAFETY: the kernel's own parameters; it writes as many words as the buffer has.
    unsafe { KernelOp::new(kernel, one(), arguments) }.unwrap()
}

fn run(op: KernelOp, to: &Buffer<u64>) -> Vec<u64> {
    let stream = stream();
    to.copy_from_host(&stream, &[0; WORDS.len()]).unwrap();
    let graph = Graph::new(&context()).unwrap();
    graph.add(op, ()).unwrap();
    graph.instantiate().unwrap().launch(&stream).unwrap();
    to.to_host(&stream).unwrap()
}

#[test]
fn every_size_and_alignment_more_than_fit_in_place() {
    let to = Buffer::<u64>::zeroed(&stream(), WORDS.len()).unwrap();
    let op = spread(&to, 0x99);
    assert_eq!(op.arguments().len(), 9);
    assert_eq!(number_bytes(&op, 1).unwrap(), [0xa1]);
    assert_eq!(number_bytes(&op, 4).unwrap(), 0xd4u64.to_ne_bytes());
    assert_eq!(number_bytes(&op, 8).unwrap(), 0x99u64.to_ne_bytes());
    assert!(op.arguments().get(9).is_none());
    assert_eq!(run(op, &to), WORDS);
}

/// Changing a copy of an operation leaves the others as they were, and each runs when the others
/// are gone.
#[test]
fn copies_are_changed_apart() {
    let to = Buffer::<u64>::zeroed(&stream(), WORDS.len()).unwrap();
    let op = spread(&to, 0x99);
    let seen = Seen::of_owner(&to.owner());
    let named = op.clone().label("named");
    let first = op.clone().priority(-1).label("first");
    let more = first.clone().cooperative().priority(0);
    assert_eq!(op.label_text(), None);
    assert_eq!(named.label_text(), Some("named"));
    assert_eq!(more.label_text(), Some("first"));
    assert!(op.attributes().is_empty() && named.attributes().is_empty());
    assert!(matches!(
        first.attributes(),
        [LaunchAttribute::Priority(-1)]
    ));
    assert!(matches!(
        more.attributes(),
        [
            LaunchAttribute::Cooperative(true),
            LaunchAttribute::Priority(0)
        ]
    ));
    for op in [&named, &first, &more] {
        assert_eq!(op.location().unwrap().file(), file!());
        assert_eq!(op.kernel().name(), "spread");
    }
    drop(first);
    assert_eq!(run(more, &to), WORDS);
    drop(op);
    assert_eq!(run(named, &to), WORDS);
    drop(to);
    seen.assert_dropped("with the last copy");
}

/// The only copy is changed in place; where its pointers lead is not.
#[test]
fn an_operation_changed_in_place_runs() {
    let to = Buffer::<u64>::zeroed(&stream(), WORDS.len()).unwrap();
    let op = spread(&to, 7).label("a").cooperative().label("b");
    assert_eq!(op.label_text(), Some("b"));
    assert_eq!(run(op, &to)[12], 7);
}

/// What an operation is copied from may be dropped, and changed, on other threads meanwhile.
#[test]
fn copies_are_changed_on_many_threads() {
    const THREADS: u64 = 4;
    let to = Buffer::<u64>::zeroed(&stream(), WORDS.len()).unwrap();
    for round in 0..20 {
        let op = spread(&to, round);
        let start = Arc::new(Barrier::new(THREADS as usize));
        let threads: Vec<_> = (0..THREADS)
            .map(|thread| {
                let (op, start) = (op.clone(), start.clone());
                std::thread::spawn(move || {
                    start.wait();
                    op.label(format!("{thread}"))
                })
            })
            .collect();
        drop(op);
        for (thread, op) in threads.into_iter().enumerate() {
            let op = op.join().unwrap();
            assert_eq!(op.label_text(), Some(thread.to_string().as_str()));
            assert_eq!(number_bytes(&op, 8).unwrap(), round.to_ne_bytes());
            if round == 0 {
                assert_eq!(run(op, &to)[12], round);
            }
        }
    }
}

/// A node of this library whose launch is read back from the driver, by way of a copy that does not
/// know it.
#[test]
fn arguments_are_read_back() {
    let to = Buffer::<u64>::zeroed(&stream(), WORDS.len()).unwrap();
    let graph = Graph::new(&context()).unwrap();
    let op = spread(&to, 0x99);
    graph.add(op.clone(), ()).unwrap();
    // SAFETY: the graph outlives the one that borrows it.
    let other = unsafe { Graph::from_raw_borrowed(graph.raw().unwrap(), &context()) };
    let node = other.nodes().unwrap()[0].typed::<KernelOp>().unwrap();
    let read = other.op(node).unwrap();
    assert_eq!(
        format!("{:?}", read.arguments()),
        format!("{:?}", op.arguments())
    );
    assert_eq!((read.grid(), read.block()), (op.grid(), op.block()));
    assert!(matches!(
        Graph::new(&context()).unwrap().add(read.clone(), ()),
        Err(Error::Unowned { .. })
    ));
    // SAFETY: the buffer and the module outlive the launch.
    assert_eq!(run(unsafe { read.assume_owned() }, &to), WORDS);
}

/// A node of other code, which gave its arguments as one buffer.
#[test]
fn arguments_of_a_buffer_are_read_back() {
    let stream = stream();
    let a = words(&stream, &[0]);
    let graph = Graph::new(&context()).unwrap();
    let mut buffer = [0u64; 2];
    buffer[0] = a.address();
    buffer[1] = 9;
    let mut size = 12usize;
    let mut extra: [*mut c_void; 5] = [
        sys::CU_LAUNCH_PARAM_BUFFER_POINTER_AS_INT as usize as _,
        (&raw mut buffer).cast(),
        sys::CU_LAUNCH_PARAM_BUFFER_SIZE_AS_INT as usize as _,
        (&raw mut size).cast(),
        ptr::null_mut(),
    ];
    let params = sys::CUDA_KERNEL_NODE_PARAMS {
        func: kernel("store").raw(),
        gridDimX: 1,
        gridDimY: 1,
        gridDimZ: 1,
        blockDimX: 1,
        blockDimY: 1,
        blockDimZ: 1,
        sharedMemBytes: 0,
        kernelParams: ptr::null_mut(),
        extra: extra.as_mut_ptr(),
        kern: ptr::null_mut(),
        ctx: context().cu_ctx(),
    };
    let (mut raw, to) = (ptr::null_mut(), graph.raw().unwrap());
    // SAFETY: the graph is alive, and the buffer has the arguments of `store`.
    let added = unsafe { sys::cuGraphAddKernelNode_v2(&mut raw, to, ptr::null(), 0, &params) };
    assert_eq!(added, sys::CUresult::CUDA_SUCCESS);
    let node = graph.nodes().unwrap()[0].typed::<KernelOp>().unwrap();
    let read = graph.op(node).unwrap();
    assert_eq!(number_bytes(&read, 0).unwrap(), a.address().to_ne_bytes());
    assert_eq!(number_bytes(&read, 1).unwrap(), 9u32.to_ne_bytes());
    let other = Graph::new(&context()).unwrap();
    // SAFETY: the buffer and the module outlive the launch.
    let read = unsafe { read.assume_owned() };
    other.add(read, ()).unwrap();
    other.instantiate().unwrap().launch(&stream).unwrap();
    assert_eq!(a.to_host(&stream).unwrap(), [9]);
}

/// Arguments are checked always, so a driver that does not tell the parameters is too old.
#[test]
fn a_driver_that_does_not_tell_the_parameters_is_too_old() {
    let module = context().load_module(Ptx::from_src(PTX)).unwrap();
    let store = module.load_function("store").unwrap();
    let error = with_driver_version(12_030, || Kernel::new(&store)).unwrap_err();
    let Error::Unsupported { what, needs, have } = &error else {
        panic!("{error}");
    };
    assert!(what.contains("parameters") && needs.contains("12.4") && have.contains("12.3"));
    assert_eq!(Kernel::new(&store).unwrap().parameters().len(), 2);
}

#[derive(Clone, Copy)]
#[repr(C)]
struct Padded {
    byte: u8,
    word: u32,
}

// SAFETY: what the tests hand it to does not look at its padding.
unsafe impl DeviceRepr for Padded {}

/// Padding is not initialized, so it is not read.
#[test]
fn padding_is_not_shown() {
    let mut arguments = Arguments::default();
    arguments.value(&Padded { byte: 7, word: 8 });
    arguments.value(&8.0f32);
    arguments.value(&0xffu8);
    assert_eq!(format!("{arguments:?}"), "[8 bytes, 0x41000000, 0xff]");
    let bytes = arguments.get(0).unwrap();
    assert_eq!(bytes.len(), 8);
    assert_eq!((bytes[0], &bytes[4..]), (7, &8u32.to_le_bytes()[..]));
}

#[repr(C)]
struct Huge([u8; 5 << 30]);

// SAFETY: bytes.
unsafe impl DeviceRepr for Huge {}

/// It is refused as any argument of a wrong size is, and its bytes are not copied before.
#[test]
fn an_argument_of_five_gigabytes_is_refused() {
    let layout = Layout::new::<Huge>();
    // SAFETY: the layout is not empty.
    let huge = unsafe { alloc_zeroed(layout) }.cast::<Huge>();
    if huge.is_null() {
        return;
    }
    let mut arguments = Arguments::default();
    arguments.value(&0u64);
    // SAFETY: the allocation has a value, all zero, until it is freed.
    unsafe {
        arguments.value(&*huge);
        dealloc(huge.cast(), layout);
    }
    assert_eq!(arguments.len(), 2);
    assert!(arguments.get(1).is_none());
    assert_eq!(format!("{arguments:?}"), "[0x0, 5368709120 bytes]");
    // SAFETY: it is refused.
    let error = unsafe { KernelOp::new(kernel("store"), one(), arguments) }.unwrap_err();
    let Error::ArgumentSize {
        kernel,
        index,
        wants,
        got,
    } = error
    else {
        panic!("{error}");
    };
    assert_eq!((&*kernel, index, wants, got), ("store", 1, 4, 5 << 30));
}
