// y = x by boxes of 32 floats, one at a time through one barrier.
// bug 1 (mbarrier): the barrier is initialised anew for each row
// bug 2 (mbarrier): a store resets the barrier
// bug 3 (mbarrier): a load reads the barrier's word
// bug 4 (mbarrier): the box lands on the barrier
// bug 5 (mbarrier): elements are announced, not bytes
// bug 6 (mbarrier): more bytes are announced than a barrier can count
#include "common.cuh"
#include "ptx_hopper.cuh"

extern "C" __global__ void copy(const __grid_constant__ TensorMap x, float *y, int rows) {
  __shared__ __align__(128) unsigned char smem[512];
  unsigned long long *full = reinterpret_cast<unsigned long long *>(smem + (BUG == 4 ? 64 : 256));
  const float *row_of_x = reinterpret_cast<const float *>(smem);
  const unsigned barrier = ptx::smem_address(full), t = threadIdx.x;
  if (t == 0) {
    ptx::mbarrier_init(barrier, 1);
    ptx::fence_mbarrier_init();
  }
  __syncthreads();
  for (unsigned row = 0; row < unsigned(rows); ++row) {
    if (t == 0) {
      if (BUG == 1 && row > 0) ptx::mbarrier_init(barrier, 1);
      if (BUG == 2 && row > 0) *full = 0;
      if (BUG == 3 && row > 0 && *full == 7) y[0] = 0.0f;
      ptx::mbarrier_arrive_expect_tx(barrier, BUG == 5 ? 32 : BUG == 6 ? 1 << 20 : 128);
      ptx::tma_load(ptx::smem_address(smem), &x, 0, int(row), 0, barrier);
    }
    ptx::mbarrier_wait(barrier, row % 2);
    y[row * 32 + t] = row_of_x[t];
    __syncthreads();
  }
}
