// Kernels as CUDA programmers write them; `src/main.rs` says what for.
#include <cstdint>
#include <cuda_bf16.h>
#include <cuda_fp16.h>

// ---------------------------------------------------------------- images and grids

// 5 points, zero outside; the edge threads bring the halo, corners are not needed.
template <int B>
__device__ __forceinline__ void stencil5_tile(const float *__restrict__ in, float *__restrict__ out,
                                              int w, int h, float c, float s) {
    __shared__ float tile[B + 2][B + 2];
    const int tx = threadIdx.x + 1, ty = threadIdx.y + 1;
    const int x = blockIdx.x * B + threadIdx.x;
    const int y = blockIdx.y * B + threadIdx.y;
    const bool inside = x < w && y < h;

    tile[ty][tx] = inside ? in[y * w + x] : 0.0f;
    if (threadIdx.x == 0)
        tile[ty][0] = (x > 0 && y < h) ? in[y * w + x - 1] : 0.0f;
    if (threadIdx.x == B - 1)
        tile[ty][B + 1] = (x + 1 < w && y < h) ? in[y * w + x + 1] : 0.0f;
    if (threadIdx.y == 0)
        tile[0][tx] = (y > 0 && x < w) ? in[(y - 1) * w + x] : 0.0f;
    if (threadIdx.y == B - 1)
        tile[B + 1][tx] = (y + 1 < h && x < w) ? in[(y + 1) * w + x] : 0.0f;
    __syncthreads();

    if (!inside) return;
    out[y * w + x] = c * tile[ty][tx] +
                     s * (tile[ty - 1][tx] + tile[ty + 1][tx] + tile[ty][tx - 1] + tile[ty][tx + 1]);
}

extern "C" __global__ void stencil5_halo(const float *in, float *out, int w, int h, float c, float s) {
    stencil5_tile<16>(in, out, w, h, c, s);
}

struct Grid3 {
    int nx, ny, nz;
    float c0, c1;
};

#define MX 32
#define MY 8
// Marches over z: the planes behind and ahead in registers, the current one in shared.
extern "C" __global__ void __launch_bounds__(MX *MY)
    stencil7_march(const float *__restrict__ in, float *__restrict__ out, Grid3 g) {
    __shared__ float plane[MY + 2][MX + 2];
    const int i = blockIdx.x * MX + threadIdx.x;
    const int j = blockIdx.y * MY + threadIdx.y;
    const int tx = threadIdx.x + 1, ty = threadIdx.y + 1;
    const size_t stride = (size_t)g.nx * g.ny;
    const bool valid = i < g.nx && j < g.ny;
    const bool interior = i > 0 && i < g.nx - 1 && j > 0 && j < g.ny - 1;

    size_t at = (size_t)j * g.nx + i;
    float behind = 0.0f, current = 0.0f, ahead = 0.0f;
    if (valid) {
        current = in[at];
        ahead = in[at + stride];
    }
    for (int k = 1; k < g.nz - 1; k++) {
        at += stride;
        behind = current;
        current = ahead;
        if (valid) ahead = in[at + stride];
        __syncthreads();
        plane[ty][tx] = current;
        if (interior) {
            if (threadIdx.x == 0) plane[ty][0] = in[at - 1];
            if (threadIdx.x == MX - 1) plane[ty][MX + 1] = in[at + 1];
            if (threadIdx.y == 0) plane[0][tx] = in[at - g.nx];
            if (threadIdx.y == MY - 1) plane[MY + 1][tx] = in[at + g.nx];
        }
        __syncthreads();
        if (interior)
            out[at] = g.c0 * current + g.c1 * (behind + ahead + plane[ty][tx - 1] + plane[ty][tx + 1] +
                                               plane[ty - 1][tx] + plane[ty + 1][tx]);
    }
}

#define FR 2
#define IN_TILE 32
#define OUT_TILE (IN_TILE - 2 * FR)
__constant__ float conv_filter[2 * FR + 1][2 * FR + 1];

// The block has the size of the input tile; threads at its border only load.
extern "C" __global__ void conv5x5_const(const float *in, float *out, int width, int height) {
    int col = blockIdx.x * OUT_TILE + threadIdx.x - FR;
    int row = blockIdx.y * OUT_TILE + threadIdx.y - FR;
    __shared__ float in_s[IN_TILE][IN_TILE];
    if (row >= 0 && row < height && col >= 0 && col < width)
        in_s[threadIdx.y][threadIdx.x] = in[row * width + col];
    else
        in_s[threadIdx.y][threadIdx.x] = 0.0f;
    __syncthreads();
    int tile_col = threadIdx.x - FR;
    int tile_row = threadIdx.y - FR;
    if (col >= 0 && col < width && row >= 0 && row < height) {
        if (tile_col >= 0 && tile_col < OUT_TILE && tile_row >= 0 && tile_row < OUT_TILE) {
            float value = 0.0f;
            for (int r = 0; r < 2 * FR + 1; r++)
                for (int c = 0; c < 2 * FR + 1; c++)
                    value += conv_filter[r][c] * in_s[tile_row + r][tile_col + c];
            out[row * width + col] = value;
        }
    }
}

