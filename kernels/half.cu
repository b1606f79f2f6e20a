// Half and bfloat16 arithmetic, single and paired.
#include <cuda_bf16.h>
#include <cuda_fp16.h>

template <typename T> __device__ unsigned short as_bits(T x);
template <> __device__ unsigned short as_bits(__half x) { return __half_as_ushort(x); }
template <> __device__ unsigned short as_bits(__nv_bfloat16 x) { return __bfloat16_as_ushort(x); }

template <typename T> __device__ void operations(T x, T y, T z, unsigned short* row) {
    row[0] = as_bits(__hadd_rn(x, y));
    row[1] = as_bits(__hsub_rn(x, y));
    row[2] = as_bits(__hmul_rn(x, y));
    row[3] = as_bits(__hfma(x, y, z));
    row[4] = as_bits(__hmin_nan(x, y));
    row[5] = as_bits(__hmax_nan(x, y));
    row[6] = as_bits(__hfma_relu(x, y, z));
    row[7] = as_bits(__hdiv(x, y));
    row[8] = as_bits(__hmin(x, y));
    row[9] = as_bits(__hmax(x, y));
    row[10] = (unsigned short)(__heq(x, y) | __hne(x, y) << 1 | __hlt(x, y) << 2 | __hle(x, y) << 3 | __hgt(x, y) << 4 |
                               __hge(x, y) << 5 | __hequ(x, y) << 6 | __hneu(x, y) << 7 | __hltu(x, y) << 8 |
                               __hleu(x, y) << 9 | __hgtu(x, y) << 10 | __hgeu(x, y) << 11 | __hisnan(x) << 12 |
                               (__hisinf(x) != 0) << 13);
    row[11] = as_bits(htrunc(x));
    row[12] = as_bits(hrint(x));
    row[13] = as_bits(hfloor(x));
    row[14] = as_bits(hceil(x));
    row[15] = as_bits(__hneg(__habs(x)));
}

extern "C" __global__ void half_ops(const __half* a, const __half* b, const __half* c, unsigned short* out) {
    unsigned i = blockIdx.x * blockDim.x + threadIdx.x;
    operations(a[i], b[i], c[i], out + 16 * i);
    out[16 * i + 15] = as_bits(__hadd_sat(a[i], b[i]));
}

extern "C" __global__ void bf16_ops(const __nv_bfloat16* a, const __nv_bfloat16* b, const __nv_bfloat16* c,
                                    unsigned short* out) {
    unsigned i = blockIdx.x * blockDim.x + threadIdx.x;
    operations(a[i], b[i], c[i], out + 16 * i);
}

extern "C" __global__ void half2_ops(const __half2* a, const __half2* b, const __half2* c, __half2* out) {
    unsigned i = blockIdx.x * blockDim.x + threadIdx.x;
    __half2 x = a[i], y = b[i], z = c[i];
    __half2* row = out + 16 * i;
    row[0] = __hadd2_rn(x, y);
    row[1] = __hsub2_rn(x, y);
    row[2] = __hmul2_rn(x, y);
    row[3] = __hfma2(x, y, z);
    row[4] = __hfma2_relu(x, y, z);
    row[5] = __hfma2_sat(x, y, z);
    row[6] = __hmin2_nan(x, y);
    row[7] = __hmax2(x, y);
    row[8] = __heq2(x, y);
    row[9] = __hgtu2(x, y);
    row[10] = __lowhigh2highlow(x);
    row[11] = __lows2half2(x, y);
    row[12] = __hadd2_sat(x, y);
    row[13] = __hneg2(x);
    row[14] = __habs2(x);
    unsigned mask = __hlt2_mask(x, y);
    row[15] = *(__half2*)&mask;
}

extern "C" __global__ void bf162_ops(const __nv_bfloat162* a, const __nv_bfloat162* b, const __nv_bfloat162* c,
                                     __nv_bfloat162* out) {
    unsigned i = blockIdx.x * blockDim.x + threadIdx.x;
    __nv_bfloat162 x = a[i], y = b[i], z = c[i];
    __nv_bfloat162* row = out + 10 * i;
    row[0] = __hadd2_rn(x, y);
    row[1] = __hsub2_rn(x, y);
    row[2] = __hmul2_rn(x, y);
    row[3] = __hfma2(x, y, z);
    row[4] = __hfma2_relu(x, y, z);
    row[5] = __hmin2_nan(x, y);
    row[6] = __hmax2(x, y);
    row[7] = __hle2(x, y);
    row[8] = __hneg2(x);
    row[9] = __habs2(x);
}

// Functions of one half, by float approximations rounded to half.
extern "C" __global__ void half_functions(const __half* in, __half* out) {
    unsigned i = blockIdx.x * blockDim.x + threadIdx.x;
    __half x = in[i];
    __half* row = out + 12 * i;
    row[0] = hsqrt(x);
    row[1] = hrsqrt(x);
    row[2] = hrcp(x);
    row[3] = hexp(x);
    row[4] = hexp2(x);
    row[5] = hexp10(x);
    row[6] = hlog(x);
    row[7] = hlog2(x);
    row[8] = hlog10(x);
    row[9] = hsin(x);
    row[10] = hcos(x);
    row[11] = htanh(x);
}

// Dot products of half vectors with a float accumulator, and the tree in half2.
extern "C" __global__ void half_dot(const __half2* a, const __half2* b, float* wide, __half* narrow, unsigned n) {
    float sum = 0.0f;
    __half2 pair = __float2half2_rn(0.0f);
    for (unsigned i = 0; i < n; i++) {
        float2 x = __half22float2(a[threadIdx.x * n + i]), y = __half22float2(b[threadIdx.x * n + i]);
        sum = fmaf(x.x, y.x, sum);
        sum = fmaf(x.y, y.y, sum);
        pair = __hfma2(a[threadIdx.x * n + i], b[threadIdx.x * n + i], pair);
    }
    wide[threadIdx.x] = sum;
    narrow[threadIdx.x] = __hadd(__low2half(pair), __high2half(pair));
}
