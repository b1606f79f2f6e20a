// State spaces: module variables, constants, dynamic shared memory, local arrays, vectors, caches, address spaces.

__constant__ int coefficients[16] = {1, -2, 3, -4, 5, -6, 7, -8, 9, -10, 11, -12, 13, -14, 15, -16};
__constant__ struct {
    char tag;
    double scale;
    short weights[3];
} settings = {'s', 0.5, {3, -2, 1}};
__device__ int counter = 40;
__device__ float table[2][3] = {{1.5f, 2.5f, 3.5f}, {-1.0f, -2.0f, -3.0f}};
__device__ const char* words[3] = {"zero", "one", "two"};
__device__ int* into_counter = &counter;
__managed__ unsigned managed_word = 7;

extern "C" __global__ void constants(const int* in, int* out) {
    unsigned i = blockIdx.x * blockDim.x + threadIdx.x;
    int sum = 0;
    for (int k = 0; k < 16; k++) sum += coefficients[k] * in[(i + k) % (gridDim.x * blockDim.x)];
    out[i] = sum + coefficients[i % 16] + settings.weights[i % 3] * (int)(settings.scale * 8.0) + settings.tag;
}

extern "C" __global__ void module_variables(int* out, float* floats) {
    out[threadIdx.x] = words[threadIdx.x % 3][threadIdx.x % 4] + *into_counter;
    floats[threadIdx.x] = table[threadIdx.x % 2][threadIdx.x % 3];
    __syncthreads();
    if (threadIdx.x == 0) counter += 2;
    __syncthreads();
    out[blockDim.x + threadIdx.x] = counter + (int)managed_word;
    __syncthreads();
    if (threadIdx.x == 0) managed_word++;
}

// Several arrays cut from one dynamic allocation, beside a static one.
extern "C" __global__ void dynamic_shared(const unsigned short* in, double* out, unsigned n) {
    extern __shared__ __align__(16) unsigned char bytes[];
    __shared__ unsigned short reversed[64];
    double* doubles = (double*)bytes;
    unsigned* ints = (unsigned*)(doubles + n);
    unsigned short* shorts = (unsigned short*)(ints + n);
    unsigned t = threadIdx.x;
    shorts[t] = in[t];
    reversed[t] = in[n - 1 - t];
    __syncthreads();
    ints[t] = shorts[(t + 1) % n] * 65537u;
    __syncthreads();
    doubles[t] = ints[(t + 5) % n] + 0.5 * reversed[t];
    __syncthreads();
    out[t] = doubles[n - 1 - t];
}

extern "C" __global__ void local_array(const unsigned* in, unsigned* out) {
    unsigned i = blockIdx.x * blockDim.x + threadIdx.x;
    unsigned state[64];
    unsigned char bytes[40];
    for (unsigned k = 0; k < 64; k++) state[k] = k * 7u + i;
    for (unsigned k = 0; k < 40; k++) bytes[k] = (unsigned char)(k ^ i);
    unsigned x = in[i];
    for (unsigned k = 0; k < 100; k++) {
        unsigned at = x % 64;
        unsigned swap = state[at];
        state[at] = state[k % 64] + bytes[x % 40];
        bytes[(x >> 8) % 40] += (unsigned char)k;
        state[k % 64] = swap;
        x = x * 1664525u + 1013904223u + swap;
    }
    out[i] = x ^ state[x % 64] ^ bytes[5] << 24;
}

struct __align__(16) Mixed {
    char a;
    double b;
    float3 c;
    short d[5];
    unsigned char e;
};

// Structures by value, with their alignment, between scalars of other sizes.
extern "C" __global__ void struct_parameters(unsigned char lead, Mixed m, short middle, float2 pair, double* out,
                                             double tail) {
    Mixed r = m;
    unsigned t = threadIdx.x;
    r.a = (char)(m.a + lead);
    r.b = m.b * tail;
    r.c.y = m.c.x + pair.y;
    r.d[t % 5] = (short)(m.d[(t + 1) % 5] + middle);
    r.e = (unsigned char)(m.e ^ t);
    double* row = out + 12 * t;
    row[0] = r.a;
    row[1] = r.b;
    row[2] = r.c.x;
    row[3] = r.c.y;
    row[4] = r.c.z;
    for (int k = 0; k < 5; k++) row[5 + k] = r.d[k];
    row[10] = r.e;
    row[11] = pair.x;
}

