// C = A B by wgmma in clusters of two: B lies along n, and each block loads half of its 128 columns into both.
// bug 1 (wrong): the rank in the address of B reaches the leading offset of its descriptor
// bug 2 (wgmma): the rank in the address of A reaches a leading offset that is not used along k
// bug 3 (shared-address): the address of a barrier is masked like that of a descriptor
// bug 4 (deadlock): the two consumers increase to more registers than the producer has released
// bug 5 (deadlock): the producer releases no registers
// bug 6 (setmaxnreg): the consumers decrease to more registers than they have
// bug 7 (deadlock): one warp of the producer alone releases its registers
// bug 8 (setmaxnreg): a warp of a warpgroup asks for other registers than the rest
// bug 9 (wgmma): the sums are cleared after the first fence, not before it
// bug 10 (race, copy-in-flight): a block announces what it loads itself, not what lands
// bug 11 (wrong, wgmma): leading offset and stride of B are confused
#include "common.cuh"
#include "ptx_hopper.cuh"

constexpr unsigned STAGES = 2, BOX = 64 * 128, SLOT = 4 * BOX;  // two boxes of A, two of B

__device__ __forceinline__ unsigned long long descriptor(unsigned address, unsigned leading, unsigned stride,
                                                         bool masked) {
  return (masked ? address & 0x3ffff : address) >> 4 | static_cast<unsigned long long>(leading) >> 4 << 16 |
         static_cast<unsigned long long>(stride) >> 4 << 32 | 1ull << 62;
}

extern "C" __global__ void __launch_bounds__(384, 1)
    gemm(const __grid_constant__ TensorMap a, const __grid_constant__ TensorMap b, float *c, int k) {
  __shared__ __align__(1024) unsigned char smem[STAGES][SLOT];
  __shared__ unsigned long long full[STAGES], empty[STAGES];
  const unsigned rank = ptx::cluster_rank(), thread = threadIdx.x, group = thread / 128, steps = unsigned(k) / 64;
  const unsigned mask = BUG == 3 ? 0x3ffff : ~0u;
  if (thread == 0) {
    for (unsigned s = 0; s < STAGES; ++s) {
      ptx::mbarrier_init(ptx::smem_address(&full[s]) & mask, 1);
      ptx::mbarrier_init(ptx::smem_address(&empty[s]) & mask, 4);
    }
    ptx::fence_mbarrier_init();
  }
  ptx::cluster_sync();
  if (group == 2) {
    if (BUG == 8 && thread / 32 == 9) ptx::setmaxnreg_dec<48>();
    else if (BUG == 7 ? thread / 32 == 8 : BUG != 5) ptx::setmaxnreg_dec<40>();
    for (unsigned step = 0; thread == 256 && step < steps; ++step) {
      const unsigned s = step % STAGES, barrier = ptx::smem_address(&full[s]), to = ptx::smem_address(smem[s]);
      ptx::mbarrier_wait(ptx::smem_address(&empty[s]), step / STAGES % 2 ^ 1);
      ptx::mbarrier_arrive_expect_tx(barrier, BUG == 10 ? SLOT - BOX : SLOT);
      ptx::tma_load(to, &a, int(step * 64), int(rank * 128), 0, barrier);
      ptx::tma_load(to + BOX, &a, int(step * 64), int(rank * 128 + 64), 0, barrier);
      ptx::tma_load_multicast(to + (2 + rank) * BOX, &b, int(rank * 64), int(step * 64), 0, barrier, 3);
    }
  } else {
    if (BUG == 6) ptx::setmaxnreg_dec<232>();
    else ptx::setmaxnreg_inc<BUG == 4 ? 240 : 232>();
    float d[64];
    if (BUG == 9) ptx::wgmma_fence();
    for (unsigned i = 0; i < 64; ++i) d[i] = 0.0f;
    for (unsigned step = 0; step < steps; ++step) {
      const unsigned s = step % STAGES, from = ptx::smem_address(smem[s]);
      ptx::mbarrier_wait(ptx::smem_address(&full[s]), step / STAGES % 2);
      if (BUG != 9 || step > 0) ptx::wgmma_fence();
      for (unsigned i = 0; i < 4; ++i)
        ptx::wgmma_f16<0, 1>(d, descriptor(from + group * BOX + i * 32, 16, 1024, BUG != 2),
                             descriptor(from + 2 * BOX + i * 2048, BUG == 11 ? 1024 : BOX, BUG == 11 ? BOX : 1024,
                                        BUG != 1),
                             1);
      ptx::wgmma_commit();
      ptx::wgmma_wait<0>();
      ptx::named_barrier_sync(1 + group, 128);
      if (thread % 128 < 2) ptx::mbarrier_arrive_cluster(ptx::smem_address(&empty[s]), thread % 128);
    }
    const unsigned row = rank * 128 + thread / 32 * 16 + thread % 32 / 4, col = thread % 4 * 2;
    for (unsigned i = 0; i < 64; ++i) c[(row + i % 4 / 2 * 8) * 128 + col + i / 4 * 8 + i % 2] = d[i];
  }
  ptx::cluster_sync();
}
