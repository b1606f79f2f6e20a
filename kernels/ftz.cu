// Compiled with -ftz=true: subnormal inputs and results of single precision are zero of the same sign.

extern "C" __global__ void flush_f32(const float* a, const float* b, float* out) {
    unsigned i = blockIdx.x * blockDim.x + threadIdx.x;
    float x = a[i], y = b[i];
    float* row = out + 16 * i;
    row[0] = x + y;
    row[1] = x - y;
    row[2] = x * y;
    row[3] = x / y;
    row[4] = fmaf(x, y, x);
    row[5] = fminf(x, y);
    row[6] = fmaxf(x, y);
    row[7] = sqrtf(x);
    row[8] = -x;
    row[9] = fabsf(x);
    row[10] = floorf(x);
    row[11] = rintf(x);
    row[12] = __fadd_ru(x, y);
    row[13] = __fmul_rz(x, y);
    row[14] = (float)(double)x;
    row[15] = (float)((x < y) | (x == y) << 1 | (x != 0.0f) << 2);
}

extern "C" __global__ void flush_saxpy(float a, const float* x, float* y) {
    unsigned i = blockIdx.x * blockDim.x + threadIdx.x;
    y[i] = a * x[i] + y[i];
}

extern "C" __global__ void flush_convert(const float* in, unsigned long long* out) {
    unsigned i = blockIdx.x * blockDim.x + threadIdx.x;
    float x = in[i];
    out[4 * i] = (unsigned)__float2int_ru(x);
    out[4 * i + 1] = __float2uint_rd(x);
    out[4 * i + 2] = (unsigned long long)__float2ll_ru(x);
    out[4 * i + 3] = (unsigned long long)__double_as_longlong((double)x);
}
