//! What an update replaced goes as soon as nothing can run it: each kind of node, wherever it
//! stands, is updated a thousand times with fresh owners, and the owners' drops are counted.
//!
//! Nodes of other kinds hold nothing (empty, allocation, free), cannot be updated (conditional), or
//! need handles that no software has (semaphores).

use std::any::Any;
use std::cell::RefCell;
use std::fmt;
use std::sync::{Arc, Weak};

use cuda_graph::cudarc::driver::sys::{CUgraphNodeParams, CUgraphNodeType};
use cuda_graph::cudarc::driver::{CudaSlice, CudaStream, result};
use cuda_graph::testing::settle;
use cuda_graph::{
    AnyOp, BatchOp, Buffer, ChildOp, CopyOp, Error, Exec, FillOp, Graph, HostOp, IfOp, KernelOp,
    Node, NodeKind, Owner, Path, RawMemory, RawOp, RecordEventOp, Recorder, WaitEventOp,
};

use crate::door::Door;
use crate::fixture::{alone, context, kernel, one, stream, words};

/// So many updates of each node.
const TIMES: usize = 1000;

/// So many launches are given between two synchronizations.
const FLIGHT: usize = 25;

#[derive(Clone, Copy, Debug, PartialEq)]
enum Kind {
    Kernel,
    Copy,
    CopyOfHost,
    Memset,
    FillKernel,
    Host,
    RecordEvent,
    WaitEvent,
    Batch,
    Child,
    Raw,
}

const KINDS: [Kind; 11] = [
    Kind::Kernel,
    Kind::Copy,
    Kind::CopyOfHost,
    Kind::Memset,
    Kind::FillKernel,
    Kind::Host,
    Kind::RecordEvent,
    Kind::WaitEvent,
    Kind::Batch,
    Kind::Child,
    Kind::Raw,
];

#[derive(Clone, Copy, Debug, PartialEq)]
enum Place {
    Root,
    Child,
    ChildInChild,
    Body,
    BodyInBody,
    ChildInBody,
}

const PLACES: [Place; 6] = [
    Place::Root,
    Place::Child,
    Place::ChildInChild,
    Place::Body,
    Place::BodyInBody,
    Place::ChildInBody,
];

impl Place {
    fn is_in_body(self) -> bool {
        matches!(self, Place::Body | Place::BodyInBody | Place::ChildInBody)
    }

    fn takes(self, kind: Kind) -> bool {
        let fits = matches!(
            kind,
            Kind::Kernel | Kind::Copy | Kind::Memset | Kind::FillKernel | Kind::Child | Kind::Raw
        );
        fits || !self.is_in_body()
    }
}

/// What makes operations whose owners it sees go.
struct Maker {
    kind: Kind,
    place: Place,
    stream: Arc<CudaStream>,
    door: Arc<Door>,
    /// What operations write. Their owners are others.
    memory: CudaSlice<u64>,
    address: u64,
    /// Memory that is no stream's, which batches want.
    plain: u64,
    source: Buffer<u64>,
    flag: Buffer<u32>,
    owners: RefCell<Vec<Weak<dyn Any + Send + Sync>>>,
}

impl fmt::Debug for Maker {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?} in {:?}", self.kind, self.place)
    }
}

struct Probe;

impl Maker {
    fn new(kind: Kind, place: Place, stream: &Arc<CudaStream>) -> Maker {
        let memory = stream.alloc_zeros::<u64>(1).unwrap();
        context().bind_to_thread().unwrap();
        // SAFETY: nobody reads it; freed when this is dropped.
        let plain = unsafe { result::malloc_sync(8) }.unwrap();
        let source = Buffer::from_host(stream, &[7]).unwrap();
        let flag = words(stream, &[1]);
        let address = Buffer::<u64>::address(&lent(&memory, Arc::new(Probe)));
        stream.synchronize().unwrap();
        Maker {
            kind,
            place,
            stream: stream.clone(),
            door: Arc::default(),
            memory,
            address,
            plain,
            source,
            flag,
            owners: RefCell::default(),
        }
    }

    fn watch(&self, owner: &Owner) {
        self.owners.borrow_mut().push(Arc::downgrade(owner));
    }

