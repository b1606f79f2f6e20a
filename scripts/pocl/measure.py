"""Runs the kernels of `kernels.cl` on pocl, checks what they compute, prints their times as JSON.

`table.py` starts it once for each round, because a process keeps what pocl has compiled. Data,
sizes, launch shapes and the way of timing are those of `cargo bench -p softcuda`: the first run,
then the median of at least five runs and about half a second.
"""

import json
import pathlib
import statistics
import sys
import time

import numpy as np
import pyopencl as cl

SOURCE = pathlib.Path(__file__).resolve().parent / "kernels.cl"

f32, f64, u32, u64, i32 = np.float32, np.float64, np.uint32, np.uint64, np.int32


def words(seed: int, count: int) -> np.ndarray:
    """The random words of the benchmark."""
    with np.errstate(over="ignore"):
        z = u64(seed) + np.arange(1, count + 1, dtype=u64) * u64(0x9E3779B97F4A7C15)
        z = (z ^ (z >> u64(30))) * u64(0xBF58476D1CE4E5B9)
        z = (z ^ (z >> u64(27))) * u64(0x94D049BB133111EB)
    return z ^ (z >> u64(31))


def noise(count: int, seed: int) -> np.ndarray:
    """Numbers in [-1, 1)."""
    return (words(seed, count) >> u64(40)).astype(f32) / f32(1 << 23) - f32(1)


def between(low: float, high: float, count: int, seed: int) -> np.ndarray:
    return f32(low) + f32(high - low) * (noise(count, seed) + f32(1)) / f32(2)


def random_rows(count: int, shortest: int, longest: int, seed: int) -> tuple[np.ndarray, np.ndarray]:
    """Offsets and columns of a square matrix with random columns in each row."""
    stream = words(seed, count * (longest + 1))
    lengths, keep, at = np.empty(count, dtype=u32), np.ones(len(stream), dtype=bool), 0
    for row in range(count):
        lengths[row] = shortest + int(stream[at]) % (longest - shortest + 1)
        keep[at] = False
        at += 1 + int(lengths[row])
    columns = stream[:at][keep[:at]] % u64(count)
    return np.concatenate([[0], np.cumsum(lengths)]).astype(u32), columns.astype(u32)


def laplacian(side: int) -> tuple[np.ndarray, np.ndarray]:
    """Offsets and columns of the 5-point Laplacian on a square grid."""
    row = np.arange(side * side)
    i, j = row // side, row % side
    columns = np.stack([row - side, row - 1, row, row + 1, row + side], axis=1)
    there = np.stack([i > 0, j > 0, i >= 0, j + 1 < side, i + 1 < side], axis=1)
    return np.concatenate([[0], np.cumsum(there.sum(axis=1))]).astype(u32), columns[there].astype(u32)


