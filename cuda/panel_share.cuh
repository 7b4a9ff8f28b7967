// Which thread copies what of a panel. A panel is what a block needs of an operand for one step: ROWS x COLS elements
// as they lie in global memory.
//
// Share defines which packs of W neighbours along a row a thread copies. A source defines where a pack comes from and
// how many of its bytes exist. The panel's `place` defines where an element is stored in shared memory, which need not
// be row by row: gemm/panel.cuh transposes and pads, gemm/mma_panel.cuh swizzles.
#pragma once
#include "common.cuh"

// Divides ROWS x COLS elements among THREADS threads, in packs of W. The threads stand in DOWN rows of ACROSS, with one
// pack each; where these do not cover the panel, each thread has further packs to the right and below.
template <unsigned ROWS, unsigned COLS, unsigned THREADS, unsigned PACK, unsigned ACROSS = COLS / PACK>
struct Share {
  static constexpr unsigned W = PACK, DOWN = THREADS / ACROSS;
  static constexpr unsigned WIDE = (COLS + ACROSS * W - 1) / (ACROSS * W), HIGH = (ROWS + DOWN - 1) / DOWN;
  static constexpr unsigned PACKS = WIDE * HIGH;
  static constexpr bool EVEN = WIDE * ACROSS * W == COLS && HIGH * DOWN == ROWS;  // every thread has all its packs
  static_assert(DOWN * ACROSS == THREADS, "threads stand in whole rows");

  // Where the thread's first pack begins, and how far below and to the right of it pack i begins.
  static __device__ __forceinline__ unsigned row() { return threadIdx.x / ACROSS; }
  static __device__ __forceinline__ unsigned col() { return threadIdx.x % ACROSS * W; }
  static constexpr __device__ __forceinline__ unsigned below(unsigned i) { return i / WIDE * DOWN; }
  static constexpr __device__ __forceinline__ unsigned right(unsigned i) { return i % WIDE * ACROSS * W; }

  static __device__ __forceinline__ bool has(unsigned i) {
    return (HIGH * DOWN == ROWS || row() + below(i) < ROWS) && (WIDE * ACROSS * W == COLS || col() + right(i) < COLS);
  }
};

// A pack in global memory, of which the first `bytes` bytes lie inside the operand.
template <class T>
struct Origin {
  const T *from;
  unsigned bytes;
};

// Where a thread's packs come from, panel after panel along k, in an operand k deep and `width` wide. Packs past the
// operand's edges have 0 bytes. A pack lies wholly inside or outside, except in RAGGED panels, where rows may end
// inside a pack. WHOLE: all packs lie inside.
template <class Panel, class Mine, bool WHOLE = false>
struct PanelSource {
  using T = typename Panel::T;
  static constexpr bool ALONG_K = Panel::ALONG_K;
  const T *from;
  unsigned row, col, rows, cols, ld;  // of the first pack; of the operand, as stored

  // Begins with the panel at k0, w0.
  __device__ __forceinline__ PanelSource(const T *x, unsigned k0, unsigned w0, unsigned k, unsigned width, unsigned ld_)
      : row((ALONG_K ? w0 : k0) + Mine::row()), col((ALONG_K ? k0 : w0) + Mine::col()), rows(ALONG_K ? width : k),
        cols(ALONG_K ? k : width), ld(ld_) {
    from = x + offset<Op::N>(row, col, ld);
  }

  __device__ __forceinline__ Origin<T> operator()(unsigned i) const {
    const T *pack = from + size_t(Mine::below(i)) * ld + Mine::right(i);
    if constexpr (WHOLE) return {pack, Mine::W * unsigned(sizeof(T))};
    const unsigned at = col + Mine::right(i), left = Panel::RAGGED ? min(cols - at, Mine::W) : Mine::W;
    const bool inside = row + Mine::below(i) < rows && at < cols;
    return {pack, inside ? left * unsigned(sizeof(T)) : 0};
  }

  // Moves on to the next panel along k.
  __device__ __forceinline__ void advance() {
    (ALONG_K ? col : row) += ALONG_K ? Panel::COLS : Panel::ROWS;
    from += ALONG_K ? Panel::COLS : size_t(Panel::ROWS) * ld;
  }
};
