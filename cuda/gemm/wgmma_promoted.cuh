// Products by wgmma whose sums are promoted: those of a step start from zero, and are added to the sums in FP32.
// gemm/wgmma_3xtf32.cu has its reason. That of FP8: wgmma adds its products with 14 bits, although its sums are FP32
// (DeepSeek-AI, "DeepSeek-V3 Technical Report", arXiv:2412.19437, 3.3.2 and 3.5.2); a step has 128 of them a sum.
//
// A warpgroup starts the products of a step before it adds those of the one before, so that the tensor cores have work
// meanwhile. It keeps its sums three times, so that a tile has 128 columns at most.
#pragma once
#include <cuda_fp8.h>

#include "gemm/wgmma_specialised.cuh"

struct PromotedToFloat : SummedInFloat {
  static constexpr bool PROMOTED = true;
};

// Operands that are multiplied, never converted.
template <>
struct Element<__nv_fp8_e4m3> : PromotedToFloat {
  template <int mn_major_a, int mn_major_b, int SUMS>
  static __device__ __forceinline__ void wgmma(float (&d)[SUMS], unsigned long long a, unsigned long long b,
                                               bool accumulate) {
    ptx::wgmma_e4m3(d, a, b, accumulate);
  }
};

template <>
struct Element<__nv_fp8_e5m2> : PromotedToFloat {
  template <int mn_major_a, int mn_major_b, int SUMS>
  static __device__ __forceinline__ void wgmma(float (&d)[SUMS], unsigned long long a, unsigned long long b,
                                               bool accumulate) {
    ptx::wgmma_e5m2(d, a, b, accumulate);
  }
};

// A slice whose products are promoted. start(products, turn) starts those of a step, from zero, as GROUPS groups.
template <unsigned GROUPS>
struct InTurn {
  template <class Work, int SUMS, unsigned STAGES, class Start>
  static __device__ __forceinline__ void multiply(const Work &work, float (&sums)[SUMS], unsigned steps,
                                                  Turn<STAGES> &turn, const Start &start) {
    float even[SUMS], odd[SUMS];
#pragma unroll
    for (float &sum : sums) sum = 0.0f;
    unsigned last = turn.slot, step = 1;
    start(even, turn);
    turn.next();
    const auto next = [&](float(&products)[SUMS], const float(&before)[SUMS]) {
      start(products, turn);
      ptx::wgmma_wait<GROUPS>();
      work.release(last);
      add(before, sums);
      last = turn.slot;
      turn.next();
    };
    const auto finish = [&](const float(&products)[SUMS]) {
      ptx::wgmma_wait<0>();
      work.release(last);
      add(products, sums);
    };
    // Whole pairs: ptxas lets all products be waited for (C7514) where it does not see which are in flight.
    for (; step + 1 < steps; step += 2) {
      next(odd, even);
      next(even, odd);
    }
    if (step < steps) {
      next(odd, even);
      finish(odd);
    } else {
      finish(even);
    }
  }

 private:
  template <int SUMS>
  static __device__ __forceinline__ void add(const float (&products)[SUMS], float (&sums)[SUMS]) {
#pragma unroll
    for (int i = 0; i < SUMS; ++i) sums[i] += products[i];
  }
};

// A slice of FP8.
struct Promoted {
  template <class Work, int SUMS, unsigned STAGES>
  __device__ __forceinline__ void operator()(const Work &work, float (&sums)[SUMS], unsigned steps, Turn<STAGES> &turn,
                                             unsigned warpgroup) const {
    InTurn<1>::multiply(work, sums, steps, turn, [&](float(&products)[SUMS], const Turn<STAGES> &now) {
      const unsigned slot = work.tiles + now.slot * Work::SLOT_BYTES;
      work.wait(now);
      start_product<typename Work::Type, typename Work::A, typename Work::B>(
          products, slot + warpgroup * WARPGROUP_ROWS * ROW_BYTES, slot + Work::A::BYTES, true);
    });
  }
};
