//! Arrays: device memory of a shape, which here lies row after row.

use std::sync::Arc;

use super::context::{self, Context};
use super::copy::Extent;
use super::handle::{Found, Table};
use super::{CUresult, Result, stream};
use crate::abi::types::CUarray;
use crate::memory::access::Rows;
use crate::memory::{self, Allocation, Kind};

static ARRAYS: Table<Array> = Table::new(9);

/// `CUDA_ARRAY3D_LAYERED` and `CUDA_ARRAY3D_CUBEMAP`: the depth counts layers.
const LAYERED: u32 = 1;
const CUBEMAP: u32 = 4;
/// All flags of `cuArray3DCreate` that an array without textures can have.
const FLAGS: u32 = 0x7f;

/// What an array is.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Shape {
    /// Elements in a row.
    pub width: u64,
    /// Rows; 0 in an array of one dimension.
    pub height: u64,
    /// Slices or layers; 0 in an array of one or two dimensions.
    pub depth: u64,
    /// `CUarray_format`.
    pub format: u32,
    /// Channels of an element.
    pub channels: u32,
    /// `CUDA_ARRAY3D_*`.
    pub flags: u32,
}

impl Shape {
    /// Bytes of an element.
    fn element(&self) -> Option<u64> {
        let channel = match self.format {
            0x01 | 0x08 => 1,
            0x02 | 0x09 | 0x10 => 2,
            0x03 | 0x0a | 0x20 => 4,
            _ => return None,
        };
        matches!(self.channels, 1 | 2 | 4).then_some(channel * u64::from(self.channels))
    }

    fn check(&self) -> Option<u64> {
        let layered = self.flags & (LAYERED | CUBEMAP) != 0;
        let right = self.width > 0
            && (self.depth == 0 || self.height > 0 || layered)
            && self.flags & !FLAGS == 0;
        let limits = match (self.height, self.depth) {
            (0, _) => [131_072, 0, 2048],
            (_, 0) => [131_072, 65_536, 0],
            _ if layered => [32_768, 32_768, 2048],
            _ => [16_384; 3],
        };
        let fits = [self.width, self.height, self.depth]
            .iter()
            .zip(limits)
            .all(|(&size, limit)| size <= limit);
        if right && fits { self.element() } else { None }
    }
}

/// An array.
pub(crate) struct Array {
    handle: usize,
    context: Arc<Context>,
    shape: Shape,
    element: u64,
    memory: Allocation,
}

/// `cuArrayCreate`, `cuArray3DCreate`.
pub(crate) fn create(shape: Shape) -> Result<CUarray> {
    let context = context::current()?;
    let element = shape.check().ok_or(CUresult::CUDA_ERROR_INVALID_VALUE)?;
    let rows = shape.height.max(1) * shape.depth.max(1);
    let memory = memory::alloc(
        context.device(),
        shape.width * element * rows,
        1,
        Kind::Device,
    )?;
    let array = ARRAYS.insert(|handle| Array {
        handle,
        context,
        shape,
        element,
        memory,
    });
    Ok(CUarray(array.handle))
}

/// `cuArrayDestroy`: waits for the work that may use it.
pub(crate) fn destroy(handle: CUarray) -> Result {
    let array = resolve(handle.0)?;
    let waited = stream::synchronize_context(&array.context);
    ARRAYS.remove(handle.0);
    waited
}

/// The live array of a handle.
pub(crate) fn resolve(handle: usize) -> Result<Arc<Array>> {
    match ARRAYS.get(handle) {
        Found::Live(array) => Ok(array),
        Found::Destroyed => Err(CUresult::CUDA_ERROR_CONTEXT_IS_DESTROYED),
        Found::Unknown => Err(CUresult::CUDA_ERROR_INVALID_HANDLE),
    }
}

/// The context ends: its arrays go.
pub(crate) fn end_context(context: &Context) {
    for array in ARRAYS.all() {
        if array.context.id() == context.id() {
            ARRAYS.remove(array.handle);
        }
    }
}

impl Array {
    /// What it is.
    pub fn shape(&self) -> Shape {
        self.shape
    }

    /// Bytes of an element.
    pub fn element(&self) -> u64 {
        self.element
    }

    /// Where rows of it lie; `x` and the extent's width are in bytes.
    pub fn rows(&self, x: u64, y: u64, z: u64, extent: &Extent) -> Result<Rows> {
        let pitch = self.shape.width * self.element;
        let slice = pitch * self.shape.height.max(1);
        let inside = |start: u64, count: u64, size: u64| {
            start.checked_add(count).is_some_and(|end| end <= size)
        };
        let fits = inside(x, extent.width, pitch)
            && inside(y, extent.height, self.shape.height.max(1))
            && inside(z, extent.depth, self.shape.depth.max(1));
        match fits {
            true => Ok(Rows {
                start: self.memory.base + z * slice + y * pitch + x,
                pitch,
                slice,
            }),
            false => Err(CUresult::CUDA_ERROR_INVALID_VALUE),
        }
    }
}

impl Drop for Array {
    fn drop(&mut self) {
        memory::free(self.memory.base);
    }
}
