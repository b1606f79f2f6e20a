// Kernels as CUDA programmers write them; `src/main.rs` says what for.
#include <cfloat>
#include <cuda_bf16.h>
#include <cuda_fp16.h>

#define KERNEL extern "C" __global__ void
#define ALL_LANES 0xffffffff

// ---------------------------------------------------------------- reductions

// The last block to finish adds up what the blocks found.
template <int BLOCK>
__device__ float block_reduce_add(float value, float* scratch) {
    const int tid = threadIdx.x;
    scratch[tid] = value;
    __syncthreads();
#pragma unroll
    for (int half = BLOCK / 2; half > 0; half /= 2) {
        if (tid < half) scratch[tid] += scratch[tid + half];
        __syncthreads();
    }
    return scratch[0];
}

template <int BLOCK>
__device__ void sum_single_pass(const float* __restrict__ x, size_t n, volatile float* partial, unsigned int* ticket,
                                float* total) {
    __shared__ float scratch[BLOCK];
    __shared__ bool is_last;
    float mine = 0.f;
    for (size_t i = size_t(blockIdx.x) * BLOCK + threadIdx.x; i < n; i += size_t(gridDim.x) * BLOCK) mine += x[i];
    float block_total = block_reduce_add<BLOCK>(mine, scratch);
    if (threadIdx.x == 0) {
        partial[blockIdx.x] = block_total;
        __threadfence();
        unsigned int seen = atomicInc(ticket, gridDim.x);
        is_last = (seen == gridDim.x - 1);
    }
    __syncthreads();
    if (is_last) {
        mine = 0.f;
        for (int b = threadIdx.x; b < gridDim.x; b += BLOCK) mine += partial[b];
        block_total = block_reduce_add<BLOCK>(mine, scratch);
        if (threadIdx.x == 0) {
            *total = block_total;
            *ticket = 0;
        }
    }
}

KERNEL sum_last_block_128(const float* x, size_t n, float* partial, unsigned int* ticket, float* total) {
    sum_single_pass<128>(x, n, partial, ticket, total);
}
KERNEL sum_last_block_512(const float* x, size_t n, float* partial, unsigned int* ticket, float* total) {
    sum_single_pass<512>(x, n, partial, ticket, total);
}

struct Summary {
    double lo, hi, sum;
    __device__ static Summary empty() { return Summary{DBL_MAX, -DBL_MAX, 0.0}; }
    __device__ void take(double v) {
        lo = fmin(lo, v);
        hi = fmax(hi, v);
        sum += v;
    }
    __device__ void merge(const Summary& other) {
        lo = fmin(lo, other.lo);
        hi = fmax(hi, other.hi);
        sum += other.sum;
    }
};

__device__ void summary_tree(Summary* s) {
    for (int stride = blockDim.x >> 1; stride > 0; stride >>= 1) {
        __syncthreads();
        if (threadIdx.x < stride) s[threadIdx.x].merge(s[threadIdx.x + stride]);
    }
}

KERNEL summary_f64(const double* data, int n, Summary* per_block) {
    extern __shared__ Summary slots[];
    Summary mine = Summary::empty();
    for (int i = blockDim.x * blockIdx.x + threadIdx.x; i < n; i += blockDim.x * gridDim.x) mine.take(data[i]);
    slots[threadIdx.x] = mine;
    summary_tree(slots);
    if (threadIdx.x == 0) per_block[blockIdx.x] = slots[0];
}

KERNEL summary_f64_final(const Summary* per_block, int blocks, Summary* result) {
    extern __shared__ Summary slots[];
    Summary mine = Summary::empty();
    for (int i = threadIdx.x; i < blocks; i += blockDim.x) mine.merge(per_block[i]);
    slots[threadIdx.x] = mine;
    summary_tree(slots);
    if (threadIdx.x == 0) *result = slots[0];
}

KERNEL segment_mean(const float* __restrict__ values, const int* __restrict__ offsets, float* __restrict__ means) {
    __shared__ float acc[128];
    const int segment = blockIdx.x;
    const int begin = offsets[segment], end = offsets[segment + 1];
    if (begin == end) {
        if (threadIdx.x == 0) means[segment] = 0.0f;
        return;
    }
    float sum = 0.0f;
    for (int i = begin + threadIdx.x; i < end; i += 128) sum += values[i];
    acc[threadIdx.x] = sum;
    __syncthreads();
    for (unsigned s = 64; s > 0; s >>= 1) {
        if (threadIdx.x < s) acc[threadIdx.x] += acc[threadIdx.x + s];
        __syncthreads();
    }
    if (threadIdx.x == 0) means[segment] = acc[0] / (float)(end - begin);
}

