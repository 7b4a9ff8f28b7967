// Products of matrices as users write them: by wmma, and by copies that a pipeline or inline assembly waits for.
#include <cuda_fp16.h>
#include <cuda/pipeline>
#include <cuda/std/type_traits>
#include <mma.h>

using namespace nvcuda;

// C = A B + C of whole tiles: a warp a tile of 16 x 16, staged in shared memory by the block's four warps.
__global__ void wmma_gemm(const half *a, const half *b, float *c, int m, int n, int k) {
  __shared__ half smem_a[32][16 + 8], smem_b[16][32 + 8];
  const int warp = threadIdx.x / warpSize, row0 = blockIdx.y * 32, col0 = blockIdx.x * 32;
  wmma::fragment<wmma::accumulator, 16, 16, 16, float> acc;
  wmma::load_matrix_sync(acc, c + (row0 + warp / 2 * 16) * n + col0 + warp % 2 * 16, n, wmma::mem_row_major);
  for (int k0 = 0; k0 < k; k0 += 16) {
    for (int i = threadIdx.x; i < 32 * 16; i += blockDim.x) {
      smem_a[i / 16][i % 16] = a[(row0 + i / 16) * k + k0 + i % 16];
      smem_b[i / 32][i % 32] = b[(k0 + i / 32) * n + col0 + i % 32];
    }
    __syncthreads();
    wmma::fragment<wmma::matrix_a, 16, 16, 16, half, wmma::row_major> fa;
    wmma::fragment<wmma::matrix_b, 16, 16, 16, half, wmma::row_major> fb;
    wmma::load_matrix_sync(fa, &smem_a[warp / 2 * 16][0], 16 + 8);
    wmma::load_matrix_sync(fb, &smem_b[0][warp % 2 * 16], 32 + 8);
    wmma::mma_sync(acc, fa, fb, acc);
    __syncthreads();
  }
  for (int i = 0; i < acc.num_elements; ++i) acc.x[i] = acc.x[i] > 0.0f ? acc.x[i] : 0.01f * acc.x[i];
  wmma::store_matrix_sync(c + (row0 + warp / 2 * 16) * n + col0 + warp % 2 * 16, acc, n, wmma::mem_row_major);
}

// C = A B, a tile of 16 x 16 a block, copied two steps ahead by inline assembly.
template <int STAGES> __device__ void cp_async_body(const float *a, const float *b, float *c, int m, int n, int k) {
  __shared__ float smem_a[STAGES][16][16], smem_b[STAGES][16][16];
  const int tx = threadIdx.x, ty = threadIdx.y, row = blockIdx.y * 16 + ty, col = blockIdx.x * 16 + tx;
  auto fetch = [&](int stage, int k0) {
    const unsigned to_a = (unsigned)__cvta_generic_to_shared(&smem_a[stage][ty][tx]);
    const unsigned to_b = (unsigned)__cvta_generic_to_shared(&smem_b[stage][ty][tx]);
    const int left_a = row < m && k0 + tx < k ? 4 : 0, left_b = col < n && k0 + ty < k ? 4 : 0;
    asm volatile("cp.async.ca.shared.global [%0], [%1], 4, %2;\n" ::"r"(to_a), "l"(left_a ? a + row * k + k0 + tx : a),
                 "r"(left_a));
    asm volatile("cp.async.ca.shared.global [%0], [%1], 4, %2;\n" ::"r"(to_b), "l"(left_b ? b + (k0 + ty) * n + col : b),
                 "r"(left_b));
  };
  const int steps = (k + 15) / 16;
  for (int s = 0; s < STAGES - 1; ++s) {
    if (s < steps) fetch(s, s * 16);
    asm volatile("cp.async.commit_group;\n");
  }
  float sum = 0.0f;
  for (int step = 0; step < steps; ++step) {
    asm volatile("cp.async.wait_group %0;\n" ::"n"(STAGES - 2));
    __syncthreads();
    if (step + STAGES - 1 < steps) fetch((step + STAGES - 1) % STAGES, (step + STAGES - 1) * 16);
    asm volatile("cp.async.commit_group;\n");
#pragma unroll
    for (int i = 0; i < 16; ++i) sum = fmaf(smem_a[step % STAGES][ty][i], smem_b[step % STAGES][i][tx], sum);
  }
  if (row < m && col < n) c[row * n + col] = sum;
}
__global__ void cp_async_gemm(const float *a, const float *b, float *c, int m, int n, int k) {
  cp_async_body<3>(a, b, c, m, n, k);
}

// C = A B of whole tiles by a pipeline with two stages of the whole block.
__global__ void pipeline_gemm(const float *a, const float *b, float *c, int n, int k) {
  constexpr int T = 16, STAGES = 2;
  __shared__ alignas(16) float smem_a[STAGES][T * T], smem_b[STAGES][T * T];
  const int thread = threadIdx.y * T + threadIdx.x;
  cuda::pipeline<cuda::thread_scope_thread> pipe = cuda::make_pipeline();
  auto fetch = [&](int step) {
    pipe.producer_acquire();
    const int row = thread / 4, part = thread % 4 * 4;
    if (row < T) {
      cuda::memcpy_async(&smem_a[step % STAGES][row * T + part], &a[(blockIdx.y * T + row) * k + step * T + part],
                         cuda::aligned_size_t<16>(16), pipe);
      cuda::memcpy_async(&smem_b[step % STAGES][row * T + part], &b[(step * T + row) * n + blockIdx.x * T + part],
                         cuda::aligned_size_t<16>(16), pipe);
    }
    pipe.producer_commit();
  };
  float sum = 0.0f;
  fetch(0);
  for (int step = 0; step < k / T; ++step) {
    if (step + 1 < k / T) fetch(step + 1);
    if (step + 1 < k / T) cuda::pipeline_consumer_wait_prior<1>(pipe);
    else cuda::pipeline_consumer_wait_prior<0>(pipe);
    __syncthreads();
    for (int i = 0; i < T; ++i) sum += smem_a[step % STAGES][threadIdx.y * T + i] * smem_b[step % STAGES][i * T + threadIdx.x];
    __syncthreads();
    pipe.consumer_release();
  }
  c[(blockIdx.y * T + threadIdx.y) * n + blockIdx.x * T + threadIdx.x] = sum;
}

// A row of attention for each warp: scores, their softmax as they come, and the weighted sum of V.
__global__ void attention(const float *q, const float *k, const float *v, float *o, int keys, float scale) {
  constexpr int D = 64;
  const int lane = threadIdx.x % 32, row = blockIdx.x * (blockDim.x / 32) + threadIdx.x / 32;
  const float2 own = reinterpret_cast<const float2 *>(q + row * D)[lane];
  float most = -INFINITY, sum = 0.0f;
  float2 acc = make_float2(0.0f, 0.0f);
  for (int j = 0; j < keys; ++j) {
    const float2 key = reinterpret_cast<const float2 *>(k + j * D)[lane];
    float score = own.x * key.x + own.y * key.y;
    for (int offset = 16; offset; offset >>= 1) score += __shfl_xor_sync(0xffffffff, score, offset);
    score *= scale;
    const float larger = fmaxf(most, score), correction = __expf(most - larger), p = __expf(score - larger);
    const float2 value = reinterpret_cast<const float2 *>(v + j * D)[lane];
    acc = make_float2(acc.x * correction + p * value.x, acc.y * correction + p * value.y);
    sum = sum * correction + p;
    most = larger;
  }
  reinterpret_cast<float2 *>(o + row * D)[lane] = make_float2(acc.x / sum, acc.y / sum);
}
