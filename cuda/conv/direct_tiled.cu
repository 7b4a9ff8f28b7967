// Convolution, forward or to the input. What a block reads is staged in shared memory, and each thread computes several
// sums.
//
// Tile: a block owns PLACES = 256 pixels of one image of the output, 2^log_cols columns wide, times BK = 32 channels of
// one group; blockIdx.y counts groups and their tiles of channels, blockIdx.z images. It takes the input's channels BC
// at a time: it loads the part of the image under its filters, [channel][row][column], then the filters,
// [channel][tap][BK]. A warp owns 32 TM of the pixels, each lane TM of them, times TN channels: for TM x TN
// multiply-adds a lane reads TM pixels, next to those of its neighbours (no bank conflicts at unit stride), and TN
// weights, which its whole warp reads.
// dgrad at unit stride is the same computation with the filters turned by half a turn, channels and filters exchanged,
// and the complementary padding: Pass maps one to the other.
// Preconditions: dynamic shared memory as the plan sizes it; unit stride for dgrad. Sums are FP32 for every storage
// type.
// Limit: there is one stage, so loads wait for the barrier and no thread computes meanwhile; a stride of two causes
// two-way bank conflicts. Images much smaller than a tile waste most of its threads. conv/implicit.cu has neither
// limit.
#include "conv/geometry.cuh"
#include "conv/scalar.cuh"

namespace {

constexpr unsigned THREADS = 256, PLACES = 256, BK = 32, TM = 4, TN = 8;
constexpr unsigned ROW = BK + 4;  // of weights: aligned to a float4, with eight taps in different banks
static_assert(PLACES / TM * (BK / TN) == THREADS, "each thread owns TM x TN sums");

// The pass as a forward convolution from `in` to `out`, with `depth` input and `filters` output channels per group.
template <Direction direction, Layout layout>
struct Pass {
  static constexpr bool forward = direction == Direction::fprop;
  const Geometry &g;

  __device__ __forceinline__ unsigned depth() const { return forward ? g.depth() : g.filters(); }
  __device__ __forceinline__ unsigned filters() const { return forward ? g.filters() : g.depth(); }
  __device__ __forceinline__ unsigned rows_in() const { return forward ? g.h : g.p; }
  __device__ __forceinline__ unsigned cols_in() const { return forward ? g.w : g.q; }
  __device__ __forceinline__ unsigned rows_out() const { return forward ? g.p : g.h; }
  __device__ __forceinline__ unsigned cols_out() const { return forward ? g.q : g.w; }

  // The input's row and column under the first row and column of the filter.
  __device__ __forceinline__ unsigned first_row(unsigned i) const {
    return forward ? g.input_row(i, 0) : i + g.pad_h - (g.r - 1) * g.dilation_h;
  }
  __device__ __forceinline__ unsigned first_col(unsigned j) const {
    return forward ? g.input_col(j, 0) : j + g.pad_w - (g.s - 1) * g.dilation_w;
  }
  __device__ __forceinline__ size_t in(unsigned image, unsigned channel, unsigned row, unsigned col) const {
    return forward ? g.x_at<layout>(image, channel, row, col) : g.y_at<layout>(image, channel, row, col);
  }
  __device__ __forceinline__ size_t out(unsigned image, unsigned channel, unsigned row, unsigned col) const {
    return forward ? g.y_at<layout>(image, channel, row, col) : g.x_at<layout>(image, channel, row, col);
  }
  // filter and channel: within the group.
  __device__ __forceinline__ size_t weight(unsigned group, unsigned filter, unsigned channel, unsigned tap) const {
    const unsigned a = g.by_s.quotient(tap), b = g.by_s.remainder(tap);
    return forward ? g.w_at<layout>(group * filters() + filter, channel, a, b)
                   : g.w_at<layout>(group * depth() + channel, filter, g.r - 1 - a, g.s - 1 - b);
  }
};

// Loads `channels` channels of the image from c0 on, and of each the `places` pixels from row0 and col0 on; zero in the
// padding.
template <unsigned BC, Layout layout, class T, class Pass>
__device__ __forceinline__ void load_image(float *smem_x, const T *__restrict__ in, const Pass &pass, unsigned image,
                                           unsigned group, unsigned c0, unsigned channels, unsigned row0,
                                           unsigned col0, Divisor cols, unsigned places) {
  constexpr bool last = layout == Layout::nhwc;  // whether the channel is the last axis: threads then run along it
  for (unsigned at = last ? threadIdx.x / BC : threadIdx.x; at < places; at += last ? THREADS / BC : THREADS) {
    const unsigned row = row0 + cols.quotient(at), col = col0 + cols.remainder(at);
    const bool inside = row < pass.rows_in() && col < pass.cols_in();
    for (unsigned c = last ? threadIdx.x % BC : 0; c < channels; c += last ? BC : 1) {
      const unsigned channel = group * pass.depth() + c0 + c;
      smem_x[c * places + at] = inside ? widened(in[pass.in(image, channel, row, col)]) : 0.0f;
    }
  }
}

// Loads the weights of these channels in BK filters, zero past the last filter.
template <unsigned BC, Layout layout, class T, class Pass>
__device__ __forceinline__ void load_filters(float *smem_w, const T *__restrict__ w, const Pass &pass, unsigned group,
                                             unsigned filter0, unsigned c0, unsigned channels) {
  const unsigned taps = pass.g.by_rs.divisor, lane_id = threadIdx.x % 32, warp_id = threadIdx.x / 32;
  for (unsigned filter = warp_id; filter < BK; filter += THREADS / 32) {
    for (unsigned e = lane_id; e < BC * taps; e += 32) {  // in the order of storage
      const unsigned c = layout == Layout::nhwc ? e % BC : pass.g.by_rs.quotient(e);
      const unsigned tap = layout == Layout::nhwc ? e / BC : pass.g.by_rs.remainder(e);
      if (c >= channels) continue;
      const bool there = filter0 + filter < pass.filters();
      const float weight = there ? widened(w[pass.weight(group, filter0 + filter, c0 + c, tap)]) : 0.0f;
      smem_w[(c * taps + tap) * ROW + filter] = weight;
    }
  }
}

}  // namespace