// ---------------------------------------------------------------- softmax

struct AddOp {
    __device__ float operator()(float a, float b) const { return a + b; }
};
struct MaxOp {
    __device__ float operator()(float a, float b) const { return fmaxf(a, b); }
};

template <typename Op>
__device__ __forceinline__ float warp_all(float v, Op op) {
#pragma unroll
    for (int mask = 16; mask >= 1; mask >>= 1) v = op(v, __shfl_xor_sync(ALL_LANES, v, mask));
    return v;
}

// Everybody gets the result.
template <typename Op>
__device__ float block_all(float v, float identity, float* per_warp, Op op) {
    const int lane = threadIdx.x & 31, warp = threadIdx.x >> 5;
    v = warp_all(v, op);
    __syncthreads();
    if (lane == 0) per_warp[warp] = v;
    __syncthreads();
    v = lane < (blockDim.x >> 5) ? per_warp[lane] : identity;
    return warp_all(v, op);
}

KERNEL softmax_three_pass(const float* __restrict__ in, float* __restrict__ out, int cols) {
    __shared__ float per_warp[32];
    const float* x = in + (size_t)blockIdx.x * cols;
    float* y = out + (size_t)blockIdx.x * cols;
    float top = -FLT_MAX;
    for (int c = threadIdx.x; c < cols; c += blockDim.x) top = fmaxf(top, x[c]);
    top = block_all(top, -FLT_MAX, per_warp, MaxOp());
    float sum = 0.0f;
    for (int c = threadIdx.x; c < cols; c += blockDim.x) sum += expf(x[c] - top);
    sum = block_all(sum, 0.0f, per_warp, AddOp());
    const float scale = 1.0f / sum;
    for (int c = threadIdx.x; c < cols; c += blockDim.x) y[c] = expf(x[c] - top) * scale;
}

KERNEL log_softmax_nll(const float* logits, const long long* target, float* log_probs, float* loss, int rows, int cols) {
    int row = (blockIdx.x * blockDim.x + threadIdx.x) / 32;
    int lane = threadIdx.x % 32;
    if (row >= rows) return;
    const float* x = logits + row * cols;
    float top = -INFINITY;
    for (int c = lane; c < cols; c += 32) top = max(top, x[c]);
    top = warp_all(top, MaxOp());
    float sum = 0;
    for (int c = lane; c < cols; c += 32) sum += __expf(x[c] - top);
    sum = warp_all(sum, AddOp());
    float lse = top + logf(sum);
    for (int c = lane; c < cols; c += 32) {
        float lp = x[c] - lse;
        log_probs[row * cols + c] = lp;
        if (c == target[row]) loss[row] = -lp;
    }
}

// Rows of halves, two at a time; the exponentials wait in shared memory.
KERNEL softmax_half2(const __half2* __restrict__ in, __half2* __restrict__ out, int pairs) {
    extern __shared__ float2 row_cache[];
    __shared__ float per_warp[32];
    const __half2* x = in + (size_t)blockIdx.x * pairs;
    __half2* y = out + (size_t)blockIdx.x * pairs;
    float top = -65504.0f;
    for (int p = threadIdx.x; p < pairs; p += blockDim.x) {
        float2 v = __half22float2(x[p]);
        row_cache[p] = v;
        top = fmaxf(top, fmaxf(v.x, v.y));
    }
    top = block_all(top, -65504.0f, per_warp, MaxOp());
    float sum = 0.0f;
    for (int p = threadIdx.x; p < pairs; p += blockDim.x) {
        float2 v = row_cache[p];
        v.x = __expf(v.x - top);
        v.y = __expf(v.y - top);
        row_cache[p] = v;
        sum += v.x + v.y;
    }
    sum = block_all(sum, 0.0f, per_warp, AddOp());
    float inv = __fdividef(1.0f, sum);
    for (int p = threadIdx.x; p < pairs; p += blockDim.x) {
        float2 v = row_cache[p];
        y[p] = __floats2half2_rn(v.x * inv, v.y * inv);
    }
}

