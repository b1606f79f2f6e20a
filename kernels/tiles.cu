// Tiles as libraries make them. A product of halves and one of bytes by `mma`, whose operands `cp.async` brings in stages
// ahead; one of halves by `wgmma`, whose operands tensor maps bring to the blocks of a cluster, each a part for all; one
// of 8-bit floats by `wgmma` from matrices packed on the host, brought and taken away by bulk copies.

#include <cstdint>
#include <cuda_fp16.h>

__device__ uint32_t shared_address(const void *pointer) {
    return static_cast<uint32_t>(__cvta_generic_to_shared(pointer));
}

// Four matrices of 8 rows of 16 bytes.
__device__ void load_4(uint32_t *r, uint32_t row) {
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0, %1, %2, %3}, [%4];"
                 : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3]) : "r"(row) : "memory");
}

__device__ void load_4_turned(uint32_t *r, uint32_t row) {
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0, %1, %2, %3}, [%4];"
                 : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3]) : "r"(row) : "memory");
}

__device__ void multiply(float *d, const uint32_t *a, const uint32_t *b) {
    asm volatile("mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, "
                 "{%8, %9}, {%0, %1, %2, %3};"
                 : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
                 : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]));
}

__device__ void multiply(int *d, const uint32_t *a, const uint32_t *b) {
    asm volatile("mma.sync.aligned.m16n8k32.row.col.satfinite.s32.s8.s8.s32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, "
                 "{%8, %9}, {%0, %1, %2, %3};"
                 : "+r"(d[0]), "+r"(d[1]), "+r"(d[2]), "+r"(d[3])
                 : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]));
}

// 16 bytes to shared memory, or zeros.
__device__ void fetch(uint32_t to, const void *from, bool inside) {
    asm volatile("cp.async.cg.shared.global.L2::128B [%0], [%1], 16, %2;"
                 ::"r"(to), "l"(from), "r"(inside ? 16 : 0) : "memory");
}

// C = A * B for a block of four warps, 128 x 64 of C, each warp 64 x 32, in stages of 64 bytes of a line of A. The parts
// of a line in shared memory change places with the line, so that ldmatrix has no conflicts. Lines are multiples of 16
// bytes, all else may end anywhere: what is not there counts as zero and is not stored.
//
// Halves have B by rows, whose matrices are turned as they are loaded; bytes have it by columns.
template <class Factor, class Sum>
__device__ void staged(const Factor *a, const Factor *b, Sum *c, int m, int n, int k) {
    constexpr bool TURNED = sizeof(Factor) == 2;
    constexpr int STAGES = 4, ROWS = 128, COLUMNS = 64, EACH = 16 / sizeof(Factor), DEPTH = 4 * EACH;
    __shared__ alignas(128) uint4 of_a[STAGES][ROWS * 4];
    __shared__ alignas(128) uint4 of_b[STAGES][COLUMNS * 4];
    int thread = threadIdx.x, lane = thread % 32, warp = thread / 32;
    int row = blockIdx.y * ROWS, column = blockIdx.x * COLUMNS;
    // Lines of four parts change every second line, lines of eight every one.
    auto four = [](int line, int part) { return line * 4 + (part ^ (line / 2 & 3)); };
    auto eight = [](int line, int part) { return line * 8 + (part ^ (line & 7)); };
    auto bring = [&](int stage) {
        int start = stage * DEPTH;
        if (start < k) {
            uint4 *left = of_a[stage % STAGES], *right = of_b[stage % STAGES];
            for (int part = thread; part < ROWS * 4; part += 128) {
                int line = row + part / 4, at = start + part % 4 * EACH;
                bool inside = line < m && at < k;
                fetch(shared_address(&left[four(part / 4, part % 4)]), inside ? a + (size_t)line * k + at : a, inside);
            }
            for (int part = thread; part < COLUMNS * 4; part += 128) {
                if constexpr (TURNED) {
                    int line = start + part / 8, at = column + part % 8 * EACH;
                    bool inside = line < k && at < n;
                    fetch(shared_address(&right[eight(part / 8, part % 8)]), inside ? b + (size_t)line * n + at : b, inside);
                } else {
                    int line = column + part / 4, at = start + part % 4 * EACH;
                    bool inside = line < n && at < k;
                    fetch(shared_address(&right[four(part / 4, part % 4)]), inside ? b + (size_t)line * k + at : b, inside);
                }
            }
        }
        asm volatile("cp.async.commit_group;" ::: "memory");
    };
    int in_row = 64 * (warp / 2), in_column = 32 * (warp % 2);
    uint32_t left[2][4][4], right[2][4][2];
    auto load = [&](int stage, int step) {
        const uint4 *from_a = of_a[stage % STAGES], *from_b = of_b[stage % STAGES];
        for (int tile = 0; tile < 4; tile++)
            load_4(left[step][tile], shared_address(&from_a[four(in_row + 16 * tile + lane % 16, 2 * step + lane / 16)]));
        for (int tile = 0; tile < 4; tile += 2)
            if constexpr (TURNED)
                load_4_turned(right[step][tile],
                              shared_address(&from_b[eight(16 * step + lane % 16, in_column / 8 + tile + lane / 16)]));
            else
                load_4(right[step][tile],
                       shared_address(&from_b[four(in_column + 8 * tile + lane % 8 + lane / 16 * 8, 2 * step + lane / 8 % 2)]));
    };
    Sum sums[4][4][4] = {};
    for (int stage = 0; stage < STAGES - 1; stage++)
        bring(stage);
    for (int stage = 0; stage * DEPTH < k; stage++) {
        asm volatile("cp.async.wait_group %0;" ::"n"(STAGES - 2) : "memory");
        __syncthreads();
        load(stage, 0);
        bring(stage + STAGES - 1);
        for (int step = 0; step < 2; step++) {
            if (step == 0)
                load(stage, 1);
            for (int tile = 0; tile < 4; tile++)
                for (int other = 0; other < 4; other++)
                    multiply(sums[tile][other], left[step][tile], right[step][other]);
        }
    }
    for (int tile = 0; tile < 4; tile++)
        for (int other = 0; other < 4; other++)
            for (int part = 0; part < 4; part++) {
                int at = row + in_row + 16 * tile + 8 * (part / 2) + lane / 4;
                int to = column + in_column + 8 * other + 2 * (lane % 4) + part % 2;
                if (at < m && to < n)
                    c[(size_t)at * n + to] = sums[tile][other][part];
            }
}

