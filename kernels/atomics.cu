// Atomic operations. Where the old value is kept, each thread has a word of its own; where threads meet on one word
// only the final value counts, and it does not depend on their order (float sums stay exact).
#include <cuda_bf16.h>
#include <cuda_fp16.h>

extern "C" __global__ void atomics_32(unsigned* words, const unsigned* operand, unsigned* old) {
    unsigned i = blockIdx.x * blockDim.x + threadIdx.x;
    unsigned* w = words + 12 * i;
    unsigned* o = old + 12 * i;
    unsigned v = operand[i];
    o[0] = atomicAdd(&w[0], v);
    o[1] = atomicSub(&w[1], v);
    o[2] = atomicExch(&w[2], v);
    o[3] = (unsigned)atomicMin((int*)&w[3], (int)v);
    o[4] = (unsigned)atomicMax((int*)&w[4], (int)v);
    o[5] = atomicMin(&w[5], v);
    o[6] = atomicMax(&w[6], v);
    o[7] = atomicInc(&w[7], v);
    o[8] = atomicDec(&w[8], v);
    o[9] = atomicCAS(&w[9], i % 2 ? w[9] : w[9] + 1, v);
    o[10] = atomicAnd(&w[10], v) ^ atomicOr(&w[10], v << 1);
    o[11] = atomicXor(&w[11], v);
}

extern "C" __global__ void atomics_64(unsigned long long* words, const unsigned long long* operand,
                                      unsigned long long* old) {
    unsigned i = blockIdx.x * blockDim.x + threadIdx.x;
    unsigned long long* w = words + 10 * i;
    unsigned long long* o = old + 10 * i;
    unsigned long long v = operand[i];
    o[0] = atomicAdd(&w[0], v);
    o[1] = atomicExch(&w[1], v);
    o[2] = (unsigned long long)atomicMin((long long*)&w[2], (long long)v);
    o[3] = (unsigned long long)atomicMax((long long*)&w[3], (long long)v);
    o[4] = atomicMin(&w[4], v);
    o[5] = atomicMax(&w[5], v);
    o[6] = atomicCAS(&w[6], i % 2 ? w[6] : w[6] + 1, v);
    o[7] = atomicAnd(&w[7], v);
    o[8] = atomicOr(&w[8], v);
    o[9] = atomicXor(&w[9], v);
}

// All threads of all blocks on the same words; results are sums, extremes and folds, or exact float sums.
extern "C" __global__ void atomics_contended(unsigned* words, float* f, double* d, unsigned n) {
    unsigned i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= n) return;
    atomicAdd(&words[0], i);
    atomicMax(&words[1], i * 2654435761u);
    atomicMin(&words[2], i * 2654435761u);
    atomicOr(&words[3], 1u << (i % 29));
    atomicXor(&words[4], i * 40503u);
    atomicAnd(&words[5], ~(1u << (i % 23)));
    atomicInc(&words[6], 1000u);
    atomicDec(&words[7], 1000u);
    unsigned seen = words[8];
    for (;;) {
        unsigned found = atomicCAS(&words[8], seen, seen * 1u + (i & 7u));
        if (found == seen) break;
        seen = found;
    }
    atomicAdd(f, (float)(i % 16));
    atomicAdd(d, 0.25 * (double)(i % 16));
}

