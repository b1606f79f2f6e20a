//! `cuMemcpy*`.

use super::types::{CUarray, CUcontext, CUdeviceptr, CUstream};
use super::{In, NullStream, Out, export};
use crate::driver::copy::{End, Extent, Request, Side, Until};
use crate::driver::{CUresult, Result, array, context, stream};
use crate::memory::Device;

const INVALID: CUresult = CUresult::CUDA_ERROR_INVALID_VALUE;

/// `CUmemorytype`, and the fields of a copy that each of them reads.
fn end(kind: u32, host: usize, device: CUdeviceptr, array: CUarray) -> Result<End> {
    match kind {
        1 => Ok(End::Host(host as u64)),
        2 => Ok(End::Device(device)),
        3 if array.is_null() => Err(INVALID),
        3 => Ok(End::Array(array.0)),
        4 => Ok(End::Unified(device)),
        _ => Err(INVALID),
    }
}

/// One end of `CUDA_MEMCPY2D`.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct Side2d {
    x: usize,
    y: usize,
    kind: u32,
    host: usize,
    device: CUdeviceptr,
    array: CUarray,
    pitch: usize,
}

/// `CUDA_MEMCPY2D`.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct Copy2d {
    source: Side2d,
    target: Side2d,
    width: usize,
    height: usize,
}

/// One end of `CUDA_MEMCPY3D` and `CUDA_MEMCPY3D_PEER`; `context` is of the latter alone, and
/// reserved in the former.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct Side3d {
    x: usize,
    y: usize,
    z: usize,
    level: usize,
    kind: u32,
    host: usize,
    device: CUdeviceptr,
    array: CUarray,
    context: CUcontext,
    pitch: usize,
    height: usize,
}

/// `CUDA_MEMCPY3D` and `CUDA_MEMCPY3D_PEER`.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct Copy3d {
    source: Side3d,
    target: Side3d,
    width: usize,
    height: usize,
    depth: usize,
}

impl Side2d {
    fn decode(&self) -> Result<Side> {
        let end = end(self.kind, self.host, self.device, self.array)?;
        Ok(Side {
            end,
            x: self.x as u64,
            y: self.y as u64,
            z: 0,
            pitch: self.pitch as u64,
            height: 0,
        })
    }
}

impl Copy2d {
    /// The copy.
    pub(crate) fn decode(&self) -> Result<Request> {
        let extent = Extent {
            width: self.width as u64,
            height: self.height as u64,
            depth: 1,
        };
        Ok(Request::Rows {
            target: self.target.decode()?,
            source: self.source.decode()?,
            extent,
        })
    }
}

impl Side3d {
    fn decode(&self) -> Result<Side> {
        let end = end(self.kind, self.host, self.device, self.array)?;
        let (x, y, z) = (self.x as u64, self.y as u64, self.z as u64);
        Ok(Side {
            end,
            x,
            y,
            z,
            pitch: self.pitch as u64,
            height: self.height as u64,
        })
    }
}

impl Side3d {
    /// As the program would say it.
    fn encode(side: &Side) -> Side3d {
        let (kind, host, device, array) = match side.end {
            End::Host(address) => (1, address as usize, 0, CUarray::NULL),
            End::Device(address) => (2, 0, address, CUarray::NULL),
            End::Array(handle) => (3, 0, 0, CUarray(handle)),
            End::Unified(address) => (4, 0, address, CUarray::NULL),
        };
        Side3d {
            x: side.x as usize,
            y: side.y as usize,
            z: side.z as usize,
            level: 0,
            kind,
            host,
            device,
            array,
            context: CUcontext::NULL,
            pitch: side.pitch as usize,
            height: side.height as usize,
        }
    }
}

impl Copy3d {
    /// Target, source and how much.
    pub(super) fn ends(&self) -> Result<(Side, Side, Extent)> {
        let extent = Extent {
            width: self.width as u64,
            height: self.height as u64,
            depth: self.depth as u64,
        };
        Ok((self.target.decode()?, self.source.decode()?, extent))
    }

    /// The copy.
    pub(crate) fn decode(&self) -> Result<Request> {
        let (target, source, extent) = self.ends()?;
        Ok(Request::Rows {
            target,
            source,
            extent,
        })
    }

    /// The copy, of `CUDA_MEMCPY3D_PEER`, and the devices of its target and its source.
    fn decode_between(&self) -> Result<([Device; 2], Request)> {
        let devices = devices(self.target.context, self.source.context)?;
        Ok((devices, self.decode()?))
    }

