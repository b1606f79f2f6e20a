//! Programs of nested loops and branches over a few numbers: what they compute by an interpreter on
//! the host, and ways to have a device compute it.

use std::ops::Range;
use std::sync::Arc;

use cuda_graph::cudarc::driver::{CudaStream, PushKernelArg};
use cuda_graph::{
    AnyOp, Body, Buffer, CopyOp, Eager, FillOp, Graph, IfElseOp, IfOp, KernelOp, NodeId, Operation,
    Path, Recorder, Result, SwitchOp, WhileOp,
};

use super::kernels::{arm, count, counted, kernels, nearer, plus, put, set};
use super::launch;
use crate::fixture::{one, stream};

/// The values that cells are set to.
pub const VALUES: Range<i32> = -2..5;

/// One thing to do. A number is that of a cell.
#[derive(Clone, Debug, PartialEq)]
pub enum Act {
    Put {
        to: usize,
        value: i32,
        how: How,
    },
    Plus {
        to: usize,
        from: usize,
        by: By,
    },
    /// Takes a count between -3 and 3 from a cell.
    Count {
        to: usize,
        from: usize,
        sign: i32,
    },
    /// Moves a cell by one towards 0.
    Nearer(usize),
    While {
        on: usize,
        body: Vec<Act>,
    },
    DoWhile {
        on: usize,
        body: Vec<Act>,
    },
    If {
        on: usize,
        then: Vec<Act>,
    },
    IfElse {
        on: usize,
        then: Vec<Act>,
        otherwise: Vec<Act>,
    },
    Switch {
        on: usize,
        cases: Vec<Vec<Act>>,
    },
    /// Side by side: none uses a cell that another one writes.
    Side(Vec<Vec<Act>>),
}

/// Kinds of operations that set a cell.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum How {
    Kernel,
    Fill,
    Copy,
}

/// Who launches a kernel, where there is a choice.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum By {
    Library,
    OtherCode,
}

/// Runs `acts` on the host; gives the number of bodies that ran.
pub fn interpret(acts: &[Act], cells: &mut [i32]) -> u32 {
    let mut bodies = 0;
    for act in acts {
        let mut run = |acts: &[Act], cells: &mut [i32]| bodies += 1 + interpret(acts, cells);
        match act {
            Act::Put { to, value, .. } => cells[*to] = *value,
            Act::Plus { to, from, .. } => cells[*to] = cells[*to].wrapping_add(cells[*from]),
            Act::Count { to, from, sign } => cells[*to] = counted(cells[*from], *sign),
            Act::Nearer(at) => cells[*at] -= cells[*at].signum(),
            Act::While { on, body } => {
                while cells[*on] != 0 {
                    run(body, cells);
                }
            }
            Act::DoWhile { on, body } => loop {
                run(body, cells);
                if cells[*on] == 0 {
                    break;
                }
            },
            Act::If { on, then } => {
                if cells[*on] != 0 {
                    run(then, cells);
                }
            }
            Act::IfElse {
                on,
                then,
                otherwise,
            } => run(if cells[*on] != 0 { then } else { otherwise }, cells),
            Act::Switch { on, cases } => {
                if let Some(case) = usize::try_from(cells[*on]).ok().and_then(|n| cases.get(n)) {
                    run(case, cells);
                }
            }
            Act::Side(branches) => branches.iter().for_each(|branch| {
                bodies += interpret(branch, cells);
            }),
        }
    }
    bodies
}

/// Where the cells lie: in one buffer, each a slice of it.
pub struct Memory {
    pub all: Buffer<i32>,
    cells: Vec<Buffer<i32>>,
    /// The values of [`VALUES`], to be copied.
    values: Vec<Buffer<i32>>,
}

impl Memory {
    pub fn new(stream: &Arc<CudaStream>, cells: usize) -> Memory {
        // What other code launches, and loads, is there before anything is captured.
        kernels();
        let mut initial = vec![0; cells];
        initial.extend(VALUES);
        let all = Buffer::from_host(stream, &initial).expect("it fits");
        let part = |at: usize| all.slice(at..at + 1).expect("it is a part");
        Memory {
            cells: (0..cells).map(part).collect(),
            values: (cells..initial.len()).map(part).collect(),
            all,
        }
    }

