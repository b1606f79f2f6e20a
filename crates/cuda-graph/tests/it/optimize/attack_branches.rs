//! Branches, checkpoints and loops that passes rewrote, beside the plain ones: random programs of
//! them, and scenes that meant to break them.

use std::cell::RefCell;
use std::collections::HashMap;
use std::sync::{Arc, OnceLock};

use cuda_graph::cudarc::driver::{CudaModule, CudaStream, PushKernelArg};
use cuda_graph::cudarc::nvrtc::Ptx;
use cuda_graph::testing::with_failing_call;
use cuda_graph::{
    Body, Buffer, ChildOp, Eager, Exec, FillOp, Graph, InstantiateOptions, Kernel, KernelArguments,
    KernelOp, Module, Node, NodeId, NodeKind, Optimize, Param, Pass, PinnedBuffer, RawMemory,
    Recorder, Replay, ReplayOptions, Result, Updated,
};

use super::optimized;
use super::random::{Random, seeds};
use crate::fixture::{Watch, alone, assert_soon, context, is_software, one, store, stream, words};

/// `mix(to, from, by)`: `to` becomes 3 times what it was, what `from` is and `by`. `mask(to, from,
/// bits)`: `to` becomes what `from` has of these bits. `put(to, value)`. `down(to)`: one less, but
/// not below 0. `imix(go, to, by)` and `istep(go, left)` do nothing where `go` is 0: the first
/// mixes, the second counts, and clears `go` at the end.
const PTX: &str = "
.version 7.0
.target sm_70
.address_size 64
.visible .entry mix(.param .u64 to, .param .u64 from, .param .u32 by)
{
    .reg .b32 %v, %w, %by;
    .reg .b64 %p, %q;
    ld.param.u64 %p, [to];
    ld.param.u64 %q, [from];
    ld.param.u32 %by, [by];
    ld.global.u32 %v, [%p];
    ld.global.u32 %w, [%q];
    mad.lo.u32 %v, %v, 3, %by;
    add.u32 %v, %v, %w;
    st.global.u32 [%p], %v;
    ret;
}
.visible .entry mask(.param .u64 to, .param .u64 from, .param .u32 bits)
{
    .reg .b32 %v, %bits;
    .reg .b64 %p;
    ld.param.u64 %p, [from];
    ld.param.u32 %bits, [bits];
    ld.global.u32 %v, [%p];
    and.b32 %v, %v, %bits;
    ld.param.u64 %p, [to];
    st.global.u32 [%p], %v;
    ret;
}
.visible .entry put(.param .u64 to, .param .u32 value)
{
    .reg .b32 %v;
    .reg .b64 %p;
    ld.param.u64 %p, [to];
    ld.param.u32 %v, [value];
    st.global.u32 [%p], %v;
    ret;
}
.visible .entry down(.param .u64 to)
{
    .reg .pred %q;
    .reg .b32 %v;
    .reg .b64 %p;
    ld.param.u64 %p, [to];
    ld.global.u32 %v, [%p];
    setp.ne.u32 %q, %v, 0;
    @%q sub.u32 %v, %v, 1;
    st.global.u32 [%p], %v;
    ret;
}
.visible .entry imix(.param .u64 go, .param .u64 to, .param .u32 by)
{
    .reg .pred %q;
    .reg .b32 %v, %by;
    .reg .b64 %p;
    ld.param.u64 %p, [go];
    ld.global.u32 %v, [%p];
    setp.eq.u32 %q, %v, 0;
    @%q ret;
    ld.param.u64 %p, [to];
    ld.param.u32 %by, [by];
    ld.global.u32 %v, [%p];
    mad.lo.u32 %v, %v, 3, %by;
    st.global.u32 [%p], %v;
    ret;
}
.visible .entry istep(.param .u64 go, .param .u64 left)
{
    .reg .pred %q;
    .reg .b32 %v;
    .reg .b64 %go, %p;
    ld.param.u64 %go, [go];
    ld.global.u32 %v, [%go];
    setp.eq.u32 %q, %v, 0;
    @%q ret;
    ld.param.u64 %p, [left];
    ld.global.u32 %v, [%p];
    setp.ne.u32 %q, %v, 0;
    @%q sub.u32 %v, %v, 1;
    st.global.u32 [%p], %v;
    setp.eq.u32 %q, %v, 0;
    @%q st.global.u32 [%go], 0;
    ret;
}
";

/// A kernel whose PTX the library knows, or does not.
fn found(name: &str, is_known: bool) -> &'static Kernel {
    type Kernels = [HashMap<&'static str, Kernel>; 2];
    static FOUND: OnceLock<Kernels> = OnceLock::new();
    let found = FOUND.get_or_init(|| {
        let names = ["mix", "mask", "put", "down", "imix", "istep"];
        let module = Module::load(&context(), PTX).expect("it is PTX");
        let known = names.map(|name| (name, module.kernel(name).expect("it is there")));
        let unknown = |name| Kernel::new(&unknown().load_function(name).unwrap()).unwrap();
        [names.map(|name| (name, unknown(name))).into(), known.into()]
    });
    &found[usize::from(is_known)][name]
}

/// The kernels, of a module that the library does not know the PTX of.
fn unknown() -> &'static Arc<CudaModule> {
    static UNKNOWN: OnceLock<Arc<CudaModule>> = OnceLock::new();
    UNKNOWN.get_or_init(|| context().load_module(Ptx::from_src(PTX)).unwrap())
}

fn kernel(name: &str, is_known: bool, arguments: impl KernelArguments) -> KernelOp {
    // SAFETY: the kernels read and write words, which the arguments name.
    unsafe { KernelOp::new(found(name, is_known), one(), arguments) }.expect("they fit")
}

const LANES: usize = 3;
const CELLS: usize = 3;
const FLAGS: usize = 3;
const DEPTHS: usize = 4;

/// The memory of what may run side by side with other lanes.
struct Lane {
    cells: Vec<Buffer<u32>>,
    flags: Vec<Buffer<u32>>,
    /// One more flag, which the host has.
    pinned: PinnedBuffer<u32>,
    left: Vec<Buffer<u32>>,
    go: Vec<Buffer<u32>>,
    /// It is always 1.
    on: Buffer<u32>,
}

struct Scene {
    stream: Arc<CudaStream>,
    lanes: Vec<Lane>,
}

impl Scene {
    fn new() -> Scene {
        let stream = stream();
        let some = |count| (0..count).map(|_| words(&stream, &[0])).collect();
        let lane = |_| Lane {
            cells: some(CELLS),
            flags: some(FLAGS),
            pinned: PinnedBuffer::zeroed(&context(), 1).unwrap(),
            left: some(DEPTHS),
            go: some(DEPTHS),
            on: words(&stream, &[1]),
        };
        Scene {
            lanes: (0..LANES).map(lane).collect(),
            stream,
        }
    }

