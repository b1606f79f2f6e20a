//! Copying memory.

use std::fmt;
use std::mem;
use std::sync::Arc;

use cudarc::driver::CudaContext;
use cudarc::driver::sys::{
    CUDA_MEMCPY3D, CUgraphNode, CUgraphNodeParams, CUgraphNodeType, CUmemorytype, CUstream,
};
use smallvec::SmallVec;

use super::{Op, Tag, labelled, shared_tag};
use crate::error::NodeKind;
use crate::memory::{Region, Source, Space, Target};
use crate::{Error, Owner, Result, driver};

/// A copy from one region to another: of one row, of rows, or of a box. Each side is device, host or managed memory.
///
/// Between two devices it is a node of either's graph. Both must reach the memory: what cudarc and this library allocate lies in pools that
/// their own device alone reaches until `cuMemPoolSetAccess` lets another in; before, the driver answers `CUDA_ERROR_INVALID_VALUE`.
#[derive(Clone)]
pub struct CopyOp {
    copy: Arc<Copy>,
}

#[derive(Clone)]
struct Copy {
    to: Region,
    from: Region,
    params: CUDA_MEMCPY3D,
    owners: SmallVec<[Owner; 2]>,
    tag: Tag,
}

// SAFETY: the pointers among the parameters are addresses that are only handed to the driver.
unsafe impl Send for Copy {}
// SAFETY: as above.
unsafe impl Sync for Copy {}

labelled!(CopyOp);

/// How rows lie in a region.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Pitched {
    /// From one row to the next, in bytes; it counts only beyond the first row of a region.
    pub pitch: usize,
    /// From one plane to the next, in rows; it counts only beyond the first plane of a region.
    pub rows: usize,
    /// Where the box starts: byte in the row, row, plane.
    pub origin: (usize, usize, usize),
}

impl Pitched {
    /// Rows `pitch` bytes apart.
    pub fn rows(pitch: usize) -> Pitched {
        Pitched {
            pitch,
            rows: 0,
            origin: (0, 0, 0),
        }
    }
}

impl CopyOp {
    /// Copies all of `from` to all of `to`.
    ///
    /// # Errors
    ///
    /// [`Error::SizeMismatch`] when they differ in size.
    #[track_caller]
    pub fn new(to: impl Target, from: impl Source) -> Result<CopyOp> {
        let tag = Tag::here();
        let (to, from) = (to.target(), from.source());
        if to.bytes() != from.bytes() {
            return Err(Error::SizeMismatch {
                what: "copying one region to another",
                wants: to.bytes(),
                got: from.bytes(),
            });
        }
        let size = (to.bytes(), 1, 1);
        Ok(CopyOp::make(
            to,
            Pitched::default(),
            from,
            Pitched::default(),
            size,
            tag,
        ))
    }

    /// Copies `height` rows of `width` bytes, which lie `to_pitch` and `from_pitch` bytes apart.
    ///
    /// # Errors
    ///
    /// [`Error::OutOfRange`] if a side is too small, [`Error::PitchTooSmall`].
    #[track_caller]
    pub fn rows(
        to: impl Target,
        to_pitch: usize,
        from: impl Source,
        from_pitch: usize,
        width: usize,
        height: usize,
    ) -> Result<CopyOp> {
        let tag = Tag::here();
        let (to, from) = (to.target(), from.source());
        let (to_rows, from_rows) = (Pitched::rows(to_pitch), Pitched::rows(from_pitch));
        let size = (width, height, 1);
        fits(&to, to_rows, size)?;
        fits(&from, from_rows, size)?;
        Ok(CopyOp::make(to, to_rows, from, from_rows, size, tag))
    }

