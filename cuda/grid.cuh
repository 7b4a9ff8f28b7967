// A barrier for all blocks of a cooperative launch (`cooperative=True`), counted in global memory. It does what
// this_grid().sync() of cooperative groups does, but compiling a cubin needs none of their headers.
//
// Each block adds one to the counter at each barrier, and the counter is never reset: a block that reads it late finds
// the value that it waits for, or a larger one. The launch must be cooperative: a block that is not resident never
// arrives.
#pragma once

#ifdef CUDA_EMU
#include <cooperative_groups.h>
#endif

class GridBarrier {
 public:
  // arrived: a counter that is 0 when the launch begins and that nothing else uses. Grid and blocks are
  // one-dimensional; every thread constructs a GridBarrier.
  __device__ explicit GridBarrier(unsigned *arrived) : arrived_(arrived), expected_(0) {}

  // Waits until every block has arrived as often as this one. What any thread wrote before, all threads see afterwards.
  __device__ __forceinline__ void sync() {
    expected_ += gridDim.x;
#ifdef CUDA_EMU
    // The emulator's own barrier, which its checker understands as an ordering. The counter must reach the same value.
    if (threadIdx.x == 0) atomicAdd(arrived_, 1u);
    cooperative_groups::this_grid().sync();
    if (threadIdx.x == 0 && atomicAdd(arrived_, 0u) != expected_) __trap();
    cooperative_groups::this_grid().sync();
#else
    __syncthreads();  // all threads of the block have arrived
    if (threadIdx.x == 0) {
      __threadfence();  // makes the block's earlier writes visible before its arrival
      atomicAdd(arrived_, 1u);
      while (*static_cast<volatile unsigned *>(arrived_) < expected_) {
      }
      __threadfence();  // orders the other blocks' writes before this block's next reads
    }
    __syncthreads();
#endif
  }

 private:
  unsigned *arrived_;
  unsigned expected_;
};
