#include <algorithm>
#include <cstdlib>
#include <cstring>

#include "scheduler.hpp"

namespace emu {

namespace {

bool same_place(const Site &a, const Site &b) {
  return a.line() == b.line() && a.column() == b.column() && !std::strcmp(a.file_name(), b.file_name());
}

// Called when all live threads wait: checks whether they wait at the same barrier, and whether others have exited.
void judge_barrier(Block &block) {
  const auto waits = [](const Thread &t) { return t.state != State::done; };
  const auto first = std::find_if(block.threads.begin(), block.threads.end(), waits);
  const auto odd = std::find_if(first, block.threads.end(), [&](const Thread &t) {
    return waits(t) && !same_place(t.site, first->site);
  });
  if (odd != block.threads.end()) {
    machine.make_current(uint32_t(odd - block.threads.begin()));
    const std::string lines =
        "line " + std::to_string(first->site.line()) + " and line " + std::to_string(odd->site.line());
    Report *report = machine.reports.add(
        "barrier-divergence", "threads of one block wait at different barriers: " + lines, 0, &odd->site);
    if (report) report->has_other = true, report->other = {block.index, first->index};
  }
  if (block.live == block.threads.size()) return;
  machine.make_current(uint32_t(first - block.threads.begin()));
  const auto gone = std::find_if_not(block.threads.begin(), block.threads.end(), waits);
  const std::string what = std::to_string(block.threads.size() - block.live) + " of " +
                           std::to_string(block.threads.size()) + " threads had exited when the others synchronised";
  Report *report = machine.reports.add("early-exit", what, 0, &first->site);
  if (report) report->has_other = true, report->other = {block.index, gone->index};
}

void arrive(State state, Site site) {
  Thread &thread = machine.thread();
  thread.state = state;
  thread.site = site;
  machine.wait();
}

std::vector<Thread *> those(Block &block, State state) {
  std::vector<Thread *> found;
  for (Thread &thread : block.threads)
    if (thread.state == state) found.push_back(&thread);
  return found;
}

}  // namespace

void release_block_barrier(Block &block) {
  EMU_COUNTING(machine.counter.meet_all();)
  judge_barrier(block);
  share_knowledge(those(block, State::at_block_barrier));
  int count = 0;
  for (const Thread &thread : block.threads) count += thread.state == State::at_block_barrier && thread.predicate;
  for (Thread &thread : block.threads) {
    if (thread.state != State::at_block_barrier) continue;
    thread.state = State::ready;
    thread.result = thread.reduction == Reduction::count ? count
                    : thread.reduction == Reduction::all ? count == int(block.live)
                                                         : count > 0;
  }
  block.at_barrier = 0;
  block.synchronised = ++machine.time;
}

void release_grid_barrier(std::vector<Block> &blocks) {
  for (Block &block : blocks) {
    if (!block.live) continue;
    machine.block = &block;
    judge_barrier(block);
    for (Thread &thread : block.threads)
      if (thread.state == State::at_grid_barrier) thread.state = State::ready;
    block.at_grid = 0;
  }
  machine.grid_synchronised = ++machine.time;
}

bool release_cluster_barrier(Cluster &cluster) {
  bool anybody = false;
  for (const Block *block : cluster.blocks) {
    if (block->at_cluster < block->live) return false;
    anybody |= block->live > 0;
  }
  if (!anybody) return false;
  // Each thread is now ordered after everything that any of them has done or was ordered after.
  ++machine.time;
  std::vector<Thread *> waiting;
  for (Block *block : cluster.blocks) {
    for (Thread *thread : those(*block, State::at_cluster_barrier)) waiting.push_back(thread);
    block->at_cluster = 0;
    block->synchronised = machine.time;
  }
  share_knowledge(waiting);
  const auto now = std::make_shared<const Clock>(cluster.threads(), machine.time);
  learn(*waiting.front(), now);
  for (Thread *thread : waiting) {
    thread->known = waiting.front()->known;
    thread->state = State::ready;
  }
  return true;
}

void cluster_barrier(Site site) {
  EMU_COUNTING(machine.counter.reach(Does::barrier, site.file_name(), site.line());)
  ++machine.block->at_cluster;
  arrive(State::at_cluster_barrier, site);
}

unsigned cluster_rank() { return machine.block->rank; }
unsigned cluster_size() { return machine.launch.cluster; }

void named_barrier(unsigned id, unsigned threads, Site site) {
  EMU_COUNTING(machine.counter.reach(Does::barrier, site.file_name(), site.line());)
  Block &block = *machine.block;
  if (id == 0 || id >= block.named.size() || threads == 0 || threads % 32) {
    misuse("barrier-divergence", "a named barrier takes an id from 1 to 15 and a multiple of 32 threads", site);
    machine.abort_run();
  }
  NamedBarrier &barrier = block.named[id];
  if (barrier.arrived && barrier.threads != threads)
    misuse("barrier-divergence", "threads pass different thread counts to one named barrier", site);
  barrier.threads = threads;
  join(barrier.arriving, release());
  machine.thread().waits_for = id;
  if (++barrier.arrived < barrier.threads) {
    arrive(State::at_named_barrier, site);
    return;
  }
  const auto known = std::make_shared<const Clock>(std::move(barrier.arriving));
  learn(machine.thread(), known);
  for (Thread *thread : those(block, State::at_named_barrier)) {
    if (thread->waits_for != id) continue;
    learn(*thread, known);
    thread->state = State::ready;
  }
  barrier = {};
}

void block_barrier(Site site) { block_reduce(Reduction::count, false, site); }

int block_reduce(Reduction reduction, bool predicate, Site site) {
  EMU_COUNTING(machine.counter.reach(Does::barrier, site.file_name(), site.line());)
  Thread &thread = machine.thread();
  thread.reduction = reduction;
  thread.predicate = predicate;
  ++machine.block->at_barrier;
  arrive(State::at_block_barrier, site);
  return thread.result;
}

void grid_barrier(Site site) {
  EMU_COUNTING(machine.counter.reach(Does::barrier, site.file_name(), site.line());)
  ++machine.block->at_grid;
  arrive(State::at_grid_barrier, site);
}

void yield() {
  machine.thread().yielded = true;
  machine.wait();
}

void trap(Site site) {
  machine.reports.add("trap", "__trap()", 0, &site);
  machine.abort_run();
}

void misuse(const char *kind, const char *message, Site site) { machine.reports.add(kind, message, 0, &site); }

}  // namespace emu

// A failing assert of the C library calls this.
extern "C" [[noreturn]] void __assert_fail(const char *condition, const char *, unsigned, const char *) noexcept {
  emu::machine.reports.add("trap", "assert(" + std::string(condition) + ")", uintptr_t(__builtin_return_address(0)) - 1);
  emu::machine.abort_run();
}