    /// Copies a box of `size`: bytes in a row, rows in a plane, planes.
    ///
    /// # Errors
    ///
    /// As [`rows`](CopyOp::rows).
    #[track_caller]
    pub fn volume(
        to: impl Target,
        to_rows: Pitched,
        from: impl Source,
        from_rows: Pitched,
        size: (usize, usize, usize),
    ) -> Result<CopyOp> {
        let tag = Tag::here();
        let (to, from) = (to.target(), from.source());
        fits(&to, to_rows, size)?;
        fits(&from, from_rows, size)?;
        Ok(CopyOp::make(to, to_rows, from, from_rows, size, tag))
    }

    fn make(
        to: Region,
        to_rows: Pitched,
        from: Region,
        from_rows: Pitched,
        size: (usize, usize, usize),
        tag: Tag,
    ) -> CopyOp {
        let mut params = blank();
        (params.WidthInBytes, params.Height, params.Depth) = size;
        params.srcMemoryType = memory_type(from.space);
        match from.space {
            Space::Host => params.srcHost = from.address as *const _,
            Space::Device | Space::Managed => params.srcDevice = from.address,
        }
        (params.srcXInBytes, params.srcY, params.srcZ) = from_rows.origin;
        params.srcPitch = from_rows.pitch;
        params.srcHeight = from_rows.rows;
        params.dstMemoryType = memory_type(to.space);
        match to.space {
            Space::Host => params.dstHost = to.address as *mut _,
            Space::Device | Space::Managed => params.dstDevice = to.address,
        }
        (params.dstXInBytes, params.dstY, params.dstZ) = to_rows.origin;
        params.dstPitch = to_rows.pitch;
        params.dstHeight = to_rows.rows;
        let owners = to.owner.iter().chain(&from.owner).cloned().collect();
        CopyOp {
            copy: Arc::new(Copy {
                to,
                from,
                params,
                owners,
                tag,
            }),
        }
    }

    /// Where it writes.
    pub fn to(&self) -> &Region {
        &self.copy.to
    }

    /// Where it reads.
    pub fn from(&self) -> &Region {
        &self.copy.from
    }

    /// What it copies: bytes in a row, rows in a plane, planes.
    pub fn size(&self) -> (usize, usize, usize) {
        let params = &self.copy.params;
        (params.WidthInBytes, params.Height, params.Depth)
    }

    /// How many bytes it copies in all.
    pub fn bytes(&self) -> usize {
        let (width, height, depth) = self.size();
        // A box without bytes may have sides of any length.
        if width == 0 || height == 0 || depth == 0 {
            return 0;
        }
        width * height * depth
    }
}

impl Op for CopyOp {
    shared_tag!(copy);

    fn kind(&self) -> NodeKind {
        NodeKind::Copy
    }

    fn owners(&self) -> &[Owner] {
        &self.copy.owners
    }

    fn with_params<R>(
        &self,
        context: &CudaContext,
        call: impl FnOnce(&mut CUgraphNodeParams) -> R,
    ) -> Result<R> {
        let mut params = driver::node::blank(CUgraphNodeType::CU_GRAPH_NODE_TYPE_MEMCPY);
        params.__bindgen_anon_1.memcpy = cudarc::driver::sys::CUDA_MEMCPY_NODE_PARAMS {
            flags: 0,
            reserved: 0,
            copyCtx: context.cu_ctx(),
            copyParams: self.copy.params,
        };
        Ok(call(&mut params))
    }

    fn run(&self, stream: CUstream) -> Option<Result<()>> {
        Some(match self.bytes() {
            0 => Ok(()),
            _ => driver::run::copy(&self.copy.params, stream),
        })
    }

    /// A body holds copies that need no help of the host: neither side is pageable memory, or an
    /// address that the driver does not know.
    fn fits_in_body(&self) -> bool {
        [&self.copy.to, &self.copy.from]
            .into_iter()
            .all(|side| side.space == Space::Device || driver::memory::is_known(side.address))
    }

