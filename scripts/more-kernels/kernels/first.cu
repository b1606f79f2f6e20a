// Kernels as CUDA programmers write them; `src/main.rs` says what for.
#define FULL 0xffffffffu
#define K extern "C" __global__ void

// ---------- streaming ----------
K saxpy4(int n, float a, const float4* __restrict__ x, float4* __restrict__ y) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    int n4 = n / 4;
    if (i < n4) {
        float4 xv = x[i];
        float4 yv = y[i];
        yv.x = a * xv.x + yv.x;
        yv.y = a * xv.y + yv.y;
        yv.z = a * xv.z + yv.z;
        yv.w = a * xv.w + yv.w;
        y[i] = yv;
    } else if (i == n4) {
        for (int k = n4 * 4; k < n; k++) ((float*)y)[k] += a * ((const float*)x)[k];
    }
}

K triad_gs(double* a, const double* b, const double* c, double scalar, size_t n) {
    size_t stride = (size_t)gridDim.x * blockDim.x;
    for (size_t i = (size_t)blockIdx.x * blockDim.x + threadIdx.x; i < n; i += stride) a[i] = b[i] + scalar * c[i];
}

K bias_gelu(const float* __restrict__ x, const float* __restrict__ bias, float* __restrict__ out, int n, int cols) {
    for (int i = blockIdx.x * blockDim.x + threadIdx.x; i < n; i += gridDim.x * blockDim.x) {
        float v = x[i] + bias[i % cols];
        float t = 0.7978845608f * (v + 0.044715f * v * v * v);
        out[i] = 0.5f * v * (1.0f + tanhf(t));
    }
}

K rgb_to_gray(const uchar3* in, unsigned char* out, int width, int height) {
    int x = blockIdx.x * blockDim.x + threadIdx.x;
    int y = blockIdx.y * blockDim.y + threadIdx.y;
    if (x < width && y < height) {
        uchar3 p = in[y * width + x];
        out[y * width + x] = (unsigned char)(0.299f * p.x + 0.587f * p.y + 0.114f * p.z);
    }
}

K embedding_gather(const float* __restrict__ table, const int* __restrict__ ids, float* __restrict__ out, int dim) {
    int token = blockIdx.x;
    const float* row = table + (size_t)ids[token] * dim;
    float* dst = out + (size_t)token * dim;
    for (int d = threadIdx.x; d < dim; d += blockDim.x) dst[d] = row[d];
}

// ---------- reductions ----------
__inline__ __device__ float warp_sum(float v) {
#pragma unroll
    for (int offset = 16; offset > 0; offset /= 2) v += __shfl_down_sync(FULL, v, offset);
    return v;
}

__inline__ __device__ float block_sum(float v) {
    static __shared__ float shared[32];
    int lane = threadIdx.x % warpSize;
    int wid = threadIdx.x / warpSize;
    v = warp_sum(v);
    if (lane == 0) shared[wid] = v;
    __syncthreads();
    v = (threadIdx.x < blockDim.x / warpSize) ? shared[lane] : 0.0f;
    if (wid == 0) v = warp_sum(v);
    return v;
}

K dot_product(const float* a, const float* b, float* result, int n) {
    float sum = 0.0f;
    for (int i = blockIdx.x * blockDim.x + threadIdx.x; i < n; i += blockDim.x * gridDim.x) sum += a[i] * b[i];
    sum = block_sum(sum);
    if (threadIdx.x == 0) atomicAdd(result, sum);
}

template <unsigned BS>
__device__ void reduce_body(const float* in, float* out, unsigned n) {
    __shared__ float s[BS];
    unsigned tid = threadIdx.x;
    unsigned i = blockIdx.x * (BS * 2) + tid;
    unsigned grid = BS * 2 * gridDim.x;
    float sum = 0.0f;
    while (i < n) {
        sum += in[i];
        if (i + BS < n) sum += in[i + BS];
        i += grid;
    }
    s[tid] = sum;
    __syncthreads();
    if (BS >= 512) { if (tid < 256) s[tid] = sum = sum + s[tid + 256]; __syncthreads(); }
    if (BS >= 256) { if (tid < 128) s[tid] = sum = sum + s[tid + 128]; __syncthreads(); }
    if (BS >= 128) { if (tid < 64) s[tid] = sum = sum + s[tid + 64]; __syncthreads(); }
    if (tid < 32) {
        sum += s[tid + 32];
        for (int offset = 16; offset > 0; offset /= 2) sum += __shfl_down_sync(FULL, sum, offset);
        if (tid == 0) out[blockIdx.x] = sum;
    }
}
K reduce_unrolled(const float* in, float* out, unsigned n) { reduce_body<256>(in, out, n); }

