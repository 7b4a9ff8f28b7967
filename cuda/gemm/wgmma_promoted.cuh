// Products by wgmma whose sums are promoted: the sum of a step starts from zero, and is added to the total in FP32. The
// reason in FP8: wgmma adds products with only 14 bits, although its sums are FP32 (DeepSeek-AI, "DeepSeek-V3 Technical
// Report", arXiv:2412.19437, 3.3.2 and 3.5.2); a step adds 128 to a sum. gemm/wgmma_3xtf32.cu has another reason.
//
// A warpgroup starts the products of a step before it adds those of the step before, so that the tensor cores have work
// meanwhile. It holds three values of each sum, the total and two steps, so a tile has at most 128 columns.
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

// How a step's products are added to the sums.
struct AsTheyAre {
  template <int SUMS>
  __device__ __forceinline__ void add(const float (&products)[SUMS], float (&sums)[SUMS]) const {
#pragma unroll
    for (int i = 0; i < SUMS; ++i) sums[i] += products[i];
  }
};

// Adds FP8 products times their scales: one for each of a thread's two rows of A, and one for the columns of op(B).
struct TimesScales {
  float row[2], columns;

  template <int SUMS>
  __device__ __forceinline__ void add(const float (&products)[SUMS], float (&sums)[SUMS]) const {
    const float upper = row[0] * columns, lower = row[1] * columns;
#pragma unroll
    for (int i = 0; i < SUMS; ++i) sums[i] = fmaf(products[i], i % 4 < 2 ? upper : lower, sums[i]);
  }
};

// A slice whose products are promoted. start(products, turn) starts those of a step, from zero, as GROUPS groups, and
// returns how they are added.
template <unsigned GROUPS>
struct InTurn {
  template <class Work, int SUMS, unsigned STAGES, class Start>
  static __device__ __forceinline__ void multiply(const Work &work, float (&sums)[SUMS], unsigned steps,
                                                  Turn<STAGES> &turn, const Start &start) {
    float even[SUMS], odd[SUMS];
#pragma unroll
    for (float &sum : sums) sum = 0.0f;
    unsigned last = turn.slot, step = 1;
    auto how = start(even, turn);
    turn.next();
    const auto next = [&](float(&products)[SUMS], const float(&before)[SUMS]) {
      const auto own = start(products, turn);
      ptx::wgmma_wait<GROUPS>();
      work.release(last);
      how.add(before, sums);
      how = own;
      last = turn.slot;
      turn.next();
    };
    const auto finish = [&](const float(&products)[SUMS]) {
      ptx::wgmma_wait<0>();
      work.release(last);
      how.add(products, sums);
    };
    // Whole pairs of steps: ptxas serialises all products (C7514) where it does not see which are in flight.
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
};

// Starts a step's product of FP8 once its slot has arrived.
template <class Work, int SUMS, unsigned STAGES>
__device__ __forceinline__ void start_fp8(const Work &work, float (&products)[SUMS], const Turn<STAGES> &now,
                                          unsigned warpgroup) {
  const unsigned slot = work.tiles + now.slot * Work::SLOT_BYTES;
  work.wait(now);
  start_product<typename Work::Type, typename Work::A, typename Work::B>(
      products, slot + warpgroup * WARPGROUP_ROWS * ROW_BYTES, slot + Work::A::BYTES, true);
}

// All of k of FP8.
struct Promoted {
  template <class Work, int SUMS, unsigned STAGES>
  __device__ __forceinline__ void operator()(const Work &work, float (&sums)[SUMS], unsigned steps, Turn<STAGES> &turn,
                                             const Patch &patch) const {
    InTurn<1>::multiply(work, sums, steps, turn, [&](float(&products)[SUMS], const Turn<STAGES> &now) {
      start_fp8(work, products, now, patch.warpgroup);
      return AsTheyAre{};
    });
  }
};

// All of k of FP8 with scales. For each 128 of k, `a` has a row with a scale for each of m rows; for each 128 of n
// columns, `b` has a row with a scale for each 128 of k; rows are padded to 16 bytes. A step is 128 deep, a tile lies
// within 128 columns, and a step's scales are loaded before its products start, so that they arrive meanwhile.
struct PromotedByScales {
  const float *a, *b;
  unsigned m, n;

  template <class Work, int SUMS, unsigned STAGES>
  __device__ __forceinline__ void operator()(const Work &work, float (&sums)[SUMS], unsigned steps, Turn<STAGES> &turn,
                                             const Patch &patch) const {
    constexpr unsigned BLOCK = Work::A::DEPTH;
    static_assert(BLOCK == 128 && BLOCK % (2 * SUMS) == 0, "a step and a tile have one scale of op(B)");
    const unsigned ld_a = whole_16_bytes(m), ld_b = whole_16_bytes(steps), columns = (n + BLOCK - 1) / BLOCK;
    const float *of_a = a + size_t(patch.product) * steps * ld_a;
    const float *of_b = b + (size_t(patch.product) * columns + patch.col0 / BLOCK) * ld_b;
    const unsigned row[2] = {min(patch.row0 + SumPlace::row(0), m - 1), min(patch.row0 + SumPlace::row(1), m - 1)};
    InTurn<1>::multiply(work, sums, steps, turn, [&](float(&products)[SUMS], const Turn<STAGES> &now) {
      const TimesScales scales{{of_a[row[0]], of_a[row[1]]}, *of_b};
      of_a += ld_a, ++of_b;
      start_fp8(work, products, now, patch.warpgroup);
      return scales;
    });
  }

 private:
  // A row of that many floats, padded.
  static __device__ __forceinline__ unsigned whole_16_bytes(unsigned floats) { return (floats + 3) / 4 * 4; }
};
