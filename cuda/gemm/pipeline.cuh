// The main loop on cp.async: STAGES panels of A and B are in flight or in use, and none is held in registers.
//
// A stage's slot in dynamic shared memory holds a panel of A, then one of B (panel.cuh). cp.async cannot transpose a
// pack, so an operand stored along k is copied word by word, eight neighbours along k at a time; one stored along the
// panel's rows is copied W words at a time. Edges are filled with zeros by copying 0 bytes.
#pragma once
#include "gemm/fragment.cuh"
#include "panel_copy.cuh"

// Adds the products of `steps` steps to the tile. copies.start<I>(slot, more) starts the thread's copies of the next
// step or, with THIRDS, the third of them that has number I: A's panel goes to `slot`, B's after it. Past the last step
// `more` is false: thirds then write nothing, other copies write zeros. Thirds are started between multiply-adds, since
// all copies at once delay the reads of the factors. On an H200, copies of words by a warp that reads four lines of
// global memory have bank conflicts, nearly one for each line but the first.
// The factors are read one row of the panels ahead, also across steps, so that no multiply-add waits for a read that a
// barrier has held back. This takes TM + TN registers.
template <class PanelA, class PanelB, int BK, int STAGES, class Tile, class Copies>
__device__ __forceinline__ void pipelined(Tile &tile, float *smem, unsigned steps, Copies copies) {
  static_assert(BK % 2 == 0, "each step begins with the same half of the factors");
  static_assert(BK >= 8, "three parts of the copies start before the last multiply-adds");
  constexpr bool THIRDS = Copies::THIRDS;
  constexpr unsigned STAGE = PanelA::ELEMENTS + PanelB::ELEMENTS, LAST = (STAGES - 1) * STAGE;
  const auto arrive = [] {
    ptx::cp_async_wait<STAGES - 2>();  // this thread's copies for the next step have arrived
    __syncthreads();                   // ... and all threads' copies; the present step's slot has been read
  };
  typename Tile::Factors factors[2];
  const auto load = [&](const float *slot, int kk) {
    Tile::load(factors[kk % 2], slot + kk * PanelA::PITCH, slot + PanelA::ELEMENTS + kk * PanelB::PITCH);
  };
#pragma unroll 1
  for (unsigned step = 0; step < STAGES - 1; ++step) {
    float *slot = smem + step * STAGE;
    const bool more = step < steps;
    copies.template start<0>(slot, more);
    if constexpr (THIRDS) copies.template start<1>(slot, more), copies.template start<2>(slot, more);
    ptx::cp_async_commit();
  }
  arrive(), load(smem, 0);
  unsigned now = 0, free = LAST;  // where the slots that are read and filled begin
#pragma unroll 1
  for (unsigned step = 0; step < steps; ++step) {
    const bool more = step + STAGES - 1 < steps;
    if constexpr (!THIRDS) {
      copies.template start<0>(smem + free, more);
      ptx::cp_async_commit();
      free = now;
    }
#pragma unroll
    for (int kk = 0; kk < BK; ++kk) {
      if (kk + 1 < BK) load(smem + now, kk + 1);
      if constexpr (THIRDS) {
        if (kk == 0) copies.template start<0>(smem + free, more);
        if (kk == BK / 4) copies.template start<1>(smem + free, more);
        if (kk == BK / 2) copies.template start<2>(smem + free, more), ptx::cp_async_commit();
      }
      if (kk + 1 == BK) {
        if (THIRDS) free = now;
        now = now == LAST ? 0 : now + STAGE;
        arrive();
        if (!THIRDS || step + 1 < steps) load(smem + now, 0);  // else nothing may have been copied there
      }
      tile.multiply(factors[kk % 2]);
    }
  }
  ptx::cp_async_wait_all();  // including the copies past the last step
}

// WHOLE: the panels' width divides m and n, and BK divides k, so that no copy is guarded, and nothing is copied past the
// last step. Other copies are all started at once: their guards take registers, and thirds would spill some.
template <int BM, int BN, int BK, int WM, int WN, int TM, int TN, int STAGES, int W, Op op_a, Op op_b,
          bool WHOLE = false>
struct Pipeline {
  using Tile = Fragment<BM, BN, BK, WM, WN, TM, TN>;
  using PanelA = PaddedPanel<float, BK, BM, flipped<op_a>>;
  using PanelB = PaddedPanel<float, BK, BN, op_b>;
  using ShareA = Share<PanelA::ROWS, PanelA::COLS, Tile::THREADS, PanelA::ALONG_K ? 1 : W>;
  using ShareB = Share<PanelB::ROWS, PanelB::COLS, Tile::THREADS, PanelB::ALONG_K ? 1 : W>;
  const float *a, *b;
  unsigned m, n, lda, ldb;

  // The thread's copies, panel after panel along k.
  struct Copies {
    static constexpr bool THIRDS = WHOLE;
    PanelSource<PanelA, ShareA, WHOLE> source_a;
    PanelSource<PanelB, ShareB, WHOLE> source_b;

    template <int PART>
    __device__ __forceinline__ void start(float *slot, bool more) {
      constexpr unsigned A = ShareA::PACKS, ALL = A + ShareB::PACKS;
      constexpr int PARTS = THIRDS ? 3 : 1;
      constexpr unsigned FROM = ALL * PART / PARTS, TO = ALL * (PART + 1) / PARTS;
      if (THIRDS && !more) return;
      if constexpr (FROM < A) copy_panel<PanelA, ShareA, ShareA::W, FROM, (TO < A ? TO : A)>(slot, source_a);
      if constexpr (TO > A)
        copy_panel<PanelB, ShareB, ShareB::W, (FROM > A ? FROM : A) - A, TO - A>(slot + PanelA::ELEMENTS, source_b);
      if (PART == PARTS - 1) source_a.advance(), source_b.advance();
    }
  };

  // Adds the product of op(A)'s rows from row0 and op(B)'s columns from col0, k deep, to the tile.
  __device__ __forceinline__ void accumulate(Tile &tile, float *smem, unsigned row0, unsigned col0, unsigned k) const {
    const Copies copies{{a, 0, row0, k, m, lda}, {b, 0, col0, k, n, ldb}};
    pipelined<PanelA, PanelB, BK, STAGES>(tile, smem, (k + BK - 1) / BK, copies);
  }
};
