// C = alpha op(A) op(B) + beta C for FP32 A and B on tensor cores, about as exact as in FP32: x = big + small, both in
// TF32, and a product is small big + big small + big big. What is dropped, small small, is below 2^-22 of it.
//
// Tile, pipeline and preconditions: gemm/mma.cuh; the layouts as in gemm/mma_tf32.cu.
// Sums: tensor cores truncate what they add to an accumulator. Such errors all point towards zero and grow as k does,
// where those of rounding grow as its root: over some thousand additions they would be far above FP32's own. Each
// product of depth 8 therefore starts from zero, the small terms first while nothing large is there to cut them, and
// joins the sums by an addition in FP32, which rounds to nearest. That also makes the chain of additions 8 times
// shorter than a dot product's in FP32.
// Limit: three products of tensor cores for one; additions and splitting run beside them. Infinities, and the last 2^115
// below them, which TF32 rounds up to infinity, become NaN as they are split.
#include "gemm/mma.cuh"

struct ThreeTf32 {
  using Storage = float;
  struct Operand {
    Fragment16 big, small;
  };

  // big is rounded by integers: what becomes of a NaN there does not matter, since the difference, otherwise exact, is
  // one too.
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