// NCHW, a grid-stride loop over the outputs.
extern "C" __global__ void maxpool3x3(const int count, const float *bottom, const int height,
                                      const int width, const int pooled_h, const int pooled_w,
                                      const int stride, const int pad, float *top) {
    for (int index = blockIdx.x * blockDim.x + threadIdx.x; index < count;
         index += blockDim.x * gridDim.x) {
        const int pw = index % pooled_w;
        const int ph = (index / pooled_w) % pooled_h;
        const int nc = index / pooled_w / pooled_h;
        int hstart = ph * stride - pad;
        int wstart = pw * stride - pad;
        const int hend = min(hstart + 3, height);
        const int wend = min(wstart + 3, width);
        hstart = max(hstart, 0);
        wstart = max(wstart, 0);
        const float *slice = bottom + (size_t)nc * height * width;
        float best = -INFINITY;
        for (int h = hstart; h < hend; ++h)
            for (int w = wstart; w < wend; ++w)
                if (slice[h * width + w] > best) best = slice[h * width + w];
        top[index] = best;
    }
}

__device__ int pixel(const unsigned char *img, int x, int y, int w, int h) {
    x = min(max(x, 0), w - 1);
    y = min(max(y, 0), h - 1);
    return img[y * w + x];
}

extern "C" __global__ void sobel_u8(const unsigned char *img, unsigned char *out, int w, int h) {
    int x = blockIdx.x * blockDim.x + threadIdx.x;
    int y = blockIdx.y * blockDim.y + threadIdx.y;
    if (x >= w || y >= h) return;
    int ul = pixel(img, x - 1, y - 1, w, h), um = pixel(img, x, y - 1, w, h), ur = pixel(img, x + 1, y - 1, w, h);
    int ml = pixel(img, x - 1, y, w, h), mr = pixel(img, x + 1, y, w, h);
    int ll = pixel(img, x - 1, y + 1, w, h), lm = pixel(img, x, y + 1, w, h), lr = pixel(img, x + 1, y + 1, w, h);
    int gx = ur + 2 * mr + lr - ul - 2 * ml - ll;
    int gy = ul + 2 * um + ur - ll - 2 * lm - lr;
    int mag = (int)sqrtf((float)(gx * gx + gy * gy));
    out[y * w + x] = (unsigned char)min(mag, 255);
}

struct Resize {
    int src_w, src_h, dst_w, dst_h;
    float scale_x, scale_y;
};

__device__ __forceinline__ float lerp1(float a, float b, float t) { return a + t * (b - a); }

__device__ __forceinline__ float3 lerp3(uchar3 a, uchar3 b, float t) {
    return make_float3(lerp1(a.x, b.x, t), lerp1(a.y, b.y, t), lerp1(a.z, b.z, t));
}

extern "C" __global__ void resize_rgb(const uchar3 *__restrict__ src, uchar3 *__restrict__ dst, const Resize r) {
    const unsigned x = blockIdx.x * blockDim.x + threadIdx.x;
    const unsigned y = blockIdx.y * blockDim.y + threadIdx.y;
    if (x >= (unsigned)r.dst_w || y >= (unsigned)r.dst_h) return;
    const float fx = fmaxf((x + 0.5f) * r.scale_x - 0.5f, 0.0f);
    const float fy = fmaxf((y + 0.5f) * r.scale_y - 0.5f, 0.0f);
    const int x0 = (int)floorf(fx), y0 = (int)floorf(fy);
    const int x1 = min(x0 + 1, r.src_w - 1), y1 = min(y0 + 1, r.src_h - 1);
    const float tx = fx - x0, ty = fy - y0;
    const float3 top = lerp3(src[y0 * r.src_w + x0], src[y0 * r.src_w + x1], tx);
    const float3 bottom = lerp3(src[y1 * r.src_w + x0], src[y1 * r.src_w + x1], tx);
    dst[y * r.dst_w + x] = make_uchar3((unsigned char)(lerp1(top.x, bottom.x, ty) + 0.5f),
                                       (unsigned char)(lerp1(top.y, bottom.y, ty) + 0.5f),
                                       (unsigned char)(lerp1(top.z, bottom.z, ty) + 0.5f));
}

const int TILE_DIM = 32;
const int BLOCK_ROWS = 8;

