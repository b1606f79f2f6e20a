// One element per thread, in every scalar type. Each kernel writes a row of results per element, one per operation,
// so that a wrong operation shows as a wrong column.
#include <cuda_bf16.h>
#include <cuda_fp16.h>

// Unsigned arithmetic throughout: CUDA C++ leaves signed overflow undefined, the device wraps.
#define INTEGER(NAME, T, U, BITS, SIGNED)                                                                              \
    extern "C" __global__ void NAME(const T* a, const T* b, T* out, unsigned n) {                                      \
        unsigned i = blockIdx.x * blockDim.x + threadIdx.x;                                                            \
        if (i >= n) return;                                                                                            \
        T x = a[i], y = b[i];                                                                                          \
        T* row = out + 16 * (size_t)i;                                                                                 \
        bool divides = y != 0 && !(SIGNED && x == (T)((U)1 << (BITS - 1)) && y == (T)-1);                              \
        unsigned s = (unsigned)y & (BITS - 1);                                                                         \
        row[0] = (T)((U)x + (U)y);                                                                                     \
        row[1] = (T)((U)x - (U)y);                                                                                     \
        row[2] = (T)((unsigned long long)(U)x * (unsigned long long)(U)y);                                             \
        row[3] = divides ? (T)(x / y) : (T)0;                                                                          \
        row[4] = divides ? (T)(x % y) : (T)0;                                                                          \
        row[5] = x & y;                                                                                                \
        row[6] = x | y;                                                                                                \
        row[7] = x ^ y;                                                                                                \
        row[8] = (T)((U)x << s);                                                                                       \
        row[9] = x >> s;                                                                                               \
        row[10] = x < y ? x : y;                                                                                       \
        row[11] = x > y ? x : y;                                                                                       \
        row[12] = (T)(0 - (U)x);                                                                                       \
        row[13] = ~x;                                                                                                  \
        row[14] = (T)((x == y) | (x < y) << 1 | (x <= y) << 2 | (x != y) << 3);                                        \
        row[15] = SIGNED && x < 0 ? (T)(0 - (U)x) : x;                                                                 \
    }

INTEGER(ew_i8, signed char, unsigned char, 8, true)
INTEGER(ew_i16, short, unsigned short, 16, true)
INTEGER(ew_i32, int, unsigned, 32, true)
INTEGER(ew_i64, long long, unsigned long long, 64, true)
INTEGER(ew_u8, unsigned char, unsigned char, 8, false)
INTEGER(ew_u16, unsigned short, unsigned short, 16, false)
INTEGER(ew_u32, unsigned, unsigned, 32, false)
INTEGER(ew_u64, unsigned long long, unsigned long long, 64, false)

#define FLOAT(NAME, T, FMA, MIN, MAX, SQRT, FLOOR, CEIL, TRUNC, RINT, COPYSIGN, ABS)                                   \
    extern "C" __global__ void NAME(const T* a, const T* b, T* out, unsigned n) {                                      \
        unsigned i = blockIdx.x * blockDim.x + threadIdx.x;                                                            \
        if (i >= n) return;                                                                                            \
        T x = a[i], y = b[i];                                                                                          \
        T* row = out + 16 * (size_t)i;                                                                                 \
        row[0] = x + y;                                                                                                \
        row[1] = x - y;                                                                                                \
        row[2] = x * y;                                                                                                \
        row[3] = x / y;                                                                                                \
        row[4] = FMA(x, y, x);                                                                                         \
        row[5] = MIN(x, y);                                                                                            \
        row[6] = MAX(x, y);                                                                                            \
        row[7] = SQRT(x);                                                                                              \
        row[8] = -x;                                                                                                   \
        row[9] = ABS(x);                                                                                               \
        row[10] = FLOOR(x);                                                                                            \
        row[11] = CEIL(x);                                                                                             \
        row[12] = TRUNC(x);                                                                                            \
        row[13] = RINT(x);                                                                                             \
        row[14] = COPYSIGN(x, y);                                                                                      \
        row[15] = (T)((x < y) | (x <= y) << 1 | (x == y) << 2 | (x != y) << 3 | (x > y) << 4 | (x >= y) << 5 |         \
                      (x != x) << 6 | (!(x < y)) << 7);                                                                \
    }

FLOAT(ew_f32, float, fmaf, fminf, fmaxf, sqrtf, floorf, ceilf, truncf, rintf, copysignf, fabsf)
FLOAT(ew_f64, double, fma, fmin, fmax, sqrt, floor, ceil, trunc, rint, copysign, fabs)

#define SMALL_FLOAT(NAME, T)                                                                                           \
    extern "C" __global__ void NAME(const T* a, const T* b, T* out, unsigned n) {                                      \
        unsigned i = blockIdx.x * blockDim.x + threadIdx.x;                                                            \
        if (i >= n) return;                                                                                            \
        T x = a[i], y = b[i];                                                                                          \
        T* row = out + 8 * (size_t)i;                                                                                  \
        row[0] = __hadd(x, y);                                                                                         \
        row[1] = __hsub(x, y);                                                                                         \
        row[2] = __hmul(x, y);                                                                                         \
        row[3] = __hfma(x, y, x);                                                                                      \
        row[4] = __hmin(x, y);                                                                                         \
        row[5] = __hmax(x, y);                                                                                         \
        row[6] = __hneg(x);                                                                                            \
        row[7] = __habs(x);                                                                                            \
    }

SMALL_FLOAT(ew_f16, __half)
SMALL_FLOAT(ew_bf16, __nv_bfloat16)

#define FLOAT_PAIR(NAME, T)                                                                                            \
    extern "C" __global__ void NAME(const T* a, const T* b, T* out, unsigned n) {                                      \
        unsigned i = blockIdx.x * blockDim.x + threadIdx.x;                                                            \
        if (i >= n) return;                                                                                            \
        T x = a[i], y = b[i];                                                                                          \
        T* row = out + 8 * (size_t)i;                                                                                  \
        row[0] = __hadd2(x, y);                                                                                        \
        row[1] = __hsub2(x, y);                                                                                        \
        row[2] = __hmul2(x, y);                                                                                        \
        row[3] = __hfma2(x, y, x);                                                                                     \
        row[4] = __hmin2(x, y);                                                                                        \
        row[5] = __hmax2(x, y);                                                                                        \
        row[6] = __hneg2(x);                                                                                           \
        row[7] = __habs2(x);                                                                                           \
    }

FLOAT_PAIR(ew_half2, __half2)
FLOAT_PAIR(ew_bf162, __nv_bfloat162)

extern "C" __global__ void saxpy(float a, const float* x, float* y, unsigned n) {
    for (unsigned i = blockIdx.x * blockDim.x + threadIdx.x; i < n; i += gridDim.x * blockDim.x) y[i] = a * x[i] + y[i];
}

extern "C" __global__ void daxpby(double a, const double* x, double b, double* y, unsigned n) {
    for (unsigned i = blockIdx.x * blockDim.x + threadIdx.x; i < n; i += gridDim.x * blockDim.x)
        y[i] = __dadd_rn(__dmul_rn(a, x[i]), __dmul_rn(b, y[i]));
}

// Rows of four: 128-bit loads and stores.
extern "C" __global__ void scale4(const float4* in, float4* out, float s, unsigned n4) {
    unsigned i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= n4) return;
    float4 v = in[i];
    out[i] = make_float4(v.w * s, v.z * s, v.y * s, v.x * s);
}
