//! Random programs of collectives, by random recorders, beside a plain reference.
//!
//! `CUDA_GRAPH_COLLECTIVE_PROGRAMS` says how many; `CUDA_GRAPH_COLLECTIVE_SEED` gives the first.

use std::thread;

use cuda_graph::{
    Body, Buffer, CollectiveOp, Communicator, Eager, Graph, InstantiateOptions, Optimize, Ranks,
    Recorder, Reduction, Replay, Result, Transmission,
};

use super::{Rank, may_loop, ranks};

/// A small generator: the programs are the same wherever they are made.
struct Random(u64);

impl Random {
    fn below(&mut self, end: usize) -> usize {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mixed = (self.0 ^ self.0 >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let mixed = (mixed ^ mixed >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
        ((mixed ^ mixed >> 31) % end as u64) as usize
    }
}

/// The words of a rank: parts of one buffer are read and written.
const WORDS: usize = 6000;

/// Loops beside each other have counters of their own, whatever the seed of the tests here.
const COUNTERS: usize = 1 << 12;

/// What all ranks do. Places are in the ranks' buffers; all but exchanges are in place or apart.
#[derive(Debug, Clone)]
enum Does {
    AllReduce {
        at: usize,
        count: usize,
        by: Reduction,
    },
    Broadcast {
        to: usize,
        from: usize,
        count: usize,
        root: usize,
    },
    Reduce {
        at: usize,
        count: usize,
        by: Reduction,
        root: usize,
    },
    AllGather {
        to: usize,
        from: usize,
        count: usize,
    },
    ReduceScatter {
        to: usize,
        from: usize,
        count: usize,
    },
    /// Each rank sends to the one `by` further on.
    Shift {
        to: usize,
        from: usize,
        count: usize,
        by: usize,
    },
    /// Several of them in branches side by side.
    Branches(Vec<Does>),
    /// Some of them twice, by a counter of their own.
    Twice(usize, Vec<Does>),
}

impl Does {
    fn any(random: &mut Random, size: usize, depth: usize) -> Does {
        let half = WORDS / 2;
        let count = [0, 1, 3, 64, 200, half / size][random.below(6)];
        let low = |random: &mut Random, count: usize| random.below(half - count + 1);
        let by = Reduction::ALL[random.below(4)];
        let root = random.below(size);
        match random.below(if depth > 0 { 8 } else { 6 }) {
            0 => Does::AllReduce {
                at: low(random, count),
                count,
                by,
            },
            1 => Does::Broadcast {
                to: half + low(random, count),
                from: low(random, count),
                count,
                root,
            },
            2 => Does::Reduce {
                at: low(random, count),
                count,
                by,
                root,
            },
            3 => Does::AllGather {
                to: half,
                from: low(random, count),
                count,
            },
            4 => {
                let count = count.min(half / size);
                Does::ReduceScatter {
                    to: half + low(random, count),
                    from: low(random, count * size),
                    count,
                }
            }
            5 => Does::Shift {
                to: half + low(random, count),
                from: low(random, count),
                count,
                by: random.below(size),
            },
            kind => {
                let count = 1 + random.below(3);
                let inside = (0..count)
                    .map(|_| Does::any(random, size, depth - 1))
                    .collect();
                match kind {
                    6 => Does::Branches(inside),
                    _ => Does::Twice(random.below(COUNTERS), inside),
                }
            }
        }
    }

    fn record(&self, rank: &Rank, memory: &Memory, r: &mut dyn Recorder) -> Result<()> {
        let (communicator, own) = (&rank.communicator, rank.number() as usize);
        let (size, whole) = (communicator.size() as usize, &memory.whole);
        let part = |at: usize, count: usize| whole.slice(at..at + count);
        let op = match self {
            Does::AllReduce { at, count, by } => {
                let part = part(*at, *count)?;
                CollectiveOp::all_reduce(communicator, &part, &part, *by)
            }
            Does::Broadcast {
                to,
                from,
                count,
                root,
            } => {
                let (to, from) = (part(*to, *count)?, part(*from, *count)?);
                CollectiveOp::broadcast(communicator, &to, &from, *root as u32)
            }
            Does::Reduce {
                at,
                count,
                by,
                root,
            } => {
                let part = part(*at, *count)?;
                CollectiveOp::reduce(communicator, &part, &part, *by, *root as u32)
            }
            Does::AllGather { to, from, count } => {
                let (to, from) = (part(*to, count * size)?, part(*from, *count)?);
                CollectiveOp::all_gather(communicator, &to, &from)
            }
            Does::ReduceScatter { to, from, count } => {
                let (to, from) = (part(*to, *count)?, part(*from, count * size)?);
                CollectiveOp::reduce_scatter(communicator, &to, &from, Reduction::Sum)
            }
            Does::Shift {
                to,
                from,
                count,
                by,
            } => {
                let (to, from) = (part(*to, *count)?, part(*from, *count)?);
                let (next, last) = ((own + by) % size, (own + size - by) % size);
                let messages = [
                    Transmission::send(&from, next as u32),
                    Transmission::recv(&to, last as u32),
                ];
                CollectiveOp::exchange(communicator, messages)
            }
            Does::Branches(inside) => {
                // One branch each: they run in the order in which they are here.
                let mut branches: Vec<_> = inside
                    .iter()
                    .map(|does| move |r: &mut dyn Recorder| does.record(rank, memory, r))
                    .collect();
                let mut branches: Vec<&mut Body<'_>> =
                    branches.iter_mut().map(|it| it as _).collect();
                return r.parallel(&mut branches);
            }
            Does::Twice(..) if !memory.loops => return self.flat(rank, memory, r),
            Does::Twice(counter, inside) => {
                let (left, less) = (&memory.left.slice(*counter..counter + 1)?, &memory.less);
                r.record(cuda_graph::FillOp::new(left, 2)?)?;
                return r.while_nonzero(left, |r| {
                    inside
                        .iter()
                        .try_for_each(|does| does.flat(rank, memory, r))?;
                    r.record(crate::fixture::add(left, less)).map(drop)
                });
            }
        };
        r.record(op?).map(drop)
    }

    /// As `record`, with loops unrolled.
    fn flat(&self, rank: &Rank, memory: &Memory, r: &mut dyn Recorder) -> Result<()> {
        match self {
            Does::Twice(_, inside) => {
                let mut twice = inside.iter().chain(inside);
                twice.try_for_each(|does| does.flat(rank, memory, r))
            }
            Does::Branches(inside) => inside
                .iter()
                .try_for_each(|does| does.flat(rank, memory, r)),
            does => does.record(rank, memory, r),
        }
    }

    /// Does the same to the words of all ranks.
    fn run(&self, all: &mut [Vec<u32>]) {
        let size = all.len();
        let reduce = |all: &[Vec<u32>], at: usize, by| {
            let mut values = all.iter().map(|words| words[at]);
            let first = values.next().expect("there is a rank");
            match by {
                Reduction::Sum => values.fold(first, u32::wrapping_add),
                Reduction::Product => values.fold(first, u32::wrapping_mul),
                Reduction::Min => values.fold(first, u32::min),
                _ => values.fold(first, u32::max),
            }
        };
        let before = all.to_vec();
        match *self {
            Does::AllReduce { at, count, by } => {
                for i in at..at + count {
                    let value = reduce(&before, i, by);
                    all.iter_mut().for_each(|words| words[i] = value);
                }
            }
            Does::Broadcast {
                to,
                from,
                count,
                root,
            } => {
                for words in all {
                    words[to..to + count].copy_from_slice(&before[root][from..from + count]);
                }
            }
            Does::Reduce {
                at,
                count,
                by,
                root,
            } => {
                let words = all[root][at..at + count].iter_mut();
                for (i, word) in words.enumerate() {
                    *word = reduce(&before, at + i, by);
                }
            }
            Does::AllGather { to, from, count } => {
                for words in all {
                    for (rank, given) in before.iter().enumerate() {
                        let to = to + rank * count;
                        words[to..to + count].copy_from_slice(&given[from..from + count]);
                    }
                }
            }
            Does::ReduceScatter { to, from, count } => {
                for (rank, words) in all.iter_mut().enumerate() {
                    for i in 0..count {
                        words[to + i] = reduce(&before, from + rank * count + i, Reduction::Sum);
                    }
                }
            }
            Does::Shift {
                to,
                from,
                count,
                by,
            } => {
                for (rank, words) in all.iter_mut().enumerate() {
                    let given = &before[(rank + size - by) % size];
                    words[to..to + count].copy_from_slice(&given[from..from + count]);
                }
            }
            Does::Branches(ref inside) => inside.iter().for_each(|does| does.run(all)),
            Does::Twice(_, ref inside) => {
                inside.iter().chain(inside).for_each(|does| does.run(all));
            }
        }
    }
}

struct Memory {
    whole: Buffer<u32>,
    left: Buffer<u32>,
    less: Buffer<u32>,
    /// Whether the ranks' devices may loop at once.
    loops: bool,
}

fn setting(name: &str, otherwise: usize) -> usize {
    let set = std::env::var(name).ok().and_then(|text| text.parse().ok());
    set.unwrap_or(otherwise)
}

/// What all ranks do, from what words on, and how.
struct Program {
    seed: usize,
    does: Vec<Does>,
    words: Vec<Vec<u32>>,
    how: usize,
    times: usize,
}

impl Program {
    /// The programs to run, of `size` ranks or of any number.
    fn all(size: Option<usize>) -> impl Iterator<Item = Program> {
        let first = setting("CUDA_GRAPH_COLLECTIVE_SEED", 1);
        let seeds = first..first + setting("CUDA_GRAPH_COLLECTIVE_PROGRAMS", 12);
        seeds.map(move |seed| {
            let mut random = Random(seed as u64);
            let any = 1 + random.below(4);
            let size = size.unwrap_or(any);
            let length = 1 + random.below(8);
            let does = (0..length).map(|_| Does::any(&mut random, size, 2));
            let does = does.collect();
            let mut words = || (0..WORDS).map(|_| random.below(1 << 32) as u32).collect();
            Program {
                seed,
                does,
                words: (0..size).map(|_| words()).collect(),
                how: random.below(4),
                times: 1 + random.below(3),
            }
        })
    }

    fn record(&self, rank: &Rank, memory: &Memory, r: &mut dyn Recorder) -> Result<()> {
        let mut does = self.does.iter();
        does.try_for_each(|does| does.record(rank, memory, r))
    }

    fn memory(&self, rank: &Rank, loops: bool) -> Memory {
        let of = |words: &[u32]| Buffer::from_host(&rank.stream, words).expect("memory");
        Memory {
            whole: of(&self.words[rank.number() as usize]),
            left: of(&[0; COUNTERS]),
            less: of(&[u32::MAX]),
            loops,
        }
    }

    /// One rank does its part, by an eager recorder, a replay, or a graph, plain or optimized.
    fn run(&self, rank: &Rank, memory: &Memory) {
        let step = |r: &mut dyn Recorder| self.record(rank, memory, r);
        let mut eager = Eager::new(&rank.stream).expect("it can be made");
        let mut replay = Replay::new(rank.context()).expect("it can be made");
        let made = |optimize| {
            let (graph, ()) = Graph::record(rank.context(), |path| step(path)).expect("recorded");
            let options = InstantiateOptions {
                optimize,
                ..Default::default()
            };
            graph.instantiate_with(&options).expect("instantiated")
        };
        let mut exec = match self.how {
            0 => Some(made(Optimize::NONE)),
            3 => Some(made(Optimize::ALL)),
            _ => None,
        };
        for _ in 0..self.times {
            match (&mut exec, self.how) {
                (Some(exec), _) => exec.launch(&rank.stream),
                (None, 1) => step(&mut eager),
                _ => replay.call(&rank.stream, |r| step(r)).map(drop),
            }
            .expect("it runs");
        }
        rank.communicator.wait(&rank.stream).expect("all get on");
    }

    /// The words of all ranks afterwards.
    fn reference(&self) -> Vec<Vec<u32>> {
        let mut words = self.words.clone();
        for _ in 0..self.times {
            self.does.iter().for_each(|does| does.run(&mut words));
        }
        words
    }

    #[track_caller]
    fn check(&self, rank: &Rank, memory: &Memory, reference: &[Vec<u32>]) {
        let got = memory.whole.to_host(&rank.stream).expect("it can be read");
        let (number, wants) = (rank.number(), &reference[rank.number() as usize]);
        let wrong = got.iter().zip(wants).position(|(got, wants)| got != wants);
        let (seed, how, does) = (self.seed, self.how, &self.does);
        assert_eq!(
            wrong, None,
            "seed {seed}, by {how}, rank {number}: {does:#?}"
        );
    }
}

#[test]
fn programs_agree_with_a_reference() {
    for program in Program::all(None) {
        let ranks = ranks(program.words.len());
        let memory: Vec<Memory> = ranks
            .iter()
            .map(|rank| program.memory(rank, may_loop(ranks.len())))
            .collect();
        if program.how == 0 {
            let all: Vec<_> = ranks.iter().map(|rank| rank.communicator.clone()).collect();
            let (mut together, _) = Ranks::record(&all, |communicator, path| {
                let number = communicator.rank() as usize;
                program.record(&ranks[number], &memory[number], path)
            })
            .expect("it can be recorded");
            (0..program.times).for_each(|_| together.launch().expect("it can be launched"));
            together.wait().expect("all get on");
        } else {
            thread::scope(|scope| {
                for (rank, memory) in ranks.iter().zip(&memory) {
                    scope.spawn(|| program.run(rank, memory));
                }
            });
        }
        let reference = program.reference();
        for (rank, memory) in ranks.iter().zip(&memory) {
            program.check(rank, memory, &reference);
        }
    }
}

/// Runs the programs as one rank, whose peers are other processes.
pub fn run_as(communicator: &Communicator) {
    let rank = Rank {
        stream: communicator.context().new_stream().expect("a stream"),
        communicator: communicator.clone(),
    };
    for program in Program::all(Some(communicator.size() as usize)) {
        let memory = program.memory(&rank, true);
        program.run(&rank, &memory);
        program.check(&rank, &memory, &program.reference());
    }
}
