// What tensor cores compute from fragments: the arithmetics of gemm/mma.cu, gemm/mma_int8.cu, gemm/mma_tf32.cu,
// gemm/mma_3xtf32.cu and gemm/mma_f64.cu, which explain their roundings, and of the implicit products in
// conv/implicit_mma.cu. Each has the types in memory and of sums, converts a fragment to the operand of a product, and
// adds the product of A's 16 rows and half of B's 16 columns.
#pragma once
#include <cuda_bf16.h>
#include <cuda_fp16.h>

#include "gemm/mma_panel.cuh"

// 16-bit operands, unchanged, with sums in FP32.
template <class T>
struct Sixteen {
  using Storage = T;
  using Sum = float;
  using Operand = Fragment16;

  static __device__ __forceinline__ Operand prepare(const Fragment16 &f) { return f; }

  static __device__ __forceinline__ void multiply(float (&sums)[4], const Operand &a, const Operand &b, int half);
};

template <>
__device__ __forceinline__ void Sixteen<__half>::multiply(float (&sums)[4], const Operand &a, const Operand &b,
                                                          int half) {
  ptx::mma_m16n8k16_f16_f32(sums, a.r, {b.r[2 * half], b.r[2 * half + 1]});
}

template <>
__device__ __forceinline__ void Sixteen<__nv_bfloat16>::multiply(float (&sums)[4], const Operand &a, const Operand &b,
                                                                 int half) {
  ptx::mma_m16n8k16_bf16_f32(sums, a.r, {b.r[2 * half], b.r[2 * half + 1]});
}

// 8-bit integers with sums in 32 bits.
struct Int8 {
  using Storage = signed char;
  using Sum = int;
  using Operand = Fragment16;

  static __device__ __forceinline__ Operand prepare(const Fragment16 &f) { return f; }

  static __device__ __forceinline__ void multiply(int (&sums)[4], const Operand &a, const Operand &b, int half) {
    ptx::mma_m16n8k32_s8_s32(sums, a.r, {b.r[2 * half], b.r[2 * half + 1]});
  }
};

// FP32 rounded to the nearest TF32.
struct Tf32 {
  using Storage = float;
  using Sum = float;
  using Operand = Fragment16;

  static __device__ __forceinline__ Operand prepare(Fragment16 f) {
#pragma unroll
    for (unsigned &r : f.r) r = ptx::to_tf32(__uint_as_float(r));
    return f;
  }

  static __device__ __forceinline__ void multiply(float (&sums)[4], const Operand &a, const Operand &b, int half) {
    ptx::mma_m16n8k8_tf32_f32(sums, a.r, {b.r[2 * half], b.r[2 * half + 1]});
  }
};

// FP32 as a sum of two TF32: three products for one, which are added to the sums in FP32.
struct ThreeTf32 {
  using Storage = float;
  using Sum = float;
  struct Operand {
    Fragment16 big, small;
  };

  // big is rounded by integer operations. What they make of a NaN does not matter, since the difference, otherwise
  // exact, is a NaN too.
  static __device__ __forceinline__ Operand prepare(const Fragment16 &f) {
    Operand split;
#pragma unroll
    for (int e = 0; e < 4; ++e) {
      split.big.r[e] = (f.r[e] + 0x1000) & 0xffffe000;
      split.small.r[e] = ptx::to_tf32(__uint_as_float(f.r[e]) - __uint_as_float(split.big.r[e]));
    }
    return split;
  }

  static __device__ __forceinline__ void multiply(float (&sums)[4], const Operand &a, const Operand &b, int half) {
    const unsigned big_b[2] = {b.big.r[2 * half], b.big.r[2 * half + 1]};
    const unsigned small_b[2] = {b.small.r[2 * half], b.small.r[2 * half + 1]};
    float product[4] = {};
    ptx::mma_m16n8k8_tf32_f32(product, a.small.r, big_b);
    ptx::mma_m16n8k8_tf32_f32(product, a.big.r, small_b);
    ptx::mma_m16n8k8_tf32_f32(product, a.big.r, big_b);
#pragma unroll
    for (int e = 0; e < 4; ++e) sums[e] += product[e];
  }
};

// FP64, by products of ROWS rows of A: 16, which take compute capability 9.0, or twice 8.
template <int ROWS>
struct Double {
  using Storage = double;
  using Sum = double;
  using Operand = Fragment64;

  static __device__ __forceinline__ Operand prepare(const Fragment64 &f) { return f; }

  static __device__ __forceinline__ void multiply(double (&sums)[4], const Operand &a, const Operand &b, int half) {
    if constexpr (ROWS == 16) {
      ptx::mma_m16n8k4_f64(sums, a.r, b.r[half]);
    } else {
      ptx::mma_m8n8k4_f64(sums[0], sums[1], a.r[0], b.r[half]);
      ptx::mma_m8n8k4_f64(sums[2], sums[3], a.r[1], b.r[half]);
    }
  }
};
