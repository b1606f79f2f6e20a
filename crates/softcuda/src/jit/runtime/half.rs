//! What `.f16` and `.bf16` arithmetic needs beyond the host's instructions on singles.

use super::float::{Format, Rounding, fma_narrow};
use super::runtime;

runtime! {
    /// `a * b + c` of values of `.bf16`, rounded once to nearest: the bits of the `.bf16`.
    ///
    /// In `.f64` the product is exact but the sum may not be, and its rounding could fall on the
    /// middle of two `.bf16`.
    FMA_BF16 = fn softcuda_fma_bf16(a: f32, b: f32, c: f32) -> u32 {
        fma_narrow(Format::BF16, a, b, c, Rounding::Nearest) as u32
    }
}