    /// As the program would say it.
    pub(super) fn encode((target, source, extent): (Side, Side, Extent)) -> Copy3d {
        Copy3d {
            source: Side3d::encode(&source),
            target: Side3d::encode(&target),
            width: extent.width as usize,
            height: extent.height as usize,
            depth: extent.depth as usize,
        }
    }
}

/// One end of `CUDA_MEMCPY3D_BATCH_OP`: the words of its union, by kind.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct BatchSide {
    kind: u32,
    words: [u64; 4],
}

/// `CUDA_MEMCPY3D_BATCH_OP`.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct BatchCopy3d {
    source: BatchSide,
    target: BatchSide,
    extent: [u64; 3],
    order: u32,
    flags: u32,
}

impl BatchSide {
    /// Bytes of an element, where it is an array's.
    fn element(&self) -> Result<Option<u64>> {
        match self.kind {
            1 => Ok(None),
            2 => Ok(Some(array::resolve(self.words[0] as usize)?.element())),
            _ => Err(INVALID),
        }
    }

    fn decode(&self, element: u64) -> Result<Side> {
        let [first, second, third, fourth] = self.words;
        let scaled = |count: u64| count.checked_mul(element).ok_or(INVALID);
        Ok(match self.kind {
            1 => Side {
                end: End::Unified(first),
                x: 0,
                y: 0,
                z: 0,
                pitch: scaled(second)?,
                height: third,
            },
            _ => Side {
                end: End::Array(first as usize),
                x: scaled(second)?,
                y: third,
                z: fourth,
                pitch: 0,
                height: 0,
            },
        })
    }
}

impl BatchCopy3d {
    fn decode(&self) -> Result<Request> {
        check_order(self.order)?;
        let [width, height, depth] = self.extent;
        if width == 0 || height == 0 || depth == 0 {
            return Err(INVALID);
        }
        let element = self
            .source
            .element()?
            .or(self.target.element()?)
            .unwrap_or(1);
        let extent = Extent {
            width: width.checked_mul(element).ok_or(INVALID)?,
            height,
            depth,
        };
        Ok(Request::Rows {
            target: self.target.decode(element)?,
            source: self.source.decode(element)?,
            extent,
        })
    }
}

/// `CUmemcpySrcAccessOrder`: pageable memory is always read during the call.
fn check_order(order: u32) -> Result {
    match order {
        1..=3 => Ok(()),
        _ => Err(INVALID),
    }
}

/// `CUmemcpyAttributes`: where the ends are is a hint.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct CopyAttributes {
    order: u32,
    source: [u32; 2],
    target: [u32; 2],
    flags: u32,
}

/// Runs a copy in a stream; `copy` is made when the stream is known to be right.
fn run(
    stream: CUstream,
    null: NullStream,
    until: Until,
    copy: impl FnOnce() -> Result<Request>,
) -> Result {
    let stream = stream::resolve(stream, null)?;
    copy()?.run(&stream, until)
}

/// A copy that the call waits for, where it touches the host's memory.
fn now(null: NullStream, copy: impl FnOnce() -> Result<Request>) -> Result {
    run(CUstream::NULL, null, Until::Done, copy)
}

/// A copy that is queued.
fn queued(stream: CUstream, null: NullStream, copy: impl FnOnce() -> Result<Request>) -> Result {
    run(stream, null, Until::Queued, copy)
}

fn bytes(target: End, source: End, size: usize) -> Result<Request> {
    Ok(Request::Line {
        target,
        source,
        size: size as u64,
    })
}

/// A copy between an array of one dimension, from an offset in bytes, and memory or another such
/// array.
fn array_bytes(target: (End, usize), source: (End, usize), size: usize) -> Result<Request> {
    let side = |(end, offset): (End, usize)| Side {
        end,
        x: offset as u64,
        y: 0,
        z: 0,
        pitch: 0,
        height: 0,
    };
    Ok(Request::Rows {
        target: side(target),
        source: side(source),
        extent: Extent {
            width: size as u64,
            height: 1,
            depth: 1,
        },
    })
}

fn of_array(array: CUarray) -> End {
    End::Array(array.0)
}

fn host(address: usize) -> End {
    End::Host(address as u64)
}

/// The devices of a copy's target and source, by the contexts that the program names for them.
fn devices(target: CUcontext, source: CUcontext) -> Result<[Device; 2]> {
    let device = |handle| context::resolve_or_current(handle).map(|context| context.device());
    Ok([device(target)?, device(source)?])
}

