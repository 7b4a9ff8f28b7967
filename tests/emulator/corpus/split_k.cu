// y = A x with k split over blocks that add their parts.
// bug 1 (race): adds without an atomic
// bug 2 (race): each part is stored, the last one wins
// bug 3 (wrong): the parts overlap by one element
extern "C" __global__ void gemv(const float *a, const float *x, float *y, int m, int k) {
  const int row = blockIdx.x * blockDim.x + threadIdx.x, part = (k + gridDim.y - 1) / gridDim.y;
  if (row >= m) return;
  const int begin = blockIdx.y * part, end = min(begin + part + (BUG == 3 ? 1 : 0), k);
  float sum = 0.0f;
  for (int i = begin; i < end; ++i) sum += a[row * k + i] * x[i];
#if BUG == 1
  y[row] += sum;
#elif BUG == 2
  y[row] = sum;
#else
  atomicAdd(&y[row], sum);
#endif
}
