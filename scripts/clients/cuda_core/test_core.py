"""cuda.core on device 0: devices, memory, streams, events, programs, launches, graphs."""

import ctypes
import unittest

import numpy as np
from cuda.core import (
    Buffer, Device, DeviceMemoryResource, DeviceMemoryResourceOptions, EventOptions, LaunchConfig,
    LegacyPinnedMemoryResource, Linker, LinkerOptions, ManagedMemoryResource, ObjectCode,
    PinnedMemoryResource, Program, ProgramOptions, StreamOptions, VirtualMemoryResource, launch,
)

SOURCE = r"""
extern "C" __device__ void cudaGraphSetConditional(unsigned long long handle, unsigned value);
template <typename T>
__global__ void scale(T* x, T by, int count) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < count) x[i] *= by;
}
extern "C" __global__ void add(float* x, const float* y, int count) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < count) x[i] += y[i];
}
extern "C" __global__ void reverse(int* x) {
    extern __shared__ int tile[];
    tile[threadIdx.x] = x[threadIdx.x];
    __syncthreads();
    x[threadIdx.x] = tile[blockDim.x - 1 - threadIdx.x];
}
extern "C" __global__ void count_down(int* turns, unsigned long long handle) {
    int left = --*turns;
    cudaGraphSetConditional(handle, left > 0);
}
__device__ int table[4] = {1, 2, 3, 4};
extern "C" __global__ void read_table(int* out) { out[threadIdx.x] = table[threadIdx.x]; }
"""


def program(source, names=(), **options):
    made = Program(source, "c++", ProgramOptions(arch="sm_90", std="c++17", **options))
    return made.compile("ptx", name_expressions=names)


class Case(unittest.TestCase):
    def setUp(self):
        self.device = Device(0)
        self.device.set_current()
        self.stream = self.device.create_stream()
        self.pinned = LegacyPinnedMemoryResource()

    def tearDown(self):
        self.stream.sync()
        self.stream.close()

    def host(self, buffer, type_, count):
        """A pinned buffer as a NumPy array."""
        words = (ctypes.c_char * buffer.size).from_address(int(buffer.handle))
        return np.frombuffer(words, type_, count)

    def put(self, array):
        """Device memory with a copy of an array."""
        staged = self.pinned.allocate(array.nbytes)
        self.host(staged, array.dtype, array.size)[:] = array.ravel()
        made = self.device.allocate(array.nbytes, stream=self.stream)
        made.copy_from(staged, stream=self.stream)
        self.stream.sync()
        return made

    def get(self, buffer, type_, count):
        staged = self.pinned.allocate(buffer.size)
        buffer.copy_to(staged, stream=self.stream)
        self.stream.sync()
        return self.host(staged, type_, count).copy()


class TestDevices(Case):
    def test_identity(self):
        self.assertGreaterEqual(len(Device.get_all_devices()), 1)
        self.assertTrue(self.device.name)
        self.assertEqual(len(self.device.uuid), 36)
        self.assertEqual(tuple(self.device.compute_capability), (9, 0))
        self.assertEqual(self.device.arch, "90")

    def test_every_property(self):
        names = [name for name in dir(self.device.properties) if not name.startswith("_")]
        self.assertGreater(len(names), 80)
        for name in names:
            with self.subTest(name=name):
                getattr(self.device.properties, name)

    def test_warp(self):
        self.assertEqual(self.device.properties.warp_size, 32)
        self.assertGreater(self.device.properties.multiprocessor_count, 0)

    def test_calls_of_the_runtime(self):
        self.assertTrue(self.device.pci_bus_id)
        self.device.sync()

    def test_context(self):
        self.assertEqual(self.stream.context, self.device.context)


class TestStreamsAndEvents(Case):
    def test_priorities(self):
        stream = self.device.create_stream(options=StreamOptions(nonblocking=True, priority=-1))
        self.assertTrue(stream.is_nonblocking)
        self.assertEqual(stream.priority, -1)
        self.assertEqual(stream.device.device_id, 0)

    def test_time(self):
        options = EventOptions(timing_enabled=True)
        first = self.stream.record(options=options)
        second = self.stream.record(options=options)
        second.sync()
        self.assertTrue(first.is_done)
        self.assertGreaterEqual(second - first, 0)

    def test_wait(self):
        other = self.device.create_stream()
        event = other.record()
        self.stream.wait(event)
        self.stream.wait(other)
        self.stream.sync()

    def test_default(self):
        self.device.default_stream.sync()


