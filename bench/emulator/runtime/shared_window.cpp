// PTX addresses shared memory by 32 bits: the block's rank in its cluster, and 24 bits of offset. The descriptors of
// wgmma hold 18 of the offset's bits.
#include "machine.hpp"

namespace emu {

namespace {

constexpr unsigned rank_shift = 24;

unsigned window_of(const char *at, Site site) {
  if (at >= machine.static_shared && at <= machine.static_shared + machine.static_bytes)
    return machine.static_window + unsigned(at - machine.static_shared);
  if (machine.dynamic_shared && at >= machine.dynamic_shared && at <= machine.dynamic_shared + machine.dynamic_bytes)
    return machine.dynamic_window + unsigned(at - machine.dynamic_shared);
  machine.reports.add("shared-address", "the pointer does not point into shared memory", 0, &site);
  machine.abort_run();
}

}  // namespace

bool is_shared(const void *pointer) {
  const auto at = static_cast<const char *>(pointer);
  return (at >= machine.static_shared && at < machine.static_shared + machine.static_bytes) ||
         (machine.dynamic_shared && at >= machine.dynamic_shared && at < machine.dynamic_shared + machine.dynamic_bytes);
}

void *dyn_smem() { return machine.dynamic_shared; }

unsigned shared_address(const void *pointer, Site site) {
  if (const Remote remote = find_remote(uintptr_t(pointer)); remote.host)
    return remote.host->rank << rank_shift | window_of(reinterpret_cast<const char *>(remote.own), site);
  return machine.block->rank << rank_shift | window_of(static_cast<const char *>(pointer), site);
}

void *cluster_pointer(unsigned address, Site site) {
  const unsigned rank = address >> rank_shift;
  const auto own = static_cast<char *>(shared_at(address & ((1u << rank_shift) - 1)));
  if (rank == machine.block->rank) return own;
  if (rank < machine.launch.cluster) return in_image(*machine.block->cluster->blocks[rank], own);
  const std::string size = std::to_string(machine.launch.cluster), what = "an address in block " + std::to_string(rank);
  machine.reports.add("shared-address", what + " of a cluster of " + size + " blocks, numbered from 0", 0, &site);
  machine.abort_run();
}

void *map_shared(const void *pointer, unsigned rank, Site site) {
  return cluster_pointer(rank << rank_shift | window_of(static_cast<const char *>(pointer), site), site);
}

unsigned shared_offset(unsigned address, Site site) {
  const unsigned rank = address >> rank_shift, own = machine.block->rank;
  if (rank != own) {
    const std::string what = "the address is in the shared memory of block " + std::to_string(rank) +
                             " of the cluster, and block " + std::to_string(own) + " uses it as its own";
    machine.reports.add("shared-address", what, 0, &site);
    machine.abort_run();
  }
  return address & ((1u << rank_shift) - 1);
}

void *shared_pointer(unsigned address, Site site) { return shared_at(shared_offset(address, site)); }

void *shared_at(unsigned offset) {
  if (offset >= machine.static_window) return machine.static_shared + (offset - machine.static_window);
  return machine.dynamic_shared + (ptrdiff_t(offset) - ptrdiff_t(machine.dynamic_window));
}

}  // namespace emu
