// 256 bins counted in shared memory per block, then added to global memory.
extern "C" __global__ void histogram(const unsigned char* in, unsigned* bins, unsigned n) {
    __shared__ unsigned local[256];
    for (unsigned b = threadIdx.x; b < 256; b += blockDim.x) local[b] = 0;
    __syncthreads();
    for (unsigned i = blockIdx.x * blockDim.x + threadIdx.x; i < n; i += gridDim.x * blockDim.x)
        atomicAdd(&local[in[i]], 1u);
    __syncthreads();
    for (unsigned b = threadIdx.x; b < 256; b += blockDim.x)
        if (local[b] != 0) atomicAdd(&bins[b], local[b]);
}

// The same count with the lanes of a warp that hold equal values adding once, as their leader.
extern "C" __global__ void histogram_match(const unsigned char* in, unsigned* bins, unsigned n) {
    unsigned i = blockIdx.x * blockDim.x + threadIdx.x;
    unsigned active = __ballot_sync(0xffffffffu, i < n);
    if (i >= n) return;
    unsigned value = in[i] & 15;
    unsigned peers = __match_any_sync(active, value);
    if (__ffs(peers) - 1 == (int)(threadIdx.x % 32)) atomicAdd(&bins[value], (unsigned)__popc(peers));
}
