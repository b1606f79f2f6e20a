// The kernels of softcuda's benchmark in OpenCL C, with their names, arguments and launch shapes.
// The sources in CUDA C++ are in kernels/.
//
// OpenCL C 1.2 has no shuffles. Where the CUDA kernels use them, these add up in local memory.

#pragma OPENCL EXTENSION cl_khr_fp64 : enable
#pragma OPENCL EXTENSION cl_khr_int64_base_atomics : enable
#pragma OPENCL FP_CONTRACT ON

// Adds up `tree`, one value a thread, in pairs `from` apart, then half as far apart, and so on. Each
// group of 2 * from threads has a sum of its own, which its first thread finds at its own place.
#define SUM_UP(tree, thread, from)                                                              \
    for (uint d = (from); d > 0; d /= 2) {                                                      \
        barrier(CLK_LOCAL_MEM_FENCE);                                                           \
        if ((thread) % (2 * (from)) < d) (tree)[thread] += (tree)[(thread) + d];                \
    }                                                                                           \
    barrier(CLK_LOCAL_MEM_FENCE)

kernel void saxpy(float a, global const float* x, global float* y, uint n) {
    for (uint i = get_global_id(0); i < n; i += get_global_size(0)) y[i] = a * x[i] + y[i];
}

// The normal distribution function, after Abramowitz and Stegun 26.2.17.
float normal(float d) {
    float k = 1.0f / (1.0f + 0.2316419f * fabs(d));
    float series = -1.821255978f + k * 1.330274429f;
    series = k * (0.31938153f + k * (-0.356563782f + k * (1.781477937f + k * series)));
    float tail = 0.39894228f * exp(-0.5f * d * d) * series;
    return d > 0.0f ? 1.0f - tail : tail;
}

kernel void black_scholes(global const float* price, global const float* strike, global const float* years,
                          global float* call, global float* put, float rate, float volatility, uint n) {
    uint i = get_global_id(0);
    if (i >= n) return;
    float s = price[i], x = strike[i], t = years[i];
    float spread = volatility * sqrt(t);
    float d1 = (log(s / x) + (rate + 0.5f * volatility * volatility) * t) / spread, d2 = d1 - spread;
    float n1 = normal(d1), n2 = normal(d2), discounted = x * exp(-rate * t);
    call[i] = s * n1 - discounted * n2;
    put[i] = discounted * (1.0f - n2) - s * (1.0f - n1);
}

kernel void mandelbrot(global uint* counts, uint width, uint height, float left, float top, float step, uint limit) {
    uint column = get_global_id(0), row = get_global_id(1);
    if (column >= width || row >= height) return;
    float cx = left + column * step, cy = top + row * step, x = 0.0f, y = 0.0f;
    uint count = 0;
    while (count < limit && x * x + y * y <= 4.0f) {
        float next = x * x - y * y + cx;
        y = 2.0f * x * y + cy;
        x = next;
        count++;
    }
    counts[row * width + column] = count;
}

kernel void stencil_5_shared(global const float* in, global float* out, int width, int height, float rate) {
    local float tile[18][18];
    int column = get_local_id(0), line = get_local_id(1);
    int x = get_group_id(0) * 16 + column, y = get_group_id(1) * 16 + line;
    for (int ty = line; ty < 18; ty += 16)
        for (int tx = column; tx < 18; tx += 16) {
            int gx = min(max((int)get_group_id(0) * 16 + tx - 1, 0), width - 1);
            int gy = min(max((int)get_group_id(1) * 16 + ty - 1, 0), height - 1);
            tile[ty][tx] = in[gy * width + gx];
        }
    barrier(CLK_LOCAL_MEM_FENCE);
    if (x >= width || y >= height) return;
    int tx = column + 1, ty = line + 1;
    float v = tile[ty][tx];
    if (x != 0 && y != 0 && x != width - 1 && y != height - 1) {
        float around = (tile[ty][tx - 1] + tile[ty][tx + 1]) + (tile[ty - 1][tx] + tile[ty + 1][tx]);
        v = v + rate * (around - 4.0f * v);
    }
    out[y * width + x] = v;
}