// Sequential addressing, a thread an element, the last warp by the warp reduction instruction.
K max_redux(const int* in, int* result, int n) {
    __shared__ int s[512];
    int tid = threadIdx.x;
    int i = blockIdx.x * blockDim.x + tid;
    s[tid] = i < n ? in[i] : -2147483647 - 1;
    __syncthreads();
    for (int stride = blockDim.x / 2; stride >= 32; stride >>= 1) {
        if (tid < stride) s[tid] = max(s[tid], s[tid + stride]);
        __syncthreads();
    }
    if (tid < 32) {
        int m = __reduce_max_sync(FULL, s[tid]);
        if (tid == 0) atomicMax(result, m);
    }
}

__device__ void warp_argmax(float& v, int& idx) {
    for (int offset = 16; offset > 0; offset >>= 1) {
        float ov = __shfl_down_sync(FULL, v, offset);
        int oi = __shfl_down_sync(FULL, idx, offset);
        if (ov > v || (ov == v && oi < idx)) { v = ov; idx = oi; }
    }
}
K argmax_pairs(const float* in, const int* in_idx, float* out, int* out_idx, int n) {
    __shared__ float sv[32];
    __shared__ int si[32];
    float best = -INFINITY;
    int where = 0x7fffffff;
    for (int i = blockIdx.x * blockDim.x + threadIdx.x; i < n; i += gridDim.x * blockDim.x) {
        float v = in[i];
        int at = in_idx ? in_idx[i] : i;
        if (v > best || (v == best && at < where)) { best = v; where = at; }
    }
    warp_argmax(best, where);
    int lane = threadIdx.x & 31, wid = threadIdx.x >> 5;
    if (lane == 0) { sv[wid] = best; si[wid] = where; }
    __syncthreads();
    if (wid == 0) {
        int warps = (blockDim.x + 31) / 32;
        best = lane < warps ? sv[lane] : -INFINITY;
        where = lane < warps ? si[lane] : 0x7fffffff;
        warp_argmax(best, where);
        if (lane == 0) { out[blockIdx.x] = best; out_idx[blockIdx.x] = where; }
    }
}

__device__ unsigned xorshift32(unsigned& s) {
    s ^= s << 13;
    s ^= s >> 17;
    s ^= s << 5;
    return s;
}
K monte_carlo_pi(unsigned long long* hits, int samples, unsigned seed) {
    __shared__ unsigned block_hits;
    if (threadIdx.x == 0) block_hits = 0;
    __syncthreads();
    unsigned state = seed + (blockIdx.x * blockDim.x + threadIdx.x) * 2654435761u;
    if (state == 0) state = 1;
    unsigned inside = 0;
    for (int i = 0; i < samples; i++) {
        float x = (xorshift32(state) >> 8) * (1.0f / 16777216.0f);
        float y = (xorshift32(state) >> 8) * (1.0f / 16777216.0f);
        if (x * x + y * y <= 1.0f) inside++;
    }
    atomicAdd(&block_hits, inside);
    __syncthreads();
    if (threadIdx.x == 0) atomicAdd(hits, (unsigned long long)block_hits);
}

K gemv_warp(const float* __restrict__ a, const float* __restrict__ x, float* __restrict__ y, int rows, int cols) {
    int row = (blockIdx.x * blockDim.x + threadIdx.x) / 32;
    int lane = threadIdx.x & 31;
    if (row < rows) {
        float sum = 0.0f;
        for (int c = lane; c < cols; c += 32) sum += a[row * cols + c] * x[c];
        sum = warp_sum(sum);
        if (lane == 0) y[row] = sum;
    }
}

// ---------- softmax and norms ----------
K softmax_warp_online(const float* in, float* out, int rows, int cols) {
    int row = blockIdx.x * blockDim.y + threadIdx.y;
    if (row >= rows) return;
    const float* src = in + row * cols;
    float* dst = out + row * cols;
    float m = -INFINITY, d = 0.0f;
    for (int c = threadIdx.x; c < cols; c += 32) {
        float v = src[c];
        if (v > m) { d = d * expf(m - v) + 1.0f; m = v; }
        else d += expf(v - m);
    }
    for (int offset = 16; offset > 0; offset >>= 1) {
        float om = __shfl_xor_sync(FULL, m, offset);
        float od = __shfl_xor_sync(FULL, d, offset);
        float nm = fmaxf(m, om);
        d = d * expf(m - nm) + od * expf(om - nm);
        m = nm;
    }
    float inv = 1.0f / d;
    for (int c = threadIdx.x; c < cols; c += 32) dst[c] = expf(src[c] - m) * inv;
}

