// Barriers between the blocks of a cooperative launch (`cooperative=True`), by words in global memory. At a
// GridBarrier, a block waits for all blocks; with a GridOrder, only for the steps just before its own. The launch must
// be cooperative: a block that is not resident never arrives.
//
// GridBarrier does what this_grid().sync() of cooperative groups does, but compiling a cubin needs none of their
// headers. Each block adds one to the counter at each barrier, and the counter is never reset: a block that reads it
// late finds the value that it waits for, or a larger one.
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

// Orders numbered steps of two parts: a second part waits for the first parts of some steps before it. A block takes
// its steps by rising numbers, and first parts wait for nothing: the lowest unfinished step can always proceed.
class GridOrder {
 public:
  // finished: a word for each step, 0 when the launch begins, that nothing else uses. Blocks are one-dimensional.
  __device__ explicit GridOrder(unsigned *finished) : finished_(finished) {}

  // Marks the first part of a step as ended, and waits until those of the `before` steps before it have ended too.
  // Every block calls this equally often; a block that has no step left passes taken = false.
  __device__ __forceinline__ void sync(unsigned step, unsigned before, bool taken) {
#ifdef CUDA_EMU
    // The emulator's checker only understands the emulator's own barrier, which waits for all blocks.
    if (taken && threadIdx.x == 0 && finished_[step]++ != 0) __trap();
    cooperative_groups::this_grid().sync();
    for (unsigned i = threadIdx.x; taken && i < min(before, step); i += blockDim.x)
      if (finished_[step - 1 - i] == 0) __trap();
#else
    if (!taken) return;
    __syncthreads();  // all threads of the block have ended the part
    volatile unsigned *finished = finished_;
    if (threadIdx.x == 0) {
      __threadfence();  // makes what the block did visible before its mark
      finished[step] = 1;
    }
    for (unsigned i = threadIdx.x; i < min(before, step); i += blockDim.x)
      while (finished[step - 1 - i] == 0) {
      }
    __threadfence();  // orders the other blocks' parts before what this block does next
    __syncthreads();
#endif
  }

 private:
  unsigned *finished_;
};
