// Tensor cores: matrices between shared memory and registers, wmma, and kernels made of both as
// libraries make them: a tiled product, and attention in one pass.

#include <cstdint>
#include <cuda_bf16.h>
#include <cuda_fp16.h>
#include <mma.h>

using namespace nvcuda;

__device__ uint32_t shared_address(const void *pointer) {
    return static_cast<uint32_t>(__cvta_generic_to_shared(pointer));
}

__device__ void load_1(uint32_t *r, uint32_t row) {
    asm volatile("ldmatrix.sync.aligned.m8n8.x1.shared.b16 {%0}, [%1];" : "=r"(r[0]) : "r"(row) : "memory");
}

__device__ void load_2(uint32_t *r, uint32_t row) {
    asm volatile("ldmatrix.sync.aligned.m8n8.x2.shared.b16 {%0, %1}, [%2];"
                 : "=r"(r[0]), "=r"(r[1]) : "r"(row) : "memory");
}

__device__ void load_2_turned(uint32_t *r, uint32_t row) {
    asm volatile("ldmatrix.sync.aligned.m8n8.x2.trans.shared.b16 {%0, %1}, [%2];"
                 : "=r"(r[0]), "=r"(r[1]) : "r"(row) : "memory");
}

__device__ void load_4(uint32_t *r, uint32_t row) {
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0, %1, %2, %3}, [%4];"
                 : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3]) : "r"(row) : "memory");
}

__device__ void load_4_turned(uint32_t *r, uint32_t row) {
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0, %1, %2, %3}, [%4];"
                 : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3]) : "r"(row) : "memory");
}

// D += A * B, of halves into singles.
__device__ void multiply(float *d, const uint32_t *a, const uint32_t *b) {
    asm volatile("mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, "
                 "{%8, %9}, {%0, %1, %2, %3};"
                 : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
                 : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]));
}

// What every form of ldmatrix gives each lane, from rows that do not follow each other.
extern "C" __global__ void load_matrices(const uint32_t *in, uint32_t *out) {
    __shared__ __align__(16) uint32_t tile[64][4];
    unsigned lane = threadIdx.x % 32, warp = threadIdx.x / 32;
    uint32_t(*rows)[4] = tile + 32 * warp;
    for (int n = 0; n < 4; n++)
        rows[lane][n] = in[4 * (32 * (2 * blockIdx.x + warp) + lane) + n];
    __syncwarp();
    uint32_t row = shared_address(rows[(lane * 5 + 3) % 32]);
    uint32_t r[13];
    load_1(r, row);
    load_2(r + 1, row);
    load_4(r + 3, row);
    load_2_turned(r + 7, row);
    load_4_turned(r + 9, row);
    // Through a generic address.
    uint32_t generic;
    asm volatile("ldmatrix.sync.aligned.m8n8.x1.trans.b16 {%0}, [%1];"
                 : "=r"(generic) : "l"(&rows[(lane * 3 + 1) % 32][0]) : "memory");
    uint32_t *to = out + 14 * (blockIdx.x * blockDim.x + threadIdx.x);
    for (int n = 0; n < 13; n++)
        to[n] = r[n];
    to[13] = generic;
}

