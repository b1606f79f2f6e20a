//! Updates of nodes, plain launches and all others, beside an executable that takes no short way.
//!
//! An executable that was made elsewhere, and has a context of its own, asks everything of every
//! update. Another one, of the same graph made again, takes the short way where it can. Both are to
//! answer the same, run the same, tell the same and hold the same.

use std::collections::BTreeSet;
use std::sync::{Arc, OnceLock};

use cuda_graph::cudarc::driver::{CudaModule, CudaStream, sys};
use cuda_graph::cudarc::nvrtc::Ptx;
use cuda_graph::testing::settle;
use cuda_graph::{
    AnyOp, Arguments, Buffer, ChildOp, Error, Exec, FillOp, Graph, Kernel, KernelOp, Node, Owner,
    Param, Result,
};
use proptest::prelude::*;

use crate::fixture::{Watch, Watched, assert_soon, context, kernel, one, stream, words};
use crate::random::cases;

/// `of_N(to, ...)`: N arguments, all but the first numbers, of which it writes the sum.
fn of(count: usize) -> Kernel {
    static MODULE: OnceLock<Arc<CudaModule>> = OnceLock::new();
    let module = MODULE.get_or_init(|| {
        let mut text = String::from(".version 7.0\n.target sm_70\n.address_size 64\n");
        for count in [5, 6, 7, 9] {
            let more: String = (1..count).map(|n| format!(", .param .u32 a{n}")).collect();
            text += &format!(".visible .entry of_{count}(.param .u64 to{more})\n{{\n");
            text += ".reg .b32 %v, %w;\n.reg .b64 %p;\nld.param.u64 %p, [to];\nmov.u32 %v, 0;\n";
            for n in 1..count {
                text += &format!("ld.param.u32 %w, [a{n}];\nadd.u32 %v, %v, %w;\n");
            }
            text += "st.global.u32 [%p], %v;\nret;\n}\n";
        }
        text += ".visible .entry of_0()\n{\nret;\n}\n";
        let loaded = context().load_module(Ptx::from_src(text));
        loaded.expect("the kernels load")
    });
    let function = module.load_function(&format!("of_{count}"));
    Kernel::new(&function.expect("the kernel is there")).expect("its parameters are known")
}

/// What is told of an operation besides its arguments.
#[derive(Clone, Debug)]
enum More {
    Nothing,
    Label,
    Priority,
    Declared,
    Read,
    Assumed,
}

/// What an operation is, in whichever world.
#[derive(Clone, Debug)]
enum What {
    /// A kernel of so many arguments (2 to 9), or of none; where it writes; the value.
    Launch(usize, usize, usize, u32),
    Store(usize, usize, u32),
    /// With arguments by hand, which hold so many of the pool, and so many others.
    ByHand(usize, u32, Vec<usize>, usize),
    /// With an owner of its own.
    Fresh(u32),
    /// What another launch takes, taken anew.
    Again(usize, u32, Vec<usize>),
    Add(usize, usize),
    Mixed(usize, u8),
    Param(usize, u32),
    Fill(usize, u32),
    FillByKernel(usize, u32),
    /// The operation that was made so many before.
    Old(usize),
    /// What the executable says the node does.
    Own(usize),
}

#[derive(Clone, Debug)]
enum Step {
    /// Updates a node by an operation, told by its own type or not, which is kept or not.
    Update {
        node: usize,
        what: What,
        more: More,
        any: bool,
        keep: bool,
    },
    /// The same in the definition.
    Define(usize, What),
    /// The whole of it.
    UpdateAll,
    Pool(usize),
    Forget,
    Enable(usize, bool),
    Destroy(usize),
    Thread,
}

const POOL: usize = 3;
const NODES: usize = 8;

