// Convolution as a product of matrices that are never built: how rows, columns and the reduction map to the operands.
//
// One operand is gathered from an image, under each tap of the filter: x, or y for the input's gradient. The other is
// plain: the filters, or y for the filter's gradient. Which indices they have along the reduction and across it:
//   fprop  y = w x     reduction: channels of x and taps   across: filters (plain), pixels of y (gathered)
//   dgrad  x = w y     reduction: filters and taps         across: channels (plain), pixels of x (gathered)
//   wgrad  w = y x     reduction: pixels of y              across: filters (plain), channels and taps (gathered)
// nchw, and wgrad in both layouts, has the plain operand's indices as rows, else they are the columns: the output's
// neighbours in memory are then neighbours in a row.
//
// A gathered element lies where the place of its tap and that of its pixel add up to, so that each thread knows one
// summand for all of the loop and the other for one step (implicit_feed.cuh); outside of the image it is zero.
//
// The input's gradient under a stride is divided into phases, the residues of (row + pad) modulo the stride, likewise
// of columns: all pixels of a phase meet the same taps, and the others are not multiplied. Each phase is a convolution
// without a stride.
#pragma once
#include "conv/geometry.cuh"

// Height or width: pixel i reads under tap t at i step + t tap_step + origin. As stored, it is pixel first + i stride
// and tap first_tap + t period.
struct Axis {
  unsigned pixels, taps;
  int step, tap_step, origin;
  unsigned first, stride, first_tap, period;
};

// All pixels of the output, all taps.
__device__ __forceinline__ Axis forward_axis(unsigned pixels, unsigned taps, unsigned pad, unsigned stride,
                                             unsigned dilation) {
  return {pixels, taps, int(stride), int(dilation), -int(pad), 0, 1, 0, 1};
}

// One phase of the input's gradient: its pixels, and the taps t for which t dilation is congruent to the phase.
__device__ __forceinline__ Axis backward_axis(unsigned phase, unsigned size, unsigned taps, unsigned pad,
                                              unsigned stride, unsigned dilation) {
  const unsigned first = (phase + stride - pad % stride) % stride;
  unsigned tap = 0, period = 1;
  while (tap < stride && tap * dilation % stride != phase) ++tap;
  while (period * dilation % stride != 0) ++period;
  const bool met = tap < stride && tap < taps;
  return {first < size ? (size - first + stride - 1) / stride : 0,
          met ? (taps - tap + period - 1) / period : 0,
          1,
          -int(period * dilation / stride),
          (int(first + pad) - int(tap * dilation)) / int(stride),
          first, stride, tap, period};
}

// An index in three digits, of which the fastest two have these sizes.
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

template <Direction direction, Layout layout>
struct Lowering {
  static constexpr bool LAST = layout == Layout::nhwc, GRADIENT = direction == Direction::wgrad;
  static constexpr bool GATHERED_ROWS = LAST && !GRADIENT;
  // Whether neighbours along the reduction are neighbours in memory. The other operands have theirs across it.
  static constexpr bool PLAIN_ALONG = direction == Direction::fprop || !LAST;
  static constexpr bool GATHERED_ALONG = LAST != GRADIENT;

  Geometry g;
  Axis high, wide;
  unsigned group;

  // part: the group, and in it the phase.
  __device__ __forceinline__ Lowering(const Geometry &geometry, unsigned part) : g(geometry) {
    if constexpr (direction == Direction::dgrad) {
      const unsigned phases = g.stride_h * g.stride_w, phase = part % phases;
      group = part / phases;
      high = backward_axis(phase / g.stride_w, g.h, g.r, g.pad_h, g.stride_h, g.dilation_h);
      wide = backward_axis(phase % g.stride_w, g.w, g.s, g.pad_w, g.stride_w, g.dilation_w);
    } else {
      group = part;
      high = forward_axis(g.p, g.r, g.pad_h, g.stride_h, g.dilation_h);
      wide = forward_axis(g.q, g.s, g.pad_w, g.stride_w, g.dilation_w);
    }
  }

