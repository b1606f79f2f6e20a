"""Compiles products made of CUTLASS's templates, launches them, and compares with NumPy.

    run.py FOLDER

FOLDER takes what is compiled. Needs nvcc and a C++ compiler. Each kernel is compiled to PTX, and
the host's part, which works out parameter and size of a launch, to a library beside it: CUTLASS's
own launcher needs NVIDIA's runtime library.
"""

import ctypes
import os
import pathlib
import subprocess
import sys

import cutlass_library
import numpy as np
import nvidia.cu13

here = pathlib.Path(__file__).resolve().parent
sys.path.insert(0, str(here.parent))

import outcomes
from driver import CudaError, Driver
from floats import from_bf16, from_f8, to_bf16

LIMIT = 240  # seconds a case may take
CLUSTER = 4  # CU_LAUNCH_ATTRIBUTE_CLUSTER_DIMENSION
random = np.random.default_rng(7)

# For each target and kernel: types and orders of A and B, type of C, and the error that is allowed
# for each unit of the greatest result.
PRODUCTS = {
    "sm_80": {
        "halves": ("f16", "row", "f16", "column", "f16", 1e-3),
        "bfloats": ("bf16", "column", "bf16", "row", "f32", 1e-5),
        "singles": ("f32", "row", "f32", "row", "f32", 2e-3),  # rounded to tf32
        "bytes": ("s8", "row", "s8", "column", "s32", 0),
    },
    "sm_90": {
        "halves": ("f16", "row", "f16", "column", "f16", 1e-3),
        "small": ("e4m3", "row", "e5m2", "column", "bf16", 1e-2),
        "bfloats": ("bf16", "column", "bf16", "row", "f32", 1e-5),
    },
}
SIZES = [(256, 256, 128), (200, 136, 208), (128, 384, 1024)]


class Problem(ctypes.Structure):
    _fields_ = ([(name, ctypes.c_int) for name in "mnk"] + [(name, ctypes.c_void_p) for name in "abcd"]
                + [("alpha", ctypes.c_float), ("beta", ctypes.c_float)])


class Launch(ctypes.Structure):
    _fields_ = [("grid", ctypes.c_int * 3), ("threads", ctypes.c_int), ("shared", ctypes.c_int),
                ("cluster", ctypes.c_int * 3), ("bytes", ctypes.c_int),
                ("before_parameter", ctypes.c_byte * 92), ("parameter", ctypes.c_byte * 4096)]


class Attribute(ctypes.Structure):
    _fields_ = [("id", ctypes.c_int), ("pad", ctypes.c_int), ("value", ctypes.c_uint * 16)]


class Config(ctypes.Structure):
    _fields_ = [("grid", ctypes.c_uint * 3), ("block", ctypes.c_uint * 3), ("shared", ctypes.c_uint),
                ("stream", ctypes.c_void_p), ("attributes", ctypes.c_void_p), ("count", ctypes.c_uint)]


def compile(folder):
    """Compiles each source to PTX and to a library."""
    root = pathlib.Path(nvidia.cu13.__path__[0])
    source = pathlib.Path(cutlass_library.__path__[0]) / "source"
    nvcc = [root / "bin/nvcc", "-std=c++17", "-w", "--expt-relaxed-constexpr",
            "-DCUTLASS_ENABLE_DIRECT_CUDA_DRIVER_CALL",
            f"-I{source / 'include'}", f"-I{source / 'tools/util/include'}"]
    folder.mkdir(parents=True, exist_ok=True)
    stub = folder / "registration.o"
    subprocess.run(["cc", "-c", "-fPIC", here / "registration.c", "-o", stub], check=True)
    for target in PRODUCTS:
        architecture = "-arch=" + {"sm_90": "sm_90a"}.get(target, target)
        file = here / f"{target}.cu"
        host = ["-O1", "-cudart", "none", "-shared", "-Xcompiler", "-fPIC", stub]
        subprocess.run([*nvcc, architecture, "-ptx", file, "-o", folder / f"{target}.ptx"], check=True)
        subprocess.run([*nvcc, architecture, *host, file, "-o", folder / f"{target}.so"], check=True)