    pub fn cell(&self, number: usize) -> &Buffer<i32> {
        &self.cells[number]
    }

    pub fn write(&self, stream: &CudaStream, cells: &[i32]) {
        let all = self.all.slice(..cells.len()).expect("it is a part");
        all.copy_from_host(stream, cells).expect("it fits");
    }

    pub fn read(&self, stream: &CudaStream) -> Vec<i32> {
        let all = self.all.slice(..self.cells.len()).expect("it is a part");
        all.to_host(stream).expect("it ran")
    }

    fn value(&self, value: i32) -> &Buffer<i32> {
        &self.values[(value - VALUES.start) as usize]
    }
}

/// Records `acts` by whatever recorder.
pub fn record(r: &mut dyn Recorder, acts: &[Act], memory: &Memory) -> Result<()> {
    for act in acts {
        match act {
            Act::Put { to, value, how } => {
                r.record(putting(memory, *to, *value, *how)?)?;
            }
            Act::Plus { to, from, by } => {
                let (to, from) = (memory.cell(*to), memory.cell(*from));
                if *by == By::OtherCode && r.has_stream() {
                    r.keep(to.owner())?;
                    // SAFETY: both are parts of the buffer that is kept.
                    unsafe { r.foreign(|stream| launch_plus(stream, to, from)) }?;
                } else {
                    r.record(plus(to, from))?;
                }
            }
            Act::Count { to, from, sign } => {
                r.record(count(memory.cell(*to), memory.cell(*from), *sign))?;
            }
            Act::Nearer(at) => drop(r.record(nearer(memory.cell(*at)))?),
            Act::While { on, body } => {
                r.while_nonzero(memory.cell(*on), |r| record(r, body, memory))?;
            }
            Act::DoWhile { on, body } => {
                r.do_while_nonzero(memory.cell(*on), |r| record(r, body, memory))?;
            }
            Act::If { on, then } => {
                r.if_nonzero(memory.cell(*on), |r| record(r, then, memory))?;
            }
            Act::IfElse {
                on,
                then,
                otherwise,
            } => r.if_else_nonzero(
                memory.cell(*on),
                |r| record(r, then, memory),
                |r| record(r, otherwise, memory),
            )?,
            Act::Switch { on, cases } => {
                each(cases, memory, |bodies| {
                    r.switch_on(memory.cell(*on), bodies)
                })?;
            }
            Act::Side(branches) => each(branches, memory, |bodies| r.parallel(bodies))?,
        }
    }
    Ok(())
}

/// Gives `record` a closure for each list.
fn each(
    lists: &[Vec<Act>],
    memory: &Memory,
    take: impl FnOnce(&mut [&mut Body<'_>]) -> Result<()>,
) -> Result<()> {
    let closure = |acts: &'_ Vec<Act>| {
        let acts = acts.clone();
        move |r: &mut dyn Recorder| record(r, &acts, memory)
    };
    let mut closures: Vec<_> = lists.iter().map(closure).collect();
    let mut bodies: Vec<&mut Body<'_>> = Vec::new();
    for closure in &mut closures {
        bodies.push(closure);
    }
    take(&mut bodies)
}

/// An operation that sets a cell.
fn putting(memory: &Memory, to: usize, value: i32, how: How) -> Result<AnyOp> {
    let to = memory.cell(to);
    Ok(match how {
        How::Kernel => put(to, value).into(),
        How::Fill => FillOp::new(to, value)?.into(),
        How::Copy => CopyOp::new(to, memory.value(value))?.into(),
    })
}

/// Has the device compute `plus` through cudarc alone.
fn launch_plus(stream: &Arc<CudaStream>, to: &Buffer<i32>, from: &Buffer<i32>) -> Result<()> {
    let (to, from) = (to.address(), from.address());
    let mut launch = stream.launch_builder(&kernels().plus_function);
    launch.arg(&to).arg(&from);
    // SAFETY: `plus` reads and writes one word of each.
    unsafe { launch.launch(one()) }?;
    Ok(())
}

/// Ways to fill a body.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Fill {
    /// Node by node.
    Explicit,
    /// By a path through the view of the body.
    Path,
    /// By a capture into it.
    Capture,
    /// The first half by a path, what comes then node by node, what decides about another turn by a
    /// capture.
    Parts,
}

