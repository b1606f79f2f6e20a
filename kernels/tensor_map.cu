// Boxes of tensors, copied by tensor maps that the host or the kernel makes: each kernel copies one box. What it loads,
// it writes out, with what is beside it in shared memory.

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

// The other way: what `input` has goes to shared memory, and from there to the tensor.
template <typename Copy> __device__ void store(const Box& box, const uint8_t* input, Copy copy) {
    for (uint32_t at = threadIdx.x; at < box.span; at += blockDim.x) memory[at] = input[at];
    asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
    __syncthreads();
    if (threadIdx.x == 0) {
        copy(shared_address(memory) + box.shared);
        asm volatile("cp.async.bulk.commit_group;\ncp.async.bulk.wait_group 0;" ::: "memory");
    }
}

#define STORES ".global.shared::cta"
#define IN_GROUP ".bulk_group"
#define AT_1 "r"(box.at[0])
#define AT_2 AT_1, "r"(box.at[1])
#define AT_3 AT_2, "r"(box.at[2])
#define AT_4 AT_3, "r"(box.at[3])
#define AT_5 AT_4, "r"(box.at[4])
#define PLACE_1 " [%0, {%2}], [%1];"
#define PLACE_2 " [%0, {%2, %3}], [%1];"
#define PLACE_3 " [%0, {%2, %3, %4}], [%1];"
#define PLACE_4 " [%0, {%2, %3, %4, %5}], [%1];"
#define PLACE_5 " [%0, {%2, %3, %4, %5, %6}], [%1];"

