// C = A B^T twice by one warpgroup: over 64 bytes of each row, then over 32, in the swizzle of that width. A comes by
// TMA. The threads store B, 128 bytes past a multiple of 1024, and its descriptor has the base offset for that.
// bug 1 (wgmma): 64 bytes, A begins at 256 past a multiple of 512
// bug 2 (wgmma): 32 bytes, A begins at 128 past a multiple of 256
// bug 3 (misaligned): 64 bytes, A begins at 64 past a multiple of 128
// bug 4 (misaligned): 32 bytes, A begins at 32 past a multiple of 128
// bug 5 (wrong): 64 bytes, A begins at 256 past a multiple of 512, and its descriptor has the base offset for that
// bug 6 (wrong): 32 bytes, A begins at 128 past a multiple of 256, and its descriptor has the base offset for that
// bug 7 (wgmma): 64 bytes, the descriptor of A has a base offset
// bug 8 (wgmma): 32 bytes, the descriptor of A has a base offset
// bug 9 (wgmma): 64 bytes, the descriptor of B has no base offset
// bug 10 (wgmma): 32 bytes, the descriptor of B has no base offset
// bug 11 (wgmma): 64 bytes, the base offset of B counts pieces of 32 bytes
// bug 12 (wgmma): 32 bytes, the base offset of B counts pieces of 32 bytes
// bug 13 (wrong): 64 bytes, the pattern of B is that of its addresses
// bug 14 (wrong): 32 bytes, the pattern of B is that of its addresses
// bug 15 (wrong): 64 bytes, the tensor map of A has no swizzle
// bug 16 (wrong): 32 bytes, the tensor map of A has no swizzle
// bug 17 (wrong): 32 bytes, the tensor map of A has the swizzle of 64
// bug 18 (wgmma, wrong): 64 bytes, the descriptor of A names the swizzle of 128
// bug 19 (wgmma, wrong): 64 bytes, the descriptor of A names the swizzle of 32
// bug 20 (wgmma, wrong): 32 bytes, the descriptor of A names the swizzle of 64
// bug 21 (wgmma, wrong): 32 bytes, the descriptor of A names the swizzle of 128
// bug 22 (wrong): 32 bytes, the descriptor of A names no swizzle
#include "common.cuh"
#include "ptx_hopper.cuh"

constexpr unsigned ROWS = 64, SKEW = 128;
__device__ constexpr unsigned mode(unsigned span) { return span == 128 ? 1 : span == 64 ? 2 : span == 32 ? 3 : 0; }

__device__ __forceinline__ unsigned long long descriptor(unsigned address, unsigned span, unsigned base, unsigned named) {
  const unsigned long long stride = 8 * span >> 4;
  return (address & 0x3ffff) >> 4 | stride << 32 | static_cast<unsigned long long>(base) << 49 |
         static_cast<unsigned long long>(mode(named)) << 62;
}

// Rows of SPAN bytes; the 16-byte pieces that lie 128 bytes times i past the pattern's beginning are at their number ^ i.
template <unsigned SPAN> __device__ void put(unsigned short *to, const unsigned short *from, unsigned first) {
  constexpr unsigned width = SPAN / 2, pieces = SPAN / 16;
  for (unsigned i = threadIdx.x; i < ROWS * width; i += blockDim.x) {
    const unsigned row = i / width, piece = i % width / 8 ^ (first + row * SPAN / 128) % pieces;
    to[row * width + piece * 8 + i % 8] = from[row * 32 + i % width];
  }
}

// The product over SPAN bytes of each row. skew: of A. base_a, base_b: the base offsets. named: by A's descriptor.
template <unsigned SPAN>
__device__ void product(const TensorMap &a, const unsigned short *b, float *c, unsigned char *room_a,
                        unsigned char *room_b, unsigned barrier, unsigned skew, unsigned base_a, unsigned base_b,
                        unsigned named, bool by_address) {
  const unsigned to_a = ptx::smem_address(room_a) + skew, to_b = ptx::smem_address(room_b) + SKEW;
  if (threadIdx.x == 0) {
    ptx::mbarrier_arrive_expect_tx(barrier, ROWS * SPAN);
    ptx::tma_load(to_a, &a, 0, 0, 0, barrier);
  }
  put<SPAN>(reinterpret_cast<unsigned short *>(room_b + SKEW), b, by_address ? SKEW / 128 : 0);
  ptx::fence_proxy_async();
  __syncthreads();
  ptx::mbarrier_wait(barrier, 0);
  float d[32];
  ptx::wgmma_fence();
  for (unsigned at = 0; at < SPAN; at += 32)
    ptx::wgmma_f16<0, 0>(d, descriptor(to_a + at, SPAN, base_a, named), descriptor(to_b + at, SPAN, base_b, SPAN),
                         at > 0);
  ptx::wgmma_commit();
  ptx::wgmma_wait<0>();
  const unsigned row = threadIdx.x / 32 * 16 + threadIdx.x % 32 / 4, col = threadIdx.x % 4 * 2;
  for (unsigned i = 0; i < 32; ++i) c[(row + i % 4 / 2 * 8) * 64 + col + i / 4 * 8 + i % 2] = d[i];
}

extern "C" __global__ void products(const __grid_constant__ TensorMap a64, const __grid_constant__ TensorMap a32,
                                    const __grid_constant__ TensorMap plain64, const __grid_constant__ TensorMap plain32,
                                    const __grid_constant__ TensorMap wide32, const unsigned short *b, float *c) {
  __shared__ __align__(1024) unsigned char room_a[2][8192], room_b[2][8192];
  __shared__ unsigned long long full[2];
  if (threadIdx.x < 2) ptx::mbarrier_init(ptx::smem_address(&full[threadIdx.x]), 1);
  if (threadIdx.x < 2) ptx::fence_mbarrier_init();
  __syncthreads();
  product<64>(BUG == 15 ? plain64 : a64, b, c, room_a[0], room_b[0], ptx::smem_address(&full[0]),
              BUG == 1 || BUG == 5 ? 256 : BUG == 3 ? 64 : 0, BUG == 5 ? 2 : BUG == 7 ? 1 : 0,
              BUG == 9 ? 0 : BUG == 11 ? 4 : 1, BUG == 18 ? 128 : BUG == 19 ? 32 : 64, BUG == 13);
  product<32>(BUG == 16 ? plain32 : BUG == 17 ? wide32 : a32, b, c + 64 * 64, room_a[1], room_b[1],
              ptx::smem_address(&full[1]), BUG == 2 || BUG == 6 ? 128 : BUG == 4 ? 32 : 0,
              BUG == 6 || BUG == 8 ? 1 : 0, BUG == 10 ? 0 : BUG == 12 ? 4 : 1,
              BUG == 20 ? 64 : BUG == 21 ? 128 : BUG == 22 ? 0 : 32, BUG == 14);
}
