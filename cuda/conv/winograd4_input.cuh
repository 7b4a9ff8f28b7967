// The pass before the products of Winograd F(4x4,3x3): V = B^T x B, 36 matrices of channels x ldt.
//
// Tile: a block owns 32 tiles of 4 x 4 outputs x 8 channels, and a thread one of each.
#pragma once
#include "conv/winograd_filters.cuh"

namespace {

// A thread's tile and channel of the block's 32 x 8. Lanes have neighbouring tiles, as U and M have them; where
// channels are neighbours in memory, lanes have only eight tiles, of four channels.
template <Layout layout>
struct TileChannel {
  unsigned tile, channel;

  __device__ __forceinline__ TileChannel()
      : tile(blockIdx.x * 32 + (layout == Layout::nchw ? threadIdx.x % 32 : threadIdx.x / 4 % 32)),
        channel(blockIdx.y * 8 +
                (layout == Layout::nchw ? threadIdx.x / 32 : threadIdx.x % 4 + threadIdx.x / 128 * 4)) {}
};

}  // namespace

// x: n images, h x w, of c channels in all; the outputs are p x q, and a patch begins `top` rows and `left` columns
// before its outputs. Past the last tile V gets zeros.
template <Layout layout>
__global__ void __launch_bounds__(256)
    winograd4_input(const float *__restrict__ x, float *__restrict__ v, unsigned n, unsigned c, unsigned h, unsigned w,
                    unsigned p, unsigned q, int top, int left, unsigned first, unsigned ldt) {
  const TileChannel<layout> mine;
  if (mine.tile >= ldt || mine.channel >= c) return;
  const Images<layout> in{c, h, w};
  const OutputTiles<F4::M> tiles(n, p, q);
  const unsigned tile = first + mine.tile;
  const Patch<F4, layout> patch(x + mine.channel * in.channel(), in, tiles.at(tile), top, left);
  float fetched[6][6], made[6][6];
  patch.fetch(fetched, 0, tile < tiles.count);
  transform<F4::Input>(fetched, made);
  v += size_t(mine.channel) * ldt + mine.tile;
#pragma unroll
  for (int f = 0; f < F4::FREQUENCIES; ++f) v[f * (size_t(c) * ldt)] = made[f / 6][f % 6];
}
