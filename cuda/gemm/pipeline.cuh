// The main loop on cp.async: STAGES panels of A and B are in flight or in use, and none is held in registers.
//
// A stage's slot in dynamic shared memory holds a panel of A, then one of B (panel.cuh). cp.async cannot transpose a
// pack, so an operand stored along k is copied word by word, eight neighbours along k at a time; one stored along the
// panel's rows is copied W words at a time. Edges are filled with zeros by copying 0 bytes.
#pragma once
#include "gemm/fragment.cuh"
#include "panel_copy.cuh"

template <int BM, int BN, int BK, int WM, int WN, int TM, int TN, int STAGES, int W, Op op_a, Op op_b>
struct Pipeline {
  using Tile = Fragment<BM, BN, BK, WM, WN, TM, TN>;
  using PanelA = PaddedPanel<float, BK, BM, flipped<op_a>>;
  using PanelB = PaddedPanel<float, BK, BN, op_b>;
  using ShareA = Share<PanelA::ROWS, PanelA::COLS, Tile::THREADS, PanelA::ALONG_K ? 1 : W>;
  using ShareB = Share<PanelB::ROWS, PanelB::COLS, Tile::THREADS, PanelB::ALONG_K ? 1 : W>;
  static constexpr unsigned STAGE_FLOATS = PanelA::ELEMENTS + PanelB::ELEMENTS;
  const float *a, *b;
  unsigned m, n, lda, ldb;

  // Adds the product of op(A)'s rows from row0 and op(B)'s columns from col0, k deep, to the tile.
  __device__ __forceinline__ void accumulate(Tile &tile, float *smem, unsigned row0, unsigned col0, unsigned k) const {
    PanelSource<PanelA, ShareA> source_a(a, 0, row0, k, m, lda);
    PanelSource<PanelB, ShareB> source_b(b, 0, col0, k, n, ldb);
    // Starts a step's copies as one group. Past the last step they write zeros and read nothing.
    const auto start = [&](unsigned step) {
      float *slot = smem + step % STAGES * STAGE_FLOATS;
      copy_panel<PanelA, ShareA>(slot, source_a);
      copy_panel<PanelB, ShareB>(slot + PanelA::ELEMENTS, source_b);
      source_a.advance();
      source_b.advance();
      ptx::cp_async_commit();
    };
    const unsigned steps = (k + BK - 1) / BK;
#pragma unroll 1
    for (unsigned step = 0; step < STAGES - 1; ++step) start(step);
    for (unsigned step = 0; step < steps; ++step) {
      ptx::cp_async_wait<STAGES - 2>();  // this thread's copies for this step have arrived
      __syncthreads();                   // ... and all threads' copies; the previous step's slot is free
      start(step + STAGES - 1);
      const float *slot = smem + step % STAGES * STAGE_FLOATS;
      tile.multiply(reinterpret_cast<const float(*)[BM + PAD]>(slot),
                    reinterpret_cast<const float(*)[BN + PAD]>(slot + PanelA::ELEMENTS));
    }
    ptx::cp_async_wait_all();  // including the copies past the last step
  }
};