    fn read(node: CUgraphNode) -> Result<CopyOp> {
        let params = driver::node::copy_params(node)?;
        let rows = params.Height.max(1);
        let planes = params.Depth.max(1);
        let side = |kind, host: u64, device: u64, pitch: usize, height: usize| {
            let pitch = if pitch == 0 {
                params.WidthInBytes
            } else {
                pitch
            };
            let height = if height == 0 { rows } else { height };
            let (space, address) = match kind {
                CUmemorytype::CU_MEMORYTYPE_HOST => (Space::Host, host),
                CUmemorytype::CU_MEMORYTYPE_UNIFIED => (Space::Managed, device),
                _ => (Space::Device, device),
            };
            Region {
                space,
                address,
                bytes: pitch * height * (planes - 1) + pitch * (rows - 1) + params.WidthInBytes,
                owner: None,
            }
        };
        Ok(CopyOp {
            copy: Arc::new(Copy {
                to: side(
                    params.dstMemoryType,
                    params.dstHost as u64,
                    params.dstDevice,
                    params.dstPitch,
                    params.dstHeight,
                ),
                from: side(
                    params.srcMemoryType,
                    params.srcHost as u64,
                    params.srcDevice,
                    params.srcPitch,
                    params.srcHeight,
                ),
                params,
                owners: SmallVec::new(),
                tag: Tag::read(),
            }),
        })
    }
}

impl fmt::Debug for CopyOp {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (width, height, depth) = self.size();
        write!(
            f,
            "CopyOp of {width}x{height}x{depth} from [{:?}] to [{:?}] made at {:?}",
            self.copy.from, self.copy.to, self.copy.tag
        )
    }
}

fn memory_type(space: Space) -> CUmemorytype {
    match space {
        Space::Device => CUmemorytype::CU_MEMORYTYPE_DEVICE,
        Space::Host => CUmemorytype::CU_MEMORYTYPE_HOST,
        Space::Managed => CUmemorytype::CU_MEMORYTYPE_UNIFIED,
    }
}

fn blank() -> CUDA_MEMCPY3D {
    let mut params = mem::MaybeUninit::<CUDA_MEMCPY3D>::zeroed();
    // SAFETY: plain data for which zero is a value, but for the two memory types, which get one.
    unsafe {
        (*params.as_mut_ptr()).srcMemoryType = CUmemorytype::CU_MEMORYTYPE_HOST;
        (*params.as_mut_ptr()).dstMemoryType = CUmemorytype::CU_MEMORYTYPE_HOST;
        params.assume_init()
    }
}

/// Whether a box of `size` lies within `region`.
///
/// Where the place of a byte depends on the pitch and the rows of a plane, they are to be large enough: the driver takes 0 to mean that
/// rows, or planes, lie close together.
pub(super) fn fits(region: &Region, rows: Pitched, size: (usize, usize, usize)) -> Result<()> {
    let (width, height, depth) = size;
    let (x, y, z) = rows.origin;
    if width == 0 || height == 0 || depth == 0 {
        return Ok(());
    }
    let beyond_a_row = y > 0 || height > 1 || z > 0 || depth > 1;
    if beyond_a_row && rows.pitch < x.saturating_add(width) {
        return Err(Error::PitchTooSmall {
            width,
            start: x,
            pitch: rows.pitch,
        });
    }
    if (z > 0 || depth > 1) && rows.rows < y.saturating_add(height) {
        return Err(Error::PlaneTooSmall {
            height,
            start: y,
            rows: rows.rows,
        });
    }
    let end = (|| {
        let plane = rows.rows.checked_mul(rows.pitch)?;
        let planes = plane.checked_mul(z.checked_add(depth - 1)?)?;
        let before = rows.pitch.checked_mul(y.checked_add(height - 1)?)?;
        planes
            .checked_add(before)?
            .checked_add(x)?
            .checked_add(width)
    })();
    match end {
        Some(end) if end <= region.bytes() => Ok(()),
        end => Err(Error::OutOfRange {
            start: 0,
            end: end.unwrap_or(usize::MAX),
            len: region.bytes(),
        }),
    }
}
