// Formatted output and the ways a kernel stops a context: a failed assertion and a trap.
#include <assert.h>
#include <stdio.h>

extern "C" __global__ void print_formats(int i, long long l, double d, const char* unused) {
    int r = printf("plain\n");
    printf("returned %d\n", r);
    printf("ints %d %5d|%-5d|%05d %+d %i %u %x %X %#x %o\n", i, i, i, i, i, -i, (unsigned)i, i, i, i, i);
    printf("long %lld %llu %llx %ld\n", l, (unsigned long long)l, l, (long)l);
    printf("float %f %.3f %10.2f|%-10.1f|%e %.2E %g %G\n", d, d, d, d, d, d, d, d * 1e10);
    printf("char %c%c string %s %10s|%-6s|%.2s\n", 'a', 'Z', "text", "right", "left", "cut");
    printf("percent %% star %*d end\n", 6, i);
    printf("special %f %f %f\n", 1.0 / 0.0, -1.0 / 0.0, d - d);
    printf("float argument %f short %d bool %d\n", 1.5f, (int)(short)-7, i > 0);
    printf("%d %d %d %d %d %d %d %d %d %d %d %d\n", 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12);
}

// Every thread a line; their order is open.
extern "C" __global__ void print_threads() { printf("block %u thread %u\n", blockIdx.x, threadIdx.x); }

extern "C" __global__ void assert_below(const int* in, int bound) {
    assert(in[threadIdx.x] < bound && "value within bound");
}

extern "C" __global__ void trap_if(int yes) {
    if (yes) __trap();
}
