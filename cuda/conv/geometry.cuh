// The sizes of a convolution, as every kernel here receives them, and where its operands' elements lie.
//
// A kernel takes a Geometry by value after its operands, as kernels/conv/_geometry.py packs it. Fields that a kernel
// does not use cost nothing, since parameters are constants.
//
// x: n images of c channels, h x w. w: k filters of c / groups channels, r x s. y: n images of k channels, p x q. All
// have the same order of axes: images (filters), channels, rows, columns (nchw), or with channels last (nhwc).
#pragma once
#include "common.cuh"

// Division by a number that the host fixes, for dividends below 2^31: one multiplication and a shift. `packed` has the
// multiplier in its low word and the shift in its high word.
struct Divisor {
  unsigned divisor;
  unsigned long long packed;

  __device__ __forceinline__ unsigned quotient(unsigned dividend) const {
    return static_cast<unsigned>(static_cast<unsigned long long>(dividend) * static_cast<unsigned>(packed) >>
                                 (packed >> 32));
  }
  __device__ __forceinline__ unsigned remainder(unsigned dividend) const {
    return dividend - quotient(dividend) * divisor;
  }
};

enum class Layout { nchw, nhwc };
enum class Direction { fprop, dgrad, wgrad };

// The offset of element [a][b][i][j] in an array of `channels` channels and rows x cols places.
template <Layout layout>
__device__ __forceinline__ size_t place(unsigned a, unsigned b, unsigned i, unsigned j, unsigned channels,
                                        unsigned rows, unsigned cols) {
  return layout == Layout::nchw ? ((size_t(a) * channels + b) * rows + i) * cols + j
                                : ((size_t(a) * rows + i) * cols + j) * channels + b;
}

struct Geometry {
  unsigned n, c, h, w, k, r, s, p, q;
  unsigned stride_h, stride_w, dilation_h, dilation_w;
  unsigned pad_h, pad_w;  // before the first row and column; p and q determine the padding after the last
  unsigned groups;
  Divisor by_pq, by_q;              // a place among all outputs into image, row, column
  Divisor by_hw, by_w;              // the same among all inputs
  Divisor by_rs, by_s;              // a filter's element into channel, row, column
  Divisor by_depth, by_filters;     // by the channels and by the filters of a group
  Divisor by_stride_h, by_stride_w;  // from inputs back to outputs

  // Channels of x and filters per group.
  __device__ __forceinline__ unsigned depth() const { return by_depth.divisor; }
  __device__ __forceinline__ unsigned filters() const { return by_filters.divisor; }

  template <Layout layout>
  __device__ __forceinline__ size_t x_at(unsigned image, unsigned channel, unsigned row, unsigned col) const {
    return place<layout>(image, channel, row, col, c, h, w);
  }
  template <Layout layout>
  __device__ __forceinline__ size_t w_at(unsigned filter, unsigned channel, unsigned row, unsigned col) const {
    return place<layout>(filter, channel, row, col, depth(), r, s);
  }
  template <Layout layout>
  __device__ __forceinline__ size_t y_at(unsigned image, unsigned filter, unsigned row, unsigned col) const {
    return place<layout>(image, filter, row, col, k, p, q);
  }

  // The input's row and column under row a and column b of the filter, for the output's row i and column j. In the
  // padding they are not below h and w, since they wrap around.
  __device__ __forceinline__ unsigned input_row(unsigned i, unsigned a) const {
    return i * stride_h + a * dilation_h - pad_h;
  }
  __device__ __forceinline__ unsigned input_col(unsigned j, unsigned b) const {
    return j * stride_w + b * dilation_w - pad_w;
  }

  // The output's row and column for which row a and column b of the filter lie over this input, or a value not below p
  // and q where there is none.
  __device__ __forceinline__ unsigned output_row(unsigned row, unsigned a) const {
    return output(row + pad_h, a * dilation_h, by_stride_h, p);
  }
  __device__ __forceinline__ unsigned output_col(unsigned col, unsigned b) const {
    return output(col + pad_w, b * dilation_w, by_stride_w, q);
  }

 private:
  static __device__ __forceinline__ unsigned output(unsigned padded, unsigned tap, Divisor stride, unsigned none) {
    const unsigned distance = padded - tap, found = stride.quotient(distance);
    return padded >= tap && found * stride.divisor == distance ? found : none;
  }
};
