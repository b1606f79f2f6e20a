//! CUDA's device runtime, `libcudadevrt.a`, as far as it is here: its functions of grid groups,
//! and the last error.
//!
//! NVIDIA's library holds machine code, so a link that lists it gets PTX of softcuda's own in its
//! place. As on an H200, a module that is not linked with the library has none of its functions.

/// The member of the library that holds the functions.
pub(super) const MEMBER: &[u8] = b"cuda_device_runtime.o";

/// `cudaCGGetIntrinsicHandle`, `cudaCGSynchronize`, `cudaCGSynchronizeGrid`, `cudaCGGetSize`,
/// `cudaCGGetRank`, `cudaGetLastError` and `cudaPeekAtLastError`.
pub(super) const TEXT: &str = include_str!("device_runtime.ptx");
