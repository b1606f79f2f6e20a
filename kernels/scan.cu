// Inclusive prefix sums.

// Each block scans its own 2^k elements in shared memory, two buffers in turn.
extern "C" __global__ void scan_block(const unsigned* in, unsigned* out, unsigned* sums) {
    extern __shared__ unsigned buffer[];
    unsigned t = threadIdx.x, n = blockDim.x, from = 0, to = n;
    buffer[t] = in[blockIdx.x * n + t];
    __syncthreads();
    for (unsigned d = 1; d < n; d *= 2) {
        buffer[to + t] = t >= d ? buffer[from + t] + buffer[from + t - d] : buffer[from + t];
        unsigned swap = from;
        from = to;
        to = swap;
        __syncthreads();
    }
    out[blockIdx.x * n + t] = buffer[from + t];
    if (t == n - 1) sums[blockIdx.x] = buffer[from + t];
}

extern "C" __global__ void scan_add_offsets(unsigned* out, const unsigned* sums) {
    unsigned offset = 0;
    for (unsigned b = 0; b < blockIdx.x; b++) offset += sums[b];
    out[blockIdx.x * blockDim.x + threadIdx.x] += offset;
}

__device__ unsigned warp_inclusive(unsigned v) {
    for (unsigned d = 1; d < 32; d *= 2) {
        unsigned below = __shfl_up_sync(0xffffffffu, v, d);
        if (threadIdx.x % 32 >= d) v += below;
    }
    return v;
}

// One pass over all blocks (decoupled look-back): a block publishes its own sum, then walks back over its predecessors
// until one has published an inclusive prefix. Blocks number themselves by a counter, so that every predecessor has
// started. A status word holds the flag in its upper half (1: sum, 2: prefix) and the value in its lower.
extern "C" __global__ void scan_lookback(const unsigned* in, unsigned* out, unsigned long long* status,
                                         unsigned* next_tile, unsigned n) {
    __shared__ unsigned tile, prefix, warp_sums[32];
    if (threadIdx.x == 0) tile = atomicAdd(next_tile, 1);
    __syncthreads();
    unsigned i = tile * blockDim.x + threadIdx.x, lane = threadIdx.x % 32, warp = threadIdx.x / 32;
    unsigned v = warp_inclusive(i < n ? in[i] : 0);
    if (lane == 31) warp_sums[warp] = v;
    __syncthreads();
    if (warp == 0) warp_sums[lane] = warp_inclusive(lane < blockDim.x / 32 ? warp_sums[lane] : 0);
    __syncthreads();
    if (warp > 0) v += warp_sums[warp - 1];
    if (threadIdx.x == blockDim.x - 1) {
        unsigned long long flag = tile == 0 ? 2ull : 1ull;
        atomicExch(&status[tile], flag << 32 | v);
        unsigned before = 0;
        if (tile > 0) {
            for (int p = (int)tile - 1;;) {
                unsigned long long word = ((volatile unsigned long long*)status)[p];
                if (word >> 32 == 0) continue;
                before += (unsigned)word;
                if (word >> 32 == 2) break;
                p--;
            }
            __threadfence();
            atomicExch(&status[tile], 2ull << 32 | (before + v));
        }
        prefix = before;
    }
    __syncthreads();
    if (i < n) out[i] = prefix + v;
}
