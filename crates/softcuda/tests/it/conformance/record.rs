//! The record of a real driver's answers: a line per case, sorted by name, `name: item; item`.

use std::path::{Path, PathBuf};

use super::process::Lines;
use crate::driver::{Driver, driver};

const FILE: &str = "tests/conformance.h200.txt";

/// The checked-in record, or `None` where there is none yet.
pub fn read() -> Option<Lines> {
    // Beside the sources; on a GPU machine, under the folder the test was started in.
    let places = [
        PathBuf::from(env!("CARGO_MANIFEST_DIR")).join(FILE),
        Path::new("crates/softcuda").join(FILE),
    ];
    let text = places
        .iter()
        .find_map(|path| std::fs::read_to_string(path).ok())?;
    let entry = |line: &str| {
        line.split_once(": ")
            .map(|(name, items)| (name.to_string(), items.to_string()))
    };
    Some(
        text.lines()
            .filter(|line| !line.starts_with('#'))
            .filter_map(entry)
            .collect(),
    )
}

/// Whether a name has one of the texts of a list, or the list is empty.
pub fn is_wanted(name: &str, wanted: &str) -> bool {
    wanted.split(',').any(|text| name.contains(text))
}

/// Writes a record.
pub fn write(path: &Path, lines: &Lines) {
    let mut text = String::from(
        "# Answers of an NVIDIA H200, driver 580, CUDA 13.0. Made by tests/it/conformance.\n",
    );
    for (name, items) in lines {
        text.push_str(&format!("{name}: {items}\n"));
    }
    std::fs::write(path, text).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
    println!("{} cases recorded in {}", lines.len(), path.display());
}

/// Every case whose answers differ, is in one of the two only, told item by item. `is_asked` says
/// which were to run.
pub fn compare(recorded: &Lines, lines: &Lines, is_asked: impl Fn(&str) -> bool) -> Vec<String> {
    let mut differences = Vec::new();
    for (name, got) in lines {
        match recorded.get(name) {
            None => differences.push(format!("{name}\n    not recorded; got: {got}")),
            Some(expected) if expected != got && !stands_in_for_crash(expected, got) => {
                differences.push(format!("{name}{}", items(expected, got)))
            }
            Some(_) => {}
        }
    }
    for name in recorded
        .keys()
        .filter(|name| is_asked(name) && !lines.contains_key(*name))
    {
        differences.push(format!("{name}\n    recorded, and there is no such case"));
    }
    differences
}

/// Where the real driver crashed, the software driver need not: it answers as recorded up to there,
/// and then with anything but a crash of its own.
fn stands_in_for_crash(expected: &str, got: &str) -> bool {
    let before = match expected.rsplit_once("crash signal") {
        Some((before, _)) => before.trim_end_matches("; "),
        None => return false,
    };
    driver() == Driver::Software
        && got.starts_with(before)
        && !["crash", "timeout", "exit"]
            .iter()
            .any(|fate| got.contains(fate))
}

/// The items at which two lines part, in order.
fn items(expected: &str, got: &str) -> String {
    let (expected, got): (Vec<&str>, Vec<&str>) =
        (expected.split("; ").collect(), got.split("; ").collect());
    let mut text = String::new();
    for index in 0..expected.len().max(got.len()) {
        let (expected, got) = (
            expected.get(index).unwrap_or(&"nothing"),
            got.get(index).unwrap_or(&"nothing"),
        );
        if expected != got {
            text.push_str(&format!("\n    recorded {expected}, got {got}"));
        }
    }
    text
}
