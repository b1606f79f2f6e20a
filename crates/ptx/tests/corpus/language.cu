// The parts of CUDA C++ that shape a module: symbols and their addresses, calls of every kind, parameters of every
// shape, jumps, printf and assert.
#include <cassert>
#include <cstdio>

struct Shape {
    __device__ virtual ~Shape() {}
    __device__ virtual float area() const = 0;
};
struct Square : Shape {
    float side;
    __device__ Square(float s) : side(s) {}
    __device__ float area() const override { return side * side; }
};
struct Circle : Shape {
    float radius;
    __device__ Circle(float r) : radius(r) {}
    __device__ float area() const override { return 3.14159f * radius * radius; }
};

struct Mixed { double d; char c; short s[3]; };
struct alignas(32) Aligned { int x; };

__constant__ float table[4] = {1.0f, 2.0f, 3.0f, -0.5f};
__constant__ double doubles[2] = {0.1, 1e300};
__device__ int counter = 7;
__device__ unsigned long long large = 0xFFFFFFFFFFFFFFFFull;
__device__ int *inside = &counter;
__device__ float grid[2][3] = {{1, 2, 3}, {4, 5}};
__device__ float *second = &grid[1][1];
__device__ const char *names[] = {"one", "two \"quoted\" \\"};
__managed__ int managed;

typedef int (*unary)(int);
__device__ int increment(int x) { return x + 1; }
__device__ __noinline__ int twice(int x) { return x * 2; }
__device__ unary functions[2] = {increment, twice};

__device__ __noinline__ int fibonacci(int n) { return n < 2 ? n : fibonacci(n - 1) + fibonacci(n - 2); }
__device__ __noinline__ Mixed pack(Mixed m, float4 v) {
    m.d += v.x;
    m.s[1] = (short)v.w;
    return m;
}
__device__ __noinline__ void stop() {
    printf("stopped\n");
    __trap();
}
template <class T> __device__ __noinline__ T combine(T a, T b) { return a * b + a; }

__global__ void __launch_bounds__(256, 2)
everything(int *p, Mixed m, float4 v, const int *__restrict__ q, unsigned n, const __grid_constant__ Aligned a, char c) {
    extern __shared__ float dynamic[];
    __shared__ int fixed[32];
    unsigned i = threadIdx.x + blockIdx.x * blockDim.x;
    if (i < n) {
        p[i] = functions[i & 1](q[i]) + fibonacci(i & 7) + m.s[1] + (int)v.y + a.x + c;
        printf("%s %d\n", names[i & 1], i);
        assert(i < 100);
    }
    if (n == 12345) stop();
    dynamic[i] = table[i & 3] + (float)doubles[i & 1] + *second;
    __syncthreads();
    fixed[threadIdx.x & 31] = (int)dynamic[i ^ 1];
    atomicAdd(&counter, fixed[0]);
    atomicMax(&large, (unsigned long long)*inside);
    switch (q[i]) {
        case 0: p[1] = 3; break;
        case 1: p[2] = combine(p[1], 3); break;
        case 2: p[9] = 9; break;
        case 3: p[7] = (int)combine(2.5, (double)i); break;
        case 4: p[3] = 5; break;
        case 5: p[0] *= 3; break;
        default: break;
    }
    managed = __shfl_xor_sync(~0u, (int)i, 1);
    Mixed out = pack(m, v);
    p[4] = out.s[1];
}

__global__ void shapes(float *out, int kind) {
    Square square(2.0f);
    Circle circle(1.5f);
    Shape *shape = kind ? (Shape *)&square : (Shape *)&circle;
    int local[16];
    for (int i = 0; i < 16; i++) local[i] = i * kind;
#pragma unroll 1
    for (int i = 0; i < kind; i++) *out += shape->area() + local[(i * kind) & 15];
}

#if __CUDA_ARCH__ >= 900
__global__ void __cluster_dims__(2, 1, 1) __maxnreg__(64) clustered(int *p) { p[threadIdx.x] = clock(); }
#endif

extern "C" __global__ void empty() {}
