//! What the tests share: a device, kernels, and owners whose drop is seen.

use std::collections::BTreeMap;
use std::ops::RangeInclusive;
use std::process::Command;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::{Duration, Instant};

use cuda_graph::cudarc::driver::sys::{CUpointer_attribute, cuPointerGetAttribute};
use cuda_graph::cudarc::driver::{CudaContext, CudaFunction, CudaModule, CudaStream};
use cuda_graph::cudarc::nvrtc::Ptx;
use cuda_graph::{
    AllocOp, Buffer, ChildOp, Device, Driver, Graph, Kernel, KernelOp, Node, RawMemory,
};

/// `store(to, value)`: `*to = value`. `add(to, from)`: `*to += *from`. `bump(to, n)`: thread i adds
/// 1 to `to[i]`. `mixed(to, a: u8, b: f64, c: [u8; 12], d: u16)`: `*to = a + d`.
pub const PTX: &str = "
.version 7.0
.target sm_70
.address_size 64

.visible .entry store(.param .u64 to, .param .u32 value)
{
    .reg .b32 %v;
    .reg .b64 %p;
    ld.param.u64 %p, [to];
    ld.param.u32 %v, [value];
    st.global.u32 [%p], %v;
    ret;
}

.visible .entry add(.param .u64 to, .param .u64 from)
{
    .reg .b32 %v, %w;
    .reg .b64 %p, %q;
    ld.param.u64 %p, [to];
    ld.param.u64 %q, [from];
    ld.global.u32 %v, [%p];
    ld.global.u32 %w, [%q];
    add.u32 %v, %v, %w;
    st.global.u32 [%p], %v;
    ret;
}

.visible .entry bump(.param .u64 to, .param .u32 n)
{
    .reg .pred %out;
    .reg .b32 %i, %b, %s, %n, %v;
    .reg .b64 %p, %at;
    mov.u32 %b, %ctaid.x;
    mov.u32 %s, %ntid.x;
    mov.u32 %i, %tid.x;
    mad.lo.u32 %i, %b, %s, %i;
    ld.param.u32 %n, [n];
    setp.ge.u32 %out, %i, %n;
    @%out ret;
    ld.param.u64 %p, [to];
    mul.wide.u32 %at, %i, 4;
    add.u64 %p, %p, %at;
    ld.global.u32 %v, [%p];
    add.u32 %v, %v, 1;
    st.global.u32 [%p], %v;
    ret;
}

.visible .entry mixed(.param .u64 to, .param .u8 a, .param .f64 b, .param .align 4 .b8 c[12], .param .u16 d)
{
    .reg .b32 %v, %w;
    .reg .b64 %p;
    ld.param.u64 %p, [to];
    ld.param.u8 %v, [a];
    ld.param.u16 %w, [d];
    add.u32 %v, %v, %w;
    st.global.u32 [%p], %v;
    ret;
}
";

/// The first device's context, the same for all tests.
pub fn context() -> Arc<CudaContext> {
    contexts()[0].clone()
}

/// The contexts of all devices, the same for all tests. cudarc waits for everything on the device
/// when a context makes its first stream, which no capture survives: that one is made here.
pub fn contexts() -> &'static [Arc<CudaContext>] {
    static CONTEXTS: OnceLock<Vec<Arc<CudaContext>>> = OnceLock::new();
    static FIRST_STREAMS: OnceLock<Vec<Arc<CudaStream>>> = OnceLock::new();
    CONTEXTS.get_or_init(|| {
        let open = |ordinal| cuda_graph::device(ordinal).expect("there is a device");
        let first = open(0).context().clone();
        let count = CudaContext::device_count().expect("it is known") as usize;
        let others = (1..count).map(|ordinal| open(ordinal).context().clone());
        let contexts: Vec<_> = std::iter::once(first).chain(others).collect();
        let stream = |it: &Arc<CudaContext>| it.new_stream().expect("a stream can be made");
        FIRST_STREAMS.get_or_init(|| contexts.iter().map(stream).collect());
        contexts
    })
}

