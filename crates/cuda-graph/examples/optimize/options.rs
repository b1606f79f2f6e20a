//! The command line, as a value.

use std::ffi::OsString;
use std::path::PathBuf;

use cuda_graph::{Optimize, Pass};
use lexopt::{Arg, Parser};

use crate::case::{CASES, is_named};

const HELP: &str = "\
Launches graphs as they are, and with all passes run over them, in turns.

usage: optimize [options]

--only NAME       this case alone; may be given again
--without PASS    without this pass; may be given again
--repeats N       how often each is launched, or instantiated                    [50]
--instantiate     instead: what instantiating costs, with all passes, each one, and none
--picture DIR     instead: draws the graph of a loop, without passes, to DIR/loop.svg
--help            this text
";

pub struct Options {
    /// All cases, if there are none.
    pub only: Vec<String>,
    pub optimize: Optimize,
    pub repeats: usize,
    pub what: What,
}

pub enum What {
    Launch,
    Instantiate,
    Picture(PathBuf),
}

/// What the command line asks for.
pub enum Request {
    Help,
    Run(Options),
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

fn cases() -> String {
    let names: Vec<&str> = CASES.iter().map(|(name, _)| *name).collect();
    names.join(", ")
}

fn name_of(pass: Pass) -> String {
    format!("{pass:?}").to_lowercase()
}

fn passes() -> String {
    let names: Vec<String> = Optimize::ALL.passes().map(name_of).collect();
    names.join(", ")
}

pub fn help() -> String {
    format!(
        "{HELP}
cases: {}
The name before a dash is that of all such cases.

passes: {}

CUDA_GRAPH_DRIVER=auto|gpu|software picks the driver.
Exit codes: 0 all left the same bytes, 1 not, 2 wrong usage.",
        cases(),
        passes()
    )
}

fn case(parser: &mut Parser) -> Result<String, UsageError> {
    let name = parser.value()?.to_string_lossy().into_owned();
    match CASES.iter().any(|(case, _)| is_named(case, &name)) {
        true => Ok(name),
        false => Err(UsageError(format!(
            "--only takes one of {}, not `{name}`",
            cases()
        ))),
    }
}

fn pass(parser: &mut Parser) -> Result<Pass, UsageError> {
    let name = parser.value()?.to_string_lossy().to_lowercase();
    let pass = Optimize::ALL.passes().find(|pass| name_of(*pass) == name);
    pass.ok_or_else(|| UsageError(format!("--without takes one of {}, not `{name}`", passes())))
}

fn number(parser: &mut Parser, option: &str) -> Result<usize, UsageError> {
    let value = parser.value()?;
    let number = value.to_str().and_then(|text| text.parse().ok());
    number.filter(|number| *number > 0).ok_or_else(|| {
        UsageError(format!(
            "{option} takes a number from 1 on, not `{}`",
            value.display()
        ))
    })
}

/// Reads the arguments, without the program's name.
pub fn parse(arguments: impl IntoIterator<Item = OsString>) -> Result<Request, UsageError> {
    let mut parser = Parser::from_args(arguments);
    let mut options = Options {
        only: Vec::new(),
        optimize: Optimize::ALL,
        repeats: 50,
        what: What::Launch,
    };
    while let Some(argument) = parser.next()? {
        match argument {
            Arg::Long("only") => options.only.push(case(&mut parser)?),
            Arg::Long("without") => {
                options.optimize = options.optimize.without(pass(&mut parser)?);
            }
            Arg::Long("repeats") => options.repeats = number(&mut parser, "--repeats")?,
            Arg::Long("instantiate") => options.what = What::Instantiate,
            Arg::Long("picture") => options.what = What::Picture(parser.value()?.into()),
            Arg::Short('h') | Arg::Long("help") => return Ok(Request::Help),
            other => return Err(other.unexpected().into()),
        }
    }
    Ok(Request::Run(options))
}
