// Who brings what of a panel, which is what a block needs of an operand for one step: ROWS x COLS elements as they lie
// in global memory.
//
// Share says which packs of W neighbours along a row are a thread's, a source where a pack comes from and how many of
// its bytes are there. Where an element stands in shared memory, which need not be in rows, says the panel's `place`:
// gemm/panel.cuh turns and pads, gemm/mma_panel.cuh swizzles.
#pragma once
#include "common.cuh"

// How THREADS threads share ROWS x COLS elements in packs of W: ACROSS of them stand along a row, a pack each, and have
// further packs beside that row's end and below.
template <unsigned ROWS, unsigned COLS, unsigned THREADS, unsigned PACK, unsigned ACROSS = COLS / PACK>
struct Share {
  static constexpr unsigned W = PACK, DOWN = THREADS / ACROSS;
  static constexpr unsigned WIDE = (COLS + ACROSS * W - 1) / (ACROSS * W), HIGH = (ROWS + DOWN - 1) / DOWN;
  static constexpr unsigned PACKS = WIDE * HIGH;
  static constexpr bool EVEN = WIDE * ACROSS * W == COLS && HIGH * DOWN == ROWS;  // all threads have all their packs
  static_assert(DOWN * ACROSS == THREADS, "threads stand in whole rows");

  // Where the thread's first pack begins, and how far below and right of that its pack i does.
  static __device__ __forceinline__ unsigned row() { return threadIdx.x / ACROSS; }
  static __device__ __forceinline__ unsigned col() { return threadIdx.x % ACROSS * W; }
  static constexpr __device__ __forceinline__ unsigned below(unsigned i) { return i / WIDE * DOWN; }
  static constexpr __device__ __forceinline__ unsigned right(unsigned i) { return i % WIDE * ACROSS * W; }

  static __device__ __forceinline__ bool has(unsigned i) {
    return (HIGH * DOWN == ROWS || row() + below(i) < ROWS) && (WIDE * ACROSS * W == COLS || col() + right(i) < COLS);
  }
};

// A pack in global memory, of which the first `bytes` bytes are there.
template <class T>
struct Origin {
  const T *from;
  unsigned bytes;
};

// Where a thread's packs come from, one panel after the other along k, of an operand k deep and `width` wide. Those
// beyond its edges are not there. RAGGED panels: rows may end inside of a pack; else it lies wholly inside or outside.
template <class Panel, class Mine>
struct PanelSource {
  using T = typename Panel::T;
  static constexpr bool ALONG_K = Panel::ALONG_K;
  const T *from;
  unsigned row, col, rows, cols, ld;  // of the first pack, of the operand, as stored

  // The panel at k0, w0 is the first.
  __device__ __forceinline__ PanelSource(const T *x, unsigned k0, unsigned w0, unsigned k, unsigned width, unsigned ld_)
      : row((ALONG_K ? w0 : k0) + Mine::row()), col((ALONG_K ? k0 : w0) + Mine::col()), rows(ALONG_K ? width : k),
        cols(ALONG_K ? k : width), ld(ld_) {
    from = x + offset<Op::N>(row, col, ld);
  }

  __device__ __forceinline__ Origin<T> operator()(unsigned i) const {
    const unsigned at = col + Mine::right(i), left = Panel::RAGGED ? min(cols - at, Mine::W) : Mine::W;
    const bool inside = row + Mine::below(i) < rows && at < cols;
    return {from + size_t(Mine::below(i)) * ld + Mine::right(i), inside ? left * unsigned(sizeof(T)) : 0};
  }

  // On to the next panel along k.
  __device__ __forceinline__ void advance() {
    (ALONG_K ? col : row) += ALONG_K ? Panel::COLS : Panel::ROWS;
    from += ALONG_K ? Panel::COLS : size_t(Panel::ROWS) * ld;
  }
};
