// Bitonic sort, ascending: a block sorts its keys in shared memory; larger arrays go step by step in global memory.

extern "C" __global__ void bitonic_shared(const unsigned* in, unsigned* out) {
    extern __shared__ unsigned keys[];
    unsigned t = threadIdx.x, n = blockDim.x, base = blockIdx.x * n;
    keys[t] = in[base + t];
    __syncthreads();
    for (unsigned size = 2; size <= n; size *= 2) {
        for (unsigned stride = size / 2; stride > 0; stride /= 2) {
            unsigned other = t ^ stride;
            if (other > t) {
                unsigned x = keys[t], y = keys[other];
                if ((x > y) == ((t & size) == 0)) {
                    keys[t] = y;
                    keys[other] = x;
                }
            }
            __syncthreads();
        }
    }
    out[base + t] = keys[t];
}

// One step over all of memory; values travel with their keys, float keys in IEEE order.
extern "C" __global__ void bitonic_step(float* keys, unsigned long long* values, unsigned size, unsigned stride) {
    unsigned i = blockIdx.x * blockDim.x + threadIdx.x, other = i ^ stride;
    if (other <= i) return;
    float x = keys[i], y = keys[other];
    if ((x > y) == ((i & size) == 0) && x != y) {
        keys[i] = y;
        keys[other] = x;
        unsigned long long v = values[i];
        values[i] = values[other];
        values[other] = v;
    }
}

// The least significant digits first, four bits a pass, by ballot and prefix counts within one warp.
extern "C" __global__ void radix_warp(unsigned* keys) {
    unsigned lane = threadIdx.x, below = (1u << lane) - 1;
    unsigned key = keys[blockIdx.x * 32 + lane];
    __shared__ unsigned slots[32];
    for (unsigned bit = 0; bit < 32; bit++) {
        unsigned ones = __ballot_sync(0xffffffffu, key >> bit & 1);
        unsigned zeros = ~ones;
        unsigned rank = key >> bit & 1 ? __popc(zeros) + __popc(ones & below) : __popc(zeros & below);
        slots[rank] = key;
        __syncwarp();
        key = slots[lane];
        __syncwarp();
    }
    keys[blockIdx.x * 32 + lane] = key;
}