def matrix(kind, *shape):
    """A matrix as it lies in memory, and its values."""
    if kind in ("s8", "s32"):
        values = random.integers(-128, 128, shape)
        return values.astype({"s8": np.int8, "s32": np.int32}[kind]), values.astype(np.float64)
    if kind in ("e4m3", "e5m2"):
        exponent, mantissa = int(kind[1]), int(kind[3])
        bias = (1 << (exponent - 1)) - 1
        bits = random.integers((bias - 4) << mantissa, (bias + 1) << mantissa, shape)
        bits = (bits | random.integers(0, 2, shape) << 7).astype(np.uint8)
        return bits, from_f8(bits, exponent, mantissa).astype(np.float64)
    values = random.uniform(-2, 2, shape)
    if kind == "bf16":
        values = to_bf16(values)
        return values, from_bf16(values).astype(np.float64)
    values = values.astype({"f16": np.float16, "f32": np.float32}[kind])
    return values, values.astype(np.float64)


def run(driver, folder, target, name, size):
    """Runs a product, and returns what is wrong with the result."""
    of_a, order_a, of_b, order_b, of_c, error = PRODUCTS[target][name]
    m, n, k = size
    (a, left), (b, right), (c, sums) = matrix(of_a, m, k), matrix(of_b, k, n), matrix(of_c, m, n)
    beta = 1.0 if of_c == "s32" else 0.5
    places = [driver.upload(np.ascontiguousarray(array)) for array in (
        a if order_a == "row" else a.T, b if order_b == "row" else b.T, c, np.zeros_like(c))]
    host = ctypes.CDLL(folder / f"{target}.so", mode=os.RTLD_LAZY)
    room = ctypes.create_string_buffer(ctypes.sizeof(Launch) + 128)
    launch = Launch.from_buffer(room, -ctypes.addressof(room) % 128)
    problem = Problem(m, n, k, *[place.value for place in places], 1.0, beta)
    getattr(host, f"prepare_{name}")(ctypes.byref(problem), ctypes.byref(launch))
    module = driver.load((folder / f"{target}.ptx").read_text())
    function = driver.function(module, name, launch.shared)
    cluster = Attribute(CLUSTER, 0, (ctypes.c_uint * 16)(*launch.cluster))
    config = Config((ctypes.c_uint * 3)(*launch.grid), (ctypes.c_uint * 3)(launch.threads, 1, 1), launch.shared,
                    None, ctypes.addressof(cluster), 1 if max(launch.cluster) > 1 else 0)
    parameters = (ctypes.c_void_p * 1)(ctypes.addressof(launch) + Launch.parameter.offset)
    driver.call("cuLaunchKernelEx", ctypes.byref(config), function, parameters, None)
    driver.call("cuCtxSynchronize")
    got = np.empty_like(c)
    driver.download(places[3], got)
    got = from_bf16(got) if of_c == "bf16" else got
    want = left @ right + beta * sums
    wrong = np.abs(got - want).max()
    return "" if wrong <= error * np.abs(want).max() else f"off by {wrong} of {np.abs(want).max()}"


def alone(folder, target, name, size):
    """Runs one case, in a process that does nothing else. Returns the exit status."""
    try:
        # CUTLASS's functions call the driver by its names.
        ctypes.CDLL(os.environ.get("LIBCUDA", "libcuda.so.1"), mode=ctypes.RTLD_GLOBAL)
        wrong = run(Driver(), folder, target, name, size)
    except CudaError as error:
        wrong = "\n".join(str(error).splitlines()[:4])
    print(wrong)
    return 1 if wrong else 0


def main():
    if sys.argv[1] == "--alone":
        folder, target, name, *size = sys.argv[2:]
        sys.exit(alone(pathlib.Path(folder), target, name, tuple(map(int, size))))
    folder = pathlib.Path(sys.argv[1])
    compile(folder)
    results = {}
    # Each in a process of its own: a kernel that fails takes the device from its process.
    for target, products in PRODUCTS.items():
        for name in products:
            for size in SIZES:
                size = list(map(str, size))
                case = f"{target}.{name}.{'x'.join(size)}"
                command = [sys.executable, __file__, "--alone", str(folder), target, name, *size]
                results[case] = outcomes.of(command, LIMIT)
                print(case, results[case][0], flush=True)
    outcomes.finish("cutlass", results, folder, here / "expected.txt")


if __name__ == "__main__":
    main()