class Device:
    """pocl's processor."""

    def __init__(self) -> None:
        platforms = [p for p in cl.get_platforms() if p.name == "Portable Computing Language"]
        if not platforms:
            sys.exit("there is no pocl")
        self.platform = platforms[0]
        self.device = self.platform.get_devices()[0]
        self.context = cl.Context([self.device])
        self.queue = cl.CommandQueue(self.context)
        # Kernels do not keep their arguments.
        self.buffers = []

    def kernel(self, name: str) -> cl.Kernel:
        """The kernel, from a program of its own that nothing has been compiled of."""
        return cl.Kernel(cl.Program(self.context, SOURCE.read_text()).build(), name)

    def buffer(self, values: np.ndarray) -> cl.Buffer:
        flags = cl.mem_flags.READ_WRITE | cl.mem_flags.COPY_HOST_PTR
        self.buffers.append(cl.Buffer(self.context, flags, hostbuf=values))
        return self.buffers[-1]

    def zeros(self, count: int, kind: type) -> cl.Buffer:
        return self.buffer(np.zeros(count, dtype=kind))

    def clear(self, buffer: cl.Buffer) -> None:
        cl.enqueue_fill_buffer(self.queue, buffer, u32(0), 0, buffer.size)

    def read(self, buffer: cl.Buffer, kind: type) -> np.ndarray:
        values = np.empty(buffer.size // np.dtype(kind).itemsize, dtype=kind)
        cl.enqueue_copy(self.queue, values, buffer)
        return values

    def launch(self, kernel: cl.Kernel, threads: tuple, block: tuple) -> None:
        cl.enqueue_nd_range_kernel(self.queue, kernel, threads, block)
        self.queue.finish()


def near(got: np.ndarray, want: np.ndarray, tolerance: float) -> None:
    """A relative tolerance for large values, an absolute one for small values."""
    got, want = got.astype(f64), np.asarray(want, dtype=f64)
    apart = np.abs(got - want) - tolerance * np.maximum(np.abs(want), 1)
    # A value that is no number is not near.
    wrong = np.flatnonzero(~(apart <= 0))
    if len(wrong):
        at = wrong[0]
        sys.exit(f"element {at} of {len(got)} is {got[at]}, and should be {want[at]}; {len(wrong)} are wrong")


def saxpy(device: Device, kernel: cl.Kernel):
    n = 1 << 24
    x, y = noise(n, 1), noise(n, 2)
    x_device, y_device = device.buffer(x), device.buffer(y)
    kernel.set_args(f32(0), x_device, y_device, u32(n))
    yield lambda: device.launch(kernel, (n,), (256,))
    kernel.set_arg(0, f32(2))
    device.launch(kernel, (n,), (256,))
    near(device.read(y_device, f32), y + 2 * x, 1e-6)


def normal(d: np.ndarray) -> np.ndarray:
    k = 1 / (1 + 0.2316419 * np.abs(d))
    series = k * (1.781477937 + k * (-1.821255978 + k * 1.330274429))
    series = k * (0.31938153 + k * (-0.356563782 + series))
    tail = 0.39894228 * np.exp(-0.5 * d * d) * series
    return np.where(d > 0, 1 - tail, tail)


def black_scholes(device: Device, kernel: cl.Kernel):
    n, rate, volatility = 1 << 20, 0.02, 0.3
    inputs = [between(5, 30, n, 9), between(1, 100, n, 10), between(0.25, 10, n, 11)]
    call, put = device.zeros(n, f32), device.zeros(n, f32)
    kernel.set_args(*map(device.buffer, inputs), call, put, f32(rate), f32(volatility), u32(n))
    yield lambda: device.launch(kernel, (n,), (256,))
    s, x, t = (values.astype(f64) for values in inputs)
    spread = volatility * np.sqrt(t)
    d1 = (np.log(s / x) + (rate + 0.5 * volatility**2) * t) / spread
    n1, n2, discounted = normal(d1), normal(d1 - spread), x * np.exp(-rate * t)
    near(device.read(call, f32), s * n1 - discounted * n2, 1e-4)
    near(device.read(put, f32), discounted * (1 - n2) - s * (1 - n1), 1e-4)


def mandelbrot(device: Device, kernel: cl.Kernel):
    side, limit = 1024, 256
    left, top, step = f32(-2), f32(-1.5), f32(3 / side)
    counts = device.zeros(side * side, u32)
    kernel.set_args(counts, u32(side), u32(side), left, top, step, u32(limit))
    yield lambda: device.launch(kernel, (side, side), (16, 16))
    column, row = np.meshgrid(np.arange(side, dtype=f32), np.arange(side, dtype=f32))
    cx, cy = left + column.ravel() * step, top + row.ravel() * step
    x, y, want = np.zeros_like(cx), np.zeros_like(cy), np.zeros(side * side, dtype=u32)
    inside = np.arange(side * side)
    for _ in range(limit):
        inside = inside[x[inside] * x[inside] + y[inside] * y[inside] <= 4]
        want[inside] += 1
        a, b = x[inside], y[inside]
        x[inside], y[inside] = a * a - b * b + cx[inside], 2 * a * b + cy[inside]
    # The kernel fuses products and sums, which moves a few points at the edge of the set.
    moved = np.count_nonzero(device.read(counts, u32) != want)
    if moved > side * side / 100:
        sys.exit(f"{moved} points differ")


def stencil_5_shared(device: Device, kernel: cl.Kernel):
    side, rate = 2048, f32(0.2)
    grid = noise(side * side, 12)
    out = device.zeros(side * side, f32)
    kernel.set_args(device.buffer(grid), out, i32(side), i32(side), rate)
    yield lambda: device.launch(kernel, (side, side), (16, 16))
    grid = grid.reshape(side, side)
    want, v = grid.copy(), grid[1:-1, 1:-1]
    around = (grid[1:-1, :-2] + grid[1:-1, 2:]) + (grid[:-2, 1:-1] + grid[2:, 1:-1])
    want[1:-1, 1:-1] += rate * (around - 4 * v)
    near(device.read(out, f32), want.ravel(), 1e-5)


def forces(bodies: np.ndarray, softening: float) -> np.ndarray:
    total = np.empty((len(bodies), 3))
    for i, body in enumerate(bodies):
        apart = bodies[:, :3] - body[:3]
        square = (apart * apart).sum(axis=1) + softening
        total[i] = (bodies[:, 3] / (square * np.sqrt(square))) @ apart
    return total


def nbody_f64(device: Device, kernel: cl.Kernel):
    n, softening = 2048, 0.01
    bodies = noise(4 * n, 4).astype(f64)
    force = device.zeros(3 * n, f64)
    kernel.set_args(device.buffer(bodies), force, u32(n), f64(softening))
    yield lambda: device.launch(kernel, (n,), (64,))
    near(device.read(force, f64), forces(bodies.reshape(n, 4), softening).ravel(), 1e-9)


def nbody(device: Device, kernel: cl.Kernel):
    n, softening = 4096, f32(0.01)
    bodies = noise(4 * n, 3)
    force = device.zeros(4 * n, f32)
    kernel.set_args(device.buffer(bodies), force, u32(n), softening)
    yield lambda: device.launch(kernel, (n,), (64,))
    bodies = bodies.reshape(n, 4).astype(f64)
    want = np.hstack([forces(bodies, float(softening)), bodies[:, 3:]])
    near(device.read(force, f32), want.ravel(), 1e-3)


def gemm(device: Device, kernel: cl.Kernel, seeds: tuple, sizes: int, threads: tuple, block: tuple):
    n = 512
    a, b = (noise(n * n, seed) for seed in seeds)
    c = device.zeros(n * n, f32)
    kernel.set_args(device.buffer(a), device.buffer(b), c, *[u32(n)] * sizes)
    yield lambda: device.launch(kernel, threads, block)
    want = a.reshape(n, n).astype(f64) @ b.reshape(n, n).astype(f64)
    near(device.read(c, f32), want.ravel(), 1e-3)


def gemm_f32(device: Device, kernel: cl.Kernel):
    return gemm(device, kernel, (5, 6), 3, (512, 512), (16, 16))


def gemm_register_tile(device: Device, kernel: cl.Kernel):
    return gemm(device, kernel, (23, 24), 2, (512 // 32 * 64, 512 // 32), (64, 1))


def product(offsets: np.ndarray, columns: np.ndarray, values: np.ndarray, x: np.ndarray) -> np.ndarray:
    return np.add.reduceat(values.astype(f64) * x.astype(f64)[columns], offsets[:-1])


def spmv_scalar(device: Device, kernel: cl.Kernel):
    offsets, columns = laplacian(1024)
    rows = len(offsets) - 1
    own = np.repeat(np.arange(rows), np.diff(offsets.astype(np.int64)))
    values, x = np.where(columns == own, 4, -1).astype(f32), noise(rows, 8)
    y = device.zeros(rows, f32)
    kernel.set_args(*map(device.buffer, (offsets, columns, values, x)), y, u32(rows))
    yield lambda: device.launch(kernel, (rows,), (256,))
    near(device.read(y, f32), product(offsets, columns, values, x), 1e-5)


def spmv_warp(device: Device, kernel: cl.Kernel):
    rows = 1 << 16
    offsets, columns = random_rows(rows, 16, 48, 19)
    values, x = noise(len(columns), 20).astype(f64), noise(rows, 21).astype(f64)
    y = device.zeros(rows, f64)
    kernel.set_args(*map(device.buffer, (offsets, columns, values, x)), y, u32(rows))
    yield lambda: device.launch(kernel, (32 * rows,), (256,))
    near(device.read(y, f64), product(offsets, columns, values, x), 1e-12)


def bfs_level(device: Device, kernel: cl.Kernel):
    vertices = 1 << 18
    offsets, neighbours = random_rows(vertices, 8, 8, 22)
    levels, count_device = device.zeros(vertices, u32), device.zeros(1, u32)
    offsets_device, neighbours_device = device.buffer(offsets), device.buffer(neighbours)
    frontiers = [device.zeros(vertices, u32), device.zeros(vertices, u32)]
    zero, one, found = np.zeros(1, dtype=u32), np.ones(1, dtype=u32), np.empty(1, dtype=u32)

    def search() -> None:
        frontier, after = frontiers
        device.clear(levels)
        cl.enqueue_copy(device.queue, levels, one)
        cl.enqueue_copy(device.queue, frontier, zero)
        count, level = 1, 1
        while count > 0:
            level += 1
            device.clear(count_device)
            arguments = (frontier, u32(count), after, count_device, levels, u32(level))
            kernel.set_args(offsets_device, neighbours_device, *arguments)
            device.launch(kernel, (-(-count // 256) * 256,), (256,))
            cl.enqueue_copy(device.queue, found, count_device)
            count = int(found[0])
            frontier, after = after, frontier

    yield search
    edges = neighbours.reshape(vertices, 8)
    want, frontier, level = np.zeros(vertices, dtype=u32), np.zeros(1, dtype=u32), 1
    want[0] = 1
    while len(frontier):
        level += 1
        seen = np.unique(edges[frontier])
        frontier = seen[want[seen] == 0]
        want[frontier] = level
    near(device.read(levels, u32), want, 0)


def reduce_shared_f32(device: Device, kernel: cl.Kernel):
    n = 1 << 22
    values = noise(n, 7)
    sums = device.zeros(n // 256, f32)
    kernel.set_args(device.buffer(values), sums, u32(n), cl.LocalMemory(4 * 256))
    yield lambda: device.launch(kernel, (n,), (256,))
    near(device.read(sums, f32), values.astype(f64).reshape(-1, 256).sum(axis=1), 1e-5)


def sum_atomic(device: Device, kernel: cl.Kernel):
    n = 1 << 22
    values = noise(n, 13)
    total = device.zeros(1, f32)
    kernel.set_args(device.buffer(values), total, u32(n))

    def add_up() -> None:
        device.clear(total)
        device.launch(kernel, (1024 * 256,), (256,))

    yield add_up
    near(device.read(total, f32), values.astype(f64).sum(keepdims=True), 1e-4)


def scan_lookback(device: Device, kernel: cl.Kernel):
    n = 1 << 22
    values = words(14, n).astype(u32)
    out, status, next_tile = device.zeros(n, u32), device.zeros(n // 256, u64), device.zeros(1, u32)
    kernel.set_args(device.buffer(values), out, status, next_tile, u32(n))

    def scan() -> None:
        device.clear(status)
        device.clear(next_tile)
        device.launch(kernel, (n,), (256,))

    yield scan
    near(device.read(out, u32), np.cumsum(values, dtype=u32), 0)


def histogram(device: Device, kernel: cl.Kernel):
    n = 1 << 24
    values = words(15, n // 8).view(np.uint8)
    bins = device.zeros(256, u32)
    kernel.set_args(device.buffer(values), bins, u32(n))

    def count() -> None:
        device.clear(bins)
        device.launch(kernel, (1024 * 256,), (256,))

    yield count
    near(device.read(bins, u32), np.bincount(values, minlength=256), 0)


ROWS, WIDTH = 4096, 1024


def softmax_block(device: Device, kernel: cl.Kernel):
    values = between(-8, 8, ROWS * WIDTH, 16)
    out = device.zeros(ROWS * WIDTH, f32)
    kernel.set_args(device.buffer(values), out, u32(WIDTH))
    yield lambda: device.launch(kernel, (ROWS * 256,), (256,))
    powers = values.astype(f64).reshape(ROWS, WIDTH)
    powers = np.exp(powers - powers.max(axis=1, keepdims=True))
    near(device.read(out, f32), (powers / powers.sum(axis=1, keepdims=True)).ravel(), 1e-5)


def layer_norm(device: Device, kernel: cl.Kernel):
    values, gain = noise(ROWS * WIDTH, 17), noise(WIDTH, 18)
    out = device.zeros(ROWS * WIDTH, f32)
    kernel.set_args(device.buffer(values), device.buffer(gain), out, u32(WIDTH))
    yield lambda: device.launch(kernel, (ROWS * 32,), (32,))
    rows = values.astype(f64).reshape(ROWS, WIDTH)
    mean = rows.mean(axis=1, keepdims=True)
    scale = 1 / np.sqrt((rows * rows).mean(axis=1, keepdims=True) - mean * mean + 1e-5)
    near(device.read(out, f32), ((rows - mean) * scale * gain).ravel(), 1e-4)


# The rows of the benchmark, by the names of their kernels. Each gives what is timed, then checks
# what it computed.
WORK = [
    saxpy, black_scholes, mandelbrot, stencil_5_shared, nbody_f64, nbody, gemm_f32, gemm_register_tile, spmv_scalar,
    spmv_warp, bfs_level, reduce_shared_f32, sum_atomic, scan_lookback, histogram, softmax_block, layer_norm,
]  # fmt: skip


def milliseconds(run) -> float:
    start = time.perf_counter()
    run()
    return (time.perf_counter() - start) * 1e3


def timed(run) -> tuple[float, float]:
    """The first time, and the median of later ones."""
    first, later, end = milliseconds(run), [], time.perf_counter() + 0.5
    while len(later) < 5 or time.perf_counter() < end:
        later.append(milliseconds(run))
    return first, statistics.median(later)


def main(names: list[str]) -> None:
    device = Device()
    kernels = {}
    for work in WORK:
        name = work.__name__
        if names and name not in names:
            continue
        steps = work(device, device.kernel(name))
        first, later = timed(next(steps))
        next(steps, None)
        device.buffers.clear()
        kernels[name] = {"first": first, "later": later}
    version = device.platform.version
    json.dump({"version": version, "threads": device.device.max_compute_units, "kernels": kernels}, sys.stdout)


if __name__ == "__main__":
    main(sys.argv[1:])
