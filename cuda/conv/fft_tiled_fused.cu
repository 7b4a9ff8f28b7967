// Convolution of stride 1 by overlapping tiles, as in conv/fft_tiled.cu, for few channels and in one pass: one block
// transforms an image's tiles, multiplies them by the filters' spectra, sums over channels and transforms back.
//
//   fprop  y = x correlated with w    few channels of x, conjugate filters; kept from 0
//   dgrad  x = y convolved with w     few channels of y, filters; kept from r - 1
//
// Two tiles of neighbouring places (image, tile) form one complex tile. Both are multiplied by the same filters, so the
// product of its spectrum with a filter's is that of both outputs, and nothing has to be separated or joined.
// Tile: the 128 threads of a block are COUNT = 128 / T teams, each within one warp: all of it or half. Each team
// transforms two tiles of one channel, of `channels` <= COUNT; then each team computes one output channel after another
// of the block's share, and each thread sums a row of the spectrum in its registers. Filters are read along columns,
// where rows are neighbours.
// Preconditions: stride and dilation 1, layout nchw; r, s < T; at most COUNT input channels in a group.
// Limit: instruction issue, half of it for the transforms, and the L2 cache, from which each block reads all filters of
// its share. T / 2 + 1 columns of a filter are stored; the others are conjugates, and should still be in L1.
#include "conv/fft_tiled_cut.cuh"

namespace {

// Elements of a filter's spectrum: columns 0 to T / 2, one after another.
template <unsigned T>
constexpr unsigned FILTER = (T / 2 + 1) * T;

}  // namespace

// Computes the spectra of `count` filters, two per team.
template <int T, bool CONJUGATE>
__global__ void __launch_bounds__(128)
    fft_fused_filters(const float *__restrict__ filters, Complex<float> *spectra, unsigned count, unsigned r,
                      unsigned s) {
  using Block = BlockTiles<T, float>;
  __shared__ __align__(16) Complex<float> smem[Block::ELEMENTS];
  const Block block{smem};
  const Cut cut{1, count, r, s, 1, 1, 0, 0, T, T, size_t(r) * s};
  const unsigned first = 2 * (blockIdx.x * Block::COUNT + Block::tile());
  Complex<float> column[T];
  load_tile<false>(column, filters, cut, place(cut, first), first < count, T, T);
  load_tile<true>(column, filters, cut, place(cut, first + 1), first + 1 < count, T, T);
  block.template columns_then_rows<Shape::PLANE, false>(column);
  __syncwarp();  // the team's spectra are in shared memory
  const unsigned u = Block::lane();
  Complex<float> *to = spectra + size_t(first) * FILTER<T> + u;
#pragma unroll
  for (int v = 0; v <= T / 2; ++v) {
    Two<float> both = separated(block.at(Block::tile(), u, v), block.at(Block::tile(), (T - u) % T, (T - v) % T));
    if (CONJUGATE) both = {{both.first.re, -both.first.im}, {both.second.re, -both.second.im}};
    if (first < count) to[v * T] = both.first;
    if (first + 1 < count) to[v * T + FILTER<T>] = both.second;
  }
}

// The convolution. blockIdx.x counts pairs of places, y groups, z shares of `share` output channels. The filter of
// output channel m and input channel c of a group is number m * filter_m + c * filter_c of filters_of_group.
template <int T>
__global__ void __launch_bounds__(128, FFT_TILED_BLOCKS_PER_SM)
    fft_fused(const float *__restrict__ input, const Complex<float> *__restrict__ spectra, float *output,
              unsigned images, unsigned tiles_y, unsigned tiles_x, unsigned step_y, unsigned step_x,
              unsigned channels, unsigned h, unsigned w, int first_y, int first_x, long long image_stride,
              long long group_stride, unsigned out_channels, unsigned out_h, unsigned out_w, int skip_y, int skip_x,
              long long out_image_stride, long long out_group_stride, unsigned share, unsigned filter_m,
              unsigned filter_c, unsigned filters_of_group) {
  using Block = BlockTiles<T, float>;
  DYN_SHARED(Complex<float>, smem);
  const Block in{smem}, out{smem + channels * Block::TILE};
  const unsigned lane = Block::lane();
  input += blockIdx.y * group_stride;
  output += blockIdx.y * out_group_stride;
  spectra += size_t(blockIdx.y) * filters_of_group * FILTER<T>;
  const Cut cut{channels, images, h, w, tiles_y, tiles_x, first_y, first_x, step_y, step_x, size_t(image_stride)};
  const bool second = 2 * blockIdx.x + 1 < cut.places();
  // In shared memory, and read again for each output channel: values computed from these would take too many registers.
  __shared__ Place places[2];
  __shared__ Cut kept;
  if (threadIdx.x < 2) places[threadIdx.x] = place(cut, 2 * blockIdx.x + threadIdx.x);
  if (threadIdx.x == 0) {
    kept = {out_channels, images, out_h, out_w, tiles_y, tiles_x, skip_y, skip_x, step_y, step_x,
            size_t(out_image_stride)};
  }
  __syncthreads();  // the places are in shared memory

  Complex<float> x[T];
  const unsigned mine = Block::tile();
  load_tile<false>(x, input + size_t(mine) * h * w, cut, places[0], mine < channels, T, T);
  load_tile<true>(x, input + size_t(mine) * h * w, cut, places[1], mine < channels && second, T, T);
  in.template columns_then_rows<Shape::PLANE, false>(x);
  __syncthreads();  // the spectra of all channels are in shared memory

  const unsigned end = min(out_channels, (blockIdx.z + 1) * share);
  for (unsigned first = blockIdx.z * share; first < end; first += Block::COUNT) {  // the same for all threads
    const unsigned m = min(first + mine, end - 1);
#pragma unroll
    for (int v = 0; v < T; ++v) x[v] = {0.0f, 0.0f};
    for (unsigned c = 0; c < channels; ++c) {
      const Complex<float> *filter = spectra + size_t(m * filter_m + c * filter_c) * FILTER<T>;
#pragma unroll
      for (int v = 0; v < T; ++v) {
        Complex<float> factor = filter[v <= T / 2 ? v * T + lane : (T - v) * T + (T - lane) % T];
        if (v > T / 2) factor.im = -factor.im;
        x[v] = x[v] + in.at(c, lane, v) * factor;
      }
    }
    out.template rows_then_columns<Shape::PLANE, true>(x);
    float *channel = output + size_t(m) * out_h * out_w;
    store_tile<false>(x, channel, kept, places[0], first + mine < end);
    store_tile<true>(x, channel, kept, places[1], first + mine < end && second);
    __syncwarp();  // the columns have been read before the next rows are written
  }
}
