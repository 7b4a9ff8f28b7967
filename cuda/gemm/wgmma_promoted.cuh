// FP8 on the tensor cores of Hopper, whose sums are promoted: wgmma adds products of FP8 with 14 bits, although its
// sums are FP32 (DeepSeek-AI, "DeepSeek-V3 Technical Report", arXiv:2412.19437, 3.3.2 and 3.5.2). So the products of
// one step, 128 of them a sum, start from zero and are added to the sums in FP32.
//
// A warpgroup adds while the other multiplies. It keeps its sums twice, so that a tile has 128 columns at most.
#pragma once
#include <cuda_fp8.h>

#include "gemm/wgmma_specialised.cuh"

// Operands that are multiplied, never converted.
template <>
struct Element<__nv_fp8_e4m3> {
  template <int mn_major_a, int mn_major_b, int SUMS>
  static __device__ __forceinline__ void wgmma(float (&d)[SUMS], unsigned long long a, unsigned long long b,
                                               bool accumulate) {
    ptx::wgmma_e4m3(d, a, b, accumulate);
  }
};

template <>
struct Element<__nv_fp8_e5m2> {
  template <int mn_major_a, int mn_major_b, int SUMS>
  static __device__ __forceinline__ void wgmma(float (&d)[SUMS], unsigned long long a, unsigned long long b,
                                               bool accumulate) {
    ptx::wgmma_e5m2(d, a, b, accumulate);
  }
};

// A slice, step by step.
struct Promoted {
  template <class Work, int SUMS, unsigned STAGES>
  __device__ __forceinline__ void operator()(const Work &work, float (&sums)[SUMS], unsigned steps, Turn<STAGES> &turn,
                                             unsigned warpgroup) const {
    float products[SUMS];
#pragma unroll
    for (float &sum : sums) sum = 0.0f;
    for (unsigned step = 0; step < steps; ++step, turn.next()) {
      const unsigned slot = work.tiles + turn.slot * Work::SLOT_BYTES;
      work.wait(turn);
      start_product<typename Work::Type, typename Work::A, typename Work::B>(
          products, slot + warpgroup * WARPGROUP_ROWS * ROW_BYTES, slot + Work::A::BYTES, true);
      ptx::wgmma_wait<0>();
      work.release(turn.slot);
#pragma unroll
      for (int i = 0; i < SUMS; ++i) sums[i] += products[i];
    }
  }
};