    fn owner(&self) -> Owner {
        let owner: Owner = Arc::new(Probe);
        self.watch(&owner);
        owner
    }

    /// How many owners are there.
    fn held(&self) -> usize {
        let mut owners = self.owners.borrow_mut();
        owners.retain(|owner| owner.strong_count() > 0);
        owners.len()
    }

    fn raw(&self) -> RawMemory {
        // SAFETY: the memory lives as long as this, which waits for all launches.
        unsafe { RawMemory::device(self.address, 8) }.owned_by(self.owner())
    }

    fn kernel(&self) -> KernelOp {
        // SAFETY: `store` writes one word.
        unsafe { KernelOp::new(kernel("store"), one(), (self.raw(), 1u32)) }.unwrap()
    }

    /// An operation with an owner of its own.
    fn make(&self) -> AnyOp {
        match self.kind {
            Kind::Kernel => self.kernel().into(),
            Kind::Copy => CopyOp::new(self.raw(), &self.source).unwrap().into(),
            Kind::CopyOfHost => {
                let values = Arc::new(vec![1u64]);
                let owner: Owner = values.clone();
                self.watch(&owner);
                // SAFETY: as `raw`.
                let to = unsafe { RawMemory::device(self.address, 8) };
                CopyOp::new(to, &values).unwrap().into()
            }
            Kind::Memset => FillOp::pattern(self.raw(), 1u32).unwrap().into(),
            Kind::FillKernel => {
                let buffer = lent(&self.memory, self.owner());
                FillOp::by_kernel(&buffer, 1 << 40).unwrap().into()
            }
            Kind::Host => {
                let owner = self.owner();
                HostOp::new(move || {
                    let _ = &owner;
                })
                .into()
            }
            Kind::RecordEvent | Kind::WaitEvent => {
                let event = Arc::new(context().new_event(None).unwrap());
                let owner: Owner = event.clone();
                self.watch(&owner);
                match self.kind {
                    Kind::RecordEvent => RecordEventOp::new(&event).into(),
                    _ => WaitEventOp::new(&event).into(),
                }
            }
            Kind::Batch => {
                // SAFETY: as `raw`.
                let at = unsafe { RawMemory::device(self.plain, 8) }.owned_by(self.owner());
                BatchOp::new().write32(&at, 1).unwrap().into()
            }
            Kind::Child => {
                let inner = Graph::new(&context()).unwrap();
                inner.add(self.kernel(), ()).unwrap();
                ChildOp::new(&inner).into()
            }
            Kind::Raw => {
                // SAFETY: plain data for which zero is a value; the kind is written before it is
                // read.
                let mut params: CUgraphNodeParams = unsafe {
                    let mut params = std::mem::MaybeUninit::<CUgraphNodeParams>::zeroed();
                    (*params.as_mut_ptr()).type_ = CUgraphNodeType::CU_GRAPH_NODE_TYPE_MEMSET;
                    params.assume_init()
                };
                params.__bindgen_anon_1.memset.dst = self.address;
                params.__bindgen_anon_1.memset.elementSize = 4;
                params.__bindgen_anon_1.memset.width = 1;
                params.__bindgen_anon_1.memset.height = 1;
                params.__bindgen_anon_1.memset.ctx = context().cu_ctx();
                // SAFETY: the parameters are those of a fill of the memory.
                AnyOp::Raw(unsafe { RawOp::new(params, [self.owner()]) })
            }
        }
    }

    /// A definition that passes through the door, and does a fresh operation.
    fn define(&self) -> Definition {
        let graph = Graph::new(&context()).unwrap();
        let first = graph.add(self.door.op(), ()).unwrap();
        let embeddable = |op: AnyOp| {
            let inner = Graph::new(&context()).unwrap();
            inner.add(op, ()).unwrap();
            ChildOp::new(&inner)
        };
        let mut path = Path::new(&graph);
        path.go_on_after(first).unwrap();
        let op = self.make();
        match self.place {
            Place::Root => drop(path.record(op).unwrap()),
            Place::Child => drop(path.record(embeddable(op)).unwrap()),
            Place::ChildInChild => {
                let inner = embeddable(op).into();
                path.record(embeddable(inner)).unwrap();
            }
            Place::Body => path
                .if_nonzero(&self.flag, |r| r.record(op.clone()).map(drop))
                .unwrap(),
            Place::BodyInBody => path
                .if_nonzero(&self.flag, |r| {
                    r.if_nonzero(&self.flag, |r| r.record(op.clone()).map(drop))
                })
                .unwrap(),
            Place::ChildInBody => path
                .if_nonzero(&self.flag, |r| r.record(embeddable(op.clone())).map(drop))
                .unwrap(),
        }
        self.find(graph)
    }

