// Winograd's minimal filtering F(M x M, 3 x 3): Y = A^T ((G w G^T) * (B^T x B)) A computes a tile of M x M outputs from
// SIDE x SIDE inputs with SIDE^2 products per channel, where SIDE = M + 2. Lavin, Gray, "Fast Algorithms for
// Convolutional Neural Networks", CVPR 2016; the matrices are those of kernels/conv/_winograd.py.
//
// A product's place in the tile is called its frequency here, as in FFT convolution: products of different frequencies
// never meet before the inverse transform, so that each frequency is a matrix product, channels times channels.
#pragma once
#include "conv/geometry.cuh"

// Transforms along one axis: `apply` computes OUT values from IN.
struct F2 {
  static constexpr int M = 2, SIDE = 4, FREQUENCIES = SIDE * SIDE;
  struct Filter {
    static constexpr int IN = 3, OUT = 4;
    static __device__ __forceinline__ void apply(const float (&x)[IN], float (&y)[OUT]) {
      const float even = 0.5f * (x[0] + x[2]), odd = 0.5f * x[1];
      y[0] = x[0], y[1] = even + odd, y[2] = even - odd, y[3] = x[2];
    }
  };
  struct Input {
    static constexpr int IN = 4, OUT = 4;
    static __device__ __forceinline__ void apply(const float (&x)[IN], float (&y)[OUT]) {
      y[0] = x[0] - x[2], y[1] = x[1] + x[2], y[2] = x[2] - x[1], y[3] = x[1] - x[3];
    }
  };
  struct Output {
    static constexpr int IN = 4, OUT = 2;
    static __device__ __forceinline__ void apply(const float (&x)[IN], float (&y)[OUT]) {
      y[0] = x[0] + x[1] + x[2], y[1] = x[1] - x[2] - x[3];
    }
  };
};

struct F4 {
  static constexpr int M = 4, SIDE = 6, FREQUENCIES = SIDE * SIDE;
  struct Filter {
    static constexpr int IN = 3, OUT = 6;
    static __device__ __forceinline__ void apply(const float (&x)[IN], float (&y)[OUT]) {
      constexpr float SIXTH = 1.0f / 6.0f, TWELFTH = 1.0f / 12.0f;
      const float near = -SIXTH * (x[0] + x[2]), far = 0.5f * TWELFTH * (x[0] + 4.0f * x[2]);
      y[0] = 0.25f * x[0], y[1] = near - SIXTH * x[1], y[2] = near + SIXTH * x[1];
      y[3] = far + TWELFTH * x[1], y[4] = far - TWELFTH * x[1], y[5] = x[2];
    }
  };
  struct Input {
    static constexpr int IN = 6, OUT = 6;
    static __device__ __forceinline__ void apply(const float (&x)[IN], float (&y)[OUT]) {
      const float near_even = x[4] - 4.0f * x[2], near_odd = x[3] - 4.0f * x[1];
      const float far_even = x[4] - x[2], far_odd = 2.0f * (x[3] - x[1]);
      y[0] = 4.0f * x[0] - 5.0f * x[2] + x[4], y[5] = 4.0f * x[1] - 5.0f * x[3] + x[5];
      y[1] = near_even + near_odd, y[2] = near_even - near_odd;
      y[3] = far_even + far_odd, y[4] = far_even - far_odd;
    }
  };
  struct Output {
    static constexpr int IN = 6, OUT = 4;
    static __device__ __forceinline__ void apply(const float (&x)[IN], float (&y)[OUT]) {
      const float near_sum = x[1] + x[2], near_difference = x[1] - x[2];
      const float far_sum = x[3] + x[4], far_difference = x[3] - x[4];
      y[0] = x[0] + near_sum + far_sum, y[1] = near_difference + 2.0f * far_difference;
      y[2] = near_sum + 4.0f * far_sum, y[3] = near_difference + 8.0f * far_difference + x[5];
    }
  };
};

// The transform along both axes: down the columns, then along the rows.
template <class F>
__device__ __forceinline__ void transform(const float (&x)[F::IN][F::IN], float (&y)[F::OUT][F::OUT]) {
  float half[F::OUT][F::IN];
#pragma unroll
  for (int j = 0; j < F::IN; ++j) {
    float column[F::IN], made[F::OUT];
#pragma unroll
    for (int i = 0; i < F::IN; ++i) column[i] = x[i][j];
    F::apply(column, made);
#pragma unroll
    for (int i = 0; i < F::OUT; ++i) half[i][j] = made[i];
  }
#pragma unroll
  for (int i = 0; i < F::OUT; ++i) F::apply(half[i], y[i]);
}

