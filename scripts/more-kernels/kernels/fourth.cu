// Kernels as CUDA programmers write them; `src/main.rs` says what for.
#include <cooperative_groups.h>
#include <cooperative_groups/reduce.h>
#include <cstdint>
#include <cub/block/block_histogram.cuh>
#include <cub/block/block_load.cuh>
#include <cub/block/block_radix_sort.cuh>
#include <cub/block/block_reduce.cuh>
#include <cub/block/block_scan.cuh>
#include <cub/block/block_store.cuh>
#include <cuda_bf16.h>
#include <cuda_fp16.h>
#include <cuda_pipeline.h>

namespace cg = cooperative_groups;

// ---------------------------------------------------------------- odd shapes of blocks

#define DT 12
extern "C" __global__ void dgemm_12x12(const double *A, const double *B, double *C, int M, int N, int K) {
    __shared__ double As[DT][DT];
    __shared__ double Bs[DT][DT];
    int row = blockIdx.y * DT + threadIdx.y;
    int col = blockIdx.x * DT + threadIdx.x;
    double sum = 0.0;
    for (int t = 0; t < (K + DT - 1) / DT; t++) {
        int ka = t * DT + threadIdx.x, kb = t * DT + threadIdx.y;
        As[threadIdx.y][threadIdx.x] = row < M && ka < K ? A[row * K + ka] : 0.0;
        Bs[threadIdx.y][threadIdx.x] = kb < K && col < N ? B[kb * N + col] : 0.0;
        __syncthreads();
        for (int k = 0; k < DT; k++) sum += As[threadIdx.y][k] * Bs[k][threadIdx.x];
        __syncthreads();
    }
    if (row < M && col < N) C[row * N + col] = sum;
}

extern "C" __global__ void jacobi_20x10(const float *u, const float *f, float *next, int w, int h, float h2) {
    int x = blockIdx.x * blockDim.x + threadIdx.x;
    int y = blockIdx.y * blockDim.y + threadIdx.y;
    if (x < 1 || y < 1 || x >= w - 1 || y >= h - 1) return;
    int i = y * w + x;
    next[i] = 0.25f * (u[i - 1] + u[i + 1] + u[i - w] + u[i + w] - h2 * f[i]);
}

extern "C" __global__ void lengths_100(const float *x, const float *y, const float *z, float *out, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) out[i] = sqrtf(x[i] * x[i] + y[i] * y[i] + z[i] * z[i]);
}

// The least and the greatest of a tile of 6x6 pixels.
extern "C" __global__ void min_max_6x6(const float *img, float2 *out, int w) {
    __shared__ float lo[36], hi[36];
    int t = threadIdx.y * 6 + threadIdx.x;
    float v = img[(blockIdx.y * 6 + threadIdx.y) * w + blockIdx.x * 6 + threadIdx.x];
    lo[t] = v;
    hi[t] = v;
    __syncthreads();
    int n = 36;
    while (n > 1) {
        int half = (n + 1) / 2;
        if (t < n / 2) {
            lo[t] = fminf(lo[t], lo[t + half]);
            hi[t] = fmaxf(hi[t], hi[t + half]);
        }
        __syncthreads();
        n = half;
    }
    if (t == 0) out[blockIdx.y * gridDim.x + blockIdx.x] = make_float2(lo[0], hi[0]);
}

#define SB 6
extern "C" __global__ void stencil7_6x6x6(const float *in, float *out, int nx, int ny, int nz, float a, float b) {
    __shared__ float s[SB + 2][SB + 2][SB + 2];
    int bx = blockIdx.x * SB, by = blockIdx.y * SB, bz = blockIdx.z * SB;
    int t = (threadIdx.z * SB + threadIdx.y) * SB + threadIdx.x;
    for (int i = t; i < (SB + 2) * (SB + 2) * (SB + 2); i += SB * SB * SB) {
        int lx = i % (SB + 2), ly = i / (SB + 2) % (SB + 2), lz = i / ((SB + 2) * (SB + 2));
        int x = bx + lx - 1, y = by + ly - 1, z = bz + lz - 1;
        bool ok = x >= 0 && x < nx && y >= 0 && y < ny && z >= 0 && z < nz;
        s[lz][ly][lx] = ok ? in[(z * ny + y) * nx + x] : 0.0f;
    }
    __syncthreads();
    int x = threadIdx.x + 1, y = threadIdx.y + 1, z = threadIdx.z + 1;
    int gx = bx + threadIdx.x, gy = by + threadIdx.y, gz = bz + threadIdx.z;
    if (gx < nx && gy < ny && gz < nz)
        out[(gz * ny + gy) * nx + gx] = a * s[z][y][x] + b * (s[z][y][x - 1] + s[z][y][x + 1] + s[z][y - 1][x] +
                                                              s[z][y + 1][x] + s[z - 1][y][x] + s[z + 1][y][x]);
}

__constant__ float taps3[9];
extern "C" __global__ void conv3_10x10(const float *in, float *out, int w, int h) {
    __shared__ float tile[12][12];
    int x0 = blockIdx.x * 10, y0 = blockIdx.y * 10;
    for (int i = threadIdx.y * 10 + threadIdx.x; i < 144; i += 100) {
        int x = min(max(x0 + i % 12 - 1, 0), w - 1);
        int y = min(max(y0 + i / 12 - 1, 0), h - 1);
        tile[i / 12][i % 12] = in[y * w + x];
    }
    __syncthreads();
    int x = x0 + threadIdx.x, y = y0 + threadIdx.y;
    if (x >= w || y >= h) return;
    float sum = 0.0f;
#pragma unroll
    for (int r = 0; r < 3; r++)
#pragma unroll
        for (int c = 0; c < 3; c++) sum += taps3[r * 3 + c] * tile[threadIdx.y + r][threadIdx.x + c];
    out[y * w + x] = sum;
}

// Bytes of pixels become planes of floats; a row of the block for each colour.
extern "C" __global__ void planes_96x3(const unsigned char *rgb, float *planes, int n, float3 mean, float3 scale) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    int c = threadIdx.y;
    if (i >= n) return;
    float m = c == 0 ? mean.x : c == 1 ? mean.y : mean.z;
    float s = c == 0 ? scale.x : c == 1 ? scale.y : scale.z;
    planes[c * n + i] = (rgb[3 * i + c] / 255.0f - m) * s;
}

extern "C" __global__ void column_sums_33x8(const float *a, float *sums, int rows, int cols) {
    __shared__ float part[8][33];
    int col = blockIdx.x * 33 + threadIdx.x;
    float sum = 0.0f;
    if (col < cols)
        for (int r = threadIdx.y; r < rows; r += 8) sum += a[r * cols + col];
    part[threadIdx.y][threadIdx.x] = sum;
    __syncthreads();
    if (threadIdx.y == 0 && col < cols) {
        for (int r = 1; r < 8; r++) sum += part[r][threadIdx.x];
        sums[col] = sum;
    }
}

extern "C" __global__ void transpose_f64_24x6(const double *in, double *out, int w, int h) {
    __shared__ double tile[24][25];
    int x = blockIdx.x * 24 + threadIdx.x, y = blockIdx.y * 24 + threadIdx.y;
    for (int j = 0; j < 24; j += 6)
        if (x < w && y + j < h) tile[threadIdx.y + j][threadIdx.x] = in[(y + j) * w + x];
    __syncthreads();
    x = blockIdx.y * 24 + threadIdx.x;
    y = blockIdx.x * 24 + threadIdx.y;
    for (int j = 0; j < 24; j += 6)
        if (x < h && y + j < w) out[(y + j) * h + x] = tile[threadIdx.x][threadIdx.y + j];
}

// ---------------------------------------------------------------- lanes together after parting

__device__ int aggregated_slot(int *counter) {
    cg::coalesced_group active = cg::coalesced_threads();
    int base = 0;
    if (active.thread_rank() == 0) base = atomicAdd(counter, (int)active.size());
    return active.shfl(base, 0) + active.thread_rank();
}

extern "C" __global__ void filter_coalesced(const int *src, int *dst, int *count, int n, int limit) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= n) return;
    if (src[i] > limit) dst[aggregated_slot(count)] = src[i];
}

extern "C" __global__ void filter_activemask(const float *src, float *dst, unsigned *count, unsigned n) {
    for (unsigned i = blockIdx.x * blockDim.x + threadIdx.x; i < n; i += gridDim.x * blockDim.x) {
        float v = src[i];
        if (v > 0.0f) {
            unsigned mask = __activemask();
            unsigned lane = threadIdx.x & 31;
            int leader = __ffs(mask) - 1;
            unsigned base = 0;
            if (lane == leader) base = atomicAdd(count, __popc(mask));
            base = __shfl_sync(mask, base, leader);
            dst[base + __popc(mask & ((1u << lane) - 1))] = v;
        }
    }
}

extern "C" __global__ void compact_leader(const int2 *pairs, int *out, int *count, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    int2 p = i < n ? pairs[i] : make_int2(0, 0);
    bool keep = p.x < p.y;
    unsigned votes = __ballot_sync(0xffffffffu, keep);
    int lane = threadIdx.x & 31, base = 0;
    if (lane == 0 && votes) base = atomicAdd(count, __popc(votes));
    base = __shfl_sync(0xffffffffu, base, 0);
    if (keep) out[base + __popc(votes & ((1u << lane) - 1u))] = i;
}

extern "C" __global__ void hist_match_any(const unsigned char *keys, unsigned *bins, int n) {
    __shared__ unsigned local[64];
    if (threadIdx.x < 64) local[threadIdx.x] = 0;
    __syncthreads();
    for (int i = blockIdx.x * blockDim.x + threadIdx.x; i < n; i += gridDim.x * blockDim.x) {
        unsigned active = __activemask();
        int key = keys[i] >> 2;
        unsigned same = __match_any_sync(active, key);
        if ((threadIdx.x & 31) == __ffs(same) - 1) atomicAdd(&local[key], __popc(same));
    }
    __syncthreads();
    if (threadIdx.x < 64) atomicAdd(&bins[threadIdx.x], local[threadIdx.x]);
}