/// A device for a job that has one stream.
pub fn device_for_a_job() -> Device {
    let device = cuda_graph::device(0).expect("there is a device");
    // The first stream of a context that tracks events waits for the device: no capture of another
    // test survives that.
    // SAFETY: a job has one stream.
    unsafe { device.context().disable_event_tracking() };
    device
}

/// A stream of the test's own, so that tests do not wait for each other.
pub fn stream() -> Arc<CudaStream> {
    context().new_stream().expect("a stream can be made")
}

/// The module of [`PTX`], loaded anew.
pub fn load() -> Arc<CudaModule> {
    context()
        .load_module(Ptx::from_src(PTX))
        .expect("the kernels load")
}

/// A function of [`PTX`], whose module stays loaded.
pub fn function(name: &str) -> CudaFunction {
    static MODULE: OnceLock<Arc<CudaModule>> = OnceLock::new();
    MODULE
        .get_or_init(load)
        .load_function(name)
        .expect("the kernel is there")
}

/// A kernel of [`PTX`], whose module stays loaded.
pub fn kernel(name: &str) -> Kernel {
    Kernel::new(&function(name)).expect("its parameters are known")
}

/// A kernel of [`PTX`] on the device that has `memory`.
fn kernel_at(memory: &Buffer<u32>, name: &str) -> Kernel {
    static MODULES: Mutex<BTreeMap<usize, Arc<CudaModule>>> = Mutex::new(BTreeMap::new());
    let ordinal = ordinal_of(memory);
    if ordinal == 0 {
        return kernel(name);
    }
    let mut modules = MODULES.lock().unwrap_or_else(PoisonError::into_inner);
    let module = modules.entry(ordinal).or_insert_with(|| {
        let context = &contexts()[ordinal];
        context
            .load_module(Ptx::from_src(PTX))
            .expect("the kernels load")
    });
    let function = module.load_function(name).expect("the kernel is there");
    Kernel::new(&function).expect("its parameters are known")
}

/// The number of the device that has `memory`.
fn ordinal_of(memory: &Buffer<u32>) -> usize {
    if contexts().len() == 1 {
        return 0;
    }
    let mut ordinal = 0i32;
    let asked = CUpointer_attribute::CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL;
    // SAFETY: the attribute is an `int`, which the place takes.
    unsafe { cuPointerGetAttribute((&raw mut ordinal).cast(), asked, memory.address()) }
        .result()
        .expect("it is the driver's memory");
    ordinal as usize
}

/// Whether the driver is softcuda. It is asked once: opening a GPU takes a quarter of a second
/// while nobody else holds it.
pub fn is_software() -> bool {
    static IS_SOFTWARE: OnceLock<bool> = OnceLock::new();
    *IS_SOFTWARE.get_or_init(|| {
        cuda_graph::device(0).expect("there is one").driver() == cuda_graph::Driver::Software
    })
}

pub fn one() -> cuda_graph::cudarc::driver::LaunchConfig {
    cuda_graph::cudarc::driver::LaunchConfig {
        grid_dim: (1, 1, 1),
        block_dim: (1, 1, 1),
        shared_mem_bytes: 0,
    }
}

/// Held by a test while it launches loops: on an H200, loops in several streams at once have
/// failed.
pub fn alone() -> MutexGuard<'static, ()> {
    static ALONE: Mutex<()> = Mutex::new(());
    ALONE.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Writes `value` to the first word of `to`.
#[track_caller]
pub fn store(to: &Buffer<u32>, value: u32) -> KernelOp {
    // SAFETY: `store` writes one word, which the buffer has.
    unsafe { KernelOp::new(kernel_at(to, "store"), one(), (to, value)) }.expect("the arguments fit")
}

/// Adds the first word of `from` to that of `to`.
#[track_caller]
pub fn add(to: &Buffer<u32>, from: &Buffer<u32>) -> KernelOp {
    // SAFETY: `add` reads and writes one word of each.
    unsafe { KernelOp::new(kernel_at(to, "add"), one(), (to, from)) }.expect("the arguments fit")
}

