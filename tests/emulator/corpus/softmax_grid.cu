// x / sum(x) by a cooperative grid: partial sums of blocks, a grid-wide barrier, then every block reads them all.
// bug 1 (uninitialised-read, race): no barrier between the blocks' sums and their use
// bug 2 (uninitialised-read, race): a barrier of the block where one of the grid is needed
// bug 3 (deadlock): one block does not come to the barrier of the grid
#include <cooperative_groups.h>

extern "C" __global__ void normalise(const float *x, float *partial, float *out, int n) {
  __shared__ float values[64];
  const int t = threadIdx.x, i = blockIdx.x * 64 + t;
  values[t] = i < n ? x[i] : 0.0f;
  __syncthreads();
  if (t == 0) {
    float sum = 0.0f;
    for (int j = 0; j < 64; ++j) sum += values[j];
    partial[blockIdx.x] = sum;
  }
#if BUG == 2
  __syncthreads();
#elif BUG == 3
  if (blockIdx.x != 1 || t != 5) cooperative_groups::this_grid().sync();
#elif BUG != 1
  cooperative_groups::this_grid().sync();
#endif
  float total = 0.0f;
  for (unsigned b = 0; b < gridDim.x; ++b) total += partial[b];
  __syncthreads();
  if (i < n) out[i] = values[t] / total;
}
