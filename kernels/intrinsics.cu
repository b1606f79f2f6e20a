// Integer instructions beyond C's operators.

extern "C" __global__ void bits_32(const unsigned* a, const unsigned* b, const unsigned* c, unsigned* out) {
    unsigned i = blockIdx.x * blockDim.x + threadIdx.x, x = a[i], y = b[i], z = c[i];
    unsigned* row = out + 32 * i;
    row[0] = __popc(x);
    row[1] = __clz(x);
    row[2] = __brev(x);
    row[3] = __ffs(x);
    row[4] = __byte_perm(x, y, z);
    row[5] = __funnelshift_l(x, y, z);
    row[6] = __funnelshift_r(x, y, z);
    row[7] = __funnelshift_lc(x, y, z);
    row[8] = __funnelshift_rc(x, y, z);
    row[9] = __mulhi((int)x, (int)y);
    row[10] = __umulhi(x, y);
    row[11] = __mul24((int)x, (int)y);
    row[12] = __umul24(x, y);
    row[13] = __sad((int)x, (int)y, z);
    row[14] = __usad(x, y, z);
    row[15] = __hadd((int)x, (int)y);
    row[16] = __rhadd((int)x, (int)y);
    row[17] = __uhadd(x, y);
    row[18] = __urhadd(x, y);
    row[19] = __dp4a((int)x, (int)y, (int)z);
    row[20] = __dp4a(x, y, z);
    row[21] = __dp2a_lo((int)x, (int)y, (int)z);
    row[22] = __dp2a_hi((int)x, (int)y, (int)z);
    row[23] = __dp2a_lo(x, y, z);
    row[24] = __dp2a_hi(x, y, z);
    row[25] = abs((int)(x | 1));
    row[26] = (x << 7) | (x >> 25);
    row[27] = (x & y) | (~x & z);
    row[28] = (x & y) ^ (x & z) ^ (y & z);
    row[29] = (unsigned)((int)x >> (z & 31));
    row[30] = __vadd4(x, y) ^ __vabsdiffu4(x, y);
    row[31] = __vcmpgts2(x, y) ^ __vmaxu4(x, z) ^ __vsubus2(x, y);
}

// Forms C++ has no intrinsic for. Shift amounts and field positions run past the width on purpose.
extern "C" __global__ void bits_asm(const unsigned* a, const unsigned* b, const unsigned* c, unsigned* out) {
    unsigned i = blockIdx.x * blockDim.x + threadIdx.x, x = a[i], y = b[i], z = c[i];
    unsigned* row = out + 24 * i;
    unsigned position = y & 63, length = z & 63;
    asm("bfe.u32 %0, %1, %2, %3;" : "=r"(row[0]) : "r"(x), "r"(position), "r"(length));
    asm("bfe.s32 %0, %1, %2, %3;" : "=r"(row[1]) : "r"(x), "r"(position), "r"(length));
    asm("bfi.b32 %0, %1, %2, %3, %4;" : "=r"(row[2]) : "r"(x), "r"(y), "r"(position), "r"(length));
    asm("bfind.u32 %0, %1;" : "=r"(row[3]) : "r"(x));
    asm("bfind.s32 %0, %1;" : "=r"(row[4]) : "r"(x));
    asm("bfind.shiftamt.u32 %0, %1;" : "=r"(row[5]) : "r"(x));
    asm("lop3.b32 %0, %1, %2, %3, 0x96;" : "=r"(row[6]) : "r"(x), "r"(y), "r"(z));
    asm("lop3.b32 %0, %1, %2, %3, 0x1b;" : "=r"(row[7]) : "r"(x), "r"(y), "r"(z));
    asm("prmt.b32.f4e %0, %1, %2, %3;" : "=r"(row[8]) : "r"(x), "r"(y), "r"(z));
    asm("prmt.b32.b4e %0, %1, %2, %3;" : "=r"(row[9]) : "r"(x), "r"(y), "r"(z));
    asm("prmt.b32.rc8 %0, %1, %2, %3;" : "=r"(row[10]) : "r"(x), "r"(y), "r"(z));
    asm("prmt.b32.ecl %0, %1, %2, %3;" : "=r"(row[11]) : "r"(x), "r"(y), "r"(z));
    asm("prmt.b32.ecr %0, %1, %2, %3;" : "=r"(row[12]) : "r"(x), "r"(y), "r"(z));
    asm("prmt.b32.rc16 %0, %1, %2, %3;" : "=r"(row[13]) : "r"(x), "r"(y), "r"(z));
    asm("shl.b32 %0, %1, %2;" : "=r"(row[14]) : "r"(x), "r"(position));
    asm("shr.u32 %0, %1, %2;" : "=r"(row[15]) : "r"(x), "r"(position));
    asm("shr.s32 %0, %1, %2;" : "=r"(row[16]) : "r"(x), "r"(position));
    asm("mad24.hi.s32 %0, %1, %2, %3;" : "=r"(row[17]) : "r"(x), "r"(y), "r"(z));
    asm("mad.hi.u32 %0, %1, %2, %3;" : "=r"(row[18]) : "r"(x), "r"(y), "r"(z));
    asm("add.sat.s32 %0, %1, %2;" : "=r"(row[19]) : "r"(x), "r"(y));
    asm("sub.sat.s32 %0, %1, %2;" : "=r"(row[20]) : "r"(x), "r"(y));
    asm("mad.hi.sat.s32 %0, %1, %2, %3;" : "=r"(row[21]) : "r"(x), "r"(y), "r"(z));
    asm("fns.b32 %0, %1, %2, %3;" : "=r"(row[22]) : "r"(x), "r"(y & 31), "r"((int)(z % 5) - 2));
    asm("slct.u32.s32 %0, %1, %2, %3;" : "=r"(row[23]) : "r"(x), "r"(y), "r"((int)z));
}