class TestMemory(Case):
    def test_copies(self):
        x = np.arange(1000, dtype=np.int32)
        first = self.put(x)
        second = self.device.allocate(first.size, stream=self.stream)
        second.copy_from(first, stream=self.stream)
        np.testing.assert_array_equal(self.get(second, np.int32, 1000), x)

    def test_fill(self):
        for value, type_ in [(7, np.uint8), (0x1234, np.uint16), (0x12345678, np.uint32)]:
            with self.subTest(value=value):
                buffer = self.device.allocate(64, stream=self.stream)
                width = np.dtype(type_).itemsize
                buffer.fill(value.to_bytes(width, "little"), stream=self.stream)
                got = self.get(buffer, type_, 64 // width)
                np.testing.assert_array_equal(got, np.full(64 // width, value, type_))
                buffer.close(self.stream)

    def test_pool(self):
        pool = DeviceMemoryResource(self.device, DeviceMemoryResourceOptions(max_size=1 << 22))
        buffer = pool.allocate(4096, stream=self.stream)
        self.assertTrue(buffer.is_device_accessible)
        self.assertEqual(buffer.memory_resource, pool)
        self.stream.sync()
        self.assertGreaterEqual(pool.attributes.used_mem_current, 4096)
        self.assertGreaterEqual(pool.attributes.reserved_mem_current, 4096)
        pool.attributes.release_threshold
        buffer.close(self.stream)
        self.stream.sync()
        self.assertEqual(pool.attributes.used_mem_current, 0)
        pool.close()

    def test_pool_is_full(self):
        pool = DeviceMemoryResource(self.device, DeviceMemoryResourceOptions(max_size=1 << 22))
        with self.assertRaisesRegex(Exception, "OUT_OF_MEMORY"):
            pool.allocate(1 << 30, stream=self.stream)

    def test_pinned_pool(self):
        buffer = PinnedMemoryResource().allocate(256, stream=self.stream)
        self.stream.sync()
        self.assertTrue(buffer.is_host_accessible)
        self.host(buffer, np.uint8, 256)[:] = 3
        buffer.close(self.stream)

    def test_managed_pool(self):
        buffer = ManagedMemoryResource().allocate(256, stream=self.stream)
        self.stream.sync()
        self.host(buffer, np.uint8, 256)[:] = 3
        buffer.close(self.stream)

    def test_virtual(self):
        resource = VirtualMemoryResource(self.device)
        buffer = resource.allocate(1 << 20)
        buffer.fill(5, stream=self.stream)
        self.assertTrue((self.get(buffer, np.uint8, 1 << 20) == 5).all())
        grown = resource.modify_allocation(buffer, 1 << 22)
        self.assertGreaterEqual(grown.size, 1 << 22)
        grown.close()

    def test_foreign(self):
        mine = self.device.allocate(64, stream=self.stream)
        view = Buffer.from_handle(mine.handle, 64)
        view.fill(1, stream=self.stream)
        self.assertTrue((self.get(mine, np.uint8, 64) == 1).all())

    def test_dlpack(self):
        buffer = self.pinned.allocate(16)
        got = np.from_dlpack(buffer)
        got[:] = 9
        self.assertTrue((self.host(buffer, np.uint8, 16) == 9).all())


class TestPrograms(Case):
    def test_launch(self):
        code = program(SOURCE)
        kernel = code.get_kernel("add")
        x, y = np.arange(1000, dtype=np.float32), np.ones(1000, np.float32)
        dx, dy = self.put(x), self.put(y)
        launch(self.stream, LaunchConfig(grid=8, block=128), kernel, dx, dy, np.int32(1000))
        np.testing.assert_array_equal(self.get(dx, np.float32, 1000), x + 1)

    def test_templates(self):
        code = program(SOURCE, ("scale<float>", "scale<double>"))
        for name, type_ in [("scale<float>", np.float32), ("scale<double>", np.float64)]:
            with self.subTest(name=name):
                x = np.arange(100).astype(type_)
                dx = self.put(x)
                launch(self.stream, LaunchConfig(grid=1, block=128), code.get_kernel(name), dx,
                       type_(3), np.int32(100))
                np.testing.assert_array_equal(self.get(dx, type_, 100), 3 * x)

    def test_shared_memory(self):
        kernel = program(SOURCE).get_kernel("reverse")
        x = np.arange(256, dtype=np.int32)
        dx = self.put(x)
        launch(self.stream, LaunchConfig(grid=1, block=256, shmem_size=1024), kernel, dx)
        np.testing.assert_array_equal(self.get(dx, np.int32, 256), x[::-1])

    def test_attributes(self):
        kernel = program(SOURCE).get_kernel("add")
        names = [name for name in dir(kernel.attributes) if not name.startswith("_")]
        for name in names:
            with self.subTest(name=name):
                value = getattr(kernel.attributes, name)
                if callable(value):
                    value(0)
        self.assertEqual(kernel.num_arguments, 3)
        self.assertEqual([(a.offset, a.size) for a in kernel.arguments_info],
                         [(0, 8), (8, 8), (16, 4)])

    def test_occupancy(self):
        occupancy = program(SOURCE).get_kernel("reverse").occupancy
        self.assertGreater(occupancy.max_active_blocks_per_multiprocessor(256, 1024), 0)
        self.assertGreater(occupancy.max_potential_block_size(0, 0).max_block_size, 0)
        self.assertGreater(occupancy.available_dynamic_shared_memory_per_block(1, 128), 0)

    def test_clusters(self):
        kernel = program(SOURCE).get_kernel("add")
        x, y = np.arange(512, dtype=np.float32), np.ones(512, np.float32)
        dx, dy = self.put(x), self.put(y)
        launch(self.stream, LaunchConfig(grid=2, cluster=2, block=128), kernel, dx, dy,
               np.int32(512))
        np.testing.assert_array_equal(self.get(dx, np.float32, 512), x + 1)

    def test_cooperative(self):
        kernel = program(SOURCE).get_kernel("add")
        x, y = np.arange(512, dtype=np.float32), np.ones(512, np.float32)
        dx, dy = self.put(x), self.put(y)
        launch(self.stream, LaunchConfig(grid=4, block=128, is_cooperative=True), kernel, dx, dy,
               np.int32(512))
        np.testing.assert_array_equal(self.get(dx, np.float32, 512), x + 1)

    def test_ptx(self):
        text = program(SOURCE).code
        kernel = ObjectCode.from_ptx(text).get_kernel("read_table")
        out = self.put(np.zeros(4, np.int32))
        launch(self.stream, LaunchConfig(grid=1, block=4), kernel, out)
        np.testing.assert_array_equal(self.get(out, np.int32, 4), [1, 2, 3, 4])

    def test_linker(self):
        user = program("""extern "C" __device__ int twice(int);
            extern "C" __global__ void use(int* x) { x[threadIdx.x] = twice(x[threadIdx.x]); }""",
                       relocatable_device_code=True)
        maker = program("""extern "C" __device__ int twice(int x) { return 2 * x; }""",
                        relocatable_device_code=True)
        linker = Linker(user, maker, options=LinkerOptions(arch="sm_90"))
        kernel = linker.link("cubin").get_kernel("use")
        x = np.arange(32, dtype=np.int32)
        dx = self.put(x)
        launch(self.stream, LaunchConfig(grid=1, block=32), kernel, dx)
        np.testing.assert_array_equal(self.get(dx, np.int32, 32), 2 * x)

    def test_broken_source(self):
        with self.assertRaisesRegex(Exception, "undefined"):
            program("__global__ void f() { undefined(); }")

    def test_too_many_threads(self):
        kernel = program(SOURCE).get_kernel("reverse")
        with self.assertRaisesRegex(Exception, "INVALID_VALUE"):
            launch(self.stream, LaunchConfig(grid=1, block=2048), kernel, self.put(np.zeros(1)))


class TestGraphs(Case):
    def numbers(self):
        kernel = program(SOURCE).get_kernel("add")
        x, y = np.arange(300, dtype=np.float32), np.ones(300, np.float32)
        return kernel, x, self.put(x), self.put(y)

    def test_built(self):
        kernel, x, dx, dy = self.numbers()
        builder = self.device.create_graph_builder().begin_building()
        for _ in range(3):
            launch(builder, LaunchConfig(grid=3, block=128), kernel, dx, dy, np.int32(300))
        graph = builder.end_building().complete()
        graph.upload(self.stream)
        graph.launch(self.stream)
        graph.launch(self.stream)
        np.testing.assert_array_equal(self.get(dx, np.float32, 300), x + 6)

    def test_forked(self):
        kernel, x, dx, dy = self.numbers()
        dz = self.put(x)
        builder = self.device.create_graph_builder().begin_building()
        left, right = builder.split(2)
        config = LaunchConfig(grid=3, block=128)
        launch(left, config, kernel, dx, dy, np.int32(300))
        launch(right, config, kernel, dz, dy, np.int32(300))
        builder = type(builder).join(left, right)
        launch(builder, config, kernel, dx, dz, np.int32(300))
        builder.end_building().complete().launch(self.stream)
        np.testing.assert_array_equal(self.get(dx, np.float32, 300), 2 * x + 2)

    def test_while(self):
        code = program(SOURCE)
        kernel, x, dx, dy = self.numbers()
        turns = self.put(np.array([5], np.int32))
        builder = self.device.create_graph_builder().begin_building()
        condition = builder.create_condition(default_value=1)
        body = builder.while_loop(condition)
        body.begin_building()
        config = LaunchConfig(grid=3, block=128)
        launch(body, config, kernel, dx, dy, np.int32(300))
        launch(body, LaunchConfig(grid=1, block=1), code.get_kernel("count_down"), turns, condition)
        body.end_building()
        builder.end_building().complete().launch(self.stream)
        np.testing.assert_array_equal(self.get(dx, np.float32, 300), x + 5)

    def test_callback(self):
        called = []
        builder = self.device.create_graph_builder().begin_building()
        builder.callback(lambda: called.append(1))
        builder.end_building().complete().launch(self.stream)
        self.stream.sync()
        self.assertEqual(called, [1])

    def test_updated(self):
        kernel, x, dx, dy = self.numbers()

        def built(count):
            builder = self.device.create_graph_builder().begin_building()
            launch(builder, LaunchConfig(grid=3, block=128), kernel, dx, dy, np.int32(count))
            return builder.end_building()

        graph = built(300).complete()
        graph.update(built(10))
        graph.launch(self.stream)
        want = x + (np.arange(300) < 10)
        np.testing.assert_array_equal(self.get(dx, np.float32, 300), want)


if __name__ == "__main__":
    unittest.main()
