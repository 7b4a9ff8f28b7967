// What becomes of the sums of a product before they are stored: x = alpha sum + beta C, and an epilogue of x.
//
// An epilogue stores W neighbours of a row at once. `beside` is its own operand, at the same row and column: of an
// update V, which lies as C does; of the others a row that all rows share, or nothing. C is not read where beta is 0.
#pragma once
#include "gemm/panel.cuh"

// Numbers of an epilogue beside the matrices: of x, and of an update.
struct Numbers {
  float alpha, beta, rate, momentum, decay;
};

// x of W neighbours.
template <int W>
__device__ __forceinline__ void scaled_pack(float *x, const float *c, const float *sums, const Numbers &by) {
  if (by.beta != 0.0f) load_pack<W>(x, c);
#pragma unroll
  for (int i = 0; i < W; ++i) x[i] = by.beta == 0.0f ? by.alpha * sums[i] : by.alpha * sums[i] + by.beta * x[i];
}

// The sums alone, for a launch that has the epilogue.
struct Sums {
  static constexpr bool IN_ROWS = false;
  template <int W>
  static __device__ __forceinline__ void store(float *c, float *, const float *sums, const Numbers &) {
    store_pack<W>(c, sums);
  }
};

// C = max(0, x + bias), which keeps NaN.
struct BiasRelu {
  static constexpr bool IN_ROWS = false;
  template <int W>
  static __device__ __forceinline__ void store(float *c, float *bias, const float *sums, const Numbers &by) {
    float x[W], added[W];
    scaled_pack<W>(x, c, sums, by);
    load_pack<W>(added, bias);
#pragma unroll
    for (int i = 0; i < W; ++i) x[i] = x[i] + added[i] < 0.0f ? 0.0f : x[i] + added[i];
    store_pack<W>(c, x);
  }
};

// C = 1 / (1 + exp(-x)). Where exp is infinite, C is 0.
struct Sigmoid {
  static constexpr bool IN_ROWS = false;
  template <int W>
  static __device__ __forceinline__ void store(float *c, float *, const float *sums, const Numbers &by) {
    float x[W];
    scaled_pack<W>(x, c, sums, by);
#pragma unroll
    for (int i = 0; i < W; ++i) x[i] = 1.0f / (1.0f + expf(-x[i]));
    store_pack<W>(c, x);
  }
};

// V = momentum V - rate (alpha sum + decay C), then C = C + V.
struct Update {
  static constexpr bool IN_ROWS = true;
  template <int W>
  static __device__ __forceinline__ void store(float *c, float *velocity, const float *sums, const Numbers &by) {
    float weights[W], v[W];
    load_pack<W>(weights, c);
    load_pack<W>(v, velocity);
#pragma unroll
    for (int i = 0; i < W; ++i) {
      v[i] = by.momentum * v[i] - by.rate * (by.alpha * sums[i] + by.decay * weights[i]);
      weights[i] += v[i];
    }
    store_pack<W>(velocity, v);
    store_pack<W>(c, weights);
  }
};
