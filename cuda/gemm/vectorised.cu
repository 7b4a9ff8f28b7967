// C = alpha op(A) op(B) + beta C: global and shared memory are read and written four words at a time.
//
// Tile: a block owns BM x BN elements of C, a thread TM x TN, in patches of 4 x 4 that lie BM / (TM / 4) rows and BN /
// (TN / 4) columns apart: neighbouring threads then read adjoining float4 of shared memory, without bank conflicts. A
// is stored transposed in shared memory (panel.cuh), so that its four rows are neighbours there. blockIdx.z counts the
// products of a strided batch.
// Preconditions: W = 4 requires the leading dimensions and the lengths of all stored rows to be multiples of 4, and
// pointers aligned to 16 bytes; W = 1 takes every problem. The plan chooses W before launch.
// Limit: while panels are loaded from memory all threads of the block wait. gemm/warptile.cu computes meanwhile.
#include "gemm/panel.cuh"

template <int BM, int BN, int BK, int TM, int TN, int W, Op op_a, Op op_b>
__global__ void __launch_bounds__(BM *BN / (TM * TN), SGEMM_BLOCKS_PER_SM<TM, TN>)
    sgemm_vectorised(const float *__restrict__ a, const float *__restrict__ b, float *c, unsigned m,
                     unsigned n, unsigned k, float alpha, float beta, unsigned lda, unsigned ldb, unsigned ldc,
                     long long stride_a, long long stride_b, long long stride_c) {
  constexpr int THREADS = BM * BN / (TM * TN), ROWS = BM / (TM / 4), COLS = BN / (TN / 4);
  __shared__ __align__(16) float smem_a[BK][BM + PAD];
  __shared__ __align__(16) float smem_b[BK][BN + PAD];
  const unsigned row0 = blockIdx.y * BM, col0 = blockIdx.x * BN;
  const unsigned row = threadIdx.x / (BN / TN) * 4, col = threadIdx.x % (BN / TN) * 4;
  a += blockIdx.z * stride_a;
  b += blockIdx.z * stride_b;
  c += blockIdx.z * stride_c;
  StagedPanel<BK, BM, THREADS, W, flipped<op_a>> panel_a(a, row0, k, m, lda);
  StagedPanel<BK, BN, THREADS, W, op_b> panel_b(b, col0, k, n, ldb);
  float sums[TM][TN] = {};
  for (unsigned k0 = 0; k0 < k; k0 += BK) {
    panel_a.fetch();
    panel_b.fetch();
    panel_a.stash(smem_a);
    panel_b.stash(smem_b);
    __syncthreads();  // the panels are complete
#pragma unroll
    for (int kk = 0; kk < BK; ++kk) {
      float left[TM], right[TN];
#pragma unroll
      for (int i = 0; i < TM / 4; ++i) load_pack<4>(&left[4 * i], &smem_a[kk][row + i * ROWS]);
#pragma unroll
      for (int j = 0; j < TN / 4; ++j) load_pack<4>(&right[4 * j], &smem_b[kk][col + j * COLS]);
#pragma unroll
      for (int i = 0; i < TM; ++i)
#pragma unroll
        for (int j = 0; j < TN; ++j) sums[i][j] += left[i] * right[j];
    }
    __syncthreads();  // all threads have read the panels before the next ones overwrite them
  }
#pragma unroll
  for (int i = 0; i < TM; ++i) {
    const unsigned at_row = row0 + row + i / 4 * ROWS + i % 4;
    if (at_row >= m) break;
#pragma unroll
    for (int j = 0; j < TN; j += W) {
      const unsigned at_col = col0 + col + j / 4 * COLS + j % 4;
      if (at_col >= n) break;
      store_scaled_pack<W>(&c[offset<Op::N>(at_row, at_col, ldc)], &sums[i][j], alpha, beta);
    }
  }
}
