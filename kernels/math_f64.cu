// The math library in double precision: compiled to fused multiply-adds, so every result is determined.
#define UNARY(F, AT) row[AT] = F(x);

extern "C" __global__ void elementary_f64(const double* in, double* out) {
    unsigned i = blockIdx.x * blockDim.x + threadIdx.x;
    double x = in[i];
    double* row = out + 20 * i;
    UNARY(sin, 0) UNARY(cos, 1) UNARY(tan, 2) UNARY(asin, 3) UNARY(acos, 4) UNARY(atan, 5) UNARY(sinh, 6) UNARY(cosh, 7)
    UNARY(tanh, 8) UNARY(asinh, 9) UNARY(acosh, 10) UNARY(atanh, 11) UNARY(exp, 12) UNARY(exp2, 13) UNARY(expm1, 14)
    UNARY(log, 15) UNARY(log2, 16) UNARY(log10, 17) UNARY(log1p, 18) UNARY(exp10, 19)
}

extern "C" __global__ void special_f64(const double* in, double* out) {
    unsigned i = blockIdx.x * blockDim.x + threadIdx.x;
    double x = in[i];
    double* row = out + 16 * i;
    UNARY(erf, 0) UNARY(erfc, 1) UNARY(tgamma, 2) UNARY(lgamma, 3) UNARY(cbrt, 4) UNARY(rcbrt, 5) UNARY(erfcx, 6)
    UNARY(j0, 7) UNARY(y1, 8) UNARY(normcdf, 9) UNARY(sinpi, 10) UNARY(cospi, 11) UNARY(logb, 12) UNARY(round, 13)
    UNARY(nearbyint, 14) UNARY(erfinv, 15)
}

extern "C" __global__ void binary_f64(const double* a, const double* b, double* out) {
    unsigned i = blockIdx.x * blockDim.x + threadIdx.x;
    double x = a[i], y = b[i];
    double* row = out + 14 * i;
    row[0] = pow(x, y);
    row[1] = atan2(x, y);
    row[2] = hypot(x, y);
    row[3] = fmod(x, y);
    row[4] = remainder(x, y);
    row[5] = fdim(x, y);
    row[6] = nextafter(x, y);
    row[7] = ldexp(x, (int)(i % 200) - 100);
    int e, q;
    row[8] = frexp(x, &e);
    row[9] = (double)e;
    row[10] = modf(x, &row[11]);
    row[12] = remquo(x, y, &q);
    row[13] = rsqrt(x);
}
