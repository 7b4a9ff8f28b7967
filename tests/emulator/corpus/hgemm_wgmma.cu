// C = A B^T by wgmma, a block a 64 x 64 tile: a warp feeds two stages of 64 columns by TMA, a warpgroup multiplies.
// bug 1 (wgmma-in-flight): the sums are stored before anybody has waited for them
// bug 2 (wgmma-in-flight): the products are not committed before the wait
// bug 3 (wgmma): no fence between the first touch of the sums and their first product
// bug 4 (wrong): the descriptor's stride is that of the next but one eight rows
// bug 5 (race): a stage is given back before the products have read it
// bug 6 (wrong): the descriptors name no swizzle
// bug 7 (wrong): k advances by 16 bytes instead of 32
// bug 8 (race, copy-in-flight): a stage is multiplied before it is full
// bug 9 (wgmma-in-flight): waits for one group too few
// bug 10 (deadlock): one warp of the warpgroup stays away from a product
// bug 11 (wrong): the first product adds to what the sums' registers held
// bug 12 (wgmma-in-flight): the sums are scaled while a product adds to them
// bug 13 (race): the last warp of the warpgroup leaves it to the others to wait for a stage
#include "common.cuh"
#include "ptx_hopper.cuh"

constexpr unsigned STAGES = 2, BYTES = 64 * 128;

__device__ __forceinline__ unsigned long long descriptor(unsigned address) {
  constexpr unsigned long long swizzle = BUG == 6 ? 0 : 1, stride = (BUG == 4 ? 2048 : 1024) >> 4;
  return (address & 0x3ffff) >> 4 | stride << 32 | swizzle << 62;
}

extern "C" __global__ void hgemm(const __grid_constant__ TensorMap a, const __grid_constant__ TensorMap b, float *c,
                                 int n, int k) {
  __shared__ __align__(1024) unsigned char smem_a[STAGES][BYTES], smem_b[STAGES][BYTES];
  __shared__ unsigned long long full[STAGES], empty[STAGES];
  const unsigned thread = threadIdx.x, steps = unsigned(k) / 64;
  if (thread == 0) {
    for (unsigned s = 0; s < STAGES; ++s) {
      ptx::mbarrier_init(ptx::smem_address(&full[s]), 1);
      ptx::mbarrier_init(ptx::smem_address(&empty[s]), 1);
    }
    ptx::fence_mbarrier_init();
  }
  __syncthreads();
  if (thread >= 128) {
    for (unsigned step = 0; thread == 128 && step < steps; ++step) {
      const unsigned s = step % STAGES, barrier = ptx::smem_address(&full[s]);
      ptx::mbarrier_wait(ptx::smem_address(&empty[s]), step / STAGES % 2 ^ 1);
      ptx::mbarrier_arrive_expect_tx(barrier, 2 * BYTES);
      ptx::tma_load(ptx::smem_address(smem_a[s]), &a, int(step * 64), int(blockIdx.y * 64), 0, barrier);
      ptx::tma_load(ptx::smem_address(smem_b[s]), &b, int(step * 64), int(blockIdx.x * 64), 0, barrier);
    }
    return;
  }
  float d[32];
  for (unsigned i = 0; i < 32; ++i) d[i] = 5.0f;
  for (unsigned step = 0; step < steps; ++step) {
    const unsigned s = step % STAGES;
    if (BUG != 8 && (BUG != 13 || thread < 96)) ptx::mbarrier_wait(ptx::smem_address(&full[s]), step / STAGES % 2);
    if (BUG != 3) ptx::wgmma_fence();
    for (unsigned i = 0; i < 4; ++i) {
      if (BUG == 10 && i == 2 && thread / 32 == 3) continue;
      const unsigned offset = i * (BUG == 7 ? 16 : 32);
      ptx::wgmma_f16<0, 0>(d, descriptor(ptx::smem_address(smem_a[s]) + offset),
                           descriptor(ptx::smem_address(smem_b[s]) + offset), BUG == 11 || step + i > 0);
    }
    if (BUG != 2) ptx::wgmma_commit();
    if (BUG == 12 && step == 0) d[3] *= 0.5f;
    if (BUG == 5 && thread == 0) ptx::mbarrier_arrive(ptx::smem_address(&empty[s]));
    if (BUG == 9) ptx::wgmma_wait<1>();
    else if (BUG != 1 || step + 1 < steps) ptx::wgmma_wait<0>();
    if (BUG != 5 && thread == 0) ptx::mbarrier_arrive(ptx::smem_address(&empty[s]));
  }
  const unsigned row = blockIdx.y * 64 + thread / 32 * 16 + thread % 32 / 4, col = blockIdx.x * 64 + thread % 4 * 2;
  for (unsigned i = 0; i < 32; ++i) c[(row + i % 4 / 2 * 8) * n + col + i / 4 * 8 + i % 2] = d[i];
}
