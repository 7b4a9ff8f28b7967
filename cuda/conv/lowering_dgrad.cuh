// x = w y: the filters are plain, y is gathered.
//
// With a stride, x is divided into phases: the residues of (row + pad) modulo the stride, and likewise of columns. All
// pixels of a phase meet the same taps, and the other taps are not multiplied. Each phase is a convolution without a
// stride.
#pragma once
#include "conv/lowering.cuh"

// One phase: its pixels, and the taps t for which t dilation is congruent to the phase.
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

template <Layout layout>
struct Lowering<Direction::dgrad, layout> : TapLowering<layout> {
  static constexpr bool LAST = layout == Layout::nhwc;
  static constexpr bool PLAIN_ALONG = !LAST, PLAIN_EVEN = false;
  const Geometry &g;

  // part: the group, and in it the phase.
  __device__ __forceinline__ Lowering(const Geometry &geometry, unsigned part)
      : TapLowering<layout>{of(geometry, part), geometry.depth(), geometry.c, geometry.w, geometry.by_hw.divisor},
        g(geometry) {}

  __device__ __forceinline__ Slopes plain_slopes() const {
    const int filter = int(g.depth() * g.by_rs.divisor), column = LAST ? int(g.depth()) : 1;
    const int x = int(this->image.wide.period) * column, y = int(this->image.high.period * g.s) * column;
    return LAST ? Slopes{filter, x, y} : Slopes{x, y, filter};
  }
  __device__ __forceinline__ unsigned plain_step() const { return LAST ? 1 : g.by_rs.divisor; }
  __device__ __forceinline__ size_t plain_base() const {
    const size_t first = (this->image.high.first_tap * g.s + this->image.wide.first_tap) * (LAST ? g.depth() : 1);
    return size_t(this->image.group) * g.filters() * g.depth() * g.by_rs.divisor + first;
  }

 private:
  static __device__ __forceinline__ GatheredImage<layout> of(const Geometry &g, unsigned part) {
    const unsigned phases = g.stride_h * g.stride_w, phase = part % phases;
    return {g.n, g.k, g.filters(), g.p, g.q, g.by_pq.divisor, part / phases,
            backward_axis(phase / g.stride_w, g.h, g.r, g.pad_h, g.stride_h, g.dilation_h),
            backward_axis(phase % g.stride_w, g.w, g.s, g.pad_w, g.stride_w, g.dilation_w)};
  }
};
