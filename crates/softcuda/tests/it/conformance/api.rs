//! The driver's C functions as raw calls.
//!
//! Every enumeration is a plain integer here, every handle an integer as wide as a pointer: the
//! suite passes values no enumeration has and handles that never were, which typed bindings could
//! not hold. A function is looked up on its first call; one that the driver does not export answers
//! [`NOT_EXPORTED`].
#![allow(
    non_snake_case,
    clippy::too_many_arguments,
    reason = "the functions are the driver's, names and arguments alike"
)]

use std::ffi::{c_char, c_void};
use std::sync::OnceLock;

use super::error_name;
use super::structs::*;
use crate::driver;

/// A context, stream, event, module, function, library, kernel, pool, array or graph. Zero is the
/// null handle.
pub type Handle = usize;
/// A function on the host that the driver calls, or `None` for a null pointer.
pub type HostFn = Option<unsafe extern "C" fn(*mut c_void)>;
/// What `cuStreamAddCallback` calls: the stream, its status, the caller's pointer.
pub type StreamCallback = Option<unsafe extern "C" fn(Handle, u32, *mut c_void)>;
/// Dynamic shared memory for a block size, as `cuOccupancyMaxPotentialBlockSize` asks for it.
pub type BlockSizeToSharedMemory = Option<unsafe extern "C" fn(i32) -> usize>;

/// The code of an [`Answer`] from a function that the driver does not have.
pub const NOT_EXPORTED: u32 = u32::MAX;

/// What one call answered.
#[derive(Clone, Copy, PartialEq, Eq)]
#[must_use]
pub struct Answer {
    pub function: &'static str,
    pub code: u32,
}

impl Answer {
    /// The call is preparation, not the question: anything but success ends the case.
    #[track_caller]
    pub fn must(self) {
        assert!(
            self.code == 0,
            "{}={}",
            self.function,
            error_name(self.code)
        );
    }

    /// The answer does not matter to this case.
    pub fn ignore(self) {}
}

macro_rules! driver_functions {
    ($($name:ident($($argument:ident: $type:ty),*);)*) => {$(
        /// The driver's function of this name.
        ///
        /// # Safety
        /// As the CUDA driver API says for it; a call meant to be wrong relies on the driver to
        /// notice.
        pub unsafe fn $name($($argument: $type),*) -> Answer {
            static ADDRESS: OnceLock<usize> = OnceLock::new();
            let address = *ADDRESS.get_or_init(|| driver::symbol(stringify!($name)));
            if address == 0 {
                return Answer { function: stringify!($name), code: NOT_EXPORTED };
            }
            let function: unsafe extern "C" fn($($type),*) -> u32 = std::mem::transmute(address);
            Answer { function: stringify!($name), code: function($($argument),*) }
        }
    )*};
}
pub(crate) use driver_functions;

