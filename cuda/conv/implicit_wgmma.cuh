// Where the warp-specialised product of gemm/wgmma_specialised.cuh loads a convolution's tiles from. The TMA copies
// pixels as a tap of the filter meets them (im2col), and writes zeros for the padding: a thread only computes where a
// copy begins.
//
// A tile is 128 rows of the product by BN columns, a step 64 of the reduction, all in the 128-byte swizzle of wgmma:
//   fprop   y = x w^T: pixels of y by filters; x is gathered, a step is 64 channels under one tap
//   dgrad   x = y w: pixels of x by channels; y is gathered, with the taps in reverse, a step is 64 filters under one
//   wgrad   w = y^T x: filters by channels, for each tap; x is gathered, a step is 64 pixels of y
#pragma once
#include "conv/geometry.cuh"
#include "gemm/wgmma_specialised.cuh"

// A place in the gathered images: of a tile's or a step's first pixel under the filter's first tap.
struct FirstPixel {
  int column, row, image;

  // Copies the pixels from there on, at a tap's distance; CLUSTER > 1: to all blocks of the cluster.
  template <unsigned CLUSTER>
  __device__ __forceinline__ void load(unsigned to, const TensorMap &map, unsigned channel, unsigned short right,
                                       unsigned short down, unsigned barrier) const {
    if constexpr (CLUSTER == 1) {
      ptx::tma_load_im2col(to, &map, channel, column, row, image, right, down, barrier);
    } else {
      ptx::tma_load_im2col_multicast(to, &map, channel, column, row, image, right, down, barrier, (1 << CLUSTER) - 1);
    }
  }
};

// A pixel of the output's images: those of y or, with dgrad, of x. Numbers past the last image belong to further
// images, which the TMA copies as zeros.
template <Direction direction>
struct Pixel {
  unsigned column, row, image;

  static __device__ __forceinline__ Pixel of(const Geometry &g, unsigned index) {
    constexpr bool BACK = direction == Direction::dgrad;
    const Divisor &by_image = BACK ? g.by_hw : g.by_pq, &by_row = BACK ? g.by_w : g.by_q;
    const unsigned place = by_image.remainder(index);
    return {by_row.remainder(place), by_row.quotient(place), by_image.quotient(index)};
  }

  // Advances by as many pixels as there are before pixel `step`.
  __device__ __forceinline__ void advance(const Geometry &g, const Pixel &step) {
    column += step.column, row += step.row, image += step.image;
    if (column >= g.q) column -= g.q, ++row;
    if (row >= g.p) row -= g.p, ++image;
  }

  // Where the filter's first tap reads the gathered image for this pixel; with dgrad, at unit strides, its last tap.
  __device__ __forceinline__ FirstPixel first(const Geometry &g) const {
    if constexpr (direction == Direction::dgrad) {
      return {static_cast<int>(column + g.pad_w - (g.s - 1) * g.dilation_w),
              static_cast<int>(row + g.pad_h - (g.r - 1) * g.dilation_h), static_cast<int>(image)};
    } else {
      return {static_cast<int>(column * g.stride_w - g.pad_w), static_cast<int>(row * g.stride_h - g.pad_h),
              static_cast<int>(image)};
    }
  }
};

// fprop and dgrad: A is gathered, B is the filters, whose map has the tap as its third dimension.
template <class T, unsigned BN, Direction direction>
struct ImageRows {
  using Type = T;
  using A = OperandTile<T, BM, true>;
  using B = OperandTile<T, BN, direction == Direction::fprop>;
  static constexpr int REGISTERS = 40;
  const TensorMap &map_a, &map_b;
  const Geometry &g;

  __device__ __forceinline__ unsigned depth() const { return direction == Direction::fprop ? g.c : g.k; }
  __device__ __forceinline__ unsigned steps() const { return g.by_rs.divisor * ((depth() + A::DEPTH - 1) / A::DEPTH); }