extern "C" __global__ void __launch_bounds__(128)
    staged_halves(const __half *a, const __half *b, float *c, int m, int n, int k) {
    staged(a, b, c, m, n, k);
}

extern "C" __global__ void __launch_bounds__(128)
    staged_bytes(const signed char *a, const signed char *b, int *c, int m, int n, int k) {
    staged(a, b, c, m, n, k);
}

struct alignas(64) Map {
    uint8_t bytes[128];
};

__device__ void barrier_init(uint32_t barrier, uint32_t count) {
    asm volatile("mbarrier.init.shared::cta.b64 [%0], %1;" ::"r"(barrier), "r"(count) : "memory");
}

__device__ void barrier_expect(uint32_t barrier, uint32_t bytes) {
    asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;" ::"r"(barrier), "r"(bytes) : "memory");
}

__device__ void barrier_wait(uint32_t barrier, uint32_t parity) {
    asm volatile(
        "{\n"
        ".reg .pred done;\n"
        "again:\n"
        "mbarrier.try_wait.parity.acquire.cta.shared::cta.b64 done, [%0], %1;\n"
        "@!done bra again;\n"
        "}" ::"r"(barrier), "r"(parity)
        : "memory");
}

// Arrives at the barrier of the block with this rank.
__device__ void barrier_arrive(uint32_t barrier, uint32_t rank) {
    asm volatile(
        "{\n"
        ".reg .b32 there;\n"
        "mapa.shared::cluster.u32 there, %0, %1;\n"
        "mbarrier.arrive.release.cluster.shared::cluster.b64 _, [there];\n"
        "}" ::"r"(barrier), "r"(rank)
        : "memory");
}

__device__ void cluster_sync() {
    asm volatile("barrier.cluster.arrive.release.aligned;\nbarrier.cluster.wait.acquire.aligned;" ::: "memory");
}

