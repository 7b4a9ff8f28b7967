// y = x + rank: clusters of two; block 0 feeds a row at a time to both by multicast when both have emptied their slot.
// bug 1 (race, copy-in-flight): block 0 waits for its own consumers only
// bug 2 (mbarrier, early-exit): no cluster barrier follows the initialisation
// bug 3 (async-proxy): the initialised barriers are not fenced
// bug 4 (deadlock): the other block does not announce its bytes and never arrives
// bug 5 (deadlock): block 1 arrives at its own `empty` barrier instead of block 0's
// bug 6 (early-exit): block 0 may end before the other has arrived at its barrier for the last time
#include "common.cuh"
#include "ptx_hopper.cuh"

extern "C" __global__ void broadcast(const __grid_constant__ TensorMap x, float *y, int rows) {
  __shared__ __align__(128) float smem[32];
  __shared__ unsigned long long full, empty;
  const unsigned rank = ptx::cluster_rank(), t = threadIdx.x;
  const unsigned is_full = ptx::smem_address(&full), is_empty = ptx::smem_address(&empty);
  if (t == 0) {
    ptx::mbarrier_init(is_full, 1);
    ptx::mbarrier_init(is_empty, BUG == 1 ? 1 : 2);
    if (BUG != 3) ptx::fence_mbarrier_init();
  }
  if (BUG == 2) __syncthreads();
  else ptx::cluster_sync();
  for (unsigned row = 0; row < unsigned(rows); ++row) {
    if (t == 0) {
      if (rank == 0) ptx::mbarrier_wait(is_empty, row % 2 ^ 1);
      if (BUG != 4 || rank == 0) ptx::mbarrier_arrive_expect_tx(is_full, sizeof smem);
      if (rank == 0) ptx::tma_load_multicast(ptx::smem_address(smem), &x, 0, int(row), 0, is_full, 3);
    }
    ptx::mbarrier_wait(is_full, row % 2);
    y[(rank * rows + row) * 32 + t] = smem[t] + float(rank);
    __syncwarp();
    if (t == 0 && (BUG != 1 || rank == 0)) ptx::mbarrier_arrive_cluster(is_empty, BUG == 5 ? rank : 0);
  }
  if (BUG != 6) ptx::cluster_sync();
}
