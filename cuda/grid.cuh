// A barrier of all blocks of a cooperative launch (`cooperative=True`), counted in global memory: what
// this_grid().sync() of cooperative groups does, whose headers are not needed to compile a cubin.
//
// The counter grows by one for each block and barrier and is never turned back, so that a block that looks late finds
// it at what it waits for, or past it. The launch must be cooperative: a block that is not resident never arrives.
#pragma once

#ifdef CUDA_EMU
#include <cooperative_groups.h>
#endif

class GridBarrier {
 public:
  // arrived: 0 when the launch begins, and nobody else's. Grid and blocks have one dimension; all threads make one.
  __device__ explicit GridBarrier(unsigned *arrived) : arrived_(arrived), expected_(0) {}

  // Until all blocks have come as often as this one. What any thread wrote before, all threads see afterwards.
  __device__ __forceinline__ void sync() {
    expected_ += gridDim.x;
#ifdef CUDA_EMU
    // The emulator's own barrier, whose order of accesses its checker knows. The counter has to come to the same.
    if (threadIdx.x == 0) atomicAdd(arrived_, 1u);
    cooperative_groups::this_grid().sync();
    if (threadIdx.x == 0 && atomicAdd(arrived_, 0u) != expected_) __trap();
    cooperative_groups::this_grid().sync();
#else
    __syncthreads();  // the block has come whole
    if (threadIdx.x == 0) {
      __threadfence();  // what it did before is seen before its arrival
      atomicAdd(arrived_, 1u);
      while (*static_cast<volatile unsigned *>(arrived_) < expected_) {
      }
      __threadfence();  // and what the others did, before what it does next
    }
    __syncthreads();
#endif
  }

 private:
  unsigned *arrived_;
  unsigned expected_;
};