extern "C" __global__ void transpose_32x8(float *odata, const float *idata, int width, int height) {
    __shared__ float tile[TILE_DIM][TILE_DIM + 1];
    int x = blockIdx.x * TILE_DIM + threadIdx.x;
    int y = blockIdx.y * TILE_DIM + threadIdx.y;
    for (int j = 0; j < TILE_DIM; j += BLOCK_ROWS)
        if (x < width && y + j < height)
            tile[threadIdx.y + j][threadIdx.x] = idata[(y + j) * width + x];
    __syncthreads();
    x = blockIdx.y * TILE_DIM + threadIdx.x;
    y = blockIdx.x * TILE_DIM + threadIdx.y;
    for (int j = 0; j < TILE_DIM; j += BLOCK_ROWS)
        if (x < height && y + j < width)
            odata[(y + j) * height + x] = tile[threadIdx.x][threadIdx.y + j];
}

// ---------------------------------------------------------------- dense

extern "C" __global__ void gemm_naive(const float *A, const float *B, float *C, int M, int N, int K) {
    int row = blockIdx.y * blockDim.y + threadIdx.y;
    int col = blockIdx.x * blockDim.x + threadIdx.x;
    if (row < M && col < N) {
        float sum = 0.0f;
        for (int k = 0; k < K; ++k) sum += A[row * K + k] * B[k * N + col];
        C[row * N + col] = sum;
    }
}

template <int TS>
__device__ void gemm_tiles(const float *__restrict__ A, const float *__restrict__ B, float *__restrict__ C,
                           int M, int N, int K, float alpha, float beta) {
    __shared__ float As[TS][TS];
    __shared__ float Bs[TS][TS];
    const int row = blockIdx.y * TS + threadIdx.y;
    const int col = blockIdx.x * TS + threadIdx.x;
    float acc = 0.0f;
    for (int t = 0; t < (K + TS - 1) / TS; ++t) {
        const int ka = t * TS + threadIdx.x;
        const int kb = t * TS + threadIdx.y;
        As[threadIdx.y][threadIdx.x] = (row < M && ka < K) ? A[row * K + ka] : 0.0f;
        Bs[threadIdx.y][threadIdx.x] = (kb < K && col < N) ? B[kb * N + col] : 0.0f;
        __syncthreads();
#pragma unroll
        for (int k = 0; k < TS; ++k) acc += As[threadIdx.y][k] * Bs[k][threadIdx.x];
        __syncthreads();
    }
    if (row < M && col < N) C[row * N + col] = alpha * acc + beta * C[row * N + col];
}

extern "C" __global__ void gemm_tiled16(const float *A, const float *B, float *C, int M, int N, int K,
                                        float alpha, float beta) {
    gemm_tiles<16>(A, B, C, M, N, K, alpha, beta);
}

// 128x64 of C a block of 16x16 threads, 8x4 a thread, two buffers in shared memory.
template <int BM, int BN, int BK, int TM, int TN>
__device__ __forceinline__ void sgemm_body(int M, int N, int K, const float *__restrict__ A,
                                           const float *__restrict__ B, float *__restrict__ C) {
    __shared__ float As[2][BK][BM];
    __shared__ float Bs[2][BK][BN];
    const int tid = threadIdx.x;
    const int tx = tid % (BN / TN), ty = tid / (BN / TN);
    const int a_row = tid / (BK / 4), a_col = (tid % (BK / 4)) * 4;
    const int b_row = tid / (BN / 4), b_col = (tid % (BN / 4)) * 4;
    const bool loads_b = b_row < BK;
    A += (size_t)blockIdx.y * BM * K;
    B += blockIdx.x * BN;
    C += (size_t)blockIdx.y * BM * N + blockIdx.x * BN;

    float acc[TM][TN] = {};
    float a_frag[TM], b_frag[TN];
    float4 a_next, b_next;

    a_next = *reinterpret_cast<const float4 *>(&A[a_row * K + a_col]);
    if (loads_b) b_next = *reinterpret_cast<const float4 *>(&B[b_row * N + b_col]);
    As[0][a_col + 0][a_row] = a_next.x;
    As[0][a_col + 1][a_row] = a_next.y;
    As[0][a_col + 2][a_row] = a_next.z;
    As[0][a_col + 3][a_row] = a_next.w;
    if (loads_b) *reinterpret_cast<float4 *>(&Bs[0][b_row][b_col]) = b_next;
    __syncthreads();

    int buf = 0;
    for (int k0 = 0; k0 < K; k0 += BK) {
        const bool more = k0 + BK < K;
        if (more) {
            a_next = *reinterpret_cast<const float4 *>(&A[a_row * K + k0 + BK + a_col]);
            if (loads_b) b_next = *reinterpret_cast<const float4 *>(&B[(k0 + BK + b_row) * N + b_col]);
        }
#pragma unroll
        for (int k = 0; k < BK; k++) {
#pragma unroll
            for (int i = 0; i < TM; i += 4)
                *reinterpret_cast<float4 *>(&a_frag[i]) = *reinterpret_cast<const float4 *>(&As[buf][k][ty * TM + i]);
#pragma unroll
            for (int j = 0; j < TN; j += 4)
                *reinterpret_cast<float4 *>(&b_frag[j]) = *reinterpret_cast<const float4 *>(&Bs[buf][k][tx * TN + j]);
#pragma unroll
            for (int i = 0; i < TM; i++)
#pragma unroll
                for (int j = 0; j < TN; j++) acc[i][j] += a_frag[i] * b_frag[j];
        }
        if (more) {
            buf ^= 1;
            As[buf][a_col + 0][a_row] = a_next.x;
            As[buf][a_col + 1][a_row] = a_next.y;
            As[buf][a_col + 2][a_row] = a_next.z;
            As[buf][a_col + 3][a_row] = a_next.w;
            if (loads_b) *reinterpret_cast<float4 *>(&Bs[buf][b_row][b_col]) = b_next;
            __syncthreads();
        }
    }
#pragma unroll
    for (int i = 0; i < TM; i++)
#pragma unroll
        for (int j = 0; j < TN; j += 4)
            *reinterpret_cast<float4 *>(&C[(size_t)(ty * TM + i) * N + tx * TN + j]) =
                make_float4(acc[i][j], acc[i][j + 1], acc[i][j + 2], acc[i][j + 3]);
}

