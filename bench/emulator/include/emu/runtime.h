// The functions of the runtime (bench/emulator/runtime) that compiled kernels call. They never reach a GPU: no .cu uses
// them, except for `emu::dyn_smem`, through DYN_SHARED.
#pragma once
#include <cstddef>
#include <cstdint>
#include <source_location>
#include <type_traits>

#include "tensor_map.h"
#include "vector_types.h"

namespace emu {

using Site = std::source_location;

// Called once per warp collective, by the last lane to arrive: `lanes[i]` is lane i's payload if bit i of `present`
// is set.
using Combine = void (*)(void **lanes, unsigned present);

enum class Reduction { count, all, any };

void *dyn_smem();
void block_barrier(Site site);
int block_reduce(Reduction reduction, bool predicate, Site site);
void grid_barrier(Site site);
void warp_collective(unsigned mask, void *payload, Combine combine, bool orders_memory, Site site);

// Lets the other threads run first. A spinning thread calls this, so that the thread that it waits for can run.
void yield();

unsigned lane();
unsigned converged(Site site);
long long clock();
bool is_shared(const void *pointer);
[[noreturn]] void trap(Site site);
void misuse(const char *kind, const char *message, Site site);

// Pass accesses that the compiler does not instrument to the checker, with the return address as their place.
void note_read(const void *address, size_t bytes);
void note_write(void *address, size_t bytes);
void note_atomic(void *address, size_t bytes);
// Announces that a compare-and-swap is about to compare with these bytes.
void note_compared(const void *address, const void *expected, size_t bytes);

// Records the number of iterations of a loop.
void note_trips(const char *head, unsigned trips, Site site);

// Surrounds a loop whose iterations are counted (bench/emulator/counters.py), also in a constexpr function.
struct Trips {
  const char *head;
  Site site;
  unsigned trips = 0;
  bool is_first = true;
  [[gnu::always_inline]] constexpr explicit Trips(const char *head, Site site = Site::current()) : head(head), site(site) {}
  [[gnu::always_inline]] constexpr ~Trips() {
    if (!std::is_constant_evaluated()) note_trips(head, trips, site);
  }
  [[gnu::always_inline]] constexpr bool once() { return is_first && !(is_first = false); }
  [[gnu::always_inline]] constexpr bool turn() { return ++trips; }
};

// PTX addresses shared memory by 32 bits: the block's rank in its cluster << 24, plus the offset in the block.
// shared_offset and shared_pointer take only addresses in the running block; shared_at takes an offset in it.
unsigned shared_address(const void *pointer, Site site);
unsigned shared_offset(unsigned address, Site site);
void *shared_pointer(unsigned address, Site site);
void *shared_at(unsigned offset);
// Return a pointer to the shared memory of any block of the cluster, valid until either block ends.
void *cluster_pointer(unsigned address, Site site);
void *map_shared(const void *pointer, unsigned rank, Site site);

// cp.async. The bytes move at the wait that covers them. Those after the first `source_bytes` are zeros.
void copy_async(void *destination, const void *source, unsigned bytes, unsigned source_bytes, Site site);
void commit_copies();
void wait_copies(unsigned pending, Site site);

// mbarriers, given by their 32-bit addresses. `rank` is a block of the cluster, or `own_block`.
constexpr unsigned own_block = ~0u;
void mbarrier_init(unsigned barrier, unsigned arrivals, Site site);
void mbarrier_arrive(unsigned barrier, unsigned rank, unsigned expected_bytes, Site site);
unsigned mbarrier_parity(unsigned barrier, Site site);  // of the phase that is not yet complete
void mbarrier_wait(unsigned barrier, unsigned parity, Site site);
void fence_mbarrier_init();
void fence_proxy_async();

// The TMA. Bytes land when a thread waits for them and no other thread can run. mask: blocks of the cluster, or 0 for
// the running block. For images, a corner is the channel, column, row and image of the first pixel; distance: from
// there to the pixel of the filter's tap, in columns and rows.
struct Corner {
  int x, y, z, image = 0;
  unsigned distance[2] = {};
};
void tma_load(unsigned destination, const TensorMap *map, Corner corner, unsigned barrier, unsigned mask, Site site);
void tma_load_im2col(unsigned destination, const TensorMap *map, Corner first, unsigned barrier, unsigned mask,
                     Site site);
void tma_store(const TensorMap *map, unsigned source, Corner corner, Site site);
void tma_store_commit();
void tma_store_wait_read(unsigned pending);

unsigned cluster_rank();
unsigned cluster_size();
void cluster_barrier(Site site);
void named_barrier(unsigned id, unsigned threads, Site site);

// wgmma. At the wait that covers a product, its operands are read, and its sums, floats or ints, appear in `d`.
enum class OperandType { f16, bf16, tf32, e4m3, e5m2, s8 };
struct WarpgroupProduct {
  OperandType type;
  unsigned n;
  uint64_t a, b;
  bool mn_major_a, mn_major_b, accumulate;
  bool a_in_registers = false;
};
// a: the thread's registers that hold A, or nullptr.
void wgmma(void *d, const WarpgroupProduct &product, Site site, const uint32_t *a = nullptr);
void wgmma_fence();
void wgmma_commit();
void wgmma_wait(unsigned pending);

// Changes the number of registers of a warpgroup's threads; they are taken from the block, or returned to it.
void setmaxnreg(unsigned count, bool increases, Site site);

// One kernel of the translation unit: its name expression, and how to call it.
struct Entry {
  const char *name;
  void (*call)(void **arguments);
  int (*sizes)(int *out);  // writes each argument's bytes, -1 for a pointer; returns how many there are
  const void *kernel;
};

// Defined at the end of the generated translation unit.
extern const Entry *const entries;
extern const int entry_count;

}  // namespace emu
