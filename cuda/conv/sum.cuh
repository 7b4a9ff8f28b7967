// The second launch of kernels that divide a sum: it adds the slices in ascending order, so that a result never depends
// on which block came first. A thread owns one of the `count` elements.
#pragma once
#include "conv/scalar.cuh"

constexpr unsigned SUM_THREADS = 256;

template <class T>
__global__ void __launch_bounds__(SUM_THREADS)
    conv_sum(const float *__restrict__ partial, T *__restrict__ out, long long count, unsigned slices) {
  const long long element = static_cast<long long>(blockIdx.x) * SUM_THREADS + threadIdx.x;
  if (element >= count) return;
  float sum = 0.0f;
  for (unsigned slice = 0; slice < slices; ++slice) sum += partial[slice * count + element];
  store_sum(&out[element], sum);
}
