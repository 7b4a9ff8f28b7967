// The products of a warp's tile by mma.sync, for any arithmetic (gemm/mma_arithmetic.cuh): STAGES panels of A and B in
// flight or in use, and fragments read from shared memory one product ahead of the tensor cores. The caller copies the
// panels.
#pragma once
#include "gemm/mma_panel.cuh"

// A warp owns WM x WN elements in tiles of 16 x 16; a step is BK deep.
template <class Arithmetic, class PanelA, class PanelB, int BK, int WM, int WN, int STAGES>
struct MmaPipeline {
  using T = typename Arithmetic::Storage;
  static constexpr int MT = WM / 16, NT = WN / 16;
  static constexpr int PRODUCTS = BK * sizeof(T) / 32;  // along k in a step
  static_assert(PRODUCTS % 2 == 0, "each step begins with the same half of the fragments");
  static constexpr unsigned STAGE = PanelA::ELEMENTS + PanelB::ELEMENTS;

  struct Fragments {
    typename PanelA::Fragment a[MT], b[NT];
  };

  T *smem;
  unsigned warp_m, warp_n;  // where the warp's tile begins in the block's tile
  typename Arithmetic::Sum sums[MT][NT][2][4] = {};

  // Adds the products of `steps` steps. copy(slot) starts the thread's copies of the next step: A's panel goes to slot,
  // B's after it. Past the last step it writes zeros and reads nothing. When this returns, no thread uses shared memory
  // any more.
  template <class Copy>
  __device__ __forceinline__ void accumulate(unsigned steps, Copy copy) {
#pragma unroll
    for (unsigned step = 0; step < STAGES - 1; ++step) start(copy, step);
    arrive();
    Fragments fragments[2];
    load(fragments[0], 0, 0);
    for (unsigned step = 0; step < steps; ++step) {
#pragma unroll
      for (unsigned kk = 0; kk < PRODUCTS; ++kk) {
        if (kk + 1 == PRODUCTS) arrive();  // the fragments after this come from the next step
        load(fragments[(kk + 1) % 2], step + (kk + 1) / PRODUCTS, (kk + 1) % PRODUCTS);
        if (kk == 0) start(copy, step + STAGES - 1);
        multiply(fragments[kk % 2]);
      }
    }
    ptx::cp_async_wait_all();
    __syncthreads();  // no thread reads or copies any more
  }

 private:
  // Starts the copies of a step as one group, into the slot of the step before the present one, which all threads have
  // read since the last barrier.
  template <class Copy>
  __device__ __forceinline__ void start(Copy &copy, unsigned step) const {
    copy(smem + step % STAGES * STAGE);
    ptx::cp_async_commit();
  }

  // Waits until all groups but the youngest STAGES - 2 have arrived: first this thread's copies, then all threads'
  // copies.
  static __device__ __forceinline__ void arrive() {
    ptx::cp_async_wait<STAGES - 2>();
    __syncthreads();
  }

  __device__ __forceinline__ void load(Fragments &f, unsigned step, unsigned kk) const {
    const T *slot = smem + step % STAGES * STAGE;
#pragma unroll
    for (int i = 0; i < MT; ++i) f.a[i] = PanelA::load(slot, warp_m, i, kk);
#pragma unroll
    for (int j = 0; j < NT; ++j) f.b[j] = PanelB::load(slot + PanelA::ELEMENTS, warp_n, j, kk);
  }

  __device__ __forceinline__ void multiply(const Fragments &f) {
    typename Arithmetic::Operand left[MT];
#pragma unroll
    for (int i = 0; i < MT; ++i) left[i] = Arithmetic::prepare(f.a[i]);
#pragma unroll
    for (int j = 0; j < NT; ++j) {
      const typename Arithmetic::Operand right = Arithmetic::prepare(f.b[j]);
#pragma unroll
      for (int half = 0; half < 2; ++half)
#pragma unroll
        for (int i = 0; i < MT; ++i) Arithmetic::multiply(sums[i][j][half], left[i], right, half);
    }
  }
};