// What every form of stmatrix leaves in shared memory.
extern "C" __global__ void store_matrices(const uint32_t *in, uint32_t *out) {
    __shared__ __align__(16) uint32_t tile[32][4];
    unsigned lane = threadIdx.x;
    uint32_t r[4];
    for (int n = 0; n < 4; n++)
        r[n] = in[4 * (32 * blockIdx.x + lane) + n];
    for (int form = 0; form < 4; form++) {
        for (int n = 0; n < 4; n++)
            tile[lane][n] = 0xdead0000 + 4 * lane + n;
        __syncwarp();
        uint32_t row = shared_address(tile[lane ^ 5]);
        if (form == 0)
            asm volatile("stmatrix.sync.aligned.m8n8.x4.shared.b16 [%0], {%1, %2, %3, %4};"
                         :: "r"(row), "r"(r[0]), "r"(r[1]), "r"(r[2]), "r"(r[3]) : "memory");
        if (form == 1)
            asm volatile("stmatrix.sync.aligned.m8n8.x4.trans.shared.b16 [%0], {%1, %2, %3, %4};"
                         :: "r"(row), "r"(r[0]), "r"(r[1]), "r"(r[2]), "r"(r[3]) : "memory");
        if (form == 2)
            asm volatile("stmatrix.sync.aligned.m8n8.x2.trans.shared.b16 [%0], {%1, %2};"
                         :: "r"(row), "r"(r[0]), "r"(r[1]) : "memory");
        if (form == 3)
            asm volatile("stmatrix.sync.aligned.m8n8.x1.shared.b16 [%0], {%1};" :: "r"(row), "r"(r[0]) : "memory");
        __syncwarp();
        for (int n = 0; n < 4; n++)
            out[4 * (32 * (4 * blockIdx.x + form) + lane) + n] = tile[lane][n];
        __syncwarp();
    }
    uint32_t turned;
    asm volatile("movmatrix.sync.aligned.m8n8.trans.b16 %0, %1;" : "=r"(turned) : "r"(r[0]));
    out[4 * 32 * 4 * gridDim.x + 32 * blockIdx.x + lane] = turned;
}

// A product through wmma, one tile a warp: loaded with its own stride, multiplied, stored.
template <int M, int N, int K, class Factor, class Sum, class A, class B>
__device__ void tile(const Factor *a, const Factor *b, const Sum *c, Sum *d, int line, wmma::layout_t layout) {
    wmma::fragment<wmma::matrix_a, M, N, K, Factor, A> of_a;
    wmma::fragment<wmma::matrix_b, M, N, K, Factor, B> of_b;
    wmma::fragment<wmma::accumulator, M, N, K, Sum> sum;
    wmma::load_matrix_sync(of_a, a, line);
    wmma::load_matrix_sync(of_b, b, line);
    wmma::load_matrix_sync(sum, c, line, layout);
    wmma::mma_sync(sum, of_a, of_b, sum);
    wmma::store_matrix_sync(d, sum, line, layout);
}

// All layouts of a shape. Matrices have lines of 48 elements and up to 48 lines.
template <int M, int N, int K, class Factor, class Sum>
__device__ void layouts(const Factor *a, const Factor *b, const Sum *c, Sum *d) {
    const int line = 48, matrix = 48 * 48;
    tile<M, N, K, Factor, Sum, wmma::row_major, wmma::row_major>(a, b, c, d, line, wmma::mem_row_major);
    tile<M, N, K, Factor, Sum, wmma::row_major, wmma::col_major>(a, b, c, d + matrix, line, wmma::mem_col_major);
    tile<M, N, K, Factor, Sum, wmma::col_major, wmma::row_major>(a, b, c, d + 2 * matrix, line, wmma::mem_row_major);
    tile<M, N, K, Factor, Sum, wmma::col_major, wmma::col_major>(a, b, c, d + 3 * matrix, line, wmma::mem_col_major);
}

template <class Factor, class Sum>
__device__ void shapes(const Factor *a, const Factor *b, const Sum *c, Sum *d) {
    const int four = 4 * 48 * 48;
    layouts<16, 16, 16>(a, b, c, d);
    layouts<32, 8, 16>(a, b, c, d + four);
    layouts<8, 32, 16>(a, b, c, d + 2 * four);
}

extern "C" __global__ void wmma_halves(const __half *a, const __half *b, const __half *c, __half *d) {
    shapes(a, b, c, d);
}

extern "C" __global__ void wmma_singles(const __half *a, const __half *b, const float *c, float *d) {
    shapes(a, b, c, d);
}

extern "C" __global__ void wmma_bfloats(const __nv_bfloat16 *a, const __nv_bfloat16 *b, const float *c, float *d) {
    shapes(a, b, c, d);
}

extern "C" __global__ void wmma_bytes(const signed char *a, const unsigned char *b, const int *c, int *d) {
    const int four = 4 * 48 * 48;
    layouts<16, 16, 16>(a, (const signed char *)b, c, d);
    layouts<32, 8, 16>((const unsigned char *)a, b, c, d + four);
    layouts<8, 32, 16>(a, (const signed char *)b, c, d + 2 * four);
}