  // Of the gathered image: all channels, those of the group, height and width.
  __device__ __forceinline__ unsigned all_channels() const { return direction == Direction::dgrad ? g.k : g.c; }
  __device__ __forceinline__ unsigned channels() const {
    return direction == Direction::dgrad ? g.filters() : g.depth();
  }
  __device__ __forceinline__ unsigned height() const { return direction == Direction::dgrad ? g.p : g.h; }
  __device__ __forceinline__ unsigned width() const { return direction == Direction::dgrad ? g.q : g.w; }
  __device__ __forceinline__ unsigned plane() const {
    return direction == Direction::dgrad ? g.by_pq.divisor : g.by_hw.divisor;
  }
  __device__ __forceinline__ unsigned image() const { return all_channels() * plane(); }

  // The filters, or the input's channels, of the plain operand.
  __device__ __forceinline__ unsigned plain() const { return direction == Direction::dgrad ? g.depth() : g.filters(); }
  __device__ __forceinline__ unsigned pixels() const { return g.n * high.pixels * wide.pixels; }
  __device__ __forceinline__ unsigned taps() const { return channels() * high.taps * wide.taps; }
  __device__ __forceinline__ unsigned gathered() const { return GRADIENT ? taps() : pixels(); }
  __device__ __forceinline__ unsigned depth() const { return GRADIENT ? pixels() : taps(); }
  __device__ __forceinline__ unsigned rows() const { return GATHERED_ROWS ? gathered() : plain(); }
  __device__ __forceinline__ unsigned cols() const { return GATHERED_ROWS ? plain() : gathered(); }

  // Pixels count along rows, then columns, then images; taps as the filter is stored. A phase may have none.
  __device__ __forceinline__ Radix pixel_radix() const { return {max(wide.pixels, 1u), max(high.pixels, 1u)}; }
  __device__ __forceinline__ Radix tap_radix() const {
    const unsigned across = max(wide.taps, 1u);
    return LAST ? Radix{channels(), across} : Radix{across, max(high.taps, 1u)};
  }
  __device__ __forceinline__ Radix reduction_radix() const { return GRADIENT ? pixel_radix() : tap_radix(); }
  __device__ __forceinline__ Radix gathered_radix() const { return GRADIENT ? tap_radix() : pixel_radix(); }

  static __device__ __forceinline__ unsigned tap_y(const Digits &tap) { return LAST ? tap.slow : tap.mid; }
  static __device__ __forceinline__ unsigned tap_x(const Digits &tap) { return LAST ? tap.mid : tap.fast; }

  // What a pixel, and a tap, contribute to the place in the image that they meet in.
  __device__ __forceinline__ Spot pixel_spot(const Digits &pixel) const {
    return {int(pixel.mid) * high.step + high.origin, int(pixel.fast) * wide.step + wide.origin};
  }
  __device__ __forceinline__ Spot tap_spot(const Digits &tap) const {
    return {int(tap_y(tap)) * high.tap_step, int(tap_x(tap)) * wide.tap_step};
  }
  __device__ __forceinline__ Spot reduction_spot(const Digits &at) const {
    return GRADIENT ? pixel_spot(at) : tap_spot(at);
  }
  __device__ __forceinline__ Spot gathered_spot(const Digits &at) const {
    return GRADIENT ? tap_spot(at) : pixel_spot(at);
  }

  // And to the place in memory, from that of the first pixel of the first image under the first tap on.
  __device__ __forceinline__ Slopes pixel_slopes() const {
    return {wide.step * between_pixels(), high.step * between_rows(), int(image())};
  }
  __device__ __forceinline__ Slopes tap_slopes() const {
    const int y = high.tap_step * between_rows(), x = wide.tap_step * between_pixels();
    return LAST ? Slopes{1, x, y} : Slopes{x, y, int(plane())};
  }
  __device__ __forceinline__ Slopes reduction_slopes() const { return GRADIENT ? pixel_slopes() : tap_slopes(); }
  __device__ __forceinline__ Slopes gathered_slopes() const { return GRADIENT ? tap_slopes() : pixel_slopes(); }
  __device__ __forceinline__ long long gathered_base() const {
    return static_cast<long long>(group) * channels() * (LAST ? 1 : plane()) + high.origin * between_rows() +
           wide.origin * between_pixels();
  }

