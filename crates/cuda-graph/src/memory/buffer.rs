//! Device memory with shared ownership.

use std::fmt;
use std::marker::PhantomData;
use std::ops::{Bound, RangeBounds};
use std::sync::Arc;

use bytemuck::{AnyBitPattern, NoUninit, Zeroable};
use cudarc::driver::{CudaContext, CudaSlice, CudaStream, DevicePtr, result};

use super::{bytes_of, shared};
use crate::driver::begun::refuse_captured;
use crate::retain::{Fence, drop_after, run_after};
use crate::{Error, Owner, Result, driver};

/// A shared handle on `len` values of type `T` in device memory, or on a part of them.
///
/// Clones and slices share the allocation, which is freed when the last of them, and the last
/// graph, executable and launch that uses it, are gone. A buffer is allocated in stream order, or
/// made from memory of cudarc's:
///
/// | from | the memory is freed |
/// |---|---|
/// | `CudaSlice<T>` | by this library |
/// | `Arc<CudaSlice<T>>`, or a reference to one | with the last clone of the `Arc` |
/// | a `CudaView`, or part of something else, by [`lent`](Buffer::lent) | by who lends it |
///
/// What takes a stream uses it at once, so it is [`Error::AlreadyCapturing`] while the stream is
/// captured. The capture goes on.
///
/// ```
/// # use cuda_graph::Buffer;
/// let device = cuda_graph::device(0)?;
/// let stream = device.context().default_stream();
/// let buffer = Buffer::from_host(&stream, &[1u32, 2, 3, 4])?;
/// let middle = buffer.slice(1..3)?;
/// assert_eq!(middle.to_host(&stream)?, [2, 3]);
/// # Ok::<(), cuda_graph::Error>(())
/// ```
pub struct Buffer<T> {
    allocation: Arc<Allocation>,
    address: u64,
    len: usize,
    element: PhantomData<fn() -> T>,
}

/// What is freed in one piece.
struct Allocation {
    address: u64,
    bytes: usize,
    /// In whose order it is freed.
    stream: Arc<CudaStream>,
    /// Who frees it, if not this.
    lender: Option<Owner>,
}

impl Drop for Allocation {
    fn drop(&mut self) {
        if self.lender.is_none() {
            free(self.address, self.stream.clone());
        }
    }
}

/// Frees what was allocated in the order of `stream`. That may be captured by the time that the
/// last launch which used the memory is over, or where a program drops it. Then the memory is freed
/// once the capture has ended.
fn free(address: u64, stream: Arc<CudaStream>) {
    // The null stream is the current context's.
    let _ = driver::bind(stream.context());
    if !driver::memory::frees_in_order(stream.context()) {
        // To free it waits for the device. No thread that drops a buffer waits for that.
        return run_after(Some(Fence::behind(stream.clone())), move || {
            let free = || driver::memory::free(address);
            let bound = driver::bind(stream.context());
            let freed = bound.and_then(|()| driver::capture::undisturbed(free));
            driver::log_leak("device memory", freed);
        });
    }
    let raw = stream.cu_stream();
    let in_order = || driver::memory::free_in_order(address, raw);
    match driver::capture::unless_captured(raw, || driver::capture::undisturbed(in_order)) {
        Some(Ok(())) => {}
        Some(freed) if !driver::capture::is_captured(raw).unwrap_or(false) => {
            driver::log_leak("device memory", freed);
        }
        // Captured, or by other code since it was asked.
        _ => run_after(Some(Fence::behind(stream.clone())), move || {
            free(address, stream)
        }),
    }
}

/// Keeps what a `CudaSlice` owns. The last of its owners frees it as cudarc does, but not into a
/// capture.
struct Lender<T: 'static>(Option<Arc<CudaSlice<T>>>);

impl<T: 'static> Drop for Lender<T> {
    fn drop(&mut self) {
        let Some(memory) = self.0.take().and_then(Arc::into_inner) else {
            return;
        };
        let stream = memory.stream().clone();
        match refuse_captured(&stream) {
            Ok(()) => drop(Allocation::of(memory)),
            Err(_) => drop_after(Fence::behind(stream), Lender(Some(Arc::new(memory)))),
        }
    }
}

impl Allocation {
    /// What `memory` owned.
    fn of<T>(memory: CudaSlice<T>) -> Allocation {
        Allocation {
            bytes: bytes(&memory),
            stream: memory.stream().clone(),
            lender: None,
            // What cudarc tracked of it in other streams, its own stream waits for now.
            address: memory.leak(),
        }
    }
}