extern "C" __global__ void atomics_shared(unsigned* out, unsigned rounds) {
    __shared__ unsigned words[8];
    __shared__ unsigned long long wide[3];
    __shared__ float f;
    if (threadIdx.x < 8) words[threadIdx.x] = threadIdx.x == 2 ? 0xffffffffu : threadIdx.x == 5 ? ~0u : 0;
    if (threadIdx.x < 3) wide[threadIdx.x] = 0;
    if (threadIdx.x == 0) f = 0.0f;
    __syncthreads();
    for (unsigned r = 0; r < rounds; r++) {
        unsigned v = (blockIdx.x * blockDim.x + threadIdx.x) * 2654435761u + r;
        atomicAdd(&words[0], v);
        atomicMax(&words[1], v);
        atomicMin(&words[2], v);
        atomicOr(&words[3], v & 0x11111111u);
        atomicXor(&words[4], v);
        atomicAnd(&words[5], v | 0xfff0ffffu);
        atomicAdd_block(&words[6], 3u);
        atomicInc(&words[7], 76u);
        atomicAdd(&wide[0], (unsigned long long)v << 13);
        atomicMax(&wide[1], (unsigned long long)v << 20);
        atomicXor(&wide[2], (unsigned long long)v * v);
        atomicAdd(&f, (float)(v >> 28));
    }
    __syncthreads();
    unsigned* row = out + 16 * blockIdx.x;
    if (threadIdx.x < 8) row[threadIdx.x] = words[threadIdx.x];
    if (threadIdx.x < 3) {
        row[8 + 2 * threadIdx.x] = (unsigned)wide[threadIdx.x];
        row[9 + 2 * threadIdx.x] = (unsigned)(wide[threadIdx.x] >> 32);
    }
    if (threadIdx.x == 0) row[14] = __float_as_uint(f);
    if (threadIdx.x == 0) row[15] = 0;
}

// Half, bfloat16 and vector additions; every partial sum is representable.
extern "C" __global__ void atomics_half(__half* h, __half2* h2, __nv_bfloat16* b, __nv_bfloat162* b2, float4* v,
                                        float* old) {
    unsigned i = blockIdx.x * blockDim.x + threadIdx.x;
    atomicAdd(&h[i % 4], __float2half(1.0f));
    atomicAdd(&h2[i % 2], __floats2half2_rn(1.0f, 0.5f));
    atomicAdd(&b[i % 8], __float2bfloat16(1.0f));
    atomicAdd(&b2[i % 8], __floats2bfloat162_rn(0.25f, 2.0f));
    atomicAdd(v, make_float4(1.0f, 2.0f, 0.5f, (float)(i % 4)));
    float mine = 1.5f;
    old[2 * i] = atomicAdd(&old[2 * i + 1], mine);
    old[2 * i] = atomicExch(&old[2 * i + 1], old[2 * i] + 8.0f);
}

// Scopes and orders: block, device and system forms, and the fences between a flag and its data.
extern "C" __global__ void atomics_scopes(unsigned* words, unsigned long long* wide) {
    unsigned i = blockIdx.x * blockDim.x + threadIdx.x;
    atomicAdd_block(&words[blockIdx.x], i);
    atomicAdd_system(&words[8], i);
    atomicMax_system((int*)&words[9], (int)i);
    atomicAdd_system(&wide[0], (unsigned long long)i << 32);
    unsigned x;
    asm volatile("atom.acq_rel.gpu.global.add.u32 %0, [%1], %2;" : "=r"(x) : "l"(&words[10]), "r"(i) : "memory");
    asm volatile("red.relaxed.gpu.global.add.u32 [%0], %1;" ::"l"(&words[11]), "r"(x & 0u | 1u) : "memory");
    asm volatile("red.release.sys.global.or.b64 [%0], %1;" ::"l"(&wide[1]), "l"(1ull << (i % 60)) : "memory");
    __threadfence_block();
    __threadfence();
    __threadfence_system();
    asm volatile("fence.sc.gpu;" ::: "memory");
    asm volatile("fence.acq_rel.sys;" ::: "memory");
    asm volatile("st.release.gpu.global.u32 [%0], %1;" ::"l"(&words[16 + i]), "r"(i * 3) : "memory");
    asm volatile("ld.acquire.gpu.global.u32 %0, [%1];" : "=r"(x) : "l"(&words[16 + i]) : "memory");
    words[16 + i] = x + 1;
    // A compare-and-swap of 16 bits.
    asm volatile("{ .reg .b16 o, c, n; cvt.u16.u32 c, %2; cvt.u16.u32 n, %3; atom.cas.b16 o, [%1], c, n; "
                 "cvt.u32.u16 %0, o; }"
                 : "=r"(x)
                 : "l"((unsigned short*)&words[16 + i] + 1), "r"(0), "r"(i & 0xffff)
                 : "memory");
    words[16 + i] += x;
}
