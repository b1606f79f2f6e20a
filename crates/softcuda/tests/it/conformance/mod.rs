//! The driver's answers, call by call.
//!
//! A case is a few raw driver calls, right or wrong, and one line of what they answered. The
//! answers of a real driver (an H200, driver 580, CUDA 13.0) are in `tests/conformance.h200.txt`;
//! the driver under test, whichever it is, must give the same. Lines hold error names and numbers
//! that are part of the contract, never addresses, clocks or sizes of a particular machine.
//!
//! Cases of two devices run on a machine with two GPUs or more, and in software. Elsewhere they are
//! left out, and what is recorded of them stays.
//!
//! | variable | effect |
//! |---|---|
//! | `SOFTCUDA_RECORD=path` | write the answers there instead of comparing them |
//! | `SOFTCUDA_CASES=a,b` | run, compare and record only cases with such a name |
//! | `SOFTCUDA_RANDOM=0..1000` | which programs are made up at random |
//! | `CUDA_GRAPH_DRIVER` | `gpu`, `software` or `auto` |

// Every case is an `unsafe fn` that is wrong on purpose somewhere: a comment on each call would say
// the same thing. The cases run in child processes that hold nothing of value, and all memory they
// hand to the driver outlives the call.
#![allow(unsafe_op_in_unsafe_fn, clippy::missing_safety_doc)]
// Small numbers stand where the driver takes pointers: options passed by value, and pointers meant
// to be wrong.
#![allow(clippy::manual_dangling_ptr)]

pub(crate) mod api;
mod case;
mod cases;
mod codes;
pub(crate) mod fixture;
mod process;
mod random;
mod record;
pub(crate) mod sides;
pub(crate) mod structs;

pub(crate) use cases::ROLES;

use codes::error_name;

use case::Case;

/// Names the cases that a child process runs, separated by commas; absent in the test itself.
const CHILD: &str = "SOFTCUDA_CONFORMANCE_CHILD";

#[test]
fn answers() {
    if let Ok(names) = std::env::var(CHILD) {
        process::run_as_child(&names);
    }
    let wanted = std::env::var("SOFTCUDA_CASES").unwrap_or_default();
    let cases: Vec<&Case> = cases::all()
        .into_iter()
        .filter(|case| record::is_wanted(case.name, &wanted))
        .collect();
    assert!(!cases.is_empty(), "no case has {wanted:?} in its name");

    let destination = std::env::var_os("SOFTCUDA_RECORD");
    let recorded = record::read();
    if destination.is_none() && recorded.is_none() {
        println!(
            "no record to compare with: {} cases left alone",
            cases.len()
        );
        return;
    }
    let count = process::device_count();
    let (cases, left_out): (Vec<&Case>, Vec<&Case>) =
        cases.into_iter().partition(|case| case.devices <= count);
    if !left_out.is_empty() {
        println!(
            "{} cases left out: they need more devices than the {count} here",
            left_out.len()
        );
    }
    let is_asked = |name: &str| {
        record::is_wanted(name, &wanted) && !left_out.iter().any(|case| case.name == name)
    };
    let lines = process::run(&cases);
    if let Some(path) = destination {
        // The others stay as they were recorded.
        let others = recorded.unwrap_or_default().into_iter();
        let others = others.filter(|(name, _)| !is_asked(name));
        let all = others.chain(lines).collect();
        record::write(path.as_ref(), &all);
        return;
    }
    let recorded = recorded.expect("without a destination there is a record");
    let differences = record::compare(&recorded, &lines, is_asked);
    for difference in &differences {
        println!("{difference}");
    }
    assert!(
        differences.is_empty(),
        "{} of {} cases differ from the record, on {:?}",
        differences.len(),
        lines.len(),
        crate::driver::driver()
    );
}

/// A name is a path of small words, and no two cases share one: the record is keyed by it.
#[test]
fn names_are_distinct() {
    let mut names: Vec<&str> = cases::all().iter().map(|case| case.name).collect();
    for name in &names {
        assert!(
            name.contains('/')
                && name
                    .chars()
                    .all(|c| c.is_ascii_lowercase() || c.is_ascii_digit() || "/_".contains(c)),
            "{name}"
        );
    }
    names.sort_unstable();
    for pair in names.windows(2) {
        assert_ne!(pair[0], pair[1]);
    }
}
