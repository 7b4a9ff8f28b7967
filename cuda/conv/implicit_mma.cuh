// The main loop of an implicit product on tensor cores: gemm/mma_pipeline.cuh, fed by implicit_feed.cuh.
#pragma once
#include "conv/implicit_feed.cuh"
#include "gemm/mma_arithmetic.cuh"
#include "gemm/mma_pipeline.cuh"
#include "gemm/mma_store.cuh"

template <class Arithmetic, Direction direction, Layout layout, int BM, int BN, int BK, int WM, int WN, int STAGES,
          int W, bool MASKED>
struct ImplicitMma {
  using Map = Lowering<direction, layout>;
  using T = typename Arithmetic::Storage;
  static constexpr int THREADS = 32 * (BM / WM) * (BN / WN);
  static constexpr bool A_ALONG = Map::GATHERED_ROWS ? Map::GATHERED_ALONG : Map::PLAIN_ALONG;
  static constexpr bool B_ALONG = Map::GATHERED_ROWS ? Map::PLAIN_ALONG : Map::GATHERED_ALONG;
  using PanelA = MmaPanel<Side::A, T, BK, BM, A_ALONG>;
  using PanelB = MmaPanel<Side::B, T, BK, BN, B_ALONG>;
  using Pipeline = MmaPipeline<Arithmetic, PanelA, PanelB, BK, WM, WN, STAGES>;
  using Fed = Feeds<Map, PanelA, PanelB, W, W, THREADS, MASKED>;

  typename Fed::A a;
  typename Fed::B b;
  unsigned k0, k_end;

  // Adds the product to the sums.
  __device__ __forceinline__ void accumulate(Pipeline &pipeline) {
    int left = k_end - k0;
    pipeline.accumulate((k_end - k0 + BK - 1) / BK, [&](T *slot) {
      a.copy(slot, left);
      b.copy(slot + PanelA::ELEMENTS, left);
      Fed::advance(a, b);
      left -= BK;
    });
  }
};

// Stores 16 rows of a warp's tile, out of a stripe of shared memory, V elements at once. The stripe's first element is
// at row0, col0 of the product.
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
