//! What loops and branches on the device cost: the raw driver's conditional nodes, this library's,
//! and loops that the host drives, on the same work in one run.
//!
//! `cargo run --release --example loop_cost [-- --turns 1000] [--repeats 50]`
//!
//! A turn is a kernel of one thread that counts. Times are from the launch to the end of all turns,
//! divided by the turns: medians over the repeats, in each of which every way has its turn, and the
//! first one is another each time. All counts are checked.

mod kernels;
mod library;
mod raw;

use std::any::Any;
use std::error::Error;
use std::time::{Duration, Instant};

use cuda_graph::Buffer;

use kernels::Work;

type Result<T> = std::result::Result<T, Box<dyn Error>>;

/// How often an inner loop turns.
const INNER: u32 = 10;

/// Does the work once: gives all of it to the stream.
type Run<'a> = Box<dyn FnMut() -> Result<()> + 'a>;

/// One way to do it.
struct Contender<'a> {
    run: Run<'a>,
    /// Turns in a run.
    turns: u32,
    /// Where the turns of all runs are counted.
    counts: Buffer<u32>,
    runs: u32,
    times: Vec<Duration>,
    /// What the work uses. Goes last.
    _kept: Box<dyn Any>,
}

impl<'a> Contender<'a> {
    fn new(turns: u32, counts: &Buffer<u32>, run: Run<'a>) -> Result<Self> {
        Ok(Contender {
            run,
            turns,
            counts: counts.clone(),
            runs: 0,
            times: Vec::new(),
            _kept: Box::new(()),
        })
    }

    fn keeping(self, what: impl Any) -> Self {
        let _kept = Box::new(what);
        Contender { _kept, ..self }
    }

    fn go(&mut self, work: &Work, counted: bool) -> Result<()> {
        work.stream.synchronize()?;
        let start = Instant::now();
        (self.run)()?;
        work.stream.synchronize()?;
        if counted {
            self.times.push(start.elapsed());
        }
        self.runs += 1;
        Ok(())
    }

    fn check(&self, work: &Work, name: &str) -> Result<()> {
        let (seen, expected) = (
            self.counts.to_host(&work.stream)?[1],
            self.turns * self.runs,
        );
        if seen != expected {
            return Err(format!("{name}: {seen} turns in all, not {expected}").into());
        }
        Ok(())
    }

    /// µs per turn: the median, and the least.
    fn figures(&self) -> (f64, f64) {
        let per_turn = |time: &Duration| time.as_secs_f64() * 1e6 / f64::from(self.turns);
        let mut times: Vec<_> = self.times.iter().map(per_turn).collect();
        times.sort_by(f64::total_cmp);
        (times[times.len() / 2], times[0])
    }
}

/// Ways to do the same.
struct Table<'a> {
    title: String,
    ways: Vec<(&'static str, Contender<'a>)>,
    /// The ways, by their place, that all are compared with.
    against: &'a [usize],
}

impl Table<'_> {
    fn measure(&mut self, work: &Work, repeats: usize) -> Result<()> {
        let count = self.ways.len();
        for (name, way) in &mut self.ways {
            way.go(work, false)?;
            way.go(work, false)?;
            way.check(work, name)?;
        }
        for repeat in 0..repeats {
            for at in 0..count {
                self.ways[(at + repeat) % count].1.go(work, true)?;
            }
        }
        for (name, way) in &self.ways {
            way.check(work, name)?;
        }
        Ok(())
    }

    /// How many times the median of one way is that of another.
    fn ratio(&self, way: usize, over: usize) -> f64 {
        self.ways[way].1.figures().0 / self.ways[over].1.figures().0
    }

    fn print(&self) {
        print!("\n{}\n{:58}{:>10}{:>10}", self.title, "", "median", "least");
        for over in self.against {
            print!("{:>10}", format!("over ({})", over + 1));
        }
        println!();
        for (at, (name, way)) in self.ways.iter().enumerate() {
            let (median, least) = way.figures();
            let name = format!("({}) {name}", at + 1);
            print!("{name:58}{median:>10.3}{least:>10.3}");
            for &over in self.against {
                print!("{:>10.3}", self.ratio(at, over));
            }
            println!();
        }
    }
}

fn loops<'a>(work: &'a Work, turns: u32) -> Result<Table<'a>> {
    Ok(Table {
        title: format!("a loop of {turns} turns, µs per turn"),
        ways: vec![
            (
                "raw driver, the kernel sets the condition",
                raw::sets_itself(work, turns)?,
            ),
            (
                "raw driver, a second kernel sets it from a flag",
                raw::sets_from_flag(work, turns)?,
            ),
            (
                "WhileOp, the kernel sets the condition",
                library::while_op(work, turns)?,
            ),
            (
                "do_while_nonzero in a Path",
                library::do_while(work, turns)?,
            ),
            ("while_nonzero in a Path", library::r#while(work, turns)?),
            (
                "do_while_nonzero run by Eager, from the host",
                library::eager(work, turns)?,
            ),
            (
                "raw driver from the host: launch, read back, wait",
                raw::host_driven(work, turns)?,
            ),
        ],
        against: &[0, 1],
    })
}

fn nested<'a>(work: &'a Work, turns: u32) -> Result<Table<'a>> {
    let outer = turns.div_ceil(INNER);
    Ok(Table {
        title: format!("{outer} turns of a loop of {INNER} turns, µs per inner turn"),
        ways: vec![
            (
                "raw driver, kernels set both and arm the inner",
                raw::nested(work, outer, INNER)?,
            ),
            (
                "do_while_nonzero in do_while_nonzero, in a Path",
                library::nested(work, outer, INNER)?,
            ),
        ],
        against: &[0],
    })
}

fn branches<'a>(work: &'a Work, turns: u32) -> Result<Table<'a>> {
    let count = turns.min(100);
    Ok(Table {
        title: format!("{count} branches taken, one after the other, µs per branch"),
        ways: vec![
            (
                "raw driver, a kernel sets the condition from a flag",
                raw::ifs(work, count)?,
            ),
            ("if_nonzero in a Path", library::ifs(work, count)?),
        ],
        against: &[0],
    })
}

fn number(after: &str, otherwise: u32) -> Result<u32> {
    let mut arguments = std::env::args().skip_while(|argument| argument != after);
    match (arguments.next(), arguments.next()) {
        (None, _) => Ok(otherwise),
        (_, Some(number)) => Ok(number.parse::<u32>()?.max(1)),
        (_, None) => Err(format!("{after} wants a number").into()),
    }
}

fn main() -> Result<()> {
    let device = cuda_graph::device(0)?;
    let (turns, repeats) = (number("--turns", 1000)?, number("--repeats", 50)? as usize);
    println!("device: {}, driver: {}", device.name()?, device.driver());
    println!("medians of {repeats} repeats; over (n): how many times the median of that way");
    let work = Work::new(device.context().new_stream()?)?;

    let mut table = loops(&work, turns)?;
    table.measure(&work, repeats)?;
    table.print();
    let percent = |over| (table.ratio(3, over) - 1.0) * 100.0;
    println!(
        "do_while_nonzero (4) over the raw conditional node: {:+.1} % with a flag (2), {:+.1} % where the kernel sets the condition (1)",
        percent(1),
        percent(0)
    );
    for table in [&mut nested(&work, turns)?, &mut branches(&work, turns)?] {
        table.measure(&work, repeats)?;
        table.print();
    }
    Ok(())
}
