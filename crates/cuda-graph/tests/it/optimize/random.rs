//! Random graphs of all kinds of nodes, with random edges too many, give the same bytes with every
//! set of passes as without; so do random updates, and nodes disabled and enabled again.

use std::collections::BTreeSet;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, OnceLock};

use cuda_graph::cudarc::driver::CudaStream;
use cuda_graph::{
    AnyOp, Buffer, ChildOp, CopyOp, Driver, EmptyOp, Exec, FillOp, Graph, HostOp, IfElseOp, IfOp,
    Kernel, KernelOp, Module, NodeId, NodeKind, Optimize, PinnedBuffer, Recorder, Result, WhileOp,
};

use super::{all_sets, optimized};
use crate::fixture::{context, one, stream};

/// `mix(to, from, salt)`: `*to = *to * 5 + *from * 3 + salt`. `decide(condition, left)`: counts
/// `left` down to nothing, and sets the condition to what is left. `count(left)` counts alone.
/// `spread(to, from, count, salt)`: thread i of `count` does to word i what `mix` does.
const PTX: &str = "
.version 7.0
.target sm_70
.address_size 64
.extern .func cudaGraphSetConditional(.param .b64 handle, .param .b32 value);

.visible .entry mix(.param .u64 to, .param .u64 from, .param .u32 salt)
{
    .reg .b32 %v, %w, %s;
    .reg .b64 %p, %q;
    ld.param.u64 %p, [to];
    ld.param.u64 %q, [from];
    ld.param.u32 %s, [salt];
    ld.global.u32 %v, [%p];
    ld.global.u32 %w, [%q];
    mad.lo.u32 %v, %v, 5, %s;
    mad.lo.u32 %v, %w, 3, %v;
    st.global.u32 [%p], %v;
    ret;
}

.visible .entry decide(.param .u64 condition, .param .u64 left)
{
    .reg .pred %none;
    .reg .b32 %v;
    .reg .b64 %c, %p;
    ld.param.u64 %c, [condition];
    ld.param.u64 %p, [left];
    ld.global.u32 %v, [%p];
    setp.eq.u32 %none, %v, 0;
    @!%none sub.u32 %v, %v, 1;
    st.global.u32 [%p], %v;
    {
        .param .b64 handle;
        .param .b32 value;
        st.param.b64 [handle], %c;
        st.param.b32 [value], %v;
        call.uni cudaGraphSetConditional, (handle, value);
    }
    ret;
}

.visible .entry count(.param .u64 left)
{
    .reg .pred %none;
    .reg .b32 %v;
    .reg .b64 %p;
    ld.param.u64 %p, [left];
    ld.global.u32 %v, [%p];
    setp.eq.u32 %none, %v, 0;
    @!%none sub.u32 %v, %v, 1;
    st.global.u32 [%p], %v;
    ret;
}

.visible .entry spread(.param .u64 to, .param .u64 from, .param .u32 count, .param .u32 salt)
{
    .reg .pred %out;
    .reg .b32 %v, %w, %s, %i, %n;
    .reg .b64 %p, %q, %at;
    mov.u32 %i, %ctaid.x;
    mov.u32 %n, %ntid.x;
    mov.u32 %v, %tid.x;
    mad.lo.u32 %i, %i, %n, %v;
    ld.param.u32 %n, [count];
    setp.ge.u32 %out, %i, %n;
    @%out ret;
    ld.param.u64 %p, [to];
    ld.param.u64 %q, [from];
    ld.param.u32 %s, [salt];
    mul.wide.u32 %at, %i, 4;
    add.u64 %p, %p, %at;
    add.u64 %q, %q, %at;
    ld.global.u32 %v, [%p];
    ld.global.u32 %w, [%q];
    mad.lo.u32 %v, %v, 5, %s;
    mad.lo.u32 %v, %w, 3, %v;
    st.global.u32 [%p], %v;
    ret;
}
";

pub fn kernel(name: &str) -> Kernel {
    static MODULE: OnceLock<Module> = OnceLock::new();
    let module = MODULE.get_or_init(|| Module::load(&context(), PTX).expect("it loads"));
    module.kernel(name).expect("it is there")
}

/// Random numbers.
pub struct Random(u64);

impl Random {
    pub fn new(seed: u64) -> Random {
        Random(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1)
    }

    pub fn below(&mut self, end: usize) -> usize {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        (self.0 >> 11) as usize % end.max(1)
    }