    /// The node that `define` made, in such a graph.
    fn find(&self, graph: Graph) -> Definition {
        let child = |graph: &Graph| {
            let node = last(graph, NodeKind::Child).typed().unwrap();
            graph.child(node).unwrap()
        };
        let body = |graph: &Graph| {
            let node = last(graph, NodeKind::Conditional);
            graph.body(node.typed::<IfOp>().unwrap()).unwrap()
        };
        let view = match self.place {
            Place::Root => ChildOp::new(&graph).graph(),
            Place::Child => child(&graph),
            Place::ChildInChild => child(&child(&graph)),
            Place::Body => body(&graph),
            Place::BodyInBody => body(&body(&graph)),
            Place::ChildInBody => child(&body(&graph)),
        };
        let node = *view.nodes().unwrap().last().unwrap();
        Definition {
            node: node.typed().unwrap(),
            view,
            graph,
        }
    }

    /// Waits for everything, and for what goes then.
    fn land(&self) {
        self.stream.synchronize().unwrap();
        settle();
    }

    /// What is held once everything has run.
    #[track_caller]
    fn holds(&self, owners: usize, when: &str) {
        self.land();
        assert_eq!(self.held(), owners, "{self:?}: {when}");
    }
}

impl Drop for Maker {
    fn drop(&mut self) {
        self.door.open();
        context().bind_to_thread().unwrap();
        let _ = self.stream.synchronize();
        // SAFETY: allocated by `new`; everything has run.
        unsafe { result::free_sync(self.plain) }.unwrap();
    }
}

fn lent(memory: &CudaSlice<u64>, owner: Owner) -> Buffer<u64> {
    // SAFETY: the memory outlives every launch.
    unsafe { Buffer::lent(memory, owner) }
}

fn last(graph: &Graph, kind: NodeKind) -> cuda_graph::NodeId {
    let nodes = graph.nodes().unwrap();
    let found = nodes.into_iter().rfind(|node| node.kind() == kind);
    found.unwrap()
}

/// A graph, the graph in it that has the node, and the node.
struct Definition {
    graph: Graph,
    view: Graph,
    node: Node<AnyOp>,
}

impl Definition {
    /// Replaces the operation. A driver may refuse to give a child another graph.
    fn update(&self, op: AnyOp) -> bool {
        let is_child = matches!(op, AnyOp::Child(_));
        match self.view.update(self.node, op) {
            Ok(()) => true,
            Err(_) if is_child => false,
            Err(error) => panic!("{error}"),
        }
    }
}

/// Each kind of node in each place.
fn each(walk: impl Fn(&Maker)) {
    let _alone = alone();
    settle();
    let stream = stream();
    for place in PLACES {
        for kind in KINDS {
            if place.takes(kind) {
                let maker = Maker::new(kind, place, &stream);
                walk(&maker);
                maker.holds(0, "the end");
            }
        }
    }
}

/// Updates with a launch after each, and looks between and after flights.
fn fly(maker: &Maker, exec: &mut Exec, node: Node<AnyOp>, resting: usize, when: &str) {
    for _ in 0..TIMES / FLIGHT {
        for launched in 1..=FLIGHT {
            exec.update(node, maker.make()).unwrap();
            exec.launch(&maker.stream).unwrap();
            // Those in flight, the present one among them, and what rests elsewhere.
            let held = maker.held();
            let most = launched + 1 + resting;
            assert!(held <= most, "{maker:?}: {when}: {held} of {most} are held");
        }
        maker.holds(1 + resting, when);
    }
}

