//! Types of `cuda.h` as they cross the ABI: handles are numbers, enumerations integers, structures
//! plain data.

use std::fmt;

/// `CUdeviceptr`.
pub type CUdeviceptr = u64;
/// `CUdevice`.
pub type CUdevice = i32;

macro_rules! handles {
    ($($name:ident),* $(,)?) => { $(
        #[doc = concat!("`", stringify!($name), "`: a number that a [`Table`](crate::driver::handle::Table) knows.")]
        #[repr(transparent)]
        #[derive(Clone, Copy, PartialEq, Eq, Hash)]
        pub struct $name(pub usize);

        #[allow(dead_code)] // one vocabulary for all handles, whichever of it is used
        impl $name {
            /// The null handle.
            pub const NULL: Self = Self(0);

            /// It is the null handle.
            pub fn is_null(self) -> bool {
                self.0 == 0
            }
        }

        impl fmt::Debug for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                write!(f, "{:#x}", self.0)
            }
        }
    )* };
}
handles!(
    CUcontext,
    CUstream,
    CUevent,
    CUmodule,
    CUfunction,
    CUlibrary,
    CUkernel,
    CUmemoryPool,
    CUarray,
    CUlinkState,
    CUgraph,
    CUgraphNode,
    CUgraphExec,
    CUuserObject
);

/// What a pointer parameter points to that nobody reads.
#[derive(Clone, Copy, Debug)]
pub struct Unused(());
