// Sparse matrix by vector, compressed sparse rows.

extern "C" __global__ void spmv_scalar(const unsigned* offsets, const unsigned* columns, const float* values,
                                       const float* x, float* y, unsigned rows) {
    unsigned row = blockIdx.x * blockDim.x + threadIdx.x;
    if (row >= rows) return;
    float sum = 0.0f;
    for (unsigned i = offsets[row]; i < offsets[row + 1]; i++) sum += values[i] * x[columns[i]];
    y[row] = sum;
}

// A warp per row: lanes stride over the row, then add up by shuffle.
extern "C" __global__ void spmv_warp(const unsigned* __restrict__ offsets, const unsigned* __restrict__ columns,
                                     const double* __restrict__ values, const double* __restrict__ x, double* y,
                                     unsigned rows) {
    unsigned row = (blockIdx.x * blockDim.x + threadIdx.x) / 32, lane = threadIdx.x % 32;
    if (row >= rows) return;
    double sum = 0.0;
    for (unsigned i = offsets[row] + lane; i < offsets[row + 1]; i += 32) sum += values[i] * x[columns[i]];
    for (int d = 16; d > 0; d >>= 1) sum += __shfl_down_sync(0xffffffffu, sum, d);
    if (lane == 0) y[row] = sum;
}
