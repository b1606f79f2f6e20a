//! Device memory with shared ownership.

use std::fmt;
use std::marker::PhantomData;
use std::ops::{Bound, RangeBounds};
use std::sync::Arc;

use cudarc::driver::{CudaSlice, CudaStream, DeviceRepr, ValidAsZeroBits, result};

use super::{Region, Source, Space, Target, bytes_of, make_valid};
use crate::retain::{Fence, drop_after};
use crate::{Error, Owner, Result, driver};

/// A shared handle on `len` values of type `T` in device memory, or on a part of them.
///
/// Clones and slices share the allocation, which is freed when the last of them, and the last graph, executable and
/// launch that uses it, are gone. It is made from a `CudaSlice`, or allocated in stream order.
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
}

impl Allocation {
    fn free(&self) -> Result<()> {
        driver::bind(self.stream.context())?;
        driver::capture::undisturbed(|| {
            if self.stream.context().has_async_alloc() {
                return driver::memory::free_in_order(self.address, self.stream.cu_stream());
            }
            driver::stream::synchronize(self.stream.cu_stream())?;
            driver::memory::free(self.address)
        })
    }

    /// Whether it cannot be freed now, because its stream is captured.
    fn must_wait(&self) -> bool {
        driver::capture::is_captured(self.stream.cu_stream()).unwrap_or(false)
    }
}

impl Drop for Allocation {
    /// The stream may be captured by the time that the last launch which used the memory is over, or where a program
    /// drops it. Then it is freed once the capture has ended.
    fn drop(&mut self) {
        // The null stream is the current context's.
        let _ = driver::bind(self.stream.context());
        let stream = self.stream.cu_stream();
        let freed = match driver::capture::unless_captured(stream, || self.free()) {
            Some(Ok(())) => return,
            Some(freed) if !self.must_wait() => freed,
            // Captured, or by other code since it was asked.
            _ => {
                let again = Allocation {
                    address: self.address,
                    bytes: self.bytes,
                    stream: self.stream.clone(),
                };
                return drop_after(Fence::behind(self.stream.clone()), again);
            }
        };
        if let Err(error) = freed {
            tracing::error!("device memory leaks: {error}");
        }
    }
}

impl<T> Clone for Buffer<T> {
    fn clone(&self) -> Self {
        Buffer {
            allocation: self.allocation.clone(),
            address: self.address,
            len: self.len,
            element: PhantomData,
        }
    }
}

impl<T> fmt::Debug for Buffer<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "Buffer of {} {} at {:#x}",
            self.len,
            std::any::type_name::<T>(),
            self.address
        )?;
        if self.address != self.allocation.address || self.bytes() != self.allocation.bytes {
            write!(
                f,
                ", part of {} bytes at {:#x}",
                self.allocation.bytes, self.allocation.address
            )?;
        }
        Ok(())
    }
}

impl<T: 'static> From<CudaSlice<T>> for Buffer<T> {
    fn from(memory: CudaSlice<T>) -> Self {
        let stream = memory.stream().clone();
        let len = cudarc::driver::DeviceSlice::len(&memory);
        // cudarc multiplies without a look at overflow: what is there is what it allocated.
        let bytes = len.wrapping_mul(size_of::<T>());
        let len = bytes.checked_div(size_of::<T>()).unwrap_or(len);
        // What cudarc tracked of it in other streams, its own stream waits for now.
        let address = memory.leak();
        Buffer {
            allocation: Arc::new(Allocation {
                address,
                bytes,
                stream,
            }),
            address,
            len,
            element: PhantomData,
        }
    }
}

impl<T: DeviceRepr + 'static> Buffer<T> {
    /// Allocates `len` values on `stream`, all bits zero. Work in other streams is to wait for that, as for any work of
    /// `stream`.
    pub fn zeroed(stream: &Arc<CudaStream>, len: usize) -> Result<Self>
    where
        T: ValidAsZeroBits,
    {
        // cudarc does not look.
        bytes_of::<T>(len, "allocating device memory")?;
        let memory = stream
            .alloc_zeros::<T>(len)
            .map_err(Error::call("cuMemAllocAsync"))?;
        Ok(memory.into())
    }

    /// Allocates on `stream`, copies `values` there, and waits until they are.
    pub fn from_host(stream: &Arc<CudaStream>, values: &[T]) -> Result<Self> {
        let memory = stream
            .clone_htod(values)
            .map_err(Error::call("cuMemcpyHtoDAsync"))?;
        // The values are the caller's, and need not outlive this call.
        driver::stream::synchronize(stream.cu_stream())?;
        Ok(memory.into())
    }

    /// Copies `values` into the buffer in the order of `stream`, and waits until they are there.
    ///
    /// # Errors
    ///
    /// [`Error::SizeMismatch`] unless there are as many values as the buffer holds.
    pub fn copy_from_host(&self, stream: &CudaStream, values: &[T]) -> Result<()> {
        if values.len() != self.len {
            return Err(Error::SizeMismatch {
                what: "copying values from the host into a buffer",
                wants: self.bytes(),
                got: size_of_val(values),
            });
        }
        driver::bind(stream.context())?;
        // SAFETY: the buffer holds as many values, and both live until the copy is waited for.
        unsafe { result::memcpy_htod_async(self.address, values, stream.cu_stream()) }
            .map_err(Error::call("cuMemcpyHtoDAsync"))?;
        driver::stream::synchronize(stream.cu_stream())
    }

    /// The values, read in the order of `stream` and waited for.
    pub fn to_host(&self, stream: &CudaStream) -> Result<Vec<T>>
    where
        T: Clone + Default,
    {
        let mut values = vec![T::default(); self.len];
        driver::bind(stream.context())?;
        // SAFETY: the vector holds as many values, and both live until the copy is waited for; nobody reads them before they are valid.
        unsafe { result::memcpy_dtoh_async(&mut values, self.address, stream.cu_stream()) }
            .map_err(Error::call("cuMemcpyDtoHAsync"))?;
        if let Err(error) = driver::stream::synchronize(stream.cu_stream()) {
            // The copy may still go on, or be part of a capture.
            std::mem::forget(values);
            return Err(error);
        }
        // SAFETY: the vector's own values.
        unsafe { make_valid(values.as_mut_ptr(), values.len()) };
        Ok(values)
    }
}

impl<T> Buffer<T> {
    /// The address of its first value.
    pub fn address(&self) -> u64 {
        self.address
    }

    /// How many values it holds.
    pub fn len(&self) -> usize {
        self.len
    }

    /// Whether it holds none.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Its size in bytes.
    pub fn bytes(&self) -> usize {
        self.len * size_of::<T>()
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
        if start > end || end > self.len {
            return Err(Error::OutOfRange {
                start,
                end,
                len: self.len,
            });
        }
        Ok(Buffer {
            allocation: self.allocation.clone(),
            address: self.address + (start * size_of::<T>()) as u64,
            len: end - start,
            element: PhantomData,
        })
    }

    /// What keeps the allocation alive.
    #[inline]
    pub fn owner(&self) -> Owner {
        self.allocation.clone()
    }

    #[inline]
    pub(crate) fn into_owner(self) -> Owner {
        self.allocation
    }
}

impl<T> Source for Buffer<T> {
    fn source(&self) -> Region {
        Region {
            space: Space::Device,
            address: self.address,
            bytes: self.bytes(),
            owner: Some(self.owner()),
        }
    }
}

// SAFETY: device memory is never borrowed, and its values are made valid when they are read.
unsafe impl<T> Target for Buffer<T> {}
