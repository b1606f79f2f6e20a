//! The command line, as a value.

use std::ffi::OsString;

use lexopt::{Arg, Parser};

use super::sizes::{LARGEST_CONTEXT, LARGEST_FACTOR, LARGEST_WIDTH, MOST_LAYERS, Sizes};

pub const HELP: &str = "\
Decodes text greedily with a small transformer of random weights, one token a step. The same step is launched in
several ways, which must give the same tokens; it says how fast each is.

usage: decode [options]

--prompt TEXT           the text to go on with; a token is a byte                        [Once upon a time]
--tokens N              tokens to decode                                                 [64]
--runs N                times that each way decodes them, of which the median counts     [3]

--layers N              layers of the model                                              [4]
--width N               values of the residual stream                                    [256]
--heads N               heads of the attention; a head has 1, 2, 4, .. or 256 values     [4]
--feed-forward N        width of the feed-forward part, in widths of the stream          [4]
--context N             the most tokens of a text, the prompt included                   [256]
--seed N                of the weights                                                   [1]
--help                  this text

CUDA_GRAPH_DRIVER=auto|gpu|software picks the driver. Exit codes: 0 all gave the same, 1 not, 2 wrong usage.";

const MOST_RUNS: usize = 1000;

#[derive(Clone, Debug, PartialEq)]
pub struct Options {
    pub prompt: Vec<u8>,
    pub tokens: usize,
    pub runs: usize,
    pub sizes: Sizes,
    pub seed: u64,
}

/// What the command line asks for.
#[derive(Clone, Debug, PartialEq)]
pub enum Request {
    Help,
    Decode(Options),
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

/// The value of an option that is a number from 1 to `most`.
fn count(parser: &mut Parser, option: &str, most: usize) -> Result<usize, UsageError> {
    let value = parser.value()?;
    let parsed = value.to_str().and_then(|text| text.parse().ok());
    parsed
        .filter(|number| (1..=most).contains(number))
        .ok_or_else(|| {
            UsageError(format!(
                "--{option} takes a number from 1 to {most}, not `{}`",
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
    let mut options = Options {
        prompt: b"Once upon a time".into(),
        tokens: 64,
        runs: 3,
        sizes: Sizes {
            layers: 4,
            width: 256,
            heads: 4,
            factor: 4,
            context: 256,
        },
        seed: 1,
    };
    let sizes = &mut options.sizes;
    while let Some(argument) = parser.next()? {
        let (name, number, most) = match argument {
            Arg::Long("prompt") => {
                options.prompt = parser.value()?.into_encoded_bytes();
                continue;
            }
            Arg::Long("seed") => {
                let value = parser.value()?;
                let seed = value.to_str().and_then(|text| text.parse().ok());
                options.seed = seed.ok_or_else(|| {
                    let (most, value) = (u64::MAX, value.display());
                    UsageError(format!(
                        "--seed takes a number from 0 to {most}, not `{value}`"
                    ))
                })?;
                continue;
            }
            Arg::Long("tokens") => ("tokens", &mut options.tokens, LARGEST_CONTEXT),
            Arg::Long("runs") => ("runs", &mut options.runs, MOST_RUNS),
            Arg::Long("layers") => ("layers", &mut sizes.layers, MOST_LAYERS),
            Arg::Long("width") => ("width", &mut sizes.width, LARGEST_WIDTH),
            Arg::Long("heads") => ("heads", &mut sizes.heads, LARGEST_WIDTH),
            Arg::Long("feed-forward") => ("feed-forward", &mut sizes.factor, LARGEST_FACTOR),
            Arg::Long("context") => ("context", &mut sizes.context, LARGEST_CONTEXT),
            Arg::Short('h') | Arg::Long("help") => return Ok(Request::Help),
            other => return Err(other.unexpected().into()),
        };
        *number = count(&mut parser, name, most)?;
    }
    match fault(&options) {
        Some(why) => Err(UsageError(why)),
        None => Ok(Request::Decode(options)),
    }
}

/// Why the options do not go together, if so.
fn fault(options: &Options) -> Option<String> {
    let (prompt, tokens, context) = (options.prompt.len(), options.tokens, options.sizes.context);
    if prompt == 0 {
        return Some("the prompt has a byte at least".into());
    }
    if prompt + tokens > context {
        return Some(format!(
            "a prompt of {prompt} tokens and {tokens} more do not fit into a context of {context}"
        ));
    }
    options.sizes.fault()
}