// Vector loads and stores of each width, and the cache operators.
extern "C" __global__ void vector_access(const uint4* in, uint4* out) {
    unsigned i = blockIdx.x * blockDim.x + threadIdx.x, n = gridDim.x * blockDim.x;
    uint4 v = __ldg(&in[i]);
    uint2 p = ((const uint2*)in)[2 * i + 1];
    uchar4 c = ((const uchar4*)in)[4 * i + 2];
    short2 s = ((const short2*)in)[4 * i + 3];
    ulonglong2 l = ((const ulonglong2*)in)[i];
    double2 d = ((const double2*)in)[i];
    unsigned cached = __ldca(&((const unsigned*)in)[4 * i]) + __ldcg(&((const unsigned*)in)[4 * i + 1]) +
                      __ldcs(&((const unsigned*)in)[4 * i + 2]) + __ldcv(&((const unsigned*)in)[4 * i + 3]) +
                      __ldlu(&((const unsigned*)in)[4 * i]);
    out[i] = make_uint4(v.w, v.z, p.x, p.y);
    __stcg(&out[n + i], make_uint4(c.x + c.y, c.z - c.w, (unsigned)(s.x * s.y), cached));
    __stcs((ulonglong2*)&out[2 * n + i], make_ulonglong2(l.x + l.y, l.x ^ (unsigned long long)__double_as_longlong(d.y)));
    __stwt(&out[3 * n + i].x, v.x + 1u);
    ((uchar2*)&out[3 * n + i])[2] = make_uchar2(c.w, c.z);
    ((ushort3*)&out[3 * n + i])[1].z = (unsigned short)s.y;
    ((unsigned*)&out[3 * n + i])[3] = v.y;
}

// Generic addresses: which space they are in, and access through them.
extern "C" __global__ void address_spaces(const int* in, int* out) {
    __shared__ int shared_word[32];
    int local_word[4];
    unsigned t = threadIdx.x;
    shared_word[t] = in[t] * 2;
    for (int k = 0; k < 4; k++) local_word[k] = in[(t + k) % 32] * 3;
    __syncwarp();
    const int* p = t % 4 == 0 ? &in[t] : t % 4 == 1 ? &shared_word[t ^ 1] : t % 4 == 2 ? &local_word[t % 3] : &coefficients[t % 16];
    unsigned kind = __isGlobal(p) | __isShared(p) << 1 | __isLocal(p) << 2 | __isConstant(p) << 3;
    out[2 * t] = *p;
    out[2 * t + 1] = (int)kind;
    size_t offset = __cvta_generic_to_shared(&shared_word[t]) - __cvta_generic_to_shared(&shared_word[0]);
    out[64 + t] = (int)offset + *(int*)__cvta_shared_to_generic(__cvta_generic_to_shared(&shared_word[31 - t]));
}

extern "C" __global__ void device_heap(int* out) {
    int* mine = (int*)malloc((threadIdx.x + 1) * sizeof(int));
    if (!mine) {
        out[threadIdx.x] = -1;
        return;
    }
    for (unsigned k = 0; k <= threadIdx.x; k++) mine[k] = (int)(k * k);
    __shared__ int* passed[64];
    passed[threadIdx.x] = mine;
    __syncthreads();
    unsigned other = blockDim.x - 1 - threadIdx.x;
    int sum = 0;
    for (unsigned k = 0; k <= other; k++) sum += passed[other][k];
    __syncthreads();
    out[threadIdx.x] = sum + ((size_t)mine % 16 == 0);
    free(mine);
    free(nullptr);
}

// Bytes copied and filled by the compiler's own loops, and odd alignments.
extern "C" __global__ void copy_bytes(const unsigned char* in, unsigned char* out, unsigned n) {
    unsigned char block[24];
    unsigned t = threadIdx.x;
    memset(block, (int)t, sizeof block);
    memcpy(block + 3, in + t * 5, 13);
    for (int k = 10; k >= 0; k--) block[k + 5] = block[k + 3];
    memcpy(out + t * 24, block, sizeof block);
    if (t == 0) memcpy(out + blockDim.x * 24, in, n);
}

// Clocks only go forward; they say so with a flag, never with their value.
extern "C" __global__ void clocks(unsigned* out) {
    long long a = clock64();
    unsigned long long g, h;
    asm volatile("mov.u64 %0, %%globaltimer;" : "=l"(g));
    __nanosleep(200);
    unsigned c = (unsigned)clock();
    long long b = clock64();
    unsigned d = (unsigned)clock();
    asm volatile("mov.u64 %0, %%globaltimer;" : "=l"(h));
    out[threadIdx.x] = (b > a) | (h >= g) << 1 | ((int)(d - c) >= 0) << 2;
}
