// Hashes: long chains of exact integer work.

__constant__ unsigned round_constants[64] = {
    0x428a2f98, 0x71374491, 0xb5c0fbcf, 0xe9b5dba5, 0x3956c25b, 0x59f111f1, 0x923f82a4, 0xab1c5ed5,
    0xd807aa98, 0x12835b01, 0x243185be, 0x550c7dc3, 0x72be5d74, 0x80deb1fe, 0x9bdc06a7, 0xc19bf174,
    0xe49b69c1, 0xefbe4786, 0x0fc19dc6, 0x240ca1cc, 0x2de92c6f, 0x4a7484aa, 0x5cb0a9dc, 0x76f988da,
    0x983e5152, 0xa831c66d, 0xb00327c8, 0xbf597fc7, 0xc6e00bf3, 0xd5a79147, 0x06ca6351, 0x14292967,
    0x27b70a85, 0x2e1b2138, 0x4d2c6dfc, 0x53380d13, 0x650a7354, 0x766a0abb, 0x81c2c92e, 0x92722c85,
    0xa2bfe8a1, 0xa81a664b, 0xc24b8b70, 0xc76c51a3, 0xd192e819, 0xd6990624, 0xf40e3585, 0x106aa070,
    0x19a4c116, 0x1e376c08, 0x2748774c, 0x34b0bcb5, 0x391c0cb3, 0x4ed8aa4a, 0x5b9cca4f, 0x682e6ff3,
    0x748f82ee, 0x78a5636f, 0x84c87814, 0x8cc70208, 0x90befffa, 0xa4506ceb, 0xbef9a3f7, 0xc67178f2};

__device__ unsigned rotate(unsigned x, int n) { return __funnelshift_r(x, x, n); }

// SHA-256 of messages of at most 55 bytes, one per thread.
extern "C" __global__ void sha256(const unsigned char* messages, unsigned length, unsigned* digests) {
    unsigned t = blockIdx.x * blockDim.x + threadIdx.x;
    const unsigned char* message = messages + t * length;
    unsigned w[64];
    for (unsigned i = 0; i < 16; i++) {
        w[i] = 0;
        for (unsigned k = 0; k < 4; k++) {
            unsigned at = 4 * i + k;
            unsigned byte = at < length ? message[at] : at == length ? 0x80 : 0;
            w[i] |= byte << (24 - 8 * k);
        }
    }
    w[15] = length * 8;
    for (unsigned i = 16; i < 64; i++) {
        unsigned s0 = rotate(w[i - 15], 7) ^ rotate(w[i - 15], 18) ^ w[i - 15] >> 3;
        unsigned s1 = rotate(w[i - 2], 17) ^ rotate(w[i - 2], 19) ^ w[i - 2] >> 10;
        w[i] = w[i - 16] + s0 + w[i - 7] + s1;
    }
    const unsigned start[8] = {0x6a09e667, 0xbb67ae85, 0x3c6ef372, 0xa54ff53a,
                               0x510e527f, 0x9b05688c, 0x1f83d9ab, 0x5be0cd19};
    unsigned h[8];
    for (int i = 0; i < 8; i++) h[i] = start[i];
    for (int i = 0; i < 64; i++) {
        unsigned s1 = rotate(h[4], 6) ^ rotate(h[4], 11) ^ rotate(h[4], 25);
        unsigned choice = (h[4] & h[5]) ^ (~h[4] & h[6]);
        unsigned t1 = h[7] + s1 + choice + round_constants[i] + w[i];
        unsigned s0 = rotate(h[0], 2) ^ rotate(h[0], 13) ^ rotate(h[0], 22);
        unsigned majority = (h[0] & h[1]) ^ (h[0] & h[2]) ^ (h[1] & h[2]);
        h[7] = h[6];
        h[6] = h[5];
        h[5] = h[4];
        h[4] = h[3] + t1;
        h[3] = h[2];
        h[2] = h[1];
        h[1] = h[0];
        h[0] = t1 + s0 + majority;
    }
    for (int i = 0; i < 8; i++) digests[8 * t + i] = h[i] + start[i];
}

// CRC-32 by a table each block builds for itself.
extern "C" __global__ void crc32(const unsigned char* in, unsigned length, unsigned* out) {
    __shared__ unsigned table[256];
    for (unsigned b = threadIdx.x; b < 256; b += blockDim.x) {
        unsigned c = b;
        for (int k = 0; k < 8; k++) c = c & 1 ? 0xedb88320u ^ c >> 1 : c >> 1;
        table[b] = c;
    }
    __syncthreads();
    unsigned t = blockIdx.x * blockDim.x + threadIdx.x, crc = 0xffffffffu;
    for (unsigned i = 0; i < length; i++) crc = table[(crc ^ in[t * length + i]) & 0xff] ^ crc >> 8;
    out[t] = ~crc;
}

// A 64-bit mixer, the SplitMix generator's.
extern "C" __global__ void splitmix(unsigned long long* out, unsigned long long seed) {
    unsigned long long z = seed + (blockIdx.x * blockDim.x + threadIdx.x + 1ull) * 0x9e3779b97f4a7c15ull;
    z = (z ^ z >> 30) * 0xbf58476d1ce4e5b9ull;
    z = (z ^ z >> 27) * 0x94d049bb133111ebull;
    out[blockIdx.x * blockDim.x + threadIdx.x] = z ^ z >> 31;
}
