// C = alpha op(A) op(B) + beta C: one thread per element of C, consecutive threads down a column.
//
// Tile: none; thread (x, y) of the grid owns C[x][y], z counts the products of a strided batch.
// Preconditions: none; any m, n, k, any leading dimensions, all four layouts.
// Limit: a warp's 32 threads write to 32 rows, and in NN and NT read A from 32 rows, so that each access moves 32
// sectors of which it uses 4 bytes. This is the price of the wrong axis: gemm/coalesced.cu differs in nothing else.
#include "common.cuh"

template <Op op_a, Op op_b>
__global__ void __launch_bounds__(256)
    sgemm_naive(const float *__restrict__ a, const float *__restrict__ b, float *__restrict__ c, unsigned m, unsigned n,
                unsigned k, float alpha, float beta, unsigned lda, unsigned ldb, unsigned ldc, long long stride_a,
                long long stride_b, long long stride_c) {
  const unsigned row = blockIdx.x * blockDim.x + threadIdx.x;
  const unsigned col = blockIdx.y * blockDim.y + threadIdx.y;
  if (row >= m || col >= n) return;
  a += blockIdx.z * stride_a;
  b += blockIdx.z * stride_b;
  c += blockIdx.z * stride_c;
  float sum = 0.0f;
  for (unsigned i = 0; i < k; ++i) sum += a[offset<op_a>(row, i, lda)] * b[offset<op_b>(i, col, ldb)];
  store_scaled(&c[offset<Op::N>(row, col, ldc)], sum, alpha, beta);
}
