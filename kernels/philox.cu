// Philox4x32-10: counter-based random numbers. Each thread turns its own counter into four words.
__device__ uint4 philox(uint4 counter, uint2 key) {
    for (int round = 0; round < 10; round++) {
        unsigned hi0 = __umulhi(0xD2511F53u, counter.x), lo0 = 0xD2511F53u * counter.x;
        unsigned hi1 = __umulhi(0xCD9E8D57u, counter.z), lo1 = 0xCD9E8D57u * counter.z;
        counter = make_uint4(hi1 ^ counter.y ^ key.x, lo1, hi0 ^ counter.w ^ key.y, lo0);
        key.x += 0x9E3779B9u;
        key.y += 0xBB67AE85u;
    }
    return counter;
}

extern "C" __global__ void philox_words(uint4* out, uint2 key, unsigned long long offset) {
    unsigned long long i = offset + blockIdx.x * blockDim.x + threadIdx.x;
    out[blockIdx.x * blockDim.x + threadIdx.x] = philox(make_uint4((unsigned)i, (unsigned)(i >> 32), 7u, 0u), key);
}

// Uniform floats in [0, 1), as 24 bits and as 53 bits.
extern "C" __global__ void philox_uniform(float* narrow, double* wide, uint2 key) {
    unsigned i = blockIdx.x * blockDim.x + threadIdx.x;
    uint4 r = philox(make_uint4(i, 0u, 0u, 1u), key);
    narrow[2 * i] = (float)(r.x >> 8) * 0x1p-24f;
    narrow[2 * i + 1] = (float)(r.y >> 8) * 0x1p-24f;
    wide[i] = (double)(((unsigned long long)r.z << 32 | r.w) >> 11) * 0x1p-53;
}
