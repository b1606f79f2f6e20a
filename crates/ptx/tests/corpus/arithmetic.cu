// Arithmetic in every type, conversions, bits, atomics and warps.
#include <cuda_bf16.h>
#include <cuda_fp16.h>
#include <cooperative_groups.h>
#include <cooperative_groups/reduce.h>

namespace cg = cooperative_groups;

__global__ void floating(float *f, double *d, int n) {
    int i = threadIdx.x;
    f[i] = sinf(f[i]) + __expf(f[i]) + rsqrtf(f[i]) + fmaf(f[i], 2.0f, -0.0f) + __fdiv_rz(f[i], 3.0f) + tanhf(f[i]);
    d[i] = exp(d[i]) + sqrt(d[i]) + __ddiv_ru(1.0, d[i]) + fmod(d[i], 3.0) + (double)n + copysign(d[i], -1.0);
    f[i] += __int2float_rd(n) + __saturatef(f[i]) + fminf(f[i], __int_as_float(0x7fc00000)) + ldexpf(f[i], n);
    if (isnan(f[i]) || isinf(d[i])) f[i] = (float)d[i];
}

__global__ void halves(__half *h, __half2 *h2, __nv_bfloat16 *b, __nv_bfloat162 *b2) {
    int i = threadIdx.x;
    h[i] = __hfma(h[i], h[i + 1], __float2half(1.5f)) + hexp2(h[i]);
    h2[i] = __hfma2_relu(h2[i], h2[i], __half2half2(h[i]));
    b[i] = __hfma(b[i], b[i + 1], __float2bfloat16(0.5f));
    b2[i] = __hmax2(b2[i], __hadd2(b2[i], b2[i + 1]));
    atomicAdd(h2 + 1, h2[i]);
}

__global__ void integers(int *p, unsigned *u, long long *l, unsigned char *c) {
    int i = threadIdx.x;
    p[i] = __mulhi(p[i], p[i + 1]) + __popc(u[i]) + __clz(p[i]) + __ffs(p[i]) + __brev(u[i]) + __dp4a(p[i], p[i + 1], 7);
    u[i] = __byte_perm(u[i], u[i + 1], 0x5410) + __funnelshift_l(u[i], u[i + 1], i) + __sad(p[i], p[i + 1], u[i]) + __umul24(u[i], 3);
    l[i] = l[i] / l[i + 1] + l[i] % 10 + (l[i] >> 3) + __mul64hi(l[i], l[i + 1]);
    c[i] = (unsigned char)(c[i] + p[i]) / 3;
    u[i] = (u[i] & p[i]) ^ (~u[i + 1] | 0xF0F0u);
    int4 v = *(int4 *)(p + 4 * i);
    *(int4 *)(p + 4 * i) = make_int4(v.w, v.z, v.y, v.x);
    __int128 wide = (__int128)l[i] * l[i + 1];
    l[i + 2] = (long long)(wide >> 64);
}

__global__ void together(int *p, unsigned *u, float *f, unsigned long long *w) {
    __shared__ float tile[64];
    unsigned lane = threadIdx.x & 31;
    u[0] = __ballot_sync(~0u, p[lane] > 3) + __activemask() + __match_any_sync(~0u, p[lane]) + __reduce_add_sync(~0u, u[lane]);
    p[lane] = __shfl_down_sync(~0u, p[lane], 4) + __shfl_sync(0xFFFF, p[lane], 3, 16) + __any_sync(~0u, p[lane]);
    tile[threadIdx.x] = f[threadIdx.x];
    int votes = __syncthreads_count(tile[threadIdx.x ^ 1] > 0.0f);
    atomicAdd(f, tile[0] + votes);
    atomicCAS(u, 1u, 2u);
    atomicExch_block(p, 5);
    atomicMin_system(w, 7ull);
    __threadfence();
    auto warp = cg::tiled_partition<32>(cg::this_thread_block());
    p[1] = cg::reduce(warp, p[lane], cg::plus<int>());
    cg::this_grid().sync();
    __nanosleep(100);
    asm volatile("{ .reg .pred %%p; setp.ne.s32 %%p, %1, 0; @%%p mov.u32 %0, %%laneid; @!%%p mov.u32 %0, -1; }" : "=r"(p[2]) : "r"(p[3]));
}