fn what() -> impl Strategy<Value = What> {
    let pool = prop_oneof![5 => prop::collection::vec(0..POOL, 1), 1 => prop::collection::vec(0..POOL, 0..6)];
    let many = prop_oneof![6 => Just(0usize), 1 => 248..260usize];
    let count = prop_oneof![Just(0usize), Just(5), Just(6), Just(7), Just(9)];
    prop_oneof![
        4 => (count, 0..3usize, 0..4usize, 0..5u32).prop_map(|(a, b, c, d)| What::Launch(a, b, c, d)),
        8 => (0..3usize, 0..4usize, 0..50u32).prop_map(|(a, b, c)| What::Store(a, b, c)),
        6 => (0..3usize, 0..50u32, pool.clone(), many).prop_map(|(a, b, c, d)| What::ByHand(a, b, c, d)),
        3 => (0..50u32).prop_map(What::Fresh),
        2 => (0..3usize, 0..50u32, pool).prop_map(|(a, b, c)| What::Again(a, b, c)),
        2 => (0..3usize, 0..3usize).prop_map(|(a, b)| What::Add(a, b)),
        1 => (0..3usize, any::<u8>()).prop_map(|(a, b)| What::Mixed(a, b)),
        1 => (0..3usize, 0..50u32).prop_map(|(a, b)| What::Param(a, b)),
        1 => (0..3usize, 0..50u32).prop_map(|(a, b)| What::Fill(a, b)),
        2 => (0..3usize, 0..50u32).prop_map(|(a, b)| What::FillByKernel(a, b)),
        3 => (0..9usize).prop_map(What::Old),
        1 => (0..NODES).prop_map(What::Own),
    ]
}

fn step() -> impl Strategy<Value = Step> {
    let more = prop_oneof![
        12 => Just(More::Nothing),
        1 => Just(More::Label),
        1 => Just(More::Priority),
        1 => Just(More::Declared),
        1 => Just(More::Read),
        1 => Just(More::Assumed),
    ];
    // Most of them go to a few nodes, so that one comes behind another.
    let node = prop_oneof![3 => Just(0usize), 2 => Just(1), 1 => 0..NODES];
    prop_oneof![
        20 => (node.clone(), what(), more, any::<bool>(), prop::bool::weighted(0.3))
            .prop_map(|(node, what, more, any, keep)| Step::Update { node, what, more, any, keep }),
        1 => (node.clone(), what()).prop_map(|(node, what)| Step::Define(node, what)),
        1 => Just(Step::UpdateAll),
        3 => (0..POOL).prop_map(Step::Pool),
        1 => Just(Step::Forget),
        1 => (node.clone(), any::<bool>()).prop_map(|(node, on)| Step::Enable(node, on)),
        1 => prop_oneof![4 => Just(Step::Forget), 1 => node.prop_map(Step::Destroy)],
        1 => Just(Step::Thread),
    ]
}