extern "C" __global__ void __launch_bounds__(256)
    sgemm_8x4_db(int M, int N, int K, const float *A, const float *B, float *C) {
    sgemm_body<128, 64, 8, 8, 4>(M, N, K, A, B, C);
}

template <int THREADS> __device__ __forceinline__ float block_total(float v) {
    __shared__ float part[THREADS / 32];
#pragma unroll
    for (int d = 16; d > 0; d >>= 1) v += __shfl_xor_sync(0xffffffffu, v, d);
    if (threadIdx.x % 32 == 0) part[threadIdx.x / 32] = v;
    __syncthreads();
    v = 0.0f;
#pragma unroll
    for (int i = 0; i < THREADS / 32; i++) v += part[i];
    return v;
}

extern "C" __global__ void gemv_block128(const float *__restrict__ A, const float *__restrict__ x,
                                         float *__restrict__ y, unsigned cols) {
    const float4 *row = reinterpret_cast<const float4 *>(A + (size_t)blockIdx.x * cols);
    const float4 *x4 = reinterpret_cast<const float4 *>(x);
    float sum = 0.0f;
    for (unsigned i = threadIdx.x; i < cols / 4; i += 128) {
        const float4 a = row[i];
        const float4 b = x4[i];
        sum += a.x * b.x + a.y * b.y + a.z * b.z + a.w * b.w;
    }
    sum = block_total<128>(sum);
    if (threadIdx.x == 0) y[blockIdx.x] = sum;
}

// y = A^T x: a thread a column, rows in slices that add up by atomics.
extern "C" __global__ void gemv_transposed(const float *A, const float *x, float *y, int rows, int cols, int slice) {
    int col = blockIdx.x * blockDim.x + threadIdx.x;
    if (col >= cols) return;
    int first = blockIdx.y * slice;
    int last = min(first + slice, rows);
    float sum = 0.0f;
    for (int r = first; r < last; r++) sum += A[(size_t)r * cols + col] * x[r];
    atomicAdd(&y[col], sum);
}

struct Mat4 {
    double m[4][4];
};

__device__ Mat4 mul(const Mat4 &a, const Mat4 &b) {
    Mat4 c;
    for (int i = 0; i < 4; i++)
        for (int j = 0; j < 4; j++) {
            double s = 0.0;
            for (int k = 0; k < 4; k++) s += a.m[i][k] * b.m[k][j];
            c.m[i][j] = s;
        }
    return c;
}

extern "C" __global__ void matmul4_batched(const Mat4 *a, const Mat4 *b, Mat4 *c, size_t count) {
    size_t i = blockIdx.x * (size_t)blockDim.x + threadIdx.x;
    if (i < count) c[i] = mul(a[i], b[i]);
}

// Lower triangles. A block of 16x16 threads a matrix.
extern "C" __global__ void cholesky16(const float *in, float *out, int n) {
    __shared__ float a[16][17];
    const int col = threadIdx.x, row = threadIdx.y;
    const size_t at = (size_t)blockIdx.x * 256 + row * 16 + col;
    a[row][col] = in[at];
    __syncthreads();
    for (int k = 0; k < n; k++) {
        if (row == k && col == k) a[k][k] = sqrtf(a[k][k]);
        __syncthreads();
        if (col == k && row > k) a[row][k] /= a[k][k];
        __syncthreads();
        if (col > k && row >= col) a[row][col] -= a[row][k] * a[col][k];
        __syncthreads();
    }
    out[at] = row >= col ? a[row][col] : 0.0f;
}

