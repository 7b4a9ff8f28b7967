// D = X + A B by wgmma on slabs of A and B that stay in shared memory: the ceiling of Hopper's tensor cores.
//
// Tile: a warpgroup owns 64 x 256 accumulators, a block those of its two warpgroups, which keep the tensor cores busy
// in turn. Both read one slab of A (64 rows) and one of B (256 columns, stored along k), 128 bytes deep and swizzled by
// 128 bytes as a GEMM has them, so that their reads of shared memory are a GEMM's too. The loop loads nothing.
// Preconditions: sm_90a; k is at most 2^19, so that every sum is exact (coarse.cuh).
// Limit: the tensor cores' rate and, under load, the device's power. More than the nominal flop is executed where n is
// no multiple of 32768, or k none of a slab's depth (64; of TF32 32): the last slab is padded by zeros.
#include <cuda_bf16.h>
#include <cuda_fp16.h>

#include "ptx_hopper.cuh"
#include "roofline/coarse.cuh"

namespace {

constexpr unsigned WARPGROUPS = 2, THREADS = 128 * WARPGROUPS, BM = 64, BN = 256;
constexpr unsigned TILES = BN / COLS;                // of 16 x 8 accumulators, a warp
constexpr unsigned ROW_BYTES = 128, STEP_BYTES = 32;  // of a slab; of one instruction's depth

template <class T>
constexpr unsigned DEPTH = ROW_BYTES / sizeof(T);  // of a slab

// Element (row, s) of a slab: the 16-byte pieces of a row are XORed with its number among eight.
template <class T>
__device__ __forceinline__ T &element_of(unsigned char *slab, unsigned row, unsigned s) {
  const unsigned at = row * ROW_BYTES + s * sizeof(T);
  return *reinterpret_cast<T *>(slab + (at ^ at / ROW_BYTES % 8 * 16));
}

template <class T>
__device__ __forceinline__ void fill_a(unsigned char *slab, const T *__restrict__ a, unsigned limit) {
  for (unsigned i = threadIdx.x; i < BM * DEPTH<T>; i += THREADS)
    element_of<T>(slab, i / DEPTH<T>, i % DEPTH<T>) = element_a(a, i / DEPTH<T>, i % DEPTH<T>, limit);
}
template <class T>
__device__ __forceinline__ void fill_b(unsigned char *slab, const T *__restrict__ b) {
  for (unsigned i = threadIdx.x; i < BN * DEPTH<T>; i += THREADS)
    element_of<T>(slab, i / DEPTH<T>, i % DEPTH<T>) = element_b(b, i % DEPTH<T>, i / DEPTH<T>);
}

// What this thread wrote becomes visible to wgmma, and all of the block has written.
__device__ __forceinline__ void publish() {
  ptx::fence_proxy_async();
  __syncthreads();
}

using Descriptor = unsigned long long;
using Sums = float[4 * TILES];

// How wgmma finds a slab, as the PTX ISA lays it out under "Matrix descriptor": its address, a leading dimension that
// this layout has not, eight rows of 128 bytes from one group of rows to the next, the swizzle.
__device__ __forceinline__ Descriptor descriptor(const unsigned char *slab) {
  constexpr Descriptor NO_LEADING = 1, GROUPS = 8 * ROW_BYTES / 16, SWIZZLE_128 = 1;
  return ptx::smem_address(slab) / 16 | NO_LEADING << 16 | GROUPS << 32 | SWIZZLE_128 << 62;
}

__device__ __forceinline__ void wgmma(Sums &d, Descriptor a, Descriptor b, __half) { ptx::wgmma_f16<0, 0>(d, a, b, 1); }
__device__ __forceinline__ void wgmma(Sums &d, Descriptor a, Descriptor b, float) { ptx::wgmma_tf32(d, a, b, 1); }
__device__ __forceinline__ void wgmma(Sums &d, Descriptor a, Descriptor b, __nv_bfloat16) {
  ptx::wgmma_bf16<0, 0>(d, a, b, 1);
}

// Starts one slab's products.
template <class T>
__device__ __forceinline__ void start(Sums &sums, Descriptor a, Descriptor b) {
  ptx::wgmma_fence();
#pragma unroll
  for (unsigned at = 0; at != ROW_BYTES; at += STEP_BYTES) wgmma(sums, a + at / 16, b + at / 16, T());
  ptx::wgmma_commit();
}

}  // namespace

template <class T>
__global__ void __launch_bounds__(THREADS, 1)
    wgmma_slabs(const float *__restrict__ x, const T *__restrict__ a, const T *__restrict__ b, float *__restrict__ d,
                unsigned n, unsigned k) {
  alignas(1024) __shared__ unsigned char slab_a[BM * ROW_BYTES], slab_b[BN * ROW_BYTES];
  const unsigned first = (blockIdx.x * THREADS + threadIdx.x) / 32 * TILES;
  Sums sums;
  unsigned from = first, to = first;
#pragma unroll
  for (float *tile = sums; tile != sums + 4 * TILES; tile += 4) load_tile(tile, x, from++, n);
  fill_a(slab_a, a, DEPTH<T>);
  fill_b(slab_b, b);
  publish();
  const Descriptor from_a = descriptor(slab_a), from_b = descriptor(slab_b);
  for (unsigned s = 0; s < k / DEPTH<T>; ++s) {
    start<T>(sums, from_a, from_b);
    ptx::wgmma_wait<1>();
  }
  ptx::wgmma_wait<0>();
  if (k % DEPTH<T>) {
    __syncthreads();  // both warpgroups have read A
    fill_a(slab_a, a, k % DEPTH<T>);
    publish();
    start<T>(sums, from_a, from_b);
    ptx::wgmma_wait<0>();
  }
#pragma unroll
  for (const float *tile = sums; tile != sums + 4 * TILES; tile += 4) store_tile(d, tile, to++, n);
}