// ---------------------------------------------------------------- norms

struct Welford {
    float mean, m2, count;
};

__device__ inline void welford_add(Welford& w, float v) {
    w.count += 1.0f;
    float delta = v - w.mean;
    w.mean += delta / w.count;
    w.m2 += delta * (v - w.mean);
}

__device__ inline Welford welford_merge(Welford a, Welford b) {
    float count = a.count + b.count;
    if (count == 0.0f) return Welford{0.0f, 0.0f, 0.0f};
    float delta = b.mean - a.mean;
    float part = b.count / count;
    return Welford{a.mean + delta * part, a.m2 + b.m2 + delta * delta * a.count * part, count};
}

__device__ inline Welford welford_warp(Welford w) {
#pragma unroll
    for (int offset = 16; offset > 0; offset >>= 1) {
        Welford other;
        other.mean = __shfl_down_sync(ALL_LANES, w.mean, offset);
        other.m2 = __shfl_down_sync(ALL_LANES, w.m2, offset);
        other.count = __shfl_down_sync(ALL_LANES, w.count, offset);
        w = welford_merge(w, other);
    }
    return w;
}

KERNEL layer_norm_welford(const float4* __restrict__ x, const float4* __restrict__ gamma,
                          const float4* __restrict__ beta, float4* __restrict__ y, int vectors, float eps) {
    __shared__ Welford parts[32];
    __shared__ float s_mean, s_rstd;
    x += (size_t)blockIdx.x * vectors;
    y += (size_t)blockIdx.x * vectors;
    Welford w = {0.0f, 0.0f, 0.0f};
    for (int i = threadIdx.x; i < vectors; i += blockDim.x) {
        float4 v = x[i];
        welford_add(w, v.x);
        welford_add(w, v.y);
        welford_add(w, v.z);
        welford_add(w, v.w);
    }
    w = welford_warp(w);
    int lane = threadIdx.x & 31, warp = threadIdx.x >> 5;
    if (lane == 0) parts[warp] = w;
    __syncthreads();
    if (warp == 0) {
        w = lane < blockDim.x / 32 ? parts[lane] : Welford{0.0f, 0.0f, 0.0f};
        w = welford_warp(w);
        if (lane == 0) {
            s_mean = w.mean;
            s_rstd = rsqrtf(w.m2 / w.count + eps);
        }
    }
    __syncthreads();
    const float mean = s_mean, rstd = s_rstd;
    for (int i = threadIdx.x; i < vectors; i += blockDim.x) {
        float4 v = x[i], g = gamma[i], b = beta[i];
        v.x = (v.x - mean) * rstd * g.x + b.x;
        v.y = (v.y - mean) * rstd * g.y + b.y;
        v.z = (v.z - mean) * rstd * g.z + b.z;
        v.w = (v.w - mean) * rstd * g.w + b.w;
        y[i] = v;
    }
}

struct ImageShape {
    int n, c, h, w;
};

// A block a channel; its threads are 32 wide and 16 high, rows of threads take images.
KERNEL batch_norm_stats(const float* __restrict__ x, float* mean, float* inv_std, ImageShape shape, float eps) {
    __shared__ float2 sums[16];
    const int channel = blockIdx.x;
    const int plane = shape.h * shape.w;
    float2 acc = make_float2(0.0f, 0.0f);
    for (int n = threadIdx.y; n < shape.n; n += blockDim.y) {
        const float* image = x + ((size_t)n * shape.c + channel) * plane;
        for (int i = threadIdx.x; i < plane; i += blockDim.x) {
            float v = image[i];
            acc.x += v;
            acc.y += v * v;
        }
    }
    for (int offset = 16; offset; offset /= 2) {
        acc.x += __shfl_xor_sync(ALL_LANES, acc.x, offset);
        acc.y += __shfl_xor_sync(ALL_LANES, acc.y, offset);
    }
    if (threadIdx.x == 0) sums[threadIdx.y] = acc;
    __syncthreads();
    if (threadIdx.x == 0 && threadIdx.y == 0) {
        float sum = 0.0f, squares = 0.0f;
        for (int i = 0; i < blockDim.y; i++) {
            sum += sums[i].x;
            squares += sums[i].y;
        }
        float count = (float)shape.n * plane;
        float m = sum / count;
        mean[channel] = m;
        inv_std[channel] = 1.0f / sqrtf(squares / count - m * m + eps);
    }
}

