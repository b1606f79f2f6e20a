//! What graphs cost: the raw driver, this library, and plain cudarc capture on the same work, in
//! one run.
//!
//! `cargo run --release --example launch_cost [-- --nodes 1000] [--repeats 50] [--replay]`
//!
//! The work is kernels of one thread that each write a word of their own, in a line or in four
//! lanes. Everything is the median over the repeats, and the three take turns within each, so that
//! what else the machine does hits them alike. The last words written are checked.

mod captured;
mod library;
mod raw;
mod recorded;
mod replayed;

use std::error::Error;
use std::sync::Arc;
use std::time::{Duration, Instant};

use cuda_graph::cudarc;
use cuda_graph::{Buffer, Kernel};
use cudarc::driver::{CudaFunction, CudaStream, LaunchConfig};
use cudarc::nvrtc::Ptx;

type Result<T> = std::result::Result<T, Box<dyn Error>>;

/// `store(to, value)`: `*to = value`.
const PTX: &str = "
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
";

const ONE_THREAD: LaunchConfig = LaunchConfig {
    grid_dim: (1, 1, 1),
    block_dim: (1, 1, 1),
    shared_mem_bytes: 0,
};

/// So many nodes, each after the one `lanes` before it.
#[derive(Clone, Copy)]
struct Shape {
    nodes: usize,
    lanes: usize,
}

impl Shape {
    /// What node `node` waits for.
    fn before(self, node: usize) -> Option<usize> {
        node.checked_sub(self.lanes)
    }
}

/// What all ways work on: node `i` writes word `i`.
struct Work {
    stream: Arc<CudaStream>,
    store: CudaFunction,
    kernel: Kernel,
    words: Buffer<u32>,
}

impl Work {
    fn address(&self, node: usize) -> u64 {
        self.words.address() + 4 * node as u64
    }
}

/// The word that node `node` writes in round `round` of updates.
fn value(node: usize, round: u32) -> u32 {
    (node as u32) << 8 | round
}

/// One way to do it.
trait Way {
    const NAME: &str;
    type Graph;
    type Exec;
    /// What is made before the clock runs.
    type Prepared;

    fn prepare(work: &Work, shape: Shape) -> Result<Self::Prepared>;
    /// Makes the definition; where the way cannot stop there, the executable too.
    fn build(work: &Work, shape: Shape, prepared: Self::Prepared) -> Result<Self::Graph>;
    /// `None` where building did it.
    fn instantiate(graph: &mut Self::Graph) -> Result<Option<Self::Exec>>;
    fn launch(work: &Work, graph: &mut Self::Graph, exec: &mut Option<Self::Exec>) -> Result<()>;
    /// What updates need, made beforehand.
    type Updates;
    /// `None` where the way has no updates.
    fn updates(work: &Work, shape: Shape, round: u32) -> Result<Option<Self::Updates>>;
    /// Updates each node, or the last one alone.
    fn update(
        graph: &Self::Graph,
        exec: &mut Option<Self::Exec>,
        updates: &Self::Updates,
        nodes: std::ops::Range<usize>,
    ) -> Result<()>;
}

/// What was measured of one way.
struct Figures {
    build: Vec<Duration>,
    instantiate: Vec<Duration>,
    submit: Vec<Duration>,
    total: Vec<Duration>,
    update_all: Vec<Duration>,
    update_one: Vec<Duration>,
}

/// A way in the course of being measured.
struct Contender<W: Way> {
    graph: Option<W::Graph>,
    exec: Option<W::Exec>,
    figures: Figures,
}

/// What is done with each way in turn.
trait Measured {
    fn build(&mut self, work: &Work, shape: Shape) -> Result<()>;
    fn launch(&mut self, work: &Work, counted: bool) -> Result<()>;
    fn update(&mut self, work: &Work, shape: Shape, round: u32) -> Result<bool>;
    fn name(&self) -> &'static str;
    fn figures(&self) -> &Figures;
}