#define STORE(name, rank, text)                                                                              \
    extern "C" __global__ void name(const __grid_constant__ Map map, Box box, const uint8_t* input) {        \
        store(box, input, [&](uint32_t from) {                                                               \
            asm volatile(text PLACE_##rank ::"l"(&map), "r"(from), AT_##rank : "memory");                    \
        });                                                                                                  \
    }

STORE(store_1d, 1, TENSOR "1d" STORES ".tile" IN_GROUP)
STORE(store_2d, 2, TENSOR "2d" STORES IN_GROUP)
STORE(store_3d, 3, TENSOR "3d" STORES ".tile" IN_GROUP)
STORE(store_4d, 4, TENSOR "4d" STORES ".tile" IN_GROUP)
STORE(store_5d, 5, TENSOR "5d" STORES ".tile" IN_GROUP)
STORE(store_columns_3d, 3, TENSOR "3d" STORES ".im2col_no_offs" IN_GROUP)
STORE(store_columns_4d, 4, TENSOR "4d" STORES ".im2col_no_offs" IN_GROUP)
STORE(store_columns_5d, 5, TENSOR "5d" STORES ".im2col_no_offs" IN_GROUP)

#define REDUCES "cp.reduce.async.bulk.tensor."

STORE(reduce_add, 2, REDUCES "2d" STORES ".add.tile" IN_GROUP)
STORE(reduce_min, 2, REDUCES "2d" STORES ".min.tile" IN_GROUP)
STORE(reduce_max, 2, REDUCES "2d" STORES ".max.tile" IN_GROUP)
STORE(reduce_inc, 2, REDUCES "2d" STORES ".inc.tile" IN_GROUP)
STORE(reduce_dec, 2, REDUCES "2d" STORES ".dec.tile" IN_GROUP)
STORE(reduce_and, 2, REDUCES "2d" STORES ".and.tile" IN_GROUP)
STORE(reduce_or, 2, REDUCES "2d" STORES ".or.tile" IN_GROUP)
STORE(reduce_xor, 2, REDUCES "2d" STORES ".xor.tile" IN_GROUP)
STORE(reduce_columns, 4, REDUCES "4d" STORES ".add.im2col_no_offs" IN_GROUP)

// What a kernel sets in a map.
struct Fields {
    uint64_t strides[4];
    uint32_t rank, tile[5], dims[5], steps[5];
};

#define REPLACE(field, value) \
    asm volatile("tensormap.replace.tile." field ", %1;" ::"r"(map), value : "memory")
#define REPLACE_EACH(field, value)       \
    REPLACE(field " [%0], 0", value(0)); \
    REPLACE(field " [%0], 1", value(1)); \
    REPLACE(field " [%0], 2", value(2)); \
    REPLACE(field " [%0], 3", value(3)); \
    REPLACE(field " [%0], 4", value(4))
#define TILE(n) "r"(fields.tile[n])
#define DIM(n) "r"(fields.dims[n])
#define STEP(n) "r"(fields.steps[n])

__device__ void replace_place(uint32_t map, const uint8_t* tensor, const Fields& fields) {
    REPLACE("global_address.shared::cta.b1024.b64 [%0]", "l"(tensor));
    REPLACE("rank.shared::cta.b1024.b32 [%0]", "r"(fields.rank - 1));
    REPLACE_EACH("box_dim.shared::cta.b1024.b32", TILE);
    REPLACE_EACH("global_dim.shared::cta.b1024.b32", DIM);
    REPLACE("global_stride.shared::cta.b1024.b64 [%0], 0", "l"(fields.strides[0]));
    REPLACE("global_stride.shared::cta.b1024.b64 [%0], 1", "l"(fields.strides[1]));
    REPLACE("global_stride.shared::cta.b1024.b64 [%0], 2", "l"(fields.strides[2]));
    REPLACE("global_stride.shared::cta.b1024.b64 [%0], 3", "l"(fields.strides[3]));
}

template <int type, int swizzle, int fill> __device__ void replace_rest(uint32_t map, const Fields& fields) {
    REPLACE_EACH("element_stride.shared::cta.b1024.b32", STEP);
    REPLACE("elemtype.shared::cta.b1024.b32 [%0]", "n"(type));
    REPLACE("interleave_layout.shared::cta.b1024.b32 [%0]", "n"(0));
    REPLACE("swizzle_mode.shared::cta.b1024.b32 [%0]", "n"(swizzle));
    REPLACE("fill_mode.shared::cta.b1024.b32 [%0]", "n"(fill));
}

// Makes a map in shared memory from what `start` has, and copies it to `map` for the copies to come.
template <typename Replace> __device__ void make(const Map* start, Map* map, Replace replace) {
    __shared__ alignas(128) uint32_t words[32];
    if (threadIdx.x < 32) {
        words[threadIdx.x] = start ? reinterpret_cast<const uint32_t*>(start)[threadIdx.x] : 0;
        __syncwarp();
        uint32_t own = shared_address(words);
        if (threadIdx.x == 0) replace(own);
        __syncwarp();
        asm volatile(
            "tensormap.cp_fenceproxy.global.shared::cta.tensormap::generic.release.gpu.sync.aligned [%0], [%1], 128;\n"
            "fence.proxy.tensormap::generic.acquire.gpu [%0], 128;" ::"l"(map),
            "r"(own)
            : "memory");
    }
    __syncthreads();
}

__device__ void load_2d(const Map* map, const Box& box, uint8_t* output) {
    load(box, output, [&](uint32_t to, uint32_t barrier) {
        asm volatile(TENSOR "2d" LOADS COMPLETES " [%0], [%1, {%3, %4}], [%2];" ::OPERANDS(*map), "r"(box.at[0]),
                     "r"(box.at[1])
                     : "memory");
    });
}

#define MADE(name, type, swizzle, fill)                                                                              \
    extern "C" __global__ void name(const uint8_t* tensor, Fields fields, Map* map, Box box, uint8_t* output) {      \
        make(nullptr, map, [&](uint32_t own) {                                                                       \
            replace_place(own, tensor, fields);                                                                      \
            replace_rest<type, swizzle, fill>(own, fields);                                                          \
        });                                                                                                          \
        load_2d(map, box, output);                                                                                   \
    }

MADE(made_of_u16, 1, 0, 0)
MADE(made_swizzled, 6, 3, 0)
MADE(made_swizzled_less, 1, 2, 0)
MADE(made_filled, 6, 0, 1)
MADE(made_of_singles, 7, 1, 0)
MADE(made_of_doubles, 9, 0, 0)

// What is not set is as in a map of zeros: bytes, each of which is taken.
extern "C" __global__ void made_of_bytes(const uint8_t* tensor, Fields fields, Map* map, Box box, uint8_t* output) {
    make(nullptr, map, [&](uint32_t own) { replace_place(own, tensor, fields); });
    load_2d(map, box, output);
}

extern "C" __global__ void made_in_3d(const uint8_t* tensor, Fields fields, Map* map, Box box, uint8_t* output) {
    make(nullptr, map, [&](uint32_t own) {
        replace_place(own, tensor, fields);
        replace_rest<10, 0, 0>(own, fields);
    });
    load(box, output, [&](uint32_t to, uint32_t barrier) {
        asm volatile(TENSOR "3d" LOADS COMPLETES " [%0], [%1, {%3, %4, %5}], [%2];" ::OPERANDS(*map), "r"(box.at[0]),
                     "r"(box.at[1]), "r"(box.at[2])
                     : "memory");
    });
}

// The host's map, of another place.
extern "C" __global__ void changed(const __grid_constant__ Map start, const uint8_t* tensor, Fields fields, Map* map,
                                   Box box, uint8_t* output) {
    make(&start, map, [&](uint32_t own) { replace_place(own, tensor, fields); });
    load_2d(map, box, output);
}

extern "C" __global__ void made_to_store(uint8_t* tensor, Fields fields, Map* map, Box box, const uint8_t* input) {
    make(nullptr, map, [&](uint32_t own) {
        replace_place(own, tensor, fields);
        replace_rest<2, 0, 0>(own, fields);
    });
    store(box, input, [&](uint32_t from) {
        asm volatile(TENSOR "2d" STORES IN_GROUP PLACE_2 ::"l"(map), "r"(from), AT_2 : "memory");
    });
}