// Each thread takes work from a counter until there is none.
extern "C" __global__ void queue_collatz(int *next, int n, unsigned first, int *steps) {
    while (true) {
        int i = atomicAdd(next, 1);
        if (i >= n) return;
        unsigned long long v = first + i;
        int k = 0;
        while (v != 1) {
            v = v & 1 ? 3 * v + 1 : v >> 1;
            k++;
        }
        steps[i] = k;
    }
}

__device__ unsigned hash32(unsigned k) {
    k ^= k >> 16;
    k *= 0x85ebca6bu;
    k ^= k >> 13;
    k *= 0xc2b2ae35u;
    return k ^ (k >> 16);
}

struct Slot {
    unsigned key, value;
};

extern "C" __global__ void hash_insert(Slot *table, const unsigned *keys, int n, unsigned mask) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= n) return;
    unsigned key = keys[i];
    unsigned slot = hash32(key) & mask;
    while (true) {
        unsigned prev = atomicCAS(&table[slot].key, 0u, key);
        if (prev == 0 || prev == key) {
            atomicAdd(&table[slot].value, 1);
            return;
        }
        slot = (slot + 1) & mask;
    }
}

extern "C" __global__ void hash_lookup(const Slot *table, const unsigned *keys, unsigned *out, int n, unsigned mask) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= n) return;
    unsigned slot = hash32(keys[i]) & mask;
    unsigned found = 0;
    while (table[slot].key != 0) {
        if (table[slot].key == keys[i]) {
            found = table[slot].value;
            break;
        }
        slot = (slot + 1) & mask;
    }
    out[i] = found;
}

__device__ int root_of(int *parent, int v) {
    int p = ((volatile int *)parent)[v];
    while (p != v) {
        v = p;
        p = ((volatile int *)parent)[v];
    }
    return v;
}

extern "C" __global__ void union_edges(const int2 *edges, int *parent, int count) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= count) return;
    int a = root_of(parent, edges[i].x), b = root_of(parent, edges[i].y);
    while (a != b) {
        if (a < b) {
            int t = a;
            a = b;
            b = t;
        }
        int old = atomicMin(&parent[a], b);
        if (old == a) break;
        a = root_of(parent, old);
        b = root_of(parent, b);
    }
}

extern "C" __global__ void flatten_roots(int *parent, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) parent[i] = root_of(parent, i);
}

extern "C" __global__ void sssp_push(const int *row_ptr, const int2 *adj, int *dist, const int *queue, int size,
                                     int *next, int *next_size, int *stamp, int round) {
    int q = blockIdx.x * blockDim.x + threadIdx.x;
    if (q >= size) return;
    int u = queue[q];
    int d = dist[u];
    for (int e = row_ptr[u]; e < row_ptr[u + 1]; e++) {
        int2 to = adj[e];
        int through = d + to.y;
        if (through < atomicMin(&dist[to.x], through))
            if (atomicExch(&stamp[to.x], round) != round) next[atomicAdd(next_size, 1)] = to.x;
    }
}

// ---------------------------------------------------------------- atomics of floats

extern "C" __global__ void index_add_rows(float *dst, const float *src, const int *index, int rows, int cols) {
    int row = blockIdx.x * blockDim.y + threadIdx.y;
    if (row >= rows) return;
    float *to = dst + (size_t)index[row] * cols;
    for (int c = threadIdx.x; c < cols; c += blockDim.x) atomicAdd(&to[c], src[(size_t)row * cols + c]);
}

extern "C" __global__ void scatter_add(float *dst, const float *src, const int *index, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) atomicAdd(dst + index[i], src[i]);
}

// Cells of 8x8 pixels, 9 directions, by magnitude.
extern "C" __global__ void gradient_cells(const float *img, float *out, int w, int h) {
    __shared__ float bins[9];
    int t = threadIdx.y * 8 + threadIdx.x;
    if (t < 9) bins[t] = 0.0f;
    __syncthreads();
    int x = blockIdx.x * 8 + threadIdx.x, y = blockIdx.y * 8 + threadIdx.y;
    float gx = img[y * w + min(x + 1, w - 1)] - img[y * w + max(x - 1, 0)];
    float gy = img[min(y + 1, h - 1) * w + x] - img[max(y - 1, 0) * w + x];
    float angle = atan2f(gy, gx);
    if (angle < 0.0f) angle += 3.14159265f;
    float at = angle * (9.0f / 3.14159265f);
    int bin = (int)at;
    float part = at - bin, mag = sqrtf(gx * gx + gy * gy);
    atomicAdd(&bins[bin % 9], mag * (1.0f - part));
    atomicAdd(&bins[(bin + 1) % 9], mag * part);
    __syncthreads();
    if (t < 9) out[(blockIdx.y * gridDim.x + blockIdx.x) * 9 + t] = bins[t];
}

extern "C" __global__ void dot_f64_atomic(const double *a, const double *b, double *out, int n) {
    __shared__ double total;
    if (threadIdx.x == 0) total = 0.0;
    __syncthreads();
    double sum = 0.0;
    for (int i = blockIdx.x * blockDim.x + threadIdx.x; i < n; i += gridDim.x * blockDim.x) sum += a[i] * b[i];
    atomicAdd(&total, sum);
    __syncthreads();
    if (threadIdx.x == 0) atomicAdd(out, total);
}

__device__ void atomic_max_float(float *p, float v) {
    if (v >= 0.0f)
        atomicMax((int *)p, __float_as_int(v));
    else
        atomicMin((unsigned *)p, __float_as_uint(v));
}

extern "C" __global__ void channel_max(const float *x, float *best, int rows, int cols) {
    int col = blockIdx.x * blockDim.x + threadIdx.x;
    if (col >= cols) return;
    float m = -INFINITY;
    for (int r = blockIdx.y; r < rows; r += gridDim.y) m = fmaxf(m, x[(size_t)r * cols + col]);
    atomic_max_float(&best[col], m);
}

// ---------------------------------------------------------------- sorts, scans

// Splits a block's keys by a bit at a time: a scan of the zeros tells where each goes.
extern "C" __global__ void radix_split_256(const unsigned *in, unsigned *out, int bits) {
    __shared__ unsigned keys[256];
    __shared__ int scan[256];
    int t = threadIdx.x;
    keys[t] = in[blockIdx.x * 256 + t];
    __syncthreads();
    for (int bit = 0; bit < bits; bit++) {
        unsigned key = keys[t];
        int zero = !((key >> bit) & 1);
        scan[t] = zero;
        __syncthreads();
        for (int d = 1; d < 256; d *= 2) {
            int v = t >= d ? scan[t - d] : 0;
            __syncthreads();
            scan[t] += v;
            __syncthreads();
        }
        int before = scan[t] - zero, zeros = scan[255];
        int to = zero ? before : t - before + zeros;
        __syncthreads();
        keys[to] = key;
        __syncthreads();
    }
    out[blockIdx.x * 256 + t] = keys[t];
}

#define OE 512
extern "C" __global__ void odd_even_merge_512(int *data) {
    __shared__ int s[OE];
    int t = threadIdx.x;
    int *base = data + blockIdx.x * OE;
    s[t] = base[t];
    s[t + OE / 2] = base[t + OE / 2];
    for (int size = 2; size <= OE; size <<= 1) {
        int stride = size / 2;
        int offset = t & (stride - 1);
        __syncthreads();
        int pos = 2 * t - (t & (stride - 1));
        if (s[pos] > s[pos + stride]) {
            int v = s[pos];
            s[pos] = s[pos + stride];
            s[pos + stride] = v;
        }
        for (stride >>= 1; stride > 0; stride >>= 1) {
            __syncthreads();
            pos = 2 * t - (t & (stride - 1));
            if (offset >= stride && s[pos - stride] > s[pos]) {
                int v = s[pos];
                s[pos] = s[pos - stride];
                s[pos - stride] = v;
            }
        }
    }
    __syncthreads();
    base[t] = s[t];
    base[t + OE / 2] = s[t + OE / 2];
}

// Pairs by key, a pair of elements a thread; the order turns with the block's number.
extern "C" __global__ void bitonic_pairs_1024(unsigned *keys, unsigned *values) {
    __shared__ unsigned k[1024], v[1024];
    int t = threadIdx.x, base = blockIdx.x * 1024;
    for (int i = t; i < 1024; i += 512) {
        k[i] = keys[base + i];
        v[i] = values[base + i];
    }
    for (unsigned size = 2; size <= 1024; size *= 2) {
        bool up = size == 1024 ? blockIdx.x % 2 == 0 : (t & (size / 2)) == 0;
        for (unsigned stride = size / 2; stride > 0; stride /= 2) {
            __syncthreads();
            int p = 2 * t - (t & (stride - 1));
            if ((k[p] > k[p + stride]) == up) {
                unsigned a = k[p], b = v[p];
                k[p] = k[p + stride];
                v[p] = v[p + stride];
                k[p + stride] = a;
                v[p + stride] = b;
            }
        }
    }
    __syncthreads();
    for (int i = t; i < 1024; i += 512) {
        keys[base + i] = k[i];
        values[base + i] = v[i];
    }
}

// Each block a row; sums go to and fro between two buffers.
extern "C" __global__ void scan_pingpong_u64(const unsigned long long *in, unsigned long long *out) {
    extern __shared__ unsigned long long buf[];
    int n = blockDim.x, t = threadIdx.x, from = 0;
    buf[t] = in[(size_t)blockIdx.x * n + t];
    __syncthreads();
    for (int d = 1; d < n; d <<= 1) {
        int to = 1 - from;
        buf[to * n + t] = buf[from * n + t] + (t >= d ? buf[from * n + t - d] : 0);
        from = to;
        __syncthreads();
    }
    out[(size_t)blockIdx.x * n + t] = buf[from * n + t];
}

// One warp goes over the values of all of the block's threads, each lane a run of them.
extern "C" __global__ void scan_raking(const int *in, int *out) {
    __shared__ int s[512 + 32];
    int t = threadIdx.x;
    int at = blockIdx.x * 512 + t;
    s[t + t / 16] = in[at];
    __syncthreads();
    if (t < 32) {
        int *run = s + t * 17;
        int sum = 0;
#pragma unroll
        for (int i = 0; i < 16; i++) sum += run[i];
        int inclusive = sum;
#pragma unroll
        for (int d = 1; d < 32; d *= 2) {
            int o = __shfl_up_sync(0xffffffffu, inclusive, d);
            if (t >= d) inclusive += o;
        }
        int acc = inclusive - sum;
#pragma unroll
        for (int i = 0; i < 16; i++) {
            int v = run[i];
            run[i] = acc;
            acc += v;
        }
    }
    __syncthreads();
    out[at] = s[t + t / 16];
}

