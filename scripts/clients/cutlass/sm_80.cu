// Products as CUTLASS makes them for sm_80: stages of cp.async, ldmatrix, mma.

#include <cstring>
#include <type_traits>

#include "cutlass/gemm/device/gemm.h"

#include "launch.h"

using cutlass::gemm::GemmShape;
using Row = cutlass::layout::RowMajor;
using Column = cutlass::layout::ColumnMajor;

template <class A, class ByA, class B, class ByB, class C, class Sum, class Block, class Warp, class Instruction, int STAGES>
using Gemm = cutlass::gemm::device::Gemm<
    A, ByA, B, ByB, C, Row, Sum, cutlass::arch::OpClassTensorOp, cutlass::arch::Sm80, Block, Warp, Instruction,
    cutlass::epilogue::thread::LinearCombination<C, 128 / cutlass::sizeof_bits<C>::value, Sum, float>,
    cutlass::gemm::threadblock::GemmIdentityThreadblockSwizzle<>, STAGES>;

using Halves = Gemm<cutlass::half_t, Row, cutlass::half_t, Column, cutlass::half_t, float, GemmShape<128, 128, 32>,
                    GemmShape<64, 64, 32>, GemmShape<16, 8, 16>, 3>;
using Bfloats = Gemm<cutlass::bfloat16_t, Column, cutlass::bfloat16_t, Row, float, float, GemmShape<128, 128, 32>,
                     GemmShape<64, 64, 32>, GemmShape<16, 8, 16>, 4>;
using Singles = Gemm<float, Row, float, Row, float, float, GemmShape<128, 64, 16>, GemmShape<64, 32, 16>,
                     GemmShape<16, 8, 8>, 3>;
using Bytes = Gemm<int8_t, Row, int8_t, Column, int32_t, int32_t, GemmShape<128, 128, 64>, GemmShape<64, 64, 64>,
                   GemmShape<16, 8, 32>, 3>;

template <class Gemm> __device__ void run(const typename Gemm::GemmKernel::Params &parameter) {
    extern __shared__ __align__(128) int memory[];
    typename Gemm::GemmKernel kernel;
    kernel(parameter, *reinterpret_cast<typename Gemm::GemmKernel::SharedStorage *>(memory));
}

template <class Gemm> void prepare(const Problem &problem, Launch &launch) {
    using Kernel = typename Gemm::GemmKernel;
    using Tile = typename Gemm::ThreadblockShape;
    typename Gemm::ThreadblockSwizzle order;
    cutlass::gemm::GemmCoord size(problem.m, problem.n, problem.k);
    auto tiles = order.get_tiled_shape(size, {Tile::kM, Tile::kN, Tile::kK}, 1);
    int line_a = std::is_same_v<typename Gemm::LayoutA, Row> ? problem.k : problem.m;
    int line_b = std::is_same_v<typename Gemm::LayoutB, Row> ? problem.n : problem.k;
    using C = typename Gemm::ElementC;
    typename Kernel::Params parameter{size,
                                      tiles,
                                      {static_cast<typename Gemm::ElementA *>(problem.a), line_a},
                                      {static_cast<typename Gemm::ElementB *>(problem.b), line_b},
                                      {static_cast<C *>(problem.c), problem.n},
                                      {static_cast<C *>(problem.d), problem.n},
                                      {problem.alpha, problem.beta},
                                      nullptr};
    static_assert(sizeof parameter <= sizeof launch.parameter);
    dim3 grid = order.get_grid_shape(tiles);
    launch = {{int(grid.x), int(grid.y), int(grid.z)}, Kernel::kThreadCount, int(sizeof(typename Kernel::SharedStorage)),
              {1, 1, 1}, int(sizeof parameter)};
    std::memcpy(launch.parameter, &parameter, sizeof parameter);
}

#define PRODUCT(name, Gemm)                                                                                          \
    extern "C" __global__ void __launch_bounds__(Gemm::GemmKernel::kThreadCount)                                     \
        name(const __grid_constant__ Gemm::GemmKernel::Params parameter) { run<Gemm>(parameter); }                   \
    extern "C" void prepare_##name(const Problem *problem, Launch *launch) { prepare<Gemm>(*problem, *launch); }

PRODUCT(halves, Halves)
PRODUCT(bfloats, Bfloats)
PRODUCT(singles, Singles)
PRODUCT(bytes, Bytes)