/// Runs a copy between contexts; `copy` is made when the stream is known to be right.
fn run_between(
    stream: CUstream,
    null: NullStream,
    until: Until,
    copy: impl FnOnce() -> Result<([Device; 2], Request)>,
) -> Result {
    let stream = stream::resolve(stream, null)?;
    let (devices, copy) = copy()?;
    copy.run_between(devices, &stream, until)
}

/// Copies of a batch; `failed` gets the index of the one that is wrong.
fn batch(
    stream: CUstream,
    null: NullStream,
    failed: Out<usize>,
    copies: impl ExactSizeIterator<Item = Result<Request>>,
) -> Result {
    let stream = stream::resolve(stream, null)?;
    if stream.is_capturing() {
        return Err(CUresult::CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED);
    }
    if copies.len() == 0 {
        return Err(INVALID);
    }
    let mut checked = Vec::with_capacity(copies.len());
    for (index, copy) in copies.enumerate() {
        let copy = copy.and_then(|copy| copy.check(stream.context().device()));
        checked.push(copy.inspect_err(|_| failed.set_if_wanted(index))?);
    }
    checked
        .into_iter()
        .flatten()
        .try_for_each(|copy| copy.run(&stream, Until::Queued))
}

/// The copies of `cuMemcpyBatchAsync`.
fn line_copies(
    targets: In<CUdeviceptr>,
    sources: In<CUdeviceptr>,
    sizes: In<usize>,
    count: usize,
    attributes: (In<CopyAttributes>, In<usize>, usize),
) -> Result<Vec<Result<Request>>> {
    let (targets, sources, sizes) = (
        targets.list(count)?,
        sources.list(count)?,
        sizes.list(count)?,
    );
    let (values, first, attribute_count) = attributes;
    let (values, first) = (values.list(attribute_count)?, first.list(attribute_count)?);
    let sorted = first.first() == Some(&0)
        && first.is_sorted_by(|a, b| a < b)
        && first.last() < Some(&count);
    if !sorted {
        return Err(INVALID);
    }
    values
        .iter()
        .try_for_each(|value| check_order(value.order))?;
    let ends = targets.into_iter().zip(sources).zip(sizes);
    Ok(ends
        .map(|((target, source), size)| bytes(End::Unified(target), End::Unified(source), size))
        .collect())
}

fn rows_copies(count: usize, list: In<BatchCopy3d>, flags: u64) -> Result<Vec<Result<Request>>> {
    if flags != 0 {
        return Err(INVALID);
    }
    Ok(list.list(count)?.iter().map(BatchCopy3d::decode).collect())
}

/// Nowhere.
fn unwanted() -> Out<usize> {
    Out::null()
}

