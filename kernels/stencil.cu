// Heat equation steps on a grid: the edge keeps its value.

extern "C" __global__ void stencil_5(const float* in, float* out, int width, int height, float rate) {
    int x = blockIdx.x * blockDim.x + threadIdx.x, y = blockIdx.y * blockDim.y + threadIdx.y;
    if (x >= width || y >= height) return;
    int i = y * width + x;
    if (x == 0 || y == 0 || x == width - 1 || y == height - 1) {
        out[i] = in[i];
        return;
    }
    float around = (in[i - 1] + in[i + 1]) + (in[i - width] + in[i + width]);
    out[i] = in[i] + rate * (around - 4.0f * in[i]);
}

// The same step from a shared tile with a halo; the result must be the same, bit for bit.
extern "C" __global__ void stencil_5_shared(const float* in, float* out, int width, int height, float rate) {
    __shared__ float tile[18][18];
    int x = blockIdx.x * 16 + threadIdx.x, y = blockIdx.y * 16 + threadIdx.y;
    for (int ty = threadIdx.y; ty < 18; ty += 16)
        for (int tx = threadIdx.x; tx < 18; tx += 16) {
            int gx = min(max((int)blockIdx.x * 16 + tx - 1, 0), width - 1);
            int gy = min(max((int)blockIdx.y * 16 + ty - 1, 0), height - 1);
            tile[ty][tx] = in[gy * width + gx];
        }
    __syncthreads();
    if (x >= width || y >= height) return;
    int tx = threadIdx.x + 1, ty = threadIdx.y + 1;
    float v = tile[ty][tx];
    if (x != 0 && y != 0 && x != width - 1 && y != height - 1) {
        float around = (tile[ty][tx - 1] + tile[ty][tx + 1]) + (tile[ty - 1][tx] + tile[ty + 1][tx]);
        v = v + rate * (around - 4.0f * v);
    }
    out[y * width + x] = v;
}

extern "C" __global__ void stencil_7(const double* in, double* out, dim3 size, double rate) {
    unsigned x = blockIdx.x * blockDim.x + threadIdx.x, y = blockIdx.y * blockDim.y + threadIdx.y;
    unsigned z = blockIdx.z * blockDim.z + threadIdx.z;
    if (x >= size.x || y >= size.y || z >= size.z) return;
    unsigned row = size.x, plane = size.x * size.y, i = z * plane + y * row + x;
    if (x == 0 || y == 0 || z == 0 || x == size.x - 1 || y == size.y - 1 || z == size.z - 1) {
        out[i] = in[i];
        return;
    }
    double sum = ((in[i - 1] + in[i + 1]) + (in[i - row] + in[i + row])) + (in[i - plane] + in[i + plane]);
    out[i] = fma(rate, fma(-6.0, in[i], sum), in[i]);
}

// Conway's game of life on a torus of bytes.
extern "C" __global__ void life(const unsigned char* in, unsigned char* out, unsigned width, unsigned height) {
    unsigned x = blockIdx.x * blockDim.x + threadIdx.x, y = blockIdx.y * blockDim.y + threadIdx.y;
    if (x >= width || y >= height) return;
    unsigned count = 0;
    for (unsigned dy = height - 1; dy <= height + 1; dy++)
        for (unsigned dx = width - 1; dx <= width + 1; dx++)
            if (dx != width || dy != height) count += in[(y + dy) % height * width + (x + dx) % width];
    out[y * width + x] = count == 3 || (count == 2 && in[y * width + x]);
}
