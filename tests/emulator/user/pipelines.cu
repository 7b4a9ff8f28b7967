// Kernels with the asynchronous copies and barriers of libcu++, as users write them.
#include <cooperative_groups.h>
#include <cuda/atomic>
#include <cuda/barrier>
#include <cuda/pipeline>
#include <cuda_pipeline.h>

namespace cg = cooperative_groups;

extern __shared__ float dynamic[];

__global__ void thread_pipeline(const float *x, float *y, int steps) {
  __shared__ float stage[2][64];
  auto pipe = cuda::make_pipeline();
  const auto fetch = [&](int step) {
    pipe.producer_acquire();
    cuda::memcpy_async(&stage[step % 2][threadIdx.x], x + step * 64 + threadIdx.x, sizeof(float), pipe);
    pipe.producer_commit();
  };
  float sum = 0.0f;
  fetch(0);
  for (int step = 0; step < steps; ++step) {
    if (step + 1 < steps) fetch(step + 1);
    pipe.consumer_wait();
    sum += stage[step % 2][threadIdx.x];
    pipe.consumer_release();
  }
  y[threadIdx.x] = sum;
}

__global__ void block_pipeline(const float *x, float *y, int steps) {
  __shared__ cuda::pipeline_shared_state<cuda::thread_scope_block, 2> state;
  auto block = cg::this_thread_block();
  auto pipe = cuda::make_pipeline(block, &state);
  float sum = 0.0f;
  for (int fetched = 0, step = 0; step < steps; ++step) {
    for (; fetched < steps && fetched < step + 2; ++fetched) {
      pipe.producer_acquire();
      cuda::memcpy_async(block, &dynamic[fetched % 2 * 64], x + fetched * 64, sizeof(float) * 64, pipe);
      pipe.producer_commit();
    }
    pipe.consumer_wait();
    sum += dynamic[step % 2 * 64 + 63 - threadIdx.x];
    pipe.consumer_release();
  }
  y[threadIdx.x] = sum;
}

__global__ void barriers(const float *x, float *y, int steps) {
  __shared__ float shared[64];
#pragma nv_diag_suppress static_var_with_dynamic_init
  __shared__ cuda::barrier<cuda::thread_scope_block> barrier;
  auto block = cg::this_thread_block();
  if (block.thread_rank() == 0) init(&barrier, block.size());
  block.sync();
  float sum = 0.0f;
  for (int step = 0; step < steps; ++step) {
    cuda::memcpy_async(block, shared, x + step * 64, sizeof(float) * 64, barrier);
    barrier.arrive_and_wait();
    sum += shared[63 - threadIdx.x];
    auto token = barrier.arrive();
    barrier.wait(std::move(token));
  }
  y[threadIdx.x] = sum;
}

__global__ void primitives(const float4 *x, float4 *y) {
  __shared__ float4 shared[32];
  __pipeline_memcpy_async(&shared[threadIdx.x], &x[threadIdx.x], sizeof(float4));
  __pipeline_commit();
  __pipeline_wait_prior(0);
  __syncthreads();
  y[threadIdx.x] = shared[31 - threadIdx.x];
}

__global__ void counters(const int *x, int *y, int n) {
  const int i = blockIdx.x * blockDim.x + threadIdx.x;
  cuda::atomic_ref<int, cuda::thread_scope_device> sum(y[0]);
  if (i < n) sum.fetch_add(x[i], cuda::memory_order_relaxed);
  cuda::atomic_thread_fence(cuda::memory_order_seq_cst, cuda::thread_scope_device);
  if (i < n) cuda::atomic_ref<int, cuda::thread_scope_device>(y[1]).fetch_max(x[i]);
}
