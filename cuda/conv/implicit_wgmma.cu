// Convolution and both gradients as implicit products on the tensor cores of Hopper, channels last: wgmma out of tiles
// that the TMA gathers (conv/implicit_wgmma.cuh), warp-specialised (gemm/wgmma_specialised.cuh).
//
// Forward and to the input, results are stored by TMA as pixels by channels (gemm/store.cuh). The filter's gradient is
// cut into slices of `depth` steps of pixels, so that its few tiles fill the device. The slices go to partial sums,
// laid out like the filters, which conv/sum.cuh adds in order; where there is one, it goes straight to the filters.
// Preconditions: sm_90a; channels and filters are multiples of 8, in one group; the input's gradient has unit strides;
// the corners, strides and distances of taps are ones that a tensor map has (bench/plan/kernel.py).
// Limit: the tensor cores. A step takes 64 channels, or filters, and computes with zeros where there are fewer.
#include "conv/implicit_wgmma.cuh"
#include "conv/sum.cuh"
#include "gemm/store.cuh"

template <class T, Direction direction, unsigned BN, unsigned STAGES, unsigned CLUSTER>
__global__ void __launch_bounds__(3 * WARPGROUP, 1)
    conv_implicit_wgmma(const __grid_constant__ TensorMap gathered, const __grid_constant__ TensorMap filters,
                        const __grid_constant__ TensorMap out, unsigned pixels, const __grid_constant__ Geometry g) {
  using Source = ImageRows<T, BN, direction>;
  using Work = SpecialisedOn<Source, BN, STAGES, CLUSTER>;
  using Store = TileStore<T, BN>;
  __shared__ unsigned long long arrived[STAGES], free[STAGES];
  DYN_SHARED(unsigned char, smem);
  const Source source{gathered, filters, g};
  const unsigned tiles = aligned_to_atom(smem), steps = source.steps();
  const unsigned channels = direction == Direction::fprop ? g.k : g.c;
  unsigned char *buffers = smem + (tiles - ptx::smem_address(smem)) + STAGES * Work::SLOT_BYTES;
  const Work work{source,
                  {(pixels + CLUSTER * BM - 1) / (CLUSTER * BM), (channels + BN - 1) / BN},
                  {steps, steps, 1},
                  1,
                  tiles,
                  ptx::smem_address(arrived),
                  ptx::smem_address(free)};
  work.run(Plainly{}, [&](unsigned warpgroup) {
    unsigned char *own = buffers + warpgroup * Store::BUFFERS * Store::BUFFER_BYTES;
    return Store{{out, nullptr, pixels, channels, channels, 0, 1.0f, 0.0f, own, warpgroup + 1}};
  });
}

// out: the filters, or with several slices the partial sums, each with `elements` elements.
template <class T, class Out, unsigned BN, unsigned STAGES, unsigned CLUSTER>
__global__ void __launch_bounds__(3 * WARPGROUP, 1)
    conv_implicit_wgmma_wgrad(const __grid_constant__ TensorMap plain, const __grid_constant__ TensorMap gathered,
                              Out *out, unsigned pixels, unsigned depth, unsigned slices, long long elements,
                              const __grid_constant__ Geometry g) {
  using Source = ImageColumns<T, BN>;
  using Work = SpecialisedOn<Source, BN, STAGES, CLUSTER>;
  __shared__ unsigned long long arrived[STAGES], free[STAGES];
  DYN_SHARED(unsigned char, smem);
  const Work work{{plain, gathered, g},
                  {(g.k + CLUSTER * BM - 1) / (CLUSTER * BM), (g.c + BN - 1) / BN},
                  {(pixels + Work::A::DEPTH - 1) / Work::A::DEPTH, depth, slices},
                  g.by_rs.divisor * slices,
                  aligned_to_atom(smem),
                  ptx::smem_address(arrived),
                  ptx::smem_address(free)};
  work.run(Plainly{}, [&](unsigned) { return FilterStore<Out>{out, g, slices, elements}; });
}
