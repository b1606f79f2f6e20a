// Copies that the hardware makes by itself, and the barriers that they complete at: pipelines of several stages,
// bulk copies and reductions, and the shared memory of other blocks of a cluster.

#include <cstdint>

__device__ uint32_t shared_address(const void* pointer) { return static_cast<uint32_t>(__cvta_generic_to_shared(pointer)); }

__device__ void barrier_init(uint32_t barrier, uint32_t count) {
    asm volatile("mbarrier.init.shared::cta.b64 [%0], %1;" ::"r"(barrier), "r"(count) : "memory");
}

__device__ void barrier_expect(uint32_t barrier, uint32_t bytes) {
    asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;" ::"r"(barrier), "r"(bytes) : "memory");
}

__device__ void barrier_arrive(uint32_t barrier) {
    asm volatile("mbarrier.arrive.shared::cta.b64 _, [%0];" ::"r"(barrier) : "memory");
}

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

__device__ uint32_t at_rank(uint32_t address, uint32_t rank) {
    uint32_t there;
    asm("mapa.shared::cluster.u32 %0, %1, %2;" : "=r"(there) : "r"(address), "r"(rank));
    return there;
}

__device__ uint32_t cluster_rank() {
    uint32_t rank;
    asm("mov.u32 %0, %cluster_ctarank;" : "=r"(rank));
    return rank;
}

__device__ void cluster_sync() {
    asm volatile("barrier.cluster.arrive.release;\nbarrier.cluster.wait.acquire;" ::: "memory");
}

// Four stages of 128 vectors. The last tile is not full: what is missing reads as zero.
extern "C" __global__ void staged_copies(const float4* input, float* output, int count, int tiles) {
    constexpr int STAGES = 4;
    __shared__ float4 stages[STAGES][128];
    int thread = threadIdx.x, first = blockIdx.x * tiles * 128;
    auto fetch = [&](int tile) {
        if (tile < tiles) {
            int at = first + tile * 128 + thread, bytes = at < count ? 16 : 0;
            // Swizzled, as tiles of matrices are.
            uint32_t to = shared_address(&stages[tile % STAGES][thread ^ (thread >> 3 & 7)]);
            asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;" ::"r"(to), "l"(input + min(at, count - 1)), "r"(bytes)
                         : "memory");
        }
        asm volatile("cp.async.commit_group;" ::: "memory");
    };
    for (int tile = 0; tile < STAGES - 1; tile++) fetch(tile);
    float sum = 0;
    for (int tile = 0; tile < tiles; tile++) {
        asm volatile("cp.async.wait_group %0;" ::"n"(STAGES - 2) : "memory");
        __syncthreads();
        int other = 127 - thread;
        float4 v = stages[tile % STAGES][other ^ (other >> 3 & 7)];
        sum = sum * 0.5f + (v.x - v.y) + (v.z - v.w);
        fetch(tile + STAGES - 1);
    }
    output[blockIdx.x * 128 + thread] = sum;
}

