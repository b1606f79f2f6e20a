//! Functions that softcuda does not have: exported, so that a client that looks them up finds them,
//! and each says its name once in the log.

use std::sync::Once;

use crate::driver::CUresult;

fn refuse(name: &'static str, said: &Once) -> CUresult {
    said.call_once(|| tracing::warn!(function = name, "softcuda does not have this function"));
    CUresult::CUDA_ERROR_NOT_SUPPORTED
}

macro_rules! unsupported {
    ($($name:ident)*) => { $(
        #[doc = concat!("`", stringify!($name), "`: not supported.")]
        #[unsafe(no_mangle)]
        pub extern "C" fn $name() -> CUresult {
            static SAID: Once = Once::new();
            refuse(stringify!($name), &SAID)
        }
    )* };
}

unsupported! {
    cuArray3DCreate cuArray3DGetDescriptor cuArrayCreate cuArrayGetDescriptor cuArrayGetMemoryRequirements
    cuArrayGetPlane cuArrayGetSparseProperties cuCheckpointProcessCheckpoint cuCheckpointProcessGetRestoreThreadId
    cuCheckpointProcessGetState cuCheckpointProcessLock cuCheckpointProcessRestore cuCheckpointProcessUnlock
    cuCoredumpGetAttribute cuCoredumpGetAttributeGlobal cuCoredumpSetAttribute cuCoredumpSetAttributeGlobal
    cuCtxFromGreenCtx cuCtxGetDevResource cuDestroyExternalMemory cuDestroyExternalSemaphore
    cuDevResourceGenerateDesc cuDevSmResourceSplitByCount cuDeviceGetDevResource cuDeviceGetHostAtomicCapabilities
    cuDeviceGetNvSciSyncAttributes cuDeviceGetP2PAtomicCapabilities cuDeviceGetTexture1DLinearMaxWidth
    cuDeviceRegisterAsyncNotification cuDeviceTotalMem cuDeviceUnregisterAsyncNotification
    cuEGLStreamConsumerAcquireFrame cuEGLStreamConsumerConnect cuEGLStreamConsumerConnectWithFlags
    cuEGLStreamConsumerDisconnect cuEGLStreamConsumerReleaseFrame cuEGLStreamProducerConnect
    cuEGLStreamProducerDisconnect cuEGLStreamProducerPresentFrame cuEGLStreamProducerReturnFrame
    cuExternalMemoryGetMappedBuffer cuExternalMemoryGetMappedMipmappedArray cuGLCtxCreate cuGLCtxCreate_v2
    cuGLGetDevices cuGLGetDevices_v2 cuGLInit cuGLMapBufferObject cuGLMapBufferObjectAsync
    cuGLMapBufferObjectAsync_v2 cuGLMapBufferObjectAsync_v2_ptsz cuGLMapBufferObject_v2 cuGLMapBufferObject_v2_ptds
    cuGLRegisterBufferObject cuGLSetBufferObjectMapFlags cuGLUnmapBufferObject cuGLUnmapBufferObjectAsync
    cuGLUnregisterBufferObject cuGraphicsEGLRegisterImage cuGraphicsGLRegisterBuffer cuGraphicsGLRegisterImage
    cuGraphicsMapResources cuGraphicsMapResources_ptsz cuGraphicsResourceGetMappedEglFrame
    cuGraphicsResourceGetMappedMipmappedArray cuGraphicsResourceGetMappedPointer
    cuGraphicsResourceGetMappedPointer_v2 cuGraphicsResourceSetMapFlags cuGraphicsResourceSetMapFlags_v2
    cuGraphicsSubResourceGetMappedArray cuGraphicsUnmapResources cuGraphicsUnmapResources_ptsz
    cuGraphicsUnregisterResource cuGraphicsVDPAURegisterOutputSurface cuGraphicsVDPAURegisterVideoSurface
    cuGreenCtxCreate cuGreenCtxDestroy cuGreenCtxGetDevResource cuGreenCtxGetId cuGreenCtxRecordEvent
    cuGreenCtxStreamCreate cuGreenCtxWaitEvent cuImportExternalMemory cuImportExternalSemaphore
    cuLaunchCooperativeKernelMultiDevice cuLogsCurrent cuLogsDumpToFile cuLogsDumpToMemory cuLogsRegisterCallback
    cuLogsUnregisterCallback cuMemAlloc cuMemAllocHost cuMemAllocPitch cuMemBatchDecompressAsync
    cuMemBatchDecompressAsync_ptsz cuMemFree cuMemGetAddressRange cuMemGetHandleForAddressRange cuMemGetInfo
    cuMemHostGetDevicePointer cuMemMapArrayAsync cuMemMapArrayAsync_ptsz
    cuMemcpy2D cuMemcpy2DAsync
    cuMemcpy2DUnaligned cuMemcpy3D cuMemcpy3DAsync cuMemcpyAtoA cuMemcpyAtoD cuMemcpyAtoH cuMemcpyAtoHAsync
    cuMemcpyDtoA cuMemcpyDtoD cuMemcpyDtoDAsync cuMemcpyDtoH cuMemcpyDtoHAsync cuMemcpyHtoA cuMemcpyHtoAAsync
    cuMemcpyHtoD cuMemcpyHtoDAsync cuMemsetD16 cuMemsetD2D16 cuMemsetD2D32 cuMemsetD2D8 cuMemsetD32 cuMemsetD8
    cuMipmappedArrayCreate cuMipmappedArrayDestroy cuMipmappedArrayGetLevel cuMipmappedArrayGetMemoryRequirements
    cuMipmappedArrayGetSparseProperties cuModuleGetSurfRef cuModuleGetTexRef cuMulticastAddDevice
    cuMulticastBindAddr cuMulticastBindMem cuMulticastCreate cuMulticastGetGranularity cuMulticastUnbind
    cuParamSetTexRef cuSignalExternalSemaphoresAsync cuSignalExternalSemaphoresAsync_ptsz cuSurfObjectCreate
    cuSurfObjectDestroy cuSurfObjectGetResourceDesc cuSurfRefGetArray cuSurfRefSetArray
    cuTensorMapEncodeIm2colWide cuTexObjectCreate
    cuTexObjectDestroy cuTexObjectGetResourceDesc cuTexObjectGetResourceViewDesc cuTexObjectGetTextureDesc
    cuTexRefCreate cuTexRefDestroy cuTexRefGetAddress cuTexRefGetAddressMode cuTexRefGetAddress_v2 cuTexRefGetArray
    cuTexRefGetBorderColor cuTexRefGetFilterMode cuTexRefGetFlags cuTexRefGetFormat cuTexRefGetMaxAnisotropy
    cuTexRefGetMipmapFilterMode cuTexRefGetMipmapLevelBias cuTexRefGetMipmapLevelClamp cuTexRefGetMipmappedArray
    cuTexRefSetAddress cuTexRefSetAddress2D cuTexRefSetAddress2D_v2 cuTexRefSetAddress2D_v3 cuTexRefSetAddressMode
    cuTexRefSetAddress_v2 cuTexRefSetArray cuTexRefSetBorderColor cuTexRefSetFilterMode cuTexRefSetFlags
    cuTexRefSetFormat cuTexRefSetMaxAnisotropy cuTexRefSetMipmapFilterMode cuTexRefSetMipmapLevelBias
    cuTexRefSetMipmapLevelClamp cuTexRefSetMipmappedArray cuVDPAUCtxCreate cuVDPAUCtxCreate_v2 cuVDPAUGetDevice
    cuWaitExternalSemaphoresAsync cuWaitExternalSemaphoresAsync_ptsz
}

