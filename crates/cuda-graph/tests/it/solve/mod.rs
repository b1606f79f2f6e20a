//! The example `solve`: its files are compiled into this binary too, so that its tests run on every
//! device that the others run on.

#[path = "../../../examples/solve/compare.rs"]
mod compare;
#[path = "../../../examples/solve/job.rs"]
mod job;
#[path = "../../../examples/solve/matrix.rs"]
mod matrix;
#[path = "../../../examples/solve/matrix_market.rs"]
mod matrix_market;
#[path = "../../../examples/solve/options.rs"]
mod options;
#[path = "../../../examples/solve/outcome.rs"]
mod outcome;
#[path = "../../../examples/solve/partition.rs"]
mod partition;
#[path = "../../../examples/solve/plain_rust.rs"]
mod plain_rust;
#[path = "../../../examples/solve/problem.rs"]
mod problem;
#[path = "../../../examples/solve/progress.rs"]
mod progress;
#[path = "../../../examples/solve/report.rs"]
mod report;
#[path = "../../../examples/solve/sequence.rs"]
mod sequence;
#[path = "../../../examples/solve/several.rs"]
mod several;
#[path = "../../../examples/solve/shared.rs"]
mod shared;
#[path = "../../../examples/solve/solver.rs"]
mod solver;
#[path = "../../../examples/solve/system.rs"]
mod system;

mod checkpoints;
mod command_line;
mod devices;
mod drivers;
mod reading;
mod reference;
mod restarts;
mod sequences;
mod systems;