fn timed<T>(into: &mut Vec<Duration>, run: impl FnOnce() -> Result<T>) -> Result<T> {
    let start = Instant::now();
    let result = run()?;
    into.push(start.elapsed());
    Ok(result)
}

impl<W: Way> Contender<W> {
    fn boxed() -> Box<dyn Measured>
    where
        W: 'static,
    {
        Box::new(Contender::<W> {
            graph: None,
            exec: None,
            figures: Figures {
                build: Vec::new(),
                instantiate: Vec::new(),
                submit: Vec::new(),
                total: Vec::new(),
                update_all: Vec::new(),
                update_one: Vec::new(),
            },
        })
    }
}

impl<W: Way> Measured for Contender<W> {
    fn build(&mut self, work: &Work, shape: Shape) -> Result<()> {
        self.exec = None;
        self.graph = None;
        let prepared = W::prepare(work, shape)?;
        let mut graph = timed(&mut self.figures.build, || W::build(work, shape, prepared))?;
        let start = Instant::now();
        self.exec = W::instantiate(&mut graph)?;
        if self.exec.is_some() {
            self.figures.instantiate.push(start.elapsed());
        }
        self.graph = Some(graph);
        Ok(())
    }

    fn launch(&mut self, work: &Work, counted: bool) -> Result<()> {
        let graph = self.graph.as_mut().ok_or("built before")?;
        work.stream.synchronize()?;
        let start = Instant::now();
        W::launch(work, graph, &mut self.exec)?;
        let submit = start.elapsed();
        work.stream.synchronize()?;
        if counted {
            self.figures.submit.push(submit);
            self.figures.total.push(start.elapsed());
        }
        Ok(())
    }

    /// Whether there was something to update.
    fn update(&mut self, work: &Work, shape: Shape, round: u32) -> Result<bool> {
        let Some(updates) = W::updates(work, shape, round)? else {
            return Ok(false);
        };
        let graph = self.graph.as_ref().ok_or("built before")?;
        timed(&mut self.figures.update_all, || {
            W::update(graph, &mut self.exec, &updates, 0..shape.nodes)
        })?;
        let last = shape.nodes - 1..shape.nodes;
        timed(&mut self.figures.update_one, || {
            W::update(graph, &mut self.exec, &updates, last)
        })?;
        Ok(true)
    }

    fn name(&self) -> &'static str {
        W::NAME
    }

    fn figures(&self) -> &Figures {
        &self.figures
    }
}

fn check(work: &Work, shape: Shape, round: u32, who: &str) -> Result<()> {
    let words = work.words.to_host(&work.stream)?;
    for (node, &word) in words.iter().enumerate().take(shape.nodes) {
        if word != value(node, round) {
            return Err(format!(
                "{who}: node {node} wrote {word:#x} in round {round}, not {:#x}",
                value(node, round)
            )
            .into());
        }
    }
    Ok(())
}

fn measure(work: &Work, shape: Shape, repeats: usize) -> Result<Vec<Box<dyn Measured>>> {
    let mut ways = [
        Contender::<raw::Raw>::boxed(),
        Contender::<library::Library>::boxed(),
        Contender::<library::Prepared>::boxed(),
        Contender::<captured::Captured>::boxed(),
    ]
    .into_iter()
    .collect::<Vec<_>>();
    let count = ways.len();
    // Whoever is first after another pays for cold caches, so each is first in turn.
    let turn = |repeat: usize| (0..count).map(move |at| (at + repeat) % count);

    for repeat in 0..repeats.min(20_000 / shape.nodes).max(5) {
        for way in turn(repeat) {
            ways[way].build(work, shape)?;
        }
    }
    for way in &mut ways {
        way.launch(work, false)?;
        way.launch(work, false)?;
        check(work, shape, 0, way.name())?;
    }
    for repeat in 0..repeats {
        for way in turn(repeat) {
            ways[way].launch(work, true)?;
        }
    }
    for repeat in 0..repeats {
        let round = (repeat % 255) as u32 + 1;
        for way in turn(repeat) {
            if ways[way].update(work, shape, round)? && (repeat == 0 || repeat + 1 == repeats) {
                ways[way].launch(work, false)?;
                check(work, shape, round, ways[way].name())?;
            }
        }
    }
    Ok(ways)
}

