//! What the command line means, how the job ends, what it prints.

use std::num::NonZeroU32;
use std::path::PathBuf;

use cuda_graph::Driver;

use super::job::{self, Exit, Failure};
use super::options::{self, Options, Problem, Request};
use super::progress::position;
use crate::fixture::{alone, device_for_a_job};

fn parse(line: &str) -> Result<Request, String> {
    options::parse(line.split_whitespace()).map_err(|error| error.to_string())
}

#[track_caller]
fn options(line: &str) -> Options {
    match parse(line) {
        Ok(Request::Solve(options)) => options,
        other => panic!("{line}: {other:?}"),
    }
}

#[test]
fn options_mean_what_they_say() {
    let plain = Options {
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
    assert_eq!(options(""), plain);
    let all =
        "a.mtx --tolerance 1e-3 --max-iterations=7 --unroll 3 --compare --report --svg out.svg";
    let meant = Options {
        problem: Problem::File("a.mtx".into()),
        tolerance: 1e-3,
        max_iterations: 7,
        unroll: Some(3),
        systems: 1,
        restart_every: None,
        devices: None,
        compare: true,
        report: true,
        svg: Some("out.svg".into()),
    };
    assert_eq!(options(all), meant);
    assert_eq!(options("--systems 3").systems, 3);
    assert_eq!(options("--systems=1 --compare").systems, 1);
    assert_eq!(options("--devices 2").devices, Some(2));
    let every = options("--restart-every 50 --systems 2").restart_every;
    assert_eq!(every, NonZeroU32::new(50));
    assert_eq!(options("--grid 9").problem, Problem::Grid(9));
    assert_eq!(options("-- --grid").problem, Problem::File("--grid".into()));
    for help in ["--help", "-h", "--grid 3 --help"] {
        assert_eq!(parse(help), Ok(Request::Help));
    }
}

#[test]
fn help_names_each_option_with_what_is_taken_without_it() {
    let plain = options("");
    for (option, without) in [
        ("--grid N", "[512]".into()),
        ("--tolerance T", format!("[{:e}]", plain.tolerance)),
        ("--max-iterations N", format!("[{}]", plain.max_iterations)),
        ("--unroll N", "the optimizer chooses".into()),
        ("--systems K", format!("[{}]", plain.systems)),
        ("--restart-every N", String::new()),
        ("--compare", String::new()),
        ("--report", String::new()),
        ("--svg FILE", String::new()),
        ("--help", String::new()),
    ] {
        let mut lines = options::HELP.lines();
        let line = lines.find(|line| line.starts_with(option));
        let line = line.unwrap_or_else(|| panic!("{option} is not there"));
        assert!(line.ends_with(&without), "{line}");
    }
}

#[test]
fn what_means_nothing_is_told_in_a_line() {
    for (line, why) in [
        ("--fast", "invalid option '--fast'"),
        ("-x", "invalid option '-x'"),
        ("--grid", "missing argument for option '--grid'"),
        ("--grid x", "--grid takes a number from 1 to 20000, not `x`"),
        ("--grid 0", "--grid takes a number from 1 to 20000, not `0`"),
        (
            "--grid 20001",
            "--grid takes a number from 1 to 20000, not `20001`",
        ),
        (
            "--grid 8 a.mtx",
            "one matrix, or one grid, is solved at a time",
        ),
        (
            "a.mtx b.mtx",
            "one matrix, or one grid, is solved at a time",
        ),
        (
            "--tolerance 0",
            "--tolerance takes a number above 0 and below 1, not `0`",
        ),
        (
            "--tolerance nan",
            "--tolerance takes a number above 0 and below 1, not `nan`",
        ),
        (
            "--tolerance 1e-400",
            "--tolerance takes a number above 0 and below 1, not `1e-400`",
        ),
        (
            "--max-iterations -1",
            "--max-iterations takes a number from 1 to 4294967295, not `-1`",
        ),
        (
            "--max-iterations 0",
            "--max-iterations takes a number from 1 to 4294967295, not `0`",
        ),
        (
            "--unroll 65",
            "--unroll takes a number from 1 to 64, not `65`",
        ),
        ("--systems", "missing argument for option '--systems'"),
        (
            "--systems 0",
            "--systems takes a number from 1 to 1000, not `0`",
        ),
        (
            "--systems 1001",
            "--systems takes a number from 1 to 1000, not `1001`",
        ),
        (
            "--systems -1",
            "--systems takes a number from 1 to 1000, not `-1`",
        ),
        (
            "--systems two",
            "--systems takes a number from 1 to 1000, not `two`",
        ),
        (
            "--restart-every",
            "missing argument for option '--restart-every'",
        ),
        (
            "--restart-every 0",
            "--restart-every takes a number from 1 to 4294967295, not `0`",
        ),
        (
            "--restart-every 4294967296",
            "--restart-every takes a number from 1 to 4294967295, not `4294967296`",
        ),
        (
            "--restart-every often",
            "--restart-every takes a number from 1 to 4294967295, not `often`",
        ),
        ("--compare --systems 2", "--compare is of one system"),
        (
            "--compare --restart-every 9",
            "--compare is without restarts",
        ),
        (
            "--compare=yes",
            "unexpected argument for option '--compare': \"yes\"",
        ),
    ] {
        let told = parse(line).expect_err(line);
        assert_eq!(told, format!("{why}; --help says what there is"));
        assert_eq!(told.lines().count(), 1);
    }
}

fn run(line: &str) -> (Result<Exit, Failure>, String) {
    let _alone = alone();
    let device = device_for_a_job();
    let mut out = Vec::new();
    let exit = job::run(&device, &options(line), &mut out);
    (exit, String::from_utf8(out).unwrap())
}

fn place(name: &str) -> PathBuf {
    std::env::temp_dir().join(format!("solve-{}-{name}", std::process::id()))
}

#[test]
fn it_solves_and_says_so() {
    let (exit, text) = run("--grid 12");
    assert_eq!(exit.unwrap(), Exit::Solved, "{text}");
    let device = cuda_graph::device(0).unwrap();
    for part in [
        device.name().unwrap().as_str(),
        &device.driver().to_string(),
        "144 unknowns, 672 entries",
        "a graph that loops on the device",
        "converged",
        "recomputed on the host",
    ] {
        assert!(text.contains(part), "{part} is not in:\n{text}");
    }
}

#[test]
fn it_says_when_it_came_to_the_limit() {
    let (exit, text) = run("--grid 12 --max-iterations 3");
    assert_eq!(exit.unwrap(), Exit::Unsolved);
    assert!(
        text.contains("3 iterations, NOT converged to 1e-8"),
        "{text}"
    );
}

#[test]
fn it_says_when_rounding_keeps_the_residual_above_the_tolerance() {
    let (exit, text) = run("--grid 12 --tolerance 1e-18");
    assert_eq!(exit.unwrap(), Exit::Unsolved);
    assert!(
        text.contains("NOT converged to 1e-18: rounding errors"),
        "{text}"
    );
}

#[test]
fn it_compares_loops_on_the_device_and_on_the_host() {
    let (exit, text) = run("--grid 6 --compare --unroll 4");
    assert_eq!(exit.unwrap(), Exit::Solved);
    assert!(text.contains("bit for bit"), "{text}");
    assert_eq!(text.matches("times as fast").count(), 3, "{text}");
    assert!(text.contains(", 4 iterations a turn; "), "{text}");
    // A GPU is not compared with the processor beside it.
    let software = cuda_graph::device(0).unwrap().driver() == Driver::Software;
    for part in ["in Rust with rayon", "they agree: "] {
        assert_eq!(text.contains(part), software, "{part}:\n{text}");
    }
    let (_, text) = run("--grid 6 --unroll 1");
    assert!(!text.contains("a turn"), "{text}");
}

/// The report of several systems: the lines that count them.
#[track_caller]
fn several(line: &str, systems: usize) -> String {
    let (exit, text) = run(line);
    assert_eq!(exit.unwrap(), Exit::Solved, "{text}");
    // The start, both halves of an iteration, and what sets the loop's condition.
    let nodes = (systems as u64 - 1) * 4;
    for part in [
        format!(", {systems} right-hand sides, ready in"),
        "a graph that loops on the device".into(),
        format!("solve:  {systems} systems, "),
        "all converged".into(),
        "recomputed on the host".into(),
        format!("replay: 1 graph built, {systems} launches, {nodes} nodes set"),
    ] {
        assert!(text.contains(&part), "{part} is not in:\n{text}");
    }
    text
}

#[test]
fn it_solves_several_systems_with_one_graph() {
    let text = several("--grid 12 --systems 3", 3);
    for system in 1..=3 {
        let line = format!("{system}: ");
        let mut lines = text.lines().map(str::trim_start);
        let line = lines.find(|told| told.starts_with(&line)).unwrap();
        assert!(line.contains(" iterations, residual "), "{line}");
        assert!(line.ends_with("; converged"), "{line}");
    }
    // Of many, only those that are not solved are listed.
    let text = several("--grid 5 --systems 40 --unroll 2", 40);
    assert!(!text.contains("; converged"), "{text}");
    assert_eq!(text.lines().count(), 7, "{text}");

    let (exit, text) = run("--grid 12 --systems 30 --max-iterations 3");
    assert_eq!(exit.unwrap(), Exit::Unsolved, "{text}");
    assert!(text.contains("30 of them NOT solved"), "{text}");
    assert_eq!(
        text.matches("; NOT converged to 1e-8: that is the limit")
            .count(),
        10
    );
    // One system prints what it always did.
    let (_, text) = run("--grid 5 --systems 1");
    assert!(!text.contains("systems"), "{text}");
    assert!(!text.contains("replay"), "{text}");
}

#[test]
fn it_says_how_often_it_restarted() {
    let (exit, text) = run("--grid 12 --restart-every 10 --unroll 4");
    assert_eq!(exit.unwrap(), Exit::Solved, "{text}");
    let line = text.lines().find(|line| line.starts_with("solve:"));
    let line = line.unwrap();
    assert!(line.contains(" restarts, converged"), "{line}");
    // One that comes before the end of the first stretch checks the residual.
    let (_, text) = run("--grid 12 --restart-every 4294967295");
    assert!(text.contains(" iterations, 1 restart, converged"), "{text}");

    let (exit, text) = run("--grid 12 --systems 3 --restart-every 10");
    assert_eq!(exit.unwrap(), Exit::Solved, "{text}");
    let told = |line: &&str| line.contains(" iterations, ") && line.contains(" restarts, ");
    assert_eq!(text.lines().filter(told).count(), 4, "{text}");
    assert!(text.contains("replay: 2 graphs built, "), "{text}");
    assert!(text.contains("restarts: 1 graph built, "), "{text}");
    // Without the option nothing is said of it.
    let (_, text) = run("--grid 12 --systems 3");
    assert!(!text.contains("restart"), "{text}");
}

#[test]
fn what_restarts_cannot_mend_ends_all_the_same() {
    let (exit, text) = run("--grid 12 --tolerance 1e-18 --restart-every 50");
    assert_eq!(exit.unwrap(), Exit::Unsolved);
    assert!(
        text.contains("NOT converged to 1e-18: rounding errors"),
        "{text}"
    );
    let (exit, text) = run("--grid 12 --max-iterations 7 --restart-every 3");
    assert_eq!(exit.unwrap(), Exit::Unsolved);
    assert!(
        text.contains("7 iterations, 2 restarts, NOT converged to 1e-8"),
        "{text}"
    );
}

#[test]
fn several_systems_of_any_file() {
    let file = place("several.mtx");
    for (format, entries) in [
        ("real symmetric", "2 2 3\n1 1 2\n2 1 -1\n2 2 2\n"),
        ("real general", "2 2 4\n1 1 2\n2 1 -1\n1 2 -1\n2 2 2\n"),
        ("integer symmetric", "2 2 2\n1 1 3\n2 2 5\n"),
        ("pattern symmetric", "3 3 3\n1 1\n2 2\n3 3\n"),
    ] {
        let text = format!("%%MatrixMarket matrix coordinate {format}\n{entries}");
        std::fs::write(&file, text).unwrap();
        several(&format!("{} --systems 4", file.display()), 4);
    }
    // Some of them are not solved.
    let text = "%%MatrixMarket matrix coordinate real symmetric\n2 2 3\n1 1 2\n2 1 -3\n2 2 2\n";
    std::fs::write(&file, text).unwrap();
    let (exit, text) = run(&format!("{} --systems 4", file.display()));
    assert_eq!(exit.unwrap(), Exit::Unsolved, "{text}");
    assert!(text.contains("not positive definite"), "{text}");
    std::fs::remove_file(&file).unwrap();
}

#[test]
fn it_reports_what_the_optimizer_did() {
    let (exit, text) = run("--grid 4 --unroll 5 --report");
    assert_eq!(exit.unwrap(), Exit::Solved);
    assert!(text.contains("5 repetitions of bodies"), "{text}");
    let (_, text) = run("--grid 4");
    assert!(!text.contains("repetitions"), "{text}");
}

#[test]
fn it_draws_the_graph() {
    let file = place("graph.svg");
    let (exit, _) = run(&format!("--grid 4 --unroll 2 --svg {}", file.display()));
    assert_eq!(exit.unwrap(), Exit::Solved);
    let picture = std::fs::read_to_string(&file).unwrap();
    std::fs::remove_file(&file).unwrap();
    assert!(picture.contains("<svg"));
    assert_eq!(picture.matches("cg_multiply").count(), 1);
    let optimized = file.with_extension("optimized.svg");
    let picture = std::fs::read_to_string(&optimized).unwrap();
    std::fs::remove_file(&optimized).unwrap();
    assert_eq!(picture.matches("cg_multiply").count(), 2);
    let (exit, _) = run(&format!(
        "--grid 4 --restart-every 3 --svg {}",
        file.display()
    ));
    assert_eq!(exit.unwrap(), Exit::Solved);
    let picture = std::fs::read_to_string(&file).unwrap();
    std::fs::remove_file(&file).unwrap();
    std::fs::remove_file(file.with_extension("optimized.svg")).unwrap();
    assert!(picture.contains("checkpoint restart"));
    let (exit, _) = run("--grid 4 --svg /no/such/folder/graph.svg");
    let error = exit.unwrap_err().to_string();
    assert!(
        error.starts_with("/no/such/folder/graph.svg: it cannot be written: "),
        "{error}"
    );
}

#[test]
fn files_are_solved_or_named_with_what_is_wrong() {
    let file = place("matrix.mtx");
    let text = "%%MatrixMarket matrix coordinate real symmetric\n2 2 3\n1 1 2\n2 1 -1\n2 2 2\n";
    std::fs::write(&file, text).unwrap();
    let (exit, out) = run(&file.display().to_string());
    assert_eq!(exit.unwrap(), Exit::Solved, "{out}");
    std::fs::write(&file, text.replace("2 2 2", "2 2 -2")).unwrap();
    let (exit, _) = run(&file.display().to_string());
    assert_eq!(
        exit.unwrap_err().to_string(),
        format!(
            "{}: the matrix cannot be solved with: it is not positive definite: entry (2, 2) is -2, and must be positive",
            file.display()
        )
    );
    // Its entries do not show it, but the solver sees.
    std::fs::write(&file, text.replace("2 1 -1", "2 1 -3")).unwrap();
    let (exit, out) = run(&file.display().to_string());
    assert_eq!(exit.unwrap(), Exit::Unsolved);
    assert!(out.contains("not positive definite"), "{out}");
    std::fs::remove_file(&file).unwrap();
    let (exit, _) = run("/no/such/file.mtx");
    let error = exit.unwrap_err().to_string();
    assert!(
        error.starts_with("/no/such/file.mtx: it cannot be read: "),
        "{error}"
    );
}

#[test]
fn the_bar_follows_the_residual() {
    assert_eq!(position(1.0, 1e-8), 0);
    assert_eq!(position(1e-4, 1e-8), 500);
    assert_eq!(position(1e-9, 1e-8), 1000);
    // At first nothing has been told, and residuals may grow.
    for none in [0.0, 3.0, f64::NAN, f64::INFINITY] {
        assert_eq!(position(none, 1e-8), 0, "{none}");
    }
}
