// Arithmetic with the rounding named in the instruction: nearest even, toward zero, up, down.

extern "C" __global__ void rounded_f32(const float* a, const float* b, const float* c, float* out) {
    unsigned i = blockIdx.x * blockDim.x + threadIdx.x;
    float x = a[i], y = b[i], z = c[i];
    float* row = out + 32 * i;
    row[0] = __fadd_rn(x, y);
    row[1] = __fadd_rz(x, y);
    row[2] = __fadd_ru(x, y);
    row[3] = __fadd_rd(x, y);
    row[4] = __fsub_rn(x, y);
    row[5] = __fsub_rz(x, y);
    row[6] = __fsub_ru(x, y);
    row[7] = __fsub_rd(x, y);
    row[8] = __fmul_rn(x, y);
    row[9] = __fmul_rz(x, y);
    row[10] = __fmul_ru(x, y);
    row[11] = __fmul_rd(x, y);
    row[12] = __fmaf_rn(x, y, z);
    row[13] = __fmaf_rz(x, y, z);
    row[14] = __fmaf_ru(x, y, z);
    row[15] = __fmaf_rd(x, y, z);
    row[16] = __fdiv_rn(x, y);
    row[17] = __fdiv_rz(x, y);
    row[18] = __fdiv_ru(x, y);
    row[19] = __fdiv_rd(x, y);
    row[20] = __fsqrt_rn(x);
    row[21] = __fsqrt_rz(x);
    row[22] = __fsqrt_ru(x);
    row[23] = __fsqrt_rd(x);
    row[24] = __frcp_rn(x);
    row[25] = __frcp_rz(x);
    row[26] = __frcp_ru(x);
    row[27] = __frcp_rd(x);
    row[28] = __saturatef(x);
    asm("add.sat.f32 %0, %1, %2;" : "=f"(row[29]) : "f"(x), "f"(y));
    asm("mul.rz.sat.f32 %0, %1, %2;" : "=f"(row[30]) : "f"(x), "f"(y));
    asm("fma.rn.sat.f32 %0, %1, %2, %3;" : "=f"(row[31]) : "f"(x), "f"(y), "f"(z));
}

extern "C" __global__ void rounded_f64(const double* a, const double* b, const double* c, double* out) {
    unsigned i = blockIdx.x * blockDim.x + threadIdx.x;
    double x = a[i], y = b[i], z = c[i];
    double* row = out + 28 * i;
    row[0] = __dadd_rn(x, y);
    row[1] = __dadd_rz(x, y);
    row[2] = __dadd_ru(x, y);
    row[3] = __dadd_rd(x, y);
    row[4] = __dsub_rn(x, y);
    row[5] = __dsub_rz(x, y);
    row[6] = __dsub_ru(x, y);
    row[7] = __dsub_rd(x, y);
    row[8] = __dmul_rn(x, y);
    row[9] = __dmul_rz(x, y);
    row[10] = __dmul_ru(x, y);
    row[11] = __dmul_rd(x, y);
    row[12] = __fma_rn(x, y, z);
    row[13] = __fma_rz(x, y, z);
    row[14] = __fma_ru(x, y, z);
    row[15] = __fma_rd(x, y, z);
    row[16] = __ddiv_rn(x, y);
    row[17] = __ddiv_rz(x, y);
    row[18] = __ddiv_ru(x, y);
    row[19] = __ddiv_rd(x, y);
    row[20] = __dsqrt_rn(x);
    row[21] = __dsqrt_rz(x);
    row[22] = __dsqrt_ru(x);
    row[23] = __dsqrt_rd(x);
    row[24] = __drcp_rn(x);
    row[25] = __drcp_rz(x);
    row[26] = __drcp_ru(x);
    row[27] = __drcp_rd(x);
}

