// Products as CUTLASS makes them for sm_90: tensor maps, clusters that share what is loaded, mbarriers, groups of warps
// with work of their own, wgmma.

#include <cstring>

#include "cute/tensor.hpp"
#include "cutlass/cutlass.h"
#include "cutlass/epilogue/collective/collective_builder.hpp"
#include "cutlass/gemm/collective/collective_builder.hpp"
#include "cutlass/gemm/kernel/gemm_universal.hpp"
#include "cutlass/util/packed_stride.hpp"

#include "launch.h"

using namespace cute;
using Row = cutlass::layout::RowMajor;
using Column = cutlass::layout::ColumnMajor;
using TensorCores = cutlass::arch::OpClassTensorOp;

template <class T> constexpr int aligned = 128 / cutlass::sizeof_bits<T>::value;

template <class A, class ByA, class B, class ByB, class C, class Tile, class Cluster, class Main, class Epilogue>
struct Gemm {
    using End = typename cutlass::epilogue::collective::CollectiveBuilder<
        cutlass::arch::Sm90, TensorCores, Tile, Cluster, cutlass::epilogue::collective::EpilogueTileAuto, float, float, C,
        Row, aligned<C>, C, Row, aligned<C>, Epilogue>::CollectiveOp;
    using Stages = cutlass::gemm::collective::StageCountAutoCarveout<static_cast<int>(sizeof(typename End::SharedStorage))>;
    using Loop = typename cutlass::gemm::collective::CollectiveBuilder<cutlass::arch::Sm90, TensorCores, A, ByA, aligned<A>, B,
                                                                       ByB, aligned<B>, float, Tile, Cluster, Stages,
                                                                       Main>::CollectiveOp;
    using Kernel = cutlass::gemm::kernel::GemmUniversal<Shape<int, int, int, int>, Loop, End>;
};

using Halves = Gemm<cutlass::half_t, Row, cutlass::half_t, Column, cutlass::half_t, Shape<_128, _128, _64>, Shape<_2, _1, _1>,
                    cutlass::gemm::KernelTmaWarpSpecializedCooperative,
                    cutlass::epilogue::TmaWarpSpecializedCooperative>::Kernel;
using Small = Gemm<cutlass::float_e4m3_t, Row, cutlass::float_e5m2_t, Column, cutlass::bfloat16_t, Shape<_64, _128, _128>,
                   Shape<_1, _2, _1>, cutlass::gemm::KernelTmaWarpSpecializedPingpong,
                   cutlass::epilogue::TmaWarpSpecialized>::Kernel;
using Bfloats = Gemm<cutlass::bfloat16_t, Column, cutlass::bfloat16_t, Row, float, Shape<_128, _64, _64>, Shape<_1, _1, _1>,
                     cutlass::gemm::KernelTmaWarpSpecialized, cutlass::epilogue::TmaWarpSpecialized>::Kernel;

template <class Kernel> __device__ void run(const typename Kernel::Params &parameter) {
    extern __shared__ __align__(1024) char memory[];
    Kernel kernel;
    kernel(parameter, memory);
}

template <class Kernel> void prepare(const Problem &problem, Launch &launch) {
    auto [m, n, k, a, b, c, d, alpha, beta] = problem;
    using cutlass::make_cute_packed_stride;
    auto of_a = make_cute_packed_stride(typename Kernel::StrideA{}, {m, k, 1});
    auto of_b = make_cute_packed_stride(typename Kernel::StrideB{}, {n, k, 1});
    auto of_c = make_cute_packed_stride(typename Kernel::StrideC{}, {m, n, 1});
    using C = typename Kernel::ElementC;
    cutlass::KernelHardwareInfo hardware;
    hardware.sm_count = 132;
    typename Kernel::Arguments arguments{
        cutlass::gemm::GemmUniversalMode::kGemm,
        {m, n, k, 1},
        {static_cast<typename Kernel::ElementA *>(a), of_a, static_cast<typename Kernel::ElementB *>(b), of_b},
        {{alpha, beta}, static_cast<C *>(c), of_c, static_cast<C *>(d), of_c},
        hardware};
    auto parameter = Kernel::to_underlying_arguments(arguments, nullptr);
    static_assert(sizeof parameter <= sizeof launch.parameter);
    dim3 grid = Kernel::get_grid_shape(parameter), block = Kernel::get_block_shape();
    using Cluster = typename Kernel::DispatchPolicy::ClusterShape;
    launch = {{int(grid.x), int(grid.y), int(grid.z)}, int(block.x * block.y * block.z), Kernel::SharedStorageSize,
              {size<0>(Cluster{}), size<1>(Cluster{}), size<2>(Cluster{})}, int(sizeof parameter)};
    std::memcpy(launch.parameter, &parameter, sizeof parameter);
}

#define PRODUCT(name, Kernel)                                                                                        \
    extern "C" __global__ void __launch_bounds__(Kernel::MaxThreadsPerBlock, Kernel::MinBlocksPerMultiprocessor)     \
        name(const __grid_constant__ Kernel::Params parameter) { run<Kernel>(parameter); }                           \
    extern "C" void prepare_##name(const Problem *problem, Launch *launch) { prepare<Kernel>(*problem, *launch); }

PRODUCT(halves, Halves)
PRODUCT(small, Small)
PRODUCT(bfloats, Bfloats)