// x: along the plane, y: channel, z: image.
KERNEL batch_norm_apply(const float* __restrict__ x, float* __restrict__ y, const float* __restrict__ mean,
                        const float* __restrict__ inv_std, const float* __restrict__ weight,
                        const float* __restrict__ bias, ImageShape shape) {
    int plane = shape.h * shape.w;
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    int c = blockIdx.y, n = blockIdx.z;
    if (i >= plane) return;
    size_t at = ((size_t)n * shape.c + c) * plane + i;
    y[at] = (x[at] - mean[c]) * inv_std[c] * weight[c] + bias[c];
}

// A block of 1024 a group of channels of an image.
KERNEL group_norm_1024(const float* x, const float* weight, const float* bias, float* y, ImageShape shape, int groups,
                       float eps) {
    __shared__ float per_warp[32];
    const int plane = shape.h * shape.w;
    const int per_group = shape.c / groups;
    const int group = blockIdx.x % groups;
    const int size = per_group * plane;
    const size_t start = (size_t)blockIdx.x * size;
    float sum = 0.0f;
    for (int i = threadIdx.x; i < size; i += blockDim.x) sum += x[start + i];
    const float mean = block_all(sum, 0.0f, per_warp, AddOp()) / size;
    float var = 0.0f;
    for (int i = threadIdx.x; i < size; i += blockDim.x) {
        float d = x[start + i] - mean;
        y[start + i] = d;
        var += d * d;
    }
    var = block_all(var, 0.0f, per_warp, AddOp()) / size;
    const float scale = rsqrtf(var + eps);
    for (int i = threadIdx.x; i < size; i += blockDim.x) {
        int c = group * per_group + i / plane;
        y[start + i] = y[start + i] * scale * weight[c] + bias[c];
    }
}

KERNEL rms_norm_bf16(const __nv_bfloat16* __restrict__ x, const __nv_bfloat16* __restrict__ weight,
                     __nv_bfloat16* __restrict__ y, unsigned rows, unsigned cols, float eps) {
    const unsigned row = blockIdx.x * blockDim.y + threadIdx.y;
    if (row >= rows) return;
    const __nv_bfloat162* in = reinterpret_cast<const __nv_bfloat162*>(x + row * cols);
    const __nv_bfloat162* w = reinterpret_cast<const __nv_bfloat162*>(weight);
    __nv_bfloat162* out = reinterpret_cast<__nv_bfloat162*>(y + row * cols);
    float squares = 0.0f;
    for (unsigned i = threadIdx.x; i < cols / 2; i += 32) {
        float2 v = __bfloat1622float2(in[i]);
        squares = fmaf(v.x, v.x, squares);
        squares = fmaf(v.y, v.y, squares);
    }
    squares = warp_all(squares, AddOp());
    const float scale = rsqrtf(squares / cols + eps);
    for (unsigned i = threadIdx.x; i < cols / 2; i += 32) {
        float2 v = __bfloat1622float2(in[i]), k = __bfloat1622float2(w[i]);
        out[i] = __floats2bfloat162_rn(v.x * scale * k.x, v.y * scale * k.y);
    }
}

// ---------------------------------------------------------------- sparse

template <int LANES>
__device__ void spmv_subwarp(int rows, const int* __restrict__ row_ptr, const int* __restrict__ cols,
                             const float* __restrict__ vals, const float* __restrict__ x, float* __restrict__ y) {
    const int thread = blockIdx.x * blockDim.x + threadIdx.x;
    const int row = thread / LANES;
    const int lane = thread % LANES;
    float sum = 0.0f;
    if (row < rows) {
        const int end = row_ptr[row + 1];
        for (int k = row_ptr[row] + lane; k < end; k += LANES) sum += vals[k] * __ldg(x + cols[k]);
    }
#pragma unroll
    for (int offset = LANES / 2; offset > 0; offset >>= 1) sum += __shfl_down_sync(ALL_LANES, sum, offset, LANES);
    if (row < rows && lane == 0) y[row] = sum;
}
KERNEL spmv_csr4(int rows, const int* row_ptr, const int* cols, const float* vals, const float* x, float* y) {
    spmv_subwarp<4>(rows, row_ptr, cols, vals, x, y);
}

