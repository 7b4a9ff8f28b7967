// Inclusive prefix sums of one block, after Hillis and Steele.
// bug 1 (race): one barrier a step where two are needed
// bug 2 (race): no barrier at all
// bug 3 (out-of-bounds): reads left of the first element
extern "C" __global__ void scan(const float *x, float *out) {
  __shared__ float sums[64];
  const int t = threadIdx.x;
  sums[t] = x[t];
#if BUG != 2
  __syncthreads();
#endif
  for (int by = 1; by < 64; by *= 2) {
    const float other = BUG == 3 || t >= by ? sums[t - by] : 0.0f;
#if BUG != 1 && BUG != 2
    __syncthreads();
#endif
    sums[t] += other;
#if BUG != 2
    __syncthreads();
#endif
  }
  out[t] = sums[t];
}