// ---------------------------------------------------------------- inference

#define QK 32
struct block_q8 {
    __half d;
    int8_t qs[QK];
};
static_assert(sizeof(block_q8) == 34, "no padding");
struct block_x8 {
    float d;
    int8_t qs[QK];
};

// Only aligned to two bytes.
static __device__ __forceinline__ int load_int_b2(const int8_t *p, int i) {
    const uint16_t *q = (const uint16_t *)p;
    return q[2 * i] | (q[2 * i + 1] << 16);
}

extern "C" __global__ void gemv_q8(const block_q8 *__restrict__ w, const block_x8 *__restrict__ x,
                                   float *__restrict__ y, const int rows, const int blocks_per_row) {
    const int row = blockIdx.x * blockDim.y + threadIdx.y;
    if (row >= rows) return;
    const block_q8 *r = w + (int64_t)row * blocks_per_row;
    float sum = 0.0f;
    for (int ib = threadIdx.x; ib < blocks_per_row; ib += 32) {
        const int *xq = (const int *)x[ib].qs;
        int dot = 0;
#pragma unroll
        for (int i = 0; i < QK / 4; i++) dot = __dp4a(load_int_b2(r[ib].qs, i), xq[i], dot);
        sum += __half2float(r[ib].d) * x[ib].d * dot;
    }
#pragma unroll
    for (int mask = 16; mask > 0; mask >>= 1) sum += __shfl_xor_sync(0xffffffff, sum, mask, 32);
    if (threadIdx.x == 0) y[row] = sum;
}

// One query a head: a block of 128 threads, as many as a head has dimensions.
template <int D>
__device__ __forceinline__ void decode(const float *__restrict__ q, const __half2 *__restrict__ k,
                                       const __half2 *__restrict__ v, float *__restrict__ out, int length,
                                       float scale) {
    extern __shared__ float scores[];
    __shared__ float query[D];
    __shared__ float reduced[D / 32];
    __shared__ float2 halves[2][D / 2];
    const int head = blockIdx.x, tid = threadIdx.x, lane = tid & 31, warp = tid >> 5;
    query[tid] = q[head * D + tid] * scale;
    __syncthreads();

    const __half2 *kh = k + (size_t)head * length * (D / 2);
    float largest = -INFINITY;
    for (int t = warp; t < length; t += D / 32) {
        float s = 0.0f;
#pragma unroll
        for (int i = lane; i < D / 2; i += 32) {
            const float2 f = __half22float2(kh[(size_t)t * (D / 2) + i]);
            s += f.x * query[2 * i] + f.y * query[2 * i + 1];
        }
        for (int o = 16; o > 0; o /= 2) s += __shfl_down_sync(~0u, s, o);
        s = __shfl_sync(~0u, s, 0);
        if (lane == 0) scores[t] = s;
        largest = fmaxf(largest, s);
    }
    if (lane == 0) reduced[warp] = largest;
    __syncthreads();
    for (int i = 0; i < D / 32; i++) largest = fmaxf(largest, reduced[i]);
    __syncthreads();

    float total = 0.0f;
    for (int t = tid; t < length; t += D) {
        const float e = __expf(scores[t] - largest);
        scores[t] = e;
        total += e;
    }
    for (int o = 16; o > 0; o /= 2) total += __shfl_xor_sync(~0u, total, o);
    if (lane == 0) reduced[warp] = total;
    __syncthreads();
    total = 0.0f;
    for (int i = 0; i < D / 32; i++) total += reduced[i];

    // Even positions by one half of the threads, odd ones by the other.
    const __half2 *vh = v + (size_t)head * length * (D / 2);
    const int pair = tid % (D / 2), parity = tid / (D / 2);
    float2 acc = make_float2(0.0f, 0.0f);
    for (int t = parity; t < length; t += 2) {
        const float p = scores[t];
        const float2 f = __half22float2(vh[(size_t)t * (D / 2) + pair]);
        acc.x += p * f.x;
        acc.y += p * f.y;
    }
    halves[parity][pair] = acc;
    __syncthreads();
    if (tid < D / 2) {
        const float2 a = halves[0][tid], b = halves[1][tid];
        reinterpret_cast<float2 *>(out + head * D)[tid] = make_float2((a.x + b.x) / total, (a.y + b.y) / total);
    }
}

extern "C" __global__ void attention_decode(const float *q, const __half2 *k, const __half2 *v, float *out,
                                            int length, float scale) {
    decode<128>(q, k, v, out, length, scale);
}

