#include "scheduler.hpp"

#include <algorithm>
#include <cstring>
#include <numeric>
#include <set>

#include "registers.hpp"

extern uint3 blockIdx;
extern dim3 blockDim, gridDim;

namespace emu {

namespace {

// Where a thread begins. It ends in `abort`, since a thread that is done is never resumed.
void thread_main() {
  machine.launch.entry->call(machine.launch.arguments);
  machine.checker.settle();
  Thread &thread = machine.thread();
  if (const AsyncCopy *copy = thread.copies.outstanding())
    machine.reports.add("copy-not-waited-for", "the thread ended with a cp.async that it never waited for", copy->pc);
  if (thread.async) thread.async->report_unfinished();
  thread.state = State::done;
  --machine.block->live;
  switch_context(thread.context, machine.main);
  std::abort();
}

// What an mbarrier still waits for.
std::string missing_at(const Block &block, unsigned address) {
  const Mbarrier &barrier = block.mbarriers.at(address);
  const std::string waits = " (an mbarrier that still waits for ", arrivals = counted(barrier.pending, "arrival");
  if (barrier.bytes < 0)
    return waits + arrivals + ", while " + counted(-barrier.bytes, "more byte") + " have landed than were announced)";
  return waits + counted(barrier.bytes, "byte") + " and " + arrivals + ")";
}

void enter(Block &block) {
  machine.block = &block;
  blockIdx = block.index;
}

}  // namespace

Scheduler::Scheduler(const Launch &launch) : launch_(launch), random_(launch.seed) {
  gridDim = launch.grid;
  blockDim = launch.block;
  machine.agents.clear();
}

void Scheduler::run() {
  machine.running = true;
  const std::vector<uint32_t> order = block_order();
  const size_t together = launch_.cooperative ? order.size() : launch_.cluster;
  machine.stacks.reserve(together * machine.threads_per_block);
  blocks_.resize(together);
  for (std::span<const uint32_t> left = order; !left.empty(); left = left.subspan(together))
    if (!run_together(left.first(together))) break;
  machine.running = false;
  machine.block = nullptr;
}

void Scheduler::arrange(std::vector<uint32_t> &numbers) {
  if (launch_.order == Order::reverse) std::reverse(numbers.begin(), numbers.end());
  if (launch_.order == Order::random) std::shuffle(numbers.begin(), numbers.end(), random_);
}

// The blocks of a cluster, which are neighbours along x, stay together.
std::vector<uint32_t> Scheduler::block_order() {
  const uint32_t size = launch_.cluster;
  std::vector<uint32_t> clusters, order;
  if (launch_.sample.empty()) {
    clusters.resize(size_t(launch_.grid.x) * launch_.grid.y * launch_.grid.z / size);
    std::iota(clusters.begin(), clusters.end(), 0);
  }
  for (const auto &[cluster, weight] : launch_.sample) clusters.push_back(cluster);
  arrange(clusters);
  for (uint32_t cluster : clusters) {
    std::vector<uint32_t> blocks(size);
    std::iota(blocks.begin(), blocks.end(), cluster * size);
    arrange(blocks);
    order.insert(order.end(), blocks.begin(), blocks.end());
  }
  return order;
}

bool Scheduler::run_together(std::span<const uint32_t> linear) {
  begin(linear);
  for (;;) {
    bool progress = false;
    if (!take_turns(progress)) return false;
    if (std::none_of(blocks_.begin(), blocks_.end(), [](const Block &block) { return block.live; })) return true;
    if (!release_barriers() && !progress) return end_stuck();
  }
}

bool Scheduler::take_turns(bool &progress) {
  const bool alone = blocks_.size() == 1;
  for (Block &block : blocks_) {
    if (!block.live || block.at_grid == block.live) continue;
    const uint64_t before = machine.switches;
    if (!alone) enter(block), restore_shared(block.shared);
    const Stop stop = run(block);
    if (!alone) save_shared(block.shared);
    if (stop == Stop::aborted) return false;
    if (stop == Stop::grid_barrier && !launch_.cooperative)
      machine.reports.add("launch", "a grid barrier in a launch that is not cooperative", 0, &block.threads[0].site);
    // Without clusters, no other block can help.
    if (stop == Stop::stuck && launch_.cluster == 1 && block.at_cluster < block.live) return end_stuck();
    progress |= machine.switches != before;
  }
  return true;
}

bool Scheduler::release_barriers() {
  bool released = false;
  for (Cluster &cluster : clusters_) released |= release_cluster_barrier(cluster);
  const auto waits = [](const Block &block) { return block.at_grid == block.live; };
  if (!launch_.cooperative || !std::all_of(blocks_.begin(), blocks_.end(), waits)) return released;
  release_grid_barrier(blocks_);
  return true;
}

// No block can continue: reports the first block that should.
bool Scheduler::end_stuck() {
  const auto stuck = std::find_if(blocks_.begin(), blocks_.end(),
                                  [](const Block &block) { return block.live && block.at_grid < block.live; });
  if (stuck != blocks_.end()) {
    enter(*stuck);
    report_deadlock(*stuck);
  }
  return false;
}

void Scheduler::begin(std::span<const uint32_t> linear) {
  const uint32_t size = launch_.cluster;
  clusters_.assign(linear.size() / size, Cluster{});
  for (size_t i = 0; i < linear.size(); ++i) {
    Cluster &cluster = clusters_[i / size];
    cluster.number = linear[i] / size;
    cluster.first_block = cluster.number * size;
    cluster.blocks.resize(size);
    blocks_[i].cluster = &cluster;
    blocks_[i].rank = linear[i] % size;
    cluster.blocks[blocks_[i].rank] = &blocks_[i];
    begin(blocks_[i], linear[i], i * machine.threads_per_block);
    if (linear.size() > 1) save_shared(blocks_[i].shared);
  }
}

void Scheduler::begin(Block &block, uint32_t linear, size_t first_stack) {
  const dim3 &grid = launch_.grid, &size = launch_.block;
  const uint32_t count = machine.threads_per_block;
  block.linear = linear;
  block.first_thread = linear * count;
  block.index = {linear % grid.x, linear / grid.x % grid.y, linear / grid.x / grid.y};
  block.threads.clear();
  block.threads.resize(count);
  EMU_COUNTING(block.traces.assign((count + 31) / 32, {});
               for (Thread &thread : block.threads) thread.reached.assign(emu_multiply_add_count, 0);)
  for (uint32_t i = 0; i < count; ++i)
    block.threads[i].index = {i % size.x, i / size.x % size.y, i / size.x / size.y};
  block.order.resize(count);
  std::iota(block.order.begin(), block.order.end(), 0);
  if (launch_.order == Order::reverse) std::reverse(block.order.begin(), block.order.end());
  shuffle(block);
  block.clocks.assign(size_t(count) * 32, 0);
  block.live = count;
  block.at_barrier = block.at_grid = block.at_cluster = 0;
  block.mbarriers.clear();
  block.named = {};
  block.warpgroups.clear();
  block.free_registers = 0;
  block.synchronised = ++machine.time;
  block.first_stack = first_stack;
  poison_shared();
  enter(block);
}

void Scheduler::shuffle(Block &block) {
  if (launch_.order == Order::random) std::shuffle(block.order.begin(), block.order.end(), random_);
}

Stop Scheduler::run(Block &block) {
  for (;;) {
    const bool progress = run_ready(block);
    if (machine.aborted) return Stop::aborted;
    if (!block.live) {
      report_abandoned(block);
      EMU_COUNTING(machine.counter.end_block();)
      return Stop::finished;
    }
    if (block.at_grid == block.live) return Stop::grid_barrier;
    if (block.at_barrier == block.live) {
      release_block_barrier(block);
      shuffle(block);
      continue;
    }
    if (progress || release_converged(block) || land_next(block, launch_.order, random_)) continue;
    const bool anybody = std::any_of(block.threads.begin(), block.threads.end(),
                                     [](const Thread &t) { return t.state == State::ready; });
    if (anybody) return Stop::spinning;
    bool released = false;  // threads that ended may have completed a group of lanes
    for (uint32_t warp = 0; warp * 32 < machine.threads_per_block; ++warp) released |= release_warp(block, warp);
    if (!released) return Stop::stuck;
  }
}

// Gives one turn to each thread that can run. Returns false if they all only yielded.
bool Scheduler::run_ready(Block &block) {
  bool progress = false;
  for (uint32_t thread : block.order) {
    if (block.threads[thread].state != State::ready) continue;
    block.threads[thread].yielded = false;
    resume(block, thread);
    if (machine.aborted) return false;
    progress |= !block.threads[thread].yielded;
  }
  return progress;
}

void Scheduler::resume(Block &block, uint32_t i) {
  Thread &thread = block.threads[i];
  machine.make_current(i);
  ++machine.switches;
  if (!thread.started) {
    // NaN or, in reverse order, a large number: NaN stays hidden if the kernel compares it, or replaces it by 0.
    const unsigned char poison = launch_.order == Order::reverse ? 0x4b : 0xff;
    prepare(thread.context, machine.stacks[block.first_stack + i], Stacks::size, thread_main, poison);
    thread.started = true;
  }
  switch_context(machine.main, thread.context);
}

void Scheduler::report_deadlock(Block &block) {
  std::string waits;
  std::set<unsigned> lines;
  const Thread *first = nullptr;
  for (uint32_t i = 0; i < block.threads.size(); ++i) {
    const Thread &thread = block.threads[i];
    if (thread.state == State::done) continue;
    if (!first) first = &thread, machine.make_current(i);
    if (!lines.insert(thread.site.line()).second) continue;
    waits += (waits.empty() ? "line " : ", line ") + std::to_string(thread.site.line());
    if (thread.state == State::at_mbarrier) waits += missing_at(block, thread.waits_for);
    if (thread.state == State::at_registers) waits += registers_missing(block, i);
  }
  const auto exited = block.threads.size() - block.live;
  const std::string what = std::to_string(block.live) + " threads wait for each other at " + waits + "; " +
                           std::to_string(exited) + " have exited";
  machine.reports.add("deadlock", what, 0, &first->site);
}

}  // namespace emu
