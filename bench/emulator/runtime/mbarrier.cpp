#include "mbarrier.hpp"

#include <algorithm>

#include "machine.hpp"
#include "tma.hpp"

namespace emu {

namespace {

constexpr unsigned width = 8;
constexpr unsigned most = (1u << 20) - 1;  // the most arrivals, and bytes, that a phase can count

[[noreturn]] void refuse(const char *what, unsigned address, Site site) {
  machine.reports.add("mbarrier", std::string(what) + " at shared address " + std::to_string(address), 0, &site);
  machine.abort_run();
}

bool waits_at(const Thread &thread, unsigned address) {
  return thread.state == State::at_mbarrier && thread.waits_for == address;
}

bool somebody_waits(const Block &block, unsigned address) {
  return std::any_of(block.threads.begin(), block.threads.end(), [&](const Thread &t) { return waits_at(t, address); });
}

size_t pick(size_t count, Order order, std::mt19937_64 &random) {
  return order == Order::forward ? 0 : order == Order::reverse ? count - 1 : random() % count;
}

void publish_own() {
  for (auto &[address, barrier] : machine.block->mbarriers)
    if (barrier.initialiser == machine.me) barrier.published = true;
}

// Bytes may land before they are announced, which makes the count negative, but not after the phase's last arrival.
void check_bytes(const Mbarrier &barrier, uintptr_t pc, const Site *site) {
  if (barrier.bytes >= (barrier.pending ? -int64_t(most) : 0)) return;
  const std::string what = std::to_string(-barrier.bytes) + " more bytes have landed than were announced";
  machine.reports.add("mbarrier", what + ", so the phase can never end", pc, site);
}

}  // namespace

Mbarrier &find_mbarrier(Block &block, unsigned address, uintptr_t pc, Site site) {
  if (address % width) refuse("an mbarrier must be aligned to 8 bytes; this one is", address, site);
  const auto found = block.mbarriers.find(address);
  if (found == block.mbarriers.end()) refuse("no mbarrier has been initialised", address, site);
  const VisitShared visit(block);
  machine.checker.access(uintptr_t(shared_at(address)), width, Access::atomic, pc);
  return found->second;
}

void end_phase_if_complete(Block &block, unsigned address, Mbarrier &barrier) {
  if (barrier.pending || barrier.bytes) return;
  ++barrier.phase;
  barrier.pending = barrier.arrivals;
  const size_t tma = block.cluster->threads() + machine.agents[barrier.agent & ~Agent::flag].slot;
  if (barrier.arriving.size() <= tma) barrier.arriving.resize(tma + 1);
  barrier.arriving[tma] = ++machine.time;
  barrier.completed = std::make_shared<const Clock>(barrier.arriving);
  for (Thread &thread : block.threads)
    if (waits_at(thread, address)) thread.state = State::ready;
}

bool land_next(Block &block, Order order, std::mt19937_64 &random) {
  std::vector<Mbarriers::value_type *> open;
  for (auto &entry : block.mbarriers)
    if (!entry.second.landings.empty() && somebody_waits(block, entry.first)) open.push_back(&entry);
  if (open.empty()) return false;
  auto &[address, barrier] = *open[pick(open.size(), order, random)];
  const size_t i = pick(barrier.landings.size(), order, random);
  land(barrier.landings[i], barrier.agent);
  barrier.bytes -= barrier.landings[i].map.bytes();
  check_bytes(barrier, barrier.landings[i].pc, nullptr);
  barrier.landings.erase(barrier.landings.begin() + ptrdiff_t(i));
  end_phase_if_complete(block, address, barrier);
  return true;
}

void report_abandoned(Block &block) {
  for (auto &[address, barrier] : block.mbarriers) {
    if (!barrier.landings.empty())
      machine.reports.add("copy-not-waited-for", "the block ended with a TMA load that no thread had waited for",
                          barrier.landings.front().pc);
    else if (barrier.bytes)
      machine.reports.add("mbarrier", "the block ended before " + std::to_string(barrier.bytes) +
                          " announced bytes had landed", 0, &barrier.site);
  }
}

void mbarrier_init(unsigned address, unsigned arrivals, Site site) {
  const auto pc = uintptr_t(__builtin_return_address(0)) - 1;
  address = shared_offset(address, site);
  if (address % width) refuse("an mbarrier must be aligned to 8 bytes; this one is", address, site);
  if (!arrivals || arrivals > most) refuse("an arrival count outside 1 to 2^20-1, of the mbarrier", address, site);
  const auto at = uintptr_t(shared_at(address));
  machine.checker.access(at, width, Access::write, pc);
  machine.checker.hold_barrier(at, width);
  Mbarrier &barrier = machine.block->mbarriers[address] = {};
  barrier.arrivals = barrier.pending = arrivals;
  barrier.agent = add_agent();
  barrier.initialiser = machine.me;
  barrier.site = site;
}

void fence_mbarrier_init() { publish_own(); }

void fence_proxy_async() {
  publish_own();
  machine.thread().async_proxy().fences.push_back(++machine.time);
}

void mbarrier_arrive(unsigned address, unsigned rank, unsigned expected_bytes, Site site) {
  EMU_COUNTING(machine.counter.reach(Does::barrier, site.file_name(), site.line());)
  const auto pc = uintptr_t(__builtin_return_address(0)) - 1;
  Block *target = machine.block;
  address = shared_offset(address, site);
  if (rank != own_block) {
    if (rank >= target->cluster->blocks.size())
      refuse("the cluster has no block of that rank; the arrival is for the mbarrier", address, site);
    target = target->cluster->blocks[rank];
    if (!target->live) {
      misuse("early-exit", "an arrival at an mbarrier of a block that has exited", site);
      return;
    }
  }
  Mbarrier &barrier = find_mbarrier(*target, address, pc, site);
  if (target != machine.block && !barrier.published)
    misuse("async-proxy", "a remote arrival at an mbarrier that no fence.mbarrier_init has published", site);
  if (!barrier.pending) refuse("more arrivals than a phase expects, at the mbarrier", address, site);
  barrier.bytes += expected_bytes;
  if (barrier.bytes > most) refuse("more than 2^20-1 bytes announced for one phase of the mbarrier", address, site);
  barrier.site = site;
  --barrier.pending;
  check_bytes(barrier, 0, &site);
  join(barrier.arriving, release());
  end_phase_if_complete(*target, address, barrier);
}

unsigned mbarrier_parity(unsigned address, Site site) {
  const auto pc = uintptr_t(__builtin_return_address(0)) - 1;
  return find_mbarrier(*machine.block, shared_offset(address, site), pc, site).phase % 2;
}

void mbarrier_wait(unsigned address, unsigned parity, Site site) {
  EMU_COUNTING(machine.counter.reach(Does::barrier, site.file_name(), site.line());)
  const auto pc = uintptr_t(__builtin_return_address(0)) - 1;
  Thread &me = machine.thread();
  address = shared_offset(address, site);
  if (parity > 1) refuse("a parity other than 0 and 1, in a wait for the mbarrier", address, site);
  // The reference into the map stays valid; after another init it refers to the new barrier.
  Mbarrier &barrier = find_mbarrier(*machine.block, address, pc, site);
  while (barrier.phase % 2 == parity) {
    me.state = State::at_mbarrier;
    me.waits_for = address;
    me.site = site;
    machine.wait();
  }
  learn(me, barrier.completed);
}

}  // namespace emu
