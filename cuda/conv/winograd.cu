// Fused Winograd F(2x2,3x3): the output, or the input's gradient, in one pass. Transformed input and products never
// leave the multiprocessor; only the filters are transformed beforehand, by winograd_filters.cuh.
//
// After Yan, Wang, Chu, "Optimizing Batched Winograd Convolution on GPUs", PPoPP 2020.
// Tile: a block owns BK filters x 32 tiles of 2 x 2 outputs, in all 16 frequencies, of one group (blockIdx.y).
// blockIdx.x counts filters first, so that blocks in flight together read the same input. A step is 8 channels: a
// thread fetches the 4 x 4 patch of one tile and channel, and cp.async copies the filters, both for the next step while
// this one is multiplied. A warp multiplies two frequencies, BK x 32 each; a lane has BK / 8 filters x 8 tiles of both.
// For the inverse transform all frequencies of 32 filters at a time are exchanged through shared memory. Where tiles
// and filters are too few for the device, blockIdx.z counts slices of the channels, whose sums a further launch adds.
// Preconditions: compute capability 8.0; 3 x 3 filters, stride and dilation 1; ldk, the filters in a row of u, is a
// multiple of BK, and `depth`, the channels of a slice, of 8.
// Limit: FFMA issue. With BK = 64 a step is 1024 FFMA per thread among 1300 instructions: 64 reads of 16 bytes, 16
// loads of the patch with their predicates, 32 additions, 16 stores, 8 copies. That block has a multiprocessor to
// itself, so nothing hides its first step and the inverse transform: for few channels BK = 32 is better, of which two
// blocks fit.
#include "conv/sum.cuh"
#include "conv/winograd_filters.cuh"
#include "gemm/panel.cuh"
#include "panel_copy.cuh"

namespace {

constexpr int BC = 8, BT = 32, THREADS = 256, FREQUENCIES = F2::FREQUENCIES;
constexpr int WIDE = 32;  // filters exchanged through shared memory at a time; those of one float4 of every lane

// A step's operands in shared memory; the channels' rows of each frequency follow one another.
template <int BK>
struct Stage {
  static constexpr int FILTER_FLOATS = FREQUENCIES * BC * BK, FLOATS = FILTER_FLOATS + FREQUENCIES * BC * BT;
};

// The number with which a tile's place in the row of a channel is XORed, so that a warp stores without bank conflicts
// what it has fetched: 32 tiles of one channel or, where channels are neighbours in memory, four tiles of each of eight
// channels.
template <Layout layout>
__device__ __forceinline__ constexpr unsigned exchanged(unsigned channel) {
  return layout == Layout::nchw ? 0 : channel * 4;
}

// Starts the copy of a step's filters, BK from `from` on. Rows of channels from `left` on become zeros.
template <int BK>
__device__ __forceinline__ void copy_filters(float *stage, const float *__restrict__ from, size_t frequency,
                                             unsigned ldk, unsigned left) {
  using Panel = PaddedPanel<float, FREQUENCIES * BC, BK, Op::N, 0>;
  using Mine = Share<Panel::ROWS, BK, THREADS, 4>;
  static_assert(Mine::DOWN % BC == 0, "a thread stays with its channel");
  const unsigned channel = Mine::row() % BC;
  const bool there = channel < left;
  const float *first = there ? from + Mine::row() / BC * frequency + size_t(channel) * ldk + Mine::col() : from;
  const size_t further = there ? Mine::DOWN / BC * frequency : 0;
  copy_panel<Panel, Mine>(stage, [&](unsigned i) { return Origin<float>{first + i * further, there ? 16u : 0}; });
}

// Transforms a patch into the stage, to all frequencies of its channel and tile.
template <int BK, Layout layout>
__device__ __forceinline__ void stash(float *stage, const float (&patch)[4][4], unsigned channel, unsigned tile) {
  float made[4][4];
  transform<F2::Input>(patch, made);
  float *to = stage + Stage<BK>::FILTER_FLOATS + channel * BT + (tile ^ exchanged<layout>(channel));
#pragma unroll
  for (int f = 0; f < FREQUENCIES; ++f) to[f * BC * BT] = made[f / 4][f % 4];
}

// One lane's products: for each of the warp's two frequencies, CHUNKS chunks of 4 filters, 32 apart, times two chunks
// of 4 tiles, 16 apart. Lanes that differ in the lowest bit have the same filters, lanes that differ in the next bits
// the same tiles: a warp's read of 16 bytes per lane then takes two cycles, not four.
template <int BK>
struct Products {
  static constexpr int CHUNKS = BK / WIDE, PAIR = FREQUENCIES / (THREADS / 32);
  float sums[PAIR][4 * CHUNKS][8] = {};