    pub fn one_in(&mut self, count: usize) -> bool {
        self.below(count) == 0
    }

    pub fn word(&mut self) -> u32 {
        self.below(1 << 30) as u32
    }
}

pub const CELLS: usize = 10;

/// The memory that graphs work on: the last two cells are the host's.
pub struct Cells {
    stream: Arc<CudaStream>,
    pub device: Vec<Buffer<u32>>,
    pub pinned: Vec<PinnedBuffer<u32>>,
    pub host: Arc<[AtomicU32; 2]>,
    /// What loops and branches look at, by depth.
    flags: Vec<Buffer<u32>>,
}

impl Cells {
    pub fn new() -> Cells {
        let stream = stream();
        let device = |_| Buffer::<u32>::zeroed(&stream, 4).expect("there is memory");
        let pinned = |_| PinnedBuffer::<u32>::zeroed(&context(), 4).expect("there is memory");
        Cells {
            device: (0..CELLS - 2).map(device).collect(),
            pinned: (0..2).map(pinned).collect(),
            host: Arc::default(),
            flags: (0..3)
                .map(|_| Buffer::zeroed(&stream, 1).expect("there is memory"))
                .collect(),
            stream,
        }
    }

    pub fn reset(&mut self) {
        for (at, cell) in (1..).zip(&self.device) {
            let words = [at * 77, at, at * 5 + 1, at * at];
            cell.copy_from_host(&self.stream, &words)
                .expect("it is copied");
        }
        self.stream.synchronize().expect("it is over");
        for (at, cell) in (1..).zip(&self.pinned) {
            cell.write(&[at * 1000, at, at + 7, at * 9])
                .expect("it has room");
        }
        self.host
            .iter()
            .for_each(|word| word.store(1, Ordering::Relaxed));
    }

    pub fn read(&self) -> Vec<u32> {
        self.stream.synchronize().expect("it is over");
        let device = self.device.iter();
        let mut words: Vec<u32> = device
            .flat_map(|cell| cell.to_host(&self.stream).expect("it is copied"))
            .collect();
        words.extend(self.pinned.iter().flat_map(|cell| cell.to_vec()));
        words.extend(self.host.iter().map(|word| word.load(Ordering::Relaxed)));
        words
    }
}

/// What a node does, and how it is made again with another number.
#[derive(Clone, Debug)]
enum Act {
    Mix(usize, usize),
    Fill(usize),
    Copy(usize, usize),
    Host(usize),
}

impl Act {
    fn random(random: &mut Random, in_body: bool) -> Act {
        let device = |random: &mut Random| random.below(CELLS - 2);
        match random.below(if in_body { 9 } else { 11 }) {
            0..5 => Act::Mix(device(random), device(random)),
            5..7 => Act::Fill(device(random)),
            7..9 => {
                let (to, from) = (random.below(CELLS), random.below(CELLS));
                match in_body && (to.max(from) >= CELLS - 2) || to == from {
                    true => Act::Fill(device(random)),
                    false => Act::Copy(to, from),
                }
            }
            _ => Act::Host(random.below(2)),
        }
    }

    /// What it reads and writes.
    fn touches(&self) -> (Vec<usize>, Vec<usize>) {
        match *self {
            Act::Mix(to, from) => (vec![to, from], vec![to]),
            Act::Fill(to) => (vec![], vec![to]),
            Act::Copy(to, from) => (vec![from], vec![to]),
            Act::Host(word) => (vec![CELLS + word], vec![CELLS + word]),
        }
    }

    fn op(&self, cells: &Cells, number: u32) -> AnyOp {
        match *self {
            Act::Mix(to, from) => {
                let (to, from) = (&cells.device[to], &cells.device[from]);
                // SAFETY: `mix` reads and writes a word of each.
                let op = unsafe { KernelOp::new(kernel("mix"), one(), (to, from, number)) };
                let op = op.expect("the arguments fit");
                // Some say what they touch.
                match number % 3 {
                    0 => op.into(),
                    _ => op.reads(from).writes(to).into(),
                }
            }
            Act::Fill(to) => FillOp::new(&cells.device[to], number)
                .expect("it fits")
                .into(),
            Act::Copy(to, from) => {
                let pinned = |at: usize| at.checked_sub(CELLS - 2).map(|at| &cells.pinned[at]);
                let op = match (pinned(to), pinned(from)) {
                    (Some(to), Some(from)) => CopyOp::new(to, from),
                    (Some(to), None) => CopyOp::new(to, &cells.device[from]),
                    (None, Some(from)) => CopyOp::new(&cells.device[to], from),
                    (None, None) => CopyOp::new(&cells.device[to], &cells.device[from]),
                };
                op.expect("they fit").into()
            }
            Act::Host(word) => {
                let host = cells.host.clone();
                HostOp::new(move || {
                    let old = host[word].load(Ordering::Relaxed);
                    host[word].store(old.wrapping_mul(7).wrapping_add(number), Ordering::Relaxed);
                })
                .into()
            }
        }
    }
}