K softmax_f4_128(const float4* __restrict__ in, float4* __restrict__ out, int cols4) {
    __shared__ float red[4];
    const float4* src = in + (size_t)blockIdx.x * cols4;
    float4* dst = out + (size_t)blockIdx.x * cols4;
    int tid = threadIdx.x, lane = tid & 31, wid = tid >> 5;
    float m = -INFINITY;
    for (int c = tid; c < cols4; c += 128) {
        float4 v = src[c];
        m = fmaxf(m, fmaxf(fmaxf(v.x, v.y), fmaxf(v.z, v.w)));
    }
    for (int o = 16; o > 0; o >>= 1) m = fmaxf(m, __shfl_xor_sync(FULL, m, o));
    if (lane == 0) red[wid] = m;
    __syncthreads();
    m = fmaxf(fmaxf(red[0], red[1]), fmaxf(red[2], red[3]));
    __syncthreads();
    float s = 0.0f;
    for (int c = tid; c < cols4; c += 128) {
        float4 v = src[c];
        v.x = __expf(v.x - m); v.y = __expf(v.y - m); v.z = __expf(v.z - m); v.w = __expf(v.w - m);
        s += v.x + v.y + v.z + v.w;
        dst[c] = v;
    }
    for (int o = 16; o > 0; o >>= 1) s += __shfl_xor_sync(FULL, s, o);
    if (lane == 0) red[wid] = s;
    __syncthreads();
    float inv = 1.0f / (red[0] + red[1] + red[2] + red[3]);
    for (int c = tid; c < cols4; c += 128) {
        float4 v = dst[c];
        v.x *= inv; v.y *= inv; v.z *= inv; v.w *= inv;
        dst[c] = v;
    }
}

K rms_norm(const float* __restrict__ in, const float* __restrict__ weight, float* __restrict__ out, int cols, float eps) {
    __shared__ float scale;
    const float* src = in + (size_t)blockIdx.x * cols;
    float* dst = out + (size_t)blockIdx.x * cols;
    float ss = 0.0f;
    for (int c = threadIdx.x; c < cols; c += blockDim.x) { float v = src[c]; ss += v * v; }
    ss = block_sum(ss);
    if (threadIdx.x == 0) scale = rsqrtf(ss / cols + eps);
    __syncthreads();
    for (int c = threadIdx.x; c < cols; c += blockDim.x) dst[c] = src[c] * scale * weight[c];
}

K layer_norm_tree(const float* in, const float* gamma, const float* beta, float* out, int cols, float eps) {
    __shared__ float buf[128];
    const float* src = in + (size_t)blockIdx.x * cols;
    float* dst = out + (size_t)blockIdx.x * cols;
    int tid = threadIdx.x;
    float s = 0.0f;
    for (int c = tid; c < cols; c += blockDim.x) s += src[c];
    buf[tid] = s;
    __syncthreads();
    for (int stride = blockDim.x / 2; stride > 0; stride /= 2) {
        if (tid < stride) buf[tid] += buf[tid + stride];
        __syncthreads();
    }
    float mean = buf[0] / cols;
    __syncthreads();
    float q = 0.0f;
    for (int c = tid; c < cols; c += blockDim.x) { float d = src[c] - mean; q += d * d; }
    buf[tid] = q;
    __syncthreads();
    for (int stride = blockDim.x / 2; stride > 0; stride /= 2) {
        if (tid < stride) buf[tid] += buf[tid + stride];
        __syncthreads();
    }
    float inv = rsqrtf(buf[0] / cols + eps);
    for (int c = tid; c < cols; c += blockDim.x) dst[c] = (src[c] - mean) * inv * gamma[c] + beta[c];
}

// ---------- sparse ----------
K spmv_csr8(int rows, const int* __restrict__ ptr, const int* __restrict__ col, const float* __restrict__ val,
            const float* __restrict__ x, float* __restrict__ y) {
    int gid = blockIdx.x * blockDim.x + threadIdx.x;
    int row = gid / 8, lane = gid % 8;
    float sum = 0.0f;
    if (row < rows) {
        int end = ptr[row + 1];
        for (int j = ptr[row] + lane; j < end; j += 8) sum += val[j] * x[col[j]];
    }
    for (int o = 4; o > 0; o >>= 1) sum += __shfl_down_sync(FULL, sum, o, 8);
    if (row < rows && lane == 0) y[row] = sum;
}

K spmv_ell(int rows, int width, const int* col, const float* val, const float* x, float* y) {
    int row = blockIdx.x * blockDim.x + threadIdx.x;
    if (row < rows) {
        float sum = 0.0f;
        for (int k = 0; k < width; k++) {
            int c = col[k * rows + row];
            if (c >= 0) sum += val[k * rows + row] * x[c];
        }
        y[row] = sum;
    }
}

