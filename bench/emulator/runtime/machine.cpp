#include "machine.hpp"

#include <cstdlib>

// Kernels see these as const (include/emu/keywords.h); the scheduler sets them at each switch.
uint3 threadIdx, blockIdx;
dim3 blockDim, gridDim;

namespace emu {

Machine machine;

Who Machine::who() const {
  if (!block) return {};
  return {block->index, block->threads[current].index};
}

Who Machine::who(uint32_t global_thread) const {
  if (global_thread & Agent::flag) return who(agents[global_thread & ~Agent::flag].issuer);
  const uint32_t b = global_thread / threads_per_block, t = global_thread % threads_per_block;
  const dim3 &grid = launch.grid, &size = launch.block;
  return {{b % grid.x, b / grid.x % grid.y, b / grid.x / grid.y},
          {t % size.x, t / size.x % size.y, t / size.x / size.y}};
}

void Machine::make_current(uint32_t thread) {
  current = thread;
  me = block->linear * threads_per_block + thread;
  threadIdx = block->threads[thread].index;
  EMU_COUNTING(emu_reached = block->threads[thread].reached.data();)
}

void Machine::wait() {
  const uint32_t me = current;
  checker.settle();
  ++switches;
  switch_context(thread().context, main);
  make_current(me);
}

void Machine::abort_run() {
  aborted = true;
  checker.settle();
  switch_context(thread().context, main);
  std::abort();  // an aborted run is never resumed
}

}  // namespace emu
