// The sum of n floats: shuffles within a warp, shared memory between warps, an atomic between blocks.
// bug 1 (uninitialised-read): reads the partial sums of warps that do not exist
// bug 2 (race): adds to the result without an atomic
// bug 3 (race, uninitialised-read): no barrier between the warps' partial sums and their sum
// bug 4 (warp-mask, shuffle): the shuffle's mask names half of the lanes that take part
// bug 5 (wrong): every lane adds to the result
extern "C" __global__ void reduce(const float *x, float *out, int n) {
  __shared__ float partial[32];
  constexpr unsigned all = BUG == 4 ? 0xffffu : 0xffffffffu;
  const unsigned lane = threadIdx.x % 32, warp = threadIdx.x / 32;
  float sum = 0.0f;
  for (int i = blockIdx.x * blockDim.x + threadIdx.x; i < n; i += gridDim.x * blockDim.x) sum += __ldg(x + i);
  for (int by = 16; by; by /= 2) sum += __shfl_down_sync(all, sum, by);
  if (lane == 0) partial[warp] = sum;
#if BUG != 3
  __syncthreads();
#endif
  if (warp != 0) return;
  sum = BUG == 1 || lane < blockDim.x / 32 ? partial[lane] : 0.0f;
  for (int by = 16; by; by /= 2) sum += __shfl_xor_sync(0xffffffffu, sum, by);
  if (BUG != 5 && lane != 0) return;
  if (BUG == 2)
    *out += sum;
  else
    atomicAdd(out, sum);
}