K spmv_coo(int nnz, const int* row, const int* col, const float* val, const float* x, float* y) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < nnz) atomicAdd(&y[row[i]], val[i] * x[col[i]]);
}

// ---------- stencils ----------
K stencil9_shared(const float* in, float* out, int w, int h) {
    __shared__ float t[8 + 2][32 + 2];
    int tx = threadIdx.x, ty = threadIdx.y;
    int x = blockIdx.x * 32 + tx, y = blockIdx.y * 8 + ty;
    int cx = min(x, w - 1), cy = min(y, h - 1);
    int xl = max(x - 1, 0), xr = min(x + 1, w - 1);
    int yu = max(y - 1, 0), yd = min(y + 1, h - 1);
    xl = min(xl, w - 1); yu = min(yu, h - 1);
    t[ty + 1][tx + 1] = in[cy * w + cx];
    if (tx == 0) t[ty + 1][0] = in[cy * w + xl];
    if (tx == 31) t[ty + 1][33] = in[cy * w + xr];
    if (ty == 0) t[0][tx + 1] = in[yu * w + cx];
    if (ty == 7) t[9][tx + 1] = in[yd * w + cx];
    if (tx == 0 && ty == 0) t[0][0] = in[yu * w + xl];
    if (tx == 31 && ty == 0) t[0][33] = in[yu * w + xr];
    if (tx == 0 && ty == 7) t[9][0] = in[yd * w + xl];
    if (tx == 31 && ty == 7) t[9][33] = in[yd * w + xr];
    __syncthreads();
    if (x < w && y < h) {
        float corners = t[ty][tx] + t[ty][tx + 2] + t[ty + 2][tx] + t[ty + 2][tx + 2];
        float sides = t[ty][tx + 1] + t[ty + 1][tx] + t[ty + 1][tx + 2] + t[ty + 2][tx + 1];
        out[y * w + x] = 0.25f * t[ty + 1][tx + 1] + 0.125f * sides + 0.0625f * corners;
    }
}

K blur_clamped(const float* in, float* out, int w, int h) {
    int x = blockIdx.x * blockDim.x + threadIdx.x, y = blockIdx.y * blockDim.y + threadIdx.y;
    if (x >= w || y >= h) return;
    int xl = max(x - 1, 0), xr = min(x + 1, w - 1);
    int yu = max(y - 1, 0), yd = min(y + 1, h - 1);
    const float *u = in + yu * w, *m = in + y * w, *d = in + yd * w;
    float corners = u[xl] + u[xr] + d[xl] + d[xr];
    float sides = u[x] + m[xl] + m[xr] + d[x];
    out[y * w + x] = 0.25f * m[x] + 0.125f * sides + 0.0625f * corners;
}

// The same as loops over a filter.
__constant__ float filter3[3][3] = {{0.0625f, 0.125f, 0.0625f}, {0.125f, 0.25f, 0.125f}, {0.0625f, 0.125f, 0.0625f}};
K blur_filter(const float* in, float* out, int w, int h) {
    int x = blockIdx.x * blockDim.x + threadIdx.x, y = blockIdx.y * blockDim.y + threadIdx.y;
    if (x >= w || y >= h) return;
    float sum = 0.0f;
    for (int dy = -1; dy <= 1; dy++)
        for (int dx = -1; dx <= 1; dx++) {
            int xx = min(max(x + dx, 0), w - 1), yy = min(max(y + dy, 0), h - 1);
            sum += filter3[dy + 1][dx + 1] * in[yy * w + xx];
        }
    out[y * w + x] = sum;
}

K stencil7_3d(const float* __restrict__ in, float* __restrict__ out, int nx, int ny, int nz, float c0, float c1) {
    int x = blockIdx.x * blockDim.x + threadIdx.x;
    int y = blockIdx.y * blockDim.y + threadIdx.y;
    if (x < 1 || y < 1 || x >= nx - 1 || y >= ny - 1) return;
    int plane = nx * ny;
    int i = y * nx + x;
    float below = in[i], here = in[i + plane];
    i += plane;
    for (int z = 1; z < nz - 1; z++) {
        float above = in[i + plane];
        out[i] = c0 * here + c1 * (below + above + in[i - 1] + in[i + 1] + in[i - nx] + in[i + nx]);
        below = here;
        here = above;
        i += plane;
    }
}

