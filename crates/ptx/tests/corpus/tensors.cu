// Textures, surfaces, tensor cores and asynchronous copies.
#include <cuda.h>
#include <cuda_pipeline.h>
#include <mma.h>

using namespace nvcuda;

__global__ void images(cudaTextureObject_t t, cudaSurfaceObject_t s, float4 *out, float x, float y) {
    float4 a = tex2D<float4>(t, x, y);
    float4 b = tex2DLod<float4>(t, x, y, 1.5f);
    float4 c = tex3D<float4>(t, x, y, x);
    float4 d = tex2DLayered<float4>(t, x, y, 3);
    float4 e = texCubemap<float4>(t, x, y, x);
    float4 f = tex2Dgather<float4>(t, x, y, 1);
    float4 g = tex2DGrad<float4>(t, x, y, make_float2(x, y), make_float2(y, x));
    int h = tex1Dfetch<int>(t, 7);
    float2 i = surf2Dread<float2>(s, 8, 3);
    surf2Dwrite(make_float2(a.x, b.y), s, 16, 4);
    out[0] = make_float4(a.x + b.x, c.y + d.z, e.w + f.x, g.y + h + i.x);
}

__global__ void matrices(half *a, half *b, float *c) {
    wmma::fragment<wmma::matrix_a, 16, 16, 16, half, wmma::row_major> fa;
    wmma::fragment<wmma::matrix_b, 16, 16, 16, half, wmma::col_major> fb;
    wmma::fragment<wmma::accumulator, 16, 16, 16, float> fc;
    wmma::load_matrix_sync(fa, a, 16);
    wmma::load_matrix_sync(fb, b, 16);
    wmma::fill_fragment(fc, 0.0f);
    wmma::mma_sync(fc, fa, fb, fc);
    wmma::store_matrix_sync(c, fc, 16, wmma::mem_row_major);
}

__global__ void copies(const int4 *from, int4 *to) {
    __shared__ int4 tile[32];
    __pipeline_memcpy_async(&tile[threadIdx.x], &from[threadIdx.x], sizeof(int4));
    __pipeline_commit();
    __pipeline_wait_prior(0);
    __syncthreads();
    to[threadIdx.x] = tile[threadIdx.x ^ 1];
}

#if __CUDA_ARCH__ >= 900
__global__ void hopper(const __grid_constant__ CUtensorMap map, int *out) {
    __shared__ alignas(128) int tile[1024];
    __shared__ unsigned long long barrier;
    unsigned t = (unsigned)__cvta_generic_to_shared(tile), b = (unsigned)__cvta_generic_to_shared(&barrier);
    asm volatile("mbarrier.init.shared::cta.b64 [%0], %1;" ::"r"(b), "r"(1));
    asm volatile("fence.proxy.async.shared::cta;");
    asm volatile("cp.async.bulk.tensor.2d.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1, {%2, %3}], [%4];"
                 ::"r"(t), "l"(&map), "r"(0), "r"(8), "r"(b) : "memory");
    asm volatile("{\n\t.reg .b64 s;\n\tmbarrier.arrive.expect_tx.shared::cta.b64 s, [%0], %1;\n\t}" ::"r"(b), "r"(4096));
    asm volatile("{\n\t.reg .pred p;\nWAIT:\n\tmbarrier.try_wait.parity.shared::cta.b64 p, [%0], %1;\n\t@p bra DONE;\n\tbra WAIT;\nDONE:\n\t}"
                 ::"r"(b), "r"(0));
    out[threadIdx.x] = tile[threadIdx.x];
    asm volatile("cp.async.bulk.tensor.2d.global.shared::cta.bulk_group [%0, {%1, %2}], [%3];"
                 ::"l"(&map), "r"(0), "r"(8), "r"(t) : "memory");
    asm volatile("cp.async.bulk.commit_group; cp.async.bulk.wait_group.read 0;");
    asm volatile("wgmma.fence.sync.aligned; wgmma.commit_group.sync.aligned; wgmma.wait_group.sync.aligned 0;");
}
#endif
