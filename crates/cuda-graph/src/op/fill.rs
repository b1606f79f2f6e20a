//! Filling memory with one value.

use std::fmt;
use std::sync::Arc;

use cudarc::driver::CudaContext;
use cudarc::driver::sys::{
    CUDA_MEMSET_NODE_PARAMS_v2, CUcontext, CUgraphNode, CUgraphNodeParams, CUgraphNodeType,
    CUstream,
};

use super::copy::{Pitched, fits};
use super::{Op, Tag, labelled, shared_tag};
use crate::error::NodeKind;
use crate::memory::{Region, Space, Target};
use crate::{Error, Owner, Result, driver};

/// Fills a region, or rows of it, with a value of 1, 2 or 4 bytes.
#[derive(Clone)]
pub struct FillOp {
    fill: Arc<Fill>,
}

#[derive(Clone)]
struct Fill {
    to: Region,
    value: u32,
    value_bytes: u32,
    /// In values.
    width: usize,
    height: usize,
    pitch: usize,
    tag: Tag,
}

labelled!(FillOp);

/// A value of 1, 2 or 4 bytes.
pub trait FillValue: sealed::Sealed + Copy {
    /// Its bits.
    fn bits(self) -> u32;
    /// Its size in bytes.
    const BYTES: u32;
}

mod sealed {
    pub trait Sealed {}
}

macro_rules! fill_values {
    ($($value:ty: $bits:expr),+ $(,)?) => {$(
        impl sealed::Sealed for $value {}
        impl FillValue for $value {
            fn bits(self) -> u32 {
                $bits(self)
            }
            const BYTES: u32 = size_of::<$value>() as u32;
        }
    )+};
}

fill_values! {
    u8: u32::from,
    i8: |value: i8| u32::from(value as u8),
    u16: u32::from,
    i16: |value: i16| u32::from(value as u16),
    u32: |value: u32| value,
    i32: |value: i32| value as u32,
    f32: f32::to_bits,
}

impl FillOp {
    /// Fills all of `to`.
    ///
    /// # Errors
    ///
    /// [`Error::InvalidOperation`] when the region is not a whole number of values, or the address not aligned to one.
    #[track_caller]
    pub fn new<V: FillValue>(to: impl Target, value: V) -> Result<FillOp> {
        let tag = Tag::here();
        let to = to.target();
        let size = V::BYTES as usize;
        if !to.bytes().is_multiple_of(size) {
            return Err(Error::NotWhole {
                bytes: to.bytes(),
                size,
            });
        }
        let width = to.bytes() / size;
        FillOp::make(to, value, width, 1, 0, tag)
    }

    /// Fills `height` rows of `width` values, which lie `pitch` bytes apart.
    ///
    /// # Errors
    ///
    /// [`Error::OutOfRange`] when the region is too small, [`Error::InvalidOperation`] when the pitch is smaller than a row.
    #[track_caller]
    pub fn rows<V: FillValue>(
        to: impl Target,
        value: V,
        width: usize,
        height: usize,
        pitch: usize,
    ) -> Result<FillOp> {
        let tag = Tag::here();
        let to = to.target();
        let bytes = width.saturating_mul(V::BYTES as usize);
        fits(&to, Pitched::rows(pitch), (bytes, height, 1))?;
        FillOp::make(to, value, width, height, pitch, tag)
    }

    fn make<V: FillValue>(
        to: Region,
        value: V,
        width: usize,
        height: usize,
        pitch: usize,
        tag: Tag,
    ) -> Result<FillOp> {
        if !to.address().is_multiple_of(u64::from(V::BYTES)) {
            return Err(Error::Misaligned {
                address: to.address(),
                size: V::BYTES as usize,
            });
        }
        let fill = Arc::new(Fill {
            to,
            value: value.bits(),
            value_bytes: V::BYTES,
            width,
            height,
            pitch,
            tag,
        });
        Ok(FillOp { fill })
    }

    /// Where it writes.
    pub fn to(&self) -> &Region {
        &self.fill.to
    }

    /// The value's bits.
    pub fn value(&self) -> u32 {
        self.fill.value
    }

    /// The value's size in bytes.
    pub fn value_bytes(&self) -> u32 {
        self.fill.value_bytes
    }

    /// Values in a row, and rows.
    pub fn size(&self) -> (usize, usize) {
        (self.fill.width, self.fill.height)
    }

    fn params(&self, context: CUcontext) -> CUDA_MEMSET_NODE_PARAMS_v2 {
        CUDA_MEMSET_NODE_PARAMS_v2 {
            dst: self.fill.to.address(),
            pitch: self.fill.pitch,
            value: self.fill.value,
            elementSize: self.fill.value_bytes,
            width: self.fill.width,
            height: self.fill.height,
            ctx: context,
        }
    }
}

impl Op for FillOp {
    shared_tag!(fill);

    fn kind(&self) -> NodeKind {
        NodeKind::Fill
    }

    fn owners(&self) -> &[Owner] {
        self.fill.to.owner.as_slice()
    }

    fn with_params<R>(
        &self,
        context: &CudaContext,
        call: impl FnOnce(&mut CUgraphNodeParams) -> R,
    ) -> Result<R> {
        let mut params = driver::node::blank(CUgraphNodeType::CU_GRAPH_NODE_TYPE_MEMSET);
        params.__bindgen_anon_1.memset = self.params(context.cu_ctx());
        Ok(call(&mut params))
    }

    fn run(&self, stream: CUstream) -> Option<Result<()>> {
        Some(driver::run::fill(&self.params(std::ptr::null_mut()), stream))
    }

    fn read(node: CUgraphNode) -> Result<FillOp> {
        let params = driver::node::fill_params(node)?;
        let row = params.width * params.elementSize as usize;
        let fill = Arc::new(Fill {
            to: Region {
                space: Space::Device,
                address: params.dst,
                bytes: params.pitch * params.height.saturating_sub(1) + row,
                owner: None,
            },
            value: params.value,
            value_bytes: params.elementSize,
            width: params.width,
            height: params.height,
            pitch: params.pitch,
            tag: Tag::read(),
        });
        Ok(FillOp { fill })
    }
}

impl fmt::Debug for FillOp {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "FillOp of {}x{} values {:#x} of {} bytes to [{:?}] made at {:?}",
            self.fill.width,
            self.fill.height,
            self.fill.value,
            self.fill.value_bytes,
            self.fill.to,
            self.fill.tag
        )
    }
}