__device__ __forceinline__ void join(int &flag, float &sum, int before_flag, float before) {
    if (!flag) sum += before;
    flag |= before_flag;
}

// Sums start again where a flag is set; for each block alone.
extern "C" __global__ void segmented_scan_256(const float *in, const unsigned char *heads, float *out, int n) {
    __shared__ float sums[8];
    __shared__ int flags[8];
    int i = blockIdx.x * 256 + threadIdx.x, lane = threadIdx.x % 32, warp = threadIdx.x / 32;
    float sum = i < n ? in[i] : 0.0f;
    int flag = i < n ? heads[i] : 0;
    for (int d = 1; d < 32; d *= 2) {
        float s = __shfl_up_sync(~0u, sum, d);
        int f = __shfl_up_sync(~0u, flag, d);
        if (lane >= d) join(flag, sum, f, s);
    }
    if (lane == 31) {
        sums[warp] = sum;
        flags[warp] = flag;
    }
    __syncthreads();
    float carry = 0.0f;
    for (int w = 0; w < warp; w++) carry = flags[w] ? sums[w] : carry + sums[w];
    if (!flag) sum += carry;
    if (i < n) out[i] = sum;
}

// The rank of each of a block's keys by a digit of 4 bits, of counters of 16 bits a thread.
extern "C" __global__ void radix_rank_128(const unsigned *keys, int *ranks, int shift) {
    __shared__ unsigned short count[16][128];
    __shared__ int total[16];
    const int t = threadIdx.x;
    const unsigned *in = keys + blockIdx.x * 512 + t * 4;
    for (int d = 0; d < 16; d++) count[d][t] = 0;
    int digit[4], local[4];
#pragma unroll
    for (int i = 0; i < 4; i++) {
        digit[i] = (in[i] >> shift) & 15;
        local[i] = count[digit[i]][t]++;
    }
    __syncthreads();
    // A lane of the first warps goes over a digit's counters.
    if (t < 16) {
        int sum = 0;
        for (int i = 0; i < 128; i++) {
            int c = count[t][i];
            count[t][i] = sum;
            sum += c;
        }
        int before = sum;
        for (int d = 1; d < 16; d *= 2) {
            int o = __shfl_up_sync(0xffff, before, d, 16);
            if (t >= d) before += o;
        }
        total[t] = before - sum;
    }
    __syncthreads();
#pragma unroll
    for (int i = 0; i < 4; i++)
        ranks[blockIdx.x * 512 + t * 4 + i] = total[digit[i]] + count[digit[i]][t] + local[i];
}

extern "C" __global__ void __launch_bounds__(128) cub_scan_tiles(const int *in, int *out) {
    typedef cub::BlockLoad<int, 128, 8, cub::BLOCK_LOAD_TRANSPOSE> Load;
    typedef cub::BlockStore<int, 128, 8, cub::BLOCK_STORE_TRANSPOSE> Store;
    typedef cub::BlockScan<int, 128> Scan;
    __shared__ union {
        typename Load::TempStorage load;
        typename Store::TempStorage store;
        typename Scan::TempStorage scan;
    } temp;
    int items[8];
    Load(temp.load).Load(in + blockIdx.x * 1024, items);
    __syncthreads();
    Scan(temp.scan).ExclusiveSum(items, items);
    __syncthreads();
    Store(temp.store).Store(out + blockIdx.x * 1024, items);
}

extern "C" __global__ void __launch_bounds__(256) cub_reduce_max(const float *in, float *out, int cols) {
    typedef cub::BlockReduce<cub::KeyValuePair<int, float>, 256> Reduce;
    __shared__ typename Reduce::TempStorage temp;
    cub::KeyValuePair<int, float> best(0, -INFINITY);
    for (int c = threadIdx.x; c < cols; c += 256) {
        float v = in[(size_t)blockIdx.x * cols + c];
        if (v > best.value) best = cub::KeyValuePair<int, float>(c, v);
    }
    best = Reduce(temp).Reduce(best, cub::ArgMax());
    if (threadIdx.x == 0) out[blockIdx.x] = best.key;
}

extern "C" __global__ void __launch_bounds__(128) cub_radix_sort(const unsigned *in, unsigned *out) {
    typedef cub::BlockRadixSort<unsigned, 128, 4> Sort;
    __shared__ typename Sort::TempStorage temp;
    unsigned keys[4];
    cub::LoadDirectBlocked(threadIdx.x, in + blockIdx.x * 512, keys);
    Sort(temp).Sort(keys);
    cub::StoreDirectBlocked(threadIdx.x, out + blockIdx.x * 512, keys);
}

extern "C" __global__ void __launch_bounds__(128) cub_histogram(const unsigned char *in, unsigned *bins) {
    typedef cub::BlockHistogram<unsigned char, 128, 16, 256, cub::BLOCK_HISTO_ATOMIC> Histogram;
    __shared__ typename Histogram::TempStorage temp;
    __shared__ unsigned counts[256];
    unsigned char samples[16];
    cub::LoadDirectStriped<128>(threadIdx.x, in + blockIdx.x * 2048, samples);
    Histogram(temp).Histogram(samples, counts);
    __syncthreads();
    for (int b = threadIdx.x; b < 256; b += 128)
        if (counts[b]) atomicAdd(&bins[b], counts[b]);
}

// ---------------------------------------------------------------- images, grids

extern "C" __global__ void depthwise_3x3(const float *in, const float *weight, const float *bias, float *out, int C,
                                         int H, int W) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    int c = blockIdx.y;
    if (i >= H * W) return;
    int y = i / W, x = i % W;
    const float *plane = in + c * H * W;
    const float *k = weight + c * 9;
    float sum = bias[c];
#pragma unroll
    for (int dy = -1; dy <= 1; dy++)
#pragma unroll
        for (int dx = -1; dx <= 1; dx++) {
            int yy = y + dy, xx = x + dx;
            if (yy >= 0 && yy < H && xx >= 0 && xx < W) sum += plane[yy * W + xx] * k[(dy + 1) * 3 + dx + 1];
        }
    out[c * H * W + i] = fmaxf(sum, 0.0f);
}

extern "C" __global__ void box_7x7(const unsigned char *in, unsigned char *out, int w, int h) {
    int x = blockIdx.x * blockDim.x + threadIdx.x, y = blockIdx.y * blockDim.y + threadIdx.y;
    if (x >= w || y >= h) return;
    int sum = 0, count = 0;
    for (int yy = max(y - 3, 0); yy <= min(y + 3, h - 1); yy++)
        for (int xx = max(x - 3, 0); xx <= min(x + 3, w - 1); xx++) {
            sum += in[yy * w + xx];
            count++;
        }
    out[y * w + x] = sum / count;
}

// For each block of 8x8 pixels the shift with the least difference, a thread a shift.
extern "C" __global__ void sad_search(const unsigned char *cur, const unsigned char *ref, int *best, int w, int h) {
    __shared__ unsigned char block[8][8];
    __shared__ unsigned least;
    int bx = blockIdx.x * 8, by = blockIdx.y * 8;
    int t = threadIdx.y * blockDim.x + threadIdx.x;
    if (t < 64) block[t / 8][t % 8] = cur[(by + t / 8) * w + bx + t % 8];
    if (t == 0) least = 0xffffffffu;
    __syncthreads();
    int sx = bx + threadIdx.x - 8, sy = by + threadIdx.y - 8;
    if (sx >= 0 && sy >= 0 && sx + 8 <= w && sy + 8 <= h) {
        unsigned sad = 0;
        for (int y = 0; y < 8; y++)
            for (int x = 0; x < 8; x++) sad = __usad(block[y][x], ref[(sy + y) * w + sx + x], sad);
        atomicMin(&least, sad << 10 | t);
    }
    __syncthreads();
    if (t == 0) best[blockIdx.y * gridDim.x + blockIdx.x] = least;
}

extern "C" __global__ void upsample_2x(const float *in, float *out, int h, int w) {
    int ox = blockIdx.x * blockDim.x + threadIdx.x, oy = blockIdx.y, c = blockIdx.z;
    if (ox >= 2 * w) return;
    float fy = fmaxf((oy + 0.5f) * 0.5f - 0.5f, 0.0f), fx = fmaxf((ox + 0.5f) * 0.5f - 0.5f, 0.0f);
    int y0 = fy, x0 = fx;
    int y1 = y0 + (y0 < h - 1), x1 = x0 + (x0 < w - 1);
    float ty = fy - y0, tx = fx - x0;
    const float *p = in + (size_t)c * h * w;
    float top = (1.0f - tx) * p[y0 * w + x0] + tx * p[y0 * w + x1];
    float low = (1.0f - tx) * p[y1 * w + x0] + tx * p[y1 * w + x1];
    out[((size_t)c * 2 * h + oy) * 2 * w + ox] = (1.0f - ty) * top + ty * low;
}

extern "C" __global__ void im2col_3x3(const float *im, float *col, int channels, int h, int w) {
    int n = channels * h * w;
    for (int i = blockIdx.x * blockDim.x + threadIdx.x; i < n; i += blockDim.x * gridDim.x) {
        int x = i % w, y = i / w % h, c = i / w / h;
        float *to = col + (size_t)c * 9 * h * w + y * w + x;
        const float *from = im + c * h * w;
        for (int r = 0; r < 3; r++)
            for (int s = 0; s < 3; s++) {
                int yy = y + r - 1, xx = x + s - 1;
                *to = yy >= 0 && xx >= 0 && yy < h && xx < w ? from[yy * w + xx] : 0.0f;
                to += h * w;
            }
    }
}

__device__ __forceinline__ void order(unsigned char &a, unsigned char &b) {
    unsigned char lo = min(a, b);
    b = max(a, b);
    a = lo;
}

