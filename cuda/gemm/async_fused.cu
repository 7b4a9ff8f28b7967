// C = alpha op(A) op(B) + beta C with an epilogue, which the multiplying blocks apply before they store: the main loop
// of gemm/async.cu, whose sums go through gemm/epilogue.cuh. The epilogue Sums, for comparison, stores the sums as they
// are, and a second launch, sgemm_epilogue, has to read them again.
//
// Tile: as in gemm/async.cu. In sgemm_epilogue a thread owns W neighbours of a row, and a block 8 rows.
// Preconditions: those of gemm/async.cu. An epilogue's own operand lies as C does, or is one row.
// Limit: FFMA issue, while there are enough tiles to fill the device; that of the second launch is memory.
#include "gemm/epilogue.cuh"
#include "gemm/pipeline.cuh"

template <class Epilogue, int BM, int BN, int BK, int WM, int WN, int TM, int TN, int STAGES, int W, Op op_a, Op op_b,
          bool WHOLE>
__global__ void __launch_bounds__(32 * (BM / WM) * (BN / WN), SGEMM_BLOCKS_PER_SM<TM, TN>)
    sgemm_async_fused(const float *__restrict__ a, const float *__restrict__ b, float *c, float *beside, unsigned m,
                      unsigned n, unsigned k, Numbers numbers, unsigned lda, unsigned ldb, unsigned ldc,
                      long long stride_a, long long stride_b, long long stride_c, long long stride_beside) {
  using Loop = Pipeline<BM, BN, BK, WM, WN, TM, TN, STAGES, W, op_a, op_b, WHOLE>;
  using Tile = typename Loop::Tile;
  DYN_SHARED(float, smem);
  const unsigned row0 = blockIdx.y * BM, col0 = blockIdx.x * BN;
  const Loop loop{a + blockIdx.z * stride_a, b + blockIdx.z * stride_b, m, n, lda, ldb};
  Tile tile;
  loop.accumulate(tile, smem, row0, col0, k);
  const unsigned row1 = row0 + Tile::row(0), col1 = col0 + Tile::col(0);
  c += blockIdx.z * stride_c + offset<Op::N>(row1, col1, ldc);
  beside += blockIdx.z * stride_beside + offset<Op::N>(Epilogue::IN_ROWS ? row1 : 0, col1, ldc);
  // As in Fragment::store, elements after the first one outside are outside too. All loads of a row come before its
  // first store, since the compiler would not move a load from after a store to before it.
#pragma unroll
  for (int i = 0; i < TM; ++i) {
    if (row0 + Tile::row(i) >= m) return;
    const size_t below = size_t(Tile::row(i) - Tile::row(0)) * ldc;
    float *line = c + below, *line_beside = beside + (Epilogue::IN_ROWS ? below : 0);
    float held[TN], own[TN];
#pragma unroll
    for (int j = 0; j < TN; j += W) {
      if (col0 + Tile::col(j) >= n) break;
      const unsigned right = Tile::col(j) - Tile::col(0);
      Epilogue::template load<W>(&held[j], &own[j], &line[right], &line_beside[right], numbers);
    }
#pragma unroll
    for (int j = 0; j < TN; j += W) {
      if (col0 + Tile::col(j) >= n) break;
      const unsigned right = Tile::col(j) - Tile::col(0);
      Epilogue::template store<W>(&line[right], &line_beside[right], &held[j], &own[j], &tile.sums[i][j], numbers);
    }
  }
}

template <class Epilogue, int W>
__global__ void __launch_bounds__(256)
    sgemm_epilogue(const float *__restrict__ sums, float *c, float *beside, unsigned m, unsigned n, Numbers numbers,
                   unsigned ldc, long long stride_c, long long stride_beside) {
  const unsigned row = blockIdx.y * blockDim.y + threadIdx.y, col = (blockIdx.x * blockDim.x + threadIdx.x) * W;
  if (row >= m || col >= n) return;
  float mine[W];
  load_pack<W>(mine, sums + size_t(blockIdx.z) * m * n + offset<Op::N>(row, col, n));
  c += blockIdx.z * stride_c + offset<Op::N>(row, col, ldc);
  beside += blockIdx.z * stride_beside + offset<Op::N>(Epilogue::IN_ROWS ? row : 0, col, ldc);
  float held[W], own[W];
  Epilogue::template load<W>(held, own, c, beside, numbers);
  Epilogue::template store<W>(c, beside, held, own, mine, numbers);
}
