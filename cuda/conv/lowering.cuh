// Convolution as a product of matrices that are never built: what the lowerings of all three directions share.
//
// One operand is gathered from an image, under each tap of the filter: x, or y for the input's gradient. The other is
// plain: the filters, or y for the filter's gradient. Their indices along the reduction and across it are:
//   fprop  y = w x     reduction: channels of x and taps   across: filters (plain), pixels of y (gathered)
//   dgrad  x = w y     reduction: filters and taps         across: channels (plain), pixels of x (gathered)
//   wgrad  w = y x     reduction: pixels of y              across: filters (plain), channels and taps (gathered)
// In nchw, and for wgrad in both layouts, the plain operand's indices are the rows, otherwise the columns: the output's
// neighbours in memory are then neighbours in a row.
//
// The place of a gathered element is the sum of its tap's place and its pixel's place. Each thread keeps one summand
// for the whole loop and the other for one step (implicit_feed.cuh). Outside the image the element is zero.
#pragma once
#include "conv/geometry.cuh"

// Height or width: pixel i under tap t reads at i step + t tap_step + origin. In storage it is pixel first + i stride
// and tap first_tap + t period.
struct Axis {
  unsigned pixels, taps;
  int step, tap_step, origin;
  unsigned first, stride, first_tap, period;
};

// The axis of all pixels of the output and all taps.
__device__ __forceinline__ Axis forward_axis(unsigned pixels, unsigned taps, unsigned pad, unsigned stride,
                                             unsigned dilation) {
  return {pixels, taps, int(stride), int(dilation), -int(pad), 0, 1, 0, 1};
}

// An index in three digits; Radix has the sizes of the fastest two.
struct Digits {
  unsigned fast, mid, slow;
};
struct Radix {
  unsigned fast, mid;

  __device__ __forceinline__ Digits split(unsigned index) const {
    const unsigned rest = index / fast;
    return {index % fast, rest % mid, rest / mid};
  }
};

// How many elements apart neighbours in each digit are.
struct Slopes {
  int fast, mid, slow;

  __device__ __forceinline__ long long at(const Digits &d) const {
    return static_cast<long long>(d.fast) * fast + static_cast<long long>(d.mid) * mid +
           static_cast<long long>(d.slow) * slow;
  }
};

// A place in the image.
struct Spot {
  int y, x;
};

// The pixels and taps that meet in one group of the gathered image.
template <Layout layout>
struct GatheredImage {
  static constexpr bool LAST = layout == Layout::nhwc;

  unsigned images, all_channels, channels;  // of all groups, of this group
  unsigned height, width, plane;
  unsigned group;
  Axis high, wide;

  __device__ __forceinline__ unsigned image() const { return all_channels * plane; }
  __device__ __forceinline__ unsigned pixels() const { return images * high.pixels * wide.pixels; }
  __device__ __forceinline__ unsigned taps() const { return channels * high.taps * wide.taps; }

  // Pixels are counted along rows, then columns, then images; taps as the filter is stored. A phase may be empty.
  __device__ __forceinline__ Radix pixel_radix() const { return {max(wide.pixels, 1u), max(high.pixels, 1u)}; }
  __device__ __forceinline__ Radix tap_radix() const {
    const unsigned across = max(wide.taps, 1u);
    return LAST ? Radix{channels, across} : Radix{across, max(high.taps, 1u)};
  }
  static __device__ __forceinline__ unsigned tap_y(const Digits &tap) { return LAST ? tap.slow : tap.mid; }
  static __device__ __forceinline__ unsigned tap_x(const Digits &tap) { return LAST ? tap.mid : tap.fast; }

  // What a pixel and a tap contribute to the place in the image where they meet.
  __device__ __forceinline__ Spot pixel_spot(const Digits &pixel) const {
    return {int(pixel.mid) * high.step + high.origin, int(pixel.fast) * wide.step + wide.origin};
  }
  __device__ __forceinline__ Spot tap_spot(const Digits &tap) const {
    return {int(tap_y(tap)) * high.tap_step, int(tap_x(tap)) * wide.tap_step};
  }