KERNEL spmv_scalar_f64(int rows, double alpha, const int* row_ptr, const int* cols, const double* vals,
                       const double* x, double beta, double* y) {
    for (int row = blockDim.x * blockIdx.x + threadIdx.x; row < rows; row += blockDim.x * gridDim.x) {
        double dot = 0.0;
        for (int k = row_ptr[row]; k < row_ptr[row + 1]; ++k) dot += vals[k] * x[cols[k]];
        y[row] = alpha * dot + beta * y[row];
    }
}

struct CsrView {
    int rows;
    const int* row_ptr;
    const int* cols;
    const float* vals;
};

// 8 columns of a dense, row-major block; threadIdx.x is the column.
KERNEL spmm_csr_x8(CsrView a, const float* __restrict__ b, float* __restrict__ c) {
    int row = blockIdx.x * blockDim.y + threadIdx.y;
    if (row >= a.rows) return;
    float acc = 0.0f;
    int end = a.row_ptr[row + 1];
#pragma unroll 4
    for (int k = a.row_ptr[row]; k < end; k++) acc += a.vals[k] * b[a.cols[k] * 8 + threadIdx.x];
    c[row * 8 + threadIdx.x] = acc;
}

// The same, all eight columns by a thread.
KERNEL spmm_csr_f4(CsrView a, const float4* __restrict__ b, float4* __restrict__ c) {
    int row = blockIdx.x * blockDim.x + threadIdx.x;
    if (row >= a.rows) return;
    float4 lo = make_float4(0, 0, 0, 0), hi = make_float4(0, 0, 0, 0);
    for (int k = a.row_ptr[row]; k < a.row_ptr[row + 1]; k++) {
        float v = a.vals[k];
        float4 p = b[2 * a.cols[k]], q = b[2 * a.cols[k] + 1];
        lo.x += v * p.x; lo.y += v * p.y; lo.z += v * p.z; lo.w += v * p.w;
        hi.x += v * q.x; hi.y += v * q.y; hi.z += v * q.z; hi.w += v * q.w;
    }
    c[2 * row] = lo;
    c[2 * row + 1] = hi;
}

// ---------------------------------------------------------------- scans

KERNEL scan_kogge_stone(const float* in, float* out, float* block_sums, unsigned int n) {
    __shared__ float s[256];
    unsigned int i = blockIdx.x * blockDim.x + threadIdx.x;
    s[threadIdx.x] = i < n ? in[i] : 0.0f;
    for (unsigned int stride = 1; stride < blockDim.x; stride *= 2) {
        __syncthreads();
        float before = 0.0f;
        if (threadIdx.x >= stride) before = s[threadIdx.x - stride];
        __syncthreads();
        s[threadIdx.x] += before;
    }
    if (i < n) out[i] = s[threadIdx.x];
    if (threadIdx.x == blockDim.x - 1) block_sums[blockIdx.x] = s[threadIdx.x];
}

KERNEL scan_add_sums(float* out, const float* scanned_sums, unsigned int n) {
    if (blockIdx.x == 0) return;
    unsigned int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) out[i] += scanned_sums[blockIdx.x - 1];
}

