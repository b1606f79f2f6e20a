"""cuda.bindings: whether it finds each driver function, and calls that answer as a driver does."""

import ctypes
import unittest

import numpy as np
from cuda.bindings import driver, nvrtc

# For displays and for video: a driver without them has none.
GRAPHICS = ("cuEGL", "cuGL", "cuGraphicsEGL", "cuGraphicsGL", "cuGraphicsVDPAU", "cuVDPAU",
            "cuEventCreateFromEGL", "cuGraphicsResourceGetMappedEgl")


def ok(result):
    code, *values = result
    if int(code) != 0:
        raise AssertionError(driver.cuGetErrorName(code)[1].decode())
    return values[0] if len(values) == 1 else values


def code(result):
    return driver.CUresult(int(result[0])).name.removeprefix("CUDA_").removeprefix("ERROR_")


class TestFunctions(unittest.TestCase):
    def test_every_function_is_there(self):
        """The environment has the bindings of CUDA 13.0, as old as the driver."""
        ok(driver.cuInit(0))
        names = [name for name in dir(driver) if name.startswith("cu") and name[2].isupper()]
        names = [name for name in names if callable(getattr(driver, name))
                 and not isinstance(getattr(driver, name), type)
                 and not name.startswith(GRAPHICS)]
        self.assertGreater(len(names), 400)
        missing = [name for name in names
                   if int(driver.cuGetProcAddress(name.encode(), 13000, 0)[0]) != 0]
        self.assertEqual(missing, [])


class Case(unittest.TestCase):
    def setUp(self):
        ok(driver.cuInit(0))
        self.device = ok(driver.cuDeviceGet(0))
        self.context = ok(driver.cuDevicePrimaryCtxRetain(self.device))
        ok(driver.cuCtxSetCurrent(self.context))

    def tearDown(self):
        ok(driver.cuCtxSynchronize())
        ok(driver.cuDevicePrimaryCtxRelease(self.device))