  static __device__ __forceinline__ unsigned frequency() { return threadIdx.x / 32 * PAIR; }
  static __device__ __forceinline__ unsigned filter() { return threadIdx.x / 2 % 8 * 4; }
  static __device__ __forceinline__ unsigned tile() { return (threadIdx.x % 2 + threadIdx.x / 16 % 2 * 2) * 4; }

  // With more channels at once the compiler reads further ahead than it has registers for.
  template <Layout layout>
  __device__ __forceinline__ void multiply(const float *stage) {
    constexpr int AT_ONCE = BK == 32 ? 1 : layout == Layout::nchw ? 4 : 2;
    const float *filters = stage + frequency() * BC * BK + filter();
    const float *tiles = stage + Stage<BK>::FILTER_FLOATS + frequency() * BC * BT;
#pragma unroll AT_ONCE
    for (int channel = 0; channel < BC; ++channel) {
      // A lane's tile is below 16: the XOR within the 16 differs by lane, the rest is the same for all lanes.
      const float *near = tiles + (tile() ^ exchanged<layout>(channel) % 16);
      const int far = exchanged<layout>(channel) / 16 * 16;
#pragma unroll
      for (int f = 0; f < PAIR; ++f) {
        float left[4 * CHUNKS], right[8];
#pragma unroll
        for (int i = 0; i < CHUNKS; ++i) load_pack<4>(&left[4 * i], &filters[(f * BC + channel) * BK + i * WIDE]);
#pragma unroll
        for (int j = 0; j < 2; ++j) load_pack<4>(&right[4 * j], &near[(f * BC + channel) * BT + (16 * j ^ far)]);
#pragma unroll
        for (int i = 0; i < 4 * CHUNKS; ++i)
#pragma unroll
          for (int j = 0; j < 8; ++j) sums[f][i][j] += left[i] * right[j];
      }
    }
  }
};

// Where the frequencies of 32 filters x 32 tiles are exchanged: a matrix for each, whose columns are contiguous in the
// output. Columns are XORed so that neither writes of 16 bytes per lane nor reads along a row have bank conflicts.
// Neighbours are exchanged: a pack in order would lie in registers whose banks are those of its factors, and every
// second FFMA of the main loop would read three registers of one bank.
template <Layout layout>
struct Exchange {
  static constexpr int MATRIX = WIDE * BT;
  float *smem;

  static __device__ __forceinline__ unsigned at(unsigned row, unsigned col) {
    return row * 32 + (layout == Layout::nchw ? col ^ row / 4 % 4 * 8 : col ^ row / 4 % 2 * 16);
  }

  template <int BK>
  __device__ __forceinline__ void put(const Products<BK> &products, int chunk) const {
#pragma unroll
    for (int f = 0; f < Products<BK>::PAIR; ++f) {
      float *matrix = smem + (products.frequency() + f) * MATRIX;
#pragma unroll
      for (int e = 0; e < 8; ++e) {
        constexpr bool ROWS = layout == Layout::nchw;  // of filters, four tiles at once; else of tiles, four filters
        float pack[4];
#pragma unroll
        for (int i = 0; i < 4; ++i)
          pack[i ^ 1] = ROWS ? products.sums[f][4 * chunk + e / 2][e % 2 * 4 + i] : products.sums[f][4 * chunk + i][e];
        store_pack<4>(&matrix[ROWS ? at(products.filter() + e / 2, products.tile() + e % 2 * 16)
                                   : at(products.tile() + e / 4 * 16 + e % 4, products.filter())],
                      pack);
      }
    }
  }