// A thread a pair of a token, for all of its heads.
extern "C" __global__ void rope(const float2 *x, float2 *out, const int *positions, int tokens, int heads,
                                int pairs, float theta_base) {
    int pair = threadIdx.x;
    int token = blockIdx.x * blockDim.y + threadIdx.y;
    if (token >= tokens) return;
    float theta = positions[token] * powf(theta_base, -(float)pair / pairs);
    float s, c;
    sincosf(theta, &s, &c);
    for (int h = 0; h < heads; h++) {
        size_t i = ((size_t)token * heads + h) * pairs + pair;
        float2 v = x[i];
        out[i] = make_float2(v.x * c - v.y * s, v.x * s + v.y * c);
    }
}

struct Silu {
    __device__ static float of(float x) { return x / (1.0f + expf(-x)); }
};
struct GeluTanh {
    __device__ static float of(float x) {
        return 0.5f * x * (1.0f + tanhf(0.79788456f * x * (1.0f + 0.044715f * x * x)));
    }
};

// A row has the gates, then the values.
template <typename F>
__device__ __forceinline__ void gated_half(const __half *__restrict__ in, __half *__restrict__ out, int cols) {
    const __half2 *gate = reinterpret_cast<const __half2 *>(in + (size_t)blockIdx.x * 2 * cols);
    const __half2 *up = gate + cols / 2;
    __half2 *dst = reinterpret_cast<__half2 *>(out + (size_t)blockIdx.x * cols);
    for (int i = threadIdx.x; i < cols / 2; i += blockDim.x) {
        const float2 g = __half22float2(gate[i]);
        const float2 u = __half22float2(up[i]);
        dst[i] = __floats2half2_rn(F::of(g.x) * u.x, F::of(g.y) * u.y);
    }
}

extern "C" __global__ void swiglu_half(const __half *in, __half *out, int cols) { gated_half<Silu>(in, out, cols); }

extern "C" __global__ void geglu_bf16(const __nv_bfloat16 *gate, const __nv_bfloat16 *up, __nv_bfloat16 *out, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= n) return;
    out[i] = __float2bfloat16(GeluTanh::of(__bfloat162float(gate[i])) * __bfloat162float(up[i]));
}

// ---------------------------------------------------------------- simulation

__device__ inline double normal_cdf(double x) { return 0.5 * erfc(-x * 0.70710678118654752440); }

extern "C" __global__ void black_scholes_erfc(double *call, double *put, const double *__restrict__ price,
                                              const double *__restrict__ strike, const double *__restrict__ years,
                                              double rate, double vol, int n) {
    const int i = blockDim.x * blockIdx.x + threadIdx.x;
    if (i >= n) return;
    const double s = price[i], x = strike[i], t = years[i];
    const double sq = vol * sqrt(t);
    const double d1 = (log(s / x) + (rate + 0.5 * vol * vol) * t) / sq;
    const double d2 = d1 - sq;
    const double discounted = x * exp(-rate * t);
    const double c = s * normal_cdf(d1) - discounted * normal_cdf(d2);
    call[i] = c;
    put[i] = c + discounted - s;
}

struct View {
    double x0, y0, dx, dy;
};

extern "C" __global__ void mandelbrot_f64(int *out, unsigned w, unsigned h, View v, int limit) {
    unsigned px = blockIdx.x * blockDim.x + threadIdx.x;
    unsigned py = blockIdx.y * blockDim.y + threadIdx.y;
    if (px >= w || py >= h) return;
    const double cx = v.x0 + px * v.dx, cy = v.y0 + py * v.dy;
    double x = 0.0, y = 0.0;
    int i = 0;
    while (i < limit) {
        const double xx = x * x, yy = y * y;
        if (xx + yy > 4.0) break;
        y = 2.0 * x * y + cy;
        x = xx - yy + cx;
        i++;
    }
    out[py * w + px] = i;
}

struct Xorshift {
    uint32_t x, y, z, w;
    __device__ explicit Xorshift(uint32_t seed) {
        x = seed * 747796405u + 2891336453u;
        y = x ^ 362436069u;
        z = (x >> 7) ^ 521288629u;
        w = (x << 9) ^ 88675123u;
    }
    __device__ uint32_t next() {
        const uint32_t t = x ^ (x << 11);
        x = y;
        y = z;
        z = w;
        return w = w ^ (w >> 19) ^ t ^ (t >> 8);
    }
    // Above 0, at most 1.
    __device__ float uniform() { return ((next() >> 8) + 1) * (1.0f / 16777216.0f); }
};

