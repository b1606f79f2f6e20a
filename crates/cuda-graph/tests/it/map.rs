//! ARCHITECTURE.md says which test holds which feature: each test that it names is there, and so is each example that does not compile.

use std::collections::HashSet;
use std::process::Command;

const MAP: &str = include_str!("../../../../ARCHITECTURE.md");

/// The tests of this binary.
fn tests() -> HashSet<String> {
    let binary = std::env::current_exe().expect("a test has a binary");
    let output = Command::new(binary).arg("--list").output();
    let text = String::from_utf8(output.expect("the binary starts").stdout).expect("it is text");
    let name = |line: &str| line.strip_suffix(": test").map(str::to_owned);
    text.lines().filter_map(name).collect()
}

const CAPTURE: &str = include_str!("../../src/capture/mod.rs");

/// What follows the sentences of the examples of capture that do not compile.
fn examples() -> HashSet<&'static str> {
    let lines: Vec<&str> = CAPTURE.lines().map(str::trim).collect();
    let follows = |at: usize| {
        lines[at + 1..]
            .iter()
            .find(|line| **line != "///")
            .is_some_and(|line| line.starts_with("/// ```compile_fail,E0"))
    };
    let sentence = |line: &'static str| line.strip_prefix("/// ")?.strip_suffix(':');
    (0..lines.len())
        .filter(|&at| follows(at))
        .filter_map(|at| sentence(lines[at]))
        .collect()
}

/// The rows of the table under a heading, and the last column of each.
fn rows(heading: &str) -> Vec<(&'static str, &'static str)> {
    let table = MAP.split(heading).nth(1).expect("there is a table");
    let table = table.split("\n## ").next().expect("it has an end");
    let rows = table.lines().filter(|line| line.starts_with("| ")).skip(1);
    rows.map(|row| {
        let mut columns = row.trim_end_matches('|').rsplit('|');
        (row, columns.next().expect("a row has columns"))
    })
    .collect()
}

/// The tests that a row names.
#[track_caller]
fn all_are_there(tests: &HashSet<String>, row: &str, held_by: &str) -> usize {
    let names = held_by.split('`').skip(1).step_by(2);
    names
        .inspect(|name| {
            assert!(
                tests.contains(*name),
                "there is no test {name}, named in: {row}"
            );
        })
        .count()
}

#[test]
fn every_test_that_holds_a_feature_is_there() {
    let tests = tests();
    let rows = rows("## Seed features");
    for (row, held_by) in &rows {
        assert!(
            all_are_there(&tests, row, held_by) > 0,
            "nothing holds it: {row}"
        );
    }
    assert!(rows.len() > 40, "{} rows were read", rows.len());
}

#[test]
fn every_illegal_transition_of_capture_is_held() {
    let (tests, examples) = (tests(), examples());
    let rows = rows("## Capture: illegal transitions");
    let mut named = HashSet::new();
    for (row, held_by) in &rows {
        let quoted = held_by
            .split('“')
            .skip(1)
            .filter_map(|part| part.split('”').next());
        let mut held = all_are_there(&tests, row, held_by);
        for example in quoted {
            assert!(
                examples.contains(example),
                "no such example does not compile: {example}, named in: {row}"
            );
            named.insert(example);
            held += 1;
        }
        assert!(held > 0, "nothing holds it: {row}");
    }
    assert!(rows.len() > 30, "{} rows were read", rows.len());
    let forgotten: Vec<_> = examples.difference(&named).collect();
    assert!(
        forgotten.is_empty(),
        "the table lacks what does not compile: {forgotten:?}"
    );
}
