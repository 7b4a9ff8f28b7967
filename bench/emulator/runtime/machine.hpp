// The emulated device: its threads, its clock and its memory. There is one per process.
#pragma once
#include <map>
#include <memory>
#include <string>
#include <tuple>
#include <vector>

#include "async_copy.hpp"
#include "async_proxy.hpp"
#include "checker.hpp"
#include "clocks.hpp"
#include "counter.hpp"
#include "fiber.hpp"
#include "mbarrier.hpp"
#include "memory.hpp"
#include "report.hpp"
#include "wgmma.hpp"

namespace emu {

enum class State : uint8_t {
  ready, done, in_warp, converging, in_warpgroup,
  at_block_barrier, at_grid_barrier, at_cluster_barrier, at_named_barrier, at_mbarrier, at_registers
};

struct Thread {
  Context context;
  State state = State::ready;
  bool started = false, yielded = false;
  uint3 index{};
  Site site;               // where it waits
  unsigned waits_for = 0;  // the mbarrier's offset in shared memory or the named barrier's number
  // What it passed to the barrier or the warp collective at which it waits.
  unsigned mask = 0;
  void *payload = nullptr;
  Combine combine = nullptr;
  bool orders_memory = false, predicate = false;
  Reduction reduction = Reduction::count;
  int result = 0;
  AsyncCopies copies;
  SharedClock known;                  // what orders it, except barriers of the block and its warp; may be null
  std::unique_ptr<AsyncProxy> async;  // null until it is used
  EMU_COUNTING(std::vector<uint32_t> reached;)

  AsyncProxy &async_proxy() {
    if (!async) async = std::make_unique<AsyncProxy>();
    return *async;
  }
};

// The shared memory of a block that is not running, and its shadow.
struct SharedImage {
  std::vector<char> bytes;
  std::vector<Shadow> shadows;
};

// Another block of the cluster, and the place with the same offset in the running block's shared memory.
struct Remote {
  Block *host = nullptr;
  uintptr_t own = 0;
};
// Returns the block whose image has this address; without a host if no image has it.
Remote find_remote(uintptr_t address);
void *in_image(Block &host, const char *own);

struct NamedBarrier {
  unsigned threads = 0, arrived = 0;
  Clock arriving;
};

// Blocks that are resident together and can arrive at each other's barriers; without clusters, a single block.
struct Cluster {
  uint32_t number = 0, first_block = 0;
  uint32_t agents = 0;          // created so far
  std::vector<Block *> blocks;  // by rank

  size_t threads() const;
};

struct Block {
  uint32_t linear = 0, rank = 0;
  uint32_t first_thread = 0;  // in the grid
  Cluster *cluster = nullptr;
  uint3 index{};
  std::vector<Thread> threads;
  std::vector<uint32_t> order;  // in which the threads run
  // clocks[a * 32 + b % 32], b in the warp of a: what thread b did before that time is ordered before what a does now.
  std::vector<uint32_t> clocks;
  uint32_t synchronised = 0;  // time of the last barrier of the block
  uint32_t live = 0, at_barrier = 0, at_grid = 0, at_cluster = 0;
  size_t first_stack = 0;
  unsigned free_registers = 0;  // that setmaxnreg has released
  SharedImage shared;
  Mbarriers mbarriers;
  std::array<NamedBarrier, 16> named;
  std::vector<std::unique_ptr<Warpgroup>> warpgroups;
  EMU_COUNTING(std::vector<WarpTrace> traces;)
};

enum class Order : uint8_t { forward, reverse, random };

struct Launch {
  const Entry *entry = nullptr;
  void **arguments = nullptr;
  dim3 grid, block;
  size_t shared_bytes = 0;
  bool cooperative = false;
  unsigned cluster = 1;
  Order order = Order::forward;
  uint64_t seed = 0;
  // The clusters that run, each with the number of clusters that it represents; if it is empty, all run.
  std::map<uint32_t, uint32_t> sample;
};

struct Machine {
  Memory memory;
  Stacks stacks;
  Checker checker;
  Reports reports;
  EMU_COUNTING(Counter counter;)

  Launch launch;
  Context main;
  Block *block = nullptr;      // the running block
  uint32_t current = 0;        // the running thread in it
  uint32_t me = 0;             // the running thread in the grid
  bool running = false;        // a kernel is running, not the runtime or the code between launches
  bool aborted = false;
  uint32_t threads_per_block = 0;
  uint32_t time = 1;              // advances at every synchronisation
  uint32_t grid_synchronised = 0;  // time of the last barrier of the grid
  uint64_t switches = 0;
  std::vector<Agent> agents;  // of this launch
  std::map<std::tuple<const char *, unsigned, const char *>, unsigned> trips;  // the most iterations, by loop

  char *static_shared = nullptr, *dynamic_shared = nullptr;
  unsigned static_window = 0, dynamic_window = 0;  // their addresses for PTX
  size_t static_bytes = 0, dynamic_bytes = 0;
  std::vector<Region *> shared_regions;  // one for each variable, and one for dynamic shared memory

  Thread &thread() { return block->threads[current]; }
  Who who() const;
  Who who(uint32_t global_thread) const;
  // Whether a barrier orders an earlier event before what the running thread does now. The struct Now
  // in checker.cpp repeats the first of these tests.
  bool ordered(const Event &earlier) const;
  void make_current(uint32_t thread);
  // Returns to the scheduler until the thread is ready again.
  void wait();
  [[noreturn]] void abort_run();
};

extern Machine machine;

inline size_t Cluster::threads() const { return blocks.size() * machine.threads_per_block; }

inline bool Machine::ordered(const Event &earlier) const {
  if (earlier.thread == me || earlier.time < grid_synchronised) return true;
  const uint32_t other = earlier.thread - block->first_thread;
  if (other < threads_per_block) {
    if (earlier.time < block->synchronised) return true;
    if (other / 32 == current / 32 && earlier.time < block->clocks[current * 32 + other % 32]) return true;
  }
  return block->threads[current].known && knows(earlier);
}

// While this exists, the checker sees the shadow of another block's shared memory instead of the running block's. The
// bytes are not exchanged.
class VisitShared {
 public:
  explicit VisitShared(Block &host) : host_(&host == machine.block ? nullptr : &host) { swap(); }
  ~VisitShared() { swap(); }
  VisitShared(const VisitShared &) = delete;

 private:
  void swap() {
    for (size_t i = 0; host_ && i < machine.shared_regions.size(); ++i)
      machine.shared_regions[i]->shadow.swap(host_->shared.shadows[i]);
  }
  Block *host_;
};

}  // namespace emu