/// A graph made node by node, whose bodies are filled in turn as `fills` says, again and again.
struct Builder<'a> {
    memory: &'a Memory,
    stream: &'a Arc<CudaStream>,
    fills: &'a [Fill],
    filled: usize,
}

/// One graph of it.
struct Explicit<'a> {
    graph: &'a Graph,
    after: Vec<NodeId>,
}

impl Explicit<'_> {
    fn give(&mut self, op: impl Operation) -> Result<NodeId> {
        let node = self.graph.add(op, self.after.as_slice())?.id();
        self.after = vec![node];
        Ok(node)
    }
}

impl Builder<'_> {
    /// Adds `acts` to `graph` after `after`; gives the last nodes.
    fn build(&mut self, graph: &Graph, after: &[NodeId], acts: &[Act]) -> Result<Vec<NodeId>> {
        let memory = self.memory;
        let mut at = Explicit {
            graph,
            after: after.to_vec(),
        };
        for act in acts {
            match act {
                Act::Put { to, value, how } => {
                    at.give(putting(memory, *to, *value, *how)?)?;
                }
                Act::Plus { to, from, .. } => {
                    at.give(plus(memory.cell(*to), memory.cell(*from)))?;
                }
                Act::Count { to, from, sign } => {
                    at.give(count(memory.cell(*to), memory.cell(*from), *sign))?;
                }
                Act::Nearer(cell) => drop(at.give(nearer(memory.cell(*cell)))?),
                Act::While { on, body } | Act::DoWhile { on, body } => {
                    let flag = memory.cell(*on);
                    let condition = graph.condition(None)?;
                    at.give(match act {
                        Act::While { .. } => set(condition, flag),
                        _ => arm(&condition, 1),
                    })?;
                    let node = graph.add(WhileOp::new(&condition), at.after.as_slice())?;
                    at.after = vec![node.id()];
                    self.fill(&graph.body(node)?, body, Some(set(condition, flag)))?;
                }
                Act::If { on, then } => {
                    let condition = graph.condition(None)?;
                    at.give(set(condition, memory.cell(*on)))?;
                    let node = graph.add(IfOp::new(&condition), at.after.as_slice())?;
                    at.after = vec![node.id()];
                    self.fill(&graph.body(node)?, then, None)?;
                }
                Act::IfElse {
                    on,
                    then,
                    otherwise,
                } => {
                    let condition = graph.condition(None)?;
                    at.give(set(condition, memory.cell(*on)))?;
                    let node = graph.add(IfElseOp::new(&condition), at.after.as_slice())?;
                    at.after = vec![node.id()];
                    let bodies = graph.bodies(node)?;
                    self.fill(&bodies[0], then, None)?;
                    self.fill(&bodies[1], otherwise, None)?;
                }
                Act::Switch { on, cases } => {
                    let condition = graph.condition(None)?;
                    at.give(set(condition, memory.cell(*on)))?;
                    let op = SwitchOp::new(&condition, cases.len() as u32);
                    let node = graph.add(op, at.after.as_slice())?;
                    at.after = vec![node.id()];
                    for (body, case) in graph.bodies(node)?.iter().zip(cases) {
                        self.fill(body, case, None)?;
                    }
                }
                Act::Side(branches) => {
                    let conditional = |branch: &&Vec<Act>| branch.iter().any(is_conditional);
                    // They take turns.
                    if branches.iter().filter(conditional).count() > 1 {
                        for branch in branches {
                            at.after = self.build(graph, &at.after, branch)?;
                        }
                        continue;
                    }
                    let mut ends = Vec::new();
                    for branch in branches {
                        for end in self.build(graph, &at.after, branch)? {
                            if !ends.contains(&end) {
                                ends.push(end);
                            }
                        }
                    }
                    at.after = ends;
                }
            }
        }
        Ok(at.after)
    }

    fn fill(&mut self, body: &Graph, acts: &[Act], last: Option<KernelOp>) -> Result<()> {
        let fill = self.fills[self.filled % self.fills.len()];
        self.filled += 1;
        let memory = self.memory;
        match fill {
            Fill::Explicit => {
                let ends = self.build(body, &[], acts)?;
                if let Some(last) = last {
                    body.add(last, ends)?;
                }
            }
            Fill::Path => {
                let mut path = Path::new(body);
                record(&mut path, acts, memory)?;
                if let Some(last) = last {
                    path.record(last)?;
                }
            }
            Fill::Capture => body.capture_into(self.stream, (), |c| {
                record(c, acts, memory)?;
                last.map_or(Ok(()), |last| c.record(last).map(drop))
            })?,
            Fill::Parts => {
                let (first, second) = acts.split_at(acts.len() / 2);
                let mut path = Path::new(body);
                record(&mut path, first, memory)?;
                let ends = self.build(body, &path.ends()?, second)?;
                if let Some(last) = last {
                    body.capture_into(self.stream, ends, |c| c.record(last).map(drop))?;
                }
            }
        }
        Ok(())
    }
}

