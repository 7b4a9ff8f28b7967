// Vector clocks record which threads are ordered after which events by means other than barriers of a block or a warp:
// by mbarriers, named barriers and clusters, which pass clocks on. A kernel without these has no clocks.
#pragma once
#include <cstdint>
#include <memory>
#include <vector>

namespace emu {

struct Block;
struct Event;
struct Thread;

// A time for each thread of the cluster, then for each agent. The clock covers what each of them did before its time.
using Clock = std::vector<uint32_t>;
using SharedClock = std::shared_ptr<const Clock>;

// An engine that works asynchronously to the threads: the TMA's loads that one mbarrier counts; the tensor
// cores of one warpgroup; or a thread's bulk stores. An Event may have its number instead of a thread's.
struct Agent {
  static constexpr uint32_t flag = 1u << 31;

  uint32_t cluster, slot;
  uint32_t issuer;  // the thread that started it last
};
// Adds an agent to the running block's cluster; returns its number in an Event.
uint32_t add_agent();

void join(Clock &into, const Clock &from);
// Returns the clock of the running thread. It covers the thread's own past, but nothing that the thread does later.
Clock release();
void learn(Thread &thread, const SharedClock &news);
void learn(Thread &thread, uint32_t agent, uint32_t time);
// Orders all of these threads after everything that any of them is ordered after.
void share_knowledge(const std::vector<Thread *> &threads);
// Whether the running thread's clock covers the event.
bool knows(const Event &earlier);

}  // namespace emu
