// Barriers of a block: counting and voting ones, named ones, arrivals without waiting, flags in shared memory.

extern "C" __global__ void barrier_votes(const int* in, int* out) {
    unsigned i = blockIdx.x * blockDim.x + threadIdx.x;
    int v = in[i];
    int* row = out + 6 * i;
    row[0] = __syncthreads_count(v > 500);
    row[1] = __syncthreads_and(v > 2);
    row[2] = __syncthreads_or(v > 990);
    unsigned count, all;
    asm volatile("{ .reg .pred p; setp.ne.s32 p, %1, 0; barrier.cta.red.popc.u32 %0, 3, p; }" : "=r"(count) : "r"(v & 1));
    asm volatile("{ .reg .pred p, q; setp.gt.s32 p, %1, 1; bar.red.and.pred q, 4, p; selp.u32 %0, 1, 0, q; }"
                 : "=r"(all)
                 : "r"(v));
    row[3] = (int)count;
    row[4] = (int)all;
    asm volatile("{ .reg .pred p, q; setp.gt.s32 p, %1, 900; barrier.cta.red.or.pred q, 5, !p; selp.u32 %0, 1, 0, q; }"
                 : "=r"(all)
                 : "r"(v));
    row[5] = (int)all;
}

// Two teams of 64 hand a buffer back and forth: producers fill and arrive, consumers wait, read and release.
extern "C" __global__ void producer_consumer(const int* in, int* out, int rounds) {
    __shared__ int buffer[2][64];
    int t = threadIdx.x % 64;
    if (threadIdx.x < 64) {
        for (int r = 0; r < rounds; r++) {
            int half = r & 1;
            if (r >= 2) asm volatile("bar.sync %0, 128;" ::"r"(3 + half) : "memory");
            buffer[half][t] = in[r * 64 + t];
            __threadfence_block();
            asm volatile("bar.arrive %0, 128;" ::"r"(1 + half) : "memory");
        }
    } else {
        int sum = 0;
        for (int r = 0; r < rounds; r++) {
            int half = r & 1;
            asm volatile("bar.sync %0, 128;" ::"r"(1 + half) : "memory");
            sum = sum * 31 + buffer[half][63 - t];
            if (r + 2 < rounds) asm volatile("bar.arrive %0, 128;" ::"r"(3 + half) : "memory");
        }
        out[t] = sum;
    }
}

// Warps of a block synchronize by pairs, each pair on its own barrier.
extern "C" __global__ void named_pairs(const int* in, int* out) {
    __shared__ int staged[256];
    unsigned warp = threadIdx.x / 32, pair = warp / 2;
    int v = in[threadIdx.x];
    for (unsigned r = 0; r <= pair; r++) {
        staged[threadIdx.x] = v;
        asm volatile("barrier.cta.sync %0, 64;" ::"r"(pair + 1) : "memory");
        v = v * 3 + staged[threadIdx.x ^ 32];
        asm volatile("barrier.cta.sync %0, 64;" ::"r"(pair + 1) : "memory");
    }
    out[threadIdx.x] = v;
}

// One thread waits on a flag another warp sets: needs both warps to make progress.
extern "C" __global__ void spin_flag(const int* in, int* out) {
    __shared__ volatile int flag, value;
    if (threadIdx.x == 0) flag = 0;
    __syncthreads();
    if (threadIdx.x == 32) {
        value = in[0] * 2;
        __threadfence_block();
        flag = 1;
    }
    if (threadIdx.x == 0) {
        while (flag == 0) __nanosleep(20);
        __threadfence_block();
        out[0] = value + 1;
    }
}

// A lock of the whole grid around an update that is no single atomic.
extern "C" __global__ void spin_lock(unsigned* lock, unsigned* pair) {
    if (threadIdx.x != 0) return;
    while (atomicCAS(lock, 0, 1) != 0) __nanosleep(50);
    __threadfence();
    volatile unsigned* p = pair;
    p[0] = p[0] + 1;
    p[1] = p[1] + blockIdx.x;
    __threadfence();
    atomicExch(lock, 0);
}

// Threads that have left count as arrived for a barrier over the whole block.
extern "C" __global__ void exited_threads(const int* in, int* out) {
    __shared__ int staged[128];
    int v = in[threadIdx.x];
    staged[threadIdx.x] = v;
    if (threadIdx.x >= 96) return;
    __syncthreads();
    v += staged[95 - threadIdx.x];
    __syncthreads();
    staged[threadIdx.x] = v;
    if (threadIdx.x >= 64) return;
    __syncthreads();
    out[threadIdx.x] = v + staged[63 - threadIdx.x];
}
