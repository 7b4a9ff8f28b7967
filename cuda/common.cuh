// What every kernel here shares. Compiled by nvcc, by NVRTC, and as plain C++ by the emulator (CUDA_EMU).
//
// Sizes and coordinates are unsigned (a C int from the host is never negative), so that a tile's origin plus its
// width cannot overflow; offsets into arrays are size_t, so that a matrix may hold more than 2^31 elements.
#pragma once

#ifdef CUDA_EMU
#define DYN_SHARED(T, name) T *name = static_cast<T *>(emu::dyn_smem())
#else
#define DYN_SHARED(T, name)                                   \
  extern __shared__ __align__(16) unsigned char dyn_shared[]; \
  T *name = reinterpret_cast<T *>(dyn_shared)
#endif

// How an operand is stored: N as the product reads it, T transposed.
enum class Op { N, T };

// Where op(X)[row][col] lies in row-major X with leading dimension ld.
template <Op op>
__device__ __forceinline__ size_t offset(unsigned row, unsigned col, unsigned ld) {
  return op == Op::N ? size_t(row) * ld + col : size_t(col) * ld + row;
}

// Stores the product's element, scaled, to C. C is not read where beta is 0, since it may hold NaN.
__device__ __forceinline__ void store_scaled(float *c, float product, float alpha, float beta) {
  *c = beta == 0.0f ? alpha * product : alpha * product + beta * *c;
}

// Storage types by their names in problem ids, for kernels that move bits and compute nothing.
namespace bits {
using f64 = unsigned long long;
using f32 = unsigned;
using f16 = unsigned short;
using bf16 = unsigned short;
}  // namespace bits
