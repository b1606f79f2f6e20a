//! What optimized graphs gain: the same graph plain and with all passes, on the same memory in one
//! run.
//!
//! `cargo run --release --example optimize [-- --only loop] [--repeats 50]`; `--help` says the
//! rest.
//!
//! A plain graph is `cuGraphInstantiate` of the definition, and its launch a `cuGraphLaunch`.
//! Times are medians over the repeats: to submit a launch, and from there until the stream is idle.
//! Both take turns. Before and after, both are launched from the same memory and must leave the
//! same bytes.

mod case;
mod conjugate;
mod decode;
mod instantiation;
mod lines;
mod loops;
mod measure;
mod memory;
mod multigrid;
mod options;
mod tiny;

use std::error::Error;
use std::fs;
use std::path::Path;
use std::process::ExitCode;

use case::{CASES, Setting, is_named};
use options::{Options, Request, What};
use tiny::Tiny;

type Result<T> = std::result::Result<T, Box<dyn Error>>;

/// Whether all bytes agree.
fn launches(setting: &Setting, options: &Options) -> Result<bool> {
    let repeats = options.repeats;
    println!(
        "µs, medians of {repeats} repeats; passes: {:?}",
        options.optimize
    );
    println!("submit: to submit a launch; in all: until it is over; ratio: with passes by plain\n");
    measure::print_header();
    let mut agree = true;
    for (name, make) in CASES {
        let only = &options.only;
        if !only.is_empty() && !only.iter().any(|only| is_named(name, only)) {
            continue;
        }
        let case = make(setting)?;
        let measured = measure::measure(setting, &case, options.optimize, repeats)?;
        measured.print(name, &case);
        agree &= measured.fault.is_none();
    }
    Ok(agree)
}

/// Draws a loop of two kernels and one that counts.
fn picture(setting: &Setting, directory: &Path) -> Result<()> {
    let case = loops::do_while(setting, 2)?;
    let plain = (case.define)()?.svg()?;
    fs::create_dir_all(directory)?;
    let path = directory.join("loop.svg");
    fs::write(&path, plain)?;
    println!("{}", path.display());
    Ok(())
}

fn run(options: &Options) -> Result<bool> {
    let device = cuda_graph::device(0)?;
    println!("device: {}, driver: {}", device.name()?, device.driver());
    let setting = Setting {
        stream: device.context().new_stream()?,
        tiny: Tiny::load(device.context())?,
    };
    match &options.what {
        What::Launch => launches(&setting, options),
        What::Instantiate => {
            instantiation::print(&setting, options.optimize, options.repeats)?;
            Ok(true)
        }
        What::Picture(directory) => {
            picture(&setting, directory)?;
            Ok(true)
        }
    }
}

fn main() -> ExitCode {
    let options = match options::parse(std::env::args_os().skip(1)) {
        Ok(Request::Run(options)) => options,
        Ok(Request::Help) => {
            println!("{}", options::help());
            return ExitCode::SUCCESS;
        }
        Err(error) => {
            eprintln!("optimize: {error}");
            return ExitCode::from(2);
        }
    };
    match run(&options) {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::from(1),
        Err(error) => {
            eprintln!("optimize: {error}");
            ExitCode::from(1)
        }
    }
}