template <class T, unsigned BC, Direction direction, Layout layout>
__global__ void __launch_bounds__(THREADS, 3)
    conv_direct_tiled(const T *__restrict__ in, const T *__restrict__ w, T *__restrict__ out, unsigned log_cols,
                      unsigned tiles_across, unsigned tiles_of_filters, unsigned rows, unsigned cols,
                      unsigned long long by_cols, const __grid_constant__ Geometry g) {
  const Pass<direction, layout> pass{g};
  DYN_SHARED(float, smem_x);
  const unsigned places = rows * cols;  // pixels of the staged part of the image
  float *smem_w = smem_x + (BC * places + 3) / 4 * 4;
  const unsigned i0 = (blockIdx.x / tiles_across) * (PLACES >> log_cols), j0 = (blockIdx.x % tiles_across) << log_cols;
  const unsigned group = blockIdx.y / tiles_of_filters, filter0 = blockIdx.y % tiles_of_filters * BK;
  const unsigned image = blockIdx.z;

  // This thread's first pixel in the tile, and how many rows below it the next one is. Its first filter.
  const unsigned pixel = threadIdx.x % (PLACES / TM), apart = (PLACES / TM) >> log_cols;
  const unsigned i = pixel >> log_cols, j = pixel & ((1u << log_cols) - 1);
  const unsigned mine = threadIdx.x / (PLACES / TM) * TN;
  const unsigned corner = i * g.stride_h * cols + j * g.stride_w, step = apart * g.stride_h * cols;

  float sums[TM][TN] = {};
  for (unsigned c0 = 0; c0 < pass.depth(); c0 += BC) {
    const unsigned channels = min(BC, pass.depth() - c0);
    __syncthreads();  // all threads have used the previous channels
    load_image<BC, layout>(smem_x, in, pass, image, group, c0, channels, pass.first_row(i0), pass.first_col(j0),
                           {cols, by_cols}, places);
    load_filters<BC, layout>(smem_w, w, pass, group, filter0, c0, channels);
    __syncthreads();  // image and filters are complete
    const float *weights = smem_w + mine;
    for (unsigned c = 0; c < channels; ++c) {
      for (unsigned a = 0; a < g.r; ++a) {
        const float *from = smem_x + c * places + corner + a * g.dilation_h * cols;
        for (unsigned b = 0; b < g.s; ++b, from += g.dilation_w, weights += ROW) {
          const float4 low = *reinterpret_cast<const float4 *>(weights);
          const float4 high = *reinterpret_cast<const float4 *>(weights + 4);
          const float right[TN] = {low.x, low.y, low.z, low.w, high.x, high.y, high.z, high.w};
#pragma unroll
          for (unsigned m = 0; m < TM; ++m) {
            const float left = from[m * step];
#pragma unroll
            for (unsigned f = 0; f < TN; ++f) sums[m][f] += left * right[f];
          }
        }
      }
    }
  }
#pragma unroll
  for (unsigned m = 0; m < TM; ++m) {
    const unsigned row = i0 + i + m * apart, col = j0 + j;
    if (row >= pass.rows_out() || col >= pass.cols_out()) return;
#pragma unroll
    for (unsigned f = 0; f < TN; ++f) {
      const unsigned filter = filter0 + mine + f;
      if (filter >= pass.filters()) break;
      store_sum(&out[pass.out(image, group * pass.filters() + filter, row, col)], sums[m][f]);
    }
  }
}