  // The next step: channels from `channel` on, under the tap whose distance from the first one is right and down.
  struct Place {
    FirstPixel first;
    unsigned col0, channel, tap;
    unsigned short right, down;
  };
  // A tile has one slice, from the first step on.
  __device__ __forceinline__ Place at(unsigned row0, unsigned col0, const Slices::Part &) const {
    return {Pixel<direction>::of(g, row0).first(g), col0, 0, 0, 0, 0};
  }

  template <unsigned SHARE, unsigned CLUSTER>
  __device__ __forceinline__ void load(Place &place, unsigned a, unsigned b, unsigned barrier) const {
    const unsigned tap = direction == Direction::fprop ? place.tap : g.by_rs.divisor - 1 - place.tap;
    place.first.template load<1>(a, map_a, place.channel, place.right, place.down, barrier);
    B::template load<SHARE, CLUSTER>(b, map_b, place.col0, place.channel, tap, barrier);
    place.channel += A::DEPTH;
    if (place.channel < depth()) return;
    place.channel = 0, ++place.tap, place.right += g.dilation_w;
    if (place.right == g.s * g.dilation_w) place.right = 0, place.down += g.dilation_h;
  }
};

// wgrad: A is y, whose map has all pixels as rows, B is gathered. A product is a tap; both lie across the reduction.
template <class T, unsigned BN>
struct ImageColumns {
  using Type = T;
  using A = OperandTile<T, BM, false>;
  using B = OperandTile<T, BN, false>;
  static constexpr int REGISTERS = 56;
  const TensorMap &map_a, &map_b;
  const Geometry &g;

  // The next step: the pixels of y from number `index` on.
  struct Place {
    unsigned row0, col0, index;
    unsigned short right, down;
    Pixel<Direction::fprop> pixel, step;
  };
  __device__ __forceinline__ Place at(unsigned row0, unsigned col0, const Slices::Part &part) const {
    const unsigned index = part.first * A::DEPTH, s = g.by_s.remainder(part.product), r = g.by_s.quotient(part.product);
    const auto right = static_cast<unsigned short>(s * g.dilation_w);
    const auto down = static_cast<unsigned short>(r * g.dilation_h);
    return {row0, col0, index, right, down, Pixel<Direction::fprop>::of(g, index),
            Pixel<Direction::fprop>::of(g, A::DEPTH)};
  }

  template <unsigned SHARE, unsigned CLUSTER>
  __device__ __forceinline__ void load(Place &place, unsigned a, unsigned b, unsigned barrier) const {
    const FirstPixel first = place.pixel.first(g);
    A::template load<BM>(a, map_a, place.row0, place.index, 0, barrier);
#pragma unroll
    for (unsigned i = 0; i < SHARE / BOX; ++i) {
      first.template load<CLUSTER>(b + i * BOX * ROW_BYTES, map_b, place.col0 + i * BOX, place.right, place.down,
                                   barrier);
    }
    place.index += A::DEPTH;
    place.pixel.advance(g, place.step);
  }
};

// Stores the sums of a slice of the filter's gradient, from filter row0 and channel col0 on, at `out`, where slices of
// `elements` elements follow each other. A quad of lanes writes 8 channels of a filter's tap.
template <class Out>
struct FilterStore {
  Out *out;
  const Geometry &g;
  unsigned slices;
  long long elements;

  template <int SUMS>
  __device__ __forceinline__ void put(const float (&sums)[SUMS], unsigned row0, unsigned col0, unsigned unit) const {
    const unsigned tap = unit / slices;
    Out *slice = out + unit % slices * elements;
#pragma unroll
    for (unsigned i = 0; i < SUMS / 2; ++i) {  // pairs of neighbours
      const unsigned filter = row0 + SumPlace::row(i % 2), channel = col0 + i / 2 * 8 + SumPlace::column();
      if (filter >= g.k || channel >= g.c) continue;
      Out *to = slice + (size_t(filter) * g.by_rs.divisor + tap) * g.c + channel;
      *reinterpret_cast<typename Element<Out>::Pair *>(to) =
          Element<Out>::pair(make_float2(sums[2 * i], sums[2 * i + 1]));
    }
  }
  __device__ __forceinline__ void finish() const {}
};