pub fn words(stream: &Arc<CudaStream>, values: &[u32]) -> Buffer<u32> {
    Buffer::from_host(stream, values).expect("it fits")
}

/// The graph that the first of a graph's child nodes runs.
pub fn first_child(graph: &Graph) -> Graph {
    let nodes = graph.nodes().expect("it is there").into_iter();
    let child = nodes.filter_map(|node| node.typed::<ChildOp>()).next();
    graph
        .child(child.expect("it has one"))
        .expect("it is there")
}

/// The memory that a node allocates. A test uses it after that node and before the one that frees
/// it, or sees it refused.
#[track_caller]
pub fn allocated(graph: &Graph, node: Node<AllocOp>) -> RawMemory {
    // SAFETY: as this function's callers do.
    unsafe { graph.allocation(node) }.expect("the node is there")
}

/// An owner whose drop is seen.
#[derive(Clone)]
pub struct Watch(Arc<AtomicBool>);

/// What sets a [`Watch`] when dropped.
pub struct Watched(Arc<AtomicBool>);

impl Drop for Watched {
    fn drop(&mut self) {
        self.0.store(true, Ordering::SeqCst);
    }
}

impl Watch {
    pub fn new() -> (Watch, Watched) {
        let flag = Arc::new(AtomicBool::new(false));
        (Watch(flag.clone()), Watched(flag))
    }

    pub fn is_dropped(&self) -> bool {
        self.0.load(Ordering::SeqCst)
    }
}

/// Waits until something on another thread has come true.
#[track_caller]
pub fn assert_soon(mut true_yet: impl FnMut() -> bool, otherwise: &str) {
    let start = Instant::now();
    while !true_yet() {
        assert!(start.elapsed() < Duration::from_secs(10), "{otherwise}");
        std::thread::sleep(Duration::from_millis(1));
    }
}

/// Runs one test of this binary in a process of its own and gives what it printed.
#[track_caller]
pub fn in_process(test: &str, environment: &[(&str, &str)]) -> String {
    let binary = std::env::current_exe().expect("a test has a binary");
    let mut command = Command::new(binary);
    command.args(["--exact", test, "--nocapture", "--include-ignored"]);
    command
        .env_remove("CUDA_GRAPH_DRIVER")
        .env("CUDA_GRAPH_CASE", "1");
    for (name, value) in environment {
        command.env(name, value);
    }
    let output = command.output().expect("the test binary starts");
    let text = String::from_utf8_lossy(&output.stdout).into_owned()
        + &String::from_utf8_lossy(&output.stderr);
    assert!(
        output.status.success() && text.contains("1 passed"),
        "{test} failed:\n{text}"
    );
    text
}

/// Whether this process is the test's own. If not, the test ran in one.
#[track_caller]
pub fn in_own_process(test: &str) -> bool {
    let is_own = std::env::var_os("CUDA_GRAPH_CASE").is_some();
    if !is_own {
        in_process(test, &[]);
    }
    is_own
}

/// Runs a test with the contexts of as many devices as there are, up to the most. Where there are
/// fewer than the least, software has the most, in a process of its own; a GPU's test is left out.
#[track_caller]
pub fn on_devices(
    counts: RangeInclusive<usize>,
    name: &str,
    test: impl FnOnce(&[Arc<CudaContext>]),
) {
    let (least, most) = counts.into_inner();
    let driver = cuda_graph::device(0).expect("there is a device").driver();
    let contexts = contexts();
    let devices = most.to_string();
    match driver {
        _ if contexts.len() >= least => test(&contexts[..contexts.len().min(most)]),
        Driver::Software => {
            let software = ("CUDA_GRAPH_DRIVER", "software");
            in_process(name, &[software, ("SOFTCUDA_DEVICES", &devices)]);
        }
        Driver::Gpu => println!("{name} did not run: it wants {least} devices"),
    }
}

/// The bytes of argument `index`, which is a number or an address.
pub fn number_bytes(op: &KernelOp, index: usize) -> Option<Vec<u8>> {
    op.arguments().get(index).map(<[u8]>::to_vec)
}
