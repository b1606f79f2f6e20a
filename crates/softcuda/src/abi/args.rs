//! Pointers in the parameters of exported functions.
//!
//! Invariant: a value of these types comes only from the caller of an exported function, whose
//! contract (`unsafe extern "C"`) is that each pointer is null or valid for what the CUDA
//! documentation says the function does with it, during the call. That makes their methods safe for
//! the bodies of exported functions.

use std::ffi::{CStr, c_char};
use std::fmt;

use crate::driver::{CUresult, Result};

/// Where a result goes.
#[repr(transparent)]
pub struct Out<T>(*mut T);

/// Where an argument, or the first of several, is read.
#[repr(transparent)]
pub struct In<T>(*const T);

/// An argument that is read and written.
#[repr(transparent)]
pub struct InOut<T>(*mut T);

macro_rules! pointer {
    ($name:ident) => {
        impl<T> Clone for $name<T> {
            fn clone(&self) -> Self {
                *self
            }
        }

        impl<T> Copy for $name<T> {}

        impl<T> fmt::Debug for $name<T> {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                write!(f, "{:p}", self.0)
            }
        }

        #[allow(dead_code)] // one vocabulary for all three, whichever of it is used
        impl<T> $name<T> {
            /// The caller passed null.
            pub(crate) fn is_null(self) -> bool {
                self.0.is_null()
            }

            /// Itself, or `CUDA_ERROR_INVALID_VALUE` for null.
            pub(crate) fn some(self) -> Result<Self> {
                match self.0.is_null() {
                    false => Ok(self),
                    true => Err(CUresult::CUDA_ERROR_INVALID_VALUE),
                }
            }

            /// The address.
            pub(crate) fn address(self) -> usize {
                self.0 as usize
            }

            /// Element `index` of an array of the caller's.
            pub(crate) fn at(self, index: usize) -> Self {
                $name(self.0.wrapping_add(index))
            }

            /// The same address with another type, where the function's contract says so.
            pub(crate) fn cast<U>(self) -> $name<U> {
                $name(self.0.cast())
            }
        }
    };
}
pointer!(Out);
pointer!(In);
pointer!(InOut);

impl<T> Out<T> {
    /// Writes the result; `CUDA_ERROR_INVALID_VALUE` where there is nowhere to.
    pub(crate) fn set(self, value: T) -> Result {
        self.some()?;
        // SAFETY: by this module's invariant a pointer that is not null takes a value of this type;
        // the caller need not have aligned it.
        unsafe { self.0.write_unaligned(value) };
        Ok(())
    }

    /// Writes the result where the caller wants it.
    pub(crate) fn set_if_wanted(self, value: T) {
        let _ = self.set(value);
    }
}

impl<T> Out<T> {
    /// For a function that has no such parameter.
    pub(crate) fn null() -> Self {
        Out(std::ptr::null_mut())
    }
}

impl<T: Copy> In<T> {
    /// The argument; `CUDA_ERROR_INVALID_VALUE` for null.
    pub(crate) fn get(self) -> Result<T> {
        self.some()?;
        // SAFETY: by this module's invariant a pointer that is not null gives a value of this type;
        // the caller need not have aligned it.
        Ok(unsafe { self.0.read_unaligned() })
    }

    /// The argument, where the caller gave one.
    pub(crate) fn get_if_given(self) -> Option<T> {
        self.get().ok()
    }

    /// An array of `count` arguments; `CUDA_ERROR_INVALID_VALUE` for null unless there are none.
    pub(crate) fn list(self, count: usize) -> Result<Vec<T>> {
        (0..count)
            .map(|index| self.some().and_then(|_| self.at(index).get()))
            .collect()
    }
}

impl In<c_char> {
    /// A C string; `CUDA_ERROR_INVALID_VALUE` for null.
    pub(crate) fn text<'a>(self) -> Result<&'a CStr> {
        self.some()?;
        // SAFETY: by this module's invariant this is a C string that lives during the call, and
        // callers in this crate do not keep it longer.
        Ok(unsafe { CStr::from_ptr(self.0) })
    }
}

impl<T> Out<T> {
    /// The place that a number of the caller's stands for, where the function's contract says so.
    pub(crate) fn from_address(address: usize) -> Self {
        Out(address as *mut T)
    }
}

impl In<u8> {
    /// The bytes that a pointer of the caller's names, where the function's contract says so.
    pub(crate) fn from_address(address: usize) -> Self {
        In(address as *const u8)
    }

    /// `count` bytes; `CUDA_ERROR_INVALID_VALUE` for null.
    pub(crate) fn bytes<'a>(self, count: usize) -> Result<&'a [u8]> {
        self.some()?;
        // SAFETY: by this module's invariant so many bytes live during the call, and callers in
        // this crate do not keep them longer.
        Ok(unsafe { std::slice::from_raw_parts(self.0, count) })
    }
}

impl<T> InOut<T> {
    /// A place to write that is read as well, where the function's contract says so.
    pub(crate) fn from_out(out: Out<T>) -> Self {
        InOut(out.0)
    }

    /// The same place, to write alone.
    pub(crate) fn out(self) -> Out<T> {
        Out(self.0)
    }
}

impl<T: Copy> InOut<T> {
    /// The value that is there; `CUDA_ERROR_INVALID_VALUE` for null.
    pub(crate) fn get(self) -> Result<T> {
        In(self.0.cast_const()).get()
    }

    /// Writes the result; `CUDA_ERROR_INVALID_VALUE` for null.
    pub(crate) fn set(self, value: T) -> Result {
        Out(self.0).set(value)
    }
}
