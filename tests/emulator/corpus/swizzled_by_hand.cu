// C = A B^T by one warpgroup, whose threads store both operands swizzled by 128 bytes. B begins at 512 bytes past a
// multiple of 1024, and its descriptor has the base offset for that.
// bug 1 (wgmma): the descriptor of B has no base offset
// bug 2 (wgmma): the descriptor of A has one
// bug 3 (wrong): the pattern of B is that of its addresses, as the TMA would store it
// bug 4 (async-proxy): the fence between the proxies comes before the stores
// bug 5 (wgmma): k advances by 64 bytes, past the end of a row
// bug 6 (wrong): the descriptors name the swizzle of 64 bytes
// bug 7 (out-of-bounds, wrong, uninitialised-read): the stride is given in bytes
// bug 8 (out-of-bounds, wrong, wgmma, uninitialised-read): the address is given in bytes
// bug 9 (wgmma): the descriptors name no swizzle, and a base offset
#include "common.cuh"
#include "ptx_hopper.cuh"

constexpr unsigned ROWS = 64, SKEW = 512;

__device__ __forceinline__ unsigned long long descriptor(unsigned address, unsigned base) {
  constexpr unsigned long long stride = BUG == 7 ? 1024 : 1024 >> 4, swizzle = BUG == 6 ? 2 : BUG == 9 ? 0 : 1;
  return (address & 0x3ffff) >> (BUG == 8 ? 0 : 4) | stride << 32 | static_cast<unsigned long long>(base) << 49 |
         swizzle << 62;
}

// Rows of 64 numbers, 128 bytes each; the 16-byte pieces of row r of the pattern are at their number ^ r.
__device__ __forceinline__ void put(unsigned short *to, const unsigned short *from, unsigned first_row) {
  for (unsigned i = threadIdx.x; i < ROWS * 64; i += blockDim.x) {
    const unsigned row = i / 64, piece = i % 64 / 8 ^ (first_row + row) % 8;
    to[row * 64 + piece * 8 + i % 8] = from[i];
  }
}

extern "C" __global__ void product(const unsigned short *a, const unsigned short *b, float *c) {
  __shared__ __align__(1024) unsigned short smem_a[ROWS * 64], room[ROWS * 64 + SKEW / 2];
  unsigned short *smem_b = room + SKEW / 2;
  if (BUG == 4) ptx::fence_proxy_async();
  put(smem_a, a, 0);
  put(smem_b, b, BUG == 3 ? SKEW / 128 : 0);
  if (BUG != 4) ptx::fence_proxy_async();
  __syncthreads();
  float d[32];
  ptx::wgmma_fence();
  for (unsigned i = 0; i < 4; ++i) {
    const unsigned at = i * (BUG == 5 ? 64 : 32);
    ptx::wgmma_f16<0, 0>(d, descriptor(ptx::smem_address(smem_a) + at, BUG == 2 ? 4 : 0),
                         descriptor(ptx::smem_address(smem_b) + at, BUG == 1 ? 0 : SKEW / 128), i > 0);
  }
  ptx::wgmma_commit();
  ptx::wgmma_wait<0>();
  const unsigned row = threadIdx.x / 32 * 16 + threadIdx.x % 32 / 4, col = threadIdx.x % 4 * 2;
  for (unsigned i = 0; i < 32; ++i) c[(row + i % 4 / 2 * 8) * 64 + col + i / 4 * 8 + i % 2] = d[i];
}
