// Fragments: the elements of C that one thread owns where a block's tile is divided among warps.
//
// Warps are arranged in row-major order, each on WM x WN elements of the block's BM x BN. The 32 lanes of a warp are
// arranged in row-major order within that, each with TM x TN elements in patches of 4 x 4; the first patches of all
// lanes adjoin, then the second ones, and so on. A warp thus reads WM + WN elements of the panels for WM WN
// multiply-adds, each read a float4 without bank conflicts, and the warps of a block share nothing but the panels.
#pragma once
#include "gemm/panel.cuh"

template <int BM, int BN, int BK, int WM, int WN, int TM, int TN>
struct Fragment {
  static constexpr int THREADS = 32 * (BM / WM) * (BN / WN);
  static constexpr int LANES_M = WM / TM, LANES_N = WN / TN;
  static_assert(LANES_M * LANES_N == 32, "the lanes of a warp fill its tile");
  float sums[TM][TN] = {};

  // Where sums[i][j] lies within the block's tile.
  static __device__ __forceinline__ unsigned row(int i) {
    const unsigned warp_id = threadIdx.x / 32, lane_id = threadIdx.x % 32;
    return warp_id / (BN / WN) * WM + (i / 4 * LANES_M + lane_id / LANES_N) * 4 + i % 4;
  }
  static __device__ __forceinline__ unsigned col(int j) {
    const unsigned warp_id = threadIdx.x / 32, lane_id = threadIdx.x % 32;
    return warp_id % (BN / WN) * WN + (j / 4 * LANES_N + lane_id % LANES_N) * 4 + j % 4;
  }

  // Adds the product of two panels.
  __device__ __forceinline__ void multiply(const float (*smem_a)[BM + PAD], const float (*smem_b)[BN + PAD]) {
#pragma unroll
    for (int kk = 0; kk < BK; ++kk) {
      float left[TM], right[TN];
#pragma unroll
      for (int i = 0; i < TM / 4; ++i) load_pack<4>(&left[4 * i], &smem_a[kk][row(4 * i)]);
#pragma unroll
      for (int j = 0; j < TN / 4; ++j) load_pack<4>(&right[4 * j], &smem_b[kk][col(4 * j)]);
#pragma unroll
      for (int i = 0; i < TM; ++i)
#pragma unroll
        for (int j = 0; j < TN; ++j) sums[i][j] += left[i] * right[j];
    }
  }

  // The block's tile begins at row0, col0 of C, which has m x n elements. Rows and columns ascend with i and j, so all
  // elements after the first one outside are outside too; leaving the loop there saves a predicate per element.
  template <int W>
  __device__ __forceinline__ void store(float *c, unsigned row0, unsigned col0, unsigned m, unsigned n, unsigned ldc,
                                        float alpha, float beta) const {
    float *first = c + offset<Op::N>(row0 + row(0), col0 + col(0), ldc);
#pragma unroll
    for (int i = 0; i < TM; ++i) {
      if (row0 + row(i) >= m) return;
      float *line = first + size_t(row(i) - row(0)) * ldc;
#pragma unroll
      for (int j = 0; j < TN; j += W) {
        if (col0 + col(j) >= n) break;
        store_scaled_pack<W>(&line[col(j) - col(0)], &sums[i][j], alpha, beta);
      }
    }
  }
};