extern "C" __global__ void median_3x3(const unsigned char *in, unsigned char *out, int w, int h) {
    int x = blockIdx.x * blockDim.x + threadIdx.x, y = blockIdx.y * blockDim.y + threadIdx.y;
    if (x >= w || y >= h) return;
    unsigned char v[9];
#pragma unroll
    for (int i = 0; i < 9; i++) {
        int xx = min(max(x + i % 3 - 1, 0), w - 1), yy = min(max(y + i / 3 - 1, 0), h - 1);
        v[i] = in[yy * w + xx];
    }
    order(v[1], v[2]); order(v[4], v[5]); order(v[7], v[8]);
    order(v[0], v[1]); order(v[3], v[4]); order(v[6], v[7]);
    order(v[1], v[2]); order(v[4], v[5]); order(v[7], v[8]);
    order(v[0], v[3]); order(v[5], v[8]); order(v[4], v[7]);
    order(v[3], v[6]); order(v[1], v[4]); order(v[2], v[5]);
    order(v[4], v[7]); order(v[4], v[2]); order(v[6], v[4]);
    order(v[4], v[2]);
    out[y * w + x] = v[4];
}

// Full luma, colour at half of the size; a thread 2x2 pixels.
extern "C" __global__ void rgb_to_yuv420(const uchar3 *rgb, unsigned char *Y, unsigned char *U, unsigned char *V,
                                         int w, int h) {
    int x = 2 * (blockIdx.x * blockDim.x + threadIdx.x), y = 2 * (blockIdx.y * blockDim.y + threadIdx.y);
    if (x >= w || y >= h) return;
    int r = 0, g = 0, b = 0;
    for (int i = 0; i < 4; i++) {
        int at = (y + i / 2) * w + x + i % 2;
        uchar3 p = rgb[at];
        Y[at] = (66 * p.x + 129 * p.y + 25 * p.z + 128 >> 8) + 16;
        r += p.x;
        g += p.y;
        b += p.z;
    }
    int c = y / 2 * (w / 2) + x / 2;
    U[c] = (-38 * r - 74 * g + 112 * b + 512 >> 10) + 128;
    V[c] = (112 * r - 94 * g - 18 * b + 512 >> 10) + 128;
}

#define GR 6
__constant__ float gauss_taps[2 * GR + 1];
// Rows with the halo into shared memory, across, then down, all in one block of 32x16.
extern "C" __global__ void gauss_separable(const float *in, float *out, int w, int h) {
    __shared__ float tile[16 + 2 * GR][32 + 2 * GR];
    __shared__ float mid[16 + 2 * GR][32];
    int x0 = blockIdx.x * 32, y0 = blockIdx.y * 16;
    for (int y = threadIdx.y; y < 16 + 2 * GR; y += 16)
        for (int x = threadIdx.x; x < 32 + 2 * GR; x += 32) {
            int gx = min(max(x0 + x - GR, 0), w - 1), gy = min(max(y0 + y - GR, 0), h - 1);
            tile[y][x] = in[gy * w + gx];
        }
    __syncthreads();
    for (int y = threadIdx.y; y < 16 + 2 * GR; y += 16) {
        float sum = 0.0f;
#pragma unroll
        for (int i = 0; i <= 2 * GR; i++) sum += gauss_taps[i] * tile[y][threadIdx.x + i];
        mid[y][threadIdx.x] = sum;
    }
    __syncthreads();
    int x = x0 + threadIdx.x, y = y0 + threadIdx.y;
    if (x >= w || y >= h) return;
    float sum = 0.0f;
#pragma unroll
    for (int i = 0; i <= 2 * GR; i++) sum += gauss_taps[i] * mid[threadIdx.y + i][threadIdx.x];
    out[y * w + x] = sum;
}

// A warp a row, with the sum so far carried along.
extern "C" __global__ void integral_rows(const unsigned char *in, unsigned *out, int w, int h) {
    int row = blockIdx.x * (blockDim.x / 32) + threadIdx.x / 32;
    int lane = threadIdx.x % 32;
    if (row >= h) return;
    unsigned carry = 0;
    for (int base = 0; base < w; base += 32) {
        int x = base + lane;
        unsigned v = x < w ? in[row * w + x] : 0;
        for (int d = 1; d < 32; d <<= 1) {
            unsigned o = __shfl_up_sync(0xffffffffu, v, d);
            if (lane >= d) v += o;
        }
        v += carry;
        if (x < w) out[row * w + x] = v;
        carry = __shfl_sync(0xffffffffu, v, 31);
    }
}

extern "C" __global__ void integral_columns(unsigned *sums, int w, int h) {
    int x = blockIdx.x * blockDim.x + threadIdx.x;
    if (x >= w) return;
    unsigned sum = 0;
    for (int y = 0; y < h; y++) {
        sum += sums[y * w + x];
        sums[y * w + x] = sum;
    }
}

// By a disc of radius 3.
extern "C" __global__ void dilate_disc(const unsigned char *in, unsigned char *out, int w, int h) {
    int x = blockIdx.x * blockDim.x + threadIdx.x, y = blockIdx.y * blockDim.y + threadIdx.y;
    if (x >= w || y >= h) return;
    unsigned char best = 0;
    for (int dy = -3; dy <= 3; dy++)
        for (int dx = -3; dx <= 3; dx++) {
            if (dx * dx + dy * dy > 10) continue;
            int xx = x + dx, yy = y + dy;
            if (xx < 0 || yy < 0 || xx >= w || yy >= h) continue;
            best = max(best, in[yy * w + xx]);
        }
    out[y * w + x] = best;
}

extern "C" __global__ void stencil27_3d(const float *in, float *out, int nx, int ny, int nz, float4 c) {
    int x = blockIdx.x * blockDim.x + threadIdx.x + 1;
    int y = blockIdx.y * blockDim.y + threadIdx.y + 1;
    int z = blockIdx.z * blockDim.z + threadIdx.z + 1;
    if (x >= nx - 1 || y >= ny - 1 || z >= nz - 1) return;
    float w[4] = {c.x, c.y, c.z, c.w};
    float sum = 0.0f;
#pragma unroll
    for (int dz = -1; dz <= 1; dz++)
#pragma unroll
        for (int dy = -1; dy <= 1; dy++)
#pragma unroll
            for (int dx = -1; dx <= 1; dx++)
                sum += w[abs(dx) + abs(dy) + abs(dz)] * in[((z + dz) * ny + y + dy) * nx + x + dx];
    out[(z * ny + y) * nx + x] = sum;
}

__device__ __forceinline__ unsigned mix3(unsigned a, unsigned b, unsigned c) {
    unsigned v = a * 0x9e3779b1u ^ b * 0x85ebca77u ^ c * 0xc2b2ae3du;
    v ^= v >> 15;
    v *= 0x2c1b3c6du;
    v ^= v >> 12;
    v *= 0x297a2d39u;
    return v ^ v >> 15;
}

// Spins of one colour of the board; a number for each by a hash of where and when.
extern "C" __global__ void ising_step(signed char *spin, int w, int h, int colour, int step, const float *accept) {
    int x = 2 * (blockIdx.x * blockDim.x + threadIdx.x), y = blockIdx.y * blockDim.y + threadIdx.y;
    x += (y + colour) & 1;
    if (x >= w || y >= h) return;
    int l = x ? x - 1 : w - 1, r = x + 1 < w ? x + 1 : 0;
    int u = y ? y - 1 : h - 1, d = y + 1 < h ? y + 1 : 0;
    int sum = spin[y * w + l] + spin[y * w + r] + spin[u * w + x] + spin[d * w + x];
    int s = spin[y * w + x];
    float chance = accept[(s * sum + 4) / 2];
    if ((mix3(x, y, step) >> 8) * (1.0f / 16777216.0f) < chance) spin[y * w + x] = -s;
}

__constant__ int lbm_cx[9] = {0, 1, 0, -1, 0, 1, -1, -1, 1};
__constant__ int lbm_cy[9] = {0, 0, 1, 0, -1, 1, 1, -1, -1};
__constant__ float lbm_w[9] = {4.f / 9, 1.f / 9, 1.f / 9, 1.f / 9, 1.f / 9, 1.f / 36, 1.f / 36, 1.f / 36, 1.f / 36};

// Pulls from the neighbours, periodic, then collides.
extern "C" __global__ void lbm_d2q9(const float *__restrict__ from, float *__restrict__ to, int w, int h, float omega) {
    int x = blockIdx.x * blockDim.x + threadIdx.x, y = blockIdx.y * blockDim.y + threadIdx.y;
    if (x >= w || y >= h) return;
    float f[9], rho = 0.0f, ux = 0.0f, uy = 0.0f;
#pragma unroll
    for (int i = 0; i < 9; i++) {
        int sx = (x - lbm_cx[i] + w) % w, sy = (y - lbm_cy[i] + h) % h;
        f[i] = from[(i * h + sy) * w + sx];
        rho += f[i];
        ux += lbm_cx[i] * f[i];
        uy += lbm_cy[i] * f[i];
    }
    ux /= rho;
    uy /= rho;
    float uu = 1.5f * (ux * ux + uy * uy);
#pragma unroll
    for (int i = 0; i < 9; i++) {
        float cu = 3.0f * (lbm_cx[i] * ux + lbm_cy[i] * uy);
        float eq = lbm_w[i] * rho * (1.0f + cu + 0.5f * cu * cu - uu);
        to[(i * h + y) * w + x] = f[i] + omega * (eq - f[i]);
    }
}

extern "C" __global__ void fdtd_h(const float *ez, float *hx, float *hy, int w, int h, float k) {
    int x = blockIdx.x * blockDim.x + threadIdx.x, y = blockIdx.y * blockDim.y + threadIdx.y;
    if (x >= w - 1 || y >= h - 1) return;
    int i = y * w + x;
    hx[i] -= k * (ez[i + w] - ez[i]);
    hy[i] += k * (ez[i + 1] - ez[i]);
}

extern "C" __global__ void fdtd_e(float *ez, const float *hx, const float *hy, const float *eps, int w, int h, float k) {
    int x = blockIdx.x * blockDim.x + threadIdx.x, y = blockIdx.y * blockDim.y + threadIdx.y;
    if (x < 1 || y < 1 || x >= w - 1 || y >= h - 1) return;
    int i = y * w + x;
    ez[i] += k / eps[i] * ((hy[i] - hy[i - 1]) - (hx[i] - hx[i - w]));
}