/// What the nodes of a graph touch so far, for the edges that they need.
#[derive(Default)]
struct Touched {
    nodes: Vec<(NodeId, Vec<usize>, Vec<usize>)>,
}

impl Touched {
    /// The nodes that a new one must come after, and some more.
    fn before(&self, random: &mut Random, reads: &[usize], writes: &[usize]) -> Vec<NodeId> {
        let meets = |one: &[usize], other: &[usize]| one.iter().any(|cell| other.contains(cell));
        let mut before = Vec::new();
        let extra = 1 + random.below(12);
        for (node, read, written) in &self.nodes {
            let must = meets(written, reads) || meets(written, writes) || meets(read, writes);
            if must || random.one_in(extra) && extra < 10 {
                before.push(*node);
            }
        }
        before
    }
}

/// A node that updates may change.
struct Known {
    node: NodeId,
    act: Act,
}

struct Made {
    graph: Graph,
    known: Vec<Known>,
    /// It may have conditional nodes.
    branches: bool,
}

/// Fills a graph at random. Returns what it touches.
fn fill(
    random: &mut Random,
    cells: &Cells,
    graph: &Graph,
    root: &Graph,
    depth: usize,
    known: &mut Vec<Known>,
    may_branch: bool,
) -> (Vec<usize>, Vec<usize>) {
    let mut touched = Touched::default();
    let is_body = depth > 0;
    let mut last_branch: Option<NodeId> = None;
    for _ in 0..1 + random.below(if depth == 0 { 14 } else { 5 }) {
        let (mut reads, mut writes) = (Vec::new(), Vec::new());
        let node = match random.below(12) {
            0 => {
                let before = touched.before(random, &[], &[]);
                graph.add(EmptyOp::new(), before).expect("it is added").id()
            }
            1 | 2 if depth < 2 => {
                let child = Graph::new(&context()).expect("there is memory");
                let mut inner = Vec::new();
                (reads, writes) = fill(random, cells, &child, &child, 1, &mut inner, false);
                let before = touched.before(random, &reads, &writes);
                let node = graph
                    .add(ChildOp::new(&child), before)
                    .expect("it is added");
                let copy = graph.child(node).expect("it is there");
                for Known { node, act } in inner {
                    if let Some(node) = node.typed::<AnyOp>()
                        && let Ok(node) = child.find_in_clone(node, &copy)
                    {
                        known.push(Known {
                            node: node.id(),
                            act,
                        });
                    }
                }
                node.id()
            }
            3 | 4 if depth < 2 && may_branch => {
                // What counts its turns is a cell that nothing else touches.
                let condition = root.condition(Some(0)).expect("there is one");
                let left = random.below(CELLS - 2);
                // SAFETY: `decide` reads and writes a word, and sets the condition.
                let decide = || unsafe {
                    KernelOp::new(kernel("decide"), one(), (condition, &cells.device[left]))
                        .expect("the arguments fit")
                };
                // So that it ends soon.
                let low =
                    FillOp::new(&cells.device[left], random.below(4) as u32).expect("it fits");
                let mut inner = Vec::new();
                let kind = random.below(3);
                let mut before = touched.before(random, &[left], &[left]);
                before.extend(last_branch.filter(|last| !before.contains(last)));
                let low = graph.add(low, before).expect("it is added").id();
                let first = graph.add(decide(), low).expect("it is added").id();
                touched.nodes.push((low, vec![left], vec![left]));
                touched.nodes.push((first, vec![left], vec![left]));
                // Everything before: what the bodies touch is not known yet.
                let all: Vec<_> = touched.nodes.iter().map(|(node, ..)| *node).collect();
                let (node, bodies) = match kind {
                    0 => {
                        let node = graph.add(IfOp::new(&condition), all).expect("it is added");
                        (node.id(), graph.bodies(node))
                    }
                    1 => {
                        let node = graph.add(IfElseOp::new(&condition), all);
                        let node = node.expect("it is added");
                        (node.id(), graph.bodies(node))
                    }
                    _ => {
                        let node = graph
                            .add(WhileOp::new(&condition), all)
                            .expect("it is added");
                        (node.id(), graph.bodies(node))
                    }
                };
                for body in bodies.expect("they are there") {
                    let may_nest = depth == 0;
                    let (r, w) = fill(random, cells, &body, root, depth + 1, &mut inner, may_nest);
                    reads.extend(r);
                    writes.extend(w);
                    if kind == 2 {
                        // The body may have changed what counts.
                        let nodes = body.nodes().expect("they are there");
                        let low = FillOp::new(&cells.device[left], 0u32).expect("it fits");
                        let low = body.add(low, nodes).expect("it is added");
                        body.add(decide(), low).expect("it is added");
                    }
                }
                reads.push(left);
                writes.push(left);
                known.extend(inner);
                last_branch = Some(node);
                node
            }
            _ => {
                let act = Act::random(random, is_body);
                (reads, writes) = act.touches();
                let before = touched.before(random, &reads, &writes);
                let op = act.op(cells, random.word());
                let node = graph.add(op, before).expect("it is added").id();
                known.push(Known { node, act });
                node
            }
        };
        touched.nodes.push((node, reads, writes));
    }
    type Sides = (NodeId, Vec<usize>, Vec<usize>);
    let all = |side: fn(&Sides) -> &Vec<usize>| {
        touched
            .nodes
            .iter()
            .flat_map(|node| side(node).clone())
            .collect()
    };
    (all(|node| &node.1), all(|node| &node.2))
}