  // Computes the outputs of one filter and tile.
  __device__ __forceinline__ void get(float (&outputs)[2][2], unsigned row, unsigned col) const {
    float met[4][4];
#pragma unroll
    for (int f = 0; f < FREQUENCIES; ++f) met[f / 4][f % 4] = smem[f * MATRIX + at(row, col ^ 1)];
    transform<F2::Output>(met, outputs);
  }
};

}  // namespace

// x: n images, h x w, of c channels per group; the patch of an output begins `top` rows and `left` columns before it.
// y: p x q, of k channels per group, as many times as there are slices.
template <int BK, Layout layout>
__global__ void __launch_bounds__(THREADS, BK == 64 ? 1 : 2)
    winograd_fused(const float *__restrict__ x, const float *__restrict__ u, float *__restrict__ y, unsigned n,
                   unsigned c, unsigned h, unsigned w, unsigned k, unsigned p, unsigned q, int top, int left,
                   unsigned ldk, unsigned depth) {
  DYN_SHARED(float, smem);
  const unsigned group = blockIdx.y, groups = gridDim.y;
  const unsigned filter0 = blockIdx.x % (ldk / BK) * BK, tile0 = blockIdx.x / (ldk / BK) * BT;
  const OutputTiles<F2::M> tiles(n, p, q);
  const Images<layout> in{c * groups, h, w}, out{k * groups, p, q};
  const size_t frequency = size_t(groups) * c * ldk, channels = BC * in.channel();
  const size_t first = size_t(blockIdx.z) * depth;
  u += (size_t(group) * c + first) * ldk + filter0;
  x += (size_t(group) * c + first) * in.channel();
  c = min(c - blockIdx.z * depth, depth);

  const unsigned channel = layout == Layout::nchw ? threadIdx.x / BT : threadIdx.x % BC;
  const unsigned tile = layout == Layout::nchw ? threadIdx.x % BT : threadIdx.x / BC;
  const bool mine = tile0 + tile < tiles.count;
  const Patch<F2, layout> patch(x + channel * in.channel(), in, tiles.at(tile0 + tile), top, left);

  Products<BK> products;
  float fetched[4][4];
  copy_filters<BK>(smem, u, frequency, ldk, c);
  patch.fetch(fetched, 0, mine && channel < c);
  stash<BK, layout>(smem, fetched, channel, tile);
  const unsigned steps = (c + BC - 1) / BC;
  for (unsigned step = 0; step < steps; ++step) {
    ptx::cp_async_wait_all();
    __syncthreads();  // this step's stage is complete, and no thread still reads the other one
    const float *stage = smem + step % 2 * Stage<BK>::FLOATS;
    float *next = smem + (step + 1) % 2 * Stage<BK>::FLOATS;
    const unsigned done = (step + 1) * BC;
    const bool more = step + 1 < steps;
    if (more) {
      copy_filters<BK>(next, u + size_t(done) * ldk, frequency, ldk, c - done);
      patch.fetch(fetched, (step + 1) * channels, mine && done + channel < c);
    }
    products.template multiply<layout>(stage);
    if (more) stash<BK, layout>(next, fetched, channel, tile);
  }

  y += size_t(blockIdx.z) * n * out.image();
  const Exchange<layout> exchange{smem};
#pragma unroll
  for (int chunk = 0; chunk < BK / WIDE; ++chunk) {
    __syncthreads();  // no thread still reads the stage, or the previous filters
    exchange.put(products, chunk);
    __syncthreads();  // all frequencies are in shared memory
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      const unsigned row = threadIdx.x / 32 + i * 8, col = threadIdx.x % 32;
      const unsigned filter = filter0 + chunk * WIDE + (layout == Layout::nchw ? row : col);
      const unsigned index = tile0 + (layout == Layout::nchw ? col : row);
      if (filter >= k || index >= tiles.count) continue;
      float outputs[2][2];
      exchange.get(outputs, row, col);
      store_tile<F2::M>(y + (size_t(group) * k + filter) * out.channel(), out, tiles.at(index), outputs);
    }
  }
}
