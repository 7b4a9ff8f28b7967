// Warp collectives: lanes wait for each other, and the last to arrive does the work for all.
#include <algorithm>
#include <bit>

#include "scheduler.hpp"

namespace emu {

namespace {

// The lanes of a collective: those that have arrived, and those in the mask that never will.
struct Group {
  unsigned present = 0, missing = 0;
  void *lanes[32] = {};
};

// Fills the group of `leader`. Returns false if a lane has not arrived yet.
bool gather(Block &block, uint32_t warp, const Thread &leader, Group &group) {
  for (uint32_t lane = 0; lane < 32; ++lane) {
    if (!(leader.mask >> lane & 1)) continue;
    const uint32_t i = warp * 32 + lane;
    if (i >= block.threads.size() || block.threads[i].state == State::done) {
      group.missing |= 1u << lane;
      continue;
    }
    Thread &thread = block.threads[i];
    if (thread.state != State::in_warp || thread.mask != leader.mask || thread.combine != leader.combine) return false;
    group.present |= 1u << lane;
    group.lanes[lane] = thread.payload;
  }
  return true;
}

// Orders all lanes of the group after everything that any of them was ordered after.
void join_clocks(Block &block, uint32_t warp, unsigned present) {
  uint32_t latest[32] = {};
  for (uint32_t lane = 0; lane < 32; ++lane) {
    if (!(present >> lane & 1)) continue;
    const uint32_t *clock = &block.clocks[size_t(warp * 32 + lane) * 32];
    for (uint32_t other = 0; other < 32; ++other) latest[other] = std::max(latest[other], clock[other]);
  }
  for (uint32_t lane = 0; lane < 32; ++lane)
    if (present >> lane & 1) latest[lane] = machine.time;
  std::vector<Thread *> lanes;
  for (uint32_t lane = 0; lane < 32; ++lane) {
    if (!(present >> lane & 1)) continue;
    std::copy_n(latest, 32, &block.clocks[size_t(warp * 32 + lane) * 32]);
    lanes.push_back(&block.threads[warp * 32 + lane]);
  }
  share_knowledge(lanes);
}

void finish(Block &block, uint32_t warp, uint32_t leader, Group &group) {
  Thread &first = block.threads[leader];
  if (group.missing) {
    const std::string what = "the mask names " + std::to_string(__builtin_popcount(group.missing)) +
                             " lanes that have exited or do not exist";
    machine.reports.add("warp-mask", what, 0, &first.site);
  }
  machine.running = false;  // the combination reads the lanes' payloads, not the kernel's memory
  EMU_COUNTING(emu_reached = machine.counter.nowhere();)
  first.combine(group.lanes, group.present);
  machine.running = true;
  EMU_COUNTING(machine.counter.collective(warp, group.present, first.site.file_name(), first.site.line());)
  ++machine.time;
  if (first.orders_memory) join_clocks(block, warp, group.present);
  for (uint32_t lane = 0; lane < 32; ++lane)
    if (group.present >> lane & 1) block.threads[warp * 32 + lane].state = State::ready;
}

// Combines the group of a waiting lane if all its lanes have arrived; the lowest lane runs the combination.
bool release_group(Block &block, uint32_t warp, uint32_t waiting) {
  Group group;
  if (!gather(block, warp, block.threads[waiting], group)) return false;
  const uint32_t current = machine.current, leader = warp * 32 + uint32_t(std::countr_zero(group.present));
  machine.make_current(leader);
  finish(block, warp, leader, group);
  machine.make_current(current);
  return true;
}

}  // namespace

bool release_warp(Block &block, uint32_t warp) {
  const uint32_t end = std::min<uint32_t>(warp * 32 + 32, uint32_t(block.threads.size()));
  bool released = false;
  for (uint32_t i = warp * 32; i < end; ++i)
    if (block.threads[i].state == State::in_warp) released |= release_group(block, warp, i);
  return released;
}

void warp_collective(unsigned mask, void *payload, Combine combine, bool orders_memory, Site site) {
  Thread &me = machine.thread();
  const uint32_t lane = machine.current % 32;
  if (!(mask >> lane & 1)) misuse("warp-mask", "the calling lane is not in its own mask", site);
  me.mask = mask | 1u << lane;
  me.payload = payload;
  me.combine = combine;
  me.orders_memory = orders_memory;
  me.state = State::in_warp;
  me.site = site;
  // Lanes mostly run in their order; as long as the next one can still run, no group is complete.
  const uint32_t next = machine.current + 1;
  const bool is_awaited = lane < 31 && me.mask >> lane >> 1 & 1 && next < machine.threads_per_block;
  if (!is_awaited || machine.block->threads[next].state != State::ready)
    release_group(*machine.block, machine.current / 32, machine.current);  // no other group waits for this lane
  if (me.state == State::in_warp) machine.wait();
}

unsigned lane() { return machine.current % 32; }

// Returns the lanes of the warp that call this at the same place, when no thread of the block can run.
unsigned converged(Site site) {
  Thread &me = machine.thread();
  me.state = State::converging;
  me.site = site;
  machine.wait();
  return me.mask;
}

bool release_converged(Block &block) {
  bool released = false;
  for (size_t first = 0; first < block.threads.size(); ++first) {
    const Site site = block.threads[first].site;
    if (block.threads[first].state != State::converging) continue;
    const size_t begin = first / 32 * 32, end = std::min(begin + 32, block.threads.size());
    const auto same = [&](size_t i) {
      const Thread &thread = block.threads[i];
      return thread.state == State::converging && thread.site.line() == site.line() &&
             thread.site.column() == site.column();
    };
    unsigned mask = 0;
    for (size_t i = begin; i < end; ++i) mask |= unsigned(same(i)) << (i - begin);
    for (size_t i = begin; i < end; ++i)
      if (mask >> (i - begin) & 1) block.threads[i].mask = mask, block.threads[i].state = State::ready;
    released = true;
  }
  return released;
}

// Returns the number of switches between threads, which grows but measures nothing.
long long clock() { return (long long)machine.switches; }

unsigned live_lanes() {
  const Block &block = *machine.block;
  const uint32_t begin = machine.current / 32 * 32;
  const uint32_t end = std::min<uint32_t>(begin + 32, uint32_t(block.threads.size()));
  unsigned mask = 0;
  for (uint32_t i = begin; i < end; ++i) mask |= unsigned(block.threads[i].state != State::done) << (i - begin);
  return mask;
}

}  // namespace emu