kernel void nbody_f64(global const double* position, global double* force, uint n, double softening) {
    uint i = get_global_id(0);
    if (i >= n) return;
    double fx = 0, fy = 0, fz = 0;
    for (uint j = 0; j < n; j++) {
        double dx = position[4 * j] - position[4 * i], dy = position[4 * j + 1] - position[4 * i + 1];
        double dz = position[4 * j + 2] - position[4 * i + 2];
        double d = fma(dx, dx, fma(dy, dy, fma(dz, dz, softening)));
        double s = position[4 * j + 3] / (d * sqrt(d));
        fx = fma(dx, s, fx);
        fy = fma(dy, s, fy);
        fz = fma(dz, s, fz);
    }
    force[3 * i] = fx;
    force[3 * i + 1] = fy;
    force[3 * i + 2] = fz;
}

kernel void nbody(global const float4* position, global float4* force, uint n, float softening) {
    local float4 tile[64];
    uint i = get_global_id(0), thread = get_local_id(0);
    float4 me = i < n ? position[i] : (float4)(0.0f);
    float fx = 0.0f, fy = 0.0f, fz = 0.0f;
    for (uint j0 = 0; j0 < n; j0 += 64) {
        tile[thread] = j0 + thread < n ? position[j0 + thread] : (float4)(0.0f);
        barrier(CLK_LOCAL_MEM_FENCE);
        for (uint j = 0; j < 64; j++) {
            float dx = tile[j].x - me.x, dy = tile[j].y - me.y, dz = tile[j].z - me.z;
            float r = rsqrt(dx * dx + dy * dy + dz * dz + softening);
            float s = tile[j].w * r * r * r;
            fx += dx * s;
            fy += dy * s;
            fz += dz * s;
        }
        barrier(CLK_LOCAL_MEM_FENCE);
    }
    if (i < n) force[i] = (float4)(fx, fy, fz, me.w);
}

kernel void gemm_f32(global const float* a, global const float* b, global float* c, uint m, uint n, uint k) {
    local float as[16][16], bs[16][16];
    uint column = get_local_id(0), line = get_local_id(1);
    uint row = get_group_id(1) * 16 + line, col = get_group_id(0) * 16 + column;
    float sum = 0.0f;
    for (uint k0 = 0; k0 < k; k0 += 16) {
        as[line][column] = row < m && k0 + column < k ? a[row * k + k0 + column] : 0.0f;
        bs[line][column] = k0 + line < k && col < n ? b[(k0 + line) * n + col] : 0.0f;
        barrier(CLK_LOCAL_MEM_FENCE);
        for (uint i = 0; i < 16; i++) sum += as[line][i] * bs[i][column];
        barrier(CLK_LOCAL_MEM_FENCE);
    }
    if (row < m && col < n) c[row * n + col] = sum;
}

kernel void gemm_register_tile(global const float* a, global const float* b, global float* c, uint n, uint k) {
    local float as[8][32];
    local float bs[8][32] __attribute__((aligned(16)));
    uint t = get_local_id(0), tx = t % 8, ty = t / 8;
    uint row0 = get_group_id(1) * 32, col0 = get_group_id(0) * 32;
    float sum[4][4] = {{0.0f}};
    for (uint k0 = 0; k0 < k; k0 += 8) {
        float4 av = *(global const float4*)&a[(row0 + t / 2) * k + k0 + t % 2 * 4];
        as[t % 2 * 4 + 0][t / 2] = av.x;
        as[t % 2 * 4 + 1][t / 2] = av.y;
        as[t % 2 * 4 + 2][t / 2] = av.z;
        as[t % 2 * 4 + 3][t / 2] = av.w;
        *(local float4*)&bs[t / 8][t % 8 * 4] = *(global const float4*)&b[(k0 + t / 8) * n + col0 + t % 8 * 4];
        barrier(CLK_LOCAL_MEM_FENCE);
#pragma unroll
        for (int i = 0; i < 8; i++) {
            float4 bv = *(local const float4*)&bs[i][tx * 4];
#pragma unroll
            for (int r = 0; r < 4; r++) {
                float x = as[i][ty * 4 + r];
                sum[r][0] += x * bv.x;
                sum[r][1] += x * bv.y;
                sum[r][2] += x * bv.z;
                sum[r][3] += x * bv.w;
            }
        }
        barrier(CLK_LOCAL_MEM_FENCE);
    }
    for (int r = 0; r < 4; r++)
        *(global float4*)&c[(row0 + ty * 4 + r) * n + col0 + tx * 4] =
            (float4)(sum[r][0], sum[r][1], sum[r][2], sum[r][3]);
}