// One warp fills stages by bulk copies, the others empty them; the sums go out by a bulk copy, and are added to what is
// there by another.
extern "C" __global__ void bulk_pipeline(const uint32_t* input, uint32_t* output, uint32_t* sums, int tiles) {
    constexpr int STAGES = 3, WORDS = 256;
    __shared__ alignas(128) uint32_t stages[STAGES][WORDS];
    __shared__ alignas(16) uint32_t results[WORDS];
    __shared__ uint64_t full[STAGES], empty[STAGES];
    int thread = threadIdx.x;
    if (thread == 0) {
        for (int stage = 0; stage < STAGES; stage++) {
            barrier_init(shared_address(&full[stage]), 1);
            barrier_init(shared_address(&empty[stage]), WORDS);
        }
        asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
    }
    __syncthreads();
    if (thread >= WORDS) {
        if (thread == WORDS) {
            for (int tile = 0; tile < tiles; tile++) {
                int stage = tile % STAGES, turn = tile / STAGES;
                barrier_wait(shared_address(&empty[stage]), turn % 2 ^ 1);
                barrier_expect(shared_address(&full[stage]), WORDS * 4);
                const uint32_t* from = input + (blockIdx.x * tiles + tile) * WORDS;
                asm volatile(
                    "cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1], %2, [%3];" ::"r"(
                        shared_address(stages[stage])),
                    "l"(from), "r"(WORDS * 4), "r"(shared_address(&full[stage]))
                    : "memory");
            }
        }
    } else {
        uint32_t sum = 0;
        for (int tile = 0; tile < tiles; tile++) {
            int stage = tile % STAGES, turn = tile / STAGES;
            barrier_wait(shared_address(&full[stage]), turn % 2);
            sum = sum * 31 + stages[stage][thread ^ 1];
            barrier_arrive(shared_address(&empty[stage]));
        }
        results[thread] = sum;
    }
    asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
    __syncthreads();
    if (thread == 0) {
        asm volatile("cp.async.bulk.global.shared::cta.bulk_group [%0], [%1], %2;" ::"l"(output + blockIdx.x * WORDS),
                     "r"(shared_address(results)), "r"(WORDS * 4)
                     : "memory");
        asm volatile("cp.reduce.async.bulk.global.shared::cta.bulk_group.add.u32 [%0], [%1], %2;" ::"l"(sums),
                     "r"(shared_address(results)), "r"(WORDS * 4)
                     : "memory");
        asm volatile("cp.async.bulk.commit_group;\ncp.async.bulk.wait_group 0;" ::: "memory");
    }
}

// Each reduction that bulk copies know: 64 bytes at a time from `input`, onto what `output` holds.
extern "C" __global__ void bulk_reductions(const uint4* input, uint8_t* output) {
    __shared__ alignas(16) uint4 values[4 * 32];
    for (int at = threadIdx.x; at < 4 * 32; at += blockDim.x) values[at] = input[at];
    asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
    __syncthreads();
    if (threadIdx.x != 0) return;
    int which = 0;
#define REDUCE(what)                                                                                                       \
    asm volatile("cp.reduce.async.bulk.global.shared::cta.bulk_group." what " [%0], [%1], 64;" ::"l"(output + 64 * which), \
                 "r"(shared_address(values + 4 * which))                                                                   \
                 : "memory");                                                                                              \
    which++;
    REDUCE("add.u32") REDUCE("add.s32") REDUCE("add.u64") REDUCE("min.u32") REDUCE("min.s32") REDUCE("min.u64")
    REDUCE("min.s64") REDUCE("max.u32") REDUCE("max.s32") REDUCE("max.u64") REDUCE("max.s64") REDUCE("inc.u32")
    REDUCE("dec.u32") REDUCE("and.b32") REDUCE("or.b32") REDUCE("xor.b32") REDUCE("and.b64") REDUCE("or.b64")
    REDUCE("xor.b64") REDUCE("add.noftz.f16") REDUCE("min.f16") REDUCE("max.f16") REDUCE("add.noftz.bf16")
    REDUCE("min.bf16") REDUCE("max.bf16") REDUCE("add.f32") REDUCE("add.f64")
#undef REDUCE
    asm volatile("cp.async.bulk.commit_group;\ncp.async.bulk.wait_group 0;" ::: "memory");
}

// The blocks of a cluster add up what they have, each in its own shared memory; the first adds up their sums.
extern "C" __global__ void __cluster_dims__(4, 1, 1) cluster_sums(const uint32_t* input, uint32_t* output) {
    __shared__ uint32_t sums[128];
    __shared__ uint32_t total;
    int thread = threadIdx.x, rank = cluster_rank();
    sums[thread] = input[blockIdx.x * 128 + thread];
    for (int half = 64; half > 0; half /= 2) {
        __syncthreads();
        if (thread < half) sums[thread] += sums[thread + half];
    }
    if (thread == 0) total = 0;
    cluster_sync();
    if (thread == 0) {
        uint32_t there = at_rank(shared_address(&total), 0);
        asm volatile("red.relaxed.cluster.shared::cluster.add.u32 [%0], %1;" ::"r"(there), "r"(sums[0]) : "memory");
    }
    cluster_sync();
    uint32_t all, next;
    asm volatile("ld.shared::cluster.u32 %0, [%1];" : "=r"(all) : "r"(at_rank(shared_address(&total), 0)) : "memory");
    asm volatile("ld.shared::cluster.u32 %0, [%1];"
                 : "=r"(next)
                 : "r"(at_rank(shared_address(&sums[thread]), (rank + 1) % 4))
                 : "memory");
    output[blockIdx.x * 128 + thread] = all + 1000 * next;
    cluster_sync();
}

