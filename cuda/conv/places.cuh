// How blocks of 32 x 8 threads share an array of places (pixels of all images) and channels: a warp runs along the one
// of the two that is contiguous in memory.
#pragma once
#include "conv/geometry.cuh"

constexpr unsigned WARP = 32, WARPS = 8;

template <Layout layout>
__device__ __forceinline__ unsigned my_place() {
  return layout == Layout::nchw ? blockIdx.x * WARP + threadIdx.x : blockIdx.x * WARPS + threadIdx.y;
}
template <Layout layout>
__device__ __forceinline__ unsigned my_channel() {
  return layout == Layout::nchw ? blockIdx.y * WARPS + threadIdx.y : blockIdx.y * WARP + threadIdx.x;
}
