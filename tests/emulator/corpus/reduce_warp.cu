// The sum of 64 floats by one warp through shared memory.
// bug 1 (race): no __syncwarp, as before Volta
// bug 2 (race): one __syncwarp of two
extern "C" __global__ void reduce(const float *x, float *out) {
  __shared__ float values[64];
  const int t = threadIdx.x;
  values[t] = x[t];
  __syncthreads();
  if (t >= 32) return;
  float sum = values[t] + values[t + 32];
#if BUG != 1
  __syncwarp();
#endif
  for (int by = 16; by; by /= 2) {
    values[t] = sum;
#if BUG != 1
    __syncwarp();
#endif
    sum += values[t + by];
#if BUG != 1 && BUG != 2
    __syncwarp();
#endif
  }
  if (t == 0) *out = sum;
}