#[test]
fn an_executable_that_is_updated_and_launched() {
    each(|maker| {
        let defined = maker.define();
        let mut exec = defined.graph.instantiate().unwrap();
        fly(maker, &mut exec, defined.node, 1, "with the definition");
        let node = defined.node;
        drop(defined);
        maker.holds(1, "the definition is gone");
        fly(maker, &mut exec, node, 0, "without the definition");
        // Of a child it is known only that another graph took its place.
        assert_eq!(exec.op(node).is_ok(), maker.kind != Kind::Child);
    });
}

/// Every update synchronized with, as the report had it.
#[test]
fn each_update_is_let_go_by_itself() {
    each(|maker| {
        let defined = maker.define();
        let mut exec = defined.graph.instantiate().unwrap();
        for _ in 0..TIMES / 10 {
            exec.update(defined.node, maker.make()).unwrap();
            exec.launch(&maker.stream).unwrap();
            maker.holds(2, "one update, one launch");
        }
    });
}

#[test]
fn updates_without_a_launch() {
    each(|maker| {
        let defined = maker.define();
        let mut exec = defined.graph.instantiate().unwrap();
        for _ in 0..TIMES {
            exec.update(defined.node, maker.make()).unwrap();
            assert_eq!(maker.held(), 2, "{maker:?}: never launched");
        }
        exec.launch(&maker.stream).unwrap();
        maker.holds(2, "launched once");
        for _ in 0..TIMES {
            exec.update(defined.node, maker.make()).unwrap();
        }
        maker.holds(2, "the only launch is over");
        exec.update(defined.node, maker.make()).unwrap();
        assert_eq!(maker.held(), 2, "{maker:?}: at once");
    });
}

/// One launch in flight uses one operation, however often the executable is updated meanwhile.
#[test]
fn updates_beside_one_launch_in_flight() {
    each(|maker| {
        let defined = maker.define();
        let mut exec = defined.graph.instantiate().unwrap();
        exec.update(defined.node, maker.make()).unwrap();
        maker.door.close();
        exec.launch(&maker.stream).unwrap();
        maker.door.until_someone_waits();
        for _ in 0..TIMES {
            exec.update(defined.node, maker.make()).unwrap();
        }
        // The definition's, the flying one, and the present one.
        let held = maker.held();
        maker.door.open();
        assert_eq!(held, 3, "{maker:?}: beside one launch");
        maker.holds(2, "it has landed");
    });
}

#[test]
fn several_launches_in_flight() {
    each(|maker| {
        let defined = maker.define();
        let mut exec = defined.graph.instantiate().unwrap();
        for _ in 0..TIMES / FLIGHT {
            maker.door.close();
            for _ in 0..FLIGHT {
                exec.update(defined.node, maker.make()).unwrap();
                exec.launch(&maker.stream).unwrap();
            }
            maker.door.until_someone_waits();
            let held = maker.held();
            maker.door.open();
            // All of them, and the definition's: nothing that is to run goes early.
            assert!(held > FLIGHT, "{maker:?}: {held} are held");
            // What was there before the first of them may be used by none.
            assert!(held <= FLIGHT + 2, "{maker:?}: {held} are held");
            maker.holds(2, "they have landed");
        }
    });
}

#[test]
fn a_definition_that_is_updated() {
    each(|maker| {
        let defined = maker.define();
        let mut exec = defined.graph.instantiate().unwrap();
        exec.launch(&maker.stream).unwrap();
        for _ in 0..TIMES {
            if !defined.update(maker.make()) {
                break;
            }
            assert_eq!(maker.held(), 2, "{maker:?}: the executable's and its own");
        }
        exec.launch(&maker.stream).unwrap();
        drop(exec);
        maker.holds(1, "the executable is gone");
    });
}

#[test]
fn a_definition_and_an_executable_that_are_updated() {
    each(|maker| {
        let defined = maker.define();
        let mut exec = defined.graph.instantiate().unwrap();
        for _ in 0..TIMES / FLIGHT {
            for _ in 0..FLIGHT {
                defined.update(maker.make());
                exec.update(defined.node, maker.make()).unwrap();
                exec.launch(&maker.stream).unwrap();
            }
            maker.holds(2, "both");
        }
    });
}