// Names that `cuGetProcAddress` of a driver for CUDA 13.0 does not find: those of newer toolkits,
// up to 13.5, and one for Tegra. A program that looks up every name of its headers finds them here.
unsupported! {
    cuCheckpointOperationComplete cuCoredumpDeregisterCompleteCallback cuCoredumpDeregisterStartCallback
    cuCoredumpRegisterCompleteCallback cuCoredumpRegisterStartCallback cuDevSmResourceSplit cuDeviceGetCliqueCount
    cuDeviceGetCliqueInfo cuDeviceGetFabricClusterUuid cuEventCreateFromEGLSync cuFabricCpyBatchAsync
    cuFabricCpyBatchAsync_ptsz cuFuncGetParamCount cuGetProcAddress_v2_ptsz cuGraphAddNode_v3 cuGraphExecGetId
    cuGraphGetId cuGraphNodeGetContainingGraph cuGraphNodeGetLocalId cuGraphNodeGetParams cuGraphNodeGetToolsId
    cuGraphNodeSetParams_v2 cuKernelGetParamCount cuLaunchHostFunc_v2 cuLaunchHostFunc_v2_ptsz
    cuLogicalEndpointAddDevice cuLogicalEndpointBindAddr cuLogicalEndpointBindMem cuLogicalEndpointCreate
    cuLogicalEndpointDestroy cuLogicalEndpointExport cuLogicalEndpointGetLimits cuLogicalEndpointIdRelease
    cuLogicalEndpointIdReserve cuLogicalEndpointImport cuLogicalEndpointQuery cuLogicalEndpointUnbind
    cuMemGetLocationInfo cuMemcpy3DWithAttributesAsync cuMemcpy3DWithAttributesAsync_ptsz
    cuMemcpyWithAttributesAsync cuMemcpyWithAttributesAsync_ptsz cuMulticastBindAddr_v2 cuMulticastBindMem_v2
    cuStreamBeginCaptureToCig cuStreamBeginCaptureToCig_ptsz cuStreamBeginRecaptureToGraph
    cuStreamBeginRecaptureToGraph_ptsz cuStreamEndCaptureToCig cuStreamEndCaptureToCig_ptsz cuStreamGetDevResource
    cuStreamGetDevResource_ptsz cuTensorMapSetAllocationClass
}
