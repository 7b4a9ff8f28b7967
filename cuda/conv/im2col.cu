// Convolution as a product of matrices: what each output reads is laid out as a column (im2col), and the filters
// multiply the columns (columns.cuh). dgrad multiplies first, then sums the elements of the columns that belong to each
// input (col2im); wgrad multiplies the output's gradient by the columns.
//
// Columns are float, r s c / groups high, for one pass of images at a time:
//   nchw: [image][channel][tap][pixel], pixels padded to `ld`, so that a product has the outputs of an image as its n;
//   nhwc: [group][image][pixel][tap][channel], the last two together padded to `ld`, the outputs of all images as m.
// The padding of a row is multiplied but never stored. A 1 x 1 filter at unit stride needs no columns: the plan
// multiplies x itself.
// Tile: conv_im2col: in nchw a thread owns a pixel of a channel under all taps, and a warp neighbouring pixels; in nhwc
// a thread owns an element of a column, for PIXELS pixels. conv_col2im: a thread owns an input and gathers, so that
// nothing is added atomically.
// Preconditions: compute capability 8.0. Any stride, dilation, padding and groups.
// Limit: memory bandwidth, since the columns, r s times the image, are written and read once, until the product is deep
// enough to hide that. conv/implicit.cu forms them in shared memory instead.
#include "conv/columns.cuh"
#include "conv/places.cuh"
#include "conv/sum.cuh"

namespace {

constexpr unsigned PIXELS = 4;

}  // namespace

// blockIdx.x counts pixels, blockIdx.y channels, blockIdx.z the images of the pass.
__global__ void __launch_bounds__(WARP *WARPS, 5)
    conv_im2col_nchw(const float *__restrict__ x, float *__restrict__ columns, unsigned first_image, unsigned ld,
                     const __grid_constant__ Geometry g) {
  const unsigned pixel = my_place<Layout::nchw>(), channel = my_channel<Layout::nchw>(), image = blockIdx.z;
  if (pixel >= ld || channel >= g.c) return;
  const unsigned i = g.by_q.quotient(pixel), j = g.by_q.remainder(pixel);
  const float *from = x + g.x_at<Layout::nchw>(first_image + image, channel, 0, 0);
  float *to = columns + (size_t(image) * g.c + channel) * g.by_rs.divisor * ld + pixel;
  for (unsigned a = 0; a < g.r; ++a) {
    for (unsigned b = 0; b < g.s; ++b, to += ld) {
      const unsigned row = g.input_row(i, a), col = g.input_col(j, b);
      const bool inside = row < g.h && col < g.w;
      *to = inside ? from[size_t(row) * g.w + col] : 0.0f;
    }
  }
}

// blockIdx.x counts the pixels of the pass's images, blockIdx.y elements of a column, blockIdx.z groups.
__global__ void __launch_bounds__(WARP *WARPS, 5)
    conv_im2col_nhwc(const float *__restrict__ x, float *__restrict__ columns, unsigned first_image, unsigned images,
                     unsigned ld, const __grid_constant__ Geometry g) {
  const unsigned element = blockIdx.y * WARP + threadIdx.x, group = blockIdx.z, count = images * g.by_pq.divisor;
  if (element >= ld) return;
  const unsigned tap = g.by_depth.quotient(element), channel = group * g.depth() + g.by_depth.remainder(element);
  const unsigned a = g.by_s.quotient(tap), b = g.by_s.remainder(tap);
#pragma unroll
  for (unsigned turn = 0; turn < PIXELS; ++turn) {
    const unsigned pixel = (blockIdx.x * PIXELS + turn) * WARPS + threadIdx.y;
    if (pixel >= count) return;
    const unsigned image = first_image + g.by_pq.quotient(pixel), within = g.by_pq.remainder(pixel);
    const unsigned row = g.input_row(g.by_q.quotient(within), a), col = g.input_col(g.by_q.remainder(within), b);
    const bool inside = row < g.h && col < g.w;
    const float value = inside ? x[g.x_at<Layout::nhwc>(image, channel, row, col)] : 0.0f;
    columns[(size_t(group) * count + pixel) * ld + element] = value;
  }
}

// blockIdx.x counts the pixels of the pass's images, blockIdx.y channels.
template <Layout layout>
__global__ void __launch_bounds__(WARP *WARPS, 5)
    conv_col2im(const float *__restrict__ columns, float *__restrict__ x, unsigned first_image, unsigned images,
                unsigned ld, const __grid_constant__ Geometry g) {
  const unsigned pixel = my_place<layout>(), channel = my_channel<layout>();
  if (pixel >= images * g.by_hw.divisor || channel >= g.c) return;
  const unsigned image = g.by_hw.quotient(pixel), within = g.by_hw.remainder(pixel);
  const unsigned row = g.by_w.quotient(within), col = g.by_w.remainder(within);
  const unsigned group = g.by_depth.quotient(channel), deep = g.by_depth.remainder(channel);
  float sum = 0.0f;
  for (unsigned a = 0; a < g.r; ++a) {
    const unsigned i = g.output_row(row, a);
    if (i >= g.p) continue;
    for (unsigned b = 0; b < g.s; ++b) {
      const unsigned j = g.output_col(col, b);
      if (j >= g.q) continue;
      const unsigned tap = a * g.s + b, output = i * g.q + j;
      const size_t pixels = (size_t(group) * images + image) * g.by_pq.divisor;  // before the image, in nhwc
      sum += layout == Layout::nchw
                 ? columns[((size_t(image) * g.c + channel) * g.by_rs.divisor + tap) * ld + output]
                 : columns[(pixels + output) * ld + tap * g.depth() + deep];
    }
  }
  x[g.x_at<layout>(first_image + image, channel, row, col)] = sum;
}