    fn buffers(&self) -> impl Iterator<Item = &Buffer<u32>> {
        let lanes = self.lanes.iter();
        lanes.flat_map(|lane| lane.cells.iter().chain(&lane.flags))
    }

    fn reset(&mut self, with: u64) {
        for (at, buffer) in (1..).zip(self.buffers()) {
            let value = hash(with, at) as u32;
            buffer.copy_from_host(&self.stream, &[value]).unwrap();
        }
        for buffer in self
            .lanes
            .iter()
            .flat_map(|lane| lane.left.iter().chain(&lane.go))
        {
            buffer.copy_from_host(&self.stream, &[0]).unwrap();
        }
        self.stream.synchronize().unwrap();
        for lane in &mut self.lanes {
            lane.pinned.write(&[hash(with, 77) as u32 % 2]).unwrap();
        }
    }

    fn read(&self) -> Vec<u32> {
        self.stream.synchronize().unwrap();
        let mut all: Vec<u32> = (self.buffers())
            .chain(
                self.lanes
                    .iter()
                    .flat_map(|lane| lane.left.iter().chain(&lane.go)),
            )
            .map(|buffer| buffer.to_host(&self.stream).unwrap()[0])
            .collect();
        all.extend(self.lanes.iter().map(|lane| lane.pinned.to_vec()[0]));
        all
    }
}

fn hash(with: u64, at: u64) -> u64 {
    let mut z = with
        .wrapping_mul(0x9e37_79b9_7f4a_7c15)
        .wrapping_add(at.wrapping_mul(0xbf58_476d_1ce4_e5b9))
        .wrapping_add(0x1234_5678);
    z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    z ^ (z >> 31)
}

/// A program. Numbers tell places apart: with them and a number of the whole, what they do is
/// chosen.
#[derive(Clone, Debug)]
enum Act {
    Mix(u64),
    Mask(u64),
    Child(u64),
    If(u64, Vec<Act>),
    IfElse(u64, Vec<Act>, Vec<Act>),
    Switch(u64, Vec<Vec<Act>>),
    /// In which depth it counts, and whether the body runs first.
    Loop(u64, usize, bool, Vec<Act>),
    /// A loop of idle kernels.
    Idle(u64, usize, bool, Vec<u64>),
    Side(Vec<Vec<Act>>),
    Check(u64),
}

struct Maker {
    random: Random,
    next: u64,
    checks: bool,
}

impl Maker {
    fn acts(&mut self, depth: usize, in_side: bool) -> Vec<Act> {
        let count = 1 + self.random.below(4);
        (0..count).map(|_| self.act(depth, in_side)).collect()
    }

    fn act(&mut self, depth: usize, in_side: bool) -> Act {
        self.next += 1;
        let id = self.next;
        let ends = depth >= DEPTHS - 1;
        match self.random.below(if ends { 6 } else { 16 }) {
            0..3 => Act::Mix(id),
            3 => Act::Mask(id),
            4 if self.random.one_in(3) => Act::Child(id),
            5 if self.checks && !in_side => Act::Check(id),
            4 | 5 => Act::Mix(id),
            6..9 => Act::If(id, self.acts(depth + 1, in_side)),
            9 | 10 => {
                let then = self.acts(depth + 1, in_side);
                Act::IfElse(id, then, self.acts(depth + 1, in_side))
            }
            11 if self.random.one_in(3) => {
                let cases = (0..2).map(|_| self.acts(depth + 1, in_side)).collect();
                Act::Switch(id, cases)
            }
            11..14 => {
                let is_first = self.random.one_in(2);
                Act::Loop(id, depth, is_first, self.acts(depth + 1, in_side))
            }
            14 => {
                let is_first = self.random.one_in(2);
                let count = 1 + self.random.below(3) as u64;
                self.next += count;
                let ids = (id + 1..=id + count).collect();
                Act::Idle(id, depth, is_first, ids)
            }
            _ if depth == 0 && !in_side => {
                let sides = (1..LANES).map(|_| self.acts(depth + 1, true)).collect();
                Act::Side(sides)
            }
            _ => Act::Mix(id),
        }
    }
}

/// Which kernel of a program a node is, in which lane and depth.
#[derive(Clone, Copy, Debug)]
enum What {
    Mix(u64, usize),
    Mask(u64, usize),
    Idle(u64, usize, usize),
}

/// A program with values.
struct Step<'a> {
    scene: &'a Scene,
    with: u64,
    nodes: RefCell<Vec<(NodeId, What)>>,
}

impl<'a> Step<'a> {
    fn new(scene: &'a Scene, with: u64) -> Step<'a> {
        Step {
            scene,
            with,
            nodes: RefCell::default(),
        }
    }

    fn op(&self, what: What, with: u64, is_known: bool) -> KernelOp {
        match what {
            What::Mix(id, lane) => {
                let lane = &self.scene.lanes[lane];
                let at = hash(with, id);
                let (to, from) = (at as usize % CELLS, (at >> 8) as usize % CELLS);
                let arguments = (&lane.cells[to], &lane.cells[from], (at >> 16) as u32);
                kernel("mix", is_known, arguments)
            }
            What::Mask(id, lane) => {
                let lane = &self.scene.lanes[lane];
                let at = hash(with, id);
                let (to, from) = (at as usize % (FLAGS + 1), (at >> 8) as usize % CELLS);
                let bits = 1u32 << ((at >> 16) % 6);
                match lane.flags.get(to) {
                    Some(to) => kernel("mask", is_known, (to, &lane.cells[from], bits)),
                    None => kernel("mask", is_known, (&lane.pinned, &lane.cells[from], bits)),
                }
            }
            What::Idle(id, lane, depth) => {
                let lane = &self.scene.lanes[lane];
                let at = hash(with, id);
                let go = match at >> 40 & 7 {
                    0 => &lane.on,
                    _ => &lane.go[depth],
                };
                let to = &lane.cells[at as usize % CELLS];
                let op = kernel("imix", is_known, (go, to, (at >> 16) as u32));
                match at >> 44 & 7 {
                    0 => op,
                    _ => op.idle_without(go),
                }
            }
        }
    }

    fn flag(&self, id: u64, lane: usize) -> &'a dyn cuda_graph::Flag {
        let lane = &self.scene.lanes[lane];
        match hash(self.with, id ^ 0x5555) as usize % (FLAGS + 1) {
            FLAGS => &lane.pinned,
            at => &lane.flags[at],
        }
    }

    fn put(&self, r: &mut dyn Recorder, what: What) -> Result<()> {
        let is_known = match what {
            What::Idle(id, ..) => hash(self.with, id) >> 50 & 1 == 0,
            _ => !hash(self.with, 99).is_multiple_of(50),
        };
        if let Some(node) = r.record(self.op(what, self.with, is_known))? {
            self.nodes.borrow_mut().push((node.id(), what));
        }
        Ok(())
    }