// Blocks send each other words, which complete at the receiver's barrier: stores, reductions, and a bulk copy from the
// sender's shared memory. The first sends one copy of the input to all.
extern "C" __global__ void __cluster_dims__(4, 1, 1) cluster_messages(const uint32_t* input, uint32_t* output) {
    __shared__ alignas(128) uint32_t inbox[128], copied[64], mine[64], common[64];
    __shared__ uint64_t barrier;
    int thread = threadIdx.x, rank = cluster_rank(), next = (rank + 1) % 4;
    uint32_t own = shared_address(&barrier);
    inbox[thread] = 7;
    if (thread < 64) mine[thread] = input[blockIdx.x * 64 + thread];
    if (thread == 0) {
        barrier_init(own, 1);
        // A word of each thread stored and another added, 64 words copied, and 64 to all.
        barrier_expect(own, 64 * 4 + 64 * 4 + 256 + 256);
    }
    asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
    cluster_sync();
    uint32_t to = at_rank(shared_address(&inbox[thread]), next), there = at_rank(own, next);
    if (thread < 64) {
        asm volatile("st.async.weak.shared::cluster.mbarrier::complete_tx::bytes.u32 [%0], %1, [%2];" ::"r"(to),
                     "r"(mine[thread] + rank), "r"(there)
                     : "memory");
    } else {
        asm volatile("red.async.relaxed.cluster.shared::cluster.mbarrier::complete_tx::bytes.max.u32 [%0], %1, [%2];" ::"r"(to),
                     "r"(thread % 16), "r"(there)
                     : "memory");
    }
    if (thread == 0) {
        asm volatile("cp.async.bulk.shared::cluster.shared::cta.mbarrier::complete_tx::bytes [%0], [%1], %2, [%3];" ::"r"(
                         at_rank(shared_address(copied), next)),
                     "r"(shared_address(mine)), "r"(256), "r"(there)
                     : "memory");
        if (rank == 0) {
            asm volatile(
                "cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes.multicast::cluster [%0], [%1], %2, [%3], "
                "%4;" ::"r"(shared_address(common)),
                "l"(input + (blockIdx.x / 4) * 64), "r"(256), "r"(own), "h"(static_cast<uint16_t>(15))
                : "memory");
        }
    }
    barrier_wait(own, 0);
    output[blockIdx.x * 256 + thread] = inbox[thread];
    if (thread < 64) {
        output[blockIdx.x * 256 + 128 + thread] = copied[thread];
        output[blockIdx.x * 256 + 192 + thread] = common[thread];
    }
    cluster_sync();
}

// Warps of a block hand a token on, each by a barrier of its own, with the state that an arrival gives.
extern "C" __global__ void barrier_states(uint32_t* output, int rounds) {
    __shared__ uint64_t barrier;
    __shared__ uint32_t words[2][128];
    int thread = threadIdx.x;
    if (thread == 0) barrier_init(shared_address(&barrier), blockDim.x);
    __syncthreads();
    uint32_t value = thread, at = shared_address(&barrier);
    for (int round = 0; round < rounds; round++) {
        words[round % 2][thread] = value;
        uint64_t state;
        asm volatile("mbarrier.arrive.shared::cta.b64 %0, [%1];" : "=l"(state) : "r"(at) : "memory");
        uint32_t done;
        do {
            asm volatile(
                "{\n.reg .pred p;\nmbarrier.test_wait.shared::cta.b64 p, [%1], %2;\nselp.u32 %0, 1, 0, p;\n}"
                : "=r"(done)
                : "r"(at), "l"(state)
                : "memory");
        } while (!done);
        value = value * 3 + words[round % 2][(thread + 33) % blockDim.x];
    }
    output[blockIdx.x * blockDim.x + thread] = value;
}