/// Records loops and branches, whose flags are cells that they alone write, with their fills and
/// kernels in a line.
fn record(
    random: &mut Random,
    cells: &Cells,
    r: &mut dyn Recorder,
    depth: usize,
    known: &mut Vec<Known>,
) -> Result<()> {
    // What counts turns at this depth, and what is worked on.
    let (flags, work) = (cells.flags.len(), CELLS - 2);
    let flag = cells.flags.get(depth);
    for _ in 0..1 + random.below(5) {
        match random.below(if depth < flags { 7 } else { 4 }) {
            0..4 => {
                let act = match Act::random(random, true) {
                    Act::Mix(to, from) => Act::Mix(to % work, from % work),
                    Act::Fill(to) => Act::Fill(to % work),
                    Act::Copy(to, from) if to % work != from % work => {
                        Act::Copy(to % work, from % work)
                    }
                    _ => Act::Fill(0),
                };
                let op = act.op(cells, random.word());
                if let Some(node) = r.record(op)? {
                    known.push(Known {
                        node: node.id(),
                        act,
                    });
                }
            }
            control => {
                let flag = flag.expect("there is one as deep as this");
                r.record(FillOp::new(flag, random.below([20, 6, 3][depth]) as u32)?)?;
                let mut inner = Vec::new();
                let body = &mut |r: &mut dyn Recorder| {
                    record(random, cells, r, depth + 1, &mut inner)?;
                    // SAFETY: `count` reads and writes a word.
                    let count = unsafe { KernelOp::new(kernel("count"), one(), (flag,)) }?;
                    r.record(count)?;
                    if random.one_in(3) {
                        record(random, cells, r, flags, &mut inner)?;
                    }
                    Ok(())
                };
                match control {
                    4 => r.do_while_nonzero(flag, body)?,
                    5 => r.while_nonzero(flag, body)?,
                    _ => r.if_nonzero(flag, body)?,
                }
                known.extend(inner);
            }
        }
    }
    Ok(())
}

fn make(seed: u64, cells: &Cells) -> Made {
    let mut random = Random::new(seed);
    if random.one_in(2) {
        let mut known = Vec::new();
        let recorded = Graph::record(&context(), |r| record(&mut random, cells, r, 0, &mut known));
        let (graph, ()) = recorded.expect("it is recorded");
        return Made {
            graph,
            known,
            branches: true,
        };
    }
    let graph = Graph::new(&context()).expect("there is memory");
    let mut known = Vec::new();
    let may_branch = random.one_in(2);
    fill(
        &mut random,
        cells,
        &graph,
        &graph,
        0,
        &mut known,
        may_branch,
    );
    Made {
        graph,
        known,
        branches: may_branch,
    }
}

