//! Tensor maps: `cuTensorMap*`.

use super::{In, InOut, Out, export};
use crate::driver::tensor_map::{Columns, Tensor, moved};
use crate::driver::{CUresult, Result};
use crate::grid::tensor::map::{MOST_RANK, SIZE, TensorMap};

/// `CUtensorMap`
pub type Map = [u8; SIZE];

const INVALID: CUresult = CUresult::CUDA_ERROR_INVALID_VALUE;

/// The arrays that say what a tensor is.
#[derive(Clone, Copy)]
struct Arrays {
    dims: In<u64>,
    strides: In<u64>,
    steps: In<u32>,
}

impl Arrays {
    /// The lists of a tensor of `rank` dimensions.
    fn read(self, rank: u32) -> Result<(Vec<u64>, Vec<u64>, Vec<u32>)> {
        if !(1..=MOST_RANK as u32).contains(&rank) {
            return Err(INVALID);
        }
        let rank = rank as usize;
        self.strides.some()?;
        Ok((
            self.dims.list(rank)?,
            self.strides.list(rank - 1)?,
            self.steps.list(rank)?,
        ))
    }
}

export! {
    /// Writes a map of tiles.
    fn cuTensorMapEncodeTiled(
        map: Out<Map>, data: u32, rank: u32, address: usize, dims: In<u64>, strides: In<u64>, size: In<u32>,
        steps: In<u32>, interleave: u32, swizzle: u32, promotion: u32, fill: u32,
    ) {
        let to = map.some()?;
        let (dims, strides, steps) = Arrays { dims, strides, steps }.read(rank)?;
        let size = size.list(rank as usize)?;
        let address = address as u64;
        let tensor = Tensor { data, rank, address, dims, strides, steps, interleave, swizzle, promotion, fill };
        to.set(tensor.tile(&size)?.to_bytes())
    }

    /// Writes a map of columns of pixels.
    fn cuTensorMapEncodeIm2col(
        map: Out<Map>, data: u32, rank: u32, address: usize, dims: In<u64>, strides: In<u64>, lower: In<i32>,
        upper: In<i32>, channels: u32, pixels: u32, steps: In<u32>, interleave: u32, swizzle: u32, promotion: u32,
        fill: u32,
    ) {
        let to = map.some()?;
        let (dims, strides, steps) = Arrays { dims, strides, steps }.read(rank)?;
        let spatial = (rank as usize).saturating_sub(2);
        let (lower, upper) = (lower.list(spatial)?, upper.list(spatial)?);
        let address = address as u64;
        let tensor = Tensor { data, rank, address, dims, strides, steps, interleave, swizzle, promotion, fill };
        to.set(tensor.columns(&Columns { lower, upper, channels, pixels })?.to_bytes())
    }

    /// Has a map name another tensor of the same kind.
    fn cuTensorMapReplaceAddress(map: InOut<Map>, address: usize) {
        match TensorMap::of_bytes(&map.get()?) {
            Some(old) => map.set(moved(old, address as u64)?.to_bytes()),
            // The driver does not look whether there is a map.
            None => Ok(()),
        }
    }
}