K jacobi(const double* __restrict__ u, const double* __restrict__ f, double* __restrict__ v, int n, double h2) {
    int j = blockIdx.x * blockDim.x + threadIdx.x;
    int i = blockIdx.y * blockDim.y + threadIdx.y;
    if (i > 0 && i < n - 1 && j > 0 && j < n - 1)
        v[i * n + j] = 0.25 * (u[(i - 1) * n + j] + u[(i + 1) * n + j] + u[i * n + j - 1] + u[i * n + j + 1] + h2 * f[i * n + j]);
}

K game_of_life(const unsigned char* in, unsigned char* out, int w, int h) {
    int x = blockIdx.x * blockDim.x + threadIdx.x;
    int y = blockIdx.y * blockDim.y + threadIdx.y;
    if (x >= w || y >= h) return;
    int left = (x + w - 1) % w, right = (x + 1) % w;
    int up = (y + h - 1) % h * w, down = (y + 1) % h * w, mid = y * w;
    int n = in[up + left] + in[up + x] + in[up + right] + in[mid + left] + in[mid + right] + in[down + left] + in[down + x] +
            in[down + right];
    out[mid + x] = n == 3 || (n == 2 && in[mid + x]);
}

#define RADIUS 8
__constant__ float taps[2 * RADIUS + 1];
K conv1d(const float* in, float* out, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= n) return;
    float sum = 0.0f;
    for (int k = -RADIUS; k <= RADIUS; k++) {
        int j = i + k;
        if (j >= 0 && j < n) sum += in[j] * taps[k + RADIUS];
    }
    out[i] = sum;
}

// ---------- scans ----------
#define PAD(n) ((n) >> 5)
K scan_blelloch(const int* in, int* out, int* sums, int n) {
    __shared__ int temp[512 + 16];
    int tid = threadIdx.x, base = blockIdx.x * 512;
    int ai = tid, bi = tid + 256;
    int pa = PAD(ai), pb = PAD(bi);
    temp[ai + pa] = base + ai < n ? in[base + ai] : 0;
    temp[bi + pb] = base + bi < n ? in[base + bi] : 0;
    int offset = 1;
    for (int d = 256; d > 0; d >>= 1) {
        __syncthreads();
        if (tid < d) {
            int a = offset * (2 * tid + 1) - 1, b = offset * (2 * tid + 2) - 1;
            a += PAD(a); b += PAD(b);
            temp[b] += temp[a];
        }
        offset *= 2;
    }
    if (tid == 0) {
        sums[blockIdx.x] = temp[511 + PAD(511)];
        temp[511 + PAD(511)] = 0;
    }
    for (int d = 1; d < 512; d *= 2) {
        offset >>= 1;
        __syncthreads();
        if (tid < d) {
            int a = offset * (2 * tid + 1) - 1, b = offset * (2 * tid + 2) - 1;
            a += PAD(a); b += PAD(b);
            int t = temp[a];
            temp[a] = temp[b];
            temp[b] += t;
        }
    }
    __syncthreads();
    if (base + ai < n) out[base + ai] = temp[ai + pa];
    if (base + bi < n) out[base + bi] = temp[bi + pb];
}

K add_block_offsets(int* data, const int* offsets, int n, int per_block) {
    int off = offsets[blockIdx.x];
    for (int i = threadIdx.x; i < per_block; i += blockDim.x) {
        int j = blockIdx.x * per_block + i;
        if (j < n) data[j] += off;
    }
}

// Exclusive, through an inclusive Hillis-Steele scan in one buffer.
K scan_hillis_steele(const int* in, int* out, int* sums, int n) {
    __shared__ int s[512];
    int tid = threadIdx.x, i = blockIdx.x * 512 + tid;
    int v = i < n ? in[i] : 0;
    s[tid] = v;
    __syncthreads();
    for (int offset = 1; offset < 512; offset <<= 1) {
        int t = 0;
        if (tid >= offset) t = s[tid - offset];
        __syncthreads();
        s[tid] += t;
        __syncthreads();
    }
    if (i < n) out[i] = s[tid] - v;
    if (tid == 511) sums[blockIdx.x] = s[tid];
}

__device__ int warp_scan(int v, int lane) {
    for (int o = 1; o < 32; o <<= 1) {
        int t = __shfl_up_sync(FULL, v, o);
        if (lane >= o) v += t;
    }
    return v;
}
K scan_warp_shuffle(const int* in, int* out, int* sums, int n) {
    __shared__ int warp_totals[32];
    int tid = threadIdx.x, i = blockIdx.x * blockDim.x + tid;
    int lane = tid & 31, wid = tid >> 5;
    int v = i < n ? in[i] : 0;
    int s = warp_scan(v, lane);
    if (lane == 31) warp_totals[wid] = s;
    __syncthreads();
    if (wid == 0) {
        int w = lane < blockDim.x / 32 ? warp_totals[lane] : 0;
        w = warp_scan(w, lane);
        warp_totals[lane] = w;
    }
    __syncthreads();
    if (wid > 0) s += warp_totals[wid - 1];
    if (i < n) out[i] = s - v;
    if (tid == blockDim.x - 1) sums[blockIdx.x] = s;
}

