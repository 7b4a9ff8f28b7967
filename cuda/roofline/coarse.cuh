// Shared by the kernels of ceilings: the values that they compute with, and where accumulators of tensor cores lie.
#pragma once
#include "common.cuh"

// A multiple of 1/4 and never 0, from a value in [-1, 1]. Sums of products of such values are exact, so that a step
// that is left out, or done twice, gives a wrong result.
__device__ __forceinline__ float coarse(float x) { return 0.5f * floorf(2.0f * x) + 0.25f; }
__device__ __forceinline__ double coarse(double x) { return 0.5 * floor(2.0 * x) + 0.25; }

// Accumulators are numbered tile by tile, 16 x 8 by rows in each; `a` is 16 x 16 and `b` 16 x 8, and both are read
// repeatedly.
constexpr unsigned PERIOD = 16, ROWS = 16, COLS = 8;

// The number of a lane's e-th accumulator of a tile: mma.sync's fragment of D, which wgmma's repeats.
__device__ __forceinline__ unsigned accumulator(unsigned tile, unsigned e) {
  const unsigned lane = threadIdx.x % 32, row = lane / 4 + 8 * (e / 2), col = 2 * (lane % 4) + e % 2;
  return (tile * ROWS + row) * COLS + col;
}

// Loads this lane's four accumulators of a tile; those from n on do not exist.
__device__ __forceinline__ void load_tile(float *sums, const float *__restrict__ x, unsigned tile, unsigned n) {
#pragma unroll
  for (unsigned e = 0; e < 4; ++e) sums[e] = accumulator(tile, e) < n ? coarse(x[accumulator(tile, e)]) : 0.0f;
}
__device__ __forceinline__ void store_tile(float *__restrict__ d, const float *sums, unsigned tile, unsigned n) {
#pragma unroll
  for (unsigned e = 0; e < 4; ++e)
    if (accumulator(tile, e) < n) d[accumulator(tile, e)] = sums[e];
}

// An element of a (row, s) or b (s, col), s steps into a period; 0 from step `limit` on, which adds nothing.
template <class T>
__device__ __forceinline__ T element_a(const T *__restrict__ a, unsigned row, unsigned s, unsigned limit) {
  return s < limit ? T(coarse(float(a[row % ROWS * PERIOD + s % PERIOD]))) : T(0.0f);
}
template <class T>
__device__ __forceinline__ T element_b(const T *__restrict__ b, unsigned s, unsigned col) {
  return T(coarse(float(b[s % PERIOD * COLS + col % COLS])));
}
