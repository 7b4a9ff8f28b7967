// D = X + A B by mma.sync on fragments that stay in registers: the ceiling of tensor cores driven by mma.sync.
//
// Tile: a warp owns TILES tiles of 16 x 8 accumulators, a block those of its eight warps. The tiles of a warp are
// independent of each other and share the fragments of A and B. One step is 32 bytes deep: 16 elements of 16 bits, or 8
// of TF32; A and B repeat after 16.
// Preconditions: compute capability 8.0; k is at most 2^19, so that every sum is exact (coarse.cuh).
// Limit: the tensor cores' rate for mma.sync, which on Hopper lies below that of wgmma (wgmma.cu). More than the
// nominal flop is executed where n is not a multiple of 8192, or k not one of 16: the last step is padded with zeros.
#include <cuda_bf16.h>
#include <cuda_fp16.h>

#include "ptx.cuh"
#include "roofline/coarse.cuh"

namespace {

constexpr unsigned THREADS = 256, TILES = 8;

template <class T>
constexpr unsigned PACKED = 4 / sizeof(T);  // elements of a register

__device__ __forceinline__ unsigned bits_of(float x) { return __float_as_uint(x); }
template <class T>
__device__ __forceinline__ unsigned bits_of(T x) {
  return *reinterpret_cast<const unsigned short *>(&x);
}

__device__ __forceinline__ void mma(float (&d)[4], const unsigned (&a)[4], const unsigned (&b)[2], __half) {
  ptx::mma_m16n8k16_f16_f32(d, a, b);
}
__device__ __forceinline__ void mma(float (&d)[4], const unsigned (&a)[4], const unsigned (&b)[2], __nv_bfloat16) {
  ptx::mma_m16n8k16_bf16_f32(d, a, b);
}
__device__ __forceinline__ void mma(float (&d)[4], const unsigned (&a)[4], const unsigned (&b)[2], float) {
  ptx::mma_m16n8k8_tf32_f32(d, a, b);
}

// Neighbours along the depth from step s on, packed into one register; those of A from step `limit` on are 0.
template <class T>
__device__ __forceinline__ unsigned word_a(const T *__restrict__ a, unsigned row, unsigned s, unsigned limit) {
  unsigned word = 0;
#pragma unroll
  for (unsigned e = 0; e < PACKED<T>; ++e) word |= bits_of(element_a(a, row, s + e, limit)) << 16 * e;
  return word;
}
template <class T>
__device__ __forceinline__ unsigned word_b(const T *__restrict__ b, unsigned s, unsigned col) {
  unsigned word = 0;
#pragma unroll
  for (unsigned e = 0; e < PACKED<T>; ++e) word |= bits_of(element_b(b, s + e, col)) << 16 * e;
  return word;
}

// The fragments of A and B for a period of 16, in the layout of mma.sync.
template <class T>
struct Fragments {
  struct Step {
    unsigned a[4], b[2];
  } steps[PERIOD / (8 * PACKED<T>)];

  __device__ __forceinline__ Fragments(const T *__restrict__ a, const T *__restrict__ b, unsigned limit) {
    const unsigned group = threadIdx.x % 32 / 4;
    unsigned s = threadIdx.x % 4 * PACKED<T>;
#pragma unroll
    for (Step &step : steps) {
      const unsigned half = s + 4 * PACKED<T>;
      step = {{word_a(a, group, s, limit), word_a(a, group + 8, s, limit), word_a(a, group, half, limit),
               word_a(a, group + 8, half, limit)},
              {word_b(b, s, group), word_b(b, half, group)}};
      s += 8 * PACKED<T>;
    }
  }

  // Multiplies one period on every tile.
  __device__ __forceinline__ void multiply(float (&sums)[TILES][4]) const {
#pragma unroll
    for (const Step &step : steps)
#pragma unroll
      for (auto &tile : sums) mma(tile, step.a, step.b, T());
  }
};

}  // namespace

template <class T>
__global__ void __launch_bounds__(THREADS)
    mma_sync(const float *__restrict__ x, const T *__restrict__ a, const T *__restrict__ b, float *__restrict__ d,
             unsigned n, unsigned k) {
  const unsigned first = (blockIdx.x * THREADS + threadIdx.x) / 32 * TILES;
  float sums[TILES][4];
  unsigned from = first, to = first;
#pragma unroll
  for (auto &tile : sums) load_tile(tile, x, from++, n);
  const Fragments<T> whole(a, b, PERIOD);
#pragma unroll 8
  for (unsigned s = 0; s < k / PERIOD; ++s) whole.multiply(sums);
  if (k % PERIOD) Fragments<T>(a, b, k % PERIOD).multiply(sums);
#pragma unroll
  for (const auto &tile : sums) store_tile(d, tile, to++, n);
}