/// The bytes of `memory`: cudarc multiplies without a look at overflow, and allocates what comes of
/// that.
fn bytes<T>(memory: &impl DevicePtr<T>) -> usize {
    memory.len().wrapping_mul(size_of::<T>())
}

/// Returns the address of `memory`. cudarc gives it to those alone who give work to a stream: that
/// stream waits for what wrote the memory, which a capture would not survive.
fn address<T>(memory: &impl DevicePtr<T>) -> u64 {
    let (stream, context) = (memory.stream(), memory.stream().context());
    // Otherwise there are no events to wait for.
    let waits = context.is_managing_stream_synchronization();
    let aside = (waits && refuse_captured(stream).is_err())
        .then(|| driver::capture::undisturbed(|| context.new_stream()).ok())
        .flatten();
    let (address, used) = memory.device_ptr(aside.as_ref().unwrap_or(stream));
    // It would record that the stream has read the memory, into a capture if there is one.
    std::mem::forget(used);
    address
}

impl<T> fmt::Debug for Buffer<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (name, whole) = (std::any::type_name::<T>(), &self.allocation);
        write!(f, "Buffer of {} {name} at {:#x}", self.len, self.address)?;
        if self.bytes() != whole.bytes {
            write!(f, ", part of {} bytes at {:#x}", whole.bytes, whole.address)?;
        }
        Ok(())
    }
}

impl<T: 'static> From<CudaSlice<T>> for Buffer<T> {
    fn from(memory: CudaSlice<T>) -> Self {
        match refuse_captured(memory.stream()) {
            Ok(()) => Buffer::whole(Allocation::of(memory)),
            // What cudarc tracked of it cannot be waited for now.
            Err(_) => Arc::new(memory).into(),
        }
    }
}

/// Lends memory that a program goes on using by cudarc's own type. Work in other streams than the
/// launches' must be ordered with them by the program: cudarc does not know of launches.
impl<T: 'static> From<Arc<CudaSlice<T>>> for Buffer<T> {
    fn from(memory: Arc<CudaSlice<T>>) -> Self {
        let lender = Arc::new(Lender(Some(memory.clone())));
        // SAFETY: the lender holds the memory.
        unsafe { Buffer::lent(&*memory, lender) }
    }
}

/// As from the `Arc` itself.
impl<T: 'static> From<&Arc<CudaSlice<T>>> for Buffer<T> {
    fn from(memory: &Arc<CudaSlice<T>>) -> Self {
        memory.clone().into()
    }
}

impl<T> Buffer<T> {
    /// Lends memory that lives inside something else: `memory` is a `CudaSlice`, or a `CudaView` of
    /// a part of one, and `owner` keeps it allocated. The memory is never freed by this buffer.
    ///
    /// ```
    /// # use std::sync::{Arc, RwLock};
    /// # use cuda_graph::{Buffer, FillOp, Graph};
    /// # let device = cuda_graph::device(0)?;
    /// # let stream = device.context().default_stream();
    /// // As in candle: a tensor holds its storage behind a lock, which other tensors share.
    /// let storage = Arc::new(RwLock::new(stream.clone_htod(&[0f32; 4])?));
    ///
    /// // SAFETY: nobody replaces the slice in the storage, which the owner keeps.
    /// let part = unsafe { Buffer::lent(&storage.read().unwrap().slice(1..3), storage.clone()) };
    ///
    /// let graph = Graph::new(device.context())?;
    /// graph.add(FillOp::new(&part, 1.5)?, ())?;
    /// graph.instantiate()?.launch(&stream)?;
    /// assert_eq!(stream.clone_dtoh(&*storage.read().unwrap())?, [0.0, 1.5, 1.5, 0.0]);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Safety
    ///
    /// While `owner` lives, the memory stays allocated and serves nothing else. What a launch
    /// writes there may be any bytes.
    pub unsafe fn lent(memory: &impl DevicePtr<T>, owner: Owner) -> Buffer<T> {
        Buffer::whole(Allocation {
            address: address(memory),
            bytes: bytes(memory),
            stream: memory.stream().clone(),
            lender: Some(owner),
        })
    }

    /// All of an allocation.
    fn whole(allocation: Allocation) -> Buffer<T> {
        let len = allocation.bytes.checked_div(size_of::<T>()).unwrap_or(0);
        Buffer {
            address: allocation.address,
            len,
            allocation: Arc::new(allocation),
            element: PhantomData,
        }
    }

