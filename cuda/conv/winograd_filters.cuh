// The transform of the filters, in a kernel of its own before the kernels that multiply by them: U = G w G^T.
//
// U has a matrix c x ldk for each frequency and group, with filters contiguous: a block of filters reads whole and
// aligned rows of it. Past the last filter it holds zeros.
// Tile: 32 filters x 8 channels per block, one of each per thread; blockIdx.z counts groups. The 3 x 3 taps go through
// shared memory, since channels or taps are contiguous in w, and filters in U.
#pragma once
#include "conv/winograd.cuh"

// c channels are summed over, to k outputs, in each group. `turned` is for the input's gradient, which is a convolution
// of y by filters turned by half a turn, with channels and filters exchanged: w then has c rows for each group instead
// of k.
template <class F, Layout layout, bool turned>
__global__ void __launch_bounds__(256) winograd_filters(const float *__restrict__ w, float *__restrict__ u, unsigned c,
                                                        unsigned k, unsigned ldk) {
  constexpr unsigned FILTERS = 32, CHANNELS = 8, TAPS = 9, ROWS = turned ? CHANNELS : FILTERS;
  constexpr unsigned ACROSS = FILTERS * CHANNELS / ROWS;  // filters or channels along a row of w, apart from the taps
  __shared__ float taps[CHANNELS][FILTERS][TAPS];         // 9 is odd: no bank conflicts
  const unsigned filter0 = blockIdx.x * FILTERS, channel0 = blockIdx.y * CHANNELS, group = blockIdx.z;
  const unsigned row0 = turned ? channel0 : filter0, rows = turned ? c : k;
  const unsigned across0 = turned ? filter0 : channel0, across = turned ? k : c;
  w += size_t(group) * c * k * TAPS;
  for (unsigned e = threadIdx.x; e < FILTERS * CHANNELS * TAPS; e += 256) {
    const unsigned row = e / (ACROSS * TAPS), rest = e % (ACROSS * TAPS);
    const unsigned at = layout == Layout::nchw ? rest / TAPS : rest % ACROSS;
    const unsigned tap = layout == Layout::nchw ? rest % TAPS : rest / ACROSS;
    const bool inside = row0 + row < rows && across0 + at < across;
    const size_t first = size_t(row0 + row) * across * TAPS, col = across0 + at;
    taps[turned ? row : at][turned ? at : row][turned ? TAPS - 1 - tap : tap] =
        inside ? w[first + (layout == Layout::nchw ? col * TAPS + tap : tap * size_t(across) + col)] : 0.0f;
  }
  __syncthreads();  // the taps are complete
  const unsigned filter = threadIdx.x % FILTERS, channel = threadIdx.x / FILTERS;
  if (filter0 + filter >= ldk || channel0 + channel >= c) return;
  float window[3][3], made[F::SIDE][F::SIDE];
#pragma unroll
  for (int tap = 0; tap < TAPS; ++tap) window[tap / 3][tap % 3] = taps[channel][filter][tap];
  transform<typename F::Filter>(window, made);
  const size_t frequency = size_t(gridDim.z) * c * ldk;
  u += (size_t(group) * c + channel0 + channel) * ldk + filter0 + filter;
#pragma unroll
  for (int f = 0; f < F::FREQUENCIES; ++f) u[f * frequency] = made[f / F::SIDE][f % F::SIDE];
}