// What wgmma takes for a matrix in shared memory; `leading` and `stride` are in bytes.
__device__ uint64_t descriptor(uint32_t address, uint32_t leading, uint32_t stride, uint64_t swizzle) {
    return (address & 0x3ffff) >> 4 | (uint64_t)(leading >> 4) << 16 | (uint64_t)(stride >> 4) << 32 | swizzle << 62;
}

__device__ void products_begin() { asm volatile("wgmma.fence.sync.aligned;" ::: "memory"); }

__device__ void products_commit() { asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory"); }

template <int LEFT> __device__ void products_wait() {
    asm volatile("wgmma.wait_group.sync.aligned %0;" ::"n"(LEFT) : "memory");
}

// D = A * B, or D += A * B: 64 x 128 by 16 halves, B by rows.
__device__ void multiply_halves(float *d, uint64_t a, uint64_t b, int more) {
    asm volatile(
        "{\n"
        ".reg .pred more;\n"
        "setp.ne.b32 more, %66, 0;\n"
        "wgmma.mma_async.sync.aligned.m64n128k16.f32.f16.f16 "
        "{%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15, "
        "%16, %17, %18, %19, %20, %21, %22, %23, %24, %25, %26, %27, %28, %29, %30, %31, "
        "%32, %33, %34, %35, %36, %37, %38, %39, %40, %41, %42, %43, %44, %45, %46, %47, "
        "%48, %49, %50, %51, %52, %53, %54, %55, %56, %57, %58, %59, %60, %61, %62, %63}, %64, %65, more, 1, 1, 0, 1;\n"
        "}"
        : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3]), "+f"(d[4]), "+f"(d[5]), "+f"(d[6]), "+f"(d[7]),
          "+f"(d[8]), "+f"(d[9]), "+f"(d[10]), "+f"(d[11]), "+f"(d[12]), "+f"(d[13]), "+f"(d[14]), "+f"(d[15]),
          "+f"(d[16]), "+f"(d[17]), "+f"(d[18]), "+f"(d[19]), "+f"(d[20]), "+f"(d[21]), "+f"(d[22]), "+f"(d[23]),
          "+f"(d[24]), "+f"(d[25]), "+f"(d[26]), "+f"(d[27]), "+f"(d[28]), "+f"(d[29]), "+f"(d[30]), "+f"(d[31]),
          "+f"(d[32]), "+f"(d[33]), "+f"(d[34]), "+f"(d[35]), "+f"(d[36]), "+f"(d[37]), "+f"(d[38]), "+f"(d[39]),
          "+f"(d[40]), "+f"(d[41]), "+f"(d[42]), "+f"(d[43]), "+f"(d[44]), "+f"(d[45]), "+f"(d[46]), "+f"(d[47]),
          "+f"(d[48]), "+f"(d[49]), "+f"(d[50]), "+f"(d[51]), "+f"(d[52]), "+f"(d[53]), "+f"(d[54]), "+f"(d[55]),
          "+f"(d[56]), "+f"(d[57]), "+f"(d[58]), "+f"(d[59]), "+f"(d[60]), "+f"(d[61]), "+f"(d[62]), "+f"(d[63])
        : "l"(a), "l"(b), "r"(more));
}

// D += A * B: 64 x 64 by 32 floats of 8 bits, of two formats.
__device__ void multiply_small(float *d, uint64_t a, uint64_t b) {
    asm volatile(
        "wgmma.mma_async.sync.aligned.m64n64k32.f32.e4m3.e5m2 "
        "{%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15, "
        "%16, %17, %18, %19, %20, %21, %22, %23, %24, %25, %26, %27, %28, %29, %30, %31}, %32, %33, 1, 1, 1;"
        : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3]), "+f"(d[4]), "+f"(d[5]), "+f"(d[6]), "+f"(d[7]),
          "+f"(d[8]), "+f"(d[9]), "+f"(d[10]), "+f"(d[11]), "+f"(d[12]), "+f"(d[13]), "+f"(d[14]), "+f"(d[15]),
          "+f"(d[16]), "+f"(d[17]), "+f"(d[18]), "+f"(d[19]), "+f"(d[20]), "+f"(d[21]), "+f"(d[22]), "+f"(d[23]),
          "+f"(d[24]), "+f"(d[25]), "+f"(d[26]), "+f"(d[27]), "+f"(d[28]), "+f"(d[29]), "+f"(d[30]), "+f"(d[31])
        : "l"(a), "l"(b));
}