    fn all(&self, r: &mut dyn Recorder, acts: &[Act], lane: usize) -> Result<()> {
        acts.iter().try_for_each(|act| self.one(r, act, lane))
    }

    fn one(&self, r: &mut dyn Recorder, act: &Act, lane: usize) -> Result<()> {
        let own = &self.scene.lanes[lane];
        match act {
            Act::Mix(id) => self.put(r, What::Mix(*id, lane)),
            Act::Mask(id) => self.put(r, What::Mask(*id, lane)),
            Act::Child(id) => {
                let graph = Graph::new(&context())?;
                let first = graph.add(self.op(What::Mix(*id, lane), self.with, true), ())?;
                let other = self.op(What::Mix(*id ^ 1 << 30, lane), self.with, true);
                graph.add(other, first)?;
                r.record(ChildOp::new(&graph)).map(drop)
            }
            Act::If(id, body) => r.if_nonzero(self.flag(*id, lane), |r| self.all(r, body, lane)),
            Act::IfElse(id, then, other) => r.if_else_nonzero(
                self.flag(*id, lane),
                |r| self.all(r, then, lane),
                |r| self.all(r, other, lane),
            ),
            Act::Switch(id, cases) => {
                let case = |at: usize| move |r: &mut dyn Recorder| self.all(r, &cases[at], lane);
                let (mut first, mut second) = (case(0), case(1));
                r.switch_on(self.flag(*id, lane), &mut [&mut first, &mut second])
            }
            Act::Loop(id, depth, is_first, body) => {
                let left = &own.left[*depth];
                let turns = hash(self.with, id ^ 0x777) % [20, 5, 3, 2][*depth];
                r.record(kernel("put", true, (left, turns as u32)))?;
                let body = |r: &mut dyn Recorder| {
                    self.all(r, body, lane)?;
                    r.record(kernel("down", true, (left,)))?;
                    match hash(self.with, id ^ 0x888) % 2 {
                        _ if self.with.is_multiple_of(2) => Ok(()),
                        _ => self.put(r, What::Mix(id ^ 1 << 20, lane)),
                    }
                };
                match is_first {
                    true => r.do_while_nonzero(left, body),
                    false => r.while_nonzero(left, body),
                }
            }
            Act::Idle(id, depth, is_first, ids) => {
                let (left, go) = (&own.left[*depth], &own.go[*depth]);
                let turns = (hash(self.with, id ^ 0x777) % [40, 20, 9, 3][*depth]) as u32;
                r.record(kernel("put", true, (left, turns)))?;
                r.record(kernel("put", true, (go, turns.min(1))))?;
                let body = |r: &mut dyn Recorder| {
                    for id in ids {
                        self.put(r, What::Idle(*id, lane, *depth))?;
                    }
                    let step = kernel("istep", true, (go, left));
                    r.record(step.idle_without(go)).map(drop)
                };
                match is_first {
                    true => r.do_while_nonzero(go, body),
                    false => r.while_nonzero(go, body),
                }
            }
            Act::Side(sides) => {
                let side = |at: usize| move |r: &mut dyn Recorder| self.all(r, &sides[at], at + 1);
                let (mut first, mut second) = (side(0), side(1));
                let sides: &mut [&mut Body<'_>] = &mut [&mut first, &mut second];
                r.parallel(sides)
            }
            Act::Check(id) => r.checkpoint(format!("{id}"), self.flag(*id, lane)),
        }
    }
}

fn sets() -> Vec<Optimize> {
    let guards = Optimize::from(Pass::Branches);
    vec![
        guards,
        guards.with(Pass::Loops),
        guards.with(Pass::Loops).with(Pass::Transfers).unroll(2),
        Optimize::ALL,
        Optimize::ALL.unroll(3),
        Optimize::ALL.without(Pass::Programmatic),
        Optimize::ALL.without(Pass::Inline).without(Pass::Edges),
    ]
}

/// Launches, updates and launches. Returns the memory after each launch.
fn play(
    seed: u64,
    scene: &mut Scene,
    acts: &[Act],
    others: &[Vec<Act>],
    optimize: Optimize,
) -> (Vec<Vec<u32>>, String) {
    let mut random = Random::new(seed ^ 0x1111);
    let (mut log, mut seen) = (String::new(), Vec::new());
    let made = |scene: &Scene, acts: &[Act], with: u64| {
        let step = Step::new(scene, with);
        let (graph, ()) = Graph::record(&context(), |r| step.all(r, acts, 0)).expect("it is sound");
        (graph, step.nodes.into_inner())
    };
    // The same number parts the shapes.
    let (graph, mut nodes) = made(scene, acts, seed * 1000);
    let mut exec = optimized(&graph, optimize);
    let mut off: Vec<NodeId> = Vec::new();
    // Whose word says where it stops.
    let mut told = graph.checkpoints();
    for round in 0..6 {
        scene.reset(hash(seed, round));
        exec.launch(&scene.stream).expect("it launches");
        seen.push(scene.read());
        log += &format!("launch {round}\n");
        // Twice, with what the first left.
        exec.launch(&scene.stream).expect("it launches");
        seen.push(scene.read());
        let checked: Vec<_> = told
            .iter()
            .map(|it| {
                it.stopped(&scene.stream)
                    .unwrap()
                    .map_or(0, |name| name.parse().unwrap())
            })
            .collect();
        seen.push(checked);
        for _ in 0..random.below(4) {
            let (kind, which, value) = (random.below(10), random.below(1000), random.word());
            match kind {
                0 | 1 => {
                    let with = seed * 1000 + 2 * (1 + u64::from(value) % 100);
                    log += &format!("whole update to {with}\n");
                    let (other, _) = made(scene, acts, with);
                    match exec.update_in_place(&other) {
                        Ok(()) => told = other.checkpoints(),
                        Err(error) => {
                            log += &format!("refused: {error}\n");
                            seen.push(vec![12345]);
                        }
                    }
                }
                2 if random.one_in(3) => {
                    let acts = &others[which % others.len()];
                    let with = seed * 1000 + 2 * (1 + u64::from(value) % 100);
                    log += &format!("another program with {with}\n");
                    let (other, others) = made(scene, acts, with);
                    let updated = exec.update_from(&other).expect("it may be");
                    told = other.checkpoints();
                    seen.push(vec![u32::from(updated == Updated::InPlace), 54321]);
                    if updated != Updated::InPlace {
                        nodes = others;
                        off.clear();
                    }
                }
                _ if nodes.is_empty() => {}
                3 | 4 => {
                    let (node, what) = nodes[which % nodes.len()];
                    let at = off.iter().position(|other| *other == node);
                    log += &format!("turn {node:?} {what:?}, was off: {}\n", at.is_some());
                    match at {
                        Some(at) => {
                            off.remove(at);
                            exec.enable(node).expect("it is enabled");
                        }
                        None => {
                            off.push(node);
                            exec.disable(node).expect("it is disabled");
                        }
                    }
                }
                _ => {
                    let (node, what) = nodes[which % nodes.len()];
                    let is_known = value % 16 != 0;
                    log += &format!("update {node:?} {what:?} {value} {is_known}\n");
                    let op = Step::new(scene, 0).op(what, u64::from(value), is_known);
                    let node = node.typed::<KernelOp>().expect("a kernel");
                    exec.update(node, op).expect("it is updated");
                }
            }
        }
        for (node, _) in &nodes {
            let is_on = exec.is_enabled(*node).expect("it is told");
            assert_eq!(is_on, !off.contains(node), "{node:?}\n{log}");
        }
    }
    if let Some(report) = exec.report() {
        log += &report.to_string();
    }
    (seen, log)
}

#[test]
fn random_programs_give_the_same() {
    let _alone = alone();
    let mut scene = Scene::new();
    for seed in seeds(60) {
        let mut maker = Maker {
            random: Random::new(seed ^ 0x7777),
            next: 0,
            checks: seed % 2 == 0,
        };
        let acts = maker.acts(0, false);
        let others = [maker.acts(0, false), maker.acts(0, false)];
        // By the host.
        let wants = play(seed, &mut scene, &acts, &others, Optimize::NONE).0;
        let stops = |acts: &[Act]| format!("{acts:?}").contains("Check");
        scene.reset(hash(seed, 0));
        if !stops(&acts) {
            let step = Step::new(&scene, seed * 1000);
            step.all(&mut Eager::new(&scene.stream).unwrap(), &acts, 0)
                .unwrap();
            assert_eq!(scene.read(), wants[0], "seed {seed}: {acts:?}");
        }
        for set in sets() {
            let (got, log) = play(seed, &mut scene, &acts, &others, set);
            let at = got.iter().zip(&wants).position(|(got, wants)| got != wants);
            assert_eq!(
                at, None,
                "seed {seed} {set:?}\n{acts:#?}\n{log}\n{got:?}\n{wants:?}"
            );
        }
    }
}

/// Steps that stop and are gone on with, with other values each time.
#[test]
fn random_programs_stop_at_the_same_places() {
    let _alone = alone();
    let mut scene = Scene::new();
    for seed in seeds(40) {
        let mut maker = Maker {
            random: Random::new(seed ^ 0x3333),
            next: 0,
            checks: true,
        };
        let acts = maker.acts(0, false);
        let mut told = Vec::new();
        for optimize in [Optimize::NONE, Optimize::ALL, Optimize::ALL.unroll(3)] {
            let options = ReplayOptions {
                instantiate: InstantiateOptions {
                    optimize,
                    ..InstantiateOptions::default()
                },
                ..ReplayOptions::default()
            };
            let mut replay = Replay::with_options(&context(), options).expect("a replay");
            let mut seen = Vec::new();
            for call in 0..8 {
                // Even ones have one shape, and odd ones.
                let with = hash(seed, call) % 100;
                scene.reset(hash(seed, call));
                let step = Step::new(&scene, with);
                let run = |r: &mut dyn Recorder| step.all(r, &acts, 0);
                let mut outcome = replay.call(&scene.stream, run).expect("it runs");
                for _ in 0..30 {
                    let Some(name) = outcome.stopped().expect("it can be read") else {
                        break;
                    };
                    seen.push((scene.read(), Some(name)));
                    outcome = replay.resume(&scene.stream, run).expect("it runs on");
                }
                seen.push((scene.read(), None));
            }
            told.push(seen);
        }
        assert_eq!(told[0], told[1], "seed {seed}: {acts:#?}");
        assert_eq!(told[0], told[2], "seed {seed}: {acts:#?}");
    }
}

/// The nodes that set conditions, in the order of their numbers.
fn setters(graph: &Graph) -> Vec<Node<KernelOp>> {
    let nodes = graph.nodes().unwrap().into_iter();
    let mut setters: Vec<_> = nodes
        .filter_map(|node| node.typed::<KernelOp>())
        .filter(|node| graph.op(*node).unwrap().kernel().name() == "set_condition")
        .collect();
    setters.sort_by_key(|node| node.id().index());
    setters
}

/// Two branches, each of a kernel, by the flags 0 and 1.
fn two_branches(scene: &Scene) -> (Graph, Node<KernelOp>) {
    let lane = &scene.lanes[0];
    let mut node = None;
    let (graph, ()) = Graph::record(&context(), |r| {
        node = Some(r.record(kernel("mix", true, (&lane.cells[0], &lane.cells[1], 1u32)))?);
        for at in 0..2 {
            r.if_nonzero(&lane.flags[at], |r| {
                let mix = kernel("mix", true, (&lane.cells[0], &lane.cells[1], 5 + at as u32));
                r.record(mix).map(drop)
            })?;
        }
        Ok(())
    })
    .unwrap();
    (graph, node.unwrap())
}

fn set(scene: &Scene, to: &Buffer<u32>, value: u32) {
    to.copy_from_host(&scene.stream, &[value]).unwrap();
}

/// What cell 0 is after launches with all flags.
fn by_flags(scene: &Scene, exec: &mut Exec) -> Vec<u32> {
    let lane = &scene.lanes[0];
    let one = |flags: u32| {
        set(scene, &lane.cells[0], 1);
        set(scene, &lane.cells[1], 0);
        set(scene, &lane.flags[0], flags & 1);
        set(scene, &lane.flags[2], 1);
        set(scene, &lane.flags[1], flags & 2);
        exec.launch(&scene.stream).unwrap();
        lane.cells[0].to_host(&scene.stream).unwrap()[0]
    };
    (0..4).map(one).collect()
}

/// What nothing sets is not looked at: what that is, the driver leaves open.
#[test]
fn a_setter_becomes_that_of_another_condition() {
    let scene = Scene::new();
    for is_first in [false, true] {
        let [plain, made] = [Optimize::NONE, Optimize::ALL].map(|optimize| {
            let (graph, node) = two_branches(&scene);
            let setters = setters(&graph);
            let mut exec = optimized(&graph, optimize);
            let mut told = by_flags(&scene, &mut exec);
            // The second branch is by what the first kernel sets now.
            let mut edits = [(setters[1], setters[0]), (node, setters[1])];
            if is_first {
                edits.reverse();
            }
            for (node, other) in edits {
                exec.update(node, graph.op(other).unwrap()).unwrap();
            }
            told.extend(by_flags(&scene, &mut exec));
            // And by the first flag alone, as the first branch.
            exec.update(setters[1], graph.op(setters[0]).unwrap())
                .unwrap();
            told.extend(by_flags(&scene, &mut exec));
            for node in [node, setters[0], setters[1]] {
                exec.update(node, graph.op(node).unwrap()).unwrap();
            }
            told.extend(by_flags(&scene, &mut exec));
            told
        });
        assert_eq!(plain, made, "{is_first}");
    }
}

#[test]
fn another_kernel_becomes_a_setter_too() {
    let scene = Scene::new();
    for which in 0..2 {
        let [plain, made] = [Optimize::NONE, Optimize::ALL].map(|optimize| {
            let (graph, node) = two_branches(&scene);
            let setters = setters(&graph);
            let mut exec = optimized(&graph, optimize);
            let other = graph.op(setters[which]).unwrap();
            let updated = exec.update(node, &other).map_err(|error| error.to_string());
            let mut told = by_flags(&scene, &mut exec);
            exec.update(node, graph.op(node).unwrap()).unwrap();
            told.extend(by_flags(&scene, &mut exec));
            (updated, told)
        });
        assert_eq!(plain, made, "{which}");
    }
}

/// An update that fails changes nothing, whichever call of the driver fails.
#[test]
fn an_update_that_fails_leaves_what_passes_made() {
    let _alone = alone();
    let mut scene = Scene::new();
    // A loop with guards, one without, and a branch; with what one of their kernels becomes.
    for case in 0..6 {
        for nth in 0.. {
            let mut node = None;
            scene.reset(5);
            let lane = &scene.lanes[0];
            let (go, left, cell) = (&lane.go[0], &lane.left[0], &lane.cells[0]);
            let (graph, ()) = Graph::record(&context(), |r| {
                r.record(kernel("put", true, (left, 20u32)))?;
                r.record(kernel("put", true, (go, 1u32)))?;
                r.record(kernel("put", true, (cell, 1u32)))?;
                let body = |r: &mut dyn Recorder| {
                    let mix = kernel("imix", true, (go, cell, 3u32));
                    let mix = if case >= 2 { mix } else { mix.idle_without(go) };
                    node = r.record(mix)?;
                    r.record(kernel("istep", true, (go, left)).idle_without(go))
                        .map(drop)
                };
                match case {
                    4 => r.if_nonzero(go, body),
                    _ => r.while_nonzero(go, body),
                }
            })
            .unwrap();
            let node = node.unwrap();
            let mut exec = optimized(&graph, Optimize::ALL);
            let launched = |exec: &mut Exec| {
                exec.launch(&scene.stream).unwrap();
                cell.to_host(&scene.stream).unwrap()[0]
            };
            let before = launched(&mut exec);
            let new = match case {
                0 => kernel("imix", true, (&lane.on, cell, 9u32)).idle_without(&lane.on),
                1 => kernel("imix", false, (go, cell, 9u32)),
                2 => kernel("imix", false, (go, cell, 9u32)),
                // All copies are set in place.
                5 => kernel("imix", true, (go, cell, 9u32)),
                _ => store(cell, 7),
            };
            let (answer, fired) = with_failing_call(nth, || exec.update(node, &new));
            let after = launched(&mut exec);
            match &answer {
                Ok(()) => assert_ne!(after, before, "case {case}, call {nth}"),
                Err(_) => assert_eq!(after, before, "case {case}, call {nth}: {answer:?}"),
            }
            exec.update(node, &new).unwrap();
            let mut plain = graph.instantiate().unwrap();
            plain.update(node, &new).unwrap();
            let wants = launched(&mut plain);
            assert_eq!(launched(&mut exec), wants, "case {case}, call {nth}");
            if !fired {
                assert!(nth > 0 && answer.is_ok());
                break;
            }
        }
    }
}

/// So does one that disables or enables all that stands for a node.
#[test]
fn a_failure_to_disable_leaves_all_as_it_was() {
    let _alone = alone();
    let mut scene = Scene::new();
    scene.reset(5);
    let lane = &scene.lanes[0];
    let (left, cell) = (&lane.left[0], &lane.cells[0]);
    let mut node = None;
    let (graph, ()) = Graph::record(&context(), |r| {
        r.record(kernel("put", true, (left, 20u32)))?;
        r.record(kernel("put", true, (cell, 1u32)))?;
        r.while_nonzero(left, |r| {
            node = r.record(kernel("mix", true, (cell, &lane.on, 3u32)))?;
            r.record(kernel("down", true, (left,))).map(drop)
        })
    })
    .unwrap();
    let node = node.unwrap();
    let mut exec = optimized(&graph, Optimize::ALL.without(Pass::Programmatic));
    let launched = |exec: &mut Exec| {
        exec.launch(&scene.stream).unwrap();
        cell.to_host(&scene.stream).unwrap()[0]
    };
    let both = [false, true].map(|enabled| {
        match enabled {
            true => exec.enable(node).unwrap(),
            false => exec.disable(node).unwrap(),
        }
        launched(&mut exec)
    });
    assert_eq!(both[0], 1);
    for nth in 0.. {
        let mut fired = false;
        for enabled in [false, true] {
            let (answer, did) = with_failing_call(nth, || match enabled {
                true => exec.enable(node),
                false => exec.disable(node),
            });
            fired |= did;
            let is = usize::from(answer.is_ok() == enabled);
            assert_eq!(launched(&mut exec), both[is], "call {nth}: {answer:?}");
            match enabled {
                true => exec.enable(node).unwrap(),
                false => exec.disable(node).unwrap(),
            }
            assert_eq!(
                launched(&mut exec),
                both[usize::from(enabled)],
                "call {nth}"
            );
        }
        if !fired {
            assert!(nth > 10);
            break;
        }
    }
}

/// Memory of an address of its own, whose drop is seen.
fn watched(scene: &Scene, value: u32) -> (cuda_graph::RawMemory, Watch, u64) {
    let buffer = words(&scene.stream, &[value]);
    scene.stream.synchronize().unwrap();
    let (watch, watched) = Watch::new();
    let address = buffer.address();
    let owner: cuda_graph::Owner = Arc::new((buffer, watched));
    // SAFETY: the owner holds a word there.
    let memory = unsafe { RawMemory::device(address, 4) };
    (memory.owned_by(owner), watch, address)
}

/// Flags live as long as what looks at them, and no longer.
#[test]
fn flags_live_as_long_as_they_are_looked_at() {
    let scene = Scene::new();
    let cell = &scene.lanes[0].cells[0];
    for optimize in [Optimize::NONE, Pass::Branches.into(), Optimize::ALL] {
        let made = |value: u32| {
            let (flag, watch, address) = watched(&scene, value);
            let mut nodes = Vec::new();
            let (graph, ()) = Graph::record(&context(), |r| {
                r.if_else_nonzero(
                    &flag,
                    |r| {
                        nodes.extend(r.record(kernel("put", true, (cell, 5u32)))?);
                        Ok(())
                    },
                    |r| r.record(kernel("put", true, (cell, 6u32))).map(drop),
                )
            })
            .unwrap();
            (graph, watch, address, nodes[0])
        };
        let launched = |exec: &mut Exec| {
            exec.launch(&scene.stream).unwrap();
            cell.to_host(&scene.stream).unwrap()[0]
        };
        let (graph, first, _, node) = made(1);
        let mut exec = optimized(&graph, optimize);
        assert_eq!(launched(&mut exec), 5);
        let (other, second, _, _) = made(0);
        exec.update_in_place(&other).unwrap();
        drop(other);
        assert_eq!(launched(&mut exec), 6);
        assert!(!second.is_dropped() && !first.is_dropped());
        // Back, by a node of the program's: the setter. It is the graph's first flag then.
        let setter = setters(&graph)[0];
        exec.update(setter, graph.op(setter).unwrap()).unwrap();
        assert_eq!(launched(&mut exec), 5);
        assert!(!first.is_dropped());
        // Left as it is, the branch looks at it too.
        exec.update(node, store(cell, 9)).unwrap();
        drop(graph);
        assert_eq!(launched(&mut exec), 9);
        assert!(!first.is_dropped());
        let (third_graph, third, _, _) = made(1);
        let updated = exec.update_in_place(&third_graph);
        drop(third_graph);
        if updated.is_ok() {
            assert_eq!(launched(&mut exec), 5);
            assert_soon(|| first.is_dropped() && second.is_dropped(), "they go");
        }
        exec.launch(&scene.stream).unwrap();
        drop(exec);
        assert_soon(
            || first.is_dropped() && third.is_dropped(),
            "they are let go",
        );
    }
}

#[test]
fn more_branches_than_there_are_words() {
    let scene = Scene::new();
    let lane = &scene.lanes[0];
    let step = |r: &mut dyn Recorder| {
        for at in 0..300u32 {
            let flag = &lane.flags[at as usize % FLAGS];
            r.if_else_nonzero(
                flag,
                |r| {
                    r.record(kernel("mix", true, (&lane.cells[0], &lane.on, at)))
                        .map(drop)
                },
                |r| {
                    r.record(kernel("mix", true, (&lane.cells[0], &lane.on, !at)))
                        .map(drop)
                },
            )?;
            if at % 7 == 0 {
                r.record(kernel("mask", true, (flag, &lane.cells[0], 8u32)))?;
            }
        }
        Ok(())
    };
    let (graph, ()) = Graph::record(&context(), |r| step(r)).unwrap();
    let told = [Optimize::NONE, Pass::Branches.into(), Optimize::ALL].map(|optimize| {
        let mut exec = optimized(&graph, optimize);
        by_flags(&scene, &mut exec)
    });
    assert_eq!(told[0], told[1]);
    assert_eq!(told[0], told[2]);
}

#[test]
fn loops_repeat_as_often_as_is_asked() {
    let _alone = alone();
    let mut scene = Scene::new();
    for turns in [0, 1, 2, 255, 256, 257, 600] {
        let mut told = Vec::new();
        let counts = [1, 0, 2, 3, 256, 1000].map(|count| Optimize::ALL.unroll(count));
        for optimize in [Optimize::NONE].into_iter().chain(counts) {
            scene.reset(3);
            let lane = &scene.lanes[0];
            let (left, go) = (&lane.left[0], &lane.go[0]);
            let (graph, ()) = Graph::record(&context(), |r| {
                r.record(kernel("put", true, (left, turns)))?;
                r.do_while_nonzero(left, |r| {
                    let mix = |at: usize| {
                        let by = (&lane.cells[at], &lane.cells[2], 7u32);
                        kernel("mix", true, by)
                    };
                    r.record(mix(0))?;
                    r.record(kernel("mask", true, (&lane.flags[0], &lane.cells[0], 6u32)))?;
                    r.if_nonzero(&lane.flags[0], |r| r.record(mix(1)).map(drop))?;
                    r.record(kernel("down", true, (left,))).map(drop)
                })?;
                // Another, without guards, is entered with a flag that says no.
                r.record(kernel("put", true, (left, turns)))?;
                r.record(kernel("put", true, (go, turns.min(1))))?;
                r.do_while_nonzero(go, |r| {
                    let mix = kernel("imix", true, (go, &lane.cells[1], 9u32));
                    r.record(mix.idle_without(go))?;
                    r.record(kernel("istep", true, (go, left)).idle_without(go))
                        .map(drop)
                })
            })
            .unwrap();
            let mut exec = optimized(&graph, optimize);
            exec.launch(&scene.stream).unwrap();
            let once = scene.read();
            exec.launch(&scene.stream).unwrap();
            told.push((once, scene.read()));
        }
        assert!(told.iter().all(|one| *one == told[0]), "{turns}: {told:?}");
    }
}

/// Setters that others wait for, that branches wait for through others only, or not at all.
#[test]
fn edges_that_no_recorder_makes() {
    let scene = Scene::new();
    let lane = &scene.lanes[0];
    for case in 0..5 {
        let told = [Optimize::NONE, Pass::Branches.into(), Optimize::ALL].map(|optimize| {
            let (graph, first) = two_branches(&scene);
            let setters = setters(&graph);
            let branch = |at: usize| {
                let mut after = graph.successors(setters[at]).list().unwrap().into_iter();
                after
                    .find(|node| node.kind() == NodeKind::Conditional)
                    .unwrap()
            };
            let (left, right) = (branch(0), branch(1));
            let clear = kernel("put", true, (&lane.flags[0], 0u32));
            match case {
                // The flag is cleared between the setter and its branch.
                0 => {
                    let clear = graph.add(clear, setters[0]).unwrap();
                    graph.add_edge(clear, left).unwrap();
                }
                // The branch waits for its setter only through that.
                1 => {
                    let clear = graph.add(clear, setters[0]).unwrap();
                    graph.add_edge(clear, left).unwrap();
                    graph.remove_edge(setters[0], left).unwrap();
                }
                // Both are set before both.
                2 => {
                    let before = graph.predecessors(setters[1]).list().unwrap();
                    assert_eq!(before, [left]);
                    graph.remove_edge(left, setters[1]).unwrap();
                    graph.add_edge(setters[0], setters[1]).unwrap();
                    graph.add_edge(setters[1], left).unwrap();
                    graph.add_edge(left, right).unwrap();
                }
                // Nothing sets a condition: softcuda keeps what it was, a GPU has anything.
                3 if !is_software() => {}
                3 => graph.destroy(setters[1]).unwrap(),
                // A setter is there twice.
                _ => {
                    let again = graph.op(setters[0]).unwrap();
                    let clear = graph.add(clear, setters[0]).unwrap();
                    let again = graph.add(again, clear).unwrap();
                    graph.add_edge(again, left).unwrap();
                }
            }
            let mut exec = optimized(&graph, optimize);
            let mut told = by_flags(&scene, &mut exec);
            let mix = kernel("mix", true, (&lane.cells[0], &lane.cells[1], 11u32));
            exec.update(first, mix).unwrap();
            told.extend(by_flags(&scene, &mut exec));
            told
        });
        assert_eq!(told[0], told[1], "{case}");
        assert_eq!(told[0], told[2], "{case}");
    }
}

/// Branches of an embedded graph, with foreign work beside.
#[test]
fn branches_that_are_embedded() {
    let scene = Scene::new();
    let lane = &scene.lanes[0];
    let told = [Optimize::NONE, Pass::Branches.into(), Optimize::ALL].map(|optimize| {
        let graph = Graph::new(&context()).unwrap();
        let (inner, _) = two_branches(&scene);
        let mix = || kernel("mix", true, (&lane.cells[0], &lane.cells[1], 50u32));
        let first = graph.add(mix(), ()).unwrap();
        let child = match graph.add(ChildOp::new(&inner), first) {
            Ok(child) => child,
            Err(error) => return vec![error.to_string()],
        };
        let second = graph.add(mix(), child).unwrap();
        let mut exec = match graph.instantiate_with(&InstantiateOptions {
            optimize,
            ..InstantiateOptions::default()
        }) {
            Ok(exec) => exec,
            Err(error) => return vec![error.to_string()],
        };
        let mut told = vec![format!("{:?}", by_flags(&scene, &mut exec))];
        exec.update(second, mix()).unwrap();
        let (other, _) = two_branches(&scene);
        let updated = exec.update(child, ChildOp::new(&other));
        told.push(updated.map_or_else(|error| error.to_string(), |()| String::new()));
        told.push(format!("{:?}", by_flags(&scene, &mut exec)));
        exec.disable(first).unwrap();
        told.push(format!("{:?}", by_flags(&scene, &mut exec)));
        told
    });
    assert_eq!(told[0], told[1]);
    assert_eq!(told[0], told[2]);
}

/// Flags that are parameters of a step, in memory of the device and of the host.
#[test]
fn flags_that_are_parameters() {
    let _alone = alone();
    let mut scene = Scene::new();
    scene.reset(9);
    let lane = &scene.lanes[0];
    let flag = Param::with_value("flag", lane.flags[0].clone());
    let go = Param::with_value("go", lane.go[0].clone());
    let run = |r: &mut dyn Recorder| {
        let mix = |by: u32| kernel("mix", true, (&lane.cells[0], &lane.on, by));
        for at in 0..2 {
            let (go, left) = (&lane.go[at], &lane.left[at]);
            r.record(kernel("put", true, (go, 1u32)))?;
            r.record(kernel("put", true, (left, 21u32)))?;
        }
        r.if_else_nonzero(
            &flag,
            |r| r.record(mix(1)).map(drop),
            |r| r.record(mix(2)).map(drop),
        )?;
        r.while_nonzero(&go, |r| {
            r.if_nonzero(&flag, |r| r.record(mix(3)).map(drop))?;
            let own = go.get()?;
            let at = usize::from(own.address() == lane.go[1].address());
            r.record(kernel("istep", true, (&go, &lane.left[at])).idle_without(&own))
                .map(drop)
        })?;
        r.while_nonzero(&lane.left[2], |r| {
            r.record(mix(4))?;
            r.record(kernel("down", true, (&lane.left[2],)))?;
            r.checkpoint("turn", &flag)
        })
    };
    let mut replays = [Optimize::NONE, Optimize::ALL].map(|optimize| {
        let options = ReplayOptions {
            instantiate: InstantiateOptions {
                optimize,
                ..InstantiateOptions::default()
            },
            ..ReplayOptions::default()
        };
        Replay::with_options(&context(), options).unwrap()
    });
    for call in 0..24u32 {
        let (is, at) = ((call / 2 % 3) as usize, (call / 3 % 2) as usize);
        flag.set(lane.flags[is].clone());
        go.set(lane.go[at].clone());
        let told = replays.each_mut().map(|replay| {
            set(&scene, &lane.cells[0], call);
            set(&scene, &lane.left[2], call % 5);
            (0..3).for_each(|at| set(&scene, &lane.flags[at], call >> at & 1));
            let mut outcome = replay.call(&scene.stream, run).unwrap();
            let mut stops = 0;
            while outcome.stopped().unwrap().is_some() {
                stops += 1;
                outcome = replay.resume(&scene.stream, run).unwrap();
            }
            (scene.read(), stops)
        });
        assert_eq!(told[0], told[1], "call {call}");
    }
}

/// Work of other code beside branches and loops.
#[test]
fn captured_work_beside_branches() {
    let _alone = alone();
    let mut scene = Scene::new();
    for in_body in [false, true] {
        let told = [Optimize::NONE, Optimize::ALL].map(|optimize| {
            scene.reset(4);
            let lane = &scene.lanes[0];
            let mut node = None;
            let work = |r: &mut dyn Recorder| {
                let (to, from, by) = (lane.cells[0].address(), lane.on.address(), 8u32);
                let mix = unknown().load_function("mix").unwrap();
                // SAFETY: the kernel reads and writes words, which live as long as the graph.
                unsafe {
                    r.foreign(|stream| {
                        let mut launch = stream.launch_builder(&mix);
                        launch.arg(&to).arg(&from).arg(&by);
                        launch.launch(one())?;
                        Ok(())
                    })
                }
            };
            let (graph, ()) = Graph::capture(&scene.stream, |r| {
                r.record(kernel("put", true, (&lane.left[0], 18u32)))?;
                work(r)?;
                r.while_nonzero(&lane.left[0], |r| {
                    if in_body {
                        work(r)?;
                    }
                    r.record(kernel("mask", true, (&lane.flags[0], &lane.cells[0], 2u32)))?;
                    r.if_else_nonzero(
                        &lane.flags[0],
                        |r| {
                            let mix = kernel("mix", true, (&lane.cells[1], &lane.on, 1u32));
                            node = r.record(mix)?;
                            Ok(())
                        },
                        |r| {
                            let mix = kernel("mix", true, (&lane.cells[0], &lane.on, 5u32));
                            r.record(mix).map(drop)
                        },
                    )?;
                    r.record(kernel("down", true, (&lane.left[0],))).map(drop)
                })?;
                work(r)
            })
            .unwrap();
            let mut exec = optimized(&graph, optimize);
            exec.launch(&scene.stream).unwrap();
            let first = scene.read();
            exec.update(node.unwrap(), store(&lane.cells[1], 3))
                .unwrap();
            exec.launch(&scene.stream).unwrap();
            (first, scene.read())
        });
        assert_eq!(told[0], told[1], "{in_body}");
    }
}

/// Whatever call of the driver fails in a whole update or a call of a replay, all is as it was.
#[test]
fn whole_updates_and_calls_that_fail_change_nothing() {
    let _alone = alone();
    let mut scene = Scene::new();
    let mut maker = Maker {
        random: Random::new(0x99),
        next: 0,
        checks: false,
    };
    for seed in 0..1 {
        let acts = maker.acts(0, false);
        let made = |scene: &Scene, with: u64| {
            let step = Step::new(scene, with);
            let (graph, ()) = Graph::record(&context(), |r| step.all(r, &acts, 0)).unwrap();
            graph
        };
        let launched = |scene: &mut Scene, exec: &mut Exec| {
            scene.reset(seed);
            exec.launch(&scene.stream).unwrap();
            scene.read()
        };
        let [first, second] = [made(&scene, 0), made(&scene, 2)];
        let wants = [&first, &second].map(|graph| {
            let mut exec = graph.instantiate().unwrap();
            launched(&mut scene, &mut exec)
        });
        for nth in 0.. {
            let mut exec = optimized(&first, Optimize::ALL);
            assert_eq!(launched(&mut scene, &mut exec), wants[0]);
            let (answer, fired) = with_failing_call(nth, || exec.update_in_place(&second));
            let is = usize::from(answer.is_ok());
            assert_eq!(
                launched(&mut scene, &mut exec),
                wants[is],
                "{nth}: {answer:?}"
            );
            exec.update_in_place(&second).unwrap();
            assert_eq!(launched(&mut scene, &mut exec), wants[1], "{nth}");
            if !fired {
                break;
            }
        }
        let options = ReplayOptions {
            instantiate: InstantiateOptions {
                optimize: Optimize::ALL,
                ..InstantiateOptions::default()
            },
            ..ReplayOptions::default()
        };
        for nth in 0.. {
            let mut replay = Replay::with_options(&context(), options.clone()).unwrap();
            let mut fired = false;
            for (call, with) in [0, 2, 0, 2].into_iter().enumerate() {
                scene.reset(seed);
                let step = Step::new(&scene, with);
                let run = |r: &mut dyn Recorder| step.all(r, &acts, 0);
                if call == 1 {
                    let before = scene.read();
                    let (answer, did) =
                        with_failing_call(nth, || replay.call(&scene.stream, run).map(drop));
                    fired = did;
                    let wants = if answer.is_ok() { &wants[1] } else { &before };
                    assert_eq!(&scene.read(), wants, "{nth}: {answer:?}");
                    continue;
                }
                replay.call(&scene.stream, run).unwrap();
                assert_eq!(scene.read(), wants[with as usize / 2], "{nth}, {call}");
            }
            if !fired {
                break;
            }
        }
    }
}

/// What runs in an embedded graph is replaced, and then what is beside it changes.
#[test]
fn an_embedded_graph_is_replaced_and_more_follows() {
    let scene = Scene::new();
    let lane = &scene.lanes[0];
    let told = [Optimize::NONE, Optimize::ALL].map(|optimize| {
        let inner = |by: u32| {
            let graph = Graph::new(&context()).unwrap();
            let mix = || kernel("mix", true, (&lane.cells[0], &lane.on, by));
            let first = graph.add(mix(), ()).unwrap();
            graph.add(mix(), first).unwrap();
            graph
        };
        let graph = Graph::new(&context()).unwrap();
        let fill = graph
            .add(FillOp::new(&lane.cells[0], 2u32).unwrap(), ())
            .unwrap();
        let child = graph.add(ChildOp::new(&inner(5)), fill).unwrap();
        let last = kernel("mix", true, (&lane.cells[0], &lane.on, 1u32));
        let last = graph.add(last, child).unwrap();
        let mut exec = optimized(&graph, optimize);
        let mut told = Vec::new();
        let launched = |exec: &mut Exec| {
            set(&scene, &lane.cells[0], 1);
            exec.launch(&scene.stream).unwrap();
            lane.cells[0].to_host(&scene.stream).unwrap()[0]
        };
        told.push(launched(&mut exec));
        exec.update(child, ChildOp::new(&inner(9))).unwrap();
        told.push(launched(&mut exec));
        exec.disable(fill).unwrap();
        told.push(launched(&mut exec));
        exec.update(last, store(&lane.cells[1], 4)).unwrap();
        told.push(launched(&mut exec));
        exec.enable(fill).unwrap();
        told.push(launched(&mut exec));
        told
    });
    assert_eq!(told[0], told[1]);
}

/// The same where the embedded graph holds work of other code: what replaced that stays.
#[test]
fn captured_work_is_replaced_and_more_follows() {
    let _alone = alone();
    let scene = Scene::new();
    let lane = &scene.lanes[0];
    let told = [Optimize::NONE, Optimize::ALL].map(|optimize| {
        let inner = |by: u32| {
            let captured = Graph::capture(&scene.stream, |r| {
                let (to, from) = (lane.cells[0].address(), lane.on.address());
                r.record(kernel("mix", true, (&lane.cells[0], &lane.on, by)))?;
                let mix = unknown().load_function("mix").unwrap();
                // SAFETY: the kernel reads and writes words, which live as long as the graph.
                unsafe {
                    r.foreign(|stream| {
                        let mut launch = stream.launch_builder(&mix);
                        launch.arg(&to).arg(&from).arg(&by);
                        launch.launch(one())?;
                        Ok(())
                    })
                }
            });
            captured.unwrap().0
        };
        let graph = Graph::new(&context()).unwrap();
        let fill = graph
            .add(FillOp::new(&lane.cells[0], 2u32).unwrap(), ())
            .unwrap();
        let other = graph
            .add(FillOp::new(&lane.cells[1], 3u32).unwrap(), ())
            .unwrap();
        let child = graph.add(ChildOp::new(&inner(5)), (fill, other)).unwrap();
        let last = kernel("mix", true, (&lane.cells[0], &lane.on, 1u32));
        let last = graph.add(last, child).unwrap();
        let mut exec = optimized(&graph, optimize);
        let mut told = Vec::new();
        let launched = |exec: &mut Exec| {
            set(&scene, &lane.cells[0], 1);
            exec.launch(&scene.stream).unwrap();
            lane.cells[0].to_host(&scene.stream).unwrap()[0]
        };
        told.push(launched(&mut exec));
        exec.update(child, ChildOp::new(&inner(9))).unwrap();
        told.push(launched(&mut exec));
        exec.disable(fill).unwrap();
        told.push(launched(&mut exec));
        exec.update(last, store(&lane.cells[1], 4)).unwrap();
        told.push(launched(&mut exec));
        exec.enable(fill).unwrap();
        told.push(launched(&mut exec));
        exec.update(child, ChildOp::new(&inner(7))).unwrap();
        told.push(launched(&mut exec));
        told
    });
    assert_eq!(told[0], told[1]);
}
