// Runs the threads of a block until none can go on, and the blocks of a grid.
#pragma once
#include <random>

#include "machine.hpp"

namespace emu {

// Why a block has stopped running.
enum class Stop { finished, grid_barrier, spinning, stuck, aborted };

class Scheduler {
 public:
  explicit Scheduler(const Launch &launch);
  // Run the launch to its end, or to the report that ended it.
  void run();

 private:
  void run_one_by_one();
  void run_together();
  void begin(Block &block, uint32_t linear, size_t first_stack);
  Stop run(Block &block);
  bool run_ready(Block &block);
  void resume(Block &block, uint32_t thread);
  void shuffle(Block &block);
  void report_deadlock(Block &block);
  std::vector<uint32_t> block_order();

  const Launch &launch_;
  std::mt19937_64 random_;
};

// barriers.cpp
void release_block_barrier(Block &block);
void release_grid_barrier(std::vector<Block> &blocks);
// collectives.cpp: let each group of lanes go that is complete; false if there is none.
bool release_warp(Block &block, uint32_t warp);

}  // namespace emu