  // Whether the plain operand's elements along the reduction lie evenly apart, and how far.
  static constexpr bool PLAIN_EVEN = direction == Direction::fprop || (GRADIENT && LAST);
  __device__ __forceinline__ unsigned even_slope() const { return GRADIENT ? g.k : 1; }
  __device__ __forceinline__ Slopes plain_slopes() const {
    if constexpr (GRADIENT) return {1, int(g.q), int(g.k * g.by_pq.divisor)};
    const int filter = int(g.depth() * g.by_rs.divisor), column = LAST ? int(g.depth()) : 1;
    const int x = int(wide.period) * column, y = int(high.period * g.s) * column;
    return LAST ? Slopes{filter, x, y} : Slopes{x, y, filter};
  }
  // Its elements across the reduction are so far apart.
  __device__ __forceinline__ unsigned plain_step() const {
    if constexpr (GRADIENT) return LAST ? 1 : g.by_pq.divisor;
    if constexpr (direction == Direction::fprop) return g.depth() * g.by_rs.divisor;
    return LAST ? 1 : g.by_rs.divisor;
  }
  __device__ __forceinline__ size_t plain_base() const {
    if constexpr (GRADIENT) return size_t(group) * g.filters() * (LAST ? 1 : g.by_pq.divisor);
    const size_t first = (high.first_tap * g.s + wide.first_tap) * (LAST ? g.depth() : 1);
    return size_t(group) * g.filters() * g.depth() * g.by_rs.divisor + first;
  }

  // Where an element of the output lies, as a sum: of the plain operand's index, and of the gathered operand's.
  __device__ __forceinline__ size_t plain_output(unsigned index) const {
    if constexpr (GRADIENT) return (size_t(group) * g.filters() + index) * g.depth() * g.by_rs.divisor;
    return (size_t(group) * plain() + index) * (LAST ? 1 : output_plane());
  }
  __device__ __forceinline__ size_t gathered_output(unsigned index) const {
    if constexpr (GRADIENT) return index;
    const Digits at = pixel_radix().split(index);
    const unsigned y = high.first + at.mid * high.stride, x = wide.first + at.fast * wide.stride;
    const size_t pixel = y * (direction == Direction::dgrad ? g.w : g.q) + x;
    const unsigned channels_out = direction == Direction::dgrad ? g.c : g.k;
    return size_t(at.slow) * channels_out * output_plane() + pixel * (LAST ? channels_out : 1);
  }
  __device__ __forceinline__ size_t row_output(unsigned row) const {
    return GATHERED_ROWS ? gathered_output(row) : plain_output(row);
  }
  __device__ __forceinline__ size_t col_output(unsigned col) const {
    return GATHERED_ROWS ? plain_output(col) : gathered_output(col);
  }

 private:
  __device__ __forceinline__ int between_pixels() const { return LAST ? int(all_channels()) : 1; }
  __device__ __forceinline__ int between_rows() const { return int(width()) * between_pixels(); }
  __device__ __forceinline__ unsigned output_plane() const {
    return direction == Direction::dgrad ? g.by_hw.divisor : g.by_pq.divisor;
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

// The sum of the slices of an element, in ascending order.
template <class T>
__global__ void __launch_bounds__(256)
    conv_implicit_sum(const float *__restrict__ partial, T *__restrict__ out, long long elements, unsigned slices) {
  const long long at = static_cast<long long>(blockIdx.x) * 256 + threadIdx.x;
  if (at >= elements) return;
  float sum = 0.0f;
  for (unsigned i = 0; i < slices; ++i) sum += partial[i * elements + at];
  out[at] = T(sum);
}
