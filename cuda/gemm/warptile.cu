// C = alpha op(A) op(B) + beta C: each warp has its own tile, and shared memory is double-buffered, so that the next
// panels are loaded from memory while the present ones are multiplied.
//
// Tile: a block owns BM x BN elements of C, a warp WM x WN of them, a lane TM x TN (fragment.cuh); blockIdx.z counts
// the products of a strided batch. In each step along k a thread fetches its part of the next panels into registers,
// multiplies, and stashes what has arrived in the other half of shared memory, with one barrier per step.
// Preconditions: W = 4 requires the leading dimensions and the lengths of all stored rows to be multiples of 4, and
// pointers aligned to 16 bytes; W = 1 takes every problem. The plan chooses W before launch.
// Limit: one step is fetched ahead, through registers that the product could use. gemm/async.cu uses no registers for
// it.
#include "gemm/fragment.cuh"

template <int BM, int BN, int BK, int WM, int WN, int TM, int TN, int W, Op op_a, Op op_b>
__global__ void __launch_bounds__(32 * (BM / WM) * (BN / WN))
    sgemm_warptile(const float *__restrict__ a, const float *__restrict__ b, float *c, unsigned m,
                   unsigned n, unsigned k, float alpha, float beta, unsigned lda, unsigned ldb, unsigned ldc,
                   long long stride_a, long long stride_b, long long stride_c) {
  using Tile = Fragment<BM, BN, BK, WM, WN, TM, TN>;
  __shared__ __align__(16) float smem_a[2][BK][BM + PAD];
  __shared__ __align__(16) float smem_b[2][BK][BN + PAD];
  const unsigned row0 = blockIdx.y * BM, col0 = blockIdx.x * BN;
  a += blockIdx.z * stride_a;
  b += blockIdx.z * stride_b;
  c += blockIdx.z * stride_c;
  StagedPanel<BK, BM, Tile::THREADS, W, flipped<op_a>> panel_a(a, row0, k, m, lda);
  StagedPanel<BK, BN, Tile::THREADS, W, op_b> panel_b(b, col0, k, n, ldb);
  Tile tile;
  panel_a.fetch();
  panel_b.fetch();
  panel_a.stash(smem_a[0]);
  panel_b.stash(smem_b[0]);
  __syncthreads();  // the first panels are complete
  unsigned half = 0;
  for (unsigned k0 = 0; k0 < k; k0 += BK) {
    // Past the last step this fetches zeros and reads nothing.
    panel_a.fetch();
    panel_b.fetch();
    tile.multiply(smem_a[half], smem_b[half]);
    half ^= 1;
    panel_a.stash(smem_a[half]);
    panel_b.stash(smem_b[half]);
    __syncthreads();  // the next panels are complete, and the present ones free
  }
  tile.template store<W>(c, row0, col0, m, n, ldc, alpha, beta);
}
