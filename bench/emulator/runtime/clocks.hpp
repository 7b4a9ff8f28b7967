// Vector clocks: which threads are ordered after which events, where neither a barrier of the block nor a warp orders
// them. mbarriers, named barriers and clusters pass them on; a kernel without those has no clocks.
#pragma once
#include <cstdint>
#include <memory>
#include <vector>

namespace emu {

struct Block;
struct Event;
struct Thread;

// An entry for each thread of the cluster, then for each agent: what it did before that time is ordered before.
using Clock = std::vector<uint32_t>;
using SharedClock = std::shared_ptr<const Clock>;

// An engine that works asynchronously to the threads: the TMA, as far as one mbarrier counts its bytes; the tensor
// cores of one warpgroup; a thread's bulk stores. In an Event it takes the place of a thread.
struct Agent {
  static constexpr uint32_t flag = 1u << 31;

  uint32_t cluster, slot;
  uint32_t issuer;  // the thread that started it last
};
// Adds an agent to the running block's cluster; returns its number in an Event.
uint32_t add_agent();

void join(Clock &into, const Clock &from);
// All that is ordered before this point of the running thread, its own past included. What it does from now on is not.
Clock release();
void learn(Thread &thread, const SharedClock &news);
void learn(Thread &thread, uint32_t agent, uint32_t time);
// Orders all of these threads after everything that any of them is ordered after.
void share_knowledge(const std::vector<Thread *> &threads);
// Whether the running thread's clock covers the event.
bool knows(const Event &earlier);

}  // namespace emu
