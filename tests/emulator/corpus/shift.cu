// Each thread takes its left (RIGHT: right) neighbour's value.
// bug 1 (race, uninitialised-read): no barrier: hidden where threads happen to run from left to right
// bug 2 (race, uninitialised-read): no barrier, neighbours from the right: hidden where they run from right to left
// bug 3 (out-of-bounds): the array is one element too short
extern "C" __global__ void shift(const float *x, float *out, int n) {
  __shared__ float values[BUG == 3 ? 95 : 96];
  const int t = threadIdx.x;
  values[t] = x[t];
#if BUG == 0 || BUG == 3
  __syncthreads();
#endif
#if BUG == 2
  out[n - 1 - t] = t + 1 < n ? values[t + 1] : 0.0f;
#else
  out[t] = t ? values[t - 1] : 0.0f;
#endif
}
