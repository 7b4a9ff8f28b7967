// C = alpha op(A) op(B) + beta C: one thread per element of C, consecutive threads along a row.
//
// Tile: none; thread (x, y) of the grid owns C[y][x], z counts the products of a strided batch.
// Preconditions: none; any m, n, k, any leading dimensions, all four layouts.
// Limit: the L1 cache's bandwidth: a warp reads one element of A (broadcast) and, in NN and TN, 32 neighbours of B for
// 32 multiply-adds; in NT and TT the warp still reads B from 32 rows.
#include "common.cuh"

template <Op op_a, Op op_b>
__global__ void __launch_bounds__(256)
    sgemm_coalesced(const float *__restrict__ a, const float *__restrict__ b, float *__restrict__ c, unsigned m,
                    unsigned n, unsigned k, float alpha, float beta, unsigned lda, unsigned ldb, unsigned ldc,
                    long long stride_a, long long stride_b, long long stride_c) {
  const unsigned row = blockIdx.y * blockDim.y + threadIdx.y;
  const unsigned col = blockIdx.x * blockDim.x + threadIdx.x;
  if (row >= m || col >= n) return;
  a += blockIdx.z * stride_a;
  b += blockIdx.z * stride_b;
  c += blockIdx.z * stride_c;
  float sum = 0.0f;
  for (unsigned i = 0; i < k; ++i) sum += a[offset<op_a>(row, i, lda)] * b[offset<op_b>(i, col, ldb)];
  store_scaled(&c[offset<Op::N>(row, col, ldc)], sum, alpha, beta);
}