K compact_ballot(const float* in, float* out, int* count, int n, float threshold) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    int lane = threadIdx.x & 31;
    float v = i < n ? in[i] : 0.0f;
    bool keep = i < n && v > threshold;
    unsigned ballot = __ballot_sync(FULL, keep);
    int base = 0;
    if (lane == 0 && ballot) base = atomicAdd(count, __popc(ballot));
    base = __shfl_sync(FULL, base, 0);
    if (keep) out[base + __popc(ballot & ((1u << lane) - 1))] = v;
}

// ---------- histograms ----------
K hist256_packed(const unsigned* in, unsigned* bins, int words) {
    __shared__ unsigned local[256];
    local[threadIdx.x] = 0;
    __syncthreads();
    for (int i = blockIdx.x * blockDim.x + threadIdx.x; i < words; i += gridDim.x * blockDim.x) {
        unsigned w = in[i];
        atomicAdd(&local[w & 255], 1);
        atomicAdd(&local[(w >> 8) & 255], 1);
        atomicAdd(&local[(w >> 16) & 255], 1);
        atomicAdd(&local[w >> 24], 1);
    }
    __syncthreads();
    atomicAdd(&bins[threadIdx.x], local[threadIdx.x]);
}

K hist16_warps(const float* in, unsigned* bins, int n) {
    __shared__ unsigned local[8][16];
    int wid = threadIdx.x / 32;
    if (threadIdx.x < 128) ((unsigned*)local)[threadIdx.x] = 0;
    __syncthreads();
    for (int i = blockIdx.x * blockDim.x + threadIdx.x; i < n; i += gridDim.x * blockDim.x) {
        int b = (int)(in[i] * 16.0f);
        b = min(max(b, 0), 15);
        atomicAdd(&local[wid][b], 1u);
    }
    __syncthreads();
    if (threadIdx.x < 16) {
        unsigned sum = 0;
        for (int w = 0; w < 8; w++) sum += local[w][threadIdx.x];
        atomicAdd(&bins[threadIdx.x], sum);
    }
}

K hist_global(const unsigned* in, unsigned* bins, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) atomicAdd(&bins[in[i] >> 22], 1u);
}

K radix_count(const unsigned* keys, unsigned* counts, int n, int shift) {
    __shared__ unsigned local[16];
    if (threadIdx.x < 16) local[threadIdx.x] = 0;
    __syncthreads();
    int start = blockIdx.x * 1024;
    for (int k = 0; k < 4; k++) {
        int i = start + k * 256 + threadIdx.x;
        if (i < n) atomicAdd(&local[(keys[i] >> shift) & 15], 1u);
    }
    __syncthreads();
    if (threadIdx.x < 16) counts[threadIdx.x * gridDim.x + blockIdx.x] = local[threadIdx.x];
}

// ---------- arithmetic ----------
__device__ double cnd(double d) {
    const double A1 = 0.31938153, A2 = -0.356563782, A3 = 1.781477937, A4 = -1.821255978, A5 = 1.330274429;
    double k = 1.0 / (1.0 + 0.2316419 * fabs(d));
    double c = 0.39894228040143267794 * exp(-0.5 * d * d) * (k * (A1 + k * (A2 + k * (A3 + k * (A4 + k * A5)))));
    if (d > 0) c = 1.0 - c;
    return c;
}
K black_scholes_f64(double* call, double* put, const double* price, const double* strike, const double* years, double r,
                    double v, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) {
        double s = price[i], x = strike[i], t = years[i];
        double sq = sqrt(t);
        double d1 = (log(s / x) + (r + 0.5 * v * v) * t) / (v * sq);
        double d2 = d1 - v * sq;
        double n1 = cnd(d1), n2 = cnd(d2);
        double e = exp(-r * t);
        call[i] = s * n1 - x * e * n2;
        put[i] = x * e * (1.0 - n2) - s * (1.0 - n1);
    }
}

K mandel_smooth(float* out, int w, int h, double x0, double y0, double scale, int limit) {
    int px = blockIdx.x * blockDim.x + threadIdx.x;
    int py = blockIdx.y * blockDim.y + threadIdx.y;
    if (px >= w || py >= h) return;
    double cx = x0 + px * scale, cy = y0 + py * scale;
    double zx = 0, zy = 0;
    int i = 0;
    while (i < limit && zx * zx + zy * zy < 256.0) {
        double t = zx * zx - zy * zy + cx;
        zy = 2.0 * zx * zy + cy;
        zx = t;
        i++;
    }
    float mu = (float)i;
    if (i < limit) mu = i + 1 - log2f(0.5f * log2f((float)(zx * zx + zy * zy)));
    out[py * w + px] = mu;
}