#[test]
fn an_executable_that_follows_its_definition() {
    each(|maker| {
        let defined = maker.define();
        let mut exec = defined.graph.instantiate().unwrap();
        for turn in 0..TIMES / FLIGHT {
            for launched in 1..=FLIGHT {
                if !defined.update(maker.make()) {
                    return;
                }
                exec.update_from(&defined.graph).unwrap();
                exec.launch(&maker.stream).unwrap();
                let held = maker.held();
                assert!(held <= launched + 1, "{maker:?}: {held} are held");
            }
            maker.holds(1, "one operation for both");
            // An update of the node between two of the whole.
            if turn % 2 == 0 {
                exec.update(defined.node, maker.make()).unwrap();
                exec.launch(&maker.stream).unwrap();
                maker.holds(2, "the node's own");
            }
        }
    });
}

#[test]
fn an_executable_that_follows_other_definitions() {
    each(|maker| {
        let defined = maker.define();
        let mut exec = defined.graph.instantiate().unwrap();
        let mut follow = |resting: usize, times: usize| {
            for _ in 0..times / FLIGHT {
                for launched in 1..=FLIGHT {
                    let other = maker.define();
                    exec.update_from(&other.graph).unwrap();
                    drop(other);
                    exec.launch(&maker.stream).unwrap();
                    let held = maker.held();
                    // One more where the node was updated beside the other definition.
                    let most = launched + 2 + resting;
                    assert!(held <= most, "{maker:?}: {held} of {most} are held");
                }
                maker.holds(1 + resting, "another definition's");
                exec.update(defined.node, maker.make()).unwrap();
                exec.launch(&maker.stream).unwrap();
                // The driver pairs the nodes, so all that the other definition used stays until the
                // next whole update.
                maker.holds(2 + resting, "the node's own, beside the other definition's");
            }
        };
        follow(1, TIMES);
        defined.view.destroy(defined.node).unwrap();
        maker.land();
        assert!(maker.held() <= 2);
    });
}

#[test]
fn clones() {
    each(|maker| {
        // The driver clones no graph with conditional nodes.
        if maker.place.is_in_body() {
            return;
        }
        let defined = maker.define();
        let clone = maker.find(defined.graph.try_clone().unwrap());
        maker.holds(1, "one operation in two graphs");
        let mut exec = clone.graph.instantiate().unwrap();
        fly(maker, &mut exec, clone.node, 1, "of a clone");
        for _ in 0..TIMES {
            if !clone.update(maker.make()) {
                break;
            }
            // The original's, the clone's, the executable's.
            assert_eq!(maker.held(), 3, "{maker:?}: in a clone");
        }
        let node = clone.node;
        drop(defined);
        drop(clone);
        maker.holds(1, "the graphs are gone");
        fly(maker, &mut exec, node, 0, "of a clone that is gone");
    });
}

#[test]
fn an_executable_that_is_dropped_in_flight() {
    each(|maker| {
        let defined = maker.define();
        for _ in 0..TIMES / FLIGHT {
            let mut exec = defined.graph.instantiate().unwrap();
            // To drop an executable with conditional nodes waits for all launches.
            if !maker.place.is_in_body() {
                maker.door.close();
            }
            for _ in 0..FLIGHT {
                exec.update(defined.node, maker.make()).unwrap();
                exec.launch(&maker.stream).unwrap();
            }
            let waits = !maker.place.is_in_body();
            if waits {
                maker.door.until_someone_waits();
            }
            drop(exec);
            let held = maker.held();
            maker.door.open();
            assert!(!waits || held == FLIGHT + 1, "{maker:?}: {held} are held");
            maker.holds(1, "the executable is gone");
        }
    });
}

#[test]
fn a_node_that_the_definition_lost() {
    each(|maker| {
        let defined = maker.define();
        let mut exec = defined.graph.instantiate().unwrap();
        fly(maker, &mut exec, defined.node, 1, "before");
        defined.view.destroy(defined.node).unwrap();
        maker.holds(1, "the definition's node is gone");
        for _ in 0..TIMES {
            let refused = exec.update(defined.node, maker.make());
            assert!(
                matches!(refused, Err(Error::NodeGone { .. })),
                "{refused:?}"
            );
            assert_eq!(maker.held(), 1, "{maker:?}: what was refused stays");
        }
        exec.launch(&maker.stream).unwrap();
        maker.holds(1, "the executable runs it on");
        drop(exec);
        maker.holds(0, "nothing is left");
    });
}

