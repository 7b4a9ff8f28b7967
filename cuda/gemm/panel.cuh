// Panels: what a block reads of A or B for one step along k, BK deep and BM rows of op(A) or BN columns of op(B) wide.
//
// In shared memory k always runs down a panel's rows, panel[kk][w], however the operand is stored: the product then
// reads neighbours, and one body serves all four layouts. When a panel is copied, threads run along the rows as stored,
// so that global loads coalesce. PAD floats after each row keep it aligned to a float4 and shift each row by four
// banks, so that a store across 8 rows, which an operand stored along k needs, has no bank conflicts.
#pragma once
#include "panel_share.cuh"

constexpr int PAD = 4;

// Blocks of 256 threads per multiprocessor, by which the compiler limits registers: two, so that one computes while the
// other waits, unless each thread's TM x TN sums leave no room.
template <int TM, int TN>
constexpr int SGEMM_BLOCKS_PER_SM = TM * TN <= 64 ? 2 : 1;

// How op(A) is stored relative to its panel, which holds op(A) by columns.
template <Op op>
constexpr Op flipped = op == Op::N ? Op::T : Op::N;

// Moves W neighbours at once; W = 4 requires them to be aligned to 16 bytes.
template <int W>
__device__ __forceinline__ void load_pack(float *values, const float *from) {
  if constexpr (W == 4) {
    const float4 pack = *reinterpret_cast<const float4 *>(from);
    values[0] = pack.x, values[1] = pack.y, values[2] = pack.z, values[3] = pack.w;
  } else {
    values[0] = *from;
  }
}
template <int W>
__device__ __forceinline__ void store_pack(float *to, const float *values) {
  if constexpr (W == 4) {
    *reinterpret_cast<float4 *>(to) = make_float4(values[0], values[1], values[2], values[3]);
  } else {
    *to = values[0];
  }
}

// Stores W neighbours of the product to a row of C. C is not read where beta is 0.
template <int W>
__device__ __forceinline__ void store_scaled_pack(float *c, const float *products, float alpha, float beta) {
  float values[W];
  if (beta != 0.0f) load_pack<W>(values, c);
#pragma unroll
  for (int i = 0; i < W; ++i) values[i] = beta == 0.0f ? alpha * products[i] : alpha * products[i] + beta * values[i];
  store_pack<W>(c, values);
}

// BK x WIDTH elements of an operand, with k down the rows of shared memory and PADDING elements after each row.
// ALONG_K: the operand is stored along k, and so transposed when it is copied.
template <class Element, int BK, int WIDTH, Op op, int PADDING = PAD>
struct PaddedPanel {
  using T = Element;
  static constexpr bool ALONG_K = op == Op::T, RAGGED = false;
  static constexpr unsigned ROWS = ALONG_K ? WIDTH : BK, COLS = ALONG_K ? BK : WIDTH;  // as stored
  static constexpr unsigned PITCH = WIDTH + PADDING, ELEMENTS = BK * PITCH;

  // The place of the element `below` rows below and `right` columns right of the one at row, col. The sum has 64 bits:
  // its constant part can then be an instruction's offset. In 32 bits it could not, since the sum may wrap around.
  static __device__ __forceinline__ size_t place(unsigned row, unsigned col, unsigned below, unsigned right) {
    const unsigned first = ALONG_K ? col * PITCH + row : row * PITCH + col;
    const unsigned next = ALONG_K ? right * PITCH + below : below * PITCH + right;
    return size_t{first} + next;
  }
};

// A panel that is copied through registers: fetched from global memory, then stashed in shared memory. Past k and width
// it holds zeros, which add nothing. W = 4 requires ld and the length of the stored rows to be multiples of 4, so that
// a pack lies wholly inside the operand or wholly outside.
template <int BK, int WIDTH, int THREADS, int W, Op op>
struct StagedPanel {
  using Panel = PaddedPanel<float, BK, WIDTH, op>;
  using Mine = Share<Panel::ROWS, Panel::COLS, THREADS, W>;
  static_assert(Mine::EVEN, "the threads share a panel evenly");
  PanelSource<Panel, Mine> source;
  float staged[Mine::PACKS][W];

  __device__ __forceinline__ StagedPanel(const float *__restrict__ x, unsigned w0, unsigned k, unsigned width,
                                         unsigned ld)
      : source(x, 0, w0, k, width, ld) {}

  // Fetches the next panel along k.
  __device__ __forceinline__ void fetch() {
#pragma unroll
    for (unsigned i = 0; i < Mine::PACKS; ++i) {
      const Origin<float> origin = source(i);
#pragma unroll
      for (int e = 0; e < W; ++e) staged[i][e] = 0.0f;
      if (origin.bytes) load_pack<W>(staged[i], origin.from);
    }
    source.advance();
  }

  __device__ __forceinline__ void stash(float (*panel)[WIDTH + PAD]) const {
#pragma unroll
    for (unsigned i = 0; i < Mine::PACKS; ++i) {
      float *to = panel[0] + Panel::place(Mine::row(), Mine::col(), Mine::below(i), Mine::right(i));
      if constexpr (op == Op::N) {
        store_pack<W>(to, staged[i]);
      } else {
#pragma unroll
        for (int e = 0; e < W; ++e) to[e * Panel::PITCH] = staged[i][e];
      }
    }
  }
};
