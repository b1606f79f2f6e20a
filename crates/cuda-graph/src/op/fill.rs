//! Filling memory with one value.

use std::fmt;
use std::ptr;
use std::sync::Arc;

use bytemuck::NoUninit;
use cudarc::driver::CudaContext;
use cudarc::driver::sys::{
    CUDA_MEMSET_NODE_PARAMS_v2, CUcontext, CUgraphNode, CUgraphNodeParams, CUgraphNodeType,
    CUstream,
};
use smallvec::SmallVec;

use super::access::Access;
use super::copy::{Pitched, fits};
use super::transfer::{From, Side, Transfer};
use super::{KernelOp, Op, Shared, Tag, expected, lowered, operation, shared};
use crate::driver::per_context::PerContext;
use crate::error::NodeKind;
use crate::kernel::digest_of;
use crate::memory::{Buffer, Region, Space, Target};
use crate::{Error, Result, driver};

operation! {
    /// Fills a region, or rows of it, with a value.
    ///
    /// A memset node takes patterns of 1, 2 or 4 bytes. A value whose bytes repeat such a pattern
    /// becomes a memset node, of kind [`Fill`](NodeKind::Fill): any value of these sizes, and zeros
    /// of any type. Any other value becomes a node of kind [`Kernel`](NodeKind::Kernel), of a
    /// kernel of this library's own. A node keeps its kind: make a fill that is to be updated
    /// between both [`by_kernel`](FillOp::by_kernel).
    ///
    /// Memory of another device must be within reach: see
    /// [`enable_peer_access`](crate::enable_peer_access).
    ///
    /// ```
    /// # use cuda_graph::{Buffer, FillOp, Graph};
    /// # let device = cuda_graph::device(0)?;
    /// # let stream = device.context().default_stream();
    /// let points = Buffer::<[f32; 3]>::zeroed(&stream, 100)?;
    /// let ids = Buffer::<u64>::zeroed(&stream, 100)?;
    /// let graph = Graph::new(device.context())?;
    /// graph.add(FillOp::new(&points, [1.0, 2.0, 3.0])?, ())?;
    /// graph.add(FillOp::new(&ids, 5)?, ())?;
    /// graph.instantiate()?.launch(&stream)?;
    /// assert_eq!(points.to_host(&stream)?, [[1.0, 2.0, 3.0]; 100]);
    /// assert_eq!(ids.to_host(&stream)?, [5; 100]);
    /// # Ok::<(), cuda_graph::Error>(())
    /// ```
    FillOp(Fill)
}

#[derive(Clone)]
pub(super) struct Fill {
    to: Region,
    value: SmallVec<[u8; 16]>,
    /// How many bytes of the value a memset repeats.
    period: usize,
    /// Values in a row, rows, and bytes from a row to the next.
    shape: (usize, usize, usize),
    /// What fills, if no memset does.
    kernel: Option<KernelOp>,
}

impl Fill {
    /// Whether both are the same.
    pub(super) fn is_same(&self, other: &Fill) -> bool {
        match (&self.kernel, &other.kernel) {
            (Some(launch), Some(other)) => launch.is_same(other),
            (None, None) => {
                (self.period, self.shape) == (other.period, other.shape)
                    && self.value == other.value
                    && self.to.is_same(&other.to)
            }
            _ => false,
        }
    }
}

/// What is filled: elements of so many bytes, so many in a row, rows, and bytes from one row to the
/// next.
#[derive(Clone, Copy, PartialEq)]
pub(crate) struct MemsetRows {
    pub element: usize,
    pub width: usize,
    pub height: usize,
    pub pitch: usize,
}

impl FillOp {
    /// Fills all of `to` with a value of its element type: any type without padding, of up to 256
    /// bytes.
    ///
    /// ```compile_fail,E0308
    /// # fn fill(buffer: &cuda_graph::Buffer<u64>) -> cuda_graph::Result<cuda_graph::FillOp> {
    /// cuda_graph::FillOp::new(buffer, 5u32)
    /// # }
    /// ```
    ///
    /// # Errors
    ///
    /// [`Error::FillValueSize`] for a value of no bytes, or of more than 256; what the driver
    /// answers if it cannot load the kernel.
    #[track_caller]
    pub fn new<T: NoUninit>(to: &Buffer<T>, value: T) -> Result<FillOp> {
        FillOp::rows(to, value, to.len(), 1, 0)
    }

