#include "scheduler.hpp"

#include <algorithm>
#include <cstring>
#include <numeric>

extern uint3 blockIdx;
extern dim3 blockDim, gridDim;

namespace emu {

namespace {

// Where a thread begins. It ends in `abort` because nobody resumes a thread that is done.
void thread_main() {
  machine.launch.entry->call(machine.launch.arguments);
  Thread &thread = machine.thread();
  if (const AsyncCopy *copy = thread.copies.outstanding())
    machine.reports.add("copy-not-waited-for", "the thread ended with a cp.async that it never waited for", copy->pc);
  thread.state = State::done;
  --machine.block->live;
  switch_context(thread.context, machine.main);
  std::abort();
}

void copy_shared(char *to, const char *from, size_t bytes) {
  if (bytes) std::memcpy(to, from, bytes);
}

// A block that waits for the grid lends the shared memory to the next.
void save_shared(SharedImage &image) {
  image.bytes.resize(machine.static_bytes + machine.dynamic_bytes);
  copy_shared(image.bytes.data(), machine.static_shared, machine.static_bytes);
  copy_shared(image.bytes.data() + machine.static_bytes, machine.dynamic_shared, machine.dynamic_bytes);
  image.shadows.clear();
  for (Region *region : machine.shared_regions) image.shadows.push_back(std::move(region->shadow));
}

void restore_shared(SharedImage &image) {
  copy_shared(machine.static_shared, image.bytes.data(), machine.static_bytes);
  copy_shared(machine.dynamic_shared, image.bytes.data() + machine.static_bytes, machine.dynamic_bytes);
  size_t i = 0;
  for (Region *region : machine.shared_regions) region->shadow = std::move(image.shadows[i++]);
}

// Shared memory holds garbage when a block begins: here NaN, and uninitialised to the checker.
void poison_shared() {
  if (machine.static_bytes) std::memset(machine.static_shared, 0xff, machine.static_bytes);
  if (machine.dynamic_bytes) std::memset(machine.dynamic_shared, 0xff, machine.dynamic_bytes);
  for (Region *region : machine.shared_regions) region->forget(false);
}

void enter(Block &block) {
  machine.block = &block;
  blockIdx = block.index;
}

}  // namespace

Scheduler::Scheduler(const Launch &launch) : launch_(launch), random_(launch.seed) {
  gridDim = launch.grid;
  blockDim = launch.block;
}

void Scheduler::run() {
  machine.running = true;
  launch_.cooperative ? run_together() : run_one_by_one();
  machine.running = false;
  machine.block = nullptr;
}

std::vector<uint32_t> Scheduler::block_order() {
  std::vector<uint32_t> order(size_t(launch_.grid.x) * launch_.grid.y * launch_.grid.z);
  std::iota(order.begin(), order.end(), 0);
  if (launch_.order == Order::reverse) std::reverse(order.begin(), order.end());
  if (launch_.order == Order::random) std::shuffle(order.begin(), order.end(), random_);
  return order;
}

void Scheduler::run_one_by_one() {
  machine.stacks.reserve(machine.threads_per_block);
  Block block;
  for (uint32_t linear : block_order()) {
    begin(block, linear, 0);
    Stop stop = run(block);
    while (stop == Stop::spinning) stop = run(block);  // no other block can help: until the time limit
    if (stop == Stop::grid_barrier)
      machine.reports.add("launch", "a grid barrier in a launch that is not cooperative", 0, &block.threads[0].site);
    if (stop == Stop::stuck) report_deadlock(block);
    if (stop != Stop::finished) return;
  }
}

// Blocks of a cooperative launch are all resident: each runs until it waits for the grid, then lends its place.
void Scheduler::run_together() {
  const std::vector<uint32_t> order = block_order();
  machine.stacks.reserve(order.size() * machine.threads_per_block);
  std::vector<Block> blocks(order.size());
  for (size_t i = 0; i < blocks.size(); ++i) {
    begin(blocks[i], order[i], i * machine.threads_per_block);
    save_shared(blocks[i].shared);
  }
  for (size_t left = blocks.size(); left;) {
    bool progress = false;
    size_t waiting = 0;
    for (Block &block : blocks) {
      if (block.live && block.at_grid < block.live) {
        enter(block);
        restore_shared(block.shared);
        const Stop stop = run(block);
        save_shared(block.shared);
        if (stop == Stop::stuck) report_deadlock(block);
        if (stop == Stop::stuck || stop == Stop::aborted) return;
        progress = true;
        left -= stop == Stop::finished;
      }
      waiting += block.live && block.at_grid == block.live;
    }
    if (left && waiting == left) release_grid_barrier(blocks);
    else if (!progress) return;
  }
}

void Scheduler::begin(Block &block, uint32_t linear, size_t first_stack) {
  const dim3 &grid = launch_.grid, &size = launch_.block;
  const uint32_t count = machine.threads_per_block;
  block.linear = linear;
  block.index = {linear % grid.x, linear / grid.x % grid.y, linear / grid.x / grid.y};
  block.threads.assign(count, Thread{});
  for (uint32_t i = 0; i < count; ++i)
    block.threads[i].index = {i % size.x, i / size.x % size.y, i / size.x / size.y};
  block.order.resize(count);
  std::iota(block.order.begin(), block.order.end(), 0);
  if (launch_.order == Order::reverse) std::reverse(block.order.begin(), block.order.end());
  shuffle(block);
  block.clocks.assign(size_t(count) * 32, 0);
  block.live = count;
  block.at_barrier = block.at_grid = 0;
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
    if (!block.live) return Stop::finished;
    if (block.at_grid == block.live) return Stop::grid_barrier;
    if (block.at_barrier == block.live) {
      release_block_barrier(block);
      shuffle(block);
      continue;
    }
    if (progress) continue;
    const bool anybody = std::any_of(block.threads.begin(), block.threads.end(),
                                     [](const Thread &t) { return t.state == State::ready; });
    if (anybody) return Stop::spinning;
    bool released = false;  // threads that ended may have left a group of lanes complete
    for (uint32_t warp = 0; warp * 32 < machine.threads_per_block; ++warp) released |= release_warp(block, warp);
    if (!released) return Stop::stuck;
  }
}

// One turn for each thread that can run. False if all that any of them did was to yield.
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
    prepare(thread.context, machine.stacks[block.first_stack + i], Stacks::size, thread_main);
    thread.started = true;
  }
  switch_context(machine.main, thread.context);
}

void Scheduler::report_deadlock(Block &block) {
  std::string waits;
  const Thread *first = nullptr;
  for (uint32_t i = 0; i < block.threads.size(); ++i) {
    const Thread &thread = block.threads[i];
    if (thread.state == State::done) continue;
    const std::string line = "line " + std::to_string(thread.site.line());
    if (!first) first = &thread, machine.make_current(i);
    if (waits.find(line) == std::string::npos) waits += (waits.empty() ? "" : ", ") + line;
  }
  const auto exited = block.threads.size() - block.live;
  const std::string what = std::to_string(block.live) + " threads wait for each other at " + waits + "; " +
                           std::to_string(exited) + " have exited";
  machine.reports.add("deadlock", what, 0, &first->site);
}

}  // namespace emu
