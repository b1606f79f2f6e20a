//! The example `decode`: its files are compiled into this binary too, so that its tests run on
//! every device that the others run on.

#[path = "../../../examples/decode/capture_again.rs"]
mod capture_again;
#[path = "../../../examples/decode/decoder.rs"]
mod decoder;
#[path = "../../../examples/decode/eager.rs"]
mod eager;
#[path = "../../../examples/decode/job.rs"]
mod job;
#[path = "../../../examples/decode/kernels.rs"]
mod kernels;
#[path = "../../../examples/decode/model.rs"]
mod model;
#[path = "../../../examples/decode/options.rs"]
mod options;
#[path = "../../../examples/decode/replay.rs"]
mod replay;
#[path = "../../../examples/decode/sizes.rs"]
mod sizes;
#[path = "../../../examples/decode/step.rs"]
mod step;
#[path = "../../../examples/decode/way.rs"]
mod way;
#[path = "../../../examples/decode/weights.rs"]
mod weights;

mod command_line;
mod operations;
mod reference;
mod text;

use sizes::Sizes;

/// A small model. None of its sizes is a multiple of a block's.
const TINY: Sizes = Sizes {
    layers: 2,
    width: 24,
    heads: 3,
    factor: 3,
    context: 21,
};