extern "C" __global__ void monte_carlo_call(float s0, float strike, float drift, float vol, int pairs, int threads,
                                            double *sums) {
    __shared__ double part[256];
    const int id = blockIdx.x * blockDim.x + threadIdx.x;
    double sum = 0.0;
    if (id < threads) {
        Xorshift rng(id + 1);
        for (int p = 0; p < pairs; p++) {
            const float r = sqrtf(-2.0f * logf(rng.uniform()));
            float s, c;
            sincosf(6.2831853f * rng.uniform(), &s, &c);
            const float a = s0 * expf(drift + vol * r * c);
            const float b = s0 * expf(drift + vol * r * s);
            sum += fmaxf(a - strike, 0.0f) + fmaxf(b - strike, 0.0f);
        }
    }
    part[threadIdx.x] = sum;
    __syncthreads();
    for (int s = blockDim.x / 2; s > 0; s >>= 1) {
        if (threadIdx.x < s) part[threadIdx.x] += part[threadIdx.x + s];
        __syncthreads();
    }
    if (threadIdx.x == 0) atomicAdd(sums, part[0]);
}

__device__ float3 interact(float3 acc, float4 a, float4 b, float soft2) {
    float3 r;
    r.x = b.x - a.x;
    r.y = b.y - a.y;
    r.z = b.z - a.z;
    float d2 = r.x * r.x + r.y * r.y + r.z * r.z + soft2;
    float inv = rsqrtf(d2);
    float s = b.w * inv * inv * inv;
    acc.x += r.x * s;
    acc.y += r.y * s;
    acc.z += r.z * s;
    return acc;
}

extern "C" __global__ void nbody_tiles(const float4 *pos, float4 *accel, int n, float soft2) {
    extern __shared__ float4 others[];
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    float4 me = i < n ? pos[i] : make_float4(0, 0, 0, 0);
    float3 acc = {0.0f, 0.0f, 0.0f};
    for (int base = 0; base < n; base += blockDim.x) {
        int j = base + threadIdx.x;
        others[threadIdx.x] = j < n ? pos[j] : make_float4(0, 0, 0, 0);
        __syncthreads();
#pragma unroll 4
        for (int k = 0; k < blockDim.x; k++) acc = interact(acc, me, others[k], soft2);
        __syncthreads();
    }
    if (i < n) accel[i] = make_float4(acc.x, acc.y, acc.z, 0.0f);
}

struct LJ {
    double cutoff2, sigma6, epsilon48;
};

// Neighbours of atom i at list[k * n + i]; forces and half the energy of each pair.
extern "C" __global__ void lj_forces(const double *__restrict__ x, const double *__restrict__ y,
                                     const double *__restrict__ z, const int *__restrict__ counts,
                                     const int *__restrict__ list, double4 *__restrict__ force, LJ p, int n) {
    const int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= n) return;
    const double xi = x[i], yi = y[i], zi = z[i];
    double fx = 0, fy = 0, fz = 0, e = 0;
    const int count = counts[i];
    for (int k = 0; k < count; k++) {
        const int j = list[k * n + i];
        const double dx = xi - x[j], dy = yi - y[j], dz = zi - z[j];
        const double r2 = dx * dx + dy * dy + dz * dz;
        if (r2 < p.cutoff2) {
            const double inv = 1.0 / r2;
            const double s6 = p.sigma6 * inv * inv * inv;
            const double f = p.epsilon48 * s6 * (s6 - 0.5) * inv;
            fx += f * dx;
            fy += f * dy;
            fz += f * dz;
            e += p.epsilon48 / 24.0 * s6 * (s6 - 1.0);
        }
    }
    force[i] = make_double4(fx, fy, fz, e);
}

// ---------------------------------------------------------------- graphs, clusters

extern "C" __global__ void bfs_frontier(const int *row_ptr, const int *adj, int *level, const int *frontier,
                                        int frontier_size, int *next, int *next_size, int depth) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= frontier_size) return;
    int u = frontier[i];
    for (int e = row_ptr[u]; e < row_ptr[u + 1]; e++) {
        int v = adj[e];
        if (level[v] == -1 && atomicCAS(&level[v], -1, depth) == -1) {
            int slot = atomicAdd(next_size, 1);
            next[slot] = v;
        }
    }
}

extern "C" __global__ void bellman_ford(const int3 *__restrict__ edges, int count, int *dist, int *changed) {
    for (int i = blockIdx.x * blockDim.x + threadIdx.x; i < count; i += gridDim.x * blockDim.x) {
        const int3 e = edges[i];
        const int d = dist[e.x];
        if (d == 0x7fffffff) continue;
        const int through = d + e.z;
        if (through < dist[e.y] && atomicMin(&dist[e.y], through) > through) *changed = 1;
    }
}

