// Conversions in every rounding, with inputs that overflow, underflow and are no number.
#include <cuda_bf16.h>
#include <cuda_fp16.h>

extern "C" __global__ void f32_to_int(const float* in, unsigned long long* out) {
    unsigned i = blockIdx.x * blockDim.x + threadIdx.x;
    float x = in[i];
    unsigned long long* row = out + 16 * i;
    row[0] = (unsigned)__float2int_rn(x);
    row[1] = (unsigned)__float2int_rz(x);
    row[2] = (unsigned)__float2int_ru(x);
    row[3] = (unsigned)__float2int_rd(x);
    row[4] = __float2uint_rn(x);
    row[5] = __float2uint_rz(x);
    row[6] = __float2uint_ru(x);
    row[7] = __float2uint_rd(x);
    row[8] = (unsigned long long)__float2ll_rn(x);
    row[9] = (unsigned long long)__float2ll_rz(x);
    row[10] = (unsigned long long)__float2ll_ru(x);
    row[11] = (unsigned long long)__float2ll_rd(x);
    row[12] = __float2ull_rn(x);
    row[13] = __float2ull_rz(x);
    row[14] = __float2ull_ru(x);
    row[15] = __float2ull_rd(x);
}

extern "C" __global__ void f64_to_int(const double* in, unsigned long long* out) {
    unsigned i = blockIdx.x * blockDim.x + threadIdx.x;
    double x = in[i];
    unsigned long long* row = out + 16 * i;
    row[0] = (unsigned)__double2int_rn(x);
    row[1] = (unsigned)__double2int_rz(x);
    row[2] = (unsigned)__double2int_ru(x);
    row[3] = (unsigned)__double2int_rd(x);
    row[4] = __double2uint_rn(x);
    row[5] = __double2uint_rz(x);
    row[6] = __double2uint_ru(x);
    row[7] = __double2uint_rd(x);
    row[8] = (unsigned long long)__double2ll_rn(x);
    row[9] = (unsigned long long)__double2ll_rz(x);
    row[10] = (unsigned long long)__double2ll_ru(x);
    row[11] = (unsigned long long)__double2ll_rd(x);
    row[12] = __double2ull_rn(x);
    row[13] = __double2ull_rz(x);
    row[14] = __double2ull_ru(x);
    row[15] = __double2ull_rd(x);
}

extern "C" __global__ void int_to_f32(const unsigned long long* in, float* out) {
    unsigned i = blockIdx.x * blockDim.x + threadIdx.x;
    unsigned long long x = in[i];
    float* row = out + 16 * i;
    row[0] = __int2float_rn((int)x);
    row[1] = __int2float_rz((int)x);
    row[2] = __int2float_ru((int)x);
    row[3] = __int2float_rd((int)x);
    row[4] = __uint2float_rn((unsigned)x);
    row[5] = __uint2float_rz((unsigned)x);
    row[6] = __uint2float_ru((unsigned)x);
    row[7] = __uint2float_rd((unsigned)x);
    row[8] = __ll2float_rn((long long)x);
    row[9] = __ll2float_rz((long long)x);
    row[10] = __ll2float_ru((long long)x);
    row[11] = __ll2float_rd((long long)x);
    row[12] = __ull2float_rn(x);
    row[13] = __ull2float_rz(x);
    row[14] = __ull2float_ru(x);
    row[15] = __ull2float_rd(x);
}

extern "C" __global__ void int_to_f64(const unsigned long long* in, double* out) {
    unsigned i = blockIdx.x * blockDim.x + threadIdx.x;
    unsigned long long x = in[i];
    double* row = out + 10 * i;
    row[0] = __int2double_rn((int)x);
    row[1] = __uint2double_rn((unsigned)x);
    row[2] = __ll2double_rn((long long)x);
    row[3] = __ll2double_rz((long long)x);
    row[4] = __ll2double_ru((long long)x);
    row[5] = __ll2double_rd((long long)x);
    row[6] = __ull2double_rn(x);
    row[7] = __ull2double_rz(x);
    row[8] = __ull2double_ru(x);
    row[9] = __ull2double_rd(x);
}

extern "C" __global__ void f64_to_f32(const double* in, float* out) {
    unsigned i = blockIdx.x * blockDim.x + threadIdx.x;
    float* row = out + 4 * i;
    row[0] = __double2float_rn(in[i]);
    row[1] = __double2float_rz(in[i]);
    row[2] = __double2float_ru(in[i]);
    row[3] = __double2float_rd(in[i]);
}

extern "C" __global__ void f32_to_f64(const float* in, double* out) {
    unsigned i = blockIdx.x * blockDim.x + threadIdx.x;
    out[i] = (double)in[i];
}

extern "C" __global__ void f32_to_f16(const float* in, __half* out) {
    unsigned i = blockIdx.x * blockDim.x + threadIdx.x;
    __half* row = out + 4 * i;
    row[0] = __float2half_rn(in[i]);
    row[1] = __float2half_rz(in[i]);
    row[2] = __float2half_ru(in[i]);
    row[3] = __float2half_rd(in[i]);
}

extern "C" __global__ void f32_to_bf16(const float* in, __nv_bfloat16* out) {
    unsigned i = blockIdx.x * blockDim.x + threadIdx.x;
    __nv_bfloat16* row = out + 2 * i;
    row[0] = __float2bfloat16_rn(in[i]);
    row[1] = __float2bfloat16_rz(in[i]);
}

