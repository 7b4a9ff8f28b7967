// C = alpha op(A) op(B) + beta C by mma.sync for any arithmetic: panels of A and B are copied ahead by cp.async, and
// multiplied by gemm/mma_pipeline.cuh.
//
// Tile: a block owns BM x BN elements of C, a warp WM x WN of them in tiles of 16 x 16; blockIdx.z counts the products
// of a strided batch. Arithmetic is one of gemm/mma_arithmetic.cuh.
// Preconditions: compute capability 8.0. W elements are copied at once: W sizeof(Storage) divides the leading
// dimensions of A and B in bytes, and pointers are aligned to 16 bytes; rows may end anywhere.
#pragma once
#include "gemm/mma_pipeline.cuh"
#include "gemm/mma_store.cuh"
#include "gemm/tileorder.cuh"
#include "panel_copy.cuh"

template <class Arithmetic, int BM, int BN, int BK, int WM, int WN, int STAGES, int W, Op op_a, Op op_b>
struct MmaLoop {
  using T = typename Arithmetic::Storage;
  static constexpr int THREADS = 32 * (BM / WM) * (BN / WN);
  using PanelA = MmaPanel<Side::A, T, BK, BM, op_a == Op::N>;
  using PanelB = MmaPanel<Side::B, T, BK, BN, op_b == Op::T>;
  using ShareA = Share<PanelA::ROWS, PanelA::COLS, THREADS, PanelA::V>;
  using ShareB = Share<PanelB::ROWS, PanelB::COLS, THREADS, PanelB::V>;
  using Pipeline = MmaPipeline<Arithmetic, PanelA, PanelB, BK, WM, WN, STAGES>;

  const T *a, *b;
  unsigned m, n, k, lda, ldb;
  unsigned row0, col0;  // where the block's tile begins in C

  // Adds the product to the sums.
  __device__ __forceinline__ void accumulate(Pipeline &pipeline) const {
    PanelSource<PanelA, ShareA> source_a(a, 0, row0, k, m, lda);
    PanelSource<PanelB, ShareB> source_b(b, 0, col0, k, n, ldb);
    pipeline.accumulate((k + BK - 1) / BK, [&](T *slot) {
      copy_panel<PanelA, ShareA, W>(slot, source_a);
      copy_panel<PanelB, ShareB, W>(slot + PanelA::ELEMENTS, source_b);
      source_a.advance();
      source_b.advance();
    });
  }
};

// Blocks per multiprocessor, by which the compiler limits registers: one where the sums of a warp's tile take half of
// them or more.
template <class Sum, int WM, int WN>
constexpr int MMA_BLOCKS_PER_SM = WM * WN * sizeof(Sum) <= 4096 ? 3 : 1;

template <class Arithmetic, class TC, int BM, int BN, int BK, int WM, int WN, int STAGES, int W, Op op_a, Op op_b>
__global__ void __launch_bounds__(32 * (BM / WM) * (BN / WN), MMA_BLOCKS_PER_SM<typename Arithmetic::Sum, WM, WN>)
    gemm_mma(const typename Arithmetic::Storage *__restrict__ a, const typename Arithmetic::Storage *__restrict__ b,
             TC *c, unsigned m, unsigned n, unsigned k, typename Arithmetic::Sum alpha, typename Arithmetic::Sum beta,
             unsigned lda, unsigned ldb, unsigned ldc, long long stride_a, long long stride_b, long long stride_c) {
  using Loop = MmaLoop<Arithmetic, BM, BN, BK, WM, WN, STAGES, W, op_a, op_b>;
  using Pipeline = typename Loop::Pipeline;
  using Sum = typename Arithmetic::Sum;
  using WarpStripe = Stripe<WN, Sum>;
  constexpr int V = 16 / sizeof(TC);
  static_assert(WarpStripe::ELEMENTS * sizeof(Sum) * (Loop::THREADS / 32) <=
                    STAGES * Pipeline::STAGE * sizeof(typename Loop::T),
                "stripes fit where the panels were");
  DYN_SHARED(unsigned char, smem);
  const unsigned warp_id = threadIdx.x / 32, warp_m = warp_id / (BN / WN) * WM, warp_n = warp_id % (BN / WN) * WN;
  // Blocks that run at the same time are close together in C, and share what they read in the L2 cache.
  const auto tile = TileOrder{gridDim.y, gridDim.x}.at(blockIdx.y * gridDim.x + blockIdx.x);
  const unsigned row0 = tile.row * BM, col0 = tile.col * BN;
  const Loop loop{a + blockIdx.z * stride_a, b + blockIdx.z * stride_b, m, n, k, lda, ldb, row0, col0};
  Pipeline pipeline{reinterpret_cast<typename Loop::T *>(smem), warp_m, warp_n};
  loop.accumulate(pipeline);
  Sum *stripe = reinterpret_cast<Sum *>(smem) + warp_id * WarpStripe::ELEMENTS;
  c += blockIdx.z * stride_c;
#pragma unroll
  for (int i = 0; i < Pipeline::MT; ++i) {
    const unsigned row = row0 + warp_m + 16 * i, col = col0 + warp_n;
    WarpStripe::put(stripe, pipeline.sums[i]);
    __syncwarp();  // the stripe is complete
    if (ldc % V == 0 && n % V == 0) {
      WarpStripe::template store<V>(stripe, c, row, col, m, n, ldc, alpha, beta);
    } else {
      WarpStripe::template store<1>(stripe, c, row, col, m, n, ldc, alpha, beta);
    }
    __syncwarp();  // all lanes have read it before the next one overwrites it
  }
}