driver_functions! {
    cuInit(flags: u32);
    cuDriverGetVersion(driver_version: *mut i32);
    cuGetErrorName(error: u32, p_str: *mut *const c_char);
    cuGetErrorString(error: u32, p_str: *mut *const c_char);
    cuGetProcAddress(symbol: *const c_char, pfn: *mut *mut c_void, cuda_version: i32, flags: u64);
    cuGetProcAddress_v2(symbol: *const c_char, pfn: *mut *mut c_void, cuda_version: i32, flags: u64, symbol_status: *mut u32);
    cuDeviceGet(device: *mut i32, ordinal: i32);
    cuDeviceGetCount(count: *mut i32);
    cuDeviceGetName(name: *mut c_char, len: i32, dev: i32);
    cuDeviceGetUuid_v2(uuid: *mut [u8; 16], dev: i32);
    cuDeviceGetAttribute(pi: *mut i32, attrib: u32, dev: i32);
    cuDeviceTotalMem_v2(bytes: *mut usize, dev: i32);
    cuDeviceComputeCapability(major: *mut i32, minor: *mut i32, dev: i32);
    cuDeviceGetProperties(prop: *mut DeviceProperties, dev: i32);
    cuDeviceGetPCIBusId(pci_bus_id: *mut c_char, len: i32, dev: i32);
    cuDeviceGetByPCIBusId(dev: *mut i32, pci_bus_id: *const c_char);
    cuDeviceCanAccessPeer(can_access_peer: *mut i32, dev: i32, peer_dev: i32);
    cuDeviceGetP2PAttribute(value: *mut i32, attrib: u32, src_device: i32, dst_device: i32);
    cuDeviceGetDefaultMemPool(pool_out: *mut Handle, dev: i32);
    cuDeviceGetMemPool(pool: *mut Handle, dev: i32);
    cuDeviceSetMemPool(dev: i32, pool: Handle);
    cuDeviceGetExecAffinitySupport(pi: *mut i32, kind: u32, dev: i32);
    cuFlushGPUDirectRDMAWrites(target: u32, scope: u32);
    cuDevicePrimaryCtxRetain(pctx: *mut Handle, dev: i32);
    cuDevicePrimaryCtxRelease_v2(dev: i32);
    cuDevicePrimaryCtxReset_v2(dev: i32);
    cuDevicePrimaryCtxGetState(dev: i32, flags: *mut u32, active: *mut i32);
    cuDevicePrimaryCtxSetFlags_v2(dev: i32, flags: u32);
    cuCtxCreate_v2(pctx: *mut Handle, flags: u32, dev: i32);
    cuCtxDestroy_v2(ctx: Handle);
    cuCtxPushCurrent_v2(ctx: Handle);
    cuCtxPopCurrent_v2(pctx: *mut Handle);
    cuCtxSetCurrent(ctx: Handle);
    cuCtxGetCurrent(pctx: *mut Handle);
    cuCtxGetDevice(device: *mut i32);
    cuCtxGetFlags(flags: *mut u32);
    cuCtxSetFlags(flags: u32);
    cuCtxGetId(ctx: Handle, ctx_id: *mut u64);
    cuCtxSynchronize();
    cuCtxSetLimit(limit: u32, value: usize);
    cuCtxGetLimit(pvalue: *mut usize, limit: u32);
    cuCtxGetCacheConfig(pconfig: *mut u32);
    cuCtxSetCacheConfig(config: u32);
    cuCtxGetSharedMemConfig(p_config: *mut u32);
    cuCtxSetSharedMemConfig(config: u32);
    cuCtxGetApiVersion(ctx: Handle, version: *mut u32);
    cuCtxGetStreamPriorityRange(least_priority: *mut i32, greatest_priority: *mut i32);
    cuCtxResetPersistingL2Cache();
    cuCtxEnablePeerAccess(peer_context: Handle, flags: u32);
    cuCtxDisablePeerAccess(peer_context: Handle);
    cuCtxAttach(pctx: *mut Handle, flags: u32);
    cuCtxDetach(ctx: Handle);
    cuModuleLoad(module: *mut Handle, fname: *const c_char);
    cuModuleLoadData(module: *mut Handle, image: *const c_void);
    cuModuleLoadDataEx(module: *mut Handle, image: *const c_void, num_options: u32, options: *mut u32, option_values: *mut *mut c_void);
    cuModuleLoadFatBinary(module: *mut Handle, fat_cubin: *const c_void);
    cuModuleUnload(hmod: Handle);
    cuModuleGetFunction(hfunc: *mut Handle, hmod: Handle, name: *const c_char);
    cuModuleGetFunctionCount(count: *mut u32, module: Handle);
    cuModuleEnumerateFunctions(functions: *mut Handle, num_functions: u32, module: Handle);
    cuModuleGetGlobal_v2(dptr: *mut u64, bytes: *mut usize, hmod: Handle, name: *const c_char);
    cuModuleGetLoadingMode(mode: *mut u32);
    cuLinkCreate_v2(num_options: u32, options: *mut u32, option_values: *mut *mut c_void, state_out: *mut Handle);
    cuLinkAddData_v2(state: Handle, kind: u32, data: *mut c_void, size: usize, name: *const c_char, num_options: u32, options: *mut u32, option_values: *mut *mut c_void);
    cuLinkAddFile_v2(state: Handle, kind: u32, path: *const c_char, num_options: u32, options: *mut u32, option_values: *mut *mut c_void);
    cuLinkComplete(state: Handle, cubin_out: *mut *mut c_void, size_out: *mut usize);
    cuLinkDestroy(state: Handle);
    cuLibraryLoadData(library: *mut Handle, code: *const c_void, jit_options: *mut u32, jit_options_values: *mut *mut c_void, num_jit_options: u32, library_options: *mut u32, library_option_values: *mut *mut c_void, num_library_options: u32);
    cuLibraryUnload(library: Handle);
    cuLibraryGetKernel(p_kernel: *mut Handle, library: Handle, name: *const c_char);
    cuLibraryGetKernelCount(count: *mut u32, lib: Handle);
    cuLibraryEnumerateKernels(kernels: *mut Handle, num_kernels: u32, lib: Handle);
    cuLibraryGetModule(p_mod: *mut Handle, library: Handle);
    cuLibraryGetGlobal(dptr: *mut u64, bytes: *mut usize, library: Handle, name: *const c_char);
    cuLibraryGetManaged(dptr: *mut u64, bytes: *mut usize, library: Handle, name: *const c_char);
    cuLibraryGetUnifiedFunction(fptr: *mut *mut c_void, library: Handle, symbol: *const c_char);
    cuKernelGetFunction(p_func: *mut Handle, kernel: Handle);
    cuKernelGetLibrary(p_lib: *mut Handle, kernel: Handle);
    cuKernelGetAttribute(pi: *mut i32, attrib: u32, kernel: Handle, dev: i32);
    cuKernelSetAttribute(attrib: u32, val: i32, kernel: Handle, dev: i32);
    cuKernelSetCacheConfig(kernel: Handle, config: u32, dev: i32);
    cuKernelGetName(name: *mut *const c_char, hfunc: Handle);
    cuKernelGetParamInfo(kernel: Handle, param_index: usize, param_offset: *mut usize, param_size: *mut usize);
    cuFuncGetAttribute(pi: *mut i32, attrib: u32, hfunc: Handle);
    cuFuncSetAttribute(hfunc: Handle, attrib: u32, value: i32);
    cuFuncSetCacheConfig(hfunc: Handle, config: u32);
    cuFuncSetSharedMemConfig(hfunc: Handle, config: u32);
    cuFuncGetModule(hmod: *mut Handle, hfunc: Handle);
    cuFuncGetName(name: *mut *const c_char, hfunc: Handle);
    cuFuncGetParamInfo(func: Handle, param_index: usize, param_offset: *mut usize, param_size: *mut usize);
    cuFuncIsLoaded(state: *mut u32, function: Handle);
    cuFuncLoad(function: Handle);
    cuFuncSetBlockShape(function: Handle, x: i32, y: i32, z: i32);
    cuFuncSetSharedSize(function: Handle, bytes: u32);
    cuParamSetSize(function: Handle, bytes: u32);
    cuParamSeti(function: Handle, offset: i32, value: u32);
    cuParamSetv(function: Handle, offset: i32, data: *mut c_void, bytes: u32);
    cuLaunchGrid(function: Handle, width: i32, height: i32);
    cuLaunchGridAsync(function: Handle, width: i32, height: i32, stream: Handle);
    cuLaunchKernel(f: Handle, grid_x: u32, grid_y: u32, grid_z: u32, block_x: u32, block_y: u32, block_z: u32, shared_mem_bytes: u32, h_stream: Handle, kernel_params: *mut *mut c_void, extra: *mut *mut c_void);
    cuLaunchKernelEx(config: *const LaunchConfig, f: Handle, kernel_params: *mut *mut c_void, extra: *mut *mut c_void);
    cuLaunchCooperativeKernel(f: Handle, grid_x: u32, grid_y: u32, grid_z: u32, block_x: u32, block_y: u32, block_z: u32, shared_mem_bytes: u32, h_stream: Handle, kernel_params: *mut *mut c_void);
    cuLaunchHostFunc(h_stream: Handle, function: HostFn, user_data: *mut c_void);
    cuOccupancyMaxActiveBlocksPerMultiprocessor(num_blocks: *mut i32, func: Handle, block_size: i32, dynamic_shared_size: usize);
    cuOccupancyMaxActiveBlocksPerMultiprocessorWithFlags(num_blocks: *mut i32, func: Handle, block_size: i32, dynamic_shared_size: usize, flags: u32);
    cuOccupancyMaxPotentialBlockSize(min_grid_size: *mut i32, block_size: *mut i32, func: Handle, block_size_to_dynamic_shared_size: BlockSizeToSharedMemory, dynamic_shared_size: usize, block_size_limit: i32);
    cuOccupancyAvailableDynamicSMemPerBlock(dynamic_shared_size: *mut usize, func: Handle, num_blocks: i32, block_size: i32);
    cuOccupancyMaxPotentialClusterSize(cluster_size: *mut i32, func: Handle, config: *const LaunchConfig);
    cuOccupancyMaxActiveClusters(num_clusters: *mut i32, func: Handle, config: *const LaunchConfig);
    cuMemGetInfo_v2(free: *mut usize, total: *mut usize);
    cuMemAlloc_v2(dptr: *mut u64, bytesize: usize);
    cuMemAllocPitch_v2(dptr: *mut u64, p_pitch: *mut usize, width_in_bytes: usize, height: usize, element_size_bytes: u32);
    cuMemFree_v2(dptr: u64);
    cuMemGetAddressRange_v2(pbase: *mut u64, psize: *mut usize, dptr: u64);
    cuMemAllocHost_v2(pp: *mut *mut c_void, bytesize: usize);
    cuMemFreeHost(p: *mut c_void);
    cuMemHostAlloc(pp: *mut *mut c_void, bytesize: usize, flags: u32);
    cuMemHostGetDevicePointer_v2(pdptr: *mut u64, p: *mut c_void, flags: u32);
    cuMemHostGetFlags(p_flags: *mut u32, p: *mut c_void);
    cuMemAllocManaged(dptr: *mut u64, bytesize: usize, flags: u32);
    cuMemHostRegister_v2(p: *mut c_void, bytesize: usize, flags: u32);
    cuMemHostUnregister(p: *mut c_void);
    cuMemcpy(dst: u64, src: u64, byte_count: usize);
    cuMemcpyPeer(dst_device: u64, dst_context: Handle, src_device: u64, src_context: Handle, byte_count: usize);
    cuMemcpyAsync(dst: u64, src: u64, byte_count: usize, h_stream: Handle);
    cuMemcpyHtoD_v2(dst_device: u64, src_host: *const c_void, byte_count: usize);
    cuMemcpyDtoH_v2(dst_host: *mut c_void, src_device: u64, byte_count: usize);
    cuMemcpyDtoD_v2(dst_device: u64, src_device: u64, byte_count: usize);
    cuMemcpyHtoDAsync_v2(dst_device: u64, src_host: *const c_void, byte_count: usize, h_stream: Handle);
    cuMemcpyDtoHAsync_v2(dst_host: *mut c_void, src_device: u64, byte_count: usize, h_stream: Handle);
    cuMemcpyDtoDAsync_v2(dst_device: u64, src_device: u64, byte_count: usize, h_stream: Handle);
    cuMemcpy2D_v2(p_copy: *const Copy2d);
    cuMemcpy2DUnaligned_v2(p_copy: *const Copy2d);
    cuMemcpy2DAsync_v2(p_copy: *const Copy2d, h_stream: Handle);
    cuMemcpy3D_v2(p_copy: *const Copy3d);
    cuMemcpy3DAsync_v2(p_copy: *const Copy3d, h_stream: Handle);
    cuMemsetD8_v2(dst_device: u64, uc: u8, n: usize);
    cuMemsetD16_v2(dst_device: u64, us: u16, n: usize);
    cuMemsetD32_v2(dst_device: u64, ui: u32, n: usize);
    cuMemsetD2D8_v2(dst_device: u64, dst_pitch: usize, uc: u8, width: usize, height: usize);
    cuMemsetD2D16_v2(dst_device: u64, dst_pitch: usize, us: u16, width: usize, height: usize);
    cuMemsetD2D32_v2(dst_device: u64, dst_pitch: usize, ui: u32, width: usize, height: usize);
    cuMemsetD8Async(dst_device: u64, uc: u8, n: usize, h_stream: Handle);
    cuMemsetD16Async(dst_device: u64, us: u16, n: usize, h_stream: Handle);
    cuMemsetD32Async(dst_device: u64, ui: u32, n: usize, h_stream: Handle);
    cuMemsetD2D8Async(dst_device: u64, dst_pitch: usize, uc: u8, width: usize, height: usize, h_stream: Handle);
    cuMemsetD2D32Async(dst_device: u64, dst_pitch: usize, ui: u32, width: usize, height: usize, h_stream: Handle);
    cuArrayCreate_v2(p_handle: *mut Handle, p_allocate_array: *const ArrayDescriptor);
    cuArrayGetDescriptor_v2(p_array_descriptor: *mut ArrayDescriptor, h_array: Handle);
    cuArrayDestroy(h_array: Handle);
    cuMemAddressReserve(ptr: *mut u64, size: usize, alignment: usize, addr: u64, flags: u64);
    cuMemAddressFree(ptr: u64, size: usize);
    cuMemCreate(handle: *mut u64, size: usize, prop: *const AllocationProperties, flags: u64);
    cuMemRelease(handle: u64);
    cuMemMap(ptr: u64, size: usize, offset: usize, handle: u64, flags: u64);
    cuMemUnmap(ptr: u64, size: usize);
    cuMemSetAccess(ptr: u64, size: usize, desc: *const Access, count: usize);
    cuMemGetAccess(flags: *mut u64, location: *const Location, ptr: u64);
    cuMemGetAllocationGranularity(granularity: *mut usize, prop: *const AllocationProperties, option: u32);
    cuMemGetAllocationPropertiesFromHandle(prop: *mut AllocationProperties, handle: u64);
    cuMemRetainAllocationHandle(handle: *mut u64, addr: *mut c_void);
    cuMemAllocAsync(dptr: *mut u64, bytesize: usize, h_stream: Handle);
    cuMemFreeAsync(dptr: u64, h_stream: Handle);
    cuMemPoolTrimTo(pool: Handle, min_bytes_to_keep: usize);
    cuMemPoolSetAttribute(pool: Handle, attr: u32, value: *mut c_void);
    cuMemPoolGetAttribute(pool: Handle, attr: u32, value: *mut c_void);
    cuMemPoolSetAccess(pool: Handle, map: *const Access, count: usize);
    cuMemPoolGetAccess(flags: *mut u32, mem_pool: Handle, location: *mut Location);
    cuMemPoolCreate(pool: *mut Handle, pool_props: *const PoolProperties);
    cuMemPoolDestroy(pool: Handle);
    cuMemAllocFromPoolAsync(dptr: *mut u64, bytesize: usize, pool: Handle, h_stream: Handle);
    cuMemPoolExportToShareableHandle(handle_out: *mut c_void, pool: Handle, handle_type: u32, flags: u64);
    cuMemPoolImportFromShareableHandle(pool: *mut Handle, handle: usize, handle_type: u32, flags: u64);
    cuMemPoolExportPointer(data: *mut [u8; 64], ptr: u64);
    cuMemPoolImportPointer(ptr: *mut u64, pool: Handle, data: *const [u8; 64]);
    cuMemGetDefaultMemPool(pool: *mut Handle, location: *mut Location, kind: u32);
    cuMemGetMemPool(pool: *mut Handle, location: *mut Location, kind: u32);
    cuMemSetMemPool(location: *const Location, kind: u32, pool: Handle);
    cuMemExportToShareableHandle(handle_out: *mut c_void, handle: u64, handle_type: u32, flags: u64);
    cuMemImportFromShareableHandle(handle: *mut u64, shareable: usize, handle_type: u32);
    cuPointerGetAttribute(data: *mut c_void, attribute: u32, ptr: u64);
    cuPointerGetAttributes(num_attributes: u32, attributes: *mut u32, data: *mut *mut c_void, ptr: u64);
    cuPointerSetAttribute(value: *const c_void, attribute: u32, ptr: u64);
    cuMemPrefetchAsync(dev_ptr: u64, count: usize, dst_device: i32, h_stream: Handle);
    cuMemPrefetchAsync_v2(dev_ptr: u64, count: usize, location: Location, flags: u32, h_stream: Handle);
    cuMemAdvise(dev_ptr: u64, count: usize, advice: u32, device: i32);
    cuMemAdvise_v2(dev_ptr: u64, count: usize, advice: u32, location: Location);
    cuMemRangeGetAttribute(data: *mut c_void, data_size: usize, attribute: u32, dev_ptr: u64, count: usize);
    cuMemRangeGetAttributes(data: *mut *mut c_void, data_sizes: *mut usize, attributes: *mut u32, num_attributes: usize, dev_ptr: u64, count: usize);
    cuIpcGetEventHandle(p_handle: *mut IpcHandle, event: Handle);
    cuIpcOpenEventHandle(event: *mut Handle, handle: IpcHandle);
    cuIpcGetMemHandle(p_handle: *mut IpcHandle, dptr: u64);
    cuIpcOpenMemHandle_v2(pdptr: *mut u64, handle: IpcHandle, flags: u32);
    cuIpcCloseMemHandle(dptr: u64);
    cuStreamCreate(ph_stream: *mut Handle, flags: u32);
    cuStreamCreateWithPriority(ph_stream: *mut Handle, flags: u32, priority: i32);
    cuStreamGetPriority(h_stream: Handle, priority: *mut i32);
    cuStreamGetFlags(h_stream: Handle, flags: *mut u32);
    cuStreamGetId(h_stream: Handle, stream_id: *mut u64);
    cuStreamGetDevice(h_stream: Handle, device: *mut i32);
    cuStreamGetCtx(h_stream: Handle, pctx: *mut Handle);
    cuStreamWaitEvent(h_stream: Handle, h_event: Handle, flags: u32);
    cuStreamAddCallback(h_stream: Handle, callback: StreamCallback, user_data: *mut c_void, flags: u32);
    cuStreamAttachMemAsync(h_stream: Handle, dptr: u64, length: usize, flags: u32);
    cuStreamQuery(h_stream: Handle);
    cuStreamSynchronize(h_stream: Handle);
    cuStreamDestroy_v2(h_stream: Handle);
    cuStreamCopyAttributes(dst: Handle, src: Handle);
    cuStreamGetAttribute(h_stream: Handle, attr: u32, value_out: *mut LaunchAttributeValue);
    cuStreamSetAttribute(h_stream: Handle, attr: u32, value: *const LaunchAttributeValue);
    cuStreamIsCapturing(h_stream: Handle, capture_status: *mut u32);
    cuThreadExchangeStreamCaptureMode(mode: *mut u32);
    cuStreamWaitValue32_v2(stream: Handle, addr: u64, value: u32, flags: u32);
    cuStreamWaitValue64_v2(stream: Handle, addr: u64, value: u64, flags: u32);
    cuStreamWriteValue32_v2(stream: Handle, addr: u64, value: u32, flags: u32);
    cuStreamWriteValue64_v2(stream: Handle, addr: u64, value: u64, flags: u32);
    cuStreamBatchMemOp_v2(stream: Handle, count: u32, param_array: *mut BatchOperation, flags: u32);
    cuEventCreate(ph_event: *mut Handle, flags: u32);
    cuEventRecord(h_event: Handle, h_stream: Handle);
    cuEventRecordWithFlags(h_event: Handle, h_stream: Handle, flags: u32);
    cuEventQuery(h_event: Handle);
    cuEventSynchronize(h_event: Handle);
    cuEventDestroy_v2(h_event: Handle);
    cuEventElapsedTime(p_milliseconds: *mut f32, h_start: Handle, h_end: Handle);
    cuEventElapsedTime_v2(p_milliseconds: *mut f32, h_start: Handle, h_end: Handle);
    cuProfilerStart();
    cuProfilerStop();
    cuGetExportTable(pp_export_table: *mut *const c_void, p_export_table_id: *const [u8; 16]);
    cuTensorMapEncodeTiled(map: *mut c_void, data: u32, rank: u32, address: usize, dims: *const u64, strides: *const u64, size: *const u32, steps: *const u32, interleave: u32, swizzle: u32, promotion: u32, fill: u32);
    cuTensorMapEncodeIm2col(map: *mut c_void, data: u32, rank: u32, address: usize, dims: *const u64, strides: *const u64, lower: *const i32, upper: *const i32, channels: u32, pixels: u32, steps: *const u32, interleave: u32, swizzle: u32, promotion: u32, fill: u32);
    cuTensorMapReplaceAddress(map: *mut c_void, address: usize);
}
