// The gradient of depthwise filters: for each tap a sum over all outputs of its filter.
//
// Tile: a block owns TAPS taps of one filter (nchw: its 256 threads take neighbouring pixels) or of 32 filters (nhwc:
// one per lane, 8 pixels at a time), and a slice of the pixels of all images; blockIdx.x counts filters, blockIdx.y
// groups of taps, blockIdx.z slices. A thread keeps TAPS sums in registers; warps are added through shared memory, then
// lanes by shuffles (nchw). With several slices, out is [slice][filter][tap], and conv_sum adds them.
// Limit: r s / TAPS reads of y, and r s of x, which hit the L1 cache for all but the first tap.
#pragma once
#include "conv/geometry.cuh"
#include "conv/scalar.cuh"

constexpr unsigned TAPS = 9, WGRAD_WARPS = 8;

template <class T, class Out, Layout layout>
__global__ void __launch_bounds__(32 * WGRAD_WARPS, 4)
    conv_depthwise_wgrad(const T *__restrict__ x, Out *__restrict__ out, const T *__restrict__ y, unsigned slice,
                         const __grid_constant__ Geometry g) {
  constexpr unsigned PLANES = layout == Layout::nhwc ? 32 : 1, STEP = 32 * WGRAD_WARPS / PLANES;
  __shared__ float parts[WGRAD_WARPS][TAPS][32];
  const unsigned lane_id = threadIdx.x % 32, warp_id = threadIdx.x / 32;
  const unsigned filter = blockIdx.x * PLANES + threadIdx.x % PLANES;
  const unsigned taps = g.by_rs.divisor, tap0 = blockIdx.y * TAPS;
  const unsigned first = blockIdx.z * slice, end = min(first + slice, g.n * g.by_pq.divisor);
  float sums[TAPS] = {};
  if (filter < g.k) {
    const unsigned channel = g.by_filters.quotient(filter);
    for (unsigned pixel = first + threadIdx.x / PLANES; pixel < end; pixel += STEP) {
      const unsigned image = g.by_pq.quotient(pixel), within = g.by_pq.remainder(pixel);
      const unsigned i = g.by_q.quotient(within), j = g.by_q.remainder(within);
      const float gradient = widened(y[g.y_at<layout>(image, filter, i, j)]);
#pragma unroll
      for (unsigned t = 0; t < TAPS; ++t) {
        const unsigned a = g.by_s.quotient(tap0 + t), b = g.by_s.remainder(tap0 + t);
        const unsigned row = g.input_row(i, a), col = g.input_col(j, b);
        const bool inside = a < g.r && row < g.h && col < g.w;
        if (inside) sums[t] += gradient * widened(x[g.x_at<layout>(image, channel, row, col)]);
      }
    }
  }
#pragma unroll
  for (unsigned t = 0; t < TAPS; ++t) parts[warp_id][t][lane_id] = sums[t];
  __syncthreads();  // all warps' parts are in shared memory
  for (unsigned t = warp_id; t < TAPS; t += WGRAD_WARPS) {
    float sum = 0.0f;
    for (unsigned warp = 0; warp < WGRAD_WARPS; ++warp) sum += parts[warp][t][lane_id];
    if constexpr (PLANES == 1) {
#pragma unroll
      for (unsigned apart = 16; apart > 0; apart /= 2) sum += __shfl_down_sync(0xffffffff, sum, apart);
    }
    if (lane_id >= PLANES || tap0 + t >= taps || filter >= g.k) continue;
    store_sum(&out[(size_t(blockIdx.z) * g.k + filter) * taps + tap0 + t], sum);
  }
}
