//! The kinds of resources, each in an operation that is the only one to use it, and a way to see it
//! go.

use std::ffi::c_void;
use std::sync::Arc;

use cuda_graph::cudarc::driver::sys::{CUgraphNodeParams, CUgraphNodeType};
use cuda_graph::cudarc::driver::{CudaStream, result};
use cuda_graph::{
    AnyOp, BatchOp, ChildOp, CopyOp, FillOp, Graph, HostOp, Kernel, KernelOp, Operation, Owner,
    PinnedBuffer, RawMemory, RawOp, RecordEventOp, WaitEventOp,
};

use crate::fixture::{Watch, Watched, assert_soon, context, load, one, store, stream, words};

/// The kinds of resources.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Resource {
    /// Device memory that a kernel writes.
    Buffer,
    /// A part of such memory.
    Slice,
    /// What owns memory given by its address.
    RawOwner,
    Module,
    /// An event that is recorded.
    Event,
    /// A Rust closure that is called.
    Closure,
    /// What a C function is called with.
    Data,
    /// A graph that is embedded, and memory that it uses.
    Child,
    /// Page-locked memory.
    Pinned,
    /// An event that is waited for.
    AwaitedEvent,
    /// What owns words that are written one by one.
    Batch,
    /// What is given beside the driver's own parameters.
    Raw,
}

pub const RESOURCES: [Resource; 12] = [
    Resource::Buffer,
    Resource::Slice,
    Resource::RawOwner,
    Resource::Module,
    Resource::Event,
    Resource::Closure,
    Resource::Data,
    Resource::Child,
    Resource::Pinned,
    Resource::AwaitedEvent,
    Resource::Batch,
    Resource::Raw,
];

/// The program's own handle on a resource.
pub type Handle = Box<dyn std::any::Any>;

/// Says when a resource is gone.
pub enum Seen {
    Watch(Watch),
    Weak(Box<dyn Fn() -> bool>),
}

impl Seen {
    fn weak<T: Send + Sync + ?Sized + 'static>(arc: &Arc<T>) -> Seen {
        let weak = Arc::downgrade(arc);
        Seen::Weak(Box::new(move || weak.strong_count() == 0))
    }

    pub fn of_owner(owner: &Owner) -> Seen {
        Seen::weak(owner)
    }

    fn is_dropped(&self) -> bool {
        match self {
            Seen::Watch(watch) => watch.is_dropped(),
            Seen::Weak(gone) => gone(),
        }
    }

    #[track_caller]
    pub fn assert_dropped(&self, when: &str) {
        assert_soon(|| self.is_dropped(), &format!("leaked {when}"));
    }

    /// A while after whatever might have dropped it.
    #[track_caller]
    pub fn assert_alive(&self, when: &str) {
        std::thread::sleep(std::time::Duration::from_millis(3));
        assert!(!self.is_dropped(), "dropped early {when}");
    }
}

