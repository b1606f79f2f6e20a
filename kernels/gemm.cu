// Dense matrix products C = A B, row-major.

template <typename T>
__device__ void gemm_tile(const T* a, const T* b, T* c, unsigned m, unsigned n, unsigned k, T (*as)[16], T (*bs)[16]) {
    unsigned row = blockIdx.y * 16 + threadIdx.y, col = blockIdx.x * 16 + threadIdx.x;
    T sum = 0;
    for (unsigned k0 = 0; k0 < k; k0 += 16) {
        as[threadIdx.y][threadIdx.x] = row < m && k0 + threadIdx.x < k ? a[row * k + k0 + threadIdx.x] : (T)0;
        bs[threadIdx.y][threadIdx.x] = k0 + threadIdx.y < k && col < n ? b[(k0 + threadIdx.y) * n + col] : (T)0;
        __syncthreads();
        for (unsigned i = 0; i < 16; i++) sum += as[threadIdx.y][i] * bs[i][threadIdx.x];
        __syncthreads();
    }
    if (row < m && col < n) c[row * n + col] = sum;
}

extern "C" __global__ void gemm_f32(const float* a, const float* b, float* c, unsigned m, unsigned n, unsigned k) {
    __shared__ float as[16][16], bs[16][16];
    gemm_tile(a, b, c, m, n, k, as, bs);
}

extern "C" __global__ void gemm_f64(const double* a, const double* b, double* c, unsigned m, unsigned n, unsigned k) {
    __shared__ double as[16][16], bs[16][16];
    gemm_tile(a, b, c, m, n, k, as, bs);
}

extern "C" __global__ void gemm_u32(const unsigned* a, const unsigned* b, unsigned* c, unsigned m, unsigned n,
                                    unsigned k) {
    __shared__ unsigned as[16][16], bs[16][16];
    gemm_tile(a, b, c, m, n, k, as, bs);
}

// A 4 by 4 piece of C in each thread's registers, a 32 by 32 tile per block of 64 threads. Sizes divide by 32.
extern "C" __global__ void gemm_register_tile(const float* a, const float* b, float* c, unsigned n, unsigned k) {
    __shared__ float as[8][32];
    __shared__ __align__(16) float bs[8][32];
    unsigned t = threadIdx.x, tx = t % 8, ty = t / 8;
    unsigned row0 = blockIdx.y * 32, col0 = blockIdx.x * 32;
    float sum[4][4] = {};
    for (unsigned k0 = 0; k0 < k; k0 += 8) {
        float4 av = *(const float4*)&a[(row0 + t / 2) * k + k0 + t % 2 * 4];
        as[t % 2 * 4 + 0][t / 2] = av.x;
        as[t % 2 * 4 + 1][t / 2] = av.y;
        as[t % 2 * 4 + 2][t / 2] = av.z;
        as[t % 2 * 4 + 3][t / 2] = av.w;
        *(float4*)&bs[t / 8][t % 8 * 4] = *(const float4*)&b[(k0 + t / 8) * n + col0 + t % 8 * 4];
        __syncthreads();
#pragma unroll
        for (int i = 0; i < 8; i++) {
            float4 bv = *(const float4*)&bs[i][tx * 4];
#pragma unroll
            for (int r = 0; r < 4; r++) {
                float x = as[i][ty * 4 + r];
                sum[r][0] += x * bv.x;
                sum[r][1] += x * bv.y;
                sum[r][2] += x * bv.z;
                sum[r][3] += x * bv.w;
            }
        }
        __syncthreads();
    }
    for (int r = 0; r < 4; r++)
        *(float4*)&c[(row0 + ty * 4 + r) * n + col0 + tx * 4] =
            make_float4(sum[r][0], sum[r][1], sum[r][2], sum[r][3]);
}
