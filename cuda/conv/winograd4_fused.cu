// Winograd F(4x4,3x3), products and the output's transform in one kernel: the products never reach memory.
//
// winograd_filters computes U (36 matrices c x ldk for each group) and winograd4_input V (36 of channels x ldt), as for
// conv/winograd4.cu. winograd4_fused multiplies them in three passes over the channels. A block owns 64 filters x 48
// tiles, a pass two columns of the 6 x 6 frequencies, a warp one of these twelve, and a lane 8 x 12 products of it.
// After each pass the block exchanges the products through shared memory and transforms them down the columns. The
// first two passes keep the result, 16 floats a filter and tile, in `kept`; the last one transforms along the rows,
// too, and stores the outputs. A thread reads what it has kept itself.
// Preconditions: compute capability 9.0, for which it is compiled without spills, and up to 168 KiB of shared memory a
// block; 3 x 3 filters, stride and dilation 1; ldk is a multiple of 64, ldt of 48.
// Limit: FFMA issue: a step of 8 channels has 768 FFMA and 40 reads of 16 bytes a thread. A block has a multiprocessor
// to itself, so nothing hides the first steps of a pass and its exchange: for few channels or few blocks,
// conv/winograd4.cu is better, though it moves 36 products a filter and tile to memory and back.
#include "conv/winograd4_input.cuh"
#include "gemm/pipeline.cuh"

namespace {

constexpr int BC = 8, THREADS = 384, TOGETHER = 12, FILTERS = 64, TILES = 48, PAIRS = FILTERS * TILES;
constexpr int PASSES = F4::FREQUENCIES / TOGETHER, COLUMNS = TOGETHER / F4::SIDE;

// What a step reads of U or V: a row for each channel, in which WIDTH filters or tiles of twelve frequencies follow.
template <int WIDTH>
struct FrequencyPanel {
  static constexpr unsigned PITCH = TOGETHER * WIDTH, ELEMENTS = BC * PITCH;
};

// A thread's copies to such a panel, 16 bytes each: of one frequency and several channels (DEEP), or of one channel and
// several frequencies. The nth of a pass's frequencies lies in row n / 2, in column n % 2 of the pass's two.
template <int WIDTH>
struct FrequencyFeed {
  static constexpr unsigned ACROSS = WIDTH / 4, DOWN = THREADS / ACROSS, PACKS = BC * TOGETHER / DOWN;
  static constexpr bool DEEP = DOWN % TOGETHER == 0;
  static constexpr unsigned SIDE = DEEP ? TOGETHER : DOWN / BC, FURTHER = DEEP ? DOWN / TOGETHER : SIDE;
  static_assert(PACKS * DOWN == BC * TOGETHER && (DEEP || SIDE % COLUMNS == 0), "packs lie at equal distances");
  unsigned nth, channel, col, ld;
  const float *from;
  size_t further;  // from pack to pack

  // x: matrices of `frequency` elements with ld columns, from the first of a block's columns on.
  __device__ __forceinline__ FrequencyFeed(const float *x, size_t frequency, unsigned ld_, unsigned pass)
      : nth(threadIdx.x / ACROSS % SIDE), channel(threadIdx.x / ACROSS / SIDE), col(threadIdx.x % ACROSS * 4), ld(ld_),
        from(x + (nth / COLUMNS * F4::SIDE + pass * COLUMNS + nth % COLUMNS) * frequency + size_t(channel) * ld + col),
        further(DEEP ? size_t(FURTHER) * ld : FURTHER / COLUMNS * F4::SIDE * frequency) {}

  // left: the channels that are left, from this step's first on; packs past the last channel become zeros.
  __device__ __forceinline__ void copy(float *panel, int left) {
    float *to = panel + channel * FrequencyPanel<WIDTH>::PITCH + nth * WIDTH + col;
#pragma unroll
    for (unsigned i = 0; i < PACKS; ++i) {
      const bool there = int(channel + (DEEP ? i * FURTHER : 0)) < left;
      ptx::cp_async_cg(ptx::smem_address(to + i * FURTHER * (DEEP ? FrequencyPanel<WIDTH>::PITCH : WIDTH)),
                       from + i * further, there ? 16 : 0);
    }
    from += size_t(BC) * ld;
  }
};

struct FusedCopies {
  static constexpr bool THIRDS = false;
  FrequencyFeed<FILTERS> filters;
  FrequencyFeed<TILES> tiles;
  int left;

  template <int>
  __device__ __forceinline__ void start(float *slot, bool) {
    filters.copy(slot, left);
    tiles.copy(slot + FrequencyPanel<FILTERS>::ELEMENTS, left);
    left -= BC;
  }
};

// The products of a pass: a warp has those of its frequency, a lane 8 filters x 12 tiles of them.
struct FusedProducts : Fragment<TOGETHER * FILTERS, TILES, BC, FILTERS, TILES, 8, 12> {
  static __device__ __forceinline__ void load(Factors &factors, const float *row_a, const float *row_b) {
    Fragment::load(factors, row_a, row_b + threadIdx.x / 32 * TILES);
  }
};

// Where the frequencies of a pass are exchanged: a matrix for each, whose columns are contiguous in the output: tiles,
// or filters where channels are neighbours in memory. Rows are shifted so that neither writes of 16 bytes per lane nor
// reads along a row have bank conflicts: four rows apart by 8 or 16 banks, and rows of 48 by 16 every eight rows.
// Neighbours are exchanged for the same reason as in conv/winograd.cu.
template <Layout layout>
struct FusedExchange {
  static constexpr bool LAST = layout == Layout::nhwc;
  static constexpr unsigned COLS = LAST ? FILTERS : TILES, MATRIX = PAIRS + (LAST ? 0 : FILTERS / 8 * 16);
  float *smem;