    /// Fills all of `to` as [`new`](FillOp::new) does, by a kernel whatever the value is: its node
    /// takes any other value by updates.
    ///
    /// # Errors
    ///
    /// As [`new`](FillOp::new).
    #[track_caller]
    pub fn by_kernel<T: NoUninit>(to: &Buffer<T>, value: T) -> Result<FillOp> {
        let value = bytemuck::bytes_of(&value);
        let shape = (to.len(), 1, 0);
        FillOp::make(to.target(), value, shape, By::Kernel(to.context()))
    }

    /// Fills `height` rows of `width` values, which lie `pitch` bytes apart.
    ///
    /// # Errors
    ///
    /// As [`new`](FillOp::new); [`Error::OutOfRange`] when the buffer is too small,
    /// [`Error::PitchTooSmall`].
    #[track_caller]
    pub fn rows<T: NoUninit>(
        to: &Buffer<T>,
        value: T,
        width: usize,
        height: usize,
        pitch: usize,
    ) -> Result<FillOp> {
        let value = bytemuck::bytes_of(&value);
        let shape = (width, height, pitch);
        FillOp::make(to.target(), value, shape, By::Either(to.context()))
    }

    /// Fills all of `to`, whatever it holds, with a pattern of 1, 2 or 4 bytes. Patterns of other
    /// sizes do not compile.
    ///
    /// # Errors
    ///
    /// [`Error::NotWhole`], [`Error::Misaligned`].
    #[track_caller]
    pub fn pattern<V: NoUninit>(to: impl Target, value: V) -> Result<FillOp> {
        let (bytes, size) = (to.target().bytes(), size_of::<V>());
        if !bytes.is_multiple_of(size) {
            return Err(Error::NotWhole { bytes, size });
        }
        FillOp::pattern_rows(to, value, bytes / size, 1, 0)
    }

    /// Fills `height` rows of `width` patterns of 1, 2 or 4 bytes. The rows lie `pitch` bytes
    /// apart.
    ///
    /// # Errors
    ///
    /// [`Error::OutOfRange`] when the region is too small, [`Error::PitchTooSmall`],
    /// [`Error::Misaligned`].
    #[track_caller]
    pub fn pattern_rows<V: NoUninit>(
        to: impl Target,
        value: V,
        width: usize,
        height: usize,
        pitch: usize,
    ) -> Result<FillOp> {
        const {
            assert!(
                matches!(size_of::<V>(), 1 | 2 | 4),
                "a pattern has 1, 2 or 4 bytes"
            )
        };
        let shape = (width, height, pitch);
        FillOp::make(to.target(), bytemuck::bytes_of(&value), shape, By::Memset)
    }

    #[track_caller]
    fn make(to: Region, value: &[u8], shape: (usize, usize, usize), by: By<'_>) -> Result<FillOp> {
        if value.is_empty() {
            return Err(Error::FillValueSize { bytes: 0 });
        }
        let (width, height, pitch) = shape;
        let (address, size) = (to.address(), value.len());
        fits(
            &to,
            Pitched::rows(pitch),
            (width.saturating_mul(size), height, 1),
        )?;
        let repeats = |&period: &usize| {
            address.is_multiple_of(period as u64)
                && (height <= 1 || pitch.is_multiple_of(period))
                && size.is_multiple_of(period)
                && value.chunks(period).all(|part| *part == value[..period])
        };
        let memset = [4, 2, 1].into_iter().find(repeats);
        let (period, kernel) = match (by, memset) {
            (By::Kernel(context), _) | (By::Either(context), None) => {
                (0, Some(launch(context, &to, value, shape)?))
            }
            (By::Either(_), Some(period)) => (period, None),
            (By::Memset, _) if address.is_multiple_of(size as u64) => (size, None),
            (By::Memset, _) => return Err(Error::Misaligned { address, size }),
        };
        let fill = Fill {
            to,
            value: SmallVec::from_slice(value),
            period,
            shape,
            kernel,
        };
        let tag = Tag::here();
        if let Some(same) = expected::fill(&fill, &tag) {
            return Ok(same);
        }
        let owners: SmallVec<[_; 2]> = match &fill.kernel {
            Some(kernel) => kernel.owners().into(),
            None => fill.to.owner.iter().cloned().collect(),
        };
        Ok(FillOp(Shared::new(fill, owners, tag)))
    }

