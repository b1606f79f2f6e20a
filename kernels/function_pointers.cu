// Indirect calls: tables in constant and global memory, pointers made by one kernel and called by another, virtual
// functions.
typedef int (*Binary)(int, int);

__device__ int add(int a, int b) { return (int)((unsigned)a + (unsigned)b); }
__device__ int subtract(int a, int b) { return (int)((unsigned)a - (unsigned)b); }
__device__ int mix(int a, int b) { return (a ^ b) + (a >> 3); }
__device__ int larger(int a, int b) { return a > b ? a : b; }

__constant__ Binary constant_table[4] = {add, subtract, mix, larger};
__device__ Binary global_table[4] = {larger, mix, subtract, add};

extern "C" __global__ void call_tables(const int* a, const int* b, int* out) {
    unsigned i = blockIdx.x * blockDim.x + threadIdx.x;
    out[2 * i] = constant_table[i % 4](a[i], b[i]);
    out[2 * i + 1] = global_table[i % 4](a[i], b[i]);
}

extern "C" __global__ void make_pointer(Binary* slot, int which) {
    *slot = which == 0 ? add : which == 1 ? subtract : which == 2 ? mix : larger;
}

extern "C" __global__ void call_pointer(const Binary* slot, const int* a, const int* b, int* out) {
    unsigned i = blockIdx.x * blockDim.x + threadIdx.x;
    out[i] = (*slot)(a[i], b[i]);
}

struct Pair {
    double x;
    int n, sum;
};
typedef Pair (*OnPair)(Pair, float);

__device__ __noinline__ Pair grow(Pair p, float f) { return Pair{p.x * f, p.n + 1, p.sum + p.n}; }
__device__ __noinline__ Pair shrink(Pair p, float f) { return Pair{p.x - f, p.n - 1, p.sum - p.n}; }

// Structures pass by value through an indirect call.
extern "C" __global__ void call_with_struct(Pair* pairs) {
    OnPair f = threadIdx.x % 2 ? grow : shrink;
    pairs[threadIdx.x] = f(f(pairs[threadIdx.x], 0.5f), 2.0f);
}

struct Shape {
    __device__ virtual float area() const = 0;
    __device__ virtual int corners() const { return 0; }
};
struct Circle : Shape {
    float r;
    __device__ Circle(float r) : r(r) {}
    __device__ float area() const override { return 3.0f * r * r; }
};
struct Box : Shape {
    float w, h;
    __device__ Box(float w, float h) : w(w), h(h) {}
    __device__ float area() const override { return w * h; }
    __device__ int corners() const override { return 4; }
};

extern "C" __global__ void virtual_calls(const float* in, float* out) {
    unsigned i = threadIdx.x;
    Circle circle(in[i]);
    Box box(in[i], in[i] + 1.0f);
    const Shape* shapes[2] = {&circle, &box};
    const Shape* shape = shapes[(i >> 2) & 1];
    out[i] = shape->area() + (float)shape->corners();
}
