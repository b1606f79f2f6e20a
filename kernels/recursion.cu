// Functions that call themselves, and a thread's own stack.

__device__ __noinline__ unsigned fib(unsigned n) { return n < 2 ? n : fib(n - 1) + fib(n - 2); }

extern "C" __global__ void fibonacci(const unsigned* in, unsigned* out) { out[threadIdx.x] = fib(in[threadIdx.x]); }

__device__ __noinline__ unsigned ack(unsigned m, unsigned n) {
    return m == 0 ? n + 1 : n == 0 ? ack(m - 1, 1) : ack(m - 1, ack(m, n - 1));
}

extern "C" __global__ void ackermann(unsigned* out) { out[threadIdx.x] = ack(threadIdx.x % 3, threadIdx.x / 3); }

__device__ bool odd(unsigned n);
__device__ __noinline__ bool even(unsigned n) { return n == 0 || odd(n - 1); }
__device__ __noinline__ bool odd(unsigned n) { return n != 0 && even(n - 1); }

extern "C" __global__ void even_odd(unsigned* out) {
    out[threadIdx.x] = even(threadIdx.x) ? 2 * threadIdx.x : threadIdx.x;
}

__device__ __noinline__ void quicksort(int* a, int low, int high) {
    if (low >= high) return;
    int pivot = a[(low + high) / 2], i = low, j = high;
    while (i <= j) {
        while (a[i] < pivot) i++;
        while (a[j] > pivot) j--;
        if (i <= j) {
            int t = a[i];
            a[i++] = a[j];
            a[j--] = t;
        }
    }
    quicksort(a, low, j);
    quicksort(a, i, high);
}

extern "C" __global__ void quicksort_local(const int* in, int* out) {
    int a[48];
    unsigned base = (blockIdx.x * blockDim.x + threadIdx.x) * 48;
    for (int i = 0; i < 48; i++) a[i] = in[base + i];
    quicksort(a, 0, 47);
    for (int i = 0; i < 48; i++) out[base + i] = a[i];
}

struct Move {
    unsigned short disk, from, to;
};

__device__ __noinline__ Move* hanoi(Move* at, unsigned short disks, unsigned short from, unsigned short to) {
    if (disks == 0) return at;
    unsigned short by = 3 - from - to;
    at = hanoi(at, disks - 1, from, by);
    *at++ = Move{disks, from, to};
    return hanoi(at, disks - 1, by, to);
}

extern "C" __global__ void hanoi_moves(Move* out, unsigned short disks) {
    Move* end = hanoi(out + threadIdx.x * 128, disks, 0, 1 + threadIdx.x % 2);
    *end = Move{(unsigned short)(end - (out + threadIdx.x * 128)), 0xffff, 0xffff};
}
