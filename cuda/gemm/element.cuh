// Storage types of tensor-core kernels: pairs of neighbours, and the wgmma that multiplies them.
#pragma once
#include <cuda_bf16.h>
#include <cuda_fp16.h>

#include "common.cuh"
#include "ptx_hopper.cuh"

// The type of the sums of wgmma, of one and of two neighbours. PROMOTED: sums of a few products are added to others in
// FP32 (gemm/wgmma_promoted.cuh).
struct SummedInFloat {
  using Sum = float;
  using SumPair = float2;
  static constexpr bool PROMOTED = false;
};
struct SummedInInt {
  using Sum = int;
  using SumPair = int2;
  static constexpr bool PROMOTED = false;
};

// Pair: two neighbours in memory; pair() rounds to it, floats() widens it. wgmma: D += A B, or A B where `accumulate`
// is false; FP32 is multiplied as TF32.
template <class T>
struct Element;

template <>
struct Element<__half> : SummedInFloat {
  using Pair = __half2;
  static __device__ __forceinline__ Pair pair(float2 x) { return __floats2half2_rn(x.x, x.y); }
  static __device__ __forceinline__ float2 floats(Pair x) { return __half22float2(x); }
  template <int mn_major_a, int mn_major_b, int SUMS>
  static __device__ __forceinline__ void wgmma(float (&d)[SUMS], unsigned long long a, unsigned long long b,
                                               bool accumulate) {
    ptx::wgmma_f16<mn_major_a, mn_major_b>(d, a, b, accumulate);
  }
};

template <>
struct Element<__nv_bfloat16> : SummedInFloat {
  using Pair = __nv_bfloat162;
  static __device__ __forceinline__ Pair pair(float2 x) { return __floats2bfloat162_rn(x.x, x.y); }
  static __device__ __forceinline__ float2 floats(Pair x) { return __bfloat1622float2(x); }
  template <int mn_major_a, int mn_major_b, int SUMS>
  static __device__ __forceinline__ void wgmma(float (&d)[SUMS], unsigned long long a, unsigned long long b,
                                               bool accumulate) {
    ptx::wgmma_bf16<mn_major_a, mn_major_b>(d, a, b, accumulate);
  }
};

template <>
struct Element<float> : SummedInFloat {
  using Pair = float2;
  static __device__ __forceinline__ Pair pair(float2 x) { return x; }
  static __device__ __forceinline__ float2 floats(Pair x) { return x; }
  template <int mn_major_a, int mn_major_b, int SUMS>
  static __device__ __forceinline__ void wgmma(float (&d)[SUMS], unsigned long long a, unsigned long long b,
                                               bool accumulate) {
    ptx::wgmma_tf32(d, a, b, accumulate);
  }
};

// 8-bit integers are only operands, and their sums, 32-bit integers, are only stored to C.
template <>
struct Element<signed char> : SummedInInt {
  template <int mn_major_a, int mn_major_b, int SUMS>
  static __device__ __forceinline__ void wgmma(int (&d)[SUMS], unsigned long long a, unsigned long long b,
                                               bool accumulate) {
    ptx::wgmma_s8(d, a, b, accumulate);
  }
};

template <>
struct Element<int> : SummedInInt {
  using Pair = int2;
  static __device__ __forceinline__ Pair pair(int2 x) { return x; }
};

// How many of a pair's elements lie inside C.
__device__ __forceinline__ unsigned pair_inside(unsigned row, unsigned col, unsigned m, unsigned n) {
  return row < m && col < n ? min(n - col, 2u) : 0;
}

// alpha times a pair of the product plus beta times the pair's `inside` elements of C. C is not read where beta is 0.
// Pairs of C are aligned, since its rows begin at multiples of a pair.
template <class T>
__device__ __forceinline__ float2 scaled_pair(const T *c, float2 product, unsigned inside, float alpha, float beta) {
  float2 held = make_float2(0.0f, 0.0f);
  if (beta != 0.0f && inside == 2) held = Element<T>::floats(*reinterpret_cast<const typename Element<T>::Pair *>(c));
  if (beta != 0.0f && inside == 1) held.x = Element<T>::floats({*c, *c}).x;
  return make_float2(alpha * product.x + beta * held.x, alpha * product.y + beta * held.y);
}

// Sums of integers: alpha is 1 and beta 0.
__device__ __forceinline__ int2 scaled_pair(const int *, int2 product, unsigned, float, float) { return product; }

// Scales a pair as scaled_pair does, and stores its `inside` elements to C.
template <class T>
__device__ __forceinline__ void store_scaled_pair(T *c, float2 product, unsigned inside, float alpha, float beta) {
  const auto pair = Element<T>::pair(scaled_pair(c, product, inside, alpha, beta));
  if (inside == 2) *reinterpret_cast<typename Element<T>::Pair *>(c) = pair;
  if (inside == 1) *c = pair.x;
}
