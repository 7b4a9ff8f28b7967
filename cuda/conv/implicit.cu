// Convolution and both gradients as products of matrices that are gathered while they are multiplied (implicit GEMM),
// in FP32 on FFMA: only the operands themselves are read from memory.
//
// conv/lowering.cuh defines which index of the operands is a row, a column and the reduction. Tile: a block owns BM x
// BN elements of that product, a warp WM x WN of them, a lane TM x TN (gemm/fragment.cuh). Panels are copied STAGES - 1
// steps ahead by cp.async (conv/implicit_feed.cuh), with one barrier per step. blockIdx.x counts tiles of the gathered
// operand, blockIdx.y those of the plain one, blockIdx.z groups, phases and slices of the reduction.
// Slices: a filter's gradient has few elements and a long reduction, and so do layers of small images. The reduction is
// then cut into as many slices as fill the device. Their sums are stored separately, and a second launch adds them in
// ascending order, so that a result never depends on which block came first.
// Preconditions: compute capability 8.0. W = 4 requires pointers aligned to 16 bytes, and the filters and channels of a
// group, where they are neighbours in memory, to be multiples of 4; V = 4 requires the same of the output's rows
// (kernels/conv/implicit.py). The images that a tile touches have less than 2^31 elements.
// Limit: FFMA issue, less what copying word by word takes of it: wider copies cannot transpose a panel that is read
// along the reduction, and neighbouring pixels of a plane are not aligned. Of the instructions of a step on sm_90a, 81
// to 83 % are FFMA with tiles of 128 x 128, 87 to 90 % with 128 x 256. Few channels or pixels leave part of a tile
// empty; a short reduction (the first layer of a network) ends before the pipeline has filled.
#include "conv/implicit_feed.cuh"
#include "conv/sum.cuh"
#include "gemm/pipeline.cuh"

// Blocks per multiprocessor, by which the compiler limits registers. dgrad without a mask, which compares rows and
// columns, takes the most registers.
template <int SUMS, int THREADS, bool CROWDED>
constexpr int IMPLICIT_BLOCKS_PER_SM = SUMS > 64 ? 1 : THREADS > 128 || CROWDED ? 2 : 3;

// Floats after each row of a panel: where a warp copies several rows of it word by word, they lie in different banks.
template <bool ALONG, int W, int THREADS_A_ROW>
constexpr int IMPLICIT_PAD = ALONG || W > 1 || THREADS_A_ROW >= 32 || THREADS_A_ROW < PAD ? PAD : THREADS_A_ROW;

template <Direction direction, Layout layout, int BM, int BN, int BK, int WM, int WN, int TM, int TN, int STAGES, int W,
          bool MASKED>
struct ImplicitLoop {
  using Map = Lowering<direction, layout>;
  using Tile = Fragment<BM, BN, BK, WM, WN, TM, TN>;
  static constexpr bool A_ALONG = Map::GATHERED_ROWS ? Map::GATHERED_ALONG : Map::PLAIN_ALONG;
  static constexpr bool B_ALONG = Map::GATHERED_ROWS ? Map::PLAIN_ALONG : Map::GATHERED_ALONG;
  using PanelA = PaddedPanel<float, BK, BM, A_ALONG ? Op::T : Op::N, IMPLICIT_PAD<A_ALONG, W, Tile::THREADS / BK>>;
  using PanelB = PaddedPanel<float, BK, BN, B_ALONG ? Op::T : Op::N, IMPLICIT_PAD<B_ALONG, W, Tile::THREADS / BK>>;
  using Fed = Feeds<Map, PanelA, PanelB, A_ALONG ? 1 : W, B_ALONG ? 1 : W, Tile::THREADS, MASKED>;

  typename Fed::A a;
  typename Fed::B b;
  float *smem;
  unsigned k0, k_end;

  // The thread's copies; `left` elements along the reduction from the next step on.
  struct Copies {
    static constexpr bool THIRDS = false;
    typename Fed::A &a;
    typename Fed::B &b;
    int left;

    template <int>
    __device__ __forceinline__ void start(float *slot, bool) {
      a.copy(slot, left);
      b.copy(slot + PanelA::ELEMENTS, left);
      Fed::advance(a, b);
      left -= BK;
    }
  };

  // Adds the products of all panels from k0 to k_end to the tile.
  __device__ __forceinline__ void accumulate(Tile &tile) {
    Copies copies{a, b, int(k_end - k0)};
    pipelined<PanelA, PanelB, BK, STAGES>(tile, smem, (k_end - k0 + BK - 1) / BK, copies);
  }
};

// Stores a tile, V elements at once; its first element is at row0, col0 of the product. An addition of 0 moves them to
// other registers: sums that are stored as a pack would lie in the banks of their factors, and every second FFMA of the
// main loop would read three registers of one bank.
template <int V, int TM, int TN, class Tile, class Map>
__device__ __forceinline__ void store_tile(const Tile &tile, float *out, const Map &map, unsigned row0, unsigned col0) {
  size_t across[TN / V];
#pragma unroll
  for (int j = 0; j < TN; j += V) across[j / V] = map.col_output(col0 + tile.col(j));
#pragma unroll
  for (int i = 0; i < TM; ++i) {
    const unsigned row = row0 + tile.row(i);
    if (row >= map.rows()) return;
    float *line = out + map.row_output(row);
#pragma unroll
    for (int j = 0; j < TN; j += V) {
      if (col0 + tile.col(j) >= map.cols()) break;
      float pack[V];
#pragma unroll
      for (int e = 0; e < V; ++e) pack[e] = tile.sums[i][j + e] + 0.0f;
      store_pack<V>(line + across[j / V], pack);
    }
  }
}

// out: the operand, or with several slices partial[slice], each laid out like the operand, with `elements` elements.
template <Direction direction, Layout layout, int BM, int BN, int BK, int WM, int WN, int TM, int TN, int STAGES, int W,
          int V, bool MASKED>
__global__ void __launch_bounds__(32 * (BM / WM) * (BN / WN),
                                  IMPLICIT_BLOCKS_PER_SM<TM * TN, 32 * (BM / WM) * (BN / WN),
                                                         direction == Direction::dgrad && !MASKED>)
    conv_implicit(const float *__restrict__ plain, const float *__restrict__ gathered, float *__restrict__ out,
                  unsigned slice_depth, unsigned slices, long long elements, const __grid_constant__ Geometry g) {
  using Loop = ImplicitLoop<direction, layout, BM, BN, BK, WM, WN, TM, TN, STAGES, W, MASKED>;
  using Map = typename Loop::Map;
  DYN_SHARED(float, smem);
  const Map map(g, blockIdx.z / slices);
  const auto block = ImplicitBlock::at<Map, BM, BN>(map, slice_depth, slices);
  if (block.row0 >= map.rows() || block.col0 >= map.cols()) return;  // this phase has fewer pixels than another
  Loop loop{{map, Map::GATHERED_ROWS ? gathered : plain, block.k0, block.row0},
            {map, Map::GATHERED_ROWS ? plain : gathered, block.k0, block.col0},
            smem,
            block.k0, block.k_end};
  typename Loop::Tile tile;
  loop.accumulate(tile);

  out += block.slice * elements;
  if constexpr (direction == Direction::dgrad) {
    // Constructed again: kept through the loop, a phase takes registers.
    store_tile<V, TM, TN>(tile, out, Map(g, blockIdx.z / slices), block.row0, block.col0);
  } else {
    store_tile<V, TM, TN>(tile, out, map, block.row0, block.col0);
  }
}
