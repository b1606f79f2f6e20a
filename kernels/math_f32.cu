// The math library in single precision, and the fast approximations. Errors are the CUDA programming guide's.
#define UNARY(F, AT) row[AT] = F(x);

extern "C" __global__ void elementary_f32(const float* in, float* out) {
    unsigned i = blockIdx.x * blockDim.x + threadIdx.x;
    float x = in[i];
    float* row = out + 20 * i;
    UNARY(sinf, 0) UNARY(cosf, 1) UNARY(tanf, 2) UNARY(asinf, 3) UNARY(acosf, 4) UNARY(atanf, 5) UNARY(sinhf, 6)
    UNARY(coshf, 7) UNARY(tanhf, 8) UNARY(asinhf, 9) UNARY(acoshf, 10) UNARY(atanhf, 11) UNARY(expf, 12)
    UNARY(exp2f, 13) UNARY(expm1f, 14) UNARY(logf, 15) UNARY(log2f, 16) UNARY(log10f, 17) UNARY(log1pf, 18)
    UNARY(cbrtf, 19)
}

extern "C" __global__ void special_f32(const float* in, float* out) {
    unsigned i = blockIdx.x * blockDim.x + threadIdx.x;
    float x = in[i];
    float* row = out + 8 * i;
    UNARY(erff, 0) UNARY(erfcf, 1) UNARY(tgammaf, 2) UNARY(lgammaf, 3) UNARY(rsqrtf, 4) UNARY(exp10f, 5)
    UNARY(sinpif, 6) UNARY(roundf, 7)
}

extern "C" __global__ void power_f32(const float* a, const float* b, float* out) {
    unsigned i = blockIdx.x * blockDim.x + threadIdx.x;
    out[3 * i] = powf(a[i], b[i]);
    out[3 * i + 1] = atan2f(a[i], b[i]);
    out[3 * i + 2] = hypotf(a[i], b[i]);
}

extern "C" __global__ void remainders_f32(const float* a, const float* b, float* out) {
    unsigned i = blockIdx.x * blockDim.x + threadIdx.x;
    float x = a[i], y = b[i];
    float* row = out + 8 * i;
    row[0] = fmodf(x, y);
    row[1] = remainderf(x, y);
    row[2] = fdimf(x, y);
    row[3] = nextafterf(x, y);
    row[4] = ldexpf(x, (int)(i % 60) - 30);
    int e;
    float whole;
    row[5] = frexpf(x, &e);
    row[6] = (float)e;
    row[7] = modff(x, &whole);
}

// Instructions that approximate. Each column has the bound the PTX manual gives.
extern "C" __global__ void fast_f32(const float* a, const float* b, float* out) {
    unsigned i = blockIdx.x * blockDim.x + threadIdx.x;
    float x = a[i], y = b[i];
    float* row = out + 12 * i;
    row[0] = __sinf(x);
    row[1] = __cosf(x);
    asm("ex2.approx.f32 %0, %1;" : "=f"(row[2]) : "f"(x));
    asm("lg2.approx.f32 %0, %1;" : "=f"(row[3]) : "f"(fabsf(x)));
    asm("tanh.approx.f32 %0, %1;" : "=f"(row[4]) : "f"(x));
    asm("rcp.approx.f32 %0, %1;" : "=f"(row[5]) : "f"(x));
    asm("rsqrt.approx.f32 %0, %1;" : "=f"(row[6]) : "f"(fabsf(x)));
    asm("sqrt.approx.f32 %0, %1;" : "=f"(row[7]) : "f"(fabsf(x)));
    asm("div.approx.f32 %0, %1, %2;" : "=f"(row[8]) : "f"(x), "f"(y));
    asm("div.full.f32 %0, %1, %2;" : "=f"(row[9]) : "f"(x), "f"(y));
    row[10] = __expf(x);
    row[11] = __logf(fabsf(x));
}

// The limits of the approximations: zeros, infinities, subnormals, no numbers. Their results are exact.
extern "C" __global__ void fast_limits(const float* in, float* out) {
    unsigned i = threadIdx.x;
    float x = in[i];
    float* row = out + 10 * i;
    asm("sin.approx.f32 %0, %1;" : "=f"(row[0]) : "f"(x));
    asm("cos.approx.f32 %0, %1;" : "=f"(row[1]) : "f"(x));
    asm("ex2.approx.f32 %0, %1;" : "=f"(row[2]) : "f"(x));
    asm("lg2.approx.f32 %0, %1;" : "=f"(row[3]) : "f"(x));
    asm("tanh.approx.f32 %0, %1;" : "=f"(row[4]) : "f"(x));
    asm("rcp.approx.f32 %0, %1;" : "=f"(row[5]) : "f"(x));
    asm("rsqrt.approx.f32 %0, %1;" : "=f"(row[6]) : "f"(x));
    asm("sqrt.approx.f32 %0, %1;" : "=f"(row[7]) : "f"(x));
    asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(row[8]) : "f"(x));
    asm("rcp.approx.ftz.f32 %0, %1;" : "=f"(row[9]) : "f"(x));
}

extern "C" __global__ void sincos_f32(const float* in, float2* out) {
    unsigned i = blockIdx.x * blockDim.x + threadIdx.x;
    sincosf(in[i], &out[i].x, &out[i].y);
}

// Powers, complex numbers and an escape-time fractal: contraction to fused multiply-adds is the compiler's.
extern "C" __global__ void mandelbrot(unsigned* out, unsigned width, float x0, float y0, float step, unsigned limit) {
    unsigned x = blockIdx.x * blockDim.x + threadIdx.x, y = blockIdx.y * blockDim.y + threadIdx.y;
    float cr = __fmaf_rn((float)x, step, x0), ci = __fmaf_rn((float)y, step, y0), zr = 0.0f, zi = 0.0f;
    unsigned n = 0;
    for (; n < limit && __fmaf_rn(zr, zr, __fmul_rn(zi, zi)) <= 4.0f; n++) {
        float next = __fadd_rn(__fmaf_rn(zr, zr, -__fmul_rn(zi, zi)), cr);
        zi = __fmaf_rn(__fadd_rn(zr, zr), zi, ci);
        zr = next;
    }
    out[y * width + x] = n;
}
