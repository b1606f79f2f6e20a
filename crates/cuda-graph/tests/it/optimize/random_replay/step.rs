//! A program for any recorder, and the memory that it works on.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use cuda_graph::cudarc::driver::{CudaFunction, CudaStream, LaunchConfig, PushKernelArg};
use cuda_graph::{
    AnyOp, Body, Buffer, ChildOp, CopyOp, FillOp, Graph, HostOp, KernelOp, Param, Pitched,
    Recorder, Result, testing,
};

use super::super::random::{CELLS, Cells, kernel};
use super::program::{Args, Choice, DEPTH, Item, Kind};
use crate::fixture::{context, one, stream};

/// How many cells are on the device, and how many words each cell has.
const ON_DEVICE: usize = CELLS - 2;
pub const WORDS: usize = 4;

/// The memory that a program works on.
pub struct World {
    cells: Cells,
    /// The first word of each cell on the device.
    words: Vec<Buffer<u32>>,
    /// What loops and branches look at, by depth: two, of which a call takes one.
    flags: Vec<[Buffer<u32>; 2]>,
    /// A number that kernels add and fills write.
    pub value: Param<u32>,
    /// A cell that kernels write.
    pub target: Param<Buffer<u32>>,
}

impl World {
    pub fn new() -> World {
        let cells = Cells::new();
        let stream = stream();
        let flag = || Buffer::zeroed(&stream, 1).expect("there is memory");
        let flags = (0..DEPTH + 1).map(|_| [flag(), flag()]).collect();
        stream.synchronize().expect("it is over");
        let word = |cell: &Buffer<u32>| cell.slice(..1).expect("it is a part");
        World {
            words: cells.device.iter().map(word).collect(),
            cells,
            flags,
            value: Param::new("value"),
            target: Param::new("target"),
        }
    }

    pub fn reset(&mut self) {
        self.cells.reset();
        let stream = stream();
        for flag in self.flags.iter().flatten() {
            flag.copy_from_host(&stream, &[0]).expect("it is copied");
        }
        stream.synchronize().expect("it is over");
    }

    /// The values of the parameters for a seed.
    pub fn params(&self, seed: usize) -> (u32, Buffer<u32>) {
        let target = &self.cells.device[seed % ON_DEVICE];
        (seed as u32 / 8 % 50, target.clone())
    }

    pub fn set_params(&self, seed: usize) {
        let (value, target) = self.params(seed);
        self.value.set(value);
        self.target.set(target);
    }

    /// All that a program can change, once everything in `stream` has run.
    pub fn read(&self, stream: &CudaStream) -> Vec<u32> {
        stream.synchronize().expect("it runs");
        let flags = self.flags.iter().flatten();
        let flags = flags.flat_map(|flag| flag.to_host(stream).expect("it is copied"));
        let mut words = self.cells.read();
        words.extend(flags);
        words
    }
}

/// A program, for any recorder.
pub struct Step<'a> {
    pub world: &'a World,
    pub args: &'a Args,
    /// What other code launches.
    pub foreign: &'a CudaFunction,
}

/// The cells that items may use, and how deep they are.
#[derive(Clone, Copy)]
struct Place<'a> {
    scope: &'a [usize],
    depth: usize,
}

