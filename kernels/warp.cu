// Warp-wide operations.

// All shuffle modes and segment widths, for 32- and 64-bit values; and the predicate each one gives.
extern "C" __global__ void shuffles(const int* in, int* out) {
    unsigned i = blockIdx.x * blockDim.x + threadIdx.x;
    int v = in[i];
    int* row = out + 32 * i;
    int k = 0;
    for (int width = 32; width >= 2; width /= 2) {
        row[k++] = __shfl_sync(0xffffffffu, v, v & 31, width);
        row[k++] = __shfl_up_sync(0xffffffffu, v, 3, width);
        row[k++] = __shfl_down_sync(0xffffffffu, v, 1, width);
        row[k++] = __shfl_xor_sync(0xffffffffu, v, width / 2, width);
    }
    row[k++] = __shfl_sync(0xffffffffu, v, -1);
    row[k++] = __shfl_xor_sync(0xffffffffu, v, 31);
    row[k++] = (int)(__shfl_down_sync(0xffffffffu, (long long)v << 20 | i, 5) >> 10);
    row[k++] = __float_as_int(__shfl_up_sync(0xffffffffu, __int_as_float(v), 7));
    row[k++] = (int)__shfl_xor_sync(0xffffffffu, (double)v, 9);
    unsigned inside, value;
    asm volatile("{ .reg .pred p; shfl.sync.down.b32 %0|p, %2, 4, 0x181f, 0xffffffff; selp.u32 %1, 1, 0, p; }"
                 : "=r"(value), "=r"(inside)
                 : "r"(v));
    row[k++] = (int)value;
    row[k++] = (int)inside;
    asm volatile("{ .reg .pred p; shfl.sync.idx.b32 %0|p, %2, %3, 0x1c03, 0xffffffff; selp.u32 %1, 1, 0, p; }"
                 : "=r"(value), "=r"(inside)
                 : "r"(v), "r"(i % 9));
    row[k++] = (int)value;
    row[k++] = (int)inside;
    while (k < 32) row[k++] = 0;
}

extern "C" __global__ void votes(const int* in, unsigned* out) {
    unsigned i = blockIdx.x * blockDim.x + threadIdx.x, lane = threadIdx.x % 32;
    int v = in[i];
    unsigned* row = out + 12 * i;
    row[0] = __all_sync(0xffffffffu, v > 0);
    row[1] = __any_sync(0xffffffffu, v > 900);
    row[2] = __ballot_sync(0xffffffffu, v & 1);
    row[3] = __uni_sync(0xffffffffu, v > 500);
    row[4] = __match_any_sync(0xffffffffu, v % 4);
    int same;
    row[5] = __match_all_sync(0xffffffffu, v / 500, &same);
    row[6] = (unsigned)same;
    row[7] = __match_any_sync(0xffffffffu, (long long)(v % 3) << 40);
    row[8] = __match_all_sync(0xffffffffu, 1ull << 33, &same) + (unsigned)same;
    row[9] = __activemask();
    // Under a partial mask: the even lanes alone.
    row[10] = row[11] = 0;
    if (lane % 2 == 0) {
        row[10] = __ballot_sync(0x55555555u, v & 2);
        row[11] = __any_sync(0x55555555u, v > 990) | __all_sync(0x55555555u, v > 10) << 1;
    }
}

extern "C" __global__ void partial_masks(const unsigned* in, unsigned* out) {
    unsigned i = blockIdx.x * blockDim.x + threadIdx.x, lane = threadIdx.x % 32, v = in[i];
    __shared__ unsigned staged[256];
    unsigned r = 0;
    // Three groups of lanes take different paths, each with its own synchronization.
    if (lane < 8) {
        r = __reduce_add_sync(0x000000ffu, v);
        staged[threadIdx.x] = r + lane;
        __syncwarp(0x000000ffu);
        r = staged[threadIdx.x ^ 1];
    } else if (lane < 24) {
        for (unsigned d = 4; d > 0; d /= 2) v = max(v, __shfl_xor_sync(0x00ffff00u, v, d, 8));
        r = v;
        r ^= __reduce_or_sync(0x00ffff00u, 1u << lane);
    } else {
        r = __match_any_sync(0xff000000u, v & 3);
        r += __shfl_sync(0xff000000u, v, 25);
    }
    __syncwarp();
    out[i] = r + __shfl_sync(0xffffffffu, r, 31);
}

extern "C" __global__ void lane_registers(unsigned* out) {
    unsigned t = threadIdx.x + threadIdx.y * blockDim.x + threadIdx.z * blockDim.x * blockDim.y;
    unsigned block = blockIdx.x + blockIdx.y * gridDim.x + blockIdx.z * gridDim.x * gridDim.y;
    unsigned size = blockDim.x * blockDim.y * blockDim.z;
    unsigned* row = out + 20 * (block * size + t);
#define REGISTER(NAME, AT) asm volatile("mov.u32 %0, %" NAME ";" : "=r"(row[AT]));
    REGISTER("%laneid", 0) REGISTER("%lanemask_eq", 1) REGISTER("%lanemask_le", 2) REGISTER("%lanemask_lt", 3)
    REGISTER("%lanemask_ge", 4) REGISTER("%lanemask_gt", 5) REGISTER("%tid.x", 6) REGISTER("%tid.y", 7)
    REGISTER("%tid.z", 8) REGISTER("%ntid.x", 9) REGISTER("%ntid.y", 10) REGISTER("%ntid.z", 11)
    REGISTER("%ctaid.x", 12) REGISTER("%ctaid.y", 13) REGISTER("%ctaid.z", 14) REGISTER("%nctaid.x", 15)
    REGISTER("%nctaid.y", 16) REGISTER("%nctaid.z", 17)
    unsigned smid, count, warp, warps;
    asm volatile("mov.u32 %0, %%smid;" : "=r"(smid));
    asm volatile("mov.u32 %0, %%nsmid;" : "=r"(count));
    asm volatile("mov.u32 %0, %%warpid;" : "=r"(warp));
    asm volatile("mov.u32 %0, %%nwarpid;" : "=r"(warps));
    row[18] = (smid < count) | (warp < warps) << 1 | (warpSize == 32) << 2;
    unsigned dynamic, total;
    asm volatile("mov.u32 %0, %%dynamic_smem_size;" : "=r"(dynamic));
    asm volatile("mov.u32 %0, %%total_smem_size;" : "=r"(total));
    row[19] = dynamic << 1 | (total >= dynamic);
}