KERNEL scan_exclusive_x4(const int* __restrict__ in, int* __restrict__ out, int* __restrict__ block_totals, int n) {
    __shared__ int warp_totals[8];
    const int lane = threadIdx.x & 31, warp = threadIdx.x >> 5;
    const int base = (blockIdx.x * 256 + threadIdx.x) * 4;
    int item[4];
    if (base + 3 < n) {
        int4 v = *reinterpret_cast<const int4*>(in + base);
        item[0] = v.x; item[1] = v.y; item[2] = v.z; item[3] = v.w;
    } else {
#pragma unroll
        for (int k = 0; k < 4; k++) item[k] = base + k < n ? in[base + k] : 0;
    }
    int total = item[0] + item[1] + item[2] + item[3];
    int inclusive = total;
#pragma unroll
    for (int d = 1; d < 32; d <<= 1) {
        int up = __shfl_up_sync(ALL_LANES, inclusive, d);
        if (lane >= d) inclusive += up;
    }
    if (lane == 31) warp_totals[warp] = inclusive;
    __syncthreads();
    if (warp == 0) {
        int t = lane < 8 ? warp_totals[lane] : 0;
#pragma unroll
        for (int d = 1; d < 8; d <<= 1) {
            int up = __shfl_up_sync(ALL_LANES, t, d);
            if (lane >= d) t += up;
        }
        if (lane < 8) warp_totals[lane] = t;
    }
    __syncthreads();
    int prefix = inclusive - total + (warp > 0 ? warp_totals[warp - 1] : 0);
#pragma unroll
    for (int k = 0; k < 4; k++) {
        if (base + k < n) out[base + k] = prefix;
        prefix += item[k];
    }
    if (threadIdx.x == 255) block_totals[blockIdx.x] = prefix;
}

// One block: totals of blocks to what lies before each.
KERNEL scan_totals(int* totals, int count) {
    __shared__ int s[1024];
    __shared__ int carry;
    if (threadIdx.x == 0) carry = 0;
    for (int start = 0; start < count; start += blockDim.x) {
        int i = start + threadIdx.x;
        int v = i < count ? totals[i] : 0;
        s[threadIdx.x] = v;
        __syncthreads();
        for (int d = 1; d < blockDim.x; d *= 2) {
            int before = threadIdx.x >= d ? s[threadIdx.x - d] : 0;
            __syncthreads();
            s[threadIdx.x] += before;
            __syncthreads();
        }
        if (i < count) totals[i] = carry + s[threadIdx.x] - v;
        __syncthreads();
        if (threadIdx.x == blockDim.x - 1) carry += s[threadIdx.x];
        __syncthreads();
    }
}

KERNEL scan_add_x4(int* out, const int* before, int n) {
    int add = before[blockIdx.x];
    for (int i = blockIdx.x * 1024 + threadIdx.x; i < min(n, (int)(blockIdx.x + 1) * 1024); i += blockDim.x)
        out[i] += add;
}

// Where the values are above the limit: a warp asks for its places by one atomic.
KERNEL compact_indexes(const float* __restrict__ x, int n, float limit, int* __restrict__ found, int* count) {
    int stride = gridDim.x * blockDim.x;
    int lane = threadIdx.x & 31;
    int rounded = (n + 31) / 32 * 32;
    for (int i = blockIdx.x * blockDim.x + threadIdx.x; i < rounded; i += stride) {
        bool keep = i < n && x[i] > limit;
        unsigned votes = __ballot_sync(ALL_LANES, keep);
        if (votes == 0) continue;
        int leader = __ffs(votes) - 1;
        int base = 0;
        if (lane == leader) base = atomicAdd(count, __popc(votes));
        base = __shfl_sync(ALL_LANES, base, leader);
        if (keep) found[base + __popc(votes & ((1u << lane) - 1))] = i;
    }
}

// ---------------------------------------------------------------- histograms

KERNEL hist64_per_warp(const unsigned int* __restrict__ data, unsigned int words, unsigned int* __restrict__ bins) {
    __shared__ unsigned int copies[6][64];
    unsigned int* flat = &copies[0][0];
    for (unsigned int i = threadIdx.x; i < 6 * 64; i += blockDim.x) flat[i] = 0;
    __syncthreads();
    unsigned int* mine = copies[threadIdx.x / 32];
    for (unsigned int i = blockIdx.x * blockDim.x + threadIdx.x; i < words; i += gridDim.x * blockDim.x) {
        unsigned int w = data[i];
        atomicAdd(mine + (w >> 2 & 0x3f), 1);
        atomicAdd(mine + (w >> 10 & 0x3f), 1);
        atomicAdd(mine + (w >> 18 & 0x3f), 1);
        atomicAdd(mine + (w >> 26 & 0x3f), 1);
    }
    __syncthreads();
    if (threadIdx.x < 64) {
        unsigned int sum = 0;
#pragma unroll
        for (int c = 0; c < 6; c++) sum += copies[c][threadIdx.x];
        atomicAdd(&bins[threadIdx.x], sum);
    }
}

struct Range {
    float lo, hi;
};

