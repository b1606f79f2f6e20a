"""Triton kernels, each with what to compile it for and a NumPy reference.

A `Case` says everything: the kernel, the types of its arguments, its constants, the launch, and a
function that makes inputs and the expected outputs. `compile.py` makes PTX of all of them without a
GPU; `run.py` needs that PTX and NumPy, not Triton.
"""

import dataclasses

import triton
import triton.language as tl


@triton.jit
def add(x_ptr, y_ptr, out_ptr, count, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    there = at < count
    x = tl.load(x_ptr + at, mask=there)
    y = tl.load(y_ptr + at, mask=there)
    tl.store(out_ptr + at, x + y, mask=there)


@triton.jit
def softmax(x_ptr, out_ptr, stride, columns, BLOCK: tl.constexpr):
    row = tl.program_id(0)
    at = tl.arange(0, BLOCK)
    x = tl.load(x_ptr + row * stride + at, mask=at < columns, other=-float("inf"))
    powers = tl.exp(x - tl.max(x, axis=0))
    tl.store(out_ptr + row * stride + at, powers / tl.sum(powers, axis=0), mask=at < columns)


@triton.jit
def softmax_rows(x_ptr, out_ptr, stride, rows, columns, BLOCK: tl.constexpr, STAGES: tl.constexpr):
    """Each program walks over rows, and loads the next ones ahead."""
    at = tl.arange(0, BLOCK)
    for row in tl.range(tl.program_id(0), rows, tl.num_programs(0), num_stages=STAGES):
        x = tl.load(x_ptr + row * stride + at, mask=at < columns, other=-float("inf"))
        powers = tl.exp(x - tl.max(x, axis=0))
        tl.store(out_ptr + row * stride + at, powers / tl.sum(powers, axis=0), mask=at < columns)


@triton.jit
def layer_norm(x_ptr, weight_ptr, bias_ptr, out_ptr, mean_ptr, scale_ptr, columns, epsilon,
               BLOCK: tl.constexpr):
    row = tl.program_id(0)
    total = tl.zeros([BLOCK], dtype=tl.float32)
    for start in range(0, columns, BLOCK):
        at = start + tl.arange(0, BLOCK)
        total += tl.load(x_ptr + row * columns + at, mask=at < columns, other=0.0).to(tl.float32)
    mean = tl.sum(total, axis=0) / columns
    squares = tl.zeros([BLOCK], dtype=tl.float32)
    for start in range(0, columns, BLOCK):
        at = start + tl.arange(0, BLOCK)
        x = tl.load(x_ptr + row * columns + at, mask=at < columns, other=0.0).to(tl.float32)
        x = tl.where(at < columns, x - mean, 0.0)
        squares += x * x
    scale = 1 / tl.sqrt(tl.sum(squares, axis=0) / columns + epsilon)
    tl.store(mean_ptr + row, mean)
    tl.store(scale_ptr + row, scale)
    for start in range(0, columns, BLOCK):
        at = start + tl.arange(0, BLOCK)
        there = at < columns
        x = tl.load(x_ptr + row * columns + at, mask=there, other=0.0).to(tl.float32)
        weight = tl.load(weight_ptr + at, mask=there)
        bias = tl.load(bias_ptr + at, mask=there)
        tl.store(out_ptr + row * columns + at, (x - mean) * scale * weight + bias, mask=there)


@triton.jit
def layer_norm_backward(dy_ptr, x_ptr, weight_ptr, mean_ptr, scale_ptr, dx_ptr, dweight_ptr,
                        columns, BLOCK: tl.constexpr):
    """A program has a row; what the rows add to the weight's gradient meets in atomics."""
    row = tl.program_id(0)
    at = tl.arange(0, BLOCK)
    there = at < columns
    dy = tl.load(dy_ptr + row * columns + at, mask=there, other=0.0)
    x = tl.load(x_ptr + row * columns + at, mask=there, other=0.0)
    weight = tl.load(weight_ptr + at, mask=there, other=0.0)
    scale = tl.load(scale_ptr + row)
    normal = tl.where(there, (x - tl.load(mean_ptr + row)) * scale, 0.0)
    slope = weight * dy
    along = tl.sum(normal * slope, axis=0) / columns
    level = tl.sum(slope, axis=0) / columns
    tl.store(dx_ptr + row * columns + at, (slope - normal * along - level) * scale, mask=there)
    tl.atomic_add(dweight_ptr + at, dy * normal, mask=there)


@triton.jit
def matmul(a_ptr, b_ptr, c_ptr, m, n, k, lda, ldb, ldc, BM: tl.constexpr, BN: tl.constexpr,
           BK: tl.constexpr, GROUP: tl.constexpr, PRECISION: tl.constexpr, RELU: tl.constexpr,
           WIDE: tl.constexpr):
    """Tiles of C in groups of rows. Edges are masked."""
    program = tl.program_id(0)
    down, across = tl.cdiv(m, BM), tl.cdiv(n, BN)
    group = program // (GROUP * across)
    tall = min(down - group * GROUP, GROUP)
    tile_m = group * GROUP + (program % (GROUP * across)) % tall
    tile_n = (program % (GROUP * across)) // tall
    rows = tile_m * BM + tl.arange(0, BM)
    columns = tile_n * BN + tl.arange(0, BN)
    inner = tl.arange(0, BK)
    a_at = a_ptr + (rows % m)[:, None] * lda + inner[None, :]
    b_at = b_ptr + inner[:, None] * ldb + (columns % n)[None, :]
    sums = tl.zeros([BM, BN], dtype=WIDE)
    for step in range(0, tl.cdiv(k, BK)):
        left = k - step * BK
        a = tl.load(a_at, mask=inner[None, :] < left, other=0.0)
        b = tl.load(b_at, mask=inner[:, None] < left, other=0.0)
        sums = tl.dot(a, b, sums, input_precision=PRECISION, out_dtype=WIDE)
        a_at += BK
        b_at += BK * ldb
    if RELU:
        sums = tl.where(sums > 0, sums, 0.01 * sums)
    c_at = c_ptr + rows[:, None] * ldc + columns[None, :]
    there = (rows[:, None] < m) & (columns[None, :] < n)
    tl.store(c_at, sums.to(c_ptr.dtype.element_ty), mask=there)


@triton.jit
def matmul_split(a_ptr, b_ptr, c_ptr, n, k, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr,
                 SPLIT: tl.constexpr):
    """The programs of a tile each have a part of the inner dimension, and add atomically."""
    rows = tl.program_id(0) * BM + tl.arange(0, BM)
    columns = tl.program_id(1) * BN + tl.arange(0, BN)
    inner = tl.program_id(2) * BK + tl.arange(0, BK)
    sums = tl.zeros([BM, BN], dtype=tl.float32)
    for _ in range(0, k // (BK * SPLIT)):
        a = tl.load(a_ptr + rows[:, None] * k + inner[None, :])
        b = tl.load(b_ptr + inner[:, None] * n + columns[None, :])
        sums = tl.dot(a, b, sums)
        inner += BK * SPLIT
    tl.atomic_add(c_ptr + rows[:, None] * n + columns[None, :], sums)


@triton.jit
def matmul_descriptors(a_ptr, b_ptr, c_ptr, m, n, k, BM: tl.constexpr, BN: tl.constexpr,
                       BK: tl.constexpr):
    """Tiles move by tensor descriptors that the kernel makes: TMA on sm_90."""
    a = tl.make_tensor_descriptor(a_ptr, [m, k], [k, 1], [BM, BK])
    b = tl.make_tensor_descriptor(b_ptr, [k, n], [n, 1], [BK, BN])
    c = tl.make_tensor_descriptor(c_ptr, [m, n], [n, 1], [BM, BN])
    row, column = tl.program_id(0) * BM, tl.program_id(1) * BN
    sums = tl.zeros([BM, BN], dtype=tl.float32)
    for at in range(0, k, BK):
        sums = tl.dot(a.load([row, at]), b.load([at, column]), sums)
    c.store([row, column], sums.to(tl.float16))


@triton.jit
def attention(q_ptr, k_ptr, v_ptr, out_ptr, logs_ptr, length, scale, HEAD: tl.constexpr,
              BM: tl.constexpr, BN: tl.constexpr, CAUSAL: tl.constexpr):
    """Softmax(Q K^T) V, a tile of queries a program, with a running maximum and sum."""
    head = tl.program_id(1) * length * HEAD
    rows = tl.program_id(0) * BM + tl.arange(0, BM)
    along = tl.arange(0, HEAD)
    q = tl.load(q_ptr + head + rows[:, None] * HEAD + along[None, :])
    most = tl.full([BM], -float("inf"), dtype=tl.float32)
    total = tl.zeros([BM], dtype=tl.float32)
    sums = tl.zeros([BM, HEAD], dtype=tl.float32)
    end = length
    if CAUSAL:
        end = (tl.program_id(0) + 1) * BM
    for start in range(0, end, BN):
        columns = start + tl.arange(0, BN)
        k = tl.load(k_ptr + head + columns[None, :] * HEAD + along[:, None])
        scores = tl.dot(q, k) * (scale * 1.4426950408889634)
        if CAUSAL:
            scores = tl.where(rows[:, None] >= columns[None, :], scores, -1.0e6)
        higher = tl.maximum(most, tl.max(scores, axis=1))
        powers = tl.exp2(scores - higher[:, None])
        fade = tl.exp2(most - higher)
        total = total * fade + tl.sum(powers, axis=1)
        v = tl.load(v_ptr + head + columns[:, None] * HEAD + along[None, :])
        sums = tl.dot(powers.to(v.dtype), v, sums * fade[:, None])
        most = higher
    tl.store(logs_ptr + tl.program_id(1) * length + rows, most + tl.log2(total))
    out = (sums / total[:, None]).to(out_ptr.dtype.element_ty)
    tl.store(out_ptr + head + rows[:, None] * HEAD + along[None, :], out)


@triton.jit
def dropout(x_ptr, out_ptr, count, p, seed, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    x = tl.load(x_ptr + at, mask=at < count)
    kept = tl.rand(seed, at) > p
    tl.store(out_ptr + at, tl.where(kept, x / (1 - p), 0.0), mask=at < count)


@triton.jit
def scan(x_ptr, out_ptr, columns, BLOCK: tl.constexpr):
    at = tl.arange(0, BLOCK)
    row = tl.program_id(0) * columns
    x = tl.load(x_ptr + row + at, mask=at < columns, other=0)
    tl.store(out_ptr + row + at, tl.cumsum(x, axis=0), mask=at < columns)


@triton.jit
def sort(x_ptr, out_ptr, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(out_ptr + at, tl.sort(tl.load(x_ptr + at)))


@triton.jit
def histogram(x_ptr, out_ptr, count, BLOCK: tl.constexpr, BINS: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    counts = tl.histogram(tl.load(x_ptr + at), BINS)
    tl.atomic_add(out_ptr + tl.arange(0, BINS), counts)


@triton.jit
def argmax(x_ptr, out_ptr, columns, BLOCK: tl.constexpr):
    at = tl.arange(0, BLOCK)
    x = tl.load(x_ptr + tl.program_id(0) * columns + at, mask=at < columns, other=-float("inf"))
    tl.store(out_ptr + tl.program_id(0), tl.argmax(x, axis=0))


@triton.jit
def transpose(x_ptr, out_ptr, rows, columns, BLOCK: tl.constexpr):
    down = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    across = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
    there = (down[:, None] < rows) & (across[None, :] < columns)
    x = tl.load(x_ptr + down[:, None] * columns + across[None, :], mask=there)
    there = (across[:, None] < columns) & (down[None, :] < rows)
    tl.store(out_ptr + across[:, None] * rows + down[None, :], tl.trans(x), mask=there)


@triton.jit
def lock_sum(x_ptr, lock_ptr, out_ptr, BLOCK: tl.constexpr):
    """Programs add to one tile, one after the other, under a lock."""
    at = tl.arange(0, BLOCK)
    x = tl.load(x_ptr + tl.program_id(0) * BLOCK + at)
    while tl.atomic_cas(lock_ptr, 0, 1) == 1:
        pass
    tl.store(out_ptr + at, tl.load(out_ptr + at) + x)
    tl.debug_barrier()
    tl.atomic_xchg(lock_ptr, 0)


@dataclasses.dataclass
class Case:
    """How a kernel is compiled. What it is run with is in `run.py`, by the same name."""

    name: str
    kernel: object
    signature: dict
    constants: dict
    warps: int = 4
    stages: int = 3
    targets: tuple = (80, 90)
    # The arguments that are multiples of 16, as Triton would find at a launch; `None`: pointers.
    divisible: tuple | None = None


def matrices(name, types, tile, precision="ieee", wide=tl.float32, relu=False, **more):
    signature = {"a_ptr": types[0], "b_ptr": types[1], "c_ptr": types[2]}
    signature |= dict.fromkeys(["m", "n", "k", "lda", "ldb", "ldc"], "i32")
    constants = {"BM": tile[0], "BN": tile[1], "BK": tile[2], "GROUP": 4, "PRECISION": precision,
                 "RELU": relu, "WIDE": wide}
    return Case(name, matmul, signature, constants,
                divisible=("a_ptr", "b_ptr", "c_ptr", "k", "lda", "ldb", "ldc"), **more)


def attentions(name, type_, head, tile, causal, **more):
    pointers = ["q_ptr", "k_ptr", "v_ptr", "out_ptr"]
    signature = dict.fromkeys(pointers, "*" + type_) | {"logs_ptr": "*fp32"}
    signature |= {"length": "i32", "scale": "fp32"}
    constants = {"HEAD": head, "BM": tile[0], "BN": tile[1], "CAUSAL": causal}
    return Case(name, attention, signature, constants,
                divisible=(*pointers, "logs_ptr", "length"), **more)


f, h, i = "*fp32", "*fp16", "*i32"
CASES = [
    Case("add", add, {"x_ptr": f, "y_ptr": f, "out_ptr": f, "count": "i32"}, {"BLOCK": 1024}),
    Case("softmax", softmax, {"x_ptr": f, "out_ptr": f, "stride": "i32", "columns": "i32"},
         {"BLOCK": 1024}),
    Case("softmax_f16", softmax, {"x_ptr": h, "out_ptr": h, "stride": "i32", "columns": "i32"},
         {"BLOCK": 512}, warps=8),
    Case("softmax_rows", softmax_rows, {"x_ptr": f, "out_ptr": f, "stride": "i32", "rows": "i32",
         "columns": "i32"}, {"BLOCK": 1024, "STAGES": 4}, warps=8,
         divisible=("x_ptr", "out_ptr", "stride")),
    Case("layer_norm", layer_norm, {"x_ptr": f, "weight_ptr": f, "bias_ptr": f, "out_ptr": f,
         "mean_ptr": f, "scale_ptr": f, "columns": "i32", "epsilon": "fp32"}, {"BLOCK": 256}),
    Case("layer_norm_f16", layer_norm, {"x_ptr": h, "weight_ptr": h, "bias_ptr": h, "out_ptr": h,
         "mean_ptr": f, "scale_ptr": f, "columns": "i32", "epsilon": "fp32"}, {"BLOCK": 1024},
         warps=8),
    Case("layer_norm_backward", layer_norm_backward, dict.fromkeys(["dy_ptr", "x_ptr", "weight_ptr",
         "mean_ptr", "scale_ptr", "dx_ptr", "dweight_ptr"], f) | {"columns": "i32"},
         {"BLOCK": 512}),
    matrices("matmul_f16", (h, h, h), (64, 64, 32)),
    matrices("matmul_f16_large", (h, h, h), (128, 128, 64), warps=8, stages=3, relu=True),
    matrices("matmul_f16_small", (h, h, f), (16, 16, 16), warps=1, stages=2),
    matrices("matmul_f16_in_f16", (h, h, h), (64, 32, 32), wide=tl.float16),
    matrices("matmul_bf16", ("*bf16", "*bf16", "*bf16"), (64, 64, 32)),
    matrices("matmul_tf32", (f, f, f), (64, 64, 32), precision="tf32"),
    matrices("matmul_tf32x3", (f, f, f), (64, 32, 32), precision="tf32x3"),
    matrices("matmul_f32", (f, f, f), (32, 32, 32)),
    matrices("matmul_f64", ("*fp64", "*fp64", "*fp64"), (32, 32, 16), wide=tl.float64, stages=2),
    matrices("matmul_i8", ("*i8", "*i8", i), (64, 64, 64), wide=tl.int32),
    matrices("matmul_f8", ("*fp8e4nv", "*fp8e4nv", f), (64, 64, 64), targets=(90,)),
    matrices("matmul_f8e5", ("*fp8e5", "*fp8e5", f), (64, 64, 64)),
    Case("matmul_split", matmul_split, {"a_ptr": h, "b_ptr": h, "c_ptr": f, "n": "i32", "k": "i32"},
         {"BM": 32, "BN": 32, "BK": 32, "SPLIT": 2},
         divisible=("a_ptr", "b_ptr", "c_ptr", "n", "k")),
    Case("matmul_descriptors", matmul_descriptors, {"a_ptr": h, "b_ptr": h, "c_ptr": h, "m": "i32",
         "n": "i32", "k": "i32"}, {"BM": 64, "BN": 64, "BK": 64}, targets=(90,),
         divisible=("a_ptr", "b_ptr", "c_ptr", "m", "n", "k")),
    attentions("attention_f16", "fp16", 64, (64, 64), False),
    attentions("attention_f16_causal", "fp16", 64, (128, 64), True, warps=8),
    attentions("attention_bf16", "bf16", 32, (64, 32), True),
    attentions("attention_f32", "fp32", 32, (32, 32), False),
    Case("dropout", dropout, {"x_ptr": f, "out_ptr": f, "count": "i32", "p": "fp32", "seed": "i32"},
         {"BLOCK": 1024}),
    Case("scan", scan, {"x_ptr": i, "out_ptr": i, "columns": "i32"}, {"BLOCK": 1024}),
    Case("scan_f32", scan, {"x_ptr": f, "out_ptr": f, "columns": "i32"}, {"BLOCK": 512}, warps=2),
    Case("sort", sort, {"x_ptr": i, "out_ptr": i}, {"BLOCK": 512}),
    Case("histogram", histogram, {"x_ptr": i, "out_ptr": i, "count": "i32"},
         {"BLOCK": 1024, "BINS": 64}),
    Case("argmax", argmax, {"x_ptr": f, "out_ptr": i, "columns": "i32"}, {"BLOCK": 1024}),
    Case("transpose", transpose, {"x_ptr": f, "out_ptr": f, "rows": "i32", "columns": "i32"},
         {"BLOCK": 32}),
    Case("lock_sum", lock_sum, {"x_ptr": f, "lock_ptr": i, "out_ptr": f}, {"BLOCK": 256}),
]
