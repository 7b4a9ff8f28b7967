// The arithmetic of tensor cores for wmma and mma.sync: products of rounded operands, summed in double.
#pragma once
#include "../cuda_bf16.h"
#include "../cuda_fp16.h"
#include "sync.h"

namespace emu {

// Returns a float as a tensor core reads a TF32 operand: the low 13 bits of the mantissa are ignored.
EMU_INLINE float tf32_truncate(float x) {
  return __builtin_bit_cast(float, __builtin_bit_cast(uint32_t, x) & 0xffffe000u);
}
// cvt.rna.tf32.f32: rounds to nearest, ties away from zero.
EMU_INLINE float tf32_round(float x) {
  const uint32_t bits = __builtin_bit_cast(uint32_t, x);
  if ((bits & 0x7fffffff) >= 0x7f800000) return x;
  return __builtin_bit_cast(float, (bits + 0x1000) & 0xffffe000u);
}

// D = A B + C for one M x N x K product, with all lanes' elements gathered.
template <int M, int N, int K, class T = float> struct Product {
  T a[M][K], b[K][N];
  double c[M][N];

  // Not instrumented, since its accesses are the emulator's. Without noipa, g++ 12 drops writes of an 8 x 32 product.
  __attribute__((no_sanitize("thread"), noipa)) void multiply() {
    for (int i = 0; i < M; ++i)
      for (int k = 0; k < K; ++k)
        for (int j = 0; j < N; ++j) c[i][j] += double(a[i][k]) * double(b[k][j]);
  }
};

}  // namespace emu
