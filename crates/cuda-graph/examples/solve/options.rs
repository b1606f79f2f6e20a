//! The command line, as a value.

use std::ffi::OsString;
use std::num::NonZeroU32;
use std::path::PathBuf;

use cuda_graph::Optimize;
use lexopt::{Arg, Parser};

use super::solver::Limits;

pub const HELP: &str = "\
Solves A x = b, A sparse, symmetric, positive definite, by conjugate gradients: one graph, one launch, a loop on the device.

usage: solve [MATRIX.mtx] [options]

MATRIX.mtx              a Matrix Market file: coordinate; real, integer or pattern; general or symmetric.
                        Without one: the 5-point Poisson problem on a grid. b is A times a vector that is known.

--grid N                the grid has N x N points                                        [512]
--tolerance T           stop when the residual is T times what it was at the start       [1e-8]
--max-iterations N      give up after so many                                            [100000]
--unroll N              iterations in one turn of the loop; otherwise the optimizer chooses
--systems K             solve for K right-hand sides, one after the other, with one graph [1]
--restart-every N       compute the residual anew from x every N iterations, and before it is believed
--devices N             devices 0 to N-1 solve together: each has a part of the rows, and loops by itself
--compare               also run the same step eagerly, with a loop on the host, and compare; of one system, no restarts.
                        On the software driver, also compare with the same method in Rust with rayon.
                        Of several devices: with one, and with their loops on the host
--report                say what the optimizer did
--svg FILE              draw the graph, and in FILE.optimized.svg what the optimizer makes of it
--help                  this text

CUDA_GRAPH_DRIVER=auto|gpu|software picks the driver. Exit codes: 0 solved, 1 not, 2 wrong usage.";

/// The grid whose points 31 bits count, with 5 entries for each.
const LARGEST_GRID: usize = 20_000;

/// All right-hand sides and solutions are in memory at once.
const MOST_SYSTEMS: usize = 1000;

/// More than a machine has.
const MOST_DEVICES: usize = 1024;

/// What is to be solved.
#[derive(Clone, Debug, PartialEq)]
pub enum Problem {
    File(PathBuf),
    /// The Poisson problem on so many points a side.
    Grid(usize),
}

#[derive(Clone, Debug, PartialEq)]
pub struct Options {
    pub problem: Problem,
    pub tolerance: f64,
    pub max_iterations: u32,
    /// How many iterations a turn of the loop has, unless the optimizer chooses.
    pub unroll: Option<u32>,
    /// How many right-hand sides there are.
    pub systems: usize,
    /// How many iterations there are between restarts.
    pub restart_every: Option<NonZeroU32>,
    /// How many devices solve together; none to have one device do it all.
    pub devices: Option<usize>,
    pub compare: bool,
    pub report: bool,
    pub svg: Option<PathBuf>,
}

impl Options {
    /// When to stop.
    pub fn limits(&self) -> Limits {
        Limits {
            tolerance: self.tolerance,
            iterations: self.max_iterations,
            restart_every: self.restart_every,
        }
    }

    /// How graphs are optimized.
    pub fn optimize(&self) -> Optimize {
        Optimize::ALL.unroll(self.unroll.unwrap_or_default())
    }
}

/// What the command line asks for.
#[derive(Clone, Debug, PartialEq)]
pub enum Request {
    Help,
    Solve(Options),
}

/// A command line that means nothing.
#[derive(Debug, thiserror::Error)]
#[error("{0}; --help says what there is")]
pub struct UsageError(String);

impl From<lexopt::Error> for UsageError {
    fn from(error: lexopt::Error) -> UsageError {
        UsageError(error.to_string())
    }
}

/// The value of an option, which must be within what `expected` says.
fn value<T: std::str::FromStr>(
    parser: &mut Parser,
    option: &str,
    expected: &str,
    within: impl Fn(&T) -> bool,
) -> Result<T, UsageError> {
    let value = parser.value()?;
    let parsed = value.to_str().and_then(|text| text.parse().ok());
    parsed.filter(within).ok_or_else(|| {
        UsageError(format!(
            "{option} takes {expected}, not `{}`",
            value.display()
        ))
    })
}

/// Reads the arguments, without the program's name.
pub fn parse<A: Into<OsString>>(
    arguments: impl IntoIterator<Item = A>,
) -> Result<Request, UsageError> {
    let arguments: Vec<OsString> = arguments.into_iter().map(Into::into).collect();
    let mut parser = Parser::from_args(arguments);
    let mut problem = None;
    let mut options = Options {
        problem: Problem::Grid(512),
        tolerance: 1e-8,
        max_iterations: 100_000,
        unroll: None,
        systems: 1,
        restart_every: None,
        devices: None,
        compare: false,
        report: false,
        svg: None,
    };
    let mut choose = |chosen: Problem| match problem.replace(chosen) {
        None => Ok(()),
        Some(_) => Err(UsageError(
            "one matrix, or one grid, is solved at a time".into(),
        )),
    };
    while let Some(argument) = parser.next()? {
        match argument {
            Arg::Value(file) => choose(Problem::File(file.into()))?,
            Arg::Long("grid") => {
                let expected = format!("a number from 1 to {LARGEST_GRID}");
                choose(Problem::Grid(value(
                    &mut parser,
                    "--grid",
                    &expected,
                    |side| (1..=LARGEST_GRID).contains(side),
                )?))?;
            }
            Arg::Long("tolerance") => {
                let expected = "a number above 0 and below 1";
                let within = |tolerance: &f64| *tolerance > 0.0 && *tolerance < 1.0;
                options.tolerance = value(&mut parser, "--tolerance", expected, within)?;
            }
            Arg::Long("max-iterations") => {
                let expected = "a number from 1 to 4294967295";
                options.max_iterations =
                    value(&mut parser, "--max-iterations", expected, |&most| most > 0)?;
            }
            Arg::Long("unroll") => {
                let within = |unroll: &u32| (1..=64).contains(unroll);
                let count = value(&mut parser, "--unroll", "a number from 1 to 64", within)?;
                options.unroll = Some(count);
            }
            Arg::Long("systems") => {
                let expected = format!("a number from 1 to {MOST_SYSTEMS}");
                let within = |systems: &usize| (1..=MOST_SYSTEMS).contains(systems);
                options.systems = value(&mut parser, "--systems", &expected, within)?;
            }
            Arg::Long("restart-every") => {
                let expected = "a number from 1 to 4294967295";
                let every = value(&mut parser, "--restart-every", expected, |_| true)?;
                options.restart_every = Some(every);
            }
            Arg::Long("devices") => {
                let expected = format!("a number from 1 to {MOST_DEVICES}");
                let within = |count: &usize| (1..=MOST_DEVICES).contains(count);
                options.devices = Some(value(&mut parser, "--devices", &expected, within)?);
            }
            Arg::Long("compare") => options.compare = true,
            Arg::Long("report") => options.report = true,
            Arg::Long("svg") => options.svg = Some(parser.value()?.into()),
            Arg::Short('h') | Arg::Long("help") => return Ok(Request::Help),
            other => return Err(other.unexpected().into()),
        }
    }
    if let Some(problem) = problem {
        options.problem = problem;
    }
    if options.compare && options.systems > 1 {
        return Err(UsageError("--compare is of one system".into()));
    }
    if options.compare && options.restart_every.is_some() {
        return Err(UsageError("--compare is without restarts".into()));
    }
    Ok(Request::Solve(options))
}
