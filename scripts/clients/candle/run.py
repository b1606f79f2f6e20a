"""Compiles candle's kernels with NVRTC and runs them on softcuda.

    run.py FOLDER

Each source file must compile and load for sm_80 and sm_90; kernels of most files are launched and
compared with NumPy. Needs NumPy, NVRTC with its headers in CUDA_PATH, and cargo, which has the
sources.
"""

import ctypes
import json
import os
import pathlib
import subprocess
import sys

import numpy as np

here = pathlib.Path(__file__).resolve().parent
sys.path.insert(0, str(here.parent))

import outcomes
from driver import CudaError, Driver

random = np.random.default_rng(3)
SIZE = ctypes.c_size_t
NULL = ctypes.c_uint64(0)


# NVRTC has no C library. These are as much of one as the sources need.
HEADERS = {
    "stdint.h": """#pragma once
typedef signed char int8_t; typedef unsigned char uint8_t;
typedef short int16_t; typedef unsigned short uint16_t;
typedef int int32_t; typedef unsigned int uint32_t;
typedef long long int64_t; typedef unsigned long long uint64_t;
typedef uint64_t uintptr_t; typedef int64_t intptr_t;
""",
    "math.h": """#pragma once
#define INFINITY __int_as_float(0x7f800000)
#define NAN __int_as_float(0x7fffffff)
#define M_PI 3.14159265358979323846
#define M_2_SQRTPI 1.12837916709551257390
#define M_SQRT1_2 0.70710678118654752440
""",
    "float.h": """#pragma once
#define FLT_MAX 3.402823466e+38f
""",
    "limits.h": """#pragma once
#define INT_MAX 2147483647
""",
    "stdio.h": "#pragma once\n",
    "stdlib.h": "#pragma once\n",
    "string.h": "#pragma once\n",
    "assert.h": "#pragma once\n",
}
HEADERS |= {f"c{name[:-2]}": f'#include "{name}"\n' for name in list(HEADERS)}


class Nvrtc:
    def __init__(self, folder):
        self.stubs = folder / "include"
        self.stubs.mkdir(parents=True, exist_ok=True)
        for name, text in HEADERS.items():
            (self.stubs / name).write_text(text)
        cuda = pathlib.Path(os.environ["CUDA_PATH"])
        self.lib = ctypes.CDLL(str(next((cuda / "lib").glob("libnvrtc.so.*"))))
        self.include = cuda / "include"

    def compile(self, path, target):
        program, size = ctypes.c_void_p(), ctypes.c_size_t()
        self.lib.nvrtcCreateProgram(
            ctypes.byref(program), path.read_bytes(), path.name.encode(), 0, None, None)
        options = [f"--gpu-architecture=compute_{target}", f"-I{path.parent}", f"-I{self.stubs}",
                   f"-I{self.include}",
                   f"-I{self.include}/cccl", f"-I{path.parent.parent}", "-std=c++17",
                   "-default-device", "-w"]
        texts = (ctypes.c_char_p * len(options))(*[option.encode() for option in options])
        code = self.lib.nvrtcCompileProgram(program, len(options), texts)
        if code:
            self.lib.nvrtcGetProgramLogSize(program, ctypes.byref(size))
            log = ctypes.create_string_buffer(size.value)
            self.lib.nvrtcGetProgramLog(program, log)
            raise RuntimeError(log.value.decode()[:600])
        self.lib.nvrtcGetPTXSize(program, ctypes.byref(size))
        text = ctypes.create_string_buffer(size.value)
        self.lib.nvrtcGetPTX(program, text)
        return text.value.decode()


def floats(*shape, type_=np.float32, low=-2.0, high=2.0):
    return random.uniform(low, high, shape).astype(type_)


class Kernels:
    """The kernels of one file, loaded."""

    def __init__(self, driver, text):
        self.driver, self.module = driver, driver.load(text)

    def __call__(self, name, out, *arguments, grid=4, block=(128, 1, 1), shared=0):
        """Launches; arrays are copied to the device, `out` stands for itself and is returned."""
        function = self.driver.function(self.module, name, shared)
        places, values = [], []
        result = None
        for argument in arguments:
            if isinstance(argument, np.ndarray):
                place = self.driver.upload(np.ascontiguousarray(argument))
                places.append(place)
                values.append(place)
                if argument is out:
                    result = place
            elif isinstance(argument, int):
                values.append(SIZE(argument))
            else:
                values.append(argument)
        self.driver.launch(function, (grid, 1, 1), block, shared, values)
        got = np.empty_like(out)
        self.driver.download(result, got)
        for place in places:
            self.driver.free(place)
        return got


def close(got, want, relative=1e-5, absolute=1e-6):
    np.testing.assert_allclose(got.astype(np.float64), np.asarray(want, np.float64),
                               rtol=relative, atol=absolute)


