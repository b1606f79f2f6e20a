// A transformer that decodes one token a step, in single precision: what the example `decode` runs.
//
//     embed       x = the token's row + the position's row
//     normalize   out = x / its root mean square, times a gain
//     multiply    out = W x, or out += W x, or out = silu(W x)
//     cache       this position's key and value go to where later positions find them
//     attend      out = softmax(q.K) V over the positions up to this one
//     choose      the next token is the one with the largest logit
//
// Each sum is taken in one order whatever the device does first, so a step gives the same bits however it is launched.

constexpr unsigned THREADS = 256, LANES = 16, ROWS = 32, PARTS = 16, VOCABULARY = 256;

// What becomes of a product.
enum Then : unsigned { STORE, ADD, ACTIVATE };

// Merges the values of all threads of a block into one, in a fixed order, and gives it to every thread.
template <typename Value, typename Merge> __device__ Value merged(Value value, Value* all, Merge merge) {
    all[threadIdx.x] = value;
    for (unsigned width = THREADS / LANES; width > 0; width /= LANES) {
        __syncthreads();
        if (threadIdx.x < width) {
            for (unsigned k = 1; k < LANES; k++) value = merge(value, all[threadIdx.x + k * width]);
            all[threadIdx.x] = value;
        }
    }
    __syncthreads();
    value = all[0];
    // Nobody writes to `all` again before everyone has read it.
    __syncthreads();
    return value;
}

__device__ float sum(float value, float* all) {
    return merged(value, all, [](float a, float b) { return a + b; });
}

// A thread per value. A word that is no token counts as the last token, so nothing beyond the table is read.
extern "C" __global__ void __launch_bounds__(THREADS)
    embed(const unsigned* token, const float* tokens, const float* positions, float* x, unsigned width, unsigned pos) {
    unsigned i = blockIdx.x * THREADS + threadIdx.x;
    if (i < width) x[i] = tokens[min(*token, VOCABULARY - 1) * width + i] + positions[pos * width + i];
}

// One block.
extern "C" __global__ void __launch_bounds__(THREADS)
    normalize(const float* x, const float* gain, float* out, unsigned width) {
    __shared__ float all[THREADS];
    float squares = 0.0f;
    for (unsigned i = threadIdx.x; i < width; i += THREADS) squares += x[i] * x[i];
    squares = sum(squares, all);
    float scale = 1.0f / sqrtf(squares / width + 1e-5f);
    for (unsigned i = threadIdx.x; i < width; i += THREADS) out[i] = x[i] * scale * gain[i];
}

// A block has ROWS rows, and PARTS threads for each of them. Weights lie column by column, so that neighbouring threads
// read neighbouring weights.
extern "C" __global__ void __launch_bounds__(ROWS * PARTS)
    multiply(const float* weights, const float* x, float* out, unsigned rows, unsigned columns, unsigned then) {
    __shared__ float sums[PARTS][ROWS];
    unsigned lane = threadIdx.x % ROWS, part = threadIdx.x / ROWS, row = blockIdx.x * ROWS + lane;
    float product = 0.0f;
    if (row < rows) {
#pragma unroll 8
        for (unsigned column = part; column < columns; column += PARTS)
            product += weights[column * rows + row] * x[column];
    }
    sums[part][lane] = product;
    __syncthreads();
    if (part > 0 || row >= rows) return;
#pragma unroll
    for (unsigned other = 1; other < PARTS; other++) product += sums[other][lane];
    if (then == ADD) product += out[row];
    if (then == ACTIVATE) product /= 1.0f + expf(-product);
    out[row] = product;
}

// A thread per value. Keys lie with the positions of one dimension side by side, values with the dimensions of one
// position side by side: as `attend` reads them.
extern "C" __global__ void __launch_bounds__(THREADS)
    cache(const float* qkv, float* keys, float* values, unsigned width, unsigned context, unsigned pos) {
    unsigned i = blockIdx.x * THREADS + threadIdx.x;
    if (i >= width) return;
    keys[i * context + pos] = qkv[width + i];
    values[pos * width + i] = qkv[2 * width + i];
}

// A block per head, whose `size` divides THREADS, with dynamic shared memory for `context` weights.
extern "C" __global__ void __launch_bounds__(THREADS)
    attend(const float* qkv, const float* keys, const float* values, float* out, unsigned width, unsigned size,
           unsigned context, unsigned pos) {
    extern __shared__ float weights[];
    __shared__ float all[THREADS];
    unsigned thread = threadIdx.x, first = blockIdx.x * size;

    float scale = 1.0f / sqrtf(size), top = -INFINITY;
    for (unsigned p = thread; p <= pos; p += THREADS) {
        float score = 0.0f;
#pragma unroll 8
        for (unsigned d = first; d < first + size; d++) score += qkv[d] * keys[d * context + p];
        weights[p] = score * scale;
        top = fmaxf(top, score * scale);
    }
    top = merged(top, all, [](float a, float b) { return fmaxf(a, b); });

    float total = 0.0f;
    for (unsigned p = thread; p <= pos; p += THREADS) {
        weights[p] = expf(weights[p] - top);
        total += weights[p];
    }
    total = sum(total, all);

    float value = 0.0f;
#pragma unroll 8
    for (unsigned p = thread / size; p <= pos; p += THREADS / size)
        value += weights[p] * values[p * width + first + thread % size];
    all[thread] = value;
    __syncthreads();
    if (thread >= size) return;
    for (unsigned other = thread + size; other < THREADS; other += size) value += all[other];
    out[first + thread] = value / total;
}

// One block, a thread per token. Of equal logits the first wins.
extern "C" __global__ void __launch_bounds__(VOCABULARY) choose(const float* logits, unsigned* next) {
    __shared__ unsigned long long all[VOCABULARY];
    // As an unsigned number, the bits of a positive float are in order, and those of a negative one are reversed.
    unsigned bits = __float_as_uint(logits[threadIdx.x]);
    unsigned rank = bits >> 31 ? ~bits : bits | 1u << 31;
    unsigned long long own = (unsigned long long)rank << 32 | (VOCABULARY - 1 - threadIdx.x);
    auto best = merged(own, all, [](auto a, auto b) { return a > b ? a : b; });
    if (threadIdx.x == 0) *next = VOCABULARY - 1 - (unsigned)best;
}