// Comparisons ordered and unordered, min and max in all their forms, number tests: one bit or one value each.
extern "C" __global__ void compare_f32(const float* a, const float* b, unsigned* out) {
    unsigned i = blockIdx.x * blockDim.x + threadIdx.x;
    float x = a[i], y = b[i], r;
    unsigned bits = 0, bit;
#define TEST(OP, AT)                                                                                                   \
    asm("{ .reg .pred p; setp." OP ".f32 p, %1, %2; selp.u32 %0, 1, 0, p; }" : "=r"(bit) : "f"(x), "f"(y));            \
    bits |= bit << AT;
    TEST("eq", 0) TEST("ne", 1) TEST("lt", 2) TEST("le", 3) TEST("gt", 4) TEST("ge", 5) TEST("equ", 6) TEST("neu", 7)
    TEST("ltu", 8) TEST("leu", 9) TEST("gtu", 10) TEST("geu", 11) TEST("num", 12) TEST("nan", 13)
#undef TEST
#define IS(WHAT, AT)                                                                                                   \
    asm("{ .reg .pred p; testp." WHAT ".f32 p, %1; selp.u32 %0, 1, 0, p; }" : "=r"(bit) : "f"(x));                     \
    bits |= bit << AT;
    IS("finite", 16) IS("infinite", 17) IS("number", 18) IS("notanumber", 19) IS("normal", 20) IS("subnormal", 21)
#undef IS
    out[8 * i] = bits;
#define VALUE(TEXT, AT)                                                                                                \
    asm(TEXT " %0, %1, %2;" : "=f"(r) : "f"(x), "f"(y));                                                               \
    out[8 * i + AT] = __float_as_uint(r);
    VALUE("min.f32", 1) VALUE("max.f32", 2) VALUE("min.NaN.f32", 3) VALUE("max.NaN.f32", 4)
    VALUE("min.ftz.f32", 5) VALUE("max.xorsign.abs.f32", 6) VALUE("copysign.f32", 7)
#undef VALUE
}

extern "C" __global__ void compare_f64(const double* a, const double* b, unsigned long long* out) {
    unsigned i = blockIdx.x * blockDim.x + threadIdx.x;
    double x = a[i], y = b[i];
    unsigned bits = 0, bit;
#define TEST(OP, AT)                                                                                                   \
    asm("{ .reg .pred p; setp." OP ".f64 p, %1, %2; selp.u32 %0, 1, 0, p; }" : "=r"(bit) : "d"(x), "d"(y));            \
    bits |= bit << AT;
    TEST("eq", 0) TEST("ne", 1) TEST("lt", 2) TEST("le", 3) TEST("gt", 4) TEST("ge", 5) TEST("equ", 6) TEST("neu", 7)
    TEST("ltu", 8) TEST("leu", 9) TEST("gtu", 10) TEST("geu", 11) TEST("num", 12) TEST("nan", 13)
#undef TEST
    out[4 * i] = bits;
    double low = fmin(x, y), high = fmax(x, y);
    out[4 * i + 1] = isnan(low) ? 1 : (unsigned long long)__double_as_longlong(low);
    out[4 * i + 2] = isnan(high) ? 1 : (unsigned long long)__double_as_longlong(high);
    out[4 * i + 3] = (unsigned long long)(isfinite(x) | isinf(x) << 1 | isnan(x) << 2 | (signbit(x) != 0) << 3);
}

// The bits of a result that is no number: the operands carry payloads and signs.
extern "C" __global__ void nan_bits(const unsigned* a, const unsigned* b, unsigned* out) {
    unsigned i = blockIdx.x * blockDim.x + threadIdx.x;
    float x = __uint_as_float(a[i]), y = __uint_as_float(b[i]);
    unsigned* row = out + 12 * i;
    row[0] = __float_as_uint(__fadd_rn(x, y));
    row[1] = __float_as_uint(__fmul_rn(x, y));
    row[2] = __float_as_uint(__fmaf_rn(x, y, x));
    row[3] = __float_as_uint(__fdiv_rn(x, y));
    row[4] = __float_as_uint(__fsqrt_rn(x));
    row[5] = __float_as_uint(__frcp_rn(x));
    row[6] = __float_as_uint(fminf(x, y));
    row[7] = __float_as_uint(-x);
    row[8] = __float_as_uint(fabsf(x));
    row[9] = __float_as_uint(rintf(x));
    row[10] = __float_as_uint((float)(double)x);
    row[11] = __float_as_uint(__fsub_rn(x, y));
}
