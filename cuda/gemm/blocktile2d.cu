// C = alpha op(A) op(B) + beta C: each thread computes TM x TN elements as a sum of outer products, so that TM + TN
// reads of shared memory feed TM TN multiply-adds.
//
// Tile: a block owns BM x BN elements of C, a thread TM x TN adjoining ones, with threads in row-major order of their
// patches; blockIdx.z counts the products of a strided batch. The block iterates along k in panels of BK (panel.cuh).
// Preconditions: none; any m, n, k, any leading dimensions, all four layouts.
// Limit: loads from memory are of single words, and neighbouring threads read shared memory TN words apart, which
// causes bank conflicts. gemm/vectorised.cu fixes both.
#include "gemm/panel.cuh"

template <int BM, int BN, int BK, int TM, int TN, Op op_a, Op op_b>
__global__ void __launch_bounds__(BM *BN / (TM * TN), SGEMM_BLOCKS_PER_SM<TM, TN>)
    sgemm_blocktile2d(const float *__restrict__ a, const float *__restrict__ b, float *c, unsigned m,
                      unsigned n, unsigned k, float alpha, float beta, unsigned lda, unsigned ldb, unsigned ldc,
                      long long stride_a, long long stride_b, long long stride_c) {
  constexpr int THREADS = BM * BN / (TM * TN);
  __shared__ __align__(16) float smem_a[BK][BM + PAD];
  __shared__ __align__(16) float smem_b[BK][BN + PAD];
  const unsigned row0 = blockIdx.y * BM, col0 = blockIdx.x * BN;
  const unsigned row = threadIdx.x / (BN / TN) * TM, col = threadIdx.x % (BN / TN) * TN;
  a += blockIdx.z * stride_a;
  b += blockIdx.z * stride_b;
  c += blockIdx.z * stride_c;
  StagedPanel<BK, BM, THREADS, 1, flipped<op_a>> panel_a(a, row0, k, m, lda);
  StagedPanel<BK, BN, THREADS, 1, op_b> panel_b(b, col0, k, n, ldb);
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
      for (int i = 0; i < TM; ++i) left[i] = smem_a[kk][row + i];
#pragma unroll
      for (int j = 0; j < TN; ++j) right[j] = smem_b[kk][col + j];
#pragma unroll
      for (int i = 0; i < TM; ++i)
#pragma unroll
        for (int j = 0; j < TN; ++j) sums[i][j] += left[i] * right[j];
    }
    __syncthreads();  // all threads have read the panels before the next ones overwrite them
  }
#pragma unroll
  for (int i = 0; i < TM; ++i) {
    const unsigned at_row = row0 + row + i;
    if (at_row >= m) break;
#pragma unroll
    for (int j = 0; j < TN; ++j) {
      const unsigned at_col = col0 + col + j;
      if (at_col >= n) break;
      store_scaled(&c[offset<Op::N>(at_row, at_col, ldc)], sums[i][j], alpha, beta);
    }
  }
}
