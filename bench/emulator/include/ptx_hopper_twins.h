// The emulator's versions (twins) of cuda/ptx_hopper.cuh, by the PTX ISA ("mbarrier", "cp.async.bulk.tensor",
// "wgmma.mma_async").
#pragma once
#include "ptx_twins.h"

using TensorMap = emu::TensorMap;

namespace ptx {

EMU_INLINE void mbarrier_init(unsigned barrier, unsigned arrivals, EMU_SITE) {
  emu::mbarrier_init(barrier, arrivals, site);
}
EMU_INLINE void fence_mbarrier_init() { emu::fence_mbarrier_init(); }
EMU_INLINE void mbarrier_arrive_expect_tx(unsigned barrier, unsigned bytes, EMU_SITE) {
  emu::mbarrier_arrive(barrier, emu::own_block, bytes, site);
}
EMU_INLINE void mbarrier_arrive(unsigned barrier, EMU_SITE) { emu::mbarrier_arrive(barrier, emu::own_block, 0, site); }
EMU_INLINE void mbarrier_arrive_cluster(unsigned barrier, unsigned rank, EMU_SITE) {
  emu::mbarrier_arrive(barrier, rank, 0, site);
}
EMU_INLINE void mbarrier_wait(unsigned barrier, unsigned parity, EMU_SITE) {
  emu::mbarrier_wait(barrier, parity, site);
}

EMU_INLINE void fence_proxy_async() { emu::fence_proxy_async(); }

EMU_INLINE void tma_load(unsigned destination, const TensorMap *map, int x, int y, int z, unsigned barrier, EMU_SITE) {
  emu::tma_load(destination, map, {x, y, z}, barrier, 0, site);
}
EMU_INLINE void tma_load_multicast(unsigned destination, const TensorMap *map, int x, int y, int z, unsigned barrier,
                                   unsigned short mask, EMU_SITE) {
  emu::tma_load(destination, map, {x, y, z}, barrier, mask, site);
}
EMU_INLINE void tma_load_im2col(unsigned destination, const TensorMap *map, int channel, int column, int row, int image,
                                unsigned short right, unsigned short down, unsigned barrier, EMU_SITE) {
  emu::tma_load_im2col(destination, map, {channel, column, row, image, {right, down}}, barrier, 0, site);
}
EMU_INLINE void tma_load_im2col_multicast(unsigned destination, const TensorMap *map, int channel, int column, int row,
                                          int image, unsigned short right, unsigned short down, unsigned barrier,
                                          unsigned short mask, EMU_SITE) {
  emu::tma_load_im2col(destination, map, {channel, column, row, image, {right, down}}, barrier, mask, site);
}
EMU_INLINE void tma_store(const TensorMap *map, unsigned source, int x, int y, int z, EMU_SITE) {
  emu::tma_store(map, source, {x, y, z}, site);
}
EMU_INLINE void tma_store_commit() { emu::tma_store_commit(); }
template <int pending> EMU_INLINE void tma_store_wait_read() { emu::tma_store_wait_read(pending); }
EMU_INLINE void tma_prefetch(const TensorMap *) {}

EMU_INLINE unsigned cluster_rank() { return emu::cluster_rank(); }
EMU_INLINE void cluster_sync(EMU_SITE) { emu::cluster_barrier(site); }
EMU_INLINE void named_barrier_sync(unsigned id, unsigned threads, EMU_SITE) { emu::named_barrier(id, threads, site); }

template <int registers> constexpr unsigned checked_registers() {
  static_assert(registers >= 24 && registers <= 256 && registers % 8 == 0, "setmaxnreg takes 24 to 256 in steps of 8");
  return registers;
}
template <int registers> EMU_INLINE void setmaxnreg_dec(EMU_SITE) {
  emu::setmaxnreg(checked_registers<registers>(), false, site);
}
template <int registers> EMU_INLINE void setmaxnreg_inc(EMU_SITE) {
  emu::setmaxnreg(checked_registers<registers>(), true, site);
}

EMU_INLINE void wgmma_fence() { emu::wgmma_fence(); }
EMU_INLINE void wgmma_commit() { emu::wgmma_commit(); }
template <int pending> EMU_INLINE void wgmma_wait() { emu::wgmma_wait(pending); }

#define EMU_WGMMA(type)                                                                                           \
  template <int mn_major_a, int mn_major_b, int count>                                                            \
  EMU_INLINE void wgmma_##type(float (&d)[count], unsigned long long a, unsigned long long b, int accumulate,     \
                               EMU_SITE) {                                                                        \
    static_assert(count == 32 || count == 64 || count == 128, "wgmma computes 64 x 64, 128 or 256 sums");         \
    emu::wgmma(d, {emu::OperandType::type, count * 2, a, b, mn_major_a != 0, mn_major_b != 0, accumulate != 0}, \
               site);                                                                                             \
  }
EMU_WGMMA(f16)
EMU_WGMMA(bf16)
#undef EMU_WGMMA
#define EMU_WGMMA_ALONG_K(type, sum)                                                                                  \
  template <int count>                                                                                                \
  EMU_INLINE void wgmma_##type(sum (&d)[count], unsigned long long a, unsigned long long b, int accumulate,           \
                               EMU_SITE) {                                                                            \
    static_assert(count == 32 || count == 64 || count == 128, "wgmma computes 64 x 64, 128 or 256 sums");             \
    emu::wgmma(d, {emu::OperandType::type, count * 2, a, b, false, false, accumulate != 0}, site);                    \
  }
EMU_WGMMA_ALONG_K(tf32, float)
EMU_WGMMA_ALONG_K(e4m3, float)
EMU_WGMMA_ALONG_K(e5m2, float)
EMU_WGMMA_ALONG_K(s8, int)
#undef EMU_WGMMA_ALONG_K
template <int count>
EMU_INLINE void wgmma_tf32(float (&d)[count], const unsigned (&a)[4], unsigned long long b, int accumulate, EMU_SITE) {
  static_assert(count == 32 || count == 64 || count == 128, "wgmma computes 64 x 64, 128 or 256 sums");
  emu::wgmma(d, {emu::OperandType::tf32, count * 2, 0, b, false, false, accumulate != 0, true}, site, a);
}

}  // namespace ptx