fn median(of: &[Duration]) -> Option<f64> {
    let mut of: Vec<_> = of.iter().map(|time| time.as_secs_f64() * 1e6).collect();
    of.sort_by(f64::total_cmp);
    of.get(of.len() / 2).copied()
}

/// A figure in µs, and how it compares with the raw driver's.
fn cell(figure: Option<f64>, raw: Option<f64>) -> String {
    match (figure, raw) {
        (Some(figure), Some(raw)) => format!("{figure:8.3} ({:4.2})", figure / raw),
        _ => "-       ".into(),
    }
}

fn print(shape: Shape, ways: &[Box<dyn Measured>]) {
    let lanes = match shape.lanes {
        1 => "a line".into(),
        lanes => format!("{lanes} lanes"),
    };
    let plural = if shape.nodes == 1 { "" } else { "s" };
    println!("\n{} node{plural} in {lanes}", shape.nodes);
    let columns = [
        "build/node",
        "inst./node",
        "submit",
        "launch, all",
        "update/node",
        "update one",
    ];
    print!("{:21}", "");
    columns.iter().for_each(|column| print!("{column:>17}"));
    println!();
    let figures = |way: &dyn Measured| {
        let figures = way.figures();
        let per_node = |figure: Option<f64>| figure.map(|figure| figure / shape.nodes as f64);
        [
            per_node(median(&figures.build)),
            per_node(median(&figures.instantiate)),
            median(&figures.submit),
            median(&figures.total),
            per_node(median(&figures.update_all)),
            median(&figures.update_one),
        ]
    };
    let raw = figures(&*ways[0]);
    for way in ways {
        print!("  {:19}", way.name());
        for (figure, raw) in figures(&**way).into_iter().zip(raw) {
            print!("{:>17}", cell(figure, raw));
        }
        println!();
    }
}

fn number(after: &str, otherwise: usize) -> Result<usize> {
    let mut arguments = std::env::args().skip_while(|argument| argument != after);
    match (arguments.next(), arguments.next()) {
        (None, _) => Ok(otherwise),
        (_, Some(number)) => Ok(number.parse::<usize>()?.max(1)),
        (_, None) => Err(format!("{after} wants a number").into()),
    }
}

fn main() -> Result<()> {
    let device = cuda_graph::device(0)?;
    let (most, repeats) = (number("--nodes", 10_000)?, number("--repeats", 100)?);
    println!("device: {}, driver: {}", device.name()?, device.driver());
    println!("medians in µs of {repeats} repeats; in brackets, times the raw driver");
    println!(
        "building: with `ops made`, the operations were made before; otherwise making them is part of it"
    );
    println!("cudarc's capture ends with the executable, so its build is both; it has no updates");

    let stream = device.context().new_stream()?;
    let store = device
        .context()
        .load_module(Ptx::from_src(PTX))?
        .load_function("store")?;
    let work = Work {
        kernel: Kernel::new(&store)?,
        words: Buffer::zeroed(&stream, most)?,
        stream,
        store,
    };
    let replayed = || -> Result<()> {
        let counts = [10, 100, 1_000].into_iter().filter(|nodes| *nodes <= most);
        counts
            .into_iter()
            .try_for_each(|nodes| replayed::print(&work, nodes, repeats))
    };
    if std::env::args().any(|argument| argument == "--replay") {
        return replayed();
    }
    for lanes in [1, 4] {
        for nodes in [1, 10, 100, 1_000, 10_000] {
            if nodes <= most && nodes >= lanes {
                let shape = Shape { nodes, lanes };
                print(shape, &measure(&work, shape, repeats)?);
            }
        }
    }
    recorded::header();
    for nodes in [1, 10, 100, 1_000, 10_000] {
        if nodes <= most {
            recorded::print(&work, nodes, repeats)?;
        }
    }
    replayed()
}