// ---------------------------------------------------------------- parts of language models

__device__ __forceinline__ float warp_sum(float v) {
#pragma unroll
    for (int d = 16; d > 0; d /= 2) v += __shfl_xor_sync(0xffffffffu, v, d);
    return v;
}

__device__ __forceinline__ float warp_max(float v) {
#pragma unroll
    for (int d = 16; d > 0; d /= 2) v = fmaxf(v, __shfl_xor_sync(0xffffffffu, v, d));
    return v;
}

template <bool MAX> __device__ __forceinline__ float block_all(float v) {
    __shared__ float part[32];
    int lane = threadIdx.x & 31, warp = threadIdx.x >> 5, warps = blockDim.x >> 5;
    v = MAX ? warp_max(v) : warp_sum(v);
    __syncthreads();
    if (lane == 0) part[warp] = v;
    __syncthreads();
    v = lane < warps ? part[lane] : (MAX ? -INFINITY : 0.0f);
    return MAX ? warp_max(v) : warp_sum(v);
}

// The sum of both inputs goes out as the next residual, its norm as the next input.
extern "C" __global__ void add_rms_norm(const __half2 *x, const __half2 *residual, const __half2 *gamma,
                                        __half2 *sum_out, __half2 *out, int pairs, float eps) {
    extern __shared__ float2 row[];
    const size_t base = (size_t)blockIdx.x * pairs;
    float ss = 0.0f;
    for (int i = threadIdx.x; i < pairs; i += blockDim.x) {
        float2 a = __half22float2(x[base + i]), b = __half22float2(residual[base + i]);
        float2 s = make_float2(a.x + b.x, a.y + b.y);
        row[i] = s;
        sum_out[base + i] = __float22half2_rn(s);
        ss += s.x * s.x + s.y * s.y;
    }
    const float scale = rsqrtf(block_all<false>(ss) / (2 * pairs) + eps);
    for (int i = threadIdx.x; i < pairs; i += blockDim.x) {
        float2 g = __half22float2(gamma[i]);
        out[base + i] = __floats2half2_rn(row[i].x * scale * g.x, row[i].y * scale * g.y);
    }
}

// The halves of a head turn against each other; a block a token.
extern "C" __global__ void rope_halves(const __half *x, __half *out, const float *cosines, const float *sines,
                                       const int *positions, int heads, int half) {
    const int token = blockIdx.x, position = positions[token];
    for (int i = threadIdx.x; i < heads * half; i += blockDim.x) {
        const int head = i / half, d = i % half;
        const float c = cosines[position * half + d], s = sines[position * half + d];
        const size_t at = ((size_t)token * heads + head) * 2 * half + d;
        const float a = __half2float(x[at]), b = __half2float(x[at + half]);
        out[at] = __float2half(a * c - b * s);
        out[at + half] = __float2half(b * c + a * s);
    }
}

// Both with K along the rows, four bytes a word.
extern "C" __global__ void gemm_i8_dp4a(const int *A, const int *Bt, int *C, int M, int N, int words) {
    __shared__ int As[16][17], Bs[16][17];
    const int row = blockIdx.y * 16 + threadIdx.y, col = blockIdx.x * 16 + threadIdx.x;
    const int brow = blockIdx.x * 16 + threadIdx.y;
    int sum = 0;
    for (int k0 = 0; k0 < words; k0 += 16) {
        const int k = k0 + threadIdx.x;
        As[threadIdx.y][threadIdx.x] = row < M && k < words ? A[row * words + k] : 0;
        Bs[threadIdx.y][threadIdx.x] = brow < N && k < words ? Bt[brow * words + k] : 0;
        __syncthreads();
#pragma unroll
        for (int i = 0; i < 16; i++) sum = __dp4a(As[threadIdx.y][i], Bs[threadIdx.x][i], sum);
        __syncthreads();
    }
    if (row < M && col < N) C[row * N + col] = sum;
}

extern "C" __global__ void gemv_half_warp(const __half *w, const __half *x, float *y, int rows, int cols) {
    const int row = blockIdx.x * blockDim.y + threadIdx.y;
    if (row >= rows) return;
    const uint4 *wr = reinterpret_cast<const uint4 *>(w + (size_t)row * cols);
    const uint4 *xr = reinterpret_cast<const uint4 *>(x);
    float sum = 0.0f;
    for (int i = threadIdx.x; i < cols / 8; i += 32) {
        uint4 a = wr[i], b = xr[i];
        const __half2 *ah = reinterpret_cast<const __half2 *>(&a);
        const __half2 *bh = reinterpret_cast<const __half2 *>(&b);
#pragma unroll
        for (int j = 0; j < 4; j++) {
            float2 p = __half22float2(ah[j]), q = __half22float2(bh[j]);
            sum += p.x * q.x + p.y * q.y;
        }
    }
    sum = warp_sum(sum);
    if (threadIdx.x == 0) y[row] = sum;
}

// Groups of 64 weights of 4 bits share a scale.
extern "C" __global__ void gemv_int4_groups(const unsigned *w, const __half *scales, const float *x, float *y, int cols) {
    const int row = blockIdx.x, words = cols / 8;
    float sum = 0.0f;
    for (int i = threadIdx.x; i < words; i += blockDim.x) {
        const unsigned packed = w[(size_t)row * words + i];
        const float4 lo = reinterpret_cast<const float4 *>(x)[2 * i], hi = reinterpret_cast<const float4 *>(x)[2 * i + 1];
        const float xs[8] = {lo.x, lo.y, lo.z, lo.w, hi.x, hi.y, hi.z, hi.w};
        float part = 0.0f;
#pragma unroll
        for (int j = 0; j < 8; j++) part += ((int)(packed >> (4 * j) & 15) - 8) * xs[j];
        sum += part * __half2float(scales[row * (cols / 64) + i / 8]);
    }
    sum = block_all<false>(sum);
    if (threadIdx.x == 0) y[row] = sum;
}

// A warp a row: the greatest is taken out, time after time.
extern "C" __global__ void __launch_bounds__(32) topk_rows(const float *in, float *values, int *indices, int cols, int k) {
    extern __shared__ float row_s[];
    const int lane = threadIdx.x;
    for (int c = lane; c < cols; c += 32) row_s[c] = in[(size_t)blockIdx.x * cols + c];
    __syncwarp();
    for (int round = 0; round < k; round++) {
        float best = -INFINITY;
        int at = cols;
        for (int c = lane; c < cols; c += 32)
            if (row_s[c] > best) {
                best = row_s[c];
                at = c;
            }
        for (int d = 16; d > 0; d >>= 1) {
            float ob = __shfl_down_sync(0xffffffffu, best, d);
            int oa = __shfl_down_sync(0xffffffffu, at, d);
            if (ob > best || (ob == best && oa < at)) {
                best = ob;
                at = oa;
            }
        }
        if (lane == 0) {
            values[blockIdx.x * k + round] = best;
            indices[blockIdx.x * k + round] = at;
            row_s[at] = -INFINITY;
        }
        __syncwarp();
    }
}

extern "C" __global__ void argmax_half(const __half *in, int *out, int cols) {
    __shared__ float best_s[256];
    __shared__ int at_s[256];
    const int t = threadIdx.x;
    float best = -INFINITY;
    int at = 0;
    for (int c = t; c < cols; c += 256) {
        float v = __half2float(in[(size_t)blockIdx.x * cols + c]);
        if (v > best) {
            best = v;
            at = c;
        }
    }
    best_s[t] = best;
    at_s[t] = at;
    __syncthreads();
    for (int s = 128; s > 0; s >>= 1) {
        if (t < s) {
            float ob = best_s[t + s];
            int oa = at_s[t + s];
            if (ob > best_s[t] || (ob == best_s[t] && oa < at_s[t])) {
                best_s[t] = ob;
                at_s[t] = oa;
            }
        }
        __syncthreads();
    }
    if (t == 0) out[blockIdx.x] = at_s[0];
}

extern "C" __global__ void kv_append(const __half *qkv, __half *keys, __half *values, const int *slots, int heads, int dim) {
    const int token = blockIdx.x, slot = slots[token], n = heads * dim;
    if (slot < 0) return;
    const __half *from = qkv + (size_t)token * 3 * n;
    for (int i = threadIdx.x; i < n; i += blockDim.x) {
        keys[(size_t)slot * n + i] = from[n + i];
        values[(size_t)slot * n + i] = from[2 * n + i];
    }
}

// One warp a head, 4 of 128 dimensions a lane, with a softmax as it goes.
extern "C" __global__ void __launch_bounds__(32)
    attention_warp(const float *q, const __half *k, const __half *v, float *out, int length, float scale) {
    const int head = blockIdx.x, lane = threadIdx.x;
    const float4 qv = reinterpret_cast<const float4 *>(q + head * 128)[lane];
    float most = -INFINITY, total = 0.0f;
    float4 acc = make_float4(0, 0, 0, 0);
    for (int t = 0; t < length; t++) {
        const size_t at = ((size_t)head * length + t) * 64 + lane * 2;
        const float2 k0 = __half22float2(reinterpret_cast<const __half2 *>(k)[at]);
        const float2 k1 = __half22float2(reinterpret_cast<const __half2 *>(k)[at + 1]);
        const float s = scale * warp_sum(qv.x * k0.x + qv.y * k0.y + qv.z * k1.x + qv.w * k1.y);
        const float next = fmaxf(most, s);
        const float fix = __expf(most - next), p = __expf(s - next);
        const float2 v0 = __half22float2(reinterpret_cast<const __half2 *>(v)[at]);
        const float2 v1 = __half22float2(reinterpret_cast<const __half2 *>(v)[at + 1]);
        acc = make_float4(acc.x * fix + p * v0.x, acc.y * fix + p * v0.y, acc.z * fix + p * v1.x,
                          acc.w * fix + p * v1.y);
        total = total * fix + p;
        most = next;
    }
    reinterpret_cast<float4 *>(out + head * 128)[lane] =
        make_float4(acc.x / total, acc.y / total, acc.z / total, acc.w / total);
}