extern "C" __global__ void bits_64(const unsigned long long* a, const unsigned long long* b, unsigned long long* out) {
    unsigned i = blockIdx.x * blockDim.x + threadIdx.x;
    unsigned long long x = a[i], y = b[i];
    unsigned long long* row = out + 20 * i;
    row[0] = __popcll(x);
    row[1] = __clzll(x);
    row[2] = __brevll(x);
    row[3] = __ffsll(x);
    row[4] = __umul64hi(x, y);
    row[5] = (unsigned long long)__mul64hi((long long)x, (long long)y);
    row[6] = x / (y | 1);
    row[7] = x % (y | 1);
    row[8] = (unsigned long long)((long long)(x >> 1) / ((long long)y | 1));
    row[9] = (unsigned long long)((long long)(x >> 1) % ((long long)y | 1));
    row[10] = x / 10;
    row[11] = x % 1000000007ull;
    row[12] = (unsigned long long)((long long)x / -7);
    row[13] = (unsigned long long)llabs((long long)(x | 1));
    asm("shl.b64 %0, %1, %2;" : "=l"(row[14]) : "l"(x), "r"((unsigned)y & 127));
    asm("shr.s64 %0, %1, %2;" : "=l"(row[15]) : "l"(x), "r"((unsigned)y & 127));
    asm("bfe.s64 %0, %1, %2, %3;" : "=l"(row[16]) : "l"(x), "r"((unsigned)y & 127), "r"((unsigned)(y >> 8) & 127));
    asm("bfe.u64 %0, %1, %2, %3;" : "=l"(row[17]) : "l"(x), "r"((unsigned)y & 127), "r"((unsigned)(y >> 8) & 127));
    asm("bfi.b64 %0, %1, %2, %3, %4;"
        : "=l"(row[18])
        : "l"(x), "l"(y), "r"((unsigned)y & 127), "r"((unsigned)(y >> 8) & 127));
    unsigned found;
    asm("bfind.s64 %0, %1;" : "=r"(found) : "l"(x));
    row[19] = found;
}

