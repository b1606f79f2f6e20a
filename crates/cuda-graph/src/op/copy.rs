//! Copying memory.

use std::fmt;
use std::ptr;
use std::sync::Arc;

use cudarc::driver::CudaContext;
use cudarc::driver::sys::{
    CUDA_MEMCPY_NODE_PARAMS, CUDA_MEMCPY3D, CUgraphNode, CUgraphNodeParams, CUgraphNodeType,
    CUmemorytype as Type, CUstream,
};

use super::access::Access;
use super::transfer::{From, Side, Transfer};
use super::{Op, Shared, Tag, expected, operation, shared};
use crate::kernel::digest_of;
use crate::memory::{Region, Source, Space, Target};
use crate::{Error, Result, driver};

operation! {
    /// A copy from one region to another: of one row, of rows, or of a box. Each side is device,
    /// host or managed memory.
    ///
    /// Between two devices it is a node of either's graph. Both must reach the memory: what cudarc
    /// and this library allocate lies in pools that their own device alone reaches until
    /// [`enable_peer_access`](crate::enable_peer_access) lets another in; before, the driver
    /// answers `CUDA_ERROR_INVALID_VALUE`.
    CopyOp(Copy)
}

#[derive(Clone)]
pub(super) struct Copy {
    to: Region,
    from: Region,
    params: CUDA_MEMCPY3D,
}

// SAFETY: the pointers among the parameters are addresses that are only handed to the driver.
unsafe impl Send for Copy {}
// SAFETY: as above.
unsafe impl Sync for Copy {}

impl Copy {
    /// Whether both are the same.
    pub(super) fn is_same(&self, other: &Copy) -> bool {
        self.size_and_pitches() == other.size_and_pitches()
            && self.to.is_same(&other.to)
            && self.from.is_same(&other.from)
    }