export! {
    /// Copies bytes; the addresses say whose memory they are in.
    fn cuMemcpy | cuMemcpy_ptds(null; target: CUdeviceptr, source: CUdeviceptr, size: usize) {
        now(null, || bytes(End::Unified(target), End::Unified(source), size))
    }

    /// Copies bytes between contexts.
    fn cuMemcpyPeer | cuMemcpyPeer_ptds(null;
        target: CUdeviceptr, target_context: CUcontext, source: CUdeviceptr, source_context: CUcontext, size: usize,
    ) {
        let devices = devices(target_context, source_context)?;
        run_between(CUstream::NULL, null, Until::Done, || {
            Ok((devices, bytes(End::Device(target), End::Device(source), size)?))
        })
    }

    /// Copies bytes from the host to the device.
    fn cuMemcpyHtoD_v2 | cuMemcpyHtoD_v2_ptds(null; target: CUdeviceptr, source: usize, size: usize) {
        now(null, || bytes(End::Device(target), host(source), size))
    }

    /// Copies bytes from the device to the host.
    fn cuMemcpyDtoH_v2 | cuMemcpyDtoH_v2_ptds(null; target: usize, source: CUdeviceptr, size: usize) {
        now(null, || bytes(host(target), End::Device(source), size))
    }

    /// Copies bytes on the device.
    fn cuMemcpyDtoD_v2 | cuMemcpyDtoD_v2_ptds(null; target: CUdeviceptr, source: CUdeviceptr, size: usize) {
        now(null, || bytes(End::Device(target), End::Device(source), size))
    }

    /// Copies bytes from the device to an array.
    fn cuMemcpyDtoA_v2 | cuMemcpyDtoA_v2_ptds(null; target: CUarray, offset: usize, source: CUdeviceptr, size: usize) {
        now(null, || array_bytes((of_array(target), offset), (End::Device(source), 0), size))
    }

    /// Copies bytes from an array to the device.
    fn cuMemcpyAtoD_v2 | cuMemcpyAtoD_v2_ptds(null; target: CUdeviceptr, source: CUarray, offset: usize, size: usize) {
        now(null, || array_bytes((End::Device(target), 0), (of_array(source), offset), size))
    }

    /// Copies bytes from the host to an array.
    fn cuMemcpyHtoA_v2 | cuMemcpyHtoA_v2_ptds(null; target: CUarray, offset: usize, source: usize, size: usize) {
        now(null, || array_bytes((of_array(target), offset), (host(source), 0), size))
    }

    /// Copies bytes from an array to the host.
    fn cuMemcpyAtoH_v2 | cuMemcpyAtoH_v2_ptds(null; target: usize, source: CUarray, offset: usize, size: usize) {
        now(null, || array_bytes((host(target), 0), (of_array(source), offset), size))
    }

    /// Copies bytes from an array to another.
    fn cuMemcpyAtoA_v2 | cuMemcpyAtoA_v2_ptds(null;
        target: CUarray, target_offset: usize, source: CUarray, source_offset: usize, size: usize,
    ) {
        now(null, || array_bytes((of_array(target), target_offset), (of_array(source), source_offset), size))
    }

    /// Copies rows.
    fn cuMemcpy2D_v2 | cuMemcpy2D_v2_ptds(null; copy: In<Copy2d>) { now(null, || copy.get()?.decode()) }

    /// Copies rows of any pitch.
    fn cuMemcpy2DUnaligned_v2 | cuMemcpy2DUnaligned_v2_ptds(null; copy: In<Copy2d>) { now(null, || copy.get()?.decode()) }

    /// Copies slices of rows.
    fn cuMemcpy3D_v2 | cuMemcpy3D_v2_ptds(null; copy: In<Copy3d>) { now(null, || copy.get()?.decode()) }

    /// Copies slices of rows between contexts.
    fn cuMemcpy3DPeer | cuMemcpy3DPeer_ptds(null; copy: In<Copy3d>) {
        run_between(CUstream::NULL, null, Until::Done, || copy.get()?.decode_between())
    }

    /// Queues a copy of bytes; the addresses say whose memory they are in.
    fn cuMemcpyAsync | cuMemcpyAsync_ptsz(null; target: CUdeviceptr, source: CUdeviceptr, size: usize, stream: CUstream) {
        queued(stream, null, || bytes(End::Unified(target), End::Unified(source), size))
    }

    /// Queues a copy of bytes between contexts.
    fn cuMemcpyPeerAsync | cuMemcpyPeerAsync_ptsz(null;
        target: CUdeviceptr, target_context: CUcontext, source: CUdeviceptr, source_context: CUcontext, size: usize,
        stream: CUstream,
    ) {
        stream::resolve_to_run(stream, null)?;
        let devices = devices(target_context, source_context)?;
        run_between(stream, null, Until::Queued, || {
            Ok((devices, bytes(End::Device(target), End::Device(source), size)?))
        })
    }

    /// Queues a copy of bytes from the host to the device.
    fn cuMemcpyHtoDAsync_v2 | cuMemcpyHtoDAsync_v2_ptsz(null;
        target: CUdeviceptr, source: usize, size: usize, stream: CUstream,
    ) {
        queued(stream, null, || bytes(End::Device(target), host(source), size))
    }

    /// Queues a copy of bytes from the device to the host.
    fn cuMemcpyDtoHAsync_v2 | cuMemcpyDtoHAsync_v2_ptsz(null;
        target: usize, source: CUdeviceptr, size: usize, stream: CUstream,
    ) {
        queued(stream, null, || bytes(host(target), End::Device(source), size))
    }

    /// Queues a copy of bytes on the device.
    fn cuMemcpyDtoDAsync_v2 | cuMemcpyDtoDAsync_v2_ptsz(null;
        target: CUdeviceptr, source: CUdeviceptr, size: usize, stream: CUstream,
    ) {
        queued(stream, null, || bytes(End::Device(target), End::Device(source), size))
    }

    /// Queues a copy of bytes from the host to an array.
    fn cuMemcpyHtoAAsync_v2 | cuMemcpyHtoAAsync_v2_ptsz(null;
        target: CUarray, offset: usize, source: usize, size: usize, stream: CUstream,
    ) {
        queued(stream, null, || array_bytes((of_array(target), offset), (host(source), 0), size))
    }

    /// Queues a copy of bytes from an array to the host.
    fn cuMemcpyAtoHAsync_v2 | cuMemcpyAtoHAsync_v2_ptsz(null;
        target: usize, source: CUarray, offset: usize, size: usize, stream: CUstream,
    ) {
        queued(stream, null, || array_bytes((host(target), 0), (of_array(source), offset), size))
    }

    /// Queues a copy of rows.
    fn cuMemcpy2DAsync_v2 | cuMemcpy2DAsync_v2_ptsz(null; copy: In<Copy2d>, stream: CUstream) {
        queued(stream, null, || copy.get()?.decode())
    }

    /// Queues a copy of slices of rows.
    fn cuMemcpy3DAsync_v2 | cuMemcpy3DAsync_v2_ptsz(null; copy: In<Copy3d>, stream: CUstream) {
        queued(stream, null, || copy.get()?.decode())
    }

    /// Queues a copy of slices of rows between contexts.
    fn cuMemcpy3DPeerAsync | cuMemcpy3DPeerAsync_ptsz(null; copy: In<Copy3d>, stream: CUstream) {
        stream::resolve_to_run(stream, null)?;
        run_between(stream, null, Until::Queued, || copy.get()?.decode_between())
    }

    /// Queues copies of bytes; says which one is wrong.
    fn cuMemcpyBatchAsync | cuMemcpyBatchAsync_ptsz(null;
        targets: In<CUdeviceptr>, sources: In<CUdeviceptr>, sizes: In<usize>, count: usize,
        attributes: In<CopyAttributes>, first: In<usize>, attribute_count: usize, failed: Out<usize>, stream: CUstream,
    ) {
        failed.set_if_wanted(usize::MAX);
        let copies = line_copies(targets, sources, sizes, count, (attributes, first, attribute_count))?;
        batch(stream, null, failed, copies.into_iter())
    }

    /// Queues copies of bytes.
    fn cuMemcpyBatchAsync_v2 | cuMemcpyBatchAsync_v2_ptsz(null;
        targets: In<CUdeviceptr>, sources: In<CUdeviceptr>, sizes: In<usize>, count: usize,
        attributes: In<CopyAttributes>, first: In<usize>, attribute_count: usize, stream: CUstream,
    ) {
        let copies = line_copies(targets, sources, sizes, count, (attributes, first, attribute_count))?;
        batch(stream, null, unwanted(), copies.into_iter())
    }

    /// Queues copies of slices of rows; says which one is wrong.
    fn cuMemcpy3DBatchAsync | cuMemcpy3DBatchAsync_ptsz(null;
        count: usize, list: In<BatchCopy3d>, failed: Out<usize>, flags: u64, stream: CUstream,
    ) {
        failed.set_if_wanted(usize::MAX);
        batch(stream, null, failed, rows_copies(count, list, flags)?.into_iter())
    }

    /// Queues copies of slices of rows.
    fn cuMemcpy3DBatchAsync_v2 | cuMemcpy3DBatchAsync_v2_ptsz(null;
        count: usize, list: In<BatchCopy3d>, flags: u64, stream: CUstream,
    ) {
        batch(stream, null, unwanted(), rows_copies(count, list, flags)?.into_iter())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use cudarc::driver::sys;

    #[test]
    fn structures_are_cudas() {
        assert_eq!(size_of::<Copy2d>(), size_of::<sys::CUDA_MEMCPY2D_v2>());
        assert_eq!(size_of::<Copy3d>(), size_of::<sys::CUDA_MEMCPY3D_v2>());
        assert_eq!(size_of::<Copy3d>(), size_of::<sys::CUDA_MEMCPY3D_PEER_v1>());
        assert_eq!(
            size_of::<BatchCopy3d>(),
            size_of::<sys::CUDA_MEMCPY3D_BATCH_OP_v1>()
        );
        assert_eq!(
            size_of::<CopyAttributes>(),
            size_of::<sys::CUmemcpyAttributes_v1>()
        );
        assert_eq!(
            std::mem::offset_of!(Copy2d, width),
            std::mem::offset_of!(sys::CUDA_MEMCPY2D_v2, WidthInBytes)
        );
        assert_eq!(
            std::mem::offset_of!(Copy3d, target),
            std::mem::offset_of!(sys::CUDA_MEMCPY3D_v2, dstXInBytes)
        );
        assert_eq!(
            std::mem::offset_of!(BatchCopy3d, extent),
            std::mem::offset_of!(sys::CUDA_MEMCPY3D_BATCH_OP_v1, extent)
        );
    }
}