kernel void spmv_scalar(global const uint* offsets, global const uint* columns, global const float* values,
                        global const float* x, global float* y, uint rows) {
    uint row = get_global_id(0);
    if (row >= rows) return;
    float sum = 0.0f;
    for (uint i = offsets[row]; i < offsets[row + 1]; i++) sum += values[i] * x[columns[i]];
    y[row] = sum;
}

// 32 threads a row. All rows are there, so every thread comes to the barriers.
kernel void spmv_warp(global const uint* restrict offsets, global const uint* restrict columns,
                      global const double* restrict values, global const double* restrict x, global double* y,
                      uint rows) {
    local double tree[256];
    uint thread = get_local_id(0), row = get_global_id(0) / 32, lane = thread % 32;
    double sum = 0.0;
    for (uint i = offsets[row] + lane; i < offsets[row + 1]; i += 32) sum += values[i] * x[columns[i]];
    tree[thread] = sum;
    SUM_UP(tree, thread, 16);
    if (lane == 0) y[row] = tree[thread];
}

kernel void bfs_level(global const uint* offsets, global const uint* neighbours, global const uint* frontier,
                      uint count, global uint* next, global uint* next_count, global uint* levels, uint level) {
    uint i = get_global_id(0);
    if (i >= count) return;
    uint vertex = frontier[i];
    for (uint e = offsets[vertex]; e < offsets[vertex + 1]; e++) {
        uint neighbour = neighbours[e];
        if (levels[neighbour] == 0 && atomic_cmpxchg(&levels[neighbour], 0u, level) == 0)
            next[atomic_inc(next_count)] = neighbour;
    }
}

kernel void reduce_shared_f32(global const float* in, global float* per_block, uint n, local float* tree) {
    uint i = get_global_id(0), thread = get_local_id(0);
    tree[thread] = i < n ? in[i] : 0.0f;
    barrier(CLK_LOCAL_MEM_FENCE);
    for (uint d = get_local_size(0) / 2; d > 0; d /= 2) {
        if (thread < d) tree[thread] += tree[thread + d];
        barrier(CLK_LOCAL_MEM_FENCE);
    }
    if (thread == 0) per_block[get_group_id(0)] = tree[0];
}

// OpenCL C 1.2 has no atomic addition of floats, but exchanges their bits.
void add_float(volatile global uint* total, float value) {
    uint seen = *total, before;
    do {
        before = seen;
        seen = atomic_cmpxchg(total, before, as_uint(as_float(before) + value));
    } while (seen != before);
}

kernel void sum_atomic(global const float* in, global uint* total, uint n) {
    local float tree[256];
    uint thread = get_local_id(0);
    float sum = 0.0f;
    for (uint i = get_global_id(0); i < n; i += get_global_size(0)) sum += in[i];
    tree[thread] = sum;
    SUM_UP(tree, thread, 128);
    if (thread == 0) add_float(total, tree[0]);
}

