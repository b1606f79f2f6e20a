//! What the tests of capture share: streams that nobody else uses, work as code gives it that knows
//! nothing of captures, and whether streams work.

use std::sync::{Arc, Mutex};

use cuda_graph::cudarc::driver::{CudaContext, CudaStream, PushKernelArg};
use cuda_graph::{
    Buffer, CaptureInfo, CaptureStatus, ChildOp, Graph, KernelOp, NodeId, Path, Result,
};

use crate::fixture::{Watch, Watched, add, assert_soon, context, function, one, store, words};

/// A context of the test's own, which keeps no errors of other tests.
///
/// It is the same to the driver. cudarc would wait for everything on the device when its first
/// stream is made, which the captures of other tests do not survive, unless it does not track
/// events.
pub fn apart() -> Arc<CudaContext> {
    context();
    let apart = CudaContext::new(0).expect("there is a device");
    // SAFETY: the tests order what uses a slice in several streams themselves.
    unsafe { apart.disable_event_tracking() };
    apart
}

/// What is held by a graph and seen to be dropped.
pub struct Held(#[expect(dead_code, reason = "its drop is what counts")] pub Watched);

/// What programs record: making it asks the driver.
pub struct Ops {
    pub store_a: KernelOp,
    pub add_b: KernelOp,
    pub double_a: KernelOp,
    pub double_b: KernelOp,
}

/// A stream to capture, memory to work on, and what was seen meanwhile.
pub struct Scene {
    pub context: Arc<CudaContext>,
    pub stream: Arc<CudaStream>,
    pub a: Buffer<u32>,
    pub b: Buffer<u32>,
    /// A flag that is never set.
    pub zero: Buffer<u32>,
    pub ops: Ops,
    used: Mutex<Vec<Arc<CudaStream>>>,
    watches: Mutex<Vec<Watch>>,
}

impl Scene {
    pub fn new() -> Scene {
        Scene::of(apart())
    }

    pub fn of(context: Arc<CudaContext>) -> Scene {
        let stream = context.new_stream().expect("a stream can be made");
        let (a, b) = (words(&stream, &[0]), words(&stream, &[0]));
        Scene {
            ops: Ops {
                store_a: store(&a, 1),
                add_b: add(&a, &b),
                double_a: add(&a, &a),
                double_b: add(&b, &b),
            },
            zero: words(&stream, &[0]),
            a,
            b,
            used: Mutex::new(vec![stream.clone()]),
            watches: Mutex::default(),
            context,
            stream,
        }
    }

    /// Notes that a stream took part.
    pub fn uses(&self, stream: &Arc<CudaStream>) {
        self.used
            .lock()
            .expect("no holder panics")
            .push(stream.clone());
    }

    /// An owner to be held.
    pub fn held(&self) -> Arc<Held> {
        let (watch, watched) = Watch::new();
        self.watches.lock().expect("no holder panics").push(watch);
        Arc::new(Held(watched))
    }

    /// Every stream that took part takes and finishes new work, and everything that was held is
    /// dropped.
    #[track_caller]
    pub fn is_clean(&self, what: &str) {
        let used = std::mem::take(&mut *self.used.lock().expect("no holder panics"));
        for stream in &used {
            works(stream, what);
        }
        *self.used.lock().expect("no holder panics") = vec![self.stream.clone()];
        for watch in std::mem::take(&mut *self.watches.lock().expect("no holder panics")) {
            assert_soon(|| watch.is_dropped(), &format!("{what}: an owner leaks"));
        }
        assert_eq!(
            self.context.check_err(),
            Ok(()),
            "{what}: cudarc keeps an error"
        );
    }
}

/// Launches `store` as other code does: `*to = value`.
pub fn launch_store(stream: &Arc<CudaStream>, to: &Buffer<u32>, value: u32) -> Result<()> {
    let (stores, to) = (function("store"), to.address());
    let mut launch = stream.launch_builder(&stores);
    launch.arg(&to).arg(&value);
    // SAFETY: `store` writes one word. The tests keep their memory.
    unsafe { launch.launch(one()) }?;
    Ok(())
}

/// Launches `add` as other code does: `*to += *from`.
pub fn launch_add(stream: &Arc<CudaStream>, to: &Buffer<u32>, from: &Buffer<u32>) -> Result<()> {
    let (adds, to, from) = (function("add"), to.address(), from.address());
    let mut launch = stream.launch_builder(&adds);
    launch.arg(&to).arg(&from);
    // SAFETY: `add` reads and writes one word of each. The tests keep their memory.
    unsafe { launch.launch(one()) }?;
    Ok(())
}

/// Records what other code does with the stream. What it uses the tests keep.
#[track_caller]
pub fn foreign<T>(path: &mut Path, work: impl FnOnce(&Arc<CudaStream>) -> Result<T>) -> Result<T> {
    // SAFETY: the tests keep what the work uses for as long as they have the graph.
    unsafe { path.foreign(work) }
}

/// A stream takes and finishes new work, and can be captured.
#[track_caller]
pub fn works(stream: &Arc<CudaStream>, what: &str) {
    let info = CaptureInfo::of(stream).unwrap_or_else(|error| panic!("{what}: {error}"));
    assert_eq!(info.status, CaptureStatus::None, "{what}");
    // Freed in the order of a stream that nobody captures: the reaper must not free in one that
    // other code captures.
    let memory = stream.context().new_stream().expect("a stream can be made");
    let (a, b) = (words(&memory, &[3]), words(&memory, &[4]));
    launch_add(stream, &a, &b).unwrap_or_else(|error| panic!("{what}: {error}"));
    assert_eq!(a.to_host(stream).expect("it runs"), [7], "{what}");
    let (graph, ()) = Graph::capture(stream, |path| {
        path.record(add(&a, &b))?;
        foreign(path, |stream| launch_add(stream, &a, &b))
    })
    .unwrap_or_else(|error| panic!("{what}: {error}"));
    graph
        .instantiate()
        .expect("it is whole")
        .launch(stream)
        .expect("it runs");
    assert_eq!(a.to_host(stream).expect("it runs"), [15], "{what}");
}

/// A graph that was there before: stores 5 in `a`; then, in an embedded graph, adds `a` to itself.
pub struct Before {
    pub graph: Graph,
    pub nodes: [NodeId; 2],
    pub child: Graph,
    a: Buffer<u32>,
}

impl Before {
    pub fn new(scene: &Scene) -> Before {
        let a = words(&scene.stream, &[0]);
        let inner = Graph::new(&scene.context).expect("a graph can be made");
        inner.add(add(&a, &a), ()).expect("it fits");
        let graph = Graph::new(&scene.context).expect("a graph can be made");
        let first = graph.add(store(&a, 5), ()).expect("it fits");
        let second = graph.add(ChildOp::new(&inner), first).expect("it fits");
        let child = graph.child(second).expect("it is there");
        Before {
            nodes: [first.id(), second.id()],
            graph,
            child,
            a,
        }
    }

    /// It has the nodes and the edge that it had, known as they were, and runs.
    #[track_caller]
    pub fn is_as_before(&self, scene: &Scene, what: &str) {
        self.has_what_it_had(what);
        let mut exec = self
            .graph
            .instantiate()
            .unwrap_or_else(|error| panic!("{what}: {error}"));
        exec.launch(&scene.stream).expect("it runs");
        assert_eq!(
            self.a.to_host(&scene.stream).expect("it runs"),
            [10],
            "{what}"
        );
    }

    /// As [`is_as_before`](Before::is_as_before), where a driver call failed.
    ///
    /// The driver cannot destroy a condition, and instantiates no graph with one that no node uses.
    /// So a loop that failed at the driver after its condition was made leaves a graph that runs
    /// when the next loop uses that.
    #[track_caller]
    pub fn is_as_before_but_for_a_condition(&self, scene: &Scene, what: &str) {
        match has_condition_left(&self.graph) {
            true => self.has_what_it_had(what),
            false => self.is_as_before(scene, what),
        }
    }

    #[track_caller]
    fn has_what_it_had(&self, what: &str) {
        let nodes = self
            .graph
            .nodes()
            .unwrap_or_else(|error| panic!("{what}: {error}"));
        assert_eq!(nodes, self.nodes, "{what}");
        assert_eq!(self.graph.edges().expect("it is there").len(), 1, "{what}");
        assert_eq!(self.child.nodes().expect("it is there").len(), 1, "{what}");
    }
}

/// Whether a condition that no node uses keeps a graph from being instantiated.
pub fn has_condition_left(graph: &Graph) -> bool {
    let unused = cuda_graph::InstantiateFailure::ConditionUnused;
    matches!(
        graph.instantiate(),
        Err(cuda_graph::Error::Instantiate { reason, .. }) if reason == unused
    )
}