    /// What its parameters say beyond its regions.
    fn size_and_pitches(&self) -> [usize; 13] {
        let params = &self.params;
        [
            params.WidthInBytes,
            params.Height,
            params.Depth,
            params.srcXInBytes,
            params.srcY,
            params.srcZ,
            params.srcPitch,
            params.srcHeight,
            params.dstXInBytes,
            params.dstY,
            params.dstZ,
            params.dstPitch,
            params.dstHeight,
        ]
    }
}

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
            ..Pitched::default()
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
        let (to, from) = (to.target(), from.source());
        let (wants, got) = (to.bytes(), from.bytes());
        if wants != got {
            let what = "copying one region to another";
            return Err(Error::SizeMismatch { what, wants, got });
        }
        let rows = Pitched::default();
        CopyOp::make((to, rows), (from, rows), (wants, 1, 1))
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
        let (to_rows, from_rows) = (Pitched::rows(to_pitch), Pitched::rows(from_pitch));
        CopyOp::volume(to, to_rows, from, from_rows, (width, height, 1))
    }

    /// Copies a box of `size`: bytes in a row, rows in a plane, planes.
    ///
    /// # Errors
    ///
    /// As [`rows`](CopyOp::rows), and [`Error::PlaneTooSmall`].
    #[track_caller]
    pub fn volume(
        to: impl Target,
        to_rows: Pitched,
        from: impl Source,
        from_rows: Pitched,
        size: (usize, usize, usize),
    ) -> Result<CopyOp> {
        CopyOp::make((to.target(), to_rows), (from.source(), from_rows), size)
    }

    #[track_caller]
    fn make(
        (to, to_rows): (Region, Pitched),
        (from, from_rows): (Region, Pitched),
        size: (usize, usize, usize),
    ) -> Result<CopyOp> {
        fits(&to, to_rows, size)?;
        fits(&from, from_rows, size)?;
        let (to_type, to_host, to_device) = place(&to);
        let (from_type, from_host, from_device) = place(&from);
        let params = CUDA_MEMCPY3D {
            srcXInBytes: from_rows.origin.0,
            srcY: from_rows.origin.1,
            srcZ: from_rows.origin.2,
            srcLOD: 0,
            srcMemoryType: from_type,
            srcHost: from_host as *const _,
            srcDevice: from_device,
            srcArray: ptr::null_mut(),
            reserved0: ptr::null_mut(),
            srcPitch: from_rows.pitch,
            srcHeight: from_rows.rows,
            dstXInBytes: to_rows.origin.0,
            dstY: to_rows.origin.1,
            dstZ: to_rows.origin.2,
            dstLOD: 0,
            dstMemoryType: to_type,
            dstHost: to_host as *mut _,
            dstDevice: to_device,
            dstArray: ptr::null_mut(),
            reserved1: ptr::null_mut(),
            dstPitch: to_rows.pitch,
            dstHeight: to_rows.rows,
            WidthInBytes: size.0,
            Height: size.1,
            Depth: size.2,
        };
        let (copy, tag) = (Copy { to, from, params }, Tag::here());
        if let Some(same) = expected::copy(&copy, &tag) {
            return Ok(same);
        }
        let owners = [copy.to.owner.clone(), copy.from.owner.clone()];
        let owners = owners.into_iter().flatten();
        Ok(CopyOp(Shared::new(copy, owners, tag)))
    }

    /// Whether it is of one row.
    pub(crate) fn is_line(&self) -> bool {
        let (_, height, depth) = self.size();
        height <= 1 && depth <= 1
    }

    /// Whether both are the same, whoever holds their memory.
    pub(crate) fn has_same_params(&self, other: &CopyOp) -> bool {
        let place = |region: &Region| (region.space, region.address);
        self.0.value.size_and_pitches() == other.0.value.size_and_pitches()
            && place(self.to()) == place(other.to())
            && place(self.from()) == place(other.from())
    }

    /// Where the box starts, the pitch and the rows of a plane, of the source and of the target.
    pub(crate) fn rows_of_sides(&self) -> [usize; 10] {
        let all = self.0.value.size_and_pitches();
        std::array::from_fn(|at| all[at + 3])
    }

    /// What its clones share.
    pub(super) fn shared(&self) -> &Arc<Shared<Copy>> {
        &self.0
    }

    pub(super) fn from_shared(shared: Arc<Shared<Copy>>) -> CopyOp {
        CopyOp(shared)
    }

    /// Where it writes.
    pub fn to(&self) -> &Region {
        &self.0.value.to
    }

    /// Where it reads.
    pub fn from(&self) -> &Region {
        &self.0.value.from
    }

    /// What it copies: bytes in a row, rows in a plane, planes.
    pub fn size(&self) -> (usize, usize, usize) {
        let params = &self.0.value.params;
        (params.WidthInBytes, params.Height, params.Depth)
    }

    /// How many bytes it copies in all.
    pub fn bytes(&self) -> usize {
        let (width, height, depth) = self.size();
        // A box without bytes may have sides of any length.
        width.saturating_mul(height).saturating_mul(depth)
    }
}

impl Op for CopyOp {
    shared!(Copy);

    fn describe(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (width, height, depth) = self.size();
        write!(f, " of {width}x{height}x{depth}")?;
        write!(f, " from [{:?}] to [{:?}]", self.from(), self.to())
    }

    fn node_params(&self, context: &CudaContext) -> Result<CUgraphNodeParams> {
        let mut params = driver::node::blank(CUgraphNodeType::CU_GRAPH_NODE_TYPE_MEMCPY);
        params.__bindgen_anon_1.memcpy = CUDA_MEMCPY_NODE_PARAMS {
            flags: 0,
            reserved: 0,
            copyCtx: context.cu_ctx(),
            copyParams: self.0.value.params,
        };
        Ok(params)
    }

    fn is_same(&self, other: &Self) -> bool {
        self.0.value.is_same(&other.0.value)
    }

    fn digest(&self) -> u64 {
        digest_of([self.to().address, self.from().address, self.bytes() as u64])
    }

