// C = alpha op(A) op(B) + beta C for 16-bit A and B on tensor cores, by mma.sync.m16n8k16 with sums in FP32: the
// operands come from shared memory through ldmatrix, turned on the way where the layout wants it.
//
// Tile, pipeline and preconditions: gemm/mma.cuh. 16 bytes are copied at once where the leading dimensions of A and B
// are multiples of 8; else 4 bytes or, where one is odd, single elements through registers, which is slow.
// Limit: the issue of mma.sync. On Hopper that reaches about two thirds of the tensor cores' rate, and wgmma the rest.
#include <cuda_bf16.h>
#include <cuda_fp16.h>

#include "gemm/mma.cuh"

template <class T>
struct Sixteen {
  using Storage = T;
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
