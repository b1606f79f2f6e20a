// What `cargo bench -p softcuda` runs beside the kernels of the other files. No test runs these: the benchmark checks
// them against the same work in Rust.

__device__ float warp_sum(float value) {
    for (int d = 16; d > 0; d >>= 1) value += __shfl_xor_sync(0xffffffffu, value, d);
    return value;
}

__device__ float warp_max(float value) {
    for (int d = 16; d > 0; d >>= 1) value = fmaxf(value, __shfl_xor_sync(0xffffffffu, value, d));
    return value;
}

// The sum of an array: each block adds its part to `total` by one atomic.
extern "C" __global__ void sum_atomic(const float* in, float* total, unsigned n) {
    __shared__ float partial[32];
    unsigned lane = threadIdx.x % 32, warp = threadIdx.x / 32;
    float sum = 0.0f;
    for (unsigned i = blockIdx.x * blockDim.x + threadIdx.x; i < n; i += gridDim.x * blockDim.x) sum += in[i];
    sum = warp_sum(sum);
    if (lane == 0) partial[warp] = sum;
    __syncthreads();
    if (warp == 0) {
        sum = warp_sum(lane < blockDim.x / 32 ? partial[lane] : 0.0f);
        if (lane == 0) atomicAdd(total, sum);
    }
}

// A block per row: warps meet by shuffles, the block in shared memory.
extern "C" __global__ void softmax_block(const float* in, float* out, unsigned width) {
    __shared__ float tops[32], sums[32];
    unsigned lane = threadIdx.x % 32, warp = threadIdx.x / 32, warps = blockDim.x / 32;
    in += blockIdx.x * width;
    out += blockIdx.x * width;
    float top = -INFINITY;
    for (unsigned i = threadIdx.x; i < width; i += blockDim.x) top = fmaxf(top, in[i]);
    top = warp_max(top);
    if (lane == 0) tops[warp] = top;
    __syncthreads();
    top = warp_max(lane < warps ? tops[lane] : -INFINITY);
    float sum = 0.0f;
    for (unsigned i = threadIdx.x; i < width; i += blockDim.x) {
        float power = expf(in[i] - top);
        out[i] = power;
        sum += power;
    }
    sum = warp_sum(sum);
    if (lane == 0) sums[warp] = sum;
    __syncthreads();
    sum = warp_sum(lane < warps ? sums[lane] : 0.0f);
    float scale = 1.0f / sum;
    for (unsigned i = threadIdx.x; i < width; i += blockDim.x) out[i] *= scale;
}

// The normal distribution function, after Abramowitz and Stegun 26.2.17.
__device__ float normal(float d) {
    float k = 1.0f / (1.0f + 0.2316419f * fabsf(d));
    float series = -1.821255978f + k * 1.330274429f;
    series = k * (0.31938153f + k * (-0.356563782f + k * (1.781477937f + k * series)));
    float tail = 0.39894228f * expf(-0.5f * d * d) * series;
    return d > 0.0f ? 1.0f - tail : tail;
}

// European options after Black and Scholes, one a thread.
extern "C" __global__ void black_scholes(const float* price, const float* strike, const float* years, float* call,
                                         float* put, float rate, float volatility, unsigned n) {
    unsigned i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= n) return;
    float s = price[i], x = strike[i], t = years[i];
    float spread = volatility * sqrtf(t);
    float d1 = (logf(s / x) + (rate + 0.5f * volatility * volatility) * t) / spread, d2 = d1 - spread;
    float n1 = normal(d1), n2 = normal(d2), discounted = x * expf(-rate * t);
    call[i] = s * n1 - discounted * n2;
    put[i] = discounted * (1.0f - n2) - s * (1.0f - n1);
}

// How many steps each point of the plane stays within a distance of 2, up to `limit`.
extern "C" __global__ void mandelbrot(unsigned* counts, unsigned width, unsigned height, float left, float top,
                                      float step, unsigned limit) {
    unsigned column = blockIdx.x * blockDim.x + threadIdx.x, row = blockIdx.y * blockDim.y + threadIdx.y;
    if (column >= width || row >= height) return;
    float cx = left + column * step, cy = top + row * step, x = 0.0f, y = 0.0f;
    unsigned count = 0;
    while (count < limit && x * x + y * y <= 4.0f) {
        float next = x * x - y * y + cx;
        y = 2.0f * x * y + cy;
        x = next;
        count++;
    }
    counts[row * width + column] = count;
}

// One level of a breadth-first search, a vertex of the frontier per thread. A level of 0 means not seen yet.
extern "C" __global__ void bfs_level(const unsigned* offsets, const unsigned* neighbours, const unsigned* frontier,
                                     unsigned count, unsigned* next, unsigned* next_count, unsigned* levels,
                                     unsigned level) {
    unsigned i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= count) return;
    unsigned vertex = frontier[i];
    for (unsigned e = offsets[vertex]; e < offsets[vertex + 1]; e++) {
        unsigned neighbour = neighbours[e];
        if (levels[neighbour] == 0 && atomicCAS(&levels[neighbour], 0u, level) == 0)
            next[atomicAdd(next_count, 1u)] = neighbour;
    }
}