  static __device__ __forceinline__ unsigned at(unsigned row, unsigned col) {
    return row * COLS + (LAST ? col ^ row / 4 % 2 * 16 : row / 8 * 16 + (col ^ row / 4 % 2 * 8));
  }

  __device__ __forceinline__ void put(const FusedProducts &products) const {
    const unsigned warp = threadIdx.x / 32;
    float *matrix = smem + warp * MATRIX;
#pragma unroll
    for (int i = 0; i < 8; ++i)
#pragma unroll
      for (int j = 0; j < 12; ++j) {
        if ((LAST ? i : j) % 4 != 0) continue;
        float pack[4];
#pragma unroll
        for (int e = 0; e < 4; ++e) pack[e ^ 1] = products.sums[LAST ? i + e : i][LAST ? j : j + e];
        const unsigned filter = products.row(i) - warp * FILTERS, tile = products.col(j);
        store_pack<4>(&matrix[LAST ? at(tile, filter) : at(filter, tile)], pack);
      }
  }

  // Transforms down one column of the pass.
  __device__ __forceinline__ void get(float (&down)[F4::M], int column, unsigned row, unsigned col) const {
    float met[F4::SIDE];
#pragma unroll
    for (int i = 0; i < F4::SIDE; ++i) met[i] = smem[(i * COLUMNS + column) * MATRIX + at(row, col ^ 1)];
    F4::Output::apply(met, down);
  }
};

}  // namespace

// u, v: c channels in a group; kept: 16 floats for each filter and tile of each block; y: n images, p x q, of k filters
// in each group.
template <Layout layout, int STAGES>
__global__ void __launch_bounds__(THREADS, 1)
    winograd4_fused(const float *__restrict__ u, const float *__restrict__ v, float *__restrict__ kept,
                    float *__restrict__ y, unsigned n, unsigned c, unsigned k, unsigned p, unsigned q, unsigned first,
                    unsigned ldk, unsigned ldt) {
  using Exchange = FusedExchange<layout>;
  DYN_SHARED(float, smem);
  const Exchange exchange{smem};
  const unsigned group = blockIdx.y, groups = gridDim.y;
  const unsigned filter0 = blockIdx.x % (ldk / FILTERS) * FILTERS, tile0 = blockIdx.x / (ldk / FILTERS) * TILES;
  const size_t of_u = size_t(groups) * c * ldk, of_v = size_t(groups) * c * ldt;
  u += size_t(group) * c * ldk + filter0;
  v += size_t(group) * c * ldt + tile0;
  kept += (size_t(group) * gridDim.x + blockIdx.x) * (F4::M * F4::M * PAIRS);
  const OutputTiles<F4::M> tiles(n, p, q);
  const Images<layout> out{k * groups, p, q};

#pragma unroll 1
  for (unsigned pass = 0; pass < PASSES; ++pass) {
    FusedProducts products;
    pipelined<FrequencyPanel<FILTERS>, FrequencyPanel<TILES>, BC, STAGES>(
        products, smem, (c + BC - 1) / BC, FusedCopies{{u, of_u, ldk, pass}, {v, of_v, ldt, pass}, int(c)});
    __syncthreads();  // no thread still reads the last step
    exchange.put(products);
    __syncthreads();  // all frequencies of the pass are in shared memory
#pragma unroll 1
    for (unsigned pair = threadIdx.x; pair < PAIRS; pair += THREADS) {
      const unsigned row = pair / Exchange::COLS, col = pair % Exchange::COLS;
      float half[F4::M][F4::SIDE], down[F4::M], outputs[F4::M][F4::M];
      if (pass + 1 < PASSES) {
#pragma unroll
        for (int j = 0; j < COLUMNS; ++j) {
          exchange.get(down, j, row, col);
#pragma unroll
          for (int i = 0; i < F4::M; ++i) kept[((pass * COLUMNS + j) * F4::M + i) * PAIRS + pair] = down[i];
        }
        continue;
      }
      const unsigned filter = filter0 + (Exchange::LAST ? col : row);
      const unsigned tile = first + tile0 + (Exchange::LAST ? row : col);
      if (filter >= k || tile >= tiles.count) continue;
#pragma unroll
      for (int j = 0; j < F4::SIDE; ++j) {
        const int now = j - (F4::SIDE - COLUMNS);  // the column of this pass
        if (now >= 0) exchange.get(down, now, row, col);
#pragma unroll
        for (int i = 0; i < F4::M; ++i) half[i][j] = now >= 0 ? down[i] : kept[(j * F4::M + i) * PAIRS + pair];
      }
#pragma unroll
      for (int i = 0; i < F4::M; ++i) F4::Output::apply(half[i], outputs[i]);
      store_tile<F4::M>(y + (size_t(group) * k + filter) * out.channel(), out, tiles.at(tile), outputs);
    }
    __syncthreads();  // no thread still reads what the next pass copies over
  }
}
