// C = A B in tensor cores, a warp a 16 x 8 tile: cp.async in two stages, ldmatrix, mma.sync. k is a multiple of 16.
// bug 1 (copy-in-flight): waits for one group too few
// bug 2 (uninitialised-read, race): no __syncwarp follows the wait, which covers a thread's own copies only
// bug 3 (race): a stage is refilled before all lanes have read it
// bug 4 (copy-in-flight): never waits
// bug 5 (misaligned): cp.async of 16 bytes from an address aligned to 8
// bug 6 (copy-in-flight): the copies are not committed before the wait
// bug 7 (wrong): B's fragments are not transposed
// bug 8 (copy-not-waited-for): one stage too many is fetched and left in flight
#include "ptx.cuh"
#include <cuda_fp16.h>

extern "C" __global__ void hgemm(const __half *a, const __half *b, float *c, int n, int k) {
  __shared__ __align__(16) __half smem_a[2][16][24];
  __shared__ __align__(16) __half smem_b[2][16][8];
  const int lane = threadIdx.x;
  a += blockIdx.y * 16 * k;
  b += blockIdx.x * 8;
  c += blockIdx.y * 16 * n + blockIdx.x * 8;
  auto fetch = [&](int stage, int k0) {
    const int row = lane / 2, col = lane % 2 * 8;
    ptx::cp_async_cg(ptx::smem_address(&smem_a[stage][row][col]), a + row * k + k0 + col - (BUG == 5 ? 4 : 0));
    if (lane < 16) ptx::cp_async_cg(ptx::smem_address(&smem_b[stage][lane][0]), b + (k0 + lane) * n);
    if (BUG != 6) ptx::cp_async_commit();
  };
  float d[4] = {};
  fetch(0, 0);
  for (int k0 = 0, stage = 0; k0 < k; k0 += 16, stage ^= 1) {
    const bool more = k0 + 16 < k;
    if (more || BUG == 8) fetch(stage ^ 1, more ? k0 + 16 : 0);
    if (BUG == 4) {
    } else if (more || BUG == 8) {
      ptx::cp_async_wait<BUG == 1 ? 2 : 1>();
    } else {
      ptx::cp_async_wait<0>();
    }
#if BUG != 2
    __syncwarp();
#endif
    unsigned fragment_a[4], fragment_b[2];
    ptx::ldmatrix_x4(fragment_a, ptx::smem_address(&smem_a[stage][lane % 16][lane / 16 * 8]));
    if (BUG == 7)
      ptx::ldmatrix_x2(fragment_b, ptx::smem_address(&smem_b[stage][lane % 16][0]));
    else
      ptx::ldmatrix_x2_trans(fragment_b, ptx::smem_address(&smem_b[stage][lane % 16][0]));
    ptx::mma_m16n8k16_f16_f32(d, fragment_a, fragment_b);
#if BUG != 3
    __syncwarp();
#endif
  }
  const int row = lane / 4, col = lane % 4 * 2;
  c[row * n + col] = d[0];
  c[row * n + col + 1] = d[1];
  c[(row + 8) * n + col] = d[2];
  c[(row + 8) * n + col + 1] = d[3];
}