    fn transfer(&self) -> Option<Transfer<'_>> {
        let (copy, params) = (&self.0.value, &self.0.value.params);
        let is_array = |kind| kind == Type::CU_MEMORYTYPE_ARRAY;
        if is_array(params.srcMemoryType) || is_array(params.dstMemoryType) {
            return None;
        }
        let (width, height, depth) = self.size();
        let size = (width, height);
        let to = (params.dstXInBytes, params.dstY, params.dstZ);
        let from = (params.srcXInBytes, params.srcY, params.srcZ);
        let from = side(&copy.from, from, (params.srcPitch, params.srcHeight), size);
        Some(Transfer {
            to: side(&copy.to, to, (params.dstPitch, params.dstHeight), size),
            from: From::Memory(from),
            width: width as u64,
            height: height as u64,
            depth: depth as u64,
        })
    }

    fn accesses(&self) -> Option<Vec<Access>> {
        self.transfer().map(|transfer| transfer.accesses())
    }

    /// A copy keeps its direction.
    fn can_follow(&self, old: &Self) -> bool {
        self.to().space == old.to().space && self.from().space == old.from().space
    }

    fn run(&self, stream: CUstream) -> Option<Result<()>> {
        Some(match self.bytes() {
            0 => Ok(()),
            _ => driver::run::copy(&self.0.value.params, stream),
        })
    }

    /// A body holds copies that need no help of the host: neither side is pageable memory, or an
    /// address that the driver does not know.
    fn fits_in_body(&self) -> bool {
        [self.to(), self.from()]
            .into_iter()
            .all(|side| side.space == Space::Device || driver::memory::is_known(side.address))
    }

    fn read(node: CUgraphNode) -> Result<CopyOp> {
        let copy = driver::node::copy_params(node)?;
        let (rows, planes) = (copy.Height.max(1), copy.Depth.max(1));
        // A pitch or height of 0 is that of the box.
        let or = |given: usize, of_box: usize| if given == 0 { of_box } else { given };
        let side = |(kind, host, device): (Type, u64, u64), pitch: usize, height: usize| {
            let (pitch, height) = (or(pitch, copy.WidthInBytes), or(height, rows));
            let (space, address) = match kind {
                Type::CU_MEMORYTYPE_HOST => (Space::Host, host),
                Type::CU_MEMORYTYPE_UNIFIED => (Space::Managed, device),
                _ => (Space::Device, device),
            };
            Region {
                space,
                address,
                bytes: pitch * height * (planes - 1) + pitch * (rows - 1) + copy.WidthInBytes,
                owner: None,
            }
        };
        let to = (copy.dstMemoryType, copy.dstHost as u64, copy.dstDevice);
        let from = (copy.srcMemoryType, copy.srcHost as u64, copy.srcDevice);
        let copy = Copy {
            to: side(to, copy.dstPitch, copy.dstHeight),
            from: side(from, copy.srcPitch, copy.srcHeight),
            params: copy,
        };
        Ok(CopyOp(Shared::new(copy, None, Tag::read())))
    }
}

/// The memory type of a region, and its address as one of the host's or as one of a device's.
fn place(region: &Region) -> (Type, u64, u64) {
    match region.space {
        Space::Device => (Type::CU_MEMORYTYPE_DEVICE, 0, region.address),
        Space::Host => (Type::CU_MEMORYTYPE_HOST, region.address, 0),
        Space::Managed => (Type::CU_MEMORYTYPE_UNIFIED, 0, region.address),
    }
}

/// How a box lies in a region, of which `size` is a row and a plane. A pitch or height of 0 is that
/// of the box.
fn side(
    region: &Region,
    (x, y, z): (usize, usize, usize),
    (pitch, rows): (usize, usize),
    size: (usize, usize),
) -> Side<'_> {
    let pitch = if pitch == 0 { size.0 } else { pitch };
    let rows = if rows == 0 { size.1 } else { rows };
    let plane = pitch.saturating_mul(rows);
    let planes = z.saturating_mul(plane);
    let first = planes
        .saturating_add(y.saturating_mul(pitch))
        .saturating_add(x);
    Side {
        region,
        start: region.address.saturating_add(first as u64),
        pitch: pitch as u64,
        plane: plane as u64,
    }
}

/// Whether a box of `size` lies within `region`.
///
/// Where the place of a byte depends on the pitch and the rows of a plane, they are to be large
/// enough: the driver takes 0 to mean that rows, or planes, lie close together.
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
    let plane = rows.rows.saturating_mul(z.saturating_add(depth - 1));
    let row = plane.saturating_add(y.saturating_add(height - 1));
    let start = rows.pitch.saturating_mul(row).saturating_add(x);
    let len = region.bytes();
    // The driver takes no plane whose size is no number, also if there is only one.
    let end = match rows.pitch.checked_mul(rows.rows) {
        Some(_) => start.saturating_add(width),
        None => usize::MAX,
    };
    // No memory ends at the last address.
    if end <= len && end < usize::MAX {
        return Ok(());
    }
    Err(Error::OutOfRange { start: 0, end, len })
}
