// Winograd F(4x4,3x3), not fused: a quarter of direct convolution's products, with a matrix product for each frequency
// between two passes that transform.
//
// winograd_filters computes U (36 matrices c x ldk for each group), winograd4_input V (36 of channels x ldt), the
// products M = U^T V (36 of ldk x ldt for each group), winograd4_output the outputs. The index that is summed over
// counts rows, so that the panels of both factors are copied 16 bytes at a time. The host cuts the tiles into chunks,
// so that V and M stay within bounds; `first` is a chunk's first tile, ldt their number, rounded up to a multiple of 4.
// Neighbouring tiles are exchanged in M, for the same reason as in conv/winograd.cu.
// Tile: in the passes a block owns 32 tiles of 4 x 4 outputs x 8 channels, and a thread one of each. Products: a block
// owns BM filters x BN tiles of one frequency and group (blockIdx.z), as in gemm/async.cu.
// Preconditions: compute capability 8.0; 3 x 3 filters, stride and dilation 1; ldk and ldt are multiples of 4.
// Limit: V and M are written and read once, 18 bytes each for an output of one channel or filter, against 4.5 flop for
// one of both: memory bandwidth up to hundreds of channels and filters, FFMA issue beyond.
#include "conv/winograd4_input.cuh"
#include "gemm/pipeline.cuh"

template <int BM, int BN, int BK, int WM, int WN, int TM, int TN, int STAGES>
__global__ void __launch_bounds__(32 * (BM / WM) * (BN / WN), SGEMM_BLOCKS_PER_SM<TM, TN>)
    winograd4_products(const float *__restrict__ u, const float *__restrict__ v, float *__restrict__ m, unsigned c,
                       unsigned ldk, unsigned ldt) {
  using Loop = Pipeline<BM, BN, BK, WM, WN, TM, TN, STAGES, 4, Op::T, Op::N>;
  DYN_SHARED(float, smem);
  const unsigned row0 = blockIdx.y * BM, col0 = blockIdx.x * BN;
  const Loop loop{u + size_t(blockIdx.z) * c * ldk, v + size_t(blockIdx.z) * c * ldt, ldk, ldt, ldk, ldt};
  typename Loop::Tile tile;
  loop.accumulate(tile, smem, row0, col0, c);
#pragma unroll
  for (int i = 0; i < TM * TN; i += 2) {
    float &even = tile.sums[i / TN][i % TN], &odd = tile.sums[i / TN][i % TN + 1];
    const float product = even;
    even = odd, odd = product;
  }
  tile.template store<4>(m + size_t(blockIdx.z) * ldk * ldt, row0, col0, ldk, ldt, ldt, 1.0f, 0.0f);
}

// y: n images, p x q, of k filters in each group.
template <Layout layout>
__global__ void __launch_bounds__(256)
    winograd4_output(const float *__restrict__ m, float *__restrict__ y, unsigned n, unsigned k, unsigned groups,
                     unsigned p, unsigned q, unsigned first, unsigned ldk, unsigned ldt) {
  const TileChannel<layout> mine;
  const OutputTiles<F4::M> tiles(n, p, q);
  const unsigned filter = mine.channel, tile = first + mine.tile;
  if (filter >= k * groups || tile >= tiles.count) return;
  const Images<layout> out{k * groups, p, q};
  m += size_t(filter / k * ldk + filter % k) * ldt + (mine.tile ^ 1);
  const size_t frequency = size_t(groups) * ldk * ldt;
  float met[6][6], outputs[4][4];
#pragma unroll
  for (int f = 0; f < F4::FREQUENCIES; ++f) met[f / 6][f % 6] = m[f * frequency];
  transform<F4::Output>(met, outputs);
  store_tile<F4::M>(y + filter * out.channel(), out, tiles.at(tile), outputs);
}
