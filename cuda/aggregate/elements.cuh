// The elements of a block that a lane of a warp has: packs of V neighbours, 32 V elements apart.
#pragma once
#include "common.cuh"
#include "gemm/pack.cuh"

namespace {

constexpr unsigned EVERY_LANE = 0xffffffff;

__device__ __forceinline__ unsigned lane_id() { return threadIdx.x % 32; }

// Whether the lane's element k is one of `left`.
template <unsigned V>
__device__ __forceinline__ bool is_held(unsigned k, size_t left) {
  return 32 * (k - k % V) + lane_id() * V + k % V < left;
}

// Adds the lane's elements of the block at `from` to x. The row has `left` elements from there on, in whole packs.
template <unsigned V, unsigned COUNT>
__device__ __forceinline__ void add_elements(float (&x)[COUNT], const float *from, size_t left) {
#pragma unroll
  for (unsigned k = 0; k < COUNT; k += V) {
    const unsigned at = 32 * k + lane_id() * V;
    Pack<float, V> pack = {};
    if (at < left) pack = *reinterpret_cast<const Pack<float, V> *>(from + at);
#pragma unroll
    for (unsigned v = 0; v < V; ++v) x[k + v] += pack.e[v];
  }
}

// Stores the lane's elements of a block that begins at `to`.
template <unsigned V, unsigned COUNT>
__device__ __forceinline__ void store_elements(float *to, const float (&x)[COUNT], size_t left) {
#pragma unroll
  for (unsigned k = 0; k < COUNT; k += V) {
    const unsigned at = 32 * k + lane_id() * V;
    Pack<float, V> pack;
#pragma unroll
    for (unsigned v = 0; v < V; ++v) pack.e[v] = x[k + v];
    if (at < left) *reinterpret_cast<Pack<float, V> *>(to + at) = pack;
  }
}

}  // namespace
