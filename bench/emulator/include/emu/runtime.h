// What compiled kernels call in the runtime (bench/emulator/runtime). It never reaches a GPU: no .cu uses any of it,
// except for `emu::dyn_smem`, through DYN_SHARED.
#pragma once
#include <cstddef>
#include <cstdint>
#include <source_location>
#include <type_traits>

#include "tensor_map.h"
#include "vector_types.h"

namespace emu {

using Site = std::source_location;

// Called once per warp collective, by the last lane to arrive: `lanes[i]` is lane i's payload where bit i of `present`
// is set.
using Combine = void (*)(void **lanes, unsigned present);

enum class Reduction { count, all, any };

void *dyn_smem();
void block_barrier(Site site);
int block_reduce(Reduction reduction, bool predicate, Site site);
void grid_barrier(Site site);
void warp_collective(unsigned mask, void *payload, Combine combine, bool orders_memory, Site site);

// Lets the other threads run first: a spinning thread calls it, so that the one it waits for can run.
void yield();

unsigned lane();
unsigned converged(Site site);
long long clock();
bool is_shared(const void *pointer);
[[noreturn]] void trap(Site site);
void misuse(const char *kind, const char *message, Site site);

// Report accesses that the compiler does not instrument. The report names the return address.
void note_read(const void *address, size_t bytes);
void note_write(void *address, size_t bytes);
void note_atomic(void *address, size_t bytes);
// A compare and swap is about to compare with these bytes.
void note_compared(const void *address, const void *expected, size_t bytes);

// A loop has gone round so many times.
void note_trips(const char *head, unsigned trips, Site site);

// Stands around a loop whose trips are counted (bench/emulator/loops.py), also in a function that is constexpr.
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

// The 32-bit window of shared memory that PTX addresses: the block's rank in its cluster << 24, plus the offset in the
// block. The last two take an address of the running block.
unsigned shared_address(const void *pointer, Site site);
unsigned shared_offset(unsigned address, Site site);
void *shared_pointer(unsigned address, Site site);
void *shared_at(unsigned offset);
// Where the running block reaches the shared memory of any block of its cluster, until either of them ends.
void *cluster_pointer(unsigned address, Site site);
void *map_shared(const void *pointer, unsigned rank, Site site);

// cp.async: the bytes move no earlier than the wait that covers them; of `bytes`, those past `source_bytes` are zeros.
void copy_async(void *destination, const void *source, unsigned bytes, unsigned source_bytes, Site site);
void commit_copies();
void wait_copies(unsigned pending, Site site);

// mbarriers, given by their address in the window. `rank` is a block of the cluster, or `own_block`.
constexpr unsigned own_block = ~0u;
void mbarrier_init(unsigned barrier, unsigned arrivals, Site site);
void mbarrier_arrive(unsigned barrier, unsigned rank, unsigned expected_bytes, Site site);
unsigned mbarrier_parity(unsigned barrier, Site site);  // of the phase that is not yet complete
void mbarrier_wait(unsigned barrier, unsigned parity, Site site);
void fence_mbarrier_init();
void fence_proxy_async();

// The TMA: bytes land when a thread waits for them and no other thread can run. mask: blocks of the cluster, 0 for own.
// Of images, a corner is channel, column, row and image of the first pixel, and its distance to the tap's, in columns
// and rows.
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

// wgmma: operands are read, and sums appear in `d`, of floats or ints, at the wait that covers them.
enum class OperandType { f16, bf16, tf32, e4m3, e5m2, s8 };
struct WarpgroupProduct {
  OperandType type;
  unsigned n;
  uint64_t a, b;
  bool mn_major_a, mn_major_b, accumulate;
  bool a_in_registers = false;
};
// a: the thread's registers of A, where they hold it.
void wgmma(void *d, const WarpgroupProduct &product, Site site, const uint32_t *a = nullptr);
void wgmma_fence();
void wgmma_commit();
void wgmma_wait(unsigned pending);

// Changes the registers of each thread of a warpgroup, out of those of its block.
void setmaxnreg(unsigned count, bool increases, Site site);

// One kernel of the translation unit: its name expression, and how to call it.
struct Entry {
  const char *name;
  void (*call)(void **arguments);
  int (*sizes)(int *out);  // writes the bytes of each argument, -1 for a pointer; returns their number
  const void *kernel;
};

// Defined at the end of the generated translation unit.
extern const Entry *const entries;
extern const int entry_count;

}  // namespace emu