struct Held(#[expect(dead_code, reason = "its drop is what counts")] Watched);

/// Owners by their numbers.
type Numbers = BTreeSet<usize>;

struct World {
    stream: Arc<CudaStream>,
    buffers: Vec<Buffer<u32>>,
    watches: Vec<Watch>,
    /// Owners with their numbers.
    pool: Vec<(usize, Owner)>,
    /// Operations, and which owners each holds.
    made: Vec<(AnyOp, Numbers)>,
    /// Whom each node holds, in the executable and in the definition.
    held: [Vec<Numbers>; 2],
    graph: Graph,
    nodes: Vec<Node<AnyOp>>,
    exec: Exec,
}

impl World {
    fn new(is_raw: bool) -> World {
        let stream = stream();
        let buffers: Vec<_> = (0..3).map(|_| words(&stream, &[0; 4])).collect();
        let graph = Graph::new(&context()).unwrap();
        let (inner, other) = (
            Graph::new(&context()).unwrap(),
            Graph::new(&context()).unwrap(),
        );
        let put = |to: usize, value: u32| crate::fixture::store(&buffers[to], value);
        let mut nodes: Vec<Node<AnyOp>> = Vec::new();
        let fill = FillOp::new(&buffers[0], 5u32).unwrap();
        let by_kernel = FillOp::by_kernel(&buffers[1], 6u32).unwrap();
        let ops: [AnyOp; 6] = [
            put(0, 1).into(),
            put(1, 2).into(),
            put(0, 3).label("labelled").into(),
            put(1, 4).priority(0).into(),
            fill.into(),
            by_kernel.into(),
        ];
        for op in ops {
            let before = nodes.last().copied();
            nodes.push(graph.add(op, before).unwrap());
        }
        inner.add(put(2, 7), ()).unwrap();
        let child = graph
            .add(ChildOp::new(&inner), nodes.last().copied())
            .unwrap();
        let inside = graph.child(child).unwrap().nodes().unwrap()[0];
        nodes.push(inside.typed().unwrap());
        nodes.push(other.add(AnyOp::from(put(2, 8)), ()).unwrap());
        assert_eq!(nodes.len(), NODES);
        let exec = match is_raw {
            false => graph.instantiate().unwrap(),
            true => {
                let mut raw = std::ptr::null_mut();
                // SAFETY: the graph is alive, and the place for the answer is there. Nobody else
                // has the executable, which goes with what its nodes use.
                unsafe {
                    let made = sys::cuGraphInstantiateWithFlags(&mut raw, graph.raw().unwrap(), 0);
                    assert_eq!(made, sys::CUresult::CUDA_SUCCESS);
                    Exec::from_raw(raw, &context(), Some(&graph))
                }
            }
        };
        let mut world = World {
            stream,
            buffers,
            watches: Vec::new(),
            pool: Vec::new(),
            made: Vec::new(),
            held: [(); 2].map(|()| vec![Numbers::new(); NODES]),
            graph,
            nodes,
            exec,
        };
        world.pool = (0..POOL).map(|_| world.owner()).collect();
        world
    }

    fn owner(&mut self) -> (usize, Owner) {
        let (watch, watched) = Watch::new();
        self.watches.push(watch);
        (self.watches.len() - 1, Arc::new(Held(watched)))
    }

    fn by_hand(&self, mut arguments: Arguments, held: &[usize], more: usize) -> Arguments {
        held.iter()
            .for_each(|&number| arguments.keep(self.pool[number].1.clone()));
        // Always the same, so that they are the ones that are held already.
        (0..more).for_each(|_| arguments.keep(self.pool[0].1.clone()));
        arguments
    }

    #[track_caller]
    fn make(&mut self, what: &What) -> Option<(AnyOp, Numbers)> {
        let fresh = matches!(what, What::Fresh(_)).then(|| self.owner());
        let of_pool = |held: &[usize]| held.iter().map(|&number| self.pool[number].0).collect();
        let numbers = match what {
            What::ByHand(_, _, held, more) => {
                let others = (*more > 0).then(|| self.pool[0].0);
                &Numbers::from_iter(others) | &of_pool(held)
            }
            What::Again(_, _, held) => of_pool(held),
            What::Fresh(_) => fresh.iter().map(|(number, _)| *number).collect(),
            _ => Numbers::new(),
        };
        let part = |to: usize, at: usize| self.buffers[to].slice(at..4).unwrap();
        // SAFETY: each kernel writes a word, and reads one, where its buffer has it.
        let op: Result<KernelOp> = unsafe {
            match *what {
                What::Launch(count, to, at, v) => {
                    let (kernel, to) = (of(count), part(to, at));
                    match count {
                        0 => KernelOp::new(kernel, one(), ()),
                        5 => KernelOp::new(kernel, one(), (to, v, v, 1u32, 2u32)),
                        6 => KernelOp::new(kernel, one(), (to, v, v, 1u32, 2u32, v)),
                        7 => KernelOp::new(kernel, one(), (to, v, v, 1u32, 2u32, v, v)),
                        _ => KernelOp::new(kernel, one(), (to, v, v, 1u32, 2u32, v, v, v, v)),
                    }
                }
                What::Store(to, at, value) => {
                    KernelOp::new(kernel("store"), one(), (part(to, at), value))
                }
                What::ByHand(to, value, ref held, more) => {
                    let mut arguments = Arguments::default();
                    arguments.value(&self.buffers[to].address());
                    arguments.value(&value);
                    let buffer: Owner = self.buffers[to].owner();
                    let mut arguments = self.by_hand(arguments, held, more);
                    arguments.keep(buffer);
                    KernelOp::new(kernel("store"), one(), arguments)
                }
                What::Fresh(value) => {
                    let mut arguments = Arguments::default();
                    arguments.value(&self.buffers[0].address());
                    arguments.value(&value);
                    fresh
                        .into_iter()
                        .for_each(|(_, owner)| arguments.keep(owner));
                    KernelOp::new(kernel("store"), one(), arguments)
                }
                What::Again(to, value, ref held) => {
                    let first = KernelOp::new(kernel("store"), one(), (part(to, 0), value)).ok()?;
                    let arguments = self.by_hand(first.arguments().clone(), held, 0);
                    KernelOp::new(kernel("store"), one(), arguments)
                }
                What::Add(to, from) => {
                    KernelOp::new(kernel("add"), one(), (part(to, 0), part(from, 1)))
                }
                What::Mixed(to, a) => KernelOp::new(
                    kernel("mixed"),
                    one(),
                    (part(to, 0), a, 0.5f64, [1u8; 12], 3u16),
                ),
                What::Param(to, value) => {
                    let value = Param::with_value("value", value);
                    KernelOp::new(kernel("store"), one(), (part(to, 0), &value))
                }
                What::Fill(to, value) => {
                    return Some((FillOp::new(&part(to, 0), value).ok()?.into(), numbers));
                }
                What::FillByKernel(to, value) => {
                    return Some((FillOp::by_kernel(&part(to, 0), value).ok()?.into(), numbers));
                }
                What::Old(back) => {
                    let at = self.made.len().checked_sub(back + 1)?;
                    return Some(self.made[at].clone());
                }
                What::Own(node) => {
                    let op = self.exec.op(self.nodes[node]).ok()?;
                    return Some((op, self.held[0][node].clone()));
                }
            }
        };
        Some((op.expect("the arguments fit").into(), numbers))
    }

    /// The same operation, with more told of it.
    fn with(&self, op: AnyOp, numbers: Numbers, more: &More) -> (AnyOp, Numbers) {
        let launch = match op {
            AnyOp::Kernel(op) => op,
            op => return (op, numbers),
        };
        // What is read back holds nothing.
        let numbers = match more {
            More::Read | More::Assumed => Numbers::new(),
            _ => numbers,
        };
        let op = match more {
            More::Nothing => launch,
            More::Label => launch.label("told"),
            More::Priority => launch.priority(0),
            More::Declared => launch.writes(&self.buffers[0]),
            More::Read => self.read(launch),
            // SAFETY: the buffers and kernels live longer than what runs here.
            More::Assumed => unsafe { self.read(launch).assume_owned() },
        };
        (op.into(), numbers)
    }

    /// The launch, as it is read back from a node that this library does not know.
    fn read(&self, op: KernelOp) -> KernelOp {
        let graph = Graph::new(&context()).unwrap();
        let node = graph.add(op, ()).unwrap();
        // SAFETY: the graph outlives the view, and the node is one of it.
        unsafe {
            let seen = Graph::from_raw_borrowed(graph.raw().unwrap(), &context());
            let node = seen.node_from_raw(graph.raw_node(node).unwrap()).unwrap();
            seen.op(node.typed::<KernelOp>().unwrap()).unwrap()
        }
    }

    /// Does a step. Returns what came of it.
    fn step(&mut self, step: &Step) -> String {
        let done = match step {
            Step::Update {
                node,
                what,
                more,
                any,
                keep,
            } => {
                let Some((op, numbers)) = self.make(what) else {
                    return "there is none".into();
                };
                let (op, numbers) = match what {
                    What::Old(_) | What::Own(_) => (op, numbers),
                    _ => self.with(op, numbers, more),
                };
                let told = self.tell(&op);
                let id = self.nodes[*node].id();
                if *keep {
                    self.made.push((op.clone(), numbers.clone()));
                }
                let done = match (op, any) {
                    (AnyOp::Kernel(op), false) => {
                        let Some(node) = id.typed::<KernelOp>() else {
                            return "another type".into();
                        };
                        self.exec.update(node, op)
                    }
                    (AnyOp::Fill(op), false) => {
                        let Some(node) = id.typed::<FillOp>() else {
                            return "another type".into();
                        };
                        self.exec.update(node, &op)
                    }
                    (op, _) => self.exec.update(self.nodes[*node], op),
                };
                if done.is_ok() {
                    self.held[0][*node] = numbers;
                    assert_eq!(self.told(*node), told);
                }
                done
            }
            Step::Define(node, what) => {
                let Some((op, numbers)) = self.make(what) else {
                    return "there is none".into();
                };
                let done = self.graph.update(self.nodes[*node], op);
                if done.is_ok() {
                    self.held[1][*node] = numbers;
                }
                done
            }
            Step::UpdateAll => {
                let done = self.exec.update_in_place(&self.graph);
                if done.is_ok() {
                    self.held[0] = self.held[1].clone();
                }
                done
            }
            Step::Pool(number) => {
                self.pool[*number] = self.owner();
                Ok(())
            }
            Step::Forget => {
                self.made.clear();
                Ok(())
            }
            Step::Enable(node, true) => self.exec.enable(self.nodes[*node]),
            Step::Enable(node, false) => self.exec.disable(self.nodes[*node]),
            Step::Destroy(node) => {
                let done = self.graph.destroy(self.nodes[*node]);
                if done.is_ok() {
                    self.held[1][*node] = Numbers::new();
                }
                done
            }
            Step::Thread => Ok(()),
        };
        match done {
            Ok(()) => "done".into(),
            Err(error) => without_numbers(&error),
        }
    }

    /// What a launch writes.
    fn run(&mut self) -> Vec<Vec<u32>> {
        for buffer in &self.buffers {
            buffer.copy_from_host(&self.stream, &[u32::MAX; 4]).unwrap();
        }
        self.exec.launch(&self.stream).unwrap();
        self.stream.synchronize().unwrap();
        let read = |buffer: &Buffer<u32>| buffer.to_host(&self.stream).unwrap();
        self.buffers.iter().map(read).collect()
    }

    /// What the executable tells of a node.
    fn told(&self, node: usize) -> String {
        match self.exec.op(self.nodes[node]) {
            Ok(op) => self.tell(&op),
            Err(error) => without_numbers(&error),
        }
    }

    fn tell(&self, op: &AnyOp) -> String {
        let mut told = format!("{:?} {:?} {:?}", op.kind(), op.label_text(), op.location());
        match op {
            AnyOp::Kernel(op) => {
                let arguments = op.arguments();
                let argument = |number| arguments.get(number).map(|bytes| self.placed(bytes));
                let all: Vec<_> = (0..arguments.len()).map(argument).collect();
                told += &format!(" {} {:?} {all:?}", op.kernel().name(), op.attributes());
            }
            AnyOp::Fill(op) => {
                let at = self.placed(&op.to().address().to_ne_bytes());
                told += &format!(" {at} {:?}", op.value());
            }
            _ => {}
        }
        told
    }

    /// Bytes, or where an address is.
    fn placed(&self, bytes: &[u8]) -> String {
        let address = bytes.try_into().map(u64::from_ne_bytes);
        let mut buffers = self.buffers.iter().enumerate();
        let place = |(number, buffer): (usize, &Buffer<u32>)| {
            let at = address.ok()?.checked_sub(buffer.address())?;
            (at < 16).then(|| format!("buffer {number} at {at}"))
        };
        buffers
            .find_map(place)
            .unwrap_or_else(|| format!("{bytes:?}"))
    }

    /// Who is to be alive.
    fn wanted(&self) -> Numbers {
        let pool = self.pool.iter().map(|(number, _)| *number);
        let made = self.made.iter().flat_map(|(_, numbers)| numbers);
        let held = self.held.iter().flatten().flatten();
        made.chain(held).copied().chain(pool).collect()
    }

    fn alive(&self) -> BTreeSet<usize> {
        let watches = self.watches.iter().enumerate();
        let alive = watches.filter(|(_, watch)| !watch.is_dropped());
        alive.map(|(number, _)| number).collect()
    }
}

/// An error's first line without the numbers of graphs, which differ.
fn without_numbers(error: &Error) -> String {
    let text = error.to_string();
    let first = text.lines().next().unwrap_or_default();
    first.replace(|c: char| c.is_ascii_digit(), "")
}

fn check(steps: &[Step]) {
    let (mut short, mut long) = (World::new(false), World::new(true));
    for step in steps {
        let done = match step {
            // Somewhere else from here on.
            Step::Thread => {
                let moved = std::thread::spawn(move || (short.step(&Step::Thread), short));
                let done;
                (done, short) = moved.join().unwrap();
                done
            }
            step => short.step(step),
        };
        assert_eq!(done, long.step(step), "{step:?}");
        for node in 0..NODES {
            assert_eq!(short.told(node), long.told(node), "node {node}, {step:?}");
        }
        assert_eq!(short.run(), long.run(), "{step:?}");
        settle();
        for world in [&short, &long] {
            let is_right = || world.alive() == world.wanted();
            assert_soon(
                is_right,
                &format!("other owners are alive than should: {step:?}"),
            );
        }
    }
    let (all, pool) = (short.watches.clone(), long.watches.clone());
    drop((short, long));
    settle();
    let gone = || all.iter().chain(&pool).all(Watch::is_dropped);
    assert_soon(gone, "owners stay");
}

proptest! {
    #![proptest_config(ProptestConfig { max_shrink_iters: 0, ..cases(200) })]

    #[test]
    fn the_short_way_is_the_long_one(steps in prop::collection::vec(step(), 1..40)) {
        check(&steps);
    }
}
