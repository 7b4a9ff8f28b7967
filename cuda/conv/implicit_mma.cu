// Convolution and both gradients as implicit products on tensor cores, by mma.sync with sums in FP32: 16-bit operands,
// FP32 rounded to TF32, or FP32 as sums of two TF32 (gemm/mma_arithmetic.cuh).
//
// conv/lowering.cuh defines which index of the operands is a row, a column and the reduction; parts and slices are as
// in conv/implicit.cu. Tile: a block owns BM x BN elements of that product, a warp WM x WN of them in tiles of 16 x 16
// (conv/implicit_mma.cuh). With channels last, a chunk of 16 bytes is several channels of one pixel, or of one tap of a
// filter, and is copied at once; ldmatrix transposes it where it lies across the reduction. Otherwise FP32 is copied
// word by word.
// Preconditions: compute capability 8.0, pointers aligned to 16 bytes. W is 1, or the number of elements in 16 bytes:
// the latter requires channels last and channels of a group, in gradients also its filters, in multiples of W. V is as
// wide as the output's rows allow. The images that a tile touches have less than 2^31 elements.
// Limit: the issue of mma.sync, as in gemm/mma.cu: on Hopper about two thirds of the tensor cores' rate. The gathered
// operand is read once for each tap, from the caches. Copies word by word take as many instructions as the products.
#include "conv/implicit_mma.cuh"
#include "conv/sum.cuh"

// Blocks per multiprocessor, by which the compiler limits registers: one where the sums of a warp's tile take half of
// them or more. Comparing rows and columns takes more registers than a mask.
template <int WM, int WN, bool MASKED>
constexpr int IMPLICIT_MMA_BLOCKS_PER_SM = WM * WN > 1024 ? 1 : MASKED ? 3 : 2;

// out: the operand, or with several slices partial[slice], each laid out like the operand, with `elements` elements in
// FP32.
template <class Arithmetic, class Out, Direction direction, Layout layout, int BM, int BN, int BK, int WM, int WN,
          int STAGES, int W, int V, bool MASKED>
__global__ void __launch_bounds__(32 * (BM / WM) * (BN / WN), IMPLICIT_MMA_BLOCKS_PER_SM<WM, WN, MASKED>)
    conv_implicit_mma(const typename Arithmetic::Storage *__restrict__ plain,
                      const typename Arithmetic::Storage *__restrict__ gathered, Out *__restrict__ out,
                      unsigned slice_depth, unsigned slices, long long elements, const __grid_constant__ Geometry g) {
  using Loop = ImplicitMma<Arithmetic, direction, layout, BM, BN, BK, WM, WN, STAGES, W, MASKED>;
  using Map = typename Loop::Map;
  using Pipeline = typename Loop::Pipeline;
  static_assert(Stripe<WN>::ELEMENTS * sizeof(float) * (Loop::THREADS / 32) <=
                    STAGES * Pipeline::STAGE * sizeof(typename Loop::T),
                "stripes fit where the panels were");
  DYN_SHARED(unsigned char, smem);
  const Map map(g, blockIdx.z / slices);
  const auto block = ImplicitBlock::at<Map, BM, BN>(map, slice_depth, slices);
  if (block.row0 >= map.rows() || block.col0 >= map.cols()) return;  // this phase has fewer pixels than another
  const unsigned warp_id = threadIdx.x / 32, warp_m = warp_id / (BN / WN) * WM, warp_n = warp_id % (BN / WN) * WN;
  Loop loop{{map, Map::GATHERED_ROWS ? gathered : plain, block.k0, block.row0},
            {map, Map::GATHERED_ROWS ? plain : gathered, block.k0, block.col0},
            block.k0, block.k_end};
  Pipeline pipeline{reinterpret_cast<typename Loop::T *>(smem), warp_m, warp_n};
  loop.accumulate(pipeline);
  float *stripe = reinterpret_cast<float *>(smem) + warp_id * Stripe<WN>::ELEMENTS;
  out += block.slice * elements;
#pragma unroll
  for (int i = 0; i < Pipeline::MT; ++i) {
    Stripe<WN>::put(stripe, pipeline.sums[i]);
    __syncwarp();  // the stripe is complete
    store_stripe<WN, V>(stripe, out, map, block.row0 + warp_m + 16 * i, block.col0 + warp_n);
    __syncwarp();  // all lanes have read it before the next one overwrites it
  }
}