    /// What a memset node has of it besides its place and its value.
    pub(crate) fn rows_of_memset(&self) -> MemsetRows {
        let fill = &self.0.value;
        let (width, height, pitch) = fill.shape;
        let element = fill.period.max(1);
        MemsetRows {
            element,
            width: width.saturating_mul(fill.value.len() / element),
            height,
            pitch,
        }
    }

    /// What its clones share.
    pub(super) fn shared(&self) -> &Arc<Shared<Fill>> {
        &self.0
    }

    pub(super) fn from_shared(shared: Arc<Shared<Fill>>) -> FillOp {
        FillOp(shared)
    }

    /// Where it writes.
    pub fn to(&self) -> &Region {
        &self.0.value.to
    }

    /// The value's bytes.
    pub fn value(&self) -> &[u8] {
        &self.0.value.value
    }

    /// Values in a row, and rows.
    pub fn size(&self) -> (usize, usize) {
        let (width, height, _) = self.0.value.shape;
        (width, height)
    }

    /// What the driver's own parameters of a node say, if they are of a memset.
    pub(crate) fn of_params(params: &CUgraphNodeParams) -> Option<FillOp> {
        let is_memset = params.type_ == CUgraphNodeType::CU_GRAPH_NODE_TYPE_MEMSET;
        // SAFETY: the type says which parameters are there.
        is_memset.then(|| FillOp::of_memset(unsafe { &params.__bindgen_anon_1.memset }))
    }

    fn of_memset(params: &CUDA_MEMSET_NODE_PARAMS_v2) -> FillOp {
        let period = params.elementSize as usize;
        let row = params.width.saturating_mul(period);
        let gaps = params.pitch.saturating_mul(params.height.saturating_sub(1));
        let period = period.clamp(1, 4);
        let fill = Fill {
            to: Region {
                space: Space::Device,
                address: params.dst,
                bytes: gaps.saturating_add(row),
                owner: None,
            },
            value: SmallVec::from_slice(&params.value.to_le_bytes()[..period]),
            period,
            shape: (params.width, params.height, params.pitch),
            kernel: None,
        };
        FillOp(Shared::new(fill, None, Tag::read()))
    }

    /// A fill that takes this one's place in an executable where its node is disabled. It touches
    /// no memory of the program's. `None` if the driver may disable the node: if this is no memset,
    /// has gaps, or fills much.
    ///
    /// A memset of several rows keeps its shape in an executable.
    pub(crate) fn stand_in(&self, context: &Arc<CudaContext>) -> Result<Option<FillOp>> {
        /// More than an H200 loses order at, which was seen up to 4 KiB, and not with 6,000 bytes.
        const BYTES: usize = 1 << 14;
        static MEMORY: PerContext<u64> = PerContext::new();
        let fill = &self.0.value;
        let (width, height, pitch) = fill.shape;
        let row = width.saturating_mul(fill.value.len());
        let (value, shape) = match height {
            _ if fill.kernel.is_some() => return Ok(None),
            0 | 1 => (&fill.value[..fill.period], (1, 1, 0)),
            _ if pitch == row && row.saturating_mul(height) <= BYTES => (&*fill.value, fill.shape),
            _ => return Ok(None),
        };
        // It goes with the context.
        let address = MEMORY.get(context, || {
            driver::bind(context)?;
            driver::capture::undisturbed(|| driver::memory::allocate(BYTES))
        })?;
        let fill = Fill {
            to: Region {
                space: Space::Device,
                address,
                bytes: BYTES,
                owner: None,
            },
            value: SmallVec::from_slice(value),
            period: fill.period,
            shape,
            kernel: None,
        };
        Ok(Some(FillOp(Shared::new(fill, None, Tag::default()))))
    }

    fn memset(&self, context: CUcontext) -> CUDA_MEMSET_NODE_PARAMS_v2 {
        let fill = &self.0.value;
        let (width, height, pitch) = fill.shape;
        let period = fill.value[..fill.period].iter().rev();
        CUDA_MEMSET_NODE_PARAMS_v2 {
            dst: fill.to.address(),
            pitch,
            value: period.fold(0, |value, &byte| value << 8 | u32::from(byte)),
            elementSize: fill.period as u32,
            width: width.saturating_mul(fill.value.len() / fill.period),
            height,
            ctx: context,
        }
    }
}

