#include "clocks.hpp"

#include <algorithm>

#include "machine.hpp"

namespace emu {

namespace {

constexpr size_t nowhere = SIZE_MAX;

// The index of a thread or an agent in the clocks of the running block's cluster.
size_t place_of(uint32_t who) {
  const Cluster &cluster = *machine.block->cluster;
  if (who & Agent::flag) {
    const Agent &agent = machine.agents[who & ~Agent::flag];
    return agent.cluster == cluster.number ? cluster.threads() + agent.slot : nowhere;
  }
  const size_t place = size_t(who) - size_t(cluster.first_block) * machine.threads_per_block;
  return place < cluster.threads() ? place : nowhere;
}

}  // namespace

uint32_t add_agent() {
  Cluster &cluster = *machine.block->cluster;
  machine.agents.push_back({cluster.number, cluster.agents++, machine.me});
  return uint32_t(machine.agents.size() - 1) | Agent::flag;
}

void join(Clock &into, const Clock &from) {
  if (into.size() < from.size()) into.resize(from.size());
  for (size_t i = 0; i < from.size(); ++i) into[i] = std::max(into[i], from[i]);
}

Clock release() {
  const Block &block = *machine.block;
  const Thread &me = machine.thread();
  Clock clock = me.known ? *me.known : Clock{};
  clock.resize(std::max(clock.size(), block.cluster->threads()));
  uint32_t *own = &clock[size_t(block.rank) * machine.threads_per_block];
  for (uint32_t i = 0; i < machine.threads_per_block; ++i) own[i] = std::max(own[i], block.synchronised);
  const uint32_t warp = machine.current / 32 * 32, end = std::min(warp + 32, machine.threads_per_block);
  for (uint32_t i = warp; i < end; ++i)
    own[i] = std::max(own[i], block.clocks[size_t(machine.current) * 32 + i % 32]);
  own[machine.current] = ++machine.time;
  return clock;
}

void learn(Thread &thread, const SharedClock &news) {
  if (!news || thread.known == news) return;
  if (!thread.known) {
    thread.known = news;
    return;
  }
  Clock both = *thread.known;
  join(both, *news);
  thread.known = both == *news ? news : std::make_shared<const Clock>(std::move(both));
}

void learn(Thread &thread, uint32_t agent, uint32_t time) {
  const size_t place = place_of(agent);
  Clock clock = thread.known ? *thread.known : Clock{};
  if (clock.size() <= place) clock.resize(place + 1);
  clock[place] = std::max(clock[place], time);
  thread.known = std::make_shared<const Clock>(std::move(clock));
}

void share_knowledge(const std::vector<Thread *> &threads) {
  const auto knows_more = [&](const Thread *thread) { return thread->known != threads.front()->known; };
  if (std::none_of(threads.begin(), threads.end(), knows_more)) return;
  Clock all;
  const Clock *last = nullptr;
  for (const Thread *thread : threads) {
    if (!thread->known || thread->known.get() == last) continue;
    join(all, *thread->known);
    last = thread->known.get();
  }
  const auto shared = std::make_shared<const Clock>(std::move(all));
  for (Thread *thread : threads) thread->known = shared;
}

bool knows(const Event &earlier) {
  const Clock &clock = *machine.thread().known;
  const size_t place = place_of(earlier.thread);
  return place < clock.size() && earlier.time < clock[place];
}

}  // namespace emu
