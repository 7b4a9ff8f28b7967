// Depthwise convolution, forward and to the input. Each filter reads one channel, so the only reuse is that of a pixel
// by the taps of neighbouring outputs; the part of the image that a block reads is staged in shared memory.
//
// Tile: a block has `rows` x `cols` threads for each of `planes` filters (dgrad: channels) of one image, and each
// thread owns OUT rows of the output, which lie the block's height apart. The block's shape follows the layout:
// threadIdx.x runs along columns (nchw: columns, rows, planes) or along channels (nhwc: planes, columns, rows), so that
// accesses to global and shared memory coalesce. blockIdx.x counts tiles of an image, blockIdx.y groups of planes,
// blockIdx.z images. A channel may have several filters (c = groups, k a multiple of c): fprop reads the channel for
// each of them, dgrad adds them one after another. wgrad is in depthwise_wgrad.cuh.
// Preconditions: c = groups; dynamic shared memory for a tile, as the plan sizes it. Sums are FP32.
// Limit: memory bandwidth, with a tile's rim read twice, as long as shared memory keeps up with r s + r s / OUT reads
// per result. dgrad divides by the stride at each tap, and leaves threads idle where the stride is not 1.
#include "conv/depthwise_wgrad.cuh"
#include "conv/sum.cuh"

namespace {

// Where a thread is in its block, and how the block's tile lies in shared memory.
template <Layout layout>
struct Lanes {
  static constexpr bool last = layout == Layout::nhwc;  // whether the channel is the last axis
  const unsigned planes = last ? blockDim.x : blockDim.z, plane = last ? threadIdx.x : threadIdx.z;
  const unsigned rows = last ? blockDim.z : blockDim.y, row = last ? threadIdx.z : threadIdx.y;
  const unsigned cols = last ? blockDim.y : blockDim.x, col = last ? threadIdx.y : threadIdx.x;

  // Element [plane][row][col] of a tile of tile_rows x tile_cols.
  __device__ __forceinline__ unsigned at(unsigned i, unsigned j, unsigned tile_rows, unsigned tile_cols) const {
    return last ? (i * tile_cols + j) * planes + plane : (plane * tile_rows + i) * tile_cols + j;
  }
};

// Loads the weights of a plane's filter, which its threads share; an odd distance between planes avoids bank conflicts.
template <Layout layout, class T>
__device__ __forceinline__ void load_weights(float *mine, const T *__restrict__ w, const Lanes<layout> &lanes,
                                             unsigned filter, unsigned taps) {
  for (unsigned tap = lanes.row * lanes.cols + lanes.col; tap < taps; tap += lanes.rows * lanes.cols) {
    mine[tap] = widened(w[size_t(filter) * taps + tap]);
  }
}

}  // namespace

template <class T, unsigned OUT, Layout layout>
__global__ void __launch_bounds__(256)
    conv_depthwise_fprop(const T *__restrict__ x, const T *__restrict__ w, T *__restrict__ y, unsigned tile_rows,
                         unsigned tile_cols, unsigned tiles_across, const __grid_constant__ Geometry g) {
  const Lanes<layout> lanes;
  DYN_SHARED(float, tile);
  const unsigned taps = g.by_rs.divisor;
  float *weights = tile + lanes.planes * tile_rows * tile_cols + lanes.plane * (taps | 1);
  const unsigned i0 = blockIdx.x / tiles_across * lanes.rows * OUT, j0 = blockIdx.x % tiles_across * lanes.cols;
  const unsigned filter = blockIdx.y * lanes.planes + lanes.plane, image = blockIdx.z;
  const unsigned row0 = g.input_row(i0, 0), col0 = g.input_col(j0, 0);
  if (filter < g.k) {
    const unsigned channel = g.by_filters.quotient(filter);
    for (unsigned i = lanes.row; i < tile_rows; i += lanes.rows) {
      for (unsigned j = lanes.col; j < tile_cols; j += lanes.cols) {
        const bool inside = row0 + i < g.h && col0 + j < g.w;
        const float value = inside ? widened(x[g.x_at<layout>(image, channel, row0 + i, col0 + j)]) : 0.0f;
        tile[lanes.at(i, j, tile_rows, tile_cols)] = value;
      }
    }
    load_weights<layout>(weights, w, lanes, filter, taps);
  }
  __syncthreads();  // the planes are complete
  if (filter >= g.k) return;
  float sums[OUT] = {};
  for (unsigned a = 0; a < g.r; ++a) {
    for (unsigned b = 0; b < g.s; ++b) {
      const float weight = weights[a * g.s + b];
#pragma unroll
      for (unsigned o = 0; o < OUT; ++o) {
        const unsigned i = (lanes.row + o * lanes.rows) * g.stride_h + a * g.dilation_h;
        const unsigned j = lanes.col * g.stride_w + b * g.dilation_w;
        sums[o] += weight * tile[lanes.at(i, j, tile_rows, tile_cols)];
      }
    }
  }
#pragma unroll
  for (unsigned o = 0; o < OUT; ++o) {
    const unsigned i = i0 + lanes.row + o * lanes.rows, j = j0 + lanes.col;
    if (i < g.p && j < g.q) store_sum(&y[g.y_at<layout>(image, filter, i, j)], sums[o]);
  }
}