extern "C" __global__ void layer_norm_grad(const float *x, const float *dy, const float *gamma, const float *mean,
                                           const float *rstd, float *dx, float *dgamma, float *dbeta, int cols) {
    const size_t base = (size_t)blockIdx.x * cols;
    const float m = mean[blockIdx.x], r = rstd[blockIdx.x];
    float s1 = 0.0f, s2 = 0.0f;
    for (int c = threadIdx.x; c < cols; c += blockDim.x) {
        float g = dy[base + c] * gamma[c];
        s1 += g;
        s2 += g * (x[base + c] - m) * r;
    }
    s1 = block_all<false>(s1) / cols;
    s2 = block_all<false>(s2) / cols;
    for (int c = threadIdx.x; c < cols; c += blockDim.x) {
        float d = dy[base + c], hat = (x[base + c] - m) * r;
        dx[base + c] = r * (d * gamma[c] - s1 - hat * s2);
        atomicAdd(&dgamma[c], d * hat);
        atomicAdd(&dbeta[c], d);
    }
}

extern "C" __global__ void cross_entropy(const float *logits, const int *target, float *loss, float *grad, int cols,
                                         float scale) {
    const float *row = logits + (size_t)blockIdx.x * cols;
    float *g = grad + (size_t)blockIdx.x * cols;
    float m = -INFINITY;
    for (int c = threadIdx.x; c < cols; c += blockDim.x) m = fmaxf(m, row[c]);
    m = block_all<true>(m);
    float s = 0.0f;
    for (int c = threadIdx.x; c < cols; c += blockDim.x) s += expf(row[c] - m);
    s = block_all<false>(s);
    const int t = target[blockIdx.x];
    if (threadIdx.x == 0) loss[blockIdx.x] = logf(s) + m - row[t];
    for (int c = threadIdx.x; c < cols; c += blockDim.x)
        g[c] = (expf(row[c] - m) / s - (c == t ? 1.0f : 0.0f)) * scale;
}

extern "C" __global__ void embed_positions(const float4 *words, const float4 *positions, const int *ids, float4 *out,
                                           int tokens, int length, int quads) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= tokens * quads) return;
    int token = i / quads, c = i % quads;
    float4 a = words[(size_t)ids[token] * quads + c], b = positions[(token % length) * quads + c];
    out[i] = make_float4(a.x + b.x, a.y + b.y, a.z + b.z, a.w + b.w);
}

extern "C" __global__ void silu_gate_bf16(const __nv_bfloat162 *gate, const __nv_bfloat162 *value, __nv_bfloat162 *out,
                                          int n) {
    for (int i = blockIdx.x * blockDim.x + threadIdx.x; i < n; i += gridDim.x * blockDim.x) {
        float2 g = __bfloat1622float2(gate[i]), u = __bfloat1622float2(value[i]);
        out[i] = __floats2bfloat162_rn(g.x / (1.0f + __expf(-g.x)) * u.x, g.y / (1.0f + __expf(-g.y)) * u.y);
    }
}

struct Adam {
    float rate, beta1, beta2, eps, decay, fix1, fix2;
};

extern "C" __global__ void adam_step(float *p, const float *g, float *m, float *v, int n, Adam a) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= n) return;
    float mi = m[i] = a.beta1 * m[i] + (1.0f - a.beta1) * g[i];
    float vi = v[i] = a.beta2 * v[i] + (1.0f - a.beta2) * g[i] * g[i];
    p[i] -= a.rate * (mi * a.fix1 / (sqrtf(vi * a.fix2) + a.eps) + a.decay * p[i]);
}

// A warp a row of a square; what is above the diagonal becomes 0.
extern "C" __global__ void causal_softmax(const float *in, float *out, int rows, int length, float scale) {
    int row = blockIdx.x * (blockDim.x / 32) + threadIdx.x / 32, lane = threadIdx.x % 32;
    if (row >= rows) return;
    int valid = row % length + 1;
    const float *from = in + (size_t)row * length;
    float *to = out + (size_t)row * length;
    float m = -INFINITY, s = 0.0f;
    for (int c = lane; c < valid; c += 32) m = fmaxf(m, from[c] * scale);
    m = warp_max(m);
    for (int c = lane; c < valid; c += 32) {
        float e = __expf(from[c] * scale - m);
        to[c] = e;
        s += e;
    }
    s = 1.0f / warp_sum(s);
    for (int c = lane; c < length; c += 32) to[c] = c < valid ? to[c] * s : 0.0f;
}

// ---------------------------------------------------------------- numerics, codes, searches

// x += a p, r -= a q, and the sum of squares of r, all in one.
extern "C" __global__ void cg_update(double *x, double *r, const double *p, const double *q, double a, double *rr, int n) {
    __shared__ double part[256];
    double sum = 0.0;
    for (int i = blockIdx.x * blockDim.x + threadIdx.x; i < n; i += gridDim.x * blockDim.x) {
        x[i] += a * p[i];
        double v = r[i] - a * q[i];
        r[i] = v;
        sum += v * v;
    }
    part[threadIdx.x] = sum;
    __syncthreads();
    for (int s = blockDim.x / 2; s > 0; s /= 2) {
        if (threadIdx.x < s) part[threadIdx.x] += part[threadIdx.x + s];
        __syncthreads();
    }
    if (threadIdx.x == 0) atomicAdd(rr, part[0]);
}

// A tridiagonal system a block, by parallel cyclic reduction.
extern "C" __global__ void pcr_256(const float *a, const float *b, const float *c, const float *d, float *x) {
    __shared__ float sa[256], sb[256], sc[256], sd[256];
    const int t = threadIdx.x, i = blockIdx.x * 256 + t;
    sa[t] = t == 0 ? 0.0f : a[i];
    sb[t] = b[i];
    sc[t] = t == 255 ? 0.0f : c[i];
    sd[t] = d[i];
    __syncthreads();
    for (int step = 1; step < 256; step *= 2) {
        const int lo = max(t - step, 0), hi = min(t + step, 255);
        const float k1 = sa[t] / sb[lo], k2 = sc[t] / sb[hi];
        float na = 0.0f, nb = sb[t], nc = 0.0f, nd = sd[t];
        if (t - step >= 0) {
            na = -sa[lo] * k1;
            nb -= sc[lo] * k1;
            nd -= sd[lo] * k1;
        }
        if (t + step < 256) {
            nc = -sc[hi] * k2;
            nb -= sa[hi] * k2;
            nd -= sd[hi] * k2;
        }
        __syncthreads();
        sa[t] = na;
        sb[t] = nb;
        sc[t] = nc;
        sd[t] = nd;
        __syncthreads();
    }
    x[i] = sd[t] / sb[t];
}

extern "C" __global__ void inverse_4x4(const float4 *in, float4 *out, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= n) return;
    float4 r0 = in[4 * i], r1 = in[4 * i + 1], r2 = in[4 * i + 2], r3 = in[4 * i + 3];
    float s0 = r0.x * r1.y - r1.x * r0.y, s1 = r0.x * r1.z - r1.x * r0.z, s2 = r0.x * r1.w - r1.x * r0.w;
    float s3 = r0.y * r1.z - r1.y * r0.z, s4 = r0.y * r1.w - r1.y * r0.w, s5 = r0.z * r1.w - r1.z * r0.w;
    float c5 = r2.z * r3.w - r3.z * r2.w, c4 = r2.y * r3.w - r3.y * r2.w, c3 = r2.y * r3.z - r3.y * r2.z;
    float c2 = r2.x * r3.w - r3.x * r2.w, c1 = r2.x * r3.z - r3.x * r2.z, c0 = r2.x * r3.y - r3.x * r2.y;
    float k = 1.0f / (s0 * c5 - s1 * c4 + s2 * c3 + s3 * c2 - s4 * c1 + s5 * c0);
    out[4 * i] = make_float4((r1.y * c5 - r1.z * c4 + r1.w * c3) * k, (-r0.y * c5 + r0.z * c4 - r0.w * c3) * k,
                             (r3.y * s5 - r3.z * s4 + r3.w * s3) * k, (-r2.y * s5 + r2.z * s4 - r2.w * s3) * k);
    out[4 * i + 1] = make_float4((-r1.x * c5 + r1.z * c2 - r1.w * c1) * k, (r0.x * c5 - r0.z * c2 + r0.w * c1) * k,
                                 (-r3.x * s5 + r3.z * s2 - r3.w * s1) * k, (r2.x * s5 - r2.z * s2 + r2.w * s1) * k);
    out[4 * i + 2] = make_float4((r1.x * c4 - r1.y * c2 + r1.w * c0) * k, (-r0.x * c4 + r0.y * c2 - r0.w * c0) * k,
                                 (r3.x * s4 - r3.y * s2 + r3.w * s0) * k, (-r2.x * s4 + r2.y * s2 - r2.w * s0) * k);
    out[4 * i + 3] = make_float4((-r1.x * c3 + r1.y * c1 - r1.z * c0) * k, (r0.x * c3 - r0.y * c1 + r0.z * c0) * k,
                                 (-r3.x * s3 + r3.y * s1 - r3.z * s0) * k, (r2.x * s3 - r2.y * s1 + r2.z * s0) * k);
}

// A block of 8x8 threads a matrix, without pivots.
extern "C" __global__ void lu_8x8(const double *in, double *out) {
    __shared__ double a[8][9];
    const int x = threadIdx.x, y = threadIdx.y, at = blockIdx.x * 64 + y * 8 + x;
    a[y][x] = in[at];
    __syncthreads();
    for (int k = 0; k < 7; k++) {
        if (x == k && y > k) a[y][k] /= a[k][k];
        __syncthreads();
        if (x > k && y > k) a[y][x] -= a[y][k] * a[k][x];
        __syncthreads();
    }
    out[at] = a[y][x];
}

__device__ __forceinline__ float2 cmul(float2 a, float2 b) {
    return make_float2(a.x * b.x - a.y * b.y, a.x * b.y + a.y * b.x);
}

