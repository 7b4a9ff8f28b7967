// Who knows of whose past: vector clocks, for what neither a barrier of the block nor a warp orders. mbarriers, named
// barriers and clusters hand them on; a kernel without those has none.
#pragma once
#include <cstdint>
#include <memory>
#include <vector>

namespace emu {

struct Block;
struct Event;
struct Thread;

// An entry for each thread of the cluster, then for each agent: what it did before that time is known.
using Clock = std::vector<uint32_t>;
using SharedClock = std::shared_ptr<const Clock>;

// An engine that works behind the threads' backs: the TMA, heard of through one mbarrier; the tensor cores of one
// warpgroup; a thread's bulk stores. It stands in an Event where a thread would.
struct Agent {
  static constexpr uint32_t flag = 1u << 31;

  uint32_t cluster, slot;
  uint32_t issuer;  // the thread that set it to work last
};
// A new agent of the running block's cluster, as an Event names it.
uint32_t add_agent();

void join(Clock &into, const Clock &from);
// All that the running thread knows to have happened, itself included. What it does from now on is not in it.
Clock release();
void learn(Thread &thread, const SharedClock &news);
void learn(Thread &thread, uint32_t agent, uint32_t time);
// What any of these threads knows, all of them know.
void share_knowledge(const std::vector<Thread *> &threads);
// Whether the running thread's clock covers the event.
bool knows(const Event &earlier);

}  // namespace emu
