// C = alpha op(A) op(B) + beta C: each thread computes a column of TM elements, so that an element of B is read from
// shared memory once for TM multiply-adds.
//
// Tile: a block of BM BN / TM threads owns BM x BN elements of C, a thread TM below one another; the threads of a warp
// lie side by side and read the same elements of A (broadcast) and neighbouring ones of B. blockIdx.z counts the
// products of a strided batch. The block iterates along k in panels of BK (panel.cuh).
// Preconditions: none; any m, n, k, any leading dimensions, all four layouts.
// Limit: 1 + 1/TM shared-memory loads for each multiply-add where A is read word by word, 1/4 + 1/TM where the compiler
// reads four rows at once; gemm/blocktile2d.cu also reuses an element of A for several columns.
#include "gemm/panel.cuh"

template <int BM, int BN, int BK, int TM, Op op_a, Op op_b>
__global__ void __launch_bounds__(BM *BN / TM)
    sgemm_blocktile1d(const float *__restrict__ a, const float *__restrict__ b, float *__restrict__ c, unsigned m,
                      unsigned n, unsigned k, float alpha, float beta, unsigned lda, unsigned ldb, unsigned ldc,
                      long long stride_a, long long stride_b, long long stride_c) {
  constexpr int THREADS = BM * BN / TM;
  __shared__ __align__(16) float smem_a[BK][BM + PAD];
  __shared__ __align__(16) float smem_b[BK][BN + PAD];
  const unsigned row0 = blockIdx.y * BM, col0 = blockIdx.x * BN;
  const unsigned row = threadIdx.x / BN * TM, col = threadIdx.x % BN;
  a += blockIdx.z * stride_a;
  b += blockIdx.z * stride_b;
  c += blockIdx.z * stride_c;
  StagedPanel<BK, BM, THREADS, 1, flipped<op_a>> panel_a(a, row0, k, m, lda);
  StagedPanel<BK, BN, THREADS, 1, op_b> panel_b(b, col0, k, n, ldb);
  float sums[TM] = {};
  for (unsigned k0 = 0; k0 < k; k0 += BK) {
    panel_a.fetch();
    panel_b.fetch();
    panel_a.stash(smem_a);
    panel_b.stash(smem_b);
    __syncthreads();  // the panels are complete
#pragma unroll
    for (int kk = 0; kk < BK; ++kk) {
      const float right = smem_b[kk][col];
#pragma unroll
      for (int i = 0; i < TM; ++i) sums[i] += smem_a[kk][row + i] * right;
    }
    __syncthreads();  // all threads have read the panels before the next ones overwrite them
  }
#pragma unroll
  for (int i = 0; i < TM; ++i) {
    const unsigned at_row = row0 + row + i, at_col = col0 + col;
    if (at_row < m && at_col < n) store_scaled(&c[offset<Op::N>(at_row, at_col, ldc)], sums[i], alpha, beta);
  }
}
