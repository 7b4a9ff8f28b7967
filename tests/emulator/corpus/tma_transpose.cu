// b = a^T by tiles of 32 x 32: TMA into shared memory, turned there, and out again by TMA.
// bug 1 (async-proxy): what the threads wrote is not fenced before the store reads it
// bug 2 (race, uninitialised-read): no barrier between the threads' writes and the store
// bug 3 (copy-not-waited-for): the block ends before the store has read shared memory
// bug 4 (copy-not-waited-for): the store is not committed
// bug 5 (race): the tile is overwritten while the store may still read it
// bug 6 (race, copy-in-flight): the other tile is read before it has landed
// bug 7 (wrong): rows and columns of the store are confused
#include "common.cuh"
#include "ptx_hopper.cuh"

extern "C" __global__ void transpose(const __grid_constant__ TensorMap a, const __grid_constant__ TensorMap b) {
  __shared__ __align__(128) float from[32][32], to[32][32];
  __shared__ unsigned long long full;
  const unsigned barrier = ptx::smem_address(&full);
  const int row = int(blockIdx.y) * 32, col = int(blockIdx.x) * 32;
  if (threadIdx.x == 0) {
    ptx::mbarrier_init(barrier, 1);
    ptx::fence_mbarrier_init();
    ptx::mbarrier_arrive_expect_tx(barrier, sizeof from);
    ptx::tma_load(ptx::smem_address(from), &a, col, row, 0, barrier);
  }
  __syncthreads();
  if (BUG != 6) ptx::mbarrier_wait(barrier, 0);
  for (unsigned i = threadIdx.x; i < 1024; i += blockDim.x) to[i % 32][i / 32] = from[i / 32][i % 32];
  if (BUG != 1) ptx::fence_proxy_async();
  if (BUG != 2) __syncthreads();
  if (threadIdx.x == 0) {
    ptx::tma_store(&b, ptx::smem_address(to), BUG == 7 ? col : row, BUG == 7 ? row : col, 0);
    if (BUG != 4) ptx::tma_store_commit();
    if (BUG == 5) to[0][0] = 0.0f;
    if (BUG != 3) ptx::tma_store_wait_read<0>();
  }
}
