// Fragments: the elements of C that one thread owns where a block's tile is divided among warps.
//
// Warps are arranged in row-major order, each on WM x WN elements of the block's BM x BN. The 32 lanes of a warp have
// TM x TN elements each, in patches of 4 x 4; the first patches of all lanes adjoin, then the second ones, and so on. A
// warp thus reads WM + WN elements of the panels for WM WN multiply-adds, each read a float4 without bank conflicts, and
// the warps of a block share nothing but the panels.
// Lanes that differ in the lowest bit have the same rows, and lanes that differ in the next bits the same columns: the
// hardware serves 16 bytes a lane in two cycles where lanes n and n ^ 1, or n and n ^ 2, read one address, else in four.
#pragma once
#include "gemm/panel.cuh"

template <int BM, int BN, int BK, int WM, int WN, int TM, int TN>
struct Fragment {
  static constexpr int THREADS = 32 * (BM / WM) * (BN / WN);
  static constexpr int LANES_M = WM / TM, LANES_N = WN / TN, PAIRED = LANES_N == 1 ? 1 : 2;
  static_assert(LANES_M * LANES_N == 32, "the lanes of a warp fill its tile");
  float sums[TM][TN] = {};

  // Where sums[i][j] lies within the block's tile.
  static __device__ __forceinline__ unsigned row(int i) {
    const unsigned warp_id = threadIdx.x / 32, lane_id = threadIdx.x % 32;
    return warp_id / (BN / WN) * WM + (i / 4 * LANES_M + lane_id / PAIRED % LANES_M) * 4 + i % 4;
  }
  static __device__ __forceinline__ unsigned col(int j) {
    const unsigned warp_id = threadIdx.x / 32, lane_id = threadIdx.x % 32;
    const unsigned lane_n = lane_id % PAIRED + lane_id / (PAIRED * LANES_M) * PAIRED;
    return warp_id % (BN / WN) * WN + (j / 4 * LANES_N + lane_n) * 4 + j % 4;
  }

  // What the lane multiplies of one row of each panel.
  struct Factors {
    float left[TM], right[TN];
  };
  static __device__ __forceinline__ void load(Factors &factors, const float *row_a, const float *row_b) {
    row_a += row(0), row_b += col(0);
#pragma unroll
    for (int i = 0; i < TM / 4; ++i) load_pack<4>(&factors.left[4 * i], &row_a[4 * i * LANES_M]);
#pragma unroll
    for (int j = 0; j < TN / 4; ++j) load_pack<4>(&factors.right[4 * j], &row_b[4 * j * LANES_N]);
  }
  __device__ __forceinline__ void multiply(const Factors &factors) {
#pragma unroll
    for (int i = 0; i < TM; ++i)
#pragma unroll
      for (int j = 0; j < TN; ++j) sums[i][j] += factors.left[i] * factors.right[j];
  }

  // Adds the product of two panels.
  __device__ __forceinline__ void multiply(const float (*smem_a)[BM + PAD], const float (*smem_b)[BN + PAD]) {
#pragma unroll
    for (int kk = 0; kk < BK; ++kk) {
      Factors factors;
      load(factors, smem_a[kk], smem_b[kk]);
      multiply(factors);
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
