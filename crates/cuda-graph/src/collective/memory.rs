//! Memory whose elements have a type that collectives know.

use std::fmt;
use std::marker::PhantomData;
use std::sync::Arc;

use cudarc::driver::CudaContext;

use super::Element;
use crate::memory::{Region, Space};
use crate::{Buffer, Error, PinnedBuffer, RawMemory, Result, Target};

/// Memory that collectives read and write: a [`Buffer`], lent by cudarc or not, a slice of one, a
/// [`PinnedBuffer`], or [`RawMemory`] by [`RawElements`].
pub trait Elements: sealed::Sealed {
    /// What its elements are.
    type Element: Element;
}

pub(crate) mod sealed {
    use std::sync::Arc;

    use cudarc::driver::CudaContext;

    use crate::memory::Region;

    pub trait Sealed {
        fn region(&self) -> Region;

        /// The context that it belongs to, if it belongs to one.
        fn context(&self) -> Option<&Arc<CudaContext>>;
    }
}

impl<T: Element> Elements for Buffer<T> {
    type Element = T;
}

impl<T: Element> sealed::Sealed for Buffer<T> {
    fn region(&self) -> Region {
        self.target()
    }

    fn context(&self) -> Option<&Arc<CudaContext>> {
        Some(Buffer::context(self))
    }
}

impl<T: Element> Elements for PinnedBuffer<T> {
    type Element = T;
}

impl<T: Element> sealed::Sealed for PinnedBuffer<T> {
    fn region(&self) -> Region {
        self.target()
    }

    /// A device reaches memory that another's context page-locked, at the same address.
    fn context(&self) -> Option<&Arc<CudaContext>> {
        None
    }
}

impl<E: Elements + ?Sized> Elements for &E {
    type Element = E::Element;
}

impl<E: sealed::Sealed + ?Sized> sealed::Sealed for &E {
    fn region(&self) -> Region {
        (**self).region()
    }

    fn context(&self) -> Option<&Arc<CudaContext>> {
        (**self).context()
    }
}

/// Memory that the caller vouches for, as elements of a type.
#[derive(Clone)]
pub struct RawElements<T> {
    region: Region,
    element: PhantomData<fn() -> T>,
}

impl<T: Element> RawElements<T> {
    /// All of `memory` as elements.
    ///
    /// # Errors
    ///
    /// [`Error::NotWhole`], [`Error::Misaligned`]; [`Error::Pageable`] for memory of the host: its
    /// address does not say whether devices reach it. Give memory that does as
    /// [managed](RawMemory::managed).
    pub fn new(memory: &RawMemory) -> Result<RawElements<T>> {
        let (bytes, size) = (memory.bytes(), size_of::<T>());
        if !bytes.is_multiple_of(size) {
            return Err(Error::NotWhole { bytes, size });
        }
        let address = memory.address();
        if !address.is_multiple_of(size as u64) {
            return Err(Error::Misaligned { address, size });
        }
        if memory.region().space == Space::Host {
            let what = "memory given by its address";
            return Err(Error::Pageable { what });
        }
        Ok(RawElements {
            region: memory.region().clone(),
            element: PhantomData,
        })
    }
}

impl<T> fmt::Debug for RawElements<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "RawElements of {:?}", self.region)
    }
}

impl<T: Element> Elements for RawElements<T> {
    type Element = T;
}

impl<T: Element> sealed::Sealed for RawElements<T> {
    fn region(&self) -> Region {
        self.region.clone()
    }

    fn context(&self) -> Option<&Arc<CudaContext>> {
        None
    }
}
