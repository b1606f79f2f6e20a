// Boxes of tensors, copied by tensor maps that the host makes: each kernel copies one box, and writes out what is in
// shared memory afterwards.

#include <cstdint>

struct alignas(64) Map {
    uint8_t bytes[128];
};

// Where a box is: coordinates, offsets of pixels, and what to say of shared memory.
struct Box {
    int32_t at[5];
    uint16_t offsets[3];
    // Where in shared memory, how many bytes are to come, and how many to write out.
    uint32_t shared, bytes, span;
};

extern __shared__ __align__(1024) uint8_t memory[];

__device__ uint32_t shared_address(const void* pointer) { return static_cast<uint32_t>(__cvta_generic_to_shared(pointer)); }

__device__ void barrier_wait(uint32_t barrier, uint32_t parity) {
    asm volatile(
        "{\n"
        ".reg .pred done;\n"
        "again:\n"
        "mbarrier.try_wait.parity.shared::cta.b64 done, [%0], %1;\n"
        "@!done bra again;\n"
        "}" ::"r"(barrier), "r"(parity)
        : "memory");
}

#define TENSOR "cp.async.bulk.tensor."
#define LOADS ".shared::cluster.global"
#define COMPLETES ".mbarrier::complete_tx::bytes"

template <typename Copy> __device__ void load(const Box& box, uint8_t* output, Copy copy) {
    __shared__ uint64_t barrier;
    uint32_t own = shared_address(&barrier);
    for (uint32_t at = threadIdx.x; at < box.span; at += blockDim.x) memory[at] = 0xee;
    if (threadIdx.x == 0) {
        asm volatile("mbarrier.init.shared::cta.b64 [%0], 1;\nfence.proxy.async.shared::cta;" ::"r"(own) : "memory");
    }
    __syncthreads();
    if (threadIdx.x == 0) {
        asm volatile("fence.proxy.async.shared::cta;\nmbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;" ::"r"(own),
                     "r"(box.bytes)
                     : "memory");
        copy(shared_address(memory) + box.shared, own);
    }
    barrier_wait(own, 0);
    for (uint32_t at = threadIdx.x; at < box.span; at += blockDim.x) output[at] = memory[at];
}

#define OPERANDS(map) "r"(to), "l"(&map), "r"(barrier)

extern "C" __global__ void tile_1d(const __grid_constant__ Map map, Box box, uint8_t* output) {
    load(box, output, [&](uint32_t to, uint32_t barrier) {
        asm volatile(TENSOR "1d" LOADS ".tile" COMPLETES " [%0], [%1, {%3}], [%2];" ::OPERANDS(map), "r"(box.at[0])
                     : "memory");
    });
}

extern "C" __global__ void tile_2d(const __grid_constant__ Map map, Box box, uint8_t* output) {
    load(box, output, [&](uint32_t to, uint32_t barrier) {
        asm volatile(TENSOR "2d" LOADS COMPLETES " [%0], [%1, {%3, %4}], [%2];" ::OPERANDS(map), "r"(box.at[0]),
                     "r"(box.at[1])
                     : "memory");
    });
}

extern "C" __global__ void tile_3d(const __grid_constant__ Map map, Box box, uint8_t* output) {
    load(box, output, [&](uint32_t to, uint32_t barrier) {
        asm volatile(TENSOR "3d" LOADS COMPLETES " [%0], [%1, {%3, %4, %5}], [%2];" ::OPERANDS(map), "r"(box.at[0]),
                     "r"(box.at[1]), "r"(box.at[2])
                     : "memory");
    });
}

extern "C" __global__ void tile_4d(const __grid_constant__ Map map, Box box, uint8_t* output) {
    load(box, output, [&](uint32_t to, uint32_t barrier) {
        asm volatile(TENSOR "4d" LOADS COMPLETES " [%0], [%1, {%3, %4, %5, %6}], [%2];" ::OPERANDS(map), "r"(box.at[0]),
                     "r"(box.at[1]), "r"(box.at[2]), "r"(box.at[3])
                     : "memory");
    });
}

extern "C" __global__ void tile_5d(const __grid_constant__ Map map, Box box, uint8_t* output) {
    load(box, output, [&](uint32_t to, uint32_t barrier) {
        asm volatile(TENSOR "5d" LOADS COMPLETES " [%0], [%1, {%3, %4, %5, %6, %7}], [%2];" ::OPERANDS(map),
                     "r"(box.at[0]), "r"(box.at[1]), "r"(box.at[2]), "r"(box.at[3]), "r"(box.at[4])
                     : "memory");
    });
}

extern "C" __global__ void columns_3d(const __grid_constant__ Map map, Box box, uint8_t* output) {
    load(box, output, [&](uint32_t to, uint32_t barrier) {
        asm volatile(TENSOR "3d" LOADS ".im2col" COMPLETES " [%0], [%1, {%3, %4, %5}], [%2], {%6};" ::OPERANDS(map),
                     "r"(box.at[0]), "r"(box.at[1]), "r"(box.at[2]), "h"(box.offsets[0])
                     : "memory");
    });
}

extern "C" __global__ void columns_4d(const __grid_constant__ Map map, Box box, uint8_t* output) {
    load(box, output, [&](uint32_t to, uint32_t barrier) {
        asm volatile(TENSOR "4d" LOADS ".im2col" COMPLETES
                            " [%0], [%1, {%3, %4, %5, %6}], [%2], {%7, %8};" ::OPERANDS(map),
                     "r"(box.at[0]), "r"(box.at[1]), "r"(box.at[2]), "r"(box.at[3]), "h"(box.offsets[0]),
                     "h"(box.offsets[1])
                     : "memory");
    });
}

extern "C" __global__ void columns_5d(const __grid_constant__ Map map, Box box, uint8_t* output) {
    load(box, output, [&](uint32_t to, uint32_t barrier) {
        asm volatile(TENSOR "5d" LOADS ".im2col" COMPLETES
                            " [%0], [%1, {%3, %4, %5, %6, %7}], [%2], {%8, %9, %10};" ::OPERANDS(map),
                     "r"(box.at[0]), "r"(box.at[1]), "r"(box.at[2]), "r"(box.at[3]), "r"(box.at[4]),
                     "h"(box.offsets[0]), "h"(box.offsets[1]), "h"(box.offsets[2])
                     : "memory");
    });
}
