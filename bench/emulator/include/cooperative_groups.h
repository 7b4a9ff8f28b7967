// The part of cooperative groups that a grid-wide barrier needs. Launch with `cooperative=True`.
#pragma once
#include "emulator.h"

namespace cooperative_groups {

struct thread_block {
  EMU_INLINE void sync(EMU_SITE) const { emu::block_barrier(site); }
  EMU_INLINE unsigned size() const { return blockDim.x * blockDim.y * blockDim.z; }
  EMU_INLINE unsigned thread_rank() const {
    return (threadIdx.z * blockDim.y + threadIdx.y) * blockDim.x + threadIdx.x;
  }
};

struct grid_group {
  EMU_INLINE void sync(EMU_SITE) const { emu::grid_barrier(site); }
  EMU_INLINE bool is_valid() const { return true; }
  EMU_INLINE unsigned block_rank() const {
    return (blockIdx.z * gridDim.y + blockIdx.y) * gridDim.x + blockIdx.x;
  }
  EMU_INLINE unsigned long long size() const {
    return 1ull * gridDim.x * gridDim.y * gridDim.z * thread_block{}.size();
  }
  EMU_INLINE unsigned long long thread_rank() const {
    return 1ull * block_rank() * thread_block{}.size() + thread_block{}.thread_rank();
  }
};

EMU_INLINE thread_block this_thread_block() { return {}; }
EMU_INLINE grid_group this_grid() { return {}; }

}  // namespace cooperative_groups
