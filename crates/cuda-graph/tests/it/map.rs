//! ARCHITECTURE.md says which test holds which feature: each test that it names is there.

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

#[test]
fn every_test_that_holds_a_feature_is_there() {
    let tests = tests();
    let features = MAP
        .split("## Seed features")
        .nth(1)
        .expect("there is a table");
    let features = features.split("\n## ").next().expect("it has an end");
    let mut rows = 0;
    for row in features
        .lines()
        .filter(|line| line.starts_with("| "))
        .skip(1)
    {
        let held_by = row
            .trim_end_matches('|')
            .rsplit('|')
            .next()
            .expect("a row has columns");
        let names: Vec<&str> = held_by.split('`').skip(1).step_by(2).collect();
        assert!(!names.is_empty(), "nothing holds it: {row}");
        for name in names {
            assert!(
                tests.contains(name),
                "there is no test {name}, named in: {row}"
            );
        }
        rows += 1;
    }
    assert!(rows > 40, "{rows} rows were read");
}
