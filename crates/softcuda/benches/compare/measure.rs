//! Rows of the table: how they are timed, checked and printed.

use std::fmt::Display;
use std::time::{Duration, Instant};

use cudarc::driver::CudaFunction;

use super::Outcome;
use super::device::{Device, Kernel};

/// A kernel beside its counterpart in Rust.
pub struct Row {
    pub name: &'static str,
    /// How many times as long as Rust the kernel may take; infinite where that is open.
    pub aim: f64,
    pub kernel: Kernel,
    pub run: fn(&Device, &CudaFunction) -> Outcome<Measured>,
}

pub struct Measured {
    pub softcuda: Timed,
    pub rust: Timed,
}

impl Measured {
    pub fn ratio(&self) -> f64 {
        self.softcuda.median.as_secs_f64() / self.rust.median.as_secs_f64()
    }
}

pub struct Timed {
    pub first: Duration,
    /// Of the runs after the first.
    pub median: Duration,
}

/// Times `run` once, then at least 5 times and for about half a second.
pub fn timed(mut run: impl FnMut() -> Outcome<()>) -> Outcome<Timed> {
    let mut once = || {
        let start = Instant::now();
        run()?;
        Outcome::Ok(start.elapsed())
    };
    let first = once()?;
    let started = Instant::now();
    let mut times = Vec::new();
    while times.len() < 5
        || (started.elapsed() < Duration::from_millis(500) && times.len() < 10_000)
    {
        times.push(once()?);
    }
    times.sort();
    let median = times[times.len() / 2];
    Ok(Timed { first, median })
}

/// Times what cannot fail.
pub fn timed_in_rust(mut run: impl FnMut()) -> Outcome<Timed> {
    timed(|| {
        run();
        Ok(())
    })
}

/// Checks each of the kernel's values against Rust's, with a relative tolerance for large values
/// and an absolute one for small values.
pub fn check<T>(got: &[T], want: &[T], tolerance: f64) -> Outcome<()>
where
    T: Copy + Display + Into<f64>,
{
    if got.len() != want.len() {
        return Err(format!("{} elements, in Rust {}", got.len(), want.len()).into());
    }
    for (i, (&got, &want)) in got.iter().zip(want).enumerate() {
        let near = (got.into() - want.into()).abs() <= tolerance * want.into().abs().max(1.0);
        if !near {
            return Err(format!("element {i} is {got}, in Rust it is {want}").into());
        }
    }
    Ok(())
}

pub fn verdict(value: f64, aim: f64) -> &'static str {
    if value <= aim { "met" } else { "missed" }
}

pub fn print(row: &Row, measured: &Measured) {
    let ratio = measured.ratio();
    let (aim, verdict) = match row.aim.is_finite() {
        true => (row.aim.to_string(), verdict(ratio, row.aim)),
        false => (String::new(), ""),
    };
    println!(
        "| {} | {:.3} ms | {:.3} ms | {ratio:.2} | {aim} | {verdict} |",
        row.name,
        milliseconds(measured.softcuda.median),
        milliseconds(measured.rust.median),
    );
}

pub fn milliseconds(time: Duration) -> f64 {
    time.as_secs_f64() * 1e3
}

/// Of no values it is 1.
pub fn geometric_mean(values: impl ExactSizeIterator<Item = f64>) -> f64 {
    let count = values.len().max(1) as f64;
    (values.map(f64::ln).sum::<f64>() / count).exp()
}
