// C = alpha op(A) op(B) + beta C: k is cut into slices, each multiplied by its own blocks, so that a product with few
// tiles and a long k fills the device too. A second launch adds the slices.
//
// Tile: a block owns BM x BN elements of one slice's product (pipeline.cuh), which it stores to
// partial[product][slice], m x n without gaps, or to C where there is one slice; blockIdx.z counts products times
// slices. In sgemm_splitk_sum a thread owns one element of C and adds its slices in ascending order, so that a result
// never depends on which block came first.
// Preconditions: compute capability 8.0; slice is a multiple of BK and slices * slice >= k. W as in gemm/async.cu.
// Limit: partial sums are written and read once, 8 slices m n bytes, which is negligible beside the product as long as
// a slice is some hundred steps deep.
#include "gemm/pipeline.cuh"

template <int BM, int BN, int BK, int WM, int WN, int TM, int TN, int STAGES, int W, Op op_a, Op op_b,
          bool WHOLE>
__global__ void __launch_bounds__(32 * (BM / WM) * (BN / WN), SGEMM_BLOCKS_PER_SM<TM, TN>)
    sgemm_splitk(const float *__restrict__ a, const float *__restrict__ b, float *to, unsigned ldt, long long stride_t,
                 float alpha, float beta, unsigned m, unsigned n, unsigned k, unsigned lda, unsigned ldb,
                 long long stride_a, long long stride_b, unsigned slice, unsigned slices) {
  using Loop = Pipeline<BM, BN, BK, WM, WN, TM, TN, STAGES, W, op_a, op_b, WHOLE>;
  DYN_SHARED(float, smem);
  const unsigned row0 = blockIdx.y * BM, col0 = blockIdx.x * BN;
  const unsigned product = blockIdx.z / slices, k0 = blockIdx.z % slices * slice;
  a += product * stride_a + offset<op_a>(0, k0, lda);
  b += product * stride_b + offset<op_b>(k0, 0, ldb);
  const Loop loop{a, b, m, n, lda, ldb};
  typename Loop::Tile tile;
  loop.accumulate(tile, smem, row0, col0, min(k - k0, slice));
  tile.template store<W>(to + blockIdx.z * stride_t, row0, col0, m, n, ldt, alpha, beta);
}

__global__ void __launch_bounds__(256)
    sgemm_splitk_sum(const float *__restrict__ partial, float *__restrict__ c, unsigned m, unsigned n, unsigned slices,
                     float alpha, float beta, unsigned ldc, long long stride_c) {
  const unsigned row = blockIdx.y * blockDim.y + threadIdx.y, col = blockIdx.x * blockDim.x + threadIdx.x;
  if (row >= m || col >= n) return;
  partial += size_t(blockIdx.z) * slices * m * n + offset<Op::N>(row, col, n);
  float sum = 0.0f;
  for (unsigned i = 0; i < slices; ++i) sum += partial[size_t(i) * m * n];
  store_scaled(&c[blockIdx.z * stride_c + offset<Op::N>(row, col, ldc)], sum, alpha, beta);
}