class TestCalls(Case):
    def test_version(self):
        self.assertEqual(ok(driver.cuDriverGetVersion()), 13000)

    def test_every_attribute(self):
        for attribute in driver.CUdevice_attribute:
            if attribute.value >= int(driver.CUdevice_attribute.CU_DEVICE_ATTRIBUTE_MAX):
                continue
            with self.subTest(attribute=attribute.name):
                result = driver.cuDeviceGetAttribute(attribute, self.device)
                self.assertEqual(code(result), "SUCCESS")

    def test_errors(self):
        self.assertEqual(code(driver.cuDeviceGet(99)), "INVALID_DEVICE")
        self.assertEqual(code(driver.cuMemAlloc(0)), "INVALID_VALUE")
        self.assertEqual(code(driver.cuModuleLoadData(b"no code\0")), "INVALID_IMAGE")
        name = ok(driver.cuGetErrorName(driver.CUresult.CUDA_ERROR_INVALID_PTX))
        self.assertEqual(name, b"CUDA_ERROR_INVALID_PTX")
        self.assertTrue(ok(driver.cuGetErrorString(driver.CUresult.CUDA_ERROR_INVALID_PTX)))

    def test_limits(self):
        for limit in [driver.CUlimit.CU_LIMIT_STACK_SIZE, driver.CUlimit.CU_LIMIT_PRINTF_FIFO_SIZE,
                      driver.CUlimit.CU_LIMIT_MALLOC_HEAP_SIZE]:
            self.assertGreater(ok(driver.cuCtxGetLimit(limit)), 0)
        ok(driver.cuCtxSetLimit(driver.CUlimit.CU_LIMIT_STACK_SIZE, 4096))
        self.assertGreaterEqual(ok(driver.cuCtxGetLimit(driver.CUlimit.CU_LIMIT_STACK_SIZE)), 4096)

    def test_contexts(self):
        other = ok(driver.cuCtxCreate(None, 0, self.device))
        self.assertEqual(int(ok(driver.cuCtxGetCurrent())), int(other))
        ok(driver.cuCtxPopCurrent())
        ok(driver.cuCtxDestroy(other))

    def test_memory(self):
        at = ok(driver.cuMemAlloc(1024))
        ok(driver.cuMemsetD32(at, 7, 256))
        out = np.zeros(256, np.int32)
        ok(driver.cuMemcpyDtoH(out.ctypes.data, at, 1024))
        self.assertTrue((out == 7).all())
        base, size = ok(driver.cuMemGetAddressRange(int(at) + 100))
        self.assertEqual((int(base), size), (int(at), 1024))
        kind = driver.CUpointer_attribute.CU_POINTER_ATTRIBUTE_MEMORY_TYPE
        self.assertEqual(ok(driver.cuPointerGetAttribute(kind, at)),
                         driver.CUmemorytype.CU_MEMORYTYPE_DEVICE)
        ok(driver.cuMemFree(at))

    def test_2d_copy(self):
        x = np.arange(32 * 8, dtype=np.int32).reshape(8, 32)
        at, pitch = ok(driver.cuMemAllocPitch(16 * 4, 8, 4))
        copy = driver.CUDA_MEMCPY2D()
        copy.srcMemoryType = driver.CUmemorytype.CU_MEMORYTYPE_HOST
        copy.srcHost, copy.srcPitch, copy.srcXInBytes = x.ctypes.data, 128, 32
        copy.dstMemoryType = driver.CUmemorytype.CU_MEMORYTYPE_DEVICE
        copy.dstDevice, copy.dstPitch = at, pitch
        copy.WidthInBytes, copy.Height = 64, 8
        ok(driver.cuMemcpy2D(copy))
        out = np.zeros((8, pitch // 4), np.int32)
        ok(driver.cuMemcpyDtoH(out.ctypes.data, at, out.nbytes))
        np.testing.assert_array_equal(out[:, :16], x[:, 8:24])
        ok(driver.cuMemFree(at))

    def test_virtual_memory(self):
        wish = driver.CUmemAllocationProp()
        wish.type = driver.CUmemAllocationType.CU_MEM_ALLOCATION_TYPE_PINNED
        wish.location.type = driver.CUmemLocationType.CU_MEM_LOCATION_TYPE_DEVICE
        flag = driver.CUmemAllocationGranularity_flags.CU_MEM_ALLOC_GRANULARITY_MINIMUM
        size = ok(driver.cuMemGetAllocationGranularity(wish, flag))
        at = ok(driver.cuMemAddressReserve(2 * size, 0, 0, 0))
        piece = ok(driver.cuMemCreate(size, wish, 0))
        ok(driver.cuMemMap(at, size, 0, piece, 0))
        access = driver.CUmemAccessDesc()
        access.location = wish.location
        access.flags = driver.CUmemAccess_flags.CU_MEM_ACCESS_FLAGS_PROT_READWRITE
        ok(driver.cuMemSetAccess(at, size, [access], 1))
        ok(driver.cuMemsetD8(at, 3, size))
        ok(driver.cuMemUnmap(at, size))
        ok(driver.cuMemRelease(piece))
        ok(driver.cuMemAddressFree(at, 2 * size))

    def test_pool(self):
        stream = ok(driver.cuStreamCreate(0))
        pool = ok(driver.cuDeviceGetDefaultMemPool(self.device))
        at = ok(driver.cuMemAllocFromPoolAsync(4096, pool, stream))
        ok(driver.cuMemsetD8Async(at, 1, 4096, stream))
        ok(driver.cuMemFreeAsync(at, stream))
        ok(driver.cuStreamSynchronize(stream))
        kind = driver.CUmemPool_attribute.CU_MEMPOOL_ATTR_RELEASE_THRESHOLD
        ok(driver.cuMemPoolGetAttribute(pool, kind))
        ok(driver.cuStreamDestroy(stream))

    def test_array(self):
        wish = driver.CUDA_ARRAY_DESCRIPTOR()
        wish.Width, wish.Height, wish.NumChannels = 16, 16, 1
        wish.Format = driver.CUarray_format.CU_AD_FORMAT_FLOAT
        ok(driver.cuArrayDestroy(ok(driver.cuArrayCreate(wish))))

    def test_event_ipc(self):
        flags = driver.CUevent_flags.CU_EVENT_DISABLE_TIMING | \
            driver.CUevent_flags.CU_EVENT_INTERPROCESS
        event = ok(driver.cuEventCreate(int(flags)))
        ok(driver.cuIpcGetEventHandle(event))


class TestKernels(Case):
    def compile(self, source, *options):
        program = ok(nvrtc.nvrtcCreateProgram(source.encode(), b"test.cu", 0, None, None))
        options = [b"--gpu-architecture=sm_90", *options]
        ok(nvrtc.nvrtcCompileProgram(program, len(options), options))
        text = b" " * ok(nvrtc.nvrtcGetPTXSize(program))
        ok(nvrtc.nvrtcGetPTX(program, text))
        return text

    def test_kernel_arguments(self):
        text = self.compile("""
            struct Pair { char small; double wide; };
            extern "C" __global__ void f(double* out, bool a, short b, int c, long long d, float e,
                                         double g, Pair h) {
                out[0] = a; out[1] = b; out[2] = c; out[3] = d; out[4] = e; out[5] = g;
                out[6] = h.small; out[7] = h.wide;
            }""")
        kernel = ok(driver.cuModuleGetFunction(ok(driver.cuModuleLoadData(text)), b"f"))
        at = ok(driver.cuMemAlloc(64))

        class Pair(ctypes.Structure):
            _fields_ = [("small", ctypes.c_char), ("wide", ctypes.c_double)]

        values = (at, True, -2, 3, -4, 5.5, 6.25, Pair(b"\7", 8.125))
        types = (None, ctypes.c_bool, ctypes.c_short, ctypes.c_int, ctypes.c_longlong,
                 ctypes.c_float, ctypes.c_double, None)
        ok(driver.cuLaunchKernel(kernel, 1, 1, 1, 1, 1, 1, 0, 0, (values, types), 0))
        out = np.zeros(8)
        ok(driver.cuMemcpyDtoH(out.ctypes.data, at, 64))
        np.testing.assert_array_equal(out, [1, -2, 3, -4, 5.5, 6.25, 7, 8.125])
        ok(driver.cuMemFree(at))

    def test_globals(self):
        text = self.compile('extern "C" { __device__ int word = 5; __constant__ float four[4]; }')
        module = ok(driver.cuModuleLoadData(text))
        at, size = ok(driver.cuModuleGetGlobal(module, b"word"))
        out = np.zeros(1, np.int32)
        ok(driver.cuMemcpyDtoH(out.ctypes.data, at, size))
        self.assertEqual((size, out[0]), (4, 5))
        self.assertEqual(ok(driver.cuModuleGetGlobal(module, b"four"))[1], 16)
        self.assertEqual(code(driver.cuModuleGetGlobal(module, b"none")), "NOT_FOUND")

    def test_library(self):
        text = self.compile('extern "C" __global__ void f() {}')
        library = ok(driver.cuLibraryLoadData(text, [], [], 0, [], [], 0))
        self.assertEqual(ok(driver.cuLibraryGetKernelCount(library)), 1)
        kernel = ok(driver.cuLibraryGetKernel(library, b"f"))
        self.assertEqual(ok(driver.cuKernelGetName(kernel)), b"f")
        ok(driver.cuKernelGetFunction(kernel))
        ok(driver.cuLibraryUnload(library))

    def test_no_cubins(self):
        program = ok(nvrtc.nvrtcCreateProgram(b'extern "C" __global__ void f() {}', b"f.cu", 0,
                                              None, None))
        ok(nvrtc.nvrtcCompileProgram(program, 1, [b"--gpu-architecture=sm_90"]))
        cubin = b" " * ok(nvrtc.nvrtcGetCUBINSize(program))
        ok(nvrtc.nvrtcGetCUBIN(program, cubin))
        # A GPU takes it. Software has no use for machine code, and says so.
        self.assertIn(code(driver.cuModuleLoadData(cubin)), ["SUCCESS", "NO_BINARY_FOR_GPU"])

    def test_tensor_map(self):
        at = ok(driver.cuMemAlloc(64 * 64 * 2))
        kind = driver.CUtensorMapDataType.CU_TENSOR_MAP_DATA_TYPE_FLOAT16
        numbers = [[driver.cuuint64_t(n) for n in (64, 64)], [driver.cuuint64_t(128)],
                   [driver.cuuint32_t(n) for n in (32, 32)],
                   [driver.cuuint32_t(n) for n in (1, 1)]]
        ok(driver.cuTensorMapEncodeTiled(
            kind, 2, at, *numbers,
            driver.CUtensorMapInterleave.CU_TENSOR_MAP_INTERLEAVE_NONE,
            driver.CUtensorMapSwizzle.CU_TENSOR_MAP_SWIZZLE_64B,
            driver.CUtensorMapL2promotion.CU_TENSOR_MAP_L2_PROMOTION_NONE,
            driver.CUtensorMapFloatOOBfill.CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE))
        ok(driver.cuMemFree(at))


if __name__ == "__main__":
    unittest.main()
