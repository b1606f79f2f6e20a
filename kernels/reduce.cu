// Sums and extremes over an array: by warp shuffle, by a tree in shared memory, by the warp reduction instruction.
// Every order of addition is fixed, so float results are the same on each run.

extern "C" __global__ void reduce_shuffle_i32(const int* in, unsigned long long* total, unsigned n) {
    __shared__ int partial[32];
    int sum = 0;
    for (unsigned i = blockIdx.x * blockDim.x + threadIdx.x; i < n; i += gridDim.x * blockDim.x) sum += in[i];
    for (int d = 16; d > 0; d >>= 1) sum += __shfl_down_sync(0xffffffffu, sum, d);
    unsigned lane = threadIdx.x % 32, warp = threadIdx.x / 32;
    if (lane == 0) partial[warp] = sum;
    __syncthreads();
    if (warp == 0) {
        sum = lane < blockDim.x / 32 ? partial[lane] : 0;
        for (int d = 16; d > 0; d >>= 1) sum += __shfl_xor_sync(0xffffffffu, sum, d);
        if (lane == 0) atomicAdd(total, (unsigned long long)(long long)sum);
    }
}

extern "C" __global__ void reduce_shuffle_f32(const float* in, float* per_block, unsigned n) {
    __shared__ float partial[32];
    float sum = 0.0f;
    for (unsigned i = blockIdx.x * blockDim.x + threadIdx.x; i < n; i += gridDim.x * blockDim.x) sum += in[i];
    for (int d = 16; d > 0; d >>= 1) sum += __shfl_down_sync(0xffffffffu, sum, d);
    if (threadIdx.x % 32 == 0) partial[threadIdx.x / 32] = sum;
    __syncthreads();
    if (threadIdx.x < 32) {
        sum = threadIdx.x < blockDim.x / 32 ? partial[threadIdx.x] : 0.0f;
        for (int d = 16; d > 0; d >>= 1) sum += __shfl_down_sync(0xffffffffu, sum, d);
        if (threadIdx.x == 0) per_block[blockIdx.x] = sum;
    }
}

extern "C" __global__ void reduce_shared_f32(const float* in, float* per_block, unsigned n) {
    extern __shared__ float tree[];
    unsigned i = blockIdx.x * blockDim.x + threadIdx.x;
    tree[threadIdx.x] = i < n ? in[i] : 0.0f;
    __syncthreads();
    for (unsigned d = blockDim.x / 2; d > 0; d /= 2) {
        if (threadIdx.x < d) tree[threadIdx.x] += tree[threadIdx.x + d];
        __syncthreads();
    }
    if (threadIdx.x == 0) per_block[blockIdx.x] = tree[0];
}

extern "C" __global__ void reduce_shared_f64(const double* in, double* per_block, unsigned n) {
    extern __shared__ double wide_tree[];
    unsigned i = blockIdx.x * blockDim.x + threadIdx.x;
    wide_tree[threadIdx.x] = i < n ? in[i] : 0.0;
    __syncthreads();
    for (unsigned d = blockDim.x / 2; d > 0; d /= 2) {
        if (threadIdx.x < d) wide_tree[threadIdx.x] += wide_tree[threadIdx.x + d];
        __syncthreads();
    }
    if (threadIdx.x == 0) per_block[blockIdx.x] = wide_tree[0];
}

// Sum, extremes and bit folds of each warp's 32 values, by `redux.sync`: 8 words per warp.
extern "C" __global__ void reduce_redux(const unsigned* in, unsigned* per_warp) {
    unsigned i = blockIdx.x * blockDim.x + threadIdx.x;
    unsigned v = in[i];
    unsigned r[8] = {
        __reduce_add_sync(0xffffffffu, v),       (unsigned)__reduce_min_sync(0xffffffffu, (int)v),
        (unsigned)__reduce_max_sync(0xffffffffu, (int)v), __reduce_min_sync(0xffffffffu, v),
        __reduce_max_sync(0xffffffffu, v),       __reduce_and_sync(0xffffffffu, v | 0x00ff0000u),
        __reduce_or_sync(0xffffffffu, v & 0x0f0f0f0fu),   __reduce_xor_sync(0xffffffffu, v),
    };
    if (i % 32 == 0)
        for (int k = 0; k < 8; k++) per_warp[i / 32 * 8 + k] = r[k];
}

// Index of the largest value, the first of equals, across all blocks: the key and the index in one 64-bit atomic.
extern "C" __global__ void arg_max(const unsigned* in, unsigned long long* best, unsigned n) {
    __shared__ unsigned long long block_best;
    if (threadIdx.x == 0) block_best = 0;
    __syncthreads();
    unsigned i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) atomicMax(&block_best, (unsigned long long)in[i] << 32 | (0xffffffffu - i));
    __syncthreads();
    if (threadIdx.x == 0) atomicMax(best, block_best);
}

// The last block to finish adds up the blocks' sums: a fence and a counter instead of a second launch.
extern "C" __global__ void reduce_last_block(const unsigned* in, unsigned* per_block, unsigned* done, unsigned* total,
                                             unsigned n) {
    __shared__ unsigned sum;
    __shared__ bool last;
    if (threadIdx.x == 0) sum = 0;
    __syncthreads();
    unsigned i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) atomicAdd(&sum, in[i]);
    __syncthreads();
    if (threadIdx.x == 0) {
        per_block[blockIdx.x] = sum;
        __threadfence();
        last = atomicInc(done, gridDim.x - 1) == gridDim.x - 1;
    }
    __syncthreads();
    if (last && threadIdx.x == 0) {
        unsigned all = 0;
        for (unsigned b = 0; b < gridDim.x; b++) all += ((volatile unsigned*)per_block)[b];
        *total = all;
    }
}