// A batch of images, and the distances between neighbours in it.
template <Layout layout>
struct Images {
  unsigned channels, height, width;  // channels of all groups

  __device__ __forceinline__ size_t channel() const { return layout == Layout::nchw ? size_t(height) * width : 1; }
  __device__ __forceinline__ size_t col() const { return layout == Layout::nchw ? 1 : channels; }
  __device__ __forceinline__ size_t row() const { return width * col(); }
  __device__ __forceinline__ size_t image() const { return size_t(channels) * height * width; }
};

// The tiles of M x M outputs, counted along rows of tiles, then down the image, then through the batch, so that
// neighbours in memory mostly have neighbouring numbers.
template <int M>
struct OutputTiles {
  unsigned down, across, count;

  // image, and the first output of the tile in it.
  struct Place {
    unsigned image, row, col;
  };

  __device__ __forceinline__ OutputTiles(unsigned images, unsigned height, unsigned width)
      : down((height + M - 1) / M), across((width + M - 1) / M), count(images * down * across) {}

  __device__ __forceinline__ Place at(unsigned tile) const {
    const unsigned row = tile / across;
    return {row / down, row % down * M, tile % across * M};
  }
};

// What one tile reads of a channel: SIDE x SIDE pixels, from `top` rows and `left` columns before its outputs. Pixels
// outside the image are zeros, and are not read.
template <class F, Layout layout>
struct Patch {
  const float *first;     // of channel 0; before the image where the patch begins there
  unsigned inside;        // a bit for each row that lies inside, from bit 8 on for each column
  const size_t row, col;  // distances

  template <class Place>
  __device__ __forceinline__ Patch(const float *x, const Images<layout> &images, const Place &at, int top, int left)
      : inside(bits(int(at.row) - top, images.height) | bits(int(at.col) - left, images.width) << 8),
        row(images.row()), col(images.col()) {
    const long long down = int(at.row) - top, across = int(at.col) - left;
    first = x + at.image * images.image() + (down * (long long)row + across * (long long)col);
  }

  // `channel`: its distance from the first. Returns zeros where it is not `there`.
  __device__ __forceinline__ void fetch(float (&values)[F::SIDE][F::SIDE], size_t channel, bool there) const {
    const unsigned read = there ? inside : 0;
    const float *line = first + channel;
#pragma unroll
    for (int i = 0; i < F::SIDE; ++i, line += row)
#pragma unroll
      for (int j = 0; j < F::SIDE; ++j)
        values[i][j] = (read >> i & read >> (8 + j) & 1) ? line[j * col] : 0.0f;
  }

 private:
  static __device__ __forceinline__ unsigned bits(int origin, unsigned size) {
    unsigned found = 0;
#pragma unroll
    for (int i = 0; i < F::SIDE; ++i) found |= unsigned(unsigned(origin + i) < size) << i;
    return found;
  }
};

// Stores those of a tile's outputs that lie inside to one channel, whose first pixel `y` points to, W at once: rows of
// outputs are a multiple of W long, so no pack crosses an edge.
template <int W, int M, Layout layout, class Place>
__device__ __forceinline__ void store_packs(float *y, const Images<layout> &images, const Place &at,
                                            const float (&values)[M][M]) {
  struct __align__(4 * W) Pack {
    float e[W];
  };
  float *line = y + at.image * images.image() + at.row * images.row() + at.col * images.col();
#pragma unroll
  for (int i = 0; i < M; ++i, line += images.row()) {
    if (at.row + i >= images.height) return;
#pragma unroll
    for (int j = 0; j < M; j += W) {
      if (at.col + j >= images.width) break;
      Pack pack;
#pragma unroll
      for (int e = 0; e < W; ++e) pack.e[e] = values[i][j + e];
      *reinterpret_cast<Pack *>(&line[j * images.col()]) = pack;
    }
  }
}
template <int M, Layout layout, class Place>
__device__ __forceinline__ void store_tile(float *y, const Images<layout> &images, const Place &at,
                                           const float (&values)[M][M]) {
  if (layout == Layout::nchw && images.width % M == 0) {
    store_packs<M>(y, images, at, values);
  } else if (layout == Layout::nchw && images.width % 2 == 0) {
    store_packs<2>(y, images, at, values);
  } else {
    store_packs<1>(y, images, at, values);
  }
}