def shape_of(*arrays):
    """Dimensions of the first, then strides of each, in elements."""
    numbers = list(arrays[0].shape)
    for array in arrays:
        numbers += [stride // array.itemsize for stride in array.strides]
    return np.array(numbers, np.uint64)


def unary(k):
    rules = [("uexp", np.exp), ("usin", np.sin), ("ucos", np.cos), ("utanh", np.tanh),
             ("uneg", np.negative), ("usqr", np.square), ("uabs", np.abs), ("ufloor", np.floor),
             ("uceil", np.ceil), ("urelu", lambda a: np.maximum(a, 0)),
             ("usilu", lambda a: a / (1 + np.exp(-a)))]
    for name, rule in rules:
        for type_, short, close_to in [(np.float32, "f32", 1e-5), (np.float64, "f64", 1e-12),
                                       (np.float16, "f16", 3e-3)]:
            x = floats(1000, type_=type_)
            out = np.zeros_like(x)
            got = k(f"{name}_{short}", out, x.size, 1, NULL, x, out)
            close(got, rule(x.astype(np.float64)), close_to, close_to)
    x = floats(30, 50)
    out = np.zeros((50, 30), np.float32)
    turned = np.ascontiguousarray(x)
    info = shape_of(turned.T)
    got = k("ucopy_f32", out, x.size, 2, info, turned, out)
    close(got, x.T)


def binary(k):
    rules = [("badd", np.add), ("bsub", np.subtract), ("bmul", np.multiply), ("bdiv", np.divide),
             ("bmaximum", np.maximum), ("bminimum", np.minimum)]
    for name, rule in rules:
        for type_, short, close_to in [(np.float32, "f32", 1e-6), (np.float16, "f16", 2e-3)]:
            x, y = floats(700, type_=type_), floats(700, type_=type_, low=0.5)
            out = np.zeros_like(x)
            got = k(f"{name}_{short}", out, x.size, 1, NULL, x, y, out)
            close(got, rule(x.astype(np.float64), y.astype(np.float64)), close_to, close_to)
    x, row = floats(20, 30), floats(30)
    wide = np.broadcast_to(row, (20, 30))
    out = np.zeros_like(x)
    close(k("badd_f32", out, x.size, 2, shape_of(x, wide), x, row, out), x + row)
    less = np.zeros(x.size, np.uint8)
    y = floats(20, 30)
    got = k("lt_f32", less, x.size, 1, NULL, x, y, less)
    close(got, (x < y).ravel())


def affine(k):
    x = floats(500)
    out = np.zeros_like(x)
    got = k("affine_f32", out, x.size, 1, NULL, x, out, ctypes.c_float(3), ctypes.c_float(-1))
    close(got, 3 * x - 1)


def cast(k):
    x = floats(600, high=90, low=0)
    for short, type_ in [("f16", np.float16), ("f64", np.float64), ("u8", np.uint8),
                         ("u32", np.uint32), ("i64", np.int64)]:
        out = np.zeros(600, type_)
        np.testing.assert_array_equal(k(f"cast_f32_{short}", out, 600, 1, NULL, x, out),
                                      x.astype(type_))
    out = np.zeros(600, np.uint16)
    bits = x.view(np.uint32)
    want = (bits + 0x7FFF + ((bits >> 16) & 1)) >> 16
    np.testing.assert_array_equal(k("cast_f32_bf16", out, 600, 1, NULL, x, out), want)


def reduce(k):
    x = floats(12, 200)
    info = shape_of(x)
    for name, rule, type_ in [("fast_sum_f32", x.sum, np.float32),
                              ("fast_max_f32", x.max, np.float32),
                              ("fast_min_f32", x.min, np.float32),
                              ("fast_argmax_f32", x.argmax, np.uint32),
                              ("fast_argmin_f32", x.argmin, np.uint32)]:
        out = np.zeros(12, type_)
        got = k(name, out, x.size, 200, 2, info, x, out, grid=12, block=(256, 1, 1))
        close(got, rule(axis=1), 1e-5, 1e-4)
    powers = np.exp(x.astype(np.float64))
    # A warp has a row; softmax counts its threads by y.
    down, rows = {"grid": 12, "block": (1, 32, 1)}, {"grid": 12, "block": (32, 1, 1)}
    out = np.zeros_like(x)
    softmax = powers / powers.sum(1, keepdims=True)
    close(k("softmax_f32", out, x, out, ctypes.c_int(200), **down), softmax)
    half = x.astype(np.float16)
    out = np.zeros_like(half)
    close(k("softmax_f16", out, half, out, ctypes.c_int(200), **down), softmax, 5e-3, 1e-4)
    weight, bias = floats(200), floats(200)
    scale = 1 / np.sqrt((x.astype(np.float64) ** 2).mean(1, keepdims=True) + 1e-5)
    out = np.zeros_like(x)
    got = k("rmsnorm_f32", out, x, out, weight, ctypes.c_int(200), ctypes.c_int(32),
            ctypes.c_float(1e-5), **rows)
    close(got, x * scale * weight, 1e-4, 1e-5)
    unit = (x - x.mean(1, keepdims=True)) / np.sqrt(x.var(1, keepdims=True) + 1e-5)
    got = k("layernorm_f32", out, x, out, weight, bias, ctypes.c_int(200), ctypes.c_int(32),
            ctypes.c_float(1e-5), **rows)
    close(got, unit * weight + bias, 1e-4, 1e-4)


def ternary(k):
    pick = random.integers(0, 2, 400).astype(np.uint8)
    x, y, out = floats(400), floats(400), np.zeros(400, np.float32)
    flat = np.array([400, 1, 1, 1], np.uint64)
    got = k("where_u8_f32", out, 400, 1, flat, pick, x, y, out)
    close(got, np.where(pick, x, y))


def indexing(k):
    x, rows = floats(20, 33), random.integers(0, 20, 15).astype(np.uint32)
    out = np.zeros((15, 33), np.float32)
    got = k("is_u32_f32", out, out.size, 1, np.array([15, 1], np.uint64), rows, x, out, 1, 20, 15,
            33)
    close(got, x[rows])


def fill(k):
    out = np.zeros(300, np.float32)
    got = k("fill_f32", out, out, ctypes.c_float(2.5), 300)
    close(got, np.full(300, 2.5))


def conv(k):
    image, weight = floats(2, 3, 9, 10), floats(4, 3, 3, 3)
    padded = np.pad(image, ((0, 0), (0, 0), (1, 1), (1, 1))).astype(np.float64)
    want = np.zeros((2, 4, 9, 10))
    for r in range(3):
        for c in range(3):
            part = padded[:, :, r:r + 9, c:c + 10]
            want += np.einsum("nchw,oc->nohw", part, weight[:, :, r, c])
    out = np.zeros((2, 4, 9, 10), np.float32)
    info = np.concatenate([shape_of(image), shape_of(weight)])
    got = k("conv2d_f32", out, image.size, 10, 9, 1, 1, 1, info, image, weight, out, grid=6)
    close(got, want, 1e-4, 1e-4)


def sort(k):
    x = floats(5, 100)
    out = np.zeros((5, 100), np.uint32)
    got = k("asort_asc_f32", out, x, out, ctypes.c_int(100), ctypes.c_int(128), grid=5,
            block=(128, 1, 1), shared=512)
    np.testing.assert_array_equal(np.take_along_axis(x, got.astype(np.int64), 1), np.sort(x, 1))


def quantized(k):
    """A block of 32 weights of four bits (q4_0): a half, then 16 bytes with two weights each."""
    blocks = 64
    scales = floats(blocks, type_=np.float16)
    nibbles = random.integers(0, 16, (blocks, 32))
    packed = (nibbles[:, :16] | nibbles[:, 16:] << 4).astype(np.uint8)
    raw = np.concatenate([scales.view(np.uint8).reshape(blocks, 2), packed], axis=1)
    out = np.zeros(blocks * 32, np.float32)
    got = k("dequantize_block_q4_0_f32", out, raw, out, ctypes.c_int(blocks), grid=blocks // 8,
            block=(32, 1, 1))
    close(got, ((nibbles - 8) * scales.astype(np.float32)[:, None]).ravel(), 1e-6, 1e-6)


CHECKS = [unary, binary, affine, cast, reduce, ternary, indexing, fill, conv, sort, quantized]


def alone(path):
    """Loads one PTX file and does its checks, in a process that does nothing else.

    Returns the exit status.
    """
    checks = {check.__name__: check for check in CHECKS}
    try:
        kernels = Kernels(Driver(), path.read_text())
        checks.get(path.name.split(".")[0], lambda kernels: None)(kernels)
    except (AssertionError, CudaError) as error:
        print("\n".join(str(error).splitlines()[:6]))
        return 1
    return 0


def main():
    if sys.argv[1] == "--alone":
        sys.exit(alone(pathlib.Path(sys.argv[2])))
    folder = pathlib.Path(sys.argv[1])
    metadata = json.loads(subprocess.run(
        ["cargo", "metadata", "--locked", "--format-version", "1", "--manifest-path",
         str(here / "Cargo.toml")], check=True, capture_output=True).stdout)
    package = next(each for each in metadata["packages"] if each["name"] == "candle-kernels")
    sources = pathlib.Path(package["manifest_path"]).parent / "src"
    nvrtc, results = Nvrtc(folder), {}
    # Each in a process of its own: a kernel that fails takes the device from its process.
    for path in sorted(sources.glob("*.cu")):
        for target in [80, 90]:
            name = f"{path.stem}.sm_{target}"
            try:
                text = nvrtc.compile(path, target)
            except RuntimeError as error:
                results[name] = ("skipped", f"NVRTC does not compile it: {error}")
                continue
            file = folder / "ptx" / f"{name}.ptx"
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_text(text)
            results[name] = outcomes.of([sys.executable, __file__, "--alone", str(file)], 300)
            print(name, results[name][0], flush=True)
    for name, (outcome, detail) in results.items():
        if outcome == "skipped":
            print(f"SKIPPED {name}: {' '.join(detail.split())[:200]}")
    outcomes.finish("candle", results, folder, here / "expected.txt")


main()