  // What they contribute to the place in memory, relative to the first pixel of the first image under the first tap.
  __device__ __forceinline__ Slopes pixel_slopes() const {
    return {wide.step * between_pixels(), high.step * between_rows(), int(image())};
  }
  __device__ __forceinline__ Slopes tap_slopes() const {
    const int y = high.tap_step * between_rows(), x = wide.tap_step * between_pixels();
    return LAST ? Slopes{1, x, y} : Slopes{x, y, int(plane)};
  }
  __device__ __forceinline__ long long base() const {
    return static_cast<long long>(group) * channels * (LAST ? 1 : plane) + high.origin * between_rows() +
           wide.origin * between_pixels();
  }

 private:
  __device__ __forceinline__ int between_pixels() const { return LAST ? int(all_channels) : 1; }
  __device__ __forceinline__ int between_rows() const { return int(width) * between_pixels(); }
};

// How rows, columns and the reduction of that direction map to the operands. The plain operand begins at plain_base;
// its elements across the reduction lie plain_step apart, those along it as in plain_slopes. PLAIN_ALONG: those along
// the reduction are neighbours. PLAIN_EVEN: its digits need not be distinguished.
template <Direction direction, Layout layout>
struct Lowering;

// What fprop and dgrad have in common: the reduction runs over taps, and the outputs are pixels of images.
template <Layout layout>
struct TapLowering {
  static constexpr bool LAST = layout == Layout::nhwc, GRADIENT = false;
  static constexpr bool GATHERED_ROWS = LAST, GATHERED_ALONG = LAST;

  GatheredImage<layout> image;
  unsigned plain, output_channels, output_width, output_plane;  // plain: the plain operand's indices across

  __device__ __forceinline__ unsigned depth() const { return image.taps(); }
  __device__ __forceinline__ unsigned gathered() const { return image.pixels(); }
  __device__ __forceinline__ unsigned rows() const { return LAST ? gathered() : plain; }
  __device__ __forceinline__ unsigned cols() const { return LAST ? plain : gathered(); }

  __device__ __forceinline__ Radix reduction_radix() const { return image.tap_radix(); }
  __device__ __forceinline__ Radix gathered_radix() const { return image.pixel_radix(); }
  __device__ __forceinline__ Spot reduction_spot(const Digits &tap) const { return image.tap_spot(tap); }
  __device__ __forceinline__ Spot gathered_spot(const Digits &pixel) const { return image.pixel_spot(pixel); }
  __device__ __forceinline__ Slopes reduction_slopes() const { return image.tap_slopes(); }
  __device__ __forceinline__ Slopes gathered_slopes() const { return image.pixel_slopes(); }

  // Where an element of the output lies: the sum of what its row and its column contribute.
  __device__ __forceinline__ size_t row_output(unsigned row) const {
    return LAST ? pixel_output(row) : channel_output(row);
  }
  __device__ __forceinline__ size_t col_output(unsigned col) const {
    return LAST ? channel_output(col) : pixel_output(col);
  }

 private:
  __device__ __forceinline__ size_t channel_output(unsigned channel) const {
    return (size_t(image.group) * plain + channel) * (LAST ? 1 : output_plane);
  }
  __device__ __forceinline__ size_t pixel_output(unsigned index) const {
    const Digits at = image.pixel_radix().split(index);
    const unsigned y = image.high.first + at.mid * image.high.stride;
    const unsigned x = image.wide.first + at.fast * image.wide.stride;
    const size_t pixel = y * output_width + x;
    return size_t(at.slow) * output_channels * output_plane + pixel * (LAST ? output_channels : 1);
  }
};

// What a block of an implicit product does: its corner, and its slice of the reduction. blockIdx.x counts tiles of the
// gathered operand, blockIdx.y of the plain one, blockIdx.z parts (groups and phases) and `slices` slices in each.
struct ImplicitBlock {
  unsigned slice, row0, col0, k0, k_end;

  template <class Map, int BM, int BN>
  static __device__ __forceinline__ ImplicitBlock at(const Map &map, unsigned depth, unsigned slices) {
    const unsigned row = Map::GATHERED_ROWS ? blockIdx.x : blockIdx.y, slice = blockIdx.z % slices;
    const unsigned col = Map::GATHERED_ROWS ? blockIdx.y : blockIdx.x;
    const unsigned k0 = min(slice * depth, map.depth());
    return {slice, row * BM, col * BN, k0, min(k0 + depth, map.depth())};
  }
};
