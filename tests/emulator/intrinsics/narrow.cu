// Conversions and arithmetic of the 16-bit types; T is __half or __nv_bfloat16, N the number of elements.
#include <cuda_bf16.h>
#include <cuda_fp16.h>

template <class T>
__global__ void widen(const T *x, float *out, int n) {
  for (int i = threadIdx.x; i < n; i += blockDim.x) out[i] = float(x[i]);
}

template <class T, class From>
__global__ void round_to(const From *x, T *out, int n) {
  for (int i = threadIdx.x; i < n; i += blockDim.x) out[i] = T(x[i]);
}

template <class T>
__global__ void arithmetic(const T *x, const T *y, const T *z, T *out, int n) {
  for (int i = threadIdx.x; i < n; i += blockDim.x) {
    out[i] = __hadd(x[i], y[i]);
    out[n + i] = x[i] - y[i];
    out[2 * n + i] = __hmul(x[i], y[i]);
    out[3 * n + i] = x[i] / y[i];
    out[4 * n + i] = __hfma(x[i], y[i], z[i]);
    out[5 * n + i] = __hmax(x[i], y[i]);
    out[6 * n + i] = -__habs(x[i]);
  }
}

extern "C" __global__ void pairs(const __half2 *x, const __half2 *y, __half2 *out, float2 *wide) {
  const int i = threadIdx.x;
  out[i] = __hfma2(x[i], y[i], __halves2half2(__high2half(x[i]), __low2half(x[i])));
  wide[i] = __half22float2(__hadd2(x[i], y[i]));
}
