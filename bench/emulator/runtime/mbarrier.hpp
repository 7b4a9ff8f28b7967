// mbarriers: a phase ends with the last arrival and the last announced byte.
#pragma once
#include <map>
#include <random>
#include <vector>

#include "../include/emu/runtime.h"
#include "clocks.hpp"

namespace emu {

struct Block;
enum class Order : uint8_t;

// A box on its way into shared memory.
struct Landing {
  TensorMap map;
  Corner corner;
  unsigned destination;  // in its block
  uintptr_t pc;
};

struct Mbarrier {
  uint32_t arrivals = 0, pending = 0;  // of a phase, and those that are still missing in this one
  int64_t bytes = 0;                   // announced and not yet landed; below 0 if they landed first
  uint32_t phase = 0;
  bool published = false;  // a fence has shown it to the cluster and to the TMA
  uint32_t agent = 0;      // the TMA's loads that this barrier counts
  uint32_t initialiser = 0;
  Clock arriving;         // what the threads that have arrived were ordered after
  SharedClock completed;  // the same, at the end of the last phase
  std::vector<Landing> landings;
  Site site;
};

using Mbarriers = std::map<unsigned, Mbarrier>;  // by offset in the block's shared memory

// Returns the barrier at an offset in a block's shared memory, checked as an access of the running thread. Aborts if
// none is initialised there.
Mbarrier &find_mbarrier(Block &block, unsigned address, uintptr_t pc, Site site);
// Lets one box land at a barrier at which a thread waits; returns false if there is none.
bool land_next(Block &block, Order order, std::mt19937_64 &random);
void end_phase_if_complete(Block &block, unsigned address, Mbarrier &barrier);
// Reports boxes that no thread waited for, when all threads of a block have ended.
void report_abandoned(Block &block);

}  // namespace emu
