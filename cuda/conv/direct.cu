// Convolution and its gradients as they are defined: one thread per element of the output, which sums everything that
// contributes to it. Every other kernel is measured against this one.
//
// Tile: a block of 32 x 8 threads owns 32 x 8 elements of the output: 32 neighbouring places of 8 channels (nchw), or
// 32 channels of 8 places (nhwc), so that a warp writes, and in nchw reads, neighbours. A place of y or x is a pixel of
// an image; a place of w, whose "channels" are the filters, is an element of a filter, in the order of storage. Each
// tap is tested for padding once, and then summed over all channels of its group.
// Preconditions: none; any stride, dilation, padding and groups. Sums are FP32 for every storage type.
// Limit: each multiply-add loads two operands from the caches. wgrad has few threads with long sums, one per filter
// element, and leaves most of the device idle where the filters are few.
#include "conv/places.cuh"
#include "conv/scalar.cuh"

namespace {

constexpr unsigned THREADS = WARP * WARPS;
// Blocks per multiprocessor. Without a number the compiler aims at eight, and spills registers.
constexpr unsigned DIRECT_BLOCKS_PER_SM = 5;

// How far apart neighbouring channels are in an array with this many places.
template <Layout layout>
__device__ __forceinline__ size_t channel_stride(unsigned places) {
  return layout == Layout::nchw ? places : 1;
}

}  // namespace

template <class T, Layout layout>
__global__ void __launch_bounds__(THREADS, DIRECT_BLOCKS_PER_SM)
    conv_direct_fprop(const T *__restrict__ x, const T *__restrict__ w, T *__restrict__ y,
                      const __grid_constant__ Geometry g) {
  const unsigned pixel = my_place<layout>(), filter = my_channel<layout>();
  if (pixel >= g.n * g.by_pq.divisor || filter >= g.k) return;
  const unsigned image = g.by_pq.quotient(pixel), within = g.by_pq.remainder(pixel);
  const unsigned i = g.by_q.quotient(within), j = g.by_q.remainder(within);
  const unsigned first = g.by_filters.quotient(filter) * g.depth();  // the first channel of the filter's group
  const size_t step_x = channel_stride<layout>(g.by_hw.divisor), step_w = channel_stride<layout>(g.by_rs.divisor);
  float sum = 0.0f;
  for (unsigned a = 0; a < g.r; ++a) {
    const unsigned row = g.input_row(i, a);
    if (row >= g.h) continue;
    for (unsigned b = 0; b < g.s; ++b) {
      const unsigned col = g.input_col(j, b);
      if (col >= g.w) continue;
      const T *from_x = x + g.x_at<layout>(image, first, row, col), *from_w = w + g.w_at<layout>(filter, 0, a, b);
      for (unsigned c = 0; c < g.depth(); ++c) sum += widened(from_x[c * step_x]) * widened(from_w[c * step_w]);
    }
  }
  store_sum(&y[g.y_at<layout>(image, filter, i, j)], sum);
}

template <class T, Layout layout>
__global__ void __launch_bounds__(THREADS, DIRECT_BLOCKS_PER_SM)
    conv_direct_dgrad(T *__restrict__ x, const T *__restrict__ w, const T *__restrict__ y,
                      const __grid_constant__ Geometry g) {
  const unsigned pixel = my_place<layout>(), channel = my_channel<layout>();
  if (pixel >= g.n * g.by_hw.divisor || channel >= g.c) return;
  const unsigned image = g.by_hw.quotient(pixel), within = g.by_hw.remainder(pixel);
  const unsigned row = g.by_w.quotient(within), col = g.by_w.remainder(within);
  const unsigned group = g.by_depth.quotient(channel), first = group * g.filters();
  const unsigned deep = g.by_depth.remainder(channel);
  const size_t step_y = channel_stride<layout>(g.by_pq.divisor), step_w = size_t(g.by_rs.divisor) * g.depth();
  float sum = 0.0f;
  for (unsigned a = 0; a < g.r; ++a) {
    const unsigned i = g.output_row(row, a);
    if (i >= g.p) continue;
    for (unsigned b = 0; b < g.s; ++b) {
      const unsigned j = g.output_col(col, b);
      if (j >= g.q) continue;
      const T *from_y = y + g.y_at<layout>(image, first, i, j), *from_w = w + g.w_at<layout>(first, deep, a, b);
      for (unsigned k = 0; k < g.filters(); ++k) sum += widened(from_y[k * step_y]) * widened(from_w[k * step_w]);
    }
  }
  store_sum(&x[g.x_at<layout>(image, channel, row, col)], sum);
}

template <class T, Layout layout>
__global__ void __launch_bounds__(THREADS, DIRECT_BLOCKS_PER_SM)
    conv_direct_wgrad(const T *__restrict__ x, T *__restrict__ w, const T *__restrict__ y,
                      const __grid_constant__ Geometry g) {
  const unsigned element = blockIdx.x * WARP + threadIdx.x, filter = blockIdx.y * WARPS + threadIdx.y;
  if (element >= g.depth() * g.by_rs.divisor || filter >= g.k) return;
  constexpr bool last = layout == Layout::nhwc;  // whether the channel is the last axis
  const unsigned tap = last ? g.by_depth.quotient(element) : g.by_rs.remainder(element);
  const unsigned deep = last ? g.by_depth.remainder(element) : g.by_rs.quotient(element);
  const unsigned a = g.by_s.quotient(tap), b = g.by_s.remainder(tap);
  const unsigned channel = g.by_filters.quotient(filter) * g.depth() + deep;
  float sum = 0.0f;
  for (unsigned image = 0; image < g.n; ++image) {
    for (unsigned i = 0; i < g.p; ++i) {
      const unsigned row = g.input_row(i, a);
      if (row >= g.h) continue;
      for (unsigned j = 0; j < g.q; ++j) {
        const unsigned col = g.input_col(j, b);
        if (col >= g.w) continue;
        sum += widened(x[g.x_at<layout>(image, channel, row, col)]) * widened(y[g.y_at<layout>(image, filter, i, j)]);
      }
    }
  }
  store_sum(&w[g.w_at<layout>(filter, deep, a, b)], sum);
}