K julia(unsigned* image, int w, int h, float cr, float ci) {
    int px = blockIdx.x * blockDim.x + threadIdx.x;
    int py = blockIdx.y * blockDim.y + threadIdx.y;
    if (px >= w || py >= h) return;
    float zr = 1.5f * (px - w / 2) / (0.5f * w), zi = (py - h / 2) / (0.5f * h);
    int i;
    for (i = 0; i < 200; i++) {
        float r2 = zr * zr, i2 = zi * zi;
        if (r2 + i2 > 4.0f) break;
        zi = 2.0f * zr * zi + ci;
        zr = r2 - i2 + cr;
    }
    unsigned shade = 255u * i / 200;
    image[py * w + px] = 0xff000000u | shade << 16 | (shade * shade >> 8) << 8 | (255 - shade);
}

#define CLUSTERS 32
#define DIMS 4
K kmeans_assign(const float* points, const float* centers, int* assign, int n) {
    __shared__ float c[CLUSTERS * DIMS];
    if (threadIdx.x < CLUSTERS * DIMS) c[threadIdx.x] = centers[threadIdx.x];
    __syncthreads();
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= n) return;
    float best = 3.4e38f;
    int which = 0;
    for (int k = 0; k < CLUSTERS; k++) {
        float dist = 0.0f;
        for (int d = 0; d < DIMS; d++) {
            float diff = points[d * n + i] - c[k * DIMS + d];
            dist += diff * diff;
        }
        if (dist < best) { best = dist; which = k; }
    }
    assign[i] = which;
}

// ---------- dense ----------
// 128 x 128 tiles, 8 x 8 a thread, float4 loads; sizes are multiples of the tile.
K sgemm_8x8(int M, int N, int Kd, const float* A, const float* B, float* C) {
    __shared__ float As[8][128];
    __shared__ float Bs[8][128];
    int tid = threadIdx.x;
    int ty = tid / 16, tx = tid % 16;
    A += blockIdx.y * 128 * Kd;
    B += blockIdx.x * 128;
    C += blockIdx.y * 128 * N + blockIdx.x * 128;
    int ar = tid / 2, ac = (tid % 2) * 4;
    int br = tid / 32, bc = (tid % 32) * 4;
    float acc[8][8] = {};
    float ra[8], rb[8];
    for (int k0 = 0; k0 < Kd; k0 += 8) {
        float4 a = *(const float4*)&A[ar * Kd + k0 + ac];
        As[ac + 0][ar] = a.x;
        As[ac + 1][ar] = a.y;
        As[ac + 2][ar] = a.z;
        As[ac + 3][ar] = a.w;
        *(float4*)&Bs[br][bc] = *(const float4*)&B[(k0 + br) * N + bc];
        __syncthreads();
#pragma unroll
        for (int k = 0; k < 8; k++) {
            *(float4*)&ra[0] = *(float4*)&As[k][ty * 8];
            *(float4*)&ra[4] = *(float4*)&As[k][ty * 8 + 4];
            *(float4*)&rb[0] = *(float4*)&Bs[k][tx * 8];
            *(float4*)&rb[4] = *(float4*)&Bs[k][tx * 8 + 4];
#pragma unroll
            for (int i = 0; i < 8; i++)
#pragma unroll
                for (int j = 0; j < 8; j++) acc[i][j] += ra[i] * rb[j];
        }
        __syncthreads();
    }
#pragma unroll
    for (int i = 0; i < 8; i++)
#pragma unroll
        for (int j = 0; j < 8; j += 4) {
            float4 v = make_float4(acc[i][j], acc[i][j + 1], acc[i][j + 2], acc[i][j + 3]);
            *(float4*)&C[(ty * 8 + i) * N + tx * 8 + j] = v;
        }
}

