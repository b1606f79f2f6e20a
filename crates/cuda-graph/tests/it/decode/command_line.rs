//! What the command line means, and what the job prints.

use super::TINY;
use super::job::{self, Exit};
use super::options::{self, Options, Request};
use super::sizes::Sizes;
use crate::fixture::device_for_a_job;

fn parse(line: &str) -> Result<Request, String> {
    options::parse(line.split_whitespace()).map_err(|error| error.to_string())
}

#[track_caller]
fn options(line: &str) -> Options {
    match parse(line) {
        Ok(Request::Decode(options)) => options,
        other => panic!("{line}: {other:?}"),
    }
}

#[test]
fn options_mean_what_they_say() {
    let all = "--prompt abc --tokens=9 --runs 2 --layers 5 --width 96 --heads 3 --feed-forward 2 \
               --context 12 --seed 77";
    let meant = Options {
        prompt: b"abc".into(),
        tokens: 9,
        runs: 2,
        sizes: Sizes {
            layers: 5,
            width: 96,
            heads: 3,
            factor: 2,
            context: 12,
        },
        seed: 77,
    };
    assert_eq!(options(all), meant);
    for help in ["--help", "-h", "--tokens 3 --help"] {
        assert_eq!(parse(help), Ok(Request::Help));
    }
}

#[test]
fn help_names_each_option_with_what_is_taken_without_it() {
    let plain = options("");
    let (sizes, prompt) = (&plain.sizes, plain.prompt.escape_ascii().to_string());
    for (option, without) in [
        ("--prompt TEXT", prompt),
        ("--tokens N", plain.tokens.to_string()),
        ("--runs N", plain.runs.to_string()),
        ("--layers N", sizes.layers.to_string()),
        ("--width N", sizes.width.to_string()),
        ("--heads N", sizes.heads.to_string()),
        ("--feed-forward N", sizes.factor.to_string()),
        ("--context N", sizes.context.to_string()),
        ("--seed N", plain.seed.to_string()),
    ] {
        let mut lines = options::HELP.lines();
        let line = lines.find(|line| line.starts_with(option));
        let line = line.unwrap_or_else(|| panic!("{option} is not there"));
        assert!(line.ends_with(&format!("[{without}]")), "{line}");
    }
}

#[test]
fn what_means_nothing_is_told_in_a_line() {
    for (line, why) in [
        ("--fast", "invalid option '--fast'"),
        ("text", "unexpected argument \"text\""),
        ("--tokens", "missing argument for option '--tokens'"),
        (
            "--tokens 0",
            "--tokens takes a number from 1 to 8192, not `0`",
        ),
        (
            "--seed -1",
            "--seed takes a number from 0 to 18446744073709551615, not `-1`",
        ),
        ("--prompt=", "the prompt has a byte at least"),
        (
            "--prompt ab --tokens 15 --context 16",
            "a prompt of 2 tokens and 15 more do not fit into a context of 16",
        ),
        ("--heads 3", "3 heads do not share a width of 256"),
        (
            "--width 48 --heads 1",
            "a head has 48 values, which do not divide a block of 256 threads",
        ),
    ] {
        let told = parse(line);
        assert_eq!(told, Err(format!("{why}; --help says what there is")));
    }
}

#[test]
fn the_report_says_where_it_ran_and_that_all_agree() {
    let options = Options {
        prompt: b"\0a".into(),
        tokens: 10,
        runs: 2,
        sizes: TINY,
        seed: 3,
    };
    let device = device_for_a_job();
    let mut out = Vec::new();
    let exit = job::run(&device, &options, &mut out).unwrap();
    let report = String::from_utf8(out).unwrap();
    assert_eq!(exit, Exit::Same, "{report}");
    for part in [
        format!(
            "device: {}, driver: {}\n",
            device.name().unwrap(),
            device.driver()
        ),
        format!("model:  {TINY}; "),
        // 8 in a layer, and 4 around them.
        format!("step:   {} kernels a token\n", 8 * TINY.layers + 4),
        "prompt: \\x00a\n".into(),
        "\n  eager ".into(),
        "\n  capture again ".into(),
        "all ways gave the same tokens in every run\n".into(),
    ] {
        assert!(report.contains(&part), "{part:?} is not in\n{report}");
    }
    let on_cpu = report.contains("figures of a CPU");
    assert_eq!(on_cpu, device.driver() == cuda_graph::Driver::Software);
}
