// The main loop on cp.async: STAGES panels of A and B under way or in use, none of them held in registers.
//
// A stage's slot in dynamic shared memory holds a panel of A, then one of B (panel.cuh). cp.async cannot transpose a
// pack, so an operand stored along k is copied word by word, eight neighbours along k at a time; one stored along the
// panel's rows goes W words at a time. Edges are filled with zeros by copying 0 bytes.
#pragma once
#include "gemm/fragment.cuh"
#include "ptx.cuh"

// Starts the copy of a panel; its arguments are those of Panel::fetch.
template <int BK, int WIDTH, int THREADS, int W, Op op>
__device__ __forceinline__ void copy_panel(float (*panel)[WIDTH + PAD], const float *__restrict__ x, unsigned k0,
                                           unsigned w0, unsigned k, unsigned width, unsigned ld) {
  constexpr int V = op == Op::N ? W : 1;
  using Mine = Share<BK, WIDTH, THREADS, V, op>;
#pragma unroll
  for (int i = 0; i < Mine::PACKS; ++i) {
    const unsigned kk = Mine::depth(i), w = Mine::place(i);
    if (kk >= BK || w >= WIDTH) break;  // a panel of fewer packs than threads
    const bool inside = k0 + kk < k && w0 + w < width;
    const float *from = inside ? Mine::source(x, i, k0, w0, ld) : x;  // nothing is read where bytes is 0
    const unsigned to = ptx::smem_address(&panel[kk][w]), bytes = inside ? 4 * V : 0;
    if constexpr (V == 4) {
      ptx::cp_async_cg(to, from, bytes);
    } else {
      ptx::cp_async_ca<4>(to, from, bytes);
    }
  }
}

template <int BM, int BN, int BK, int WM, int WN, int TM, int TN, int STAGES, int W, Op op_a, Op op_b>
struct Pipeline {
  using Tile = Fragment<BM, BN, BK, WM, WN, TM, TN>;
  static constexpr int A_FLOATS = BK * (BM + PAD), STAGE_FLOATS = A_FLOATS + BK * (BN + PAD);
  const float *a, *b;
  unsigned m, n, lda, ldb;

  static __device__ __forceinline__ float (*panel_a(float *smem, unsigned stage))[BM + PAD] {
    return reinterpret_cast<float(*)[BM + PAD]>(smem + stage % STAGES * STAGE_FLOATS);
  }
  static __device__ __forceinline__ float (*panel_b(float *smem, unsigned stage))[BN + PAD] {
    return reinterpret_cast<float(*)[BN + PAD]>(smem + stage % STAGES * STAGE_FLOATS + A_FLOATS);
  }

  // Adds the product of op(A)'s rows from row0 and op(B)'s columns from col0, k deep, to the tile.
  __device__ __forceinline__ void accumulate(Tile &tile, float *smem, unsigned row0, unsigned col0, unsigned k) const {
    const unsigned steps = (k + BK - 1) / BK;
    for (unsigned step = 0; step < STAGES - 1; ++step) start(smem, step, steps, row0, col0, k);
    for (unsigned step = 0; step < steps; ++step) {
      ptx::cp_async_wait<STAGES - 2>();  // this step's panels are there as far as this thread copied them
      __syncthreads();                   // ... and wholly; and the slot of the step before is free
      start(smem, step + STAGES - 1, steps, row0, col0, k);
      tile.multiply(panel_a(smem, step), panel_b(smem, step));
    }
  }

 private:
  // Starts a step's copies as one group, which is empty behind the last step, so that waiting can count groups.
  __device__ __forceinline__ void start(float *smem, unsigned step, unsigned steps, unsigned row0, unsigned col0,
                                        unsigned k) const {
    if (step < steps) {
      const unsigned k0 = step * BK;
      copy_panel<BK, BM, Tile::THREADS, W, flipped<op_a>>(panel_a(smem, step), a, k0, row0, k, m, lda);
      copy_panel<BK, BN, Tile::THREADS, W, op_b>(panel_b(smem, step), b, k0, col0, k, n, ldb);
    }
    ptx::cp_async_commit();
  }
};
