//! Tensor maps: what a program says of a tensor, checked as the driver checks it.

use super::{CUresult, Result};
use crate::grid::tensor::map::{DataType, Interleave, MOST_RANK, Shape, Swizzle, TensorMap};

const INVALID: CUresult = CUresult::CUDA_ERROR_INVALID_VALUE;

/// Where elements are: what tiles and columns of pixels have in common. Arrays have `rank`
/// elements, strides one less.
#[derive(Clone, Debug)]
pub(crate) struct Tensor {
    pub data: u32,
    pub rank: u32,
    pub address: u64,
    pub dims: Vec<u64>,
    pub strides: Vec<u64>,
    pub steps: Vec<u32>,
    pub interleave: u32,
    pub swizzle: u32,
    pub promotion: u32,
    pub fill: u32,
}

/// Columns of pixels.
#[derive(Clone, Debug)]
pub(crate) struct Columns {
    pub lower: Vec<i32>,
    pub upper: Vec<i32>,
    pub channels: u32,
    pub pixels: u32,
}

fn valid(is: bool) -> Result {
    match is {
        true => Ok(()),
        false => Err(INVALID),
    }
}

/// The alignment of addresses and strides.
fn alignment(interleave: Interleave) -> u64 {
    match interleave {
        Interleave::B32 => 32,
        Interleave::None | Interleave::B16 => 16,
    }
}

/// Addresses have 57 bits.
fn is_address(address: u64, align: u64) -> bool {
    address.is_multiple_of(align) && address < 1 << 57
}

/// The most elements in columns.
const MOST_OF_COLUMNS: u32 = 1 << 17;

/// An array of a map, longer than the one that a program gives.
fn padded<T: Copy, U, const N: usize>(list: &[T], rest: U, convert: impl Fn(T) -> U) -> [U; N]
where
    U: Copy,
{
    std::array::from_fn(|at| list.get(at).map_or(rest, |item| convert(*item)))
}

impl Tensor {
    /// The map of a tile, of so many elements in each dimension.
    pub fn tile(&self, size: &[u32]) -> Result<TensorMap> {
        valid((1..=MOST_RANK as u32).contains(&self.rank))?;
        valid(size.iter().all(|size| (1..=256).contains(size)))?;
        let row = |data: DataType| u64::from(size.first().copied().unwrap_or(0)) * data.size();
        self.map(row, Shape::Tile(padded(size, 1, |size| size as u16)))
    }

    /// The map of columns of pixels.
    pub fn columns(&self, columns: &Columns) -> Result<TensorMap> {
        valid((3..=MOST_RANK as u32).contains(&self.rank))?;
        let most = match self.rank {
            3 => 1 << 15,
            4 => 1 << 7,
            _ => 1 << 4,
        };
        let corners = columns.lower.iter().chain(&columns.upper);
        valid(
            corners
                .copied()
                .all(|corner| (-most..most).contains(&corner)),
        )?;
        // Some pixel is within the bounds.
        let bounds = columns.lower.iter().zip(&columns.upper);
        let mut within = bounds.zip(self.dims.iter().skip(1));
        valid(
            within.all(|((lower, upper), dim)| i64::from(*lower) < *dim as i64 + i64::from(*upper)),
        )?;
        valid((1..=256).contains(&columns.channels) && (1..=1024).contains(&columns.pixels))?;
        valid(columns.channels * columns.pixels <= MOST_OF_COLUMNS)?;
        let corner = |corners: &[i32]| padded(corners, 0, |corner| corner as i16);
        let shape = Shape::Im2col {
            lower: corner(&columns.lower),
            upper: corner(&columns.upper),
            channels: columns.channels as u16,
            pixels: columns.pixels as u16,
        };
        self.map(|data| u64::from(columns.channels) * data.size(), shape)
    }

    /// The map, whose innermost elements of a box take so many bytes.
    fn map(&self, row: impl Fn(DataType) -> u64, shape: Shape) -> Result<TensorMap> {
        let data = DataType::of(self.data).ok_or(INVALID)?;
        let interleave = Interleave::of(self.interleave).ok_or(INVALID)?;
        let swizzle = Swizzle::of(self.swizzle).ok_or(INVALID)?;
        valid(self.promotion < 4 && self.fill < 2)?;
        valid(interleave == Interleave::None || self.rank >= 3)?;
        let align = alignment(interleave);
        valid(is_address(self.address, align))?;
        valid(self.dims.iter().all(|dim| (1..=1 << 32).contains(dim)))?;
        let stride = |stride: &u64| stride.is_multiple_of(align) && *stride < 1 << 40;
        valid(self.strides.iter().all(stride))?;
        valid(self.steps.iter().all(|step| (1..=8).contains(step)))?;
        let row = row(data);
        valid(row.is_multiple_of(16))?;
        let span = swizzle.span().filter(|_| interleave == Interleave::None);
        valid(span.is_none_or(|span| row <= span))?;
        valid(self.fill == 0 || data.is_float())?;
        Ok(TensorMap {
            data,
            rank: self.rank as u8,
            address: self.address,
            dims: padded(&self.dims, 1, |dim| dim),
            strides: padded(&self.strides, 0, |stride| stride),
            steps: padded(&self.steps, 1, |step| step as u8),
            interleave,
            swizzle,
            nan: self.fill != 0,
            shape,
        })
    }
}

/// The same map of a tensor elsewhere.
pub(crate) fn moved(map: TensorMap, address: u64) -> Result<TensorMap> {
    valid(address != 0 && is_address(address, alignment(map.interleave)))?;
    Ok(TensorMap { address, ..map })
}