// 1,024 points a block of 256 threads, five passes of radix 4.
extern "C" __global__ void __launch_bounds__(256) fft1024_radix4(const float2 *in, float2 *out) {
    __shared__ float2 s[1024];
    const int j = threadIdx.x;
    const size_t base = (size_t)blockIdx.x * 1024;
    float2 v[4];
#pragma unroll
    for (int r = 0; r < 4; r++) v[r] = in[base + j + r * 256];
    for (int ns = 1; ns < 1024; ns *= 4) {
        const int k = j % ns;
        float sn, cs;
        sincospif(-0.5f * k / ns, &sn, &cs);
        const float2 w1 = make_float2(cs, sn), w2 = cmul(w1, w1), w3 = cmul(w2, w1);
        const float2 b = cmul(v[1], w1), c = cmul(v[2], w2), d = cmul(v[3], w3);
        const float2 s0 = make_float2(v[0].x + c.x, v[0].y + c.y), s1 = make_float2(v[0].x - c.x, v[0].y - c.y);
        const float2 s2 = make_float2(b.x + d.x, b.y + d.y), s3 = make_float2(b.y - d.y, d.x - b.x);
        const int to = (j / ns) * ns * 4 + k;
        s[to] = make_float2(s0.x + s2.x, s0.y + s2.y);
        s[to + ns] = make_float2(s1.x + s3.x, s1.y + s3.y);
        s[to + 2 * ns] = make_float2(s0.x - s2.x, s0.y - s2.y);
        s[to + 3 * ns] = make_float2(s1.x - s3.x, s1.y - s3.y);
        __syncthreads();
#pragma unroll
        for (int r = 0; r < 4; r++) v[r] = s[j + r * 256];
        __syncthreads();
    }
#pragma unroll
    for (int r = 0; r < 4; r++) out[base + j + r * 256] = v[r];
}

extern "C" __global__ void pi_xorshift(unsigned long long *inside, int draws, int threads) {
    int id = blockIdx.x * blockDim.x + threadIdx.x;
    unsigned hits = 0;
    if (id < threads) {
        unsigned v = hash32(id + 1) | 1;
        for (int i = 0; i < draws; i++) {
            v ^= v << 13;
            v ^= v >> 17;
            v ^= v << 5;
            unsigned long long x = v >> 16, y = v & 0xffff;
            if (x * x + y * y < 0x100000000ull) hits++;
        }
    }
    hits = __reduce_add_sync(0xffffffffu, hits);
    if (threadIdx.x % 32 == 0) atomicAdd(inside, (unsigned long long)hits);
}

// The first three rows from the thread's number, the others by a stack of bits.
extern "C" __global__ void queens_by_thread(int n, unsigned *total) {
    int id = blockIdx.x * blockDim.x + threadIdx.x;
    if (id >= n * n * n) return;
    unsigned full = (1u << n) - 1, cols = 0, left = 0, right = 0;
    for (int row = 0; row < 3; row++) {
        unsigned bit = 1u << (id % n);
        id /= n;
        if ((cols | left | right) & bit) return;
        cols |= bit;
        left = (left | bit) << 1;
        right = (right | bit) >> 1;
    }
    unsigned sc[16], sl[16], sr[16], open[16];
    int depth = 0;
    unsigned found = 0;
    sc[0] = cols;
    sl[0] = left;
    sr[0] = right;
    open[0] = full & ~(cols | left | right);
    while (depth >= 0) {
        if (open[depth] == 0) {
            depth--;
            continue;
        }
        unsigned bit = open[depth] & -open[depth];
        open[depth] ^= bit;
        unsigned c = sc[depth] | bit;
        if (c == full) {
            found++;
            continue;
        }
        unsigned l = (sl[depth] | bit) << 1, r = (sr[depth] | bit) >> 1;
        depth++;
        sc[depth] = c;
        sl[depth] = l;
        sr[depth] = r;
        open[depth] = full & ~(c | l | r);
    }
    if (found) atomicAdd(total, found);
}

#define FT 16
__device__ __forceinline__ void floyd_tile(int (*c)[FT], int (*a)[FT], int (*b)[FT]) {
    const int x = threadIdx.x, y = threadIdx.y;
    for (int k = 0; k < FT; k++) {
        int through = a[y][k] + b[k][x];
        if (through < c[y][x]) c[y][x] = through;
        __syncthreads();
    }
}

extern "C" __global__ void floyd_corner(int *d, int n, int k) {
    __shared__ int c[FT][FT];
    int *at = &d[(k * FT + threadIdx.y) * n + k * FT + threadIdx.x];
    c[threadIdx.y][threadIdx.x] = *at;
    __syncthreads();
    floyd_tile(c, c, c);
    *at = c[threadIdx.y][threadIdx.x];
}

extern "C" __global__ void floyd_cross(int *d, int n, int k) {
    __shared__ int c[FT][FT], p[FT][FT];
    if (blockIdx.x == k) return;
    const int x = threadIdx.x, y = threadIdx.y;
    p[y][x] = d[(k * FT + y) * n + k * FT + x];
    int *at = blockIdx.y == 0 ? &d[(k * FT + y) * n + blockIdx.x * FT + x] : &d[(blockIdx.x * FT + y) * n + k * FT + x];
    c[y][x] = *at;
    __syncthreads();
    if (blockIdx.y == 0)
        floyd_tile(c, p, c);
    else
        floyd_tile(c, c, p);
    *at = c[y][x];
}

extern "C" __global__ void floyd_rest(int *d, int n, int k) {
    __shared__ int a[FT][FT], b[FT][FT];
    if (blockIdx.x == k || blockIdx.y == k) return;
    const int x = threadIdx.x, y = threadIdx.y;
    a[y][x] = d[(blockIdx.y * FT + y) * n + k * FT + x];
    b[y][x] = d[(k * FT + y) * n + blockIdx.x * FT + x];
    int *at = &d[(blockIdx.y * FT + y) * n + blockIdx.x * FT + x];
    int best = *at;
    __syncthreads();
#pragma unroll
    for (int i = 0; i < FT; i++) best = min(best, a[y][i] + b[i][x]);
    *at = best;
}

// A block a pair of sequences of 128, a thread a column, over the diagonals.
extern "C" __global__ void smith_waterman(const unsigned char *a, const unsigned char *b, int *best) {
    __shared__ int h[3][129];
    __shared__ unsigned char row[128];
    __shared__ int most;
    const int t = threadIdx.x;
    row[t] = a[blockIdx.x * 128 + t];
    const int mine = b[blockIdx.x * 128 + t];
    for (int i = 0; i < 3; i++) h[i][t + 1] = 0;
    if (t < 3) h[t][0] = 0;
    if (t == 0) most = 0;
    __syncthreads();
    int seen = 0;
    for (int d = 0; d < 255; d++) {
        const int i = d - t;
        int *now = h[d % 3], *last = h[(d + 2) % 3], *before = h[(d + 1) % 3];
        int v = 0;
        if (i >= 0 && i < 128) {
            const int diagonal = before[t] + (row[i] == mine ? 3 : -2);
            v = max(max(diagonal, 0), max(last[t], last[t + 1]) - 2);
            seen = max(seen, v);
        }
        now[t + 1] = v;
        __syncthreads();
    }
    atomicMax(&most, seen);
    __syncthreads();
    if (t == 0) best[blockIdx.x] = most;
}

__constant__ unsigned sha_k[64];
__device__ __forceinline__ unsigned rotr(unsigned v, int n) { return __funnelshift_r(v, v, n); }

// Of messages of 32 bytes, a thread each.
extern "C" __global__ void sha256_threads(const unsigned *messages, unsigned *digests, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= n) return;
    unsigned w[16];
    for (int j = 0; j < 8; j++) w[j] = __byte_perm(messages[i * 8 + j], 0, 0x0123);
    w[8] = 0x80000000u;
    for (int j = 9; j < 15; j++) w[j] = 0;
    w[15] = 256;
    const unsigned start[8] = {0x6a09e667, 0xbb67ae85, 0x3c6ef372, 0xa54ff53a, 0x510e527f, 0x9b05688c, 0x1f83d9ab, 0x5be0cd19};
    unsigned s[8];
    for (int j = 0; j < 8; j++) s[j] = start[j];
#pragma unroll 16
    for (int j = 0; j < 64; j++) {
        if (j >= 16) {
            unsigned x = w[(j + 1) & 15], y = w[(j + 14) & 15];
            w[j & 15] += (rotr(x, 7) ^ rotr(x, 18) ^ (x >> 3)) + w[(j + 9) & 15] + (rotr(y, 17) ^ rotr(y, 19) ^ (y >> 10));
        }
        unsigned t1 = s[7] + (rotr(s[4], 6) ^ rotr(s[4], 11) ^ rotr(s[4], 25)) + ((s[4] & s[5]) ^ (~s[4] & s[6])) +
                      sha_k[j] + w[j & 15];
        unsigned t2 = (rotr(s[0], 2) ^ rotr(s[0], 13) ^ rotr(s[0], 22)) + ((s[0] & s[1]) ^ (s[0] & s[2]) ^ (s[1] & s[2]));
        s[7] = s[6];
        s[6] = s[5];
        s[5] = s[4];
        s[4] = s[3] + t1;
        s[3] = s[2];
        s[2] = s[1];
        s[1] = s[0];
        s[0] = t1 + t2;
    }
    for (int j = 0; j < 8; j++) digests[i * 8 + j] = s[j] + start[j];
}

extern "C" __global__ void crc32_records(const unsigned char *data, const unsigned *table, unsigned *out, int n, int bytes) {
    __shared__ unsigned lut[256];
    lut[threadIdx.x] = table[threadIdx.x];
    __syncthreads();
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= n) return;
    const unsigned *words = (const unsigned *)(data + (size_t)i * bytes);
    unsigned crc = 0xffffffffu;
    for (int j = 0; j < bytes / 4; j++) {
        unsigned v = words[j];
        for (int k = 0; k < 4; k++) {
            crc = lut[(crc ^ v) & 255] ^ (crc >> 8);
            v >>= 8;
        }
    }
    out[i] = ~crc;
}

