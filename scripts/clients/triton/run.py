"""Launches what `compile.py` made, and compares with NumPy.

    run.py FOLDER [TEXT]

runs the cases in FOLDER whose names have the text. Needs NumPy and the driver, not Triton.
"""

import ctypes
import json
import pathlib
import sys

import numpy as np

here = pathlib.Path(__file__).resolve().parent
sys.path.insert(0, str(here.parent))

import outcomes
from driver import CudaError, Driver
from floats import from_bf16, from_f8, to_bf16

LIMIT = 120  # seconds a case may take
random = np.random.default_rng(5)
SCALARS = {"i32": ctypes.c_int32, "fp32": ctypes.c_float}


def normal(*shape):
    return random.standard_normal(shape).astype(np.float32)


def to_tf32(x):
    """Cuts to the 10 bits of mantissa that a tensor core reads."""
    return (x.view(np.uint32) & 0xFFFFE000).view(np.float32)


def softmax_of(x):
    powers = np.exp(x - x.max(axis=-1, keepdims=True))
    return powers / powers.sum(axis=-1, keepdims=True)


class Launch:
    """Arguments by name, a grid, and what outputs must be: `name: (array, relative, absolute)`."""

    def __init__(self, grid, arguments, expected, scratch=0):
        self.grid, self.arguments, self.expected = grid, arguments, expected