extern "C" __global__ void wmma_doubles(const double *a, const double *b, const double *c, double *d) {
    layouts<8, 8, 4>(a, b, c, d);
}

extern "C" __global__ void wmma_tf32(const float *a, const float *b, const float *c, float *d) {
    const int line = 48;
    wmma::fragment<wmma::matrix_a, 16, 16, 8, wmma::precision::tf32, wmma::row_major> of_a;
    wmma::fragment<wmma::matrix_b, 16, 16, 8, wmma::precision::tf32, wmma::col_major> of_b;
    wmma::fragment<wmma::accumulator, 16, 16, 8, float> sum;
    wmma::load_matrix_sync(of_a, a, line);
    wmma::load_matrix_sync(of_b, b, line);
    wmma::load_matrix_sync(sum, c, line, wmma::mem_row_major);
    for (int n = 0; n < of_a.num_elements; n++)
        of_a.x[n] = wmma::__float_to_tf32(of_a.x[n]);
    for (int n = 0; n < of_b.num_elements; n++)
        of_b.x[n] = wmma::__float_to_tf32(of_b.x[n]);
    wmma::mma_sync(sum, of_a, of_b, sum);
    wmma::store_matrix_sync(d, sum, line, wmma::mem_row_major);
}

// C = A * B of halves, summed in singles: 64 x 64 a block of four warps, each 32 x 32, through shared
// memory whose lines are 16 bytes longer than what they hold, so that ldmatrix has no conflicts.
// A goes by rows, B by rows (its tiles are turned as they are loaded). All sizes are multiples.
extern "C" __global__ void __launch_bounds__(128) gemm_halves(const __half *a, const __half *b, float *c, int n, int k) {
    const int SIDE = 64, DEPTH = 32, PAD = 8;
    __shared__ __align__(16) __half of_a[SIDE][DEPTH + PAD];
    __shared__ __align__(16) __half of_b[DEPTH][SIDE + PAD];
    unsigned thread = threadIdx.x, lane = thread % 32, warp = thread / 32;
    int row = blockIdx.y * SIDE, column = blockIdx.x * SIDE;
    int in_row = 32 * (warp / 2), in_column = 32 * (warp % 2);
    float sums[2][4][4] = {};
    for (int start = 0; start < k; start += DEPTH) {
        for (int part = thread; part < SIDE * DEPTH / 8; part += 128)
            *(uint4 *)&of_a[part / 4][part % 4 * 8] =
                *(const uint4 *)&a[(size_t)(row + part / 4) * k + start + part % 4 * 8];
        for (int part = thread; part < SIDE * DEPTH / 8; part += 128)
            *(uint4 *)&of_b[part / 8][part % 8 * 8] =
                *(const uint4 *)&b[(size_t)(start + part / 8) * n + column + part % 8 * 8];
        __syncthreads();
        for (int step = 0; step < DEPTH; step += 16) {
            uint32_t left[2][4], right[4][2];
            for (int m = 0; m < 2; m++)
                load_4(left[m], shared_address(&of_a[in_row + 16 * m + lane % 16][step + lane / 16 * 8]));
            for (int m = 0; m < 4; m += 2)
                load_4_turned(right[m], shared_address(&of_b[step + lane % 16][in_column + 8 * m + lane / 16 * 8]));
            for (int m = 0; m < 2; m++)
                for (int o = 0; o < 4; o++)
                    multiply(sums[m][o], left[m], right[o]);
        }
        __syncthreads();
    }
    for (int m = 0; m < 2; m++)
        for (int o = 0; o < 4; o++)
            for (int half = 0; half < 2; half++) {
                int at = row + in_row + 16 * m + 8 * half + lane / 4;
                int to = column + in_column + 8 * o + 2 * (lane % 4);
                *(float2 *)&c[(size_t)at * n + to] = make_float2(sums[m][o][2 * half], sums[m][o][2 * half + 1]);
            }
}