// C = A * B, 128 x 128 a block, of three groups of warps: one brings, two multiply 64 rows each. Two blocks that follow
// each other down the rows of C are a cluster: they have the same part of B, of which each brings one half to both.
// A and B go by rows, through maps of boxes of 64 x 64 that are swizzled by 128 bytes; at the edges they bring zeros.
extern "C" __global__ void __cluster_dims__(1, 2, 1) __launch_bounds__(384)
    cluster_halves(const __grid_constant__ Map map_a, const __grid_constant__ Map map_b, float *c, int m, int n, int k) {
    constexpr int STAGES = 3, BOX = 64 * 64 * 2;
    // A stage: the rows of A, one box for each group; then B, one box for each half of the columns.
    extern __shared__ __align__(1024) uint8_t memory[];
    __shared__ uint64_t full[STAGES], empty[STAGES];
    int thread = threadIdx.x, group = thread / 128;
    uint32_t rank;
    asm volatile("mov.u32 %0, %cluster_ctarank;" : "=r"(rank));
    if (thread == 0) {
        for (int stage = 0; stage < STAGES; stage++) {
            barrier_init(shared_address(&full[stage]), 1);
            barrier_init(shared_address(&empty[stage]), 4);
        }
        asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
    }
    cluster_sync();
    int row = blockIdx.y * 128, column = blockIdx.x * 128, stages = (k + 63) / 64;
    if (group == 2) {
        asm volatile("setmaxnreg.dec.sync.aligned.u32 40;");
        uint32_t chosen;
        asm volatile("{\n.reg .pred p;\nelect.sync _|p, 0xffffffff;\nselp.u32 %0, 1, 0, p;\n}" : "=r"(chosen));
        if (thread / 32 == 8 && chosen) {
            for (int at = 0; at < stages; at++) {
                int stage = at % STAGES, turn = at / STAGES;
                uint32_t to = shared_address(memory) + stage * 4 * BOX, barrier = shared_address(&full[stage]);
                barrier_wait(shared_address(&empty[stage]), turn % 2 ^ 1);
                barrier_expect(barrier, 4 * BOX);
                for (int part = 0; part < 2; part++)
                    asm volatile("cp.async.bulk.tensor.2d.shared::cluster.global.mbarrier::complete_tx::bytes "
                                 "[%0], [%1, {%3, %4}], [%2];"
                                 ::"r"(to + part * BOX), "l"(&map_a), "r"(barrier), "r"(at * 64), "r"(row + part * 64)
                                 : "memory");
                asm volatile("cp.async.bulk.tensor.2d.shared::cluster.global.mbarrier::complete_tx::bytes.multicast::cluster "
                             "[%0], [%1, {%3, %4}], [%2], %5;"
                             ::"r"(to + (2 + rank) * BOX), "l"(&map_b), "r"(barrier), "r"(column + (int)rank * 64),
                             "r"(at * 64), "h"((uint16_t)3)
                             : "memory");
            }
        }
    } else {
        asm volatile("setmaxnreg.inc.sync.aligned.u32 232;");
        float sums[64];
        for (int at = 0; at < stages; at++) {
            int stage = at % STAGES, turn = at / STAGES;
            uint32_t from = shared_address(memory) + stage * 4 * BOX;
            barrier_wait(shared_address(&full[stage]), turn % 2);
            products_begin();
            for (int step = 0; step < 4; step++) {
                uint64_t left = descriptor(from + group * BOX + step * 32, 16, 1024, 1);
                uint64_t right = descriptor(from + 2 * BOX + step * 2048, BOX, 1024, 1);
                multiply_halves(sums, left, right, at + step);
            }
            products_commit();
            // The products before these are done, so both blocks may bring anew what they read.
            products_wait<1>();
            if (at > 0 && thread % 128 < 2)
                barrier_arrive(shared_address(&empty[(at - 1) % STAGES]), thread % 128);
        }
        products_wait<0>();
        int lane = thread % 32, first = row + group * 64 + thread / 32 % 4 * 16 + lane / 4;
        for (int part = 0; part < 64; part++) {
            int at = first + part / 2 % 2 * 8, to = column + part / 4 * 8 + lane % 4 * 2 + part % 2;
            if (at < m && to < n)
                c[(size_t)at * n + to] = sums[part];
        }
    }
    // A block stays until the other has written no more into its shared memory.
    cluster_sync();
}