// Two floats into one register of halves, the forms with relu, and tf32.
extern "C" __global__ void f32_pairs(const float* in, unsigned* out) {
    unsigned i = blockIdx.x * blockDim.x + threadIdx.x;
    float x = in[2 * i], y = in[2 * i + 1];
    unsigned* row = out + 8 * i;
    asm("cvt.rn.f16x2.f32 %0, %1, %2;" : "=r"(row[0]) : "f"(x), "f"(y));
    asm("cvt.rz.f16x2.f32 %0, %1, %2;" : "=r"(row[1]) : "f"(x), "f"(y));
    asm("cvt.rn.relu.f16x2.f32 %0, %1, %2;" : "=r"(row[2]) : "f"(x), "f"(y));
    asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(row[3]) : "f"(x), "f"(y));
    asm("cvt.rz.bf16x2.f32 %0, %1, %2;" : "=r"(row[4]) : "f"(x), "f"(y));
    asm("cvt.rn.relu.bf16x2.f32 %0, %1, %2;" : "=r"(row[5]) : "f"(x), "f"(y));
    asm("cvt.rna.tf32.f32 %0, %1;" : "=r"(row[6]) : "f"(x));
    asm("cvt.rn.relu.tf32.f32 %0, %1;" : "=r"(row[7]) : "f"(y));
}

// All 65,536 halves, folded per thread: to float, double and the integers.
extern "C" __global__ void f16_to_all(unsigned long long* out) {
    unsigned i = blockIdx.x * blockDim.x + threadIdx.x;
    __half_raw raw;
    raw.x = (unsigned short)i;
    __half h = raw;
    unsigned long long* row = out + 4 * i;
    row[0] = (unsigned long long)__float_as_uint(__half2float(h)) << 32 | (unsigned)__half2int_rn(h);
    row[1] = (unsigned long long)(unsigned)__half2int_rd(h) << 32 | (unsigned)__half2int_ru(h);
    row[2] = (unsigned long long)__half2uint_rz(h) << 32 | (unsigned)(unsigned short)__half2short_rn(h) << 16 |
             __half2ushort_ru(h);
    row[3] = (unsigned long long)__half2ll_rz(h) ^ __half2ull_rn(h) << 1;
}

extern "C" __global__ void int_to_f16(const int* in, __half* out) {
    unsigned i = blockIdx.x * blockDim.x + threadIdx.x;
    int x = in[i];
    __half* row = out + 8 * i;
    row[0] = __int2half_rn(x);
    row[1] = __int2half_rz(x);
    row[2] = __int2half_ru(x);
    row[3] = __int2half_rd(x);
    row[4] = __uint2half_rn((unsigned)x);
    row[5] = __short2half_rn((short)x);
    row[6] = __ll2half_rn((long long)x * 3);
    row[7] = __ushort2half_rd((unsigned short)x);
}

// Saturating and integer-valued forms that C++ has no name for.
extern "C" __global__ void saturating(const float* in, const long long* ints, unsigned* out) {
    unsigned i = blockIdx.x * blockDim.x + threadIdx.x;
    float x = in[i], f;
    long long n = ints[i];
    unsigned* row = out + 16 * i;
    asm("cvt.sat.f32.f32 %0, %1;" : "=f"(f) : "f"(x));
    row[0] = __float_as_uint(f);
    asm("cvt.rni.f32.f32 %0, %1;" : "=f"(f) : "f"(x));
    row[1] = __float_as_uint(f);
    asm("cvt.rmi.f32.f32 %0, %1;" : "=f"(f) : "f"(x));
    row[2] = __float_as_uint(f);
    asm("cvt.rpi.f32.f32 %0, %1;" : "=f"(f) : "f"(x));
    row[3] = __float_as_uint(f);
    asm("cvt.rzi.ftz.f32.f32 %0, %1;" : "=f"(f) : "f"(x));
    row[4] = __float_as_uint(f);
    asm("cvt.sat.s32.s64 %0, %1;" : "=r"(row[5]) : "l"(n));
    asm("cvt.sat.u32.s64 %0, %1;" : "=r"(row[6]) : "l"(n));
    asm("cvt.sat.s8.s64 %0, %1;" : "=r"(row[7]) : "l"(n));
    asm("cvt.sat.u8.s32 %0, %1;" : "=r"(row[8]) : "r"((int)n));
    asm("cvt.sat.s16.u32 %0, %1;" : "=r"(row[9]) : "r"((unsigned)n));
    asm("cvt.sat.u16.s32 %0, %1;" : "=r"(row[10]) : "r"((int)n));
    asm("cvt.s8.s32 %0, %1;" : "=r"(row[11]) : "r"((int)n));
    asm("cvt.rzi.s8.f32 %0, %1;" : "=r"(row[12]) : "f"(x));
    asm("cvt.rzi.u8.f32 %0, %1;" : "=r"(row[13]) : "f"(x));
    asm("cvt.rni.s16.f32 %0, %1;" : "=r"(row[14]) : "f"(x));
    asm("cvt.rni.u16.f32 %0, %1;" : "=r"(row[15]) : "f"(x));
}
