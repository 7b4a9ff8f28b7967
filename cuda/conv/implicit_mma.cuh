// The main loop of an implicit product on tensor cores: gemm/mma.cuh's, fed by implicit_feed.cuh.
#pragma once
#include "conv/implicit_feed.cuh"
#include "gemm/mma_arithmetic.cuh"
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
  static constexpr int THREADS = 32 * (BM / WM) * (BN / WN), MT = WM / 16, NT = WN / 16;
  static constexpr int PRODUCTS = BK * sizeof(T) / 32;  // along k in a step
  static_assert(PRODUCTS % 2 == 0, "each step begins with the same half of the fragments");
  static constexpr bool A_ALONG = Map::GATHERED_ROWS ? Map::GATHERED_ALONG : Map::PLAIN_ALONG;
  static constexpr bool B_ALONG = Map::GATHERED_ROWS ? Map::PLAIN_ALONG : Map::GATHERED_ALONG;
  using PanelA = MmaPanel<Side::A, T, BK, BM, THREADS, 16 / sizeof(T), A_ALONG>;
  using PanelB = MmaPanel<Side::B, T, BK, BN, THREADS, 16 / sizeof(T), B_ALONG>;
  using Fed = Feeds<Map, ChunkPanel<T, BK, BM, W, A_ALONG>, ChunkPanel<T, BK, BN, W, B_ALONG>, THREADS, MASKED>;
  static constexpr unsigned STAGE = PanelA::ELEMENTS + PanelB::ELEMENTS;

  struct Fragments {
    Fragment16 a[MT], b[NT];
  };

  typename Fed::A a;
  typename Fed::B b;
  T *smem;
  unsigned k0, k_end;
  unsigned warp_m, warp_n;  // the warp's corner in the block's tile
  float sums[MT][NT][2][4] = {};

  // Adds the product. When it returns, all threads are done with shared memory.
  __device__ __forceinline__ void accumulate() {
#pragma unroll 1
    for (unsigned step = 0; step < STAGES - 1; ++step) start(step);
    arrive();
    Fragments fragments[2];
    load(fragments[0], 0, 0);
    for (unsigned step = 0; k0 + step * BK < k_end; ++step) {
#pragma unroll
      for (unsigned kk = 0; kk < PRODUCTS; ++kk) {
        if (kk + 1 == PRODUCTS) arrive();  // behind it the fragments come from the next step
        load(fragments[(kk + 1) % 2], step + (kk + 1) / PRODUCTS, (kk + 1) % PRODUCTS);
        if (kk == 0) start(step + STAGES - 1);
        multiply(fragments[kk % 2]);
      }
    }
    ptx::cp_async_wait_all();
    __syncthreads();  // nobody reads or copies any more
  }

 private:
  // Starts the copies of a step as one group, into the slot of the step before the present one, which all have read
  // since the last barrier. Behind the last step lie zeros, for which nothing is read.
  __device__ __forceinline__ void start(unsigned step) {
    T *slot = smem + step % STAGES * STAGE;
    a.copy(slot, k0 + step * BK, k_end);
    b.copy(slot + PanelA::ELEMENTS, k0 + step * BK, k_end);
    ptx::cp_async_commit();
  }

  // All groups but the youngest STAGES - 2 are there, as far as this thread copied them, and then wholly.
  static __device__ __forceinline__ void arrive() {
    ptx::cp_async_wait<STAGES - 2>();
    __syncthreads();
  }

  __device__ __forceinline__ void load(Fragments &f, unsigned step, unsigned kk) const {
    const T *slot = smem + step % STAGES * STAGE;
#pragma unroll
    for (int i = 0; i < MT; ++i) f.a[i] = PanelA::load(slot, warp_m, i, kk);
#pragma unroll
    for (int j = 0; j < NT; ++j) f.b[j] = PanelB::load(slot + PanelA::ELEMENTS, warp_n, j, kk);
  }

  __device__ __forceinline__ void multiply(const Fragments &f) {
    typename Arithmetic::Operand left[MT];
#pragma unroll
    for (int i = 0; i < MT; ++i) left[i] = Arithmetic::prepare(f.a[i]);
#pragma unroll
    for (int j = 0; j < NT; ++j) {
      const typename Arithmetic::Operand right = Arithmetic::prepare(f.b[j]);
#pragma unroll
      for (int half = 0; half < 2; ++half)
#pragma unroll
        for (int i = 0; i < MT; ++i) Arithmetic::multiply(sums[i][j][half], left[i], right, half);
    }
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