KERNEL hist512_float(const float* x, int n, Range range, int bins, int* counts) {
    extern __shared__ int local[];
    for (int b = threadIdx.x; b < bins; b += blockDim.x) local[b] = 0;
    __syncthreads();
    const float scale = bins / (range.hi - range.lo);
    for (int i = blockIdx.x * blockDim.x + threadIdx.x; i < n; i += gridDim.x * blockDim.x) {
        float v = x[i];
        if (v < range.lo || v >= range.hi) continue;
        int b = (int)((v - range.lo) * scale);
        atomicAdd(&local[min(b, bins - 1)], 1);
    }
    __syncthreads();
    for (int b = threadIdx.x; b < bins; b += blockDim.x)
        if (local[b] > 0) atomicAdd(&counts[b], local[b]);
}

__device__ unsigned int mix(unsigned int h) {
    h ^= h >> 16;
    h *= 0x85ebca6bu;
    h ^= h >> 13;
    h *= 0xc2b2ae35u;
    h ^= h >> 16;
    return h;
}

KERNEL count_words(const unsigned int* keys, size_t n, unsigned int* buckets) {
    size_t i = (size_t)blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= n) return;
    atomicAdd(buckets + (mix(keys[i]) & 4095), 1u);
}

// ---------------------------------------------------------------- by rows

KERNEL argmax_rows(const float* __restrict__ x, int* __restrict__ index, float* __restrict__ value, int cols) {
    __shared__ float vals[128];
    __shared__ int ids[128];
    const int tid = threadIdx.x;
    const float* row = x + (long)blockIdx.x * cols;
    float best = -INFINITY;
    int at = -1;
    for (int c = tid; c < cols; c += 128) {
        if (row[c] > best) {
            best = row[c];
            at = c;
        }
    }
    vals[tid] = best;
    ids[tid] = at;
    __syncthreads();
    for (int s = 64; s > 0; s >>= 1) {
        if (tid < s) {
            float v = vals[tid + s];
            int i = ids[tid + s];
            if (v > vals[tid] || (v == vals[tid] && i < ids[tid])) {
                vals[tid] = v;
                ids[tid] = i;
            }
        }
        __syncthreads();
    }
    if (tid == 0) {
        index[blockIdx.x] = ids[0];
        value[blockIdx.x] = vals[0];
    }
}

KERNEL cumprod_rows(const double* __restrict__ x, double* __restrict__ y, int rows, int cols) {
    int lane = threadIdx.x;
    int row = blockIdx.x * blockDim.y + threadIdx.y;
    if (row >= rows) return;
    x += (size_t)row * cols;
    y += (size_t)row * cols;
    double carry = 1.0;
    for (int start = 0; start < cols; start += 32) {
        int c = start + lane;
        double v = c < cols ? x[c] : 1.0;
        for (int d = 1; d < 32; d *= 2) {
            double up = __shfl_up_sync(ALL_LANES, v, d);
            if (lane >= d) v *= up;
        }
        v *= carry;
        if (c < cols) y[c] = v;
        carry = __shfl_sync(ALL_LANES, v, 31);
    }
}

// Sixteen threads a row; the largest and the sum are kept together.
KERNEL logsumexp_rows(const float* x, float* out, int rows, int cols) {
    int row = (blockIdx.x * blockDim.x + threadIdx.x) >> 4;
    int lane = threadIdx.x & 15;
    bool live = row < rows;
    float top = -INFINITY, sum = 0.0f;
    if (live) {
        const float* r = x + (size_t)row * cols;
        for (int c = lane; c < cols; c += 16) {
            float v = r[c];
            if (v > top) {
                sum = sum * __expf(top - v) + 1.0f;
                top = v;
            } else {
                sum += __expf(v - top);
            }
        }
    }
#pragma unroll
    for (int mask = 8; mask > 0; mask >>= 1) {
        float other_top = __shfl_xor_sync(ALL_LANES, top, mask, 16);
        float other_sum = __shfl_xor_sync(ALL_LANES, sum, mask, 16);
        float both = fmaxf(top, other_top);
        sum = live ? sum * __expf(top - both) + other_sum * __expf(other_top - both) : 0.0f;
        top = both;
    }
    if (live && lane == 0) out[row] = top + __logf(sum);
}