// The threads of a block scan in local memory, with two buffers in turn. Blocks look back as in the
// CUDA kernel.
kernel void scan_lookback(global const uint* in, global uint* out, volatile global ulong* status,
                          volatile global uint* next_tile, uint n) {
    local uint tile, prefix, buffer[512];
    uint t = get_local_id(0), width = get_local_size(0), from = 0, to = width;
    if (t == 0) tile = atomic_inc(next_tile);
    barrier(CLK_LOCAL_MEM_FENCE);
    uint i = tile * width + t;
    buffer[t] = i < n ? in[i] : 0;
    barrier(CLK_LOCAL_MEM_FENCE);
    for (uint d = 1; d < width; d *= 2) {
        buffer[to + t] = t >= d ? buffer[from + t] + buffer[from + t - d] : buffer[from + t];
        uint swap = from;
        from = to;
        to = swap;
        barrier(CLK_LOCAL_MEM_FENCE);
    }
    uint v = buffer[from + t];
    if (t == width - 1) {
        ulong flag = tile == 0 ? 2 : 1;
        atom_xchg(&status[tile], flag << 32 | v);
        uint before = 0;
        if (tile > 0) {
            for (int p = (int)tile - 1;;) {
                ulong word = status[p];
                if (word >> 32 == 0) continue;
                before += (uint)word;
                if (word >> 32 == 2) break;
                p--;
            }
            mem_fence(CLK_GLOBAL_MEM_FENCE);
            atom_xchg(&status[tile], (ulong)2 << 32 | (before + v));
        }
        prefix = before;
    }
    barrier(CLK_LOCAL_MEM_FENCE);
    if (i < n) out[i] = prefix + v;
}

kernel void histogram(global const uchar* in, global uint* bins, uint n) {
    local uint own[256];
    for (uint b = get_local_id(0); b < 256; b += get_local_size(0)) own[b] = 0;
    barrier(CLK_LOCAL_MEM_FENCE);
    for (uint i = get_global_id(0); i < n; i += get_global_size(0)) atomic_inc(&own[in[i]]);
    barrier(CLK_LOCAL_MEM_FENCE);
    for (uint b = get_local_id(0); b < 256; b += get_local_size(0))
        if (own[b] != 0) atomic_add(&bins[b], own[b]);
}

kernel void softmax_block(global const float* in, global float* out, uint width) {
    local float tops[256], sums[256];
    uint thread = get_local_id(0), threads = get_local_size(0);
    in += get_group_id(0) * width;
    out += get_group_id(0) * width;
    float top = -INFINITY;
    for (uint i = thread; i < width; i += threads) top = fmax(top, in[i]);
    tops[thread] = top;
    for (uint d = threads / 2; d > 0; d /= 2) {
        barrier(CLK_LOCAL_MEM_FENCE);
        if (thread < d) tops[thread] = fmax(tops[thread], tops[thread + d]);
    }
    barrier(CLK_LOCAL_MEM_FENCE);
    top = tops[0];
    float sum = 0.0f;
    for (uint i = thread; i < width; i += threads) {
        float power = exp(in[i] - top);
        out[i] = power;
        sum += power;
    }
    sums[thread] = sum;
    SUM_UP(sums, thread, 128);
    float scale = 1.0f / sums[0];
    for (uint i = thread; i < width; i += threads) out[i] *= scale;
}

kernel void layer_norm(global const float* in, global const float* gain, global float* out, uint width) {
    local float sums[32], squares[32];
    uint row = get_group_id(0), lane = get_local_id(0);
    float sum = 0.0f, square = 0.0f;
    for (uint i = lane; i < width; i += 32) {
        float v = in[row * width + i];
        sum += v;
        square += v * v;
    }
    sums[lane] = sum;
    squares[lane] = square;
    for (uint d = 16; d > 0; d /= 2) {
        barrier(CLK_LOCAL_MEM_FENCE);
        if (lane < d) {
            sums[lane] += sums[lane + d];
            squares[lane] += squares[lane + d];
        }
    }
    barrier(CLK_LOCAL_MEM_FENCE);
    float mean = sums[0] / width, scale = rsqrt(squares[0] / width - mean * mean + 1e-5f);
    for (uint i = lane; i < width; i += 32)
        out[row * width + i] = (in[row * width + i] - mean) * scale * gain[i];
}
