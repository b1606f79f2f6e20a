//! Random kernels that do the same in vectors and thread by thread.

use std::fmt::Display;
use std::sync::Arc;

use super::setting;
use crate::grid::launch::Fault;
use crate::jit::harness;
use crate::jit::module::{Form, Module};
use crate::jit::resolve::nans;

/// What a launch leaves behind, and how it ends. How far others came before a fault is chance, and
/// so is which of two is told.
pub(super) type Left = (Vec<u32>, Option<String>);

/// What a launch leaves in `own`.
pub(super) fn left(result: Result<(), Fault>, own: Vec<u32>) -> Left {
    match result {
        Ok(()) => (own, None),
        Err(fault) => (vec![], Some(format!("{:?}", fault.kind))),
    }
}

/// A kernel in vectors, in rounds, and in fibers, where NaNs get the device's bits at once.
pub(super) fn in_all_forms(source: &str) -> [Arc<Module>; 3] {
    [Form::Vectors, Form::Rounds, Form::Fibers].map(|form| {
        nans::AT_ONCE.set(form == Form::Fibers);
        let module = harness::load_as(source, form);
        nans::AT_ONCE.set(false);
        module
    })
}

/// A kernel in both forms.
pub(super) struct Both {
    source: String,
    vectors: Arc<Module>,
    threads: Arc<Module>,
}

impl Both {
    /// Prints the source of a case that runs alone.
    pub fn of(source: String) -> Both {
        if setting("SOFTCUDA_FUZZ_CASE").is_some() {
            println!("{source}");
        }
        let [vectors, threads] =
            [Form::Vectors, Form::Rounds].map(|form| harness::load_as(&source, form));
        Both {
            source,
            vectors,
            threads,
        }
    }

    /// Launches it in both forms; whether it faults.
    pub fn do_the_same(
        &self,
        what: impl Display,
        launch: impl Fn(&Arc<Module>) -> Left,
    ) -> Result<bool, String> {
        let mut differs = String::new();
        // A damaged kernel of another test may have written here meanwhile, as it may: all tests
        // share the device's memory. What is wrong comes again.
        for _ in 0..2 {
            let (expected, got) = (launch(&self.threads), launch(&self.vectors));
            if got == expected {
                return Ok(expected.1.is_some());
            }
            let at = got.0.iter().zip(&expected.0).position(|(a, b)| a != b);
            differs = format!("word {at:?}, {:?} for {:?}", got.1, expected.1);
        }
        let source = &self.source;
        Err(format!("{what} do something else: {differs}\n{source}"))
    }
}
