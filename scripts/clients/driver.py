"""As much of the CUDA driver's C interface as the scripts need, through ctypes."""

import ctypes
import os

LOG, LOG_SIZE = 5, 6  # CU_JIT_ERROR_LOG_BUFFER and its _SIZE_BYTES
SHARED_SIZE = 8  # CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES


class CudaError(Exception):
    """A driver call that did not answer CUDA_SUCCESS."""

    def __init__(self, call, name, log=""):
        super().__init__(f"{call}: {name}" + (f"\n{log}" if log else ""))
        self.name, self.log = name, log


class Driver:
    """Device 0 with its primary context current on this thread."""

    def __init__(self):
        self.lib = ctypes.CDLL(os.environ.get("LIBCUDA", "libcuda.so.1"))
        self.call("cuInit", 0)
        self.device = ctypes.c_int()
        self.call("cuDeviceGet", ctypes.byref(self.device), 0)
        context = ctypes.c_void_p()
        self.call("cuDevicePrimaryCtxRetain", ctypes.byref(context), self.device)
        self.call("cuCtxSetCurrent", context)

    def call(self, function, *arguments):
        code = getattr(self.lib, function)(*arguments)
        if code:
            name = ctypes.c_char_p()
            self.lib.cuGetErrorName(code, ctypes.byref(name))
            raise CudaError(function, (name.value or str(code).encode()).decode())

    def load(self, ptx):
        """Loads PTX text. A refusal carries the JIT's log."""
        log = ctypes.create_string_buffer(1 << 20)
        options = (ctypes.c_int * 2)(LOG, LOG_SIZE)
        values = (ctypes.c_void_p * 2)(ctypes.addressof(log), len(log))
        module = ctypes.c_void_p()
        try:
            self.call("cuModuleLoadDataEx", ctypes.byref(module), ptx.encode(), 2, options, values)
        except CudaError as error:
            raise CudaError("cuModuleLoadDataEx", error.name, log.value.decode()) from None
        return module

    def function(self, module, name, shared=0):
        """Finds a kernel, and lets it have `shared` bytes of dynamic shared memory."""
        function = ctypes.c_void_p()
        self.call("cuModuleGetFunction", ctypes.byref(function), module, name.encode())
        if shared > 48 * 1024:
            self.call("cuFuncSetAttribute", function, SHARED_SIZE, shared)
        return function

    def launch(self, function, grid, block, shared, arguments):
        """Launches with ctypes values, and waits for the end."""
        pointers = (ctypes.c_void_p * len(arguments))(*map(ctypes.addressof, arguments))
        self.call("cuLaunchKernel", function, *grid, *block, shared, None, pointers, None)
        self.call("cuCtxSynchronize")

    def upload(self, array):
        """Copies a NumPy array to new device memory, and returns its address."""
        address = ctypes.c_uint64()
        self.call("cuMemAlloc_v2", ctypes.byref(address), ctypes.c_size_t(max(array.nbytes, 1)))
        self.call("cuMemcpyHtoD_v2", address, ctypes.c_void_p(array.ctypes.data),
                  ctypes.c_size_t(array.nbytes))
        return address

    def download(self, address, array):
        self.call("cuMemcpyDtoH_v2", ctypes.c_void_p(array.ctypes.data), address,
                  ctypes.c_size_t(array.nbytes))

    def free(self, address):
        self.call("cuMemFree_v2", address)
