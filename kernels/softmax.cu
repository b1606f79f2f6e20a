// Row-wise normalizations as inference engines write them.

// A block per row; expf is the accurate one (2 ulp).
extern "C" __global__ void softmax_rows(const float* in, float* out, unsigned width) {
    __shared__ float tree[128];
    const float* row = in + blockIdx.x * width;
    float top = -INFINITY;
    for (unsigned i = threadIdx.x; i < width; i += 128) top = fmaxf(top, row[i]);
    tree[threadIdx.x] = top;
    __syncthreads();
    for (unsigned d = 64; d > 0; d /= 2) {
        if (threadIdx.x < d) tree[threadIdx.x] = fmaxf(tree[threadIdx.x], tree[threadIdx.x + d]);
        __syncthreads();
    }
    top = tree[0];
    __syncthreads();
    float sum = 0.0f;
    for (unsigned i = threadIdx.x; i < width; i += 128) sum += expf(row[i] - top);
    tree[threadIdx.x] = sum;
    __syncthreads();
    for (unsigned d = 64; d > 0; d /= 2) {
        if (threadIdx.x < d) tree[threadIdx.x] += tree[threadIdx.x + d];
        __syncthreads();
    }
    sum = tree[0];
    for (unsigned i = threadIdx.x; i < width; i += 128) out[blockIdx.x * width + i] = expf(row[i] - top) / sum;
}

// A warp per row, the running maximum and sum folded in one pass, fast exponentials.
extern "C" __global__ void softmax_online(const float* in, float* out, unsigned width, unsigned rows) {
    unsigned row = blockIdx.x * blockDim.y + threadIdx.y, lane = threadIdx.x;
    if (row >= rows) return;
    float top = -1e30f, sum = 0.0f;
    for (unsigned i = lane; i < width; i += 32) {
        float v = in[row * width + i], next = fmaxf(top, v);
        sum = sum * __expf(top - next) + __expf(v - next);
        top = next;
    }
    for (int d = 16; d > 0; d >>= 1) {
        float other_top = __shfl_xor_sync(0xffffffffu, top, d), other_sum = __shfl_xor_sync(0xffffffffu, sum, d);
        float next = fmaxf(top, other_top);
        sum = sum * __expf(top - next) + other_sum * __expf(other_top - next);
        top = next;
    }
    for (unsigned i = lane; i < width; i += 32)
        out[row * width + i] = __fdividef(__expf(in[row * width + i] - top), sum);
}

extern "C" __global__ void layer_norm(const float* in, const float* gain, float* out, unsigned width) {
    unsigned row = blockIdx.x, lane = threadIdx.x;
    float sum = 0.0f, squares = 0.0f;
    for (unsigned i = lane; i < width; i += 32) {
        float v = in[row * width + i];
        sum += v;
        squares += v * v;
    }
    for (int d = 16; d > 0; d >>= 1) {
        sum += __shfl_xor_sync(0xffffffffu, sum, d);
        squares += __shfl_xor_sync(0xffffffffu, squares, d);
    }
    float mean = sum / width, scale = rsqrtf(squares / width - mean * mean + 1e-5f);
    for (unsigned i = lane; i < width; i += 32)
        out[row * width + i] = (in[row * width + i] - mean) * scale * gain[i];
}