/// A launch that fills rows of values in `to`.
fn launch(
    context: &Arc<CudaContext>,
    to: &Region,
    value: &[u8],
    shape: (usize, usize, usize),
) -> Result<KernelOp> {
    let transfer = Some(rows_of(to, value, shape)).filter(|_| value.len() <= lowered::MOST_VALUE);
    let owner = to.owner.iter().cloned();
    // SAFETY: the rows of whole values lie in the region; the operation keeps it.
    let launch = transfer.and_then(|transfer| unsafe {
        lowered::launch(context, vec![Some(transfer)], owner, Tag::default())
    });
    launch.ok_or(Error::FillValueSize { bytes: value.len() })?
}

/// What a fill does.
fn rows_of<'a>(
    to: &'a Region,
    value: &'a [u8],
    (width, height, pitch): (usize, usize, usize),
) -> Transfer<'a> {
    let to = Side {
        region: to,
        start: to.address,
        pitch: pitch as u64,
        plane: 0,
    };
    Transfer {
        to,
        from: From::Value(value),
        width: width.saturating_mul(value.len()) as u64,
        height: height as u64,
        depth: 1,
    }
}

/// What may fill.
enum By<'a> {
    Memset,
    /// A kernel of a context, whatever the value is.
    Kernel(&'a Arc<CudaContext>),
    /// A memset where it can, or a kernel.
    Either(&'a Arc<CudaContext>),
}

impl Op for FillOp {
    shared!();

    fn kind(&self) -> NodeKind {
        self.launch().map_or(NodeKind::Fill, Op::kind)
    }

    fn describe(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (width, height) = self.size();
        let (value, to) = (hex(self.value()), self.to());
        write!(f, " of {width}x{height} values {value} to [{to:?}]")
    }

    fn node_params(&self, context: &CudaContext) -> Result<CUgraphNodeParams> {
        let mut params = driver::node::blank(CUgraphNodeType::CU_GRAPH_NODE_TYPE_MEMSET);
        params.__bindgen_anon_1.memset = self.memset(context.cu_ctx());
        Ok(params)
    }

    fn launch(&self) -> Option<&KernelOp> {
        self.0.value.kernel.as_ref()
    }

    fn is_same(&self, other: &Self) -> bool {
        self.0.value.is_same(&other.0.value)
    }

    fn digest(&self) -> u64 {
        let value = self.value().iter().map(|byte| u64::from(*byte));
        digest_of(
            [self.to().address, self.to().bytes as u64]
                .into_iter()
                .chain(value),
        )
    }

    fn transfer(&self) -> Option<Transfer<'_>> {
        let fill = &self.0.value;
        Some(rows_of(&fill.to, &fill.value, fill.shape))
    }

    fn accesses(&self) -> Option<Vec<Access>> {
        self.transfer().map(|transfer| transfer.accesses())
    }

    /// A node keeps its kind.
    fn can_follow(&self, old: &Self) -> bool {
        self.launch().is_some() == old.launch().is_some()
    }

    fn run(&self, stream: CUstream) -> Option<Result<()>> {
        match self.launch() {
            Some(launch) => launch.run(stream),
            None => Some(driver::run::fill(&self.memset(ptr::null_mut()), stream)),
        }
    }

    fn read(node: CUgraphNode) -> Result<FillOp> {
        let params = driver::node::fill_params(node)?;
        Ok(FillOp::of_memset(&CUDA_MEMSET_NODE_PARAMS_v2 {
            dst: params.dst,
            pitch: params.pitch,
            value: params.value,
            elementSize: params.elementSize,
            width: params.width,
            height: params.height,
            ctx: ptr::null_mut(),
        }))
    }
}

/// A value's bytes as one number, of which the first byte is the lowest.
pub(crate) fn hex(value: &[u8]) -> String {
    let digits = value.iter().rev().map(|byte| format!("{byte:02x}"));
    let digits: String = digits.collect();
    let digits = digits.trim_start_matches('0');
    format!("0x{}", if digits.is_empty() { "0" } else { digits })
}
