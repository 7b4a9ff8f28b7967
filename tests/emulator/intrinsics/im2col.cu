// A copy of pixels by the TMA, as its bytes lie in shared memory.
#include "common.cuh"
#include "ptx_hopper.cuh"

extern "C" __global__ void load_pixels(const __grid_constant__ TensorMap map, unsigned *out, int channel, int column,
                                       int row, int image, int right, int down, int bytes) {
  __shared__ __align__(1024) unsigned smem[4096];
  __shared__ unsigned long long full;
  const unsigned barrier = ptx::smem_address(&full);
  if (threadIdx.x == 0) {
    ptx::mbarrier_init(barrier, 1);
    ptx::fence_mbarrier_init();
    ptx::mbarrier_arrive_expect_tx(barrier, unsigned(bytes));
    ptx::tma_load_im2col(ptx::smem_address(smem), &map, channel, column, row, image, static_cast<unsigned short>(right),
                         static_cast<unsigned short>(down), barrier);
  }
  __syncthreads();
  ptx::mbarrier_wait(barrier, 0);
  for (unsigned i = threadIdx.x; i < unsigned(bytes) / 4; i += blockDim.x) out[i] = smem[i];
}
