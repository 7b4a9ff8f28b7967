// C = alpha op(A) op(B) + beta C by mma.sync, whatever the arithmetic: STAGES panels of A and B under way or in use
// (cp.async), fragments read from shared memory one product ahead of the tensor cores.
//
// Tile: a block owns BM x BN elements of C, a warp WM x WN of them in tiles of 16 x 16; blockIdx.z counts the products
// of a strided batch. Arithmetic is one of gemm/mma_arithmetic.cuh.
// Preconditions: compute capability 8.0. W elements are copied at once: W sizeof(Storage) divides the leading
// dimensions of A and B in bytes, and pointers are aligned to 16 bytes; rows may end anywhere.
#pragma once
#include "gemm/mma_panel.cuh"
#include "gemm/mma_store.cuh"
#include "gemm/tileorder.cuh"

template <class Arithmetic, int BM, int BN, int BK, int WM, int WN, int STAGES, int W, Op op_a, Op op_b>
struct MmaLoop {
  using T = typename Arithmetic::Storage;
  static constexpr int THREADS = 32 * (BM / WM) * (BN / WN);
  static constexpr int MT = WM / 16, NT = WN / 16;
  static constexpr int PRODUCTS = BK * sizeof(T) / 32;  // along k in a step
  static_assert(PRODUCTS % 2 == 0, "each step begins with the same half of the fragments");
  using PanelA = MmaPanel<Side::A, T, BK, BM, THREADS, W, op_a == Op::N>;
  using PanelB = MmaPanel<Side::B, T, BK, BN, THREADS, W, op_b == Op::T>;
  static constexpr unsigned STAGE = PanelA::ELEMENTS + PanelB::ELEMENTS;

  struct Fragments {
    Fragment16 a[MT], b[NT];
  };

  const T *a, *b;
  unsigned m, n, k, lda, ldb;
  T *smem;
  unsigned row0, col0;      // the block's corner in C
  unsigned warp_m, warp_n;  // the warp's corner in the block's tile
  float sums[MT][NT][2][4] = {};

  // Adds the product. When it returns, all threads are done with shared memory.
  __device__ __forceinline__ void accumulate() {
    const unsigned steps = (k + BK - 1) / BK;
#pragma unroll
    for (unsigned step = 0; step < STAGES - 1; ++step) start(step);
    arrive();
    Fragments fragments[2];
    load(fragments[0], 0, 0);
    for (unsigned step = 0; step < steps; ++step) {
#pragma unroll
      for (unsigned kk = 0; kk < PRODUCTS; ++kk) {
        if (kk + 1 == PRODUCTS) arrive();  // behind it the fragments come from the next step
        load(fragments[(kk + 1) % 2], step + (kk + 1) / PRODUCTS, (kk + 1) % PRODUCTS);
        if (kk == 0) start(step + STAGES - 1);
        multiply(fragments[kk % 2]);
      }
    }
    ptx::cp_async_wait_all();
    __syncthreads();  // nobody reads or copies any more
  }

 private:
  // Starts the copies of a step as one group, into the slot of the step before the present one, which all have read
  // since the last barrier. Behind the last step lie zeros, for which nothing is read.
  __device__ __forceinline__ void start(unsigned step) const {
    T *slot = smem + step % STAGES * STAGE;
    PanelA::copy(slot, a, step * BK, row0, k, m, lda);
    PanelB::copy(slot + PanelA::ELEMENTS, b, step * BK, col0, k, n, ldb);
    ptx::cp_async_commit();
  }

  // All groups but the youngest STAGES - 2 are there, as far as this thread copied them, and then wholly.
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

// Blocks that a multiprocessor is to hold, from which the compiler takes its share of registers: one where the sums of
// a warp's tile take half of them or more.
template <int WM, int WN>
constexpr int RESIDENT = WM * WN <= 1024 ? 3 : 1;

template <class Arithmetic, class TC, int BM, int BN, int BK, int WM, int WN, int STAGES, int W, Op op_a, Op op_b>
__global__ void __launch_bounds__(32 * (BM / WM) * (BN / WN), RESIDENT<WM, WN>)
    gemm_mma(const typename Arithmetic::Storage *__restrict__ a, const typename Arithmetic::Storage *__restrict__ b,
             TC *c, unsigned m, unsigned n, unsigned k, float alpha, float beta, unsigned lda, unsigned ldb,
             unsigned ldc, long long stride_a, long long stride_b, long long stride_c) {
  using Loop = MmaLoop<Arithmetic, BM, BN, BK, WM, WN, STAGES, W, op_a, op_b>;
  constexpr int V = 16 / sizeof(TC);
  static_assert(Stripe<WN>::FLOATS * sizeof(float) * (Loop::THREADS / 32) <=
                    STAGES * Loop::STAGE * sizeof(typename Loop::T),
                "stripes fit where the panels were");
  DYN_SHARED(unsigned char, smem);
  const unsigned warp_id = threadIdx.x / 32, warp_m = warp_id / (BN / WN) * WM, warp_n = warp_id % (BN / WN) * WN;
  // Blocks that run at the same time stand close together in C, and share what they read in the L2 cache.
  const auto tile = TileOrder{gridDim.y, gridDim.x}.at(blockIdx.y * gridDim.x + blockIdx.x);
  const unsigned row0 = tile.row * BM, col0 = tile.col * BN;
  Loop loop{a + blockIdx.z * stride_a,
            b + blockIdx.z * stride_b,
            m, n, k, lda, ldb,
            reinterpret_cast<typename Loop::T *>(smem),
            row0, col0, warp_m, warp_n};
  loop.accumulate();
  float *stripe = reinterpret_cast<float *>(smem) + warp_id * Stripe<WN>::FLOATS;
  c += blockIdx.z * stride_c;
#pragma unroll
  for (int i = 0; i < Loop::MT; ++i) {
    const unsigned row = row0 + warp_m + 16 * i, col = col0 + warp_n;
    Stripe<WN>::put(stripe, loop.sums[i]);
    __syncwarp();  // the stripe is whole
    if (ldc % V == 0 && n % V == 0) {
      Stripe<WN>::template store<V>(stripe, c, row, col, m, n, ldc, alpha, beta);
    } else {
      Stripe<WN>::template store<1>(stripe, c, row, col, m, n, ldc, alpha, beta);
    }
    __syncwarp();  // all have read it before the next one overwrites it
  }
}
