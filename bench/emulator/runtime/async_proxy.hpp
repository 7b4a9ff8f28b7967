// A thread's operations that are in flight in the async proxy, and its fences to that proxy.
#pragma once
#include <cstddef>
#include <cstdint>
#include <utility>
#include <vector>

#include "tma.hpp"

namespace emu {

struct Event;

// An array of sums on the thread's stack that has been passed to wgmma before.
struct SumRange {
  uintptr_t begin;
  size_t bytes;
  bool in_flight = true;

  bool overlaps(uintptr_t address, size_t count) const { return address < begin + bytes && begin < address + count; }
};

// Registers that hold A for a product that has been issued and not waited for.
struct LentRange {
  uintptr_t begin;
  size_t bytes;
  size_t product;  // its number in the warpgroup
};

// A store of a box that has been issued and has not yet read shared memory.
struct BulkStore {
  TensorMap map;
  Corner corner;
  unsigned source;
  uintptr_t pc;
};

struct AsyncProxy {
  std::vector<uint32_t> fences;  // times of fence.proxy.async

  struct StoreGroup {
    std::vector<BulkStore> stores;
    uint32_t time;  // of its commit
  };
  std::vector<BulkStore> open_stores;
  std::vector<StoreGroup> stores;
  uint32_t store_agent = 0;
  void wait_for_stores(size_t pending);

  struct ProductGroup {
    size_t products;  // that the warpgroup had issued at this commit
    uint32_t time;
  };
  std::vector<SumRange> sums;
  std::vector<LentRange> lent;
  std::vector<std::pair<uintptr_t, uintptr_t>> touched;  // ranges of the stack, since the last wgmma.fence
  std::vector<ProductGroup> groups;
  bool has_fenced_sums = false;
  uintptr_t last_product = 0;  // the instruction that issued it
  bool is_fenced(uintptr_t begin, size_t bytes) const;
  void fence_sums();
  void hand_over(uintptr_t begin, size_t bytes);
  void hand_back(uintptr_t begin);
  void lend(uintptr_t begin, size_t bytes, size_t product) { lent.push_back({begin, bytes, product}); }
  void give_back(size_t products);  // of all products up to this number
  void touch(uintptr_t begin, uintptr_t end);
  // Checks an access of the thread to its stack.
  void check_sums(uintptr_t address, size_t bytes, bool is_read, uintptr_t pc);

  // Whether a fence of this thread came after the write, and the running thread is ordered after that fence.
  bool shows(const Event &write) const;
  // Reports stores and products that the thread has not waited for, when it has ended.
  void report_unfinished() const;
};

}  // namespace emu
