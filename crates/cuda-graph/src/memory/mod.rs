//! Memory that operations work on.
//!
//! A [`Region`] is where an operation reads or writes: an address, a size, which side it is on, and
//! who keeps it alive. [`Buffer`] and [`PinnedBuffer`] are handles on owned memory that give
//! regions safely; [`RawMemory`] gives one from an address, which is unsafe. Ownership is at the
//! level of the allocation: any handle, slice or region of it keeps all of it.
//!
//! A device writes any bytes. So values are read only as types of which every bit pattern is a
//! value (`bytemuck::AnyBitPattern`), and written only from types without padding
//! (`bytemuck::NoUninit`).

mod buffer;
mod pinned;
mod raw;

use std::sync::Arc;

use bytemuck::NoUninit;

pub use buffer::Buffer;
pub use pinned::PinnedBuffer;
pub use raw::RawMemory;

use crate::{Error, Owner, Result};

/// Which side an address is on.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Space {
    /// Device memory.
    Device,
    /// Host memory, pinned or pageable.
    Host,
    /// Managed memory, or any address that the driver can tell by itself.
    Managed,
}

/// Where an operation reads or writes.
#[derive(Clone)]
pub struct Region {
    pub(crate) space: Space,
    pub(crate) address: u64,
    pub(crate) bytes: usize,
    pub(crate) owner: Option<Owner>,
}

impl Region {
    /// Its side.
    pub fn space(&self) -> Space {
        self.space
    }

    /// Its first byte.
    pub fn address(&self) -> u64 {
        self.address
    }

    /// Its size in bytes.
    pub fn bytes(&self) -> usize {
        self.bytes
    }

    /// Whether both are the same memory, and both are owned or neither is.
    pub(crate) fn is_same(&self, other: &Region) -> bool {
        (self.space, self.address, self.bytes) == (other.space, other.address, other.bytes)
            && self.is_owned() == other.is_owned()
    }

    /// Whether something keeps it alive.
    pub fn is_owned(&self) -> bool {
        self.owner.is_some()
    }
}

impl std::fmt::Debug for Region {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let (bytes, side, address) = (self.bytes, self.space, self.address);
        let owned = if self.owner.is_some() {
            "owned"
        } else {
            "unowned"
        };
        write!(
            f,
            "{bytes} bytes of {side:?} memory at {address:#x}, {owned}"
        )
    }
}

/// Memory that an operation may read.
pub trait Source {
    /// Where it lies.
    fn source(&self) -> Region;
}

/// Memory that an operation may write.
///
/// # Safety
///
/// A device may write any bytes to what [`source`](Source::source) and [`target`](Target::target)
/// give: nothing in the program borrows it, or takes its bytes for values of a type that has not
/// all bit patterns.
///
/// ```compile_fail,E0200
/// use std::sync::Arc;
/// struct ReadOnly(Arc<Vec<u32>>);
/// impl cuda_graph::Source for ReadOnly {
///     fn source(&self) -> cuda_graph::Region {
///         self.0.source()
///     }
/// }
/// impl cuda_graph::Target for ReadOnly {}
/// ```
pub unsafe trait Target: Source {
    /// Where it lies.
    fn target(&self) -> Region {
        self.source()
    }
}

impl<S: Source + ?Sized> Source for &S {
    fn source(&self) -> Region {
        (**self).source()
    }
}

// SAFETY: as the referent's.
unsafe impl<T: Target + ?Sized> Target for &T {}

/// Pageable host memory that nobody writes any more.
impl<T: NoUninit + Send + Sync + 'static> Source for Arc<Vec<T>> {
    fn source(&self) -> Region {
        Region {
            space: Space::Host,
            address: self.as_ptr() as u64,
            bytes: size_of_val(self.as_slice()),
            owner: Some(self.clone()),
        }
    }
}

/// What every kind of buffer is: `len` values in an allocation that its clones share.
macro_rules! shared {
    ($buffer:ident, $space:ident) => {
        impl<T> $buffer<T> {
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

            /// The address of its first value.
            pub fn address(&self) -> u64 {
                self.address
            }

            /// What keeps the allocation alive.
            #[inline]
            pub fn owner(&self) -> $crate::Owner {
                self.allocation.clone()
            }

            #[inline]
            pub(crate) fn into_owner(self) -> $crate::Owner {
                self.allocation
            }
        }

        impl<T> Clone for $buffer<T> {
            fn clone(&self) -> Self {
                let allocation = self.allocation.clone();
                $buffer {
                    allocation,
                    ..*self
                }
            }
        }

        impl<T> $crate::Source for $buffer<T> {
            fn source(&self) -> $crate::Region {
                $crate::Region {
                    space: $crate::Space::$space,
                    address: self.address,
                    bytes: self.bytes(),
                    owner: Some(self.owner()),
                }
            }
        }

        // SAFETY: the memory is never borrowed, and read only as types of which all bytes are
        // values.
        unsafe impl<T> $crate::Target for $buffer<T> {}
    };
}
use shared;

/// The bytes that `len` values take; [`Error::SizeMismatch`] where no memory has so many.
fn bytes_of<T>(len: usize, what: &'static str) -> Result<usize> {
    len.checked_mul(size_of::<T>()).ok_or(Error::SizeMismatch {
        what,
        wants: usize::MAX,
        got: len,
    })
}

/// The bytes of memory that an owner is. 0 if it is something else.
pub(crate) fn bytes_of_owner(owner: &Owner) -> u64 {
    buffer::bytes_of_owner(owner)
        .or_else(|| pinned::bytes_of_owner(owner))
        .unwrap_or(0)
}
