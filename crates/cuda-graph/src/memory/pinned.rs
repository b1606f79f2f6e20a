//! Page-locked host memory with shared ownership.

use std::fmt;
use std::marker::PhantomData;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, PoisonError, RwLock};

use bytemuck::{AnyBitPattern, NoUninit, Zeroable};
use cudarc::driver::{CudaContext, result, sys};

use super::{bytes_of, shared};
use crate::retain::when_idle;
use crate::{Error, Owner, Result, driver};

/// A shared handle on `len` values of type `T` in page-locked host memory, which devices read and
/// write directly.
///
/// A launch may write it at any time, so there is no borrowing of its values: they are copied in
/// and out. Which values a reader sees while a launch writes them is open; synchronize first.
///
/// To free it, which happens when the last that uses it has gone, waits until the context has run
/// everything that was launched in it, and other calls in that context wait meanwhile: so the
/// driver does it. Keep what will be needed again, above all where a launch waits for the host.
/// While launches are in flight that other ranks of the process meet, that is put off, so that
/// ranks can go on launching.
pub struct PinnedBuffer<T> {
    allocation: Arc<Pinned>,
    address: u64,
    len: usize,
    element: PhantomData<fn() -> T>,
}

/// Plain bytes, read and written by volatile accesses under `access` alone.
struct Pinned {
    context: Arc<CudaContext>,
    address: u64,
    bytes: usize,
    /// Held while the program reads or writes: a device does not care, but two threads must not
    /// meet.
    access: RwLock<()>,
}

impl Drop for Pinned {
    fn drop(&mut self) {
        let (context, address) = (self.context.clone(), self.address);
        let free = move || {
            // SAFETY: `malloc_host` gave this address, and this was the last handle.
            let free = || unsafe { result::free_host(address as *mut _) };
            let freed = driver::bind(&context).and_then(|()| {
                driver::capture::undisturbed(free).map_err(Error::call("cuMemFreeHost"))
            });
            driver::log_leak("pinned memory", freed);
            Box::new(()) as _
        };
        when_idle(self.context.clone(), Box::new(free));
    }
}

impl<T> fmt::Debug for PinnedBuffer<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let name = std::any::type_name::<T>();
        write!(
            f,
            "PinnedBuffer of {} {name} at {:#x}",
            self.len, self.address
        )
    }
}

impl<T> PinnedBuffer<T> {
    /// Allocates `len` values, all bits zero.
    pub fn zeroed(context: &Arc<CudaContext>, len: usize) -> Result<Self>
    where
        T: Zeroable,
    {
        PinnedBuffer::allocate(context, len, 0)
    }

    /// As [`zeroed`](PinnedBuffer::zeroed), in memory that every device of the process reaches at
    /// the same address.
    pub(crate) fn portable(context: &Arc<CudaContext>, len: usize) -> Result<Self>
    where
        T: Zeroable,
    {
        let flags = sys::CU_MEMHOSTALLOC_PORTABLE | sys::CU_MEMHOSTALLOC_DEVICEMAP;
        PinnedBuffer::allocate(context, len, flags)
    }

    /// Allocates room for `len` values, all bits zero.
    fn allocate(context: &Arc<CudaContext>, len: usize, flags: u32) -> Result<Self> {
        const { assert!(align_of::<T>() <= 256, "the driver aligns to 256 bytes") };
        driver::bind(context)?;
        let bytes = bytes_of::<T>(len, "allocating pinned memory")?;
        // The driver refuses an allocation of no bytes.
        // SAFETY: the flags are the driver's own; the memory is freed by `Pinned`.
        let allocate = || unsafe { result::malloc_host(bytes.max(1), flags) };
        let start =
            driver::capture::undisturbed(allocate).map_err(Error::call("cuMemHostAlloc"))?;
        let pinned = Pinned {
            context: context.clone(),
            address: start as u64,
            bytes,
            access: RwLock::default(),
        };
        // SAFETY: the allocation has `bytes` bytes and is ours alone so far.
        unsafe { start.cast::<u8>().write_bytes(0, bytes) };
        Ok(PinnedBuffer {
            address: pinned.address,
            allocation: Arc::new(pinned),
            len,
            element: PhantomData,
        })
    }

    /// Allocates and copies `values` there.
    pub fn from_slice(context: &Arc<CudaContext>, values: &[T]) -> Result<Self>
    where
        T: NoUninit,
    {
        let buffer = PinnedBuffer::allocate(context, values.len(), 0)?;
        buffer.write(values)?;
        Ok(buffer)
    }

    /// Copies `values` into the buffer, at once.
    ///
    /// # Errors
    ///
    /// [`Error::SizeMismatch`] unless there are as many values as the buffer holds.
    pub fn write(&self, values: &[T]) -> Result<()>
    where
        T: NoUninit,
    {
        if values.len() != self.len {
            return Err(Error::SizeMismatch {
                what: "writing values into pinned memory",
                wants: self.bytes(),
                got: size_of_val(values),
            });
        }
        let access = &self.allocation.access;
        let _alone = access.write().unwrap_or_else(PoisonError::into_inner);
        let start = self.address as *mut T;
        for (i, value) in values.iter().enumerate() {
            // SAFETY: within the allocation, aligned as the driver aligns (256 bytes); the memory
            // is never borrowed.
            unsafe { start.add(i).write_volatile(*value) };
        }
        Ok(())
    }

    /// The values, as they are now.
    ///
    /// A device may have written any bytes, so every bit pattern must be a value:
    ///
    /// ```compile_fail,E0277
    /// fn read(buffer: &cuda_graph::PinnedBuffer<bool>) -> Vec<bool> {
    ///     buffer.to_vec()
    /// }
    /// ```
    pub fn to_vec(&self) -> Vec<T>
    where
        T: AnyBitPattern,
    {
        let access = &self.allocation.access;
        let _unwritten = access.read().unwrap_or_else(PoisonError::into_inner);
        let start = self.address as *mut T;
        // SAFETY: within the allocation, initialized when made, aligned as the driver aligns; any
        // bytes are a value, and the memory is never borrowed.
        let value = |i| unsafe { start.add(i).read_volatile() };
        (0..self.len).map(value).collect()
    }
}

/// Single values that the host and devices write while the other looks.
impl PinnedBuffer<u64> {
    /// Value number `index`, as it is now.
    pub(crate) fn load(&self, index: usize) -> u64 {
        assert!(index < self.len, "there is such a value");
        // SAFETY: within the allocation, aligned as the driver aligns; the memory is never
        // borrowed, and devices and threads write whole words.
        let word = unsafe { AtomicU64::from_ptr((self.address as *mut u64).add(index)) };
        word.load(Ordering::Acquire)
    }

    /// Writes value number `index`, after everything that this thread wrote before.
    pub(crate) fn store(&self, index: usize, value: u64) {
        assert!(index < self.len, "there is such a value");
        // SAFETY: as in `load`.
        let word = unsafe { AtomicU64::from_ptr((self.address as *mut u64).add(index)) };
        word.store(value, Ordering::Release);
    }
}

shared!(PinnedBuffer, Host);

/// The bytes of an allocation that an owner is.
pub(super) fn bytes_of_owner(owner: &Owner) -> Option<u64> {
    let allocation = owner.downcast_ref::<Pinned>()?;
    Some(allocation.bytes as u64)
}