// 128-bit arithmetic: the compiler's own carry chains, and one written by hand.
extern "C" __global__ void carry_chains(const unsigned long long* a, const unsigned long long* b,
                                        unsigned long long* out) {
    unsigned i = blockIdx.x * blockDim.x + threadIdx.x;
    unsigned __int128 x = (unsigned __int128)a[2 * i + 1] << 64 | a[2 * i];
    unsigned __int128 y = (unsigned __int128)b[2 * i + 1] << 64 | b[2 * i];
    unsigned __int128 r[5] = {x + y, x - y, x * y, x / (y | 1), x % (y | 1)};
    unsigned long long* row = out + 12 * i;
    for (int k = 0; k < 5; k++) {
        row[2 * k] = (unsigned long long)r[k];
        row[2 * k + 1] = (unsigned long long)(r[k] >> 64);
    }
    unsigned x0 = (unsigned)a[2 * i], x1 = (unsigned)(a[2 * i] >> 32);
    unsigned y0 = (unsigned)b[2 * i], y1 = (unsigned)(b[2 * i] >> 32), p0, p1, p2, p3, borrow;
    asm("{\n\t"
        "mul.lo.u32 %0, %5, %7;\n\t"
        "mul.hi.u32 %1, %5, %7;\n\t"
        "mad.lo.cc.u32 %1, %5, %8, %1;\n\t"
        "madc.hi.u32 %2, %5, %8, 0;\n\t"
        "mad.lo.cc.u32 %1, %6, %7, %1;\n\t"
        "madc.hi.cc.u32 %2, %6, %7, %2;\n\t"
        "madc.hi.u32 %3, %6, %8, 0;\n\t"
        "mad.lo.cc.u32 %2, %6, %8, %2;\n\t"
        "addc.u32 %3, %3, 0;\n\t"
        "sub.cc.u32 %4, %5, %7;\n\t"
        "subc.cc.u32 %4, %6, %8;\n\t"
        "subc.u32 %4, 0, 0;\n\t"
        "}"
        : "=&r"(p0), "=&r"(p1), "=&r"(p2), "=&r"(p3), "=&r"(borrow)
        : "r"(x0), "r"(x1), "r"(y0), "r"(y1));
    row[10] = (unsigned long long)p1 << 32 | p0;
    row[11] = ((unsigned long long)p3 << 32 | p2) ^ borrow;
}

// Predicates: boolean combination, pairs, set and selection.
extern "C" __global__ void predicates(const int* a, const int* b, unsigned* out) {
    unsigned i = blockIdx.x * blockDim.x + threadIdx.x;
    int x = a[i], y = b[i];
    unsigned r0, r1, r2, r3;
    asm("{\n\t"
        ".reg .pred p, q, s;\n\t"
        "setp.lt.s32 s, %5, 0;\n\t"
        "setp.lt.and.s32 p|q, %4, %5, s;\n\t"
        "selp.u32 %0, 1, 0, p;\n\t"
        "@q add.u32 %0, %0, 2;\n\t"
        "setp.hs.xor.u32 p|q, %4, %5, s;\n\t"
        "@p add.u32 %0, %0, 4;\n\t"
        "@!q add.u32 %0, %0, 8;\n\t"
        "setp.ne.or.s32 p, %4, %5, !s;\n\t"
        "@p add.u32 %0, %0, 16;\n\t"
        "set.gt.u32.s32 %1, %4, %5;\n\t"
        "set.le.and.s32.u32 %2, %4, %5, s;\n\t"
        "set.lo.f32.u32 %3, %4, %5;\n\t"
        "xor.pred p, p, q;\n\t"
        "not.pred p, p;\n\t"
        "@p add.u32 %0, %0, 32;\n\t"
        "}"
        : "=&r"(r0), "=&r"(r1), "=&r"(r2), "=&r"(r3)
        : "r"(x), "r"(y));
    out[4 * i] = r0;
    out[4 * i + 1] = r1;
    out[4 * i + 2] = r2;
    out[4 * i + 3] = r3;
}

// Of which kinds a handle of a texture or a surface is.
extern "C" __global__ void handle_kinds(const unsigned long long* handles, unsigned* out) {
    unsigned i = blockIdx.x * blockDim.x + threadIdx.x, kinds;
    asm("{\n"
        ".reg .pred p;\n"
        ".reg .b32 one, all;\n"
        "istypep.texref p, %1;\n"
        "selp.b32 all, 1, 0, p;\n"
        "istypep.samplerref p, %1;\n"
        "selp.b32 one, 2, 0, p;\n"
        "or.b32 all, all, one;\n"
        "istypep.surfref p, %1;\n"
        "selp.b32 one, 4, 0, p;\n"
        "or.b32 %0, all, one;\n"
        "}" : "=r"(kinds) : "l"(handles[i]));
    out[i] = kinds;
}
