// w = y x: y is plain, x is gathered. The reduction runs over pixels, and the outputs are the filters' elements.
#pragma once
#include "conv/lowering.cuh"

template <Layout layout>
struct Lowering<Direction::wgrad, layout> {
  static constexpr bool LAST = layout == Layout::nhwc, GRADIENT = true;
  static constexpr bool GATHERED_ROWS = false, GATHERED_ALONG = !LAST, PLAIN_ALONG = !LAST, PLAIN_EVEN = LAST;

  const Geometry &g;
  GatheredImage<layout> image;
  unsigned plain;

  // part: the group.
  __device__ __forceinline__ Lowering(const Geometry &geometry, unsigned part)
      : g(geometry), image{g.n, g.c, g.depth(), g.h, g.w, g.by_hw.divisor, part,
                           forward_axis(g.p, g.r, g.pad_h, g.stride_h, g.dilation_h),
                           forward_axis(g.q, g.s, g.pad_w, g.stride_w, g.dilation_w)},
        plain(g.filters()) {}

  __device__ __forceinline__ unsigned depth() const { return image.pixels(); }
  __device__ __forceinline__ unsigned gathered() const { return image.taps(); }
  __device__ __forceinline__ unsigned rows() const { return plain; }
  __device__ __forceinline__ unsigned cols() const { return gathered(); }

  __device__ __forceinline__ Radix reduction_radix() const { return image.pixel_radix(); }
  __device__ __forceinline__ Radix gathered_radix() const { return image.tap_radix(); }
  __device__ __forceinline__ Spot reduction_spot(const Digits &pixel) const { return image.pixel_spot(pixel); }
  __device__ __forceinline__ Spot gathered_spot(const Digits &tap) const { return image.tap_spot(tap); }
  __device__ __forceinline__ Slopes reduction_slopes() const { return image.pixel_slopes(); }
  __device__ __forceinline__ Slopes gathered_slopes() const { return image.tap_slopes(); }

  __device__ __forceinline__ Slopes plain_slopes() const {
    const unsigned pixel = LAST ? g.k : 1;
    return {int(pixel), int(g.q * pixel), int(g.k * g.by_pq.divisor)};
  }
  __device__ __forceinline__ unsigned plain_step() const { return LAST ? 1 : g.by_pq.divisor; }
  __device__ __forceinline__ size_t plain_base() const {
    return size_t(image.group) * g.filters() * (LAST ? 1 : g.by_pq.divisor);
  }

  __device__ __forceinline__ size_t row_output(unsigned row) const {
    return (size_t(image.group) * g.filters() + row) * g.depth() * g.by_rs.divisor;
  }
  __device__ __forceinline__ size_t col_output(unsigned col) const { return col; }
};
