// Control flow: dense and sparse switches, nested loops with several exits, early return, divergence.

// A switch over neighbouring values, one of which falls through.
extern "C" __global__ void dense_switch(const unsigned* in, unsigned* out, unsigned rounds) {
    unsigned i = blockIdx.x * blockDim.x + threadIdx.x;
    unsigned x = in[i], sum = 0;
    for (unsigned r = 0; r < rounds; r++) {
        switch (x % 13) {
        case 0: sum += x; break;
        case 1: sum ^= x << 3; break;
        case 2: sum -= x * 3; break;
        case 3: sum = __brev(sum) + 1; break;
        case 4: sum *= 17; // falls through
        case 5: sum += 5; break;
        case 6: sum = sum / 7 + x; break;
        case 7: sum |= 0x101; break;
        case 8: sum &= ~0x11u; break;
        case 9: sum = __popc(sum) * x; break;
        case 10: sum += sum << 5; break;
        case 11: sum ^= sum >> 7; break;
        default: sum = ~sum;
        }
        x = x * 1103515245u + 12345u + (sum & 1);
        x ^= x >> 16;
    }
    out[i] = sum;
}

// The indexed branch, which nvcc leaves to the assembler: written out.
extern "C" __global__ void indexed_branch(const unsigned* in, unsigned* out) {
    unsigned i = blockIdx.x * blockDim.x + threadIdx.x, r;
    asm volatile("{\n\t"
                 "targets: .branchtargets first, second, third, second;\n\t"
                 "brx.idx %1, targets;\n\t"
                 "first: mov.u32 %0, 100; bra.uni done;\n\t"
                 "second: add.u32 %0, %1, 200; bra.uni done;\n\t"
                 "third: mul.lo.u32 %0, %1, 300;\n\t"
                 "done:\n\t"
                 "}"
                 : "=r"(r)
                 : "r"(in[i] % 4));
    out[i] = r;
}

extern "C" __global__ void sparse_switch(const int* in, int* out) {
    unsigned i = blockIdx.x * blockDim.x + threadIdx.x;
    int r;
    switch (in[i]) {
    case -1000000: r = 1; break;
    case -5: r = 2; break;
    case 0: r = 3; break;
    case 7: r = 4; break;
    case 1234: r = 5; break;
    case 2147483647: r = 6; break;
    default: r = in[i] & 1 ? 7 : 8;
    }
    out[i] = r;
}

// Steps of the Collatz sequence: each lane leaves its loop at its own time.
extern "C" __global__ void collatz(unsigned* out, unsigned first) {
    unsigned long long n = first + blockIdx.x * blockDim.x + threadIdx.x;
    unsigned steps = 0;
    while (n != 1) {
        n = n & 1 ? 3 * n + 1 : n / 2;
        if (++steps > 1000) return;
    }
    out[blockIdx.x * blockDim.x + threadIdx.x] = steps;
}

extern "C" __global__ void nested_exits(const unsigned* in, unsigned* out) {
    unsigned i = blockIdx.x * blockDim.x + threadIdx.x, x = in[i], found = 0xffffffffu;
    for (unsigned a = 2; a < 40; a++) {
        if (a * 3 == x % 101) continue;
        for (unsigned b = a; b < 40; b++) {
            if ((a * b ^ x) % 97 == 0) {
                found = a << 16 | b;
                goto out_of_both;
            }
            if (b * 2 > x % 61 + 30) break;
        }
    }
out_of_both:
    if (i % 7 == 3) return;
    out[i] = found;
}

// Greatest common divisors and modular powers: loops whose trip counts come from data.
extern "C" __global__ void number_theory(const unsigned* a, const unsigned* b, unsigned* out) {
    unsigned i = blockIdx.x * blockDim.x + threadIdx.x;
    unsigned x = a[i], y = b[i];
    while (y != 0) {
        unsigned t = x % y;
        x = y;
        y = t;
    }
    out[2 * i] = x;
    unsigned long long base = a[i] % 998244353u, result = 1;
    for (unsigned e = b[i]; e != 0; e >>= 1) {
        if (e & 1) result = result * base % 998244353u;
        base = base * base % 998244353u;
    }
    out[2 * i + 1] = (unsigned)result;
}