impl Step<'_> {
    pub fn record(&self, r: &mut dyn Recorder, items: &[Item]) -> Result<()> {
        let scope: Vec<usize> = (0..ON_DEVICE).collect();
        let depth = 0;
        let scope = &scope[..];
        self.items(r, items, Place { scope, depth })
    }

    fn number(&self, slot: usize, which: u64, below: usize) -> usize {
        self.args.number(slot, which, below)
    }

    /// A number that is often small.
    fn value(&self, slot: usize, which: u64) -> u32 {
        match self.number(slot, which, 8) {
            small @ 0..4 => small as u32,
            _ => self.number(slot, which + 1, 1 << 30) as u32,
        }
    }

    fn cell(&self, slot: usize, which: u64, place: Place<'_>) -> usize {
        place.scope[self.number(slot, which, place.scope.len())]
    }

    fn flag(&self, slot: usize, place: Place<'_>) -> &Buffer<u32> {
        &self.world.flags[place.depth][self.number(slot, 0, 2)]
    }

    fn op(&self, slot: usize, kind: Kind, place: Place<'_>) -> Result<AnyOp> {
        let device = |which| &self.world.cells.device[self.cell(slot, which, place)];
        let is_all = place.scope.len() == ON_DEVICE;
        // As many words of two regions.
        let words = 1 + self.number(slot, 1, WORDS);
        let part = |cell: &Buffer<u32>, which| {
            let start = self.number(slot, which, WORDS - words + 1);
            cell.slice(start..start + words)
        };
        let pinned = |which| &self.world.cells.pinned[self.number(slot, which, 2)];
        Ok(match kind {
            Kind::Kernel => self.kernel(slot, place)?.into(),
            Kind::Fill => {
                let (to, value) = (part(device(0), 2)?, self.value(slot, 3));
                match self.number(slot, 5, 4) {
                    0 => FillOp::by_kernel(&to, value)?.into(),
                    _ => FillOp::new(&to, value)?.into(),
                }
            }
            Kind::CopyIn if is_all => copy_start(device(0), pinned(2), words)?.into(),
            Kind::CopyOut if is_all => copy_start(pinned(2), device(0), words)?.into(),
            Kind::Host => {
                let (host, word) = (self.world.cells.host.clone(), self.number(slot, 0, 2));
                let add = self.value(slot, 1);
                let run = move || {
                    let old = host[word].load(Ordering::Relaxed);
                    host[word].store(old.wrapping_mul(7).wrapping_add(add), Ordering::Relaxed);
                };
                HostOp::new(run).into()
            }
            Kind::Copy | Kind::CopyIn | Kind::CopyOut => {
                let (to, from) = (device(0), device(6));
                match std::ptr::eq(to, from) {
                    // The regions must not overlap.
                    true => CopyOp::new(&to.slice(..2)?, &from.slice(2..)?)?.into(),
                    false => CopyOp::new(&part(to, 2)?, &part(from, 3)?)?.into(),
                }
            }
        })
    }

    fn kernel(&self, slot: usize, place: Place<'_>) -> Result<KernelOp> {
        let world = self.world;
        let device = |which| &world.cells.device[self.cell(slot, which, place)];
        let (to, from, value) = (device(0), device(1), self.value(slot, 2));
        let is_all = place.scope.len() == ON_DEVICE;
        // SAFETY: `mix` reads and writes a word of each cell, `spread` at most as many as a cell
        // has.
        let op = unsafe {
            match self.number(slot, 4, 8) {
                0 => KernelOp::new(kernel("mix"), one(), (to, from, &world.value)),
                1 if is_all => KernelOp::new(kernel("mix"), one(), (&world.target, from, value)),
                2..5 => KernelOp::new(kernel("mix"), one(), (to, from, value)),
                _ => {
                    let count = self.number(slot, 5, WORDS + 1) as u32;
                    let config = LaunchConfig {
                        // More blocks than the programmatic pass takes, now and then.
                        grid_dim: match self.number(slot, 6, 16) {
                            0 => (270, 1, 1),
                            more => ((WORDS + more) as u32, 1, 1),
                        },
                        block_dim: (1 + self.number(slot, 7, 4) as u32, 1, 1),
                        shared_mem_bytes: self.number(slot, 8, 3) as u32 * 16,
                    };
                    KernelOp::new(kernel("spread"), config, (to, from, count, value))
                }
            }
        }?;
        Ok(match self.number(slot, 9, 24) {
            0 => op.priority(-1),
            _ => op,
        })
    }

    fn items(&self, r: &mut dyn Recorder, items: &[Item], place: Place<'_>) -> Result<()> {
        items.iter().try_for_each(|item| self.item(r, item, place))
    }

    /// What records these items.
    fn body<'a>(
        &'a self,
        items: &'a [Item],
        place: Place<'a>,
    ) -> impl FnMut(&mut dyn Recorder) -> Result<()> + 'a {
        move |r| self.items(r, items, place)
    }

    fn item(&self, r: &mut dyn Recorder, item: &Item, place: Place<'_>) -> Result<()> {
        let world = self.world;
        match item {
            &Item::Op(slot, Kind::Fill) if self.number(slot, 10, 5) == 0 => {
                let to = world.cells.device[self.cell(slot, 0, place)].clone();
                let value = world.value.clone();
                r.record_with(move || FillOp::new(&to, value.get()?))
            }
            &Item::Op(slot, kind) => r.record(self.op(slot, kind, place)?).map(drop),
            Item::Child { in_line, ops } => {
                let graph = Graph::new(&context())?;
                let mut nodes = Vec::new();
                for &(slot, kind) in ops {
                    let op = self.op(slot, kind, place)?;
                    let must = |(_, other): &&(_, AnyOp)| {
                        *in_line || testing::conflicts(&op, other) || self.number(slot, 11, 6) == 0
                    };
                    let before = nodes.iter().filter(must).map(|(node, _)| *node);
                    let before: Vec<_> = before.collect();
                    nodes.push((graph.add(op.clone(), before)?, op));
                }
                r.record(ChildOp::new(&graph)).map(drop)
            }
            &Item::Foreign(slot) => {
                let word = |which| &world.words[self.cell(slot, which, place)];
                let (to, from) = (word(0), word(1));
                r.keep(to.owner())?;
                r.keep(from.owner())?;
                // SAFETY: both are parts of buffers that are kept.
                unsafe { r.foreign(|stream| self.launch(stream, to, from)) }
            }
            Item::Loop {
                slot,
                is_do,
                is_early,
                body,
            } => {
                let (slot, flag) = (*slot, self.flag(*slot, place));
                let turns = match self.number(slot, 1, 4) {
                    0 => self.number(slot, 2, [40, 5, 3][place.depth]),
                    _ => self.number(slot, 2, [7, 4, 3][place.depth]),
                };
                r.record(FillOp::new(flag, turns as u32)?)?;
                let count = |r: &mut dyn Recorder| {
                    // SAFETY: `count` reads and writes a word.
                    let count = unsafe { KernelOp::new(kernel("count"), one(), (flag,)) }?;
                    r.record(count).map(drop)
                };
                let depth = place.depth + 1;
                let body = |r: &mut dyn Recorder| {
                    if *is_early {
                        count(r)?;
                    }
                    self.items(r, body, Place { depth, ..place })?;
                    if !is_early { count(r) } else { Ok(()) }
                };
                match is_do {
                    true => r.do_while_nonzero(flag, body),
                    false => r.while_nonzero(flag, body),
                }
            }
            Item::Branch(slot, choice, cases) => {
                let own = self.flag(*slot, place);
                let word = &world.words[self.cell(*slot, 1, place)];
                r.record(FillOp::new(own, self.number(*slot, 2, 4) as u32)?)?;
                let flag = match self.number(*slot, 3, 2) {
                    0 => own,
                    _ => word,
                };
                let depth = place.depth + 1;
                let place = Place { depth, ..place };
                let cases = cases.iter().map(|case| self.body(case, place));
                let mut cases: Vec<_> = cases.collect();
                match (choice, &mut cases[..]) {
                    (Choice::IfElse, [then, otherwise]) => r.if_else_nonzero(flag, then, otherwise),
                    (Choice::If, [then]) => r.if_nonzero(flag, then),
                    (_, cases) => r.switch_on(flag, &mut bodies(cases)),
                }
            }
            Item::Side(branches) => {
                let share = place.scope.len().div_ceil(branches.len());
                let shares = place.scope.chunks(share).zip(branches);
                let branches =
                    shares.map(|(scope, branch)| self.body(branch, Place { scope, ..place }));
                let mut branches: Vec<_> = branches.collect();
                r.parallel(&mut bodies(&mut branches))
            }
            &Item::Outside(slot) => r.outside(|stream| {
                let cell = |which| &world.cells.device[self.cell(slot, which, place)];
                let mut words = cell(0).to_host(stream)?;
                words.rotate_left(1);
                cell(1).copy_from_host(stream, &words)
            }),
            &Item::Checkpoint(slot) => {
                let flag = &world.flags[DEPTH][self.number(slot, 0, 2)];
                let stops = u32::from(self.number(slot, 1, 4) == 0);
                r.record(FillOp::new(flag, stops)?)?;
                r.checkpoint(format!("checkpoint {slot}"), flag)
            }
            Item::Part(switch, items) => match self.args.switches[*switch] {
                true => self.items(r, items, place),
                false => Ok(()),
            },
        }
    }

    /// Has the device add a word to another one through cudarc alone.
    fn launch(&self, stream: &Arc<CudaStream>, to: &Buffer<u32>, from: &Buffer<u32>) -> Result<()> {
        let (to, from) = (to.address(), from.address());
        let mut launch = stream.launch_builder(self.foreign);
        launch.arg(&to).arg(&from);
        // SAFETY: `add` reads and writes one word of each.
        unsafe { launch.launch(one()) }?;
        Ok(())
    }
}

fn bodies<'a, F>(closures: &'a mut [F]) -> Vec<&'a mut Body<'a>>
where
    F: FnMut(&mut dyn Recorder) -> Result<()> + 'a,
{
    closures.iter_mut().map(|body| body as _).collect()
}

/// Copies the first words of `from` to the start of `to`.
fn copy_start(
    to: impl cuda_graph::Target,
    from: impl cuda_graph::Source,
    words: usize,
) -> Result<CopyOp> {
    let rows = Pitched::default();
    CopyOp::volume(to, rows, from, rows, (words * 4, 1, 1))
}