__constant__ unsigned aes_keys[44];
// AES-128, a counter encrypted a thread, by a table of which the others are rotations.
extern "C" __global__ void aes_ctr(const uint4 *in, uint4 *out, const unsigned *table, int n, unsigned nonce) {
    __shared__ unsigned T[256];
    T[threadIdx.x] = table[threadIdx.x];
    __syncthreads();
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= n) return;
    unsigned s[4] = {nonce ^ aes_keys[0], aes_keys[1], aes_keys[2], (unsigned)i ^ aes_keys[3]};
    for (int round = 1; round < 10; round++) {
        unsigned t[4];
#pragma unroll
        for (int c = 0; c < 4; c++)
            t[c] = T[s[c] >> 24] ^ rotr(T[s[(c + 1) & 3] >> 16 & 255], 8) ^ rotr(T[s[(c + 2) & 3] >> 8 & 255], 16) ^
                   rotr(T[s[(c + 3) & 3] & 255], 24) ^ aes_keys[4 * round + c];
#pragma unroll
        for (int c = 0; c < 4; c++) s[c] = t[c];
    }
    unsigned o[4];
#pragma unroll
    for (int c = 0; c < 4; c++) {
        unsigned b3 = T[s[c] >> 24] >> 8 & 255, b2 = T[s[(c + 1) & 3] >> 16 & 255] >> 8 & 255;
        unsigned b1 = T[s[(c + 2) & 3] >> 8 & 255] >> 8 & 255, b0 = T[s[(c + 3) & 3] & 255] >> 8 & 255;
        o[c] = (b3 << 24 | b2 << 16 | b1 << 8 | b0) ^ aes_keys[40 + c];
    }
    uint4 v = in[i];
    out[i] = make_uint4(v.x ^ o[0], v.y ^ o[1], v.z ^ o[2], v.w ^ o[3]);
}

// For each position the longest match of at most 16 bytes within the 64 before.
extern "C" __global__ void lz_matches(const unsigned char *data, int *out, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= n) return;
    int best = 0, where = 0;
    for (int off = 1; off <= 64 && off <= i; off++) {
        int len = 0;
        while (len < 16 && i + len < n && data[i + len] == data[i + len - off]) len++;
        if (len > best) {
            best = len;
            where = off;
        }
    }
    out[i] = best << 8 | where;
}

// Tiles by asynchronous copies, the next one on its way while this one is added up.
extern "C" __global__ void __launch_bounds__(128) cp_async_norms(const float4 *in, float *out, int tiles) {
    __shared__ float4 stage[2][128];
    const int t = threadIdx.x;
    float sum = 0.0f;
    int buf = 0;
    if (blockIdx.x < tiles) __pipeline_memcpy_async(&stage[0][t], &in[blockIdx.x * 128 + t], 16);
    __pipeline_commit();
    for (int tile = blockIdx.x; tile < tiles; tile += gridDim.x) {
        int next = tile + gridDim.x;
        if (next < tiles) __pipeline_memcpy_async(&stage[buf ^ 1][t], &in[next * 128 + t], 16);
        __pipeline_commit();
        __pipeline_wait_prior(1);
        __syncthreads();
        float4 v = stage[buf][127 - t];
        sum += v.x * v.x + v.y * v.y + v.z * v.z + v.w * v.w;
        __syncthreads();
        buf ^= 1;
    }
    sum = block_all<false>(sum);
    if (t == 0) atomicAdd(out, sum);
}

// Smooths a ring over and over; the whole grid meets after each step.
extern "C" __global__ void smooth_grid_sync(float *a, float *b, int n, int steps) {
    cg::grid_group grid = cg::this_grid();
    for (int s = 0; s < steps; s++) {
        for (int i = grid.thread_rank(); i < n; i += grid.size()) {
            int l = i == 0 ? n - 1 : i - 1, r = i == n - 1 ? 0 : i + 1;
            b[i] = 0.25f * (a[l] + a[r]) + 0.5f * a[i];
        }
        grid.sync();
        float *t = a;
        a = b;
        b = t;
    }
}

// ---------------------------------------------------------------- blocks that wait, searches

// Each block takes a number, and looks back over what the blocks before it have published.
extern "C" __global__ void __launch_bounds__(256)
    scan_look_back(const int *in, int *out, unsigned long long *state, unsigned *ticket, int n) {
    __shared__ int warps[8];
    __shared__ int tile_s, before_s;
    const int t = threadIdx.x, lane = t & 31, warp = t >> 5;
    if (t == 0) tile_s = atomicAdd(ticket, 1u);
    __syncthreads();
    const int tile = tile_s, base = tile * 1024 + t * 4;
    int v[4], sum = 0;
#pragma unroll
    for (int i = 0; i < 4; i++) {
        v[i] = base + i < n ? in[base + i] : 0;
        sum += v[i];
    }
    int inclusive = sum;
    for (int d = 1; d < 32; d *= 2) {
        int o = __shfl_up_sync(~0u, inclusive, d);
        if (lane >= d) inclusive += o;
    }
    if (lane == 31) warps[warp] = inclusive;
    __syncthreads();
    int offset = inclusive - sum, total = 0;
    for (int w = 0; w < 8; w++) {
        if (w < warp) offset += warps[w];
        total += warps[w];
    }
    if (t == 0) {
        volatile unsigned long long *flags = state;
        int before = 0;
        if (tile > 0) {
            flags[tile] = 1ull << 32 | (unsigned)total;
            int look = tile - 1;
            while (true) {
                unsigned long long s = flags[look];
                if (s >> 32 == 0) continue;
                before += (int)(unsigned)s;
                if (s >> 32 == 2) break;
                look--;
            }
        }
        flags[tile] = 2ull << 32 | (unsigned)(before + total);
        before_s = before;
    }
    __syncthreads();
    int acc = before_s + offset;
#pragma unroll
    for (int i = 0; i < 4; i++) {
        acc += v[i];
        if (base + i < n) out[base + i] = acc;
    }
}

// Lanes of a key add up first, then one of them adds for all.
extern "C" __global__ void sums_by_key(const int *keys, const int *values, int *sums, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= n) return;
    auto active = cg::coalesced_threads();
    auto group = cg::labeled_partition(active, keys[i]);
    int sum = cg::reduce(group, values[i], cg::plus<int>());
    if (group.thread_rank() == 0) atomicAdd(&sums[keys[i]], sum);
}

// Eight lanes a row.
extern "C" __global__ void row_norms_tile8(const float *a, float *out, int rows, int cols) {
    auto tile = cg::tiled_partition<8>(cg::this_thread_block());
    int row = blockIdx.x * tile.meta_group_size() + tile.meta_group_rank();
    if (row >= rows) return;
    float sum = 0.0f;
    for (int c = tile.thread_rank(); c < cols; c += tile.size()) sum += a[row * cols + c] * a[row * cols + c];
    sum = cg::reduce(tile, sum, cg::plus<float>());
    if (tile.thread_rank() == 0) out[row] = sqrtf(sum);
}

struct Account {
    int lock, count;
    double sum;
};

// A lock for each account; the loop ends where the lock was had.
extern "C" __global__ void locked_accounts(Account *accounts, const int *which, const double *amount, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= n) return;
    Account *a = &accounts[which[i]];
    bool done = false;
    while (!done) {
        if (atomicCAS(&a->lock, 0, 1) == 0) {
            __threadfence();
            ((volatile Account *)a)->count = ((volatile Account *)a)->count + 1;
            ((volatile Account *)a)->sum = ((volatile Account *)a)->sum + amount[i];
            __threadfence();
            atomicExch(&a->lock, 0);
            done = true;
        }
    }
}

extern "C" __global__ void lower_bounds(const unsigned *sorted, const unsigned *asked, int *out, int n, int queries) {
    for (int q = blockIdx.x * blockDim.x + threadIdx.x; q < queries; q += gridDim.x * blockDim.x) {
        unsigned key = asked[q];
        int lo = 0, hi = n;
        while (lo < hi) {
            int mid = (lo + hi) / 2;
            if (sorted[mid] < key)
                lo = mid + 1;
            else
                hi = mid;
        }
        out[q] = lo;
    }
}

// Merges two sorted arrays: a thread finds by bisection where its 8 results start in both.
extern "C" __global__ void merge_path(const int *a, int na, const int *b, int nb, int *out) {
    int diagonal = (blockIdx.x * blockDim.x + threadIdx.x) * 8;
    if (diagonal >= na + nb) return;
    int lo = max(0, diagonal - nb), hi = min(diagonal, na);
    while (lo < hi) {
        int mid = (lo + hi) >> 1;
        if (a[mid] <= b[diagonal - 1 - mid])
            lo = mid + 1;
        else
            hi = mid;
    }
    int i = lo, j = diagonal - lo;
    for (int k = 0; k < 8 && diagonal + k < na + nb; k++) {
        bool first = j >= nb || (i < na && a[i] <= b[j]);
        out[diagonal + k] = first ? a[i++] : b[j++];
    }
}

// The nearest of the points, which lie as a balanced tree: the middle of each range splits it.
extern "C" __global__ void kd_nearest(const float2 *tree, const float2 *asked, int *out, int n, int queries) {
    int q = blockIdx.x * blockDim.x + threadIdx.x;
    if (q >= queries) return;
    const float2 p = asked[q];
    int from[24], to[24], level[24], top = 1, best = -1;
    float gap[24], least = INFINITY;
    from[0] = 0;
    to[0] = n;
    gap[0] = 0.0f;
    level[0] = 0;
    while (top > 0) {
        top--;
        int lo = from[top], hi = to[top], depth = level[top];
        if (gap[top] >= least) continue;
        while (lo < hi) {
            int mid = (lo + hi) >> 1;
            float2 m = tree[mid];
            float dx = p.x - m.x, dy = p.y - m.y, d = __fadd_rn(__fmul_rn(dx, dx), __fmul_rn(dy, dy));
            if (d < least) {
                least = d;
                best = mid;
            }
            float side = depth & 1 ? dy : dx;
            int far_lo = side < 0.0f ? mid + 1 : lo, far_hi = side < 0.0f ? hi : mid;
            if (side < 0.0f)
                hi = mid;
            else
                lo = mid + 1;
            depth++;
            if (far_lo < far_hi && side * side < least) {
                from[top] = far_lo;
                to[top] = far_hi;
                level[top] = depth;
                gap[top++] = side * side;
            }
        }
    }
    out[q] = best;
}