    /// Allocates `len` values on `stream`, all bits zero. Work in other streams must wait for that,
    /// as for any work of `stream`.
    pub fn zeroed(stream: &Arc<CudaStream>, len: usize) -> Result<Self>
    where
        T: Zeroable,
    {
        let bytes = bytes_of::<T>(len, "allocating device memory")?;
        refuse_captured(stream)?;
        let memory = stream
            .alloc_zeros::<u8>(bytes)
            .map_err(Error::call("cuMemAllocAsync"))?;
        Ok(Buffer {
            len,
            ..Buffer::whole(Allocation::of(memory))
        })
    }

    /// Allocates on `stream`, copies `values` there, and waits until they are there.
    pub fn from_host(stream: &Arc<CudaStream>, values: &[T]) -> Result<Self>
    where
        T: NoUninit,
    {
        refuse_captured(stream)?;
        let memory = stream
            .clone_htod(bytemuck::cast_slice::<T, u8>(values))
            .map_err(Error::call("cuMemcpyHtoDAsync"))?;
        // The values are the caller's, and need not outlive this call.
        driver::stream::synchronize(stream.cu_stream())?;
        Ok(Buffer {
            len: values.len(),
            ..Buffer::whole(Allocation::of(memory))
        })
    }

    /// Copies `values` into the buffer in the order of `stream`, and waits until they are there.
    ///
    /// # Errors
    ///
    /// [`Error::SizeMismatch`] unless there are as many values as the buffer holds.
    pub fn copy_from_host(&self, stream: &CudaStream, values: &[T]) -> Result<()>
    where
        T: NoUninit,
    {
        if values.len() != self.len {
            return Err(Error::SizeMismatch {
                what: "copying values from the host into a buffer",
                wants: self.bytes(),
                got: size_of_val(values),
            });
        }
        refuse_captured(stream)?;
        // SAFETY: the buffer holds as many values, and both live until the copy is waited for.
        unsafe { result::memcpy_htod_async(self.address, values, stream.cu_stream()) }
            .map_err(Error::call("cuMemcpyHtoDAsync"))?;
        driver::stream::synchronize(stream.cu_stream())
    }

    /// The values, read in the order of `stream` and waited for.
    ///
    /// A device may have written any bytes, so every bit pattern must be a value:
    ///
    /// ```compile_fail,E0277
    /// # use cuda_graph::cudarc::driver::CudaStream;
    /// fn read(buffer: &cuda_graph::Buffer<bool>, stream: &CudaStream) -> Vec<bool> {
    ///     buffer.to_host(stream).unwrap()
    /// }
    /// ```
    pub fn to_host(&self, stream: &CudaStream) -> Result<Vec<T>>
    where
        T: AnyBitPattern,
    {
        refuse_captured(stream)?;
        let mut values = vec![T::zeroed(); self.len];
        // SAFETY: the vector holds as many values, and both live until the copy is waited for.
        unsafe { result::memcpy_dtoh_async(&mut values, self.address, stream.cu_stream()) }
            .map_err(Error::call("cuMemcpyDtoHAsync"))?;
        if let Err(error) = driver::stream::synchronize(stream.cu_stream()) {
            // The copy may still go on, or be part of a capture.
            std::mem::forget(values);
            return Err(error);
        }
        Ok(values)
    }

    /// The context that the memory was allocated in.
    pub(crate) fn context(&self) -> &Arc<CudaContext> {
        self.allocation.stream.context()
    }

    /// A part of it, which shares the allocation.
    ///
    /// # Errors
    ///
    /// [`Error::OutOfRange`] when the range does not lie within the buffer.
    pub fn slice(&self, range: impl RangeBounds<usize>) -> Result<Self> {
        let start = match range.start_bound() {
            Bound::Included(&start) => start,
            Bound::Excluded(&start) => start.saturating_add(1),
            Bound::Unbounded => 0,
        };
        let end = match range.end_bound() {
            Bound::Included(&end) => end.saturating_add(1),
            Bound::Excluded(&end) => end,
            Bound::Unbounded => self.len,
        };
        let len = self.len;
        if start > end || end > len {
            return Err(Error::OutOfRange { start, end, len });
        }
        Ok(Buffer {
            address: self.address + (start * size_of::<T>()) as u64,
            len: end - start,
            ..self.clone()
        })
    }
}

shared!(Buffer, Device);

/// The bytes of an allocation that an owner is.
pub(super) fn bytes_of_owner(owner: &Owner) -> Option<u64> {
    let allocation = owner.downcast_ref::<Allocation>()?;
    Some(allocation.bytes as u64)
}