/// Owners are shared between threads.
struct Held(#[expect(dead_code, reason = "its drop is what counts")] Watched);

/// Memory that is no stream's, which batches want.
struct Words {
    address: u64,
}

impl Words {
    fn new() -> Words {
        context().bind_to_thread().unwrap();
        // SAFETY: nobody reads them.
        let address = unsafe { result::malloc_sync(64) }.unwrap();
        Words { address }
    }
}

impl Drop for Words {
    fn drop(&mut self) {
        context().bind_to_thread().unwrap();
        // SAFETY: allocated by `new`; whatever uses it holds it.
        unsafe { result::free_sync(self.address) }.unwrap();
    }
}

unsafe extern "C" fn nothing(_: *mut c_void) {}

impl Resource {
    /// An operation, the program's own handle on what it uses, and a way to see that go.
    pub fn make(self, stream: &Arc<CudaStream>) -> (AnyOp, Handle, Seen) {
        match self {
            Resource::Buffer => {
                let buffer = words(stream, &[0; 4]);
                let seen = Seen::weak(&buffer.owner());
                (store(&buffer, 1).into(), Box::new(buffer), seen)
            }
            Resource::Slice => {
                let buffer = words(stream, &[0; 4]);
                let seen = Seen::weak(&buffer.owner());
                let slice = buffer.slice(1..3).unwrap();
                let op = FillOp::new(&slice, 1u32).unwrap();
                (op.into(), Box::new(slice), seen)
            }
            Resource::RawOwner => {
                let (watch, watched) = Watch::new();
                let buffer = words(stream, &[0; 4]);
                let (address, bytes) = (buffer.address(), buffer.bytes());
                let owner: Owner = Arc::new((Held(watched), buffer));
                // SAFETY: the owner keeps the buffer.
                let raw = unsafe { RawMemory::device(address, bytes) }.owned_by(owner);
                let from = Arc::new(vec![1u32; 4]);
                let op = CopyOp::new(&raw, &from).unwrap();
                (op.into(), Box::new(raw), Seen::Watch(watch))
            }
            Resource::Module => {
                let module = load();
                let seen = Seen::weak(&module);
                let function = Kernel::new(&module.load_function("bump").unwrap()).unwrap();
                // SAFETY: with no elements, `bump` touches no memory.
                let op = unsafe { KernelOp::new(&function, one(), (0u64, 0u32)) }.unwrap();
                (op.into(), Box::new((module, function)), seen)
            }
            Resource::Event => {
                let event = Arc::new(context().new_event(None).unwrap());
                let seen = Seen::weak(&event);
                (RecordEventOp::new(&event).into(), Box::new(event), seen)
            }
            Resource::AwaitedEvent => {
                let event = Arc::new(context().new_event(None).unwrap());
                event.record(stream).unwrap();
                let seen = Seen::weak(&event);
                (WaitEventOp::new(&event).into(), Box::new(event), seen)
            }
            Resource::Closure => {
                let (watch, watched) = Watch::new();
                let held = Held(watched);
                let op = HostOp::new(move || {
                    let _ = &held;
                });
                (op.clone().into(), Box::new(op), Seen::Watch(watch))
            }
            Resource::Data => {
                let (watch, watched) = Watch::new();
                let data = Arc::new(Held(watched));
                let at = Arc::as_ptr(&data).cast_mut().cast();
                // SAFETY: the function does nothing.
                let op = unsafe { HostOp::raw(nothing, at, Some(data.clone())) };
                (op.into(), Box::new(data), Seen::Watch(watch))
            }
            Resource::Child => {
                let inner = Graph::new(&context()).unwrap();
                let buffer = words(stream, &[0; 4]);
                let seen = Seen::weak(&buffer.owner());
                inner.add(store(&buffer, 1), ()).unwrap();
                (ChildOp::new(&inner).into(), Box::new(inner), seen)
            }
            Resource::Pinned => {
                let from = PinnedBuffer::from_slice(&context(), &[1u32; 4]).unwrap();
                let seen = Seen::weak(&from.owner());
                let op = CopyOp::new(words(stream, &[0; 4]), &from).unwrap();
                (op.into(), Box::new(from), seen)
            }
            Resource::Batch => {
                let (watch, watched) = Watch::new();
                let words = Words::new();
                let address = words.address;
                let owner: Owner = Arc::new((Held(watched), words));
                // SAFETY: the owner keeps the words.
                let raw = unsafe { RawMemory::device(address, 64) }.owned_by(owner);
                let op = BatchOp::new().write32(&raw, 7).unwrap();
                (op.into(), Box::new(raw), Seen::Watch(watch))
            }
            Resource::Raw => {
                let (watch, watched) = Watch::new();
                let buffer = words(stream, &[0; 4]);
                // SAFETY: plain data for which zero is a value; the kind is written before it is
                // read.
                let mut params: CUgraphNodeParams = unsafe {
                    let mut params = std::mem::MaybeUninit::<CUgraphNodeParams>::zeroed();
                    (*params.as_mut_ptr()).type_ = CUgraphNodeType::CU_GRAPH_NODE_TYPE_MEMSET;
                    params.assume_init()
                };
                params.__bindgen_anon_1.memset.dst = buffer.address();
                params.__bindgen_anon_1.memset.elementSize = 4;
                params.__bindgen_anon_1.memset.width = 4;
                params.__bindgen_anon_1.memset.height = 1;
                params.__bindgen_anon_1.memset.ctx = context().cu_ctx();
                let owner: Owner = Arc::new((Held(watched), buffer));
                // SAFETY: the parameters are those of a fill of the buffer, which the owner keeps.
                let op = unsafe { RawOp::new(params, [owner.clone()]) };
                (op.into_any(), Box::new(owner), Seen::Watch(watch))
            }
        }
    }

    /// An operation of the same kind that uses nothing of the first.
    pub fn other(self, stream: &Arc<CudaStream>) -> AnyOp {
        self.make(stream).0
    }
}

/// Each kind in turn, with a stream for it.
pub fn each(run: impl Fn(Resource, &Arc<CudaStream>, &str)) {
    let stream = stream();
    for resource in RESOURCES {
        run(resource, &stream, &format!("with {resource:?}"));
    }
}
