// C = A^T B of complex matrices in FP32, A k x m and B k x n by rows: the sum over channels at one frequency.
//
// Panels of BK rows are copied by cp.async, STAGES - 1 steps ahead, 16 bytes or two elements at a time. Of a block's BM
// x BN elements a warp owns WM x WN and a lane TM x TN, in patches of 2 x 2; the first patches of all lanes adjoin,
// then the second ones, so that each is read as a float4 without bank conflicts. Lanes are in the order of
// gemm/fragment.cuh, by which a warp reads either operand in the fewest wavefronts. A product of complex numbers is
// four multiply-adds: three products and five sums, which is less elsewhere, are more instructions here.
#pragma once
#include "fft/butterfly.cuh"
#include "gemm/panel.cuh"
#include "panel_copy.cuh"

// Two neighbours at once, aligned to 16 bytes.
__device__ __forceinline__ void load_two(Complex<float> *values, const Complex<float> *from) {
  const float4 two = *reinterpret_cast<const float4 *>(from);
  values[0] = {two.x, two.y}, values[1] = {two.z, two.w};
}
__device__ __forceinline__ void store_two(Complex<float> *to, Complex<float> first, Complex<float> second) {
  *reinterpret_cast<float4 *>(to) = make_float4(first.re, first.im, second.re, second.im);
}

// Blocks per multiprocessor, by which the compiler limits registers: without one it spills on compute capability 12.0.
// More than 32 sums want more registers than 384 threads leave to each.
template <int THREADS, int SUMS>
constexpr int PRODUCT_BLOCKS_PER_SM = SUMS <= 32 && THREADS <= 384 ? 384 / THREADS : 1;

template <int BM, int BN, int BK, int WM, int WN, int TM, int TN, int STAGES>
struct Product {
  static constexpr int THREADS = 32 * (BM / WM) * (BN / WN), LANES_M = WM / TM, LANES_N = WN / TN;
  static_assert(LANES_M * LANES_N == 32, "the lanes of a warp fill its tile");
  static_assert(LANES_N > 1, "lanes stand in pairs along a row");
  // A row of k ends at ld, an even number; zeros stand past the edge of the matrix.
  using PanelA = PaddedPanel<Complex<float>, BK, BM, Op::N, 0>;
  using PanelB = PaddedPanel<Complex<float>, BK, BN, Op::N, 0>;
  using ShareA = Share<BK, BM, THREADS, 2>;
  using ShareB = Share<BK, BN, THREADS, 2>;
  struct Stage {
    Complex<float> a[BK][BM], b[BK][BN];
  };
  Complex<float> sums[TM][TN] = {};

  // Where sums[i][j] lies within the block's tile.
  static __device__ __forceinline__ unsigned row(int i) {
    const unsigned warp_id = threadIdx.x / 32, lane_id = threadIdx.x % 32;
    return warp_id / (BN / WN) * WM + (i / 2 * LANES_M + lane_id / 2 % LANES_M) * 2 + i % 2;
  }
  static __device__ __forceinline__ unsigned col(int j) {
    const unsigned warp_id = threadIdx.x / 32, lane_id = threadIdx.x % 32;
    const unsigned lane_n = lane_id % 2 + lane_id / (2 * LANES_M) * 2;
    return warp_id % (BN / WN) * WN + (j / 2 * LANES_N + lane_n) * 2 + j % 2;
  }

  // Adds the product of rows from row0 and columns from col0, k deep. a and b are whole matrices with their leading
  // dimensions.
  __device__ __forceinline__ void accumulate(Stage *stages, const Complex<float> *a, const Complex<float> *b,
                                             unsigned row0, unsigned col0, unsigned k, unsigned lda, unsigned ldb) {
    const unsigned steps = (k + BK - 1) / BK;
    PanelSource<PanelA, ShareA> source_a(a, 0, row0, k, lda, lda);
    PanelSource<PanelB, ShareB> source_b(b, 0, col0, k, ldb, ldb);
    const auto start = [&](unsigned step) {  // one group per step; zeros past the last step
      copy_panel<PanelA, ShareA>(stages[step % STAGES].a[0], source_a);
      copy_panel<PanelB, ShareB>(stages[step % STAGES].b[0], source_b);
      source_a.advance();
      source_b.advance();
      ptx::cp_async_commit();
    };
#pragma unroll 1
    for (unsigned step = 0; step < STAGES - 1; ++step) start(step);
    for (unsigned step = 0; step < steps; ++step) {
      ptx::cp_async_wait<STAGES - 2>();  // this thread's copies for this step have arrived
      __syncthreads();                   // ... and all threads' copies; the previous step's slot is free
      start(step + STAGES - 1);
      multiply(stages[step % STAGES]);
    }
    ptx::cp_async_wait_all();  // including the copies past the last step
  }

  // C has m rows of ldc elements; ldc is even.
  __device__ __forceinline__ void store(Complex<float> *c, unsigned row0, unsigned col0, unsigned m,
                                        unsigned ldc) const {
#pragma unroll
    for (int i = 0; i < TM; ++i) {
      if (row0 + row(i) >= m) return;
#pragma unroll
      for (int j = 0; j < TN; j += 2) {
        if (col0 + col(j) >= ldc) break;
        store_two(c + offset<Op::N>(row0 + row(i), col0 + col(j), ldc), sums[i][j], sums[i][j + 1]);
      }
    }
  }

 private:
  __device__ __forceinline__ void multiply(const Stage &stage) {
#pragma unroll
    for (int kk = 0; kk < BK; ++kk) {
      const Complex<float> *row_a = &stage.a[kk][row(0)], *row_b = &stage.b[kk][col(0)];
      Complex<float> left[TM], right[TN];
#pragma unroll
      for (int i = 0; i < TM; i += 2) load_two(&left[i], &row_a[i * LANES_M]);
#pragma unroll
      for (int j = 0; j < TN; j += 2) load_two(&right[j], &row_b[j * LANES_N]);
#pragma unroll
      for (int i = 0; i < TM; ++i)
#pragma unroll
        for (int j = 0; j < TN; ++j) add_product(sums[i][j], left[i], right[j]);
    }
  }

  static __device__ __forceinline__ void add_product(Complex<float> &sum, Complex<float> x, Complex<float> y) {
    sum.re += x.re * y.re;
    sum.im += x.re * y.im;
    sum.re -= x.im * y.im;
    sum.im += x.im * y.re;
  }
};
