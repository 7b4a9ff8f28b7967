// The main loop of an implicit product on tensor cores: gemm/mma_pipeline.cuh, fed by implicit_feed.cuh.
#pragma once
#include "conv/implicit_feed.cuh"
#include "gemm/mma_arithmetic.cuh"
#include "gemm/mma_pipeline.cuh"
#include "gemm/mma_store.cuh"

// Where gemm/mma_panel.cuh wants the elements of a panel: chunk c of row r, 16 bytes, at place c ^ key(r). PACK
// elements are copied at once: a chunk, or one of FP32, whose neighbours may lie anywhere.
template <class Element, int BK, int COUNT, int PACK, bool along>
struct ChunkPanel {
  using T = Element;
  static constexpr unsigned DEPTH = BK, WIDTH = COUNT, W = PACK, V = 16 / sizeof(T);
  static constexpr bool ALONG = along;
  static constexpr unsigned COLS = along ? BK : COUNT, CHUNKS = COLS / V;

  static __device__ __forceinline__ unsigned key(unsigned row) {
    if constexpr (!along && sizeof(T) == 4) return row % 4 * 2;
    if constexpr (CHUNKS < 8) return row / (8 / CHUNKS) % CHUNKS;
    return row % 8;
  }

  // Pack i of a thread whose first is at (depth, place), each AHEAD further: a constant further where that leaves the
  // key and the places that it changes alone.
  template <unsigned AHEAD>
  static __device__ __forceinline__ void copy(T *panel, unsigned depth, unsigned place, unsigned i, const T *from,
                                              bool inside) {
    static_assert(!along || AHEAD % 8 == 0, "rows ahead have the same key");
    constexpr bool CONSTANT = along || AHEAD % (8 * V) == 0;
    const unsigned row = along ? place : depth, col = along ? depth : place + (CONSTANT ? 0 : i * AHEAD);
    const unsigned further = CONSTANT ? i * AHEAD * (along ? COLS : 1) * sizeof(T) : 0;
    const unsigned at = row * COLS + (col / V ^ key(row)) * V + col % V;
    const unsigned to = ptx::smem_address(panel + at) + further, bytes = W * sizeof(T);
    if constexpr (W == V) {
      ptx::cp_async_cg(to, from, inside ? bytes : 0);
    } else {
      ptx::cp_async_ca<4>(to, from, inside ? bytes : 0);
    }
  }
};

template <class Arithmetic, Direction direction, Layout layout, int BM, int BN, int BK, int WM, int WN, int STAGES,
          int W, bool MASKED>
struct ImplicitMma {
  using Map = Lowering<direction, layout>;
  using T = typename Arithmetic::Storage;
  static constexpr int THREADS = 32 * (BM / WM) * (BN / WN);
  static constexpr bool A_ALONG = Map::GATHERED_ROWS ? Map::GATHERED_ALONG : Map::PLAIN_ALONG;
  static constexpr bool B_ALONG = Map::GATHERED_ROWS ? Map::PLAIN_ALONG : Map::GATHERED_ALONG;
  using PanelA = MmaPanel<Side::A, T, BK, BM, THREADS, 16 / sizeof(T), A_ALONG>;
  using PanelB = MmaPanel<Side::B, T, BK, BN, THREADS, 16 / sizeof(T), B_ALONG>;
  using Pipeline = MmaPipeline<Arithmetic, PanelA, PanelB, BK, WM, WN, STAGES>;
  using Fed = Feeds<Map, ChunkPanel<T, BK, BM, W, A_ALONG>, ChunkPanel<T, BK, BN, W, B_ALONG>, THREADS, MASKED>;

  typename Fed::A a;
  typename Fed::B b;
  unsigned k0, k_end;

  // Adds the product to the sums.
  __device__ __forceinline__ void accumulate(Pipeline &pipeline) {
    pipeline.accumulate((k_end - k0 + BK - 1) / BK, [this](unsigned step, T *slot) {
      a.copy(slot, k0 + step * BK, k_end);
      b.copy(slot + PanelA::ELEMENTS, k0 + step * BK, k_end);
    });
  }
};

// Stores 16 rows of a warp's tile, out of a stripe of shared memory, V elements at once. The first row's first element
// is that at row0, col0 of the product.
template <int WN, int V, class Map, class T>
__device__ __forceinline__ void store_stripe(const float *stripe, T *out, const Map &map, unsigned row0,
                                             unsigned col0) {
  constexpr unsigned ACROSS = WN / V < 32 ? WN / V : 32, ROWS = 32 / ACROSS;  // lanes in a row, rows at once
  const unsigned lane_id = threadIdx.x % 32;
#pragma unroll
  for (unsigned i = lane_id / ACROSS; i < 16; i += ROWS) {
    if (row0 + i >= map.rows()) return;
    T *line = out + map.row_output(row0 + i);
#pragma unroll
    for (unsigned j = lane_id % ACROSS * V; j < WN; j += ACROSS * V) {
      if (col0 + j >= map.cols()) break;
      Pack<T, V> values;
#pragma unroll
      for (int e = 0; e < V; ++e) values.e[e] = T(stripe[i * Stripe<WN>::PITCH + j + e]);
      *reinterpret_cast<Pack<T, V> *>(line + map.col_output(col0 + j)) = values;
    }
  }
}