// softmax(Q * K^T * scale) * V in one pass over K and V: 64 rows of Q a block of four warps, a head of
// 64, running maxima and sums. `length` is a multiple of 64. With `causal`, a row sees those up to its
// own.
extern "C" __global__ void __launch_bounds__(128)
    flash_attention(const __half *q, const __half *keys, const __half *values, float *out, int length, float scale,
                    int causal) {
    const int HEAD = 64, ROWS = 64, PAD = 8;
    __shared__ __align__(16) __half of_k[ROWS][HEAD + PAD];
    __shared__ __align__(16) __half of_v[ROWS][HEAD + PAD];
    unsigned thread = threadIdx.x, lane = thread % 32, warp = thread / 32;
    size_t head = (size_t)blockIdx.y * length * HEAD;
    int first = blockIdx.x * ROWS + 16 * warp, own = first + lane / 4;
    uint32_t left[4][4];
    for (int part = thread; part < ROWS * HEAD / 8; part += 128)
        *(uint4 *)&of_k[part / 8][part % 8 * 8] =
            *(const uint4 *)&q[head + (size_t)(blockIdx.x * ROWS + part / 8) * HEAD + part % 8 * 8];
    __syncthreads();
    for (int m = 0; m < 4; m++)
        load_4(left[m], shared_address(&of_k[16 * warp + lane % 16][16 * m + lane / 16 * 8]));
    __syncthreads();
    float highest[2] = {-INFINITY, -INFINITY}, total[2] = {}, sums[8][4] = {};
    int end = causal ? (blockIdx.x + 1) * ROWS : length;
    for (int start = 0; start < end; start += ROWS) {
        for (int part = thread; part < ROWS * HEAD / 8; part += 128) {
            size_t from = head + (size_t)(start + part / 8) * HEAD + part % 8 * 8;
            *(uint4 *)&of_k[part / 8][part % 8 * 8] = *(const uint4 *)&keys[from];
            *(uint4 *)&of_v[part / 8][part % 8 * 8] = *(const uint4 *)&values[from];
        }
        __syncthreads();
        float scores[8][4] = {};
        for (int m = 0; m < 4; m++)
            for (int o = 0; o < 8; o++) {
                uint32_t right[2];
                load_2(right, shared_address(&of_k[8 * o + lane % 8][16 * m + lane / 8 % 2 * 8]));
                multiply(scores[o], left[m], right);
            }
        for (int half = 0; half < 2; half++) {
            float most = highest[half];
            for (int o = 0; o < 8; o++)
                for (int e = 0; e < 2; e++) {
                    float &score = scores[o][2 * half + e];
                    score *= scale;
                    if (causal && start + 8 * o + 2 * (int)(lane % 4) + e > own + 8 * half)
                        score = -INFINITY;
                    most = fmaxf(most, score);
                }
            most = fmaxf(most, __shfl_xor_sync(0xffffffff, most, 1));
            most = fmaxf(most, __shfl_xor_sync(0xffffffff, most, 2));
            float rescale = expf(highest[half] - most);
            highest[half] = most;
            total[half] *= rescale;
            for (int o = 0; o < 8; o++)
                for (int e = 0; e < 2; e++) {
                    float &score = scores[o][2 * half + e];
                    score = expf(score - most);
                    total[half] += score;
                    sums[o][2 * half + e] *= rescale;
                }
        }
        for (int m = 0; m < 4; m++) {
            uint32_t weights[4];
            for (int part = 0; part < 4; part++) {
                const float *pair = &scores[2 * m + part / 2][part % 2 * 2];
                __half2 packed = __floats2half2_rn(pair[0], pair[1]);
                weights[part] = *(uint32_t *)&packed;
            }
            for (int o = 0; o < 8; o++) {
                uint32_t right[2];
                load_2_turned(right, shared_address(&of_v[16 * m + lane % 16][8 * o]));
                multiply(sums[o], weights, right);
            }
        }
        __syncthreads();
    }
    for (int half = 0; half < 2; half++) {
        float all = total[half];
        all += __shfl_xor_sync(0xffffffff, all, 1);
        all += __shfl_xor_sync(0xffffffff, all, 2);
        for (int o = 0; o < 8; o++)
            *(float2 *)&out[head + (size_t)(own + 8 * half) * HEAD + 8 * o + 2 * (lane % 4)] =
                make_float2(sums[o][2 * half] / all, sums[o][2 * half + 1] / all);
    }
}
