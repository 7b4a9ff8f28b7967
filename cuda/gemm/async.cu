// C = alpha op(A) op(B) + beta C: panels are copied to shared memory asynchronously, STAGES - 1 steps ahead, and take
// no registers, which leaves room for larger fragments.
//
// Tile: a block owns BM x BN elements of C, a warp WM x WN of them, a lane TM x TN (fragment.cuh); blockIdx.z counts
// the products of a strided batch. The main loop is in pipeline.cuh and has one barrier per step.
// Preconditions: compute capability 8.0. W = 4 requires the leading dimensions and the lengths of all stored rows to be
// multiples of 4, and pointers aligned to 16 bytes; W = 1 takes every problem. The plan chooses W before launch.
// Limit: FFMA issue, as long as there are enough tiles to fill the device; gemm/splitk.cu is for problems with few.
#include "gemm/pipeline.cuh"

template <int BM, int BN, int BK, int WM, int WN, int TM, int TN, int STAGES, int W, Op op_a, Op op_b,
          bool WHOLE>
__global__ void __launch_bounds__(32 * (BM / WM) * (BN / WN), SGEMM_BLOCKS_PER_SM<TM, TN>)
    sgemm_async(const float *__restrict__ a, const float *__restrict__ b, float *c, unsigned m,
                unsigned n, unsigned k, float alpha, float beta, unsigned lda, unsigned ldb, unsigned ldc,
                long long stride_a, long long stride_b, long long stride_c) {
  using Loop = Pipeline<BM, BN, BK, WM, WN, TM, TN, STAGES, W, op_a, op_b, WHOLE>;
  DYN_SHARED(float, smem);
  const unsigned row0 = blockIdx.y * BM, col0 = blockIdx.x * BN;
  const Loop loop{a + blockIdx.z * stride_a, b + blockIdx.z * stride_b, m, n, lda, ldb};
  typename Loop::Tile tile;
  loop.accumulate(tile, smem, row0, col0, k);
  tile.template store<W>(c + blockIdx.z * stride_c, row0, col0, m, n, ldc, alpha, beta);
}