/// A child is given other graphs, and nodes inside of it other operations, in turn.
#[test]
fn a_child_and_the_nodes_in_it() {
    let _alone = alone();
    settle();
    let stream = stream();
    for place in [Place::Child, Place::ChildInBody] {
        for kind in KINDS {
            if !place.takes(kind) || kind == Kind::Child {
                continue;
            }
            let maker = Maker::new(kind, place, &stream);
            let defined = maker.define();
            let mut exec = defined.graph.instantiate().unwrap();
            let child = match place {
                Place::Child => last(&defined.graph, NodeKind::Child),
                _ => {
                    let node = last(&defined.graph, NodeKind::Conditional);
                    let body = defined.graph.body(node.typed::<IfOp>().unwrap()).unwrap();
                    last(&body, NodeKind::Child)
                }
            };
            let child: Node<ChildOp> = child.typed().unwrap();
            for _ in 0..TIMES / FLIGHT {
                for _ in 0..FLIGHT {
                    let inner = Graph::new(&context()).unwrap();
                    inner.add(maker.make(), ()).unwrap();
                    exec.update(child, ChildOp::new(&inner)).unwrap();
                    exec.launch(&maker.stream).unwrap();
                }
                maker.holds(2, "the child's graph");
                for _ in 0..FLIGHT {
                    exec.update(defined.node, maker.make()).unwrap();
                    exec.launch(&maker.stream).unwrap();
                }
                // What the child's graph used is held at the child until that is updated.
                maker.holds(3, "the node in the child");
            }
            drop((exec, defined));
            maker.holds(0, "the end");
        }
    }
}

/// Launches in several streams, the thread's own among them.
#[test]
fn launches_in_several_streams() {
    let _alone = alone();
    settle();
    let (stream, other) = (stream(), stream());
    let own = context().per_thread_stream();
    for kind in KINDS {
        let maker = Maker::new(kind, Place::Root, &stream);
        let defined = maker.define();
        let mut exec = defined.graph.instantiate().unwrap();
        for turn in 0..TIMES {
            exec.update(defined.node, maker.make()).unwrap();
            let into = [&stream, &other, &own][turn % 3];
            exec.launch(into).unwrap();
            if turn % FLIGHT == 0 {
                other.synchronize().unwrap();
                own.synchronize().unwrap();
                maker.holds(2, "in several streams");
            }
        }
        drop((exec, defined));
        other.synchronize().unwrap();
        own.synchronize().unwrap();
        maker.holds(0, "the end");
    }
}

/// What was recorded, also by other code, and what is kept for it, goes with the last of the graph.
#[test]
fn what_is_kept_for_foreign_work() {
    let _alone = alone();
    settle();
    let stream = stream();
    let maker = Maker::new(Kind::Memset, Place::Root, &stream);
    for in_body in [false, true] {
        let block = |r: &mut dyn Recorder| {
            r.keep(maker.owner())?;
            let work = |stream: &Arc<CudaStream>| {
                let raw = stream.cu_stream();
                // SAFETY: the memory outlives every launch.
                unsafe { result::memset_d8_async(maker.address, 1, 8, raw) }?;
                Ok(())
            };
            // SAFETY: as above.
            unsafe { r.foreign(work) }?;
            r.record(maker.make()).map(drop)
        };
        let record = || {
            let (graph, ()) = Graph::capture(&stream, |path| match in_body {
                false => block(path),
                true => path.if_nonzero(&maker.flag, block),
            })
            .unwrap();
            graph
        };
        let graph = record();
        let mut exec = graph.instantiate().unwrap();
        drop(graph);
        maker.holds(2, "of a recording");
        for _ in 0..TIMES / FLIGHT {
            for _ in 0..FLIGHT {
                exec.update_from(&record()).unwrap();
                exec.launch(&stream).unwrap();
            }
            maker.holds(2, "of the last recording");
        }
        // A recording that fails holds nothing.
        let failed: Result<(Graph, ()), Error> = Graph::capture(&stream, |path| {
            block(path)?;
            Err(Error::RecordingOver)
        });
        failed.unwrap_err();
        maker.holds(2, "of the last recording that was whole");
        drop(exec);
        maker.holds(0, "the end");
    }
}