// The tile holds the outputs that depend on a tile of the input, for one filter after another.
template <class T, unsigned OUT, Layout layout>
__global__ void __launch_bounds__(256)
    conv_depthwise_dgrad(T *__restrict__ x, const T *__restrict__ w, const T *__restrict__ y, unsigned tile_rows,
                         unsigned tile_cols, unsigned tiles_across, const __grid_constant__ Geometry g) {
  const Lanes<layout> lanes;
  DYN_SHARED(float, tile);
  const unsigned taps = g.by_rs.divisor;
  float *weights = tile + lanes.planes * tile_rows * tile_cols + lanes.plane * (taps | 1);
  const unsigned row0 = blockIdx.x / tiles_across * lanes.rows * OUT, col0 = blockIdx.x % tiles_across * lanes.cols;
  const unsigned channel = blockIdx.y * lanes.planes + lanes.plane, image = blockIdx.z;
  // The first outputs whose filters reach the tile, which they do with their last tap.
  const unsigned high = (g.r - 1) * g.dilation_h, wide = (g.s - 1) * g.dilation_w;
  const unsigned below = max(row0 + g.pad_h, high) - high, behind = max(col0 + g.pad_w, wide) - wide;
  const unsigned i0 = g.by_stride_h.quotient(below + g.stride_h - 1);
  const unsigned j0 = g.by_stride_w.quotient(behind + g.stride_w - 1);
  float sums[OUT] = {};
  for (unsigned of_channel = 0; of_channel < g.filters(); ++of_channel) {
    const unsigned filter = channel * g.filters() + of_channel;
    __syncthreads();  // all threads have used the previous filter's tile
    if (channel < g.c) {
      for (unsigned i = lanes.row; i < tile_rows && i0 + i < g.p; i += lanes.rows) {
        for (unsigned j = lanes.col; j < tile_cols && j0 + j < g.q; j += lanes.cols) {
          const float value = widened(y[g.y_at<layout>(image, filter, i0 + i, j0 + j)]);
          tile[lanes.at(i, j, tile_rows, tile_cols)] = value;
        }
      }
      load_weights<layout>(weights, w, lanes, filter, taps);
    }
    __syncthreads();  // the planes are complete
    if (channel >= g.c) continue;
    for (unsigned b = 0; b < g.s; ++b) {
      const unsigned j = g.output_col(col0 + lanes.col, b);
      if (j >= g.q) continue;
      for (unsigned a = 0; a < g.r; ++a) {
        const float weight = weights[a * g.s + b];
#pragma unroll
        for (unsigned o = 0; o < OUT; ++o) {
          const unsigned i = g.output_row(row0 + lanes.row + o * lanes.rows, a);
          if (i < g.p) sums[o] += weight * tile[lanes.at(i - i0, j - j0, tile_rows, tile_cols)];
        }
      }
    }
  }
#pragma unroll
  for (unsigned o = 0; o < OUT; ++o) {
    const unsigned row = row0 + lanes.row + o * lanes.rows, col = col0 + lanes.col;
    if (channel < g.c && row < g.h && col < g.w) store_sum(&x[g.x_at<layout>(image, channel, row, col)], sums[o]);
  }
}
