//! What the job says of systems that were solved, or were not.

use std::io::{self, Write};
use std::time::Duration;

use cuda_graph::Counters;

use super::matrix::Matrix;
use super::outcome::{Outcome, Reason, relative_residual};
use super::problem::RightHandSide;
use super::sequence::Run;

/// A system is solved if its true residual is at most so many times the tolerance.
pub const FAITHFUL: f64 = 2.0;

/// So many of several systems get a line of their own.
const LISTED: usize = 10;

/// What came of a system, beside what should have.
pub struct Solved {
    reason: Reason,
    iterations: u32,
    /// The residual that the device went by.
    residual: f64,
    true_residual: f64,
    error: f64,
    run: Run,
}

impl Solved {
    pub fn new(
        outcome: &Outcome,
        matrix: &Matrix,
        side: &RightHandSide,
        tolerance: f64,
        run: Run,
    ) -> Solved {
        let true_residual = relative_residual(matrix, &outcome.x, &side.b);
        // The device goes by a residual that it keeps up to date. Below what rounding allows, that
        // parts from the true one.
        let reason = match outcome.reason {
            Reason::Converged if true_residual <= FAITHFUL * tolerance => Reason::Converged,
            Reason::Converged => Reason::RoundedOff,
            reason => reason,
        };
        let pairs = outcome.x.iter().zip(&side.known);
        Solved {
            reason,
            iterations: outcome.iterations,
            residual: outcome.residual,
            true_residual,
            error: largest(pairs.map(|(x, known)| x - known)),
            run,
        }
    }

    pub fn is_solved(&self) -> bool {
        self.reason == Reason::Converged
    }

    /// How often it iterated and restarted.
    fn iterated(&self) -> String {
        let restarts = restarts(self.run.restarts);
        format!("{} iterations{restarts}", self.iterations)
    }

    fn ended(&self, tolerance: f64) -> String {
        match self.reason {
            Reason::Converged => "converged".into(),
            Reason::LimitReached => format!("NOT converged to {tolerance:e}: that is the limit"),
            Reason::NotPositive => {
                "NOT solved: the matrix is not positive definite, as far as double precision can tell"
                    .into()
            }
            Reason::RoundedOff => {
                format!("NOT converged to {tolerance:e}: rounding errors let it come no further")
            }
            Reason::NotFinite => "NOT solved: numbers became too large".into(),
        }
    }
}

/// Says what came of the only system.
pub fn one(out: &mut dyn Write, solved: &Solved, tolerance: f64) -> io::Result<()> {
    let Solved {
        iterations,
        residual,
        true_residual,
        error,
        run: Run { took, .. },
        ..
    } = *solved;
    let ended = solved.ended(tolerance);
    writeln!(out, "solve:  {}, {ended}", solved.iterated())?;
    let each = an_iteration(took, iterations.into());
    writeln!(out, "time:   {}{each}", in_words(took))?;
    writeln!(
        out,
        "relative residual: {residual:.3e} as the device went by; {true_residual:.3e} recomputed on the host"
    )?;
    writeln!(
        out,
        "largest error: {error:.1e}, of a solution from -1 to 1 that is known"
    )
}

/// Says what came of several systems: a line for each, or, if there are many, for those that are
/// not solved; and what they took together.
pub fn several(
    out: &mut dyn Write,
    all: &[Solved],
    tolerance: f64,
    (replay, restart): (Counters, Counters),
) -> io::Result<()> {
    let count = all.len();
    let unsolved = all.iter().filter(|solved| !solved.is_solved()).count();
    let told = |solved: &Solved| count <= LISTED || !solved.is_solved();
    let lines = all.iter().enumerate().filter(|(_, solved)| told(solved));
    for (at, solved) in lines.take(LISTED) {
        writeln!(
            out,
            "  {:>4}: {}, residual {:.3e}, {}; {}",
            at + 1,
            solved.iterated(),
            solved.true_residual,
            in_words(solved.run.took),
            solved.ended(tolerance),
        )?;
    }
    let ended = match unsolved {
        0 => "all converged".into(),
        unsolved => format!("{unsolved} of them NOT solved"),
    };
    let iterations = || all.iter().map(|solved| solved.iterations);
    let iterated = match (iterations().min(), iterations().max()) {
        (Some(least), Some(most)) if least < most => format!("{least} to {most}"),
        (least, _) => least.unwrap_or_default().to_string(),
    };
    let restarted = restarts(all.iter().map(|solved| solved.run.restarts).sum());
    writeln!(
        out,
        "solve:  {count} systems, {iterated} iterations{restarted}, {ended}"
    )?;
    let took: Duration = all.iter().map(|solved| solved.run.took).sum();
    writeln!(
        out,
        "time:   {}, {} a system{}",
        in_words(took),
        in_words(took / count as u32),
        an_iteration(took, iterations().map(u64::from).sum()),
    )?;
    writeln!(
        out,
        "largest relative residual: {:.3e}, recomputed on the host; largest error: {:.1e}",
        largest(all.iter().map(|solved| solved.true_residual)),
        largest(all.iter().map(|solved| solved.error))
    )?;
    replayed(out, "replay", replay)?;
    match restart {
        Counters { calls: 0, .. } => Ok(()),
        counters => replayed(out, "restarts", counters),
    }
}

fn replayed(out: &mut dyn Write, what: &str, counters: Counters) -> io::Result<()> {
    match counters {
        Counters { eager: 0, .. } => writeln!(
            out,
            "{what}: {} graph{} built, {} launches, {} nodes set",
            counters.builds,
            if counters.builds == 1 { "" } else { "s" },
            counters.launches,
            counters.updated
        ),
        _ => writeln!(out, "{what}: {} calls run eagerly", counters.eager),
    }
}

/// Nothing without the option.
fn restarts(count: Option<u32>) -> String {
    match count {
        None => String::new(),
        Some(1) => ", 1 restart".into(),
        Some(count) => format!(", {count} restarts"),
    }
}

/// The largest of absolute values; no number, if one of them is none.
pub fn largest(values: impl Iterator<Item = f64>) -> f64 {
    let largest = values.map(f64::abs).max_by(f64::total_cmp);
    largest.unwrap_or_default()
}

fn an_iteration(took: Duration, iterations: u64) -> String {
    match iterations {
        0 => String::new(),
        _ => format!(
            ", {} an iteration",
            in_words(took.div_f64(iterations as f64))
        ),
    }
}

pub fn in_words(time: Duration) -> String {
    match time.as_secs_f64() {
        seconds @ 10.0.. => format!("{seconds:.1} s"),
        seconds @ 1.0.. => format!("{seconds:.2} s"),
        seconds @ 1e-3.. => format!("{:.2} ms", seconds * 1e3),
        seconds => format!("{:.2} µs", seconds * 1e6),
    }
}
