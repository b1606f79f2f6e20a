// Cooperative groups: synchronization across the grid, tiles of a warp, groups of whoever is active.
#include <cooperative_groups.h>
#include <cooperative_groups/reduce.h>
#include <cooperative_groups/scan.h>
namespace cg = cooperative_groups;

// Each round every element takes a value another block wrote in the round before.
extern "C" __global__ void grid_sync_loop(unsigned* a, unsigned* b, unsigned n, unsigned rounds) {
    cg::grid_group grid = cg::this_grid();
    for (unsigned r = 0; r < rounds; r++) {
        for (unsigned long long i = grid.thread_rank(); i < n; i += grid.size()) {
            unsigned from = (unsigned)((i * 97u + r) % n);
            b[i] = a[from] * 1664525u + 1013904223u + r;
        }
        grid.sync();
        unsigned* swap = a;
        a = b;
        b = swap;
    }
}

extern "C" __global__ void tiles(const int* in, int* out) {
    cg::thread_block block = cg::this_thread_block();
    cg::thread_block_tile<8> tile = cg::tiled_partition<8>(block);
    unsigned i = blockIdx.x * blockDim.x + block.thread_rank();
    int v = in[i];
    int* row = out + 12 * i;
    row[0] = tile.shfl(v, 3);
    row[1] = tile.shfl_up(v, 2);
    row[2] = tile.shfl_down(v, 1);
    row[3] = tile.shfl_xor(v, 5);
    row[4] = tile.any(v > 1000);
    row[5] = tile.all(v > -1000);
    row[6] = (int)tile.ballot(v & 1);
    row[7] = cg::reduce(tile, v, cg::plus<int>());
    row[8] = cg::reduce(tile, v, cg::greater<int>());
    row[9] = cg::inclusive_scan(tile, v);
    row[10] = (int)(tile.meta_group_rank() * 100 + tile.thread_rank());
    cg::thread_block_tile<32> warp = cg::tiled_partition<32>(block);
    row[11] = cg::reduce(warp, v, cg::less<int>());
}

// The lanes that take the branch together form a group, and its leader counts for all with one atomic. Which lanes are
// together is the machine's choice, so only what holds for any grouping is written.
extern "C" __global__ void coalesced_filter(const int* in, int* count, int* counted, unsigned n) {
    unsigned i = blockIdx.x * blockDim.x + threadIdx.x;
    int mine = -1;
    if (i < n && in[i] % 3 == 0) {
        cg::coalesced_group active = cg::coalesced_threads();
        if (active.thread_rank() == 0) atomicAdd(count, (int)active.size());
        mine = (int)(active.shfl(i, active.thread_rank()) - i) + (active.thread_rank() < active.size());
    }
    if (i < n) counted[i] = mine;
}

extern "C" __global__ void labeled_groups(const unsigned* in, unsigned* out) {
    cg::coalesced_group warp = cg::coalesced_threads();
    unsigned i = blockIdx.x * blockDim.x + threadIdx.x;
    cg::coalesced_group peers = cg::labeled_partition(warp, in[i] % 5);
    out[2 * i] = peers.size() * 100 + peers.thread_rank();
    out[2 * i + 1] = cg::reduce(peers, in[i], cg::plus<unsigned>());
}
