// y = a x + y in half precision, two elements a thread.
// bug 1 (misaligned): the pairs begin at an odd element
// bug 2 (race): neighbouring threads overlap by one element of two bytes
// bug 3 (out-of-bounds): an odd last element is taken for a pair
#include <cuda_fp16.h>

extern "C" __global__ void haxpy(__half a, const __half *x, __half *y, int n) {
  const int i = 2 * (blockIdx.x * blockDim.x + threadIdx.x);
#if BUG == 2
  if (i < n) y[i] = __hfma(a, x[i], y[i]);
  if (i + 1 < n) y[i + 1] = __hfma(a, x[i + 1], y[i + 1]);
  if (i + 2 < n) y[i + 2] = y[i + 2] + __half(0.0f);
#else
  const int first = BUG == 1 ? i + 1 : i;
  if (first + (BUG == 3 ? 0 : 1) < n) {
    const __half2 pair = *reinterpret_cast<const __half2 *>(x + first);
    __half2 *to = reinterpret_cast<__half2 *>(y + first);
    *to = __hfma2(__half2half2(a), pair, *to);
  } else if (i < n) {
    y[i] = __hfma(a, x[i], y[i]);
  }
#endif
}
