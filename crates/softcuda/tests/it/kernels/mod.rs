//! The kernels of `kernels/`, run on whatever device there is, and compared with the host's own
//! answer where there is one and with what an H200 gave. Each case is a test named after its
//! kernel.
//!
//! A result that the PTX manual determines must be equal, bit for bit (all values that are no
//! number count as one); an approximation must be within the bound its documentation gives.

mod arithmetic;
mod asynchronous;
mod atomics;
mod blocks;
mod case;
mod compare;
mod control;
mod conversions;
mod device;
mod elementwise;
mod exact;
mod halves;
mod input;
mod integers;
mod linear;
mod math;
mod memory;
mod products;
mod record;
mod reductions;
mod stops;
mod tensor;
mod tensor_maps;
mod tensor_maps_made;
mod tensor_stores;
mod tiles;
mod video;
mod warps;

use case::{Case, Check};
use record::{Keep, Recorded, record};

/// Makes a test of each function that builds a case.
macro_rules! cases {
    ($($(#[$attribute:meta])* $name:ident),+ $(,)?) => {
        mod run {
            $($(#[$attribute])* #[test]
            fn $name() {
                $crate::kernels::check(super::$name(stringify!($name)));
            })+
        }
    };
}
use cases;

macro_rules! ptx {
    ($name:literal) => {
        $crate::kernels::case::Ptx {
            name: $name,
            text: include_str!(concat!("../../../../../kernels/ptx/", $name, ".ptx")),
        }
    };
}
use ptx;

/// Runs the case and compares every buffer.
fn check(case: Case) {
    let outputs = device::run(&case);
    let mut failures = Vec::new();
    for (i, (contents, output)) in case.buffers.iter().zip(&outputs).enumerate() {
        let name = format!("{}.{i}", case.name);
        let inputs: Vec<_> = case
            .buffers
            .iter()
            .filter(|b| matches!(b.check, Check::Unchanged))
            .collect();
        let got = compare::canonical(contents.kind, output);
        let mut fail = |what: &str, differences: Option<String>| {
            if let Some(differences) = differences {
                failures.push(format!("{name}, against {what}: {differences}"));
            }
        };
        let bounds = match &contents.check {
            Check::Ignored => continue,
            Check::Unchanged => {
                let want = compare::canonical(contents.kind, &contents.initial);
                fail(
                    "what it was, for the kernel only reads it",
                    compare::differences(contents, &[], None, &got, &want),
                );
                continue;
            }
            Check::Exact => None,
            Check::Near(bounds) => Some(bounds.as_slice()),
        };
        if let Some(reference) = &contents.reference {
            let want = compare::canonical(contents.kind, reference);
            let bounds = bounds.map(|bounds| (bounds, 1));
            fail(
                "the host",
                compare::differences(contents, &inputs, bounds, &got, &want),
            );
        }
        let bounds = bounds.map(|bounds| (bounds, 2));
        if let Some(want) = record::full(&name) {
            fail(
                "the H200's full output",
                compare::differences(contents, &inputs, bounds, &got, &want),
            );
        }
        let keep = if bounds.is_some() {
            Keep::Whole
        } else {
            Keep::Digest
        };
        match record(&name, keep, &got) {
            Recorded::Now => {}
            Recorded::Nothing => println!("{name}: no record of an H200 to compare with"),
            Recorded::Missing => failures.push(format!("{name} is not in the H200's record")),
            Recorded::Whole(want) => fail(
                "the H200",
                compare::differences(contents, &inputs, bounds, &got, &want),
            ),
            Recorded::Digest(want) => {
                let got = record::digest(&got);
                fail(
                    "the H200",
                    (got != want).then(|| format!("digests differ\n  got  {got}\n  want {want}")),
                );
            }
        }
    }
    assert!(failures.is_empty(), "{}", failures.join("\n"));
}
