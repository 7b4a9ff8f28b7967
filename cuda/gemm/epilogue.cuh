// What becomes of the sums of a product before they are stored: x = alpha sum + beta C, and an epilogue of x.
//
// For W neighbours of a row, an epilogue's `load` reads all that it needs besides the sums, and its `store` writes the
// results. `beside` is its own operand, at the same row and column: V, stored as C is (Update), a row that all rows
// share (BiasRelu), or nothing. Only Update reads C where beta is 0.
#pragma once
#include "gemm/panel.cuh"

// The scalars of an epilogue: those of x, and those of an update.
struct Numbers {
  float alpha, beta, rate, momentum, decay;
};

// x of one element; held: the value that C had there.
__device__ __forceinline__ float scaled(float sum, float held, const Numbers &by) {
  return by.beta == 0.0f ? by.alpha * sum : by.alpha * sum + by.beta * held;
}

// The sums alone, for a launch that has the epilogue.
struct Sums {
  static constexpr bool IN_ROWS = false;
  template <int W>
  static __device__ __forceinline__ void load(float *, float *, const float *, const float *, const Numbers &) {}
  template <int W>
  static __device__ __forceinline__ void store(float *c, float *, const float *, const float *, const float *sums,
                                               const Numbers &) {
    store_pack<W>(c, sums);
  }
};

// C = max(0, x + bias), which keeps NaN.
struct BiasRelu {
  static constexpr bool IN_ROWS = false;
  template <int W>
  static __device__ __forceinline__ void load(float *held, float *own, const float *c, const float *bias,
                                              const Numbers &by) {
    if (by.beta != 0.0f) load_pack<W>(held, c);
    load_pack<W>(own, bias);
  }
  template <int W>
  static __device__ __forceinline__ void store(float *c, float *, const float *held, const float *own,
                                               const float *sums, const Numbers &by) {
    float x[W];
#pragma unroll
    for (int i = 0; i < W; ++i) {
      x[i] = scaled(sums[i], held[i], by) + own[i];
      if (x[i] < 0.0f) x[i] = 0.0f;
    }
    store_pack<W>(c, x);
  }
};

// C = 1 / (1 + exp(-x)). Where exp is infinite, C is 0.
struct Sigmoid {
  static constexpr bool IN_ROWS = false;
  template <int W>
  static __device__ __forceinline__ void load(float *held, float *, const float *c, const float *, const Numbers &by) {
    if (by.beta != 0.0f) load_pack<W>(held, c);
  }
  template <int W>
  static __device__ __forceinline__ void store(float *c, float *, const float *held, const float *,
                                               const float *sums, const Numbers &by) {
    float x[W];
#pragma unroll
    for (int i = 0; i < W; ++i) x[i] = 1.0f / (1.0f + expf(-scaled(sums[i], held[i], by)));
    store_pack<W>(c, x);
  }
};

// V = momentum V - rate (alpha sum + decay C), then C = C + V.
struct Update {
  static constexpr bool IN_ROWS = true;
  template <int W>
  static __device__ __forceinline__ void load(float *held, float *own, const float *c, const float *velocity,
                                              const Numbers &) {
    load_pack<W>(held, c);
    load_pack<W>(own, velocity);
  }
  template <int W>
  static __device__ __forceinline__ void store(float *c, float *velocity, const float *held, const float *own,
                                               const float *sums, const Numbers &by) {
    float weights[W], v[W];
#pragma unroll
    for (int i = 0; i < W; ++i) {
      v[i] = by.momentum * own[i] - by.rate * (by.alpha * sums[i] + by.decay * held[i]);
      weights[i] = held[i] + v[i];
    }
    store_pack<W>(velocity, v);
    store_pack<W>(c, weights);
  }
};
