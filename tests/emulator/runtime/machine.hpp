// The emulated device: its threads, its clock and its memory. One a process.
#pragma once
#include <string>
#include <vector>

#include "async_copy.hpp"
#include "checker.hpp"
#include "fiber.hpp"
#include "memory.hpp"
#include "report.hpp"

namespace emu {

enum class State : uint8_t { ready, at_block_barrier, at_grid_barrier, in_warp, done };

struct Thread {
  Context context;
  State state = State::ready;
  bool started = false, yielded = false;
  uint3 index{};
  Site site;  // where it waits
  // What it brought to the barrier or the warp collective that it waits at.
  unsigned mask = 0;
  void *payload = nullptr;
  Combine combine = nullptr;
  bool orders_memory = false, predicate = false;
  Reduction reduction = Reduction::count;
  int result = 0;
  AsyncCopies copies;
};

// The shared memory of a block that is not running, and its shadow.
struct SharedImage {
  std::vector<char> bytes;
  std::vector<std::unique_ptr<Cell[]>> shadows;
};

struct Block {
  uint32_t linear = 0;
  uint3 index{};
  std::vector<Thread> threads;
  std::vector<uint32_t> order;  // in which the threads run
  // clocks[a * 32 + b % 32], b in the warp of a: what thread b did before that time happened before what a does now.
  std::vector<uint32_t> clocks;
  uint32_t synchronised = 0;  // time of the last barrier of the block
  uint32_t live = 0, at_barrier = 0, at_grid = 0;
  size_t first_stack = 0;
  SharedImage shared;
};

enum class Order : uint8_t { forward, reverse, random };

struct Launch {
  const Entry *entry = nullptr;
  void **arguments = nullptr;
  dim3 grid, block;
  size_t shared_bytes = 0;
  bool cooperative = false;
  Order order = Order::forward;
  uint64_t seed = 0;
};

struct Machine {
  Memory memory;
  Stacks stacks;
  Checker checker;
  Reports reports;

  Launch launch;
  Context main;
  Block *block = nullptr;      // the running block
  uint32_t current = 0;        // the running thread in it
  uint32_t me = 0;             // the running thread in the grid
  bool running = false;        // a kernel runs, and not the runtime or the code between launches
  bool aborted = false;
  uint32_t threads_per_block = 0;
  uint32_t time = 1;              // advances at every synchronisation
  uint32_t grid_synchronised = 0;  // time of the last barrier of the grid
  uint64_t switches = 0;

  char *static_shared = nullptr, *dynamic_shared = nullptr;
  size_t static_bytes = 0, dynamic_bytes = 0;
  std::vector<Region *> shared_regions;  // one for each variable, and one for dynamic shared memory

  Thread &thread() { return block->threads[current]; }
  Who who() const;
  Who who(uint32_t global_thread) const;
  // Whether a barrier orders an earlier event before what the running thread does now.
  bool ordered(const Event &earlier, Space space) const;
  void make_current(uint32_t thread);
  // Back to the scheduler, until the thread is ready again.
  void wait();
  [[noreturn]] void abort_run();
};

extern Machine machine;

inline bool Machine::ordered(const Event &earlier, Space space) const {
  if (earlier.thread == me || earlier.time < grid_synchronised) return true;
  if (space != Space::shared && earlier.thread / threads_per_block != block->linear) return false;
  if (earlier.time < block->synchronised) return true;
  const uint32_t other = earlier.thread % threads_per_block;
  return other / 32 == current / 32 && earlier.time < block->clocks[current * 32 + other % 32];
}

}  // namespace emu