// C = A * B, 64 x 64 a block, of floats of 8 bits. A and B are packed: for each 64 lines and 64 bytes of a line, the first
// 16 bytes of all lines, then the next. C is packed by 64 x 64 too, in halves. Warps 4 brings, the others multiply.
extern "C" __global__ void __launch_bounds__(160) packed_small(const uint8_t *a, const uint8_t *b, __half *c, int stages) {
    constexpr int STAGES = 4, PART = 64 * 64;
    __shared__ alignas(128) uint8_t of_a[STAGES][PART], of_b[STAGES][PART];
    __shared__ alignas(128) __half result[64][64];
    __shared__ uint64_t full[STAGES], empty[STAGES];
    int thread = threadIdx.x, lane = thread % 32;
    if (thread == 0) {
        for (int stage = 0; stage < STAGES; stage++) {
            barrier_init(shared_address(&full[stage]), 1);
            barrier_init(shared_address(&empty[stage]), 4);
        }
        asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
    }
    __syncthreads();
    if (thread >= 128) {
        if (lane == 0) {
            uint64_t policy;
            asm volatile("createpolicy.fractional.L2::evict_first.b64 %0, 1.0;" : "=l"(policy));
            for (int at = 0; at < stages; at++) {
                int stage = at % STAGES, turn = at / STAGES;
                uint32_t barrier = shared_address(&full[stage]);
                barrier_wait(shared_address(&empty[stage]), turn % 2 ^ 1);
                barrier_expect(barrier, 2 * PART);
                asm volatile("cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes.L2::cache_hint "
                             "[%0], [%1], %2, [%3], %4;"
                             ::"r"(shared_address(of_a[stage])), "l"(a + (size_t)(blockIdx.y * stages + at) * PART),
                             "r"(PART), "r"(barrier), "l"(policy) : "memory");
                asm volatile("cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1], %2, [%3];"
                             ::"r"(shared_address(of_b[stage])), "l"(b + (size_t)(blockIdx.x * stages + at) * PART),
                             "r"(PART), "r"(barrier) : "memory");
            }
        }
    } else {
        float sums[32] = {};
        for (int at = 0; at < stages; at++) {
            int stage = at % STAGES, turn = at / STAGES;
            barrier_wait(shared_address(&full[stage]), turn % 2);
            products_begin();
            for (int step = 0; step < 2; step++)
                multiply_small(sums, descriptor(shared_address(of_a[stage]) + step * 2048, 1024, 128, 0),
                               descriptor(shared_address(of_b[stage]) + step * 2048, 1024, 128, 0));
            products_commit();
            products_wait<0>();
            if (lane == 0)
                barrier_arrive(shared_address(&empty[stage]), 0);
        }
        int first = thread / 32 * 16 + lane % 16;
        for (int part = 0; part < 4; part++) {
            uint32_t packed[4];
            for (int pair = 0; pair < 4; pair++) {
                __half2 two = __floats2half2_rn(sums[8 * part + 2 * pair], sums[8 * part + 2 * pair + 1]);
                packed[pair] = *(uint32_t *)&two;
            }
            asm volatile("stmatrix.sync.aligned.m8n8.x4.shared.b16 [%0], {%1, %2, %3, %4};"
                         ::"r"(shared_address(&result[first][16 * part + lane / 16 * 8])), "r"(packed[0]), "r"(packed[1]),
                         "r"(packed[2]), "r"(packed[3]) : "memory");
        }
        asm volatile("fence.proxy.async.shared::cta;\nbar.sync 1, 128;" ::: "memory");
        if (thread == 0) {
            asm volatile("cp.async.bulk.global.shared::cta.bulk_group [%0], [%1], %2;"
                         ::"l"(c + (size_t)(blockIdx.y * gridDim.x + blockIdx.x) * 64 * 64), "r"(shared_address(result)),
                         "r"(64 * 64 * 2) : "memory");
            asm volatile("cp.async.bulk.commit_group;\ncp.async.bulk.wait_group.read 0;" ::: "memory");
        }
    }
}
