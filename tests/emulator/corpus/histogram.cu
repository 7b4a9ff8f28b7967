// Counts of bytes: a histogram a block in shared memory, then atomics to the whole.
// bug 1 (race): plain increments in shared memory
// bug 2 (race, uninitialised-read): no barrier follows the clearing
// bug 3 (uninitialised-read): the shared histogram is not cleared
// bug 4 (race): no barrier before the block's counts are added to the whole
// bug 5 (race): plain increments of the whole
extern "C" __global__ void histogram(const unsigned char *x, unsigned *counts, int n) {
  __shared__ unsigned local[16];
  if (BUG != 3 && threadIdx.x < 16) local[threadIdx.x] = 0;
#if BUG != 2
  __syncthreads();
#endif
  for (int i = blockIdx.x * blockDim.x + threadIdx.x; i < n; i += gridDim.x * blockDim.x) {
    if (BUG == 1)
      ++local[x[i] % 16];
    else
      atomicAdd(&local[x[i] % 16], 1u);
  }
#if BUG != 4
  __syncthreads();
#endif
  if (threadIdx.x >= 16) return;
  if (BUG == 5)
    counts[threadIdx.x] += local[threadIdx.x];
  else
    atomicAdd(&counts[threadIdx.x], local[threadIdx.x]);
}