/// Launches, updates and launches again. Returns what is in memory after each launch.
fn play(seed: u64, cells: &mut Cells, made: &Made, exec: &mut Exec) -> (Vec<Vec<u32>>, String) {
    let mut log = String::new();
    let mut random = Random::new(seed ^ 0x55);
    // On an H200 plain executables differ from run to run once a memset node is disabled, or a node
    // of a graph with conditional nodes (driver for CUDA 13.0, seeds 538 and 152): no order leads
    // through such a node.
    let driver = cuda_graph::device(0).expect("there is one").driver();
    let is_software = driver == Driver::Software;
    let may_disable = |node: NodeId| match node.kind() {
        NodeKind::Host => false,
        NodeKind::Fill => is_software,
        _ => is_software || !made.branches,
    };
    cells.reset();
    let mut seen = Vec::new();
    let mut off: Vec<NodeId> = Vec::new();
    for _ in 0..5 {
        exec.launch(&cells.stream).expect("it launches");
        seen.push(cells.read());
        log += "launch\n";
        for _ in 0..random.below(4) {
            if made.known.is_empty() {
                break;
            }
            let Known { node, act } = &made.known[random.below(made.known.len())];
            match random.below(4) {
                0 if may_disable(*node) => match off.iter().position(|other| other == node) {
                    Some(at) => {
                        off.remove(at);
                        log += &format!("enable {node:?}, {act:?}\n");
                        exec.enable(*node).expect("it is enabled");
                    }
                    None => {
                        off.push(*node);
                        log += &format!("disable {node:?}, {act:?}\n");
                        exec.disable(*node).expect("it is disabled");
                    }
                },
                _ => {
                    let op = act.op(cells, random.word());
                    log += &format!("update {node:?}, {act:?}\n");
                    let node = node.typed::<AnyOp>().expect("any node is of that type");
                    exec.update(node, op).expect("it is updated");
                }
            }
        }
        for node in &made.known {
            let is_off = off.contains(&node.node);
            if !matches!(node.node.kind(), NodeKind::Host) {
                assert_eq!(exec.is_enabled(node.node).expect("it is told"), !is_off);
            }
        }
    }
    (seen, log)
}

fn check(seed: u64, cells: &mut Cells, sets: &[Optimize], did: &mut BTreeSet<&str>) {
    let made = make(seed, cells);
    let wants = {
        let mut plain = made.graph.instantiate().expect("it instantiates");
        play(seed, cells, &made, &mut plain).0
    };
    for &set in sets {
        let mut exec = optimized(&made.graph, set);
        let report = exec.report().expect("there is one");
        let passes = report.passes.iter().flat_map(|pass| &pass.did);
        did.extend(passes.map(|(what, _)| *what));
        let (got, log) = play(seed, cells, &made, &mut exec);
        for (launch, (got, want)) in got.iter().zip(&wants).enumerate() {
            let differs = got.iter().zip(want).position(|(got, want)| got != want);
            if let Some(word) = differs {
                let report = exec.report().expect("there is one").to_string();
                drop(exec);
                let agrees = |_| {
                    let mut plain = made.graph.instantiate().expect("it instantiates");
                    play(seed, cells, &made, &mut plain).0 == wants
                };
                let agrees: Vec<bool> = (0..8).map(agrees).collect();
                panic!(
                    "seed {seed}, {set:?}: launch {launch}, word {word}\n{report}\n{log}\
                     got {got:?}\nnot {want:?}\nplain again: {agrees:?}"
                );
            }
        }
    }
}

/// The seeds to try: so many, or as many times more as is asked for.
pub fn seeds(count: u64) -> std::ops::Range<u64> {
    let number = |name: &str| {
        let value = std::env::var(name).ok()?;
        let number = value.parse::<u64>();
        Some(number.unwrap_or_else(|_| panic!("{name}={value} is no number")))
    };
    let times = number("CUDA_GRAPH_RANDOM").unwrap_or(1);
    let first = number("CUDA_GRAPH_SEED").unwrap_or(0);
    first..first + count * times
}

#[test]
fn passes_change_no_byte() {
    let mut cells = Cells::new();
    let sets = &all_sets()[1..];
    let mut did = BTreeSet::new();
    for seed in seeds(50) {
        check(seed, &mut cells, sets, &mut did);
    }
    assert!(did.len() >= 9, "{did:?}");
}
