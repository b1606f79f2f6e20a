//! The job: make the model, decode the same text in each way, compare, say how long it took.

use std::io::{self, Write};
use std::sync::Arc;
use std::time::Duration;

use cuda_graph::cudarc::driver::CudaStream;
use cuda_graph::{Buffer, Device, Driver, Error, Graph};

use super::decoder::{Decoded, Decoder};
use super::model::Model;
use super::options::Options;
use super::step::step;
use super::way::{self, Way};
use super::weights::Weights;

/// Tokens that each way decodes before any is timed: kernels are compiled, pools grow.
const WARM_UP: usize = 8;

/// How it ended, where nothing failed.
#[derive(Clone, Debug, PartialEq)]
pub enum Exit {
    /// All ways gave the same tokens.
    Same,
    /// They did not; where.
    Different(String),
}

/// What failed.
#[derive(Debug, thiserror::Error)]
pub enum Failure {
    #[error(transparent)]
    Device(#[from] Error),
    #[error("the report cannot be written: {0}")]
    Report(#[from] io::Error),
}

/// A way, and what came of it.
struct Contender {
    way: Box<dyn Way>,
    runs: Vec<Decoded>,
}

/// Decodes what `options` say on `device`, and reports to `out`.
pub fn run(device: &Device, options: &Options, out: &mut dyn Write) -> Result<Exit, Failure> {
    let (driver, sizes) = (device.driver(), &options.sizes);
    writeln!(out, "device: {}, driver: {driver}", device.name()?)?;
    let weights = Weights::random(sizes, options.seed);
    let count = weights.count();
    writeln!(out, "model:  {sizes}; {count} random weights")?;
    let context = device.context();
    let stream = context.new_stream().map_err(Error::from)?;
    let model = Model::new(&stream, sizes, &weights)?;
    let kernels = operations(&stream, &model)?;
    writeln!(out, "step:   {kernels} kernels a token")?;
    out.flush()?;

    let decoder = Decoder::new(&stream, &model, &options.prompt, options.tokens)?;
    let contenders = decode(&stream, &decoder, options)?;
    let text = &contenders[0].runs[0].tokens;
    let bytes: Vec<u8> = text.iter().map(|&token| token as u8).collect();
    let (prompt, bytes) = (options.prompt.escape_ascii(), bytes.escape_ascii());
    writeln!(out, "prompt: {prompt}\ntext:   {bytes}\n")?;
    report(out, driver, options, &contenders)?;
    let exit = compare(&contenders);
    if exit == Exit::Same {
        writeln!(out, "all ways gave the same tokens in every run")?;
    }
    Ok(exit)
}

/// The operations of a step.
fn operations(stream: &Arc<CudaStream>, model: &Model) -> Result<usize, Error> {
    let word = Buffer::<u32>::zeroed(stream, 1)?;
    let (graph, ()) = Graph::record(stream.context(), |path| step(path, model, &word, &word, 0))?;
    Ok(graph.nodes()?.len())
}

/// Decodes the text in each way, again and again.
fn decode(
    stream: &Arc<CudaStream>,
    decoder: &Decoder<'_>,
    options: &Options,
) -> Result<Vec<Contender>, Error> {
    let mut contenders = Vec::new();
    for mut way in way::all(stream)? {
        decoder.decode(&mut *way, options.tokens.min(WARM_UP))?;
        let runs = Vec::new();
        contenders.push(Contender { way, runs });
    }
    let count = contenders.len();
    for run in 0..options.runs {
        // Whoever is first after another pays for cold caches, so each is first in turn.
        for at in (0..count).map(|at| (at + run) % count) {
            let Contender { way, runs } = &mut contenders[at];
            runs.push(decoder.decode(&mut **way, options.tokens)?);
        }
    }
    Ok(contenders)
}

fn median(times: impl Iterator<Item = Duration>) -> Duration {
    let mut times: Vec<Duration> = times.collect();
    times.sort();
    times[times.len() / 2]
}

fn report(
    out: &mut dyn Write,
    driver: Driver,
    options: &Options,
    contenders: &[Contender],
) -> io::Result<()> {
    let (tokens, runs) = (options.tokens, options.runs);
    writeln!(out, "{tokens} tokens, the median of {runs} runs")?;
    writeln!(
        out,
        "  {:<16}{:>12}{:>14}{:>22}",
        "", "tokens/s", "µs a token", "of which host, µs"
    )?;
    for Contender { way, runs } in contenders {
        let took = median(runs.iter().map(|run| run.took)).as_secs_f64() / tokens as f64;
        let given = median(runs.iter().map(|run| run.given)).as_secs_f64() / tokens as f64;
        writeln!(
            out,
            "  {:<16}{:>12.1}{:>14.1}{:>22.1}",
            way.name(),
            1.0 / took,
            took * 1e6,
            given * 1e6
        )?;
    }
    for Contender { way, .. } in contenders {
        if let Some(remark) = way.remark() {
            writeln!(out, "  {}: {remark}", way.name())?;
        }
    }
    if driver == Driver::Software {
        writeln!(
            out,
            "these are figures of a CPU: the software driver runs the kernels, too, and no GPU"
        )?;
    }
    Ok(())
}

/// Whether all ways gave the tokens that the first gave in its first run.
fn compare(contenders: &[Contender]) -> Exit {
    let first = &contenders[0];
    let expected = &first.runs[0].tokens;
    for Contender { way, runs } in contenders {
        for run in runs {
            let mut pairs = run.tokens.iter().zip(expected);
            if let Some(at) = pairs.position(|(got, expected)| got != expected) {
                let (name, other) = (way.name(), first.way.name());
                let (got, expected) = (run.tokens[at], expected[at]);
                return Exit::Different(format!(
                    "the ways DIFFER: token {at} is {got:#04x} by `{name}`, and {expected:#04x} by \
                     `{other}` in its first run"
                ));
            }
        }
    }
    Exit::Same
}
