// The main loop on cp.async: STAGES panels of A and B are in flight or in use, and none is held in registers.
//
// A stage's slot in dynamic shared memory holds a panel of A, then one of B (panel.cuh). cp.async cannot transpose a
// pack, so an operand stored along k is copied word by word, eight neighbours along k at a time; one stored along the
// panel's rows is copied W words at a time. Edges are filled with zeros by copying 0 bytes.
#pragma once
#include "gemm/fragment.cuh"
#include "panel_copy.cuh"

// Adds the products of `steps` steps to the tile. copy(slot) starts the thread's copies of the next step: A's panel goes
// to slot, B's after it. Past the last step it writes zeros and reads nothing.
// AHEAD: what a lane multiplies is read one row of the panels ahead, across steps too, so that no multiply-add waits for
// a read that a barrier has held back. It takes TM + TN registers.
template <class PanelA, class PanelB, int BK, int STAGES, bool AHEAD, class Tile, class Copy>
__device__ __forceinline__ void pipelined(Tile &tile, float *smem, unsigned steps, Copy copy) {
  static_assert(BK % 2 == 0, "each step begins with the same half of the factors");
  constexpr unsigned STAGE = PanelA::ELEMENTS + PanelB::ELEMENTS, LAST = (STAGES - 1) * STAGE;
  const auto start = [&](float *slot) {  // one group of copies
    copy(slot);
    ptx::cp_async_commit();
  };
  const auto arrive = [] {
    ptx::cp_async_wait<STAGES - 2>();  // this thread's copies for the next step have arrived
    __syncthreads();                   // ... and all threads' copies; the present step's slot has been read
  };
  typename Tile::Factors factors[2];
  const auto load = [&](const float *slot, int kk) {
    Tile::load(factors[kk % 2], slot + kk * PanelA::PITCH, slot + PanelA::ELEMENTS + kk * PanelB::PITCH);
  };
#pragma unroll 1
  for (unsigned step = 0; step < STAGES - 1; ++step) start(smem + step * STAGE);
  if constexpr (AHEAD) arrive(), load(smem, 0);
  unsigned now = 0, free = LAST;  // where the slots that are read and filled begin
#pragma unroll 1
  for (unsigned step = 0; step < steps; ++step) {
    if constexpr (!AHEAD) arrive();
    start(smem + free);
    free = now;
#pragma unroll
    for (int kk = 0; kk < BK; ++kk) {
      if constexpr (!AHEAD) {
        load(smem + now, kk);
      } else if (kk + 1 < BK) {
        load(smem + now, kk + 1);
      } else {
        now = now == LAST ? 0 : now + STAGE;
        arrive();
        load(smem + now, 0);
      }
      tile.multiply(factors[kk % 2]);
    }
    if constexpr (!AHEAD) now = now == LAST ? 0 : now + STAGE;
  }
  ptx::cp_async_wait_all();  // including the copies past the last step
}

template <int BM, int BN, int BK, int WM, int WN, int TM, int TN, int STAGES, int W, Op op_a, Op op_b>
struct Pipeline {
  using Tile = Fragment<BM, BN, BK, WM, WN, TM, TN>;
  using PanelA = PaddedPanel<float, BK, BM, flipped<op_a>>;
  using PanelB = PaddedPanel<float, BK, BN, op_b>;
  using ShareA = Share<PanelA::ROWS, PanelA::COLS, Tile::THREADS, PanelA::ALONG_K ? 1 : W>;
  using ShareB = Share<PanelB::ROWS, PanelB::COLS, Tile::THREADS, PanelB::ALONG_K ? 1 : W>;
  const float *a, *b;
  unsigned m, n, lda, ldb;

  // Adds the product of op(A)'s rows from row0 and op(B)'s columns from col0, k deep, to the tile.
  __device__ __forceinline__ void accumulate(Tile &tile, float *smem, unsigned row0, unsigned col0, unsigned k) const {
    PanelSource<PanelA, ShareA> source_a(a, 0, row0, k, m, lda);
    PanelSource<PanelB, ShareB> source_b(b, 0, col0, k, n, ldb);
    pipelined<PanelA, PanelB, BK, STAGES, true>(tile, smem, (k + BK - 1) / BK, [&](float *slot) {
      copy_panel<PanelA, ShareA>(slot, source_a);
      copy_panel<PanelB, ShareB>(slot + PanelA::ELEMENTS, source_b);
      source_a.advance();
      source_b.advance();
    });
  }
};
