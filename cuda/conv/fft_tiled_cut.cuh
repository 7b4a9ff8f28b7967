// How tensors are cut into overlapping tiles of T x T pixels, and how a thread reads or writes a column of one.
#pragma once
#include "fft/tile.cuh"

// Blocks of 128 threads per multiprocessor, by which the compiler limits registers. On compute capability 10.0 and
// later, tiles of 32 x 32 need a few more than 128 registers.
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 1000
constexpr int FFT_TILED_BLOCKS_PER_SM = 3;
#else
constexpr int FFT_TILED_BLOCKS_PER_SM = 4;
#endif

// A tensor of `images` x `channels` x h x w and its tiles. The first tile begins at first_y, first_x, which may lie in
// the padding. For results, it begins before the tensor, by the rows and columns at a tile's start that are not kept.
struct Cut {
  unsigned channels, images, h, w, tiles_y, tiles_x;
  int first_y, first_x;
  unsigned step_y, step_x;
  size_t image_stride;

  // The tiles of one channel in all images.
  __device__ __forceinline__ unsigned places() const { return images * tiles_y * tiles_x; }
};

// Where a tile is: its image, and its distance in pixels from the first tile.
struct Place {
  unsigned image;
  int y, x;
};
__device__ __forceinline__ Place place(const Cut &cut, unsigned number) {
  const unsigned across = number / cut.tiles_x;
  return {across / cut.tiles_y, int(across % cut.tiles_y * cut.step_y), int(number % cut.tiles_x * cut.step_x)};
}

// Calls visit(i, offset) for each pixel i of the thread's column that lies in the channel and, within the tile, between
// first and last (y, x). The offset is incremented, since 32 separate offsets would be held in registers.
template <int T, class Visit>
__device__ __forceinline__ void each_pixel(const Cut &cut, const Place &at, int first_y, int first_x, int last_y,
                                           int last_x, Visit visit) {
  const int lane = BlockTiles<T, float>::lane(), y = at.y + cut.first_y;
  const unsigned x = at.x + cut.first_x + lane;  // wraps around to a large number left of the tensor
  if (lane < first_x || lane >= last_x || x >= cut.w) return;
  const int top = max(first_y, -y), bottom = min(last_y, int(cut.h) - y);
  size_t pixel = at.image * cut.image_stride + size_t(y) * cut.w + x;
#pragma unroll
  for (int i = 0; i < T; ++i, pixel += cut.w) {
    if (i >= top && i < bottom) visit(i, pixel);
  }
}

// Loads extent_y x extent_x pixels of the tile as the real parts, or those of the SECOND of two tiles as the imaginary
// parts; all others are zeros, as is a tile that is not `there`. `channel` is its channel in the first image.
template <bool SECOND, int T>
__device__ __forceinline__ void load_tile(Complex<float> (&column)[T], const float *__restrict__ channel,
                                          const Cut &cut, const Place &at, bool there, int extent_y, int extent_x) {
#pragma unroll
  for (int i = 0; i < T; ++i) (SECOND ? column[i].im : column[i].re) = 0.0f;
  if (!there) return;
  each_pixel<T>(cut, at, 0, 0, extent_y, extent_x,
                [&](int i, size_t pixel) { (SECOND ? column[i].im : column[i].re) = channel[pixel]; });
}

// The inverse: stores step_y x step_x pixels, after the first -first_y rows and -first_x columns, which are not kept.
template <bool SECOND, int T>
__device__ __forceinline__ void store_tile(const Complex<float> (&column)[T], float *channel, const Cut &cut,
                                           const Place &at, bool there) {
  if (!there) return;
  each_pixel<T>(cut, at, -cut.first_y, -cut.first_x, int(cut.step_y) - cut.first_y,
                int(cut.step_x) - cut.first_x, [&](int i, size_t pixel) {
                  channel[pixel] = (SECOND ? column[i].im : column[i].re) * (1.0f / (T * T));
                });
}
