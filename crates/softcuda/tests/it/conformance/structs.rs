//! The structures the driver's functions take, laid out as `cuda.h` does, every enumeration a plain
//! integer.

use std::ffi::c_void;

use super::api::Handle;

/// `CUDA_MEMCPY2D`.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct Copy2d {
    pub src_x: usize,
    pub src_y: usize,
    pub src_kind: u32,
    pub src_host: *const c_void,
    pub src_device: u64,
    pub src_array: Handle,
    pub src_pitch: usize,
    pub dst_x: usize,
    pub dst_y: usize,
    pub dst_kind: u32,
    pub dst_host: *mut c_void,
    pub dst_device: u64,
    pub dst_array: Handle,
    pub dst_pitch: usize,
    pub width: usize,
    pub height: usize,
}

/// `CUDA_MEMCPY3D`.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct Copy3d {
    pub src_x: usize,
    pub src_y: usize,
    pub src_z: usize,
    pub src_lod: usize,
    pub src_kind: u32,
    pub src_host: *const c_void,
    pub src_device: u64,
    pub src_array: Handle,
    pub reserved_0: usize,
    pub src_pitch: usize,
    pub src_height: usize,
    pub dst_x: usize,
    pub dst_y: usize,
    pub dst_z: usize,
    pub dst_lod: usize,
    pub dst_kind: u32,
    pub dst_host: *mut c_void,
    pub dst_device: u64,
    pub dst_array: Handle,
    pub reserved_1: usize,
    pub dst_pitch: usize,
    pub dst_height: usize,
    pub width: usize,
    pub height: usize,
    pub depth: usize,
}

/// `CUdevprop`.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct DeviceProperties {
    pub max_threads_per_block: i32,
    pub max_threads_dim: [i32; 3],
    pub max_grid_size: [i32; 3],
    pub shared_mem_per_block: i32,
    pub total_constant_memory: i32,
    pub simd_width: i32,
    pub mem_pitch: i32,
    pub regs_per_block: i32,
    pub clock_rate: i32,
    pub texture_align: i32,
}

/// `CUlaunchAttributeValue`, sixty-four bytes of whatever the attribute is.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct LaunchAttributeValue(pub [u64; 8]);

/// `CUlaunchAttribute`.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct LaunchAttribute {
    pub id: u32,
    pub padding: u32,
    pub value: LaunchAttributeValue,
}

/// `CUlaunchConfig`.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct LaunchConfig {
    pub grid: [u32; 3],
    pub block: [u32; 3],
    pub shared_bytes: u32,
    pub stream: Handle,
    pub attributes: *const LaunchAttribute,
    pub attribute_count: u32,
}

/// `CUDA_ARRAY_DESCRIPTOR`.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct ArrayDescriptor {
    pub width: usize,
    pub height: usize,
    pub format: u32,
    pub channels: u32,
}

/// `CUmemLocation`.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct Location {
    pub kind: u32,
    pub id: i32,
}

/// `CUmemAccessDesc`.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct Access {
    pub location: Location,
    pub flags: u32,
}

/// `CUmemAllocationProp`.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct AllocationProperties {
    pub kind: u32,
    pub handle_types: u32,
    pub location: Location,
    pub win32_metadata: usize,
    pub flags: [u8; 8],
}

/// `CUmemPoolProps`.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct PoolProperties {
    pub kind: u32,
    pub handle_types: u32,
    pub location: Location,
    pub win32_attributes: usize,
    pub max_size: usize,
    pub usage: u16,
    pub reserved: [u8; 54],
}

/// `CUipcMemHandle` and `CUipcEventHandle`.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct IpcHandle(pub [u8; 64]);

/// `CUstreamBatchMemOpParams`, as its write and wait forms lay it out.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct BatchOperation {
    pub operation: u32,
    pub padding: u32,
    pub address: u64,
    pub value: u64,
    pub flags: u32,
    pub padding_1: u32,
    pub alias: u64,
    pub padding_2: u64,
}
