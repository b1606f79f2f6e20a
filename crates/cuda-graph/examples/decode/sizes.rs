//! How large a model is.

use std::fmt;

use super::kernels::THREADS;

/// Tokens are bytes.
pub const VOCABULARY: usize = 256;

/// The largest model's: every weight has a number of 32 bits, and the weights of all positions fit
/// into a block's shared memory.
pub const MOST_LAYERS: usize = 128;
pub const LARGEST_WIDTH: usize = 4096;
pub const LARGEST_CONTEXT: usize = 8192;
pub const LARGEST_FACTOR: usize = 16;

#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Sizes {
    pub layers: usize,
    /// The values of the residual stream.
    pub width: usize,
    pub heads: usize,
    /// The width of the feed-forward part, as a multiple of the stream's.
    pub factor: usize,
    /// The most tokens of a text.
    pub context: usize,
}

impl Sizes {
    /// Why there is no such model, if so. Each number alone is within its limits.
    pub fn fault(&self) -> Option<String> {
        let (width, heads) = (self.width, self.heads);
        if !width.is_multiple_of(heads) {
            return Some(format!("{heads} heads do not share a width of {width}"));
        }
        let head = width / heads;
        if !THREADS.is_multiple_of(head) {
            return Some(format!(
                "a head has {head} values, which do not divide a block of {THREADS} threads"
            ));
        }
        None
    }

    /// The values that the feed-forward part has inside.
    pub fn inner(&self) -> usize {
        self.width * self.factor
    }
}

impl fmt::Display for Sizes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "layers {}, width {}, heads {}, feed-forward {}, context {}",
            self.layers,
            self.width,
            self.heads,
            self.inner(),
            self.context
        )
    }
}