/// Ways to have a device run a program.
#[derive(Clone, Debug)]
pub enum Way {
    Eager,
    Path,
    Capture,
    /// Into a graph that exists, when it is whole.
    Into,
    /// Explicitly, with bodies filled so.
    Explicit(Vec<Fill>),
}

/// Each way once.
pub fn every_way() -> Vec<Way> {
    let fills = [Fill::Explicit, Fill::Path, Fill::Capture, Fill::Parts];
    let explicit = fills.map(|fill| Way::Explicit(vec![fill]));
    [Way::Eager, Way::Path, Way::Capture, Way::Into]
        .into_iter()
        .chain(explicit)
        .collect()
}

/// Builds a program in each of `ways`, once, and runs it with each of `inputs`, which the first
/// cells are at first, while the others are 0. It computes what it is to compute; gives the number
/// of bodies that ran each time.
#[track_caller]
pub fn agrees(acts: &[Act], cells: usize, inputs: &[Vec<i32>], ways: &[Way]) -> Vec<u32> {
    let stream = stream();
    let memory = Memory::new(&stream, cells);
    let mut bodies = Vec::new();
    for way in ways {
        let mut run = prepare(way, acts, &memory, &stream)
            .unwrap_or_else(|error| panic!("{way:?}: {error}: {acts:?}"));
        bodies.clear();
        for input in inputs {
            let mut expected = vec![0; cells];
            expected[..input.len()].copy_from_slice(input);
            memory.write(&stream, &expected);
            bodies.push(interpret(acts, &mut expected));
            run().unwrap_or_else(|error| panic!("{way:?}, with {input:?}: {error}: {acts:?}"));
            let got = memory.read(&stream);
            assert_eq!(got, expected, "{way:?}, with {input:?}: {acts:?}");
        }
    }
    bodies
}

fn is_conditional(act: &Act) -> bool {
    match act {
        Act::Put { .. } | Act::Plus { .. } | Act::Count { .. } | Act::Nearer(_) => false,
        Act::Side(branches) => branches.iter().flatten().any(is_conditional),
        _ => true,
    }
}

type Run<'a> = Box<dyn FnMut() -> Result<()> + 'a>;

/// What runs a program once.
fn prepare<'a>(
    way: &Way,
    acts: &'a [Act],
    memory: &'a Memory,
    stream: &'a Arc<CudaStream>,
) -> Result<Run<'a>> {
    let graph = match way {
        Way::Eager => {
            let mut eager = Eager::new(stream)?;
            return Ok(Box::new(move || record(&mut eager, acts, memory)));
        }
        Way::Capture => Graph::capture(stream, |c| record(c, acts, memory))?.0,
        Way::Into => {
            let graph = Graph::new(stream.context())?;
            graph.capture_into(stream, (), |c| record(c, acts, memory))?;
            graph
        }
        Way::Path => {
            let graph = Graph::new(stream.context())?;
            record(&mut Path::new(&graph), acts, memory)?;
            graph
        }
        Way::Explicit(fills) => {
            let graph = Graph::new(stream.context())?;
            let mut builder = Builder {
                memory,
                stream,
                fills,
                filled: 0,
            };
            builder.build(&graph, &[], acts)?;
            graph
        }
    };
    let mut exec = graph.instantiate()?;
    Ok(Box::new(move || launch(&mut exec, stream)))
}
