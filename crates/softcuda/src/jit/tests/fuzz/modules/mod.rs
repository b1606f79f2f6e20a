//! Random modules: what damage starts from, damage to syntax trees, and what makes the outcome fit
//! to be run.
//!
//! This folder knows the `ptx` crate alone, so that tests of another crate can take it in by its
//! path.

#[path = "../../../../../../ptx/tests/it/damage.rs"]
pub mod damage;
pub mod forms;
mod pieces;
pub mod seeds;
mod straight;
pub mod tree;

pub use damage::Random;
pub use seeds::{Seeds, loadable};
pub use straight::{loads_results, straighten};

/// What a loader says of a text that it refuses, with the numbers of lines.
pub type Refusal<'a> = dyn Fn(&str) -> Option<String> + 'a;
