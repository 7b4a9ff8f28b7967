// Barriers that reduce, geometry, the kinds of memory, and barriers of the grid.
#include "common.cuh"
#include <cooperative_groups.h>

extern "C" __global__ void reducing_barriers(const int *x, int *out) {
  const int t = threadIdx.x;
  out[t] = __syncthreads_count(x[t] > 0);
  out[blockDim.x + t] = __syncthreads_and(x[t] > -100) + 2 * __syncthreads_and(x[t] > 0);
  out[2 * blockDim.x + t] = __syncthreads_or(x[t] == 1) + 2 * __syncthreads_or(x[t] > 100);
}

extern "C" __global__ void geometry(int *out) {
  const unsigned block = (blockIdx.z * gridDim.y + blockIdx.y) * gridDim.x + blockIdx.x;
  const unsigned thread = (threadIdx.z * blockDim.y + threadIdx.y) * blockDim.x + threadIdx.x;
  const unsigned threads = blockDim.x * blockDim.y * blockDim.z;
  out[block * threads + thread] = int(threadIdx.x + 10 * threadIdx.y + 100 * threadIdx.z + 1000 * blockIdx.x +
                                      10000 * blockIdx.y + 100000 * blockIdx.z);
}

__constant__ float factors[4];
static __device__ const float offsets[4] = {10.0f, 20.0f, 30.0f, 40.0f};

template <class T, int COUNT>
__global__ void memories(const T *x, T *out) {
  __shared__ T fixed[COUNT];
  DYN_SHARED(T, dynamic);
  const int t = threadIdx.x;
  fixed[t] = __ldg(x + t);
  dynamic[t] = fixed[t] * T(factors[t % 4]);
  __syncthreads();
  out[t] = dynamic[COUNT - 1 - t] + T(offsets[t % 4]);
}

extern "C" __global__ void vectors(const float4 *x, const float2 *y, float4 *out) {
  const int t = threadIdx.x;
  const float4 a = x[t];
  const float2 b = y[t];
  out[t] = make_float4(a.x + b.x, a.y + b.y, a.z, a.w);
}

// Each block hands its value, kept in shared memory and in a register, to the next block, `steps` times.
extern "C" __global__ void ring(const int *x, int *cells, int *out, int steps) {
  __shared__ int mine;
  const auto grid = cooperative_groups::this_grid();
  int own = x[blockIdx.x];
  if (threadIdx.x == 0) mine = own;
  for (int step = 0; step < steps; ++step) {
    __syncthreads();
    if (threadIdx.x == 0) cells[blockIdx.x] = mine;
    grid.sync();
    if (threadIdx.x == 0) mine = cells[(blockIdx.x + 1) % gridDim.x];
    grid.sync();
  }
  __syncthreads();
  out[blockIdx.x * blockDim.x + threadIdx.x] = mine * 100 + own;
}
