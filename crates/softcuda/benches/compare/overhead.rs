//! What is not the kernels' own work: empty launches, compiling, first launches, machine code.

use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use super::Outcome;
use super::device::{Compiled, Device, EMPTY, Kernel, SOURCES, config};
use super::measure::{milliseconds, timed};

pub fn empty_launch(device: &Device) -> Outcome<()> {
    let function = device.compile(EMPTY)?.function;
    let one = timed(|| {
        // SAFETY: the kernel takes no arguments.
        unsafe { device.stream.launch_builder(&function).launch(config(1, 1)) }?;
        Ok(device.stream.synchronize()?)
    })?;
    let submit = timed(|| {
        for _ in 0..1000 {
            // SAFETY: the kernel takes no arguments.
            unsafe { device.stream.launch_builder(&function).launch(config(1, 1)) }?;
        }
        Ok(device.stream.synchronize()?)
    })?;
    println!(
        "\nempty launch with synchronize: {:.2} µs (aim 20)",
        milliseconds(one.median) * 1e3
    );
    println!(
        "1,000 empty launches, then synchronize: {:.2} µs each",
        milliseconds(submit.median)
    );
    Ok(())
}

/// The names of the kernels that a PTX file defines.
fn entries(source: &str) -> Vec<&str> {
    source
        .split(".entry ")
        .skip(1)
        .filter_map(|rest| rest.split(['(', '\n']).next())
        .map(str::trim)
        .collect()
}

/// The time to load and compile every kernel in the files that the benchmark draws on.
pub fn files(device: &Device) -> Outcome<()> {
    println!("\n| PTX file | load: parse and check | kernels | compile, each |\n|---|---|---|---|");
    for &source in SOURCES {
        let start = Instant::now();
        let module = device.module(source)?;
        let load = start.elapsed();
        let kernels = entries(source.text);
        let mut compile = Duration::ZERO;
        for kernel in &kernels {
            compile += Compiled::of(&module, kernel)?.time;
        }
        println!(
            "| {} ({} KiB) | {:.2} ms | {} | {:.2} ms |",
            source.name,
            source.text.len() / 1024,
            milliseconds(load),
            kernels.len(),
            milliseconds(compile) / kernels.len() as f64,
        );
    }
    Ok(())
}

/// What a row's kernel took before the launches that count.
pub struct Start {
    pub kernel: Kernel,
    pub compile: Duration,
    /// The first run of the row's work, when the kernel is compiled.
    pub first: Duration,
    pub median: Duration,
}

/// `sizes` holds the bytes of machine code by kernel, `cached` how long it takes to read a kernel
/// from the cache.
pub fn starts(
    starts: &[Start],
    sizes: &HashMap<String, usize>,
    cached: &HashMap<String, Duration>,
) {
    println!(
        "\n| kernel | compile | from the cache | first launch | later launches | machine code |"
    );
    println!("|---|---|---|---|---|---|");
    for start in starts {
        let name = start.kernel.name;
        let code = match sizes.get(name) {
            Some(bytes) => format!("{bytes} bytes"),
            None => "unknown".into(),
        };
        let cached = match cached.get(name) {
            Some(time) => format!("{:.3} ms", milliseconds(*time)),
            None => "unknown".into(),
        };
        println!(
            "| {name} | {:.2} ms | {cached} | {:.3} ms | {:.3} ms | {code} |",
            milliseconds(start.compile),
            milliseconds(start.first),
            milliseconds(start.median),
        );
    }
}

/// The argument for a process that compiles the kernels of the rows, says how long each took, and
/// ends.
pub const COMPILE_ONLY: &str = "--compile-only";

/// What such a process says, where `variable` is the path of `folder`.
fn compile_only(filters: &[String], variable: &str, folder: &Path) -> Outcome<String> {
    let output = Command::new(std::env::current_exe()?)
        .arg(COMPILE_ONLY)
        .args(filters)
        .env_remove("SOFTCUDA_CACHE")
        .env(variable, folder)
        .stderr(Stdio::inherit())
        .output()?;
    match output.status.success() {
        true => Ok(String::from_utf8(output.stdout)?),
        false => Err("the process that compiles kernels failed".into()),
    }
}

/// A folder for such processes.
fn folder(what: &str) -> PathBuf {
    std::env::temp_dir().join(format!("softcuda-compare-{what}-{}", std::process::id()))
}

/// The bytes of machine code of the kernels whose rows `filters` choose. `SOFTCUDA_DUMP` has to be
/// there from a process's first kernel on and costs time, so another process compiles them.
pub fn code_sizes(filters: &[String]) -> Outcome<HashMap<String, usize>> {
    let folder = folder("dump");
    let sizes = compile_only(filters, "SOFTCUDA_DUMP", &folder).and_then(|_| dumped(&folder));
    // There may be no folder; what is left of one is only a temporary file.
    let _ = std::fs::remove_dir_all(&folder);
    sizes
}

/// How long it takes to read each of them from the cache: one process compiles them, and the next
/// reads them.
pub fn cached(filters: &[String]) -> Outcome<HashMap<String, Duration>> {
    let folder = folder("cache");
    let texts = compile_only(filters, "SOFTCUDA_CACHE", &folder)
        .and_then(|_| compile_only(filters, "SOFTCUDA_CACHE", &folder));
    // As above.
    let _ = std::fs::remove_dir_all(&folder);
    let text = texts?;
    let lines = text.lines().filter_map(|line| line.split_once(' '));
    let times = lines.map(|(kernel, time)| {
        let time = Duration::from_nanos(time.parse()?);
        Ok((kernel.to_owned(), time))
    });
    times.collect()
}

/// Reads the dumps, `NNNN-kernel.code`, that begin with the size of the code.
fn dumped(folder: &Path) -> Outcome<HashMap<String, usize>> {
    let mut sizes = HashMap::new();
    for entry in std::fs::read_dir(folder)? {
        let path = entry?.path();
        if path.extension().is_none_or(|extension| extension != "code") {
            continue;
        }
        let stem = path.file_stem().unwrap_or_default().to_string_lossy();
        let text = std::fs::read_to_string(&path)?;
        let bytes: Option<usize> = text.split(' ').next().and_then(|word| word.parse().ok());
        if let (Some((_, kernel)), Some(bytes)) = (stem.split_once('-'), bytes) {
            *sizes.entry(kernel.to_owned()).or_default() += bytes;
        }
    }
    Ok(sizes)
}