__device__ float log_add(float a, float b) {
    float hi = fmaxf(a, b), lo = fminf(a, b);
    return lo == -INFINITY ? hi : hi + log1pf(expf(lo - hi));
}

// A block of 64 a row, 64 columns at a time: partial sums of each, in logarithms.
KERNEL logcumsumexp_rows(const float* x, float* y, int cols) {
    __shared__ float buffer[2][64];
    const int t = threadIdx.x;
    float carry = -INFINITY;
    for (int start = 0; start < cols; start += 64) {
        int c = start + t;
        int from = 0;
        buffer[0][t] = c < cols ? x[blockIdx.x * cols + c] : -INFINITY;
        __syncthreads();
        for (int d = 1; d < 64; d <<= 1) {
            float v = buffer[from][t];
            buffer[1 - from][t] = t >= d ? log_add(v, buffer[from][t - d]) : v;
            from = 1 - from;
            __syncthreads();
        }
        float v = log_add(buffer[from][t], carry);
        if (c < cols) y[blockIdx.x * cols + c] = v;
        carry = log_add(buffer[from][63], carry);
        __syncthreads();
    }
}

struct Top2 {
    float v1, v2;
    int i1, i2;
};

__device__ __forceinline__ void top2_put(Top2& t, float v, int i) {
    if (v > t.v1) {
        t.v2 = t.v1;
        t.i2 = t.i1;
        t.v1 = v;
        t.i1 = i;
    } else if (v > t.v2) {
        t.v2 = v;
        t.i2 = i;
    }
}

KERNEL top2_rows(const float* __restrict__ scores, float2* __restrict__ weights, int2* __restrict__ experts, int rows,
                 int cols) {
    const int row = blockIdx.x * (blockDim.x / 32) + threadIdx.x / 32;
    const int lane = threadIdx.x % 32;
    if (row >= rows) return;
    Top2 t = {-INFINITY, -INFINITY, -1, -1};
    for (int c = lane; c < cols; c += 32) top2_put(t, scores[(size_t)row * cols + c], c);
    for (int offset = 16; offset > 0; offset >>= 1) {
        float v1 = __shfl_down_sync(ALL_LANES, t.v1, offset);
        float v2 = __shfl_down_sync(ALL_LANES, t.v2, offset);
        int i1 = __shfl_down_sync(ALL_LANES, t.i1, offset);
        int i2 = __shfl_down_sync(ALL_LANES, t.i2, offset);
        top2_put(t, v1, i1);
        top2_put(t, v2, i2);
    }
    if (lane == 0) {
        float e = expf(t.v2 - t.v1);
        weights[row] = make_float2(1.0f / (1.0f + e), e / (1.0f + e));
        experts[row] = make_int2(t.i1, t.i2);
    }
}

// As `compact_indexes`, an element a thread and no loop.
KERNEL compact_flat(const float* __restrict__ x, int n, float limit, int* __restrict__ found, int* count) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    int lane = threadIdx.x & 31;
    bool keep = i < n && x[i] > limit;
    unsigned votes = __ballot_sync(ALL_LANES, keep);
    int base = 0;
    if (lane == 0) base = atomicAdd(count, __popc(votes));
    base = __shfl_sync(ALL_LANES, base, 0);
    if (keep) found[base + __popc(votes & ((1u << lane) - 1))] = i;
}

// Places within the block by warps' counts in shared memory; one global atomic a block.
KERNEL compact_by_block(const float* __restrict__ x, int n, float limit, int* __restrict__ found, int* count) {
    __shared__ int before[8];
    __shared__ int block_base;
    int i = blockIdx.x * 256 + threadIdx.x;
    int lane = threadIdx.x & 31, warp = threadIdx.x >> 5;
    bool keep = i < n && x[i] > limit;
    unsigned votes = __ballot_sync(ALL_LANES, keep);
    if (lane == 0) before[warp] = __popc(votes);
    __syncthreads();
    if (threadIdx.x == 0) {
        int sum = 0;
        for (int w = 0; w < 8; w++) {
            int c = before[w];
            before[w] = sum;
            sum += c;
        }
        block_base = sum ? atomicAdd(count, sum) : 0;
    }
    __syncthreads();
    if (keep) found[block_base + before[warp] + __popc(votes & ((1u << lane) - 1))] = i;
}