def add(case):
    count = 5000
    x, y = normal(count), normal(count)
    return Launch((-(-count // 1024), 1, 1), {"x_ptr": x, "y_ptr": y,
                  "out_ptr": np.zeros_like(x), "count": count}, {"out_ptr": (x + y, 0, 0)})


def softmax(case):
    half = case["name"].endswith("f16")
    type_ = np.float16 if half else np.float32
    rows, columns, stride = 13, 500 if half else 781, 512 if half else 1024
    x = normal(rows, stride).astype(type_)
    want = np.zeros_like(x)
    want[:, :columns] = softmax_of(x[:, :columns].astype(np.float32)).astype(type_)
    tolerance = (2e-3, 1e-5) if half else (1e-5, 1e-8)
    arguments = {"x_ptr": x, "out_ptr": np.zeros_like(x), "stride": stride, "columns": columns,
                 "rows": rows}
    grid = 3 if case["name"] == "softmax_rows" else rows
    return Launch((grid, 1, 1), arguments, {"out_ptr": (want, *tolerance)})


def layer_norm(case):
    half = case["name"].endswith("f16")
    type_ = np.float16 if half else np.float32
    rows, columns = 9, 1000
    x = (normal(rows, columns) * 3 + 1).astype(type_)
    weight, bias = normal(columns).astype(type_), normal(columns).astype(type_)
    wide = x.astype(np.float64)
    mean, scale = wide.mean(axis=1), 1 / np.sqrt(wide.var(axis=1) + 1e-5)
    want = (wide - mean[:, None]) * scale[:, None] * weight + bias
    tolerance = (2e-3, 2e-3) if half else (1e-5, 1e-5)
    zeros = np.zeros(rows, np.float32)
    return Launch((rows, 1, 1), {
        "x_ptr": x, "weight_ptr": weight, "bias_ptr": bias, "out_ptr": np.zeros_like(x),
        "mean_ptr": zeros, "scale_ptr": zeros, "columns": columns, "epsilon": 1e-5,
    }, {"out_ptr": (want, *tolerance), "mean_ptr": (mean, 1e-5, 1e-5),
        "scale_ptr": (scale, 1e-5, 1e-5)})


def layer_norm_backward(case):
    rows, columns = 11, 400
    dy, x, weight = normal(rows, columns), normal(rows, columns), normal(columns)
    mean, scale = x.mean(axis=1), 1 / np.sqrt(x.var(axis=1) + 1e-5)
    unit = (x - mean[:, None]) * scale[:, None]
    slope = weight * dy
    along = (unit * slope).mean(axis=1, keepdims=True)
    dx = (slope - unit * along - slope.mean(axis=1, keepdims=True)) * scale[:, None]
    return Launch((rows, 1, 1), {
        "dy_ptr": dy, "x_ptr": x, "weight_ptr": weight, "mean_ptr": mean, "scale_ptr": scale,
        "dx_ptr": np.zeros_like(x), "dweight_ptr": np.zeros(columns, np.float32),
        "columns": columns,
    }, {"dx_ptr": (dx, 1e-4, 1e-5), "dweight_ptr": ((dy * unit).sum(axis=0), 1e-4, 1e-4)})


def operands(type_, shape):
    """Random values of a type, and the same as float64."""
    if type_ == "*bf16":
        bits = to_bf16(normal(*shape))
        return bits, from_bf16(bits).astype(np.float64)
    if type_ in ("*fp8e4nv", "*fp8e5"):
        exponent, mantissa = (4, 3) if type_ == "*fp8e4nv" else (5, 2)
        top = random.integers(0, 0x48 if exponent == 4 else 0x44, shape)
        bits = (top | random.choice([0, 0x80], shape)).astype(np.uint8)
        return bits, from_f8(bits, exponent, mantissa).astype(np.float64)
    if type_ == "*i8":
        x = random.integers(-128, 128, shape).astype(np.int8)
        return x, x.astype(np.float64)
    x = random.standard_normal(shape).astype(
        {"*fp16": np.float16, "*fp32": np.float32, "*fp64": np.float64}[type_])
    return x, x.astype(np.float64)


def matmul(case):
    types, tile = dict(case["arguments"]), case["constants"]
    m, n, k = 150, 112, 160
    if case["name"] == "matmul_f16_large":
        m, n, k = 300, 272, 192
    a, wide_a = operands(types["a_ptr"], (m, k))
    b, wide_b = operands(types["b_ptr"], (k, n))
    precision = tile["PRECISION"]
    if precision == "tf32":
        wide_a, wide_b = to_tf32(a).astype(np.float64), to_tf32(b).astype(np.float64)
    want = wide_a @ wide_b
    if tile["RELU"]:
        want = np.where(want > 0, want, 0.01 * want)
    out = types["c_ptr"]
    # Sums are exact up to this much of the sum of what is added.
    size = np.abs(wide_a) @ np.abs(wide_b)
    close = {"*fp64": 1e-14, "*i32": 0, "*fp32": 1e-6, "*fp16": 1e-6, "*bf16": 1e-6}[out]
    if case["name"] == "matmul_f16_in_f16":
        close = 2e-3
    if "fp8" in types["a_ptr"]:
        close = 1e-3  # the tensor core of sm_90 keeps 14 bits of a sum of small floats
    rounding = {"*fp16": 2.0 ** -11, "*bf16": 2.0 ** -8}.get(out, 0)
    c = np.zeros((m, n), {"*fp64": np.float64, "*i32": np.int32, "*fp32": np.float32,
                          "*fp16": np.float16, "*bf16": np.uint16}[out])
    grid = -(-m // tile["BM"]) * -(-n // tile["BN"])
    arguments = {"a_ptr": a, "b_ptr": b, "c_ptr": c, "m": m, "n": n, "k": k, "lda": k, "ldb": n,
                 "ldc": n}
    return Launch((grid, 1, 1), arguments,
                  {"c_ptr": (want, rounding, close * size + (1e-7 if rounding else 0))})


def matmul_split(case):
    m, n, k = 64, 96, 128
    a, b = normal(m, k).astype(np.float16), normal(k, n).astype(np.float16)
    want = a.astype(np.float64) @ b.astype(np.float64)
    return Launch((m // 32, n // 32, 2), {"a_ptr": a, "b_ptr": b, "n": n, "k": k,
                  "c_ptr": np.zeros((m, n), np.float32)}, {"c_ptr": (want, 1e-5, 1e-4)})


def matmul_descriptors(case):
    m, n, k = 160, 128, 192
    a, b = normal(m, k).astype(np.float16), normal(k, n).astype(np.float16)
    want = a.astype(np.float64) @ b.astype(np.float64)
    grid = (-(-m // 64), -(-n // 64), 1)
    return Launch(grid, {"a_ptr": a, "b_ptr": b, "m": m, "n": n, "k": k,
                  "c_ptr": np.zeros((m, n), np.float16)}, {"c_ptr": (want, 1e-3, 1e-3)})


def attention(case):
    tile, type_ = case["constants"], dict(case["arguments"])["q_ptr"]
    heads, length, size = 3, 256, tile["HEAD"]
    (q, wide_q), (k, wide_k), (v, wide_v) = (
        operands(type_, (heads, length, size)) for _ in range(3))
    scale = np.float32(size ** -0.5)
    scores = wide_q @ wide_k.transpose(0, 2, 1) * scale
    if tile["CAUSAL"]:
        scores = np.where(np.tril(np.ones((length, length), bool)), scores, -np.inf)
    most = scores.max(axis=-1)
    logs = (most + np.log(np.exp(scores - most[..., None]).sum(axis=-1))) / np.log(2)
    want = softmax_of(scores) @ wide_v
    tolerance = {"*bf16": (2e-2, 2e-2), "*fp16": (4e-3, 4e-3), "*fp32": (3e-3, 3e-3)}[type_]
    return Launch((length // tile["BM"], heads, 1), {
        "q_ptr": q, "k_ptr": k, "v_ptr": v, "out_ptr": np.zeros_like(q),
        "logs_ptr": np.zeros((heads, length), np.float32), "length": length, "scale": scale,
    }, {"out_ptr": (want, *tolerance), "logs_ptr": (logs, 1e-3, 3e-3)})


def philox(seed, counter):
    """The first of the four words of Philox 4x32-10, as Triton seeds it."""
    with np.errstate(over="ignore"):
        words = [counter.astype(np.uint64)] + [np.zeros_like(counter, np.uint64)] * 3
        keys = [seed & 0xFFFFFFFF, seed >> 32]
        low = np.uint64(0xFFFFFFFF)
        for _ in range(10):
            first, second = words[0] * np.uint64(0xD2511F53), words[2] * np.uint64(0xCD9E8D57)
            words = [(second >> np.uint64(32)) ^ words[1] ^ np.uint64(keys[0]), second & low,
                     (first >> np.uint64(32)) ^ words[3] ^ np.uint64(keys[1]), first & low]
            keys = [(keys[0] + 0x9E3779B9) & 0xFFFFFFFF, (keys[1] + 0xBB67AE85) & 0xFFFFFFFF]
    return words[0].astype(np.uint32)


def dropout(case):
    count, seed, p = 3000, 1234, np.float32(0.4)
    x = normal(count)
    word = philox(seed, np.arange(count, dtype=np.uint64)).view(np.int32)
    # Triton's way from a word to [0, 1).
    word = np.where(word < 0, -word - 1, word)
    kept = word.astype(np.float32) * np.float32(4.6566127342e-10) > p
    want = np.where(kept, x / (np.float32(1) - p), 0)
    return Launch((-(-count // 1024), 1, 1), {"x_ptr": x, "out_ptr": np.zeros_like(x),
                  "count": count, "p": p, "seed": seed}, {"out_ptr": (want, 1e-6, 0)})


def scan(case):
    rows = 5
    if case["name"] == "scan":
        x = random.integers(-1000, 1000, (rows, 1000)).astype(np.int32)
        tolerance = (0, 0)
    else:
        x, tolerance = normal(rows, 500), (1e-4, 1e-4)
    want = np.cumsum(x.astype(np.float64), axis=1)
    return Launch((rows, 1, 1), {"x_ptr": x, "out_ptr": np.zeros_like(x), "columns": x.shape[1]},
                  {"out_ptr": (want, *tolerance)})


def sort(case):
    x = random.integers(-2**31, 2**31, (3, 512)).astype(np.int32)
    return Launch((3, 1, 1), {"x_ptr": x, "out_ptr": np.zeros_like(x)},
                  {"out_ptr": (np.sort(x, axis=1), 0, 0)})


def histogram(case):
    x = random.integers(0, 64, 4096).astype(np.int32)
    return Launch((4, 1, 1), {"x_ptr": x, "out_ptr": np.zeros(64, np.int32), "count": 4096},
                  {"out_ptr": (np.bincount(x, minlength=64), 0, 0)})


def argmax(case):
    x = normal(7, 900)
    x[3, 100] = x[3, 800] = 50  # the first of equals
    return Launch((7, 1, 1), {"x_ptr": x, "out_ptr": np.zeros(7, np.int32), "columns": 900},
                  {"out_ptr": (x.argmax(axis=1), 0, 0)})


def transpose(case):
    x = normal(70, 45)
    return Launch((3, 2, 1), {"x_ptr": x, "out_ptr": np.zeros((45, 70), np.float32), "rows": 70,
                  "columns": 45}, {"out_ptr": (x.T, 0, 0)})


def lock_sum(case):
    x = random.integers(-100, 100, (20, 256)).astype(np.float32)
    return Launch((20, 1, 1), {"x_ptr": x, "lock_ptr": np.zeros(1, np.int32),
                  "out_ptr": np.zeros(256, np.float32)}, {"out_ptr": (x.sum(axis=0), 0, 0)})


MAKERS = [add, softmax, layer_norm_backward, layer_norm, matmul_split, matmul_descriptors, matmul,
          attention, dropout, scan, sort, histogram, argmax, transpose, lock_sum]


def maker(name):
    return next(make for make in MAKERS if name.startswith(make.__name__))


def difference(got, want, relative, absolute):
    """What differs, in words, or nothing."""
    got, want = got.astype(np.float64), np.asarray(want, np.float64)
    off = np.abs(got - want)
    bad = ~(off <= relative * np.abs(want) + absolute)
    if not bad.any():
        return ""
    where = tuple(np.argwhere(bad)[0])
    return (f"{bad.sum()} of {bad.size} differ; first at {tuple(map(int, where))}: "
            f"{got[where]}, not {want[where]}")


def run(driver, folder, case):
    launch = maker(case["name"])(case)
    module = driver.load((folder / case["file"]).read_text())
    function = driver.function(module, case["entry"], case["shared"])
    values, places = [], {}
    for name, type_ in case["arguments"]:
        argument = launch.arguments[name]
        if type_.startswith("*"):
            places[name] = driver.upload(argument)
            values.append(places[name])
        else:
            values.append(SCALARS[type_](argument))
    programs = int(np.prod(launch.grid))
    # Triton adds two pointers: memory the kernel works in, and memory for its profiler.
    scratch = driver.upload(np.zeros(max(case["scratch"] * programs, 1), np.uint8))
    values += [scratch, ctypes.c_uint64(0)]
    driver.launch(function, launch.grid, (32 * case["warps"], 1, 1), case["shared"], values)
    wrong = []
    for name, want in launch.expected.items():
        got = np.empty_like(launch.arguments[name])
        driver.download(places[name], got)
        if dict(case["arguments"])[name] == "*bf16":
            got = from_bf16(got)
        wrong += [f"{name}: {text}" for text in [difference(got, *want)] if text]
    for place in [*places.values(), scratch]:
        driver.free(place)
    driver.call("cuModuleUnload", module)
    return "\n".join(wrong)


def alone(folder, file):
    """Runs one case, in a process that does nothing else. Returns the exit status."""
    cases = json.loads((folder / "cases.json").read_text())
    case = next(case for case in cases if case["file"] == file)
    try:
        wrong = run(Driver(), folder, case)
    except CudaError as error:
        wrong = "\n".join(str(error).splitlines()[:4])
    print(wrong)
    return 1 if wrong else 0


def main():
    if sys.argv[1] == "--alone":
        sys.exit(alone(pathlib.Path(sys.argv[2]), sys.argv[3]))
    folder = pathlib.Path(sys.argv[1])
    text = sys.argv[2] if len(sys.argv) > 2 else ""
    results = {}
    # Each in a process of its own: a kernel that fails takes the device from its process.
    for case in json.loads((folder / "cases.json").read_text()):
        name = case["file"].removesuffix(".ptx")
        if text not in name:
            continue
        command = [sys.executable, __file__, "--alone", str(folder), case["file"]]
        results[name] = outcomes.of(command, LIMIT)
        print(name, results[name][0], flush=True)
    outcomes.finish("triton", results, folder, here / "expected.txt")


if __name__ == "__main__":
    main()
