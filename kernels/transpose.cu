// Matrix transpose through a shared tile; the padding column keeps a tile's columns in different banks.
template <typename T>
__device__ void transpose_tile(const T* in, T* out, unsigned width, unsigned height, T (*tile)[33]) {
    unsigned x = blockIdx.x * 32 + threadIdx.x, y = blockIdx.y * 32 + threadIdx.y;
    for (unsigned j = 0; j < 32; j += 8)
        if (x < width && y + j < height) tile[threadIdx.y + j][threadIdx.x] = in[(y + j) * width + x];
    __syncthreads();
    x = blockIdx.y * 32 + threadIdx.x;
    y = blockIdx.x * 32 + threadIdx.y;
    for (unsigned j = 0; j < 32; j += 8)
        if (x < height && y + j < width) out[(y + j) * height + x] = tile[threadIdx.x][threadIdx.y + j];
}

extern "C" __global__ void transpose_f32(const float* in, float* out, unsigned width, unsigned height) {
    __shared__ float tile[32][33];
    transpose_tile(in, out, width, height, tile);
}

extern "C" __global__ void transpose_u8(const unsigned char* in, unsigned char* out, unsigned width, unsigned height) {
    __shared__ unsigned char tile[32][33];
    transpose_tile(in, out, width, height, tile);
}
