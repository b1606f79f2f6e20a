//! ARCHITECTURE.md is short, and each invariant in it has tests, which are there. No line of prose
//! in Markdown is longer than 100 characters.

use std::collections::HashSet;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

pub const MAP: &str = include_str!("../../../../ARCHITECTURE.md");

/// The root of the repository. Test binaries may run in a copy of it on another machine.
pub fn repository() -> PathBuf {
    let built = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let places = [built, PathBuf::from("."), PathBuf::from("../..")];
    let mut places = places.into_iter();
    let place = places.find(|place| place.join("ARCHITECTURE.md").exists());
    place.expect("the repository is where it was built, or the current folder")
}

/// The tests of the project, by their paths in their binaries.
fn tests() -> HashSet<String> {
    let binary = std::env::current_exe().expect("a test has a binary");
    let output = Command::new(binary).arg("--list").output();
    let text = String::from_utf8(output.expect("the binary starts").stdout).expect("it is text");
    let name = |line: &str| line.strip_suffix(": test").map(str::to_owned);
    let mut tests: HashSet<String> = text.lines().filter_map(name).collect();
    for folder in [
        "ptx/src",
        "ptx/tests/it",
        "softcuda/src",
        "softcuda/tests/it",
    ] {
        let folder = repository().join("crates").join(folder);
        read(&folder, &mut Vec::new(), &mut tests);
    }
    tests
}

/// Adds the tests in the sources of a folder.
fn read(folder: &Path, module: &mut Vec<String>, tests: &mut HashSet<String>) {
    for entry in fs::read_dir(folder).expect("the sources are there") {
        let path = entry.expect("the sources can be listed").path();
        let name = path.file_stem().expect("a file has a name");
        module.push(name.to_string_lossy().into_owned());
        if path.is_dir() {
            read(&path, module, tests);
        } else if path.extension().is_some_and(|extension| extension == "rs") {
            let source = fs::read_to_string(&path).expect("it can be read");
            let file = match module.last().map(String::as_str) {
                Some("mod" | "main" | "lib") => &module[..module.len() - 1],
                _ => &module[..],
            };
            tests.extend(tests_in(file, &source));
        }
        module.pop();
    }
}

/// The tests in a source, whose inner modules begin at the start of a line.
fn tests_in(file: &[String], source: &str) -> Vec<String> {
    let (mut inner, mut is_test, mut tests) = (None, false, Vec::new());
    for line in source.lines() {
        if let Some(name) = line.strip_prefix("mod ").and_then(|m| m.strip_suffix(" {")) {
            inner = Some(name);
        } else if line == "}" {
            inner = None;
        } else if line.trim() == "#[test]" {
            is_test = true;
        } else if let Some(function) = line.trim().strip_prefix("fn ")
            && std::mem::take(&mut is_test)
        {
            let name = function.split('(').next().expect("there is a first part");
            let path = file.iter().map(String::as_str).chain(inner).chain([name]);
            tests.push(path.collect::<Vec<_>>().join("::"));
        }
    }
    tests
}

/// The invariants: number, text, tests. A row without a number belongs to the one above.
fn invariants(map: &str) -> Vec<(&str, String, Vec<&str>)> {
    let table = map.split("\n## Invariants").nth(1).expect("there is one");
    let table = table.split("\n## ").next().expect("it has an end");
    let rows = table.lines().filter(|line| line.starts_with('|')).skip(2);
    let mut invariants: Vec<(&str, String, Vec<&str>)> = Vec::new();
    for row in rows {
        let mut columns = row.trim_matches('|').splitn(2, '|').map(str::trim);
        let number = columns.next().expect("a row has columns").trim_matches('*');
        let text = columns.next().expect("a row has two columns");
        if !number.is_empty() {
            invariants.push((number, String::new(), Vec::new()));
        }
        let (_, statement, tests) = invariants.last_mut().expect("the first has a number");
        match text.starts_with('`') {
            true => tests.extend(text.split('`').skip(1).step_by(2)),
            false => statement.push_str(text),
        }
    }
    invariants
}

/// What is wrong with the table.
fn gaps(map: &str, tests: &HashSet<String>) -> Vec<String> {
    let (mut gaps, mut numbers) = (Vec::new(), HashSet::new());
    for (number, statement, held_by) in invariants(map) {
        if !numbers.insert(number) {
            gaps.push(format!("{number} is there twice"));
        }
        if statement.is_empty() || held_by.is_empty() {
            gaps.push(format!("{number} has no text or no test"));
        }
        let unknown = held_by.into_iter().filter(|name| !tests.contains(*name));
        gaps.extend(unknown.map(|name| format!("{number} names no test: {name}")));
    }
    gaps
}

#[test]
fn every_invariant_has_its_tests() {
    let gaps = gaps(MAP, &tests());
    assert!(gaps.is_empty(), "{gaps:#?}");
    let count = invariants(MAP).len();
    assert!(count > 40, "{count} were read");
}

#[test]
fn a_gap_in_the_table_is_found() {
    let table = "\n## Invariants\n| | holds |\n|---|---|\n| **A1** | It is so. |\n| | `a::b` |";
    let tests = HashSet::from(["a::b".to_owned()]);
    assert_eq!(gaps(table, &tests), [""; 0]);
    let wrong = [
        "\n| A1 | Again. |\n| | `a::b` |",
        "\n| A2 | None. |",
        "\n| | `a::c` |",
    ];
    for row in wrong {
        assert_eq!(gaps(&format!("{table}{row}"), &tests).len(), 1, "{row}");
    }
    let source = "mod tests {\n    #[test]\n    fn c() {}\n}\n#[test]\nfn d() {}";
    let file = ["a".to_owned(), "b".to_owned()];
    assert_eq!(tests_in(&file, source), ["a::b::tests::c", "a::b::d"]);
}

fn too_long(text: &str) -> Vec<&str> {
    let mut in_code = false;
    let prose = text.lines().filter(|line| {
        in_code ^= line.starts_with("```");
        !in_code && !line.starts_with('|')
    });
    prose.filter(|line| line.chars().count() > 100).collect()
}

#[test]
fn the_map_is_short() {
    let count = MAP.lines().count();
    assert!(count <= 200, "ARCHITECTURE.md has {count} lines");
    let long = MAP.lines().filter(|line| line.chars().count() > 100);
    assert_eq!(long.collect::<Vec<_>>(), [""; 0]);
}

/// Tables and code have the lines that they need.
#[test]
fn lines_of_prose_are_short() {
    let root = repository();
    let crates = fs::read_dir(root.join("crates")).expect("the crates are there");
    let crates = crates.map(|entry| entry.expect("it can be listed").path());
    let (mut count, mut found) = (0, Vec::new());
    for folder in crates.chain([root.clone(), root.join("kernels")]) {
        let files = fs::read_dir(folder).expect("the folder is there");
        for entry in files {
            let file = entry.expect("it can be listed").path();
            if file.extension().is_some_and(|extension| extension == "md") {
                let text = fs::read_to_string(&file).expect("it can be read");
                let long = too_long(&text).into_iter();
                found.extend(long.map(|line| format!("{}: {line}", file.display())));
                count += 1;
            }
        }
    }
    assert_eq!(found, [""; 0]);
    assert!(count > 5, "{count} files were read");
    let long = "x".repeat(101);
    assert_eq!(
        too_long(&format!("{long}\n| {long}\n```\n{long}\n```\n")),
        [&long]
    );
}