template <typename T, int TILE>
__device__ void tiled(const T* A, const T* B, T* C, int M, int N, int Kd) {
    __shared__ T As[TILE][TILE];
    __shared__ T Bs[TILE][TILE];
    int row = blockIdx.y * TILE + threadIdx.y, col = blockIdx.x * TILE + threadIdx.x;
    T sum = 0;
    for (int t = 0; t < (Kd + TILE - 1) / TILE; t++) {
        int ac = t * TILE + threadIdx.x, br = t * TILE + threadIdx.y;
        As[threadIdx.y][threadIdx.x] = (row < M && ac < Kd) ? A[row * Kd + ac] : (T)0;
        Bs[threadIdx.y][threadIdx.x] = (br < Kd && col < N) ? B[br * N + col] : (T)0;
        __syncthreads();
        for (int k = 0; k < TILE; k++) sum += As[threadIdx.y][k] * Bs[k][threadIdx.x];
        __syncthreads();
    }
    if (row < M && col < N) C[row * N + col] = sum;
}
K gemm_tile32(const float* A, const float* B, float* C, int M, int N, int Kd) { tiled<float, 32>(A, B, C, M, N, Kd); }
K dgemm_tile16(const double* A, const double* B, double* C, int M, int N, int Kd) { tiled<double, 16>(A, B, C, M, N, Kd); }

K batched_gemm16(const float* A, const float* B, float* C) {
    __shared__ float a[16][16], b[16][17];
    int tx = threadIdx.x, ty = threadIdx.y;
    size_t base = (size_t)blockIdx.x * 256;
    a[ty][tx] = A[base + ty * 16 + tx];
    b[ty][tx] = B[base + ty * 16 + tx];
    __syncthreads();
    float sum = 0.0f;
#pragma unroll
    for (int k = 0; k < 16; k++) sum += a[ty][k] * b[k][tx];
    C[base + ty * 16 + tx] = sum;
}

K transpose_padded(const double* in, double* out, int w, int h) {
    __shared__ double tile[32][33];
    int x = blockIdx.x * 32 + threadIdx.x, y = blockIdx.y * 32 + threadIdx.y;
    for (int j = 0; j < 32; j += 8)
        if (x < w && y + j < h) tile[threadIdx.y + j][threadIdx.x] = in[(size_t)(y + j) * w + x];
    __syncthreads();
    x = blockIdx.y * 32 + threadIdx.x;
    y = blockIdx.x * 32 + threadIdx.y;
    for (int j = 0; j < 32; j += 8)
        if (x < h && y + j < w) out[(size_t)(y + j) * h + x] = tile[threadIdx.x][threadIdx.y + j];
}

// ---------- graphs, sorting, FFT ----------
K bfs_vertices(int n, const int* ptr, const int* adj, int* level, int current, int* changed) {
    int v = blockIdx.x * blockDim.x + threadIdx.x;
    if (v < n && level[v] == current) {
        for (int e = ptr[v]; e < ptr[v + 1]; e++) {
            int u = adj[e];
            if (level[u] == -1) {
                level[u] = current + 1;
                *changed = 1;
            }
        }
    }
}

// 1,024 keys a block of 512 threads; a pair a thread.
K bitonic_1024(const unsigned* keys, unsigned* out, int n) {
    __shared__ unsigned s[1024];
    int tid = threadIdx.x, base = blockIdx.x * 1024;
    s[tid] = base + tid < n ? keys[base + tid] : 0xffffffffu;
    s[tid + 512] = base + tid + 512 < n ? keys[base + tid + 512] : 0xffffffffu;
    for (unsigned size = 2; size <= 1024; size <<= 1) {
        bool up = (tid & (size / 2)) == 0;
        for (unsigned stride = size / 2; stride > 0; stride >>= 1) {
            __syncthreads();
            unsigned pos = 2 * tid - (tid & (stride - 1));
            unsigned a = s[pos], b = s[pos + stride];
            if ((a > b) == up) { s[pos] = b; s[pos + stride] = a; }
        }
    }
    __syncthreads();
    if (base + tid < n) out[base + tid] = s[tid];
    if (base + tid + 512 < n) out[base + tid + 512] = s[tid + 512];
}

// 256 points a block of 128 threads, radix 2, decimation in time.
K fft256(const float2* in, float2* out, const float2* twiddles) {
    __shared__ float2 s[256];
    int tid = threadIdx.x;
    in += (size_t)blockIdx.x * 256;
    out += (size_t)blockIdx.x * 256;
    s[__brev(tid) >> 24] = in[tid];
    s[__brev(tid + 128) >> 24] = in[tid + 128];
    for (int half = 1; half < 256; half <<= 1) {
        __syncthreads();
        int k = tid & (half - 1);
        int i = ((tid & ~(half - 1)) << 1) + k;
        float2 w = twiddles[k * (128 / half)];
        float2 a = s[i], b = s[i + half];
        float2 t = make_float2(b.x * w.x - b.y * w.y, b.x * w.y + b.y * w.x);
        s[i] = make_float2(a.x + t.x, a.y + t.y);
        s[i + half] = make_float2(a.x - t.x, a.y - t.y);
    }
    __syncthreads();
    out[tid] = s[tid];
    out[tid + 128] = s[tid + 128];
}
