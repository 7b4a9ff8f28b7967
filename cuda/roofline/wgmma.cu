// D = X + A B by wgmma on slabs of A and B that stay in shared memory: the ceiling of Hopper's tensor cores.
//
// Tile: a warpgroup owns 64 x 256 accumulators, a block those of its two warpgroups, which keep the tensor cores busy
// in turn. Both read one slab of A (64 rows) and one of B (256 columns, stored along k), 128 bytes deep and swizzled by
// 128 bytes as in a GEMM, so that their reads of shared memory are those of a GEMM too. The loop loads nothing.
// Preconditions: sm_90a; k is at most 2^19, so that every sum is exact (coarse.cuh).
// Limit: the tensor cores' rate and, under load, the device's power. More than the nominal flop is executed where n is
// not a multiple of 32768, or k not one of a slab's depth (64; TF32: 32): the last slab is padded with zeros.
#include "gemm/wgmma.cuh"
#include "roofline/coarse.cuh"

namespace {

constexpr unsigned WARPGROUPS = 2, THREADS = WARPGROUP * WARPGROUPS, BM = WARPGROUP_ROWS, BN = 256;
constexpr unsigned TILES = BN / COLS;  // of 16 x 8 accumulators, a warp

template <class T>
using SlabA = OperandTile<T, BM, true>;
template <class T>
using SlabB = OperandTile<T, BN, true>;
template <class T>
constexpr unsigned DEPTH = SlabA<T>::DEPTH;

// Element (row, s) of a slab: the numbers of a row's 16-byte pieces are XORed with the row's number modulo eight.
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

// Makes what this thread wrote visible to wgmma, and waits until the whole block has done so.
__device__ __forceinline__ void publish() {
  ptx::fence_proxy_async();
  __syncthreads();
}

// Starts one slab's products.
template <class T>
__device__ __forceinline__ void start(float (&sums)[4 * TILES], unsigned from_a, unsigned from_b) {
  start_product<T, SlabA<T>, SlabB<T>>(sums, from_a, from_b, false);
}

}  // namespace

template <class T>
__global__ void __launch_bounds__(THREADS, 1)
    wgmma_slabs(const float *__restrict__ x, const T *__restrict__ a, const T *__restrict__ b, float *__restrict__ d,
                unsigned n, unsigned k) {
  alignas(1024) __shared__ unsigned char slab_a[BM * ROW_BYTES], slab_b[BN * ROW_BYTES];
  const unsigned first = (blockIdx.x * THREADS + threadIdx.x) / 32 * TILES;
  float sums[4 * TILES];
  unsigned from = first, to = first;
#pragma unroll
  for (float *tile = sums; tile != sums + 4 * TILES; tile += 4) load_tile(tile, x, from++, n);
  fill_a(slab_a, a, DEPTH<T>);
  fill_b(slab_b, b);
  publish();
  const unsigned from_a = ptx::smem_address(slab_a), from_b = ptx::smem_address(slab_b);
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