extern "C" __global__ void pagerank_pull(const unsigned *__restrict__ offsets, const unsigned *__restrict__ sources,
                                         const float *__restrict__ share, const unsigned *__restrict__ degree,
                                         float *__restrict__ rank, float *__restrict__ next_share, float *error,
                                         float damping, unsigned n) {
    const unsigned v = blockIdx.x * blockDim.x + threadIdx.x;
    float change = 0.0f;
    if (v < n) {
        float sum = 0.0f;
        const unsigned end = offsets[v + 1];
        for (unsigned e = offsets[v]; e < end; ++e) sum += __ldg(&share[sources[e]]);
        const float r = (1.0f - damping) / n + damping * sum;
        change = fabsf(r - rank[v]);
        rank[v] = r;
        next_share[v] = degree[v] ? r / degree[v] : 0.0f;
    }
    for (int d = 16; d; d >>= 1) change += __shfl_down_sync(0xffffffff, change, d);
    if ((threadIdx.x & 31) == 0) atomicAdd(error, change);
}

extern "C" __global__ void kmeans_update(const float4 *__restrict__ points, const int *__restrict__ label,
                                         float *sums, int *counts, int n, int k) {
    extern __shared__ float local[];
    float *s = local;
    int *c = (int *)(local + 4 * k);
    for (int i = threadIdx.x; i < 4 * k; i += blockDim.x) s[i] = 0.0f;
    for (int i = threadIdx.x; i < k; i += blockDim.x) c[i] = 0;
    __syncthreads();
    for (int i = blockIdx.x * blockDim.x + threadIdx.x; i < n; i += blockDim.x * gridDim.x) {
        const float4 p = points[i];
        const int l = label[i];
        atomicAdd(&s[4 * l + 0], p.x);
        atomicAdd(&s[4 * l + 1], p.y);
        atomicAdd(&s[4 * l + 2], p.z);
        atomicAdd(&s[4 * l + 3], p.w);
        atomicAdd(&c[l], 1);
    }
    __syncthreads();
    for (int i = threadIdx.x; i < 4 * k; i += blockDim.x) atomicAdd(&sums[i], s[i]);
    for (int i = threadIdx.x; i < k; i += blockDim.x) atomicAdd(&counts[i], c[i]);
}

// ---------------------------------------------------------------- other shapes of blocks

// Blocks of 8x8x4, periodic in all directions.
extern "C" __global__ void heat3d_periodic(const double *__restrict__ u, double *__restrict__ v, int3 n, double k) {
    int x = blockIdx.x * blockDim.x + threadIdx.x;
    int y = blockIdx.y * blockDim.y + threadIdx.y;
    int z = blockIdx.z * blockDim.z + threadIdx.z;
    if (x >= n.x || y >= n.y || z >= n.z) return;
#define AT(X, Y, Z) ((size_t)(((Z) + n.z) % n.z * n.y + ((Y) + n.y) % n.y) * n.x + ((X) + n.x) % n.x)
    double c = u[AT(x, y, z)];
    double sum = u[AT(x - 1, y, z)] + u[AT(x + 1, y, z)] + u[AT(x, y - 1, z)] + u[AT(x, y + 1, z)] +
                 u[AT(x, y, z - 1)] + u[AT(x, y, z + 1)];
    v[AT(x, y, z)] = c + k * (sum - 6.0 * c);
#undef AT
}

struct Welford {
    float mean, m2, count;
};

__device__ Welford merge(Welford a, Welford b) {
    const float count = a.count + b.count;
    if (count == 0.0f) return a;
    const float delta = b.mean - a.mean, part = b.count / count;
    return {a.mean + delta * part, a.m2 + b.m2 + delta * delta * a.count * part, count};
}

// A block of one warp a row.
extern "C" __global__ void __launch_bounds__(32)
    layernorm_welford(const float *x, const float *gamma, const float *beta, float *y, size_t cols, float eps) {
    const float *row = x + blockIdx.x * cols;
    Welford w = {0.0f, 0.0f, 0.0f};
#pragma unroll 1
    for (size_t i = threadIdx.x; i < cols; i += 32) {
        w.count += 1.0f;
        const float delta = row[i] - w.mean;
        w.mean += delta / w.count;
        w.m2 += delta * (row[i] - w.mean);
    }
    for (int mask = 1; mask < 32; mask <<= 1) {
        Welford o;
        o.mean = __shfl_xor_sync(0xffffffffu, w.mean, mask);
        o.m2 = __shfl_xor_sync(0xffffffffu, w.m2, mask);
        o.count = __shfl_xor_sync(0xffffffffu, w.count, mask);
        w = merge(w, o);
    }
    const float scale = rsqrtf(w.m2 / cols + eps);
    for (size_t i = threadIdx.x; i < cols; i += 32)
        y[blockIdx.x * cols + i] = (row[i] - w.mean) * scale * gamma[i] + beta[i];
}
