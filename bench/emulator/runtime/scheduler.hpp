// Runs the threads of a block until none can continue, and the blocks of a grid.
#pragma once
#include <random>
#include <span>

#include "machine.hpp"

namespace emu {

// Why a block has stopped running.
enum class Stop { finished, grid_barrier, spinning, stuck, aborted };

class Scheduler {
 public:
  explicit Scheduler(const Launch &launch);
  // Runs the launch to its end, or to the report that ends it.
  void run();

 private:
  // Runs blocks that are resident together until all have ended; returns false if a report has ended the launch.
  bool run_together(std::span<const uint32_t> linear);
  void begin(std::span<const uint32_t> linear);
  void begin(Block &block, uint32_t linear, size_t first_stack);
  // Gives one turn to each block that does not wait for the others. Returns false if a report has ended the launch.
  bool take_turns(bool &progress);
  bool release_barriers();
  Stop run(Block &block);
  bool run_ready(Block &block);
  void resume(Block &block, uint32_t thread);
  void shuffle(Block &block);
  void report_deadlock(Block &block);
  bool end_stuck();
  std::vector<uint32_t> block_order();
  void arrange(std::vector<uint32_t> &numbers);

  const Launch &launch_;
  std::vector<Block> blocks_;
  std::vector<Cluster> clusters_;
  std::mt19937_64 random_;
};

// shared_image.cpp: a block that waits for others leaves the shared memory to the next one.
void save_shared(SharedImage &image);
void restore_shared(SharedImage &image);
// Shared memory holds garbage when a block begins: here NaN, which the checker treats as uninitialised.
void poison_shared();
// barriers.cpp
void release_block_barrier(Block &block);
void release_grid_barrier(std::vector<Block> &blocks);
bool release_cluster_barrier(Cluster &cluster);
// collectives.cpp: releases each group of lanes that is complete; returns false if there is none.
bool release_warp(Block &block, uint32_t warp);
// The lanes of the running thread's warp that have not ended.
unsigned live_lanes();
// Releases the lanes that wait in `converged`; returns false if there is none.
bool release_converged(Block &block);

}  // namespace emu
