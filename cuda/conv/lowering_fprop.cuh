// y = w x: the filters are plain, x is gathered.
#pragma once
#include "conv/lowering.cuh"

template <Layout layout>
struct Lowering<Direction::fprop, layout> : TapLowering<layout> {
  static constexpr bool PLAIN_ALONG = true, PLAIN_EVEN = true;
  const Geometry &g;

  // part: the group.
  __device__ __forceinline__ Lowering(const Geometry &geometry, unsigned part)
      : TapLowering<layout>{of(geometry, part), geometry.filters(), geometry.k, geometry.q, geometry.by_pq.divisor},
        g(geometry) {}

  __device__ __forceinline__ Slopes plain_slopes() const {
    const Radix taps = this->image.tap_radix();
    return {1, int(taps.fast), int(taps.fast * taps.mid)};
  }
  __device__ __forceinline__ unsigned plain_step() const { return g.depth() * g.by_rs.divisor; }
  __device__ __forceinline__ size_t plain_base() const {
    return size_t(this->image.group) * g.filters() * g.depth() * g.by_rs.divisor;
  }

 private:
  static __device__ __forceinline__ GatheredImage<layout> of(const Geometry &g, unsigned group) {
    return {g.n, g.c, g.depth(), g.h, g.w, g.by_hw.divisor, group,
            forward_axis(g.p, g.r, g.pad_h, g.stride_h, g.dilation_h),
            forward_axis(g.q, g.s, g.pad_w, g.stride_w, g.dilation_w)};
  }
};
